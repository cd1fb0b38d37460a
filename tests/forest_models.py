"""Small forests of TAO trees for tests, and what they are tried with."""

import pytest
from conftest import assert_same_tree
from numpy.testing import assert_array_equal
from sklearn.datasets import load_diabetes, load_iris

from silva import TAOForestClassifier, TAOForestRegressor
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


def data_for(make):
    return load_iris(return_X_y=True) if make is classifier else load_diabetes(return_X_y=True)


def assert_same_forest(one, other):
    assert len(one.trees_) == len(other.trees_)
    for a, b in zip(one.trees_, other.trees_, strict=True):
        assert_same_tree(a, b)
    assert_array_equal(one.feature_importances_, other.feature_importances_)
    assert one.flops_ == other.flops_


def answers_by_route(model, X):
    leaves = model.apply(X)
    return [
        answer(tree, tree.leaf_index[nodes], X)
        for tree, nodes in zip(model.trees_, leaves.T, strict=True)
    ]
