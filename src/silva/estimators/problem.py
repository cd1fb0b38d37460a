"""What a tree is fitted to, and what the fitted trees are asked, whatever the estimator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silva.kernels import Kernels, Matrix, Rows
from silva.leaves import Leaves, take_rows
from silva.tree import Array, Tree, answer, node_totals


@dataclass(frozen=True, eq=False)
class Problem:
    """What a tree is fitted to.

    Attributes
    ----------
    kernels : Kernels
        The compute table.
    X : matrix
        Rows in the user's units, encoded.
    rows : Rows
        The same as the table stores them.
    leaves : Leaves
        The leaf problem with its targets.
    weight : array
        Positive weights of the rows.
    n_threads : int
    """

    kernels: Kernels
    X: Matrix
    rows: Rows
    leaves: Leaves
    weight: Array
    n_threads: int

    @classmethod
    def pose(
        cls, kernels: Kernels, X: Matrix, leaves: Leaves, weight: Array, n_threads: int
    ) -> Problem:
        """Prepare the rows."""
        rows = kernels.prepare(X, n_threads, weight)
        return cls(kernels, X, rows, leaves, weight, n_threads)

    def on(self, part: Array) -> Problem:
        """Return the same problem on some of the rows."""
        leaves = take_rows(self.leaves, part)
        return Problem.pose(self.kernels, self.X[part], leaves, self.weight[part], self.n_threads)


def check_weights(weight: Array) -> None:
    """Raise unless some rows count, none too much or too little for single precision."""
    if not weight.any():
        raise ValueError("sample_weight must have a positive entry, got all zeros")
    largest, smallest = weight.max(), weight[weight > 0].min()
    if largest > 1e30 or smallest < 1e-30:
        raise ValueError(
            "sample_weight (times class_weight) must be zero or between 1e-30 and 1e30, got "
            f"{smallest:g} to {largest:g}: multiply it by a constant"
        )


def distributions(answers: Array, floor: float = 0.0) -> Array:
    """Return answers as class distributions, no class below `floor` before they are normalised.

    Answers may be out of range: smoothing and known totals move them.
    """
    shares = np.clip(answers, floor, None)
    whole = shares.sum(axis=1, keepdims=True)
    even = 1 / shares.shape[1]
    return np.asarray(np.where(whole > 0, shares / np.where(whole > 0, whole, 1.0), even))


def leaf_numbers(kernels: Kernels, tree: Tree, X: Matrix, n_threads: int) -> Array:
    """Return the leaf number of each row."""
    nodes = kernels.route(X, tree.left, tree.right, tree.coefficients, tree.threshold, n_threads)
    return np.asarray(tree.leaf_index[nodes])


def importances(tree: Tree, leaf: Array, problem: Problem) -> Array:
    """Return the share of each encoded column in the decrease of impurity, summing to one.

    A split of weights a and b with mean answers u and v lowers the impurity (Gini, variance) by
    ab/(a + b)·|u - v|². An oblique node divides it among its columns by |coefficient|·scale.
    """
    if tree.slopes is None:
        sums = tree.values * tree.weight[tree.leaf_nodes, None]
    else:
        answers, weight = answer(tree, leaf, problem.X), problem.weight
        sums = np.stack([
            np.bincount(leaf, weight * column, minlength=tree.n_leaves) for column in answers.T
        ], axis=1)  # fmt: skip
    total, mass = node_totals(tree, sums), tree.weight
    mean = total / mass[:, None]
    node = np.flatnonzero(~tree.is_leaf)
    left, right = tree.left[node], tree.right[node]
    gap = ((mean[left] - mean[right]) ** 2).sum(axis=1)
    decrease = np.zeros(tree.n_nodes)
    decrease[node] = mass[left] * mass[right] / mass[node] * gap
    planes = tree.coefficients
    owner = np.repeat(np.arange(tree.n_nodes), np.diff(planes.indptr))
    strength = abs(planes.data) * problem.rows.scale[planes.indices]
    whole = np.bincount(owner, strength, minlength=tree.n_nodes)
    parts = decrease[owner] * strength / np.maximum(whole, 1e-300)[owner]
    share = np.bincount(planes.indices, parts, minlength=tree.n_features)
    return np.asarray(share / share.sum() if share.sum() > 0 else share)
