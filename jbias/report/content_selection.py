"""The tables of a report: what selection changes, and how scores vary."""

import dataclasses
import math

import numpy as np
import pandas as pd

from jbias.report import gather, selection_rules, tables, words
from jbias.report import study as study_lib
from jbias.runs import results


def selection_table(study: study_lib.Study) -> tables.Table:
    """Shows what other selection rules would have given."""
    rules = {name: values for name, values in study.others}
    means = {
        name: study_lib.cells_of(values, study.algorithms, study.datasets).set_index(
            ["algorithm", "dataset"]
        )["mean"]
        for name, values in rules.items()
    }
    data = pd.DataFrame(means)
    gap = "oracle − best validation"
    if {"oracle", "best validation"} <= set(rules):
        data[gap] = data["oracle"] - data["best validation"]
    rows = [
        (*key, *(study.unit.show(row[c], signed=c == gap) for c in data.columns))
        for key, row in data.iterrows()
    ]
    heads = (f"{c} (not a result)" if c == "oracle" else c for c in data.columns)
    return tables.Table(
        name="selections",
        caption="Means over seeds by rule of selection. The oracle chooses each epoch by "
        "looking at the test set; its gap shows how much a study gains that does so.",
        head=("Algorithm", "Data set", *heads),
        rows=tuple(rows),
        data=data.reset_index(),
        texts=2,
    )


def selection_test_table(
    study: study_lib.Study, analysis: study_lib.Analysis
) -> tables.Table:
    """Shows what the tests would have said under other selection rules."""
    rows, data = [], []
    for name, values in study.others:
        other = study_lib.analyse(
            dataclasses.replace(study, values=values),
            analysis.alpha,
            strict=analysis.strict,
        )
        result, count = other.friedman, len(other.significant)
        if result is None:
            rows.append((name, "–", "–", "–", "–"))
            data.append((name, math.nan, math.nan, 0, ""))
            continue
        order = np.argsort(result.ranks, kind="stable")
        ranked = ", ".join(
            f"{other.algorithms[i]} {result.ranks[i]:.2f}" for i in order
        )
        shown = (words.f_text(result), tables.p_text(result.pvalue), str(count), ranked)
        rows.append((name, *shown))
        data.append((name, result.statistic, result.pvalue, count, ranked))
    return tables.Table(
        name="selection_tests",
        caption="The same tests under each rule of selection: F and p after Iman and "
        f"Davenport, how many pairs differ at α = {analysis.alpha:g}, and mean ranks. A conclusion "
        "that changes with the rule is a weak one.",
        head=("Selection", "F", "p", "pairs", "Mean ranks"),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=["selection", "F", "p", "pairs", "mean_ranks"]),
    )


def variability(study: study_lib.Study, last: int | None) -> pd.DataFrame:
    """Gives how scores vary inside runs and between them, per algorithm and data set.

    `within` is the deviation over the last evaluations of a seed (root of the mean
    variance over seeds), `between` that of the seeds' means over these; ddof 1. Source:
    BiasBed, figure 2. `last` is None for 30 % of the evaluations.
    """
    chosen = study.chosen
    wanted = chosen["metric"] == study.metric
    wanted &= chosen["dataset"].isin(study.datasets)
    last = last or selection_rules.default_last(chosen[wanted])
    by = ["label", "dataset", "run", "seed"]
    rows = chosen.loc[wanted, [*by, "epoch", "condition", "value"]]
    every = gather.averaged(rows, [*by, "epoch"])
    if not every["epoch"].is_monotonic_increasing:
        every = every.sort_values("epoch", kind="stable")
    keys, _ = pd.factorize(results.number_rows(every, by))
    later = every.groupby(keys).cumcount(ascending=False).to_numpy()
    found = every["value"][later < last].groupby(keys[later < last])
    found = found.agg(["mean", "var", "size"]).set_index(np.unique(keys))
    ends = later == 0
    seeds = every.loc[ends, ["label", "dataset"]].set_index(keys[ends]).join(found)
    seeds = seeds.astype({"label": str, "dataset": str})
    groups = seeds.groupby(["label", "dataset"])
    found = pd.DataFrame(
        {
            "within": np.sqrt(groups["var"].mean()),
            "between": groups["mean"].std(),
            "seeds": groups.size(),
            "evaluations": groups["size"].min(),
        }
    )
    order = pd.MultiIndex.from_product([study.algorithms, study.datasets])
    return found.reindex(order).rename_axis(["algorithm", "dataset"]).reset_index()


def variability_table(
    study: study_lib.Study, varying: pd.DataFrame
) -> tables.Table | None:
    """Shows what `variability` gave."""
    data = varying.dropna(subset=["within", "between"], how="all")
    if data.empty:
        return None
    unit = study.unit
    rows = [
        (
            r.algorithm,
            r.dataset,
            unit.show(r.within),
            unit.show(r.between),
            str(r.seeds),
        )
        for r in data.itertuples()
    ]
    return tables.Table(
        name="variability",
        caption="How scores vary: inside a run over its last "
        f"{int(data['evaluations'].max())} evaluations (root mean variance), and between "
        "runs (deviation of the seeds' means over these). Where the first is as large as "
        "the second, which epoch is reported matters as much as which seed.",
        head=("Algorithm", "Data set", "within runs", "between runs", "seeds"),
        rows=tuple(rows),
        data=data,
        texts=2,
    )
