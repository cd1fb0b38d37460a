"""Data, trees and tables that several test files share."""

import signal

import numpy as np
import pytest
from hypothesis import settings
from scipy import sparse
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from silva.estimators import mixed_regressor
from silva.kernels import TABLES, reference, select
from silva.tree import Tree

settings.register_profile("silva", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("silva")

# How the core stores each kind of input.
STORAGES = {
    "bytes": "bytes",
    "bytes float32": "bytes",
    "floats": "floats",
    "floats float32": "floats",
    "csr": "sparse",
    "csr float32": "sparse",
    "csr int64": "sparse",
    "csr int64 float32": "sparse",
}


@pytest.fixture(autouse=True, scope="session")
def _one_blas_thread():
    with threadpool_limits(1):
        yield


@pytest.fixture
def small_mixture(monkeypatch):
    """Fewer trees in the mixture, for what does not depend on their number."""
    monkeypatch.setattr(mixed_regressor, "TREES", 5)
    monkeypatch.setattr(mixed_regressor, "STAGES", 10)
    monkeypatch.setattr(mixed_regressor, "PLANES", 3)


@pytest.fixture(scope="session")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="session")
def diabetes():
    return load_diabetes(return_X_y=True)


@pytest.fixture(scope="session")
def digits():
    """Rows and digits to train on, rows and digits to test with, as `train_test_split` has them."""
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)


@pytest.fixture(params=sorted(TABLES))
def table(request):
    return select(request.param)


@pytest.fixture(params=list(STORAGES))
def storage(request):
    return request.param


def make_matrix(storage, n, d, seed=0):
    """Random rows of the given storage; a third of the entries of a sparse one is there."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if storage.startswith("bytes"):
        X = np.clip(np.round(X * 20), -60, 60) / 4 + 3
    if storage.startswith("csr"):
        X[rng.random((n, d)) < 2 / 3] = 0
        X = sparse.csr_array(X)
    if storage.endswith("float32"):
        X = X.astype(np.float32)
    if "int64" in storage:
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def dense(X):
    return (X.toarray() if sparse.issparse(X) else X).astype(np.float64)


def hide(y, share=0.3, seed=0):
    """Most of y missing: -1 for classes, NaN for numbers; at least one row of each class stays."""
    rng = np.random.default_rng(seed)
    labelled = rng.random(len(y)) < share
    if y.dtype.kind == "f":
        labelled[0] = True
        return np.where(labelled if y.ndim == 1 else labelled[:, None], y, np.nan)
    labelled[np.unique(y, return_index=True)[1]] = True
    return np.where(labelled, y, -1)


def make_sides(X, seed=0):
    """Sides that depend on the first columns with noise, and weights, of a node problem."""
    rng = np.random.default_rng(seed)
    score = dense(X)[:, :3] @ [1.0, -0.5, 0.25]
    noise = rng.normal(size=len(score)) * score.std() / 2
    side = score + noise > np.median(score)
    return rng.uniform(0.1, 2, len(score)).astype(np.float32), side.astype(np.float32)


def decide(X, rows, planes):
    """Which rows the first plane sends right."""
    (w, *_), (b, *_) = reference.unpack(planes, X.shape[1])
    return (dense(X) - rows.centre) / rows.scale @ w + b >= 0


def make_tree(rng, n_leaves, n_features, *, density=0.5, n_outputs=1, linear=False):
    """Tree of random shape and random hyperplanes, numbered depth first."""
    left, right = [], []

    def grow(leaves):
        node = len(left)
        left.append(-1)
        right.append(-1)
        if leaves > 1:
            first = int(rng.integers(1, leaves))
            left[node] = grow(first)
            right[node] = grow(leaves - first)
        return node

    grow(n_leaves)
    left, right = np.array(left, np.int32), np.array(right, np.int32)
    decision = left >= 0
    planes = rng.normal(size=(len(left), n_features))
    planes *= (rng.random(planes.shape) < density) & decision[:, None]
    coefficients = sparse.csr_array(planes)
    coefficients.indices = coefficients.indices.astype(np.int32)
    coefficients.indptr = coefficients.indptr.astype(np.int32)
    slopes = bounds = None
    if linear:
        slopes = rng.normal(size=(n_leaves, n_outputs, n_features))
        bounds = np.sort(rng.normal(size=(2, n_leaves, n_outputs)), axis=0)
    return Tree(
        left=left,
        right=right,
        coefficients=coefficients,
        threshold=np.where(decision, rng.normal(size=len(left)) / 2, 0.0),
        values=rng.normal(size=(n_leaves, n_outputs)),
        weight=np.ones(len(left)),
        slopes=slopes,
        bounds=bounds,
    )


def route_by_hand(tree, X):
    """Leaf node of each row, one row and one decision at a time."""
    planes, result = tree.coefficients.toarray(), []
    for x in dense(X):
        node = 0
        while tree.left[node] >= 0:
            side = tree.right if planes[node] @ x >= tree.threshold[node] else tree.left
            node = side[node]
        result.append(node)
    return np.array(result)


def route(table, X, tree, n_threads=1):
    return table.route(X, tree.left, tree.right, tree.coefficients, tree.threshold, n_threads)


def assert_same_tree(one, other):
    """The two trees agree bit for bit."""
    for name in ("left", "right", "threshold", "values", "weight", "slopes", "bounds"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(
            getattr(one.coefficients, name), getattr(other.coefficients, name), err_msg=name
        )


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_reaches_the_tests():
    """Have Ctrl-C raise even where the tests run in the background, whose shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
