"""Which evaluation of a seed is reported: rules of selection, on the table of records.

They are pure functions; each table names its rule.
"""

import numpy as np
import pandas as pd

from jbias.runs import results

EPOCH_ATOL = 1e-6  # Epochs that differ by less are the same.
UNIT = ["run", "stage", "seed"]  # What a selection rule selects for.
CELL = [*UNIT, "dataset", "condition", "metric"]
SELECTED = [
    *("algorithm", "variant", "run", "seed", "stage", "dataset", "condition"),
    *("metric", "value", "count", "n", "epoch", "workdir"),
]


def diverged(frame: pd.DataFrame) -> pd.DataFrame:
    """Names the seeds that diverged: algorithm, variant, run, seed, first bad step."""
    bad = _in_words(frame[frame["status"] == "diverged"])
    first = bad["value"].where(bad["metric"] == "diverged").fillna(bad["step"])
    by = ["algorithm", "variant", "run", "seed"]
    bad = bad.assign(step=first.astype("int64"))
    return bad.groupby(by, as_index=False)["step"].min()


def best_validation(frame: pd.DataFrame) -> pd.DataFrame:
    """Selects, per run and seed, the evaluation with the first maximum on `valid`.

    What is compared is the accuracy on the data set "valid" in the last stage.
    """
    return best_on(frame, results.VALID, rule="best_validation")


def best_on(
    frame: pd.DataFrame, dataset: str, *, rule: str = "best_on"
) -> pd.DataFrame:
    """Selects, per run and seed, the evaluation with the first maximum on a data set.

    For another than `valid`, that data set is no longer a test.
    """
    candidates = evaluations(frame)
    looked = (candidates["dataset"] == dataset) & (candidates["metric"] == "accuracy")
    looked &= candidates["condition"] == ""
    needs = f"accuracy on {dataset!r}", "evaluate on it or select last_n"
    return _first_best(candidates, candidates["value"][looked], rule, *needs)


def worst_class(frame: pd.DataFrame) -> pd.DataFrame:
    """Selects, per run and seed, where the worst class of `valid` is best; the first of equals.

    The accuracy of the worst of the classes that have images there (class_accuracy), or,
    where no run has these, of the worst group of class and attribute. Source: Yang et al.,
    ICML 2023, https://arxiv.org/abs/2302.12254.
    """
    candidates = evaluations(frame)
    looked = of_classes(candidates)
    moments = results.number_rows(candidates, [*UNIT, "step"])
    scores = candidates["value"][looked].groupby(moments[looked]).transform("min")
    needs = f"class_accuracy or worst_group_accuracy on {results.VALID!r}"
    train = "train with config.valid.measures=('accuracy', 'classes')"
    remedy = f"{train} or select otherwise"
    return _first_best(candidates, scores, "worst_class", needs, remedy)


def of_classes(frame: pd.DataFrame) -> pd.Series:
    """Tells the rows that `worst_class` looks at: accuracies by class, or of worst groups."""
    valid, metric = frame["dataset"] == results.VALID, frame["metric"]
    each = valid & (metric == "class_accuracy")
    return each if each.any() else valid & (metric == "worst_group_accuracy")


def _first_best(
    candidates: pd.DataFrame, scores: pd.Series, rule: str, needs: str, remedy: str
) -> pd.DataFrame:
    """Selects, per run and seed, the evaluation of the first maximum of some rows' scores."""
    units, scores = results.number_rows(candidates, UNIT), scores.dropna()
    best = scores.groupby(units[scores.index]).idxmax()
    missing = candidates[~np.isin(units, best.index)]
    if len(missing):
        run, stage, seed = missing[UNIT].sort_values(UNIT).iloc[0]
        raise ValueError(
            f"{rule}: every seed needs {needs}, got none for run "
            f"{run!r}, seed {seed}, stage {stage}; {remedy}"
        )
    moments = results.number_rows(candidates, [*UNIT, "step"])
    return _selected(candidates[np.isin(moments, moments[best])])


def last_n(frame: pd.DataFrame, n: int) -> pd.DataFrame:
    """Averages, per run, seed and data set, the last n evaluations; `count` is empty."""
    if n < 1:
        raise ValueError(f"last_n: n must be at least 1, got {n}")
    candidates = evaluations(frame)
    cells = results.number_rows(candidates, CELL)
    later = count_later(cells)
    last = candidates[later == 0]
    sizes = np.bincount(cells)[cells[later == 0]]
    if len(sizes) and sizes.min() < n:
        short = last[sizes == sizes.min()].sort_values(CELL).iloc[0]
        raise ValueError(
            f"last_n: every seed needs {n} evaluations, got {sizes.min()} of data set "
            f"{short['dataset']!r} for run {short['run']!r}, seed {short['seed']}; choose "
            "a smaller n"
        )
    # An evaluation without a value leaves the mean without one.
    tail = candidates["value"][later < n].groupby(cells[later < n])
    means = tail.mean(skipna=False)[cells[later == 0]].to_numpy()
    nothing = pd.array([pd.NA] * len(last), dtype="Int64")
    return _selected(last.assign(value=means, count=nothing))


def count_later(keys: np.ndarray) -> np.ndarray:
    """Counts, for each row, those after it of the same number, as `number_rows` gives."""
    # Small types are sorted by radix, several times as fast.
    small = keys.astype(np.min_scalar_type(keys.max(initial=0)))
    order = np.argsort(small, kind="stable")
    later, sizes = np.empty(len(keys), np.int64), np.bincount(keys)
    later[order] = np.repeat(np.cumsum(sizes), sizes) - np.arange(1, len(keys) + 1)
    return later


def oracle(
    frame: pd.DataFrame, *, metric: str = "accuracy", larger_is_better: bool = True
) -> pd.DataFrame:
    """Selects the best evaluation of every data set by looking at that data set.

    What is compared is `metric`: the data set's own number, or where it has none the mean
    over all its conditions. The other numbers of a data set come from the same evaluation;
    a data set without `metric` has none. No model is chosen so in earnest: it bounds what
    selection could reach.
    """
    candidates = evaluations(frame)
    sets = results.number_rows(candidates, [*UNIT, "dataset"])
    count = sets.max(initial=0) + 1
    moments = results.number_rows(candidates, ["step"]) * count + sets
    looked = (candidates["metric"] == metric).to_numpy()
    own = looked & (candidates["condition"] == "").to_numpy()
    parts = looked & ~np.isin(sets, sets[own])
    groups = candidates["value"][parts].groupby(moments[parts], sort=False)
    # A mean counts where it is over as many conditions as any of its set.
    sizes = groups.size()
    most = sizes.groupby(sizes.index.to_numpy() % count).transform("max")
    means = groups.mean(skipna=False)[sizes == most]
    alone = pd.Series(candidates["value"].to_numpy()[own], moments[own])
    scores = pd.concat([alone, means]) if len(means) else alone
    if (is_missing := scores.isna()).any():
        scores = scores[~is_missing]
    by_set = scores.groupby(scores.index.to_numpy() % count)
    best = by_set.idxmax() if larger_is_better else by_set.idxmin()
    chosen = np.full(count, -1, np.int64)
    chosen[best.index] = best
    return _selected(candidates[chosen[sets] == moments])


def at_epoch(frame: pd.DataFrame, epoch: float) -> pd.DataFrame:
    """Selects the evaluations at one epoch of the last stage, which every seed has."""
    candidates = evaluations(frame)
    here = np.isclose(candidates["epoch"], epoch, rtol=0, atol=EPOCH_ATOL)
    units = results.number_rows(candidates, UNIT)
    missing = candidates[~np.isin(units, units[here])]
    if len(missing):
        short = missing.sort_values(UNIT, kind="stable").iloc[0]
        mine = candidates[units == units[short.name]]
        known = ", ".join(f"{e:g}" for e in sorted(mine["epoch"].unique()))
        raise ValueError(
            f"at_epoch: every seed needs an evaluation at epoch {epoch:g}, got none for "
            f"run {short['run']!r}, seed {short['seed']}; choose one that all seeds have, "
            f"it has {known}"
        )
    return _selected(candidates[here])


def evaluations(frame: pd.DataFrame, *, trained: bool = False) -> pd.DataFrame:
    """Gives the evaluations of the last stage of every run, without diverged seeds.

    Every selection starts here; what it gave it gives back at once. trained: whether the
    set "train" is one of them, as it is of a suite, where runs have statistics of training.
    """
    keep = (frame["dataset"] != results.TRAIN).to_numpy() | trained
    bad = (frame["status"] == "diverged").to_numpy()
    if bad.any():
        seeds = pd.Series(results.number_rows(frame, ["run", "seed"]))
        keep = keep & ~seeds.isin(seeds[bad]).to_numpy()
    stages, steps = frame["stage"].to_numpy(), frame["step"].to_numpy()
    if len(frame) and stages.min() < stages.max():
        runs = results.number_rows(frame, ["run"])[keep]
        last = pd.Series(stages[keep]).groupby(runs).transform("max")
        keep = keep.copy()
        keep[keep] = stages[keep] == last.to_numpy()
    in_order = not (steps[1:] < steps[:-1]).any()
    if keep.all() and in_order:
        return frame.reset_index(drop=True)
    rows = np.flatnonzero(keep)
    rows = rows if in_order else rows[np.argsort(steps[rows], kind="stable")]
    return frame.take(rows).reset_index(drop=True)


def _selected(frame: pd.DataFrame) -> pd.DataFrame:
    order = ["algorithm", "variant", *CELL]
    return _in_words(frame[SELECTED].sort_values(order).reset_index(drop=True))


def _in_words(frame: pd.DataFrame) -> pd.DataFrame:
    """Makes categories plain text: few rows need none."""
    names = frame.dtypes[frame.dtypes == "category"].index
    return frame.astype(dict.fromkeys(names, "str"))
