"""Six labels in the plane: the first figure of the LapTAO paper, as a picture.

Accuracy over all rows, mean over draws, of oblique trees of depth 2 on two classes in the plane:
trained on every label, on six, and by LapTAO on six labels and all rows; each the best of ten
random starts by its own objective. The picture of one draw is written beside this page.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import clone

from benchmarks.pictures import save, subplots
from benchmarks.table import Table, progress, spread
from silva import LapTAOClassifier, TAOTreeClassifier, TAOTreeRegressor

PICTURE = "toy.svg"
TREE = {"max_depth": 2, "alpha": 0.01, "split": "oblique", "init": "random"}
STARTS = 10
DRAWN = 2  # the draw in the picture


def run(options):
    """Return the table, and draw the picture unless the run is a quick one."""
    draws = range(2 if options.quick else 10)
    accuracy = {}
    for seed in draws:
        X, truth, y = rows_and_labels(seed)
        models = fit_all(X, truth, y)
        for name, model in models.items():
            accuracy.setdefault(name, []).append(100 * np.mean(model.predict(X) == truth))
        progress(f"  {seed}: {[round(values[-1], 1) for values in accuracy.values()]}")
        if seed == DRAWN and not options.quick:
            draw(X, truth, y, models)
    rows = [
        {"model": name, "accuracy %": spread(values, 1)}
        | ({} if options.quick else {"in the picture": f"{values[DRAWN]:.1f}"})
        for name, values in accuracy.items()
    ]
    notes = [f"Draws of rows and labels: {len(draws)}."]
    notes += [] if options.quick else [f"![decision regions]({PICTURE})"]
    return Table(rows, notes)


def fit_all(X, truth, y):
    """Return the three trees by name."""
    known = y >= 0
    trees = [TAOTreeClassifier(**TREE, random_state=seed) for seed in range(STARTS)]
    joint = [
        LapTAOClassifier(estimator=TAOTreeRegressor(**TREE, random_state=seed), random_state=seed)
        for seed in range(STARTS)
    ]
    return {
        "tree on all labels": best(trees, X, truth, tree_objective),
        "tree on six labels": best(trees, X[known], y[known], tree_objective),
        "LapTAO on six labels and all rows": best(joint, X, y, joint_energy),
    }


def best(models, X, y, objective):
    """Return the model of the lowest objective, fitted."""
    return min((clone(model).fit(X, y) for model in models), key=objective)


def tree_objective(model):
    """Return the lowest objective of a tree's passes."""
    return min(step.objective for step in model.history_)


def joint_energy(model):
    """Return the lowest energy of LapTAO's rounds."""
    return min(step.energy for step in model.history_)


def rows_and_labels(seed):
    """Return rows in the plane, their classes, and the classes with all but six hidden."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, 400)
    truth = np.repeat([0, 1], 200)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.12 * rng.normal(size=(400, 2))
    X[truth == 1] = [0.9, 0.35] - X[truth == 1]
    y = np.full(400, -1)
    for label in (0, 1):
        rows = np.flatnonzero(truth == label)
        y[rng.choice(rows, 3, replace=False)] = label
    return X, truth, y


def draw(X, truth, y, models):
    """Write the picture of the decision regions."""
    low, high = X.min(axis=0) - 0.2, X.max(axis=0) + 0.2
    a, b = np.meshgrid(np.linspace(low[0], high[0], 300), np.linspace(low[1], high[1], 300))
    figure, axes = subplots(1, 3, figsize=(12, 3.4))
    for axis, (name, model) in zip(axes, models.items(), strict=True):
        region = model.predict(np.column_stack([a.ravel(), b.ravel()])).reshape(a.shape)
        axis.contourf(a, b, region, levels=[-0.5, 0.5, 1.5], colors=["#cfe3f5", "#f9dcc4"])
        axis.scatter(*X.T, c=np.where(truth == 0, "#2b6ca3", "#d9722b"), s=5)
        axis.scatter(*X[y >= 0].T, c="black", marker="x", s=60)
        axis.set(title=name, xticks=[], yticks=[])
    save(figure, PICTURE)
