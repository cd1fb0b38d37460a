"""From any tree of hyperplanes to one that OCT-H allows, with its strips of mu free of rows."""

from __future__ import annotations

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes
from silva.optimal.milp import Builder
from silva.optimal.mip_solvers import Effort, highs
from silva.optimal.oct_h import MU, ErrorProblem
from silva.tree import Array

SLACK = 1e-7  # the strip between two sides must be wider than mu by so much
LARGE = 200_000  # entries of X beyond which linear programs of all rows take too long


def leaf_tree(problem: ErrorProblem) -> Hyperplanes:
    """Return the tree that answers the most frequent class, with no node in use."""
    nodes = 2**problem.depth - 1
    label = int(problem.counts.sum(axis=0).argmax())
    weights = np.zeros((nodes, problem.X.shape[1]))
    return Hyperplanes(weights, np.full(nodes, -1.0), np.full(nodes + 1, label))


def settle(problem: ErrorProblem, tree: Hyperplanes) -> Hyperplanes:
    """Return a tree like the given one, whose nodes can be what the program of OCT-H wants.

    The two sides of every node in use are as far apart as a hyperplane of its features can keep
    them, at least mu; no leaf has too few labels; a node that does not pay for its features is not
    used, and then sends all rows to the right.
    """
    done = leaf_tree(problem)
    price = problem.complexity * problem.baseline
    nodes = len(done.thresholds)

    def end(place: int, rows: Array) -> float:
        totals = problem.counts[rows].sum(axis=0)
        span = [place]
        for node in span:
            if node >= nodes:
                done.leaf_class[node - nodes] = totals.argmax()
            else:
                done.weights[node], done.thresholds[node] = 0.0, -1.0
                span += [2 * node + 1, 2 * node + 2]
        return float(totals.sum() - totals.max())

    def put(source: int, place: int, rows: Array) -> float:
        as_leaf = end(place, rows)
        if source >= nodes or place >= nodes or as_leaf == 0.0:
            return as_leaf
        right = problem.X[rows] @ tree.weights[source] - tree.thresholds[source] > 0
        if right.all() or not right.any():
            return put(2 * source + 1 + int(right.all()), place, rows)
        plane = _divide(problem, rows, right, tree.weights[source])
        if plane is None:
            return as_leaf
        weights, threshold, right = plane
        heavy = problem.weight[rows]
        if min(heavy[right].sum(), heavy[~right].sum()) < problem.min_leaf:
            return as_leaf
        value = price * int((weights != 0).sum())
        value += put(2 * source + 1, 2 * place + 1, rows[~right])
        value += put(2 * source + 2, 2 * place + 2, rows[right])
        if value >= as_leaf - SLACK:
            return end(place, rows)
        done.weights[place], done.thresholds[place] = weights, threshold
        return value

    put(0, 0, np.arange(len(problem.X)))
    return done


def _divide(
    problem: ErrorProblem, rows: Array, right: Array, weights: Array
) -> tuple[Array, float, Array] | None:
    """Return a hyperplane with these sides, or nearly, and its sides; None where there is none."""
    X = problem.X[rows]
    used = np.flatnonzero(weights) if problem.complexity > 0 else np.arange(X.shape[1])
    if problem.X.size <= LARGE:
        found = separate(X[:, used], right)
        if found is not None and problem.complexity > 0:
            used, found = _fewer_features(X, right, used, found)
        if found is not None:
            full = np.zeros(X.shape[1])
            full[used] = found[0]
            return full, found[1], right
    return _nearest_gap(X, right, problem.weight[rows], weights)


def _nearest_gap(
    X: Array, right: Array, weight: Array, weights: Array
) -> tuple[Array, float, Array] | None:
    """Return a hyperplane with a free strip that sends the fewest rows to another side than wanted.

    Where rows are many, hardly any direction has a strip of mu without one: besides the given
    direction single features are looked at, whose values repeat.
    """
    directions = np.vstack([weights / np.abs(weights).sum(), np.eye(X.shape[1])])
    values = X @ directions.T
    order = values.argsort(axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    # rows below a cut that should be above it, less those above it that should be
    wrong = np.cumsum(np.where(right, weight, -weight)[order], axis=0)[:-1] + weight[~right].sum()
    wrong = np.where(np.diff(ordered, axis=0) >= MU * (1.0 + SLACK), wrong, np.nan)
    if np.isnan(wrong).all():
        return None
    total = weight.sum()
    fewest = np.fmin(wrong, total - wrong)
    cut, which = np.unravel_index(np.nanargmin(fewest), fewest.shape)
    sign = 1.0 if wrong[cut, which] <= total / 2 else -1.0
    threshold = sign * float(ordered[cut, which] + ordered[cut + 1, which]) / 2
    return sign * directions[which], threshold, sign * values[:, which] > threshold


def separate(X: Array, right: Array) -> tuple[Array, float] | None:
    """Return the hyperplane of L1 norm 1 that keeps two sides farthest apart.

    None where that is less than mu.
    """
    n, p = X.shape
    sign = np.where(right, 1.0, -1.0)
    signed = sign[:, None] * X
    build = Builder()
    up = build.variables("up", p, 0.0, 1.0)
    down = build.variables("down", p, 0.0, 1.0)
    threshold = build.variables("threshold", 1, -1.0, 1.0)
    room = build.variables("room", 1, -2.0, 2.0, cost=-1.0)
    build.rows([
        (np.broadcast_to(up, X.shape), signed), (np.broadcast_to(down, X.shape), -signed),
        (np.repeat(threshold, n), -sign), (np.repeat(room, n), -1.0),
    ], lower=0.0)  # fmt: skip
    build.rows([(np.concatenate([up, down])[None], 1.0)], upper=1.0)
    x = highs(build.program(), Effort()).x
    if x is None:
        return None
    w = x[up] - x[down]
    w[np.abs(w) <= 1e-9] = 0.0
    size = float(np.abs(w).sum())
    if size == 0.0:
        return None
    value = X @ (w / size)
    low, high = float(value[~right].max()), float(value[right].min())
    return (w / size, (low + high) / 2) if high - low >= MU * (1.0 + SLACK) else None


def _fewer_features(
    X: Array, right: Array, used: Array, found: tuple[Array, float]
) -> tuple[Array, tuple[Array, float]]:
    """Return a separation by fewer features: the weakest goes, as long as one is left."""
    used, w = used[found[0] != 0], found[0][found[0] != 0]
    found = (w, found[1])
    for feature in used[np.argsort(np.abs(w))]:
        rest = used[used != feature]
        if not len(rest):
            break
        smaller = separate(X[:, rest], right)
        if smaller is not None:
            used, found = rest[smaller[0] != 0], (smaller[0][smaller[0] != 0], smaller[1])
    return used, found
