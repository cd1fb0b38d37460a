"""Two threads against one when training a TAO tree on MNIST, and whether the trees are the same.

Wall seconds of `TAOTreeClassifier(max_depth=8, alpha=1)` with 20 iterations, `n_jobs=1` and
`n_jobs=2` in turn, the shortest of a few fits each. The trees are the same when every array of
`tree_` is, bit for bit. The load of the machine before the run is noted: on a busy one the ratio
says little.
"""

from __future__ import annotations

import os
import time

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.data import DataSet
from benchmarks.table import Table, available, progress
from silva import TAOTreeClassifier


def run(options):
    """Return the table."""
    notes = [f"Load average before the run: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores."]
    if options.quick:
        data_sets, max_iter = [digits()], 2
    else:
        data_sets, max_iter = available(["mnist"], notes), 20
    rows = [compare(data, max_iter, options.seeds or 3) for data in data_sets]
    return Table(rows, notes)


def digits():
    """Return scikit-learn's small digits, for a quick run."""
    X, y = load_digits(return_X_y=True)
    return DataSet("digits", X.astype(np.float32), y, None, None, "classification", ())


def compare(data, max_iter, repeats):
    """Return the row of one data set."""
    seconds, trees = {1: [], 2: []}, {}
    for _ in range(repeats):
        for n_jobs in (1, 2):
            model = TAOTreeClassifier(
                max_depth=8, alpha=1.0, max_iter=max_iter, tol=0, n_jobs=n_jobs, random_state=0
            )
            begin = time.perf_counter()
            model.fit(data.X, data.y)
            seconds[n_jobs].append(time.perf_counter() - begin)
            trees[n_jobs] = model.tree_
            progress(f"  n_jobs={n_jobs}: {seconds[n_jobs][-1]:.2f} s")
    one, two = min(seconds[1]), min(seconds[2])
    return {
        "data set": data.name,
        "one thread, s": f"{one:.2f}",
        "two threads, s": f"{two:.2f}",
        "ratio": f"{one / two:.2f}",
        "same tree bit for bit": "yes" if same_bits(trees[1], trees[2]) else "no",
    }


def same_bits(first, second):
    """Say whether two trees have the same arrays, bit for bit."""
    return [array.tobytes() for array in arrays(first)] == [
        array.tobytes() for array in arrays(second)
    ]


def arrays(tree):
    """Return the arrays of a tree with constant leaves."""
    coefficients = tree.coefficients
    return (
        tree.left, tree.right, coefficients.data, coefficients.indices, coefficients.indptr,
        tree.threshold, tree.values, tree.weight,
    )  # fmt: skip
