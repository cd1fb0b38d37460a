"""The flagship tree: a teacher and a graph teach one readable tree what few labels mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin

from silva.estimators.column_views import Codes
from silva.estimators.columns import Columns, recode, with_values
from silva.estimators.fidelity import Faithful, Kind, Targets, most_faithful, rows_to_compare
from silva.estimators.problem import leaf_numbers
from silva.estimators.silva_classes import L2, SilvaClasses, meeting
from silva.estimators.spreading import DistinctRows
from silva.estimators.tree_reading import TreeReading
from silva.estimators.trust import Smoothed, shares
from silva.kernels import Matrix, select
from silva.labels import Total
from silva.laptao import Evidence
from silva.tree import Array, Tree, node_totals

GREEDY_LEAVES = (16, 32, 64, 128)
EVENER = 3.0  # times the usual l2: weights shared by columns that are alike, as pixels are
SPARSER = (3.0, 10.0, 30.0)  # times the usual price of coefficients
AS_FAITHFUL = 0.005  # rows of another class beyond the least, for a smaller tree or for numbers
CATEGORY_CELLS = 20_000_000  # rows times columns at most, once numbers are shown as categories


class SilvaTreeClassifier(TreeReading, ClassifierMixin, SilvaClasses):
    """One readable tree from few labels and many unlabelled rows, for tables of any kind.

    A teacher learns from the labels: a mixture of forests, kernels, a plane and models of what the
    rows of a class look like, the unlabelled ones included. Its answers for the other rows and the
    labels are smoothed over a graph of alike rows, graph and teacher each trusted as far as labels
    that were hidden bear it out. One tree is then fitted to the smoothed labels of all rows: of
    several kinds the one that best predicts them on rows held out, or the smallest that does so
    about as well. `report_` tells in words what happened.

    Parameters
    ----------
    max_depth : int or "auto", default="auto"
        Depth at most; "auto" is what leaves eight rows or so in a leaf, and 10 at most.
    alpha : float or "auto", default="auto"
        Price of the coefficients of oblique decisions; larger is sparser. "auto" is 0.1,
        and beyond 2,000 rows grows with them; or up to 30 times as much where the tree is about
        as faithful, unless there are too many rows to compare them all.
    gamma : float or "auto", default="auto"
        Trust in the graph, where a label has 5 and a teacher's answer 1; 0 does without the graph.
        "auto" averages over several values, and over less trust in the teacher, by how well each
        finds labels that are hidden from it.
    teacher : "auto", classifier or None, default="auto"
        What learns from the labelled rows, with `predict_proba`; "auto" is a mixture, in which each
        classifier counts as much as it helps on rows held out; None spreads labels over the graph
        alone.
    random_state : int, RandomState or None
    n_jobs : int, optional
        Threads. The result is the same for any number.
    device : {"cpu", "reference"}, default="cpu"
        Compute table of the tree.
    verbose : int, default=0
        Positive: a line for each step, and the report.

    Attributes
    ----------
    classes_ : array
    tree_ : Tree
        The fitted tree, over the encoded columns.
    teacher_ : classifier or None
        The fitted teacher, over the encoded columns, all numbers as numbers.
    transduction_ : array of shape (rows,)
        Class of each training row: as given where it was, else as smoothed.
    label_distributions_ : array of shape (rows, classes)
        The smoothed labels of the training rows, as probabilities.
    class_totals_ : dict or None
        Where totals were given: class to (asked, smoothed, transduced) totals over the unlabelled
        rows, the last a count.
    fidelity_ : dict
        How faithful the tree is to the smoothed labels on rows held out: "agreement", the share
        of rows with the same class, and "r2", the explained share of their variance.
    report_ : str
        In words what happened.
    feature_importances_ : array of shape (features,)
    columns_ : Columns
        How the input columns were encoded.

    Notes
    -----
    Unlabelled rows are marked by -1 or by a missing value (None, NaN, NA). Missing values and the
    categories of frames are encoded as in `TAOTreeClassifier`. Columns of three to twelve whole
    numbers may be codes of categories, whose order means nothing: where a tree that asks "x0=3?" is
    clearly more faithful than one that asks "x0 < 3?", it is kept (`columns_.values`).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from silva import SilvaTreeClassifier
    >>> X, digits = load_digits(return_X_y=True)
    >>> labelled = np.random.default_rng(1).permutation(len(X)) < 50
    >>> model = SilvaTreeClassifier(random_state=0).fit(X, np.where(labelled, digits, -1))
    >>> model.score(X[~labelled], digits[~labelled]) > 0.85
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, class_totals: Any = None) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
        y : array of shape (rows,)
            Classes of any type; -1 or missing where unknown.
        sample_weight : array of shape (rows,), optional
            Non-negative weights; a weight of 2 counts as two rows.
        class_totals : mapping, optional
            Class to its number, or share, among the unlabelled rows. Smoothed labels and the
            tree's probabilities meet these totals.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, class_totals)

    def _kinds(self, targets: Targets) -> list[Kind]:
        n_rows = len(targets.Z)
        depth, alpha = self._depth(n_rows), self._alpha(n_rows)
        kinds = [
            Kind(f"oblique, depth {levels}", "oblique", "constant", levels, alpha, l2=L2)
            for levels in ((depth, depth - 2) if depth > 3 else (depth,))
        ]
        words = f"oblique and even, depth {depth}"
        kinds.append(Kind(words, "oblique", "constant", depth, alpha, l2=EVENER * L2))
        if self.alpha == "auto" and rows_to_compare(targets) == n_rows:
            words = f"oblique and sparse, depth {depth}"
            kinds += [
                Kind(words, "oblique", "constant", depth, times * alpha, l2=L2) for times in SPARSER
            ]
        greedy_depth = 2 * depth if self.max_depth == "auto" else depth
        return kinds + [
            Kind(f"one column a decision, {most} leaves", "greedy", "constant", greedy_depth, alpha,
                 most)
            for most in GREEDY_LEAVES
        ]  # fmt: skip

    def _fit_model(self, rows: DistinctRows, Z: Array, smoothed: Smoothed, seed: int) -> None:
        targets = self._targets(rows, Z)
        widen = self._widening(targets, smoothed, seed)
        found = self._most_faithful(targets, widen, seed)
        columns = _as_categories(self.columns_, rows.X)
        if columns is not None:

            def shown(some: Targets) -> Targets:
                return replace(some, X=recode(some.X, self.columns_, columns))

            other = self._most_faithful(shown(targets), lambda part: shown(widen(part)), seed)
            if other.loss < found.loss - AS_FAITHFUL:
                found, self.columns_ = other, columns
        self.tree_ = self._with_answers(found, rows, Z)
        self.feature_importances_ = np.bincount(
            self.columns_.source, found.importances, minlength=self.n_features_in_
        )
        self._kind = found.kind.words
        self.fidelity_ = _fidelity(found, Z, rows.weight)

    def _most_faithful(
        self, targets: Targets, widen: Callable[[Array], Targets], seed: int
    ) -> Faithful:
        return most_faithful(
            targets, self._kinds(targets), self._infidelity, seed, widen, AS_FAITHFUL
        )

    def _with_answers(self, found: Faithful, rows: DistinctRows, Z: Array) -> Tree:
        """Return the tree with leaves that answer with the mean smoothed labels of their rows.

        Where totals are known, the leaves meet them.
        """
        tree, leaf, known = found.tree, found.leaf, rows.evidence
        reached = np.bincount(leaf, rows.weight, minlength=tree.n_leaves)
        sums = [np.bincount(leaf, rows.weight * z, minlength=tree.n_leaves) for z in Z.T]
        values = np.stack(sums, axis=1) / np.maximum(reached, 1e-300)[:, None]
        values = np.where(reached[:, None] > 0, values, shares(tree.values))
        if known.total is not None:
            free = np.bincount(leaf, known.total.weight, minlength=tree.n_leaves)
            values = meeting(values, Total(free, known.total.amount))
        return tree.with_leaves(values, node_totals(tree, reached))

    def _encoded_answers(self, X: Matrix) -> Array:
        leaf = leaf_numbers(select(self.device), self.tree_, X, self._n_threads)
        return np.asarray(self.tree_.values[leaf])

    def _write_report(self, smoothed: Smoothed, evidence: Evidence) -> str:
        lines = self._report_labels(smoothed, evidence)
        tree, faith = self.tree_, self.fidelity_
        decisions = int(np.count_nonzero(~tree.is_leaf))
        columns = tree.coefficients.nnz / max(decisions, 1)
        lines.append(
            f"The tree ({self._kind}) has {tree.n_leaves} leaves at depth {tree.depth} or less and "
            f"asks for {columns:.1f} columns a decision."
        )
        for name, source in zip(self.columns_.names, self.columns_.source, strict=True):
            if source in self.columns_.values:
                lines.append(f"It takes columns of a few whole numbers for categories: {name}?")
                break
        if not np.isnan(faith["agreement"]):
            lines.append(
                f"On rows held out it gives the class of the smoothed labels to "
                f"{faith['agreement']:.1%} and explains {faith['r2']:.0%} of their variance: the "
                f"other {1 - faith['agreement']:.1%} are the price of being one tree."
            )
        return "\n".join(lines)


def _as_categories(columns: Columns, X: Matrix) -> Columns | None:
    """Return the encoding that shows columns of a few whole numbers as categories.

    None where there are none, or where they would be too many columns.
    """
    codes = None if sparse.issparse(X) else Codes.of(X)
    if codes is None or len(X) * codes.width > CATEGORY_CELLS:
        return None
    return with_values(
        columns,
        {
            int(columns.source[place]): tuple(codes.value[codes.column == place].tolist())
            for place in np.unique(codes.column)
        },
    )


def _fidelity(found: Faithful, Z: Array, weight: Array) -> dict[str, float]:
    """Return agreement and R² of the answers to rows held out."""
    if not len(found.held_out):
        return {"agreement": np.nan, "r2": np.nan}
    Z, weight, answers = Z[found.held_out], weight[found.held_out], found.answers
    same = np.average(answers.argmax(axis=1) == Z.argmax(axis=1), weights=weight)
    left = weight @ ((answers - Z) ** 2).sum(axis=1)
    whole = weight @ ((Z - weight @ Z / weight.sum()) ** 2).sum(axis=1)
    return {"agreement": float(same), "r2": float(1 - left / max(whole, 1e-300))}
