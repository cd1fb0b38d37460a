"""Kernel trees and forests for numbers with 25 to 250 labels.

R² in percent, mean over draws of rows and labels: "transductive / inductive", that is on the
unlabelled training rows and on rows never seen; 0 is no better than the mean target of the rows
judged, and there is no lower end. A draw takes up to 2,000 training rows (70 % of a smaller set),
any of which are labelled up to the count, and up to as many test rows. Categories become indicator
columns, missing values means, and columns get mean 0 and deviation 1, by the training rows. The
paper of these trees leaves regression open.

Ours have their default settings: KT, KF, KF extra (`KernelTreeRegressor`, and forests of 100).
Supervised, on the labelled rows: CART and RF, scikit-learn's tree and forest. PCT is
`PredictiveClusteringTreeRegressor`, SSL-PCT with a supervision chosen by cross-validation. LapTAO
is ours by another paper. Case: a set with a count of labels.
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import r2_score

from benchmarks.kernel_trees import ROWS, Draw, duel, measure, rows_of, significance, split
from benchmarks.semi import fit_quietly, hide, regressors
from benchmarks.table import Table
from silva import KernelForestRegressor, KernelTreeRegressor

SETS = (
    "abalone", "ailerons", "bike_sharing_hour", "concrete", "cpu_act", "house_16H", "pol",
    "protein",
)  # fmt: skip
QUICK_SETS = ("concrete", "cpu_act")
COUNTS = (25, 100, 250)
DUELS = (("KF", "RF"), ("KF extra", "RF"), ("KT", "PCT"), ("KT", "CART"), ("KT", "LapTAO"))


def run(options):
    """Return the table."""
    seeds = range(options.seeds or (1 if options.quick else 3))
    counts = COUNTS[:1] if options.quick else COUNTS
    names = (*(QUICK_SETS if options.quick else SETS), *options.sets)
    size = options.rows or (300 if options.quick else ROWS)
    notes = [f"Draws: {len(seeds)}. Training rows of a set: at most {size}."]
    measured = measure(score, names, counts, seeds, size, notes, options.quick)
    if not measured.cases:
        return Table([], notes)
    return Table(rows_of(measured, counts), notes + verdicts(measured, counts))


def draw(data, count, seed, size):
    """Return rows of a set, with `count` labels; the rows are the same for any count."""
    rng = np.random.default_rng(seed)
    train, test, X, X_test = split(data, rng, size)
    y = data.y[train]
    labelled = np.zeros(len(train), bool)
    labelled[rng.permutation(len(train))[:count]] = True
    return Draw(X, y, hide(y, labelled, "regression"), X_test, data.y[test])


def methods(seed):
    """Return the methods by name; NaN marks an unlabelled row."""
    known = regressors(seed)
    return {
        "KT": KernelTreeRegressor(random_state=seed),
        "KF": KernelForestRegressor(random_state=seed),
        "KF extra": KernelForestRegressor(kind="extra", random_state=seed),
        "CART": known["CART, labels only"],
        "RF": known["forest, labels only"],
        "PCT": known["SSCT"],
        "LapTAO": known["LapTAO"],
    }


def score(data, count, seed, size):
    """Return the transductive and the inductive R² of every method on one draw."""
    part = draw(data, count, seed, size)
    hidden = np.isnan(part.partial)
    found = {}
    for name, model in methods(seed).items():
        fit_quietly(model, part.X, part.partial)
        inside = getattr(model, "transduction_", None)
        inside = model.predict(part.X) if inside is None else inside
        found[name] = [
            r2_score(part.y[hidden], inside[hidden]),
            r2_score(part.y_test, model.predict(part.X_test)),
        ]
    return found


def verdicts(results, counts):
    """Return what the figures say, a note each."""
    notes = [significance(results, kind) for kind in (0, 1)]
    for ours, theirs in DUELS:
        gaps = "; ".join(duel(results, ours, theirs, count) for count in counts)
        notes.append(f"{ours} less {theirs}, points: {gaps}.")
    return notes
