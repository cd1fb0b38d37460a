"""The k nearest neighbours of every row: exact or approximate, whatever repeats.

Rows that repeat are searched once and multiplied again afterwards, so a table with half a million
rows of which a third differ costs what the third costs. A row's copies are its neighbours at
distance 0; a row is never its own neighbour.
"""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from scipy import sparse
from sklearn.metrics import pairwise_distances
from sklearn.utils.extmath import row_norms

from silva import exact_neighbours as exact
from silva.copies import Copies, find_copies
from silva.kernels import Matrix
from silva.tree import Array

PACKED_BYTES = 2**29  # sparse rows are packed for the scan when they take no more, dense
BLOCK_CELLS = 2**23  # distances of sparse rows at a time
# Processor time, measured: pynndescent on one core compiles once, then takes so much for a row and
# for a number in it; the exact search of sparse rows multiplies all pairs of numbers in a column.
COMPILE_SECONDS, ROW_SECONDS, DENSE_SECONDS, SPARSE_SECONDS = 30.0, 45e-6, 1.5e-7, 2e-5
MULTIPLY_SECONDS, SELECT_SECONDS = 3.5e-9, 1.2e-8
SMALL = 2000  # rows; with fewer the exact search takes no time
INSTALL = "install it with pip install 'silva[ann]'"


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest neighbours of each row, nearest first.

    Attributes
    ----------
    index : int32 array of shape (rows, k)
    distance : float64 array of shape (rows, k)
    """

    index: Array
    distance: Array


def nearest_neighbours(
    X: Matrix,
    k: int,
    *,
    method: str = "auto",
    metric: str = "euclidean",
    n_threads: int = 1,
    seed: int = 0,
    verbose: int = 0,
) -> Neighbours:
    """Return the k nearest neighbours of each row.

    Parameters
    ----------
    X : float array of shape (rows, columns), C-contiguous, or canonical CSR
        Finite.
    k : int
        At least 1, less than the number of rows.
    method : {"auto", "exact", "approximate"}
        "auto" is exact unless approximate is expected to take less time. Neither depends on the
        number of threads.
    metric : {"euclidean", "cosine", "manhattan"}
    n_threads, seed, verbose : int
        The seed serves the approximate search.
    """
    if metric == "cosine":
        X = _directions(X)
    copies = find_copies(X)
    rows = X if len(copies.first) == X.shape[0] else X[copies.first]
    n, wanted = rows.shape[0], copies.size <= k
    if verbose > 0:
        print(f"[graph] {X.shape[0]} rows, {n} of them distinct", flush=True)
    absolute = metric == "manhattan"
    if n == 1:
        index, distance = np.zeros((1, 1), np.int32), np.zeros((1, 1))
    else:
        index, distance = _search(
            rows, min(k, n - 1), absolute, wanted, method, n_threads, seed, verbose
        )
    if metric == "cosine":
        distance /= 2  # 1 - cos, of rows of length one
    elif not absolute:
        np.sqrt(distance, out=distance)
    return expand_copies(Neighbours(index, distance), copies, k)


def _directions(X: Matrix) -> Matrix:
    """Return rows of length one; a row of zeros gets a direction of its own, at a right angle."""
    if sparse.issparse(X):
        squares = row_norms(X.astype(np.float64), squared=True)
    else:
        squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    empty = (squares == 0)[:, None].astype(X.dtype)
    inverse = (1 / np.sqrt(np.where(squares > 0, squares, 1))).astype(X.dtype)
    if not sparse.issparse(X):
        X = X * inverse[:, None]
        return np.concatenate([X, empty], axis=1) if empty.any() else X
    X = sparse.csr_array(sparse.diags_array(inverse) @ X)
    return sparse.csr_array(sparse.hstack([X, empty])) if empty.any() else X


def _search(
    X: Matrix,
    k: int,
    absolute: bool,
    wanted: Array,
    method: str,
    n_threads: int,
    seed: int,
    verbose: int,
) -> tuple[Array, Array]:
    """Find the neighbours of wanted rows among distinct ones; the others' have no meaning."""
    if method == "approximate":
        return _search_approximately(X, k, absolute, n_threads, seed, verbose)
    leaves = _pack(X, absolute)
    if method == "auto" and not _exact_pays(X, leaves, k, n_threads, verbose):
        del leaves
        return _search_approximately(X, k, absolute, n_threads, seed, verbose)
    return _search_exactly(X, leaves, k, absolute, wanted, n_threads, verbose)


def _pack(X: Matrix, absolute: bool) -> exact.Leaves | None:
    """Pack rows for the scan, unless they are sparse and would take too much memory."""
    if sparse.issparse(X) and X.shape[0] * X.shape[1] * 4 > PACKED_BYTES:
        return None
    return exact.pack(X, absolute)


def _search_exactly(
    X: Matrix,
    leaves: exact.Leaves | None,
    k: int,
    absolute: bool,
    wanted: Array,
    n_threads: int,
    verbose: int,
) -> tuple[Array, Array]:
    report = _Progress(verbose)
    if leaves is None:
        return _search_sparse(X, k, absolute, wanted, n_threads, report)
    return exact.search(X, leaves, k, wanted, n_threads, report)


def _exact_pays(
    X: Matrix, leaves: exact.Leaves | None, k: int, n_threads: int, verbose: int
) -> bool:
    """Say whether the exact search is expected to take less processor time, or must do."""
    n, columns = X.shape
    if leaves is not None and verbose <= 0 and exact.most_seconds(leaves) < COMPILE_SECONDS:
        return True
    numbers = X.nnz / n * SPARSE_SECONDS if sparse.issparse(X) else columns * DENSE_SECONDS
    approximately = COMPILE_SECONDS + n * k / 15 * (ROW_SECONDS + numbers)
    if leaves is not None:
        exactly = exact.expected_seconds(leaves, k)
    else:
        filled = np.bincount(X.indices, minlength=columns).astype(np.float64)
        exactly = float((filled**2).sum()) * MULTIPLY_SECONDS + n**2 * SELECT_SECONDS
    pays = exactly <= approximately
    lacking = not pays and find_spec("pynndescent") is None
    if verbose > 0:
        print(
            f"[graph] exact search: about {exactly / n_threads:.0f} s on {n_threads} threads; "
            f"approximate: about {approximately:.0f} s"
            + (f", but it needs pynndescent: {INSTALL}" if lacking else ""),
            flush=True,
        )
    return pays or lacking


def _search_approximately(
    X: Matrix, k: int, absolute: bool, n_threads: int, seed: int, verbose: int
) -> tuple[Array, Array]:
    """Find neighbours by nearest-neighbour descent (Dong, Charikar and Li 2011).

    The descent runs on one thread: on several its result depends on who comes first. Rows for
    which it finds fewer than k neighbours are searched exactly, and so are all where there are few.
    """
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError(f"method='approximate' needs pynndescent: {INSTALL}") from error
    n, count = X.shape[0], k + 1 + exact.SPARE  # the row itself counts
    if n < max(SMALL, 2 * count):
        leaves, everything = _pack(X, absolute), np.ones(n, bool)
        return _search_exactly(X, leaves, k, absolute, everything, n_threads, verbose)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it fell short for some rows: they are searched again
        descent = NNDescent(
            X,
            metric="manhattan" if absolute else "euclidean",
            n_neighbors=count,
            random_state=seed,
            n_jobs=1,
            verbose=verbose > 1,
        )
    rows = np.arange(n, dtype=np.int32)
    candidates = np.array(descent.neighbor_graph[0], dtype=np.int32)
    useless = (candidates < 0) | (candidates == rows[:, None])
    candidates = np.where(useless, rows[:, None], candidates)
    distance = exact.pair_distances(X, rows, candidates, absolute, n_threads)
    distance[useless] = np.inf
    index, distance = exact.nearest_of(candidates, distance, k)
    short = np.isinf(distance[:, -1])
    if short.any():
        again = _search_exactly(X, _pack(X, absolute), k, absolute, short, n_threads, verbose)
        index[short], distance[short] = (part[short] for part in again)
    return index, distance


def _search_sparse(
    X: Matrix, k: int, absolute: bool, wanted: Array, n_threads: int, report: exact.Report
) -> tuple[Array, Array]:
    """Find neighbours exactly, a block of rows against all at a time, without densifying them."""
    n = X.shape[0]
    rows = np.flatnonzero(wanted).astype(np.int32)
    kept = min(k + exact.SPARE, n - 1)
    X = X.astype(np.float64)
    transposed, squares = sparse.csr_array(X.T), row_norms(X, squared=True)
    index, distance = np.zeros((n, k), np.int32), np.zeros((n, k))
    size = max(1, BLOCK_CELLS // n)
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]

    def fill(block: Array) -> None:
        if absolute:
            gap = pairwise_distances(X[block], X, metric="manhattan")
        else:
            gap = squares - 2 * (X[block] @ transposed).toarray()
        gap[np.arange(len(block)), block] = np.inf
        candidates = np.argpartition(gap, kept - 1, axis=1)[:, :kept].astype(np.int32)
        gap = exact.pair_distances(X, block, candidates, absolute, 1)
        index[block], distance[block] = exact.nearest_of(candidates, gap, k)

    pool = ThreadPoolExecutor(n_threads)
    try:
        for number, _ in enumerate(pool.map(fill, blocks)):
            report((number + 1) / len(blocks))
    finally:
        pool.shutdown(cancel_futures=True)
    return index, distance


class _Progress:
    """Print a line when another tenth of the work is done."""

    def __init__(self, verbose: int) -> None:
        self.quiet = verbose <= 0
        self.began, self.tenths = time.perf_counter(), 0

    def __call__(self, share: float) -> None:
        if self.quiet or int(share * 10) <= self.tenths:
            return
        self.tenths = int(share * 10)
        seconds = time.perf_counter() - self.began
        print(
            f"[graph] [{'#' * self.tenths:10}] {seconds:.1f} s, "
            f"about {seconds * (1 / share - 1):.0f} s to go",
            flush=True,
        )


def expand_copies(found: Neighbours, copies: Copies, k: int) -> Neighbours:
    """Turn neighbours among distinct rows into neighbours among all rows.

    The other copies of a row come first, then the copies of its nearest distinct row, and so on
    until there are k. Where a group has more copies than places, no copy may become everybody's
    neighbour: a row takes the others of its own group at growing distances round a ring, so that
    all are few steps apart, and those of another group from a place that depends on the row.
    """
    if len(copies.first) == len(copies.group):
        return found
    n, size = len(copies.group), copies.size
    index, distance = np.empty((n, k), np.int32), np.empty((n, k))
    place = np.empty(n, np.intp)
    place[copies.member] = np.arange(n) - copies.begin[copies.group[copies.member]]
    sizes, size_number = np.unique(size, return_inverse=True)
    steps = np.stack([_ring(int(each), k) for each in sizes])
    for start in range(0, n, chunk := max(1, 2**21 // k**2)):
        rows = np.arange(start, min(start + chunk, n))
        group = copies.group[rows]
        others = found.index[group]
        reach = np.cumsum(size[others], axis=1)  # rows up to and with each distinct neighbour
        later = np.arange(k) - np.minimum(size[group] - 1, k)[:, None]  # place after the copies
        own = later < 0
        source = (reach[:, None, :] <= later[:, :, None]).sum(axis=2)
        other = np.take_along_axis(others, source, axis=1)
        within = later - np.take_along_axis(reach, source, axis=1) + size[other]
        target = np.where(own, group[:, None], other)
        turn = np.where(own, place[rows, None] + steps[size_number[group]], rows[:, None] + within)
        index[rows] = copies.member[copies.begin[target] + turn % size[target]]
        far = np.take_along_axis(found.distance[group], source, axis=1)
        distance[rows] = np.where(own, 0, far)
    return Neighbours(index, distance)


def _ring(size: int, k: int) -> Array:
    """Return k steps round a ring of that many copies, different where there are k others."""
    if size // 2 < k:
        return np.arange(1, k + 1)
    steps = np.round(np.geomspace(1, size // 2, k)).astype(np.intp)
    return np.maximum.accumulate(steps - np.arange(k)) + np.arange(k)
