"""The trees of a forest grown side by side, each from a bag of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from silva import ensemble
from silva.bagging import Bagging, widen
from silva.estimators.problem import Problem, importances
from silva.estimators.selection import Settings
from silva.estimators.tao_base import TAOTree
from silva.leaves import take_rows
from silva.tree import Array, Tree

INT32 = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Grown:
    """A tree of a forest.

    Attributes
    ----------
    tree : Tree
        Over all encoded columns.
    importances : array of shape (encoded columns,)
    cost : float
        Mean number of parameters that a row of its bag meets.
    n_iter : int
        Passes that were made over it.
    """

    tree: Tree
    importances: Array
    cost: float
    n_iter: int


@dataclass(frozen=True, eq=False)
class Growth:
    """Trees in the order of their numbers, and whether Ctrl-C cut them short."""

    trees: list[Grown]
    interrupted: bool


@dataclass(frozen=True, eq=False)
class Bags:
    """What the trees of a forest are grown from.

    Attributes
    ----------
    reader : TAOTree
        The tree estimator that read the targets; it fits the trees.
    problem : Problem
        All rows and columns.
    bagging : Bagging
        Which of them a tree is shown.
    n_threads : int
        Trees that are grown at a time, each by one thread.
    verbose : int
        Positive: a line per tree.
    """

    reader: TAOTree
    problem: Problem
    bagging: Bagging
    n_threads: int
    verbose: int

    def grow(self, settings: Settings, numbers: Sequence[int]) -> Growth:
        """Grow the trees of these numbers; after Ctrl-C those that came out in order."""
        trees: list[Grown] = []
        waiting: list[Future[Grown]] = []
        stop = threading.Event()
        # Always a pool, so that Ctrl-C meets the waiting thread and never a tree at work.
        with ThreadPoolExecutor(self.n_threads) as pool:
            try:
                for number in numbers:
                    waiting.append(pool.submit(self._fit, settings, number, stop))
                for number, future in zip(numbers, waiting, strict=True):
                    trees.append(future.result())
                    if self.verbose:
                        print(f"[forest] tree {number + 1}: {settings.split}", flush=True)
            except KeyboardInterrupt:
                finished = takewhile(Future.done, waiting[len(trees) :])  # not yet waited for
                return Growth([*trees, *(future.result() for future in finished)], True)
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
        return Growth(trees, False)

    def _fit(self, settings: Settings, number: int, stop: threading.Event) -> Grown:
        """Fit a tree to its bag, on the rows and columns in it alone."""
        whole, bag = self.problem, self.bagging.bag(number)
        X = whole.X[bag.rows]
        if len(bag.columns) < X.shape[1]:
            X = X[:, bag.columns] if sparse.issparse(X) else X.take(bag.columns, axis=1)
        leaves, weight = take_rows(whole.leaves, bag.rows), whole.weight[bag.rows] * bag.counts
        part = Problem.pose(whole.kernels, X, leaves, weight, n_threads=1)
        seed = int(check_random_state(bag.seed).randint(INT32))
        result = self.reader._fit_one(part, settings, None, None, seed, lambda _: stop.is_set(), 0)
        n_columns = whole.X.shape[1]
        share = np.zeros(n_columns)
        share[bag.columns] = importances(result.tree, result.leaf, part)
        cost = ensemble.leaf_costs(result.tree)[result.leaf].mean()
        tree = widen(result.tree, bag.columns, n_columns)
        return Grown(tree, share, float(cost), len(result.history) - 1)
