"""Kernel ridge regression whose few settings come from leave-one-out errors in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import linalg, sparse

from silva.kernels import Matrix
from silva.tree import Array

WIDTHS = (0.3, 1.0, 3.0, 10.0)  # squared, in units of the median squared distance
LINEAR = (0.0, 0.1, 1.0)
RIDGES = (1e-3, 1e-2, 0.05, 0.2, 1.0)
SEARCH_ROWS = 500  # most rows that settings are sought on
CENTRES, ROWS = 2000, 10_000  # most rows that functions are made of, and that are learned from
JITTER = 1e-9  # of the kernel between centres, so that its factor exists
BLOCK = 2_000_000  # entries of a kernel matrix at a time


@dataclass(frozen=True)
class Settings:
    """Squared width of the kernel, share of its linear part, and ridge."""

    width: float
    linear: float
    ridge: float


@dataclass(frozen=True, eq=False)
class KernelRidge:
    """A fitted function, sum over centres j of k(x, x_j) dual_j, clipped to the range seen.

    Attributes
    ----------
    rows : matrix
        The centres.
    dual : array of shape (centres, outputs)
    settings : Settings
    centre, unit : arrays of shape (outputs,)
        Of the targets.
    low, high : arrays of shape (outputs,)
    """

    rows: Matrix
    dual: Array
    settings: Settings
    centre: Array
    unit: Array
    low: Array
    high: Array

    def predict(self, X: Matrix) -> Array:
        """Return an array of shape (rows, outputs)."""
        size = max(BLOCK // self.dual.shape[0], 1)
        parts = [
            kernel(X[begin : begin + size], self.rows, self.settings) @ self.dual
            for begin in range(0, X.shape[0], size)
        ]
        answers = np.concatenate(parts) * self.unit + self.centre
        return np.asarray(np.clip(answers, self.low, self.high))


def fit_kernel_ridge(X: Matrix, y: Array, weight: Array, seed: int) -> KernelRidge:
    """Fit with the settings of the least leave-one-out error.

    Minimises ``sum_i weight_i |y_i - f(x_i)|² + ridge·|f|²`` over the functions of the kernel
    ``matern(|x - x'|) + linear·x·x'/columns + 1``: smooth near the rows, a plane far from them.
    Where there are many rows, functions are made of some of them only (Nyström's approximation:
    Williams and Seeger 2001).

    Parameters
    ----------
    X : matrix
        Rows in units in which distances mean something.
    y : array of shape (rows, outputs)
    weight : array of shape (rows,)
        Positive.
    seed : int
        Which rows are taken where there are too many.
    """
    order = np.random.default_rng(seed).permutation(X.shape[0])
    few, centres, rows = (np.sort(order[:most]) for most in (SEARCH_ROWS, CENTRES, ROWS))
    share = weight / weight.sum()
    centre = share @ y
    unit = np.sqrt(share @ (y - centre) ** 2)
    unit[unit == 0] = 1.0
    scaled, weight = (y - centre) / unit, weight / weight.mean()
    settings = choose_settings(X[few], scaled[few], weight[few])
    if len(rows) == len(centres):
        K = kernel(X[rows], X[rows], settings)
        K[np.diag_indices(len(rows))] += settings.ridge / weight[rows]
        dual = linalg.solve(K, scaled[rows], assume_a="pos", overwrite_a=True)
    else:
        dual = _fit_centres(X[rows], X[centres], scaled[rows], weight[rows], settings)
    return KernelRidge(
        X[centres], dual, settings, centre, unit, y.min(axis=0), y.max(axis=0)
    )  # fmt: skip


def _fit_centres(X: Matrix, centres: Matrix, y: Array, weight: Array, settings: Settings) -> Array:
    """Return the coefficients of the centres that minimise the same objective.

    With K the kernel between centres and C that between rows and centres they are
    (Cᵀ diag(weight) C + ridge·K)⁻¹ Cᵀ diag(weight) y. Rows are gone through in blocks.
    """
    K = kernel(centres, centres, settings)
    K[np.diag_indices(len(K))] *= 1 + JITTER
    normal, right = settings.ridge * K, np.zeros((len(K), y.shape[1]))
    size = max(BLOCK // len(K), 1)
    for begin in range(0, X.shape[0], size):
        block = slice(begin, begin + size)
        C = kernel(X[block], centres, settings)
        weighted = C * weight[block, None]
        normal += weighted.T @ C
        right += weighted.T @ y[block]
    # In terms of K = RᵀR the matrix is the identity times the ridge plus something: well posed.
    R = linalg.cholesky(K)
    half = linalg.solve_triangular(R, normal, trans="T")
    inner = linalg.solve_triangular(R, half.T, trans="T")
    turned = linalg.solve(inner, linalg.solve_triangular(R, right, trans="T"), assume_a="pos")
    return np.asarray(linalg.solve_triangular(R, turned))


def choose_settings(X: Matrix, y: Array, weight: Array) -> Settings:
    """Return the settings of the least leave-one-out error.

    With G = (K + ridge·diag(1/weight))⁻¹ the error at row i is (G y)_i / G_ii (Rasmussen and
    Williams 2006, eq. 5.12). One eigendecomposition of the weighted kernel serves all ridges.
    """
    distance = squared_distances(X, X)
    apart = distance[distance > 1e-9 * distance.max()]  # not a row from itself, but for rounding
    median = float(np.median(apart)) if apart.size else 1.0
    root = np.sqrt(weight)
    best, least = Settings(median, 0.0, 1.0), np.inf
    for width, linear in product(WIDTHS, LINEAR):
        shape = Settings(width * median, linear, 0.0)
        K = _from_distances(distance, X, X, shape) * root * root[:, None]
        for ridge, error in _leave_one_out(K, y, root):
            if error < least:
                best, least = Settings(shape.width, linear, ridge), error
    return best


def kernel(X: Matrix, rows: Matrix, settings: Settings) -> Array:
    """Return the kernel between rows of two matrices."""
    return _from_distances(squared_distances(X, rows), X, rows, settings)


def squared_distances(X: Matrix, rows: Matrix) -> Array:
    """Return the squared distance of each row of X to each of `rows`."""
    squares = _dense(X @ rows.T)
    squares *= -2
    squares += _norms(X)[:, None]
    squares += _norms(rows)
    return np.maximum(squares, 0.0, out=squares)


def _from_distances(distance: Array, X: Matrix, rows: Matrix, settings: Settings) -> Array:
    """Matérn kernel of smoothness 3/2, with a linear part and a constant."""
    scaled = np.sqrt(3 * distance / settings.width)
    K = (1 + scaled) * np.exp(-scaled) + 1
    if settings.linear:
        K += settings.linear / X.shape[1] * _dense(X @ rows.T)
    return np.asarray(K)


def _leave_one_out(K: Array, y: Array, root: Array) -> Iterator[tuple[float, float]]:
    """Yield each ridge with its weighted mean squared error, K and its inverse weighted by root."""
    value, vector = np.linalg.eigh(K)
    turned = vector.T @ (y * root[:, None])
    for ridge in RIDGES:
        inverse = 1 / (np.maximum(value, 0.0) + ridge)
        dual = vector @ (inverse[:, None] * turned)
        diagonal = (vector**2) @ inverse
        # G = root·(inverse)·root: one root cancels in the quotient, the other weighs the square
        yield ridge, float(np.mean((dual / diagonal[:, None]) ** 2))


def _norms(X: Matrix) -> Array:
    if sparse.issparse(X):
        return np.asarray(X.power(2).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, X))


def _dense(product: Matrix) -> Array:
    return np.asarray(product.toarray() if sparse.issparse(product) else product, dtype=np.float64)
