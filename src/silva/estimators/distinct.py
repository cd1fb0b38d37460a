"""Telling rows apart: copies of a row are one row of their joint weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from silva.tree import Array


def distinct_rows(X: Any) -> tuple[Array, Array]:
    """Return where each distinct row comes first, and which of them every row is.

    They are numbered in order of appearance.
    """
    _, first, member = np.unique(row_groups(X, 0), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[member]


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
