"""Predictive clustering trees: greedy trees that look at labels and at unlabelled rows.

Each node is split by the feature and threshold that lower most (Levatić, Ceci, Kocev & Džeroski
2017, semi-supervised classification trees)

    impurity = w · impurity of the targets + (1 - w)/D · sum over D features of their variance,

the first over the labelled rows of the node (Gini for classes, the variance for numbers), the
second over all of them, each divided by its value at the root. w = 1 is a supervised greedy tree,
w = 0 a clustering of the rows. A leaf answers the mean target of its labelled rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from silva.kernels import Matrix, Rows, cpu
from silva.kernels.clustering import ClusteringSearch, column_deviations
from silva.tree import Array, Tree, node_totals


@dataclass(frozen=True)
class Growth:
    """How a tree grows.

    Attributes
    ----------
    supervision : float
        The weight w of the labels, from 0 to 1.
    max_depth : int or None
        Most decisions on a way down.
    min_rows, min_labelled : int
        Fewest rows, and labelled rows, in a leaf.
    max_features : int or None
        Columns tried at a node, drawn at random; more are drawn while none of them splits.
    max_bins : int
        Most bins of a column at a node: thresholds lie between them.
    """

    supervision: float
    max_depth: int | None = None
    min_rows: int = 1
    min_labelled: int = 1
    max_features: int | None = None
    max_bins: int = 255


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows of which some are labelled.

    Attributes
    ----------
    X : matrix
        Rows in the user's units.
    rows : Rows
        The same as the compiled table stores them.
    deviation : array of shape (columns,)
        Standard deviations in the units of `rows`.
    targets : float64 array of shape (rows, outputs)
        Numbers, or class indicators; any value where the row is unlabelled.
    labelled : bool array of shape (rows,)
    weight : float64 array of shape (rows,)
        Positive.
    together : bool
        Whether the outputs' variances are added up before they are divided by the root's, as
        Gini's impurity is, or each is divided by its own.
    n_threads : int
    """

    X: Matrix
    rows: Rows
    deviation: Array
    targets: Array
    labelled: Array
    weight: Array
    together: bool
    n_threads: int

    @classmethod
    def pose(
        cls,
        X: Matrix,
        targets: Array,
        labelled: Array,
        weight: Array,
        *,
        together: bool,
        n_threads: int,
    ) -> Problem:
        """Prepare the rows."""
        rows = cpu.prepare(X, n_threads, weight)
        deviation = column_deviations(X, weight, n_threads) / rows.scale
        return cls(X, rows, deviation, targets, labelled, weight, together, n_threads)

    def on(self, part: Array) -> Problem:
        """Return the same problem on some of the rows."""
        return Problem.pose(
            self.X[part],
            self.targets[part],
            self.labelled[part],
            self.weight[part],
            together=self.together,
            n_threads=self.n_threads,
        )

    @property
    def target_variance(self) -> Array:
        """Variance of each output among the labelled rows; exactly 0 where it does not vary."""
        targets, mass = self.targets[self.labelled], self.weight[self.labelled]
        centred = targets - np.average(targets, axis=0, weights=mass)
        variance = np.average(centred**2, axis=0, weights=mass)
        return np.where(np.ptp(targets, axis=0) > 0, variance, 0.0)

    def search(self, growth: Growth) -> ClusteringSearch:
        """Open the search for splits: the prices are the paper's weights over the root's values."""
        w, known = growth.supervision, self.labelled
        variance = self.target_variance
        whole = variance.sum() if self.together else variance * len(variance)
        varies = self.deviation > 0
        return ClusteringSearch(
            self.rows,
            self.weight,
            np.where(known, np.cumsum(known) - 1, -1),
            self.targets[known],
            w / np.where(whole > 0, whole, np.inf) * np.ones(len(variance)),
            (1 - w) / np.where(varies, varies.sum() * self.deviation**2, np.inf),
            growth.min_rows,
            growth.min_labelled,
            growth.max_bins,
            self.n_threads,
        )


def grow(problem: Problem, growth: Growth, seed: int) -> Tree:
    """Grow a tree; return it in the user's units, with the weight of all rows at its nodes.

    Parameters
    ----------
    problem : Problem
    growth : Growth
        With w = 1 the unlabelled rows take no part, not even in where a threshold lies.
    seed : int
        For the columns drawn at each node.
    """
    supervised = growth.supervision == 1 and not problem.labelled.all()
    tree = _decide(problem.on(problem.labelled) if supervised else problem, growth, seed)
    nodes = cpu.route(
        problem.X, tree.left, tree.right, tree.coefficients, tree.threshold, problem.n_threads
    )
    leaf = tree.leaf_index[nodes]
    reached = node_totals(tree, np.bincount(leaf, problem.weight, minlength=tree.n_leaves))
    return tree.with_leaves(_answers(tree, leaf, problem), reached)


def _decide(problem: Problem, growth: Growth, seed: int) -> Tree:
    """Return the decisions of a tree; its leaves answer nothing yet."""
    search = problem.search(growth)
    columns = np.flatnonzero(problem.deviation > 0).astype(np.int32)
    by_column = problem.X.tocsc() if sparse.issparse(problem.X) else problem.X
    left: list[int] = []
    right: list[int] = []
    feature: list[int] = []
    threshold: list[float] = []
    stack = [(np.arange(len(problem.weight), dtype=np.uint32), 0, -1, left)]
    while stack:
        rows, depth, parent, side = stack.pop()
        node = len(left)
        if parent >= 0:
            side[parent] = node
        left.append(-1)
        right.append(-1)
        feature.append(-1)
        threshold.append(0.0)
        if depth == growth.max_depth or _is_settled(problem, growth, rows):
            continue
        found = _split(search, rows, columns, growth.max_features, [seed, node])
        if found is None:
            continue
        feature[node], goes_right = found
        values = _column(by_column, feature[node])[rows]
        threshold[node] = _between(values[~goes_right].max(), values[goes_right].min())
        stack.append((rows[goes_right], depth + 1, node, right))
        stack.append((rows[~goes_right], depth + 1, node, left))
    return _assemble(left, right, feature, threshold, problem.X.shape[1])


def _is_settled(problem: Problem, growth: Growth, rows: Array) -> bool:
    """Whether a split is impossible, or would not change any answer."""
    known = rows[problem.labelled[rows]]
    if len(rows) < 2 * growth.min_rows or len(known) < 2 * growth.min_labelled:
        return True
    targets = problem.targets[known]
    return growth.supervision > 0 and bool((targets == targets[:1]).all())


def _split(
    search: ClusteringSearch, rows: Array, columns: Array, size: int | None, stream: list[int]
) -> tuple[int, Array] | None:
    """Return column and the mask of rows that go right."""
    if size is not None and size < len(columns):
        columns = np.random.default_rng(stream).permutation(columns)
    step = len(columns) if size is None else size
    for begin in range(0, len(columns), max(step, 1)):
        found = search.split(rows, np.ascontiguousarray(columns[begin : begin + step]))
        if found is not None:
            return found[0], found[2]
    return None


def _column(X: Matrix, place: int) -> Array:
    if not sparse.issparse(X):
        return np.asarray(X[:, place])
    column = np.zeros(X.shape[0], X.dtype)
    stored = slice(X.indptr[place], X.indptr[place + 1])
    column[X.indices[stored]] = X.data[stored]
    return column


def _between(low: Array, high: Array) -> float:
    """Return the middle in the precision of the data, where rows are routed; above `low`."""
    middle = low / 2 + high / 2
    return float(middle if middle > low else high)


def _assemble(
    left: list[int], right: list[int], feature: list[int], threshold: list[float], n_features: int
) -> Tree:
    decision = np.flatnonzero(np.array(left) >= 0)
    begin = np.zeros(len(left) + 1, np.int32)
    begin[decision + 1] = 1
    index = np.array(feature, np.int32)[decision]
    coefficients = sparse.csr_array(
        (np.ones(len(decision)), index, np.cumsum(begin, dtype=np.int32)),
        shape=(len(left), n_features),
    )
    return Tree(
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        coefficients=coefficients,
        threshold=np.array(threshold),
        values=np.zeros((len(left) - len(decision), 1)),
        weight=np.zeros(len(left)),
    )


def _answers(tree: Tree, leaf: Array, problem: Problem) -> Array:
    """Return the mean target of each leaf's labelled rows; where there are none, its parent's."""
    known = problem.labelled
    mass = np.bincount(leaf[known], problem.weight[known], minlength=tree.n_leaves)
    sums = [
        np.bincount(leaf[known], problem.weight[known] * target, minlength=tree.n_leaves)
        for target in problem.targets[known].T
    ]
    totals = node_totals(tree, np.column_stack([mass, *sums]))
    means = totals[:, 1:] / np.maximum(totals[:, :1], 1e-300)
    for node in np.flatnonzero(~tree.is_leaf):  # parents come before their children
        for child in (tree.left[node], tree.right[node]):
            if totals[child, 0] == 0:
                means[child] = means[node]
    return np.asarray(means[tree.leaf_nodes])
