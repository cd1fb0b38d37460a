"""TAO trees: `TAOTreeClassifier` and `TAOTreeRegressor`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted

from silva.estimators.columns import Columns
from silva.estimators.parameters import check_choice
from silva.estimators.partial_labels import check_length, require_complete
from silva.estimators.problem import Problem
from silva.estimators.tao_base import TAOTree
from silva.leaves import ClassShares, Leaves, Linear, Mean
from silva.losses import squared_error
from silva.tao import Optimised, rescale_answers
from silva.tree import Array, answer


class TAOTreeClassifier(ClassifierMixin, TAOTree):
    """A classification tree trained by alternating optimisation.

    Unlike a greedy tree, every node is optimised again and again for the loss of the whole tree
    (Carreira-Perpiñán & Tavallali 2018). Splits are sparse hyperplanes by default, which makes the
    tree shallow and accurate.

    Parameters
    ----------
    split : {"auto", "oblique", "mixed", "axis"}, default="auto"
        Sparse hyperplanes, one feature a node, or at each node the better of the two. "auto" is
        "oblique", or searched with `alpha`.
    leaf : {"constant", "linear"}, default="constant"
        Class shares, or a linear model per leaf (least squares on the class indicators).
    loss : {"misclassification", "squared", "log"}, default="misclassification"
        What the tree minimises. Linear leaves always use the squared error.
    max_depth : int or "auto", default="auto"
        Depth of the tree to start from; branches that turn out useless are pruned. "auto" follows
        from the number of rows.
    alpha : float or "auto", default="auto"
        Price of complexity in units of one row's loss: of the L1 norm of the hyperplanes (in
        scaled columns), or of a node with a single feature. Larger is sparser. With "auto", it and
        whatever else is "auto" are chosen on held-out parts of the training rows (about a dozen
        fits on part of the rows); with a number, the others take plain defaults and one tree is
        fitted.
    l2 : float or "auto", default="auto"
        Price of half the squared norm of the hyperplanes, in units of `alpha`; 0.1 unless searched.
    shrinkage : float or "auto", default="auto"
        How many rows' worth each node's answer leans towards its parent's, which steadies small
        leaves; the ridge penalty where leaves are linear. 0 (1 if linear) unless searched.
    max_iter : int, default=20
        Passes over the tree.
    tol : float, default=1e-4
        Stop when the objective has not fallen by this share for three passes.
    init : {"auto", "class_means", "random", "cart"}, Tree or fitted tree, default="auto"
        The first tree: hyperplanes between the means of two random classes, Gaussian hyperplanes,
        a greedy tree, or a tree at hand. "auto" is "class_means", or "cart" for axis splits.
    monotone : bool, default=False
        Take an update of a node only if the objective does not rise. Safer from a good start;
        from a random one it stops too early.
    class_weight : dict, "balanced" or None
        Weights of the classes, as in scikit-learn.
    missing : {"fill", "error"}, default="fill"
        Missing numbers are replaced by the median seen in training, with an indicator column where
        they are frequent; or refused.
    max_categories : int, default=30
        Most indicator columns a category of a frame is spread over; rare levels are grouped.
    warm_start : bool, default=False
        Go on from the tree of the last fit.
    n_jobs : int, optional
        Threads. The tree is the same for any number.
    random_state : int, RandomState or None
        Seed of the first tree.
    device : {"cpu", "reference"}, default="cpu"
        Compiled core, or plain NumPy for study.
    verbose : int, default=0
        Positive: a line of progress per iteration.

    Attributes
    ----------
    tree_ : Tree
        The fitted tree, in the user's units.
    classes_ : array, or list of arrays for several outputs
    history_ : list of Iteration
        Objective, loss, penalty, non-zeros and seconds of every pass.
    feature_importances_ : array of shape (n_features_in_,)
    n_parameters_ : int
        Coefficients, thresholds and leaf labels, as the papers count a model's size.
    n_iter_ : int
    split_, alpha_, shrinkage_
        What "auto" settled on.
    trials_ : list of Trial
        Every candidate of the search with its held-out losses, the best first.
    columns_ : Columns
        How the input columns were encoded.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from silva import TAOTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> TAOTreeClassifier(max_depth=3, random_state=0).fit(X, y).score(X, y) > 0.95
    True
    """

    _inits = ("auto", "class_means", "random", "cart")

    def _depths(self) -> tuple[int, ...]:
        return (-3, 0)

    def _shrinkages(self) -> tuple[float, ...]:
        return (1.0, 0.1, 10.0, 100.0) if self.leaf == "linear" else (0.0, 1.0, 3.0, 10.0)

    def __init__(
        self,
        *,
        split: str = "auto",
        leaf: str = "constant",
        loss: str = "misclassification",
        max_depth: int | str = "auto",
        alpha: float | str = "auto",
        l2: float | str = "auto",
        shrinkage: float | str = "auto",
        max_iter: int = 20,
        tol: float = 1e-4,
        init: Any = "auto",
        monotone: bool = False,
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
            split=split, leaf=leaf, max_depth=max_depth, alpha=alpha, l2=l2, shrinkage=shrinkage,
            max_iter=max_iter, tol=tol, init=init, monotone=monotone, missing=missing,
            max_categories=max_categories, warm_start=warm_start, n_jobs=n_jobs,
            random_state=random_state, device=device, verbose=verbose,
        )  # fmt: skip
        self.loss = loss
        self.class_weight = class_weight

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("loss", self.loss, ["misclassification", "squared", "log"])

    def _read_targets(self, y: Any, weight: Array) -> tuple[Leaves, Array]:
        y = check_array(
            require_complete(y), ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0
        )
        check_length(y, len(weight))
        y2 = y if y.ndim == 2 else y[:, None]
        simple = [_few_whole_numbers(column) for column in y2.T]
        pairs = [pair for pair in simple if pair is not None]
        if not pairs or len(pairs) < len(simple):
            try:
                check_classification_targets(y)
                pairs = [np.unique(column, return_inverse=True) for column in y2.T]
            except TypeError as error:
                raise TypeError(f"y must hold labels of one kind, got a mix: {error}") from error
        classes = [labels for labels, _ in pairs]
        self.n_outputs_ = len(classes)
        self.classes_ = classes[0] if y.ndim == 1 or len(classes) == 1 else classes
        self.n_classes_ = len(classes[0]) if len(classes) == 1 else [len(c) for c in classes]
        begin = np.concatenate([[0], np.cumsum([len(c) for c in classes])]).astype(np.int32)
        codes = np.stack([code for _, code in pairs], axis=1) + begin[:-1]
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
            if not np.isfinite(weight).all() or (weight < 0).any():
                raise ValueError(
                    "class_weight must give finite weights that are not negative, "
                    f"got {self.class_weight!r}"
                )
        if self.leaf == "linear":
            indicators = np.zeros((len(codes), begin[-1]))
            indicators[np.arange(len(codes))[:, None], codes] = 1
            return Linear(indicators), weight
        codes = np.ascontiguousarray(codes, dtype=np.int32)
        return ClassShares(codes, begin, self.loss), weight

    def _greedy_tree(self, max_depth: int) -> Any:
        return DecisionTreeClassifier(max_depth=max(max_depth, 1))

    def _greedy_targets(self, leaves: Leaves) -> Array:
        if isinstance(leaves, ClassShares):
            return leaves.codes
        return np.asarray(leaves.targets.argmax(axis=1))

    def _held_out_loss(self, answers: Array, leaves: Leaves, weight: Array) -> float:
        """Error rate, plus a little of the squared error of the shares to break ties."""
        if isinstance(leaves, ClassShares):
            truth = np.zeros_like(answers)
            truth[np.arange(len(truth))[:, None], leaves.codes] = 1
        else:
            truth = leaves.targets
        wrong = [
            answers[:, part].argmax(axis=1) != truth[:, part].argmax(axis=1)
            for part in self._class_slices()
        ]
        loss = np.mean(wrong, axis=0) + 0.1 * squared_error(truth, answers)
        return float(np.average(loss, weights=weight))

    @property
    def n_parameters_(self) -> int:
        """Coefficients, thresholds and leaf answers."""
        check_is_fitted(self)
        tree = self.tree_
        if tree.slopes is not None:
            return tree.n_parameters
        labels = tree.n_leaves * self.n_outputs_  # a constant leaf is a label
        return tree.n_parameters - tree.values.size + labels

    def _class_slices(self) -> list[slice]:
        classes = self.classes_ if isinstance(self.classes_, list) else [self.classes_]
        ends = np.cumsum([len(c) for c in classes])
        return [slice(end - len(c), end) for c, end in zip(classes, ends, strict=True)]

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row; ties go to the first."""
        X = self._encode(X)
        leaf = self._leaf_numbers(X)
        if self.tree_.slopes is None:
            labels = self._labels(self.tree_.values)
            return np.asarray(labels[leaf])
        return self._labels(answer(self.tree_, leaf, X))

    def _labels(self, shares: Array) -> Array:
        classes = self.classes_ if isinstance(self.classes_, list) else [self.classes_]
        labels = [
            c[shares[:, part].argmax(axis=1)]
            for c, part in zip(classes, self._class_slices(), strict=True)
        ]
        return labels[0] if len(labels) == 1 else np.stack(labels, axis=1)

    def predict_proba(self, X: Any) -> Array | list[Array]:
        """Return class probabilities: the class shares of the leaf, clipped where it is linear."""
        shares = self._answers(X)
        if self.tree_.slopes is not None:
            shares = np.clip(shares, 1e-6, None)
        parts = [shares[:, part] for part in self._class_slices()]
        parts = [part / part.sum(axis=1, keepdims=True) for part in parts]
        return parts[0] if len(parts) == 1 else parts

    def predict_log_proba(self, X: Any) -> Array | list[Array]:
        """Return the logarithms of `predict_proba`."""
        probability = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            if isinstance(probability, list):
                return [np.log(part) for part in probability]
            return np.log(probability)


class TAOTreeRegressor(RegressorMixin, TAOTree):
    """A regression tree trained by alternating optimisation.

    Minimises the squared error of the whole tree, for one or several outputs.

    Parameters
    ----------
    split : {"auto", "oblique", "mixed", "axis"}, default="auto"
        As in `TAOTreeClassifier`.
    leaf : {"constant", "linear"}, default="constant"
        The mean, or ridge regression per leaf, clipped to the range of the leaf's own targets.
    max_depth, alpha, l2, shrinkage, max_iter, tol
        As in `TAOTreeClassifier`; the unit of `alpha` is the variance of the target.
    init : {"auto", "target_means", "random", "cart"}, Tree or fitted tree, default="auto"
        The first tree; "target_means" puts hyperplanes between the means of the rows with high and
        low targets.
    monotone, missing, max_categories, warm_start, n_jobs, random_state, device, verbose
        As in `TAOTreeClassifier`.

    Attributes
    ----------
    tree_, history_, feature_importances_, n_parameters_, n_iter_, columns_
        As in `TAOTreeClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from silva import TAOTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> TAOTreeRegressor(max_depth=3, random_state=0).fit(X, y).score(X, y) > 0.4
    True
    """

    _inits = ("auto", "target_means", "random", "cart")

    def _depths(self) -> tuple[int, ...]:
        return (-5, -3, -1) if self.leaf == "linear" else (-3, 0, 2)

    def _shrinkages(self) -> tuple[float, ...]:
        return (1.0, 0.1, 10.0, 100.0) if self.leaf == "linear" else (0.0, 1.0, 3.0, 10.0, 30.0)

    def __init__(
        self,
        *,
        split: str = "auto",
        leaf: str = "constant",
        max_depth: int | str = "auto",
        alpha: float | str = "auto",
        l2: float | str = "auto",
        shrinkage: float | str = "auto",
        max_iter: int = 20,
        tol: float = 1e-4,
        init: Any = "auto",
        monotone: bool = False,
        missing: str = "fill",
        max_categories: int = 30,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            split=split, leaf=leaf, max_depth=max_depth, alpha=alpha, l2=l2, shrinkage=shrinkage,
            max_iter=max_iter, tol=tol, init=init, monotone=monotone, missing=missing,
            max_categories=max_categories, warm_start=warm_start, n_jobs=n_jobs,
            random_state=random_state, device=device, verbose=verbose,
        )  # fmt: skip

    def _read_targets(self, y: Any, weight: Array) -> tuple[Leaves, Array]:
        y = check_array(
            require_complete(y), ensure_2d=False, dtype=np.float64, input_name="y",
            ensure_min_samples=0,
        )  # fmt: skip
        check_length(y, len(weight))
        self._flat = y.ndim == 1
        y = y[:, None] if y.ndim == 1 else y
        self.n_outputs_ = y.shape[1]
        # One unit for all outputs: alpha means the same for a target in metres or millimetres.
        total = weight.sum() if weight.any() else 1.0
        self._centre = weight / total @ y
        size = float(np.abs(y - self._centre).max(initial=0.0)) or 1.0  # squares stay in range
        spread = weight / total @ ((y - self._centre) / size) ** 2
        self._unit = size * float(np.sqrt(np.mean(spread))) or 1.0
        targets = np.ascontiguousarray((y - self._centre) / self._unit)
        return (Linear(targets) if self.leaf == "linear" else Mean(targets)), weight

    def _greedy_tree(self, max_depth: int) -> Any:
        return DecisionTreeRegressor(max_depth=max(max_depth, 1))

    def _greedy_targets(self, leaves: Leaves) -> Array:
        if isinstance(leaves, ClassShares):
            raise TypeError("a regressor has no classes")
        return leaves.targets

    def _held_out_loss(self, answers: Array, leaves: Leaves, weight: Array) -> float:
        if isinstance(leaves, ClassShares):
            raise TypeError("a regressor has no classes")
        return float(np.average(squared_error(leaves.targets, answers), weights=weight))

    def _keep(self, result: Optimised, problem: Problem, columns: Columns, resumed: bool) -> None:
        super()._keep(result, problem, columns, resumed)
        self.tree_ = rescale_answers(self.tree_, self._centre, self._unit)

    @property
    def n_parameters_(self) -> int:
        """Coefficients, thresholds and leaf answers."""
        check_is_fitted(self)
        return self.tree_.n_parameters

    def predict(self, X: Any) -> Array:
        """Return the answer of each row's leaf."""
        answers = self._answers(X)
        return answers[:, 0] if self._flat else answers


def _few_whole_numbers(column: Array) -> tuple[Array, Array] | None:
    """Return classes and codes as `np.unique` does, without a sort; None where that is not safe."""
    if column.dtype.kind not in "iu" or not column.size:
        return None
    low, high = int(column.min()), int(column.max())
    if high - low >= min(1000, len(column) // 2) or not -(2**31) <= low <= high < 2**31:
        return None
    shifted = column.astype(np.int64) - low
    seen = np.bincount(shifted) > 0
    classes = (np.flatnonzero(seen) + low).astype(column.dtype)
    return classes, (np.cumsum(seen) - 1)[shifted]
