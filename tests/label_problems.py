"""Label problems on graphs for tests, and the same as dense algebra."""

import numpy as np
from scipy import sparse
from sklearn.datasets import make_moons
from sklearn.neighbors import kneighbors_graph

SOLVERS = ("eigen", "direct", "cg")


def graph_of(X, n_neighbors=8):
    """Symmetric neighbour graph with weights that fall with the distance."""
    P = sparse.csr_array(kneighbors_graph(X, n_neighbors, mode="distance"))
    P.data = np.exp(-P.data / P.data.mean())
    W = sparse.csr_array((P + P.T) / 2)
    W.sort_indices()
    return W


def moons(n=300, n_labelled=12, n_outputs=1, seed=0, n_neighbors=8):
    """Graph, anchor and targets (0 where unlabelled) of two moons."""
    rng = np.random.default_rng(seed)
    X, y = make_moons(n, noise=0.1, random_state=seed)
    anchor = np.zeros(n)
    anchor[rng.permutation(n)[:n_labelled]] = rng.uniform(0.5, 2, n_labelled)
    slopes, offsets = rng.normal(size=(1, n_outputs)), rng.normal(size=n_outputs)
    Y = (y[:, None] * slopes + offsets) * (anchor > 0)[:, None]
    return graph_of(X, n_neighbors), anchor, Y


def dense_matrix(W, gamma, anchor, shift=0.0):
    W = W.toarray()
    return np.diag(anchor + shift) + gamma * (np.diag(W.sum(axis=1)) - W)


def two_islands():
    """Graph of two components of 60 rows and three lone rows; labels in the first, on one lone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) + np.repeat([[0, 0], [50, 50]], 60, axis=0)
    W = sparse.csr_array(sparse.block_diag([graph_of(X), np.zeros((3, 3))]))
    anchor = np.zeros(123)
    anchor[[3, 17, 40, 121]] = 1, 2, 1, 1
    return W, anchor, rng.normal(size=(123, 2)) * (anchor > 0)[:, None]
