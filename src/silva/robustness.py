"""How far a row may move before the answer of a smoothed tree can change.

Given class probabilities p(x) = E f(x + e) with e normal, of standard deviation sigma in every
column and independent between them, and f(z) the value of the leaf that z falls into: class shares,
that is non-negative numbers that sum to one (a sum fixed by known totals may leave that range;
then nothing is certified). A kernel tree with a Gaussian kernel is such an average.

Then Phi⁻¹(p_c) changes by at most ||d|| / sigma when x moves by d (Cohen et al., ICML 2019, Theorem
1, for leaves of one class; Salman et al., NeurIPS 2019, for shares). While p_c > 1/2 no other class
can lead, so the answer c stands within

    ||d||_2 < sigma · Phi⁻¹(p_c),

the radius of the kernel tree paper (section 3.3). It is measured in the columns that the kernel
sees: where these were scaled, in scaled columns.

Another kernel than the true Gaussian. Trees are grown with a histogram, and memberships are sparse
only if the kernel ends somewhere, but the theorem needs the whole Gaussian. If the kernel of one
column is at total variation distance t from it (the largest difference in the chance of any
event), those of q columns together are at most 1 - (1 - t)^q apart, and so is p_c from its true
value. Taking this off p_c first leaves a valid radius. Only columns that the tree tests count. A
Gaussian cut at 3 deviations has t = 0.0027: one column costs 0.3 points of probability, 10 columns
2.7, 64 columns 16. The paper's histogram of 7 pieces has t = 0.084, so that with 8 columns nothing
is left to certify: compute the memberships for a certificate with the true Gaussian.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from silva.tree import Array

ROUNDING = 1e-12
"""Taken off every probability: one that is 1 but for rounding would certify an infinite radius."""


def certified_radius(
    proba: Array, sigma: float, *, kernel_distance: float = 0.0, n_columns: int = 1
) -> Array:
    """Return the radius of the ball around each row in which its class cannot change.

    Parameters
    ----------
    proba : float array of shape (rows, classes)
        Smoothed class probabilities: means of class shares under the kernel.
    sigma : float
        Standard deviation of the Gaussian in every column.
    kernel_distance : float
        Total variation distance of one column's kernel from that Gaussian; see `cut_distance` and
        `histogram_distance`.
    n_columns : int
        Columns that the tree, or any tree of a forest, tests.

    Returns
    -------
    float64 array of shape (rows,)
        0 where nothing is certified.
    """
    proba = np.asarray(proba, dtype=np.float64)
    if proba.ndim != 2 or not (proba.min(initial=0) > -1e-9 and proba.max(initial=0) < 1 + 1e-9):
        raise ValueError(
            f"proba has shape {proba.shape} and values from {proba.min(initial=0):g} to "
            f"{proba.max(initial=0):g}: expected (rows, classes) within 0 and 1"
        )
    if not 0 <= sigma < np.inf:
        raise ValueError(f"sigma is {sigma}: expected a finite number of at least 0")
    if not 0 <= kernel_distance <= 1:
        raise ValueError(f"kernel_distance is {kernel_distance}: expected a number from 0 to 1")
    error = 1 - (1 - kernel_distance) ** n_columns
    surely = np.minimum(proba.max(axis=1), 1.0) - error - ROUNDING
    return np.asarray(sigma * ndtri(np.maximum(surely, 0.5)))


def cut_distance(cut: float = 3.0) -> float:
    """Return the distance of a Gaussian cut at `cut` deviations and scaled up from a whole one."""
    return float(2 * ndtr(-cut))


def histogram_distance(edges: Array, density: Array) -> float:
    """Return the total variation distance of a piecewise-constant kernel from the unit Gaussian.

    Half the integral of |density - Gaussian|, in closed form: on each side of 0 the difference
    changes its sign at most once in a piece.

    Parameters
    ----------
    edges : float array of shape (pieces + 1,)
        In standard deviations, increasing.
    density : float array of shape (pieces,)
        Non-negative; integrates to one.
    """
    edges, density = np.asarray(edges, dtype=np.float64), np.asarray(density, dtype=np.float64)
    height = np.clip(density * np.sqrt(2 * np.pi), 1e-300, 1.0)
    crossing = np.sqrt(-2 * np.log(height))
    points = np.unique(np.concatenate([edges, crossing, -crossing, [0.0]]))
    points = points[(edges[0] <= points) & (points <= edges[-1])]
    piece = np.searchsorted(edges, (points[:-1] + points[1:]) / 2) - 1
    apart = np.abs(density[piece] * np.diff(points) - np.diff(ndtr(points)))
    outside = ndtr(edges[0]) + ndtr(-edges[-1])
    return float((apart.sum() + outside) / 2)
