"""Columns in units in which distances mean something, before neighbours are sought."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from silva.kernels import Matrix
from silva.tree import Array

SCALINGS = ("relevance", "deviation", "range", "none")
CLIP = 3.0  # deviations beyond which a value is only "far out"
FOREST_ROWS = 2000  # labelled rows are enough to tell which columns matter
TREES = 100
BLOCK = 4096  # rows copied at a time
PRIOR_ROWS = 10  # labels' worth of belief that all columns matter alike


def scale_columns(
    X: Matrix,
    weight: Array,
    scaling: str,
    labels: Array,
    label_weight: Array,
    is_classes: bool,
    seed: int,
    n_jobs: int | None,
) -> Matrix:
    """Return X with its columns rescaled for a search of neighbours.

    Parameters
    ----------
    X : matrix
        Encoded rows.
    weight : array of shape (rows,)
        Weights of the rows.
    scaling : {"relevance", "deviation", "range", "none"}
        "deviation" centres the columns, divides them by their standard deviation and clips them
        at three of them; "relevance" then multiplies each with the square root of its importance
        in a forest grown on the labelled rows, so that squared distances count a column as much
        as it tells about the labels; "range" takes the columns to [0, 1]; "none" leaves them.
        Sparse columns are neither centred nor clipped.
    labels : array of shape (rows, outputs)
        Mean label of a row, indicators for classes.
    label_weight : array of shape (rows,)
        Positive where a row is labelled.
    is_classes : bool
        Whether the labels are indicators.
    """
    if scaling == "none":
        return X
    if scaling == "range":
        low, high = _extremes(X)
        return _shift_and_divide(X, low, high - low)
    mean, deviation = _moments(X, weight / weight.sum())
    scaled = _shift_and_divide(X, mean, deviation)
    if not sparse.issparse(scaled):
        np.clip(scaled, -CLIP, CLIP, out=scaled)
    if scaling == "deviation":
        return scaled
    relevance = column_relevance(X, labels, label_weight, is_classes, seed, n_jobs)
    return _shift_and_divide(scaled, np.zeros_like(mean), 1 / np.sqrt(relevance))


def column_relevance(
    X: Matrix, labels: Array, label_weight: Array, is_classes: bool, seed: int, n_jobs: int | None
) -> Array:
    """Importance of each column in a forest on the labelled rows, 1 on average; see `relevance`."""
    forest = labelled_forest(X, labels, label_weight, is_classes, seed, n_jobs)
    return relevance(forest, int(np.count_nonzero(label_weight)))


def labelled_forest(
    X: Matrix, labels: Array, label_weight: Array, is_classes: bool, seed: int, n_jobs: int | None
) -> Any:
    """Return extremely random trees on the labelled rows; classes are numbers of their outputs."""
    rows = np.flatnonzero(label_weight)
    if len(rows) > FOREST_ROWS:
        rows = np.random.default_rng(seed).choice(rows, FOREST_ROWS, replace=False)
    options = {"n_estimators": TREES, "random_state": seed % 2**31, "n_jobs": n_jobs}
    if is_classes:
        forest = ExtraTreesClassifier(**options)
        y = labels[rows].argmax(axis=1)
    else:
        forest = ExtraTreesRegressor(max_features=0.5, **options)
        y = labels[rows]
    return forest.fit(
        X[rows], y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y, label_weight[rows]
    )


def column_importances(forest: Any) -> Array:
    """Return the importances in a forest of scikit-learn, 0 (there 0 / 0) where no split gains."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(forest.feature_importances_))


def relevance(forest: Any, n_labelled: int) -> Array:
    """Return the importance of each column in a forest on labelled rows, 1 on average.

    The fewer the labels, the closer to 1 for all: a forest of six rows knows nothing of columns.
    """
    importance = column_importances(forest)
    if importance.any():  # else there is one class only, or no column varies
        importance = importance / importance.mean()
    labels = min(n_labelled, FOREST_ROWS)
    return np.asarray((labels * importance + PRIOR_ROWS) / (labels + PRIOR_ROWS))


def _extremes(X: Matrix) -> tuple[Array, Array]:
    if sparse.issparse(X):
        return np.zeros(X.shape[1]), np.asarray(abs(X).max(axis=0).todense()).ravel()
    return X.min(axis=0), X.max(axis=0)


def _moments(X: Matrix, share: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each column; 0 where it is no more than rounding."""
    mean = np.asarray(share @ X, dtype=np.float64).ravel()
    if sparse.issparse(X):
        square, rounding = share @ X.power(2) - mean**2, 1e-7
    else:
        square, rounding = np.zeros_like(mean), 1e-12
        for begin in range(0, X.shape[0], BLOCK):
            part = slice(begin, begin + BLOCK)
            centred = X[part] - mean
            square += share[part] @ np.square(centred, out=centred)
    deviation = np.sqrt(np.maximum(square, 0.0))
    deviation[deviation <= rounding * abs(mean)] = 0
    return mean, deviation


def _shift_and_divide(X: Matrix, shift: Array, width: Array) -> Matrix:
    """Return (X - shift) / width; a column without width becomes zero, sparse ones keep zero."""
    factor = np.divide(1.0, width, out=np.zeros(len(width)), where=width > 0)
    if sparse.issparse(X):
        return sparse.csr_array(X @ sparse.diags_array(factor))
    return (X - shift.astype(X.dtype)) * factor.astype(X.dtype)
