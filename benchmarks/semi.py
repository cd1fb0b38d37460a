"""Methods for partly labelled data, ours and the baselines, behind one call."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import entr
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import (
    LabelPropagation,
    LabelSpreading,
    SelfTrainingClassifier,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from silva import (
    LapTAOClassifier,
    LapTAORegressor,
    PredictiveClusteringTreeClassifier,
    PredictiveClusteringTreeRegressor,
    SelfTrainingRegressor,
    TAOTreeClassifier,
    TAOTreeRegressor,
)


class LabelsOnly:
    """A supervised model, fitted to the labelled rows alone."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        """Fit the model to the rows that have a label."""
        known = ~np.isnan(y) if y.dtype.kind == "f" else y >= 0
        self.model.fit(X[known], y[known])
        return self

    def predict(self, X):
        """Return the model's answers."""
        return self.model.predict(X)


class SelfTrainedTAO:
    """scikit-learn's self-training around a TAO tree whose settings the labelled rows choose."""

    def __init__(self, seed):
        self.seed = seed

    def fit(self, X, y):
        """Choose the settings, then train on the model's own confident answers."""
        known = y >= 0
        tree = TAOTreeClassifier(random_state=self.seed).fit(X[known], y[known])
        settled = TAOTreeClassifier(
            split=tree.split_, alpha=tree.alpha_, shrinkage=tree.shrinkage_,
            max_depth=max(tree.get_depth(), 1), random_state=self.seed,
        )  # fmt: skip
        self.model = SelfTrainingClassifier(settled, max_iter=10).fit(X, y)
        return self

    def predict(self, X):
        """Return the model's answers."""
        return self.model.predict(X)


class LeastEntropyPropagation:
    """Label propagation over a Gaussian of the width that leaves the least entropy.

    That is the loss of Zhu & Ghahramani (2002), here over rows whose columns have deviation one. A
    row that no label reaches counts as even between the classes.
    """

    def __init__(self, widths, max_iter):
        self.widths = widths
        self.max_iter = max_iter

    def fit(self, X, y):
        """Propagate with each width and keep the best."""
        models = [
            LabelPropagation(gamma=0.5 / width**2, max_iter=self.max_iter).fit(X, y)
            for width in self.widths
        ]
        self.model = min(models, key=lambda model: mean_entropy(model.label_distributions_))
        self.transduction_ = self.model.transduction_
        return self

    def predict(self, X):
        """Return the model's answers."""
        return self.model.predict(X)


def mean_entropy(shares):
    """Return the mean entropy of class shares, an empty row as even shares."""
    empty = shares.sum(axis=1, keepdims=True) == 0
    shares = np.where(empty, 1 / shares.shape[1], shares)
    return float(entr(shares).sum(axis=1).mean())


def classifiers(seed):
    """Return the methods for classes by name; -1 marks an unlabelled row."""
    cart = DecisionTreeRegressor(min_samples_leaf=5, random_state=seed)
    return {
        "LapTAO": LapTAOClassifier(random_state=seed),
        "EBBS, 1 tree": LapTAOClassifier(n_outer=0, refit_leaves=False, random_state=seed),
        "LapCART": LapTAOClassifier(estimator=cart, random_state=seed),
        "TAO, labels only": LabelsOnly(TAOTreeClassifier(random_state=seed)),
        "CART, labels only": LabelsOnly(DecisionTreeClassifier(random_state=seed)),
        "self-trained TAO": SelfTrainedTAO(seed),
        "SSCT": PredictiveClusteringTreeClassifier(random_state=seed),
        "LabelSpreading": make_pipeline(StandardScaler(), LabelSpreading(kernel="knn")),
        "kNN": LabelsOnly(make_pipeline(StandardScaler(), KNeighborsClassifier(1))),
        "forest, labels only": LabelsOnly(RandomForestClassifier(random_state=seed)),
    }


def regressors(seed):
    """Return the methods for numbers by name; NaN marks an unlabelled row."""
    cart = DecisionTreeRegressor(min_samples_leaf=5, random_state=seed)
    linear = TAOTreeRegressor(leaf="linear", random_state=seed)
    return {
        "LapTAO, linear leaves": LapTAORegressor(estimator=linear, random_state=seed),
        "LapTAO": LapTAORegressor(random_state=seed),
        "EBBS, 1 tree": LapTAORegressor(n_outer=0, refit_leaves=False, random_state=seed),
        "LapCART": LapTAORegressor(estimator=cart, random_state=seed),
        "TAO, labels only": LabelsOnly(TAOTreeRegressor(random_state=seed)),
        "TAO, labels only, linear leaves": LabelsOnly(linear),
        "CART, labels only": LabelsOnly(DecisionTreeRegressor(random_state=seed)),
        "self-trained CART": SelfTrainingRegressor(estimator=cart),
        "self-trained TAO": SelfTrainingRegressor(
            estimator=TAOTreeRegressor(alpha=0.1, random_state=seed)
        ),
        "SSCT": PredictiveClusteringTreeRegressor(random_state=seed),
        "kNN": LabelsOnly(make_pipeline(StandardScaler(), KNeighborsRegressor(5))),
        "forest, labels only": LabelsOnly(RandomForestRegressor(random_state=seed)),
    }


def fit_quietly(model, X, y):
    """Fit without the warnings of methods that meet few labels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def choose_labelled(y, share, task, rng):
    """Return the mask of the rows that keep their label.

    Of each class the share, at least two rows; of numbers the share, at least ten.
    """
    order = rng.permutation(len(y))
    labelled = np.zeros(len(y), bool)
    if task == "regression":
        labelled[order[: max(round(share * len(y)), 10)]] = True
        return labelled
    for label in np.unique(y):
        rows = order[y[order] == label]
        labelled[rows[: max(round(share * len(rows)), 2)]] = True
    return labelled


def choose_count(y, count, rng):
    """Return the mask of `count` rows that keep their label, as the kernel tree paper draws them.

    One row of each class, more than asked where there are more classes, then any rows.
    """
    order = rng.permutation(len(y))
    firsts = order[np.unique(y[order], return_index=True)[1]]
    others = order[~np.isin(order, firsts)]
    labelled = np.zeros(len(y), bool)
    labelled[firsts] = True
    labelled[others[: max(count - len(firsts), 0)]] = True
    return labelled


def hide(y, labelled, task):
    """Return y with the other rows marked as unlabelled."""
    return np.where(labelled, y, np.nan if task == "regression" else -1)
