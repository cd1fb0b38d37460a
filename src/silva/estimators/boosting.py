"""AdaBoost over TAO trees: `TAOBoostClassifier`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import gen_batches

from silva.boosting import (
    M1,
    VoteRule,
    add_votes,
    is_useless,
    resample,
    reweight,
    samme,
    vote_weight,
    weighted_error,
)
from silva.estimators.boosting_base import BLOCK, Stage, TAOBoost
from silva.estimators.parameters import check_choice, check_number
from silva.estimators.partial_labels import PartialClasses, read_classes
from silva.estimators.problem import Problem
from silva.estimators.spreading import (
    choose_anchor,
    class_shares_of_forests,
    distinct_rows,
    graph_of_rows,
    smooth_with_teacher,
)
from silva.estimators.tao import TAOTreeClassifier
from silva.estimators.tao_base import TAOTree
from silva.kernels import Matrix
from silva.leaves import ClassShares
from silva.tree import Array, Tree

LEAST_COUNT = 0.05  # of an unlabelled row whose first two classes are even
CLASS_ROWS, LEAF_ROWS, DEEPEST = 64, 8, 12  # 64/K rows of K classes in a leaf, or 8 at least


class TAOBoostClassifier(ClassifierMixin, TAOBoost):
    """AdaBoost over trees trained by alternating optimisation.

    Each tree is optimised for the very loss that AdaBoost asks for, the weighted number of errors,
    with sparse hyperplanes as decisions; a few dozen such trees are more accurate than hundreds of
    greedy ones (boosted TAO paper, Algorithm 1). One tree a round serves all classes.

    Where y is -1 or missing for some rows, their labels are filled in first: smoothed over a graph
    of the rows, with the answers of forests on the labelled rows as weak anchors. A row then counts
    by the lead of its first class over the second.

    Parameters
    ----------
    algorithm : {"samme", "m1"}, default="samme"
        SAMME takes any tree that is better than chance, an error below 1 - 1/K; AdaBoost.M1 wants
        less than a half. The same for two classes.
    n_estimators : int, default=100
        Trees at most.
    learning_rate : float, default=0.1
        Shrinks the votes and with them the steps of the rows' weights.
    weighting : {"exact", "resample"}, default="exact"
        Trees take the rows' weights as they are, or as many rows drawn by weight.
    split : {"auto", "oblique", "mixed", "axis"}, default="auto"
        Sparse hyperplanes, one feature a node, or at each node the better of the two, which is
        "auto" (for sparse X it is "oblique").
    loss : {"misclassification", "squared", "log"}, default="misclassification"
        What a tree minimises. AdaBoost's own is the first.
    max_depth : int or "auto", default="auto"
        Depth that a tree starts with; "auto" gives a leaf 64/K rows or so, at least 8.
    alpha : float or "auto", default="auto"
        Price of complexity in units of one row's loss, as in `TAOTreeClassifier`; 0.1 if "auto".
        The best value is smaller than for a single tree: the others make up for what one overfits.
    l2 : float or "auto", default="auto"
        Price of half the squared norm of the hyperplanes, in units of `alpha`; 0.1 if "auto".
    max_iter : int, default=20
        Passes over a tree.
    tol : float, default=1e-4
        A tree is done when its objective has not fallen by this share for three passes.
    init : {"auto", "class_means", "random", "cart"}, default="auto"
        The first tree of each round, as in `TAOTreeClassifier`; "auto" is "random" here, from which
        trees differ more ("cart" for axis splits).
    class_weight : dict, "balanced" or None
        Weights of the classes, as in scikit-learn.
    validation_fraction : float, default=0.1
        Share of every class that is held out if `n_iter_no_change` is given.
    n_iter_no_change : int, optional
        Stop early: when the error on the rows held out has not fallen for so many trees, those
        after the best one are dropped. None, the default, learns from all rows and never stops.
    gamma : float, default=1.0
        Weight of the graph where labels are filled in.
    anchor : float or "auto", default="auto"
        How much the forests' answer counts for an unlabelled row, in units of a label; "auto"
        chooses it by hiding labels in folds.
    n_neighbors : int or "auto", default="auto"
        Neighbours of a row in the graph, as in `LapTAOClassifier`.
    affinity : sparse matrix of shape (rows, rows), optional
        A graph to use instead.
    missing, max_categories
        As in `TAOTreeClassifier`.
    warm_start : bool, default=False
        Go on with the trees of the last fit: on the same rows, 10 trees and then 30 are exactly
        the model of 30 at once.
    n_jobs : int, optional
        Threads. The trees are the same for any number.
    random_state : int, RandomState or None
        Seed; that of each tree follows from it and the tree's number.
    device : {"cpu", "reference"}, default="cpu"
        Compiled core, or plain NumPy for study.
    verbose : int, default=0
        1: a line of progress per tree; 2: per pass as well.

    Attributes
    ----------
    trees_ : list of Tree
        A leaf answers class shares; it votes for the largest.
    classes_ : array
    transduction_ : array of shape (rows,)
        The class of each training row, as given or as filled in.
    label_distributions_ : array of shape (rows, classes)
        The smoothed labels, where some were filled in.
    estimator_weights_, estimator_errors_ : array of shape (trees,)
        The vote and the weighted training error of each tree.
    history_ : list of Round
    stop_reason_ : str
        "n_estimators", "validation", "callback", "interrupted", "no better than chance" or
        "nothing left to learn".
    feature_importances_ : array of shape (n_features_in_,)
        Mean over the trees by their votes.
    n_parameters_ : int
    flops_ : float
        Size, and mean cost of a training row, as the boosted TAO paper counts them.
    split_, alpha_, max_depth_, l2_
        What "auto" settled on.
    columns_ : Columns
        How the input columns were encoded.

    Notes
    -----
    - A perfect tree (weighted error 0) would have an infinite vote. Errors below one in a thousand
      count as that, and boosting goes on.
    - A tree no better than chance ends the boosting; the earlier ones are kept. If it is the
      first, it is kept alone, with a warning.
    - Ctrl-C keeps the trees that are finished, with a warning.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from silva import TAOBoostClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> TAOBoostClassifier(n_estimators=10, random_state=0).fit(X, y).score(X, y) > 0.95
    True
    """

    _plain_alpha = 0.1

    def __init__(
        self,
        *,
        algorithm: str = "samme",
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        weighting: str = "exact",
        split: str = "auto",
        loss: str = "misclassification",
        max_depth: int | str = "auto",
        alpha: float | str = "auto",
        l2: float | str = "auto",
        max_iter: int = 20,
        tol: float = 1e-4,
        init: Any = "auto",
        class_weight: Any = None,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        gamma: float = 1.0,
        anchor: float | str = "auto",
        n_neighbors: int | str = "auto",
        affinity: Any = None,
        missing: str = "fill",
        max_categories: int = 30,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate, validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change, n_estimators=n_estimators, split=split,
            max_depth=max_depth, alpha=alpha, l2=l2, max_iter=max_iter, tol=tol, init=init,
            missing=missing, max_categories=max_categories, warm_start=warm_start, n_jobs=n_jobs,
            random_state=random_state, device=device, verbose=verbose,
        )  # fmt: skip
        self.algorithm = algorithm
        self.weighting = weighting
        self.loss = loss
        self.class_weight = class_weight
        self.gamma = gamma
        self.anchor = anchor
        self.n_neighbors = n_neighbors
        self.affinity = affinity

    def _template(self) -> TAOTreeClassifier:
        is_open = isinstance(self.init, str) and self.init == "auto" and self.split != "axis"
        return TAOTreeClassifier(
            split=self.split, loss=self.loss, max_depth=self.max_depth, alpha=self.alpha,
            l2=self.l2, shrinkage=0.0, max_iter=self.max_iter, tol=self.tol,
            init="random" if is_open else self.init,
            class_weight=self.class_weight, missing=self.missing,
            max_categories=self.max_categories, n_jobs=self.n_jobs, device=self.device,
            verbose=self.verbose,
        )  # fmt: skip

    # ---- fitting --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("algorithm", self.algorithm, ["samme", "m1"])
        check_choice("weighting", self.weighting, ["exact", "resample"])
        check_number("gamma", self.gamma)
        if self.anchor != "auto" and check_number("anchor", self.anchor) == 0:
            raise ValueError("anchor must be positive, got 0")

    def _rule(self, n_classes: int) -> VoteRule:
        return M1 if self.algorithm == "m1" else samme(max(n_classes, 2))

    def _plain_depth(self, n_rows: int, problem: Problem) -> float:
        # Each class needs leaves of its own, but no leaf should start with a handful of rows unless
        # there are so few: a leaf for each of several classes, and a level more.
        n_classes = max(_n_classes(problem), 2)
        allowed = np.log2(n_rows * min(n_classes / CLASS_ROWS, 1 / LEAF_ROWS))
        return float(max(min(allowed, DEEPEST), np.ceil(np.log2(n_classes)) + 1))

    def _complete(self, X: Matrix, y: Any, weight: Array) -> tuple[Array, Array]:
        """Fill in missing labels; the rows that get one count by how clear it is."""
        partial = read_classes(y, X.shape[0])
        labelled, codes = partial.labelled, partial.codes
        self.__dict__.pop("label_distributions_", None)  # of an earlier fit
        self.transduction_ = partial.classes[codes]
        if labelled.all():
            return self.transduction_, weight
        if self.n_iter_no_change is not None:
            raise ValueError(
                "n_iter_no_change must be None where y has unlabelled rows, got "
                f"{self.n_iter_no_change!r}: a held-out row would have helped to label the others. "
                "Use LabelledKFold to choose n_estimators"
            )
        if not weight[labelled].any():
            raise ValueError("sample_weight must be positive at some labelled row, got all zeros")
        Z = np.nan_to_num(self._smoothed(X, partial, weight))
        best = np.sort(Z, axis=1)[:, -2:]
        lead = best[:, -1] - best[:, 0] if Z.shape[1] > 1 else np.ones(len(Z))
        self.label_distributions_ = Z
        self.transduction_ = partial.classes[np.where(labelled, codes, Z.argmax(axis=1))]
        return self.transduction_, weight * np.where(labelled, 1.0, np.maximum(lead, LEAST_COUNT))

    def _smoothed(self, X: Matrix, partial: PartialClasses, weight: Array) -> Array:
        """Return class distributions of the rows, NaN where a row has no weight."""
        rows = distinct_rows(
            X, partial.indicators(), partial.labelled, weight, merge=self.affinity is None
        )
        W = graph_of_rows(
            rows, affinity=self.affinity, n_rows=X.shape[0], n_neighbors=self.n_neighbors,
            perplexity="auto", mutual=True, scaling="relevance", is_classes=True, memory=None,
            seed=self._seed, n_jobs=self.n_jobs, verbose=self.verbose,
        )  # fmt: skip
        known, anchor = rows.evidence, self.anchor
        if anchor == "auto":
            anchor = choose_anchor(
                W, rows, gamma=float(self.gamma), seed=self._seed, n_jobs=self.n_jobs,
                n_threads=self._n_threads,
            )  # fmt: skip
        teacher = class_shares_of_forests(rows.X, known, self._seed, self.n_jobs)
        Z = smooth_with_teacher(
            W, known, teacher, gamma=float(self.gamma), anchor=float(anchor),
            n_threads=self._n_threads,
        )  # fmt: skip
        return rows.spread(np.clip(Z, 0, 1), X.shape[0])

    def _first_stage(self, problem: Problem, n_held_out: int) -> Stage:
        return Stage(problem.weight, np.zeros((n_held_out, _n_classes(problem))))

    def _next_problem(self, problem: Problem, stage: Stage, seed: int) -> Problem:
        if self.weighting == "exact":
            return replace(problem, weight=stage.rows)
        rows, times = resample(stage.rows, seed)
        return replace(problem.on(rows), weight=times)

    def _judge(
        self, problem: Problem, stage: Stage, tree: Tree, leaf: Array
    ) -> tuple[float, float, Array]:
        rule = self._rule(_n_classes(problem))
        wrong = tree.values.argmax(axis=1)[leaf] != _codes(problem)
        error = weighted_error(stage.rows, wrong)
        if is_useless(error, rule):
            return error, 0.0, stage.rows
        vote = vote_weight(error, rule, self.learning_rate)
        return error, vote, reweight(stage.rows, wrong, vote)

    def _answer_held_out(self, answers: Array, tree: Tree, leaf: Array, vote: float) -> Array:
        votes = answers.copy()
        add_votes(votes, tree.values.argmax(axis=1)[leaf], vote)
        return votes

    def _held_out_loss(self, template: TAOTree, answers: Array, held_out: Problem) -> float:
        shares = answers / answers.sum(axis=1, keepdims=True)
        return template._held_out_loss(shares, held_out.leaves, held_out.weight)

    def _keep(self, template: TAOTree, problem: Problem) -> Array:
        self.classes_ = template.classes_
        self.n_classes_ = len(self.classes_)
        self.trees_ = self._fitted_trees
        self.estimator_weights_ = np.array([step.vote for step in self.history_])
        self.estimator_errors_ = np.array([step.loss for step in self.history_])
        return self.estimator_weights_

    def _check_same_targets(self, template: TAOTree) -> None:
        if not np.array_equal(template.classes_, self.classes_):
            raise ValueError(
                f"y must have the classes of the first fit with warm_start, got "
                f"{list(template.classes_)}, expected {list(self.classes_)}"
            )

    # ---- asking the trees -----------------------------------------------------------------------

    def _staged_votes(self, X: Any) -> Iterator[Array]:
        """Yield the votes after each tree, always in the same array."""
        X = self._encode(X)
        votes = np.zeros((X.shape[0], self.n_classes_))
        for (tree, leaf), vote in zip(self._leaves(X), self.estimator_weights_, strict=True):
            add_votes(votes, tree.values.argmax(axis=1)[leaf], vote)
            yield votes

    def _votes(self, X: Any) -> Array:
        """Return the votes of all trees."""
        X = self._encode(X)
        votes = np.zeros((X.shape[0], self.n_classes_))
        for part in gen_batches(X.shape[0], BLOCK):
            here = votes[part]
            for (tree, leaf), vote in zip(
                self._leaves(X[part]), self.estimator_weights_, strict=True
            ):
                add_votes(here, tree.values.argmax(axis=1)[leaf], vote)
        return votes

    def decision_function(self, X: Any) -> Array:
        """Return the votes as scikit-learn's `AdaBoostClassifier` counts them.

        A tree votes +1 for its class and -1/(K - 1) for each other one; the sum is divided by the
        total of `estimator_weights_`. One column where there are two classes, the second's less
        the first's.
        """
        return _margins(self._votes(X))

    def predict(self, X: Any) -> Array:
        """Return the class with the most votes; ties go to the first."""
        best = self._votes(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities: the share of the votes, an even share of one vote added.

        The added vote, of the weight of an average tree, keeps a class without votes from being
        impossible.
        """
        return self._probabilities(self._votes(X), len(self.trees_))

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))

    def _probabilities(self, votes: Array, n_trees: int) -> Array:
        extra = self.estimator_weights_[:n_trees].mean() / self.n_classes_
        shares = votes + extra
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def staged_decision_function(self, X: Any) -> Iterator[Array]:
        """Yield `decision_function` of the first tree, the first two and so on."""
        for votes in self._staged_votes(X):
            yield _margins(votes)

    def staged_predict(self, X: Any) -> Iterator[Array]:
        """Yield `predict` of the first tree, the first two and so on."""
        for votes in self._staged_votes(X):
            yield np.asarray(self.classes_[votes.argmax(axis=1)])

    def staged_predict_proba(self, X: Any) -> Iterator[Array]:
        """Yield `predict_proba` of the first tree, the first two and so on."""
        for number, votes in enumerate(self._staged_votes(X), start=1):
            yield self._probabilities(votes, number)

    def staged_score(self, X: Any, y: Any, sample_weight: Any = None) -> Iterator[float]:
        """Yield the accuracy of the first tree, the first two and so on."""
        for labels in self.staged_predict(X):
            yield float(accuracy_score(y, labels, sample_weight=sample_weight))


def _class_leaves(problem: Problem) -> ClassShares:
    leaves = problem.leaves
    if not isinstance(leaves, ClassShares):
        raise TypeError("a classifier needs classes")
    return leaves


def _codes(problem: Problem) -> Array:
    return np.asarray(_class_leaves(problem).codes[:, 0])


def _n_classes(problem: Problem) -> int:
    return int(_class_leaves(problem).class_begin[-1])


def _margins(votes: Array) -> Array:
    """Return votes as scikit-learn's AdaBoost counts them."""
    n_classes = votes.shape[1]
    if n_classes == 1:
        return np.zeros((len(votes), 1))
    share = votes / votes.sum(axis=1, keepdims=True)
    margin = share - (1 - share) / (n_classes - 1)
    return np.asarray(margin[:, 1] - margin[:, 0] if n_classes == 2 else margin)
