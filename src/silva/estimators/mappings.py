"""The predicting side of LapTAO: a TAO tree, or any scikit-learn regressor, fitted step by step."""

from __future__ import annotations

import inspect
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from sklearn.base import clone
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor

from silva.estimators.problem import Problem, leaf_numbers
from silva.estimators.selection import Settings
from silva.estimators.tao import TAOTreeRegressor
from silva.estimators.tao_base import check_width, given_tree
from silva.grow import from_sklearn
from silva.kernels import Matrix, select
from silva.leaves import Basis, Leaves, Linear, Mean
from silva.mac import Fit, Mapping
from silva.tao import rescale_answers
from silva.tree import Array, Tree, answer


class Predictor(Protocol):
    """A fitted mapping: encoded rows in, outputs out."""

    def predict(self, X: Matrix) -> Array:
        """Return an array of shape (rows, outputs)."""
        ...


@dataclass(frozen=True, eq=False)
class TreePredictor:
    """A tree that answers in the user's units."""

    tree: Tree
    device: str
    n_threads: int

    def leaf(self, X: Matrix) -> Array:
        """Return the leaf number of each row."""
        return leaf_numbers(select(self.device), self.tree, X, self.n_threads)

    def predict(self, X: Matrix) -> Array:
        """Return the answer of each row's leaf."""
        return answer(self.tree, self.leaf(X), X)


@dataclass(frozen=True, eq=False)
class RegressorPredictor:
    """A fitted scikit-learn regressor."""

    estimator: Any

    def predict(self, X: Matrix) -> Array:
        """Return its predictions, a column per output."""
        return np.asarray(self.estimator.predict(X), dtype=np.float64).reshape(X.shape[0], -1)


class TreeMapping:
    """A TAO tree, warm-started: the first fit settles what its template leaves open.

    The unit of the targets is that of the first ones throughout, so that `alpha` keeps its meaning
    while the coordinates move; with `own_unit` each fit has its own, where only the shape of the
    coordinates counts. Linear leaves are drawn over a `basis` if there is one.
    """

    def __init__(
        self,
        template: TAOTreeRegressor,
        X: Matrix,
        weight: Array,
        seed: int,
        n_threads: int,
        iterations: int,
        alpha_over_mu: bool,
        own_unit: bool = False,
        basis: Basis | None = None,
    ) -> None:
        template._check_parameters()
        if basis is None:
            template._check_linear_leaves(X.shape[1])
        self._first = template
        self._later = clone(template).set_params(max_iter=iterations)
        self._X, self._weight = X, weight
        self._seed, self._n_threads = seed, n_threads
        self._alpha_over_mu = alpha_over_mu
        self._own_unit, self._basis = own_unit, basis
        self._last: Tree | None = None
        self.settings: Settings

    def fit(self, targets: Array, mu: float) -> Fit:
        """Improve the tree for these targets."""
        if self._last is None or self._own_unit:
            share = self._weight / self._weight.sum()
            self._centre = share @ targets
            spread = float(np.sqrt(np.mean(share @ (targets - self._centre) ** 2)))
            self._unit = spread or 1.0
        if self._last is None:
            self._problem = Problem.pose(
                select(self._first.device), self._X, self._leaves(targets), self._weight,
                self._n_threads,
            )  # fmt: skip
            self.settings, _ = self._first._choose(self._problem, self._seed)
            model, given = self._first, given_tree(self._first.init)
            check_width(given, self._X.shape[1])
        else:
            self._problem = replace(self._problem, leaves=self._leaves(targets))
            model, given = self._later, self._last
        settings = self.settings
        if self._alpha_over_mu and mu > 0:  # eq. 7
            settings = replace(settings, alpha=settings.alpha / mu)
        result = model._fit_one(self._problem, settings, given, None, self._seed, None, 0)
        if result.interrupted:
            raise KeyboardInterrupt
        self._last = result.last
        tree = rescale_answers(result.tree, self._centre, self._unit)
        outputs = answer(tree, result.leaf, self._X)
        return Fit(TreePredictor(tree, self._first.device, self._n_threads), outputs)

    def _leaves(self, targets: Array) -> Leaves:
        scaled = np.ascontiguousarray((targets - self._centre) / self._unit)
        if self._first.leaf == "linear":
            return Linear(scaled, basis=self._basis)
        return Mean(scaled)


class RegressorMapping:
    """Any scikit-learn regressor; one that has `warm_start` set goes on from its last fit.

    One that takes a single output only is fitted once per output.
    """

    def __init__(self, estimator: Any, X: Matrix, weight: Array) -> None:
        self._estimator = clone(estimator)
        self._warm = bool(getattr(estimator, "warm_start", False))
        self._X = X
        self._weights = {}
        if (weight != weight[0]).any():
            if "sample_weight" not in inspect.signature(estimator.fit).parameters:
                raise ValueError(
                    f"estimator {type(estimator).__name__} takes no sample_weight: fit without "
                    "weights and without copies of rows, or use another estimator"
                )
            self._weights = {"sample_weight": weight}

    def fit(self, targets: Array, mu: float) -> Fit:
        """Fit the regressor to these targets."""
        try:
            fitted = self._fit(targets)
        except ValueError:  # scikit-learn's tags do not tell who takes several outputs
            if targets.shape[1] == 1 or isinstance(self._estimator, MultiOutputRegressor):
                raise
            self._estimator, self._warm = MultiOutputRegressor(self._estimator), False
            fitted = self._fit(targets)
        model: Predictor = RegressorPredictor(fitted)
        if isinstance(fitted, DecisionTreeRegressor):
            model = TreePredictor(from_sklearn(fitted), "cpu", 1)
        return Fit(model, model.predict(self._X))

    def _fit(self, targets: Array) -> Any:
        estimator = self._estimator if self._warm else clone(self._estimator)
        flat = targets[:, 0] if targets.shape[1] == 1 else targets
        estimator.fit(self._X, flat, **self._weights)
        return deepcopy(estimator) if self._warm else estimator  # the next fit goes on from it


def make_mapping(
    estimator: Any,
    X: Matrix,
    weight: Array,
    *,
    seed: int,
    n_threads: int,
    iterations: int,
    alpha_over_mu: bool,
) -> Mapping:
    """Return the mapping that an `estimator` argument asks for."""
    if isinstance(estimator, TAOTreeRegressor):
        return TreeMapping(
            estimator, X, weight, seed, n_threads, iterations, alpha_over_mu
        )  # fmt: skip
    return RegressorMapping(estimator, X, weight)
