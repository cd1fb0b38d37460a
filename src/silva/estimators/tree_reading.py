"""Reading a fitted tree: what estimators with one `tree_` answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from silva.estimators.columns import Columns, encode
from silva.estimators.problem import leaf_numbers
from silva.kernels import Matrix, cpu
from silva.tree import Array, Tree


class TreeShape:
    """Mixin of estimators that have ``tree_``, ``columns_`` and ``n_jobs``."""

    tree_: Tree
    columns_: Columns
    n_jobs: int | None

    @property
    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))

    def _leaf_numbers(self, X: Any) -> Array:
        check_is_fitted(self)
        encoded: Matrix = encode(self, X, self.columns_)
        return leaf_numbers(cpu, self.tree_, encoded, self._n_threads)

    def apply(self, X: Any) -> Array:
        """Return the node number of the leaf that each row reaches."""
        leaf = self._leaf_numbers(X)
        return np.asarray(self.tree_.leaf_nodes[leaf])

    def decision_path(self, X: Any) -> sparse.csr_array:
        """Return the row-by-node indicator of the nodes that each row passes."""
        leaf = self._leaf_numbers(X)
        return sparse.csr_array(self.tree_.ancestors()[leaf])

    def get_depth(self) -> int:
        """Return the number of decisions on the longest way down."""
        check_is_fitted(self)
        return self.tree_.depth

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        check_is_fitted(self)
        return self.tree_.n_leaves


class TreeReading(TreeShape):
    """Mixin of classifiers with one tree that have ``classes_``, too."""

    classes_: Array

    def predict(self, X: Any) -> Array:
        """Return the class of each row's leaf, the most frequent one."""
        leaf = self._leaf_numbers(X)
        return np.asarray(self.classes_[self.tree_.values.argmax(axis=1)][leaf])

    def predict_proba(self, X: Any) -> Array:
        """Return the class shares of the training rows in each row's leaf."""
        leaf = self._leaf_numbers(X)
        return np.asarray(self.tree_.values[leaf])

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))
