"""Bad input: each a clear error that names the culprit, or a sensible model."""

import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from few_rows import MODELS, data
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from silva import (
    OptimalTreeClassifier,
    TAOForestClassifier,
    TAOTreeClassifier,
    TAOTreeRegressor,
)

KINDS = pytest.mark.parametrize(
    "options",
    [{}, {"split": "axis"}, {"leaf": "linear"}, {"split": "axis", "leaf": "linear"}],
    ids=["default", "axis", "linear", "axis linear"],
)


def fitted_unless_refused(model, culprit, *arguments, **options):
    """The fitted model, or None where an error names the culprit."""
    try:
        return model.fit(*arguments, **options)
    except ValueError as error:
        if not re.search(culprit, str(error)):
            raise
        return None


# ---- X ------------------------------------------------------------------------------------------


@MODELS
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_in_x_is_refused(Model, value):
    X, y = data()
    bad = X.copy()
    bad[3, 1] = value
    with pytest.raises(ValueError, match="X contains infinity"):
        Model().fit(bad, y)
    with pytest.raises(ValueError, match="X contains infinity"):
        Model().fit(sparse.csr_array(bad), y)
    model = Model().fit(X, y)
    for method in (model.predict, model.apply, model.decision_path):
        with pytest.raises(ValueError, match="X contains infinity"):
            method(bad)


@MODELS
def test_nan_in_x_is_filled_or_refused(Model):
    X, y = data()
    bad = X.copy()
    bad[3, 1] = np.nan
    assert np.isfinite(Model().fit(bad, y).predict(bad)).all()
    strict = Model(missing="error")
    with pytest.raises(ValueError, match=r"'x1' of X is missing \(NaN\) in 1 of 60 rows"):
        strict.fit(bad, y)
    strict.fit(X, y)
    with pytest.raises(ValueError, match="'x1' of X is missing"):
        strict.predict(bad)
    with pytest.raises(ValueError, match="sparse and column 'x1' holds NaN"):
        Model().fit(sparse.csr_array(bad), y)


@MODELS
@KINDS
def test_a_column_of_nothing_but_nan(Model, options):
    X, y = data()
    X[:, 1] = np.nan
    model = Model(**options).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.feature_importances_[1] == 0


@pytest.mark.parametrize("seed", [91, 97, 135])
def test_a_random_start_gives_no_weight_to_a_column_that_does_not_vary(seed):
    X, y = data()
    X[:, 1] = 3
    model = TAOTreeRegressor(random_state=seed).fit(X, y)
    assert model.feature_importances_[1] == 0


@MODELS
def test_empty_x_is_refused(Model):
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        Model().fit(np.empty((0, 3)), np.empty(0))
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        Model().fit(np.empty((5, 0)), np.zeros(5))
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        Model().fit(sparse.csr_array((0, 3)), np.empty(0))


@MODELS
def test_wrong_shapes_of_x_are_refused(Model):
    X, y = data()
    with pytest.raises(ValueError, match="Expected 2D array"):
        Model().fit(X[:, 0], y)
    with pytest.raises(ValueError, match=r"dim 3|dimension"):
        Model().fit(X[:, :, None], y)
    model = Model().fit(X, y)
    for wrong in (X[:, :2], np.hstack([X, X]), sparse.csr_array(X[:, :2])):
        with pytest.raises(ValueError, match="expecting 3 features"):
            model.predict(wrong)
    with pytest.raises(ValueError, match="Expected 2D array"):
        model.predict(X[0])


@MODELS
def test_wrong_dtypes_of_x_are_refused(Model):
    X, y = data()
    with pytest.raises(ValueError, match="Complex data not supported"):
        Model().fit(X + 1j, y)
    with pytest.raises(ValueError, match="could not convert string to float: 'blue'"):
        Model().fit(np.array([["red", "blue"]] * 60, dtype=object)[:, ::-1], y)
    with pytest.raises(TypeError, match="not numbers"):
        Model().fit(np.full((60, 2), np.datetime64("2020-01-01")), y)
    with pytest.raises((TypeError, ValueError), match=r"float|dict"):
        Model().fit(np.full((60, 2), {}), y)


@MODELS
def test_frames_of_other_columns_are_refused(Model):
    X, y = data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = Model().fit(frame, y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"b": "z"}))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["a", "c", "b"]])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["a", "b"]])
    dates = frame.assign(b=pd.Timestamp("2020-01-01"))
    with pytest.raises(TypeError, match="column 'b' of X"):
        Model().fit(dates, y)
    with pytest.raises(TypeError, match="column 'b' of X"):
        Model().fit(pl.from_pandas(dates), y)


@MODELS
def test_an_array_after_a_frame_with_categories_is_refused(Model):
    X, y = data()
    frame = pd.DataFrame({"a": X[:, 0], "colour": ["red", "blue", "blue"] * 20})
    model = Model().fit(frame, y)
    with pytest.raises(TypeError, match="frame"):
        model.predict(X[:, :2])


@MODELS
@KINDS
def test_constant_columns_are_harmless(Model, options):
    X, y = data()
    padded = np.column_stack([np.full(60, 7.0), X, np.zeros(60)])
    model = Model(**options, random_state=0).fit(padded, y)
    assert model.score(padded, y) > 0.9
    assert_array_equal(model.feature_importances_[[0, 4]], 0)


@MODELS
@KINDS
def test_nothing_but_constant_columns_gives_one_leaf(Model, options):
    _, y = data()
    model = Model(**options).fit(np.ones((60, 3)), y)
    assert model.get_n_leaves() == 1
    predicted = model.predict(np.ones((60, 3)))
    expected = np.bincount(y).argmax() if Model is TAOTreeClassifier else y.mean()
    assert_allclose(predicted, expected, rtol=1e-5)
    model = Model(**options).fit(sparse.csr_array((60, 3)), y)
    assert model.get_n_leaves() == 1


@MODELS
@KINDS
@pytest.mark.parametrize("factor", [1e-100, 1e-30, 1e30, 1e100])
def test_columns_of_any_size_are_fitted(Model, options, factor):
    X, y = data()
    model = Model(**options, random_state=0).fit(X * factor, y)
    assert model.score(X * factor, y) > 0.9


@MODELS
@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_columns_whose_squares_overflow_are_refused_or_fitted(Model, factor):
    X, y = data()
    model = fitted_unless_refused(Model(random_state=0), r"\bX\b", X * factor, y)
    assert model is None or model.score(X * factor, y) > 0.9


@MODELS
def test_columns_wider_than_double_precision_are_refused_or_fitted(Model):
    # max - min overflows here.
    X, y = data()
    X[0, 1], X[1, 1] = 1.7e308, -1.7e308
    model = fitted_unless_refused(Model(random_state=0), r"\bX\b", X, y)
    assert model is None or np.isfinite(model.predict(X)).all()


@MODELS
@KINDS
def test_columns_far_from_zero_are_fitted(Model, options):
    X, y = data()
    model = Model(**options, random_state=0).fit(X + 1e7, y)
    assert model.score(X + 1e7, y) > 0.9


# ---- y ------------------------------------------------------------------------------------------


@MODELS
def test_lengths_that_disagree_are_refused(Model):
    X, y = data()
    with pytest.raises(ValueError, match="y has 50 entries, X has 60 rows"):
        Model().fit(X, y[:50])


@MODELS
def test_y_must_be_there(Model):
    X, _ = data()
    with pytest.raises(ValueError, match="y"):
        Model().fit(X, None)
    with pytest.raises(ValueError, match="dim 3"):
        Model().fit(X, np.zeros((60, 2, 2)))


@MODELS
def test_infinite_targets_are_refused(Model):
    X, y = data()
    y = y.astype(float)
    y[3] = np.inf
    with pytest.raises(ValueError, match="y contains infinity"):
        Model().fit(X, y)


@pytest.mark.parametrize(
    "Model", [TAOTreeClassifier, TAOTreeRegressor, TAOForestClassifier, OptimalTreeClassifier]
)
def test_missing_targets_are_counted_and_the_error_says_who_takes_them(Model):
    X, y = data()
    numbers = y.astype(float)
    numbers[[3, 5]] = np.nan
    nullable = pd.Series(numbers).astype("Int64")
    given = [numbers, numbers.tolist(), nullable, nullable.astype(object), pl.Series(numbers)]
    if Model is not TAOTreeRegressor:
        names = np.where(np.isnan(numbers), None, np.where(y, "yes", "no"))
        given += [names, pd.Series(names, dtype="string"), pd.Series(names, dtype="category")]
    for targets in given:
        with pytest.raises(ValueError, match=r"y is missing.* in 2 of 60 entries.*SilvaTree"):
            Model().fit(X, targets)


def test_targets_of_the_wrong_kind_are_refused():
    X, y = data()
    with pytest.raises(ValueError, match="continuous"):
        TAOTreeClassifier().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="could not convert string"):
        TAOTreeRegressor().fit(X, np.array(["a", "b"])[y])
    with pytest.raises((ValueError, TypeError), match=r"(?i)y |label|mix"):
        TAOTreeClassifier().fit(X, np.array(["a", 1] * 30, dtype=object))
    with pytest.raises(ValueError, match=r"(?i)complex|y"):
        TAOTreeRegressor().fit(X, y + 1j)


@KINDS
@pytest.mark.parametrize("loss", ["misclassification", "squared", "log"])
def test_one_class_is_one_leaf(options, loss):
    X, _ = data()
    model = TAOTreeClassifier(**options, loss=loss, random_state=0).fit(X, ["only"] * 60)
    assert_array_equal(model.predict(X), "only")
    assert_allclose(model.predict_proba(X), 1)
    assert model.get_n_leaves() == 1
    assert_array_equal(model.feature_importances_, 0)


@KINDS
def test_a_constant_target_is_one_leaf(options):
    X, _ = data()
    model = TAOTreeRegressor(**options, random_state=0).fit(X, np.full(60, 3.5))
    assert_allclose(model.predict(X), 3.5)
    assert model.get_n_leaves() == 1


@pytest.mark.parametrize("factor", [1e-30, 1e30, 1e-150, 1e150])
@KINDS
def test_targets_of_any_size_are_fitted(options, factor):
    X, _ = data()
    y = X[:, 0]
    model = TAOTreeRegressor(**options, random_state=0).fit(X, y * factor)
    plain = TAOTreeRegressor(**options, random_state=0).fit(X, y)
    assert_allclose(model.predict(X) / factor, plain.predict(X), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_targets_whose_squares_overflow_are_refused_or_fitted(factor):
    X, _ = data()
    y = X[:, 0]
    model = fitted_unless_refused(TAOTreeRegressor(random_state=0), r"\by\b", X, y * factor)
    assert model is None or np.corrcoef(model.predict(X) / factor, y)[0, 1] > 0.8


# ---- few rows -----------------------------------------------------------------------------------


@MODELS
@KINDS
def test_one_sample_is_answered_for_all(Model, options):
    X, y = data()
    model = Model(**options).fit(X[:1], y[:1])
    assert model.get_n_leaves() == 1
    assert_allclose(model.predict(X), y[0])


@MODELS
@KINDS
def test_two_samples(Model, options):
    X, y = np.array([[0.0, 1], [1, 0]]), np.array([0, 1])
    model = Model(**options, alpha=0.001, max_depth=1, random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert model.get_n_leaves() <= 2


@MODELS
@KINDS
def test_more_depth_than_samples(Model, options):
    X, y = data(7)
    model = Model(**options, max_depth=30, alpha=0.001, random_state=0).fit(X, y)
    assert model.get_n_leaves() <= 7
    assert model.score(X, y) > 0.8


@MODELS
@KINDS
def test_depth_zero_is_one_leaf(Model, options):
    X, y = data()
    model = Model(**options, max_depth=0).fit(X, y)
    assert model.get_depth() == 0
    assert model.get_n_leaves() == 1


@KINDS
def test_equal_rows_with_different_labels(options):
    X = np.repeat([[0.0, 0], [1, 1]], 30, axis=0)
    y = np.array([0] * 20 + [1] * 10 + [1] * 25 + [0] * 5)
    model = TAOTreeClassifier(**options, loss="squared", max_depth=4, random_state=0).fit(X, y)
    assert_array_equal(model.predict([[0, 0], [1, 1]]), [0, 1])
    assert_allclose(model.predict_proba([[0, 0], [1, 1]])[:, 1], [1 / 3, 5 / 6], atol=0.05)
    assert model.get_n_leaves() <= 2
    model = TAOTreeRegressor(**options, max_depth=4, random_state=0).fit(X, y)
    assert_allclose(model.predict([[0, 0], [1, 1]]), [1 / 3, 5 / 6], atol=0.05)


@MODELS
def test_more_columns_than_rows(Model):
    X, y = data(20, 200)
    for options in ({}, {"split": "axis"}, {"leaf": "linear"}):
        assert np.isfinite(Model(**options).fit(X, y).predict(X)).all()


def test_linear_leaves_on_very_many_columns_are_refused_or_fitted():
    # A matrix of columns by columns would take 18 GB a leaf.
    script = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
import numpy as np
from scipy import sparse
from silva import TAOTreeRegressor
X = sparse.random_array((200, 47_000), density=0.002, rng=np.random.default_rng(0), format="csr")
try:
    model = TAOTreeRegressor(leaf="linear", max_depth=1, max_iter=1).fit(X, X.sum(axis=1))
    print("fitted", np.isfinite(model.predict(X)).all())
except ValueError as error:
    print("refused", "leaf" in str(error))
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.stdout.strip() in ("fitted True", "refused True"), done.stderr[-500:]


# ---- weights ------------------------------------------------------------------------------------


@MODELS
@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (-np.ones(60), "(?i)negative values.*sample_weight"),
        (np.where(np.arange(60) == 5, -1.0, 1.0), "(?i)negative values.*sample_weight"),
        (np.zeros(60), "(?i)sample.?weights?.*(zero|positive)"),
        (np.full(60, np.nan), "sample_weight contains NaN"),
        (np.full(60, np.inf), "sample_weight contains infinity"),
        (np.ones(59), "sample_weight"),
        (np.ones((60, 2)), "(?i)sample.weights?"),
        (["heavy"] * 60, "could not convert string"),
    ],
    ids=["negative", "one negative", "zeros", "nan", "infinity", "short", "2d", "strings"],
)
def test_bad_weights_are_refused(Model, weight, says):
    X, y = data()
    with pytest.raises(ValueError, match=says):
        Model().fit(X, y, sample_weight=weight)


@MODELS
@KINDS
@pytest.mark.parametrize("size", [1e-50, 1e-10, 1e10, 1e39])
def test_weights_of_any_size_are_refused_or_fitted(Model, options, size):
    # The core holds weights in single precision.
    X, y = data()
    model = Model(**options, alpha=0.01 * size, random_state=0)
    model = fitted_unless_refused(model, "sample_weight", X, y, sample_weight=np.full(60, size))
    if size in (1e-10, 1e10):
        assert model.score(X, y) > 0.6
    assert model is None or np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("heavy", "class_weight"),
        ({0: -1.0, 1: 1.0}, "(?i)class_weight|negative"),
        ({0: np.nan, 1: 1.0}, "(?i)class_weight|nan"),
        ({0: 0.0, 1: 0.0}, "(?i)class_weight|weight"),
        (3, "class_weight"),
    ],
)
def test_bad_class_weights_are_refused(value, says):
    X, y = data()
    with pytest.raises((ValueError, TypeError), match=says):
        TAOTreeClassifier(class_weight=value).fit(X, y)
