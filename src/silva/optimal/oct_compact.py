"""OCT-H of two classes without a price of features, as a smaller program with the same optimum.

It differs from the paper's (`oct_h`) in: the leaves have alternating classes, as in S²OCT,
which is no restriction for two; a row has one binary for each node above a pair of leaves, and one
that says whether it is answered wrongly, instead of one for each leaf and those of the leaves'
classes; and the big-M of a row is its largest distance to another in any column, which is all that
a hyperplane of L1 norm 1 between two rows can be away. Fifty rows in six columns that no tree of
two levels answers without an error are recognised in seconds.
"""

from __future__ import annotations

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes, alternating_leaves, path_sides
from silva.optimal.milp import Builder, Program, Terms
from silva.optimal.oct_h import MU, ErrorProblem
from silva.tree import Array

ROOM = 0.5 * MU  # from a hyperplane in the middle of its strip to the rows


def can_be_compact(problem: ErrorProblem) -> bool:
    """Return whether the problem is one for `compact_program`."""
    two = problem.counts.shape[1] == 2
    return two and problem.complexity == 0.0 and problem.min_leaf == 1


def compact_program(problem: ErrorProblem) -> Program:
    """Return the program.

    Blocks: "up", "down" (nodes, features), the parts of the weights; "b" (nodes,); "way" (rows,
    nodes of the last level); "wrong" (rows,); "sure" the errors that no tree avoids.
    """
    X, counts, nodes = problem.X, problem.counts, 2**problem.depth - 1
    n, p = X.shape
    inner, last = nodes // 2, nodes // 2 + 1
    extra = np.abs(counts[:, 0] - counts[:, 1])
    far = np.maximum(np.array([np.abs(X - x).max() for x in X]), MU)
    want = np.where(counts[:, 1] > counts[:, 0], 1.0, -1.0)
    build = Builder()
    up = build.variables("up", (nodes, p), 0.0, 1.0)
    down = build.variables("down", (nodes, p), 0.0, 1.0)
    b = build.variables("b", nodes, -1.0, 1.0)
    way = build.variables("way", (n, last), 0.0, 1.0, integer=True)
    wrong = build.variables("wrong", n, 0.0, 1.0, extra / problem.baseline, integer=True)
    build.variables("sure", 1, 1.0, 1.0, cost=counts.min(axis=1).sum() / problem.baseline)
    build.rows([(up, 1.0), (down, 1.0)], upper=1.0)
    build.rows([(way, 1.0)], lower=1.0, upper=1.0)

    def beyond(node: int, sign: Array) -> Terms:
        """Return the terms of sign · (a·x - b)."""
        signed = sign[:, None] * X
        weights: Terms = [(np.broadcast_to(up[node], X.shape), signed)]
        weights += [(np.broadcast_to(down[node], X.shape), -signed)]
        return [*weights, (np.full(n, b[node]), -sign)]

    above = path_sides(problem.depth)[::2, :inner]  # the way to each node of the last level
    for node in range(inner):
        for side in (-1.0, 1.0):
            there = np.flatnonzero(above[:, node] == side)
            here: Terms = [*beyond(node, np.full(n, side)), (way[:, there], -far[:, None])]
            build.rows(here, lower=ROOM - far)
    for place in range(last):
        taken = (way[:, place], -far)
        right, other = beyond(inner + place, want), beyond(inner + place, -want)
        build.rows([*right, taken, (wrong, far)], lower=ROOM - far)
        build.rows([*other, taken, (wrong, -far)], lower=ROOM - 2.0 * far)
    return build.program()


def compact_point(problem: ErrorProblem, program: Program, tree: Hyperplanes) -> Array:
    """Return the point of a program that stands for a settled tree."""
    blocks, x = program.blocks, np.zeros(len(program.cost))
    weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
    size = np.abs(weights).sum(axis=1)
    used = size > 0
    weights[used] /= size[used, None]
    thresholds[used] /= size[used]
    thresholds[~used] = -ROOM
    inner = len(thresholds) // 2
    for node, (left, right) in enumerate(tree.leaf_class.reshape(-1, 2), start=inner):
        if left == right:
            weights[node], thresholds[node] = 0.0, ROOM if left == 0 else -ROOM
        elif left == 1:
            weights[node], thresholds[node] = -weights[node], -thresholds[node]
    same = Hyperplanes(weights, thresholds, alternating_leaves(tree.depth))
    leaf = same.leaves(same.margins(problem.X))
    x[blocks["up"]], x[blocks["down"]] = np.maximum(weights, 0.0), np.maximum(-weights, 0.0)
    x[blocks["b"]] = thresholds
    x[blocks["way"]] = leaf[:, None] // 2 == np.arange(inner + 1)
    x[blocks["wrong"]] = (leaf % 2 == 1) != (problem.counts[:, 1] > problem.counts[:, 0])
    x[blocks["sure"]] = 1.0
    return x


def read_compact(program: Program, x: Array) -> Hyperplanes:
    """Return the tree of a point."""
    blocks = program.blocks
    depth = len(blocks["b"]).bit_length()
    weights = x[blocks["up"]] - x[blocks["down"]]
    return Hyperplanes(weights, x[blocks["b"]], alternating_leaves(depth))
