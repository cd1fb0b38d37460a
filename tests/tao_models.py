"""Small TAO trees for tests, and what they are tried with."""

import pytest

from silva import TAOTreeClassifier, TAOTreeRegressor

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
