"""Training speed of a TAO tree as a ratio against TAO in numpy and liblinear.

Both systems begin at the same random hyperplanes and make the same number of iterations at the same
depth, one after the other in one run, on one thread. Each has the penalty that gives it the lowest
error on a fifth of the training rows with 5 iterations (alpha, and l2 for ours). Figures are means
over the starts, ours first, then the reference's; a ratio above 1 means that ours is faster. The
reference is `benchmarks/liblinear_tao.py`: routing by one matrix product a level, reduced sets by
sorting, liblinear called directly with a tolerance of 0.01. Features lie in [0, 1] except in the
generated set: one million rows, 18 features, two overlapping classes with a curved border.
"""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from benchmarks import liblinear_tao
from benchmarks.data import Unavailable, load
from benchmarks.table import Table, progress, skip
from silva import TAOTreeClassifier
from silva.tree import Tree

ALPHAS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
L2 = (0.1, 1.0, 4.0)  # ours alone: liblinear's L1 solver has no such penalty
CHOICE_ITERATIONS = 5


@dataclass(frozen=True)
class Case:
    """A set, the depth of its tree, the number of iterations."""

    name: str
    depth: int
    iterations: int


CASES = (
    Case("letter", 11, 20),
    Case("mnist", 8, 20),
    Case("digits", 6, 20),
    Case("generated", 6, 20),
)
QUICK_CASES = (Case("digits", 4, 2),)


@dataclass(frozen=True)
class Measurement:
    """One training run: processor and wall seconds, test error, size."""

    cpu: float
    wall: float
    error: float
    parameters: int


def run(options):
    """Return the table."""
    repeats = options.seeds or (1 if options.quick else 5)
    rows, notes = [], [f"Starts: {repeats}."]
    for case in QUICK_CASES if options.quick else CASES:
        try:
            data = rows_of(case.name)
        except Unavailable as error:
            skip(error, notes)
            continue
        with threadpool_limits(1):
            rows.append(compare(case, data, repeats))
    return Table(rows, notes)


def rows_of(name):
    """Return training rows, test rows and their classes, float32 in [0, 1]."""
    if name == "generated":
        X, y = generate(1_100_000, seed=0)
        return X[:-100_000], X[-100_000:], y[:-100_000], y[-100_000:]
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return train_test_split((X / 16).astype(np.float32), y, random_state=0)
    data = load(name)
    highest = data.X.max()
    X, X_test = (
        np.float32(1 / highest) * part.astype(np.float32) for part in (data.X, data.X_test)
    )
    return X, X_test, data.y, data.y_test


def generate(n_rows, seed):
    """Draw 8 Gaussian features, 10 products and radii of them, and a noisy class."""
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((n_rows, 8), dtype=np.float32)
    products = low[:, :5] * low[:, 1:6]
    radii = np.hypot(low[:, :5], low[:, 3:])
    signal = products[:, 0] + products[:, 3] + radii[:, 1] - low[:, 6] ** 2 + low[:, 7]
    X = np.hstack([low, products, radii]) + 0.3 * rng.standard_normal((n_rows, 18), np.float32)
    y = rng.random(n_rows) < 1 / (1 + np.exp(1 - 1.5 * signal))
    return X, y.astype(np.int64)


def compare(case, data, repeats):
    """Train both systems from the same starts and return the row of their means."""
    X, X_test, y, y_test = data
    X_fit, X_val, y_fit, y_val = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
    start = liblinear_tao.random_start(X_fit, case.depth, seed=0)
    systems = {"reference": train_reference, "silva": train_silva}
    grids = {"reference": [(a,) for a in ALPHAS], "silva": [(a, r) for a in ALPHAS for r in L2]}
    iterations = min(case.iterations, CHOICE_ITERATIONS)
    penalty, runs = {}, {name: [] for name in systems}
    for name, train in systems.items():
        errors = [
            train(X_fit, y_fit, X_val, y_val, start, value, iterations).error
            for value in grids[name]
        ]
        progress(f"{case.name}, {name}: validation errors {np.round(errors, 4)} for {grids[name]}")
        penalty[name] = grids[name][int(np.argmin(errors))]
    for seed in range(repeats):
        start = liblinear_tao.random_start(X, case.depth, seed)
        for name, train in systems.items():
            run = train(X, y, X_test, y_test, start, penalty[name], case.iterations)
            progress(f"{case.name}, {name}: {run}")
            runs[name].append(run)
    return row_of(case, X, penalty, runs)


def row_of(case, X, penalty, runs):
    """Return the cells of a comparison."""
    mean = {
        name: Measurement(*np.mean([astuple(run) for run in system], axis=0))
        for name, system in runs.items()
    }
    ours, reference = mean["silva"], mean["reference"]
    return {
        "data set": case.name,
        "rows × features": f"{X.shape[0]} × {X.shape[1]}",
        "depth": case.depth,
        "iterations": case.iterations,
        "alpha": f"{penalty['silva'][0]:g} / {penalty['reference'][0]:g}",
        "l2": f"{penalty['silva'][1]:g}",
        "processor s": f"{ours.cpu:.3f} / {reference.cpu:.3f}",
        "wall s": f"{ours.wall:.3f} / {reference.wall:.3f}",
        "processor ratio": f"{reference.cpu / ours.cpu:.1f}",
        "wall ratio": f"{reference.wall / ours.wall:.1f}",
        "test error %": f"{100 * ours.error:.2f} / {100 * reference.error:.2f}",
        "parameters": f"{ours.parameters:.0f} / {reference.parameters:.0f}",
    }


def train_reference(X, y, X_test, y_test, start, penalty, iterations):
    """Train the reference and measure it."""
    cpu, wall = time.process_time(), time.perf_counter()
    tree = liblinear_tao.fit(X, y, *start, alpha=penalty[0], max_iter=iterations)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    error = np.mean(liblinear_tao.predict(tree, X_test) != y_test)
    return Measurement(cpu, wall, error, liblinear_tao.count_parameters(tree, X))


def train_silva(X, y, X_test, y_test, start, penalty, iterations):
    """Train our tree and measure it."""
    model = TAOTreeClassifier(
        max_depth=(len(start[1]) + 1).bit_length() - 1,
        alpha=penalty[0],
        l2=penalty[1],
        max_iter=iterations,
        tol=0,
        init=tree_of(*start, n_classes=y.max() + 1),
        n_jobs=1,
        random_state=0,
    )
    cpu, wall = time.process_time(), time.perf_counter()
    model.fit(X, y)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Measurement(cpu, wall, 1 - model.score(X_test, y_test), model.n_parameters_)


def tree_of(W, b, n_classes):
    """Return heap-ordered hyperplanes as a Tree: depth first, with thresholds for biases."""
    n_inner = len(W)
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if node < n_inner:
            waiting += [2 * node + 2, 2 * node + 1]
    order = np.array(order)
    place = np.argsort(order)
    is_inner = order < n_inner
    coefficients = np.zeros((len(order), W.shape[1]))
    coefficients[is_inner] = W[order[is_inner]]
    threshold = np.zeros(len(order))
    threshold[is_inner] = -b[order[is_inner]]
    left, right = np.full((2, len(order)), -1, np.int32)
    left[is_inner] = place[2 * order[is_inner] + 1]
    right[is_inner] = place[2 * order[is_inner] + 2]
    return Tree(
        left=left,
        right=right,
        coefficients=sparse.csr_array(coefficients),
        threshold=threshold,
        values=np.full((n_inner + 1, n_classes), 1 / n_classes),
        weight=np.ones(len(order)),
    )
