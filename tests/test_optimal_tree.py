"""`OptimalTreeClassifier` and the search behind it."""

import itertools
import sys
from math import comb

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_oct_h import best_on_a_line, line, width

from silva import OptimalTreeClassifier, export_text
from silva.optimal.hyperplanes import Hyperplanes, as_tree
from silva.optimal.mip_solvers import Effort, highs
from silva.optimal.oct_enumerate import dichotomies, enumerate_trees
from silva.optimal.oct_h import MU, ErrorProblem, oct_h_point, oct_h_program
from silva.optimal.oct_search import lower_bound, search
from silva.optimal.oct_settle import leaf_tree, separate, settle
from silva.optimal.oct_solve import solve
from silva.optimal.tao_planes import complete


def after_one_tree(stage):
    """Stop where no clock has a say."""
    return stage.number >= 1


@parametrize_with_checks([
    OptimalTreeClassifier(callback=after_one_tree),
    OptimalTreeClassifier(complexity=0.05, min_samples_leaf=3, callback=after_one_tree),
])  # fmt: skip
def test_sklearn_check(estimator, check):
    check(estimator)


def biased(X, y, share=0.1, seed=0):
    """Return a tenth of the rows, 85 % of them of the first class."""
    rng = np.random.default_rng(seed)
    n = round(share * len(y))
    first = rng.binomial(n, 0.85)
    rows = [rng.choice(np.flatnonzero(y == 0), first, False)]
    rows.append(rng.choice(np.flatnonzero(y != 0), n - first, False))
    return X[np.concatenate(rows)], y[np.concatenate(rows)]


# ---- proofs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_biased_samples_are_proven(load):
    for seed in range(3):
        X, y = biased(*load(return_X_y=True), seed=seed)
        model = OptimalTreeClassifier(random_state=0).fit(X, y > 0)
        assert model.status_ == "optimal"
        assert model.gap_ == 0.0
        assert_allclose(1 - model.score(X, y > 0), model.objective_)
        assert model.history_[-1].seconds < 20


@pytest.mark.parametrize(("complexity", "min_leaf"), [(0.0, 1), (0.1, 1), (0.0, 2)])
def test_the_optimum_is_that_of_all_trees_on_a_line(complexity, min_leaf):
    x, y = line(3)
    model = OptimalTreeClassifier(complexity=complexity, min_samples_leaf=min_leaf, random_state=0)
    model.fit(10 * x[:, None] - 3, y)
    unit = len(y) - np.bincount(y).max()
    expected = best_on_a_line(x, y, 2, complexity * unit, min_leaf) / unit
    assert model.status_ == "optimal"
    assert_allclose(model.objective_, expected, atol=1e-6)
    assert_allclose(model.bound_, expected, atol=1e-6)
    features = model.tree_.coefficients.nnz
    wrong = (model.predict(10 * x[:, None] - 3) != y).sum()
    assert_allclose(wrong / unit + complexity * features, expected, atol=1e-6)
    leaves = model.apply(10 * x[:, None] - 3)
    assert np.unique(leaves, return_counts=True)[1].min() >= min_leaf


def test_contradicting_copies_are_part_of_the_bound():
    X, y = biased(*load_breast_cancer(return_X_y=True))
    X, y = np.r_[X, X[:4], X[:1]], np.r_[y, 1 - y[:4], 1 - y[:1]]
    model = OptimalTreeClassifier(random_state=0).fit(X, y)
    assert model.status_ == "optimal"
    assert (model.predict(X) != y).sum() == 4


def test_no_tree_beats_the_free_bound():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (40, 2)) / 2.0, rng.integers(0, 3, 40)
    problem = ErrorProblem.pose(X, y, 3, 2, 0.0, 1)
    copies = sum(
        np.bincount(y[(row == X).all(axis=1)]).sum() - np.bincount(y[(row == X).all(axis=1)]).max()
        for row in np.unique(X, axis=0)
    )
    assert_allclose(lower_bound(problem) * problem.baseline, copies)
    near = np.array([[0.0], [0.5 * MU], [1.0]])
    problem = ErrorProblem.pose(near, np.array([0, 1, 1]), 2, 2, 0.0, 1)
    assert lower_bound(problem) * problem.baseline == 1.0


def test_fewer_errors_than_a_greedy_tree():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    greedy = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    model = OptimalTreeClassifier(time_limit=4, random_state=0).fit(X, y)
    assert model.score(X, y) > greedy.score(X, y)
    assert 0 <= model.bound_ <= model.objective_


# ---- the search ---------------------------------------------------------------------------------


def random_problem(complexity=0.0, min_leaf=1, depth=2, n_classes=3):
    rng = np.random.default_rng(1)
    X = rng.random((40, 3))
    X[:, 2] = rng.integers(0, 2, 40)
    return ErrorProblem.pose(
        X, rng.integers(0, n_classes, 40), n_classes, depth, complexity, min_leaf
    )


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(("complexity", "min_leaf"), [(0.0, 1), (0.02, 1), (0.0, 6)])
def test_every_tree_of_the_search_is_a_point_of_the_program(depth, complexity, min_leaf):
    problem = random_problem(complexity, min_leaf, depth)
    program = oct_h_program(problem)
    value = np.inf
    for tree in search(problem, 0, 6, 0.0, lambda: False):
        x = oct_h_point(problem, program, tree)
        assert program.violation(x) < 1e-7
        assert_allclose(program.cost @ x, problem.objective(tree))
        assert problem.objective(tree) < value
        value = problem.objective(tree)
    assert value < problem.objective(leaf_tree(problem))


def test_the_search_repeats_itself():
    problem = random_problem()
    trees = [list(search(problem, 7, 20, 0.0, lambda: False)) for _ in range(2)]
    assert len(trees[0]) == len(trees[1])
    for one, other in zip(*trees, strict=True):
        assert_array_equal(one.weights, other.weights)


def test_a_higher_price_buys_fewer_features():
    X, y = biased(*load_wine(return_X_y=True), share=0.3)
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    used = []
    for complexity in (0.0, 0.02, 1.1):
        problem = ErrorProblem.pose(X, (y > 0).astype(int), 2, 2, complexity, 1)
        *_, tree = search(problem, 0, 6, 0.0, lambda: False)
        used.append((tree.weights != 0).sum())
    assert used[0] > used[1] > used[2] == 0


def test_a_separation_is_as_wide_as_can_be():
    X = np.array([[0.0, 0.0], [0.2, 1.0], [1.0, 0.3], [0.9, 1.0]])
    w, threshold = separate(X, np.array([False, False, True, True]))
    assert_allclose(w, [1.0, 0.0], atol=1e-9)
    assert_allclose(threshold, 0.55)
    assert separate(X, np.array([True, False, False, True])) is None


def test_a_settled_tree_keeps_the_sides_that_can_be_kept():
    problem = random_problem()
    tree = next(t for t in search(problem, 3, 4, 0.0, lambda: False) if t.used.all())
    again = settle(problem, tree)
    assert_array_equal(again.predict(problem.X), tree.predict(problem.X))


def test_a_tree_completed_answers_as_before():
    problem = random_problem()
    for tree in search(problem, 0, 4, 0.0, lambda: False):
        other = complete(as_tree(tree, problem.X, problem.weight, 3), 4)
        assert_array_equal(other.predict(problem.X), tree.predict(problem.X))


def test_the_program_goes_on_where_the_others_end():
    x, y = line(3)
    problem = ErrorProblem.pose(x[:, None], y, 3, 2, 0.1, 1)  # a price: not to be enumerated
    found = solve(problem, highs, seconds=60.0)
    assert found.history[-1].name == "program"
    assert found.status == "optimal"
    assert_allclose(found.objective, highs(oct_h_program(problem), Effort()).objective, atol=1e-6)


# ---- enumeration --------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "p"), [(9, 1), (8, 2), (8, 3), (6, 7)])
def test_rows_in_general_position_have_as_many_cuts_as_cover_counts(n, p):
    X = np.random.default_rng(0).random((n, p))
    assert len(dichotomies(X)) == sum(comb(n - 1, k) for k in range(p + 1))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_cuts_of_rows_on_a_grid_are_found(seed):
    rng = np.random.default_rng(seed)
    X = np.unique(rng.integers(0, 3, (9, 3)), axis=0) / 2.0
    expected = {
        side
        for side in itertools.product([False, True], repeat=len(X))
        if not side[0] and (not any(side) or width(X, np.array(side)) > 1e-6)
    }
    assert {tuple(cut) for cut in dichotomies(X).tolist()} == expected


@pytest.mark.parametrize(("depth", "min_leaf"), [(1, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize("seed", [3, 4])
def test_enumeration_finds_the_best_tree_on_a_line(seed, depth, min_leaf):
    x, y = line(seed, n=12)
    problem = ErrorProblem.pose(x[:, None], y, 3, depth, 0.0, min_leaf)
    tree, bound = enumerate_trees(problem, np.inf, lambda: False)
    assert bound == best_on_a_line(x, y, depth, 0.0, min_leaf)
    assert problem.errors(tree) == bound


def test_enumeration_and_program_agree():
    rng = np.random.default_rng(5)
    X, y = rng.random((11, 2)), rng.integers(0, 2, 11)
    X[1] = X[0] + 0.5 * MU
    y[:2] = 0, 1
    for depth in (1, 2):
        problem = ErrorProblem.pose(X, y, 2, depth, 0.0, 1)
        _, bound = enumerate_trees(problem, np.inf, lambda: False)
        solution = highs(oct_h_program(problem), Effort(seconds=60.0))
        assert_allclose(solution.objective * problem.baseline, bound, atol=1e-5)


def test_an_enumeration_cut_short_claims_no_more_than_it_knows():
    X, y = hard()
    problem = ErrorProblem.pose(X[:30, :2] / 10 + 0.5, y[:30], 2, 2, 0.0, 1)
    tree, exact = enumerate_trees(problem, np.inf, lambda: False)
    for patience in (0, 1, 5, 40):
        asked = itertools.count()
        stop = lambda asked=asked, patience=patience: next(asked) >= patience  # noqa: E731
        _, bound = enumerate_trees(problem, np.inf, stop)
        assert bound <= exact == problem.errors(tree)


def test_few_rows_in_few_columns_are_proven_however_many_errors():
    X, y = hard()
    model = OptimalTreeClassifier(random_state=0).fit(X[:60, :2], y[:60])
    assert model.status_ == "optimal"
    assert model.bound_ == model.objective_ > 0


# ---- stopping -----------------------------------------------------------------------------------


def hard():
    rng = np.random.default_rng(0)
    return rng.normal(size=(120, 3)), rng.integers(0, 2, 120)


def test_a_time_limit_keeps_the_best_tree():
    X, y = hard()
    model = OptimalTreeClassifier(time_limit=1.0, random_state=0).fit(X, y)
    assert model.status_ == "time limit"
    assert model.bound_ < model.objective_ < 1.0
    assert 0 < model.gap_ <= 1
    assert model.history_[-1].seconds < 5


def test_the_shortest_time_limit_gives_the_most_frequent_class_at_least():
    X, y = hard()
    model = OptimalTreeClassifier(time_limit=1e-9).fit(X, y)
    assert model.status_ == "time limit"
    assert model.score(X, y) >= 0.5


def test_a_callback_stops_and_keeps_the_best_tree():
    X, y = hard()
    seen = []

    def callback(stage):
        seen.append(stage)
        return stage.number == 2

    model = OptimalTreeClassifier(random_state=0, callback=callback).fit(X, y)
    assert model.status_ == "interrupted"
    assert model.objective_ == seen[-1].objective
    assert seen == model.history_


def test_a_keyboard_interrupt_keeps_the_best_tree():
    X, y = hard()

    def callback(stage):
        if stage.objective < 0.9:
            raise KeyboardInterrupt

    model = OptimalTreeClassifier(random_state=0, callback=callback).fit(X, y)
    assert model.status_ == "interrupted"
    assert model.objective_ < 0.9


def test_the_history_only_improves():
    X, y = hard()
    model = OptimalTreeClassifier(time_limit=1.0, random_state=0).fit(X, y)
    assert (np.diff([stage.objective for stage in model.history_]) <= 0).all()
    assert (np.diff([stage.bound for stage in model.history_]) >= 0).all()
    assert (np.diff([stage.seconds for stage in model.history_]) >= 0).all()


def test_progress_is_printed_on_demand(capsys):
    X, y = biased(*load_iris(return_X_y=True))
    OptimalTreeClassifier(random_state=0).fit(X, y > 0)
    assert capsys.readouterr().out == ""
    OptimalTreeClassifier(random_state=0, verbose=1).fit(X, y > 0)
    assert "objective 0" in capsys.readouterr().out


# ---- what users bring ---------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_tree_for_any_n_jobs():
    X, y = biased(*load_breast_cancer(return_X_y=True))
    trees = [
        OptimalTreeClassifier(random_state=1, n_jobs=n_jobs).fit(X, y).tree_ for n_jobs in (1, 1, 2)
    ]
    for tree in trees[1:]:
        assert_array_equal(tree.coefficients.toarray(), trees[0].coefficients.toarray())
        assert_array_equal(tree.threshold, trees[0].threshold)


def test_units_do_not_matter():
    X, y = biased(*load_wine(return_X_y=True), share=0.3)
    model = OptimalTreeClassifier(random_state=0).fit(X, y)
    other = OptimalTreeClassifier(random_state=0).fit(X * 1e150 - 1e152, y)
    assert_array_equal(model.predict(X), other.predict(X * 1e150 - 1e152))


def test_frames_categories_missing_values_and_sparse_rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "colour": rng.choice(["red", "green", "blue"], 60), "size": rng.normal(size=60),
    })  # fmt: skip
    y = np.where(frame["colour"] == "red", "yes", "no")
    frame.loc[::7, "size"] = np.nan
    model = OptimalTreeClassifier(random_state=0, complexity=0.01).fit(frame, y)
    assert model.status_ == "optimal"
    assert_array_equal(model.predict(frame), y)
    assert "colour is red" in export_text(model)
    X = sparse.random_array((40, 5), density=0.4, rng=0, format="csr")
    z = (X.sum(axis=1) > 1).astype(int)
    dense = OptimalTreeClassifier(random_state=0).fit(X.toarray(), z)
    assert_array_equal(
        OptimalTreeClassifier(random_state=0).fit(X, z).predict(X), dense.predict(X.toarray())
    )


def test_one_class_needs_no_decision():
    model = OptimalTreeClassifier().fit(np.arange(6.0)[:, None], np.full(6, "a"))
    assert model.tree_.n_leaves == 1
    assert model.status_ == "optimal"
    assert_array_equal(model.predict([[99.0]]), ["a"])


def test_probabilities_are_the_shares_of_the_leaf():
    X, y = hard()
    model = OptimalTreeClassifier(time_limit=0.5, random_state=0).fit(X, y)
    leaf = model.apply(X)
    for node in np.unique(leaf):
        share = (y[leaf == node] == 1).mean()
        assert_allclose(model.predict_proba(X)[leaf == node, 1], share)
    assert model.decision_path(X).shape == (120, model.tree_.n_nodes)
    assert model.get_depth() <= 2
    assert model.get_n_leaves() <= 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_depth": 0}, "max_depth must be at least 1"),
        ({"max_depth": 40}, "max_depth must be at most 10"),
        ({"complexity": -1.0}, "complexity must be finite and at least 0"),
        ({"min_samples_leaf": 0}, "min_samples_leaf must be at least 1"),
        ({"time_limit": 0.0}, "time_limit must be positive"),
        ({"time_limit": float("nan")}, "time_limit must be finite"),
        ({"solver": "cplex"}, "solver must be one of"),
        ({"verbose": -1}, "verbose must be at least 0"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        OptimalTreeClassifier(**options).fit(*hard())


def test_a_callback_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match="callback must be a function"):
        OptimalTreeClassifier(callback="no").fit(*hard())


def test_a_missing_solver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyscipopt", None)
    with pytest.raises(ImportError, match="pip install pyscipopt"):
        OptimalTreeClassifier(solver="scip").fit(*hard())


def test_a_tree_on_the_edge_of_the_strip_stays_as_it_is():
    """Two rows exactly mu apart can still be told apart by the program."""
    X = np.array([[0.0], [MU * (1 + 1e-6)], [1.0]])
    problem = ErrorProblem.pose(X, np.array([0, 1, 1]), 2, 1, 0.0, 1)
    found = solve(problem, highs, seconds=10.0)
    assert found.objective == 0.0
    assert isinstance(found.tree, Hyperplanes)
