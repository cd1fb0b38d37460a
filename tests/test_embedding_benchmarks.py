"""The table of tree embeddings: what it reads, how it judges, and that it runs on small data."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from benchmarks import embedding, pair_sums
from benchmarks.data import Unavailable
from benchmarks.table import Options

WORDS = ["orbit", "engine", "pitcher", "faith", "pixel", "border"]


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Have small sets under the names that quick runs ask for; peers are not installed."""
    X, y = load_digits(return_X_y=True)
    np.savez(tmp_path / "coil20.npz", X=X[:150], y=y[:150])
    rng = np.random.default_rng(0)
    lines = []
    for i in range(150):
        group = i % len(embedding.GROUPS)
        words = rng.choice(["common", "words", "of", "all", WORDS[group], WORDS[group]], 12)
        lines.append(
            ("test" if i % 5 == 0 else "train", embedding.GROUPS[group], i, " ".join(words))
        )
    lines.append(("train", "misc.forsale", 999, "left out"))
    frame = pd.DataFrame(lines, columns=["split", "target", "id", "text"])
    frame.to_csv(tmp_path / "20newsgroups.tsv.gz", sep="\t", index=False, quoting=3)
    monkeypatch.setenv("SILVA_DATA", str(tmp_path))
    for peer in ("openTSNE", "umap"):
        monkeypatch.setitem(sys.modules, peer, None)


def test_six_groups_are_read_as_words(data_folder):
    X, y, X_test, y_test = embedding.read("20newsgroups")
    assert X.shape[0] + X_test.shape[0] == 150
    assert X.shape[1] <= 1000
    assert set(y) == set(y_test) == set(range(6))


def test_missing_set_is_said_to_be_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("SILVA_DATA", str(tmp_path))
    with pytest.raises(Unavailable, match="coil20"):
        embedding.read("coil20")


def test_a_training_row_does_not_vote_for_itself():
    Z, y = np.repeat(np.arange(2.0), 11)[:, None] * [1, 1], np.repeat([0, 1], 11)
    assert embedding.train_accuracy(Z, y) == 100
    y = np.concatenate([y, [1]])
    Z = np.vstack([Z, [[0, 0]]])  # alone among the others
    assert embedding.train_accuracy(Z, y) == pytest.approx(100 * 22 / 23)


def test_quick_run_has_every_case_and_says_which_peers_are_missing(data_folder):
    table = embedding.run(Options(quick=True))
    assert len(table.rows) == 2 * len(embedding.CASES)
    for row in table.rows:
        assert float(row["free"]) <= float(row["joint"]) + 1e-6
        assert float(row["refined"]) <= float(row["joint"]) + 1e-4
    assert sum("not installed" in note for note in table.notes) >= 2
    assert len(table.sections[0][2]) == 2 * len(embedding.CASES)


def test_draws_of_rows_differ_and_held_out_rows_do_not():
    X = np.arange(40.0)[:, None]
    data = X, np.arange(40), X[:5], np.arange(5)
    first, again, second = (embedding.draw_rows(data, 10, seed) for seed in (0, 0, 1))
    assert np.array_equal(first[0][:, 0], first[1])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[1], second[1])
    assert np.array_equal(first[3], second[3])


def test_pictures_of_maps_and_learning_curves_are_written(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        embedding, "save", lambda figure, name, **_: written.append((name, len(figure.axes)))
    )
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(12, 2)), np.repeat([0, 1, 2], 4)
    embedding.draw_maps("noise", {case: [Z] * 4 for case in embedding.CASES}, y)
    lines = {"control": [3.0, 2.0], "joint": [3.0, 1.0], "direct": [3.0]}
    lines |= {"refined": [0.5], "refined control": [0.6]}
    embedding.draw_curves({"noise": dict.fromkeys(embedding.CASES, lines)})
    assert written == [(embedding.picture("noise"), 16), (embedding.CURVES, 4)]


def test_sums_over_pairs_are_compared_at_equal_points():
    table = pair_sums.run(Options(quick=True))
    errors = {row["sum"]: float(row["error of the gradient"]) for row in table.rows}
    assert errors["ours, exact"] == 0
    assert all(0 < error < 0.1 for name, error in errors.items() if name != "ours, exact")
