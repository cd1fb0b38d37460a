"""Good trees for OCT-H before, or without, a proof: starts, alternation, and what is possible.

Minimises an `ErrorProblem`. A start is a TAO tree or a tree of hyperplanes between random rows of
different classes. From there the nodes are improved in turn: with all others held, a node wants
each of its rows on the side where the tree answers it better, which is a two-class problem,

    minimise  sum_i care_i hinge_i + price · |a|_1-like cost of features,   |a|_1 <= 2 / mu,

a linear program, repeated with care divided by the hinge so that few rows err much rather than many
a little. `oct_settle` turns what comes out into a tree that the program of OCT-H accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes
from silva.optimal.milp import Builder
from silva.optimal.mip_solvers import Effort, highs
from silva.optimal.oct_h import MU, ErrorProblem
from silva.optimal.oct_settle import LARGE, SLACK, leaf_tree, settle
from silva.optimal.tao_planes import tao_planes
from silva.tree import Array

SWEEPS = 8  # of the alternation from one start
REWEIGHTINGS = 3
FRESH = 12  # starts before two of three begin at the best tree so far, with other weights
WRONG = 4.0  # times more that a row counts then if it is answered wrongly
TAO_ALPHAS = (0.01, 0.1, 1.0)


def lower_bound(problem: ErrorProblem) -> float:
    """Return an objective that no tree can go below.

    Labels of other classes at the same row are errors of any tree. Two rows that are closer than mu
    in every column share a leaf, too: pairs of them that disagree, each row in one pair at most,
    cost what agreeing would cost them beyond that. And a tree of j nodes, which have a feature each
    at least, is right in no more than j + 1 classes.
    """
    counts, own = problem.counts, problem.weight - problem.counts.max(axis=1)
    errors = float(own.sum())
    free = np.ones(len(counts), bool)
    if problem.X.size * len(problem.X) <= 100 * LARGE:
        for i in range(len(counts)):
            if not free[i]:
                continue
            near = free & (np.abs(problem.X - problem.X[i]).max(axis=1) < MU * (1.0 - SLACK))
            near[i] = False
            both = counts + counts[i]
            extra = both.sum(axis=1) - both.max(axis=1) - own - own[i]
            gain = np.where(near, extra, 0.0)
            partner = int(gain.argmax())
            if gain[partner] > 0:
                errors += float(gain[partner])
                free[[i, partner]] = False
    nodes = np.arange(2**problem.depth)
    classes = np.sort(counts.sum(axis=0))[::-1]
    answered = np.cumsum(classes)[np.minimum(nodes, len(classes) - 1)]
    fewest = np.maximum(errors, classes.sum() - answered)
    return float((fewest / problem.baseline + problem.complexity * nodes).min())


def search(
    problem: ErrorProblem,
    seed: int,
    starts: int,
    enough: float,
    stop: Callable[[], bool],
) -> Iterator[Hyperplanes]:
    """Yield ever better trees, the first of them a leaf.

    Ends after so many starts, with a tree of an objective of no more than `enough`, or when `stop`
    says so.
    """
    best = around = leaf_tree(problem)  # `around` moves to trees as good as the best
    value = problem.objective(best)
    yield best
    for number in range(starts):
        if value <= enough + SLACK or stop():
            return
        if number >= FRESH and number % 3:
            start, emphasis = around, _shaken(problem, around, seed, number)
        else:
            start, emphasis = _start(problem, seed, number), np.ones(len(problem.X))
        for tree in _from_start(problem, start, number % 4 < 2, emphasis, stop):
            found = problem.objective(tree)
            if found <= value + SLACK:
                around = tree
            if found < value - SLACK:
                best, value = tree, found
                yield best


# ---- starts -------------------------------------------------------------------------------------


def _start(problem: ErrorProblem, seed: int, number: int) -> Hyperplanes:
    """Return a first tree: every other time by TAO, else of hyperplanes between rows."""
    if number % 2 == 0 or problem.depth > 4:
        alpha = TAO_ALPHAS[number // 2 % len(TAO_ALPHAS)]
        row, label = np.nonzero(problem.counts)
        weight = problem.counts[row, label]
        n_classes, depth = problem.counts.shape[1], problem.depth
        return tao_planes(
            problem.X[row], label, weight, n_classes, depth, alpha, (seed + number) % 2**31, 20
        )
    rng = np.random.default_rng([seed, number])
    nodes = 2**problem.depth - 1
    weights, thresholds = np.zeros((nodes, problem.X.shape[1])), np.full(nodes, -1.0)
    label = problem.counts.argmax(axis=1)
    tree = Hyperplanes(weights, thresholds, np.zeros(nodes + 1, int))
    node = np.zeros(len(problem.X), int)
    for b in range(nodes):
        rows = np.flatnonzero(node == b)
        first = rng.permutation(rows)
        others = first[label[first] != label[first[0]]] if len(first) else first
        if len(others):
            one, other = problem.X[first[0]], problem.X[others[0]]
            weights[b] = one - other
            thresholds[b] = weights[b] @ (one + other) / 2
        node[rows] = 2 * b + 1 + (problem.X[rows] @ weights[b] - thresholds[b] > 0)
    return relabel(problem, tree)


def _shaken(problem: ErrorProblem, tree: Hyperplanes, seed: int, number: int) -> Array:
    """Return random weights of the rows, larger where the tree errs, to leave it by."""
    rng = np.random.default_rng([seed, number])
    right = problem.counts[np.arange(len(problem.X)), tree.predict(problem.X)]
    wrong = right < problem.counts.max(axis=1)
    return rng.exponential(size=len(wrong)) * np.where(wrong, WRONG, 1.0)


# ---- alternation --------------------------------------------------------------------------------


def _from_start(
    problem: ErrorProblem,
    tree: Hyperplanes,
    balanced: bool,
    emphasis: Array,
    stop: Callable[[], bool],
) -> Iterator[Hyperplanes]:
    """Yield the settled trees on the way down from a start.

    `balanced`: at first, the two sides of a node count the same, however many rows want them.
    `emphasis`: what the rows count in the first sweep.
    """
    settled = settle(problem, tree)
    yield settled
    if problem.X.size > LARGE:
        return
    value = problem.objective(settled)
    for sweep in range(SWEEPS):
        if stop():
            return
        for b in reversed(range(len(tree.thresholds))):
            if stop():
                return
            tree = _improve(problem, tree, b, balanced, emphasis)
        settled = settle(problem, tree)
        found = problem.objective(settled)
        yield settled
        if found >= value - SLACK and sweep > 0:
            return
        value, emphasis = found, np.ones(len(problem.X))


def _improve(
    problem: ErrorProblem, tree: Hyperplanes, b: int, balanced: bool, emphasis: Array
) -> Hyperplanes:
    """Return the tree with node b fitted to what the others make of its rows."""
    margins = tree.margins(problem.X)
    rows = np.flatnonzero(_passes(tree, margins, b))
    if not len(rows):
        return tree
    tree = _two_answers(problem, tree, b, rows)
    forced = np.repeat(margins[rows, :][None], 2, axis=0)
    forced[0, :, b], forced[1, :, b] = -1.0, 1.0
    left, right = (
        problem.counts[rows, tree.leaf_class[tree.leaves(way)]] for way in forced
    )  # labels that each side gets right
    care = np.abs(right - left) * emphasis[rows]
    rows, right_side, care = rows[care > 0], (right > left)[care > 0], care[care > 0]
    if not len(rows):
        return tree
    weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
    if right_side.all() or not right_side.any():
        weights[b], thresholds[b] = 0.0, -1.0 if right_side.all() else 1.0
    else:
        price = problem.complexity * problem.baseline
        first = care
        if balanced:
            sums = np.where(right_side, care[right_side].sum(), care[~right_side].sum())
            first = care * (0.5 * care.sum() / sums)
        weights[b], thresholds[b] = _fit_node(problem.X[rows], right_side, first, care, price)
    return relabel(problem, Hyperplanes(weights, thresholds, tree.leaf_class))


def _two_answers(problem: ErrorProblem, tree: Hyperplanes, b: int, rows: Array) -> Hyperplanes:
    """Return the tree with different classes at the leaves of node b, which else had no say."""
    first = 2 * b + 1 - len(tree.thresholds)
    if first < 0 or tree.leaf_class[first] != tree.leaf_class[first + 1]:
        return tree
    leaf_class = tree.leaf_class.copy()
    leaf_class[first : first + 2] = np.argsort(-problem.counts[rows].sum(axis=0), kind="stable")[:2]
    return Hyperplanes(tree.weights, tree.thresholds, leaf_class)


def _passes(tree: Hyperplanes, margins: Array, b: int) -> Array:
    """Return the mask of the rows that reach node b."""
    passes = np.ones(len(margins), bool)
    while b > 0:
        parent = (b - 1) // 2
        passes &= (margins[:, parent] > 0) == (b == 2 * parent + 2)
        b = parent
    return passes


def relabel(problem: ErrorProblem, tree: Hyperplanes) -> Hyperplanes:
    """Return the tree with the most frequent class at each leaf.

    A leaf without rows answers the class that the tree does worst: that gives it something to win.
    """
    leaf = tree.leaves(tree.margins(problem.X))
    totals = np.zeros((len(tree.leaf_class), problem.counts.shape[1]))
    np.add.at(totals, leaf, problem.counts)
    label = totals.argmax(axis=1)
    right = np.bincount(label, totals.max(axis=1), minlength=totals.shape[1])
    worst = int((totals.sum(axis=0) - right).argmax())
    return Hyperplanes(tree.weights, tree.thresholds, np.where(totals.any(axis=1), label, worst))


def _fit_node(
    X: Array, right: Array, first: Array, care: Array, price: float
) -> tuple[Array, float]:
    """Return a hyperplane for two sides of rows, few of them, by `care`, on the wrong one.

    `first` takes the place of `care` in the first linear program.
    """
    n, p = X.shape
    sign = np.where(right, 1.0, -1.0)
    cost, each = first, np.full(p, price)
    w, g = np.zeros(p), 0.0
    for _ in range(REWEIGHTINGS):
        build = Builder()
        up = build.variables("up", p, 0.0, np.inf, cost=each)
        down = build.variables("down", p, 0.0, np.inf, cost=each)
        threshold = build.variables("threshold", 1, -np.inf, np.inf)
        hinge = build.variables("hinge", n, 0.0, np.inf, cost=cost)
        signed = sign[:, None] * X
        build.rows([
            (np.broadcast_to(up, X.shape), signed), (np.broadcast_to(down, X.shape), -signed),
            (np.repeat(threshold, n), -sign), (hinge, 1.0),
        ], lower=1.0)  # fmt: skip
        build.rows([(np.concatenate([up, down])[None], 1.0)], upper=1.99 / MU)
        x = highs(build.program(), Effort()).x
        if x is None:
            break
        w, g, error = x[up] - x[down], float(x[threshold[0]]), x[hinge]
        if (error <= SLACK).all() and price == 0.0:
            break
        cost, each = care / (error + 0.1), price / (np.abs(w) + 0.1)
    w[np.abs(w) <= 1e-9 * np.abs(w).max(initial=0.0)] = 0.0
    return w, g
