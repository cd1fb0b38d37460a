"""The kernel table in plain NumPy: the readable truth that the compiled core is tested against.

One formula a function, float64 throughout, for small data: sparse training rows are written out,
and the loss of every row in every leaf stands in one matrix. What is minimised is what
`silva.kernels.cpu` minimises; how is different on purpose. A node's logistic problem is solved to
the end by a bound-constrained quasi-Newton method, an axis split by trying all of them, a linear
leaf from its rows every time. docs/tao.md lists the papers: LapTAO is [3], boosted TAO is [4].
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit

from silva.kernels import LeafAnswers, Matrix, Planes, Rows
from silva.kernels.reference_leaves import LeafModel, LineLeaves, MeanLeaves, ShareLeaves
from silva.leaves import ClassShares, Leaves, Linear
from silva.splits import Axis, Oblique, Split
from silva.tree import Array

# ---- rows and planes ----------------------------------------------------------------------------


def prepare(X: Matrix, n_threads: int, weight: Array | None = None) -> Rows:
    """Scale the training rows: each column around its mean and divided by its width.

    The width is the geometric mean of the range and four deviations, or the largest absolute
    value if X is sparse, which has no centre then.

    Parameters
    ----------
    X : float32 or float64 array, or CSR
    n_threads : int
        Not used: this table has one thread.
    weight : array, optional
        Weights of the rows, for means and deviations.
    """
    if sparse.issparse(X):
        dense = X.toarray().astype(np.float64)
        centre, scale = np.zeros(X.shape[1]), abs(dense).max(axis=0)
    else:
        dense = np.asarray(X, dtype=np.float64)
        low, width = dense.min(axis=0), np.ptp(dense, axis=0)
        share = (dense - low) / np.where(width > 0, width, 1)  # of the range: nothing overflows
        mean = np.average(share, axis=0, weights=weight)
        deviation = np.sqrt(np.average((share - mean) ** 2, axis=0, weights=weight))
        centre, scale = low + width * mean, width * np.sqrt(4 * deviation)
    scale[scale == 0] = 1
    return Rows((dense - centre) / scale, centre, scale, len(dense))


def pack(weights: Array, bias: Array) -> Planes:
    """Return dense hyperplanes (nodes, features) as CSR arrays, in float32 as all tables do."""
    rows = sparse.csr_array(weights.astype(np.float32))
    return Planes(
        begin=rows.indptr.astype(np.int32),
        index=rows.indices.astype(np.int32),
        value=rows.data,
        bias=bias.astype(np.float32),
    )


def unpack(planes: Planes, n_features: int) -> tuple[Array, Array]:
    """Return dense hyperplanes (nodes, features) and their biases."""
    shape = (len(planes.bias), n_features)
    rows = sparse.csr_array((planes.value, planes.index, planes.begin), shape=shape)
    return rows.toarray().astype(np.float64), planes.bias.astype(np.float64)


def descend(
    X: Matrix, left: Array, right: Array, weights: Matrix, threshold: Array, root: int = 0
) -> Array:
    """Return the leaf node that each row reaches from `root`: right when w·x >= threshold."""
    at = np.full(X.shape[0], root, np.int32)
    for node in np.flatnonzero(left >= 0):  # parents come before their children
        here = np.flatnonzero(at == node)
        if here.size:
            w = weights[[node]].toarray()[0] if sparse.issparse(weights) else weights[node]
            at[here] = np.where(X[here] @ w >= threshold[node], right[node], left[node])
    return at


def route(
    X: Matrix,
    left: Array,
    right: Array,
    coefficients: sparse.csr_array,
    threshold: Array,
    n_threads: int,
) -> Array:
    """Return the leaf node of each row, in the user's units."""
    return descend(X, left, right, coefficients, threshold)


# ---- the node problem ---------------------------------------------------------------------------


def logistic_plane(X: Array, weight: Array, side: Array, split: Oblique) -> tuple[Array, float]:
    """Return the sparse hyperplane of a node (boosted TAO paper, eq. 4; LapTAO paper, section 3.2).

    Minimises ``sum_i c_i log(1 + exp(-s_i (w·x_i + b))) + alpha |w|_1 + l2/2 |w|_2^2`` with
    s = ±1 for right and left. With w = u - v, u and v >= 0, the norm is the sum of u and v and the
    problem is smooth with bounds.
    """
    sign, total, d = 2 * side - 1, weight.sum(), X.shape[1]

    def value_and_gradient(point: Array) -> tuple[float, Array]:
        w, bias = point[:d] - point[d:-1], point[-1]
        margin = sign * (X @ w + bias)
        slope = -weight * sign * expit(-margin)
        value = weight @ np.logaddexp(0, -margin)
        value += split.alpha * point[:-1].sum() + split.l2 / 2 * (w @ w)
        g = X.T @ slope + split.l2 * w
        gradient = np.concatenate([split.alpha + g, split.alpha - g, [slope.sum()]])
        return value / total, gradient / total

    found = minimize(
        value_and_gradient,
        np.zeros(2 * d + 1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * (2 * d) + [(None, None)],
        options={"maxiter": 20_000, "maxfun": 40_000, "maxcor": 30, "ftol": 0, "gtol": 1e-8},
    )
    return found.x[:d] - found.x[d:-1], float(found.x[-1])


def axis_plane(X: Array, weight: Array, side: Array, split: Axis) -> tuple[Array, float]:
    """Return the best single-feature test of a node, by trying them all.

    Minimises the weight sent to its worse side, plus alpha for a test (LapTAO paper, section 3.1,
    with one feature). Sending all rows to one side needs no test. The first of equals wins: by
    feature, by threshold, larger values to the right before larger values to the left.
    """
    preference = np.where(side > 0, weight, -weight)  # what a row gains on the right
    total, tie = preference.sum(), 1e-6 * weight.sum()  # rounding must not decide between equals
    best, plane = max(total, 0.0) + split.alpha, (0, 0.0, 1.0 if total > 0 else -1.0)
    for feature in range(X.shape[1]):
        values = np.unique(X[:, feature])
        for low, high in pairwise(values):
            middle = low + (high - low) / 2
            middle = middle if middle > low else high
            above = preference[X[:, feature] >= middle].sum()
            for gain, direction in ((above, 1.0), (total - above, -1.0)):
                if gain > best + tie:
                    best, plane = gain, (feature, direction, -direction * middle)
    feature, coefficient, bias = plane
    w = np.zeros(X.shape[1])
    w[feature] = coefficient
    return w, bias


def best_plane(X: Array, weight: Array, side: Array, split: Split) -> tuple[Array, float]:
    """Return the plane of a node; all rows to one side where all prefer it."""
    if (side > 0).all() or not (side > 0).any():
        return np.zeros(X.shape[1]), 1.0 if side[0] > 0 else -1.0
    if not isinstance(split, Oblique):
        return axis_plane(X, weight, side, split)
    plane = logistic_plane(X, weight, side, split)
    if not split.or_axis:
        return plane
    planes = plane, axis_plane(X, weight, side, Axis(split.alpha))
    return min(planes, key=lambda p: plane_price(p[0], split) + misrouted(X, weight, side, *p))


def misrouted(X: Array, weight: Array, side: Array, w: Array, bias: float) -> float:
    """Return the weight that a plane sends to its worse side (boosted TAO paper, eq. 4)."""
    return float(weight[(X @ w + bias >= 0) != (side > 0)].sum())


def plane_price(w: Array, split: Split) -> float:
    """Return a node's penalty phi (boosted TAO paper, eq. 2): its L1 norm, or one for a test."""
    size = abs(w).sum() if isinstance(split, Oblique) else float(w.any())
    return float(split.alpha * size)


def node_problem(
    rows: Rows, weight: Array, side: Array, split: Split, tolerance: float, n_threads: int
) -> Planes:
    """Solve one node problem on all rows.

    Parameters
    ----------
    weight : array
        How much it matters which side a row goes; rows of weight zero have no say.
    side : array
        1 where right is better, else 0.
    tolerance : float
        Not used: problems are solved to the end.
    """
    cares = weight > 0
    c, t = weight[cares].astype(np.float64), side[cares].astype(np.float64)
    w, bias = best_plane(rows.store[cares], c, t, split)
    return pack(w[None], np.array([bias]))


# ---- tree alternating optimisation --------------------------------------------------------------


class Session:
    """One tree being optimised (LapTAO paper, section 3.1; boosted TAO paper, algorithm 2)."""

    def __init__(
        self,
        X: Array,
        left: Array,
        right: Array,
        planes: Planes,
        model: LeafModel,
        split: Split,
        monotone: bool,
    ) -> None:
        self._X, self._left, self._right = X, left, right
        self._model, self._split, self._monotone = model, split, monotone
        self._leaf_number = np.cumsum(left < 0) - 1
        self._depth = np.zeros(len(left), np.intp)
        for node in np.flatnonzero(left >= 0):
            self._depth[[left[node], right[node]]] = self._depth[node] + 1
        self.n_levels = int(self._depth.max())
        self._leaf = np.zeros(len(X), np.intp)
        self.set_planes(planes)

    def set_planes(self, planes: Planes) -> None:
        """Put planes in place of the current ones."""
        self._weights, self._bias = unpack(planes, self._X.shape[1])
        self._weights[self._left < 0] = 0

    def planes(self) -> Planes:
        """Return the current planes."""
        return pack(self._weights, self._bias)

    def penalty(self) -> float:
        """Return the price of all decision nodes (boosted TAO paper, eq. 2)."""
        nodes = sum(plane_price(w, self._split) for w in self._weights)
        return nodes + self._model.penalty()

    def n_nonzeros(self) -> int:
        """Return the number of coefficients in use."""
        return int(np.count_nonzero(self._weights))

    def answers(self) -> LeafAnswers:
        """Return the current answers of the leaves."""
        return self._model.answers()

    def route(self) -> None:
        """Send every row to its leaf."""
        self._leaf = self._reached(np.arange(len(self._X)), 0)

    def assign(self, leaf_node: Array) -> None:
        """Put every row into a given leaf node."""
        if (self._left[leaf_node] >= 0).any():
            raise ValueError("assign: a row was given to a decision node")
        self._leaf = self._leaf_number[leaf_node]

    def fit_leaves(self) -> float:
        """Refit the answers to the current partition; return the loss."""
        self._model.fit(self._leaf)
        # Single precision as in the core: what is equal there is equal here.
        self._losses = self._model.losses().astype(np.float32).astype(np.float64)
        return float(self._losses[np.arange(len(self._leaf)), self._leaf].sum())

    def update_level(self, level: int, from_current: bool) -> None:
        """Solve all node problems of a level; where they begin does not matter to the end."""
        for node in np.flatnonzero((self._depth == level) & (self._left >= 0)):
            self._update_node(int(node))

    def _reached(self, rows: Array, node: int) -> Array:
        """Return the leaf number that the rows reach from a node."""
        X, tree = self._X[rows], (self._left, self._right)
        return self._leaf_number[descend(X, *tree, self._weights, -self._bias, node)]

    def _rows_at(self, node: int) -> Array:
        """Return the reduced set of a node: the rows that reach it."""
        inside = np.zeros(len(self._left), bool)
        inside[node] = True
        for parent in np.flatnonzero(self._left >= 0):
            inside[[self._left[parent], self._right[parent]]] |= inside[parent]
        numbers = self._leaf_number[inside & (self._left < 0)]
        return np.flatnonzero(np.isin(self._leaf, numbers))

    def _update_node(self, node: int) -> None:
        """Solve the reduced problem of one decision node (boosted TAO paper, eqs. 3 and 4).

        Each row goes down both children; the pseudolabel is the better side, the weight what it
        gains there. Rows that lose the same on both sides have no say.
        """
        rows = self._rows_at(node)
        if not rows.size:
            return
        leaf = np.stack([self._reached(rows, c[node]) for c in (self._left, self._right)])
        loss = self._losses[rows, leaf]
        gain = loss[0] - loss[1]
        cares = gain != 0
        if cares.any():
            side = (gain[cares] > 0).astype(float)
            w, bias = best_plane(self._X[rows[cares]], abs(gain[cares]), side, self._split)
        elif isinstance(self._split, Axis) and np.count_nonzero(self._weights[node]) > 1:
            w, bias = np.zeros(self._X.shape[1]), -1.0  # a tree of single features
        else:
            return
        w, bias = w.astype(np.float32).astype(np.float64), float(np.float32(bias))
        side = (self._X[rows] @ w + bias >= 0).astype(np.intp)
        every = np.arange(len(rows))
        now = (self._leaf[rows] == leaf[1]).astype(np.intp)
        change = plane_price(w, self._split) - plane_price(self._weights[node], self._split)
        change += (loss[side, every] - loss[now, every]).sum()
        if self._monotone and change > 0:
            return
        self._weights[node], self._bias[node] = w, bias
        self._leaf[rows] = leaf[side, every]


def session(
    rows: Rows,
    left: Array,
    right: Array,
    planes: Planes,
    leaves: Leaves,
    weight: Array,
    split: Split,
    monotone: bool,
    n_threads: int,
) -> Session:
    """Open a session on a tree given in scaled units."""
    n_leaves, weight = int((left < 0).sum()), weight.astype(np.float64)
    model: LeafModel
    if isinstance(leaves, ClassShares):
        model = ShareLeaves(leaves, weight, n_leaves)
    elif isinstance(leaves, Linear):
        columns = rows.store if leaves.basis is None else leaves.basis.scores
        model = LineLeaves(leaves, columns, weight, n_leaves)
    else:
        model = MeanLeaves(leaves, weight, n_leaves)
    return Session(rows.store, left, right, planes, model, split, monotone)


# ---- first trees --------------------------------------------------------------------------------


def grow_start(
    rows: Rows,
    leaves: Leaves,
    direction: str,
    max_depth: int,
    min_rows: int,
    seed: int,
    weight: Array | None = None,
) -> tuple[Array, Array, Planes]:
    """Draw a first tree: hyperplanes by `direction`, thresholds at the median.

    Parameters
    ----------
    direction : {"means", "gaussian", "axis"}
        Difference of the means of two groups of rows, normal weights, or one random column.
    """
    left: list[int] = []
    right: list[int] = []
    weights: list[Array] = []
    bias: list[float] = []
    X = rows.store
    share: Array = np.ones(len(X)) if weight is None else weight

    def grow(here: Array, depth: int, path: int) -> int:
        node = len(left)
        left.append(-1)
        right.append(-1)
        weights.append(np.zeros(X.shape[1]))
        bias.append(-1.0)
        if depth == max_depth or len(here) < max(min_rows, 2):
            return node
        random = np.random.default_rng([seed, path])  # a stream for each place in the tree
        w = draw_direction(X[here], leaves, here, share[here], direction, random)
        score = X[here] @ w
        values = np.unique(score)
        if len(values) < 2:
            return node
        middle = max(int(np.searchsorted(values, median(score, share[here]))), 1)
        cut = (values[middle - 1] + values[middle]) / 2
        weights[node], bias[node] = w, -cut
        left[node] = grow(here[score < cut], depth + 1, 2 * path)
        right[node] = grow(here[score >= cut], depth + 1, 2 * path + 1)
        return node

    grow(np.arange(len(X)), 0, 1)
    planes = pack(np.array(weights), np.array(bias))
    return np.array(left, np.int32), np.array(right, np.int32), planes


def median(values: Array, weight: Array) -> float:
    """Return the value in the middle of the weight, the upper one of two."""
    order = np.argsort(values)
    passed = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(passed, passed[-1] / 2, side="right")])


def draw_direction(
    X: Array,
    leaves: Leaves,
    here: Array,
    weight: Array,
    direction: str,
    random: np.random.Generator,
) -> Array:
    """Return the hyperplane of a node; where there are no two groups, normal weights.

    These are on the columns that vary: others would keep their weights, unseen by the optimiser.
    """
    if direction == "axis":
        return np.asarray(np.eye(X.shape[1])[random.integers(X.shape[1])])
    if direction == "means":
        high, low = two_groups(leaves, here, weight, random)
        if high.any() and low.any():
            means = [np.average(X[part], axis=0, weights=weight[part]) for part in (high, low)]
            return np.asarray(means[0] - means[1])
    return np.asarray(random.normal(size=X.shape[1]) * (np.ptp(X, axis=0) > 0))


def two_groups(
    leaves: Leaves, here: Array, weight: Array, random: np.random.Generator
) -> tuple[Array, Array]:
    """Return two random classes of a node, or the rows above and below the median target."""
    if isinstance(leaves, ClassShares):
        codes = leaves.codes[here, 0]
        present = np.unique(codes)
        if len(present) < 2:
            return np.zeros(len(here), bool), np.zeros(len(here), bool)
        one, other = random.choice(present, 2, replace=False)
        return codes == one, codes == other
    target = leaves.targets[here] @ random.normal(size=leaves.targets.shape[1])
    middle = median(target, weight)
    return target > middle, target < middle
