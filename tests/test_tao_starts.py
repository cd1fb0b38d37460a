"""Where TAO trees begin and how they go on: starts, seeds, threads."""

import pickle

import numpy as np
import pytest
from conftest import assert_same_tree, make_tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import (
    load_diabetes,
    load_iris,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from tao_models import LEAVES, SPLITS, classifier, regressor


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


# ---- seeds, threads, going on -------------------------------------------------------------------


@SPLITS
@LEAVES
def test_same_tree_for_any_n_jobs(iris, diabetes, split, leaf):
    for Model, (X, y) in ((classifier, iris), (regressor, diabetes)):
        one = Model(split=split, leaf=leaf, n_jobs=1).fit(X, y)
        for n_jobs in (2, 3, -1):
            other = Model(split=split, leaf=leaf, n_jobs=n_jobs).fit(X, y)
            assert_same_tree(one.tree_, other.tree_)
            assert_array_equal(one.predict(X), other.predict(X))


def test_same_tree_for_any_n_jobs_on_sparse_rows():
    X = sparse.random_array((5000, 300), density=0.02, rng=np.random.default_rng(0), format="csr")
    y = (X[:, :20].sum(axis=1) > 0.2).astype(int)
    for split in ("oblique", "axis"):
        trees = [
            classifier(split=split, n_jobs=k, max_iter=2, init="random").fit(X, y).tree_
            for k in (1, 2, 3)
        ]
        assert_same_tree(trees[0], trees[1])
        assert_same_tree(trees[0], trees[2])


def test_same_seed_same_tree_other_seed_other_tree(iris):
    X, y = iris
    one, again, other = (classifier(random_state=seed).fit(X, y) for seed in (0, 0, 1))
    assert_same_tree(one.tree_, again.tree_)
    assert not np.array_equal(one.tree_.threshold, other.tree_.threshold)
    generators = [np.random.RandomState(5), np.random.RandomState(5)]
    assert_same_tree(*(classifier(random_state=g).fit(X, y).tree_ for g in generators))


WARM = [
    ("oblique", "constant"),
    ("axis", "constant"),
    ("oblique", "linear"),
    ("axis", "linear"),
]


@pytest.mark.parametrize(("split", "leaf"), WARM)
@pytest.mark.parametrize("task", ["classifier", "regressor"])
@pytest.mark.parametrize("seed", [0, 1])
def test_warm_start_resumes_exactly(iris, diabetes, task, split, leaf, seed):
    Model, (X, y) = (classifier, iris) if task == "classifier" else (regressor, diabetes)
    options = {"split": split, "leaf": leaf, "tol": 0.0, "random_state": seed, "max_depth": 4}
    whole = Model(**options, max_iter=8).fit(X, y)
    parts = Model(**options, max_iter=4, warm_start=True).fit(X, y)
    middle = parts.history_[-1]
    parts.fit(X, y)
    assert parts.n_iter_ == whole.n_iter_ == 8
    first = [step.objective for step in parts.history_ if step.number > 0]
    assert_allclose(first, [step.objective for step in whole.history_[1:]], rtol=1e-5)
    again = [step for step in parts.history_ if step.number == 0]
    if len(again) == 2:  # the second fit begins where the first one ended
        assert_allclose(again[1].objective, middle.objective, rtol=1e-5)
    assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-5)


def test_warm_start_keeps_the_best_tree_of_all_fits(iris):
    X, y = iris
    for seed in range(6):
        model = classifier(
            warm_start=True, max_iter=3, tol=0.0, random_state=seed, loss="squared"
        ).fit(X, y)
        for _ in range(3):
            model.fit(X, y)
        best = min((step for step in model.history_[1:]), key=lambda step: step.objective).loss
        p = model.predict_proba(X)
        assert_allclose(((np.eye(3)[y] - p) ** 2).sum(), best, rtol=1e-3)


def test_without_warm_start_a_fit_begins_anew(iris):
    X, y = iris
    model = classifier().fit(X, y)
    first = model.tree_
    model.fit(X, y)
    assert_same_tree(first, model.tree_)
    assert model.history_[0].number == 0
    assert sum(step.number == 0 for step in model.history_) == 1


def test_callback_stops_and_keeps_what_there_is(iris):
    X, y = iris
    seen = []
    model = classifier(max_iter=20, tol=0.0).fit(
        X, y, callback=lambda step: seen.append(step) or len(seen) == 3
    )
    assert model.history_ == seen
    assert model.n_iter_ == 2
    assert model.score(X, y) > 0.9


def test_ctrl_c_leaves_a_fitted_model(iris):
    X, y = iris

    def interrupt(step):
        if step.number == 2:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="interrupted after 2 of 20 iterations"):
        model = classifier(max_iter=20, tol=0.0).fit(X, y, callback=interrupt)
    assert len(model.history_) == 3
    assert model.score(X, y) > 0.9


def test_verbose_prints_progress(iris, capsys):
    X, y = iris
    model = classifier(verbose=1, max_iter=3, tol=0.0).fit(X, y)
    assert len(capsys.readouterr().out.splitlines()) == len(model.history_) == 4


def test_tol_stops_early(iris):
    X, y = iris
    model = classifier(max_iter=100, tol=1e-2).fit(X, y)
    assert model.n_iter_ < 40


@LEAVES
def test_history_adds_up(iris, leaf):
    X, y = iris
    model = classifier(leaf=leaf, tol=0.0).fit(X, y)
    assert [step.number for step in model.history_] == list(range(7))
    for step in model.history_:
        assert step.objective == step.loss + step.penalty
        assert step.nonzeros > 0
        assert step.seconds >= 0
    if leaf == "constant":
        best = min(model.history_[1:], key=lambda step: step.objective)
        assert (model.predict(X) != y).sum() <= best.objective


# ---- starts -------------------------------------------------------------------------------------


@SPLITS
@pytest.mark.parametrize("init", ["auto", "class_means", "random", "cart"])
def test_starts_of_the_classifier(iris, split, init):
    X, y = iris
    assert classifier(split=split, init=init).fit(X, y).score(X, y) > 0.9


@SPLITS
@pytest.mark.parametrize("init", ["auto", "target_means", "random", "cart"])
def test_starts_of_the_regressor(diabetes, split, init):
    X, y = diabetes
    assert regressor(split=split, init=init).fit(X, y).score(X, y) > 0.35


@SPLITS
def test_any_fitted_tree_is_a_start(iris, split):
    X, y = iris
    greedy = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    first = classifier(split=split, init=greedy).fit(X, y)
    assert first.score(X, y) >= greedy.score(X, y) - 0.03
    assert_allclose(first.history_[0].loss, (greedy.predict(X) != y).sum())
    for init in (first, first.tree_):
        second = classifier(split=split, init=init).fit(X, y)
        assert_allclose(second.history_[0].loss, (first.predict(X) != y).sum())
        assert second.score(X, y) > 0.93


def test_a_regression_tree_may_start_a_classifier(iris):
    X, y = iris
    start = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, y)
    assert classifier(init=start).fit(X, y).score(X, y) > 0.93


def test_a_start_is_left_alone(iris):
    X, y = iris
    start = make_tree(np.random.default_rng(0), 6, 4)
    before = pickle.dumps(start)
    model = classifier(init=start).fit(X, y)
    assert pickle.dumps(start) == before
    assert model.init is start


def test_an_axis_tree_stays_one_whatever_the_start(iris):
    X, y = iris
    start = classifier(max_depth=4).fit(X, y)
    model = classifier(split="axis", init=start).fit(X, y)
    assert (np.diff(model.tree_.coefficients.indptr) <= 1).all()


@pytest.mark.parametrize("alpha", [0.01, 0.5])
@SPLITS
def test_monotone_from_cart_is_never_worse_than_cart(iris, diabetes, split, alpha):
    options = {"split": split, "alpha": alpha, "init": "cart", "monotone": True, "tol": 0.0}
    X, y = iris
    model = classifier(**options).fit(X, y)
    greedy = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    errors = (greedy.predict(X) != y).sum()
    assert_allclose(model.history_[0].loss, errors)
    objective = [step.objective for step in model.history_]
    assert min(objective) == objective[-1] <= objective[0]
    assert (model.predict(X) != y).sum() <= objective[0]
    if split == "axis":  # the price of a greedy tree is alpha a node
        assert_allclose(model.history_[0].penalty, alpha * (greedy.get_n_leaves() - 1))
        tests = np.count_nonzero(model.tree_.left >= 0)
        total = errors + alpha * (greedy.get_n_leaves() - 1)
        assert (model.predict(X) != y).sum() + alpha * tests <= total + 1e-6
    X, y = diabetes
    model = regressor(**options).fit(X, y)
    objective = [step.objective for step in model.history_]
    assert (np.diff(objective) <= 1e-5 * objective[0]).all()
    if split == "axis":
        greedy = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, y)
        price = alpha * y.var()
        total = ((greedy.predict(X) - y) ** 2).sum() + price * (greedy.get_n_leaves() - 1)
        tests = np.count_nonzero(model.tree_.left >= 0)
        found = ((model.predict(X) - y) ** 2).sum() + price * tests
        assert found <= total * (1 + 1e-5)
