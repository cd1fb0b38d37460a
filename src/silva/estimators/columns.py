"""From the user's rows to the numbers the optimiser sees, and the names they are reported under.

Everything is first read as one *raw* matrix, a column for each input column: numbers as they are,
a category as the position of its level, NaN where a value is missing. Raw columns then become
*encoded* ones, each by one of three rules:

- a number stands for itself; a missing one is replaced by a value learned at fit, the median of the
  values seen;
- "income is missing" is 1 where the raw column is missing;
- "colour=red" is 1 where the raw column equals the position of that level. A column of numbers may
  be shown in this way, too, if it has few of them: "shop=3".

Arrays without missing values, and sparse matrices, are their own encoding and are not copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Number
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.validation import assert_all_finite, check_array, validate_data

Array = npt.NDArray[Any]
Levels = dict[int, tuple[Any, ...]]

NUMBER, MISSING = -1, -2  # the codes of an encoded column that is not a level

MEDIAN_ROWS = 1_000  # rows that the median of a complete column is taken from
FEW_ROWS, FEW_SHARE = 5, 0.01  # below this, a level or a missing value is too rare to learn from

CATEGORIES = (nw.String, nw.Categorical, nw.Enum, nw.Boolean)
NARROW = (nw.Int8, nw.Int16, nw.UInt8, nw.UInt16, nw.Float32, *CATEGORIES)  # exact in float32


@dataclass(frozen=True, eq=False)
class Columns:
    """How input columns become encoded columns.

    Attributes
    ----------
    inputs : tuple of str
        Names of the input columns; x0, x1, ... where the data had none.
    source : intp array of shape (encoded columns,)
        Input column of each encoded column.
    code : int32 array of shape (encoded columns,)
        What an encoded column holds: ``NUMBER`` the number itself, ``MISSING`` whether it is
        missing, k >= 0 whether the category is at level k, or the number is value k. One past the
        last level stands for every other level.
    fill : float64 array of shape (input columns,)
        What replaces a missing number.
    levels : dict of int to tuple
        The levels of each input column that is a category.
    missing : {"fill", "error"}
        What is done about missing values.
    values : dict of int to tuple
        The values of each input column of numbers that is shown as a category.
    """

    inputs: tuple[str, ...]
    source: Array
    code: Array
    fill: Array
    levels: Levels
    missing: str
    values: Levels = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns: "age", "colour=red", "income is missing"."""
        return self.named(self.inputs)

    @property
    def is_indicator(self) -> Array:
        """Mask of the encoded columns that hold 0 or 1 by construction."""
        return np.asarray(self.code != NUMBER)

    def named(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Names of the encoded columns when the input columns bear these names."""
        return tuple(
            inputs[source] + self._ending(source, code)
            for source, code in zip(self.source.tolist(), self.code.tolist(), strict=True)
        )

    def _ending(self, source: int, code: int) -> str:
        if code == NUMBER:
            return ""
        if code == MISSING:
            return " is missing"
        if source in self.values:
            return f"={self.values[source][code]:.15g}"
        levels = self.levels[source]
        return f"={levels[code]}" if code < len(levels) else "=other"


def fit_columns(
    estimator: Any, X: Any, *, missing: str = "fill", max_categories: int | None = 30
) -> tuple[Any, Columns]:
    """Validate X, learn its encoding and encode it.

    Sets ``n_features_in_`` and ``feature_names_in_`` on the estimator.

    Parameters
    ----------
    estimator : scikit-learn estimator
    X : array, sparse matrix or frame of shape (rows, columns)
        Frames are those of pandas, polars and whatever else narwhals reads. Their columns of
        strings, objects, categories and booleans are categories; an object column that holds
        only numbers is a number.
    missing : {"fill", "error"}, default="fill"
        "fill" replaces missing numbers by the median of the column's seen values (by 0 where
        there are none; for a column without missing values the median is taken from at most
        1,000 evenly spaced rows) and adds an indicator column where at least 1 % of the rows,
        at least 5 and all but at least 5 are missing. A missing category is a level of its own.
        "error" refuses missing values, at fit and later.
    max_categories : int or None, default=30
        Most columns that the levels of one category may take; None for no limit. The least
        frequent levels, and those with less than 1 % of the rows (less than 2 rows in small data,
        5 rows always suffice) share the column "colour=other", as soon as there are two of them.

    Returns
    -------
    matrix : float32 or float64 array in C order, or CSR array
    columns : Columns

    Notes
    -----
    A category that takes just two states is one column, that of its last level. A level that was
    not seen at fit falls in "colour=other" where there is such a column, else it is zero in all of
    them, and so is a missing category where none was missing at fit.
    """
    if missing not in ("fill", "error"):
        raise ValueError(f"missing must be 'fill' or 'error', not {missing!r}")
    if max_categories is not None and max_categories < 2:
        raise ValueError(f"max_categories must be at least 2 or None, not {max_categories!r}")
    levels = _learn_levels(X, max_categories)
    raw = _read(estimator, X, levels, reset=True)
    default = [f"x{place}" for place in range(raw.shape[1])]
    inputs = tuple(getattr(estimator, "feature_names_in_", default))
    gaps = _find_gaps(estimator, raw, inputs, missing)
    source, code = _plan(raw, gaps, levels)
    fill = np.zeros(raw.shape[1]) if sparse.issparse(raw) else _learn_fill(raw, gaps)
    columns = Columns(inputs, source, code, fill, levels, missing)
    return _expand(raw, gaps, columns), columns


def encode(estimator: Any, X: Any, columns: Columns) -> Any:
    """Validate X against what `fit_columns` saw and return it encoded in the same way."""
    raw = _read(estimator, X, columns.levels, reset=False)
    return _expand(raw, _find_gaps(estimator, raw, columns.inputs, columns.missing), columns)


def with_values(columns: Columns, values: Levels) -> Columns:
    """Return the encoding that shows columns of numbers as categories.

    Parameters
    ----------
    columns : Columns
    values : dict of int to tuple
        The values of some of the input columns of numbers. Any other number is zero in all of them.
    """
    plan: list[tuple[int, int]] = []
    for source, code in zip(columns.source.tolist(), columns.code.tolist(), strict=True):
        shown = range(len(values[source])) if code == NUMBER and source in values else [code]
        plan.extend((source, each) for each in shown)
    source, code = np.array(plan).T
    return replace(
        columns, source=source.astype(np.intp), code=code.astype(np.int32), values=values
    )


def recode(X: Array, before: Columns, after: Columns) -> Array:
    """Return rows that were encoded by `before` as `after`, made by `with_values`, encodes them."""
    if after is before:
        return X
    held = zip(before.source.tolist(), before.code.tolist(), strict=True)
    place = {each: number for number, each in enumerate(held)}
    result = np.empty((len(X), len(after.source)), X.dtype)
    for number, (source, code) in enumerate(
        zip(after.source.tolist(), after.code.tolist(), strict=True)
    ):
        if code >= 0 and source in after.values:
            result[:, number] = X[:, place[source, NUMBER]] == after.values[source][code]
        else:
            result[:, number] = X[:, place[source, code]]
    return result


def _frame(X: Any) -> nw.DataFrame[Any] | None:
    """X as a frame, or None; columns that are neither numbers nor categories are refused."""
    if isinstance(X, np.ndarray) or not nw.dependencies.is_into_dataframe(X):
        return None
    frame: nw.DataFrame[Any] = nw.from_native(X, eager_only=True)
    for name, dtype in frame.schema.items():
        # Unknown: sparse columns of pandas, the null column of polars; reading them will tell.
        if not dtype.is_numeric() and dtype not in (*CATEGORIES, nw.Object, nw.Unknown):
            raise _neither(name, dtype)
    return frame


def _neither(name: str, found: object) -> TypeError:
    return TypeError(
        f"column {name!r} of X holds {found}, neither numbers nor categories: drop it, or turn it "
        "into columns of numbers or strings (a date: days since a first day, the month, ...)"
    )


def _is_category(column: nw.Series[Any]) -> bool:
    if column.dtype != nw.Object:
        return column.dtype in CATEGORIES
    kinds = {type(value) for value in column.drop_nulls().to_list()}
    for kind in kinds:
        if not issubclass(kind, (str, np.bool_, Number)):
            raise _neither(column.name, kind.__name__)
    return any(issubclass(kind, (str, bool, np.bool_)) for kind in kinds)


def _learn_levels(X: Any, max_categories: int | None) -> Levels:
    """Levels with a column of their own, in order, for each column that is a category."""
    frame = _frame(X)
    if frame is None:
        return {}
    return {
        place: _keep_levels(column.drop_nulls().to_list(), len(column), max_categories)
        for place, column in enumerate(frame.iter_columns())
        if _is_category(column)
    }


def _keep_levels(values: list[Any], rows: int, max_categories: int | None) -> tuple[Any, ...]:
    counts = Counter(values)
    enough = min(FEW_ROWS, max(2, FEW_SHARE * rows))
    ranked = sorted(counts, key=lambda level: (-counts[level], str(level)))
    kept = [level for level in ranked if counts[level] >= enough and str(level) != "other"]
    if max_categories is not None:
        kept = kept[: max_categories - 1]
    if len(ranked) - len(kept) < 2:  # a group of one would only lose its name
        kept = ranked
    return tuple(sorted(kept, key=lambda level: (isinstance(level, str), level)))


def _read(estimator: Any, X: Any, levels: Levels, *, reset: bool) -> Any:
    """X as the raw matrix, checked as scikit-learn does but for NaN and infinity."""
    frame = _frame(X)
    if levels and frame is None:
        raise TypeError(
            f"{type(estimator).__name__} was fitted on a frame with categories, but X is "
            f"{type(X).__name__}: pass a frame with the same columns"
        )
    options: dict[str, Any] = {"ensure_all_finite": False, "order": "C", "dtype": _dtypes(X, frame)}
    if frame is not None and (levels or nw.Object in frame.schema.values()):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        raw = np.empty(frame.shape, options["dtype"][0])
        for place, column in enumerate(frame.iter_columns()):
            raw[:, place] = _codes(column, levels[place]) if place in levels else _numbers(column)
        return check_array(raw, estimator=estimator, input_name="X", **options)
    raw = validate_data(estimator, X, reset=reset, accept_sparse="csr", **options)
    return _canonical(raw) if sparse.issparse(raw) else raw


def _dtypes(X: Any, frame: nw.DataFrame[Any] | None) -> list[type]:
    """The two dtypes to keep; the first one is for the rest: float32 where that is exact."""
    if frame is not None:
        narrow = all(dtype in NARROW for dtype in frame.schema.values())
    else:
        dtype = getattr(X, "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.kind in "mM":
            raise TypeError(f"X holds {dtype}, not numbers: turn times into numbers first")
        narrow = isinstance(dtype, np.dtype) and np.can_cast(dtype, np.float32)
    return [np.float32, np.float64] if narrow else [np.float64, np.float32]


def _codes(column: nw.Series[Any], levels: tuple[Any, ...]) -> Array:
    """Position of each value among the levels, one past the last for others, NaN for none."""
    position = {level: place for place, level in enumerate(levels)}
    values = (position.get(value, len(levels)) for value in column.to_list())
    codes = np.fromiter(values, np.float32, len(column))
    codes[column.is_null().to_numpy()] = np.nan
    return codes


def _numbers(column: nw.Series[Any]) -> Array:
    values = column.to_numpy()
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: column {column.name!r} of X")
    if values.dtype == object:
        values = np.where(column.is_null().to_numpy(), np.nan, values)
    try:
        return values.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {column.name!r} of X must hold numbers: {error}") from error


def _canonical(X: Any) -> sparse.csr_array:
    """Return CSR with sorted, unique and short indices; the user's matrix is left as it is."""
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    short = np.int32  # scikit-learn's forests take no others
    if X.indices.dtype != short and max(X.nnz, *X.shape) <= np.iinfo(short).max:
        X = sparse.csr_array(
            (X.data, X.indices.astype(short), X.indptr.astype(short)), shape=X.shape
        )
    return sparse.csr_array(X)


def _find_gaps(estimator: Any, raw: Any, inputs: Sequence[str], missing: str) -> Array | None:
    """Where raw is missing, or None when it is complete; infinity is refused."""
    values = raw.data if sparse.issparse(raw) else raw
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):  # one pass and no memory: the common case
            return None
    name = type(estimator).__name__
    assert_all_finite(values, allow_nan=True, estimator_name=name, input_name="X")
    gaps: Array = np.isnan(values)
    if not gaps.any():
        return None
    if sparse.issparse(raw):
        column = inputs[raw.indices[gaps.argmax()]]
        raise ValueError(
            f"X is sparse and column {column!r} holds NaN: missing values are filled in dense X "
            "only; store what belongs there, or leave the entry out if it is zero"
        )
    if missing == "error":
        counts = gaps.sum(axis=0)
        place = int(counts.argmax())
        raise ValueError(
            f"column {inputs[place]!r} of X is missing (NaN) in {counts[place]} of {len(raw)} rows "
            "and missing='error': fill them beforehand, or set missing='fill'"
        )
    return gaps


def _learn_fill(raw: Array, gaps: Array | None) -> Array:
    """Median of the seen values of each column."""
    step = -(-len(raw) // MEDIAN_ROWS)
    gappy = np.zeros(raw.shape[1], bool) if gaps is None else gaps.any(axis=0)
    fill = np.zeros(raw.shape[1])
    fill[~gappy] = _median(raw[::step, ~gappy])
    for place in np.flatnonzero(gappy):
        seen = raw[~np.isnan(raw[:, place]), place]
        fill[place] = _median(seen) if seen.size else 0.0
    return fill


def _median(values: Array) -> Array:
    """Middle value of each column, the lower one of two: a value that was seen."""
    middle = (len(values) - 1) // 2
    return np.partition(np.ascontiguousarray(values.T), middle, axis=-1)[..., middle]


def _plan(raw: Any, gaps: Array | None, levels: Levels) -> tuple[Array, Array]:
    """Source and code of every encoded column."""
    rows, width = raw.shape
    lost = np.zeros(width, np.intp) if gaps is None else gaps.sum(axis=0)
    telling = (lost >= max(FEW_ROWS, FEW_SHARE * rows)) & (rows - lost >= FEW_ROWS)
    plan: list[tuple[int, int]] = []
    for place in range(width):
        codes = [NUMBER, MISSING] if telling[place] else [NUMBER]
        if place in levels:
            last = len(levels[place])
            others = [last] if (raw[:, place] == last).any() else []
            codes = [*range(last), *others, *([MISSING] if lost[place] else [])]
            if len(codes) == 2 and last:
                codes = [last - 1]
        plan.extend((place, code) for code in codes)
    source, code = np.array(plan).T
    return source.astype(np.intp), code.astype(np.int32)


def _expand(raw: Any, gaps: Array | None, columns: Columns) -> Any:
    """Apply the three rules to every encoded column."""
    marks = np.flatnonzero(columns.is_indicator)
    if sparse.issparse(raw):
        return raw if not marks.size else raw @ _selection(columns, raw.dtype)
    matrix = raw if gaps is None else np.where(gaps, columns.fill.astype(raw.dtype), raw)
    if not marks.size:
        return matrix
    filled, matrix = matrix, matrix.take(columns.source, axis=1)
    for place in marks:
        source, code = int(columns.source[place]), int(columns.code[place])
        if code == MISSING:
            matrix[:, place] = np.isnan(raw[:, source])
        elif source in columns.values:
            matrix[:, place] = filled[:, source] == columns.values[source][code]
        else:
            matrix[:, place] = raw[:, source] == code
    return matrix


def _selection(columns: Columns, dtype: Any) -> sparse.csr_array:
    """Input-by-encoded matrix that copies the numbers and leaves the indicators zero."""
    places = np.flatnonzero(~columns.is_indicator)
    entries = (np.ones(len(places), dtype), (columns.source[places], places))
    return sparse.csr_array(entries, shape=(len(columns.inputs), len(columns.source)))
