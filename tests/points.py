"""Points for tests of neighbours and graphs, and their distances one by one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

METRICS = ["euclidean", "cosine", "manhattan"]


def gaussian(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def clusters(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 20 * rng.normal(size=(10, d))[rng.integers(0, 10, n)]


def lattice():
    """Points of a grid in an order of its own: nearly all distances tie."""
    points = np.stack(np.meshgrid(*[np.arange(1.0, 8.0)] * 3), axis=-1).reshape(-1, 3)
    return np.random.default_rng(0).permutation(points)


def offset():
    """Two clusters whose inner distances float32 cannot hold beside the gap between them."""
    X = gaussian(700, 4) * [1, 1e-3, 10, 1e3]
    X[:, 0] += np.where(np.arange(700) % 2, 1e8, -1e8)
    return X


def repeated(seed=0):
    """Rows of which most are copies, some of them of hundreds."""
    rng = np.random.default_rng(seed)
    return gaussian(60, 3)[np.minimum(rng.geometric(0.05, 900) - 1, 59)]


TABLES = {
    "few columns": lambda: gaussian(1500, 3),
    "clusters": lambda: clusters(1500, 12),
    "many columns": lambda: gaussian(600, 130),
    "more columns than rows": lambda: gaussian(300, 1200),
    "float32": lambda: gaussian(900, 20).astype(np.float32),
    "lattice": lattice,
    "offset": offset,
    "one column": lambda: gaussian(500, 1),
    "two rows": lambda: gaussian(2, 4),
    "copies": repeated,
}
EVERY_TABLE = pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)


def distances(X, metric):
    """All distances, as float64 differences; of cosine, of unit rows."""
    X = np.asarray(X, np.float64)
    if metric == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
        D = cdist(X, X, "sqeuclidean") / 2
    else:
        D = cdist(X, X, {"euclidean": "euclidean", "manhattan": "cityblock"}[metric])
    np.fill_diagonal(D, np.inf)
    return D


def nearest_distances(X, k, metric="euclidean"):
    return np.sort(distances(X, metric), axis=1)[:, :k]


def assert_are_neighbours(found, D):
    """Neighbours are k different rows, none itself, at the distances that are told."""
    n = len(found.index)
    ordered = np.sort(found.index, axis=1)
    assert (np.diff(ordered, axis=1) > 0).all()
    assert (found.index != np.arange(n)[:, None]).all()
    assert_allclose(
        found.distance, np.take_along_axis(D, found.index, axis=1), rtol=1e-6, atol=1e-14
    )
