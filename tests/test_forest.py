"""Forests of TAO trees: what the bags hold, and what a user may rely on."""

import pickle
import signal
import threading

import numpy as np
import pandas as pd
import pytest
from conftest import assert_same_tree, make_tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import kstest
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import accuracy_score, r2_score, zero_one_loss
from sklearn.model_selection import train_test_split
from sklearn.utils import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import TAOForestClassifier, TAOForestRegressor, TAOTreeClassifier, TAOTreeRegressor
from silva.bagging import Bagging, out_of_bag_mean, widen
from silva.estimators.bags import Bags
from silva.estimators.tao_base import TAOTree
from silva.tree import answer

PLAIN = {
    "n_estimators": 6, "split": "oblique", "max_depth": 3, "max_iter": 3, "random_state": 0,
}  # fmt: skip
LEAVES = pytest.mark.parametrize("leaf", ["constant", "linear"])


def classifier(**parameters):
    return TAOForestClassifier(**{**PLAIN, **parameters})


def regressor(**parameters):
    return TAOForestRegressor(**{**PLAIN, **parameters})


FORESTS = pytest.mark.parametrize("make", [classifier, regressor])


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


def data_for(make):
    return load_iris(return_X_y=True) if make is classifier else load_diabetes(return_X_y=True)


def assert_same_forest(one, other):
    assert len(one.trees_) == len(other.trees_)
    for a, b in zip(one.trees_, other.trees_, strict=True):
        assert_same_tree(a, b)
    assert_array_equal(one.feature_importances_, other.feature_importances_)
    assert one.flops_ == other.flops_


# ---- scikit-learn's checks ----------------------------------------------------------------------

CHECKED = [
    TAOForestClassifier(n_estimators=10, max_iter=3),
    TAOForestClassifier(
        n_estimators=3, max_iter=3, bootstrap=False, leaf="linear", max_features="sqrt", n_jobs=2
    ),
    TAOForestRegressor(n_estimators=10, max_iter=3, split="oblique"),
    TAOForestRegressor(n_estimators=3, max_iter=3, bootstrap=False, missing="error"),
    TAOForestRegressor(n_estimators=3, max_iter=3, bootstrap="bayesian"),
]


def expected_failures(estimator):
    """Return the checks that weights stand for repeated rows: bags are drawn from rows."""
    if not estimator.bootstrap:
        return {}
    reason = "a row that stands twice is drawn twice as often, a weight does not change the bags"
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failures)
def test_sklearn_check(estimator, check):
    check(estimator)


# ---- it learns ----------------------------------------------------------------------------------


def test_an_untuned_forest_reads_digits_better_than_a_random_forest_and_a_tree():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
    ours = TAOForestClassifier(n_estimators=20, random_state=0).fit(X, y).score(X_test, y_test)
    greedy = RandomForestClassifier(n_estimators=20, random_state=0).fit(X, y)
    tree = TAOTreeClassifier(alpha=0.1, random_state=0).fit(X, y)
    assert ours > greedy.score(X_test, y_test)
    assert ours > tree.score(X_test, y_test) + 0.03


def test_an_untuned_forest_fits_slanted_targets_better_than_a_random_forest():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 8))
    y = np.sin(X[:, :4].sum(axis=1)) + X[:, 4:].sum(axis=1) + rng.normal(size=1000) / 4
    ours = TAOForestRegressor(n_estimators=20, random_state=0).fit(X[:600], y[:600])
    greedy = RandomForestRegressor(n_estimators=20, random_state=0).fit(X[:600], y[:600])
    assert ours.score(X[600:], y[600:]) > greedy.score(X[600:], y[600:]) + 0.05


@FORESTS
@LEAVES
@pytest.mark.parametrize("split", ["oblique", "mixed", "axis"])
def test_every_kind_of_tree_makes_a_forest(make, leaf, split):
    X, y = data_for(make)
    least = 0.93 if make is classifier else 0.45
    assert make(leaf=leaf, split=split).fit(X, y).score(X, y) > least


def test_both_tables_grow_forests_that_answer_alike(iris):
    X, y = iris
    one, other = (
        classifier(n_estimators=3, alpha=0.1, device=device).fit(X, y)
        for device in ("cpu", "reference")
    )
    assert np.mean(one.predict(X) == other.predict(X)) > 0.97


# ---- bags ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_samples", "draws"), [(None, 150), (40, 40), (0.5, 75), (1e-9, 1)])
def test_counts_of_a_bag_sum_to_max_samples(iris, max_samples, draws):
    model = classifier(max_samples=max_samples, max_depth=1).fit(*iris)
    assert [len(rows) for rows in model.estimators_samples_] == [draws] * 6
    assert [tree.weight[0] for tree in model.trees_] == [draws] * 6


def test_rows_are_drawn_uniformly():
    bagging = Bagging(0, 20, 20, np.arange(3), 3)
    counts = np.zeros(20)
    for number in range(2000):
        bag = bagging.bag(number)
        counts[bag.rows] += bag.counts
    expected = 2000
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < 43.8  # the 99.9 % quantile for 19 degrees of freedom


def test_the_bayesian_bootstrap_weighs_all_rows_exponentially():
    bagging = Bagging(0, 20, None, np.arange(3), 3, weighed=True)
    bags = [bagging.bag(number) for number in range(500)]
    assert all(len(bag.rows) == 20 for bag in bags)
    weights = np.concatenate([bag.counts for bag in bags])
    assert kstest(weights, "expon").pvalue > 0.01


def test_a_tree_under_random_weights_is_the_single_tree_under_them(iris):
    X, y = iris
    settings = {"max_depth": 3, "alpha": 0.05, "split": "oblique", "loss": "squared"}
    model = classifier(bootstrap="bayesian", **settings).fit(X, y)
    assert_array_equal(model.estimators_samples_[0], np.arange(len(y)))
    for number in (0, 5):
        bag = model._bags.bag(number)
        tree = TAOTreeClassifier(max_iter=3, random_state=bag.seed, **settings)
        assert_same_tree(model.trees_[number], tree.fit(X, y, bag.counts).tree_)


def test_random_weights_leave_a_rare_row_in_every_tree():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(size=60) / 10
    X[0], y[0] = 20, -100
    settings = {"max_depth": 1, "leaf": "linear", "init": "cart", "split": "oblique"}
    drawn, weighed = (
        regressor(bootstrap=bootstrap, **settings).fit(X, y).predict(X[:1])[0]
        for bootstrap in (True, "bayesian")
    )
    assert weighed < -85
    assert drawn > weighed + 15


def test_columns_of_a_group_are_taken_together():
    bagging = Bagging(0, 5, 5, np.array([0, 0, 1, 2, 2]), 2)
    seen = {tuple(bagging.bag(number).columns) for number in range(50)}
    assert seen == {(0, 1, 2), (0, 1, 3, 4), (2, 3, 4)}


@FORESTS
@LEAVES
@pytest.mark.parametrize("table", ["dense", "sparse"])
def test_coefficients_vanish_outside_the_features_of_a_tree(make, leaf, table):
    X, y = data_for(make)
    X = sparse.csr_array(X) if table == "sparse" else X
    model = make(leaf=leaf, max_features=2).fit(X, y)
    assert len({tuple(columns) for columns in model.estimators_features_}) > 1
    for tree, columns in zip(model.trees_, model.estimators_features_, strict=True):
        assert len(columns) == 2
        assert np.isin(tree.coefficients.indices, columns).all()
        assert tree.n_features == X.shape[1]
        if leaf == "linear":
            others = np.setdiff1d(np.arange(X.shape[1]), columns)
            assert not tree.slopes[:, :, others].any()


@pytest.mark.parametrize("linear", [False, True])
def test_a_widened_tree_answers_as_the_narrow_one(linear):
    rng = np.random.default_rng(0)
    narrow = make_tree(rng, 8, 3, linear=linear)
    columns = np.array([1, 4, 6])
    X = rng.normal(size=(50, 7))
    wide = widen(narrow, columns, 7)
    leaf = rng.integers(0, 8, 50)
    assert_allclose(answer(wide, leaf, X), answer(narrow, leaf, X[:, columns]))
    assert_allclose(wide.coefficients @ X.T, narrow.coefficients @ X[:, columns].T)


@pytest.mark.parametrize(
    ("max_features", "expected"),
    [("auto", 30), (None, 30), ("sqrt", 5), ("log2", 4), (7, 7), (0.5, 15), (1.0, 30), (1e-6, 1)],
)
def test_max_features_counts_columns_as_scikit_learn_does(max_features, expected):
    X, y = load_breast_cancer(return_X_y=True)
    model = classifier(n_estimators=1, max_depth=1, max_features=max_features).fit(X, y)
    assert model.max_features_ == expected
    assert len(model.estimators_features_[0]) == expected


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_features": "half"}, "max_features must be one of"),
        ({"max_features": 5}, "max_features=5 must not exceed the 4 columns"),
        ({"max_features": 1.5}, "max_features as a share must be above 0 and at most 1"),
        ({"max_features": 0}, "max_features must be at least 1"),
        ({"max_samples": 151}, "max_samples=151 must not exceed the 150 rows"),
        ({"max_samples": 0.0}, "max_samples as a share"),
        ({"max_samples": 3, "bootstrap": False}, "max_samples must be None"),
        ({"max_samples": 3, "bootstrap": "bayesian"}, "where bootstrap='bayesian', got 3"),
        ({"oob_score": True, "bootstrap": False}, "oob_score needs bootstrap=True"),
        ({"oob_score": True, "bootstrap": "bayesian"}, "oob_score needs bootstrap=True"),
        ({"n_estimators": 0}, "n_estimators must be at least 1"),
        ({"alpha": -1.0}, "alpha must be finite and at least 0"),
    ],
)
def test_wrong_parameters_are_named(iris, parameters, message):
    with pytest.raises(ValueError, match=message):
        classifier(**parameters).fit(*iris)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bootstrap": 1}, "bootstrap must be True, False or 'bayesian', got 1"),
        ({"bootstrap": "bayes"}, "bootstrap must be True, False or 'bayesian', got 'bayes'"),
        ({"oob_score": "yes"}, "oob_score must be True or False"),
        ({"max_features": [1]}, "max_features must be a number"),
        ({"init": TAOTreeClassifier()}, "init must name a way"),
    ],
)
def test_parameters_of_a_wrong_type_are_named(iris, parameters, message):
    with pytest.raises(TypeError, match=message):
        classifier(**parameters).fit(*iris)


# ---- one tree is the single tree ----------------------------------------------------------------


@LEAVES
@pytest.mark.parametrize(
    ("make", "single"), [(classifier, TAOTreeClassifier), (regressor, TAOTreeRegressor)]
)
def test_one_tree_without_a_bag_is_the_single_tree(make, single, leaf):
    X, y = data_for(make)
    settings = {"max_depth": 3, "alpha": 0.05, "split": "oblique", "leaf": leaf, "max_iter": 5}
    if make is classifier:
        settings["loss"] = "squared"
    model = make(n_estimators=1, bootstrap=False, **settings).fit(X, y)
    tree = single(**settings, random_state=model._bags.bag(0).seed).fit(X, y)
    assert_same_tree(model.trees_[0], tree.tree_)
    assert_array_equal(model.predict(X), tree.predict(X))
    assert_allclose(model.feature_importances_, tree.feature_importances_)


def test_a_tree_of_the_forest_is_the_single_tree_on_its_bag(iris):
    X, y = iris
    settings = {"max_depth": 3, "alpha": 0.05, "split": "oblique", "loss": "squared"}
    model = classifier(max_features=3, **settings).fit(X, y)
    for number in (0, 5):
        bag = model._bags.bag(number)
        weight = np.bincount(model.estimators_samples_[number], minlength=len(y))
        tree = TAOTreeClassifier(max_iter=3, random_state=bag.seed, **settings)
        tree.fit(X[:, bag.columns], y, weight)
        assert_same_tree(model.trees_[number], widen(tree.tree_, bag.columns, X.shape[1]))


# ---- an open split ------------------------------------------------------------------------------


def boxes(n):
    """Rows that only single features tell apart: a hyperplane has no use for skewed columns."""
    rng = np.random.default_rng(0)
    X = np.exp(2 * rng.normal(size=(n, 4)))
    return X, (X[:, 0] > 1).astype(int) + (X[:, 1] > 2)


def slopes(n):
    """Rows that only a hyperplane through all columns tells apart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    return X, (X.sum(axis=1) > 0).astype(int)


@pytest.mark.parametrize(("make_rows", "better"), [(boxes, "mixed"), (slopes, "oblique")])
def test_an_open_split_is_the_one_with_the_lower_out_of_bag_error(make_rows, better):
    X, y = make_rows(300)
    settings = {"oob_score": zero_one_loss, "max_samples": 0.4, "n_estimators": 10}
    each = {split: classifier(split=split, **settings).fit(X, y) for split in ("oblique", "mixed")}
    assert min(each, key=lambda split: each[split].oob_score_) == better
    model = classifier(**{**settings, "split": "auto", "n_estimators": 12}).fit(X, y)
    assert model.split_ == better
    assert len(model.trees_) == 12
    for mine, theirs in zip(model.trees_, each[better].trees_, strict=False):
        assert_same_tree(mine, theirs)
    losses = [trial.loss for trial in model.trials_]
    assert losses == sorted(losses)
    assert model.trials_[0].settings.split == better


def test_an_open_split_does_not_depend_on_the_number_of_trees(diabetes):
    X, y = diabetes
    grown = regressor(n_estimators=4, split="auto", warm_start=True).fit(X, y)
    assert len(grown.trees_) == 4
    at_once = regressor(n_estimators=13, split="auto").fit(X, y)
    assert_same_forest(grown.set_params(n_estimators=13).fit(X, y), at_once)


# ---- the same forest ----------------------------------------------------------------------------


@FORESTS
def test_the_forest_is_the_same_for_any_number_of_threads(make):
    X, y = data_for(make)
    settings = {"n_estimators": 9, "max_features": 0.7, "oob_score": True, "max_samples": 0.3}
    one = make(**settings, n_jobs=1).fit(X, y)
    four = make(**settings, n_jobs=4).fit(X, y)
    assert_same_forest(one, four)
    assert one.oob_score_ == four.oob_score_
    assert_array_equal(one.predict(X), four.predict(X))


@FORESTS
def test_warm_start_gives_exactly_the_forest_trained_at_once(make):
    X, y = data_for(make)
    settings = {"max_features": 0.7, "oob_score": True, "max_samples": 0.2}
    grown = make(n_estimators=10, warm_start=True, **settings).fit(X, y)
    first = list(grown.trees_)
    grown.set_params(n_estimators=30).fit(X, y)
    at_once = make(n_estimators=30, **settings).fit(X, y)
    assert all(a is b for a, b in zip(first, grown.trees_, strict=False))
    assert_same_forest(grown, at_once)
    assert grown.oob_score_ == at_once.oob_score_


def test_warm_start_with_an_unseeded_forest_goes_on_with_other_bags(iris):
    model = classifier(n_estimators=2, warm_start=True, random_state=None).fit(*iris)
    model.set_params(n_estimators=4).fit(*iris)
    assert len({tuple(rows) for rows in model.estimators_samples_}) == 4


def test_warm_start_refuses_what_does_not_fit(iris):
    X, y = iris
    model = classifier(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="n_estimators=3 must not be less than the 6"):
        model.set_params(n_estimators=3).fit(X, y)
    model.set_params(n_estimators=8)
    with pytest.raises(ValueError, match="same columns and targets"):
        model.fit(X[:, :2], y)
    with pytest.raises(ValueError, match="same columns and targets"):
        model.fit(X, y + 1)
    with pytest.warns(UserWarning, match="none is added"):
        model.set_params(n_estimators=6).fit(X, y)
    assert len(model.trees_) == 6


def test_forests_of_other_seeds_differ(iris):
    one, other = (classifier(random_state=seed).fit(*iris) for seed in (0, 1))
    assert not np.array_equal(one.estimators_samples_[0], other.estimators_samples_[0])


def test_a_pickled_forest_answers_the_same(iris):
    X, y = iris
    model = classifier(n_estimators=25, oob_score=True).fit(X, y)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


# ---- out of bag ---------------------------------------------------------------------------------


def by_hand(model, X, answers):
    """Mean of single trees' answers to the rows that are not in their bags."""
    result = []
    for row in range(len(X)):
        unseen = [
            tree_answers[row]
            for tree_answers, rows in zip(answers, model.estimators_samples_, strict=True)
            if row not in rows
        ]
        result.append(np.mean(unseen, axis=0))
    return np.array(result)


def answers_by_route(model, X):
    leaves = model.apply(X)
    return [
        answer(tree, tree.leaf_index[nodes], X)
        for tree, nodes in zip(model.trees_, leaves.T, strict=True)
    ]


def test_out_of_bag_probabilities_come_from_trees_that_did_not_see_the_row(iris):
    X, y = iris
    model = classifier(n_estimators=25, oob_score=True).fit(X, y)
    expected = by_hand(model, X, answers_by_route(model, X))
    assert_allclose(model.oob_decision_function_, expected)
    assert model.oob_score_ == accuracy_score(y, expected.argmax(axis=1))


def test_out_of_bag_predictions_come_from_trees_that_did_not_see_the_row(diabetes):
    X, y = diabetes
    model = regressor(n_estimators=25, oob_score=True).fit(X, y)
    expected = by_hand(model, X, answers_by_route(model, X))[:, 0]
    assert_allclose(model.oob_prediction_, expected)
    assert model.oob_score_ == pytest.approx(r2_score(y, expected))


def test_the_out_of_bag_score_of_noise_is_that_of_guessing():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 5)), rng.integers(0, 2, 400)
    model = TAOForestClassifier(n_estimators=20, oob_score=True, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8
    assert abs(model.oob_score_ - 0.5) < 0.08


def test_rows_that_every_tree_saw_are_told_and_left_out_of_the_score(iris):
    X, y = iris
    with pytest.warns(UserWarning, match="have no out-of-bag answer"):
        model = classifier(n_estimators=2, oob_score=True).fit(X, y)
    seen = np.isin(np.arange(150), np.intersect1d(*model.estimators_samples_))
    assert_array_equal(np.isnan(model.oob_decision_function_).all(axis=1), seen)
    guess = model.oob_decision_function_[~seen].argmax(axis=1)
    assert model.oob_score_ == accuracy_score(y[~seen], guess)


def test_without_any_answer_out_of_bag_the_score_is_nan():
    with pytest.warns(UserWarning, match="1 of 1 rows"):
        model = regressor(oob_score=True).fit([[0.0, 1.0]], [3.0])
    assert np.isnan(model.oob_score_)
    assert_array_equal(model.predict([[0.0, 1.0]]), [3.0])


def test_out_of_bag_score_may_be_measured_otherwise(iris):
    one = classifier(n_estimators=25, oob_score=True).fit(*iris)
    other = classifier(n_estimators=25, oob_score=zero_one_loss).fit(*iris)
    assert other.oob_score_ == pytest.approx(1 - one.oob_score_)


def test_out_of_bag_mean_is_nan_without_votes():
    answers = [(np.array([0, 2]), np.array([[1.0], [4.0]])), (np.array([0]), np.array([[3.0]]))]
    mean, votes = out_of_bag_mean(answers, 3, 1)
    assert_array_equal(mean, [[2.0], [np.nan], [4.0]])
    assert_array_equal(votes, [2, 0, 1])


# ---- weights ------------------------------------------------------------------------------------


@FORESTS
def test_rows_without_weight_count_as_absent(make):
    X, y = data_for(make)
    weight = np.ones(len(y))
    weight[::3] = 0
    part = make(oob_score=True, n_estimators=25).fit(X[weight > 0], y[weight > 0])
    whole = make(oob_score=True, n_estimators=25).fit(X, y, weight)
    assert_same_forest(part, whole)
    assert part.oob_score_ == pytest.approx(whole.oob_score_)
    assert not np.isin(np.concatenate(whole.estimators_samples_), np.arange(0, len(y), 3)).any()


def test_class_weights_are_weights_of_the_rows(iris):
    X, y = iris[0][:90], iris[1][:90]
    balanced = classifier(class_weight="balanced").fit(X, y)
    weighted = classifier().fit(X, y, compute_sample_weight("balanced", y))
    assert_same_forest(balanced, weighted)
    assert [tree.weight[0] for tree in balanced.trees_] != [90.0] * 6


# ---- answers ------------------------------------------------------------------------------------


@LEAVES
def test_probabilities_are_the_mean_of_the_trees_and_sum_to_one(iris, leaf):
    X, y = iris
    model = classifier(leaf=leaf).fit(X, y)
    probability = model.predict_proba(X)
    assert_allclose(probability.sum(axis=1), 1)
    assert (probability >= 0).all()
    if leaf == "constant":
        assert_allclose(probability, np.mean(answers_by_route(model, X), axis=0))
    assert_array_equal(model.predict(X), model.classes_[probability.argmax(axis=1)])
    with np.errstate(divide="ignore"):
        assert_array_equal(model.predict_log_proba(X), np.log(probability))


def test_predictions_are_the_mean_of_the_trees(diabetes):
    X, y = diabetes
    model = regressor().fit(X, y)
    assert_allclose(model.predict(X), np.mean(answers_by_route(model, X), axis=0)[:, 0])


@FORESTS
def test_a_sparse_table_gives_the_same_forest_as_its_bytes(make):
    # Columns of 0 and 1 are scaled alike in both storages.
    rng = np.random.default_rng(0)
    X = (rng.random((300, 12)) < 0.4).astype(float)
    score = X[:, 0] + X[:, 1] - X[:, 2]
    y = (score > 0.5).astype(int) if make is classifier else score
    dense = make(split="axis", max_features=8).fit(X, y)
    thin = make(split="axis", max_features=8).fit(sparse.csr_array(X), y)
    assert_allclose(thin.predict(X), dense.predict(X), rtol=1e-5)
    assert_allclose(thin.predict(sparse.csr_array(X)), thin.predict(X))


def test_wide_sparse_rows_stay_sparse():
    rng = np.random.default_rng(0)
    X = sparse.random_array((300, 200_000), density=1e-4, rng=rng, format="csr")
    y = rng.integers(0, 2, 300)
    model = classifier(n_estimators=3, max_features=0.5, oob_score=lambda *_: 0.0)
    with pytest.warns(UserWarning, match="out-of-bag"):
        model.fit(X, y)  # dense it would take half a gigabyte for every copy
    assert model.predict_proba(X).shape == (300, 2)


def test_frames_with_categories_missing_values_and_string_labels():
    rng = np.random.default_rng(0)
    colour = rng.choice(["red", "green", "blue"], 400)
    size = rng.normal(size=400)
    y = np.where((colour == "red") ^ (size > 0), "yes", "no")
    frame = pd.DataFrame({"colour": colour, "size": size, "noise": rng.normal(size=400)})
    frame.loc[::11, "noise"] = np.nan
    model = TAOForestClassifier(
        n_estimators=25, max_features=2, oob_score=True, random_state=0
    ).fit(frame, y)
    assert list(model.classes_) == ["no", "yes"]
    assert list(model.feature_names_in_) == ["colour", "size", "noise"]
    assert model.feature_importances_.shape == (3,)
    assert set(model.predict(frame)) == {"no", "yes"}
    whole = clone(model).set_params(max_features=None).fit(frame, y)
    assert whole.oob_score_ > 0.95
    assert whole.feature_importances_[2] < 0.2
    assert len(whole.columns_.names) > 3


@LEAVES
def test_several_outputs(leaf):
    X, y = load_iris(return_X_y=True)
    labels = np.stack([y, y > 0], axis=1)
    model = classifier(leaf=leaf, n_estimators=25, oob_score=True).fit(X, labels)
    assert model.predict(X).shape == (150, 2)
    assert [part.shape for part in model.predict_proba(X)] == [(150, 3), (150, 2)]
    assert [part.shape for part in model.oob_decision_function_] == [(150, 3), (150, 2)]
    assert model.oob_score_ > 0.9
    X, y = load_diabetes(return_X_y=True)
    model = regressor(leaf=leaf, n_estimators=25, oob_score=True).fit(X, np.stack([y, -y], axis=1))
    assert_allclose(model.predict(X)[:, 0], -model.predict(X)[:, 1])
    assert model.oob_prediction_.shape == (len(y), 2)


def test_targets_that_are_all_alike_need_no_decision():
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = TAOForestRegressor(n_estimators=3, random_state=0).fit(X, np.full(50, 2.0))
    assert [tree.n_nodes for tree in model.trees_] == [1, 1, 1]
    assert_array_equal(model.predict(X), np.full(50, 2.0))
    assert_array_equal(model.feature_importances_, np.zeros(3))


@FORESTS
def test_paths_lead_to_the_leaves(make):
    X, y = data_for(make)
    model = make().fit(X, y)
    path, begin = model.decision_path(X)
    assert path.shape == (len(y), begin[-1])
    leaves = model.apply(X)
    for number, tree in enumerate(model.trees_):
        part = path[:, begin[number] : begin[number + 1]].toarray()
        assert (part[np.arange(len(y)), leaves[:, number]] == 1).all()
        assert (part[:, 0] == 1).all()
        assert_array_equal(part.sum(axis=1), tree.node_depth[leaves[:, number]] + 1)


def test_size_and_cost_of_a_forest_of_stumps(iris):
    model = classifier(n_estimators=4, max_depth=1, split="axis", init="cart").fit(*iris)
    assert all(tree.n_nodes == 3 for tree in model.trees_)
    assert model.n_parameters_ == 4 * (2 + 1 + 1)
    assert model.flops_ == 4 * (2 + 1)


# ---- interrupted --------------------------------------------------------------------------------


def interrupt_at(monkeypatch, call):
    """Press Ctrl-C while a tree is fitted, the `call`-th of all.

    That tree and the next ones take their time, so that the main thread gets to hear of it before
    the other workers have fitted all.
    """
    fit_one, calls = TAOTree._fit_one, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        if call <= len(calls) < call + 6:
            threading.Event().wait(0.2)
        return fit_one(self, *arguments)

    monkeypatch.setattr(TAOTree, "_fit_one", interrupted)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_keeps_the_trees_so_far(iris, monkeypatch, n_jobs):
    X, y = iris
    whole = classifier(n_estimators=12).fit(X, y)
    interrupt_at(monkeypatch, 5)
    model = classifier(n_estimators=12, n_jobs=n_jobs, warm_start=True)
    with pytest.warns(RuntimeWarning, match="of 12 trees: they are kept"):
        model.fit(X, y)
    assert 1 <= len(model.trees_) < 12
    for mine, theirs in zip(model.trees_, whole.trees_, strict=False):
        assert_same_tree(mine, theirs)
    assert_same_forest(model.fit(X, y), whole)


def test_ctrl_c_while_a_split_is_chosen_keeps_the_one_that_was_tried(iris, monkeypatch):
    interrupt_at(monkeypatch, 14)
    model = classifier(n_estimators=12, split="auto")
    with pytest.warns(RuntimeWarning, match="after 10 of 12 trees"):
        model.fit(*iris)
    assert model.split_ == "oblique"
    assert len(model.trees_) == 10


@pytest.mark.parametrize("split", ["auto", "oblique"])
def test_ctrl_c_before_the_first_tree_is_not_swallowed(iris, monkeypatch, split):
    def interrupted(self, *arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Bags, "_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        classifier(split=split).fit(*iris)


def test_progress_is_a_line_per_tree(iris, capsys):
    classifier(verbose=1, n_estimators=3).fit(*iris)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"[forest] tree {number}: oblique" for number in (1, 2, 3)]


def test_forests_are_what_they_say():
    assert is_classifier(TAOForestClassifier())
    assert not is_classifier(TAOForestRegressor())
