"""Columns as models that measure distances see them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from silva.estimators.scaling import CLIP
from silva.kernels import Matrix
from silva.tree import Array

VIEWS = ("raw", "squashed", "standard", "wide", "ranks")
QUANTILES = 1000
WIDE = 5.0  # deviations at which values are clipped for linear leaves; planes can use far ones


@dataclass(frozen=True, eq=False)
class Units:
    """Columns of all rows, labelled or not, as the members that measure distances see them.

    Attributes
    ----------
    mean, deviation : arrays of shape (columns,)
    quantiles : array of shape (at most 1000, columns), or None where columns are sparse
    """

    mean: Array
    deviation: Array
    quantiles: Array | None

    @classmethod
    def of(cls, X: Matrix) -> Units:
        """Measure the columns."""
        n_rows = X.shape[0]
        mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        if sparse.issparse(X):
            square = np.asarray(X.power(2).mean(axis=0)).ravel() - mean**2
            return cls(mean, _deviation(square, mean), None)
        square = np.einsum("ij,ij->j", X - mean, X - mean) / n_rows
        place = np.linspace(0, n_rows - 1, min(n_rows, QUANTILES)).round().astype(int)
        return cls(mean, _deviation(square, mean), np.sort(X, axis=0)[place])

    def views(self, X: Matrix, names: Collection[str] = VIEWS) -> dict[str, Matrix]:
        """Return the rows as they are, squashed, standardised and clipped, and by rank, if named.

        Sparse ones are neither centred nor clipped nor ranked.
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
        if "standard" in names:
            found["standard"] = np.clip(standard, -CLIP, CLIP)
        if "wide" in names:
            found["wide"] = np.clip(standard, -WIDE, WIDE)
        if "ranks" in names:
            found["ranks"] = ranks(X, self.quantiles)
        return found


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
