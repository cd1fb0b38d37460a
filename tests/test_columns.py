import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from silva.estimators.columns import encode, fit_columns, recode, with_values

FRAMES = pytest.mark.parametrize("Frame", [pd.DataFrame, pl.DataFrame])


class Encoder(TransformerMixin, BaseEstimator):
    def __init__(self, missing="fill", max_categories=30):
        self.missing = missing
        self.max_categories = max_categories

    def fit(self, X, y=None):
        self.fit_transform(X)
        return self

    def fit_transform(self, X, y=None):
        matrix, self.columns_ = fit_columns(
            self, X, missing=self.missing, max_categories=self.max_categories
        )
        return matrix

    def transform(self, X):
        check_is_fitted(self)
        return encode(self, X, self.columns_)

    def get_feature_names_out(self, input_features=None):
        return np.array(self.columns_.names, dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "fill"
        tags.input_tags.sparse = True
        return tags


def people(Frame):
    return Frame(
        {
            "age": [30.0, None, 50.0, 20.0, 40.0, 60.0] * 5,
            "colour": ["red", "green", "blue", "red", None, "green"] * 5,
            "sex": ["male", "female", "female"] * 10,
            "smoker": [True, False] * 15,
            "children": list(range(30)),
        }
    )


@parametrize_with_checks([Encoder(), Encoder(missing="error")])
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@FRAMES
def test_names_say_what_a_column_holds(Frame):
    encoder = Encoder()
    matrix = encoder.fit_transform(people(Frame))
    colours = ["colour=blue", "colour=green", "colour=red", "colour is missing"]
    names = ("age", "age is missing", *colours, "sex=male", "smoker=True", "children")
    assert encoder.columns_.names == names
    assert encoder.columns_.named("abcde")[:3] == ("a", "a is missing", "b=blue")
    assert_array_equal(encoder.columns_.source, [0, 0, 1, 1, 1, 1, 2, 3, 4])
    assert_array_equal(matrix[1], [40, 1, 0, 1, 0, 0, 0, 0, 1])
    assert_array_equal(matrix[4], [40, 0, 0, 0, 0, 1, 0, 1, 4])
    assert matrix.flags.c_contiguous
    assert list(encoder.feature_names_in_) == ["age", "colour", "sex", "smoker", "children"]


def test_pandas_and_polars_give_the_same_matrix():
    assert_array_equal(
        Encoder().fit_transform(people(pd.DataFrame)), Encoder().fit_transform(people(pl.DataFrame))
    )


@pytest.mark.parametrize(
    "frame",
    [
        people(pd.DataFrame).astype({"colour": "category", "sex": object}),
        people(pd.DataFrame).astype({"colour": "string", "smoker": "boolean", "age": "Float64"}),
        people(pl.DataFrame).with_columns(pl.col("colour").cast(pl.Categorical)),
        people(pl.DataFrame).with_columns(pl.col("sex").cast(pl.Enum(["male", "female", "n"]))),
        people(pl.DataFrame).to_arrow(),
    ],
    ids=["category and object", "nullable", "polars categorical", "polars enum", "pyarrow"],
)
def test_every_kind_of_category_gives_the_same_matrix(frame):
    expected = Encoder().fit_transform(people(pd.DataFrame))
    assert_array_equal(Encoder().fit_transform(frame), expected)
    assert_array_equal(Encoder().fit(people(pd.DataFrame)).transform(frame), expected)


def test_ordered_and_numeric_categories_are_levels():
    size = pd.Categorical(["S", "L", "M"] * 4, categories=["S", "M", "L"], ordered=True)
    frame = pd.DataFrame({"size": size, "code": pd.Categorical([1, 2, 10] * 4)})
    columns = Encoder().fit(frame).columns_
    assert columns.names == ("size=L", "size=M", "size=S", "code=1", "code=2", "code=10")


@FRAMES
def test_unknown_categories_are_zero_everywhere_without_a_group(Frame):
    encoder = Encoder().fit(Frame({"colour": ["red", "green", "blue"] * 2}))
    rows = encoder.transform(Frame({"colour": ["mauve", None, "red"]}))
    assert_array_equal(rows, np.diag([0, 0, 1]))


@FRAMES
def test_rare_and_unknown_categories_share_one_column(Frame):
    encoder = Encoder().fit(Frame({"colour": ["red", "green"] * 10 + ["mauve", "teal"]}))
    assert encoder.columns_.names == ("colour=green", "colour=red", "colour=other")
    rows = encoder.transform(Frame({"colour": ["mauve", "lime", "red", None]}))
    assert_array_equal(rows, [[0, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("rare", "third"), [(["other"] * 10 + ["mauve"], "other"), (["mauve"], "mauve")]
)
def test_a_level_called_other_joins_the_group_and_a_single_rare_one_keeps_its_name(rare, third):
    columns = Encoder().fit(pd.DataFrame({"colour": ["red", "green"] * 10 + rare})).columns_
    assert set(columns.names) == {"colour=green", "colour=red", f"colour={third}"}


def test_max_categories_keeps_the_most_frequent_levels():
    values = [f"c{level}" for level in range(6) for _ in range(10 + level)]
    frame = pd.DataFrame({"c": values})
    assert Encoder(max_categories=3).fit(frame).columns_.names == ("c=c4", "c=c5", "c=other")
    assert len(Encoder(max_categories=6).fit(frame).columns_.names) == 6
    assert len(Encoder(max_categories=None).fit(frame).columns_.names) == 6


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["yes", "no"] * 5, ("q=yes",)),
        (["yes", None] * 5, ("q=yes",)),
        (["yes"] * 8 + ["a", "b"], ("q=yes",)),
        (["yes"] * 10, ("q=yes",)),
        ([None] * 10, ("q is missing",)),
        ([f"id{row}" for row in range(10)], ("q=other",)),
    ],
)
def test_two_states_take_one_column(values, names):
    frame = pd.DataFrame({"q": pd.Series(values, dtype="string")})
    assert Encoder().fit(frame).columns_.names == names


@FRAMES
def test_numbers_in_nullable_columns_are_numbers(Frame):
    values = [1, None, 3]
    column = pd.array(values, dtype="Int64") if Frame is pd.DataFrame else values
    assert_array_equal(Encoder().fit_transform(Frame({"n": column})), [[1], [1], [3]])


def test_object_columns_of_numbers_are_numbers():
    frame = pd.DataFrame({"n": pd.Series([1, pd.NA, 2.5, None], dtype=object)})
    assert_array_equal(Encoder().fit_transform(frame), [[1], [1], [2.5], [1]])


def test_missing_numbers_are_filled_with_the_median_seen_at_fit():
    X = np.array([[1.0, 5.0], [2.0, np.nan], [9.0, 7.0]])
    encoder = Encoder().fit(X)
    assert_array_equal(encoder.transform([[np.nan, np.nan]]), [[2, 5]])
    assert encoder.columns_.names == ("x0", "x1")
    assert np.isnan(X[1, 1])


@pytest.mark.parametrize(
    ("rows", "lost", "told"),
    [(100, 4, False), (100, 5, True), (1000, 9, False), (1000, 10, True), (9, 5, False)],
)
def test_an_indicator_is_added_where_missingness_can_be_learned_from(rows, lost, told):
    X = np.ones((rows, 2))
    X[:lost, 1] = np.nan
    encoder = Encoder()
    matrix = encoder.fit_transform(X)
    assert encoder.columns_.names == (("x0", "x1", "x1 is missing") if told else ("x0", "x1"))
    assert_array_equal(encoder.columns_.is_indicator, [False, False, True][: matrix.shape[1]])
    if told:
        assert_array_equal(matrix[:, 2], np.arange(rows) < lost)


def test_a_column_without_any_value_is_constant():
    X = np.column_stack([np.full(20, np.nan), np.arange(20)])
    assert_array_equal(Encoder().fit_transform(X), np.nan_to_num(X))


@pytest.mark.parametrize("X", [np.array([[1.0, np.nan]] * 3), pd.DataFrame({"a": ["x", None] * 3})])
def test_missing_values_are_refused_on_request(X):
    with pytest.raises(ValueError, match=r"column '(x1|a)' .* \(NaN\) in 3 of .* missing='fill'"):
        Encoder(missing="error").fit(X)


def test_missing_values_in_sparse_data_are_refused():
    X = sparse.csr_array(np.array([[0.0, 1.0], [np.nan, 0.0]]))
    with pytest.raises(ValueError, match="sparse and column 'x0' holds NaN"):
        Encoder().fit(X)


@pytest.mark.parametrize(
    "X", [np.array([[1.0, np.inf]]), pd.DataFrame({"a": ["x"], "b": [np.inf]})]
)
def test_infinity_is_refused(X):
    with pytest.raises(ValueError, match="infinity"):
        Encoder().fit(X)


def test_large_finite_values_whose_sum_overflows_are_accepted():
    X = np.full((4, 2), np.finfo(np.float64).max)
    assert_array_equal(Encoder().fit_transform(X), X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complete_arrays_are_not_copied(dtype):
    X = np.ones((10, 3), dtype)
    encoder = Encoder()
    for matrix in (encoder.fit_transform(X), encoder.transform(X)):
        assert np.shares_memory(matrix, X)
        assert matrix.dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(bool, np.float32), (np.uint8, np.float32), (np.int16, np.float32), (np.int32, np.float64)],
)
def test_integers_become_the_smallest_exact_float(dtype, expected):
    assert Encoder().fit_transform(np.ones((2, 2), dtype)).dtype == expected
    frame = pl.DataFrame(np.ones((2, 2), dtype)).with_columns(c=pl.Series(["a", "b"]))
    assert Encoder().fit_transform(frame).dtype == expected


@pytest.mark.parametrize("form", ["csr_matrix", "csc_array", "coo_array"])
def test_sparse_data_stays_sparse(form):
    X = sparse.random_array((20, 1000), density=0.01, rng=0, dtype=np.float32)
    X = getattr(sparse, form)(X)
    encoder = Encoder()
    for matrix in (encoder.fit_transform(X), encoder.transform(X)):
        assert isinstance(matrix, sparse.csr_array)
        assert matrix.has_canonical_format
        assert matrix.dtype == np.float32
        assert_array_equal(matrix.toarray(), X.toarray())


def test_unsorted_sparse_data_is_sorted_in_a_copy():
    indices = np.array([2, 0, 0], np.int64)
    X = sparse.csr_array((np.array([1.0, 2.0, 3.0]), indices, np.array([0, 3, 3])), shape=(2, 3))
    assert_array_equal(Encoder().fit_transform(X).indices, [0, 2])
    assert_array_equal(X.indices, [2, 0, 0])


def test_long_indices_are_shortened_since_forests_take_no_others():
    X = sparse.random_array((200, 5), density=0.5, rng=0, format="csr")
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    matrix = Encoder().fit_transform(X)
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    assert_array_equal(matrix.toarray(), X.toarray())
    assert X.indices.dtype == np.int64


def test_sparse_rows_fit_a_model_with_indicators():
    X = np.arange(60.0).reshape(20, 3)
    X[:6, 1] = np.nan
    encoder = Encoder().fit(X)
    rows = encoder.transform(sparse.csr_array(X[6:]))
    assert sparse.issparse(rows)
    assert_array_equal(rows.toarray(), encoder.transform(X[6:]))


@FRAMES
def test_shuffled_columns_are_refused(Frame):
    frame = people(Frame)
    encoder = Encoder().fit(frame)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        encoder.transform(frame[["colour", "age", "sex", "smoker", "children"]])
    with pytest.raises(ValueError, match="yet now missing"):
        encoder.transform(frame[["age", "colour"]])


def test_an_array_cannot_stand_for_a_frame_with_categories():
    with pytest.raises(TypeError, match="pass a frame with the same columns"):
        Encoder().fit(people(pd.DataFrame)).transform(np.ones((2, 5)))


def test_a_number_cannot_become_a_word():
    frame = people(pd.DataFrame)
    with pytest.raises(ValueError, match="'age' of X must hold numbers: could not convert string"):
        Encoder().fit(frame).transform(frame.assign(age="old"))
    with pytest.raises(ValueError, match="could not convert string to float"):
        Encoder().fit(np.array([["a"], ["b"]], dtype=object))


@FRAMES
def test_times_are_refused_with_a_way_out(Frame):
    when = np.array(["2020-01-01", "2020-01-02"], "datetime64[ns]")
    with pytest.raises(TypeError, match=r"column 'when' of X holds Datetime.*days since"):
        Encoder().fit(Frame({"when": when}))
    with pytest.raises(TypeError, match="datetime64"):
        Encoder().fit(when[:, None])


def test_odd_objects_are_refused_by_name():
    with pytest.raises(TypeError, match="column 'o' of X holds list"):
        Encoder().fit(pd.DataFrame({"o": [[1], [2]]}))
    with pytest.raises(TypeError, match="column 'o' of X holds List"):
        Encoder().fit(pl.DataFrame({"o": [[1], [2]]}))
    with pytest.raises(ValueError, match="Complex data not supported: column 'z'"):
        Encoder().fit(pd.DataFrame({"a": ["x", "y"], "z": [1j, 2.0]}))


@FRAMES
def test_empty_frames_are_refused(Frame):
    with pytest.raises(ValueError, match="0 sample"):
        Encoder().fit(people(Frame)[:0])


@pytest.mark.parametrize(
    ("options", "words"),
    [({"missing": "drop"}, "missing must be"), ({"max_categories": 1}, "max_categories must be")],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        Encoder(**options).fit(np.ones((2, 2)))


def test_columns_survive_pickling():
    frame = people(pd.DataFrame)
    encoder = Encoder().fit(frame)
    twin = pickle.loads(pickle.dumps(encoder))
    assert twin.columns_.names == encoder.columns_.names
    assert_array_equal(twin.transform(frame), encoder.transform(frame))


@pytest.mark.parametrize("Frame", [pd.DataFrame, pl.DataFrame])
def test_numbers_shown_as_categories_are_encoded_from_rows_and_from_their_first_encoding(Frame):
    shop = [3.0, None, 1.0, 3.0, 7.0, None] * 5
    frame = Frame({"age": list(range(30)), "colour": ["red", "blue", "green"] * 10, "shop": shop})
    encoder = Encoder()
    matrix, before = encoder.fit_transform(frame), encoder.columns_
    encoder.columns_ = after = with_values(before, {2: (1.0, 3.0, 7.0)})
    assert after.names == (
        "age", "colour=blue", "colour=green", "colour=red", "shop=1", "shop=3", "shop=7",
        "shop is missing",
    )  # fmt: skip
    shown = recode(matrix, before, after)
    assert_array_equal(shown[:, :4], matrix[:, :4])
    filled = [3.0 if value is None else value for value in shop]  # the median
    assert_array_equal(shown[:, 4:7], np.equal.outer(filled, [1.0, 3.0, 7.0]))
    assert_array_equal(shown[:, 7], [value is None for value in shop])
    assert_array_equal(encoder.transform(frame), shown)
    assert recode(matrix, before, before) is matrix


def test_a_number_that_was_not_shown_is_in_no_category():
    encoder = Encoder().fit([[1.0], [2.0], [2000001.0]])
    encoder.columns_ = with_values(encoder.columns_, {0: (1.0, 2.0, 2000001.0)})
    assert encoder.columns_.names == ("x0=1", "x0=2", "x0=2000001")
    assert_array_equal(encoder.transform([[2000000.0], [2000001.0]]), [[0, 0, 0], [0, 0, 1]])


number = st.none() | st.floats(-1e6, 1e6, width=32)
word = st.none() | st.sampled_from(["a", "b", "c", "other", "é", ""])
row = st.tuples(number, word, st.none() | st.booleans(), st.integers(-5, 5))


@settings(max_examples=60, deadline=None)
@given(st.lists(row, min_size=1, max_size=30), st.sampled_from([2, 3, 30]))
def test_fitting_and_encoding_agree(rows, limit):
    schema = {"x": pl.Float64, "w": pl.String, "b": pl.Boolean, "i": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    encoder = Encoder(max_categories=limit)
    matrix = encoder.fit_transform(frame)
    assert matrix.shape[1] == len(encoder.columns_.names)
    assert_array_equal(encoder.transform(frame), matrix)
    assert_array_equal(encoder.transform(frame.to_pandas()), matrix)
    assert_allclose(np.unique(matrix[:, encoder.columns_.is_indicator]) % 1, 0)
