"""Label problems on a graph: solvers against dense algebra, free components, totals, leaves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_problems import SOLVERS, dense_matrix, moons, two_islands
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from silva import solvers
from silva.labels import (
    LabelSystem,
    Total,
    label_energy,
    smoothness,
)
from silva.solvers import cluster_order


@st.composite
def sparse_graphs(draw):
    """Random weights, often in several components and with rows of degree 0; some anchors."""
    n = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    W = rng.random((n, n)) * (rng.random((n, n)) < draw(st.sampled_from([0.0, 0.03, 0.1, 0.5])))
    if draw(st.booleans()):
        W = np.sign(W)
    anchor = rng.random(n) * (rng.random(n) < draw(st.sampled_from([0.1, 0.5, 1.0])))
    anchor[rng.integers(n)] = 1
    return sparse.csr_array(W + W.T), anchor, rng.normal(size=(n, 3))


# ---- the system ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [1, 10, 23])
@pytest.mark.parametrize("shift", [0.0, 0.001, 3.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_solution_matches_dense_solve(solver, shift, n_outputs):
    W, anchor, Y = moons(n_outputs=n_outputs)
    evidence = anchor[:, None] * Y + shift * np.sin(np.arange(len(Y)))[:, None]
    Z = LabelSystem(W, 0.1, anchor, solver=solver, tol=1e-13).solve(evidence, shift)
    expected = np.linalg.solve(dense_matrix(W, 0.1, anchor, shift), evidence)
    assert_allclose(Z, expected, rtol=1e-8, atol=1e-8 * abs(expected).max())


@pytest.mark.parametrize("shift", [0.0, 0.01])
def test_solvers_agree_on_a_graph_of_several_blocks(shift):
    # Conjugate gradients cut more than 2048 rows into blocks.
    W, anchor, Y = moons(7000, n_labelled=70, n_outputs=2)
    evidence = anchor[:, None] * Y + shift
    direct, cg = (
        LabelSystem(W, 0.1, anchor, solver=solver, tol=1e-13).solve(evidence, shift)
        for solver in ("direct", "cg")
    )
    assert_allclose(cg, direct, rtol=1e-8, atol=1e-8 * abs(direct).max())


@given(sparse_graphs(), st.sampled_from(SOLVERS), st.sampled_from([0.0, 0.5]))
def test_rows_that_a_label_reaches_match_dense_solve(problem, solver, shift):
    W, anchor, Y = problem
    evidence = (anchor + shift)[:, None] * Y
    system = LabelSystem(W, 2.0, anchor, solver=solver, tol=1e-13)
    Z = system.solve(evidence, shift)
    matrix = dense_matrix(W, 2.0, anchor, shift)
    reached = (np.linalg.matrix_power(W.toarray() + np.eye(len(Y)), len(Y)) @ anchor) > 0
    assert system.n_free_rows == (~reached).sum()
    expected = np.linalg.solve(matrix[np.ix_(reached, reached)], evidence[reached])
    assert_allclose(Z[reached], expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_answers_stay_between_the_labels(solver):
    W, anchor, Y = moons()
    Z = LabelSystem(W, 5.0, anchor, solver=solver).solve(anchor[:, None] * Y)
    known = Y[anchor > 0]
    assert Z.min() >= known.min() - 1e-6
    assert Z.max() <= known.max() + 1e-6


def test_twin_rows_get_the_same_answer():
    W, anchor, Y = moons(80)
    twice = sparse.csr_array(sparse.kron(W, np.ones((2, 2))))  # each row twice, not linked
    anchor, Y = np.repeat(anchor, 2), np.repeat(Y, 2, axis=0)
    for solver in SOLVERS:
        Z = LabelSystem(twice, 0.1, anchor, solver=solver, tol=1e-13).solve(anchor[:, None] * Y)
        assert_allclose(Z[::2], Z[1::2], rtol=1e-8)


def test_offset_and_unit_of_the_labels_do_not_change_the_iterations():
    W, anchor, Y = moons()
    system = LabelSystem(W, 0.1, anchor, solver="cg", tol=1e-6)
    plain = system.solve(anchor[:, None] * Y)
    n_iterations = system.n_iterations
    moved = system.solve(anchor[:, None] * (1e6 + 10 * Y))
    assert system.n_iterations == n_iterations
    assert_allclose((moved - 1e6) / 10, plain, atol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_diagonal_and_stored_zeros_of_the_graph_do_not_matter(solver):
    W, anchor, Y = moons(60)
    evidence = anchor[:, None] * Y
    entries = W.tocoo()
    row = np.concatenate([entries.row, np.arange(60), [0, 59]])
    col = np.concatenate([entries.col, np.arange(60), [59, 0]])
    odd = sparse.csr_array((np.concatenate([W.data, np.arange(60.0), [0, 0]]), (row, col)))
    assert odd.nnz > W.nnz + 60
    expected = LabelSystem(W, 0.1, anchor, solver=solver, tol=1e-13).solve(evidence)
    Z = LabelSystem(odd, 0.1, anchor, solver=solver, tol=1e-13).solve(evidence)
    assert_allclose(Z, expected, rtol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_layout_and_precision_of_the_evidence_do_not_matter(solver):
    W, anchor, Y = moons(n_outputs=3)
    evidence = (anchor[:, None] * Y).astype(np.float32)
    system = LabelSystem(W, 0.1, anchor, solver=solver)
    expected = system.solve(evidence.astype(np.float64))
    assert_allclose(system.solve(np.asfortranarray(evidence)), expected, rtol=1e-12)


def test_auto_chooses_by_size_and_density():
    for n, n_neighbors, name in [
        (100, 8, "_Eigen"),
        (300, 8, "_Direct"),
        (300, 100, "_ConjugateGradients"),
        (800, 8, "_ConjugateGradients"),
    ]:
        W, anchor, _ = moons(n, n_neighbors=n_neighbors)
        assert type(LabelSystem(W, 0.1, anchor)._solver).__name__ == name


def test_factor_is_kept_until_the_shift_changes(monkeypatch):
    made = []
    original = solvers.splu
    monkeypatch.setattr(solvers, "splu", lambda *a, **k: made.append(1) or original(*a, **k))
    W, anchor, Y = moons()
    system = LabelSystem(W, 0.1, anchor, solver="direct")
    for shift in (0.0, 0.0, 0.1, 0.1, 0.2):
        system.solve(anchor[:, None] * Y, shift)
    assert len(made) == 3


# ---- conjugate gradients ------------------------------------------------------------------------


def test_warm_start_reduces_iterations():
    W, anchor, Y = moons(3000, n_labelled=30, n_outputs=3)
    system = LabelSystem(W, 0.1, anchor, solver="cg")
    rng = np.random.default_rng(0)
    evidence = anchor[:, None] * Y + 0.01 * rng.normal(size=Y.shape)
    start = system.solve(evidence, 0.01)
    evidence += 1e-4 * rng.normal(size=Y.shape)
    system.solve(evidence, 0.01)
    cold = system.n_iterations
    warm = system.solve(evidence, 0.01, start=start)
    assert 0 < system.n_iterations < 0.8 * cold
    system.solve(evidence, 0.01, start=warm)
    assert system.n_iterations == 0


def test_same_bits_for_any_number_of_threads():
    W, anchor, Y = moons(9000, n_labelled=90, n_outputs=3)
    total = Total((anchor == 0).astype(float), np.array([1000.0, 10.0, -3.0]))
    one, two, five = (
        LabelSystem(W, 0.1, anchor, solver="cg", n_threads=n_threads).solve(
            anchor[:, None] * Y, 0.001, total=total
        )
        for n_threads in (1, 2, 5)
    )
    assert_array_equal(one, two)
    assert_array_equal(one, five)


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_residual_is_as_small_as_asked_for(tol):
    W, anchor, Y = moons(2500, n_labelled=25)
    Z = LabelSystem(W, 0.1, anchor, solver="cg", tol=tol).solve(anchor[:, None] * Y)
    matrix = dense_matrix(W, 0.1, anchor)
    mean = (anchor @ Y) / anchor.sum()
    size = np.linalg.norm((anchor[:, None] * (Y - mean)) / np.sqrt(matrix.diagonal())[:, None])
    residual = anchor[:, None] * Y - matrix @ Z
    assert np.linalg.norm(residual / np.sqrt(matrix.diagonal())[:, None]) < 2 * tol * size


def test_columns_that_converge_early_wait_for_the_others():
    W, anchor, Y = moons(n_outputs=2)
    evidence = np.stack([anchor * 7, anchor * Y[:, 1], np.zeros(len(anchor))], axis=1)
    Z = LabelSystem(W, 0.1, anchor, solver="cg", tol=1e-12).solve(evidence)
    assert_allclose(Z[:, 0], 7, rtol=1e-12)
    assert_allclose(Z[:, 2], 0, atol=1e-12)
    assert_allclose(dense_matrix(W, 0.1, anchor) @ Z, evidence, atol=1e-9)


def test_start_far_from_a_constant_answer_still_ends():
    W, anchor, _ = moons()
    system = LabelSystem(W, 0.1, anchor, solver="cg", tol=1e-12)
    start = np.random.default_rng(0).normal(size=(len(anchor), 1))
    assert_allclose(system.solve(anchor[:, None] * 3.0, start=start), 3, rtol=1e-9)
    assert system.n_iterations < 500


def test_no_convergence_warns_with_the_residual(monkeypatch):
    monkeypatch.setattr(solvers, "MAX_ITERATIONS", 2)
    W, anchor, Y = moons()
    system = LabelSystem(W, 0.1, anchor, solver="cg")
    with pytest.warns(RuntimeWarning, match=r"2 iterations .* residual of \d\.\de-0\d instead of"):
        system.solve(anchor[:, None] * Y)


def test_order_puts_hidden_clusters_side_by_side():
    rng = np.random.default_rng(0)
    cluster = rng.integers(0, 4, 200)
    W = np.where(cluster[:, None] == cluster, 1.0, 0.0)
    W[rng.random(W.shape) < 0.8] = 0
    W = np.maximum(np.maximum(W, W.T), 0.01 * (rng.random(W.shape) < 0.05))
    W = np.maximum(W, W.T)
    np.fill_diagonal(W, 0)
    order = cluster_order(sparse.csr_array(W))
    assert_array_equal(np.sort(order), np.arange(200))
    assert (np.diff(cluster[order]) != 0).sum() == 3


def test_order_of_equal_weights_keeps_neighbours_close():
    # A grid of 60 x 60 in random order: rows of a good order are mostly close to their neighbours.
    path = sparse.diags_array([np.ones(59), np.ones(59)], offsets=[-1, 1])
    grid = sparse.csr_array(sparse.kronsum(path, path))
    shuffle = np.random.default_rng(0).permutation(3600)
    W = grid[shuffle][:, shuffle]
    order = cluster_order(W)
    place = np.argsort(order)
    edges = W.tocoo()
    assert np.median(abs(place[edges.row] - place[edges.col])) < 20


# ---- rows that no label reaches -----------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_free_components_get_the_label_mean_exactly(solver):
    W, anchor, Y = two_islands()
    system = LabelSystem(W, 0.1, anchor, solver=solver)
    assert (system.n_free_components, system.n_free_rows) == (3, 62)
    Z = system.solve(anchor[:, None] * Y)
    mean = anchor @ Y / anchor.sum()
    assert_allclose(Z[60:121], np.tile(mean, (61, 1)), rtol=1e-12)
    assert_allclose(Z[122], mean, rtol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_lone_row_with_a_label_keeps_it(solver):
    W, anchor, Y = two_islands()
    Z = LabelSystem(W, 0.1, anchor, solver=solver).solve(anchor[:, None] * Y)
    assert_allclose(Z[121], Y[121], rtol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_free_components_follow_the_shift(solver):
    W, anchor, Y = two_islands()
    target = np.sin(np.arange(123.0))[:, None] * [1, 2]
    Z = LabelSystem(W, 0.1, anchor, solver=solver, tol=1e-12).solve(
        anchor[:, None] * Y + 0.001 * target, 0.001
    )
    expected = np.linalg.solve(
        dense_matrix(W, 0.1, anchor, 0.001), anchor[:, None] * Y + 0.001 * target
    )
    assert_allclose(Z, expected, atol=1e-3)


def test_without_smoothing_every_unlabelled_row_is_free():
    W, anchor, Y = moons(50)
    system = LabelSystem(W, 0.0, anchor)
    assert system.n_free_rows == system.n_free_components == (anchor == 0).sum()
    Z = system.solve(anchor[:, None] * Y)
    assert_allclose(Z[anchor > 0], Y[anchor > 0], rtol=1e-12)
    assert_allclose(Z[anchor == 0], (anchor @ Y / anchor.sum())[0], rtol=1e-12)


# ---- energies -----------------------------------------------------------------------------------


def test_smoothness_is_the_sum_over_pairs_counted_once():
    W, _, _ = moons(40)
    Z = np.random.default_rng(0).normal(size=(40, 3)) + 1000
    dense = W.toarray()
    pairs = sum(
        dense[n, m] * np.sum((Z[n] - Z[m]) ** 2) for n in range(40) for m in range(n + 1, 40)
    )
    assert smoothness(W, Z) == pytest.approx(pairs, rel=1e-9)
    assert smoothness(W, np.full((40, 1), 0.1)) == 0


def test_solution_minimises_the_label_energy():
    W, anchor, Y = moons(n_outputs=2)
    Z = LabelSystem(W, 0.3, anchor, solver="direct").solve(anchor[:, None] * Y)
    direction = np.random.default_rng(0).normal(size=Z.shape)

    def energy(step):
        return sum(label_energy(anchor, Y, Z + step * direction, W, 0.3))

    gradient = (energy(1e-4) - energy(-1e-4)) / 2e-4
    curvature = (energy(1e-2) - 2 * energy(0) + energy(-1e-2)) / 1e-4
    assert abs(gradient) < 1e-8 * curvature
    assert curvature > 0


def test_fit_and_smoothness_are_told_apart():
    W, anchor, Y = moons(50)
    fit, smooth = label_energy(anchor, Y, Y + 2.0, W, 0.5)
    assert fit == pytest.approx(4 * anchor.sum())
    assert smooth == pytest.approx(0.5 * smoothness(W, Y))


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"anchor": np.zeros(50)}, "anchor is zero everywhere"),
        ({"anchor": -np.ones(50)}, "anchor must be"),
        ({"anchor": np.full(50, np.nan)}, "anchor must be"),
        ({"anchor": np.ones(49)}, r"W has shape \(50, 50\): expected \(49, 49\)"),
        ({"W": sparse.csr_array(np.full((50, 50), -1.0))}, "W has weights from -1 to 0"),
        ({"W": sparse.csr_array(np.full((50, 50), np.nan))}, "W has weights from nan to nan"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"solver": "lu"}, "solver is 'lu'"),
    ],
)
def test_bad_system_is_refused_by_name(change, match):
    W, anchor, _ = moons(50)
    with pytest.raises(ValueError, match=match):
        LabelSystem(**({"W": W, "gamma": 0.1, "anchor": anchor} | change))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"evidence": np.ones(50)}, r"evidence has shape \(50,\)"),
        ({"evidence": np.full((50, 1), np.nan)}, "evidence has NaN"),
        ({"shift": -0.1}, "shift is -0.1"),
        ({"start": np.ones((50, 2))}, r"start has shape \(50, 2\)"),
        ({"total": Total(np.ones(50), np.ones(2))}, "total has weights of shape"),
        ({"total": Total(np.zeros(50), np.ones(1))}, "weights of total"),
        ({"total": Total(-np.ones(50), np.ones(1))}, "weights of total"),
    ],
)
def test_bad_right_hand_side_is_refused_by_name(change, match):
    W, anchor, Y = moons(50)
    arguments = {"evidence": Y, "shift": 0.0, "start": None, "total": None} | change
    with pytest.raises(ValueError, match=match):
        LabelSystem(W, 0.1, anchor).solve(**arguments)
