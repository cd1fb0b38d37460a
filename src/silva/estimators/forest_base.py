"""What the two forests of TAO trees share: bags, trees grown side by side, out-of-bag answers."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from silva.bagging import Bagging, out_of_bag_mean
from silva.estimators.bags import INT32, Bags, Grown, Growth
from silva.estimators.columns import Columns
from silva.estimators.ensemble_base import TAOEnsemble
from silva.estimators.parameters import check_choice, check_flag, check_integer, check_number
from silva.estimators.problem import Problem, leaf_numbers
from silva.estimators.selection import Settings, Trial
from silva.kernels import Matrix, select
from silva.leaves import take_rows
from silva.tree import Array, Tree

ALPHA = 0.01  # a tenth of where the search of a single tree begins
DEEPER = 1  # levels more than a single tree has
PILOTS = 10  # trees by which an open split is chosen
SPLITS = ("oblique", "mixed")
BAYESIAN = "bayesian"


class TAOForest(TAOEnsemble):
    """Base of `TAOForestClassifier` and `TAOForestRegressor`."""

    _grown: list[Grown]
    _reader: Any  # the tree estimator that read the targets, to write answers in their terms

    def __init__(
        self,
        *,
        n_estimators: int,
        max_features: Any,
        bootstrap: bool | str,
        max_samples: float | int | None,
        oob_score: bool | Callable[[Array, Array], float],
        split: str,
        leaf: str,
        max_depth: int | str,
        alpha: float | str,
        l2: float | str,
        shrinkage: float | str,
        max_iter: int,
        tol: float,
        init: str,
        missing: str,
        max_categories: int,
        warm_start: bool,
        n_jobs: int | None,
        random_state: Any,
        device: str,
        verbose: int,
    ) -> None:
        super().__init__(
            n_estimators=n_estimators, split=split, max_depth=max_depth, alpha=alpha, l2=l2,
            max_iter=max_iter, tol=tol, init=init, missing=missing, max_categories=max_categories,
            warm_start=warm_start, n_jobs=n_jobs, random_state=random_state, device=device,
            verbose=verbose,
        )  # fmt: skip
        self.max_features = max_features
        self.bootstrap = bootstrap
        self.max_samples = max_samples
        self.oob_score = oob_score
        self.leaf = leaf
        self.shrinkage = shrinkage

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # ---- fitting --------------------------------------------------------------------------------

    @abstractmethod
    def _finish_tree(self, tree: Tree) -> Tree:
        """Return the tree with answers in the user's units."""

    @abstractmethod
    def _tree_answers(self, tree: Tree, leaf: Array, X: Matrix) -> Array:
        """Return what a tree contributes to the answers for encoded rows in given leaves."""

    @abstractmethod
    def _set_targets(self, reader: Any) -> None:
        """Keep what was learned about the targets."""

    @abstractmethod
    def _set_out_of_bag(self, mean: Array) -> Array:
        """Keep the mean out-of-bag answers; return the predictions."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the trees.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
            Missing values and the categories of frames are encoded inside.
        y : array of shape (rows,) or (rows, outputs)
            Targets.
        sample_weight : array of shape (rows,), optional
            Non-negative weights. Rows are drawn with equal chances and then count by their weight;
            a row of weight 0 is as good as absent.

        Returns
        -------
        self
        """
        self._check_parameters()
        reader, X, leaves, weight, columns = self._read(X, y, sample_weight)
        kept = np.flatnonzero(weight > 0)
        used, weight = X, weight[kept]
        if len(kept) < X.shape[0]:
            used, leaves = X[kept], take_rows(leaves, kept)
        resumed = self.warm_start and hasattr(self, "_grown")
        self._check_resumable(reader, columns, resumed)
        if not resumed:
            self._entropy = int(check_random_state(self.random_state).randint(INT32))
        bagging = self._bagging(len(kept), columns)
        problem = Problem.pose(select(self.device), used, leaves, weight, self._n_threads)
        bags = Bags(reader, problem, bagging, self._n_threads, self.verbose)
        self._reader, self.columns_ = reader, columns
        self._set_targets(reader)
        earlier, grown = self._grown if resumed else [], Growth([], False)
        if not resumed:
            self._settings, self.trials_, grown = self._settle(bags)
        done = len(earlier) + len(grown.trees)
        if not grown.interrupted:
            more = bags.grow(self._settings, range(done, self.n_estimators))
            grown = Growth([*grown.trees, *more.trees], more.interrupted)
        new = [replace(each, tree=self._finish_tree(each.tree)) for each in grown.trees]
        if grown.interrupted:
            self._tell_interruption(len(earlier) + len(new))
        self._grown = [*earlier, *new]
        self._keep(bagging, kept)
        if self.oob_score:
            self._judge_out_of_bag(X, y, sample_weight, kept)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_flag("bootstrap", self.bootstrap, BAYESIAN)
        if not callable(self.oob_score):
            check_flag("oob_score", self.oob_score)
        if not isinstance(self.init, str):
            raise TypeError(
                "init must name a way to make first trees, got "
                f"{type(self.init).__name__}: trees that start alike end alike"
            )
        if self.oob_score and not self._draws_rows:
            raise ValueError("oob_score needs bootstrap=True: without it every tree sees every row")
        if self.max_samples is not None and not self._draws_rows:
            raise ValueError(
                f"max_samples must be None where bootstrap={self.bootstrap!r}, got "
                f"{self.max_samples!r}"
            )

    @property
    def _draws_rows(self) -> bool:
        return bool(self.bootstrap) and self.bootstrap != BAYESIAN

    def _check_resumable(self, reader: Any, columns: Columns, resumed: bool) -> None:
        if not resumed:
            return
        if self.n_estimators < len(self._grown):
            raise ValueError(
                f"n_estimators={self.n_estimators} must not be less than the {len(self._grown)} "
                "trees there are when warm_start=True"
            )
        if self.n_estimators == len(self._grown):
            warnings.warn(
                f"warm_start=True and n_estimators={self.n_estimators} trees are there already: "
                "none is added",
                UserWarning,
                stacklevel=3,
            )
        if columns.names != self.columns_.names or not self._same_targets(reader):
            raise ValueError(
                "warm_start=True adds trees for the same columns and targets, but X or y differ "
                "in their columns, classes or outputs from the last fit"
            )

    def _same_targets(self, reader: Any) -> bool:
        return bool(reader.n_outputs_ == self._reader.n_outputs_)

    def _settle(self, bags: Bags) -> tuple[Settings, list[Trial], Growth]:
        """Settle what is "auto"; return it with the trees that were grown to find out.

        An open `split` is tried both ways on the bags of the first trees, and the one with the
        lower out-of-bag loss taken. Targets that are all alike get no decision.
        """
        settings, _ = bags.reader._choose(bags.problem, self._entropy)
        if settings.depth > 0 and self.max_depth == "auto":
            settings = replace(settings, depth=settings.depth + DEEPER)
        if settings.depth == 0 or self.split != "auto" or not self._draws_rows:
            return settings, [], Growth([], False)
        tried: list[tuple[Trial, list[Grown]]] = []
        interrupted = False
        for split in SPLITS:
            candidate = replace(settings, split=split)
            growth = bags.grow(candidate, range(PILOTS))
            interrupted |= growth.interrupted
            if growth.trees and not (interrupted and tried):
                loss = self._out_of_bag_loss(bags, growth.trees)
                tried.append((Trial(candidate, (loss,)), growth.trees))
            if interrupted:
                break
        if not tried:
            raise KeyboardInterrupt
        tried.sort(key=lambda pair: pair[0].loss)
        best, trees = tried[0]
        trials = [trial for trial, _ in tried]
        return best.settings, trials, Growth(trees[: self.n_estimators], interrupted)

    def _out_of_bag_loss(self, bags: Bags, grown: list[Grown]) -> float:
        """Return the loss of a few trees in the units of the optimiser."""
        problem = bags.problem
        trees = [each.tree for each in grown]
        mean, votes = self._out_of_bag_mean(
            trees, problem.X, bags.bagging, np.arange(len(problem.weight))
        )
        judged = np.flatnonzero(votes)
        if not judged.size:
            return math.inf
        leaves = take_rows(problem.leaves, judged)
        return bags.reader._held_out_loss(mean[judged], leaves, problem.weight[judged])

    def _tell_interruption(self, n_trees: int) -> None:
        if n_trees == 0:
            raise KeyboardInterrupt
        warnings.warn(
            f"interrupted after {n_trees} of {self.n_estimators} trees: they are kept",
            RuntimeWarning,
            stacklevel=3,
        )

    def _bagging(self, n_rows: int, columns: Columns) -> Bagging:
        """Return how the bags are drawn; the encoded columns of an input column stay together."""
        return Bagging(
            self._entropy,
            n_rows,
            _count_draws(self.max_samples, n_rows) if self._draws_rows else None,
            columns.source,
            _count_features(self.max_features, self.n_features_in_),
            self.bootstrap == BAYESIAN,
        )

    def _keep(self, bagging: Bagging, kept: Array) -> None:
        self._bags, self._kept_rows = bagging, kept
        self.trees_ = [grown.tree for grown in self._grown]
        encoded = np.sum([grown.importances for grown in self._grown], axis=0)
        share = np.bincount(self.columns_.source, encoded, minlength=self.n_features_in_)
        self.feature_importances_ = share / share.sum() if share.sum() > 0 else share
        self.flops_ = float(sum(grown.cost for grown in self._grown))
        self.n_iter_ = max(1, *(grown.n_iter for grown in self._grown))
        self.split_, self.alpha_ = self._settings.split, self._settings.alpha
        self.max_depth_ = self._settings.depth
        self.max_features_ = bagging.n_groups

    # ---- out of bag -----------------------------------------------------------------------------

    def _out_of_bag_mean(
        self, trees: list[Tree], X: Matrix, bagging: Bagging, kept: Array
    ) -> tuple[Array, Array]:
        """Return mean answers to all rows and the votes behind them; bags hold rows of `kept`."""
        kernels = select(self.device)

        def answers() -> Iterator[tuple[Array, Array]]:
            for number, tree in enumerate(trees):
                outside = np.ones(X.shape[0], bool)
                outside[kept[bagging.bag(number).rows]] = False
                rows = np.flatnonzero(outside)
                leaf = leaf_numbers(kernels, tree, X[rows], self._n_threads)
                yield rows, self._tree_answers(tree, leaf, X[rows])

        return out_of_bag_mean(answers(), X.shape[0], trees[0].n_outputs)

    def _judge_out_of_bag(self, X: Matrix, y: Any, sample_weight: Any, kept: Array) -> None:
        """Score the forest on the training rows, each by the trees that did not see it."""
        mean, votes = self._out_of_bag_mean(self.trees_, X, self._bags, kept)
        judged = votes > 0
        if not judged.all():
            warnings.warn(
                f"{np.count_nonzero(~judged)} of {len(votes)} rows are in the bags of all "
                f"{len(self.trees_)} trees and have no out-of-bag answer (NaN): take more trees",
                UserWarning,
                stacklevel=3,
            )
        predicted = self._set_out_of_bag(mean)
        rows = kept[judged[kept]]
        if not rows.size:
            self.oob_score_ = float("nan")
            return
        truth, predicted = np.asarray(y).reshape(predicted.shape)[rows], predicted[rows]
        if callable(self.oob_score):
            self.oob_score_ = self.oob_score(truth, predicted)
            return
        weight = np.ones(len(judged)) if sample_weight is None else sample_weight
        weight = np.broadcast_to(weight, len(judged))[rows]
        self.oob_score_ = self._default_score(truth, predicted, weight)

    @abstractmethod
    def _default_score(self, truth: Array, predicted: Array, weight: Array) -> float:
        """Return the score that `score` gives."""

    # ---- reading the fitted trees ---------------------------------------------------------------

    def _mean_answers(self, X: Any) -> Array:
        X = self._encode(X)
        total = np.zeros((X.shape[0], self.trees_[0].n_outputs))
        for tree, leaf in self._leaves(X):
            total += self._tree_answers(tree, leaf, X)
        total /= len(self.trees_)
        return total

    def decision_path(self, X: Any) -> tuple[sparse.csr_array, Array]:
        """Return the row-by-node indicator of all trees, and where each tree's nodes begin."""
        X = self._encode(X)
        parts = [sparse.csr_array(tree.ancestors()[leaf]) for tree, leaf in self._leaves(X)]
        begin = np.cumsum([0, *(tree.n_nodes for tree in self.trees_)])
        return sparse.csr_array(sparse.hstack(parts, format="csr")), begin

    @property
    def estimators_samples_(self) -> list[Array]:
        """Rows of each tree's bag, as often as they were drawn; once if they were weighed."""
        check_is_fitted(self)
        if self._bags.weighed:
            return [self._kept_rows for _ in self.trees_]
        bags = (self._bags.bag(number) for number in range(len(self.trees_)))
        return [np.repeat(self._kept_rows[bag.rows], bag.counts) for bag in bags]

    @property
    def estimators_features_(self) -> list[Array]:
        """Input columns that each tree was shown."""
        check_is_fitted(self)
        bags = (self._bags.bag(number) for number in range(len(self.trees_)))
        return [np.unique(self.columns_.source[bag.columns]) for bag in bags]


def _count_draws(max_samples: Any, n_rows: int) -> int:
    """Return how many rows are drawn for a tree."""
    if max_samples is None:
        return n_rows
    if isinstance(max_samples, Integral):
        if check_integer("max_samples", max_samples, 1) > n_rows:
            raise ValueError(f"max_samples={max_samples} must not exceed the {n_rows} rows")
        return int(max_samples)
    return max(round(_share("max_samples", max_samples) * n_rows), 1)


def _count_features(max_features: Any, n_features: int) -> int:
    """Return how many input columns a tree is shown."""
    if max_features is None:
        return n_features
    if isinstance(max_features, str):
        rules = {"auto": n_features, "sqrt": math.isqrt(n_features), "log2": math.log2(n_features)}
        return max(int(rules[check_choice("max_features", max_features, list(rules))]), 1)
    if isinstance(max_features, Integral):
        if check_integer("max_features", max_features, 1) > n_features:
            raise ValueError(
                f"max_features={max_features} must not exceed the {n_features} columns"
            )
        return int(max_features)
    return max(int(_share("max_features", max_features) * n_features), 1)


def _share(name: str, value: Any) -> float:
    if not 0 < check_number(name, value) <= 1:
        raise ValueError(f"{name} as a share must be above 0 and at most 1, got {value!r}")
    return float(value)
