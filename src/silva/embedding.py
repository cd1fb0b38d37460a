"""The embedding side of tree embeddings: free maps, maps with a tree pulling at them, leaf places.

The map that a tree draws minimises E(T(X)) with E one of `silva.energies` (slides on tree
embeddings, the parametric objective). `silva.mac` alternates between the tree and coordinates Z,
a row per training row, whose step is

    argmin E(Z) + unit·mu·|Z - target|²

by L-BFGS from where they are. With mu = 0 it is the free embedding, which has no mapping in mind.
`unit` is the first weight of the constraint: mu counts from 1, and so does what the tree's penalty
is divided by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from sklearn.utils.extmath import randomized_svd

from silva.energies import Energy
from silva.kernels import Matrix
from silva.leaves import Basis
from silva.tree import Array, Tree

MEMORY = 10  # steps that L-BFGS remembers
TWO_MEANS_ROUNDS = 20
MARGIN = 3.0  # mean distance from the first hyperplanes, as logistic ones have it
SMALLEST_LEAF = 5  # rows of the first tree
RIDGE = 1.0  # of the first tree's hyperplanes and of refined leaves, in units of the basis


# ---- coordinates --------------------------------------------------------------------------------


class EmbeddedRows:
    """Coordinates of tree embeddings for `silva.mac.alternate`.

    Parameters
    ----------
    energy : Energy
    free : array of shape (rows, components)
        The free embedding.
    unit : float
        What a weight of 1 stands for.
    iterations : int
        Of L-BFGS per step.
    """

    def __init__(self, energy: Energy, free: Array, *, unit: float, iterations: int) -> None:
        self._energy, self._free = energy, free
        self._unit, self._iterations = unit, iterations

    def initial(self) -> Array:
        """Return the free embedding."""
        return self._free

    def step(self, target: Array, mu: float, Z: Array) -> Array:
        """Move the points a few steps down, the target pulling at them."""
        return descend(pulled(self._energy, target, mu * self._unit), Z, self._iterations)

    def energy(self, Z: Array) -> dict[str, float]:
        """Return the terms of E."""
        return self._energy.terms(Z)


def pulled(energy: Energy, target: Array, weight: float) -> Callable[[Array], tuple[float, Array]]:
    """Return E(Z) + weight·|Z - target|² and its gradient as a function."""

    def function(Z: Array) -> tuple[float, Array]:
        value, gradient = energy(Z)
        gap = Z - target
        return value + weight * float(np.sum(gap**2)), gradient + 2 * weight * gap

    return function


def descend(
    function: Callable[[Array], tuple[float, Array]], start: Array, iterations: int
) -> Array:
    """Return where L-BFGS comes to from an array of any shape."""
    if iterations == 0:
        return start
    _, gradient = function(start)
    size = float(np.abs(gradient).max()) or 1.0  # its first step is of the order of the gradient

    def flat(point: Array) -> tuple[float, Array]:
        value, gradient = function(point.reshape(start.shape))
        return value / size, gradient.ravel() / size

    found = minimize(
        flat,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": iterations, "maxcor": MEMORY, "ftol": 0, "gtol": 1e-8},
    )
    return np.asarray(found.x.reshape(start.shape))


def free_embedding(
    energy: Energy,
    start: Array,
    stages: Sequence[tuple[float, int]],
    pull: float,
    verbose: int = 0,
) -> Array:
    """Return a map that minimises the energy alone.

    Neighbours attract each other more at first, which keeps them from being trapped behind others
    (early exaggeration; Carreira-Perpiñán 2010 does the same by a growing λ).

    Parameters
    ----------
    energy : Energy
    start : array of shape (rows, components)
    stages : sequence of (float, int)
        Factors of the attraction and iterations at each; the last factor is 1.
    pull : float
        Weight of the mean square distance from the origin. The size of a t-SNE map is all but free
        once clusters are apart, and a long step can blow it up.
    verbose : int
        Positive: a line of progress per stage.
    """
    Z, middle = start, np.zeros_like(start)
    for factor, iterations in stages:
        began = time.perf_counter()
        Z = descend(pulled(energy.exaggerate(factor), middle, pull / len(Z)), Z, iterations)
        if verbose > 0:
            seconds = time.perf_counter() - began
            print(
                f"[map] attraction x{factor:g}  energy {energy(Z)[0]:.6g}  {seconds:.2f} s",
                flush=True,
            )
    return Z


def principal_basis(X: Matrix, n_directions: int, seed: int) -> Basis:
    """Return the principal directions of the rows, in units of the largest deviation.

    Sparse rows are not centred.
    """
    n, d = X.shape
    centre = np.zeros(d)
    if not sparse.issparse(X):
        centre = np.asarray(X.mean(axis=0, dtype=np.float64))
        X = X - centre.astype(X.dtype)
    k = min(n_directions, n, d)
    _, size, directions = randomized_svd(X, k, random_state=seed, n_iter=4)
    unit = float(size[0]) / np.sqrt(n) or 1.0
    directions = directions.astype(np.float64) / unit
    return Basis(np.asarray(X @ directions.T, dtype=np.float64), directions, centre)


# ---- the first tree -----------------------------------------------------------------------------


def clustered_tree(Z: Array, basis: Basis, max_depth: int) -> Tree:
    """Return a tree that cuts a map in two again and again; its leaves answer nothing yet.

    The rows of a node fall into two clusters on the map, and its hyperplane is a ridge regression
    of the two sides on the basis. Two rows that are near on the map are then near in the tree.
    """
    left: list[int] = []
    right: list[int] = []
    planes: list[Array] = []
    threshold: list[float] = []
    S = basis.scores

    def grow(rows: Array, depth: int) -> int:
        node = len(left)
        left.append(-1)
        right.append(-1)
        planes.append(np.zeros(S.shape[1]))
        threshold.append(0.0)
        if depth == 0 or len(rows) < 2 * SMALLEST_LEAF:
            return node
        w, bias = _plane(S[rows], two_means(Z[rows]))
        margin = S[rows] @ w + bias
        size = MARGIN / float(np.abs(margin).mean())
        w, bias, goes_right = size * w, size * bias, margin >= 0
        if min(goes_right.sum(), (~goes_right).sum()) < SMALLEST_LEAF:
            return node
        planes[node], threshold[node] = w, -bias
        left[node] = grow(rows[~goes_right], depth - 1)
        right[node] = grow(rows[goes_right], depth - 1)
        return node

    grow(np.arange(len(Z)), max_depth)
    coefficients = np.array(planes) @ basis.directions
    is_leaf = np.array(left) < 0
    rows = sparse.csr_array(coefficients)
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    return Tree(
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        coefficients=rows,
        threshold=np.where(is_leaf, 0.0, np.array(threshold) + coefficients @ basis.centre),
        values=np.zeros((int(is_leaf.sum()), Z.shape[1])),
        weight=np.zeros(len(left)),
    )


def two_means(Z: Array) -> Array:
    """Return which of two clusters each point is in, from a cut across its longest axis."""
    centred = Z - Z.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    side = centred @ axes[:, -1] >= 0
    for _ in range(TWO_MEANS_ROUNDS):
        if side.all() or not side.any():
            break
        one, other = Z[side].mean(axis=0), Z[~side].mean(axis=0)
        new = (Z - (one + other) / 2) @ (one - other) >= 0
        if (new == side).all():
            break
        side = new
    return np.asarray(side)


def _plane(S: Array, side: Array) -> tuple[Array, float]:
    """Ridge regression of ±1 on the scores, the bias free."""
    aim = np.where(side, 1.0, -1.0)
    middle = S.mean(axis=0)
    centred = S - middle
    gram = centred.T @ centred + RIDGE * np.eye(S.shape[1])
    w = np.linalg.solve(gram, centred.T @ (aim - aim.mean()))
    return w, float(aim.mean() - middle @ w)


# ---- the leaves, decisions fixed ----------------------------------------------------------------


def refine_leaves(
    energy: Energy, tree: Tree, leaf: Array, basis: Basis | None, iterations: int
) -> Tree:
    """Return the tree with the answers of its leaves moved down the energy itself.

    With the decisions fixed, the map is a smooth function of the leaf places (and slopes), which
    L-BFGS takes straight to a minimum of E: what the leaf refit is to LapTAO (its section 3.3).

    Parameters
    ----------
    energy : Energy
    tree : Tree
    leaf : int array of shape (rows,)
        Leaf of each training row.
    basis : Basis or None
        What the slopes of linear leaves may be made of; not needed where leaves are constant.
    iterations : int
    """
    if tree.slopes is None:
        places = descend(energy.collapse(leaf, tree.n_leaves), tree.values, iterations)
        return tree.with_leaves(places)
    if basis is None:
        raise ValueError("linear leaves are refined over a basis, got None")
    order = np.argsort(leaf, kind="stable")
    ends = np.searchsorted(leaf[order], np.arange(tree.n_leaves + 1))
    parts = [order[a:b] for a, b in pairwise(ends)]
    whitened, colour = _whiten(basis.scores, parts)
    # A leaf answers place + turn @ whitened score; both begin as the leaf's own line.
    slopes = tree.slopes @ np.linalg.pinv(basis.directions)
    places = tree.values + tree.slopes @ basis.centre
    turn = np.einsum("loj,lji->loi", slopes, np.linalg.inv(colour).transpose(0, 2, 1))
    for number, rows in enumerate(parts):
        if rows.size:
            places[number] += slopes[number] @ (basis.scores[rows].mean(axis=0))
    start = np.concatenate([turn, places[:, :, None]], axis=2)

    def mapped(theta: Array) -> Array:
        Z = np.empty((len(leaf), tree.n_outputs))
        for number, rows in enumerate(parts):
            Z[rows] = whitened[rows] @ theta[number, :, :-1].T + theta[number, :, -1]
        return Z

    def function(theta: Array) -> tuple[float, Array]:
        value, force = energy(mapped(theta))
        gradient = np.zeros_like(theta)
        for number, rows in enumerate(parts):
            gradient[number, :, :-1] = force[rows].T @ whitened[rows]
            gradient[number, :, -1] = force[rows].sum(axis=0)
        return value, gradient

    theta = descend(function, start, iterations)
    Z = mapped(theta)
    slopes = np.einsum("loi,lji->loj", theta[:, :, :-1], colour)
    places = theta[:, :, -1].copy()
    bounds = np.stack([places, places])
    for number, rows in enumerate(parts):
        if rows.size:
            places[number] -= slopes[number] @ basis.scores[rows].mean(axis=0)
            bounds[:, number] = Z[rows].min(axis=0), Z[rows].max(axis=0)
    wide = slopes @ basis.directions
    return tree.with_leaves(places - wide @ basis.centre, None, wide, bounds)


def _whiten(S: Array, parts: list[Array]) -> tuple[Array, Array]:
    """Scores around their leaf's mean with unit covariance, and the maps that make them so.

    A ridge of `RIDGE` rows' worth keeps directions small that a leaf's rows hardly tell apart:
    L-BFGS then moves them last.
    """
    k = S.shape[1]
    whitened, colour = np.zeros_like(S), np.tile(np.eye(k), (len(parts), 1, 1))
    for number, rows in enumerate(parts):
        if rows.size:
            centred = S[rows] - S[rows].mean(axis=0)
            gram = (centred.T @ centred + RIDGE * np.eye(k)) / rows.size
            value, vector = np.linalg.eigh(gram)
            colour[number] = vector / np.sqrt(value)  # score @ colour is white
            whitened[rows] = centred @ colour[number]
    return whitened, colour
