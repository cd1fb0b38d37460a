"""What TAO trees are given: labels, weights, units, storage and frames."""

import time
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import assert_same_tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import (
    make_classification,
)
from sklearn.metrics import accuracy_score
from sklearn.tree import DecisionTreeRegressor
from tao_models import LEAVES, SPLITS, classifier, regressor

from silva import TAOTreeClassifier, export_text
from silva.copies import row_groups

# ---- labels and outputs -------------------------------------------------------------------------


@LEAVES
@pytest.mark.parametrize(
    "names",
    [["setosa", "versicolor", "virginica"], [10, -1, 7], [1.0, 2.0, 5.0]],
    ids=["strings", "integers", "floats"],
)
def test_any_labels_will_do(iris, names, leaf):
    X, y = iris
    plain = classifier(leaf=leaf).fit(X, y)
    order = np.argsort(names)
    labels = np.array(names)[order][y]  # sorted: the codes inside are the same
    model = classifier(leaf=leaf).fit(X, labels)
    assert_array_equal(model.classes_, np.unique(labels))
    assert_array_equal(model.predict(X), model.classes_[plain.predict(X)])
    assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert model.predict(X).dtype == labels.dtype


@LEAVES
def test_probabilities_are_probabilities(iris, leaf):
    X, y = iris
    model = classifier(leaf=leaf).fit(X, y)
    for rows in (X, 10 * X - 30):
        p = model.predict_proba(rows)
        assert p.shape == (len(X), 3)
        assert (p >= 0).all()
        assert_allclose(p.sum(axis=1), 1)
        assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(rows))
    with np.errstate(divide="ignore"):
        assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)))


@SPLITS
@LEAVES
def test_several_classification_targets(iris, split, leaf):
    X, y = iris
    Y = np.stack([y, X[:, 0] > 5.8], axis=1)
    model = classifier(split=split, leaf=leaf, max_depth=4, loss="squared").fit(X, Y)
    assert [list(c) for c in model.classes_] == [[0, 1, 2], [0, 1]]
    assert_array_equal(model.n_classes_, [3, 2])
    assert model.n_outputs_ == 2
    predicted = model.predict(X)
    assert predicted.shape == Y.shape
    assert (predicted == Y).mean(axis=0).min() > 0.85
    one, two = model.predict_proba(X)
    assert (one.shape, two.shape) == ((150, 3), (150, 2))
    assert_allclose(one.sum(axis=1), 1)
    assert_array_equal(two.argmax(axis=1), predicted[:, 1])
    assert len(model.predict_log_proba(X)) == 2


def test_several_targets_of_strings(iris):
    X, y = iris
    Y = np.stack([np.array(["a", "b", "c"])[y], np.where(X[:, 0] > 5.8, "long", "short")], axis=1)
    model = classifier(loss="squared", max_depth=4).fit(X, Y)
    assert (model.predict(X) == Y).mean() > 0.85
    frame = pd.DataFrame(Y, columns=["kind", "length"])
    assert_array_equal(classifier(loss="squared", max_depth=4).fit(X, frame).predict(X),
                       model.predict(X))  # fmt: skip


@SPLITS
@LEAVES
def test_several_regression_targets(diabetes, split, leaf):
    X, y = diabetes
    Y = np.stack([y, 500 * X[:, 2] + 3, -y], axis=1)
    model = regressor(split=split, leaf=leaf, max_depth=4).fit(X, Y)
    assert model.predict(X).shape == Y.shape
    assert model.n_outputs_ == 3
    assert model.score(X, Y) > 0.3
    assert_allclose(model.predict(X)[:, 2], -model.predict(X)[:, 0], rtol=1e-3, atol=0.1)


def test_the_shape_of_y_is_the_shape_of_the_answer(diabetes, iris):
    X, y = diabetes
    assert regressor().fit(X, y).predict(X).shape == (len(y),)
    assert regressor().fit(X, y[:, None]).predict(X).shape == (len(y), 1)
    X, y = iris
    assert classifier().fit(X, y).predict(X).shape == (len(y),)


@LEAVES
def test_units_of_the_target_do_not_matter(diabetes, leaf):
    X, y = diabetes
    one = regressor(leaf=leaf).fit(X, y)
    other = regressor(leaf=leaf).fit(X, 1024 * y + 5000)
    assert_allclose(other.predict(X), 1024 * one.predict(X) + 5000, rtol=1e-4)


# ---- weights ------------------------------------------------------------------------------------


def test_weight_two_equals_duplicated_rows(iris):
    # Whole numbers on a byte grid and a greedy start: nothing is rounded.
    X, y = np.round(iris[0] * 10), iris[1]
    twice = np.random.default_rng(0).integers(1, 3, len(X))
    for options in ({"split": "axis"}, {"init": "cart"}):
        weighted = classifier(**options).fit(X, y, sample_weight=twice)
        repeated = classifier(**options).fit(np.repeat(X, twice, axis=0), np.repeat(y, twice))
        assert_array_equal(weighted.predict(X), repeated.predict(X))
        assert_allclose(weighted.history_[-1].objective, repeated.history_[-1].objective, rtol=1e-3)
        assert weighted.tree_.weight[0] == twice.sum()


@LEAVES
def test_weight_two_equals_duplicated_rows_in_regression(diabetes, leaf):
    X, y = np.round(diabetes[0][:200], 2), diabetes[1][:200]
    twice = np.random.default_rng(0).integers(1, 3, len(X))
    options = {"init": "cart", "leaf": leaf, "max_iter": 2, "max_depth": 2}
    weighted = regressor(**options).fit(X, y, sample_weight=twice)
    repeated = regressor(**options).fit(np.repeat(X, twice, axis=0), np.repeat(y, twice))
    assert_allclose(weighted.history_[-1].objective, repeated.history_[-1].objective, rtol=1e-2)
    assert np.isclose(weighted.predict(X), repeated.predict(X), rtol=1e-2).mean() > 0.97


def test_doubling_every_row_equals_doubling_every_weight(iris):
    X, y = np.round(iris[0] * 10), iris[1]
    weighted = classifier().fit(X, y, sample_weight=np.full(150, 2.0))
    repeated = classifier().fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    assert_array_equal(weighted.predict(X), repeated.predict(X))
    assert_allclose(weighted.history_[-1].objective, repeated.history_[-1].objective, rtol=1e-3)


@SPLITS
@LEAVES
def test_rows_of_weight_zero_are_as_if_absent(iris, diabetes, split, leaf):
    for Model, (X, y) in ((classifier, iris), (regressor, diabetes)):
        weight = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
        weight[y == y.max()] = 1  # every class stays
        used = weight > 0
        one = Model(split=split, leaf=leaf).fit(X, y, sample_weight=weight)
        other = Model(split=split, leaf=leaf).fit(X[used], y[used], sample_weight=weight[used])
        assert_array_equal(one.apply(X), other.apply(X))
        # Sums run in another order; linear leaves are solved in single precision.
        rtol = 1e-12 if leaf == "constant" else 1e-6
        assert_allclose(one.tree_.values, other.tree_.values, rtol=rtol, atol=1e-14)
        assert_allclose(one.feature_importances_, other.feature_importances_, rtol=rtol)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "float64"])
@pytest.mark.parametrize("labels", [[0, 1], [3, 120], [5, 6, 9]])
def test_classes_are_found_as_unique_finds_them(dtype, labels):
    rng = np.random.default_rng(0)
    y = np.array(labels, dtype)[rng.integers(len(labels), size=400)]
    model = TAOTreeClassifier(max_depth=2, alpha=0.01, max_iter=2).fit(y[:, None].astype(float), y)
    assert_array_equal(model.classes_, np.unique(y))
    assert model.classes_.dtype == y.dtype
    assert_array_equal(model.predict(y[:, None].astype(float)), y)


def test_class_weight_moves_the_decision(iris):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] + rng.normal(size=300) > 1.2).astype(int)  # a rare class, much overlap
    plain, heavy = classifier().fit(X, y), classifier(class_weight={0: 1, 1: 20}).fit(X, y)
    assert (heavy.predict(X) == 1).sum() > (plain.predict(X) == 1).sum() + 20
    by_hand = classifier().fit(X, y, sample_weight=np.where(y == 1, 20.0, 1.0))
    assert_same_tree(heavy.tree_, by_hand.tree_)
    balanced = classifier(class_weight="balanced").fit(X, y)
    weight = np.where(y == 1, 150 / (y == 1).sum(), 150 / (y == 0).sum())
    assert_same_tree(balanced.tree_, classifier().fit(X, y, sample_weight=weight).tree_)


def test_class_weight_and_sample_weight_multiply(iris):
    X, y = iris
    weight = np.random.default_rng(0).uniform(0.5, 2, 150)
    one = classifier(class_weight={0: 2, 1: 1, 2: 1}).fit(X, y, sample_weight=weight)
    other = classifier().fit(X, y, sample_weight=weight * np.where(y == 0, 2, 1))
    assert_same_tree(one.tree_, other.tree_)


# ---- units and storage --------------------------------------------------------------------------

CHANGES = {
    "times 1000": (1000.0, 0.0),
    "shifted": (1.0, -77.7),
    "thousandth and far off": (0.001, 40.0),
}


@SPLITS
@LEAVES
@pytest.mark.parametrize(
    ("init", "change"),
    [
        (init, change)
        for init in ("auto", "cart", "random", "given")
        for change in CHANGES
        # scikit-learn reads float32: its own tree changes far from zero.
        if (init, change) != ("given", "thousandth and far off")
    ],
)
def test_units_of_the_columns_do_not_matter(diabetes, iris, split, leaf, init, change):
    factor, shift = CHANGES[change]
    for Model, (X, y) in ((classifier, iris), (regressor, diabetes)):
        other = X.copy()
        other[:, 2] = factor * other[:, 2] + shift
        models = []
        for rows in (X, other):
            greedy = DecisionTreeRegressor(max_depth=3, random_state=0).fit(rows, y)
            start = greedy if init == "given" else init
            models.append(Model(split=split, leaf=leaf, init=start, max_iter=4).fit(rows, y))
        one, two = models
        assert (one.apply(X) == two.apply(other)).mean() == 1
        assert_allclose(one.predict(X), two.predict(other), rtol=1e-3)
        assert_allclose(one.feature_importances_, two.feature_importances_, atol=1e-3)
        assert_allclose(
            [step.objective for step in one.history_],
            [step.objective for step in two.history_],
            rtol=1e-3,
        )


def test_coefficients_are_in_the_units_of_the_user(iris):
    X, y = iris
    other = X * [1, 1000, 1, 1]
    one, two = classifier().fit(X, y).tree_, classifier().fit(other, y).tree_
    assert_allclose(
        two.coefficients.toarray() * [1, 1000, 1, 1], one.coefficients.toarray(), rtol=1e-3
    )
    model = classifier().fit(X, y)
    right = X @ one.coefficients.toarray()[0] >= one.threshold[0]
    assert_array_equal(model.decision_path(X).toarray()[:, one.right[0]], right)


def test_a_pixel_that_is_almost_always_zero_does_not_explode(iris):
    X, y = iris
    pixel = np.zeros(150)
    pixel[[3, 70]] = 255
    model = classifier().fit(np.column_stack([X, pixel]), y)
    assert model.feature_importances_[4] < 0.05
    assert model.score(np.column_stack([X, np.full(150, 0.0)]), y) > 0.9


def test_single_and_double_precision_are_about_as_good(digits, diabetes):
    X, X_test, y, y_test = digits
    scores = [
        classifier(max_depth=5, alpha=0.3)
        .fit(X.astype(dtype), y)
        .score(X_test.astype(dtype), y_test)
        for dtype in (np.float32, np.float64)
    ]
    assert min(scores) > 0.8
    assert abs(scores[0] - scores[1]) < 0.04
    X, y = diabetes
    scores = [
        regressor(leaf="linear").fit(X.astype(dtype), y).score(X, y)
        for dtype in (np.float32, np.float64)
    ]
    assert abs(scores[0] - scores[1]) < 0.05


@SPLITS
def test_sparse_and_dense_rows_are_about_as_good(digits, split):
    X, X_test, y, y_test = digits
    options = {"max_depth": 6, "alpha": 0.3, "split": split}
    full = classifier(**options).fit(X, y).score(X_test, y_test)
    scores = {}
    for name, kind in (("csr", sparse.csr_array), ("csc", sparse.csc_array)):
        model = classifier(**options).fit(kind(X), y)
        scores[name] = model.score(kind(X_test), y_test)
        assert scores[name] == model.score(X_test, y_test)
    assert scores["csr"] == scores["csc"]
    assert abs(full - scores["csr"]) < 0.06


@pytest.mark.parametrize("init", ["auto", "cart"])
@SPLITS
def test_long_indices_of_sparse_rows_are_read(iris, split, init):
    X, y = iris
    wide = sparse.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    one = classifier(split=split, init=init).fit(sparse.csr_array(X), y)
    other = classifier(split=split, init=init).fit(wide, y)
    assert_array_equal(one.predict(X), other.predict(wide))


def test_47000_sparse_columns_are_not_written_out():
    rng = np.random.default_rng(0)
    X = sparse.random_array((2000, 47_000), density=0.002, rng=rng, format="csr")
    topic = rng.integers(2, size=2000)
    words = sparse.csr_array((rng.random((2000, 40)) < 0.2) * np.where(topic, 1, 0)[:, None])
    X = sparse.csr_array(sparse.hstack([X[:, :-40], words.astype(float)]))
    tracemalloc.start()
    began = time.perf_counter()
    for split in ("oblique", "axis"):
        model = classifier(split=split, alpha=1.0, max_iter=3).fit(X, topic)
        assert model.score(X, topic) > (0.9 if split == "oblique" else 0.7)
        assert model.tree_.coefficients.nnz < 5000
    _, peak = tracemalloc.get_traced_memory()
    seconds = time.perf_counter() - began
    tracemalloc.stop()
    assert peak < 100e6  # written out: 752 MB
    assert seconds < 60


def test_fortran_order_and_integers_are_read(iris):
    X, y = iris
    whole = np.round(X * 10)
    one = classifier().fit(whole, y)
    for other in (np.asfortranarray(whole), whole.astype(np.int64), whole.astype(np.uint8)):
        assert_array_equal(classifier().fit(other, y).predict(other), one.predict(whole))
    assert_array_equal(one.predict(whole[::-1]), one.predict(whole)[::-1])


# ---- frames -------------------------------------------------------------------------------------


def flowers(Frame, n=300, seed=0):
    """A frame with a category, gaps in both kinds of columns, and a target that needs both."""
    rng = np.random.default_rng(seed)
    colour = rng.choice(["red", "green", "blue"], n)
    size = rng.normal(size=n)
    tall = rng.random(n) < 0.5
    price = 2.0 * (colour == "red") + (size > 0) + rng.normal(size=n) * 0.1
    gaps, lost = rng.random(n) < 0.1, rng.random(n) < 0.1
    data = {
        "colour": [None if g else c for g, c in zip(lost, colour.tolist(), strict=True)],
        "size": [None if g else v for g, v in zip(gaps, size.tolist(), strict=True)],
        "tall": tall.tolist(),
        "noise": rng.normal(size=n).tolist(),
    }
    return Frame(data), price, (price > 1.5).astype(int)


@pytest.mark.parametrize("Frame", [pd.DataFrame, pl.DataFrame])
@SPLITS
@LEAVES
def test_frames_with_categories_and_gaps(Frame, split, leaf):
    X, price, dear = flowers(Frame)
    model = classifier(split=split, leaf=leaf).fit(X, np.where(dear, "dear", "cheap"))
    assert model.score(X, np.where(dear, "dear", "cheap")) > 0.85
    assert np.isfinite(model.predict_proba(X)).all()
    assert "colour" in export_text(model)
    assert_array_equal(model.feature_names_in_, ["colour", "size", "tall", "noise"])
    assert model.feature_importances_.shape == (4,)
    assert_allclose(model.feature_importances_.sum(), 1)
    assert model.feature_importances_[:2].sum() > 0.7
    valued = regressor(split=split, leaf=leaf).fit(X, price)
    assert valued.score(X, price) > 0.6
    fresh, *_ = flowers(Frame, 50, seed=1)
    assert np.isfinite(valued.predict(fresh)).all()
    assert set(model.predict(fresh)) <= {"dear", "cheap"}


def test_pandas_and_polars_give_the_same_tree():
    X, _, dear = flowers(pd.DataFrame)
    other, *_ = flowers(pl.DataFrame)
    assert_same_tree(classifier().fit(X, dear).tree_, classifier().fit(other, dear).tree_)


def test_unseen_levels_and_new_gaps_are_answered():
    X, _, dear = flowers(pd.DataFrame)
    model = classifier().fit(X.assign(noise=1.0), dear)
    fresh = X.head(5).assign(colour="violet", noise=np.nan)
    assert model.predict(fresh).shape == (5,)


def test_pandas_categories_and_series_are_read():
    X, price, dear = flowers(pd.DataFrame)
    as_category = X.assign(colour=X["colour"].astype("category"))
    one = classifier().fit(X, pd.Series(dear))
    other = classifier().fit(as_category, dear)
    assert accuracy_score(one.predict(X), other.predict(as_category)) == 1
    assert regressor().fit(X, pd.Series(price)).predict(X).shape == (300,)
    assert classifier().fit(X, pl.Series(dear)).score(X, dear) > 0.85


def test_missing_numbers_in_an_array(iris):
    X, y = iris
    X = X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    for leaf in ("constant", "linear"):
        model = classifier(leaf=leaf).fit(X, y)
        assert model.score(X, y) > 0.85
        assert np.isfinite(model.predict_proba(np.full((2, 4), np.nan))).all()


def test_missing_values_that_mean_something_are_used():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = rng.random(300) < 0.5
    X[y, 1] = np.nan
    model = classifier().fit(X, y)
    assert model.score(X, y) == 1
    assert "is missing" in export_text(model)


def test_more_rows_than_a_piece_of_work():
    X, y = make_classification(9000, 12, n_informative=8, n_classes=3, random_state=0)
    model = classifier(max_depth=5, alpha=1.0, max_iter=4).fit(X, y)
    half = classifier(max_depth=5, alpha=1.0, max_iter=4).fit(X.astype(np.float32), y)
    assert model.score(X, y) > 0.75
    assert abs(model.score(X, y) - half.score(X.astype(np.float32), y)) < 0.03


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse"])
def test_equal_rows_share_a_number_and_different_rows_do_not(kind):
    X = np.random.default_rng(0).integers(0, 2, size=(3000, 16)).astype(np.float64)
    rows = {"dense": X, "float32": X.astype(np.float32), "sparse": sparse.csr_array(X)}[kind]
    groups = row_groups(rows, seed=0)
    distinct, member = np.unique(X, axis=0, return_inverse=True)
    assert len(np.unique(groups)) == len(distinct)
    assert len(np.unique(np.column_stack([groups, member.ravel().astype(np.uint64)]), axis=0)) == (
        len(distinct)
    )
