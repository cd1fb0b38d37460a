"""One tree by alternating optimisation beside greedy trees, on data that scikit-learn carries.

Prints a table for two data sets and the rules of a small tree, and draws the tree that reads
handwritten digits: each picture in it is what one decision looks at.
"""

from pathlib import Path
from time import perf_counter

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.tree import DecisionTreeClassifier

from silva import TAOTreeClassifier, export_text, plot_tree

PICTURE = Path("silva_demo.png")
ACCURATE = {"max_depth": [3, 4, 5, 6], "alpha": [0.1, 0.3, 1]}
READABLE = {"max_depth": [1, 2, 3], "alpha": [1, 2]}
GREEDY = {"max_depth": [1, 2, 3, 4, 5, 6, 8, 10, 12, 15]}


def compare(name, data, grid):
    """Print accuracy on held-out rows, size and training time; return the TAO tree."""
    X, X_test, y, y_test = train_test_split(
        data.data, data.target, test_size=0.3, stratify=data.target, random_state=0
    )
    print(f"{name}: {len(X)} rows to learn from, {len(X_test)} to test, {X.shape[1]} columns")
    print(f"{'':28}{'accuracy':>9}{'leaves':>8}{'depth':>7}{'numbers':>9}{'seconds':>9}")

    tao = tune(TAOTreeClassifier(random_state=0), grid, X, y)
    greedy = tune(DecisionTreeClassifier(random_state=0), GREEDY, X, y)
    small = DecisionTreeClassifier(max_leaf_nodes=max(tao.get_n_leaves(), 2), random_state=0)
    for label, model in (
        ("one TAO tree", tao),
        ("greedy tree", greedy),
        ("greedy tree, as many leaves", small),
    ):
        began = perf_counter()
        model.fit(X, y)
        seconds = perf_counter() - began
        print(
            f"{label:28}{100 * model.score(X_test, y_test):>8.1f}%{model.get_n_leaves():>8}"
            f"{model.get_depth():>7}{count_numbers(model):>9}{seconds:>9.3f}"
        )
    print()
    return tao


def tune(model, grid, X, y):
    """Choose the parameters by cross-validation on the training rows."""
    return GridSearchCV(model, grid, cv=5).fit(X, y).best_estimator_


def count_numbers(model):
    """Numbers that write the tree down; a greedy node has a column and a threshold."""
    if isinstance(model, TAOTreeClassifier):
        return model.n_parameters_
    return 2 * (model.get_n_leaves() - 1) + model.get_n_leaves()


def draw(tree):
    """Save a picture of a tree over 8 x 8 images."""
    figure = plt.figure(figsize=(20, 9.2))
    plot_tree(tree, image_shape=(8, 8), ax=figure.add_axes((0, 0, 1, 0.9)))
    figure.text(0.02, 0.95, "One tree that reads handwritten digits", fontsize=24, weight="bold")
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
    digits = compare("Handwritten digits", load_digits(), ACCURATE)
    cancer = load_breast_cancer()
    tumours = compare("Breast cancer", cancer, READABLE)
    print("The breast cancer tree in words:\n")
    words = {"feature_names": cancer.feature_names, "class_names": cancer.target_names}
    print(export_text(tumours, **words, decimals=2))
    draw(digits)
    print(f"\nThe digits tree as a picture: {PICTURE.resolve()}")


if __name__ == "__main__":
    main()
