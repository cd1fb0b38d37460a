"""Boosting over arrays: how much each tree counts, and which rows the next one must heed.

AdaBoost (boosted TAO paper, Algorithm 1). Round t fits a tree T_t to weighted rows; its loss is

    E = sum_n w_n · [y_n ≠ T_t(x_n)] / sum_n w_n                              (eq. 1)

A tree with E at the limit of the rule or above ends the boosting. Else it votes with

    vote = learning_rate · (log((1 - E) / E) + bonus)

and the rows that it got wrong grow in weight: w_n <- w_n · exp(vote · [y_n ≠ T_t(x_n)]). The
answer to a row is the class with the most votes. SAMME has the limit 1 - 1/K and the bonus
log(K - 1), AdaBoost.M1 has 1/2 and 0; for two classes they are the same.

The paper keeps the weights' sum at one. Here it stays what it was, the total weight of the user's
rows: the penalty of a tree is in units of one row's loss, and weights that sum to one would make it
N times too strong.

Gradient boosting with the squared error needs less: a tree is fitted to what the earlier ones have
left, and `learning_rate` of its answer is added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silva.tree import Array

SMALLEST = 1e-20  # of the mean weight: less is nothing in single precision
CHANCE = 1e-9  # by which a learner must be better than chance: less is rounding
LEAST_ERROR = 1e-3  # a better tree counts no more: the votes of perfect ones would be infinite


@dataclass(frozen=True)
class VoteRule:
    """Which trees may vote.

    Attributes
    ----------
    limit : float
        Weighted error from which on a tree is of no use.
    bonus : float
        What is added to the log odds of being right.
    """

    limit: float
    bonus: float


M1 = VoteRule(limit=0.5, bonus=0.0)


def samme(n_classes: int) -> VoteRule:
    """Return SAMME's rule for this many classes."""
    return VoteRule(limit=1 - 1 / n_classes, bonus=float(np.log(n_classes - 1)))


def weighted_error(weight: Array, wrong: Array) -> float:
    """Return E (boosted TAO paper, eq. 1)."""
    return float(weight[wrong].sum() / weight.sum())


def is_useless(error: float, rule: VoteRule) -> bool:
    """Whether a tree of this error is no better than chance."""
    return error >= rule.limit - CHANCE


def vote_weight(error: float, rule: VoteRule, learning_rate: float) -> float:
    """Return how much a tree counts.

    A perfect tree would count without end and silence all others, and boosting would be over. Its
    error is taken for one in a thousand instead, and boosting goes on: the next tree has the same
    rows but another start, and several perfect trees still err on different new rows.
    """
    error = max(error, LEAST_ERROR)
    return float(learning_rate * (np.log((1 - error) / error) + rule.bonus))


def reweight(weight: Array, wrong: Array, vote: float) -> Array:
    """Return the weights of the next round: rows that were wrong grow, the sum stays."""
    grown = np.where(wrong, weight * np.exp(vote), weight)
    grown *= weight.sum() / grown.sum()
    return np.asarray(np.maximum(grown, SMALLEST * grown.mean()))


def resample(weight: Array, seed: int) -> tuple[Array, Array]:
    """Draw as many rows as there are, by weight; return the rows drawn and what each counts.

    How AdaBoost is run with learners that take no weights (boosted TAO paper, section VI-E).
    """
    n, total = len(weight), weight.sum()
    drawn = np.random.default_rng(seed).choice(n, n, p=weight / total)
    times = np.bincount(drawn, minlength=n)
    rows = np.flatnonzero(times)
    return rows, times[rows] * (total / n)


def add_votes(votes: Array, labels: Array, vote: float) -> None:
    """Add a tree's vote to the class that it answers: `votes` is (rows, classes), in place."""
    flat = votes.reshape(-1)
    flat[np.arange(0, votes.size, votes.shape[1]) + labels] += vote


def tree_seed(seed: int, number: int) -> int:
    """Return the seed of a tree by its number alone, however many there are."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0] >> 1)


def hold_out(strata: Array, share: float, seed: int) -> Array:
    """Return a mask of rows to hold out: this share of every class, never all of one."""
    n = len(strata)
    order = np.lexsort((np.random.default_rng(seed).permutation(n), strata))
    _, first, member = np.unique(strata[order], return_index=True, return_inverse=True)
    rank = np.arange(n) - first[member]
    held = np.zeros(n, bool)
    held[order] = np.floor((rank + 1) * share) > np.floor(rank * share)
    return held
