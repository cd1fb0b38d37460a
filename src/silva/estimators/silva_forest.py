"""The flagship ensemble: forests of two kinds on smoothed labels, and the teacher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.optimize import nnls
from sklearn.base import ClassifierMixin
from sklearn.ensemble import ExtraTreesRegressor

from silva.estimators.fidelity import Kind, Targets
from silva.estimators.forest_members import grow_axis, grow_oblique, rows_to_draw
from silva.estimators.problem import leaf_numbers
from silva.estimators.silva_classes import (
    SilvaClasses,
    best_temperature,
    class_factors,
    hidden_labels,
)
from silva.estimators.spreading import DistinctRows
from silva.estimators.trust import Smoothed, shares, sharpened, smooth
from silva.kernels import Matrix, select
from silva.laptao import Evidence
from silva.tree import Array, Tree, answer

OBLIQUE_TREES, AXIS_TREES = 20, 50
FEWER_TREES = 20  # to find out how good the ensemble is
FEW_ROWS, FEW_CELLS = 10_000, 4_000_000  # drawn for a tree to find that out
EVEN_TRUST = 10.0  # of graph over teacher, at which the teacher's own answer counts half
NEGLIGIBLE = 0.01  # share of a trust in the average that is left out of folds


@dataclass(frozen=True, eq=False)
class Members:
    """The fitted parts of the ensemble.

    Attributes
    ----------
    oblique : list of Tree
    axis : ExtraTreesRegressor or None
        None where the labels are all alike.
    mix : array of shape (3,)
        What oblique trees, axis-aligned trees and the teacher count.
    """

    oblique: list[Tree]
    axis: ExtraTreesRegressor | None
    mix: Array


class SilvaForestClassifier(ClassifierMixin, SilvaClasses):
    """An ensemble from few labels and many unlabelled rows, for tables of any kind.

    Labels are smoothed with a teacher and a graph as in `SilvaTreeClassifier`. Bagged oblique trees
    and extremely random trees are fitted to the smoothed labels of all rows and averaged with the
    teacher: the first two in the proportion that best tells the smoothed labels of rows out of
    bag, and as much as they do, the teacher the more, the less the graph is trusted.

    Parameters
    ----------
    max_depth, alpha
        As in `SilvaTreeClassifier`, for the oblique trees.
    gamma, teacher, random_state, n_jobs, device, verbose
        As in `SilvaTreeClassifier`.

    Attributes
    ----------
    classes_ : array
    trees_ : list of Tree
        The oblique trees, over the encoded columns.
    axis_forest_ : ExtraTreesRegressor or None
        The axis-aligned trees; None where all smoothed labels are alike.
    teacher_ : classifier or None
    mix_ : dict
        What "oblique", "axis" and "teacher" count in the average.
    cv_score_ : float
        Estimated accuracy: of labels that were hidden from teacher, graph and axis-aligned trees
        in turn, the share that the ensemble finds. NaN where there are too few to hide any.
    transduction_, label_distributions_, class_totals_, report_, columns_
        As in `SilvaTreeClassifier`.
    feature_importances_ : array of shape (features,)

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from silva import SilvaForestClassifier
    >>> X, digits = load_digits(return_X_y=True)
    >>> y = digits.copy()
    >>> y[50:] = -1
    >>> model = SilvaForestClassifier(random_state=0).fit(X, y)
    >>> model.score(X[50:], digits[50:]) > 0.85
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, class_totals: Any = None) -> Self:
        """Fit the ensemble.

        Parameters
        ----------
        X, y, sample_weight, class_totals
            As in `SilvaTreeClassifier.fit`.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, class_totals)

    # ---- fitting --------------------------------------------------------------------------------

    def _fit_model(self, rows: DistinctRows, Z: Array, smoothed: Smoothed, seed: int) -> None:
        targets = self._targets(rows, Z)
        teacher = 0.0 if self.teacher is None else _teacher_weight(smoothed)
        if bool((Z[0] == Z).all()):
            self._members = Members([], None, np.array([0.0, 0.0, 1.0]))
            self._constant, share = Z[0], np.zeros(rows.X.shape[1])
        else:
            self._members, share = self._grow(targets, rows.evidence.unlabelled, teacher, seed)
        self.feature_importances_ = np.bincount(
            self.columns_.source, share, minlength=self.n_features_in_
        )
        self.trees_, self.axis_forest_ = self._members.oblique, self._members.axis
        self.mix_ = dict(
            zip(("oblique", "axis", "teacher"), self._members.mix.tolist(), strict=True)
        )
        self._judge_itself(rows, smoothed, seed)
        self._factors = np.ones(len(self.classes_))
        if rows.evidence.total is not None:
            self._factors = class_factors(self._encoded_answers(rows.X), rows.evidence.total)

    def _grow(
        self, targets: Targets, free: Array, teacher: float, seed: int
    ) -> tuple[Members, Array]:
        """Grow both forests and settle their proportion out of bag."""
        drawn = rows_to_draw(targets)
        kind = Kind(
            "oblique", "oblique", "constant", self._depth(len(targets.Z)), self._alpha(drawn)
        )
        oblique, oblique_oob, oblique_share = grow_oblique(
            targets, kind, OBLIQUE_TREES, drawn, seed
        )
        axis, axis_oob = self._grow_axis(targets, AXIS_TREES, drawn, seed)
        judged = ~np.isnan(oblique_oob[:, 0]) & (free > 0)
        if not judged.any():
            judged = ~np.isnan(oblique_oob[:, 0])
        two, explained = np.array([0.5, 0.5]), 1.0
        if judged.any():
            two, explained = _proportion(
                (oblique_oob[judged], axis_oob[judged]), targets.on(judged)
            )
        forests = max(explained, 0.1) ** 2
        mix = np.append(forests * two, teacher) / (forests + teacher)
        share = two[0] * oblique_share + two[1] * axis.feature_importances_
        return Members(oblique, axis, mix), share / max(share.sum(), 1e-300)

    def _grow_axis(
        self, targets: Targets, n_trees: int, drawn: int, seed: int
    ) -> tuple[ExtraTreesRegressor, Array]:
        share = max(1 / 3, 1 / targets.X.shape[1])
        return grow_axis(targets, n_trees, drawn, share, seed, self.n_jobs)

    def _judge_itself(self, rows: DistinctRows, smoothed: Smoothed, seed: int) -> None:
        """Estimate accuracy and temperature from labels hidden from all but the bagged trees."""
        self.cv_score_ = float("nan")
        if not smoothed.hidden or self._members.axis is None:
            return
        found = []
        for part in smoothed.hidden:
            Z = np.zeros_like(smoothed.Z)
            for trust, share in zip(smoothed.trusts, smoothed.share, strict=True):
                if share >= NEGLIGIBLE:
                    some = smooth(smoothed.W, part.rest, part.teacher, trust, self._n_threads)
                    Z += share * some
            kept = np.setdiff1d(np.arange(len(Z)), part.rows)
            targets = self._targets(rows, shares(Z)).on(kept)
            drawn = rows_to_draw(targets, FEW_ROWS, FEW_CELLS)
            forest, _ = self._grow_axis(targets, FEWER_TREES, drawn, seed)
            answers = forest.predict(rows.X[part.rows]).reshape(len(part.rows), -1)
            weight = self._members.mix
            found.append((weight[0] + weight[1]) * answers + weight[2] * part.teacher[part.rows])
        labels, weight = hidden_labels(smoothed, rows.evidence)
        answers = np.concatenate(found)
        self._temperature = best_temperature(answers, labels, weight)
        right = answers.argmax(axis=1) == labels.argmax(axis=1)
        self.cv_score_ = float(np.average(right, weights=weight))

    # ---- predicting -----------------------------------------------------------------------------

    def _encoded_answers(self, X: Matrix) -> Array:
        members, kernels = self._members, select(self.device)
        if members.axis is None:
            return np.tile(self._constant, (X.shape[0], 1))
        answers = members.mix[1] * members.axis.predict(X).reshape(X.shape[0], -1)
        for tree in members.oblique:
            leaf = leaf_numbers(kernels, tree, X, self._n_threads)
            answers += members.mix[0] / len(members.oblique) * answer(tree, leaf, X)
        if self.teacher_ is not None:
            answers += members.mix[2] * self._teacher_answers(self.teacher_, X)
        return shares(sharpened(shares(answers), self._temperature) * self._factors)

    def _write_report(self, smoothed: Smoothed, evidence: Evidence) -> str:
        lines = self._report_labels(smoothed, evidence)
        lines.append(
            f"{len(self.trees_)} oblique trees count {self.mix_['oblique']:.0%}, "
            f"{0 if self.axis_forest_ is None else AXIS_TREES} axis-aligned trees "
            f"{self.mix_['axis']:.0%}, the teacher {self.mix_['teacher']:.0%}."
        )
        if not np.isnan(self.cv_score_):
            lines.append(
                f"The ensemble is expected to find {self.cv_score_:.0%} of the classes: so many "
                "labels did it find that were hidden from it."
            )
        return "\n".join(lines)


def _proportion(said: tuple[Array, Array], targets: Targets) -> tuple[Array, float]:
    """Return the proportion in which two answers best tell the targets, and R² of the mixture."""
    weight = targets.weight[:, None]
    columns = [(np.sqrt(weight) * part).ravel() for part in said]
    two = nnls(np.stack(columns, axis=1), (np.sqrt(weight) * targets.Z).ravel())[0]
    two = two / two.sum() if two.any() else np.array([0.5, 0.5])
    left = np.sum(weight * (two[0] * said[0] + two[1] * said[1] - targets.Z) ** 2)
    whole = np.sum(weight * (targets.Z - targets.centre) ** 2)
    return two, float(1 - left / max(whole, 1e-300))


def _teacher_weight(smoothed: Smoothed) -> float:
    """Return what the teacher counts beside both forests: 2 where the graph is not trusted."""
    weights = [1 / (1 + trust.graph / (EVEN_TRUST * trust.teacher)) for trust in smoothed.trusts]
    return 2 * float(smoothed.share @ weights) ** 2
