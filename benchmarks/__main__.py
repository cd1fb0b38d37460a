"""Command line of the benchmarks: run one table, print it and write ``benchmarks/results``."""

from __future__ import annotations

import argparse
import importlib
import os

from benchmarks import report
from benchmarks.table import Options

TABLES = {
    "letter_mnist": "test error and size on Letter and MNIST beside the published figures",
    "tabular": "accuracy of default trees on classification tables beside other single trees",
    "regression": "R² of default trees on regression tables beside other single trees",
    "speed": "training time against TAO in numpy and liblinear",
    "prediction": "rows predicted a second beside scikit-learn's trees",
    "threads": "two threads against one, and whether the trees are the same",
    "memory": "memory of a fit above its input",
    "neighbours": "libraries for approximate neighbours: recall, time, memory",
    "label_step": "solvers of the label-step by size",
    "laptao": "LapTAO on MNIST and cpu_act beside the published figures and the baselines",
    "fashion": "LapTAO and the Laplacian SVM on three classes of Fashion-MNIST",
    "toy": "six labels in the plane, as a picture",
    "few_labels": "accuracy of default trees on 28 tables with 1, 5 and 10 % of the labels",
    "boosting": "boosted TAO trees on Letter, MNIST and Char74k beside the published figures",
    "boosting_study": "what boosted TAO trees depend on: depth, iterations, shrinkage, weighting",
    "boosting_few_labels": "boosting with 1, 5 and 10 % of the labels beside labels only",
    "growth": "time and memory of LapTAO as the rows grow",
    "kernel_trees": "kernel trees and forests with 25 to 200 labels on the sets of their paper",
    "kernel_regression": "kernel trees and forests for numbers with 25 to 250 labels",
    "kernel_ablation": "what kernel trees and forests owe to each of their parts",
    "kernel_growth": "growth time of kernel trees beside scikit-learn's, and as the rows grow",
    "kernel_figure": "ten labels on two moons, as a picture",
    "flagship": "the flagship on tables with 1, 5 and 10 % of the labels beside forests and others",
    "flagship_figures": "the flagship on cpu_act and MNIST, its calibration, and what a fit costs",
    "flagship_ablation": "what the flagship owes to teacher, graph, trust, fidelity and totals",
    "embedding": "tree embeddings beside direct fits, openTSNE and UMAP: objective, accuracy, time",
    "pair_sums": "the sum over all pairs in t-SNE's gradient beside openTSNE's: time and error",
    "s2oct": "trees from biased labels and class totals on the sets of the S²OCT paper",
}
"""Each name is a module of this package with a function ``run(options)`` that returns a Table."""


def main(arguments=None):
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=TABLES, help="table to run; none lists them")
    parser.add_argument("--seeds", type=int, help="seeds or repetitions instead of the table's own")
    parser.add_argument("--quick", action="store_true", help="small version; writes no result")
    parser.add_argument("--data", help="folder of the data sets (sets SILVA_DATA)")
    parser.add_argument(
        "--sets",
        nargs="+",
        default=[],
        help="further sets (tabular, regression), or those to run (embedding)",
    )
    parser.add_argument(
        "--rows", type=int, help="most training rows of a set (kernel_*, s2oct, embedding)"
    )
    parser.add_argument("--limit", type=float, help="most seconds of a fit (s2oct)")
    parser.add_argument(
        "--part",
        type=part,
        metavar="K/N",
        help="measure every N-th instance from the K-th on; run the parts side by side, "
        "then once more without this for the page of them all (s2oct)",
    )
    options = parser.parse_args(arguments)
    if options.name is None:
        for name, text in TABLES.items():
            print(f"{name:20}{text}")
        return
    if options.data is not None:
        os.environ["SILVA_DATA"] = options.data
    sets = tuple(options.sets)
    chosen = (options.seeds, options.quick, sets, options.rows, options.limit, options.part)
    run_table(options.name, Options(*chosen))


def part(text):
    """Read K/N."""
    which, _, of = text.partition("/")
    if not (which.isdigit() and of.isdigit() and 1 <= int(which) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r}: K/N is expected, K from 1 to N, as in 1/2")
    return int(which), int(of)


def run_table(name, options, results=report.RESULTS):
    """Run one table, print it, and write its page unless it is the quick version."""
    module = importlib.import_module(f"benchmarks.{name}")
    page = report.render(module.__doc__, module.run(options))
    print(page)
    if not options.quick:
        report.write(results / f"{name}.md", page)


if __name__ == "__main__":
    main()
