"""OCT-H of Bertsimas & Dunn (2017): the tree of hyperplanes with the fewest errors, as a program.

    minimise  1/L sum_t L_t + alpha sum_b (features of node b),

L_t being the rows of leaf t that are not of its class and L the errors of the most frequent class
alone; every leaf in use keeps at least `min_leaf` rows. Columns are in [0, 1] and the L1 norm of
a_b is at most 1. A row goes left where a_b·x + mu <= b_b and right where a_b·x >= b_b; a node that
is not used sends every row to the right, and so do all nodes below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes, path_sides
from silva.optimal.milp import Builder, Program, Terms
from silva.tree import Array

MU = 0.005  # the paper's strictness of "left"


@dataclass(frozen=True, eq=False)
class ErrorProblem:
    """What OCT-H minimises.

    Attributes
    ----------
    X : float64 array of shape (rows, features)
        In [0, 1]. Equal rows always share a leaf: better one row with the counts of all.
    counts : float64 array of shape (rows, classes)
        How many labels of each class a row has.
    depth : int
    complexity : float
        The paper's alpha: what a feature of a node costs, in units of the errors of the most
        frequent class.
    min_leaf : int
        Fewest labels in a leaf.
    """

    X: Array
    counts: Array
    depth: int
    complexity: float = 0.0
    min_leaf: int = 1

    @classmethod
    def pose(
        cls, X: Array, classes: Array, n_classes: int, depth: int, complexity: float, min_leaf: int
    ) -> ErrorProblem:
        """Count equal rows as one."""
        distinct, row = np.unique(X, axis=0, return_inverse=True)
        counts = np.zeros((len(distinct), n_classes))
        np.add.at(counts, (row.ravel(), classes), 1.0)
        return cls(distinct, counts, depth, complexity, min_leaf)

    @cached_property
    def weight(self) -> Array:
        """Labels of each row."""
        return np.asarray(self.counts.sum(axis=1))

    @cached_property
    def baseline(self) -> float:
        """The paper's L: the errors of the most frequent class alone; 1 where there are none."""
        totals = self.counts.sum(axis=0)
        return float(totals.sum() - totals.max()) or 1.0

    def errors(self, tree: Hyperplanes) -> float:
        """Return the labels that a tree contradicts."""
        rows = np.arange(len(self.X))
        return float((self.weight - self.counts[rows, tree.predict(self.X)]).sum())

    def objective(self, tree: Hyperplanes) -> float:
        """Return the objective of a tree, its leaves taken at their word."""
        features = int((tree.weights != 0).sum())
        return self.errors(tree) / self.baseline + self.complexity * features


def oct_h(
    X: Array,
    classes: Array,
    n_classes: int,
    depth: int,
    complexity: float = 0.0,
    min_leaf: int = 1,
) -> Program:
    """Return the program of OCT-H as the paper has it, one row of X for each label."""
    counts = (classes[:, None] == np.arange(n_classes)).astype(float)
    return oct_h_program(ErrorProblem(X, counts, depth, complexity, min_leaf))


def oct_h_program(problem: ErrorProblem) -> Program:
    """Return the program of OCT-H.

    Notes
    -----
    Blocks, in the paper's letters: "a", "a_hat", "s" (nodes, features), "b", "d" (nodes,), "z"
    (rows, leaves), "l", "L", "N_t" (leaves,), "c", "N_kt" (leaves, classes).
    """
    X, counts, weight = problem.X, problem.counts, problem.weight
    n_classes, complexity, depth = counts.shape[1], problem.complexity, problem.depth
    sides = path_sides(depth)
    leaves, nodes = sides.shape
    n, p = X.shape
    total = float(weight.sum())
    build = Builder()
    a = build.variables("a", (nodes, p), -1.0, 1.0)
    a_hat = build.variables("a_hat", (nodes, p), 0.0, 1.0)
    b = build.variables("b", nodes, -1.0, 1.0)
    d = build.variables("d", nodes, 0.0, 1.0, integer=True)
    s = build.variables("s", (nodes, p), 0.0, 1.0, cost=complexity, integer=True)
    z = build.variables("z", (n, leaves), 0.0, 1.0, integer=True)
    l_ = build.variables("l", leaves, 0.0, 1.0, integer=True)
    c = build.variables("c", (leaves, n_classes), 0.0, 1.0, integer=True)
    loss = build.variables("L", leaves, 0.0, np.inf, cost=1.0 / problem.baseline)
    n_t = build.variables("N_t", leaves, 0.0, total)
    n_kt = build.variables("N_kt", (leaves, n_classes), 0.0, total)

    # The loss of a leaf is what its class does not cover.
    build.rows([(n_t, 1.0), (z.T, np.broadcast_to(-weight, (leaves, n)))], lower=0.0, upper=0.0)
    for k in range(n_classes):
        members = np.broadcast_to(-counts[:, k], (leaves, n))
        build.rows([(n_kt[:, k], 1.0), (z.T, members)], lower=0.0, upper=0.0)
        others: Terms = [(loss, 1.0), (n_t, -1.0), (n_kt[:, k], 1.0)]
        build.rows([*others, (c[:, k], -total)], lower=-total)
        build.rows([*others, (c[:, k], -total)], upper=0.0)
    build.rows([(c, 1.0), (l_, -1.0)], lower=0.0, upper=0.0)

    # Every row has one leaf, in use, with enough rows, and the sides that lead there.
    build.rows([(z, 1.0)], lower=1.0, upper=1.0)
    build.rows([(z.ravel(), 1.0), (np.tile(l_, n), -1.0)], upper=0.0)
    build.rows([(n_t, 1.0), (l_, -float(problem.min_leaf))], lower=0.0)
    for t in range(leaves):
        for node in np.flatnonzero(sides[t]):
            value: Terms = [(np.broadcast_to(a[node], X.shape), X), (np.full(n, b[node]), -1.0)]
            if sides[t, node] < 0:
                build.rows([*value, (z[:, t], 2.0 + MU)], upper=2.0)
            else:
                build.rows([*value, (z[:, t], -2.0)], lower=-2.0)

    # The size of a hyperplane, its features, and nodes in use only below nodes in use.
    build.rows([(a_hat, 1.0), (d, -1.0)], upper=0.0)
    flat, spread = a.ravel(), np.repeat(d, p)
    build.rows([(a_hat.ravel(), 1.0), (flat, -1.0)], lower=0.0)
    build.rows([(a_hat.ravel(), 1.0), (flat, 1.0)], lower=0.0)
    build.rows([(flat, 1.0), (s.ravel(), -1.0)], upper=0.0)
    build.rows([(flat, 1.0), (s.ravel(), 1.0)], lower=0.0)
    build.rows([(s.ravel(), 1.0), (spread, -1.0)], upper=0.0)
    build.rows([(s, 1.0), (d, -1.0)], lower=0.0)
    build.rows([(b, 1.0), (d, -1.0)], upper=0.0)
    build.rows([(b, 1.0), (d, 1.0)], lower=0.0)
    child = np.arange(1, nodes)
    build.rows([(d[child], 1.0), (d[(child - 1) // 2], -1.0)], upper=0.0)
    return build.program()


def oct_h_point(problem: ErrorProblem, program: Program, tree: Hyperplanes) -> Array:
    """Return the point of a program that stands for a tree.

    Nodes of the tree without weights send every row to the right. The point is feasible if the two
    sides of every other node are at least mu apart in units of the L1 norm, and no leaf too small.
    """
    X, n_classes = problem.X, problem.counts.shape[1]
    blocks, x = program.blocks, np.zeros(len(program.cost))
    size = np.abs(tree.weights).sum(axis=1)
    used = size > 0
    a = tree.weights / np.where(used, size, 1.0)[:, None]
    leaf = tree.leaves(tree.margins(X))
    sides = path_sides(tree.depth)[leaf]
    on_right = np.where(sides > 0, X @ a.T, np.inf).min(axis=0, initial=np.inf)
    z = leaf[:, None] == np.arange(len(tree.leaf_class))
    counts = z.T @ problem.counts
    live = z.any(axis=0)
    c = live[:, None] & (tree.leaf_class[:, None] == np.arange(n_classes))
    values = {
        "a": a,
        "a_hat": np.abs(a),
        "s": a != 0,
        "b": np.where(used, np.clip(on_right, -1.0, 1.0), 0.0),
        "d": used,
        "z": z,
        "l": live,
        "c": c,
        "L": counts.sum(axis=1) - (counts * c).sum(axis=1),
        "N_t": counts.sum(axis=1),
        "N_kt": counts,
    }
    for name, block in blocks.items():
        x[block] = values[name]
    return x


def read_oct_h(program: Program, x: Array) -> Hyperplanes:
    """Return the tree of a point, its thresholds in the middle of the strip that mu keeps free."""
    blocks = program.blocks
    a = np.where(x[blocks["s"]] > 0.5, x[blocks["a"]], 0.0)
    a[x[blocks["d"]] < 0.5] = 0.0
    b = np.where(a.any(axis=1), x[blocks["b"]], 0.0)
    return Hyperplanes(a, b - 0.5 * MU, x[blocks["c"]].argmax(axis=1))
