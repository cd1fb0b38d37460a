"""TAO trees as scikit-learn estimators: what a user may rely on."""

import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import assert_same_tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    make_regression,
)
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from tao_models import DEVICES, EVERY_SPLIT, LEAVES, SPLITS, classifier, regressor

from silva import TAOTreeClassifier, TAOTreeRegressor, export_text
from silva.estimators import tao_base
from silva.tree import Tree

# ---- it learns ----------------------------------------------------------------------------------


@EVERY_SPLIT
@LEAVES
@pytest.mark.parametrize("loss", ["misclassification", "squared", "log"])
def test_classifier_learns_iris(iris, split, leaf, loss):
    X, y = iris
    assert classifier(split=split, leaf=leaf, loss=loss).fit(X, y).score(X, y) > 0.93


@EVERY_SPLIT
@LEAVES
def test_regressor_learns_diabetes(diabetes, split, leaf):
    X, y = diabetes
    assert regressor(split=split, leaf=leaf).fit(X, y).score(X, y) > 0.45


def test_an_untuned_tree_reads_digits(digits):
    X, X_test, y, y_test = digits
    greedy = DecisionTreeClassifier(random_state=0).fit(X, y).score(X_test, y_test)
    scores = [
        TAOTreeClassifier(random_state=seed).fit(X, y).score(X_test, y_test) for seed in range(1)
    ]
    assert np.mean(scores) > greedy


def test_linear_leaves_are_exact_on_a_line():
    X, y = make_regression(200, 5, noise=0, random_state=0)
    model = regressor(leaf="linear", shrinkage=0, alpha=1.0).fit(X, y)
    assert model.score(X, y) > 0.999
    flat = regressor(alpha=1.0).fit(X, y)
    assert flat.score(X, y) < 0.97


def test_answers_of_linear_leaves_stay_in_the_range_of_the_targets(diabetes):
    X, y = diabetes
    model = regressor(leaf="linear").fit(X, y)
    far = model.predict(100 * X)
    assert far.min() >= y.min() - 1e-3
    assert far.max() <= y.max() + 1e-3
    leaf = model.tree_.leaf_index[model.apply(X)]
    for number in np.unique(leaf):
        here = y[leaf == number]
        assert_allclose(model.tree_.bounds[:, number, 0], [here.min(), here.max()], rtol=1e-5)


@DEVICES
@SPLITS
def test_constant_answers_are_shares_and_means_of_the_leaf(iris, diabetes, device, split):
    X, y = iris
    model = classifier(split=split, device=device, max_depth=2, max_iter=2).fit(X, y)
    node, shares = model.apply(X), model.predict_proba(X)
    for number in np.unique(node):
        expected = np.bincount(y[node == number], minlength=3) / (node == number).sum()
        assert_allclose(shares[node == number], np.tile(expected, ((node == number).sum(), 1)))
    X, y = diabetes[0][:100], diabetes[1][:100]
    model = regressor(split=split, device=device, max_depth=2, max_iter=2).fit(X, y)
    node, answers = model.apply(X), model.predict(X)
    for number in np.unique(node):
        assert_allclose(answers[node == number], y[node == number].mean(), rtol=1e-5)


@SPLITS
def test_constant_answers_are_exact(diabetes, split):
    # In double precision, as scikit-learn's: the optimiser's single precision must not show.
    X, y = diabetes
    model = regressor(split=split).fit(X, y)
    node, answers = model.apply(X), model.predict(X)
    for number in np.unique(node):
        assert_allclose(answers[node == number], y[node == number].mean(), rtol=1e-12)
    model = regressor(split=split).fit(X, np.where(X[:, 2] > 0, 3.0, 0.0))
    assert_allclose(np.unique(model.predict(X).round(12)), [0, 3], atol=1e-12)


@DEVICES
@SPLITS
@LEAVES
def test_both_devices_fit_and_predict(iris, diabetes, device, split, leaf):
    options = {"device": device, "split": split, "leaf": leaf, "max_depth": 2, "max_iter": 2}
    X, y = iris
    assert classifier(**options).fit(X, y).score(X, y) > 0.9
    assert classifier(**options).fit(sparse.csr_array(X), y).score(X, y) > 0.9
    X, y = diabetes[0][:150], diabetes[1][:150]
    assert regressor(**options).fit(X, y).score(X, y) > 0.3


# ---- what is left open --------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["constant", "linear"])
def test_open_settings_are_settled_on_held_out_rows(iris, diabetes, leaf):
    for Model, (X, y) in ((TAOTreeClassifier, iris), (TAOTreeRegressor, diabetes)):
        model = Model(leaf=leaf, max_iter=3, random_state=0).fit(X, y)
        losses = [trial.loss for trial in model.trials_]
        assert losses == sorted(losses)
        assert len({trial.settings for trial in model.trials_}) == len(losses) > 5
        best = model.trials_[0].settings
        assert (model.alpha_, model.split_, model.shrinkage_) == (
            best.alpha, best.split, best.shrinkage,
        )  # fmt: skip
        assert model.score(X, y) > 0.4
        again = Model(leaf=leaf, max_iter=3, random_state=0, n_jobs=2).fit(X, y)
        assert_same_tree(model.tree_, again.tree_)
        assert again.trials_ == model.trials_


def test_settings_at_hand_are_used_as_they_are(iris):
    X, y = iris
    model = classifier(shrinkage=2.0, split="mixed").fit(X, y)
    assert (model.alpha_, model.split_, model.shrinkage_) == (0.1, "mixed", 2.0)
    assert model.trials_ == []
    searched = TAOTreeClassifier(max_depth=2, shrinkage=1.0, max_iter=2, random_state=0).fit(X, y)
    assert {trial.settings.shrinkage for trial in searched.trials_} == {1.0}
    assert {trial.settings.depth for trial in searched.trials_} == {2}
    assert searched.get_depth() <= 2


def test_shrinkage_leans_leaves_to_the_mean(diabetes):
    X, y = diabetes
    spread = [np.std(regressor(shrinkage=s).fit(X, y).predict(X)) for s in (0.0, 10.0, 1000.0)]
    assert spread[0] > spread[1] > spread[2]


def test_ctrl_c_while_searching_ends_the_search(iris, monkeypatch):
    X, y = iris
    calls = []

    def optimise(*arguments, **options):
        calls.append(options["max_iter"])
        if len(calls) == 4:
            options["callback"] = interrupt
        return real(*arguments, **options)

    def interrupt(step):
        raise KeyboardInterrupt

    real = tao_base.optimise
    monkeypatch.setattr(tao_base, "optimise", optimise)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model = TAOTreeClassifier(max_iter=2, random_state=0).fit(X, y)
    assert len(calls) <= 6  # not the dozens that were to come
    assert model.score(X, y) > 0.8


# ---- reading the tree ---------------------------------------------------------------------------


@SPLITS
@LEAVES
@DEVICES
def test_apply_decision_path_and_predict_agree(iris, split, leaf, device):
    X, y = iris
    model = classifier(split=split, leaf=leaf, device=device, max_iter=2, max_depth=3).fit(X, y)
    tree, node = model.tree_, model.apply(X)
    assert (tree.left[node] < 0).all()
    path = model.decision_path(X).toarray()
    assert path.shape == (150, tree.n_nodes)
    assert_array_equal(path[:, 0], 1)
    assert_array_equal(path[np.arange(150), node], 1)
    assert_array_equal(path.sum(axis=1), tree.node_depth[node] + 1)
    assert_array_equal(path[:, tree.leaf_nodes].sum(axis=1), 1)
    assert_array_equal(path.sum(axis=0), tree.weight)
    if leaf == "constant":
        assert_array_equal(model.predict(X), tree.values[tree.leaf_index[node]].argmax(axis=1))


def test_size_of_a_tiny_tree_by_hand():
    X = np.array([[0.0, 5], [1, 4], [2, 3], [3, 2], [4, 1], [5, 0]] * 4)
    y = np.array([0, 0, 0, 1, 1, 1] * 4)
    model = classifier(split="axis", max_depth=4, alpha=0.1).fit(X, y)
    assert (model.get_depth(), model.get_n_leaves()) == (1, 2)
    assert model.n_parameters_ == 2 + 2  # a feature and a threshold, two labels
    t = np.where(y == 1, 10.0, 4.0)
    for leaf, size in (("constant", 2 + 2), ("linear", None)):
        model = regressor(split="axis", leaf=leaf, max_depth=1, alpha=0.01).fit(X, t)
        assert (model.get_depth(), model.get_n_leaves()) == (1, 2)
        if size:
            assert model.n_parameters_ == size
            assert_allclose(np.unique(model.predict(X)), [4, 10], rtol=1e-6)


def test_parameters_of_several_targets_count_a_label_each(iris):
    X, y = iris
    model = classifier(loss="squared").fit(X, np.stack([y, y % 2], axis=1))
    decisions = model.get_n_leaves() - 1
    assert model.n_parameters_ == (
        model.tree_.coefficients.nnz + decisions + 2 * model.get_n_leaves()
    )


@SPLITS
@pytest.mark.parametrize("Model", [classifier, regressor])
def test_importances_find_the_only_informative_column(Model, split):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5)) * [1, 100, 1, 0.01, 1]
    y = X[:, 3] > 0.002
    model = Model(split=split, max_depth=2).fit(X, y.astype(float))
    assert_allclose(model.feature_importances_.sum(), 1)
    assert (model.feature_importances_ >= 0).all()
    assert model.feature_importances_.argmax() == 3
    assert model.feature_importances_[3] > 0.7


def test_a_single_leaf_has_no_importances():
    X = np.random.default_rng(0).normal(size=(30, 3))
    for model in (
        classifier(max_depth=0).fit(X, X[:, 0] > 0),
        regressor(alpha=1e6).fit(X, X[:, 0]),
    ):
        assert model.get_n_leaves() == 1
        assert model.get_depth() == 0
        assert_array_equal(model.feature_importances_, 0)
        assert_array_equal(model.apply(X), 0)


# ---- as an estimator ----------------------------------------------------------------------------


@SPLITS
@LEAVES
@pytest.mark.parametrize("Model", [classifier, regressor])
def test_pickled_models_answer_alike(iris, Model, split, leaf):
    X, y = iris
    model = Model(split=split, leaf=leaf).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X), model.predict(X))
    assert_same_tree(again.tree_, model.tree_)
    assert again.history_ == model.history_
    again.set_params(warm_start=True).fit(X, y)  # and can go on


def test_clones_are_unfitted_and_equal(iris):
    X, y = iris
    model = classifier(class_weight={0: 2}, alpha=0.3).fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "tree_")
    assert_same_tree(copy.fit(X, y).tree_, model.tree_)
    started = clone(classifier(init=model.tree_))
    assert started.fit(X, y).score(X, y) > 0.9


def test_fit_does_not_touch_its_arguments(iris):
    X, y = iris
    weight = np.arange(150.0)
    kept = X.copy(), y.copy(), weight.copy()
    classifier().fit(X, y, sample_weight=weight)
    for one, other in zip(kept, (X, y, weight), strict=True):
        assert_array_equal(one, other)
    X = X.copy()
    X.flags.writeable = False
    classifier().fit(X, y).predict(X)
    matrix = sparse.csr_array(X)
    before = matrix.copy()
    classifier().fit(matrix, y)
    assert_array_equal(matrix.data, before.data)


def test_it_works_in_pipelines_and_searches():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:300], y[:300]
    assert cross_val_score(classifier(), X, y, cv=3).mean() > 0.9
    assert make_pipeline(StandardScaler(), classifier()).fit(X, y).score(X, y) > 0.93
    search = GridSearchCV(classifier(max_iter=2), {"alpha": [0.01, 1.0]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.85


def test_fitted_attributes(iris):
    X, y = iris
    model = classifier().fit(X, y)
    assert isinstance(model.tree_, Tree)
    assert model.n_features_in_ == 4
    assert not hasattr(model, "feature_names_in_")
    assert model.n_classes_ == 3
    assert model.n_outputs_ == 1
    frame = pd.DataFrame(X, columns=list("abcd"))
    model.fit(frame, y)
    assert_array_equal(model.feature_names_in_, list("abcd"))
    assert "a" in export_text(model) or "c" in export_text(model)
