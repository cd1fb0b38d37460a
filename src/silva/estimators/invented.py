"""Rows invented between neighbours, for a tree to learn what its teacher says there as well."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from silva.estimators.fidelity import Targets
from silva.kernels import Matrix
from silva.tree import Array

SIDE = 0.5  # weight of an added row


@dataclass(frozen=True, eq=False)
class Invented:
    """Rows between those that there are.

    Attributes
    ----------
    X : matrix
    Z : array of shape (rows, outputs)
        What the teacher says of them.
    row, other : int arrays
        The two rows that each is from.
    """

    X: Matrix
    Z: Array
    row: Array
    other: Array


def mixed_rows(
    X: Matrix, W: sparse.csr_array, source: Array, number: int, seed: int
) -> tuple[Matrix, Array, Array]:
    """Return rows that have half of their columns from a row and half from a neighbour of it.

    Parameters
    ----------
    X : matrix
        Encoded rows.
    W : CSR array
        The graph of neighbours.
    source : int array
        Input column of each encoded one; those of one input column go together.
    number : int
        How many, unless fewer rows have neighbours.
    seed : int

    Returns
    -------
    X, row, other
        The rows, and the two that each is from.
    """
    rng = np.random.default_rng(seed)
    degree = np.diff(W.indptr)
    row = rng.permutation(np.flatnonzero(degree))[:number]
    other = W.indices[W.indptr[row] + (rng.random(len(row)) * degree[row]).astype(int)]
    swapped = (rng.random((len(row), int(source.max(initial=0)) + 1)) < 0.5)[:, source]
    if sparse.issparse(X):
        kept = X[row] - X[row].multiply(swapped)
        return sparse.csr_array(kept + X[other].multiply(swapped)), row, other
    return np.where(swapped, X[other], X[row]), row, other


def with_invented(targets: Targets, part: Array, invented: Invented) -> Targets:
    """Return some of the rows, and the invented ones that are from two of these."""
    there = np.zeros(len(targets.Z), bool)
    there[part] = True
    added = there[invented.row] & there[invented.other]
    some = targets.on(part)
    if not added.any():
        return some
    both = [some.X, invented.X[added]]
    X = sparse.csr_array(sparse.vstack(both)) if sparse.issparse(some.X) else np.concatenate(both)
    weight = np.full(np.count_nonzero(added), SIDE * targets.weight.mean())
    return replace(
        some,
        X=X,
        Z=np.concatenate([some.Z, invented.Z[added]]),
        weight=np.concatenate([some.weight, weight]),
    )
