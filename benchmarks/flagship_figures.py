"""The flagship on cpu_act and MNIST, its calibration, and what a fit costs.

Mean squared error on cpu_act (60 % of the rows for training) and error in percent on MNIST
(official split; ours with depth 8) by the share of labelled rows, drawn as in the table `laptao`,
mean over the seeds (MNIST: one draw, 1 and 10 % only), beside a random forest plus extremely random
trees on the labels. Published rows are LapTAO's. Calibration: confidence in the class that is
answered against how often it is right, over the test rows of the sets of `few_labels` with 5 % of
the labels, one draw each, and the mean gap of the two over ten bins of equal size. Costs are those
of generated rows, on two threads; the largest fits run in processes of their own, their memory is
the highest resident one, data included. `--sets` chooses among cpu_act, mnist, calibration, cost
and size.
"""

from __future__ import annotations

import json
import time

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)

from benchmarks.alone import rows_alone
from benchmarks.few_labels import QUICK_SETS, ROWS, SETS, TRAINING_SHARE, fill
from benchmarks.growth import generated
from benchmarks.laptao import PUBLISHED, SHARES, draw_labels, split_rows, test_loss
from benchmarks.memory import STATUS, megabytes
from benchmarks.pictures import save, subplots
from benchmarks.semi import LabelsOnly, choose_labelled, fit_quietly, hide
from benchmarks.table import Table, available, progress
from silva import (
    SilvaForestClassifier,
    SilvaForestRegressor,
    SilvaTreeClassifier,
    SilvaTreeRegressor,
)
from silva.estimators.mixed_classifier import MixedClassifier

PARTS = ("cpu_act", "mnist", "calibration", "cost", "size")
TREE, FOREST, BOTH = "SilvaTree", "SilvaForest", "RF+ET, labels only"
MNIST_SHARES = (0.01, 0.10)
BINS = 10
PICTURE = "flagship_calibration.svg"
SIZE, WIDTH = 500_000, 50


def run(options):
    """Return the tables."""
    notes, rows, sections = [], [], []
    parts = options.sets or (PARTS[:3] if options.quick else PARTS)
    seeds = options.seeds or (1 if options.quick else 5)
    measures = {"cpu_act": (SHARES, seeds), "mnist": (MNIST_SHARES, 1)}
    for name in (part for part in parts if part in measures and not options.quick):
        for data in available([name], notes):
            rows += rows_of_errors(data, *measures[name])
    if options.quick:
        for data in available(["cpu_act"], notes):
            rows += rows_of_errors(data, SHARES[4:5], 1)
    if "calibration" in parts:
        found = confidences(QUICK_SETS if options.quick else SETS, notes)
        if not options.quick:
            draw(found)
            notes.append(f"![confidence against accuracy]({PICTURE})")
        sections.append(("Calibration", "", rows_of_calibration(found)))
    costs = {"cost": costs_of_rows, "size": costs_of_size}
    cells = [row for part in parts if part in costs for row in costs[part](notes)]
    if cells:
        text = "Seconds of a fit, labels and all; memory in MB."
        sections.append(("Cost", text, cells))
    return Table(rows, notes, (), tuple(sections))


# ---- errors -------------------------------------------------------------------------------------


def methods(task, seed, **settings):
    """Return ours and the two forests on the labels; settings are those of our tree."""
    numbers = task == "regression"
    tree, forest = (
        (SilvaTreeRegressor, SilvaForestRegressor)
        if numbers
        else (SilvaTreeClassifier, SilvaForestClassifier)
    )
    kinds = (
        (RandomForestRegressor, ExtraTreesRegressor)
        if numbers
        else (RandomForestClassifier, ExtraTreesClassifier)
    )
    members = [(kind.__name__, kind(random_state=seed, n_jobs=-1)) for kind in kinds]
    both = VotingRegressor(members) if numbers else VotingClassifier(members, voting="soft")
    return {
        TREE: tree(random_state=seed, n_jobs=-1, **settings),
        FOREST: forest(random_state=seed, n_jobs=-1),
        BOTH: LabelsOnly(both),
    }


def rows_of_errors(data, shares, n_seeds):
    """Return a row for each method: its error by the share of labels."""
    settings = {"max_depth": 8} if data.name == "mnist" else {}
    found = {}
    for share in shares:
        for seed in range(n_seeds):
            part = data if data.X_test is not None else split_rows(data, seed)
            labelled = draw_labels(len(part.y), share, seed)
            partly = hide(part.y, labelled, part.task)
            for name, model in methods(data.task, seed, **settings).items():
                began = time.perf_counter()
                fit_quietly(model, part.X, partly)
                loss = test_loss(model, part, labelled)
                found.setdefault(name, {}).setdefault(share, []).append(loss)
                seconds = time.perf_counter() - began
                progress(f"  {share:.0%} seed {seed} {name}: {loss:.2f}, {seconds:.0f} s")
    name = "LapTAO, published"
    published = dict(zip(SHARES, PUBLISHED[data.name][name], strict=True))
    found[name] = {share: [published[share]] for share in shares}
    unit = "MSE" if data.task == "regression" else "error %"
    return [
        {"data set": f"{data.name}, {unit}", "method": method, "draws": n_seeds}
        | {f"{share:.0%}": f"{np.mean(values):.2f}" for share, values in by_share.items()}
        for method, by_share in found.items()
    ]


# ---- calibration --------------------------------------------------------------------------------


def confidences(names, notes):
    """Return by method the confidence in the class answered, and whether it was right."""
    found = {}
    for data in available(names, notes):
        rng = np.random.default_rng(0)
        rows = rng.permutation(len(data.y))[:ROWS]
        cut = int(TRAINING_SHARE * len(rows))
        train, test = rows[:cut], rows[cut:]
        X, y = fill(data.X), data.y[train]
        partly = hide(y, choose_labelled(y, 0.05, data.task, rng), data.task)
        for name, model in methods(data.task, 0).items():
            fit_quietly(model, X[train], partly)
            model = getattr(model, "model", model)  # of one on the labels only
            shares = model.predict_proba(X[test])
            right = model.classes_[shares.argmax(axis=1)] == data.y[test]
            found.setdefault(name, []).append(np.column_stack([shares.max(axis=1), right]))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def binned(confidence, right):
    """Return mean confidence and accuracy in bins of equally many rows, the least sure first."""
    bins = np.array_split(np.argsort(confidence, kind="stable"), BINS)
    return np.array([[confidence[rows].mean(), right[rows].mean()] for rows in bins])


def rows_of_calibration(found):
    """Return a row for each method."""
    rows = []
    for name, (confidence, right) in ((name, cells.T) for name, cells in found.items()):
        gap = np.abs(np.diff(binned(confidence, right), axis=1)).mean()
        rows.append({
            "method": name, "test rows": len(right), "accuracy %": f"{100 * right.mean():.1f}",
            "mean confidence %": f"{100 * confidence.mean():.1f}",
            "mean gap of a bin, points": f"{100 * gap:.1f}",
        })  # fmt: skip
    return rows


def draw(found):
    """Write the reliability curves."""
    figure, axis = subplots(figsize=(4.5, 4.5))
    axis.plot([0, 1], [0, 1], color="lightgrey")
    for name, cells in found.items():
        axis.plot(*binned(*cells.T).T, "o-", ms=4, label=name)
    axis.set(xlabel="confidence in the class answered", ylabel="how often it is right")
    axis.legend()
    save(figure, PICTURE)


# ---- cost ---------------------------------------------------------------------------------------


def costs_of_rows(notes):
    """Return what fits of 5,000 rows cost beside two forests on the labels."""
    X, y = make_classification(5000, 20, n_informative=10, n_classes=3, random_state=0)
    labelled = draw_labels(len(y), 0.05, 0)
    rows = []
    for task, targets in (("classification", y), ("regression", X @ np.arange(20.0))):
        partly = hide(targets, labelled, task)
        for name, model in methods(task, 0).items():
            began = time.perf_counter()
            fit_quietly(model, X, partly)
            rows.append({
                "rows": 5000, "columns": 20, "labels": int(labelled.sum()),
                "fit": f"{name}, {'classes' if task == 'classification' else 'numbers'}",
                "seconds": f"{time.perf_counter() - began:.1f}",
            })  # fmt: skip
            progress(f"  {rows[-1]}")
    return rows


def costs_of_size(notes):
    """Return what the largest fits cost, each in a process of its own."""
    return rows_alone(__name__, ("teacher", TREE, FOREST), notes)


def fit_here(name, size=SIZE):
    """Fit generated rows in this process and print the row."""
    X, y = generated(size)
    noise = np.random.default_rng(1).normal(size=(size, WIDTH - X.shape[1]))
    X = np.hstack([X, noise]).astype(np.float32)
    del noise
    labelled = draw_labels(size, 0.01, 0)
    partly = hide(y, labelled, "classification")
    began = time.perf_counter()
    if name == "teacher":  # fitted to the labels, asked about all rows
        model = MixedClassifier(n_jobs=-1).fit(X[labelled], y[labelled])
        right = model.predict(X) == y
    else:
        model = methods("classification", 0)[name].fit(X, partly)
        right = model.transduction_ == y
    seconds = time.perf_counter() - began
    print(json.dumps({
        "rows": size, "columns": WIDTH, "labels": int(labelled.sum()),
        "fit": "the teacher alone, asked about all rows" if name == "teacher" else f"{name}",
        "seconds": f"{seconds:.0f}",
        "memory": round(megabytes("VmHWM")) if STATUS.exists() else "",
        "unlabelled rows found %": f"{100 * np.mean(right[~labelled]):.1f}",
    }))  # fmt: skip
