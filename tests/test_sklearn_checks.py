"""scikit-learn's own checks of an estimator, for every configuration that takes another way."""

import pytest
from sklearn.base import is_classifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import LapTAOClassifier, LapTAORegressor, TAOTreeClassifier, TAOTreeRegressor

ESTIMATORS = [
    TAOTreeClassifier(),
    TAOTreeClassifier(split="axis"),
    TAOTreeClassifier(leaf="linear"),
    TAOTreeClassifier(alpha=0.1, max_depth=2, split="oblique", loss="log"),
    TAOTreeClassifier(alpha=0.1, max_depth=2, split="axis", loss="squared", missing="error"),
    TAOTreeRegressor(),
    TAOTreeRegressor(split="axis"),
    TAOTreeRegressor(leaf="linear"),
    TAOTreeRegressor(
        alpha=0.1, max_depth=2, init="random", monotone=True, n_jobs=2, missing="error"
    ),
]
SMALL_TREE = TAOTreeRegressor(alpha=0.1, max_depth=2)
PARTLY_LABELLED = [
    LapTAOClassifier(),
    LapTAOClassifier(estimator=SMALL_TREE, n_outer=3, missing="fill", n_jobs=2),
    LapTAORegressor(),
    LapTAORegressor(estimator=SMALL_TREE, n_outer=3, scaling="range", damping=0, mutual=False),
]


@parametrize_with_checks(ESTIMATORS)
def test_sklearn_check(estimator, check):
    check(estimator)


def expected_failures(estimator):
    """Return the one check that trains on the labels -1 and 1."""
    if not is_classifier(estimator):
        return {}
    return {"check_classifiers_classes": "-1 marks an unlabelled row, here it is meant as a class"}


@parametrize_with_checks(PARTLY_LABELLED, expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore:y has labelled rows of one class only")
@pytest.mark.filterwarnings("ignore:.*components of the graph with")
def test_sklearn_check_with_partly_known_labels(estimator, check):
    check(estimator)
