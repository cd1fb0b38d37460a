"""Who is near: neighbours against all distances, one by one, and rows that are copies."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from points import (
    EVERY_TABLE,
    METRICS,
    TABLES,
    assert_are_neighbours,
    clusters,
    distances,
    gaussian,
    lattice,
    nearest_distances,
    offset,
    repeated,
)
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.neighbors import KDTree, NearestNeighbors

from silva import copies, exact_neighbours, neighbours
from silva.graph import (
    affinity_graph,
)
from silva.neighbours import nearest_neighbours

# ---- neighbours -----------------------------------------------------------------------------


@EVERY_TABLE
@pytest.mark.parametrize("metric", METRICS)
def test_neighbours_match_brute_force(make, metric):
    table = make()
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
