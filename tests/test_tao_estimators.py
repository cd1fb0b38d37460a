"""TAO trees as scikit-learn estimators: what a user may rely on."""

import pickle
import time
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import assert_same_tree, make_tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    make_classification,
    make_regression,
)
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from silva import TAOTreeClassifier, TAOTreeRegressor, export_text
from silva.copies import row_groups
from silva.estimators import tao_base
from silva.tree import Tree

SPLITS = pytest.mark.parametrize("split", ["oblique", "axis"])
EVERY_SPLIT = pytest.mark.parametrize("split", ["oblique", "mixed", "axis"])
LEAVES = pytest.mark.parametrize("leaf", ["constant", "linear"])
DEVICES = pytest.mark.parametrize("device", ["cpu", "reference"])


PLAIN = {
    "split": "oblique",
    "max_depth": 3,
    "alpha": 0.1,
    "l2": 0.0,
    "max_iter": 6,
    "random_state": 0,
}


def classifier(**parameters):
    return TAOTreeClassifier(**{**PLAIN, **parameters})


def regressor(**parameters):
    return TAOTreeRegressor(**{**PLAIN, **parameters})


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)


# ---- it learns ----------------------------------------------------------------------------------


@EVERY_SPLIT
@LEAVES
@pytest.mark.parametrize("loss", ["misclassification", "squared", "log"])
def test_classifier_learns_iris(iris, split, leaf, loss):
    X, y = iris
    assert classifier(split=split, leaf=leaf, loss=loss).fit(X, y).score(X, y) > 0.93


@EVERY_SPLIT
@LEAVES
def test_regressor_learns_diabetes(diabetes, split, leaf):
    X, y = diabetes
    assert regressor(split=split, leaf=leaf).fit(X, y).score(X, y) > 0.45


def test_an_untuned_tree_reads_digits(digits):
    X, X_test, y, y_test = digits
    greedy = DecisionTreeClassifier(random_state=0).fit(X, y).score(X_test, y_test)
    scores = [
        TAOTreeClassifier(random_state=seed).fit(X, y).score(X_test, y_test) for seed in range(1)
    ]
    assert np.mean(scores) > greedy


def test_linear_leaves_are_exact_on_a_line():
    X, y = make_regression(200, 5, noise=0, random_state=0)
    model = regressor(leaf="linear", shrinkage=0, alpha=1.0).fit(X, y)
    assert model.score(X, y) > 0.999
    flat = regressor(alpha=1.0).fit(X, y)
    assert flat.score(X, y) < 0.97


def test_answers_of_linear_leaves_stay_in_the_range_of_the_targets(diabetes):
    X, y = diabetes
    model = regressor(leaf="linear").fit(X, y)
    far = model.predict(100 * X)
    assert far.min() >= y.min() - 1e-3
    assert far.max() <= y.max() + 1e-3
    leaf = model.tree_.leaf_index[model.apply(X)]
    for number in np.unique(leaf):
        here = y[leaf == number]
        assert_allclose(model.tree_.bounds[:, number, 0], [here.min(), here.max()], rtol=1e-5)


@DEVICES
@SPLITS
def test_constant_answers_are_shares_and_means_of_the_leaf(iris, diabetes, device, split):
    X, y = iris
    model = classifier(split=split, device=device, max_depth=2, max_iter=2).fit(X, y)
    node, shares = model.apply(X), model.predict_proba(X)
    for number in np.unique(node):
        expected = np.bincount(y[node == number], minlength=3) / (node == number).sum()
        assert_allclose(shares[node == number], np.tile(expected, ((node == number).sum(), 1)))
    X, y = diabetes[0][:100], diabetes[1][:100]
    model = regressor(split=split, device=device, max_depth=2, max_iter=2).fit(X, y)
    node, answers = model.apply(X), model.predict(X)
    for number in np.unique(node):
        assert_allclose(answers[node == number], y[node == number].mean(), rtol=1e-5)


@SPLITS
def test_constant_answers_are_exact(diabetes, split):
    # In double precision, as scikit-learn's: the optimiser's single precision must not show.
    X, y = diabetes
    model = regressor(split=split).fit(X, y)
    node, answers = model.apply(X), model.predict(X)
    for number in np.unique(node):
        assert_allclose(answers[node == number], y[node == number].mean(), rtol=1e-12)
    model = regressor(split=split).fit(X, np.where(X[:, 2] > 0, 3.0, 0.0))
    assert_allclose(np.unique(model.predict(X).round(12)), [0, 3], atol=1e-12)


@DEVICES
@SPLITS
@LEAVES
def test_both_devices_fit_and_predict(iris, diabetes, device, split, leaf):
    options = {"device": device, "split": split, "leaf": leaf, "max_depth": 2, "max_iter": 2}
    X, y = iris
    assert classifier(**options).fit(X, y).score(X, y) > 0.9
    assert classifier(**options).fit(sparse.csr_array(X), y).score(X, y) > 0.9
    X, y = diabetes[0][:150], diabetes[1][:150]
    assert regressor(**options).fit(X, y).score(X, y) > 0.3


# ---- labels and outputs -------------------------------------------------------------------------


@LEAVES
@pytest.mark.parametrize(
    "names",
    [["setosa", "versicolor", "virginica"], [10, -1, 7], [1.0, 2.0, 5.0]],
    ids=["strings", "integers", "floats"],
)
def test_any_labels_will_do(iris, names, leaf):
    X, y = iris
    plain = classifier(leaf=leaf).fit(X, y)
    order = np.argsort(names)
    labels = np.array(names)[order][y]  # sorted: the codes inside are the same
    model = classifier(leaf=leaf).fit(X, labels)
    assert_array_equal(model.classes_, np.unique(labels))
    assert_array_equal(model.predict(X), model.classes_[plain.predict(X)])
    assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert model.predict(X).dtype == labels.dtype


@LEAVES
def test_probabilities_are_probabilities(iris, leaf):
    X, y = iris
    model = classifier(leaf=leaf).fit(X, y)
    for rows in (X, 10 * X - 30):
        p = model.predict_proba(rows)
        assert p.shape == (len(X), 3)
        assert (p >= 0).all()
        assert_allclose(p.sum(axis=1), 1)
        assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(rows))
    with np.errstate(divide="ignore"):
        assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)))


@SPLITS
@LEAVES
def test_several_classification_targets(iris, split, leaf):
    X, y = iris
    Y = np.stack([y, X[:, 0] > 5.8], axis=1)
    model = classifier(split=split, leaf=leaf, max_depth=4, loss="squared").fit(X, Y)
    assert [list(c) for c in model.classes_] == [[0, 1, 2], [0, 1]]
    assert_array_equal(model.n_classes_, [3, 2])
    assert model.n_outputs_ == 2
    predicted = model.predict(X)
    assert predicted.shape == Y.shape
    assert (predicted == Y).mean(axis=0).min() > 0.85
    one, two = model.predict_proba(X)
    assert (one.shape, two.shape) == ((150, 3), (150, 2))
    assert_allclose(one.sum(axis=1), 1)
    assert_array_equal(two.argmax(axis=1), predicted[:, 1])
    assert len(model.predict_log_proba(X)) == 2


def test_several_targets_of_strings(iris):
    X, y = iris
    Y = np.stack([np.array(["a", "b", "c"])[y], np.where(X[:, 0] > 5.8, "long", "short")], axis=1)
    model = classifier(loss="squared", max_depth=4).fit(X, Y)
    assert (model.predict(X) == Y).mean() > 0.85
    frame = pd.DataFrame(Y, columns=["kind", "length"])
    assert_array_equal(classifier(loss="squared", max_depth=4).fit(X, frame).predict(X),
                       model.predict(X))  # fmt: skip


@SPLITS
@LEAVES
def test_several_regression_targets(diabetes, split, leaf):
    X, y = diabetes
    Y = np.stack([y, 500 * X[:, 2] + 3, -y], axis=1)
    model = regressor(split=split, leaf=leaf, max_depth=4).fit(X, Y)
    assert model.predict(X).shape == Y.shape
    assert model.n_outputs_ == 3
    assert model.score(X, Y) > 0.3
    assert_allclose(model.predict(X)[:, 2], -model.predict(X)[:, 0], rtol=1e-3, atol=0.1)


def test_the_shape_of_y_is_the_shape_of_the_answer(diabetes, iris):
    X, y = diabetes
    assert regressor().fit(X, y).predict(X).shape == (len(y),)
    assert regressor().fit(X, y[:, None]).predict(X).shape == (len(y), 1)
    X, y = iris
    assert classifier().fit(X, y).predict(X).shape == (len(y),)


@LEAVES
def test_units_of_the_target_do_not_matter(diabetes, leaf):
    X, y = diabetes
    one = regressor(leaf=leaf).fit(X, y)
    other = regressor(leaf=leaf).fit(X, 1024 * y + 5000)
    assert_allclose(other.predict(X), 1024 * one.predict(X) + 5000, rtol=1e-4)


# ---- weights ------------------------------------------------------------------------------------


def test_weight_two_equals_duplicated_rows(iris):
    # Whole numbers on a byte grid and a greedy start: nothing is rounded.
    X, y = np.round(iris[0] * 10), iris[1]
    twice = np.random.default_rng(0).integers(1, 3, len(X))
    for options in ({"split": "axis"}, {"init": "cart"}):
        weighted = classifier(**options).fit(X, y, sample_weight=twice)
        repeated = classifier(**options).fit(np.repeat(X, twice, axis=0), np.repeat(y, twice))
        assert_array_equal(weighted.predict(X), repeated.predict(X))
        assert_allclose(weighted.history_[-1].objective, repeated.history_[-1].objective, rtol=1e-3)
        assert weighted.tree_.weight[0] == twice.sum()


@LEAVES
def test_weight_two_equals_duplicated_rows_in_regression(diabetes, leaf):
    X, y = np.round(diabetes[0][:200], 2), diabetes[1][:200]
    twice = np.random.default_rng(0).integers(1, 3, len(X))
    options = {"init": "cart", "leaf": leaf, "max_iter": 2, "max_depth": 2}
    weighted = regressor(**options).fit(X, y, sample_weight=twice)
    repeated = regressor(**options).fit(np.repeat(X, twice, axis=0), np.repeat(y, twice))
    assert_allclose(weighted.history_[-1].objective, repeated.history_[-1].objective, rtol=1e-2)
    assert np.isclose(weighted.predict(X), repeated.predict(X), rtol=1e-2).mean() > 0.97


def test_doubling_every_row_equals_doubling_every_weight(iris):
    X, y = np.round(iris[0] * 10), iris[1]
    weighted = classifier().fit(X, y, sample_weight=np.full(150, 2.0))
    repeated = classifier().fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    assert_array_equal(weighted.predict(X), repeated.predict(X))
    assert_allclose(weighted.history_[-1].objective, repeated.history_[-1].objective, rtol=1e-3)


@SPLITS
@LEAVES
def test_rows_of_weight_zero_are_as_if_absent(iris, diabetes, split, leaf):
    for Model, (X, y) in ((classifier, iris), (regressor, diabetes)):
        weight = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
        weight[y == y.max()] = 1  # every class stays
        used = weight > 0
        one = Model(split=split, leaf=leaf).fit(X, y, sample_weight=weight)
        other = Model(split=split, leaf=leaf).fit(X[used], y[used], sample_weight=weight[used])
        assert_array_equal(one.apply(X), other.apply(X))
        # Sums run in another order; linear leaves are solved in single precision.
        rtol = 1e-12 if leaf == "constant" else 1e-6
        assert_allclose(one.tree_.values, other.tree_.values, rtol=rtol, atol=1e-14)
        assert_allclose(one.feature_importances_, other.feature_importances_, rtol=rtol)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "float64"])
@pytest.mark.parametrize("labels", [[0, 1], [3, 120], [5, 6, 9]])
def test_classes_are_found_as_unique_finds_them(dtype, labels):
    rng = np.random.default_rng(0)
    y = np.array(labels, dtype)[rng.integers(len(labels), size=400)]
    model = TAOTreeClassifier(max_depth=2, alpha=0.01, max_iter=2).fit(y[:, None].astype(float), y)
    assert_array_equal(model.classes_, np.unique(y))
    assert model.classes_.dtype == y.dtype
    assert_array_equal(model.predict(y[:, None].astype(float)), y)


def test_class_weight_moves_the_decision(iris):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] + rng.normal(size=300) > 1.2).astype(int)  # a rare class, much overlap
    plain, heavy = classifier().fit(X, y), classifier(class_weight={0: 1, 1: 20}).fit(X, y)
    assert (heavy.predict(X) == 1).sum() > (plain.predict(X) == 1).sum() + 20
    by_hand = classifier().fit(X, y, sample_weight=np.where(y == 1, 20.0, 1.0))
    assert_same_tree(heavy.tree_, by_hand.tree_)
    balanced = classifier(class_weight="balanced").fit(X, y)
    weight = np.where(y == 1, 150 / (y == 1).sum(), 150 / (y == 0).sum())
    assert_same_tree(balanced.tree_, classifier().fit(X, y, sample_weight=weight).tree_)


def test_class_weight_and_sample_weight_multiply(iris):
    X, y = iris
    weight = np.random.default_rng(0).uniform(0.5, 2, 150)
    one = classifier(class_weight={0: 2, 1: 1, 2: 1}).fit(X, y, sample_weight=weight)
    other = classifier().fit(X, y, sample_weight=weight * np.where(y == 0, 2, 1))
    assert_same_tree(one.tree_, other.tree_)


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


# ---- what is left open --------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["constant", "linear"])
def test_open_settings_are_settled_on_held_out_rows(iris, diabetes, leaf):
    for Model, (X, y) in ((TAOTreeClassifier, iris), (TAOTreeRegressor, diabetes)):
        model = Model(leaf=leaf, max_iter=3, random_state=0).fit(X, y)
        losses = [trial.loss for trial in model.trials_]
        assert losses == sorted(losses)
        assert len({trial.settings for trial in model.trials_}) == len(losses) > 5
        best = model.trials_[0].settings
        assert (model.alpha_, model.split_, model.shrinkage_) == (
            best.alpha, best.split, best.shrinkage,
        )  # fmt: skip
        assert model.score(X, y) > 0.4
        again = Model(leaf=leaf, max_iter=3, random_state=0, n_jobs=2).fit(X, y)
        assert_same_tree(model.tree_, again.tree_)
        assert again.trials_ == model.trials_


def test_settings_at_hand_are_used_as_they_are(iris):
    X, y = iris
    model = classifier(shrinkage=2.0, split="mixed").fit(X, y)
    assert (model.alpha_, model.split_, model.shrinkage_) == (0.1, "mixed", 2.0)
    assert model.trials_ == []
    searched = TAOTreeClassifier(max_depth=2, shrinkage=1.0, max_iter=2, random_state=0).fit(X, y)
    assert {trial.settings.shrinkage for trial in searched.trials_} == {1.0}
    assert {trial.settings.depth for trial in searched.trials_} == {2}
    assert searched.get_depth() <= 2


def test_shrinkage_leans_leaves_to_the_mean(diabetes):
    X, y = diabetes
    spread = [np.std(regressor(shrinkage=s).fit(X, y).predict(X)) for s in (0.0, 10.0, 1000.0)]
    assert spread[0] > spread[1] > spread[2]


def test_ctrl_c_while_searching_ends_the_search(iris, monkeypatch):
    X, y = iris
    calls = []

    def optimise(*arguments, **options):
        calls.append(options["max_iter"])
        if len(calls) == 4:
            options["callback"] = interrupt
        return real(*arguments, **options)

    def interrupt(step):
        raise KeyboardInterrupt

    real = tao_base.optimise
    monkeypatch.setattr(tao_base, "optimise", optimise)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model = TAOTreeClassifier(max_iter=2, random_state=0).fit(X, y)
    assert len(calls) <= 6  # not the dozens that were to come
    assert model.score(X, y) > 0.8


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


# ---- units and storage --------------------------------------------------------------------------

CHANGES = {
    "times 1000": (1000.0, 0.0),
    "shifted": (1.0, -77.7),
    "thousandth and far off": (0.001, 40.0),
}


@SPLITS
@LEAVES
@pytest.mark.parametrize(
    ("init", "change"),
    [
        (init, change)
        for init in ("auto", "cart", "random", "given")
        for change in CHANGES
        # scikit-learn reads float32: its own tree changes far from zero.
        if (init, change) != ("given", "thousandth and far off")
    ],
)
def test_units_of_the_columns_do_not_matter(diabetes, iris, split, leaf, init, change):
    factor, shift = CHANGES[change]
    for Model, (X, y) in ((classifier, iris), (regressor, diabetes)):
        other = X.copy()
        other[:, 2] = factor * other[:, 2] + shift
        models = []
        for rows in (X, other):
            greedy = DecisionTreeRegressor(max_depth=3, random_state=0).fit(rows, y)
            start = greedy if init == "given" else init
            models.append(Model(split=split, leaf=leaf, init=start, max_iter=4).fit(rows, y))
        one, two = models
        assert (one.apply(X) == two.apply(other)).mean() == 1
        assert_allclose(one.predict(X), two.predict(other), rtol=1e-3)
        assert_allclose(one.feature_importances_, two.feature_importances_, atol=1e-3)
        assert_allclose(
            [step.objective for step in one.history_],
            [step.objective for step in two.history_],
            rtol=1e-3,
        )


def test_coefficients_are_in_the_units_of_the_user(iris):
    X, y = iris
    other = X * [1, 1000, 1, 1]
    one, two = classifier().fit(X, y).tree_, classifier().fit(other, y).tree_
    assert_allclose(
        two.coefficients.toarray() * [1, 1000, 1, 1], one.coefficients.toarray(), rtol=1e-3
    )
    model = classifier().fit(X, y)
    right = X @ one.coefficients.toarray()[0] >= one.threshold[0]
    assert_array_equal(model.decision_path(X).toarray()[:, one.right[0]], right)


def test_a_pixel_that_is_almost_always_zero_does_not_explode(iris):
    X, y = iris
    pixel = np.zeros(150)
    pixel[[3, 70]] = 255
    model = classifier().fit(np.column_stack([X, pixel]), y)
    assert model.feature_importances_[4] < 0.05
    assert model.score(np.column_stack([X, np.full(150, 0.0)]), y) > 0.9


def test_single_and_double_precision_are_about_as_good(digits, diabetes):
    X, X_test, y, y_test = digits
    scores = [
        classifier(max_depth=5, alpha=0.3)
        .fit(X.astype(dtype), y)
        .score(X_test.astype(dtype), y_test)
        for dtype in (np.float32, np.float64)
    ]
    assert min(scores) > 0.8
    assert abs(scores[0] - scores[1]) < 0.04
    X, y = diabetes
    scores = [
        regressor(leaf="linear").fit(X.astype(dtype), y).score(X, y)
        for dtype in (np.float32, np.float64)
    ]
    assert abs(scores[0] - scores[1]) < 0.05


@SPLITS
def test_sparse_and_dense_rows_are_about_as_good(digits, split):
    X, X_test, y, y_test = digits
    options = {"max_depth": 6, "alpha": 0.3, "split": split}
    full = classifier(**options).fit(X, y).score(X_test, y_test)
    scores = {}
    for name, kind in (("csr", sparse.csr_array), ("csc", sparse.csc_array)):
        model = classifier(**options).fit(kind(X), y)
        scores[name] = model.score(kind(X_test), y_test)
        assert scores[name] == model.score(X_test, y_test)
    assert scores["csr"] == scores["csc"]
    assert abs(full - scores["csr"]) < 0.06


@pytest.mark.parametrize("init", ["auto", "cart"])
@SPLITS
def test_long_indices_of_sparse_rows_are_read(iris, split, init):
    X, y = iris
    wide = sparse.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    one = classifier(split=split, init=init).fit(sparse.csr_array(X), y)
    other = classifier(split=split, init=init).fit(wide, y)
    assert_array_equal(one.predict(X), other.predict(wide))


def test_47000_sparse_columns_are_not_written_out():
    rng = np.random.default_rng(0)
    X = sparse.random_array((2000, 47_000), density=0.002, rng=rng, format="csr")
    topic = rng.integers(2, size=2000)
    words = sparse.csr_array((rng.random((2000, 40)) < 0.2) * np.where(topic, 1, 0)[:, None])
    X = sparse.csr_array(sparse.hstack([X[:, :-40], words.astype(float)]))
    tracemalloc.start()
    began = time.perf_counter()
    for split in ("oblique", "axis"):
        model = classifier(split=split, alpha=1.0, max_iter=3).fit(X, topic)
        assert model.score(X, topic) > (0.9 if split == "oblique" else 0.7)
        assert model.tree_.coefficients.nnz < 5000
    _, peak = tracemalloc.get_traced_memory()
    seconds = time.perf_counter() - began
    tracemalloc.stop()
    assert peak < 100e6  # written out: 752 MB
    assert seconds < 60


def test_fortran_order_and_integers_are_read(iris):
    X, y = iris
    whole = np.round(X * 10)
    one = classifier().fit(whole, y)
    for other in (np.asfortranarray(whole), whole.astype(np.int64), whole.astype(np.uint8)):
        assert_array_equal(classifier().fit(other, y).predict(other), one.predict(whole))
    assert_array_equal(one.predict(whole[::-1]), one.predict(whole)[::-1])


# ---- reading the tree ---------------------------------------------------------------------------


@SPLITS
@LEAVES
@DEVICES
def test_apply_decision_path_and_predict_agree(iris, split, leaf, device):
    X, y = iris
    model = classifier(split=split, leaf=leaf, device=device, max_iter=2, max_depth=3).fit(X, y)
    tree, node = model.tree_, model.apply(X)
    assert (tree.left[node] < 0).all()
    path = model.decision_path(X).toarray()
    assert path.shape == (150, tree.n_nodes)
    assert_array_equal(path[:, 0], 1)
    assert_array_equal(path[np.arange(150), node], 1)
    assert_array_equal(path.sum(axis=1), tree.node_depth[node] + 1)
    assert_array_equal(path[:, tree.leaf_nodes].sum(axis=1), 1)
    assert_array_equal(path.sum(axis=0), tree.weight)
    if leaf == "constant":
        assert_array_equal(model.predict(X), tree.values[tree.leaf_index[node]].argmax(axis=1))


def test_size_of_a_tiny_tree_by_hand():
    X = np.array([[0.0, 5], [1, 4], [2, 3], [3, 2], [4, 1], [5, 0]] * 4)
    y = np.array([0, 0, 0, 1, 1, 1] * 4)
    model = classifier(split="axis", max_depth=4, alpha=0.1).fit(X, y)
    assert (model.get_depth(), model.get_n_leaves()) == (1, 2)
    assert model.n_parameters_ == 2 + 2  # a feature and a threshold, two labels
    t = np.where(y == 1, 10.0, 4.0)
    for leaf, size in (("constant", 2 + 2), ("linear", None)):
        model = regressor(split="axis", leaf=leaf, max_depth=1, alpha=0.01).fit(X, t)
        assert (model.get_depth(), model.get_n_leaves()) == (1, 2)
        if size:
            assert model.n_parameters_ == size
            assert_allclose(np.unique(model.predict(X)), [4, 10], rtol=1e-6)


def test_parameters_of_several_targets_count_a_label_each(iris):
    X, y = iris
    model = classifier(loss="squared").fit(X, np.stack([y, y % 2], axis=1))
    decisions = model.get_n_leaves() - 1
    assert model.n_parameters_ == (
        model.tree_.coefficients.nnz + decisions + 2 * model.get_n_leaves()
    )


@SPLITS
@pytest.mark.parametrize("Model", [classifier, regressor])
def test_importances_find_the_only_informative_column(Model, split):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5)) * [1, 100, 1, 0.01, 1]
    y = X[:, 3] > 0.002
    model = Model(split=split, max_depth=2).fit(X, y.astype(float))
    assert_allclose(model.feature_importances_.sum(), 1)
    assert (model.feature_importances_ >= 0).all()
    assert model.feature_importances_.argmax() == 3
    assert model.feature_importances_[3] > 0.7


def test_a_single_leaf_has_no_importances():
    X = np.random.default_rng(0).normal(size=(30, 3))
    for model in (
        classifier(max_depth=0).fit(X, X[:, 0] > 0),
        regressor(alpha=1e6).fit(X, X[:, 0]),
    ):
        assert model.get_n_leaves() == 1
        assert model.get_depth() == 0
        assert_array_equal(model.feature_importances_, 0)
        assert_array_equal(model.apply(X), 0)


# ---- as an estimator ----------------------------------------------------------------------------


@SPLITS
@LEAVES
@pytest.mark.parametrize("Model", [classifier, regressor])
def test_pickled_models_answer_alike(iris, Model, split, leaf):
    X, y = iris
    model = Model(split=split, leaf=leaf).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X), model.predict(X))
    assert_same_tree(again.tree_, model.tree_)
    assert again.history_ == model.history_
    again.set_params(warm_start=True).fit(X, y)  # and can go on


def test_clones_are_unfitted_and_equal(iris):
    X, y = iris
    model = classifier(class_weight={0: 2}, alpha=0.3).fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "tree_")
    assert_same_tree(copy.fit(X, y).tree_, model.tree_)
    started = clone(classifier(init=model.tree_))
    assert started.fit(X, y).score(X, y) > 0.9


def test_fit_does_not_touch_its_arguments(iris):
    X, y = iris
    weight = np.arange(150.0)
    kept = X.copy(), y.copy(), weight.copy()
    classifier().fit(X, y, sample_weight=weight)
    for one, other in zip(kept, (X, y, weight), strict=True):
        assert_array_equal(one, other)
    X = X.copy()
    X.flags.writeable = False
    classifier().fit(X, y).predict(X)
    matrix = sparse.csr_array(X)
    before = matrix.copy()
    classifier().fit(matrix, y)
    assert_array_equal(matrix.data, before.data)


def test_it_works_in_pipelines_and_searches():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:300], y[:300]
    assert cross_val_score(classifier(), X, y, cv=3).mean() > 0.9
    assert make_pipeline(StandardScaler(), classifier()).fit(X, y).score(X, y) > 0.93
    search = GridSearchCV(classifier(max_iter=2), {"alpha": [0.01, 1.0]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.85


def test_fitted_attributes(iris):
    X, y = iris
    model = classifier().fit(X, y)
    assert isinstance(model.tree_, Tree)
    assert model.n_features_in_ == 4
    assert not hasattr(model, "feature_names_in_")
    assert model.n_classes_ == 3
    assert model.n_outputs_ == 1
    frame = pd.DataFrame(X, columns=list("abcd"))
    model.fit(frame, y)
    assert_array_equal(model.feature_names_in_, list("abcd"))
    assert "a" in export_text(model) or "c" in export_text(model)


# ---- frames -------------------------------------------------------------------------------------


def flowers(Frame, n=300, seed=0):
    """A frame with a category, gaps in both kinds of columns, and a target that needs both."""
    rng = np.random.default_rng(seed)
    colour = rng.choice(["red", "green", "blue"], n)
    size = rng.normal(size=n)
    tall = rng.random(n) < 0.5
    price = 2.0 * (colour == "red") + (size > 0) + rng.normal(size=n) * 0.1
    gaps, lost = rng.random(n) < 0.1, rng.random(n) < 0.1
    data = {
        "colour": [None if g else c for g, c in zip(lost, colour.tolist(), strict=True)],
        "size": [None if g else v for g, v in zip(gaps, size.tolist(), strict=True)],
        "tall": tall.tolist(),
        "noise": rng.normal(size=n).tolist(),
    }
    return Frame(data), price, (price > 1.5).astype(int)


@pytest.mark.parametrize("Frame", [pd.DataFrame, pl.DataFrame])
@SPLITS
@LEAVES
def test_frames_with_categories_and_gaps(Frame, split, leaf):
    X, price, dear = flowers(Frame)
    model = classifier(split=split, leaf=leaf).fit(X, np.where(dear, "dear", "cheap"))
    assert model.score(X, np.where(dear, "dear", "cheap")) > 0.85
    assert np.isfinite(model.predict_proba(X)).all()
    assert "colour" in export_text(model)
    assert_array_equal(model.feature_names_in_, ["colour", "size", "tall", "noise"])
    assert model.feature_importances_.shape == (4,)
    assert_allclose(model.feature_importances_.sum(), 1)
    assert model.feature_importances_[:2].sum() > 0.7
    valued = regressor(split=split, leaf=leaf).fit(X, price)
    assert valued.score(X, price) > 0.6
    fresh, *_ = flowers(Frame, 50, seed=1)
    assert np.isfinite(valued.predict(fresh)).all()
    assert set(model.predict(fresh)) <= {"dear", "cheap"}


def test_pandas_and_polars_give_the_same_tree():
    X, _, dear = flowers(pd.DataFrame)
    other, *_ = flowers(pl.DataFrame)
    assert_same_tree(classifier().fit(X, dear).tree_, classifier().fit(other, dear).tree_)


def test_unseen_levels_and_new_gaps_are_answered():
    X, _, dear = flowers(pd.DataFrame)
    model = classifier().fit(X.assign(noise=1.0), dear)
    fresh = X.head(5).assign(colour="violet", noise=np.nan)
    assert model.predict(fresh).shape == (5,)


def test_pandas_categories_and_series_are_read():
    X, price, dear = flowers(pd.DataFrame)
    as_category = X.assign(colour=X["colour"].astype("category"))
    one = classifier().fit(X, pd.Series(dear))
    other = classifier().fit(as_category, dear)
    assert accuracy_score(one.predict(X), other.predict(as_category)) == 1
    assert regressor().fit(X, pd.Series(price)).predict(X).shape == (300,)
    assert classifier().fit(X, pl.Series(dear)).score(X, dear) > 0.85


def test_missing_numbers_in_an_array(iris):
    X, y = iris
    X = X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    for leaf in ("constant", "linear"):
        model = classifier(leaf=leaf).fit(X, y)
        assert model.score(X, y) > 0.85
        assert np.isfinite(model.predict_proba(np.full((2, 4), np.nan))).all()


def test_missing_values_that_mean_something_are_used():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = rng.random(300) < 0.5
    X[y, 1] = np.nan
    model = classifier().fit(X, y)
    assert model.score(X, y) == 1
    assert "is missing" in export_text(model)


def test_more_rows_than_a_piece_of_work():
    X, y = make_classification(9000, 12, n_informative=8, n_classes=3, random_state=0)
    model = classifier(max_depth=5, alpha=1.0, max_iter=4).fit(X, y)
    half = classifier(max_depth=5, alpha=1.0, max_iter=4).fit(X.astype(np.float32), y)
    assert model.score(X, y) > 0.75
    assert abs(model.score(X, y) - half.score(X.astype(np.float32), y)) < 0.03


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse"])
def test_equal_rows_share_a_number_and_different_rows_do_not(kind):
    X = np.random.default_rng(0).integers(0, 2, size=(3000, 16)).astype(np.float64)
    rows = {"dense": X, "float32": X.astype(np.float32), "sparse": sparse.csr_array(X)}[kind]
    groups = row_groups(rows, seed=0)
    distinct, member = np.unique(X, axis=0, return_inverse=True)
    assert len(np.unique(groups)) == len(distinct)
    assert len(np.unique(np.column_stack([groups, member.ravel().astype(np.uint64)]), axis=0)) == (
        len(distinct)
    )
