"""Trees with exact class totals for data of any size: alternation, then thresholds.

Minimises what a `TotalsProblem` minimises, without its promise: rows may lie in a slab and labels
may err. A TAO tree is fitted to the labels and to an opinion about the unlabelled rows. Then the
thresholds of its last level move until the counts of all classes are exact. Every gap between two
rows is a possible threshold (`totals_cuts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes, Score, TotalsProblem, path_sides, score
from silva.optimal.oct_models import alternating
from silva.optimal.totals_cuts import choose_cuts, cuts_along
from silva.optimal.totals_planes import CLEAR, Space, fitted_plane, widest_plane
from silva.optimal.totals_starts import Opinion, guiding_tree
from silva.tree import Array

TREES = 10
TIE_BREAKER = 1e-4  # of a direction, where rows lie in the same place along it


@dataclass(frozen=True, eq=False)
class Exact:
    """A tree, its score, and what it contradicts of labels and opinion, by weight."""

    tree: Hyperplanes
    score: Score
    cost: float


def alternate(
    problem: TotalsProblem,
    opinion: Opinion,
    seed: int,
    stop: Callable[[], bool],
    trees: int = TREES,
) -> Exact:
    """Return the tree, of several, with the totals met and the least contradiction.

    A keyboard interrupt ends it with the trees so far, if there are any.

    Parameters
    ----------
    problem : TotalsProblem
    opinion : Opinion
    seed : int
    stop : function
        Asked before every tree but the first.
    trees : int
    """
    found: list[Exact] = []
    try:
        for one in alternations(problem, opinion, seed, trees):
            found.append(one)
            if stop():
                break
    except KeyboardInterrupt:
        if not found:
            raise
    return min(found, key=_rank)


def alternations(
    problem: TotalsProblem,
    opinion: Opinion,
    seed: int,
    trees: int,
    trust: tuple[float, ...] = (1.0,),
) -> Iterator[Exact]:
    """Yield trees that meet the totals; `trust` is that in labels against the opinion, in turn."""
    rng = np.random.default_rng(seed)
    for number in range(trees):
        guide = guiding_tree(problem, opinion, rng, disturbed=number > 0)
        yield with_totals(problem, opinion, guide, rng, trust[number % len(trust)])


def emptied(
    problem: TotalsProblem, opinion: Opinion, seed: int, stop: Callable[[], bool]
) -> Exact | None:
    """Return the tree, of several, that keeps all constraints and contradicts least, or None.

    `stop` is asked before every tree.
    """
    rng = np.random.default_rng(seed)
    found: list[Exact] = []
    while len(found) < TREES and not stop():
        guide = guiding_tree(problem, opinion, rng, disturbed=len(found) > 0)
        found.append(with_empty_slabs(problem, opinion, guide))
    kept = [one for one in found if one.score.feasible and one.score.total_error == 0]
    return min(kept, key=_rank, default=None)


def cleared(problem: TotalsProblem, tree: Hyperplanes) -> Hyperplanes | None:
    """Return a tree that answers as the given one, with every slab empty, or None.

    A plane and the sides of its rows being given, a linear program widens the gap between them.
    Rows that do not pass the node may be on either side; the program has them where they are, and
    if that fails it is asked without them. Labelled rows with a wrong answer do not count.
    """
    space, all_sides = Space.of(problem.unlabelled, problem.box), path_sides(tree.depth)
    leaf = tree.leaves(tree.margins(problem.labelled))
    fits = tree.leaf_class[leaf] == problem.classes
    known, U = all_sides[leaf] * fits[:, None], problem.unlabelled
    unknown = all_sides[tree.leaves(tree.margins(U))]
    weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
    for b in range(len(thresholds)):
        passing, own = known[:, b] != 0, unknown[:, b] != 0
        X, side = problem.labelled[passing], known[passing, b].astype(float)
        right = np.concatenate([unknown[own, b], known[passing, b]]) > 0
        if right.all() or not right.any():
            weights[b], thresholds[b] = 0.0, -1.0 if right.all() and len(right) else 1.0
            continue
        place = _widest_gap(U, unknown[:, b], weights[b], X, side)
        for rows in (U, U[own]):
            if place is not None:
                break
            w = widest_plane(space, tree.weights[b], tree.thresholds[b], X, side, rows)
            if w is not None:
                weights[b], place = w, _widest_gap(U, unknown[:, b], w, X, side)
        if place is None:
            return None
        thresholds[b] = place
    return Hyperplanes(weights, thresholds, tree.leaf_class)


def _widest_gap(U: Array, sides: Array, w: Array, X: Array, known: Array) -> float | None:
    """Return the middle of the widest gap between two sides, if it is wide enough.

    Unlabelled rows have a side or, where it does not matter, none (0); labelled ones have one.
    """
    value, own = U @ w, X @ w
    low = max(value[sides < 0].max(initial=-np.inf), own[known < 0].max(initial=-np.inf))
    high = min(value[sides > 0].min(initial=np.inf), own[known > 0].min(initial=np.inf))
    if high - low < 2.0 * CLEAR:
        return None
    edges = np.sort(np.concatenate([[low, high], value[(value > low) & (value < high)]]))
    k = int(np.diff(edges).argmax())
    return 0.5 * (edges[k] + edges[k + 1]) if edges[k + 1] - edges[k] >= 2.0 * CLEAR else None


def _rank(found: Exact) -> tuple[float, float]:
    return found.score.total_error, found.cost


def with_totals(
    problem: TotalsProblem,
    opinion: Opinion,
    tree: Hyperplanes,
    rng: np.random.Generator,
    trust: float = 1.0,
) -> Exact:
    """Return the tree with a last level whose class counts are as near to the totals as can be."""
    scale = _to_box(problem, tree.weights)
    boxed = Hyperplanes(tree.weights * scale[:, None], tree.thresholds * scale, tree.leaf_class)
    last = _Last.below(problem, opinion, boxed, trust)
    directions = last.directions()
    found = last.tree(directions)
    if found.score.total_error > 0:  # rows in the same place cannot be told apart
        widest = np.abs(directions * last.space.spread).max(axis=1, keepdims=True)
        noise = rng.normal(size=directions.shape) / last.space.spread
        found = min(found, last.tree(directions + TIE_BREAKER * widest * noise), key=_rank)
    return found


def with_empty_slabs(
    problem: TotalsProblem, opinion: Opinion, tree: Hyperplanes, trust: float = 1.0
) -> Exact:
    """Return the tree with all thresholds in gaps as wide as a slab, its counts near the totals.

    Of many rows few are next to such a gap, so that it contradicts more than `with_totals`.
    """
    found = []
    for fit in (_boxed, _on_lattice):
        upper = _moved_into_gaps(problem, tree, fit(problem, tree.weights))
        last = _Last.below(problem, opinion, upper, trust)
        found.append(last.tree(fit(problem, last.directions()), clear=True))
    return min(found, key=_rank)


def _to_box(problem: TotalsProblem, weights: Array) -> Array:
    """Return the factor that takes each row of weights to the size of the box."""
    size = np.abs(weights).max(axis=1)
    return np.asarray(problem.box / np.where(size > 0, size, problem.box))


def _boxed(problem: TotalsProblem, weights: Array) -> Array:
    return np.asarray(weights * _to_box(problem, weights)[:, None])


def _on_lattice(problem: TotalsProblem, weights: Array) -> Array:
    """Return weights near the given ones that leave gaps as wide as slabs between rows.

    If the values of a column are multiples of d apart, and its weight is a multiple of 2 / d, all
    rows lie on a lattice with steps of 2. Columns whose values are too close for that get no
    weight.
    """
    steps = np.array([
        np.diff(np.unique(column)).min(initial=np.inf) for column in problem.unlabelled.T
    ])  # fmt: skip
    unit = 2.0 * CLEAR / steps * (1.0 + 1e-9)
    coarse = _boxed(problem, np.where(unit <= problem.box, weights, 0.0))
    most = np.floor(problem.box / unit)
    times = np.clip(np.round(coarse / np.where(unit > 0, unit, 1.0)), -most, most)
    return np.asarray(times * unit)


def _moved_into_gaps(problem: TotalsProblem, tree: Hyperplanes, weights: Array) -> Hyperplanes:
    """Return the tree with other weights and, above its last level, empty slabs.

    Of the thresholds with an empty slab, the one that parts the rows most nearly as before.
    """
    thresholds = tree.thresholds.copy()
    for b in range(len(thresholds) // 2):
        if weights[b].any():
            left = np.sum(problem.unlabelled @ tree.weights[b] < tree.thresholds[b])
            free, value = clear_thresholds(problem, weights[b]), problem.unlabelled @ weights[b]
            thresholds[b] = free[np.abs(np.searchsorted(np.sort(value), free) - left).argmin()]
        elif tree.weights[b].any():
            thresholds[b] = 1.0
    return Hyperplanes(weights, thresholds, tree.leaf_class)


def clear_thresholds(problem: TotalsProblem, w: Array) -> Array:
    """Return thresholds, in rising order, whose slab holds no unlabelled row.

    The middle of each gap that is wide enough, and one on either side of all rows.
    """
    value = np.sort(problem.unlabelled @ w)
    wide = np.flatnonzero(np.diff(value) >= 2.0 * CLEAR)
    middle = 0.5 * (value[wide] + value[wide + 1])
    return np.concatenate([[value[0] - CLEAR], middle, [value[-1] + CLEAR]])


@dataclass(frozen=True, eq=False)
class _Last:
    """The last level of a tree: the rows that reach each node, and what is thought of them."""

    problem: TotalsProblem
    upper: Hyperplanes
    space: Space
    labelled: Array  # node of each labelled row, counted from the left
    unlabelled: Array
    label: Array  # class of all rows, labelled ones first
    weight: Array

    @staticmethod
    def below(problem: TotalsProblem, opinion: Opinion, tree: Hyperplanes, trust: float) -> _Last:
        n, m = len(problem.labelled), len(problem.unlabelled)
        known = trust * max(1.0, 0.3 * m / n)
        return _Last(
            problem, tree, Space.of(problem.unlabelled, problem.box),
            tree.leaves(tree.margins(problem.labelled)) // 2,
            tree.leaves(tree.margins(problem.unlabelled)) // 2,
            np.concatenate([problem.classes, opinion.wanted]),
            np.concatenate([np.full(n, known), opinion.confidence]),
        )  # fmt: skip

    def rows(self, j: int) -> tuple[Array, Array, Array, Array]:
        """Return the rows of a node, whether they count, their classes and weights."""
        known, unknown = self.labelled == j, self.unlabelled == j
        X = np.concatenate([self.problem.labelled[known], self.problem.unlabelled[unknown]])
        counted = np.arange(len(X)) >= known.sum()
        both = np.concatenate([known, unknown])
        return X, counted, self.label[both], self.weight[both]

    def directions(self) -> Array:
        """Return a direction for each node: as it is, or fitted where it has none."""
        inner = len(self.upper.thresholds) // 2
        found = []
        for j, w in enumerate(self.upper.weights[inner:]):
            classes = self.upper.leaf_class[2 * j : 2 * j + 2]
            if not w.any() or classes[0] == classes[1]:
                X, _, label, weight = self.rows(j)
                kinds, of_row = np.unique(label, return_inverse=True)
                largest = np.bincount(of_row, weight).argmax() if len(kinds) else 0
                fitted = fitted_plane(self.space, X, of_row != largest, weight + 1e-9)
                w = np.zeros(len(w)) if fitted is None else fitted[0]
            found.append(w)
        return np.array(found)

    def tree(self, directions: Array, *, clear: bool = False) -> Exact:
        """Return the tree with these directions and the best thresholds, `clear` of all rows."""
        problem, upper = self.problem, self.upper
        if not clear:
            directions = _boxed(problem, directions)
        cuts = [
            cuts_along(
                w, *self.rows(j), problem.n_classes,
                clear_thresholds(problem, w) if clear else None,
            )
            for j, w in enumerate(directions)
        ]  # fmt: skip
        chosen = choose_cuts(cuts, problem.totals)
        inner = len(upper.thresholds) // 2
        weights, thresholds = upper.weights.copy(), upper.thresholds.copy()
        leaf_class = upper.leaf_class.copy()
        for j, (cut, k) in enumerate(zip(cuts, chosen, strict=True)):
            weights[inner + j], thresholds[inner + j] = cut.weights, cut.threshold[k]
            leaf_class[2 * j : 2 * j + 2] = cut.classes
        tree = Hyperplanes(weights, thresholds, leaf_class)
        if problem.fixed_leaves:
            tree = alternating(tree)
        cost = sum(float(cut.cost[k]) for cut, k in zip(cuts, chosen, strict=True))
        return Exact(tree, score(problem, tree), cost)
