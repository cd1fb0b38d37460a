"""The picture of a map: every row where the tree places it, in the colour of its class."""

import matplotlib
import numpy as np
import pytest
from sklearn.datasets import load_iris

from silva import TAOTreeClassifier, TreeEmbedding, plot_map

matplotlib.use("Agg")
import matplotlib.pyplot as plt

QUICK = {"n_outer": 1, "max_iter": 3, "max_depth": 2, "random_state": 0}


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, y, TreeEmbedding(**QUICK).fit(X), TreeEmbedding(leaf="constant", **QUICK).fit(X)


@pytest.fixture
def axes():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def test_each_class_is_drawn_where_its_rows_are(iris, axes):
    _, y, model, _ = iris
    artists = plot_map(model, y, ax=axes)
    assert len(artists) == 3
    for number, artist in enumerate(artists):
        np.testing.assert_allclose(artist.get_offsets(), model.embedding_[y == number])
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == ["0", "1", "2"]


def test_rows_of_unknown_class_are_grey_and_the_names_of_classes_are_shown(iris, axes):
    _, y, model, _ = iris
    names = np.array(["setosa", "versicolor", "virginica"], object)[y]
    names[y == 2] = None
    unknown, *known = plot_map(model, names, ax=axes)
    np.testing.assert_allclose(unknown.get_offsets(), model.embedding_[y == 2])
    assert len(set(unknown.get_facecolor()[0][:3])) == 1  # grey
    assert [artist.get_label() for artist in known] == ["setosa", "versicolor"]


def test_without_classes_all_rows_are_grey_and_there_is_no_legend(iris, axes):
    artists = plot_map(iris[2], ax=axes)
    assert len(artists) == 1
    assert axes.get_legend() is None


def test_free_map_is_the_free_embedding(iris, axes):
    (artist,) = plot_map(iris[2], free=True, ax=axes)
    np.testing.assert_allclose(artist.get_offsets(), iris[2].free_embedding_)


def test_spots_of_constant_leaves_have_the_area_of_their_rows_and_the_colour_of_most(iris, axes):
    _, y, _, spots = iris
    artists = plot_map(spots, y, ax=axes)
    leaf = spots.apply(iris[0])
    drawn = {}
    for artist in artists:
        for place, area in zip(artist.get_offsets(), artist.get_sizes(), strict=True):
            drawn[tuple(np.round(place, 9))] = (area, artist.get_label())
    assert len(drawn) == len(np.unique(leaf))
    for node in np.unique(leaf):
        rows = leaf == node
        area, label = drawn[tuple(np.round(spots.embedding_[rows][0], 9))]
        assert area == pytest.approx(900 * rows.mean())
        assert label == str(np.bincount(y[rows]).argmax())


def test_three_components_cannot_be_drawn(iris):
    model = TreeEmbedding(n_components=3, **QUICK).fit(iris[0])
    with pytest.raises(ValueError, match="n_components=2"):
        plot_map(model)


def test_another_model_is_refused(iris):
    tree = TAOTreeClassifier(max_depth=1, alpha=1.0).fit(iris[0], iris[1])
    with pytest.raises(TypeError, match="TreeEmbedding, got TAOTreeClassifier"):
        plot_map(tree)


def test_classes_of_another_number_of_rows_are_refused(iris):
    with pytest.raises(ValueError, match="150"):
        plot_map(iris[2], iris[1][:10])
