"""Label problems on a graph: smooth known labels over all rows, or over the leaves of a tree.

One problem serves the label-step and the leaf refit of the LapTAO paper (eqs. 6 and 10), labels
with a teacher, and smooth leaves; only the graph, the anchors and the evidence differ:

    min over Z of  sum_n anchor_n ||z_n - y_n||² + shift ||Z - T||² + gamma · tr(Zᵀ L Z),

that is ``(diag(anchor) + shift·I + gamma·L) Z = evidence`` with L = D - W and evidence =
anchor·Y + shift·T, plus half the Lagrange multipliers in the paper's loop, composed by the caller.

The smoothness is zᵀLz, each pair of rows counted once, here and everywhere in the library: the
system and eq. 4 of the paper have it so, while eqs. 1, 2 and 8 sum over ordered pairs, which is
twice as much.

Rows that no label reaches. Where a connected component holds no anchor the system is singular at
shift 0. Its rows get a faint anchor (`FAINT`) to the mean label, so that at shift 0 the answer
there is that mean; any shift that matters outweighs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from silva.solvers import MakeSolver, make_solver
from silva.tree import Array

FAINT = 1e-6
"""Anchor of a row that no label reaches, relative to the mean diagonal of the system.

Small, for these rows know nothing and must not pull at the tree: at the paper's first shift (0.001
beside gamma 0.1) it moves an answer by one part in 10⁴. Not smaller, for the condition of the
system; solvers do not feel it, since the mean of each component is taken out before they begin.
"""


@dataclass(frozen=True, eq=False)
class Total:
    """A weighted sum of the answers that is known: weightᵀ Z = amount.

    Attributes
    ----------
    weight : float64 array of shape (rows,)
        Non-negative; 1 at the unlabelled rows asks for the number of rows of each class there.
    amount : float64 array of shape (outputs,)
    """

    weight: Array
    amount: Array


class LabelSystem:
    """The system (diag(anchor) + shift·I + gamma·L(W)) Z = evidence, prepared to be solved often.

    Parameters
    ----------
    W : CSR array of shape (rows, rows)
        Symmetric non-negative weights; the diagonal does not matter.
    gamma : float
        Price of roughness.
    anchor : float64 array of shape (rows,)
        How firmly each row is held to its evidence: non-negative, not all zero.
    solver : {"auto", "eigen", "direct", "cg"} or function
        One eigendecomposition for all shifts (LapTAO paper, eq. 14), a sparse factorisation a
        shift, or conjugate gradients; "auto" chooses by size. A function (graph, diagonal, tol)
        makes a solver for a graph of a known shape, such as `silva.solvers.TwoSided`.
    tol : float
        Conjugate gradients stop when the residual has fallen to this part of the right-hand side,
        each measured without the column's mean, so that it does not depend on units or offset.
    n_threads : int
        Of conjugate gradients; the result is the same for any number.

    Attributes
    ----------
    n_free_components, n_free_rows : int
        Components of the graph without any anchor, and the rows in them.
    n_iterations : int
        Iterations of the last solve by conjugate gradients, 0 for the other solvers.
    """

    def __init__(
        self,
        W: Any,
        gamma: float,
        anchor: Array,
        *,
        solver: str | MakeSolver = "auto",
        tol: float = 1e-6,
        n_threads: int = 1,
    ) -> None:
        anchor = np.asarray(anchor, dtype=np.float64)
        graph, degree = _scaled_graph(W, gamma, anchor)
        self._anchored = anchor > 0
        n_components, self._component = connected_components(graph, directed=False)
        self._members = sparse.csr_array(
            (np.ones(len(anchor)), (self._component, np.arange(len(anchor)))),
            shape=(n_components, len(anchor)),
        )
        free = self._members @ anchor == 0
        self._free = free[self._component]
        self.n_free_components = int(free.sum())
        self.n_free_rows = int(self._free.sum())
        self.n_iterations = 0
        self._faint = FAINT * np.mean(anchor + degree) * self._free
        self._anchor = anchor + self._faint
        self._solver = make_solver(solver, graph, self._anchor + degree, tol, n_threads)
        self._response: tuple[float, Array, Array] | None = None

    def solve(
        self,
        evidence: Array,
        shift: float = 0.0,
        start: Array | None = None,
        total: Total | None = None,
    ) -> Array:
        """Return the answers of all rows.

        Parameters
        ----------
        evidence : float64 array of shape (rows, outputs)
            Right-hand side.
        shift : float
            Anchor common to all rows (the paper's mu). What depends on it alone is kept until it
            changes.
        start : array of shape (rows, outputs), optional
            Where conjugate gradients begin.
        total : Total, optional
            Known sums that the answers shall meet exactly. Rows that no label reaches then take
            the mean that the totals tell, and the other rows are moved until the sums are met:
            held by the faint anchor alone, the former would take all of the difference.

        Returns
        -------
        float64 array of shape (rows, outputs)
        """
        evidence = np.asarray(evidence, dtype=np.float64)
        self._check(evidence, shift, start, total)
        if self.n_free_rows:
            held = self._anchored  # the mean label: of what is known where a row is anchored
            mean = evidence[held].sum(axis=0) / (self._anchor[held] + shift).sum()
            if total is not None:
                mean = np.asarray(total.amount) / np.sum(total.weight)
            evidence = evidence + self._faint[:, None] * mean
        Z = self._solve(evidence, shift, start)
        return Z if total is None else self._meet(total, Z, shift)

    def _solve(self, evidence: Array, shift: float, start: Array | None) -> Array:
        """Solve for the deviations from the mean of each component.

        The mean is known, L does not see it, and what is left does not depend on the offset of
        the labels. It is zero where a component has nothing to tell, so nothing is solved there.
        """
        held = self._anchor + shift
        means = (self._members @ evidence) / (self._members @ held)[:, None]
        centre = means[self._component]
        rest = evidence - held[:, None] * centre
        begin = None if start is None else start - centre
        deviation, self.n_iterations = self._solver.solve(rest, shift, begin)
        return np.asarray(centre + deviation)

    def _meet(self, total: Total, Z: Array, shift: float) -> Array:
        """Move Z along A⁻¹ weight, the cheapest way to change the sums, until they are met.

        These are the KKT conditions A Z + weight·multiplierᵀ = evidence, weightᵀ Z = amount, with
        one right-hand side more than without the totals.
        """
        weight = np.asarray(total.weight, dtype=np.float64)
        cached = self._response
        if cached is None or cached[0] != shift or not np.array_equal(cached[1], weight):
            movable = np.where(self._free, 0.0, weight)
            if not movable.any():
                movable = weight
            n_iterations = self.n_iterations
            response = self._solve(movable[:, None], shift, None)[:, 0]
            self.n_iterations += n_iterations
            self._response = cached = shift, weight.copy(), response
        response = cached[2]
        multiplier = (weight @ Z - total.amount) / (weight @ response)
        return Z - response[:, None] * multiplier

    def _check(
        self, evidence: Array, shift: float, start: Array | None, total: Total | None
    ) -> None:
        n_rows = len(self._anchor)
        if evidence.ndim != 2 or len(evidence) != n_rows:
            raise ValueError(
                f"evidence has shape {evidence.shape}: expected ({n_rows}, outputs), a row for "
                "each row of the graph"
            )
        if not np.isfinite(evidence).all():
            raise ValueError(
                "evidence has NaN or infinite values: expected 0 where nothing is known"
            )
        if not 0 <= shift < np.inf:
            raise ValueError(f"shift is {shift}: expected a finite number of at least 0")
        if start is not None and np.shape(start) != evidence.shape:
            raise ValueError(f"start has shape {np.shape(start)}: expected {evidence.shape}")
        if total is None:
            return
        if np.shape(total.weight) != (n_rows,) or np.shape(total.amount) != evidence.shape[1:]:
            raise ValueError(
                f"total has weights of shape {np.shape(total.weight)} and amounts of shape "
                f"{np.shape(total.amount)}: expected ({n_rows},) and {evidence.shape[1:]}"
            )
        if not (np.min(total.weight) >= 0 and 0 < np.sum(total.weight) < np.inf):
            raise ValueError("the weights of total must be non-negative, finite and not all zero")


def refit_leaves(
    W: Any,
    gamma: float,
    anchor: Array,
    evidence: Array,
    leaf: Array,
    n_leaves: int,
    total: Total | None = None,
) -> Array:
    """Return the best constant answers of a tree's leaves, its decisions being fixed.

    Minimises the label problem over Z = B·C (LapTAO paper, section 3.3, eq. 10), with B the
    membership of the rows in the leaves: the same problem on the leaves, with Bᵀ W B, Bᵀ anchor
    and Bᵀ evidence. Weights inside a leaf fall on the diagonal, which the Laplacian does not see.

    Parameters
    ----------
    W, gamma, anchor, evidence
        The label problem of the rows, at shift 0.
    leaf : int array of shape (rows,)
        Leaf of each row.
    n_leaves : int
        Leaves; one without rows answers the mean label.
    total : Total, optional
        Known sums over the rows.

    Returns
    -------
    float64 array of shape (n_leaves, outputs)
    """
    n_rows = len(leaf)
    B = sparse.csr_array((np.ones(n_rows), leaf, np.arange(n_rows + 1)), shape=(n_rows, n_leaves))
    if total is not None:
        total = Total(B.T @ total.weight, total.amount)
    between = B.T @ sparse.csr_array(W) @ B
    return LabelSystem(between, gamma, B.T @ anchor, tol=1e-10).solve(B.T @ evidence, total=total)


def smoothness(W: Any, Z: Array) -> float:
    """Return tr(Zᵀ L Z): the sum of w_nm ||z_n - z_m||² with each pair counted once."""
    Z = Z - Z.mean(axis=0)  # L does not see it, the rounding does
    return max(float(np.sum((W.sum(axis=1)[:, None] * Z - W @ Z) * Z)), 0.0)


def label_energy(
    anchor: Array, targets: Array, Z: Array, W: Any, gamma: float
) -> tuple[float, float]:
    """Return the two parts of LapTAO's objective without the tree's penalty (paper, eq. 4).

    Returns
    -------
    fit, smooth : float
        sum_n anchor_n ||z_n - y_n||² and gamma · tr(Zᵀ L Z).
    """
    fit = float(np.sum(anchor[:, None] * (Z - targets) ** 2))
    return fit, gamma * smoothness(W, Z)


def _scaled_graph(W: Any, gamma: float, anchor: Array) -> tuple[Any, Array]:
    """Return gamma·W without diagonal and zeros, and its row sums."""
    if anchor.ndim != 1 or not (np.isfinite(anchor).all() and (anchor >= 0).all()):
        raise ValueError("anchor must be a vector of finite, non-negative numbers, one a row")
    if not (anchor > 0).any():
        raise ValueError("anchor is zero everywhere: expected at least one row with a label")
    if W.shape != (len(anchor), len(anchor)):
        raise ValueError(
            f"W has shape {W.shape}: expected {(len(anchor), len(anchor))}, a row and a column for "
            "each number of anchor"
        )
    if not 0 <= gamma < np.inf:
        raise ValueError(f"gamma is {gamma}: expected a finite number of at least 0")
    W = sparse.csr_array(W)
    low, high = W.data.min(initial=0), W.data.max(initial=0)
    if not (low >= 0 and high < np.inf):
        raise ValueError(
            f"W has weights from {low:g} to {high:g}: expected finite, non-negative ones"
        )
    graph = gamma * W
    if graph.diagonal().any():
        graph = graph - sparse.diags_array(graph.diagonal(), format="csr")
    if not graph.data.all():
        graph.eliminate_zeros()
    return graph, graph.sum(axis=1)
