"""Columns as models that measure distances see them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA

from silva.estimators.scaling import CLIP
from silva.kernels import Matrix
from silva.tree import Array

VIEWS = ("raw", "squashed", "standard", "wide", "ranks", "axes")
QUANTILES = 1000
SAMPLE, SAMPLE_CELLS = 2000, 2_000_000  # rows that are kept, and cells, at most
AXES = 30
LEAST_VARIANCE = 0.01  # of an axis, beside its own, in units of the mean column's
FEWEST_CODES, MOST_CODES = 3, 12  # whole numbers in a column that may be codes of categories
WIDE = 5.0  # deviations at which values are clipped for linear leaves; planes can use far ones


@dataclass(frozen=True, eq=False)
class Units:
    """Columns of all rows, labelled or not, as the members that measure distances see them.

    Attributes
    ----------
    mean, deviation : arrays of shape (columns,)
    quantiles : array of shape (at most 1000, columns), or None where columns are sparse
    codes : Codes or None
        None where no column is of a few whole numbers.
    rows : array of shape (at most 2000, columns), or None where columns are sparse
        Some of all rows, for members that learn from unlabelled ones, too.
    axes : Axes or None
        None where columns are sparse.
    """

    mean: Array
    deviation: Array
    quantiles: Array | None = None
    codes: Codes | None = None
    rows: Array | None = None
    axes: Axes | None = None

    @classmethod
    def of(cls, X: Matrix) -> Units:
        """Measure the columns."""
        n_rows = X.shape[0]
        mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        if sparse.issparse(X):
            square = np.asarray(X.power(2).mean(axis=0)).ravel() - mean**2
            return cls(mean, _deviation(square, mean))
        square = np.einsum("ij,ij->j", X - mean, X - mean) / n_rows
        deviation = _deviation(square, mean)
        quantiles = np.sort(X, axis=0)[_evenly(n_rows, QUANTILES)]
        rows = X[_evenly(n_rows, min(SAMPLE, max(SAMPLE_CELLS // X.shape[1], 2)))]
        axes = Axes.of(np.clip((rows - mean) / deviation, -CLIP, CLIP))
        return cls(mean, deviation, quantiles, Codes.of(X), rows, axes)

    def width(self, names: Collection[str]) -> int:
        """Return the number of columns of the widest of these views."""
        return self.codes.width if self.codes and "categories" in names else len(self.mean)

    def views(self, X: Matrix, names: Collection[str] = VIEWS) -> dict[str, Matrix]:
        """Return the rows as they are, squashed, standardised and clipped, and by rank, if named.

        Sparse ones are neither centred nor clipped nor ranked. "axes", the principal ones of the
        standardised columns, are there if named; "categories", codes as indicators and other
        columns standardised, if named and where a column may be codes.
        """
        if self.quantiles is None:
            X = sparse.csr_matrix(X)
            standard = sparse.csr_matrix(X @ sparse.diags_array(1 / self.deviation))
            return {
                "raw": X, "squashed": standard.arcsinh(), "standard": standard, "wide": standard
            }  # fmt: skip
        found = {"raw": X}
        if "squashed" in names:
            found["squashed"] = squashed(X, self.quantiles, self.deviation)
        standard = (X - self.mean) / self.deviation
        clipped = np.clip(standard, -CLIP, CLIP)
        if "standard" in names:
            found["standard"] = clipped
        if "axes" in names and self.axes is not None:
            found["axes"] = self.axes.show(clipped)
        if "wide" in names:
            found["wide"] = np.clip(standard, -WIDE, WIDE)
        if "ranks" in names:
            found["ranks"] = ranks(X, self.quantiles)
        if "categories" in names and self.codes is not None:
            found["categories"] = self.codes.show(X, clipped)
        return found


@dataclass(frozen=True, eq=False)
class Axes:
    """Principal axes: uncorrelated mixtures of the columns, each of variance about one.

    Attributes
    ----------
    centre : array of shape (columns,)
    directions : array of shape (columns, at most 30)
    """

    centre: Array
    directions: Array

    @classmethod
    def of(cls, Z: Array) -> Axes:
        """Find those of standardised rows along which they vary most.

        Axes along which rows hardly vary stay short: what they show is noise.
        """
        with np.errstate(invalid="ignore"):  # all columns may be constant
            found = PCA(min(AXES, *Z.shape), random_state=0).fit(Z)
        variance = found.explained_variance_ + max(LEAST_VARIANCE * Z.var(axis=0).mean(), 1e-12)
        return cls(found.mean_, found.components_.T / np.sqrt(variance))

    def show(self, Z: Array) -> Array:
        """Return standardised rows by where they stand on the axes."""
        return np.asarray((Z - self.centre) @ self.directions)


@dataclass(frozen=True, eq=False)
class Codes:
    """The values of columns of a few whole numbers: often codes of categories, in any order.

    Attributes
    ----------
    column, value, share : arrays of shape (values,)
        Where each value stands, and the share of the rows that have it.
    deviation : array of shape (values,)
        Root of the variance of the column's indicators together.
    others : int array
        Columns that are no such codes.
    """

    column: Array
    value: Array
    share: Array
    deviation: Array
    others: Array

    @classmethod
    def of(cls, X: Array) -> Codes | None:
        """Find such columns; None if there are none."""
        n_rows, n_columns = X.shape
        some = np.sort(X[:: max(n_rows // QUANTILES, 1)], axis=0)
        codes = np.flatnonzero(_is_code(some) & (_is_first(some).sum(axis=0) <= MOST_CODES))
        ordered = np.sort(X[:, codes], axis=0)
        n_values = _is_first(ordered).sum(axis=0)
        kept = _is_code(ordered) & (n_values >= FEWEST_CODES) & (n_values <= MOST_CODES)
        codes, ordered = codes[kept], ordered[:, kept]
        if len(codes) == 0:
            return None
        place, row = np.nonzero(_is_first(ordered).T)
        share = np.diff(row, append=n_rows) % n_rows / n_rows  # a column's first row is 0, or n
        variance = np.bincount(place, share * (1 - share))
        others = np.setdiff1d(np.arange(n_columns), codes)
        column = codes[place]
        return cls(column, ordered[row, place], share, np.sqrt(variance[place]), others)

    @property
    def width(self) -> int:
        """Number of columns shown."""
        return len(self.column) + len(self.others)

    def show(self, X: Array, standard: Array) -> Array:
        """Return an indicator for each value, a column's together of variance one, and the others.

        A value that no row had has no indicator; one that is rare is only far out.
        """
        indicators = (X[:, self.column] == self.value) - self.share
        return np.hstack([np.minimum(indicators / self.deviation, CLIP), standard[:, self.others]])


def _is_code(ordered: Array) -> Array:
    return np.asarray((ordered == np.rint(ordered)).all(axis=0))


def _is_first(ordered: Array) -> Array:
    return np.diff(ordered, axis=0, prepend=-np.inf) > 0


def _evenly(n_rows: int, most: int) -> Array:
    """Return the numbers of rows at even distances, the first and the last among them."""
    return np.linspace(0, n_rows - 1, min(n_rows, most)).round().astype(int)


def squashed(X: Array, quantiles: Array, deviation: Array) -> Array:
    """Return columns by the inverse hyperbolic sine of their distance from the median.

    Near the median, in units of the quartiles' distance, nothing changes; far away only the order
    of magnitude counts. A tree that cuts half-way between two labelled values of a long tail then
    cuts between their magnitudes, not next to the larger one, far above most rows of its kind.
    """
    low, median, high = np.quantile(quantiles, (0.25, 0.5, 0.75), axis=0)
    unit = np.where(high > low, high - low, deviation)
    return np.asarray(np.arcsinh((X - median) / unit))


def ranks(X: Array, quantiles: Array) -> Array:
    """Return columns by their rank among the quantiles, in units of deviation one."""
    result = np.empty(X.shape)
    for column, known in enumerate(quantiles.T):
        below = np.searchsorted(known, X[:, column], "left")
        upto = np.searchsorted(known, X[:, column], "right")
        result[:, column] = ((below + upto) / (2 * len(known)) - 0.5) * np.sqrt(12)
    return result


def scaled(X: Matrix, scale: Array | None) -> Matrix:
    """Return the rows with each column multiplied by its factor, if there are any."""
    if scale is None:
        return X
    return sparse.csr_matrix(X @ sparse.diags_array(scale)) if sparse.issparse(X) else X * scale


def _deviation(square: Array, mean: Array) -> Array:
    """Return deviations; 1 where a column does not vary but by rounding."""
    deviation = np.sqrt(np.maximum(square, 0.0))
    return np.where(deviation > 1e-7 * np.abs(mean), deviation, 1.0)
