"""What the flagship trees and forests of classes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from silva.estimators.mixed_classifier import MixedClassifier
from silva.estimators.partial_labels import (
    PartialClasses,
    read_classes,
    read_totals,
    worth_meeting,
)
from silva.estimators.silva_base import SilvaModel
from silva.estimators.spreading import DistinctRows
from silva.estimators.teachers import class_answers, in_words, teach_classes
from silva.estimators.trust import (
    Smoothed,
    average,
    best_temperature,
    hide_labels,
    label_folds,
    shares,
    sharpened,
)
from silva.kernels import Matrix
from silva.labels import Total
from silva.laptao import Evidence, fit_totals
from silva.tree import Array

L2 = 4.0  # price of half the squared norm of hyperplanes, in units of that of their coefficients
TIES = 0.1  # of the squared error, beside the share of rows with another class
DOUBT = 1e-3  # a teacher who rules a class out may be wrong, where totals ask for it


class SilvaClasses(SilvaModel):
    """Base of `SilvaTreeClassifier` and `SilvaForestClassifier`."""

    _is_classes = True
    _partial: PartialClasses
    _amount: Array | None
    classes_: Array

    # ---- labels ---------------------------------------------------------------------------------

    def _read_labels(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        self._partial = read_classes(y, n_rows)
        self.classes_ = self._partial.classes
        return self._partial.indicators(), self._partial.labelled

    def _read_totals(self, totals: Any, weight: Array) -> Array | None:
        self._amount = None if totals is None else read_totals(totals, self._partial, weight)
        return worth_meeting(self._amount)

    def _teach(self, model: Any, X: Matrix, evidence: Evidence, folds: Sequence[Array]) -> Any:
        return teach_classes(model, X, evidence, self.classes_, folds)

    def _teacher_answers(self, model: Any, X: Matrix) -> Array:
        return class_answers(model, X, self.classes_)

    def _smooth(self, rows: DistinctRows, seed: int) -> Smoothed:
        known = rows.evidence
        folds = label_folds(known, seed)
        self.teacher_ = self._taught(rows.X, known, seed, folds)
        answers = self._answers_of(self.teacher_, rows.X, known)

        def teach(number: int, rest: Evidence) -> Array | None:
            if isinstance(self.teacher_, MixedClassifier):
                teacher = self.teacher_.without(number)
                return None if teacher is None else self._answers_of(teacher, rows.X, rest)
            try:
                return self._answers_of(self._taught(rows.X, rest, seed), rows.X, rest)
            except ValueError:  # some teachers need more rows; all of them were enough above
                return None

        hidden = list(hide_labels(known, folds, teach))
        if isinstance(self.teacher_, MixedClassifier):
            self.teacher_.forget_folds()
        self._tell("building the graph")
        return average(
            self._graph(rows, seed), known, answers, hidden, self._trusts(), self._n_threads
        )

    def _answers_of(self, teacher: Any, X: Matrix, evidence: Evidence) -> Array:
        """Return the teacher's answers, meeting the totals: the graph should carry on no bias."""
        answers = super()._answers_of(teacher, X, evidence)
        amount = worth_meeting(self._amount)
        if amount is None or teacher is None or not evidence.unlabelled.any():
            return answers
        share = amount / amount.sum()
        total = Total(evidence.unlabelled, share * evidence.unlabelled.sum())
        return meeting(shares(np.maximum(answers, DOUBT)), total)

    def _finish_labels(self, smoothed: Smoothed, evidence: Evidence) -> Array:
        """Return distributions as certain as hidden labels bear out, meeting any totals."""
        labels, weight = hidden_labels(smoothed, evidence)
        self._label_temperature = best_temperature(smoothed.found, labels, weight)
        Z = shares(smoothed.Z)
        if evidence.total is None:
            return sharpened(Z, self._label_temperature)
        return meeting(
            sharpened(meeting(Z, evidence.total), self._label_temperature), evidence.total
        )

    def _correction(self, smoothed: Smoothed, Z: Array, X: Matrix) -> Array:
        return Z - self._teacher_answers(self.teacher_, X)

    def _keep_labels(self, Z: Array, labelled: Array, weight: Array) -> None:
        partial, amount = self._partial, self._amount
        del self._partial, self._amount
        free = weight * ~labelled
        self.label_distributions_ = Z
        code = np.where(labelled, partial.codes, Z.argmax(axis=1))
        self.transduction_ = self.classes_[code]
        self.class_totals_ = None
        if amount is not None:
            smoothed = free @ Z
            counted = np.bincount(code, free, minlength=len(self.classes_))
            self.class_totals_ = {
                label: (float(a), float(s), float(c))
                for label, a, s, c in zip(
                    self.classes_.tolist(), amount, smoothed, counted, strict=True
                )
            }

    @staticmethod
    def _infidelity(answers: Array, targets: Array, weight: Array) -> float:
        other = answers.argmax(axis=1) != targets.argmax(axis=1)
        squared = ((answers - targets) ** 2).sum(axis=1)
        return float(np.average(other + TIES * squared, weights=weight))

    # ---- words ----------------------------------------------------------------------------------

    def _report_labels(self, smoothed: Smoothed, evidence: Evidence) -> list[str]:
        """Return what labels, teacher and graph did."""
        n_labelled = int(np.count_nonzero(evidence.labelled))
        n_rows = len(evidence.labelled)
        lines = [
            f"{n_labelled} of {n_rows} distinct rows are labelled, with {len(self.classes_)} "
            f"classes; {self._columns_in_words()}."
        ]
        found = self._accuracy_of_teacher(smoothed, evidence)
        if self.teacher is None:
            lines.append("There is no teacher: labels were spread over the graph alone.")
        elif found is None:
            lines.append("There are too few labels to tell how good the teacher is.")
        else:
            teacher, blend, count = found
            lines.append(
                f"The teacher ({in_words(self.teacher_)}) finds {teacher:.0%} of {count} labels "
                f"that were hidden from it, the smoothed labels {blend:.0%}."
            )
        weight = smoothed.share @ [each.graph > 0 for each in smoothed.trusts]
        lines.append(
            f"The graph counts in {weight:.0%} of the average and gave {smoothed.moved:.1%} of the "
            "unlabelled rows another class than the teacher."
            if self.teacher is not None
            else f"It gave {smoothed.moved:.1%} of the rows a class other than the most common."
        )
        if evidence.total is not None:
            lines.append("The totals of the classes were given, and the smoothed labels meet them.")
        return lines

    def _columns_in_words(self) -> str:
        encoded, given = len(self.columns_.source), self.n_features_in_
        return f"{given} columns" + (f", encoded as {encoded}" if encoded != given else "")

    def _accuracy_of_teacher(
        self, smoothed: Smoothed, evidence: Evidence
    ) -> tuple[float, float, int] | None:
        """Return how many hidden labels the teacher and the smoothed labels find, and of how many.

        None where nothing could be hidden.
        """
        if not smoothed.hidden:
            return None
        labels, weight = hidden_labels(smoothed, evidence)
        truth = labels.argmax(axis=1)
        taught = np.concatenate([part.teacher[part.rows] for part in smoothed.hidden])
        return (
            float(np.average(taught.argmax(axis=1) == truth, weights=weight)),
            float(np.average(smoothed.found.argmax(axis=1) == truth, weights=weight)),
            len(truth),
        )

    # ---- predicting -----------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities."""
        return self._answers(X)

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row; ties go to the first."""
        code = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[code])


def hidden_labels(smoothed: Smoothed, evidence: Evidence) -> tuple[Array, Array]:
    """Return the labels that were hidden, in the order of `Smoothed.found`, and their weights."""
    rows = [part.rows for part in smoothed.hidden]
    row = np.concatenate(rows) if rows else np.zeros(0, int)
    return evidence.means[row], evidence.labelled[row]


def class_factors(Z: Array, total: Total) -> Array:
    """Return what the classes of distributions are to be multiplied with to meet totals."""
    counted = total.weight > 0
    before, after = Z[counted], fit_totals(Z[counted], Total(total.weight[counted], total.amount))
    ratio = np.log(np.maximum(after, 1e-12)) - np.log(np.maximum(before, 1e-12))
    return np.asarray(np.exp(np.median(ratio - ratio.mean(axis=1, keepdims=True), axis=0)))


def meeting(Z: Array, total: Total) -> Array:
    """Return distributions that meet totals; rows that do not count stay as they are."""
    met = fit_totals(Z, total)
    return np.where((total.weight > 0)[:, None], met, Z)
