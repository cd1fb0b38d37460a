"""The flagship tree and ensemble of numbers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from silva.estimators.fidelity import Faithful, Kind, Targets, most_faithful
from silva.estimators.forest_members import Plan, constant_members, grow_members
from silva.estimators.problem import leaf_numbers
from silva.estimators.silva_numbers import (
    DEEPEST_LINEAR,
    SilvaNumbers,
    chosen_gamma,
    explained,
    held_out_r2,
    price_growth,
)
from silva.estimators.spreading import DistinctRows
from silva.estimators.tree_reading import TreeShape
from silva.estimators.trust import Smoothed
from silva.kernels import Matrix, select
from silva.laptao import Evidence
from silva.tree import Array, Tree, answer, node_totals

GREEDY_LEAVES = (64, 256)
USUAL_ALPHAS = (0.03, 0.1)
OBLIQUE_TREES, AXIS_TREES = 10, 50
EVEN_GAMMA = 30.0  # at which the teacher's own answer counts half of what it does without graph


class SilvaTreeRegressor(TreeShape, RegressorMixin, SilvaNumbers):
    """One readable tree from few known targets and many rows without, for tables of any kind.

    A teacher, a mixture of forests, boosted trees, kernel regression and small trees with linear
    leaves, learns from the labelled rows. What it gets wrong there is spread over a graph of alike
    rows to the others, as far as labels that were hidden bear it out. One tree is then fitted to
    the corrected answers for all rows: a tree of oblique decisions with a linear model in each
    leaf, or a plain one, whichever predicts them best on rows held out. Where rows are few,
    the teacher is asked about as many invented ones between neighbours, too, for the tree to
    learn from. `report_` tells in words what happened.

    Parameters
    ----------
    max_depth : int or "auto", default="auto"
        Depth at most; "auto" is searched, and 5 at most where leaves are linear.
    alpha : float or "auto", default="auto"
        Price of the coefficients of oblique decisions, in units of the variance; larger is
        sparser. "auto" is searched.
    gamma : float or "auto", default="auto"
        Trust in the graph and in the teacher's errors, where its answers have 1; 0 does without
        the graph. "auto" is 0 unless another value finds hidden labels clearly better.
    teacher : "auto", regressor or None, default="auto"
        What learns from the labelled rows; "auto" is a mixture, in which each regressor counts as
        much as it helps on rows held out; None spreads labels over the graph alone.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads. The result is the same for any number.
    device : {"cpu", "reference"}, default="cpu"
        Compute table of the tree.
    verbose : int, default=0
        Positive: a line for each step, and the report.

    Attributes
    ----------
    tree_ : Tree
        The fitted tree, over the encoded columns.
    teacher_ : regressor or None
        The fitted teacher, over the encoded columns; ``teacher_.shares_`` says what each part of
        the mixture counts.
    transduction_ : array of shape (rows,) or (rows, outputs)
        Target of each training row: as given where it was, else as found.
    fidelity_ : dict
        "r2", the share of the variance of the corrected answers that the tree explains on rows
        held out.
    report_ : str
        In words what happened.
    feature_importances_ : array of shape (features,)
    columns_ : Columns
        How the input columns were encoded.

    Notes
    -----
    Unlabelled rows are marked by a missing value (NaN, None); with several outputs, in all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from silva import SilvaTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> partly = np.where(np.arange(len(y)) < 60, y, np.nan)
    >>> SilvaTreeRegressor(random_state=0).fit(X, partly).score(X[60:], y[60:]) > 0.35
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
        y : array of shape (rows,) or (rows, outputs)
            Numbers; missing where unknown.
        sample_weight : array of shape (rows,), optional
            Non-negative weights; a weight of 2 counts as two rows.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, None)

    def _kinds(self, targets: Targets, seed: int) -> list[Kind]:
        searched = self._searched_kind(targets, seed)
        kinds = [searched]
        if self.alpha == "auto":  # a search can go astray; what suits most tables costs little
            depth, growth = searched.depth, price_growth(len(targets.Z))
            if self.max_depth == "auto":
                depth = min(self._depth(len(targets.Z)), DEEPEST_LINEAR)
            kinds += [
                Kind(searched.words, "oblique", searched.leaf, depth, alpha * growth, ridge=1.0)
                for alpha in USUAL_ALPHAS
            ]
        depth = 2 * self._depth(len(targets.Z))
        if self.max_depth != "auto":
            depth = int(self.max_depth)
        kinds += [
            Kind(f"one column a decision, {most} leaves", "greedy", "constant", depth, 0.0, most)
            for most in GREEDY_LEAVES
        ]
        return kinds

    def _fit_model(self, rows: DistinctRows, Z: Array, smoothed: Smoothed, seed: int) -> None:
        targets = self._targets(rows, Z)
        widen = self._widening(targets, smoothed, seed)
        kinds = self._kinds(widen(np.arange(len(Z))), seed)
        found = most_faithful(targets, kinds, self._infidelity, seed, widen)
        tree = found.tree
        reached = np.bincount(found.leaf, rows.weight, minlength=tree.n_leaves)
        self.tree_ = tree.with_leaves(
            tree.values, node_totals(tree, reached), tree.slopes, tree.bounds
        )
        self.feature_importances_ = np.bincount(
            self.columns_.source, found.importances, minlength=self.n_features_in_
        )
        self._kind = found.kind.words
        self.fidelity_ = {"r2": _fidelity(found, targets)}

    def _correction(self, smoothed: Smoothed, Z: Array, X: Matrix) -> Array | None:
        """Return what the graph made of the teacher's answers; None where it had no say."""
        if chosen_gamma(smoothed) == 0:
            return None
        return Z - self._teacher_answers(self.teacher_, X)

    def _encoded_answers(self, X: Matrix) -> Array:
        leaf = leaf_numbers(select(self.device), self.tree_, X, self._n_threads)
        return answer(self.tree_, leaf, X)

    def predict(self, X: Any) -> Array:
        """Return the answer of each row's leaf."""
        return self._shaped(self._answers(X))

    def _write_report(self, smoothed: Smoothed, evidence: Evidence) -> str:
        lines = self._report_labels(smoothed, evidence)
        tree, faith = self.tree_, self.fidelity_["r2"]
        decisions = int(np.count_nonzero(~tree.is_leaf))
        lines.append(
            f"The tree ({self._kind}) has {tree.n_leaves} leaves at depth {tree.depth} or less and "
            f"asks for {tree.coefficients.nnz / max(decisions, 1):.1f} columns a decision."
        )
        if not np.isnan(faith):
            lines.append(
                f"On rows held out it explains {faith:.1%} of the variance of what it was taught: "
                f"the other {1 - faith:.1%} are the price of being one tree."
            )
        return "\n".join(lines)


class SilvaForestRegressor(RegressorMixin, SilvaNumbers):
    """An ensemble from few known targets and many rows without, for tables of any kind.

    A teacher is taught and corrected as in `SilvaTreeRegressor`. Bagged trees with linear leaves
    and extremely random trees are fitted to its answers for all rows and averaged with it: the
    first two in the proportion that best tells these answers out of bag, the teacher the more, the
    worse they tell them and the less it was corrected.

    Parameters
    ----------
    max_depth, alpha
        As in `SilvaTreeRegressor`, for the oblique trees.
    gamma, teacher, random_state, n_jobs, device, verbose
        As in `SilvaTreeRegressor`.

    Attributes
    ----------
    trees_ : list of Tree
        The oblique trees, over the encoded columns.
    axis_forest_ : ExtraTreesRegressor or None
        The axis-aligned trees; None where all answers are alike.
    teacher_ : regressor or None
    mix_ : dict
        What "oblique", "axis" and "teacher" count in the average.
    cv_score_ : float
        Estimated R²: of labels that were hidden from the teacher and from its corrections. NaN
        where there are too few to hide any.
    transduction_, report_, columns_
        As in `SilvaTreeRegressor`.
    feature_importances_ : array of shape (features,)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from silva import SilvaForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> partly = np.where(np.arange(len(y)) < 60, y, np.nan)
    >>> SilvaForestRegressor(random_state=0).fit(X, partly).score(X[60:], y[60:]) > 0.4
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the ensemble.

        Parameters
        ----------
        X, y, sample_weight
            As in `SilvaTreeRegressor.fit`.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, None)

    trees_: list[Tree]

    def _fit_model(self, rows: DistinctRows, Z: Array, smoothed: Smoothed, seed: int) -> None:
        targets = self._targets(rows, Z)
        if (Z[0] == Z).all():
            members = constant_members(Z, rows.X.shape[1])
        else:
            gamma = chosen_gamma(smoothed)
            teacher = 0.0 if self.teacher_ is None else 1 / (1 + gamma / EVEN_GAMMA)
            plan = Plan(self._searched_kind(targets, seed), OBLIQUE_TREES, AXIS_TREES, 1.0)
            members = grow_members(
                targets, plan, rows.evidence.unlabelled, teacher, seed, self.n_jobs
            )
        self._members = members
        self.trees_, self.axis_forest_, self.mix_ = members.oblique, members.axis, members.shares()
        self.feature_importances_ = np.bincount(
            self.columns_.source, members.importances, minlength=self.n_features_in_
        )
        self.cv_score_ = held_out_r2(smoothed.found, rows.evidence)

    def _encoded_answers(self, X: Matrix) -> Array:
        teacher = None if self.teacher_ is None else self._teacher_answers(self.teacher_, X)
        return self._members.answers(X, teacher, select(self.device), self._n_threads)

    def predict(self, X: Any) -> Array:
        """Return the mean of both forests and the teacher."""
        return self._shaped(self._answers(X))

    def _write_report(self, smoothed: Smoothed, evidence: Evidence) -> str:
        lines = self._report_labels(smoothed, evidence)
        lines.append(self._members.in_words())
        if not np.isnan(self.cv_score_):
            lines.append(
                f"The ensemble is expected to explain {self.cv_score_:.1%} of the variance of the "
                "targets: so much of it was explained where labels were hidden."
            )
        return "\n".join(lines)


def _fidelity(found: Faithful, targets: Targets) -> float:
    """Return R² of the answers to rows held out."""
    if not len(found.held_out):
        return float("nan")
    return explained(found.answers, targets.Z[found.held_out], targets.weight[found.held_out])
