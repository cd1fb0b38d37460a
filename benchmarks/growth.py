"""Time and memory of LapTAO as the number of rows grows, and on the largest tables at hand.

Each fit runs in a fresh process: `LapTAOClassifier(n_jobs=-1)` with 1 % of the rows labelled, the
graph included. Generated rows have 20 columns in ten clusters. Memory is the highest resident
memory of the process, the data included. kddcup (494,021 rows, 41 columns) and skin_segmentation
stand in for the SUSY set of the paper.
"""

from __future__ import annotations

import json
import time

import numpy as np

from benchmarks.alone import rows_alone
from benchmarks.data import load
from benchmarks.memory import megabytes
from benchmarks.semi import choose_labelled, hide
from benchmarks.table import Table
from silva import LapTAOClassifier

SIZES = (10_000, 30_000, 100_000, 300_000, 500_000)
SETS = ("skin_segmentation", "kddcup")


def run(options):
    """Return the table."""
    notes = []
    cases = [f"generated {size}" for size in (SIZES[:1] if options.quick else SIZES)]
    return Table(rows_alone(__name__, cases if options.quick else (*cases, *SETS), notes), notes)


def fit_here(case):
    """Fit in this process and print the row."""
    X, y = generated(int(case.split()[1])) if case.startswith("generated") else table(case)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, test = order[: int(0.9 * len(y))], order[int(0.9 * len(y)) :]
    labelled = choose_labelled(y[train], 0.01, "classification", rng)
    begin = time.perf_counter()
    model = LapTAOClassifier(n_jobs=-1, random_state=0, verbose=0)
    model.fit(X[train], hide(y[train], labelled, "classification"))
    seconds = time.perf_counter() - begin
    error = 100 * float(np.mean(model.predict(X[test]) != y[test]))
    loop = sum(step.seconds for step in model.history_)
    print(json.dumps({
        "data": case, "training rows": len(train), "columns": X.shape[1],
        "different rows": model.affinity_.shape[0], "seconds": round(seconds, 1),
        "of them before the loop": round(seconds - loop, 1),
        "µs a row": round(1e6 * seconds / len(train)),
        "peak memory, MB": round(megabytes("VmHWM")),
        "test error %": round(error, 2), "leaves": model.tree_.n_leaves,
    }))  # fmt: skip


def generated(size):
    """Return clusters of rows, three to a class."""
    rng = np.random.default_rng(0)
    centres = 2.5 * rng.normal(size=(12, 20))
    cluster = rng.integers(0, 12, size)
    return centres[cluster] + rng.normal(size=(size, 20)), cluster % 4


def table(name):
    """Return the rows and classes of a set."""
    data = load(name)
    return data.X, data.y
