"""Tree embeddings beside the direct fit, openTSNE and UMAP.

The objective of the map that the tree draws, for the elastic embedding and t-SNE, with constant and
with linear leaves, at most 64 of them. "direct" fits the tree to the free embedding, "control" goes
on with as many passes over the tree and the same falling penalty as joint training has, "joint"
moves points and tree in turn, "refined" moves the joint tree's leaves down the objective as well,
"refined control" those of the control: refined trees are to be compared with each other.
Beside them the accuracy of 10 nearest neighbours on the map, for held-out rows as they are placed
(the joint map, and the refined one). A second table has times and accuracies of the peers, t-SNE
and UMAP with their own ways of placing new rows. `--sets` chooses sets, `--rows` the most training
rows.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.data import Unavailable, data_folder, load
from benchmarks.table import Table, progress, skip
from silva import TreeEmbedding, affinity_graph

SETS = ("20newsgroups", "coil20", "mnist", "fashion_mnist")
GROUPS = (
    "comp.graphics", "rec.autos", "rec.sport.baseball", "sci.space", "soc.religion.christian",
    "talk.politics.mideast",
)  # fmt: skip
ROWS, QUICK_ROWS, NEW_ROWS = 10_000, 200, 10_000
DEPTH, PERPLEXITY, NEIGHBOURS = 6, 30.0, 10
CASES = [(o, leaf) for o in ("elastic", "tsne") for leaf in ("constant", "linear")]


def run(options):
    """Return the tables, and draw the maps unless the run is a quick one."""
    most = options.rows or (QUICK_ROWS if options.quick else ROWS)
    names = options.sets or (SETS[:2] if options.quick else SETS)
    notes, rows, peers = [], [], []
    for name in names:
        try:
            data = limit(read(name), most)
        except Unavailable as error:
            skip(error, notes)
            continue
        progress(f"{name}: {data[0].shape[0]} rows, {data[0].shape[1]} features")
        found, maps, times = measure(name, data, options)
        rows += found
        if not options.quick:
            draw(name, maps, data[1])
            notes.append(f"![free, direct and joint maps]({picture(name)})")
        peers += [{"set": name, **row} for row in (*times, *measure_peers(data, options, notes))]
    text = f"Times of a fit and of placing {NEW_ROWS} new rows (held-out rows, repeated), in s."
    packages = ("openTSNE", "umap-learn")
    return Table(rows, notes, packages, (("New rows, and the peers", text, peers),))


def read(name):
    """Return training rows and classes, held-out rows and classes."""
    if name == "20newsgroups":
        return read_news()
    if name == "coil20":
        folder = data_folder()
        if folder is None or not (folder / "coil20.npz").exists():
            raise Unavailable("coil20: not in the data folder")
        with np.load(folder / "coil20.npz") as arrays:
            X, y = arrays["X"].astype(np.float32), arrays["y"]
        X, X_test, y, y_test = train_test_split(X, y, test_size=1 / 3, random_state=0, stratify=y)
        return X, y, X_test, y_test
    data = load(name)
    return data.X, data.y, data.X_test, data.y_test


def read_news():
    """Six groups as tf-idf of the 1,000 most frequent words and pairs of words."""
    folder = data_folder()
    if folder is None or not (folder / "20newsgroups.tsv.gz").exists():
        raise Unavailable("20newsgroups: not in the data folder")
    frame = pd.read_csv(folder / "20newsgroups.tsv.gz", sep="\t", quoting=3)
    frame = frame[frame["target"].isin(GROUPS)].sample(frac=1, random_state=0)  # they come by group
    text = frame["text"].fillna("").str.replace("\\n", " ")
    train = (frame["split"] == "train").to_numpy()
    words = TfidfVectorizer(ngram_range=(1, 2), max_features=1000, stop_words="english")
    X, X_test = words.fit_transform(text[train]), words.transform(text[~train])
    y = pd.Categorical(frame["target"]).codes.astype(np.int64)
    return X, y[train], X_test, y[~train]


def limit(data, most):
    X, y, X_test, y_test = data
    return X[:most], y[:most], X_test[:NEW_ROWS], y_test[:NEW_ROWS]


def measure(name, data, options):
    """Return rows of the table, the maps of t-SNE and elastic embedding, and times."""
    X, y, X_test, y_test = data
    perplexity = min(PERPLEXITY, (len(y) - 1) / 3)
    W = affinity_graph(X, min(len(y) - 1, int(3 * perplexity)), perplexity, n_jobs=-1)
    rows, maps, times, free = [], {}, [], {}
    for objective, leaf in CASES:
        began = time.perf_counter()
        settings = {"objective": objective, "leaf": leaf, "affinity": W, "n_jobs": -1}
        settings |= {"init": free.get(objective), "random_state": 0, "max_depth": DEPTH}
        settings |= {"n_outer": 3, "max_depth": 3} if options.quick else {}
        joint = TreeEmbedding(refine=False, **settings).fit(X)
        spent = time.perf_counter() - began
        first = free.setdefault(objective, joint.free_embedding_)
        settings["init"] = first
        direct = TreeEmbedding(refine=False, **settings | {"n_outer": 0}).fit(X)
        control = TreeEmbedding(refine=False, point_iter=0, **settings).fit(X)
        refined = TreeEmbedding(refine=True, **settings).fit(X)
        alike = TreeEmbedding(refine=True, point_iter=0, **settings).fit(X)
        energies = {"direct": direct, "control": control, "joint": joint, "refined": refined}
        energies["refined control"] = alike
        row = {"set": name, "objective": objective, "leaves": leaf}
        row |= {"free": f"{joint.free_energy_:.4f}"}
        row |= {key: f"{model.energy_:.4f}" for key, model in energies.items()}
        for key, other in (("joint", "control"), ("refined", "refined control")):
            change = energies[key].energy_ / energies[other].energy_ - 1
            row[f"{key} to {other} %"] = f"{100 * change:+.1f}"
        row["train kNN %"] = f"{train_accuracy(refined.embedding_, y):.1f}"
        for key in ("control", "joint", "refined control", "refined"):
            placed = energies[key].transform(X_test)
            row[f"{key} kNN %"] = f"{accuracy(energies[key].embedding_, y, placed, y_test):.1f}"
        row["rounds"] = " ".join(f"{step.energy:.3f}" for step in joint.history_)
        rows.append(row)
        maps[objective, leaf] = (first, direct.embedding_, joint.embedding_, refined.embedding_)
        seconds = placing(refined, X_test)
        times.append({
            "map": f"{objective}, {leaf} leaves", "fit": f"{spent:.1f}", "place": f"{seconds:.4f}",
            "held-out kNN %": row["refined kNN %" if objective == "tsne" else "joint kNN %"],
        })  # fmt: skip
        progress(f"  {row}")
    return rows, maps, times


def accuracy(Z, y, Z_test, y_test):
    """Accuracy of nearest neighbours on the map, in %."""
    return 100 * KNeighborsClassifier(NEIGHBOURS).fit(Z, y).score(Z_test, y_test)


def train_accuracy(Z, y):
    """The same for training rows, each judged by the others."""
    model = KNeighborsClassifier(NEIGHBOURS).fit(Z, y)
    votes = y[model.kneighbors(return_distance=False)]
    return 100 * np.mean(
        [np.bincount(row).argmax() == label for row, label in zip(votes, y, strict=True)]
    )


def repeated(X):
    """Return `NEW_ROWS` rows, the given ones over and over."""
    return X[np.arange(NEW_ROWS) % X.shape[0]]


def placing(model, X):
    """Seconds to place `NEW_ROWS` rows, the best of three."""
    X, seconds = repeated(X), []
    for _ in range(3):
        began = time.perf_counter()
        model.transform(X)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def measure_peers(data, options, notes):
    """Return times and accuracies of openTSNE and UMAP, where they are installed."""
    X, y, X_test, y_test = data
    rows = []
    for name, build in (("openTSNE", open_tsne), ("UMAP", umap)):
        try:
            fit = build(options.quick)
        except ImportError as error:
            skip(Unavailable(f"{name}, not installed ({error})"), notes)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            began = time.perf_counter()
            Z, place = fit(X)
            spent = time.perf_counter() - began
            placed = place(X_test)  # compiles what is to be compiled
            new = X_test if options.quick else repeated(X_test)
            began = time.perf_counter()
            place(new)
            seconds = time.perf_counter() - began
        rows.append({
            "map": name, "fit": f"{spent:.1f}", "place": f"{seconds:.2f}",
            "held-out kNN %": f"{accuracy(Z, y, placed, y_test):.1f}",
        })  # fmt: skip
        progress(f"  {rows[-1]}")
    return rows


def open_tsne(quick):
    """Return a function that fits openTSNE and gives the map and what places new rows."""
    import openTSNE

    def fit(X):
        n_iter = 50 if quick else 500
        model = openTSNE.TSNE(
            perplexity=PERPLEXITY, n_jobs=-1, random_state=0, n_iter=n_iter
        ).fit(X)  # fmt: skip
        return np.asarray(model), model.transform

    return fit


def umap(quick):
    """Return a function that fits UMAP and gives the map and what places new rows."""
    from umap import UMAP

    def fit(X):
        model = UMAP(n_epochs=20 if quick else None, n_jobs=-1).fit(X)
        return model.embedding_, model.transform

    return fit


def picture(name):
    return f"embedding_{name}.png"


def draw(name, maps, y):
    """Write the picture: a line of free, direct, joint and refined maps for every case."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from benchmarks.__main__ import RESULTS

    figure, axes = plt.subplots(len(maps), 4, figsize=(12, 3 * len(maps)), layout="constrained")
    for line, ((objective, leaf), places) in zip(axes, maps.items(), strict=True):
        for axis, title, Z in zip(
            line, ("free", "direct", "joint", "refined"), places, strict=True
        ):
            axis.scatter(*Z.T, c=y, cmap="tab20", s=2, linewidths=0)
            axis.set(xticks=[], yticks=[], title=title)
        line[0].set_ylabel(f"{objective}, {leaf} leaves")
    figure.savefig(RESULTS / picture(name), dpi=70)
    plt.close(figure)
