"""TAO in numpy and liblinear: the yardstick that the training speed is measured against.

Minimises over the nodes of a complete oblique tree T of fixed depth

    sum_n [T(x_n) != y_n] + alpha * sum_i ||w_i||_1

by tree alternating optimisation ("Improved Multiclass AdaBoost Using Sparse Oblique Decision
Trees", section IV). One iteration sets every leaf to the majority of its rows, then visits the
decision nodes from the bottom up. At a node only the rows count that are right on one side and
wrong on the other; each weighs |loss left - loss right| = 1, and their sides are the labels of an
L1-regularised logistic regression, solved by liblinear with C = 1 / alpha.

Nodes are in heap order: node i has the children 2 i + 1 and 2 i + 2, and sends x to the right one
when ``W[i] @ x + b[i] >= 0``. A tree of depth d has 2**d - 1 decision nodes, then 2**d leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.svm._liblinear import set_verbosity_wrap, train_wrap

L1_LOGISTIC_REGRESSION = 6
TOLERANCE = 1e-2
NEWTON_STEPS = 1000


@dataclass(frozen=True, eq=False)
class HeapTree:
    """Weights (nodes, features) and biases (nodes,) of the decisions, class of each leaf."""

    W: np.ndarray
    b: np.ndarray
    leaf_class: np.ndarray

    @property
    def depth(self):
        """Number of decisions on every way down."""
        return len(self.leaf_class).bit_length() - 1


def random_start(X, depth, seed):
    """Return W and b of Gaussian hyperplanes, each cutting its own rows at their median."""
    n_nodes = 2**depth - 1
    W = np.random.default_rng(seed).standard_normal((n_nodes, X.shape[1])).astype(np.float32)
    b = np.zeros(n_nodes, np.float32)
    node = np.zeros(len(X), np.int64)
    for level in range(depth):
        order, bounds = _rows_by_node(node, level)
        for i, rows in zip(_nodes(level), np.split(order, bounds[1:-1]), strict=True):
            if len(rows):
                projection = X[rows] @ W[i]
                b[i] = -np.median(projection)
                node[rows] = 2 * i + 1 + (projection + b[i] >= 0)
    return W, b


def fit(X, y, W, b, *, alpha, max_iter, seed=0):
    """Run `max_iter` sweeps of TAO from the start (W, b).

    Parameters
    ----------
    X : float32 array of shape (rows, features)
    y : int array of shape (rows,), classes 0 to K - 1
    W, b : arrays of shape (nodes, features) and (nodes,), left untouched
    alpha : weight of the L1 penalty
    max_iter : number of sweeps
    seed : seed of liblinear's order of coordinates

    Returns
    -------
    HeapTree
    """
    set_verbosity_wrap(0)
    X = np.ascontiguousarray(X, np.float32)
    W, b = W.astype(np.float32), b.astype(np.float32)
    depth = (len(W) + 1).bit_length() - 1
    rng = np.random.default_rng(seed)
    goes_right = np.empty((len(X), len(W)), bool)
    for level in range(depth):
        _decide(goes_right, X, W, b, level)
    leaf_class = np.full(2**depth, np.bincount(y).argmax())
    for _ in range(max_iter):
        path = _paths(goes_right, depth)
        leaf_class = _majority(path[-1] - len(W), y, leaf_class)
        for level in reversed(range(depth)):
            right_side_wins, order, bounds = _reduced_sets(
                goes_right, path[level], y, leaf_class, level
            )
            for i, rows in zip(_nodes(level), np.split(order, bounds[1:-1]), strict=True):
                if len(rows):
                    side = np.where(right_side_wins[rows], 1.0, -1.0)
                    W[i], b[i] = _solve_node(X[rows], side, alpha, rng)
            _decide(goes_right, X, W, b, level)
    leaf_class = _majority(_paths(goes_right, depth)[-1] - len(W), y, leaf_class)
    return HeapTree(W, b, leaf_class)


def predict(tree, X):
    """Return the class of each row of X."""
    return tree.leaf_class[_route(tree, X)]


def count_parameters(tree, X):
    """Count the numbers of the live tree: what remains where rows of X go both ways.

    Non-zero weights and a threshold for each node that sends rows to both sides, one class for each
    leaf that rows reach.
    """
    n_nodes = len(tree.W)
    reached = np.zeros(2 * n_nodes + 1, bool)
    reached[np.unique(_route(tree, X)) + n_nodes] = True
    for i in reversed(range(n_nodes)):
        reached[i] = reached[2 * i + 1] or reached[2 * i + 2]
    live = reached[1::2] & reached[2::2]
    return int(np.count_nonzero(tree.W[live]) + live.sum() + reached[n_nodes:].sum())


def _nodes(level):
    """Heap numbers of the nodes of one level."""
    return range(2**level - 1, 2 ** (level + 1) - 1)


def _decide(goes_right, X, W, b, level):
    """Refresh the decisions of every row at every node of one level by one matrix product."""
    nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
    np.greater_equal(X @ W[nodes].T, -b[nodes], out=goes_right[:, nodes])


def _descend(goes_right, node, levels):
    """Move each row the given number of levels down from its node."""
    first = np.arange(len(node)) * goes_right.shape[1]
    decisions = goes_right.ravel()
    for _ in range(levels):
        node = 2 * node + 1 + decisions[first + node]
    return node


def _paths(goes_right, depth):
    """Node of every row at every level, the leaf last."""
    path = [np.zeros(len(goes_right), np.int64)]
    for _ in range(depth):
        path.append(_descend(goes_right, path[-1], 1))
    return path


def _majority(leaf, y, previous):
    """Most frequent class of each leaf; an empty leaf keeps its previous class."""
    n_classes = max(int(y.max()), int(previous.max())) + 1
    counts = np.bincount(leaf * n_classes + y, minlength=len(previous) * n_classes)
    counts = counts.reshape(len(previous), n_classes)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), previous)


def _rows_by_node(node, level, rows=None):
    """Sort rows by their node: the order, and where each node of the level begins and ends."""
    rows = np.arange(len(node)) if rows is None else rows
    order = rows[np.argsort(node[rows], kind="stable")]
    first, last = 2**level - 1, 2 ** (level + 1) - 1
    return order, np.searchsorted(node[order], np.arange(first, last + 1))


def _reduced_sets(goes_right, node, y, leaf_class, level):
    """Whether right is the right answer, and the rows of each node with one answer wrong."""
    below = len(leaf_class).bit_length() - 2 - level
    n_nodes = len(leaf_class) - 1
    left = leaf_class[_descend(goes_right, 2 * node + 1, below) - n_nodes] == y
    right = leaf_class[_descend(goes_right, 2 * node + 2, below) - n_nodes] == y
    return right, *_rows_by_node(node, level, np.flatnonzero(left != right))


def _solve_node(X, side, alpha, rng):
    """L1-regularised logistic regression of the sides; a constant where they all agree."""
    if side[0] == side[-1] and np.all(side == side[0]):
        return 0.0, side[0]
    is_sparse, bias, class_weight, unused_epsilon = False, 1.0, np.empty(0), 0.0
    solution, _ = train_wrap(
        X, side, is_sparse, L1_LOGISTIC_REGRESSION, TOLERANCE, bias, 1.0 / alpha,
        class_weight, NEWTON_STEPS, int(rng.integers(2**31 - 1)), unused_epsilon,
        np.ones(len(side)),
    )  # fmt: skip
    return solution[0, :-1], solution[0, -1]


def _route(tree, X):
    """Leaf of each row of X."""
    goes_right = np.empty((len(X), len(tree.W)), bool)
    for level in range(tree.depth):
        _decide(goes_right, X, tree.W, tree.b, level)
    return _paths(goes_right, tree.depth)[-1] - len(tree.W)
