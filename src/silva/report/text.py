"""A fitted tree as rules, and the words that every report uses for tests and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from silva.tree import Tree

Array = npt.NDArray[Any]


def export_text(
    model: Any,
    *,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[Any] | None = None,
    max_depth: int | None = None,
    decimals: int = 3,
    max_terms: int | None = None,
    show_weights: bool = False,
) -> str:
    """Write the rules of a tree as indented text.

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
    decimals : int, default=3
        Digits after the decimal point; numbers below 1 keep as many significant digits.
    max_terms : int, default=None
        Terms shown of a sum, the largest coefficients first; None for all.
    show_weights : bool, default=False
        Add the training weight to the leaves: that of each class, or that of all rows where a
        leaf does not answer with a class.

    Returns
    -------
    str

    Examples
    --------
    >>> from scipy import sparse
    >>> stump = Tree(
    ...     left=np.array([1, -1, -1]), right=np.array([2, -1, -1]),
    ...     coefficients=sparse.csr_array([[0.5, -1.25], [0, 0], [0, 0]]),
    ...     threshold=np.array([2.0, 0, 0]), values=np.array([[1.0, 0.0], [0.2, 0.8]]),
    ...     weight=np.array([15.0, 5, 10]),
    ... )
    >>> print(export_text(stump, feature_names=["width", "length"], class_names=["iris", "rose"]))
    |--- -1.25*length + 0.5*width < 2
    |   |--- class: iris (100 %, 5 rows)
    |--- -1.25*length + 0.5*width >= 2
    |   |--- class: rose (80 %, 10 rows)
    """
    reading = read(model, feature_names, class_names, decimals, max_terms)
    deepest = reading.tree.depth if max_depth is None else max_depth
    return "\n".join(_rules(reading, 0, 0, deepest, show_weights))


@dataclass(frozen=True, eq=False)
class Reading:
    """A tree and how to put it into words.

    Attributes
    ----------
    tree : Tree
    names : tuple of str
        Names of the columns that the tree reads.
    phrases : dict of int to (str, str)
        The columns that hold 0 or 1, as what may be what: "colour=red" is ("colour", "red").
    classes : list of list of str, or None
        Class names of each output; None where the answers are numbers.
    decimals : int
    max_terms : int or None
    """

    tree: Tree
    names: tuple[str, ...]
    phrases: dict[int, tuple[str, str]]
    classes: list[list[str]] | None
    decimals: int
    max_terms: int | None


class Decision(NamedTuple):
    """A decision: the terms of what is asked, and the answers that lead to the left and right."""

    terms: tuple[str, ...]
    left: str
    right: str


def read(
    model: Any,
    feature_names: Sequence[str] | None,
    class_names: Sequence[Any] | None,
    decimals: int,
    max_terms: int | None,
) -> Reading:
    """Collect what a report says about a model; the arguments are those of `export_text`."""
    if isinstance(model, Tree):
        tree = model
    else:
        check_is_fitted(model)
        if not hasattr(model, "tree_"):
            raise TypeError(
                f"{type(model).__name__} is not a single tree: pass a fitted Silva tree, one "
                "member of the ensemble or a silva.tree.Tree"
            )
        tree = model.tree_
    names, phrases = _read_names(model, tree, feature_names)
    return Reading(
        tree, names, phrases, _read_classes(model, tree, class_names), decimals, max_terms
    )


def _read_names(
    model: Any, tree: Tree, given: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[int, tuple[str, str]]]:
    columns = getattr(model, "columns_", None)
    if given is None:
        default = [f"x{place}" for place in range(tree.n_features)]
        inputs = columns.inputs if columns else getattr(model, "feature_names_in_", default)
    else:
        _check_length("feature_names", given, len(columns.inputs) if columns else tree.n_features)
        inputs = [str(name) for name in given]
    names = tuple(columns.named(inputs) if columns else inputs)
    candidates = np.flatnonzero(columns.is_indicator) if columns else range(tree.n_features)
    phrases = {}
    for place in map(int, candidates):
        subject, middle, answer = names[place].partition("=")
        if names[place].endswith(" is missing"):
            phrases[place] = (names[place].removesuffix(" is missing"), "missing")
        elif middle:
            phrases[place] = (subject, answer)
    return names, phrases


def _read_classes(model: Any, tree: Tree, given: Sequence[Any] | None) -> list[list[str]] | None:
    classes: Any = getattr(model, "classes_", None)
    if classes is None and given is None:
        return None
    if classes is None:
        classes = range(tree.n_outputs)
    several = isinstance(classes, list)
    outputs = classes if several else [classes]
    names: Any = outputs if given is None else given if several else [given]
    _check_length("class_names", names, len(outputs))
    for output, words in zip(outputs, names, strict=True):
        _check_length("class_names", words, len(output))
    return [[str(name) for name in words] for words in names]


def _check_length(argument: str, given: Sequence[Any], expected: int) -> None:
    if len(given) != expected:
        raise ValueError(f"{argument} must have length {expected}, not {len(given)}")


def number(value: float, decimals: int) -> str:
    """Write a number shortly: no trailing zeros, and small ones keep their leading digits."""
    if 1 <= abs(value) < 1e15:
        text = f"{value:.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value + 0.0:.{max(decimals, 1)}g}"


def row_count(reading: Reading, node: int) -> str:
    """How much training weight reached a node, in words."""
    count = number(reading.tree.weight[node], 1)
    return f"{count} row" if count == "1" else f"{count} rows"


def node_test(reading: Reading, node: int) -> Decision:
    """Put the decision of a node into words."""
    tree = reading.tree
    row = slice(tree.coefficients.indptr[node], tree.coefficients.indptr[node + 1])
    places, weights = tree.coefficients.indices[row], tree.coefficients.data[row]
    places, weights = places[weights != 0], weights[weights != 0]
    if len(weights) != 1:
        terms = _terms(reading, places, weights)
        lead = terms[0].removeprefix("+ ").replace("- ", "-", 1) if terms else "0"
        bound = number(tree.threshold[node], reading.decimals)
        return Decision((lead, *terms[1:]), f"< {bound}", f">= {bound}")
    place, up = int(places[0]), weights[0] > 0
    bound = tree.threshold[node] / weights[0]
    if place in reading.phrases and (0 < bound <= 1 if up else 0 <= bound < 1):
        subject, answer = reading.phrases[place]
        no, yes = f"is not {answer}", f"is {answer}"
        return Decision((subject,), *((no, yes) if up else (yes, no)))
    bound = number(bound, reading.decimals)
    answers = (f"< {bound}", f">= {bound}") if up else (f"> {bound}", f"<= {bound}")
    return Decision((reading.names[place],), *answers)


def leaf_formulas(reading: Reading, leaf: int) -> list[tuple[str, ...]]:
    """Terms of the linear answer of a leaf, for each output."""
    slopes, values = reading.tree.slopes, reading.tree.values
    assert slopes is not None
    formulas = []
    for value, slope in zip(values[leaf], slopes[leaf], strict=True):
        places = np.flatnonzero(slope)
        terms = _terms(reading, places, slope[places])
        formulas.append((number(value, reading.decimals), *terms))
    return formulas


def leaf_winners(reading: Reading, leaf: int) -> list[tuple[str, float]]:
    """Most probable class of each output and its probability."""
    assert reading.classes is not None
    ends = np.cumsum([len(names) for names in reading.classes])
    parts = np.split(reading.tree.values[leaf], ends[:-1])
    return [
        (names[part.argmax()], float(part.max()))
        for names, part in zip(reading.classes, parts, strict=True)
    ]


def _terms(reading: Reading, places: Array, weights: Array) -> list[str]:
    """Terms with their signs, the largest coefficient first."""
    order = np.argsort(-np.abs(weights), kind="stable")
    shown = order[: reading.max_terms]
    terms = [
        f"{'-' if weights[i] < 0 else '+'} {number(abs(weights[i]), reading.decimals)}"
        f"*{reading.names[places[i]]}"
        for i in shown
    ]
    rest = len(order) - len(shown)
    return [*terms, f"… (+{rest} more)"] if rest else terms


def _rules(
    reading: Reading, node: int, depth: int, deepest: int, show_weights: bool
) -> Iterator[str]:
    tree, indent = reading.tree, "|   " * depth + "|--- "
    if tree.left[node] < 0:
        yield from (indent + line for line in _leaf_lines(reading, node, show_weights))
    elif depth > deepest:
        yield f"{indent}truncated branch of depth {_height(tree, node)}"
    else:
        test = node_test(reading, node)
        for answer, child in ((test.left, tree.left[node]), (test.right, tree.right[node])):
            yield f"{indent}{' '.join(test.terms)} {answer}"
            yield from _rules(reading, child, depth + 1, deepest, show_weights)


def _leaf_lines(reading: Reading, node: int, show_weights: bool) -> list[str]:
    tree, rows = reading.tree, row_count(reading, node)
    leaf = tree.leaf_index[node]
    if reading.classes is not None and tree.slopes is None:
        names, shares = zip(*leaf_winners(reading, leaf), strict=True)
        percent = ", ".join(f"{100 * share:.0f} %" for share in shares)
        weights = ", ".join(number(value, 1) for value in tree.values[leaf] * tree.weight[node])
        ending = f" weights: [{weights}]" if show_weights else ""
        return [f"class: {', '.join(names)} ({percent}, {rows}){ending}"]
    ending = f" ({rows})" if show_weights else ""
    if tree.slopes is None:
        values = ", ".join(number(value, reading.decimals) for value in tree.values[leaf])
        return [f"value: [{values}]{ending}"]
    formulas = [" ".join(terms) for terms in leaf_formulas(reading, leaf)]
    labels = output_names(reading)
    return [f"{label}: {text}{ending}" for label, text in zip(labels, formulas, strict=True)]


def output_names(reading: Reading) -> list[str]:
    """What the answers of a leaf are called."""
    if reading.classes is not None:
        return [name for names in reading.classes for name in names]
    count = reading.tree.n_outputs
    return ["value"] if count == 1 else [f"value {place}" for place in range(count)]


def _height(tree: Tree, node: int) -> int:
    if tree.left[node] < 0:
        return 0
    return 1 + max(_height(tree, int(tree.left[node])), _height(tree, int(tree.right[node])))
