"""Silva: decision trees when labels are scarce."""

from importlib.metadata import version

from silva.estimators.boosting import TAOBoostClassifier
from silva.estimators.embedding import TreeEmbedding
from silva.estimators.forest import TAOForestClassifier, TAOForestRegressor
from silva.estimators.gradient_boosting import TAOBoostRegressor
from silva.estimators.kernel_forest import KernelForestClassifier, KernelForestRegressor
from silva.estimators.kernel_tree import KernelTreeClassifier, KernelTreeRegressor
from silva.estimators.laplacian_svc import LaplacianSVC
from silva.estimators.laptao import LapTAOClassifier, LapTAORegressor
from silva.estimators.optimal_tree import OptimalTreeClassifier
from silva.estimators.predictive_clustering import (
    PredictiveClusteringTreeClassifier,
    PredictiveClusteringTreeRegressor,
)
from silva.estimators.self_training import SelfTrainingRegressor
from silva.estimators.semi_optimal import SemiOptimalTreeClassifier
from silva.estimators.silva_forest import SilvaForestClassifier
from silva.estimators.silva_regressors import SilvaForestRegressor, SilvaTreeRegressor
from silva.estimators.silva_tree import SilvaTreeClassifier
from silva.estimators.tao import TAOTreeClassifier, TAOTreeRegressor
from silva.graph import affinity_graph
from silva.model_selection import LabelledKFold, LabelledShuffleSplit
from silva.report import export_text, plot_map, plot_tree

__version__ = version("silva")

__all__ = [
    "KernelForestClassifier",
    "KernelForestRegressor",
    "KernelTreeClassifier",
    "KernelTreeRegressor",
    "LabelledKFold",
    "LabelledShuffleSplit",
    "LapTAOClassifier",
    "LapTAORegressor",
    "LaplacianSVC",
    "OptimalTreeClassifier",
    "PredictiveClusteringTreeClassifier",
    "PredictiveClusteringTreeRegressor",
    "SelfTrainingRegressor",
    "SemiOptimalTreeClassifier",
    "SilvaForestClassifier",
    "SilvaForestRegressor",
    "SilvaTreeClassifier",
    "SilvaTreeRegressor",
    "TAOBoostClassifier",
    "TAOBoostRegressor",
    "TAOForestClassifier",
    "TAOForestRegressor",
    "TAOTreeClassifier",
    "TAOTreeRegressor",
    "TreeEmbedding",
    "affinity_graph",
    "export_text",
    "plot_map",
    "plot_tree",
]
