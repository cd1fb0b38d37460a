"""Kernel trees as estimators: one tree whose rows are uncertain, from few labels."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy import sparse

from silva.copies import row_groups
from silva.estimators.kernel_base import (
    KernelClassifier,
    KernelModel,
    KernelRegressor,
    target_spread,
)
from silva.estimators.parameters import check_choice, check_number
from silva.estimators.problem import distributions, leaf_numbers
from silva.estimators.selection import folds
from silva.kernel_growth import Growth, prune_path
from silva.kernel_trees import Task, gaussian_membership, leaf_values
from silva.kernels import cpu
from silva.membership import membership, predict_fuzzy
from silva.pruning import prune_by_purity
from silva.robustness import certified_radius
from silva.tree import Array, Tree, node_totals

FEW_LABELS = 10  # fewer different rows do not tell settings apart
PRIORS = ("forest", "ancestors")
SELECTIONS = ("regrow", "leaves")


@dataclass(frozen=True)
class KernelTrial:
    """Held-out loss of a pair of settings, one number per fold."""

    bandwidth: float
    ccp_alpha: float
    losses: tuple[float, ...]

    @property
    def loss(self) -> float:
        """Mean over the folds."""
        return float(np.mean(self.losses))


class KernelTree(KernelModel):
    """Base of `KernelTreeClassifier` and `KernelTreeRegressor`."""

    tree_: Tree

    def __init__(
        self,
        *,
        leaf_values: str = "smooth",
        bandwidth: float | list[float] = 0.2,
        ccp_alpha: float | list[float] = 3e-4,
        supervision: float | str = "auto",
        scaling: str = "relevance",
        kernel: str = "gaussian",
        method: str = "convolved",
        labelled_weight: float | str = "auto",
        prior: str = "forest",
        prior_weight: float = 1.0,
        merge_tol: float = 0.05,
        selection: str = "regrow",
        max_depth: int | None = None,
        min_weight_leaf: float = 1.0,
        max_leaf_nodes: int | None = None,
        max_features: int | float | str | None = None,
        missing: str = "fill",
        max_categories: int = 30,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            leaf_values=leaf_values, bandwidth=bandwidth, ccp_alpha=ccp_alpha,
            supervision=supervision, scaling=scaling, kernel=kernel, method=method,
            labelled_weight=labelled_weight, prior_weight=prior_weight, max_depth=max_depth,
            min_weight_leaf=min_weight_leaf, max_leaf_nodes=max_leaf_nodes,
            max_features=max_features, missing=missing, max_categories=max_categories,
            n_jobs=n_jobs, random_state=random_state,
        )  # fmt: skip
        self.prior = prior
        self.merge_tol = merge_tol
        self.selection = selection

    # ---- what differs ---------------------------------------------------------------------------

    @abstractmethod
    def _loss(self, task: Task, targets: Array, answers: Array) -> Array:
        """Return the loss of each held-out row."""

    @abstractmethod
    def _merge(self, tree: Tree, task: Task) -> Tree:
        """Merge leaves that answer nearly alike."""

    # ---- fitting --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("prior", self.prior, PRIORS)
        check_number("merge_tol", self.merge_tol)
        check_choice("selection", self.selection, SELECTIONS)

    def _fit(self, X: Any, y: Any, sample_weight: Any, totals: Any) -> Self:
        self._check_parameters()
        bandwidths = _listed("bandwidth", self.bandwidth)
        alphas = _listed("ccp_alpha", self.ccp_alpha)
        task, kept, rows = self._pose(X, y, sample_weight, totals)
        seed = self._seed()
        advice = self._advice(task, seed, self._leans_on_forest)
        growth = self._growth(task, advice.column_weight, rows.shape[1])
        self.selection_ = []
        if len(bandwidths) * len(alphas) > 1:
            self.selection_ = self._select(task, growth, bandwidths, alphas, seed)
        best = self.selection_[0] if self.selection_ else KernelTrial(bandwidths[0], alphas[0], ())
        self.bandwidth_, self.ccp_alpha_ = best.bandwidth, best.ccp_alpha
        self.supervision_ = growth.supervision
        growth = self._at(growth, task, self.bandwidth_)
        grown = task.grow(replace(growth, ccp_alpha=self.ccp_alpha_), seed)
        M = task.members(grown.tree, growth)
        values, info = leaf_values(grown.tree, M, task, self._leaf_rule(), advice.answers)
        self.collapsed_ = info is not None and info.collapsed
        if self.collapsed_:
            _warn_collapse(self._tell(values)[0])
        reached = node_totals(grown.tree, np.asarray(M.T @ task.weight))
        self.tree_ = self._merge(grown.tree.with_leaves(values, reached), task)
        self._keep_importances(grown.column_gains)
        self._keep_labels(rows, task, kept)
        return self

    @property
    def _leans_on_forest(self) -> bool:
        return self.prior == "forest" and self.prior_weight > 0

    def _at(self, growth: Growth, task: Task, bandwidth: float) -> Growth:
        return replace(growth, bandwidth=bandwidth * task.deviation)

    def _select(
        self,
        task: Task,
        growth: Growth,
        bandwidths: list[float],
        alphas: list[float],
        seed: int,
    ) -> list[KernelTrial]:
        """Try bandwidths and alphas on held-out labelled rows; return all, the best first.

        A tree grows once for each bandwidth, to the smallest alpha, and is pruned for the others.
        """
        known = np.flatnonzero(task.labelled)
        groups = row_groups(task.X[known], seed)
        pairs = [(h, alpha) for h in bandwidths for alpha in alphas]
        if len(np.unique(groups)) < FEW_LABELS:
            warnings.warn(
                f"y has fewer than {FEW_LABELS} different labelled rows, too few to choose by: "
                "the first bandwidth and ccp_alpha are taken",
                UserWarning,
                stacklevel=4,
            )
            return [KernelTrial(*pairs[0], ())]
        strata = np.zeros(len(known), int)
        if self._is_classes:
            strata = task.targets[known].argmax(axis=1)
        losses: dict[tuple[float, float], list[float]] = {pair: [] for pair in pairs}
        least = min(alphas)
        for _, held_out in folds(groups, task.X.shape[1], strata):
            test = known[held_out]
            part = task.hide(test)
            if not part.labelled.any():
                continue
            advice = self._advice(part, seed, self._leans_on_forest)
            whole, here = part, replace(growth, column_weight=advice.column_weight)
            if self.selection == "leaves":
                whole, here = task, growth
            for h in bandwidths:
                way = self._at(here, task, h)
                grown = whole.grow(replace(way, ccp_alpha=least), seed)
                for alpha in alphas:
                    tree = prune_path(grown, alpha) if alpha > least else grown.tree
                    M = part.members(tree, way)
                    values, _ = leaf_values(tree, M, part, self._leaf_rule(), advice.answers)
                    loss = self._loss(task, task.targets[test], M[test] @ values)
                    losses[h, alpha].append(float(np.average(loss, weights=task.weight[test])))
        trials = [KernelTrial(*pair, tuple(found)) for pair, found in losses.items()]
        return sorted(trials, key=lambda trial: trial.loss)

    # ---- reading the fitted tree ----------------------------------------------------------------

    def _answers(self, rows: Array) -> Array:
        """Return the leaves' answers blended by membership, to rows as the tree sees them."""
        spread = self.bandwidth_ * self._deviation
        return predict_fuzzy(self.tree_, rows, spread, self.kernel, self._n_threads)  # type: ignore[arg-type]

    def membership(self, X: Any) -> sparse.csr_array:
        """Return the part that each row has in each leaf, of shape (rows, leaves)."""
        rows, spread = self._encode(X), self.bandwidth_ * self._deviation
        return membership(self.tree_, rows, spread, self.kernel, self._n_threads)  # type: ignore[arg-type]

    def _leaf_numbers(self, X: Any) -> Array:
        rows = self._encode(X)
        return leaf_numbers(cpu, self.tree_, rows, self._n_threads)

    def apply(self, X: Any) -> Array:
        """Return the node number of the leaf in which each row lies."""
        return np.asarray(self.tree_.leaf_nodes[self._leaf_numbers(X)])

    def decision_path(self, X: Any) -> sparse.csr_array:
        """Return the row-by-node indicator of the nodes on the way to that leaf."""
        return sparse.csr_array(self.tree_.ancestors()[self._leaf_numbers(X)])

    def get_depth(self) -> int:
        """Return the number of decisions on the longest way down."""
        return self.tree_.depth

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        return self.tree_.n_leaves


class KernelTreeClassifier(KernelClassifier, KernelTree):
    """A semi-supervised classification tree whose rows are uncertain.

    It grows for the sake of the labels and of all columns of all rows, labelled or not; then
    labels are carried from leaf to leaf by the rows that have a part in several, so that leaves
    without a label get a value, too ("Semi-supervised Learning of Tree-based Models Using Uncertain
    Interpretation of Data").

    Parameters
    ----------
    leaf_values : {"smooth", "robust"}, default="smooth"
        Leaves that share rows get similar shares of the classes; or each leaf gets one class, so
        that the boundary runs where few rows are and answers withstand a shift of the row.
    bandwidth : float or list of float, default=0.2
        Standard deviation of a row's uncertainty, in deviations of each column; 0 is an ordinary,
        crisp tree. Of a list, the value of the lowest held-out loss is taken.
    ccp_alpha : float or list of float, default=0.0003
        Least decrease of the growth loss, which is 1 at the root, by a split. A list is chosen from
        together with the bandwidths; the tree is grown once and pruned for the larger ones.
    supervision : float or "auto", default="auto"
        The paper's w: the share of the labels in what a split is judged by. "auto" is the labelled
        share of the rows, at least 0.5; the paper takes the share itself. 1 and bandwidth 0 is
        CART, between 0 and 1 with bandwidth 0 a predictive clustering tree.
    scaling : {"relevance", "deviation"}, default="relevance"
        What the variance of a column counts in a split: as much as forests on the labelled rows
        find in it, or the same for all, as in the paper.
    kernel : {"gaussian", "uniform"}, default="gaussian"
        Shape of the uncertainty; the Gaussian as a histogram of 7 pieces cut at 3 deviations.
    method : {"convolved", "exact"}, default="convolved"
        How splits of uncertain rows are sought: over bins, or at every edge of the kernels (50
        times slower).
    labelled_weight : float or "auto", default="auto"
        Factor on the weight of labelled rows when leaves get their values. "auto" gives them
        together as much as the unlabelled ones have, which keeps robust values from collapsing
        into one class.
    prior : {"forest", "ancestors"}, default="forest"
        What the values of leaves lean to: the mean of what a forest on the labelled rows (the one
        that tells which columns matter) says of the leaf's rows, or the labels of the nearest node
        above the leaf that holds any. Neither is in the paper.
    prior_weight : float, default=1.0
        Weight of that, beside the weight of the leaf's rows; 0 leaves it out. Nodes above are worth
        less, 0.1 or so.
    merge_tol : float, default=0.05
        Sibling leaves of the same class whose answers differ by no more are merged in the end; 0
        keeps every answer exactly.
    selection : {"regrow", "leaves"}, default="regrow"
        Whether lists are chosen from with a tree grown anew without the held-out labels, or with
        leaf values alone anew in a tree that saw all labels, as in the paper.
    max_depth : int, optional
        Most decisions on a way down.
    min_weight_leaf : float, default=1.0
        Least weight of a leaf, labelled or not.
    max_leaf_nodes : int, optional
        Most leaves before merging; the best splits come first.
    max_features : int, float, "sqrt", "log2" or None
        Columns tried at a node: a number, a share or a rule; None for all.
    missing, max_categories
        As in `TAOTreeClassifier`.
    n_jobs : int, optional
        Threads. The tree is the same for any number.
    random_state : int, RandomState or None
        Seed of folds and forests, and of columns drawn.

    Attributes
    ----------
    tree_ : Tree
        The fitted tree in the user's units. Its decisions are about columns clipped at their 1 and
        99 % quantiles, which sends every row the same way.
    classes_ : array
    transduction_ : array of shape (rows,)
        The given classes, and the tree's answers for the unlabelled rows.
    label_distributions_ : array of shape (rows, classes)
        Class probabilities of the training rows; the given class where there is one.
    bandwidth_, ccp_alpha_, supervision_ : float
        The values in use.
    selection_ : list of KernelTrial
        Bandwidth, ccp_alpha and held-out losses (one minus the probability of the true class), the
        best first; empty where nothing was to be chosen.
    collapsed_ : bool
        Whether robust leaves all got one class though the labels have several.
    feature_importances_ : array of shape (n_features_in_,)
        Share of each input column in the decrease of the growth loss.
    columns_ : Columns
        How the input columns were encoded.

    Notes
    -----
    Sparse rows are made dense.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from silva import KernelTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> partial = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> KernelTreeClassifier(random_state=0).fit(X, partial).score(X, y) > 0.9
    True
    """

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("leaf_values", self.leaf_values, ["smooth", "robust"])

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, class_totals: Any = None
    ) -> KernelTreeClassifier:
        """Grow the tree and give its leaves their values.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
        y : array of shape (rows,)
            Classes of any type; -1 or missing where unknown.
        sample_weight : array of shape (rows,), optional
            Non-negative weights; a weight of 2 counts as two rows.
        class_totals : mapping, optional
            Class to its number, or share, among the unlabelled rows. The smooth answers to these
            rows meet the totals exactly (before leaves are merged).

        Returns
        -------
        self
        """
        if class_totals is not None and self.leaf_values == "robust":
            raise ValueError("class_totals need leaf_values='smooth', got 'robust'")
        return self._fit(X, y, sample_weight, class_totals)

    def _loss(self, task: Task, targets: Array, answers: Array) -> Array:
        return np.asarray(1 - (targets * distributions(answers)).sum(axis=1))

    def _merge(self, tree: Tree, task: Task) -> Tree:
        whole = np.array([0, len(self.classes_)])
        return prune_by_purity(tree, tol=self.merge_tol, class_begin=whole)[0]

    def certified_radius(self, X: Any) -> Array:
        """Return how far each row may move before the smoothed prediction can change.

        The radius is sigma · Phi⁻¹(p) with sigma the bandwidth and p the largest class probability
        under the whole Gaussian (`predict_proba` uses a histogram of it), so the certificate is
        about that class. It is a Euclidean distance in columns divided by their deviations; 0 where
        nothing is certified. Needs the Gaussian kernel.

        Returns
        -------
        float64 array of shape (rows,)
        """
        rows = self._encode(X)
        if self.kernel != "gaussian" or self.bandwidth_ == 0:
            raise ValueError(
                "a certificate needs kernel='gaussian' and a positive bandwidth, got "
                f"{self.kernel!r} and {self.bandwidth_!r}"
            )
        tree, values = self.tree_, distributions(self.tree_.values)
        M = gaussian_membership(tree, rows, self.bandwidth_ * self._deviation)
        return certified_radius(np.clip(M @ values, 0, 1), self.bandwidth_)


class KernelTreeRegressor(KernelRegressor, KernelTree):
    """A semi-supervised regression tree whose rows are uncertain.

    As `KernelTreeClassifier`, with variances of the targets in place of Gini's impurity.

    Parameters
    ----------
    leaf_values : {"smooth"}, default="smooth"
        Numbers have no robust values: these are about classes.
    bandwidth, ccp_alpha, supervision, scaling, kernel, method, labelled_weight
        As in `KernelTreeClassifier`.
    prior, prior_weight
        As in `KernelTreeClassifier`.
    merge_tol : float, default=0.05
        Sibling leaves whose answers differ by no more than so many deviations of the labelled
        targets are merged in the end.
    selection, max_depth, min_weight_leaf, max_leaf_nodes, max_features
        As in `KernelTreeClassifier`; the held-out loss is the absolute error in units of the mean
        absolute deviation.
    missing, max_categories, n_jobs, random_state
        As in `KernelTreeClassifier`.

    Attributes
    ----------
    tree_, transduction_, bandwidth_, ccp_alpha_, supervision_, selection_, feature_importances_, \
columns_
        As in `KernelTreeClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from silva import KernelTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> partial = np.where(np.arange(len(y)) % 4 == 0, y, np.nan)
    >>> KernelTreeRegressor(random_state=0).fit(X, partial).score(X, y) > 0.3
    True
    """

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("leaf_values", self.leaf_values, ["smooth"])

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelTreeRegressor:
        """Grow the tree and give its leaves their values.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
        y : array of shape (rows,) or (rows, outputs)
            Missing where a row is unlabelled.
        sample_weight : array of shape (rows,), optional
            Non-negative weights; a weight of 2 counts as two rows.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, None)

    def _loss(self, task: Task, targets: Array, answers: Array) -> Array:
        return np.asarray((abs(targets - answers) / target_spread(task, 1)).mean(axis=1))

    def _merge(self, tree: Tree, task: Task) -> Tree:
        unit = target_spread(task, 2)
        scaled, _ = prune_by_purity(tree.with_leaves(tree.values / unit), tol=self.merge_tol)
        return scaled.with_leaves(scaled.values * unit)


def _listed(name: str, value: Any) -> list[float]:
    """Return a number, or several, as a list of different ones."""
    if isinstance(value, Real | str) or not isinstance(value, Iterable):
        return [check_number(name, value)]
    found = [check_number(f"an entry of {name}", entry) for entry in value]
    if not found:
        raise ValueError(f"{name} must be a number or a list of numbers, got an empty list")
    return list(dict.fromkeys(found))


def _warn_collapse(name: Any) -> None:
    warnings.warn(
        f"the robust values of all leaves are {name!r}: the labels weigh too little, raise "
        "labelled_weight or take leaf_values='smooth'",
        UserWarning,
        stacklevel=4,
    )
