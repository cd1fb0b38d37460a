"""Boosted trees: how many are enough, and what unlabelled rows bring when labels are few."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from silva import TAOBoostClassifier

X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)

# Every label known. The error after each tree comes from one fit.
model = TAOBoostClassifier(n_estimators=30, max_iter=10, random_state=0).fit(X, y)
print("trees  accuracy  (all labels)")
for number, score in enumerate(model.staged_score(X_test, y_test), start=1):
    if number in (1, 3, 10, 30):
        print(f"{number:5}{score:10.3f}")
print(f"{model.n_parameters_} parameters, {model.flops_:.0f} of them met by a row\n")

# Five labels a class; -1 marks the rows without one.
few = np.full(len(y), -1)
for digit in range(10):
    rows = np.flatnonzero(y == digit)[:5]
    few[rows] = digit
known = few >= 0
alone = TAOBoostClassifier(n_estimators=30, max_iter=10, random_state=0).fit(X[known], few[known])
forest = RandomForestClassifier(random_state=0).fit(X[known], few[known])
model.fit(X, few)
print("50 labels                        accuracy")
for name, fitted in (
    ("random forest, labels only", forest),
    ("boosted trees, labels only", alone),
    ("boosted trees, all rows", model),
):
    print(f"{name:33}{fitted.score(X_test, y_test):.3f}")
