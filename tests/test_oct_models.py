"""S²OCT as programs: sizes, equal optima, points and trees."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optimal_reference import enumerated_optimum, tiny_problem

from silva.optimal.hyperplanes import Hyperplanes, TotalsProblem, score
from silva.optimal.mip_solvers import Effort, highs
from silva.optimal.oct_models import (
    alternating,
    flippable,
    mirrored,
    point,
    reach,
    read,
    s2oct_free,
    s2oct_tight,
    s2oct_verbatim,
)

EFFORT = Effort(seconds=60.0)


def random_problem(n_classes, depth, seed=0, n=12, m=20, p=3):
    rng = np.random.default_rng(seed)
    totals = rng.multinomial(m, np.ones(n_classes) / n_classes)
    classes = np.arange(n) % n_classes
    return TotalsProblem(
        rng.normal(size=(n, p)), classes, rng.normal(size=(m, p)), totals, depth, 50
    )


def random_tree(problem, seed=0, leaf_class=None):
    """Draw a tree of steep hyperplanes, far from all unlabelled rows."""
    rng = np.random.default_rng(seed)
    nodes, X = 2**problem.depth - 1, problem.unlabelled
    weights = rng.normal(size=(nodes, problem.n_features))
    ordered = np.sort(X @ weights.T, axis=0)
    widest = np.diff(ordered, axis=0).argmax(axis=0)
    low, high = ordered[widest, np.arange(nodes)], ordered[widest + 1, np.arange(nodes)]
    factor = 2.1 / (high - low)
    if leaf_class is None:
        leaf_class = rng.permutation(np.arange(nodes + 1) % problem.n_classes)
    return Hyperplanes(weights * factor[:, None], (low + high) / 2 * factor, leaf_class)


# ---- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_verbatim_has_as_many_variables_as_the_paper_defines(depth):
    problem = random_problem(2, depth)
    n, m, p, nodes, half = 12, 20, 3, 2**depth - 1, 2 ** (depth - 1)
    integer = s2oct_verbatim(problem).integer
    assert (~integer).sum() == p * nodes + nodes + 2 * n * nodes + n * half + 1
    assert integer.sum() == n * half + m * nodes + m * half


def test_verbatim_has_the_smallest_sizes_of_table_2_on_parity5():
    problem = random_problem(2, 2, n=3, m=29, p=5)  # N = 32, p = 5, a tenth labelled
    integer = s2oct_verbatim(problem).integer
    assert ((~integer).sum(), integer.sum()) == (43, 151)


def test_the_same_formulas_give_the_largest_sizes_of_table_2_on_connect_4():
    p, nodes, half, n = 42, 7, 4, 6756  # N = 67557
    m = 67557 - n
    assert p * nodes + nodes + 2 * n * nodes + n * half + 1 == 121_910
    assert n * half + m * nodes + m * half == 695_835


# ---- optima -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "depth"), [(0, 1), (1, 1), (1, 2), (4, 2), (5, 2)])
def test_all_programs_of_two_classes_reach_the_enumerated_optimum(seed, depth):
    problem = tiny_problem(seed, depth=depth)
    expected = enumerated_optimum(problem)
    for model in (s2oct_verbatim, s2oct_tight, s2oct_free):
        program = model(problem)
        solution = highs(program, EFFORT)
        assert solution.status == "optimal"
        assert_allclose(solution.objective, expected, atol=1e-5)
        found = score(problem, read(problem, program, solution.x))
        assert found.feasible
        assert_allclose(found.objective, expected, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_three_classes_reach_the_enumerated_optimum(seed):
    problem = tiny_problem(seed, n_classes=3)
    program = s2oct_tight(problem)
    solution = highs(program, EFFORT)
    assert_allclose(solution.objective, enumerated_optimum(problem), atol=1e-5)
    tree = read(problem, program, solution.x)
    assert_allclose(score(problem, tree).objective, solution.objective, atol=1e-5)
    held = highs(s2oct_tight(problem, tree.leaf_class), EFFORT)
    assert_allclose(held.objective, solution.objective, atol=1e-5)


def test_three_levels_have_the_same_optimum_verbatim_and_tight():
    problem = tiny_problem(0, depth=3, n=5, m=3)
    found = [highs(model(problem), EFFORT) for model in (s2oct_verbatim, s2oct_tight, s2oct_free)]
    assert [solution.status for solution in found] == ["optimal"] * 3
    assert_allclose([solution.objective for solution in found], found[0].objective, atol=1e-5)


def test_no_row_has_a_bound_above_theorem_2():
    problem = random_problem(2, 2)
    for bound in reach(problem):
        assert (bound <= problem.big_m - 1.0).all()
    assert reach(problem)[1].mean() < 0.8 * problem.big_m


# ---- points -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_classes", "depth"), [(2, 1), (2, 2), (2, 3), (3, 2), (3, 3)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_tree_becomes_a_feasible_point_of_its_own_objective(n_classes, depth, seed):
    problem = random_problem(n_classes, depth, seed)
    tree = random_tree(problem, seed)
    expected = score(problem, tree)
    assert expected.feasible
    models = [s2oct_free]
    if n_classes == 2:  # other leaves may be closer to a row of a class that is rare here
        models = [s2oct_tight, s2oct_verbatim]
        expected = score(problem, alternating(tree))
    for model in models:
        program = model(problem)
        x = point(problem, program, tree)
        assert program.violation(x) < 1e-7
        assert_allclose(program.cost @ x, expected.objective)
        back = read(problem, program, x)
        assert_array_equal(back.predict(problem.unlabelled), tree.predict(problem.unlabelled))


def test_a_point_of_fixed_leaves_keeps_them():
    problem = random_problem(3, 2)
    tree = random_tree(problem, leaf_class=np.array([0, 1, 0, 2]))
    program = s2oct_tight(problem, tree.leaf_class)
    x = point(problem, program, tree)
    assert program.violation(x) < 1e-7
    assert_allclose(program.cost @ x, score(problem, tree).objective)
    other = random_tree(problem, leaf_class=np.array([2, 1, 0, 2]))
    with pytest.raises(ValueError, match="leaves"):
        point(problem, program, other)


def test_alternating_leaves_answer_as_before():
    problem = random_problem(2, 3)
    for leaf_class in ([0, 0, 1, 1, 1, 0, 0, 1], [1, 1, 1, 0, 0, 0, 0, 1]):
        tree = random_tree(problem, leaf_class=np.array(leaf_class))
        assert_array_equal(
            alternating(tree).predict(problem.unlabelled), tree.predict(problem.unlabelled)
        )


def test_a_mirrored_tree_answers_as_before():
    problem = random_problem(3, 3)
    for seed in range(5):
        tree = random_tree(problem, seed)
        other = mirrored(problem, tree, np.ones(7, bool))
        assert_array_equal(other.predict(problem.unlabelled), tree.predict(problem.unlabelled))


def test_without_a_preferred_image_a_point_keeps_the_sides_of_its_tree():
    for n_classes in (2, 3):
        problem = random_problem(n_classes, 2)
        tree = random_tree(problem)
        program = s2oct_tight(problem, tree.leaf_class, break_symmetry=False)
        x = point(problem, program, tree)
        assert program.violation(x) < 1e-7
        assert_array_equal(x[program.blocks["z"]], tree.margins(problem.unlabelled) > 0)
        assert_array_equal(x[program.blocks["w"]], tree.weights)


def test_mirror_images_do_not_change_the_optimum():
    problem = tiny_problem(1)
    found = [
        highs(model(problem, break_symmetry=broken), EFFORT).objective
        for model in (s2oct_tight, s2oct_free)
        for broken in (False, True)
    ]
    assert_allclose(found, found[0], atol=1e-5)


def test_nodes_with_like_branches_may_be_mirrored():
    assert_array_equal(flippable(np.array([0, 1, 0, 1])), [True, False, False])
    assert_array_equal(flippable(np.array([0, 0, 0, 1])), [False, True, False])


def test_a_start_is_taken_up():
    problem = random_problem(2, 2, m=40)
    program = s2oct_tight(problem)
    start = point(problem, program, random_tree(problem))
    solution = highs(
        program, Effort(seconds=60.0, target=float(program.cost @ start) + 1e-6), start
    )
    assert solution.objective <= program.cost @ start + 1e-6


# ---- what cannot be -----------------------------------------------------------------------------


def test_impossible_leaves_are_refused():
    problem = random_problem(3, 1)
    with pytest.raises(ValueError, match="2 leaves for 3 classes"):
        s2oct_tight(problem)
    with pytest.raises(ValueError, match="two classes, got 3"):
        s2oct_verbatim(problem)
    with pytest.raises(ValueError, match="leaf_class has no leaf of class 2"):
        s2oct_tight(problem, np.array([0, 1]))


def test_no_unlabelled_rows_leave_the_labelled_problem():
    problem = random_problem(2, 2, m=0)
    tight, verbatim = highs(s2oct_tight(problem), EFFORT), highs(s2oct_verbatim(problem), EFFORT)
    assert_allclose(tight.objective, verbatim.objective, atol=1e-5)
