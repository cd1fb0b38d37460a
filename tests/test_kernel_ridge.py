"""Kernel ridge regression, claim by claim."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge

from silva import kernel_ridge
from silva.kernel_ridge import Settings, _leave_one_out, fit_kernel_ridge, kernel


def test_leave_one_out_errors_match_refitting_without_each_row():
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(12, 3)), rng.normal(size=(12, 2)), rng.uniform(0.5, 3, 12)
    K = kernel(X, X, Settings(2.0, 0.1, 0.0))
    root = np.sqrt(weight)
    for ridge, error in _leave_one_out(K * root * root[:, None], y, root):
        expected = 0.0
        for i in range(12):
            rest = np.arange(12) != i
            dual = np.linalg.solve(K[rest][:, rest] + ridge * np.diag(1 / weight[rest]), y[rest])
            expected += np.mean(weight[i] * (y[i] - K[i, rest] @ dual) ** 2) / 12
        assert_allclose(error, expected, rtol=1e-6)


def test_kernel_ridge_matches_sklearn():
    rng = np.random.default_rng(1)
    X, weight = rng.normal(size=(40, 3)), rng.uniform(0.5, 2, 40)
    y = np.sin(X[:, :1]) + X[:, 1:2]
    model = fit_kernel_ridge(X, y, weight, 0)
    share = weight / weight.sum()
    centre = share @ y
    unit = np.sqrt(share @ (y - centre) ** 2)
    peer = SklearnKernelRidge(alpha=model.settings.ridge, kernel="precomputed")
    K = kernel(X, X, model.settings)
    peer.fit(K, (y - centre) / unit, sample_weight=weight / weight.mean())
    new = rng.normal(size=(20, 3))
    expected = peer.predict(kernel(new, X, model.settings)) * unit + centre
    assert_allclose(model.predict(new), np.clip(expected, y.min(), y.max()), rtol=1e-6)


def test_kernel_ridge_takes_sparse_rows():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(30, 4)) * (rng.random((30, 4)) < 0.5), rng.normal(size=(30, 1))
    dense, thin = (fit_kernel_ridge(A, y, np.ones(30), 0) for A in (X, sparse.csr_matrix(X)))
    assert_allclose(thin.predict(sparse.csr_matrix(X)), dense.predict(X), atol=1e-6)


@pytest.fixture
def waves():
    """500 rows of a smooth function, and 500 more."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, size=(1000, 2))
    y = np.sin(3 * X[:, :1]) * np.cos(2 * X[:, 1:])
    return X[:500], y[:500] + 0.1 * rng.normal(size=(500, 1)), X[500:], y[500:]


def test_functions_of_some_centres_minimise_the_objective(waves, monkeypatch):
    monkeypatch.setattr(kernel_ridge, "CENTRES", 40)
    monkeypatch.setattr(kernel_ridge, "BLOCK", 40 * 30)  # rows come in blocks
    X, y, _, _ = waves
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    model = fit_kernel_ridge(X, y, weight, 0)
    assert model.dual.shape == (40, 1)
    C, K = kernel(X, model.rows, model.settings), kernel(model.rows, model.rows, model.settings)
    gap = (y - model.centre) / model.unit - C @ model.dual
    slope = -C.T @ (gap * weight[:, None] / weight.mean()) + model.settings.ridge * K @ model.dual
    assert_allclose(slope, 0, atol=1e-5)


def test_rows_that_are_no_centres_are_learned_from(waves, monkeypatch):
    monkeypatch.setattr(kernel_ridge, "CENTRES", 100)
    X, y, new, truth = waves

    def error(most_rows):
        monkeypatch.setattr(kernel_ridge, "ROWS", most_rows)
        return np.mean((fit_kernel_ridge(X, y, np.ones(500), 0).predict(new) - truth) ** 2)

    assert error(500) < 0.7 * error(100)


def test_copies_among_the_centres_do_no_harm(waves, monkeypatch):
    monkeypatch.setattr(kernel_ridge, "CENTRES", 60)
    X, y, new, truth = waves
    X, y = np.repeat(X[:100], 5, axis=0), np.repeat(y[:100], 5, axis=0)
    model = fit_kernel_ridge(X, y, np.ones(500), 0)
    assert np.mean((model.predict(new) - truth) ** 2) < 0.5 * np.var(truth)
