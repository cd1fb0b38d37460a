"""The teacher for classes: several classifiers on the labelled rows, mixed by held-out errors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from silva.estimators.class_densities import fit_gaussians, fit_independent
from silva.estimators.column_views import Units, scaled
from silva.estimators.problem import distributions
from silva.estimators.scaling import relevance
from silva.estimators.stacking import Member, best_shares, folds, mixed_answers
from silva.estimators.trust import best_temperature, sharpened
from silva.kernel_ridge import fit_kernel_ridge
from silva.kernels import Matrix
from silva.tree import Array

EXPECTED = {
    "random forest": 0.35,
    "extra trees": 0.35,
    "bagged trees": 0.1,
    "kernel": 0.1,
    "kernel of ranks": 0.1,
    "kernel of all columns": 0.05,
    "kernel of principal axes": 0.1,
    "Gaussian classes": 0.1,
    "independent columns": 0.05,
    "logistic regression": 0.05,
    "extra trees of categories": 0.2,
    "kernel of categories": 0.1,
    "logistic regression of categories": 0.05,
}  # shares before any label was held out; they are normalised over the members that there are
VIEWS = ("raw", "standard", "ranks", "axes", "categories")  # of the columns, shown to members
TREES = 100  # of each forest, and half as many bagged ones
BAGGED_CELLS = 200_000  # labels times columns at most: bagged trees look at every column
CATEGORY_CELLS = 2_000_000  # labels times columns at most, codes shown as categories
EVEN = 1.0  # nats against a temperature of a half or of two for a member
LINE_ROWS, LINE_STEPS = 2000, 200  # of logistic regression


@dataclass(frozen=True, eq=False)
class Probabilities:
    """A fitted classifier of class numbers as a model with an answer for each of all classes."""

    classifier: Any
    n_classes: int

    def predict(self, X: Matrix) -> Array:
        """Return probabilities; zero for classes that the classifier never saw."""
        answers = np.zeros((X.shape[0], self.n_classes))
        answers[:, self.classifier.classes_] = self.classifier.predict_proba(X)
        return answers


@dataclass(frozen=True, eq=False)
class Sharpened:
    """A model of probabilities, made more or less certain."""

    model: Any
    temperature: float

    def predict(self, X: Matrix) -> Array:
        """Return probabilities."""
        return sharpened(self.model.predict(X), self.temperature)


@dataclass(frozen=True, eq=False)
class KernelProbabilities:
    """A fitted kernel regression of class indicators as a model of probabilities."""

    regression: Any

    def predict(self, X: Matrix) -> Array:
        """Return probabilities."""
        return distributions(self.regression.predict(X))


class MixedClassifier(ClassifierMixin, BaseEstimator):
    """A mean of different classifiers, each counting as much as it helps on held-out rows.

    Forests know rules about single columns, kernels and planes know classes that change smoothly,
    densities know classes that are clumps; which a table has is soon seen. Members are a random
    forest, extremely random trees, bagged trees that look at all columns, kernel regressions of the
    class indicators (standardised columns in proportion to their relevance, the same by rank, all
    columns alike, and principal axes), logistic regression, and two models of what the rows of a
    class look like, Gaussians and independent columns (`silva.estimators.class_densities`), which
    learn from the rows of `units` as well, for which no label is needed. Columns of three to twelve
    whole numbers may be codes of categories, whose order means nothing: where there are some, three
    more members see an indicator for each number (extremely random trees, a kernel regression and
    logistic regression). Each member is made as certain as rows held out bear out (forests of many
    classes are right more often than they say), then their shares minimise the squared error of
    held-out answers near those expected of a table (`best_shares`).

    Parameters
    ----------
    units : Units or None
        How columns are measured, and some of all rows; None takes the rows given.
    fold : int array of shape (rows,) or None
        Rows of a number are held out together, those of -1 never; None makes folds.
    n_trees : int
        Of each forest.
    random_state : int
    n_jobs : int, optional

    Attributes
    ----------
    classes_ : array
    shares_ : dict
        Member to its share.
    members_ : list of Member
    """

    def __init__(
        self,
        *,
        units: Units | None = None,
        fold: Array | None = None,
        n_trees: int = TREES,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.units = units
        self.fold = fold
        self.n_trees = n_trees
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Matrix, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit all members to all rows, and again without each fold to find their shares."""
        self.classes_, code = np.unique(y, return_inverse=True)
        weight = np.ones(len(code)) if sample_weight is None else np.asarray(sample_weight)
        self.units_ = Units.of(X) if self.units is None else self.units
        codes = self.units_.codes
        few_cells = codes is not None and len(code) * codes.width <= CATEGORY_CELLS
        views = self.units_.views(X, VIEWS if few_cells else VIEWS[:-1])
        self._bagged = X.shape[0] * X.shape[1] <= BAGGED_CELLS  # in all folds or in none
        rows = self.units_.rows
        self._others = None if rows is None else self.units_.views(rows, ("raw", "axes"))
        self.members_ = self._fit_members(views, code, weight, self.n_trees)
        fold = self._folds(code) if self.fold is None else self.fold
        without = self._fit_folds(views, code, weight, fold)
        names = [member.name for member in self.members_]
        del self._others
        shares, temperatures = self._find_shares(views, code, weight, fold, without)
        self.members_ = [_at(member, temperatures) for member in self.members_]
        self._without = {
            number: [_at(member, temperatures) for member in members]
            for number, members in without.items()
        }
        self.shares_ = dict(zip(names, shares.tolist(), strict=True))
        return self

    def without(self, fold: int) -> MixedClassifier | None:
        """Return the same mixture of members that have not seen a fold; None if too little is left.

        Such members are there until `forget_folds`, and have half as many trees.
        """
        if fold not in self._without:
            return None
        copy: MixedClassifier = clone(self)
        copy.__dict__ |= self.__dict__ | {"members_": self._without[fold], "_without": {}}
        return copy

    def forget_folds(self) -> None:
        """Drop the members that have not seen a fold."""
        self._without = {}

    def predict_proba(self, X: Matrix) -> Array:
        """Return the class probabilities of the mixture."""
        check_is_fitted(self)
        return mixed_answers(
            self.members_, self.shares_, self.units_, X, len(self.classes_), self.n_jobs
        )

    def predict(self, X: Matrix) -> Array:
        """Return the most probable class of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _folds(self, code: Array) -> Array:
        """Return a fold for each row, with its part of every class."""
        fold = np.full(len(code), -1)
        for number, part in enumerate(folds(len(code), self.random_state, code)):
            fold[part] = number
        return fold

    def _fit_folds(
        self, views: dict[str, Matrix], code: Array, weight: Array, fold: Array
    ) -> dict[int, list[Member]]:
        """Fit members without each fold, where two classes are left."""
        result = {}
        for number in np.unique(fold[fold >= 0]).tolist():
            rest = fold != number
            if len(np.unique(code[rest])) > 1:
                seen = {name: view[rest] for name, view in views.items()}
                result[number] = self._fit_members(
                    seen, code[rest], weight[rest], max(self.n_trees // 2, 1)
                )
        return result

    def _find_shares(
        self,
        views: dict[str, Matrix],
        code: Array,
        weight: Array,
        fold: Array,
        without: dict[int, list[Member]],
    ) -> tuple[Array, dict[str, float]]:
        """Return shares and temperatures of the members by what they say of rows held out."""
        names = [member.name for member in self.members_]
        expected = np.array([EXPECTED[name] for name in names])
        indicators = np.eye(len(self.classes_))[code]
        held_out = np.full((len(names), *indicators.shape), np.nan)
        for number, members in without.items():
            part = fold == number
            hidden = {name: view[part] for name, view in views.items()}
            by_name = {member.name: member for member in members}
            held_out[:, part] = [by_name[name].predict(hidden) for name in names]
        judged = np.isfinite(held_out).all(axis=(0, 2))
        held_out, indicators, weight = held_out[:, judged], indicators[judged], weight[judged]
        temperatures = [best_temperature(said, indicators, weight, EVEN) for said in held_out]
        root = np.sqrt(weight)[:, None]
        answers = np.stack([
            (sharpened(said, temperature) * root).ravel()
            for said, temperature in zip(held_out, temperatures, strict=True)
        ])  # fmt: skip
        shares = best_shares(answers, (indicators * root).ravel(), expected / expected.sum())
        return shares, dict(zip(names, temperatures, strict=True))

    def _fit_members(
        self, views: dict[str, Matrix], code: Array, weight: Array, n_trees: int
    ) -> list[Member]:
        """Fit the members that these rows allow."""
        n_classes, seed = len(self.classes_), self.random_state
        half = max(n_trees // 2, 1)
        members, forests = [], {}
        for name, view, forest in (
            ("random forest", "raw", RandomForestClassifier(n_trees)),
            ("extra trees", "raw", ExtraTreesClassifier(n_trees)),
            ("bagged trees", "raw", RandomForestClassifier(half, max_features=None)),
            ("extra trees of categories", "categories", ExtraTreesClassifier(n_trees)),
        ):
            if view not in views or (name == "bagged trees" and not self._bagged):
                continue
            forest.set_params(random_state=seed, n_jobs=self.n_jobs).fit(views[view], code, weight)
            forest.n_jobs = None  # threads would add the answers in any order
            members.append(Member(name, view, None, Probabilities(forest, n_classes)))
            forests[name] = forest

        indicators = np.eye(n_classes)[code]
        for name, view, judge in (  # columns count as much as they do in a forest
            ("kernel", "standard", "extra trees"),
            ("kernel of ranks", "ranks", "extra trees"),
            ("kernel of all columns", "standard", None),
            ("kernel of principal axes", "axes", None),
            ("kernel of categories", "categories", "extra trees of categories"),
        ):
            if view in views:
                scale = None if judge is None else np.sqrt(relevance(forests[judge], len(code)))
                fitted = fit_kernel_ridge(scaled(views[view], scale), indicators, weight, seed)
                members.append(Member(name, view, scale, KernelProbabilities(fitted)))

        for name, view, fit in (
            ("Gaussian classes", "axes", fit_gaussians),
            ("independent columns", "raw", fit_independent),
        ):
            if self._others is not None:
                density = fit(views[view], indicators, weight, self._others[view])
                members.append(Member(name, view, None, density))

        one_of_each = np.unique(code, return_index=True)[1]
        few = np.random.default_rng(seed).permutation(len(code))[:LINE_ROWS]
        few = np.union1d(few, one_of_each)
        for name, view in (
            ("logistic regression", "standard"),
            ("logistic regression of categories", "categories"),
        ):
            if view in views:
                line = LogisticRegression(max_iter=LINE_STEPS)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    line.fit(views[view][few], code[few], weight[few])
                members.append(Member(name, view, None, Probabilities(line, n_classes)))
        return members


def _at(member: Member, temperatures: dict[str, float]) -> Member:
    """Return a member that is as certain as its temperature says."""
    return replace(member, model=Sharpened(member.model, temperatures[member.name]))
