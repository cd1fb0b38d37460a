"""Embedding objectives: where points want to be on a map, as a value and its gradient.

With affinities W of the rows, symmetric and summing to one, and Z a row of coordinates per point:

    elastic    E(Z) = sum_nm w_nm |z_n - z_m|²  +  λ/N² · sum_{n≠m} exp(-|z_n - z_m|²)
    t-SNE      E(Z) = sum_nm w_nm log(w_nm / q_nm),
               q_nm = k(z_n - z_m) / sum_{n≠m} k(z_n - z_m),    k(z) = 1 / (1 + |z|²)

(Carreira-Perpiñán 2010, eq. 1, with even repulsion; van der Maaten and Hinton 2008). Both pull
neighbours together along the edges of W and push all pairs apart through one number, the sum of a
kernel over all pairs (`silva.pair_sums`), taken exactly or on a grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from silva.pair_sums import CAUCHY, GAUSSIAN, PairSum, pair_sum
from silva.tree import Array


class Energy(Protocol):
    """An objective of the positions of all rows."""

    def __call__(self, Z: Array) -> tuple[float, Array]:
        """Return the value and its gradient."""
        ...

    def terms(self, Z: Array) -> dict[str, float]:
        """Return the parts of the value by name."""
        ...

    def collapse(self, leaf: Array, n_leaves: int) -> Energy:
        """Return the same energy as a function of leaf positions, all rows of a leaf on one."""
        ...

    def exaggerate(self, factor: float) -> Energy:
        """Return the energy with its attraction multiplied."""
        ...


@dataclass(frozen=True, eq=False)
class Elastic:
    """The elastic embedding.

    Attributes
    ----------
    W : CSR array of shape (points, points)
        Symmetric, summing to one; its diagonal has no effect.
    repulsion : float
        λ, with pairs counted in units of the number of all pairs.
    pairs : PairSum
        Of the Gaussian kernel.
    attraction : float
        Factor of the first term, 1 but for a start.
    """

    W: sparse.csr_array
    repulsion: float
    pairs: PairSum
    attraction: float = 1.0
    degree: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", np.asarray(self.W.sum(axis=1)).ravel())

    def _parts(self, Z: Array) -> tuple[float, float, Array]:
        pulled = self.degree[:, None] * Z - self.W @ Z
        near = 2 * self.attraction * float(np.sum(Z * pulled))
        total, push = self.pairs(Z)
        scale = self.repulsion / self.pairs.mass.sum() ** 2
        return near, scale * total, 4 * self.attraction * pulled + scale * push

    def __call__(self, Z: Array) -> tuple[float, Array]:
        """Return the value and its gradient."""
        near, far, gradient = self._parts(Z)
        return near + far, gradient

    def terms(self, Z: Array) -> dict[str, float]:
        """Return attraction and repulsion."""
        near, far, _ = self._parts(Z)
        return {"attraction": near, "repulsion": far}

    def collapse(self, leaf: Array, n_leaves: int) -> Elastic:
        """Return the energy as a function of leaf positions."""
        W, mass = _collapse(self.W, self.pairs.mass, leaf, n_leaves)
        return replace(self, W=W, pairs=replace(self.pairs, mass=mass))

    def exaggerate(self, factor: float) -> Elastic:
        """Return the energy with its attraction multiplied."""
        return replace(self, attraction=factor * self.attraction)


@dataclass(frozen=True, eq=False)
class TSNE:
    """The Kullback-Leibler divergence of t-SNE.

    Attributes
    ----------
    W : CSR array of shape (points, points)
        Symmetric, summing to one.
    entropy : float
        Sum of w·log w over the rows' own affinities, which the positions do not change.
    pairs : PairSum
        Of the Cauchy kernel.
    attraction : float
        Factor of the pull along edges, 1 but for a start.
    """

    W: sparse.csr_array
    entropy: float
    pairs: PairSum
    attraction: float = 1.0
    _upper: sparse.csr_array = field(init=False)  # every edge once
    _row: Array = field(init=False)

    def __post_init__(self) -> None:
        upper = sparse.csr_array(sparse.triu(self.W, k=1, format="csr"))
        row = np.repeat(np.arange(upper.shape[0], dtype=np.int32), np.diff(upper.indptr))
        object.__setattr__(self, "_upper", upper)
        object.__setattr__(self, "_row", row)

    def _parts(self, Z: Array) -> tuple[float, float, Array]:
        W, row = self._upper, self._row
        square = np.zeros(len(row))
        for z in np.ascontiguousarray(Z.T):
            gap = z[row]
            gap -= z[W.indices]
            gap *= gap
            square += gap
        near = 2 * self.attraction * float(W.data @ np.log1p(square))
        square += 1
        pull = sparse.csr_array((W.data / square, W.indices, W.indptr), shape=W.shape)
        sides = np.column_stack([Z, np.ones(len(Z))])
        sums = pull @ sides + pull.T @ sides
        pulled = sums[:, -1:] * Z - sums[:, :-1]
        total, push = self.pairs(Z)
        total = max(total, 1e-300)
        return near, float(np.log(total)), 4 * self.attraction * pulled + push / total

    def __call__(self, Z: Array) -> tuple[float, Array]:
        """Return the value and its gradient."""
        near, far, gradient = self._parts(Z)
        return self.entropy + near + far, gradient

    def terms(self, Z: Array) -> dict[str, float]:
        """Return the divergence."""
        return {"divergence": self(Z)[0]}

    def collapse(self, leaf: Array, n_leaves: int) -> TSNE:
        """Return the energy as a function of leaf positions."""
        W, mass = _collapse(self.W, self.pairs.mass, leaf, n_leaves)
        return replace(self, W=W, pairs=replace(self.pairs, mass=mass))

    def exaggerate(self, factor: float) -> TSNE:
        """Return the energy with its attraction multiplied."""
        return replace(self, attraction=factor * self.attraction)


def elastic(
    W: sparse.csr_array, repulsion: float, *, exact: bool = False, n_threads: int = 1
) -> Elastic:
    """Return the elastic embedding of a graph, whose weights are brought to sum one."""
    W = _normalised(W)
    return Elastic(W, repulsion, pair_sum(GAUSSIAN, np.ones(W.shape[0]), exact, n_threads))


def tsne(W: sparse.csr_array, *, exact: bool = False, n_threads: int = 1) -> TSNE:
    """Return the t-SNE objective of a graph, whose weights are brought to sum one."""
    W = _normalised(W)
    entropy = float(xlogy(W.data, W.data).sum())
    return TSNE(W, entropy, pair_sum(CAUCHY, np.ones(W.shape[0]), exact, n_threads))


def _normalised(W: sparse.csr_array) -> sparse.csr_array:
    total = W.sum()
    return sparse.csr_array(W / (total if total > 0 else 1.0))


def _collapse(
    W: sparse.csr_array, mass: Array, leaf: Array, n_leaves: int
) -> tuple[sparse.csr_array, Array]:
    """Affinities and masses of leaves: sums over their rows."""
    ones = np.ones(len(leaf))
    B = sparse.csr_array((ones, leaf, np.arange(len(leaf) + 1)), shape=(len(leaf), n_leaves))
    return sparse.csr_array(B.T @ W @ B), np.bincount(leaf, mass, minlength=n_leaves)
