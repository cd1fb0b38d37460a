"""What the flagship estimators share: from the user's rows and few labels to smoothed labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from silva.copies import row_groups
from silva.estimators.blas_threads import on_one_blas_thread
from silva.estimators.columns import Columns, encode, fit_columns, recode
from silva.estimators.fidelity import Targets
from silva.estimators.invented import Invented, mixed_rows, with_invented
from silva.estimators.parameters import check_integer, check_number, check_running
from silva.estimators.problem import check_weights
from silva.estimators.spreading import DistinctRows, distinct_rows, graph_of_rows
from silva.estimators.teachers import check_teacher, make_teacher
from silva.estimators.trust import (
    NO_TEACHER,
    TRUSTS,
    Smoothed,
    Trust,
)
from silva.kernels import Matrix, select
from silva.labels import Total
from silva.laptao import Evidence
from silva.tree import Array

NEIGHBOURS = 20
DEEPEST = 10  # one tree that can be read
LEAF_ROWS = 8  # the depth leaves so many rows in a leaf
MOST_ROWS = 20_000  # beyond, no row is invented
ALPHA, ALPHA_ROWS = 0.1, 2000  # it grows with the rows beyond, as the loss does


class SilvaModel(BaseEstimator):
    """Base of the flagship trees and forests.

    The steps of `fit`, the same for classes and numbers, trees and forests: copies of rows become
    one row; a teacher learns from the labelled rows; a graph joins rows that are alike in what the
    labels depend on; labels are smoothed over it with the teacher (`silva.estimators.trust`); a
    model is fitted to the smoothed labels of all rows.
    """

    _is_classes: bool
    columns_: Columns

    def __init__(
        self,
        *,
        max_depth: int | str = "auto",
        alpha: float | str = "auto",
        gamma: float | str = "auto",
        teacher: Any = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.max_depth = max_depth
        self.alpha = alpha
        self.gamma = gamma
        self.teacher = teacher
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))

    # ---- what classes and numbers, trees and forests do differently -----------------------------

    @abstractmethod
    def _read_labels(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        """Return label rows of shape (rows, outputs), zero where unlabelled, and the mask."""

    @abstractmethod
    def _teach(self, model: Any, X: Matrix, evidence: Evidence, folds: Sequence[Array]) -> Any:
        """Fit a teacher to the labelled rows; a mixture holds out these folds in turn."""

    @abstractmethod
    def _teacher_answers(self, model: Any, X: Matrix) -> Array:
        """Return what a teacher says of rows, a column per output."""

    @abstractmethod
    def _smooth(self, rows: DistinctRows, seed: int) -> Smoothed:
        """Teach, build the graph, and smooth the labels with as much trust as they bear out."""

    @abstractmethod
    def _finish_labels(self, smoothed: Smoothed, evidence: Evidence) -> Array:
        """Return the smoothed labels as a model shall learn them."""

    @abstractmethod
    def _fit_model(self, rows: DistinctRows, Z: Array, smoothed: Smoothed, seed: int) -> None:
        """Fit the tree or the forest to smoothed labels."""

    @abstractmethod
    def _keep_labels(self, Z: Array, labelled: Array, weight: Array) -> None:
        """Keep what the training rows were found to be."""

    @abstractmethod
    def _encoded_answers(self, X: Matrix) -> Array:
        """Return the fitted model's answers for encoded rows, a column per output."""

    @abstractmethod
    def _write_report(self, smoothed: Smoothed, evidence: Evidence) -> str:
        """Return in words what happened."""

    @abstractmethod
    def _correction(self, smoothed: Smoothed, Z: Array, X: Matrix) -> Array | None:
        """Return what the graph made of the teacher's answers; None where it had no say."""

    def _read_totals(self, totals: Any, weight: Array) -> Array | None:
        """Return known totals of the outputs over the unlabelled rows."""
        return None

    # ---- fitting --------------------------------------------------------------------------------

    @on_one_blas_thread
    def _fit(self, X: Any, y: Any, sample_weight: Any, totals: Any) -> Self:
        self._check_parameters()
        X, columns = fit_columns(self, X)
        self.columns_ = columns
        n_rows = X.shape[0]
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        labels, labelled = self._read_labels(y, n_rows)
        check_weights(weight)
        if not weight[labelled].any():
            raise ValueError("sample_weight must be positive at some labelled row, got all zeros")
        amount = self._read_totals(totals, weight)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        rows = _in_order(distinct_rows(X, labels, labelled, weight, amount=amount))
        n_labelled = np.count_nonzero(rows.evidence.labelled)
        self._tell(f"teaching from {n_labelled} of {rows.X.shape[0]} rows")
        smoothed = self._smooth(rows, seed)
        Z = self._finish_labels(smoothed, rows.evidence)
        shown = rows.spread(Z, n_rows)
        self._tell(f"fitting the model to {len(Z)} rows")
        self._fit_model(rows, Z, smoothed, seed)
        self.report_ = self._write_report(smoothed, rows.evidence)
        if not weight.all():  # rows without weight take no part
            left_out = recode(X[weight == 0], columns, self.columns_)
            shown[weight == 0] = self._encoded_answers(left_out)
        self._keep_labels(shown, labelled, weight)
        self._tell(self.report_)
        return self

    def _check_parameters(self) -> None:
        if self.max_depth != "auto":
            check_integer("max_depth", self.max_depth, 0)
        for name in ("alpha", "gamma"):
            if getattr(self, name) != "auto":
                check_number(name, getattr(self, name))
        check_teacher(self.teacher, self._is_classes)
        if self.teacher is None and self.gamma != "auto" and float(self.gamma) == 0:
            raise ValueError("gamma must be positive where teacher=None, got 0: nothing is learned")
        select(self.device)
        check_running(self.n_jobs, self.verbose, None)

    def _tell(self, words: str) -> None:
        if self.verbose:
            print(f"[Silva] {words}", flush=True)

    def _taught(self, X: Matrix, evidence: Evidence, seed: int, folds: Sequence[Array] = ()) -> Any:
        means = evidence.means[evidence.labelled > 0]
        if self.teacher is None or (means == means[:1]).all():  # nothing to learn
            return None
        model = make_teacher(self.teacher, self._is_classes, X, seed, self.n_jobs)
        return self._teach(model, X, evidence, folds)

    def _answers_of(self, teacher: Any, X: Matrix, evidence: Evidence) -> Array:
        if teacher is None:  # nothing is known but the mean label
            mean = evidence.sums.sum(axis=0) / evidence.labelled.sum()
            return np.tile(mean, (X.shape[0], 1))
        return self._teacher_answers(teacher, X)

    def _trusts(self) -> tuple[Trust, ...]:
        weight = 0.01 if self.teacher is None else 1.0
        if self.gamma != "auto":
            return (Trust(float(self.gamma), weight),)
        return NO_TEACHER if self.teacher is None else TRUSTS

    def _graph(self, rows: DistinctRows, seed: int) -> sparse.csr_array:
        """Return the graph of the distinct rows, its mean degree one."""
        n_rows = rows.X.shape[0]
        if self._trusts() == (Trust(0.0, 1.0),):
            return sparse.csr_array((n_rows, n_rows))
        W = graph_of_rows(
            rows, affinity=None, n_rows=n_rows, n_neighbors=min(NEIGHBOURS, n_rows - 1),
            perplexity="auto", mutual=True, scaling="relevance", is_classes=self._is_classes,
            memory=None, seed=seed, n_jobs=self.n_jobs, verbose=0,
        )  # fmt: skip
        return W * (n_rows / max(W.sum(), 1e-300))

    # ---- trees ----------------------------------------------------------------------------------

    def _targets(self, rows: DistinctRows, Z: Array) -> Targets:
        return Targets(rows.X, Z, rows.weight, select(self.device), self._n_threads)

    def _depth(self, n_rows: int) -> int:
        """Return the largest depth: what was asked for, or what the number of rows allows."""
        if self.max_depth != "auto":
            return int(self.max_depth)
        return int(np.clip(np.ceil(np.log2(n_rows / LEAF_ROWS)), 1, DEEPEST))

    def _alpha(self, n_rows: int) -> float:
        """Return the price of coefficients: what was asked for, or what suits so many rows."""
        if self.alpha != "auto":
            return float(self.alpha)
        return ALPHA * max(n_rows / ALPHA_ROWS, 1.0)

    def _widening(
        self, targets: Targets, smoothed: Smoothed, seed: int
    ) -> Callable[[Array], Targets]:
        """Return what adds invented rows to some of the rows, up to a number.

        The tree shall learn what the teacher says of rows between those that there are, too.
        Where the graph has a say, such a row is corrected as the one that it starts from.
        """
        n_rows = targets.X.shape[0]
        number = 0 if self.teacher_ is None else max(min(n_rows, MOST_ROWS - n_rows), 0)
        X, row, other = mixed_rows(targets.X, smoothed.W, self.columns_.source, number, seed)
        Z = targets.Z[row]
        if len(row):
            correction = self._correction(smoothed, targets.Z[row], targets.X[row])
            Z = self._teacher_answers(self.teacher_, X) + (0 if correction is None else correction)
            Z = np.clip(Z, targets.Z.min(axis=0), targets.Z.max(axis=0))
        invented = Invented(X, Z, row, other)
        return lambda part: with_invented(targets, part, invented)

    @staticmethod
    @abstractmethod
    def _infidelity(answers: Array, targets: Array, weight: Array) -> float:
        """Return the mean loss of answers against smoothed labels."""

    # ---- predicting -----------------------------------------------------------------------------

    def _answers(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._encoded_answers(encode(self, X, self.columns_))


def _in_order(rows: DistinctRows) -> DistinctRows:
    """Return the rows in an order that depends on them alone, not on how they came.

    So folds, forests and hence the fitted model are the same for rows in any order.
    """
    order = np.argsort(row_groups(rows.X, 0), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    known = rows.evidence
    total = None if known.total is None else Total(known.total.weight[order], known.total.amount)
    evidence = Evidence(
        known.labelled[order], known.unlabelled[order], known.sums[order], total
    )  # fmt: skip
    return replace(
        rows, X=rows.X[order], first=rows.first[order], member=place[rows.member], evidence=evidence
    )
