"""What the bags of forests hold, and what is said out of bag."""

import numpy as np
import pytest
from conftest import assert_same_tree, make_tree
from forest_models import FORESTS, LEAVES, answers_by_route, classifier, data_for, regressor
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import kstest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score, r2_score, zero_one_loss

from silva import TAOForestClassifier, TAOTreeClassifier, TAOTreeRegressor
from silva.bagging import Bagging, out_of_bag_mean, widen
from silva.tree import answer

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
