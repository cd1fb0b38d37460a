"""Which kind of tree is kept for smoothed labels: the most faithful, or the smallest as good."""

from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeRegressor

from silva import SilvaTreeClassifier, SilvaTreeRegressor
from silva.estimators import fidelity
from silva.estimators.fidelity import (
    STARTS,
    Kind,
    Targets,
    fit_tree,
    most_faithful,
    tree_answers,
)
from silva.kernels import cpu


def test_the_most_faithful_kind_is_kept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    slanted = (X.sum(axis=1) > 0).astype(float)
    straight = (X[:, 0] > 0.3).astype(float)
    kinds = [
        Kind("greedy", "greedy", "constant", 1, 0.1, 2),
        Kind("oblique", "oblique", "constant", 1, 0.1),
    ]
    for values, expected in ((slanted, "oblique"), (straight, "greedy")):
        targets = Targets(X, np.column_stack([values, 1 - values]), np.ones(400), cpu, 1)
        found = most_faithful(targets, kinds, SilvaTreeClassifier._infidelity, 0)
        assert found.kind.words == expected


def test_of_kinds_that_are_about_as_faithful_the_smallest_tree_is_kept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    values = (X[:, 0] + 0.2 * X[:, 1] > 0).astype(float)  # one column tells nine rows out of ten
    targets = Targets(X, np.column_stack([values, 1 - values]), np.ones(400), cpu, 1)
    kinds = [
        Kind("oblique", "oblique", "constant", 1, 0.01),
        Kind("greedy", "greedy", "constant", 1, 0.1, 2),
    ]
    loss = SilvaTreeClassifier._infidelity
    for tolerance, expected in ((0.0, "oblique"), (0.5, "greedy")):
        found = most_faithful(targets, kinds, loss, 0, tolerance=tolerance)
        assert found.kind.words == expected


def test_a_kind_that_is_named_twice_is_tried_once():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    targets = Targets(X, X[:, :1] * X[:, 1:], np.ones(200), cpu, 1)
    kind = Kind("oblique", "oblique", "linear", 2, 0.1, ridge=1.0)
    once, twice = (
        most_faithful(targets, kinds, SilvaTreeRegressor._infidelity, 0)
        for kinds in ([kind], [kind, replace(kind)])
    )
    assert twice.losses == once.losses
    assert len(twice.answers) == len(twice.held_out) == len(once.held_out)


def test_of_several_starts_the_most_faithful_tree_is_kept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    Z = np.eye(3)[rng.integers(3, size=300)]
    targets, kind = Targets(X, Z, np.ones(300), cpu, 1), Kind("", "oblique", "constant", 4, 0.01)
    loss = SilvaTreeClassifier._infidelity
    losses = [
        loss(tree_answers(fit_tree(targets, kind, 7 + number)[0], targets), Z, targets.weight)
        for number in range(STARTS)
    ]
    kept = most_faithful(targets, [kind], loss, 7).tree
    assert len(set(losses)) == STARTS
    assert loss(tree_answers(kept, targets), Z, targets.weight) == min(losses)


def test_sparser_kinds_are_tried_unless_there_are_too_many_rows_to_compare_all(monkeypatch):
    X = np.random.default_rng(0).normal(size=(400, 2))
    targets = Targets(X, np.eye(2)[(X[:, 0] > 0).astype(int)], np.ones(400), cpu, 1)
    model = SilvaTreeClassifier()

    def prices():
        return {kind.alpha for kind in model._kinds(targets) if kind.split == "oblique"}

    assert max(prices()) == 30 * min(prices())
    monkeypatch.setattr(fidelity, "ROWS", 300)
    assert len(prices()) == 1
    monkeypatch.undo()
    model.set_params(alpha=0.2)
    assert prices() == {0.2}


def test_evener_trees_share_a_weight_among_columns_that_are_alike():
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=400)
    X = hidden[:, None] + 0.3 * rng.normal(size=(400, 8))
    targets = Targets(X, np.eye(2)[(hidden > 0).astype(int)], np.ones(400), cpu, 1)
    usual, even = (
        next(
            kind for kind in SilvaTreeClassifier(max_depth=1)._kinds(targets) if words in kind.words
        )
        for words in ("oblique, depth 1", "oblique and even, depth 1")
    )

    def largest_share(kind):
        size = np.abs(fit_tree(targets, kind, 0)[0].coefficients.toarray()[0])
        return size.max() / size.sum()

    assert largest_share(even) < largest_share(usual)


def test_a_greedy_tree_is_the_one_of_sklearn():
    X, truth = load_iris(return_X_y=True)
    Z = np.eye(3)[truth]
    targets = Targets(X, Z, np.ones(150), cpu, 1)
    tree, _ = fit_tree(targets, Kind("greedy", "greedy", "constant", 9, 0.1, 5), 0)
    peer = DecisionTreeRegressor(max_leaf_nodes=5, min_samples_leaf=3, random_state=0)
    assert_allclose(tree_answers(tree, targets), peer.fit(X, Z).predict(X), atol=1e-9)
