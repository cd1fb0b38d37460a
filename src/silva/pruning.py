"""Smaller trees: dead branches go, and subtrees that cost more than they bring."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from silva.leaves import ClassShares, Leaves
from silva.losses import total_class_loss
from silva.tree import Array, Tree, node_totals


def prune_dead(tree: Tree) -> Tree:
    """Return the tree without the branches that no training weight reaches.

    A decision node with one live child gives its place to that child, so every training row is
    answered as before.
    """
    return _rebuild(tree, np.zeros(tree.n_nodes, bool), np.zeros((tree.n_nodes, tree.n_outputs)))[0]


def prune_costly(tree: Tree, leaves: Leaves, penalty: Array) -> tuple[Tree, Array]:
    """Turn a decision node into a leaf wherever the objective does not rise by it.

    The optimiser moves hyperplanes but never removes one; this is the missing move. For the shape
    at hand it is exact: from the bottom up, a subtree's loss and penalties are compared with the
    loss of one leaf in its place. Dead branches go as well.

    Parameters
    ----------
    tree : Tree
        With constant leaves (means or class shares) and weights.
    leaves : ClassShares or Mean
        The leaf problem that the tree was fitted to.
    penalty : array of shape (nodes,)
        Price of each decision node.

    Returns
    -------
    tree : Tree
        The smaller tree.
    leaf : int array of shape (leaves of the given tree,)
        Where each leaf went; -1 if it was dead.
    """
    weight = tree.weight[tree.leaf_nodes, None]
    totals = node_totals(tree, tree.values * weight)
    alone = _loss_as_leaf(tree, totals, leaves)
    decisions = np.flatnonzero(~tree.is_leaf)
    left, right = tree.left[decisions], tree.right[decisions]
    price = np.where((tree.weight[left] > 0) & (tree.weight[right] > 0), penalty[decisions], 0.0)
    steps = zip(*(values.tolist() for values in (decisions, left, right, price)), strict=True)
    best, together = alone.tolist(), np.full(tree.n_nodes, np.inf)
    for node, one, other, cost in reversed(list(steps)):  # plain numbers: quick for small trees
        split = best[one] + best[other] + cost
        together[node] = split
        best[node] = min(best[node], split)
    collapse = alone <= together + 1e-9
    collapse[tree.is_leaf] = False
    means = totals / np.maximum(tree.weight, 1e-300)[:, None]
    return _rebuild(tree, collapse, means)


def shrink(tree: Tree, strength: float) -> Tree:
    """Pull the answer of every leaf towards those of the nodes above it.

    From the root down, a node of weight n answers (n · its own mean + strength · its parent's
    answer) / (n + strength): as if `strength` rows of each node had the parent's answer. Small
    leaves of deep trees stop repeating their few rows. Constant leaves only.
    """
    if strength == 0 or tree.slopes is not None:
        return tree
    weight = tree.weight[:, None]
    means = node_totals(tree, tree.values * weight[tree.leaf_nodes]) / weight
    for node in np.flatnonzero(~tree.is_leaf):
        for child in (tree.left[node], tree.right[node]):
            means[child] = (weight[child] * means[child] + strength * means[node]) / (
                weight[child] + strength
            )
    return tree.with_leaves(means[tree.leaf_nodes])


def _loss_as_leaf(tree: Tree, totals: Array, leaves: Leaves) -> Array:
    """Return the loss of every node's rows if the node were a leaf.

    For means up to what no pruning can change, the squares within the leaves.
    """
    if isinstance(leaves, ClassShares):
        parts = zip(leaves.class_begin[:-1], leaves.class_begin[1:], strict=True)
        return sum(
            (total_class_loss(totals[:, begin:end], leaves.loss) for begin, end in parts),
            start=np.zeros(tree.n_nodes),
        )
    return np.asarray(-(totals**2).sum(axis=1) / np.maximum(tree.weight, 1e-300))


def _rebuild(tree: Tree, collapse: Array, node_values: Array) -> tuple[Tree, Array]:
    """Return the tree with marked nodes as leaves and dead branches cut, and where leaves went."""
    alive, is_leaf = tree.weight > 0, tree.is_leaf | collapse
    lives, ends_here = alive.tolist(), is_leaf.tolist()
    lefts, rights = tree.left.tolist(), tree.right.tolist()
    successor = list(range(tree.n_nodes))
    for node in range(tree.n_nodes)[::-1]:
        if ends_here[node] or (lives[lefts[node]] and lives[rights[node]]):
            continue
        successor[node] = successor[lefts[node] if lives[lefts[node]] else rights[node]]
    kept: list[int] = []
    stack = [successor[0]]
    while stack:  # depth first, left before right
        node = stack.pop()
        kept.append(node)
        if not ends_here[node]:
            stack += [successor[rights[node]], successor[lefts[node]]]
    order, stands_for = np.array(kept), np.array(successor)
    ends = is_leaf[order]
    place = np.full(tree.n_nodes, -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)

    def moved(child: Array) -> Array:
        return np.where(ends, -1, place[stands_for[child[order]]]).astype(np.int32)

    live_leaves = order[ends]
    values = node_values[live_leaves]
    uncut = tree.is_leaf[live_leaves]
    values[uncut] = tree.values[tree.leaf_index[live_leaves[uncut]]]
    linear = tree.leaf_index[live_leaves]
    smaller = Tree(
        left=moved(tree.left),
        right=moved(tree.right),
        coefficients=_take_planes(tree, order, ends),
        threshold=np.where(ends, 0.0, tree.threshold[order]),
        values=values,
        weight=tree.weight[order],
        slopes=None if tree.slopes is None else tree.slopes[linear],
        bounds=None if tree.bounds is None else tree.bounds[:, linear],
    )
    # The leaf that a node's rows end in, handed down from the nodes that became leaves.
    number = np.full(tree.n_nodes, -1)
    number[live_leaves] = np.arange(len(live_leaves))
    numbers = number.tolist()
    for node, child in enumerate(lefts):
        if child >= 0 and numbers[node] >= 0:
            numbers[child] = numbers[rights[node]] = numbers[node]
    return smaller, np.where(alive, numbers, -1)[tree.leaf_nodes]


def _take_planes(tree: Tree, order: Array, ends: Array) -> sparse.csr_array:
    """Return the hyperplanes of some nodes, none where a node ends, without stored zeros."""
    planes = tree.coefficients
    length = np.where(ends, 0, np.diff(planes.indptr)[order])
    begin = np.concatenate([[0], np.cumsum(length)])
    entry = np.repeat(planes.indptr[order] - begin[:-1], length) + np.arange(begin[-1])
    taken = sparse.csr_array(
        (planes.data[entry], planes.indices[entry], begin.astype(planes.indptr.dtype)),
        shape=(len(order), tree.n_features),
    )
    taken.eliminate_zeros()
    taken.sort_indices()
    return taken
