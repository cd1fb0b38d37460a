"""Regression tables: one tree with default settings against the single trees of others.

R² by 3-fold cross-validation; every method reads the same numeric columns and the same folds. Ours
are `TAOTreeRegressor()` and `TAOTreeRegressor(leaf="linear")`, untuned. CART has its depth (4 to
20, unlimited) and smallest leaf (1, 5, 20 rows) chosen by 3 inner folds. linear-tree's tree of
linear regressions, with 10 candidate thresholds a column, has its depth (3, 5, 7) and smallest leaf
(a tenth or a hundredth of the rows) chosen on 2000 training and 2000 other rows, on a standardised
target: it takes minutes a fit. The forest of 100 trees is shown as the ceiling and not ranked; the
lead is over the best single tree of the others.
"""

from __future__ import annotations

from functools import partial

from sklearn.ensemble import RandomForestRegressor

from benchmarks import peers
from benchmarks.folds import comparison_rows, cross_validate
from benchmarks.table import Table, available
from silva import TAOTreeRegressor

SETS = ("cpu_act", "ailerons", "pol", "house_16H", "protein")
QUICK_SETS = ("cpu_act",)
PEERS = {"CART": peers.cart_regressor, "linear-tree": peers.linear_tree}
CONSTANT, LINEAR, FOREST = "TAO tree", "TAO tree, linear leaves", "forest"


def run(options):
    """Return the table."""
    n_folds, repeats = 2 if options.quick else 3, options.seeds or 1
    notes = [f"Folds: {n_folds}, drawn {repeats} times."]
    rivals = peers.usable(PEERS, notes)
    methods = {CONSTANT: constant_leaves, LINEAR: linear_leaves, FOREST: forest} | {
        name: partial(build, inner_folds=3, quick=options.quick) for name, build in rivals.items()
    }
    names = (*(QUICK_SETS if options.quick else SETS), *options.sets)
    results = [
        cross_validate(data, methods, n_folds=n_folds, repeats=repeats)
        for data in available(names, notes)
    ]
    rows = comparison_rows(
        results, ours=[CONSTANT, LINEAR], peers=list(rivals), unranked=[FOREST], unit=1, digits=4
    )
    return Table(rows, notes, packages=("linear-tree",))


def constant_leaves(seed):
    """Return our tree with constant leaves, untuned."""
    return TAOTreeRegressor(random_state=seed)


def linear_leaves(seed):
    """Return our tree with linear leaves, untuned."""
    return TAOTreeRegressor(leaf="linear", random_state=seed)


def forest(seed):
    """Return scikit-learn's forest, the ceiling."""
    return RandomForestRegressor(100, random_state=seed, n_jobs=-1)
