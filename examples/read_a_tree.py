"""Reading a fitted tree: its rules, what matters in it, the way of one row, a picture."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

from silva import TAOTreeClassifier, export_text, plot_tree

iris = load_iris()
X, y = iris.data, iris.target_names[iris.target]
names = ["sepal length", "sepal width", "petal length", "petal width"]
model = TAOTreeClassifier(max_depth=2, alpha=0.3, random_state=0).fit(X, y)

print("Rules, in centimetres:\n")
print(export_text(model, feature_names=names, decimals=2))

print("\nWhat matters:\n")
for place in np.argsort(-model.feature_importances_):
    print(f"{names[place]:14}{model.feature_importances_[place]:.2f}")

# The fitted tree is a set of plain arrays; a row goes right when coefficients @ x >= threshold.
row, tree = X[[100]], model.tree_
print(f"\nThe way of one flower to {model.predict(row)[0]}:\n")
for node in model.decision_path(row).indices:
    if tree.left[node] < 0:
        print(f"leaf {node}: {model.predict_proba(row).max():.0%} of its training rows agree")
    else:
        score = (tree.coefficients[[node]] @ row[0]).item()
        side = "right" if score >= tree.threshold[node] else "left"
        print(f"node {node}: {score:.2f} against {tree.threshold[node]:.2f}, so {side}")

plot_tree(model, feature_names=names)
plt.savefig("iris_tree.png", dpi=150)
print("\nsaved iris_tree.png")
