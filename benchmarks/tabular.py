"""Classification tables: one tree with default settings against the single trees of others.

Accuracy in percent by stratified 5-fold cross-validation; every method reads the same numeric
columns (categories as the integer codes of the files) and the same folds. Ours is
`TAOTreeClassifier()` untuned. CART has its depth (2 to 20, unlimited) and pruning (`ccp_alpha` 0 or
0.001) chosen by 3 inner folds, treeple's oblique tree its depth (4 to 16) in the same way; YDF's
sparse oblique CART tree either prunes itself on a tenth of its training rows or has a limited depth
(4 to 16), whichever the inner folds prefer. The lead over the best peer is in points; rank 1 is
best.
"""

from __future__ import annotations

from functools import partial

from benchmarks import peers
from benchmarks.folds import comparison_rows, cross_validate
from benchmarks.table import Table, available
from silva import TAOTreeClassifier

SETS = (
    "optdigits", "segmentation", "pima", "spambase", "magic", "waveform_40", "satimage", "adult",
)  # fmt: skip
QUICK_SETS = ("pima", "segmentation")
PEERS = {
    "CART": peers.cart_classifier,
    "treeple oblique": peers.treeple_oblique,
    "ydf sparse oblique": peers.ydf_sparse_oblique,
}
OURS = "TAO tree"


def run(options):
    """Return the table."""
    n_folds, repeats = 2 if options.quick else 5, options.seeds or 1
    notes = [f"Folds: {n_folds}, drawn {repeats} times."]
    rivals = peers.usable(PEERS, notes)
    methods = {OURS: default_tree} | {
        name: partial(build, inner_folds=3, quick=options.quick) for name, build in rivals.items()
    }
    names = (*(QUICK_SETS if options.quick else SETS), *options.sets)
    results = [
        cross_validate(data, methods, n_folds=n_folds, repeats=repeats)
        for data in available(names, notes)
    ]
    rows = comparison_rows(results, ours=[OURS], peers=list(rivals))
    return Table(rows, notes, packages=("treeple", "ydf"))


def default_tree(seed):
    """Return our tree, untuned."""
    return TAOTreeClassifier(random_state=seed)
