"""Growth of kernel trees: the splits are the best ones, whatever makes them quick."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import assert_same_tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.datasets import load_iris, load_wine, make_regression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from silva.kernel_growth import Growth, grow
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


@pytest.mark.parametrize("columns", [3, 61, 141])
def test_many_columns_of_many_rows_are_searched_as_few_are(columns):
    # Wide enough for columns to be looked at together, the last of them fewer than the others.
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(2500, columns)).astype(float) * rng.uniform(1, 9, columns)
    none = (np.zeros((2500, 1)), np.zeros(2500, bool), np.ones(2500))
    grown = grow(X, *none, Growth(0.0, max_depth=1), together=False)
    Z = (X - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(columns)
    cuts = np.quantile(X, [0.4, 0.6, 0.9], axis=0)[:, :, None]  # between the four values
    left = np.concatenate([np.less(X.T, cut) for cut in cuts])
    size = left.sum(axis=1)
    gain = ((left @ Z) ** 2).sum(axis=1) / (size * (2500 - size))
    # Single precision, and the same few values over and over: roundings do not cancel.
    assert_allclose(grown.gain[0], gain.max(), rtol=1e-4)
    assert grown.tree.coefficients.indices[0] == gain.argmax() % columns


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


def test_units_and_offsets_of_columns_do_not_matter():
    X, targets, labelled, weight = few_rows()
    growth = FUZZY["convolved"]
    scale, offset = np.array([4.0, 0.25, 1024]), np.array([0.0, 64, -512])
    moved = replace(growth, bandwidth=growth.bandwidth * scale)
    plain = grow(X, targets, labelled, weight, growth, together=True)
    other = grow(X * scale + offset, targets, labelled, weight, moved, together=True)
    assert_allclose(other.gain[:9], plain.gain[:9], rtol=1e-4)
