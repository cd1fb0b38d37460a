"""What a teacher gets wrong at labelled rows, spread over a graph to rows that are alike.

The errors e of a teacher at labelled rows, of answers that it gave without having seen them, are
smoothed to corrections d of all rows, which minimise

    gamma·(sum over labelled n of |d_n - e_n|² + tr(dᵀ L d)) + sum over unlabelled n of |d_n|²

(the label problem of LapTAO's paper, eq. 4, for errors instead of labels; "correct and smooth",
Huang and others 2021). Smoothed are the errors alone: where the graph knows nothing they average
out, and what the teacher said stays as sharp as it was. With gamma = 0 nothing is corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from silva.estimators.spreading import smooth_with_teacher
from silva.estimators.stacking import folds
from silva.estimators.trust import Smoothed, Trust
from silva.laptao import Evidence
from silva.tree import Array

GAMMAS = (0.0, 1.0, 5.0, 20.0, 100.0, 300.0)
NO_TEACHER = (20.0, 100.0, 300.0)
ENOUGH_HIDDEN = 1000  # labels that tell
SURE = 2.0  # standard errors by which a graph must be better than none
FEW_LABELS = 8  # too few to choose by: nothing is corrected


def spread_errors(W: sparse.csr_array, errors: Evidence, gamma: float, n_threads: int) -> Array:
    """Return the corrections of all rows.

    Parameters
    ----------
    W : CSR array
        Graph of mean degree one.
    errors : Evidence
        The teacher's errors in the place of labels.
    gamma : float
    n_threads : int
    """
    nothing = np.zeros_like(errors.sums)
    if gamma == 0:
        return nothing
    return smooth_with_teacher(
        W, errors, nothing, gamma=1.0, anchor=1 / gamma, n_threads=n_threads
    )  # fmt: skip


def correct(
    W: sparse.csr_array,
    evidence: Evidence,
    teacher: Array,
    held_out: Array,
    gammas: Sequence[float],
    seed: int,
    n_threads: int,
) -> Smoothed:
    """Return the teacher's answers, corrected as far as labels that were hidden bear it out.

    Of several `gammas` the one is taken that finds hidden errors best, the first unless another is
    better by more than two standard errors: few labels must not talk the graph up.

    Parameters
    ----------
    W : CSR array
    evidence : Evidence
        Labels.
    teacher : array of shape (rows, outputs)
        Its answers for all rows.
    held_out : array of shape (labelled rows, outputs)
        Its answers for labelled rows that it did not see; NaN where there are none.
    gammas : sequence of float
    seed, n_threads : int
    """
    row = np.flatnonzero(evidence.labelled)
    known = np.asarray(np.isfinite(held_out).all(axis=1))
    gap = np.where(known[:, None], evidence.means[row] - held_out, 0.0)
    labelled, sums = np.zeros(len(teacher)), np.zeros(teacher.shape)
    labelled[row] = np.where(known, evidence.labelled[row], 0.0)
    sums[row] = labelled[row][:, None] * gap
    errors = Evidence(labelled, evidence.labelled + evidence.unlabelled - labelled, sums)
    found = _found_errors(W, errors, row, gammas, seed, n_threads)
    best = 0
    if len(gammas) > 1 and np.count_nonzero(known) >= FEW_LABELS:
        best = _cautious_choice(found, gap, evidence.means[row], labelled[row])
    Z = teacher + spread_errors(W, errors, gammas[best], n_threads)
    trusts = [Trust(gamma, 1.0) for gamma in gammas]
    share = np.eye(len(gammas))[best]
    return Smoothed(
        Z, W, trusts, share, _moved(Z, teacher, evidence), [], held_out + found[best]
    )  # fmt: skip


def _found_errors(
    W: sparse.csr_array,
    errors: Evidence,
    row: Array,
    gammas: Sequence[float],
    seed: int,
    n_threads: int,
) -> Array:
    """Return what each gamma makes of errors that are hidden, of shape (gammas, rows, outputs).

    Where enough were hidden the others are NaN.
    """
    found = np.full((len(gammas), len(row), errors.sums.shape[1]), np.nan)
    n_hidden = 0
    for part in folds(len(row), seed):
        if n_hidden >= ENOUGH_HIDDEN:
            break
        n_hidden += len(part)
        keep = np.ones(len(errors.labelled))
        keep[row[part]] = 0
        rest = replace(
            errors,
            labelled=errors.labelled * keep,
            unlabelled=errors.unlabelled + errors.labelled * (1 - keep),
            sums=errors.sums * keep[:, None],
        )
        found[:, part] = [spread_errors(W, rest, g, n_threads)[row[part]] for g in gammas]
    return found


def _cautious_choice(found: Array, gap: Array, labels: Array, weight: Array) -> int:
    """Return the place of the least loss, counted from the first one's, plus its uncertainty."""
    judged = np.isfinite(found[0]).all(axis=1) & (weight > 0)
    share = weight[judged] / weight[judged].sum()
    unit = np.sqrt(share @ (labels[judged] - share @ labels[judged]) ** 2)
    unit[unit == 0] = np.inf
    loss = (((found - gap)[:, judged] / unit) ** 2).sum(axis=2)
    gain = loss - loss[0]
    mean = gain @ share
    error = np.sqrt(((gain - mean[:, None]) ** 2) @ share**2)
    return int(np.argmin(mean + SURE * error))


def _moved(Z: Array, teacher: Array, evidence: Evidence) -> float:
    """Return the root mean square of the corrections, in units of the deviation of the labels."""
    weight = evidence.labelled / evidence.labelled.sum()
    variance = float((weight @ (evidence.means - weight @ evidence.means) ** 2).sum())
    free = evidence.unlabelled
    if variance == 0 or not free.any():
        return 0.0
    return float(np.sqrt(free @ ((Z - teacher) ** 2).sum(axis=1) / free.sum() / variance))
