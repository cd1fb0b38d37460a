"""Predictive clustering trees: their splits by brute force, and what a user may rely on."""

import numpy as np
import pytest
from conftest import assert_same_tree, dense, hide, make_matrix
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from silva import export_text
from silva.estimators.predictive_clustering import (
    CANDIDATES,
    SPARSE_CELLS,
    PredictiveClusteringTreeClassifier,
    PredictiveClusteringTreeRegressor,
)
from silva.kernel_growth import Growth
from silva.kernel_trees import Task
from silva.kernels import cpu
from silva.predictive_clustering import grow

TREES = pytest.mark.parametrize(
    "Model", [PredictiveClusteringTreeClassifier, PredictiveClusteringTreeRegressor]
)
SUPERVISIONS = pytest.mark.parametrize("supervision", [0.0, 0.3, 1.0])


def targets_for(Model, seed=0):
    """Iris with hidden classes, or with its petal width as a hidden number."""
    X, y = load_iris(return_X_y=True)
    if Model is PredictiveClusteringTreeRegressor:
        return np.ascontiguousarray(X[:, :3]), hide(X[:, 3], seed=seed)
    return X, hide(y, seed=seed)


# ---- the split ----------------------------------------------------------------------------------


def variances(Z, weight):
    mean = np.average(Z, axis=0, weights=weight)
    return np.average((Z - mean) ** 2, axis=0, weights=weight)


def decreases(Z, weight, right):
    """How much lower each column's variance is within the two sides than in the whole."""
    after = [
        weight[side].sum() / weight.sum() * variances(Z[side], weight[side])
        for side in (right, ~right)
        if side.any()
    ]
    return variances(Z, weight) - sum(after)


def best_split(task, growth):
    """Gain, feature and mask of the best split by trying all, straight from the definition."""
    X, Y, known, weight = dense(task.X), task.targets, task.labelled, task.weight
    of_features, of_targets = variances(X, weight), variances(Y[known], weight[known])
    best = (-1.0, -1, None)
    for j in range(X.shape[1]):
        for value in np.unique(X[:, j])[1:]:
            right = X[:, j] >= value
            if min(right.sum(), (~right).sum()) < growth.min_rows_leaf:
                continue
            if min(right[known].sum(), (~right)[known].sum()) < growth.min_labelled_leaf:
                continue
            targets = decreases(Y[known], weight[known], right[known])
            targets = (
                targets.sum() / of_targets.sum() if task.together else (targets / of_targets).mean()
            )
            features = (decreases(X, weight, right) / of_features).mean()
            gain = growth.supervision * targets + (1 - growth.supervision) * features
            if gain > best[0] + 1e-9:
                best = (gain, j, right)
    return best


def make_task(X, together, seed=0):
    """Random weights; classes, or two numbers, known for a third of the rows."""
    rng = np.random.default_rng(seed)
    n = X.shape[0]
    score = dense(X)[:, :2] @ [1.0, -1.0] + rng.normal(size=n)
    targets = np.eye(3)[np.digitize(score, [-1, 1])]
    if not together:
        targets = np.column_stack([score, 100 * rng.normal(size=n)])
    labelled = rng.random(n) < 1 / 3
    weight = rng.uniform(0.5, 2, n).astype(np.float32).astype(np.float64)
    X = X.toarray() if sparse.issparse(X) else X
    return Task(X, targets, labelled, weight, together, np.zeros(X.shape[1]), None, 1)


def make_growth(supervision, **limits):
    return Growth(
        supervision, max_depth=1, min_weight_leaf=0.0, **{"min_labelled_leaf": 1} | limits
    )


def first_split(task, growth):
    """Gain, feature and mask of the split that growth finds; None if there is none."""
    grown = task.grow(growth, 0)
    if grown.tree.n_leaves == 1:
        return None
    feature = grown.tree.coefficients.indices[0]
    return grown.gain[0], feature, task.X[:, feature] >= grown.tree.threshold[0]


@SUPERVISIONS
@pytest.mark.parametrize("together", [True, False], ids=["classes", "numbers"])
def test_split_matches_brute_force(storage, supervision, together):
    for seed in range(2):
        task = make_task(make_matrix(storage, 30, 3, seed), together, seed)
        if supervision == 1:  # then unlabelled rows take no part
            task = task.on(task.labelled)
        gain, feature, right = first_split(task, make_growth(supervision))
        expected = best_split(task, make_growth(supervision))
        assert_allclose(gain, expected[0], rtol=1e-5)
        assert feature == expected[1]
        assert_array_equal(right, expected[2])


@pytest.mark.parametrize("limits", [(8, 1), (1, 4), (1, 0)])
def test_split_within_limits_matches_brute_force(storage, limits):
    task = make_task(make_matrix(storage, 40, 4), True)
    growth = make_growth(0.4, min_rows_leaf=limits[0], min_labelled_leaf=limits[1])
    gain, feature, right = first_split(task, growth)
    expected = best_split(task, growth)
    assert_allclose(gain, expected[0], rtol=1e-5)
    assert_array_equal(right, expected[2])
    assert feature == expected[1]


def test_no_split_where_limits_leave_none(storage):
    task = make_task(make_matrix(storage, 40, 4), True)
    assert first_split(task, make_growth(0.4, min_rows_leaf=21)) is None
    assert first_split(task, make_growth(0.4, min_labelled_leaf=40)) is None


def test_bins_limit_the_thresholds_of_a_column():
    X = np.random.default_rng(0).normal(size=(101, 1))
    weight, labelled = np.ones(101), np.arange(101) % 3 == 0
    task = Task(X, X**2, labelled, weight, False, np.zeros(1), None, 1)
    whole = Growth(0.0, max_bins=2, min_weight_leaf=0.0)
    assert grow(task, whole, 0).n_leaves == 2
    exact, coarse = (first_split(task, make_growth(0.3, max_bins=size))[0] for size in (255, 50))
    assert exact >= coarse > 0.9 * exact


# ---- the tree -----------------------------------------------------------------------------------


def leaves_of(tree, X):
    nodes = cpu.route(X, tree.left, tree.right, tree.coefficients, tree.threshold, 1)
    return tree.leaf_index[nodes]


def test_full_supervision_is_cart_on_the_labelled_rows():
    # Weights break the ties of class counts; features that cut the labelled rows alike still tie.
    X, y = load_breast_cancer(return_X_y=True)
    partial, weight = hide(y, 0.5), np.random.default_rng(0).uniform(1, 2, len(y))
    known = partial >= 0
    ours = PredictiveClusteringTreeClassifier(supervision=1, max_depth=4)
    theirs = DecisionTreeClassifier(max_depth=4, random_state=0)
    assert_allclose(
        ours.fit(X, partial, weight).predict_proba(X[known]),
        theirs.fit(X[known], y[known], weight[known]).predict_proba(X[known]),
        rtol=1e-6,
    )
    X, y = load_diabetes(return_X_y=True)
    partial = hide(y, 0.5)
    known = ~np.isnan(partial)
    ours = PredictiveClusteringTreeRegressor(supervision=1, min_samples_leaf=5)
    theirs = DecisionTreeRegressor(min_samples_leaf=5, random_state=0)
    assert_allclose(
        ours.fit(X, partial).predict(X[known]),
        theirs.fit(X[known], y[known]).predict(X[known]),
    )


@TREES
def test_no_supervision_ignores_what_the_labels_say(Model):
    X, y = targets_for(Model)
    known = y >= 0  # NaN is not
    shuffled = y.copy()
    shuffled[known] = np.random.default_rng(1).permutation(y[known])
    one, other = (Model(supervision=0).fit(X, labels).tree_ for labels in (y, shuffled))
    assert_array_equal(one.left, other.left)
    assert_array_equal(one.threshold, other.threshold)
    assert_array_equal(one.coefficients.indices, other.coefficients.indices)
    guided = Model(supervision=1).fit(X, shuffled).tree_
    assert guided.n_nodes != other.n_nodes or (guided.threshold != other.threshold).any()


@TREES
@SUPERVISIONS
def test_tree_does_not_depend_on_units(Model, supervision):
    X, y = targets_for(Model)
    X = X + np.random.default_rng(0).normal(size=X.shape) * 1e-3
    units = np.array([1e-6, 3.0, 1e5, 7.0])[: X.shape[1]]
    one = Model(supervision=supervision).fit(X, y)
    other = Model(supervision=supervision).fit(X * units + [5, -1e3, 0, 2][: X.shape[1]], y)
    assert_array_equal(one.transduction_, other.transduction_)
    assert_array_equal(one.tree_.coefficients.indices, other.tree_.coefficients.indices)


@TREES
def test_a_constant_column_changes_nothing(Model):
    X, y = targets_for(Model)
    one = Model(supervision=0.5).fit(X, y)
    wide = np.column_stack([X, np.full(len(X), 0.1)])
    other = Model(supervision=0.5).fit(wide, y)
    assert_array_equal(one.tree_.threshold, other.tree_.threshold)


def test_unlabelled_rows_show_where_the_gap_is():
    # Two labels and two clusters: the labels alone put the threshold between themselves.
    x = np.concatenate([np.linspace(0, 4, 30), np.linspace(9, 10, 30)])
    y = np.full(60, -1)
    y[[0, -1]] = 0, 1
    model = PredictiveClusteringTreeClassifier(supervision=0.5).fit(x[:, None], y)
    assert_allclose(model.tree_.threshold[0], 6.5)
    assert_array_equal(model.transduction_, (x > 5).astype(int))
    plain = PredictiveClusteringTreeClassifier(supervision=1).fit(x[:, None], y)
    assert_allclose(plain.tree_.threshold[0], 5.0)


@TREES
@SUPERVISIONS
def test_leaves_answer_the_mean_of_their_labelled_rows(Model, supervision):
    X, y = targets_for(Model)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    model = Model(supervision=supervision, max_depth=3).fit(X, y, weight)
    known = y >= 0
    targets = y[:, None]
    if Model is PredictiveClusteringTreeClassifier:
        targets = (targets == model.classes_).astype(float)
    leaf = leaves_of(model.tree_, X)
    for number in range(model.tree_.n_leaves):
        here = (leaf == number) & known
        expected = np.average(targets[here], axis=0, weights=weight[here])
        assert_allclose(model.tree_.values[number], expected)
    assert_allclose(
        model.tree_.weight[model.tree_.leaf_nodes], np.bincount(leaf, weight), rtol=1e-12
    )


def test_a_leaf_without_labels_answers_what_its_parent_would():
    x = np.concatenate([np.linspace(0, 1, 10), np.linspace(50, 51, 10), np.linspace(100, 101, 10)])
    y = np.full(30, np.nan)
    y[:4] = [1.0, 2.0, 3.0, 6.0]
    model = PredictiveClusteringTreeRegressor(supervision=0, min_labelled_leaf=0, max_depth=2)
    assert_allclose(model.fit(x[:, None], y).predict([[50.5], [100.5]]), [3.0, 3.0])


@TREES
def test_limits_hold(Model):
    X, y = targets_for(Model)
    options = {"max_depth": 4, "min_samples_leaf": 7, "min_labelled_leaf": 3}
    model = Model(supervision=0.3, **options).fit(X, y)
    leaf = leaves_of(model.tree_, X)
    assert model.get_depth() <= 4
    assert np.bincount(leaf).min() >= 7
    assert np.bincount(leaf[y >= 0], minlength=model.get_n_leaves()).min() >= 3
    stump = Model(supervision=0.3, max_depth=0).fit(X, y)
    assert stump.get_n_leaves() == 1


@TREES
@pytest.mark.parametrize("kind", ["bytes", "floats", "csr"])
def test_same_clustering_tree_for_any_n_jobs(Model, kind):
    X = make_matrix(kind, 120, 12)
    y = hide(np.round(dense(X)[:, 0]).astype(int) if "Class" in Model.__name__ else dense(X)[:, 0])
    options = {"supervision": 0.5, "max_features": 5, "random_state": 0}
    one = Model(n_jobs=1, **options).fit(X, y)
    three = Model(n_jobs=3, **options).fit(X, y)
    assert_same_tree(one.tree_, three.tree_)


@SUPERVISIONS
def test_sparse_and_dense_rows_grow_the_same_tree(supervision):
    X = make_matrix("csr", 150, 8)
    y = hide(np.digitize(dense(X)[:, 0], [-0.5, 0.5]))
    one, other = (
        PredictiveClusteringTreeClassifier(supervision=supervision).fit(rows, y)
        for rows in (X, dense(X))
    )
    assert_same_tree(one.tree_, other.tree_)
    assert_array_equal(one.predict(X), other.predict(dense(X)))


def test_sparse_rows_too_many_to_make_dense_are_refused():
    columns = SPARSE_CELLS // 10 + 1
    X = sparse.csr_array((np.ones(10), (np.arange(10), np.arange(10))), shape=(10, columns))
    with pytest.raises(ValueError, match=f"10 rows and {columns} columns"):
        PredictiveClusteringTreeClassifier().fit(X, np.arange(10) % 2)


@TREES
def test_weights_count_as_copies(Model):
    X, y = targets_for(Model)
    X = X + np.random.default_rng(0).normal(size=X.shape) * 1e-3
    weight = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = Model(random_state=0).fit(X, y, weight)
    copies = Model(random_state=0).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.supervision_ == copies.supervision_
    assert_allclose(weighted.tree_.threshold, copies.tree_.threshold)
    assert_allclose(weighted.tree_.values, copies.tree_.values)


@TREES
@pytest.mark.parametrize("unit", [1e-28, 1e28])
def test_the_unit_of_weights_does_not_matter(Model, unit):
    X, y = targets_for(Model)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    one, other = (Model(supervision=0.5).fit(X, y, w).tree_ for w in (weight, unit * weight))
    assert_array_equal(one.threshold, other.threshold)
    assert_allclose(one.values, other.values)


def test_features_drawn_follow_the_seed():
    X, y = targets_for(PredictiveClusteringTreeClassifier)
    fits = [
        PredictiveClusteringTreeClassifier(supervision=0.5, max_features=1, random_state=seed).fit(
            X, y
        )
        for seed in (0, 0, 1, 2, 3)
    ]
    assert_same_tree(fits[0].tree_, fits[1].tree_)
    assert len({int(fit.tree_.coefficients.indices[0]) for fit in fits}) > 1


def test_more_features_are_drawn_while_none_splits():
    # Within the labelled rows only the last of many columns varies.
    X = np.zeros((8, 30))
    X[:, -1] = np.arange(8)
    X[7, :-1] = 1.0
    y = np.array([0, 0, 0, 1, 1, 1, 1, -1])
    model = PredictiveClusteringTreeClassifier(supervision=1, max_features=1, random_state=0)
    assert model.fit(X, y).get_n_leaves() == 2


@TREES
def test_supervision_is_chosen_by_the_held_out_loss(Model):
    X, y = targets_for(Model)
    model = Model(random_state=0).fit(X, y)
    losses = model.held_out_losses_
    assert set(losses) == set(CANDIDATES)
    assert losses[model.supervision_] == min(losses.values())
    settled = Model(supervision=model.supervision_, random_state=0).fit(X, y)
    assert_same_tree(model.tree_, settled.tree_)


def test_supervision_is_even_where_labels_are_too_few_to_choose_by():
    X, y = load_iris(return_X_y=True)
    partial = np.where(np.arange(150) % 30 == 0, y, -1)
    model = PredictiveClusteringTreeClassifier().fit(X, partial)
    assert model.supervision_ == 0.5
    assert model.held_out_losses_ == {}


def test_outputs_count_in_units_of_their_own():
    X, y = load_diabetes(return_X_y=True)
    both = hide(np.column_stack([y, X[:, 2]]))
    scaled = both * [1.0, 1e6]
    one = PredictiveClusteringTreeRegressor(supervision=0.7, max_depth=4).fit(X, both)
    other = PredictiveClusteringTreeRegressor(supervision=0.7, max_depth=4).fit(X, scaled)
    assert_array_equal(one.tree_.threshold, other.tree_.threshold)
    assert_allclose(one.predict(X) * [1.0, 1e6], other.predict(X))


def test_clustering_tree_reads_as_rules():
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"], dtype=object)[y]
    names[np.arange(150) % 5 > 0] = None
    model = PredictiveClusteringTreeClassifier(supervision=0.8, max_depth=2).fit(X, names)
    assert "petal" in export_text(model)
    assert "class: setosa" in export_text(model)
    path = model.decision_path(X)
    assert (path[np.arange(150), model.apply(X)] == 1).all()


@TREES
@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"supervision": 1.5}, "supervision must be between 0 and 1"),
        ({"supervision": "some"}, "supervision must be a number"),
        ({"max_depth": -1}, "max_depth must be at least 0"),
        ({"min_samples_leaf": 0}, "min_samples_leaf must be at least 1"),
        ({"min_labelled_leaf": -1}, "min_labelled_leaf must be at least 0"),
        ({"max_bins": 1}, "max_bins must be at least 2"),
        ({"max_bins": 256}, "max_bins must be from 2 to 255"),
        ({"max_features": "all"}, "max_features must be one of"),
        ({"max_features": 1.5}, r"max_features as a share must be in \(0, 1\]"),
    ],
)
def test_clustering_tree_names_a_wrong_argument(Model, options, culprit):
    X, y = targets_for(Model)
    with pytest.raises((TypeError, ValueError), match=culprit):
        Model(**options).fit(X, y)
