"""Tables with few labels: one tree with default settings against what others make of them.

Test accuracy in percent with 1, 5 and 10 % of the training rows labelled (at least two a class),
mean over the seeds. Each seed draws at most 2,000 rows of a set, 70 % of them for training, and the
labels; missing values are filled with medians beforehand, categories are the integer codes of the
files. All methods have their default settings and see the same rows. "EBBS, 1 tree" smooths the
labels over our graph and fits our tree to them once; LapCART is `LapTAOClassifier` around
scikit-learn's tree. Ranks are over the methods before "forest, labels only", which is not one tree
and is shown as the bar. The last column says what the unlabelled rows brought: LapTAO less the TAO
tree on the labelled rows alone; where it is negative they hurt.
"""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata

from benchmarks.semi import choose_labelled, classifiers, fit_quietly, hide
from benchmarks.table import Table, available, progress

SETS = (
    "optdigits", "segmentation", "satimage", "pima", "spambase", "magic", "waveform_21",
    "waveform_40", "phoneme", "banknote_authentication", "cmc", "adult", "splice", "ring", "car",
    "eeg_eye_state", "breast_cancer_wisconsin", "vowel", "wine_quality_red", "mushroom", "dna",
    "letter", "australian", "tic_tac_toe", "ann_thyroid", "allhypo", "shuttle",
    "skin_segmentation",
)  # fmt: skip
QUICK_SETS = ("pima",)
SHARES = (0.01, 0.05, 0.10)
ROWS, TRAINING_SHARE = 2000, 0.7
BAR = "forest, labels only"
LEFT_OUT = ("kNN",)  # LabelSpreading stands for neighbours here


def run(options):
    """Return the table."""
    seeds = range(options.seeds or (1 if options.quick else 5))
    shares = SHARES[1:2] if options.quick else SHARES
    names = (*(QUICK_SETS if options.quick else SETS), *options.sets)
    notes = [f"Seeds: {len(seeds)}. Rows of a set: at most {ROWS}."]
    scores = {}
    for data in available(names, notes):
        jobs = [(share, seed) for share in shares for seed in seeds]
        results = Parallel(n_jobs=1 if options.quick else -1)(
            delayed(score)(data, share, seed) for share, seed in jobs
        )
        for share in shares:
            cells = [r for (s, _), r in zip(jobs, results, strict=True) if s == share]
            scores[share, data.name] = {
                name: float(np.mean([cell[name] for cell in cells])) for name in cells[0]
            }
            progress(f"  {share:.0%}: {scores[share, data.name]}")
    rows = [row for share in shares for row in rows_of(share, scores)]
    return Table(rows, notes)


def score(data, share, seed):
    """Return the test accuracy of every method on one draw."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(data.y))[:ROWS]
    cut = int(TRAINING_SHARE * len(rows))
    train, test = rows[:cut], rows[cut:]
    X = fill(data.X)
    y = data.y[train]
    partly = hide(y, choose_labelled(y, share, "classification", rng), "classification")
    return {
        name: float(np.mean(fit_quietly(model, X[train], partly).predict(X[test]) == data.y[test]))
        for name, model in classifiers(seed).items()
        if name not in LEFT_OUT
    }


def fill(X):
    """Return X with missing values filled by the column's median, by 0 where all are missing."""
    if not np.isnan(X).any():
        return X
    X = np.where(np.isnan(X).all(axis=0), 0.0, X)
    return np.where(np.isnan(X), np.nanmedian(X, axis=0), X)


def rows_of(share, scores):
    """Return the rows of one share of labels: the sets, the means and the mean ranks."""
    results = {name: cell for (s, name), cell in scores.items() if s == share}
    if not results:
        return []
    methods = list(next(iter(results.values())))
    ranked = [name for name in methods if name != BAR]
    label = f"{share:.0%}"
    rows = [
        {"labelled": label, "data set": name}
        | {method: f"{100 * cell[method]:.1f}" for method in methods}
        | {"gain": f"{100 * (cell['LapTAO'] - cell['TAO, labels only']):+.1f}"}
        for name, cell in results.items()
    ]
    table = np.array([[cell[method] for method in methods] for cell in results.values()])
    mean = dict(zip(methods, 100 * table.mean(axis=0), strict=True))
    ranks = rankdata(-table[:, : len(ranked)], axis=1).mean(axis=0)
    gain = mean["LapTAO"] - mean["TAO, labels only"]
    rows.append(
        {"labelled": label, "data set": "**mean**"}
        | {method: f"{value:.1f}" for method, value in mean.items()}
        | {"gain": f"{gain:+.1f}"}
    )
    rows.append(
        {"labelled": label, "data set": "**mean rank**"}
        | {method: f"{rank:.2f}" for method, rank in zip(ranked, ranks, strict=True)}
    )
    return rows
