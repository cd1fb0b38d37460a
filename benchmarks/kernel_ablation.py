"""What kernel trees and forests owe to each of their parts.

Accuracy in percent on rows never seen, mean over the sets and draws of `kernel_trees` with 25 and
100 labels. Each line changes one thing about a tree or forest with default settings, or about the
forest without supervised forests in it (blend 1); the difference to that is in points, with its
standard error over sets and draws. "as the paper" changes all at once to what its appendix says:
supervision is the labelled share, columns count alike, leaves have no prior; for a tree
bandwidth (0.01 to 0.1) and ccp_alpha (0.001 to 0.1) chosen by cross-validation of the leaf values
alone; for a forest bandwidth 0.1 and ccp_alpha 0.001, log₂ of the columns a node, leaf values tree
by tree. Columns are clipped at their 1 and 99 % quantiles in all lines.
"""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone

from benchmarks.kernel_trees import ROWS, SETS, draw
from benchmarks.semi import fit_quietly
from benchmarks.table import Table, available, progress
from silva import KernelForestClassifier, KernelTreeClassifier

QUICK_SETS = ("pima",)
COUNTS = (25, 100)
GRID = {"bandwidth": [0.2, 0.05, 0.1, 0.4], "ccp_alpha": [3e-4, 1e-4, 1e-3, 3e-3]}
PAPER_GRID = {
    "bandwidth": [0.0464, 0.01, 0.0215, 0.1],
    "ccp_alpha": [0.001, 0.00316, 0.01, 0.0316, 0.1],
}
DEFAULT = "default"


def run(options):
    """Return the table."""
    seeds = range(options.seeds or (1 if options.quick else 3))
    counts = COUNTS[:1] if options.quick else COUNTS
    names = (*(QUICK_SETS if options.quick else SETS), *options.sets)
    size = options.rows or (200 if options.quick else ROWS)
    n_trees = 10 if options.quick else 100
    notes = [f"Draws: {len(seeds)}. Training rows of a set: at most {size}. Trees: {n_trees}."]
    found = {count: [] for count in counts}
    for data in available(names, notes):
        jobs = [(count, seed) for count in counts for seed in seeds]
        results = Parallel(n_jobs=1 if options.quick else -1)(
            delayed(score)(data, count, seed, size, n_trees) for count, seed in jobs
        )
        for (count, _), cell in zip(jobs, results, strict=True):
            found[count].append(cell)
        progress(f"  {len(jobs)} draws done")
    return Table(rows_of(found), notes)


def tree_changes(share):
    """Return what each line changes about a tree, by (part, line); share is of labelled rows."""
    growth, rows, leaves = "growth", "uncertain rows", "leaf values"
    paper = PAPER_GRID | {
        "supervision": share, "scaling": "deviation", "prior_weight": 0.0, "merge_tol": 0.0,
        "selection": "leaves",
    }  # fmt: skip
    return {
        ("", DEFAULT): {},
        (growth, "supervision: labelled share"): {"supervision": share},
        (growth, "supervision 0.8"): {"supervision": 0.8},
        (growth, "supervision 1: labels alone"): {"supervision": 1.0},
        (growth, "columns count alike"): {"scaling": "deviation"},
        (rows, "bandwidth 0: crisp"): {"bandwidth": 0.0},
        (rows, "bandwidth 0.1"): {"bandwidth": 0.1},
        (rows, "bandwidth 0.4"): {"bandwidth": 0.4},
        (rows, "uniform kernel"): {"kernel": "uniform"},
        (leaves, "robust"): {"leaf_values": "robust"},
        (leaves, "labelled weight 1"): {"labelled_weight": 1.0},
        (leaves, "robust, labelled weight 1"): {"leaf_values": "robust", "labelled_weight": 1.0},
        (leaves, "prior from the nodes above"): {"prior": "ancestors", "prior_weight": 0.1},
        (leaves, "no prior"): {"prior_weight": 0.0},
        (leaves, "leaves not merged"): {"merge_tol": 0.0},
        ("selection", "by trees grown anew"): GRID | {"selection": "regrow"},
        ("selection", "by leaf values alone"): GRID | {"selection": "leaves"},
        ("all", "as the paper, smooth"): paper,
        ("all", "as the paper, robust"): paper | {"leaf_values": "robust"},
    }


def blend_changes():
    """Return what each line changes about a forest that is blended with supervised ones."""
    return {
        ("", DEFAULT): {},
        ("blend", "0: supervised forests alone"): {"blend": 0.0},
        ("blend", "0.5"): {"blend": 0.5},
        ("blend", "1: no supervised forests"): {"blend": 1.0},
        ("growth", "extremely random trees"): {"kind": "extra"},
        ("leaf values", "tree by tree, smooth"): {"leaf_values": "smooth"},
        ("uncertain rows", "bandwidth 0.2"): {"bandwidth": 0.2},
    }


def forest_changes(share):
    """Return what each line changes about a forest without blend."""
    growth, leaves = "growth", "leaf values"
    paper = {
        "supervision": share, "scaling": "deviation", "prior_weight": 0.0, "bandwidth": 0.1,
        "ccp_alpha": 1e-3, "max_features": "log2",
    }  # fmt: skip
    changes = {
        ("", DEFAULT): {},
        (growth, "extremely random trees"): {"kind": "extra"},
        (growth, "supervision: labelled share"): {"supervision": share},
        (growth, "supervision 0.8"): {"supervision": 0.8},
        (growth, "columns count alike"): {"scaling": "deviation"},
        ("uncertain rows", "bandwidth 0.2"): {"bandwidth": 0.2},
        (leaves, "tree by tree, smooth"): {"leaf_values": "smooth"},
        (leaves, "tree by tree, robust"): {"leaf_values": "robust"},
        (leaves, "no prior from the nodes above"): {"prior_weight": 0.0},
        ("all", "as the paper, smooth"): paper | {"leaf_values": "smooth"},
        ("all", "as the paper, robust"): paper | {"leaf_values": "robust"},
    }
    return {key: {"blend": 1.0} | change for key, change in changes.items()}


def score(data, count, seed, size, n_trees):
    """Return the test accuracy of every line on one draw, by (model, part, line)."""
    part = draw(data, count, seed, size)
    share = float(np.mean(part.partial >= 0))
    tree = KernelTreeClassifier(random_state=seed)
    forest = KernelForestClassifier(n_estimators=n_trees, random_state=seed)
    accuracy = {}
    for name, model, changes in (
        ("tree", tree, tree_changes(share)),
        ("forest", forest, blend_changes()),
        ("forest, blend 1", forest, forest_changes(share)),
    ):
        for key, change in changes.items():
            fitted = fit_quietly(clone(model).set_params(**change), part.X, part.partial)
            accuracy[name, *key] = float(fitted.score(part.X_test, part.y_test))
    return accuracy


def rows_of(found):
    """Return a row a line: the accuracy with each count of labels, and what it owes the default."""
    counts = {count: cells for count, cells in found.items() if cells}
    if not counts:
        return []
    keys = list(next(iter(counts.values()))[0])
    rows = []
    for model, part, line in keys:
        row = {"model": model, "part": part, "line": line}
        for count, cells in counts.items():
            values = 100 * np.array([cell[model, part, line] for cell in cells])
            default = 100 * np.array([cell[model, "", DEFAULT] for cell in cells])
            row[f"{count} labels"] = f"{values.mean():.1f}"
            row[f"difference, {count}"] = "" if line == DEFAULT else difference(values - default)
        rows.append(row)
    return rows


def difference(gaps):
    """Write the mean of paired differences, with its standard error where there are several."""
    mean = f"{gaps.mean():+.2f}"
    return f"{mean} ± {gaps.std(ddof=1) / np.sqrt(len(gaps)):.2f}" if len(gaps) > 1 else mean
