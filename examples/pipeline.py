"""A pipeline and a grid search on a frame with categories and missing values.

The tree takes the frame as it is: no encoder, no imputer, no scaler.
"""

import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from silva import TAOTreeClassifier, export_text


def make_loans(rows=2000, seed=0):
    """Invent loans; people without work often leave the income out."""
    random = np.random.default_rng(seed)
    work = random.choice(["employed", "own business", "none"], rows, p=[0.6, 0.25, 0.15])
    income = random.lognormal(10.4, 0.4, rows) * np.where(work == "none", 0.3, 1)
    amount = random.lognormal(9.5, 0.7, rows)
    housing = random.choice(["rent", "own", "family"], rows)
    trouble = amount / income + 0.5 * (work == "none") - 0.2 * (housing == "own")
    late = trouble + random.normal(0, 0.15, rows) > 0.8
    hidden = random.random(rows) < np.where(work == "none", 0.5, 0.05)
    loans = pd.DataFrame(
        {
            "work": pd.Categorical(work),
            "housing": housing,
            "income": np.where(hidden, np.nan, income),
            "amount": amount,
        }
    )
    return loans, np.where(late, "late", "on time")


def add_burden(loans):
    """Add the amount as a share of the income; it is missing where the income is."""
    return loans.assign(burden=loans["amount"] / loans["income"])


X, y = make_loans()
X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)

search = GridSearchCV(
    make_pipeline(FunctionTransformer(add_burden), TAOTreeClassifier(random_state=0)),
    {"taotreeclassifier__alpha": [1, 3, 10], "taotreeclassifier__max_depth": [1, 2, 3]},
    cv=5,
).fit(X, y)

tree = search.best_estimator_[-1]
print(f"chosen: alpha {tree.alpha}, depth {tree.max_depth}")
print(f"accuracy on new loans: {search.score(X_test, y_test):.3f}")
print(f"leaves: {tree.get_n_leaves()}, numbers in the tree: {tree.n_parameters_}\n")
print(export_text(tree, decimals=2))
