"""The flagship ensemble of classes, claim by claim."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import SilvaForestClassifier, SilvaTreeClassifier
from silva.bagging import Bagging
from silva.estimators import forest_members, silva_forest
from silva.estimators.fidelity import Kind, Targets
from silva.estimators.forest_members import Plan, grow_members
from silva.kernels import cpu
from silva.tree import answer

LIGHT = DecisionTreeClassifier(max_depth=3)  # a teacher for what does not depend on it


@pytest.fixture(scope="module")
def iris():
    X, truth = load_iris(return_X_y=True)
    return X, np.where(np.arange(150) % 10 == 0, truth, -1), truth


@pytest.fixture(scope="module")
def fitted(iris):
    return SilvaForestClassifier(random_state=0).fit(iris[0], iris[1])


def test_oblique_trees_see_six_of_seven_rows(monkeypatch):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(600, 3)), np.eye(2)[rng.integers(2, size=600)]
    bags = []

    def noted(*arguments):
        bags.append(Bagging(*arguments))
        return bags[-1]

    monkeypatch.setattr(forest_members, "Bagging", noted)
    grow_members(
        Targets(X, Z, np.ones(600), cpu, 1),
        Plan(Kind("oblique", "oblique", "constant", 2, 0.1), 1, 2, 1.0, silva_forest.DRAWS),
        np.ones(600), 0.0, 0, None,
    )  # fmt: skip
    seen = len(np.unique(bags[0].bag(0).rows)) / 600
    assert abs(seen - (1 - np.exp(-2))) < 0.04


def test_the_ensemble_beats_forests_and_the_tree_on_36_digits():
    X, truth = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(truth))
    X, truth = X[order], truth[order]
    X, X_test, truth, expected = X[:900], X[900:], truth[:900], truth[900:]
    y = np.where(np.arange(900) < 36, truth, -1)
    model = SilvaForestClassifier(random_state=0).fit(X, y)
    shares = sum(
        kind(random_state=0).fit(X[:36], truth[:36]).predict_proba(X_test)
        for kind in (RandomForestClassifier, ExtraTreesClassifier)
    )
    teachers = np.mean(shares.argmax(axis=1) == expected)
    score = model.score(X_test, expected)
    assert score > teachers + 0.05
    tree = SilvaTreeClassifier(random_state=0).fit(X, y)
    assert score > tree.score(X_test, expected)


def test_answers_are_the_mix_of_trees_and_teacher(fitted, iris):
    X = iris[0]
    parts = []
    for tree in fitted.trees_:
        node = cpu.route(X, tree.left, tree.right, tree.coefficients, tree.threshold, 1)
        parts.append(answer(tree, tree.leaf_index[node], X))
    mix = fitted.mix_
    shares = mix["oblique"] * np.mean(parts, axis=0) + mix["axis"] * fitted.axis_forest_.predict(X)
    shares += mix["teacher"] * fitted.teacher_.predict_proba(X)
    assert_array_equal(fitted.predict(X), fitted.classes_[shares.argmax(axis=1)])
    chance = fitted.predict_proba(X)
    power = np.clip(shares, 1e-9, None) ** fitted._temperature
    assert_allclose(chance, power / power.sum(axis=1, keepdims=True), atol=1e-6)


def test_the_mix_sums_to_one(fitted):
    assert_allclose(sum(fitted.mix_.values()), 1.0)
    assert min(fitted.mix_.values()) >= 0


def test_the_teacher_counts_less_where_the_graph_is_trusted(iris):
    X, y, _ = iris
    without, trusted = (
        SilvaForestClassifier(gamma=gamma, teacher=LIGHT, random_state=0).fit(X, y)
        for gamma in (0, 10)
    )
    assert without.mix_["teacher"] > 0.6
    assert trusted.mix_["teacher"] < 0.5


def test_without_teacher_it_has_no_say(iris):
    model = SilvaForestClassifier(teacher=None, random_state=0).fit(iris[0], iris[1])
    assert model.mix_["teacher"] == 0
    assert model.score(iris[0], iris[2]) > 0.85


def test_its_own_estimate_is_near_the_truth():
    X, truth = load_breast_cancer(return_X_y=True)
    y = np.where(np.random.default_rng(0).random(len(truth)) < 0.25, truth, -1)
    model = SilvaForestClassifier(random_state=0).fit(X, y)
    free = y < 0
    assert abs(model.cv_score_ - model.score(X[free], truth[free])) < 0.04


def test_the_ensemble_meets_the_totals():
    X, truth = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    y = np.full(len(truth), -1)
    for label, count in ((0, 3), (1, 24)):
        y[rng.choice(np.flatnonzero(truth == label), count, replace=False)] = label
    free = y < 0
    asked = [int(np.sum(truth[free] == label)) for label in (0, 1)]
    plain = SilvaForestClassifier(random_state=0).fit(X, y)
    model = SilvaForestClassifier(random_state=0).fit(X, y, class_totals=dict(enumerate(asked)))
    assert_allclose(model.predict_proba(X[free]).sum(axis=0), asked, rtol=0.01)
    assert model.score(X[free], truth[free]) > plain.score(X[free], truth[free]) + 0.02


def test_same_ensemble_for_any_n_jobs(iris, fitted):
    X, y, _ = iris
    two = SilvaForestClassifier(random_state=0, n_jobs=2).fit(X, y)
    assert_array_equal(fitted.predict_proba(X), two.predict_proba(X))
    assert fitted.cv_score_ == two.cv_score_


def test_same_seed_same_ensemble(iris, fitted):
    again = clone(fitted).fit(iris[0], iris[1])
    assert_array_equal(again.predict_proba(iris[0]), fitted.predict_proba(iris[0]))


def test_pickled_ensemble_answers_the_same(fitted, iris):
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.predict_proba(iris[0]), fitted.predict_proba(iris[0]))


def test_the_report_tells_of_the_mix_and_of_its_own_estimate(fitted):
    for part in ("teacher", "graph", "oblique trees count", "expected to find"):
        assert part in fitted.report_


def test_importances_sum_to_one_and_name_the_petals(fitted):
    assert_allclose(fitted.feature_importances_.sum(), 1.0)
    assert fitted.feature_importances_[2:].sum() > 0.5


def test_frames_with_strings_and_missing_values_are_read():
    rng = np.random.default_rng(0)
    colour, size = rng.choice(["red", "green", "blue"], 200), rng.normal(size=200)
    truth = np.where((colour == "red") | (size > 1), "yes", "no").astype(object)
    frame = pd.DataFrame({"colour": colour, "size": size})
    frame.loc[::17, "size"] = np.nan
    y = truth.copy()
    y[60:] = None
    model = SilvaForestClassifier(random_state=0).fit(frame, y)
    assert model.score(frame, truth) > 0.9


def test_sparse_rows_are_taken(iris):
    X, y, truth = iris
    model = SilvaForestClassifier(teacher=LIGHT, random_state=0).fit(sparse.csr_array(X), y)
    assert model.score(sparse.csr_array(X), truth) > 0.85


def test_one_class_is_always_answered():
    with pytest.warns(UserWarning, match="one class only"):
        model = SilvaForestClassifier().fit(np.arange(8.0)[:, None], [3, 3, *[-1] * 6])
    assert_array_equal(model.predict([[0.0], [9.0]]), [3, 3])


def test_errors_name_the_argument(iris):
    with pytest.raises(TypeError, match="alpha must be a number"):
        SilvaForestClassifier(alpha="much").fit(iris[0], iris[1])


def expected_failures(estimator):
    return {
        "check_classifiers_classes": "-1 marks an unlabelled row, here it is meant as a class",
    }


@parametrize_with_checks(
    [SilvaForestClassifier(teacher=LIGHT, gamma=0)], expected_failed_checks=expected_failures
)
@pytest.mark.filterwarnings("ignore:y has labelled rows of one class only")
def test_sklearn_check(estimator, check, monkeypatch):
    for name in ("OBLIQUE_TREES", "AXIS_TREES", "FEWER_TREES"):
        monkeypatch.setattr(silva_forest, name, 5)  # as good as more for what is checked
    check(estimator)
