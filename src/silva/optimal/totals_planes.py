"""One hyperplane of a tree with class totals: clear of every unlabelled row, right for its labels.

For one node of a `TotalsProblem`, given its labelled rows with their sides and all unlabelled rows,

    find (w, g)   with   side_i (w·x_i - g) >= 1  for the labelled rows of the node,
                         |w·x_u - g| >= 1         for every unlabelled row,   |w_j| <= s.

Once the direction w is given, the rest is sorting: g must lie in a gap of the projected rows that
is at least 2 wide, and each such gap is an answer with its own number of rows on the left. So
`Clearings` collects, for every number of rows on the left, the best plane it has seen (the one that
a given opinion likes most), from directions that come from three sources: fits to the opinion moved
as little as the labels ask for (`nearest_plane`), random directions around a good one by the
hundred, and a linear program that widens a gap that is too narrow (`widest_plane`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from silva.optimal.milp import Builder, Terms
from silva.optimal.mip_solvers import Effort, highs
from silva.tree import Array

REACH = 1.0 + 1e-5  # margin asked of linear programs, which answer within a tolerance
CLEAR = 1.0 + 1e-6  # margin that a plane must have
SLACK_PRICE = 1e3  # of a labelled row on the wrong side, in units of moving a plane by one
PROGRAM_SECONDS = 5.0
SCAN_ENTRIES = 200_000  # projections sorted at a time
SATURATION = 60.0  # up to which a direction is scaled before it is cut to the box


@dataclass(frozen=True, eq=False)
class Space:
    """Where the rows lie: their centre, the spread of each column, and the box of the weights."""

    centre: Array
    spread: Array
    box: float

    @staticmethod
    def of(X: Array, box: float) -> Space:
        """Measure the rows X."""
        centre = X.mean(axis=0)
        spread = np.abs(X - centre).mean(axis=0)
        return Space(centre, spread + 1e-3 * spread.mean() + 1e-9, box)

    def filled(self, w: Array) -> Array:
        """Return directions as long as the box allows: margins are then as wide as can be."""
        return np.asarray(w * (self.box / np.abs(w).max(axis=-1, keepdims=True)))

    def saturated(self, w: Array, factor: Array | float) -> Array:
        """Return directions made longer and cut to the box.

        Columns of small range keep the weight s while those of large range gain: rows move apart,
        which opens gaps, at the price of another direction.
        """
        return np.asarray(np.clip(factor * w, -self.box, self.box))


@dataclass(frozen=True, eq=False)
class Plane:
    """A hyperplane w·x = threshold, and what the labelled rows lack to be 1 away on their side."""

    weights: Array
    threshold: float
    slack: Array

    @property
    def fits(self) -> bool:
        """Whether all labelled rows are on their side, and the plane is one."""
        return bool((self.slack <= 1e-6).all() and np.abs(self.weights).max() > 1e-9)


def fitted_plane(
    space: Space, X: Array, right: Array, weight: Array, ridge: float = 0.05
) -> tuple[Array, float] | None:
    """Return the ridge regression of the sides on standardised columns: Fisher's direction."""
    if len(X) < 2 or right.all() or not right.any():
        return None
    weight = weight / weight.sum()
    Z = (X - space.centre) / space.spread
    side = np.where(right, 1.0, -1.0)
    mean, offset = weight @ Z, weight @ side
    centred = Z - mean
    gram = (centred * weight[:, None]).T @ centred + ridge * np.eye(Z.shape[1])
    v = np.linalg.solve(gram, (centred * weight[:, None]).T @ (side - offset))
    if np.abs(v).max() < 1e-9:
        return None
    w = v / space.spread
    return w, float(w @ space.centre + v @ mean - offset)


def nearest_plane(space: Space, w: Array, threshold: float, X: Array, side: Array) -> Plane | None:
    """Return the plane nearest to the given one that has the labelled rows on their sides.

    minimise  sum_j spread_j |v_j - w_j| + |h - threshold at the centre| + price · slack.
    """
    p, n = len(w), len(X)
    build = Builder()
    v = build.variables("w", p, -space.box, space.box)
    h = build.variables("g", 1, -np.inf, np.inf)
    moved = build.variables("moved", p, 0.0, np.inf, cost=space.spread)
    shifted = build.variables("shifted", 1, 0.0, np.inf, cost=1.0)
    slack = build.variables("slack", n, 0.0, np.inf, cost=SLACK_PRICE)
    offset = threshold - w @ space.centre
    for sign in (1.0, -1.0):
        build.rows([(moved, 1.0), (v, -sign)], lower=-sign * w)
        build.rows([(shifted, 1.0), (h, -sign)], lower=-sign * offset)
    if n:
        build.rows([*_sided(v, h, X - space.centre, side), (slack, 1.0)], lower=REACH)
    x = highs(build.program(), Effort(seconds=PROGRAM_SECONDS)).x
    if x is None:
        return None
    return Plane(x[v], float(x[h[0]] + x[v] @ space.centre), x[slack])


def pulled_plane(
    space: Space, X: Array, side: Array, U: Array, wanted: Array, weight: Array
) -> Plane | None:
    """Return the plane that errs least on unlabelled rows with wanted sides, after the labels.

    minimise  sum_u weight_u hinge_u + price · slack.
    """
    n, m = len(X), len(U)
    build = Builder()
    v = build.variables("w", U.shape[1], -space.box, space.box)
    h = build.variables("g", 1, -np.inf, np.inf)
    slack = build.variables("slack", n, 0.0, np.inf, cost=10 * SLACK_PRICE)
    hinge = build.variables("hinge", m, 0.0, np.inf, cost=weight)
    if n:
        build.rows([*_sided(v, h, X - space.centre, side), (slack, 1.0)], lower=REACH)
    build.rows([*_sided(v, h, U - space.centre, wanted), (hinge, 1.0)], lower=REACH)
    x = highs(build.program(), Effort(seconds=PROGRAM_SECONDS)).x
    if x is None:
        return None
    return Plane(x[v], float(x[h[0]] + x[v] @ space.centre), x[slack])


def widest_plane(
    space: Space, w: Array, threshold: float, X: Array, side: Array, U: Array, rounds: int = 6
) -> Array | None:
    """Return the direction whose gap is widest, the unlabelled rows keeping the sides they have.

    maximise t   with   side_i (v·x_i - h) >= 1,  z_u (v·x_u - h) >= t <= 3/2.

    Only rows near the plane are in the program; those that turn out to matter join in.
    """
    margin = U @ w - threshold
    z = np.where(margin > 0, 1.0, -1.0)
    some = 4 * len(w) + 30
    rows = np.argsort(z * margin)[:some]
    found = None
    for _ in range(rounds):
        build = Builder()
        v = build.variables("w", len(w), -space.box, space.box)
        h = build.variables("g", 1, -np.inf, np.inf)
        t = build.variables("t", 1, -np.inf, 1.5, cost=-1.0)
        if len(X):
            build.rows(_sided(v, h, X, side), lower=REACH)
        gap = (np.repeat(t, len(rows)), -1.0)
        build.rows([*_sided(v, h, U[rows], z[rows]), gap], lower=0.0)
        x = highs(build.program(), Effort(seconds=PROGRAM_SECONDS)).x
        if x is None or np.abs(x[v]).max() < 1e-9:
            return None
        found = x[v]
        reached = z * (U @ found - x[h[0]])
        missed = np.flatnonzero(reached < x[t[0]] - 1e-7)
        if x[t[0]] < REACH or not len(missed) or reached.min() >= REACH:
            break
        rows = np.union1d(rows, missed[np.argsort(reached[missed])][:some])
    return None if found is None else space.filled(found)


def _sided(v: Array, h: Array, X: Array, side: Array) -> Terms:
    """Terms of side · (v·x - h), a row of the program for each row of X."""
    n = len(X)
    return [(np.tile(v, (n, 1)), side[:, None] * X), (np.repeat(h, n), -side)]


@dataclass(frozen=True, eq=False)
class Option:
    """A clear plane: what the opinion thinks of it (less is better), and the plane."""

    cost: float
    weights: Array
    threshold: float


@dataclass(eq=False)
class Clearings:
    """The clear planes of a node found so far, by the number of its rows on the left.

    Attributes
    ----------
    space : Space
    X, side : labelled rows of the node and their sides (-1 or 1)
        Without sides, the rows only have to be clear of the plane.
    U : all unlabelled rows
    counted : bool array
        Which of them reach the node.
    left_cost, right_cost : arrays
        What it costs to have an unlabelled row there.
    rng : Generator
    """

    space: Space
    X: Array
    side: Array | None
    U: Array
    counted: Array
    left_cost: Array
    right_cost: Array
    rng: np.random.Generator
    options: dict[int, Option] = field(default_factory=dict)

    @property
    def n_counted(self) -> int:
        """Unlabelled rows that reach the node."""
        return int(self.counted.sum())

    def add_unused(self, left: bool) -> None:
        """Add the plane that sends every row to one side."""
        cost = self.left_cost.sum() if left else self.right_cost.sum()
        option = Option(float(cost), np.zeros(self.U.shape[1]), 1.0 if left else -1.0)
        self._keep(self.n_counted if left else 0, option)

    def add(self, W: Array) -> None:
        """Add all clear planes of some directions, of shape (directions, features)."""
        step = max(1, SCAN_ENTRIES // max(1, len(self.U)))
        for first in range(0, len(W), step):
            self._add(W[first : first + step])

    def _add(self, W: Array) -> None:
        rows = self.U if self.side is not None else np.concatenate([self.U, self.X])
        if len(rows) < 2:
            return
        least, most = np.full(len(W), -np.inf), np.full(len(W), np.inf)  # where labels allow it
        if self.side is not None and len(self.X):
            known = self.X @ W.T
            least = (known[self.side < 0] + CLEAR).max(axis=0, initial=-np.inf)
            most = (known[self.side > 0] - CLEAR).min(axis=0, initial=np.inf)
            fits = least <= most
            W, least, most = W[fits], least[fits], most[fits]
        projected = W @ rows.T
        order = np.argsort(projected, axis=1)
        value = np.take_along_axis(projected, order, axis=1)
        low = np.maximum(value[:, :-1] + CLEAR, least[:, None])
        high = np.minimum(value[:, 1:] - CLEAR, most[:, None])
        direction, gap = np.nonzero(high >= low)
        if not len(gap):
            return
        extra = np.zeros(len(rows) - len(self.U))
        left, cost = (
            np.cumsum(np.concatenate([part, extra])[order], axis=1)[direction, gap]
            for part in (self.counted.astype(float), self.left_cost - self.right_cost)
        )
        left, cost = left.astype(int), cost + self.right_cost.sum()
        best = np.lexsort((cost, left))
        for i in best[np.append(True, np.diff(left[best]) > 0)]:
            d, k = direction[i], gap[i]
            middle = 0.5 * (low[d, k] + high[d, k])
            self._keep(int(left[i]), Option(float(cost[i]), W[d], float(middle)))

    def _keep(self, left: int, option: Option) -> None:
        known = self.options.get(left)
        if known is None or option.cost < known.cost:
            self.options[left] = option

    def add_around(self, w: Array, directions: int) -> None:
        """Add the clear planes of random directions around w, which is one of them."""
        shape, box, rng = (directions, len(w)), self.space.box, self.rng
        far = box * np.exp(rng.uniform(np.log(0.003), np.log(0.3), (directions, 1)))
        some = rng.random(shape) < rng.choice([0.3, 1.0], (directions, 1))
        factor = np.exp(rng.uniform(0.0, np.log(SATURATION), (directions, 1)))
        factor = np.where(rng.random((directions, 1)) < 0.5, factor, 1.0)
        W = self.space.saturated(factor * w + far * some * rng.normal(size=shape), 1.0)
        W[0] = w
        self.add(self.space.filled(W[np.abs(W).max(axis=1) > 1e-9]))

    def widen(self, w: Array, tries: int, target: int | None = None) -> None:
        """Widen gaps, one after the other, until one is wide enough.

        With a target, gaps are tried that are nearer to that number of rows on the left than any
        option so far, else those that are wide and cost little.
        """
        for attempt in range(tries):
            middle, promise = self._gaps(w, target)
            likely = np.argsort(-promise)[:4]
            likely = likely[np.isfinite(promise[likely])]
            if not len(likely):
                return
            threshold = float(middle[likely[attempt % len(likely)] if attempt < 4 else likely[0]])
            side = self.side
            if side is None:
                side = np.where(self.X @ w > threshold, 1.0, -1.0)
            found = widest_plane(self.space, w, threshold, self.X, side, self.U)
            if found is None:
                continue
            w = found
            self.add(w[None])
            if self.options and (target is None or target in self.options):
                return

    def _gaps(self, w: Array, target: int | None) -> tuple[Array, Array]:
        """Return the middle of each gap of a direction and how promising it is to widen it.

        Gaps that are out of the question promise minus infinity.
        """
        projected = self.U @ w
        order = np.argsort(projected, kind="stable")
        below, above = projected[order[:-1]], projected[order[1:]]
        middle = 0.5 * (below + above)
        if self.side is not None:
            known = self.X @ w
            low = (known[self.side < 0] + CLEAR).max(initial=-np.inf)
            high = (known[self.side > 0] - CLEAR).min(initial=np.inf)
            if low <= high:
                middle = np.clip(middle, low, high)
        possible = (middle > below) & (middle < above)
        if target is None:
            cost = np.cumsum(self.left_cost[order]) - np.cumsum(self.right_cost[order])
            away = cost[:-1] + self.right_cost.sum()
            away = 8.0 * away / (self.left_cost.sum() + self.right_cost.sum() + 1e-9)
        else:
            away = np.abs(np.cumsum(self.counted[order])[:-1] - target)
            possible &= away < min(abs(left - target) for left in self.options)
        width = np.minimum(above - below, 2 * CLEAR)
        wide_already = width >= 2 * CLEAR
        return middle, np.where(possible, width - away - wide_already, -np.inf)
