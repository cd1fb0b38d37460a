"""Small boosted TAO trees for tests, and what they are tried with."""

import pytest
from conftest import assert_same_tree
from numpy.testing import assert_array_equal

from silva import TAOBoostClassifier, TAOBoostRegressor

ALGORITHMS = pytest.mark.parametrize("algorithm", ["samme", "m1"])
BOTH = pytest.mark.parametrize("make", ["classifier", "regressor"])
PLAIN = {
    "n_estimators": 6,
    "split": "oblique",
    "max_depth": 3,
    "alpha": 0.1,
    "max_iter": 4,
    "random_state": 0,
}


def classifier(**parameters):
    return TAOBoostClassifier(**{**PLAIN, **parameters})


def regressor(**parameters):
    return TAOBoostRegressor(**{**PLAIN, **parameters})


def labels_of(model, X):
    """What each tree answers by itself."""
    leaf_nodes = model.apply(X)
    return [
        model.classes_[tree.values.argmax(axis=1)[tree.leaf_index[nodes]]]
        for tree, nodes in zip(model.trees_, leaf_nodes.T, strict=True)
    ]


def assert_same_model(one, other):
    assert len(one.trees_) == len(other.trees_)
    for mine, yours in zip(one.trees_, other.trees_, strict=True):
        assert_same_tree(mine, yours)
    votes = [[step.vote for step in model.history_] for model in (one, other)]
    assert_array_equal(*votes)
    assert_array_equal(one.feature_importances_, other.feature_importances_)
    assert one.flops_ == other.flops_
