"""The neighbour graph: how much each neighbour weighs, threads, what bad input says."""

import signal
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import EVERY_TABLE, METRICS, clusters, distances, gaussian, offset
from scipy import sparse
from scipy.optimize import brentq
from scipy.sparse import csgraph
from sklearn.datasets import load_iris
from sklearn.neighbors import NearestNeighbors

from silva import neighbours
from silva.graph import (
    affinity_graph,
    check_affinity,
    components,
    entropic_weights,
    laplacian,
)
from silva.neighbours import nearest_neighbours

# ---- weights --------------------------------------------------------------------------------


def entropies(weight):
    logarithm = np.log(np.where(weight > 0, weight, 1))
    return -(weight * logarithm).sum(axis=1)


@pytest.mark.parametrize("perplexity", [1.01, 2.0, 5.0, 14.9])
@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1.0, 1e150])
def test_entropy_of_each_row_is_the_logarithm_of_the_perplexity(perplexity, scale):
    distance = np.sort(np.random.default_rng(0).lognormal(0, 2, (500, 15)), axis=1) * scale
    weight = entropic_weights(distance, perplexity)
    assert_allclose(weight.sum(axis=1), 1)
    assert_allclose(entropies(weight), np.log(perplexity), atol=1e-5)


def test_entropy_is_met_beside_copies_and_far_outliers():
    near = np.array([[0, 0, 0, 1e-9, 1e-3, 1, 1e6, 1e12], [1, 1 + 1e-9, 1 + 1e-6, 2, 3, 4, 5, 1e9]])
    assert_allclose(entropies(entropic_weights(near, 4.0)), np.log(4), atol=1e-5)


def test_weights_match_a_scalar_root_finder():
    distance = np.sort(gaussian(20, 8) ** 2, axis=1)
    for row, weight in zip(distance, entropic_weights(distance, 3.0), strict=True):
        excess = row**2 - row[0] ** 2

        def gaussian_weights(beta, excess=excess):
            w = np.exp(-beta * excess)
            return w / w.sum()

        beta = brentq(lambda b: entropies(gaussian_weights(b)[None])[0] - np.log(3), 1e-9, 1e9)
        assert_allclose(weight, gaussian_weights(beta), atol=1e-7)


@pytest.mark.parametrize("perplexity", [6, 6.5, 1e9])
def test_perplexity_from_the_number_of_neighbours_up_weighs_all_the_same(perplexity):
    X = gaussian(50, 3)
    index = nearest_neighbours(X, 6).index
    P = np.zeros((50, 50))
    np.put_along_axis(P, index, 1 / 6, axis=1)
    W = affinity_graph(X, n_neighbors=6, perplexity=perplexity)
    assert_allclose(W.toarray(), (P + P.T) / 2)


def test_equal_distances_weigh_the_same():
    assert_allclose(entropic_weights(np.array([[0.0] * 5, [3.0] * 5]), 2.0), 0.2)


def test_more_ties_than_the_perplexity_share_the_weight():
    weight = entropic_weights(np.array([[0.0, 0, 0, 1, 2]]), 2.0)
    assert_allclose(weight, [[1 / 3, 1 / 3, 1 / 3, 0, 0]])


def test_graph_is_the_mean_of_both_directions():
    X = load_iris().data[::3] + 1e-3 * gaussian(50, 4)
    D = distances(X, "euclidean")
    index = np.argsort(D, axis=1)[:, :9]
    P = np.zeros_like(D)
    weight = entropic_weights(np.take_along_axis(D, index, axis=1), 4.0)
    np.put_along_axis(P, index, weight, axis=1)
    W = affinity_graph(X, n_neighbors=9, perplexity=4.0)
    assert_allclose(W.toarray(), (P + P.T) / 2, atol=1e-12)


@EVERY_TABLE
def test_graph_is_canonical(make):
    table = make()
    W = affinity_graph(table)
    n = len(table)
    assert isinstance(W, sparse.csr_array)
    assert W.shape == (n, n)
    assert W.dtype == np.float64
    assert W.indices.dtype == W.indptr.dtype == np.int32
    assert W.has_canonical_format
    assert (W.data > 0).all()
    assert W.diagonal().sum() == 0
    assert (W - W.T).count_nonzero() == 0
    assert_allclose(W.sum(), n)
    assert W.nnz <= 2 * 15 * n


def test_open_choices_are_fifteen_neighbours_and_a_third_of_them():
    X = gaussian(100, 3)
    expected = affinity_graph(X, n_neighbors=15, perplexity=5.0)
    assert_array_equal(affinity_graph(X).toarray(), expected.toarray())
    few = affinity_graph(X[:4])
    assert_array_equal(few.toarray(), affinity_graph(X[:4], n_neighbors=3, perplexity=1).toarray())


# ---- threads, methods, interruption ---------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_graph_is_the_same_for_any_number_of_threads(metric):
    X = np.vstack([clusters(2500, 20), offset()[:300].repeat(5, axis=1)])
    one, other = (affinity_graph(X, metric=metric, n_jobs=n_jobs) for n_jobs in (1, 3))
    assert_array_equal(one.indices, other.indices)
    assert_array_equal(one.data, other.data)


@pytest.fixture(scope="module")
def large():
    pytest.importorskip("pynndescent")
    X = clusters(5000, 15)
    return np.vstack([X, X[:200]])


@pytest.mark.parametrize("metric", METRICS)
def test_approximate_neighbours_are_mostly_right(large, metric):
    exact, found = (
        nearest_neighbours(large, 15, method=method, metric=metric)
        for method in ("exact", "approximate")
    )
    assert np.mean(found.distance <= exact.distance[:, -1:] * (1 + 1e-9)) > 0.95
    assert (found.index != np.arange(len(large))[:, None]).all()


def test_approximate_graph_is_the_same_for_a_seed_and_any_number_of_threads(large):
    one, other = (
        affinity_graph(large, method="approximate", random_state=3, n_jobs=n_jobs)
        for n_jobs in (1, 2)
    )
    assert_array_equal(one.indices, other.indices)
    assert_array_equal(one.data, other.data)


def test_approximate_takes_sparse_rows(large):
    few = large[:2500]
    exact = nearest_neighbours(few, 10)
    found = nearest_neighbours(sparse.csr_array(few), 10, method="approximate")
    assert np.mean(found.distance <= exact.distance[:, -1:] * (1 + 1e-9)) > 0.95


def test_approximate_without_the_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(ImportError, match=r"pip install 'silva\[ann\]'"):
        affinity_graph(gaussian(30, 2), method="approximate")


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_auto_without_the_extra_is_exact_and_states_the_cost(kind, monkeypatch, capsys):
    monkeypatch.setattr(neighbours, "find_spec", lambda name: None)
    monkeypatch.setattr(neighbours, "COMPILE_SECONDS", -1e9)  # approximate always wins
    X = kind(gaussian(3000, 4))
    W = affinity_graph(X, verbose=1)
    said = capsys.readouterr().out
    assert "3000 rows, 3000 of them distinct" in said
    assert "exact search: about" in said
    assert "pip install 'silva[ann]'" in said
    assert "[##########]" in said
    assert_array_equal(W.data, affinity_graph(X, method="exact").data)


def test_auto_takes_the_approximate_search_where_it_is_cheaper(monkeypatch):
    taken = []
    monkeypatch.setattr(neighbours, "find_spec", lambda name: name)
    monkeypatch.setattr(
        neighbours, "_search_approximately", lambda X, k, *_: taken.append(k) or search(X, k)
    )

    def search(X, k):
        return neighbours._search(X, k, False, np.ones(len(X), bool), "exact", 1, 0, 0)

    X = gaussian(2000, 5)
    affinity_graph(X, n_neighbors=4)
    assert taken == []
    monkeypatch.setattr(neighbours, "COMPILE_SECONDS", -1e9)
    affinity_graph(X, n_neighbors=4)
    assert taken == [4]


def test_silent_unless_asked(capsys):
    affinity_graph(gaussian(100, 2))
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals here")
def test_search_can_be_interrupted():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    X = gaussian(150_000, 60).astype(np.float32)  # a minute of work
    before = signal.signal(signal.SIGALRM, interrupt)
    began = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(KeyboardInterrupt):
            nearest_neighbours(X, 15, method="exact")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.perf_counter() - began < 10


# ---- Laplacian, components ------------------------------------------------------------------


def test_laplacian_matches_scipy():
    W = affinity_graph(gaussian(80, 3))
    L = laplacian(W)
    assert isinstance(L, sparse.csr_array)
    assert_allclose(L.toarray(), csgraph.laplacian(W).toarray(), atol=1e-15)
    assert_allclose(L.sum(axis=1), 0, atol=1e-14)
    assert np.linalg.eigvalsh(L.toarray()).min() > -1e-12


def test_far_clusters_are_components_of_their_own():
    X = np.vstack([gaussian(40, 2), gaussian(60, 2) + 1000])
    count, label = components(affinity_graph(X))
    assert count == 2
    assert_array_equal(label, np.repeat(label[[0, 40]], [40, 60]))


# ---- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_missing_or_infinite_numbers_are_refused_by_name(bad, kind):
    X = gaussian(20, 2)
    X[3, 1] = bad
    with pytest.raises(ValueError, match="Input X contains"):
        affinity_graph(kind(X))


@pytest.mark.parametrize("k", [20, 21])
def test_as_many_neighbours_as_rows_are_refused(k):
    with pytest.raises(ValueError, match=rf"n_neighbors={k} must be less than .* rows of X, 20"):
        affinity_graph(gaussian(20, 2), n_neighbors=k)


def test_one_row_makes_no_graph():
    with pytest.raises(ValueError, match="at least 2 rows, X has 1"):
        affinity_graph(np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_neighbors": 0}, ValueError, "n_neighbors must be at least 1, got 0"),
        ({"n_neighbors": 2.5}, TypeError, "n_neighbors must be an integer or 'auto', got 2.5"),
        ({"perplexity": 0.5}, ValueError, "perplexity must be finite and at least 1, got 0.5"),
        ({"perplexity": np.nan}, ValueError, "perplexity must be finite"),
        ({"perplexity": "much"}, TypeError, "perplexity must be a number or 'auto', got 'much'"),
        ({"method": "fast"}, ValueError, "method must be one of .*, got 'fast'"),
        ({"metric": "hamming"}, ValueError, "metric must be one of .*, got 'hamming'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        affinity_graph(gaussian(20, 2), **arguments)


# ---- a graph of the user's own --------------------------------------------------------------


def test_given_graph_becomes_canonical_and_is_left_alone():
    given_graph = sparse.coo_array(
        ([1, 1, 2, 2, 5, 0], ([0, 0, 0, 1, 1, 2], [1, 1, 2, 0, 1, 1])), shape=(3, 3)
    )
    given_graph = sparse.coo_array(given_graph + sparse.coo_array(([2], ([2], [0])), shape=(3, 3)))
    before = given_graph.toarray()
    W = check_affinity(given_graph, 3)
    assert_array_equal(W.toarray(), [[0, 2, 2], [2, 0, 0], [2, 0, 0]])
    assert W.dtype == np.float64
    assert W.has_canonical_format
    assert W.nnz == 4
    assert_array_equal(given_graph.toarray(), before)


def test_given_graph_is_left_alone_when_it_is_csr():
    given_graph = sparse.csr_array(np.array([[5.0, 1.0], [1.0, 5.0]]))
    check_affinity(given_graph, 2)
    assert_array_equal(given_graph.toarray(), [[5, 1], [1, 5]])


def test_rounding_of_a_given_graph_is_evened_out():
    W = check_affinity(np.array([[0, 1.0], [1 + 1e-12, 0]]), 2)
    assert (W - W.T).count_nonzero() == 0


def test_own_graph_passes_the_check_unchanged():
    W = affinity_graph(gaussian(50, 3))
    assert_array_equal(check_affinity(W, 50).toarray(), W.toarray())


def test_empty_graph_is_allowed():
    assert check_affinity(np.zeros((4, 4)), 4).nnz == 0


@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.zeros((3, 3)), r"affinity has shape \(3, 3\), X has 2 rows: expected \(2, 2\)"),
        (np.zeros((2, 3)), r"affinity has shape \(2, 3\)"),
        (np.array([[0, 1], [0.9, 0]]), "affinity is not symmetric: .* differ by 0.1"),
        (np.array([[0, -1], [-1, 0]]), "affinity has a negative weight, -1"),
        (np.array([[0, np.nan], [np.nan, 0]]), "affinity contains NaN"),
        (np.array([[0, np.inf], [np.inf, 0]]), "affinity contains NaN or infinity"),
        ("rbf", "affinity must be a matrix of numbers, dense or sparse, got str"),
        (np.array([["a", "b"], ["c", "d"]]), "affinity must be a matrix of numbers"),
    ],
)
def test_bad_graph_is_refused_by_name(W, message):
    with pytest.raises(ValueError, match=message):
        check_affinity(W, 2)


def test_a_mutual_graph_keeps_the_edges_of_neighbours_of_each_other():
    X = np.random.default_rng(0).normal(size=(80, 3))
    k = 6
    index = NearestNeighbors(n_neighbors=k).fit(X).kneighbors(return_distance=False)
    P = np.zeros((80, 80), bool)
    P[np.arange(80)[:, None], index] = True
    W = affinity_graph(X, k, mutual=True)
    np.testing.assert_array_equal(W.toarray() > 0, P & P.T)
    assert abs(W - W.T).max() == 0
