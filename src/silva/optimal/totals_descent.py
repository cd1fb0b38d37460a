"""Trees with all labels right, moved plane by plane until the class counts are the totals.

A tree that fits biased labels gives far too many rows to the class that most labels have. Here is
how it is talked out of that. At one node, the others being fixed, a row whose answer is the same on
both sides does not matter; all others have a side that is right (labelled) or the side of the class
that lacks more rows (unlabelled). A linear program finds the plane that errs least on some of the
latter, the former all being right:

    minimise  sum_u weight_u hinge_u    with    side_i (w·x_i - g) >= 1   for labelled rows i.

The old plane has these labels right, so has the new one, hence all planes between the two: the one
whose counts are nearest to the totals is taken, and the next node has its turn. This is TAO's
alternation, with counts for an objective and labels for constraints. Slabs are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes, TotalsProblem
from silva.optimal.totals_planes import Plane, Space, pulled_plane
from silva.optimal.totals_starts import Opinion
from silva.tree import Array

PULLED = (60, 200)  # unlabelled rows in a program; of 30 to 800, 60 and 120 got to the totals most
DOUBTED = (0.1, 0.3, 1.0)  # weight of a row that the opinion wants to stay where it is
STEPS = np.linspace(0.0, 1.0, 41)  # from the old plane to the new one
PROGRESS = 0.9  # times the excess of rows, in a round of all nodes, or else it was idle
IDLE = 8  # such rounds in a row, then it is given up
RETURNS, VAIN = 30, 3  # to the totals, after rounds towards the opinion; those that brought nothing


def descents(
    problem: TotalsProblem,
    opinion: Opinion,
    space: Space,
    tree: Hyperplanes,
    rng: np.random.Generator,
    stop: Callable[[], bool],
) -> Iterator[Hyperplanes]:
    """Yield a few trees with exact totals and all labels right.

    After each, all planes move towards the opinion, whatever becomes of the totals, and then back.

    Parameters
    ----------
    problem : TotalsProblem
    opinion : Opinion
        Rows that it wants elsewhere are moved first.
    space : Space
    tree : Hyperplanes
        Has all labels right.
    rng : Generator
    stop : function
        Asked before each round of all nodes.
    """
    moving = _Moving(problem, opinion, space, rng, tree)
    least, vain = np.inf, 0
    for _ in range(RETURNS):
        if not moving.reaches_totals(stop):
            return
        cost = opinion.contradiction(moving.answers)
        vain = 0 if cost < least else vain + 1
        least = min(least, cost)
        yield moving.tree
        if vain == VAIN:
            return
        for b in rng.permutation(len(tree.thresholds)):
            moving.to_opinion(int(b))


class _Moving:
    """A tree whose planes move, the sides of all rows, and the excess of rows of each class."""

    def __init__(
        self,
        problem: TotalsProblem,
        opinion: Opinion,
        space: Space,
        rng: np.random.Generator,
        tree: Hyperplanes,
    ) -> None:
        self.problem, self.opinion, self.space, self.rng = problem, opinion, space, rng
        self.weights, self.thresholds = tree.weights.copy(), tree.thresholds.copy()
        self.leaf_class = tree.leaf_class
        self.known, self.unknown = tree.margins(problem.labelled), tree.margins(problem.unlabelled)
        self.excess = self._excess()

    @property
    def tree(self) -> Hyperplanes:
        """The tree as it is now."""
        return Hyperplanes(self.weights.copy(), self.thresholds.copy(), self.leaf_class)

    @property
    def answers(self) -> Array:
        """The classes of the unlabelled rows."""
        return self._answers(self.unknown, 0)

    @property
    def missed(self) -> int:
        """The paper's xi."""
        return int(_missed(self.excess))

    def reaches_totals(self, stop: Callable[[], bool]) -> bool:
        """Move all planes, in rounds, until the totals are exact; say whether they are."""
        idle = 0
        while self.missed:
            if idle == IDLE or stop():
                return False
            before = self.missed
            for b in self.rng.permutation(len(self.thresholds)):
                self.to_totals(int(b))
            idle = idle + 1 if self.missed > PROGRESS * before else 0
        return True

    def to_totals(self, b: int) -> None:
        """Move the plane of node b, unless the counts would be farther from the totals."""
        rows, left, right = self._matter(self.unknown, b)
        to_right = self.excess[right] < self.excess[left]
        pulled = to_right | (self.excess[right] > self.excess[left])
        if not self.missed or pulled.sum() < 2:
            return
        lacking = np.where(to_right, right, left)
        doubt = self.rng.choice(DOUBTED)
        weight = np.where(self.opinion.wanted[rows] == lacking, 1.0, doubt)
        plane = self._pulled(b, rows[pulled], to_right[pulled], weight[pulled])

        def missed(answers: Array) -> Array:
            kinds = np.arange(len(self.excess))[:, None, None]
            counts = (answers == kinds).sum(axis=1)
            return np.asarray(_missed(self.excess[:, None] + counts - counts[:, :1]))

        self._go(b, plane, rows, left, right, missed)

    def to_opinion(self, b: int) -> None:
        """Move the plane of node b, unless the opinion would be contradicted more."""
        rows, left, right = self._matter(self.unknown, b)
        if len(rows) < 2:
            return
        wanted, weight = self.opinion.wanted[rows], self.opinion.confidence[rows]
        plane = self._pulled(b, rows, right == wanted, weight)
        self._go(b, plane, rows, left, right, lambda answers: weight @ (answers != wanted[:, None]))

    def _pulled(self, b: int, rows: Array, to_right: Array, weight: Array) -> Plane | None:
        """Return the plane that errs least on some of the rows, all labels being right."""
        rng, problem = self.rng, self.problem
        most = min(len(rows), int(rng.choice(PULLED)))
        if rng.random() < 0.5:
            some = np.argsort(np.abs(self.unknown[rows, b]), kind="stable")[:most]
        else:
            some = rng.choice(len(rows), most, replace=False)
        known, _, right = self._matter(self.known, b)
        side = np.where(right == problem.classes[known], 1.0, -1.0)
        weight = weight[some] * rng.exponential(size=most)
        plane = pulled_plane(
            self.space, problem.labelled[known], side, problem.unlabelled[rows[some]],
            np.where(to_right[some], 1.0, -1.0), weight,
        )  # fmt: skip
        return plane if plane is not None and (plane.slack <= 1e-6).all() else None

    def _go(
        self,
        b: int,
        plane: Plane | None,
        rows: Array,
        left: Array,
        right: Array,
        cost: Callable[[Array], Array],
    ) -> None:
        """Go towards a plane to where the answers cost least, the farthest such place.

        The cost is of answers of shape (rows, steps), the first as they are now.
        """
        if plane is None:
            return
        problem, old = self.problem, self.unknown[rows, b][:, None]
        new = (problem.unlabelled[rows] @ plane.weights - plane.threshold)[:, None]
        found = cost(np.where(old + (new - old) * STEPS > 0, right[:, None], left[:, None]))
        step = STEPS[np.flatnonzero(found == found.min())[-1]]
        self.weights[b] += step * (plane.weights - self.weights[b])
        self.thresholds[b] += step * (plane.threshold - self.thresholds[b])
        self.known[:, b] = problem.labelled @ self.weights[b] - self.thresholds[b]
        self.unknown[:, b] = problem.unlabelled @ self.weights[b] - self.thresholds[b]
        self.excess = self._excess()

    def _excess(self) -> Array:
        totals = self.problem.totals
        return np.asarray(np.bincount(self.answers, minlength=len(totals)) - totals)

    def _matter(self, margins: Array, b: int) -> tuple[Array, Array, Array]:
        """Return the rows whose answer depends on the side at node b, and their two answers."""
        passing, child = np.ones(len(margins), bool), b
        while child > 0:
            parent = (child - 1) // 2
            passing &= (margins[:, parent] > 0) == (child == 2 * parent + 2)
            child = parent
        rows = np.flatnonzero(passing)
        left, right = (self._answers(margins[rows], child) for child in (2 * b + 1, 2 * b + 2))
        matter = left != right
        return rows[matter], left[matter], right[matter]

    def _answers(self, margins: Array, start: int) -> Array:
        """Return the classes of rows that are at the given node, or leaf."""
        nodes, rows = len(self.thresholds), np.arange(len(margins))
        node = np.full(len(margins), start)
        while len(node) and node[0] < nodes:
            node = 2 * node + 1 + (margins[rows, node] > 0)
        return np.asarray(self.leaf_class[node - nodes])


def _missed(excess: Array) -> Array:
    """Return how many rows are too many in some class, for vectors or columns of an excess."""
    return np.asarray(np.maximum(excess, 0).sum(axis=0))
