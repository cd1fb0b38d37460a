"""Choosing hyper-parameters that the user left open, on held-out parts of the training rows.

A coordinate search: from a start that suits most tables, one setting after the other is varied and
the best value kept. Trees are cheap; a dozen of them on part of the rows cost less than one round
of guessing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from silva.tree import Array

ROWS, CELLS = 20_000, 4_000_000  # most rows, and rows x columns, that a search looks at


@dataclass(frozen=True)
class Settings:
    """One candidate: how a tree is fitted.

    Attributes
    ----------
    split : {"oblique", "mixed", "axis"}
    alpha : float
        Price of complexity.
    depth : int
        Depth of the first tree; while searching, relative to what the number of rows allows.
    shrinkage : float
        Rows' worth by which a node's answer leans to its parent's; ridge where leaves are linear.
    l2 : float
        Price of half the squared norm, in units of `alpha`: coefficients above 1 / l2 pay more for
        their square than for their size.
    """

    split: str
    alpha: float
    depth: int
    shrinkage: float
    l2: float


@dataclass(frozen=True)
class Trial:
    """Held-out loss of a candidate, one number per fold."""

    settings: Settings
    losses: tuple[float, ...]

    @property
    def loss(self) -> float:
        """Mean over the folds."""
        return float(np.mean(self.losses))


def search(
    start: Settings,
    grid: Sequence[tuple[str, Sequence[Any]]],
    evaluate: Callable[[Settings], tuple[float, ...]],
) -> list[Trial]:
    """Return all trials, the best one first.

    Parameters
    ----------
    start : Settings
        Where the search begins.
    grid : sequence of (name, values)
        Settings to vary, in this order; a name may come twice.
    evaluate : callable
        Held-out losses of a candidate. Ctrl-C in it ends the search with what is known.
    """
    best = Trial(start, (np.inf,))
    trials: list[Trial] = []
    try:
        for name, values in [("split", [start.split]), *grid]:
            for value in values:
                candidate = replace(best.settings, **{name: value})
                if all(trial.settings != candidate for trial in trials):
                    trials.append(Trial(candidate, evaluate(candidate)))
            best = min(trials, key=lambda trial: trial.loss)
    except KeyboardInterrupt:
        warnings.warn(
            f"the search for settings was interrupted after {len(trials)} candidates: "
            "the best so far is taken",
            RuntimeWarning,
            stacklevel=2,
        )
    return sorted(trials, key=lambda trial: trial.loss) or [best]


def row_groups(X: Any, seed: int) -> Array:
    """Return a random number for each row that is the same for equal rows.

    Folds made from it never put copies of a row on both sides, and a row of weight two is treated
    as two rows. Each value is mixed with a key of its column before the row is summed up: the bits
    of whole numbers end in many zeros, and a linear hash would keep but a dozen bits of them.
    """
    random = np.random.default_rng(seed)
    key = random.integers(1 << 63, size=X.shape[1], dtype=np.uint64)
    if sparse.issparse(X):
        bits = X.data.astype(np.float64).view(np.uint64)
        terms = np.where(X.data == 0, np.uint64(0), _scramble(bits + key[X.indices]))
        sums = np.append(np.uint64(0), np.cumsum(terms))
        return np.asarray(_scramble(sums[X.indptr[1:]] - sums[X.indptr[:-1]]))
    bits_type = np.dtype(f"u{X.dtype.itemsize}")
    groups = np.empty(X.shape[0], np.uint64)
    step = max(1 << 20 >> X.shape[1].bit_length(), 1)  # a copy that stays in the cache
    for begin in range(0, X.shape[0], step):
        part = np.ascontiguousarray(X[begin : begin + step] + 0.0)  # no negative zeros
        mixed = _scramble(part.view(bits_type).astype(np.uint64) + key)
        groups[begin : begin + step] = mixed.sum(axis=1, dtype=np.uint64)
    return np.asarray(_scramble(groups))


def _scramble(values: Array) -> Array:
    """Return 64-bit numbers mixed so that neighbours are far apart (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


def folds(groups: Array, n_columns: int, strata: Array) -> list[tuple[Array, Array]]:
    """Return (training, held-out) row numbers: more folds where there are fewer rows.

    Parameters
    ----------
    groups : array
        Rows with the same number stay together; small numbers are taken first.
    strata : int array
        Classes to spread evenly over the folds.
    """
    number, first, member = np.unique(groups, return_index=True, return_inverse=True)
    taken = min(len(number), max(min(ROWS, CELLS // max(n_columns, 1)), 500))
    used = (5 if taken < 2000 else 3 if taken < 10_000 else 1, 5)
    fold = np.full(len(number), -1)
    order = np.argsort(strata[first[:taken]], kind="stable")  # within a class by number: random
    fold[order] = np.arange(taken) % used[1]
    row_fold = fold[member]
    return [
        (np.flatnonzero((row_fold >= 0) & (row_fold != k)), np.flatnonzero(row_fold == k))
        for k in range(used[0])
    ]
