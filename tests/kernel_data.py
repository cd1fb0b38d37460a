"""Data that tests of kernel trees and forests share."""

import numpy as np
from sklearn.datasets import load_iris, make_moons


def moons(n_labels=10, n_rows=400, seed=0):
    X, y = make_moons(n_rows, noise=0.1, random_state=seed)
    partial = np.full(n_rows, -1)
    rng = np.random.default_rng(seed)
    for label in (0, 1):
        known = rng.choice(np.flatnonzero(y == label), n_labels // 2, replace=False)
        partial[known] = label
    return X, y, partial


def iris(step=10):
    X, y = load_iris(return_X_y=True)
    return X, y, np.where(np.arange(len(y)) % step == 0, y, -1)
