"""The solvers behind one signature; those that are not installed say so."""

import importlib.util
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from optimal_reference import tiny_problem
from test_oct_models import random_problem, random_tree

from silva.optimal.milp import Builder
from silva.optimal.mip_solvers import Effort, highs, solver_named
from silva.optimal.oct_models import point, s2oct_tight

PACKAGES = {"highs": "highspy", "scip": "pyscipopt", "gurobi": "gurobipy"}
INSTALLED = [name for name, package in PACKAGES.items() if importlib.util.find_spec(package)]
SOLVERS = pytest.mark.parametrize("name", INSTALLED)


def knapsack():
    """Maximise 5a + 4b + 3c with weights 2, 3, 1 in a sack of 5, at least one of b and c."""
    build = Builder()
    x = build.variables("x", 3, 0.0, 1.0, cost=np.array([-5.0, -4.0, -3.0]), integer=True)
    spare = build.variables("spare", 1, 0.0, np.inf)
    weights = np.array([[2.0, 3.0, 1.0]])
    build.rows([(x.reshape(1, -1), weights), (spare, 1.0)], lower=5.0, upper=5.0)
    build.rows([(x[1:].reshape(1, -1), 1.0)], lower=1.0)
    return build.program()


@SOLVERS
def test_a_small_program_is_solved(name):
    solution = solver_named(name)(knapsack(), Effort(seconds=30.0))
    assert solution.status == "optimal"
    assert_allclose(solution.x, [1, 1, 0, 0], atol=1e-6)
    assert_allclose([solution.objective, solution.bound], -9.0)


@SOLVERS
def test_the_impossible_is_reported(name):
    program = knapsack().fixed(np.array([1, 2]), np.zeros(2))
    solution = solver_named(name)(program, Effort(seconds=30.0))
    assert solution.status == "infeasible"
    assert solution.x is None


@SOLVERS
def test_solvers_agree_on_a_tree(name):
    program = s2oct_tight(tiny_problem(4))
    expected = highs(program, Effort(seconds=60.0)).objective
    assert_allclose(
        solver_named(name)(program, Effort(seconds=60.0)).objective, expected, atol=1e-5
    )


@SOLVERS
def test_a_start_counts_and_a_target_stops(name):
    problem = random_problem(2, 2, m=40)
    program = s2oct_tight(problem)
    start = point(problem, program, random_tree(problem))
    value = float(program.cost @ start)
    effort = Effort(seconds=60.0, target=value + 1e-6)
    solution = solver_named(name)(program, effort, start)
    assert solution.objective <= value + 1e-6
    assert solution.status in ("target", "optimal")


@SOLVERS
def test_a_wish_to_stop_is_followed(name):
    problem = random_problem(2, 2, n=30, m=60, p=8)
    program = s2oct_tight(problem)
    start = point(problem, program, random_tree(problem))
    effort = Effort(seconds=60.0, stop=lambda: True)
    solution = solver_named(name)(program, effort, start)
    assert solution.status == "interrupted"
    assert solution.seconds < 20


@SOLVERS
def test_the_number_of_threads_may_change_from_run_to_run(name):
    program = knapsack()
    for threads in (1, 2, 1, 2):
        solution = solver_named(name)(program, Effort(seconds=30.0, threads=threads))
        assert solution.status == "optimal"


@pytest.mark.parametrize(("name", "package"), [("scip", "pyscipopt"), ("gurobi", "gurobipy")])
def test_a_missing_package_is_named(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"solver='{name}' needs the package {package}: pip"):
        solver_named(name)


def test_an_unknown_solver_is_refused():
    with pytest.raises(ValueError, match=r"solver must be one of \['highs', 'scip', 'gurobi'\]"):
        solver_named("cplex")
