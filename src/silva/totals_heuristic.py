"""Trees with exact class totals for data of any size: alternation, then thresholds.

Minimises what a `TotalsProblem` minimises, without its promise: rows may lie in a slab and labels
may err. A TAO tree is fitted to the labels and to an opinion about the unlabelled rows. Then the
thresholds of its last level move until the counts of all classes are exact. Every gap between two
rows is a possible threshold, and what it costs is known for all of them from one sorting: the
labels and the opinion that it contradicts, by weight. So

    minimise  sum_j cost_j(k_j)   with   counts(k) = totals,    k_j rows left of the threshold of j,

which is solved for two classes at a time by a price on the rows that change sides (the dual of the
one constraint), and by exchange of a few rows for what the price leaves over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from silva.hyperplanes import Hyperplanes, Score, TotalsProblem, path_sides, score
from silva.oct_models import alternating
from silva.totals_planes import REACH, Space, fitted_plane, widest_plane
from silva.totals_starts import Opinion, guiding_tree
from silva.tree import Array

TREES = 10
PRICES = 50  # halvings of the interval of the price
NARROWEST = 1e-9  # gap that a threshold fits in, in units of the range
TIE_BREAKER = 1e-4  # of a direction, where rows lie in the same place along it


@dataclass(frozen=True, eq=False)
class Exact:
    """A tree, its score, and what it contradicts of labels and opinion, by weight."""

    tree: Hyperplanes
    score: Score
    cost: float


@dataclass(frozen=True, eq=False)
class Cuts:
    """The thresholds of one direction, from left to right.

    Attributes
    ----------
    weights : array of shape (features,)
    classes : (int, int)
        Of the rows on the left and on the right.
    left : int array
        Unlabelled rows on the left of each threshold, all different.
    cost : float array
        What each threshold contradicts of labels and opinion.
    threshold : float array
    """

    weights: Array
    classes: tuple[int, int]
    left: Array
    cost: Array
    threshold: Array


def alternate(
    problem: TotalsProblem,
    opinion: Opinion,
    seed: int,
    stop: Callable[[], bool],
    trees: int = TREES,
) -> Exact:
    """Return the tree, of several, with the totals met and the least contradiction.

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
    for one in alternations(problem, opinion, seed, trees):
        found.append(one)
        if stop():
            break
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


def cleared(problem: TotalsProblem, tree: Hyperplanes) -> Hyperplanes | None:
    """Return a tree that answers as the given one, with every slab empty.

    A plane and the sides of its rows being given, a linear program widens the gap between them; it
    is wide enough, or there is no such tree with these sides: None. Labelled rows with a wrong
    answer do not count.
    """
    leaf = tree.leaves(tree.margins(problem.labelled))
    fits = tree.leaf_class[leaf] == problem.classes
    space = Space.of(problem.unlabelled, problem.box)
    sides, beyond = path_sides(tree.depth)[leaf], tree.margins(problem.unlabelled) > 0
    weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
    for b in range(len(thresholds)):
        passes = fits & (sides[:, b] != 0)
        X, side = problem.labelled[passes], sides[passes, b].astype(float)
        right = np.concatenate([beyond[:, b], side > 0])
        if right.all() or not right.any():
            weights[b], thresholds[b] = 0.0, -1.0 if right.all() else 1.0
            continue
        place = _widest_gap(problem, weights[b], X, side, beyond[:, b])
        if place is None:
            w = widest_plane(space, weights[b], thresholds[b], X, side, problem.unlabelled)
            place = None if w is None else _widest_gap(problem, w, X, side, beyond[:, b])
            if w is None or place is None:
                return None
            weights[b] = w
        thresholds[b] = place
    return Hyperplanes(weights, thresholds, tree.leaf_class)


def _widest_gap(
    problem: TotalsProblem, w: Array, X: Array, side: Array, beyond: Array
) -> float | None:
    """Return the threshold in the middle of a gap between two sides, if it is wide enough."""
    value, known = problem.unlabelled @ w, X @ w
    low = max(value[~beyond].max(initial=-np.inf), known[side < 0].max(initial=-np.inf))
    high = min(value[beyond].min(initial=np.inf), known[side > 0].min(initial=np.inf))
    return 0.5 * (low + high) if high - low >= 2.0 * REACH else None


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
    last = _Last.below(problem, opinion, tree, trust)
    found = last.tree(last.directions())
    if found.score.total_error > 0:  # rows in the same place cannot be told apart
        directions = [
            w
            + TIE_BREAKER
            * np.abs(w * last.space.spread).max()
            * rng.normal(size=len(w))
            / last.space.spread
            for w in last.directions()
        ]
        other = last.tree(directions)
        if _rank(other) < _rank(found):
            found = other
    return found


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

    def directions(self) -> list[Array]:
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
        return found

    def tree(self, directions: list[Array]) -> Exact:
        """Return the tree with these directions and the best thresholds."""
        problem, upper = self.problem, self.upper
        cuts = [cuts_along(w, *self.rows(j), problem.n_classes) for j, w in enumerate(directions)]
        chosen = choose_cuts(cuts, problem.totals)
        inner = len(upper.thresholds) // 2
        weights, thresholds = upper.weights.copy(), upper.thresholds.copy()
        leaf_class = upper.leaf_class.copy()
        for j, (cut, k) in enumerate(zip(cuts, chosen, strict=True)):
            weights[inner + j], thresholds[inner + j] = cut.weights, cut.threshold[k]
            leaf_class[2 * j : 2 * j + 2] = cut.classes
        size = np.abs(weights).max(axis=1)
        scale = np.where(size > 0, problem.box / np.where(size > 0, size, 1.0), 1.0)
        tree = Hyperplanes(weights * scale[:, None], thresholds * scale, leaf_class)
        if problem.fixed_leaves:
            tree = alternating(tree)
        cost = sum(float(cut.cost[k]) for cut, k in zip(cuts, chosen, strict=True))
        return Exact(tree, score(problem, tree), cost)


def cuts_along(
    w: Array, X: Array, counted: Array, label: Array, weight: Array, n_classes: int
) -> Cuts:
    """Return all thresholds of a direction, and the two classes that suit it best.

    Parameters
    ----------
    w : array of shape (features,)
    X : array of shape (rows, features)
    counted : bool array
        Which rows count for the totals.
    label, weight : arrays
        Class that a row should have, and how much that matters.
    n_classes : int
    """
    if not w.any() or not len(X):
        share = np.bincount(label, weight, minlength=n_classes)
        best, total = int(share.argmax()), float(share.sum())
        left = np.array([int(counted.sum())])
        return Cuts(np.zeros(len(w)), (best, best), left, total - share[[best]], np.ones(1))
    value = X @ w
    order = np.argsort(value, kind="stable")
    value, label, weight = value[order], label[order], weight[order]
    step = np.diff(value)
    gap = np.flatnonzero(step > NARROWEST * max(float(np.abs(value).max()), 1e-300))
    far = 1.0 + abs(float(value[-1] - value[0]))
    places = np.concatenate([[0], gap + 1, [len(value)]])  # rows on the left
    threshold = np.concatenate([
        [value[0] - far], 0.5 * (value[gap] + value[gap + 1]), [value[-1] + far],
    ])  # fmt: skip
    right = np.zeros((len(value) + 1, n_classes))
    right[np.arange(1, len(value) + 1), label] = weight
    right = np.cumsum(right, axis=0)
    total = right[-1]
    on_left, on_right = right[places], total - right[places]
    one, other = _best_pair(on_left, on_right)
    cost = total.sum() - on_left[:, one] - on_right[:, other]
    left = np.concatenate([[0], np.cumsum(counted[order])])[places]
    cheapest = np.lexsort((cost, left))  # labelled rows alone between some thresholds
    keep = cheapest[np.concatenate([[True], np.diff(left[cheapest]) > 0])]
    return Cuts(w, (one, other), left[keep], cost[keep], threshold[keep])


def _best_pair(on_left: Array, on_right: Array) -> tuple[int, int]:
    """Return the different classes of the two sides that are right at the best threshold."""
    if on_left.shape[1] == 1:
        return 0, 0
    best, found = (0, 1), -np.inf
    for one in range(on_left.shape[1]):
        others = on_right.copy()
        others[:, one] = -np.inf
        value = on_left[:, one] + others.max(axis=1)
        k = int(value.argmax())
        if value[k] > found:
            best, found = (one, int(others[k].argmax())), float(value[k])
    return best


# ---- totals -------------------------------------------------------------------------------------


def choose_cuts(cuts: list[Cuts], totals: Array) -> list[int]:
    """Return a threshold for each node: the class counts are the totals, if they can be."""
    at = [int(cut.cost.argmin()) for cut in cuts]
    rows = [int(cut.left[-1]) for cut in cuts]
    for _ in range(4 * len(totals)):
        lacking = totals - _counts(cuts, at, rows, len(totals))
        to, source = int(lacking.argmax()), int(lacking.argmin())
        amount = int(min(lacking[to], -lacking[source]))
        if amount == 0:
            break
        before = list(at)
        for one, next_one in _way(cuts, source, to):
            _move(cuts, at, one, next_one, amount)
        if at == before:
            break
    return at


def _counts(cuts: list[Cuts], at: list[int], rows: list[int], n_classes: int) -> Array:
    counts = np.zeros(n_classes, int)
    for cut, k, all_rows in zip(cuts, at, rows, strict=True):
        counts[cut.classes[0]] += cut.left[k]
        counts[cut.classes[1]] += all_rows - cut.left[k]
    return counts


def _way(cuts: list[Cuts], source: int, to: int) -> list[tuple[int, int]]:
    """Return the shortest way from class to class over nodes that have both."""
    pairs = {cut.classes for cut in cuts} | {cut.classes[::-1] for cut in cuts}
    came: dict[int, int] = {source: source}
    waiting = [source]
    for one in waiting:
        for a, b in sorted(pairs):
            if a == one and b not in came:
                came[b] = one
                waiting.append(b)
    way: list[tuple[int, int]] = []
    place = to
    while place != source and place in came:
        way.insert(0, (came[place], place))
        place = came[place]
    return way


def _move(cuts: list[Cuts], at: list[int], source: int, to: int, amount: int) -> None:
    """Move thresholds so that `amount` rows go from one class to another, at the least cost."""
    nodes = [
        j for j, cut in enumerate(cuts) if set(cut.classes) == {source, to} and len(cut.left) > 1
    ]
    gains = {
        j: (cuts[j].left - cuts[j].left[at[j]]) * (1 if cuts[j].classes[0] == to else -1)
        for j in nodes
    }

    def at_price(price: float) -> tuple[dict[int, int], int]:
        chosen = {j: int((cuts[j].cost - price * gains[j]).argmin()) for j in nodes}
        return chosen, sum(int(gains[j][k]) for j, k in chosen.items())

    chosen = {j: at[j] for j in nodes}
    low, high = 0.0, 1.0 + 2.0 * sum(float(np.ptp(cuts[j].cost)) for j in nodes)
    for _ in range(PRICES):
        price = 0.5 * (low + high)
        found, gained = at_price(price)
        if 0 <= gained <= amount:
            chosen, low = found, price
        elif gained < 0:
            low = price
        else:
            high = price
    over = amount - sum(int(gains[j][k]) for j, k in chosen.items())
    chosen = _exchange(cuts, gains, chosen, over)
    for j, k in chosen.items():
        at[j] = k


def _exchange(
    cuts: list[Cuts], gains: dict[int, Array], chosen: dict[int, int], over: int
) -> dict[int, int]:
    """Return the choice with `over` more rows: by one node, else by two, else as near as can be."""
    if over == 0 or not chosen:
        return chosen
    best, least = chosen, np.inf
    moves = {j: (gains[j] - gains[j][k], cuts[j].cost - cuts[j].cost[k]) for j, k in chosen.items()}
    for j, (gain, cost) in moves.items():
        for k in np.flatnonzero(gain == over):
            if cost[k] < least:
                best, least = {**chosen, j: int(k)}, float(cost[k])
    if np.isfinite(least):
        return best
    for i, (gain, cost) in moves.items():
        for j, (other_gain, other_cost) in moves.items():
            if j <= i:
                continue
            _, here, there = np.intersect1d(gain, over - other_gain, return_indices=True)
            if len(here):
                value = cost[here] + other_cost[there]
                at = int(value.argmin())
                if value[at] < least:
                    best = {**chosen, i: int(here[at]), j: int(there[at])}
                    least = float(value[at])
    if np.isfinite(least):
        return best
    near = {j: int(np.abs(gain - over).argmin()) for j, (gain, _) in moves.items()}
    j = min(near, key=lambda j: abs(int(moves[j][0][near[j]]) - over))
    if abs(int(moves[j][0][near[j]]) - over) < abs(over):
        return {**chosen, j: near[j]}
    return chosen
