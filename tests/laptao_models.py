"""What tests of LapTAO share."""

import numpy as np
from sklearn.datasets import load_iris

from silva import TAOTreeRegressor


def small_tree(**options):
    return TAOTreeRegressor(max_depth=3, alpha=0.1, random_state=0, **options)


def partly_labelled_iris():
    """Rows, a label for every tenth, and all of them."""
    X, truth = load_iris(return_X_y=True)
    return X, np.where(np.arange(len(truth)) % 10 == 0, truth, -1), truth
