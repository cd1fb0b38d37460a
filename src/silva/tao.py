"""Tree alternating optimisation: a tree in, a better tree out.

Minimises, over the hyperplanes and leaves of a tree of given shape (boosted TAO paper, eq. 2),

    E(T) = sum_n weight_n · loss(y_n, T(x_n)) + sum over decision nodes of penalty(node)

by visiting the levels from the leaves to the root; at each node all others are fixed and what is
left is a two-class problem (`silva.splits`) or a leaf fit (`silva.leaves`).

The papers promise that E never rises. That holds with `monotone=True`, which drops a node's update
when E would rise; from a random start it also freezes the tree early. By default every update is
taken, E falls almost always, and the best tree seen is returned.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from silva.grow import from_planes, to_planes
from silva.kernels import Kernels, Matrix, Planes, Rows, Session
from silva.leaves import Leaves, Linear, Mean
from silva.pruning import prune_costly, prune_dead
from silva.splits import Axis, Split
from silva.tree import Array, Tree, node_totals


@dataclass(frozen=True)
class Iteration:
    """What one pass over the tree reached.

    Attributes
    ----------
    number : int
        0 is the first tree with its leaves fitted.
    objective, loss, penalty : float
        E and its two parts; E counts rows, so `loss` is a weighted number of errors or a sum of
        squares (of targets scaled to unit variance).
    nonzeros : int
        Coefficients in use, dead branches included.
    seconds : float
        Time of this pass.
    """

    number: int
    objective: float
    loss: float
    penalty: float
    nonzeros: int
    seconds: float


Callback = Callable[[Iteration], bool | None]

PATIENCE = 3  # passes without progress before `tol` stops the loop


@dataclass(frozen=True, eq=False)
class Optimised:
    """What came of an optimisation.

    Attributes
    ----------
    tree : Tree
        The best tree, pruned.
    leaf : int array of shape (rows,)
        Leaf of each row in it.
    best, last : Tree
        The best tree before pruning and the last one, to go on from.
    history : list of Iteration
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    tree: Tree
    leaf: Array
    best: Tree
    last: Tree
    history: list[Iteration]
    interrupted: bool


def optimise(
    kernels: Kernels,
    X: Matrix,
    rows: Rows,
    start: Tree,
    leaves: Leaves,
    split: Split,
    weight: Array,
    *,
    max_iter: int,
    tol: float,
    monotone: bool = False,
    keep_start: bool = False,
    incumbent: Tree | None = None,
    n_threads: int = 1,
    callback: Callback | None = None,
    verbose: int = 0,
) -> Optimised:
    """Improve a tree by alternating optimisation.

    Parameters
    ----------
    kernels : Kernels
        The compute table.
    X : matrix of shape (rows, features)
        The training rows in the user's units.
    rows : Rows
        The same, prepared by the table.
    start : Tree
        Shape and hyperplanes to start from.
    leaves, split
        The leaf problem with its targets, and the node problem.
    weight : float32 array of shape (rows,)
        Positive weights.
    max_iter, tol
        Passes at most; the loop ends when E has not fallen by `tol` (relative) for three passes.
    monotone : bool
        Never let E rise.
    keep_start : bool
        The start is worth keeping: node problems begin at its hyperplanes. A random one is not.
    incumbent : Tree, optional
        The best tree of an earlier run, of the same shape as `start`; kept unless beaten.
    callback : callable, optional
        Called with each `Iteration`; a true answer stops.
    verbose : int
        Positive: a line of progress per pass.
    """
    session = kernels.session(
        rows,
        start.left,
        start.right,
        to_planes(start, rows),
        leaves,
        weight,
        split,
        monotone,
        n_threads,
    )
    history: list[Iteration] = []
    best: Planes = session.planes()
    lowest = np.inf
    if incumbent is not None:
        best = to_planes(incumbent, rows)
        session.set_planes(best)
        session.route()
        lowest = session.fit_leaves() + session.penalty()
        session.set_planes(to_planes(start, rows))
    interrupted = False
    try:
        for number in range(max_iter + 1):
            began = time.perf_counter()
            if number == 0:
                session.route()
            else:
                for level in reversed(range(session.n_levels)):
                    session.update_level(level, keep_start or number > 1)
            loss, penalty = session.fit_leaves(), session.penalty()
            seconds = time.perf_counter() - began
            step = Iteration(number, loss + penalty, loss, penalty, session.n_nonzeros(), seconds)
            history.append(step)
            if verbose > 0:
                _print_progress(step, max_iter)
            if step.objective < lowest or (number == 1 and not keep_start):
                lowest, best = step.objective, session.planes()
            if callback is not None and callback(step):
                break
            if _has_settled(history, tol):
                break
    except KeyboardInterrupt:
        interrupted = True
        warnings.warn(
            f"interrupted after {max(len(history) - 1, 0)} of {max_iter} iterations: "
            "the best tree so far is kept",
            RuntimeWarning,
            stacklevel=2,
        )
    last = from_planes(start.left, start.right, session.planes(), rows)
    whole = from_planes(start.left, start.right, best, rows)
    tree, leaf = _finish(kernels, X, rows, session, whole, best, leaves, split, weight, n_threads)
    return Optimised(tree, leaf, whole, last, history, interrupted)


def _has_settled(history: list[Iteration], tol: float) -> bool:
    """Whether the last passes brought no progress."""
    if tol <= 0 or len(history) <= PATIENCE + 1:
        return False
    objective = [step.objective for step in history[1:]]
    return min(objective[-PATIENCE:]) > (1 - tol) * min(objective[:-PATIENCE])


def _print_progress(step: Iteration, max_iter: int) -> None:
    print(
        f"[TAO] {step.number:3d}/{max_iter}  objective {step.objective:.6g}  "
        f"loss {step.loss:.6g}  penalty {step.penalty:.4g}  non-zeros {step.nonzeros}  "
        f"{step.seconds:.2f} s",
        flush=True,
    )


def _finish(
    kernels: Kernels,
    X: Matrix,
    rows: Rows,
    session: Session,
    tree: Tree,
    best: Planes,
    leaves: Leaves,
    split: Split,
    weight: Array,
    n_threads: int,
) -> tuple[Tree, Array]:
    """Return the tree of the best planes pruned, leaves fitted to where *it* sends the rows.

    The optimiser works in float32 on scaled columns; a row on the very edge may go the other way
    in the user's units, and the answers must be those of the rows that really arrive.
    """
    arrived = kernels.route(X, tree.left, tree.right, tree.coefficients, tree.threshold, n_threads)
    session.set_planes(best)
    session.assign(arrived)
    session.fit_leaves()
    answers = session.answers()
    n_leaves = tree.n_leaves
    values = answers.values.reshape(n_leaves, -1)
    slopes = bounds = None
    if answers.slopes is not None and answers.bounds is not None:
        scaled = answers.slopes.reshape(n_leaves, values.shape[1], -1)
        basis = leaves.basis if isinstance(leaves, Linear) else None
        slopes = scaled / rows.scale if basis is None else scaled @ basis.directions
        values = values - slopes @ (rows.centre if basis is None else basis.centre)
        bounds = answers.bounds.reshape(2, n_leaves, -1)
    leaf = tree.leaf_index[arrived]
    reached = np.bincount(leaf, weight, minlength=n_leaves)
    if isinstance(leaves, Mean):  # once more in double precision
        sums = [np.bincount(leaf, weight * t, minlength=n_leaves) for t in leaves.targets.T]
        values = np.stack(sums, axis=1) / np.maximum(reached, 1e-300)[:, None]
    tree = tree.with_leaves(values, node_totals(tree, reached), slopes, bounds)
    if isinstance(leaves, Linear):
        pruned = prune_dead(tree)
        moved = np.full(n_leaves, -1)
        moved[reached > 0] = np.arange(pruned.n_leaves)
    else:
        norms = np.add.reduceat(np.append(np.abs(best.value), 0), best.begin[:-1])
        norms[np.diff(best.begin) == 0] = 0
        if isinstance(split, Axis):
            norms = np.sign(norms)
        pruned, moved = prune_costly(tree, leaves, split.alpha * norms)
    return pruned, moved[leaf]


def rescale_answers(tree: Tree, centre: Array, scale: float) -> Tree:
    """Return the tree with its answers y taken to ``centre + scale · y``."""
    return replace(
        tree,
        values=centre + scale * tree.values,
        slopes=None if tree.slopes is None else scale * tree.slopes,
        bounds=None if tree.bounds is None else centre + scale * tree.bounds,
    )
