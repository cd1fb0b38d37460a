"""The teacher for numbers: several regressors on the labelled rows, mixed by held-out errors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.utils.validation import check_is_fitted

from silva.estimators.column_views import Units, scaled
from silva.estimators.forest import TAOForestRegressor
from silva.estimators.scaling import relevance
from silva.estimators.stacking import Member, best_shares, folds, mixed_answers
from silva.estimators.tao_base import LINEAR_COLUMNS
from silva.kernel_ridge import fit_kernel_ridge
from silva.kernels import Matrix
from silva.tree import Array

TREES = 100  # of each forest
STAGES, RATE, LEVELS, SUBSAMPLE = 200, 0.05, 3, 0.7  # of boosting
EXTRA = "extra trees"
FORESTS: dict[str, tuple[str, Any]] = {  # each with the columns that it is shown
    "random forest": ("squashed", RandomForestRegressor),
    EXTRA: ("raw", ExtraTreesRegressor),
    "extra trees of squashed columns": ("squashed", ExtraTreesRegressor),
}
PLANES = 20  # small trees with linear leaves of a kind
SMALL_TREES: dict[str, dict[str, Any]] = {
    "linear leaves at depth 1": {"max_depth": 1},
    "linear leaves at depth 2": {"max_depth": 2},
    "linear leaves of a greedy cut": {"max_depth": 1, "init": "cart", "bootstrap": "bayesian"},
}
LEAST_LABELS = 8  # below, there is nothing to choose by and no leaf to fill
KERNELS = {  # each with the columns that it is shown, and whether relevant ones count more
    "kernel": ("standard", True),
    "kernel of ranks": ("ranks", True),
    "kernel of principal axes": ("axes", False),
}


class MixedRegressor(RegressorMixin, BaseEstimator):
    """A mean of different regressors, each counting as much as it helps on held-out rows.

    Three forests and boosted trees, most of them on columns whose long tails are squashed
    (`column_views.squashed`), kernel ridge regression on standardised and on ranked columns and on
    principal axes of all rows, bags of small trees with linear leaves, and trees that are cut once,
    from a greedy start, each under random weights of all rows: a few labels of rows that are unlike
    all others, which bags would miss, set these apart in every tree. The shares w minimise, over
    the held-out answers P of the members and targets of deviation one,

        |y - P w|² + 8·|w - v|²,  w >= 0,  sum w = 1,

    v in proportion to 1/|y - P_k|² (stacked regressions: Breiman 1996): with few labels near a
    mean of all that are any good, with many the best mixture.

    Parameters
    ----------
    units : Units or None
        How columns are measured; None measures those of the rows given.
    random_state : int
    n_jobs : int, optional

    Attributes
    ----------
    shares_ : dict
        Member to its share.
    held_out_ : array of shape (rows, outputs)
        What the mixture answers to rows that its members did not see; NaN if there is but one.
    members_ : list of Member
    """

    def __init__(
        self, *, units: Units | None = None, random_state: int = 0, n_jobs: int | None = None
    ) -> None:
        self.units = units
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Matrix, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit all members to all rows, and again without each fold to find their shares."""
        n_rows = len(y)
        self._flat = y.ndim == 1
        y = np.asarray(y, dtype=np.float64).reshape(n_rows, -1)
        weight = np.ones(n_rows) if sample_weight is None else np.asarray(sample_weight)
        self.units_ = Units.of(X) if self.units is None else self.units
        views = self.units_.views(X)
        everything = n_rows >= LEAST_LABELS
        self.members_ = self._fit_members(views, y, weight, everything)
        shares = np.full(len(self.members_), 1 / len(self.members_))
        held_out = np.full((len(shares), *y.shape), np.nan)
        for part in folds(n_rows, self.random_state):
            rest = np.ones(n_rows, bool)
            rest[part] = False
            seen = {name: view[rest] for name, view in views.items()}
            hidden = {name: view[part] for name, view in views.items()}
            members = self._fit_members(seen, y[rest], weight[rest], everything)
            held_out[:, part] = [member.predict(hidden) for member in members]
        if everything:
            shares = mixing_shares(held_out, y, weight)
        self.held_out_ = np.tensordot(shares, held_out, 1)
        self.shares_ = {
            member.name: float(share) for member, share in zip(self.members_, shares, strict=True)
        }
        return self

    def predict(self, X: Matrix) -> Array:
        """Return the answers of the mixture."""
        check_is_fitted(self)
        total = mixed_answers(
            self.members_, self.shares_, self.units_, X, self.held_out_.shape[1], self.n_jobs
        )
        return total[:, 0] if self._flat else total

    def _fit_members(
        self, views: dict[str, Matrix], y: Array, weight: Array, everything: bool
    ) -> list[Member]:
        """Fit the members that these rows allow."""
        seed, raw = self.random_state, views["raw"]
        flat = y[:, 0] if y.shape[1] == 1 else y
        members = []
        for name, (view, kind) in FORESTS.items():
            forest = kind(TREES, random_state=seed, n_jobs=self.n_jobs)
            forest.fit(views[view], flat, weight)
            forest.n_jobs = None  # threads would add the answers in any order
            members.append(Member(name, view, None, forest))
        if not everything:
            return members
        boosted = GradientBoostingRegressor(
            n_estimators=STAGES, learning_rate=RATE, max_depth=LEVELS, subsample=SUBSAMPLE,
            random_state=seed,
        )  # fmt: skip
        if y.shape[1] > 1:
            boosted = MultiOutputRegressor(boosted)
        boosted.fit(views["squashed"], flat, weight)
        members.append(Member("boosted trees", "squashed", None, boosted))
        extra = next(member.model for member in members if member.name == EXTRA)
        for name, (view, by_relevance) in KERNELS.items():
            if view in views:
                scale = np.sqrt(relevance(extra, len(y))) if by_relevance else None
                model = fit_kernel_ridge(scaled(views[view], scale), y, weight, seed)
                members.append(Member(name, view, scale, model))
        for name, kind in SMALL_TREES.items() if raw.shape[1] <= LINEAR_COLUMNS else ():
            planes = TAOForestRegressor(
                n_estimators=PLANES, leaf="linear", split="oblique", shrinkage=1.0,
                random_state=seed, n_jobs=self.n_jobs, **kind,
            ).fit(views["wide"], flat, weight)  # fmt: skip
            members.append(Member(name, "wide", None, planes))
        return members


def mixing_shares(held_out: Array, y: Array, weight: Array) -> Array:
    """Return the shares of the members by their held-out answers; see `MixedRegressor`.

    Parameters
    ----------
    held_out : array of shape (members, rows, outputs)
    y : array of shape (rows, outputs)
    weight : array of shape (rows,)
    """
    n_members = len(held_out)
    share = weight / weight.sum()
    centre = share @ y
    unit = np.sqrt(share @ (y - centre) ** 2)
    if not unit.any():
        return np.full(n_members, 1 / n_members)
    unit[unit == 0] = np.inf  # a constant output tells nothing
    factor = np.sqrt(weight)[:, None] / unit
    answers = ((held_out - centre) * factor).reshape(n_members, -1).T
    targets = ((y - centre) * factor).ravel()
    error = ((answers - targets[:, None]) ** 2).sum(axis=0)
    prior = 1 / np.maximum(error, 1e-6 * weight.sum())
    return best_shares(answers.T, targets, prior / prior.sum())
