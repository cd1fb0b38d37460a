"""TAO trees as complete trees of hyperplanes: where the searches for optimal trees start."""

from __future__ import annotations

import numpy as np

from silva.grow import random_start
from silva.kernels import cpu
from silva.leaves import ClassShares
from silva.optimal.hyperplanes import Hyperplanes
from silva.splits import Oblique
from silva.tao import optimise
from silva.tree import Array, Tree


def tao_planes(
    X: Array,
    label: Array,
    weight: Array,
    n_classes: int,
    depth: int,
    alpha: float,
    seed: int,
    max_iter: int,
) -> Hyperplanes:
    """Fit a TAO tree and return it as a complete one."""
    leaves = ClassShares(
        np.ascontiguousarray(label[:, None], np.int32), np.array([0, n_classes], np.int32)
    )
    rows = cpu.prepare(X, 1, weight)
    start = random_start(cpu, rows, leaves, "means", depth, seed, weight)
    found = optimise(
        cpu, X, rows, start, leaves, Oblique(alpha, 0.1 * alpha), weight.astype(np.float32),
        max_iter=max_iter, tol=1e-4,
    )  # fmt: skip
    return complete(found.tree, depth)


def complete(tree: Tree, depth: int) -> Hyperplanes:
    """Return a tree of at most this depth as a complete one; nodes that it lacks go right."""
    nodes = 2**depth - 1
    weights, thresholds = np.zeros((nodes, tree.n_features)), np.full(nodes, -1.0)
    leaf_class = np.zeros(nodes + 1, int)
    dense, leaf_index = tree.coefficients.toarray(), tree.leaf_index
    waiting = [(0, 0)]
    while waiting:
        source, place = waiting.pop()
        if place >= nodes:
            leaf_class[place - nodes] = tree.values[leaf_index[source]].argmax()
        elif tree.left[source] < 0:
            waiting.append((source, 2 * place + 2))
            waiting.append((source, 2 * place + 1))
        else:
            weights[place], thresholds[place] = dense[source], tree.threshold[source]
            waiting.append((int(tree.left[source]), 2 * place + 1))
            waiting.append((int(tree.right[source]), 2 * place + 2))
    return Hyperplanes(weights, thresholds, leaf_class)
