"""Six labels in the plane: the first figure of the LapTAO paper, as a picture.

Accuracy over all rows of oblique trees of depth 2 on two classes in the plane: trained on every
label, on six, and by LapTAO on six labels and all rows. The picture is written beside this page.
"""

from __future__ import annotations

import numpy as np

from benchmarks.semi import LabelsOnly
from benchmarks.table import Table
from silva import LapTAOClassifier, TAOTreeClassifier, TAOTreeRegressor

PICTURE = "toy.svg"


def run(options):
    """Return the table, and draw the picture unless the run is a quick one."""
    X, truth, y = rows_and_labels(0)
    depth = {"max_depth": 2, "alpha": 0.01, "split": "oblique"}
    models = {
        "tree on all labels": TAOTreeClassifier(**depth, random_state=0).fit(X, truth),
        "tree on six labels": LabelsOnly(TAOTreeClassifier(**depth, random_state=0)).fit(X, y),
        "LapTAO on six labels and all rows": LapTAOClassifier(
            estimator=TAOTreeRegressor(**depth, random_state=0), random_state=0
        ).fit(X, y),
    }
    rows = [
        {"model": name, "accuracy %": f"{100 * np.mean(model.predict(X) == truth):.1f}"}
        for name, model in models.items()
    ]
    notes = []
    if not options.quick:
        draw(X, truth, y, models)
        notes.append(f"![decision regions]({PICTURE})")
    return Table(rows, notes)


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
        y[rows[np.argsort(X[rows, 0])[[20, 100, 180]]]] = label
    return X, truth, y


def draw(X, truth, y, models):
    """Write the picture of the decision regions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from benchmarks.__main__ import RESULTS

    low, high = X.min(axis=0) - 0.2, X.max(axis=0) + 0.2
    a, b = np.meshgrid(np.linspace(low[0], high[0], 300), np.linspace(low[1], high[1], 300))
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    for axis, (name, model) in zip(axes, models.items(), strict=True):
        region = model.predict(np.column_stack([a.ravel(), b.ravel()])).reshape(a.shape)
        axis.contourf(a, b, region, levels=[-0.5, 0.5, 1.5], colors=["#cfe3f5", "#f9dcc4"])
        axis.scatter(*X.T, c=np.where(truth == 0, "#2b6ca3", "#d9722b"), s=5)
        axis.scatter(*X[y >= 0].T, c="black", marker="x", s=60)
        axis.set(title=name, xticks=[], yticks=[])
    figure.savefig(RESULTS / PICTURE, metadata={"Date": None})
    plt.close(figure)
