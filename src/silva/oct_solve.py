"""OCT-H from the first tree to the proof.

A tree is proven optimal when its objective meets a lower bound. The first bound costs nothing: rows
that no tree can tell apart and that disagree. With few labels a tree that meets it is often found
by `silva.oct_search`, and the proof is complete without a single branching. Where it is not, the
program of `silva.oct_h` takes over from the best tree, with the time that is left.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from silva.milp import Program
from silva.mip_solvers import Effort, Solver
from silva.oct_h import ErrorProblem, oct_h_point, oct_h_program, read_oct_h
from silva.oct_search import leaf_tree, lower_bound, search, settle
from silva.progress import TOLERANCE, Callback, Progress, Proven
from silva.tree import Array

STARTS, STARTS_A_ROW = 200, 5  # of the search, before the program
SEARCH_SHARE = 0.4  # of the time, at most
MOST_ENTRIES = 50_000_000  # of a program; beyond, the search has all the time


def solve(
    problem: ErrorProblem,
    solver: Solver,
    *,
    seconds: float,
    seed: int = 0,
    threads: int = 1,
    verbose: int = 0,
    callback: Callback | None = None,
) -> Proven:
    """Return the best tree that was found in the time, and what is proven about it.

    Parameters
    ----------
    problem : ErrorProblem
    solver : Solver
        Of mixed-integer programs.
    seconds : float
        Wall time.
    seed, threads : int
    verbose : int
        1 prints a line whenever a tree or a bound is better, 2 the log of the solver as well.
    callback : function, optional
        Called with each `Stage`; a true answer stops, as a keyboard interrupt does.
    """
    now = Progress(problem.objective, seconds, callback, verbose > 0)
    now.offer(leaf_tree(problem))
    status = "time limit"
    try:
        now.bound = lower_bound(problem)
        now.report("bound")
        whole = len(problem.X) * 2**problem.depth * problem.depth * problem.X.shape[1]
        small = whole <= MOST_ENTRIES
        _search(now, problem, seed, small)
        if small and not (now.closed or now.interrupted) and now.left > 0:
            status = _prove(now, problem, solver, seed, threads, verbose > 1)
    except KeyboardInterrupt:
        now.interrupted = True
    return now.proven(status)


def _search(now: Progress, problem: ErrorProblem, seed: int, then_prove: bool) -> None:
    """Look for better trees, as long as they are likely and the proof has time left."""
    share, starts = 1.0, 2**31
    if then_prove:
        share, starts = SEARCH_SHARE, min(STARTS, STARTS_A_ROW * len(problem.X))

    def stop() -> bool:
        return now.interrupted or now.elapsed > share * now.seconds

    for tree in search(problem, seed, starts, now.bound, stop):
        now.offer(tree)
        now.report("search")


def _prove(
    now: Progress, problem: ErrorProblem, solver: Solver, seed: int, threads: int, log: bool
) -> str:
    """Hand the best tree to the solver; return how it ended."""
    program = _whole_losses(oct_h_program(problem))
    effort = Effort(
        seconds=now.left, target=now.bound + 0.1 * TOLERANCE, seed=seed, threads=threads,
        verbose=log, stop=lambda: now.interrupted,
    )  # fmt: skip
    solution = solver(program, effort, oct_h_point(problem, program, now.best))
    if solution.x is not None:
        tree = read_oct_h(program, solution.x)
        settled = settle(problem, tree)  # farther from the rows, where that costs nothing
        now.offer(settled)
        now.offer(tree)
    bound = now.objective if solution.status == "optimal" else solution.bound
    now.bound = max(now.bound, min(_rounded(problem, bound), now.objective))
    now.report("program")
    return {"failed": "solver failed", "infeasible": "solver failed"}.get(
        solution.status, solution.status
    )


def _whole_losses(program: Program) -> Program:
    """Tell the solver that the losses of the leaves count rows."""
    integer: Array = program.integer.copy()
    integer[program.blocks["L"]] = True
    return replace(program, integer=integer)


def _rounded(problem: ErrorProblem, bound: float) -> float:
    """Return the next objective that is possible: without a price of features, whole errors."""
    if problem.complexity > 0 or not np.isfinite(bound):
        return bound
    return float(np.ceil(bound * problem.baseline - TOLERANCE)) / problem.baseline
