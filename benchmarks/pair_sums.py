"""The sum over all pairs of points in t-SNE's gradient: ours beside openTSNE's.

Milliseconds of one sum with its gradient, the best of three, on one thread, for points of a normal
distribution as wide as a t-SNE map of so many rows; and the relative error of the gradient (for
openTSNE, whose gradients are divided by the sum, of its direction). openTSNE's are those of its
defaults: Barnes-Hut with theta 0.5, trees included, and interpolation with 3 points in 50 intervals
or more.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.data import Unavailable
from benchmarks.table import Table, progress, skip
from silva.pair_sums import CAUCHY, GridPairSum, exact_pair_sum

SIZES = ((1_000, 15.0), (3_000, 20.0), (10_000, 30.0), (30_000, 40.0), (60_000, 50.0))


def run(options):
    """Return the table."""
    notes, rows = [], []
    peers = peers_at_hand(notes)
    for size, width in SIZES[:1] if options.quick else SIZES:
        Z = width * np.random.default_rng(0).normal(size=(size, 2))
        mass, grid = np.ones(size), GridPairSum(CAUCHY)
        ways = {
            "ours, exact": lambda Z=Z, mass=mass: exact_pair_sum(CAUCHY, Z, mass)[1],
            "ours, on a grid": lambda Z=Z, mass=mass, grid=grid: grid(Z, mass)[1],
        } | {name: lambda Z=Z, way=way: way(Z) for name, way in peers.items()}
        truth = direction(ways["ours, exact"]())
        for name, way in ways.items():
            seconds, gradient = timed(way)
            error = np.linalg.norm(direction(gradient) - truth)
            rows.append({
                "points": size, "sum": name, "ms": f"{1000 * seconds:.1f}",
                "error of the gradient": f"{error:.1e}",
            })  # fmt: skip
            progress(f"  {rows[-1]}")
    return Table(rows, notes, ("openTSNE",))


def timed(way):
    """Return the least seconds of three, and what came out."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        found = way()
        seconds.append(time.perf_counter() - began)
    return min(seconds), found


def direction(gradient):
    """Return a gradient of length one that lowers the sum."""
    gradient = np.asarray(gradient)
    return gradient / np.linalg.norm(gradient)


def peers_at_hand(notes):
    """Return openTSNE's two ways by name, if it is installed."""
    try:
        from openTSNE import _tsne
        from openTSNE.quad_tree import QuadTree
    except ImportError as error:
        skip(Unavailable(f"openTSNE, not installed ({error})"), notes)
        return {}

    def barnes_hut(Z):
        force = np.zeros_like(Z)
        _tsne.estimate_negative_gradient_bh(
            QuadTree(Z), Z, force, theta=0.5, dof=1.0, num_threads=1
        )
        return force

    def interpolation(Z):
        force = np.zeros_like(Z)
        _tsne.estimate_negative_gradient_fft_2d(
            Z, force, n_interpolation_points=3, min_num_intervals=50, ints_in_interval=1, dof=1.0
        )
        return force

    return {"openTSNE, Barnes-Hut": barnes_hut, "openTSNE, interpolation": interpolation}
