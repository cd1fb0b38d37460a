"""One tree from a handful of labels, with and without the unlabelled rows beside them.

Prints a table for two data sets that scikit-learn carries and the rules of a small tree, and draws
the tree that reads handwritten digits: each picture in it is what one decision looks at.
"""

from pathlib import Path
from time import perf_counter

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from silva import LapTAOClassifier, TAOTreeClassifier, TAOTreeRegressor, export_text, plot_tree

PICTURE = Path("silva_demo.png")


def compare(name, data, n_labels, max_depth, alpha):
    """Print accuracy on held-out rows, size and training time; return the semi-supervised tree."""
    X, X_test, truth, y_test = train_test_split(
        data.data, data.target, test_size=0.3, stratify=data.target, random_state=0
    )
    known, _ = train_test_split(
        np.arange(len(X)), train_size=n_labels, stratify=truth, random_state=0
    )
    y = np.full(len(X), -1)
    y[known] = truth[known]
    print(f"{name}: {len(X)} rows, {n_labels} of them labelled, {len(X_test)} to test")
    print(f"{'':46}{'accuracy':>9}{'leaves':>8}{'seconds':>9}")

    tree = LapTAOClassifier(
        estimator=TAOTreeRegressor(max_depth=max_depth, alpha=alpha, random_state=0),
        random_state=0,
    )
    alone = TAOTreeClassifier(max_depth=max_depth, random_state=0)
    greedy = DecisionTreeClassifier(random_state=0)
    forest = RandomForestClassifier(random_state=0)
    show("one tree, labels and unlabelled rows (LapTAO)", tree, X, y, X_test, y_test)
    show("the same without the unlabelled rows (TAO)", alone, X[known], y[known], X_test, y_test)
    show("a greedy tree without them", greedy, X[known], y[known], X_test, y_test)
    show("a forest of 100 trees without them", forest, X[known], y[known], X_test, y_test)
    print()
    return tree


def show(label, model, X, y, X_test, y_test):
    """Fit a model and print its line."""
    began = perf_counter()
    model.fit(X, y)
    seconds = perf_counter() - began
    accuracy = 100 * model.score(X_test, y_test)
    leaves = model.get_n_leaves() if hasattr(model, "get_n_leaves") else ""
    print(f"{label:46}{accuracy:>8.1f}%{leaves:>8}{seconds:>9.2f}")


def draw(tree):
    """Save a picture of a tree over 8 x 8 images."""
    figure = plt.figure(figsize=(20, 9.2))
    plot_tree(tree, image_shape=(8, 8), ax=figure.add_axes((0, 0, 1, 0.9)))
    figure.text(
        0.02, 0.95, "One tree that reads handwritten digits, learned from 40 labels",
        fontsize=24, weight="bold",
    )  # fmt: skip
    figure.text(
        0.02,
        0.915,
        "Each decision weighs a few pixels: ink on blue ones sends a digit to the right, "
        "ink on red ones to the left. The thicker a branch, the more digits take it.",
        fontsize=13,
        color="0.3",
    )
    figure.savefig(PICTURE, dpi=120)


def main():
    """Run the demonstration."""
    digits = compare("Handwritten digits", load_digits(), n_labels=40, max_depth=5, alpha=0.1)
    cancer = load_breast_cancer()
    tumours = compare("Breast cancer", cancer, n_labels=12, max_depth=1, alpha=3)
    print("The breast cancer tree in words:\n")
    words = {"feature_names": cancer.feature_names, "class_names": cancer.target_names}
    print(export_text(tumours, **words, decimals=2))
    draw(digits)
    print(f"\nThe digits tree as a picture: {PICTURE.resolve()}")


if __name__ == "__main__":
    main()
