"""What the searches for proven trees share: the best tree so far, the bound, the clock, the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes

TOLERANCE = 1e-6


class NoTreeError(RuntimeError):
    """Time was too short to find any tree."""


@dataclass(frozen=True)
class Stage:
    """Where things stood at some moment.

    Attributes
    ----------
    number : int
        0 is the first.
    name : str
        What had just brought something: "bound", "starts", "search", "enumeration", "choice",
        "feasible", "program" or "heuristic".
    objective : float
        Of the best tree so far, infinite before there is one.
    bound : float
        No tree has a smaller objective.
    seconds : float
        Since the beginning.
    """

    number: int
    name: str
    objective: float
    bound: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Proven:
    """A tree and what is known about it.

    Attributes
    ----------
    tree : Hyperplanes
        In the units of the problem.
    objective, bound : float
    status : {"optimal", "time limit", "interrupted", "solver failed", "heuristic"}
    history : list of Stage
    """

    tree: Hyperplanes
    objective: float
    bound: float
    status: str
    history: list[Stage]

    @property
    def gap(self) -> float:
        """Part of the objective that is not proven; 1 for a heuristic tree."""
        if self.status == "heuristic":  # its objective may be 0, and rows in slabs all the same
            return 1.0
        return (self.objective - self.bound) / max(self.objective, 1e-300)


Callback = Callable[[Stage], bool | None]


class Progress:
    """The best tree so far, the clock and the wish to stop.

    Parameters
    ----------
    value : function
        Objective of a tree.
    seconds : float
        Time limit.
    callback : function or None
        Called with each `Stage`; a true answer is the wish to stop.
    verbose : bool
        Whether each stage is printed.
    """

    def __init__(
        self,
        value: Callable[[Hyperplanes], float],
        seconds: float,
        callback: Callback | None,
        verbose: bool,
    ) -> None:
        self.value, self.callback, self.verbose = value, callback, verbose
        self.began, self.seconds = time.perf_counter(), seconds
        self.bound = 0.0
        self.tree: Hyperplanes | None = None
        self.objective = np.inf
        self.history: list[Stage] = []
        self.interrupted = False

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds until the time limit."""
        return self.seconds - self.elapsed

    @property
    def closed(self) -> bool:
        """Whether the best tree meets the bound."""
        return self.objective <= self.bound + TOLERANCE

    @property
    def goes_on(self) -> bool:
        """Whether there is something to look for, and time."""
        return not (self.closed or self.interrupted) and self.left > 0

    @property
    def best(self) -> Hyperplanes:
        """The best tree."""
        if self.tree is None:
            raise NoTreeError(
                f"no tree was found in {self.elapsed:.3g} s, and all that is proven is that none "
                f"has an objective below {self.bound:g}: allow more time"
            )
        return self.tree

    def report(self, name: str) -> None:
        """Tell of a better tree or bound."""
        bound = min(self.bound, self.objective)
        stage = Stage(len(self.history), name, self.objective, bound, self.elapsed)
        self.history.append(stage)
        if self.verbose:
            print(
                f"{stage.seconds:8.2f} s  {name:8s} objective {stage.objective:.6g}  "
                f"bound {stage.bound:.6g}"
            )
        if self.callback is not None and self.callback(stage):
            self.interrupted = True

    def offer(self, tree: Hyperplanes) -> bool:
        """Keep a tree if it is better than the best; return whether it is."""
        value = self.value(tree)
        better = value < self.objective - TOLERANCE
        if better:
            self.tree, self.objective = tree, value
        return better

    def proven(self, status: str) -> Proven:
        """Return the best tree, with this status unless there is a proof or a wish to stop."""
        if self.closed:
            status = "optimal"
        elif self.interrupted:
            status = "interrupted"
        bound = min(self.bound, self.objective)
        return Proven(self.best, self.objective, bound, status, self.history)
