"""The Tree: what it counts, where it sends rows, what pruning leaves."""

from dataclasses import FrozenInstanceError
from itertools import combinations

import numpy as np
import pytest
from conftest import assert_same_tree, dense, make_matrix, make_tree, route, route_by_hand
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from silva.grow import from_planes, from_sklearn, to_planes
from silva.kernels import reference
from silva.leaves import ClassShares, Mean
from silva.losses import CLASS_LOSSES
from silva.pruning import prune_costly, prune_dead, shrink
from silva.tree import Tree, answer, node_totals

SEEDS = st.integers(0, 10**6)


def tiny():
    """x0 >= 1 ? leaf : (x0 - 2 x2 >= 3 ? leaf : leaf), two outputs."""
    return Tree(
        left=np.array([1, 2, -1, -1, -1], np.int32),
        right=np.array([4, 3, -1, -1, -1], np.int32),
        coefficients=sparse.csr_array(
            np.array([[1.0, 0, 0], [1, 0, -2], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
        ),
        threshold=np.array([1.0, 3, 0, 0, 0]),
        values=np.array([[0.0, 1], [2, 3], [4, 5]]),
        weight=np.array([6.0, 3, 1, 2, 3]),
    )


def test_counts_of_a_tiny_tree_by_hand():
    tree = tiny()
    assert (tree.n_nodes, tree.n_leaves, tree.n_features, tree.n_outputs) == (5, 3, 3, 2)
    assert tree.depth == 2
    assert_array_equal(tree.node_depth, [0, 1, 2, 2, 1])
    assert_array_equal(tree.leaf_index, [-1, -1, 0, 1, 2])
    assert_array_equal(tree.leaf_nodes, [2, 3, 4])
    # Three coefficients, two thresholds, three leaves of two numbers.
    assert tree.n_parameters == 3 + 2 + 6


def test_slopes_count_as_parameters():
    slopes = np.zeros((3, 2, 3))
    slopes[0, 0, 1] = slopes[2, 1, 2] = 5
    tree = tiny().with_leaves(tiny().values, slopes=slopes)
    assert tree.n_parameters == tiny().n_parameters + 2


def test_a_single_leaf_is_a_tree(table):
    leaf = Tree(
        left=np.array([-1], np.int32),
        right=np.array([-1], np.int32),
        coefficients=sparse.csr_array((1, 3)),
        threshold=np.zeros(1),
        values=np.array([[7.0]]),
        weight=np.ones(1),
    )
    assert (leaf.depth, leaf.n_leaves, leaf.n_parameters) == (0, 1, 1)
    assert_array_equal(leaf.ancestors().toarray(), [[1]])
    assert_array_equal(route(table, np.ones((4, 3)), leaf), np.zeros(4))
    assert_same_tree(prune_dead(leaf), leaf)


def test_tree_is_frozen():
    with pytest.raises(FrozenInstanceError):
        tiny().left = np.zeros(5)


def test_rows_on_the_threshold_go_right(table):
    X = np.array([[1.0, 0, 0], [0.5, 0, -1.25], [0.5, 0, 0]])
    assert_array_equal(route(table, X, tiny()), [4, 3, 2])
    assert_array_equal(route(table, X.astype(np.float32), tiny()), [4, 3, 2])
    assert_array_equal(route(table, sparse.csr_array(X), tiny()), [4, 3, 2])


@given(seed=SEEDS, n_leaves=st.integers(1, 20))
def test_ancestors_are_the_nodes_on_the_way(seed, n_leaves):
    tree = make_tree(np.random.default_rng(seed), n_leaves, 2)
    ancestors = tree.ancestors().toarray()
    parent = {int(c): i for i in range(tree.n_nodes) for c in (tree.left[i], tree.right[i])}
    for number, node in enumerate(tree.leaf_nodes):
        way = {int(node)}
        while node != 0:
            node = parent[int(node)]
            way.add(node)
        assert set(np.flatnonzero(ancestors[number])) == way
        assert len(way) == tree.node_depth[tree.leaf_nodes[number]] + 1


@given(seed=SEEDS, n_leaves=st.integers(1, 20))
def test_every_row_is_in_exactly_one_leaf(seed, n_leaves):
    rng = np.random.default_rng(seed)
    tree = make_tree(rng, n_leaves, 3)
    leaf = route(reference, rng.normal(size=(30, 3)), tree)
    member = leaf[:, None] == tree.leaf_nodes
    assert_array_equal(member.sum(axis=1), 1)


@given(seed=SEEDS, n_leaves=st.integers(1, 20))
def test_node_totals_sum_over_the_leaves_below(seed, n_leaves):
    rng = np.random.default_rng(seed)
    tree = make_tree(rng, n_leaves, 2)
    amount = rng.normal(size=(n_leaves, 2))
    assert_allclose(node_totals(tree, amount), tree.ancestors().T @ amount, atol=1e-12)


def reached(tree, X):
    """The tree with the number of rows at each node as its weight, and the leaf of each row."""
    leaf = tree.leaf_index[route(reference, X, tree)]
    weight = node_totals(tree, np.bincount(leaf, minlength=tree.n_leaves).astype(float))
    return tree.with_leaves(tree.values, weight, tree.slopes, tree.bounds), leaf


@given(seed=SEEDS, n_leaves=st.integers(1, 25), n_rows=st.integers(1, 12), linear=st.booleans())
def test_pruning_keeps_answers_and_removes_dead_branches(seed, n_leaves, n_rows, linear):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    tree, leaf = reached(make_tree(rng, n_leaves, 3, n_outputs=2, linear=linear), X)
    pruned, pruned_leaf = reached(prune_dead(tree), X)
    assert_allclose(answer(pruned, pruned_leaf, X), answer(tree, leaf, X))
    assert pruned.n_leaves == len(np.unique(leaf))
    assert (pruned.weight > 0).all()
    assert_array_equal(pruned.weight, prune_dead(tree).weight)  # carried over, not only recounted
    assert pruned.n_nodes == 2 * pruned.n_leaves - 1
    assert pruned.n_parameters <= tree.n_parameters


@given(seed=SEEDS, n_leaves=st.integers(1, 25), n_rows=st.integers(1, 12))
def test_pruned_tree_is_numbered_depth_first(seed, n_leaves, n_rows):
    rng = np.random.default_rng(seed)
    tree, _ = reached(make_tree(rng, n_leaves, 3), rng.normal(size=(n_rows, 3)))
    pruned = prune_dead(tree)
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        if pruned.left[node] >= 0:
            stack += [int(pruned.right[node]), int(pruned.left[node])]
    assert order == list(range(pruned.n_nodes))


def test_pruning_twice_changes_nothing_more():
    rng = np.random.default_rng(0)
    tree, _ = reached(make_tree(rng, 15, 3, density=1.0), rng.normal(size=(10, 3)))
    pruned = prune_dead(tree)
    assert pruned.n_leaves < 15
    assert pruned.coefficients.has_sorted_indices  # the core reads ascending columns
    assert_same_tree(prune_dead(pruned), pruned)


# ---- pruning what costs more than it brings ------------------------------------------------------


def total_loss(leaves, leaf):
    """Loss of a partition of the rows, every part fitted by itself."""
    total = 0.0
    for number in np.unique(leaf):
        here = leaf == number
        if isinstance(leaves, Mean):
            total += ((leaves.targets[here] - leaves.targets[here].mean(axis=0)) ** 2).sum()
            continue
        codes = leaves.codes[here, 0]
        counts = np.bincount(codes, minlength=leaves.class_begin[-1]).astype(float)
        total += CLASS_LOSSES[leaves.loss](counts)[codes].sum()
    return total


def cut_back(tree, penalty, cut):
    """Price and leaves of the tree with the nodes of `cut` as leaves and dead branches gone."""
    price, ends, stack = 0.0, [], [0]
    while stack:
        node = stack.pop()
        if node in cut or tree.left[node] < 0:
            ends.append(node)
            continue
        alive = [int(c[node]) for c in (tree.left, tree.right) if tree.weight[c[node]] > 0]
        price += penalty[node] if len(alive) == 2 else 0.0
        stack += alive
    return price, ends


@pytest.mark.parametrize("loss", ["misclassification", "squared", "log", "mean"])
@given(seed=SEEDS, n_leaves=st.integers(1, 6), alpha=st.sampled_from([0.0, 0.3, 2.0]))
def test_costly_subtrees_are_cut_exactly(loss, seed, n_leaves, alpha):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 2))
    y = np.digitize(X[:, 0] + rng.normal(size=25) / 2, [-0.5, 0.5])
    tree, leaf = reached(make_tree(rng, n_leaves, 2), X)
    if loss == "mean":
        leaves = Mean(y[:, None].astype(np.float32))
        answers = y[:, None].astype(float)
    else:
        leaves = ClassShares(y[:, None].astype(np.int32), np.array([0, 3], np.int32), loss)
        answers = np.eye(3)[y]
    values = [
        answers[leaf == k].mean(axis=0) if (leaf == k).any() else answers.mean(axis=0)
        for k in range(n_leaves)
    ]
    tree = tree.with_leaves(np.array(values), tree.weight)
    penalty = alpha * rng.uniform(0.5, 2, tree.n_nodes)
    pruned, moved = prune_costly(tree, leaves, penalty)

    # Every way to cut the tree back: its price, and the loss of the rows that end together.
    decisions = [int(node) for node in np.flatnonzero(~tree.is_leaf)]
    ways = []
    for size in range(len(decisions) + 1):
        for cut in combinations(decisions, size):
            price, ends = cut_back(tree, penalty, set(cut))
            end_of_leaf = tree.ancestors().toarray()[:, ends].argmax(axis=1)
            ways.append(price + total_loss(leaves, end_of_leaf[leaf]))
    price_of = {tree.threshold[node]: penalty[node] for node in decisions}
    price = sum(price_of[threshold] for threshold in pruned.threshold[~pruned.is_leaf])
    assert_allclose(price + total_loss(leaves, moved[leaf]), min(ways), atol=1e-5)
    # The rows are where the smaller tree sends them, and are answered by their own shares.
    assert_array_equal(moved[leaf], pruned.leaf_index[route(reference, X, pruned)])
    for number in np.unique(moved[leaf]):
        assert_allclose(
            pruned.values[number], answers[moved[leaf] == number].mean(axis=0), atol=1e-9
        )


def test_shrinking_leans_on_the_parent_by_hand():
    # Leaves of one, two and three rows.
    tree = tiny().with_leaves(np.array([[1.0], [2.0], [4.0]]))
    shrunk = shrink(tree, 3.0)
    root = (1 + 2 * 2 + 3 * 4) / 6
    inner = (3 * 5 / 3 + 3 * root) / 6
    expected = [[(1 + 3 * inner) / 4], [(2 * 2 + 3 * inner) / 5], [(3 * 4 + 3 * root) / 6]]
    assert_allclose(shrunk.values, expected)
    assert_array_equal(shrunk.left, tree.left)
    assert_array_equal(shrink(tree, 0.0).values, tree.values)


@given(seed=SEEDS, n_leaves=st.integers(1, 12), strength=st.floats(0, 100))
def test_shrunk_shares_are_shares(seed, n_leaves, strength):
    rng = np.random.default_rng(seed)
    tree = make_tree(rng, n_leaves, 2)
    weight = node_totals(tree, rng.integers(1, 9, n_leaves).astype(float))
    shares = rng.dirichlet(np.ones(3), n_leaves)
    shrunk = shrink(tree.with_leaves(shares, weight), strength)
    assert_allclose(shrunk.values.sum(axis=1), 1)
    assert (shrunk.values >= 0).all()
    assert np.ptp(shrunk.values, axis=0).max() <= np.ptp(shares, axis=0).max() + 1e-12


def test_much_shrinking_leaves_the_mean_of_all():
    tree = tiny().with_leaves(np.array([[1.0], [2.0], [4.0]]))
    assert_allclose(shrink(tree, 1e12).values, 17 / 6, rtol=1e-6)


# ---- answers and other trees --------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["floats", "floats float32", "csr"])
def test_linear_answers_are_clipped_lines(storage):
    rng = np.random.default_rng(0)
    tree = make_tree(rng, 6, 4, n_outputs=2, linear=True)
    X = make_matrix(storage, 40, 4)
    leaf = tree.leaf_index[route_by_hand(tree, X)]
    expected = [
        np.clip(tree.values[k] + tree.slopes[k] @ x, *tree.bounds[:, k])
        for k, x in zip(leaf, dense(X), strict=True)
    ]
    assert_allclose(answer(tree, leaf, X), expected, rtol=1e-6)


def test_answering_leaves_the_tree_alone():
    rng = np.random.default_rng(0)
    tree = make_tree(rng, 4, 3, linear=True)
    before = tree.values.copy()
    X = rng.normal(size=(10, 3))
    answer(tree, tree.leaf_index[route_by_hand(tree, X)], X)
    assert_array_equal(tree.values, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("Model", [DecisionTreeClassifier, ExtraTreeClassifier])
def test_sklearn_tree_sends_every_row_as_before(Model, dtype, table):
    X, y = load_iris(return_X_y=True)
    X = X.astype(dtype)
    model = Model(max_depth=5, random_state=0).fit(X, y)
    tree = from_sklearn(model)
    leaf = route(table, X, tree)
    assert_array_equal(leaf, model.apply(X))
    assert_allclose(answer(tree, tree.leaf_index[leaf], X), model.predict_proba(X))
    assert (tree.depth, tree.n_leaves) == (model.get_depth(), model.get_n_leaves())


def test_sklearn_regression_tree_answers_as_before(table):
    X, y = load_diabetes(return_X_y=True)
    model = DecisionTreeRegressor(max_depth=6, random_state=0).fit(X, y)
    tree = from_sklearn(model)
    leaf = tree.leaf_index[route(table, X, tree)]
    assert_allclose(answer(tree, leaf, X)[:, 0], model.predict(X))
    assert_array_equal(tree.weight, model.tree_.weighted_n_node_samples)


def test_an_unfitted_sklearn_tree_is_refused():
    from silva import TAOTreeClassifier

    X, y = load_iris(return_X_y=True)
    with pytest.raises(NotFittedError):
        TAOTreeClassifier(init=DecisionTreeClassifier()).fit(X, y)


@pytest.mark.parametrize("storage", ["bytes", "floats", "csr"])
def test_planes_go_to_scaled_units_and_back(table, storage):
    X = make_matrix(storage, 50, 4) * 10.0
    tree = make_tree(np.random.default_rng(1), 7, 4)
    rows = table.prepare(X, 1)
    planes = to_planes(tree, rows)
    assert planes.value.dtype == planes.bias.dtype == np.float32
    back = from_planes(tree.left, tree.right, planes, rows)
    assert_allclose(back.coefficients.toarray(), tree.coefficients.toarray(), rtol=1e-6)
    assert_allclose(back.threshold, tree.threshold, rtol=1e-5, atol=1e-5)
    w, b = reference.unpack(planes, 4)
    Z = (dense(X) - rows.centre) / rows.scale
    decision = tree.left >= 0
    assert_allclose(
        (Z @ w.T + b)[:, decision],
        (dense(X) @ tree.coefficients.toarray().T - tree.threshold)[:, decision],
        atol=1e-4,
    )
