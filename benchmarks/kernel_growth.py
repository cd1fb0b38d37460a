"""Growth time of kernel trees beside scikit-learn's trees, and as the rows grow.

Seconds on one thread, the least of several turns; in a turn every model is run once, so that ratios
are of one and the same run. "growth" is the tree without values at its leaves, binning of the rows
included, with supervision 0.5; "fit" is the estimator from rows to answers for all of them. Kernel
trees see all rows and 100 labels, scikit-learn's DecisionTreeClassifier and
RandomForestClassifier(100) the same rows and all labels. Kernel forests have 100 crisp trees, their
leaves valued jointly; the plain ones have no supervised forests in them (blend 1) and count columns
alike. In the last part trees have 100 leaves (before leaves that answer alike are merged): cost is
linear if the time per row stays.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from benchmarks.data import DataSet
from benchmarks.semi import choose_count, hide
from benchmarks.table import Table, available, progress
from silva import KernelForestClassifier, KernelTreeClassifier
from silva.kernel_growth import Growth
from silva.kernel_trees import Task, column_ranges, deviations

SETS = ("eeg_eye_state", "optdigits")
FOREST_SET, LARGE_SET = "optdigits", "skin_segmentation"
SIZES = (10_000, 30_000, 100_000, 245_057)
LABELS, SUPERVISION, BANDWIDTH, LEAVES = 100, 0.5, 0.2, 100
TREE, FOREST = "scikit-learn's tree", "scikit-learn's forest"


def run(options):
    """Return the table."""
    turns = options.seeds or (1 if options.quick else 5)
    notes, rows = [f"Turns: {turns}."], []
    n_trees, sizes = (5, SIZES[:1]) if options.quick else (100, SIZES)
    for data in generated() if options.quick else available((*SETS, LARGE_SET), notes):
        if data.name == LARGE_SET:
            rows += [row for size in sizes for row in size_rows(data, size, turns)]
        else:
            rows += tree_rows(data, turns, n_trees)
        if data.name == FOREST_SET:
            rows += forest_rows(data, turns, n_trees)
    return Table(rows, notes)


def generated():
    """Yield small sets of noise under the names of the table, for a quick run."""
    rng = np.random.default_rng(0)
    for name in (FOREST_SET, LARGE_SET):
        X = rng.normal(size=(500, 4))
        yield DataSet(name, X, (X[:, 0] > 0).astype(int), None, None, "classification", ())


# ---- the parts ----------------------------------------------------------------------------------


def tree_rows(data, turns, n_trees):
    """Return the rows of one tree: growth and fit, crisp and fuzzy, beside scikit-learn's."""
    X, y, partial, task = posed(data.X, data.y)
    spread = BANDWIDTH * task.deviation
    growths = {
        "kernel tree, crisp growth, ccp_alpha 0.001": Growth(SUPERVISION, ccp_alpha=1e-3),
        "kernel tree, crisp growth, ccp_alpha 0": Growth(SUPERVISION),
        "kernel tree, fuzzy growth, ccp_alpha 0.001": Growth(
            SUPERVISION, ccp_alpha=1e-3, bandwidth=spread
        ),
        "kernel tree, fuzzy growth, ccp_alpha 0.0003": Growth(
            SUPERVISION, ccp_alpha=3e-4, bandwidth=spread
        ),
    }
    models = {name: grower(task, growth) for name, growth in growths.items()} | {
        "kernel tree, fit": fitter(KernelTreeClassifier(random_state=0), X, partial),
        TREE: fitter(DecisionTreeClassifier(random_state=0), X, y),
        FOREST: fitter(RandomForestClassifier(n_trees, random_state=0), X, y),
    }
    return rows_of(data.name, len(X), least_times(models, turns))


def forest_rows(data, turns, n_trees):
    """Return the rows of forests."""
    X, y, partial, _ = posed(data.X, data.y)
    ours = {
        "kernel forest, plain, fit": KernelForestClassifier(
            n_estimators=n_trees, blend=1.0, scaling="deviation", random_state=0
        ),
        "kernel forest, extra, plain, fit": KernelForestClassifier(
            n_estimators=n_trees, kind="extra", blend=1.0, scaling="deviation", random_state=0
        ),
        "kernel forest, fit": KernelForestClassifier(n_estimators=n_trees, random_state=0),
    }
    models = {name: fitter(model, X, partial) for name, model in ours.items()}
    models[FOREST] = fitter(RandomForestClassifier(n_trees, random_state=0), X, y)
    return rows_of(data.name, len(X), least_times(models, turns))


def size_rows(data, size, turns):
    """Return the rows of trees of one size on some rows of a large set."""
    order = np.random.default_rng(0).permutation(len(data.y))[:size]
    X, _, partial, task = posed(data.X[order], data.y[order])
    crisp = Growth(SUPERVISION, max_leaf_nodes=LEAVES)
    fuzzy = Growth(SUPERVISION, max_leaf_nodes=LEAVES, bandwidth=BANDWIDTH * task.deviation)
    model = KernelTreeClassifier(ccp_alpha=0.0, max_leaf_nodes=LEAVES, random_state=0)
    models = {
        "kernel tree, crisp growth, 100 leaves": grower(task, crisp),
        "kernel tree, fuzzy growth, 100 leaves": grower(task, fuzzy),
        "kernel tree, fit, 100 leaves": fitter(model, X, partial),
    }
    return rows_of(data.name, len(X), least_times(models, turns))


# ---- what they share ----------------------------------------------------------------------------


def posed(X, y):
    """Return rows, classes, classes mostly hidden, and the task as the estimators pose it."""
    partial = hide(y, choose_count(y, LABELS, np.random.default_rng(0)), "classification")
    weight = np.ones(len(y))
    clipped = np.clip(X, *column_ranges(X, weight))
    task = Task(
        clipped, np.eye(y.max() + 1)[y], partial >= 0, weight, True, deviations(clipped, weight),
        None, n_threads=1,
    )  # fmt: skip
    return X, y, partial, task


def grower(task, growth):
    """Return a function that grows a tree and tells its leaves."""
    return lambda: task.grow(growth, 0).tree.n_leaves


def fitter(model, X, y):
    """Return a function that fits a model and tells the leaves of a tree."""

    def fit():
        fitted = model.fit(X, y)
        return fitted.get_n_leaves() if hasattr(fitted, "get_n_leaves") else ""

    return fit


def least_times(models, turns):
    """Return the leaves and the least seconds of each model; turns go round."""
    found = dict.fromkeys(models, ("", np.inf))
    for _ in range(turns):
        for name, model in models.items():
            begin = time.perf_counter()
            leaves = model()
            found[name] = (leaves, min(found[name][1], time.perf_counter() - begin))
    return found


def rows_of(name, n_rows, found):
    """Return a row a model."""
    rows = []
    for model, (leaves, seconds) in found.items():
        row = {"data set": name, "rows": n_rows, "model": model, "leaves": leaves}
        row |= {"seconds": f"{seconds:.3f}", "µs a row": f"{1e6 * seconds / n_rows:.2f}"}
        row |= {
            f"/ {peer}": f"{seconds / found[peer][1]:.2f}"
            for peer in (TREE, FOREST)
            if peer in found
        }
        rows.append(row)
        progress(f"  {row}")
    return rows
