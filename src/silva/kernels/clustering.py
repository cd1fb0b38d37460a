"""The split search of a predictive clustering tree: the compiled core with types and words."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from silva import _core
from silva.kernels import Matrix, Rows
from silva.tree import Array


def column_deviations(X: Matrix, weight: Array, n_threads: int) -> Array:
    """Return the weighted standard deviation of each column; exactly 0 where it does not vary."""
    if sparse.issparse(X):
        return _sparse_deviations(X, weight)
    _, _, _, deviation = _core.column_statistics(X, np.ascontiguousarray(weight), n_threads)
    return np.asarray(deviation)


def _sparse_deviations(X: sparse.csr_array, weight: Array) -> Array:
    low, high = X.min(axis=0).toarray().ravel(), X.max(axis=0).toarray().ravel()
    row_weight = np.repeat(weight, np.diff(X.indptr))
    columns, total = X.shape[1], weight.sum()
    value = X.data.astype(np.float64)
    mean = np.bincount(X.indices, row_weight * value, minlength=columns) / total
    stored = np.bincount(X.indices, row_weight, minlength=columns)
    gap = value - mean[X.indices]
    squares = np.bincount(X.indices, row_weight * gap**2, minlength=columns)
    variance = (squares + np.maximum(total - stored, 0) * mean**2) / total
    return np.where(low < high, np.sqrt(variance), 0.0)


class ClusteringSearch:
    """Finds the best split of any node of one tree.

    Parameters
    ----------
    rows : Rows
        All training rows, as the compiled table stores them.
    weight : array of shape (rows,)
        Positive weights.
    place : int32 array of shape (rows,)
        Which row of `targets` is theirs; -1 where the row is unlabelled.
    targets : float64 array of shape (labelled rows, outputs)
    target_price, feature_price : float64 arrays
        What a variance counts: of each output among the labelled rows, and of each scaled column
        among all rows.
    min_rows, min_labelled : int
        Fewest rows, and labelled rows, on a side.
    max_bins : int
        A column with more values at a node is cut into this many bins of about equal mass.
    n_threads : int
        The split is the same for any number.
    """

    def __init__(
        self,
        rows: Rows,
        weight: Array,
        place: Array,
        targets: Array,
        target_price: Array,
        feature_price: Array,
        min_rows: int,
        min_labelled: int,
        max_bins: int,
        n_threads: int,
    ) -> None:
        self._core: Any = _core.clustering_search(
            rows.store,
            np.ascontiguousarray(weight, dtype=np.float32),
            np.ascontiguousarray(place, dtype=np.int32),
            np.ascontiguousarray(targets, dtype=np.float64),
            np.ascontiguousarray(target_price, dtype=np.float64),
            np.ascontiguousarray(feature_price, dtype=np.float64),
            min_rows,
            min_labelled,
            max_bins,
            n_threads,
        )

    def split(self, rows: Array, features: Array) -> tuple[int, float, Array] | None:
        """Return feature, gain and the mask of the rows that go right; None if there is no split.

        Parameters
        ----------
        rows : uint32 array
            The rows of the node.
        features : int32 array
            Columns to try; the first wins a tie.
        """
        feature, gain, right = self._core.split(rows, features)
        return None if feature < 0 else (feature, gain, right.astype(bool))
