"""What kernel trees and forests share: reading rows and labels, units of the columns."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from silva.copies import find_copies
from silva.estimators.columns import Columns, encode, fit_columns
from silva.estimators.parameters import check_choice, check_integer, check_number, count_columns
from silva.estimators.partial_labels import (
    PartialClasses,
    read_classes,
    read_numbers,
    read_totals,
)
from silva.estimators.problem import check_weights, distributions
from silva.estimators.scaling import labelled_forest, relevance
from silva.kernel_growth import KERNELS, METHODS, Growth
from silva.kernel_trees import LeafRule, Task, column_ranges, deviations
from silva.labels import Total
from silva.tree import Array

LEAST_SUPERVISION = 0.5
RELEVANCE_POWER = 2  # of a column's importance: measured, see docs/kernel_trees.md
SCALINGS = ("relevance", "deviation")


@dataclass(frozen=True, eq=False)
class Advice:
    """What a forest on the labelled rows says.

    Attributes
    ----------
    column_weight : float64 array of shape (columns,) or None
        What the variance of each column is to count; None for all alike.
    answers : float64 array of shape (rows, outputs) or None
        The labels where they are known, the forest's answers elsewhere; None where not asked for.
    """

    column_weight: Array | None
    answers: Array | None


class KernelModel(BaseEstimator):
    """Base of the kernel trees and forests."""

    _is_classes: bool
    columns_: Columns

    def __init__(
        self,
        *,
        leaf_values: str,
        bandwidth: Any,
        ccp_alpha: Any,
        supervision: float | str,
        scaling: str,
        kernel: str,
        method: str,
        labelled_weight: float | str,
        prior_weight: float,
        max_depth: int | None,
        min_weight_leaf: float,
        max_leaf_nodes: int | None,
        max_features: Any,
        missing: str,
        max_categories: int,
        n_jobs: int | None,
        random_state: Any,
    ) -> None:
        self.leaf_values = leaf_values
        self.bandwidth = bandwidth
        self.ccp_alpha = ccp_alpha
        self.supervision = supervision
        self.scaling = scaling
        self.kernel = kernel
        self.method = method
        self.labelled_weight = labelled_weight
        self.prior_weight = prior_weight
        self.max_depth = max_depth
        self.min_weight_leaf = min_weight_leaf
        self.max_leaf_nodes = max_leaf_nodes
        self.max_features = max_features
        self.missing = missing
        self.max_categories = max_categories
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "fill"
        return tags

    @property
    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))

    # ---- parameters -----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if self.supervision != "auto" and check_number("supervision", self.supervision) > 1:
            raise ValueError(
                f"supervision must be between 0 and 1, or 'auto', got {self.supervision!r}"
            )
        if self.labelled_weight != "auto":
            _check_positive("labelled_weight", self.labelled_weight)
        check_number("prior_weight", self.prior_weight)
        check_choice("scaling", self.scaling, SCALINGS)
        check_choice("kernel", self.kernel, KERNELS)
        check_choice("method", self.method, METHODS)
        check_number("min_weight_leaf", self.min_weight_leaf)
        for name, least in (("max_depth", 0), ("max_leaf_nodes", 1), ("n_jobs", -(2**31))):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least)
        check_integer("max_categories", self.max_categories, 2)

    def _growth(self, task: Task, column_weight: Array | None, n_columns: int) -> Growth:
        """Return how trees grow, crisp and to the full; callers set bandwidth and ccp_alpha."""
        supervision = self.supervision
        if supervision == "auto":
            share = task.weight[task.labelled].sum() / task.weight.sum()
            supervision = max(float(share), LEAST_SUPERVISION)
        return Growth(
            supervision=float(supervision),
            max_depth=self.max_depth,
            min_weight_leaf=float(self.min_weight_leaf),
            max_leaf_nodes=self.max_leaf_nodes,
            max_features=count_columns(self.max_features, n_columns),
            kernel=self.kernel,  # type: ignore[arg-type]  # checked above
            method=self.method,  # type: ignore[arg-type]
            column_weight=column_weight,
        )

    def _leaf_rule(self) -> LeafRule:
        given = self.labelled_weight
        return LeafRule(
            self.leaf_values == "robust",
            None if given == "auto" else float(given),
            float(self.prior_weight),
        )

    # ---- reading rows and labels ----------------------------------------------------------------

    @abstractmethod
    def _read_targets(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        """Check y; return targets or class indicators, and the mask of the labelled rows."""

    @abstractmethod
    def _read_totals(self, totals: Any, weight: Array) -> Array | None:
        """Return the known sums of the answers over the unlabelled rows."""

    def _pose(self, X: Any, y: Any, sample_weight: Any, totals: Any) -> tuple[Task, Array, Array]:
        """Read everything; return the task, its rows among the user's, and all rows clipped."""
        X, self.columns_ = fit_columns(
            self, X, missing=self.missing, max_categories=self.max_categories
        )
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        targets, labelled = self._read_targets(y, X.shape[0])
        check_weights(weight)
        amount = self._read_totals(totals, weight)
        kept = np.flatnonzero(weight > 0)
        if not labelled[kept].any():
            raise ValueError("sample_weight must be positive for some labelled row, got zeros")
        rows = _dense(X)
        self._ranges = column_ranges(rows[kept], weight[kept])
        rows = self._clip(rows)
        used, weight, labelled = rows[kept], weight[kept], labelled[kept]
        total = None if amount is None else Total(weight * ~labelled, amount)
        self._deviation = deviations(used, weight)
        task = Task(
            used, targets[kept], labelled, weight, self._is_classes, self._deviation, total,
            self._n_threads,
        )  # fmt: skip
        return task, kept, rows

    def _advice(self, task: Task, seed: int, answers: bool) -> Advice:
        """Ask a forest on the labelled rows; copies of a row are one row."""
        weighs = self.scaling == "relevance" and bool(self._deviation.any())
        if not (weighs or answers):
            return Advice(None, None)
        known = np.flatnonzero(task.labelled)
        copies = find_copies(np.column_stack([task.X[known], task.targets[known]]))
        mass = np.bincount(copies.group, task.weight[known])
        first = known[copies.first]
        forest = labelled_forest(
            task.X[first], task.targets[first], mass, self._is_classes, seed, self.n_jobs
        )
        weight = relevance(forest, len(first)) ** RELEVANCE_POWER if weighs else None
        if not answers:
            return Advice(weight, None)
        forest.n_jobs = None  # threads would add its trees up in any order
        said = self._forest_answers(forest, task.X)
        said[known] = task.targets[known]
        return Advice(weight, said)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _clip(self, X: Array) -> Array:
        return np.clip(X, self._ranges[0], self._ranges[1])

    # ---- what was learnt ------------------------------------------------------------------------

    @abstractmethod
    def _tell(self, answers: Array) -> Array:
        """Return what the user is told for answers."""

    @abstractmethod
    def _forest_answers(self, forest: Any, X: Array) -> Array:
        """Return the answers of a scikit-learn forest in the terms of the targets."""

    @abstractmethod
    def _answers(self, rows: Array) -> Array:
        """Return the answers to rows as the trees see them."""

    def _keep_importances(self, gains: Array) -> None:
        """Keep the share of each input column in what the encoded ones gained."""
        share = np.bincount(self.columns_.source, gains, minlength=self.n_features_in_)
        self.feature_importances_ = share / share.sum() if share.sum() > 0 else share

    def _keep_labels(self, rows: Array, task: Task, kept: Array) -> Array:
        """Keep the labels of the training rows, given or filled in; return their answers."""
        answers = self._answers(rows)
        answers[kept[task.labelled]] = task.targets[task.labelled]
        self.transduction_ = self._tell(answers)
        return answers

    def _encode(self, X: Any) -> Array:
        """Return rows as the trees see them."""
        check_is_fitted(self)
        return self._clip(_dense(encode(self, X, self.columns_)))

    def predict(self, X: Any) -> Array:
        """Return the most probable class, or the expected target."""
        return self._tell(self._answers(self._encode(X)))


class KernelClassifier(ClassifierMixin, KernelModel):
    """What kernel trees and forests of classes share."""

    _is_classes = True
    classes_: Array
    _partial: PartialClasses

    def _read_targets(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        self._partial = read_classes(y, n_rows)
        self.classes_ = self._partial.classes
        return self._partial.indicators(), self._partial.labelled

    def _read_totals(self, totals: Any, weight: Array) -> Array | None:
        partial = self._partial
        del self._partial
        return None if totals is None else read_totals(totals, partial, weight)

    def _tell(self, answers: Array) -> Array:
        return np.asarray(self.classes_[answers.argmax(axis=1)])

    def _forest_answers(self, forest: Any, X: Array) -> Array:
        shares = np.zeros((len(X), len(self.classes_)))
        shares[:, forest.classes_] = forest.predict_proba(X)
        return shares

    def _keep_labels(self, rows: Array, task: Task, kept: Array) -> Array:
        answers = super()._keep_labels(rows, task, kept)
        self.label_distributions_ = distributions(answers)
        return answers

    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities: the values of the leaves blended by membership."""
        return distributions(self._answers(self._encode(X)))

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))


class KernelRegressor(RegressorMixin, KernelModel):
    """What kernel trees and forests of numbers share."""

    _is_classes = False
    _flat: bool

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _read_targets(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        partial = read_numbers(y, n_rows)
        self._flat = partial.flat
        return partial.targets, partial.labelled

    def _read_totals(self, totals: Any, weight: Array) -> Array | None:
        return None

    def _forest_answers(self, forest: Any, X: Array) -> Array:
        return np.asarray(forest.predict(X).reshape(len(X), -1))

    def _tell(self, answers: Array) -> Array:
        return answers[:, 0].copy() if self._flat else answers.copy()


def target_spread(task: Task, power: int) -> Array:
    """Return the mean absolute (1) or standard (2) deviation of each output; 1 where it is 0."""
    known, mass = task.targets[task.labelled], task.weight[task.labelled]
    gap = abs(known - np.average(known, axis=0, weights=mass))
    spread = np.average(gap**power, axis=0, weights=mass) ** (1 / power)
    varies = (np.ptp(known, axis=0) > 0) & (spread > 0)  # a mean of equals may be off by rounding
    return np.where(varies, spread, 1.0)


def _check_positive(name: str, value: Any) -> float:
    number = check_number(name, value)
    if number == 0:
        raise ValueError(f"{name} must be positive, got 0")
    return number


def _dense(X: Any) -> Array:
    return np.ascontiguousarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
