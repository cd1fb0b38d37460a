"""Growth of kernel trees: limits, draws, threads, pruning, and what is refused."""

import gc
from dataclasses import replace

import numpy as np
import pytest
from conftest import assert_same_tree
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification

from silva.kernel_growth import Growth, grow, grow_many, prepare, prune_path
from silva.membership import membership
from silva.tree import node_totals

DRAWN = {
    "crisp": Growth(supervision=0.5),
    "drawn columns": Growth(supervision=0.5, max_features=2),
    "random thresholds": Growth(supervision=0.5, max_features=2, random_thresholds=True),
    "fuzzy": Growth(supervision=0.5, bandwidth=0.3, ccp_alpha=1e-4),
    "fuzzy random": Growth(
        supervision=0.5, bandwidth=0.3, ccp_alpha=1e-4, max_features=2, random_thresholds=True
    ),
    "exact": Growth(supervision=0.5, bandwidth=0.3, ccp_alpha=1e-3, method="exact"),
}


def some_rows(rows=300):
    X, y = make_classification(rows, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=1)
    return X, np.eye(3)[y], np.arange(rows) % 2 == 0, np.ones(rows)


@pytest.mark.parametrize("growth", DRAWN.values(), ids=DRAWN)
def test_pruning_is_regrowing(growth):
    grown = grow(*some_rows(), growth, together=True, seed=5)
    for alpha in (2e-3, 1e-2, 0.9):
        again = grow(*some_rows(), replace(growth, ccp_alpha=alpha), together=True, seed=5)
        assert again.tree.n_nodes < grown.tree.n_nodes
        assert_same_tree(prune_path(grown, alpha), again.tree)


@pytest.mark.parametrize("growth", DRAWN.values(), ids=DRAWN)
def test_same_tree_for_any_number_of_threads(growth):
    data = some_rows(2000) if growth.method == "convolved" else some_rows()
    one, three = (grow(*data, growth, together=True, seed=2, n_threads=k) for k in (1, 3))
    assert_same_tree(one.tree, three.tree)


def test_forest_is_its_trees():
    X, targets, labelled, weight = some_rows()
    growth = Growth(supervision=0.5, max_features=2)
    counts = np.random.default_rng(0).poisson(1, size=(5, len(X)))
    prepared = prepare(X, targets, labelled, weight, growth, together=True)
    forest = grow_many(prepared, np.arange(5), counts, n_threads=3)
    for number, grown in enumerate(forest):
        alone = grow_many(prepared, np.array([number]), counts[[number]])[0]
        assert_same_tree(grown.tree, alone.tree)
        assert grown.tree.weight[0] == counts[number].sum()
    assert len({grown.tree.n_nodes for grown in forest}) > 1


def test_prepared_rows_outlive_the_arrays_they_came_from():
    growth, seeds = Growth(supervision=0.5), np.array([0])
    X, *labels = some_rows(2000)
    columns = np.asfortranarray(X)  # not copied
    prepared = prepare(columns, *labels, growth, together=True)
    kept = grow_many(prepared, seeds)[0]
    del columns
    gc.collect()
    filler = [np.full(X.shape, float(k)) for k in range(20)]  # where memory was freed
    assert_same_tree(grow_many(prepared, seeds)[0].tree, kept.tree)
    assert len(filler) == 20


def test_seed_decides_what_is_drawn():
    growth = Growth(supervision=0.5, max_features=1)
    trees = [grow(*some_rows(), growth, together=True, seed=s).tree for s in (0, 0, 1)]
    assert_same_tree(trees[0], trees[1])
    assert not np.array_equal(trees[0].threshold, trees[2].threshold)


def test_other_columns_are_drawn_while_none_can_be_split():
    rng = np.random.default_rng(0)
    X = np.zeros((50, 20))
    X[:, :19] = rng.random(19) < 0.5
    X[0, :19] = 1 - X[0, :19]  # vary at the root, constant below
    X[:, 19] = rng.normal(size=50)
    growth = Growth(supervision=0.0, max_features=1)
    data = (X, np.zeros((50, 1)), np.zeros(50, bool), np.ones(50))
    assert grow(*data, growth, together=False, seed=1).tree.n_leaves == 50
    few = replace(growth, max_tries=2)
    assert grow(*data, few, together=False, seed=1).tree.n_leaves < 50


def test_random_thresholds_lie_inside_the_node():
    growth = DRAWN["random thresholds"]
    X, *rest = some_rows()
    grown = grow(X, *rest, growth, together=True, seed=3)
    assert (np.asarray(membership(grown.tree, X, 0.0).sum(0)) > 0).all()
    plain = grow(X, *rest, replace(growth, random_thresholds=False), together=True, seed=3)
    assert grown.gain[0] < plain.gain[0]


@pytest.mark.parametrize("limit", [2, 5, 11])
def test_leaves_are_limited_best_gain_first(limit):
    growth = Growth(supervision=0.5)
    whole = grow(*some_rows(), growth, together=True)
    some = grow(*some_rows(), replace(growth, max_leaf_nodes=limit), together=True)
    assert some.tree.n_leaves == limit
    taken, open_nodes = [], [0]
    for _ in range(limit - 1):
        node = max(open_nodes, key=lambda k: whole.gain[k])
        open_nodes.remove(node)
        open_nodes += [whole.tree.left[node], whole.tree.right[node]]
        taken.append(whole.gain[node])
    assert_allclose(np.sort(some.gain[some.gain > 0]), np.sort(taken))


def test_depth_and_weight_of_leaves_are_limited():
    growth = Growth(supervision=0.5, max_depth=4, min_weight_leaf=9.0)
    tree = grow(*some_rows(), growth, together=True).tree
    assert tree.depth == 4
    assert tree.weight.min() >= 9


@pytest.mark.parametrize("random_thresholds", [False, True])
def test_numbers_of_rows_in_leaves_are_limited_whatever_their_weights(random_thresholds):
    X, targets, labelled, _ = some_rows()
    weight = np.random.default_rng(0).uniform(0.01, 100, len(X))
    growth = Growth(
        supervision=0.5, min_weight_leaf=0.0, min_rows_leaf=9, min_labelled_leaf=6,
        random_thresholds=random_thresholds,
    )  # fmt: skip
    tree = grow(X, targets, labelled, weight, growth, together=True).tree
    M = membership(tree, X, 0.0)
    assert tree.n_leaves > 10
    assert M.sum(axis=0).min() >= 9
    assert M[labelled].sum(axis=0).min() >= 6


def test_nodes_whose_labels_agree_are_left_alone_if_asked():
    X, targets, labelled, weight = some_rows()
    growth = Growth(supervision=0.5, stop_pure=True)
    tree = grow(X, targets, labelled, weight, growth, together=True).tree
    counts = node_totals(tree, membership(tree, X, 0.0)[labelled].T @ targets[labelled])
    agree = (counts > 0).sum(axis=1) <= 1
    assert_array_equal(tree.is_leaf, agree)
    blind = replace(growth, supervision=0.0)
    assert grow(X, targets, labelled, weight, blind, together=True).tree.n_leaves == len(X)


def test_all_components_measure_the_same_variance():
    data = some_rows()
    growth = Growth(supervision=0.5, max_depth=5)
    plain = grow(*data, growth, together=True)
    turned = prepare(*data, replace(growth, variance_components=6), together=True)
    assert_allclose(grow_many(turned, np.array([0]))[0].gain, plain.gain, rtol=1e-4)
    few = grow(*data, replace(growth, variance_components=2), together=True)
    assert 0 < few.gain.sum() < plain.gain.sum()


def test_bins_are_few_where_values_are_many():
    X = np.random.default_rng(0).normal(size=(4000, 1)) ** 3
    data = (X, np.zeros((4000, 1)), np.zeros(4000, bool), np.ones(4000))
    prepared = prepare(*data, Growth(supervision=0.0, max_bins=64), together=False)
    assert 60 <= prepared.rows.bins()[0] <= 64
    tree = grow_many(prepared, np.array([0]))[0].tree
    assert tree.weight[tree.is_leaf].max() <= 2 * 4000 / 64


def test_outliers_have_bins_of_their_own():
    X = np.random.default_rng(0).normal(size=(4000, 1))
    X[:4, 0] = 1e3, 1e4, 1e5, -1e4
    data = (X, np.zeros((4000, 1)), np.zeros(4000, bool), np.ones(4000))
    tree = grow(*data, Growth(supervision=0.0, max_bins=64), together=False).tree
    alone = membership(tree, X[:4], 0.0).indices
    assert_array_equal(tree.weight[tree.leaf_nodes][alone], 1)


def test_thresholds_part_single_precision_rows_as_they_were_grown():
    X = np.nextafter(np.float32(1), np.float32(2)) ** np.arange(8, dtype=np.float32)[:, None]
    assert X.dtype == np.float32
    data = (X, np.zeros((8, 1)), np.zeros(8, bool), np.ones(8))
    tree = grow(*data, Growth(supervision=0.0), together=False).tree
    assert_array_equal(membership(tree, X, 0.0).sum(0), tree.weight[tree.is_leaf])


BAD_GROWTH = {
    "supervision": 1.5,
    "ccp_alpha": -1.0,
    "min_weight_leaf": -1.0,
    "min_rows_leaf": 0,
    "min_labelled_leaf": -1,
    "max_depth": -1,
    "max_leaf_nodes": 0,
    "max_features": 0,
    "max_tries": 0,
    "max_bins": 256,
    "kernel": "box",
    "method": "quick",
    "variance_components": 0,
}


@pytest.mark.parametrize("name", BAD_GROWTH)
def test_wrong_growth_is_named(name):
    with pytest.raises(ValueError, match=f"{name} must be .*got {BAD_GROWTH[name]}"):
        Growth(**{"supervision": 0.5, name: BAD_GROWTH[name]})


@pytest.mark.parametrize("name", ["min_rows_leaf", "min_labelled_leaf"])
def test_uncertain_rows_are_not_counted(name):
    with pytest.raises(ValueError, match=f"{name} must be . where rows are uncertain, got 2"):
        Growth(supervision=0.5, bandwidth=0.1, **{name: 2})


@pytest.mark.parametrize("bandwidth", [-1.0, np.nan, np.ones(2)])
def test_wrong_bandwidth_is_named(bandwidth):
    growth = Growth(supervision=0.5, bandwidth=bandwidth)
    with pytest.raises(ValueError, match="bandwidth must be"):
        grow(*some_rows(40), growth, together=True)


@pytest.mark.parametrize(
    ("name", "place", "wrong"),
    [
        ("X", 0, np.full((40, 6), np.nan)),
        ("X", 0, np.zeros(40)),
        ("targets", 1, np.zeros((39, 3))),
        ("targets", 1, np.full((40, 6), np.nan)),
        ("labelled", 2, np.zeros(39, bool)),
        ("weight", 3, np.zeros(40)),
        ("weight", 3, np.ones(39)),
    ],
)
def test_wrong_rows_are_named(name, place, wrong):
    data = list(some_rows(40))
    data[place] = wrong
    with pytest.raises(ValueError, match=f"{name} must be"):
        grow(*data, Growth(supervision=0.5), together=True)


def test_supervised_growth_without_labels_is_an_error():
    X, targets, labelled, weight = some_rows(40)
    with pytest.raises(ValueError, match="labelled must be"):
        grow(X, targets, labelled & False, weight, Growth(supervision=1.0), together=True)


@pytest.mark.parametrize("counts", [np.ones((2, 5)), -np.ones((2, 40)), np.zeros((2, 40))])
def test_wrong_counts_are_named(counts):
    prepared = prepare(*some_rows(40), Growth(supervision=0.5), together=True)
    with pytest.raises(ValueError, match="counts must be"):
        grow_many(prepared, np.arange(2), counts)
