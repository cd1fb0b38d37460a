"""From partly labelled rows to the graph that carries labels between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from silva.copies import find_copies
from silva.estimators.graph_cache import cached_graph
from silva.estimators.scaling import scale_columns
from silva.graph import check_affinity
from silva.kernels import Matrix
from silva.labels import LabelSystem, Total
from silva.laptao import Evidence
from silva.tree import Array

MOST_NEIGHBOURS = 30
FOLDS = 5  # of hidden labels
FORESTS_COUNT = (2.0, 0.5, 0.1, 8.0)  # all forests' answers together, in units of all labels
TIES = 0.1  # of the share that the true class lacks, beside the number of errors


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


def class_shares_of_forests(X: Matrix, evidence: Evidence, seed: int, n_jobs: int | None) -> Array:
    """Return what forests on the labelled rows alone say of every row: a distribution each.

    The mean of a random forest and of extremely random trees, the bar of few labels on tables.
    """
    taught = evidence.labelled > 0
    codes = evidence.sums[taught].argmax(axis=1)
    shares = np.zeros((X.shape[0], evidence.sums.shape[1]))
    for kind in (RandomForestClassifier, ExtraTreesClassifier):
        forest = kind(random_state=seed, n_jobs=n_jobs)
        forest.fit(X[taught], codes, sample_weight=evidence.labelled[taught])
        shares[:, forest.classes_] += forest.predict_proba(X) / 2
    return shares


def smooth_with_teacher(
    W: sparse.csr_array,
    evidence: Evidence,
    teacher: Array,
    *,
    gamma: float,
    anchor: float,
    n_threads: int,
) -> Array:
    """Smooth labels over a graph, a teacher's answers standing in weakly where there is none.

    Minimises sum over labelled n of |z_n - y_n|² + anchor · sum over unlabelled n of
    |z_n - teacher_n|² + gamma · tr(Zᵀ L Z): LapTAO's label problem with one more anchor. Where the
    graph knows little, the teacher speaks.
    """
    weak = anchor * evidence.unlabelled
    system = LabelSystem(W, gamma, evidence.labelled + weak, n_threads=n_threads)
    return np.asarray(system.solve(evidence.sums + weak[:, None] * teacher))


def choose_anchor(
    W: sparse.csr_array,
    rows: DistinctRows,
    *,
    gamma: float,
    seed: int,
    n_jobs: int | None,
    n_threads: int,
) -> float:
    """Return how much the forests should count, by how well hidden labels are found again.

    Labels are hidden in folds; the graph and the forests, taught by the rest, answer for them.
    Where classes lie on curved sheets the graph alone is best, on most tables the forests lead.
    """
    known = rows.evidence
    labelled = np.flatnonzero(known.labelled)
    codes = known.sums[labelled].argmax(axis=1)
    even = known.labelled.sum() / max(known.unlabelled.sum(), 1e-300)
    anchors = [min(count * even, 1.0) for count in FORESTS_COUNT]
    order = np.random.default_rng(seed).permutation(len(labelled))
    order = order[np.argsort(codes[order], kind="stable")]  # every fold has its share of a class
    losses = np.zeros(len(anchors))
    for fold in range(min(FOLDS, len(labelled))):
        hidden = np.zeros(len(known.labelled), bool)
        hidden[labelled[order[fold::FOLDS]]] = True
        rest = Evidence(
            np.where(hidden, 0.0, known.labelled),
            known.unlabelled + np.where(hidden, known.labelled, 0.0),
            np.where(hidden[:, None], 0.0, known.sums),
        )
        if not rest.labelled.any():
            continue
        teacher = class_shares_of_forests(rows.X, rest, seed, n_jobs)
        truth = known.sums[hidden].argmax(axis=1)
        for number, anchor in enumerate(anchors):
            Z = smooth_with_teacher(
                W, rest, teacher, gamma=gamma, anchor=anchor, n_threads=n_threads
            )[hidden]
            wrong = Z.argmax(axis=1) != truth
            losses[number] += np.sum(wrong + TIES * (1 - Z[np.arange(len(Z)), truth]))
    return float(anchors[int(losses.argmin())])
