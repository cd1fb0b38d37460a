"""The members of the flagship ensembles: forests of two kinds on smoothed labels, and a teacher."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.ensemble import ExtraTreesRegressor

from silva.bagging import Bagging, out_of_bag_mean
from silva.estimators.bags import Bags
from silva.estimators.fidelity import Kind, Targets, passes, tree_answers
from silva.estimators.problem import Problem, leaf_numbers
from silva.estimators.scaling import column_importances
from silva.estimators.selection import Settings
from silva.estimators.tao import TAOTreeRegressor
from silva.kernels import Kernels, Matrix
from silva.leaves import Linear, Mean
from silva.tao import rescale_answers
from silva.tree import Array, Tree, answer

LEAST_ROWS = 2  # in a leaf of an axis-aligned tree
MOST_ROWS, MOST_CELLS = 60_000, 50_000_000  # drawn for a tree, times `Plan.draws` if oblique
LEAST_EXPLAINED = 0.1  # forests that explain less of the smoothed labels count no less


@dataclass(frozen=True, eq=False)
class Members:
    """The fitted parts of an ensemble.

    Attributes
    ----------
    oblique : list of Tree
    axis : ExtraTreesRegressor or None
        None where the labels are all alike.
    mix : array of shape (3,)
        What oblique trees, axis-aligned trees and the teacher count.
    constant : array of shape (outputs,)
        The label where they are all alike.
    importances : array of shape (encoded columns,)
    """

    oblique: list[Tree]
    axis: ExtraTreesRegressor | None
    mix: Array
    constant: Array
    importances: Array

    def answers(self, X: Matrix, teacher: Array | None, kernels: Kernels, n_threads: int) -> Array:
        """Return the mean of the members, the teacher's answers given."""
        if self.axis is None:
            return np.tile(self.constant, (X.shape[0], 1))
        total = self.mix[1] * self.axis.predict(X).reshape(X.shape[0], -1)
        for tree in self.oblique:
            leaf = leaf_numbers(kernels, tree, X, n_threads)
            total += self.mix[0] / len(self.oblique) * answer(tree, leaf, X)
        if teacher is not None:
            total += self.mix[2] * teacher
        return np.asarray(total)

    def shares(self) -> dict[str, float]:
        """Return by name what the members count."""
        return dict(zip(("oblique", "axis", "teacher"), self.mix.tolist(), strict=True))

    def in_words(self) -> str:
        """Return what the members count, as a sentence."""
        oblique, axis, teacher = self.mix
        return (
            f"{len(self.oblique)} oblique trees count {oblique:.0%}, "
            f"{0 if self.axis is None else self.axis.n_estimators} axis-aligned trees {axis:.0%}, "
            f"the teacher {teacher:.0%}."
        )


def constant_members(Z: Array, n_columns: int) -> Members:
    """Return the members where all labels are alike."""
    return Members([], None, np.array([0.0, 0.0, 1.0]), Z[0], np.zeros(n_columns))


@dataclass(frozen=True)
class Plan:
    """What both forests are.

    Attributes
    ----------
    kind : Kind
        Of the oblique trees.
    n_oblique, n_axis : int
        Numbers of trees.
    max_features : float
        Share of the columns that an axis-aligned split looks at.
    draws : float
        How often a row is drawn for an oblique tree on average, where all rows can be. Trees from
        random starts differ by themselves: beyond one, they see more of the rows each.
    """

    kind: Kind
    n_oblique: int
    n_axis: int
    max_features: float
    draws: float = 1.0


def grow_members(
    targets: Targets, plan: Plan, free: Array, teacher: float, seed: int, n_jobs: int | None
) -> Members:
    """Grow both forests, and mix them with a teacher.

    The forests count in the proportion that best tells the targets of rows out of bag, and
    together as the square of what they explain of them.

    Parameters
    ----------
    targets : Targets
    plan : Plan
    free : array of shape (rows,)
        Positive where a row is unlabelled: such rows judge, where there are any.
    teacher : float
        What the teacher counts where forests that explain everything count 1.
    seed : int
    n_jobs : int or None
    """
    drawn = rows_to_draw(targets)
    oblique, oblique_said, oblique_share = grow_oblique(
        targets, plan.kind, plan.n_oblique, round(plan.draws * drawn), seed
    )
    axis, axis_said = grow_axis(targets, plan.n_axis, drawn, plan.max_features, seed, n_jobs)
    told = np.flatnonzero((np.isfinite(oblique_said) & np.isfinite(axis_said)).all(axis=1))
    judged = told[free[told] > 0] if (free[told] > 0).any() else told
    two, explained = np.full(2, 0.5), 1.0
    if judged.size:
        said = np.stack([oblique_said[judged], axis_said[judged]])
        two, explained = proportion(said, targets.on(judged))
    forests = max(explained, LEAST_EXPLAINED) ** 2
    mix = np.append(forests * two, teacher) / (forests + teacher)
    share = two[0] * oblique_share + two[1] * column_importances(axis)
    return Members(oblique, axis, mix, targets.centre, share / max(share.sum(), 1e-300))


def proportion(said: Array, targets: Targets) -> tuple[Array, float]:
    """Return the proportion in which two answers best tell the targets, and R² of the mixture.

    Parameters
    ----------
    said : array of shape (2, rows, outputs)
    targets : Targets
    """
    root = np.sqrt(targets.weight)[:, None]
    columns = (root * (said - targets.centre)).reshape(2, -1).T
    wanted = (root * (targets.Z - targets.centre)).ravel()
    two = nnls(columns, wanted)[0]
    two = two / two.sum() if two.any() else np.full(2, 0.5)
    left, whole = np.sum((columns @ two - wanted) ** 2), np.sum(wanted**2)
    return two, float(1 - left / max(whole, 1e-300))


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
    reader = TAOTreeRegressor(leaf=kind.leaf, max_iter=passes(min(drawn, n_rows)))
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
