"""Algorithm 1 of the boosting paper by itself, and the rounds of an ensemble."""

import numpy as np
import pytest
from boosted_models import ALGORITHMS, classifier, labels_of
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier

from silva import TAOBoostClassifier, TAOTreeClassifier
from silva import boosting as b

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
