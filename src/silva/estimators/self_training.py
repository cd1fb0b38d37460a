"""Self-training for numbers: a regressor that learns from its own predictions."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone, is_regressor
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    has_fit_parameter,
    validate_data,
)

from silva.estimators.parameters import check_integer, check_number
from silva.estimators.partial_labels import read_numbers
from silva.estimators.tao import TAOTreeRegressor
from silva.tree import Array


class SelfTrainingRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """A regressor trained on its own predictions for the unlabelled rows.

    The estimator is fitted to the labelled rows and predicts the others; it is then fitted to all
    rows, predicts the others again, and so on (Yarowsky 1995). All predicted rows are used, as
    numbers come without a confidence (LapTAO paper, appendix D.2). For classes there is
    scikit-learn's `SelfTrainingClassifier`.

    Parameters
    ----------
    estimator : regressor, default=None
        Any scikit-learn regressor; None is a `TAOTreeRegressor`.
    max_iter : int, default=10
        Rounds of predicting and fitting after the first fit.
    tol : float, default=1e-4
        Stop when no output's predictions have changed by more than this share (root mean square)
        of the standard deviation of its labelled targets.
    random_state : int, RandomState or None
        Seed of the estimator, the same in every round, unless it has one of its own.

    Attributes
    ----------
    estimator_ : regressor
        As fitted in the last round.
    transduction_ : array of shape (rows,) or (rows, outputs)
        The given targets, and the predictions for the unlabelled rows.
    n_iter_ : int
        Rounds done, at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from silva import SelfTrainingRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> partial = np.where(np.arange(len(y)) % 4 == 0, y, np.nan)
    >>> tree = DecisionTreeRegressor(max_depth=2, random_state=0)
    >>> SelfTrainingRegressor(estimator=tree).fit(X, partial).score(X, y) > 0.2
    True
    """

    def __init__(
        self,
        *,
        estimator: Any = None,
        max_iter: int = 10,
        tol: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(TAOTreeRegressor() if self.estimator is None else self.estimator)
        tags.input_tags = inner.input_tags
        tags.target_tags.multi_output = inner.target_tags.multi_output
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the estimator, again and again.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (rows, features)
            Whatever the estimator takes.
        y : array of shape (rows,) or (rows, outputs)
            Missing where a row is unlabelled.
        sample_weight : array of shape (rows,), optional
            Weights of labelled and predicted rows, if the estimator takes weights.

        Returns
        -------
        self
        """
        check_integer("max_iter", self.max_iter, 0)
        check_number("tol", self.tol)
        model = self._base()
        if sparse.issparse(X):
            X = X.tocsr()
        if getattr(getattr(X, "dtype", None), "kind", "") == "c":
            raise ValueError("Complex data not supported: X must hold real numbers")
        validate_data(self, X, skip_check_array=True)
        partial = read_numbers(y, _num_samples(X))
        weight = None
        if sample_weight is not None:
            if not has_fit_parameter(model, "sample_weight"):
                raise TypeError(
                    f"sample_weight was given, but {type(model).__name__}, the estimator, takes "
                    "none: leave it out or use another estimator"
                )
            weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        known, others = np.flatnonzero(partial.labelled), np.flatnonzero(~partial.labelled)
        targets = (partial.targets[:, 0] if partial.flat else partial.targets).copy()
        spread = targets[known].std(axis=0)
        smallest = self.tol * np.where(spread > 0, spread, 1.0)
        self.estimator_ = _fit(clone(model), X, targets, weight, known)
        self.n_iter_ = 1
        targets[others] = self._predict_rows(X, others, targets)
        settled = not len(others)
        for number in range(1, self.max_iter + 1):
            if settled:
                break
            self.estimator_ = _fit(clone(model), X, targets, weight, None)
            self.n_iter_ = number
            guess = self._predict_rows(X, others, targets)
            change = np.sqrt(np.mean((guess - targets[others]) ** 2, axis=0))
            settled = bool((change <= smallest).all())
            targets[others] = guess
        self.transduction_ = targets
        return self

    def _base(self) -> Any:
        """Return the estimator to clone, seeded."""
        model = TAOTreeRegressor() if self.estimator is None else self.estimator
        if isinstance(model, type) or not is_regressor(model):
            name = model.__name__ if isinstance(model, type) else type(model).__name__
            kind = "a class" if isinstance(model, type) else "not a regressor"
            raise TypeError(f"estimator must be an instance of a regressor, but {name} is {kind}")
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        unset = {
            name: seed
            for name, value in model.get_params().items()
            if value is None and name.rpartition("__")[2] == "random_state"
        }
        return clone(model).set_params(**unset)

    def _predict_rows(self, X: Any, rows: Array, like: Array) -> Array:
        if not len(rows):
            return like[rows]
        guess = np.asarray(self.estimator_.predict(_safe_indexing(X, rows)), dtype=np.float64)
        return guess.reshape(len(rows), *like.shape[1:])

    def predict(self, X: Any) -> Array:
        """Return the predictions of the last fitted estimator."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict(X))


def _fit(model: Any, X: Any, targets: Array, weight: Array | None, rows: Array | None) -> Any:
    """Fit a model to some of the rows, or to all of them."""
    if rows is not None and len(rows) < len(targets):
        X, targets = _safe_indexing(X, rows), targets[rows]
        weight = None if weight is None else weight[rows]
    return model.fit(X, targets) if weight is None else model.fit(X, targets, sample_weight=weight)
