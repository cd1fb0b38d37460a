"""Boosted TAO trees on partly labelled rows: what is filled in, and that it helps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits, load_iris, make_moons
from sklearn.model_selection import cross_val_score

from silva import LabelledKFold, TAOBoostClassifier, affinity_graph
from silva.estimators.spreading import distinct_rows, smooth_with_teacher
from silva.graph import laplacian

PLAIN = {"n_estimators": 8, "max_iter": 4, "anchor": 0.05, "random_state": 0}


def partly(y, n_labelled, seed=0, marker=-1):
    """Return y with all but a few labels of each class hidden."""
    rng = np.random.default_rng(seed)
    hidden = np.full(len(y), marker, dtype=object if marker is None else y.dtype)
    for label in np.unique(y):
        rows = rng.choice(np.flatnonzero(y == label), n_labelled, replace=False)
        hidden[rows] = label
    return hidden


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(400, noise=0.12, random_state=0)
    return X, y, partly(y, 6)


def test_unlabelled_rows_help_on_digits():
    X, y = load_digits(return_X_y=True)
    train, test = np.arange(0, 1797, 2), np.arange(1, 1797, 2)
    hidden = partly(y[train], 4)
    known = hidden >= 0
    settings = {**PLAIN, "n_estimators": 20, "anchor": "auto"}
    alone = TAOBoostClassifier(**settings).fit(X[train][known], hidden[known])
    all_rows = TAOBoostClassifier(**settings).fit(X[train], hidden)
    gain = all_rows.score(X[test], y[test]) - alone.score(X[test], y[test])
    assert gain > 0.05


def test_smoothed_labels_solve_the_anchored_problem():
    """Against the normal equations, dense."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    W = affinity_graph(X, 5)
    labelled = np.arange(30) < 6
    labels = np.zeros((30, 2))
    labels[np.arange(6), np.arange(6) % 2] = 1
    teacher = rng.dirichlet([1, 1], size=30)
    rows = distinct_rows(X, labels, labelled, np.ones(30))
    Z = smooth_with_teacher(W, rows.evidence, teacher, gamma=0.7, anchor=0.2, n_threads=1)
    J, U = np.diag(labelled.astype(float)), np.diag((~labelled).astype(float))
    A = J + 0.2 * U + 0.7 * laplacian(W).toarray()
    assert_allclose(Z, np.linalg.solve(A, J @ labels + 0.2 * U @ teacher), atol=1e-6)
    assert_allclose(Z.sum(axis=1), 1, atol=1e-6)


def test_given_labels_are_kept_and_the_others_filled_in(moons):
    X, y, hidden = moons
    model = TAOBoostClassifier(**{**PLAIN, "anchor": "auto"}).fit(X, hidden)
    known = hidden >= 0
    assert_array_equal(model.transduction_[known], y[known])
    assert set(model.transduction_) == {0, 1}
    assert model.label_distributions_.shape == (400, 2)
    assert_allclose(model.label_distributions_.sum(axis=1), 1, atol=1e-5)
    assert np.mean(model.transduction_ == y) > 0.85


@pytest.mark.parametrize("marker", [-1, None])
def test_missing_and_minus_one_mean_the_same(moons, marker):
    X, y, hidden = moons
    model = TAOBoostClassifier(**PLAIN).fit(X, partly(y, 6, marker=marker))
    reference = TAOBoostClassifier(**PLAIN).fit(X, hidden)
    assert_array_equal(model.predict_proba(X), reference.predict_proba(X))


def test_string_labels_with_none():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"], dtype=object)[y]
    model = TAOBoostClassifier(**PLAIN).fit(X, partly(names, 5, marker=None))
    assert set(model.classes_) == set(names)
    assert model.score(X, names) > 0.85


def test_with_every_label_given_nothing_is_smoothed():
    X, y = load_iris(return_X_y=True)
    model = TAOBoostClassifier(**PLAIN).fit(X, y)
    assert not hasattr(model, "label_distributions_")
    assert_array_equal(model.transduction_, y)


def test_a_refit_with_every_label_forgets_the_smoothed_ones(moons):
    X, y, hidden = moons
    model = TAOBoostClassifier(**PLAIN).fit(X, hidden)
    assert hasattr(model, "label_distributions_")
    assert not hasattr(model.fit(X, y), "label_distributions_")


def test_threads_do_not_change_the_model(moons):
    X, _, hidden = moons
    settings = {**PLAIN, "anchor": "auto"}
    one, two = (TAOBoostClassifier(**settings, n_jobs=n).fit(X, hidden) for n in (1, 2))
    assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_warm_start_gives_the_model_trained_at_once(moons):
    X, _, hidden = moons
    grown = TAOBoostClassifier(**{**PLAIN, "n_estimators": 3}, warm_start=True).fit(X, hidden)
    grown.set_params(n_estimators=8).fit(X, hidden)
    assert_array_equal(
        grown.predict_proba(X), TAOBoostClassifier(**PLAIN).fit(X, hidden).predict_proba(X)
    )


def test_a_graph_at_hand_carries_the_labels(moons):
    """Two components with one label each: every row gets that of its component."""
    X, y, hidden = moons
    same = (y[:, None] == y[None, :]).astype(float)
    np.fill_diagonal(same, 0)
    model = TAOBoostClassifier(**PLAIN, affinity=same / 400, gamma=1e4).fit(X, hidden)
    assert_array_equal(model.transduction_, y)


def test_rows_without_weight_take_no_part(moons):
    X, y, hidden = moons
    weight = np.ones(len(y))
    weight[::5] = 0
    assert weight[hidden >= 0].any()
    whole = TAOBoostClassifier(**PLAIN).fit(X, hidden, sample_weight=weight)
    part = TAOBoostClassifier(**PLAIN).fit(X[weight > 0], hidden[weight > 0])
    assert_array_equal(whole.predict_proba(X), part.predict_proba(X))


def test_cross_validation_splits_the_labelled_rows_alone(moons):
    X, y, _ = moons
    scores = cross_val_score(
        TAOBoostClassifier(**PLAIN), X, partly(y, 6), cv=LabelledKFold(3, random_state=0)
    )
    assert scores.mean() > 0.6


def test_early_stopping_is_refused_with_unlabelled_rows(moons):
    X, _, hidden = moons
    with pytest.raises(ValueError, match="n_iter_no_change must be None where y has unlabelled"):
        TAOBoostClassifier(**PLAIN, n_iter_no_change=3).fit(X, hidden)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"gamma": -1.0}, ValueError, "gamma must be finite and at least 0"),
        ({"anchor": 0.0}, ValueError, "anchor must be positive"),
        ({"n_neighbors": 400}, ValueError, "n_neighbors"),
        ({"affinity": np.eye(3)}, ValueError, "affinity"),
    ],
)
def test_bad_settings_are_named(moons, parameters, error, message):
    X, _, hidden = moons
    with pytest.raises(error, match=message):
        TAOBoostClassifier(**{**PLAIN, **parameters}).fit(X, hidden)


def test_no_label_at_all_is_an_error(moons):
    X, _, hidden = moons
    with pytest.raises(ValueError, match="y"):
        TAOBoostClassifier(**PLAIN).fit(X, np.full(len(hidden), -1))


def test_one_class_known_is_a_warning_and_a_constant(moons):
    X, _, hidden = moons
    hidden = np.where(hidden == 1, -1, hidden)
    with pytest.warns(UserWarning, match="one class only"):
        model = TAOBoostClassifier(**PLAIN).fit(X, hidden)
    assert set(model.predict(X)) == {0}
