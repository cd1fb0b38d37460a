import sys
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from silva.estimators.columns import fit_columns
from silva.report import export_text, plot_tree
from silva.tree import Tree

plt.switch_backend("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


class Model(BaseEstimator):
    """A fitted estimator in all that reports look at."""

    def __init__(self, **fitted):
        self.__dict__.update(fitted)

    def fit(self):
        return self


def make_tree(rows, threshold, values, weight, **leaf):
    """Tree of decisions (a list of coefficients) and leaves (None), depth first."""
    left, right = np.full(len(rows), -1, np.int32), np.full(len(rows), -1, np.int32)

    def grow(node):
        if rows[node] is None:
            return node + 1
        left[node] = node + 1
        right[node] = grow(node + 1)
        return grow(right[node])

    assert grow(0) == len(rows)
    width = len(next(row for row in rows if row is not None))
    dense = np.array([[0.0] * width if row is None else row for row in rows])
    return Tree(
        left,
        right,
        sparse.csr_array(dense),
        np.array(threshold, float),
        np.array(values, float),
        np.array(weight, float),
        **leaf,
    )


def stump(row, threshold, values=((0.0,), (1.0,)), **leaf):
    return make_tree([row, None, None], [threshold, 0, 0], values, [10, 4, 6], **leaf)


def iris_tree():
    return make_tree(
        [[0, 1.0, 0], None, [0.52, 0, -1.3], None, None],
        [0.8, 0, 2.41, 0, 0],
        [[1, 0, 0], [0, 0.97, 0.03], [0, 0.25, 0.75]],
        [150, 50, 100, 34, 66],
    )


NAMES = ["sepal width", "petal width", "sepal length"]
CLASSES = np.array(["setosa", "versicolor", "virginica"])


def test_rules_of_a_small_tree():
    model = Model(tree_=iris_tree(), classes_=CLASSES, feature_names_in_=np.array(NAMES))
    assert export_text(model).splitlines() == [
        "|--- petal width < 0.8",
        "|   |--- class: setosa (100 %, 50 rows)",
        "|--- petal width >= 0.8",
        "|   |--- -1.3*sepal length + 0.52*sepal width < 2.41",
        "|   |   |--- class: versicolor (97 %, 34 rows)",
        "|   |--- -1.3*sepal length + 0.52*sepal width >= 2.41",
        "|   |   |--- class: virginica (75 %, 66 rows)",
    ]


def test_a_bare_tree_takes_names_as_arguments():
    tree = iris_tree()
    model = Model(tree_=tree, classes_=CLASSES, feature_names_in_=np.array(NAMES))
    assert export_text(tree, feature_names=NAMES, class_names=CLASSES) == export_text(model)
    assert "x1 < 0.8" in export_text(tree)
    assert "value: [0, 0.97, 0.03]" in export_text(tree)


@pytest.mark.parametrize(
    ("row", "threshold", "left", "right"),
    [
        ([2.0], 3.0, "x0 < 1.5", "x0 >= 1.5"),
        ([-2.0], 3.0, "x0 > -1.5", "x0 <= -1.5"),
        ([-2.0], 0.0, "x0 > 0", "x0 <= 0"),
        ([0.0], 1.0, "0 < 1", "0 >= 1"),
    ],
)
def test_the_coefficient_is_divided_out_of_an_axis_aligned_test(row, threshold, left, right):
    lines = export_text(stump(row, threshold)).splitlines()
    assert lines[0] == f"|--- {left}"
    assert lines[2] == f"|--- {right}"


@pytest.mark.parametrize(
    ("name", "coefficient", "threshold", "left", "right"),
    [
        ("colour=red", 1, 0.5, "colour is not red", "colour is red"),
        ("colour=red", 3, 3, "colour is not red", "colour is red"),
        ("colour=red", -1, -0.5, "colour is red", "colour is not red"),
        ("colour=red", -1, 0, "colour is red", "colour is not red"),
        ("income is missing", 2, 0.1, "income is not missing", "income is missing"),
        ("colour=red", 1, 0, "colour=red < 0", "colour=red >= 0"),
        ("colour=red", 1, 7, "colour=red < 7", "colour=red >= 7"),
    ],
)
def test_indicators_read_as_words(name, coefficient, threshold, left, right):
    tree = stump([float(coefficient)], threshold)
    lines = export_text(tree, feature_names=[name]).splitlines()
    assert lines[0] == f"|--- {left}"
    assert lines[2] == f"|--- {right}"


def test_encoded_columns_are_reported_under_the_names_of_the_input():
    frame = pd.DataFrame({"a=b": np.arange(12.0), "colour": ["red", "green", "blue"] * 4})
    model = Model()
    _, model.columns_ = fit_columns(model, frame)
    model.tree_ = stump([0.0, 0, 0, 1], 0.5)
    assert export_text(model).startswith("|--- colour is not red")
    assert export_text(model, feature_names=["x", "hue"]).startswith("|--- hue is not red")
    model.tree_ = stump([1.0, 0, 0, 0], 0.5)
    assert export_text(model).startswith("|--- a=b < 0.5")
    with pytest.raises(ValueError, match="feature_names must have length 2, not 4"):
        export_text(model, feature_names=list("abcd"))


def test_terms_are_ordered_and_cut():
    tree = stump([0.5, -4.0, 1.0, 0.0, -2.0], 1)
    assert export_text(tree).startswith("|--- -4*x1 - 2*x4 + 1*x2 + 0.5*x0 < 1\n")
    assert export_text(tree, max_terms=2).startswith("|--- -4*x1 - 2*x4 … (+2 more) < 1\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (123.45678, "123.457"),
        (1600000000.0, "1600000000"),
        (0.00123456, "0.00123"),
        (-1.23456e-9, "-1.23e-09"),
        (1e20, "1e+20"),
    ],
)
def test_numbers_are_short_and_small_ones_do_not_vanish(value, text):
    assert f"value: [{text}]" in export_text(stump([1.0], 0, [[value], [5.0]]))


def test_decimals_round():
    assert export_text(stump([1.0], 1.23456), decimals=1).startswith("|--- x0 < 1.2\n")
    assert export_text(stump([1.0], 1.6), decimals=0).startswith("|--- x0 < 2\n")


def test_deep_branches_are_cut():
    lines = export_text(iris_tree(), max_depth=0).splitlines()
    assert lines[-1] == "|   |--- truncated branch of depth 1"
    assert len(lines) == 4
    assert export_text(iris_tree(), max_depth=1) == export_text(iris_tree())


def test_weights_are_shown_on_request():
    text = export_text(iris_tree(), class_names=CLASSES, show_weights=True)
    assert "class: virginica (75 %, 66 rows) weights: [0, 16.5, 49.5]" in text
    assert "value: [1] (6 rows)" in export_text(stump([1.0], 0), show_weights=True)


def test_linear_leaves_read_as_formulas():
    slopes = np.array([[[0.4, 0.0]], [[-1.0, 2.5]]])
    tree = stump([1.0, 0.0], 0, [[1.2], [0.0]], slopes=slopes)
    lines = export_text(tree, feature_names=["age", "pay"]).splitlines()
    assert lines[1] == "|   |--- value: 1.2 + 0.4*age"
    assert lines[3] == "|   |--- value: 0 + 2.5*pay - 1*age"
    two = stump([1.0], 0, [[1, 2], [3, 4]], slopes=np.ones((2, 2, 1)))
    assert export_text(two).splitlines()[1:3] == [
        "|   |--- value 0: 1 + 1*x0",
        "|   |--- value 1: 2 + 1*x0",
    ]
    assert "|--- no: 1 + 1*x0" in export_text(two, class_names=["no", "yes"])


def test_several_outputs_name_a_class_each():
    tree = stump([1.0], 0, [[0.9, 0.1, 0.2, 0.3, 0.5], [0, 1, 1, 0, 0]])
    model = Model(tree_=tree, classes_=[np.array(["no", "yes"]), np.array([1, 2, 3])])
    assert "class: no, 3 (90 %, 50 %, 4 rows)" in export_text(model)
    words = [["n", "y"], ["one", "two", "three"]]
    assert "class: y, one (100 %, 100 %, 6 rows)" in export_text(model, class_names=words)
    with pytest.raises(ValueError, match="class_names must have length 2, not 1"):
        export_text(model, class_names=words[:1])


def test_a_tree_of_one_leaf_is_its_answer():
    none = sparse.csr_array((1, 2))
    minus = np.array([-1])
    leaf = Tree(minus, minus, none, np.zeros(1), np.array([[2.5]]), np.array([1.0]))
    assert export_text(leaf) == "|--- value: [2.5]"
    (box,) = plot_tree(leaf)
    assert box.get_text() == "2.5\n1 row"


@pytest.mark.parametrize("report", [export_text, plot_tree])
def test_bad_arguments_are_named(report):
    with pytest.raises(NotFittedError):
        report(Model())
    with pytest.raises(TypeError, match="is not a single tree"):
        report(Model(estimators_=[]))
    with pytest.raises(ValueError, match="feature_names must have length 3, not 2"):
        report(iris_tree(), feature_names=["a", "b"])
    with pytest.raises(ValueError, match="class_names must have length 3, not 1"):
        report(iris_tree(), class_names=["a"])


def texts(artists):
    return [artist.get_text() for artist in artists]


def test_a_plot_shows_questions_answers_and_leaves():
    artists = plot_tree(iris_tree(), feature_names=NAMES, class_names=CLASSES)
    assert texts(artists) == [
        "petal width",
        "setosa\n100 %\n50 rows",
        "-1.3*sepal length\n+ 0.52*sepal width",
        "versicolor\n97 %\n34 rows",
        "virginica\n75 %\n66 rows",
        "< 0.8",
        ">= 0.8",
        "< 2.41",
        ">= 2.41",
    ]


def test_purer_leaves_are_darker_and_classes_differ():
    boxes = plot_tree(iris_tree(), class_names=CLASSES)
    setosa, versicolor, virginica = (
        np.array(boxes[i].get_bbox_patch().get_facecolor()[:3]) for i in (1, 3, 4)
    )
    assert setosa.sum() < virginica.sum()
    assert not np.allclose(versicolor, virginica)
    plain = plot_tree(iris_tree(), class_names=CLASSES, filled=False)
    assert plain[1].get_bbox_patch().get_facecolor() == (1, 1, 1, 1)


def test_edges_are_as_thick_as_their_share_of_rows():
    _, ax = plt.subplots()
    plot_tree(iris_tree(), ax=ax)
    widths = [line.get_linewidth() for line in ax.lines]
    assert np.argsort(widths).tolist() == [2, 0, 3, 1]


def test_a_cut_plot_ends_in_dots():
    artists = plot_tree(iris_tree(), max_depth=0)
    assert texts(artists)[2] == "(…)"
    assert len(artists) == 5


def test_coefficients_can_be_drawn_as_an_image():
    tree = stump([1.0, -2.0, 0.0, 0.5, 0.0, 0.0], 0.5)
    image = plot_tree(tree, image_shape=(2, 3))[0].offsetbox
    assert image.get_data().shape == (2, 3)
    plt.gcf().canvas.draw()
    with pytest.raises(ValueError, match=r"image_shape=\(2, 2\) does not match the 6 columns"):
        plot_tree(tree, image_shape=(2, 2))


@pytest.mark.parametrize("outputs", [1, 5])
def test_linear_and_wide_leaves_are_drawn(outputs):
    values = np.arange(2.0 * outputs).reshape(2, outputs)
    assert texts(plot_tree(stump([1.0], 0, values)))[1].endswith("rows")
    slopes, bounds = np.ones((2, outputs, 1)), np.stack([values, values + 1])
    artists = plot_tree(stump([1.0], 0, values, slopes=slopes, bounds=bounds))
    assert "+ 1*x0" in texts(artists)[1]


def test_many_classes_have_colours():
    names = [f"class {i}" for i in range(30)]
    values = np.eye(30)[[3, 17]]
    boxes = plot_tree(stump([1.0], 0, values), class_names=names)
    colours = [box.get_bbox_patch().get_facecolor() for box in boxes[1:3]]
    assert colours[0] != colours[1]


def test_dollars_in_names_are_letters():
    boxes = plot_tree(stump([1.0], 0), feature_names=["$pay_{"])
    plt.gcf().canvas.draw()  # as mathematics it would not parse
    assert "pay_{" in boxes[0].get_text()


def test_plotting_uses_the_current_axes_and_the_given_font():
    _, ax = plt.subplots()
    assert plot_tree(iris_tree(), fontsize=5)[0].axes is ax
    assert plot_tree(iris_tree(), fontsize=5)[0].get_fontsize() == 5


def test_missing_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install silva\[plot\]"):
        plot_tree(iris_tree())


shapes = st.recursive(st.none(), lambda inner: st.tuples(inner, inner), max_leaves=16)


def unfold(shape, rng):
    if shape is None:
        return [None]
    return [
        rng.normal(size=5) * (rng.random(5) < 0.6),
        *unfold(shape[0], rng),
        *unfold(shape[1], rng),
    ]


@settings(max_examples=20, deadline=None)
@given(st.tuples(shapes, shapes), st.sampled_from([None, (4, 3), (12, 9)]))
def test_boxes_never_overlap(shape, figsize):
    rng = np.random.default_rng(0)
    rows = unfold(shape, rng)
    leaves = sum(row is None for row in rows)
    bounds = rng.normal(size=len(rows))
    tree = make_tree(rows, bounds, rng.random((leaves, 3)), np.full(len(rows), 10))
    plt.close("all")
    ax = plt.subplots(figsize=figsize)[1] if figsize else None
    artists = plot_tree(tree, ax=ax, class_names=["a", "a longer name", "b"])
    plt.gcf().canvas.draw()
    boxes = [text.get_bbox_patch().get_window_extent() for text in artists[: len(rows)]]
    labels = [text.get_window_extent() for text in artists[len(rows) :]]
    assert not any(one.overlaps(other) for one, other in combinations(boxes + labels, 2))
