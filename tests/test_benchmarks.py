"""The benchmark tables: what their result pages carry, what they skip, what the yardstick does."""

import json
import re
import sys
from types import ModuleType

import numpy as np
import pytest
from sklearn.datasets import load_digits

from benchmarks import __main__ as command
from benchmarks import data, few_labels, liblinear_tao, peers, report, resumable, semi
from benchmarks.folds import Scores, comparison_rows
from benchmarks.table import Options, Table, available, mean_ranks


@pytest.fixture
def small_table(monkeypatch):
    """Register a table named "small" that measures nothing."""
    module = ModuleType("benchmarks.small", "A small table.\n\nIt measures nothing.")
    module.run = lambda options: Table(
        [{"data set": "a", "error": 1}], ["Skipped: b."], ("pytest",)
    )
    monkeypatch.setitem(sys.modules, "benchmarks.small", module)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


def test_result_page_carries_table_notes_versions_machine_and_date(small_table, tmp_path, capsys):
    command.run_table("small", Options(), results=tmp_path)
    page = (tmp_path / "small.md").read_text()
    assert page.startswith("# A small table\n\nIt measures nothing.\n\n| data set | error |")
    assert "| a | 1 |" in page
    assert "- Skipped: b." in page
    assert f"numpy {np.__version__}" in page
    assert f"pytest {pytest.__version__}" in page
    assert re.search(r"- Machine: .+ cores, .+ Python 3\.", page)
    assert re.search(r"- Date: \d{4}-\d{2}-\d{2}\n$", page)
    assert page in capsys.readouterr().out


def test_quick_run_writes_no_result(small_table, tmp_path):
    command.run_table("small", Options(quick=True), results=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_result_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "table.md"
    report.write(path, "old")

    def fail(source, target):
        raise OSError("no space")

    monkeypatch.setattr(report.os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        report.write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_names_are_listed_with_a_line_each(capsys):
    command.main([])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(command.TABLES)


def test_unavailable_set_is_skipped_with_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SILVA_DATA", str(tmp_path))
    notes = []
    assert list(available(["letter", "mnist"], notes)) == []
    assert notes == [
        "Skipped: letter: not in the data folder.",
        "Skipped: mnist: not in the data folder.",
    ]
    assert "letter" in capsys.readouterr().err


def test_missing_peer_is_skipped_with_a_line():
    def absent(seed, inner_folds, quick=False):
        raise ImportError("No module named 'absent'")

    notes = []
    kept = peers.usable({"absent": absent, "CART": peers.cart_classifier}, notes)
    assert list(kept) == ["CART"]
    assert notes == ["Skipped: absent, not installed (No module named 'absent')."]


def test_loader_codes_strings_and_keeps_missing_values(tmp_path, monkeypatch):
    (tmp_path / "catalogue.json").write_text(
        json.dumps([{"name": "tiny", "task": "classification", "categorical": ["colour"]}])
    )
    data.pd.DataFrame(
        {"size": [1.5, None, 3.0], "colour": ["red", "blue", None], "target": ["no", "yes", "no"]}
    ).to_csv(tmp_path / "tiny.csv.gz", index=False)
    monkeypatch.setenv("SILVA_DATA", str(tmp_path))
    tiny = data.load("tiny")
    np.testing.assert_array_equal(tiny.X, [[1.5, 1], [np.nan, 0], [3, np.nan]])
    np.testing.assert_array_equal(tiny.y, [0, 1, 0])
    assert tiny.X_test is None
    assert (tiny.task, tiny.categorical) == ("classification", ("colour",))


def test_ranks_match_a_hand_example():
    scores = [[0.9, 0.8, 0.7], [0.5, 0.6, 0.5]]
    np.testing.assert_allclose(mean_ranks(scores), [1.75, 1.5, 2.75])


def test_lead_is_over_the_best_peer():
    results = [
        Scores("a", {"ours": 0.90, "x": 0.85, "y": 0.88}, {"ours": 1.0, "x": 1.0, "y": 1.0}),
        Scores("b", {"ours": 0.70, "x": 0.71, "y": 0.60}, {"ours": 3.0, "x": 1.0, "y": 1.0}),
    ]
    rows = comparison_rows(results, ours=["ours"], peers=["x", "y"])
    assert [row["ours − best peer"] for row in rows[:3]] == ["+2.00", "-1.00", "worst -1.00"]
    assert [rows[2][name] for name in ("ours", "x", "y")] == ["1.50", "2.00", "2.50"]
    assert rows[3]["ours"] == "2.00"


@pytest.mark.parametrize("seed", range(3))
def test_liblinear_tao_reduces_training_error_from_a_random_start(digits, seed):
    # Depth 6: a class that is the majority of no leaf of the start can never win one.
    X, y = digits
    start = liblinear_tao.random_start(X, 6, seed)
    errors = []
    for max_iter in (0, 1, 5):
        tree = liblinear_tao.fit(X, y, *start, alpha=0.1, max_iter=max_iter)
        errors.append(np.mean(liblinear_tao.predict(tree, X) != y))
    assert errors[0] > 0.4
    assert errors[1] < 0.1
    assert errors[2] < 0.02


def test_liblinear_tao_is_the_same_for_the_same_seed(digits):
    X, y = digits
    first, second = (
        liblinear_tao.fit(
            X, y, *liblinear_tao.random_start(X, 4, seed=1), alpha=1.0, max_iter=2, seed=3
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.W, second.W)
    np.testing.assert_array_equal(first.b, second.b)
    np.testing.assert_array_equal(first.leaf_class, second.leaf_class)


def test_parameters_count_only_nodes_with_rows_on_both_sides():
    W = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], np.float32)
    tree = liblinear_tao.HeapTree(W, np.zeros(3, np.float32), np.arange(4))
    X = np.array([[-1, -1], [-2, -2], [1, 1], [1, -1]], np.float32)
    # Node 1 sends both its rows left: a weight and a threshold of nodes 0 and 2, and 3 leaves.
    assert liblinear_tao.count_parameters(tree, X) == 7


def test_heap_start_routes_the_same_as_a_tree(digits):
    from benchmarks.speed import tree_of

    X, _ = digits
    W, b = liblinear_tao.random_start(X, 4, seed=0)
    tree = tree_of(W, b, n_classes=10)
    node = np.zeros(len(X), int)
    while (inner := ~tree.is_leaf[node]).any():
        projection = np.sum(tree.coefficients.toarray()[node] * X, axis=1)
        child = np.where(projection >= tree.threshold[node], tree.right[node], tree.left[node])
        node = np.where(inner, child, node)
    heap = liblinear_tao.HeapTree(W, b, np.arange(16))
    # A row at the median of its node may fall on either side by rounding.
    assert np.mean(tree.leaf_index[node] == liblinear_tao.predict(heap, X)) > 0.98


def test_every_class_keeps_two_labels_and_the_rest_is_hidden():
    y = np.repeat([0, 1, 2], [500, 40, 10])
    labelled = semi.choose_labelled(y, 0.01, "classification", np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(y[labelled]), [5, 2, 2])
    hidden = semi.hide(y, labelled, "classification")
    assert (hidden[~labelled] == -1).all()
    assert (hidden[labelled] == y[labelled]).all()


def test_few_labels_table_ranks_all_but_the_bar():
    cell = {"LapTAO": 0.9, "TAO, labels only": 0.8, few_labels.BAR: 0.95}
    rows = few_labels.rows_of(0.05, {(0.05, "a"): cell, (0.05, "b"): cell})
    assert rows[0]["gain"] == "+10.0"
    assert rows[-1]["LapTAO"] == "1.00"
    assert few_labels.BAR not in rows[-1]


# ---- tables in several sittings -----------------------------------------------------------------


def test_a_record_has_its_day_and_machine(tmp_path):
    log = tmp_path / "log.jsonl"
    written = resumable.append(log, {"set": "iris"})
    assert resumable.read_log(log) == [written]
    assert written["set"] == "iris"
    assert written["machine"] == report.machine()
    assert resumable.append(None, {"set": "iris"}) == written


def test_a_page_tells_its_sittings_only_if_there_are_several():
    first, second = ({"day": day, "machine": "A"} for day in ("2026-01-02", "2026-01-03"))
    assert resumable.sittings([first, first]) == []
    elsewhere = first | {"machine": "B"}
    assert resumable.sittings([second, first, elsewhere]) == [
        "Measured in several sittings: 2026-01-02, 2026-01-03 (A); 2026-01-02 (B)."
    ]
