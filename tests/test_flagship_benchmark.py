"""The study of the flagship: what it concludes, that it resumes, and a run on small data."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, make_friedman1, make_moons
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks import __main__ as command
from benchmarks import flagship, flagship_ablation, flagship_figures
from benchmarks.resumable import append, read_log
from benchmarks.table import Options


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Have small sets under the names that quick runs ask for."""
    X, y = load_iris(return_X_y=True)
    numbers = make_friedman1(150, random_state=0)
    entries = []
    for name, task, (rows, target) in (
        ("iris", "classification", (X, y)),
        ("cpu_act", "regression", numbers),
        ("pima", "classification", make_moons(150, noise=0.2, random_state=0)),
    ):
        entries.append({"name": name, "task": task, "categorical": []})
        pd.DataFrame(rows).assign(target=target).to_csv(tmp_path / f"{name}.csv.gz", index=False)
    (tmp_path / "catalogue.json").write_text(json.dumps(entries))
    monkeypatch.setenv("SILVA_DATA", str(tmp_path))


def cells_of(**scores):
    """Return cells of two sets at one share; methods that are not named score a half."""
    names = [*flagship.class_methods(0, ()), *flagship.TOTALS.values()]
    return {
        (name, 0.05): {m: scores.get(m.replace("+", ""), (0.5, 0.5))[place] for m in names}
        for place, name in enumerate("ab")
    }


def test_differences_are_means_over_sets_with_the_worst_one():
    cells = cells_of(SilvaTree=(0.9, 0.5), RF=(0.8, 0.6))
    row = next(r for r in flagship.summary("classes", cells) if r["method"] == "SilvaTree")
    assert row["less RF"] == "+0.0 ± 10.0, worst -10.0"
    assert row["5%"] == "70.0"
    text = " ".join(flagship.verdicts("classes", cells))
    assert "SilvaTree less RF: +0.00 on average over 2 sets, worst -10.0 (b)." in text


def test_a_tree_is_ahead_of_the_single_trees_only_if_of_all_of_them():
    text = " ".join(flagship.verdicts("classes", cells_of(SilvaTree=(0.9, 0.9), CART=(0.95, 0.1))))
    assert "ahead of every other single tree in 50% of 2 cells" in text
    assert "100% (LapTAO)" in text
    assert "50% (CART)" in text


def test_draws_tell_a_difference_from_luck():
    names = ("SilvaTree", "CART", "TAO", "RF", "SilvaForest", "RF+ET")
    tree, luck = np.array([0.7, 0.71, 0.72, 0.73]), np.array([0.01, -0.01, 0.02, -0.02])
    scores = dict.fromkeys(names, tree) | {"CART": tree + 0.1 + luck, "TAO": tree + luck}
    records = [
        {"set": "a", "share": 0.05, "seed": seed,
         "scores": {name: scores[name][seed] for name in names}}
        for seed in range(4)
    ]  # fmt: skip
    text = " ".join(flagship.beyond_chance("classes", records))
    assert "in 0% / 0% (TAO), 0% / 100% (CART)." in text
    assert "SilvaForest less RF+ET on a: +0.0 ± 0.0 over its 4 draws." in text


def test_methods_that_know_the_totals_have_no_rank():
    rows = flagship.summary("classes", cells_of())
    ranked = {row["method"] for row in rows if row["mean rank"]}
    assert ranked == set(flagship.class_methods(0, ()))


def test_a_class_that_the_labels_lack_is_no_trouble_for_xgboost():
    xgboost = pytest.importorskip("xgboost")
    model = flagship.Consecutive(xgboost.XGBClassifier(n_estimators=2))
    X = np.arange(20.0)[:, None]
    y = np.where(X[:, 0] < 10, 1, 5)
    np.testing.assert_array_equal(np.unique(model.fit(X, y).predict(X)), [1, 5])
    assert (model.fit(X, np.full(20, 3)).predict(X) == 3).all()


def test_what_the_log_has_is_not_measured_again(tmp_path, monkeypatch, data_folder):
    monkeypatch.setattr(
        flagship, "class_methods",
        lambda seed, peers: {
            name: flagship.classifiers(seed)["CART, labels only"]
            for name in (*flagship.SINGLE, flagship.FOREST, "RF", "RF+ET")
        },
    )  # fmt: skip
    monkeypatch.setattr(flagship, "TOTALS", {})
    here = flagship.Parallel(n_jobs=1, return_as="generator")  # processes take long to start
    monkeypatch.setattr(flagship, "Parallel", lambda **_: here)
    log, plan = tmp_path / "log.jsonl", [(0.1, 0), (0.1, 1)]
    first = flagship.measured(["iris"], plan[:1], 100, (), log, [])
    both = flagship.measured(["iris"], plan, 100, (), log, [])
    assert both[0] == first[0]
    assert len(read_log(log)) == 2
    assert flagship.measured(["iris"], plan, 90, (), log, [])[0]["rows"] == 90


def test_draws_of_a_whole_set_count_for_any_greater_size(tmp_path, monkeypatch, data_folder):
    monkeypatch.setattr(
        flagship, "class_methods",
        lambda seed, peers: {"CART": flagship.classifiers(seed)["CART, labels only"]},
    )  # fmt: skip
    monkeypatch.setattr(flagship, "TOTALS", {})
    here = flagship.Parallel(n_jobs=1, return_as="generator")
    monkeypatch.setattr(flagship, "Parallel", lambda **_: here)
    log, plan = tmp_path / "log.jsonl", [(0.1, 0)]
    whole = flagship.measured(["iris"], plan, 150, (), log, [])
    assert whole[0]["rows"] == whole[0]["of"]
    assert flagship.measured(["iris"], plan, 200, (), log, []) == whole
    assert len(read_log(log)) == 1


def test_a_record_that_lacks_a_method_is_completed_and_its_other_scores_are_kept(
    tmp_path, monkeypatch, data_folder
):
    monkeypatch.setattr(
        flagship, "class_methods",
        lambda seed, peers: {
            name: flagship.classifiers(seed)["CART, labels only"] for name in ("RF", "CART")
        },
    )  # fmt: skip
    monkeypatch.setattr(flagship, "TOTALS", {})
    here = flagship.Parallel(n_jobs=1, return_as="generator")
    monkeypatch.setattr(flagship, "Parallel", lambda **_: here)
    log = tmp_path / "log.jsonl"
    partial = {"set": "iris", "task": "classification", "share": 0.1, "seed": 0, "rows": 100,
               "of": 150}  # fmt: skip
    append(log, partial | {"scores": {"RF": 2.0}})
    (found,) = flagship.measured(["iris"], [(0.1, 0)], 100, (), log, [])
    assert found["scores"]["RF"] == 2.0
    assert 0 < found["scores"]["CART"] <= 1


def test_a_quick_run_gives_a_page(data_folder, tmp_path, capsys, monkeypatch):
    every = flagship.number_methods(0, ())
    light = flagship.LabelsOnly(DecisionTreeRegressor(random_state=0))
    monkeypatch.setattr(flagship, "number_methods", lambda *_: dict.fromkeys(every, light))
    command.run_table("flagship", Options(quick=True), tmp_path)
    page = capsys.readouterr().out
    assert "| classes | SilvaTree |" in page
    assert "| numbers | SilvaForest |" in page
    assert "## Sets with classes" in page
    assert not (tmp_path / "flagship.md").exists()


def test_a_quick_ablation_compares_every_line_with_the_default(data_folder, monkeypatch, capsys):
    every = flagship_ablation.models
    asked = ("", "graph", "fidelity", "labels")
    monkeypatch.setattr(
        flagship_ablation, "models",
        lambda *given: {
            key: each for key, each in every(*given).items() if key[0] == "tree" and key[1] in asked
        },
    )  # fmt: skip
    command.run_table("flagship_ablation", Options(quick=True))
    page = capsys.readouterr().out
    assert len(every(0, {})) == 20
    for line in ("none (gamma 0)", "columns count alike", "oblique always", "hard labels"):
        assert f"| {line} |" in page
    assert "| tree |  | default |" in page


def test_columns_without_any_value_are_filled_with_zero_others_with_the_median():
    X = np.array([[np.nan, 1.0], [np.nan, np.nan], [np.nan, 3.0]])
    np.testing.assert_array_equal(flagship.fill(X), [[0, 1], [0, 2], [0, 3]])


def test_bins_of_confidence_have_equally_many_rows_and_their_accuracy():
    confidence = np.linspace(0, 1, 100)
    right = (np.arange(100) >= 50).astype(float)
    mean, accuracy = flagship_figures.binned(confidence, right).T
    np.testing.assert_allclose(mean, np.linspace(0, 1, 100).reshape(10, 10).mean(axis=1))
    np.testing.assert_array_equal(accuracy, [0] * 5 + [1] * 5)


def test_an_honest_confidence_has_no_gap():
    rng = np.random.default_rng(0)
    confidence = rng.random(20_000)
    right = rng.random(20_000) < confidence
    (row,) = flagship_figures.rows_of_calibration({"model": np.column_stack([confidence, right])})
    assert float(row["mean gap of a bin, points"]) < 1.5


def test_a_quick_run_has_errors_beside_the_published_ones_and_calibration(
    data_folder, monkeypatch, capsys
):
    light = {"classification": DecisionTreeClassifier(), "regression": DecisionTreeRegressor()}
    monkeypatch.setattr(
        flagship_figures, "methods",
        lambda task, seed, **_: {"SilvaTree": flagship.LabelsOnly(light[task])},
    )  # fmt: skip
    command.run_table("flagship_figures", Options(quick=True))
    page = capsys.readouterr().out
    assert "| cpu_act, MSE | LapTAO, published | 1 | 9.19 |" in page
    assert "| cpu_act, MSE | SilvaTree |" in page
    assert "## Calibration" in page


def test_the_largest_fit_reports_seconds_memory_and_what_it_found(capsys):
    flagship_figures.fit_here("teacher", 3000)
    row = json.loads(capsys.readouterr().out)
    assert row["labels"] == 30
    assert float(row["unlabelled rows found %"]) > 50
