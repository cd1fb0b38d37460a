"""Solvers of mixed-integer programs behind one small function signature.

HiGHS comes with the package; SCIP and Gurobi are used where they are installed. A solver takes a
`Program` and returns a `Solution`, whatever stopped it: proof, time, a target reached, or an
interrupt, after which the best point so far is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import highspy
import numpy as np

from silva.optimal.milp import Program
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


def solver_named(name: str) -> Solver:
    """Return "highs", "scip" or "gurobi"; an error says which package is missing."""
    solvers: dict[str, tuple[Solver, str]] = {
        "highs": (highs, "highspy"), "scip": (scip, "pyscipopt"), "gurobi": (gurobi, "gurobipy"),
    }  # fmt: skip
    if name not in solvers:
        raise ValueError(f"solver must be one of {list(solvers)}, got {name!r}")
    solver, package = solvers[name]
    _needed(name, package)
    return solver


def _needed(name: str, package: str) -> Any:
    """Return an optional package."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"solver={name!r} needs the package {package}: pip install {package}"
        ) from error


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
    if effort.threads > 1:  # HiGHS keeps the threads of its first run, and refuses other numbers
        highspy.Highs.resetGlobalScheduler(True)
    solver.run()
    solution = _read_highs(solver, program, time.perf_counter() - began)
    if effort.threads > 1:
        highspy.Highs.resetGlobalScheduler(True)
    return solution


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


def scip(program: Program, effort: Effort, start: Array | None = None) -> Solution:
    """Solve with SCIP, on one thread."""
    began = time.perf_counter()
    package = _needed("scip", "pyscipopt")
    model = package.Model()
    model.hideOutput(not effort.verbose)
    model.setParam("randomization/randomseedshift", int(effort.seed) % 2**31)
    model.setParam("limits/time", float(min(max(effort.seconds, 0.0), 1e20)))
    if np.isfinite(effort.target):
        model.setParam("limits/primal", float(effort.target))
    if effort.heuristics > Effort.heuristics:
        model.setHeuristics(package.SCIP_PARAMSETTING.AGGRESSIVE)
    infinity = model.infinity()
    columns = zip(
        np.clip(program.lower, -infinity, infinity).tolist(),
        np.clip(program.upper, -infinity, infinity).tolist(),
        program.cost.tolist(), program.integer.tolist(),
        strict=True,
    )  # fmt: skip
    x = [
        model.addVar(lb=low, ub=high, obj=cost, vtype="I" if whole else "C")
        for low, high, cost, whole in columns
    ]
    A = program.rows
    for row in range(A.shape[0]):
        part = slice(A.indptr[row], A.indptr[row + 1])
        value = package.quicksum(
            float(c) * x[j] for c, j in zip(A.data[part], A.indices[part], strict=True)
        )
        low, high = float(program.row_lower[row]), float(program.row_upper[row])
        if low == high:
            model.addCons(value == low)
            continue
        if np.isfinite(low):
            model.addCons(value >= low)
        if np.isfinite(high):
            model.addCons(value <= high)
    if start is not None:
        given = model.createSol()
        for variable, value in zip(x, start.tolist(), strict=True):
            model.setSolVal(given, variable, value)
        model.addSol(given)
    if effort.stop is not None:
        model.includeEventhdlr(_scip_watch(package, effort.stop), "stop", "asks whether to stop")
    model.optimize()
    status = {
        "optimal": "optimal",
        "infeasible": "infeasible",
        "inforunbd": "infeasible",
        "primallimit": "target",
        "bestsollimit": "target",
        "timelimit": "time limit",
        "userinterrupt": "interrupted",
    }.get(model.getStatus(), "failed")
    found = model.getNSols() > 0
    best = model.getBestSol() if found else None
    point = np.array([best[variable] for variable in x]) if best is not None else None
    objective = float(model.getObjVal()) if found else np.inf
    bound = float(model.getDualbound())
    return Solution(
        status, point, objective, bound if abs(bound) < infinity else np.inf * np.sign(bound),
        time.perf_counter() - began,
    )  # fmt: skip


def _scip_watch(package: Any, stop: Callable[[], bool]) -> Any:
    """Return an event handler that interrupts SCIP once `stop` says so."""
    solved = package.SCIP_EVENTTYPE.NODESOLVED

    class Watch(package.Eventhdlr):  # type: ignore[misc]
        def eventinit(self) -> None:
            self.model.catchEvent(solved, self)

        def eventexit(self) -> None:
            self.model.dropEvent(solved, self)

        def eventexec(self, event: Any) -> None:
            if stop():
                self.model.interruptSolve()

    return Watch()


def gurobi(program: Program, effort: Effort, start: Array | None = None) -> Solution:
    """Solve with Gurobi, which needs a licence beyond small programs."""
    began = time.perf_counter()
    package = _needed("gurobi", "gurobipy")
    kinds = package.GRB
    settings = {
        "OutputFlag": int(effort.verbose),
        "Seed": int(effort.seed) % 2**31,
        "Threads": effort.threads,
        "TimeLimit": float(min(max(effort.seconds, 0.0), 1e100)),
        "Heuristics": effort.heuristics,
        "MIPGap": 0.0,
    }
    if np.isfinite(effort.target):
        settings["BestObjStop"] = float(effort.target)
    with package.Env(params=settings) as environment, package.Model(env=environment) as model:
        x = model.addMVar(
            len(program.cost), lb=program.lower, ub=program.upper, obj=program.cost,
            vtype=np.where(program.integer, kinds.INTEGER, kinds.CONTINUOUS),
        )  # fmt: skip
        same = program.row_lower == program.row_upper
        least, most = np.isfinite(program.row_lower) & ~same, np.isfinite(program.row_upper) & ~same
        for mask, sense, side in (
            (same, "=", program.row_lower),
            (least, ">", program.row_lower),
            (most, "<", program.row_upper),
        ):
            if mask.any():
                model.addMConstr(program.rows[np.flatnonzero(mask)], x, sense, side[mask])
        if start is not None:
            x.Start = start
        stop = effort.stop
        if stop is None:
            model.optimize()
        else:
            model.optimize(lambda running, where: running.terminate() if stop() else None)
        status = {
            kinds.OPTIMAL: "optimal",
            kinds.INFEASIBLE: "infeasible",
            kinds.INF_OR_UNBD: "infeasible",
            kinds.USER_OBJ_LIMIT: "target",
            kinds.TIME_LIMIT: "time limit",
            kinds.INTERRUPTED: "interrupted",
        }.get(model.Status, "failed")
        found = model.SolCount > 0
        point = np.array(x.X) if found else None
        objective = float(model.ObjVal) if found else np.inf
        bound = np.inf if status == "infeasible" else float(model.ObjBound)
    return Solution(status, point, objective, bound, time.perf_counter() - began)
