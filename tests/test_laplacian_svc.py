"""Laplacian support vectors."""

import numpy as np
import pytest
from conftest import dense, hide, make_matrix
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.datasets import load_iris, make_moons
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from silva.estimators.laplacian_svc import LaplacianSVC
from silva.graph import affinity_graph, laplacian


def moons(n=120, n_labels=10):
    X, y = make_moons(n, noise=0.08, random_state=0)
    partial = np.full(n, -1)
    partial[:n_labels] = y[:n_labels]
    return X, y, partial


@pytest.mark.parametrize("n_classes", [2, 3])
def test_laplacian_svc_without_smoothness_is_svc(n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], hide(y[y < n_classes])
    known = y >= 0
    model = LaplacianSVC(C=2, gamma=0, rbf_gamma=0.3, tol=1e-8).fit(X, y)
    plain = SVC(C=2, gamma=0.3, tol=1e-8)
    if n_classes > 2:
        plain = OneVsRestClassifier(plain)
    expected = plain.fit(X[known], y[known]).decision_function(X)
    assert_allclose(model.decision_function(X), expected, atol=1e-5)


def test_laplacian_svc_reaches_the_optimum_of_its_objective():
    X, _, y = moons(14, 6)
    C, gamma, width = 3.0, 0.7, 1.5
    model = LaplacianSVC(C=C, gamma=gamma, rbf_gamma=width, n_neighbors=4, tol=1e-8).fit(X, y)
    K, L = rbf_kernel(X, gamma=width), laplacian(affinity_graph(X, 4)).toarray()
    sign = np.where(y[:6] == 1, 1.0, -1.0)
    penalty = K + 2 * C * gamma * K @ L @ K

    def objective(v):  # expansion, offset, slacks
        return v[:14] @ penalty @ v[:14] / 2 + C * v[15:].sum()

    def gradient(v):
        return np.concatenate([penalty @ v[:14], [0.0], np.full(6, C)])

    margins = np.column_stack([sign[:, None] * K[:6], sign, np.eye(6)])
    found = minimize(
        objective,
        np.concatenate([np.zeros(15), np.ones(6)]),
        jac=gradient,
        bounds=[(None, None)] * 15 + [(0, None)] * 6,
        constraints={"type": "ineq", "fun": lambda v: margins @ v - 1, "jac": lambda v: margins},
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-12},
    )
    assert_allclose(model.decision_function(X), K @ found.x[:14] + found.x[14], atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_laplacian_svc_satisfies_the_optimality_conditions(n_classes):
    X, y = load_iris(return_X_y=True)
    X, first = np.unique(X, axis=0, return_index=True)
    y = hide(y[first])
    X, y = X[y < n_classes], y[y < n_classes]
    C, gamma = 0.7, 0.5
    model = LaplacianSVC(C=C, gamma=gamma, rbf_gamma=0.5, n_neighbors=7, tol=1e-8).fit(X, y)
    V = model.vertices_
    place = [int(np.flatnonzero((x == V).all(axis=1))[0]) for x in X]
    L = laplacian(affinity_graph(V, 7)).toarray()
    dual = model.expansion_ + 2 * C * gamma * L @ rbf_kernel(V, gamma=0.5) @ model.expansion_
    scores = model.decision_function(X).reshape(len(X), -1)
    for column, positive in enumerate([1] if n_classes == 2 else [0, 1, 2]):
        sign = np.where(y == positive, 1.0, -1.0)
        beta = sign * dual[place, column]
        margin = sign * scores[:, column]
        assert_allclose(beta[y < 0], 0, atol=1e-9)
        beta, margin, sign = beta[y >= 0], margin[y >= 0], sign[y >= 0]
        assert beta.min() > -1e-9
        assert beta.max() < C + 1e-9
        assert_allclose(beta @ sign, 0, atol=1e-6)
        assert (margin[beta < 1e-7] > 1 - 1e-5).all()
        assert (margin[beta > C - 1e-7] < 1 + 1e-5).all()
        inside = (beta > 1e-7) & (beta < C - 1e-7)
        assert_allclose(margin[inside], 1, atol=1e-5)


def test_laplacian_svc_learns_from_unlabelled_rows():
    X, y, partial = moons(200, 6)
    options = {"C": 100, "rbf_gamma": 10}
    smooth = LaplacianSVC(gamma=1.0, **options).fit(X, partial)
    plain = LaplacianSVC(gamma=0.0, **options).fit(X, partial)
    assert smooth.score(X, y) > max(0.95, plain.score(X, y))
    assert_array_equal(smooth.transduction_[:6], y[:6])
    assert (smooth.transduction_ == y).mean() > 0.95


def test_laplacian_svc_takes_a_ready_made_graph():
    X, _, y = moons()
    W = affinity_graph(X, 5)
    built = LaplacianSVC(n_neighbors=5).fit(X, y)
    given = LaplacianSVC(affinity=W).fit(X, y)
    assert_allclose(given.decision_function(X), built.decision_function(X), atol=1e-8)
    none = LaplacianSVC(affinity=0 * W).fit(X, y)
    plain = LaplacianSVC(gamma=0).fit(X, y)
    assert_allclose(none.decision_function(X), plain.decision_function(X), atol=1e-8)


def test_copies_in_a_ready_made_graph_keep_its_energy():
    # Two copies joined to different rows: one vertex joined to both.
    X = np.array([[0.0], [1.0], [2.0], [1.0]])
    y = np.array([0, -1, 1, -1])
    W = np.zeros((4, 4))
    W[0, 1] = W[1, 0] = 1.0
    W[2, 3] = W[3, 2] = 2.0
    merged = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])
    copies = LaplacianSVC(affinity=W, gamma=3.0, rbf_gamma=0.5).fit(X, y)
    once = LaplacianSVC(affinity=merged, gamma=3.0, rbf_gamma=0.5).fit(X[:3], y[:3])
    assert_allclose(copies.decision_function(X), once.decision_function(X))


def test_laplacian_svc_in_single_precision_agrees():
    X, _, y = moons()
    double = LaplacianSVC(C=10).fit(X, y).decision_function(X)
    single = LaplacianSVC(C=10, dtype="float32").fit(X, y)
    assert single.expansion_.shape == (len(X), 1)
    assert_allclose(single.decision_function(X), double, atol=1e-2)


def test_laplacian_svc_on_sparse_rows_agrees():
    X = make_matrix("csr", 100, 5)
    y = hide(np.digitize(dense(X)[:, 0], [-0.2, 0.2]))
    full = LaplacianSVC(tol=1e-8).fit(dense(X), y).decision_function(dense(X))
    assert_allclose(LaplacianSVC(tol=1e-8).fit(X, y).decision_function(X), full, atol=1e-5)


def test_laplacian_svc_refuses_too_many_rows_and_says_what_they_need():
    X, _, y = moons(120)
    with pytest.raises(ValueError, match=r"120 different rows, max_rows is 100: .* GiB"):
        LaplacianSVC(max_rows=100).fit(X, y)
    LaplacianSVC(max_rows=100, gamma=0).fit(X, y)


@pytest.mark.parametrize(
    ("affinity", "culprit"),
    [
        (np.ones((5, 5)), r"affinity has shape \(5, 5\), X has 120 rows"),
        (-np.ones((120, 120)), "affinity has a negative weight"),
        (np.full((120, 120), np.nan), "affinity contains NaN"),
        (np.triu(np.ones((120, 120))), "affinity is not symmetric"),
    ],
)
def test_laplacian_svc_refuses_what_is_no_graph(affinity, culprit):
    X, _, y = moons()
    with pytest.raises(ValueError, match=culprit):
        LaplacianSVC(affinity=affinity).fit(X, y)


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"C": 0}, "C must be positive"),
        ({"gamma": -1}, "gamma must be finite and at least 0"),
        ({"rbf_gamma": "wide"}, "rbf_gamma must be a number"),
        ({"rbf_gamma": 0}, "rbf_gamma must be positive"),
        ({"dtype": "int"}, "dtype must be one of"),
        ({"tol": 0}, "tol must be positive"),
    ],
)
def test_laplacian_svc_names_a_wrong_argument(options, culprit):
    X, _, y = moons()
    with pytest.raises((TypeError, ValueError), match=culprit):
        LaplacianSVC(**options).fit(X, y)
