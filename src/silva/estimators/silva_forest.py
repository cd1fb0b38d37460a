"""The flagship ensemble: forests of two kinds on smoothed labels, and the teacher."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from silva.estimators.fidelity import Kind
from silva.estimators.forest_members import (
    Plan,
    constant_members,
    grow_axis,
    grow_members,
    rows_to_draw,
)
from silva.estimators.silva_classes import (
    L2,
    SilvaClasses,
    class_factors,
    hidden_labels,
)
from silva.estimators.spreading import DistinctRows
from silva.estimators.trust import Smoothed, best_temperature, shares, sharpened, smooth
from silva.kernels import Matrix, select
from silva.laptao import Evidence
from silva.tree import Array

OBLIQUE_TREES, AXIS_TREES = 30, 50
DRAWS = 2.0  # of a row for an oblique tree, on average: six of seven rows are seen
FEWER_TREES = 20  # to find out how good the ensemble is
FEW_ROWS, FEW_CELLS = 10_000, 4_000_000  # drawn for a tree to find that out
EVEN_TRUST = 10.0  # of graph over teacher, at which the teacher's own answer counts half
NEGLIGIBLE = 0.01  # share of a trust in the average that is left out of folds


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
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from silva import SilvaForestClassifier
    >>> X, digits = load_digits(return_X_y=True)
    >>> labelled = np.random.default_rng(1).permutation(len(X)) < 50
    >>> model = SilvaForestClassifier(random_state=0).fit(X, np.where(labelled, digits, -1))
    >>> model.score(X[~labelled], digits[~labelled]) > 0.85
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
        targets, n_columns = self._targets(rows, Z), rows.X.shape[1]
        if bool((Z[0] == Z).all()):
            members = constant_members(Z, n_columns)
        else:
            depth, alpha = self._depth(len(Z)), DRAWS * self._alpha(rows_to_draw(targets))
            kind = Kind("oblique", "oblique", "constant", depth, alpha, l2=L2)
            plan = Plan(kind, OBLIQUE_TREES, AXIS_TREES, _axis_features(n_columns), DRAWS)
            teacher = 0.0 if self.teacher is None else _teacher_weight(smoothed)
            members = grow_members(
                targets, plan, rows.evidence.unlabelled, teacher, seed, self.n_jobs
            )
        self._members = members
        self.feature_importances_ = np.bincount(
            self.columns_.source, members.importances, minlength=self.n_features_in_
        )
        self.trees_, self.axis_forest_, self.mix_ = members.oblique, members.axis, members.shares()
        self._judge_itself(rows, smoothed, seed)
        self._factors = np.ones(len(self.classes_))
        if rows.evidence.total is not None:
            self._factors = class_factors(self._encoded_answers(rows.X), rows.evidence.total)

    def _judge_itself(self, rows: DistinctRows, smoothed: Smoothed, seed: int) -> None:
        """Estimate accuracy and temperature from labels hidden from all but the bagged trees."""
        self.cv_score_, self._temperature = float("nan"), 1.0
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
            certain = sharpened(shares(Z), self._label_temperature)
            targets = self._targets(rows, certain).on(kept)
            drawn = rows_to_draw(targets, FEW_ROWS, FEW_CELLS)
            forest, _ = grow_axis(
                targets, FEWER_TREES, drawn, _axis_features(rows.X.shape[1]), seed, self.n_jobs
            )
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
        teacher = None if self.teacher_ is None else self._teacher_answers(self.teacher_, X)
        answers = self._members.answers(X, teacher, select(self.device), self._n_threads)
        if self._members.axis is None:
            return answers
        return shares(sharpened(shares(answers), self._temperature) * self._factors)

    def _write_report(self, smoothed: Smoothed, evidence: Evidence) -> str:
        lines = self._report_labels(smoothed, evidence)
        lines.append(self._members.in_words())
        if not np.isnan(self.cv_score_):
            lines.append(
                f"The ensemble is expected to find {self.cv_score_:.0%} of the classes: so many "
                "labels did it find that were hidden from it."
            )
        return "\n".join(lines)


def _axis_features(n_columns: int) -> float:
    """Return the share of the columns that an axis-aligned split looks at."""
    return max(1 / 3, 1 / n_columns)


def _teacher_weight(smoothed: Smoothed) -> float:
    """Return what the teacher counts beside both forests: 2 where the graph is not trusted."""
    weights = [1 / (1 + trust.graph / (EVEN_TRUST * trust.teacher)) for trust in smoothed.trusts]
    return 2 * float(smoothed.share @ weights) ** 2
