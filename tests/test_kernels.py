"""Every kernel on every table: preparing and routing; and the machine."""

import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import (
    STORAGES,
    decide,
    dense,
    make_matrix,
    make_sides,
    make_tree,
    route,
    route_by_hand,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from silva.kernels import cpu, reference, select
from silva.splits import Axis, Oblique

# ---- preparing ----------------------------------------------------------------------------------


def test_the_core_picks_the_storage(storage):
    assert cpu.prepare(make_matrix(storage, 60, 4), 1).store.storage == STORAGES[storage]


def test_scaled_columns_do_not_depend_on_units(table, storage):
    X = make_matrix(storage, 60, 5)
    rows = table.prepare(X, 1)
    Z = (dense(X) - rows.centre) / rows.scale
    assert rows.n_rows == 60
    if sparse.issparse(X):
        assert_allclose(abs(Z).max(axis=0), 1, rtol=1e-6)
        assert not rows.centre.any()
    factor, shift = 1024, 0 if sparse.issparse(X) else 512
    other = table.prepare(X * X.dtype.type(factor) + shift if shift else X * factor, 1)
    again = (dense(X) * factor + shift - other.centre) / other.scale
    assert_allclose(again, Z, atol=1e-4)


def test_both_tables_use_the_same_units(storage):
    X = make_matrix(storage, 60, 5)
    assert_allclose(cpu.prepare(X, 1).scale, reference.prepare(X, 1).scale, rtol=1e-6)


def test_a_column_that_is_almost_always_zero_does_not_explode(table):
    X = np.zeros((1000, 1))
    X[7] = 255
    rows = table.prepare(X, 1)
    assert ((X - rows.centre) / rows.scale).max() < 10  # 32 deviations


def test_constant_and_empty_columns_are_harmless(table):
    X = np.column_stack([np.full(20, 7.0), np.linspace(0, 1, 20)])
    weight, side = np.ones(20, np.float32), (X[:, 1] > 0.5).astype(np.float32)
    for matrix in (X, sparse.csr_array(X * [0, 1])):
        rows = table.prepare(matrix, 1)
        assert np.isfinite(rows.scale).all()
        for split in (Oblique(0.1), Axis(0.1)):
            planes = table.node_problem(rows, weight, side, split, 1e-6, 1)
            assert_array_equal(planes.index, [1])


def test_values_off_a_byte_grid_are_not_merged(table):
    # 1 and 1.0005 are nearly on the grid {0, 1}, and not the same.
    X = np.array([0, 1, 1.0005] * 10)[:, None]
    side = (X[:, 0] > 1.0002).astype(np.float32)
    rows = table.prepare(X, 1)
    planes = table.node_problem(rows, np.ones(30, np.float32), side, Axis(0.1), 0, 1)
    assert_array_equal(decide(X, rows, planes), side)


# ---- routing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 5, 16, 18, 24, 70])
@pytest.mark.parametrize("density", [0.05, 1.0])
def test_routing_matches_a_loop(table, storage, d, density):
    rng = np.random.default_rng(d)
    X = make_matrix(storage, 70, d)
    for n_leaves in (2, 9, 30, 200):
        tree = make_tree(rng, n_leaves, d, density=density)
        assert_array_equal(route(table, X, tree), route_by_hand(tree, X))


def test_routing_a_chain_of_decisions(table):
    # As deep as it gets: node k sends x >= k to the right, else on to the next.
    depth = 40
    left, right = np.full(2 * depth + 1, -1, np.int32), np.full(2 * depth + 1, -1, np.int32)
    left[:depth] = np.arange(1, depth + 1)
    right[:depth] = np.arange(2 * depth, depth, -1)
    planes = np.zeros((2 * depth + 1, 1))
    planes[:depth] = 1
    coefficients = sparse.csr_array(planes)
    threshold = np.where(np.arange(2 * depth + 1) < depth, depth - np.arange(2 * depth + 1), 0.0)
    X = np.arange(-1, depth + 2, dtype=float)[:, None]
    for matrix in (X, X.astype(np.float32), sparse.csr_array(X)):
        leaf = table.route(matrix, left, right, coefficients, threshold, 1)
        reached = np.clip(depth - X[:, 0].astype(int), 0, depth)
        expected = np.where(reached < depth, right[np.minimum(reached, depth - 1)], depth)
        assert_array_equal(leaf, expected)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_routing_is_the_same_for_any_number_of_threads(storage, n_threads):
    X = make_matrix(storage, 20_000, 6)
    tree = make_tree(np.random.default_rng(0), 20, 6)
    assert_array_equal(route(cpu, X, tree), route(cpu, X, tree, n_threads))


def test_routing_no_rows(table):
    tree = make_tree(np.random.default_rng(0), 5, 3)
    for X in (np.empty((0, 3)), sparse.csr_array((0, 3))):
        assert route(table, X, tree).shape == (0,)


# ---- the machine --------------------------------------------------------------------------------


def test_an_unknown_device_is_named():
    with pytest.raises(ValueError, match=r"device must be one of .*'cpu'.* got 'abacus'"):
        select("abacus")


SIMD_SCRIPT = """
import json
import numpy as np
from conftest import make_matrix, make_tree, route
from silva import TAOTreeClassifier
from silva.kernels import cpu

out = {"name": cpu.simd_name()}
for storage in ("bytes", "floats", "floats float32", "csr"):
    for d in (6, 70):
        X = make_matrix(storage, 300, d)
        tree = make_tree(np.random.default_rng(0), 20, d)
        out[f"{storage} {d} route"] = route(cpu, X, tree).tolist()
        y = (X[:, [0, 1]] @ np.array([1.0, 2.0]) > X.mean()).astype(int)
        model = TAOTreeClassifier(max_depth=3, alpha=0.1, l2=0.01, max_iter=5, random_state=0)
        out[f"{storage} {d} score"] = model.fit(X, y).score(X, y)
print(json.dumps(out))
"""


def run_with_simd(name):
    environment = {**os.environ, "SILVA_SIMD": name}
    done = subprocess.run(
        [sys.executable, "-c", SIMD_SCRIPT],
        env=environment,
        cwd=os.path.dirname(__file__),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["baseline", "avx2"])
def test_every_instruction_set_routes_and_learns_alike(name):
    best, found = run_with_simd(""), run_with_simd(name)
    if found["name"] != name:
        pytest.skip(f"this processor does not run {name}")
    assert set(best) == set(found)
    for key in set(best) - {"name"}:
        if key.endswith("route"):
            assert found[key] == best[key]
        else:
            assert found[key] > 0.85
            assert abs(found[key] - best[key]) < 0.08


def test_the_core_lets_python_run():
    X = np.random.default_rng(0).normal(size=(30_000, 60)).astype(np.float32)
    weight, side = make_sides(X)
    rows = cpu.prepare(X, 1)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        began = time.perf_counter()
        cpu.node_problem(rows, weight, side, Oblique(0.1), 1e-12, 1)
        ended = time.perf_counter()
    finally:
        done.set()
        thread.join()
    assert ended - began > 0.01, "too short a call to tell"
    inside = [t for t in ticks if began + 0.002 < t < ended - 0.002]
    assert len(inside) >= 2


def test_two_threads_can_route_at_once():
    X = make_matrix("floats", 20_000, 10)
    tree = make_tree(np.random.default_rng(0), 30, 10)
    expected, found = route(cpu, X, tree), {}
    threads = [
        threading.Thread(target=lambda k=k: found.update({k: route(cpu, X, tree, 2)}))
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for leaf in found.values():
        assert_array_equal(leaf, expected)
    assert len(found) == 4
