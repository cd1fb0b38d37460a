"""Every constraint of problem (P2) of the S²OCT paper, checked one by one in plain arrays.

The check shares nothing with the programs of `oct_models`: it sets the variables from their
meaning and tests them against the formulas as printed, with Theorem 2's M and Proposition 1's B.
A claim that a tree is optimal rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes, TotalsProblem
from silva.tree import Array

ALL_PAIRS = 5000


@dataclass(frozen=True, eq=False)
class P2Point:
    """A value for every variable of (P2), in the paper's letters.

    Attributes
    ----------
    omega : array of shape (nodes, features)
    gamma : array of shape (nodes,)
    y_left, y_right : arrays of shape (labelled rows, nodes)
    alpha, beta : arrays of shape (labelled rows, leaves)
        Zero at the leaves of other classes, for which the paper has no such variable.
    z : array of shape (unlabelled rows, nodes)
    delta : array of shape (unlabelled rows, leaves)
        Zero at the leaves of class B, for which the paper has no such variable.
    xi : float
    """

    omega: Array
    gamma: Array
    y_left: Array
    y_right: Array
    alpha: Array
    beta: Array
    z: Array
    delta: Array
    xi: float


def check(problem: TotalsProblem, tree: Hyperplanes) -> dict[str, float]:
    """Return the largest violation of each constraint by a tree, "P1b" to "P2o".

    Parameters
    ----------
    problem : TotalsProblem
        Of two classes.
    tree : Hyperplanes
        With alternating leaves. Nodes that send all rows to one side are not used; they count as
        w = 0, gamma = ±1.
    """
    return violations(problem, set_variables(problem, at_rest(problem, tree)))


def at_rest(problem: TotalsProblem, tree: Hyperplanes) -> Hyperplanes:
    """Return the tree with w = 0, gamma = ±1 at the nodes that send all rows to one side.

    Their margins could be as large as they like, beyond Theorem 2's M.
    """
    weights, thresholds = tree.weights.copy(), tree.thresholds.copy()
    for b in range(len(thresholds)):
        values = np.concatenate([problem.labelled, problem.unlabelled]) @ weights[b] - thresholds[b]
        if (values >= 1.0).all() or (values <= -1.0).all():
            weights[b], thresholds[b] = 0.0, -1.0 if values[0] > 0 else 1.0
    return Hyperplanes(weights, thresholds, tree.leaf_class)


def set_variables(problem: TotalsProblem, tree: Hyperplanes) -> P2Point:
    """Return the best values of all other variables, given the hyperplanes."""
    depth = tree.depth
    leaves, nodes = 2**depth, 2**depth - 1
    known = problem.labelled @ tree.weights.T - tree.thresholds
    unknown = problem.unlabelled @ tree.weights.T - tree.thresholds
    y_left, y_right = np.maximum(known + 1.0, 0.0), np.maximum(1.0 - known, 0.0)
    alpha, beta = np.zeros((len(known), leaves)), np.zeros((len(known), leaves))
    for i, label in enumerate(problem.classes):
        own = [t for t in range(leaves) if t % 2 == label]
        errors = [_leaf_error(t + nodes + 1, y_left[i], y_right[i]) for t in own]
        best = int(np.argmin(errors))
        alpha[i, own[best]], beta[i, own[best]] = 1.0, errors[best]
    z = (unknown > 0).astype(float)
    delta = np.zeros((len(unknown), leaves))
    for i in range(len(z)):
        node = 1
        while node <= nodes:
            node = 2 * node + int(z[i, node - 1])
        if node % 2 == 0:
            delta[i, node - leaves] = 1.0
    xi = float(abs(delta.sum() - problem.totals[0]))
    return P2Point(tree.weights, tree.thresholds, y_left, y_right, alpha, beta, z, delta, xi)


def objective(problem: TotalsProblem, x: P2Point) -> float:
    """Return (P2a)."""
    return float(x.beta.sum() + problem.penalty * x.xi)


def violations(problem: TotalsProblem, x: P2Point) -> dict[str, float]:
    """Return the largest violation of each constraint of (P2) by a point.

    The nodes are numbered as in the paper, 1 to 2^D - 1, the leaves 2^D to 2^(D+1) - 1; even
    leaves are A.
    """
    if problem.n_classes != 2:
        raise ValueError(f"(P2) is for two classes, got {problem.n_classes}")
    rows = np.concatenate([problem.labelled, problem.unlabelled])
    eta = problem.diameter  # found by bounds; where it is quick, by looking at all pairs
    if len(rows) <= ALL_PAIRS:
        eta = max(float(np.sqrt(((rows - row) ** 2).sum(axis=1).max())) for row in rows)
    s, p, depth = problem.box, rows.shape[1], problem.depth
    big_m = eta * s * np.sqrt(p) + 1.0
    bound = depth * (eta * s * np.sqrt(p) + 1.0)
    leaves = 2**depth
    known = problem.labelled @ x.omega.T - x.gamma
    unknown = problem.unlabelled @ x.omega.T - x.gamma
    even = np.arange(leaves) % 2 == 0
    own = np.where(problem.classes[:, None] == 0, even, ~even)
    error = np.array([
        [_leaf_error(t, x.y_left[i], x.y_right[i]) for t in range(leaves, 2 * leaves)]
        for i in range(len(known))
    ]).reshape(-1, leaves)  # fmt: skip
    counted = float(x.delta[:, even].sum())
    total = float(problem.totals[0])
    sides = _side_violations(x, leaves, depth)
    return {
        "P1b": _worst(-known + 1.0 - x.y_right),
        "P1c": _worst(known + 1.0 - x.y_left),
        "P1d": _worst(np.abs(x.omega) - s),
        "P1e": _worst(np.maximum(-x.y_left, -x.y_right)),
        "P2b": _worst(np.abs((x.alpha * own).sum(axis=1) - 1.0)),
        "P2c": _worst(np.minimum(np.abs(x.alpha), np.abs(x.alpha - 1.0))),
        "P2d": _worst((x.beta - error)[own]),
        "P2e": _worst((error - bound * (1.0 - x.alpha) - x.beta)[own]),
        "P2f": _worst(np.maximum(-x.beta, x.beta - bound * x.alpha)),
        "P2g": _worst(unknown - (x.z * big_m - 1.0)),
        "P2h": _worst(-(1.0 - x.z) * big_m + 1.0 - unknown),
        "P2i": _worst(np.minimum(np.abs(x.z), np.abs(x.z - 1.0))),
        **sides,
        "P2m": _worst(np.minimum(np.abs(x.delta), np.abs(x.delta - 1.0))),
        "P2n": max(0.0, total - x.xi - counted, counted - total - x.xi),
        "P2o": max(0.0, -x.xi),
    }


def _side_violations(x: P2Point, leaves: int, depth: int) -> Mapping[str, float]:
    """Return those of (P2j)-(P2l), which tie the leaves of class A to the sides."""
    worst = {"P2j": 0.0, "P2k": 0.0, "P2l": 0.0}
    for t in range(leaves, 2 * leaves, 2):
        delta = x.delta[:, t - leaves]
        least = np.full(len(delta), -(depth - 1.0))
        for b, right in _path(t):
            z = x.z[:, b - 1]
            allowed = z if right else 1.0 - z
            name = "P2j" if right else "P2k"
            worst[name] = max(worst[name], _worst(delta - allowed))
            least += allowed
        worst["P2l"] = max(worst["P2l"], _worst(least - delta))
    return worst


def _path(t: int) -> list[tuple[int, bool]]:
    """Return the branch nodes above leaf t, in the paper's numbers, and whether t is right."""
    found = []
    while t > 1:
        found.append((t // 2, t % 2 == 1))
        t //= 2
    return found


def _leaf_error(t: int, y_left: Array, y_right: Array) -> float:
    """Return LE of Definition 2 from one row's branch errors."""
    return float(sum((y_right if right else y_left)[b - 1] for b, right in _path(t)))


def _worst(excess: Array) -> float:
    return float(np.max(excess, initial=0.0))
