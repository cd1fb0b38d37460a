"""OCT-H from the first tree to the proof.

A tree is proven optimal when its objective meets a lower bound. The first bound costs nothing: rows
that no tree can tell apart and that disagree. With few labels a tree that meets it is often found
by `oct_search`, and the proof is complete without a single branching. Where it is not, few
rows in few columns are enumerated (`oct_enumerate`), and else a program takes over from the
best tree, with the time that is left: the paper's (`oct_h`), or a smaller one for two classes
(`oct_compact`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from silva.optimal.milp import Program
from silva.optimal.mip_solvers import Effort, Solver
from silva.optimal.oct_compact import can_be_compact, compact_point, compact_program, read_compact
from silva.optimal.oct_enumerate import can_enumerate, enumerate_trees
from silva.optimal.oct_h import ErrorProblem, oct_h_point, oct_h_program, read_oct_h
from silva.optimal.oct_search import lower_bound, search
from silva.optimal.oct_settle import leaf_tree, settle
from silva.optimal.progress import TOLERANCE, Callback, Progress, Proven
from silva.tree import Array

STARTS, STARTS_A_ROW = 300, 5  # of the search, before the program
FEW_STARTS = 20  # before an enumeration
ENUMERATION_SHARE = 0.7  # of the time until it must have ended
SEARCH_SHARE = 0.4  # of the time, at most
BINARIES_A_SECOND = 50  # what a program needs to get anywhere, else the search has all the time


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
        if can_enumerate(problem):
            _search(now, problem, seed, FEW_STARTS)
            if now.goes_on:
                _enumerate(now, problem)
        binaries = len(problem.X) * 2**problem.depth
        hopeful = binaries <= BINARIES_A_SECOND * seconds
        if now.goes_on:
            enough = min(STARTS, STARTS_A_ROW * len(problem.X))
            _search(now, problem, seed, enough if hopeful else None)
        if now.goes_on and hopeful:
            status = _prove(now, problem, solver, seed, threads, verbose > 1)
    except KeyboardInterrupt:
        now.interrupted = True
    return now.proven(status)


def _search(now: Progress, problem: ErrorProblem, seed: int, starts: int | None) -> None:
    """Look for better trees; None for all the time, else the proof has some left."""
    share = 1.0 if starts is None else SEARCH_SHARE

    def stop() -> bool:
        return now.interrupted or now.elapsed > share * now.seconds

    for tree in search(problem, seed, 2**31 if starts is None else starts, now.bound, stop):
        if now.offer(tree):
            now.report("search")


def _enumerate(now: Progress, problem: ErrorProblem) -> None:
    """Compare all trees."""
    enough = ENUMERATION_SHARE * now.seconds

    def stop() -> bool:
        return now.interrupted or now.elapsed > enough

    tree, bound = enumerate_trees(problem, problem.errors(now.best), stop)
    if tree is not None:
        now.offer(tree)
    now.bound = max(now.bound, min(bound / problem.baseline, now.objective))
    now.report("enumeration")


def _prove(
    now: Progress, problem: ErrorProblem, solver: Solver, seed: int, threads: int, log: bool
) -> str:
    """Hand the best tree to the solver; return how it ended."""
    compact = can_be_compact(problem)
    if compact:
        program = compact_program(problem)
        start = compact_point(problem, program, now.best)
    else:
        program = _whole_losses(oct_h_program(problem))
        start = oct_h_point(problem, program, now.best)
    effort = Effort(
        seconds=now.left, target=now.bound + 0.1 * TOLERANCE, seed=seed, threads=threads,
        verbose=log, stop=lambda: now.interrupted,
    )  # fmt: skip
    solution = solver(program, effort, start)
    if solution.x is not None:
        tree = (read_compact if compact else read_oct_h)(program, solution.x)
        settled = settle(problem, tree)  # farther from the rows, where that costs nothing
        now.offer(settled)
        now.offer(tree)
    bound = solution.objective if solution.status == "optimal" else solution.bound
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
