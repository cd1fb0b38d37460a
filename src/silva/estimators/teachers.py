"""The teacher: a model of the labelled rows, and what it says of all the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.validation import has_fit_parameter

from silva.estimators.column_views import Units
from silva.estimators.mixed_classifier import MixedClassifier
from silva.estimators.mixed_regressor import MixedRegressor
from silva.kernels import Matrix
from silva.laptao import Evidence
from silva.tree import Array


def check_teacher(teacher: Any, is_classes: bool) -> None:
    """Raise unless a `teacher` argument is "auto", None or a model that can teach."""
    if teacher is None or (isinstance(teacher, str) and teacher == "auto"):
        return
    kind = "classifier" if is_classes else "regressor"
    fits = hasattr(teacher, "fit") and (is_classifier if is_classes else is_regressor)(teacher)
    if not fits:
        raise TypeError(f"teacher must be 'auto', None or a {kind}, got {teacher!r}")
    if is_classes and not hasattr(teacher, "predict_proba"):
        raise TypeError(
            f"teacher must have predict_proba, {type(teacher).__name__} has not: wrap it in "
            "scikit-learn's CalibratedClassifierCV"
        )


def make_teacher(teacher: Any, is_classes: bool, X: Matrix, seed: int, n_jobs: int | None) -> Any:
    """Return the unfitted scikit-learn estimator that a `teacher` argument asks for.

    "auto" is a mixture of different models, forests before all: with few labels on tables, the bar
    that others have to clear. It measures the columns of X, all rows, for which no label is needed.
    """
    if not isinstance(teacher, str):
        model = clone(teacher)
        if model.get_params(deep=False).get("random_state", 0) is None:
            model.set_params(random_state=seed)
        return model
    mixed: Any = MixedClassifier if is_classes else MixedRegressor
    return mixed(units=Units.of(X), random_state=seed, n_jobs=n_jobs)


def in_words(teacher: Any) -> str:
    """Return what a fitted teacher is."""
    if not isinstance(teacher, (MixedClassifier, MixedRegressor)):
        return type(teacher).__name__
    shares = sorted(teacher.shares_.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.005)


def teach_classes(
    model: Any, X: Matrix, evidence: Evidence, classes: Array, folds: Sequence[Array] = ()
) -> Any:
    """Fit a teacher to the labelled rows, a row once for each class that its copies have.

    Parameters
    ----------
    model : unfitted classifier
    X : matrix
        Distinct rows, labelled ones among them.
    evidence : Evidence
        What is known about them, classes as indicators.
    classes : array
        Names of the classes, so that the fitted teacher answers in the user's terms.
    folds : sequence of int arrays
        Rows that a mixture is to hold out together.
    """
    row, code = np.nonzero(evidence.sums)
    if isinstance(model, MixedClassifier):
        fold = np.full(X.shape[0], -1)
        for number, rows in enumerate(folds):
            fold[rows] = number
        model.set_params(fold=fold[row])
    return _fit(model, X, row, classes[code], evidence.sums[row, code])


def teach_numbers(model: Any, X: Matrix, evidence: Evidence) -> Any:
    """Fit a teacher to the labelled rows and the means of their targets."""
    row = np.flatnonzero(evidence.labelled)
    targets = evidence.means[row]
    flat = targets[:, 0] if targets.shape[1] == 1 else targets
    return _fit(model, X, row, flat, evidence.labelled[row])


def _fit(model: Any, X: Matrix, row: Array, y: Array, weight: Array) -> Any:
    if (weight != weight[0]).any():
        if has_fit_parameter(model, "sample_weight") or hasattr(model, "estimators"):
            return _settle(model.fit(_rows(X, row), y, sample_weight=weight))
        if (weight != np.rint(weight)).any():
            raise ValueError(
                f"teacher {type(model).__name__} takes no sample_weight: fit without weights, or "
                "with whole numbers, or use another teacher"
            )
        row, y = np.repeat(row, weight.astype(int)), np.repeat(y, weight.astype(int), axis=0)
    return _settle(model.fit(_rows(X, row), y))


def _rows(X: Matrix, row: Array) -> Matrix:
    return sparse.csr_matrix(X[row]) if sparse.issparse(X) else X[row]


def _settle(model: Any) -> Any:
    """Return the fitted model; its forests answer in one thread, since several add in any order.

    Mixtures see to it themselves.
    """
    if isinstance(model, (MixedClassifier, MixedRegressor)):
        return model
    for member in (model, *getattr(model, "estimators_", ())):
        if getattr(member, "n_jobs", None) is not None:
            member.n_jobs = None
    return model


def class_answers(model: Any, X: Matrix, classes: Array) -> Array:
    """Return the teacher's class shares, a column for each of `classes`."""
    shares = np.zeros((X.shape[0], len(classes)))
    shares[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(X)
    return shares


def number_answers(model: Any, X: Matrix) -> Array:
    """Return the teacher's predictions, a column for each output."""
    return np.asarray(model.predict(X), dtype=np.float64).reshape(X.shape[0], -1)
