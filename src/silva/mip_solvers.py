"""Solvers of mixed-integer programs behind one small function signature.

HiGHS comes with the package. A solver takes a `Program` and returns a `Solution`, whatever stopped
it: proof, time, a target reached, or an interrupt, after which the best point so far is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import highspy
import numpy as np

from silva.milp import Program
from silva.tree import Array


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver found.

    Attributes
    ----------
    status : "optimal", "infeasible", "target", "time limit", "interrupted" or "failed"
    x : array of shape (variables,) or None
        The best point, None where none was found.
    objective : float
        Of that point, infinite without one.
    bound : float
        No point has a smaller objective.
    seconds : float
    """

    status: str
    x: Array | None
    objective: float
    bound: float
    seconds: float


@dataclass(frozen=True)
class Effort:
    """How long and how hard a solver may try.

    Attributes
    ----------
    seconds : float
    target : float
        Stop at a point whose objective is no larger.
    heuristics : float
        Share of the effort that goes into finding points rather than bounds.
    seed, threads : int
    verbose : bool
        Whether the solver's own log is shown.
    stop : function or None
        Asked now and then; the solver ends once it answers True.
    """

    seconds: float = np.inf
    target: float = -np.inf
    heuristics: float = 0.05
    seed: int = 0
    threads: int = 1
    verbose: bool = False
    stop: Callable[[], bool] | None = None


class Solver(Protocol):
    """Solves a program from an optional feasible start."""

    def __call__(self, program: Program, effort: Effort, start: Array | None = None) -> Solution:
        """Return the solution."""
        ...


def highs(program: Program, effort: Effort, start: Array | None = None) -> Solution:
    """Solve with HiGHS."""
    began = time.perf_counter()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", effort.verbose)
    solver.setOptionValue("threads", effort.threads)
    solver.setOptionValue("random_seed", int(effort.seed) % 2**31)
    solver.setOptionValue("time_limit", float(max(effort.seconds, 0.0)))
    solver.setOptionValue("mip_heuristic_effort", effort.heuristics)
    solver.setOptionValue("mip_rel_gap", 0.0)
    if np.isfinite(effort.target):
        solver.setOptionValue("objective_target", effort.target)
    solver.passModel(_highs_model(program))
    if start is not None:
        point = highspy.HighsSolution()
        point.col_value = start.tolist()
        solver.setSolution(point)
    if effort.stop is not None:
        _ask(solver, effort.stop)
    solver.run()
    return _read_highs(solver, program, time.perf_counter() - began)


def _highs_model(program: Program) -> highspy.HighsLp:
    """Return the arrays as HiGHS wants them."""
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = program.rows.shape
    model.col_cost_, model.col_lower_, model.col_upper_ = (
        program.cost, program.lower, program.upper,
    )  # fmt: skip
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_row_, model.a_matrix_.num_col_ = program.rows.shape
    model.a_matrix_.start_ = program.rows.indptr
    model.a_matrix_.index_ = program.rows.indices
    model.a_matrix_.value_ = program.rows.data
    if program.integer.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[whole] for whole in program.integer.astype(int)]
    return model


def _ask(solver: highspy.Highs, stop: Callable[[], bool]) -> None:
    """Let the solver ask whether to stop; a keyboard interrupt within it means yes."""

    def answer(event: highspy.HighsCallbackEvent) -> None:
        try:
            wanted = stop()
        except KeyboardInterrupt:
            wanted = True
        if wanted:
            event.interrupt()

    solver.cbMipInterrupt += answer
    solver.cbSimplexInterrupt += answer


def _read_highs(solver: highspy.Highs, program: Program, seconds: float) -> Solution:
    """Return what HiGHS holds after a run."""
    kinds = highspy.HighsModelStatus
    status = {
        kinds.kOptimal: "optimal",
        kinds.kInfeasible: "infeasible",
        kinds.kUnboundedOrInfeasible: "infeasible",
        kinds.kObjectiveTarget: "target",
        kinds.kTimeLimit: "time limit",
        kinds.kInterrupt: "interrupted",
    }.get(solver.getModelStatus(), "failed")
    info = solver.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    x = np.array(solver.getSolution().col_value) if found else None
    objective = float(info.objective_function_value) if found else np.inf
    if program.integer.any():
        bound = float(info.mip_dual_bound)
    else:
        bound = objective if status == "optimal" else -np.inf
    return Solution(status, x, objective, bound, seconds)
