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

from silva.tree import Array

ROWS, CELLS = 20_000, 4_000_000  # most rows, and rows x columns, that a search looks at
FOLDS = 5  # that rows are dealt to; not all are used
FINALISTS = 4  # candidates that are tried on further folds, if the search was on a part of them


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
        _warn(len(trials))
    return sorted(trials, key=lambda trial: trial.loss) or [best]


def finals(
    trials: Sequence[Trial], evaluate: Callable[[Settings], tuple[float, ...]]
) -> list[Trial]:
    """Return the trials, the best ones first, in the order of their means over further folds, too.

    A search over one fold of noisy targets chooses what fits that fold; the few that did best there
    are told apart by rows they were not chosen on. After Ctrl-C the order is as it was.
    """
    try:
        best = [
            Trial(trial.settings, trial.losses + evaluate(trial.settings))
            for trial in trials[:FINALISTS]
        ]
    except KeyboardInterrupt:
        _warn(len(trials))
        return list(trials)
    return [*sorted(best, key=lambda trial: trial.loss), *trials[FINALISTS:]]


def _warn(n_candidates: int) -> None:
    warnings.warn(
        f"the search for settings was interrupted after {n_candidates} candidates: "
        "the best so far is taken",
        RuntimeWarning,
        stacklevel=3,
    )


def folds(
    groups: Array, n_columns: int, strata: Array, *, further: bool = False
) -> list[tuple[Array, Array]]:
    """Return (training, held-out) row numbers: more folds where there are fewer rows.

    Parameters
    ----------
    groups : array
        Rows with the same number stay together; small numbers are taken first.
    strata : int array
        Classes to spread evenly over the folds.
    further : bool
        Return the folds for `finals` instead: there are some if a search has but one.
    """
    number, first, member = np.unique(groups, return_index=True, return_inverse=True)
    taken = min(len(number), max(min(ROWS, CELLS // max(n_columns, 1)), 500))
    searched, used = (5, 5) if taken < 2000 else (3, 3) if taken < 10_000 else (1, 3)
    fold = np.full(len(number), -1)
    order = np.argsort(strata[first[:taken]], kind="stable")  # within a class by number: random
    fold[order] = np.arange(taken) % FOLDS
    row_fold = fold[member]
    parts = [
        (np.flatnonzero((row_fold >= 0) & (row_fold != k)), np.flatnonzero(row_fold == k))
        for k in range(used)
    ]
    return parts[searched:] if further else parts[:searched]
