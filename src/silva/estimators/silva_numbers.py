"""What the flagship trees and forests of numbers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from silva.estimators.corrections import GAMMAS, NO_TEACHER, correct
from silva.estimators.fidelity import PASSES, Kind, Targets
from silva.estimators.mixed_regressor import MixedRegressor
from silva.estimators.partial_labels import read_numbers
from silva.estimators.problem import Problem
from silva.estimators.selection import ROWS
from silva.estimators.silva_base import SilvaModel
from silva.estimators.spreading import DistinctRows
from silva.estimators.stacking import folds
from silva.estimators.tao import TAOTreeRegressor
from silva.estimators.teachers import in_words, number_answers, teach_numbers
from silva.estimators.trust import Smoothed, Trust
from silva.kernels import Matrix
from silva.laptao import Evidence
from silva.leaves import Leaves, Linear, Mean
from silva.tree import Array

SEARCH_ROWS = 5000  # that settings are sought on
DEEPEST_LINEAR = 5  # a leaf says a lot: few are enough, and more are too many to read
LINEAR_COLUMNS = 300  # beyond, leaves are constant: a plane a leaf would be long to fit and to read


class SilvaNumbers(SilvaModel):
    """Base of `SilvaTreeRegressor` and `SilvaForestRegressor`."""

    _is_classes = False
    _flat: bool

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # ---- labels ---------------------------------------------------------------------------------

    def _read_labels(self, y: Any, n_rows: int) -> tuple[Array, Array]:
        partial = read_numbers(y, n_rows)
        self._flat, self._given = partial.flat, partial.targets
        self.n_outputs_ = partial.targets.shape[1]
        return partial.targets, partial.labelled

    def _teach(self, model: Any, X: Matrix, evidence: Evidence, folds: Sequence[Array]) -> Any:
        return teach_numbers(model, X, evidence)

    def _teacher_answers(self, model: Any, X: Matrix) -> Array:
        return number_answers(model, X)

    def _smooth(self, rows: DistinctRows, seed: int) -> Smoothed:
        # What the teacher gets wrong is corrected over the graph: see `corrections.correct`.
        known = rows.evidence
        self.teacher_ = self._taught(rows.X, known, seed)
        answers = self._answers_of(self.teacher_, rows.X, known)
        self._held_out = self._held_out_answers(rows, seed)
        self._tell("building the graph")
        gammas = [trust.graph for trust in self._trusts()]
        return correct(
            self._graph(rows, seed), known, answers, self._held_out, gammas, seed, self._n_threads
        )

    def _held_out_answers(self, rows: DistinctRows, seed: int) -> Array:
        """Return what the teacher says of labelled rows that it did not see; NaN for nothing."""
        if isinstance(self.teacher_, MixedRegressor):
            return self.teacher_.held_out_
        known = rows.evidence
        row = np.flatnonzero(known.labelled)
        answers = np.full((len(row), known.sums.shape[1]), np.nan)
        for part in folds(len(row), seed):
            keep = np.ones(len(known.labelled))
            keep[row[part]] = 0
            rest = Evidence(
                known.labelled * keep, known.unlabelled, known.sums * keep[:, None]
            )  # fmt: skip
            try:
                teacher = self._taught(rows.X, rest, seed)
            except ValueError:  # some teachers need more rows; all of them were enough
                continue
            answers[part] = self._answers_of(teacher, rows.X[row[part]], rest)
        return answers

    def _trusts(self) -> tuple[Trust, ...]:
        if self.gamma != "auto":
            return (Trust(float(self.gamma), 1.0),)
        return tuple(Trust(g, 1.0) for g in (NO_TEACHER if self.teacher is None else GAMMAS))

    def _finish_labels(self, smoothed: Smoothed, evidence: Evidence) -> Array:
        """Return the labels where they are known, else what was smoothed, in the range seen."""
        means = evidence.means[evidence.labelled > 0]
        Z = np.clip(smoothed.Z, means.min(axis=0), means.max(axis=0))
        whole = evidence.labelled + evidence.unlabelled
        return np.asarray((evidence.sums + evidence.unlabelled[:, None] * Z) / whole[:, None])

    def _keep_labels(self, Z: Array, labelled: Array, weight: Array) -> None:
        values = np.where(labelled[:, None], self._given, Z)
        self.transduction_ = self._shaped(values)
        del self._given, self._held_out

    def _shaped(self, answers: Array) -> Array:
        return answers[:, 0] if self._flat else answers

    # ---- trees ----------------------------------------------------------------------------------

    def _searched_kind(self, targets: Targets, seed: int) -> Kind:
        """Return the optimised kind of tree, its settings sought on rows held out."""
        n_rows, n_columns = targets.X.shape
        if n_rows > SEARCH_ROWS:
            few = np.random.default_rng(seed).permutation(n_rows)[:SEARCH_ROWS]
            targets = targets.on(np.sort(few))
        scaled = np.ascontiguousarray((targets.Z - targets.centre) / targets.unit)
        linear = n_columns <= LINEAR_COLUMNS
        leaves: Leaves = Linear(scaled) if linear else Mean(scaled)
        leaf = "linear" if linear else "constant"
        problem = Problem.pose(
            targets.kernels, targets.X, leaves, targets.weight, targets.n_threads
        )  # fmt: skip
        model = TAOTreeRegressor(
            leaf=leaf, max_depth=self.max_depth, alpha=self.alpha, max_iter=PASSES
        )
        settings, _ = model._choose(problem, seed)
        alpha = settings.alpha
        if self.alpha == "auto":
            alpha *= price_growth(n_rows)
        depth = min(settings.depth, self._depth(n_rows))
        if linear and self.max_depth == "auto":
            depth = min(depth, DEEPEST_LINEAR)
        words = f"oblique, {'a linear model' if linear else 'a number'} a leaf"
        return Kind(
            words, settings.split, leaf, depth, alpha, ridge=settings.shrinkage,
            l2=settings.l2,
        )  # fmt: skip

    @staticmethod
    def _infidelity(answers: Array, targets: Array, weight: Array) -> float:
        return float(np.average(((answers - targets) ** 2).sum(axis=1), weights=weight))

    # ---- words ----------------------------------------------------------------------------------

    def _report_labels(self, smoothed: Smoothed, evidence: Evidence) -> list[str]:
        """Return what labels, teacher and graph did."""
        n_labelled = int(np.count_nonzero(evidence.labelled))
        lines = [f"{n_labelled} of {len(evidence.labelled)} distinct rows are labelled."]
        teacher, corrected = (
            held_out_r2(answers, evidence) for answers in (self._held_out, smoothed.found)
        )
        gamma = chosen_gamma(smoothed)
        if self.teacher is None:
            lines.append("There is no teacher: labels were spread over the graph alone.")
        elif np.isnan(teacher):
            lines.append("There are too few labels to tell how good the teacher is.")
        else:
            lines.append(
                f"The teacher ({in_words(self.teacher_)}) explains {teacher:.1%} of the variance "
                "of labels that were hidden from it."
            )
        if gamma == 0:
            lines.append("The graph did not help to find hidden labels and was left out.")
        else:
            lines.append(
                f"The graph (gamma = {gamma:g}) moved the answers by {smoothed.moved:.2f} "
                "deviations of the labels"
                + ("." if np.isnan(corrected) else f"; with it {corrected:.1%} are explained.")
            )
        return lines


def price_growth(n_rows: int) -> float:
    """Return by what the price of coefficients grows where rows are many, as the loss does."""
    return max(n_rows / ROWS, 1.0)


def chosen_gamma(smoothed: Smoothed) -> float:
    """Return the gamma that corrections were made with."""
    return float(smoothed.share @ [trust.graph for trust in smoothed.trusts])


def held_out_r2(answers: Array, evidence: Evidence) -> float:
    """Return the share of the labels' variance that answers to hidden rows explain.

    Parameters
    ----------
    answers : array of shape (labelled rows, outputs)
        NaN where nothing was hidden; if that is everywhere, so is the result.
    evidence : Evidence
    """
    row = np.flatnonzero(evidence.labelled)
    judged = np.isfinite(answers).all(axis=1)
    labels, weight = evidence.means[row][judged], evidence.labelled[row][judged]
    if len(weight) < 2:
        return float("nan")
    return explained(answers[judged], labels, weight)


def explained(answers: Array, targets: Array, weight: Array) -> float:
    """Return R², the mean over the outputs that vary; NaN where none does."""
    left = weight @ (answers - targets) ** 2
    whole = weight @ (targets - weight @ targets / weight.sum()) ** 2
    varies = whole > 0
    return float(np.mean(1 - left[varies] / whole[varies])) if varies.any() else float("nan")
