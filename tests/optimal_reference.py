"""Tiny problems with class totals, solved by looking at every possibility."""

import itertools

import numpy as np
from scipy.optimize import linprog

from silva.optimal.hyperplanes import TotalsProblem

LEFT_BELOW = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]], bool)  # leaves left of a node
RIGHT_BELOW = np.array([[0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 1]], bool)


def tiny_problem(seed, n_classes=2, depth=2, n=4, m=4):
    """Draw one feature with labels that no single threshold explains, in one place twice."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n + m, 1))
    classes = np.argsort(np.argsort(X[:n, 0])) % n_classes
    if seed % 2:
        X[1] = X[0]
        classes[:2] = [0, 1]
    totals = rng.multinomial(m, np.ones(n_classes) / n_classes)
    return TotalsProblem(
        X[:n], classes, X[n:], totals, depth, box=float(rng.choice([5.0, 20.0, 60.0]))
    )


def enumerated_optimum(problem):
    """Return the optimum of a problem of one feature and depth 1 or 2, its leaves of any class."""
    x, u = problem.labelled[:, 0], problem.unlabelled[:, 0]
    cuts = [u > cut for cut in [-np.inf, *np.sort(u)]]
    patterns = [np.array(side) for side in {tuple(c) for cut in cuts for c in (cut, ~cut)}]
    nodes = 2**problem.depth - 1
    below = (LEFT_BELOW[:nodes], RIGHT_BELOW[:nodes])
    if problem.depth == 1:
        below = (np.array([[1, 0]], bool), np.array([[0, 1]], bool))
    leaves = nodes + 1
    known = {}

    def cost(pattern, left, right):
        """Return the smallest hinge error of one hyperplane with these sides."""
        key = (patterns[pattern].tobytes(), left, right)
        if key not in known:
            sign = np.r_[-np.ones(len(left)), np.ones(len(right))]
            rows = np.r_[x[list(left)], x[list(right)]]
            slack = np.r_[np.eye(len(rows)), np.zeros((len(u), len(rows)))]
            sign = np.r_[sign, np.where(patterns[pattern], 1.0, -1.0)]
            rows = np.r_[rows, u]
            A = np.column_stack([-sign * rows, sign, -slack])
            bounds = [(-problem.box, problem.box), (None, None), *[(0, None)] * slack.shape[1]]
            goal = np.r_[0.0, 0.0, np.ones(slack.shape[1])]
            found = linprog(goal, A_ub=A, b_ub=-np.ones(len(rows)), bounds=bounds)
            known[key] = found.fun if found.status == 0 else np.inf
        return known[key]

    grid = np.array(list(itertools.product(range(len(patterns)), repeat=nodes)))
    place = np.zeros((len(grid), len(u)), int)
    for _ in range(problem.depth):
        right = np.array(patterns)[grid[np.arange(len(grid))[:, None], place], np.arange(len(u))]
        place = 2 * place + 1 + right
    counts = (place[:, :, None] - nodes == np.arange(leaves)).sum(axis=1)
    best = np.inf
    for leaf in itertools.product(range(leaves), repeat=len(x)):
        choices = [set(range(problem.n_classes)) for _ in range(leaves)]
        for row, t in enumerate(leaf):
            choices[t] &= {int(problem.classes[row])}
        if not all(choices):
            continue
        sides = [
            tuple(tuple(row for row, t in enumerate(leaf) if side[b, t]) for side in below)
            for b in range(nodes)
        ]
        table = np.array([[cost(k, *side) for k in range(len(patterns))] for side in sides])
        total = table[np.arange(nodes), grid].sum(axis=1)
        if total.min() >= best:
            continue
        for labels in itertools.product(*choices):
            found = counts @ (np.array(labels)[:, None] == np.arange(problem.n_classes))
            missed = 0.5 * np.abs(found - problem.totals).sum(axis=1)
            best = min(best, (total + problem.penalty * missed).min())
    return best
