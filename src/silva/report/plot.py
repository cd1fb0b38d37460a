"""A fitted tree as a picture.

Sizes are measured in points at a base font, subtrees are pushed together until they almost touch,
and the whole is scaled to the axes: nothing overlaps, whatever the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from silva.report.text import (
    Reading,
    leaf_formulas,
    leaf_winners,
    node_test,
    number,
    output_names,
    read,
    row_count,
)
from silva.tree import Tree

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]

# All lengths are in points.
FONT, LINE, PAD = 9.0, 10.8, 4.5  # font size, line height, margin inside a box
GAP, DROP, SLOPE = 9.0, 20.0, 0.08  # between neighbours, between levels, more where edges are long
IMAGE = 64.0  # longer side of an image
THIN, THICK = 0.6, 6.0  # edges that carry no row and all rows
LARGEST = 60 * 72.0  # side of a figure


def plot_tree(
    model: Any,
    *,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[Any] | None = None,
    max_depth: int | None = None,
    max_terms: int | None = 3,
    decimals: int = 2,
    filled: bool = True,
    image_shape: tuple[int, int] | None = None,
    ax: Axes | None = None,
    fontsize: float | None = None,
) -> list[Artist]:
    """Draw a tree.

    A decision node shows what it asks, its edges show the answers and are as thick as their share
    of the training rows. A leaf shows its answer; its colour is that of its class, the deeper the
    purer, or darker for larger numbers. Of several outputs the first one gives the colour.

    Parameters
    ----------
    model : fitted Silva tree or Tree
    feature_names : sequence of str, default=None
        Names of the input columns; by default those seen at fit, or x0, x1, ...
    class_names : sequence of str, default=None
        Names of the classes in the order of ``classes_``; a list of such sequences for several
        outputs. Given with a bare Tree, its answers are read as class probabilities.
    max_depth : int, default=None
        Deeper nodes are left out, the root being at depth 0; None for all.
    max_terms : int, default=3
        Terms shown of a sum, the largest coefficients first; None for all.
    decimals : int, default=2
        Digits after the decimal point; numbers below 1 keep as many significant digits.
    filled : bool, default=True
        Colour the leaves.
    image_shape : (int, int), default=None
        Height and width of the images that the rows are: the coefficients of a decision node are
        then drawn as such an image, positive ones blue and negative ones red.
    ax : matplotlib Axes, default=None
        Where to draw; by default the current axes, or a new figure of fitting size.
    fontsize : float, default=None
        In points; by default as large as fits.

    Returns
    -------
    list of matplotlib artists
        The boxes (texts or images) of the nodes shown, from the root on, then the texts of the
        edges.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot_tree needs matplotlib: pip install silva[plot]") from error
    reading = read(model, feature_names, class_names, decimals, max_terms)
    tree = reading.tree
    if image_shape is not None and np.prod(image_shape) != tree.n_features:
        raise ValueError(
            f"image_shape={image_shape} does not match the {tree.n_features} columns of the tree"
        )
    deepest = tree.depth if max_depth is None else max_depth
    layout = _lay_out(reading, deepest, image_shape)
    if ax is None and plt.get_fignums():
        ax = plt.gca()
    elif ax is None:
        width, height = (min(side, LARGEST) / 72 for side in layout.size)
        ax = plt.figure(figsize=(width, height)).add_axes((0, 0, 1, 1))
    colours = _leaf_colours(reading) if filled else None
    return _draw(reading, layout, ax, fontsize, colours)


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the nodes stand, in points at the base font, y upwards.

    Attributes
    ----------
    size : (float, float)
        Width and height of the whole.
    content : dict of int to str or array
        Words of a node, or the image that stands for them, for each node shown.
    answers : dict of int to str
        What is written on the edge above a node.
    boxes : dict of int to (float, float)
        Width and height of the node's box.
    x, top : dict of int to float
        Its middle and its upper side.
    level : dict of int to float
        Height of the highest box at the node's depth.
    """

    size: tuple[float, float]
    content: dict[int, str | Array]
    answers: dict[int, str]
    boxes: dict[int, tuple[float, float]]
    x: dict[int, float]
    top: dict[int, float]
    level: dict[int, float]


def _lay_out(reading: Reading, deepest: int, image_shape: tuple[int, int] | None) -> Layout:
    tree, depth = reading.tree, reading.tree.node_depth
    nodes = np.flatnonzero(depth <= deepest + 1).tolist()
    content: dict[int, str | Array] = {}
    answers = {0: ""}
    for node in nodes:
        if tree.left[node] < 0:
            content[node] = _leaf_words(reading, node)
        elif depth[node] > deepest:
            content[node] = "(…)"
        else:
            decision = node_test(reading, node)
            content[node] = "\n".join(decision.terms)
            if image_shape is not None:
                content[node] = tree.coefficients[[node]].toarray().reshape(image_shape)
            answers[int(tree.left[node])] = decision.left
            answers[int(tree.right[node])] = decision.right
    boxes = {node: _measure(content[node]) for node in nodes}
    widths = {node: max(boxes[node][0], _measure(answers[node])[0]) for node in nodes}
    x = _spread(tree, widths)
    top, level = _descend(tree, {node: boxes[node][1] for node in nodes}, x)
    left = min(x[node] - widths[node] / 2 for node in nodes) - GAP
    right = max(x[node] + widths[node] / 2 for node in nodes) + GAP
    floor = min(top[node] - level[node] for node in nodes) - GAP
    x = {node: x[node] - left for node in nodes}
    top = {node: top[node] - floor for node in nodes}
    return Layout((right - left, GAP - floor), content, answers, boxes, x, top, level)


def _measure(content: str | Array) -> tuple[float, float]:
    """Width and height of a box around words or an image."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    if isinstance(content, str):
        font, lines = FontProperties(size=FONT), content.split("\n")
        sizes = [text_to_path.get_text_width_height_descent(line, font, False) for line in lines]
        return max(size[0] for size in sizes) + 2 * PAD, len(lines) * LINE + 2 * PAD
    height, width = content.shape
    scale = IMAGE / max(height, width)
    return scale * width + PAD, scale * height + PAD


def _spread(tree: Tree, widths: dict[int, float]) -> dict[int, float]:
    """Horizontal centres of the nodes: subtrees as close as they go, parents over the middle."""
    half: dict[int, float] = {}  # distance from a parent to each of its children
    edges: dict[int, tuple[Array, Array]] = {}  # outline of a subtree, level by level
    for node in reversed(widths):  # children come after their parents
        reach = np.array([widths[node] / 2])
        edges[node] = (-reach, reach)
        left, right = int(tree.left[node]), int(tree.right[node])
        if left in widths:
            (a, b), (c, d) = edges.pop(left), edges.pop(right)
            common = min(len(b), len(c))
            half[node] = float((b[:common] - c[:common]).max() + GAP) / 2
            low = np.append(a - half[node], (c + half[node])[len(a) :])
            high = np.append(d + half[node], (b - half[node])[len(d) :])
            edges[node] = (np.append(-reach, low), np.append(reach, high))
    x = {0: 0.0}
    for node, distance in sorted(half.items()):
        x[int(tree.left[node])] = x[node] - distance
        x[int(tree.right[node])] = x[node] + distance
    return x


def _descend(
    tree: Tree, heights: dict[int, float], x: dict[int, float]
) -> tuple[dict[int, float], dict[int, float]]:
    """Upper sides of the boxes, the root's at 0, and heights of their levels.

    Boxes of a level hang from one line; long edges are given more room to fall.
    """
    top: dict[int, float] = {0: 0.0}
    level: dict[int, float] = {}
    row = [0]
    while row:
        height = max(heights[node] for node in row)
        level |= dict.fromkeys(row, height)
        edges = [(n, int(side[n])) for n in row for side in (tree.left, tree.right)]
        edges = [(parent, child) for parent, child in edges if child in heights]
        longest = max((abs(x[parent] - x[child]) for parent, child in edges), default=0.0)
        below = top[row[0]] - height - DROP - SLOPE * longest - LINE
        row = [child for _, child in edges]
        top |= dict.fromkeys(row, below)
    return top, level


def _leaf_words(reading: Reading, node: int) -> str:
    tree, leaf = reading.tree, int(reading.tree.leaf_index[node])
    if tree.slopes is not None:
        heads = [f"{name}: " for name in output_names(reading)] if tree.n_outputs > 1 else [""]
        formulas = zip(heads, leaf_formulas(reading, leaf), strict=True)
        lines = [line for head, terms in formulas for line in (head + terms[0], *terms[1:])]
    elif reading.classes is not None:
        winners = leaf_winners(reading, leaf)
        lines = [line for name, share in winners for line in (name, f"{100 * share:.0f} %")]
    else:
        values = tree.values[leaf]
        lines = [number(value, reading.decimals) for value in values[: reading.max_terms]]
        if len(lines) < len(values):
            lines.append("…")
    return "\n".join([*lines, row_count(reading, node)])


def class_colours(count: int) -> Array:
    """Colour of each class as RGBA."""
    from matplotlib import colormaps

    hues = np.arange(count) if count <= 10 else np.linspace(0, 1, count, endpoint=False)
    return np.asarray(colormaps["tab10" if count <= 10 else "hsv"](hues))


def _leaf_colours(reading: Reading) -> Array:
    """Colour of each leaf as RGBA, light enough for black letters."""
    from matplotlib import colormaps

    tree = reading.tree
    if reading.classes is not None:
        shares = tree.values[:, : len(reading.classes[0])]
        count = shares.shape[1]
        palette = class_colours(count)
        purity = np.clip((shares.max(axis=1) * count - 1) / max(count - 1, 1), 0, 1)[:, None]
        return np.asarray(1 - (0.1 + 0.55 * purity) * (1 - palette[shares.argmax(axis=1)]))
    middle = tree.values[:, 0] if tree.bounds is None else tree.bounds[:, :, 0].mean(axis=0)
    span = np.ptp(middle) or 1.0
    return np.asarray(colormaps["Blues"](0.05 + 0.5 * (middle - middle.min()) / span))


def _draw(
    reading: Reading, layout: Layout, ax: Axes, fontsize: float | None, colours: Array | None
) -> list[Artist]:
    tree, (width, height) = reading.tree, layout.size
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.set_axis_off()
    window = ax.get_window_extent()
    points = 72 / ax.figure.dpi
    fit = min(window.width * points / width, window.height * points / height, 1.5)
    font = FONT * fit if fontsize is None else fontsize
    zoom = font / FONT
    unit = zoom * height / (window.height * points)  # a point of a box, in the units of y

    nodes: list[Artist] = []
    labels: list[Artist] = []
    style: dict[str, Any] = {"fontsize": font, "ha": "center", "parse_math": False}
    for node, content in layout.content.items():
        x, top = layout.x[node], layout.top[node]
        if isinstance(content, str):
            frame = {"boxstyle": f"round,pad={PAD / FONT}", "fc": "white", "ec": "0.35", "lw": zoom}
            if tree.left[node] < 0 and colours is not None:
                frame |= {"fc": colours[tree.leaf_index[node]], "ec": "0.6"}
            words = ax.text(x, top - PAD * unit, content, va="top", bbox=frame, zorder=3, **style)
            nodes.append(words)
        else:
            nodes.append(ax.add_artist(_picture(content, (x, top), zoom)))
        for child in (int(tree.left[node]), int(tree.right[node])):
            if child in layout.content:
                below, end = layout.x[child], layout.top[child]
                share = tree.weight[child] / (tree.weight[0] or 1.0)
                start, bend = layout.boxes[node][1] * unit, layout.level[node] * unit
                ax.plot(
                    (x, x, below),
                    (top - start, top - bend, end + (LINE + 3) * unit),
                    color="0.7",
                    lw=zoom * (THIN + THICK * share),
                    solid_capstyle="round",
                    solid_joinstyle="round",
                    zorder=1,
                )
                words = ax.text(below, end + unit, layout.answers[child], va="bottom", **style)
                labels.append(words)
    return nodes + labels


def _picture(values: Array, place: tuple[float, float], zoom: float) -> Artist:
    """Coefficients as an image that hangs from a place: blue above zero, red below."""
    from matplotlib.colors import CenteredNorm
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    image = OffsetImage(
        values,
        zoom=zoom * IMAGE / max(values.shape),
        cmap="RdBu",
        norm=CenteredNorm(halfrange=np.abs(values).max() or 1.0),
        interpolation="nearest",
    )
    frame = {"ec": "0.35", "lw": zoom}
    return AnnotationBbox(image, place, box_alignment=(0.5, 1), pad=0.1, bboxprops=frame)
