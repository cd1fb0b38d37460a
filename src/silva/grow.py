"""First trees: where the alternating optimisation starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from silva.kernels import Kernels, Matrix, Planes, Rows
from silva.leaves import Leaves
from silva.tree import Array, Tree


def from_planes(left: Array, right: Array, planes: Planes, rows: Rows) -> Tree:
    """Return the tree of scaled planes in the user's units; its leaves answer nothing yet."""
    n_nodes, n_features = len(left), len(rows.scale)
    coefficients = sparse.csr_array(
        (planes.value / rows.scale[planes.index], planes.index, planes.begin),
        shape=(n_nodes, n_features),
    )
    threshold = coefficients @ rows.centre - planes.bias
    threshold[left < 0] = 0
    return Tree(
        left=left,
        right=right,
        coefficients=coefficients,
        threshold=threshold,
        values=np.zeros((int((left < 0).sum()), 1)),
        weight=np.zeros(n_nodes),
    )


def to_planes(tree: Tree, rows: Rows) -> Planes:
    """Return the planes of a tree in scaled units."""
    c = tree.coefficients
    bias = c @ rows.centre - tree.threshold
    return Planes(
        begin=c.indptr.astype(np.int32),
        index=c.indices.astype(np.int32),
        value=(c.data * rows.scale[c.indices]).astype(np.float32),
        bias=bias.astype(np.float32),
    )


def with_unit_features(tree: Tree, rows: Rows) -> Tree:
    """Return the tree with tests of a single feature written as ±x >= t in scaled units.

    The penalty of such a test is then `alpha` whatever the units; the routing stays the same.
    """
    single = np.diff(tree.coefficients.indptr) == 1
    first = tree.coefficients.indptr[:-1][single]
    size = abs(tree.coefficients.data[first]) * rows.scale[tree.coefficients.indices[first]]
    factor = np.ones(tree.n_nodes)
    factor[single] = 1 / size
    coefficients = sparse.csr_array(sparse.diags_array(factor) @ tree.coefficients)
    return replace(tree, coefficients=coefficients, threshold=tree.threshold * factor)


def random_start(
    kernels: Kernels,
    rows: Rows,
    leaves: Leaves,
    direction: str,
    max_depth: int,
    seed: int,
    weight: Array | None = None,
) -> Tree:
    """Draw hyperplanes (see `Kernels.grow_start`), each cutting its rows in half."""
    left, right, planes = kernels.grow_start(rows, leaves, direction, max_depth, 2, seed, weight)
    return from_planes(left, right, planes, rows)


def greedy_start(model: Any, X: Matrix, rows: Rows, targets: Array, weight: Array) -> Tree:
    """Fit a scikit-learn decision tree to the scaled rows; return it in the user's units.

    scikit-learn's trees read float32: columns far from zero, or very large or small, would lose
    their digits unscaled.
    """
    if sparse.issparse(X):
        scaled = sparse.csr_array(X @ sparse.diags_array(1 / rows.scale))
        scaled.indices = scaled.indices.astype(np.int32)  # scikit-learn reads no others
        scaled.indptr = scaled.indptr.astype(np.int32)
    else:
        scaled = ((X - rows.centre) / rows.scale).astype(np.float32)
    tree = from_sklearn(model.fit(scaled, targets, weight))
    coefficients = tree.coefficients @ sparse.diags_array(1 / rows.scale)
    shift = tree.coefficients @ (rows.centre / rows.scale)
    return replace(
        tree, coefficients=sparse.csr_array(coefficients), threshold=tree.threshold + shift
    )


def from_sklearn(model: Any) -> Tree:
    """Return a fitted scikit-learn decision tree as a `Tree`.

    scikit-learn sends a row left when x <= threshold; ours goes right when x >= threshold. The
    threshold moves to the next float32, scikit-learn's own precision, so no row changes sides.
    """
    source = model.tree_
    left = source.children_left.astype(np.int32)
    right = source.children_right.astype(np.int32)
    decision = np.flatnonzero(left >= 0)
    begin = np.zeros(len(left) + 1, np.int32)
    begin[decision + 1] = 1
    coefficients = sparse.csr_array(
        (np.ones(len(decision)), source.feature[decision].astype(np.int32), np.cumsum(begin)),
        shape=(len(left), model.n_features_in_),
    )
    threshold = np.zeros(len(left))
    float32 = source.threshold[decision].astype(np.float32)
    threshold[decision] = np.where(
        float32 > source.threshold[decision], float32, np.nextafter(float32, np.float32(np.inf))
    )
    return Tree(
        left=left,
        right=right,
        coefficients=coefficients,
        threshold=threshold,
        values=source.value[left < 0].reshape(int((left < 0).sum()), -1),
        weight=source.weighted_n_node_samples.astype(np.float64),
    )
