"""Cross-validation of several methods on several sets, and the rows of a table of their scores."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold

from benchmarks.table import mean_ranks, progress


@dataclass(frozen=True)
class Scores:
    """Mean score and mean fitting time of each method on one data set."""

    data_name: str
    score: dict[str, float]
    seconds: dict[str, float]


def cross_validate(data, methods, *, n_folds, repeats):
    """Score every method on the same folds: accuracy for classes, R² for regression.

    Parameters
    ----------
    data : DataSet without a test part
    methods : dict from a name to a function of a seed that returns an unfitted estimator
    n_folds, repeats : how many folds, and how often they are drawn anew

    Returns
    -------
    Scores
    """
    is_regression = data.task == "regression"
    folds, measure = (KFold, r2_score) if is_regression else (StratifiedKFold, accuracy_score)
    scores, seconds = {name: [] for name in methods}, {name: [] for name in methods}
    for seed in range(repeats):
        for train, test in folds(n_folds, shuffle=True, random_state=seed).split(data.X, data.y):
            for name, build in methods.items():
                begin = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FutureWarning)  # of peers, by scikit-learn
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    model = build(seed).fit(data.X[train], data.y[train])
                    answer = model.predict(data.X[test])
                seconds[name].append(time.perf_counter() - begin)
                scores[name].append(measure(data.y[test], answer))
    for name in methods:
        progress(f"  {name}: {np.mean(scores[name]):.4f}, {np.mean(seconds[name]):.2f} s a fold")
    return Scores(
        data.name,
        {name: float(np.mean(values)) for name, values in scores.items()},
        {name: float(np.mean(values)) for name, values in seconds.items()},
    )


def comparison_rows(results, *, ours, peers, unranked=(), unit=100, digits=2):
    """Rows of a table: scores, the lead of each of ours over the best peer, ranks, seconds.

    Parameters
    ----------
    results : list of Scores
    ours, peers : names of the methods that are ranked
    unranked : names of the methods that are shown only
    unit : factor of the scores (100 writes shares as points)
    digits : decimals of the scores
    """
    if not results:
        return []
    ranked = [*ours, *peers]
    leads = {name: [lead(result, name, peers) for result in results] for name in ours}
    rows = []
    for i, result in enumerate(results):
        row = {"data set": result.data_name}
        row |= {name: f"{unit * result.score[name]:.{digits}f}" for name in (*ranked, *unranked)}
        row |= {_lead_column(name): f"{unit * leads[name][i]:+.{digits}f}" for name in ours}
        rows.append(row)
    ranks = mean_ranks([[result.score[name] for name in ranked] for result in results])
    rows.append(
        {"data set": "mean rank"}
        | {name: f"{rank:.2f}" for name, rank in zip(ranked, ranks, strict=True)}
        | {_lead_column(name): f"worst {unit * min(leads[name]):+.{digits}f}" for name in ours}
    )
    seconds = {
        name: f"{np.mean([result.seconds[name] for result in results]):.2f}"
        for name in (*ranked, *unranked)
    }
    rows.append({"data set": "seconds a fold, tuning included"} | seconds)
    return rows


def lead(result, name, peers):
    """Score of a method minus that of the best peer."""
    return result.score[name] - max((result.score[peer] for peer in peers), default=np.nan)


def _lead_column(name):
    return f"{name} − best peer"
