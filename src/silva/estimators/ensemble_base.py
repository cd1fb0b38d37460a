"""What ensembles of TAO trees share: the user's rows posed once, the trees asked together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from silva import ensemble
from silva.estimators.columns import Columns, encode, fit_columns
from silva.estimators.parameters import check_flag, check_integer
from silva.estimators.problem import Problem, check_weights, leaf_numbers
from silva.estimators.tao_base import TAOTree
from silva.kernels import Matrix, select
from silva.leaves import Leaves, take_rows
from silva.tree import Array, Tree


class TAOEnsemble(BaseEstimator):
    """Base of the boosted and the bagged TAO trees.

    The trees are fitted by an unfitted tree estimator, `_template()`, which reads the targets,
    settles what is "auto" and holds the settings; its rows are prepared once for all trees.
    """

    trees_: list[Tree]

    def __init__(
        self,
        *,
        n_estimators: int,
        split: str,
        max_depth: int | str,
        alpha: float | str,
        l2: float | str,
        max_iter: int,
        tol: float,
        init: Any,
        missing: str,
        max_categories: int,
        warm_start: bool,
        n_jobs: int | None,
        random_state: Any,
        device: str,
        verbose: int,
    ) -> None:
        self.n_estimators = n_estimators
        self.split = split
        self.max_depth = max_depth
        self.alpha = alpha
        self.l2 = l2
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.missing = missing
        self.max_categories = max_categories
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "fill"
        return tags

    @abstractmethod
    def _template(self) -> TAOTree:
        """Return an unfitted tree estimator with the settings of one tree."""

    # ---- fitting --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_integer("n_estimators", self.n_estimators, 1)
        check_flag("warm_start", self.warm_start)
        self._template()._check_parameters()

    def _read(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[TAOTree, Matrix, Leaves, Array, Columns]:
        """Check rows, targets and weights; return them with the template that read them."""
        template = self._template()
        X, columns = fit_columns(self, X, missing=self.missing, max_categories=self.max_categories)
        template._check_linear_leaves(X.shape[1])
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        y, weight = self._complete(X, y, weight)
        leaves, weight = template._read_targets(y, weight)
        check_weights(weight)
        return template, X, leaves, weight, columns

    def _complete(self, X: Matrix, y: Any, weight: Array) -> tuple[Any, Array]:
        """Return targets and weights of all rows; ensembles that learn from partly known targets
        fill them in here.
        """
        return y, weight

    def _pose(self, X: Any, y: Any, sample_weight: Any) -> tuple[TAOTree, Problem, Columns]:
        """Check the rows and targets; return the template that read them, and the problem."""
        template, X, leaves, weight, columns = self._read(X, y, sample_weight)
        if not weight.all():  # rows without weight must not move a median
            X, leaves, weight = X[weight > 0], take_rows(leaves, weight > 0), weight[weight > 0]
        problem = Problem.pose(select(self.device), X, leaves, weight, self._n_threads)
        return template, problem, columns

    @property
    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))

    # ---- reading the fitted trees ---------------------------------------------------------------

    def _encode(self, X: Any) -> Matrix:
        check_is_fitted(self)
        return encode(self, X, self.columns_)

    def _leaves(self, X: Matrix) -> Iterator[tuple[Tree, Array]]:
        """Yield each tree with the leaf numbers of encoded rows."""
        kernels = select(self.device)
        for tree in self.trees_:
            yield tree, leaf_numbers(kernels, tree, X, self._n_threads)

    def apply(self, X: Any) -> Array:
        """Return the node number of the leaf that each row reaches in each tree."""
        X = self._encode(X)
        return np.stack([tree.leaf_nodes[leaf] for tree, leaf in self._leaves(X)], axis=1)

    @property
    def n_parameters_(self) -> int:
        """Non-zero weights of the decision nodes and one label per leaf, as the paper counts."""
        check_is_fitted(self)
        return ensemble.n_parameters(self.trees_)
