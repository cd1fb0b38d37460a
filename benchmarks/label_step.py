"""Solvers of LapTAO's label-step, size by size.

Seconds to solve (J + mu I + gamma L) Z = J Y + mu T for 10 outputs, gamma = 0.1, 1 % of the rows
labelled (at least 10), on the neighbour graph (15 neighbours) of points in three dimensions drawn
around 30 centres. *Prepare* is what is done once (order, eigendecomposition), *first* the solve at
mu = 0, *later* the mean of four warm-started solves with mu from 0.001 to 0.44. *Loop* adds up what
a training of 20 steps spends, prepare + first + 20 later, and *ratio* divides it by that of "auto".

Ours: `LabelSystem`, one thread unless said otherwise. The peers solve the same systems to the same
tolerance (1e-6) with a diagonal preconditioner: `scipy.sparse.linalg.cg` one output at a time, and
conjugate gradients on all outputs together written in NumPy with SciPy's sparse product. Shortest
times of a few runs at small sizes, of one run from 100,000 rows on. The load of the machine before
the run is noted: on a busy one all figures are too long.
"""

from __future__ import annotations

import os
import time

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from benchmarks.table import Table, progress
from silva.labels import LabelSystem

GAMMA, TOLERANCE, N_OUTPUTS = 0.1, 1e-6, 10
SIZES = (100, 300, 1_000, 3_000, 10_000, 100_000, 500_000)
LATER = tuple(0.001 * 1.5**k for k in (0, 5, 10, 15))


def run(options):
    """Return the table."""
    notes = [f"Load average before the run: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores."]
    rows = []
    with threadpool_limits(1):
        for n in (100, 1_000) if options.quick else SIZES:
            problem = make_problem(n)
            repeats = options.seeds or (1 if options.quick or n >= 100_000 else 5)
            rows += measure_size(n, problem, repeats)
    return Table(rows, notes)


def make_problem(n, seed=0):
    """Return graph, anchor and one-hot classes of points around centres."""
    rng = np.random.default_rng(seed)
    centre = rng.integers(0, 30, n)
    X = rng.random((30, 3))[centre] + 0.08 * rng.normal(size=(n, 3))
    distance, neighbour = cKDTree(X).query(X, 16, workers=2)
    P = np.exp(-((distance[:, 1:] / distance[:, [-1]]) ** 2) * 2)
    P /= P.sum(axis=1, keepdims=True)
    begin = np.arange(0, 15 * n + 1, 15)
    P = sparse.csr_array((P.ravel(), neighbour[:, 1:].ravel(), begin), shape=(n, n))
    W = sparse.csr_array((P + P.T) / 2)
    anchor = np.zeros(n)
    anchor[rng.permutation(n)[: max(10, n // 100)]] = 1
    return W, anchor, np.eye(N_OUTPUTS)[centre % N_OUTPUTS]


def measure_size(n, problem, repeats):
    """Return the rows of one size."""
    contestants = {"auto": lambda: ours(problem, "auto")}
    if n <= 1_000:
        contestants["eigen"] = lambda: ours(problem, "eigen")
    if n <= 10_000:
        contestants["direct"] = lambda: ours(problem, "direct")
    contestants["cg"] = lambda: ours(problem, "cg")
    contestants["cg, 2 threads"] = lambda: ours(problem, "cg", n_threads=2)
    if n <= 100_000:
        contestants["NumPy, all outputs"] = lambda: (Peer(problem, solve_together), 0.0)
        contestants["SciPy cg, by output"] = lambda: (Peer(problem, solve_by_column), 0.0)
    seconds = {}
    for name, prepare in contestants.items():
        seconds[name] = np.min([time_loop(problem, prepare) for _ in range(repeats)], axis=0)
        progress(f"  {n} rows, {name}: " + " ".join(f"{s:.4f}" for s in seconds[name]))
    loop = {name: s @ [1, 1, 20] for name, s in seconds.items()}
    return [
        {
            "rows": f"{n:,}",
            "solver": name,
            "prepare, s": f"{prepare:.4f}",
            "first, s": f"{first:.4f}",
            "later, s": f"{later:.4f}",
            "loop, s": f"{loop[name]:.3f}",
            "ratio": f"{loop[name] / loop['auto']:.2f}",
        }
        for name, (prepare, first, later) in seconds.items()
    ]


def time_loop(problem, prepare):
    """Return seconds of preparing, of the first solve and of a later one."""
    _, anchor, Y = problem
    target = 0.8 * Y + 0.02
    system, preparing = prepare()
    begin = time.perf_counter()
    Z = system.solve(anchor[:, None] * Y)
    first, later = time.perf_counter() - begin, []
    for mu in LATER:
        evidence = anchor[:, None] * Y + mu * target
        begin = time.perf_counter()
        Z = system.solve(evidence, mu, start=Z)
        later.append(time.perf_counter() - begin)
    return preparing, first, np.mean(later)


def ours(problem, solver, n_threads=1):
    """Return a prepared system and the seconds that took."""
    W, anchor, _ = problem
    begin = time.perf_counter()
    system = LabelSystem(W, GAMMA, anchor, solver=solver, tol=TOLERANCE, n_threads=n_threads)
    return system, time.perf_counter() - begin


class Peer:
    """The same system solved by a function (A, rhs, start) -> Z, free components left alone."""

    def __init__(self, problem, function):
        W, anchor, _ = problem
        self.function = function
        self.A = sparse.csr_array(sparse.diags_array(anchor + GAMMA * W.sum(axis=1)) - GAMMA * W)

    def solve(self, evidence, shift=0.0, start=None):
        """Return Z, starting from the mean where nothing is given."""
        A = sparse.csr_array(self.A + shift * sparse.eye_array(len(evidence)))
        if start is None:
            start = np.tile(evidence.sum(axis=0) / A.sum(), (len(evidence), 1))
        return self.function(A, evidence, start)


def solve_together(A, B, Z):
    """Conjugate gradients on all columns in NumPy; a column that has converged rests."""
    inverse, tiny = 1 / A.diagonal()[:, None], np.finfo(float).tiny
    constant = B - A.sum(axis=1)[:, None] * (B.sum(axis=0) / A.sum())
    target = np.sum(inverse * (TOLERANCE * constant) ** 2, axis=0) + tiny
    residual, direction, rho = B - A @ Z, np.zeros_like(B), np.ones(B.shape[1])
    while True:
        scaled = inverse * residual
        before, rho = rho, np.sum(residual * scaled, axis=0)
        active = rho > target
        if not active.any():
            return Z
        direction = scaled + direction * (active * rho / np.maximum(before, tiny))
        product = A @ direction
        step = active * rho / np.maximum(np.sum(direction * product, axis=0), tiny)
        Z = Z + step * direction
        residual = residual - step * product


def solve_by_column(A, B, Z):
    """SciPy's conjugate gradients, one column after the other."""
    diagonal = A.diagonal()
    precondition = LinearOperator(A.shape, matvec=lambda r: r / diagonal, dtype=np.float64)
    columns = [
        cg(A, b, x0=z, rtol=TOLERANCE, M=precondition, maxiter=3000)[0]
        for b, z in zip(B.T, Z.T, strict=True)
    ]
    return np.stack(columns, axis=1)
