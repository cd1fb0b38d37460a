"""Partial labels: every container and marker is read alike, and what is ambiguous is refused."""

import datetime
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from silva.estimators.partial_labels import read_classes, read_numbers, read_totals

NAN = float("nan")

# The same five rows, b ? a b ?, in every form that y may take.
TEXTS = {
    "list with None": ["b", None, "a", "b", None],
    "list with NaN": ["b", NAN, "a", "b", NAN],
    "list with -1": ["b", -1, "a", "b", -1.0],
    "list with everything": ["b", pd.NA, "a", "b", -1],
    "tuple": ("b", None, "a", "b", None),
    "objects": np.array(["b", None, "a", "b", -1], object),
    "masked": np.ma.array(["b", "x", "a", "b", "x"], mask=[0, 1, 0, 0, 1]),
    "pandas": pd.Series(["b", None, "a", "b", None]),
    "pandas objects": pd.Series(["b", -1, "a", "b", None], dtype=object),
    "pandas string": pd.Series(["b", None, "a", "b", None], dtype="string"),
    "pandas category": pd.Series(["b", None, "a", "b", None], dtype="category"),
    "pandas pyarrow": pd.Series(["b", None, "a", "b", None], dtype="string[pyarrow]"),
    "polars": pl.Series(["b", None, "a", "b", None]),
    "polars category": pl.Series(["b", None, "a", "b", None], dtype=pl.Categorical),
    "polars enum": pl.Series(["b", None, "a", "b", None], dtype=pl.Enum(["b", "a"])),
    "polars objects": pl.Series(["b", -1, "a", "b", None], dtype=pl.Object),
}
NUMBERS = {
    "list": ([7, -1, 3, 7, -1], int),
    "list with None": ([7, None, 3, 7, -1], int),
    "int8": (np.array([7, -1, 3, 7, -1], np.int8), np.int8),
    "floats": (np.array([7, NAN, 3, 7, -1]), float),
    "float32": (np.array([7, NAN, 3, 7, -1], np.float32), np.float32),
    "objects": (np.array([np.int64(7), None, 3, 7, -1], object), int),
    "masked": (np.ma.array([7, 0, 3, 7, 0], mask=[0, 1, 0, 0, 1]), int),
    "pandas": (pd.Series([7, -1, 3, 7, -1]), int),
    "pandas floats": (pd.Series([7, None, 3, 7, None]), float),
    "pandas Int64": (pd.Series([7, None, 3, 7, -1], dtype="Int64"), int),
    "pandas category": (pd.Series([7, None, 3, 7, None], dtype="category"), int),
    "pandas pyarrow": (pd.Series([7, None, 3, 7, None], dtype="int64[pyarrow]"), int),
    "polars": (pl.Series([7, None, 3, 7, -1]), int),
    "polars floats": (pl.Series([7.0, None, 3, 7, NAN]), float),
}


def classes_of(y):
    return read_classes(y, len(y))


# ---- classes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", TEXTS)
def test_every_form_of_text_is_read_alike(form):
    read = classes_of(TEXTS[form])
    assert read.classes.tolist() == ["a", "b"]
    assert_array_equal(read.codes, [1, -1, 0, 1, -1])
    assert_array_equal(read.labelled, [True, False, True, True, False])
    assert read.codes.dtype == np.int32
    assert read.labelled.dtype == bool


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 2")
def test_numpy_text_with_missing_entries_is_text():
    y = np.array(["b", None, "a"], np.dtypes.StringDType(na_object=None))
    assert_array_equal(classes_of(y).codes, [1, -1, 0])


@pytest.mark.parametrize("form", NUMBERS)
def test_every_form_of_numbers_is_read_alike_and_keeps_its_type(form):
    y, dtype = NUMBERS[form]
    read = classes_of(y)
    assert_array_equal(read.classes, [3, 7])
    assert read.classes.dtype == dtype
    assert_array_equal(read.codes, [1, -1, 0, 1, -1])


@pytest.mark.parametrize(
    "y",
    [
        [True, None, False],
        [True, -1, False],
        pd.Series([True, None, False], dtype="boolean"),
        pl.Series([True, None, False]),
    ],
    ids=["None", "-1", "pandas", "polars"],
)
def test_truth_values_stay_truth_values(y):
    read = classes_of(y)
    assert_array_equal(read.classes, [False, True])
    assert read.classes.dtype == bool
    assert_array_equal(read.codes, [1, -1, 0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, float, bool, "U1", object])
def test_complete_labels_match_np_unique(dtype):
    y = np.random.default_rng(0).integers(0, 2, 50).astype(dtype)
    read = classes_of(y)
    classes, codes = np.unique(y, return_inverse=True)
    assert_array_equal(read.classes, classes)
    assert_array_equal(read.codes, codes)
    assert read.labelled.all()


def test_negative_labels_other_than_the_marker_are_classes():
    read = classes_of([-2, -1, 3])
    assert_array_equal(read.classes, [-2, 3])
    assert_array_equal(read.codes, [0, -1, 1])


def test_indicators_have_a_one_at_each_known_class_and_no_other():
    read = classes_of(["b", None, "a"])
    assert_array_equal(read.indicators(), [[0, 1], [0, 0], [1, 0]])
    assert read.indicators().dtype == np.float64


@pytest.mark.parametrize("name", ["-1", "-1.0", "", " ", "nan", "NaN", "None", "<NA>"])
@pytest.mark.parametrize("form", [list, np.array, pd.Series, pl.Series])
def test_text_that_looks_like_a_marker_is_refused(name, form):
    with pytest.raises(ValueError, match=f"y holds the text '{name}', .* write None"):
        classes_of(form(["a", "b", name]))


def test_markers_lost_in_an_array_of_strings_are_refused():
    for marker in (None, NAN, -1):
        with pytest.raises(ValueError, match="no class and no marker"):
            classes_of(np.array(["a", "b", marker], dtype="U4"))


@pytest.mark.parametrize("y", [[0.5, 1.5, -1], [0, NAN, 0.5], np.array([1, np.inf])])
def test_numbers_that_are_not_whole_are_no_classes(y):
    with pytest.raises(ValueError, match=r"Unknown label type: y holds (0\.5|inf)"):
        classes_of(y)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["2020-01-01", "NaT"], "datetime64[D]"),
        np.array([b"a", b"b"]),
        [1j, 2],
        [datetime.date(2020, 1, 1), None],
        [[1], [1, 2]],
        [{}, {}],
    ],
    ids=["times", "bytes", "complex", "dates", "ragged", "dicts"],
)
def test_other_types_are_no_classes(y):
    with pytest.raises((ValueError, TypeError), match=r"Unknown label type: y holds|a mix of"):
        classes_of(y)


def test_a_mixture_of_kinds_is_refused():
    with pytest.raises(TypeError, match="one kind, got a mix of numbers and text"):
        classes_of(["a", 1, None])
    with pytest.raises(TypeError, match="one kind, got a mix of numbers and truth values"):
        classes_of([True, 2, None])


@pytest.mark.parametrize("y", [[-1, -1], [None, NAN], pl.Series([None, None]), np.full(2, NAN)])
def test_no_labelled_row_is_refused(y):
    with pytest.raises(ValueError, match="no labelled row: all 2 entries are -1 or missing"):
        classes_of(y)


def test_wrong_shapes_of_classes_are_refused():
    with pytest.raises(ValueError, match="y has 3 entries, X has 4 rows"):
        read_classes([0, 1, -1], 4)
    with pytest.raises(ValueError, match=r"one dimension, .* got shape \(2, 2\)"):
        read_classes([[0, 1], [1, 0]], 2)
    with pytest.raises(ValueError, match="an entry for each row, got 3"):
        read_classes(3, 1)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        read_classes(None, 1)
    with pytest.raises(TypeError, match="y is sparse"):
        read_classes(sparse.csr_array([[0, 1]]), 2)


@pytest.mark.parametrize("form", [np.array, pd.DataFrame, lambda y: pl.DataFrame(y, orient="row")])
def test_a_column_is_read_with_a_warning(form):
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        read = read_classes(form([[1], [-1], [0]]), 3)
    assert_array_equal(read.codes, [1, -1, 0])


def test_one_class_is_read_with_a_warning():
    with pytest.warns(UserWarning, match="one class only, 'a': the model") as caught:
        read = classes_of(["a", None, "a"])
    assert "-1" not in str(caught[0].message)
    assert_array_equal(read.codes, [0, -1, 0])


def test_classes_coded_minus_one_and_one_get_a_warning_that_says_how_to_recode():
    y = np.array([-1, 1, 1, -1])
    with pytest.warns(UserWarning, match=r"one class only.*-1 is read as unlabelled.*np\.where"):
        read = classes_of(y)
    assert_array_equal(read.labelled, y == 1)
    assert_array_equal(classes_of(np.where(y == -1, 0, y)).classes, [0, 1])


def test_reading_leaves_y_as_it_was():
    y = np.array(["b", None, "a", -1], object)
    before = y.copy()
    classes_of(y)
    assert_array_equal(y, before)


# ---- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "y",
    [
        [0.5, None, -1, NAN],
        (0.5, pd.NA, -1, None),
        np.array([0.5, NAN, -1, NAN]),
        np.array([0.5, None, -1, None], object),
        np.ma.array([0.5, 9, -1, 9], mask=[0, 1, 0, 1]),
        pd.Series([0.5, None, -1, None]),
        pd.Series([0.5, None, -1, None], dtype="Float64"),
        pl.Series([0.5, None, -1, NAN]),
    ],
    ids=["list", "tuple", "floats", "objects", "masked", "pandas", "Float64", "polars"],
)
def test_every_form_of_targets_is_read_alike(y):
    read = read_numbers(y, 4)
    assert_array_equal(read.targets, [[0.5], [0], [-1], [0]])
    assert_array_equal(read.labelled, [True, False, True, False])
    assert read.targets.dtype == np.float64
    assert read.flat


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool])
def test_complete_targets_of_any_numeric_type_become_float64(dtype):
    y = np.array([0, 1, 1], dtype)
    read = read_numbers(y, 3)
    assert_array_equal(read.targets[:, 0], y.astype(float))
    assert read.targets.dtype == np.float64


@pytest.mark.parametrize(
    "form",
    [np.array, list, pd.DataFrame, lambda y: pl.DataFrame(y, orient="row")],
    ids=["array", "list", "pandas", "polars"],
)
def test_several_outputs_are_read_by_rows(form):
    read = read_numbers(form([[1.0, 2.0], [NAN, NAN], [-1.0, 0.5]]), 3)
    assert_array_equal(read.targets, [[1, 2], [0, 0], [-1, 0.5]])
    assert_array_equal(read.labelled, [True, False, True])
    assert not read.flat


def test_a_column_of_targets_is_not_flat():
    assert not read_numbers(np.zeros((3, 1)), 3).flat


def test_a_row_with_some_outputs_is_refused_by_its_number():
    with pytest.raises(ValueError, match="row 1 of y is missing in 1 of 2 outputs: give all"):
        read_numbers([[1, 2], [NAN, 2], [NAN, NAN]], 3)


def test_infinity_is_refused_by_its_row():
    with pytest.raises(ValueError, match="infinity in row 2"):
        read_numbers([0, NAN, np.inf], 3)
    with pytest.raises(ValueError, match="infinity in row 1"):
        read_numbers([[0, 1], [-np.inf, 0]], 2)


def test_wrong_targets_are_refused():
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        read_numbers(None, 3)
    with pytest.raises(ValueError, match="y has 2 entries, X has 3 rows"):
        read_numbers([0, 1], 3)
    with pytest.raises(ValueError, match="no labelled row: all 3 entries are missing"):
        read_numbers(np.full(3, NAN), 3)
    with pytest.raises(ValueError, match="no labelled row"):
        read_numbers(np.full((3, 2), NAN), 3)
    with pytest.raises(ValueError, match=r"got \(3, 2, 1\)"):
        read_numbers(np.zeros((3, 2, 1)), 3)
    with pytest.raises(ValueError, match=r"got \(3, 0\)"):
        read_numbers(np.zeros((3, 0)), 3)
    with pytest.raises(ValueError, match=r"must hold numbers, .* got '0.5'"):
        read_numbers(["0.5", "nan", "1"], 3)
    with pytest.raises(TypeError, match="a mix of numbers and text"):
        read_numbers([0.5, "nan", 1], 3)
    with pytest.raises(ValueError, match="must hold numbers"):
        read_numbers([1j, 2j, None], 3)
    with pytest.raises(ValueError, match="must hold numbers"):
        read_numbers(np.array(["2020-01-01"] * 3, "datetime64[D]"), 3)


# ---- totals -------------------------------------------------------------------------------------


@pytest.fixture
def partial():
    return read_classes(["b", "a", None, None, None, None], 6)


def test_numbers_of_rows_are_totals_in_the_order_of_the_classes(partial):
    totals = read_totals({"b": 3, "a": 1}, partial, np.ones(6))
    assert_array_equal(totals, [1, 3])
    assert totals.dtype == np.float64


def test_shares_are_of_the_weight_of_the_unlabelled_rows(partial):
    weight = np.array([5, 5, 1, 2, 3, 4.0])
    assert_allclose(read_totals({"a": 0.3, "b": 0.7}, partial, weight), [3, 7])
    assert_allclose(read_totals({"a": 3, "b": 7}, partial, weight), [3, 7])


def test_counted_values_of_a_series_are_totals(partial):
    known = pd.Series(["a", "b", "b", "b"])
    assert_array_equal(read_totals(known.value_counts(), partial, np.ones(6)), [1, 3])
    shares = known.value_counts(normalize=True)
    assert_allclose(read_totals(shares, partial, np.ones(6)), [1, 3])


def test_rounded_totals_are_stretched_to_the_sum(partial):
    totals = read_totals({"a": 0.3333333, "b": 0.6666666}, partial, np.ones(6))
    assert totals.sum() == pytest.approx(4, abs=1e-12)
    with pytest.raises(ValueError, match=r"must sum to 4.* shares to 1"):
        read_totals({"a": 0.333, "b": 0.666}, partial, np.ones(6))


def test_one_unlabelled_row_takes_shares_and_numbers_alike():
    partial = read_classes([0, 1, -1], 3)
    assert_allclose(read_totals({0: 0.25, 1: 0.75}, partial, np.ones(3)), [0.25, 0.75])


def test_integer_classes_match_integer_keys_of_any_type():
    partial = read_classes(np.array([0, 1, np.nan, np.nan]), 4)
    assert_array_equal(read_totals({np.int8(0): 2, 1.0: 0}, partial, np.ones(4)), [2, 0])


def test_totals_that_do_not_sum_up_are_refused_with_both_sums(partial):
    with pytest.raises(ValueError, match=r"sum to 6: .* sum to 4, .* shares to 1"):
        read_totals({"a": 2, "b": 4}, partial, np.ones(6))


def test_totals_of_classes_without_label_are_refused(partial):
    with pytest.raises(ValueError, match=r"names 'c', which has no labelled row: .* 'a', 'b'"):
        read_totals({"a": 1, "b": 2, "c": 1}, partial, np.ones(6))


def test_totals_that_lack_a_class_are_refused(partial):
    with pytest.raises(ValueError, match="lacks 'a'"):
        read_totals({"b": 4}, partial, np.ones(6))


@pytest.mark.parametrize(
    ("value", "error"), [(-1, ValueError), (NAN, ValueError), ("1", TypeError)]
)
def test_totals_that_are_no_amount_are_refused(partial, value, error):
    with pytest.raises(error, match=r"class_totals\['a'\] must be"):
        read_totals({"a": value, "b": 4}, partial, np.ones(6))


def test_totals_that_are_no_mapping_are_refused(partial):
    with pytest.raises(TypeError, match="must map each class to a number, got list"):
        read_totals([1, 3], partial, np.ones(6))


def test_totals_without_unlabelled_rows_must_be_zero():
    partial = read_classes([0, 1], 2)
    assert_array_equal(read_totals({0: 0, 1: 0}, partial, np.ones(2)), [0, 0])
    with pytest.raises(ValueError, match="sum to 1, but no unlabelled row"):
        read_totals({0: 0.5, 1: 0.5}, partial, np.ones(2))


def test_warnings_point_at_the_caller_of_fit():
    class Model:
        def fit(self, y):
            read_classes(y, len(y))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Model().fit([1, -1])
        Model().fit([[1], [0]])
    assert [entry.filename for entry in caught] == [__file__] * 2
    assert caught[0].lineno != caught[1].lineno
