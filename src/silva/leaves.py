"""The leaf problem: what a leaf answers and how a row's loss in it is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

from silva.tree import Array


@dataclass(frozen=True, eq=False)
class ClassShares:
    """Class shares at each leaf.

    Attributes
    ----------
    codes : int32 array of shape (rows, targets)
        Class of each row; the classes of several targets are numbered one after the other.
    class_begin : int32 array of shape (targets + 1,)
        Where the classes of each target begin, and their total number at the end.
    loss : {"misclassification", "squared", "log"}
        Loss of a row in a leaf, see `silva.losses`.
    """

    codes: Array
    class_begin: Array
    loss: str = "misclassification"


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean of the targets at each leaf, squared error.

    Attributes
    ----------
    targets : float64 array of shape (rows, outputs)
    """

    targets: Array


@dataclass(frozen=True, eq=False)
class Basis:
    """A few directions that stand for many columns: scores are ``directions @ (x - centre)``.

    Attributes
    ----------
    scores : float64 array of shape (rows, directions)
    directions : float64 array of shape (directions, features)
    centre : float64 array of shape (features,)
    """

    scores: Array
    directions: Array
    centre: Array


@dataclass(frozen=True, eq=False)
class Linear:
    """Ridge regression on the rows of each leaf, squared error.

    Predictions are clipped to what the leaf's own rows span.

    Attributes
    ----------
    targets : float64 array of shape (rows, outputs)
    ridge : float
        Price of the squared slopes, in scaled units.
    basis : Basis or None
        What the lines are drawn over, as it is; None is all columns in scaled units.
    """

    targets: Array
    ridge: float = 1.0
    basis: Basis | None = None


Leaves = ClassShares | Mean | Linear


def take_rows(leaves: Leaves, rows: Array) -> Leaves:
    """Return the same problem on some of the rows."""
    if isinstance(leaves, ClassShares):
        return replace(leaves, codes=leaves.codes[rows])
    if isinstance(leaves, Linear) and leaves.basis is not None:
        basis = replace(leaves.basis, scores=leaves.basis.scores[rows])
        return replace(leaves, targets=leaves.targets[rows], basis=basis)
    return replace(leaves, targets=leaves.targets[rows])
