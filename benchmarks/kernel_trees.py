"""Kernel trees and forests with 25 to 200 labels, beside the second figure of their paper.

Accuracy in percent, mean over draws of rows and labels: "transductive / inductive", that is on the
unlabelled training rows, as in the paper, and on rows never seen. A draw takes up to 2,000 training
rows (70 % of a smaller set) and up to as many test rows; one row of each class is labelled, then
any rows up to the count (abalone has 28 classes, so more than 25 labels). As in the paper's
appendix, categories become indicator columns, missing values means, and columns get mean 0 and
deviation 1, by the training rows. The sets are those of the paper that the data folder has.

Ours have their default settings: KT, KT robust (one tree, smooth or robust leaves), KF, KF extra
(forests of 100). Supervised, on the labelled rows: CART and RF, scikit-learn's tree and forest.
Self-RF is its self-training around the forest. PCT is `PredictiveClusteringTreeClassifier`, SSL-PCT
with a supervision chosen by cross-validation, PCT .5 with half. LapTAO, and boosted TAO trees on
labels filled in over a graph (30 trees), are ours by other papers. Not trees: LP, scikit-learn's
label propagation with the paper's widths and at most 100 iterations, the width chosen by entropy,
and LS, its label spreading over nearest neighbours. Transductive answers are a method's
`transduction_` where it has one, its predictions otherwise. Case: a set with a count of labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from benchmarks.semi import LeastEntropyPropagation, choose_count, classifiers, fit_quietly, hide
from benchmarks.table import (
    Table,
    available,
    critical_difference,
    friedman,
    mean_ranks,
    progress,
)
from silva import (
    KernelForestClassifier,
    KernelTreeClassifier,
    PredictiveClusteringTreeClassifier,
    TAOBoostClassifier,
)

SETS = (
    "abalone", "banknote_authentication", "pima", "eeg_eye_state", "hypothyroid_openml57",
    "baseball", "cmc", "segmentation", "optdigits",
)  # fmt: skip
QUICK_SETS = ("pima", "banknote_authentication")
PIXELS = ("segmentation", "optdigits")  # sets whose catalogue takes counts of pixels for categories
COUNTS = (25, 50, 100, 200)
ROWS, TRAINING_SHARE = 2000, 0.7
WIDTHS = (0.01, 0.0215, 0.0464, 0.1)
OURS = ("KT", "KT robust", "KF", "KF extra")
PAPER_TREES = ("CART", "RF", "Self-RF")
CLUSTERING_TREES = ("PCT .5", "PCT")
OTHER_TREES = ("LapTAO", "TAOBoost")
KINDS = ("transductive", "inductive")


@dataclass(frozen=True, eq=False)
class Draw:
    """Training rows with true and partly hidden targets (-1, or NaN for numbers), and test rows."""

    X: np.ndarray
    y: np.ndarray
    partial: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True, eq=False)
class Results:
    """Mean accuracy, or R²: cases (a set and a count of labels) by methods by KINDS."""

    cases: list[tuple[str, int]]
    methods: list[str]
    accuracy: np.ndarray

    def of(self, method):
        """Return the cases by KINDS of one method."""
        return self.accuracy[:, self.methods.index(method)]

    def at(self, count):
        """Return the mask of the cases with a count of labels."""
        return np.array([labels == count for _, labels in self.cases])


def run(options):
    """Return the table."""
    seeds = range(options.seeds or (1 if options.quick else 5))
    counts = COUNTS[:1] if options.quick else COUNTS
    names = (*(QUICK_SETS if options.quick else SETS), *options.sets)
    size = options.rows or (300 if options.quick else ROWS)
    notes = [f"Draws: {len(seeds)}. Training rows of a set: at most {size}."]
    measured = measure(score, names, counts, seeds, size, notes, options.quick)
    if not measured.cases:
        return Table([], notes)
    return Table(rows_of(measured, counts), notes + verdicts(measured, counts))


def measure(score, names, counts, seeds, size, notes, quick):
    """Return the mean over the draws of what `score` says of every set and count of labels.

    `score(data, count, seed, size)` returns a pair of numbers, those of KINDS, for each method.
    """
    cases, means, methods = [], [], []
    for data in available(names, notes):
        jobs = [(count, seed) for count in counts for seed in seeds]
        found = Parallel(n_jobs=1 if quick else -1)(
            delayed(score)(data, count, seed, size) for count, seed in jobs
        )
        for count in counts:
            drawn = [cell for (c, _), cell in zip(jobs, found, strict=True) if c == count]
            methods = list(drawn[0])
            cases.append((data.name, count))
            means.append(np.mean([list(cell.values()) for cell in drawn], axis=0))
            shown = dict(zip(methods, (100 * means[-1]).round(1).tolist(), strict=True))
            progress(f"  {count} labels: {shown}")
    return Results(cases, methods, np.array(means))


# ---- one draw -----------------------------------------------------------------------------------


def draw(data, count, seed, size):
    """Return rows of a set, with `count` labels; the rows are the same for any count."""
    rng = np.random.default_rng(seed)
    y = np.unique(data.y, return_inverse=True)[1]
    train, test, X, X_test = split(data, rng, size)
    labelled = choose_count(y[train], count, rng)
    return Draw(X, y[train], hide(y[train], labelled, "classification"), X_test, y[test])


def split(data, rng, size):
    """Return which rows train and which test, and both as numbers scaled by the training rows."""
    order = rng.permutation(len(data.y))
    cut = min(size, int(TRAINING_SHARE * len(order)))
    train, test, X = order[:cut], order[cut : cut + size], indicators(data)
    scale = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler()).fit(X[train])
    return train, test, scale.transform(X[train]), scale.transform(X[test])


def indicators(data):
    """Return the columns of a set; a category of more than two values is a column a value."""
    categorical = set() if data.name in PIXELS else set(data.categorical)
    columns = []
    for name, column in zip(data.names, data.X.T, strict=True):
        missing = np.isnan(column)
        values = np.unique(column[~missing])
        if name in categorical and len(values) > 2:
            columns += [np.where(missing, np.nan, column == value) for value in values]
        elif len(values) > 1:
            columns.append(column)
    return np.column_stack(columns)


def methods(seed):
    """Return the methods by name; -1 marks an unlabelled row."""
    known = classifiers(seed)
    return {
        "KT": KernelTreeClassifier(random_state=seed),
        "KT robust": KernelTreeClassifier(leaf_values="robust", random_state=seed),
        "KF": KernelForestClassifier(random_state=seed),
        "KF extra": KernelForestClassifier(kind="extra", random_state=seed),
        "CART": known["CART, labels only"],
        "RF": known["forest, labels only"],
        "Self-RF": SelfTrainingClassifier(RandomForestClassifier(random_state=seed)),
        "PCT .5": PredictiveClusteringTreeClassifier(supervision=0.5, random_state=seed),
        "PCT": known["SSCT"],
        "LapTAO": known["LapTAO"],
        "TAOBoost": TAOBoostClassifier(n_estimators=30, random_state=seed),
        "LP": LeastEntropyPropagation(WIDTHS, max_iter=100),
        "LS": LabelSpreading(kernel="knn", max_iter=100),
    }


def score(data, count, seed, size):
    """Return the transductive and the inductive accuracy of every method on one draw."""
    part = draw(data, count, seed, size)
    hidden = part.partial < 0
    accuracy = {}
    for name, model in methods(seed).items():
        fit_quietly(model, part.X, part.partial)
        inside = transduced(model, part.X)[hidden] == part.y[hidden]
        with np.errstate(invalid="ignore"):  # LP and LS divide by zero for rows out of reach
            outside = model.predict(part.X_test) == part.y_test
        accuracy[name] = [inside.mean(), outside.mean()]
    return accuracy


def transduced(model, X):
    """Return what a model says about its training rows; self-training leaves some out as -1."""
    said = getattr(model, "transduction_", None)
    if said is not None and (said >= 0).all():
        return said
    answers = model.predict(X)
    return answers if said is None else np.where(said >= 0, said, answers)


# ---- the table and what it says -----------------------------------------------------------------


def rows_of(results, counts):
    """Return a row a case, the means of each count, and the mean ranks."""
    rows = [
        {"data set": name, "labels": count} | cells(results.methods, 100 * values, 1)
        for (name, count), values in zip(results.cases, results.accuracy, strict=True)
    ]
    for count in counts:
        mean = 100 * results.accuracy[results.at(count)].mean(axis=0)
        rows.append({"data set": "**mean**", "labels": count} | cells(results.methods, mean, 1))
    ranks = np.column_stack([mean_ranks(results.accuracy[:, :, kind]) for kind in (0, 1)])
    rows.append({"data set": "**mean rank**"} | cells(results.methods, ranks, 2))
    return rows


def cells(names, values, digits):
    """Write a pair of numbers for each name."""
    return {
        name: f"{a:.{digits}f} / {b:.{digits}f}" for name, (a, b) in zip(names, values, strict=True)
    }


def verdicts(results, counts):
    """Return what the figures say, a note each."""
    notes = []
    for kind, word in enumerate(KINDS):
        shares = [
            f"{100 * np.mean(lead(results, others, kind) > 0):.0f} %"
            for others in (
                PAPER_TREES,
                (*PAPER_TREES, *CLUSTERING_TREES),
                (*PAPER_TREES, *CLUSTERING_TREES, *OTHER_TREES),
            )
        ]
        beside = " (the paper: 50 %)" if word == "transductive" else ""
        notes.append(
            f"Cases in which one of ours is the best tree-based method, {word}: {shares[0]} beside "
            f"CART, RF and Self-RF{beside}, {shares[1]} beside PCT too, {shares[2]} beside LapTAO "
            "and TAOBoost too."
        )
    notes += [significance(results, kind) for kind in (0, 1)]
    for ours, theirs in (
        ("KF", "RF"), ("KF extra", "RF"), ("KT", "PCT .5"), ("KT", "PCT"), ("KT", "CART"),
        ("KT robust", "CART"),
    ):  # fmt: skip
        gaps = "; ".join(duel(results, ours, theirs, count) for count in counts)
        notes.append(f"{ours} less {theirs}, points: {gaps}.")
    return notes


def lead(results, others, kind):
    """Return the best of ours less the best of the others, for each case."""
    best = [
        np.max([results.of(name)[:, kind] for name in group], axis=0) for group in (OURS, others)
    ]
    return best[0] - best[1]


def significance(results, kind):
    """Say whether ranks differ: over cases as in the paper, and over independent sets."""
    scores = results.accuracy[:, :, kind]
    names = list(dict.fromkeys(name for name, _ in results.cases))
    by_set = np.array([
        scores[[case == name for case, _ in results.cases]].mean(axis=0) for name in names
    ])  # fmt: skip
    parts = [
        f"{what}, Friedman p = {friedman(table):.1e}, critical difference of mean ranks "
        f"{critical_difference(scores.shape[1], len(table)):.2f} (Nemenyi, 5 %)"
        for what, table in (
            (f"{len(scores)} cases", scores),
            (f"{len(by_set)} sets (mean over the counts)", by_set),
        )
    ]
    ranks = sorted(zip(mean_ranks(by_set), results.methods, strict=True))
    order = ", ".join(f"{name} {rank:.1f}" for rank, name in ranks)
    return f"Ranks, {KINDS[kind]}: {'; '.join(parts)}. Mean ranks over the sets: {order}."


def duel(results, ours, theirs, count):
    """Say by how many points one method leads another, and where it is worst."""
    here = results.at(count)
    gap = 100 * (results.of(ours) - results.of(theirs))[here]
    names = [name for name, labels in results.cases if labels == count]
    worst = gap[:, 1].argmin()
    return (
        f"{count} labels {gap[:, 0].mean():+.1f} / {gap[:, 1].mean():+.1f} "
        f"(worst inductive {gap[worst, 1]:+.1f}, {names[worst]})"
    )
