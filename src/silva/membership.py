"""Memberships of uncertain rows in the leaves of a tree, and the answers they blend.

A row x is a random variable around where it was seen, with independent columns, and its membership
in a leaf is the probability to lie in the leaf's box (kernel tree paper, section 3.2):

    mu_leaf(x) = product over columns j of F_j(b_j - x_j) - F_j(a_j - x_j),

F the distribution function of the piecewise constant kernel that the tree grew with, so training
rows have the memberships they grew with. A part below 1e-6 is not cut off at a decision but stays
with the other side: the memberships of a row are few and add up to one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse

from silva import _core
from silva.kernel_growth import KERNELS, column_bandwidths
from silva.kernels import cpu
from silva.tree import Array, Tree


def membership(
    tree: Tree,
    X: Array,
    bandwidth: float | Array,
    kernel: Literal["gaussian", "uniform"] = "gaussian",
    n_threads: int = 1,
) -> sparse.csr_array:
    """Return memberships, a sparse array of shape (rows, leaves).

    Parameters
    ----------
    tree : Tree
        With axis-aligned decisions.
    X : array of shape (rows, columns)
    bandwidth : float or array of shape (columns,)
        Standard deviation of the kernel in the units of X; with 0 a row belongs to one leaf.
    kernel : "gaussian" or "uniform"
        The Gaussian as a histogram of seven pieces between -3 and 3 deviations, or uniform.
    n_threads : int
        The result is the same for any number.
    """
    spread = column_bandwidths(bandwidth, tree.n_features)
    _check(tree, X, kernel)
    shape = (len(X), tree.n_leaves)
    if not spread.any():
        begin = np.arange(len(X) + 1)
        return sparse.csr_array((np.ones(len(X)), _leaves(tree, X, n_threads), begin), shape=shape)
    begin, leaf, part = _core.membership(*_arrays(tree, X), spread, kernel == "uniform", n_threads)
    return sparse.csr_array((part, leaf, begin), shape=shape)


def predict_fuzzy(
    tree: Tree,
    X: Array,
    bandwidth: float | Array,
    kernel: Literal["gaussian", "uniform"] = "gaussian",
    n_threads: int = 1,
) -> Array:
    """Return the leaves' answers blended by membership: ``membership(...) @ tree.values``."""
    spread = column_bandwidths(bandwidth, tree.n_features)
    _check(tree, X, kernel)
    if not spread.any():
        return np.asarray(tree.values[_leaves(tree, X, n_threads)])
    values = np.ascontiguousarray(tree.values, dtype=np.float64)
    uniform = kernel == "uniform"
    return np.asarray(_core.blend_leaves(*_arrays(tree, X), spread, uniform, values, n_threads))


def _leaves(tree: Tree, X: Array, n_threads: int) -> Array:
    precision = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    X = np.ascontiguousarray(X, dtype=precision)
    nodes = cpu.route(X, tree.left, tree.right, tree.coefficients, tree.threshold, n_threads)
    return tree.leaf_index[nodes]


def _arrays(tree: Tree, X: Array) -> tuple[Array, ...]:
    splits = ~tree.is_leaf
    feature = np.full(tree.n_nodes, -1, np.int32)
    feature[splits] = tree.coefficients.indices
    # A decision is about coefficient * x: in the units of x it is a threshold.
    threshold = np.zeros(tree.n_nodes)
    threshold[splits] = tree.threshold[splits] / tree.coefficients.data
    rows = np.ascontiguousarray(X, dtype=np.float64)
    return rows, tree.left, tree.right, feature, threshold, tree.leaf_index


def _check(tree: Tree, X: Array, kernel: str) -> None:
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be 'gaussian' or 'uniform', got {kernel!r}.")
    if X.ndim != 2 or X.shape[1] != tree.n_features:
        raise ValueError(f"X must have {tree.n_features} columns, got shape {X.shape}.")
    single = np.diff(tree.coefficients.indptr)[~tree.is_leaf] == 1
    if not single.all() or (tree.coefficients.data <= 0).any():
        raise ValueError(
            "tree must have one column with a positive coefficient at each decision, got others."
        )
