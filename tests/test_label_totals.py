"""Labels on a graph that meet class totals, and leaves refitted to them."""

import numpy as np
import pytest
from label_problems import SOLVERS, dense_matrix, graph_of, moons, two_islands
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

from silva.labels import (
    LabelSystem,
    Total,
    label_energy,
    refit_leaves,
)

# ---- totals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 0.01])
@pytest.mark.parametrize("solver", SOLVERS)
def test_totals_match_dense_equality_constrained_solve(solver, shift):
    W, anchor, Y = moons(n_outputs=3)
    rng = np.random.default_rng(1)
    evidence = anchor[:, None] * Y + shift * rng.normal(size=Y.shape)
    total = Total(rng.random(len(Y)) * (anchor == 0), np.array([40.0, -3.0, 100.0]))
    Z = LabelSystem(W, 0.1, anchor, solver=solver, tol=1e-13).solve(evidence, shift, total=total)
    n = len(Y)
    kkt = np.zeros((n + 1, n + 1))
    kkt[:n, :n] = dense_matrix(W, 0.1, anchor, shift)
    kkt[:n, n] = kkt[n, :n] = total.weight
    expected = np.linalg.solve(kkt, np.vstack([evidence, total.amount]))[:n]
    assert_allclose(Z, expected, rtol=1e-8, atol=1e-8 * abs(expected).max())


def test_totals_are_met_and_the_force_on_the_rows_is_their_weight():
    W, anchor, Y = moons(2500, n_labelled=25, n_outputs=2)
    total = Total((anchor == 0).astype(float), np.array([900.0, 1.0]))
    evidence = anchor[:, None] * Y
    Z = LabelSystem(W, 0.1, anchor, solver="cg", tol=1e-12).solve(evidence, total=total)
    assert_allclose(total.weight @ Z, total.amount, rtol=1e-10)
    force = evidence - dense_matrix(W, 0.1, anchor) @ Z
    assert_allclose(force, np.outer(total.weight, force[anchor == 0].mean(axis=0)), atol=1e-8)


def test_totals_are_met_exactly_even_when_the_tolerance_is_loose():
    W, anchor, Y = moons(2500, n_labelled=25)
    total = Total((anchor == 0).astype(float), np.array([900.0]))
    Z = LabelSystem(W, 0.1, anchor, solver="cg", tol=1e-2).solve(anchor[:, None] * Y, total=total)
    assert_allclose(total.weight @ Z, total.amount, rtol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_free_rows_take_the_mean_of_the_totals_and_the_others_move(solver):
    W, anchor, Y = two_islands()
    total = Total((anchor == 0).astype(float), np.array([30.0, 60.0]))
    Z = LabelSystem(W, 0.1, anchor, solver=solver).solve(anchor[:, None] * Y, total=total)
    assert_allclose(total.weight @ Z, total.amount, rtol=1e-9)
    assert_allclose(Z[60:121], np.tile(total.amount / 119, (61, 1)), rtol=1e-9)


def test_totals_over_free_rows_alone_are_met():
    W, anchor, Y = two_islands()
    total = Total((np.arange(123) >= 122).astype(float), np.array([5.0, 6.0]))
    Z = LabelSystem(W, 0.1, anchor).solve(anchor[:, None] * Y, total=total)
    assert_allclose(Z[122], [5, 6], rtol=1e-9)


def test_response_to_the_totals_is_kept_until_shift_or_weight_changes():
    W, anchor, Y = moons(2500, n_labelled=25)
    system = LabelSystem(W, 0.1, anchor, solver="cg")
    unlabelled = (anchor == 0).astype(float)
    spent = []
    for shift, weight in [(0.0, 1), (0.0, 1), (0.1, 1), (0.1, 1), (0.1, 2)]:
        system.solve(anchor[:, None] * Y, shift)
        plain = system.n_iterations
        total = Total(weight * unlabelled, np.array([900.0 * weight]))
        Z = system.solve(anchor[:, None] * Y, shift, total=total)
        assert_allclose(total.weight @ Z, total.amount, rtol=1e-10)
        spent.append(system.n_iterations > plain)
    assert spent == [True, False, True, False, True]


# ---- leaves -------------------------------------------------------------------------------------


def digits():
    """Graph of small digits, 5 % labelled one-hot, and the leaf of each row."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    anchor = (rng.random(len(y)) < 0.05) * rng.uniform(0.5, 2, len(y))
    leaf = (X[:, 20:28] @ 2 ** np.arange(8) % 37).astype(int)
    return graph_of(X), anchor, np.eye(10)[y] * (anchor > 0)[:, None], leaf


@pytest.mark.parametrize("with_total", [False, True])
def test_refit_matches_dense_leaf_system(with_total):
    W, anchor, Y, leaf = digits()
    B = np.eye(37)[leaf]
    total = Total((anchor == 0).astype(float), np.arange(120.0, 220.0, 10)) if with_total else None
    C = refit_leaves(W, 0.1, anchor, anchor[:, None] * Y, leaf, 37, total)
    kkt = np.zeros((38, 38))
    kkt[:37, :37] = B.T @ dense_matrix(W, 0.1, anchor) @ B
    rhs = np.vstack([B.T @ (anchor[:, None] * Y), np.zeros(10)])
    if total is None:
        kkt[37, 37] = 1
    else:
        kkt[37, :37] = kkt[:37, 37] = total.weight @ B
        rhs[37] = total.amount
    assert_allclose(C, np.linalg.solve(kkt, rhs)[:37], rtol=1e-8, atol=1e-10)


def test_refit_is_the_minimum_of_the_objective_over_the_leaves():
    W, anchor, Y, leaf = digits()
    C = refit_leaves(W, 0.1, anchor, anchor[:, None] * Y, leaf, 37)
    least = sum(label_energy(anchor, Y, C[leaf], W, 0.1))
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = C + 0.01 * rng.normal(size=C.shape)
        assert sum(label_energy(anchor, Y, other[leaf], W, 0.1)) > least


def test_leaves_without_rows_get_the_label_mean():
    W, anchor, Y, leaf = digits()
    C = refit_leaves(W, 0.1, anchor, anchor[:, None] * Y, leaf + 1, 39)
    assert_allclose(C[[0, 38]], np.tile(anchor @ Y / anchor.sum(), (2, 1)), rtol=1e-9)
    assert_allclose(
        C[1:38], refit_leaves(W, 0.1, anchor, anchor[:, None] * Y, leaf, 37), rtol=1e-7, atol=1e-9
    )


def test_refit_with_a_leaf_for_each_row_is_the_label_problem():
    W, anchor, Y = moons(n_outputs=2)
    n = len(Y)
    C = refit_leaves(W, 0.1, anchor, anchor[:, None] * Y, np.arange(n)[::-1], n)
    Z = LabelSystem(W, 0.1, anchor, solver="direct").solve(anchor[:, None] * Y)
    assert_allclose(C[::-1], Z, rtol=1e-8, atol=1e-10)
