"""What SilvaTree and SilvaForest owe to each of their parts.

Accuracy in percent on rows never seen, mean over the sets and draws of `few_labels` with 1, 5 and
10 % of the training rows labelled. Each line changes one thing about a model with default settings;
the difference to that is in points, with its standard error over sets and draws. "one recipe"
trusts teacher and graph alike on every set (gamma 3) instead of asking hidden labels; "hard labels"
fits the tree to the likeliest class of each row, "no invented rows" to the rows that there are;
"true totals" tells how many unlabelled rows are of each class.
"""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, VotingClassifier

from benchmarks.few_labels import QUICK_SETS, ROWS, SETS, SHARES, TRAINING_SHARE, fill
from benchmarks.flagship import WithTotals, totals_of
from benchmarks.kernel_ablation import DEFAULT, rows_of
from benchmarks.semi import choose_labelled, fit_quietly, hide
from benchmarks.table import Table, available, progress
from silva import SilvaForestClassifier, SilvaTreeClassifier
from silva.estimators.mixed_classifier import MixedClassifier
from silva.estimators.silva_base import NEIGHBOURS
from silva.estimators.spreading import graph_of_rows


class OtherGraph:
    """Mixin: the graph is built otherwise."""

    _mutual, _scaling = True, "relevance"

    def _graph(self, rows, seed):
        n_rows = rows.X.shape[0]
        W = graph_of_rows(
            rows, affinity=None, n_rows=n_rows, n_neighbors=min(NEIGHBOURS, n_rows - 1),
            perplexity="auto", mutual=self._mutual, scaling=self._scaling, is_classes=True,
            memory=None, seed=seed, n_jobs=self.n_jobs, verbose=0,
        )  # fmt: skip
        return W * (n_rows / max(W.sum(), 1e-300))


class AnyNeighbours(OtherGraph, SilvaTreeClassifier):
    """Neighbours need not be mutual."""

    _mutual = False


class AlikeColumns(OtherGraph, SilvaTreeClassifier):
    """All columns count alike in the graph."""

    _scaling = "deviation"


class ObliqueOnly(SilvaTreeClassifier):
    """The deepest oblique tree, whatever its fidelity."""

    def _kinds(self, targets):
        return super()._kinds(targets)[:1]


class AxisOnly(SilvaTreeClassifier):
    """The largest tree of single columns, whatever its fidelity."""

    def _kinds(self, targets):
        return super()._kinds(targets)[-1:]


class RealRows(SilvaTreeClassifier):
    """No rows are invented."""

    def _widening(self, targets, smoothed, seed):
        return targets.on


class HardLabels(SilvaTreeClassifier):
    """The tree learns the likeliest class of each row."""

    def _finish_labels(self, smoothed, evidence):
        Z = super()._finish_labels(smoothed, evidence)
        return np.eye(Z.shape[1])[Z.argmax(axis=1)]


def run(options):
    """Return the table."""
    seeds = range(options.seeds or (1 if options.quick else 3))
    shares = SHARES[1:2] if options.quick else SHARES
    names = (*(QUICK_SETS if options.quick else SETS), *options.sets)
    size = options.rows or (200 if options.quick else ROWS)
    notes = [f"Seeds: {len(seeds)}. Rows of a set: at most {size}."]
    found = {f"{share:.0%}": [] for share in shares}
    for data in available(names, notes):
        jobs = [(share, seed) for share in shares for seed in seeds]
        results = Parallel(n_jobs=1 if options.quick else -1)(
            delayed(score)(data, share, seed, size) for share, seed in jobs
        )
        for (share, _), cell in zip(jobs, results, strict=True):
            found[f"{share:.0%}"].append(cell)
        progress(f"  {len(jobs)} draws done")
    return Table(rows_of(found), notes)


def models(seed, totals):
    """Return the lines, by (model, part, line)."""

    def both(kind, name):
        model, teacher, graph = (name, "", DEFAULT), "teacher", "graph"
        return {
            model: kind(random_state=seed),
            (name, teacher, "none"): kind(teacher=None, random_state=seed),
            (name, teacher, "forests only"): kind(teacher=forests(seed), random_state=seed),
            (name, teacher, "sees labelled rows only"): kind(
                teacher=MixedClassifier(random_state=seed), random_state=seed
            ),
            (name, graph, "none (gamma 0)"): kind(gamma=0.0, random_state=seed),
            (name, "trust", "one recipe (gamma 3)"): kind(gamma=3.0, random_state=seed),
            (name, "totals", "true totals"): WithTotals(kind(random_state=seed), totals),
        }

    tree = "tree"
    return both(SilvaTreeClassifier, tree) | {
        (tree, "graph", "columns count alike"): AlikeColumns(random_state=seed),
        (tree, "graph", "neighbours need not be mutual"): AnyNeighbours(random_state=seed),
        (tree, "fidelity", "oblique always"): ObliqueOnly(random_state=seed),
        (tree, "fidelity", "single columns always"): AxisOnly(random_state=seed),
        (tree, "labels", "hard labels"): HardLabels(random_state=seed),
        (tree, "rows", "no invented rows"): RealRows(random_state=seed),
    } | both(SilvaForestClassifier, "forest")  # fmt: skip


def forests(seed):
    """Return the mean of a random forest and of extremely random trees."""
    kinds = {"forest": RandomForestClassifier, "extra": ExtraTreesClassifier}
    return VotingClassifier(
        [(name, kind(random_state=seed)) for name, kind in kinds.items()], voting="soft"
    )


def score(data, share, seed, size):
    """Return the test accuracy of every line on one draw."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(data.y))[:size]
    cut = int(TRAINING_SHARE * len(rows))
    train, test = rows[:cut], rows[cut:]
    X, y = fill(data.X), data.y[train]
    partial = hide(y, choose_labelled(y, share, "classification", rng), "classification")
    return {
        key: float(np.mean(fit_quietly(model, X[train], partial).predict(X[test]) == data.y[test]))
        for key, model in models(seed, totals_of(y, partial)).items()
    }
