"""The one tree that every learner returns: frozen flat arrays and the functions that read them.

A decision node sends a row x to the right child when ``coefficients[node] @ x >= threshold[node]``
and to the left child otherwise (the papers: f(x) = wᵀx + w₀ ≥ 0 goes right). A leaf answers
``values[leaf]``, plus ``slopes[leaf] @ x`` where it has a linear part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree with linear tests at its nodes, in the user's units.

    Nodes are numbered depth first, the left child before the right one, so node 0 is the root and
    a left child follows its parent. Leaves are numbered from left to right.

    Attributes
    ----------
    left, right : int32 array of shape (nodes,)
        Children of a node; -1 at a leaf.
    coefficients : CSR array of shape (nodes, features)
        The hyperplane of each decision node; an empty row at a leaf. One non-zero a row is an
        axis-aligned tree.
    threshold : float64 array of shape (nodes,)
        A row goes right when its projection reaches the threshold; 0 at a leaf.
    values : float64 array of shape (leaves, outputs)
        What a leaf answers (class probabilities, targets, coordinates), or the intercept where
        the leaf is linear.
    weight : float64 array of shape (nodes,)
        Total training weight that reached the node.
    slopes : float64 array of shape (leaves, outputs, features) or None
        Linear part of the leaves.
    bounds : float64 array of shape (2, leaves, outputs) or None
        Smallest and largest answer of a linear leaf: what its own training rows span.
    """

    left: Array
    right: Array
    coefficients: sparse.csr_array
    threshold: Array
    values: Array
    weight: Array
    slopes: Array | None = None
    bounds: Array | None = None

    @property
    def n_nodes(self) -> int:
        """Decision nodes and leaves together."""
        return len(self.left)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.values)

    @property
    def n_features(self) -> int:
        """Width of the rows that the tree reads."""
        return int(self.coefficients.shape[1])

    @property
    def n_outputs(self) -> int:
        """Width of a leaf's answer."""
        return int(self.values.shape[1])

    @property
    def is_leaf(self) -> Array:
        """Mask over the nodes."""
        return np.asarray(self.left < 0)

    @property
    def leaf_index(self) -> Array:
        """Leaf number of each node; -1 at a decision node."""
        index = np.cumsum(self.is_leaf) - 1
        return np.where(self.is_leaf, index, -1).astype(np.int32)

    @property
    def leaf_nodes(self) -> Array:
        """Node number of each leaf."""
        return np.flatnonzero(self.is_leaf).astype(np.int32)

    @property
    def node_depth(self) -> Array:
        """Number of decisions above each node."""
        depth = np.zeros(self.n_nodes, np.int32)
        for level, node in enumerate(self.levels()):
            depth[self.left[node]] = depth[self.right[node]] = level + 1
        return depth

    def levels(self) -> list[Array]:
        """Return the decision nodes of each level, from the root down."""
        levels: list[Array] = []
        node = np.zeros(1, np.int32)
        while (node := node[self.left[node] >= 0]).size:
            levels.append(node)
            node = np.concatenate([self.left[node], self.right[node]])
        return levels

    @property
    def depth(self) -> int:
        """Number of decisions on the longest way down."""
        return int(self.node_depth.max())

    @property
    def n_parameters(self) -> int:
        """Numbers needed to write the tree down.

        Non-zero coefficients and a threshold for a decision node (two for an axis-aligned one),
        the answer of a leaf. The boosted TAO paper counts the same, less the thresholds of oblique
        nodes.
        """
        leaves = (
            self.values.size
            if self.slopes is None
            else (self.values.size + np.count_nonzero(self.slopes))
        )
        return int(self.coefficients.nnz + np.count_nonzero(~self.is_leaf) + leaves)

    def ancestors(self) -> sparse.csr_array:
        """Leaf-by-node indicator: which nodes stand on the way to each leaf, itself included."""
        parent = np.full(self.n_nodes, -1, np.int32)
        decision = np.flatnonzero(~self.is_leaf)
        parent[self.left[decision]] = parent[self.right[decision]] = decision
        leaf, node = np.arange(self.n_leaves), self.leaf_nodes
        steps = []
        while leaf.size:
            steps.append((leaf, node))
            node = parent[node]
            leaf, node = leaf[node >= 0], node[node >= 0]
        row, column = np.concatenate(steps, axis=1)
        ones = np.ones(len(row), np.int8)
        shape = (self.n_leaves, self.n_nodes)
        return sparse.csr_array(sparse.coo_array((ones, (row, column)), shape=shape))

    def with_leaves(
        self,
        values: Array,
        weight: Array | None = None,
        slopes: Array | None = None,
        bounds: Array | None = None,
    ) -> Tree:
        """Return the same decisions with other answers at the leaves."""
        return replace(
            self,
            values=np.ascontiguousarray(values, dtype=np.float64),
            weight=self.weight if weight is None else weight,
            slopes=slopes,
            bounds=bounds,
        )


def node_totals(tree: Tree, leaf_totals: Array) -> Array:
    """Sum a quantity of the leaves (leaves, ...) over the subtree of every node."""
    totals = np.zeros((tree.n_nodes, *leaf_totals.shape[1:]))
    totals[tree.leaf_nodes] = leaf_totals
    for node in reversed(tree.levels()):
        totals[node] = totals[tree.left[node]] + totals[tree.right[node]]
    return totals


def answer(tree: Tree, leaf: Array, X: Array | sparse.csr_array) -> Array:
    """Return what leaf number `leaf[i]` answers to row i."""
    if tree.slopes is None:
        return tree.values[leaf]
    result = tree.values[leaf]
    order = np.argsort(leaf, kind="stable")
    ends = np.searchsorted(leaf[order], np.arange(tree.n_leaves + 1))
    for number in np.flatnonzero(np.diff(ends)):
        rows = order[ends[number] : ends[number + 1]]
        result[rows] += X[rows] @ tree.slopes[number].T
    if tree.bounds is not None:
        result = np.clip(result, tree.bounds[0, leaf], tree.bounds[1, leaf])
    return result
