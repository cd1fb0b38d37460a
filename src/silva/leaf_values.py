"""Values for the leaves of a grown tree or forest, from labelled and unlabelled rows.

Given the membership M of the rows in the leaves (rows sum to one; one-hot for a crisp tree), row
weights a, labels Y of the rows J and none of the rows U. The answer to row i is p_i, the sum of
M_iL v_L over the leaves (kernel tree paper, section 3.2).

Smooth values (eq. 1). Each leaf is the mean of its rows' labels, an unlabelled row standing for its
own prediction: w_L v_L = sum_{i in J} a_i M_iL y_i + sum_{i in U} a_i M_iL p_i with w = Mᵀa. Since
rows of M sum to one, w = MᵀJ1 + MᵀU1 and MᵀU1 are the row sums of MᵀUM (J and U hold the weights),
so that with the Laplacian L(W) = diag(W1) - W the equation reads

    (diag(MᵀJ1) + L(MᵀUM)) V = MᵀJY,

the label problem of `silva.labels` on the leaves: leaves that share unlabelled rows get similar
values. It minimises sum_J a_i sum_L M_iL ||v_L - y_i||² + sum_U a_i sum_L M_iL ||v_L - p_i||². Many
leaves may have no path to a label, so a ridge holds each to a prior: prior_weight · w_L ||v_L -
prior_L||². That is the value of the nearest node above it that holds labels, or the mean of what
another model says of its rows.

A forest is the same problem with the memberships of its trees side by side, divided by their
number. MᵀUM would be dense there. But p_i is what minimises the second sum: with the p_i as
unknowns of their own it is the label problem of a two-sided graph, rows on one side and leaves on
the other, whose weights are a_i M_iL. Nothing needs to be multiplied out.

Robust values (section 3.3). Minimises, over one class a leaf, the chance that an answer drawn from
p_i is wrong (J) or that two such draws differ (U):

    sum_J a_i (1 - p_i[y_i]) + sum_U a_i (1 - ||p_i||²).

It is a cut of the leaves' graph: a leaf is tied to the classes by MᵀJY, two leaves to each other by
2 MᵀUM. (The paper's graph lacks the 2, though its objective meets a pair in both orders, and lets
the product run over all rows, where only the unlabelled ones belong.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from silva.cuts import multiway_cut
from silva.labels import LabelSystem, Total
from silva.solvers import TwoSided
from silva.tree import Array, Tree, node_totals

FORMED = 32
"""MᵀUM is multiplied out where that takes at most so many products for each membership.

Measured on leaves of fuzzy trees: with more, conjugate gradients with M are done before.
"""

DENSE = 1 / 30
"""From this share of all possible products on, dense ones are faster; blocks bound the memory."""


@dataclass(frozen=True, eq=False)
class RobustLeaves:
    """How the robust values came about.

    Attributes
    ----------
    claimed : bool array of shape (leaves,)
        Leaves that a cut gave a class; the others have their smooth value.
    loss : float
        The robust objective at the values returned.
    collapsed : bool
        All leaves have one class though the labels have several: labels weigh too little.
    """

    claimed: Array
    loss: float
    collapsed: bool


def balancing_weight(labelled: Array, weight: Array) -> float:
    """Return max(1, weight unlabelled / weight labelled) (kernel tree paper, appendix B).

    As `labelled_weight` it lets the labels weigh as much as all other rows, which keeps the robust
    values from collapsing into one class.
    """
    return max(1.0, float(weight[~labelled].sum() / weight[labelled].sum()))


def stack_memberships(memberships: Sequence[Any]) -> sparse.csr_array:
    """Return the memberships of a forest: those of its trees side by side, over their number."""
    return sparse.csr_array(sparse.hstack(memberships, format="csr") / len(memberships))


def ancestor_values(
    tree: Tree, M: Any, targets: Array, labelled: Array, weight: Array, min_labelled: float = 0.5
) -> Array:
    """Return for each leaf the mean label of the nearest node on its way that holds labels.

    Parameters
    ----------
    tree : Tree
    M : CSR array of shape (rows, leaves)
        Membership of the rows in the leaves of this one tree.
    targets : float array of shape (rows, outputs)
        Class indicators or numbers; not read where a row is unlabelled.
    labelled : bool array of shape (rows,)
    weight : float array of shape (rows,)
    min_labelled : float
        Weight of labelled rows from which on a node is said to hold labels. In a crisp tree any
        number up to one means one row. In a fuzzy one every leaf holds traces of far labels,
        which say less than the node above it.

    Returns
    -------
    float64 array of shape (leaves, outputs)
    """
    M, targets, labelled, weight = _checked(M, targets, labelled, weight, 1.0)
    counts, evidence = _labelled_part(M, targets, labelled, weight)
    mass = node_totals(tree, counts)
    means = node_totals(tree, evidence) / np.where(mass > 0, mass, 1.0)[:, None]
    poor = (mass < min_labelled) | (mass == 0)
    for node in tree.levels():
        for child in (tree.left[node], tree.right[node]):
            means[child] = np.where(poor[child, None], means[node], means[child])
    return means[tree.leaf_nodes]


def mean_answers(M: Any, answers: Array, weight: Array) -> Array:
    """Return for each leaf the mean of given answers to its rows; without rows, to all rows.

    Parameters
    ----------
    M : CSR array of shape (rows, leaves)
        Membership of the rows in the leaves.
    answers : float array of shape (rows, outputs)
        What another model says of the rows; the labels where they are known.
    weight : float array of shape (rows,)

    Returns
    -------
    float64 array of shape (leaves, outputs)
    """
    mass = np.asarray(M.T @ weight)[:, None]
    sums = np.asarray(M.T @ (weight[:, None] * answers))
    whole = np.average(answers, axis=0, weights=weight)
    return np.asarray(np.where(mass > 0, sums / np.where(mass > 0, mass, 1.0), whole))


def smooth_leaf_values(
    M: Any,
    targets: Array,
    labelled: Array,
    weight: Array,
    prior: Array | None = None,
    *,
    prior_weight: float = 0.1,
    labelled_weight: float = 1.0,
    total: Total | None = None,
    tol: float = 1e-8,
) -> Array:
    """Return the leaf values that make the answers smooth over the rows (eq. 1).

    Parameters
    ----------
    M : CSR array of shape (rows, leaves)
        Membership of the rows in the leaves; each row sums to one.
    targets : float array of shape (rows, outputs)
        Class indicators or numbers; not read where a row is unlabelled.
    labelled : bool array of shape (rows,)
    weight : float array of shape (rows,)
        Non-negative row weights.
    prior : float array of shape (leaves, outputs), optional
        Where no label speaks; see `ancestor_values` and `mean_answers`. Without it, a leaf that no
        label reaches answers the mean label.
    prior_weight : float
        Weight of the prior beside that of the leaf's rows.
    labelled_weight : float
        Factor on the weight of labelled rows; see `balancing_weight`.
    total : Total, optional
        Known sums over the rows: totalᵀ M V = amount, met exactly. Weight 1 at the unlabelled
        rows asks for the number of rows of each class.
    tol : float
        Relative residual at which an iterative solver stops.

    Returns
    -------
    float64 array of shape (leaves, outputs)
    """
    M, targets, labelled, weight = _checked(M, targets, labelled, weight, labelled_weight)
    anchor, evidence = _labelled_part(M, targets, labelled, weight)
    if prior is not None and prior_weight > 0:
        leaf_weight = M.T @ weight
        # A leaf without rows has nothing but its prior, whatever the weight of that.
        ridge = prior_weight * np.where(leaf_weight > 0, leaf_weight, 1.0)
        anchor, evidence = anchor + ridge, evidence + ridge[:, None] * prior
    if total is not None:
        total = Total(M.T @ np.asarray(total.weight, dtype=np.float64), total.amount)
    rows = np.flatnonzero(~labelled & (weight > 0))
    unlabelled, row_weight = M[rows], weight[rows]
    if _n_products(unlabelled) <= FORMED * unlabelled.nnz:
        shared = _shared_rows(unlabelled, row_weight)
        return LabelSystem(shared, 1.0, anchor, tol=tol).solve(evidence, total=total)
    links = sparse.csr_array(sparse.diags_array(row_weight) @ unlabelled)
    graph = sparse.block_array([[None, links], [links.T, None]], format="csr")
    ahead = len(rows)  # the rows come before the leaves
    if total is not None:
        total = Total(np.pad(total.weight, (ahead, 0)), total.amount)
    system = LabelSystem(
        graph, 1.0, np.pad(anchor, (ahead, 0)), solver=partial(TwoSided, ahead), tol=tol
    )
    return system.solve(np.pad(evidence, ((ahead, 0), (0, 0))), total=total)[ahead:]


def robust_leaf_values(
    M: Any,
    targets: Array,
    labelled: Array,
    weight: Array,
    prior: Array | None = None,
    *,
    prior_weight: float = 0.1,
    labelled_weight: float = 1.0,
) -> tuple[Array, RobustLeaves]:
    """Return one class a leaf that makes the answers robust, by cutting the leaves' graph.

    With two classes the values minimise the objective exactly; where several cuts do, each group
    of leaves that may go either way goes where its smooth values point. With more, a leaf has the
    class whose isolating cut claims it. Leaves that none claims, and those that no label reaches,
    keep their smooth value. MᵀUM is multiplied out: meant for the leaves of one tree.

    Parameters
    ----------
    M, targets, labelled, weight, prior, prior_weight, labelled_weight
        As in `smooth_leaf_values`; targets are the indicators of the classes of one output.

    Returns
    -------
    values : float64 array of shape (leaves, classes)
    info : RobustLeaves
    """
    smooth = smooth_leaf_values(
        M,
        targets,
        labelled,
        weight,
        prior,
        prior_weight=prior_weight,
        labelled_weight=labelled_weight,
    )
    M, targets, labelled, weight = _checked(M, targets, labelled, weight, labelled_weight)
    _, ties = _labelled_part(M, targets, labelled, weight)
    unlabelled, row_weight = M[~labelled], weight[~labelled]
    graph = 2 * _shared_rows(unlabelled, row_weight)
    chosen, claimed = np.zeros(len(ties), int), np.zeros(len(ties), bool)
    if ties.shape[1] > 1:
        cut = multiway_cut(graph, ties)
        chosen, claimed = cut.terminal, cut.claimed
    if ties.shape[1] == 2:
        chosen = _settle_ties(graph, smooth * (M.T @ weight)[:, None], chosen, claimed)
        _, component = connected_components(graph, directed=False)
        claimed = (np.bincount(component, ties.sum(axis=1)) > 0)[component]
    values = smooth.copy()
    values[claimed] = np.eye(ties.shape[1])[chosen[claimed]]
    answers = unlabelled @ values
    loss = np.sum(ties * (1 - values)) + row_weight @ (1 - np.sum(answers**2, axis=1))
    one_class = len(np.unique(np.argmax(values, axis=1))) == 1
    several = np.count_nonzero(ties.any(axis=0)) > 1
    return values, RobustLeaves(claimed, float(loss), bool(one_class and several))


def _settle_ties(graph: Any, votes: Array, chosen: Array, claimed: Array) -> Array:
    """Give each connected group of leaves that may take either of two classes the one it prefers.

    Any such choice leaves the weight of the cut at its minimum, as long as a group stays together.
    """
    loose, chosen = np.flatnonzero(~claimed), chosen.copy()
    _, group = connected_components(graph[loose][:, loose], directed=False)
    lead = np.bincount(group, votes[loose, 1] - votes[loose, 0])
    chosen[loose] = (lead > 0)[group]
    return chosen


def _shared_rows(M: sparse.csr_array, weight: Array) -> sparse.csr_array:
    """Return Mᵀ diag(weight) M: how much weight two leaves share."""
    root = sparse.csr_array(sparse.diags_array(np.sqrt(weight)) @ M)
    n_rows, n_leaves = root.shape
    if _n_products(root) < DENSE * n_rows * n_leaves**2:
        return sparse.csr_array(root.T @ root)
    shared = np.zeros((n_leaves, n_leaves))
    for first in range(0, n_rows, 1024):
        block = root[first : first + 1024].toarray()
        shared += block.T @ block
    return sparse.csr_array((shared + shared.T) / 2)  # BLAS need not be symmetric to the last bit


def _n_products(M: sparse.csr_array) -> float:
    """Return the multiplications that MᵀM takes."""
    return float(np.square(np.diff(M.indptr).astype(float)).sum())


def _labelled_part(M: Any, targets: Array, labelled: Array, weight: Array) -> tuple[Array, Array]:
    """Return MᵀJ1 and MᵀJY: the weight of labels in each leaf, and their weighted sum."""
    part = sparse.csr_array(M)[labelled].T
    mass = weight[labelled]
    return np.asarray(part @ mass), np.asarray(part @ (mass[:, None] * targets[labelled]))


def _checked(
    M: Any, targets: Array, labelled: Array, weight: Array, labelled_weight: float
) -> tuple[sparse.csr_array, Array, Array, Array]:
    """Return the arguments as arrays of one length, with the factor on the labelled weights."""
    M = sparse.csr_array(M, dtype=np.float64)
    labelled = np.asarray(labelled, dtype=bool)
    targets, weight = np.asarray(targets), np.asarray(weight, dtype=np.float64)
    for name, array in (("targets", targets), ("labelled", labelled), ("weight", weight)):
        if array.shape[:1] != M.shape[:1]:
            raise ValueError(
                f"{name} has shape {array.shape}: expected {M.shape[0]} rows, those of M"
            )
    if not weight[labelled].any():
        raise ValueError("expected at least one labelled row of positive weight, there is none")
    if M.nnz and abs(M.sum(axis=1) - 1).max() > 1e-6:
        raise ValueError("the rows of M must sum to one: a membership is a share of the row")
    if not 0 < labelled_weight < np.inf:
        raise ValueError(f"labelled_weight is {labelled_weight}: expected a positive number")
    return M, targets, labelled, np.where(labelled, labelled_weight, 1.0) * weight
