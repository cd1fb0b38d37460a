"""`SemiOptimalTreeClassifier`."""

import sys
from dataclasses import replace
from itertools import islice

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import SemiOptimalTreeClassifier, export_text
from silva.estimators.semi_optimal import whole_totals
from silva.estimators.totals_teacher import opinion_of_forest
from silva.optimal import totals_heuristic, totals_solve
from silva.optimal.progress import NoTreeError
from silva.optimal.totals_solve import solve_roughly


def expected_failures(estimator):
    """Return the one check that trains on the labels -1 and 1."""
    return {"check_classifiers_classes": "-1 marks an unlabelled row, here it is meant as a class"}


@parametrize_with_checks(
    [SemiOptimalTreeClassifier(time_limit=1e-3), SemiOptimalTreeClassifier(method="heuristic")],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore:y has labelled rows of one class only")
def test_sklearn_check(estimator, check):
    check(estimator)


def biased(load, n_classes=2, seed=0, share=0.1):
    """Return rows, classes, partly known classes and totals: labels mostly of the first class."""
    X, y = load(return_X_y=True)
    y = np.minimum(y, n_classes - 1)
    rng = np.random.default_rng(seed)
    first = np.flatnonzero(y == 0)
    n = round(share * len(y))
    rows = [rng.choice(first, round(0.6 * n), False), *(np.flatnonzero(y == k)[:2] for k in (1, 2))]
    rows.append(rng.choice(np.flatnonzero(y > 0), round(0.4 * n), False))
    known = np.zeros(len(y), bool)
    known[np.concatenate(rows)] = True
    counts = np.bincount(y[~known], minlength=n_classes)
    return X, y, np.where(known, y, -1), dict(enumerate(counts.tolist()))


def hard():
    """Return rows where equal ones disagree, so that no tree is without error."""
    X, _, y, totals = biased(load_iris)
    known = np.flatnonzero(y >= 0)
    X, y = np.concatenate([X, X[known]]), np.concatenate([y, 1 - y[known]])
    return X, y, totals


# ---- proofs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "n_classes"),
    [(load_iris, 2), (load_wine, 2), (load_breast_cancer, 2), (load_iris, 3), (load_wine, 3)],
)
def test_a_tree_with_objective_zero_is_proven(load, n_classes):
    X, y, partly, totals = biased(load, n_classes)
    model = SemiOptimalTreeClassifier(random_state=0).fit(X, partly, class_totals=totals)
    assert model.status_ == "optimal"
    assert model.objective_ == model.bound_ == model.gap_ == 0.0
    assert model.totals_ == totals
    known = partly >= 0
    assert_array_equal(model.predict(X)[known], y[known])
    assert_array_equal(np.bincount(model.predict(X)[~known]), list(totals.values()))
    assert (model.predict(X) == y)[~known].mean() > 0.85


@pytest.mark.parametrize("method", ["exact", "heuristic"])
def test_a_tree_sees_what_a_line_with_the_same_total_cannot(method):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    known = np.arange(300) < 40
    total = int(y[~known].sum())
    model = SemiOptimalTreeClassifier(random_state=0, method=method)
    model.fit(X, np.where(known, y, -1), class_totals={0: 260 - total, 1: total})
    linear = LogisticRegression().fit(X[known], y[known]).decision_function(X[~known])
    cut = np.zeros(260, int)
    cut[np.argsort(-linear)[:total]] = 1
    assert (model.predict(X) == y)[~known].mean() > 0.85 > (cut == y[~known]).mean()


def test_without_unlabelled_rows_it_is_a_supervised_tree():
    X, y = load_wine(return_X_y=True)
    model = SemiOptimalTreeClassifier(random_state=0).fit(X, y)
    assert model.status_ == "optimal"
    assert model.score(X, y) == 1.0
    assert model.totals_ == {0: 0, 1: 0, 2: 0}


def test_contradicting_labels_have_no_proof_of_zero():
    X, y, totals = hard()
    model = SemiOptimalTreeClassifier(time_limit=2, random_state=0)
    model.fit(X, y, class_totals=totals)
    assert model.status_ == "time limit"
    assert model.objective_ > 0
    assert 0 <= model.bound_ <= model.objective_
    assert 0 < model.gap_ <= 1
    assert model.totals_ == totals
    assert model.history_[0].name == "starts"


def test_a_higher_price_of_the_totals_is_part_of_the_objective():
    """A total that no tree can have: the rows by which it is missed cost C each."""
    X = np.repeat([[0.0], [1.0]], 10, axis=0)
    y = np.array([0] + 9 * [-1] + [1] + 9 * [-1])
    for C in (1.0, 2.5):
        model = SemiOptimalTreeClassifier(C=C, max_depth=1, method="heuristic")
        model.fit(X, y, class_totals={0: 6, 1: 12})
        assert model.totals_ == {0: 9, 1: 9}
        assert_allclose(model.objective_, 3 * C)


# ---- the heuristic ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_heuristic_meets_the_totals_of_many_rows(dtype):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(21_000, 5)).astype(dtype)
    y = (X[:, 0] + X[:, 1] * (X[:, 2] > 0) > 0.4).astype(int)
    partly = np.where(rng.random(len(y)) < 0.02, y, -1)
    counts = np.bincount(y[partly < 0]).tolist()
    model = SemiOptimalTreeClassifier(random_state=0)
    model.fit(X, partly, class_totals=dict(enumerate(counts)))
    assert model.status_ == "heuristic"
    assert list(model.totals_.values()) == counts
    assert_array_equal(np.bincount(model.predict(X)[partly < 0]), counts)
    assert (model.transduction_ == y).mean() > 0.85
    assert [stage.name for stage in model.history_] == ["heuristic"]
    assert model.gap_ == 1.0


def crowded():
    """Return rows so near to each other that no plane is clear of them."""
    X = np.linspace(0, 1, 6000)[:, None]
    y = np.where(np.arange(6000) % 100 == 0, X[:, 0] > 0.3, np.nan)
    return X, y, {0.0: 1782, 1.0: 4158}


def test_auto_falls_back_on_the_heuristic():
    X, y, totals = crowded()
    model = SemiOptimalTreeClassifier(time_limit=1e-3, random_state=0)
    model.fit(X, y, class_totals=totals)
    assert model.status_ == "heuristic"
    assert model.totals_ == totals


@pytest.mark.parametrize(("mirrored", "status"), [(False, "time limit"), (True, "heuristic")])
def test_auto_leaves_an_unproven_tree_that_contradicts_far_more_than_the_heuristic_one(
    monkeypatch, mirrored, status
):
    def unproven(problem, opinion, *, seed, **options):
        found = solve_roughly(problem, opinion, seconds=60.0, seed=seed)
        leaf_class = 1 - found.tree.leaf_class if mirrored else found.tree.leaf_class
        tree = replace(found.tree, leaf_class=leaf_class)
        return replace(found, tree=tree, status="time limit")

    monkeypatch.setattr(totals_solve, "solve", unproven)
    X, y, totals = hard()
    model = SemiOptimalTreeClassifier(random_state=0).fit(X, y, class_totals=totals)
    assert model.status_ == status
    assert model.totals_ == totals


def test_exact_says_that_time_was_too_short():
    X, y, totals = crowded()
    with pytest.raises(NoTreeError, match=r"time_limit=0.001 .* below 0: allow more time"):
        SemiOptimalTreeClassifier(method="exact", time_limit=1e-3).fit(X, y, class_totals=totals)


def test_a_forest_beats_chance_from_labels_of_one_class():
    X, y = load_iris(return_X_y=True)
    known = np.arange(150) < 10
    truth = (y[~known] > 0).astype(int)
    opinion = opinion_of_forest(X[known], y[known], X[~known], np.bincount(truth), 0, 1)
    assert (opinion.wanted == truth).mean() > 0.95


# ---- stopping -----------------------------------------------------------------------------------


def test_a_callback_stops_and_keeps_the_best_tree():
    X, y, totals = hard()
    seen = []

    def callback(stage):
        seen.append(stage)
        return True

    model = SemiOptimalTreeClassifier(random_state=0, time_limit=4, callback=callback)
    model.fit(X, y, class_totals=totals)
    assert model.status_ == "interrupted"
    assert seen == model.history_
    assert len(seen) == 1
    assert model.objective_ == seen[0].objective


def test_a_keyboard_interrupt_keeps_the_best_tree():
    X, _, partly, totals = biased(load_wine)

    def callback(stage):
        raise KeyboardInterrupt

    model = SemiOptimalTreeClassifier(random_state=0, callback=callback)
    model.fit(X, partly, class_totals=totals)
    assert model.status_ == "optimal"
    assert len(model.history_) == 1


def test_a_keyboard_interrupt_of_the_heuristic_keeps_the_unproven_tree(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(totals_solve, "solve_roughly", interrupted)
    X, y, totals = hard()
    model = SemiOptimalTreeClassifier(random_state=0, time_limit=3)
    model.fit(X, y, class_totals=totals)
    assert model.status_ == "interrupted"
    assert model.totals_ == totals


def test_a_keyboard_interrupt_keeps_the_best_tree_of_the_heuristic(monkeypatch):
    whole = totals_heuristic.alternations

    def two_of_them(*arguments):
        yield from islice(whole(*arguments), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(totals_heuristic, "alternations", two_of_them)
    X, y, totals = hard()
    model = SemiOptimalTreeClassifier(method="heuristic", random_state=0)
    model.fit(X, y, class_totals=totals)
    assert model.status_ == "heuristic"
    assert model.totals_ == totals


def test_each_stage_tells_what_it_brought(capsys):
    X, _, partly, totals = biased(load_breast_cancer)
    model = SemiOptimalTreeClassifier(random_state=0, verbose=1)
    model.fit(X, partly, class_totals=totals)
    assert model.history_[0].name == "starts"
    assert model.history_[-1].objective == 0
    assert "objective 0" in capsys.readouterr().out
    assert (np.diff([stage.seconds for stage in model.history_]) >= 0).all()


# ---- what users bring ---------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_tree_for_any_n_jobs():
    X, _, partly, totals = biased(load_wine)
    trees = [
        SemiOptimalTreeClassifier(random_state=1, n_jobs=n_jobs)
        .fit(X, partly, class_totals=totals)
        .tree_
        for n_jobs in (1, 2)
    ]
    assert_array_equal(trees[0].coefficients.toarray(), trees[1].coefficients.toarray())
    assert_array_equal(trees[0].threshold, trees[1].threshold)


def test_shares_are_rounded_to_whole_rows():
    assert_array_equal(whole_totals(np.array([3.5, 3.5, 3.0])), [4, 3, 3])
    assert_array_equal(whole_totals(np.array([2.2, 5.1, 2.7])), [2, 5, 3])
    X, _, partly, totals = biased(load_iris)
    rows = sum(totals.values())
    shares = {label: total / rows for label, total in totals.items()}
    model = SemiOptimalTreeClassifier(random_state=0).fit(X, partly, class_totals=shares)
    assert model.totals_ == totals


def test_units_do_not_matter():
    X, _, partly, totals = biased(load_wine)
    model = SemiOptimalTreeClassifier(random_state=0).fit(X, partly, class_totals=totals)
    scale = 2.0 ** np.array([300, -300, 40, 0, 5, 7, -9, 11, 100, 3, 60, -60, 1])
    other = SemiOptimalTreeClassifier(random_state=0).fit(X * scale, partly, class_totals=totals)
    assert_array_equal(model.predict(X), other.predict(X * scale))
    assert other.totals_ == totals


def test_the_scaling_of_the_paper_proves_optimality_too():
    X, _, partly, totals = biased(load_wine)
    model = SemiOptimalTreeClassifier(random_state=0, scaling="paper")
    model.fit(X, partly, class_totals=totals)
    assert model.status_ == "optimal"


def test_labels_of_one_class_and_a_total_of_another():
    X, y = load_iris(return_X_y=True)
    partly = np.where(np.arange(150) < 10, "setosa", None)
    model = SemiOptimalTreeClassifier(random_state=0)
    model.fit(X, partly, class_totals={"setosa": 40, "other": 100})
    assert model.status_ == "optimal"
    assert_array_equal(model.classes_, ["other", "setosa"])
    assert_array_equal(model.predict(X), np.where(y == 0, "setosa", "other"))


def test_frames_categories_missing_values_and_sparse_rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "colour": rng.choice(["red", "green", "blue"], 90), "size": rng.normal(size=90),
    })  # fmt: skip
    y = np.where(frame["colour"] == "red", "yes", "no")
    frame.loc[::7, "size"] = np.nan
    partly = pd.Series(y).where(np.arange(90) < 25)
    totals = pd.Series(y[25:]).value_counts()
    model = SemiOptimalTreeClassifier(random_state=0).fit(frame, partly, class_totals=totals)
    assert model.status_ == "optimal"
    assert model.totals_ == totals.to_dict()
    assert "colour=red" in export_text(model)
    X, _, partly, totals = biased(load_iris)
    dense, other = (
        SemiOptimalTreeClassifier(random_state=0).fit(rows, partly, class_totals=totals)
        for rows in (X, sparse.csr_array(X))
    )
    assert_array_equal(dense.predict(X), other.predict(sparse.csr_array(X)))


def test_transduction_keeps_the_labels():
    X, y, totals = hard()
    model = SemiOptimalTreeClassifier(method="heuristic", random_state=0)
    model.fit(X, y, class_totals=totals)
    assert_array_equal(model.transduction_[y >= 0], y[y >= 0])
    assert_array_equal(model.transduction_[y < 0], model.predict(X)[y < 0])


def test_one_class_needs_no_decision():
    X, y = np.arange(6.0)[:, None], np.array(["a", None, None, "a", "a", None], object)
    model = SemiOptimalTreeClassifier().fit(X, y, class_totals={"a": 3})
    assert model.tree_.n_leaves == 1
    assert model.status_ == "optimal"
    assert model.totals_ == {"a": 3}


@pytest.mark.parametrize("unlabelled", [1, 2, 3])
def test_few_unlabelled_rows_are_enough(unlabelled):
    X, y = load_iris(return_X_y=True)
    X, y = X[::5], y[::5]
    partly = y.copy()
    partly[:: 30 // unlabelled] = -1
    rows = partly < 0
    totals = dict(enumerate(np.bincount(y[rows], minlength=3).tolist()))
    model = SemiOptimalTreeClassifier(random_state=0)
    assert model.fit(X, partly, class_totals=totals).totals_ == totals


@pytest.mark.parametrize(
    ("totals", "message"),
    [
        (None, "class_totals must be given: 3 rows"),
        ({0: -1, 1: 4}, r"class_totals\[0\] must be finite and at least 0"),
        ({0: 3, 1: 4}, "class_totals sum to 7"),
        ({0: 3}, "class_totals lacks 1"),
        ({0: 1, 1: 1, 2: 1}, "class_totals names 2"),
    ],
)
def test_bad_totals_are_named(totals, message):
    X, y = np.arange(7.0)[:, None], np.array([0, 0, 1, 1, -1, -1, -1])
    with pytest.raises(ValueError, match=message):
        SemiOptimalTreeClassifier().fit(X, y, class_totals=totals)


@pytest.mark.parametrize(
    ("totals", "message"),
    [
        ({0: 1, 1: 1, 2: 1}, "names 2 classes without a labelled row"),
        ({0: 1, "b": 2}, "write both in the same way"),
        ({1: 3}, "class_totals lacks 0"),
    ],
)
def test_bad_totals_of_one_labelled_class_are_named(totals, message):
    X, y = np.arange(5.0)[:, None], np.array([0, 0, -1, -1, -1])
    with pytest.raises(ValueError, match=message):
        SemiOptimalTreeClassifier().fit(X, y, class_totals=totals)


def test_totals_without_unlabelled_rows_are_refused():
    with pytest.raises(ValueError, match="no unlabelled row"):
        SemiOptimalTreeClassifier().fit([[0.0], [1.0]], [0, 1], class_totals={0: 1, 1: 1})


def test_totals_that_are_no_mapping_are_refused():
    with pytest.raises(TypeError, match="class_totals must map each class"):
        SemiOptimalTreeClassifier().fit([[0.0], [1.0], [2.0]], [0, 1, -1], class_totals=[1, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_depth": 0}, "max_depth must be at least 1"),
        ({"max_depth": 40}, "max_depth must be at most 10"),
        ({"max_depth": 1}, "max_depth must be at least 2 to have a leaf for each of the 3 classes"),
        ({"C": 0.0}, "C must be positive"),
        ({"time_limit": 0.0}, "time_limit must be positive"),
        ({"time_limit": float("nan")}, "time_limit must be finite"),
        ({"method": "quick"}, "method must be one of"),
        ({"scaling": "none"}, "scaling must be one of"),
        ({"solver": "cplex"}, "solver must be one of"),
        ({"verbose": -1}, "verbose must be at least 0"),
    ],
)
def test_bad_arguments_are_named(options, message):
    X, _, partly, totals = biased(load_iris, 3)
    with pytest.raises(ValueError, match=message):
        SemiOptimalTreeClassifier(**options).fit(X, partly, class_totals=totals)


def test_a_callback_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match="callback must be a function"):
        SemiOptimalTreeClassifier(callback="no").fit([[0.0], [1.0]], [0, 1])


def test_a_missing_solver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyscipopt", None)
    with pytest.raises(ImportError, match="pip install pyscipopt"):
        SemiOptimalTreeClassifier(solver="scip").fit([[0.0], [1.0]], [0, 1])
