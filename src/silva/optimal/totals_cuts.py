"""Thresholds of the last level of a tree, such that the counts of all classes are exact.

Every gap between two rows is a possible threshold, and what it costs is known for all of them from
one sorting: the labels and the opinion that it contradicts, by weight. So

    minimise  sum_j cost_j(k_j)   with   counts(k) = totals,    k_j rows left of the threshold of j,

which is solved for two classes at a time by a price on the rows that change sides (the dual of the
one constraint), and by exchange of a few rows for what the price leaves over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silva.tree import Array

PRICES = 50  # halvings of the interval of the price
NARROWEST = 1e-9  # gap that a threshold fits in, in units of the range


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


def cuts_along(
    w: Array,
    X: Array,
    counted: Array,
    label: Array,
    weight: Array,
    n_classes: int,
    thresholds: Array | None = None,
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
    thresholds : array, optional
        The ones to choose from, in rising order; all gaps between two of the rows, if not given.
    """
    if not w.any() or not len(X):
        share = np.bincount(label, weight, minlength=n_classes)
        best, total = int(share.argmax()), float(share.sum())
        left = np.array([int(counted.sum())])
        return Cuts(np.zeros(len(w)), (best, best), left, total - share[[best]], np.ones(1))
    value = X @ w
    order = np.argsort(value, kind="stable")
    value, label, weight = value[order], label[order], weight[order]
    threshold = _gaps(value) if thresholds is None else thresholds
    places = np.searchsorted(value, threshold)  # rows on the left
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


def _gaps(value: Array) -> Array:
    """Return the middle of each gap between sorted values, and a place on either side of them."""
    gap = np.flatnonzero(np.diff(value) > NARROWEST * max(float(np.abs(value).max()), 1e-300))
    far = 1.0 + abs(float(value[-1] - value[0]))
    middle = 0.5 * (value[gap] + value[gap + 1])
    return np.concatenate([[value[0] - far], middle, [value[-1] + far]])


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
