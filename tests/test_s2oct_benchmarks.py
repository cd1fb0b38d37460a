"""The S²OCT table: sets, samples, scores, the log of a long run, what the page concludes."""

import json
import signal
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import accuracy_score, matthews_corrcoef, precision_score, recall_score

from benchmarks import __main__ as command
from benchmarks import s2oct, s2oct_picture
from benchmarks import s2oct_instances as instances
from benchmarks.data import Unavailable
from benchmarks.s2oct_instances import (
    BIASED,
    CLASSES,
    DEFAULT,
    LABELS_ONLY,
    LOGISTIC,
    METHODS,
    OURS,
    PAPER_UNITS,
    ROUGH,
    SIMPLE,
)
from benchmarks.table import Options
from silva.optimal.progress import NoTreeError

SETTINGS = {"limit": 1.0, "most_rows": None}


def save(folder, **frames):
    """Have sets in a data folder."""
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv.gz", index=False)
    entries = [{"name": name, "task": "classification", "categorical": []} for name in frames]
    (folder / "catalogue.json").write_text(json.dumps(entries))


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Have the two sets of quick runs."""
    frames = {}
    for name, load in (("iris", load_iris), ("wine_recognition", load_wine)):
        X, y = load(return_X_y=True)
        frames[name] = pd.DataFrame(X).assign(target=y)
    save(tmp_path, **frames)
    monkeypatch.setenv("SILVA_DATA", str(tmp_path))
    return tmp_path


def record(
    name, *, kind=BIASED, seed=0, rows=100, accuracy=(0.5, 0.5), ours=None, labels=None, both=True
):
    """Return the record of an instance: accuracies of ours and the others, times of proofs."""
    methods = {}
    for method in METHODS:
        value = accuracy[0] if method == OURS else accuracy[1]
        methods[method] = {"unlabelled": [value] * 4, "all": [value] * 4, "seconds": 1.0}
        methods[method] |= {"exact": True, "status": "time limit"}
    for method, seconds in ((OURS, ours), (PAPER_UNITS, ours), (LABELS_ONLY, labels)):
        if seconds is not None:
            methods[method] |= {"proof": seconds, "status": "optimal"}
    return {
        "set": name, "kind": kind, "seed": seed, "rows": rows, "columns": 2, "depth": 2,
        "limit": 120.0, "both": both, "methods": methods, "settings": SETTINGS,
    }  # fmt: skip


# ---- sets and samples ---------------------------------------------------------------------------


def test_rows_are_complete_and_none_is_repeated(tmp_path, monkeypatch):
    frame = pd.DataFrame({"a": [1.0, 1.0, 2.0, None], "target": [0, 0, 1, 1]})
    save(tmp_path, tiny=frame)
    monkeypatch.setenv("SILVA_DATA", str(tmp_path))
    X, labels = instances.rows_and_classes("tiny")
    np.testing.assert_array_equal(X, [[1.0], [2.0]])
    assert labels.tolist() == ["0", "1"]


def test_most_rows_of_a_set_are_the_same_for_every_sample(data_folder):
    few = [instances.instance("iris", BIASED, seed, most_rows=60) for seed in (0, 1)]
    assert few[0].X.shape == (60, 4)
    np.testing.assert_array_equal(few[0].X, few[1].X)
    assert (few[0].labelled != few[1].labelled).any()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["0", "1", "2"], [1, 0, 1]), (["no", "yes", "no"], [0, 1, 0]), (["2", "3", "2"], [0, 1, 0])],
)
def test_class_a_is_the_label_1_or_else_the_first(labels, expected):
    assert instances.two_classes(np.array(labels)).tolist() == expected


def test_a_tenth_is_labelled_and_most_of_it_is_of_class_a_if_biased():
    y = np.repeat([0, 1], [5000, 5000])
    biased, simple = (
        instances.sample(y, kind, np.random.default_rng(0)) for kind in (BIASED, SIMPLE)
    )
    assert biased.sum() == simple.sum() == 1000
    assert np.mean(y[biased] == 0) == pytest.approx(0.85, abs=0.04)  # three deviations
    assert np.mean(y[simple] == 0) == pytest.approx(0.5, abs=0.05)


def test_the_other_class_fills_up_where_class_a_is_short():
    y = np.repeat([0, 1], [3, 197])
    labelled = instances.sample(y, BIASED, np.random.default_rng(0))
    assert labelled.sum() == 20
    assert labelled[:3].all()


def test_every_class_has_a_label_where_a_set_keeps_its_classes():
    y = np.repeat([0, 1, 2], [50, 50, 50])
    for seed in range(20):
        labelled = instances.sample(y, CLASSES, np.random.default_rng(seed))
        assert labelled.sum() == 15
        assert np.bincount(y[labelled], minlength=3).min() >= 1


# ---- scores and methods -------------------------------------------------------------------------


def test_measures_equal_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    truth, answer = rng.integers(2, size=(2, 50))
    expected = [accuracy_score(truth, answer), matthews_corrcoef(truth, answer)]
    expected += [score(truth, answer, pos_label=0) for score in (precision_score, recall_score)]
    np.testing.assert_allclose(instances.quality(truth, answer), expected)


def test_measures_that_are_undefined_are_zero():
    assert instances.quality(np.array([0, 1]), np.array([1, 1])) == [0.5, 0.0, 0.0, 0.0]


def test_the_cut_gives_the_total_even_if_scores_are_equal():
    score, unlabelled = np.array([0.5, 0.5, 0.9, 0.5, 0.1]), np.array([1, 1, 1, 0, 0], bool)
    np.testing.assert_array_equal(instances.cut(score, unlabelled, 2), [0, 1, 0, 0, 1])
    np.testing.assert_array_equal(instances.cut(score, unlabelled, 0), [1, 1, 1, 1, 1])


def test_with_one_class_labelled_the_nearest_rows_are_of_it():
    X = np.array([[0.0], [0.1], [0.2], [5.0], [6.0]])
    labelled = np.array([1, 0, 0, 0, 0], bool)
    case = instances.Instance("a", BIASED, 0, X, np.array([0, 0, 0, 1, 1]), labelled)
    np.testing.assert_array_equal(instances.logistic(case, 1.0).classes, case.y)


def test_every_method_answers_all_rows_and_knows_its_time(data_folder):
    case = instances.instance("iris", BIASED, 0)
    found = instances.measure(case, 10.0, {})
    assert list(found["methods"]) == list(METHODS)
    assert found["both"] == (len(set(case.y[case.labelled])) == 2)
    assert (found["rows"], found["columns"], found["depth"]) == (149, 4, 2)
    ours = found["methods"][OURS]
    assert ours["status"] == "optimal"
    assert 0 < ours["proof"] <= ours["seconds"]
    assert ours["exact"]
    assert found["methods"][LABELS_ONLY]["objective"] == 0.0
    json.dumps(found)


def test_the_heuristic_stands_in_where_no_tree_is_found_in_time(monkeypatch):
    def find_none(*args, **settings):
        raise NoTreeError("no tree was found")

    monkeypatch.setattr("silva.estimators.semi_optimal.solve", find_none)
    X = np.random.default_rng(0).normal(size=(40, 2))
    X[1] = X[0]  # which no tree has right
    case = instances.Instance("a", BIASED, 0, X, np.arange(40) % 2, np.arange(40) < 4)
    found = instances.semi_optimal(case, 10.0)
    assert found.facts["status"] == "heuristic"
    assert found.facts["exact"]
    assert "proof" not in found.facts


# ---- a long run ---------------------------------------------------------------------------------


PLAN = [("a", BIASED, 0), ("b", BIASED, 0), ("c", BIASED, 0)]


def recording(monkeypatch, errors):
    """Measure by hand-made records, or raise the set's error; return the list of sets asked for."""
    asked = []

    def fake(name, kind, seed, settings, known):
        asked.append(name)
        if name in errors:
            raise errors[name]
        return record(name, kind=kind, seed=seed)

    monkeypatch.setattr(s2oct, "measure_one", fake)
    return asked


def test_an_interrupted_run_goes_on_where_it_ended(tmp_path, monkeypatch):
    log, notes = tmp_path / "results" / "log.jsonl", []
    asked = recording(monkeypatch, {"b": KeyboardInterrupt()})
    assert len(s2oct.measured(PLAN, SETTINGS, log, notes)) == 1
    assert notes[0].startswith("Interrupted")
    asked = recording(monkeypatch, {})
    found = s2oct.measured(PLAN, SETTINGS, log, [])
    assert asked == ["b", "c"]
    assert [each["set"] for each in found] == ["a", "b", "c"]
    assert len(s2oct.read_log(log)) == 3


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_search_that_survived_an_interrupt_is_not_recorded(which, tmp_path, monkeypatch):
    def survivor(name, kind, seed, settings, known):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(which)
        return record(name)

    log, notes = tmp_path / "log.jsonl", []
    monkeypatch.setattr(s2oct, "measure_one", survivor)
    before = signal.getsignal(which)
    assert s2oct.measured(PLAN, SETTINGS, log, notes) == []
    assert notes[0].startswith("Interrupted")
    assert not log.exists()
    assert signal.getsignal(which) is before


def test_parts_share_the_work_and_a_last_run_has_it_all(tmp_path, monkeypatch):
    log = tmp_path / "log.jsonl"
    asked = recording(monkeypatch, {})
    assert len(s2oct.measured(PLAN, SETTINGS, log, [], part=(1, 2))) == 2
    assert asked == ["a", "c"]
    s2oct.measured(PLAN, SETTINGS, log, [], part=(2, 2))
    assert asked == ["a", "c", "b"]
    found = s2oct.measured(PLAN, SETTINGS, log, [])
    assert [each["set"] for each in found] == ["a", "b", "c"]
    assert len(asked) == 3


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/"])
def test_a_part_that_is_none_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        command.main(["s2oct", "--part", text])
    assert "K/N is expected" in capsys.readouterr().err


def test_other_settings_are_measured_anew(tmp_path, monkeypatch):
    log = tmp_path / "log.jsonl"
    s2oct.append(log, record("a"))
    asked = recording(monkeypatch, {})
    s2oct.measured(PLAN[:1], SETTINGS | {"limit": 2.0}, log, [])
    assert asked == ["a"]


def test_methods_that_a_record_lacks_are_measured_and_no_others(tmp_path, data_folder, monkeypatch):
    log, settings = tmp_path / "log.jsonl", SETTINGS | {"limit": 10.0}
    old = record("iris", seed=1, ours=1.0) | {"settings": settings}
    old["methods"] = {name: old["methods"][name] for name in instances.methods_of(BIASED, 1)}
    del old["methods"]["CART"]
    s2oct.append(log, old)
    (found,) = s2oct.measured([("iris", BIASED, 1)], settings, log, [])
    assert found["methods"].pop("CART")["unlabelled"][0] > 0.5
    assert found["methods"] == old["methods"]


@pytest.mark.parametrize(
    ("status", "rows", "same"),
    [("optimal", 100, OURS), ("time limit", 100, None), ("optimal", 20_000, ROUGH)],
)
def test_the_default_is_not_fitted_where_its_tree_is_known(status, rows, same):
    methods = {OURS: {"status": status}}
    assert instances.same_fit(DEFAULT, methods, rows) == same
    assert instances.same_fit("CART", methods, rows) is None


def test_a_line_that_was_cut_off_is_dropped_from_the_log(tmp_path):
    log = tmp_path / "log.jsonl"
    s2oct.append(log, record("a"))
    whole = log.read_text("utf-8")
    log.write_text(whole + whole[:20], "utf-8")
    assert [each["set"] for each in s2oct.read_log(log)] == ["a"]
    assert log.read_text("utf-8") == whole


def test_a_failure_is_a_note_and_is_tried_again(tmp_path, monkeypatch):
    log, notes = tmp_path / "log.jsonl", []
    recording(monkeypatch, {"b": ValueError("bad"), "c": Unavailable("c: not here")})
    assert [each["set"] for each in s2oct.measured(PLAN, SETTINGS, log, notes)] == ["a"]
    assert "Failed: b, biased, sample 0: ValueError('bad')." in notes
    assert "Instances: 1, of 1 sets; 3 sets were asked for." in notes
    asked = recording(monkeypatch, {})
    s2oct.measured(PLAN, SETTINGS, log, [])
    assert asked == ["b", "c"]


# ---- the page -----------------------------------------------------------------------------------


def test_means_are_over_the_sets_of_a_size():
    records = [record("a", accuracy=(0.6, 0.5)), record("b", rows=2000, accuracy=(0.9, 0.5))]
    means = {
        row["sets"]: row["accuracy"] for row in s2oct.mean_rows(records) if row["method"] == OURS
    }
    assert means == {
        "N < 1000": "0.600 (0.600)", "N ≥ 1000": "0.900 (0.900)", "all": "0.750 (0.750)",
    }  # fmt: skip


def test_all_sizes_are_of_the_samples_that_have_every_set():
    records = [record("a", seed=0), record("b", seed=0, rows=2000), record("a", seed=1)]
    found = {size: len(some) for _, size, some in s2oct.groups(records)}
    assert found == {"N < 1000": 2, "N ≥ 1000": 1, "all": 2}
    records.append(record("a", kind=SIMPLE, seed=0))
    assert [(kind, size) for kind, size, _ in s2oct.groups(records)][3:] == [(SIMPLE, "N < 1000")]


def test_small_sets_come_first_and_simple_samples_of_large_ones_are_one():
    order = s2oct.instances_in_order(("large", "small"), ("small",), {"large"}, range(2))
    assert order == [
        ("small", BIASED, 0), ("small", BIASED, 1), ("small", CLASSES, 0), ("small", CLASSES, 1),
        ("small", SIMPLE, 0), ("small", SIMPLE, 1),
        ("large", BIASED, 0), ("large", BIASED, 1), ("large", SIMPLE, 0),
    ]  # fmt: skip


def test_the_time_asked_for_counts_where_it_is_less_than_the_own():
    assert s2oct.limits(300.0) == "Most seconds of a fit: 120 below 1000 rows, else 300."
    assert s2oct.limits(None) == "Most seconds of a fit: 120 below 1000 rows, else 600."


def test_the_paper_units_are_asked_for_the_first_sample_only():
    assert set(METHODS) - set(instances.methods_of(BIASED, 0)) == set()
    assert set(METHODS) - set(instances.methods_of(BIASED, 1)) == {PAPER_UNITS}


def test_a_method_is_judged_by_the_samples_that_have_it():
    records = [record("a", accuracy=(0.9, 0.8), ours=3.0), record("a", seed=1, ours=9.0)]
    del records[1]["methods"][PAPER_UNITS]
    counts = {row["method"]: row["instances"] for row in s2oct.mean_rows(records)}
    assert (counts[OURS], counts[PAPER_UNITS]) == (2, 1)
    shares = {row["method"]: row["5 s"] for row in s2oct.proof_rows(records)}
    assert (shares[OURS], shares[PAPER_UNITS]) == ("50 %", "100 %")
    (row,) = s2oct.set_rows(records)
    assert (row[OURS], row[PAPER_UNITS]) == ("0.700", "0.800")
    (row,) = s2oct.set_rows(records[1:])
    assert PAPER_UNITS not in row


def test_share_proven_grows_with_time():
    records = [record("a", ours=3.0), record("b", ours=40.0), record("c"), record("d", ours=5.0)]
    row = s2oct.proof_rows(records)[-2]
    assert (row["sets"], row["method"], row["paper"]) == ("all", PAPER_UNITS, "58 % in 7200 s")
    assert [row[f"{moment} s"] for moment in (5, 30, 60, 120)] == ["50 %", "50 %", "75 %", "75 %"]
    assert "300 s" not in row  # no fit took so long


def test_verdict_counts_instances_ahead_of_logistic_regression():
    accuracies = [(0.8, 0.7), (0.7, 0.7), (0.6, 0.7), (0.9, 0.7)]
    records = [record(str(i), accuracy=pair, ours=1.0) for i, pair in enumerate(accuracies)]
    assert s2oct.verdicts(records)[-2] == (
        "Biased samples, all (4 instances): S²OCT proven optimal on 100 %, all constraints kept on "
        "100 %, the exact total on 100 %; more accurate than top-λ logistic regression on 50 %, "
        "equally so on 25 %."
    )
    assert LOGISTIC in METHODS


def test_instances_with_labels_of_both_classes_have_means_of_their_own():
    records = [record("a", accuracy=(0.8, 0.7)), record("b", accuracy=(0.2, 0.3), both=False)]
    assert s2oct.verdicts(records)[-1] == (
        "Biased samples, all (2 instances), labels of both classes (1 instances), accuracy / MCC: "
        "S²OCT 0.800 / 0.800, S²OCT, default 0.700 / 0.700, S²OCT, heuristic 0.700 / 0.700, top-λ "
        "logistic 0.700 / 0.700."
    )


def test_quartiles_of_differences_are_of_all_and_of_proven_instances():
    pairs = [(0.6, 0.5), (0.7, 0.5), (0.2, 0.5)]
    records = [
        record(str(i), accuracy=pair, ours=1.0 if i < 2 else None, labels=2.0)
        for i, pair in enumerate(pairs)
    ]
    rows = {row["instances"]: row for row in s2oct.difference_rows(records)}
    assert (rows["all: 3"]["least"], rows["all: 3"]["median"]) == ("-0.300", "+0.100")
    assert (rows["both proven: 2"]["least"], rows["both proven: 2"]["largest"]) == (
        "+0.100", "+0.200",
    )  # fmt: skip


def test_large_sets_have_a_section_of_their_own():
    titles = [title for title, _, _ in s2oct.sections([record("a"), record("b", rows=30_000)])]
    assert titles[-1] == "Large sets"
    (row,) = s2oct.large_rows([record("b", rows=30_000)])
    assert (row["set"], row["exact totals"]) == ("b", "1 of 1")


def test_steps_reach_the_share_that_was_proven():
    seconds, share = s2oct_picture.steps(np.array([2.0, np.inf, 1.0, np.inf]), longest=10.0)
    np.testing.assert_array_equal(seconds, [1, 1, 2, 10])
    np.testing.assert_array_equal(share, [0, 0.25, 0.5, 0.5])
    assert s2oct_picture.steps(np.array([np.inf]), longest=10.0)[1].tolist() == [0, 0]


def test_picture_is_drawn_even_if_nothing_is_proven(tmp_path):
    records = [record("a"), record("b", kind=SIMPLE, ours=1.0, labels=1.0)]
    s2oct_picture.draw(records, tmp_path)
    assert "</svg>" in (tmp_path / s2oct_picture.PICTURE).read_text("utf-8")


def test_quick_run_prints_every_section(data_folder, tmp_path, monkeypatch, capsys):
    for name in METHODS:
        if name not in (OURS, LABELS_ONLY):  # the others have a test above
            monkeypatch.setitem(METHODS, name, instances.cart)
    command.run_table("s2oct", Options(quick=True), results=tmp_path / "results")
    page = capsys.readouterr().out
    assert "| biased | iris | 149 | 4 | 1 of 1 |" in page
    assert "| simple | wine_recognition | 178 | 13 |" in page
    for title in ("Proven optimal against time", "S²OCT less OCT-H", "Sets", "Three classes"):
        assert f"## {title}" in page
    assert not (tmp_path / "results").exists()
