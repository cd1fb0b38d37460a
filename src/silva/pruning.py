"""Smaller trees: dead branches go, and subtrees that cost more than they bring."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

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
    best = alone.copy()
    collapse = np.zeros(tree.n_nodes, bool)
    for node in reversed(tree.levels()):
        left, right = tree.left[node], tree.right[node]
        parts = (tree.weight[left] > 0) & (tree.weight[right] > 0)
        together = best[left] + best[right] + np.where(parts, penalty[node], 0.0)
        collapse[node] = alone[node] <= together + 1e-9
        best[node] = np.minimum(alone[node], together)
    means = totals / np.maximum(tree.weight, 1e-300)[:, None]
    return _rebuild(tree, collapse, means)


def prune_by_purity(
    tree: Tree,
    leaf_weight: Array | None = None,
    *,
    tol: float = 0.0,
    class_begin: Array | None = None,
) -> tuple[Tree, Array]:
    """Merge neighbouring leaves that answer alike, from the bottom up.

    Leaves that were split for the sake of their features may have been given the same value
    (kernel tree paper, end of section 3.1). Two sibling leaves become one when all leaves merged
    into it answer within `tol` of each other in every output. It answers their weighted mean, so
    that no answer of the tree changes by more than `tol`, whether rows go to one leaf or are
    shared between several; with `tol` 0 none changes at all. Constant leaves only.

    Parameters
    ----------
    tree : Tree
    leaf_weight : array of shape (leaves,), optional
        Training weight of each leaf, the sum of memberships; `tree.weight` by default.
    tol : float
        Largest change of an answer.
    class_begin : int array of shape (targets + 1,), optional
        First output of each target that is a set of class shares. Only leaves with the same
        leading classes are merged then, so that a row in one leaf keeps its class.

    Returns
    -------
    tree : Tree
        The smaller tree.
    leaf : int array of shape (leaves of the given tree,)
        Where each leaf went.
    """
    if tree.slopes is not None:
        raise ValueError("the leaves are linear: expected constant ones")
    if not tol >= 0:
        raise ValueError(f"tol is {tol}: expected a number of at least 0")
    weight = tree.weight[tree.leaf_nodes] if leaf_weight is None else np.asarray(leaf_weight)
    low = np.zeros((tree.n_nodes, tree.n_outputs))
    low[tree.leaf_nodes] = tree.values
    high, leading = low.copy(), np.zeros((tree.n_nodes, 0), int)
    if class_begin is not None:
        parts = pairwise(class_begin)
        leading = np.stack([low[:, b:e].argmax(axis=1) for b, e in parts], axis=1)
    ends = tree.is_leaf.copy()
    for node in reversed(tree.levels()):
        left, right = tree.left[node], tree.right[node]
        low[node] = np.minimum(low[left], low[right])
        high[node] = np.maximum(high[left], high[right])
        close = (high[node] - low[node] <= tol).all(axis=1)
        same_class = (leading[left] == leading[right]).all(axis=1)
        ends[node] = ends[left] & ends[right] & close & same_class
        leading[node] = leading[left]
    mass = node_totals(tree, weight)[:, None]
    sums = node_totals(tree, tree.values * weight[:, None])
    means = np.where(mass > 0, sums / np.where(mass > 0, mass, 1.0), (low + high) / 2)
    # All branches stay, also those without training weight: new rows may come there.
    alive = replace(tree, weight=np.ones(tree.n_nodes))
    smaller, leaf = _rebuild(alive, ends & ~tree.is_leaf, np.clip(means, low, high))
    merged = np.bincount(leaf, weight, minlength=smaller.n_leaves)
    return replace(smaller, weight=node_totals(smaller, merged)), leaf


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
    for node in tree.levels():
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
    alive = tree.weight > 0
    is_leaf = tree.is_leaf | collapse
    stands_for = np.arange(tree.n_nodes)
    for node in reversed(tree.levels()):
        left, right = tree.left[node], tree.right[node]
        only = ~is_leaf[node] & ~(alive[left] & alive[right])
        stands_for[node[only]] = stands_for[np.where(alive[left], left, right)[only]]
    kept = [stands_for[:1]]
    while (node := kept[-1][~is_leaf[kept[-1]]]).size:
        kept.append(stands_for[np.concatenate([tree.left[node], tree.right[node]])])
    order = np.sort(np.concatenate(kept))  # nodes are numbered depth first and stay so
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
    for node in tree.levels():
        node = node[number[node] >= 0]
        number[tree.left[node]] = number[tree.right[node]] = number[node]
    return smaller, np.where(alive, number, -1)[tree.leaf_nodes]


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
