"""The tables of kernel trees: draws, what they conclude, pictures; each runs on small data."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, make_friedman1, make_moons
from sklearn.dummy import DummyRegressor
from sklearn.tree import DecisionTreeClassifier

from benchmarks import __main__ as command
from benchmarks import kernel_ablation, kernel_figure, kernel_regression, kernel_trees, semi
from benchmarks.data import DataSet
from benchmarks.table import Options, critical_difference, friedman
from silva import KernelTreeClassifier, KernelTreeRegressor


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Have small sets under the names that quick runs ask for."""
    entries = []
    for seed, name in enumerate(("pima", "banknote_authentication")):
        X, y = make_moons(200, noise=0.2, random_state=seed)
        entries.append({"name": name, "task": "classification", "categorical": []})
        pd.DataFrame(X).assign(target=y).to_csv(tmp_path / f"{name}.csv.gz", index=False)
    for seed, name in enumerate(("concrete", "cpu_act")):
        X, y = make_friedman1(200, random_state=seed)
        entries.append({"name": name, "task": "regression", "categorical": []})
        pd.DataFrame(X).assign(target=y).to_csv(tmp_path / f"{name}.csv.gz", index=False)
    (tmp_path / "catalogue.json").write_text(json.dumps(entries))
    monkeypatch.setenv("SILVA_DATA", str(tmp_path))


def results_of(accuracy):
    """Return results of two sets with 25 labels; others than those named have accuracy 0.1."""
    methods = list(kernel_trees.methods(0))
    values = np.full((2, len(methods), 2), 0.1)
    for name, pair in accuracy.items():
        values[:, methods.index(name)] = np.array(pair)[:, None]
    return kernel_trees.Results([("a", 25), ("b", 25)], methods, values)


def test_one_row_of_each_class_is_labelled_then_any():
    y = np.repeat([0, 1, 2], [500, 40, 1])
    labelled = semi.choose_count(y, 25, np.random.default_rng(0))
    counts = np.bincount(y[labelled], minlength=3)
    assert labelled.sum() == 25
    assert counts.min() >= 1
    assert counts[2] == 1


def test_more_classes_than_labels_get_one_label_each():
    y = np.repeat(np.arange(30), 3)
    labelled = semi.choose_count(y, 25, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(y[labelled]), np.ones(30))


def test_labelled_rows_differ_from_draw_to_draw():
    y = np.repeat([0, 1], 100)
    first, second = (
        semi.choose_count(y, 20, np.random.default_rng(seed)) for seed in range(2)
    )  # fmt: skip
    assert (first != second).any()


def test_draws_with_more_labels_have_the_same_rows_scaled_by_the_training_part():
    iris = load_iris()
    data = DataSet(
        "iris", iris.data, iris.target, None, None, "classification", (), tuple("abcd")
    )  # fmt: skip
    few, many = (kernel_trees.draw(data, count, seed=3, size=60) for count in (10, 30))
    np.testing.assert_array_equal(few.X, many.X)
    np.testing.assert_array_equal(few.X_test, many.X_test)
    assert len(few.X) == 60
    assert len(few.X_test) == 60
    np.testing.assert_allclose(few.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(few.X.std(axis=0), 1)
    assert abs(few.X_test.mean(axis=0)).max() > 1e-3
    assert [(part.partial >= 0).sum() for part in (few, many)] == [10, 30]


def test_any_rows_are_labelled_with_numbers():
    X, y = make_friedman1(100, random_state=0)
    data = DataSet("a", X, y, None, None, "regression", (), tuple("abcdefghij"))
    part = kernel_regression.draw(data, 25, seed=1, size=60)
    known = ~np.isnan(part.partial)
    assert known.sum() == 25
    assert len(part.X) == 60
    assert len(part.X_test) == 40
    np.testing.assert_array_equal(part.partial[known], part.y[known])
    np.testing.assert_array_equal(np.sort(np.concatenate([part.y, part.y_test])), np.sort(y))


def test_categories_of_more_than_two_values_become_indicators():
    X = np.array([[0, 1, 5.0, 7], [1, 0, 6.5, 7], [2, np.nan, 1.5, 7], [np.nan, 0, 2.5, 7]])
    data = DataSet(
        "a", X, np.arange(4), None, None, "classification", ("kind", "sex"),
        ("kind", "sex", "size", "constant"),
    )  # fmt: skip
    expected = np.column_stack([
        [1, 0, 0, np.nan], [0, 1, 0, np.nan], [0, 0, 1, np.nan], [1, 0, np.nan, 0],
        [5.0, 6.5, 1.5, 2.5],
    ])  # fmt: skip
    np.testing.assert_array_equal(kernel_trees.indicators(data), expected)


@pytest.mark.parametrize(("n_methods", "quantile"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_difference_matches_the_published_quantiles(n_methods, quantile):
    # Demšar 2006, table 5
    expected = quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * 14))
    assert critical_difference(n_methods, 14) == pytest.approx(expected, rel=1e-3)


def test_friedman_is_small_only_where_methods_differ():
    noise = np.random.default_rng(0).normal(size=(30, 4))
    assert friedman(noise) > 0.05
    assert friedman(noise + np.array([0, 1, 2, 3])) < 1e-6


def test_ours_lead_only_where_they_are_better_than_the_best_of_the_others():
    results = results_of({"KT": [0.8, 0.6], "KF": [0.7, 0.7], "RF": [0.75, 0.7], "PCT": [0.2, 0.9]})
    gaps = kernel_trees.lead(results, kernel_trees.PAPER_TREES, kind=1)
    np.testing.assert_allclose(gaps, [0.05, 0.0])
    everyone = (*kernel_trees.PAPER_TREES, *kernel_trees.CLUSTERING_TREES)
    np.testing.assert_allclose(kernel_trees.lead(results, everyone, 1), [0.05, -0.2])
    notes = kernel_trees.verdicts(results, [25])
    assert "inductive: 50 % beside CART, RF and Self-RF, 50 % beside PCT too" in notes[1]
    assert "KF less RF, points: 25 labels -2.5 / -2.5 (worst inductive -5.0, a)." in notes


def test_width_of_the_least_entropy_is_chosen():
    # Two blobs a label each: the narrow width reaches nobody, the wide one blurs the two.
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 0.1, (20, 2)), rng.normal(3, 0.1, (20, 2))])
    truth = np.repeat([0, 1], 20)
    y = np.where(np.arange(40) % 20 == 0, truth, -1)
    model = semi.LeastEntropyPropagation((1e-3, 0.3, 30.0), max_iter=1000).fit(X, y)
    assert model.model.gamma == pytest.approx(0.5 / 0.3**2)
    np.testing.assert_array_equal(model.transduction_, truth)


def test_transduction_is_filled_up_by_predictions():
    class Partly:
        transduction_ = np.array([1, -1, 0])

        def predict(self, X):
            return np.array([0, 5, 5])

    np.testing.assert_array_equal(kernel_trees.transduced(Partly(), None), [1, 5, 0])


def test_ablation_pairs_each_line_with_the_default_of_its_model():
    cells = [
        {("tree", "", "default"): a, ("tree", "growth", "crisp"): b}
        for a, b in ((0.5, 0.6), (0.7, 0.9))
    ]
    rows = kernel_ablation.rows_of({25: cells})
    assert rows[1]["25 labels"] == "75.0"
    assert rows[1]["difference, 25"] == "+15.00 ± 5.00"


def test_boxes_are_the_leaves_and_fill_the_plane():
    X, _, y = kernel_figure.rows_and_labels(0)
    tree = kernel_figure.fit_all(X, y, 0)[kernel_figure.SMOOTH].tree_
    low, high = X.min(axis=0) - 1, X.max(axis=0) + 1
    found = kernel_figure.boxes(tree, low, high)
    assert len(found) == tree.n_leaves > 3
    areas = [np.prod(above - below) for below, above in found]
    assert min(areas) > 0
    assert sum(areas) == pytest.approx(np.prod(high - low))
    inside = [((below <= X) & (above > X)).all(axis=1) for below, above in found]
    np.testing.assert_array_equal(np.sum(inside, axis=0), 1)


@pytest.mark.parametrize("name", ["kernel_growth", "kernel_figure"])
def test_quick_run_prints_a_table(name, tmp_path, capsys):
    command.run_table(name, Options(quick=True), results=tmp_path)
    assert "| kernel tree, " in capsys.readouterr().out


def test_quick_run_of_kernel_trees_concludes_from_both_sets(
    data_folder, tmp_path, monkeypatch, capsys
):
    fast = {name: semi.LabelsOnly(DecisionTreeClassifier()) for name in kernel_trees.methods(0)}
    fast["KT"] = KernelTreeClassifier(random_state=0)
    monkeypatch.setattr(kernel_trees, "methods", lambda seed: fast)
    command.run_table("kernel_trees", Options(quick=True), results=tmp_path)
    page = capsys.readouterr().out
    assert "| banknote_authentication | 25 |" in page
    assert "the best tree-based method, inductive: " in page
    assert "KT less CART, points: 25 labels +" in page


def test_quick_run_of_kernel_regression_compares_with_the_mean(
    data_folder, tmp_path, monkeypatch, capsys
):
    fast = {name: semi.LabelsOnly(DummyRegressor()) for name in kernel_regression.methods(0)}
    fast["KT"] = KernelTreeRegressor(random_state=0)
    monkeypatch.setattr(kernel_regression, "methods", lambda seed: fast)
    command.run_table("kernel_regression", Options(quick=True), results=tmp_path)
    page = capsys.readouterr().out
    assert "| cpu_act | 25 |" in page
    assert "KT less CART, points: 25 labels +" in page
    assert "KF less RF, points: 25 labels +0.0 / +0.0" in page


def test_quick_run_of_the_ablation_has_every_line(data_folder, tmp_path, monkeypatch, capsys):
    # Forests that choose their blend are slow.
    few = {key: {"blend": 1.0} for key in kernel_ablation.blend_changes()}
    monkeypatch.setattr(kernel_ablation, "blend_changes", lambda: few)
    command.run_table("kernel_ablation", Options(quick=True), results=tmp_path)
    page = capsys.readouterr().out
    assert page.count("\n| tree |") == len(kernel_ablation.tree_changes(0.1))
    assert page.count("\n| forest |") == len(few)
    assert page.count("\n| forest, blend 1 |") == len(kernel_ablation.forest_changes(0.1))
