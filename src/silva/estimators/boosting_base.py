"""What the boosted TAO trees share: the rounds, when to stop, what is kept."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from silva import ensemble
from silva.boosting import hold_out, tree_seed
from silva.copies import row_groups
from silva.estimators.columns import Columns
from silva.estimators.ensemble_base import TAOEnsemble
from silva.estimators.parameters import check_choice, check_integer, check_number
from silva.estimators.problem import Problem, importances, leaf_numbers
from silva.estimators.selection import Settings
from silva.estimators.tao_base import TAOTree
from silva.leaves import ClassShares, take_rows
from silva.tree import Array, Tree


@dataclass(frozen=True)
class Round:
    """What one round of boosting brought.

    Attributes
    ----------
    number : int
        Trees so far, this one included.
    loss : float
        Weighted error of the tree (AdaBoost), or mean squared error left in the training rows.
    vote : float
        What the tree counts.
    validation : float
        Loss of all trees so far on the rows held out; NaN where there are none.
    n_leaves : int
    seconds : float
    """

    number: int
    loss: float
    vote: float
    validation: float
    n_leaves: int
    seconds: float


L2 = 0.1  # where the user leaves it open
SHALLOWEST = 2
NEWTON_STEPS = 1  # half the work of a lone tree's node visits; the ensemble is no worse for it
BLOCK = 16_384  # rows that are answered together: their votes stay in the cache
SETTLED = 1e-20  # loss that is but rounding

RoundCallback = Callable[[Round], bool | None]


@dataclass(frozen=True, eq=False)
class Stage:
    """Where the boosting stands: what the next tree is fitted to.

    Attributes
    ----------
    rows : array
        Of the training rows: their weights (AdaBoost), or the answers so far (gradient boosting).
    held_out : array
        Of the rows held out: the votes, or the answers so far.
    """

    rows: Array
    held_out: Array


class TAOBoost(TAOEnsemble):
    """Base of `TAOBoostClassifier` and `TAOBoostRegressor`."""

    history_: list[Round]
    _plain_alpha: float  # where the user leaves it open
    _fitted_trees: list[Tree]  # as they were fitted, for a warm start
    _settings: Settings
    _seed: int

    def __init__(
        self,
        *,
        learning_rate: float,
        validation_fraction: float,
        n_iter_no_change: int | None,
        n_estimators: int,
        split: str,
        max_depth: int | str,
        alpha: float | str,
        l2: float | str,
        max_iter: int,
        tol: float,
        init: Any,
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
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change

    # ---- what differs ---------------------------------------------------------------------------

    @abstractmethod
    def _plain_depth(self, n_rows: int, problem: Problem) -> float:
        """Return the depth that suits most tables of so many different rows."""

    @abstractmethod
    def _first_stage(self, problem: Problem, n_held_out: int) -> Stage:
        """Return the stage before the first tree."""

    @abstractmethod
    def _next_problem(self, problem: Problem, stage: Stage, seed: int) -> Problem:
        """Return what the next tree is fitted to."""

    @abstractmethod
    def _judge(
        self, problem: Problem, stage: Stage, tree: Tree, leaf: Array
    ) -> tuple[float, float, Array]:
        """Return a tree's loss, its vote (0: it is of no use) and the next stage's rows."""

    @abstractmethod
    def _answer_held_out(self, answers: Array, tree: Tree, leaf: Array, vote: float) -> Array:
        """Return the answers to the rows held out with a tree's added."""

    @abstractmethod
    def _held_out_loss(self, template: TAOTree, answers: Array, held_out: Problem) -> float:
        """Return the loss of these answers."""

    @abstractmethod
    def _keep(self, template: Any, problem: Problem) -> Array:
        """Set the fitted attributes of the kind; return each tree's part in the importances."""

    @abstractmethod
    def _check_same_targets(self, template: TAOTree) -> None:
        """Raise unless a warm start meets the targets that it knows."""

    # ---- fitting --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("init", self.init, self._template()._inits)
        check_number("learning_rate", self.learning_rate)
        if self.learning_rate == 0:
            raise ValueError("learning_rate must be positive, got 0")
        if self.n_iter_no_change is not None:
            check_integer("n_iter_no_change", self.n_iter_no_change, 1)
        if not 0 < check_number("validation_fraction", self.validation_fraction) < 1:
            raise ValueError(
                f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}"
            )

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, callback: RoundCallback | None = None
    ) -> Self:
        """Fit the trees.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
            Missing values and the categories of frames are encoded inside.
        y : array of shape (rows,)
            Targets.
        sample_weight : array of shape (rows,), optional
            Non-negative weights; a weight of 2 counts as two rows.
        callback : callable, optional
            Called after each round with a `Round`; a true answer stops.

        Returns
        -------
        self
        """
        self._check_parameters()
        resumed = self.warm_start and hasattr(self, "_fitted_trees")
        if not resumed:
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        template, problem, columns = self._pose(X, y, sample_weight)
        template._newton_steps = NEWTON_STEPS
        known: list[Tree] = []
        if resumed:
            known = self._fitted_trees
            self._check_same_targets(template)
            if self.n_estimators < len(known):
                raise ValueError(
                    f"n_estimators must be at least {len(known)}, the number of trees that "
                    f"warm_start goes on from, got {self.n_estimators}"
                )
        problem, held_out = self._hold_out(problem)
        if not known:
            self._settings = self._settle(problem, self._seed)
        trees, history = self._boost(template, problem, held_out, known, callback)
        self._keep_all(template, problem, columns, trees, history)
        return self

    def _settle(self, problem: Problem, seed: int) -> Settings:
        """Settle what was left open, by rules that suit most tables."""
        depth = 0 if self.max_depth == "auto" else int(self.max_depth)
        if self.max_depth == "auto":
            n_rows = len(np.unique(row_groups(problem.X, seed)))
            depth = max(int(self._plain_depth(n_rows, problem)), SHALLOWEST)
        split = "oblique" if sparse.issparse(problem.X) else "mixed"
        return Settings(
            split=split if self.split == "auto" else self.split,
            alpha=self._plain_alpha if self.alpha == "auto" else float(self.alpha),
            depth=depth,
            shrinkage=0.0,
            l2=L2 if self.l2 == "auto" else float(self.l2),
        )

    def _hold_out(self, problem: Problem) -> tuple[Problem, Problem | None]:
        """Part the rows into those to learn from and those to stop by."""
        if self.n_iter_no_change is None:
            return problem, None
        leaves = problem.leaves
        strata = np.zeros(len(problem.weight), int)
        if isinstance(leaves, ClassShares):
            strata = leaves.codes[:, 0]
        held = hold_out(strata, self.validation_fraction, self._seed)
        if not held.any():
            raise ValueError(
                f"validation_fraction={self.validation_fraction} of {len(held)} rows is less than "
                "a row of any class: raise it, or set n_iter_no_change=None"
            )
        kept = replace(
            problem, X=problem.X[held], leaves=take_rows(leaves, held), weight=problem.weight[held]
        )
        return problem.on(~held), kept

    def _boost(
        self,
        template: TAOTree,
        problem: Problem,
        held_out: Problem | None,
        known: list[Tree],
        callback: RoundCallback | None,
    ) -> tuple[list[Tree], list[Round]]:
        """Run the rounds. Trees that are known take part like new ones, but are not fitted."""
        run = _Run(template, problem, held_out, known, self.history_ if known else [], callback)
        trees: list[Tree] = []
        history: list[Round] = []
        stage = self._first_stage(problem, 0 if held_out is None else len(held_out.weight))
        self.stop_reason_ = "n_estimators"
        best = 0
        try:
            for number in range(self.n_estimators):
                tree, step, stage = self._round(run, stage, number)
                if step is None:
                    break
                trees.append(tree)
                history.append(step)
                if held_out is None or step.validation < history[best].validation:
                    best = number
                if self._is_over(run, tree, history, best):
                    break
        except KeyboardInterrupt:
            if not trees:
                raise
            self._say_interrupted(len(trees))
        return trees[: best + 1], history[: best + 1]

    def _round(self, run: _Run, stage: Stage, number: int) -> tuple[Tree, Round | None, Stage]:
        """Return a tree, what it brought and where that leads; None if it is not to be kept."""
        began = time.perf_counter()
        problem, held_out, is_new = run.problem, run.held_out, number >= len(run.known)
        if is_new:
            tree, whole = self._fit_tree(run, stage, number)
            if not whole:
                self._say_interrupted(number)
            if not whole and number > 0:  # half a tree would spoil a later warm start
                return tree, None, stage
        else:
            tree = run.known[number]
        leaf = leaf_numbers(problem.kernels, tree, problem.X, problem.n_threads)
        loss, vote, rows = self._judge(problem, stage, tree, leaf)
        if vote <= 0:
            self.stop_reason_ = "no better than chance"
            if number > 0:
                return tree, None, stage
            warnings.warn(
                f"the first tree has a weighted error of {loss:.3g}, no better than chance: it is "
                "kept alone",
                RuntimeWarning,
                stacklevel=4,
            )
            vote = 1.0
        answers, validation = stage.held_out, np.nan
        if held_out is not None:
            leaf = leaf_numbers(problem.kernels, tree, held_out.X, problem.n_threads)
            answers = self._answer_held_out(answers, tree, leaf, vote)
            validation = self._held_out_loss(run.template, answers, held_out)
        seconds = time.perf_counter() - began if is_new else run.earlier[number].seconds
        step = Round(number + 1, loss, vote, validation, tree.n_leaves, seconds)
        if is_new and self.verbose > 0:
            _print_progress(step, self.n_estimators)
        return tree, step, Stage(rows, answers)

    def _fit_tree(self, run: _Run, stage: Stage, number: int) -> tuple[Tree, bool]:
        """Fit the next tree; return it and whether Ctrl-C left it whole."""
        seed = tree_seed(self._seed, number)
        aim = self._next_problem(run.problem, stage, seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "interrupted after")  # said for the trees together
            result = run.template._fit_one(
                aim, self._settings, None, None, seed, None, self.verbose - 1
            )
        return result.tree, not result.interrupted

    def _is_over(self, run: _Run, tree: Tree, history: list[Round], best: int) -> bool:
        """Whether this round was the last; `stop_reason_` says why."""
        step, patience = history[-1], self.n_iter_no_change
        is_new = step.number > len(run.known)
        if self.stop_reason_ != "n_estimators":
            return True
        if is_new and run.callback is not None and run.callback(step):
            self.stop_reason_ = "callback"
        elif patience is not None and step.number - 1 - best >= patience:
            self.stop_reason_ = "validation"
        elif tree.n_leaves == 1 and step.loss <= SETTLED:
            self.stop_reason_ = "nothing left to learn"
        return self.stop_reason_ != "n_estimators"

    def _say_interrupted(self, n_trees: int) -> None:
        self.stop_reason_ = "interrupted"
        warnings.warn(
            f"interrupted after {n_trees} of {self.n_estimators} trees: they are kept"
            if n_trees
            else f"interrupted in the first of {self.n_estimators} trees: it is kept as it was",
            RuntimeWarning,
            stacklevel=5,
        )

    def _keep_all(
        self,
        template: TAOTree,
        problem: Problem,
        columns: Columns,
        trees: list[Tree],
        history: list[Round],
    ) -> None:
        self._fitted_trees, self.history_, self.columns_ = trees, history, columns
        self.n_outputs_ = template.n_outputs_
        self.n_iter_ = len(trees)
        self.split_ = self._settings.split
        self.alpha_ = self._settings.alpha
        self.max_depth_ = self._settings.depth
        self.l2_ = self._settings.l2
        cost, share = 0.0, np.zeros(problem.X.shape[1])
        for tree, part in zip(trees, self._keep(template, problem), strict=True):
            leaf = leaf_numbers(problem.kernels, tree, problem.X, problem.n_threads)
            cost += float(ensemble.leaf_costs(tree)[leaf].mean())
            share += part * importances(tree, leaf, problem)
        self.flops_ = cost
        share = np.bincount(columns.source, share, minlength=self.n_features_in_)
        self.feature_importances_ = share / share.sum() if share.any() else share


@dataclass(frozen=True, eq=False)
class _Run:
    """What the rounds of one fit share."""

    template: TAOTree
    problem: Problem
    held_out: Problem | None
    known: list[Tree]
    earlier: list[Round]
    callback: RoundCallback | None


def _print_progress(step: Round, n_estimators: int) -> None:
    validation = "" if np.isnan(step.validation) else f"  validation {step.validation:.6g}"
    print(
        f"[boost] {step.number:4d}/{n_estimators}  loss {step.loss:.6g}  vote {step.vote:.4g}"
        f"{validation}  leaves {step.n_leaves}  {step.seconds:.2f} s",
        flush=True,
    )
