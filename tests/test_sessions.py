"""Sessions of the optimiser, and first trees, on every table."""

import numpy as np
import pytest
from conftest import (
    dense,
    make_matrix,
    make_tree,
    route_by_hand,
)
from numpy.testing import assert_allclose, assert_array_equal

from silva.grow import from_planes, to_planes
from silva.kernels import cpu, reference
from silva.leaves import ClassShares, Linear, Mean
from silva.losses import CLASS_LOSSES, squared_error
from silva.splits import Axis, Oblique

# ---- sessions -----------------------------------------------------------------------------------


def class_leaves(X, loss="misclassification", n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    score = dense(X)[:, 0] + rng.normal(size=X.shape[0]) * 0.3
    codes = np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))
    return ClassShares(codes[:, None].astype(np.int32), np.array([0, n_classes], np.int32), loss)


def several_class_leaves(X, loss):
    one, two = class_leaves(X, n_classes=3), class_leaves(X, n_classes=2, seed=1)
    codes = np.hstack([one.codes, two.codes + 3])
    return ClassShares(np.ascontiguousarray(codes), np.array([0, 3, 5], np.int32), loss)


def targets(X, n_outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    Z = dense(X)
    y = np.sin(2 * Z[:, :1]) + Z[:, 1:2] + rng.normal(size=(len(Z), n_outputs)) * 0.2
    return np.ascontiguousarray(y, np.float32)


LEAVES = {
    "misclassification": class_leaves,
    "squared": lambda X: class_leaves(X, "squared"),
    "log": lambda X: class_leaves(X, "log"),
    "two targets": lambda X: several_class_leaves(X, "squared"),
    "mean": lambda X: Mean(targets(X)),
    "linear": lambda X: Linear(targets(X), 0.5),
}


@pytest.fixture(params=list(LEAVES))
def kind(request):
    return request.param


def open_session(table, X, leaves, split, *, weight=None, n_leaves=8, monotone=False, n_threads=1):
    """A session on a tree of random shape, and the tree."""
    rows = table.prepare(X, n_threads)
    shape = make_tree(np.random.default_rng(3), n_leaves, X.shape[1], density=1.0)
    score = dense(X) @ shape.coefficients.toarray().T
    share = np.random.default_rng(4).uniform(0.3, 0.7, shape.n_nodes)
    cuts = [np.quantile(column, q) for column, q in zip(score.T, share, strict=True)]
    shape.threshold[:] = np.where(shape.left >= 0, cuts, 0)
    planes = to_planes(shape, rows)
    weight = np.ones(X.shape[0], np.float32) if weight is None else weight
    session = table.session(
        rows, shape.left, shape.right, planes, leaves, weight, split, monotone, n_threads
    )
    return session, rows, shape


def tree_of(session, rows, shape):
    """The session's tree in the user's units, answers included."""
    tree = from_planes(shape.left, shape.right, session.planes(), rows)
    answers = session.answers()
    values = answers.values.reshape(tree.n_leaves, -1)
    if answers.slopes is None:
        return tree.with_leaves(values)
    slopes = answers.slopes.reshape(tree.n_leaves, values.shape[1], -1) / rows.scale
    bounds = answers.bounds.reshape(2, tree.n_leaves, -1)
    return tree.with_leaves(values - slopes @ rows.centre, slopes=slopes, bounds=bounds)


def expected_loss(leaves, weight, leaf, tree, X):
    """Loss of the partition `leaf`, every leaf fitted from scratch."""
    total = 0.0
    for number in np.unique(leaf):
        here = leaf == number
        if isinstance(leaves, ClassShares):
            for k, (begin, end) in enumerate(
                zip(leaves.class_begin[:-1], leaves.class_begin[1:], strict=True)
            ):
                codes = leaves.codes[here, k] - begin
                counts = np.bincount(codes, weight[here], minlength=end - begin)
                total += weight[here] @ CLASS_LOSSES[leaves.loss](counts)[codes]
        elif isinstance(leaves, Mean):
            y = leaves.targets[here].astype(float)
            mean = np.average(y, axis=0, weights=weight[here])
            total += weight[here] @ squared_error(y, mean)
        else:
            y = leaves.targets[here].astype(float)
            line = tree.values[number] + dense(X)[here] @ tree.slopes[number].T
            answer = np.clip(line, y.min(axis=0), y.max(axis=0))
            total += weight[here] @ squared_error(y, answer)
    return total


@pytest.mark.parametrize("name", ["bytes", "floats", "floats float32", "csr int64"])
def test_loss_of_a_session_equals_loss_of_its_predictions(table, name, kind):
    X = make_matrix(name, 80, 4)
    weight = np.random.default_rng(0).uniform(0.5, 2, 80).astype(np.float32)
    leaves = LEAVES[kind](X)
    session, rows, shape = open_session(table, X, leaves, Oblique(0.2), weight=weight)
    session.route()
    for passed in range(3):
        loss = session.fit_leaves()
        tree = tree_of(session, rows, shape)
        leaf = tree.leaf_index[route_by_hand(tree, X)]
        assert len(np.unique(leaf)) > 1
        assert_allclose(loss, expected_loss(leaves, weight, leaf, tree, X), rtol=1e-4)
        if passed < 2:
            for level in reversed(range(session.n_levels)):
                session.update_level(level, passed > 0)


@pytest.mark.parametrize("name", ["bytes", "floats", "csr"])
def test_a_session_keeps_rows_where_its_planes_send_them(name):
    # After node visits that moved rows by parts of the way, as after routing all from the root.
    for d in (6, 18, 90):
        X = make_matrix(name, 500, d)
        session, _, _ = open_session(cpu, X, class_leaves(X), Oblique(0.05), n_leaves=150)
        session.route()
        session.fit_leaves()
        for _ in range(2):
            for level in reversed(range(session.n_levels)):
                session.update_level(level, True)
            kept = session.fit_leaves()
        session.route()
        assert_allclose(session.fit_leaves(), kept)


@pytest.mark.parametrize("split", [Oblique(0.2), Axis(0.5)])
def test_penalty_and_nonzeros_are_those_of_the_planes(table, split):
    X = make_matrix("floats", 80, 4)
    session, *_ = open_session(table, X, class_leaves(X), split)
    session.route()
    session.fit_leaves()
    for level in reversed(range(session.n_levels)):
        session.update_level(level, False)
    planes = session.planes()
    tests = np.count_nonzero(np.diff(planes.begin))
    size = abs(planes.value).sum() if isinstance(split, Oblique) else tests
    assert_allclose(session.penalty(), split.alpha * size, rtol=1e-5)
    assert session.n_nonzeros() == len(planes.index) == np.count_nonzero(planes.value)


def test_planes_of_a_session_can_be_put_back(table):
    X = make_matrix("floats", 80, 4)
    session, *_ = open_session(table, X, class_leaves(X), Oblique(0.2))
    session.route()
    first, loss = session.planes(), session.fit_leaves()
    for level in reversed(range(session.n_levels)):
        session.update_level(level, False)
    session.set_planes(first)
    for field in ("begin", "index", "value", "bias"):
        assert_array_equal(getattr(session.planes(), field), getattr(first, field))
    session.route()
    assert_allclose(session.fit_leaves(), loss, rtol=1e-6)


def test_assigned_rows_are_fitted_where_they_are(table):
    X = make_matrix("floats", 30, 4)
    y = np.arange(30, dtype=np.float32)[:, None]
    session, _, shape = open_session(table, X, Mean(y), Oblique(0.2))
    leaf = np.arange(30) % shape.n_leaves
    session.assign(shape.leaf_nodes[leaf])
    session.fit_leaves()
    means = [y[leaf == number].mean() for number in range(shape.n_leaves)]
    assert_allclose(session.answers().values.ravel(), means, rtol=1e-6)


def test_a_row_cannot_be_assigned_to_a_decision(table):
    X = make_matrix("floats", 30, 4)
    session, *_ = open_session(table, X, class_leaves(X), Oblique(0.2))
    with pytest.raises(ValueError, match="decision node"):
        session.assign(np.zeros(30, np.int32))


def test_an_empty_leaf_answers_for_all_rows(table):
    X = make_matrix("floats", 40, 4)
    y = targets(X, 1)
    session, _, shape = open_session(table, X, Mean(y), Oblique(0.2))
    session.assign(np.full(40, shape.leaf_nodes[0]))
    session.fit_leaves()
    # Nothing was ever sent to the other leaves: they answer the mean of all rows.
    assert_allclose(session.answers().values.ravel(), y.mean(), rtol=1e-5)
    session.assign(np.where(np.arange(40) < 5, *shape.leaf_nodes[:2]).astype(np.int32))
    session.fit_leaves()
    session.assign(np.full(40, shape.leaf_nodes[2]))
    session.fit_leaves()
    assert_allclose(session.answers().values.ravel()[:3], y.mean(), rtol=1e-5)


@pytest.mark.parametrize("name", ["bytes", "floats", "csr"])
def test_an_axis_pass_is_the_same_on_both_tables(name, kind):
    # Losses that are sums of a few numbers; ties between splits are broken in the same order.
    X = make_matrix(name, 60, 3)
    sessions = []
    for table in (cpu, reference):
        session, rows, shape = open_session(table, X, LEAVES[kind](X), Axis(0.5))
        session.route()
        session.fit_leaves()
        for level in reversed(range(session.n_levels)):
            session.update_level(level, False)
        sessions.append((session, tree_of(session, rows, shape)))
    (one, one_tree), (other, other_tree) = sessions
    assert_allclose(one.fit_leaves(), other.fit_leaves(), rtol=1e-4)
    assert_array_equal(route_by_hand(one_tree, X), route_by_hand(other_tree, X))


@pytest.mark.parametrize("name", ["bytes", "floats", "csr"])
def test_an_oblique_level_is_the_same_on_both_tables(name, kind):
    # The core takes enough Newton steps here to end where the reference does.
    X = make_matrix(name, 60, 3)
    planes, losses = [], []
    for table in (cpu, reference):
        session, rows, shape = open_session(
            table, X, LEAVES[kind](X), Oblique(0.5, 0.1, newton_steps=100)
        )
        session.route()
        session.fit_leaves()
        session.update_level(session.n_levels - 1, False)
        tree = from_planes(shape.left, shape.right, session.planes(), rows)
        planes.append((tree.coefficients.toarray(), tree.threshold))
        losses.append(session.fit_leaves())
    assert_allclose(planes[0][0], planes[1][0], atol=2e-3)
    assert_allclose(planes[0][1], planes[1][1], atol=5e-3)
    assert_allclose(losses[0], losses[1], rtol=1e-3)


@pytest.mark.parametrize("name", ["bytes", "csr"])
def test_storage_does_not_change_the_partition(name, kind):
    # The same numbers as bytes and as floats, as CSR and written out.
    X = make_matrix(name, 300, 5)
    if name == "bytes":
        other = X.copy()
        other[0, 0] += 1e-3  # off the grid: stored as floats
    else:
        other = X.toarray()
    losses = []
    for matrix in (X, other):
        session, *_ = open_session(cpu, matrix, LEAVES[kind](X), Oblique(0.5))
        session.route()
        losses.append(session.fit_leaves())
    # The unit of CSR columns is their largest value, not their range: another ridge.
    other_ridge = (name, kind) == ("csr", "linear")
    assert_allclose(losses[0], losses[1], rtol=0.5 if other_ridge else 1e-3)


def test_byte_storage_routes_as_float_storage():
    X = make_matrix("bytes", 500, 7)
    off_grid = X.copy()
    off_grid[0] += 1e-6 * np.random.default_rng(0).normal(size=7)
    assert cpu.prepare(off_grid, 1).store.storage in ("bytes", "floats")
    off_grid[0] += 1e-2 * np.random.default_rng(0).normal(size=7)
    assert cpu.prepare(off_grid, 1).store.storage == "floats"
    y = np.arange(500, dtype=np.float32)[:, None]
    means = []
    for matrix in (X, off_grid):
        session, *_ = open_session(cpu, matrix, Mean(y), Oblique(0.5), n_leaves=20)
        session.route()
        session.fit_leaves()
        means.append(session.answers().values.ravel())
    # The mean of the row numbers tells which rows are in a leaf (row 0 adds nothing to the sum).
    assert_allclose(means[0], means[1], rtol=1e-2)
    assert (np.isclose(means[0], means[1], rtol=1e-6)).mean() > 0.8


@pytest.mark.parametrize("name", ["bytes", "floats", "csr"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_linear_leaves_by_moving_rows_equal_a_fit_from_scratch(table, name, n_outputs):
    rng = np.random.default_rng(0)
    X = make_matrix(name, 200, 4)
    y, ridge = targets(X, n_outputs), 0.3
    weight = rng.uniform(0.5, 2, 200).astype(np.float32)
    session, rows, shape = open_session(
        table, X, Linear(y, ridge), Oblique(0.2), weight=weight, n_leaves=4
    )
    Z = np.column_stack([(dense(X) - rows.centre) / rows.scale, np.ones(200)])
    leaf = rng.integers(4, size=200)
    for _ in range(12):  # a few rows change leaves: statistics are updated, not summed again
        moved = rng.choice(200, 8, replace=False)
        leaf[moved] = rng.integers(4, size=8)
        session.assign(shape.leaf_nodes[leaf])
        session.fit_leaves()
    answers = session.answers()
    values = answers.values.reshape(4, n_outputs)
    slopes = answers.slopes.reshape(4, n_outputs, 4)
    bounds = answers.bounds.reshape(2, 4, n_outputs)
    for number in range(4):
        here = leaf == number
        A = (Z[here].T * weight[here]) @ Z[here] + np.diag([ridge] * 4 + [0])
        expected = np.linalg.solve(A, (Z[here].T * weight[here]) @ y[here]).T
        assert_allclose(slopes[number], expected[:, :-1], atol=1e-4)
        assert_allclose(values[number], expected[:, -1], atol=1e-4)
        assert_allclose(bounds[:, number], [y[here].min(axis=0), y[here].max(axis=0)])


# ---- first trees --------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["means", "gaussian", "axis"])
@pytest.mark.parametrize("name", ["bytes", "floats", "csr float32"])
@pytest.mark.parametrize("make_leaves", [class_leaves, lambda X: Mean(targets(X))])
def test_first_trees_cut_their_rows_in_half(table, direction, name, make_leaves):
    X = make_matrix(name, 200, 12)
    rows = table.prepare(X, 1)
    left, right, planes = table.grow_start(rows, make_leaves(X), direction, 3, 2, 0)
    tree = from_planes(left, right, planes, rows)
    assert 0 < tree.depth <= 3
    leaf = route_by_hand(tree, X)
    at = tree.ancestors()[tree.leaf_index[leaf]].sum(axis=0)
    assert (at > 0).all()
    if name == "floats":  # no ties
        node = np.flatnonzero(left >= 0)
        assert (abs(at[left[node]] - at[right[node]]) <= 6).all()  # rows on the very cut
    if direction == "axis":
        assert (np.diff(planes.begin)[left >= 0] == 1).all()


@pytest.mark.parametrize("direction", ["means", "gaussian", "axis"])
def test_first_trees_follow_the_seed(table, direction):
    X = make_matrix("floats", 100, 8)
    rows = table.prepare(X, 1)
    drawn = [table.grow_start(rows, class_leaves(X), direction, 4, 2, k)[2] for k in (0, 0, 1)]
    for field in ("begin", "index", "value", "bias"):
        assert_array_equal(getattr(drawn[0], field), getattr(drawn[1], field))
    assert not np.array_equal(drawn[0].bias, drawn[2].bias)


def test_first_trees_stop_at_few_rows_and_at_equal_rows(table):
    X = make_matrix("floats", 64, 3)
    rows = table.prepare(X, 1)
    left, *_ = table.grow_start(rows, class_leaves(X), "gaussian", 10, 40, 0)
    assert len(left) == 3
    left, *_ = table.grow_start(rows, class_leaves(X), "gaussian", 0, 2, 0)
    assert len(left) == 1
    same = np.ones((20, 3))
    left, *_ = table.grow_start(
        table.prepare(same, 1), Mean(np.arange(20, dtype=np.float32)[:, None]), "means", 5, 2, 0
    )
    assert len(left) == 1
