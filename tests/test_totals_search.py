"""The search for trees with objective 0, its opinion, and the thresholds of the heuristic."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from totals_problems import calls, noisy_opinion, posed, sampled

from silva.optimal import p2_check
from silva.optimal.hyperplanes import TotalsProblem, counts, score
from silva.optimal.mip_solvers import Effort, highs
from silva.optimal.oct_models import s2oct_tight
from silva.optimal.totals_cuts import choose_cuts, cuts_along
from silva.optimal.totals_heuristic import alternate, alternations, cleared, emptied, with_totals
from silva.optimal.totals_planes import Clearings, Space
from silva.optimal.totals_search import search
from silva.optimal.totals_solve import solve
from silva.optimal.totals_starts import fill_totals, guiding_tree


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_every_tree_is_optimal_and_keeps_every_constraint_of_p2(load):
    problem, y = sampled(load)
    found = list(itertools.islice(search(problem, noisy_opinion(problem, y), 0, calls(300)), 4))
    assert found
    for one in found:
        assert score(problem, one.tree).solved
        assert max(p2_check.check(problem, one.tree).values()) < 1e-6
        assert (one.tree.predict(problem.unlabelled) == 0).sum() == problem.totals[0]


@pytest.mark.parametrize("seed", range(4))
def test_tiny_problems_have_the_optimum_of_the_program(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(11, 2)), rng.integers(0, 2, 11)
    y[:2] = 0, 1
    problem, unknown = posed(X, y, np.arange(11) < 4, depth=1)
    best = highs(s2oct_tight(problem), Effort(seconds=60)).objective
    opinion = noisy_opinion(problem, unknown)
    found = next(search(problem, opinion, 0, calls(200)), None)
    assert (found is not None) == (best < 1e-6)
    whole = solve(problem, opinion, seconds=20.0)
    assert whole.status == "optimal"
    assert_allclose(whole.objective, best, atol=1e-5)


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_the_totals_of_three_classes_are_exact(load):
    problem, y = sampled(load, n_classes=3)
    found = next(search(problem, noisy_opinion(problem, y), 0, calls(500)))
    margins = found.tree.margins(problem.unlabelled)
    assert_array_equal(counts(problem, found.tree, margins), problem.totals)
    assert score(problem, found.tree).solved
    assert np.abs(margins).min() >= 1 - 1e-6


def test_feasible_trees_may_err_on_labels_but_not_on_totals():
    problem, y = sampled(load_iris)
    problem = TotalsProblem(
        np.concatenate([problem.labelled, problem.labelled[:3]]),
        np.concatenate([problem.classes, 1 - problem.classes[:3]]),  # equal rows disagree
        problem.unlabelled, problem.totals, 2, problem.box,
    )  # fmt: skip
    opinion = noisy_opinion(problem, y)
    found = next(search(problem, opinion, 0, calls(300), strict=False))
    assert found.score.feasible
    assert found.score.total_error == 0
    assert found.score.labelled_error > 0


def test_the_same_seed_gives_the_same_trees():
    problem, y = sampled(load_wine)
    opinion = noisy_opinion(problem, y)
    first, second = (
        list(itertools.islice(search(problem, opinion, 5, calls(60)), 3)) for _ in range(2)
    )
    for one, other in zip(first, second, strict=True):
        assert_array_equal(one.tree.weights, other.tree.weights)
        assert_array_equal(one.tree.thresholds, other.tree.thresholds)


@pytest.mark.parametrize("sided", [True, False])
def test_the_clearings_of_a_node_are_clear(sided):
    problem, y = sampled(load_iris)
    rng = np.random.default_rng(0)
    counted = rng.random(len(y)) < 0.7
    left_cost, right_cost = rng.random(len(y)), rng.random(len(y))
    side = np.where(problem.classes == 1, 1.0, -1.0) if sided else None
    clear = Clearings(
        Space.of(problem.unlabelled, problem.box), problem.labelled, side, problem.unlabelled,
        counted, left_cost, right_cost, rng,
    )  # fmt: skip
    clear.add_around(np.ones(4), 200)
    clear.widen(np.array([0.0, 0.0, problem.box, problem.box]), 4)
    assert clear.options
    for left, option in clear.options.items():
        margin = problem.unlabelled @ option.weights - option.threshold
        known = problem.labelled @ option.weights - option.threshold
        assert np.abs(margin).min() >= 1
        assert np.abs(option.weights).max() <= problem.box * (1 + 1e-12)
        assert (margin[counted] < 0).sum() == left
        assert_allclose(option.cost, np.where(margin < 0, left_cost, right_cost).sum())
        assert ((known * side) if sided else np.abs(known)).min() >= 1


def test_nodes_that_no_row_reaches_are_no_reason_to_warn():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (14, 2)).astype(float)  # four places, eight leaves
    y = rng.integers(0, 2, 14)
    y[:2] = 0, 1
    problem, truth = posed(X, y, np.arange(14) < 5, depth=3)
    opinion = noisy_opinion(problem, truth)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for seed in range(5):
            next(search(problem, opinion, seed, calls(20)), None)
    assert not heard


def test_two_classes_are_filled_by_the_highest_scores():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(50, 2))
    wanted = fill_totals(scores, np.array([17, 33]))
    highest = np.argsort(scores[:, 1] - scores[:, 0])[:17]
    assert_array_equal(np.flatnonzero(wanted == 0), np.sort(highest))


@pytest.mark.parametrize("n_classes", [1, 2, 4])
def test_filled_totals_are_exact(n_classes):
    rng = np.random.default_rng(0)
    totals = np.bincount(rng.integers(0, n_classes, 60), minlength=max(n_classes, 2))
    wanted = fill_totals(rng.normal(size=(60, len(totals))), totals)
    assert_array_equal(np.bincount(wanted, minlength=len(totals)), totals)


# ---- the heuristic ------------------------------------------------------------------------------


def test_cuts_cost_what_they_contradict():
    rng = np.random.default_rng(0)
    X, w = rng.integers(0, 6, (30, 2)).astype(float), np.array([1.0, -2.0])
    counted, label, weight = rng.random(30) < 0.7, rng.integers(0, 3, 30), rng.random(30)
    cuts = cuts_along(w, X, counted, label, weight, 3)
    one, other = cuts.classes
    assert one != other
    for left, cost, threshold in zip(cuts.left, cuts.cost, cuts.threshold, strict=True):
        on_left = X @ w < threshold
        assert (counted & on_left).sum() == left
        assert_allclose(cost, weight[label != np.where(on_left, one, other)].sum())


def test_the_chosen_cuts_are_the_cheapest_that_meet_the_total():
    """Against all combinations; a price for moved rows finds the best of convex costs."""
    rng = np.random.default_rng(0)
    nodes = []
    for _ in range(2):
        x = rng.normal(size=(25, 1))
        label = (x[:, 0] + 0.1 * rng.normal(size=25) > 0).astype(int)
        nodes.append(cuts_along(np.ones(1), x, np.ones(25, bool), label, np.ones(25), 2))
    for total in (5, 20, 33):
        at = choose_cuts(nodes, np.array([total, 50 - total]))
        value = sum(cut.cost[k] for cut, k in zip(nodes, at, strict=True))
        assert sum(int(cut.left[k]) for cut, k in zip(nodes, at, strict=True)) == total
        best = min(
            a + b
            for (i, a), (j, b) in itertools.product(
                *(zip(cut.left, cut.cost, strict=True) for cut in nodes)
            )
            if i + j == total
        )
        assert value <= best + 1


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_emptied_slabs_leave_every_answer_as_it_was(load):
    problem, y = sampled(load)
    rows, solved = np.concatenate([problem.labelled, problem.unlabelled]), 0
    for one in alternations(problem, noisy_opinion(problem, y), 0, 12, (1.0, 100.0)):
        tree = cleared(problem, one.tree)
        if tree is None:
            continue
        worth = score(problem, tree)
        assert worth.feasible
        assert_array_equal(tree.predict(problem.unlabelled), one.tree.predict(problem.unlabelled))
        if one.score.wrong == 0:
            assert worth.solved
            assert_array_equal(tree.predict(rows), one.tree.predict(rows))
            assert max(p2_check.check(problem, tree).values()) < 1e-6
            solved += 1
    assert solved > 0


def test_the_choice_contradicts_the_opinion_no_more_than_the_first_tree():
    problem, y = sampled(load_breast_cancer)
    opinion = noisy_opinion(problem, y)
    first = []

    def stop_at_once(stage):
        first.append(stage)
        return stage.objective == 0

    trees = [solve(problem, opinion, seconds=60.0, callback=c).tree for c in (stop_at_once, None)]
    one, best = (
        opinion.confidence[tree.predict(problem.unlabelled) != opinion.wanted].sum()
        for tree in trees
    )
    assert best < one


def test_without_a_proof_the_opinion_chooses_among_the_trees_that_keep_all_constraints():
    problem, y = sampled(load_breast_cancer)
    rows, classes = problem.labelled, problem.classes
    problem = replace(  # copies that disagree, so that no tree is without error
        problem,
        labelled=np.concatenate([rows, rows[:6]]),
        classes=np.concatenate([classes, 1 - classes[:6]]),
    )
    opinion = noisy_opinion(problem, y)
    least, likely = (solve(problem, opinion, seconds=3.0, by_opinion=by) for by in (False, True))
    for found in (least, likely):
        assert found.status == "time limit"
        assert score(problem, found.tree).total_error == 0
        assert max(p2_check.check(problem, found.tree).values()) < 1e-6
        assert_allclose(found.objective, score(problem, found.tree).objective)
    assert least.objective < likely.objective
    costs = [
        opinion.contradiction(found.tree.predict(problem.unlabelled)) for found in (least, likely)
    ]
    assert costs[1] < costs[0]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_heuristic_meets_the_totals(n_classes):
    problem, y = sampled(load_wine, n_classes)
    found = alternate(problem, noisy_opinion(problem, y), 0, lambda: False, trees=3)
    assert found.score.total_error == 0
    assert (found.tree.predict(problem.unlabelled) == y).mean() > 0.8


def test_of_given_thresholds_each_counts_the_rows_on_its_left():
    x = np.array([[3.0], [1.0], [2.0], [2.0]])
    given = np.array([0.5, 1.5, 2.5, 9.0])
    cuts = cuts_along(np.ones(1), x, np.ones(4, bool), np.array([1, 0, 0, 0]), np.ones(4), 2, given)
    assert_array_equal(cuts.threshold, given)
    assert_array_equal(cuts.left, [0, 1, 3, 4])
    assert_array_equal(cuts.cost, [3, 2, 0, 1])


@pytest.mark.parametrize("whole_numbers", [False, True])
def test_emptied_slabs_and_exact_totals_go_together_on_thousands_of_rows(whole_numbers):
    """Gaps between 4,500 rows are mostly narrower than a slab, so thresholds must be chosen."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 5000)
    X = rng.normal(size=(5000, 6)) + 0.8 * y[:, None]
    X = np.round(5 * X) if whole_numbers else X
    problem, unknown = posed(X, y, np.arange(5000) < 500, depth=3)
    found = emptied(problem, noisy_opinion(problem, unknown), 0, lambda: False)
    assert found is not None
    assert max(p2_check.check(problem, found.tree).values()) < 1e-6
    assert_array_equal(
        np.bincount(found.tree.predict(problem.unlabelled), minlength=2), problem.totals
    )
    assert (found.tree.predict(problem.unlabelled) == unknown).mean() > 0.75
    assert emptied(problem, noisy_opinion(problem, unknown), 0, lambda: True) is None


def test_rows_in_the_same_place_along_a_direction_are_told_apart():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (200, 6)).astype(float), rng.integers(0, 2, 200)
    problem, unknown = posed(X, y, np.arange(200) < 20)
    opinion = noisy_opinion(problem, unknown)
    for _ in range(3):
        tree = guiding_tree(problem, opinion, rng, disturbed=True)
        assert with_totals(problem, opinion, tree, rng).score.total_error == 0
