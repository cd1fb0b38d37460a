"""Reading a fitted tree: as rules, as a picture."""

from silva.report.plot import plot_tree
from silva.report.text import export_text

__all__ = ["export_text", "plot_tree"]
