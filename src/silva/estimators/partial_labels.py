"""From the user's y, most of it missing, to arrays and the mask of the labelled rows.

A row is unlabelled where y is missing (None, NaN, pd.NA, a null of polars), and in classes also
where it is the number -1. Whatever might be meant as a marker but is not one, such as the string
"nan", is an error that says what to write instead.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from silva.estimators.parameters import check_number

Array = npt.NDArray[Any]

LOOK_UNLABELLED = ("", "-1", "-1.0", "nan", "NaN", "None", "<NA>")  # what markers turn into as text
KINDS = {str: "text", bool: "truth values", np.bool_: "truth values", Real: "numbers"}
TOTALS_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class PartialClasses:
    """The class of some rows.

    Attributes
    ----------
    classes : array of shape (classes,)
        Sorted, each with at least one labelled row.
    codes : int32 array of shape (rows,)
        Position of the row's class, -1 where it is unlabelled.
    labelled : bool array of shape (rows,)
    """

    classes: Array
    codes: Array
    labelled: Array

    def indicators(self) -> Array:
        """Return the (rows, classes) float64 matrix with a one at each known class."""
        result = np.zeros((len(self.codes), len(self.classes)))
        result[self.labelled, self.codes[self.labelled]] = 1.0
        return result


@dataclass(frozen=True, eq=False)
class PartialTargets:
    """The numbers of some rows.

    Attributes
    ----------
    targets : float64 array of shape (rows, outputs)
        Zero where the row is unlabelled.
    labelled : bool array of shape (rows,)
    flat : bool
        Whether y had one dimension.
    """

    targets: Array
    labelled: Array
    flat: bool


def read_classes(y: Any, n_rows: int) -> PartialClasses:
    """Read partially known classes.

    Parameters
    ----------
    y : sequence, array, series or frame of one column
        Integers, strings or truth values. Floats must be whole numbers, and stay floats.
        Unlabelled rows are missing or the number -1, in any mixture.
    n_rows : int
        Rows of X.

    Returns
    -------
    PartialClasses

    Warns
    -----
    DataConversionWarning
        y is a column instead of one-dimensional.
    UserWarning
        There is but one class.
    """
    values = _values(y)
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected: pass y.ravel()",
            DataConversionWarning,
            stacklevel=3,
        )
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(
            f"y must have one dimension, a class for each row, got shape {values.shape}"
        )
    check_length(values, n_rows)
    marked = _is_minus_one(values)
    labelled = ~(marked | _missing(values))
    _require_labels(labelled, "-1 or missing")
    classes, codes = np.unique(_class_labels(values[labelled]), return_inverse=True)
    _check_names(classes)
    if len(classes) == 1:
        _warn_one_class(classes.tolist()[0], marked)
    all_codes = np.full(n_rows, -1, np.int32)
    all_codes[labelled] = codes
    return PartialClasses(classes, all_codes, labelled)


def read_numbers(y: Any, n_rows: int) -> PartialTargets:
    """Read partially known numbers, one or several for each row.

    Parameters
    ----------
    y : sequence, array, series or frame of shape (rows,) or (rows, outputs)
        Unlabelled rows are missing, in all outputs; -1 is a number like any other.
    n_rows : int
        Rows of X.

    Returns
    -------
    PartialTargets
    """
    values = _values(y)
    if values.ndim not in (1, 2) or 0 in values.shape[1:]:
        raise ValueError(f"y must have shape (rows,) or (rows, outputs), got {values.shape}")
    check_length(values, n_rows)
    missing = _missing(values)
    by_output = missing.reshape(n_rows, -1)
    labelled = np.asarray(~by_output.any(axis=1))
    halves = ~labelled & ~by_output.all(axis=1)
    if halves.any():
        row = int(halves.argmax())
        raise ValueError(
            f"row {row} of y is missing in {by_output[row].sum()} of {by_output.shape[1]} outputs: "
            "give all outputs of a row or none (NaN in all), or fit a model for each output"
        )
    _require_labels(labelled, "missing")
    targets = np.zeros(values.shape)
    targets[~missing] = _numbers(values[~missing])
    infinite = np.isinf(targets.reshape(n_rows, -1)).any(axis=1)
    if infinite.any():
        raise ValueError(
            f"y contains infinity in row {infinite.argmax()}: targets are finite numbers, or NaN "
            "where a row is unlabelled"
        )
    return PartialTargets(targets.reshape(n_rows, -1), labelled, values.ndim == 1)


def read_totals(class_totals: Any, partial: PartialClasses, weight: Array) -> Array:
    """Read the known numbers, or shares, of each class among the unlabelled rows.

    Parameters
    ----------
    class_totals : mapping, or series, of class to number
        One entry for each class of the labels. They sum up to the weight of the unlabelled rows
        (their number, if all weights are 1), or to 1 if they are shares; where that weight is 1,
        the two mean the same.
    partial : PartialClasses
    weight : array of shape (rows,)

    Returns
    -------
    totals : float64 array of shape (classes,)
        Sums of weights, in the order of the classes, that add up to that of the unlabelled rows.
    """
    if not hasattr(class_totals, "keys"):
        raise TypeError(
            f"class_totals must map each class to a number, got {type(class_totals).__name__}"
        )
    given, classes = dict(class_totals), partial.classes.tolist()
    unknown = [name for name in given if name not in classes]
    if unknown:
        raise ValueError(
            f"class_totals names {unknown[0]!r}, which has no labelled row: the classes of y are "
            f"{_listed(classes)}; label a row of it, or leave it out"
        )
    absent = [name for name in classes if name not in given]
    if absent:
        raise ValueError(
            f"class_totals lacks {_listed(absent)}: give a number for every class of y, 0 if no "
            "unlabelled row has it"
        )
    totals = np.array([
        check_number(f"class_totals[{name!r}]", given[name]) for name in classes
    ])  # fmt: skip
    total, rows = float(totals.sum()), float(weight[~partial.labelled].sum())
    if rows == 0.0 and total != 0.0:
        raise ValueError(
            f"class_totals sum to {total:g}, but no unlabelled row (of positive weight) is there "
            "to share them: leave class_totals out"
        )
    if total == rows:
        return totals
    if any(abs(total - whole) <= TOTALS_TOLERANCE * whole for whole in (rows, 1.0)):
        return totals * (rows / total)
    raise ValueError(
        f"class_totals sum to {total:.10g}: as numbers they must sum to {rows:.10g}, the weight of "
        "the unlabelled rows, as shares to 1"
    )


def worth_meeting(totals: Array | None) -> Array | None:
    """Return totals unless all are 0: without an unlabelled row there is nothing to meet."""
    return None if totals is None or not totals.any() else totals


def guess_kind(y: Any) -> str:
    """Guess from y alone what it holds: "classes", "numbers" or "unclear".

    Several columns and fractions are numbers, text and truth values are classes. So are whole
    numbers, unless they are floats that do not mark rows by -1 and of which one occurs but once.
    If numbers are missing and others are -1, what -1 means is unclear.
    """
    values = _values(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        return "numbers"
    missing, marked = _missing(values), _is_minus_one(values)
    labels = _plain(values[~(missing | marked)])
    if labels.dtype.kind not in "iuf":
        return "classes"
    distinct, counts = np.unique(labels, return_counts=True)
    if (distinct % 1 != 0).any():
        return "numbers"
    if missing.any() and marked.any():
        return "unclear"
    if labels.dtype.kind == "f" and not marked.any() and (counts == 1).any():
        return "numbers"
    return "classes"


def require_complete(y: Any) -> Any:
    """Return y, or raise where there is none or rows have no label: the learner needs them all."""
    missing = _missing(_values(y))
    if missing.any():
        raise ValueError(
            f"y is missing (None, NaN) in {missing.sum()} of {missing.size} entries, and every row "
            "needs a target here: leave those rows out, or learn from them as well with a "
            "semi-supervised estimator (SilvaTree, SilvaForest, LapTAO, KernelTree)"
        )
    return y


def check_length(y: Array, n_rows: int) -> None:
    """Raise unless there is one entry of y per row."""
    if len(y) != n_rows:
        raise ValueError(f"y has {len(y)} entries, X has {n_rows} rows: they must agree")


# ---- reading any container ----------------------------------------------------------------------


def _values(y: Any) -> Array:
    """Return y as an array; of objects, None among them, if its container knows missing ones."""
    if y is None:
        raise ValueError("the estimator requires y to be passed, but the target y is None")
    if nw.dependencies.is_into_dataframe(y):
        columns = list(nw.from_native(y, eager_only=True).iter_columns())
        return np.stack([_column(column) for column in columns], axis=1)
    if nw.dependencies.is_into_series(y):
        return _column(nw.from_native(y, series_only=True))
    if sparse.issparse(y):
        raise TypeError(
            "y is sparse, but a zero cannot be told from a missing label: pass an array"
        )
    if isinstance(y, np.ma.MaskedArray):
        values = y.data.astype(object)
        values[np.ma.getmaskarray(y)] = None
        return values
    # A list with both text and NaN must not become all text.
    values = np.asarray(y) if hasattr(y, "dtype") else np.asarray(y, dtype=object)
    if values.ndim == 0:
        raise ValueError(f"y must have an entry for each row, got {y!r}")
    return values.astype(object) if values.dtype.kind == "T" else values


def _column(column: nw.Series[Any]) -> Array:
    null = column.is_null().to_numpy()
    if not null.any():
        return column.to_numpy()
    values = np.full(len(null), None, object)
    values[~null] = column.drop_nulls().to_numpy()
    return values


def _missing(values: Array) -> Array:
    if values.dtype == object:
        found = [_is_missing(value) for value in values.ravel()]
        return np.array(found, bool).reshape(values.shape)
    if values.dtype.kind in "fcmM":
        return np.asarray(values != values)
    return np.zeros(values.shape, bool)


def _is_missing(value: Any) -> bool:
    """Recognise None, what differs from itself (NaN), and pd.NA, which cannot say if it does."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def _is_minus_one(values: Array) -> Array:
    if values.dtype == object:
        return np.array([isinstance(value, Real) and value == -1 for value in values], bool)
    if values.dtype.kind in "if":
        return np.asarray(values == -1)
    return np.zeros(len(values), bool)


def _require_labels(labelled: Array, marker: str) -> None:
    if not labelled.any():
        raise ValueError(
            f"y has no labelled row: all {len(labelled)} entries are {marker}; label at least one"
        )


# ---- what the entries are -----------------------------------------------------------------------


def _plain(values: Array) -> Array:
    """Turn objects that are numbers or truth values into an array of these; refuse a mixture."""
    if values.dtype != object:
        return values
    kinds = {_kind(found) for found in set(map(type, values))}
    if len(kinds) > 1:
        raise TypeError(
            f"y must hold labels of one kind, got a mix of {' and '.join(sorted(kinds))}"
        )
    return np.array(values.tolist()) if kinds <= {"numbers", "truth values"} else values


def _kind(found: type) -> str:
    names = (name for base, name in KINDS.items() if issubclass(found, base))
    return next(names, found.__name__)


def _class_labels(values: Array) -> Array:
    labels = _plain(values)
    if labels.dtype.kind not in "biufU" and not isinstance(labels[0], str):
        raise ValueError(
            f"Unknown label type: y holds {type(values[0]).__name__}; classes are integers, "
            "strings or truth values"
        )
    if labels.dtype.kind == "f":
        broken = (labels != np.rint(labels)) | np.isinf(labels)
        if broken.any():
            raise ValueError(
                f"Unknown label type: y holds {labels[broken.argmax()]}, but classes are integers, "
                "strings or truth values; a regressor takes such numbers"
            )
    return labels


def _check_names(classes: Array) -> None:
    if classes.dtype.kind not in "OU":
        return
    for name in classes.tolist():
        if isinstance(name, str) and name.strip() in LOOK_UNLABELLED:
            raise ValueError(
                f"y holds the text {name!r}, which is no class and no marker: write None, or the "
                "number -1, where a row is unlabelled (in a list or an array of objects, since an "
                "array of strings turns both into text); if it is a class, rename it"
            )


def _warn_one_class(name: Any, marked: Array) -> None:
    hint = ""
    if marked.any():
        hint = (
            "; -1 is read as unlabelled: if it is a class, recode y, for example as "
            "np.where(y == -1, 0, y)"
        )
    warnings.warn(
        f"y has labelled rows of one class only, {name!r}: the model will always answer it{hint}",
        UserWarning,
        stacklevel=4,
    )


def _numbers(values: Array) -> Array:
    numbers = _plain(values)
    if numbers.dtype.kind not in "biuf":
        raise ValueError(
            f"y must hold numbers, and NaN where a row is unlabelled, got {values[0]!r}"
        )
    return numbers.astype(np.float64)


def _listed(names: list[Any]) -> str:
    shown = ", ".join(repr(name) for name in names[:10])
    return shown + (", ..." if len(names) > 10 else "")
