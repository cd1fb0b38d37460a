"""What boosted TAO trees depend on: depth, iterations, shrinkage, number of trees, weighting.

S-TAO on Letter around the settings of the paper (depth 11, 20 iterations, shrinkage 0.1), one thing
varied at a time: test error in percent after so many trees, mean over the seeds (Figs. 2 and 3 of
"Improved Multiclass AdaBoost Using Sparse Oblique Decision Trees"); and, on Letter and on MNIST
(depth 8), training and test error where the weights of the rows enter the tree exactly, or rows are
drawn by them (Fig. 4). The other settings are those that the table `boosting` would choose, on a
fifth of the training rows.
"""

from __future__ import annotations

import numpy as np

from benchmarks.boosting import CASES, choose, described
from benchmarks.pictures import save, subplots
from benchmarks.table import Table, available, progress
from silva import TAOBoostClassifier

BASE = {
    "split": "oblique",
    "max_iter": 20,
    "learning_rate": 0.1,
    "weighting": "exact",
}
WEIGHTING = ("resample", "exact")
VARIED = {
    "letter": {
        "max_depth": (5, 8, 11, 14),
        "max_iter": (2, 5, 20, 60),
        "learning_rate": (0.03, 0.1, 0.3, 1.0),
        "weighting": WEIGHTING,
    },
    "mnist": {"weighting": WEIGHTING},
}
STAGES = (1, 10, 30, 100, 300)
TREES = {"letter": 100, "mnist": 30}
MOST_TREES = 300
LONG = {("max_iter", 5), ("max_iter", 20), ("max_iter", 60)}  # Fig. 3: does it overfit?
PICTURE = "boosting_study.svg"


def run(options):
    """Return the table."""
    notes, rows, curves = [], [], {}
    n_seeds = options.seeds or 1
    for data in available(("letter",) if options.quick else VARIED, notes):
        case = CASES[data.name]
        base = BASE | {"max_depth": case.depth}
        base |= case.candidates[0] if options.quick else choose(data, case, base)
        notes.append(f"{data.name}: {described(base)}; seeds: {n_seeds}.")
        for name, value in settings(data.name, options.quick):
            n_trees = MOST_TREES if (name, value) in LONG else TREES[data.name]
            errors = np.mean(
                [
                    grow(data, base | {name: value}, 2 if options.quick else n_trees, seed)
                    for seed in range(n_seeds)
                ],
                axis=0,
            )
            curves[data.name, name, value] = errors
            for part, error in zip(("training", "test"), errors, strict=True):
                if part == "training" and name != "weighting":
                    continue
                rows.append(
                    {"data set": data.name, "varied": name, "value": value, "error of": part}
                    | {
                        f"{trees} trees": f"{error[trees - 1]:.2f}"
                        for trees in STAGES
                        if trees <= len(error)
                    }
                )
            progress(f"  {name} {value}: {rows[-1]}")
    if not options.quick:
        draw(curves)
        notes.append(f"![test error against the number of trees]({PICTURE})")
    return Table(rows, notes)


def settings(data_name, quick):
    """Yield what is varied."""
    for name, values in VARIED[data_name].items():
        yield from ((name, value) for value in (values[:1] if quick else values))


def grow(data, options, n_trees, seed):
    """Return training and test error in percent after each tree; the last is kept to the end."""
    model = TAOBoostClassifier(
        n_estimators=n_trees, n_jobs=-1, random_state=seed, **options
    ).fit(data.X, data.y)  # fmt: skip
    parts = ((data.X, data.y), (data.X_test, data.y_test))
    errors = np.array([[np.mean(p != y) for p in model.staged_predict(X)] for X, y in parts])
    missing = n_trees - errors.shape[1]  # boosting may stop early
    return 100 * np.pad(errors, ((0, 0), (0, missing)), mode="edge")


def draw(curves):
    """Write the picture: a panel for each setting."""
    panels = list(dict.fromkeys((data_name, name) for data_name, name, _ in curves))
    figure, axes = subplots(2, 3, figsize=(14, 7))
    for axis, panel in zip(axes.flat, panels, strict=False):
        for (*place, value), (training, test) in curves.items():
            if tuple(place) == panel:
                trees = np.arange(1, len(test) + 1)
                (line,) = axis.loglog(trees, test, label=f"{value}")
                if panel[1] == "weighting":
                    shown = np.maximum(training, 1e-3)
                    axis.loglog(trees, shown, "--", color=line.get_color())
        axis.set(title=", ".join(panel), xlabel="trees", ylabel="test error % (dashed: training)")
        axis.legend(fontsize=8)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    save(figure, PICTURE)
