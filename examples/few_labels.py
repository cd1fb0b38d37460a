"""Twenty labels, 400 rows without one: a tree, a forest, and what known totals add.

The tree is fitted to what a forest of the labelled rows and a graph of alike rows say of all rows.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from silva import SilvaForestClassifier, SilvaTreeClassifier, export_text

data = load_breast_cancer(as_frame=True)
names = data.target_names[data.target]
X, X_test, truth, y_test = train_test_split(data.data, names, stratify=names, random_state=0)
y = truth.astype(object)
known = np.random.default_rng(0).permutation(len(y))[:20]
y[np.setdiff1d(np.arange(len(y)), known)] = None

tree = SilvaTreeClassifier(max_depth=3, alpha=3.0, random_state=0).fit(X, y)
forest = SilvaForestClassifier(random_state=0).fit(X, y)
alone = RandomForestClassifier(random_state=0).fit(X.iloc[known], truth[known])
print(tree.report_)
print(f"\none tree of {tree.get_n_leaves()} leaves: {tree.score(X_test, y_test):.1%}")
print(f"the ensemble: {forest.score(X_test, y_test):.1%}")
print(f"a random forest on the 20 labels: {alone.score(X_test, y_test):.1%}")

hidden = np.setdiff1d(np.arange(len(y)), known)
classes, counts = np.unique(truth[hidden], return_counts=True)
totals = dict(zip(classes.tolist(), counts.tolist(), strict=True))
told = SilvaTreeClassifier(max_depth=3, alpha=3.0, random_state=0).fit(X, y, class_totals=totals)
print(f"the tree, told that {totals}: {told.score(X_test, y_test):.1%}\n")
print(export_text(tree))
