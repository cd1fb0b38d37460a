"""What LapTAO estimators share: from the user's rows and few labels to a fitted mapping."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self
from warnings import warn

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from silva import mac
from silva.estimators.columns import encode, fit_columns
from silva.estimators.mappings import TreeMapping, TreePredictor, make_mapping
from silva.estimators.parameters import check_choice, check_flag, check_integer, check_number
from silva.estimators.problem import check_weights
from silva.estimators.scaling import SCALINGS
from silva.estimators.spreading import distinct_rows, graph_of_rows
from silva.estimators.tao import TAOTreeRegressor
from silva.graph import part_of_affinity
from silva.kernels import Matrix
from silva.laptao import SmoothedLabels
from silva.tree import Array, node_totals

SOLVERS = ("auto", "direct", "cg", "eigen")


class LapTAO(BaseEstimator):
    """Base of `LapTAOClassifier` and `LapTAORegressor`."""

    _is_classes: bool
    _gamma: float  # what "auto" stands for
    _damping: float

    def __init__(
        self,
        *,
        estimator: Any = None,
        gamma: float | str = "auto",
        damping: float | str = "auto",
        affinity: Any = None,
        n_neighbors: int | str = "auto",
        perplexity: float | str = "auto",
        mutual: bool = True,
        scaling: str = "relevance",
        n_outer: int = 20,
        mu: float = 0.001,
        mu_factor: float = 1.5,
        n_inner: int = 1,
        tao_iter: int = 2,
        alpha_over_mu: bool = False,
        multiplier_step: float = 1.0,
        refit_leaves: bool = True,
        solver: str = "auto",
        tol: float = 1e-3,
        missing: str = "fill",
        max_categories: int = 30,
        memory: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.gamma = gamma
        self.damping = damping
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.perplexity = perplexity
        self.mutual = mutual
        self.scaling = scaling
        self.n_outer = n_outer
        self.mu = mu
        self.mu_factor = mu_factor
        self.n_inner = n_inner
        self.tao_iter = tao_iter
        self.alpha_over_mu = alpha_over_mu
        self.multiplier_step = multiplier_step
        self.refit_leaves = refit_leaves
        self.solver = solver
        self.tol = tol
        self.missing = missing
        self.max_categories = max_categories
        self.memory = memory
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "fill"
        return tags

    # ---- fitting --------------------------------------------------------------------------------

    @abstractmethod
    def _read_labels(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        """Return label rows of shape (rows, outputs), zero where unlabelled, and the mask."""

    @abstractmethod
    def _keep_labels(self, Z: Array, labelled: Array) -> None:
        """Keep what the training rows were found to be."""

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        totals: Any,
        affinity_rows: Any,
        callback: mac.Callback | None,
    ) -> Self:
        self._check_parameters()
        X, columns = fit_columns(self, X, missing=self.missing, max_categories=self.max_categories)
        n_rows = X.shape[0]
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        labels, labelled = self._read_labels(y, n_rows)
        check_weights(weight)
        self._check_labelled_weight(weight, labelled)
        amount = self._read_totals(totals, weight)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        n_threads = int(effective_n_jobs(self.n_jobs))

        affinity = self.affinity
        if affinity_rows is not None:
            affinity = part_of_affinity(affinity, affinity_rows, n_rows)
        rows = distinct_rows(X, labels, labelled, weight, amount=amount, merge=affinity is None)
        W = graph_of_rows(
            rows, affinity=affinity, n_rows=n_rows, n_neighbors=self.n_neighbors,
            perplexity=self.perplexity, mutual=self.mutual, scaling=self.scaling,
            is_classes=self._is_classes, memory=self.memory, seed=seed, n_jobs=self.n_jobs,
            verbose=self.verbose,
        )  # fmt: skip
        gamma = self._gamma if self.gamma == "auto" else float(self.gamma)
        damping = self._damping if self.damping == "auto" else float(self.damping)
        coordinates = SmoothedLabels(
            W, rows.evidence, gamma=gamma, damping=damping, solver=self.solver,
            n_threads=n_threads,
        )  # fmt: skip
        self._warn_unreached(coordinates)
        mapping = make_mapping(
            TAOTreeRegressor() if self.estimator is None else self.estimator,
            rows.X, rows.weight, seed=seed, n_threads=n_threads,
            iterations=self.tao_iter, alpha_over_mu=self.alpha_over_mu,
        )  # fmt: skip
        result = mac.alternate(
            coordinates, mapping, mac.schedule(self.mu, self.mu_factor, self.n_outer),
            repeats=self.n_inner, multiplier_step=self.multiplier_step, tol=self.tol,
            callback=callback, verbose=self.verbose,
        )  # fmt: skip

        self.columns_ = columns
        self.affinity_ = W
        self.history_ = result.history
        self.n_iter_ = max(len(result.history) - 1, 1)
        self._predictor = result.fit.model
        if isinstance(mapping, TreeMapping):
            self.settings_ = mapping.settings
        if isinstance(self._predictor, TreePredictor):
            self._keep_tree(self._predictor, rows.X, rows.weight, coordinates)
        else:
            self.estimator_ = self._predictor.estimator
        Z = rows.spread(result.Z, n_rows)
        if not weight.all():  # rows without weight take no part
            Z[weight == 0] = self._predictor.predict(X[weight == 0])
        self._keep_labels(Z, labelled)
        return self

    def _check_parameters(self) -> None:
        given = self.estimator
        if given is not None and not (hasattr(given, "fit") and is_regressor(given)):
            raise TypeError(
                "estimator must be a regressor (it is fitted to smoothed labels, classes as "
                f"indicators), got {given!r}"
            )
        for name in ("gamma", "damping"):
            if getattr(self, name) != "auto":
                check_number(name, getattr(self, name))
        check_flag("mutual", self.mutual)
        check_choice("scaling", self.scaling, SCALINGS)
        check_integer("n_outer", self.n_outer, 0)
        check_integer("n_inner", self.n_inner, 1)
        check_integer("tao_iter", self.tao_iter, 1)
        for name in ("mu", "mu_factor"):
            if check_number(name, getattr(self, name)) == 0:
                raise ValueError(f"{name} must be positive, got 0")
        check_flag("alpha_over_mu", self.alpha_over_mu)
        check_number("multiplier_step", self.multiplier_step)
        check_flag("refit_leaves", self.refit_leaves)
        check_choice("solver", self.solver, SOLVERS)
        check_number("tol", self.tol)
        check_choice("missing", self.missing, ["fill", "error"])
        check_integer("max_categories", self.max_categories, 2)
        if not isinstance(self.verbose, bool):
            check_integer("verbose", self.verbose, 0)

    def _check_labelled_weight(self, weight: Array, labelled: Array) -> None:
        if not weight[labelled].any():
            raise ValueError("sample_weight must be positive at some labelled row, got all zeros")

    def _read_totals(self, totals: Any, weight: Array) -> Array | None:
        if totals is not None:
            raise TypeError("totals are known for classes only")
        return None

    def _warn_unreached(self, coordinates: SmoothedLabels) -> None:
        if coordinates.n_free_components:
            warn(
                f"{coordinates.n_free_components} components of the graph with "
                f"{coordinates.n_free_rows} rows hold no label: they get the mean label. More "
                "neighbours, a positive damping or more labels connect them",
                UserWarning,
                stacklevel=4,
            )

    def _keep_tree(
        self, predictor: TreePredictor, X: Matrix, weight: Array, coordinates: SmoothedLabels
    ) -> None:
        """Keep the tree, its leaves refitted exactly, with the weights that reach its nodes."""
        tree, leaf = predictor.tree, predictor.leaf(X)
        values, slopes, bounds = tree.values, tree.slopes, tree.bounds
        if self.refit_leaves and slopes is None:
            values = coordinates.refit(leaf, tree.n_leaves)
        reached = np.bincount(leaf, weight, minlength=tree.n_leaves)
        self.tree_ = tree.with_leaves(values, node_totals(tree, reached), slopes, bounds)
        self._predictor = replace(predictor, tree=self.tree_)

    # ---- predicting -----------------------------------------------------------------------------

    def _outputs(self, X: Any) -> Array:
        check_is_fitted(self)
        return np.asarray(self._predictor.predict(encode(self, X, self.columns_)))

    def _tree_predictor(self) -> TreePredictor:
        check_is_fitted(self)
        if not isinstance(self._predictor, TreePredictor):
            raise AttributeError(
                f"{type(self.estimator).__name__} is not a tree: there are no leaves to tell of"
            )
        return self._predictor

    def apply(self, X: Any) -> Array:
        """Return the node number of the leaf that each row reaches."""
        predictor = self._tree_predictor()
        leaf = predictor.leaf(encode(self, X, self.columns_))
        return np.asarray(predictor.tree.leaf_nodes[leaf])

    def get_depth(self) -> int:
        """Return the number of decisions on the longest way down."""
        return self._tree_predictor().tree.depth

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        return self._tree_predictor().tree.n_leaves

    @property
    def n_parameters_(self) -> int:
        """Coefficients, thresholds and leaf answers of the tree."""
        return self._tree_predictor().tree.n_parameters
