"""LapTAO estimators, claim by claim."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from laptao_models import partly_labelled_iris, small_tree
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_moons
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import silva.graph
from silva import (
    LabelledKFold,
    LapTAOClassifier,
    LapTAORegressor,
    TAOTreeClassifier,
    TAOTreeRegressor,
    affinity_graph,
    export_text,
)
from silva.graph import laplacian


@pytest.fixture(scope="module")
def moons():
    """Two half moons, three labels each."""
    X, truth = make_moons(300, noise=0.08, random_state=0)
    y = np.full(len(truth), -1)
    for label in (0, 1):
        y[np.flatnonzero(truth == label)[:3]] = label
    return X, y, truth


@pytest.fixture(scope="module")
def iris():
    return partly_labelled_iris()


# ---- what it is for ------------------------------------------------------------------------------


def test_unlabelled_rows_help_on_two_moons(moons):
    X, y, truth = moons
    alone = TAOTreeClassifier(random_state=0).fit(X[y >= 0], y[y >= 0])
    together = LapTAOClassifier(random_state=0).fit(X, y)
    assert together.score(X, truth) > 0.97
    assert together.score(X, truth) > alone.score(X, truth) + 0.05


def test_fifty_digits_are_enough_for_a_good_tree():
    X, digits = load_digits(return_X_y=True)
    y = np.where(np.arange(len(digits)) < 50, digits, -1)
    alone = TAOTreeClassifier(random_state=0).fit(X[:50], digits[:50])
    together = LapTAOClassifier(random_state=0).fit(X, y)
    assert together.score(X[50:], digits[50:]) > alone.score(X[50:], digits[50:]) + 0.1


def test_unlabelled_rows_help_a_regression_tree():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 4 * np.pi, 400)[:, None]
    truth = np.sin(X[:, 0])
    y = np.full(400, np.nan)
    known = rng.choice(400, 25, replace=False)
    y[known] = truth[known]
    together = LapTAORegressor(random_state=0).fit(X, y)
    alone = TAOTreeRegressor(random_state=0).fit(X[known], truth[known])
    assert together.score(X, truth) > max(0.85, alone.score(X, truth))


# ---- labels in, labels out -----------------------------------------------------------------------


@pytest.mark.parametrize("marker", [-1, None, np.nan, pd.NA])
def test_every_marker_of_an_unlabelled_row_means_the_same(moons, marker):
    X, y, _ = moons
    marked = np.array([marker if label == -1 else int(label) for label in y], dtype=object)
    model = LapTAOClassifier(estimator=small_tree(), random_state=0)
    expected = clone(model).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(model.fit(X, marked).predict_proba(X), expected)


def test_string_classes_come_back_as_strings(moons):
    X, y, truth = moons
    names = np.array(["low", "high"], dtype=object)
    labels = np.where(y == -1, None, names[np.maximum(y, 0)])
    model = LapTAOClassifier(estimator=small_tree(), random_state=0).fit(X, labels)
    assert model.classes_.tolist() == ["high", "low"]
    assert (model.predict(X) == names[truth]).mean() > 0.9


def test_probabilities_are_distributions(iris):
    X, y, _ = iris
    model = LapTAOClassifier(estimator=small_tree(), random_state=0).fit(X, y)
    for P in (model.predict_proba(X), model.label_distributions_):
        assert P.shape == (150, 3)
        assert (P > 0).all()
        np.testing.assert_allclose(P.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))


def test_transduction_keeps_the_labels_and_fills_the_rest(iris):
    X, y, truth = iris
    model = LapTAOClassifier(estimator=small_tree(), random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.transduction_[y >= 0], y[y >= 0])
    assert (model.transduction_ == truth).mean() > 0.85


def test_transduction_of_numbers_keeps_the_targets():
    X, y = load_diabetes(return_X_y=True)
    partly = np.where(np.arange(len(y)) % 4 == 0, y, np.nan)
    model = LapTAORegressor(estimator=small_tree(), random_state=0).fit(X, partly)
    np.testing.assert_array_equal(model.transduction_[::4], y[::4])
    assert np.isfinite(model.transduction_).all()
    assert model.predict(X).shape == (len(y),)


def test_several_outputs_are_learned_together():
    X, y = load_diabetes(return_X_y=True)
    both = np.column_stack([y, -2 * y + 3])
    both[np.arange(len(y)) % 3 > 0] = np.nan
    model = LapTAORegressor(estimator=small_tree(), random_state=0).fit(X, both)
    P = model.predict(X)
    np.testing.assert_allclose(P[:, 1], -2 * P[:, 0] + 3, rtol=1e-4, atol=1e-3)


def test_all_rows_labelled_is_supervised_learning_with_smoothing(iris):
    X, _, truth = iris
    model = LapTAOClassifier(estimator=small_tree(), random_state=0).fit(X, truth)
    assert model.score(X, truth) > 0.94


# ---- the algorithm -------------------------------------------------------------------------------


def test_no_rounds_means_smooth_then_fit(iris):
    X, y, _ = iris
    model = LapTAOClassifier(
        estimator=small_tree(), n_outer=0, refit_leaves=False, random_state=0
    ).fit(X, y)
    assert len(model.history_) == 1
    assert len(np.unique(X, axis=0)) == model.affinity_.shape[0]
    leaf = model.apply(X)
    for node in np.unique(leaf):  # a leaf answers the mean of its smoothed labels
        rows = np.flatnonzero(leaf == node)
        np.testing.assert_allclose(
            model.predict_proba(X[rows[:1]])[0],
            model.label_distributions_[rows].mean(axis=0),
            atol=0.01,
        )


def test_without_damping_the_start_is_the_harmonic_solution(iris):
    """LapTAO paper: (J + gamma L) z = J y."""
    X, y, _ = iris
    W = affinity_graph(X, 10)
    model = LapTAOClassifier(
        estimator=small_tree(), affinity=W, damping=0, gamma=0.1, n_outer=0, random_state=0
    ).fit(X, y)
    J = np.diag((y >= 0).astype(float))
    Y = np.where(y[:, None] == np.arange(3), 1.0, 0.0)
    Z = np.linalg.solve(J + 0.1 * laplacian(W).toarray(), J @ Y)
    np.testing.assert_allclose(model.label_distributions_, np.clip(Z, 1e-6, None), atol=2e-4)


def test_refitted_leaves_minimise_the_energy(iris):
    """LapTAO paper, section 3.3: no other answers of the same leaves have a lower energy."""
    X, y, _ = iris
    W = affinity_graph(X, 10)
    model = LapTAOClassifier(
        estimator=small_tree(), affinity=W, damping=0, gamma=0.1, random_state=0
    ).fit(X, y)
    labelled, L = y >= 0, laplacian(W)
    Y = np.where(y[:, None] == np.arange(3), 1.0, 0.0)
    leaf = model.tree_.leaf_index[model.apply(X)]

    def energy(values):
        T = values[leaf]
        return ((T - Y)[labelled] ** 2).sum() + 0.1 * np.sum(T * (L @ T))

    best = energy(model.tree_.values)
    rng = np.random.default_rng(0)
    for _ in range(20):
        step = 1e-3 * rng.normal(size=model.tree_.values.shape)
        assert energy(model.tree_.values + step) > best
        assert energy(model.tree_.values + step) - best < 1e-2


def test_the_best_round_is_kept(iris):
    X, y, _ = iris
    model = LapTAOClassifier(estimator=small_tree(), refit_leaves=False, random_state=0).fit(X, y)
    energies = [step.energy for step in model.history_]
    assert min(energies) <= energies[0]
    assert set(model.history_[0].terms) == {"labels", "graph", "rest"}


def test_threads_do_not_change_the_result(moons):
    X, y, _ = moons
    one, two = (LapTAOClassifier(n_jobs=n, random_state=0).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.tree_.values, two.tree_.values)
    np.testing.assert_array_equal(one.label_distributions_, two.label_distributions_)


def test_a_weight_of_two_is_two_copies(iris):
    X, y, _ = iris
    weight = np.where(np.arange(150) % 3 == 0, 2, 1)
    weight[5] = 0
    model = LapTAOClassifier(estimator=small_tree(), random_state=0)
    weighted = clone(model).fit(X, y, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(
        weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-6, atol=1e-9
    )
    assert weighted.transduction_.shape == (150,)


def test_the_graph_is_scale_free_and_weighs_columns_by_relevance(moons):
    X, _, truth = moons
    rng = np.random.default_rng(0)
    noisy = np.column_stack([X * [1, 1000], rng.normal(size=(len(X), 10))])
    y = np.where(np.arange(len(X)) < 40, truth, -1)
    score = {
        scaling: LapTAOClassifier(scaling=scaling, random_state=0).fit(noisy, y).score(noisy, truth)
        for scaling in ("relevance", "deviation", "none")
    }
    assert score["relevance"] > max(score["deviation"], score["none"])


def test_rows_that_no_label_reaches_are_counted_in_a_warning():
    X = np.r_[np.zeros((20, 1)), np.full((20, 1), 100.0)] + np.linspace(0, 1, 40)[:, None]
    y = np.full(40, -1)
    y[:5], y[5:10] = 0, 1
    W = sparse.block_diag([np.ones((20, 20)), np.ones((20, 20))])
    with pytest.warns(UserWarning, match="1 components of the graph with 20 rows hold no label"):
        model = LapTAOClassifier(estimator=small_tree(), affinity=W, damping=0, random_state=0).fit(
            X, y
        )
    np.testing.assert_allclose(model.label_distributions_[20:], 0.5, atol=1e-3)


def test_ctrl_c_keeps_the_best_tree(iris):
    X, y, truth = iris

    def interrupt(step):
        if step.number == 2:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="interrupted after 2 of 20"):
        model = LapTAOClassifier(estimator=small_tree(), random_state=0).fit(
            X, y, callback=interrupt
        )
    assert model.score(X, truth) > 0.8


# ---- other mappings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeRegressor(max_depth=4, random_state=0),
        RandomForestRegressor(10, random_state=0),
        GradientBoostingRegressor(n_estimators=10, random_state=0),
        MLPRegressor(
            hidden_layer_sizes=(8,),
            max_iter=200,
            learning_rate_init=0.01,
            warm_start=True,
            random_state=0,
        ),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_any_regressor_can_stand_for_the_tree(iris, estimator):
    X, y, truth = iris
    X = StandardScaler().fit_transform(X)
    model = LapTAOClassifier(estimator=estimator, n_outer=5, random_state=0).fit(X, y)
    assert model.score(X, truth) > 0.85
    assert not hasattr(estimator, "n_features_in_")  # the template stays unfitted
    assert hasattr(model, "tree_") == isinstance(estimator, DecisionTreeRegressor)


def test_a_warm_regressor_goes_on_and_others_start_anew(iris):
    X, y, _ = iris
    X = StandardScaler().fit_transform(X)
    passes = {}
    for warm in (False, True):
        network = MLPRegressor(hidden_layer_sizes=(4,), max_iter=1, warm_start=warm, random_state=0)
        with pytest.warns(ConvergenceWarning):
            model = LapTAOClassifier(estimator=network, n_outer=6, tol=0, random_state=0).fit(X, y)
        passes[warm] = model.estimator_.t_
    assert passes[True] > passes[False]


def test_a_cart_tree_can_be_read_and_its_leaves_are_refitted(iris):
    X, y, _ = iris
    cart = DecisionTreeRegressor(max_depth=2, random_state=0)
    model = LapTAOClassifier(estimator=cart, random_state=0).fit(X, y)
    assert model.get_depth() <= 2
    assert "petal" in export_text(
        LapTAOClassifier(estimator=cart, random_state=0).fit(load_iris(as_frame=True).data, y)
    )


# ---- class totals --------------------------------------------------------------------------------


def test_class_totals_are_met_exactly_and_reported(iris):
    X, y, truth = iris
    asked = {label: int(((truth == label) & (y < 0)).sum()) for label in range(3)}
    model = LapTAOClassifier(estimator=small_tree(), random_state=0).fit(X, y, class_totals=asked)
    for label, (wanted, smoothed, counted) in model.class_totals_.items():
        assert wanted == asked[label]
        assert smoothed == pytest.approx(wanted, abs=1e-3)
        assert abs(counted - wanted) <= 10


def test_class_totals_help_when_the_labels_misrepresent_the_classes():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(450, 2)), rng.normal(size=(50, 2)) + 2.2]
    truth = np.repeat([0, 1], [450, 50])
    y = np.full(500, -1)
    y[:5], y[-5:] = 0, 1  # half the labels are of the rare class
    model = LapTAOClassifier(estimator=small_tree(), random_state=0)
    plain = clone(model).fit(X, y).score(X, truth)
    told = clone(model).fit(X, y, class_totals={0: 445, 1: 45}).score(X, truth)
    assert told > plain


def test_shares_and_numbers_are_the_same_totals(iris):
    X, y, _ = iris
    free = int((y < 0).sum())
    model = LapTAOClassifier(estimator=small_tree(), random_state=0)
    counts = clone(model).fit(X, y, class_totals={0: free / 3, 1: free / 3, 2: free / 3})
    shares = clone(model).fit(X, y, class_totals={0: 1 / 3, 1: 1 / 3, 2: 1 / 3})
    np.testing.assert_allclose(counts.predict_proba(X), shares.predict_proba(X))


def test_totals_of_no_rows_change_nothing(iris):
    X, _, truth = iris
    model = LapTAOClassifier(estimator=small_tree(), random_state=0)
    told = clone(model).fit(X, truth, class_totals={0: 0, 1: 0, 2: 0})
    plain = clone(model).fit(X, truth)
    np.testing.assert_array_equal(told.predict_proba(X), plain.predict_proba(X))
    assert told.class_totals_[0] == (0, 0, 0)


# ---- model selection -----------------------------------------------------------------------------


def test_grid_search_builds_each_graph_once(iris, tmp_path, monkeypatch):
    X, y, _ = iris
    built = []
    build = silva.graph.affinity_graph

    def counting(*args, **kwargs):
        built.append(1)
        return build(*args, **kwargs)

    monkeypatch.setattr(silva.graph, "affinity_graph", counting)
    model = LapTAOClassifier(
        estimator=small_tree(), n_outer=2, memory=str(tmp_path), scaling="deviation", random_state=0
    )
    folds = LabelledKFold(2, random_state=0)
    search = GridSearchCV(model, {"gamma": [0.1, 1.0, 10.0]}, cv=folds).fit(X, y)
    assert search.best_score_ > 0.6
    assert len(built) == 3  # two folds and the last fit


def test_cross_val_score_scores_labelled_rows_only(iris):
    X, y, _ = iris
    model = LapTAOClassifier(estimator=small_tree(), n_outer=2, random_state=0)
    scores = cross_val_score(model, X, y, cv=LabelledKFold(3, random_state=0))
    assert scores.mean() > 0.6
