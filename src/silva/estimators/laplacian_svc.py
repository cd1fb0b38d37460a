"""Laplacian support vector machines: kernel machines that are smooth over a graph of the rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.linalg import lu_factor, lu_solve
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC
from sklearn.utils import gen_batches
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from silva.copies import row_groups
from silva.estimators.blas_threads import on_one_blas_thread
from silva.estimators.columns import encode, fit_columns
from silva.estimators.parameters import check_choice, check_integer, check_number
from silva.estimators.partial_labels import read_classes
from silva.estimators.problem import check_weights
from silva.graph import affinity_graph, check_affinity, laplacian
from silva.tree import Array

BLOCK = 1024  # columns or rows of the kernel matrix that are worked on at a time


class LaplacianSVC(ClassifierMixin, BaseEstimator):
    """A support vector classifier that also asks for smoothness over unlabelled rows.

    Minimises, over functions f of the kernel's space and an offset (Belkin, Niyogi & Sindhwani
    2006, section 4.3),

        sum over labelled rows of max(0, 1 - y f(x)) + gamma · fᵀ L f + ‖f‖² / (2 C)

    where L is the Laplacian of the affinity graph of all rows: neighbours should get the same
    answer. `gamma` weighs smoothness against the labels as in the LapTAO paper, eq. 1; in Belkin's
    terms γ_A = 1 / (2 l C) and γ_I = gamma (l + u)² / l. Several classes are told apart one
    against the rest. gamma = 0 is scikit-learn's `SVC` on the labelled rows.

    The cost is the factorisation of a dense matrix of rows by rows.

    Parameters
    ----------
    C : float, default=1.0
        Price of the labels' errors, and of roughness, against the size of f.
    gamma : float, default=0.1
        Price of roughness over the graph against the labels' errors.
    rbf_gamma : float or "scale", default="scale"
        The kernel is exp(-rbf_gamma · ‖x - x'‖²), a Gaussian of width sigma for
        rbf_gamma = 1 / (2 sigma²). "scale" is 1 / (features · variance of X).
    n_neighbors : int or "auto", default="auto"
        Neighbours of a row in the graph.
    perplexity : float or "auto", default="auto"
        Their effective number, see `affinity_graph`.
    affinity : sparse matrix of shape (rows, rows), optional
        A ready-made graph: symmetric, non-negative weights.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the rows by rows matrix; float32 halves memory and time.
    max_rows : int, default=30_000
        More different rows than this are refused, with the memory that they would need.
    tol : float, default=1e-3
        Tolerance of the optimiser over the labelled rows (libsvm's).
    max_categories : int, default=30
        Most indicator columns a category of a frame is spread over; rare levels are grouped.
    n_jobs : int, optional
        Threads of the neighbour search.
    random_state : int, RandomState or None
        Seed of an approximate neighbour search.

    Attributes
    ----------
    classes_ : array
    transduction_ : array of shape (rows,)
        The given classes, and the answers for the unlabelled rows.
    expansion_ : array of shape (different rows, functions)
        Weights of the kernel at the rows of `vertices_`; one function for two classes, else one
        for each class.
    intercept_ : array of shape (functions,)
    vertices_ : array or CSR array of shape (different rows, features)
        The training rows, encoded, each once: copies of a row are one vertex of the graph, and
        their labels' weights add up.
    rbf_gamma_ : float
    columns_ : Columns
        How the input columns were encoded.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from silva import LaplacianSVC
    >>> X, y = make_moons(200, noise=0.05, random_state=0)
    >>> partial = np.full(200, -1)
    >>> partial[[0, 1, 2, 3]] = y[[0, 1, 2, 3]]
    >>> LaplacianSVC(C=10, gamma=0.1, rbf_gamma=10).fit(X, partial).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        gamma: float = 0.1,
        rbf_gamma: float | str = "scale",
        n_neighbors: int | str = "auto",
        perplexity: float | str = "auto",
        affinity: Any = None,
        dtype: str = "float64",
        max_rows: int = 30_000,
        tol: float = 1e-3,
        max_categories: int = 30,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.rbf_gamma = rbf_gamma
        self.n_neighbors = n_neighbors
        self.perplexity = perplexity
        self.affinity = affinity
        self.dtype = dtype
        self.max_rows = max_rows
        self.tol = tol
        self.max_categories = max_categories
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---- fitting --------------------------------------------------------------------------------

    @on_one_blas_thread
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit one function, or one for each class.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
            Without missing values.
        y : array of shape (rows,)
            Classes; -1 or missing where a row is unlabelled.
        sample_weight : array of shape (rows,), optional
            Non-negative weights of the labelled rows' errors; rows of weight 0 are left out.

        Returns
        -------
        self
        """
        self._check_parameters()
        X, self.columns_ = fit_columns(self, X, missing="error", max_categories=self.max_categories)
        X = X.astype(self.dtype, copy=False)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        check_weights(weight)
        partial = read_classes(y, X.shape[0])
        self.classes_ = partial.classes
        used = np.flatnonzero(weight > 0)
        # Vertices in an order of their own, so that libsvm's path does not depend on copies.
        groups = row_groups(X[used], 0)
        _, first, vertex = np.unique(groups, return_index=True, return_inverse=True)
        self.vertices_ = X[used[first]]
        self.rbf_gamma_ = self._bandwidth(self.vertices_)
        place, code, mass = _merge_labels(vertex, partial.codes[used], weight[used])
        if not len(place):
            raise ValueError("sample_weight must be positive for some labelled row, got zeros")
        spread, gram = self._solve_graph(place, self._graph(X.shape[0], used, vertex))
        positive = range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))
        parts = [self._fit_binary(gram, code == k, mass) for k in positive]
        self.expansion_ = spread @ np.column_stack([dual for dual, _ in parts])
        self.intercept_ = np.array([intercept for _, intercept in parts])
        self.transduction_ = self._answers(X)
        self.transduction_[partial.labelled] = partial.classes[partial.codes[partial.labelled]]
        return self

    def _check_parameters(self) -> None:
        if check_number("C", self.C) == 0:
            raise ValueError(f"C must be positive, got {self.C!r}")
        check_number("gamma", self.gamma)
        if self.rbf_gamma != "scale" and check_number("rbf_gamma", self.rbf_gamma) == 0:
            raise ValueError(f"rbf_gamma must be positive or 'scale', got {self.rbf_gamma!r}")
        check_choice("dtype", self.dtype, ["float64", "float32"])
        check_integer("max_rows", self.max_rows, 1)
        if check_number("tol", self.tol) == 0:
            raise ValueError(f"tol must be positive, got {self.tol!r}")
        check_integer("max_categories", self.max_categories, 2)
        if self.n_jobs is not None:
            check_integer("n_jobs", self.n_jobs, -(2**31))

    def _bandwidth(self, X: Any) -> float:
        if self.rbf_gamma != "scale":
            return float(self.rbf_gamma)
        if sparse.issparse(X):
            variance = float(X.multiply(X).mean() - X.mean() ** 2)
        else:
            variance = float(X.var(dtype=np.float64))
        return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0

    def _graph(self, n_rows: int, used: Array, vertex: Array) -> sparse.csr_array | None:
        """Return the affinities between vertices; None where they play no part."""
        size = self.vertices_.shape[0]
        given = None if self.affinity is None else check_affinity(self.affinity, n_rows)
        if self.gamma == 0 or len(self.classes_) == 1 or size == 1:
            return None
        if size > self.max_rows:
            need = size**2 * np.dtype(self.dtype).itemsize / 2**30
            raise ValueError(
                f"X has {size} different rows, max_rows is {self.max_rows}: a dense matrix of rows "
                f"by rows in {self.dtype} takes {need:.1f} GiB. Raise max_rows if there is room "
                "for it, fit part of the rows, or use a method for sparse graphs"
            )
        if given is not None:
            member = sparse.csr_array(
                (np.ones(len(used)), vertex, np.arange(len(used) + 1)), shape=(len(used), size)
            )
            return sparse.csr_array(member.T @ given[used][:, used] @ member)
        return affinity_graph(
            self.vertices_,
            self.n_neighbors,
            self.perplexity,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )

    def _solve_graph(self, place: Array, W: sparse.csr_array | None) -> tuple[Array, Array]:
        """Take the graph out of the problem: the paper's representer theorem and dual.

        Returns
        -------
        spread : array of shape (vertices, labelled vertices)
            M = (I + 2 C gamma · L K)⁻¹ Jᵀ, from a label's dual variable to the kernel expansion.
        gram : array of shape (labelled vertices, labelled vertices)
            J K M: with it in place of the kernel, the problem is that of an ordinary SVM.
        """
        V, size, n_labelled = self.vertices_, self.vertices_.shape[0], len(place)
        spread = np.zeros((size, n_labelled), self.dtype, order="F")
        spread[place, np.arange(n_labelled)] = 1.0
        if W is None:
            labelled = V[place]
            return spread, rbf_kernel(labelled, labelled, gamma=self.rbf_gamma_)
        kernel = self._kernel(V)
        labelled_kernel = kernel[place]
        matrix = kernel.T  # the same in the order of the solver, which overwrites it
        L = laplacian(W).astype(self.dtype)
        for part in gen_batches(size, BLOCK):
            matrix[:, part] = 2 * self.C * self.gamma * (L @ matrix[:, part])
        matrix[np.arange(size), np.arange(size)] += 1.0
        factors = lu_factor(matrix, overwrite_a=True, check_finite=False)
        spread = lu_solve(factors, spread, overwrite_b=True, check_finite=False)
        gram = labelled_kernel @ spread
        return spread, (gram + gram.T) / 2

    def _fit_binary(self, gram: Array, positive: Array, mass: Array) -> tuple[Array, float]:
        """Return the signed dual variables of one class against the rest, and the offset."""
        dual = np.zeros(len(positive))
        if positive.all() or not positive.any():  # nothing to tell apart
            return dual, 1.0 if positive.any() else -1.0
        machine = SVC(kernel="precomputed", C=self.C, tol=self.tol)
        machine.fit(gram, positive, sample_weight=mass)
        dual[machine.support_] = machine.dual_coef_[0]
        return dual, float(machine.intercept_[0])

    # ---- predicting -----------------------------------------------------------------------------

    def _kernel(self, X: Any, Y: Any = None) -> Array:
        return np.asarray(rbf_kernel(X, Y, gamma=self.rbf_gamma_))

    def _decide(self, X: Any) -> Array:
        scores = np.empty((X.shape[0], len(self.intercept_)))
        for part in gen_batches(X.shape[0], BLOCK):
            scores[part] = self._kernel(X[part], self.vertices_) @ self.expansion_
        return np.asarray(scores + self.intercept_)

    def _answers(self, X: Any) -> Array:
        scores = self._decide(X)
        best = scores.argmax(axis=1) if len(self.classes_) != 2 else (scores[:, 0] > 0).astype(int)
        return np.asarray(self.classes_[best])

    def _encode(self, X: Any) -> Any:
        check_is_fitted(self)
        return encode(self, X, self.columns_).astype(self.vertices_.dtype, copy=False)

    def decision_function(self, X: Any) -> Array:
        """Return the functions' values: (rows,) for two classes, else (rows, classes)."""
        scores = self._decide(self._encode(X))
        return np.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict(self, X: Any) -> Array:
        """Return the class with the largest value of its function."""
        return self._answers(self._encode(X))


def _merge_labels(vertex: Array, codes: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Return vertex, class and total weight of every different label of a vertex."""
    labelled = codes >= 0
    pairs = np.column_stack([vertex[labelled], codes[labelled]])
    different, member = np.unique(pairs, axis=0, return_inverse=True)
    mass = np.bincount(member.ravel(), weight[labelled], minlength=len(different))
    return different[:, 0], different[:, 1], mass
