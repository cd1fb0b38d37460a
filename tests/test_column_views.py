"""Columns as the members of a mixture see them: codes of categories."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.preprocessing import OneHotEncoder

from silva.estimators.column_views import MOST_CODES, QUANTILES, Units


def categories_of(X):
    """Return the rows with codes as indicators."""
    return Units.of(X).views(X, ["categories"])["categories"]


@pytest.mark.parametrize("n_rows", [40, 3 * QUANTILES])
def test_codes_become_indicators_of_variance_one_together(n_rows):
    rng = np.random.default_rng(0)
    codes = rng.choice([-1.0, 0, 4, 7], size=(n_rows, 2), p=[0.1, 0.2, 0.3, 0.4])
    number = rng.normal(5, 2, size=n_rows)
    shown = categories_of(np.column_stack([codes[:, 0], number, codes[:, 1]]))
    indicators = OneHotEncoder(sparse_output=False).fit_transform(codes)
    for column in (0, 1):
        part = slice(4 * column, 4 * column + 4)
        assert shown[:, part].var(axis=0).sum() == pytest.approx(1)
        unit = np.sqrt(indicators[:, part].var(axis=0).sum())
        centred = indicators[:, part] - indicators[:, part].mean(axis=0)
        assert_allclose(shown[:, part], centred / unit, atol=1e-12)
    assert_allclose(shown[:, 8], np.clip((number - number.mean()) / number.std(), -3, 3))


def test_code_that_no_row_had_has_no_indicator():
    units = Units.of(np.array([[1.0], [2], [3]]))
    (new,) = units.views(np.array([[9.0]]), ["categories"])["categories"]
    assert_array_equal(new * units.codes.deviation + units.codes.share, np.zeros(3))


@pytest.mark.parametrize(
    "column",
    [
        np.arange(60) % 2,
        np.arange(60) % (MOST_CODES + 1),
        np.arange(60) % 4 + 0.5,
        np.where(np.arange(60) == 7, 2.5, np.arange(60) % 4),
        np.zeros(60),
        np.append(np.zeros(50 * QUANTILES), np.arange(1, MOST_CODES + 1)),  # most values are rare
    ],
    ids=["two values", "many values", "fractions", "one fraction", "a constant", "rare values"],
)
def test_other_columns_are_not_taken_for_codes(column):
    units = Units.of(column.reshape(-1, 1).astype(float))
    assert units.codes is None
    assert "categories" not in units.views(column.reshape(-1, 1), ["categories"])


def test_sparse_columns_have_no_codes():
    assert Units.of(sparse.csr_matrix(np.arange(12.0).reshape(-1, 1) % 4)).codes is None


def test_rare_code_is_found_among_many_rows():
    column = np.append(np.arange(50 * QUANTILES) % 3, [5.0])
    codes = Units.of(column.reshape(-1, 1)).codes
    assert codes.value.tolist() == [0, 1, 2, 5]
    assert_allclose(codes.share * len(column), np.unique(column, return_counts=True)[1])
