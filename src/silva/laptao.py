"""The graph side of LapTAO: labels smoothed over a graph, with a tree pulling at them.

Minimises over the coordinates Z, a row per training row and a column per output,

    E(Z) = sum_n a_n |z_n - e_n|² + gamma · tr(Zᵀ L Z)

(LapTAO paper, eq. 4). Labelled rows are anchored to their labels, a_n their weight. Unlabelled rows
are anchored, `damping` times their weight, to the *spread* labels Z0,

    Z0 = S(JY) / S(J1),    S = (J + damping·U + gamma·L)⁻¹,

each the mean of all labels, weighted by how well the graph conducts them. The paper's start is
damping = 0, where S(J1) = 1. Then labels far away count as much as near ones, and with few labels
Z is flat but for spikes at the labelled rows, which no tree can fit; a damped walk forgets the
labels that it passed long ago and keeps the contrast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

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
        anchor = evidence.labelled + damping * evidence.unlabelled
        self._system = LabelSystem(W, gamma, anchor, solver=solver, n_threads=n_threads)
        self._spread = self._spread_labels()
        pull = damping * evidence.unlabelled
        self._anchor = anchor
        self._pulled = evidence.sums + pull[:, None] * self._spread

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
            spread = _fit_totals(spread, self._evidence.total)
        return np.asarray(spread)

    def _label_range(self) -> tuple[Array, Array]:
        means = self._evidence.means[self._evidence.labelled > 0]
        return means.min(axis=0), means.max(axis=0)

    def initial(self) -> Array:
        """Return the spread labels."""
        return self._spread

    def step(self, target: Array, mu: float, Z: Array) -> Array:
        """Label-step: solve the system of eq. 6."""
        weighted = mu * target
        return self._system.solve(
            self._pulled + weighted, shift=mu, start=Z, total=self._evidence.total
        )

    def energy(self, Z: Array) -> dict[str, float]:
        """Return the terms of E."""
        labelled, unlabelled = self._evidence.labelled, self._anchor - self._evidence.labelled
        fit, smooth = label_energy(labelled, self._evidence.means, Z, self._W, self._gamma)
        damped = float(unlabelled @ ((Z - self._spread) ** 2).sum(axis=1))
        return {"labels": fit, "graph": smooth, "damping": damped}

    def refit(self, leaf: Array, n_leaves: int) -> Array:
        """Return the exact answers of the leaves, the tree's decisions fixed (section 3.3)."""
        return refit_leaves(
            self._W, self._gamma, self._anchor, self._pulled, leaf, n_leaves, self._evidence.total
        )


def _fit_totals(Z: Array, total: Total) -> Array:
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
