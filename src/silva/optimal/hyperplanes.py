"""Complete trees of hyperplanes and the problem that they solve: labels plus known class totals.

The trees of the mixed-integer programs (S²OCT paper, section 2) are complete: a tree of depth D
has 2^D - 1 hyperplanes (w_b, gamma_b), numbered level by level from the root 0, with the children
of b at 2b + 1 and 2b + 2. A row goes left where w_b·x - gamma_b <= -1 and right where it is >= 1;
between the two lies the slab of the node, where no unlabelled row may be. A node with w = 0 sends
every row to one side: it is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from silva.pruning import prune_dead
from silva.tree import Array, Tree, node_totals

TOLERANCE = 1e-6  # of margins, as the solvers have it


@dataclass(frozen=True, eq=False)
class Hyperplanes:
    """A complete tree.

    Attributes
    ----------
    weights : float64 array of shape (nodes, features)
    thresholds : float64 array of shape (nodes,)
    leaf_class : int array of shape (nodes + 1,)
        Class of each leaf, from left to right.
    """

    weights: Array
    thresholds: Array
    leaf_class: Array

    @property
    def depth(self) -> int:
        """Decisions on the way to a leaf."""
        return len(self.leaf_class).bit_length() - 1

    @property
    def used(self) -> Array:
        """Mask over the nodes whose side depends on the row."""
        return np.asarray((self.weights != 0).any(axis=1))

    def margins(self, X: Array) -> Array:
        """Return w_b·x - gamma_b, of shape (rows, nodes)."""
        return np.asarray(X @ self.weights.T - self.thresholds)

    def leaves(self, margins: Array) -> Array:
        """Return the leaf, counted from the left, of rows with these margins."""
        node, rows = np.zeros(len(margins), np.intp), np.arange(len(margins))
        for _ in range(self.depth):
            node = 2 * node + 1 + (margins[rows, node] > 0)
        return node - len(self.thresholds)

    def predict(self, X: Array) -> Array:
        """Return the class of each row."""
        return np.asarray(self.leaf_class[self.leaves(self.margins(X))])


def alternating_leaves(depth: int) -> Array:
    """Return the leaf classes of the paper for two classes: even leaves A (0), odd ones B (1)."""
    return np.arange(2**depth) % 2


def path_sides(depth: int) -> Array:
    """Return, for each leaf and node, the side of the node on the leaf's path.

    An int array of shape (leaves, nodes): -1 where the path goes left (N_L), 1 where it goes right
    (N_R), 0 where it does not pass the node.
    """
    nodes = 2**depth - 1
    sides = np.zeros((nodes + 1, nodes), np.int8)
    for leaf in range(nodes + 1):
        child = leaf + nodes
        while child > 0:
            node = (child - 1) // 2
            sides[leaf, node] = -1 if child == 2 * node + 1 else 1
            child = node
    return sides


@dataclass(frozen=True, eq=False)
class TotalsProblem:
    """Problem (P1) of the S²OCT paper, for two classes or more.

    minimise  sum_i min_{leaves t of class c_i} LE(x_i, t) + C xi,   |w_bj| <= s,

    LE(x, t) being the sum of the hinge errors on the path to t (Definitions 1 and 2), and
    xi = 1/2 sum_k |rows of class k predicted among the unlabelled - total_k|, for two classes the
    paper's. Every unlabelled row is at least 1 away from every hyperplane, as (P2) has it.

    Attributes
    ----------
    labelled, unlabelled : float64 arrays of rows, in the units of the program
    classes : int array
        Class, 0 to K - 1, of each labelled row.
    totals : int array of shape (K,)
        Unlabelled rows of each class; their sum is the number of unlabelled rows.
    depth : int
    box : float
        The paper's s.
    penalty : float
        The paper's C.
    """

    labelled: Array
    classes: Array
    unlabelled: Array
    totals: Array
    depth: int
    box: float
    penalty: float = 1.0

    @property
    def n_features(self) -> int:
        """Columns of the rows."""
        return int(self.labelled.shape[1])

    @property
    def n_classes(self) -> int:
        """Classes, labelled or not."""
        return len(self.totals)

    @property
    def fixed_leaves(self) -> bool:
        """Whether the leaves have the alternating classes of the paper: with two classes."""
        return self.n_classes == 2

    @cached_property
    def diameter(self) -> float:
        """The paper's eta: the largest distance between two rows."""
        return diameter(np.concatenate([self.labelled, self.unlabelled]))

    @property
    def big_m(self) -> float:
        """Theorem 2: M = eta s sqrt(p) + 1."""
        return float(self.diameter * self.box * np.sqrt(self.n_features) + 1.0)

    @property
    def error_bound(self) -> float:
        """Proposition 1: B(s) = D (eta s sqrt(p) + 1)."""
        return self.depth * self.big_m


def paper_box(rows: int, features: int, diameter: float) -> float:
    """Return the paper's s: M stays at least 500 (section 4.2)."""
    least = 10.0 if rows < 650 else 20.0 if rows < 1500 else 40.0
    return float(max(least, 499.0 / (max(diameter, 1e-12) * np.sqrt(features))))


def paper_depth(rows: int) -> int:
    """Return the paper's D (section 4.2)."""
    return 2 if rows < 1000 else 3


def diameter(X: Array) -> float:
    """Return the largest distance between two rows.

    A pair can be farther apart than one already found only if its distances to the mean add up to
    more, which few rows are far enough out for.
    """
    radius = np.linalg.norm(X - X.mean(axis=0), axis=1)
    found, start = 0.0, int(radius.argmax())
    for _ in range(3):
        distance = np.linalg.norm(X - X[start], axis=1)
        start = int(distance.argmax())
        found = max(found, float(distance[start]))
    far = np.flatnonzero(radius + radius.max() > found)
    squares = np.einsum("ij,ij->i", X[far], X[far])
    block = max(1, 2**22 // max(1, len(far)))
    for first in range(0, len(far), block):
        part = slice(first, first + block)
        products = X[far[part]] @ X[far].T
        largest = (squares[part, None] + squares - 2.0 * products).max()
        found = max(found, float(np.sqrt(max(0.0, largest))))
    return found


@dataclass(frozen=True)
class Score:
    """What a tree is worth in a TotalsProblem.

    Attributes
    ----------
    labelled_error : float
        Sum of the leaf errors of the labelled rows.
    total_error : float
        The paper's xi.
    wrong : int
        Labelled rows that a leaf of another class answers.
    in_slab : int
        Pairs of an unlabelled row and a node whose slab it is in.
    feasible : bool
        Whether all constraints of (P2) hold: no row in a slab, all weights in the box.
    objective : float
    """

    labelled_error: float
    total_error: float
    wrong: int
    in_slab: int
    feasible: bool
    objective: float

    @property
    def solved(self) -> bool:
        """Whether the tree is optimal beyond doubt: nothing is smaller than zero."""
        return self.feasible and self.objective <= TOLERANCE


def leaf_errors(tree: Hyperplanes, margins: Array) -> Array:
    """Return LE(x, t) of Definition 2, of shape (rows, leaves)."""
    sides = path_sides(tree.depth)
    left = np.maximum(0.0, 1.0 + margins) @ (sides == -1).T
    return np.asarray(left + np.maximum(0.0, 1.0 - margins) @ (sides == 1).T)


def assigned_leaves(problem: TotalsProblem, tree: Hyperplanes, errors: Array) -> Array:
    """Return the leaf of its class where each labelled row errs least, -1 if it has none."""
    own = problem.classes[:, None] == tree.leaf_class
    found = np.where(own, errors, np.inf).argmin(axis=1)
    return np.asarray(np.where(own.any(axis=1), found, -1))


def counts(problem: TotalsProblem, tree: Hyperplanes, margins: Array) -> Array:
    """Return the number of unlabelled rows that the tree gives each class."""
    return np.bincount(tree.leaf_class[tree.leaves(margins)], minlength=problem.n_classes)


def score(problem: TotalsProblem, tree: Hyperplanes) -> Score:
    """Evaluate a tree in (P1), with the constraints of (P2)."""
    known, unknown = tree.margins(problem.labelled), tree.margins(problem.unlabelled)
    errors = leaf_errors(tree, known)
    leaf = assigned_leaves(problem, tree, errors)
    rows = np.arange(len(leaf))
    labelled = float(errors[rows, leaf][leaf >= 0].sum())
    if (leaf < 0).any():  # a class without a leaf: no bound is known but the model's own
        labelled += problem.error_bound * float((leaf < 0).sum())
    missed = 0.5 * float(np.abs(counts(problem, tree, unknown) - problem.totals).sum())
    in_slab = int((np.abs(unknown) < 1.0 - TOLERANCE).sum())
    boxed = bool(np.abs(tree.weights).max(initial=0.0) <= problem.box * (1.0 + 1e-9))
    return Score(
        labelled_error=labelled,
        total_error=missed,
        wrong=int((tree.leaf_class[tree.leaves(known)] != problem.classes).sum()),
        in_slab=in_slab,
        feasible=boxed and in_slab == 0,
        objective=labelled + problem.penalty * missed,
    )


def as_tree(tree: Hyperplanes, X: Array, weight: Array, n_classes: int) -> Tree:
    """Return the tree that every learner returns, without the branches that no row takes.

    Parameters
    ----------
    tree : Hyperplanes
        In the units of X.
    X : array of shape (rows, features)
    weight : array of shape (rows,)
    n_classes : int
    """
    nodes, order = len(tree.thresholds), _depth_first(tree.depth)
    place = np.empty(2 * nodes + 1, np.int32)
    place[order] = np.arange(len(order))
    inner = order < nodes
    child = np.where(inner, 2 * order + 1, 0)
    rows = np.where(inner[:, None], tree.weights[np.where(inner, order, 0)], 0.0)
    grown = Tree(
        left=np.where(inner, place[child], -1).astype(np.int32),
        right=np.where(inner, place[np.where(inner, child + 1, 0)], -1).astype(np.int32),
        coefficients=sparse.csr_array(rows),
        threshold=np.where(inner, tree.thresholds[np.where(inner, order, 0)], 0.0),
        values=np.eye(n_classes)[tree.leaf_class],
        weight=np.zeros(len(order)),
    )
    reached = np.bincount(tree.leaves(tree.margins(X)), weight, minlength=nodes + 1)
    return prune_dead(grown.with_leaves(grown.values, node_totals(grown, reached)))


def _depth_first(depth: int) -> Array:
    """Return the nodes and leaves of a complete tree, numbered by level, from left to right."""
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if node < 2**depth - 1:
            waiting += [2 * node + 2, 2 * node + 1]
    return np.array(order)
