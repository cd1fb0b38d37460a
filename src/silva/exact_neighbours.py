"""The nearest neighbours of every row, exactly: a scan in float32 that skips what cannot matter.

Rows are turned into the principal axes of a sample, so that a few coordinates carry most of a
distance, and cut into leaves of nearby rows. The compiled scan (`cpp/neighbours.hpp`) skips leaves
by their boxes and drops rows as soon as the first coordinates put them out of reach: on images it
looks at one coordinate in seven (MNIST), on tables at one in sixty (kddcup). The distances of what
it keeps are then taken again in float64 from the rows as they were given. Where the rounding of
float32 could have hidden a nearer row, that row is searched again in float64. Ties go to the lower
index, unless more rows tie than are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse
from threadpoolctl import threadpool_limits

from silva import _core
from silva.kernels import Matrix
from silva.tree import Array

LEAF = 256  # rows of a leaf at most
LANES = 16  # rows of a group, whose coordinates lie side by side
HEAD = 48  # principal axes; with as many columns or a few more the rows are rotated altogether
BOXED = 32  # first coordinates that the boxes of the leaves bound
SAMPLE = 1000  # rows that the axes are taken from
SPARE = 8  # neighbours searched beyond those asked for, against rounding and ties
CHUNK = 4096  # rows in float64 at a time
LOOK_SECONDS, ROW_SECONDS = 2e-9, 5e-6  # a coordinate of a group for four rows; a row kept
CALL_SECONDS = 0.3  # of one call of the scan: Ctrl-C is seen between two

Report = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Axes:
    """Coordinates of the scan, whose distances are those of the rows times `scale`.

    With a basis a row is its projection on it, followed by what the basis leaves, if anything;
    without one it is its columns in another order. Distances do not depend on the basis, as long
    as it is orthonormal: it decides only how soon far rows are seen to be far.

    Attributes
    ----------
    centre : array of shape (columns,)
    basis : array of shape (columns, axes) or None
    order : int array of shape (columns,)
    scale : float
        A power of two, against overflow and underflow of squares in float32.
    """

    centre: Array
    basis: Array | None
    order: Array
    scale: float

    @property
    def n_head(self) -> int:
        """Leading coordinates, which come before any remainder."""
        return len(self.order) if self.basis is None else self.basis.shape[1]

    @property
    def n_dims(self) -> int:
        """Coordinates of a row."""
        whole = self.n_head == len(self.order)
        return len(self.order) if whole else self.n_head + len(self.order)

    def head(self, rows: Array) -> Array:
        """Return the leading coordinates of some rows."""
        rows = (rows - self.centre) * self.scale
        return rows[:, self.order] if self.basis is None else rows @ self.basis

    def all(self, rows: Array) -> Array:
        """Return all coordinates of some rows."""
        head = self.head(rows)
        if self.basis is None or self.n_dims == self.n_head:
            return head
        rest = (rows - self.centre) * self.scale - head @ self.basis.T
        return np.concatenate([head, rest], axis=1)


@dataclass(frozen=True, eq=False)
class Leaves:
    """Rows cut into leaves, as the compiled scan reads them.

    Attributes
    ----------
    points : float array of shape (groups, dims, 16)
    id : int32 array of shape (groups * 16,)
        Row of each lane; -1 where a group is not full.
    begin : int32 array of shape (leaves + 1,)
        First group of each leaf.
    low, high, centre : float arrays of shape (leaves, boxed)
        Box around, and mean of, the first coordinates.
    norm : float64 array of shape (rows,)
        Length of each row in these coordinates, which bounds its rounding.
    axes : Axes
    absolute : bool
        Distances are sums of absolute differences, not of squares.
    """

    points: Array
    id: Array
    begin: Array
    low: Array
    high: Array
    centre: Array
    norm: Array
    axes: Axes
    absolute: bool

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.begin) - 1


def dense_rows(X: Matrix, index: Any) -> Array:
    """Return some rows as a float64 array."""
    rows = X[index]
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, dtype=np.float64)


def pack(X: Matrix, absolute: bool, dtype: type = np.float32) -> Leaves:
    """Cut the rows into leaves."""
    with threadpool_limits(1, user_api="blas"):  # the same axes whatever the number of threads
        axes = _choose_axes(X, absolute)
        n, boxed = X.shape[0], min(axes.n_head, BOXED)
        head = np.empty((n, boxed), dtype)
        for start in range(0, n, CHUNK):
            head[start : start + CHUNK] = axes.head(dense_rows(X, slice(start, start + CHUNK)))[
                :, :boxed
            ]
        order, begin = _partition(head)
        sizes = np.diff(begin)
        groups = np.concatenate([[0], np.cumsum(-(-sizes // LANES))]).astype(np.int32)
        id = np.full(groups[-1] * LANES, -1, np.int32)
        id[np.arange(n) + np.repeat(groups[:-1] * LANES - begin[:-1], sizes)] = order
        sorted_head = head[order]
        boxes: list[Array] = [
            np.ascontiguousarray(reduce.reduceat(sorted_head, begin[:-1], axis=0), dtype)
            for reduce in (np.minimum, np.maximum, np.add)
        ]
        points, norm = _pack_points(X, axes, id, absolute, dtype)
    centre = boxes[2] / sizes[:, None].astype(dtype)
    return Leaves(points, id, groups, boxes[0], boxes[1], centre, norm, axes, absolute)


def _choose_axes(X: Matrix, absolute: bool) -> Axes:
    n, columns = X.shape
    sample = dense_rows(X, np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.intp))
    centre = sample.mean(axis=0)
    sample -= centre
    largest = max(float(abs(X).max()) if sparse.issparse(X) else _largest(X), 1e-300)
    scale = 2.0 ** (40 - np.ceil(np.log2(largest) + np.log2(columns) / 2 + 1))
    if absolute:
        order = np.argsort(-np.abs(sample).mean(axis=0), kind="stable")
        return Axes(centre, None, order, scale)
    sample *= scale
    count = columns if columns <= HEAD + BOXED // 2 else HEAD
    return Axes(centre, _principal(sample, count), np.arange(columns), scale)


def _largest(X: Array) -> float:
    return float(max(X.max(), -X.min()))


def _principal(sample: Array, count: int) -> Array:
    """Orthonormal columns: the principal axes of centred rows, by the smaller Gram matrix."""
    rows, columns = sample.shape
    if columns <= rows or count == columns:
        last = [columns - count, columns - 1]
        return np.ascontiguousarray(
            linalg.eigh(sample.T @ sample, subset_by_index=last)[1][:, ::-1]
        )
    count = min(count, rows)
    vectors = linalg.eigh(sample @ sample.T, subset_by_index=[rows - count, rows - 1])[1]
    return np.linalg.qr(sample.T @ vectors[:, ::-1])[0]


def _partition(head: Array) -> tuple[Array, Array]:
    """Order the rows by leaves of at most LEAF rows; return the order and where each leaf begins.

    A part is halved at the median of the coordinate that varies most in it.
    """
    order = np.arange(len(head))
    begin, parts = [], [(0, len(head))]
    while parts:
        first, last = parts.pop()
        size = last - first
        if size <= LEAF:
            begin.append(first)
            continue
        rows = order[first:last]
        coordinate = np.argmax(head[rows[:: max(1, size // 500)]].var(axis=0, dtype=np.float64))
        half = -(-(size // 2) // LANES) * LANES
        order[first:last] = rows[np.argpartition(head[rows, coordinate], half)]
        parts += [(first + half, last), (first, first + half)]
    return order, np.array([*begin, len(head)])


def _pack_points(
    X: Matrix, axes: Axes, id: Array, absolute: bool, dtype: type
) -> tuple[Array, Array]:
    points: Array = np.empty((len(id) // LANES, axes.n_dims, LANES), dtype)
    norm = np.empty(X.shape[0])
    for start in range(0, len(id), CHUNK):
        rows = id[start : start + CHUNK]
        inside = rows >= 0
        coordinates = np.full((len(rows), axes.n_dims), 2.0**60)  # farther than any row
        coordinates[inside] = axes.all(dense_rows(X, rows[inside]))
        size = np.abs(coordinates) if absolute else coordinates**2
        norm[rows[inside]] = size.sum(axis=1)[inside]
        lanes = coordinates.reshape(-1, LANES, axes.n_dims).transpose(0, 2, 1)
        points[start // LANES : start // LANES + len(lanes)] = lanes
    return points, norm if absolute else np.sqrt(norm)


def most_seconds(leaves: Leaves) -> float:
    """Return the processor time that `search` takes at most, when nothing can be skipped."""
    looks = len(leaves.norm) ** 2 / (4 * LANES) * leaves.axes.n_dims
    return looks * LOOK_SECONDS + len(leaves.norm) * ROW_SECONDS


def expected_seconds(leaves: Leaves, k: int) -> float:
    """Return the processor time that `search` will take, from the looks that a few leaves need.

    It counts operations and holds no clock, so that what is decided by it can be repeated.
    """
    probe = np.unique(np.linspace(0, leaves.n_leaves - 1, 12).astype(np.int32))
    kept = min(k + SPARE, len(leaves.norm) - 1)
    wanted = (leaves.id >= 0).astype(np.uint8)
    looks = _scan(leaves, wanted, probe, *_room(leaves, kept), 1)
    share = len(probe) / leaves.n_leaves
    return looks / share * LOOK_SECONDS + len(leaves.norm) * ROW_SECONDS


def search(
    X: Matrix, leaves: Leaves, k: int, wanted: Array, n_threads: int, report: Report
) -> tuple[Array, Array]:
    """Find the k nearest other rows of each wanted row.

    Parameters
    ----------
    X : matrix of shape (rows, columns)
        What the leaves were cut from.
    leaves : Leaves
    k : int
        Less than the number of rows.
    wanted : bool array of shape (rows,)
    n_threads : int
    report : callable
        Told from time to time what share of the work is done.

    Returns
    -------
    index : int32 array of shape (rows, k)
        Nearest first; a row that is not wanted has no meaning.
    distance : float64 array of shape (rows, k)
        Sums of squared (or absolute) differences.
    """
    n = X.shape[0]
    rows = np.flatnonzero(wanted).astype(np.int32)
    kept = min(k + SPARE, n - 1)
    candidates, farthest = _search_leaves(leaves, rows, kept, n_threads, report)
    gap = pair_distances(X, rows, candidates, leaves.absolute, n_threads)
    index, distance = np.zeros((n, k), np.int32), np.zeros((n, k))
    index[rows], distance[rows] = nearest_of(candidates, gap, k)
    if kept < n - 1:
        doubtful = rows[_may_hide(leaves, rows, distance[rows, -1], farthest)]
        if doubtful.size:
            precise = pack(X, leaves.absolute, np.float64)
            kept = min(4 * kept, n - 1)
            candidates, _ = _search_leaves(precise, doubtful, kept, n_threads, report)
            gap = pair_distances(X, doubtful, candidates, leaves.absolute, n_threads)
            index[doubtful], distance[doubtful] = nearest_of(candidates, gap, k)
    return index, distance


def _may_hide(leaves: Leaves, rows: Array, reach: Array, farthest: Array) -> Array:
    """Say for which rows something that the scan left out may be as near as the k-th one kept.

    A coordinate is rounded in proportion to its row's length, and a row within reach d of one of
    length r has length r + d at most, so a distance is off by no more than
    rounding · (2 r + d) + rounding · dims · d.

    Parameters
    ----------
    leaves : Leaves
    rows : int array
    reach : float64 array of shape (rows,)
        Exact distance of the k-th neighbour.
    farthest : array of shape (rows,)
        The scan's distance of the last one it kept, in its own scale.
    """
    rounding = 2.0**-22  # of four operations
    farthest = farthest.astype(np.float64)
    if not leaves.absolute:
        reach, farthest = np.sqrt(reach), np.sqrt(farthest)
    reach = reach * leaves.axes.scale
    error = rounding * (2 * leaves.norm[rows] + (1 + leaves.axes.n_dims / 4) * reach)
    underflow = farthest < 2.0**-50
    return np.asarray((farthest - error <= reach) | underflow)


def _search_leaves(
    leaves: Leaves, rows: Array, kept: int, n_threads: int, report: Report
) -> tuple[Array, Array]:
    """Return the `kept` nearest rows by the scan, and the scan's distance of the last of them."""
    is_query = np.zeros(len(leaves.norm) + 1, np.uint8)  # the last one is the padding's
    is_query[rows] = 1
    wanted = is_query[leaves.id]
    queries = np.flatnonzero(np.add.reduceat(wanted, leaves.begin[:-1] * LANES, dtype=np.intp))
    neighbour, distance = _room(leaves, kept)
    done, size = 0, n_threads
    while done < len(queries):
        began = time.perf_counter()
        part = queries[done : done + size].astype(np.int32)
        _scan(leaves, wanted, part, neighbour, distance, n_threads)
        done += len(part)
        report(done / len(queries))
        seconds = max(time.perf_counter() - began, 1e-6)
        size = int(np.clip(size * CALL_SECONDS / seconds, n_threads, 4 * size))
    return neighbour[rows], distance[rows, -1]


def _room(leaves: Leaves, kept: int) -> tuple[Array, Array]:
    shape = (len(leaves.norm), kept)
    return np.empty(shape, np.int32), np.empty(shape, leaves.points.dtype)


def _scan(
    leaves: Leaves,
    wanted: Array,
    queries: Array,
    neighbour: Array,
    distance: Array,
    n_threads: int,
) -> int:
    """Fill the rows of the queries in some leaves; return how many coordinates it looked at."""
    looked: int = _core.neighbours(
        leaves.points,
        leaves.id,
        leaves.begin,
        leaves.low,
        leaves.high,
        leaves.centre,
        wanted,
        queries,
        leaves.absolute,
        neighbour,
        distance,
        n_threads,
    )
    return looked


def nearest_of(candidates: Array, distance: Array, k: int) -> tuple[Array, Array]:
    """Return the k nearest of each row's candidates by (distance, index), and their distances."""
    order = np.lexsort((candidates, distance), axis=1)[:, :k]
    return (
        np.take_along_axis(candidates, order, axis=1),
        np.take_along_axis(distance, order, axis=1),
    )


def pair_distances(
    X: Matrix, rows: Array, candidates: Array, absolute: bool, n_threads: int
) -> Array:
    """Return the sums of squared (or absolute) differences of rows and candidates, in float64."""
    distance = np.empty(candidates.shape)
    if not sparse.issparse(X):
        _core.pair_distances(X, rows, candidates, absolute, distance, n_threads)
        return distance
    for start in range(0, len(rows), CHUNK // 4):
        part = slice(start, start + CHUNK // 4)
        count = candidates.shape[1]
        ends = np.repeat(rows[part], count), candidates[part].ravel()
        one, other = (X[end].astype(np.float64) for end in ends)
        gap = one - other
        size = abs(gap) if absolute else gap.multiply(gap)
        distance[part] = np.asarray(size.sum(axis=1)).reshape(-1, count)
    return distance
