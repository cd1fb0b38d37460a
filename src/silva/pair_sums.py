"""Sums of a kernel over all pairs of points of a map, with their gradients.

    sum over n, m of mass_n·mass_m·k(z_n - z_m),    k(z) = exp(-|z|²)  or  1 / (1 + |z|²)

The exact sum has N² terms. The other one is the smooth particle mesh of molecular dynamics
(Essmann et al. 1995): the masses of the points are spread over a grid by cubic B-splines, convolved
with the kernel by a Fourier transform and read off by the same splines, which costs a few
operations a point. Value and gradient belong to the same smooth function, so a line search finds
what it expects. Interpolation methods for t-SNE (Linderman et al. 2019) differ in that they
convolve four charges for an approximate gradient, without a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import fft

from silva import _core
from silva.tree import Array

CORE_AXES, WIDEST = 3, 2e4  # of a map, at most, for the compiled sum in single precision
BLOCK = 2**21  # pairs at a time
LINES = 4  # of the grid that a point is spread over along an axis: cubic splines
SPACING = 0.4  # of the grid; both kernels have a width of about 1
MOST_CELLS = {1: 2**18, 2: 1500}  # along an axis: a wider map has a coarser grid
PAIR_COST = {False: 0.5, True: 0.25}  # nanoseconds: Gaussian, Cauchy
CELL_COST, POINT_COST = 30.0, 600.0  # of a grid, in nanoseconds


@dataclass(frozen=True)
class Kernel:
    """A function of the squared distance that is 1 at 0, its derivative, and which one it is."""

    is_cauchy: bool
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]


def _gaussian_slope(square: Array) -> Array:
    return np.asarray(-np.exp(-square))


def _gaussian(square: Array) -> Array:
    return np.asarray(np.exp(-square))


def _cauchy(square: Array) -> Array:
    return np.asarray(1 / (1 + square))


def _cauchy_slope(square: Array) -> Array:
    return np.asarray(-1 / (1 + square) ** 2)


GAUSSIAN = Kernel(False, _gaussian, _gaussian_slope)
CAUCHY = Kernel(True, _cauchy, _cauchy_slope)


def exact_pair_sum(
    kernel: Kernel, Z: Array, mass: Array, n_threads: int = 1
) -> tuple[float, Array]:
    """Return sum over n, m of mass_n·mass_m·k(z_n - z_m) and its gradient over Z."""
    if Z.shape[1] <= CORE_AXES and float(np.ptp(Z, axis=0).max()) < WIDEST:
        Z = np.ascontiguousarray(Z, dtype=np.float64)
        total, gradient = _core.pair_sum(Z, mass, kernel.is_cauchy, n_threads)
        return float(total), gradient
    return plain_pair_sum(kernel, Z, mass)


def plain_pair_sum(kernel: Kernel, Z: Array, mass: Array) -> tuple[float, Array]:
    """Return the same sum for any number of axes, in plain NumPy and double precision."""
    n = len(Z)
    norms = (Z**2).sum(axis=1)
    total, gradient = 0.0, np.empty_like(Z)
    step = max(1, BLOCK // n)
    for begin in range(0, n, step):
        part = slice(begin, begin + step)
        square = norms[part, None] + norms - 2 * (Z[part] @ Z.T)
        np.maximum(square, 0, out=square)
        total += float(mass[part] @ (kernel.value(square) @ mass))
        pull = kernel.slope(square) * mass
        force = pull.sum(axis=1)[:, None] * Z[part] - pull @ Z
        gradient[part] = 4 * mass[part, None] * force
    return total, gradient


class GridPairSum:
    """The same sum on a grid; the spectrum of the kernel is kept while the grid stays as it is.

    Parameters
    ----------
    kernel : Kernel
    spacing : float
        Distance of the grid's lines.
    n_threads : int
        Of the Fourier transforms; the result is the same for any number.
    """

    def __init__(self, kernel: Kernel, spacing: float = SPACING, n_threads: int = 1) -> None:
        self._kernel, self._spacing, self._n_threads = kernel, spacing, n_threads
        self._grid: tuple[float, tuple[int, ...]] | None = None
        self._spectrum: Array
        self._own: Array

    def plan(self, Z: Array) -> tuple[float, tuple[int, ...]]:
        """Return spacing and shape of the grid, padded to twice the map."""
        width = np.ptp(Z, axis=0)
        spacing = max(self._spacing, float(width.max()) / MOST_CELLS[Z.shape[1]])
        cells = np.ceil(width / spacing).astype(int) + LINES
        sixteens = [-(-int(count) // 16) * 16 for count in cells]  # the same grid for a while
        return spacing, tuple(int(fft.next_fast_len(2 * size, real=True)) for size in sixteens)

    def __call__(self, Z: Array, mass: Array) -> tuple[float, Array]:
        """Return the sum and its gradient over Z."""
        n, axes = Z.shape
        low = Z.min(axis=0)
        spacing, shape = self.plan(Z)
        if self._grid != (spacing, shape):
            self._spectrum, self._own = self._transform_kernel(spacing, shape)
            self._grid = (spacing, shape)
        position = (Z - low) / spacing
        index = position.astype(np.int64)
        weight, slope = _splines(position - index)
        line = index[:, None, :] + np.arange(LINES)[:, None]  # those around a point
        where, spread = line[:, :, 0], weight[:, :, 0]
        slopes = [slope[:, :, 0]]
        if axes == 2:
            where = (where[:, :, None] * shape[1] + line[:, None, :, 1]).reshape(n, -1)
            spread = _outer(weight[:, :, 0], weight[:, :, 1])
            slopes = [
                _outer(slope[:, :, 0], weight[:, :, 1]), _outer(weight[:, :, 0], slope[:, :, 1]),
            ]  # fmt: skip
        density = np.bincount(
            where.ravel(), (spread * mass[:, None]).ravel(), minlength=int(np.prod(shape))
        )
        waves = fft.rfftn(density.reshape(shape), workers=self._n_threads)
        waves *= self._spectrum
        potential = fft.irfftn(waves, s=shape, workers=self._n_threads).ravel()[where]
        # What a point would do to itself is taken out: the exact sum has 1 there.
        potential -= mass[:, None] * (spread @ self._own)
        value = mass @ (np.einsum("na,na->n", spread, potential) + mass)
        gradient = np.stack([np.einsum("na,na->n", s, potential) for s in slopes], axis=1)
        gradient *= (2 / spacing) * mass[:, None]
        return float(value), gradient

    def _transform_kernel(self, spacing: float, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Spectrum of the kernel, divided by that of the splines that spread and read.

        Also what comes of it between the lines around one point, a matrix.
        """
        distances = [np.minimum(np.arange(s), s - np.arange(s)) * spacing for s in shape]
        square = distances[0] ** 2
        if len(shape) == 2:
            square = square[:, None] + distances[1] ** 2
        spectrum = fft.rfftn(self._kernel.value(square), workers=self._n_threads).real
        for axis, size in enumerate(shape):
            wave = 2 * np.pi * np.arange(spectrum.shape[axis]) / size
            spline = ((4 + 2 * np.cos(wave)) / 6) ** 2
            spectrum /= spline.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        smooth = fft.irfftn(spectrum, s=shape, workers=self._n_threads)
        gap = np.arange(LINES)[:, None] - np.arange(LINES)
        own = smooth[gap] if len(shape) == 1 else smooth[gap[:, None, :, None], gap[None, :, None]]
        return np.ascontiguousarray(spectrum), own.reshape(LINES ** len(shape), -1)


def _outer(one: Array, other: Array) -> Array:
    return np.asarray((one[:, :, None] * other[:, None, :]).reshape(len(one), -1))


def _splines(t: Array) -> tuple[Array, Array]:
    """Weights, and their derivatives, of the `LINES` lines around t in [0, 1): (n, LINES, axes).

    By the recursion of B-splines, from the hat function up.
    """
    weight = np.stack([1 - t, t], axis=1)
    for degree in range(2, LINES):
        slope = np.zeros((len(t), degree + 1, t.shape[1]))
        slope[:, 1:] += weight
        slope[:, :-1] -= weight
        at = t[:, None, :] + np.arange(degree, -1, -1)[:, None]  # from the spline's own beginning
        higher = np.zeros_like(slope)
        higher[:, :-1] += (degree + 1 - at[:, :-1]) * weight
        higher[:, 1:] += at[:, 1:] * weight
        weight = higher / degree
    return weight, slope


@dataclass(frozen=True, eq=False)
class PairSum:
    """Sum of a kernel over all pairs of different rows: exact for few points, on a grid for many.

    Attributes
    ----------
    kernel : Kernel
    mass : float64 array of shape (points,)
        Rows that stand on each point.
    grid : GridPairSum or None
        None takes every sum exactly.
    """

    kernel: Kernel
    mass: Array
    grid: GridPairSum | None
    n_threads: int = 1

    def __call__(self, Z: Array) -> tuple[float, Array]:
        """Return the sum and its gradient over Z."""
        if self.grid is not None and self._grid_pays(self.grid, Z):
            total, gradient = self.grid(Z, self.mass)
        else:
            total, gradient = exact_pair_sum(self.kernel, Z, self.mass, self.n_threads)
        return total - float(self.mass.sum()), gradient  # a row is no pair with itself

    def _grid_pays(self, grid: GridPairSum, Z: Array) -> bool:
        """Whether the grid is expected to be faster; the same for any number of threads."""
        n, axes = Z.shape
        if axes not in MOST_CELLS or not np.isfinite(Z).all():
            return False
        cost = CELL_COST * float(np.prod(grid.plan(Z)[1])) + POINT_COST * n
        return bool(cost < PAIR_COST[self.kernel.is_cauchy] * float(n) ** 2)


def pair_sum(kernel: Kernel, mass: Array, exact: bool, n_threads: int) -> PairSum:
    """Return the sum of a kernel over all pairs as a function of the positions."""
    grid = None if exact else GridPairSum(kernel, n_threads=n_threads)
    return PairSum(kernel, mass, grid, n_threads)
