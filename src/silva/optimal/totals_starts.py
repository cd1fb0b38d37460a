"""Where the search for trees with class totals starts: an opinion, a TAO tree, an alternation.

An `Opinion` is what is thought of the unlabelled rows: scores for each class, from any model, and
the classes that follow from them if the totals are to be exact. It decides nothing: of the trees
that meet all constraints, those that agree with it are preferred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from silva.optimal.hyperplanes import (
    Hyperplanes,
    TotalsProblem,
    alternating_leaves,
    assigned_leaves,
    leaf_errors,
    path_sides,
    score,
)
from silva.optimal.oct_h import ErrorProblem
from silva.optimal.oct_models import alternating
from silva.optimal.oct_search import search
from silva.optimal.tao_planes import tao_planes
from silva.optimal.totals_planes import (
    SATURATION,
    Space,
    fitted_plane,
    nearest_plane,
    pulled_plane,
)
from silva.tree import Array

SOURCES = ("guide", "pair", "column", "random", "opinion", "labels", "around")
SOURCE_SHARES = (0.2, 0.1, 0.1, 0.1, 0.15, 0.15, 0.2)
LABEL_COPIES = 5  # of a labelled row, beside one of a row that is only thought to have its class
PULLED = 120  # unlabelled rows in a linear program
HARDENING = 4  # rounds of moving planes until the labels are right


@dataclass(frozen=True, eq=False)
class Opinion:
    """What is thought of the unlabelled rows.

    Attributes
    ----------
    scores : array of shape (rows, classes)
        Larger is likelier.
    wanted : int array of shape (rows,)
        Class of each row, the totals exact.
    confidence : array of shape (rows,)
        How sure that is among the rows of the class; 1 on average.
    """

    scores: Array
    wanted: Array
    confidence: Array

    @staticmethod
    def of(scores: Array, totals: Array) -> Opinion:
        """Read scores: rows choose their best class in order of confidence, while there is room."""
        wanted = fill_totals(scores, totals)
        rows = np.arange(len(scores))
        others = np.where(np.arange(scores.shape[1]) == wanted[:, None], -np.inf, scores)
        margin = scores[rows, wanted] - others.max(axis=1)
        confidence = np.zeros(len(scores))
        for label in np.unique(wanted):
            own = wanted == label
            confidence[own] = rankdata(margin[own]) / own.sum()
        return Opinion(scores, wanted, confidence / max(confidence.mean(), 1e-12))

    def preference(self, rows: Array, left: int, right: int) -> Array:
        """Return how much rows like one class better than another, as ranks from 0 to 1."""
        return np.asarray(rankdata(self.scores[rows, left] - self.scores[rows, right]) / len(rows))

    def contradiction(self, answers: Array) -> float:
        """Return the confidence of the rows for which it wants another class."""
        return float(self.confidence[answers != self.wanted].sum())

    def disturbed(self, totals: Array, noise: float, rng: np.random.Generator) -> Array:
        """Return the classes wanted after some noise, the totals still exact."""
        ranks = np.column_stack([rankdata(column) / len(column) for column in self.scores.T])
        return fill_totals(ranks + noise * rng.random(ranks.shape), totals)


def fill_totals(scores: Array, totals: Array) -> Array:
    """Return classes with exact totals: the surest rows choose first, while there is room.

    With two classes these are the rows of the highest difference of scores.
    """
    room = np.array(totals, int)
    sorted_scores = np.sort(scores, axis=1)
    sureness = sorted_scores[:, -1] - sorted_scores[:, -2]
    ranking = np.argsort(-scores, axis=1, kind="stable")
    wanted = np.empty(len(scores), int)
    for row in np.argsort(-sureness, kind="stable"):
        label = next(label for label in ranking[row] if room[label] > 0)
        wanted[row] = label
        room[label] -= 1
    return wanted


def guiding_tree(
    problem: TotalsProblem, opinion: Opinion, rng: np.random.Generator, disturbed: bool
) -> Hyperplanes:
    """Return a TAO tree of labelled rows and opinion; disturbed ones differ from call to call."""
    wanted, weight = opinion.wanted, opinion.confidence + 1e-3
    if disturbed:
        wanted = opinion.disturbed(problem.totals, 0.3, rng)
        weight = weight * rng.exponential(size=len(weight)) + 1e-6
    known = max(1.0, 0.3 * len(wanted) / len(problem.labelled)) * rng.choice([1.0, 3.0, 10.0])
    X = np.concatenate([problem.labelled, problem.unlabelled])
    label = np.concatenate([problem.classes, wanted])
    weight = np.concatenate([np.full(len(problem.labelled), known), weight])
    alpha = float(rng.choice([0.05, 0.5, 3.0]))
    seed = int(rng.integers(2**31))
    return tao_planes(X, label, weight, problem.n_classes, problem.depth, alpha, seed, 10)


def proposed_direction(
    problem: TotalsProblem,
    opinion: Opinion,
    space: Space,
    guide: Hyperplanes,
    b: int,
    labelled: Array,
    mask: Array,
    rng: np.random.Generator,
    follow: bool = False,
) -> tuple[Array, float]:
    """Draw a direction for node b, and the share of its rows that goes left.

    Parameters
    ----------
    guide : Hyperplanes
        Its plane is one of the sources, the only one if it is to be followed.
    labelled : int array
        Labelled rows that reach the node.
    mask : bool array
        Unlabelled rows that reach it.
    """
    U, rows, p = problem.unlabelled, np.flatnonzero(mask), problem.n_features
    share = float(rng.uniform(0.1, 0.9))
    source = "guide" if follow else rng.choice(SOURCES, p=SOURCE_SHARES)
    if source == "guide" and guide.used[b]:
        w = guide.weights[b] / np.abs(guide.weights[b] * space.spread).max()
        if follow or rng.random() < 0.5:
            beyond = U[rows] @ guide.weights[b] > guide.thresholds[b]
            share = 1.0 - beyond.mean() + 0.1 * follow * rng.normal()
        noise = rng.normal(size=p) * (rng.random(p) < 0.5) / space.spread
        size = rng.choice([0.02, 0.05, 0.2]) if follow else rng.choice([0.0, 0.05, 0.2])
        return w + size * noise, float(np.clip(share, 0.02, 0.98))
    fitted = None
    if source == "opinion":
        labels = opinion.wanted[rows]
        weight = opinion.confidence[rows] * rng.exponential(size=len(rows)) + 1e-9
        fitted = fitted_plane(space, U[rows], labels != rng.choice(labels), weight)
    elif source == "labels":
        # labels crowd where they were easy to get: the other side leaves room for the totals
        label = rng.choice(problem.classes[labelled]) if len(labelled) else 0
        known = problem.labelled[labelled[problem.classes[labelled] == label]]
        rest = U[rows[opinion.wanted[rows] != label]]
        right = np.arange(len(known) + len(rest)) >= len(known)
        weight = rng.exponential(size=len(right)) * np.where(right, 1.0 / max(1, len(rest)), 1.0)
        weight[~right] /= max(1, len(known))
        fitted = fitted_plane(space, np.concatenate([known, rest]), right, weight)
        share = float(np.clip(problem.totals[label] / len(U) * rng.uniform(0.5, 1.2), 0.02, 0.98))
    elif source == "around" and len(labelled):
        # a plane with all labels of a class on one side, and as few other rows as can be
        label = rng.choice(np.unique(problem.classes[labelled]))
        known = problem.labelled[labelled[problem.classes[labelled] == label]]
        some = rng.choice(rows, min(len(rows), PULLED), replace=False)
        weight = np.where(opinion.wanted[some] == label, rng.uniform(0.0, 0.5), 1.0)
        tight = pulled_plane(
            space, known, -np.ones(len(known)), U[some], np.ones(len(some)), weight
        )
        if tight is not None and tight.fits:
            left = (U[rows] @ tight.weights <= tight.threshold).mean()
            return tight.weights, float(np.clip(left, 0.02, 0.98))
    elif source == "pair":
        one, other = rng.choice(rows, 2, replace=False)
        w = (U[one] - U[other]) / space.spread**2
        if np.abs(w).max() > 0:
            return w, share
    if fitted is not None:
        return fitted[0], share
    w = rng.normal(size=p) / space.spread
    if source != "random":
        j = rng.integers(p)
        w *= 0.02
        w[j] += rng.choice([-1.0, 1.0]) / space.spread[j]
    return w, share


# ---- whole trees --------------------------------------------------------------------------------


def separated(
    problem: TotalsProblem,
    opinion: Opinion,
    space: Space,
    rng: np.random.Generator,
    stop: Callable[[], bool],
) -> Hyperplanes | None:
    """Search for the tree of fewest errors on the labelled rows and a few rows of the opinion.

    The search of OCT-H is strong where labels are hard to separate; the rows of the opinion, each
    of little weight, pull the tree towards the totals. None if some label stays wrong.
    """
    some = rng.choice(len(opinion.wanted), min(len(opinion.wanted), _sample(problem, rng)), False)
    X = np.concatenate(
        [np.repeat(problem.labelled, LABEL_COPIES, axis=0), problem.unlabelled[some]]
    )
    label = np.concatenate([np.repeat(problem.classes, LABEL_COPIES), opinion.wanted[some]])
    low, high = X.min(axis=0), X.max(axis=0)
    factor = np.divide(1.0, high - low, out=np.zeros(len(low)), where=high > low)
    unit = ErrorProblem.pose((X - low) * factor, label, problem.n_classes, problem.depth, 0.0, 1)
    starts, seed = int(rng.integers(1, 4)), int(rng.integers(2**31))
    *_, best = search(unit, seed, starts, 0.0, stop)
    weights = best.weights * factor
    tree = Hyperplanes(weights, best.thresholds + weights @ low, best.leaf_class)
    if problem.fixed_leaves:
        tree = alternating(tree)
    weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
    for b in range(len(thresholds)):
        if tree.used[b]:
            weights[b], thresholds[b] = _sized(space, weights[b], thresholds[b])
        else:
            thresholds[b] = 1.0 if thresholds[b] >= 0 else -1.0
    return hardened(problem, space, Hyperplanes(weights, thresholds, tree.leaf_class))


def _sample(problem: TotalsProblem, rng: np.random.Generator) -> int:
    """Draw how many rows of the opinion take part."""
    return int(rng.choice([0, 1, 2, 4]) * (len(problem.labelled) // 4 + 5))


def alternated(
    problem: TotalsProblem,
    opinion: Opinion,
    space: Space,
    guide: Hyperplanes,
    rng: np.random.Generator,
) -> Hyperplanes | None:
    """Alternate between the leaves of all rows and the planes of all nodes, for two classes.

    The unlabelled rows take the classes that the tree gives them, corrected so that the totals are
    exact and mixed with the opinion; each row, the leaf of its class where it errs least; each
    plane, the fit to the sides that follow, moved until the labelled rows are right. None if some
    label stays wrong.
    """
    U, n, m = problem.unlabelled, len(problem.labelled), len(problem.unlabelled)
    X = np.concatenate([problem.labelled, U])
    sides = path_sides(problem.depth)
    tree = _first_tree(problem, opinion, space, guide, rng)
    mixing = rng.choice([0.0, 0.3, 0.7])
    factor = np.exp(rng.uniform(0.0, np.log(SATURATION / 2))) if rng.random() < 0.5 else 1.0
    likes = rankdata(opinion.scores[:, 0] - opinion.scores[:, 1]) / m
    for _ in range(int(rng.integers(2, 6))):
        margins = tree.margins(U)
        size = np.where(tree.used, np.median(np.abs(margins), axis=0) + 1e-9, 1.0)
        scaled = Hyperplanes(tree.weights / size[:, None], tree.thresholds / size, tree.leaf_class)
        last = len(tree.thresholds) // 2 + scaled.leaves(margins) // 2
        own = np.clip(margins[np.arange(m), last] / size[last], -1e6, 1e6)
        first = (1.0 - mixing) * rankdata(-own) / m + mixing * likes
        wanted = fill_totals(np.column_stack([first, 1.0 - first]), problem.totals)
        label = np.concatenate([problem.classes, wanted])
        errors = leaf_errors(scaled, scaled.margins(X))
        leaf = np.where(label[:, None] == tree.leaf_class, errors, np.inf).argmin(axis=1)
        weight = rng.exponential(size=n + m)
        weight[:n] *= 1.0 + 0.3 * m / n
        tree = _refitted(space, X, n, tree, sides[leaf], weight, factor)
    return hardened(problem, space, tree)


def _first_tree(
    problem: TotalsProblem,
    opinion: Opinion,
    space: Space,
    guide: Hyperplanes,
    rng: np.random.Generator,
) -> Hyperplanes:
    """Draw the branches, and fit the nodes below them to the opinion."""
    U, nodes = problem.unlabelled, 2**problem.depth - 1
    weights, thresholds = np.zeros((nodes, problem.n_features)), np.ones(nodes)
    masks, known = [np.ones(len(U), bool)], np.arange(len(problem.labelled))
    for b in range(nodes):
        mask = masks[b]
        if b < nodes // 2:
            if mask.sum() > 3:
                w, share = proposed_direction(problem, opinion, space, guide, b, known, mask, rng)
                weights[b] = 0.9 * space.filled(w)
                thresholds[b] = np.quantile(U[mask] @ weights[b], share)
            beyond = U @ weights[b] > thresholds[b]
            masks += [mask & ~beyond, mask & beyond]
            continue
        right = opinion.wanted[mask] == 1
        fitted = fitted_plane(space, U[mask], right, opinion.confidence[mask] + 1e-9)
        if fitted is None:
            thresholds[b] = -1.0 if 2 * right.sum() > len(right) else 1.0
        else:
            weights[b], thresholds[b] = _sized(space, *fitted)
    return Hyperplanes(weights, thresholds, alternating_leaves(problem.depth))


def _refitted(
    space: Space, X: Array, n: int, tree: Hyperplanes, sides: Array, weight: Array, factor: float
) -> Hyperplanes:
    """Return the tree with every plane fitted to the sides of its rows, the first n labelled."""
    weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
    for b in range(len(thresholds)):
        rows = np.flatnonzero(sides[:, b])
        if len(rows) < 2:
            continue
        side = sides[rows, b].astype(float)
        if (side == side[0]).all():
            weights[b], thresholds[b] = 0.0, -side[0]
            continue
        fitted = fitted_plane(space, X[rows], side > 0, weight[rows])
        if fitted is None:
            continue
        w, threshold = _sized(space, *fitted)
        if factor > 1.0:
            w = 0.95 * space.saturated(w, factor)
            left = int((side < 0).sum())
            threshold = float(np.sort(X[rows] @ w)[min(left, len(rows) - 1)])
        known = rows < n
        plane = nearest_plane(space, w, threshold, X[rows[known]], side[known])
        if plane is not None and np.abs(plane.weights).max() > 1e-9:
            weights[b], thresholds[b] = plane.weights, plane.threshold
    return Hyperplanes(weights, thresholds, tree.leaf_class)


def hardened(problem: TotalsProblem, space: Space, tree: Hyperplanes) -> Hyperplanes | None:
    """Move the planes until every labelled row is right, each in the leaf where it errs least."""
    sides = path_sides(problem.depth)
    for _ in range(HARDENING):
        errors = leaf_errors(tree, tree.margins(problem.labelled))
        wanted = sides[assigned_leaves(problem, tree, errors)]
        weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
        for b in range(len(thresholds)):
            rows = np.flatnonzero(wanted[:, b])
            side = wanted[rows, b].astype(float)
            if not len(rows):
                continue
            if not tree.used[b] and (side == side[0]).all():
                thresholds[b] = -side[0]
                continue
            plane = nearest_plane(space, weights[b], thresholds[b], problem.labelled[rows], side)
            if plane is None:
                continue
            if np.abs(plane.weights).max() > 1e-9:
                weights[b], thresholds[b] = plane.weights, plane.threshold
            else:
                weights[b], thresholds[b] = 0.0, -1.0 if side.sum() > 0 else 1.0
        tree = Hyperplanes(weights, thresholds, tree.leaf_class)
        if score(problem, tree).labelled_error <= 1e-6:
            return tree
    return None


def _sized(space: Space, w: Array, threshold: float) -> tuple[Array, float]:
    """Return the plane nearly as long as the box allows, with room to move."""
    scale = 0.9 * space.box / np.abs(w).max()
    return scale * w, scale * threshold
