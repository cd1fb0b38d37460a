"""Mixed-integer linear programs as sparse arrays, put together by name.

    minimise  cost·x   subject to   row_lower <= A x <= row_upper,  lower <= x <= upper,
    x_j whole where integer_j.

A `Builder` collects blocks of variables and of rows; the `Program` that it returns is plain arrays,
which `mip_solvers` passes whole to a solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from silva.tree import Array

Terms = list[tuple[Array, Array | float]]  # variables and their coefficients


@dataclass(frozen=True, eq=False)
class Program:
    """A mixed-integer linear program.

    Attributes
    ----------
    cost, lower, upper : float64 arrays of shape (variables,)
    integer : bool array of shape (variables,)
    rows : CSR array of shape (rows, variables)
    row_lower, row_upper : float64 arrays of shape (rows,)
    blocks : mapping of name to an int array of variables
        Shaped as the block was asked for.
    """

    cost: Array
    lower: Array
    upper: Array
    integer: Array
    rows: sparse.csr_array
    row_lower: Array
    row_upper: Array
    blocks: Mapping[str, Array]

    def fixed(self, variables: Array, values: Array) -> Program:
        """Return the program with some variables held at given values."""
        lower, upper = self.lower.copy(), self.upper.copy()
        lower[variables] = upper[variables] = values
        return replace(self, lower=lower, upper=upper)

    def violation(self, x: Array) -> float:
        """Return by how much a point misses the rows and the bounds at most."""
        value = self.rows @ x
        worst = [
            np.max(gap, initial=0.0)
            for gap in (
                self.lower - x, x - self.upper, self.row_lower - value, value - self.row_upper,
                np.abs(x - np.round(x))[self.integer],
            )
        ]  # fmt: skip
        return float(max(worst))


class Builder:
    """Collects the blocks of a program."""

    def __init__(self) -> None:
        self._columns: list[tuple[Array, Array, Array, Array]] = []
        self._entries: list[tuple[Array, Array, Array]] = []
        self._bounds: list[tuple[Array, Array]] = []
        self._blocks: dict[str, Array] = {}
        self._variables = self._rows = 0

    def variables(
        self,
        name: str,
        shape: int | tuple[int, ...],
        lower: Array | float,
        upper: Array | float,
        cost: Array | float = 0.0,
        integer: bool = False,
    ) -> Array:
        """Add a block of variables; return their numbers in the block's shape."""
        count = int(np.prod(shape))
        block = np.arange(self._variables, self._variables + count).reshape(shape)
        self._variables += count
        lower, upper, cost = (
            np.broadcast_to(np.asarray(value, float), block.shape).ravel()
            for value in (lower, upper, cost)
        )
        self._columns.append((lower, upper, cost, np.full(count, integer)))
        self._blocks[name] = block
        return block

    def rows(
        self,
        terms: Sequence[tuple[Array, Array | float]],
        lower: Array | float = -np.inf,
        upper: Array | float = np.inf,
    ) -> None:
        """Add rows lower <= sum of the terms <= upper.

        Parameters
        ----------
        terms : pairs of variables and coefficients
            Variables of shape (rows,), or (rows, width) for several in each row; the coefficients
            have the same shape, or one that broadcasts to it.
        lower, upper : numbers or arrays of shape (rows,)
        """
        count = len(terms[0][0])
        if not count:
            return
        row = np.arange(self._rows, self._rows + count)
        self._rows += count
        for variables, coefficients in terms:
            columns = np.asarray(variables).reshape(count, -1)
            values = np.asarray(coefficients, float)
            if values.ndim == 1 and np.ndim(variables) == 1:
                values = values[:, None]
            values = np.broadcast_to(values, columns.shape)
            self._entries.append(
                (np.repeat(row, columns.shape[1]), columns.ravel(), values.ravel())
            )
        self._bounds.append((
            np.broadcast_to(np.asarray(lower, float), count),
            np.broadcast_to(np.asarray(upper, float), count),
        ))  # fmt: skip

    def program(self) -> Program:
        """Return what was collected."""
        lower, upper, cost, integer = (
            np.concatenate(parts) for parts in zip(*self._columns, strict=True)
        )
        row, column, value = (np.concatenate(parts) for parts in zip(*self._entries, strict=True))
        row_lower, row_upper = (np.concatenate(parts) for parts in zip(*self._bounds, strict=True))
        shape = (self._rows, self._variables)
        rows = sparse.csr_array(sparse.coo_array((value, (row, column)), shape=shape))
        return Program(
            cost, lower, upper, integer.astype(bool), rows, row_lower, row_upper, self._blocks
        )
