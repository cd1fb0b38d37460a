"""Memberships of uncertain rows: probabilities of boxes, few of them, that add up to one."""

from itertools import pairwise

import numpy as np
import pytest
from conftest import make_tree
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.datasets import load_wine

from silva.kernel_growth import Growth, grow
from silva.kernels import cpu
from silva.membership import membership, predict_fuzzy
from silva.tree import Tree


def random_tree(seed, n_leaves=12, n_features=3):
    """Axis-aligned tree of a random shape with random thresholds."""
    rng = np.random.default_rng(seed)
    shape = make_tree(rng, n_leaves, n_features)
    splits = ~shape.is_leaf
    begin = np.concatenate([[0], np.cumsum(splits)])
    column = rng.integers(0, n_features, splits.sum())
    coefficients = sparse.csr_array(
        (np.ones(len(column)), column, begin), shape=(shape.n_nodes, n_features)
    )
    threshold = np.where(splits, rng.normal(size=shape.n_nodes), 0.0)
    values = rng.normal(size=(n_leaves, 2))
    return Tree(shape.left, shape.right, coefficients, threshold, values, shape.weight)


def boxes(tree):
    """Lower and upper ends of each leaf's box; empty ones have low >= high."""
    ends = [None] * tree.n_leaves
    whole = np.full(tree.n_features, np.inf)
    stack = [(0, -whole, whole)]
    while stack:
        node, low, high = stack.pop()
        if tree.left[node] < 0:
            ends[tree.leaf_index[node]] = low, high
            continue
        j = tree.coefficients.indices[tree.coefficients.indptr[node]]
        cut_low, cut_high = low.copy(), high.copy()
        cut_high[j] = min(high[j], tree.threshold[node])
        cut_low[j] = max(low[j], tree.threshold[node])
        stack += [(tree.left[node], low, cut_high), (tree.right[node], cut_low, high)]
    return ends


def gaussian_density(u):
    """Seven pieces between -3 and 3, each of the Gaussian's mass."""
    if abs(u) >= 3:
        return 0.0
    piece = int((u + 3) / (6 / 7))
    begin, end = -3 + piece * 6 / 7, -3 + (piece + 1) * 6 / 7
    mass = (norm.cdf(end) - norm.cdf(begin)) / (norm.cdf(3) - norm.cdf(-3))
    return mass / (end - begin)


def uniform_density(u):
    return float(abs(u) < np.sqrt(3)) / (2 * np.sqrt(3))


DENSITIES = {"gaussian": (gaussian_density, 3.0, 7), "uniform": (uniform_density, np.sqrt(3), 1)}


def mass_between(kernel, low, high):
    density, reach, pieces = DENSITIES[kernel]
    low, high = np.clip([low, high], -reach, reach)
    if low >= high:
        return 0.0
    edges = np.linspace(-reach, reach, pieces + 1)
    inner = edges[(edges > low) & (edges < high)]
    ends = np.concatenate([[low], inner, [high]])
    return sum(quad(density, a, b)[0] for a, b in pairwise(ends))


@pytest.mark.parametrize("kernel", DENSITIES)
def test_membership_is_the_product_of_integrals_over_the_box(kernel):
    tree = random_tree(3, n_leaves=8)
    bandwidth = np.array([0.3, 0.0, 0.7])
    X = np.random.default_rng(0).normal(size=(12, 3))
    found = membership(tree, X, bandwidth, kernel).toarray()
    for leaf, (low, high) in enumerate(boxes(tree)):
        for i, x in enumerate(X):
            expected = float(low[1] <= x[1] < high[1])
            for j in (0, 2):
                ends = (low[j] - x[j]) / bandwidth[j], (high[j] - x[j]) / bandwidth[j]
                expected *= mass_between(kernel, *ends)
            assert_allclose(found[i, leaf], expected, atol=2e-6)


@pytest.mark.parametrize("kernel", DENSITIES)
def test_kernel_has_the_bandwidth_as_its_deviation(kernel):
    density, reach, pieces = DENSITIES[kernel]
    edges = np.linspace(-reach, reach, pieces + 1)
    square = sum(quad(lambda u: u * u * density(u), a, b)[0] for a, b in pairwise(edges))
    assert_allclose(np.sqrt(square), 1, atol=0.05)  # pieces widen the Gaussian a little


@given(st.integers(0, 10**6), st.floats(0, 3), st.sampled_from(["gaussian", "uniform"]))
def test_memberships_of_a_row_add_up_to_one(seed, bandwidth, kernel):
    tree = random_tree(seed)
    X = np.random.default_rng(seed).normal(size=(20, 3))
    found = membership(tree, X, bandwidth, kernel)
    assert_allclose(found.sum(1), 1, rtol=0, atol=1e-12)
    assert found.data.min() > 0.99e-6
    assert found.has_sorted_indices


def test_without_bandwidth_a_row_belongs_to_the_leaf_it_is_routed_to():
    tree = random_tree(1)
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[::5, 1] = tree.threshold[0]
    nodes = cpu.route(X, tree.left, tree.right, tree.coefficients, tree.threshold, 1)
    found = membership(tree, X, 0.0)
    assert_array_equal(found.indices, tree.leaf_index[nodes])
    assert_array_equal(found.data, 1)


@pytest.mark.parametrize("bandwidth", [0.0, 0.4])
def test_prediction_is_membership_times_values(bandwidth):
    tree = random_tree(2)
    X = np.random.default_rng(0).normal(size=(600, 3))
    expected = membership(tree, X, bandwidth) @ tree.values
    for n_threads in (1, 3):
        answer = predict_fuzzy(tree, X, bandwidth, n_threads=n_threads)
        assert_allclose(answer, expected, atol=1e-12)


def test_same_memberships_for_any_number_of_threads():
    tree = random_tree(2)
    X = np.random.default_rng(0).normal(size=(1000, 3))
    one, three = (membership(tree, X, 0.4, n_threads=k) for k in (1, 3))
    assert_array_equal(one.indices, three.indices)
    assert_array_equal(one.data, three.data)


@pytest.mark.parametrize("method", ["exact", "convolved"])
@pytest.mark.parametrize("kernel", ["gaussian", "uniform"])
def test_training_rows_have_the_memberships_they_grew_with(method, kernel):
    X, y = load_wine(return_X_y=True)
    bandwidth = 0.2 * X.std(0)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    growth = Growth(0.5, ccp_alpha=1e-3, bandwidth=bandwidth, method=method, kernel=kernel)
    tree = grow(X, np.eye(3)[y], y >= 0, weight, growth, together=True).tree
    found = membership(tree, X, bandwidth, kernel)
    assert tree.n_leaves > 10
    assert_allclose(weight @ found, tree.weight[tree.is_leaf], rtol=1e-9)


def test_single_precision_rows_are_routed_as_they_grew():
    X, y = load_wine(return_X_y=True)
    X = X.astype(np.float32)
    tree = grow(X, np.eye(3)[y], y >= 0, np.ones(len(X)), Growth(0.5), together=True).tree
    assert_array_equal(membership(tree, X, 0.0).sum(0), tree.weight[tree.is_leaf])


def test_oblique_tree_is_an_error():
    tree = make_tree(np.random.default_rng(0), 5, 3, density=1.0)
    with pytest.raises(ValueError, match="tree must have one column"):
        membership(tree, np.zeros((2, 3)), 0.1)


@pytest.mark.parametrize("call", [membership, predict_fuzzy])
@pytest.mark.parametrize(
    ("name", "X", "bandwidth", "kernel"),
    [
        ("X", np.zeros((2, 4)), 0.1, "gaussian"),
        ("bandwidth", np.zeros((2, 3)), -0.1, "gaussian"),
        ("bandwidth", np.zeros((2, 3)), np.ones(2), "gaussian"),
        ("kernel", np.zeros((2, 3)), 0.1, "box"),
    ],
)
def test_wrong_input_is_named(call, name, X, bandwidth, kernel):
    with pytest.raises(ValueError, match=f"{name} must"):
        call(random_tree(0), X, bandwidth, kernel)
