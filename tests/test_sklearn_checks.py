"""scikit-learn's own checks of an estimator, for every configuration that takes another way."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from silva import TAOTreeClassifier, TAOTreeRegressor

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


@parametrize_with_checks(ESTIMATORS)
def test_sklearn_check(estimator, check):
    check(estimator)
