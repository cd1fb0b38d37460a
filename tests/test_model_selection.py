"""Cross-validation with few labels: only labelled rows are held out, and graphs are kept."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.tree import DecisionTreeClassifier

from silva import LapTAOClassifier, graph
from silva.estimators.graph_cache import cached_graph
from silva.estimators.partial_labels import read_classes, read_numbers
from silva.model_selection import LabelledKFold, LabelledShuffleSplit

SPLITTERS = pytest.mark.parametrize(
    "cv",
    [LabelledKFold(3, random_state=0), LabelledShuffleSplit(4, test_size=0.3, random_state=0)],
    ids=["kfold", "shuffle"],
)

X, TRUTH = load_iris(return_X_y=True)
HIDDEN = np.arange(150) % 5 != 0  # ten labels for each class are left
Y = np.where(HIDDEN, -1, TRUTH)
NAMES = [None if hidden else "abc"[label] for hidden, label in zip(HIDDEN, TRUTH, strict=True)]
DIGITS = [None if hidden else int(label) for hidden, label in zip(HIDDEN, TRUTH, strict=True)]


class LabelledTree(ClassifierMixin, BaseEstimator):
    """A tree on the labelled rows, for any y that `read_classes` reads."""

    def __init__(self, max_depth=2):
        self.max_depth = max_depth

    def fit(self, X, y):
        partial = read_classes(y, len(X))
        self.classes_ = partial.classes
        self.tree_ = DecisionTreeClassifier(max_depth=self.max_depth, random_state=0)
        self.tree_.fit(X[partial.labelled], partial.codes[partial.labelled])
        return self

    def predict(self, X):
        return self.classes_[self.tree_.predict(X)]


class LabelledRidge(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        partial = read_numbers(y, len(X))
        self.model_ = Ridge(0.1).fit(X[partial.labelled], partial.targets[partial.labelled])
        return self

    def predict(self, X):
        return self.model_.predict(X)


# ---- what is split ------------------------------------------------------------------------------


@SPLITTERS
def test_every_unlabelled_row_is_always_trained_on_and_never_tested(cv):
    for train, test in cv.split(X, Y):
        assert np.isin(np.flatnonzero(HIDDEN), train).all()
        assert not HIDDEN[test].any()
        assert not np.intersect1d(train, test).size


def test_every_labelled_row_is_tested_in_one_fold():
    tested = [test for _, test in LabelledKFold(4, random_state=1).split(X, Y)]
    assert_array_equal(np.sort(np.concatenate(tested)), np.flatnonzero(~HIDDEN))


@pytest.mark.parametrize("stratify", [True, False])
def test_labelled_rows_are_split_as_scikit_learn_splits_them_alone(stratify):
    rows, labels = np.flatnonzero(~HIDDEN), TRUTH[~HIDDEN]
    fold = StratifiedKFold if stratify else KFold
    shuffle = StratifiedShuffleSplit if stratify else ShuffleSplit
    for ours, peer in (
        (
            LabelledKFold(3, stratify=stratify, random_state=7),
            fold(3, shuffle=True, random_state=7),
        ),
        (LabelledKFold(3, stratify=stratify, shuffle=False), fold(3)),
        (
            LabelledShuffleSplit(5, test_size=0.4, stratify=stratify, random_state=7),
            shuffle(5, test_size=0.4, random_state=7),
        ),
    ):
        pairs = list(zip(ours.split(X, Y), peer.split(rows, labels), strict=True))
        assert len(pairs) == ours.get_n_splits(X, Y)
        for (train, test), (peer_train, peer_test) in pairs:
            assert_array_equal(test, rows[peer_test])
            assert_array_equal(train[~HIDDEN[train]], np.sort(rows[peer_train]))


@SPLITTERS
def test_classes_keep_their_proportions(cv):
    for _, test in cv.split(X, Y):
        counts = np.bincount(Y[test], minlength=3)
        assert counts.max() - counts.min() <= 1


def test_labels_beyond_train_size_are_left_out():
    cv = LabelledShuffleSplit(3, train_size=6, test_size=9, random_state=0)
    for train, test in cv.split(X, Y):
        assert (~HIDDEN[train]).sum() == 6
        assert len(test) == 9
        assert HIDDEN[train].sum() == HIDDEN.sum()


def test_groups_of_labelled_rows_stay_on_one_side():
    groups = np.arange(150) // 10
    for cv in (
        LabelledKFold(3, random_state=0),
        LabelledKFold(3, stratify=False, random_state=0),
        LabelledShuffleSplit(3, random_state=0),
    ):
        for train, test in cv.split(X, Y, groups):
            assert not np.isin(groups[train[~HIDDEN[train]]], groups[test]).any()
            assert HIDDEN[train].sum() == HIDDEN.sum()


@SPLITTERS
def test_groups_reach_the_splitter_by_metadata_routing(cv):
    groups = np.arange(150) // 10
    with config_context(enable_metadata_routing=True):
        found = cross_validate(
            LabelledTree(), X, Y, cv=cv, params={"groups": groups}, return_indices=True
        )
    for train, test in zip(*found["indices"].values(), strict=True):
        assert not np.isin(groups[train[~HIDDEN[train]]], groups[test]).any()


@SPLITTERS
def test_a_splitter_shows_its_settings_and_can_be_cloned(cv):
    assert f"n_splits={cv.n_splits}, random_state=0" in repr(cv)
    search = clone(GridSearchCV(LabelledTree(), {}, cv=cv))
    for (train, _), (again, _) in zip(cv.split(X, Y), search.cv.split(X, Y), strict=True):
        assert_array_equal(train, again)


def test_numbers_are_split_without_strata_and_minus_one_is_a_number():
    y = np.where(HIDDEN, np.nan, X[:, 0])
    y[0] = -1
    tested = np.concatenate([test for _, test in LabelledKFold(3).split(X, y)])
    assert_array_equal(np.sort(tested), np.flatnonzero(~HIDDEN))


def test_several_outputs_are_numbers():
    y = np.where(HIDDEN[:, None], np.nan, X[:, :2].round())
    tested = np.concatenate([test for _, test in LabelledKFold(3).split(X, y)])
    assert_array_equal(np.sort(tested), np.flatnonzero(~HIDDEN))


def test_whole_numbers_as_floats_are_classes_where_all_of_them_repeat():
    labels = np.repeat([0.0, 1, 2], [2, 4, 6])
    y = np.concatenate([labels, [np.nan] * 3])
    for _, test in LabelledKFold(2, random_state=0).split(y, y):
        assert_array_equal(np.bincount(y[test].astype(int)), [1, 2, 3])
    tested = LabelledKFold(2).split(y, np.where(y == 0, np.arange(15.0), y))  # 0 and 1, once each
    assert sum(len(test) for _, test in tested) == 12


@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_a_column_of_classes_is_stratified_too():
    y = np.array([0, 0, 1, 1, -1])
    for _, test in LabelledKFold(2).split(y, pd.DataFrame({"label": y})):
        assert sorted(y[test]) == [0, 1]


def test_minus_one_beside_missing_numbers_is_refused_until_stratify_says_what_it_means():
    y = np.array([0, 0, 1, 1, -1, -1, np.nan, np.nan])
    with pytest.raises(ValueError, match=r"missing values and -1: pass stratify=True if"):
        next(LabelledKFold(2).split(y, y))
    tested = [test for _, test in LabelledKFold(2, stratify=True).split(y, y)]
    assert_array_equal(np.sort(np.concatenate(tested)), range(4))
    tested = [test for _, test in LabelledKFold(2, stratify=False).split(y, y)]
    assert_array_equal(np.sort(np.concatenate(tested)), range(6))


# ---- in scikit-learn's searches -----------------------------------------------------------------


@pytest.mark.parametrize(
    "y",
    [
        Y,
        Y.astype(float),
        np.where(HIDDEN, np.nan, TRUTH),
        NAMES,
        DIGITS,
        np.array(NAMES, object),
        np.array([-1 if name is None else name for name in NAMES], object),
        pd.Series(NAMES),
        pd.Series(NAMES, dtype="string"),
        pd.Series(NAMES, dtype="category"),
        pd.Series(DIGITS, dtype="Int64"),
        pd.Series(DIGITS, dtype="int64[pyarrow]"),
        pl.Series(NAMES),
        pl.Series(NAMES, dtype=pl.Categorical),
        pl.Series(DIGITS),
    ],
    ids=[
        "integers", "floats", "NaN", "list of text", "list of integers", "text or None",
        "text or -1", "pandas", "pandas string", "pandas category", "pandas Int64",
        "pandas pyarrow", "polars", "polars category", "polars integers",
    ],
)  # fmt: skip
def test_any_form_of_y_is_split_fitted_and_scored_alike(y):
    cv = LabelledKFold(3, random_state=0)
    scores = cross_val_score(LabelledTree(), X, y, cv=cv, error_score="raise")
    assert_array_equal(scores, cross_val_score(LabelledTree(), X, Y, cv=cv))
    search = GridSearchCV(
        LabelledTree(), {"max_depth": [1, 2]}, cv=cv, scoring="f1_macro", error_score="raise"
    )
    assert search.fit(X, y).best_params_ == {"max_depth": 2}


def test_scores_are_those_of_a_loop_by_hand():
    cv = LabelledKFold(3, random_state=0)
    expected = []
    for train, test in cv.split(X, Y):
        model = LabelledTree().fit(X[train], Y[train])
        expected.append((model.predict(X[test]) == TRUTH[test]).mean())
    assert_array_equal(cross_val_score(LabelledTree(), X, Y, cv=cv), expected)


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (
            SelfTrainingClassifier(LogisticRegression()),
            {"threshold": [0.6, 0.9], "estimator__C": [0.01, 1.0]},
        ),
        (LabelSpreading(kernel="knn"), {"n_neighbors": [5, 10], "alpha": [0.1, 0.5]}),
    ],
    ids=["SelfTrainingClassifier", "LabelSpreading"],
)
def test_scikit_learns_own_semi_supervised_models_can_be_tuned(model, grid):
    centred = X - X.mean(axis=0)
    search = GridSearchCV(model, grid, cv=LabelledKFold(3, random_state=0), error_score="raise")
    search.fit(centred, Y)
    assert search.best_score_ > 0.8
    assert search.score(centred[HIDDEN], TRUTH[HIDDEN]) > 0.8


def test_partly_known_numbers_can_be_regressed_and_scored():
    rows, target = load_diabetes(return_X_y=True)
    hidden = np.arange(len(target)) % 3 != 0
    y = np.where(hidden, np.nan, target)
    cv = LabelledKFold(3, random_state=0)
    scores = cross_val_score(LabelledRidge(), rows, y, cv=cv, error_score="raise")
    folds = KFold(3, shuffle=True, random_state=0)
    alone = cross_val_score(LabelledRidge(), rows[~hidden], target[~hidden], cv=folds)
    np.testing.assert_allclose(scores, alone)


def test_cross_val_predict_needs_a_partition_and_says_so():
    with pytest.raises(ValueError, match="only works for partitions"):
        cross_val_predict(LabelledTree(), X, Y, cv=LabelledKFold(3))


# ---- bad input ----------------------------------------------------------------------------------


@SPLITTERS
def test_a_class_with_a_single_label_is_refused_by_name(cv):
    y = Y.copy()
    y[np.flatnonzero(TRUTH == 2)] = -1
    y[-1] = 2
    with pytest.raises(ValueError, match=r"class 2 has a single labelled row.* merge"):
        next(cv.split(X, y))
    names = [None if label < 0 else "abc"[label] for label in y]
    with pytest.raises(ValueError, match="class 'c' has a single labelled row"):
        next(cv.split(X, names))


def test_a_class_with_a_single_label_is_split_if_told_to():
    y = np.array([0, 0, 0, 1, -1])
    tested = [test for _, test in LabelledKFold(2, stratify=False).split(y, y)]
    assert_array_equal(np.sort(np.concatenate(tested)), range(4))


def test_objects_that_scikit_learn_cannot_score_are_refused():
    for y in (np.array(DIGITS, object), pd.Series(DIGITS, dtype=object)):
        with pytest.raises(ValueError, match=r"objects that holds int64 labels.* Int64"):
            next(LabelledKFold().split(X, y))


def test_too_few_labels_for_the_folds_are_refused():
    y = np.array([0, 0, 1, 1, -1])
    with pytest.raises(ValueError, match=r"no class has more than 2 labelled rows.* n_splits=3"):
        next(LabelledKFold(3).split(y, y))
    with pytest.raises(ValueError, match="4 labelled rows, fewer than n_splits=5"):
        next(LabelledKFold(5).split(y, y))
    one = np.array([0.5, np.nan, np.nan])
    for cv in (LabelledKFold(2), LabelledShuffleSplit()):
        with pytest.raises(ValueError, match="1 labelled row, at least 2"):
            next(cv.split(one, one))


@SPLITTERS
def test_missing_y_and_wrong_lengths_are_refused(cv):
    with pytest.raises(ValueError, match="y must be given"):
        next(cv.split(X))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        next(cv.split(X, Y[:-1]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        next(cv.split(X, Y, np.zeros(3)))
    with pytest.raises(ValueError, match="no labelled row"):
        next(cv.split(X, np.full(150, -1)))


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="n_splits=2 or more"):
        LabelledKFold(1)
    with pytest.raises(ValueError, match="shuffle"):
        LabelledKFold(3, shuffle=False, random_state=0)
    with pytest.raises(ValueError, match="n_splits must be at least 1, got 0"):
        LabelledShuffleSplit(0)
    for Splitter in (LabelledKFold, LabelledShuffleSplit):
        with pytest.raises(ValueError, match="stratify must be True, False or 'auto', got 'yes'"):
            Splitter(stratify="yes")
    with pytest.raises(ValueError, match="test_size"):
        next(LabelledShuffleSplit(test_size=2.0).split(X, Y))


# ---- the graph is kept --------------------------------------------------------------------------


class GraphModel(ClassifierMixin, BaseEstimator):
    """Uses the graph as the semi-supervised trees do, and nothing else."""

    def __init__(self, gamma=1.0, memory=None):
        self.gamma = gamma
        self.memory = memory

    def fit(self, X, y):
        self.classes_ = read_classes(y, len(X)).classes
        self.graph_ = cached_graph(self.memory, X, 5, random_state=0)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


@pytest.fixture
def built(monkeypatch):
    """Shapes of the rows of every graph that was really built."""
    shapes, build = [], graph.affinity_graph

    def counting(X, *arguments, **options):
        shapes.append(X.shape)
        return build(X, 5)

    monkeypatch.setattr(graph, "affinity_graph", counting)
    return shapes


def test_a_search_over_gamma_builds_one_graph_for_each_fold_and_one_to_refit(built, tmp_path):
    cv = LabelledKFold(2, random_state=0)
    search = GridSearchCV(GraphModel(memory=str(tmp_path)), {"gamma": [0.1, 1, 10]}, cv=cv)
    search.fit(X, Y)
    assert sorted(built) == [(135, 4), (135, 4), (150, 4)]


def test_without_memory_the_graph_is_built_for_every_fit(built):
    for _ in range(2):
        GraphModel().fit(X, Y)
    assert len(built) == 2


def test_a_kept_graph_is_the_one_that_would_be_built(tmp_path):
    fresh = cached_graph(None, X, 5)
    for _ in range(2):
        kept = cached_graph(str(tmp_path), X, 5)
        assert_array_equal(kept.toarray(), fresh.toarray())


def test_other_rows_or_settings_are_another_graph_and_threads_are_not(built, tmp_path):
    folder = str(tmp_path)
    cached_graph(folder, X, 5, n_jobs=1)
    cached_graph(folder, X.copy(), 5, n_jobs=2, verbose=1)
    assert len(built) == 1
    cached_graph(folder, X[::-1], 5)
    cached_graph(folder, X, 6)
    cached_graph(folder, X, 5, 3.0)
    cached_graph(folder, X, 5, metric="manhattan")
    cached_graph(folder, X, 5, random_state=1)
    assert len(built) == 6


def test_a_graph_of_another_release_is_not_used(built, tmp_path, monkeypatch):
    for release in ("1.0", "1.1"):
        monkeypatch.setattr("silva.estimators.graph_cache.version", lambda name, r=release: r)
        cached_graph(str(tmp_path), X, 5)
    assert len(built) == 2


def test_a_memory_that_is_none_is_refused():
    with pytest.raises(ValueError, match="'memory' should be None, a string or"):
        cached_graph(3, X)


# ---- one graph for all folds --------------------------------------------------------------------


def test_a_search_over_folds_and_gamma_uses_one_graph(built):
    W = graph.affinity_graph(X, 5)
    model = LapTAOClassifier(affinity=W, n_outer=1, random_state=0)
    search = GridSearchCV(model, {"gamma": [0.1, 1.0]}, cv=LabelledKFold(2, random_state=0))
    search.fit(X, Y, affinity_rows=np.arange(len(X)))
    assert len(built) == 1
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_fold_sees_its_part_of_the_graph():
    W = graph.affinity_graph(X, 5)
    train = next(LabelledKFold(2, random_state=0).split(X, Y))[0]
    settings = {"n_outer": 1, "random_state": 0}
    whole = LapTAOClassifier(affinity=W, **settings).fit(X[train], Y[train], affinity_rows=train)
    part = LapTAOClassifier(affinity=W[train][:, train], **settings).fit(X[train], Y[train])
    assert_array_equal(whole.affinity_.toarray(), part.affinity_.toarray())
    assert_array_equal(whole.predict_proba(X), part.predict_proba(X))


@pytest.mark.parametrize(
    ("affinity", "rows", "message"),
    [
        (None, np.arange(150), "expected affinity"),
        ("a graph", np.arange(150), "affinity must be a matrix of numbers.*got str"),
        (np.zeros((150, 150)), np.arange(149), r"each of the 150 rows of X.*\(149,\)"),
        (np.zeros((150, 150)), np.arange(150) / 2, "whole number.*float64"),
        (np.zeros((150, 150)), np.arange(150) + 1, "between 0 and 149.*got 1 to 150"),
        (np.zeros((150, 150)), np.r_[:149, 7], "row 7 more than once"),
    ],
)
def test_rows_that_a_graph_has_not_are_refused(affinity, rows, message):
    with pytest.raises(ValueError, match=message):
        LapTAOClassifier(affinity=affinity).fit(X, Y, affinity_rows=rows)
