"""The baselines: what self-training, Laplacian support vectors and predictive clustering share."""

import pickle

import numpy as np
import pytest
from conftest import hide
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import TAOTreeRegressor
from silva.estimators.laplacian_svc import LaplacianSVC
from silva.estimators.predictive_clustering import (
    PredictiveClusteringTreeClassifier,
    PredictiveClusteringTreeRegressor,
)
from silva.estimators.self_training import SelfTrainingRegressor

# ---- scikit-learn's own checks ------------------------------------------------------------------


def expected_failures(estimator):
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
        return {}
    return {"check_classifiers_classes": "trains on classes {-1, 1}, but -1 means unlabelled"}


@parametrize_with_checks(
    [
        SelfTrainingRegressor(estimator=TAOTreeRegressor(alpha=0.1, max_depth=2)),
        LaplacianSVC(),
        PredictiveClusteringTreeClassifier(),
        PredictiveClusteringTreeRegressor(supervision=0.5, min_labelled_leaf=0, n_jobs=2),
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore:y has labelled rows of one class only")
def test_sklearn_check(estimator, check):
    check(estimator)


# ---- all of them --------------------------------------------------------------------------------

CLASSIFIERS = pytest.mark.parametrize(
    "model",
    [LaplacianSVC(), PredictiveClusteringTreeClassifier(supervision=0.5)],
    ids=["svc", "tree"],
)
ALL = pytest.mark.parametrize(
    "model",
    [
        SelfTrainingRegressor(estimator=DecisionTreeRegressor(max_depth=3, random_state=0)),
        LaplacianSVC(),
        PredictiveClusteringTreeClassifier(supervision=0.5),
        PredictiveClusteringTreeRegressor(supervision=0.5),
    ],
    ids=["self", "svc", "classifier", "regressor"],
)


def data_for(model):
    X, y = load_iris(return_X_y=True)
    return (X[:, :3], hide(X[:, 3])) if "Regressor" in type(model).__name__ else (X, hide(y))


@ALL
def test_a_pickled_baseline_answers_the_same(model):
    X, y = data_for(model)
    fitted = clone(model).fit(X, y)
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))


@ALL
def test_transduction_keeps_labels_and_adds_predictions(model):
    X, y = data_for(model)
    fitted = clone(model).fit(X, y)
    known = y >= 0
    assert_array_equal(fitted.transduction_[known], y[known])
    assert_array_equal(fitted.transduction_[~known], fitted.predict(X)[~known])


@CLASSIFIERS
def test_classes_may_be_strings_and_missing_ones_unlabelled(model):
    X, y = load_iris(return_X_y=True)
    codes = hide(y)
    names = np.array(["setosa", "versicolor", "virginica"], dtype=object)
    words = np.where(codes >= 0, names[codes], None)
    assert_array_equal(
        clone(model).fit(X, words).predict(X), names[clone(model).fit(X, codes).predict(X)]
    )


@CLASSIFIERS
def test_one_class_makes_a_constant_model(model):
    X, y = load_iris(return_X_y=True)
    with pytest.warns(UserWarning, match="one class only"):
        fitted = clone(model).fit(X, np.where(y == 1, 1, -1))
    assert_array_equal(fitted.predict(X), 1)


@ALL
def test_no_labelled_row_is_refused(model):
    X, y = data_for(model)
    with pytest.raises(ValueError, match="no labelled row"):
        clone(model).fit(X, np.full(len(y), np.nan))


@ALL
def test_labelled_rows_without_weight_are_refused(model):
    X, y = data_for(model)
    with pytest.raises(ValueError, match="weight"):
        clone(model).fit(X, y, np.where(y >= 0, 0.0, 1.0))


@pytest.mark.parametrize(
    "model", [LaplacianSVC(), PredictiveClusteringTreeClassifier()], ids=["svc", "tree"]
)
def test_missing_values_in_x_are_refused(model):
    X, y = load_iris(return_X_y=True)
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"'x2' of X is missing \(NaN\) in 1 of 150 rows"):
        clone(model).fit(X, y)
