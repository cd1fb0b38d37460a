"""From partly labelled rows to the graph that carries labels between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.copies import find_copies
from silva.estimators.graph_cache import cached_graph
from silva.estimators.scaling import scale_columns
from silva.graph import check_affinity
from silva.kernels import Matrix
from silva.labels import Total
from silva.laptao import Evidence
from silva.tree import Array

MOST_NEIGHBOURS = 30


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """Rows that differ, with what is known about each.

    Attributes
    ----------
    X : matrix
        The distinct rows.
    first : int array
        Where each stands first among the user's rows.
    kept : int array
        The user's rows that have a weight.
    member : int array of the same length
        The distinct row that each of them is.
    evidence : Evidence
        Labels of the distinct rows.
    """

    X: Matrix
    first: Array
    kept: Array
    member: Array
    evidence: Evidence

    @property
    def weight(self) -> Array:
        """Joint weight of the copies of each row."""
        return np.asarray(self.evidence.labelled + self.evidence.unlabelled)

    def spread(self, values: Array, n_rows: int) -> Array:
        """Return the values of the distinct rows for the user's rows; NaN where one has no weight.

        Parameters
        ----------
        values : array of shape (distinct rows, outputs)
        n_rows : int
            Number of the user's rows.
        """
        result = np.full((n_rows, values.shape[1]), np.nan)
        result[self.kept] = values[self.member]
        return result


def distinct_rows(
    X: Matrix,
    labels: Array,
    labelled: Array,
    weight: Array,
    *,
    amount: Array | None = None,
    merge: bool = True,
) -> DistinctRows:
    """Gather copies of a row into one row of their joint weight.

    So a weight of 2 is two copies, and no neighbourhood is filled with copies.

    Parameters
    ----------
    labels : array of shape (rows, outputs)
        Zero where unlabelled.
    labelled : bool array
    weight : array
        Rows without weight are left out.
    amount : array of shape (outputs,), optional
        Known totals over the unlabelled rows.
    merge : bool
        Otherwise every row stays by itself: a graph that was given speaks of single rows.
    """
    kept = np.flatnonzero(weight > 0)
    first, member = np.arange(len(kept)), np.arange(len(kept))
    if merge:
        copies = find_copies(X[kept])
        first, member = copies.first, copies.group
    first = kept[first]
    labels, labelled, weight = labels[kept], labelled[kept], weight[kept]
    known = np.bincount(member, weight * labelled)
    unknown = np.bincount(member, weight * ~labelled)
    sums = np.stack([np.bincount(member, weight * column) for column in labels.T], axis=1)
    total = None if amount is None else Total(unknown, amount)
    distinct = X if len(first) == X.shape[0] else X[first]
    return DistinctRows(distinct, first, kept, member, Evidence(known, unknown, sums, total))


def graph_of_rows(
    rows: DistinctRows,
    *,
    affinity: Any,
    n_rows: int,
    n_neighbors: int | str,
    perplexity: float | str,
    mutual: bool,
    scaling: str,
    is_classes: bool,
    memory: Any,
    seed: int,
    n_jobs: int | None,
    verbose: int,
) -> Any:
    """Return the graph of the distinct rows: the one given, or one over scaled columns.

    Parameters
    ----------
    affinity : matrix of shape (n_rows, n_rows) or None
        The user's graph over all rows.
    n_neighbors, perplexity, mutual, memory
        As in `silva.affinity_graph` and `silva.estimators.graph_cache`; "auto" neighbours are the
        root of the number of rows, at most 30.
    scaling : str
        See `silva.estimators.scaling`.
    """
    if affinity is not None:
        return check_affinity(affinity, n_rows)[rows.first][:, rows.first]
    n_distinct = rows.X.shape[0]
    if n_distinct == 1:
        return check_affinity(np.zeros((1, 1)), 1)
    known = rows.evidence
    scaled = scale_columns(
        rows.X, rows.weight, scaling, known.means, known.labelled, is_classes, seed, n_jobs
    )
    if n_neighbors == "auto":
        n_neighbors = min(MOST_NEIGHBOURS, math.isqrt(n_distinct - 1) + 1, n_distinct - 1)
    return cached_graph(
        memory, scaled, n_neighbors, perplexity, mutual=mutual, n_jobs=n_jobs, random_state=seed,
        verbose=verbose,
    )  # fmt: skip
