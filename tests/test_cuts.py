"""Minimum cuts: against enumeration, SciPy's maximum flow, and the bound of the heuristic."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.sparse.csgraph import maximum_flow

from silva.cuts import min_cut, multiway_cut


def value_by_hand(A, ties, terminal):
    """Weight that a partition tears apart, one tie and one pair at a time."""
    torn = sum(ties[i, t] for i in range(len(A)) for t in range(ties.shape[1]) if t != terminal[i])
    pairs = [(i, j) for i in range(len(A)) for j in range(i)]
    return torn + sum(A[i, j] for i, j in pairs if terminal[i] != terminal[j])


def all_values(A, ties):
    """Value of every partition of the nodes."""
    every = product(range(ties.shape[1]), repeat=len(A))
    return {terminal: value_by_hand(A, ties, terminal) for terminal in every}


@st.composite
def problems(draw, n_terminals, max_nodes):
    """Random weights, real or small whole numbers with many ties between cuts; often in parts."""
    n = draw(st.integers(1, max_nodes))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    shares = st.sampled_from([0.2, 0.5, 1.0])
    A = np.triu(rng.random((n, n)) * (rng.random((n, n)) < draw(shares)), 1)
    ties = rng.random((n, n_terminals)) * (rng.random((n, n_terminals)) < draw(shares))
    if draw(st.booleans()):
        A, ties = np.ceil(3 * A), np.ceil(3 * ties)
    return A + A.T, ties


@given(problems(n_terminals=2, max_nodes=9))
def test_cut_matches_enumeration(problem):
    A, ties = problem
    cut = min_cut(sparse.csr_array(A), *ties.T)
    values = all_values(A, ties)
    assert_allclose(cut.value, min(values.values()), atol=1e-12)
    assert_allclose(cut.flow, cut.value, atol=1e-12)
    assert_allclose(values[tuple(np.where(cut.source_side, 0, 1))], cut.value, atol=1e-12)


@given(problems(n_terminals=2, max_nodes=8))
def test_sides_are_what_all_minimum_cuts_share(problem):
    A, ties = problem
    cut = min_cut(sparse.csr_array(A), *ties.T)
    values = all_values(A, ties)
    least = min(values.values())
    best = np.array([part for part, value in values.items() if value <= least + 1e-9])
    assert_array_equal(cut.source_side, (best == 0).all(axis=0))
    assert_array_equal(cut.sink_side, (best == 1).all(axis=0))


@pytest.mark.parametrize(("n", "density"), [(30, 0.2), (200, 0.05), (200, 0.5), (600, 0.02)])
def test_flow_equals_scipy_on_whole_numbers(n, density):
    rng = np.random.default_rng(n)
    A = sparse.random_array((n, n), density=density, rng=rng, data_sampler=None)
    A.data = rng.integers(1, 100, A.nnz).astype(float)
    A = sparse.csr_array(sparse.triu(A, 1))
    A = sparse.csr_array(A + A.T)
    source, sink = (rng.integers(1, 500, n) * (rng.random(n) < 0.3) for _ in range(2))
    full = sparse.block_array(
        [
            [None, sparse.csr_array(source[None]), None],
            [None, A, sparse.csr_array(sink[:, None])],
            [sparse.csr_array((1, 1)), None, sparse.csr_array((1, 1))],
        ],
        format="csr",
    ).astype(np.int32)
    full.indices, full.indptr = full.indices.astype(np.int32), full.indptr.astype(np.int32)
    cut = min_cut(A, source, sink)
    assert cut.flow == cut.value == maximum_flow(full, 0, n + 1).flow_value


@pytest.mark.parametrize("seed", range(4))
def test_value_of_the_cut_is_the_value_of_the_flow(seed):
    rng = np.random.default_rng(seed)
    M = rng.dirichlet(np.full(300, 0.02), size=2000) ** 2  # weights over many orders of magnitude
    cut = min_cut(M.T @ M, *(10 * rng.random((2, 300)) * (rng.random((2, 300)) < 0.1)))
    assert_allclose(cut.flow, cut.value, rtol=1e-10)


@pytest.mark.parametrize("n_terminals", [3, 4])
def test_multiway_cut_is_within_its_bound(n_terminals):
    @given(problems(n_terminals=n_terminals, max_nodes=6))
    def check(problem):
        A, ties = problem
        cut = multiway_cut(sparse.csr_array(A), ties)
        least = min(all_values(A, ties).values())
        assert least - 1e-12 <= cut.value <= (2 - 2 / n_terminals) * least + 1e-12
        assert_allclose(value_by_hand(A, ties, cut.terminal), cut.value, atol=1e-12)

    check()


@given(problems(n_terminals=3, max_nodes=7))
def test_isolating_cuts_claim_no_node_twice(problem):
    A, ties = problem
    sides = [min_cut(A, own, ties.sum(axis=1) - own).source_side for own in ties.T]
    assert np.sum(sides, axis=0).max() <= 1


@given(problems(n_terminals=2, max_nodes=8))
def test_multiway_cut_of_two_terminals_is_exact(problem):
    A, ties = problem
    least = min(all_values(A, ties).values())
    assert_allclose(multiway_cut(sparse.csr_array(A), ties).value, least, atol=1e-12)


def test_nodes_that_nothing_ties_are_on_neither_side():
    A = sparse.csr_array(np.kron(np.eye(2), [[0, 1.0], [1, 0]]))
    cut = min_cut(A, np.array([1.0, 0, 0, 0]), np.zeros(4))
    assert_array_equal(cut.source_side, [True, True, False, False])
    assert not cut.sink_side.any()


def test_rounding_does_not_break_a_tie():
    # 0.3 against 0.1 + 0.2, which is more in floating point: node 0 may go either way.
    A = np.zeros((3, 3))
    A[0, 1:] = A[1:, 0] = 0.1, 0.2
    cut = min_cut(A, np.array([0.3, 0, 0]), np.array([0, 1.0, 1.0]))
    assert not cut.source_side.any()
    assert_array_equal(cut.sink_side, [False, True, True])
    back = min_cut(A, np.array([0, 1.0, 1.0]), np.array([0.3, 0, 0]))
    assert_array_equal(back.source_side, [False, True, True])


def test_the_diagonal_does_not_matter():
    A, ties = np.array([[0, 2.0], [2, 0]]), np.array([[3.0, 0], [0, 1]])
    assert min_cut(A, *ties.T).value == min_cut(A + 5 * np.eye(2), *ties.T).value == 1


@pytest.mark.parametrize(
    ("A", "ties", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 2)), "square"),
        (np.ones((2, 2)), np.ones((3, 2)), "a row for each node"),
        (np.ones((2, 2)), np.ones((2, 1)), "two terminals"),
        (-np.ones((2, 2)), np.ones((2, 2)), "A: weights from -1"),
        (np.ones((2, 2)), np.full((2, 2), np.nan), "the ties: weights"),
        (np.array([[0, 1.0], [2, 0]]), np.ones((2, 2)), "not symmetric"),
        (np.array([[0, 1.0], [0, 0]]), np.ones((2, 2)), "not symmetric"),
    ],
)
def test_bad_graphs_are_named(A, ties, message):
    with pytest.raises(ValueError, match=message):
        multiway_cut(A, ties)
