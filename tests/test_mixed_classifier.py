"""The mixed teacher for classes: who counts how much, and that every odd case has an answer."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from silva.estimators import mixed_classifier, stacking
from silva.estimators.column_views import Units
from silva.estimators.mixed_classifier import EXPECTED, VIEWS, MixedClassifier
from silva.estimators.stacking import PRIOR, best_shares, folds


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


@pytest.fixture(scope="module")
def fitted(iris):
    return MixedClassifier(n_trees=10).fit(iris[0][:60], iris[1][:60])


def test_answer_is_the_mean_of_the_members_by_their_shares(iris, fitted):
    views = fitted.units_.views(iris[0][60:], VIEWS)
    mean = sum(fitted.shares_[m.name] * m.predict(views) for m in fitted.members_)
    assert_allclose(fitted.predict_proba(iris[0][60:]), mean, atol=1e-12)
    assert_allclose(mean.sum(axis=1), 1)
    assert fitted.score(iris[0][60:], iris[1][60:]) > 0.9


def test_shares_sum_to_one_and_none_is_negative(fitted):
    shares = np.array(list(fitted.shares_.values()))
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert list(fitted.shares_) == [name for name in EXPECTED if "categories" not in name]


def test_planes_count_more_where_a_plane_parts_the_classes_and_forests_where_a_rule_does():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 6))
    plane = MixedClassifier(n_trees=30).fit(X, X.sum(axis=1) > 0).shares_
    rule = MixedClassifier(n_trees=30).fit(X, (X[:, 0] > 0.5) | (X[:, 1] > 0.5)).shares_
    smooth = [name for name in plane if "kernel" in name or "logistic" in name]
    trees = [name for name in plane if name not in smooth]
    assert sum(plane[name] for name in smooth) > 0.8
    assert sum(rule[name] for name in trees) > 0.8


def test_shares_are_a_stationary_point_of_the_squared_error_near_what_is_expected():
    rng = np.random.default_rng(0)
    targets = rng.normal(size=40)
    answers = targets + rng.normal(size=(3, 40)) * [[0.5], [0.6], [3.0]]
    expected = np.array([0.2, 0.3, 0.5])
    w = best_shares(answers, targets, expected)
    slope = 2 * answers @ (answers.T @ w - targets) + 2 * PRIOR * (w - expected)
    inside = w > 1e-9
    level = slope[inside].mean()
    assert_allclose(slope[inside], level, atol=1e-3)  # multiplier of the sum
    assert (slope[~inside] >= level - 1e-3).all()


def test_forests_of_many_classes_are_made_more_certain():
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    few, others = rows[:150], rows[150:]
    model = MixedClassifier(n_trees=50).fit(X[few], y[few])
    extra = next(member for member in model.members_ if member.name == "extra trees")
    assert extra.model.temperature > 1
    views = model.units_.views(X[others], VIEWS)
    before, after = extra.model.model.predict(views["raw"]), extra.predict(views)
    assert_allclose(after, before**extra.model.temperature / np.sum(
        before**extra.model.temperature, axis=1, keepdims=True), atol=1e-6)  # fmt: skip
    right = np.arange(len(others)), y[others]
    assert np.log(after[right] + 1e-3).mean() > np.log(before[right] + 1e-3).mean()


def test_without_held_out_rows_shares_are_those_expected(iris):
    X, y = iris
    two = [np.flatnonzero(y == label)[0] for label in (0, 1)]
    shares = MixedClassifier(n_trees=4).fit(X[two], y[two]).shares_
    total = sum(EXPECTED[name] for name in shares)
    assert shares == pytest.approx({name: EXPECTED[name] / total for name in shares})


def test_every_fold_has_its_part_of_each_class():
    strata = np.repeat([0, 1, 2], [50, 10, 5])
    for part in folds(len(strata), 0, strata):
        assert np.bincount(strata[part]).tolist() == [10, 2, 1]


def test_class_with_a_single_label_is_known_to_the_mixture(iris):
    X, y = iris
    rows = np.concatenate([np.flatnonzero(y == 0)[:9], np.flatnonzero(y == 1)[:9]])
    rows = np.append(rows, np.flatnonzero(y == 2)[0])
    model = MixedClassifier(n_trees=10).fit(X[rows], y[rows])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict(X[rows[-1:]]).tolist() == [2]


def test_mixture_without_a_fold_has_its_shares_and_members_that_did_not_see_it(iris):
    X, y = iris[0][:60], iris[1][:60]
    fold = np.arange(60) % 3 - 1  # a third is never held out
    model = MixedClassifier(fold=fold, n_trees=10).fit(X, y)
    part = model.without(1)
    assert part.shares_ == model.shares_
    assert part.units_ is model.units_
    forest = part.members_[0].model.model.classifier
    seen = fold != 1
    same = RandomForestClassifier(5, random_state=0).fit(X[seen], y[seen], np.ones(seen.sum()))
    assert_allclose(forest.predict_proba(X), same.predict_proba(X))
    assert model.without(2) is None
    model.forget_folds()
    assert model.without(1) is None


def test_names_of_classes_are_answered(iris):
    names = np.array(["setosa", "versicolor", "virginica"])
    model = MixedClassifier(n_trees=5).fit(iris[0][:60], names[iris[1][:60]])
    assert set(model.predict(iris[0][60:])) <= set(names)


def test_units_of_columns_do_not_matter(iris):
    X, y = iris
    wide = X * [1000.0, 1.0, 0.001, 8.0]
    one = MixedClassifier(n_trees=5).fit(X[:60], y[:60])
    other = MixedClassifier(n_trees=5).fit(wide[:60], y[:60])
    assert_allclose(one.predict_proba(X[60:]), other.predict_proba(wide[60:]), atol=0.02)


def test_weight_of_two_counts_as_two_rows_to_the_smooth_members(iris):
    X, y = iris[0][:40], iris[1][:40]
    twice = np.arange(40) < 10
    units = Units.of(X)
    weighed = MixedClassifier(n_trees=2, units=units).fit(X, y, sample_weight=1.0 + twice)
    line = LogisticRegression(max_iter=200).fit(
        np.clip((np.vstack([X, X[twice]]) - units.mean) / units.deviation, -3, 3),
        np.concatenate([y, y[twice]]),
    )
    member = next(m for m in weighed.members_ if m.name == "logistic regression")
    views = units.views(iris[0][40:], VIEWS)
    as_fitted = member.model.model.predict(views["standard"])
    assert_allclose(as_fitted, line.predict_proba(views["standard"]), atol=1e-3)


def test_sparse_rows_have_no_ranks_and_the_answers_of_a_mixture(iris):
    X = sparse.csr_matrix(np.where(iris[0] > 3, iris[0], 0.0))
    model = MixedClassifier(n_trees=5).fit(X[:60], iris[1][:60])
    assert "kernel of ranks" not in model.shares_
    assert_allclose(model.predict_proba(X[60:]).sum(axis=1), 1)


def test_bagged_trees_are_left_out_where_labels_times_columns_are_many(iris, monkeypatch):
    monkeypatch.setattr(
        mixed_classifier, "BAGGED_CELLS", 239
    )  # one cell too few, folds are smaller
    model = MixedClassifier(n_trees=5).fit(iris[0][:60], iris[1][:60])
    assert "bagged trees" not in model.shares_
    assert [member.name for member in model.without(0).members_] == list(model.shares_)


@pytest.fixture(scope="module")
def categories():
    """Codes of categories without order: the class is the kind of most of three columns."""
    rng = np.random.default_rng(0)
    X = rng.integers(8, size=(2000, 6)).astype(float)
    odd = np.array([0, 1, 1, 0, 1, 0, 0, 1])[X.astype(int)]
    return X, odd[:, :3].sum(axis=1) > 1


def test_members_that_see_categories_know_categories_whose_codes_have_no_order(categories):
    X, y = categories
    model = MixedClassifier(n_trees=50).fit(X[:100], y[:100])
    views = model.units_.views(X[100:], VIEWS)
    right = {
        member.name: np.mean(member.predict(views).argmax(axis=1) == y[100:])
        for member in model.members_
    }
    for name in ("extra trees", "kernel", "logistic regression"):
        assert right[f"{name} of categories"] > right[name] + 0.05
    of_categories = {name for name in model.shares_ if "categories" in name}
    assert sum(model.shares_[name] for name in of_categories) > 0.8
    best_other = max(right[name] for name in right if name not in of_categories)
    assert model.score(X[100:], y[100:]) > best_other + 0.1


def test_which_number_stands_for_a_category_does_not_matter_to_members_that_see_them(
    categories,
):
    X, y = categories
    other = np.random.default_rng(1).permutation(8).astype(float)[X.astype(int)]
    some = slice(100, 300)
    answers = []
    for rows in (X, other):
        model = MixedClassifier(n_trees=2, units=Units.of(rows)).fit(rows[:100], y[:100])
        views = model.units_.views(rows[some], VIEWS)
        line = next(m for m in model.members_ if m.name == "logistic regression of categories")
        answers.append(line.model.model.predict(views[line.view]))
    assert_allclose(*answers, atol=1e-3)


def test_categories_are_left_out_where_labels_times_columns_are_many(categories, monkeypatch):
    X, y = categories
    monkeypatch.setattr(mixed_classifier, "CATEGORY_CELLS", 60 * 48 - 1)
    model = MixedClassifier(n_trees=2).fit(X[:60], y[:60])
    assert not any("categories" in name for name in model.shares_)
    assert [member.name for member in model.without(0).members_] == list(model.shares_)


def test_same_answers_for_any_number_of_threads(iris, fitted):
    other = MixedClassifier(n_trees=10, n_jobs=2).fit(iris[0][:60], iris[1][:60])
    assert np.array_equal(other.predict_proba(iris[0]), fitted.predict_proba(iris[0]))


def test_blocks_of_rows_are_answered_as_all_at_once_by_any_number_of_threads(
    iris, fitted, monkeypatch
):
    whole = fitted.predict_proba(iris[0])
    monkeypatch.setattr(stacking, "BLOCK", 4 * 32)  # 32 rows of four columns
    for n_jobs in (None, 2):
        threaded = clone(fitted)
        threaded.__dict__ |= fitted.__dict__ | {"n_jobs": n_jobs}
        assert_allclose(threaded.predict_proba(iris[0]), whole, rtol=1e-12)
    assert fitted.predict_proba(iris[0][:0]).shape == (0, 3)
