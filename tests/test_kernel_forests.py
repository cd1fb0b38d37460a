"""Kernel forests as users meet them."""

import numpy as np
import pytest
from kernel_data import iris
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from silva import (
    KernelForestClassifier,
    KernelForestRegressor,
)
from silva.kernel_trees import Task
from silva.leaf_values import stack_memberships
from silva.membership import membership

# ---- forests ------------------------------------------------------------------------------------


def digits(n_labels=60, n_rows=900):
    X, y = load_digits(return_X_y=True)
    X, y = X[:n_rows], y[:n_rows]
    known = np.random.default_rng(0).choice(n_rows, n_labels, replace=False)
    return X, y, np.where(np.isin(np.arange(n_rows), known), y, -1)


def test_the_forest_beats_a_supervised_one():
    X, y, partial = digits()
    known = partial >= 0
    plain = RandomForestClassifier(random_state=0).fit(X[known], y[known])
    model = KernelForestClassifier(random_state=0).fit(X, partial)
    assert model.score(X[~known], y[~known]) > plain.score(X[~known], y[~known]) + 0.03


@pytest.mark.parametrize("kind", ["random", "extra"])
def test_joint_values_solve_one_system_over_all_trees(kind):
    X, y, partial = iris()
    model = KernelForestClassifier(
        n_estimators=7, kind=kind, blend=1.0, prior_weight=0.0, labelled_weight=1.0, random_state=0
    ).fit(X, partial)
    rows = np.clip(X, *model._ranges)
    M = stack_memberships([membership(tree, rows, 0.0) for tree in model.trees_]).toarray()
    V = np.concatenate([tree.values for tree in model.trees_])
    known = partial >= 0
    targets = np.where(known[:, None], np.eye(3)[np.where(known, y, 0)], M @ V)
    np.testing.assert_allclose(M.sum(axis=0)[:, None] * V, M.T @ targets, atol=1e-5)


def test_blends_lie_between_the_supervised_forests_and_the_semi_supervised_one():
    X, y, partial = iris()
    ours, theirs, half = (
        KernelForestClassifier(n_estimators=10, blend=blend, random_state=0).fit(X, partial)
        for blend in (1.0, 0.0, 0.5)
    )
    assert ours.teachers_ == []
    mean = (ours.predict_proba(X) + theirs.predict_proba(X)) / 2
    np.testing.assert_allclose(half.predict_proba(X), mean)
    known, rows = partial >= 0, np.clip(X, *ours._ranges)
    seed = theirs.teachers_[0].random_state
    peers = [
        kind(100, random_state=seed)
        .fit(rows[known], y[known], sample_weight=np.ones(known.sum()))
        .predict_proba(rows)
        for kind in (RandomForestClassifier, ExtraTreesClassifier)
    ]
    np.testing.assert_allclose(theirs.predict_proba(X), np.mean(peers, axis=0))


def test_the_blend_is_the_mean_of_mixtures_weighted_by_how_well_they_find_hidden_labels():
    X, _, partial = digits()
    model = KernelForestClassifier(n_estimators=20, random_state=0).fit(X, partial)
    mixtures = np.array(list(model.blend_losses_))
    assert len(mixtures) == 15  # four quarters among three forests
    np.testing.assert_allclose(mixtures.sum(axis=1), 1)
    weight = np.exp(-np.array(list(model.blend_losses_.values())) * (partial >= 0).sum())
    np.testing.assert_allclose(model.shares_, np.average(mixtures, axis=0, weights=weight))
    assert model.blend_ == model.shares_[0]
    best = min(model.blend_losses_, key=model.blend_losses_.get)
    np.testing.assert_allclose(model.shares_, best, atol=0.25)
    few = KernelForestClassifier(n_estimators=5, random_state=0).fit(*iris(30)[::2])
    np.testing.assert_array_equal(few.shares_, [0.5, 0.25, 0.25])


def test_the_blend_of_numbers_is_judged_in_units_of_the_weighted_variance():
    # The weighted mean as the answer to all: its loss is one for each output, by definition.
    rng = np.random.default_rng(0)
    targets, weight = rng.normal(size=(30, 2)) * [1.0, 50.0], rng.uniform(0.1, 5, 30)
    known = np.arange(30) % 3 > 0
    task = Task(np.zeros((30, 1)), targets, known, weight, False, np.zeros(1), None, 1)
    mean = np.average(targets[known], axis=0, weights=weight[known])
    loss = KernelForestRegressor()._loss(task, targets[known], np.tile(mean, (known.sum(), 1)))
    np.testing.assert_allclose(np.average(loss, weights=weight[known]), 2)


def test_supervision_is_that_of_the_whole_fit_where_folds_hid_labels():
    X, y = load_iris(return_X_y=True)
    partial = np.where(np.arange(150) % 5 > 0, y, -1)
    model = KernelForestClassifier(n_estimators=5, random_state=0).fit(X, partial)
    assert model.blend_losses_
    assert model.supervision_ == 0.8


def test_a_class_that_a_fold_lacks_has_no_share_in_it():
    X, _, partial = iris(4)
    partial[partial == 2] = -1
    partial[140] = 2  # a single row of the class
    model = KernelForestClassifier(n_estimators=5, random_state=0).fit(X, partial)
    assert model.predict_proba(X).shape == (150, 3)


def test_forest_answers_meet_class_totals_exactly_before_the_blend():
    X, y, partial = iris()
    unknown = partial < 0
    totals = {int(c): int(np.sum(y[unknown] == c)) for c in range(3)}
    model = KernelForestClassifier(n_estimators=10, blend=1.0, random_state=0)
    model.fit(X, partial, class_totals=totals)
    sums = model._tree_answers(model.trees_, np.clip(X, *model._ranges))[unknown].sum(axis=0)
    np.testing.assert_allclose(sums, list(totals.values()), atol=1e-5)
    with pytest.raises(ValueError, match="'joint' or 'smooth'"):
        KernelForestClassifier(leaf_values="robust").fit(X, partial, class_totals=totals)


@pytest.mark.parametrize("leaf_values", ["smooth", "robust"])
def test_trees_can_be_valued_one_by_one(leaf_values):
    X, y, partial = iris()
    model = KernelForestClassifier(
        n_estimators=20, leaf_values=leaf_values, blend=1.0, random_state=0
    ).fit(X, partial)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blend": 2}, "blend must be between 0 and 1"),
        ({"kind": "bagged"}, "kind must be one of"),
        ({"n_estimators": 0}, "n_estimators must be at least 1"),
        ({"bandwidth": -0.1}, "bandwidth must be finite"),
    ],
)
def test_bad_forest_parameters_are_named(options, message):
    X, _, partial = iris()
    with pytest.raises(ValueError, match=message):
        KernelForestClassifier(**options).fit(X, partial)
