"""Gradient boosting over TAO trees: `TAOBoostRegressor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import gen_batches

from silva.estimators.boosting_base import BLOCK, Stage, TAOBoost
from silva.estimators.problem import Problem
from silva.estimators.tao import TAOTreeRegressor
from silva.estimators.tao_base import TAOTree
from silva.leaves import ClassShares, Mean
from silva.losses import squared_error
from silva.tao import rescale_answers
from silva.tree import Array, Tree

LEAF_ROWS, DEEPEST = 8, 5  # small trees: what one leaves, the next ones take


class TAOBoostRegressor(RegressorMixin, TAOBoost):
    """Gradient boosting over regression trees trained by alternating optimisation.

    Each tree is fitted to what the earlier ones have left of the targets, squared error, and
    `learning_rate` of its answer is added.

    Parameters
    ----------
    n_estimators, learning_rate, split, l2, max_iter, tol
        As in `TAOBoostClassifier`.
    max_depth : int or "auto", default="auto"
        Depth that a tree starts with; "auto" is 5, less for fewer than 256 rows.
    alpha : float or "auto", default="auto"
        Price of complexity in units of the variance of the targets; 0.01 if "auto".
    init : {"auto", "target_means", "random", "cart"}, default="auto"
        The first tree of each round, as in `TAOTreeRegressor`.
    validation_fraction, n_iter_no_change, missing, max_categories, warm_start, n_jobs, \
    random_state, device, verbose
        As in `TAOBoostClassifier`.

    Attributes
    ----------
    trees_ : list of Tree
        In the units of the targets, not yet multiplied by `learning_rate`.
    offset_ : array of shape (outputs,)
        The mean of the targets, where the sum starts.
    history_, stop_reason_, feature_importances_, n_parameters_, flops_, split_, alpha_, \
    max_depth_, l2_, columns_
        As in `TAOBoostClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from silva import TAOBoostRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> TAOBoostRegressor(n_estimators=20, random_state=0).fit(X, y).score(X, y) > 0.5
    True
    """

    _plain_alpha = 0.01

    def __init__(
        self,
        *,
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        split: str = "auto",
        max_depth: int | str = "auto",
        alpha: float | str = "auto",
        l2: float | str = "auto",
        max_iter: int = 20,
        tol: float = 1e-4,
        init: Any = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        missing: str = "fill",
        max_categories: int = 30,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate, validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change, n_estimators=n_estimators, split=split,
            max_depth=max_depth, alpha=alpha, l2=l2, max_iter=max_iter, tol=tol, init=init,
            missing=missing, max_categories=max_categories, warm_start=warm_start, n_jobs=n_jobs,
            random_state=random_state, device=device, verbose=verbose,
        )  # fmt: skip

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _template(self) -> TAOTreeRegressor:
        return TAOTreeRegressor(
            split=self.split, max_depth=self.max_depth, alpha=self.alpha, l2=self.l2,
            shrinkage=0.0, max_iter=self.max_iter, tol=self.tol, init=self.init,
            missing=self.missing, max_categories=self.max_categories, n_jobs=self.n_jobs,
            device=self.device, verbose=self.verbose,
        )  # fmt: skip

    # ---- fitting --------------------------------------------------------------------------------

    def _plain_depth(self, n_rows: int, problem: Problem) -> float:
        return float(min(np.log2(n_rows / LEAF_ROWS), DEEPEST))

    def _first_stage(self, problem: Problem, n_held_out: int) -> Stage:
        outputs = _targets(problem).shape[1]
        return Stage(np.zeros((len(problem.weight), outputs)), np.zeros((n_held_out, outputs)))

    def _next_problem(self, problem: Problem, stage: Stage, seed: int) -> Problem:
        return replace(problem, leaves=Mean(_targets(problem) - stage.rows))

    def _judge(
        self, problem: Problem, stage: Stage, tree: Tree, leaf: Array
    ) -> tuple[float, float, Array]:
        answers = stage.rows + self.learning_rate * tree.values[leaf]
        loss = np.average(squared_error(_targets(problem), answers), weights=problem.weight)
        return float(loss), self.learning_rate, answers

    def _answer_held_out(self, answers: Array, tree: Tree, leaf: Array, vote: float) -> Array:
        return answers + vote * tree.values[leaf]

    def _held_out_loss(self, template: TAOTree, answers: Array, held_out: Problem) -> float:
        return template._held_out_loss(answers, held_out.leaves, held_out.weight)

    def _keep(self, template: TAOTree, problem: Problem) -> Array:
        self._flat = template._flat
        self.offset_ = template._centre
        self.trees_ = [
            rescale_answers(tree, np.zeros(1), template._unit) for tree in self._fitted_trees
        ]
        first = np.average(squared_error(_targets(problem), np.zeros(1)), weights=problem.weight)
        losses = np.array([first, *(step.loss for step in self.history_)])
        return np.maximum(-np.diff(losses), 0.0)

    def _check_same_targets(self, template: TAOTree) -> None:
        if template.n_outputs_ != self.n_outputs_:
            raise ValueError(
                f"y must have as many outputs as in the first fit with warm_start, got "
                f"{template.n_outputs_}, expected {self.n_outputs_}"
            )

    # ---- asking the trees -----------------------------------------------------------------------

    def _shaped(self, answers: Array) -> Array:
        return answers[:, 0] if self._flat else answers

    def predict(self, X: Any) -> Array:
        """Return the sum of the trees' answers."""
        X = self._encode(X)
        answers = np.tile(self.offset_, (X.shape[0], 1))
        for part in gen_batches(X.shape[0], BLOCK):
            for tree, leaf in self._leaves(X[part]):
                answers[part] += self.learning_rate * tree.values[leaf]
        return self._shaped(answers)

    def staged_predict(self, X: Any) -> Iterator[Array]:
        """Yield `predict` of the first tree, the first two and so on."""
        X = self._encode(X)
        answers = np.tile(self.offset_, (X.shape[0], 1))
        for tree, leaf in self._leaves(X):
            answers = answers + self.learning_rate * tree.values[leaf]
            yield self._shaped(answers)

    def staged_score(self, X: Any, y: Any, sample_weight: Any = None) -> Iterator[float]:
        """Yield the R² of the first tree, the first two and so on."""
        for answers in self.staged_predict(X):
            yield float(r2_score(y, answers, sample_weight=sample_weight))


def _targets(problem: Problem) -> Array:
    leaves = problem.leaves
    if isinstance(leaves, ClassShares):
        raise TypeError("a regressor needs numbers")
    return leaves.targets
