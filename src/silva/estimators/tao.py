"""TAO trees: `TAOTreeClassifier` and `TAOTreeRegressor`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import check_random_state, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted

from silva.estimators.columns import Columns, encode, fit_columns
from silva.estimators.parameters import check_choice, check_integer, check_number
from silva.grow import from_sklearn, random_start
from silva.kernels import Kernels, Matrix, Rows, select
from silva.leaves import ClassShares, Leaves, Linear, Mean
from silva.splits import Axis, Oblique, Split
from silva.tao import Callback, Iteration, Optimised, optimise, rescale_answers
from silva.tree import Array, Tree, answer, node_totals

DIRECTIONS = {"class_means": "means", "target_means": "means", "random": "gaussian"}


class _TAOTree(BaseEstimator):
    """What the classifier and the regressor share."""

    _inits: tuple[str, ...]

    def __init__(
        self,
        *,
        split: str,
        leaf: str,
        max_depth: int | None,
        alpha: float | None,
        l2: float,
        leaf_ridge: float,
        max_iter: int,
        tol: float,
        init: Any,
        monotone: bool,
        missing: str,
        max_categories: int,
        warm_start: bool,
        n_jobs: int | None,
        random_state: Any,
        device: str,
        verbose: int,
    ) -> None:
        self.split = split
        self.leaf = leaf
        self.max_depth = max_depth
        self.alpha = alpha
        self.l2 = l2
        self.leaf_ridge = leaf_ridge
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.monotone = monotone
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
        tags.target_tags.multi_output = True
        return tags

    # ---- fitting --------------------------------------------------------------------------------

    @abstractmethod
    def _read_targets(self, y: Any, weight: Array) -> tuple[Leaves, Array]:
        """Check y; return the leaf problem and the weights times the class weights."""

    @abstractmethod
    def _greedy_tree(self, max_depth: int) -> Any:
        """Return an unfitted scikit-learn tree to start from."""

    @abstractmethod
    def _greedy_targets(self, leaves: Leaves) -> Array:
        """Return the targets of that tree."""

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, callback: Callback | None = None
    ) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
            Missing values and the categories of frames are encoded inside.
        y : array of shape (rows,) or (rows, outputs)
            Targets.
        sample_weight : array of shape (rows,), optional
            Non-negative weights; a weight of 2 counts as two rows.
        callback : callable, optional
            Called after each iteration with a `silva.tao.Iteration`; a true answer stops.

        Returns
        -------
        self
        """
        self._check_parameters()
        kernels = select(self.device)
        resumed = self._resumed_tree()
        X, columns = fit_columns(
            self, X, missing=self.missing, max_categories=self.max_categories
        )
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        leaves, weight = self._read_targets(y, weight)
        if not weight.any():
            raise ValueError("sample_weight must have a positive entry, got all zeros")
        X, leaves, weight = _drop_weightless(X, leaves, weight)
        rows = kernels.prepare(X, self._n_threads)
        start, keep = self._start(kernels, X, rows, leaves, weight, resumed)
        result = optimise(
            kernels, X, rows, start, leaves, self._split(), weight.astype(np.float32),
            max_iter=self.max_iter,
            tol=self.tol,
            monotone=self.monotone,
            keep_start=keep,
            n_threads=self._n_threads,
            callback=callback,
            verbose=self.verbose,
        )  # fmt: skip
        self._keep(result, X, rows, weight, columns, resumed is not None)
        return self

    def _check_parameters(self) -> None:
        check_choice("split", self.split, ["oblique", "axis"])
        check_choice("leaf", self.leaf, ["constant", "linear"])
        if self.max_depth is not None:
            check_integer("max_depth", self.max_depth, 0)
        check_number("alpha", self.alpha)
        check_number("l2", self.l2)
        check_number("leaf_ridge", self.leaf_ridge)
        check_integer("max_iter", self.max_iter, 0)
        check_number("tol", self.tol)
        check_choice("missing", self.missing, ["fill", "error"])
        check_integer("max_categories", self.max_categories, 2)
        if isinstance(self.init, str):
            check_choice("init", self.init, self._inits)

    @property
    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))

    def _split(self) -> Split:
        if self.split == "axis":
            return Axis(self.alpha)
        return Oblique(self.alpha, self.l2)

    def _resumed_tree(self) -> Tree | None:
        """Return the tree of an earlier fit that a warm start goes on from."""
        return self._last_tree if self.warm_start and hasattr(self, "_last_tree") else None

    def _start(
        self,
        kernels: Kernels,
        X: Matrix,
        rows: Rows,
        leaves: Leaves,
        weight: Array,
        resumed: Tree | None,
    ) -> tuple[Tree, bool]:
        """Return the first tree, and whether its hyperplanes are worth keeping."""
        given = resumed if resumed is not None else _given_tree(self.init)
        if given is not None:
            if given.n_features != X.shape[1]:
                raise ValueError(
                    f"init is a tree over {given.n_features} columns, X has {X.shape[1]} "
                    "(categories and missing values encoded): fit both on the same columns"
                )
            return given, True
        max_depth = self._depth(len(weight))
        init = self.init
        if init == "auto":
            init = "cart" if self.split == "axis" else self._inits[1]
        random = check_random_state(self.random_state)
        if init == "cart":
            model = self._greedy_tree(max_depth).set_params(
                random_state=random.randint(np.iinfo(np.int32).max)
            )
            return from_sklearn(model.fit(X, self._greedy_targets(leaves), weight)), True
        direction = "axis" if self.split == "axis" else DIRECTIONS[init]
        seed = int(random.randint(np.iinfo(np.int32).max))
        return random_start(kernels, rows, leaves, direction, max_depth, seed), False

    def _depth(self, n_rows: int) -> int:
        """Depth of a start; unless given, small enough for a dozen rows or so in a leaf."""
        if self.max_depth is not None:
            return int(self.max_depth)
        return int(np.clip(np.log2(max(n_rows, 2) / 16), 1, 8))

    def _keep(
        self,
        result: Optimised,
        X: Matrix,
        rows: Rows,
        weight: Array,
        columns: Columns,
        resumed: bool,
    ) -> None:
        earlier: list[Iteration] = self.history_ if resumed else []
        self.tree_ = result.tree
        self._last_tree = result.last
        self.columns_ = columns
        self.history_ = [*earlier, *result.history]
        self.n_iter_ = max(sum(step.number > 0 for step in self.history_), 1)
        share = _importances(result.tree, result.leaf, X, rows, weight)
        self.feature_importances_ = np.bincount(
            columns.source, share, minlength=self.n_features_in_
        )

    # ---- reading the fitted tree ----------------------------------------------------------------

    def _leaf_numbers(self, X: Matrix) -> Array:
        tree = self.tree_
        nodes = select(self.device).route(
            X, tree.left, tree.right, tree.coefficients, tree.threshold, self._n_threads
        )
        return np.asarray(tree.leaf_index[nodes])

    def _encode(self, X: Any) -> Matrix:
        check_is_fitted(self)
        return encode(self, X, self.columns_)

    def _answers(self, X: Any) -> Array:
        X = self._encode(X)
        return answer(self.tree_, self._leaf_numbers(X), X)

    def apply(self, X: Any) -> Array:
        """Return the node number of the leaf that each row reaches."""
        return np.asarray(self.tree_.leaf_nodes[self._leaf_numbers(self._encode(X))])

    def decision_path(self, X: Any) -> sparse.csr_array:
        """Return the row-by-node indicator of the nodes that each row passes."""
        leaf = self._leaf_numbers(self._encode(X))
        return sparse.csr_array(self.tree_.ancestors()[leaf])

    def get_depth(self) -> int:
        """Return the number of decisions on the longest way down."""
        check_is_fitted(self)
        return self.tree_.depth

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        check_is_fitted(self)
        return self.tree_.n_leaves


def _given_tree(init: Any) -> Tree | None:
    """Return the tree that `init` is or holds; None if it names a way to make one."""
    if isinstance(init, str):
        return None
    if isinstance(init, DecisionTreeClassifier | DecisionTreeRegressor):
        check_is_fitted(init)
        return from_sklearn(init)
    tree = getattr(init, "tree_", init)
    if not isinstance(tree, Tree):
        raise TypeError(
            "init must be a string, a silva Tree or a fitted tree estimator, "
            f"got {type(init).__name__}"
        )
    return tree


def _drop_weightless(
    X: Matrix, leaves: Leaves, weight: Array
) -> tuple[Matrix, Leaves, Array]:
    """Leave out rows of weight zero: they must not move a median."""
    used = weight > 0
    if used.all():
        return X, leaves, weight
    if isinstance(leaves, ClassShares):
        leaves = ClassShares(leaves.codes[used], leaves.class_begin, leaves.loss)
    elif isinstance(leaves, Linear):
        leaves = Linear(leaves.targets[used], leaves.ridge)
    else:
        leaves = Mean(leaves.targets[used])
    return X[used], leaves, weight[used]


def _importances(tree: Tree, leaf: Array, X: Matrix, rows: Rows, weight: Array) -> Array:
    """Return the share of each encoded column in the decrease of impurity, summing to one.

    A split of weights a and b with mean answers u and v lowers the impurity (Gini, variance) by
    ab/(a + b)·|u - v|². An oblique node divides it among its columns by |coefficient|·scale.
    """
    answers = answer(tree, leaf, X)
    sums = np.stack([
        np.bincount(leaf, weight * column, minlength=tree.n_leaves) for column in answers.T
    ], axis=1)  # fmt: skip
    total, mass = node_totals(tree, sums), tree.weight
    mean = total / mass[:, None]
    node = np.flatnonzero(~tree.is_leaf)
    left, right = tree.left[node], tree.right[node]
    gap = ((mean[left] - mean[right]) ** 2).sum(axis=1)
    decrease = np.zeros(tree.n_nodes)
    decrease[node] = mass[left] * mass[right] / mass[node] * gap
    strength = abs(tree.coefficients).multiply(rows.scale).tocsr()
    strength = strength / np.maximum(strength.sum(axis=1), 1e-300)[:, None]
    share = np.asarray(decrease @ strength).ravel()
    return np.asarray(share / share.sum() if share.sum() > 0 else share)


class TAOTreeClassifier(ClassifierMixin, _TAOTree):
    """A classification tree trained by alternating optimisation.

    Unlike a greedy tree, every node is optimised again and again for the loss of the whole tree
    (Carreira-Perpiñán & Tavallali 2018). Splits are sparse hyperplanes by default, which makes the
    tree shallow and accurate.

    Parameters
    ----------
    split : {"oblique", "axis"}, default="oblique"
        Sparse hyperplanes, or one feature a node.
    leaf : {"constant", "linear"}, default="constant"
        Class shares, or a linear model per leaf (least squares on the class indicators).
    loss : {"misclassification", "squared", "log"}, default="misclassification"
        What the tree minimises. Linear leaves always use the squared error.
    max_depth : int, optional
        Depth of the tree to start from; branches that turn out useless are pruned. By default it
        follows from the number of rows.
    alpha : float, default=0.1
        Price of complexity in units of one row's loss: of the L1 norm of the hyperplanes (columns
        scaled to their range), or of a node of an axis-aligned tree. Larger is sparser.
    l2 : float, default=0
        Price of half the squared norm of the hyperplanes.
    leaf_ridge : float, default=1
        Ridge penalty of linear leaves.
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

    def __init__(
        self,
        *,
        split: str = "oblique",
        leaf: str = "constant",
        loss: str = "misclassification",
        max_depth: int | None = None,
        alpha: float = 0.1,
        l2: float = 0.0,
        leaf_ridge: float = 1.0,
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
            split=split, leaf=leaf, max_depth=max_depth, alpha=alpha, l2=l2, leaf_ridge=leaf_ridge,
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
            y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y",
            ensure_min_samples=0,
        )  # fmt: skip
        check_lengths(y, weight)
        check_classification_targets(y)
        y2 = y if y.ndim == 2 else y[:, None]
        pairs = [np.unique(column, return_inverse=True) for column in y2.T]
        classes = [labels for labels, _ in pairs]
        self.n_outputs_ = len(classes)
        self.classes_ = classes[0] if y.ndim == 1 or len(classes) == 1 else classes
        self.n_classes_ = len(classes[0]) if len(classes) == 1 else [len(c) for c in classes]
        begin = np.concatenate([[0], np.cumsum([len(c) for c in classes])]).astype(np.int32)
        codes = np.stack([code for _, code in pairs], axis=1) + begin[:-1]
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        if self.leaf == "linear":
            indicators = np.zeros((len(codes), begin[-1]), np.float32)
            indicators[np.arange(len(codes))[:, None], codes] = 1
            return Linear(indicators, self.leaf_ridge), weight
        codes = np.ascontiguousarray(codes, dtype=np.int32)
        return ClassShares(codes, begin, self.loss), weight

    def _greedy_tree(self, max_depth: int) -> Any:
        return DecisionTreeClassifier(max_depth=max(max_depth, 1))

    def _greedy_targets(self, leaves: Leaves) -> Array:
        if isinstance(leaves, ClassShares):
            return leaves.codes
        return np.asarray(leaves.targets.argmax(axis=1))

    @property
    def n_parameters_(self) -> int:
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


class TAOTreeRegressor(RegressorMixin, _TAOTree):
    """A regression tree trained by alternating optimisation.

    Minimises the squared error of the whole tree, for one or several outputs.

    Parameters
    ----------
    split : {"oblique", "axis"}, default="oblique"
        Sparse hyperplanes, or one feature a node.
    leaf : {"constant", "linear"}, default="constant"
        The mean, or ridge regression per leaf, clipped to the range of the leaf's own targets.
    max_depth, alpha, l2, leaf_ridge, max_iter, tol
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

    def __init__(
        self,
        *,
        split: str = "oblique",
        leaf: str = "constant",
        max_depth: int | None = None,
        alpha: float = 0.1,
        l2: float = 0.0,
        leaf_ridge: float = 1.0,
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
            split=split, leaf=leaf, max_depth=max_depth, alpha=alpha, l2=l2, leaf_ridge=leaf_ridge,
            max_iter=max_iter, tol=tol, init=init, monotone=monotone, missing=missing,
            max_categories=max_categories, warm_start=warm_start, n_jobs=n_jobs,
            random_state=random_state, device=device, verbose=verbose,
        )  # fmt: skip

    def _read_targets(self, y: Any, weight: Array) -> tuple[Leaves, Array]:
        y = check_array(
            y, ensure_2d=False, dtype=np.float64, input_name="y", ensure_min_samples=0
        )
        check_lengths(y, weight)
        self._flat = y.ndim == 1
        y = y[:, None] if y.ndim == 1 else y
        self.n_outputs_ = y.shape[1]
        # One unit for all outputs: alpha means the same for a target in metres or millimetres.
        total = weight.sum() if weight.any() else 1.0
        self._centre = weight @ y / total
        spread = np.sqrt(weight @ ((y - self._centre) ** 2) / total)
        self._unit = float(np.sqrt(np.mean(spread**2))) or 1.0
        targets = np.ascontiguousarray((y - self._centre) / self._unit, dtype=np.float32)
        return (
            Linear(targets, self.leaf_ridge) if self.leaf == "linear" else Mean(targets)
        ), weight

    def _greedy_tree(self, max_depth: int) -> Any:
        return DecisionTreeRegressor(max_depth=max(max_depth, 1))

    def _greedy_targets(self, leaves: Leaves) -> Array:
        if isinstance(leaves, ClassShares):
            raise TypeError("a regressor has no classes")
        return leaves.targets

    def _keep(
        self,
        result: Optimised,
        X: Matrix,
        rows: Rows,
        weight: Array,
        columns: Columns,
        resumed: bool,
    ) -> None:
        super()._keep(result, X, rows, weight, columns, resumed)
        self.tree_ = rescale_answers(self.tree_, self._centre, self._unit)

    @property
    def n_parameters_(self) -> int:
        check_is_fitted(self)
        return self.tree_.n_parameters

    def predict(self, X: Any) -> Array:
        """Return the answer of each row's leaf."""
        answers = self._answers(X)
        return answers[:, 0] if self._flat else answers


def check_lengths(y: Array, weight: Array) -> None:
    """Raise unless there is one target per row."""
    if len(y) != len(weight):
        raise ValueError(f"y has {len(y)} entries, X has {len(weight)} rows: they must agree")
