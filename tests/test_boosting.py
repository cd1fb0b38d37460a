"""Boosted TAO trees: Algorithm 1 by itself, and what a user may rely on."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import assert_same_tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import TAOBoostClassifier, TAOBoostRegressor, TAOTreeClassifier
from silva import boosting as b
from silva.estimators import boosting_base

ALGORITHMS = pytest.mark.parametrize("algorithm", ["samme", "m1"])
BOTH = pytest.mark.parametrize("make", ["classifier", "regressor"])
PLAIN = {
    "n_estimators": 6,
    "split": "oblique",
    "max_depth": 3,
    "alpha": 0.1,
    "max_iter": 4,
    "random_state": 0,
}


def classifier(**parameters):
    return TAOBoostClassifier(**{**PLAIN, **parameters})


def regressor(**parameters):
    return TAOBoostRegressor(**{**PLAIN, **parameters})


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)


@pytest.fixture
def either(make, iris):
    """A model that is not fitted yet and rows for it."""
    if make == "classifier":
        return classifier(), *iris
    return regressor(), *load_diabetes(return_X_y=True)


def labels_of(model, X):
    """What each tree answers by itself."""
    leaf_nodes = model.apply(X)
    return [
        model.classes_[tree.values.argmax(axis=1)[tree.leaf_index[nodes]]]
        for tree, nodes in zip(model.trees_, leaf_nodes.T, strict=True)
    ]


def assert_same_model(one, other):
    assert len(one.trees_) == len(other.trees_)
    for mine, yours in zip(one.trees_, other.trees_, strict=True):
        assert_same_tree(mine, yours)
    votes = [[step.vote for step in model.history_] for model in (one, other)]
    assert_array_equal(*votes)
    assert_array_equal(one.feature_importances_, other.feature_importances_)
    assert one.flops_ == other.flops_


# ---- Algorithm 1 --------------------------------------------------------------------------------


def test_vote_has_its_closed_form():
    assert_allclose(b.vote_weight(0.2, b.samme(5), 0.1), 0.1 * (np.log(4) + np.log(4)))
    assert_allclose(b.vote_weight(0.2, b.M1, 0.1), 0.1 * np.log(4))


@pytest.mark.parametrize("error", [0.01, 0.3, 0.499])
def test_samme_of_two_classes_is_m1(error):
    two = b.samme(2)
    assert two == b.M1
    assert b.vote_weight(error, two, 1.0) == b.vote_weight(error, b.M1, 1.0)


@pytest.mark.parametrize(("rule", "limit"), [(b.M1, 0.5), (b.samme(4), 0.75)])
def test_a_tree_at_the_limit_is_useless_and_below_it_votes(rule, limit):
    assert b.is_useless(limit, rule)
    assert b.is_useless(limit - 1e-12, rule)
    assert not b.is_useless(limit - 1e-6, rule)
    assert b.vote_weight(limit - 1e-6, rule, 1.0) > 0


def test_a_perfect_tree_has_a_finite_vote_above_all_others():
    votes = [b.vote_weight(error, b.M1, 0.1) for error in (0.0, 0.002, 0.01)]
    assert np.isfinite(votes).all()
    assert votes == sorted(votes, reverse=True)


def test_reweighting_without_shrinkage_gives_the_errors_half_of_the_weight():
    # AdaBoost's defining property for two classes: the last tree looks like chance.
    rng = np.random.default_rng(0)
    weight, wrong = rng.uniform(0.5, 2, 50), rng.random(50) < 0.3
    vote = b.vote_weight(b.weighted_error(weight, wrong), b.M1, 1.0)
    after = b.reweight(weight, wrong, vote)
    assert_allclose(b.weighted_error(after, wrong), 0.5)
    assert_allclose(after.sum(), weight.sum())
    assert_allclose(after[wrong] / weight[wrong], (after[wrong] / weight[wrong])[0])


def test_weights_stay_positive_in_single_precision():
    weight, wrong = np.ones(100), np.arange(100) < 2
    for _ in range(500):
        weight = b.reweight(weight, wrong, 3.0)
    assert (weight.astype(np.float32) > 0).all()
    assert_allclose(weight.sum(), 100)


def test_resampling_draws_rows_by_their_weight():
    weight = np.array([1.0, 2.0, 5.0])
    total = np.zeros(3)
    for seed in range(2000):
        rows, times = b.resample(weight, seed)
        assert_allclose(times.sum(), weight.sum())
        total[rows] += times
    assert_allclose(total / total.sum(), weight / weight.sum(), atol=0.02)


def test_rows_held_out_are_the_same_share_of_every_class_and_never_all():
    strata = np.repeat([0, 1, 2, 3], [100, 50, 10, 1])
    held = b.hold_out(strata, 0.2, 0)
    assert_array_equal(np.bincount(strata[held], minlength=4), [20, 10, 2, 0])
    assert (held != b.hold_out(strata, 0.2, 1)).any()


# ---- the rounds ---------------------------------------------------------------------------------


@ALGORITHMS
@pytest.mark.parametrize("weighting", ["exact", "resample"])
def test_rounds_follow_algorithm_1(iris, algorithm, weighting):
    X, y = iris
    model = classifier(
        algorithm=algorithm, weighting=weighting, max_depth=1, learning_rate=0.5, alpha=1.0
    )
    weight = np.random.default_rng(0).uniform(0.5, 1.5, len(y))
    model.fit(X, y, weight)
    w = weight / weight.sum()
    assert len(model.trees_) > 2
    for labels, vote, error in zip(
        labels_of(model, X), model.estimator_weights_, model.estimator_errors_, strict=True
    ):
        wrong = labels != y
        E = w[wrong].sum()
        assert_allclose(error, E)
        bonus = np.log(2) if algorithm == "samme" else 0
        assert_allclose(vote, 0.5 * (np.log((1 - E) / E) + bonus))
        w = w * np.exp(vote * wrong)
        w /= w.sum()


def test_samme_with_stumps_equals_sklearn():
    X, y = load_breast_cancer(return_X_y=True)
    X = np.round(100 * (X - X.min(0)) / np.ptp(X, axis=0))  # no two thresholds by a hair
    ours = TAOBoostClassifier(
        n_estimators=8, learning_rate=0.5, split="axis", max_depth=1, alpha=0, max_iter=3,
        init="cart", random_state=0,
    ).fit(X, y)  # fmt: skip
    stump = FewestErrors()
    theirs = AdaBoostClassifier(stump, n_estimators=8, learning_rate=0.5, random_state=0)
    theirs.fit(X, y)
    assert_allclose(ours.estimator_errors_, theirs.estimator_errors_, rtol=1e-4)
    assert_allclose(ours.estimator_weights_, theirs.estimator_weights_, rtol=1e-4)
    assert_array_equal(ours.predict(X), theirs.predict(X))
    assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)


class FewestErrors(DecisionTreeClassifier):
    """The stump with the fewest weighted errors, by trying them all."""

    def fit(self, X, y, sample_weight):
        self.classes_ = np.unique(y)
        side = np.where(y == self.classes_[1], sample_weight, -sample_weight)
        best = -np.inf
        for j in range(X.shape[1]):
            values, place = np.unique(X[:, j], return_inverse=True)
            below = np.cumsum(np.bincount(place, side))[:-1]
            kept = np.abs(side.sum() - 2 * below)
            if kept.size and kept.max() > best + 1e-6:
                k = int(kept.argmax())
                best, self.feature, self.cut = kept.max(), j, values[k] + 1e-9
                self.up = side.sum() - 2 * below[k] > 0
        return self

    def predict(self, X):
        above = X[:, self.feature] > self.cut
        return self.classes_[(above == self.up).astype(int)]


def test_the_penalty_does_not_depend_on_the_number_of_rounds(digits):
    # Weights that sum to one would leave nothing but single leaves.
    X, _, y, _ = digits
    model = classifier(max_depth=5, n_estimators=5).fit(X, y)
    alone = TAOTreeClassifier(split="oblique", max_depth=5, alpha=0.1, max_iter=4, random_state=0)
    leaves = [step.n_leaves for step in model.history_]
    assert min(leaves) > alone.fit(X, y).tree_.n_leaves / 2


@ALGORITHMS
def test_boosting_beats_one_tree_on_digits(digits, algorithm):
    X, X_test, y, y_test = digits
    alone = TAOTreeClassifier(split="oblique", alpha=0.1, max_depth=6, random_state=0).fit(X, y)
    model = classifier(algorithm=algorithm, n_estimators=15, max_depth=6, max_iter=10).fit(X, y)
    assert model.score(X_test, y_test) > alone.score(X_test, y_test) + 0.01


def test_perfect_trees_go_on_voting(iris):
    X, y = iris
    X, y = X[y < 2], y[y < 2]
    model = classifier().fit(X, y)
    assert_array_equal(model.estimator_errors_, 0)
    assert len(model.trees_) == 6
    assert np.isfinite(model.estimator_weights_).all()
    assert model.score(X, y) == 1


def test_a_tree_no_better_than_chance_ends_the_boosting():
    # Past the one column that helps, only exclusive-or is left, which a stump cannot see.
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (400, 2)).astype(float)
    y = X[:, 0] != X[:, 1]
    y[:40] = X[:40, 0] > 0
    model = classifier(split="axis", max_depth=1, n_estimators=200, learning_rate=1.0, alpha=8.0)
    model.fit(X, y)
    assert model.stop_reason_ == "no better than chance"
    assert 0 < len(model.trees_) < 200
    assert (model.estimator_errors_ < 0.5).all()


def test_a_first_tree_no_better_than_chance_is_kept_alone_and_said():
    X = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]] * 10)
    y = (X[:, 0] != X[:, 1]).astype(int)
    model = classifier(split="axis", max_depth=1)
    with pytest.warns(RuntimeWarning, match="no better than chance: it is kept alone"):
        model.fit(X, y)
    assert len(model.trees_) == 1
    assert set(model.predict(X)) <= {0, 1}
    assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_m1_stops_where_samme_goes_on(digits):
    X, _, y, _ = digits
    weak = {"split": "axis", "max_depth": 1, "alpha": 0.0}
    with pytest.warns(RuntimeWarning, match="no better than chance"):
        assert len(classifier(algorithm="m1", **weak).fit(X, y).trees_) == 1
    assert len(classifier(algorithm="samme", **weak).fit(X, y).trees_) == 6


def test_one_class_is_answered_with_itself(iris):
    X, _ = iris
    with pytest.warns(UserWarning, match="one class only"):
        model = classifier().fit(X, np.full(len(X), "only"))
    assert len(model.trees_) == 1
    assert model.stop_reason_ == "nothing left to learn"
    assert set(model.predict(X)) == {"only"}
    assert_array_equal(model.predict_proba(X), 1)


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
