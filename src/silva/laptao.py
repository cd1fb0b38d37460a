"""The graph side of LapTAO: labels smoothed over a graph, with a tree pulling at them.

Minimises over the coordinates Z, a row per training row and a column per output,

    E(Z) = sum over labelled n of |z_n - y_n|² + gamma · tr(Zᵀ L Z) + rest(Z)

(LapTAO paper, eq. 4, where rest = 0 and the minimiser is the harmonic function of the labels).
With few labels that minimiser is flat but for spikes at the labelled rows, for labels far away
count as much as near ones, and no tree can fit it. So labels are spread by a damped walk here, and
normalised:

    Z0 = S(JY) / S(J1),    S = A⁻¹,    A = J + damping·U + gamma·L,

J and U the weights with which rows are labelled and unlabelled. Each row of Z0 is a mean of the
labels, weighted by how well the graph conducts them; with damping = 0 it is the paper's start. The
rest is what makes Z0 the minimiser:

    rest(Z) = damping·|Z|²_U - 2 <Z, A·Z0 - JY>,    so that    E(Z) = |Z - Z0|²_A + constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from silva.graph import laplacian
from silva.labels import LabelSystem, Total, label_energy, refit_leaves
from silva.tree import Array

FITTING_ROUNDS = 100  # of proportional fitting; a few suffice


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known about the outputs.

    Attributes
    ----------
    labelled, unlabelled : float64 arrays of shape (rows,)
        Weight with which a row is labelled, and unlabelled: copies of a row are one row.
    sums : float64 array of shape (rows, outputs)
        Weighted sum of the labels of a row.
    total : Total or None
        Known weighted totals of the outputs over the unlabelled rows.
    """

    labelled: Array
    unlabelled: Array
    sums: Array
    total: Total | None = None

    @property
    def means(self) -> Array:
        """Mean label of each row; zero where there is none."""
        return np.asarray(self.sums / np.maximum(self.labelled, 1e-300)[:, None])


class SmoothedLabels:
    """Coordinates of LapTAO for `silva.mac.alternate`."""

    def __init__(
        self,
        W: sparse.csr_array,
        evidence: Evidence,
        *,
        gamma: float,
        damping: float,
        solver: str = "auto",
        n_threads: int = 1,
    ) -> None:
        self._W, self._evidence, self._gamma = W, evidence, gamma
        self._damped = damping * evidence.unlabelled
        self._anchor = evidence.labelled + self._damped
        self._system = LabelSystem(W, gamma, self._anchor, solver=solver, n_threads=n_threads)
        self._spread = self._spread_labels()
        self._target = self._anchor[:, None] * self._spread + gamma * (laplacian(W) @ self._spread)

    @property
    def n_free_rows(self) -> int:
        """Rows that no label reaches."""
        return self._system.n_free_rows

    @property
    def n_free_components(self) -> int:
        """Components of the graph that hold no label."""
        return self._system.n_free_components

    def _spread_labels(self) -> Array:
        sums, labelled = self._evidence.sums, self._evidence.labelled
        conducted = self._system.solve(np.column_stack([sums, labelled]))
        mean = sums.sum(axis=0) / labelled.sum()
        # A row that no label reaches, or only through rounding, gets the mean label.
        faint = 1e-12
        reached = np.maximum(conducted[:, -1:], 0.0)
        spread = (conducted[:, :-1] + faint * mean) / (reached + faint)
        lowest, highest = self._label_range()
        spread = np.clip(spread, lowest, highest)
        if self._evidence.total is not None:
            spread = fit_totals(spread, self._evidence.total)
        return np.asarray(spread)

    def _label_range(self) -> tuple[Array, Array]:
        means = self._evidence.means[self._evidence.labelled > 0]
        return means.min(axis=0), means.max(axis=0)

    def initial(self) -> Array:
        """Return the spread labels."""
        return self._spread

    def step(self, target: Array, mu: float, Z: Array) -> Array:
        """Label-step: solve the system of eq. 6."""
        return self._system.solve(
            self._target + mu * target, shift=mu, start=Z, total=self._evidence.total
        )

    def energy(self, Z: Array) -> dict[str, float]:
        """Return the terms of E."""
        known = self._evidence
        fit, smooth = label_energy(known.labelled, known.means, Z, self._W, self._gamma)
        rest = self._damped @ (Z**2).sum(axis=1) - 2 * np.sum(Z * (self._target - known.sums))
        return {"labels": fit, "graph": smooth, "rest": float(rest)}

    def refit(self, leaf: Array, n_leaves: int) -> Array:
        """Return the exact answers of the leaves, the tree's decisions fixed (section 3.3)."""
        return refit_leaves(
            self._W, self._gamma, self._anchor, self._target, leaf, n_leaves, self._evidence.total
        )


def fit_totals(Z: Array, total: Total) -> Array:
    """Scale the columns of a distribution per row until their weighted totals are as given.

    Iterative proportional fitting: of all distributions with these totals, the closest in relative
    entropy. A constant shift, which the least-squares step would make, helps the rare classes at
    rows where they are out of the question.
    """
    Z = np.maximum(Z, 1e-12)
    for _ in range(FITTING_ROUNDS):
        reached = total.weight @ Z
        Z = Z * (total.amount / np.maximum(reached, 1e-300))
        Z /= np.maximum(Z.sum(axis=1, keepdims=True), 1e-300)
        if np.allclose(reached, total.amount, rtol=1e-6, atol=1e-9):
            break
    return Z
