"""The flagship tree where numbers are but codes of categories."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from silva import SilvaTreeClassifier, export_text
from silva.estimators import silva_tree


@pytest.fixture(scope="module")
def shops():
    """Codes of kinds of shops, whose order means nothing, a number, and a tree."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(1, 9, size=(800, 3)), rng.normal(size=800)])
    odd = np.array([0, 0, 1, 1, 0, 1, 0, 0, 1])[X[:, :3].astype(int)]
    truth = odd.sum(axis=1) > 1
    y = np.where(np.arange(800) < 120, truth, -1)
    weight = np.where(np.arange(800) < 790, 1, 0)
    return X, truth, SilvaTreeClassifier(random_state=0).fit(X, y, weight)


def test_a_tree_asks_for_categories_where_codes_have_no_order(shops):
    X, truth, model = shops
    assert model.columns_.names[7:10] == ("x0=8", "x1=1", "x1=2")
    assert model.columns_.names[-1] == "x3"
    assert "x0=1?" in model.report_
    assert "x1=" in export_text(model)
    assert model.score(X[120:], truth[120:]) > 0.95
    assert model.feature_importances_.shape == (4,)
    assert model.feature_importances_[:3].min() > model.feature_importances_[3]


def test_rows_without_weight_are_answered_by_the_tree_of_categories(shops):
    X, _, model = shops
    assert_array_equal(model.transduction_[790:], model.predict(X[790:]))


def test_a_tree_asks_for_numbers_where_their_order_tells_as_much():
    rng = np.random.default_rng(0)
    X = rng.integers(8, size=(600, 3)).astype(float)
    y = np.where(np.arange(600) < 90, X @ [1, 2, -1] > 7, -1)
    model = SilvaTreeClassifier(random_state=0).fit(X, y)
    assert model.columns_.names == ("x0", "x1", "x2")
    assert not model.columns_.values


def test_numbers_stay_numbers_where_categories_would_be_too_many_columns(shops, monkeypatch):
    X, truth, _ = shops
    y = np.where(np.arange(300) < 120, truth[:300], -1)
    for cells, shown in ((300 * 25, True), (300 * 25 - 1, False)):
        monkeypatch.setattr(silva_tree, "CATEGORY_CELLS", cells)
        model = SilvaTreeClassifier(random_state=0).fit(X[:300], y)
        assert bool(model.columns_.values) == shown
