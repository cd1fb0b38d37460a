"""S²OCT from the first tree to the proof.

Minimises a `TotalsProblem`. Its objective is never negative, so that a tree with objective 0 is
proven optimal the moment it is found: nearly all the time goes into looking for one.

1. "starts": trees of the heuristic (`totals_heuristic`), which meet the totals. Where they
   have all labels right, linear programs nearly always empty their slabs, without a change of an
   answer; where not, the tree is feasible all the same.
2. "search": trees with objective 0, plane by plane (`totals_search`), and after a fifth of
   the time, if there is no tree at all yet, "feasible" ones, whose labels may err: trees of the
   heuristic with thresholds in gaps as wide as a slab, then ones of the search.
3. "choice": optimal trees abound, and are not equally good. Some more are collected, and the one
   that contradicts the opinion least is taken. Over 25 biased samples of small sets, with 2 to 12
   optimal trees each, accuracy / MCC on the unlabelled rows were .891 / .754 with this choice,
   .888 / .750 with opinion and energy together, .884 / .738 with the tree nearest to the vote of
   all, .882 / .736 with the least Laplacian energy on a graph of neighbours, .880 / .731 with the
   widest margin, .871 / .704 with the first tree; the best of the trees had .896 / .766. The more
   there are to choose from the better: 200 starts and 50 trees instead of 40 and 12 brought .820 /
   .582 instead of .816 / .571 on 75 biased samples of 25 small sets, for one second more. They
   are the best of four settings on these samples, sets that rarely close left out; on the
   benchmark's first sample of 32 sets the gain did not show (.776 both ways).
4. "program": without an optimal tree, and if the program is small, the mixed-integer program takes
   over from the best one. It may prove a bound above 0; on real data it rarely does. Short of a
   proof, a tree that misses the totals by more does not replace one, though its objective be less:
   the totals are known, some labels are not fitted anyway. If the program is tiny it has its turn
   early, too.

Without a proof, one tree with exact totals and empty slabs is about as good as another, and the
least labelled error is often that of noise. `solve_likely` then takes the tree that contradicts the
opinion least; or the heuristic's, whose slabs need not be empty, if that contradicts far less.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np

from silva.optimal.hyperplanes import Hyperplanes, TotalsProblem, score
from silva.optimal.mip_solvers import Effort, Solver, highs
from silva.optimal.oct_models import point, read, s2oct_tight
from silva.optimal.progress import TOLERANCE, Callback, NoTreeError, Progress, Proven
from silva.optimal.totals_heuristic import alternate, alternations, cleared, emptied
from silva.optimal.totals_search import search
from silva.optimal.totals_starts import Opinion

FIRST_SHARE, FEASIBLE_SHARE, SEARCH_SHARE = 0.2, 0.35, 0.7  # of the time, when each stage ends
COLLECTED = 50  # optimal trees to choose from
PATIENCE, MOST_ATTEMPTS = 500_000, 500  # entries to look at, and attempts, for more of them
STARTS, START_TRUST = 200, (1.0, 10.0, 100.0)  # trees of the heuristic, and its trust in labels
START_SHARE = 0.1  # of the time
ENOUGH = 1.05  # times the least contradiction of any tree: better is not looked for
TINY = 150  # pairs of an unlabelled row and a node up to which the program is tried early
MOST_ENTRIES = 300_000  # of a program; beyond, the search has all the time
PROOF_SHARE = 0.95  # of the time of `solve_likely`
FAR = 2.0  # times the contradictions of a heuristic tree are too many for an unproven one


def solve(
    problem: TotalsProblem,
    opinion: Opinion,
    *,
    seconds: float,
    seed: int = 0,
    threads: int = 1,
    verbose: int = 0,
    callback: Callback | None = None,
    solver: Solver = highs,
    by_opinion: bool = False,
) -> Proven:
    """Return the best tree that was found in the time, and what is proven about it.

    Parameters
    ----------
    problem : TotalsProblem
    opinion : Opinion
        Which class an unlabelled row probably has. It guides the search and chooses among optimal
        trees.
    seconds : float
        Wall time.
    seed, threads : int
        The same seed gives the same tree where the clock does not cut a stage short.
    verbose : int
        1 prints a line whenever a tree or a bound is better, 2 the log of the solver as well.
    callback : function, optional
        Called with each `Stage`; a true answer stops, as a keyboard interrupt does.
    solver : Solver
        Of mixed-integer programs.
    by_opinion : bool
        Whether the best tree without a proof is, of those that keep all constraints and meet the
        totals, the one that contradicts the opinion least; else the one of the least objective.

    Raises
    ------
    NoTreeError
        No tree was found in the time.
    """
    now = Progress(lambda tree: _value(problem, tree), seconds, callback, verbose > 0)
    choice = _Choice(now, opinion, problem)
    status = "time limit"
    small = _entries(problem) <= MOST_ENTRIES

    def prove(until: float) -> str:
        if not small or now.closed or now.interrupted or now.elapsed >= until * seconds:
            return "time limit"
        limit = until * seconds - now.elapsed
        return _prove(choice, problem, solver, limit, seed, threads, verbose > 1)

    try:
        _starts(choice, problem, seed)
        if len(problem.unlabelled) * 2**problem.depth <= TINY:
            _search(choice, problem, seed, min(FIRST_SHARE, 1.0 / seconds))
            prove(FEASIBLE_SHARE)
        search_share = SEARCH_SHARE if small else 1.0
        if not choice.good_enough:
            _search(choice, problem, seed + 1, search_share if now.tree else FIRST_SHARE)
        if now.tree is None:
            _feasible(choice, problem, seed + 2)
        if not now.closed:
            _search(choice, problem, seed + 3, search_share)
        status = prove(1.0)
    except KeyboardInterrupt:
        now.interrupted = True
    if by_opinion and not now.closed:
        choice.settle()
    return now.proven(status)


def solve_roughly(
    problem: TotalsProblem,
    opinion: Opinion,
    *,
    seconds: float,
    seed: int = 0,
    verbose: int = 0,
    callback: Callback | None = None,
) -> Proven:
    """Return a heuristic tree for data of any size; parameters as in `solve`.

    Its objective is what the formula says, though rows may lie in slabs; only where none does, and
    the objective is 0, is it a proof.
    """
    now = Progress(lambda tree: score(problem, tree).objective, seconds, callback, verbose > 0)
    found = alternate(problem, opinion, seed, lambda: now.left <= 0)
    now.offer(found.tree)
    with suppress(KeyboardInterrupt):  # it ends here anyway
        now.report("heuristic")
    status = "optimal" if found.score.solved else "heuristic"
    return Proven(found.tree, now.objective, 0.0, status, now.history)


def solve_likely(
    problem: TotalsProblem,
    opinion: Opinion,
    *,
    seconds: float,
    seed: int = 0,
    threads: int = 1,
    verbose: int = 0,
    callback: Callback | None = None,
    solver: Solver = highs,
) -> Proven:
    """Return a proven tree or, without a proof in the time, the likeliest; parameters as `solve`.

    That is, of the trees that `solve` found, the one that contradicts the opinion least, or the
    heuristic tree where it meets the totals as well and contradicts less than half as much.
    """
    began = time.perf_counter()
    found = None
    with suppress(NoTreeError):
        found = solve(
            problem, opinion, seconds=PROOF_SHARE * seconds, seed=seed, threads=threads,
            verbose=verbose, callback=callback, solver=solver, by_opinion=True,
        )  # fmt: skip
        if found.status in ("optimal", "interrupted"):
            return found
    left = max(seconds - (time.perf_counter() - began), 1e-3)
    try:
        rough = solve_roughly(
            problem, opinion, seconds=left, seed=seed, verbose=verbose, callback=callback
        )
    except KeyboardInterrupt:
        if found is None:
            raise
        return replace(found, status="interrupted")
    if found is None or _is_far_likelier(rough.tree, found.tree, problem, opinion):
        return rough
    return found


def _is_far_likelier(
    one: Hyperplanes, other: Hyperplanes, problem: TotalsProblem, opinion: Opinion
) -> bool:
    """Whether a tree meets the totals as well as another and contradicts the opinion far less."""
    missed = [score(problem, tree).total_error for tree in (one, other)]
    cost = [opinion.contradiction(tree.predict(problem.unlabelled)) for tree in (one, other)]
    return missed[0] <= missed[1] and FAR * cost[0] < cost[1]


def _value(problem: TotalsProblem, tree: Hyperplanes) -> float:
    worth = score(problem, tree)
    return worth.objective if worth.feasible else np.inf


def _entries(problem: TotalsProblem) -> int:
    """Return about how many entries the rows of the program have."""
    rows = len(problem.labelled) + len(problem.unlabelled)
    nodes: int = 2**problem.depth - 1
    return 2 * rows * (problem.n_features + 4) * nodes


class _Choice:
    """The trees, of those found, that contradict the opinion least.

    One of the optimal trees, and one of all that keep every constraint and meet the totals.
    """

    def __init__(self, now: Progress, opinion: Opinion, problem: TotalsProblem) -> None:
        self.now, self.opinion, self.problem = now, opinion, problem
        self.cost = np.inf  # of the best optimal tree
        self.likely: Hyperplanes | None = None  # the best of the others
        self.likely_cost = np.inf
        self.possible = np.inf  # of any tree with these totals

    @property
    def good_enough(self) -> bool:
        """Whether a better choice is unlikely."""
        return self.cost <= ENOUGH * self.possible or (self.now.closed and np.isinf(self.cost))

    def contradiction(self, tree: Hyperplanes) -> float:
        """Return how much the answers of a tree contradict the opinion."""
        return self.opinion.contradiction(tree.predict(self.problem.unlabelled))

    def offer_feasible(self, tree: Hyperplanes, name: str) -> None:
        """Take a tree that is not optimal if its objective is the least, and consider it."""
        if self.now.offer(tree):
            self.now.report(name)
        self.consider(tree)

    def consider(self, tree: Hyperplanes) -> None:
        """Remember a tree if it keeps all constraints, meets the totals and contradicts least."""
        worth, cost = score(self.problem, tree), self.contradiction(tree)
        if worth.feasible and worth.total_error == 0 and cost < self.likely_cost:
            self.likely, self.likely_cost = tree, cost

    def settle(self) -> None:
        """Take the tree that contradicts the opinion least, where there is one."""
        if self.likely is not None and self.likely is not self.now.tree:
            self.now.tree, self.now.objective = self.likely, self.now.value(self.likely)
            self.now.report("choice")

    def offer(self, tree: Hyperplanes, name: str) -> None:
        """Take an optimal tree if it is the first or the best."""
        cost = self.contradiction(tree)
        if cost < self.cost:
            known = np.isfinite(self.cost)
            self.cost = cost
            self.now.tree, self.now.objective = tree, self.now.value(tree)
            self.now.report("choice" if known else name)


def _starts(choice: _Choice, problem: TotalsProblem, seed: int) -> None:
    """Try the trees of the heuristic, their slabs emptied."""
    now = choice.now
    for one in alternations(problem, choice.opinion, seed, STARTS, START_TRUST):
        if one.score.total_error == 0:
            choice.possible = min(choice.possible, choice.contradiction(one.tree))
            tree = cleared(problem, one.tree)
            if tree is not None and score(problem, tree).solved:
                choice.offer(tree, "starts")
            elif tree is not None:
                choice.offer_feasible(tree, "starts")
        if now.interrupted or now.elapsed > START_SHARE * now.seconds:
            break


def _search(choice: _Choice, problem: TotalsProblem, seed: int, share: float) -> None:
    """Look for an optimal tree until a share of the time is over, then for a better one.

    How long for a better one is counted in attempts, not in seconds: the same seed, the same trees.
    """
    now, asked, patience = choice.now, 0, _patience(problem)
    most = patience if now.closed else 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        if now.interrupted or now.left <= 0:
            return True
        return asked > most if most else now.elapsed > share * now.seconds

    if now.interrupted or (now.closed and not patience) or stop():
        return
    for number, found in enumerate(search(problem, choice.opinion, seed, stop), start=1):
        choice.offer(found.tree, "search")
        most = most or 2 * asked + patience
        if number == COLLECTED or choice.good_enough or not patience:
            break


def _patience(problem: TotalsProblem) -> int:
    """Return how many attempts to find more optimal trees are worth their time."""
    return min(PATIENCE // max(1, problem.unlabelled.size), MOST_ATTEMPTS)


def _feasible(choice: _Choice, problem: TotalsProblem, seed: int) -> None:
    """Look for a tree with exact totals and empty slabs, then briefly for a better one."""
    now, opinion, asked, enough = choice.now, choice.opinion, 0, 2**62

    def late() -> bool:
        return now.interrupted or now.left <= 0 or now.elapsed > FEASIBLE_SHARE * now.seconds

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > enough or late()

    rough = emptied(problem, opinion, seed, late)
    if rough is not None:
        choice.offer_feasible(rough.tree, "feasible")
        enough = _patience(problem)

    for tree in search(problem, opinion, seed, stop, strict=False):
        if now.tree is None:
            enough = 2 * asked + _patience(problem)
        choice.offer_feasible(tree.tree, "feasible")


def _prove(
    choice: _Choice,
    problem: TotalsProblem,
    solver: Solver,
    seconds: float,
    seed: int,
    threads: int,
    log: bool,
) -> str:
    """Hand the best tree to the solver; return how it ended."""
    now = choice.now
    program = s2oct_tight(problem)
    start = None if now.tree is None else point(problem, program, now.tree)
    effort = Effort(
        seconds=seconds, target=0.1 * TOLERANCE, seed=seed, threads=threads, verbose=log,
        stop=lambda: now.interrupted,
    )  # fmt: skip
    solution = solver(program, effort, start)
    if solution.x is not None:
        tree = read(problem, program, solution.x)
        missed = score(problem, tree).total_error
        if (
            now.tree is None
            or solution.status == "optimal"
            or missed <= score(problem, now.tree).total_error
        ):
            now.offer(tree)
        choice.consider(tree)
    if np.isfinite(solution.bound):
        now.bound = max(now.bound, min(solution.bound, now.objective))
    now.report("program")
    # an optimum whose tree, rounded, is none: nothing is proven
    ends = ("time limit", "interrupted")
    return solution.status if solution.status in ends else "solver failed"
