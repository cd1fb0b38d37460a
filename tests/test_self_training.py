"""Self-training for numbers."""

import numpy as np
import pandas as pd
import pytest
from conftest import hide
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from silva import TAOTreeRegressor
from silva.estimators.self_training import SelfTrainingRegressor


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X, hide(y), y


def test_a_round_of_self_training_is_a_fit_to_its_own_predictions(diabetes):
    X, y, _ = diabetes
    known = ~np.isnan(y)
    tree = DecisionTreeRegressor(min_samples_leaf=5, random_state=0)
    model = SelfTrainingRegressor(estimator=tree, max_iter=2, tol=0.0).fit(X, y)
    by_hand = clone(tree).fit(X[known], y[known])
    for _ in range(2):
        by_hand = clone(tree).fit(X, np.where(known, y, by_hand.predict(X)))
    assert_array_equal(model.predict(X), by_hand.predict(X))
    assert_array_equal(model.transduction_, np.where(known, y, by_hand.predict(X)))


def test_self_training_without_rounds_is_the_labelled_fit(diabetes):
    X, y, _ = diabetes
    known = ~np.isnan(y)
    tree = DecisionTreeRegressor(min_samples_leaf=5, random_state=0)
    model = SelfTrainingRegressor(estimator=tree, max_iter=0).fit(X, y)
    assert_array_equal(model.predict(X), clone(tree).fit(X[known], y[known]).predict(X))


def test_self_training_stops_when_predictions_settle(diabetes):
    X, y, _ = diabetes  # least squares repeats itself: its own predictions lie on its plane
    model = SelfTrainingRegressor(estimator=LinearRegression(), max_iter=10).fit(X, y)
    assert model.n_iter_ == 1
    restless = SelfTrainingRegressor(estimator=KNeighborsRegressor(5), tol=0.0, max_iter=3)
    assert restless.fit(X, y).n_iter_ == 3


def test_self_training_on_labelled_rows_alone_is_one_fit(diabetes):
    X, _, y = diabetes
    model = SelfTrainingRegressor(estimator=LinearRegression()).fit(X, y)
    assert_array_equal(model.predict(X), LinearRegression().fit(X, y).predict(X))
    assert_array_equal(model.transduction_, y)


def test_self_training_takes_several_outputs(diabetes):
    X, _, y = diabetes
    both = hide(np.column_stack([y, -y]))
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    model = SelfTrainingRegressor(estimator=tree).fit(X, both)
    assert_allclose(model.predict(X)[:, 0], -model.predict(X)[:, 1])
    assert model.transduction_.shape == both.shape


def test_self_training_hands_weights_on(diabetes):
    X, y, _ = diabetes
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    weighted = SelfTrainingRegressor(estimator=tree).fit(X, y, weight)
    copies = SelfTrainingRegressor(estimator=tree).fit(
        np.repeat(X, weight, axis=0), np.repeat(y, weight)
    )
    assert_allclose(weighted.predict(X), copies.predict(X))


def test_self_training_names_an_estimator_that_takes_no_weights(diabetes):
    X, y, _ = diabetes
    model = SelfTrainingRegressor(estimator=KNeighborsRegressor())
    with pytest.raises(TypeError, match="KNeighborsRegressor, the estimator, takes none"):
        model.fit(X, y, np.ones(len(y)))


@pytest.mark.parametrize("wrong", [LogisticRegression(), LinearRegression])
def test_self_training_refuses_what_is_no_regressor(diabetes, wrong):
    X, y, _ = diabetes
    with pytest.raises(TypeError, match="estimator must be an instance of a regressor"):
        SelfTrainingRegressor(estimator=wrong).fit(X, y)


def test_self_training_seeds_its_estimator_unless_that_has_a_seed():
    X, y = load_diabetes(return_X_y=True)
    y = hide(y)
    free = SelfTrainingRegressor(estimator=DecisionTreeRegressor(max_features=1), random_state=3)
    assert_array_equal(free.fit(X, y).predict(X), clone(free).fit(X, y).predict(X))
    own = SelfTrainingRegressor(estimator=DecisionTreeRegressor(random_state=5), random_state=3)
    assert own.fit(X, y).estimator_.random_state == 5


def test_self_training_reads_frames_with_categories():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"colour": rng.choice(["red", "blue"], 60), "size": rng.normal(size=60)})
    y = hide(np.where(frame["colour"] == "red", 3.0, 1.0))
    tree = TAOTreeRegressor(split="axis", alpha=0.1, max_depth=1)
    model = SelfTrainingRegressor(estimator=tree, random_state=0).fit(frame, y)
    assert_allclose(model.transduction_, np.where(frame["colour"] == "red", 3.0, 1.0))
