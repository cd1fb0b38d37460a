"""Embedding objectives: by hand, by finite differences, against scikit-learn, on the grid."""

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn import manifold
from sklearn.manifold._t_sne import _joint_probabilities, _kl_divergence

from silva import affinity_graph
from silva.energies import elastic, tsne
from silva.pair_sums import (
    CAUCHY,
    GAUSSIAN,
    GridPairSum,
    exact_pair_sum,
    pair_sum,
    plain_pair_sum,
)

KERNELS = {"gaussian": GAUSSIAN, "cauchy": CAUCHY}


def make_points(n=60, axes=2, seed=0, spread=2.0):
    return np.random.default_rng(seed).normal(size=(n, axes)) * spread


def make_graph(n=60, seed=0):
    return affinity_graph(np.random.default_rng(seed).normal(size=(n, 4)), 9, 3.0)


def energies(W, **options):
    return {"elastic": elastic(W, 7.0, **options), "tsne": tsne(W, **options)}


def slope_by_differences(function, Z, step=1e-5):
    gradient = np.zeros_like(Z)
    for index in np.ndindex(*Z.shape):
        for sign in (1, -1):
            moved = Z.copy()
            moved[index] += sign * step
            gradient[index] += sign * function(moved) / (2 * step)
    return gradient


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("axes", [1, 2, 3, 5])
def test_exact_sum_is_the_double_sum(name, axes):
    kernel, Z, mass = KERNELS[name], make_points(37, axes), np.arange(1.0, 38.0)
    square = cdist(Z, Z, "sqeuclidean")
    k = np.exp(-square) if name == "gaussian" else 1 / (1 + square)
    total, _ = exact_pair_sum(kernel, Z, mass)
    assert total == pytest.approx(mass @ k @ mass, rel=1e-6)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_compiled_sum_agrees_with_numpy(name, axes):
    kernel, Z, mass = KERNELS[name], make_points(333, axes) + 50, np.ones(333)
    total, gradient = exact_pair_sum(kernel, Z, mass)
    plain_total, plain_gradient = plain_pair_sum(kernel, Z, mass)
    assert total == pytest.approx(plain_total, rel=1e-6)
    size = np.abs(plain_gradient).max()
    np.testing.assert_allclose(gradient, plain_gradient, atol=1e-5 * size)


@pytest.mark.parametrize("name", KERNELS)
def test_sum_does_not_depend_on_the_number_of_threads(name):
    Z, mass = make_points(500), np.ones(500)
    one, two = (exact_pair_sum(KERNELS[name], Z, mass, n_threads) for n_threads in (1, 3))
    assert one[0] == two[0]
    np.testing.assert_array_equal(one[1], two[1])
    grids = [GridPairSum(KERNELS[name], n_threads=n_threads)(Z, mass) for n_threads in (1, 3)]
    np.testing.assert_array_equal(grids[0][1], grids[1][1])


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("spread", [1.0, 8.0])
def test_grid_agrees_with_the_exact_sum(name, axes, spread):
    kernel, Z = KERNELS[name], make_points(800, axes, spread=spread)
    mass = np.random.default_rng(1).uniform(0.5, 2, len(Z))
    total, gradient = plain_pair_sum(kernel, Z, mass)
    grid_total, grid_gradient = GridPairSum(kernel)(Z, mass)
    assert grid_total == pytest.approx(total, rel=1e-4)
    error = np.linalg.norm(grid_gradient - gradient) / np.linalg.norm(gradient)
    assert error < 0.015


def test_finer_grid_is_closer():
    Z, mass = make_points(800, spread=5.0), np.ones(800)
    _, exact = plain_pair_sum(CAUCHY, Z, mass)
    errors = [np.linalg.norm(GridPairSum(CAUCHY, s)(Z, mass)[1] - exact) for s in (0.4, 0.2, 0.1)]
    assert errors[1] < errors[0] / 6  # of third order: cubic splines, one derivative
    assert errors[2] < errors[1] / 6


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_of_the_grid_is_that_of_its_value(name):
    Z, mass = make_points(40), np.ones(40)
    Z[:4] = [[-9, -9], [9, 9], [-9, 9], [9, -9]]  # they span the grid and stay where they are
    grid = GridPairSum(KERNELS[name])
    by_hand = slope_by_differences(lambda moved: grid(moved, mass)[0], Z, 1e-4)
    np.testing.assert_allclose(grid(Z, mass)[1][4:], by_hand[4:], atol=1e-6)


def test_points_far_apart_have_no_pairs_but_themselves():
    Z = np.array([[0.0, 0.0], [500.0, 0.0], [0.0, 500.0]])
    total, gradient = pair_sum(GAUSSIAN, np.ones(3), False, 1)(Z)
    assert total == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


@pytest.mark.parametrize("name", ["elastic", "tsne"])
@pytest.mark.parametrize("axes", [1, 2, 4])
def test_gradient_by_finite_differences(name, axes):
    # Four axes are summed in double precision: the others must agree with finer steps only.
    energy = energies(make_graph(30), exact=True)[name]
    Z = make_points(30, axes)
    step = 1e-5 if axes == 4 else 1e-2
    by_hand = slope_by_differences(lambda moved: energy(moved)[0], Z, step)
    _, gradient = energy(Z)
    np.testing.assert_allclose(gradient, by_hand, atol=1e-3 * np.abs(gradient).max())


def test_elastic_energy_is_the_formula():
    W, Z = make_graph(), make_points()
    P, square = W.toarray() / W.sum(), cdist(Z, Z, "sqeuclidean")
    repulsion = np.exp(-square).sum() - len(Z)
    expected = (P * square).sum() + 7.0 / len(Z) ** 2 * repulsion
    terms = energies(W)["elastic"].terms(Z)
    assert energies(W)["elastic"](Z)[0] == pytest.approx(expected, rel=1e-6)
    assert sum(terms.values()) == pytest.approx(expected, rel=1e-6)


def test_tsne_energy_and_gradient_are_those_of_sklearn():
    Z = make_points(50)
    data = np.random.default_rng(3).normal(size=(50, 3))
    P = _joint_probabilities(squareform(pdist(data, "sqeuclidean")).astype(np.float32), 10.0, 0)
    value, gradient = _kl_divergence(Z.ravel(), P, 1.0, 50, 2)
    ours, our_gradient = tsne(sparse.csr_array(squareform(P)))(Z)
    assert ours == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(our_gradient.ravel(), gradient, atol=1e-6)


def test_weights_of_the_graph_are_brought_to_sum_one():
    W, Z = make_graph(), make_points()
    for name, energy in energies(W).items():
        assert energies(W * 5.0)[name](Z)[0] == pytest.approx(energy(Z)[0])
        assert energy.W.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["elastic", "tsne"])
def test_collapsed_energy_is_that_of_all_rows_on_their_leaves(name):
    leaf = np.arange(60) % 7
    places = make_points(7, seed=5)
    energy = energies(make_graph(), exact=True)[name]
    value, force = energy(places[leaf])
    collapsed, gradient = energy.collapse(leaf, 7)(places)
    assert collapsed == pytest.approx(value, rel=1e-6)
    together = np.stack([force[leaf == number].sum(axis=0) for number in range(7)])
    np.testing.assert_allclose(gradient, together, atol=1e-6)


@pytest.mark.parametrize("name", ["elastic", "tsne"])
def test_exaggeration_multiplies_the_attraction_alone(name):
    energy, Z = energies(make_graph(), exact=True)[name], make_points()
    once, twice, thrice = (energy.exaggerate(factor)(Z)[0] for factor in (1.0, 2.0, 3.0))
    assert once == pytest.approx(energy(Z)[0])
    assert thrice - twice == pytest.approx(twice - once)
    assert twice > once


def test_free_tsne_map_is_no_worse_than_that_of_sklearn():
    from silva.embedding import free_embedding

    X = np.random.default_rng(0).normal(size=(150, 5)) + 4 * np.eye(5)[np.arange(150) % 5]
    energy = tsne(affinity_graph(X, 60, 20.0))
    stages = ((4.0, 50), (2.0, 50), (1.0, 200))
    ours = free_embedding(energy, X[:, :2], stages, 1e-5)
    theirs = manifold.TSNE(perplexity=20, init=X[:, :2], random_state=0).fit_transform(X)
    assert energy(ours)[0] < energy(theirs.astype(float))[0] + 0.02
