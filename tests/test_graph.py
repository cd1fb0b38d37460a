"""The neighbour graph: who is near, how much each neighbour weighs, what bad input says."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import brentq
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits, load_iris
from sklearn.neighbors import KDTree, NearestNeighbors

from silva import copies, exact_neighbours, neighbours
from silva.graph import (
    affinity_graph,
    check_affinity,
    components,
    entropic_weights,
    laplacian,
)
from silva.neighbours import nearest_neighbours

METRICS = ["euclidean", "cosine", "manhattan"]


def gaussian(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def clusters(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 20 * rng.normal(size=(10, d))[rng.integers(0, 10, n)]


def lattice():
    """Points of a grid in an order of its own: nearly all distances tie."""
    points = np.stack(np.meshgrid(*[np.arange(1.0, 8.0)] * 3), axis=-1).reshape(-1, 3)
    return np.random.default_rng(0).permutation(points)


def offset():
    """Two clusters whose inner distances float32 cannot hold beside the gap between them."""
    X = gaussian(700, 4) * [1, 1e-3, 10, 1e3]
    X[:, 0] += np.where(np.arange(700) % 2, 1e8, -1e8)
    return X


def repeated(seed=0):
    """Rows of which most are copies, some of them of hundreds."""
    rng = np.random.default_rng(seed)
    return gaussian(60, 3)[np.minimum(rng.geometric(0.05, 900) - 1, 59)]


TABLES = {
    "few columns": lambda: gaussian(1500, 3),
    "clusters": lambda: clusters(1500, 12),
    "many columns": lambda: gaussian(600, 130),
    "more columns than rows": lambda: gaussian(300, 1200),
    "float32": lambda: gaussian(900, 20).astype(np.float32),
    "lattice": lattice,
    "offset": offset,
    "one column": lambda: gaussian(500, 1),
    "two rows": lambda: gaussian(2, 4),
    "copies": repeated,
}


@pytest.fixture(params=list(TABLES))
def table(request):
    return TABLES[request.param]()


def distances(X, metric):
    """All distances, as float64 differences; of cosine, of unit rows."""
    X = np.asarray(X, np.float64)
    if metric == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
        D = cdist(X, X, "sqeuclidean") / 2
    else:
        D = cdist(X, X, {"euclidean": "euclidean", "manhattan": "cityblock"}[metric])
    np.fill_diagonal(D, np.inf)
    return D


def nearest_distances(X, k, metric="euclidean"):
    return np.sort(distances(X, metric), axis=1)[:, :k]


def assert_are_neighbours(found, D):
    """Neighbours are k different rows, none itself, at the distances that are told."""
    n = len(found.index)
    ordered = np.sort(found.index, axis=1)
    assert (np.diff(ordered, axis=1) > 0).all()
    assert (found.index != np.arange(n)[:, None]).all()
    assert_allclose(
        found.distance, np.take_along_axis(D, found.index, axis=1), rtol=1e-6, atol=1e-14
    )


# ---- neighbours -----------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_neighbours_match_brute_force(table, metric):
    k = min(15, len(table) - 1)
    found = nearest_neighbours(table, k, metric=metric)
    D = distances(table, metric)
    precision = 1e-6 if table.dtype == np.float32 else 1e-12
    assert_allclose(
        found.distance, nearest_distances(table, k, metric), rtol=precision, atol=precision**2
    )
    assert found.distance.dtype == np.float64
    if metric != "cosine":  # unit rows differ by the rounding of the division
        assert_are_neighbours(found, D)


def test_neighbours_match_scikit_learn_on_digits():
    X = np.ascontiguousarray(load_digits().data)
    expected = NearestNeighbors(n_neighbors=15, algorithm="brute").fit(X).kneighbors()[0]
    assert_allclose(nearest_neighbours(X, 15).distance, expected, rtol=1e-9)


@pytest.mark.parametrize("n_columns", [2, 9])
def test_neighbours_match_a_kd_tree(n_columns):
    X = gaussian(6000, n_columns)
    expected, index = KDTree(X).query(X, 11)
    found = nearest_neighbours(X, 10)
    assert_array_equal(found.index, index[:, 1:])
    assert_allclose(found.distance, expected[:, 1:], rtol=1e-12)


def test_ties_go_to_the_lower_index():
    X = lattice()
    D = cdist(X, X, "sqeuclidean")
    np.fill_diagonal(D, np.inf)
    assert_array_equal(
        nearest_neighbours(X, 12).index, np.argsort(D, axis=1, kind="stable")[:, :12]
    )


def test_rows_that_float32_cannot_tell_apart_are_searched_again(monkeypatch):
    packed = []
    pack = exact_neighbours.pack
    monkeypatch.setattr(
        exact_neighbours,
        "pack",
        lambda X, absolute, dtype=np.float32: packed.append(dtype) or pack(X, absolute, dtype),
    )
    nearest_neighbours(gaussian(700, 4), 10)
    assert packed == [np.float32]
    nearest_neighbours(offset(), 10)
    assert packed == [np.float32, np.float32, np.float64]


SIMD_SCRIPT = """
import sys
import numpy as np
from silva.neighbours import nearest_neighbours

for name in ("clusters", "many columns", "offset"):
    X = np.load(f"{sys.argv[1]}/{name}.npy")
    for metric in ("euclidean", "manhattan"):
        found = nearest_neighbours(X, 9, metric=metric)
        np.save(f"{sys.argv[1]}/{name} {metric}.npy", found.index)
"""


@pytest.mark.parametrize("name", ["baseline", "avx2"])
def test_every_instruction_set_finds_the_same_neighbours(name, tmp_path):
    kinds = ("clusters", "many columns", "offset")
    for kind in kinds:
        np.save(tmp_path / f"{kind}.npy", TABLES[kind]())
    environment = {**os.environ, "SILVA_SIMD": name}
    subprocess.run([sys.executable, "-c", SIMD_SCRIPT, tmp_path], env=environment, check=True)
    for kind in kinds:
        for metric in ("euclidean", "manhattan"):
            found = np.load(tmp_path / f"{kind} {metric}.npy")
            expected = nearest_neighbours(TABLES[kind](), 9, metric=metric)
            assert_array_equal(found, expected.index)


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**900])
def test_graph_has_no_scale(scale):
    X = clusters(300, 5)
    one, other = affinity_graph(X), affinity_graph(X * scale)
    assert_array_equal(one.indices, other.indices)
    assert_allclose(one.data, other.data, rtol=1e-9)


def test_constant_columns_change_nothing():
    X = clusters(400, 6)
    wide = np.column_stack([np.full(400, 7.0), X, np.zeros(400)])
    one, other = affinity_graph(X), affinity_graph(wide)
    assert_array_equal(one.indices, other.indices)
    assert_allclose(one.data, other.data, rtol=1e-9)


def test_zero_row_is_at_cosine_distance_one():
    X = np.vstack([gaussian(20, 3), np.zeros((2, 3))])
    found = nearest_neighbours(X, 5, metric="cosine")
    assert found.index[-1, 0] == 20
    assert_allclose(found.distance[-1], [0, 1, 1, 1, 1], rtol=1e-12)
    assert (found.index[:20] < 20).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array])
def test_sparse_rows_have_the_neighbours_of_dense_ones(metric, packed, kind, monkeypatch):
    if not packed:
        monkeypatch.setattr(neighbours, "PACKED_BYTES", 0)
        monkeypatch.setattr(neighbours, "BLOCK_CELLS", 50_000)
    rng = np.random.default_rng(0)
    X = gaussian(500, 40) * (rng.random((500, 40)) < 0.2)
    X = np.vstack([X, X[:30], np.zeros((3, 40))])
    thin = affinity_graph(kind(X), metric=metric, n_jobs=2)
    assert_allclose(thin.sum(), len(X))
    dense, thin = (
        nearest_neighbours(each, 15, metric=metric, n_threads=2)
        for each in (X, sparse.csr_array(X))
    )
    assert_allclose(dense.distance, thin.distance, rtol=1e-9, atol=1e-15)
    if metric != "cosine":  # rows without a common column tie at a right angle
        assert_array_equal(dense.index, thin.index)


# ---- copies ---------------------------------------------------------------------------------


def test_neighbours_of_a_constant_table_are_its_copies():
    found = nearest_neighbours(np.full((200, 3), 2.5), 7)
    assert_are_neighbours(found, np.zeros((200, 200)))


def test_many_copies_are_few_steps_apart_and_none_is_a_hub():
    W = affinity_graph(np.zeros((3000, 2)))
    assert np.diff(W.indptr).max() <= 30
    steps = csgraph.shortest_path(W, method="D", unweighted=True, indices=[0])
    assert steps.max() <= 8


def test_copies_of_another_row_share_its_neighbours():
    X = np.vstack([np.zeros((500, 100)), 10 * np.eye(100)])  # zeros are nearest to every other row
    W = affinity_graph(X, n_neighbors=3, perplexity=3)
    assert np.diff(W.indptr).max() <= 10


@given(
    st.integers(1, 3).flatmap(
        lambda d: st.lists(st.lists(st.integers(0, 3), min_size=d, max_size=d), min_size=2)
    ),
    st.integers(1, 8),
    st.sampled_from(["euclidean", "manhattan"]),
)
def test_neighbours_match_brute_force_whatever_repeats(rows, k, metric):
    X = np.array(rows, np.float64)
    k = min(k, len(X) - 1)
    found = nearest_neighbours(X, k, metric=metric)
    assert_are_neighbours(found, distances(X, metric))
    assert_allclose(found.distance, nearest_distances(X, k, metric), atol=1e-12)


def test_rows_of_one_hash_are_still_told_apart(monkeypatch):
    X = repeated()
    expected = nearest_neighbours(X, 9)
    monkeypatch.setattr(copies, "row_groups", lambda X, seed: np.zeros(X.shape[0], np.uint64))
    found = nearest_neighbours(X, 9)
    assert_array_equal(found.index, expected.index)


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


def test_graph_is_canonical(table):
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
