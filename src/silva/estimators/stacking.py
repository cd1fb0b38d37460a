"""Stacked models: members fitted to the same rows, mixed by what they say of rows held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from silva.estimators.column_views import Units, scaled
from silva.kernels import Matrix
from silva.tree import Array

FOLDS, FEW_FOLDS, MANY_LABELS = 5, 3, 2000
PRIOR = 8.0  # labels' worth of belief in the shares expected
BLOCK = 2_000_000  # cells of the rows answered at a time


@dataclass(frozen=True, eq=False)
class Member:
    """A fitted model with the columns it was shown.

    Attributes
    ----------
    name : str
    view : {"raw", "squashed", "standard", "wide", "ranks", "axes", "categories"}
        See `Units.views`.
    scale : array of shape (columns,) or None
        Factors of the columns of the view.
    model : object
        Its `predict` answers.
    """

    name: str
    view: str
    scale: Array | None
    model: Any

    def predict(self, views: dict[str, Matrix]) -> Array:
        """Return answers of shape (rows, outputs) to rows in all views."""
        X = scaled(views[self.view], self.scale)
        return np.asarray(self.model.predict(X), dtype=np.float64).reshape(X.shape[0], -1)


def folds(n_rows: int, seed: int, strata: Array | None = None) -> list[Array]:
    """Return the rows of each fold; none where there is but one row.

    With strata, numbers from 0, every fold has its part of each.
    """
    if n_rows < 2:
        return []
    order = np.random.default_rng(seed).permutation(n_rows)
    if strata is not None:
        order = order[np.argsort(strata[order], kind="stable")]
    number = min(FOLDS if n_rows < MANY_LABELS else FEW_FOLDS, n_rows)
    return [np.sort(order[first::number]) for first in range(number)]


def best_shares(answers: Array, targets: Array, expected: Array) -> Array:
    """Return the mixture of members that answers best, near what is expected of them.

    Minimises ``|t - A w|² + 8·|w - v|²`` over shares w >= 0 that sum to one (stacked regressions:
    Breiman 1996): with few labels near v, with many the best mixture.

    Parameters
    ----------
    answers : array of shape (members, values)
        A, to rows that the members did not see, each times the square root of its weight.
    targets : array of shape (values,)
        t, likewise.
    expected : array of shape (members,)
        v.
    """
    n_members = len(expected)
    sure = 1e3 * np.sqrt(len(targets))  # the price of shares that do not sum to one
    system = np.vstack([answers.T, np.sqrt(PRIOR) * np.eye(n_members), np.full(n_members, sure)])
    shares = nnls(system, np.concatenate([targets, np.sqrt(PRIOR) * expected, [sure]]))[0]
    return np.asarray(shares / shares.sum())


def mixed_answers(
    members: list[Member],
    shares: dict[str, float],
    units: Units,
    X: Matrix,
    n_outputs: int,
    n_jobs: int | None,
) -> Array:
    """Return the mean of the members' answers by their shares, of shape (rows, outputs).

    Rows are answered in blocks, whose size does not depend on the number of threads.
    """
    if X.shape[0] == 0:
        return np.zeros((0, n_outputs))
    used = [member for member in members if shares[member.name] > 0]
    names = {member.view for member in used}
    size = max(BLOCK // units.width(names), 1)

    def answers(begin: int) -> Array:
        views = units.views(X[begin : begin + size], names)
        return np.asarray(sum(shares[member.name] * member.predict(views) for member in used))

    begins = range(0, X.shape[0], size)
    if len(begins) == 1:
        return answers(0)
    with threadpool_limits(1):
        return np.concatenate(
            Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(answers)(b) for b in begins)
        )
