"""OCT-H of at most two levels by looking at every way to cut the rows in two.

n rows in p columns can be cut by hyperplanes in at most 2 sum_{k<=p} C(n - 1, k) ways (Cover 1965).
Where that is some thousands, few rows in few columns, all trees of depth 2 can be compared: the
labels in the four cells of two cuts are products of matrices. The trees come in the order of their
errors, and those whose strips of width mu are not free are passed over; what is left first is
optimal, however many errors it has. A mixed-integer program needs far longer for that.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, combinations
from math import comb

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes
from silva.optimal.oct_h import ErrorProblem
from silva.optimal.oct_search import relabel
from silva.optimal.oct_settle import leaf_tree, separate, settle
from silva.tree import Array

MOST_CUTS = 20_000  # a quarter of a minute for 200 rows
MOST_TRIALS = 3_000  # linear programs that ask whether a cut leaves its strip free
BLOCK = 1024  # cuts, times classes, compared with all others at a time
ON_PLANE = 1e-9


def can_enumerate(problem: ErrorProblem) -> bool:
    """Return whether the problem is one for `enumerate_trees`."""
    n, p = problem.X.shape
    ways = accumulate(comb(n - 1, k) for k in range(min(n - 1, p) + 1))
    small = all(count <= MOST_CUTS for count in ways)
    return small and problem.depth <= 2 and problem.complexity == 0.0


def enumerate_trees(
    problem: ErrorProblem, errors: float, stop: Callable[[], bool]
) -> tuple[Hyperplanes | None, float]:
    """Return a tree of fewer errors than given, if any, and a bound of the errors of all trees.

    The bound is the smallest number of errors unless `stop` answers True or too many cuts are too
    narrow.
    """
    # Rows that agree in seven digits are nowhere mu apart: they stay together, and planes through
    # rows can be told from planes beside them.
    places, place = np.unique(np.round(problem.X, 7), axis=0, return_inverse=True)
    cuts = dichotomies(places)[:, place.ravel()]
    if problem.depth == 1:
        fewest = _errors_of_cut(problem, cuts, np.ones(len(problem.X), bool))
    else:
        found = _errors_below(problem, cuts, stop)
        if found is None:
            return None, 0.0
        fewest = found
    best, trials, bound = None, _Trials(problem, stop), np.inf
    for number in np.argsort(fewest, kind="stable"):
        if fewest[number] >= min(errors - 0.5, bound):
            break
        tree = _tree_of_cut(problem, cuts, cuts[number], errors, trials)
        if trials.over:  # this cut and those to come are not settled
            bound = float(fewest[number])
        if tree is not None:
            best, errors = tree, problem.errors(tree)
    return best, min(errors, bound)


class _Trials:
    """Asks whether the strip of a cut can be free, until it has been asked too often."""

    def __init__(self, problem: ErrorProblem, stop: Callable[[], bool]) -> None:
        self.problem, self.stop, self.left = problem, stop, MOST_TRIALS
        self.over = False

    def plane(self, rows: Array, right: Array) -> tuple[Array, float] | None:
        self.left -= 1
        self.over = self.over or self.left < 0 or self.stop()
        return None if self.over else separate(self.problem.X[rows], right)


def dichotomies(X: Array) -> Array:
    """Return every way to cut distinct rows by a hyperplane, one of each two opposite ways.

    A bool array of shape (cuts, rows); the first row is never on the True side, and one cut leaves
    that side empty. A hyperplane can be moved until it passes through as many independent rows as
    the space has dimensions, with no row changing sides; where more rows are on it, they are cut
    within it.
    """
    n = len(X)
    points = _own_coordinates(X)
    dimensions = points.shape[1]
    if dimensions == 0:
        return np.zeros((1, n), bool)
    if dimensions == 1:
        rank = points[:, 0].argsort(kind="stable").argsort(kind="stable")
        return _opposites_removed(rank >= np.arange(n)[:, None])
    choice = np.array(list(combinations(range(n), dimensions)))
    corner = points[choice]
    spans = corner[:, 1:] - corner[:, :1]
    _, size, rotation = np.linalg.svd(spans, full_matrices=True)
    normal = rotation[:, -1]
    value = normal @ points.T - np.einsum("ij,ij->i", normal, corner[:, 0])[:, None]
    on = np.abs(value) <= ON_PLANE
    independent = size[:, -1] > ON_PLANE
    simple = independent & (on.sum(axis=1) == dimensions)
    found = [np.zeros((1, n), bool)]
    above = value > ON_PLANE
    for sides in range(2**dimensions):
        part = above[simple].copy()
        for place in range(dimensions):
            part[np.arange(len(part)), choice[simple, place]] = bool(sides >> place & 1)
        found.append(part)
    crowded = np.flatnonzero(independent & ~simple)
    _, first = np.unique(on[crowded], axis=0, return_index=True)
    for plane in crowded[first]:
        rows = np.flatnonzero(on[plane])
        within = dichotomies(points[rows])
        for way in (within, ~within):
            part = np.repeat(above[plane][None], len(way), axis=0)
            part[:, rows] = way
            found.append(part)
    return _opposites_removed(np.concatenate(found))


def _own_coordinates(X: Array) -> Array:
    """Return the rows in coordinates of the flat that they span, of about unit size."""
    centred = X - X.mean(axis=0)
    _, size, axes = np.linalg.svd(centred, full_matrices=False)
    rank = int((size > 1e-9 * max(float(size.max(initial=0.0)), 1e-9)).sum())
    points = centred @ axes[:rank].T
    return np.asarray(points / max(float(np.abs(points).max(initial=0.0)), 1e-300))


def _opposites_removed(cuts: Array) -> Array:
    return np.unique(cuts ^ cuts[:, :1], axis=0)


def _errors_of_cut(problem: ErrorProblem, cuts: Array, rows: Array) -> Array:
    """Return the errors among some rows if a cut were followed by two leaves."""
    counts = problem.counts * rows[:, None]
    whole = counts.sum(axis=0)
    inside = cuts.astype(float) @ counts
    right = inside.max(axis=1) + (whole - inside).max(axis=1)
    size = inside.sum(axis=1)
    return _allowed(whole.sum() - right, size, whole.sum(), problem.min_leaf)


def _errors_below(problem: ErrorProblem, cuts: Array, stop: Callable[[], bool]) -> Array | None:
    """Return, for each cut at the root, the errors of the best cuts below it, strips left aside.

    None where `stop` ended it.
    """
    counts, weight = problem.counts.astype(np.float32), problem.weight
    table = cuts.astype(np.float32)
    whole, everywhere = table @ counts, counts.sum(axis=0)
    fewest = np.empty(len(cuts))
    block = max(1, BLOCK // counts.shape[1])
    for first in range(0, len(cuts), block):
        if stop():
            return None
        part = slice(first, first + block)
        both = np.stack([(table[part] * label) @ table.T for label in counts.T])
        total = np.zeros(len(table[part]))
        # the side of the cut, then what is left of it
        for inside, size in (
            (both, whole[part].T[:, :, None]),
            (whole.T[:, None, :] - both, (everywhere - whole[part]).T[:, :, None]),
        ):
            right = inside.max(axis=0) + (size - inside).max(axis=0)
            mass = size.sum(axis=0)
            errors = _allowed(mass - right, inside.sum(axis=0), mass, problem.min_leaf)
            total += errors.min(axis=1)
        fewest[part] = total
    small = np.minimum(cuts @ weight, weight.sum() - cuts @ weight)
    fewest[(small > 0) & (small < problem.min_leaf)] = np.inf
    return fewest


def _allowed(errors: Array, size: Array, whole: Array | float, min_leaf: int) -> Array:
    """Return the errors, infinite where one of two leaves has some rows but too few."""
    if min_leaf == 1:
        return errors
    small = np.minimum(size, whole - size)
    return np.where((small > 0) & (small < min_leaf), np.inf, errors)


def _tree_of_cut(
    problem: ErrorProblem, cuts: Array, root: Array, errors: float, trials: _Trials
) -> Hyperplanes | None:
    """Return the best tree with this cut at its root, None where it errs no less than given."""
    planes: list[tuple[Array, float] | None] = [None]
    if root.any():
        planes = [trials.plane(np.ones(len(root), bool), root)]
        if planes[0] is None:
            return None
    if problem.depth == 2:
        sides = [~root, root]
        tables = [_errors_of_cut(problem, cuts, side) for side in sides]
        for side, table, other in zip(sides, tables, tables[::-1], strict=True):
            for number in np.argsort(table, kind="stable"):
                if table[number] + other.min() >= errors - 0.5 or trials.over:
                    return None
                within = cuts[number][side]
                one_sided = within.all() or not within.any()
                plane = None if one_sided else trials.plane(side, within)
                if one_sided or plane is not None:
                    planes.append(plane)
                    break
    tree = leaf_tree(problem)
    for b, plane in enumerate(planes):
        if plane is not None:
            tree.weights[b], tree.thresholds[b] = plane
    tree = settle(problem, relabel(problem, tree))
    return tree if problem.errors(tree) < errors - 0.5 else None
