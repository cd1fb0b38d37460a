"""The single trees that ours stand beside, each tuned on the training rows alone.

Every function takes a seed and how to tune, and returns an estimator with ``fit`` and ``predict``.
A peer that is not installed, or does not run with the installed scikit-learn, is Unavailable.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_classification
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.data import Unavailable
from benchmarks.table import skip

DEPTHS = (*range(2, 21), None)
QUICK_DEPTHS = (3, 8)
PRUNING = (0.0, 1e-3)
OBLIQUE_DEPTHS = (4, 6, 8, 10, 12, 16)
REGRESSION_GRID = {"max_depth": (4, 6, 8, 10, 12, 15, 20, None), "min_samples_leaf": (1, 5, 20)}
LINEAR_TREE_GRID = {"max_depth": (3, 5, 7), "min_samples_leaf": (0.1, 0.01)}
LINEAR_TREE_ROWS = 2000  # that its grid is searched on; a fit on all rows takes minutes


def cart_classifier(seed, inner_folds, quick=False):
    """CART with depth and pruning by inner cross-validation."""
    grid = {"max_depth": QUICK_DEPTHS if quick else DEPTHS, "ccp_alpha": PRUNING}
    return _tuned(DecisionTreeClassifier(random_state=seed), grid, inner_folds)


def cart_regressor(seed, inner_folds, quick=False):
    """CART for regression with depth and smallest leaf by inner cross-validation."""
    grid = {"max_depth": QUICK_DEPTHS} if quick else REGRESSION_GRID
    return _tuned(DecisionTreeRegressor(random_state=seed), grid, inner_folds)


def treeple_oblique(seed, inner_folds, quick=False):
    """Return treeple's greedy oblique tree, the depth by inner cross-validation."""
    from treeple.tree import ObliqueDecisionTreeClassifier

    grid = {"max_depth": QUICK_DEPTHS if quick else OBLIQUE_DEPTHS}
    return _tuned(ObliqueDecisionTreeClassifier(random_state=seed), grid, inner_folds)


def linear_tree(seed, inner_folds, quick=False):
    """Return linear-tree's greedy tree of linear regressions, tuned on some of the rows.

    Its default leaves hold a tenth of the rows, too many for most sets, and it rounds losses to
    five decimals, which stops it at targets of small range: hence the grid and the scaled target.
    """
    from lineartree import LinearTreeRegressor

    grid, rows = (
        LINEAR_TREE_GRID,
        ShuffleSplit(1, train_size=LINEAR_TREE_ROWS, test_size=LINEAR_TREE_ROWS, random_state=seed),
    )
    if quick:
        grid, rows = {"max_depth": (3,)}, inner_folds
    tree = _tuned(LinearTreeRegressor(LinearRegression(), max_bins=10), grid, rows)
    return TransformedTargetRegressor(tree, transformer=StandardScaler())


class YdfSparseObliqueTree(ClassifierMixin, BaseEstimator):
    """One sparse oblique CART tree of YDF, pruned on the share of rows that it sets aside."""

    def __init__(self, *, max_depth=16, validation_ratio=0.1, random_state=0):
        self.max_depth = max_depth
        self.validation_ratio = validation_ratio
        self.random_state = random_state

    def fit(self, X, y):
        """Train on the rows of X and their classes."""
        import ydf

        ydf.verbose(0)
        learner = ydf.CartLearner(
            label="class",
            split_axis="SPARSE_OBLIQUE",
            sparse_oblique_normalization="MIN_MAX",
            max_depth=self.max_depth,
            validation_ratio=self.validation_ratio,
            random_seed=self.random_state,
            num_threads=1,
        )
        self.model_ = learner.train({"x": X.astype(np.float32), "class": y})
        self.classes_ = np.asarray(self.model_.label_classes()).astype(y.dtype)
        return self

    def predict(self, X):
        """Return the most probable class of each row."""
        probability = self.model_.predict({"x": X.astype(np.float32)})
        if probability.ndim == 1:  # two classes: the probability of the second one
            return self.classes_[(probability > 0.5).astype(int)]
        return self.classes_[probability.argmax(axis=1)]


def ydf_sparse_oblique(seed, inner_folds, quick=False):
    """Return YDF's sparse oblique tree, pruned by itself or of limited depth, by inner folds."""
    grid = [{"validation_ratio": [0.1]}]
    if not quick:
        grid.append({"validation_ratio": [0.0], "max_depth": OBLIQUE_DEPTHS})
    return _tuned(YdfSparseObliqueTree(random_state=seed), grid, inner_folds)


def usable(peers, notes):
    """Keep the peers that run here; each of the others becomes a note.

    Parameters
    ----------
    peers : dict from a name to a function of this module
    notes : list that the reasons are added to
    """
    kept = {}
    for name, build in peers.items():
        try:
            _try_out(name, build)
        except Unavailable as error:
            skip(error, notes)
        else:
            kept[name] = build
    return kept


def _try_out(name, build):
    """Fit a peer on a few rows: a package can be installed and yet fail to import or to fit."""
    X, y = make_classification(60, random_state=0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            build(0, 2, quick=True).fit(X, y).predict(X)
    except ImportError as error:
        raise Unavailable(f"{name}, not installed ({error})") from error
    except Exception as error:
        raise Unavailable(f"{name}, does not run with these versions ({error})") from error


def _tuned(estimator, grid, inner_folds):
    """Choose by inner folds, then fit all training rows."""
    return GridSearchCV(estimator, grid, cv=inner_folds, n_jobs=-1, error_score="raise")
