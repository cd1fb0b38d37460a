"""Memory of training a TAO tree on MNIST above its input.

Each fit runs in a fresh process that imports the library and loads the training images as float32.
The figure is the highest resident memory of the process up to the end of the fit minus its resident
memory just before it, beside the size of the input. The tree has depth 8, alpha 1, 20 iterations.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.data import DataSet, Unavailable
from benchmarks.table import Table, available, skip

STATUS = Path("/proc/self/status")
"""Where Linux tells a process its own memory; the peak of getrusage begins at the parent's."""


def run(options):
    """Return the table."""
    rows, notes = [], []
    data_sets = [random_images()] if options.quick else available(["mnist"], notes)
    try:
        rows = [
            row_of(data, n_jobs, 2 if options.quick else 20)
            for data in data_sets
            for n_jobs in (1, 2)
        ]
    except Unavailable as error:
        skip(error, notes)
    return Table(rows, notes)


def random_images():
    """Return a small set of noise, for a quick run."""
    rng = np.random.default_rng(0)
    X, y = rng.random((4000, 784), np.float32), rng.integers(0, 10, 4000)
    return DataSet("noise", X, y, None, None, "classification", ())


def row_of(data, n_jobs, max_iter):
    """Measure a fit in a process of its own and return the row."""
    if not STATUS.exists():
        raise Unavailable("resident memory is read from /proc, which this system lacks")
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", data.X.astype(np.float32))
        np.save(Path(folder) / "y.npy", data.y)
        worker = (
            f"from benchmarks.memory import fit_here; fit_here({folder!r}, {n_jobs}, {max_iter})"
        )
        done = subprocess.run(
            [sys.executable, "-c", worker], check=True, stdout=subprocess.PIPE, text=True
        )
    above = json.loads(done.stdout)
    megabytes = data.X.size * 4 / 1e6
    return {
        "data set": data.name,
        "threads": n_jobs,
        "input, MB": f"{megabytes:.0f}",
        "above the input, MB": f"{above:.0f}",
        "ratio": f"{above / megabytes:.2f}",
    }


def fit_here(folder, n_jobs, max_iter):
    """Fit the saved rows and print by how many MB the memory of this process rose at most."""
    from silva import TAOTreeClassifier

    X, y = np.load(Path(folder) / "X.npy"), np.load(Path(folder) / "y.npy")
    model = TAOTreeClassifier(
        max_depth=8, alpha=1.0, max_iter=max_iter, tol=0, n_jobs=n_jobs, random_state=0
    )
    before = megabytes("VmRSS")
    model.fit(X, y)
    print(json.dumps(megabytes("VmHWM") - before))


def megabytes(field):
    """Read a field of the status of this process, written in units of 1024 bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6
