"""Every kernel on every table: against a loop, a peer, brute force, optimality conditions."""

import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import sklearn
from conftest import (
    STORAGES,
    dense,
    make_matrix,
    make_sides,
    make_tree,
    route,
    route_by_hand,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.utils.fixes import parse_version

from silva.grow import from_planes, to_planes
from silva.kernels import cpu, reference, select
from silva.leaves import ClassShares, Linear, Mean
from silva.losses import CLASS_LOSSES, squared_error
from silva.splits import Axis, Oblique

PENALTIES = [(1.0, 0.0), (0.1, 0.0), (0.3, 1.0), (0.0, 1.0)]
WIDTHS = [3, 12, 90]  # explicit Hessian; the same; growing working set


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


# ---- the oblique node problem -------------------------------------------------------------------


def unpacked(planes, d):
    w, b = reference.unpack(planes, d)
    return w[0], b[0]


def decide(X, rows, planes):
    w, b = unpacked(planes, X.shape[1])
    return (dense(X) - rows.centre) / rows.scale @ w + b >= 0


def logistic_objective(Z, weight, side, split, w, b):
    f = Z @ w + b
    loss = weight @ np.logaddexp(0, -(2 * side - 1) * f)
    return loss + split.alpha * abs(w).sum() + split.l2 / 2 * w @ w


def solve_oblique(table, X, split, n_threads=1):
    weight, side = make_sides(X)
    rows = table.prepare(X, n_threads)
    planes = table.node_problem(rows, weight, side, split, 1e-6, n_threads)
    Z = (dense(X) - rows.centre) / rows.scale
    return Z, weight.astype(float), side.astype(float), *unpacked(planes, X.shape[1])


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize(("alpha", "l2"), PENALTIES)
def test_l1_logistic_satisfies_kkt(table, storage, d, alpha, l2):
    Z, c, t, w, b = solve_oblique(table, make_matrix(storage, 90, d), Oblique(alpha, l2))
    residual = c * (expit(Z @ w + b) - t)
    gradient = Z.T @ residual + l2 * w
    on = w != 0
    limit = 1e-4 * c.sum()  # what sums in single precision can tell
    assert abs(residual.sum()) < limit
    assert_allclose(gradient[on], -alpha * np.sign(w[on]), atol=limit)
    assert (abs(gradient[~on]) < alpha + limit).all()
    if alpha == 1 and d == 90:
        assert 0 < on.sum() < d  # a sparse plane, and not an empty one


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize(("alpha", "l2"), PENALTIES)
def test_l1_logistic_objective_equals_the_reference(storage, d, alpha, l2):
    X, split = make_matrix(storage, 90, d), Oblique(alpha, l2)
    one, other = (
        logistic_objective(*solved[:3], split, *solved[3:])
        for solved in (solve_oblique(table, X, split) for table in (cpu, reference))
    )
    assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("name", ["floats", "csr"])
@pytest.mark.parametrize(("alpha", "l2"), [(1.0, 0.0), (0.3, 0.7)])
def test_l1_logistic_equals_sklearn(table, name, alpha, l2):
    X, split = make_matrix(name, 120, 6), Oblique(alpha, l2)
    Z, c, t, w, b = solve_oblique(table, X, split)
    old = parse_version(sklearn.__version__) < parse_version("1.8")
    peer = LogisticRegression(
        solver="saga",
        C=1 / (alpha + l2),
        l1_ratio=alpha / (alpha + l2),
        tol=1e-8,
        max_iter=20_000,
        random_state=0,
        **({"penalty": "elasticnet"} if old else {}),
    ).fit(Z, t, c)
    assert_allclose(w, peer.coef_[0], atol=1e-3)
    assert_allclose(b, peer.intercept_[0], atol=1e-3)
    assert_allclose(
        logistic_objective(Z, c, t, split, w, b),
        logistic_objective(Z, c, t, split, peer.coef_[0], peer.intercept_[0]),
        rtol=1e-6,
    )


def test_a_large_price_leaves_only_the_bias(table, storage):
    _, c, t, w, b = solve_oblique(table, make_matrix(storage, 90, 4), Oblique(1e4))
    assert not w.any()
    assert_allclose(expit(b), c @ t / c.sum(), rtol=1e-4)


def test_a_weight_counts_as_repeated_rows(table, storage):
    # All rows three times: the units of the columns stay.
    X, split = make_matrix(storage, 60, 4), Oblique(0.5)
    _, side = make_sides(X)
    rows = table.prepare(X, 1)
    weighted = table.node_problem(rows, np.full(60, 3, np.float32), side, split, 1e-7, 1)
    thrice = sparse.vstack([X] * 3, format="csr") if sparse.issparse(X) else np.vstack([X] * 3)
    rows = table.prepare(thrice, 1)
    repeated = table.node_problem(rows, np.ones(180, np.float32), np.tile(side, 3), split, 1e-7, 1)
    # Single precision near separability: the last digits depend on the compiler.
    assert_allclose(unpacked(weighted, 4)[0], unpacked(repeated, 4)[0], rtol=2e-3, atol=1e-3)
    assert_allclose(unpacked(weighted, 4)[1], unpacked(repeated, 4)[1], atol=1e-3)


def test_rows_of_no_weight_have_no_say(table, storage):
    X, split = make_matrix(storage, 60, 4), Oblique(0.5)
    weight, side = make_sides(X)
    weight[::3] = 0
    rows = table.prepare(X, 1)
    one = table.node_problem(rows, weight, side, split, 1e-7, 1)
    side[::3] = 1 - side[::3]
    other = table.node_problem(rows, weight, side, split, 1e-7, 1)
    assert_allclose(unpacked(one, 4)[0], unpacked(other, 4)[0], atol=1e-6)


@pytest.mark.parametrize("name", ["bytes", "floats", "csr"])
@pytest.mark.parametrize("d", [5, 90])
def test_node_problem_is_the_same_for_any_number_of_threads(name, d):
    X = make_matrix(name, 5000, d)
    weight, side = make_sides(X)
    for split in (Oblique(2.0), Axis(1.0)):
        solved = [
            cpu.node_problem(cpu.prepare(X, k), weight, side, split, 1e-4, k) for k in (1, 2, 3)
        ]
        for other in solved[1:]:
            for field in ("index", "value", "bias"):
                assert_array_equal(getattr(solved[0], field), getattr(other, field))


# ---- the axis-aligned node problem --------------------------------------------------------------


def axis_cost(X, weight, side, right, tests, alpha):
    return weight[right != side.astype(bool)].sum() + alpha * tests


def cheapest_axis_test(X, weight, side, alpha):
    """The least cost over all tests 'x_j >= value', both ways round, and no test at all."""
    everyone = np.ones(len(X), bool)
    costs = [axis_cost(X, weight, side, right, 0, alpha) for right in (everyone, ~everyone)]
    for column in X.T:
        for value in column:
            for right in (column >= value, column < value):
                costs.append(axis_cost(X, weight, side, right, 1, alpha))
    return min(costs)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 20.0])
def test_axis_split_matches_brute_force(table, storage, alpha):
    X = make_matrix(storage, 50, 6)
    weight, side = make_sides(X)
    rows = table.prepare(X, 1)
    planes = table.node_problem(rows, weight, side, Axis(alpha), 0, 1)
    assert len(planes.index) <= 1
    cost = axis_cost(X, weight, side, decide(X, rows, planes), len(planes.index), alpha)
    assert_allclose(cost, cheapest_axis_test(dense(X), weight, side, alpha), rtol=1e-5)


@settings(max_examples=40)
@given(
    values=st.lists(
        st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.booleans(), st.integers(1, 3)),
        min_size=2,
        max_size=12,
    ),
    alpha=st.sampled_from([0.0, 0.5, 1.5]),
    as_csr=st.booleans(),
)
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_axis_split_matches_brute_force_on_ties(name, values, alpha, as_csr):
    X = np.array([row[:2] for row in values], dtype=float)
    side = np.array([row[2] for row in values], np.float32)
    weight = np.array([row[3] for row in values], np.float32)
    matrix = sparse.csr_array(X) if as_csr else X
    kernels = select(name)
    rows = kernels.prepare(matrix, 1)
    planes = kernels.node_problem(rows, weight, side, Axis(alpha), 0, 1)
    cost = axis_cost(X, weight, side, decide(matrix, rows, planes), len(planes.index), alpha)
    assert_allclose(cost, cheapest_axis_test(X, weight, side, alpha))


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


# ---- sessions -----------------------------------------------------------------------------------


def class_leaves(X, loss="misclassification", n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    score = dense(X)[:, 0] + rng.normal(size=X.shape[0]) * 0.3
    codes = np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))
    return ClassShares(codes[:, None].astype(np.int32), np.array([0, n_classes], np.int32), loss)


def several_class_leaves(X, loss):
    one, two = class_leaves(X, n_classes=3), class_leaves(X, n_classes=2, seed=1)
    codes = np.hstack([one.codes, two.codes + 3])
    return ClassShares(np.ascontiguousarray(codes), np.array([0, 3, 5], np.int32), loss)


def targets(X, n_outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    Z = dense(X)
    y = np.sin(2 * Z[:, :1]) + Z[:, 1:2] + rng.normal(size=(len(Z), n_outputs)) * 0.2
    return np.ascontiguousarray(y, np.float32)


LEAVES = {
    "misclassification": class_leaves,
    "squared": lambda X: class_leaves(X, "squared"),
    "log": lambda X: class_leaves(X, "log"),
    "two targets": lambda X: several_class_leaves(X, "squared"),
    "mean": lambda X: Mean(targets(X)),
    "linear": lambda X: Linear(targets(X), 0.5),
}


@pytest.fixture(params=list(LEAVES))
def kind(request):
    return request.param


def open_session(table, X, leaves, split, *, weight=None, n_leaves=8, monotone=False, n_threads=1):
    """A session on a tree of random shape, and the tree."""
    rows = table.prepare(X, n_threads)
    shape = make_tree(np.random.default_rng(3), n_leaves, X.shape[1], density=1.0)
    score = dense(X) @ shape.coefficients.toarray().T
    share = np.random.default_rng(4).uniform(0.3, 0.7, shape.n_nodes)
    cuts = [np.quantile(column, q) for column, q in zip(score.T, share, strict=True)]
    shape.threshold[:] = np.where(shape.left >= 0, cuts, 0)
    planes = to_planes(shape, rows)
    weight = np.ones(X.shape[0], np.float32) if weight is None else weight
    session = table.session(
        rows, shape.left, shape.right, planes, leaves, weight, split, monotone, n_threads
    )
    return session, rows, shape


def tree_of(session, rows, shape):
    """The session's tree in the user's units, answers included."""
    tree = from_planes(shape.left, shape.right, session.planes(), rows)
    answers = session.answers()
    values = answers.values.reshape(tree.n_leaves, -1)
    if answers.slopes is None:
        return tree.with_leaves(values)
    slopes = answers.slopes.reshape(tree.n_leaves, values.shape[1], -1) / rows.scale
    bounds = answers.bounds.reshape(2, tree.n_leaves, -1)
    return tree.with_leaves(values - slopes @ rows.centre, slopes=slopes, bounds=bounds)


def expected_loss(leaves, weight, leaf, tree, X):
    """Loss of the partition `leaf`, every leaf fitted from scratch."""
    total = 0.0
    for number in np.unique(leaf):
        here = leaf == number
        if isinstance(leaves, ClassShares):
            for k, (begin, end) in enumerate(
                zip(leaves.class_begin[:-1], leaves.class_begin[1:], strict=True)
            ):
                codes = leaves.codes[here, k] - begin
                counts = np.bincount(codes, weight[here], minlength=end - begin)
                total += weight[here] @ CLASS_LOSSES[leaves.loss](counts)[codes]
        elif isinstance(leaves, Mean):
            y = leaves.targets[here].astype(float)
            mean = np.average(y, axis=0, weights=weight[here])
            total += weight[here] @ squared_error(y, mean)
        else:
            y = leaves.targets[here].astype(float)
            line = tree.values[number] + dense(X)[here] @ tree.slopes[number].T
            answer = np.clip(line, y.min(axis=0), y.max(axis=0))
            total += weight[here] @ squared_error(y, answer)
    return total


@pytest.mark.parametrize("name", ["bytes", "floats", "floats float32", "csr int64"])
def test_loss_of_a_session_equals_loss_of_its_predictions(table, name, kind):
    X = make_matrix(name, 80, 4)
    weight = np.random.default_rng(0).uniform(0.5, 2, 80).astype(np.float32)
    leaves = LEAVES[kind](X)
    session, rows, shape = open_session(table, X, leaves, Oblique(0.2), weight=weight)
    session.route()
    for passed in range(3):
        loss = session.fit_leaves()
        tree = tree_of(session, rows, shape)
        leaf = tree.leaf_index[route_by_hand(tree, X)]
        assert len(np.unique(leaf)) > 1
        assert_allclose(loss, expected_loss(leaves, weight, leaf, tree, X), rtol=1e-4)
        if passed < 2:
            for level in reversed(range(session.n_levels)):
                session.update_level(level, passed > 0)


@pytest.mark.parametrize("name", ["bytes", "floats", "csr"])
def test_a_session_keeps_rows_where_its_planes_send_them(name):
    # After node visits that moved rows by parts of the way, as after routing all from the root.
    for d in (6, 18, 90):
        X = make_matrix(name, 500, d)
        session, _, _ = open_session(cpu, X, class_leaves(X), Oblique(0.05), n_leaves=150)
        session.route()
        session.fit_leaves()
        for _ in range(2):
            for level in reversed(range(session.n_levels)):
                session.update_level(level, True)
            kept = session.fit_leaves()
        session.route()
        assert_allclose(session.fit_leaves(), kept)


@pytest.mark.parametrize("split", [Oblique(0.2), Axis(0.5)])
def test_penalty_and_nonzeros_are_those_of_the_planes(table, split):
    X = make_matrix("floats", 80, 4)
    session, *_ = open_session(table, X, class_leaves(X), split)
    session.route()
    session.fit_leaves()
    for level in reversed(range(session.n_levels)):
        session.update_level(level, False)
    planes = session.planes()
    tests = np.count_nonzero(np.diff(planes.begin))
    size = abs(planes.value).sum() if isinstance(split, Oblique) else tests
    assert_allclose(session.penalty(), split.alpha * size, rtol=1e-5)
    assert session.n_nonzeros() == len(planes.index) == np.count_nonzero(planes.value)


def test_planes_of_a_session_can_be_put_back(table):
    X = make_matrix("floats", 80, 4)
    session, *_ = open_session(table, X, class_leaves(X), Oblique(0.2))
    session.route()
    first, loss = session.planes(), session.fit_leaves()
    for level in reversed(range(session.n_levels)):
        session.update_level(level, False)
    session.set_planes(first)
    for field in ("begin", "index", "value", "bias"):
        assert_array_equal(getattr(session.planes(), field), getattr(first, field))
    session.route()
    assert_allclose(session.fit_leaves(), loss, rtol=1e-6)


def test_assigned_rows_are_fitted_where_they_are(table):
    X = make_matrix("floats", 30, 4)
    y = np.arange(30, dtype=np.float32)[:, None]
    session, _, shape = open_session(table, X, Mean(y), Oblique(0.2))
    leaf = np.arange(30) % shape.n_leaves
    session.assign(shape.leaf_nodes[leaf])
    session.fit_leaves()
    means = [y[leaf == number].mean() for number in range(shape.n_leaves)]
    assert_allclose(session.answers().values.ravel(), means, rtol=1e-6)


def test_a_row_cannot_be_assigned_to_a_decision(table):
    X = make_matrix("floats", 30, 4)
    session, *_ = open_session(table, X, class_leaves(X), Oblique(0.2))
    with pytest.raises(ValueError, match="decision node"):
        session.assign(np.zeros(30, np.int32))


def test_an_empty_leaf_answers_for_all_rows(table):
    X = make_matrix("floats", 40, 4)
    y = targets(X, 1)
    session, _, shape = open_session(table, X, Mean(y), Oblique(0.2))
    session.assign(np.full(40, shape.leaf_nodes[0]))
    session.fit_leaves()
    # Nothing was ever sent to the other leaves: they answer the mean of all rows.
    assert_allclose(session.answers().values.ravel(), y.mean(), rtol=1e-5)
    session.assign(np.where(np.arange(40) < 5, *shape.leaf_nodes[:2]).astype(np.int32))
    session.fit_leaves()
    session.assign(np.full(40, shape.leaf_nodes[2]))
    session.fit_leaves()
    assert_allclose(session.answers().values.ravel()[:3], y.mean(), rtol=1e-5)


@pytest.mark.parametrize("name", ["bytes", "floats", "csr"])
def test_an_axis_pass_is_the_same_on_both_tables(name, kind):
    # Losses that are sums of a few numbers; ties between splits are broken in the same order.
    X = make_matrix(name, 60, 3)
    sessions = []
    for table in (cpu, reference):
        session, rows, shape = open_session(table, X, LEAVES[kind](X), Axis(0.5))
        session.route()
        session.fit_leaves()
        for level in reversed(range(session.n_levels)):
            session.update_level(level, False)
        sessions.append((session, tree_of(session, rows, shape)))
    (one, one_tree), (other, other_tree) = sessions
    assert_allclose(one.fit_leaves(), other.fit_leaves(), rtol=1e-4)
    assert_array_equal(route_by_hand(one_tree, X), route_by_hand(other_tree, X))


@pytest.mark.parametrize("name", ["bytes", "floats", "csr"])
def test_an_oblique_level_is_the_same_on_both_tables(name, kind):
    # The core takes enough Newton steps here to end where the reference does.
    X = make_matrix(name, 60, 3)
    planes, losses = [], []
    for table in (cpu, reference):
        session, rows, shape = open_session(
            table, X, LEAVES[kind](X), Oblique(0.5, 0.1, newton_steps=100)
        )
        session.route()
        session.fit_leaves()
        session.update_level(session.n_levels - 1, False)
        tree = from_planes(shape.left, shape.right, session.planes(), rows)
        planes.append((tree.coefficients.toarray(), tree.threshold))
        losses.append(session.fit_leaves())
    assert_allclose(planes[0][0], planes[1][0], atol=2e-3)
    assert_allclose(planes[0][1], planes[1][1], atol=5e-3)
    assert_allclose(losses[0], losses[1], rtol=1e-3)


@pytest.mark.parametrize("name", ["bytes", "csr"])
def test_storage_does_not_change_the_partition(name, kind):
    # The same numbers as bytes and as floats, as CSR and written out.
    X = make_matrix(name, 300, 5)
    if name == "bytes":
        other = X.copy()
        other[0, 0] += 1e-3  # off the grid: stored as floats
    else:
        other = X.toarray()
    losses = []
    for matrix in (X, other):
        session, *_ = open_session(cpu, matrix, LEAVES[kind](X), Oblique(0.5))
        session.route()
        losses.append(session.fit_leaves())
    # The unit of CSR columns is their largest value, not their range: another ridge.
    other_ridge = (name, kind) == ("csr", "linear")
    assert_allclose(losses[0], losses[1], rtol=0.5 if other_ridge else 1e-3)


def test_byte_storage_routes_as_float_storage():
    X = make_matrix("bytes", 500, 7)
    off_grid = X.copy()
    off_grid[0] += 1e-6 * np.random.default_rng(0).normal(size=7)
    assert cpu.prepare(off_grid, 1).store.storage in ("bytes", "floats")
    off_grid[0] += 1e-2 * np.random.default_rng(0).normal(size=7)
    assert cpu.prepare(off_grid, 1).store.storage == "floats"
    y = np.arange(500, dtype=np.float32)[:, None]
    means = []
    for matrix in (X, off_grid):
        session, *_ = open_session(cpu, matrix, Mean(y), Oblique(0.5), n_leaves=20)
        session.route()
        session.fit_leaves()
        means.append(session.answers().values.ravel())
    # The mean of the row numbers tells which rows are in a leaf (row 0 adds nothing to the sum).
    assert_allclose(means[0], means[1], rtol=1e-2)
    assert (np.isclose(means[0], means[1], rtol=1e-6)).mean() > 0.8


@pytest.mark.parametrize("name", ["bytes", "floats", "csr"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_linear_leaves_by_moving_rows_equal_a_fit_from_scratch(table, name, n_outputs):
    rng = np.random.default_rng(0)
    X = make_matrix(name, 200, 4)
    y, ridge = targets(X, n_outputs), 0.3
    weight = rng.uniform(0.5, 2, 200).astype(np.float32)
    session, rows, shape = open_session(
        table, X, Linear(y, ridge), Oblique(0.2), weight=weight, n_leaves=4
    )
    Z = np.column_stack([(dense(X) - rows.centre) / rows.scale, np.ones(200)])
    leaf = rng.integers(4, size=200)
    for _ in range(12):  # a few rows change leaves: statistics are updated, not summed again
        moved = rng.choice(200, 8, replace=False)
        leaf[moved] = rng.integers(4, size=8)
        session.assign(shape.leaf_nodes[leaf])
        session.fit_leaves()
    answers = session.answers()
    values = answers.values.reshape(4, n_outputs)
    slopes = answers.slopes.reshape(4, n_outputs, 4)
    bounds = answers.bounds.reshape(2, 4, n_outputs)
    for number in range(4):
        here = leaf == number
        A = (Z[here].T * weight[here]) @ Z[here] + np.diag([ridge] * 4 + [0])
        expected = np.linalg.solve(A, (Z[here].T * weight[here]) @ y[here]).T
        assert_allclose(slopes[number], expected[:, :-1], atol=1e-4)
        assert_allclose(values[number], expected[:, -1], atol=1e-4)
        assert_allclose(bounds[:, number], [y[here].min(axis=0), y[here].max(axis=0)])


# ---- first trees --------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["means", "gaussian", "axis"])
@pytest.mark.parametrize("name", ["bytes", "floats", "csr float32"])
@pytest.mark.parametrize("make_leaves", [class_leaves, lambda X: Mean(targets(X))])
def test_first_trees_cut_their_rows_in_half(table, direction, name, make_leaves):
    X = make_matrix(name, 200, 12)
    rows = table.prepare(X, 1)
    left, right, planes = table.grow_start(rows, make_leaves(X), direction, 3, 2, 0)
    tree = from_planes(left, right, planes, rows)
    assert 0 < tree.depth <= 3
    leaf = route_by_hand(tree, X)
    at = tree.ancestors()[tree.leaf_index[leaf]].sum(axis=0)
    assert (at > 0).all()
    if name == "floats":  # no ties
        node = np.flatnonzero(left >= 0)
        assert (abs(at[left[node]] - at[right[node]]) <= 6).all()  # rows on the very cut
    if direction == "axis":
        assert (np.diff(planes.begin)[left >= 0] == 1).all()


@pytest.mark.parametrize("direction", ["means", "gaussian", "axis"])
def test_first_trees_follow_the_seed(table, direction):
    X = make_matrix("floats", 100, 8)
    rows = table.prepare(X, 1)
    drawn = [table.grow_start(rows, class_leaves(X), direction, 4, 2, k)[2] for k in (0, 0, 1)]
    for field in ("begin", "index", "value", "bias"):
        assert_array_equal(getattr(drawn[0], field), getattr(drawn[1], field))
    assert not np.array_equal(drawn[0].bias, drawn[2].bias)


def test_first_trees_stop_at_few_rows_and_at_equal_rows(table):
    X = make_matrix("floats", 64, 3)
    rows = table.prepare(X, 1)
    left, *_ = table.grow_start(rows, class_leaves(X), "gaussian", 10, 40, 0)
    assert len(left) == 3
    left, *_ = table.grow_start(rows, class_leaves(X), "gaussian", 0, 2, 0)
    assert len(left) == 1
    same = np.ones((20, 3))
    left, *_ = table.grow_start(
        table.prepare(same, 1), Mean(np.arange(20, dtype=np.float32)[:, None]), "means", 5, 2, 0
    )
    assert len(left) == 1


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
