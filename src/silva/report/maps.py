"""A map of rows as a picture, coloured by what is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from silva.estimators.partial_labels import read_classes
from silva.report.plot import class_colours

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]

POINT, SPOT = 8.0, 900.0  # area of a row, and of a spot with all rows on it, in square points
UNKNOWN = "#c8c8c8"


def plot_map(
    model: Any,
    y: Any = None,
    *,
    free: bool = False,
    ax: Axes | None = None,
) -> list[Artist]:
    """Draw the map of a fitted `TreeEmbedding`.

    A row is a point where the tree places it, in the colour of its class. Where leaves are
    constant, all rows of a leaf are on one spot: its area then tells how many they are, and its
    colour is that of most of those whose class is known.

    Parameters
    ----------
    model : fitted TreeEmbedding
        Of two components.
    y : array of shape (rows,), default=None
        Classes of the training rows; -1 or missing where unknown, which is grey. None: all grey.
    free : bool, default=False
        Draw the free embedding instead, where the objective alone would place the rows.
    ax : matplotlib Axes, default=None
        Where to draw; None draws on the current axes.

    Returns
    -------
    list of matplotlib artists
        What was drawn, class by class, unknown ones first.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from silva import TreeEmbedding, plot_map
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TreeEmbedding(n_outer=2, random_state=0).fit(X[:300])
    >>> artists = plot_map(model, y[:300])
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot_map needs matplotlib: pip install silva[plot]") from error
    check_is_fitted(model)
    if not hasattr(model, "free_embedding_"):
        raise TypeError(f"model must be a fitted TreeEmbedding, got {type(model).__name__}")
    places = np.asarray(model.free_embedding_ if free else model.embedding_)
    n_rows, n_components = places.shape
    if n_components != 2:
        raise ValueError(f"model must have n_components=2 to be drawn, got {n_components}")
    classes, code = _classes(y, n_rows)
    spots, member = np.unique(places, axis=0, return_inverse=True)
    area = np.full(n_rows, POINT)
    if len(spots) < n_rows / 2:  # constant leaves
        places, code = spots, _majority(code, member.ravel(), len(classes))
        area = np.maximum(POINT, SPOT * np.bincount(member.ravel()) / n_rows)
    ax = plt.gca() if ax is None else ax
    ax.set(xticks=[], yticks=[])
    artists: list[Artist] = []
    unknown, (x, y_axis) = code < 0, places.T
    if unknown.any():
        artists.append(
            ax.scatter(x[unknown], y_axis[unknown], s=area[unknown], c=UNKNOWN, linewidths=0)
        )
    for number, colour in enumerate(class_colours(len(classes))):
        here = code == number
        artists.append(
            ax.scatter(
                x[here], y_axis[here], s=area[here], color=colour, label=str(classes[number]),
                linewidths=0, alpha=0.8,
            )
        )  # fmt: skip
    if len(classes):
        ax.legend(fontsize="small", markerscale=1.5, frameon=False, loc="best")
    return artists


def _classes(y: Any, n_rows: int) -> tuple[Array, Array]:
    """Return the classes and the number of each row's, -1 where it is unknown."""
    if y is None:
        return np.zeros(0, int), np.full(n_rows, -1)
    partial = read_classes(y, n_rows)
    return partial.classes, np.where(partial.labelled, partial.codes, -1)


def _majority(code: Array, spot: Array, n_classes: int) -> Array:
    """Return the class of most known rows on each spot, -1 where none is known."""
    n_spots = int(spot.max()) + 1
    known = code >= 0
    votes = np.zeros((n_spots, max(n_classes, 1)))
    np.add.at(votes, (spot[known], code[known]), 1)
    return np.where(votes.any(axis=1), votes.argmax(axis=1), -1)
