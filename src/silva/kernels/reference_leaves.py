"""The leaf problem in plain NumPy, for `silva.kernels.reference`."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np

from silva.kernels import LeafAnswers
from silva.leaves import ClassShares, Linear, Mean
from silva.losses import CLASS_LOSSES, squared_error
from silva.tree import Array


class LeafModel(Protocol):
    """What the leaves answer, and what a row would lose in each of them."""

    def fit(self, leaf: Array) -> None:
        """Refit every leaf to its rows; one without rows answers for all."""
        ...

    def losses(self) -> Array:
        """Return the weighted loss (rows, leaves) of every row in every leaf."""
        ...

    def penalty(self) -> float:
        """Return what the objective charges for the answers themselves."""
        ...

    def answers(self) -> LeafAnswers:
        """Return what the leaves answer."""
        ...


class ShareLeaves:
    """Class shares: the weighted vote of a leaf's rows (boosted TAO paper, algorithm 2)."""

    def __init__(self, leaves: ClassShares, weight: Array, n_leaves: int) -> None:
        self.weight, self.table = weight, CLASS_LOSSES[leaves.loss]
        begin = leaves.class_begin
        self.targets = [slice(*ends) for ends in pairwise(begin)]
        self.member = np.zeros((len(weight), begin[-1]))
        np.put_along_axis(self.member, leaves.codes.astype(np.intp), 1.0, axis=1)
        self.overall = np.tile(weight @ self.member, (n_leaves, 1))
        self.counts = self.overall.copy()

    def fit(self, leaf: Array) -> None:
        self.counts = self.overall.copy()
        for number in np.unique(leaf):
            here = leaf == number
            self.counts[number] = self.weight[here] @ self.member[here]

    def losses(self) -> Array:
        table = [
            np.concatenate([self.table(counts[part]) for part in self.targets])
            for counts in self.counts
        ]
        return np.asarray(self.weight[:, None] * (self.member @ np.transpose(table)))

    def penalty(self) -> float:
        return 0.0

    def answers(self) -> LeafAnswers:
        shares = [
            self.counts[:, part] / self.counts[:, part].sum(axis=1, keepdims=True)
            for part in self.targets
        ]
        return LeafAnswers(np.hstack(shares), None, None)


class MeanLeaves:
    """The weighted mean of the targets (LapTAO paper, section 3.1)."""

    def __init__(self, leaves: Mean, weight: Array, n_leaves: int) -> None:
        self.targets, self.weight = leaves.targets.astype(np.float64), weight
        self.overall = np.tile(np.average(self.targets, axis=0, weights=weight), (n_leaves, 1))
        self.mean = self.overall.copy()

    def fit(self, leaf: Array) -> None:
        self.mean = self.overall.copy()
        for number in np.unique(leaf):
            here = leaf == number
            self.mean[number] = np.average(self.targets[here], axis=0, weights=self.weight[here])

    def losses(self) -> Array:
        return self.weight[:, None] * squared_error(self.targets[:, None], self.mean)

    def penalty(self) -> float:
        return 0.0

    def answers(self) -> LeafAnswers:
        return LeafAnswers(self.mean, None, None)


class LineLeaves:
    """Ridge regression on the rows of a leaf; bounds are the range of their targets."""

    def __init__(self, leaves: Linear, X: Array, weight: Array, n_leaves: int) -> None:
        self.targets, self.weight = leaves.targets.astype(np.float64), weight
        self.Z, self.ridge = np.hstack([X, np.ones((len(X), 1))]), leaves.ridge
        self.overall = np.average(self.targets, axis=0, weights=weight)
        self.n_leaves = n_leaves
        self.fit(np.empty(0, np.intp))

    def fit(self, leaf: Array) -> None:
        self.slopes = np.zeros((self.n_leaves, len(self.overall), self.Z.shape[1]))
        self.slopes[:, :, -1] = self.overall
        self.bounds = np.tile(self.overall, (2, self.n_leaves, 1))
        for number in np.unique(leaf):
            here = leaf == number
            y = self.targets[here]
            self.slopes[number] = ridge_regression(self.Z[here], y, self.weight[here], self.ridge)
            self.bounds[:, number] = y.min(axis=0), y.max(axis=0)

    def losses(self) -> Array:
        answers = np.tensordot(self.Z, self.slopes, (1, 2))
        return self.weight[:, None] * squared_error(self.targets[:, None], answers)

    def penalty(self) -> float:
        return float(self.ridge * (self.slopes[:, :, :-1] ** 2).sum())

    def answers(self) -> LeafAnswers:
        return LeafAnswers(self.slopes[:, :, -1], self.slopes[:, :, :-1], self.bounds)


def ridge_regression(Z: Array, y: Array, weight: Array, ridge: float) -> Array:
    """Return S of ``min sum_i weight_i |y_i - S z_i|² + ridge |S|²``, the last column free.

    A hair of the total weight beside the ridge keeps equal columns apart.
    """
    price = np.full(Z.shape[1], ridge + 1e-9 * weight.sum())
    price[-1] = 0
    weighted = Z.T * weight
    return np.asarray(np.linalg.solve(weighted @ Z + np.diag(price), weighted @ y).T)
