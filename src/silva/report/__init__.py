"""Reading what was fitted: a tree as rules or as a picture, a map of rows as a picture."""

from silva.report.maps import plot_map
from silva.report.plot import plot_tree
from silva.report.text import export_text

__all__ = ["export_text", "plot_map", "plot_tree"]
