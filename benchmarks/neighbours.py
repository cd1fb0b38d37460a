"""Nearest neighbours of every row: the exact search beside approximate libraries.

Fifteen neighbours of each row, Euclidean, on one thread: seconds of processor time, recall (the
share of neighbours that are no farther than the true fifteenth one, over 300 rows compared with
all others in float64) and memory above the input. Each library runs in a process of its own, all
its data sets in turn. Compiling is not counted in the seconds: a small search comes first, and
what it takes is the column "start". The exact peers of scikit-learn answer 300 rows; their time is
scaled to all. HNSW indexes have 16 links, 100 candidates when building and 40 when searching; IVF
has 4 √N cells, trained in 10 iterations on 40 rows each, of which 16 are probed. "Same on two
threads" compares all neighbours of the first set with those found on one. The larger sets are for
those that are quick enough on the smaller ones.

The last rows are whole graphs by `affinity_graph`, weights included, on all cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks.data import Unavailable
from benchmarks.memory import STATUS, megabytes
from benchmarks.table import Table, available, progress, skip

K = 15
LIBRARIES = {
    "silva, exact": ("silva_exact", "silva"),
    "silva, approximate (pynndescent)": ("silva_approximate", "pynndescent"),
    "faiss, IVF": ("faiss_ivf", "faiss"),
    "faiss, HNSW": ("faiss_hnsw", "faiss"),
    "usearch, HNSW": ("usearch_hnsw", "usearch"),
    "hnswlib, HNSW": ("hnswlib_hnsw", "hnswlib"),
    "scikit-learn, brute force": ("sklearn_brute", "sklearn"),
    "scikit-learn, k-d tree": ("sklearn_tree", "sklearn"),
}
"""Name in the table to function of this module and the module that it needs."""
QUICK = ("silva_exact", "silva_approximate", "faiss_ivf")
"""Functions that answer the larger sets too."""
FACTS = [
    "Licences: pynndescent BSD-2-Clause, faiss-cpu MIT, usearch Apache-2.0, hnswlib Apache-2.0.",
    "Wheels for Linux, Python 3.11 to 3.14: pynndescent (pure Python, on numba and llvmlite), "
    "faiss-cpu and usearch have them; hnswlib is compiled on installation.",
    "Chosen for the extra `ann`: pynndescent. On one thread it repeats itself; it knows the "
    "Manhattan distance and sparse rows. Its price is compiling, once in a process.",
]


def run(options):
    """Return the table."""
    notes = [f"Load average before the run: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores."]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        small, large = write_sets(Path(folder), options.quick, notes)
        for library, (function, module) in LIBRARIES.items():
            names = small + large if function in QUICK else small
            try:
                found = in_process(f"measure({function!r}, {module!r}, {names!r}, {folder!r})")
            except Unavailable as error:
                skip(f"{library}, {error}", notes)
            else:
                rows += [{"data set": row["data set"], "search": library, **row} for row in found]
        rows.sort(key=lambda row: (small + large).index(row["data set"]))
    rows += [in_process(f"graph({name!r})") for name in ("mnist", "kddcup") if large]
    return Table(rows, notes + FACTS, ("pynndescent", "faiss-cpu", "usearch", "hnswlib"))


def write_sets(folder, quick, notes):
    """Save the data sets as float32 arrays and return the names of the small and the large ones."""
    small, large = {"clusters": clusters(3000 if quick else 100_000)}, {}
    if not quick:
        for data in available(["mnist", "kddcup"], notes):
            if data.name == "mnist":
                small["mnist, some"], large["mnist"] = data.X[:20_000], data.X
            else:
                small["kddcup, distinct"] = distinct(data.X)
        large["curved"] = curved(300_000)
    for name, X in {**small, **large}.items():
        np.save(folder / f"{name}.npy", np.ascontiguousarray(X, np.float32))
        notes.append(f"{name}: {X.shape[0]} × {X.shape[1]}.")
    notes.append(
        "clusters: 100 normal ones; curved: 50 normal clusters in 8 dimensions, bent into 64, and "
        "noise; of kddcup the columns are scaled to unit deviation."
    )
    return list(small), list(large)


def clusters(n):
    """Return rows of normal clusters in 20 columns."""
    rng = np.random.default_rng(0)
    return 0.3 * rng.normal(size=(n, 20)) + rng.normal(size=(100, 20))[np.arange(n) % 100]


def curved(n):
    """Return rows near a curved surface of 8 dimensions in 64 columns."""
    rng = np.random.default_rng(0)
    inner = rng.normal(size=(n, 8)) + 3 * rng.normal(size=(50, 8))[np.arange(n) % 50]
    bent = np.tanh(0.3 * inner @ rng.normal(size=(8, 64))) @ rng.normal(size=(64, 64))
    return bent + 0.1 * rng.normal(size=(n, 64))


def distinct(X):
    """Return the distinct rows, each column scaled to unit deviation."""
    deviation = X.std(axis=0)
    rows = np.unique(X / np.where(deviation > 0, deviation, 1), axis=0)
    return np.random.default_rng(0).permutation(rows)


def in_process(call):
    """Call a function of this module in a process of its own; it prints what it returns."""
    if not STATUS.exists():
        raise Unavailable("resident memory is read from /proc, which this system lacks")
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"from benchmarks import neighbours; neighbours.{call}"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    if done.returncode != 0:
        raise Unavailable("it failed or is not installed")
    answer = json.loads(done.stdout.splitlines()[-1])
    progress(f"  {answer}")
    return answer


def measure(function, module, names, folder):
    """Print the rows of one library."""
    __import__(module)
    search, rows = globals()[function], []
    began = time.process_time()
    search(np.load(Path(folder) / f"{names[0]}.npy")[:2500], 1)
    start = time.process_time() - began
    for name in names:
        X = np.load(Path(folder) / f"{name}.npy")
        forget_peak()
        before, began = megabytes("VmRSS"), time.process_time()
        queries, index = search(X, 1)
        seconds = (time.process_time() - began) * len(X) / len(queries)
        row = {
            "data set": name,
            "seconds": f"{seconds:.1f}",
            "recall": f"{recall(X, queries, index):.4f}",
            "above the input, MB": f"{max(megabytes('VmHWM') - before, 0):.0f}",
            "start, s": f"{start:.1f}",
        }
        if name == names[0]:
            row["same on two threads"] = "yes" if np.array_equal(index, search(X, 2)[1]) else "no"
        rows.append(row)
    print(json.dumps(rows))


def graph(name):
    """Print the row of a whole graph."""
    from benchmarks.data import load
    from silva.graph import affinity_graph

    X = load(name).X
    if name != "mnist":
        deviation = X.std(axis=0)
        X /= np.where(deviation > 0, deviation, 1)
    forget_peak()
    before, cpu, wall = megabytes("VmRSS"), time.process_time(), time.perf_counter()
    affinity_graph(X, n_jobs=-1)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(
        json.dumps(
            {
                "data set": f"{name}, all {len(X)} rows",
                "search": "affinity_graph",
                "seconds": f"{cpu:.1f} ({wall:.1f} of wall time)",
                "above the input, MB": f"{megabytes('VmHWM') - before:.0f}",
            }
        )
    )


def recall(X, queries, index):
    """Share of the neighbours of some rows that are no farther than the true last one."""
    chosen = np.linspace(0, len(queries) - 1, 300).astype(int)
    X, shares = X.astype(np.float64), []
    for row, found in zip(queries[chosen], index[chosen], strict=True):
        distance = cdist(X[row : row + 1], X)[0]
        distance[row] = np.inf
        reach = np.partition(distance, K - 1)[K - 1] * (1 + 1e-6)
        found = np.unique(found[found >= 0])
        shares.append(np.count_nonzero(distance[found] <= reach) / K)
    return np.mean(np.minimum(shares, 1))


def forget_peak():
    """Let the system count the peak memory of this process afresh."""
    Path("/proc/self/clear_refs").write_text("5")


def without_self(index):
    """Drop the row itself from K + 1 neighbours, or the last one where it is not among them."""
    own = index == np.arange(len(index))[:, None]
    own[~own.any(axis=1), -1] = True
    own &= np.cumsum(own, axis=1) == 1
    return np.arange(len(index)), index[~own].reshape(len(index), -1)


# ---- the libraries: rows in, (rows answered, their neighbours) out ----------------------------


def silva_exact(X, n_threads, method="exact"):
    from silva.neighbours import nearest_neighbours

    return np.arange(len(X)), nearest_neighbours(X, K, method=method, n_threads=n_threads).index


def silva_approximate(X, n_threads):
    return silva_exact(X, n_threads, "approximate")


def faiss_hnsw(X, n_threads):
    import faiss

    faiss.omp_set_num_threads(n_threads)
    index = faiss.IndexHNSWFlat(X.shape[1], 16)
    index.hnsw.efConstruction, index.hnsw.efSearch = 100, 40
    index.add(X)
    return without_self(index.search(X, K + 1)[1])


def faiss_ivf(X, n_threads):
    import faiss

    faiss.omp_set_num_threads(n_threads)
    cells = int(4 * np.sqrt(len(X)))
    quantizer = faiss.IndexFlatL2(X.shape[1])
    index = faiss.IndexIVFFlat(quantizer, X.shape[1], cells)
    index.cp.niter, index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 10, 1, 40
    index.train(X)
    index.add(X)
    index.nprobe = 16
    return without_self(index.search(X, K + 1)[1])


def usearch_hnsw(X, n_threads):
    from usearch.index import Index

    index = Index(
        ndim=X.shape[1],
        metric="l2sq",
        dtype="f32",
        connectivity=16,
        expansion_add=100,
        expansion_search=40,
    )
    index.add(np.arange(len(X)), X, threads=n_threads)
    return without_self(index.search(X, K + 1, threads=n_threads).keys.astype(np.int64))


def hnswlib_hnsw(X, n_threads):
    import hnswlib

    index = hnswlib.Index("l2", X.shape[1])
    index.init_index(len(X), M=16, ef_construction=100, random_seed=0)
    index.add_items(X, num_threads=n_threads)
    index.set_ef(40)
    return without_self(index.knn_query(X, K + 1, num_threads=n_threads)[0].astype(np.int64))


def sklearn_brute(X, n_threads, algorithm="brute"):
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=K + 1, algorithm=algorithm, n_jobs=n_threads).fit(X)
    queries = np.linspace(0, len(X) - 1, min(len(X), 300)).astype(int)
    index = search.kneighbors(X[queries], return_distance=False)
    own = index == queries[:, None]
    own[~own.any(axis=1), -1] = True
    return queries, index[~own].reshape(len(queries), -1)


def sklearn_tree(X, n_threads):
    return sklearn_brute(X, n_threads, "kd_tree")
