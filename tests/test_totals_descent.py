"""Trees with all labels right, moved to the totals: what they keep, and what they gain."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from totals_problems import calls, noisy_opinion, sampled

from silva.optimal.hyperplanes import Hyperplanes, TotalsProblem, alternating_leaves, counts, score
from silva.optimal.totals_descent import _Moving, descents
from silva.optimal.totals_heuristic import cleared
from silva.optimal.totals_planes import REACH, Clearings, Space
from silva.optimal.totals_starts import guiding_tree, hardened, separated


def posed_with_start(depth, seed=0, load=load_breast_cancer, n_classes=2):
    """Return a problem, an opinion of it, its space, and a tree with all labels right."""
    problem, y = sampled(load, n_classes, seed=seed, depth=depth)
    opinion = noisy_opinion(problem, y, seed)
    space, rng = Space.of(problem.unlabelled, problem.box), np.random.default_rng(seed)
    for _ in range(20):
        start = separated(problem, opinion, space, rng, calls(1000))
        if start is not None:
            return problem, opinion, space, start, rng
    pytest.fail("no tree with all labels right")


def random_planes(problem, depth, rng):
    """Return planes near the middle of the rows."""
    weights = rng.normal(size=(2**depth - 1, problem.n_features))
    thresholds = (weights * problem.unlabelled.mean(axis=0)).sum(axis=1) + rng.normal(
        size=len(weights)
    )
    return Hyperplanes(weights, thresholds, alternating_leaves(depth))


@pytest.mark.parametrize("depth", [2, 3])
def test_all_totals_are_exact_and_all_labels_right(depth):
    problem, opinion, space, start, rng = posed_with_start(depth)
    found = list(descents(problem, opinion, space, start, rng, calls(1000)))
    assert found
    for tree in found:
        assert_array_equal(counts(problem, tree, tree.margins(problem.unlabelled)), problem.totals)
        assert_array_equal(tree.predict(problem.labelled), problem.classes)
        assert np.abs(tree.weights).max() <= problem.box * (1 + 1e-9)


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_the_totals_of_three_classes_are_exact_too(load):
    problem, opinion, space, start, rng = posed_with_start(2, load=load, n_classes=3)
    found = list(descents(problem, opinion, space, start, rng, calls(1000)))
    assert found
    for tree in found:
        assert_array_equal(counts(problem, tree, tree.margins(problem.unlabelled)), problem.totals)
        assert_array_equal(tree.predict(problem.labelled), problem.classes)


def test_rounds_towards_the_opinion_leave_less_to_contradict():
    gains = []
    for seed in range(3):
        problem, opinion, space, start, rng = posed_with_start(2, seed)
        costs = [
            opinion.contradiction(tree.predict(problem.unlabelled))
            for tree in descents(problem, opinion, space, start, rng, calls(1000))
        ]
        gains.append(costs[0] - min(costs))
    assert min(gains) >= 0
    assert max(gains) > 0


def test_a_given_tree_is_not_changed():
    problem, opinion, space, start, rng = posed_with_start(2)
    before = start.weights.copy(), start.thresholds.copy()
    list(descents(problem, opinion, space, start, rng, calls(1000)))
    assert_array_equal(start.weights, before[0])
    assert_array_equal(start.thresholds, before[1])


def test_nothing_is_yielded_after_a_stop():
    problem, opinion, space, start, rng = posed_with_start(3)
    total = counts(problem, start, start.margins(problem.unlabelled))
    assert (total != problem.totals).any()
    assert list(descents(problem, opinion, space, start, rng, lambda: True)) == []


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_rows_matter_at_a_node_if_the_other_side_has_another_answer(depth):
    """The other side is that of the plane turned around."""
    problem, y = sampled(load_breast_cancer, depth=depth)
    rng = np.random.default_rng(1)
    tree = random_planes(problem, depth, rng)
    moving = _Moving(
        problem, noisy_opinion(problem, y), Space.of(problem.unlabelled, 1.0), rng, tree
    )
    answers = tree.predict(problem.unlabelled)
    for b in range(2**depth - 1):
        turn = np.where(np.arange(2**depth - 1) == b, -1.0, 1.0)
        turned = Hyperplanes(tree.weights * turn[:, None], tree.thresholds * turn, tree.leaf_class)
        rows, left, right = moving._matter(moving.unknown, b)
        assert_array_equal(rows, np.flatnonzero(turned.predict(problem.unlabelled) != answers))
        here = np.where(moving.unknown[rows, b] > 0, right, left)
        assert_array_equal(here, answers[rows])


def test_rows_that_do_not_pass_a_node_may_change_sides_when_slabs_are_emptied():
    """The first row goes left at the root, and is on the right of node 2, where nothing keeps it.

    There it would have to be 2 beyond the labelled row, which takes all of the first column's
    weight, and leaves too little of the second's to tell the other rows apart.
    """
    problem = TotalsProblem(
        labelled=np.array([[-1.001, 0.0], [1.001, 11.0]]), classes=np.array([0, 0]),
        unlabelled=np.array([[-1.001, 10.95], [1.001, 10.0], [1.001, 20.0]]),
        totals=np.array([2, 1]), depth=2, box=1.0,
    )  # fmt: skip
    tree = Hyperplanes(
        np.array([[1.0, 0.0], [0.0, 0.0], [-0.1, 0.5]]), np.array([0.0, 1.0, 5.5]),
        alternating_leaves(2),
    )  # fmt: skip
    assert not score(problem, tree).feasible
    found = cleared(problem, tree)
    assert found is not None
    assert score(problem, found).solved
    rows = problem.unlabelled
    assert_array_equal(found.predict(rows), tree.predict(rows))
    assert (found.margins(rows) > 0)[0, 2] != (tree.margins(rows) > 0)[0, 2]


def test_a_gap_as_wide_as_a_program_makes_it_is_wide_enough():
    """Programs answer within their tolerance; a plane must not be lost to the last digit."""
    U = np.array([[0.0], [2.0 * REACH - 1e-9], [5.0]])
    clear = Clearings(
        Space.of(U, 1.0), np.zeros((0, 1)), np.zeros(0), U, np.ones(3, bool), np.zeros(3),
        np.zeros(3), np.random.default_rng(0),
    )  # fmt: skip
    clear.add(np.array([[1.0]]))
    assert {1, 2} <= set(clear.options)


def test_the_hardened_heuristic_is_a_start():
    problem, y = sampled(load_breast_cancer)
    opinion, rng = noisy_opinion(problem, y), np.random.default_rng(0)
    space = Space.of(problem.unlabelled, problem.box)
    tree = hardened(problem, space, guiding_tree(problem, opinion, rng, disturbed=False))
    assert tree is not None
    assert_array_equal(tree.predict(problem.labelled), problem.classes)
