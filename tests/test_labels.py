"""Label problems on a graph: solvers against dense algebra, free components, totals, leaves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits, make_moons
from sklearn.neighbors import kneighbors_graph

from silva import solvers
from silva.labels import (
    LabelSystem,
    Total,
    label_energy,
    refit_leaves,
    smoothness,
)
from silva.solvers import cluster_order

SOLVERS = ("eigen", "direct", "cg")


def graph_of(X, n_neighbors=8):
    """Symmetric neighbour graph with weights that fall with the distance."""
    P = sparse.csr_array(kneighbors_graph(X, n_neighbors, mode="distance"))
    P.data = np.exp(-P.data / P.data.mean())
    W = sparse.csr_array((P + P.T) / 2)
    W.sort_indices()
    return W


def moons(n=300, n_labelled=12, n_outputs=1, seed=0, n_neighbors=8):
    """Graph, anchor and targets (0 where unlabelled) of two moons."""
    rng = np.random.default_rng(seed)
    X, y = make_moons(n, noise=0.1, random_state=seed)
    anchor = np.zeros(n)
    anchor[rng.permutation(n)[:n_labelled]] = rng.uniform(0.5, 2, n_labelled)
    slopes, offsets = rng.normal(size=(1, n_outputs)), rng.normal(size=n_outputs)
    Y = (y[:, None] * slopes + offsets) * (anchor > 0)[:, None]
    return graph_of(X, n_neighbors), anchor, Y


def dense_matrix(W, gamma, anchor, shift=0.0):
    W = W.toarray()
    return np.diag(anchor + shift) + gamma * (np.diag(W.sum(axis=1)) - W)


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


def two_islands():
    """Graph of two components of 60 rows and three lone rows; labels in the first, on one lone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) + np.repeat([[0, 0], [50, 50]], 60, axis=0)
    W = sparse.csr_array(sparse.block_diag([graph_of(X), np.zeros((3, 3))]))
    anchor = np.zeros(123)
    anchor[[3, 17, 40, 121]] = 1, 2, 1, 1
    return W, anchor, rng.normal(size=(123, 2)) * (anchor > 0)[:, None]


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
