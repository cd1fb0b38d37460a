"""Trees from few, biased labels and known class totals: `SemiOptimalTreeClassifier` (S²OCT)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state

from silva.estimators.columns import fit_columns
from silva.estimators.parameters import (
    check_choice,
    check_integer,
    check_number,
    check_running,
)
from silva.estimators.partial_labels import PartialClasses, read_classes, read_totals
from silva.estimators.problem import leaf_numbers
from silva.estimators.totals_teacher import opinion_of_forest, opinion_of_labels
from silva.estimators.tree_reading import TreeReading
from silva.kernels import cpu
from silva.optimal.hyperplanes import (
    Hyperplanes,
    TotalsProblem,
    as_tree,
    diameter,
    paper_box,
    paper_depth,
)
from silva.optimal.mip_solvers import solver_named
from silva.optimal.progress import NoTreeError, Proven, Stage
from silva.optimal.totals_solve import solve, solve_likely, solve_roughly
from silva.optimal.totals_starts import Opinion
from silva.tree import Array

METHODS = ("auto", "exact", "heuristic")
SCALINGS = ("paper", "range")
DEEPEST = 10  # as for OptimalTreeClassifier
EXACT_ROWS = 10_000  # up to which "auto" tries for a proof
HALF_RANGE = 100.0  # of a column, in the units of the program


class SemiOptimalTreeClassifier(TreeReading, ClassifierMixin, BaseEstimator):
    """The tree that fits few labels and known class totals, proven optimal where it can be (S²OCT).

    Burgard, Pinheiro & Schmidt (2024) learn from a biased sample of labels and from how many
    unlabelled rows each class has, as a census may say. The errors of the labelled rows plus C
    times the rows by which the totals are missed cannot be negative, so a tree with objective 0 is
    proven optimal; a search for such trees comes first, and a mixed-integer program last. Where the
    best objective is positive, no proof is promised: the tree is then the best that was found.

    Parameters
    ----------
    max_depth : int, optional
        Decisions on the longest way down. None is the paper's: 2 below 1000 rows, else 3; more
        where the classes are more than the leaves.
    C : float, default=1.0
        Price of a row by which the totals are missed, in units of the labelled error. Short of a
        proof, trees that meet the totals come first whatever it is.
    time_limit : float, default=60.0
        Seconds, of wall time.
    method : {"auto", "exact", "heuristic"}, default="auto"
        "exact" looks for a proof, and fails if it finds no tree that keeps all constraints.
        "heuristic" alternates between trees and totals without a proof, in seconds for 100,000
        rows. "auto" looks for a proof up to 10,000 unlabelled rows. Where it finds none in time,
        it takes the tree that fits the forest's opinion best of those that keep all constraints,
        not the one of least objective; or the heuristic tree, if that contradicts less than half
        as many rows.
    scaling : {"range", "paper"}, default="range"
        Units of the program. "paper" moves columns to the middle and shrinks those beyond ±100 to
        that range; "range" brings every column to ±100, so that the bound on the weights, the
        paper's s, holds back none of them. Within 10 s on a busy core, "range" proved 17 of 20
        biased samples of small sets, "paper" 14; on these 14 accuracy was .885 against .882.
    solver : {"highs", "scip", "gurobi"}, default="highs"
        Who solves the program; all but the first need a package of their own.
    n_jobs : int, optional
        Threads.
    random_state : int, RandomState or None
        Seed. The same seed gives the same tree unless time runs out.
    verbose : int, default=0
        1: a line for each better tree or bound; 2: the solver's log as well.
    callback : callable, optional
        Called with a `silva.optimal.progress.Stage` for each better tree or bound; a true answer
        stops, as Ctrl-C does, and the best tree so far is kept.

    Attributes
    ----------
    tree_ : Tree
        The fitted tree, in the user's units.
    classes_ : array
    status_ : {"optimal", "time limit", "interrupted", "solver failed", "heuristic"}
        "optimal" is a proof, the others say why there is none.
    objective_ : float
        Labelled error plus C times the rows by which the totals are missed.
    bound_ : float
        No tree has a smaller objective.
    gap_ : float
        (objective_ - bound_) / objective_, 0 if proven, 1 for a heuristic tree.
    totals_ : dict
        Class to the number of unlabelled rows that the tree gives it.
    transduction_ : array of shape (rows,)
        Class of each training row: as given where it was, else the tree's.
    history_ : list of Stage
        What each stage brought: its name, objective, bound and seconds.
    columns_ : Columns
        How the input columns were encoded.

    Notes
    -----
    Unlabelled rows are marked by -1 or by a missing value (None, NaN, NA). Without any, there are
    no totals to meet: the tree then fits the labels and keeps clear of all rows.

    A forest that knows the totals forms an opinion about the unlabelled rows, which guides the
    search. Optimal trees are many, and the one that contradicts the opinion least is taken.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from silva import SemiOptimalTreeClassifier
    >>> X, species = load_iris(return_X_y=True)
    >>> y = np.where(np.arange(150) % 10 == 0, species, -1)
    >>> model = SemiOptimalTreeClassifier(random_state=0)
    >>> model = model.fit(X, y, class_totals={0: 45, 1: 45, 2: 45})
    >>> model.status_, model.totals_
    ('optimal', {0: 45, 1: 45, 2: 45})
    """

    def __init__(
        self,
        *,
        max_depth: int | None = None,
        C: float = 1.0,
        time_limit: float = 60.0,
        method: str = "auto",
        scaling: str = "range",
        solver: str = "highs",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callback: Callable[[Stage], bool | None] | None = None,
    ) -> None:
        self.max_depth = max_depth
        self.C = C
        self.time_limit = time_limit
        self.method = method
        self.scaling = scaling
        self.solver = solver
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, *, class_totals: Any = None) -> Self:
        """Find the tree.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
            Missing values and the categories of frames are encoded as in `TAOTreeClassifier`.
        y : array of shape (rows,)
            Classes of any type; -1 or missing where unknown.
        class_totals : mapping
            Class to its number, or share, among the unlabelled rows; shares are rounded to whole
            rows, the largest remainders up. If all labelled rows are of one class, one further
            class may be named. Not needed if all rows are labelled.

        Returns
        -------
        self
        """
        self._check_parameters()
        solver_named(self.solver)  # before all else: it may be missing
        X, self.columns_ = fit_columns(self, X)
        partial, totals = self._read_labels(y, X.shape[0], class_totals)
        self.classes_ = partial.classes
        depth = self._depth(len(partial.labelled))
        rows = np.asarray(X.toarray() if sparse.issparse(X) else X, np.float64)
        middle, factor = _units(rows, self.scaling)
        problem = _pose(_scaled(rows, middle, factor), partial, totals, depth, float(self.C))
        found = self._find(problem, bool(partial.labelled.all()))
        self.status_, self.history_ = found.status, found.history
        self.objective_, self.bound_, self.gap_ = found.objective, found.bound, found.gap
        weights = found.tree.weights * factor
        planes = Hyperplanes(
            weights, found.tree.thresholds + weights @ middle, found.tree.leaf_class
        )
        self.tree_ = as_tree(planes, rows, np.ones(len(rows)), len(self.classes_))
        self._keep_labels(X, partial)
        return self

    def _find(self, problem: TotalsProblem, all_labelled: bool) -> Proven:
        """Form an opinion, then look for the tree in the way asked for."""
        if problem.n_classes == 1:
            return _one_leaf(problem)
        began = time.perf_counter()
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        opinion = self._opinion(problem, all_labelled, seed)
        seconds = max(self.time_limit - (time.perf_counter() - began), 1e-3)
        if self.method == "heuristic" or (
            self.method == "auto" and len(problem.unlabelled) > EXACT_ROWS
        ):
            return solve_roughly(
                problem, opinion, seconds=seconds, seed=seed, verbose=int(self.verbose),
                callback=self.callback,
            )  # fmt: skip
        find = solve if self.method == "exact" else solve_likely
        try:
            return find(
                problem, opinion, seconds=seconds, seed=seed, threads=self._n_threads,
                verbose=int(self.verbose), callback=self.callback, solver=solver_named(self.solver),
            )  # fmt: skip
        except NoTreeError as error:
            raise NoTreeError(
                f"time_limit={self.time_limit:g} was too short: {error}, or use method='heuristic'"
            ) from None

    def _opinion(self, problem: TotalsProblem, all_labelled: bool, seed: int) -> Opinion:
        """Return what is thought of the unlabelled rows; of all rows, where all have labels."""
        if all_labelled:
            return opinion_of_labels(problem.classes, problem.n_classes)
        return opinion_of_forest(
            problem.labelled, problem.classes, problem.unlabelled, problem.totals, seed,
            self._n_threads,
        )  # fmt: skip

    # ---- what users bring -----------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if self.max_depth is not None and check_integer("max_depth", self.max_depth, 1) > DEEPEST:
            raise ValueError(f"max_depth must be at most {DEEPEST}, got {self.max_depth}")
        for name in ("C", "time_limit"):
            if check_number(name, getattr(self, name)) == 0.0:
                raise ValueError(f"{name} must be positive, got 0")
        check_choice("method", self.method, METHODS)
        check_choice("scaling", self.scaling, SCALINGS)
        check_running(self.n_jobs, self.verbose, self.callback)

    def _depth(self, n_rows: int) -> int:
        """Return the depth asked for, or the paper's; there must be a leaf for every class."""
        least = max(1, int(np.ceil(np.log2(len(self.classes_)))))
        if self.max_depth is None:
            return max(paper_depth(n_rows), least)
        if self.max_depth < least:
            raise ValueError(
                f"max_depth must be at least {least} to have a leaf for each of the "
                f"{len(self.classes_)} classes, got {self.max_depth}"
            )
        return int(self.max_depth)

    def _read_labels(self, y: Any, n_rows: int, class_totals: Any) -> tuple[PartialClasses, Array]:
        """Read y and the totals; a class that only the totals name joins in if it may."""
        with warnings.catch_warnings():
            if class_totals is not None:
                warnings.filterwarnings("ignore", "y has labelled rows of one class only")
            partial = read_classes(y, n_rows)
        if class_totals is None:
            if not partial.labelled.all():
                raise ValueError(
                    f"class_totals must be given: {(~partial.labelled).sum()} rows of y are "
                    "unlabelled, and the method needs to know how many of them are of each class"
                )
            return partial, np.zeros(len(partial.classes), int)
        if len(partial.classes) == 1 and hasattr(class_totals, "keys"):
            partial = _with_unlabelled_class(partial, dict(class_totals))
        exact = read_totals(class_totals, partial, np.ones(n_rows))
        return partial, whole_totals(exact)

    def _keep_labels(self, X: Any, partial: PartialClasses) -> None:
        """Keep what the tree makes of the training rows."""
        leaf = leaf_numbers(cpu, self.tree_, X, self._n_threads)
        code = self.tree_.values.argmax(axis=1)[leaf]
        counts = np.bincount(code[~partial.labelled], minlength=len(self.classes_))
        self.totals_ = dict(zip(self.classes_.tolist(), counts.tolist(), strict=True))
        self.transduction_ = self.classes_[np.where(partial.labelled, partial.codes, code)]


def _one_leaf(problem: TotalsProblem) -> Proven:
    """Return the tree of a single class, which cannot err."""
    nodes = 2**problem.depth - 1
    weights = np.zeros((nodes, problem.n_features))
    tree = Hyperplanes(weights, np.ones(nodes), np.zeros(nodes + 1, int))
    return Proven(tree, 0.0, 0.0, "optimal", [Stage(0, "search", 0.0, 0.0, 0.0)])


def whole_totals(totals: Array) -> Array:
    """Return whole numbers with the same sum: the largest remainders are rounded up."""
    whole = np.floor(totals + 1e-9).astype(int)
    missing = round(float(totals.sum())) - int(whole.sum())
    whole[np.argsort(whole - totals, kind="stable")[:missing]] += 1
    return np.asarray(whole)


def _with_unlabelled_class(partial: PartialClasses, totals: dict[Any, Any]) -> PartialClasses:
    """Return one more class, the only one that the totals name and the labels do not have."""
    known = partial.classes.tolist()
    others = [name for name in totals if name not in known]
    if not others:
        return partial
    if len(others) > 1:
        raise ValueError(
            f"class_totals names {len(others)} classes without a labelled row, {others[0]!r} and "
            f"{others[1]!r} among them: nothing tells them apart; label a row of all but one"
        )
    as_text = partial.classes.dtype == object
    classes = np.unique(np.array([*known, others[0]]))
    if not as_text and classes.dtype.kind != partial.classes.dtype.kind:
        raise ValueError(
            f"class_totals names {others[0]!r}, but the classes of y are like {known[0]!r}: write "
            "both in the same way"
        )
    code = int(np.flatnonzero(classes == known[0])[0])
    return PartialClasses(
        classes.astype(object) if as_text else classes,
        np.where(partial.labelled, code, -1).astype(np.int32),
        partial.labelled,
    )


def _units(rows: Array, scaling: str) -> tuple[Array, Array]:
    """Return the middle of each column, and the factor to the units of the program."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    half = 0.5 * high - 0.5 * low  # of the range, which itself may be too large a number
    most = HALF_RANGE if scaling == "paper" else 0.0
    factor = np.divide(HALF_RANGE, half, out=np.ones(len(half)), where=half > max(most, 1e-300))
    return 0.5 * low + 0.5 * high, factor


def _scaled(rows: Array, middle: Array, factor: Array) -> Array:
    return np.asarray((rows - middle) * factor)


def _pose(
    Z: Array, partial: PartialClasses, totals: Array, depth: int, penalty: float
) -> TotalsProblem:
    """Return the problem in the units of the program."""
    labelled = partial.labelled
    classes = partial.codes[labelled].astype(int)
    unlabelled = Z[~labelled]
    if labelled.all():  # what the plain problem leaves open: slabs are kept clear of the rows
        unlabelled, totals = Z, np.bincount(classes, minlength=len(partial.classes))
    return TotalsProblem(Z[labelled], classes, unlabelled, totals, depth, _box(Z), penalty)


def _box(Z: Array) -> float:
    """Return the paper's s, by the diameter of the rows only where it depends on that."""
    rows, features = Z.shape
    out = Z[np.abs(Z).sum(axis=1).argmax()]
    least = float(np.linalg.norm(Z - out, axis=1).max())
    box = paper_box(rows, features, least)
    return (
        box if box == paper_box(rows, features, np.inf) else paper_box(rows, features, diameter(Z))
    )
