"""BLAS and OpenMP keep to one thread while a model is fitted."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from silva import LaplacianSVC, SilvaTreeClassifier, TreeEmbedding
from silva.estimators.blas_threads import on_one_blas_thread


def blas_threads():
    """Return how many threads each library may use."""
    return [library["num_threads"] for library in threadpool_info()]


SEEN = []


class Witness(LogisticRegression):
    """A teacher that remembers how many threads the libraries had when it was taught."""

    def fit(self, X, y, sample_weight=None):
        SEEN.extend(blas_threads())
        return super().fit(X, y, sample_weight)


def test_teachers_are_taught_on_one_blas_thread():
    X, y = load_iris(return_X_y=True)
    few = np.where(np.arange(len(y)) % 5 == 0, y, -1)
    SEEN.clear()
    with threadpool_limits(2):
        before = blas_threads()
        SilvaTreeClassifier(teacher=Witness(), random_state=0).fit(X, few)
        assert blas_threads() == before
    assert SEEN
    assert set(SEEN) == {1}


def test_threads_come_back_after_an_error():
    @on_one_blas_thread
    def fails():
        raise ValueError("no")

    with threadpool_limits(2):
        before = blas_threads()
        with pytest.raises(ValueError, match="no"):
            fails()
        assert blas_threads() == before


@pytest.mark.parametrize("estimator", [TreeEmbedding, LaplacianSVC])
def test_limited_methods_keep_signature_and_docstring(estimator):
    assert list(inspect.signature(estimator.fit).parameters)[:3] == ["self", "X", "y"]
    assert "Parameters" in estimator.fit.__doc__


def test_the_same_model_for_any_number_of_blas_threads():
    X, y = load_iris(return_X_y=True)
    few = np.where(np.arange(len(y)) % 5 == 0, y, -1)
    answers = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = SilvaTreeClassifier(random_state=0).fit(X, few)
            answers.append(model.predict_proba(X))
    np.testing.assert_array_equal(*answers)
