"""Predictive clustering trees as estimators: greedy trees that also look at unlabelled rows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from silva.copies import row_groups
from silva.estimators.columns import encode, fit_columns
from silva.estimators.kernel_base import target_spread
from silva.estimators.parameters import check_integer, check_number, count_columns
from silva.estimators.partial_labels import read_classes, read_numbers
from silva.estimators.problem import check_weights, leaf_numbers
from silva.estimators.selection import CELLS, ROWS, folds
from silva.kernel_growth import Growth
from silva.kernel_trees import Task
from silva.kernels import Matrix, cpu
from silva.losses import squared_error
from silva.predictive_clustering import grow, grow_each
from silva.tree import Array

CANDIDATES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)  # the first wins a tie
UNDECIDED, FEW_LABELS = 0.5, 10  # taken where there are too few labels to choose by
SPARSE_CELLS = 2**26  # rows x columns of a sparse matrix that are made dense: some 2 GB


class PredictiveClusteringTree(BaseEstimator):
    """Base of `PredictiveClusteringTreeClassifier` and `PredictiveClusteringTreeRegressor`."""

    _together: bool

    def __init__(
        self,
        *,
        supervision: float | str = "auto",
        max_depth: int | None = None,
        min_samples_leaf: int = 1,
        min_labelled_leaf: int = 1,
        max_features: int | float | str | None = None,
        max_bins: int = 255,
        max_categories: int = 30,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.supervision = supervision
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.min_labelled_leaf = min_labelled_leaf
        self.max_features = max_features
        self.max_bins = max_bins
        self.max_categories = max_categories
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @abstractmethod
    def _read_targets(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        """Check y; return targets or class indicators, and the mask of the labelled rows."""

    @abstractmethod
    def _loss(self, task: Task, targets: Array, answers: Array) -> Array:
        """Return the loss of each row in the choice of `supervision`."""

    # ---- fitting --------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow the tree.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
            Without missing values.
        y : array of shape (rows,), or (rows, outputs) for numbers
            Missing where a row is unlabelled; for classes -1 means the same.
        sample_weight : array of shape (rows,), optional
            Non-negative weights.

        Returns
        -------
        self
        """
        growth = self._growth()
        X, self.columns_ = fit_columns(self, X, missing="error", max_categories=self.max_categories)
        X = _dense(X)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        targets, labelled = self._read_targets(y, X.shape[0])
        check_weights(weight)
        used = np.flatnonzero(weight > 0)
        if not labelled[used].any():
            raise ValueError("sample_weight must be positive for some labelled row, got zeros")
        task = Task(
            X, targets, labelled, weight, self._together, np.zeros(X.shape[1]), None,
            int(effective_n_jobs(self.n_jobs)),
        )  # fmt: skip
        if len(used) < len(weight):
            task = task.on(used)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        growth = replace(growth, max_features=count_columns(self.max_features, X.shape[1]))
        chosen: tuple[float, dict[float, float]] = (growth.supervision, {})
        if self.supervision == "auto":
            chosen = self._choose(task, growth, seed)
        self.supervision_, self.held_out_losses_ = chosen
        self.tree_ = grow(task, replace(growth, supervision=self.supervision_), seed)
        self.transduction_ = self._labels(self.tree_.values[self._leaf_numbers(X)])
        self.transduction_[labelled] = self._labels(targets[labelled])
        return self

    def _growth(self) -> Growth:
        """Check the parameters."""
        supervision = UNDECIDED
        if self.supervision != "auto":
            supervision = check_number("supervision", self.supervision)
            if supervision > 1:
                raise ValueError(
                    f"supervision must be between 0 and 1, or 'auto', got {supervision!r}"
                )
        if self.max_depth is not None:
            check_integer("max_depth", self.max_depth, 0)
        if self.n_jobs is not None:
            check_integer("n_jobs", self.n_jobs, -(2**31))
        check_integer("max_categories", self.max_categories, 2)
        return Growth(
            supervision=supervision,
            max_depth=self.max_depth,
            min_weight_leaf=0.0,
            min_rows_leaf=check_integer("min_samples_leaf", self.min_samples_leaf, 1),
            min_labelled_leaf=check_integer("min_labelled_leaf", self.min_labelled_leaf, 0),
            stop_pure=True,
            max_bins=check_integer("max_bins", self.max_bins, 2),
        )

    def _choose(self, task: Task, growth: Growth, seed: int) -> tuple[float, dict[float, float]]:
        """Choose the weight of the labels on held-out labelled rows.

        All unlabelled rows help to grow the trees, or as many as `silva.estimators.selection`
        would look at.
        """
        columns = task.X.shape[1]
        known = np.flatnonzero(task.labelled)
        groups = row_groups(task.X, seed)
        if len(np.unique(groups[known])) < FEW_LABELS:
            return UNDECIDED, {}
        others = np.flatnonzero(~task.labelled)
        room = max(min(ROWS, CELLS // columns) - len(known), 0)
        if len(others) > room:
            others = others[groups[others] <= np.sort(groups[others])[room]]
        strata = task.targets[known].argmax(axis=1) if self._together else np.zeros_like(known)
        losses: dict[float, list[float]] = {w: [] for w in CANDIDATES}
        for train, held_out in folds(groups[known], columns, strata):
            part = task.on(np.concatenate([known[train], others]))
            test = known[held_out]
            trees = grow_each(part, growth, CANDIDATES, seed)
            for w, tree in zip(CANDIDATES, trees, strict=True):
                answers = tree.values[leaf_numbers(cpu, tree, task.X[test], task.n_threads)]
                loss = self._loss(task, task.targets[test], answers)
                losses[w].append(float(np.average(loss, weights=task.weight[test])))
        mean = {w: float(np.mean(loss)) for w, loss in losses.items()}
        lowest = min(mean.values())
        return next(w for w in CANDIDATES if mean[w] <= lowest * (1 + 1e-9)), mean

    # ---- reading the fitted tree ----------------------------------------------------------------

    @abstractmethod
    def _labels(self, answers: Array) -> Array:
        """Return what the user is told for answers of the leaves."""

    def _encode(self, X: Any) -> Matrix:
        check_is_fitted(self)
        return encode(self, X, self.columns_)

    def _leaf_numbers(self, X: Matrix) -> Array:
        return leaf_numbers(cpu, self.tree_, X, int(effective_n_jobs(self.n_jobs)))

    def predict(self, X: Any) -> Array:
        """Return the answer of each row's leaf: the most frequent class, or the mean target."""
        leaf = self._leaf_numbers(self._encode(X))
        return np.asarray(self._labels(self.tree_.values)[leaf])

    def apply(self, X: Any) -> Array:
        """Return the node number of the leaf that each row reaches."""
        leaf = self._leaf_numbers(self._encode(X))
        return np.asarray(self.tree_.leaf_nodes[leaf])

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


class PredictiveClusteringTreeClassifier(ClassifierMixin, PredictiveClusteringTree):
    """A semi-supervised classification tree that groups rows alike in label and in features.

    A greedy tree with one feature at a node, as CART, but a split is judged by how much purer its
    sides are in the classes of the labelled rows *and* in all features of all rows (Levatić, Ceci,
    Kocev & Džeroski 2017; SSCT in the LapTAO paper). With few labels the second part keeps the
    tree from following them blindly.

    Parameters
    ----------
    supervision : float or "auto", default="auto"
        The paper's w: the share of the labels in what a split is judged by. 1 is a greedy tree of
        the labelled rows alone, 0 a clustering that does not look at the labels' values. "auto"
        chooses among 0, 0.1, ..., 1 by cross-validation on the labelled rows (0.5 where there are
        fewer than 10 different ones); on large data part of the rows is used for it.
    max_depth : int, optional
        Most decisions on a way down.
    min_samples_leaf : int, default=1
        Fewest rows in a leaf, labelled or not; labelled ones where `supervision` is 1.
    min_labelled_leaf : int, default=1
        Fewest labelled rows in a leaf. A leaf without any answers what its parent would.
    max_features : int, float, "sqrt", "log2" or None
        Features tried at each node: a number, a share or a rule; None for all. All features count
        in the judgement.
    max_bins : int, default=255
        Where a feature has more values, they are put in so many bins and thresholds are tried
        between them; from 2 to 255.
    max_categories : int, default=30
        Most indicator columns a category of a frame is spread over; rare levels are grouped.
    n_jobs : int, optional
        Threads. The tree is the same for any number.
    random_state : int, RandomState or None
        Seed of the folds and of the features drawn.

    Attributes
    ----------
    tree_ : Tree
        The fitted tree, in the user's units.
    classes_ : array
    transduction_ : array of shape (rows,)
        The given classes, and the tree's answers for the unlabelled rows.
    supervision_ : float
        The weight in use.
    held_out_losses_ : dict of float to float
        Loss of each weight that "auto" tried: the error rate, plus a tenth of the squared error of
        the class shares.
    columns_ : Columns
        How the input columns were encoded.

    Notes
    -----
    The tree is the crisp `KernelTreeClassifier` with all columns alike, another answer at its
    leaves, and limits on their numbers of rows. It grows from dense rows: a sparse matrix of more
    than 2²⁶ entries, zeros counted, is refused. Answers to sparse rows stay sparse.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from silva import PredictiveClusteringTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> partial = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> PredictiveClusteringTreeClassifier(supervision=0.5).fit(X, partial).score(X, y) > 0.9
    True
    """

    _together = True

    def _read_targets(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        partial = read_classes(y, n_rows)
        self.classes_ = partial.classes
        indicators = np.zeros((n_rows, len(partial.classes)))
        indicators[partial.labelled, partial.codes[partial.labelled]] = 1.0
        return indicators, partial.labelled

    def _loss(self, task: Task, targets: Array, answers: Array) -> Array:
        wrong = targets.argmax(axis=1) != answers.argmax(axis=1)
        return np.asarray(wrong + 0.1 * squared_error(targets, answers))

    def _labels(self, answers: Array) -> Array:
        return np.asarray(self.classes_[answers.argmax(axis=1)])

    def predict_proba(self, X: Any) -> Array:
        """Return the class shares among the labelled rows of each row's leaf."""
        leaf = self._leaf_numbers(self._encode(X))
        return np.asarray(self.tree_.values[leaf])

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))


class PredictiveClusteringTreeRegressor(RegressorMixin, PredictiveClusteringTree):
    """A semi-supervised regression tree that groups rows alike in targets and in features.

    As `PredictiveClusteringTreeClassifier`, with the variance of the targets in place of Gini's
    impurity; several outputs count the same, each in units of its own variance.

    Parameters
    ----------
    supervision, max_depth, min_samples_leaf, min_labelled_leaf, max_features, max_bins
        As in `PredictiveClusteringTreeClassifier`.
    max_categories, n_jobs, random_state
        As in `PredictiveClusteringTreeClassifier`.

    Attributes
    ----------
    tree_, transduction_, supervision_, columns_
        As in `PredictiveClusteringTreeClassifier`.
    held_out_losses_ : dict of float to float
        Squared error of each weight that "auto" tried, in units of the targets' variance.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from silva import PredictiveClusteringTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> partial = np.where(np.arange(len(y)) % 4 == 0, y, np.nan)
    >>> model = PredictiveClusteringTreeRegressor(max_depth=3, random_state=0).fit(X, partial)
    >>> model.score(X, y) > 0.2
    True
    """

    _together = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _read_targets(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        partial = read_numbers(y, n_rows)
        self._flat = partial.flat
        return partial.targets, partial.labelled

    def _loss(self, task: Task, targets: Array, answers: Array) -> Array:
        unit = target_spread(task, 2)
        return np.asarray(squared_error(targets / unit, answers / unit))

    def _labels(self, answers: Array) -> Array:
        return answers[:, 0].copy() if self._flat else answers.copy()


def _dense(X: Matrix) -> Array:
    """Return the rows as trees grow from them."""
    if not sparse.issparse(X):
        return np.asarray(X)
    rows, columns = X.shape
    if rows * columns > SPARSE_CELLS:
        raise ValueError(
            f"X is sparse, with {rows} rows and {columns} columns: a predictive clustering tree "
            f"grows from dense rows, and at most {SPARSE_CELLS} entries are made so. Select "
            "columns, or draw rows"
        )
    return np.asarray(X.toarray())
