"""The neighbour graph: entropic affinities between near rows, its Laplacian and its components.

The weights of the graph (LapTAO paper, section 4.1; Hinton and Roweis 2003) are

    p_nm = exp(-beta_n d_nm²) / sum over the k neighbours m' of n of exp(-beta_n d_nm'²),
    W = (P + Pᵀ) / 2,

with the bandwidth beta_n of each row such that the entropy of p_n is the logarithm of the
perplexity: every row has as many neighbours that count, in sparse regions as in dense ones.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from scipy.sparse import csgraph
from sklearn.utils import check_array, check_random_state

from silva.kernels import Matrix
from silva.neighbours import nearest_neighbours
from silva.tree import Array

METHODS = ("auto", "exact", "approximate")
METRICS = ("euclidean", "cosine", "manhattan")
NEIGHBOURS = 15  # when left open
ENTROPY_TOLERANCE = 1e-9
STEPS = 200  # of Newton or bisection; some ten are the rule


def affinity_graph(
    X: Matrix,
    n_neighbors: int | str = "auto",
    perplexity: float | str = "auto",
    *,
    method: str = "auto",
    metric: str = "euclidean",
    mutual: bool = False,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> sparse.csr_array:
    """Return the graph of the nearest neighbours with entropic affinities.

    Parameters
    ----------
    X : array or sparse matrix of shape (rows, columns)
        Finite numbers. Columns should have comparable scales.
    n_neighbors : int or "auto"
        Neighbours of each row, itself not counted; less than the number of rows. "auto" is 15, or
        all other rows where there are fewer. Rows that are equal are neighbours at distance 0.
    perplexity : float or "auto"
        Effective number of neighbours, at least 1. "auto" is a third of `n_neighbors`, at least 1;
        from `n_neighbors` up all neighbours weigh the same. A row that has more nearest neighbours
        at one and the same distance gives them all its weight, in equal parts.
    method : {"auto", "exact", "approximate"}
        How neighbours are searched. "approximate" needs the extra ``silva[ann]``. "auto" is exact
        unless approximate is expected to take less time and is installed.
    metric : {"euclidean", "cosine", "manhattan"}
        Cosine is one minus the cosine of the angle; a row of zeros is at distance 1 from all but
        other rows of zeros.
    mutual : bool
        Keep an edge only between rows that are neighbours of each other, W = min(P, Pᵀ). This
        does away with hubs, rows that are neighbours of very many others, and can leave rows alone.
    n_jobs : int, optional
        Threads; -1 means all. The graph is the same for any number.
    random_state : int, RandomState or None
        Seed of the approximate search.
    verbose : int
        Positive: say which method is taken, what it will cost, and how far it is.

    Returns
    -------
    csr_array of shape (rows, rows)
        Symmetric, zero diagonal, not negative, at most 2 · rows · n_neighbors entries.
    """
    X = check_array(
        X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", input_name="X"
    )
    k = _check_neighbours(n_neighbors, X.shape[0])
    target = _check_perplexity(perplexity, k)
    for name, value, choices in (("method", method, METHODS), ("metric", metric, METRICS)):
        if value not in choices:
            raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}")
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    found = nearest_neighbours(
        _comfortable(X),
        k,
        method=method,
        metric=metric,
        n_threads=int(effective_n_jobs(n_jobs)),
        seed=seed,
        verbose=verbose,
    )
    n = X.shape[0]
    begin = np.arange(0, n * k + 1, k, dtype=np.int32 if 2 * n * k < 2**31 else np.int64)
    weight = entropic_weights(found.distance, target)
    P = sparse.csr_array((weight.ravel(), found.index.ravel(), begin), shape=(n, n))
    return _canonical(P.minimum(P.T) if mutual else (P + P.T) * 0.5)


def _check_neighbours(n_neighbors: int | str, n_rows: int) -> int:
    if n_neighbors == "auto":
        if n_rows < 2:
            raise ValueError(f"a graph needs at least 2 rows, X has {n_rows}")
        return min(NEIGHBOURS, n_rows - 1)
    if not isinstance(n_neighbors, Integral) or isinstance(n_neighbors, bool):
        raise TypeError(f"n_neighbors must be an integer or 'auto', got {n_neighbors!r}")
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors must be at least 1, got {n_neighbors!r}")
    if n_neighbors >= n_rows:
        raise ValueError(
            f"n_neighbors={n_neighbors} must be less than the number of rows of X, {n_rows}: "
            "a row is not its own neighbour"
        )
    return int(n_neighbors)


def _check_perplexity(perplexity: float | str, k: int) -> float:
    if perplexity == "auto":
        return max(1.0, k / 3)
    if not isinstance(perplexity, Real) or isinstance(perplexity, bool):
        raise TypeError(f"perplexity must be a number or 'auto', got {perplexity!r}")
    if not 1 <= perplexity < np.inf:
        raise ValueError(f"perplexity must be finite and at least 1, got {perplexity!r}")
    return float(perplexity)


def _comfortable(X: Matrix) -> Matrix:
    """Scale numbers whose squares would leave double precision; the weights have no scale."""
    if sparse.issparse(X):
        X = sparse.csr_array(X)
        X.sum_duplicates()
        X.eliminate_zeros()
        largest = float(np.abs(X.data).max(initial=0))
    else:
        largest = float(max(X.max(), -X.min()))
    if largest == 0 or 1e-100 < largest < 1e100:
        return X
    return X * 2.0 ** -np.round(np.log2(largest))


def entropic_weights(distance: Array, perplexity: float) -> Array:
    """Return the weights of each row's neighbours, calibrated to a perplexity.

    Solves H(beta) = log(perplexity) for each row by Newton's method on log(beta), kept within
    bounds that are halved where it would leave them. Distances enter relative to the row's own
    spread, so their scale does not matter.

    Parameters
    ----------
    distance : array of shape (rows, k)
        Not negative; smallest first.
    perplexity : float
        At least 1.

    Returns
    -------
    array of shape (rows, k)
        Rows sum to 1. All equal where the perplexity is k or more, or the distances are; equal
        over the nearest, and 0 elsewhere, where more of them tie than the perplexity has room for.
    """
    n, k = distance.shape
    if perplexity >= k:
        return np.full((n, k), 1 / k)
    weight = np.empty((n, k))
    for start in range(0, n, 16384):
        part = slice(start, start + 16384)
        weight[part] = _calibrate(_relative_squares(distance[part]), np.log(perplexity))
    return weight


def _relative_squares(distance: Array) -> Array:
    """Squared distances beyond the nearest, in units of the farthest of the row."""
    near, far = distance[:, :1], distance[:, -1:]
    unit = np.where(far > 0, far, 1)
    return (distance - near) / unit * (distance / unit + near / unit)


def _calibrate(excess: Array, entropy: float) -> Array:
    """Weights exp(-beta · excess), normalised, of the given entropy; excess is 0 at the nearest."""
    ties = (excess == 0).sum(axis=1)
    weight: Array = (excess == 0) / ties[:, None]
    rows = np.flatnonzero(np.log(ties) < entropy - ENTROPY_TOLERANCE)
    excess = excess[rows]
    # The entropy falls as log(beta) grows; it is log(k) at the lower bound, log(ties) at the upper.
    low, high = np.full(len(rows), -50.0), np.full(len(rows), 700.0)
    log_beta = -np.log(np.maximum(np.median(excess, axis=1), 1e-300))
    for _ in range(STEPS):
        if not rows.size:
            break
        scaled = np.minimum(np.exp(log_beta)[:, None] * excess, 800)  # exp(-800) is 0
        w = np.exp(-scaled)
        total = w.sum(axis=1)
        w /= total[:, None]
        mean = (w * scaled).sum(axis=1)
        slope = (w * (scaled - mean[:, None]) ** 2).sum(axis=1)
        miss = np.log(total) + mean - entropy
        weight[rows] = w
        low, high = np.where(miss > 0, log_beta, low), np.where(miss > 0, high, log_beta)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            step = log_beta + miss / slope
        inside = (step > low) & (step < high)
        log_beta = np.where(inside, step, (low + high) / 2)
        going = (np.abs(miss) > ENTROPY_TOLERANCE) & (high - low > 1e-14 * np.abs(high))
        rows, excess, log_beta = rows[going], excess[going], log_beta[going]
        low, high = low[going], high[going]
    return weight


def laplacian(W: sparse.csr_array) -> sparse.csr_array:
    """Return the Laplacian D - W of a graph, D being the diagonal of its row sums."""
    degree = np.asarray(W.sum(axis=1), dtype=np.float64).ravel()
    return sparse.csr_array(sparse.diags_array(degree) - W)


def components(W: sparse.csr_array) -> tuple[int, Array]:
    """Return the number of connected components of a graph and the component of each row."""
    count, label = csgraph.connected_components(W, directed=False)
    return int(count), label


def check_affinity(W: Any, n_rows: int) -> sparse.csr_array:
    """Return a graph that a user made as a canonical float64 CSR array with a zero diagonal.

    Parameters
    ----------
    W : sparse or dense matrix
        Symmetric up to rounding, not negative. Its diagonal has no effect and is dropped.
    n_rows : int
        Rows of the data.
    """
    try:
        W = sparse.csr_array(W, dtype=np.float64, copy=True)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"affinity must be a matrix of numbers, dense or sparse, got {type(W).__name__}"
        ) from error
    if W.shape != (n_rows, n_rows):
        raise ValueError(
            f"affinity has shape {W.shape}, X has {n_rows} rows: expected ({n_rows}, {n_rows})"
        )
    if not np.isfinite(W.data).all():
        raise ValueError("affinity contains NaN or infinity: weights must be finite")
    if W.data.min(initial=0) < 0:
        raise ValueError(f"affinity has a negative weight, {W.data.min():g}: none may be below 0")
    W = _canonical(W)
    gap = abs(W - W.T)
    largest = float(W.data.max(initial=0))
    if gap.nnz and float(gap.data.max()) > 1e-8 * largest:
        raise ValueError(
            f"affinity is not symmetric: two mirrored weights differ by {gap.data.max():g}; "
            "pass (W + W.T) / 2"
        )
    return W if gap.nnz == 0 else _canonical((W + W.T) * 0.5)


def part_of_affinity(W: Any, rows: Any, n_rows: int) -> sparse.csr_array:
    """Return the part of a user's graph that lies between some of its rows.

    Parameters
    ----------
    W : sparse or dense matrix
        As in `check_affinity`, over more rows than those of the data.
    rows : int array of shape (n_rows,)
        Which of them each row of the data is.
    n_rows : int
        Rows of the data.
    """
    if W is None:
        raise ValueError("affinity_rows tells which rows of affinity are meant: expected affinity")
    shape = W.shape if sparse.issparse(W) else np.shape(W)
    whole = shape[0] if len(shape) == 2 else n_rows
    W, rows = check_affinity(W, whole), np.asarray(rows)
    if rows.shape != (n_rows,) or rows.dtype.kind not in "iu":
        raise ValueError(
            f"affinity_rows must hold a whole number for each of the {n_rows} rows of X, got an "
            f"array of shape {rows.shape} and type {rows.dtype}"
        )
    if rows.min() < 0 or rows.max() >= whole:
        raise ValueError(
            f"affinity_rows must lie between 0 and {whole - 1}, the rows of affinity, got "
            f"{rows.min()} to {rows.max()}"
        )
    distinct, counts = np.unique(rows, return_counts=True)
    if len(distinct) < n_rows:
        raise ValueError(f"affinity_rows names row {distinct[counts > 1][0]} more than once")
    return W[rows][:, rows]


def _canonical(W: sparse.csr_array) -> sparse.csr_array:
    """Drop the diagonal and explicit zeros, add up repeats, sort the columns of each row."""
    W = sparse.csr_array(W)
    W.sum_duplicates()
    rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    W.data[W.indices == rows] = 0
    W.eliminate_zeros()
    return W
