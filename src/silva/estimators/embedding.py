"""Tree embeddings: a map of the data drawn by a tree, which places new rows as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
    is_regressor,
)
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from silva import mac
from silva.embedding import (
    EmbeddedRows,
    clustered_tree,
    free_embedding,
    principal_basis,
    refine_leaves,
)
from silva.energies import Energy, elastic, tsne
from silva.estimators.blas_threads import on_one_blas_thread
from silva.estimators.columns import encode, fit_columns
from silva.estimators.mappings import RegressorMapping, TreeMapping, TreePredictor
from silva.estimators.parameters import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_running,
)
from silva.estimators.tao import TAOTreeRegressor
from silva.graph import affinity_graph, check_affinity
from silva.kernels import Matrix
from silva.leaves import Basis
from silva.mac import Callback
from silva.tree import Array, Tree, node_totals

OBJECTIVES = ("elastic", "tsne")
FIRST_MU = {"elastic": 0.05, "tsne": 0.0003}  # in units of 1 / rows
PULL = {"elastic": 0.0, "tsne": 1e-5}
STAGES = ((6.0, 30), (3.0, 30), (2.0, 30), (1.4, 30), (1.0, 200))
LEAF_ROWS, DEEPEST = 32, 7  # of the tree where its depth is left open
REFINE_ITERATIONS = 100
LEAF_RIDGE, L2 = 30.0, 1.0  # of the tree: linear leaves need no more rows than directions


class TreeEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A map of the data that explains itself: a sparse oblique tree places the rows.

    t-SNE and the elastic embedding place the training rows and say neither why nor where a new row
    goes. Here a tree is the map: it is trained jointly with the embedding (method of auxiliary
    coordinates), every step of a row's way can be read, and new rows simply go down the tree.

    Parameters
    ----------
    objective : {"tsne", "elastic"}, default="tsne"
        What makes a good map, see Notes.
    n_components : int, default=2
        Axes of the map.
    max_depth : int or "auto", default="auto"
        Depth of the tree; "auto" leaves some 32 rows in a leaf, at most 7 levels.
    alpha : float, default=0.1
        Price of the hyperplanes, as in `TAOTreeRegressor`; divided by the growth of `mu` as the
        rounds go by. Larger is sparser.
    perplexity : float, default=30.0
        Effective number of neighbours of a row; at most a third of the other rows.
    repulsion : float, default=1000.0
        λ of the elastic embedding: larger spreads the map.
    leaf : {"linear", "constant"}, default="linear"
        Each leaf a linear map of its rows, or one place for all of them.
    n_directions : int, default=50
        Principal directions of the data that linear leaves are made of.
    refine : bool or "auto", default="auto"
        In the end, decisions fixed, move the leaves down the objective itself. "auto" does so for
        t-SNE; elastic maps get a lower objective by it, too, but blur the classes of new rows.
    estimator : regressor, default=None
        What maps rows to coordinates; None is the tree described above. A `TAOTreeRegressor` is
        taken with its own settings, any other regressor as it is.
    affinity : sparse matrix of shape (rows, rows), default=None
        A graph of the training rows, symmetric and not negative; None builds one.
    init : array of shape (rows, n_components), default=None
        A map of the training rows at hand, taken for the free embedding; None finds it.
    n_outer : int, default=12
        Rounds of moving points and fitting; 0 fits the free embedding directly and is done.
    mu : float or "auto", default="auto"
        First weight of the agreement between points and tree, over the number of rows; "auto" is
        0.0003 for t-SNE and 0.05 for the elastic embedding.
    mu_factor : float, default=1.5
        Its growth per round.
    tao_iter : int, default=2
        Passes over the tree per round, after a first full fit.
    point_iter : int, default=15
        L-BFGS iterations over the points per round; 0 leaves them where they are, which is a
        direct fit with as many passes over the tree as a joint one.
    max_iter : int, default=20
        Passes over the tree in the first fit.
    missing : {"error", "fill"}, default="error"
        Refuse missing values, or fill them as `TAOTreeClassifier` does.
    max_categories : int, default=30
        As in `TAOTreeClassifier`.
    n_jobs : int, optional
        Threads. The result is the same for any number.
    random_state : int, RandomState or None
    verbose : int, default=0
        Positive: lines of progress, one per stage of the free embedding and per round.

    Attributes
    ----------
    embedding_ : array of shape (rows, n_components)
        Where the tree places the training rows.
    free_embedding_ : array of shape (rows, n_components)
        Where the objective alone would place them.
    tree_ : Tree
        The fitted tree, where the estimator is one; its leaves answer coordinates.
    estimator_ : regressor
        The fitted estimator, where it is not a tree.
    energy_, free_energy_ : float
        Objective of the two.
    history_ : list of silva.mac.Step
        Objective of the tree's map, its terms, agreement and seconds of every round.
    affinity_ : CSR array
        The graph of the training rows.
    columns_ : Columns
        How the input columns were encoded.

    Notes
    -----
    With affinities w of the rows that sum to one, the elastic embedding (Carreira-Perpiñán 2010)
    minimises the sum of w·d² plus `repulsion` times the mean of exp(-d²) over all pairs, d being
    distances on the map; t-SNE the divergence between w and 1 / (1 + d²), normalised. Distances
    between rows are Euclidean: columns should have comparable scales.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from silva import TreeEmbedding
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TreeEmbedding(max_depth=4, n_outer=3, random_state=0).fit(X[:500])
    >>> model.transform(X[500:]).shape
    (1297, 2)
    """

    def __init__(
        self,
        *,
        objective: str = "tsne",
        n_components: int = 2,
        max_depth: int | str = "auto",
        alpha: float = 0.1,
        perplexity: float = 30.0,
        repulsion: float = 1000.0,
        leaf: str = "linear",
        n_directions: int = 50,
        refine: bool | str = "auto",
        estimator: Any = None,
        affinity: Any = None,
        init: Any = None,
        n_outer: int = 12,
        mu: float | str = "auto",
        mu_factor: float = 1.5,
        tao_iter: int = 2,
        point_iter: int = 15,
        max_iter: int = 20,
        missing: str = "error",
        max_categories: int = 30,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.n_components = n_components
        self.max_depth = max_depth
        self.alpha = alpha
        self.perplexity = perplexity
        self.repulsion = repulsion
        self.leaf = leaf
        self.n_directions = n_directions
        self.refine = refine
        self.estimator = estimator
        self.affinity = affinity
        self.init = init
        self.n_outer = n_outer
        self.mu = mu
        self.mu_factor = mu_factor
        self.tao_iter = tao_iter
        self.point_iter = point_iter
        self.max_iter = max_iter
        self.missing = missing
        self.max_categories = max_categories
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "fill"
        return tags

    # ---- fitting --------------------------------------------------------------------------------

    @on_one_blas_thread
    def fit(self, X: Any, y: Any = None, *, callback: Callback | None = None) -> Self:
        """Fit the map.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (rows, features)
        y : ignored
        callback : callable, optional
            Called after each round with a `silva.mac.Step`; a true answer stops.

        Returns
        -------
        self
        """
        self._check_parameters(callback)
        X, columns = fit_columns(self, X, missing=self.missing, max_categories=self.max_categories)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        n_threads, n_rows = int(effective_n_jobs(self.n_jobs)), X.shape[0]
        W = self._graph(X, seed)
        energy: Energy = (
            elastic(W, float(self.repulsion), n_threads=n_threads)
            if self.objective == "elastic"
            else tsne(W, n_threads=n_threads)
        )
        basis = principal_basis(X, max(self.n_directions, self.n_components), seed)
        free = self._free_embedding(energy, basis, seed)

        first = FIRST_MU[self.objective] if self.mu == "auto" else float(self.mu)
        coordinates = EmbeddedRows(
            energy, free, unit=first / n_rows, iterations=self.point_iter
        )  # fmt: skip
        mapping = self._mapping(X, free, basis, seed, n_threads)
        result = mac.alternate(
            coordinates, mapping, mac.schedule(1.0, self.mu_factor, self.n_outer),
            multiplier_step=1.0 if self.point_iter else 0.0, callback=callback,
            verbose=self.verbose,
        )  # fmt: skip

        self.columns_ = columns
        self.affinity_ = W
        self.free_embedding_ = free
        self.free_energy_ = energy(free)[0]
        self.history_ = [replace(step, mu=first * step.mu) for step in result.history]
        self.n_iter_ = max(len(result.history) - 1, 1)
        self._n_features_out = self.n_components
        self._predictor = result.fit.model
        self.embedding_ = result.fit.outputs
        for name in ("tree_", "estimator_"):  # of an earlier fit, perhaps of the other kind
            self.__dict__.pop(name, None)
        if isinstance(self._predictor, TreePredictor):
            self._keep_tree(self._predictor, energy, X, basis)
        else:
            self.estimator_ = self._predictor.estimator
        self.energy_ = energy(self.embedding_)[0]
        return self

    def _check_parameters(self, callback: Any) -> None:
        check_choice("objective", self.objective, OBJECTIVES)
        check_integer("n_components", self.n_components, 1)
        if self.max_depth != "auto":
            check_integer("max_depth", self.max_depth, 0)
        check_number("alpha", self.alpha)
        check_number("perplexity", self.perplexity, 1.0)
        check_number("repulsion", self.repulsion)
        check_choice("leaf", self.leaf, ["linear", "constant"])
        check_integer("n_directions", self.n_directions, 1)
        if self.refine != "auto":
            check_flag("refine", self.refine)
        given = self.estimator
        if given is not None and not (hasattr(given, "fit") and is_regressor(given)):
            raise TypeError(
                f"estimator must be a regressor (it is fitted to coordinates), got {given!r}"
            )
        check_integer("n_outer", self.n_outer, 0)
        first = 1.0 if self.mu == "auto" else self.mu
        for name, value in (("mu", first), ("mu_factor", self.mu_factor)):
            if check_number(name, value) == 0:
                raise ValueError(f"{name} must be positive, got 0")
        check_integer("tao_iter", self.tao_iter, 1)
        check_integer("point_iter", self.point_iter, 0)
        check_integer("max_iter", self.max_iter, 0)
        check_choice("missing", self.missing, ["fill", "error"])
        check_integer("max_categories", self.max_categories, 2)
        check_running(self.n_jobs, self.verbose, callback)

    def _graph(self, X: Matrix, seed: int) -> sparse.csr_array:
        n_rows = X.shape[0]
        if self.affinity is not None:
            return check_affinity(self.affinity, n_rows)
        if n_rows < 2:
            raise ValueError(f"a map needs at least 2 rows, X has n_samples={n_rows}")
        perplexity = min(float(self.perplexity), max(1.0, (n_rows - 1) / 3))
        n_neighbors = min(n_rows - 1, int(np.ceil(3 * perplexity)))
        return affinity_graph(
            X, n_neighbors, perplexity, n_jobs=self.n_jobs, random_state=seed,
            verbose=self.verbose,
        )  # fmt: skip

    def _free_embedding(self, energy: Energy, basis: Basis, seed: int) -> Array:
        n_rows = len(basis.scores)
        if self.init is None:
            start = _start(basis.scores, self.n_components, seed)
            return free_embedding(energy, start, STAGES, PULL[self.objective], self.verbose)
        given = check_array(self.init, dtype=np.float64, copy=True, input_name="init")
        if given.shape != (n_rows, self.n_components):
            raise ValueError(
                f"init has shape {given.shape}, expected a map of the rows of X, "
                f"({n_rows}, {self.n_components})"
            )
        return np.asarray(given)

    def _mapping(
        self, X: Matrix, free: Array, basis: Basis, seed: int, n_threads: int
    ) -> mac.Mapping:
        weight = np.ones(X.shape[0])
        template = self.estimator
        if template is None:
            depth = int(np.clip(np.log2(max(len(free), 2) / LEAF_ROWS), 1, DEEPEST))
            depth = depth if self.max_depth == "auto" else int(self.max_depth)
            template = TAOTreeRegressor(
                split="oblique", leaf=self.leaf, max_depth=depth, alpha=float(self.alpha),
                shrinkage=LEAF_RIDGE if self.leaf == "linear" else 0.0, l2=L2,
                max_iter=self.max_iter, init=clustered_tree(free, basis, depth),
            )  # fmt: skip
        if not isinstance(template, TAOTreeRegressor):
            return RegressorMapping(template, X, weight)
        return TreeMapping(
            clone(template), X, weight, seed, n_threads, self.tao_iter,
            alpha_over_mu=True, own_unit=True, basis=basis,
        )  # fmt: skip

    def _keep_tree(self, predictor: TreePredictor, energy: Energy, X: Matrix, basis: Basis) -> None:
        """Keep the tree, its leaves refined if that is asked for, with the rows at its nodes."""
        tree, leaf = predictor.tree, predictor.leaf(X)
        reached = np.bincount(leaf, minlength=tree.n_leaves).astype(np.float64)
        self.tree_: Tree = replace(tree, weight=node_totals(tree, reached))
        self._predictor = replace(predictor, tree=self.tree_)
        if not (self.objective == "tsne" if self.refine == "auto" else self.refine):
            return
        refined = refine_leaves(energy, self.tree_, leaf, basis, REFINE_ITERATIONS)
        candidate = replace(predictor, tree=refined)
        outputs = candidate.predict(X)
        if energy(outputs)[0] < energy(self.embedding_)[0]:
            self.tree_, self._predictor, self.embedding_ = refined, candidate, outputs

    # ---- placing --------------------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Return where the rows are on the map, new ones as well."""
        check_is_fitted(self)
        return np.asarray(self._predictor.predict(encode(self, X, self.columns_)))

    def apply(self, X: Any) -> Array:
        """Return the node number of the leaf that each row reaches."""
        check_is_fitted(self)
        if not isinstance(self._predictor, TreePredictor):
            raise AttributeError(
                f"{type(self.estimator).__name__} is not a tree: there are no leaves to tell of"
            )
        leaf = self._predictor.leaf(encode(self, X, self.columns_))
        return np.asarray(self._predictor.tree.leaf_nodes[leaf])


def _start(scores: Array, n_components: int, seed: int) -> Array:
    """Principal scores with a little noise, which keeps no axis empty and no two rows on a spot."""
    noise = np.random.default_rng(seed).normal(scale=0.01, size=(len(scores), n_components))
    axes = min(n_components, scores.shape[1])
    noise[:, :axes] += scores[:, :axes]
    return noise
