"""The flagship tree and ensemble of numbers and what leads to them, claim by claim."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import SilvaForestRegressor, SilvaTreeRegressor, export_text
from silva.estimators.corrections import GAMMAS, correct, spread_errors
from silva.estimators.fidelity import Targets
from silva.estimators.invented import Invented, mixed_rows, with_invented
from silva.estimators.trust import Smoothed, Trust
from silva.graph import affinity_graph, laplacian
from silva.kernels import cpu
from silva.laptao import Evidence
from silva.tree import answer

LIGHT = DecisionTreeRegressor(max_depth=3, random_state=0)  # for what does not depend on it
PLAIN = {"max_depth": 3, "alpha": 0.1, "random_state": 0}  # nothing is searched


@pytest.fixture(scope="module")
def friedman():
    """Ten columns, five of them idle; 60 of 700 rows labelled; 500 rows more to test."""
    X, y = make_friedman1(1200, noise=1.0, random_state=0)
    return X[:700], np.where(np.arange(700) < 60, y[:700], np.nan), y[:700], X[700:], y[700:]


@pytest.fixture(scope="module")
def tree(friedman):
    return SilvaTreeRegressor(random_state=0).fit(friedman[0], friedman[1])


@pytest.fixture(scope="module")
def forest(friedman, tree):
    """The ensemble with the teacher that the tree had, which is not taught anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SilvaForestRegressor, "_taught", lambda *_, **__: tree.teacher_)
        return SilvaForestRegressor(random_state=0).fit(friedman[0], friedman[1])


@pytest.fixture(scope="module")
def diabetes():
    X, truth = load_diabetes(return_X_y=True)
    return X, np.where(np.arange(len(truth)) % 4 == 0, truth, np.nan), truth


# ---- corrections --------------------------------------------------------------------------------


def small_problem(n_rows=14, n_labelled=5):
    rng = np.random.default_rng(0)
    W = affinity_graph(rng.normal(size=(n_rows, 2)), 4)
    labelled = np.where(np.arange(n_rows) < n_labelled, 2.0, 0.0)
    return W, Evidence(
        labelled, 1.0 - (labelled > 0), labelled[:, None] * rng.normal(size=(n_rows, 2))
    )


@pytest.mark.parametrize("gamma", GAMMAS[1:])
def test_corrections_match_a_dense_solve(gamma):
    W, errors = small_problem()
    A = gamma * (np.diag(errors.labelled) + laplacian(W).toarray()) + np.diag(errors.unlabelled)
    expected = np.linalg.solve(A, gamma * errors.sums)
    assert_allclose(spread_errors(W, errors, gamma, 1), expected, atol=1e-5)


def test_without_gamma_nothing_is_corrected():
    W, errors = small_problem()
    assert not spread_errors(W, errors, 0.0, 1).any()


@pytest.mark.parametrize("knows", [True, False])
def test_a_graph_is_trusted_if_it_knows_the_errors(knows):
    rng = np.random.default_rng(0)
    place = rng.random(400)
    errors = np.sin(6 * place) + 0.1 * rng.normal(size=400) if knows else rng.normal(size=400)
    teacher = rng.normal(size=(400, 1))
    labels = teacher + errors[:, None]
    labelled = (np.arange(400) < 80).astype(float)
    known = Evidence(labelled, 1 - labelled, labelled[:, None] * labels)
    found = correct(affinity_graph(place[:, None], 10), known, teacher, teacher[:80], GAMMAS, 0, 1)
    if knows:
        assert r2_score(labels[80:], found.Z[80:]) > 0.9
        assert r2_score(labels[:80], found.found) > 0.9
    else:
        assert_array_equal(found.Z, teacher)


# ---- the tree -----------------------------------------------------------------------------------


def test_the_tree_beats_a_forest_on_the_labelled_rows(friedman, tree):
    X, y, _, X_test, truth = friedman
    peer = RandomForestRegressor(random_state=0).fit(X[:60], y[:60])
    assert tree.score(X_test, truth) > peer.score(X_test, truth) + 0.05


def test_the_tree_beats_a_linear_model_and_cart(friedman, tree):
    X, y, _, X_test, truth = friedman
    for peer in (Ridge(), DecisionTreeRegressor(random_state=0)):
        assert tree.score(X_test, truth) > peer.fit(X[:60], y[:60]).score(X_test, truth)


def test_labelled_rows_keep_their_targets(friedman, tree):
    y = friedman[1]
    assert_array_equal(tree.transduction_[:60], y[:60])
    assert r2_score(friedman[2][60:], tree.transduction_[60:]) > 0.6


def test_answers_stay_in_the_range_seen(friedman, tree, forest):
    far = 100 * np.random.default_rng(0).normal(size=(200, 10))
    y = friedman[1][:60]
    for model in (tree, forest):
        assert y.min() - 1e-5 <= model.predict(far).min()
        assert model.predict(far).max() <= y.max() + 1e-5


def test_without_graph_the_unlabelled_rows_get_the_teachers_answers(friedman):
    X, y = friedman[:2]
    model = SilvaTreeRegressor(gamma=0, teacher=Ridge(), **PLAIN).fit(X, y)
    expected = np.clip(Ridge().fit(X[:60], y[:60]).predict(X[60:]), y[:60].min(), y[:60].max())
    assert_allclose(model.transduction_[60:], expected)


def test_a_given_teacher_is_cloned_and_taught(diabetes):
    X, y, _ = diabetes
    teacher = Ridge(0.1)
    model = SilvaTreeRegressor(teacher=teacher, **PLAIN).fit(X, y)
    assert not hasattr(teacher, "coef_")
    known = ~np.isnan(y)
    assert_allclose(model.teacher_.coef_, clone(teacher).fit(X[known], y[known]).coef_)


def test_without_teacher_labels_spread_along_a_spiral():
    rng = np.random.default_rng(0)
    turn = np.sort(rng.uniform(1, 4, 600))
    X = turn[:, None] * np.column_stack([np.cos(4 * turn), np.sin(4 * turn)])
    y = np.where(rng.random(600) < 0.06, turn, np.nan)
    spread = SilvaTreeRegressor(teacher=None, **PLAIN).fit(X, y)
    assert spread.teacher_ is None
    assert r2_score(turn, spread.transduction_) > 0.9


def test_invented_rows_mix_neighbours_and_keep_the_columns_of_a_category_together():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=50), np.eye(3)[rng.integers(3, size=50)]])
    X = np.column_stack([X, rng.normal(size=50)])
    W, source = affinity_graph(X[:, [0, 4]], 4), np.array([0, 1, 1, 1, 2])
    rows, one, other = mixed_rows(X, W, source, 50, 0)
    assert (W.toarray()[one, other] > 0).all()
    assert ((rows == X[one]) | (rows == X[other])).all()
    assert_array_equal(rows[:, 1:4].sum(axis=1), 1.0)
    assert 0.3 < np.mean(rows[:, [0, 4]] == X[one][:, [0, 4]]) < 0.7
    thin, _, _ = mixed_rows(sparse.csr_array(X), W, source, 50, 0)
    assert_allclose(thin.toarray(), rows)


def test_a_fold_sees_no_invented_row_of_a_row_held_out():
    X = np.arange(6.0)[:, None]
    targets = Targets(X, X, np.ones(6), cpu, 1)
    row, other = np.array([0, 2, 4]), np.array([1, 3, 5])
    invented = Invented(X[row] + 0.5, X[row] + 0.5, row, other)
    wide = with_invented(targets, np.array([0, 1, 2, 5]), invented)
    assert_array_equal(wide.X[:, 0], [0, 1, 2, 5, 0.5])


def test_invented_rows_get_the_teachers_answers_corrected_as_the_row_they_come_from(friedman, tree):
    X, teacher = friedman[0], tree.teacher_
    targets = Targets(X, teacher.predict(X)[:, None] + 0.5, np.ones(700), cpu, 1)
    W = affinity_graph(X, 5)
    for gamma, shift in ((0.0, 0.0), (5.0, 0.5)):
        smoothed = Smoothed(targets.Z, W, [Trust(gamma, 1.0)], np.ones(1), 0.0, [], targets.Z)
        wide = tree._widening(targets, smoothed, 0)(np.arange(700))
        assert_array_equal(wide.X[:700], X)
        assert len(wide.Z) > 700
        expected = teacher.predict(wide.X[700:]) + shift
        assert_allclose(
            wide.Z[700:, 0], np.clip(expected, targets.Z.min(), targets.Z.max()), rtol=1e-6
        )


def test_the_tree_can_be_read(friedman, tree):
    X = friedman[0]
    assert export_text(tree).count("\n") > tree.tree_.n_leaves
    assert tree.decision_path(X).shape == (700, tree.tree_.n_nodes)
    assert_array_equal(np.unique(tree.apply(X)), tree.tree_.leaf_nodes)
    assert tree.get_n_leaves() == tree.tree_.n_leaves
    assert not hasattr(tree, "predict_proba")


def test_importances_sum_to_one_and_name_the_columns_that_matter(tree, forest):
    for model in (tree, forest):
        assert_allclose(model.feature_importances_.sum(), 1.0)
        assert model.feature_importances_[:5].sum() > 0.7


def test_max_depth_bounds_the_tree(friedman):
    for depth in (0, 2):
        model = SilvaTreeRegressor(max_depth=depth, alpha=0.1, teacher=LIGHT, random_state=0)
        assert model.fit(friedman[0], friedman[1]).get_depth() <= depth


def test_a_larger_alpha_gives_a_sparser_tree(friedman):
    X, y = friedman[:2]
    trees = [
        SilvaTreeRegressor(max_depth=3, alpha=alpha, gamma=0, teacher=Ridge(), random_state=0)
        for alpha in (0.001, 30.0)
    ]
    dense, thin = (model.fit(X, y).tree_.coefficients.nnz for model in trees)
    assert thin < dense / 2


def test_fidelity_is_the_share_of_what_was_taught(friedman, tree):
    X = friedman[0][60:]
    assert 0.8 < tree.fidelity_["r2"] <= 1
    assert r2_score(tree.transduction_[60:], tree.predict(X)) > tree.fidelity_["r2"] - 0.02


def test_the_report_tells_of_labels_teacher_graph_and_tree(tree):
    for part in ("60 of 700", "teacher", "hidden", "graph", "leaves", "held out"):
        assert part in tree.report_


# ---- the ensemble -------------------------------------------------------------------------------


def test_the_ensemble_beats_forests_of_two_kinds(friedman, forest):
    X, y, _, X_test, truth = friedman
    answers = [
        kind(random_state=0).fit(X[:60], y[:60]).predict(X_test)
        for kind in (RandomForestRegressor, ExtraTreesRegressor)
    ]
    assert forest.score(X_test, truth) > r2_score(truth, np.mean(answers, axis=0)) + 0.05


def test_the_ensemble_is_the_mix_of_trees_and_teacher(friedman, forest):
    X = friedman[3]
    mix, parts = forest.mix_, []
    for each in forest.trees_:
        node = cpu.route(X, each.left, each.right, each.coefficients, each.threshold, 1)
        parts.append(answer(each, each.leaf_index[node], X)[:, 0])
    expected = mix["oblique"] * np.mean(parts, axis=0) + mix["axis"] * forest.axis_forest_.predict(
        X
    )
    expected += mix["teacher"] * forest.teacher_.predict(X)
    assert_allclose(forest.predict(X), expected)
    assert_allclose(sum(mix.values()), 1.0)


def test_its_own_estimate_is_near_the_truth(friedman, forest):
    assert abs(forest.cv_score_ - forest.score(friedman[3], friedman[4])) < 0.15


def test_the_worse_the_forests_tell_the_answers_the_more_the_teacher_counts(diabetes):
    X, y, _ = diabetes
    weights = [
        SilvaForestRegressor(gamma=0, teacher=teacher, **PLAIN).fit(X, y).mix_["teacher"]
        for teacher in (Ridge(0.1), KNeighborsRegressor(1))
    ]
    assert 0.5 <= weights[0] < 0.55
    assert weights[1] > 0.7


def test_without_teacher_it_has_no_say(diabetes):
    X, y, truth = diabetes
    model = SilvaForestRegressor(teacher=None, **PLAIN).fit(X, y)
    assert model.mix_["teacher"] == 0
    assert model.score(X, truth) > 0.25


def test_the_report_tells_of_the_mix_and_of_its_own_estimate(forest):
    for part in ("oblique trees count", "the teacher", "expected to explain"):
        assert part in forest.report_


# ---- the same result ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SilvaTreeRegressor, SilvaForestRegressor])
def test_same_answers_for_any_n_jobs(friedman, small_mixture, kind):
    X, y = friedman[0][:300], friedman[1][:300]
    one, two = (kind(n_jobs=n, **PLAIN).fit(X, y) for n in (1, 2))
    assert_array_equal(one.predict(X), two.predict(X))
    assert_array_equal(one.transduction_, two.transduction_)


def test_same_seed_same_answers(friedman, small_mixture):
    X, y = friedman[0][:300], friedman[1][:300]
    one, two = (SilvaForestRegressor(**PLAIN).fit(X, y).predict(X) for _ in range(2))
    assert_array_equal(one, two)


def test_the_order_of_the_rows_does_not_matter(diabetes):
    X, y, _ = diabetes
    order = np.random.default_rng(0).permutation(len(y))
    one = SilvaTreeRegressor(teacher=LIGHT, **PLAIN).fit(X, y)
    other = SilvaTreeRegressor(teacher=LIGHT, **PLAIN).fit(X[order], y[order])
    assert_allclose(one.predict(X), other.predict(X), rtol=1e-9)


def test_a_weight_of_two_is_two_copies(diabetes):
    X, y, _ = diabetes
    weight = np.where(np.arange(len(y)) % 3 == 0, 2, 1)
    weighted = SilvaTreeRegressor(teacher=LIGHT, **PLAIN).fit(X, y, weight)
    X2, y2 = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    copied = SilvaTreeRegressor(teacher=LIGHT, **PLAIN).fit(X2, y2)
    assert_allclose(weighted.predict(X), copied.predict(X), rtol=1e-6)


@pytest.mark.parametrize("name", ["tree", "forest"])
def test_pickled_models_answer_the_same(friedman, name, request):
    model = request.getfixturevalue(name)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(friedman[3]), model.predict(friedman[3]))


# ---- what users bring ---------------------------------------------------------------------------


def test_frames_with_strings_and_missing_values_are_read(small_mixture):
    rng = np.random.default_rng(0)
    colour, size = rng.choice(["red", "green", "blue"], 300), rng.normal(size=300)
    truth = np.where(colour == "red", 3.0, 0.0) + size
    frame = pd.DataFrame({"colour": colour, "size": size})
    frame.loc[::37, "size"] = np.nan
    y = pd.Series(np.where(np.arange(300) < 60, truth, np.nan))
    model = SilvaTreeRegressor(**PLAIN).fit(frame, y)
    assert model.score(frame, truth) > 0.85
    assert "colour" in export_text(model)


@pytest.mark.parametrize("kind", [SilvaTreeRegressor, SilvaForestRegressor])
def test_sparse_rows_are_taken(friedman, small_mixture, kind):
    X, y, _, X_test, truth = friedman
    model = kind(**PLAIN).fit(sparse.csr_array(X), y)
    assert model.score(sparse.csr_array(X_test), truth) > 0.5


def test_several_outputs_are_learned_together(friedman):
    X, y, _, X_test, _ = friedman
    both = np.column_stack([y, -2 * y])
    for kind in (SilvaTreeRegressor, SilvaForestRegressor):
        model = kind(teacher=LIGHT, **PLAIN).fit(X, both)
        answers = model.predict(X_test)
        assert answers.shape == (500, 2)
        assert_allclose(answers[:, 1], -2 * answers[:, 0], rtol=1e-3, atol=0.05)
        assert model.transduction_.shape == (700, 2)


@pytest.mark.parametrize("n_labels", [1, 2, 3, 7, 9])
def test_few_labels_are_enough_to_answer(friedman, small_mixture, n_labels):
    X, truth = friedman[0][:100], friedman[2][:100]
    y = np.where(np.arange(100) < n_labels, truth, np.nan)
    model = SilvaTreeRegressor(**PLAIN).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    if n_labels == 1:
        assert_allclose(model.predict(X), truth[0])


def test_equal_labels_are_answered_by_both():
    X, y = np.arange(20.0)[:, None], np.where(np.arange(20) < 12, 3.0, np.nan)
    for kind in (SilvaTreeRegressor, SilvaForestRegressor):
        assert_allclose(kind(random_state=0).fit(X, y).predict(X), 3.0)


def test_all_rows_may_be_labelled(diabetes):
    X, _, truth = diabetes
    model = SilvaTreeRegressor(teacher=LIGHT, **PLAIN).fit(X, truth)
    assert model.score(X, truth) > 0.4
    assert_array_equal(model.transduction_, truth)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_depth": -1}, ValueError, "max_depth"),
        ({"alpha": "large"}, TypeError, "alpha"),
        ({"gamma": -1.0}, ValueError, "gamma"),
        ({"teacher": "forest"}, TypeError, "teacher must be 'auto', None or a regressor"),
        ({"teacher": LogisticRegression()}, TypeError, "regressor"),
        ({"teacher": None, "gamma": 0}, ValueError, "gamma must be positive"),
        ({"device": "tpu"}, ValueError, "device"),
    ],
)
def test_errors_name_the_argument(diabetes, options, error, words):
    for kind in (SilvaTreeRegressor, SilvaForestRegressor):
        with pytest.raises(error, match=words):
            kind(**options).fit(diabetes[0], diabetes[1])


def test_no_label_at_all_is_refused(diabetes):
    with pytest.raises(ValueError, match="y"):
        SilvaTreeRegressor().fit(diabetes[0], np.full(len(diabetes[1]), np.nan))


@parametrize_with_checks(
    [
        SilvaTreeRegressor(teacher=LIGHT, gamma=0, max_depth=3, alpha=0.1),
        SilvaForestRegressor(teacher=LIGHT, gamma=0, max_depth=3, alpha=0.1),
    ]
)
def test_sklearn_check(estimator, check):
    check(estimator)
