"""Kernel forests as estimators: many semi-supervised trees whose leaves are valued jointly."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from silva.copies import row_groups
from silva.estimators.kernel_base import (
    KernelClassifier,
    KernelModel,
    KernelRegressor,
    target_spread,
)
from silva.estimators.parameters import check_choice, check_flag, check_integer, check_number
from silva.estimators.problem import distributions
from silva.estimators.selection import folds
from silva.kernel_growth import Growth, grow_many
from silva.kernel_trees import Task, leaf_values
from silva.leaf_values import ancestor_values, smooth_leaf_values, stack_memberships
from silva.membership import predict_fuzzy
from silva.tree import Array, Tree

PILOTS = 20  # trees grown for each fold of hidden labels, by which the blend is chosen
PILOT_TEACHER_TREES = 50
TEACHER_TREES = 100
QUARTERS = 4
MIXTURES = np.array(  # all quarters of the semi-supervised, the random and the extra-trees forest
    [
        (own, random, QUARTERS - own - random)
        for own in range(QUARTERS + 1)
        for random in range(QUARTERS + 1 - own)
    ]
) / QUARTERS  # fmt: skip
FEW_LABELS = 10  # fewer different rows do not tell mixtures apart


@dataclass(frozen=True, eq=False)
class Grown:
    """Trees with values at their leaves, the gains of each encoded column, the labels' weight."""

    trees: list[Tree]
    gains: Array
    supervision: float


class KernelForest(KernelModel):
    """Base of `KernelForestClassifier` and `KernelForestRegressor`."""

    trees_: list[Tree]
    teachers_: list[Any]

    def __init__(
        self,
        *,
        n_estimators: int = 100,
        kind: str = "random",
        leaf_values: str = "joint",
        blend: float | str = "auto",
        bandwidth: float = 0.0,
        ccp_alpha: float = 1e-4,
        supervision: float | str = "auto",
        scaling: str = "relevance",
        kernel: str = "gaussian",
        method: str = "convolved",
        labelled_weight: float | str = "auto",
        prior_weight: float = 0.1,
        bootstrap: bool | str = "auto",
        max_depth: int | None = None,
        min_weight_leaf: float = 1.0,
        max_leaf_nodes: int | None = None,
        max_features: int | float | str | None = "sqrt",
        missing: str = "fill",
        max_categories: int = 30,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            leaf_values=leaf_values, bandwidth=bandwidth, ccp_alpha=ccp_alpha,
            supervision=supervision, scaling=scaling, kernel=kernel, method=method,
            labelled_weight=labelled_weight, prior_weight=prior_weight, max_depth=max_depth,
            min_weight_leaf=min_weight_leaf, max_leaf_nodes=max_leaf_nodes,
            max_features=max_features, missing=missing, max_categories=max_categories,
            n_jobs=n_jobs, random_state=random_state,
        )  # fmt: skip
        self.n_estimators = n_estimators
        self.kind = kind
        self.blend = blend
        self.bootstrap = bootstrap

    # ---- what differs ---------------------------------------------------------------------------

    _teacher_kinds: tuple[Any, Any]

    @abstractmethod
    def _teach(self, model: Any, task: Task) -> Any:
        """Fit a supervised forest to the labelled rows."""

    @abstractmethod
    def _loss(self, task: Task, targets: Array, answers: Array) -> Array:
        """Return the loss of each held-out row."""

    # ---- fitting --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer("n_estimators", self.n_estimators, 1)
        check_choice("kind", self.kind, ["random", "extra"])
        check_number("bandwidth", self.bandwidth)
        check_number("ccp_alpha", self.ccp_alpha)
        check_flag("bootstrap", self.bootstrap, "auto")
        if self.blend != "auto" and check_number("blend", self.blend) > 1:
            raise ValueError(f"blend must be between 0 and 1, or 'auto', got {self.blend!r}")

    def _fit(self, X: Any, y: Any, sample_weight: Any, totals: Any) -> Self:
        self._check_parameters()
        task, kept, rows = self._pose(X, y, sample_weight, totals)
        seed = self._seed()
        self.shares_ = self._choose_shares(task, seed)
        self.blend_ = float(self.shares_[0])
        grown = self._grow(task, self.n_estimators, seed)
        self.trees_, self.supervision_ = grown.trees, grown.supervision
        self.teachers_ = self._teachers(task, TEACHER_TREES, seed) if self.blend_ < 1 else []
        self._keep_importances(grown.gains)
        self._keep_labels(rows, task, kept)
        return self

    def _grow(self, task: Task, n_trees: int, seed: int) -> Grown:
        """Grow trees on all rows and give their leaves values."""
        advice = self._advice(task, seed, answers=False)
        growth = self._growth(task, advice.column_weight, task.X.shape[1])
        growth = replace(
            growth,
            ccp_alpha=float(self.ccp_alpha),
            bandwidth=self.bandwidth * task.deviation,
            random_thresholds=self.kind == "extra",
        )
        streams = np.random.SeedSequence(seed).generate_state(n_trees)
        grown = grow_many(
            task.prepare(growth), streams, self._draw(task, n_trees, seed), self._n_threads
        )
        trees = [each.tree for each in grown]
        gains = np.sum([each.column_gains for each in grown], axis=0)
        return Grown(self._valued(trees, task, growth), gains, growth.supervision)

    def _draw(self, task: Task, n_trees: int, seed: int) -> Array | None:
        """Return how often each tree sees each row; a weight of two is two rows to draw."""
        bootstrap = self.kind == "random" if self.bootstrap == "auto" else self.bootstrap
        if not bootstrap:
            return None
        share = task.weight / task.weight.sum()
        times = np.random.default_rng(seed).multinomial(
            max(round(task.weight.sum()), 1), share, n_trees
        )
        return np.asarray(times / task.weight, dtype=np.float32)

    def _valued(self, trees: list[Tree], task: Task, growth: Growth) -> list[Tree]:
        """Return the trees with values at their leaves."""
        members = [task.members(tree, growth) for tree in trees]
        rule = self._leaf_rule()
        if self.leaf_values != "joint":
            return [
                tree.with_leaves(leaf_values(tree, M, task, rule)[0])
                for tree, M in zip(trees, members, strict=True)
            ]
        known = (task.targets, task.labelled, task.weight)
        prior = [ancestor_values(tree, M, *known) for tree, M in zip(trees, members, strict=True)]
        values = smooth_leaf_values(
            stack_memberships(members), *known, np.concatenate(prior),
            prior_weight=rule.prior_weight, labelled_weight=rule.factor(task), total=task.total,
        )  # fmt: skip
        ends = np.cumsum([tree.n_leaves for tree in trees])
        parts = np.split(values, ends[:-1])
        return [tree.with_leaves(part) for tree, part in zip(trees, parts, strict=True)]

    def _teachers(self, task: Task, n_trees: int, seed: int) -> list[Any]:
        """Fit a random forest and extremely random trees to the labelled rows alone."""
        return [
            self._teach(make(n_trees, random_state=seed % 2**31, n_jobs=self.n_jobs), task)
            for make in self._teacher_kinds
        ]

    def _choose_shares(self, task: Task, seed: int) -> Array:
        """Return the parts of the semi-supervised and of the two supervised forests.

        Labels are hidden in folds, and every mixture m of `MIXTURES` has a loss L(m) there, a sum
        over the labels. The parts are those of the mean mixture, weighted by exp(-L(m)): few labels
        leave the forests nearly even, many single out the best mixture. Taking the best one at once
        cost .3 points at 25 and .1 at 100 labels, on 40 tables.
        """
        self.blend_losses_: dict[tuple[float, ...], float] = {}
        own = 0.5 if self.blend == "auto" else float(self.blend)
        known = np.flatnonzero(task.labelled)
        groups = row_groups(task.X[known], seed)
        undecided = len(np.unique(groups)) < FEW_LABELS or task.labelled.all()
        if self.blend != "auto" or undecided:
            return np.array([own, (1 - own) / 2, (1 - own) / 2])
        strata = task.targets[known].argmax(axis=1) if self._is_classes else np.zeros_like(known)
        losses, tested = np.zeros(len(MIXTURES)), 0.0
        for _, held_out in folds(groups, task.X.shape[1], strata):
            test = known[held_out]
            part = task.hide(test)
            trees = self._grow(part, min(PILOTS, self.n_estimators), seed).trees
            teachers = self._teachers(part, PILOT_TEACHER_TREES, seed)
            answers = self._separate_answers(trees, teachers, task.X[test])
            for place, shares in enumerate(MIXTURES):
                loss = self._loss(task, task.targets[test], np.tensordot(shares, answers, 1))
                losses[place] += float(task.weight[test] @ loss)
            tested += float(task.weight[test].sum())
        self.blend_losses_ = dict(
            zip(map(tuple, MIXTURES.tolist()), (losses / tested).tolist(), strict=True)
        )
        return np.asarray(softmax(-losses) @ MIXTURES)

    # ---- reading the fitted forest --------------------------------------------------------------

    def _tree_answers(self, trees: list[Tree], rows: Array) -> Array:
        spread = self.bandwidth * self._deviation
        total = np.zeros((len(rows), trees[0].n_outputs))
        for tree in trees:
            total += predict_fuzzy(tree, rows, spread, self.kernel, self._n_threads)  # type: ignore[arg-type]
        return np.asarray(total / len(trees))

    def _separate_answers(self, trees: list[Tree], teachers: list[Any], rows: Array) -> Array:
        """Return the answers of the trees together and of each teacher, a forest along axis 0."""
        taught = [self._forest_answers(teacher, rows) for teacher in teachers]
        return np.stack([self._tree_answers(trees, rows), *taught])

    def _answers(self, rows: Array) -> Array:
        """Return the answers to rows as the trees see them."""
        answers = self._separate_answers(self.trees_, self.teachers_, rows)
        return np.asarray(np.tensordot(self.shares_[: len(answers)], answers, 1))


class KernelForestClassifier(KernelClassifier, KernelForest):
    """A semi-supervised forest: trees that look at all rows, their leaves valued together.

    Trees grow as in `KernelTreeClassifier`, each on a bootstrap sample and on some columns a node.
    Then all leaves of all trees get their values from one system, in which a row ties the leaves it
    lies in across the trees ("Semi-supervised Learning of Tree-based Models Using Uncertain
    Interpretation of Data" values each tree by itself). The result is blended with forests on the
    labelled rows alone, by as much as hidden labels say.

    Parameters
    ----------
    n_estimators : int, default=100
        Trees.
    kind : {"random", "extra"}, default="random"
        Best thresholds on bootstrap samples, or random thresholds on all rows.
    leaf_values : {"joint", "smooth", "robust"}, default="joint"
        All trees together, or each by itself as in `KernelTreeClassifier` (the paper).
    blend : float or "auto", default="auto"
        Part of the semi-supervised forest in the answer; the rest is the mean of a random forest
        and of extremely random trees on the labelled rows. 1 leaves these out. "auto" hides labels
        in five folds (fewer where labels are thousands) and weighs all mixtures of the three by how
        well they find them; 0.5 with fewer than 10 different labelled rows.
    bandwidth : float, default=0.0
        As in `KernelTreeClassifier`. Forests gain nothing by uncertain rows: their trees, each with
        other thresholds, are smooth together.
    ccp_alpha : float, default=0.0001
        Least decrease of the growth loss by a split.
    supervision, scaling, kernel, method, labelled_weight, prior_weight
        As in `KernelTreeClassifier`.
    bootstrap : bool or "auto", default="auto"
        Draw rows for each tree; "auto" does so where `kind` is "random".
    max_depth, min_weight_leaf, max_leaf_nodes
        As in `KernelTreeClassifier`.
    max_features : int, float, "sqrt", "log2" or None, default="sqrt"
        Columns tried at a node; others are drawn while none of them splits.
    missing, max_categories
        As in `TAOTreeClassifier`.
    n_jobs : int, optional
        Threads, over trees. The forest is the same for any number.
    random_state : int, RandomState or None

    Attributes
    ----------
    trees_ : list of Tree
    teachers_ : list
        The supervised forests, empty where `blend_` is 1.
    classes_ : array
    transduction_ : array of shape (rows,)
        The given classes, and the forest's answers for the unlabelled rows.
    label_distributions_ : array of shape (rows, classes)
        Class probabilities of the training rows; the given class where there is one.
    blend_, supervision_ : float
        The values in use.
    shares_ : array of shape (3,)
        Parts of the semi-supervised forest (`blend_`), the random forest and the extremely random
        trees in the answer.
    blend_losses_ : dict of tuple to float
        Held-out loss of each mixture of the three (squared error of the class probabilities).
    feature_importances_ : array of shape (n_features_in_,)
        Share of each input column in the decrease of the growth loss.
    columns_ : Columns
        How the input columns were encoded.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from silva import KernelForestClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> partial = np.where(np.arange(len(y)) % 20 == 0, y, -1)
    >>> model = KernelForestClassifier(n_estimators=30, random_state=0).fit(X, partial)
    >>> model.score(X, y) > 0.9
    True
    """

    _teacher_kinds = (RandomForestClassifier, ExtraTreesClassifier)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("leaf_values", self.leaf_values, ["joint", "smooth", "robust"])

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, class_totals: Any = None
    ) -> KernelForestClassifier:
        """Grow the trees and give their leaves values.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
        y : array of shape (rows,)
            Classes of any type; -1 or missing where unknown.
        sample_weight : array of shape (rows,), optional
            Non-negative weights: a row is drawn for a tree as often as its weight says.
        class_totals : mapping, optional
            Class to its number, or share, among the unlabelled rows. The answers of the
            semi-supervised forest to these rows meet the totals exactly; blended ones need not.

        Returns
        -------
        self
        """
        if class_totals is not None and self.leaf_values == "robust":
            raise ValueError("class_totals need leaf_values='joint' or 'smooth', got 'robust'")
        return self._fit(X, y, sample_weight, class_totals)

    def _teach(self, model: Any, task: Task) -> Any:
        known = task.labelled
        codes = task.targets[known].argmax(axis=1)
        return model.fit(task.X[known], codes, task.weight[known])

    def _loss(self, task: Task, targets: Array, answers: Array) -> Array:
        return np.asarray(((targets - distributions(answers)) ** 2).sum(axis=1))


class KernelForestRegressor(KernelRegressor, KernelForest):
    """A semi-supervised regression forest: trees that look at all rows.

    As `KernelForestClassifier`, with variances of the targets in place of Gini's impurity.

    Parameters
    ----------
    n_estimators, kind, blend, bandwidth, ccp_alpha, supervision, scaling, kernel, method
        As in `KernelForestClassifier`.
    leaf_values : {"joint", "smooth"}, default="joint"
        As in `KernelForestClassifier`; numbers have no robust values.
    labelled_weight, prior_weight, bootstrap, max_depth, min_weight_leaf, max_leaf_nodes
        As in `KernelForestClassifier`.
    max_features, missing, max_categories, n_jobs, random_state
        As in `KernelForestClassifier`.

    Attributes
    ----------
    trees_, teachers_, transduction_, blend_, shares_, supervision_, feature_importances_, columns_
        As in `KernelForestClassifier`.
    blend_losses_ : dict of tuple to float
        Held-out squared error of each mixture, in units of the targets' variances.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from silva import KernelForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> partial = np.where(np.arange(len(y)) % 4 == 0, y, np.nan)
    >>> KernelForestRegressor(n_estimators=30, random_state=0).fit(X, partial).score(X, y) > 0.3
    True
    """

    _teacher_kinds = (RandomForestRegressor, ExtraTreesRegressor)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("leaf_values", self.leaf_values, ["joint", "smooth"])

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelForestRegressor:
        """Grow the trees and give their leaves values.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
        y : array of shape (rows,) or (rows, outputs)
            Missing where a row is unlabelled.
        sample_weight : array of shape (rows,), optional
            Non-negative weights: a row is drawn for a tree as often as its weight says.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, None)

    def _teach(self, model: Any, task: Task) -> Any:
        known = task.labelled
        targets = task.targets[known]
        flat = targets[:, 0] if targets.shape[1] == 1 else targets
        return model.fit(task.X[known], flat, task.weight[known])

    def _loss(self, task: Task, targets: Array, answers: Array) -> Array:
        return np.asarray((((targets - answers) / target_spread(task, 2)) ** 2).sum(axis=1))
