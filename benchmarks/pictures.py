"""How the tables draw: without a screen, the same picture as the same file."""

from __future__ import annotations

from benchmarks.report import RESULTS


def subplots(*grid, **settings):
    """Return a figure and its axes, as `matplotlib.pyplot.subplots` does."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(*grid, layout="constrained", **settings)


def save(figure, name, folder=RESULTS, **settings):
    """Write a figure beside the result pages and close it."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(folder / name, metadata={"Date": None} if name.endswith("svg") else None,
                       **settings)  # fmt: skip
    plt.close(figure)
