"""S²OCT as mixed-integer programs: the paper's own, and a stronger one with the same optimum.

Both minimise a `TotalsProblem` over complete trees of hyperplanes:

    minimise  sum_i min_{leaves t of class c_i} LE(x_i, t) + C xi,   |w_bj| <= s,

- `s2oct_verbatim` is problem (P2) of the S²OCT paper, row by row, for two classes.
- `s2oct_tight` differs from it in: one error variable per node and side instead of two errors per
  node and a product per leaf, so that (P2d)-(P2f) go; a big-M for each row from L1 distances, which
  |w_bj| <= s asks for, never above Theorem 2's; continuous indicators of class A, exact wherever
  the sides are whole; the mirror images of a tree cut off, on demand; and any number of classes,
  whose leaves are then part of the decision.
- `point` completes a tree to a point of either, `read` goes the other way.

Blocks of variables: "w" (nodes, features), "g" (nodes,), "alpha" (labelled rows, leaves), "z"
(unlabelled rows, nodes; 1 is right), "xi"; the others are named where they are made.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from silva.optimal.hyperplanes import (
    Hyperplanes,
    TotalsProblem,
    alternating_leaves,
    assigned_leaves,
    leaf_errors,
    path_sides,
)
from silva.optimal.milp import Builder, Program, Terms
from silva.tree import Array

LEFT, RIGHT = -1, 1
PAIRWISE = 2e8  # distances, times features, that are worth computing for a smaller big-M


def s2oct_verbatim(problem: TotalsProblem) -> Program:
    """Return (P2) of the S²OCT paper as it stands there.

    Blocks "y_left", "y_right" (labelled rows, nodes), "alpha", "beta" (labelled rows, leaves of
    the row's own class), "delta" (unlabelled rows, leaves of class A). Class 0 is A.
    """
    if problem.n_classes != 2:
        raise ValueError(f"(P2) is for two classes, got {problem.n_classes}: use s2oct_tight")
    sides = path_sides(problem.depth)
    nodes, own = sides.shape[1], len(sides) // 2
    labelled, unlabelled = problem.labelled, problem.unlabelled
    n, m, p = len(labelled), len(unlabelled), problem.n_features
    big_m, bound, classes = problem.big_m, problem.error_bound, problem.classes
    build = Builder()
    w = build.variables("w", (nodes, p), -problem.box, problem.box)  # (P1d)
    g = build.variables("g", nodes, -np.inf, np.inf)
    y_left = build.variables("y_left", (n, nodes), 0.0, np.inf)  # (P1e)
    y_right = build.variables("y_right", (n, nodes), 0.0, np.inf)  # (P1e)
    alpha = build.variables("alpha", (n, own), 0.0, 1.0, integer=True)  # (P2c)
    beta = build.variables("beta", (n, own), 0.0, np.inf, cost=1.0)  # (P2a), (P2f)
    z = build.variables("z", (m, nodes), 0.0, 1.0, integer=True)  # (P2i)
    delta = build.variables("delta", (m, own), 0.0, 1.0, integer=True)  # (P2m)
    xi = build.variables("xi", 1, 0.0, np.inf, cost=problem.penalty)  # (P2a), (P2o)
    for b in range(nodes):
        up, down = _margin(w[b], g[b], labelled, 1.0), _margin(w[b], g[b], labelled, -1.0)
        build.rows([(y_right[:, b], 1.0), *up], lower=1.0)  # (P1b)
        build.rows([(y_left[:, b], 1.0), *down], lower=1.0)  # (P1c)
    build.rows([(alpha, 1.0)], lower=1.0, upper=1.0)  # (P2b)
    for j in range(own):
        for label in (0, 1):
            rows = np.flatnonzero(classes == label)
            path = sides[2 * j + label]
            error: Terms = [(y_right[rows, b], -1.0) for b in np.flatnonzero(path == RIGHT)]
            error += [(y_left[rows, b], -1.0) for b in np.flatnonzero(path == LEFT)]
            a, e = alpha[rows, j], beta[rows, j]
            build.rows([(e, 1.0), *error], upper=0.0)  # (P2d)
            build.rows([(e, 1.0), *error, (a, -bound)], lower=-bound)  # (P2e)
            build.rows([(e, 1.0), (a, -bound)], upper=0.0)  # (P2f)
    for b in range(nodes):
        value = _margin(w[b], g[b], unlabelled, 1.0)
        build.rows([*value, (z[:, b], -big_m)], upper=-1.0)  # (P2g)
        build.rows([*value, (z[:, b], -big_m)], lower=1.0 - big_m)  # (P2h)
    for j in range(own):
        path = sides[2 * j]
        right, left = np.flatnonzero(path == RIGHT), np.flatnonzero(path == LEFT)
        for b in right.tolist():
            build.rows([(delta[:, j], 1.0), (z[:, b], -1.0)], upper=0.0)  # (P2j)
        for b in left.tolist():
            build.rows([(delta[:, j], 1.0), (z[:, b], 1.0)], upper=1.0)  # (P2k)
        both: Terms = [(z[:, right], -1.0), (z[:, left], 1.0)]
        least = float(len(left) - (problem.depth - 1))
        build.rows([(delta[:, j], 1.0), *both], lower=least)  # (P2l)
    total = float(problem.totals[0])
    build.rows([(delta.reshape(1, -1), 1.0), (xi, 1.0)], lower=total)  # (P2n)
    build.rows([(delta.reshape(1, -1), 1.0), (xi, -1.0)], upper=total)  # (P2n)
    return build.program()


def s2oct_tight(
    problem: TotalsProblem, leaf_class: Array | None = None, break_symmetry: bool = False
) -> Program:
    """Return the stronger program.

    Parameters
    ----------
    problem : TotalsProblem
    leaf_class : int array of shape (leaves,), optional
        Class of each leaf. By default the paper's for two classes, and free for more.
    break_symmetry : bool
        Keep, of each tree and its mirror images, the one that sends a row far out to the left: by
        the bounds of its z. A proof is shorter by it; finding a tree can take longer.

    Notes
    -----
    Blocks "error" (labelled rows, nodes, 2: left and right) and "leaf" (leaves, classes), and
    either "first" (unlabelled rows, nodes above the last level: whether class 0 comes out below),
    or "delta" (unlabelled rows, leaves) and "count" (leaves, classes).
    """
    if leaf_class is None and problem.fixed_leaves:
        leaf_class = alternating_leaves(problem.depth)
    if leaf_class is None:
        return s2oct_free(problem, break_symmetry)
    leaf_class = np.asarray(leaf_class)
    absent = np.setdiff1d(problem.classes, leaf_class)
    if absent.size:
        raise ValueError(
            f"leaf_class has no leaf of class {absent[0]}, which has labelled rows: no tree fits"
        )
    chosen = leaf_class[:, None] == np.arange(problem.n_classes)
    build = Builder()
    flip = flippable(leaf_class) & break_symmetry
    z, _, leaf = _planes_and_labels(build, problem, chosen, flip)
    if problem.n_classes == 2:
        _first_class_total(build, problem, z, leaf_class)
    else:
        _class_totals(build, problem, z, leaf)
    return build.program()


def s2oct_free(problem: TotalsProblem, break_symmetry: bool = False) -> Program:
    """Return the stronger program with the classes of the leaves as part of the decision."""
    seen, leaves = len(np.unique(problem.classes)), 2**problem.depth
    if seen > leaves:
        raise ValueError(f"a tree of depth {problem.depth} has {leaves} leaves for {seen} classes")
    build = Builder()
    flip = np.full(leaves - 1, break_symmetry)
    z, alpha, leaf = _planes_and_labels(build, problem, None, flip)
    build.rows([(leaf, 1.0)], lower=1.0, upper=1.0)
    for t in range(len(leaf)):
        build.rows([(alpha[:, t], 1.0), (leaf[t, problem.classes], -1.0)], upper=0.0)
    _class_totals(build, problem, z, leaf)
    return build.program()


def reach(problem: TotalsProblem) -> tuple[Array, Array]:
    """Return bounds of |w_b·x - gamma_b| for the labelled and the unlabelled rows.

    If all rows are beyond the slab on one side, w = 0 and gamma = ±1 sends them there just as well
    and errs less. Else some row has a margin of at most 1 and some of at least -1, and a margin
    changes by at most s times the L1 distance on the way to them. Theorem 2 forbids more than
    eta s sqrt(p) anyway.
    """
    rows = np.concatenate([problem.labelled, problem.unlabelled])
    low, high = rows.min(axis=0), rows.max(axis=0)

    most = max(problem.big_m - 1.0, 1.0)

    def bound(X: Array) -> Array:
        if len(X) * rows.size > PAIRWISE:
            far = np.maximum(X - low, high - X).sum(axis=1)
        else:
            far = np.array([np.abs(rows - x).sum(axis=1).max() for x in X])
        return np.asarray(np.minimum(problem.box * far + 1.0, most))

    return bound(problem.labelled), bound(problem.unlabelled)


def flippable(leaf_class: Array) -> Array:
    """Return the mask of the nodes whose two branches have leaves of the same classes in order.

    Such a node may exchange its branches, with (w, gamma) negated: a mirror image of the tree.
    """
    leaves = len(leaf_class)
    result = np.zeros(leaves - 1, bool)
    for b in range(leaves - 1):
        level = (b + 1).bit_length() - 1
        width = leaves >> level
        first = (b + 1 - (1 << level)) * width
        middle, last = first + width // 2, first + width
        result[b] = np.array_equal(leaf_class[first:middle], leaf_class[middle:last])
    return result


# ---- parts of the stronger program --------------------------------------------------------------


def _planes_and_labels(
    build: Builder, problem: TotalsProblem, chosen: Array | None, flip: Array
) -> tuple[Array, Array, Array]:
    """Add hyperplanes, errors of the labelled rows and sides of the unlabelled ones.

    Returns the blocks "z", "alpha" and "leaf".
    """
    sides = path_sides(problem.depth)
    leaves, nodes = sides.shape
    labelled, unlabelled = problem.labelled, problem.unlabelled
    far, far_unlabelled = reach(problem)
    allowed = np.ones((leaves, problem.n_classes), bool) if chosen is None else chosen
    farthest = np.concatenate([far, far_unlabelled])
    sizes = np.abs(np.concatenate([labelled, unlabelled])).sum(axis=1)
    offset = float((problem.box * sizes + farthest).min())
    w = build.variables("w", (nodes, problem.n_features), -problem.box, problem.box)
    g = build.variables("g", nodes, -offset, offset)
    own = allowed[:, problem.classes].T
    alpha = build.variables("alpha", own.shape, 0.0, own.astype(float), integer=True)
    error = build.variables("error", (len(labelled), nodes, 2), 0.0, np.inf, cost=1.0)
    most_z = np.ones((len(unlabelled), nodes))
    if len(unlabelled):
        most_z[anchor(problem), flip] = 0.0
    z = build.variables("z", most_z.shape, 0.0, most_z, integer=True)
    least = np.zeros(allowed.shape) if chosen is None else chosen.astype(float)
    leaf = build.variables("leaf", allowed.shape, least, allowed.astype(float), integer=True)
    build.rows([(alpha, 1.0)], lower=1.0, upper=1.0)
    for b in range(nodes):
        for place, side in enumerate((LEFT, RIGHT)):
            below = np.flatnonzero(sides[:, b] == side)
            rows = np.flatnonzero(own[:, below].any(axis=1))
            most = far[rows] + 1.0
            build.rows(
                [
                    (error[rows, b, place], 1.0),
                    *_margin(w[b], g[b], labelled[rows], float(side)),
                    (alpha[np.ix_(rows, below)], -most[:, None] * own[np.ix_(rows, below)]),
                ],
                lower=1.0 - most,
            )
        value = _margin(w[b], g[b], unlabelled, 1.0)
        most = far_unlabelled + 1.0
        build.rows([*value, (z[:, b], -most)], upper=-1.0)
        build.rows([*value, (z[:, b], -most)], lower=1.0 - most)
    return z, alpha, leaf


def _first_class_total(build: Builder, problem: TotalsProblem, z: Array, leaf_class: Array) -> None:
    """Count the unlabelled rows of class 0 by indicators handed up from the leaves.

    Where z is whole, first = left branch's if z = 0, right branch's if z = 1. The last rows say
    what follows whatever z is: what both branches agree on comes out (consensus).
    """
    m, inner = len(z), z.shape[1] // 2
    first = build.variables("first", (m, inner), 0.0, 1.0)
    xi = build.variables("xi", 1, 0.0, np.inf, cost=problem.penalty)

    def below(b: int) -> tuple[Terms, float]:
        """Return the negated indicator of node b as terms, and its constant."""
        if b < inner:
            return [(first[:, b], -1.0)], 0.0
        left, right = (float(leaf_class[2 * (b - inner) + k] == 0) for k in (0, 1))
        return [(z[:, b], left - right)], left

    for b in range(inner):
        (left, at_left), (right, at_right) = below(2 * b + 1), below(2 * b + 2)
        it, z_b = (first[:, b], 1.0), z[:, b]
        build.rows([it, *left, (z_b, -1.0)], upper=at_left)
        build.rows([it, *left, (z_b, 1.0)], lower=at_left)
        build.rows([it, *right, (z_b, 1.0)], upper=at_right + 1.0)
        build.rows([it, *right, (z_b, -1.0)], lower=at_right - 1.0)
        both = at_left + at_right
        build.rows([it, *left, *right], lower=both - 1.0, upper=both)
    terms, constant = below(0)
    whole: Terms = [(column.reshape(1, -1), -np.asarray(value)) for column, value in terms]
    total = float(problem.totals[0]) - m * constant
    build.rows([*whole, (xi, 1.0)], lower=total)
    build.rows([*whole, (xi, -1.0)], upper=total)


def _class_totals(build: Builder, problem: TotalsProblem, z: Array, leaf: Array) -> None:
    """Count the unlabelled rows of each leaf and, through the leaf's class, of each class."""
    sides, m = path_sides(problem.depth), len(z)
    delta = build.variables("delta", (m, len(sides)), 0.0, 1.0)
    count = build.variables("count", leaf.shape, 0.0, float(m))
    xi = build.variables("xi", problem.n_classes, 0.0, np.inf, cost=0.5 * problem.penalty)
    build.rows([(delta, 1.0)], lower=1.0, upper=1.0)
    for b in range(z.shape[1]):
        left, right = (np.flatnonzero(sides[:, b] == side) for side in (LEFT, RIGHT))
        build.rows([(delta[:, left], 1.0), (z[:, b], 1.0)], upper=1.0)
        build.rows([(delta[:, right], 1.0), (z[:, b], -1.0)], upper=0.0)
    build.rows([(count, 1.0), (delta.T, -1.0)], lower=0.0, upper=0.0)
    # a leaf counts for its own class alone
    build.rows([(count.ravel(), 1.0), (leaf.ravel(), -float(m))], upper=0.0)
    totals = problem.totals.astype(float)
    build.rows([(count.T, 1.0), (xi, 1.0)], lower=totals)
    build.rows([(count.T, 1.0), (xi, -1.0)], upper=totals)


def anchor(problem: TotalsProblem) -> int:
    """Return the unlabelled row farthest out."""
    X = problem.unlabelled
    return int(np.abs(X - X.mean(axis=0)).sum(axis=1).argmax())


def _margin(w: Array, g: int, X: Array, sign: float) -> Terms:
    """Return the terms of sign · (w·x - gamma) for the rows x of X."""
    return [(np.broadcast_to(w, X.shape), sign * X), (np.full(len(X), g), -sign)]


# ---- from trees to points and back --------------------------------------------------------------


def point(problem: TotalsProblem, program: Program, tree: Hyperplanes) -> Array:
    """Return the point of a program of this module that stands for a tree.

    It is feasible if the tree is: no unlabelled row in a slab, the weights in the box, margins
    within the bounds. Where the program has the paper's leaves, or keeps but one of several mirror
    images, the tree is rewritten so, answering as before.
    """
    blocks = program.blocks
    if "leaf" not in blocks:
        values = _verbatim_values(problem, alternating(tree))
    else:
        tree = _as_program_has_it(program, tree)
        if len(problem.unlabelled):
            flip = program.upper[blocks["z"][anchor(problem)]] == 0.0
            tree = mirrored(problem, tree, flip)
        values = _tight_values(problem, tree)
    x = np.zeros(len(program.cost))
    for name, block in blocks.items():
        x[block] = values[name][: len(block)]  # xi of class 0 alone, where that is enough
    return x


def _as_program_has_it(program: Program, tree: Hyperplanes) -> Hyperplanes:
    """Return the tree with leaves as a program wants them."""
    leaf = program.blocks["leaf"]
    if (program.lower[leaf] < program.upper[leaf]).any():
        return tree
    wanted = program.upper[leaf].argmax(axis=1)
    if not np.array_equal(wanted, tree.leaf_class):
        tree = alternating(tree)
    if not np.array_equal(wanted, tree.leaf_class):
        raise ValueError(f"the tree's leaves are {tree.leaf_class}, the program's {wanted}")
    return tree


def alternating(tree: Hyperplanes) -> Hyperplanes:
    """Return a tree of two classes, rewritten so that its leaves have the paper's classes."""
    weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
    inner = len(thresholds) // 2
    for b, (left, right) in enumerate(tree.leaf_class.reshape(-1, 2), start=inner):
        if left == right:
            weights[b], thresholds[b] = 0.0, 1.0 if left == 0 else -1.0
        elif left == 1:
            weights[b], thresholds[b] = -weights[b], -thresholds[b]
    return Hyperplanes(weights, thresholds, alternating_leaves(tree.depth))


def read(problem: TotalsProblem, program: Program, x: Array) -> Hyperplanes:
    """Return the tree of a point."""
    blocks = program.blocks
    leaf_class = alternating_leaves(problem.depth)
    if "leaf" in blocks:
        leaf_class = x[blocks["leaf"]].argmax(axis=1)
    return Hyperplanes(x[blocks["w"]], x[blocks["g"]], leaf_class)


def mirrored(problem: TotalsProblem, tree: Hyperplanes, flip: Array) -> Hyperplanes:
    """Return the tree with branches exchanged so that the anchor row goes left at given nodes."""
    row = problem.unlabelled[anchor(problem)]
    weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
    leaf_class, nodes = tree.leaf_class.copy(), len(tree.thresholds)
    for b in np.flatnonzero(flip):
        if weights[b] @ row - thresholds[b] <= 0:
            continue
        weights[b], thresholds[b] = -weights[b], -thresholds[b]
        left, right = 2 * b + 1, 2 * b + 2
        width = 1
        while left < nodes:
            these, those = slice(left, left + width), slice(right, right + width)
            weights[these], weights[those] = weights[those].copy(), weights[these].copy()
            thresholds[these], thresholds[those] = (
                thresholds[those].copy(), thresholds[these].copy(),
            )  # fmt: skip
            left, right, width = 2 * left + 1, 2 * right + 1, 2 * width
        these, those = (slice(at - nodes, at - nodes + width) for at in (left, right))
        leaf_class[these], leaf_class[those] = leaf_class[those].copy(), leaf_class[these].copy()
    return Hyperplanes(weights, thresholds, leaf_class)


def _verbatim_values(problem: TotalsProblem, tree: Hyperplanes) -> Mapping[str, Array]:
    known = tree.margins(problem.labelled)
    errors = leaf_errors(tree, known)
    chosen = assigned_leaves(problem, tree, errors)
    own = 2 * np.arange(errors.shape[1] // 2) + problem.classes[:, None]
    alpha = (own == chosen[:, None]).astype(float)
    right = tree.margins(problem.unlabelled) > 0
    leaf = tree.leaves(tree.margins(problem.unlabelled))
    delta = (leaf[:, None] == 2 * np.arange(errors.shape[1] // 2)).astype(float)
    return {
        "w": tree.weights,
        "g": tree.thresholds,
        "y_left": np.maximum(0.0, 1.0 + known),
        "y_right": np.maximum(0.0, 1.0 - known),
        "alpha": alpha,
        "beta": alpha * np.take_along_axis(errors, own, axis=1),
        "z": right.astype(float),
        "delta": delta,
        "xi": np.array([abs(delta.sum() - problem.totals[0])]),
    }


def _tight_values(problem: TotalsProblem, tree: Hyperplanes) -> Mapping[str, Array]:
    sides = path_sides(tree.depth)
    known, unknown = tree.margins(problem.labelled), tree.margins(problem.unlabelled)
    chosen = assigned_leaves(problem, tree, leaf_errors(tree, known))
    path = sides[chosen]
    error = np.stack([
        np.maximum(0.0, 1.0 + known) * (path == LEFT),
        np.maximum(0.0, 1.0 - known) * (path == RIGHT),
    ], axis=2)  # fmt: skip
    leaf = tree.leaves(unknown)
    delta = (leaf[:, None] == np.arange(len(sides))).astype(float)
    labels = (tree.leaf_class[:, None] == np.arange(problem.n_classes)).astype(float)
    count = delta.sum(axis=0)[:, None] * labels
    missed = np.abs(count.sum(axis=0) - problem.totals)
    return {
        "w": tree.weights,
        "g": tree.thresholds,
        "alpha": (chosen[:, None] == np.arange(len(sides))).astype(float),
        "error": error,
        "z": (unknown > 0).astype(float),
        "leaf": labels,
        "delta": delta,
        "count": count,
        "first": _first_values(tree, unknown),
        "xi": missed,
    }


def _first_values(tree: Hyperplanes, margins: Array) -> Array:
    """Return whether class 0 comes out below each node above the last level."""
    nodes = margins.shape[1]
    below = np.empty((len(margins), 2 * nodes + 1))
    below[:, nodes:] = tree.leaf_class == 0
    for b in reversed(range(nodes)):
        below[:, b] = np.where(margins[:, b] > 0, below[:, 2 * b + 2], below[:, 2 * b + 1])
    return below[:, : nodes // 2]
