"""Rows that are equal: telling them apart by a hash, and counting copies as one row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from silva.kernels import Matrix
from silva.tree import Array

CHUNK = 4096  # rows compared at a time


@dataclass(frozen=True, eq=False)
class Copies:
    """Which rows are equal.

    Attributes
    ----------
    first : int array of shape (distinct,)
        Lowest row of each group of equal rows, ascending.
    group : int array of shape (rows,)
        Group of each row.
    member : int array of shape (rows,)
        The rows, group by group, ascending within one.
    begin : int array of shape (distinct + 1,)
        Where each group begins in `member`.
    """

    first: Array
    group: Array
    member: Array
    begin: Array

    @property
    def size(self) -> Array:
        """Rows of each group."""
        return np.diff(self.begin)


def find_copies(X: Matrix) -> Copies:
    """Find the rows that are equal, by a hash of each row that is checked."""
    keys = row_groups(X, 0)
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    if not _are_copies(X, first[group]):  # two rows of one key: practically never
        dense = X.toarray() if sparse.issparse(X) else X
        _, first, group = np.unique(dense, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)  # number groups by their first row
    rank[np.argsort(first)] = np.arange(len(first))
    group = rank[group.ravel()]
    begin = np.concatenate([[0], np.cumsum(np.bincount(group))])
    return Copies(np.sort(first), group, np.argsort(group, kind="stable"), begin)


def _are_copies(X: Matrix, original: Array) -> bool:
    """Say whether each row equals its original."""
    rows = np.flatnonzero(original != np.arange(X.shape[0]))
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        differ = X[part] != X[original[part]]
        if differ.nnz if sparse.issparse(X) else differ.any():
            return False
    return True


def row_groups(X: Matrix, seed: int) -> Array:
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
