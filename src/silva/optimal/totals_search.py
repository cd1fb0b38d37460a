"""Trees that S²OCT proves optimal by their objective: labels fitted, totals met, every slab empty.

The objective of a `TotalsProblem` is never negative, so a tree with objective 0 is optimal; on real
data such trees abound, and finding one is the whole task. Most attempts are with *whole trees*: one
that has all labels right, be it from the heuristic, an alternation of planes and leaves or OCT-H's
search (`totals_starts`), is moved to the totals (`totals_descent`), then linear programs empty its
slabs. All other attempts go from the root down:

1. *Branches*: planes above the last level, clear of all rows, drawn around those of a TAO
   tree fitted to an opinion about the unlabelled rows, between pairs of rows, or along columns.
   They are kept if the labelled rows of each node below can be separated.
2. *Clearings*: for each node of the last level, clear planes for many numbers of rows on the left.
3. *Totals*: one plane for each of these nodes, such that the class counts are exact and the opinion
   agrees most. If no choice fits, the nodes are asked for the numbers that are missing.

Everything that fails is thrown away: an attempt takes milliseconds to seconds. Labels that cannot
be separated are let go only if asked for, then the tree is feasible, not optimal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes, Score, TotalsProblem, alternating_leaves, score
from silva.optimal.totals_descent import descents
from silva.optimal.totals_heuristic import cleared, with_totals
from silva.optimal.totals_planes import (
    Clearings,
    Option,
    Plane,
    Space,
    fitted_plane,
    nearest_plane,
    pulled_plane,
)
from silva.optimal.totals_starts import (
    PULLED,
    Opinion,
    alternated,
    guiding_tree,
    hardened,
    proposed_direction,
    separated,
)
from silva.tree import Array

DIRECTIONS = 64  # random ones at a time
GUIDED = 10  # attempts with the same TAO tree
ROUNDS = 8  # of asking for the numbers that are missing
KEPT = 600  # partial choices of planes
WHOLE = 0.75  # of the attempts are with whole trees
WHOLE_SOURCES = ("heuristic", "alternation", "fewest errors")  # alternation for two classes only
TRUST = (1.0, 10.0, 100.0)  # of the heuristic in labels, against the opinion


@dataclass(frozen=True, eq=False)
class Found:
    """A tree, its score, what the opinion thinks of it, and how it came about."""

    tree: Hyperplanes
    score: Score
    cost: float
    source: str


@dataclass(frozen=True, eq=False)
class Setting:
    """What all parts of the search share."""

    problem: TotalsProblem
    opinion: Opinion
    space: Space
    rng: np.random.Generator
    strict: bool


@dataclass(frozen=True, eq=False)
class Branches:
    """Planes above the last level, and the rows that reach each node of it.

    Attributes
    ----------
    weights, thresholds : arrays over the nodes above the last level
    labelled : list of int arrays
        Labelled rows of each node of the last level.
    counted : list of bool arrays
        Unlabelled rows of each.
    source : str
    """

    weights: Array
    thresholds: Array
    labelled: list[Array]
    counted: list[Array]
    source: str


def search(
    problem: TotalsProblem,
    opinion: Opinion,
    seed: int,
    stop: Callable[[], bool],
    strict: bool = True,
) -> Iterator[Found]:
    """Yield trees with exact totals and empty slabs until `stop` says so.

    Parameters
    ----------
    problem : TotalsProblem
    opinion : Opinion
        Which class an unlabelled row probably has: trees that agree with it are preferred.
    seed : int
    stop : function
        Asked before each attempt and now and then within it.
    strict : bool
        Yield only trees without labelled error, which are optimal.
    """
    rng = np.random.default_rng(seed)
    space = Space.of(problem.unlabelled, problem.box)
    setting = Setting(problem, opinion, space, rng, strict)
    attempt, nearest, best = 0, np.inf, None
    while not stop():
        if attempt % GUIDED == 0:
            guide = guiding_tree(problem, opinion, rng, disturbed=attempt > 0)
        whole = strict and attempt >= 3 and rng.random() < WHOLE
        attempt += 1
        if whole:
            yield from _moved_to_totals(setting, guide, stop)
            continue
        if best is not None and rng.random() < 0.5:
            branches = _proposed_branches(setting, best, follow=True)
        else:
            branches = _proposed_branches(setting, guide)
        if branches is None:
            continue
        found, missed = _complete(setting, branches, stop)
        if missed < nearest:  # the planes of the nearest miss guide the next attempts
            nearest = missed
            best = Hyperplanes(branches.weights, branches.thresholds, alternating_leaves(1))
        if found is not None:
            yield found


# ---- whole trees --------------------------------------------------------------------------------


def _moved_to_totals(
    setting: Setting, guide: Hyperplanes, stop: Callable[[], bool]
) -> Iterator[Found]:
    """Move the planes of a tree with all labels right to the totals, then empty its slabs."""
    problem, opinion, rng = setting.problem, setting.opinion, setting.rng
    source = rng.choice(WHOLE_SOURCES if problem.fixed_leaves else WHOLE_SOURCES[::2])
    if source == "heuristic":
        rough = with_totals(problem, opinion, guide, rng, float(rng.choice(TRUST)))
        start = hardened(problem, setting.space, rough.tree)
    elif source == "alternation":
        start = alternated(problem, opinion, setting.space, guide, rng)
    else:
        start = separated(problem, opinion, setting.space, rng, stop)
    if start is None:
        return
    least = np.inf
    for exact in descents(problem, opinion, setting.space, start, rng, stop):
        cost = opinion.contradiction(exact.predict(problem.unlabelled))
        tree = cleared(problem, exact) if cost < least else None
        if tree is not None and (worth := score(problem, tree)).solved:
            least = cost
            yield Found(tree, worth, cost, str(source))


# ---- branches -----------------------------------------------------------------------------------


class _Growing:
    """Planes from the root down, and the rows that reach each node."""

    def __init__(self, problem: TotalsProblem) -> None:
        inner = 2 ** (problem.depth - 1) - 1
        self.problem = problem
        self.weights, self.thresholds = np.zeros((inner, problem.n_features)), np.ones(inner)
        self.labelled = [np.arange(len(problem.labelled))]
        self.counted = [np.ones(len(problem.unlabelled), bool)]

    def set_plane(self, b: int, weights: Array, threshold: float) -> None:
        """Set the plane of node b, the nodes before it being set."""
        self.weights[b], self.thresholds[b] = weights, threshold
        rows, mask = self.labelled[b], self.counted[b]
        right = self.problem.labelled[rows] @ weights > threshold
        beyond = self.problem.unlabelled @ weights > threshold
        self.labelled += [rows[~right], rows[right]]
        self.counted += [mask & ~beyond, mask & beyond]

    def branches(self, source: str) -> Branches:
        """Return what has grown, all planes being set."""
        inner = len(self.thresholds)
        return Branches(
            self.weights, self.thresholds, self.labelled[inner:], self.counted[inner:], source
        )


def _proposed_branches(
    setting: Setting, guide: Hyperplanes, follow: bool = False
) -> Branches | None:
    """Draw the planes above the last level; labelled rows go where they fall."""
    growing = _Growing(setting.problem)
    inner = len(growing.thresholds)
    for b in range(inner):
        rows, mask, last = growing.labelled[b], growing.counted[b], 2 * b + 1 >= inner
        best, least = None, np.inf
        for _ in range(6):
            for option in _clear_options(setting, guide, follow, b, rows, mask):
                right = setting.problem.labelled[rows] @ option.weights > option.threshold
                lack = 0.0 if not last else _separation(setting, rows, right, least)
                if lack < least:
                    best, least = option, lack
                if least <= 1e-6:
                    break
            if least <= 1e-6:
                break
        if best is None or (setting.strict and least > 1e-6):
            return None
        growing.set_plane(b, best.weights, best.threshold)
    return growing.branches("random branches")


def _clear_options(
    setting: Setting, guide: Hyperplanes, follow: bool, b: int, rows: Array, mask: Array
) -> list[Option]:
    """Return a few clear planes for node b, or the one that sends all rows to one side."""
    problem, rng, space = setting.problem, setting.rng, setting.space
    unused = follow and not guide.used[b]
    if unused or mask.sum() < 3 or (not follow and rng.random() < 0.12):
        side = 1.0 if rng.random() < 0.5 else -1.0
        return [Option(0.0, np.zeros(problem.n_features), side)]
    w, share = proposed_direction(
        problem, setting.opinion, space, guide, b, rows, mask, rng, follow
    )
    w = space.filled(w)
    now = problem.unlabelled @ w > np.quantile(problem.unlabelled[mask] @ w, share)
    weight = setting.opinion.confidence
    clear = Clearings(
        space,
        problem.labelled[rows],
        None,
        problem.unlabelled,
        mask,
        weight * now,
        weight * ~now,
        rng,
    )
    clear.add_around(w, DIRECTIONS)
    if not clear.options:
        clear.widen(w, 1)
    return sorted(clear.options.values(), key=lambda option: option.cost)[:2]


def _separation(setting: Setting, rows: Array, right: Array, enough: float) -> float:
    """Return what the labelled rows of the two children lack to be separated, each by one plane."""
    lack = 0.0
    for side in (~right, right):
        plane = _labelled_plane(setting, rows[side])
        if plane is None:
            continue
        lack += float(plane.slack.sum())
        if lack >= enough:
            break
    return lack


def _labelled_plane(setting: Setting, rows: Array) -> Plane | None:
    """Return a plane between the classes of the labelled rows; None where one class is all."""
    problem, space = setting.problem, setting.space
    classes = problem.classes[rows]
    kinds = np.unique(classes)
    if len(kinds) < 2:
        return None
    if len(kinds) > 2:
        return Plane(np.zeros(problem.n_features), 0.0, np.ones(len(rows)))
    right = classes == kinds[1]
    fitted = fitted_plane(space, problem.labelled[rows], right, np.ones(len(rows)))
    w, threshold = (np.zeros(problem.n_features), 0.0) if fitted is None else fitted
    if fitted is not None:
        scale = 0.9 * space.box / np.abs(w).max()
        w, threshold = scale * w, scale * threshold
    return nearest_plane(space, w, threshold, problem.labelled[rows], np.where(right, 1.0, -1.0))


# ---- the last level -----------------------------------------------------------------------------


@dataclass(eq=False)
class _Last:
    """A node of the last level: its leaf classes, its clear planes, and directions known to fit."""

    left: int
    right: int
    clear: Clearings
    fitting: list[Array]

    def contribution(self, left: int, base: int) -> int:
        """Return the class counts of an option as one number, in the given base."""
        right = self.clear.n_counted - left
        return int(left * base**self.left + right * base**self.right)


def _complete(
    setting: Setting, branches: Branches, stop: Callable[[], bool]
) -> tuple[Found | None, float]:
    """Add the last level: the totals exact, every slab empty. Return by how much it was missed."""
    problem = setting.problem
    nodes = []
    for rows, mask in zip(branches.labelled, branches.counted, strict=True):
        node = _last_node(setting, rows, mask)
        if node is None or not _has_options(setting, node) or stop():
            return None, np.inf
        nodes.append(node)
    base = len(problem.unlabelled) + 1
    goal = sum(int(total) * base**k for k, total in enumerate(problem.totals))
    table = _choices(nodes, base)
    nearest = before = np.inf
    for number in range(ROUNDS):
        if goal in table or stop():
            break
        key = min(table, key=lambda key: _missed(key, problem.totals, base))
        nearest = _missed(key, problem.totals, base)
        if number == 0:
            before = nearest
        if number >= 2 and nearest > 0.8**number * before:
            break
        lacking = problem.totals - _digits(key, base, problem.n_classes)
        for node, left in zip(nodes, table[key][1], strict=True):
            if node.clear.n_counted > 1:
                change = (lacking[node.left] - lacking[node.right]) / 2
                _aim(setting, node, left + int(np.sign(change) * np.ceil(abs(change))))
        table = _choices(nodes, base)
    if goal not in table:
        return None, nearest
    cost, lefts = table[goal]
    chosen = [node.clear.options[left] for node, left in zip(nodes, lefts, strict=True)]
    classes = (
        alternating_leaves(problem.depth)
        if problem.fixed_leaves
        else np.array([kind for node in nodes for kind in (node.left, node.right)])
    )
    tree = Hyperplanes(
        np.concatenate([branches.weights, [option.weights for option in chosen]]),
        np.concatenate([branches.thresholds, [option.threshold for option in chosen]]),
        classes,
    )
    worth = score(problem, tree)
    if not worth.feasible or (setting.strict and not worth.solved):
        return None, 0.0  # rounding: a margin that is 1 in the program may be less here
    return Found(tree, worth, cost, branches.source), 0.0


def _last_node(setting: Setting, rows: Array, mask: Array) -> _Last | None:
    """Return the node with its leaf classes; None if its labels have more classes than leaves."""
    problem, opinion = setting.problem, setting.opinion
    classes = problem.classes[rows]
    if problem.fixed_leaves:
        left, right = 0, 1
    else:
        weight = np.bincount(opinion.wanted[mask], minlength=problem.n_classes).astype(float)
        weight += len(mask) * np.bincount(classes, minlength=problem.n_classes)
        left, right = sorted(np.argsort(-weight, kind="stable")[:2].tolist())
    own = (classes == left) | (classes == right)
    if setting.strict and not own.all():
        return None
    side = np.where(classes[own] == right, 1.0, -1.0)
    weight = opinion.confidence * mask
    clear = Clearings(
        setting.space, problem.labelled[rows[own]], side, problem.unlabelled, mask,
        weight * (opinion.wanted != left), weight * (opinion.wanted != right), setting.rng,
    )  # fmt: skip
    if not (side > 0).any():
        clear.add_unused(left=True)
    if not (side < 0).any():
        clear.add_unused(left=False)
    return _Last(left, right, clear, [])


def _has_options(setting: Setting, node: _Last) -> bool:
    """Look for clear planes where the opinion wants them, then anywhere."""
    rng, clear = setting.rng, node.clear
    wanted = int((setting.opinion.wanted[clear.counted] == node.left).sum())
    for _ in range(2):
        _aim(setting, node, wanted)
    for _ in range(4):
        if clear.options:
            break
        _aim(setting, node, int(rng.integers(1, max(2, clear.n_counted))), DIRECTIONS)
    return bool(clear.options)


def _aim(setting: Setting, node: _Last, target: int, more: int = 0) -> None:
    """Look for clear planes with about `target` of the node's rows on the left."""
    rng, space, clear = setting.rng, setting.space, node.clear
    rows = np.flatnonzero(clear.counted)
    if len(rows) < 2:
        return
    target = int(np.clip(target, 1, len(rows) - 1))
    plane = _targeted_plane(setting, node, rows, target)
    if plane is None:
        return
    if not plane.fits:
        if setting.strict or np.abs(plane.weights).max() < 1e-9 or clear.side is None:
            return
        keep = plane.slack <= 1e-6  # these labels cannot all be had: let some go
        clear.X, clear.side = clear.X[keep], clear.side[keep]
    w = space.filled(plane.weights)
    node.fitting.append(w * 1.0)
    count = DIRECTIONS + more
    if len(node.fitting) > 1:  # what lies between planes that fit the labels fits them as well
        share = rng.dirichlet(np.full(min(12, len(node.fitting)), 0.5), count)
        share[:, -1] += rng.random(count)
        mixed = share @ np.array(node.fitting[-12:])
        mixed = mixed[np.abs(mixed).max(axis=1) > 1e-9]
        clear.add(space.filled(mixed))
    clear.add_around(w, count)
    if target not in clear.options:
        clear.widen(w, 6, target if clear.options else None)


def _targeted_plane(setting: Setting, node: _Last, rows: Array, target: int) -> Plane | None:
    """Return a plane with the node's labels right and about `target` of its rows on the left."""
    problem, rng, space, clear = setting.problem, setting.rng, setting.space, node.clear
    assert clear.side is not None
    likes_left = setting.opinion.preference(rows, node.left, node.right)
    likes_left = likes_left + rng.choice([0.0, 0.1, 0.4]) * rng.random(len(rows))
    right = np.ones(len(rows), bool)
    right[np.argsort(-likes_left, kind="stable")[:target]] = False
    weight = setting.opinion.confidence[rows] + 0.1
    known = list(clear.options) or [target]
    push = float(target < min(known)) - float(target > max(known))  # to the right, to the left
    if push:
        weight = weight * np.exp(rng.uniform(0.0, 5.0) * push * np.where(right, 0.5, -0.5))
    if rng.random() < 0.5:
        some = rng.choice(len(rows), min(len(rows), PULLED), replace=False)
        wanted = np.where(right[some], 1.0, -1.0)
        rows = rows[some]
        return pulled_plane(
            space, clear.X, clear.side, problem.unlabelled[rows], wanted, weight[some]
        )
    ridge = float(rng.choice([0.02, 0.2, 1.0]))
    weight = weight * rng.exponential(size=len(rows))
    fitted = fitted_plane(space, problem.unlabelled[rows], right, weight, ridge)
    if fitted is None:
        return None
    factor = np.exp(rng.uniform(0.0, np.log(60.0))) if rng.random() < 0.6 else 1.0
    w = 0.95 * space.saturated(space.filled(fitted[0]), factor)
    threshold = np.sort(problem.unlabelled[rows] @ w)[target]
    return nearest_plane(space, w, float(threshold), clear.X, clear.side)


# ---- totals -------------------------------------------------------------------------------------


def _choices(nodes: list[_Last], base: int) -> dict[int, tuple[float, tuple[int, ...]]]:
    """Return, for each vector of class counts, the cheapest choice of a plane for every node."""
    table: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for node in nodes:
        options = [
            (node.contribution(left, base), left, option.cost)
            for left, option in node.clear.options.items()
        ]
        grown: dict[int, tuple[float, tuple[int, ...]]] = {}
        for key, (cost, lefts) in table.items():
            for adds, left, more in options:
                known = grown.get(key + adds)
                if known is None or cost + more < known[0]:
                    grown[key + adds] = (cost + more, (*lefts, left))
        if len(grown) > KEPT and node is not nodes[-1]:
            grown = dict(sorted(grown.items(), key=lambda item: item[1][0])[:KEPT])
        table = grown
    return table


def _digits(key: int, base: int, n_classes: int) -> Array:
    """Return the class counts that a number stands for."""
    return np.array([key // base**k % base for k in range(n_classes)])


def _missed(key: int, totals: Array, base: int) -> float:
    """Return the paper's xi of these class counts."""
    return 0.5 * float(np.abs(_digits(key, base, len(totals)) - totals).sum())
