"""The picture of the S²OCT table: run times (the paper's figure 2) and differences (3 to 6)."""

from __future__ import annotations

import numpy as np

from benchmarks.pictures import save, subplots
from benchmarks.s2oct_instances import BIASED, LABELS_ONLY, MEASURES, OURS, SIMPLE

PICTURE = "s2oct.svg"
COLOURS = {OURS: "#2b6ca3", LABELS_ONLY: "#d9722b"}
PAPER_SHARE = {OURS: 0.58, LABELS_ONLY: 0.86}
BOXES = ("all rows", "unlabelled", "all rows,\nproven", "unlabelled,\nproven")


def draw(records, folder):
    """Write the picture: a line of axes for each kind of sample."""
    kinds = [kind for kind in (BIASED, SIMPLE) if any(r["kind"] == kind for r in records)]
    figure, axes = subplots(
        len(kinds), 1 + len(MEASURES), figsize=(17, 3.4 * len(kinds)),
        squeeze=False,
    )  # fmt: skip
    for line, kind in zip(axes, kinds, strict=True):
        some = [record for record in records if record["kind"] == kind]
        draw_run_times(line[0], some, kind)
        for j, axis in enumerate(line[1:]):
            draw_differences(axis, some, j)
    save(figure, PICTURE, folder)


def draw_run_times(axis, records, kind):
    """Share proven against seconds, with the paper's shares after 7200 s dotted."""
    from benchmarks.s2oct import proof_seconds

    longest = max(record["methods"][OURS]["seconds"] for record in records)
    for method, colour in COLOURS.items():
        seconds, share = steps(proof_seconds(records, method), longest)
        axis.step(seconds, share, where="post", color=colour, label=method)
        if kind == BIASED:
            axis.axhline(PAPER_SHARE[method], color=colour, linestyle=":", linewidth=1)
    axis.set(xscale="log", ylim=(0, 1.02), xlabel="seconds", title=f"proven, {kind} samples")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")
    axis.legend(loc="lower right")


def steps(seconds, longest):
    """Return the corners of the empirical distribution; proofs that never came are at no corner."""
    known = np.sort(seconds[np.isfinite(seconds)])
    share = np.arange(len(known) + 1) / len(seconds)
    ends = [*known, max(longest, *known, 0.0)]
    return np.array([ends[0], *ends]), np.append(share, share[-1])


def draw_differences(axis, records, j):
    """Boxes of S²OCT less OCT-H in one measure; an empty one stays away."""
    from benchmarks.s2oct import both_proven, differences

    proven = both_proven(records)
    chosen = [(some, rows) for some in (records, proven) for rows in ("all", "unlabelled")]
    for i, (some, rows) in enumerate(chosen):
        if some:
            axis.boxplot(
                differences(some, rows)[:, j], positions=[i], widths=0.6, patch_artist=True,
                boxprops={"facecolor": "#cfe3f5"}, medianprops={"color": "black"},
                flierprops={"marker": ".", "markersize": 3},
            )  # fmt: skip
    axis.axhline(0, color="#9a9a9a", linewidth=0.8)
    axis.set_xticks(range(len(BOXES)), BOXES, fontsize=7)
    axis.set_title(f"{MEASURES[j]}: {OURS} − {LABELS_ONLY}")
