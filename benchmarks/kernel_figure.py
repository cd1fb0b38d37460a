"""Ten labels on two moons: the first figure of the kernel tree paper, as a picture.

Accuracy over all rows, mean over draws, of single trees on two moons of which five rows each are
labelled: a kernel tree with smooth and with robust leaves, scikit-learn's tree on the labelled
rows, and a predictive clustering tree on all rows with half its eye on the labels. The picture of
the first draw is written beside this page: the boxes of the smooth kernel tree, then what each tree
answers where.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_moons
from sklearn.tree import DecisionTreeClassifier

from benchmarks.pictures import save, subplots
from benchmarks.semi import LabelsOnly
from benchmarks.table import Table, progress, spread
from silva import KernelTreeClassifier, PredictiveClusteringTreeClassifier

PICTURE = "kernel_figure.svg"
ROWS, LABELS, NOISE = 400, 5, 0.1
DRAWN = 0  # the draw in the picture
SMOOTH, ROBUST = "kernel tree, smooth", "kernel tree, robust"
REGIONS, POINTS, UNLABELLED = ["#cfe3f5", "#f9dcc4"], ["#2b6ca3", "#d9722b"], "#9a9a9a"


def run(options):
    """Return the table, and draw the picture unless the run is a quick one."""
    draws = range(options.seeds or (2 if options.quick else 20))
    accuracy = {}
    for seed in draws:
        X, truth, y = rows_and_labels(seed)
        models = fit_all(X, y, seed)
        for name, model in models.items():
            accuracy.setdefault(name, []).append(100 * np.mean(model.predict(X) == truth))
        progress(f"  {seed}: {[f'{values[-1]:.1f}' for values in accuracy.values()]}")
        if seed == DRAWN and not options.quick:
            draw(X, y, models)
    rows = [
        {"model": name, "accuracy %": spread(values, 1), "in the picture": f"{values[DRAWN]:.1f}"}
        for name, values in accuracy.items()
    ]
    notes = [f"Draws of rows and labels: {len(draws)}."]
    notes += [] if options.quick else [f"![boxes and decision regions]({PICTURE})"]
    return Table(rows, notes)


def rows_and_labels(seed):
    """Return rows on two moons, their classes, and the classes with all but ten hidden."""
    X, truth = make_moons(ROWS, noise=NOISE, random_state=seed)
    rng = np.random.default_rng(seed)
    y = np.full(ROWS, -1)
    for label in (0, 1):
        y[rng.choice(np.flatnonzero(truth == label), LABELS, replace=False)] = label
    return X, truth, y


def fit_all(X, y, seed):
    """Return the trees by name; leaves merge only if they answer the same, for the boxes' sake."""
    kernel = {"merge_tol": 0.0, "random_state": seed}
    models = {
        SMOOTH: KernelTreeClassifier(**kernel),
        ROBUST: KernelTreeClassifier(leaf_values="robust", **kernel),
        "CART, ten labels": LabelsOnly(DecisionTreeClassifier(random_state=seed)),
        "predictive clustering tree": PredictiveClusteringTreeClassifier(
            supervision=0.5, random_state=seed
        ),
    }
    return {name: model.fit(X, y) for name, model in models.items()}


def boxes(tree, low, high):
    """Return the lower and upper corners of the leaves of a tree on single columns."""
    feature = np.zeros(tree.n_nodes, int)
    feature[~tree.is_leaf] = tree.coefficients.indices
    found, stack = [], [(0, np.array(low), np.array(high))]
    while stack:
        node, low, high = stack.pop()
        if tree.left[node] < 0:
            found.append((low, high))
            continue
        below, above = high.copy(), low.copy()
        below[feature[node]] = above[feature[node]] = tree.threshold[node]
        stack += [(tree.left[node], low, below), (tree.right[node], above, high)]
    return found


def draw(X, y, models):
    """Write the picture."""
    from matplotlib.patches import Rectangle

    low, high = X.min(axis=0) - 0.2, X.max(axis=0) + 0.2
    a, b = np.meshgrid(np.linspace(low[0], high[0], 300), np.linspace(low[1], high[1], 300))
    figure, axes = subplots(1, 1 + len(models), figsize=(16, 3))
    for corner, opposite in boxes(models[SMOOTH].tree_, low, high):
        axes[0].add_patch(
            Rectangle(corner, *(opposite - corner), fill=False, edgecolor="#555555", lw=0.6)
        )
    axes[0].set_title("the grown tree's boxes")
    for axis, (name, model) in zip(axes[1:], models.items(), strict=True):
        region = model.predict(np.column_stack([a.ravel(), b.ravel()])).reshape(a.shape)
        axis.contourf(a, b, region, levels=[-0.5, 0.5, 1.5], colors=REGIONS)
        axis.set_title(name)
    for axis in axes:
        axis.scatter(*X[y < 0].T, c=UNLABELLED, s=4)
        for label, colour in enumerate(POINTS):
            axis.scatter(*X[y == label].T, c=colour, marker="X", s=70, edgecolors="black")
        axis.set(xticks=[], yticks=[], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    save(figure, PICTURE)
