"""Prediction speed of TAO trees beside scikit-learn's, alone and in ensembles, on one thread.

Rows a second of `predict` on float32 C-contiguous rows, all in one run. The TAO trees have depth
11 (Letter) and 8 (MNIST) and 20 iterations; scikit-learn's tree has its depth chosen on a fifth of
the training rows. The test rows are repeated up to one million (Letter) and 100000 (MNIST). On
Letter also 30 boosted TAO trees of 5 iterations and a random forest of 30 trees; the depth is that
of the deepest, the leaves are those of all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from benchmarks.letter_mnist import tuned_cart_depth
from benchmarks.table import Table, available
from silva import TAOBoostClassifier, TAOTreeClassifier


@dataclass(frozen=True)
class Case:
    """Depth and penalty of the tree, and how many rows it predicts."""

    depth: int
    alpha: float
    n_rows: int


CASES = {"letter": Case(11, 0.1, 1_000_000), "mnist": Case(8, 1.0, 100_000)}
QUICK_CASES = {"letter": Case(4, 1.0, 8_000)}


def run(options):
    """Return the table."""
    cases = QUICK_CASES if options.quick else CASES
    repeats = options.seeds or 5
    rows, notes = [], [f"Best of {repeats} calls."]
    for data in available(cases, notes):
        case = cases[data.name]
        split = train_test_split(
            np.arange(len(data.y)), test_size=0.2, stratify=data.y, random_state=0
        )
        ours = TAOTreeClassifier(
            max_depth=case.depth,
            alpha=case.alpha,
            max_iter=2 if options.quick else 20,
            tol=0,
            n_jobs=1,
            random_state=0,
        )
        X = np.resize(data.X_test.astype(np.float32), (case.n_rows, data.X.shape[1]))
        cart = DecisionTreeClassifier(max_depth=tuned_cart_depth(data, split), random_state=0)
        models = {"TAO tree": ours, "CART": cart}
        if data.name == "letter":
            models |= ensembles(case)
        for name, model in models.items():
            model.fit(data.X.astype(np.float32), data.y)
            seconds = best_seconds(model, X, repeats)
            depths, leaves = shapes(model)
            rows.append(
                {
                    "data set": data.name,
                    "model": name,
                    "depth": max(depths),
                    "leaves": sum(leaves),
                    "rows": len(X),
                    "million rows/s": f"{len(X) / seconds / 1e6:.2f}",
                }
            )
    return Table(rows, notes)


def ensembles(case):
    """Return ensembles of 30 trees by name."""
    boosted = TAOBoostClassifier(
        n_estimators=30, split="oblique", max_depth=case.depth, alpha=case.alpha / 10, max_iter=5,
        n_jobs=1, random_state=0,
    )  # fmt: skip
    forest = RandomForestClassifier(30, n_jobs=1, random_state=0)
    return {"30 boosted TAO trees": boosted, "random forest, 30 trees": forest}


def shapes(model):
    """Return depth and number of leaves of each tree of a model."""
    if hasattr(model, "trees_"):
        return [tree.depth for tree in model.trees_], [tree.n_leaves for tree in model.trees_]
    trees = getattr(model, "estimators_", [model])
    return [tree.get_depth() for tree in trees], [tree.get_n_leaves() for tree in trees]


def best_seconds(model, X, repeats):
    """Return the shortest wall time of a few predictions on one thread."""
    times = []
    with threadpool_limits(1):
        for _ in range(repeats):
            begin = time.perf_counter()
            model.predict(X)
            times.append(time.perf_counter() - begin)
    return min(times)
