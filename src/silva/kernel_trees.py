"""Kernel trees from partly labelled rows: grown, then given values at their leaves.

The two phases of the kernel tree paper (section 3): `silva.kernel_growth` splits for the sake of
labels and columns alike, `silva.leaf_values` carries the labels over the leaves. Three things here
are not in the paper. Columns are clipped at quantiles first, because a few far rows would
own the variance that growth lowers. Their variances may count by what a column tells about the
labels, where growth would chase columns that mean nothing. And leaves may lean to what another
model says of their rows, where few labels reach them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.special import ndtr

from silva.kernel_growth import GrownTree, Growth, Prepared, grow_many, prepare
from silva.labels import Total
from silva.leaf_values import (
    RobustLeaves,
    ancestor_values,
    balancing_weight,
    mean_answers,
    robust_leaf_values,
    smooth_leaf_values,
)
from silva.membership import membership
from silva.tree import Array, Tree

OUTSIDE = 0.01  # share of the weight beyond which a column is clipped, at either end


@dataclass(frozen=True, eq=False)
class Task:
    """Rows of which some are labelled.

    Attributes
    ----------
    X : array of shape (rows, columns)
        Clipped, if at all.
    targets : float64 array of shape (rows, outputs)
        Numbers, or class indicators; any value where the row is unlabelled.
    labelled : bool array of shape (rows,)
    weight : float64 array of shape (rows,)
        Positive.
    together : bool
        Whether the outputs are indicators of the classes of one target.
    deviation : float64 array of shape (columns,)
        The unit of a bandwidth in each column.
    total : Total or None
        Known sums of the answers over the rows.
    n_threads : int
    """

    X: Array
    targets: Array
    labelled: Array
    weight: Array
    together: bool
    deviation: Array
    total: Total | None
    n_threads: int

    def hide(self, rows: Array) -> Task:
        """Return the task with some more rows unlabelled, and nothing known about totals."""
        labelled = self.labelled.copy()
        labelled[rows] = False
        return replace(self, labelled=labelled, total=None)

    def on(self, rows: Array) -> Task:
        """Return the task on some of the rows, and nothing known about totals."""
        return replace(
            self, X=self.X[rows], targets=self.targets[rows], labelled=self.labelled[rows],
            weight=self.weight[rows], total=None,
        )  # fmt: skip

    def prepare(self, growth: Growth) -> Prepared:
        """Bin and scale the rows."""
        return prepare(
            self.X, self.targets, self.labelled, self.weight, growth, together=self.together,
            n_threads=self.n_threads,
        )  # fmt: skip

    def grow(self, growth: Growth, seed: int) -> GrownTree:
        """Grow one tree."""
        return grow_many(self.prepare(growth), np.array([seed]), n_threads=self.n_threads)[0]

    def members(self, tree: Tree, growth: Growth) -> sparse.csr_array:
        """Return the membership of the rows in the leaves of a tree that grew so."""
        return membership(tree, self.X, growth.bandwidth, growth.kernel, self.n_threads)


@dataclass(frozen=True)
class LeafRule:
    """How leaves get their values.

    Attributes
    ----------
    robust : bool
        By cuts (section 3.3), not smooth (section 3.2).
    labelled_weight : float or None
        Factor on the weight of labelled rows; None balances them with the others.
    prior_weight : float
        Weight of the leaf's prior beside that of the leaf's rows.
    """

    robust: bool
    labelled_weight: float | None
    prior_weight: float

    def factor(self, task: Task) -> float:
        """Return the factor on the weight of labelled rows."""
        if self.labelled_weight is not None:
            return self.labelled_weight
        return balancing_weight(task.labelled, task.weight)


def leaf_values(
    tree: Tree, M: sparse.csr_array, task: Task, rule: LeafRule, answers: Array | None = None
) -> tuple[Array, RobustLeaves | None]:
    """Return values of the leaves, and how robust ones came about.

    Parameters
    ----------
    tree : Tree
    M : CSR array of shape (rows, leaves)
        Memberships of the task's rows.
    rule : LeafRule
    answers : float64 array of shape (rows, outputs) or None
        What another model says of the rows: leaves lean to the mean of it. None has them lean to
        the nearest node above that holds labels.
    """
    known = (task.targets, task.labelled, task.weight)
    if answers is None:
        prior = ancestor_values(tree, M, *known)
    else:
        prior = mean_answers(M, answers, task.weight)
    factor = rule.factor(task)
    if rule.robust:
        return robust_leaf_values(
            M, *known, prior, prior_weight=rule.prior_weight, labelled_weight=factor
        )
    values = smooth_leaf_values(
        M, *known, prior, prior_weight=rule.prior_weight, labelled_weight=factor, total=task.total
    )
    return values, None


def column_ranges(X: Array, weight: Array) -> Array:
    """Return where columns are clipped, an array of shape (2, columns).

    The quantiles at 1 and 99 % of the weight; the extremes where these are one value, as in columns
    that are rarely anything but zero.
    """
    low, high = np.empty(X.shape[1]), np.empty(X.shape[1])
    total = weight.sum()
    for j, column in enumerate(X.T):
        order = np.argsort(column)
        below = np.cumsum(weight[order])
        ends = np.searchsorted(below, [OUTSIDE * total, (1 - OUTSIDE) * total])
        low[j], high[j] = column[order[np.minimum(ends, len(order) - 1)]]
        if low[j] == high[j]:
            low[j], high[j] = column[order[0]], column[order[-1]]
    return np.stack([low, high])


def deviations(X: Array, weight: Array) -> Array:
    """Return the standard deviation of each column; exactly 0 where it does not vary."""
    share = weight / weight.sum()
    centred = X - X[0]
    centred -= share @ centred
    return np.asarray(np.where(np.ptp(X, axis=0) > 0, np.sqrt(share @ np.square(centred)), 0.0))


def gaussian_membership(tree: Tree, X: Array, bandwidth: Array) -> Array:
    """Return memberships under the whole Gaussian, for a certificate: (rows, leaves), dense.

    Trees grow with a histogram of it, which is too far from it to certify anything in more than a
    few columns (see `silva.robustness`).
    """
    part = np.zeros((X.shape[0], tree.n_leaves))
    feature = np.full(tree.n_nodes, -1)
    feature[~tree.is_leaf] = tree.coefficients.indices
    leaf_index = tree.leaf_index
    everywhere = (np.full(X.shape[1], -np.inf), np.full(X.shape[1], np.inf))
    stack = [(0, everywhere, np.ones(len(X)))]
    while stack:
        node, (low, high), here = stack.pop()
        if tree.left[node] < 0:
            part[:, leaf_index[node]] = here
            continue
        j, cut = feature[node], tree.threshold[node]
        whole = _mass(X[:, j], low[j], high[j], bandwidth[j])
        left_high, right_low = high.copy(), low.copy()
        left_high[j] = right_low[j] = cut
        # What a row has of its own interval divides between the two parts of it.
        share = _mass(X[:, j], low[j], cut, bandwidth[j]) / np.maximum(whole, 1e-300)
        share = np.clip(np.where(whole > 0, share, X[:, j] < cut), 0.0, 1.0)
        stack.append((tree.left[node], (low, left_high), here * share))
        stack.append((tree.right[node], (right_low, high), here * (1 - share)))
    return part


def _mass(x: Array, low: float, high: float, deviation: float) -> Array:
    """Return the mass of a Gaussian around each x between two bounds, exact in its tails."""
    if deviation == 0:
        return np.asarray((low <= x) & (x < high), dtype=np.float64)
    a, b = (low - x) / deviation, (high - x) / deviation
    flip = a > 0  # the upper tail loses its digits near one: look at its mirror image
    return np.asarray(ndtr(np.where(flip, -a, b)) - ndtr(np.where(flip, -b, a)))
