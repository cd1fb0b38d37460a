"""Solvers of the label system: A X = rhs with A = diag(diagonal + shift) - graph.

The graph is symmetric, non-negative and without a diagonal, A is diagonally dominant. Only the
shift changes from one solve to the next (the mu of the LapTAO paper, eq. 6); each solver keeps
what it can.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from silva import _core
from silva.tree import Array

MAX_ITERATIONS = 3000
"""Of conjugate gradients; some 30 to 150 are usual at shift 0, fewer than 40 later."""

# solver="auto", measured over a whole loop (benchmarks/label_step.py). The eigendecomposition wins
# while it takes a millisecond; a factorisation is exact and still cheap for a while, unless the
# graph is so full that the factor is dense; conjugate gradients win from there on.
EIGEN_ROWS, DIRECT_ROWS, DIRECT_DENSITY = 128, 512, 1 / 8

ONE_BLOCK = 2048
"""So many rows are one block of the core and fit the cache: neither order nor threads help."""


class Solver(Protocol):
    """A label system prepared for right-hand sides of any number of columns."""

    def solve(self, rhs: Array, shift: float, start: Array | None) -> tuple[Array, int]:
        """Return X and the iterations it took."""
        ...


class _Eigen:
    """LapTAO paper, appendix C: one eigendecomposition of A at shift 0 serves all shifts."""

    def __init__(self, graph: Any, diagonal: Array) -> None:
        self._values, self._vectors = eigh(np.diag(diagonal) - graph.toarray())

    def solve(self, rhs: Array, shift: float, start: Array | None) -> tuple[Array, int]:
        Q = self._vectors
        return Q @ ((Q.T @ rhs) / (self._values + shift)[:, None]), 0


class _Direct:
    """A sparse factorisation, kept until the shift changes."""

    def __init__(self, graph: Any, diagonal: Array) -> None:
        self._graph, self._diagonal = graph, diagonal
        self._shift = np.nan
        self._factor: Any = None

    def solve(self, rhs: Array, shift: float, start: Array | None) -> tuple[Array, int]:
        if shift != self._shift:
            A = sparse.diags_array(self._diagonal + shift, format="csc") - self._graph.tocsc()
            self._factor = splu(
                A,
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=0.0,  # diagonally dominant: the diagonal is a safe pivot
                options={"SymmetricMode": True},
            )
            self._shift = shift
        return self._factor.solve(rhs), 0


class _ConjugateGradients:
    """Preconditioned conjugate gradients in the core, all columns together, O(nnz + n·K) memory."""

    def __init__(self, graph: Any, diagonal: Array, tol: float, n_threads: int) -> None:
        large = len(diagonal) > ONE_BLOCK
        self._order = cluster_order(graph) if large else np.arange(len(diagonal))
        self._place = np.argsort(self._order)
        graph = graph[self._order][:, self._order]
        graph.sort_indices()
        self._graph = graph.indptr.astype(np.int64), graph.indices.astype(np.int32), graph.data
        self._diagonal = diagonal[self._order]
        self._tol, self._n_threads = tol, n_threads if large else 1

    def solve(self, rhs: Array, shift: float, start: Array | None) -> tuple[Array, int]:
        rhs = rhs[self._order]
        start = np.zeros_like(rhs) if start is None else start[self._order]
        diagonal = self._diagonal + shift
        # The residual of X = 0; the core's own norm differs from this one by its preconditioner.
        size = np.sqrt(np.sum(rhs**2 / diagonal[:, None], axis=0))
        noise = 8 * np.finfo(float).eps * np.sqrt(diagonal.sum()) * np.abs(start).max(axis=0)
        # Below the rounding of a far start there is nothing to gain.
        target = self._tol * size + noise
        X, n_iterations, residual = _core.solve_labels(
            *self._graph, diagonal, rhs, start, target, MAX_ITERATIONS, self._n_threads
        )
        if (residual > target).any():
            worst = np.max(residual / np.maximum(size, np.finfo(float).tiny))
            warnings.warn(
                f"the label system stopped after {n_iterations} iterations at a relative residual "
                f"of {worst:.1e} instead of {self._tol:.1e}",
                RuntimeWarning,
                stacklevel=4,
            )
        return X[self._place], n_iterations


def make_solver(name: str, graph: Any, diagonal: Array, tol: float, n_threads: int) -> Solver:
    """Prepare the solver of that name, or by size for "auto"; see `silva.labels.LabelSystem`."""
    n_rows = len(diagonal)
    if name == "auto":
        small = n_rows <= DIRECT_ROWS and graph.nnz <= DIRECT_DENSITY * n_rows**2
        name = "eigen" if n_rows <= EIGEN_ROWS else "direct" if small else "cg"
    if name == "eigen":
        return _Eigen(graph, diagonal)
    if name == "direct":
        return _Direct(graph, diagonal)
    if name == "cg":
        return _ConjugateGradients(graph, diagonal, tol, n_threads)
    raise ValueError(f'solver is {name!r}: expected "auto", "eigen", "direct" or "cg"')


def cluster_order(W: Any) -> Array:
    """Return an order of the rows in which strongly connected ones lie close together.

    Each cluster, at first a row, joins the neighbour with the largest weight per row of it; what
    hangs together becomes a cluster, until nothing is left to join. A product with W in this
    order finds its operands in the cache, and 16 blocks of rows cut some 15 % of the weight of a
    graph of images, where reverse Cuthill-McKee cuts half.

    Parameters
    ----------
    W : CSR array of shape (rows, rows)
        Symmetric, without diagonal.

    Returns
    -------
    int array of shape (rows,)
    """
    size, joined = np.ones(W.shape[0]), []
    while W.nnz:
        count = W.shape[0]
        row = np.repeat(np.arange(count, dtype=W.indices.dtype), np.diff(W.indptr))
        # Equal weights would chain the rows up in the order of their numbers: a hash breaks ties.
        ties = (row + W.indices).astype(np.uint32) * np.uint32(2654435769)
        pull = W.data * (1 + 1e-15 * ties) / size[W.indices]
        filled = np.flatnonzero(np.diff(W.indptr))
        strongest = np.zeros(count)
        strongest[filled] = np.maximum.reduceat(pull, W.indptr[filled])
        chosen, best = np.arange(count), pull == strongest[row]
        chosen[row[best]] = W.indices[best]
        link = sparse.csr_array((np.ones(count), chosen, np.arange(count + 1)), W.shape)
        count, cluster = connected_components(link, directed=False)
        joined.append(cluster)
        size = np.bincount(cluster, size)
        first, second = cluster[row], cluster[W.indices]
        apart = first != second
        W = sparse.csr_array((W.data[apart], (first[apart], second[apart])), (count, count))
    place = np.arange(len(size))
    for cluster in reversed(joined):
        place = np.argsort(np.argsort(place[cluster], kind="stable"))
    return np.argsort(place)
