"""The baselines: self-training, Laplacian support vectors, predictive clustering trees."""

import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import assert_same_tree, dense, make_matrix
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_moons
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import TAOTreeRegressor, export_text
from silva.estimators.laplacian_svc import LaplacianSVC
from silva.estimators.predictive_clustering import (
    CANDIDATES,
    SPARSE_CELLS,
    PredictiveClusteringTreeClassifier,
    PredictiveClusteringTreeRegressor,
)
from silva.estimators.self_training import SelfTrainingRegressor
from silva.graph import affinity_graph, laplacian
from silva.kernel_growth import Growth
from silva.kernel_trees import Task
from silva.kernels import cpu
from silva.predictive_clustering import grow

TREES = pytest.mark.parametrize(
    "Model", [PredictiveClusteringTreeClassifier, PredictiveClusteringTreeRegressor]
)
SUPERVISIONS = pytest.mark.parametrize("supervision", [0.0, 0.3, 1.0])


def hide(y, share=0.3, seed=0):
    """Most of y missing: -1 for classes, NaN for numbers; at least one row of each class stays."""
    rng = np.random.default_rng(seed)
    labelled = rng.random(len(y)) < share
    if y.dtype.kind == "f":
        labelled[0] = True
        return np.where(labelled if y.ndim == 1 else labelled[:, None], y, np.nan)
    labelled[np.unique(y, return_index=True)[1]] = True
    return np.where(labelled, y, -1)


def targets_for(Model, seed=0):
    """Iris with hidden classes, or with its petal width as a hidden number."""
    X, y = load_iris(return_X_y=True)
    if Model is PredictiveClusteringTreeRegressor:
        return np.ascontiguousarray(X[:, :3]), hide(X[:, 3], seed=seed)
    return X, hide(y, seed=seed)


# ---- scikit-learn's own checks ------------------------------------------------------------------


def expected_failures(estimator):
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
        return {}
    return {"check_classifiers_classes": "trains on classes {-1, 1}, but -1 means unlabelled"}


@parametrize_with_checks(
    [
        SelfTrainingRegressor(estimator=TAOTreeRegressor(alpha=0.1, max_depth=2)),
        LaplacianSVC(),
        PredictiveClusteringTreeClassifier(),
        PredictiveClusteringTreeRegressor(supervision=0.5, min_labelled_leaf=0, n_jobs=2),
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore:y has labelled rows of one class only")
def test_sklearn_check(estimator, check):
    check(estimator)


# ---- self-training ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X, hide(y), y


def test_a_round_of_self_training_is_a_fit_to_its_own_predictions(diabetes):
    X, y, _ = diabetes
    known = ~np.isnan(y)
    tree = DecisionTreeRegressor(min_samples_leaf=5, random_state=0)
    model = SelfTrainingRegressor(estimator=tree, max_iter=2, tol=0.0).fit(X, y)
    by_hand = clone(tree).fit(X[known], y[known])
    for _ in range(2):
        by_hand = clone(tree).fit(X, np.where(known, y, by_hand.predict(X)))
    assert_array_equal(model.predict(X), by_hand.predict(X))
    assert_array_equal(model.transduction_, np.where(known, y, by_hand.predict(X)))


def test_self_training_without_rounds_is_the_labelled_fit(diabetes):
    X, y, _ = diabetes
    known = ~np.isnan(y)
    tree = DecisionTreeRegressor(min_samples_leaf=5, random_state=0)
    model = SelfTrainingRegressor(estimator=tree, max_iter=0).fit(X, y)
    assert_array_equal(model.predict(X), clone(tree).fit(X[known], y[known]).predict(X))


def test_self_training_stops_when_predictions_settle(diabetes):
    X, y, _ = diabetes  # least squares repeats itself: its own predictions lie on its plane
    model = SelfTrainingRegressor(estimator=LinearRegression(), max_iter=10).fit(X, y)
    assert model.n_iter_ == 1
    restless = SelfTrainingRegressor(estimator=KNeighborsRegressor(5), tol=0.0, max_iter=3)
    assert restless.fit(X, y).n_iter_ == 3


def test_self_training_on_labelled_rows_alone_is_one_fit(diabetes):
    X, _, y = diabetes
    model = SelfTrainingRegressor(estimator=LinearRegression()).fit(X, y)
    assert_array_equal(model.predict(X), LinearRegression().fit(X, y).predict(X))
    assert_array_equal(model.transduction_, y)


def test_self_training_takes_several_outputs(diabetes):
    X, _, y = diabetes
    both = hide(np.column_stack([y, -y]))
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    model = SelfTrainingRegressor(estimator=tree).fit(X, both)
    assert_allclose(model.predict(X)[:, 0], -model.predict(X)[:, 1])
    assert model.transduction_.shape == both.shape


def test_self_training_hands_weights_on(diabetes):
    X, y, _ = diabetes
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    weighted = SelfTrainingRegressor(estimator=tree).fit(X, y, weight)
    copies = SelfTrainingRegressor(estimator=tree).fit(
        np.repeat(X, weight, axis=0), np.repeat(y, weight)
    )
    assert_allclose(weighted.predict(X), copies.predict(X))


def test_self_training_names_an_estimator_that_takes_no_weights(diabetes):
    X, y, _ = diabetes
    model = SelfTrainingRegressor(estimator=KNeighborsRegressor())
    with pytest.raises(TypeError, match="KNeighborsRegressor, the estimator, takes none"):
        model.fit(X, y, np.ones(len(y)))


@pytest.mark.parametrize("wrong", [LogisticRegression(), LinearRegression])
def test_self_training_refuses_what_is_no_regressor(diabetes, wrong):
    X, y, _ = diabetes
    with pytest.raises(TypeError, match="estimator must be an instance of a regressor"):
        SelfTrainingRegressor(estimator=wrong).fit(X, y)


def test_self_training_seeds_its_estimator_unless_that_has_a_seed():
    X, y = load_diabetes(return_X_y=True)
    y = hide(y)
    free = SelfTrainingRegressor(estimator=DecisionTreeRegressor(max_features=1), random_state=3)
    assert_array_equal(free.fit(X, y).predict(X), clone(free).fit(X, y).predict(X))
    own = SelfTrainingRegressor(estimator=DecisionTreeRegressor(random_state=5), random_state=3)
    assert own.fit(X, y).estimator_.random_state == 5


def test_self_training_reads_frames_with_categories():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"colour": rng.choice(["red", "blue"], 60), "size": rng.normal(size=60)})
    y = hide(np.where(frame["colour"] == "red", 3.0, 1.0))
    tree = TAOTreeRegressor(split="axis", alpha=0.1, max_depth=1)
    model = SelfTrainingRegressor(estimator=tree, random_state=0).fit(frame, y)
    assert_allclose(model.transduction_, np.where(frame["colour"] == "red", 3.0, 1.0))


# ---- Laplacian support vectors ------------------------------------------------------------------


def moons(n=120, n_labels=10):
    X, y = make_moons(n, noise=0.08, random_state=0)
    partial = np.full(n, -1)
    partial[:n_labels] = y[:n_labels]
    return X, y, partial


@pytest.mark.parametrize("n_classes", [2, 3])
def test_laplacian_svc_without_smoothness_is_svc(n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], hide(y[y < n_classes])
    known = y >= 0
    model = LaplacianSVC(C=2, gamma=0, rbf_gamma=0.3, tol=1e-8).fit(X, y)
    plain = SVC(C=2, gamma=0.3, tol=1e-8)
    if n_classes > 2:
        plain = OneVsRestClassifier(plain)
    expected = plain.fit(X[known], y[known]).decision_function(X)
    assert_allclose(model.decision_function(X), expected, atol=1e-5)


def test_laplacian_svc_reaches_the_optimum_of_its_objective():
    X, _, y = moons(14, 6)
    C, gamma, width = 3.0, 0.7, 1.5
    model = LaplacianSVC(C=C, gamma=gamma, rbf_gamma=width, n_neighbors=4, tol=1e-8).fit(X, y)
    K, L = rbf_kernel(X, gamma=width), laplacian(affinity_graph(X, 4)).toarray()
    sign = np.where(y[:6] == 1, 1.0, -1.0)
    penalty = K + 2 * C * gamma * K @ L @ K

    def objective(v):  # expansion, offset, slacks
        return v[:14] @ penalty @ v[:14] / 2 + C * v[15:].sum()

    def gradient(v):
        return np.concatenate([penalty @ v[:14], [0.0], np.full(6, C)])

    margins = np.column_stack([sign[:, None] * K[:6], sign, np.eye(6)])
    found = minimize(
        objective,
        np.concatenate([np.zeros(15), np.ones(6)]),
        jac=gradient,
        bounds=[(None, None)] * 15 + [(0, None)] * 6,
        constraints={"type": "ineq", "fun": lambda v: margins @ v - 1, "jac": lambda v: margins},
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-12},
    )
    assert_allclose(model.decision_function(X), K @ found.x[:14] + found.x[14], atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_laplacian_svc_satisfies_the_optimality_conditions(n_classes):
    X, y = load_iris(return_X_y=True)
    X, first = np.unique(X, axis=0, return_index=True)
    y = hide(y[first])
    X, y = X[y < n_classes], y[y < n_classes]
    C, gamma = 0.7, 0.5
    model = LaplacianSVC(C=C, gamma=gamma, rbf_gamma=0.5, n_neighbors=7, tol=1e-8).fit(X, y)
    V = model.vertices_
    place = [int(np.flatnonzero((x == V).all(axis=1))[0]) for x in X]
    L = laplacian(affinity_graph(V, 7)).toarray()
    dual = model.expansion_ + 2 * C * gamma * L @ rbf_kernel(V, gamma=0.5) @ model.expansion_
    scores = model.decision_function(X).reshape(len(X), -1)
    for column, positive in enumerate([1] if n_classes == 2 else [0, 1, 2]):
        sign = np.where(y == positive, 1.0, -1.0)
        beta = sign * dual[place, column]
        margin = sign * scores[:, column]
        assert_allclose(beta[y < 0], 0, atol=1e-9)
        beta, margin, sign = beta[y >= 0], margin[y >= 0], sign[y >= 0]
        assert beta.min() > -1e-9
        assert beta.max() < C + 1e-9
        assert_allclose(beta @ sign, 0, atol=1e-6)
        assert (margin[beta < 1e-7] > 1 - 1e-5).all()
        assert (margin[beta > C - 1e-7] < 1 + 1e-5).all()
        inside = (beta > 1e-7) & (beta < C - 1e-7)
        assert_allclose(margin[inside], 1, atol=1e-5)


def test_laplacian_svc_learns_from_unlabelled_rows():
    X, y, partial = moons(200, 6)
    options = {"C": 100, "rbf_gamma": 10}
    smooth = LaplacianSVC(gamma=1.0, **options).fit(X, partial)
    plain = LaplacianSVC(gamma=0.0, **options).fit(X, partial)
    assert smooth.score(X, y) > max(0.95, plain.score(X, y))
    assert_array_equal(smooth.transduction_[:6], y[:6])
    assert (smooth.transduction_ == y).mean() > 0.95


def test_laplacian_svc_takes_a_ready_made_graph():
    X, _, y = moons()
    W = affinity_graph(X, 5)
    built = LaplacianSVC(n_neighbors=5).fit(X, y)
    given = LaplacianSVC(affinity=W).fit(X, y)
    assert_allclose(given.decision_function(X), built.decision_function(X), atol=1e-8)
    none = LaplacianSVC(affinity=0 * W).fit(X, y)
    plain = LaplacianSVC(gamma=0).fit(X, y)
    assert_allclose(none.decision_function(X), plain.decision_function(X), atol=1e-8)


def test_copies_in_a_ready_made_graph_keep_its_energy():
    # Two copies joined to different rows: one vertex joined to both.
    X = np.array([[0.0], [1.0], [2.0], [1.0]])
    y = np.array([0, -1, 1, -1])
    W = np.zeros((4, 4))
    W[0, 1] = W[1, 0] = 1.0
    W[2, 3] = W[3, 2] = 2.0
    merged = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])
    copies = LaplacianSVC(affinity=W, gamma=3.0, rbf_gamma=0.5).fit(X, y)
    once = LaplacianSVC(affinity=merged, gamma=3.0, rbf_gamma=0.5).fit(X[:3], y[:3])
    assert_allclose(copies.decision_function(X), once.decision_function(X))


def test_laplacian_svc_in_single_precision_agrees():
    X, _, y = moons()
    double = LaplacianSVC(C=10).fit(X, y).decision_function(X)
    single = LaplacianSVC(C=10, dtype="float32").fit(X, y)
    assert single.expansion_.shape == (len(X), 1)
    assert_allclose(single.decision_function(X), double, atol=1e-2)


def test_laplacian_svc_on_sparse_rows_agrees():
    X = make_matrix("csr", 100, 5)
    y = hide(np.digitize(dense(X)[:, 0], [-0.2, 0.2]))
    full = LaplacianSVC(tol=1e-8).fit(dense(X), y).decision_function(dense(X))
    assert_allclose(LaplacianSVC(tol=1e-8).fit(X, y).decision_function(X), full, atol=1e-5)


def test_laplacian_svc_refuses_too_many_rows_and_says_what_they_need():
    X, _, y = moons(120)
    with pytest.raises(ValueError, match=r"120 different rows, max_rows is 100: .* GiB"):
        LaplacianSVC(max_rows=100).fit(X, y)
    LaplacianSVC(max_rows=100, gamma=0).fit(X, y)


@pytest.mark.parametrize(
    ("affinity", "culprit"),
    [
        (np.ones((5, 5)), r"affinity has shape \(5, 5\), X has 120 rows"),
        (-np.ones((120, 120)), "affinity has a negative weight"),
        (np.full((120, 120), np.nan), "affinity contains NaN"),
        (np.triu(np.ones((120, 120))), "affinity is not symmetric"),
    ],
)
def test_laplacian_svc_refuses_what_is_no_graph(affinity, culprit):
    X, _, y = moons()
    with pytest.raises(ValueError, match=culprit):
        LaplacianSVC(affinity=affinity).fit(X, y)


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"C": 0}, "C must be positive"),
        ({"gamma": -1}, "gamma must be finite and at least 0"),
        ({"rbf_gamma": "wide"}, "rbf_gamma must be a number"),
        ({"rbf_gamma": 0}, "rbf_gamma must be positive"),
        ({"dtype": "int"}, "dtype must be one of"),
        ({"tol": 0}, "tol must be positive"),
    ],
)
def test_laplacian_svc_names_a_wrong_argument(options, culprit):
    X, _, y = moons()
    with pytest.raises((TypeError, ValueError), match=culprit):
        LaplacianSVC(**options).fit(X, y)


# ---- predictive clustering trees: the split -----------------------------------------------------


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


# ---- predictive clustering trees: the tree ------------------------------------------------------


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


# ---- all of them --------------------------------------------------------------------------------

CLASSIFIERS = pytest.mark.parametrize(
    "model",
    [LaplacianSVC(), PredictiveClusteringTreeClassifier(supervision=0.5)],
    ids=["svc", "tree"],
)
ALL = pytest.mark.parametrize(
    "model",
    [
        SelfTrainingRegressor(estimator=DecisionTreeRegressor(max_depth=3, random_state=0)),
        LaplacianSVC(),
        PredictiveClusteringTreeClassifier(supervision=0.5),
        PredictiveClusteringTreeRegressor(supervision=0.5),
    ],
    ids=["self", "svc", "classifier", "regressor"],
)


def data_for(model):
    X, y = load_iris(return_X_y=True)
    return (X[:, :3], hide(X[:, 3])) if "Regressor" in type(model).__name__ else (X, hide(y))


@ALL
def test_a_pickled_baseline_answers_the_same(model):
    X, y = data_for(model)
    fitted = clone(model).fit(X, y)
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))


@ALL
def test_transduction_keeps_labels_and_adds_predictions(model):
    X, y = data_for(model)
    fitted = clone(model).fit(X, y)
    known = y >= 0
    assert_array_equal(fitted.transduction_[known], y[known])
    assert_array_equal(fitted.transduction_[~known], fitted.predict(X)[~known])


@CLASSIFIERS
def test_classes_may_be_strings_and_missing_ones_unlabelled(model):
    X, y = load_iris(return_X_y=True)
    codes = hide(y)
    names = np.array(["setosa", "versicolor", "virginica"], dtype=object)
    words = np.where(codes >= 0, names[codes], None)
    assert_array_equal(
        clone(model).fit(X, words).predict(X), names[clone(model).fit(X, codes).predict(X)]
    )


@CLASSIFIERS
def test_one_class_makes_a_constant_model(model):
    X, y = load_iris(return_X_y=True)
    with pytest.warns(UserWarning, match="one class only"):
        fitted = clone(model).fit(X, np.where(y == 1, 1, -1))
    assert_array_equal(fitted.predict(X), 1)


@ALL
def test_no_labelled_row_is_refused(model):
    X, y = data_for(model)
    with pytest.raises(ValueError, match="no labelled row"):
        clone(model).fit(X, np.full(len(y), np.nan))


@ALL
def test_labelled_rows_without_weight_are_refused(model):
    X, y = data_for(model)
    with pytest.raises(ValueError, match="weight"):
        clone(model).fit(X, y, np.where(y >= 0, 0.0, 1.0))


@pytest.mark.parametrize(
    "model", [LaplacianSVC(), PredictiveClusteringTreeClassifier()], ids=["svc", "tree"]
)
def test_missing_values_in_x_are_refused(model):
    X, y = load_iris(return_X_y=True)
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"'x2' of X is missing \(NaN\) in 1 of 150 rows"):
        clone(model).fit(X, y)
