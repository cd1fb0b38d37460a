"""Instances of the S²OCT paper's section 4: partly labelled sets, the methods, their scores.

An instance is a set of the paper's Table 1 with a sample of labels. Class A has code 0, B code 1;
where a set keeps its own three classes, the codes are those of the sorted labels.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks.data import numbers, read_table
from silva import LapTAOClassifier, OptimalTreeClassifier, SemiOptimalTreeClassifier
from silva.estimators.semi_optimal import EXACT_ROWS
from silva.optimal.hyperplanes import paper_depth
from silva.optimal.progress import NoTreeError

TABLE_1 = (
    "prnn_synth", "analcatdata_asbestos", "lupus", "analcatdata_boxing1", "analcatdata_boxing2",
    "haberman", "analcatdata_happiness", "analcatdata_aids", "analcatdata_lawsuit", "iris",
    "hayes_roth", "balance_scale", "parity5", "bupa", "irish", "phoneme", "tae", "new_thyroid",
    "analcatdata_bankruptcy", "analcatdata_creditscore", "mux6", "monk3", "monk1", "monk2",
    "appendicitis", "prnn_crabs", "penguins", "postoperative_patient_data", "biomed", "pima",
    "cars", "analcatdata_japansolvent", "glass2", "breast_cancer", "saheart", "threeOf9", "profb",
    "breast_w", "tic_tac_toe", "xd6", "cmc", "analcatdata_cyyoung9302", "analcatdata_cyyoung8092",
    "breast", "flare", "parity5+5", "magic", "analcatdata_fraud", "heart_statlog", "heart_h",
    "hungarian", "cleve", "heart_c", "wine_recognition", "australian", "adult", "schizo",
    "buggyCrx", "labor", "house_votes_84", "hepatitis", "credit_g",
    "GAMETES_Epistasis_2_Way_20atts_0.1H_EDM_1_1", "GAMETES_Epistasis_2_Way_20atts_0.4H_EDM_1_1",
    "GAMETES_Epistasis_3_Way_20atts_0.2H_EDM_1_1",
    "GAMETES_Heterogeneity_20atts_1600_Het_0.4_0.2_50_EDM_2_001",
    "GAMETES_Heterogeneity_20atts_1600_Het_0.4_0.2_75_EDM_2_001", "churn", "ring", "twonorm",
    "waveform_21", "ann_thyroid", "spect", "horse_colic", "agaricus_lepiota", "hypothyroid", "dis",
    "allhypo", "allbp", "breast_cancer_wisconsin", "backache", "ionosphere", "chess",
    "waveform_40", "connect_4", "spectf", "tokyo1", "molecular_biology_promoters", "spambase",
    "sonar", "splice", "coil2000", "Hill_Valley_without_noise", "clean1", "clean2", "dna",
    "GAMETES_Epistasis_2_Way_1000atts_0.4H_EDM_1_EDM_1_1",
)  # fmt: skip
BIASED, SIMPLE, CLASSES = "biased", "simple", "three classes"
LABELLED_SHARE, CHANCE_OF_A = 0.1, 0.85
MEASURES = ("accuracy", "MCC", "precision", "recall")
OURS, DEFAULT, ROUGH, LABELS_ONLY = "S²OCT", "S²OCT, default", "S²OCT, heuristic", "OCT-H"
PAPER_UNITS = "S²OCT, paper's units"
LOGISTIC = "top-λ logistic"
TOLERANCE = 1e-6  # of objective and bound


@dataclass(frozen=True, eq=False)
class Instance:
    """A set with a sample of labels.

    Attributes
    ----------
    name, kind, seed : the set, how its labels were drawn, and the number of the draw
    X, y : rows and the codes of their true classes
    labelled : mask over the rows
    """

    name: str
    kind: str
    seed: int
    X: np.ndarray
    y: np.ndarray
    labelled: np.ndarray

    @property
    def partial(self):
        """Classes with -1 where there is no label."""
        return np.where(self.labelled, self.y, -1)

    @property
    def totals(self):
        """How many unlabelled rows each class has."""
        counts = np.bincount(self.y[~self.labelled], minlength=int(self.y.max()) + 1)
        return dict(enumerate(counts.tolist()))

    @property
    def depth(self):
        """The paper's depth for that many rows; three classes need two levels anyway."""
        return paper_depth(len(self.y))


@dataclass(frozen=True, eq=False)
class Answers:
    """Classes that a method gives all rows, its seconds, and what else it says of itself."""

    classes: np.ndarray
    seconds: float
    facts: dict[str, object] = field(default_factory=dict)


# ---- sets and samples ---------------------------------------------------------------------------


def rows_and_classes(name, most_rows=None):
    """Return the complete rows of a set, repeated ones dropped, and their labels as strings."""
    frame, _ = read_table(name)
    frame = frame.dropna().drop_duplicates()
    if most_rows is not None and len(frame) > most_rows:
        frame = frame.sample(most_rows, random_state=0)
    labels = frame["target"].astype(str).str.removesuffix(".0").to_numpy(str)
    return numbers(frame.drop(columns="target")), labels


def two_classes(labels):
    """Return 0 for class A, which is the label "1" or else the first one, and 1 for all others."""
    present = np.unique(labels)
    first = "1" if "1" in present else present[0]
    return (labels != first).astype(int)


def sample(y, kind, rng):
    """Return the mask of the tenth of the rows that is labelled.

    "biased": each is of the first class with a chance of 85 %, as far as there are such rows;
    "three classes" likewise, but each class has a label at least; "simple": any rows.
    """
    count = max(2, round(LABELLED_SHARE * len(y)))
    order = rng.permutation(len(y))
    labelled = np.zeros(len(y), bool)
    if kind == SIMPLE:
        labelled[order[:count]] = True
        return labelled
    first, others = order[y[order] == 0], order[y[order] != 0]
    if kind == CLASSES:  # the first row of each other class comes before the rest
        heads = np.unique(y[others], return_index=True)[1]
        others = np.concatenate([others[heads], np.delete(others, heads)])
    wanted = int((rng.random(count) < CHANCE_OF_A).sum())
    if kind == CLASSES:
        wanted = min(wanted, count - int(y.max()))
    taken = max(min(wanted, len(first)), count - len(others))
    labelled[first[:taken]] = True
    labelled[others[: count - taken]] = True
    return labelled


def instance(name, kind, seed, most_rows=None):
    """Return a set with its labels drawn."""
    X, labels = rows_and_classes(name, most_rows)
    y = np.unique(labels, return_inverse=True)[1] if kind == CLASSES else two_classes(labels)
    return Instance(name, kind, seed, X, y, sample(y, kind, np.random.default_rng(seed)))


# ---- methods ------------------------------------------------------------------------------------


def semi_optimal(case, limit):
    """S²OCT; "auto" would leave more than 10,000 rows to the heuristic."""
    model = SemiOptimalTreeClassifier(method="exact", time_limit=limit, random_state=case.seed)
    return _with_totals(case, model)


def by_default(case, limit):
    """S²OCT with its own settings; without a proof the opinion chooses."""
    return _with_totals(case, SemiOptimalTreeClassifier(time_limit=limit, random_state=case.seed))


def paper_units(case, limit):
    """S²OCT in the paper's units, whose box leaves narrow columns little weight, in a minute."""
    model = SemiOptimalTreeClassifier(
        method="exact", scaling="paper", time_limit=min(limit, 60.0), random_state=case.seed
    )
    return _with_totals(case, model)


def heuristic(case, limit):
    """S²OCT without a try for a proof."""
    return _with_totals(
        case,
        SemiOptimalTreeClassifier(method="heuristic", time_limit=limit, random_state=case.seed),
    )


def _with_totals(case, model):
    """Fit to all rows and the totals; note when the proof was complete.

    Where no tree that keeps all constraints is found in the time, the heuristic's stands in.
    """
    proofs = []
    began = time.perf_counter()

    def watch(stage):
        if not proofs and stage.objective <= stage.bound + TOLERANCE:
            proofs.append(time.perf_counter() - began)

    model.set_params(callback=watch)
    try:
        model.fit(case.X, case.partial, class_totals=case.totals)
    except NoTreeError:
        model.set_params(method="heuristic").fit(case.X, case.partial, class_totals=case.totals)
    seconds = time.perf_counter() - began
    facts = {"status": model.status_, "objective": float(model.objective_)}
    facts["exact"] = model.totals_ == case.totals
    if model.status_ == "optimal":
        facts["proof"] = proofs[0] if proofs else seconds
    return Answers(model.predict(case.X), seconds, facts)


def labels_only(case, limit):
    """OCT-H on the labelled rows, in a minute at most."""
    model = OptimalTreeClassifier(
        max_depth=case.depth, time_limit=min(limit, 60.0), random_state=case.seed
    )
    began = time.perf_counter()
    model.fit(case.X[case.labelled], case.y[case.labelled])
    seconds = time.perf_counter() - began
    facts = {"status": model.status_, "objective": float(model.objective_)}
    if model.status_ == "optimal":
        facts["proof"] = seconds
    return Answers(model.predict(case.X), seconds, facts)


def logistic(case, limit):
    """Logistic regression, cut at the score that gives the known total."""
    return _cut(case, make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)))


def extra_trees(case, limit):
    """Extremely random trees, cut at the score that gives the known total."""
    return _cut(case, ExtraTreesClassifier(200, random_state=case.seed))


def _cut(case, model):
    """Fit to the labels and call the unlabelled rows of the highest scores A.

    Where only one class is labelled there is no score: then rows rank by their distance from the
    mean of the labelled ones, in columns of deviation one.
    """
    began = time.perf_counter()
    present = np.unique(case.y[case.labelled])
    if len(present) > 1:
        model.fit(case.X[case.labelled], case.y[case.labelled])
        score = model.predict_proba(case.X)[:, 0]
    else:
        Z = StandardScaler().fit_transform(case.X)
        distance = np.linalg.norm(Z - Z[case.labelled].mean(axis=0), axis=1)
        score = -distance if present[0] == 0 else distance
    return Answers(cut(score, ~case.labelled, case.totals[0]), time.perf_counter() - began)


def cut(score, unlabelled, total):
    """Return 0 for the `total` unlabelled rows of the highest score and labelled rows as high."""
    classes = np.ones(len(score), int)
    rows = np.flatnonzero(unlabelled)
    highest = rows[np.argsort(-score[rows], kind="stable")[:total]]
    classes[highest] = 0
    if total > 0:
        classes[~unlabelled & (score >= score[highest].min())] = 0
    return classes


def cart(case, limit):
    """scikit-learn's tree on the labelled rows."""
    began = time.perf_counter()
    model = DecisionTreeClassifier(random_state=case.seed)
    model.fit(case.X[case.labelled], case.y[case.labelled])
    return Answers(model.predict(case.X), time.perf_counter() - began)


def laptao(case, limit):
    """LapTAO without the totals."""
    return _laptao(case, None)


def laptao_totals(case, limit):
    """LapTAO with the totals, which it takes if every class has a label."""
    whole = len(np.unique(case.y[case.labelled])) == len(case.totals)
    return _laptao(case, case.totals if whole else None)


def _laptao(case, totals):
    began = time.perf_counter()
    model = LapTAOClassifier(random_state=case.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that labels are few
        model.fit(case.X, case.partial, class_totals=totals)
    return Answers(model.predict(case.X), time.perf_counter() - began)


METHODS = {
    OURS: semi_optimal,
    PAPER_UNITS: paper_units,
    ROUGH: heuristic,
    DEFAULT: by_default,
    LABELS_ONLY: labels_only,
    LOGISTIC: logistic,
    "top-λ extra trees": extra_trees,
    "CART": cart,
    "LapTAO": laptao,
    "LapTAO, totals": laptao_totals,
}
"""Each takes an instance and the most seconds of a fit, and returns Answers."""
OF_CLASSES = (OURS, ROUGH, DEFAULT, LABELS_ONLY, "CART", "LapTAO", "LapTAO, totals")
"""Those for three classes."""


def methods_of(kind, seed):
    """Return the names of the methods of an instance; slow ones are for the first sample only."""
    if kind == CLASSES:
        return OF_CLASSES
    return [name for name in METHODS if seed == 0 or name != PAPER_UNITS]


def same_fit(name, methods, n_unlabelled):
    """Return which method's tree is the default's, too: a proven one, or that of many rows."""
    if name != DEFAULT:
        return None
    if n_unlabelled > EXACT_ROWS:
        return ROUGH
    return OURS if methods[OURS]["status"] == "optimal" else None


# ---- scores -------------------------------------------------------------------------------------


def quality(truth, answer):
    """Return MEASURES with class A, code 0, as the positive one; 0 where one is undefined.

    For more than two classes only the accuracy is about them all.
    """
    a, b = truth == 0, answer == 0
    tp, fp = float((a & b).sum()), float((~a & b).sum())
    fn, tn = float((a & ~b).sum()), float((~a & ~b).sum())
    product = np.sqrt((tp + fp) * (tp + fn)) * np.sqrt((tn + fp) * (tn + fn))
    return [
        float(np.mean(truth == answer)),
        float((tp * tn - fp * fn) / product) if product > 0 else 0.0,
        tp / (tp + fp) if tp + fp > 0 else 0.0,
        tp / (tp + fn) if tp + fn > 0 else 0.0,
    ]


def scored(case, answers):
    """Return a method's MEASURES on the unlabelled rows and on all, its seconds and its facts."""
    hidden = ~case.labelled
    return {
        "unlabelled": quality(case.y[hidden], answers.classes[hidden]),
        "all": quality(case.y, answers.classes),
        "seconds": answers.seconds,
        **answers.facts,
    }


def measure(case, limit, known):
    """Return what every method makes of an instance, as plain numbers.

    Parameters
    ----------
    case : Instance
    limit : float
        Most seconds of a fit.
    known : dict
        "methods" as below of an earlier run; they are not fitted again.

    Returns
    -------
    dict
        "set", "kind", "seed", "rows", "columns", "depth", "limit", "both" (whether more than one
        class is labelled), and "methods": name to "unlabelled" and "all" (MEASURES on those rows),
        "seconds" and the method's facts.
    """
    methods = {}
    for name in methods_of(case.kind, case.seed):
        same = same_fit(name, methods, len(case.y) - case.labelled.sum())
        if name in known:
            methods[name] = known[name]
        elif same is not None:
            methods[name] = methods[same]
        else:
            methods[name] = scored(case, METHODS[name](case, limit))
    return {
        "set": case.name, "kind": case.kind, "seed": case.seed, "rows": len(case.y),
        "columns": case.X.shape[1], "depth": case.depth, "limit": limit,
        "both": len(np.unique(case.y[case.labelled])) > 1, "methods": methods,
    }  # fmt: skip
