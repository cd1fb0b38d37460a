"""One loader for the benchmark data: a folder of files where there is one, OpenML otherwise.

The folder is the environment variable ``SILVA_DATA``, or ``../shared/data`` beside the repository.
It holds ``NAME.csv.gz`` (a header, the last column is ``target``, an empty field is missing), the
IDX files of MNIST in ``mnist/``, ``NAME.npz`` for images with a split of their own, and
``catalogue.json`` with the task and the categorical columns of each set. Sets from OpenML come in
the row order that it has, so that the usual split of Letter can differ there.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml

OPENML_ID = {
    "adult": 1590,
    "ailerons": 296,
    "cpu_act": 573,
    "fashion_mnist": 40996,
    "house_16H": 574,
    "letter": 6,
    "magic": 1120,
    "mnist": 554,
    "optdigits": 28,
    "pima": 37,
    "pol": 201,
    "protein": 44963,
    "satimage": 182,
    "segmentation": 36,
    "spambase": 44,
    "waveform_40": 60,
}
REGRESSION = {"ailerons", "cpu_act", "house_16H", "pol", "protein", "sgemm_gpu", "year_pred"}
OPENML_NAME = {"susy": "SUSY", "year_pred": "YearPredictionMSD", "kddcup": "KDDCup99"}
"""Large sets by their name there, for want of a folder."""
IMAGES = ("mnist", "fashion_mnist")
ARRAYS = ("char74k_fonts12",)
WHOLE_ARRAYS = ("coil20",)  # without a split, in units of one
MNIST_PARTS = ("train", "t10k")
TRAINING_ROWS = {
    "letter": 16000, "mnist": 60000, "fashion_mnist": 60000, "char74k_fonts12": 55800,
}  # fmt: skip
"""Rows that the usual split trains on, the rest being its test part."""


class Unavailable(Exception):  # noqa: N818
    """A data set, peer or measurement that cannot be had here; the message says which and why."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A benchmark set with numeric columns; classes are 0 to K - 1.

    Attributes
    ----------
    name : str
    X, y : training rows (all rows where the set has no usual split) and their targets
    X_test, y_test : test rows and their targets, None where the set has no usual split
    task : "classification" or "regression"
    categorical : names of the columns whose numbers are codes
    names : names of all columns, none for images
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray | None
    y_test: np.ndarray | None
    task: str
    categorical: tuple[str, ...]
    names: tuple[str, ...] = ()


def load(name):
    """Return the named set as a DataSet, or raise Unavailable."""
    folder, names = data_folder(), ()
    if folder is None:
        X, y, task, categorical, names = _fetch(name)
    elif name in IMAGES:
        X, y, task, categorical = *_read_idx(folder / name), "classification", ()
    elif name in (*ARRAYS, *WHOLE_ARRAYS):
        X, y, task, categorical = *_read_arrays(folder, name), "classification", ()
    else:
        X, y, task, categorical, names = _read_csv(name)
    if name in (*IMAGES, *ARRAYS):
        X = X.astype(np.float32) / np.float32(255)
    n = TRAINING_ROWS.get(name)
    if n is None:
        return DataSet(name, X, y, None, None, task, categorical, names)
    return DataSet(name, X[:n], y[:n], X[n:], y[n:], task, categorical, names)


def data_folder():
    """Return the data folder, None where the sets are to be fetched."""
    if "SILVA_DATA" in os.environ:
        return Path(os.environ["SILVA_DATA"])
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return beside if beside.is_dir() else None


def read_table(name):
    """Return a set of the folder as the frame that the file holds, and its catalogue entry."""
    folder = data_folder()
    if folder is None:
        raise Unavailable(f"{name}: no data folder")
    try:
        entries = json.loads((folder / "catalogue.json").read_text())
        entry = next(entry for entry in entries if entry["name"] == name)
        return pd.read_csv(folder / f"{name}.csv.gz"), entry
    except (OSError, StopIteration) as error:
        raise Unavailable(f"{name}: not in the data folder") from error


def _read_csv(name):
    """Columns, targets, task, categorical and all names of a CSV file of the folder."""
    frame, entry = read_table(name)
    X, y, task = frame.drop(columns="target"), frame["target"], entry["task"]
    return numbers(X), _targets(y, task), task, tuple(entry["categorical"]), tuple(X.columns)


def _read_idx(folder):
    """Pixels and digits of the MNIST files, the training images first."""
    try:
        images, digits = (
            [gzip.decompress((folder / f"{part}-{kind}.gz").read_bytes()) for part in MNIST_PARTS]
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
    except OSError as error:
        raise Unavailable(f"{folder.name}: not in the data folder") from error
    X = np.concatenate([np.frombuffer(image, np.uint8, offset=16) for image in images])
    y = np.concatenate([np.frombuffer(digit, np.uint8, offset=8) for digit in digits])
    return X.reshape(len(y), -1), y.astype(np.int64)


def _read_arrays(folder, name):
    """Grey pixels and classes of a NumPy archive; the training rows first, where it has a split."""
    endings = ("",) if name in WHOLE_ARRAYS else ("_train", "_test")
    try:
        with np.load(folder / f"{name}.npz") as arrays:
            parts = [(arrays[f"X{ending}"], arrays[f"y{ending}"]) for ending in endings]
    except OSError as error:
        raise Unavailable(f"{name}: not in the data folder") from error
    X, y = (np.concatenate(pair) for pair in zip(*parts, strict=True))
    return X, np.unique(y, return_inverse=True)[1]


def _fetch(name):
    """Columns, targets, task, categorical and all names of a set from OpenML."""
    if name not in OPENML_ID and name not in OPENML_NAME:
        raise Unavailable(f"{name}: no data folder, and OpenML is not known to have it")
    which = {"data_id": OPENML_ID[name]} if name in OPENML_ID else {"name": OPENML_NAME[name]}
    try:
        bunch = fetch_openml(**which, as_frame=True, parser="auto")
    except (OSError, ValueError) as error:
        raise Unavailable(f"{name}: no data folder, and OpenML did not answer") from error
    task = "regression" if name in REGRESSION else "classification"
    categorical = tuple(bunch.data.select_dtypes(exclude="number").columns)
    names = tuple(bunch.data.columns)
    return numbers(bunch.data), _targets(bunch.target, task), task, categorical, names


def numbers(frame):
    """Matrix of the columns, strings as the rank of their value and missing values as NaN."""
    columns = [
        column if pd.api.types.is_numeric_dtype(column) else _codes(column)
        for _, column in frame.items()
    ]
    return np.column_stack(columns).astype(np.float64)


def _codes(column):
    """Rank of each value among the values of its column."""
    codes = column.astype("category").cat.codes.to_numpy(np.float64)
    return np.where(codes < 0, np.nan, codes)


def _targets(column, task):
    """Targets as numbers, or as classes 0 to K - 1."""
    if task == "regression":
        return column.to_numpy(np.float64)
    return np.unique(column.astype(str), return_inverse=True)[1]
