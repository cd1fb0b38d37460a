"""The mixed teacher for numbers: who counts how much, and how columns are shown to its members."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import make_friedman1
from sklearn.metrics import r2_score

from silva.estimators.column_views import Units
from silva.estimators.mixed_regressor import FORESTS, MixedRegressor, mixing_shares
from silva.estimators.stacking import PRIOR, folds


@pytest.fixture(scope="module")
def friedman():
    """Ten columns, five of them idle."""
    return make_friedman1(560, noise=1.0, random_state=0)


def test_shares_minimise_what_they_are_said_to():
    rng = np.random.default_rng(0)
    y, weight = rng.normal(size=(50, 1)), rng.uniform(0.5, 2, 50)
    held_out = np.stack([y + rng.normal(size=y.shape) * s for s in (0.3, 0.5, 1.0, 2.0)])
    centre = np.average(y, weights=weight, axis=0)
    unit = np.sqrt(np.average((y - centre) ** 2, weights=weight, axis=0))
    errors = [weight @ ((part - y) / unit) ** 2 for part in held_out]
    prior = (1 / np.array(errors)).ravel() / (1 / np.array(errors)).sum()

    def objective(w):
        gap = (y - np.tensordot(w, held_out, 1)) / unit
        return float(weight @ gap[:, 0] ** 2 + PRIOR * ((w - prior) ** 2).sum())

    best = minimize(
        objective, np.full(4, 0.25), bounds=[(0, 1)] * 4, tol=1e-12,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
    ).x  # fmt: skip
    assert_allclose(mixing_shares(held_out, y, weight), best, atol=1e-3)


def test_held_out_answers_know_nothing_of_noise(small_mixture):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    model = MixedRegressor().fit(X, y)
    assert r2_score(y, model.held_out_[:, 0]) < 0.1
    assert r2_score(y, model.predict(X)) > 0.2


def test_a_greedy_cut_finds_rows_unlike_all_others_that_bags_miss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    far = np.arange(60) < 10
    X[far, 0] += 10
    y = np.where(far, -30.0, X[:, 1])
    seen = np.r_[0, 10:60]  # one label of them
    model = MixedRegressor().fit(X[seen], y[seen])
    views = model.units_.views(X[far])
    bags, greedy = (
        np.abs(member.predict(views)[:, 0] + 30).mean()
        for member in model.members_
        if member.name in ("linear leaves at depth 1", "linear leaves of a greedy cut")
    )
    assert greedy < 3
    assert bags > 3 * greedy


def test_folds_hold_every_row_once():
    for n_rows in (2, 3, 17, 3000):
        assert_array_equal(np.sort(np.concatenate(folds(n_rows, 0))), np.arange(n_rows))
    assert folds(1, 0) == []


def test_ranks_do_not_depend_on_the_units_of_columns():
    X = np.random.default_rng(0).normal(size=(60, 2))
    stretched = np.exp(X)
    assert_allclose(Units.of(X).views(X)["ranks"], Units.of(stretched).views(stretched)["ranks"])


def test_squashed_columns_keep_order_and_centre_and_count_tails_by_magnitude():
    X = np.exp(3 * np.random.default_rng(0).normal(size=(999, 1)))
    squashed = Units.of(X).views(X)["squashed"]
    assert_array_equal(np.argsort(squashed[:, 0]), np.argsort(X[:, 0]))
    low, median, high = np.quantile(X, (0.25, 0.5, 0.75))
    near, far = np.array([[median], [median + 0.01 * (high - low)]]), np.array([[1e9], [1e12]])
    assert_allclose(Units.of(X).views(near)["squashed"], [[0], [0.01]], atol=1e-4)
    steps = np.diff(Units.of(X).views(far)["squashed"], axis=0)
    assert_allclose(steps, np.log(1000), rtol=1e-6)


def test_squashed_sparse_columns_stay_sparse():
    X = sparse.csr_matrix([[0.0, 5.0], [0.0, 0.0], [2.0, 0.0]])
    squashed = Units.of(X).views(X)["squashed"]
    assert_array_equal(squashed.toarray() != 0, X.toarray() != 0)


def test_the_mixture_beats_its_forests(friedman):
    X, y = friedman
    model = MixedRegressor().fit(X[:60], y[:60])
    views = model.units_.views(X[60:])
    forests = [member.predict(views)[:, 0] for member in model.members_ if member.name in FORESTS]
    truth, score = y[60:], r2_score(y[60:], model.predict(X[60:]))
    assert len(forests) == len(FORESTS)
    assert score > max(r2_score(truth, answers) for answers in forests) + 0.05


def test_the_mixture_takes_several_outputs(friedman, small_mixture):
    X, y = friedman[0][:60], friedman[1][:60]
    model = MixedRegressor().fit(X, np.column_stack([y, X[:, 0]]))
    assert model.predict(X).shape == (60, 2)
    assert r2_score(X[:, 0], model.held_out_[:, 1]) > 0.9
