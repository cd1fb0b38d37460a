"""Kernel trees as users meet them, and what their forests share with them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from kernel_data import iris, moons
from scipy import sparse
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import (
    KernelForestClassifier,
    KernelForestRegressor,
    KernelTreeClassifier,
    KernelTreeRegressor,
    LabelledKFold,
    export_text,
)
from silva.estimators import kernel_base
from silva.estimators.problem import distributions
from silva.kernel_trees import column_ranges, deviations, gaussian_membership
from silva.membership import membership

MARKER = "-1 marks unlabelled rows, here as in scikit-learn's semi-supervised estimators"
BOOTSTRAP = "rows are drawn by their weights; repeated rows draw others"


def expected_failures(estimator):
    failures = {}
    if hasattr(estimator, "predict_proba"):
        failures["check_classifiers_classes"] = MARKER
    if getattr(estimator, "kind", None) == "random":
        for kind in ("dense", "sparse"):
            failures[f"check_sample_weight_equivalence_on_{kind}_data"] = BOOTSTRAP
    return failures


@pytest.mark.filterwarnings("ignore:y has labelled rows of one class only:UserWarning")
@parametrize_with_checks(
    [
        KernelTreeClassifier(),
        KernelTreeClassifier(leaf_values="robust", scaling="deviation"),
        KernelTreeRegressor(),
        KernelForestClassifier(n_estimators=5, blend=0.5),
        KernelForestRegressor(n_estimators=5, blend=1.0),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# ---- one tree -----------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf_values", ["smooth", "robust"])
def test_unlabelled_rows_make_the_tree_better(leaf_values):
    gain = []
    for seed in range(5):
        X, y, partial = moons(seed=seed)
        known = partial >= 0
        plain = DecisionTreeClassifier(random_state=0).fit(X[known], y[known]).score(X, y)
        model = KernelTreeClassifier(leaf_values=leaf_values, random_state=0).fit(X, partial)
        gain.append(model.score(X, y) - plain)
    assert np.mean(gain) > 0.05


def test_answers_are_the_leaves_values_blended_by_membership():
    X, _, partial = iris()
    model = KernelTreeClassifier(random_state=0).fit(X, partial)
    M = model.membership(X)
    assert np.allclose(M.sum(axis=1), 1)
    assert np.diff(M.indptr).max() > 1
    np.testing.assert_allclose(
        model.predict_proba(X), distributions(M @ model.tree_.values), atol=1e-12
    )


def test_without_bandwidth_a_row_is_in_one_leaf():
    X, _, partial = iris()
    model = KernelTreeClassifier(bandwidth=0.0, random_state=0).fit(X, partial)
    assert (np.diff(model.membership(X).indptr) == 1).all()
    node = model.apply(X)
    values = distributions(model.tree_.values)[model.tree_.leaf_index[node]]
    np.testing.assert_allclose(model.predict_proba(X), values)
    assert (model.decision_path(X)[np.arange(len(X)), node] == 1).all()
    assert model.get_depth() >= 1
    assert model.get_n_leaves() == model.tree_.n_leaves


def test_transduction_keeps_the_labels_and_fills_the_rest():
    X, y, partial = iris()
    model = KernelTreeClassifier(random_state=0).fit(X, partial)
    known = partial >= 0
    assert (model.transduction_[known] == y[known]).all()
    assert (model.transduction_[~known] == model.predict(X)[~known]).all()
    assert np.mean(model.transduction_ == y) > 0.9
    assert np.allclose(model.label_distributions_.sum(axis=1), 1)


def test_smooth_answers_meet_class_totals_exactly():
    X, y, partial = iris()
    unknown = partial < 0
    totals = {int(c): int(np.sum(y[unknown] == c)) for c in range(3)}
    model = KernelTreeClassifier(merge_tol=0.0, random_state=0)
    model.fit(X, partial, class_totals=totals)
    sums = (model.membership(X) @ model.tree_.values)[unknown].sum(axis=0)
    np.testing.assert_allclose(sums, list(totals.values()), atol=1e-6)


def test_wrong_class_totals_and_robust_leaves_are_refused_together():
    X, _, partial = iris()
    with pytest.raises(ValueError, match="class_totals sum to 5"):
        KernelTreeClassifier().fit(X, partial, class_totals={0: 1, 1: 2, 2: 2})
    with pytest.raises(ValueError, match="leaf_values='smooth'"):
        KernelTreeClassifier(leaf_values="robust").fit(X, partial, class_totals={0: 1, 1: 1, 2: 1})


def test_a_heavy_prior_makes_a_leaf_the_mean_of_the_forests_answers_to_its_rows(monkeypatch):
    class Forest:
        classes_ = np.arange(3)
        feature_importances_ = np.ones(4)

        def predict_proba(self, X):
            return np.column_stack([X[:, 0], X[:, 1], 10 - X[:, 0] - X[:, 1]]) / 10

    X, _, partial = iris()
    known = partial >= 0
    monkeypatch.setattr(kernel_base, "labelled_forest", lambda *_: Forest())
    model = KernelTreeClassifier(prior_weight=1e9, merge_tol=0.0, random_state=0).fit(X, partial)
    answers = Forest().predict_proba(np.clip(X, *column_ranges(X, np.ones(len(X)))))
    answers[known] = np.eye(3)[partial[known]]
    M = model.membership(X).toarray()
    np.testing.assert_allclose(
        model.tree_.values, (M.T @ answers) / M.sum(axis=0)[:, None], atol=1e-6
    )


def test_the_forest_has_no_say_where_all_labels_are_known():
    X, y = load_iris(return_X_y=True)
    with_forest, without = (
        KernelTreeClassifier(bandwidth=0.0, prior_weight=weight, random_state=0).fit(X, y)
        for weight in (1.0, 0.0)
    )
    np.testing.assert_allclose(with_forest.predict_proba(X), without.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("selection", ["regrow", "leaves"])
def test_hidden_labels_do_not_reach_the_trials_by_the_forest(selection):
    # Labels are noise, trees grow without them to a leaf for nearly every row, and the forest says
    # all: had it seen the hidden labels, it would find them.
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), rng.integers(0, 2, 120)
    model = KernelTreeClassifier(
        bandwidth=[0.0, 0.01], ccp_alpha=1e-6, supervision=0.0, scaling="deviation",
        selection=selection, prior_weight=100.0, random_state=0,
    ).fit(X, y)  # fmt: skip
    assert min(trial.loss for trial in model.selection_) > 0.4


def test_merged_leaves_change_no_answer_by_more_than_the_tolerance():
    X, _, partial = iris(5)
    whole = KernelTreeClassifier(merge_tol=0.0, random_state=0).fit(X, partial)
    merged = KernelTreeClassifier(merge_tol=0.1, random_state=0).fit(X, partial)
    assert merged.get_n_leaves() < whole.get_n_leaves()
    exact = whole.membership(X) @ whole.tree_.values
    assert abs(merged.membership(X) @ merged.tree_.values - exact).max() <= 0.1 + 1e-12


def test_a_collapse_into_one_class_is_said():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    partial = np.full(300, -1)
    partial[:4] = [0, 0, 0, 1]
    model = KernelTreeClassifier(
        leaf_values="robust", bandwidth=1.0, labelled_weight=0.01, random_state=0
    )
    with pytest.warns(UserWarning, match="raise labelled_weight"):
        model.fit(X, partial)
    assert model.collapsed_


def test_robust_leaves_have_one_class_each_where_two_compete():
    X, _, partial = moons()
    model = KernelTreeClassifier(leaf_values="robust", random_state=0).fit(X, partial)
    assert np.isin(model.tree_.values, [0, 1]).all()


def test_no_perturbation_within_the_certified_radius_changes_the_smoothed_prediction():
    X, _, partial = moons()
    model = KernelTreeClassifier(bandwidth=0.4, random_state=0).fit(X, partial)
    radius = model.certified_radius(X)
    assert (radius > 0).mean() > 0.5
    unit = deviations(np.clip(X, *model._ranges), np.ones(len(X)))

    def smoothed(rows):
        M = gaussian_membership(model.tree_, np.clip(rows, *model._ranges), 0.4 * unit)
        return (M @ distributions(model.tree_.values)).argmax(axis=1)

    before, rng = smoothed(X), np.random.default_rng(0)
    for _ in range(20):
        step = rng.normal(size=X.shape)
        step *= 0.999 * radius[:, None] / np.linalg.norm(step, axis=1, keepdims=True)
        assert (smoothed(X + step * unit) == before)[radius > 0].all()


def test_a_certificate_needs_a_gaussian():
    X, _, partial = iris()
    for options in ({"kernel": "uniform"}, {"bandwidth": 0.0}):
        with pytest.raises(ValueError, match="kernel='gaussian' and a positive bandwidth"):
            KernelTreeClassifier(**options).fit(X, partial).certified_radius(X)


def test_gaussian_memberships_are_products_of_interval_masses():
    X, _, partial = iris()
    model = KernelTreeClassifier(max_depth=3, merge_tol=0.0, random_state=0).fit(X, partial)
    tree, spread = model.tree_, np.full(4, 0.5)
    M = gaussian_membership(tree, X, spread)
    np.testing.assert_allclose(M.sum(axis=1), 1, atol=1e-12)
    path = tree.ancestors().toarray() > 0
    for leaf in range(tree.n_leaves):
        low, high = np.full(4, -np.inf), np.full(4, np.inf)
        for node in np.flatnonzero(path[leaf] & ~tree.is_leaf):
            j, cut = tree.coefficients[[node]].indices[0], tree.threshold[node]
            if path[leaf, tree.left[node]]:
                high[j] = min(high[j], cut)
            else:
                low[j] = max(low[j], cut)
        mass = norm.cdf((high - X) / spread) - norm.cdf((low - X) / spread)
        np.testing.assert_allclose(M[:, leaf], mass.prod(axis=1), atol=1e-12)


def test_gaussian_memberships_without_bandwidth_are_those_of_crisp_rows():
    X, _, partial = iris()
    model = KernelTreeClassifier(bandwidth=0.0, random_state=0).fit(X, partial)
    crisp = membership(model.tree_, X, 0.0).toarray()
    np.testing.assert_array_equal(gaussian_membership(model.tree_, X, np.zeros(4)), crisp)


# ---- choosing settings --------------------------------------------------------------------------


@pytest.mark.parametrize("selection", ["regrow", "leaves"])
def test_lists_are_chosen_from_by_held_out_loss(selection):
    X, _, partial = iris(4)
    model = KernelTreeClassifier(
        bandwidth=[0.0, 0.2, 5.0], ccp_alpha=[1e-3, 1e-2], selection=selection, random_state=0
    ).fit(X, partial)
    losses = [trial.loss for trial in model.selection_]
    assert len(losses) == 6
    assert losses == sorted(losses)
    assert (model.bandwidth_, model.ccp_alpha_) == (
        model.selection_[0].bandwidth,
        model.selection_[0].ccp_alpha,
    )
    assert model.bandwidth_ < 5  # everything is alike at five deviations


def test_a_pruned_trial_is_the_trial_of_that_alpha_alone():
    X, _, partial = iris(4)
    options = {"bandwidth": [0.1, 0.3], "random_state": 0}
    both = KernelTreeClassifier(ccp_alpha=[1e-3, 2e-2], **options).fit(X, partial)
    alone = KernelTreeClassifier(ccp_alpha=[2e-2], **options).fit(X, partial)
    found = {t.bandwidth: t.losses for t in both.selection_ if t.ccp_alpha == 2e-2}
    for trial in alone.selection_:
        np.testing.assert_allclose(trial.losses, found[trial.bandwidth])


def test_too_few_labels_to_choose_by_are_said():
    X, _, partial = iris(30)
    with pytest.warns(UserWarning, match="fewer than 10 different labelled rows"):
        model = KernelTreeClassifier(bandwidth=[0.3, 0.1]).fit(X, partial)
    assert model.bandwidth_ == 0.3


def test_a_grid_search_over_labelled_rows_works():
    X, y, partial = iris(4)
    search = GridSearchCV(
        KernelTreeClassifier(random_state=0), {"bandwidth": [0.1, 0.3]}, cv=LabelledKFold(3)
    ).fit(X, partial)
    assert search.best_estimator_.score(X, y) > 0.9


# ---- rows of any kind ---------------------------------------------------------------------------


def test_frames_with_categories_and_missing_values_are_reported_by_their_own_names():
    rng = np.random.default_rng(0)
    size = rng.normal(size=300)
    colour = rng.choice(["red", "green", "blue"], 300)
    y = np.where((size > 0) ^ (colour == "red"), "yes", "no").astype(object)
    frame = pd.DataFrame({"size": size, "colour": colour, "noise": rng.normal(size=300)})
    frame.loc[::17, "size"] = np.nan
    y[60:] = None
    for model in (KernelTreeClassifier(), KernelForestClassifier(n_estimators=10, blend=0.5)):
        model.set_params(random_state=0).fit(frame, y)
        assert model.classes_.tolist() == ["no", "yes"]
        assert model.feature_importances_.shape == (3,)
        assert model.feature_importances_.sum() == pytest.approx(1)
        assert set(model.predict(frame)) <= {"no", "yes"}
    tree = KernelTreeClassifier(random_state=0).fit(frame, y)
    assert "colour is" in export_text(tree)


def test_sparse_rows_are_as_good_as_dense_ones():
    X, _, partial = iris()
    dense = KernelTreeClassifier(random_state=0).fit(X, partial)
    thin = KernelTreeClassifier(random_state=0).fit(sparse.csr_array(X), partial)
    np.testing.assert_array_equal(dense.predict_proba(X), thin.predict_proba(sparse.csr_array(X)))


def test_units_and_offsets_of_the_columns_do_not_matter():
    X, _, partial = iris()
    plain = KernelTreeClassifier(random_state=0).fit(X, partial).predict_proba(X)
    moved = X * [1, 1024, 1 / 64, 2] + [0, 4096, 0, -8]
    other = KernelTreeClassifier(random_state=0).fit(moved, partial).predict_proba(moved)
    np.testing.assert_allclose(other, plain, atol=1e-5)


def test_far_rows_do_not_own_the_variance():
    X, y, partial = iris()
    X = X.copy()
    X[[1, 51], 1] = 1e6
    score = KernelTreeClassifier(random_state=0).fit(X, partial).score(X, y)
    assert score > 0.9


def test_ranges_are_quantiles_but_never_shut_a_rare_column():
    X = np.stack([np.arange(1000.0), np.arange(1000) == 7, np.full(1000, 3.0)], axis=1)
    low, high = column_ranges(X, np.ones(1000))
    np.testing.assert_array_equal(low, [9, 0, 3])
    np.testing.assert_array_equal(high, [989, 1, 3])
    twice = column_ranges(np.repeat(X, 2, axis=0), np.ones(2000))
    np.testing.assert_array_equal(twice, column_ranges(X, np.full(1000, 2.0)))


@pytest.mark.parametrize(
    "model",
    [KernelTreeClassifier(), KernelForestClassifier(n_estimators=8, blend="auto")],
    ids=["tree", "forest"],
)
def test_same_seed_same_model_for_any_number_of_threads(model):
    X, _, partial = iris(5)
    fits = [
        clone(model).set_params(random_state=3, n_jobs=jobs).fit(X, partial).predict_proba(X)
        for jobs in (1, 2)
    ]
    np.testing.assert_array_equal(*fits)
    copy = pickle.loads(pickle.dumps(clone(model).set_params(random_state=3).fit(X, partial)))
    np.testing.assert_array_equal(copy.predict_proba(X), fits[0])


def test_rows_without_weight_do_not_matter():
    X, _, partial = iris()
    weight = (np.arange(len(X)) % 3 > 0).astype(float)
    kept = weight > 0
    one = KernelTreeClassifier(random_state=0).fit(X, partial, sample_weight=weight)
    other = KernelTreeClassifier(random_state=0).fit(X[kept], partial[kept])
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bandwidth": -1}, "bandwidth must be finite and at least 0"),
        ({"bandwidth": []}, "bandwidth must be a number or a list of numbers, got an empty list"),
        ({"ccp_alpha": [0.1, -1]}, "an entry of ccp_alpha must be finite"),
        ({"supervision": 2}, "supervision must be between 0 and 1"),
        ({"labelled_weight": 0}, "labelled_weight must be positive"),
        ({"leaf_values": "hard"}, r"leaf_values must be one of \['smooth', 'robust'\]"),
        ({"kernel": "cosine"}, "kernel must be one of"),
        ({"scaling": "none"}, "scaling must be one of"),
        ({"selection": "cv"}, "selection must be one of"),
        ({"prior": "parents"}, r"prior must be one of \['forest', 'ancestors'\]"),
        ({"max_features": 1.5}, "max_features as a share"),
        ({"max_features": "third"}, "max_features must be one of"),
    ],
)
def test_bad_parameters_are_named(options, message):
    X, _, partial = iris()
    with pytest.raises(ValueError, match=message):
        KernelTreeClassifier(**options).fit(X, partial)


def test_labels_without_weight_are_refused():
    X, _, partial = iris()
    with pytest.raises(ValueError, match="positive for some labelled row"):
        KernelTreeClassifier().fit(X, partial, sample_weight=(partial < 0).astype(float))


# ---- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "rtol"),
    [  # ties within scikit-learn's trees may fall either way
        (KernelTreeRegressor(random_state=0), 1e-4),
        (KernelForestRegressor(n_estimators=20, random_state=0), 0.02),
    ],
    ids=["tree", "forest"],
)
def test_numbers_are_learnt_from_a_quarter_of_the_labels_in_any_unit(model, rtol):
    X, y = load_diabetes(return_X_y=True)
    partial = np.where(np.arange(len(y)) % 4 == 0, y, np.nan)
    model = clone(model).fit(X, partial)
    assert model.score(X[1::2], y[1::2]) > 0.25
    known = ~np.isnan(partial)
    np.testing.assert_allclose(model.transduction_[known], y[known])
    scaled = clone(model).fit(X, 1000 * partial - 5)
    np.testing.assert_allclose(scaled.predict(X), 1000 * model.predict(X) - 5, rtol=rtol)


def test_several_numbers_at_once_keep_their_shape():
    X, y = load_diabetes(return_X_y=True)
    both = np.stack([y, -2 * y], axis=1)
    both[np.arange(len(y)) % 3 > 0] = np.nan
    for model in (KernelTreeRegressor(), KernelForestRegressor(n_estimators=5, blend=0.5)):
        answers = model.set_params(random_state=0).fit(X, both).predict(X)
        assert answers.shape == (len(y), 2)
        np.testing.assert_allclose(answers[:, 1], -2 * answers[:, 0], rtol=1e-6)


def test_numbers_have_no_robust_leaves():
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(ValueError, match=r"leaf_values must be one of \['smooth'\]"):
        KernelTreeRegressor(leaf_values="robust").fit(X, y)
    with pytest.raises(ValueError, match=r"leaf_values must be one of \['joint', 'smooth'\]"):
        KernelForestRegressor(leaf_values="robust").fit(X, y)
