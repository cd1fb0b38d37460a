"""Boosted TAO trees: what a user may rely on."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from boosted_models import (
    BOTH,
    assert_same_model,
    classifier,
    labels_of,
    regressor,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import TAOBoostClassifier, TAOBoostRegressor, TAOTreeClassifier
from silva.estimators import boosting_base


@pytest.fixture
def either(make, iris):
    """A model that is not fitted yet and rows for it."""
    if make == "classifier":
        return classifier(), *iris
    return regressor(), *load_diabetes(return_X_y=True)


# ---- the same model -----------------------------------------------------------------------------


@BOTH
def test_warm_start_gives_the_model_trained_at_once(either):
    model, X, y = either
    at_once = clone(model).set_params(n_estimators=9).fit(X, y)
    model.set_params(warm_start=True, n_estimators=3).fit(X, y)
    model.set_params(n_estimators=9).fit(X, y)
    assert_same_model(model, at_once)
    assert_array_equal(model.predict(X), at_once.predict(X))


def test_warm_start_is_exact_with_resampling_and_early_stopping(digits):
    X, _, y, _ = digits
    model = classifier(weighting="resample", n_iter_no_change=3, warm_start=True, n_estimators=4)
    at_once = clone(model).set_params(n_estimators=8).fit(X, y)
    model.fit(X, y)
    model.set_params(n_estimators=8).fit(X, y)
    assert_same_model(model, at_once)


def test_warm_start_with_fewer_trees_or_other_classes_is_an_error(iris):
    X, y = iris
    model = classifier(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="n_estimators must be at least 6"):
        model.set_params(n_estimators=5).fit(X, y)
    with pytest.raises(ValueError, match="y must have the classes of the first fit"):
        model.set_params(n_estimators=7).fit(X, y + 1)


@BOTH
def test_same_model_for_any_n_jobs(either):
    model, X, y = either
    assert_same_model(clone(model).fit(X, y), clone(model).set_params(n_jobs=3).fit(X, y))


@BOTH
def test_same_seed_same_model_another_seed_another(either):
    model, X, y = either
    one, same = clone(model).fit(X, y), clone(model).fit(X, y)
    other = clone(model).set_params(random_state=1).fit(X, y)
    assert_same_model(one, same)
    assert (one.predict(X) != other.predict(X)).any() or one.flops_ != other.flops_


def test_resampling_is_another_model_but_reproducible(digits):
    X, _, y, _ = digits
    exact, drawn, again = (
        classifier(weighting=weighting).fit(X, y) for weighting in ("exact", "resample", "resample")
    )
    assert_same_model(drawn, again)
    assert (drawn.estimator_errors_ != exact.estimator_errors_).all()


def test_the_core_and_the_reference_agree(iris):
    X, y = iris
    core, plain = (classifier(device=device).fit(X, y) for device in ("cpu", "reference"))
    assert_allclose(core.estimator_errors_[:2], plain.estimator_errors_[:2], atol=0.03)
    assert accuracy_score(core.predict(X), plain.predict(X)) > 0.95


@BOTH
def test_pickled_models_answer_alike_and_clones_are_unfitted(either):
    model, X, y = either
    model.fit(X, y)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


# ---- weights and classes ------------------------------------------------------------------------


def test_a_row_of_weight_zero_is_not_there(iris):
    X, y = iris
    rows = np.arange(len(y)) % 3 > 0
    assert_same_model(classifier().fit(X, y, rows), classifier().fit(X[rows], y[rows]))


def test_string_labels_give_the_same_answers_as_numbers(iris):
    X, y = iris
    names = np.array(["a", "b", "c"])
    assert_array_equal(
        classifier().fit(X, names[y]).predict(X), names[classifier().fit(X, y).predict(X)]
    )


def test_class_weight_counts_as_sample_weight(iris):
    X, y = iris
    assert_same_model(
        classifier(class_weight={0: 1, 1: 3, 2: 1}).fit(X, y),
        classifier().fit(X, y, np.where(y == 1, 3.0, 1.0)),
    )


def test_frames_with_categories_and_gaps_are_read():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=200), "kind": rng.choice(["a", "b", "c"], 200)})
    y = (frame["size"] > 0) ^ (frame["kind"] == "b")
    frame.loc[::9, "size"] = np.nan
    model = classifier().fit(frame, y)
    assert list(model.feature_names_in_) == ["size", "kind"]
    assert model.score(frame, y) > 0.85
    assert model.feature_importances_.shape == (2,)


# ---- answers ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(digits):
    X, X_test, y, y_test = digits
    return classifier(max_depth=4).fit(X, y), X_test, y_test


def test_the_last_stage_is_the_model(fitted):
    model, X, y = fitted
    for name in ("predict", "predict_proba", "decision_function"):
        last = list(getattr(model, f"staged_{name}")(X))[-1]
        assert_allclose(last, getattr(model, name)(X), rtol=1e-12)
    scores = list(model.staged_score(X, y))
    assert len(scores) == len(model.trees_)
    assert scores[-1] == model.score(X, y)


def test_stages_are_the_models_of_fewer_trees(digits, fitted):
    X, _, y, _ = digits
    model, X_test, _ = fitted
    few = classifier(max_depth=4, n_estimators=3).fit(X, y)
    assert_array_equal(list(model.staged_predict(X_test))[2], few.predict(X_test))
    assert_allclose(list(model.staged_predict_proba(X_test))[2], few.predict_proba(X_test))


def test_the_class_with_the_most_votes_wins(fitted):
    model, X, _ = fitted
    votes = sum(
        vote * (labels[:, None] == model.classes_)
        for vote, labels in zip(model.estimator_weights_, labels_of(model, X), strict=True)
    )
    assert_array_equal(model.predict(X), model.classes_[votes.argmax(axis=1)])
    share = votes / model.estimator_weights_.sum()
    assert_allclose(model.decision_function(X), share - (1 - share) / 9, atol=1e-12)


def test_probabilities_sum_to_one_and_agree_with_the_labels(fitted):
    model, X, _ = fitted
    probability = model.predict_proba(X)
    assert_allclose(probability.sum(axis=1), 1)
    assert (probability > 0).all()
    assert_array_equal(model.classes_[probability.argmax(axis=1)], model.predict(X))
    assert_allclose(model.predict_log_proba(X), np.log(probability))


def test_answers_do_not_depend_on_how_rows_are_batched(fitted, monkeypatch):
    model, X, _ = fitted
    whole = model.predict_proba(X)
    monkeypatch.setattr("silva.estimators.boosting.BLOCK", 7)
    assert_array_equal(model.predict_proba(X), whole)


def test_size_and_cost_are_counted_as_in_the_paper(digits, fitted):
    model, (X, *_) = fitted[0], digits
    size = cost = 0
    for tree, nodes in zip(model.trees_, model.apply(X).T, strict=True):
        parameters = np.where(tree.is_leaf, 1, np.diff(tree.coefficients.indptr).clip(2))
        size += parameters.sum()
        cost += np.mean([parameters[tree.ancestors()[[k]].indices].sum() for k in
                         tree.leaf_index[nodes]])  # fmt: skip
    assert model.n_parameters_ == size
    assert_allclose(model.flops_, cost)


def test_importances_sum_to_one_and_find_the_column_that_counts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    for model, y in ((classifier(), X[:, 2] > 0), (regressor(), X[:, 2])):
        share = model.fit(X, y).feature_importances_
        assert_allclose(share.sum(), 1)
        assert share.argmax() == 2


# ---- when to stop -------------------------------------------------------------------------------


@BOTH
def test_early_stopping_keeps_the_best_trees(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = X[:, 0] + 2 * rng.normal(size=300)
    model = regressor(learning_rate=1.0) if make == "regressor" else classifier(learning_rate=1.0)
    y = y if make == "regressor" else y > 0
    model.set_params(n_estimators=60, n_iter_no_change=4, validation_fraction=0.3).fit(X, y)
    assert model.stop_reason_ == "validation"
    assert len(model.trees_) < 56
    validation = [step.validation for step in model.history_]
    assert np.argmin(validation) == len(model.trees_) - 1


def test_nothing_is_held_out_unless_asked_for(iris):
    X, y = iris
    model = classifier().fit(X, y)
    assert all(np.isnan(step.validation) for step in model.history_)
    assert model.trees_[0].weight[0] == len(y)


def test_too_few_rows_to_hold_any_out_is_an_error(iris):
    X, y = iris
    with pytest.raises(ValueError, match=r"validation_fraction=0.01 of 150 rows"):
        classifier(n_iter_no_change=2, validation_fraction=0.01).fit(X, y)


@BOTH
def test_a_callback_sees_every_round_and_can_stop(either):
    model, X, y = either
    seen = []

    def watch(step):
        seen.append(step)
        return step.number == 3

    model.fit(X, y, callback=watch)
    assert [step.number for step in seen] == [1, 2, 3]
    assert len(model.trees_) == 3
    assert model.stop_reason_ == "callback"


@BOTH
def test_an_interrupt_keeps_the_finished_trees(either):
    model, X, y = either

    def interrupt(step):
        if step.number == 2:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="interrupted after 2 of 6 trees: they are kept"):
        model.fit(X, y, callback=interrupt)
    assert model.stop_reason_ == "interrupted"
    model.set_params(warm_start=True).fit(X, y)
    assert_same_model(model, clone(model).fit(X, y))


@pytest.mark.parametrize("tree", [0, 2])
def test_an_interrupt_in_a_tree_drops_it_unless_it_is_the_first(iris, monkeypatch, tree):
    X, y = iris
    fit_tree, fitted = TAOTreeClassifier._fit_one, []

    def interrupted(self, *arguments):
        fitted.append(0)
        cut = len(fitted) - 1 == tree
        if cut:
            warnings.warn("interrupted after 1 of 4 iterations", RuntimeWarning, stacklevel=1)
        return boosting_base.replace(fit_tree(self, *arguments), interrupted=cut)

    monkeypatch.setattr(TAOTreeClassifier, "_fit_one", interrupted)
    with pytest.warns(RuntimeWarning) as said:
        model = classifier().fit(X, y)
    assert len(said) == 1
    assert len(model.trees_) == max(tree, 1)
    assert len(fitted) == tree + 1


def test_progress_is_told(iris, capsys):
    X, y = iris
    classifier(verbose=1, n_iter_no_change=5).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert "1/6" in lines[0]
    assert "validation" in lines[0]
    classifier(verbose=2, n_estimators=1).fit(X, y)
    assert "[TAO]" in capsys.readouterr().out


# ---- regression ---------------------------------------------------------------------------------


def test_each_tree_adds_a_part_of_what_is_left(iris):
    X, y = load_diabetes(return_X_y=True)
    model = regressor(learning_rate=0.3).fit(X, y)
    answer = np.full(len(y), y.mean())
    for tree, nodes in zip(model.trees_, model.apply(X).T, strict=True):
        leaf = tree.leaf_index[nodes]
        left = y - answer
        means = [left[leaf == k].mean() for k in range(tree.n_leaves)]
        assert_allclose(tree.values[:, 0], means, rtol=1e-6, atol=1e-6)
        answer += 0.3 * tree.values[leaf, 0]
    assert_allclose(model.predict(X), answer)


def test_losses_fall_and_stages_end_in_the_model():
    X, y = load_diabetes(return_X_y=True)
    model = regressor().fit(X, y)
    assert (np.diff([step.loss for step in model.history_]) < 0).all()
    stages = list(model.staged_predict(X))
    assert_allclose(stages[-1], model.predict(X))
    assert_allclose(list(model.staged_score(X, y))[2], r2_score(y, stages[2]))


def test_several_outputs_are_answered_together():
    X, y = load_diabetes(return_X_y=True)
    Y = np.stack([y, -y], axis=1)
    model = regressor().fit(X, Y)
    assert model.predict(X).shape == Y.shape
    assert_allclose(model.predict(X)[:, 0], -model.predict(X)[:, 1])


# ---- input --------------------------------------------------------------------------------------


@BOTH
def test_sparse_rows_are_never_made_dense(make):
    rng = np.random.default_rng(0)
    X = sparse.random(1000, 20_000, density=0.002, format="csr", random_state=0)
    y = np.asarray(X[:, :4000].sum(axis=1)).ravel()
    y += 0.1 * rng.normal(size=len(y))
    model = regressor(n_estimators=2)
    if make == "classifier":
        model, y = classifier(n_estimators=2), y > np.median(y)
    tracemalloc.start()
    model.fit(X, y).predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.shape[0] * X.shape[1] * 8 / 5


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"algorithm": "SAMME"}, r"algorithm must be one of \['samme', 'm1'\]"),
        ({"weighting": "bootstrap"}, "weighting must be one of"),
        ({"learning_rate": 0}, "learning_rate must be positive"),
        ({"n_estimators": 0}, "n_estimators must be at least 1"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be at least 1"),
        ({"validation_fraction": 1.0}, "validation_fraction must be between 0 and 1"),
        ({"init": "means"}, "init must be one of"),
        ({"alpha": -1}, "alpha must be finite and at least 0"),
    ],
)
def test_wrong_arguments_are_named(iris, parameters, message):
    with pytest.raises(ValueError, match=message):
        classifier(**parameters).fit(*iris)


def expected_failures(estimator):
    """Return the one check that trains on the labels -1 and 1."""
    if not is_classifier(estimator):
        return {}
    return {"check_classifiers_classes": "-1 marks an unlabelled row, here it is meant as a class"}


@parametrize_with_checks(
    [TAOBoostClassifier(n_estimators=4), TAOBoostRegressor(n_estimators=4)],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore:y has labelled rows of one class only")
def test_sklearn_check(estimator, check):
    check(estimator)
