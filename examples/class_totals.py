"""Class totals: a survey that mostly one class answered, and a register that knows the totals.

Of 569 tumours a tenth has been looked at, and these are nearly all malignant. The register knows
how many of the others are malignant, but not which. A tree that fits all labels and gives the
totals exactly is proven optimal.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from silva import OptimalTreeClassifier, SemiOptimalTreeClassifier, export_text

data = load_breast_cancer(as_frame=True)
X = data.data[["worst texture", "worst area", "worst smoothness", "worst concave points"]]
truth = np.array(["malignant", "benign"])[data.target]

# The survey: 57 labels, each of a malignant tumour with a chance of 85 %.
rng = np.random.default_rng(0)
order = rng.permutation(len(truth))
n_malignant = rng.binomial(57, 0.85)
known = np.zeros(len(truth), bool)
known[order[truth[order] == "malignant"][:n_malignant]] = True
known[order[truth[order] == "benign"][: 57 - n_malignant]] = True
y = np.where(known, truth, None)  # None where there is no label

# The register: how many of the others are of each class.
totals = {kind: int(np.sum(truth[~known] == kind)) for kind in ("malignant", "benign")}

scaled = make_pipeline(StandardScaler(), LogisticRegression())
tree = SemiOptimalTreeClassifier(time_limit=30, random_state=0).fit(X, y, class_totals=totals)
print(f"{n_malignant} of 57 labels are malignant, and {totals['malignant']} of the other 512 rows")
print("\nthe other 512 rows              accuracy  called malignant")
for name, model in (
    ("logistic regression, labels", scaled.fit(X[known], truth[known])),
    ("OCT-H, labels", OptimalTreeClassifier(random_state=0).fit(X[known], truth[known])),
    ("S²OCT, labels and totals", tree),
):
    answer = model.predict(X[~known])
    print(f"{name:32}{np.mean(answer == truth[~known]):.3f}{np.sum(answer == 'malignant'):12}")

print(f"\n{tree.status_}: objective {tree.objective_:g}, no tree has less than {tree.bound_:g}")
print(export_text(tree))
