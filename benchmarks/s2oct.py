"""Trees from few, biased labels and known class totals, beside section 4 of the S²OCT paper.

An instance is a set with a draw of labels for a tenth of its rows. "Biased" samples take each label
from class A with a chance of 85 % (the paper's section 4), "simple" ones take any rows (appendix
B). The sets are those of the paper's Table 1 that the data folder has: complete rows, repeated ones
dropped, class A the label 1 if there is one, else the first, all others B. Trees have the paper's
depth: 2 below 1,000 rows, else 3. One thread.

S²OCT (`SemiOptimalTreeClassifier` with `method="exact"`; also with the paper's units of the
columns, `scaling="paper"`, a minute at most, on the first sample of a set only; and with
`method="heuristic"`, which stands in where no tree that keeps all constraints was found in the
time) knows the labels and how many unlabelled rows are A, λ. Its default, `method="auto"`, is the
same where there is a proof, and counts as that; where there is none, the forest's opinion chooses
among the trees that keep all constraints, not the objective; above 10,000 rows it is the heuristic.
OCT-H (`OptimalTreeClassifier`, a minute at most) and CART (scikit-learn) know the labels. "Top-λ"
methods call the λ unlabelled rows of the highest score A: logistic regression and extremely random
trees on the labels (if these are of one class, rows rank by their distance from the labelled ones).
LapTAO knows all rows, and with "totals" how many are A, unless one class has no label.

Small sets come first, and of a size the biased samples; of large sets there is one simple sample.
"All" sizes are of the samples that have every set.

Means over the instances: accuracy, Matthews' correlation, precision and recall of class A, on the
unlabelled rows and, in brackets, on all rows. "Seconds" is the whole fit on this machine.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import s2oct_picture
from benchmarks.data import Unavailable
from benchmarks.report import RESULTS
from benchmarks.resumable import append, read_log, remembered_interrupts, sittings
from benchmarks.s2oct_instances import (
    BIASED,
    CLASSES,
    DEFAULT,
    LABELS_ONLY,
    LOGISTIC,
    MEASURES,
    METHODS,
    OURS,
    PAPER_UNITS,
    ROUGH,
    SIMPLE,
    TABLE_1,
    instance,
    measure,
    methods_of,
    rows_and_classes,
)
from benchmarks.table import Table, progress

QUICK_SETS = ("iris", "wine_recognition")
OWN_CLASSES = (
    "iris", "wine_recognition", "penguins", "balance_scale", "tae", "cars", "splice", "dna",
    "waveform_21",
)  # fmt: skip
SMALL_ROWS, LARGE_ROWS = 1000, 20_000
SMALL_LIMIT, LIMIT, QUICK_LIMIT = 120.0, 600.0, 5.0  # seconds below SMALL_ROWS, above, if quick
MOMENTS = (5, 10, 30, 60, 120, 300, 600)
PAPER_PROVEN = {PAPER_UNITS: "58 % in 7200 s", LABELS_ONLY: "86 % in 7200 s"}
QUARTILES = ("least", "25 %", "median", "75 %", "largest")
LOG = "s2oct.jsonl"


def run(options):
    """Return the table, and draw the picture unless the run is a quick one."""
    seeds = range(options.seeds or (1 if options.quick else 5))
    names = (*(QUICK_SETS if options.quick else TABLE_1), *options.sets)
    own = QUICK_SETS[:1] if options.quick else OWN_CLASSES
    large = {name for name in names if not options.quick and is_large(name, options.rows)}
    plan = instances_in_order(names, own, large, seeds)
    settings = {"limit": options.limit or (QUICK_LIMIT if options.quick else None)}
    settings["most_rows"] = options.rows
    notes = [f"Samples of a set: {len(seeds)}. {limits(settings['limit'])}"]
    if options.rows is not None:
        notes.append(f"Rows of a set: at most {options.rows}, drawn once.")
    log = None if options.quick else RESULTS / LOG
    records = measured(plan, settings, log, notes, options.part)
    two = [record for record in records if record["kind"] != CLASSES]
    if not two:
        return Table([], notes)
    notes += verdicts(two)
    if not options.quick:
        s2oct_picture.draw(two, RESULTS)
        notes.append("In the picture dotted lines are the paper's shares, after 7200 s.")
        notes.append(f"![run times and differences]({s2oct_picture.PICTURE})")
    return Table(mean_rows(two), notes, ("highspy",), sections(records))


def instances_in_order(names, own, large, seeds):
    """Return (set, kind, seed) of all instances: small sets first, and the paper's own samples.

    Parameters
    ----------
    names, own : sequences of str
        Sets, and those that keep their classes as well.
    large : set of str
    seeds : sequence of int
        Simple samples of large sets are of the first one only.
    """
    return [
        (name, kind, seed)
        for of_size in (False, True)
        for kind, those in ((BIASED, names), (CLASSES, own), (SIMPLE, names))
        for seed in (seeds[:1] if of_size and kind == SIMPLE else seeds)
        for name in those
        if (name in large) == of_size
    ]


def limits(limit):
    """Say how long a fit may take."""
    small, large = (min(own, limit or own) for own in (SMALL_LIMIT, LIMIT))
    return f"Most seconds of a fit: {small:g} below {SMALL_ROWS} rows, else {large:g}."


def is_large(name, most_rows):
    """Whether a set that is there has SMALL_ROWS or more."""
    try:
        return len(rows_and_classes(name, most_rows)[1]) >= SMALL_ROWS
    except Unavailable:
        return False


# ---- measuring ----------------------------------------------------------------------------------


def measured(plan, settings, log, notes, part=None):
    """Return the records of the instances; those that the log has are not measured again.

    A run may be interrupted at any time and goes on when it is started again: each record becomes
    a line of the log. After Ctrl-C, or the end of `timeout`, the page is about the instances so
    far. An instance that fails is a note, and is tried again by the next run. With a part (k, n)
    only every n-th instance from the k-th on is measured.
    """
    known = {key(record): record for record in read_log(log) if record["settings"] == settings}
    done = {case: record for case, record in known.items() if is_complete(record)}
    if known:
        there = sum(case in done for case in plan)
        progress(f"{there} of {len(plan)} instances are in {log}; delete it to measure anew")
    missing = set()
    with remembered_interrupts() as wishes:
        which, of = part or (1, 1)
        for name, kind, seed in plan[which - 1 :: of]:
            if (name, kind, seed) in done or name in missing:
                continue
            try:
                methods = known.get((name, kind, seed), {}).get("methods", {})
                record = measure_one(name, kind, seed, settings, methods)
                if wishes:  # a search for a proof survived Ctrl-C, with the best tree so far
                    raise KeyboardInterrupt
            except Unavailable:
                missing.add(name)
            except KeyboardInterrupt:
                notes.append("Interrupted; the next run goes on from here.")
                break
            except Exception as error:  # a night's run goes on, and the page says so
                notes.append(f"Failed: {name}, {kind}, sample {seed}: {error!r}.")
                progress(notes[-1])
            else:
                done[name, kind, seed] = append(log, record)
    records = [done[case] for case in plan if case in done]
    notes += sittings(records)
    sets, asked = {case["set"] for case in records}, {name for name, _, _ in plan}
    notes.append(
        f"Instances: {len(records)}, of {len(sets)} sets; {len(asked)} sets were asked for."
    )
    return records


def measure_one(name, kind, seed, settings, known):
    """Return the record of one instance; some methods may be known from an earlier run."""
    case = instance(name, kind, seed, settings["most_rows"])
    own = SMALL_LIMIT if len(case.y) < SMALL_ROWS else LIMIT
    with threadpool_limits(1):
        record = measure(case, min(own, settings["limit"] or own), known)
    ours = record["methods"][OURS]
    progress(
        f"{name}, {kind}, sample {seed}, {len(case.y)} rows: {ours['status']} after "
        f"{ours['seconds']:.1f} s, accuracy {ours['unlabelled'][0]:.3f}"
    )
    return record | {"settings": settings}


def key(record):
    """Return what tells an instance from the others."""
    return record["set"], record["kind"], record["seed"]


def is_complete(record):
    """Whether a record has all methods."""
    return set(methods_of(record["kind"], record["seed"])) <= record["methods"].keys()


# ---- what the page says -------------------------------------------------------------------------


def percent(share):
    """Write a share."""
    return f"{100 * share:.0f} %"


def groups(records):
    """Yield the kind of sample, the name of a size and the records, as far as there are any.

    "All" sizes are of the samples that have every set that any sample has: others were interrupted.
    """
    sets = Counter((record["kind"], record["seed"]) for record in records)
    most = max(sets.values(), default=0)
    for kind in (BIASED, SIMPLE):
        of_kind = [record for record in records if record["kind"] == kind]
        sizes = {
            f"N < {SMALL_ROWS}": [each for each in of_kind if each["rows"] < SMALL_ROWS],
            f"N ≥ {SMALL_ROWS}": [each for each in of_kind if each["rows"] >= SMALL_ROWS],
            "all": [each for each in of_kind if sets[kind, each["seed"]] == most],
        }
        for size, some in sizes.items():
            if some:
                yield kind, size, some


def with_method(records, method):
    """Return the records that have a method: slow ones are not asked for every sample."""
    return [record for record in records if method in record["methods"]]


def scores(records, method, rows="unlabelled"):
    """Return the MEASURES of a method, one line an instance."""
    return np.array([record["methods"][method][rows] for record in records])


def proof_seconds(records, method):
    """Return when each proof was complete, infinity where none was found."""
    return np.array([record["methods"][method].get("proof", np.inf) for record in records])


def mean_rows(records):
    """Means of all measures over the instances of each kind and size."""
    rows = []
    for kind, size, every in groups(records):
        for method in METHODS:
            some = with_method(every, method)
            if not some:
                continue
            hidden, everywhere = (
                scores(some, method, which).mean(axis=0) for which in ("unlabelled", "all")
            )
            cells = zip(MEASURES, hidden, everywhere, strict=True)
            seconds = np.mean([record["methods"][method]["seconds"] for record in some])
            rows.append(
                {"samples": kind, "sets": size, "instances": len(some), "method": method}
                | {name: f"{a:.3f} ({b:.3f})" for name, a, b in cells}
                | {"seconds": f"{seconds:.1f}"}
            )
    return rows


def verdicts(records):
    """Say in words what the paper and the plan ask."""
    notes = []
    for kind, size, some in groups(records):
        where = f"{kind.capitalize()} samples, {size} ({len(some)} instances)"
        ours, other = (scores(some, method)[:, 0] for method in (OURS, LOGISTIC))
        proven = np.isfinite(proof_seconds(some, OURS))
        facts = [record["methods"][OURS] for record in some]
        exact = np.mean([fact["exact"] for fact in facts])
        kept = np.mean([fact["status"] != "heuristic" for fact in facts])
        notes.append(
            f"{where}: S²OCT proven optimal on {percent(proven.mean())}, all constraints kept on "
            f"{percent(kept)}, the exact total on {percent(exact)}; more accurate than top-λ "
            f"logistic regression on {percent(np.mean(ours > other))}, equally so on "
            f"{percent(np.mean(ours == other))}."
        )
        both = [record for record in some if record["both"]]
        if both:
            means = {
                method: scores(both, method).mean(axis=0)
                for method in (OURS, DEFAULT, ROUGH, LOGISTIC)
            }
            notes.append(
                f"{where}, labels of both classes ({len(both)} instances), accuracy / MCC: "
                + ", ".join(f"{name} {m[0]:.3f} / {m[1]:.3f}" for name, m in means.items())
                + "."
            )
    return notes


def sections(records):
    """Return the further tables: proofs, differences, sets, three classes, large sets."""
    two = [record for record in records if record["kind"] != CLASSES]
    own = [record for record in records if record["kind"] == CLASSES]
    large = [record for record in two if record["rows"] >= LARGE_ROWS]
    found = [
        (
            "Proven optimal against time",
            "Share of the instances whose proof was complete after so many seconds of one run, "
            "beside the paper's (figure 2: Gurobi, one core).",
            proof_rows(two),
        ),
        (
            "S²OCT less OCT-H",
            "Quartiles of the differences, which figures 3 to 6 of the paper show as boxes. The "
            "paper's accuracy is ahead on three quarters of the biased samples.",
            difference_rows(two),
        ),
        ("Sets", "Accuracy on the unlabelled rows, mean over the samples.", set_rows(two)),
    ]
    if own:
        words = "Sets with classes of their own, biased samples with a label of each class."
        found.append(("Three classes", words, class_rows(own)))
    if large:
        found.append(("Large sets", 'With `method="heuristic"`.', large_rows(large)))
    return tuple(found)


def proof_rows(records):
    """Share proven after a number of seconds, as far as a fit may take."""
    longest = max(record["limit"] for record in records)
    moments = [moment for moment in MOMENTS if moment <= longest] or [longest]
    rows = []
    for kind, size, every in groups(records):
        for method in (OURS, PAPER_UNITS, LABELS_ONLY):
            some = with_method(every, method)
            if not some:
                continue
            seconds = proof_seconds(some, method)
            row = {"samples": kind, "sets": size, "instances": len(some), "method": method}
            row |= {f"{moment:g} s": percent(np.mean(seconds <= moment)) for moment in moments}
            of_paper = kind == BIASED and size == "all"
            rows.append(row | {"paper": PAPER_PROVEN.get(method, "") if of_paper else ""})
    return rows


def differences(records, rows="unlabelled"):
    """Return S²OCT less OCT-H in all MEASURES, one line an instance."""
    return scores(records, OURS, rows) - scores(records, LABELS_ONLY, rows)


def both_proven(records):
    """Return the instances on which S²OCT and OCT-H are proven."""
    proofs = [proof_seconds(records, method) for method in (OURS, LABELS_ONLY)]
    return [
        record
        for record, last in zip(records, np.max(proofs, axis=0), strict=True)
        if last < np.inf
    ]


def difference_rows(records):
    """Quartiles of the differences, for all instances and for those with both proofs."""
    rows = []
    for kind in (BIASED, SIMPLE):
        every = [record for record in records if record["kind"] == kind]
        for which, some in (("all", every), ("both proven", both_proven(every))):
            for j, name in enumerate(MEASURES):
                for scope in ("unlabelled", "all"):
                    if not some:
                        continue
                    values = np.quantile(differences(some, scope)[:, j], [0, 0.25, 0.5, 0.75, 1])
                    cells = zip(QUARTILES, values, strict=True)
                    rows.append(
                        {"samples": kind, "instances": f"{which}: {len(some)}", "measure": name}
                        | {"rows": scope}
                        | {quartile: f"{value:+.3f}" for quartile, value in cells}
                    )
    return rows


def set_rows(records):
    """One line for each set and kind of sample."""
    rows = []
    for kind in (BIASED, SIMPLE):
        for name in dict.fromkeys(record["set"] for record in records):
            some = [r for r in records if r["set"] == name and r["kind"] == kind]
            if some:
                rows.append({"samples": kind} | set_cells(some, METHODS))
    return rows


def class_rows(records):
    """One line for each set with its own classes."""
    return [
        set_cells([r for r in records if r["set"] == name], records[0]["methods"])
        for name in dict.fromkeys(record["set"] for record in records)
    ]


def set_cells(some, methods):
    """Cells about the samples of one set."""
    seconds = proof_seconds(some, OURS)
    proven = np.isfinite(seconds)
    exact = sum(record["methods"][OURS]["exact"] for record in some)
    cells = {
        "set": some[0]["set"], "N": some[0]["rows"], "p": some[0]["columns"],
        "proven": f"{proven.sum()} of {len(some)}",
        "median seconds": f"{np.median(seconds[proven]):.1f}" if proven.any() else "",
        "exact totals": f"{exact} of {len(some)}",
    }  # fmt: skip
    return cells | {
        method: f"{scores(having, method)[:, 0].mean():.3f}"
        for method in methods
        if (having := with_method(some, method))
    }


def large_rows(records):
    """The heuristic, one line for each large set and kind of sample."""
    rows = []
    for name, kind in dict.fromkeys((record["set"], record["kind"]) for record in records):
        some = [r for r in records if (r["set"], r["kind"]) == (name, kind)]
        facts = [record["methods"][ROUGH] for record in some]
        accuracy, mcc = scores(some, ROUGH)[:, :2].T
        rows.append(
            {"samples": kind, "set": name, "N": some[0]["rows"], "depth": some[0]["depth"]}
            | {"seconds": f"{np.mean([fact['seconds'] for fact in facts]):.1f}"}
            | {"accuracy": f"{accuracy.mean():.3f}, least {accuracy.min():.3f}"}
            | {"MCC": f"{mcc.mean():.3f}"}
            | {"exact totals": f"{sum(fact['exact'] for fact in facts)} of {len(some)}"}
        )
    return rows
