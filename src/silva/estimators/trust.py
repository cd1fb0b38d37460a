"""How far to trust a teacher and a graph: smoothed labels averaged by how they find hidden ones.

Smoothed labels minimise (LapTAO's label problem, eq. 4 of its paper, with one more anchor)

    5·sum over labelled n of |z_n - y_n|² + b·sum over unlabelled n of |z_n - t_n|² + g·tr(Zᵀ L Z),

t the teacher's answers, L the Laplacian of a graph of mean degree one. Where classes lie on sheets,
as in images, the graph knows more than the teacher; where classes are rules about single columns
it knows nothing. Few labels cannot tell which of many pairs (b, g) is best, so none is chosen: the
answers of all are averaged, each with the weight

    exp(log-likelihood of labels that were hidden from it - caution·how far it left the teacher)

(pseudo Bayesian model averaging: Geisser and Eddy 1979; Yao and others 2018). With six labels this
stays near the teacher, with a hundred it finds the best pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from silva.estimators.spreading import smooth_with_teacher
from silva.laptao import Evidence
from silva.tree import Array

LABEL = 5.0  # trust in a label, in units of that in a teacher's answer
FOLDS = 5  # of hidden labels
ENOUGH_HIDDEN = 1000  # labels that tell; no more folds are gone through than they need
CAUTION, CAUTION_PER_LABEL = 20.0, 0.3  # nats for moving all of the teacher's answers
EVEN = 4.0  # nats against a temperature of a half or of two, before any label was hidden
TEMPERATURES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
LEAST_CHANCE = 0.02  # of a label to be any class: no single one decides


@dataclass(frozen=True)
class Trust:
    """Weights of the graph (g) and of the teacher's answers (b) against 5 of a label."""

    graph: float
    teacher: float


TRUSTS = (
    Trust(0.0, 1.0),  # the teacher alone
    Trust(1.0, 1.0),
    Trust(3.0, 1.0),
    Trust(10.0, 1.0),
    Trust(30.0, 1.0),
    Trust(3.0, 0.1),
    Trust(3.0, 0.01),  # the graph, and the teacher where it does not reach
)
NO_TEACHER = (Trust(0.3, 0.01), Trust(3.0, 0.01), Trust(30.0, 0.01))


@dataclass(frozen=True, eq=False)
class Hidden:
    """Labels that were hidden, and what was known without them.

    Attributes
    ----------
    rows : int array
        The distinct rows that lost their labels.
    rest : Evidence
        What is left.
    teacher : array of shape (rows, outputs)
        Answers of a teacher that learned from the rest, for all rows.
    """

    rows: Array
    rest: Evidence
    teacher: Array


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Smoothed labels.

    Attributes
    ----------
    Z : array of shape (rows, outputs)
        Averaged over the trusts.
    W : CSR array
        The graph.
    trusts : sequence of Trust
    share : array of shape (trusts,)
        What each counts.
    moved : float
        How far Z is from the teacher at unlabelled rows, as `moved_classes` measures it.
    hidden : list of Hidden
    found : array of shape (hidden rows of all folds, outputs)
        The same average for the labels that were hidden.
    """

    Z: Array
    W: sparse.csr_array
    trusts: Sequence[Trust]
    share: Array
    moved: float
    hidden: list[Hidden]
    found: Array


def smooth(
    W: sparse.csr_array,
    evidence: Evidence,
    teacher: Array,
    trust: Trust,
    n_threads: int,
) -> Array:
    """Return the minimiser for one pair of weights.

    Parameters
    ----------
    W : CSR array
        Graph of the distinct rows, of mean degree one.
    evidence : Evidence
        Labels.
    teacher : array of shape (rows, outputs)
    trust : Trust
    n_threads : int
    """
    if trust.graph == 0:
        weak = trust.teacher / LABEL * evidence.unlabelled
        whole = np.maximum(evidence.labelled + weak, 1e-300)[:, None]
        return np.asarray((evidence.sums + weak[:, None] * teacher) / whole)
    return smooth_with_teacher(
        W, evidence, teacher, gamma=trust.graph / LABEL, anchor=trust.teacher / LABEL,
        n_threads=n_threads,
    )  # fmt: skip


def average(
    W: sparse.csr_array,
    evidence: Evidence,
    teacher: Array,
    hidden: list[Hidden],
    trusts: Sequence[Trust],
    n_threads: int,
) -> Smoothed:
    """Return the smoothed labels of all trusts, averaged by how well each finds hidden labels."""
    answers = np.stack([smooth(W, evidence, teacher, trust, n_threads) for trust in trusts])
    found = np.zeros((len(trusts), 0, teacher.shape[1]))
    labels, weight = np.zeros(found.shape[1:]), np.zeros(0)
    for part in hidden:
        some = [smooth(W, part.rest, part.teacher, each, n_threads)[part.rows] for each in trusts]
        found = np.concatenate([found, some], axis=1)
        labels = np.concatenate([labels, evidence.means[part.rows]])
        weight = np.concatenate([weight, evidence.labelled[part.rows]])
    free = evidence.unlabelled
    moved = np.array([moved_classes(each, answers[0], free) for each in answers])
    score = -(CAUTION + CAUTION_PER_LABEL * weight.sum()) * moved
    if weight.size:
        score = score + [score_classes(each, labels, weight) for each in found]
    share = np.exp(score - score.max())
    share /= share.sum()
    Z = np.tensordot(share, answers, 1)
    return Smoothed(
        Z, W, trusts, share, moved_classes(Z, teacher, free), hidden, np.tensordot(share, found, 1)
    )


def label_folds(evidence: Evidence, seed: int) -> list[Array]:
    """Return rows to hide the labels of, fold by fold, each with its share of every class.

    The only label of a class is never hidden: nobody could find it. There are no more folds than
    hide labels enough.
    """
    labelled = np.flatnonzero(evidence.labelled)
    strata = evidence.sums[labelled].argmax(axis=1)
    several = np.bincount(strata)[strata] > 1
    labelled, strata = labelled[several], strata[several]
    order = np.random.default_rng(seed).permutation(len(labelled))
    order = order[np.argsort(strata[order], kind="stable")]
    folds = [np.sort(labelled[order[fold::FOLDS]]) for fold in range(min(FOLDS, len(labelled)))]
    before = np.cumsum([0, *(len(rows) for rows in folds)])
    return [rows for rows, n_hidden in zip(folds, before, strict=False) if n_hidden < ENOUGH_HIDDEN]


def hide_labels(
    evidence: Evidence,
    folds: Sequence[Array],
    teach: Callable[[int, Evidence], Array | None],
) -> Iterator[Hidden]:
    """Hide the labels of each fold.

    Parameters
    ----------
    evidence : Evidence
    folds : sequence of int arrays
        Rows to hide the labels of.
    teach : function
        From the number of a fold and what is left to a teacher's answers for all rows; None where
        it is too little, and the fold is left out.
    """
    for number, rows in enumerate(folds):
        keep = np.ones(len(evidence.labelled), bool)
        keep[rows] = False
        rest = replace(
            evidence,
            labelled=np.where(keep, evidence.labelled, 0.0),
            unlabelled=evidence.unlabelled + np.where(keep, 0.0, evidence.labelled),
            sums=np.where(keep[:, None], evidence.sums, 0.0),
            total=None,
        )
        answers = teach(number, rest)
        if answers is not None:
            yield Hidden(rows, rest, answers)


# ---- classes ------------------------------------------------------------------------------------


def shares(answers: Array) -> Array:
    """Return answers as class distributions."""
    positive = np.clip(answers, 1e-9, None)
    return np.asarray(positive / positive.sum(axis=1, keepdims=True))


def sharpened(distribution: Array, temperature: float) -> Array:
    """Return distributions to a power, normalised: above 1 more certain, below 1 less."""
    power = np.clip(distribution, 1e-9, None) ** temperature
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def class_likelihoods(answers: Array, labels: Array, weight: Array) -> Array:
    """Return the log-likelihood of labels at each temperature.

    Parameters
    ----------
    answers, labels : arrays of shape (rows, classes)
    weight : array of shape (rows,)
    """
    result = []
    for temperature in TEMPERATURES:
        sharp = sharpened(shares(answers), temperature)
        chance = (1 - LEAST_CHANCE) * sharp + LEAST_CHANCE / answers.shape[1]
        result.append(float(weight @ (labels * np.log(chance)).sum(axis=1)))
    return np.array(result)


def best_temperature(answers: Array, labels: Array, weight: Array, even: float = EVEN) -> float:
    """Return the temperature at which answers are as certain as hidden labels bear out.

    With few labels it stays near one: `even` is what they must have for a half or for two, in nats.
    """
    prior = -even * np.log2(TEMPERATURES) ** 2
    score = prior if not len(weight) else prior + class_likelihoods(answers, labels, weight)
    return TEMPERATURES[int(np.argmax(score))]


def score_classes(answers: Array, labels: Array, weight: Array) -> float:
    """Return the log-likelihood at the best temperature: smoothing flattens, and that is no sin."""
    return float(class_likelihoods(answers, labels, weight).max())


def moved_classes(answers: Array, teacher: Array, weight: Array) -> float:
    """Return the share of rows to which the answers give another class than the teacher.

    Distances of probabilities would charge a graph for making a sure teacher less so.
    """
    total = weight.sum()
    if total == 0:
        return 0.0
    return float(weight @ (answers.argmax(axis=1) != teacher.argmax(axis=1)) / total)
