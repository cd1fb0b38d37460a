"""The compute table: a few kernels behind one set of names, chosen once per fit.

``cpu`` is the C++ core; ``reference`` is the same in readable NumPy, the truth the core is tested
against. A kernel that a table lacks raises; it never falls back to another table.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from scipy import sparse

from silva.leaves import Leaves
from silva.splits import Split
from silva.tree import Array

Matrix: TypeAlias = Any  # an array or a CSR array: scipy has no types to tell them apart

TABLES = {"cpu": "silva.kernels.cpu", "reference": "silva.kernels.reference"}


@dataclass(frozen=True, eq=False)
class Planes:
    """Hyperplanes of all nodes in scaled units, as CSR arrays: right when w·x + bias >= 0."""

    begin: Array
    index: Array
    value: Array
    bias: Array


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows as a table stores them; column j is (x_j - centre_j) / scale_j."""

    store: Any
    centre: Array
    scale: Array
    n_rows: int


@dataclass(frozen=True, eq=False)
class LeafAnswers:
    """What the leaves of a session answer; slopes and bounds only where they are linear."""

    values: Array
    slopes: Array | None
    bounds: Array | None


class Session(Protocol):
    """One tree being optimised: which leaf each row is in, the planes, the answers."""

    @property
    def n_levels(self) -> int:
        """Depth of the tree."""
        ...

    def route(self) -> None:
        """Send every row to its leaf."""
        ...

    def assign(self, leaf_node: Array) -> None:
        """Put every row into a given leaf node."""
        ...

    def fit_leaves(self) -> float:
        """Refit the answers to the current partition; return the loss."""
        ...

    def update_level(self, level: int, from_current: bool) -> None:
        """Solve all node problems of a level."""
        ...

    def penalty(self) -> float:
        """Price of the decision nodes."""
        ...

    def n_nonzeros(self) -> int:
        """Coefficients in use."""
        ...

    def planes(self) -> Planes:
        """Return the current planes."""
        ...

    def set_planes(self, planes: Planes) -> None:
        """Put planes in place of the current ones."""
        ...

    def answers(self) -> LeafAnswers:
        """Return the current answers of the leaves."""
        ...


class Kernels(Protocol):
    """What a table offers."""

    def prepare(self, X: Matrix, n_threads: int, weight: Array | None = None) -> Rows:
        """Scale and store the training rows, once per fit."""
        ...

    def grow_start(
        self,
        rows: Rows,
        leaves: Leaves,
        direction: str,
        max_depth: int,
        min_rows: int,
        seed: int,
        weight: Array | None = None,
    ) -> tuple[Array, Array, Planes]:
        """Draw a first tree; return left, right and planes."""
        ...

    def session(
        self,
        rows: Rows,
        left: Array,
        right: Array,
        planes: Planes,
        leaves: Leaves,
        weight: Array,
        split: Split,
        monotone: bool,
        n_threads: int,
    ) -> Session:
        """Open a session."""
        ...

    def route(
        self,
        X: Matrix,
        left: Array,
        right: Array,
        coefficients: sparse.csr_array,
        threshold: Array,
        n_threads: int,
    ) -> Array:
        """Return the leaf node of each row, in the user's units."""
        ...

    def node_problem(
        self, rows: Rows, weight: Array, side: Array, split: Split, tolerance: float, n_threads: int
    ) -> Planes:
        """Solve one node problem on all rows."""
        ...


def select(device: str) -> Kernels:
    """Return the table for a device.

    Parameters
    ----------
    device : {"cpu", "reference"}
        "cpu" is the compiled core; "reference" is plain NumPy, for tests and study.
    """
    if device not in TABLES:
        raise ValueError(f"device must be one of {sorted(TABLES)}, got {device!r}")
    table: Any = import_module(TABLES[device])
    return table  # type: ignore[no-any-return]
