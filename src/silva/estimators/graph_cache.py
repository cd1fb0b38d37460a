"""The graph of the same rows is built once, whatever else varies from fit to fit.

A search over hyper-parameters fits the same rows again and again, and the graph, which depends on
them and on a few settings only, is the dear part. So it is kept where the user says, as in
scikit-learn's `Pipeline`, under the content of the rows: this serves every worker and every later
session, and keeps no state in the module. Each fold has rows of its own and hence its own graph.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from scipy import sparse
from sklearn.utils.validation import check_memory

from silva import graph


def cached_graph(
    memory: Any,
    X: Any,
    n_neighbors: int | str = "auto",
    perplexity: float | str = "auto",
    *,
    method: str = "auto",
    metric: str = "euclidean",
    mutual: bool = False,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> sparse.csr_array:
    """Return `silva.graph.affinity_graph` of X, from `memory` if it has been there.

    Parameters
    ----------
    memory : None, str or joblib.Memory
        Folder to keep graphs in; None keeps none. Graphs are found again by the bytes of X, the
        settings and the version of Silva, not by `n_jobs` and `verbose`.
    random_state : int, RandomState or None
        Pass it as the user gave it. With None, the first graph serves ever after; a RandomState
        counts by its state, which moves on as it is used.
    X, n_neighbors, perplexity, method, metric, mutual, n_jobs, verbose
        As in `silva.graph.affinity_graph`.

    Returns
    -------
    csr_array of shape (rows, rows)
    """
    build = check_memory(memory).cache(_build, ignore=["n_jobs", "verbose"])
    W: sparse.csr_array = build(
        X,
        n_neighbors,
        perplexity,
        method,
        metric,
        mutual,
        random_state,
        version("silva"),
        n_jobs,
        verbose,
    )
    return W


def _build(
    X: Any,
    n_neighbors: int | str,
    perplexity: float | str,
    method: str,
    metric: str,
    mutual: bool,
    random_state: Any,
    release: str,  # only part of the key: another release may build another graph
    n_jobs: int | None,
    verbose: int,
) -> sparse.csr_array:
    return graph.affinity_graph(
        X,
        n_neighbors,
        perplexity,
        method=method,
        metric=metric,
        mutual=mutual,
        n_jobs=n_jobs,
        random_state=random_state,
        verbose=verbose,
    )
