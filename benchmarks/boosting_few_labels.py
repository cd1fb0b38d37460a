"""Boosting with few labels: boosted TAO trees that see the unlabelled rows, beside labels only.

Test accuracy in percent with 1, 5 and 10 % of the training rows labelled (at least two a class),
mean over the seeds. `TAOBoostClassifier` with default settings (30 trees) fills in the labels of
the unlabelled rows over a graph, with forests as weak anchors, then boosts on all rows. Beside it:
the same boosting, XGBoost and a random forest on the labelled rows alone, and LabelSpreading over
nearest neighbours on standardised columns. Each seed draws at most 2,000 rows of a table, 70 % of
them for training; Letter and MNIST have their usual test rows and all training rows (MNIST 10,000).
The last column is ours less the best of the others.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading

from benchmarks.data import Unavailable
from benchmarks.few_labels import ROWS, SHARES, TRAINING_SHARE, fill
from benchmarks.semi import LabelsOnly, choose_labelled, fit_quietly, hide
from benchmarks.table import Table, available, mean_ranks, progress, skip
from silva import TAOBoostClassifier

SETS = (
    "mnist", "letter", "optdigits", "segmentation", "satimage", "spambase", "magic", "waveform_40",
    "phoneme", "splice", "car", "adult",
)  # fmt: skip
QUICK_SETS = ("pima",)
TRAINING_ROWS = 10_000  # of a set with a usual split
OURS = "TAOBoost, all rows"


def run(options):
    """Return the table."""
    seeds = range(options.seeds or (1 if options.quick else 3))
    shares = SHARES[1:2] if options.quick else SHARES
    names = (*(QUICK_SETS if options.quick else SETS), *options.sets)
    notes, rows = [f"Seeds: {len(seeds)}."], []
    boosted = has_xgboost(notes)
    scores = {share: {} for share in shares}
    for data in available(names, notes):
        for share in shares:
            cells = [score(data, share, seed, boosted) for seed in seeds]
            scores[share][data.name] = {
                name: float(np.mean([cell[name] for cell in cells])) for name in cells[0]
            }
            progress(f"  {share:.0%}: {scores[share][data.name]}")
    for share, found in scores.items():
        rows += rows_of(f"{share:.0%}", found)
    return Table(rows, notes, ("xgboost",))


def has_xgboost(notes):
    """Whether XGBoost is there; a note if it is not."""
    try:
        import xgboost  # noqa: F401
    except ImportError:
        skip(Unavailable("XGBoost: xgboost is not installed"), notes)
        return False
    return True


def methods(seed, boosted):
    """Return the methods by name; -1 marks an unlabelled row."""
    ours = {"n_estimators": 30, "n_jobs": -1, "random_state": seed}
    found = {
        OURS: TAOBoostClassifier(**ours),
        "TAOBoost, labels only": LabelsOnly(TAOBoostClassifier(**ours)),
        "forest, labels only": LabelsOnly(RandomForestClassifier(n_jobs=-1, random_state=seed)),
        "LabelSpreading": make_pipeline(
            StandardScaler(), LabelSpreading(kernel="knn", max_iter=100)
        ),
    }
    if boosted:
        from xgboost import XGBClassifier

        found["XGBoost, labels only"] = LabelsOnly(XGBClassifier(n_jobs=-1, random_state=seed))
    return found


def score(data, share, seed, boosted):
    """Return the test accuracy of every method on one draw."""
    rng = np.random.default_rng(seed)
    X, order = fill(data.X), rng.permutation(len(data.y))
    if data.X_test is None:
        cut = int(TRAINING_SHARE * len(order[:ROWS]))
        train, test = order[:cut], order[cut:ROWS]
        X_test, y_test = X[test], data.y[test]
    else:
        train, X_test, y_test = order[:TRAINING_ROWS], data.X_test, data.y_test
    y = data.y[train]
    partly = hide(y, choose_labelled(y, share, "classification", rng), "classification")
    return {
        name: float(np.mean(fit_quietly(model, X[train], partly).predict(X_test) == y_test))
        for name, model in methods(seed, boosted).items()
    }


def rows_of(label, results):
    """Return the rows of one share of labels: the sets, the means and the mean ranks."""
    if not results:
        return []
    names = list(next(iter(results.values())))
    table = np.array([[cell[name] for name in names] for cell in results.values()])
    table = np.vstack([table, table.mean(axis=0)])
    rows = [
        {"labelled": label, "data set": data_set}
        | {name: f"{100 * value:.1f}" for name, value in zip(names, values, strict=True)}
        | {"lead": f"{100 * (values[0] - values[1:].max()):+.1f}"}
        for data_set, values in zip((*results, "**mean**"), table, strict=True)
    ]
    ranks = mean_ranks(table[:-1])
    rows.append(
        {"labelled": label, "data set": "**mean rank**"}
        | {name: f"{rank:.2f}" for name, rank in zip(names, ranks, strict=True)}
    )
    return rows
