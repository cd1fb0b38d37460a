"""The flagship tree of classes and what leads to it, claim by claim."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_moons
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import SilvaTreeClassifier, export_text
from silva.copies import row_groups
from silva.estimators.column_views import Units
from silva.estimators.fidelity import Targets
from silva.estimators.mixed_classifier import MixedClassifier
from silva.estimators.trust import (
    TRUSTS,
    Hidden,
    Smoothed,
    Trust,
    average,
    hide_labels,
    label_folds,
    moved_classes,
    score_classes,
    smooth,
)
from silva.graph import affinity_graph, laplacian
from silva.kernels import cpu
from silva.laptao import Evidence

LIGHT = ExtraTreesClassifier(10, random_state=0)  # a teacher for what does not depend on it


@pytest.fixture(scope="module")
def iris():
    X, truth = load_iris(return_X_y=True)
    return X, np.where(np.arange(150) % 10 == 0, truth, -1), truth


@pytest.fixture(scope="module")
def fitted(iris):
    return SilvaTreeClassifier(random_state=0).fit(iris[0], iris[1])


@pytest.fixture(scope="module")
def digits():
    """Digits in a random order, 4 % of the first 900 labelled, and a tree."""
    X, truth = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(truth))
    X, truth = X[order], truth[order]
    y = truth[:900].copy()
    y[36:] = -1
    model = SilvaTreeClassifier(random_state=0).fit(X[:900], y)
    return X[:900], y, X[900:], truth[900:], model


# ---- smoothed labels ----------------------------------------------------------------------------


def small_problem(seed=0, n_rows=12, n_labelled=4):
    rng = np.random.default_rng(seed)
    W = affinity_graph(rng.normal(size=(n_rows, 2)), 4)
    labelled = np.where(np.arange(n_rows) < n_labelled, 2.0, 0.0)
    sums = labelled[:, None] * np.eye(3)[rng.integers(3, size=n_rows)]
    teacher = rng.dirichlet(np.ones(3), n_rows)
    return W, Evidence(labelled, 1.0 - (labelled > 0), sums), teacher


@pytest.mark.parametrize("trust", TRUSTS)
def test_smoothed_labels_match_a_dense_solve(trust):
    W, known, teacher = small_problem()
    weak = trust.teacher * known.unlabelled
    A = np.diag(5 * known.labelled + weak) + trust.graph * laplacian(W).toarray()
    expected = np.linalg.solve(A, 5 * known.sums + weak[:, None] * teacher)
    assert_allclose(smooth(W, known, teacher, trust, 1), expected, atol=1e-6)


def test_the_average_weighs_trusts_by_likelihood_and_caution():
    W, known, teacher = small_problem()
    hidden = list(hide_labels(known, label_folds(known, 0), lambda _, rest: teacher))
    found = average(W, known, teacher, hidden, TRUSTS, 1)
    labels = np.concatenate([known.means[part.rows] for part in hidden])
    weight = np.concatenate([known.labelled[part.rows] for part in hidden])
    score = []
    for trust in TRUSTS:
        said = [smooth(W, part.rest, part.teacher, trust, 1)[part.rows] for part in hidden]
        moved = moved_classes(smooth(W, known, teacher, trust, 1), teacher, known.unlabelled)
        caution = 20 + 0.3 * weight.sum()
        score.append(score_classes(np.concatenate(said), labels, weight) - caution * moved)
    assert_allclose(found.share, np.exp(score) / np.exp(score).sum(), rtol=1e-6)
    answers = [smooth(W, known, teacher, trust, 1) for trust in TRUSTS]
    assert_allclose(found.Z, np.tensordot(found.share, answers, 1))


def test_a_graph_that_only_makes_a_teacher_less_sure_has_moved_nothing():
    teacher = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert moved_classes((teacher + 0.5) / 2, teacher, np.ones(2)) == 0
    assert moved_classes(teacher[:, ::-1], teacher, np.array([1.0, 3.0])) == 1
    assert moved_classes(teacher[[0, 0]], teacher, np.array([1.0, 3.0])) == 0.75


def test_the_only_label_of_a_class_is_not_hidden():
    labelled = np.array([1.0, 1.0, 1.0, 0.0])
    known = Evidence(labelled, 1 - labelled, labelled[:, None] * np.eye(2)[[0, 0, 1, 0]])
    assert_array_equal(np.sort(np.concatenate(label_folds(known, 0))), [0, 1])


def test_every_label_is_hidden_once_and_from_its_teacher():
    labelled = (np.arange(12) < 7).astype(float)
    known = Evidence(labelled, 1 - labelled, labelled[:, None] * np.eye(3)[np.arange(12) % 3])
    seen = []
    folds = label_folds(known, 0)
    parts = list(
        hide_labels(known, folds, lambda _, rest: seen.append(rest) or np.ones((12, 3)) / 3)
    )
    assert_array_equal(np.sort(np.concatenate([part.rows for part in parts])), np.arange(7))
    for part, rest in zip(parts, seen, strict=True):
        assert not rest.labelled[part.rows].any()
        assert not rest.sums[part.rows].any()


def test_a_graph_that_knows_the_classes_is_trusted():
    found = _trusted(homophily=True)
    assert found.share[[trust.graph > 0 for trust in TRUSTS]].sum() > 0.9


def test_a_graph_that_knows_nothing_is_not_trusted():
    found = _trusted(homophily=False)
    assert found.moved < 0.05


def _trusted(homophily):
    """Two classes, a teacher that is right two times out of three, and a graph."""
    rng = np.random.default_rng(0)
    codes = np.arange(400) % 2
    place = codes + 0.1 * rng.random(400) if homophily else rng.random(400)
    W = affinity_graph(place[:, None], 10)
    labelled = (np.arange(400) < 60).astype(float)
    known = Evidence(labelled, 1 - labelled, labelled[:, None] * np.eye(2)[codes])
    right = rng.random(400) < (2 / 3 if homophily else 0.95)
    teacher = np.where(right[:, None], 0.8, 0.2) * np.eye(2)[codes]
    teacher += np.where(right[:, None], 0.2, 0.8) * np.eye(2)[1 - codes]
    rows = np.arange(60)
    halves = [Hidden(part, _without(known, part), teacher) for part in (rows[::2], rows[1::2])]
    return average(W, known, teacher, halves, TRUSTS, 1)


def _without(known, rows):
    keep = np.ones(len(known.labelled))
    keep[rows] = 0
    return Evidence(known.labelled * keep, 1 - known.labelled * keep, known.sums * keep[:, None])


def test_without_graph_the_smoothed_labels_are_the_teachers(iris):
    X, y, _ = iris
    model = SilvaTreeClassifier(gamma=0, random_state=0).fit(X, y)
    free = y < 0
    assert_array_equal(model.transduction_[free], model.teacher_.predict(X[free]))


def test_the_teacher_is_a_mixture_on_the_labelled_rows_with_columns_measured_on_all(iris, fitted):
    X, y, _ = iris
    units = Units.of(X[np.unique(X, axis=0, return_index=True)[1]])  # copies count once
    assert_allclose(fitted.teacher_.units_.mean, units.mean)
    order = np.argsort(row_groups(X, 0), kind="stable")
    rows = order[y[order] >= 0]
    seed = fitted.teacher_.random_state
    fold = fitted.teacher_.fold
    alone = MixedClassifier(units=units, fold=fold, random_state=seed).fit(X[rows], y[rows])
    assert_allclose(fitted.teacher_.predict_proba(X), alone.predict_proba(X), atol=1e-9)


def test_invented_rows_get_the_teachers_answers_moved_as_those_of_the_row_they_come_from(fitted):
    X = np.unique(load_iris(return_X_y=True)[0], axis=0)
    teacher = fitted.teacher_.predict_proba(X)
    targets = Targets(X, 0.8 * teacher + 0.2 / 3, np.ones(len(X)), cpu, 1)
    W = affinity_graph(X, 5)
    smoothed = Smoothed(targets.Z, W, TRUSTS, np.ones(7) / 7, 0.0, [], targets.Z)
    wide = fitted._widening(targets, smoothed, 0)(np.arange(len(X)))
    assert_array_equal(wide.X[: len(X)], X)
    invented, answers = wide.X[len(X) :], wide.Z[len(X) :]
    assert len(invented) > 0
    moved = answers - fitted.teacher_.predict_proba(invented)
    known = targets.Z - teacher  # the correction of some row that there is
    gap = np.abs(moved[:, None] - known).max(axis=2).min(axis=1)
    inside = ((answers > targets.Z.min(axis=0)) & (answers < targets.Z.max(axis=0))).all(axis=1)
    assert inside.sum() > 20
    assert_allclose(gap[inside], 0, atol=1e-9)


def test_a_given_teacher_is_cloned_and_taught(iris):
    X, y, _ = iris
    teacher = LogisticRegression()
    model = SilvaTreeClassifier(teacher=teacher, random_state=0).fit(X, y)
    assert not hasattr(teacher, "coef_")
    expected = LogisticRegression().fit(X[y >= 0], y[y >= 0]).coef_
    assert_allclose(model.teacher_.coef_, expected)


def test_a_teacher_that_takes_no_weights_is_taught_repeated_rows():
    X = np.array([[0.0], [0.1], [1.0], [1.1]])
    teacher = KNeighborsClassifier(2)
    model = SilvaTreeClassifier(teacher=teacher, random_state=0).fit(
        X, [0, -1, 1, -1], [2, 1, 3, 1]
    )
    assert model.teacher_.n_samples_fit_ == 5


def test_without_teacher_labels_spread_along_moons():
    X, truth = make_moons(300, noise=0.06, random_state=0)
    y = np.full(300, -1)
    for label in (0, 1):
        y[np.flatnonzero(truth == label)[:3]] = label
    model = SilvaTreeClassifier(teacher=None, random_state=0).fit(X, y)
    assert model.teacher_ is None
    assert np.mean(model.transduction_ == truth) > 0.95


# ---- the tree -----------------------------------------------------------------------------------


def test_the_tree_beats_cart_and_a_forest_on_36_digits(digits):
    X, y, X_test, truth, model = digits
    known = y >= 0
    score = model.score(X_test, truth)
    cart = DecisionTreeClassifier(random_state=0).fit(X[known], y[known])
    forest = RandomForestClassifier(random_state=0).fit(X[known], y[known])
    assert score > cart.score(X_test, truth) + 0.2
    assert score > forest.score(X_test, truth) + 0.05


def test_leaves_answer_with_the_mean_smoothed_labels_of_their_rows(fitted, iris):
    X = iris[0]
    assert len(np.unique(X, axis=0)) < 150  # copies count
    leaf = fitted.apply(X)
    for node in np.unique(leaf):
        mean = fitted.label_distributions_[leaf == node].mean(axis=0)
        assert_allclose(fitted.predict_proba(X)[leaf == node][0], mean, atol=1e-9)


def test_the_tree_can_be_read(fitted, iris):
    assert "class: " in export_text(fitted)
    paths = fitted.decision_path(iris[0])
    assert paths.shape == (150, fitted.tree_.n_nodes)
    assert_allclose(fitted.feature_importances_.sum(), 1.0)
    assert fitted.get_n_leaves() == fitted.tree_.n_leaves


def test_max_depth_bounds_the_tree(iris):
    model = SilvaTreeClassifier(max_depth=2, teacher=LIGHT, random_state=0).fit(iris[0], iris[1])
    assert model.get_depth() <= 2


def test_a_larger_alpha_gives_a_sparser_tree():
    X, digits = load_digits(return_X_y=True)
    y = np.where(np.arange(600) < 100, digits[:600], -1)
    models = [
        SilvaTreeClassifier(max_depth=4, alpha=alpha, random_state=0) for alpha in (0.01, 1.0)
    ]
    dense, thin = (model.fit(X[:600], y).tree_.coefficients.nnz for model in models)
    assert thin < dense


def test_fidelity_is_measured_and_high_on_iris(fitted):
    assert 0.85 < fitted.fidelity_["agreement"] <= 1
    assert 0.7 < fitted.fidelity_["r2"] <= 1


def test_the_report_tells_of_labels_teacher_graph_and_tree(fitted):
    words = fitted.report_
    for part in ("labelled", "teacher", "hidden", "graph", "leaves", "held out"):
        assert part in words


def test_probabilities_are_calibrated(digits):
    _, _, X_test, truth, model = digits
    chance = model.predict_proba(X_test)
    right = chance.argmax(axis=1) == truth
    assert abs(chance.max(axis=1).mean() - right.mean()) < 0.1
    sure = chance.max(axis=1) > 0.9
    assert right[sure].mean() > 0.85


# ---- totals -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def biased():
    """Breast cancer, four benign rows labelled for one malignant: half the truth."""
    X, truth = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    y = np.full(len(truth), -1)
    for label, count in ((0, 3), (1, 24)):
        y[rng.choice(np.flatnonzero(truth == label), count, replace=False)] = label
    totals = {label: int(np.sum(truth[y < 0] == label)) for label in (0, 1)}
    model = SilvaTreeClassifier(random_state=0).fit(X, y, class_totals=totals)
    return X, y, truth, totals, model


def test_smoothed_labels_and_tree_meet_the_totals(biased):
    X, y, _, totals, model = biased
    free = y < 0
    asked = [totals[0], totals[1]]
    assert_allclose(model.label_distributions_[free].sum(axis=0), asked, rtol=1e-4)
    assert_allclose(model.predict_proba(X[free]).sum(axis=0), asked, rtol=1e-4)
    assert_allclose([model.class_totals_[label][1] for label in (0, 1)], asked, rtol=1e-4)


def test_totals_of_no_rows_change_nothing():
    X, y = load_iris(return_X_y=True)
    model = SilvaTreeClassifier(teacher=LIGHT, random_state=0)
    told = clone(model).fit(X, y, class_totals={0: 0, 1: 0, 2: 0})
    assert_array_equal(told.predict_proba(X), clone(model).fit(X, y).predict_proba(X))
    assert told.class_totals_[0] == (0, 0, 0)


def test_totals_help_where_the_labels_are_a_biased_sample(biased):
    X, y, truth, _, model = biased
    free = y < 0
    plain = SilvaTreeClassifier(random_state=0).fit(X, y)
    assert model.score(X[free], truth[free]) > plain.score(X[free], truth[free]) + 0.02


# ---- the same result ----------------------------------------------------------------------------


def test_same_tree_for_any_n_jobs(iris, fitted):
    X, y, _ = iris
    two = SilvaTreeClassifier(random_state=0, n_jobs=2).fit(X, y)
    assert_array_equal(fitted.label_distributions_, two.label_distributions_)
    assert_array_equal(fitted.predict_proba(X), two.predict_proba(X))


def test_same_seed_same_tree(iris, fitted):
    again = clone(fitted).fit(iris[0], iris[1])
    assert_array_equal(again.predict_proba(iris[0]), fitted.predict_proba(iris[0]))


def test_a_weight_of_two_is_two_copies(iris):
    X, y, _ = iris
    weight = np.where(np.arange(150) % 3 == 0, 2, 1)
    weighted = SilvaTreeClassifier(teacher=LIGHT, random_state=0).fit(X, y, weight)
    X2, y2 = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    copied = SilvaTreeClassifier(teacher=LIGHT, random_state=0).fit(X2, y2)
    assert_allclose(weighted.predict_proba(X), copied.predict_proba(X), atol=1e-9)


def test_the_order_of_the_rows_does_not_matter(iris, fitted):
    X, y, _ = iris
    order = np.random.default_rng(0).permutation(150)
    shuffled = SilvaTreeClassifier(random_state=0).fit(X[order], y[order])
    assert_array_equal(shuffled.predict_proba(X), fitted.predict_proba(X))


def test_pickled_tree_answers_the_same(fitted, iris):
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.predict_proba(iris[0]), fitted.predict_proba(iris[0]))


# ---- what users bring ---------------------------------------------------------------------------


def test_frames_with_strings_and_missing_values_are_read():
    rng = np.random.default_rng(0)
    colour = rng.choice(["red", "green", "blue"], 300)
    size = rng.normal(size=300)
    truth = np.where((colour == "red") | (size > 1), "yes", "no").astype(object)
    frame = pd.DataFrame({"colour": colour, "size": size})
    frame.loc[::17, "size"] = np.nan
    y = truth.copy()
    y[60:] = None
    model = SilvaTreeClassifier(random_state=0).fit(frame, y)
    assert model.score(frame, truth) > 0.9
    assert set(model.transduction_) == {"yes", "no"}
    assert "colour" in export_text(model)


def test_sparse_rows_are_taken(iris):
    X, y, truth = iris
    model = SilvaTreeClassifier(random_state=0).fit(sparse.csr_array(X), y)
    assert model.score(sparse.csr_array(X), truth) > 0.85


def test_one_label_is_enough_to_answer():
    X = np.arange(10.0)[:, None]
    y = np.where(np.arange(10) == 3, 7, -1)
    with pytest.warns(UserWarning, match="one class only"):
        model = SilvaTreeClassifier(random_state=0).fit(X, y)
    assert_array_equal(model.predict(X), np.full(10, 7))


def test_one_label_a_class_is_enough_to_fit(iris):
    X, _, truth = iris
    y = np.full(150, -1)
    y[[0, 50, 100]] = truth[[0, 50, 100]]
    assert SilvaTreeClassifier(random_state=0).fit(X, y).score(X, truth) > 0.65


def test_all_rows_may_be_labelled(iris):
    X, _, truth = iris
    model = SilvaTreeClassifier(random_state=0).fit(X, truth)
    assert model.score(X, truth) > 0.93
    assert_array_equal(model.transduction_, truth)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_depth": -1}, ValueError, "max_depth"),
        ({"alpha": "large"}, TypeError, "alpha"),
        ({"gamma": -1.0}, ValueError, "gamma"),
        ({"teacher": "forest"}, TypeError, "teacher must be 'auto', None or a classifier"),
        ({"teacher": LinearSVC()}, TypeError, "predict_proba"),
        ({"teacher": None, "gamma": 0}, ValueError, "gamma must be positive"),
        ({"device": "tpu"}, ValueError, "device"),
        ({"n_jobs": "all"}, TypeError, "n_jobs"),
        ({"verbose": -1}, ValueError, "verbose"),
    ],
)
def test_errors_name_the_argument(iris, options, error, words):
    with pytest.raises(error, match=words):
        SilvaTreeClassifier(**options).fit(iris[0], iris[1])


def test_weights_without_any_labelled_row_are_refused(iris):
    X, y, _ = iris
    with pytest.raises(ValueError, match="sample_weight must be positive at some labelled row"):
        SilvaTreeClassifier().fit(X, y, (y < 0).astype(float))


def test_a_teacher_without_weights_refuses_fractions(iris):
    X, y, _ = iris
    with pytest.raises(ValueError, match="takes no sample_weight"):
        SilvaTreeClassifier(teacher=KNeighborsClassifier(3)).fit(X, y, np.linspace(1, 2, 150))


def expected_failures(estimator):
    return {"check_classifiers_classes": "-1 marks an unlabelled row, here it is meant as a class"}


@parametrize_with_checks(
    [SilvaTreeClassifier(teacher=DecisionTreeClassifier(max_depth=3), gamma=0)],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore:y has labelled rows of one class only")
def test_sklearn_check(estimator, check):
    check(estimator)


def test_trust_is_a_value():
    assert Trust(1.0, 1.0) == TRUSTS[1]
