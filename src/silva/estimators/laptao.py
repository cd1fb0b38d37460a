"""Semi-supervised trees: LapTAO for classes and for numbers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from silva.estimators.laptao_base import LapTAO
from silva.estimators.partial_labels import (
    read_classes,
    read_numbers,
    read_totals,
    worth_meeting,
)
from silva.estimators.problem import distributions
from silva.mac import Callback
from silva.tree import Array

LEAST_SHARE = 1e-6  # of a class in an answer: no class is ruled out


class LapTAOClassifier(ClassifierMixin, LapTAO):
    """A tree trained on all rows when the classes of only a few are known.

    Labels spread over a graph of neighbours while a tree is fitted to them, each correcting the
    other (Zharmagambetov and Carreira-Perpiñán, 2022). The result is one tree, small enough to
    read, that knows the shape of the unlabelled data.

    Parameters
    ----------
    estimator : regressor, default=None
        What is fitted to the smoothed labels, classes as indicators; None is
        ``TAOTreeRegressor()``. A `TAOTreeRegressor` goes on from its last tree at every step, and
        so does a regressor that has ``warm_start=True``; others are fitted anew.
    gamma : float or "auto", default="auto"
        Trust in the graph against the labels; "auto" is 1, and 0.1 for numbers.
    damping : float or "auto", default="auto"
        How fast labels fade on their way, see Notes; "auto" is 0.03, and 0.003 for numbers, 0 is
        the paper's choice.
    affinity : sparse matrix of shape (rows, rows), default=None
        A graph of the training rows, symmetric and not negative, or of more rows (see
        `affinity_rows` of `fit`); None builds one.
    n_neighbors : int or "auto", default="auto"
        Neighbours of a row; "auto" is the square root of the number of distinct rows, at most 30.
    perplexity : float or "auto", default="auto"
        As in `affinity_graph`: a third of the neighbours.
    mutual : bool, default=True
        Keep an edge only between rows that are neighbours of each other, which does away with
        hubs; the paper keeps all.
    scaling : {"relevance", "deviation", "range", "none"}, default="relevance"
        Units of the columns when neighbours are sought. "relevance" weighs standardised columns by
        their importance in a forest grown on the labelled rows; "range" is the paper's.
    n_outer : int, default=20
        Rounds of smoothing and fitting; 0 smooths, fits and is done.
    mu, mu_factor : float, default=0.001, 1.5
        First weight of the agreement between labels and tree, and its growth per round.
    n_inner : int, default=1
        Rounds at each weight.
    tao_iter : int, default=2
        Passes over the tree per round, after a first full fit.
    alpha_over_mu : bool, default=False
        Divide the tree's `alpha` by mu as in the paper, instead of keeping it.
    multiplier_step : float, default=1.0
        Step of the Lagrange multipliers, in units of mu.
    refit_leaves : bool, default=True
        Solve for the answers of the leaves exactly in the end, where they are constant.
    solver : {"auto", "direct", "cg", "eigen"}, default="auto"
        How the smoothing system is solved.
    tol : float, default=1e-3
        The rounds end when labels and tree agree and have stopped moving to this precision.
    missing : {"fill", "error"}, default="fill"
        Fill missing values as `TAOTreeClassifier` does, or refuse them.
    max_categories : int, default=30
        As in `TAOTreeClassifier`.
    memory : str, joblib.Memory or None, default=None
        Where to keep graphs, so that a search over hyper-parameters builds each but once.
    n_jobs : int, optional
        Threads. The result is the same for any number.
    random_state : int, RandomState or None
    verbose : int, default=0
        Positive: a line of progress per round.

    Attributes
    ----------
    classes_ : array
    tree_ : Tree
        The fitted tree, where the estimator is one.
    estimator_ : regressor
        The fitted estimator, where it is not a tree.
    transduction_ : array of shape (rows,)
        Class of each training row: as given where it was, else as smoothed.
    label_distributions_ : array of shape (rows, classes)
        The smoothed labels of the training rows.
    class_totals_ : dict or None
        Where totals were given: class to (asked, smoothed, transduced) totals over the unlabelled
        rows, the last a count.
    history_ : list of silva.mac.Step
        Energy, its terms, agreement and seconds of every round.
    affinity_ : CSR array
        The graph of the distinct training rows, in order of appearance.
    settings_ : Settings
        What the tree's "auto" settings came to.
    columns_ : Columns
        How the input columns were encoded.

    Notes
    -----
    Unlabelled rows are marked by -1 or by a missing value (None, NaN, NA).

    With ``damping=0, gamma=0.1, scaling="range", mutual=False, alpha_over_mu=True`` this is the
    algorithm of the paper. With few labels its smoothed labels are nearly flat; damped ones,
    normalised, are not, and on tables the columns that matter must be told from the others first.
    `docs/laptao.md` says what each of the two brings.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from silva import LapTAOClassifier
    >>> X, digits = load_digits(return_X_y=True)
    >>> y = digits.copy()
    >>> y[50:] = -1
    >>> model = LapTAOClassifier(random_state=0).fit(X, y)
    >>> model.score(X[50:], digits[50:]) > 0.8
    True
    """

    _is_classes = True
    _gamma, _damping = 1.0, 0.03

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        class_totals: Any = None,
        affinity_rows: Any = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
        y : array of shape (rows,)
            Classes of any type; -1 or missing where unknown.
        sample_weight : array of shape (rows,), optional
            Non-negative weights; a weight of 2 counts as two rows.
        class_totals : mapping, optional
            Class to its number, or share, among the unlabelled rows. The smoothed labels meet
            these totals exactly.
        affinity_rows : int array of shape (rows,), optional
            Which row of `affinity` each row is, where that has more. Cross-validation passes the
            part of ``np.arange(len(X))`` that belongs to a fold: one graph serves all folds.
        callback : callable, optional
            Called after each round with a `silva.mac.Step`; a true answer stops.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, class_totals, affinity_rows, callback)

    def _read_labels(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        self._partial = read_classes(y, n_rows)
        self.classes_ = self._partial.classes
        return self._partial.indicators(), self._partial.labelled

    def _read_totals(self, totals: Any, weight: Array) -> Array | None:
        self._amount = None if totals is None else read_totals(totals, self._partial, weight)
        self._weight = weight
        return worth_meeting(self._amount)

    def _keep_labels(self, Z: Array, labelled: Array) -> None:
        partial, weight = self._partial, self._weight
        del self._partial, self._weight
        self.label_distributions_ = distributions(Z, LEAST_SHARE)
        code = np.where(labelled, partial.codes, Z.argmax(axis=1))
        self.transduction_ = self.classes_[code]
        self.class_totals_ = None
        if self._amount is not None:
            free = weight * ~labelled
            smoothed = free @ Z
            counted = np.bincount(code, free, minlength=len(self.classes_))
            self.class_totals_ = {
                label: (float(a), float(s), float(c))
                for label, a, s, c in zip(
                    self.classes_.tolist(), self._amount, smoothed, counted, strict=True
                )
            }
        del self._amount

    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities: the answer of the leaf, clipped and normalised."""
        return distributions(self._outputs(X), LEAST_SHARE)

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row; ties go to the first."""
        code = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[code])


class LapTAORegressor(RegressorMixin, LapTAO):
    """A regression tree trained on all rows when the targets of only a few are known.

    Parameters
    ----------
    estimator, gamma, damping, affinity, n_neighbors, perplexity, mutual, scaling, n_outer, mu, \
mu_factor, n_inner, tao_iter, alpha_over_mu, multiplier_step, refit_leaves, solver, tol, missing, \
max_categories, memory, n_jobs, random_state, verbose
        As in `LapTAOClassifier`.

    Attributes
    ----------
    transduction_ : array of shape (rows,) or (rows, outputs)
        Target of each training row: as given where it was, else as smoothed.
    tree_, estimator_, history_, affinity_, settings_, columns_
        As in `LapTAOClassifier`.

    Notes
    -----
    Unlabelled rows are marked by a missing value (NaN, None); with several outputs, in all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from silva import LapTAORegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> partly = np.where(np.arange(len(y)) < 100, y, np.nan)
    >>> LapTAORegressor(random_state=0).fit(X, partly).score(X[100:], y[100:]) > 0.2
    True
    """

    _is_classes = False
    _gamma, _damping = 0.1, 0.003

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        affinity_rows: Any = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
        y : array of shape (rows,) or (rows, outputs)
            Numbers; missing where unknown.
        sample_weight : array of shape (rows,), optional
            Non-negative weights; a weight of 2 counts as two rows.
        affinity_rows : int array of shape (rows,), optional
            As in `LapTAOClassifier.fit`.
        callback : callable, optional
            Called after each round with a `silva.mac.Step`; a true answer stops.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, None, affinity_rows, callback)

    def _read_labels(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        partial = read_numbers(y, n_rows)
        self._flat, self._targets = partial.flat, partial.targets
        self.n_outputs_ = partial.targets.shape[1]
        return partial.targets, partial.labelled

    def _keep_labels(self, Z: Array, labelled: Array) -> None:
        values = np.where(labelled[:, None], self._targets, Z)
        del self._targets
        self.transduction_ = values[:, 0] if self._flat else values

    def predict(self, X: Any) -> Array:
        """Return the answer of each row's leaf."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._flat else outputs
