"""Forests of TAO trees: `TAOForestClassifier` and `TAOForestRegressor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score

from silva.estimators.forest_base import ALPHA, TAOForest
from silva.estimators.tao import TAOTreeClassifier, TAOTreeRegressor
from silva.kernels import Matrix
from silva.tao import rescale_answers
from silva.tree import Array, Tree, answer


class TAOForestClassifier(ClassifierMixin, TAOForest):
    """A forest of classification trees, each trained by alternating optimisation on its own bag.

    Trees optimised as a whole err less than greedy ones and yet differ, since each starts from
    random hyperplanes on rows drawn with replacement (Carreira-Perpiñán and Zharmagambetov 2020).
    The forest answers the mean of their leaves' class shares.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default="auto"
        Input columns that a tree is shown, drawn anew for each tree (not for each node, as in
        scikit-learn, whose small subsets would starve a whole tree). "auto" and None are all of
        them.
    bootstrap : bool or "bayesian", default=True
        Draw the rows of each tree with replacement; otherwise every tree sees all rows, with
        "bayesian" under random weights (Rubin 1981), so that no tree misses a rare one.
    max_samples : int, float or None, default=None
        How many rows are drawn for a tree, or their share; None is as many as there are.
    oob_score : bool or callable, default=False
        Judge the forest on the training rows, each by the trees that did not see it. A callable
        gets the targets and the predictions; otherwise it is what `score` measures.
    split : {"auto", "oblique", "mixed", "axis"}, default="auto"
        As in `TAOTreeClassifier`. "auto" grows the first ten trees with "oblique" and with "mixed"
        splits and goes on with those whose out-of-bag loss is lower; without bags it is "oblique".
    leaf : {"constant", "linear"}, default="constant"
        As in `TAOTreeClassifier`.
    loss : {"misclassification", "squared", "log"}, default="squared"
        As in `TAOTreeClassifier`. Means of class shares gain by shares that are fitted well.
    max_depth : int or "auto", default="auto"
        Depth of the first trees. "auto" follows from the number of rows and is one level more than
        that of a single tree: about eight different rows for each leaf, before pruning.
    alpha : float or "auto", default="auto"
        Price of complexity, as in `TAOTreeClassifier`. Nothing is searched: "auto" is 0.01, since
        the mean over the trees steadies the answer and what a forest needs is trees that miss
        nothing.
    l2, shrinkage : float or "auto", default="auto"
        As in `TAOTreeClassifier`: 0.1, and 0 (1 if leaves are linear).
    max_iter : int, default=10
        Passes over each tree.
    tol : float, default=1e-4
        As in `TAOTreeClassifier`.
    init : {"auto", "class_means", "random", "cart"}, default="auto"
        As in `TAOTreeClassifier`, without trees at hand.
    class_weight : dict, "balanced" or None
        Weights of the classes, as in scikit-learn.
    missing, max_categories
        As in `TAOTreeClassifier`.
    warm_start : bool, default=False
        Add trees to those of the last fit; the forest is the one that a single fit would give.
    n_jobs : int, optional
        Threads, each with a tree of its own. The forest is the same for any number.
    random_state : int, RandomState or None
        Seed of the bags and of the first trees.
    device : {"cpu", "reference"}, default="cpu"
        Compiled core, or plain NumPy for study.
    verbose : int, default=0
        Positive: a line per tree.

    Attributes
    ----------
    trees_ : list of Tree
        The trees, over all encoded columns.
    classes_, n_classes_, n_outputs_
        As in `TAOTreeClassifier`.
    oob_score_ : float
        Accuracy on the training rows that some tree did not see; with `oob_score`.
    oob_decision_function_ : array of shape (rows, classes), or list for several outputs
        Class probabilities by the trees that did not see the row, NaN where all did; with
        `oob_score`.
    feature_importances_ : array of shape (n_features_in_,)
        Mean over the trees of the share of each column in the decrease of the Gini impurity.
    n_parameters_ : int
        Size of the forest, see `silva.ensemble`.
    flops_ : float
        Mean number of parameters that a row meets on its way through all trees.
    estimators_samples_, estimators_features_ : list of arrays
        The rows and the input columns that each tree was shown.
    n_iter_ : int
        Most passes over a tree.
    split_, alpha_, max_depth_, max_features_
        What "auto" came to.
    trials_ : list of Trial
        The splits that were tried with their out-of-bag losses, the best first.
    columns_ : Columns
        How the input columns were encoded.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from silva import TAOForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TAOForestClassifier(n_estimators=30, oob_score=True, random_state=0).fit(X, y)
    >>> model.oob_score_ > 0.93
    True
    """

    def __init__(
        self,
        *,
        n_estimators: int = 100,
        max_features: Any = "auto",
        bootstrap: bool | str = True,
        max_samples: float | int | None = None,
        oob_score: bool | Callable[[Array, Array], float] = False,
        split: str = "auto",
        leaf: str = "constant",
        loss: str = "squared",
        max_depth: int | str = "auto",
        alpha: float | str = "auto",
        l2: float | str = "auto",
        shrinkage: float | str = "auto",
        max_iter: int = 10,
        tol: float = 1e-4,
        init: str = "auto",
        class_weight: Any = None,
        missing: str = "fill",
        max_categories: int = 30,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_estimators=n_estimators, max_features=max_features, bootstrap=bootstrap,
            max_samples=max_samples, oob_score=oob_score, split=split, leaf=leaf,
            max_depth=max_depth, alpha=alpha, l2=l2, shrinkage=shrinkage, max_iter=max_iter,
            tol=tol, init=init, missing=missing, max_categories=max_categories,
            warm_start=warm_start, n_jobs=n_jobs, random_state=random_state, device=device,
            verbose=verbose,
        )  # fmt: skip
        self.loss = loss
        self.class_weight = class_weight

    def _template(self) -> TAOTreeClassifier:
        return TAOTreeClassifier(
            split=self.split, leaf=self.leaf, loss=self.loss,
            max_depth=self.max_depth, alpha=ALPHA if self.alpha == "auto" else self.alpha,
            l2=self.l2, shrinkage=self.shrinkage, max_iter=self.max_iter, tol=self.tol,
            init=self.init, class_weight=self.class_weight, missing=self.missing,
            max_categories=self.max_categories, n_jobs=self.n_jobs, device=self.device,
            verbose=self.verbose,
        )  # fmt: skip

    def _finish_tree(self, tree: Tree) -> Tree:
        return tree

    def _tree_answers(self, tree: Tree, leaf: Array, X: Matrix) -> Array:
        shares = answer(tree, leaf, X)
        if tree.slopes is not None:
            shares = np.clip(shares, 1e-6, None)
            for part in self._reader._class_slices():
                shares[:, part] /= shares[:, part].sum(axis=1, keepdims=True)
        return shares

    def _set_targets(self, reader: Any) -> None:
        self.classes_, self.n_classes_ = reader.classes_, reader.n_classes_
        self.n_outputs_ = reader.n_outputs_

    def _same_targets(self, reader: Any) -> bool:
        return super()._same_targets(reader) and all(
            np.array_equal(new, old)
            for new, old in zip(_as_list(reader.classes_), _as_list(self.classes_), strict=True)
        )

    def _set_out_of_bag(self, mean: Array) -> Array:
        self.oob_decision_function_ = self._by_output(mean)
        return np.asarray(self._reader._labels(mean))

    def _default_score(self, truth: Array, predicted: Array, weight: Array) -> float:
        right = np.equal(truth, predicted).reshape(len(truth), -1).mean(axis=1)
        return float(np.average(right, weights=weight))

    def _by_output(self, shares: Array) -> Array | list[Array]:
        parts = [shares[:, part] for part in self._reader._class_slices()]
        return parts[0] if len(parts) == 1 else parts

    def predict(self, X: Any) -> Array:
        """Return the class of the largest mean share; ties go to the first."""
        shares = self._mean_answers(X)
        return np.asarray(self._reader._labels(shares))

    def predict_proba(self, X: Any) -> Array | list[Array]:
        """Return class probabilities: the mean over the trees of the leaf's class shares."""
        return self._by_output(self._mean_answers(X))

    def predict_log_proba(self, X: Any) -> Array | list[Array]:
        """Return the logarithms of `predict_proba`."""
        probability = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            if isinstance(probability, list):
                return [np.log(part) for part in probability]
            return np.log(probability)


class TAOForestRegressor(RegressorMixin, TAOForest):
    """A forest of regression trees, each trained by alternating optimisation on its own bag.

    As `TAOForestClassifier`, for squared error and one or several outputs (Zharmagambetov and
    Carreira-Perpiñán 2020). The forest answers the mean of its trees.

    Parameters
    ----------
    n_estimators, max_features, bootstrap, max_samples, oob_score
        As in `TAOForestClassifier`.
    split : {"auto", "oblique", "mixed", "axis"}, default="auto"
        As in `TAOForestClassifier`.
    leaf : {"constant", "linear"}, default="constant"
        As in `TAOTreeRegressor`.
    max_depth, alpha, l2, shrinkage, max_iter, tol
        As in `TAOForestClassifier`; the unit of `alpha` is the variance of the target.
    init : {"auto", "target_means", "random", "cart"}, default="auto"
        As in `TAOTreeRegressor`, without trees at hand.
    missing, max_categories, warm_start, n_jobs, random_state, device, verbose
        As in `TAOForestClassifier`.

    Attributes
    ----------
    trees_ : list of Tree
        The trees, over all encoded columns, in the units of the target.
    oob_score_ : float
        R² on the training rows that some tree did not see; with `oob_score`.
    oob_prediction_ : array of the shape of y
        Mean over the trees that did not see the row, NaN where all did; with `oob_score`.
    feature_importances_, n_parameters_, flops_, estimators_samples_, estimators_features_
        As in `TAOForestClassifier`.
    n_iter_, split_, alpha_, max_depth_, max_features_, trials_, columns_, n_outputs_
        As in `TAOForestClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from silva import TAOForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = TAOForestRegressor(n_estimators=30, oob_score=True, random_state=0).fit(X, y)
    >>> model.oob_score_ > 0.4
    True
    """

    def __init__(
        self,
        *,
        n_estimators: int = 100,
        max_features: Any = "auto",
        bootstrap: bool | str = True,
        max_samples: float | int | None = None,
        oob_score: bool | Callable[[Array, Array], float] = False,
        split: str = "auto",
        leaf: str = "constant",
        max_depth: int | str = "auto",
        alpha: float | str = "auto",
        l2: float | str = "auto",
        shrinkage: float | str = "auto",
        max_iter: int = 10,
        tol: float = 1e-4,
        init: str = "auto",
        missing: str = "fill",
        max_categories: int = 30,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_estimators=n_estimators, max_features=max_features, bootstrap=bootstrap,
            max_samples=max_samples, oob_score=oob_score, split=split, leaf=leaf,
            max_depth=max_depth, alpha=alpha, l2=l2, shrinkage=shrinkage, max_iter=max_iter,
            tol=tol, init=init, missing=missing, max_categories=max_categories,
            warm_start=warm_start, n_jobs=n_jobs, random_state=random_state, device=device,
            verbose=verbose,
        )  # fmt: skip

    def _template(self) -> TAOTreeRegressor:
        return TAOTreeRegressor(
            split=self.split, leaf=self.leaf,
            max_depth=self.max_depth, alpha=ALPHA if self.alpha == "auto" else self.alpha,
            l2=self.l2, shrinkage=self.shrinkage, max_iter=self.max_iter, tol=self.tol,
            init=self.init, missing=self.missing, max_categories=self.max_categories,
            n_jobs=self.n_jobs, device=self.device, verbose=self.verbose,
        )  # fmt: skip

    def _finish_tree(self, tree: Tree) -> Tree:
        return rescale_answers(tree, self._reader._centre, self._reader._unit)

    def _tree_answers(self, tree: Tree, leaf: Array, X: Matrix) -> Array:
        return answer(tree, leaf, X)

    def _set_targets(self, reader: Any) -> None:
        self.n_outputs_ = reader.n_outputs_

    def _set_out_of_bag(self, mean: Array) -> Array:
        self.oob_prediction_ = self._shaped(mean)
        return self.oob_prediction_

    def _default_score(self, truth: Array, predicted: Array, weight: Array) -> float:
        return float(r2_score(truth, predicted, sample_weight=weight))

    def _shaped(self, answers: Array) -> Array:
        return answers[:, 0] if self._reader._flat else answers

    def predict(self, X: Any) -> Array:
        """Return the mean of the trees' answers."""
        return self._shaped(self._mean_answers(X))


def _as_list(classes: Any) -> list[Array]:
    return classes if isinstance(classes, list) else [classes]
