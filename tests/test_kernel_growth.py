"""Growth of kernel trees: the splits are the best ones, whatever makes them quick."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import assert_same_tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.datasets import load_iris, load_wine, make_classification, make_regression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from silva.kernel_growth import Growth, grow, grow_many, prepare, prune_path
from silva.membership import membership

GAUSSIAN_EDGES = np.linspace(-3, 3, 8)
GAUSSIAN_BELOW = (norm.cdf(GAUSSIAN_EDGES) - norm.cdf(-3)) / (norm.cdf(3) - norm.cdf(-3))


def few_rows(seed=0, rows=40, columns=3, outputs=3, labelled=0.5):
    """Class indicators of three classes, weights, half of the rows labelled."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)) * [1.0, 10.0, 0.1][:columns] + 5
    classes = (X[:, 0] > 5).astype(int) + (rng.random(rows) < 0.3)
    targets = np.eye(outputs)[classes]
    known = rng.random(rows) < labelled
    return X, targets, known, rng.uniform(0.5, 2, rows)


def numbers(seed=0):
    X, _, known, weight = few_rows(seed)
    rng = np.random.default_rng(seed + 1)
    return X, np.column_stack([X[:, 0] * 3 + X[:, 1], rng.normal(size=len(X)) * 7]), known, weight


def variance(values, mass):
    """Of each column, by the definition."""
    mean = np.average(values, axis=0, weights=mass)
    return np.average((values - mean) ** 2, axis=0, weights=mass)


class Loss:
    """The gain of a split from the definition of the loss, in double precision."""

    def __init__(self, X, targets, labelled, weight, supervision, together):
        self.X, self.targets, self.labelled, self.weight = X, targets, labelled, weight
        self.supervision, self.together = supervision, together
        self.root_x = variance(X, weight)
        self.root_y = variance(targets[labelled], weight[labelled])

    def impurity(self, mass):
        x = np.mean(variance(self.X, mass) / self.root_x)
        known = self.labelled & (mass > 0)
        if not known.any():
            return x, None
        y = variance(self.targets[known], mass[known])
        if self.together:
            return x, y.sum() / self.root_y.sum()
        return x, np.mean(y / self.root_y)

    def gain(self, left, right):
        node = left + right
        (x, y), (x_l, y_l), (x_r, y_r) = map(self.impurity, (node, left, right))
        features = x - (left.sum() * x_l + right.sum() * x_r) / node.sum()
        labels = 0.0
        if y_l is not None and y_r is not None:
            a, b = left[self.labelled].sum(), right[self.labelled].sum()
            labels = y - (a * y_l + b * y_r) / (a + b)
        mixed = self.supervision * labels + (1 - self.supervision) * features
        return node.sum() / self.weight.sum() * mixed


def below(threshold, x, bandwidth):
    """The kernel's distribution function: a Gaussian in seven pieces between -3 and 3."""
    if bandwidth == 0:
        return (x < threshold).astype(float)
    return np.interp((threshold - x) / bandwidth, GAUSSIAN_EDGES, GAUSSIAN_BELOW)


def sides(mass, x, low, high, threshold, bandwidth):
    inside = below(high, x, bandwidth) - below(low, x, bandwidth)
    share = (below(threshold, x, bandwidth) - below(low, x, bandwidth)) / np.maximum(inside, 1e-300)
    return mass * share, mass * (1 - share)


def candidates(x, mass, low, high, bandwidth, method):
    present = np.unique(x[mass > 1e-7])
    if bandwidth > 0 and method == "exact":
        edges = (present[:, None] + bandwidth * GAUSSIAN_EDGES).ravel()
    else:
        edges = (present[1:] + present[:-1]) / 2
    return edges[(edges > low) & (edges < high)]


def decisions(grown, growth, data, together):
    """Yield gain, gain by definition, and the best gain of all candidates, node by node."""
    X, targets, labelled, weight = data
    loss = Loss(X, targets, labelled, weight, growth.supervision, together)
    bandwidth = np.broadcast_to(growth.bandwidth, X.shape[1])
    tree = grown.tree
    feature = np.zeros(tree.n_nodes, int)
    feature[~tree.is_leaf] = tree.coefficients.indices
    low, high = np.full(X.shape[1], -np.inf), np.full(X.shape[1], np.inf)
    stack = [(0, weight, low, high)]
    while stack:
        node, mass, low, high = stack.pop()
        assert_allclose(tree.weight[node], mass.sum(), rtol=1e-4)
        if tree.left[node] < 0:
            continue
        gains = []
        for j in range(X.shape[1]):
            for t in candidates(X[:, j], mass, low[j], high[j], bandwidth[j], growth.method):
                left, right = sides(mass, X[:, j], low[j], high[j], t, bandwidth[j])
                if min(left.sum(), right.sum()) > growth.min_weight_leaf:
                    gains.append(loss.gain(left, right))
        j, t = feature[node], tree.threshold[node]
        left, right = sides(mass, X[:, j], low[j], high[j], t, bandwidth[j])
        yield grown.gain[node], loss.gain(left, right), max(gains)
        inside = high.copy()
        inside[j] = t
        stack.append((tree.left[node], left, low, inside))
        inside = low.copy()
        inside[j] = t
        stack.append((tree.right[node], right, inside, high))


CRISP = {
    "half": Growth(supervision=0.5),
    "features alone": Growth(supervision=0.0),
    "labels mostly": Growth(supervision=0.9, min_weight_leaf=4.0),
    "leaves": Growth(supervision=0.5, max_leaf_nodes=7),
}
FUZZY = {
    "exact": Growth(supervision=0.5, bandwidth=np.array([0.2, 2, 0.02]), method="exact"),
    "convolved": Growth(supervision=0.5, bandwidth=np.array([0.2, 2, 0.02]), method="convolved"),
    "one crisp column": Growth(supervision=0.3, bandwidth=np.array([0.3, 0, 0.02])),
}


@pytest.mark.parametrize("growth", CRISP.values(), ids=CRISP)
@pytest.mark.parametrize(("data", "together"), [(few_rows(), True), (numbers(), False)])
def test_each_crisp_split_is_the_best_by_brute_force(growth, data, together):
    grown = grow(*data, growth, together=together)
    assert grown.tree.n_leaves > 5
    for gain, defined, best in decisions(grown, growth, data, together):
        assert_allclose([gain, gain], [defined, best], rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("together", [True, False])
def test_each_exact_fuzzy_split_is_the_best_by_brute_force(together):
    data = few_rows() if together else numbers()
    growth = replace(FUZZY["exact"], ccp_alpha=1e-3)
    grown = grow(*data, growth, together=together)
    assert grown.tree.n_leaves > 5
    for gain, defined, best in decisions(grown, growth, data, together):
        assert_allclose([gain, gain], [defined, best], rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["convolved", "one crisp column"])
def test_each_convolved_split_is_the_best_where_a_bin_is_a_value(name):
    X, targets, labelled, weight = few_rows()
    data = (
        np.round(X / FUZZY["exact"].bandwidth) * FUZZY["exact"].bandwidth,
        targets,
        labelled,
        weight,
    )
    growth = replace(FUZZY[name], ccp_alpha=1e-3)
    grown = grow(*data, growth, together=True)
    assert grown.tree.n_leaves > 5
    for gain, defined, best in decisions(grown, growth, data, True):
        assert_allclose([gain, gain], [defined, best], rtol=2e-3, atol=1e-6)


def test_convolved_gains_are_close_to_exact_ones():
    X, y = load_wine(return_X_y=True)
    data = (X, np.eye(3)[y], np.arange(len(X)) % 3 > 0, np.ones(len(X)))
    growth = Growth(supervision=0.5, ccp_alpha=1e-3, bandwidth=0.15 * X.std(0), max_depth=4)
    total = {
        method: grow(*data, replace(growth, method=method), together=True).gain.sum()
        for method in ("exact", "convolved")
    }
    assert_allclose(total["convolved"], total["exact"], rtol=0.02)


def test_convolved_gain_is_close_to_its_definition_where_bins_are_wide():
    X, y = load_wine(return_X_y=True)
    data = (X, np.eye(3)[y], np.arange(len(X)) % 3 > 0, np.ones(len(X)))
    growth = Growth(supervision=0.5, ccp_alpha=1e-3, bandwidth=0.3 * X.std(0), max_depth=3)
    grown = grow(*data, growth, together=True)
    for gain, defined, best in decisions(grown, growth, data, True):
        assert_allclose(gain, defined, rtol=0.05)
        assert gain > 0.95 * best


def assert_same_decisions(grown, peer):
    """As scikit-learn's tree, which numbers its nodes the same way."""
    tree, other = grown.tree, peer.tree_
    assert_array_equal(tree.left, other.children_left)
    assert_array_equal(tree.right, other.children_right)
    splits = ~tree.is_leaf
    assert_array_equal(tree.coefficients.indices, other.feature[splits])
    assert_allclose(tree.threshold[splits], other.threshold[splits], rtol=1e-6, atol=1e-7)
    mass = other.weighted_n_node_samples
    assert_allclose(tree.weight, mass, rtol=1e-6)
    lost = mass * other.impurity
    lost[splits] -= lost[tree.left[splits]] + lost[tree.right[splits]]
    gain = np.where(splits, lost, 0) / (mass[0] * other.impurity[0])
    assert_allclose(grown.gain, gain, rtol=1e-4, atol=1e-7)


def test_supervised_crisp_tree_is_sklearns_classifier():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 6))
    y = ((X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5) + rng.integers(0, 2, 240)) % 3
    weight = rng.uniform(0.5, 2, len(X))
    # Small nodes have ties, which scikit-learn settles by chance; it may split pure ones.
    growth = Growth(supervision=1.0, min_weight_leaf=10.0)
    grown = grow(X, np.eye(3)[y], np.ones(len(X), bool), weight, growth, together=True)
    least = 10.0 / weight.sum()
    peer = DecisionTreeClassifier(min_weight_fraction_leaf=least, random_state=0)
    assert_same_decisions(grown, peer.fit(X, y, weight))


def test_supervised_crisp_tree_is_sklearns_regressor():
    X, y = make_regression(240, 5, noise=5, random_state=0)
    growth = Growth(supervision=1.0, min_weight_leaf=6.0)
    grown = grow(X, y[:, None], np.ones(len(X), bool), np.ones(len(X)), growth, together=False)
    peer = DecisionTreeRegressor(min_samples_leaf=6, random_state=0).fit(X, y)
    assert_same_decisions(grown, peer)


def test_fully_grown_supervised_tree_answers_its_rows_as_sklearns_does():
    X, y = load_iris(return_X_y=True)
    X, y = X[::2], y[::2]
    growth = Growth(supervision=1.0)
    grown = grow(X, np.eye(3)[y], np.ones(len(X), bool), np.ones(len(X)), growth, together=True)
    peer = DecisionTreeClassifier(random_state=0).fit(X, y)
    assert grown.tree.n_leaves == peer.get_n_leaves()
    counts = membership(grown.tree, X, 0.0).T @ np.eye(3)[y]
    assert_array_equal(counts.max(1), counts.sum(1))


def test_splits_without_gain_are_taken_where_labels_differ():
    X = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    targets = np.eye(2)[[0, 1, 1, 0]]
    grown = grow(X, targets, np.ones(4, bool), np.ones(4), Growth(supervision=1.0), together=True)
    assert grown.tree.n_leaves == 4


def test_unlabelled_rows_take_no_part_where_only_labels_count():
    X, targets, labelled, weight = few_rows()
    growth = Growth(supervision=1.0)
    with_them = grow(X, targets, labelled, weight, growth, together=True)
    known = (X[labelled], targets[labelled], labelled[labelled], weight[labelled])
    alone = grow(*known, growth, together=True)
    assert_same_tree(with_them.tree, alone.tree)


def test_constant_columns_change_nothing():
    X, targets, labelled, weight = few_rows()
    growth = Growth(supervision=0.5)
    plain = grow(X, targets, labelled, weight, growth, together=True)
    wide = np.column_stack([X, np.full(len(X), 3.0)])
    padded = grow(wide, targets, labelled, weight, growth, together=True)
    assert_allclose(padded.gain, plain.gain, rtol=1e-6)


@pytest.mark.parametrize("growth", [CRISP["half"], *FUZZY.values()], ids=["crisp", *FUZZY])
def test_weight_of_two_is_a_row_twice(growth):
    X, targets, labelled, _ = few_rows()
    twice = np.arange(len(X)) % 3 == 0
    data = [np.concatenate([a, a[twice]]) for a in (X, targets, labelled)]
    growth = replace(growth, ccp_alpha=1e-3)
    weighted = grow(X, targets, labelled, 1.0 + twice, growth, together=True)
    repeated = grow(*data, np.ones(len(data[0])), growth, together=True)
    assert_array_equal(weighted.tree.coefficients.indices, repeated.tree.coefficients.indices)
    assert_allclose(weighted.tree.threshold, repeated.tree.threshold)
    assert_allclose(weighted.gain, repeated.gain, rtol=1e-4)


DRAWN = {
    "crisp": Growth(supervision=0.5),
    "drawn columns": Growth(supervision=0.5, max_features=2),
    "random thresholds": Growth(supervision=0.5, max_features=2, random_thresholds=True),
    "fuzzy": Growth(supervision=0.5, bandwidth=0.3, ccp_alpha=1e-4),
    "fuzzy random": Growth(
        supervision=0.5, bandwidth=0.3, ccp_alpha=1e-4, max_features=2, random_thresholds=True
    ),
    "exact": Growth(supervision=0.5, bandwidth=0.3, ccp_alpha=1e-3, method="exact"),
}


def some_rows(rows=300):
    X, y = make_classification(rows, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=1)
    return X, np.eye(3)[y], np.arange(rows) % 2 == 0, np.ones(rows)


@pytest.mark.parametrize("growth", DRAWN.values(), ids=DRAWN)
def test_pruning_is_regrowing(growth):
    grown = grow(*some_rows(), growth, together=True, seed=5)
    for alpha in (2e-3, 1e-2, 0.9):
        again = grow(*some_rows(), replace(growth, ccp_alpha=alpha), together=True, seed=5)
        assert again.tree.n_nodes < grown.tree.n_nodes
        assert_same_tree(prune_path(grown, alpha), again.tree)


@pytest.mark.parametrize("growth", DRAWN.values(), ids=DRAWN)
def test_same_tree_for_any_number_of_threads(growth):
    data = some_rows(2000) if growth.method == "convolved" else some_rows()
    one, three = (grow(*data, growth, together=True, seed=2, n_threads=k) for k in (1, 3))
    assert_same_tree(one.tree, three.tree)


def test_forest_is_its_trees():
    X, targets, labelled, weight = some_rows()
    growth = Growth(supervision=0.5, max_features=2)
    counts = np.random.default_rng(0).poisson(1, size=(5, len(X)))
    prepared = prepare(X, targets, labelled, weight, growth, together=True)
    forest = grow_many(prepared, np.arange(5), counts, n_threads=3)
    for number, grown in enumerate(forest):
        alone = grow_many(prepared, np.array([number]), counts[[number]])[0]
        assert_same_tree(grown.tree, alone.tree)
        assert grown.tree.weight[0] == counts[number].sum()
    assert len({grown.tree.n_nodes for grown in forest}) > 1


def test_seed_decides_what_is_drawn():
    growth = Growth(supervision=0.5, max_features=1)
    trees = [grow(*some_rows(), growth, together=True, seed=s).tree for s in (0, 0, 1)]
    assert_same_tree(trees[0], trees[1])
    assert not np.array_equal(trees[0].threshold, trees[2].threshold)


def test_other_columns_are_drawn_while_none_can_be_split():
    rng = np.random.default_rng(0)
    X = np.zeros((50, 20))
    X[:, :19] = rng.random(19) < 0.5
    X[0, :19] = 1 - X[0, :19]  # vary at the root, constant below
    X[:, 19] = rng.normal(size=50)
    growth = Growth(supervision=0.0, max_features=1)
    data = (X, np.zeros((50, 1)), np.zeros(50, bool), np.ones(50))
    assert grow(*data, growth, together=False, seed=1).tree.n_leaves == 50
    few = replace(growth, max_tries=2)
    assert grow(*data, few, together=False, seed=1).tree.n_leaves < 50


def test_random_thresholds_lie_inside_the_node():
    growth = DRAWN["random thresholds"]
    X, *rest = some_rows()
    grown = grow(X, *rest, growth, together=True, seed=3)
    assert (np.asarray(membership(grown.tree, X, 0.0).sum(0)) > 0).all()
    plain = grow(X, *rest, replace(growth, random_thresholds=False), together=True, seed=3)
    assert grown.gain[0] < plain.gain[0]


@pytest.mark.parametrize("limit", [2, 5, 11])
def test_leaves_are_limited_best_gain_first(limit):
    growth = Growth(supervision=0.5)
    whole = grow(*some_rows(), growth, together=True)
    some = grow(*some_rows(), replace(growth, max_leaf_nodes=limit), together=True)
    assert some.tree.n_leaves == limit
    taken, open_nodes = [], [0]
    for _ in range(limit - 1):
        node = max(open_nodes, key=lambda k: whole.gain[k])
        open_nodes.remove(node)
        open_nodes += [whole.tree.left[node], whole.tree.right[node]]
        taken.append(whole.gain[node])
    assert_allclose(np.sort(some.gain[some.gain > 0]), np.sort(taken))


def test_depth_and_weight_of_leaves_are_limited():
    growth = Growth(supervision=0.5, max_depth=4, min_weight_leaf=9.0)
    tree = grow(*some_rows(), growth, together=True).tree
    assert tree.depth == 4
    assert tree.weight.min() >= 9


def test_all_components_measure_the_same_variance():
    data = some_rows()
    growth = Growth(supervision=0.5, max_depth=5)
    plain = grow(*data, growth, together=True)
    turned = prepare(*data, replace(growth, variance_components=6), together=True)
    assert_allclose(grow_many(turned, np.array([0]))[0].gain, plain.gain, rtol=1e-4)
    few = grow(*data, replace(growth, variance_components=2), together=True)
    assert 0 < few.gain.sum() < plain.gain.sum()


def test_bins_are_few_where_values_are_many():
    X = np.random.default_rng(0).normal(size=(4000, 1)) ** 3
    data = (X, np.zeros((4000, 1)), np.zeros(4000, bool), np.ones(4000))
    prepared = prepare(*data, Growth(supervision=0.0, max_bins=64), together=False)
    assert 60 <= prepared.rows.bins()[0] <= 64
    tree = grow_many(prepared, np.array([0]))[0].tree
    assert tree.weight[tree.is_leaf].max() <= 2 * 4000 / 64


def test_outliers_have_bins_of_their_own():
    X = np.random.default_rng(0).normal(size=(4000, 1))
    X[:4, 0] = 1e3, 1e4, 1e5, -1e4
    data = (X, np.zeros((4000, 1)), np.zeros(4000, bool), np.ones(4000))
    tree = grow(*data, Growth(supervision=0.0, max_bins=64), together=False).tree
    alone = membership(tree, X[:4], 0.0).indices
    assert_array_equal(tree.weight[tree.leaf_nodes][alone], 1)


def test_thresholds_part_single_precision_rows_as_they_were_grown():
    X = np.nextafter(np.float32(1), np.float32(2)) ** np.arange(8, dtype=np.float32)[:, None]
    assert X.dtype == np.float32
    data = (X, np.zeros((8, 1)), np.zeros(8, bool), np.ones(8))
    tree = grow(*data, Growth(supervision=0.0), together=False).tree
    assert_array_equal(membership(tree, X, 0.0).sum(0), tree.weight[tree.is_leaf])


def test_units_and_offsets_of_columns_do_not_matter():
    X, targets, labelled, weight = few_rows()
    growth = FUZZY["convolved"]
    scale, offset = np.array([4.0, 0.25, 1024]), np.array([0.0, 64, -512])
    moved = replace(growth, bandwidth=growth.bandwidth * scale)
    plain = grow(X, targets, labelled, weight, growth, together=True)
    other = grow(X * scale + offset, targets, labelled, weight, moved, together=True)
    assert_allclose(other.gain[:9], plain.gain[:9], rtol=1e-4)


BAD_GROWTH = {
    "supervision": 1.5,
    "ccp_alpha": -1.0,
    "min_weight_leaf": -1.0,
    "max_depth": -1,
    "max_leaf_nodes": 0,
    "max_features": 0,
    "max_tries": 0,
    "max_bins": 256,
    "kernel": "box",
    "method": "quick",
    "variance_components": 0,
}


@pytest.mark.parametrize("name", BAD_GROWTH)
def test_wrong_growth_is_named(name):
    with pytest.raises(ValueError, match=f"{name} must be .*got {BAD_GROWTH[name]}"):
        Growth(**{"supervision": 0.5, name: BAD_GROWTH[name]})


@pytest.mark.parametrize("bandwidth", [-1.0, np.nan, np.ones(2)])
def test_wrong_bandwidth_is_named(bandwidth):
    growth = Growth(supervision=0.5, bandwidth=bandwidth)
    with pytest.raises(ValueError, match="bandwidth must be"):
        grow(*few_rows(), growth, together=True)


@pytest.mark.parametrize(
    ("name", "place", "wrong"),
    [
        ("X", 0, np.full((40, 3), np.nan)),
        ("X", 0, np.zeros(40)),
        ("targets", 1, np.zeros((39, 3))),
        ("targets", 1, np.full((40, 3), np.nan)),
        ("labelled", 2, np.zeros(39, bool)),
        ("weight", 3, np.zeros(40)),
        ("weight", 3, np.ones(39)),
    ],
)
def test_wrong_rows_are_named(name, place, wrong):
    data = list(few_rows())
    data[place] = wrong
    with pytest.raises(ValueError, match=f"{name} must be"):
        grow(*data, Growth(supervision=0.5), together=True)


def test_supervised_growth_without_labels_is_an_error():
    X, targets, labelled, weight = few_rows()
    with pytest.raises(ValueError, match="labelled must be"):
        grow(X, targets, labelled & False, weight, Growth(supervision=1.0), together=True)


@pytest.mark.parametrize("counts", [np.ones((2, 5)), -np.ones((2, 40)), np.zeros((2, 40))])
def test_wrong_counts_are_named(counts):
    prepared = prepare(*few_rows(), Growth(supervision=0.5), together=True)
    with pytest.raises(ValueError, match="counts must be"):
        grow_many(prepared, np.arange(2), counts)
