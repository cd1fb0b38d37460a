"""What the rows of each class look like, learned from few labels and many rows without one.

Two models p_k of the rows of a class k: a Gaussian, and columns that are independent of each other
(naive Bayes, numbers in bins). Their parameters maximise

    sum over labelled n of log(s_c p_c(x_n)) + sum over other n of log(sum over k of s_k p_k(x_n)),

c being the class of n, beside what is believed beforehand of a class with few rows; s_k is its
share among the labels. By expectation and maximisation (Dempster, Laird & Rubin 1977; with labels:
Nigam and others 2000) they are fitted to the labelled rows first; then, in turn, rows without a
label are shared among the classes as the model says, and the model is fitted to all rows. Where
classes are clumps, a label or two name each clump, and the unlabelled rows tell the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from scipy import sparse
from scipy.special import softmax

from silva.kernels import Matrix
from silva.tree import Array

ROUNDS = 10
COMMON, ALIKE = 1.0, 3.0  # rows a column that speak for what is believed of a covariance
WITHIN = 0.5  # of the variance of all rows is that within classes, as is believed
CHANCE = 2.0  # rows that speak for the common chances
BINS, FEW_VALUES = 5, 12  # bins of a column of more values than these

Model = TypeVar("Model", "GaussianClasses", "Chances")


@dataclass(frozen=True, eq=False)
class GaussianClasses:
    """A Gaussian for each class.

    Attributes
    ----------
    mean : array of shape (classes, columns)
    root : array of shape (classes, columns, columns)
        The covariance of a class is the inverse of root rootᵀ.
    offset : array of shape (classes,)
        Logarithm of the class share and of the determinant of the root.
    """

    mean: Array
    root: Array
    offset: Array

    def predict(self, X: Array) -> Array:
        """Return class probabilities."""
        parts = zip(self.mean, self.root, strict=True)
        distance = np.stack([(((X - mean) @ root) ** 2).sum(axis=1) for mean, root in parts], 1)
        return np.asarray(softmax(self.offset - 0.5 * distance, axis=1))


def fit_gaussians(X: Array, shares: Array, weight: Array, others: Array) -> GaussianClasses:
    """Fit to rows in units in which the columns of all rows are uncorrelated, of variance one.

    Few labels do not tell a covariance. That of a class counts as many rows as it has, beside
    three a column of W, the covariance within all classes together. W has all rows, beside one a
    column of half the covariance of all rows, which is the identity.

    Parameters
    ----------
    X : array of shape (rows, columns)
        Labelled rows.
    shares : array of shape (rows, classes)
        Their classes, as indicators.
    weight : array of shape (rows,)
        Positive; how they compare counts.
    others : array of shape (other rows, columns)
        Rows without a label.
    """
    log_share = _log_shares(shares, weight)
    return _with_unlabelled(
        partial(_gaussians, log_share), np.concatenate([X, others]), shares, weight
    )


def _gaussians(log_share: Array, X: Array, counts: Array) -> GaussianClasses:
    """Fit to rows that count so much for each class."""
    n_columns, n = X.shape[1], counts.sum(axis=0)
    mean = (counts.T @ X) / np.maximum(n, 1e-300)[:, None]
    scatter = np.stack([
        ((X - centre) * count[:, None]).T @ (X - centre)
        for centre, count in zip(mean, counts.T, strict=True)
    ])  # fmt: skip
    rows = COMMON * n_columns
    common = (scatter.sum(axis=0) + rows * WITHIN * np.eye(n_columns)) / (n.sum() + rows)
    rows = ALIKE * n_columns
    own = (scatter + rows * common) / (n + rows)[:, None, None]
    lower = np.linalg.cholesky(own)
    root = np.linalg.inv(lower).transpose(0, 2, 1)
    log_root = -np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return GaussianClasses(mean, root, log_share + log_root)


@dataclass(frozen=True, eq=False)
class Chances:
    """Chances of each value of each column in each class, the columns independent.

    Attributes
    ----------
    log_chance : array of shape (values, classes)
    log_share : array of shape (classes,)
    """

    log_chance: Array
    log_share: Array

    def predict(self, values: Matrix) -> Array:
        """Return class probabilities of rows, given as indicators of the values that they have."""
        return np.asarray(softmax(values @ self.log_chance + self.log_share, axis=1))


@dataclass(frozen=True, eq=False)
class Bins:
    """Columns as a few values each.

    Attributes
    ----------
    edges : sequence of arrays
        Of each column, in rising order.
    """

    edges: Sequence[Array]

    @classmethod
    def of(cls, X: Array) -> Bins:
        """Return bins with about as many rows each; columns of few values keep them."""
        found = []
        for column in X.T:
            values = np.unique(column)
            if len(values) > FEW_VALUES:
                values = np.quantile(column, np.arange(1, BINS) / BINS)
                found.append(np.unique(values))
            else:
                found.append(0.5 * values[:-1] + 0.5 * values[1:])
        return cls(found)

    def indicators(self, X: Array) -> sparse.csr_array:
        """Return rows as indicators of their bins, those of all columns side by side."""
        begin = np.cumsum([0, *(len(edges) + 1 for edges in self.edges)])
        columns = zip(begin[:-1], self.edges, X.T, strict=True)
        place = np.stack([at + np.searchsorted(edges, x) for at, edges, x in columns], axis=1)
        ends = np.arange(0, place.size + 1, X.shape[1])
        shape = (len(X), int(begin[-1]))
        return sparse.csr_array((np.ones(place.size), place.ravel(), ends), shape)


@dataclass(frozen=True, eq=False)
class IndependentColumns:
    """Naive Bayes: chances of each bin of each column in each class.

    Attributes
    ----------
    bins : Bins
    chances : Chances
    """

    bins: Bins
    chances: Chances

    def predict(self, X: Array) -> Array:
        """Return class probabilities."""
        return self.chances.predict(self.bins.indicators(X))


def fit_independent(X: Array, shares: Array, weight: Array, others: Array) -> IndependentColumns:
    """Fit to rows in any units; parameters as in `fit_gaussians`.

    The chances of a class count as many rows as it has, beside two of those of all rows.
    """
    every = np.concatenate([X, others])
    bins = Bins.of(every)
    values = bins.indicators(every)
    common = np.asarray(values.mean(axis=0)).ravel()
    fit = partial(_chances, _log_shares(shares, weight), common)
    return IndependentColumns(bins, _with_unlabelled(fit, values, shares, weight))


def _chances(log_share: Array, common: Array, values: Matrix, counts: Array) -> Chances:
    """Fit to rows that count so much for each class; `common` are the chances in all rows."""
    found = values.T @ counts + CHANCE * np.maximum(common, 1e-9)[:, None]
    return Chances(np.log(found / (counts.sum(axis=0) + CHANCE)), log_share)


def _log_shares(shares: Array, weight: Array) -> Array:
    """Return the logarithm of the share of each class among the labels."""
    with np.errstate(divide="ignore"):  # a class may have none
        return np.asarray(np.log(weight @ shares / weight.sum()))


def _with_unlabelled(
    fit: Callable[[Matrix, Array], Model], rows: Matrix, shares: Array, weight: Array
) -> Model:
    """Return a model of labelled rows, which come first, and unlabelled ones."""
    counts = shares * (weight / weight.mean())[:, None]
    free = rows[len(shares) :]
    model = fit(rows[: len(shares)], counts)
    for _ in range(ROUNDS if free.shape[0] else 0):
        model = fit(rows, np.concatenate([counts, model.predict(free)]))
    return model
