"""Bagging: what each tree of a forest is shown, and what the trees say of rows they never saw.

Every tree has a bag of its own: rows drawn with replacement and a subset of the columns (Breiman
1996; Carreira-Perpiñán and Zharmagambetov 2020 for TAO trees). How often a row was drawn is its
weight; a row that was not drawn is left out altogether. The Bayesian bootstrap (Rubin 1981) weighs
all rows at random instead: a rare one that matters is in every bag. The bag follows from the
forest's seed and the tree's number alone, so it can be drawn again whenever it is asked for, in any
order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from silva.tree import Array, Tree


@dataclass(frozen=True, eq=False)
class Bag:
    """What one tree is shown.

    Attributes
    ----------
    rows : int array
        Numbers of the rows that were drawn, increasing.
    counts : array of the same length
        How often each was drawn, or its random weight.
    columns : int array
        Numbers of the columns, increasing.
    seed : int
        For what else is random in the tree.
    """

    rows: Array
    counts: Array
    columns: Array
    seed: int


@dataclass(frozen=True, eq=False)
class Bagging:
    """How the bags of a forest are drawn.

    Attributes
    ----------
    entropy : int
        Seed of the forest.
    n_rows : int
        Rows to draw from.
    n_draws : int or None
        Rows drawn with replacement for each tree; None: all rows.
    groups : int array of shape (columns,)
        Columns of one group are taken or left together; the groups are 0, 1, ...
    n_groups : int
        Groups that a tree sees.
    weighed : bool
        Whether a tree sees all rows under random weights of mean one.
    """

    entropy: int
    n_rows: int
    n_draws: int | None
    groups: Array
    n_groups: int
    weighed: bool = False

    def bag(self, number: int) -> Bag:
        """Draw the bag of a tree."""
        source = np.random.SeedSequence(self.entropy, spawn_key=(number,))
        rng = np.random.default_rng(source)
        counts: Array = np.ones(self.n_rows, np.int64)
        if self.weighed:
            counts = rng.exponential(size=self.n_rows)
        elif self.n_draws is not None:
            drawn = rng.integers(self.n_rows, size=self.n_draws)
            counts = np.bincount(drawn, minlength=self.n_rows)
        n_groups = int(self.groups.max()) + 1
        taken = np.zeros(n_groups, bool)
        taken[rng.permutation(n_groups)[: self.n_groups]] = True
        rows = np.flatnonzero(counts)
        return Bag(
            rows=rows,
            counts=counts[rows],
            columns=np.flatnonzero(taken[self.groups]),
            seed=int(rng.integers(np.iinfo(np.int32).max)),
        )


def widen(tree: Tree, columns: Array, n_columns: int) -> Tree:
    """Return a tree that was fitted to some columns as a tree over all of them."""
    if len(columns) == n_columns:
        return tree
    c = tree.coefficients
    wide = sparse.csr_array(
        (c.data, columns[c.indices].astype(c.indices.dtype), c.indptr),
        shape=(tree.n_nodes, n_columns),
    )
    slopes = None
    if tree.slopes is not None:
        slopes = np.zeros((*tree.slopes.shape[:2], n_columns))
        slopes[:, :, columns] = tree.slopes
    return replace(tree, coefficients=wide, slopes=slopes)


def out_of_bag_mean(
    answers: Iterable[tuple[Array, Array]], n_rows: int, n_outputs: int
) -> tuple[Array, Array]:
    """Average what trees answer to the rows outside their bags.

    Parameters
    ----------
    answers : iterable of (rows, answers)
        For each tree the rows outside its bag, and its answers to them (rows, outputs).

    Returns
    -------
    mean : array of shape (n_rows, n_outputs)
        NaN where every tree saw the row.
    votes : int array of shape (n_rows,)
        Number of trees that did not.
    """
    total = np.zeros((n_rows, n_outputs))
    votes = np.zeros(n_rows, np.int64)
    for rows, answer in answers:
        total[rows] += answer
        votes[rows] += 1
    with np.errstate(invalid="ignore"):
        return total / votes[:, None], votes
