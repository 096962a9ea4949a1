"""From the records of runs to a study."""

from collections.abc import Sequence

import pandas as pd

from jbias.report import options as options_lib
from jbias.report import selection_rules, trained, workdirs
from jbias.report import study as study_lib
from jbias.runs import checksums, results, selection


def from_runs(patterns: Sequence[str], options: options_lib.Options) -> study_lib.Study:
    """Reads runs, selects models and takes the scores of one metric."""
    full, empty = results.find_workdirs(patterns)
    if not full:
        raise ValueError(
            f"--runs: must match runs with evaluations, got none: {patterns}"
        )
    frame = results.read(full)
    runs = workdirs.load(frame)
    labels = {run.workdir: run.label for run in runs}
    frame = frame.assign(label=_labels(frame["workdir"], labels))
    known = list(dict.fromkeys(run.label for run in runs))
    check_names("--algorithms", options.algorithms, known)
    algorithms = list(options.algorithms) or known
    if len(algorithms) < len(known):
        frame = frame[frame["label"].isin(algorithms)].reset_index(drop=True)
    runs = tuple(run for run in runs if run.label in algorithms)
    chosen = evaluated(frame)
    datasets = _datasets(chosen, options)
    told = (chosen["metric"] == options.metric) & chosen["dataset"].isin(datasets)
    asked = chosen.loc[told, [*selection.CELL, "epoch"]]
    rules = selection_rules.Rules(
        last=options.last or selection_rules.default_last(asked),
        epoch=selection_rules.common_epoch(asked)
        if options.epoch is None
        else options.epoch,
        best_on=options.best_on,
        metric=options.metric,
        larger_is_better=options.larger_is_better,
        datasets=tuple(datasets),
        labels=labels,
    )
    selected = rules.select(chosen, options.selection)
    values = values_of(selected, options.metric, datasets)
    others, notes = [], list(_notes(empty, runs, frame, chosen))
    for rule in options_lib.SELECTIONS:
        if rule == "best_on" and not options.best_on:
            continue
        if rule == options.selection:
            others.append((rules.name(rule), values))
            continue
        try:
            rows = rules.select(chosen, rule)
        except ValueError as error:
            notes.append(f"One selection is not compared: {error}.")
            continue
        others.append((rules.name(rule), values_of(rows, options.metric, datasets)))
    pairs = trained.of_runs(runs, datasets)
    if options.trained_on:
        told = trained.read(options.trained_on, known, list(frame["dataset"].unique()))
        pairs |= {(a, d) for a, d in told if a in algorithms and d in datasets}
    return study_lib.Study(
        source=", ".join(patterns),
        metric=options.metric,
        larger_is_better=options.larger_is_better,
        selection=options.selection,
        rule=rules.words(options.selection),
        algorithms=tuple(algorithms),
        datasets=tuple(datasets),
        values=values,
        unfit=tuple(_unfit(chosen, selected, values, runs, datasets, options.metric)),
        trained=pairs,
        notes=tuple(notes),
        frame=frame,
        chosen=chosen,
        selected=selected,
        others=tuple(others),
        runs=runs,
        diverged=selection.diverged(frame),
    )


def _labels(workdirs: pd.Series, labels) -> pd.Categorical:
    paths = workdirs.cat.categories
    return pd.Categorical([labels[path] for path in paths]).take(workdirs.cat.codes)


def evaluated(frame: pd.DataFrame) -> pd.DataFrame:
    """Gives the evaluations that selection looks at."""
    chosen = selection.evaluations(frame)
    if chosen.empty:
        raise ValueError(
            "--runs: must hold an evaluation of a seed that did not diverge, got none; "
            "see the runs' log.txt"
        )
    return chosen


def values_of(
    selected: pd.DataFrame, metric: str, datasets: Sequence[str]
) -> pd.DataFrame:
    """Gives one row per algorithm, data set and seed; conditions are averaged.

    A record without condition is the data set's own number and goes before any mean.
    """
    rows = selected[(selected["metric"] == metric) & selected["dataset"].isin(datasets)]
    both = averaged(rows, ["label", "dataset", "run", "seed"])
    both = both.assign(
        algorithm=both["label"], seed=both["run"] + ":" + both["seed"].astype(str)
    )
    columns = ["algorithm", "dataset", "seed", "value", "count", "n"]
    return both[columns].reset_index(drop=True)


def averaged(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Gives one row for each of `by`: the one without condition, else a mean."""
    whole = rows["condition"] == ""
    if whole.all():
        return rows
    parts = rows[_used(rows, by) & ~whole]
    means = parts.groupby(by, as_index=False)["value"].mean(skipna=False)
    return pd.concat([rows[whole], means]) if len(means) else rows[whole]


def _used(rows: pd.DataFrame, by: list[str]) -> pd.Series:
    """Tells which rows make the number of each of `by`: that without condition, or all."""
    whole = rows["condition"] == ""
    keys = pd.Series(results.number_rows(rows, by), rows.index)
    return whole | ~keys.isin(keys[whole])


def _datasets(chosen: pd.DataFrame, options: options_lib.Options) -> list[str]:
    metrics = list(chosen["metric"].unique())
    if options.metric not in metrics:
        raise ValueError(
            f"--metric: must be a metric of the runs, got {options.metric!r}: "
            f"{', '.join(metrics)}"
        )
    known = list(chosen["dataset"][chosen["metric"] == options.metric].unique())
    check_names("--datasets", options.datasets, known)
    if options.best_on in options.datasets:
        raise ValueError(
            f"--datasets: must not name what --best-on selects by, got {options.best_on}; "
            "it is no test set then: leave it out of one of the two"
        )
    looked = (results.VALID, options.best_on)
    return list(options.datasets) or [name for name in known if name not in looked]


def check_names(flag: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    """Refuses names that have no scores."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(
            f"{flag}: must be names with scores, got {', '.join(unknown)}; known are "
            f"{', '.join(known)}"
        )


def _unfit(chosen, selected, values, runs, datasets, metric):
    """Names data sets that are not the same in all runs, or that tell nothing."""
    told = ["dataset", "condition", "n"]
    rows = chosen[told][chosen["metric"] == "accuracy"]
    rows = rows[~pd.Series(results.number_rows(rows, told), rows.index).duplicated()]
    prints = _fingerprints(runs)
    uneven = _uneven(selected[selected["metric"] == metric])
    scores = values.groupby("dataset")["value"].agg(["nunique", "count"])
    alike = set(scores.index[(scores["nunique"] == 1) & (scores["count"] > 1)])
    for name in datasets:
        here = rows[(rows["dataset"] == name) & rows["n"].notna()]
        sizes = here.groupby("condition")["n"].unique()
        if any(len(size) > 1 for size in sizes):
            all_sizes = sorted({int(n) for size in sizes for n in size})
            yield name, f"it has different numbers of images: {all_sizes}"
        elif len(prints.get(name, ())) > 1:
            yield name, "its fingerprint is not the same in all runs"
        elif name in uneven:
            yield name, "it was evaluated under different conditions"
        elif name in alike:
            yield name, "all its scores are equal"


def _uneven(rows: pd.DataFrame) -> set[str]:
    """Names data sets whose numbers are not of the same conditions in all seeds."""
    seeds = ["label", "dataset", "run", "seed"]
    rows = rows[_used(rows, seeds)]
    rows = rows.assign(unit=results.number_rows(rows, seeds))
    each = rows.groupby(["dataset", "condition"])["unit"].nunique()
    every = rows.groupby("dataset")["unit"].nunique()
    few = each < every.reindex(each.index.get_level_values("dataset")).to_numpy()
    return set(each.index.get_level_values("dataset")[few])


def _fingerprints(runs) -> dict[str, set[str]]:
    prints = {}
    for run in runs:
        for name, told in (run.provenance.get("data") or {}).items():
            if isinstance(told, dict) and told.get("fingerprint"):
                prints.setdefault(name, set()).add(str(told["fingerprint"]))
    return prints


def _notes(empty, runs, frame, chosen):
    tests = set(frame["dataset"].unique()) - {results.VALID, results.TRAIN}
    for name, prints in _fingerprints(runs).items():
        if len(prints) > 1 and name not in tests:
            yield f"The data {name!r} (fingerprint) is not the same in all runs."
    for path in empty:
        yield f"{path} matches the pattern and holds no evaluation; it is not in here."
    for run in runs:
        if not run.finished:
            yield f"{run.workdir} is not finished (it has no file `done`)."
        if lost := list(
            checksums.find_damaged(
                run.workdir, checksums.read_folder(run.workdir), quick=True
            )
        ):
            yield (
                f"{run.workdir}: {checksums.summarize(lost)}; the run's command makes anew what a "
                "checkpoint is kept of."
            )
        if run.config is None:
            yield (
                f"{run.workdir} has no config.json: its settings are not known, nor what "
                "it trained on."
            )
    stages = frame.groupby("run")["stage"].max()
    if stages.max() > 0:
        told = ", ".join(f"{run}: {stage}" for run, stage in stages.items())
        yield f"Only the last stage of each run counts ({told})."
    ends = chosen.groupby("label")["epoch"].max()
    if ends.nunique() > 1:
        told = ", ".join(f"{label}: {epoch:g}" for label, epoch in ends.items())
        yield f"Algorithms were trained for different numbers of epochs ({told})."
