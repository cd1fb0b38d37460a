"""A map of the digits that a tree draws: free and joint maps, new rows, and how to read it."""

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from silva import TreeEmbedding, plot_map

matplotlib.use("Agg")
import matplotlib.pyplot as plt

X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), random_state=0)

linear = TreeEmbedding(random_state=0).fit(X)
spots = TreeEmbedding(leaf="constant", init=linear.free_embedding_, random_state=0).fit(X)
print("map                 objective  new digits among their own kind")
for name, model in (("tree, linear leaves", linear), ("tree, constant leaves", spots)):
    near = KNeighborsClassifier(10).fit(model.embedding_, y)
    print(f"{name:22}{model.energy_:7.3f}{near.score(model.transform(X_new), y_new):12.3f}")
print(f"{'free, no mapping':22}{linear.free_energy_:7.3f}")

# The first decision: which pixels send a digit to the right half of the tree.
tree = linear.tree_
weight = tree.coefficients[[0]].toarray()[0]
strongest = np.argsort(-np.abs(weight * X.std(axis=0)))[:5]
print("\nthe root looks at", np.count_nonzero(weight), "pixels, above all at (row, column)")
for pixel in strongest:
    print(f"  {divmod(int(pixel), 8)}  {'right' if weight[pixel] > 0 else 'left'} when dark")
goes_right = X @ weight >= tree.threshold[0]
for side, rows in (("left", ~goes_right), ("right", goes_right)):
    kinds = [digit for digit in range(10) if np.mean(rows[y == digit]) > 0.8]
    print(f"{side:5}: most of {kinds}")

figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for axis, title, model, free in zip(
    axes, ("free", "tree", "spots"), (linear, linear, spots), (True, False, False), strict=True
):
    plot_map(model, y, free=free, ax=axis)
    axis.set_title(title)
axes[1].scatter(*linear.transform(X_new).T, c=y_new, cmap="tab10", s=20, marker="x", linewidths=0.6)
figure.savefig("digits_map.png", dpi=100)
print("\ndigits_map.png: the training digits, crosses are new ones")
