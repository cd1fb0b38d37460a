"""OCT-H as a program, against every tree of tiny data."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from silva.optimal.hyperplanes import Hyperplanes
from silva.optimal.mip_solvers import Effort, highs
from silva.optimal.oct_compact import compact_point, compact_program, read_compact
from silva.optimal.oct_h import MU, ErrorProblem, oct_h, oct_h_point, oct_h_program, read_oct_h
from silva.optimal.oct_search import search

EFFORT = Effort(seconds=60.0)


def errors(classes):
    return len(classes) - np.bincount(classes).max()


def best_on_a_line(x, classes, depth, price, min_leaf):
    """Return the smallest errors + price · nodes of a tree of thresholds."""
    best = float(errors(classes))
    if depth == 0:
        return best
    order = np.argsort(x)
    x, classes = x[order], classes[order]
    for cut in range(min_leaf, len(x) - min_leaf + 1):
        if 0 < cut < len(x) and x[cut] - x[cut - 1] >= MU:
            parts = (slice(None, cut), slice(cut, None))
            found = [best_on_a_line(x[k], classes[k], depth - 1, price, min_leaf) for k in parts]
            best = min(best, price + sum(found))
    return best


def width(X, right):
    """Return how far apart a hyperplane of L1 norm one can keep two sets."""
    n, p = X.shape
    sign = np.where(right, 1.0, -1.0)[:, None]
    A = np.hstack([-sign * X, sign * X, sign, np.full((n, 1), 0.5)])
    A = np.vstack([A, np.r_[np.ones(2 * p), 0.0, 0.0]])
    goal = np.r_[np.zeros(2 * p + 1), -1.0]
    bounds = [(0, None)] * (2 * p) + [(None, None)] * 2
    return -linprog(goal, A_ub=A, b_ub=np.r_[np.zeros(n), 1.0], bounds=bounds).fun


def line(seed, n=7, n_classes=3):
    rng = np.random.default_rng(seed)
    x = np.r_[0.0, 1.0, rng.random(n - 2)]
    x[3], x[5] = x[2], x[4] + 0.5 * MU  # twins, and two rows too close to tell apart
    return x, rng.permutation(np.arange(n) % n_classes)


@pytest.mark.parametrize(
    ("seed", "complexity", "min_leaf"),
    [(0, 0.0, 1), (1, 0.0, 1), (0, 0.1, 1), (1, 0.3, 1), (0, 0.05, 2)],
)
def test_oct_h_finds_the_best_tree_on_a_line(seed, complexity, min_leaf):
    x, classes = line(seed)
    program = oct_h(x[:, None], classes, 3, 2, complexity, min_leaf)
    solution = highs(program, EFFORT)
    problem = ErrorProblem.pose(x[:, None], classes, 3, 2, complexity, min_leaf)
    unit = problem.baseline
    expected = best_on_a_line(x, classes, 2, complexity * unit, min_leaf) / unit
    assert solution.status == "optimal"
    assert_allclose(solution.objective, expected, atol=1e-6)
    tree = read_oct_h(program, solution.x)
    assert_allclose(problem.objective(tree), expected, atol=1e-6)


def test_oct_h_finds_the_best_hyperplane_of_all():
    rng = np.random.default_rng(0)
    X, classes = rng.random((7, 2)), np.array([0, 1, 0, 1, 1, 0, 0])
    X[1] = X[0] + 0.4 * MU
    best = errors(classes)
    for right in itertools.product([False, True], repeat=7):
        right = np.array(right)
        if right.any() and not right.all() and width(X, right) >= MU:
            best = min(best, errors(classes[right]) + errors(classes[~right]))
    solution = highs(oct_h(X, classes, 2, 1), EFFORT)
    assert_allclose(solution.objective * 3, best, atol=1e-6)


def test_oct_h_has_the_sizes_of_table_2():
    def sizes(n, p, depth):
        integer = oct_h(np.zeros((n, p)), np.arange(n) % 2, 2, depth).integer
        return (~integer).sum(), integer.sum()

    assert sizes(25, 2, 2)[0] == 31  # prnn_synth: fewest continuous variables
    assert sizes(3, 5, 2)[1] == 42  # parity5: fewest binary ones
    assert sizes(16, 1000, 3)[0] == 14_039  # gametes_e_1000atts
    per_row, per_feature = sizes(3, 1, 3)[1] - sizes(2, 1, 3)[1], sizes(2, 2, 3)[1]
    per_feature -= sizes(2, 1, 3)[1]
    rest = sizes(2, 1, 3)[1] - 2 * per_row - per_feature
    assert rest + 6756 * per_row + 42 * per_feature == 54_373  # connect_4


def test_a_tree_becomes_a_feasible_point_of_its_own_objective():
    rng = np.random.default_rng(3)
    X, classes = rng.random((30, 3)), rng.integers(0, 3, 30)
    weights = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, -1.0]])
    value = np.sort(X @ weights.T, axis=0)
    gap = np.diff(value, axis=0)[5:-5].argmax(axis=0) + 5
    thresholds = (value[gap, range(3)] + value[gap + 1, range(3)]) / 2
    thresholds[1] = -1.0  # not used: all rows go right
    tree = Hyperplanes(weights, thresholds, np.array([0, 1, 2, 0]))
    problem = ErrorProblem.pose(X, classes, 3, 2, 0.1, 1)
    program = oct_h_program(problem)
    x = oct_h_point(problem, program, tree)
    assert program.violation(x) < 1e-9
    assert_allclose(program.cost @ x, problem.objective(tree))
    assert (read_oct_h(program, x).predict(X) == tree.predict(X)).all()


def test_equal_rows_may_be_counted_as_one():
    x, classes = line(0, n=7, n_classes=2)
    many = np.repeat(np.arange(7), [1, 2, 1, 3, 1, 1, 2])
    X, classes = x[many, None], classes[many]
    other = highs(oct_h(X, classes, 2, 1, 0.05, 3), EFFORT)
    problem = ErrorProblem.pose(X, classes, 2, 1, 0.05, 3)
    assert len(problem.X) == 6  # two of the seven are twins
    one = highs(oct_h_program(problem), EFFORT)
    assert_allclose(one.objective, other.objective, atol=1e-6)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_smaller_program_of_two_classes_has_the_same_optimum(depth):
    x, classes = line(2, n=9, n_classes=2)
    classes = np.r_[classes, 0, 1, 1]
    x = np.r_[x, x[4], x[6], x[6]]  # copies that agree and others
    problem = ErrorProblem.pose(x[:, None], classes, 2, depth, 0.0, 1)
    program = compact_program(problem)
    solution = highs(program, EFFORT)
    expected = best_on_a_line(x, classes, depth, 0.0, 1)
    assert_allclose(solution.objective * problem.baseline, expected, atol=1e-5)
    assert problem.errors(read_compact(program, solution.x)) == expected


def test_the_smaller_program_agrees_with_the_paper_on_a_plane():
    rng = np.random.default_rng(1)
    X, classes = rng.random((10, 2)), rng.integers(0, 2, 10)
    X[1], classes[:2] = X[0] + 0.4 * MU, [0, 1]
    problem = ErrorProblem.pose(X, classes, 2, 2, 0.0, 1)
    found = [highs(model(problem), EFFORT) for model in (oct_h_program, compact_program)]
    assert_allclose(found[0].objective, found[1].objective, atol=1e-6)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_tree_of_the_search_is_a_point_of_the_smaller_program(depth):
    rng = np.random.default_rng(0)
    X, classes = rng.random((30, 3)), rng.integers(0, 2, 30)
    problem = ErrorProblem.pose(X, classes, 2, depth, 0.0, 1)
    program = compact_program(problem)
    for tree in search(problem, 0, 4, 0.0, lambda: False):
        x = compact_point(problem, program, tree)
        assert program.violation(x) < 1e-7
        assert_allclose(program.cost @ x, problem.objective(tree))
        assert (read_compact(program, x).predict(problem.X) == tree.predict(problem.X)).all()
