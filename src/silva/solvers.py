"""Solvers of the label system: A X = rhs with A = diag(diagonal + shift) - graph.

The graph is symmetric, non-negative and without a diagonal, A is diagonally dominant. Only the
shift changes from one solve to the next (the mu of the LapTAO paper, eq. 6); each solver keeps
what it can.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

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


MakeSolver: TypeAlias = Callable[[Any, Array, float], Solver]
"""(graph, diagonal, tol) -> solver, for a graph of a known shape."""


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
            _warn_unsolved(n_iterations, worst, self._tol)
        return X[self._place], n_iterations


class TwoSided:
    """Conjugate gradients on one side of a graph whose edges all run between two sides.

    With A = [D, -B; -Bᵀ, E] one side is eliminated exactly: (D - B E⁻¹ Bᵀ) x = r + B E⁻¹ s, and
    y = E⁻¹ (s + Bᵀ x). The smaller side is kept, with the diagonal of its system as
    preconditioner; nothing but B is stored. For the 47,500 leaves of a forest and 5,520 rows a
    label system took 0.2 s in all; the core, which knows no sides, took 0.5 s.

    Parameters
    ----------
    n_first : int
        Rows of the graph on the first side.
    graph, diagonal, tol
        As in `make_solver`; the graph has edges between the first rows and the others only.
    """

    def __init__(self, n_first: int, graph: Any, diagonal: Array, tol: float) -> None:
        first, second = slice(0, n_first), slice(n_first, len(diagonal))
        fewer_first = n_first <= len(diagonal) - n_first
        self._kept, self._other = (first, second) if fewer_first else (second, first)
        self._B = sparse.csr_array(graph[self._kept, self._other])
        self._Bt = sparse.csr_array(graph[self._other, self._kept])
        self._squares = self._B.power(2)
        self._diagonal, self._tol = diagonal, tol

    def solve(self, rhs: Array, shift: float, start: Array | None) -> tuple[Array, int]:
        """Return X and the iterations it took."""
        D, E = (self._diagonal[side, None] + shift for side in (self._kept, self._other))
        r, s = rhs[self._kept], rhs[self._other]
        # Positive in exact numbers; rounding may leave nothing of a row that hears only itself.
        scale = np.maximum(D - self._squares @ (1 / E), 1e-12 * D)
        b = r + self._B @ (s / E)
        x = np.zeros_like(b) if start is None else np.array(start[self._kept])
        residual = b - self._product(x, D, E)
        size = np.sqrt(np.sum(b**2 / scale, axis=0))
        noise = 8 * np.finfo(float).eps * np.sqrt(D.sum()) * np.abs(x).max(axis=0, initial=0.0)
        target = self._tol * size + noise
        direction, rho, n_iterations = np.zeros_like(b), np.full(b.shape[1], np.inf), 0
        while True:
            step = residual / scale
            before, rho = rho, np.sum(residual * step, axis=0)
            moves = np.sqrt(rho) > target
            if not moves.any() or n_iterations == MAX_ITERATIONS:
                break
            direction = step + np.where(moves, rho, 0.0) / np.where(moves, before, 1.0) * direction
            image = self._product(direction, D, E)
            curvature = np.sum(direction * image, axis=0)
            moves &= curvature > 0
            along = np.where(moves, rho, 0.0) / np.where(moves, curvature, 1.0)
            x += along * direction
            residual -= along * image
            n_iterations += 1
        if moves.any():
            worst = np.max(np.sqrt(rho) / np.maximum(size, np.finfo(float).tiny))
            _warn_unsolved(n_iterations, worst, self._tol)
        X = np.empty_like(rhs)
        X[self._kept], X[self._other] = x, (s + self._Bt @ x) / E
        return X, n_iterations

    def _product(self, x: Array, D: Array, E: Array) -> Array:
        return np.asarray(D * x - self._B @ ((self._Bt @ x) / E))


def _warn_unsolved(n_iterations: int, residual: float, tol: float) -> None:
    warnings.warn(
        f"the label system stopped after {n_iterations} iterations at a relative residual of "
        f"{residual:.1e} instead of {tol:.1e}",
        RuntimeWarning,
        stacklevel=5,
    )


def make_solver(
    name: str | MakeSolver, graph: Any, diagonal: Array, tol: float, n_threads: int
) -> Solver:
    """Prepare the solver of that name, or by size for "auto"; see `silva.labels.LabelSystem`."""
    if callable(name):
        return name(graph, diagonal, tol)
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
