"""Forests of TAO trees: what a user may rely on."""

import pickle
import signal
import threading

import numpy as np
import pandas as pd
import pytest
from conftest import assert_same_tree
from forest_models import (
    FORESTS,
    LEAVES,
    answers_by_route,
    assert_same_forest,
    classifier,
    data_for,
    regressor,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import zero_one_loss
from sklearn.model_selection import train_test_split
from sklearn.utils import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import TAOForestClassifier, TAOForestRegressor, TAOTreeClassifier
from silva.estimators.bags import Bags
from silva.estimators.tao_base import TAOTree

# ---- scikit-learn's checks ----------------------------------------------------------------------

CHECKED = [
    TAOForestClassifier(n_estimators=10, max_iter=3),
    TAOForestClassifier(
        n_estimators=3, max_iter=3, bootstrap=False, leaf="linear", max_features="sqrt", n_jobs=2
    ),
    TAOForestRegressor(n_estimators=10, max_iter=3, split="oblique"),
    TAOForestRegressor(n_estimators=3, max_iter=3, bootstrap=False, missing="error"),
    TAOForestRegressor(n_estimators=3, max_iter=3, bootstrap="bayesian"),
]


def expected_failures(estimator):
    """Return the checks that weights stand for repeated rows: bags are drawn from rows."""
    if not estimator.bootstrap:
        return {}
    reason = "a row that stands twice is drawn twice as often, a weight does not change the bags"
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failures)
def test_sklearn_check(estimator, check):
    check(estimator)


# ---- it learns ----------------------------------------------------------------------------------


def test_an_untuned_forest_reads_digits_better_than_a_random_forest_and_a_tree():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
    ours = TAOForestClassifier(n_estimators=20, random_state=0).fit(X, y).score(X_test, y_test)
    greedy = RandomForestClassifier(n_estimators=20, random_state=0).fit(X, y)
    tree = TAOTreeClassifier(alpha=0.1, random_state=0).fit(X, y)
    assert ours > greedy.score(X_test, y_test)
    assert ours > tree.score(X_test, y_test) + 0.03


def test_an_untuned_forest_fits_slanted_targets_better_than_a_random_forest():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 8))
    y = np.sin(X[:, :4].sum(axis=1)) + X[:, 4:].sum(axis=1) + rng.normal(size=1000) / 4
    ours = TAOForestRegressor(n_estimators=20, random_state=0).fit(X[:600], y[:600])
    greedy = RandomForestRegressor(n_estimators=20, random_state=0).fit(X[:600], y[:600])
    assert ours.score(X[600:], y[600:]) > greedy.score(X[600:], y[600:]) + 0.05


@FORESTS
@LEAVES
@pytest.mark.parametrize("split", ["oblique", "mixed", "axis"])
def test_every_kind_of_tree_makes_a_forest(make, leaf, split):
    X, y = data_for(make)
    least = 0.93 if make is classifier else 0.45
    assert make(leaf=leaf, split=split).fit(X, y).score(X, y) > least


def test_both_tables_grow_forests_that_answer_alike(iris):
    X, y = iris
    one, other = (
        classifier(n_estimators=3, alpha=0.1, device=device).fit(X, y)
        for device in ("cpu", "reference")
    )
    assert np.mean(one.predict(X) == other.predict(X)) > 0.97


# ---- an open split ------------------------------------------------------------------------------


def boxes(n):
    """Rows that only single features tell apart: a hyperplane has no use for skewed columns."""
    rng = np.random.default_rng(0)
    X = np.exp(2 * rng.normal(size=(n, 4)))
    return X, (X[:, 0] > 1).astype(int) + (X[:, 1] > 2)


def slopes(n):
    """Rows that only a hyperplane through all columns tells apart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10))
    return X, (X.sum(axis=1) > 0).astype(int)


@pytest.mark.parametrize(("make_rows", "better"), [(boxes, "mixed"), (slopes, "oblique")])
def test_an_open_split_is_the_one_with_the_lower_out_of_bag_error(make_rows, better):
    X, y = make_rows(300)
    settings = {"oob_score": zero_one_loss, "max_samples": 0.4, "n_estimators": 10}
    each = {split: classifier(split=split, **settings).fit(X, y) for split in ("oblique", "mixed")}
    assert min(each, key=lambda split: each[split].oob_score_) == better
    model = classifier(**{**settings, "split": "auto", "n_estimators": 12}).fit(X, y)
    assert model.split_ == better
    assert len(model.trees_) == 12
    for mine, theirs in zip(model.trees_, each[better].trees_, strict=False):
        assert_same_tree(mine, theirs)
    losses = [trial.loss for trial in model.trials_]
    assert losses == sorted(losses)
    assert model.trials_[0].settings.split == better


def test_an_open_split_does_not_depend_on_the_number_of_trees(diabetes):
    X, y = diabetes
    grown = regressor(n_estimators=4, split="auto", warm_start=True).fit(X, y)
    assert len(grown.trees_) == 4
    at_once = regressor(n_estimators=13, split="auto").fit(X, y)
    assert_same_forest(grown.set_params(n_estimators=13).fit(X, y), at_once)


# ---- the same forest ----------------------------------------------------------------------------


@FORESTS
def test_the_forest_is_the_same_for_any_number_of_threads(make):
    X, y = data_for(make)
    settings = {"n_estimators": 9, "max_features": 0.7, "oob_score": True, "max_samples": 0.3}
    one = make(**settings, n_jobs=1).fit(X, y)
    four = make(**settings, n_jobs=4).fit(X, y)
    assert_same_forest(one, four)
    assert one.oob_score_ == four.oob_score_
    assert_array_equal(one.predict(X), four.predict(X))


@FORESTS
def test_warm_start_gives_exactly_the_forest_trained_at_once(make):
    X, y = data_for(make)
    settings = {"max_features": 0.7, "oob_score": True, "max_samples": 0.2}
    grown = make(n_estimators=10, warm_start=True, **settings).fit(X, y)
    first = list(grown.trees_)
    grown.set_params(n_estimators=30).fit(X, y)
    at_once = make(n_estimators=30, **settings).fit(X, y)
    assert all(a is b for a, b in zip(first, grown.trees_, strict=False))
    assert_same_forest(grown, at_once)
    assert grown.oob_score_ == at_once.oob_score_


def test_warm_start_with_an_unseeded_forest_goes_on_with_other_bags(iris):
    model = classifier(n_estimators=2, warm_start=True, random_state=None).fit(*iris)
    model.set_params(n_estimators=4).fit(*iris)
    assert len({tuple(rows) for rows in model.estimators_samples_}) == 4


def test_warm_start_refuses_what_does_not_fit(iris):
    X, y = iris
    model = classifier(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="n_estimators=3 must not be less than the 6"):
        model.set_params(n_estimators=3).fit(X, y)
    model.set_params(n_estimators=8)
    with pytest.raises(ValueError, match="same columns and targets"):
        model.fit(X[:, :2], y)
    with pytest.raises(ValueError, match="same columns and targets"):
        model.fit(X, y + 1)
    with pytest.warns(UserWarning, match="none is added"):
        model.set_params(n_estimators=6).fit(X, y)
    assert len(model.trees_) == 6


def test_forests_of_other_seeds_differ(iris):
    one, other = (classifier(random_state=seed).fit(*iris) for seed in (0, 1))
    assert not np.array_equal(one.estimators_samples_[0], other.estimators_samples_[0])


def test_a_pickled_forest_answers_the_same(iris):
    X, y = iris
    model = classifier(n_estimators=25, oob_score=True).fit(X, y)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


# ---- weights ------------------------------------------------------------------------------------


@FORESTS
def test_rows_without_weight_count_as_absent(make):
    X, y = data_for(make)
    weight = np.ones(len(y))
    weight[::3] = 0
    part = make(oob_score=True, n_estimators=25).fit(X[weight > 0], y[weight > 0])
    whole = make(oob_score=True, n_estimators=25).fit(X, y, weight)
    assert_same_forest(part, whole)
    assert part.oob_score_ == pytest.approx(whole.oob_score_)
    assert not np.isin(np.concatenate(whole.estimators_samples_), np.arange(0, len(y), 3)).any()


def test_class_weights_are_weights_of_the_rows(iris):
    X, y = iris[0][:90], iris[1][:90]
    balanced = classifier(class_weight="balanced").fit(X, y)
    weighted = classifier().fit(X, y, compute_sample_weight("balanced", y))
    assert_same_forest(balanced, weighted)
    assert [tree.weight[0] for tree in balanced.trees_] != [90.0] * 6


# ---- answers ------------------------------------------------------------------------------------


@LEAVES
def test_probabilities_are_the_mean_of_the_trees_and_sum_to_one(iris, leaf):
    X, y = iris
    model = classifier(leaf=leaf).fit(X, y)
    probability = model.predict_proba(X)
    assert_allclose(probability.sum(axis=1), 1)
    assert (probability >= 0).all()
    if leaf == "constant":
        assert_allclose(probability, np.mean(answers_by_route(model, X), axis=0))
    assert_array_equal(model.predict(X), model.classes_[probability.argmax(axis=1)])
    with np.errstate(divide="ignore"):
        assert_array_equal(model.predict_log_proba(X), np.log(probability))


def test_predictions_are_the_mean_of_the_trees(diabetes):
    X, y = diabetes
    model = regressor().fit(X, y)
    assert_allclose(model.predict(X), np.mean(answers_by_route(model, X), axis=0)[:, 0])


@FORESTS
def test_a_sparse_table_gives_the_same_forest_as_its_bytes(make):
    # Columns of 0 and 1 are scaled alike in both storages.
    rng = np.random.default_rng(0)
    X = (rng.random((300, 12)) < 0.4).astype(float)
    score = X[:, 0] + X[:, 1] - X[:, 2]
    y = (score > 0.5).astype(int) if make is classifier else score
    dense = make(split="axis", max_features=8).fit(X, y)
    thin = make(split="axis", max_features=8).fit(sparse.csr_array(X), y)
    assert_allclose(thin.predict(X), dense.predict(X), rtol=1e-5)
    assert_allclose(thin.predict(sparse.csr_array(X)), thin.predict(X))


def test_wide_sparse_rows_stay_sparse():
    rng = np.random.default_rng(0)
    X = sparse.random_array((300, 200_000), density=1e-4, rng=rng, format="csr")
    y = rng.integers(0, 2, 300)
    model = classifier(n_estimators=3, max_features=0.5, oob_score=lambda *_: 0.0)
    with pytest.warns(UserWarning, match="out-of-bag"):
        model.fit(X, y)  # dense it would take half a gigabyte for every copy
    assert model.predict_proba(X).shape == (300, 2)


def test_frames_with_categories_missing_values_and_string_labels():
    rng = np.random.default_rng(0)
    colour = rng.choice(["red", "green", "blue"], 400)
    size = rng.normal(size=400)
    y = np.where((colour == "red") ^ (size > 0), "yes", "no")
    frame = pd.DataFrame({"colour": colour, "size": size, "noise": rng.normal(size=400)})
    frame.loc[::11, "noise"] = np.nan
    model = TAOForestClassifier(
        n_estimators=25, max_features=2, oob_score=True, random_state=0
    ).fit(frame, y)
    assert list(model.classes_) == ["no", "yes"]
    assert list(model.feature_names_in_) == ["colour", "size", "noise"]
    assert model.feature_importances_.shape == (3,)
    assert set(model.predict(frame)) == {"no", "yes"}
    whole = clone(model).set_params(max_features=None).fit(frame, y)
    assert whole.oob_score_ > 0.95
    assert whole.feature_importances_[2] < 0.2
    assert len(whole.columns_.names) > 3


@LEAVES
def test_several_outputs(leaf):
    X, y = load_iris(return_X_y=True)
    labels = np.stack([y, y > 0], axis=1)
    model = classifier(leaf=leaf, n_estimators=25, oob_score=True).fit(X, labels)
    assert model.predict(X).shape == (150, 2)
    assert [part.shape for part in model.predict_proba(X)] == [(150, 3), (150, 2)]
    assert [part.shape for part in model.oob_decision_function_] == [(150, 3), (150, 2)]
    assert model.oob_score_ > 0.9
    X, y = load_diabetes(return_X_y=True)
    model = regressor(leaf=leaf, n_estimators=25, oob_score=True).fit(X, np.stack([y, -y], axis=1))
    assert_allclose(model.predict(X)[:, 0], -model.predict(X)[:, 1])
    assert model.oob_prediction_.shape == (len(y), 2)


def test_targets_that_are_all_alike_need_no_decision():
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = TAOForestRegressor(n_estimators=3, random_state=0).fit(X, np.full(50, 2.0))
    assert [tree.n_nodes for tree in model.trees_] == [1, 1, 1]
    assert_array_equal(model.predict(X), np.full(50, 2.0))
    assert_array_equal(model.feature_importances_, np.zeros(3))


@FORESTS
def test_paths_lead_to_the_leaves(make):
    X, y = data_for(make)
    model = make().fit(X, y)
    path, begin = model.decision_path(X)
    assert path.shape == (len(y), begin[-1])
    leaves = model.apply(X)
    for number, tree in enumerate(model.trees_):
        part = path[:, begin[number] : begin[number + 1]].toarray()
        assert (part[np.arange(len(y)), leaves[:, number]] == 1).all()
        assert (part[:, 0] == 1).all()
        assert_array_equal(part.sum(axis=1), tree.node_depth[leaves[:, number]] + 1)


def test_size_and_cost_of_a_forest_of_stumps(iris):
    model = classifier(n_estimators=4, max_depth=1, split="axis", init="cart").fit(*iris)
    assert all(tree.n_nodes == 3 for tree in model.trees_)
    assert model.n_parameters_ == 4 * (2 + 1 + 1)
    assert model.flops_ == 4 * (2 + 1)


# ---- interrupted --------------------------------------------------------------------------------


def interrupt_at(monkeypatch, call):
    """Press Ctrl-C while a tree is fitted, the `call`-th of all.

    That tree and the next ones take their time, so that the main thread gets to hear of it before
    the other workers have fitted all.
    """
    fit_one, calls = TAOTree._fit_one, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        if call <= len(calls) < call + 6:
            threading.Event().wait(0.2)
        return fit_one(self, *arguments)

    monkeypatch.setattr(TAOTree, "_fit_one", interrupted)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_keeps_the_trees_so_far(iris, monkeypatch, n_jobs):
    X, y = iris
    whole = classifier(n_estimators=12).fit(X, y)
    interrupt_at(monkeypatch, 5)
    model = classifier(n_estimators=12, n_jobs=n_jobs, warm_start=True)
    with pytest.warns(RuntimeWarning, match="of 12 trees: they are kept"):
        model.fit(X, y)
    assert 1 <= len(model.trees_) < 12
    for mine, theirs in zip(model.trees_, whole.trees_, strict=False):
        assert_same_tree(mine, theirs)
    assert_same_forest(model.fit(X, y), whole)


def test_ctrl_c_while_a_split_is_chosen_keeps_the_one_that_was_tried(iris, monkeypatch):
    interrupt_at(monkeypatch, 14)
    model = classifier(n_estimators=12, split="auto")
    with pytest.warns(RuntimeWarning, match="after 10 of 12 trees"):
        model.fit(*iris)
    assert model.split_ == "oblique"
    assert len(model.trees_) == 10


@pytest.mark.parametrize("split", ["auto", "oblique"])
def test_ctrl_c_before_the_first_tree_is_not_swallowed(iris, monkeypatch, split):
    def interrupted(self, *arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Bags, "_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        classifier(split=split).fit(*iris)


def test_progress_is_a_line_per_tree(iris, capsys):
    classifier(verbose=1, n_estimators=3).fit(*iris)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"[forest] tree {number}: oblique" for number in (1, 2, 3)]


def test_forests_are_what_they_say():
    assert is_classifier(TAOForestClassifier())
    assert not is_classifier(TAOForestRegressor())
