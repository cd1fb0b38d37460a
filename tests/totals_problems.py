"""Problems with class totals from the sets of scikit-learn, and opinions about them."""

import itertools

import numpy as np

from silva.optimal.hyperplanes import TotalsProblem, diameter, paper_box
from silva.optimal.totals_starts import Opinion


def posed(X, y, labelled, depth=2):
    """Return the problem in the units of the program, and the classes to be found."""
    half = np.ptp(X, axis=0) / 2
    Z = (X - X.min(axis=0) - half) * (100 / half)
    totals = np.bincount(y[~labelled], minlength=y.max() + 1)
    box = paper_box(*Z.shape, diameter(Z))
    problem = TotalsProblem(Z[labelled], y[labelled], Z[~labelled], totals, depth, box)
    return problem, y[~labelled]


def sampled(load, n_classes=2, share=0.1, seed=0, depth=2):
    """Return a problem whose labels are mostly of the first class."""
    X, y = load(return_X_y=True)
    y = np.minimum(y, n_classes - 1)
    rng = np.random.default_rng(seed)
    chance = np.where(y == 0, 0.6, 0.4)
    labelled = np.zeros(len(y), bool)
    labelled[rng.choice(len(y), round(share * len(y)), False, chance / chance.sum())] = True
    labelled[[int((y == label).argmax()) for label in range(n_classes)]] = True
    return posed(X, y, labelled, depth)


def noisy_opinion(problem, y, seed=0):
    """Return an opinion that is mostly right."""
    rng = np.random.default_rng(seed)
    scores = np.eye(problem.n_classes)[y] + rng.normal(scale=0.4, size=(len(y), problem.n_classes))
    return Opinion.of(scores, problem.totals)


def calls(most):
    """Return a function that wants to stop after so many calls."""
    counter = itertools.count()
    return lambda: next(counter) >= most
