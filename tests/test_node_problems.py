"""The node problem on every table: oblique and about one column."""

import numpy as np
import pytest
import sklearn
from conftest import (
    decide,
    dense,
    make_matrix,
    make_sides,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.utils.fixes import parse_version

from silva.kernels import cpu, reference, select
from silva.splits import Axis, Oblique

PENALTIES = [(1.0, 0.0), (0.1, 0.0), (0.3, 1.0), (0.0, 1.0)]
WIDTHS = [3, 12, 90]  # explicit Hessian; the same; growing working set


# ---- the oblique node problem -------------------------------------------------------------------


def unpacked(planes, d):
    w, b = reference.unpack(planes, d)
    return w[0], b[0]


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
