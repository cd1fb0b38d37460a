"""Bad constructor arguments and starts, and reading before fitting: each a clear error."""

import numpy as np
import pytest
from conftest import make_tree
from few_rows import MODELS, data
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier

from silva import (
    TAOTreeClassifier,
)

# ---- constructor arguments ----------------------------------------------------------------------

WRONG = [
    ("split", "diagonal", ValueError),
    ("split", None, ValueError),
    ("leaf", "quadratic", ValueError),
    ("leaf", 3, ValueError),
    ("max_depth", -1, ValueError),
    ("max_depth", 2.5, TypeError),
    ("max_depth", "deep", TypeError),
    ("max_depth", True, TypeError),
    ("alpha", -0.1, ValueError),
    ("alpha", np.nan, ValueError),
    ("alpha", np.inf, ValueError),
    ("alpha", "small", (TypeError, ValueError)),
    ("l2", -1.0, ValueError),
    ("l2", np.nan, ValueError),
    ("l2", "some", TypeError),
    ("shrinkage", -1.0, ValueError),
    ("shrinkage", np.inf, ValueError),
    ("shrinkage", [1], TypeError),
    ("max_iter", -1, ValueError),
    ("max_iter", 2.5, TypeError),
    ("max_iter", None, TypeError),
    ("tol", -1e-3, ValueError),
    ("tol", "tight", TypeError),
    ("init", "greedy", ValueError),
    ("init", 3, TypeError),
    ("init", None, TypeError),
    ("init", np.zeros(3), TypeError),
    ("monotone", "yes", (TypeError, ValueError)),
    ("missing", "drop", ValueError),
    ("missing", None, ValueError),
    ("max_categories", 1, ValueError),
    ("max_categories", 2.5, TypeError),
    ("warm_start", "yes", (TypeError, ValueError)),
    ("n_jobs", 0, ValueError),
    ("n_jobs", "all", (TypeError, ValueError)),
    ("n_jobs", 1.5, (TypeError, ValueError)),
    ("random_state", "lucky", ValueError),
    ("random_state", -1, ValueError),
    ("device", "abacus", ValueError),
    ("device", None, ValueError),
    ("verbose", "loud", (TypeError, ValueError)),
]


@MODELS
@pytest.mark.parametrize(("name", "value", "error"), WRONG)
def test_wrong_arguments_are_named(Model, name, value, error):
    X, y = data()
    model = Model(**{name: value})  # kept untouched until fit
    assert getattr(model, name) is value
    says = "(?i)random_?state|seed" if name == "random_state" else rf"\b{name}\b"
    with pytest.raises(error, match=says):
        model.fit(X, y)


@pytest.mark.parametrize("value", ["hinge", None, 3])
def test_a_wrong_loss_is_named(value):
    X, y = data()
    with pytest.raises(ValueError, match="loss must be one of"):
        TAOTreeClassifier(loss=value).fit(X, y)


@MODELS
def test_names_of_starts_belong_to_the_task(Model):
    X, y = data()
    foreign = "target_means" if Model is TAOTreeClassifier else "class_means"
    with pytest.raises(ValueError, match=f"init must be one of .* got '{foreign}'"):
        Model(init=foreign).fit(X, y)


@MODELS
def test_arguments_are_by_name_only_and_known(Model):
    with pytest.raises(TypeError):
        Model("oblique")
    with pytest.raises(TypeError, match="depth"):
        Model(depth=3)
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        Model().set_params(depth=3)


@MODELS
def test_numpy_numbers_are_numbers(Model):
    X, y = data()
    model = Model(
        max_depth=np.int64(2), alpha=np.float32(0.1), max_iter=np.int32(2), tol=np.float64(0),
        monotone=np.bool_(True), n_jobs=np.int64(1), random_state=np.int64(3),
    )  # fmt: skip
    assert model.fit(X, y).get_depth() <= 2


@MODELS
def test_a_callback_must_be_callable(Model):
    X, y = data()
    with pytest.raises(TypeError, match="callable"):
        Model().fit(X, y, callback=3)


# ---- starts -------------------------------------------------------------------------------------


@MODELS
def test_a_start_of_another_width_is_refused(Model):
    X, y = data()
    narrow = Model(random_state=0).fit(X[:, :2], y)
    greedy = DecisionTreeClassifier().fit(X[:, :2], y)
    tree = make_tree(np.random.default_rng(0), 4, 2)
    for init in (narrow, narrow.tree_, greedy, tree):
        with pytest.raises(ValueError, match="init is a tree over 2 columns, X has 3"):
            Model(init=init).fit(X, y)


@MODELS
def test_an_unfitted_start_is_refused(Model):
    X, y = data()
    with pytest.raises((NotFittedError, TypeError), match="fitted"):
        Model(init=DecisionTreeClassifier()).fit(X, y)
    with pytest.raises((NotFittedError, TypeError), match="fitted"):
        Model(init=Model()).fit(X, y)


@MODELS
def test_a_warm_start_on_another_width_is_refused(Model):
    X, y = data()
    model = Model(warm_start=True).fit(X[:, :2], y)
    with pytest.raises(ValueError, match=r"warm_start|tree over 2 columns, X has 3"):
        model.fit(X, y)


def test_a_warm_start_with_other_classes_fits_them():
    X, y = data()
    model = TAOTreeClassifier(warm_start=True, max_depth=3, random_state=0).fit(X, y)
    labels = np.array(["a", "b", "c"])[y + (X[:, 1] > 0)]
    model.fit(X, labels)
    assert_array_equal(model.classes_, ["a", "b", "c"])
    assert set(model.predict(X)) <= {"a", "b", "c"}
    assert model.predict_proba(X).shape == (60, 3)


# ---- reading before fitting ---------------------------------------------------------------------


@MODELS
def test_an_unfitted_model_says_so(Model):
    X, _ = data()
    model = Model()
    for method in ("predict", "apply", "decision_path"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(model, method)(X)
    for method in ("get_depth", "get_n_leaves"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(model, method)()
    if Model is TAOTreeClassifier:
        with pytest.raises(NotFittedError, match="not fitted yet"):
            model.predict_proba(X)
    with pytest.raises((NotFittedError, AttributeError)):
        _ = model.n_parameters_


@MODELS
def test_a_failed_fit_leaves_the_old_model(Model):
    X, y = data()
    model = Model(random_state=0).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.full((60, 3), np.inf), y)
    assert_array_equal(model.predict(X), before)
