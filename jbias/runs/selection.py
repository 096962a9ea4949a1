"""Model selection: rules that select the reported evaluation of each seed.

A rule is a function of `frame`, a table of records as `results.read` returns it, and
returns a table with the columns SELECTED. All rules leave out diverged seeds, statistics of
training, and all stages but the last one of each run (`evaluations`).
"""

import numpy as np
import pandas as pd

from jbias.runs import results

EPOCH_ATOL = 1e-6  # Epochs that differ by less are the same.
UNIT = ["run", "stage", "seed"]  # A rule selects one evaluation per unit.
CELL = [*UNIT, "dataset", "condition", "metric"]
SELECTED = [
    "algorithm",
    "variant",
    "run",
    "seed",
    "stage",
    "dataset",
    "condition",
    "metric",
    "value",
    "count",
    "n",
    "epoch",
    "workdir",
]


def diverged(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the diverged seeds of a table of records, one row per run and seed.

    Columns: algorithm, variant, run, seed, and step, the first diverged step.
    """
    records = _categories_to_text(frame[frame["status"] == "diverged"])
    # The value of the metric "diverged" is the step.
    steps = records["value"].where(records["metric"] == "diverged")
    steps = steps.fillna(records["step"])
    records = records.assign(step=steps.astype("int64"))
    by = ["algorithm", "variant", "run", "seed"]
    return records.groupby(by, as_index=False)["step"].min()


def best_validation(frame: pd.DataFrame) -> pd.DataFrame:
    """Select, per run and seed, the first evaluation with the highest validation accuracy.

    The validation accuracy is the accuracy on the data set "valid" in the last stage.
    Returns the records of the selected evaluations, with the columns SELECTED.
    """
    return best_on(frame, results.VALID, rule="best_validation")


def best_on(
    frame: pd.DataFrame, dataset: str, *, rule: str = "best_on"
) -> pd.DataFrame:
    """Select, per run and seed, the first evaluation with the highest accuracy on a data set.

    Returns the records of the selected evaluations, on all data sets, with the columns
    SELECTED. `dataset` cannot be reported as a test set, because it selected the epoch.
    Accuracies of single conditions are not compared. rule: name of the selection rule for
    error messages. ValueError for a seed without this accuracy.
    """
    candidates = evaluations(frame)
    is_score = (candidates["dataset"] == dataset) & (candidates["metric"] == "accuracy")
    is_score &= candidates["condition"] == ""
    return _first_best(
        candidates,
        candidates["value"][is_score],
        rule=rule,
        needs=f"accuracy on {dataset!r}",
        remedy="evaluate on it or select last_n",
    )


def worst_class(frame: pd.DataFrame) -> pd.DataFrame:
    """Select, per run and seed, the first evaluation with the highest worst-class accuracy.

    Worst-class accuracy is the lowest class_accuracy on the data set "valid", or, if no run has
    class accuracies, worst_group_accuracy (groups of class and attribute). Returns the records of
    the selected evaluations, with the columns SELECTED. ValueError for a seed that lacks the
    metric. Source: Yang et al., ICML 2023, https://arxiv.org/abs/2302.12254.
    """
    candidates = evaluations(frame)
    is_score = of_classes(candidates)
    moments = results.number_rows(candidates, [*UNIT, "step"])
    return _first_best(
        candidates,
        candidates["value"][is_score].groupby(moments[is_score]).transform("min"),
        rule="worst_class",
        needs=f"class_accuracy or worst_group_accuracy on {results.VALID!r}",
        remedy="train with config.valid.measures=('accuracy', 'classes') or select "
        "otherwise",
    )


def of_classes(frame: pd.DataFrame) -> pd.Series:
    """Return a boolean mask of the rows that `worst_class` compares.

    The rows are the class_accuracy rows of the data set "valid" or, without such rows, its
    worst_group_accuracy rows.
    """
    is_valid, metric = frame["dataset"] == results.VALID, frame["metric"]
    is_class = is_valid & (metric == "class_accuracy")
    return is_class if is_class.any() else is_valid & (metric == "worst_group_accuracy")


def _first_best(
    candidates: pd.DataFrame, scores: pd.Series, *, rule: str, needs: str, remedy: str
) -> pd.DataFrame:
    """Return the records of the first evaluation with the highest score, per run and seed.

    The columns are SELECTED. candidates: records of evaluations. scores: scores of some of these
    rows, by the rows' index. ValueError for a seed without scores; rule, needs, remedy: name of the
    selection rule, the required metric and the advice in the error message.
    """
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
    """Average the values of the last n evaluations per run, seed, data set and metric.

    Conditions are averaged separately, too. Returns a table with the columns SELECTED, with
    `count` missing, and `n` and `epoch` of the last evaluation. A mean is NaN if one of the
    averaged values is NaN. ValueError for n < 1 and for a seed with fewer evaluations.
    """
    if n < 1:
        raise ValueError(f"last_n: n must be at least 1, got {n}")
    candidates = evaluations(frame)
    cells = results.number_rows(candidates, CELL)
    num_later = count_later(cells)
    last = candidates[num_later == 0]
    sizes = np.bincount(cells)[cells[num_later == 0]]
    if len(sizes) and sizes.min() < n:
        short = last[sizes == sizes.min()].sort_values(CELL).iloc[0]
        raise ValueError(
            f"last_n: every seed needs {n} evaluations, got {sizes.min()} of data set "
            f"{short['dataset']!r} for run {short['run']!r}, seed {short['seed']}; choose "
            "a smaller n"
        )
    # If a value is missing, the mean is missing.
    tail = candidates["value"][num_later < n].groupby(cells[num_later < n])
    means = tail.mean(skipna=False)[cells[num_later == 0]].to_numpy()
    no_counts = pd.array([pd.NA] * len(last), dtype="Int64")
    return _selected(last.assign(value=means, count=no_counts))


def count_later(keys: np.ndarray) -> np.ndarray:
    """Return, for each element, the number of equal elements after it.

    keys: integers from 0 on without gaps, as `results.number_rows` returns them.
    """
    # numpy sorts small types by radix sort, several times as fast.
    small_keys = keys.astype(np.min_scalar_type(keys.max(initial=0)))
    order = np.argsort(small_keys, kind="stable")
    num_later, sizes = np.empty(len(keys), np.int64), np.bincount(keys)
    num_later[order] = np.repeat(np.cumsum(sizes), sizes) - np.arange(1, len(keys) + 1)
    return num_later


def oracle(
    frame: pd.DataFrame, *, metric: str = "accuracy", larger_is_better: bool = True
) -> pd.DataFrame:
    """Select, per run, seed and data set, the evaluation with the best metric on that set.

    The result is an upper bound for model selection, not a valid selection. Of equal evaluations
    the first is selected. Returns all records of the selected evaluations, with the columns
    SELECTED; data sets without the metric are left out.

    metric: if a data set has the metric only per condition, the mean over its conditions is
      compared. larger_is_better: True if the largest value is best, False for the smallest.
    """
    candidates = evaluations(frame)
    sets = results.number_rows(candidates, [*UNIT, "dataset"])
    num_sets = sets.max(initial=0) + 1
    # An id per evaluation of a set: id % num_sets is the set.
    moments = results.number_rows(candidates, ["step"]) * num_sets + sets
    is_metric = (candidates["metric"] == metric).to_numpy()
    is_overall = is_metric & (candidates["condition"] == "").to_numpy()
    is_condition = is_metric & ~np.isin(sets, sets[is_overall])
    groups = candidates["value"][is_condition].groupby(
        moments[is_condition], sort=False
    )
    # Only means over the largest number of conditions of a set are comparable.
    sizes = groups.size()
    max_sizes = sizes.groupby(sizes.index.to_numpy() % num_sets).transform("max")
    means = groups.mean(skipna=False)[sizes == max_sizes]
    overall = pd.Series(candidates["value"].to_numpy()[is_overall], moments[is_overall])
    scores = pd.concat([overall, means]) if len(means) else overall
    is_missing = scores.isna()
    if is_missing.any():
        scores = scores[~is_missing]
    by_set = scores.groupby(scores.index.to_numpy() % num_sets)
    best = by_set.idxmax() if larger_is_better else by_set.idxmin()
    best_moments = np.full(num_sets, -1, np.int64)
    best_moments[best.index] = best
    return _selected(candidates[best_moments[sets] == moments])


def at_epoch(frame: pd.DataFrame, epoch: float) -> pd.DataFrame:
    """Select the evaluations of the last stage at an epoch, within EPOCH_ATOL.

    epoch: counted over all stages, as in the records.
    Returns the records of these evaluations, with the columns SELECTED. ValueError if a seed has no
    evaluation at this epoch.
    """
    candidates = evaluations(frame)
    is_at_epoch = np.isclose(candidates["epoch"], epoch, rtol=0, atol=EPOCH_ATOL)
    units = results.number_rows(candidates, UNIT)
    missing = candidates[~np.isin(units, units[is_at_epoch])]
    if len(missing):
        first = missing.sort_values(UNIT, kind="stable").iloc[0]
        unit_epochs = candidates["epoch"][units == units[first.name]]
        epochs = ", ".join(f"{x:g}" for x in sorted(unit_epochs.unique()))
        raise ValueError(
            f"at_epoch: every seed needs an evaluation at epoch {epoch:g}, got none for "
            f"run {first['run']!r}, seed {first['seed']}; choose an epoch that all seeds "
            f"have, this seed has {epochs}"
        )
    return _selected(candidates[is_at_epoch])


def evaluations(frame: pd.DataFrame, *, trained: bool = False) -> pd.DataFrame:
    """Return the records of the last stage of every run, sorted by step.

    frame: records, as `results.read` returns them; the result has the same columns. Seeds that
    diverged are left out, and rows have a new index. All selection rules start with this function;
    calling the function again changes nothing.

    trained: True to keep the data set "train". In the results of a suite these records are
    evaluations; in a run they are training statistics.
    """
    keep = (frame["dataset"] != results.TRAIN).to_numpy() | trained
    is_diverged = (frame["status"] == "diverged").to_numpy()
    if is_diverged.any():
        seeds = pd.Series(results.number_rows(frame, ["run", "seed"]))
        keep = keep & ~seeds.isin(seeds[is_diverged]).to_numpy()
    stages, steps = frame["stage"].to_numpy(), frame["step"].to_numpy()
    if len(frame) and stages.min() < stages.max():
        runs = results.number_rows(frame, ["run"])[keep]
        last = pd.Series(stages[keep]).groupby(runs).transform("max")
        keep = keep.copy()
        keep[keep] = stages[keep] == last.to_numpy()
    is_sorted = not (steps[1:] < steps[:-1]).any()
    if keep.all() and is_sorted:
        return frame.reset_index(drop=True)
    rows = np.flatnonzero(keep)
    rows = rows if is_sorted else rows[np.argsort(steps[rows], kind="stable")]
    return frame.take(rows).reset_index(drop=True)


def _selected(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns SELECTED of a table, with rows sorted by these columns."""
    order = ["algorithm", "variant", *CELL]
    rows = frame[SELECTED].sort_values(order).reset_index(drop=True)
    return _categories_to_text(rows)


def _categories_to_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with categorical columns converted to columns of strings."""
    names = frame.dtypes[frame.dtypes == "category"].index
    return frame.astype(dict.fromkeys(names, "str"))
