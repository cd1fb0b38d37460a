"""Several trees as one model: what they answer together, their size and what an answer costs.

Size and cost are counted as in the boosted TAO paper (section V-A): a decision node has as many
parameters as non-zero weights, two if it tests a single feature, a leaf has one. The size of an
ensemble is the sum over its trees; the cost of a row, in FLOPs, is the number of parameters that it
meets on its way down each of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from silva.tree import Array, Tree


def node_parameters(tree: Tree) -> Array:
    """Return the number of parameters of each node."""
    least = np.where(tree.is_leaf, 1, 2)
    return np.asarray(np.maximum(np.diff(tree.coefficients.indptr), least))


def n_parameters(trees: Iterable[Tree]) -> int:
    """Return the size of an ensemble."""
    return int(sum(node_parameters(tree).sum() for tree in trees))


def leaf_costs(tree: Tree) -> Array:
    """Return the number of parameters on the way to each leaf, itself included."""
    return np.asarray(tree.ancestors() @ node_parameters(tree))
