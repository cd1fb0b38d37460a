"""Pointwise losses: (what is true, what the leaf says) -> one number per row.

The class losses are tables: a leaf with class shares p charges ``table(p)[k]`` for a row of
class k. TAO only ever compares the same row in two leaves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from silva.tree import Array


def squared_error(target: Array, answer: Array) -> Array:
    """Return ``|target - answer|²`` of each row."""
    return np.asarray(((target - answer) ** 2).sum(axis=-1))


def misclassification_table(counts: Array) -> Array:
    """0 for the leaf's most frequent class (the first of equals), 1 for every other."""
    table = np.ones_like(counts, dtype=np.float64)
    table[counts.argmax()] = 0
    return table


def squared_table(counts: Array) -> Array:
    """Brier's loss ``|e_k - p|²``: summed over a leaf's rows, its weight times the Gini index."""
    shares = counts / counts.sum()
    return np.asarray(1 - 2 * shares + (shares**2).sum())


def log_table(counts: Array) -> Array:
    """``-log p_k`` with one row's weight spread evenly over the classes, so that it is finite."""
    return np.asarray(-np.log((counts + 1 / len(counts)) / (counts.sum() + 1)))


def total_class_loss(counts: Array, loss: str) -> Array:
    """Return the loss of all rows of each node, from their class counts (nodes, classes)."""
    weight = counts.sum(axis=1)
    if loss == "misclassification":
        return np.asarray(weight - counts.max(axis=1))
    if loss == "squared":
        return np.asarray(weight - (counts**2).sum(axis=1) / np.maximum(weight, 1e-300))
    smooth = (counts + 1 / counts.shape[1]) / (weight + 1)[:, None]
    return np.asarray(-(counts * np.log(smooth)).sum(axis=1))


CLASS_LOSSES: dict[str, Callable[[Array], Array]] = {
    "misclassification": misclassification_table,
    "squared": squared_table,
    "log": log_table,
}
