"""The flagship with default settings on tables with few labels, beside what others make of them.

Accuracy in percent, or 100 R² for numbers, on rows never seen, with 1, 5 and 10 % of the training
rows labelled (at least two a class, ten for numbers), mean over the seeds. Each seed draws at most
5,000 rows of a set, 70 % of them for training, and the labels; missing values are filled with
medians beforehand, categories are the integer codes of the files. All methods have their default
settings and see the same rows: SilvaTree and SilvaForest, also with the true totals of the classes
among the unlabelled rows; LapTAO, a kernel tree and the predictive clustering tree (SSCT), which
see all rows; CART and a TAO tree on the labelled rows alone; RF and ET, scikit-learn's forests of
100 trees on the labelled rows, RF+ET the mean of both; XGBoost and LightGBM on the labelled rows
(LightGBM with leaves of at least two rows, its default of 20 needs more labels); self-training
around RF and sslearn's tri-training of three RF; LabelSpreading over nearest neighbours on
standardised columns.

Single trees are the methods from SilvaTree to CART. A cell is a set with a share of labels. A run
may be interrupted and goes on when it is started again.
"""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import ttest_1samp
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.metrics import r2_score
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.tree import DecisionTreeRegressor

from benchmarks.data import Unavailable
from benchmarks.few_labels import SHARES, TRAINING_SHARE, fill
from benchmarks.report import RESULTS
from benchmarks.resumable import append, read_log, sittings
from benchmarks.semi import LabelsOnly, choose_labelled, classifiers, fit_quietly, hide
from benchmarks.table import (
    Table,
    available,
    critical_difference,
    friedman,
    mean_ranks,
    progress,
    skip,
)
from silva import (
    KernelTreeClassifier,
    KernelTreeRegressor,
    LapTAORegressor,
    SelfTrainingRegressor,
    SilvaForestClassifier,
    SilvaForestRegressor,
    SilvaTreeClassifier,
    SilvaTreeRegressor,
    TAOTreeRegressor,
)

CLASSES = (
    "adult", "agaricus_lepiota", "allbp", "allhypo", "ann_thyroid", "appendicitis", "australian",
    "balance_scale", "banknote_authentication", "baseball", "breast", "breast_cancer",
    "breast_cancer_wisconsin", "breast_w", "buggyCrx", "car", "cars", "cleve", "cmc", "coil20",
    "credit_a", "dis", "dna", "eeg_eye_state", "flare",
    "GAMETES_Epistasis_2_Way_1000atts_0.4H_EDM_1_EDM_1_1",
    "GAMETES_Epistasis_2_Way_20atts_0.4H_EDM_1_1", "GAMETES_Epistasis_3_Way_20atts_0.2H_EDM_1_1",
    "GAMETES_Heterogeneity_20atts_1600_Het_0.4_0.2_75_EDM_2_001", "glass2", "heart_c",
    "heart_statlog", "Hill_Valley_without_noise", "house_votes_84", "hypothyroid",
    "hypothyroid_openml57", "ionosphere", "iris", "letter", "magic", "monk1", "monk2", "monk3",
    "mushroom", "optdigits", "parity5+5", "penguins", "phoneme", "pima", "prnn_synth", "ring",
    "satimage", "schizo", "segmentation", "shuttle", "skin_segmentation", "sleep", "soybean",
    "spambase", "splice", "tae", "threeOf9", "tic_tac_toe", "vote", "vowel", "waveform_21",
    "waveform_40", "wine_quality_red", "wine_recognition",
)  # fmt: skip
NUMBERS = (
    "abalone", "ailerons", "bike_sharing_hour", "concrete", "cpu_act", "diamonds", "house_16H",
    "pol", "protein", "sgemm_gpu",
)  # fmt: skip
QUICK_SETS = ("iris", "cpu_act")
ROWS = 5000
TREE, FOREST = "SilvaTree", "SilvaForest"
TOTALS = {TREE: "SilvaTree, totals", FOREST: "SilvaForest, totals"}
SINGLE = (TREE, "LapTAO", "KernelTree", "SSCT", "TAO", "CART")
BARS = {TREE: "RF", FOREST: "RF+ET"}
LOG = "flagship.jsonl"


def run(options):
    """Return the table."""
    seeds = range(options.seeds or (1 if options.quick else 5))
    shares = SHARES[1:2] if options.quick else SHARES
    names = (*(QUICK_SETS if options.quick else (*CLASSES, *NUMBERS)), *options.sets)
    size = options.rows or (300 if options.quick else ROWS)
    notes = [f"Seeds: {len(seeds)}. Rows of a set: at most {size}."]
    peers = peers_at_hand(notes)
    log = None if options.quick else RESULTS / LOG
    plan = [(share, seed) for seed in seeds for share in shares]
    records = measured(names, plan, size, peers, log, notes)
    rows, sections = [], []
    for task, title in (("classification", "classes"), ("regression", "numbers")):
        some = [record for record in records if record["task"] == task]
        cells = means(some)
        if not cells:
            continue
        rows += summary(title, cells)
        notes += verdicts(title, cells)
        if len(seeds) > 2:
            notes += beyond_chance(title, some)
        text = "Mean over the shares of labels and the seeds."
        sections.append((f"Sets with {title}", text, rows_of_sets(cells)))
    return Table(rows, notes, peers, tuple(sections))


def peers_at_hand(notes):
    """Return the names of the other libraries that are installed; a note for each that is not."""
    found = []
    for name in ("xgboost", "lightgbm", "sslearn"):
        try:
            __import__(name)
        except ImportError:
            skip(Unavailable(f"{name} is not installed"), notes)
        else:
            found.append(name)
    return tuple(found)


# ---- measuring ----------------------------------------------------------------------------------


def measured(names, plan, size, peers, log, notes):
    """Return a record for every set, share and seed; scores in the log are not measured again.

    A set with fewer rows than `size` has the same draws for any greater size. After an interrupt
    the records are those of the sets that are complete.
    """
    logged = [record for record in read_log(log) if record["rows"] == min(size, record["of"])]
    known = {key(record): record for record in logged}
    done = {case: record for case, record in known.items() if is_complete(record, peers)}

    def cases(name):
        return [(name, *case) for case in plan]

    try:
        for data in available([n for n in names if not done.keys() >= set(cases(n))], notes):
            found = Parallel(n_jobs=1 if log is None else -1, return_as="generator")(
                delayed(measure)(data, share, seed, size, peers, known.get((name, share, seed), {}))
                for name, share, seed in cases(data.name)
                if (name, share, seed) not in done
            )
            for record in found:
                done[key(record)] = append(log, record)
            progress(f"  {mean_line([done[case] for case in cases(data.name)])}")
    except KeyboardInterrupt:
        notes.append("Interrupted; the next run goes on from here.")
    whole = [name for name in names if done.keys() >= set(cases(name))]
    notes.append(f"Sets: {len(whole)} of {len(names)}.")
    records = [done[case] for name in whole for case in cases(name)]
    notes += sittings(records)
    return records


def key(record):
    """Return what tells a record from the others."""
    return record["set"], record["share"], record["seed"]


def methods_for(task, seed, peers):
    """Return the methods by name, but for those that are told totals."""
    return (number_methods if task == "regression" else class_methods)(seed, peers)


def is_complete(record, peers):
    """Whether a record has the scores of all methods."""
    names = set(methods_for(record["task"], 0, peers))
    names |= set() if record["task"] == "regression" else set(TOTALS.values())
    return names <= record["scores"].keys()


def mean_line(records):
    """Write the mean score of each method."""
    methods = records[0]["scores"]
    return {m: f"{100 * np.mean([r['scores'][m] for r in records]):.1f}" for m in methods}


def measure(data, share, seed, size, peers, known):
    """Return the scores of all methods on one draw; some may be known from an earlier run."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(data.y))[:size]
    cut = int(TRAINING_SHARE * len(rows))
    train, test = rows[:cut], rows[cut:]
    X, y = fill(data.X), data.y[train]
    partial = hide(y, choose_labelled(y, share, data.task, rng), data.task)
    regression, known = data.task == "regression", known.get("scores", {})
    methods = methods_for(data.task, seed, peers)
    if not regression:
        totals = totals_of(y, partial)
        methods |= {told: WithTotals(clone(methods[name]), totals) for name, told in TOTALS.items()}
    score = r2_score if regression else lambda truth, found: np.mean(truth == found)
    scores = {
        name: known[name]
        if name in known
        else float(score(data.y[test], fit_quietly(model, X[train], partial).predict(X[test])))
        for name, model in methods.items()
    }
    return {"set": data.name, "task": data.task, "share": share, "seed": seed, "rows": len(rows),
            "of": len(data.y), "scores": scores}  # fmt: skip


def totals_of(y, partial):
    """Return how many unlabelled rows are of each class."""
    classes, code = np.unique(y, return_inverse=True)
    counts = np.bincount(code[partial < 0], minlength=len(classes))
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))


class WithTotals:
    """One of ours that is told how many unlabelled rows are of each class."""

    def __init__(self, model, totals):
        self.model = model
        self.totals = totals

    def fit(self, X, y):
        """Fit to the labels and the totals."""
        self.model.fit(X, y, class_totals=self.totals)
        return self

    def predict(self, X):
        """Return the model's answers."""
        return self.model.predict(X)


def class_methods(seed, peers):
    """Return the methods for classes by name; -1 marks an unlabelled row."""
    others = classifiers(seed)
    forest = RandomForestClassifier(random_state=seed)
    extra = ExtraTreesClassifier(random_state=seed)
    both = VotingClassifier([("forest", forest), ("extra", extra)], voting="soft")
    methods = {
        TREE: SilvaTreeClassifier(random_state=seed),
        "LapTAO": others["LapTAO"],
        "KernelTree": KernelTreeClassifier(random_state=seed),
        "SSCT": others["SSCT"],
        "TAO": others["TAO, labels only"],
        "CART": others["CART, labels only"],
        FOREST: SilvaForestClassifier(random_state=seed),
        "RF": LabelsOnly(forest),
        "ET": LabelsOnly(extra),
        "RF+ET": LabelsOnly(both),
    }
    if "xgboost" in peers:
        methods["XGBoost"] = LabelsOnly(Consecutive(xgboost_classifier(seed)))
    if "lightgbm" in peers:
        methods["LightGBM"] = LabelsOnly(lightgbm_model("LGBMClassifier", seed))
    methods["self-trained RF"] = SelfTrainingClassifier(RandomForestClassifier(random_state=seed))
    if "sslearn" in peers:
        from sslearn.wrapper import TriTraining

        methods["tri-trained RF"] = TriTraining(
            base_estimator=RandomForestClassifier(random_state=seed), random_state=seed
        )
    methods["LabelSpreading"] = others["LabelSpreading"]
    return methods


def number_methods(seed, peers):
    """Return the methods for numbers by name; NaN marks an unlabelled row."""
    forest = RandomForestRegressor(random_state=seed)
    extra = ExtraTreesRegressor(random_state=seed)
    methods = {
        TREE: SilvaTreeRegressor(random_state=seed),
        "LapTAO": LapTAORegressor(random_state=seed),
        "KernelTree": KernelTreeRegressor(random_state=seed),
        "TAO": LabelsOnly(TAOTreeRegressor(random_state=seed)),
        "CART": LabelsOnly(DecisionTreeRegressor(random_state=seed)),
        FOREST: SilvaForestRegressor(random_state=seed),
        "RF": LabelsOnly(forest),
        "ET": LabelsOnly(extra),
        "RF+ET": LabelsOnly(VotingRegressor([("forest", forest), ("extra", extra)])),
    }
    if "xgboost" in peers:
        from xgboost import XGBRegressor

        methods["XGBoost"] = LabelsOnly(XGBRegressor(random_state=seed, n_jobs=1))
    if "lightgbm" in peers:
        methods["LightGBM"] = LabelsOnly(lightgbm_model("LGBMRegressor", seed))
    methods["self-trained RF"] = SelfTrainingRegressor(
        estimator=RandomForestRegressor(random_state=seed)
    )
    return methods


def xgboost_classifier(seed):
    """Return XGBoost's classifier with default settings."""
    from xgboost import XGBClassifier

    return XGBClassifier(random_state=seed, n_jobs=1)


def lightgbm_model(kind, seed):
    """Return one of LightGBM's models, with leaves for few labels."""
    import lightgbm

    return getattr(lightgbm, kind)(random_state=seed, n_jobs=1, min_child_samples=2, verbose=-1)


class Consecutive:
    """A classifier that wants its classes to be 0 to K - 1."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        """Fit to the places of the classes."""
        self.classes, codes = np.unique(y, return_inverse=True)
        if len(self.classes) > 1:
            self.model.fit(X, codes)
        return self

    def predict(self, X):
        """Return the classes."""
        if len(self.classes) == 1:
            return np.full(len(X), self.classes[0])
        return self.classes[self.model.predict(X)]


# ---- what the page says -------------------------------------------------------------------------


def means(records):
    """Return the mean scores over the seeds, (set, share) to method to score."""
    seen = dict.fromkeys((record["set"], record["share"]) for record in records)
    return {
        case: {
            method: float(np.mean([r["scores"][method] for r in records if key(r)[:2] == case]))
            for method in next(r for r in records if key(r)[:2] == case)["scores"]
        }
        for case in seen
    }


def matrix(cells, methods):
    """Return scores in percent, a row per cell."""
    return 100 * np.array([[cell[method] for method in methods] for cell in cells.values()])


def without_totals(cells):
    """Return the methods that are compared: those with totals know more."""
    return [name for name in next(iter(cells.values())) if name not in TOTALS.values()]


def summary(title, cells):
    """Return a row for each method: means by share of labels, and the mean rank."""
    compared = without_totals(cells)
    ranks = dict(zip(compared, mean_ranks(matrix(cells, compared)), strict=True))
    rows = []
    for method in next(iter(cells.values())):
        row = {"targets": title, "method": method}
        for share in sorted({share for _, share in cells}):
            some = [cell[method] for (_, each), cell in cells.items() if each == share]
            row[f"{share:.0%}"] = f"{100 * np.mean(some):.1f}"
        row["mean"] = f"{100 * np.mean([cell[method] for cell in cells.values()]):.1f}"
        for bar in dict.fromkeys(BARS.values()):
            gap = set_means(cells, method) - set_means(cells, bar)
            error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else 0.0
            row[f"less {bar}"] = f"{gap.mean():+.1f} ± {error:.1f}, worst {gap.min():+.1f}"
        row["mean rank"] = f"{ranks[method]:.2f}" if method in ranks else ""
        rows.append(row)
    return rows


def set_means(cells, method):
    """Return the mean over the shares of labels for each set, in percent."""
    sets = dict.fromkeys(name for name, _ in cells)
    return np.array(
        [100 * np.mean([c[method] for (n, _), c in cells.items() if n == name]) for name in sets]
    )


def verdicts(title, cells):
    """Return what the figures say."""
    compared = without_totals(cells)
    scores, notes = matrix(cells, compared), []
    if len(scores) > 1:
        notes.append(
            f"{title}: Friedman's p {friedman(scores):.1e}; mean ranks differ by chance if by less "
            f"than {critical_difference(len(compared), len(scores)):.2f} (Nemenyi, 5 %)."
        )
    others = [name for name in SINGLE[1:] if name in compared]
    best = matrix(cells, others).max(axis=1)
    for name in BARS:  # the ensemble shows how far ahead one can be
        ours = matrix(cells, [name])[:, 0]
        notes.append(
            f"{title}: {name} is ahead of every other single tree in {np.mean(ours > best):.0%} of "
            f"{len(ours)} cells, level in {np.mean(ours == best):.0%}, and ahead of any one of "
            "them in "
            + ", ".join(f"{np.mean(ours > matrix(cells, [m])[:, 0]):.0%} ({m})" for m in others)
            + "."
        )
    for name, bar in BARS.items():
        gap = set_means(cells, name) - set_means(cells, bar)
        worst = list(dict.fromkeys(n for n, _ in cells))[int(gap.argmin())]
        notes.append(
            f"{title}: {name} less {bar}: {gap.mean():+.2f} on average over {len(gap)} sets, worst "
            f"{gap.min():+.1f} ({worst})."
        )
    for name, told in TOTALS.items():
        if told in next(iter(cells.values())):
            gap = set_means(cells, told) - set_means(cells, name)
            notes.append(f"{title}: true totals bring {name} {gap.mean():+.2f} points.")
    return notes


def beyond_chance(title, records):
    """Return what the draws of a cell tell apart, and how sure the worst set is.

    With five draws a cell is a noisy thing: who is ahead of all others in it is often luck.
    """
    draws = {}
    for record in records:
        draws.setdefault(key(record)[:2], []).append(record["scores"])
    some = next(iter(draws.values()))[0]
    parts = []
    for other in [name for name in SINGLE[1:] if name in some]:
        gaps = [np.array([one[TREE] - one[other] for one in cell]) for cell in draws.values()]
        sure = [gap.mean() for gap in gaps if gap.any() and ttest_1samp(gap, 0).pvalue < 0.05]
        ahead, behind = (np.sum(np.sign(sure) == sign) / len(gaps) for sign in (1, -1))
        parts.append(f"{ahead:.0%} / {behind:.0%} ({other})")
    notes = [
        f"{title}: {TREE} is ahead / behind by more than chance (paired t-test over the draws of a "
        f"cell, 5 %) in {', '.join(parts)}."
    ]
    for name, bar in BARS.items():
        gaps = {}
        for (of, _), cell in draws.items():
            gaps.setdefault(of, []).extend(100 * (one[name] - one[bar]) for one in cell)
        worst = min(gaps, key=lambda of: np.mean(gaps[of]))
        gap = np.array(gaps[worst])
        notes.append(
            f"{title}: {name} less {bar} on {worst}: {gap.mean():+.1f} ± "
            f"{gap.std(ddof=1) / np.sqrt(len(gap)):.1f} over its {len(gap)} draws."
        )
    return notes


def rows_of_sets(cells):
    """Return a row for each set."""
    sets = dict.fromkeys(name for name, _ in cells)
    methods = list(next(iter(cells.values())))
    columns = {method: set_means(cells, method) for method in methods}
    return [
        {"data set": name} | {method: f"{columns[method][place]:.1f}" for method in methods}
        for place, name in enumerate(sets)
    ]
