"""One tree for smoothed labels: several kinds are fitted, the most faithful one is kept.

A tree is faithful if it predicts the smoothed labels of rows that it was not fitted to. This needs
no true labels, of which there are few, and smoothed ones are there for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from silva.estimators.problem import Problem, importances, leaf_numbers
from silva.estimators.selection import CELLS, ROWS, Settings
from silva.estimators.tao import TAOTreeRegressor
from silva.grow import greedy_start
from silva.kernels import Kernels, Matrix
from silva.leaves import Linear, Mean
from silva.tao import rescale_answers
from silva.tree import Array, Tree, answer, node_totals

FOLDS, FOLDS_USED = 4, 2  # of rows held out, and how many of them are looked at
PASSES = 8  # of the optimiser over a tree; more fit the noise of the labels
MANY_ROWS, MANY_PASSES = 20_000, 20  # beyond so many there is less noise to fit
LEAST_ROWS = 3  # in a leaf of an axis-aligned tree
STARTS = 3  # of the tree that is kept; how good one is depends on its start


@dataclass(frozen=True)
class Kind:
    """A kind of tree.

    Attributes
    ----------
    words : str
        What it is called in a report.
    split : {"oblique", "mixed", "greedy"}
        Greedy trees ask for one column at a time and are not optimised further.
    leaf : {"constant", "linear"}
    depth : int
        At most.
    alpha : float
        Price of the coefficients.
    leaves : int or None
        Most leaves of a greedy tree.
    ridge : float
        Price of the slopes of linear leaves.
    l2 : float
        Price of half the squared norm of hyperplanes, in units of `alpha`.
    """

    words: str
    split: str
    leaf: str
    depth: int
    alpha: float
    leaves: int | None = None
    ridge: float = 0.0
    l2: float = 0.1


@dataclass(frozen=True, eq=False)
class Targets:
    """Rows and what a tree is to say of them.

    Attributes
    ----------
    X : matrix
    Z : array of shape (rows, outputs)
    weight : array of shape (rows,)
    kernels : Kernels
    n_threads : int
    """

    X: Matrix
    Z: Array
    weight: Array
    kernels: Kernels
    n_threads: int

    def on(self, part: Array) -> Targets:
        """Return some of the rows."""
        return replace(self, X=self.X[part], Z=self.Z[part], weight=self.weight[part])

    @property
    def centre(self) -> Array:
        """Mean target."""
        return np.asarray(self.weight @ self.Z / self.weight.sum())

    @property
    def unit(self) -> float:
        """Root mean variance of the targets, 1 where they are all alike."""
        square = self.weight @ (self.Z - self.centre) ** 2 / self.weight.sum()
        spread = float(np.sqrt(square.mean()))
        return spread if spread > 1e-9 * (1 + float(np.abs(self.centre).max())) else 1.0


@dataclass(frozen=True, eq=False)
class Faithful:
    """The tree that was kept.

    Attributes
    ----------
    tree : Tree
    leaf : int array of shape (rows,)
        Leaf of each row.
    kind : Kind
    losses : dict of Kind to float
        Mean loss of each kind on rows held out.
    held_out : int array
        These rows.
    answers : array of shape (rows held out, outputs)
        What trees of the kind that was kept said of them.
    importances : array of shape (encoded columns,)
    """

    tree: Tree
    leaf: Array
    kind: Kind
    losses: dict[Kind, float]
    held_out: Array
    answers: Array
    importances: Array

    @property
    def loss(self) -> float:
        """Mean loss of the kind that was kept, on rows held out."""
        return self.losses[self.kind]


Loss = Callable[[Array, Array, Array], float]  # (answers, targets, weight) -> mean loss


def most_faithful(
    targets: Targets,
    kinds: Sequence[Kind],
    loss: Loss,
    seed: int,
    widen: Callable[[Array], Targets] | None = None,
    tolerance: float = 0.0,
) -> Faithful:
    """Fit trees of all kinds to part of the rows, keep the best on the others, fit it to all.

    The last from several starts. Of kinds that are about as good as the best, the one with the
    smallest trees is kept.

    Parameters
    ----------
    targets : Targets
    kinds : sequence of Kind
        Of equally faithful and large ones the first is kept. A search may end at a kind that is
        among them already: it is tried once.
    loss : function
    seed : int
    widen : function or None
        From numbers of rows to what trees are fitted to: these rows, and others beside them.
    tolerance : float
        Loss beyond the least that still is about as good, where all rows are compared.
    """
    n_rows = targets.X.shape[0]
    order = np.random.default_rng(seed).permutation(n_rows)
    tried = order[: rows_to_compare(targets)]
    if len(tried) < n_rows:  # what suffices for some of the rows may not for all
        tolerance = 0.0
    losses: dict[Kind, float] = dict.fromkeys(kinds, 0.0)
    sizes: dict[Kind, int] = dict.fromkeys(kinds, 0)  # coefficients and leaves of the trees
    said: dict[Kind, list[Array]] = {kind: [targets.Z[:0]] for kind in kinds}
    asked = [order[:0]]
    some = targets.on(tried)
    alike = bool((targets.Z[0] == targets.Z).all())
    if not alike and len(tried) >= 2 * FOLDS:
        for fold in range(FOLDS_USED):
            out = np.arange(len(tried)) % FOLDS == fold
            train = some.on(~out) if widen is None else widen(tried[~out])
            held_out = some.on(out)
            asked.append(tried[out])
            for kind in losses:  # the price is in units of rows
                price = kind.alpha * len(tried) / n_rows
                tree, _ = fit_tree(train, replace(kind, alpha=price), seed)
                answers = tree_answers(tree, held_out)
                said[kind].append(answers)
                losses[kind] += loss(answers, held_out.Z, held_out.weight) / FOLDS_USED
                sizes[kind] += tree.coefficients.nnz + tree.n_leaves
    good = [kind for kind, each in losses.items() if each <= min(losses.values()) + tolerance]
    best = min(good, key=sizes.__getitem__)
    if alike:
        tree, share = fit_tree(targets, replace(best, depth=0), seed)
    else:
        everything = targets if widen is None else widen(np.arange(n_rows))
        tree, share = best_start(everything, best, loss, seed)
    leaf = leaf_numbers(targets.kernels, tree, targets.X, targets.n_threads)
    held = np.concatenate(asked)
    return Faithful(tree, leaf, best, losses, held, np.concatenate(said[best]), share)


def best_start(targets: Targets, kind: Kind, loss: Loss, seed: int) -> tuple[Tree, Array]:
    """Return the most faithful tree of several starts; a greedy one has but one.

    Trees of one kind are about as large, so the rows that they were fitted to can judge them.
    """
    n_starts = 1 if kind.split == "greedy" else STARTS
    fits = [fit_tree(targets, kind, seed + number) for number in range(n_starts)]
    if n_starts == 1:
        return fits[0]
    losses = [loss(tree_answers(tree, targets), targets.Z, targets.weight) for tree, _ in fits]
    return fits[int(np.argmin(losses))]


def rows_to_compare(targets: Targets) -> int:
    """Return how many of the rows kinds of trees are compared on."""
    n_rows, n_columns = targets.X.shape
    return int(min(n_rows, max(min(ROWS, CELLS // n_columns), 100)))


def passes(n_rows: int) -> int:
    """Return how many passes the optimiser makes over a tree of so many rows."""
    return PASSES if n_rows <= MANY_ROWS else MANY_PASSES


def tree_answers(tree: Tree, targets: Targets) -> Array:
    """Return what a tree says of rows."""
    leaf = leaf_numbers(targets.kernels, tree, targets.X, targets.n_threads)
    return answer(tree, leaf, targets.X)


def fit_tree(targets: Targets, kind: Kind, seed: int) -> tuple[Tree, Array]:
    """Return a tree of a kind in the user's units, and the importances of its columns."""
    centre, unit = targets.centre, targets.unit
    scaled = np.ascontiguousarray((targets.Z - centre) / unit)
    leaves: Any = Linear(scaled) if kind.leaf == "linear" else Mean(scaled)
    problem = Problem.pose(
        targets.kernels, targets.X, leaves, targets.weight, targets.n_threads
    )  # fmt: skip
    if kind.split == "greedy" and kind.depth > 0:
        tree, leaf = _greedy(problem, kind, scaled, seed)
    else:
        split = "oblique" if kind.split == "greedy" else kind.split
        model = TAOTreeRegressor(leaf=kind.leaf, max_iter=passes(len(targets.Z)))
        settings = Settings(split, kind.alpha, kind.depth, kind.ridge, kind.l2)
        result = model._fit_one(problem, settings, None, None, seed, None, 0)
        if result.interrupted:
            raise KeyboardInterrupt
        tree, leaf = result.tree, result.leaf
    return rescale_answers(tree, centre, unit), importances(tree, leaf, problem)


def _greedy(problem: Problem, kind: Kind, targets: Array, seed: int) -> tuple[Tree, Array]:
    """Return an axis-aligned tree, its answers fitted to the rows that arrive, and their leaves."""
    model = DecisionTreeRegressor(
        max_depth=kind.depth, max_leaf_nodes=kind.leaves, min_samples_leaf=LEAST_ROWS,
        random_state=seed,
    )  # fmt: skip
    weight = problem.weight
    tree = greedy_start(model, problem.X, problem.rows, targets, weight)
    leaf = leaf_numbers(problem.kernels, tree, problem.X, problem.n_threads)
    reached = np.bincount(leaf, weight, minlength=tree.n_leaves)
    sums = np.stack([np.bincount(leaf, weight * t, minlength=tree.n_leaves) for t in targets.T], 1)
    values = np.where(
        reached[:, None] > 0, sums / np.maximum(reached, 1e-300)[:, None], tree.values
    )
    return tree.with_leaves(values, np.maximum(node_totals(tree, reached), 1e-300)), leaf
