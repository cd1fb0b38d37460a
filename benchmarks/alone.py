"""Fits in processes of their own, where the memory that they need can be read off."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.data import Unavailable
from benchmarks.table import progress, skip


def rows_alone(module, names, notes):
    """Return the rows that `module.fit_here(name)` prints last, as JSON, each in a new process.

    A fit that ends without one becomes a note.
    """
    rows = []
    for name in names:
        worker = f"from {module} import fit_here; fit_here({name!r})"
        done = subprocess.run([sys.executable, "-c", worker], stdout=subprocess.PIPE, text=True)
        try:
            rows.append(json.loads(done.stdout.splitlines()[-1]))
        except (IndexError, ValueError):
            skip(Unavailable(f"{name}: the fit ended with code {done.returncode}"), notes)
        else:
            progress(f"  {rows[-1]}")
    return rows
