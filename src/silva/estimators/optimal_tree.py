"""Trees with the fewest errors, proven: `OptimalTreeClassifier` (OCT-H)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from silva.estimators.columns import fit_columns
from silva.estimators.parameters import check_integer, check_number, check_running
from silva.estimators.partial_labels import check_length, require_complete
from silva.estimators.problem import leaf_numbers
from silva.estimators.tree_reading import TreeReading
from silva.kernels import cpu
from silva.optimal.hyperplanes import Hyperplanes, as_tree
from silva.optimal.mip_solvers import solver_named
from silva.optimal.oct_h import ErrorProblem
from silva.optimal.oct_solve import solve
from silva.optimal.progress import Stage
from silva.tree import Array, Tree

DEEPEST = 10  # a complete tree of more levels has more leaves than a program can hold


class OptimalTreeClassifier(TreeReading, ClassifierMixin, BaseEstimator):
    """The tree of hyperplanes with the fewest errors on the training rows (OCT-H).

    Bertsimas & Dunn (2017) ask for the best of all trees of a depth and write that as a
    mixed-integer program. A search for good trees comes first; whenever it meets a lower bound, as
    a tree without errors does, the proof is complete. Else the program takes over, for which a few
    hundred rows are many: then the tree is the best that was found in `time_limit`, and `bound_`
    says how much better another could be.

    Parameters
    ----------
    max_depth : int, default=2
        Decisions on the longest way down.
    complexity : float, default=0.0
        The paper's alpha: price of a feature used at a node, in units of the errors of the most
        frequent class. 0 asks for the fewest errors alone.
    min_samples_leaf : int, default=1
        Fewest rows in a leaf.
    time_limit : float, default=60.0
        Seconds, of wall time.
    solver : {"highs", "scip", "gurobi"}, default="highs"
        Who solves the program; all but the first need a package of their own.
    n_jobs : int, optional
        Threads of the solver and of predictions.
    random_state : int, RandomState or None
        Seed of the search and the solver. The same seed gives the same tree unless time runs out.
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
    status_ : {"optimal", "time limit", "interrupted", "solver failed"}
        "optimal" is a proof, the others say why there is none.
    objective_ : float
        Errors of the tree in units of those of the most frequent class, plus the price of its
        features.
    bound_ : float
        No tree has a smaller objective.
    gap_ : float
        (objective_ - bound_) / objective_, 0 if proven.
    history_ : list of Stage
        Objective, bound and seconds whenever one of them was better.
    columns_ : Columns
        How the input columns were encoded.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from silva import OptimalTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = OptimalTreeClassifier(random_state=0).fit(X[::4], y[::4])
    >>> model.status_, model.objective_
    ('optimal', 0.0)
    """

    def __init__(
        self,
        *,
        max_depth: int = 2,
        complexity: float = 0.0,
        min_samples_leaf: int = 1,
        time_limit: float = 60.0,
        solver: str = "highs",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callback: Callable[[Stage], bool | None] | None = None,
    ) -> None:
        self.max_depth = max_depth
        self.complexity = complexity
        self.min_samples_leaf = min_samples_leaf
        self.time_limit = time_limit
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

    # ---- fitting --------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Find the tree.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
            Missing values and the categories of frames are encoded as in `TAOTreeClassifier`.
        y : array of shape (rows,)
            Classes; all rows are labelled.

        Returns
        -------
        self
        """
        self._check_parameters()
        solver = solver_named(self.solver)
        X, self.columns_ = fit_columns(self, X)
        codes = self._read_classes(y, X.shape[0])
        rows = np.asarray(X.toarray() if sparse.issparse(X) else X, np.float64)
        low, high = rows.min(axis=0), rows.max(axis=0)
        half = 0.5 * high - 0.5 * low  # of the range, which itself may be too large a number
        factor = np.divide(0.5, half, out=np.zeros(len(half)), where=half > 1e-300)
        unit = np.clip((0.5 * rows - 0.5 * low) * (2.0 * factor), 0.0, 1.0)
        problem = ErrorProblem.pose(
            unit, codes, len(self.classes_), int(self.max_depth), float(self.complexity),
            int(self.min_samples_leaf),
        )  # fmt: skip
        found = solve(
            problem,
            solver,
            seconds=float(self.time_limit),
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            threads=self._n_threads,
            verbose=int(self.verbose),
            callback=self.callback,
        )
        self.status_, self.history_ = found.status, found.history
        self.objective_, self.bound_, self.gap_ = found.objective, found.bound, found.gap
        weights = found.tree.weights * factor
        planes = Hyperplanes(weights, found.tree.thresholds + weights @ low, found.tree.leaf_class)
        self.tree_ = self._with_shares(
            as_tree(planes, rows, np.ones(len(rows)), len(self.classes_)), rows, codes
        )
        return self

    def _check_parameters(self) -> None:
        depth = check_integer("max_depth", self.max_depth, 1)
        if depth > DEEPEST:
            raise ValueError(f"max_depth must be at most {DEEPEST}, got {depth}")
        check_number("complexity", self.complexity)
        check_integer("min_samples_leaf", self.min_samples_leaf, 1)
        if check_number("time_limit", self.time_limit) == 0.0:
            raise ValueError("time_limit must be positive, got 0")
        check_running(self.n_jobs, self.verbose, self.callback)

    def _read_classes(self, y: Any, n_rows: int) -> Array:
        """Check y and return the position of each row's class."""
        y = check_array(
            require_complete(y), ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0
        )
        y = column_or_1d(y, warn=True)
        check_length(y, n_rows)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        return np.asarray(codes)

    def _with_shares(self, tree: Tree, rows: Array, codes: Array) -> Tree:
        """Return the tree with the class shares of the training rows at its leaves."""
        leaf = leaf_numbers(cpu, tree, rows, 1)
        totals = np.zeros((tree.n_leaves, len(self.classes_)))
        np.add.at(totals, (leaf, codes), 1.0)
        return tree.with_leaves(totals / totals.sum(axis=1, keepdims=True))
