"""What LapTAO estimators are given: containers, and bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from laptao_models import partly_labelled_iris, small_tree
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from silva import (
    LapTAOClassifier,
    LapTAORegressor,
    affinity_graph,
)


@pytest.fixture(scope="module")
def iris():
    return partly_labelled_iris()


# ---- containers ----------------------------------------------------------------------------------


def test_sparse_rows_give_the_tree_of_dense_ones():
    X, digits = load_digits(return_X_y=True)
    X, y = X[:400], np.where(np.arange(400) < 60, digits[:400], -1)
    model = LapTAOClassifier(estimator=small_tree(), scaling="none", n_outer=2, random_state=0)
    dense = clone(model).fit(X, y).score(X, digits[:400])
    thin = clone(model).fit(sparse.csr_matrix(X), y).score(sparse.csr_matrix(X), digits[:400])
    assert abs(dense - thin) < 0.15  # the same graph; trees scale sparse columns otherwise


def test_frames_with_categories_and_gaps_work():
    rng = np.random.default_rng(0)
    kind = rng.choice(["red", "green", "blue"], 200)
    size = rng.normal(size=200) + (kind == "red") * 3
    truth = (kind == "red").astype(int)
    frame = pd.DataFrame({"kind": kind, "size": np.where(rng.random(200) < 0.1, np.nan, size)})
    y = np.where(np.arange(200) < 20, truth, -1)
    model = LapTAOClassifier(estimator=small_tree(), random_state=0).fit(frame, y)
    assert model.score(frame, truth) > 0.95
    assert "kind=red" in model.columns_.names
    with pytest.raises(ValueError, match="column 'size' of X is missing"):
        model.set_params(missing="error").fit(frame, y)


def test_a_fitted_model_survives_pickling(iris):
    X, y, _ = iris
    model = LapTAOClassifier(estimator=small_tree(), random_state=0).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))


def test_a_ready_made_graph_is_used_as_it_is(iris):
    X, y, _ = iris
    W = affinity_graph(StandardScaler().fit_transform(X), 8)
    model = LapTAOClassifier(estimator=small_tree(), affinity=W, random_state=0).fit(X, y)
    assert (model.affinity_ != W).nnz == 0


# ---- bad input -----------------------------------------------------------------------------------


def bad_affinity(kind):
    W = sparse.random_array((150, 150), density=0.1, random_state=0, format="csr")
    W = W + W.T
    if kind == "asymmetric":
        W = sparse.csr_array(sparse.triu(W))
    elif kind == "negative":
        W = -W
    elif kind == "shape":
        W = W[:100, :100]
    return W


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"estimator": LogisticRegression()}, TypeError, "estimator must be a regressor"),
        ({"estimator": "tree"}, TypeError, "estimator must be a regressor"),
        ({"gamma": -1}, ValueError, "gamma must be finite and at least 0"),
        ({"gamma": np.nan}, ValueError, "gamma"),
        ({"damping": "much"}, TypeError, "damping must be a number"),
        ({"scaling": "log"}, ValueError, "scaling must be one of"),
        ({"n_outer": -1}, ValueError, "n_outer must be at least 0"),
        ({"n_inner": 0}, ValueError, "n_inner must be at least 1"),
        ({"tao_iter": 0}, ValueError, "tao_iter must be at least 1"),
        ({"mu": 0}, ValueError, "mu must be positive"),
        ({"mu_factor": 0.0}, ValueError, "mu_factor must be positive"),
        ({"solver": "lu"}, ValueError, "solver must be one of"),
        ({"refit_leaves": 1}, TypeError, "refit_leaves must be True or False"),
        ({"n_neighbors": 150}, ValueError, "n_neighbors"),
        ({"n_neighbors": 0}, ValueError, "n_neighbors"),
        ({"affinity": bad_affinity("shape")}, ValueError, "affinity"),
        ({"affinity": bad_affinity("asymmetric")}, ValueError, "affinity"),
        ({"affinity": bad_affinity("negative")}, ValueError, "affinity"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(iris, change, error, match):
    X, y, _ = iris
    with pytest.raises(error, match=match):
        LapTAOClassifier(**({"estimator": small_tree()} | change)).fit(X, y)


def test_no_labelled_row_is_an_error(iris):
    X, _, _ = iris
    with pytest.raises(ValueError, match="label"):
        LapTAOClassifier().fit(X, np.full(150, -1))
    with pytest.raises(ValueError, match="label"):
        LapTAORegressor().fit(X, np.full(150, np.nan))


def test_one_class_is_a_warning_and_a_constant_model(iris):
    X, y, _ = iris
    only = np.where(y == 0, 0, -1)
    with pytest.warns(UserWarning, match="one class"):
        model = LapTAOClassifier(random_state=0).fit(X, only)
    assert (model.predict(X) == 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(iris, value):
    X, y, _ = iris
    X = X.copy()
    X[3, 1] = value
    with pytest.raises(ValueError, match="X"):
        LapTAOClassifier(missing="error").fit(X, y)


@pytest.mark.parametrize(
    "totals", [{0: 10, 1: 10, 2: 10}, {0: 0.5, 1: 0.5}, {0: -1, 1: 68, 2: 68}, {"a": 1.0}]
)
def test_impossible_totals_are_refused(iris, totals):
    X, y, _ = iris
    with pytest.raises(ValueError, match="class_totals"):
        LapTAOClassifier().fit(X, y, class_totals=totals)


def test_labelled_rows_without_weight_are_refused(iris):
    X, y, _ = iris
    with pytest.raises(ValueError, match="sample_weight must be positive at some labelled row"):
        LapTAOClassifier().fit(X, y, sample_weight=(y < 0).astype(float))


def test_leaves_of_something_that_is_not_a_tree_are_refused(iris):
    X, y, _ = iris
    forest = RandomForestRegressor(3, random_state=0)
    model = LapTAOClassifier(estimator=forest, n_outer=0, random_state=0).fit(X, y)
    with pytest.raises(AttributeError, match="not a tree"):
        model.apply(X)
