"""Cross-validation when labels are scarce: only labelled rows are held out and scored."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import (
    BaseCrossValidator,
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
)
from sklearn.utils import check_consistent_length

from silva.estimators.parameters import check_integer
from silva.estimators.partial_labels import (
    Array,
    PartialClasses,
    guess_kind,
    read_classes,
    read_numbers,
)


class _LabelledSplit(BaseCrossValidator):
    """Splits the labelled rows as scikit-learn does and trains on all unlabelled ones."""

    __metadata_request__split = {"groups": True}  # noqa: RUF012 - scikit-learn reads it from here

    n_splits: int
    stratify: bool | str

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Yield the rows to train on and the rows to test on.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (rows, columns)
        y : array of shape (rows,) or (rows, outputs)
            Unlabelled rows are missing, or -1 in classes.
        groups : array of shape (rows,), optional
            Labelled rows of one group are never on both sides. Unlabelled ones stay in training.

        Yields
        ------
        train, test : int arrays
            `train` has all unlabelled rows, in order; `test` has labelled rows only.
        """
        if y is None:
            raise ValueError("y must be given, since it says which rows are labelled; got None")
        check_consistent_length(X, y, groups)
        labelled, strata = self._read(y)
        rows, unlabelled = np.flatnonzero(labelled), np.flatnonzero(~labelled)
        if groups is not None:
            groups = np.asarray(groups)[rows]
        splitter = self._splitter(strata is not None, groups is not None)
        for train, test in splitter.split(rows, strata, groups):
            yield np.sort(np.concatenate([rows[train], unlabelled])), rows[test]

    def _read(self, y: Any) -> tuple[Array, Array | None]:
        """Mask of the labelled rows, and their classes if these are to be kept in proportion."""
        kind, stratify = guess_kind(y), self.stratify
        if stratify == "auto" and kind == "unclear":
            raise ValueError(
                "y holds numbers, missing values and -1: pass stratify=True if -1 marks unlabelled "
                "rows of classes, stratify=False if it is a number like others"
            )
        if stratify is not True and kind != "classes":
            numbers = read_numbers(y, len(y))
            self._check_rows(int(numbers.labelled.sum()))
            return numbers.labelled, None
        partial = read_classes(y, len(y))
        if getattr(y, "dtype", None) == np.dtype(object) and partial.classes.dtype != object:
            raise ValueError(
                f"y is an array of objects that holds {partial.classes.dtype} labels, which "
                "scikit-learn cannot score: mark unlabelled rows by -1 or NaN in an array of "
                "numbers, or use a series of a nullable type such as Int64"
            )
        self._check_rows(int(partial.labelled.sum()))
        if stratify is False:
            return partial.labelled, None
        self._check_classes(partial)
        return partial.labelled, partial.classes[partial.codes[partial.labelled]]

    def _check_classes(self, partial: PartialClasses) -> None:
        counts = np.bincount(partial.codes[partial.labelled])
        single = partial.classes[counts == 1].tolist()
        if single:
            others = f" and {len(single) - 1} more" if len(single) > 1 else ""
            raise ValueError(
                f"class {single[0]!r}{others} has a single labelled row, which cannot be both "
                "trained and tested on: label another one, merge the class with another, or pass "
                "stratify=False (as for numbers to regress on)"
            )

    def _check_rows(self, n_labelled: int) -> None:
        """Raise if so many labelled rows cannot be split."""
        if n_labelled < 2:
            raise ValueError(f"y has {n_labelled} labelled row, at least 2 are needed to split")

    @abstractmethod
    def _splitter(self, stratified: bool, grouped: bool) -> Any:
        """Return the scikit-learn splitter of the labelled rows."""


class LabelledKFold(_LabelledSplit):
    """K-fold cross-validation over the labelled rows.

    The labelled rows are cut in `n_splits` parts, each the test rows of one split. All other rows,
    labelled or not, are trained on, so the unlabelled ones are in every training set and are
    never scored. Pass it as ``cv`` to `GridSearchCV`, `cross_val_score` and the like.

    Parameters
    ----------
    n_splits : int, default=5
    shuffle : bool, default=True
        Shuffle the labelled rows first.
    stratify : bool or "auto", default="auto"
        Keep the classes in proportion. "auto" does so if y looks like classes: text, truth values,
        integers, or floats that are whole numbers and each occur twice at least. Pass False for
        whole numbers to regress on.
    random_state : int, RandomState or None
        Seed of the shuffling. The folds depend on the labelled rows alone.

    Notes
    -----
    Scorers see y of the test rows, as it was given. Mark unlabelled rows by -1 or NaN in arrays of
    numbers, by None or -1 in lists or object arrays of strings, or by the missing value of a
    pandas or polars series; an object array of integers cannot be scored by scikit-learn and is
    refused. `cross_val_predict` wants every row tested once and cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.semi_supervised import LabelSpreading
    >>> from silva import LabelledKFold
    >>> X, y = load_iris(return_X_y=True)
    >>> y[np.arange(150) % 5 != 0] = -1  # 30 labels are left
    >>> scores = cross_val_score(LabelSpreading(), X, y, cv=LabelledKFold(3, random_state=0))
    >>> bool(scores.mean() > 0.8)
    True
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        shuffle: bool = True,
        stratify: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        KFold(n_splits, shuffle=shuffle, random_state=random_state)  # checks them
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.stratify = _check_stratify(stratify)
        self.random_state = random_state

    def _check_rows(self, n_labelled: int) -> None:
        super()._check_rows(n_labelled)
        if n_labelled < self.n_splits:
            raise ValueError(
                f"y has {n_labelled} labelled rows, fewer than n_splits={self.n_splits}: "
                "take fewer splits, or LabelledShuffleSplit"
            )

    def _check_classes(self, partial: PartialClasses) -> None:
        super()._check_classes(partial)
        largest = np.bincount(partial.codes[partial.labelled]).max()
        if largest < self.n_splits:
            raise ValueError(
                f"no class has more than {largest} labelled rows, fewer than "
                f"n_splits={self.n_splits}: take fewer splits, LabelledShuffleSplit, or "
                "stratify=False"
            )

    def _splitter(self, stratified: bool, grouped: bool) -> Any:
        kind = {
            (False, False): KFold,
            (True, False): StratifiedKFold,
            (False, True): GroupKFold,
            (True, True): StratifiedGroupKFold,
        }[stratified, grouped]
        return kind(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)


class LabelledShuffleSplit(_LabelledSplit):
    """Random splits of the labelled rows, as many as wanted.

    Each split holds out a random part of the labelled rows. All unlabelled rows are in every
    training set and are never scored. Pass it as ``cv`` to `GridSearchCV`, `cross_val_score` and
    the like.

    Parameters
    ----------
    n_splits : int, default=10
    test_size : float, int or None
        Share or number of the labelled rows (with groups: of groups) to test on. What
        `train_size` leaves, or 0.1 (of groups 0.2), unless given.
    train_size : float, int or None
        Share or number of the labelled rows (with groups: of groups) to train on; what `test_size`
        leaves unless given. To see what more labels would bring, let it grow: labelled rows on
        neither side are left out.
    stratify : bool or "auto", default="auto"
        As in `LabelledKFold`; groups are never stratified.
    random_state : int, RandomState or None
        Seed of the splits.

    Notes
    -----
    What y may look like is said in `LabelledKFold`.

    Examples
    --------
    >>> import numpy as np
    >>> from silva import LabelledShuffleSplit
    >>> y = np.array([0, 0, 1, 1, -1, -1])
    >>> cv = LabelledShuffleSplit(1, test_size=0.5, random_state=0)
    >>> for train, test in cv.split(y, y):
    ...     print(4 in train and 5 in train, sorted(y[test].tolist()))
    True [0, 1]
    """

    def __init__(
        self,
        n_splits: int = 10,
        *,
        test_size: float | None = None,
        train_size: float | None = None,
        stratify: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_splits = check_integer("n_splits", n_splits, 1)
        self.test_size = test_size
        self.train_size = train_size
        self.stratify = _check_stratify(stratify)
        self.random_state = random_state

    def _splitter(self, stratified: bool, grouped: bool) -> Any:
        plain = StratifiedShuffleSplit if stratified else ShuffleSplit
        kind = GroupShuffleSplit if grouped else plain
        return kind(
            self.n_splits,
            test_size=self.test_size,
            train_size=self.train_size,
            random_state=self.random_state,
        )


def _check_stratify(stratify: bool | str) -> bool | str:
    if not isinstance(stratify, bool) and stratify != "auto":
        raise ValueError(f"stratify must be True, False or 'auto', got {stratify!r}")
    return stratify
