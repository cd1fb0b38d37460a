"""What TAO estimators share: from the user's arguments and rows to a fitted tree."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from silva.copies import row_groups
from silva.estimators.columns import Columns, encode, fit_columns
from silva.estimators.parameters import check_choice, check_flag, check_integer, check_number
from silva.estimators.problem import Problem, check_weights, importances, leaf_numbers
from silva.estimators.selection import Settings, Trial, finals, folds, search
from silva.grow import from_sklearn, greedy_start, random_start, with_unit_features
from silva.kernels import Matrix, select
from silva.leaves import ClassShares, Leaves, Linear, take_rows
from silva.pruning import shrink
from silva.splits import Axis, Oblique, Split
from silva.tao import Callback, Iteration, Optimised, optimise
from silva.tree import Array, Tree, answer

DIRECTIONS = {"class_means": "means", "target_means": "means", "random": "gaussian"}
SPLITS = ("oblique", "mixed", "axis")
ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0)
L2 = (0.1, 1.0)  # in units of alpha; the first is used where nothing is searched
LINEAR_COLUMNS = 2000
LEAF_ROWS, DEEPEST = 16, 12  # a first tree keeps about this many rows in a leaf


class TAOTree(BaseEstimator):
    """Base of `TAOTreeClassifier` and `TAOTreeRegressor`."""

    _inits: tuple[str, ...]
    _newton_steps = 2  # of a node problem per visit
    _best_tree: Tree  # the best and the last tree unpruned, for a warm start
    _last_tree: Tree
    history_: list[Iteration]

    def __init__(
        self,
        *,
        split: str,
        leaf: str,
        max_depth: int | str,
        alpha: float | str,
        l2: float | str,
        shrinkage: float | str,
        max_iter: int,
        tol: float,
        init: Any,
        monotone: bool,
        missing: str,
        max_categories: int,
        warm_start: bool,
        n_jobs: int | None,
        random_state: Any,
        device: str,
        verbose: int,
    ) -> None:
        self.split = split
        self.leaf = leaf
        self.max_depth = max_depth
        self.alpha = alpha
        self.l2 = l2
        self.shrinkage = shrinkage
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.monotone = monotone
        self.missing = missing
        self.max_categories = max_categories
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "fill"
        tags.target_tags.multi_output = True
        return tags

    # ---- fitting --------------------------------------------------------------------------------

    @abstractmethod
    def _depths(self) -> tuple[int, ...]:
        """Return depths to try, relative to what the number of rows allows."""

    @abstractmethod
    def _shrinkages(self) -> tuple[float, ...]:
        """Return strengths of shrinkage to try; the first is used where nothing is searched."""

    @abstractmethod
    def _read_targets(self, y: Any, weight: Array) -> tuple[Leaves, Array]:
        """Check y; return the leaf problem and the weights times the class weights."""

    @abstractmethod
    def _greedy_tree(self, max_depth: int) -> Any:
        """Return an unfitted scikit-learn tree to start from."""

    @abstractmethod
    def _greedy_targets(self, leaves: Leaves) -> Array:
        """Return the targets of that tree."""

    @abstractmethod
    def _held_out_loss(self, answers: Array, leaves: Leaves, weight: Array) -> float:
        """Return the mean loss of answers to rows that a tree was not fitted to."""

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, callback: Callback | None = None
    ) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
            Missing values and the categories of frames are encoded inside.
        y : array of shape (rows,) or (rows, outputs)
            Targets.
        sample_weight : array of shape (rows,), optional
            Non-negative weights; a weight of 2 counts as two rows.
        callback : callable, optional
            Called after each iteration with a `silva.tao.Iteration`; a true answer stops.

        Returns
        -------
        self
        """
        self._check_parameters()
        X, columns = fit_columns(self, X, missing=self.missing, max_categories=self.max_categories)
        self._check_linear_leaves(X.shape[1])
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        leaves, weight = self._read_targets(y, weight)
        check_weights(weight)
        if not weight.all():  # rows without weight must not move a median
            X, leaves, weight = X[weight > 0], take_rows(leaves, weight > 0), weight[weight > 0]
        resumed = self.warm_start and hasattr(self, "_last_tree")
        given = self._last_tree if resumed else given_tree(self.init)
        check_width(given, X.shape[1])
        problem = Problem.pose(select(self.device), X, leaves, weight, self._n_threads)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        if not resumed:
            self._settings, self.trials_ = self._choose(problem, seed)
        incumbent = self._best_tree if resumed else None
        result = self._fit_one(
            problem, self._settings, given, incumbent, seed, callback, self.verbose
        )
        self._keep(result, problem, columns, resumed)
        return self

    def _check_parameters(self) -> None:
        check_choice("split", self.split, ["auto", *SPLITS])
        check_choice("leaf", self.leaf, ["constant", "linear"])
        if self.max_depth != "auto":
            check_integer("max_depth", self.max_depth, 0)
        if self.alpha != "auto":
            check_number("alpha", self.alpha)
        if self.shrinkage != "auto":
            check_number("shrinkage", self.shrinkage)
        if self.l2 != "auto":
            check_number("l2", self.l2)
        check_flag("monotone", self.monotone)
        check_flag("warm_start", self.warm_start)
        if self.n_jobs is not None:
            check_integer("n_jobs", self.n_jobs, -(2**31))
        if not isinstance(self.verbose, bool):
            check_integer("verbose", self.verbose, 0)
        check_integer("max_iter", self.max_iter, 0)
        check_number("tol", self.tol)
        check_choice("missing", self.missing, ["fill", "error"])
        check_integer("max_categories", self.max_categories, 2)
        if isinstance(self.init, str):
            check_choice("init", self.init, self._inits)

    def _check_linear_leaves(self, n_columns: int) -> None:
        if self.leaf == "linear" and n_columns > LINEAR_COLUMNS:
            raise ValueError(
                f"leaf='linear' keeps a matrix of columns by columns for each leaf and takes at "
                f"most {LINEAR_COLUMNS} columns, got {n_columns}: use leaf='constant'"
            )

    @property
    def _n_threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))

    def _choose(self, problem: Problem, seed: int) -> tuple[Settings, list[Trial]]:
        """Settle what was left open: by a search if `alpha` is open, else by plain defaults.

        Targets that are all alike need no decision and get none.
        """
        open_depth = self.max_depth == "auto" and given_tree(self.init) is None
        steps = (
            ("alpha", self.alpha, ALPHAS),
            ("depth", self.max_depth if open_depth else 0, self._depths()),
            ("shrinkage", self.shrinkage, self._shrinkages()),
            ("l2", self.l2, L2),
            ("split", self.split, SPLITS[:2]),
        )
        grid = [(name, values) for name, given, values in steps if given == "auto"]
        grid += [step for step in grid if step[0] in ("alpha", "shrinkage")]
        start = Settings(
            split=SPLITS[0] if self.split == "auto" else self.split,
            alpha=0.1 if self.alpha == "auto" else float(self.alpha),
            depth=0 if self.max_depth == "auto" else int(self.max_depth),
            shrinkage=self._shrinkages()[0] if self.shrinkage == "auto" else float(self.shrinkage),
            l2=L2[0] if self.l2 == "auto" else float(self.l2),
        )
        trials: list[Trial] = []
        leaves = problem.leaves
        targets = leaves.codes if isinstance(leaves, ClassShares) else leaves.targets
        if (targets == targets[0]).all():
            return replace(start, depth=0), trials
        if self.alpha != "auto" and not open_depth:
            return start, trials
        groups = row_groups(problem.X, seed)
        if self.alpha == "auto" and len(np.unique(groups)) >= 20:
            trials = self._search(problem, start, grid, open_depth, groups, seed)
            start = trials[0].settings
        if open_depth:
            start = replace(start, depth=_depth(groups, start.depth, leaves))
        return start, trials

    def _search(
        self,
        problem: Problem,
        start: Settings,
        grid: list[tuple[str, Any]],
        open_depth: bool,
        groups: Array,
        seed: int,
    ) -> list[Trial]:
        """Try candidates on folds of the rows; see `silva.estimators.selection`."""
        X, leaves, weight = problem.X, problem.leaves, problem.weight
        strata = np.zeros(len(weight), int)
        if isinstance(leaves, ClassShares):
            strata = leaves.codes[:, 0]
        first, further = (
            [
                (problem.on(train), groups[train], held_out)
                for train, held_out in folds(groups, X.shape[1], strata, further=later)
            ]
            for later in (False, True)
        )
        fitted: dict[tuple[Settings, int], Tree] = {}

        def evaluate(parts: Any, settings: Settings) -> tuple[float, ...]:
            losses = []
            for part, part_groups, held_out in parts:
                fold = int(held_out[0])
                fit = settings
                if open_depth:
                    fit = replace(settings, depth=_depth(part_groups, settings.depth, leaves))
                # Shrinking constant leaves needs no new fit.
                key = (fit if self.leaf == "linear" else replace(fit, shrinkage=0.0), fold)
                if key not in fitted:
                    given = given_tree(self.init)
                    result = self._fit_one(part, key[0], given, None, seed, None, 0)
                    if result.interrupted:
                        raise KeyboardInterrupt
                    fitted[key] = result.tree
                tree = fitted[key] if self.leaf == "linear" else shrink(fitted[key], fit.shrinkage)
                leaf = leaf_numbers(problem.kernels, tree, X[held_out], problem.n_threads)
                answers = answer(tree, leaf, X[held_out])
                losses.append(
                    self._held_out_loss(answers, take_rows(leaves, held_out), weight[held_out])
                )
            return tuple(losses)

        trials = search(start, grid, partial(evaluate, first))
        return finals(trials, partial(evaluate, further)) if further else trials

    def _fit_one(
        self,
        problem: Problem,
        settings: Settings,
        given: Tree | None,
        incumbent: Tree | None,
        seed: int,
        callback: Callback | None,
        verbose: int,
    ) -> Optimised:
        """Fit one tree with everything settled."""
        rows, leaves = problem.rows, problem.leaves
        if isinstance(leaves, Linear):
            leaves = replace(leaves, ridge=settings.shrinkage)
        split: Split = Axis(settings.alpha)
        if settings.split != "axis":
            split = Oblique(
                settings.alpha,
                settings.l2 * settings.alpha,
                newton_steps=self._newton_steps,
                or_axis=settings.split == "mixed",
            )
        start, keep = given, True
        if start is not None and (settings.split == "axis" or _is_greedy(self.init)):
            start = with_unit_features(start, rows)
        if start is not None and settings.split == "axis":  # hyperplanes give but their shape
            keep = bool((np.diff(start.coefficients.indptr) <= 1).all())
        if start is None:
            start, keep = self._first_tree(problem, settings, seed)
        result = optimise(
            problem.kernels, problem.X, rows, start, leaves, split,
            problem.weight.astype(np.float32),
            max_iter=self.max_iter,
            tol=self.tol,
            monotone=bool(self.monotone),
            keep_start=keep,
            incumbent=incumbent,
            n_threads=problem.n_threads,
            callback=callback,
            verbose=verbose,
        )  # fmt: skip
        return replace(result, tree=shrink(result.tree, settings.shrinkage))

    def _first_tree(self, problem: Problem, settings: Settings, seed: int) -> tuple[Tree, bool]:
        """Return a tree to start from, and whether its hyperplanes are worth keeping."""
        X, rows, leaves, weight = problem.X, problem.rows, problem.leaves, problem.weight
        init = self.init
        if init == "auto":
            init = "cart" if settings.split == "axis" else self._inits[1]
        if init == "cart" and settings.depth > 0:
            model = self._greedy_tree(settings.depth).set_params(random_state=seed)
            return greedy_start(model, X, rows, self._greedy_targets(leaves), weight), True
        direction = "axis" if settings.split == "axis" else DIRECTIONS.get(init, "means")
        start = random_start(problem.kernels, rows, leaves, direction, settings.depth, seed, weight)
        return start, False

    def _keep(self, result: Optimised, problem: Problem, columns: Columns, resumed: bool) -> None:
        earlier: list[Iteration] = self.history_ if resumed else []
        self.tree_ = result.tree
        self._best_tree, self._last_tree = result.best, result.last
        self.columns_ = columns
        self.history_ = [*earlier, *result.history]
        self.n_iter_ = max(sum(step.number > 0 for step in self.history_), 1)
        self.split_ = self._settings.split
        self.alpha_ = self._settings.alpha
        self.shrinkage_ = self._settings.shrinkage
        share = importances(result.tree, result.leaf, problem)
        self.feature_importances_ = np.bincount(
            columns.source, share, minlength=self.n_features_in_
        )

    # ---- reading the fitted tree ----------------------------------------------------------------

    def _encode(self, X: Any) -> Matrix:
        check_is_fitted(self)
        return encode(self, X, self.columns_)

    def _leaf_numbers(self, X: Matrix) -> Array:
        return leaf_numbers(select(self.device), self.tree_, X, self._n_threads)

    def _answers(self, X: Any) -> Array:
        X = self._encode(X)
        return answer(self.tree_, self._leaf_numbers(X), X)

    def apply(self, X: Any) -> Array:
        """Return the node number of the leaf that each row reaches."""
        X = self._encode(X)
        return np.asarray(self.tree_.leaf_nodes[self._leaf_numbers(X)])

    def decision_path(self, X: Any) -> sparse.csr_array:
        """Return the row-by-node indicator of the nodes that each row passes."""
        X = self._encode(X)
        return sparse.csr_array(self.tree_.ancestors()[self._leaf_numbers(X)])

    def get_depth(self) -> int:
        """Return the number of decisions on the longest way down."""
        check_is_fitted(self)
        return self.tree_.depth

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        check_is_fitted(self)
        return self.tree_.n_leaves


def check_width(given: Tree | None, n_columns: int) -> None:
    """Raise unless a given tree reads rows of this width."""
    if given is not None and given.n_features != n_columns:
        raise ValueError(
            f"init is a tree over {given.n_features} columns, X has {n_columns} "
            "(categories and missing values encoded): fit both on the same columns"
        )


def _depth(groups: Array, relative: int, leaves: Leaves) -> int:
    """Return the depth that leaves a dozen different rows or so in a leaf, and some levels more.

    However few the rows are, each of several classes can have a leaf of its own, with a level to
    spare: a first tree seldom finds the one arrangement that just suffices.
    """
    n_rows = max(len(np.unique(groups)), 2)
    allowed = int(np.clip(np.log2(n_rows / LEAF_ROWS), 1, DEEPEST))
    least = 1
    if isinstance(leaves, ClassShares):
        n_classes = int(np.diff(leaves.class_begin).max())
        least += (n_classes - 1).bit_length() if n_classes > 2 else 0
    return max(allowed + relative, least)


def _is_greedy(init: Any) -> bool:
    return isinstance(init, DecisionTreeClassifier | DecisionTreeRegressor)


def given_tree(init: Any) -> Tree | None:
    """Return the tree that `init` is or holds; None if it names a way to make one."""
    if isinstance(init, str):
        return None
    if _is_greedy(init):
        check_is_fitted(init)
        return from_sklearn(init)
    tree = getattr(init, "tree_", init)
    if not isinstance(tree, Tree):
        raise TypeError(
            "init must be a string, a silva Tree or a fitted tree estimator, "
            f"got {type(init).__name__}"
        )
    return tree
