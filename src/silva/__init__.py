"""Silva: decision trees when labels are scarce."""

from importlib.metadata import version

from silva.estimators.tao import TAOTreeClassifier, TAOTreeRegressor
from silva.report import export_text, plot_tree

__version__ = version("silva")

__all__ = ["TAOTreeClassifier", "TAOTreeRegressor", "export_text", "plot_tree"]
