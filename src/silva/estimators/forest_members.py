"""Forests of two kinds on targets that every row has, with what they say out of bag."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from silva.bagging import Bagging, out_of_bag_mean
from silva.estimators.bags import Bags
from silva.estimators.fidelity import PASSES, Kind, Targets, tree_answers
from silva.estimators.problem import Problem
from silva.estimators.selection import Settings
from silva.estimators.tao import TAOTreeRegressor
from silva.leaves import Linear, Mean
from silva.tao import rescale_answers
from silva.tree import Array, Tree

LEAST_ROWS = 2  # in a leaf of an axis-aligned tree
MOST_ROWS, MOST_CELLS = 50_000, 20_000_000  # that a tree of either kind learns from


def rows_to_draw(targets: Targets, most_rows: int = MOST_ROWS, most_cells: int = MOST_CELLS) -> int:
    """Return how many rows are drawn for a tree."""
    n_rows, n_columns = targets.X.shape
    return int(min(n_rows, most_rows, max(most_cells // n_columns, 100)))


def grow_oblique(
    targets: Targets, kind: Kind, n_trees: int, drawn: int, seed: int
) -> tuple[list[Tree], Array, Array]:
    """Return bagged trees of a kind, their out-of-bag answers (NaN for none), importances.

    Each tree is fitted to `drawn` rows.
    """
    n_rows, n_columns = targets.X.shape
    centre, unit = targets.centre, targets.unit
    scaled = np.ascontiguousarray((targets.Z - centre) / unit)
    leaves: Any = Linear(scaled) if kind.leaf == "linear" else Mean(scaled)
    bagging = Bagging(seed, n_rows, drawn, np.arange(n_columns), n_columns)
    problem = Problem.pose(
        targets.kernels, targets.X, leaves, targets.weight, targets.n_threads
    )  # fmt: skip
    reader = TAOTreeRegressor(leaf=kind.leaf, max_iter=PASSES)
    settings = Settings(kind.split, kind.alpha, kind.depth, kind.ridge, kind.l2)
    growth = Bags(reader, problem, bagging, targets.n_threads, 0).grow(settings, range(n_trees))
    if growth.interrupted:
        raise KeyboardInterrupt
    trees = [rescale_answers(grown.tree, centre, unit) for grown in growth.trees]

    def outside() -> Iterator[tuple[Array, Array]]:
        for number, tree in enumerate(trees):
            rows = np.setdiff1d(np.arange(n_rows), bagging.bag(number).rows)
            yield rows, tree_answers(tree, targets.on(rows))

    mean, _ = out_of_bag_mean(outside(), n_rows, targets.Z.shape[1])
    share = np.mean([grown.importances for grown in growth.trees], axis=0)
    return trees, mean, share


def grow_axis(
    targets: Targets, n_trees: int, drawn: int, max_features: float, seed: int, n_jobs: int | None
) -> tuple[ExtraTreesRegressor, Array]:
    """Return extremely random trees, each of `drawn` rows, and their out-of-bag answers."""
    forest = ExtraTreesRegressor(
        n_trees, min_samples_leaf=LEAST_ROWS, max_features=max_features, bootstrap=True,
        oob_score=True, random_state=seed, n_jobs=n_jobs, max_samples=drawn,
    )  # fmt: skip
    Z = targets.Z[:, 0] if targets.Z.shape[1] == 1 else targets.Z
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some inputs do not have OOB scores")
        warnings.filterwarnings("ignore", "R.2 score is not well-defined")
        forest.fit(targets.X, Z, sample_weight=targets.weight)
    forest.n_jobs = None  # several threads would add up the answers in any order
    return forest, forest.oob_prediction_.reshape(targets.Z.shape)
