"""Leaf values: Lemma 1, dense algebra, enumeration, priors, totals, forests, pruning by purity."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from conftest import make_tree, route
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from silva import leaf_values
from silva.kernels import select
from silva.labels import LabelSystem, Total
from silva.leaf_values import (
    ancestor_values,
    balancing_weight,
    mean_answers,
    robust_leaf_values,
    smooth_leaf_values,
    stack_memberships,
)
from silva.pruning import prune_by_purity
from silva.solvers import TwoSided
from silva.tree import node_totals


def memberships(rng, n_rows, n_leaves, spread=3):
    """Fuzzy memberships: each row shared between a few leaves next to each other."""
    M = np.zeros((n_rows, n_leaves))
    width = min(spread, n_leaves)
    first = rng.integers(0, n_leaves - width + 1, n_rows)
    for row, begin in enumerate(first):
        M[row, begin : begin + width] = rng.dirichlet(np.ones(width))
    return sparse.csr_array(M)


def crisp(leaf, n_leaves):
    n_rows = len(leaf)
    return sparse.csr_array((np.ones(n_rows), leaf, np.arange(n_rows + 1)), (n_rows, n_leaves))


def problem(seed=0, n_rows=120, n_leaves=25, n_labelled=15, n_classes=3, spread=3):
    """Memberships, class indicators (NaN where unlabelled), labelled mask, weights."""
    rng = np.random.default_rng(seed)
    M = memberships(rng, n_rows, n_leaves, spread)
    labelled = np.zeros(n_rows, bool)
    labelled[rng.permutation(n_rows)[:n_labelled]] = True
    Y = np.where(labelled[:, None], np.eye(n_classes)[rng.integers(n_classes, size=n_rows)], np.nan)
    return M, Y, labelled, rng.uniform(0.5, 2, n_rows)


@pytest.fixture(params=["formed", "two-sided"])
def both_ways(request, monkeypatch):
    """The graph of the leaves multiplied out, and rows and leaves as two sides of one graph."""
    monkeypatch.setattr(leaf_values, "FORMED", np.inf if request.param == "formed" else 0)


# ---- smooth values ------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
def test_mean_answers_are_those_to_the_rows_of_a_leaf_or_to_all_rows_where_it_has_none():
    M = sparse.csr_array(np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0, 1, 0]]))
    answers, weight = np.array([[1.0, 0], [0, 1], [0, 0]]), np.array([1.0, 2, 1])
    expected = [[1 / 2, 1 / 2], [0, 1 / 2], [1 / 4, 1 / 2]]
    np.testing.assert_allclose(mean_answers(M, answers, weight), expected)


def test_predictions_equal_label_propagation_with_the_tree_kernel():
    # Lemma 1 of the kernel tree paper; label propagation in dense NumPy.
    M, Y, labelled, _ = problem()
    V = smooth_leaf_values(M, Y, labelled, np.ones(len(Y)), tol=1e-12)
    D = M.toarray()
    K = D / D.sum(axis=0) @ D.T
    assert_allclose(K.sum(axis=1), 1)
    U, L = ~labelled, labelled
    propagated = np.linalg.solve(np.eye(U.sum()) - K[np.ix_(U, U)], K[np.ix_(U, L)] @ Y[L])
    assert_allclose((M @ V)[U], propagated, atol=1e-9)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("labelled_weight", [1.0, 7.0])
@pytest.mark.parametrize("shape", [(120, 25), (40, 60)])
def test_values_are_the_fixed_point_of_equation_1(shape, labelled_weight):
    M, Y, labelled, weight = problem(n_rows=shape[0], n_leaves=shape[1])
    prior = np.random.default_rng(1).normal(size=(shape[1], 3))
    V = smooth_leaf_values(
        M, Y, labelled, weight, prior, prior_weight=0.2, labelled_weight=labelled_weight, tol=1e-12
    )
    a = weight * np.where(labelled, labelled_weight, 1)
    answers = np.where(labelled[:, None], Y, M @ V)  # an unlabelled row stands for its prediction
    mass = M.T @ a
    held = mass > 0
    mean = (M.T @ (a[:, None] * answers) + 0.2 * mass[:, None] * prior)[held] / (
        1.2 * mass[held, None]
    )
    assert_allclose(V[held], mean, atol=1e-9)
    assert_allclose(V[~held], prior[~held], atol=1e-9)


def test_both_ways_of_solving_agree_on_a_forest(monkeypatch):
    X, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    codes = [np.unique(leaf, return_inverse=True)[1] for leaf in forest.apply(X).T]
    M = stack_memberships([crisp(leaf, leaf.max() + 1) for leaf in codes])
    labelled = np.arange(len(y)) < 100
    prior = np.tile(np.eye(10)[y[labelled]].mean(axis=0), (M.shape[1], 1))
    total = Total((~labelled).astype(float), np.bincount(y[~labelled], minlength=10))
    values = []
    for formed in (np.inf, 0):
        monkeypatch.setattr(leaf_values, "FORMED", formed)
        values.append(
            smooth_leaf_values(
                M, np.eye(10)[y], labelled, np.ones(len(y)), prior, total=total, tol=1e-11
            )
        )
    assert_allclose(*values, atol=1e-8)
    assert_allclose((M @ values[1])[~labelled].sum(axis=0), total.amount, rtol=1e-8)


def test_stacked_memberships_give_the_mean_of_the_trees():
    rng = np.random.default_rng(0)
    parts = [memberships(rng, 30, n) for n in (4, 7, 5)]
    values = [rng.normal(size=(M.shape[1], 2)) for M in parts]
    mean = np.mean([M @ V for M, V in zip(parts, values, strict=True)], axis=0)
    assert_allclose(stack_memberships(parts) @ np.concatenate(values), mean, atol=1e-14)


def test_crisp_leaves_with_labels_answer_their_mean_and_others_the_prior():
    M = crisp(np.array([0, 0, 1, 1, 2]), 4)
    Y = np.array([[1.0], [3], [5], [np.nan], [np.nan]])
    labelled = np.array([True, True, True, False, False])
    prior = np.array([[2.0], [5], [-1], [-2]])  # leaf 3 has no rows at all
    V = smooth_leaf_values(M, Y, labelled, np.ones(5), prior)
    assert_allclose(V, prior, atol=1e-12)


@pytest.mark.usefixtures("both_ways")
def test_leaves_that_no_label_reaches_answer_the_mean_label_without_a_prior():
    M = sparse.csr_array([[0.5, 0.5, 0, 0], [0.3, 0.7, 0, 0], [1, 0, 0, 0], [0, 0, 0.2, 0.8]])
    Y = np.array([[1.0], [3], [np.nan], [np.nan]])
    V = smooth_leaf_values(M, Y, np.array([True, True, False, False]), np.ones(4), tol=1e-12)
    assert_allclose(V[2:], 2, atol=1e-6)


@pytest.mark.usefixtures("both_ways")
def test_known_totals_are_met_and_cost_as_little_as_possible():
    M, Y, labelled, weight = problem(n_leaves=12)
    prior = np.full((12, 3), 1 / 3)
    total = Total((~labelled).astype(float), np.array([50.0, 30.0, 25.0]))
    V = smooth_leaf_values(M, Y, labelled, weight, prior, total=total, tol=1e-12)
    assert_allclose((M @ V)[~labelled].sum(axis=0), total.amount)
    # The KKT conditions with dense algebra.
    D, J = M.toarray(), np.where(labelled, weight, 0)
    U = weight - J
    A = np.diag(D.T @ weight * 1.1) - D.T @ (U[:, None] * D)
    c = D.T @ total.weight
    rhs = D.T @ (J[:, None] * np.nan_to_num(Y)) + 0.1 * (D.T @ weight)[:, None] * prior
    kkt = np.block([[A, c[:, None]], [c[None], np.zeros((1, 1))]])
    assert_allclose(V, np.linalg.solve(kkt, np.vstack([rhs, total.amount]))[:-1], atol=1e-8)


@pytest.mark.usefixtures("both_ways")
@given(st.integers(0, 10**6))
def test_values_stay_within_labels_and_prior(seed):
    M, Y, labelled, weight = problem(seed, n_rows=30, n_leaves=10, n_labelled=4)
    V = smooth_leaf_values(M, Y, labelled, weight, np.full((10, 3), 1 / 3))
    assert V.min() > -1e-6
    assert V.max() < 1 + 1e-6
    assert_allclose(V.sum(axis=1), 1, atol=1e-6)


@pytest.mark.usefixtures("both_ways")
def test_offset_and_unit_of_the_targets_do_not_matter():
    M, Y, labelled, weight = problem()
    prior = np.full((25, 3), 0.2)
    V = smooth_leaf_values(M, Y, labelled, weight, prior)
    shifted = smooth_leaf_values(M, 1e3 * Y + 1e7, labelled, weight, 1e3 * prior + 1e7)
    assert_allclose((shifted - 1e7) / 1e3, V, atol=1e-5)


def test_rows_of_weight_zero_are_as_if_not_there():
    M, Y, labelled, weight = problem(n_rows=200)
    prior, kept = np.full((25, 3), 0.2), np.random.default_rng(5).random(200) < 0.6
    V = smooth_leaf_values(M, Y, labelled, weight * kept, prior)
    W = smooth_leaf_values(M[kept], Y[kept], labelled[kept], weight[kept], prior)
    assert_allclose(V, W, atol=1e-7)


@pytest.mark.parametrize("spread", [2, 30])
def test_leaf_graph_is_the_same_by_sparse_and_dense_products(spread, monkeypatch):
    M, _, _, weight = problem(n_rows=1500, n_leaves=40, spread=spread)
    expected = M.toarray().T @ (weight[:, None] * M.toarray())
    for dense_from in (0, np.inf):
        monkeypatch.setattr(leaf_values, "DENSE", dense_from)
        shared = leaf_values._shared_rows(M, weight)
        assert_allclose(shared.toarray(), expected, atol=1e-10)
        assert_array_equal(shared.toarray(), shared.toarray().T)


def test_balancing_weight_gives_labels_the_weight_of_all_other_rows():
    labelled = np.array([True, False, False, False])
    weight = np.array([0.5, 1, 2, 3])
    assert balancing_weight(labelled, weight) == 12
    assert balancing_weight(~labelled, weight) == 1


# ---- the prior ----------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 6))
def test_prior_is_the_mean_of_the_nearest_node_with_labels(seed, n_leaves, n_labelled):
    rng = np.random.default_rng(seed)
    tree = make_tree(rng, n_leaves, 2)
    leaf = rng.integers(n_leaves, size=20)
    labelled, weight = np.arange(20) < n_labelled, rng.uniform(0.8, 1.2, 20)
    Y = np.where(labelled[:, None], rng.normal(size=(20, 2)), np.nan)
    prior = ancestor_values(tree, crisp(leaf, n_leaves), Y, labelled, weight)
    under = tree.ancestors().toarray().astype(bool)  # leaves by nodes
    for number in range(n_leaves):
        for node in np.flatnonzero(under[number])[::-1]:  # from the leaf up to the root
            rows = labelled & under[leaf, node]
            if rows.any():
                expected = np.average(Y[rows], axis=0, weights=weight[rows])
                break
        assert_allclose(prior[number], expected, atol=1e-12)


def test_traces_of_a_far_label_do_not_make_a_prior():
    tree = make_tree(np.random.default_rng(0), 2, 1)
    M = sparse.csr_array([[0.99, 0.01], [0.999, 0.001], [0.0, 1.0]])
    Y, labelled = np.array([[1.0], [0.0], [np.nan]]), np.array([True, True, False])
    prior = ancestor_values(tree, M, Y, labelled, np.ones(3))
    assert prior[1] == pytest.approx(0.5, abs=0.01)  # of the root
    assert ancestor_values(tree, M, Y, labelled, np.ones(3), 0.0)[1] == pytest.approx(1, abs=0.1)


# ---- robust values ------------------------------------------------------------------------------


def robust_loss(M, Y, labelled, weight, V):
    """The objective of section 3.3, row by row."""
    p = M @ V
    wrong = 1 - np.sum(p * np.nan_to_num(Y), axis=1)
    differ = 1 - np.sum(p**2, axis=1)
    return np.sum(weight * np.where(labelled, wrong, differ))


@pytest.mark.parametrize("labelled_weight", [1.0, 4.0])
@pytest.mark.parametrize("seed", range(12))
def test_two_classes_match_enumeration(seed, labelled_weight):
    M, Y, labelled, weight = problem(seed, 30, 9, 5, 2)
    V, info = robust_leaf_values(M, Y, labelled, weight, labelled_weight=labelled_weight)
    a = weight * np.where(labelled, labelled_weight, 1)
    every = (np.eye(2)[list(c)] for c in product(range(2), repeat=9))
    best = min(robust_loss(M, Y, labelled, a, values) for values in every)
    assert info.claimed.all()
    assert_array_equal(V, V.round())
    assert_allclose(robust_loss(M, Y, labelled, a, V), best, atol=1e-10)
    assert_allclose(info.loss, best, atol=1e-10)


def test_no_shares_are_better_than_one_class_a_leaf():
    # The objective is concave: a corner is best, and the cut finds it.
    M, Y, labelled, weight = problem(3, 30, 9, 5, 2)
    _, info = robust_leaf_values(M, Y, labelled, weight)
    rng = np.random.default_rng(0)
    others = [robust_loss(M, Y, labelled, weight, rng.dirichlet([1, 1], 9)) for _ in range(300)]
    assert info.loss <= min(others)


def test_cuts_that_are_as_good_go_where_the_smooth_values_point():
    # Leaf 1 hangs between two labels by equal weights; its prior decides.
    M = sparse.csr_array([[1.0, 0, 0], [0, 0, 1], [0.5, 0.5, 0], [0, 0.5, 0.5]])
    Y = np.array([[1.0, 0], [0, 1], [np.nan] * 2, [np.nan] * 2])
    labelled = np.array([True, True, False, False])
    for side in (0, 1):
        prior = np.full((3, 2), 0.5)
        prior[1] = np.eye(2)[side]
        V, info = robust_leaf_values(M, Y, labelled, np.ones(4), prior)
        assert_array_equal(V, np.eye(2)[[0, side, 1]])
        assert info.claimed.all()


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_leaves_without_a_claim_keep_their_smooth_value(n_classes):
    M, Y, labelled, weight = problem(4, 200, 60, 12, n_classes, spread=2)
    prior = np.full((60, n_classes), 1 / n_classes)
    V, info = robust_leaf_values(M, Y, labelled, weight, prior, labelled_weight=5.0)
    smooth = smooth_leaf_values(M, Y, labelled, weight, prior, labelled_weight=5.0)
    assert_array_equal(V[~info.claimed], smooth[~info.claimed])
    assert_array_equal(np.sort(V[info.claimed], axis=1)[:, -1], 1)
    assert_allclose(V.sum(axis=1), 1, atol=1e-6)


def test_two_classes_say_nothing_of_leaves_that_no_label_reaches():
    M = crisp(np.array([0, 1, 2, 2]), 3)
    Y = np.array([[1.0, 0], [0, 1], [np.nan] * 2, [np.nan] * 2])
    prior = np.array([[1.0, 0], [0, 1], [0.3, 0.7]])
    V, info = robust_leaf_values(M, Y, np.arange(4) < 2, np.ones(4), prior)
    assert_array_equal(info.claimed, [True, True, False])
    assert_allclose(V, prior)


def test_several_classes_are_claimed_where_they_are_apart():
    rng = np.random.default_rng(0)
    blocks = [memberships(rng, 50, 5) for _ in range(4)]
    M = sparse.block_diag(blocks, format="csr")
    y = np.repeat(np.arange(4), 50)
    labelled = np.arange(200) % 50 < 3
    V, info = robust_leaf_values(M, np.eye(4)[y], labelled, np.ones(200))
    assert info.claimed.all()
    assert_array_equal(V.argmax(axis=1), np.repeat(np.arange(4), 5))
    assert info.loss < 1e-9


def test_collapse_is_seen_and_balancing_the_weights_prevents_it():
    # One chain of leaves with a label at either end: a single class is the most robust.
    rng = np.random.default_rng(0)
    M = sparse.vstack([sparse.csr_array(np.eye(12)[[0, 1, 11]]), memberships(rng, 400, 12)])
    labelled = np.arange(403) < 3
    Y = np.where(labelled[:, None], np.eye(2)[[0, 0, 1] + [0] * 400], np.nan)
    weight = np.ones(403)
    _, alone = robust_leaf_values(M, Y, labelled, weight)
    assert alone.collapsed
    balance = balancing_weight(labelled, weight)
    _, balanced = robust_leaf_values(M, Y, labelled, weight, labelled_weight=balance)
    assert not balanced.collapsed


def test_a_single_class_is_answered_everywhere():
    M, Y, labelled, weight = problem(n_classes=1)
    V, info = robust_leaf_values(M, Y, labelled, weight)
    assert_allclose(V, 1)
    assert not info.collapsed


def test_one_class_in_the_labels_is_no_collapse():
    M, Y, labelled, weight = problem(n_classes=2)
    Y[labelled] = [1, 0]
    assert not robust_leaf_values(M, Y, labelled, weight)[1].collapsed


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"M": sparse.csr_array(np.full((120, 25), 0.1))}, "sum to one"),
        ({"labelled": np.zeros(120, bool)}, "at least one labelled row"),
        ({"weight": np.zeros(120)}, "positive weight"),
        ({"weight": np.ones(7)}, "weight has"),
        ({"targets": np.ones((7, 3))}, "targets has"),
        ({"labelled_weight": 0.0}, "labelled_weight is 0"),
    ],
)
def test_bad_arguments_are_named(change, message):
    given_ = dict(zip(("M", "targets", "labelled", "weight"), problem(), strict=True))
    with pytest.raises(ValueError, match=message):
        smooth_leaf_values(**(given_ | change))


def test_a_system_that_does_not_converge_says_so(monkeypatch):
    monkeypatch.setattr("silva.solvers.MAX_ITERATIONS", 2)
    monkeypatch.setattr(leaf_values, "FORMED", 0)
    with pytest.warns(RuntimeWarning, match="stopped after 2 iterations"):
        smooth_leaf_values(*problem(), tol=1e-14)


def test_two_sided_solver_serves_any_shift_and_start():
    rng = np.random.default_rng(0)
    B = rng.random((8, 13)) * (rng.random((8, 13)) < 0.4)
    W = sparse.block_array([[None, sparse.csr_array(B)], [sparse.csr_array(B.T), None]])
    anchor, evidence = np.ones(21), rng.normal(size=(21, 2))
    for n_first, graph in ((8, W), (13, W.tocsr()[::-1][:, ::-1])):
        system = LabelSystem(graph, 0.7, anchor, solver=partial(TwoSided, n_first), tol=1e-12)
        exact = LabelSystem(graph, 0.7, anchor, solver="eigen")
        for shift in (0.0, 0.3):
            start = rng.normal(size=evidence.shape)
            assert_allclose(
                system.solve(evidence, shift, start), exact.solve(evidence, shift), atol=1e-9
            )


# ---- pruning by purity --------------------------------------------------------------------------


@st.composite
def valued_trees(draw, levels=3):
    """Tree whose leaves have few different class shares, memberships, and crisp leaves of rows."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n_leaves = draw(st.integers(1, 20))
    tree = make_tree(rng, n_leaves, 3, n_outputs=2)
    first = rng.integers(levels, size=n_leaves) / (levels - 1)
    tree = tree.with_leaves(np.stack([first, 1 - first], axis=1))
    weight = rng.integers(0, 4, n_leaves).astype(float)  # some leaves have no rows
    return replace(tree, weight=node_totals(tree, weight)), rng


def merged(M, leaf, n_leaves):
    return sparse.csr_array(M @ crisp(leaf, n_leaves))


@given(valued_trees(levels=4))
def test_pruning_without_tolerance_keeps_all_answers(case):
    tree, rng = case
    smaller, leaf = prune_by_purity(tree, rng.random(tree.n_leaves))
    X = rng.normal(size=(50, 3))
    before, after = (route(select("cpu"), X, t) for t in (tree, smaller))
    assert_array_equal(
        smaller.values[smaller.leaf_index[after]], tree.values[tree.leaf_index[before]]
    )
    assert_array_equal(leaf[tree.leaf_index[before]], smaller.leaf_index[after])
    M = memberships(rng, 40, tree.n_leaves)
    fuzzy = merged(M, leaf, smaller.n_leaves) @ smaller.values
    assert_allclose(fuzzy, M @ tree.values, atol=1e-14)


@given(valued_trees())
def test_pruned_tree_has_no_equal_siblings_left(case):
    smaller, _ = prune_by_purity(case[0])
    for node in np.flatnonzero(~smaller.is_leaf):
        left, right = smaller.left[node], smaller.right[node]
        if smaller.is_leaf[left] and smaller.is_leaf[right]:
            one, other = smaller.values[smaller.leaf_index[[left, right]]]
            assert (one != other).any()


@given(valued_trees(levels=11), st.sampled_from([0.1, 0.25, 0.5]))
def test_pruning_changes_no_answer_by_more_than_the_tolerance(case, tol):
    tree, rng = case
    smaller, leaf = prune_by_purity(tree, tol=tol)
    assert np.abs(smaller.values[leaf] - tree.values).max() <= tol + 1e-12
    M = memberships(rng, 40, tree.n_leaves)
    fuzzy = merged(M, leaf, smaller.n_leaves) @ smaller.values
    assert np.abs(fuzzy - M @ tree.values).max() <= tol + 1e-12


@given(valued_trees(levels=11))
def test_pruning_with_classes_keeps_the_class_of_every_leaf(case):
    tree, _ = case
    smaller, leaf = prune_by_purity(tree, tol=1.0, class_begin=np.array([0, 2]))
    assert_array_equal(smaller.values[leaf].argmax(axis=1), tree.values.argmax(axis=1))


@given(valued_trees(levels=11))
def test_merged_leaf_answers_the_weighted_mean_and_has_the_weight_of_its_parts(case):
    tree, rng = case
    weight = rng.uniform(0.1, 1, tree.n_leaves)
    smaller, _ = prune_by_purity(tree, weight, tol=1.0)
    assert smaller.n_leaves == 1
    assert_allclose(smaller.values[0], np.average(tree.values, axis=0, weights=weight))
    assert_allclose(smaller.weight, weight.sum())
    same, _ = prune_by_purity(tree, weight)
    assert same.weight[0] == pytest.approx(weight.sum())


def test_pruning_says_what_it_cannot_do():
    tree = make_tree(np.random.default_rng(0), 3, 2, linear=True)
    with pytest.raises(ValueError, match="linear"):
        prune_by_purity(tree)
    with pytest.raises(ValueError, match="tol is -1"):
        prune_by_purity(replace(tree, slopes=None, bounds=None), tol=-1)
