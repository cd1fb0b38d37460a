"""Models of the rows of each class: closed forms, peers, and what unlabelled rows bring."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import CategoricalNB

from silva.estimators import class_densities
from silva.estimators.class_densities import CHANCE, Bins, fit_gaussians, fit_independent
from silva.estimators.column_views import LEAST_VARIANCE, Units
from silva.estimators.mixed_classifier import MixedClassifier

FITS = pytest.mark.parametrize("fit", [fit_gaussians, fit_independent])
NOTHING = np.zeros((0, 2))


def two_clumps(n_rows, n_columns=2, seed=0):
    """Return rows of two clumps, apart in the last column only, and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % 2
    X = rng.normal(size=(n_rows, n_columns))
    X[:, -1] += np.where(y == 0, -2.0, 2.0)
    return X, y


def a_few_of_each(seed, number=2):
    """Return rows of clumps as above, as many of each."""
    pairs = 2 * np.random.default_rng(seed).permutation(200)[:number]
    return np.concatenate([pairs, pairs + 1])


def on_axes(X):
    """Return rows in uncorrelated units of variance one."""
    units = Units.of(X)
    return units.views(X, ("axes",))["axes"]


def fitted(fit, X, y, others, weight=None):
    return fit(X, np.eye(2)[y], np.ones(len(y)) if weight is None else weight, others)


# ---- Gaussians ----------------------------------------------------------------------------------


def test_with_many_labels_gaussians_are_those_of_quadratic_discriminant_analysis():
    X, y = two_clumps(20_000)
    X = on_axes(X)
    peer = QuadraticDiscriminantAnalysis().fit(X, y)
    found = fitted(fit_gaussians, X, y, NOTHING).predict(X)
    assert_allclose(found, peer.predict_proba(X), atol=0.02)


def test_the_covariance_of_few_labels_is_the_written_mean_of_three():
    X, y = two_clumps(12)
    model = fitted(fit_gaussians, X, y, NOTHING)
    for k in (0, 1):
        scatter = [
            (X[y == c] - X[y == c].mean(axis=0)).T @ (X[y == c] - X[y == c].mean(axis=0))
            for c in (0, 1)
        ]
        common = (scatter[0] + scatter[1] + 1.0 * np.eye(2)) / (12 + 2.0)
        own = (scatter[k] + 6 * common) / (6 + 6)
        assert_allclose(np.linalg.inv(model.root[k] @ model.root[k].T), own)


# ---- independent columns ------------------------------------------------------------------------


def test_chances_are_counts_beside_those_of_all_rows():
    X = np.array([[0.0, 1], [0, 2], [1, 2], [1, 1], [1, 2]])
    y = np.array([0, 0, 0, 1, 1])
    model = fitted(fit_independent, X, y, X)
    every = np.concatenate([X, X])
    bins = Bins.of(every)
    assert_array_equal(bins.indicators(X).toarray()[0], [1, 0, 1, 0])
    one = np.array([2, 1, 1, 2]) + CHANCE * np.array([2, 3, 2, 3]) / 5
    alone = fitted(fit_independent, X, y, X[:0])
    assert_allclose(np.exp(alone.chances.log_chance[:, 0]), one / (3 + CHANCE))
    assert_allclose(np.exp(model.chances.log_share), [0.6, 0.4])  # of the labels alone


def test_with_many_labels_independent_columns_are_those_of_naive_bayes():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=5000)
    X = rng.integers(4, size=(5000, 3)) * (1.0 + y[:, None])
    peer = CategoricalNB(alpha=1e-3).fit(X.astype(int), y)
    found = fitted(fit_independent, X, y, X[:0])
    assert_allclose(found.predict(X), peer.predict_proba(X.astype(int)), atol=0.01)


def test_bins_of_many_values_have_about_as_many_rows_each_and_few_values_are_kept():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.exponential(size=1000), rng.integers(3, size=1000), np.zeros(1000)])
    filled = np.asarray(Bins.of(X).indicators(X).sum(axis=0)).ravel()
    assert_allclose(filled[:5], 200, atol=1)
    assert_array_equal(filled[5:], [*np.bincount(X[:, 1].astype(int)), 1000])


def test_values_that_no_row_had_fall_into_the_nearest_bin():
    bins = Bins.of(np.array([[0.0], [1.0], [2.0]]))
    found = bins.indicators(np.array([[-7.0], [1.2], [99.0]])).toarray()
    assert_array_equal(found, np.eye(3))


# ---- unlabelled rows ----------------------------------------------------------------------------


def test_unlabelled_rows_tell_what_four_labels_do_not():
    X, y = two_clumps(800, 8)
    rows = on_axes(X)
    right = []
    for seed in range(10):
        few = a_few_of_each(seed)
        answers = [fitted(fit_gaussians, rows[few], y[few], o) for o in (rows[:0], rows)]
        right.append([np.mean(model.predict(rows).argmax(axis=1) == y) for model in answers])
    alone, together = np.median(right, axis=0)
    assert together > 0.95
    assert together > alone + 0.05


def test_columns_that_agree_name_the_clumps_that_a_label_each_stands_in():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    X = (rng.random((600, 12)) < np.where(y == 1, 0.75, 0.25)[:, None]).astype(float)
    few = np.array([np.flatnonzero(y == k)[0] for k in (0, 1)])
    right = [
        np.mean(fitted(fit_independent, X[few], y[few], others).predict(X).argmax(axis=1) == y)
        for others in (X[:0], X)
    ]
    assert right[1] > 0.93
    assert right[1] > right[0] + 0.05


def test_no_round_lowers_the_likelihood_of_independent_columns(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    X = rng.integers(5, size=(300, 6)) + (y[:, None] == np.arange(6) % 3)
    X, few = X.astype(float), np.arange(9)
    shares = np.eye(3)[y[few]]
    reached = []
    for rounds in range(8):
        monkeypatch.setattr(class_densities, "ROUNDS", rounds)
        model = fit_independent(X[few], shares, np.ones(9), X[9:])
        values = model.bins.indicators(X)
        joint = values @ model.chances.log_chance + model.chances.log_share
        belief = CHANCE * values.mean(axis=0) @ model.chances.log_chance
        likelihood = (shares * joint[few]).sum() + logsumexp(joint[9:], axis=1).sum()
        reached.append(likelihood + belief.sum())
    assert (np.diff(reached) > -1e-6).all()
    assert reached[-1] > reached[0] + 1


@FITS
def test_units_of_weights_and_the_order_of_unlabelled_rows_do_not_matter(fit):
    X, y = two_clumps(100)
    weight = 1.0 + np.arange(20) % 3
    one = fitted(fit, X[:20], y[:20], X[20:], weight).predict(X)
    other = fitted(fit, X[:20], y[:20], X[:19:-1], 1e6 * weight).predict(X)
    assert_allclose(one, other, atol=1e-9)


@FITS
def test_a_class_without_a_label_is_never_answered(fit):
    X, y = two_clumps(40)
    shares = np.eye(3)[y]
    found = fit(X[:10], shares[:10], np.ones(10), X[10:]).predict(X)
    assert_array_equal(found[:, 2], 0)
    assert_allclose(found.sum(axis=1), 1)


# ---- axes ---------------------------------------------------------------------------------------


def test_rows_on_their_axes_are_uncorrelated_and_of_variance_one():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 5)) @ rng.normal(size=(5, 5))
    variance = np.linalg.eigvalsh(np.corrcoef(X.T))[::-1]
    shown = np.diag(variance / (variance + LEAST_VARIANCE))
    assert_allclose(np.cov(on_axes(X).T), shown, atol=1e-3)
    assert np.diag(shown)[:3].min() > 0.95


def test_axes_along_which_rows_hardly_vary_stay_short():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))[:, [0, 1, 1]] + 1e-6 * rng.normal(size=(500, 3))
    deviation = on_axes(X).std(axis=0)
    assert_allclose(deviation[:2], 1, atol=0.02)
    assert deviation[2] < 1e-3


def test_constant_columns_have_axes_of_no_length():
    assert_array_equal(on_axes(np.ones((5, 3))), 0)


# ---- in the mixture -----------------------------------------------------------------------------


def test_the_mixture_learns_from_rows_without_a_label():
    X, y = two_clumps(800, 8)
    gain = []
    for seed in range(5):
        few = a_few_of_each(seed, 4)
        scores = [
            MixedClassifier(units=units, n_trees=10).fit(X[few], y[few]).score(X, y)
            for units in (Units.of(X), Units.of(X[few]))
        ]
        gain.append(scores[0] - scores[1])
    assert np.mean(gain) > 0.03
