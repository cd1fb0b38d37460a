"""Kernel trees: 50 labelled digits among 1,300, one tree and a forest, and how sure they are."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from silva import KernelForestClassifier, KernelTreeClassifier

X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)

few = np.full(len(y), -1)  # -1 marks the rows without a label
for digit in range(10):
    few[np.flatnonzero(y == digit)[:5]] = digit
known = few >= 0

tree = KernelTreeClassifier(random_state=0).fit(X, few)
forest = KernelForestClassifier(random_state=0).fit(X, few)
print("50 labels                        accuracy")
for name, fitted in (
    ("greedy tree, labels only", DecisionTreeClassifier(random_state=0).fit(X[known], few[known])),
    ("kernel tree, all rows", tree),
    (
        "random forest, labels only",
        RandomForestClassifier(random_state=0).fit(X[known], few[known]),
    ),
    ("kernel forest, all rows", forest),
):
    print(f"{name:33}{fitted.score(X_test, y_test):.3f}")
print(f"\nhidden labels ask for {forest.blend_:.0%} of the semi-supervised forest")

# How far a digit may move, in deviations of the pixels, before the smoothed answer can change.
robust = KernelTreeClassifier(leaf_values="robust", bandwidth=0.4, random_state=0).fit(X, few)
radius = robust.certified_radius(X_test)
print(f"certified radius: {np.median(radius):.2f} in the middle, {radius.max():.2f} at most")
