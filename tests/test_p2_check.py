"""The checker of (P2): it passes what is right and catches each kind of wrong."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from optimal_reference import tiny_problem
from test_oct_models import random_problem, random_tree

from silva.optimal.hyperplanes import Hyperplanes, score
from silva.optimal.mip_solvers import Effort, highs
from silva.optimal.oct_models import alternating, read, s2oct_tight, s2oct_verbatim
from silva.optimal.p2_check import at_rest, check, objective, set_variables, violations

NAMES = ["P1b", "P1c", "P1d", "P1e", *[f"P2{letter}" for letter in "bcdefghijklmno"]]


def problem_and_point():
    """Return a problem and a point of it with unlabelled rows in every leaf."""
    problem = random_problem(2, 2)
    trees = (alternating(random_tree(problem, seed)) for seed in range(100))
    tree = next(
        tree
        for tree in trees
        if len(set(tree.leaves(tree.margins(problem.unlabelled)))) == 4 and tree.used.all()
    )
    return problem, set_variables(problem, tree)


def changed(values, place, value):
    values = values.copy()
    values[place] = value
    return values


def wrong(name, x):
    """Return a point whose only fault, or nearly, is the named one."""
    row, leaf = np.argwhere(x.alpha == 1)[0]
    other = (leaf + 2) % 4
    left_a = int(np.argmax(x.delta[:, 0] == 1))  # a row in leaf 4, left of nodes 1 and 2
    right_a = int(np.argmax(x.delta[:, 2] == 1))  # a row in leaf 6, right of node 1
    crossing = np.unravel_index(np.argmax(x.z), x.z.shape)
    staying = np.unravel_index(np.argmin(x.z), x.z.shape)
    error = float(x.beta[row, leaf])
    return {
        "P1b": lambda: replace(x, y_right=x.y_right - 0.5),
        "P1c": lambda: replace(x, y_left=x.y_left - 0.5),
        "P1d": lambda: replace(x, omega=x.omega * 1e4, gamma=x.gamma * 1e4),
        "P1e": lambda: replace(x, y_left=changed(x.y_left, (0, 0), -1.0)),
        "P2b": lambda: replace(x, alpha=changed(x.alpha, (row, other), 1.0)),
        "P2c": lambda: replace(
            x, alpha=changed(changed(x.alpha, (row, other), 0.5), (row, leaf), 0.5)
        ),
        "P2d": lambda: replace(x, beta=changed(x.beta, (row, leaf), error + 1.0)),
        "P2e": lambda: replace(x, beta=changed(x.beta, (row, leaf), -1.0), y_left=x.y_left + 1.0),
        "P2f": lambda: replace(x, beta=changed(x.beta, (row, other), 0.5)),
        "P2g": lambda: replace(x, z=changed(x.z, crossing, 0.0)),
        "P2h": lambda: replace(x, z=changed(x.z, staying, 1.0)),
        "P2i": lambda: replace(x, z=changed(x.z, crossing, 0.5)),
        "P2j": lambda: replace(x, z=changed(x.z, (right_a, 0), 0.0)),
        "P2k": lambda: replace(x, z=changed(x.z, (left_a, 0), 1.0)),
        "P2l": lambda: replace(x, delta=changed(x.delta, (left_a, 0), 0.0)),
        "P2m": lambda: replace(x, delta=changed(x.delta, (left_a, 0), 0.5)),
        "P2n": lambda: replace(x, xi=x.xi - 0.5),
        "P2o": lambda: replace(x, xi=-1.0),
    }[name]()


def test_all_constraints_are_named():
    problem, x = problem_and_point()
    assert list(violations(problem, x)) == NAMES


def test_a_feasible_tree_violates_nothing_and_has_its_own_objective():
    for depth in (1, 2, 3):
        problem = random_problem(2, depth)
        tree = alternating(random_tree(problem))
        assert score(problem, tree).feasible
        assert max(check(problem, tree).values()) < 1e-9
        assert_allclose(
            objective(problem, set_variables(problem, tree)), score(problem, tree).objective
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_violation_of_each_constraint_is_caught(name):
    problem, x = problem_and_point()
    assert violations(problem, x)[name] < 1e-9
    assert violations(problem, wrong(name, x))[name] > 0.1


@pytest.mark.parametrize("model", [s2oct_verbatim, s2oct_tight])
@pytest.mark.parametrize("seed", [1, 4])
def test_optimal_points_of_the_programs_pass(model, seed):
    problem = tiny_problem(seed)
    program = model(problem)
    solution = highs(program, Effort(seconds=60.0))
    tree = read(problem, program, solution.x)
    assert max(check(problem, tree).values()) < 1e-5
    found = objective(problem, set_variables(problem, at_rest(problem, tree)))
    assert found <= solution.objective + 1e-5


def test_a_row_in_a_slab_is_caught():
    problem = random_problem(2, 2)
    tree = alternating(random_tree(problem))
    flat = Hyperplanes(tree.weights / 3, tree.thresholds / 3, tree.leaf_class)
    found = check(problem, flat)
    assert max(found["P2g"], found["P2h"]) > 0.1


def test_a_node_that_is_not_used_may_be_as_steep_as_it_likes():
    problem = random_problem(2, 2)
    tree = alternating(random_tree(problem))
    thresholds = changed(tree.thresholds, 1, 1e6)  # everything left
    steep = Hyperplanes(tree.weights, thresholds, tree.leaf_class)
    assert max(check(problem, steep).values()) < 1e-9
    assert max(violations(problem, set_variables(problem, steep)).values()) > 1.0
