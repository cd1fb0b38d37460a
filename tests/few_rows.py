"""Rows and models that tests of bad input share."""

import numpy as np
import pytest

from silva import TAOTreeClassifier, TAOTreeRegressor

MODELS = pytest.mark.parametrize("Model", [TAOTreeClassifier, TAOTreeRegressor])


def data(n=60, d=3, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, (X[:, 0] > 0).astype(int)
