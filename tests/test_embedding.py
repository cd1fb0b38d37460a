"""Tree embeddings: the steps by their optimality, the estimator by what it promises."""

import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import assert_same_tree
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import TAOTreeRegressor, TreeEmbedding, affinity_graph
from silva.embedding import (
    EmbeddedRows,
    clustered_tree,
    descend,
    principal_basis,
    refine_leaves,
    two_means,
)
from silva.energies import elastic, tsne
from silva.kernels import cpu, reference
from silva.leaves import Basis, Linear, take_rows
from silva.mac import schedule
from silva.splits import Oblique
from silva.tao import optimise
from silva.tree import answer

OBJECTIVES = ["elastic", "tsne"]
LEAVES = ["constant", "linear"]
QUICK = {"n_outer": 3, "max_iter": 5, "max_depth": 3, "n_directions": 10, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400], y[:400], X[400:800], y[400:800]


@pytest.fixture(scope="module", params=[(o, k) for o in OBJECTIVES for k in LEAVES], ids="-".join)
def fitted(request, digits):
    objective, leaf = request.param
    return TreeEmbedding(objective=objective, leaf=leaf, refine=False, **QUICK).fit(digits[0])


@parametrize_with_checks([
    TreeEmbedding(n_outer=2, max_iter=3),
    TreeEmbedding(
        objective="elastic", leaf="constant", n_outer=2, max_iter=3, refine=True, n_components=3,
        missing="fill", n_jobs=2,
    ),
])  # fmt: skip
def test_sklearn_check(estimator, check):
    check(estimator)


# ---- the steps ----------------------------------------------------------------------------------


def small_energy(objective, n=80):
    X = np.random.default_rng(0).normal(size=(n, 4))
    W = affinity_graph(X, 15, 5.0)
    return X, (elastic(W, 20.0) if objective == "elastic" else tsne(W))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_step_reaches_where_energy_and_target_are_in_balance(objective):
    X, energy = small_energy(objective)
    target, unit, mu = X[:, :2], 0.01, 3.0
    Z = EmbeddedRows(energy, target, unit=unit, iterations=500).step(target, mu, target)
    _, gradient = energy(Z)
    np.testing.assert_allclose(gradient, -2 * mu * unit * (Z - target), atol=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_step_of_large_weight_stays_at_the_target(objective):
    X, energy = small_energy(objective)
    Z = EmbeddedRows(energy, X, unit=1.0, iterations=50).step(X[:, :2], 1e6, X[:, 2:])
    np.testing.assert_allclose(Z, X[:, :2], atol=1e-4)


def test_descent_finds_the_bottom_of_a_bowl():
    scale = np.array([[1.0, 10.0], [100.0, 0.1]])
    bottom = np.array([[3.0, -2.0], [0.5, 7.0]])

    def bowl(Z):
        return float((scale * (Z - bottom) ** 2).sum()), 2 * scale * (Z - bottom)

    np.testing.assert_allclose(descend(bowl, np.zeros((2, 2)), 100), bottom, atol=1e-5)


def test_two_means_finds_two_clusters():
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 3 == 0
    side = two_means(rng.normal(size=(60, 2)) + np.where(truth, 8, 0)[:, None])
    assert (side == truth).all() or (side != truth).all()


def test_first_tree_parts_the_map_into_its_clusters():
    rng = np.random.default_rng(0)
    cluster = np.arange(200) % 4
    corners = np.array([[0, 0], [0, 9], [9, 0], [9, 9.5]])
    X = rng.normal(size=(200, 6))
    X[:, :2] += corners[cluster]
    basis = principal_basis(X, 6, 0)
    tree = clustered_tree(corners[cluster] + rng.normal(size=(200, 2)) / 10, basis, 2)
    nodes = cpu.route(X, tree.left, tree.right, tree.coefficients, tree.threshold, 1)
    assert tree.n_leaves == 4
    assert len(np.unique(np.column_stack([nodes, cluster]), axis=0)) == 4


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_scores_of_the_basis_are_directions_times_rows(kind):
    X = np.random.default_rng(0).normal(size=(50, 7)) + 3
    basis = principal_basis(sparse.csr_array(X) if kind == "sparse" else X, 4, 0)
    np.testing.assert_allclose(basis.scores, (X - basis.centre) @ basis.directions.T)
    gram = basis.directions @ basis.directions.T
    np.testing.assert_allclose(gram, gram[0, 0] * np.eye(4), atol=1e-12)
    if kind == "dense":
        assert basis.scores[:, 0].std() == pytest.approx(1)


def linear_problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    Z = np.column_stack([np.abs(X[:, 0]), X[:, 1]])
    basis = principal_basis(X, 3, 0)
    return X, Z, basis, clustered_tree(Z, basis, 2)


def fit_lines(table, X, leaves, start):
    rows = table.prepare(X, 1)
    weight = np.ones(len(X), np.float32)
    return optimise(table, X, rows, start, leaves, Oblique(0.1, 0.1), weight, max_iter=0, tol=0)


@pytest.mark.parametrize("table", [cpu, reference], ids=["cpu", "reference"])
def test_lines_over_a_basis_are_ridge_regressions_on_its_scores(table):
    X, Z, basis, start = linear_problem()
    result = fit_lines(table, X, Linear(Z, 2.0, basis), start)
    for number in np.unique(result.leaf):
        here = result.leaf == number
        line = Ridge(alpha=2.0).fit(basis.scores[here], Z[here])
        slopes = line.coef_ @ basis.directions
        np.testing.assert_allclose(result.tree.slopes[number], slopes, atol=2e-4)
        ours = X[here] @ result.tree.slopes[number].T + result.tree.values[number]
        np.testing.assert_allclose(ours, line.predict(basis.scores[here]), atol=2e-4)


def test_rows_of_a_basis_are_taken_with_the_targets():
    basis = Basis(np.arange(12.0).reshape(6, 2), np.eye(2), np.zeros(2))
    part = take_rows(Linear(np.arange(6.0)[:, None], basis=basis), np.array([4, 1]))
    np.testing.assert_array_equal(part.targets[:, 0], [4, 1])
    np.testing.assert_array_equal(part.basis.scores, basis.scores[[4, 1]])


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("leaf", LEAVES)
def test_refined_leaves_have_no_slope_of_the_energy_left(objective, leaf):
    X, energy = small_energy(objective, 120)
    basis = principal_basis(X, 4, 0)
    start = clustered_tree(X[:, :2], basis, 1)
    result = fit_lines(cpu, X, Linear(X[:, :2], 1.0, basis), start)
    tree = result.tree
    if leaf == "constant":
        tree = tree.with_leaves(tree.values)
    before = energy(answer(tree, result.leaf, X))[0]
    refined = refine_leaves(energy, tree, result.leaf, basis, 2000)
    Z = answer(refined, result.leaf, X)
    value, force = energy(Z)
    assert value < before
    size = np.abs(force).sum(axis=0).max()
    for number in range(tree.n_leaves):
        here = result.leaf == number
        assert np.abs(force[here].sum(axis=0)).max() < 2e-3 * size
        if leaf == "linear":
            assert np.abs(basis.scores[here].T @ force[here]).max() < 1e-2 * size


# ---- the estimator ------------------------------------------------------------------------------


def test_training_rows_are_where_transform_places_them(fitted, digits):
    np.testing.assert_allclose(fitted.transform(digits[0]), fitted.embedding_, atol=1e-9)


def test_map_is_the_trees_answer(fitted, digits):
    X = digits[2]
    leaf = fitted.tree_.leaf_index[fitted.apply(X)]
    np.testing.assert_allclose(fitted.transform(X), answer(fitted.tree_, leaf, X))


def test_best_round_is_kept(fitted):
    assert fitted.energy_ == pytest.approx(min(step.energy for step in fitted.history_))
    assert len(fitted.history_) == QUICK["n_outer"] + 1


def test_free_map_has_the_lowest_energy(fitted):
    assert fitted.free_energy_ < fitted.energy_


def test_weights_of_the_constraint_are_as_scheduled(fitted):
    first = {"elastic": 0.05, "tsne": 0.0003}[fitted.objective]
    expected = [0.0, *schedule(first, 1.5, 3)]
    np.testing.assert_allclose([step.mu for step in fitted.history_], expected)


def test_constant_leaves_are_spots_and_linear_ones_are_not(fitted):
    spots = len(np.unique(fitted.embedding_, axis=0))
    if fitted.leaf == "constant":
        assert spots <= fitted.tree_.n_leaves
    else:
        assert spots > 10 * fitted.tree_.n_leaves


def test_weight_of_the_nodes_counts_the_rows(fitted, digits):
    tree = fitted.tree_
    assert tree.weight[0] == len(digits[0])
    counts = np.bincount(fitted.apply(digits[0]), minlength=tree.n_nodes)
    np.testing.assert_array_equal(tree.weight[tree.leaf_nodes], counts[tree.leaf_nodes])


def test_pickled_model_places_rows_alike(fitted, digits):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.transform(digits[2]), fitted.transform(digits[2]))


def test_joint_training_lowers_the_energy_of_a_direct_fit(fitted, digits):
    joint = clone(fitted).set_params(n_outer=10).fit(digits[0])
    direct = clone(fitted).set_params(n_outer=0).fit(digits[0])
    assert len(direct.history_) == 1
    np.testing.assert_array_equal(direct.free_embedding_, joint.free_embedding_)
    assert joint.history_[0].energy == direct.energy_
    assert joint.energy_ < 0.99 * direct.energy_


def test_refining_lowers_the_energy_and_keeps_the_decisions(fitted, digits):
    refined = clone(fitted).set_params(refine=True).fit(digits[0])
    assert refined.energy_ < fitted.energy_
    np.testing.assert_array_equal(refined.apply(digits[2]), fitted.apply(digits[2]))
    np.testing.assert_allclose(refined.transform(digits[0]), refined.embedding_, atol=1e-9)


def test_new_rows_are_placed_among_their_class(digits):
    X, y, X_new, y_new = digits
    model = TreeEmbedding(max_depth=4, n_outer=6, random_state=0).fit(X)
    neighbours = KNeighborsClassifier(5).fit(model.embedding_, y)
    assert neighbours.score(model.transform(X_new), y_new) > 0.75


@pytest.mark.parametrize("leaf", LEAVES)
def test_same_map_for_any_number_of_threads(digits, leaf):
    one, two = (TreeEmbedding(leaf=leaf, n_jobs=n, **QUICK).fit(digits[0]) for n in (1, 2))
    np.testing.assert_array_equal(one.embedding_, two.embedding_)
    assert_same_tree(one.tree_, two.tree_)


def test_same_seed_gives_the_same_map_from_sparse_rows(digits):
    X = sparse.csr_array(digits[0])
    one, two = (TreeEmbedding(**QUICK).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.embedding_, two.embedding_)
    np.testing.assert_allclose(one.transform(digits[2]), one.transform(sparse.csr_array(digits[2])))


def test_frames_are_read_and_written_with_names(digits):
    frame = pd.DataFrame(digits[0][:150, :10], columns=[f"pixel {i}" for i in range(10)])
    frame["side"] = np.where(np.arange(150) % 2, "left", "right")
    model = TreeEmbedding(**QUICK).set_output(transform="pandas")
    placed = model.fit_transform(frame)
    assert list(placed.columns) == ["treeembedding0", "treeembedding1"]
    assert placed.index.equals(frame.index)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.tree_.n_features == 11


def test_own_graph_is_taken(digits):
    W = affinity_graph(digits[0], 12, 4.0)
    model = TreeEmbedding(affinity=W, **QUICK).fit(digits[0])
    assert abs(model.affinity_ - W).sum() == pytest.approx(0, abs=1e-12)


def test_given_map_is_taken_for_the_free_one(fitted, digits):
    again = clone(fitted).set_params(init=fitted.free_embedding_).fit(digits[0])
    np.testing.assert_array_equal(again.embedding_, fitted.embedding_)


def test_points_that_stay_leave_rounds_of_direct_fits(digits):
    model = TreeEmbedding(point_iter=0, refine=False, **QUICK).fit(digits[0])
    free, best = model.free_embedding_, min(model.history_, key=lambda step: step.energy)
    gap = np.sqrt(np.mean((model.embedding_ - free) ** 2) / free.var(axis=0).mean())
    assert best.number > 0
    assert best.violation == pytest.approx(gap)


def test_a_fit_with_another_kind_of_mapping_leaves_nothing_of_the_last_one(digits):
    X = digits[0][:100]
    model = TreeEmbedding(**QUICK).fit(X)
    model.set_params(estimator=Ridge()).fit(X)
    assert hasattr(model, "estimator_")
    assert not hasattr(model, "tree_")
    model.set_params(estimator=None).fit(X)
    assert hasattr(model, "tree_")
    assert not hasattr(model, "estimator_")


def test_any_regressor_can_be_the_mapping(digits):
    model = TreeEmbedding(estimator=Ridge(), n_outer=2, random_state=0).fit(digits[0])
    placed = model.estimator_.predict(digits[2])
    np.testing.assert_allclose(model.transform(digits[2]), placed)
    with pytest.raises(AttributeError, match="Ridge is not a tree"):
        model.apply(digits[2])


def test_greedy_tree_as_the_mapping_is_a_tree(digits):
    greedy = DecisionTreeRegressor(max_leaf_nodes=8, random_state=0)
    model = TreeEmbedding(estimator=greedy, n_outer=1, random_state=0).fit(digits[0])
    assert model.tree_.n_leaves == 8


def test_given_tao_tree_keeps_its_settings(digits):
    tree = TAOTreeRegressor(split="axis", alpha=0.1, max_depth=2)
    model = TreeEmbedding(estimator=tree, n_outer=1, random_state=0).fit(digits[0])
    assert np.diff(model.tree_.coefficients.indptr).max() == 1
    assert model.tree_.depth <= 2


def test_callback_stops_the_rounds(digits):
    model = TreeEmbedding(**QUICK).fit(digits[0], callback=lambda step: step.number == 1)
    assert len(model.history_) == 2


@pytest.mark.parametrize("n_components", [1, 3])
def test_map_has_as_many_axes_as_asked_for(digits, n_components):
    model = TreeEmbedding(n_components=n_components, **QUICK)
    assert model.fit_transform(digits[0]).shape == (400, n_components)


def test_rows_that_are_all_alike_are_placed():
    model = TreeEmbedding(n_outer=1, random_state=0).fit(np.ones((30, 3)))
    assert np.isfinite(model.embedding_).all()


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("objective", "umap", ValueError),
        ("n_components", 0, ValueError),
        ("max_depth", -1, ValueError),
        ("alpha", -1.0, ValueError),
        ("perplexity", 0.5, ValueError),
        ("repulsion", "much", TypeError),
        ("leaf", "round", ValueError),
        ("n_directions", 0, ValueError),
        ("refine", "yes", TypeError),
        ("estimator", KNeighborsClassifier(), TypeError),
        ("affinity", np.ones((3, 3)), ValueError),
        ("init", np.ones((3, 2)), ValueError),
        ("n_outer", -1, ValueError),
        ("mu", 0.0, ValueError),
        ("mu_factor", "auto", TypeError),
        ("tao_iter", 0, ValueError),
        ("point_iter", -1, ValueError),
        ("max_iter", -1, ValueError),
        ("missing", "drop", ValueError),
        ("n_jobs", "two", TypeError),
    ],
)
def test_errors_name_the_argument(name, value, error):
    with pytest.raises(error, match=name):
        TreeEmbedding(**{name: value}).fit(np.random.default_rng(0).normal(size=(20, 2)))
