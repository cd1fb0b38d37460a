"""Tree embeddings beside the direct fit, openTSNE and UMAP.

The objective of the map that the tree draws, for the elastic embedding and t-SNE, with constant and
with linear leaves, at most 64 of them. "direct" fits the tree to the free embedding, "control" goes
on with as many passes over the tree and the same falling penalty as joint training has, "joint"
moves points and tree in turn, "refined" moves the joint tree's leaves down the objective as well,
"refined control" those of the control: refined trees are to be compared with each other.
Beside them the accuracy of 10 nearest neighbours on the map, for held-out rows as they are placed.
A second table has times and accuracies with the default settings, where leaves are refined for
t-SNE, and of the peers, t-SNE and UMAP with their own ways of placing new rows; a fit's time has
the graph and the free map in it. A third has all 60,000 training images of MNIST, each map in a
process of its own, with the highest resident memory, data included. Training rows are drawn at
random. `--sets` chooses sets, `--rows` the most training rows, `--seeds` (one) how many draws.
"""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.alone import rows_alone
from benchmarks.data import Unavailable, data_folder, load
from benchmarks.memory import STATUS, megabytes
from benchmarks.pictures import save, subplots
from benchmarks.table import Table, progress, skip
from silva import TreeEmbedding, affinity_graph

SETS = ("20newsgroups", "coil20", "mnist", "fashion_mnist")
GROUPS = (
    "comp.graphics", "rec.autos", "rec.sport.baseball", "sci.space", "soc.religion.christian",
    "talk.politics.mideast",
)  # fmt: skip
ROWS, QUICK_ROWS, NEW_ROWS, WHOLE = 10_000, 200, 10_000, 60_000
DEPTH, PERPLEXITY, NEIGHBOURS = 6, 30.0, 10
CASES = [(o, leaf) for o in ("elastic", "tsne") for leaf in ("constant", "linear")]
MODELS = ("TreeEmbedding", "openTSNE", "UMAP")
CURVES = "embedding_curves.svg"
MAPS = ("free", "direct", "joint", "refined")


def run(options):
    """Return the tables, and draw maps and learning curves unless the run is a quick one."""
    most = options.rows or (QUICK_ROWS if options.quick else ROWS)
    names = options.sets or (SETS[:2] if options.quick else SETS)
    notes, rows, peers, curves = [], [], [], {}
    for name in names:
        for seed in range(options.seeds or 1):
            try:
                data = draw_rows(read(name), most, seed)
            except Unavailable as error:
                skip(error, notes)
                break
            progress(f"{name}: {data[0].shape[0]} rows, {data[0].shape[1]} features, draw {seed}")
            shown = {"set": name, "draw": seed}
            found = measure(data, seed, options)
            rows += [shown | row for row in found.rows]
            peers += [
                shown | row for row in (*found.times, *measure_peers(data, seed, options, notes))
            ]
            if seed == 0 and not options.quick:
                draw_maps(name, found.maps, data[1])
                curves[name] = found.curves
                notes.append(f"![free, direct, joint and refined maps]({picture(name)})")
    if curves:
        draw_curves(curves)
        notes.append(f"![objective of the tree's map after each round]({CURVES})")
    text = f"Times of a fit and of placing {NEW_ROWS} new rows (held-out rows, repeated), in s."
    sections = [("New rows, and the peers", text, peers)]
    if not options.quick and "mnist" in names:
        text = "Times in s and highest resident memory in MB, with default settings."
        sections.append((f"MNIST, {WHOLE} rows", text, rows_alone(__name__, MODELS, notes)))
    return Table(rows, notes, ("openTSNE", "umap-learn"), tuple(sections))


def read(name):
    """Return training rows and classes, held-out rows and classes."""
    if name == "20newsgroups":
        return read_news()
    data = load(name)
    if data.X_test is None:
        X, X_test, y, y_test = train_test_split(
            data.X, data.y, test_size=1 / 3, random_state=0, stratify=data.y
        )
        return X.astype(np.float32), y, X_test.astype(np.float32), y_test
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


def draw_rows(data, most, seed):
    """Return at most so many training rows at random, and the first held-out ones."""
    X, y, X_test, y_test = data
    drawn = np.random.default_rng(seed).permutation(len(y))[:most]
    return X[drawn], y[drawn], X_test[:NEW_ROWS], y_test[:NEW_ROWS]


@dataclass(frozen=True)
class Found:
    """What was found on one set: rows of both tables, and by case the maps and the curves."""

    rows: list
    times: list
    maps: dict
    curves: dict


def measure(data, seed, options):
    """Fit the trees of every case."""
    X, y, X_test, y_test = data
    perplexity = min(PERPLEXITY, (len(y) - 1) / 3)
    began = time.perf_counter()
    W = affinity_graph(X, min(len(y) - 1, int(3 * perplexity)), perplexity, n_jobs=-1)
    graph_seconds, free_seconds, free = time.perf_counter() - began, {}, {}
    depth = 3 if options.quick else DEPTH
    common = {"affinity": W, "n_jobs": -1, "random_state": seed, "max_depth": depth}
    common |= {"n_outer": 3} if options.quick else {}
    found = Found([], [], {}, {})
    for objective, leaf in CASES:
        settings = common | {"objective": objective, "leaf": leaf}
        if objective not in free:
            free[objective], free_seconds[objective] = free_map(X, settings)
        settings["init"] = free[objective]
        before = graph_seconds + free_seconds[objective]
        models = {
            "direct": TreeEmbedding(refine=False, **settings | {"n_outer": 0}),
            "control": TreeEmbedding(refine=False, point_iter=0, **settings),
            "joint": TreeEmbedding(refine=False, **settings),
            "refined control": TreeEmbedding(refine=True, point_iter=0, **settings),
            "refined": TreeEmbedding(refine=True, **settings),
        }
        seconds = {}
        for key, model in models.items():
            began = time.perf_counter()
            model.fit(X)
            seconds[key] = time.perf_counter() - began
        row = {"objective": objective, "leaves": leaf}
        row |= {"free": f"{models['joint'].free_energy_:.4f}"}
        row |= {key: f"{model.energy_:.4f}" for key, model in models.items()}
        for key, other in (
            ("joint", "control"), ("refined", "control"), ("refined", "refined control"),
        ):  # fmt: skip
            change = models[key].energy_ / models[other].energy_ - 1
            row[f"{key} to {other} %"] = f"{100 * change:+.1f}"
        row["train kNN %"] = f"{train_accuracy(models['refined'].embedding_, y):.1f}"
        for key, model in models.items():
            placed = model.transform(X_test)
            row[f"{key} kNN %"] = f"{accuracy(model.embedding_, y, placed, y_test):.1f}"
        found.rows.append(row)
        found.maps[objective, leaf] = (
            free[objective], *(models[key].embedding_ for key in MAPS[1:])
        )  # fmt: skip
        found.curves[objective, leaf] = curves_of(models)
        default = "refined" if objective == "tsne" else "joint"
        model = models[default]
        found.times.append(
            time_row(f"{objective}, {leaf} leaves", before + seconds[default], model, data)
        )
        progress(f"  {row}")
        if (objective, leaf) == ("tsne", "linear") and not options.quick:
            began = time.perf_counter()
            larger = TreeEmbedding(**settings | {"max_depth": depth + 1}).fit(X)
            spent = before + time.perf_counter() - began
            found.times.append(
                time_row(f"tsne, at most {2 ** (depth + 1)} linear leaves", spent, larger, data)
            )
            progress(f"  {found.times[-1]}")
    return found


def free_map(X, settings):
    """Return the free embedding and the seconds it took."""
    began = time.perf_counter()
    only = {"n_outer": 0, "max_depth": 0, "leaf": "constant", "refine": False}
    model = TreeEmbedding(**settings | only).fit(X)
    return model.free_embedding_, time.perf_counter() - began


def curves_of(models):
    """Return by name the objective after each round; one number where there are no rounds."""
    curves = {key: [step.energy for step in models[key].history_] for key in ("control", "joint")}
    return curves | {key: [models[key].energy_] for key in ("direct", "refined control", "refined")}


def time_row(name, fit_seconds, model, data):
    """Return times and accuracy of a fitted map."""
    _, y, X_test, y_test = data
    right = accuracy(model.embedding_, y, model.transform(X_test), y_test)
    return {
        "map": name, "fit": f"{fit_seconds:.1f}", "place": f"{placing(model, X_test):.4f}",
        "held-out kNN %": f"{right:.1f}",
    }  # fmt: skip


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


def measure_peers(data, seed, options, notes):
    """Return times and accuracies of openTSNE and UMAP, where they are installed."""
    rows = []
    for name in MODELS[1:]:
        try:
            rows.append(measure_peer(name, data, seed, options.quick))
        except ImportError as error:
            skip(Unavailable(f"{name}, not installed ({error})"), notes)
        else:
            progress(f"  {rows[-1]}")
    return rows


def measure_peer(name, data, seed, quick):
    """Fit a peer, place the held-out rows, and return its row."""
    X, y, X_test, y_test = data
    fit = {"openTSNE": open_tsne, "UMAP": umap}[name](seed, quick)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        Z, place = fit(X)
        spent = time.perf_counter() - began
        placed = place(X_test)  # compiles what is to be compiled
        new = X_test if quick else repeated(X_test)
        began = time.perf_counter()
        place(new)
        seconds = time.perf_counter() - began
    return {
        "map": name, "fit": f"{spent:.1f}", "place": f"{seconds:.2f}",
        "held-out kNN %": f"{accuracy(Z, y, placed, y_test):.1f}",
    }  # fmt: skip


def open_tsne(seed, quick):
    """Return a function that fits openTSNE and gives the map and what places new rows."""
    import openTSNE

    def fit(X):
        n_iter = 50 if quick else 500
        model = openTSNE.TSNE(
            perplexity=PERPLEXITY, n_jobs=-1, random_state=seed, n_iter=n_iter
        ).fit(X)  # fmt: skip
        return np.asarray(model), model.transform

    return fit


def umap(seed, quick):
    """Return a function that fits UMAP and gives the map and what places new rows."""
    from umap import UMAP

    def fit(X):
        model = UMAP(n_epochs=20 if quick else None, n_jobs=-1).fit(X)
        return model.embedding_, model.transform

    return fit


def fit_here(name):
    """Fit a map of MNIST in this process and print its row."""
    data = draw_rows(read("mnist"), WHOLE, seed=0)
    if name == "TreeEmbedding":
        began = time.perf_counter()
        model = TreeEmbedding(n_jobs=-1, random_state=0, verbose=1).fit(data[0])
        row = time_row(f"tsne, {model.tree_.n_leaves} linear leaves", time.perf_counter() - began,
                       model, data)  # fmt: skip
    else:
        row = measure_peer(name, data, seed=0, quick=False)
    print(json.dumps(row | {"memory": round(megabytes("VmHWM")) if STATUS.exists() else ""}))


def picture(name):
    return f"embedding_{name}.png"


def draw_maps(name, maps, y):
    """Write the picture: a line of free, direct, joint and refined maps for every case."""
    figure, axes = subplots(len(maps), 4, figsize=(12, 3 * len(maps)))
    for line, ((objective, leaf), places) in zip(axes, maps.items(), strict=True):
        for axis, title, Z in zip(line, MAPS, places, strict=True):
            axis.scatter(*Z.T, c=y, cmap="tab20", s=2, linewidths=0)
            axis.set(xticks=[], yticks=[], title=title)
        line[0].set_ylabel(f"{objective}, {leaf} leaves")
    save(figure, picture(name), dpi=70)


def draw_curves(curves):
    """Write the picture: the objective of the tree's map after each round, set by set."""
    figure, axes = subplots(
        len(curves), len(CASES), figsize=(3.2 * len(CASES), 2.6 * len(curves)),
        squeeze=False,
    )  # fmt: skip
    for line, (name, cases) in zip(axes, curves.items(), strict=True):
        for axis, ((objective, leaf), lines) in zip(line, cases.items(), strict=True):
            last = max(len(values) for values in lines.values()) - 1
            for key, values in lines.items():
                if len(values) > 1:
                    axis.plot(values, ".-", label=key)
                elif key == "direct":
                    axis.axhline(values[0], color="grey", label=key)
                else:
                    axis.plot(last, values[0], "s", label=key)
            axis.set(title=f"{name}: {objective}, {leaf}", xlabel="round")
        line[0].set_ylabel("objective")
    axes[0, 0].legend(fontsize=7)
    save(figure, CURVES)
