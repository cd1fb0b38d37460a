"""What a table takes and gives, and the arithmetic that several tables share."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from benchmarks.data import Unavailable, load


@dataclass(frozen=True)
class Options:
    """How to run a table.

    Attributes
    ----------
    seeds : number of seeds or repetitions, None for the table's own number
    quick : a small version, to see that it runs
    sets : further data sets
    rows : most training rows, None for the table's own number (kernel_trees, kernel_ablation)
    limit : most seconds of a fit where that is less than the table's own number (s2oct)
    part : (k, n) to measure every n-th instance from the k-th on, None for all (s2oct)
    """

    seeds: int | None = None
    quick: bool = False
    sets: tuple[str, ...] = ()
    rows: int | None = None
    limit: float | None = None
    part: tuple[int, int] | None = None


@dataclass(frozen=True)
class Table:
    """Rows as dictionaries (column to cell), notes below them, and the packages measured.

    Further sections, each a title, a text and rows, follow the notes.
    """

    rows: list[dict[str, object]]
    notes: list[str]
    packages: tuple[str, ...] = ()
    sections: tuple[tuple[str, str, list[dict[str, object]]], ...] = ()


def progress(text):
    """Say on the standard error stream what is being done."""
    print(text, file=sys.stderr, flush=True)


def skip(error, notes):
    """Record that something is left out of the table, and why."""
    notes.append(f"Skipped: {error}.")
    progress(notes[-1])


def available(names, notes):
    """Yield the data sets that can be had; each of the others becomes a note."""
    for name in names:
        try:
            data = load(name)
        except Unavailable as error:
            skip(error, notes)
        else:
            progress(f"{name}: {data.X.shape[0]} rows, {data.X.shape[1]} features")
            yield data


def mean_ranks(scores):
    """Mean rank of each column over the rows of a matrix of scores: 1 is the highest score."""
    return rankdata(-np.asarray(scores), axis=1).mean(axis=0)


def friedman(scores):
    """Return the chance that all columns are alike, by Friedman's test over the rows."""
    return float(friedmanchisquare(*np.asarray(scores).T).pvalue)


def critical_difference(n_methods, n_cases, level=0.05):
    """Return by how much mean ranks of two methods must differ (Nemenyi's test)."""
    quantile = studentized_range.ppf(1 - level, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_cases)))


def spread(values, digits=2):
    """Write the mean of a few numbers, with the standard deviation where there are several."""
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean
