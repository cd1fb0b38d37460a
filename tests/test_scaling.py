"""Units of the columns before neighbours are sought."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.ensemble import ExtraTreesRegressor

from silva.estimators.scaling import SCALINGS, column_importances, scale_columns


def scaled(X, scaling, labels=None, labelled=None, weight=None, is_classes=True):
    n = X.shape[0]
    labels = np.zeros((n, 1)) if labels is None else labels
    labelled = np.ones(n) if labelled is None else labelled
    weight = np.ones(n) if weight is None else weight
    return scale_columns(X, weight, scaling, labels, labelled, is_classes, 0, None)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    labels = np.eye(2)[(X[:, 1] > 0).astype(int)]
    return X, labels


def test_none_leaves_the_columns_alone(rows):
    X, _ = rows
    assert scaled(X, "none") is X


def test_range_takes_columns_to_the_unit_interval(rows):
    X, _ = rows
    Z = scaled(X * [1, 10, 100, 1000, 0], "range")
    np.testing.assert_allclose(Z.min(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(Z.max(axis=0), [1, 1, 1, 1, 0])


def test_deviation_standardises_and_clips_what_is_far_out(rows):
    X, _ = rows
    X = X.copy()
    X[0, 0] = 1e6
    Z = scaled(X, "deviation")
    assert Z[0, 0] == 3
    np.testing.assert_allclose(Z[:, 1].std(), 1, rtol=0.02)
    assert abs(Z).max() <= 3


@pytest.mark.parametrize("scaling", ["range", "deviation", "relevance"])
def test_units_do_not_matter(rows, scaling):
    X, labels = rows
    factor, shift = np.array([1e-3, 1, 10, 1e4, 5]), np.array([0, 7, -3, 1e4, 0])
    np.testing.assert_allclose(
        scaled(X * factor + shift, scaling, labels), scaled(X, scaling, labels), atol=1e-6
    )


@pytest.mark.parametrize("scaling", ["range", "deviation", "relevance"])
def test_a_constant_column_counts_for_nothing(rows, scaling):
    X, labels = rows
    Z = scaled(np.column_stack([X, np.full(len(X), 4.0)]), scaling, labels)
    np.testing.assert_array_equal(Z[:, -1], 0)


def test_relevance_stretches_the_column_that_tells_the_class(rows):
    X, labels = rows
    spread = scaled(X, "relevance", labels).std(axis=0)
    assert spread.argmax() == 1
    assert spread[1] > 2 * np.delete(spread, 1).max()


def test_relevance_of_numbers_finds_the_column_too(rows):
    X, _ = rows
    spread = scaled(X, "relevance", X[:, 3:4] ** 2, is_classes=False).std(axis=0)
    assert spread.argmax() == 3


def test_few_labels_hardly_move_the_columns(rows):
    X, labels = rows
    labelled = np.zeros(300)
    labelled[:4] = 1
    few = scaled(X, "relevance", labels, labelled).std(axis=0)
    all_labels = scaled(X, "relevance", labels).std(axis=0)
    assert few.max() / few.min() < 0.7 * all_labels.max() / all_labels.min()


def test_one_class_leaves_the_columns_alike(rows):
    X, _ = rows
    spread = scaled(X, "relevance", np.ones((300, 1))).std(axis=0)
    np.testing.assert_allclose(spread, spread[0], rtol=0.02)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_sparse_columns_keep_their_zeros(rows, scaling):
    X, labels = rows
    thin = sparse.csr_array(np.where(X > 0.5, X, 0.0))
    Z = scaled(thin, scaling, labels)
    assert sparse.issparse(Z)
    assert Z.nnz == thin.nnz


def test_weights_count_as_copies(rows):
    X, _ = rows
    weight = np.arange(300) % 3 + 1.0
    copies = np.repeat(X, weight.astype(int), axis=0)
    expected = scaled(copies, "deviation")
    np.testing.assert_allclose(
        np.repeat(scaled(X, "deviation", weight=weight), weight.astype(int), axis=0), expected
    )


def test_a_forest_whose_splits_gain_nothing_has_no_importances():
    X, y = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0.0, 1.0, 0.0, 1.0])
    forest = ExtraTreesRegressor(5, random_state=0).fit(X, y)
    assert max(tree.tree_.node_count for tree in forest.estimators_) > 1
    assert_array_equal(column_importances(forest), [0])
