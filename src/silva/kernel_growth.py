"""Growth of semi-supervised kernel trees: greedy splits, crisp or of rows that are uncertain.

A tree of leaves L minimises (kernel tree paper, section 3.1)

    1/n sum over L of  w_L (w Gini_L / Gini_root + (1 - w)/p sum over j of Var_Lj / Var_rootj),

Gini's impurity over the labelled rows of a leaf (for numbers the mean over the outputs of
Var_L / Var_root), the variances of the p columns that vary over all of its rows, w_L the weight of
all of its rows. It is 1 at the root. Greedily: a node is split where the loss falls most, and only
if it falls by `ccp_alpha` at least.

A node without labelled rows has no Gini impurity of its own. It is taken to be that of the nearest
node above that has some, so a split that leaves one side without labels gains nothing there; other
splits gain, for the whole weight of the node, the decrease among its labelled rows, each side
counted by its labelled weight. So gains are never negative, and their sum is the decrease of the
loss where all leaves have the same labelled share.

With a bandwidth a row is a random variable around the place where it was seen, with independent
columns, and has a part in each leaf (a membership). Distributions are piecewise constant: the
Gaussian as seven pieces of equal width between -3 and 3 deviations, or uniform. At a decision a
row's part divides; less than 1e-6 of its weight is never cut off but stays with the other side, so
parts always add up to the weight. Rows enter variances at the place where they were seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy import sparse

from silva import _core
from silva.tree import Array, Tree

# Bins nearer than this many bandwidths are one: a kernel does not tell them apart.
FINEST_BIN = 1 / 8
# Thresholds of a column that exact fuzzy growth tries at a node, for each bin of crisp growth.
CANDIDATES_PER_BIN = 4
NO_LIMIT = 2**62


@dataclass(frozen=True, eq=False)
class Growth:
    """How trees grow.

    Attributes
    ----------
    supervision : float
        The weight w of the labels, from 0 to 1. With 1 unlabelled rows take no part at all.
    ccp_alpha : float
        Least decrease of the loss by a split.
    max_depth : int or None
        Most decisions on a way down.
    min_weight_leaf : float
        Least weight of a leaf.
    min_rows_leaf, min_labelled_leaf : int
        Fewest rows, and labelled rows, in a leaf whatever their weights. Not for fuzzy trees, where
        a row is in many leaves.
    stop_pure : bool
        Leave nodes alone whose labelled rows agree, and those without any, unless `supervision` is
        0: answers by the labelled rows of a leaf would not change.
    max_leaf_nodes : int or None
        Most leaves; nodes are then split in the order of their gains.
    max_features : int or None
        Columns tried at a node, drawn at random; others are drawn while none of them can be split.
    max_tries : int or None
        Most columns looked at by all draws at a node; None means all.
    random_thresholds : bool
        Try one threshold of each column, drawn evenly between its extremes at the node.
    bandwidth : float or array of shape (columns,)
        Standard deviation of the kernel in the units of X; 0 is an ordinary, crisp tree.
    kernel : "gaussian" or "uniform"
    method : "exact" or "convolved"
        How fuzzy splits are sought. Exact growth tries the edges of the rows' kernels, at most
        four times `max_bins` of them: the outermost ones and an even choice of the others.
        Convolved growth takes the rows of a bin as one and tries the middles between bins; bins
        are an eighth of a bandwidth wide at least. Shares that a split sends left and right are
        exact in both.
    max_bins : int
        Most bins of a column: one for each value where there are fewer, or else three quarters of
        them for equal weights and a quarter for an equal spread, which sets outliers apart.
        Crisp thresholds lie midway between values of neighbouring bins at the node.
    variance_components : int or None
        Measure the variance of the columns by this many principal components. Faster.
    column_weight : array of shape (columns,) or None
        What the variance of each column counts beside the others'; None counts all alike. Not in
        the paper: columns that tell nothing about the labels need not be pure.
    """

    supervision: float
    ccp_alpha: float = 0.0
    max_depth: int | None = None
    min_weight_leaf: float = 1.0
    min_rows_leaf: int = 1
    min_labelled_leaf: int = 0
    stop_pure: bool = False
    max_leaf_nodes: int | None = None
    max_features: int | None = None
    max_tries: int | None = None
    random_thresholds: bool = False
    bandwidth: float | Array = 0.0
    kernel: Literal["gaussian", "uniform"] = "gaussian"
    method: Literal["exact", "convolved"] = "convolved"
    max_bins: int = 255
    variance_components: int | None = None
    column_weight: Array | None = None

    def __post_init__(self) -> None:
        _require("supervision", self.supervision, "from 0 to 1", 0 <= self.supervision <= 1)
        _require("ccp_alpha", self.ccp_alpha, "0 or more", self.ccp_alpha >= 0)
        _require("min_weight_leaf", self.min_weight_leaf, "0 or more", self.min_weight_leaf >= 0)
        _require("max_bins", self.max_bins, "from 2 to 255", 2 <= self.max_bins <= 255)
        _require("kernel", self.kernel, "'gaussian' or 'uniform'", self.kernel in KERNELS)
        _require("method", self.method, "'exact' or 'convolved'", self.method in METHODS)
        for name, least in (
            ("max_depth", 0),
            ("max_leaf_nodes", 1),
            ("max_features", 1),
            ("max_tries", 1),
            ("variance_components", 1),
        ):
            value = getattr(self, name)
            _require(name, value, f"None or {least} or more", value is None or value >= least)
        crisp = not np.any(self.bandwidth)
        for name, least in (("min_rows_leaf", 1), ("min_labelled_leaf", 0)):
            value = getattr(self, name)
            _require(name, value, f"{least} or more", value >= least)
            _require(name, value, f"{least} where rows are uncertain", crisp or value == least)

    @property
    def limits(self) -> Any:
        """The same for the compiled core."""
        return _core.GrowthLimits(
            supervision=self.supervision,
            ccp_alpha=self.ccp_alpha,
            min_weight_leaf=self.min_weight_leaf,
            min_rows_leaf=self.min_rows_leaf,
            min_labelled_leaf=self.min_labelled_leaf,
            stop_pure=self.stop_pure,
            max_depth=_or_no_limit(self.max_depth),
            max_leaf_nodes=_or_no_limit(self.max_leaf_nodes),
            max_features=_or_no_limit(self.max_features),
            max_tries=_or_no_limit(self.max_tries),
            random_thresholds=self.random_thresholds,
            exact=self.method == "exact",
            max_candidates=CANDIDATES_PER_BIN * self.max_bins,
        )


KERNELS = ("gaussian", "uniform")
METHODS = ("exact", "convolved")


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows scaled and binned, for any number of trees.

    Attributes
    ----------
    growth : Growth
        How they are to grow.
    n_rows, n_features : int
    rows : Any
        The rows as the compiled core keeps them.
    """

    growth: Growth
    n_rows: int
    n_features: int
    rows: Any = field(repr=False)


@dataclass(frozen=True, eq=False)
class GrownTree:
    """A tree without answers.

    Attributes
    ----------
    tree : Tree
        Its values are zeros; its weights are the sums of the parts of the rows that it grew from.
    gain : float64 array of shape (nodes,)
        By how much each split lowered the loss, which is 1 at the root; 0 at a leaf.
    """

    tree: Tree
    gain: Array

    @property
    def column_gains(self) -> Array:
        """What the splits of each column gained together."""
        tree = self.tree
        return np.bincount(tree.coefficients.indices, self.gain[~tree.is_leaf], tree.n_features)


def prepare(
    X: Array,
    targets: Array,
    labelled: Array,
    weight: Array,
    growth: Growth,
    *,
    together: bool,
    n_threads: int = 1,
) -> Prepared:
    """Scale and bin the rows.

    Parameters
    ----------
    X : array of shape (rows, columns)
        Finite numbers, single or double precision. Not to be changed while trees grow from them:
        double precision in the order of columns is not copied.
    targets : array of shape (rows, outputs)
        Numbers, or class indicators; any value where the row is unlabelled.
    labelled : bool array of shape (rows,)
    weight : array of shape (rows,)
        Positive.
    growth : Growth
    together : bool
        Whether the outputs' variances are added up before they are divided by the root's, as
        Gini's impurity is, or each is divided by its own.
    n_threads : int
    """
    X = np.asarray(X)
    targets = np.asarray(targets, dtype=np.float64)
    labelled = np.asarray(labelled, dtype=bool)
    weight = np.ascontiguousarray(weight, dtype=np.float64)
    _check_rows(X, targets, labelled, weight, growth)
    columns = np.ascontiguousarray(X.T, dtype=np.float64)
    bandwidth = column_bandwidths(growth.bandwidth, X.shape[1])
    rows = _core.kernel_rows(
        columns,
        _coordinates(columns, weight, growth),
        _scaled_targets(targets, labelled, weight, together, growth),
        labelled.astype(np.uint8),
        weight,
        bandwidth,
        X.dtype == np.float32,
        growth.max_bins,
        FINEST_BIN if growth.method == "convolved" else 0.0,
        n_threads,
    )
    return Prepared(growth, X.shape[0], X.shape[1], rows)


def grow(
    X: Array,
    targets: Array,
    labelled: Array,
    weight: Array,
    growth: Growth,
    *,
    together: bool,
    seed: int = 0,
    n_threads: int = 1,
) -> GrownTree:
    """Grow one tree; see `prepare` for the parameters.

    The seed is for columns and thresholds that are drawn. Threads share the columns of a node.
    """
    prepared = prepare(X, targets, labelled, weight, growth, together=together, n_threads=n_threads)
    return grow_many(prepared, np.array([seed]), n_threads=n_threads)[0]


def grow_many(
    prepared: Prepared, seeds: Array, counts: Array | None = None, n_threads: int = 1
) -> list[GrownTree]:
    """Grow the trees of a forest, which share threads.

    Parameters
    ----------
    prepared : Prepared
    seeds : int array of shape (trees,)
    counts : array of shape (trees, rows) or None
        How often a row was drawn for a tree: its weight is multiplied by that. Scales and bins,
        and the impurities at the root that the loss is divided by, stay those of all rows.
    n_threads : int
        Trees are the same for any number.
    """
    growth = prepared.growth
    seeds = np.ascontiguousarray(seeds).astype(np.uint64)
    drawn = np.zeros((0, prepared.n_rows), np.float32)
    if counts is not None:
        drawn = np.ascontiguousarray(counts, dtype=np.float32)
        expected = (len(seeds), prepared.n_rows)
        _require("counts", drawn.shape, f"of shape {expected}", drawn.shape == expected)
        _require("counts", "some below 0", "0 or more", not (drawn < 0).any())
        _require("counts", "a tree without rows", "some rows for each", (drawn.sum(1) > 0).all())
    grown = _core.grow_kernel_trees(
        prepared.rows, growth.limits, growth.kernel == "uniform", seeds, drawn, n_threads
    )
    return [_assemble(prepared.n_features, *nodes) for nodes in grown]


def prune_path(grown: GrownTree, ccp_alpha: float) -> Tree:
    """Return the tree that a larger `ccp_alpha` would have grown, without limit on its leaves.

    A split stays if it gains enough and all splits above it do.
    """
    tree, keeps = grown.tree, ~grown.tree.is_leaf & (grown.gain >= ccp_alpha)
    stays = np.zeros(tree.n_nodes, bool)
    stays[0] = True
    for node in tree.levels():
        inside = stays[node] & keeps[node]
        stays[tree.left[node]] = stays[tree.right[node]] = inside
    kept = np.flatnonzero(stays)
    splits = keeps[kept]
    number = np.cumsum(stays, dtype=np.int32) - 1
    feature = np.zeros(tree.n_nodes, np.int32)
    feature[~tree.is_leaf] = tree.coefficients.indices
    return _tree(
        np.where(splits, number[tree.left[kept]], -1).astype(np.int32),
        np.where(splits, number[tree.right[kept]], -1).astype(np.int32),
        feature[kept],
        np.where(splits, tree.threshold[kept], 0.0),
        tree.weight[kept],
        tree.n_features,
    )


def column_bandwidths(bandwidth: float | Array, n_features: int) -> Array:
    """Return one bandwidth a column."""
    given = np.asarray(bandwidth, dtype=np.float64)
    _require(
        "bandwidth",
        f"an array of shape {given.shape}",
        f"a number or an array of shape ({n_features},)",
        given.shape in ((), (n_features,)),
    )
    _require("bandwidth", bandwidth, "finite and 0 or more", bool((given >= 0).all()))
    _require("bandwidth", bandwidth, "finite and 0 or more", bool(np.isfinite(given).all()))
    return np.ascontiguousarray(np.broadcast_to(given, (n_features,)))


def _coordinates(columns: Array, weight: Array, growth: Growth) -> Array:
    """Return rows whose squared distances to the mean are one at the root, on average."""
    spread = np.ptp(columns, axis=1)
    varying = np.flatnonzero(spread) if growth.supervision < 1 else np.zeros(0, np.intp)
    rows = np.empty((columns.shape[1], len(varying)), np.float32)
    share = weight / weight.sum()
    part = _column_parts(growth.column_weight, varying, len(columns))
    for place, j in enumerate(varying):  # one by one, for the sake of memory
        centred = (columns[j] - columns[j, 0]) / spread[j]
        centred -= share @ centred
        rows[:, place] = centred * np.sqrt(part[place] / (share @ np.square(centred)))
    size = growth.variance_components
    if size is not None and size < len(varying):
        _, axes = np.linalg.eigh((rows.T * share) @ rows)
        rows = rows @ axes[:, : -size - 1 : -1].astype(np.float32)
    return np.ascontiguousarray(rows)


def _column_parts(column_weight: Array | None, varying: Array, n_features: int) -> Array:
    """Return the part of each varying column in the variance of a row; they sum to one."""
    if column_weight is None:
        return np.full(len(varying), 1 / max(len(varying), 1))
    given = np.asarray(column_weight, dtype=np.float64)
    _require(
        "column_weight", given.shape, f"of shape ({n_features},)", given.shape == (n_features,)
    )
    usable = bool(np.isfinite(given).all() and (given >= 0).all() and given[varying].sum() > 0)
    _require(
        "column_weight",
        f"numbers from {given.min():g} to {given.max():g}",
        "finite and 0 or more, above 0 for some column that varies",
        usable or not varying.size,
    )
    return np.asarray(given[varying] / max(given[varying].sum(), 1e-300))


def _scaled_targets(
    targets: Array, labelled: Array, weight: Array, together: bool, growth: Growth
) -> Array:
    """Return targets whose variances add up to one; outputs that do not vary are left out."""
    none = np.zeros((len(targets), 0), np.float32)
    if growth.supervision == 0 or not labelled.any():
        return none
    known, mass = targets[labelled], weight[labelled] / weight[labelled].sum()
    varies = np.ptp(known, axis=0) > 0
    centred = known[:, varies] - mass @ known[:, varies]
    variance = mass @ np.square(centred)
    whole = variance.sum() if together else variance * targets.shape[1]
    scaled = np.zeros((len(targets), int(varies.sum())), np.float32)
    scaled[labelled] = centred / np.sqrt(whole)
    return scaled


def _check_rows(X: Array, targets: Array, labelled: Array, weight: Array, growth: Growth) -> None:
    _require("X", f"{X.ndim} dimensions", "a table of rows and columns", X.ndim == 2)
    n = len(X)
    _require("X", "no rows", "a row at least", n > 0)
    _require("X", "missing or infinite values", "finite numbers", bool(np.isfinite(X).all()))
    fits = targets.ndim == 2 and len(targets) == n
    _require("targets", f"shape {targets.shape}", f"shape ({n}, outputs)", fits)
    _require("labelled", f"shape {labelled.shape}", f"shape ({n},)", labelled.shape == (n,))
    _require("weight", f"shape {weight.shape}", f"shape ({n},)", weight.shape == (n,))
    _require("weight", "some that are not", "positive numbers", bool((weight > 0).all()))
    known = targets[labelled]
    _require("targets", "missing or infinite values", "finite", bool(np.isfinite(known).all()))
    learns = growth.supervision < 1 or bool(labelled.any())
    _require("labelled", "no labelled row", "one at least where supervision is 1", learns)


def _require(name: str, seen: object, expected: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{name} must be {expected}, got {seen}.")


def _or_no_limit(value: int | None) -> int:
    return NO_LIMIT if value is None else value


def _assemble(
    n_features: int,
    left: Array,
    right: Array,
    feature: Array,
    threshold: Array,
    weight: Array,
    gain: Array,
) -> GrownTree:
    return GrownTree(_tree(left, right, feature, threshold, weight, n_features), gain)


def _tree(
    left: Array, right: Array, feature: Array, threshold: Array, weight: Array, n_features: int
) -> Tree:
    splits = left >= 0
    begin = np.concatenate([[0], np.cumsum(splits)]).astype(np.int32)
    coefficients = sparse.csr_array(
        (np.ones(begin[-1]), feature[splits].astype(np.int32), begin),
        shape=(len(left), n_features),
    )
    values = np.zeros((len(left) - begin[-1], 1))
    return Tree(left, right, coefficients, threshold, values, weight)
