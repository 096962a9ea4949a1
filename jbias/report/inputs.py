"""From the records of runs, or from a table of scores that others made, to a study."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from jbias import scores
from jbias.report import analysis, trained, workdirs
from jbias.report import options as options_lib
from jbias.runs import checksums, results, selection
from jbias.scores import units
from jbias.stats import score_layout, score_table

_LARGEST = 1e75  # Of scores; tests sum products of four of them.
# Of records that a study keeps: the rest, half of the memory, serves selection alone.
_OF_EPOCHS = ["label", "dataset", "run", "seed", "epoch"]
_OF_EPOCHS += ["condition", "metric", "value"]
_SHARE_OF_LAST = 0.3  # BiasBed averages the last 30 of 100 epochs.


@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules of selection with what each of them needs.

    Of the options `last` and `epoch` are known; the latter is NaN where seeds share none.
    """

    options: options_lib.Options
    datasets: Sequence[str]
    labels: Mapping[str, str]  # By workdir.

    def select(self, frame: pd.DataFrame, rule: str) -> pd.DataFrame:
        """Gives one row a number of each seed."""
        asked = self.options
        if rule == "best_validation":
            rows = selection.best_validation(frame)
        elif rule == "last_n":
            rows = selection.last_n(self._often(frame), asked.last)
        elif rule == "at_epoch" and math.isnan(asked.epoch):
            raise ValueError(
                "at_epoch: every seed needs an evaluation at one epoch, got no epoch that "
                "all seeds have"
            )
        elif rule == "at_epoch":
            rows = selection.at_epoch(frame, asked.epoch)
        elif rule == "best_on":
            rows = selection.best_on(frame, asked.best_on)
        elif rule == "worst_class":
            rows = selection.worst_class(frame)
        else:
            better = dict(larger_is_better=asked.larger_is_better)
            rows = selection.oracle(frame, metric=asked.metric, **better)
        return rows.assign(label=rows["workdir"].map(self.labels))

    def name(self, rule: str) -> str:
        """What a table calls it."""
        asked = self.options
        return {
            "best_validation": "best validation",
            "last_n": f"last {asked.last}",
            "at_epoch": f"epoch {asked.epoch:g}",
            "best_on": f"best on {asked.best_on}",
            "worst_class": "worst class",
        }.get(rule, rule)

    def words(self, rule: str) -> str:
        """What a caption says."""
        asked = self.options
        last = f"evaluation{'s' if asked.last > 1 else ''}"
        return {
            "best_validation": "the evaluation with the best validation accuracy of each "
            "seed (the first, if several)",
            "last_n": f"the mean of the last {asked.last} {last} of each seed",
            "at_epoch": f"the evaluation after epoch {asked.epoch:g} of each seed",
            "best_on": "the evaluation with the best accuracy of each seed on "
            f"{asked.best_on}, which is no test set then",
            "worst_class": "the evaluation with the best validation accuracy of the worst "
            "class, or group, of each seed (the first, if several)",
            "oracle": "the best evaluation of each seed on each data set, chosen by looking "
            "at that data set: an oracle, not a result that could be had",
        }[rule]

    def _often(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Leaves out what is not asked for and was evaluated less than `last` times."""
        cells, asked = results.number_rows(frame, selection.CELL), self.options
        mine = (frame["metric"] == asked.metric) & frame["dataset"].isin(self.datasets)
        often = mine | (np.bincount(cells)[cells] >= asked.last)
        return frame if often.all() else frame[often]


def common_epoch(rows: pd.DataFrame) -> float:
    """Gives the last epoch that all seeds were evaluated at, NaN if there is none."""
    digits = round(-math.log10(selection.EPOCH_ATOL))
    rows = rows[[*selection.UNIT, "epoch"]].assign(epoch=rows["epoch"].round(digits))
    rows = rows.take(results.first_rows(rows, list(rows)))
    seeds = rows["epoch"].value_counts()
    common = seeds.index[seeds == len(set(results.number_rows(rows, selection.UNIT)))]
    return float(common.max()) if len(common) else math.nan


def default_last(rows: pd.DataFrame) -> int:
    """Gives 30 % of the evaluations of what was evaluated least, at least one."""
    sizes = np.bincount(results.number_rows(rows, selection.CELL))
    return max(1, round(_SHARE_OF_LAST * sizes.min(initial=len(rows))))


def from_runs(
    patterns: Sequence[str],
    options: options_lib.Options,
    *,
    records: workdirs.Records | None = None,
) -> analysis.BenchmarkScores:
    """Return the study of runs: selected models and their scores by one metric.

    records: of the workdirs that match `patterns`; None reads them. Loses its frame.
    """
    records = records or workdirs.read(patterns)
    frame, runs = records.pop_frame(), records.runs
    labels = {run.workdir: run.label for run in runs}
    paths = frame["workdir"].cat
    by_path = pd.Categorical([labels[path] for path in paths.categories])
    frame = frame.assign(label=by_path.take(paths.codes))
    known = list(dict.fromkeys(run.label for run in runs))
    aliases = {run.alias: run.label for run in runs}
    named = lambda name: name if name in known else aliases.get(name, name)
    asked = tuple(map(named, options.algorithms))
    both = dict(algorithms=asked, reference=named(options.reference))
    options = dataclasses.replace(options, **both)
    _check_names("--algorithms", options.algorithms, known)
    algorithms = list(options.algorithms) or known
    if len(algorithms) < len(known):
        frame = frame[frame["label"].isin(algorithms)].reset_index(drop=True)
    runs = tuple(run for run in runs if run.label in algorithms)
    notes = list(_notes(records.empty, runs, frame))
    diverged = selection.diverged(frame)
    measured = list(frame["dataset"].unique())
    made_of = {name: sorted(frame[name].unique()) for name in ("model", "train_data")}
    twins, chosen = analysis.run_side_by_side(
        [lambda: tuple(analysis.twins_of_runs(frame)), lambda: evaluated(frame)]
    )
    del frame  # As large as all that comes.
    datasets = _datasets(chosen, options)
    options = _with_defaults(options, chosen, datasets)
    rules = Rules(options, datasets, labels)
    notes += _notes_of_epochs(chosen)
    selected, others, refusals = _select_by_all(rules, chosen)
    notes += [f"One selection is not compared: {error}." for error in refusals]
    values = dict(others)[rules.name(options.selection)]
    pairs = trained.of_runs(runs, datasets)
    if options.trained_on:
        names = list(dict.fromkeys([*known, *aliases]))
        more = trained.read(options.trained_on, names, measured)
        more = [(named(algorithm), dataset) for algorithm, dataset in more]
        pairs |= {(a, d) for a, d in more if a in algorithms and d in datasets}
    return analysis.BenchmarkScores(
        source=", ".join(patterns),
        options=options,
        rule=rules.words(options.selection),
        algorithms=tuple(algorithms),
        datasets=tuple(datasets),
        values=values,
        unfit=tuple(_unfit(chosen, selected, runs, datasets, options.metric)),
        trained=pairs,
        notes=tuple(notes),
        twins=twins,
        models=tuple(made_of["model"]),
        train_sets=tuple(made_of["train_data"]),
        chosen=chosen[_OF_EPOCHS],
        selected=selected,
        others=tuple(others),
        runs=runs,
        diverged=diverged,
    )


def _select_by_all(
    rules: Rules, chosen: pd.DataFrame
) -> tuple[pd.DataFrame, list[tuple[str, pd.DataFrame]], list[ValueError]]:
    """Return the rows of the rule asked for, scores by each rule, and errors of the others.

    Scores are in the order of the rules, with the rules' names. ValueError where the rule
    asked for selects nothing.
    """
    options = rules.options
    unasked = {"best_on"} if not options.best_on else set()
    if not selection.of_classes(chosen).any():
        unasked.add("worst_class")
    names = [
        name
        for name in options_lib.SELECTIONS
        if name == options.selection or name not in unasked
    ]

    def select(name: str) -> tuple[pd.DataFrame, pd.DataFrame] | ValueError:
        try:
            rows = rules.select(chosen, name)
        except ValueError as error:
            return error
        return rows, values_of(rows, options.metric, rules.datasets)

    tasks = [functools.partial(select, name) for name in names]
    results_by_rule = dict(zip(names, analysis.run_side_by_side(tasks), strict=True))
    asked_for = results_by_rule[options.selection]
    if isinstance(asked_for, ValueError):
        raise asked_for
    values_by_rule, errors = [], []
    for name, result in results_by_rule.items():
        if isinstance(result, ValueError):
            errors.append(result)
        else:
            values_by_rule.append((rules.name(name), result[1]))
    return asked_for[0], values_by_rule, errors


def _with_defaults(
    options: options_lib.Options, chosen: pd.DataFrame, datasets: Sequence[str]
) -> options_lib.Options:
    """Return options with `last` and `epoch`; refuse scores whose squares are no floats."""
    rows = (chosen["metric"] == options.metric) & chosen["dataset"].isin(datasets)
    scores = chosen.loc[rows, ["label", "dataset", "value"]]
    _check_sizes(scores.rename(columns={"label": "algorithm"}), "--runs")
    asked = chosen.loc[rows, [*selection.CELL, "epoch"]]
    return dataclasses.replace(
        options,
        last=options.last or default_last(asked),
        epoch=common_epoch(asked) if options.epoch is None else options.epoch,
    )


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
    rows = averaged(rows, ["label", "dataset", "run", "seed"])
    seed = rows["run"] + ":" + rows["seed"].astype(str)
    rows = rows.assign(algorithm=rows["label"], seed=seed)
    columns = ["algorithm", "dataset", "seed", "value", "count", "n"]
    return rows[columns].reset_index(drop=True)


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
    _check_names("--datasets", options.datasets, known)
    if options.best_on in options.datasets:
        raise ValueError(
            f"--datasets: must not name what --best-on selects by, got {options.best_on}; "
            "it is no test set then: leave it out of one of the two"
        )
    looked = (results.VALID, options.best_on)
    return list(options.datasets) or [name for name in known if name not in looked]


def _check_names(flag: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    """Refuses names that have no scores."""
    every = set(known)
    unknown = [name for name in wanted if name not in every]
    if unknown:
        raise ValueError(
            f"{flag}: must be names with scores, got {', '.join(unknown)}; known are "
            f"{', '.join(known)}"
        )


def _unfit(chosen, selected, runs, datasets, metric):
    """Yield data sets that are not the same in all runs, and why."""
    rows = chosen.loc[chosen["metric"] == "accuracy", ["dataset", "condition", "n"]]
    rows = rows.take(results.first_rows(rows, list(rows))).dropna(subset="n")
    prints = _fingerprints(runs)
    uneven = _uneven(selected[selected["metric"] == metric])
    several = rows[rows.duplicated(["dataset", "condition"])]
    resized = set(several["dataset"])
    for name in datasets:
        if name in resized:
            sizes = sorted({int(n) for n in rows.loc[rows["dataset"] == name, "n"]})
            yield name, f"it has different numbers of images: {sizes}"
        elif len(prints.get(name, ())) > 1:
            yield name, "its fingerprint is not the same in all runs"
        elif name in uneven:
            yield name, "it was evaluated under different conditions"


def _uneven(rows: pd.DataFrame) -> set[str]:
    """Names data sets whose numbers are not of the same conditions in all seeds."""
    seeds = ["label", "dataset", "run", "seed"]
    rows = rows[_used(rows, seeds)]
    rows = rows.assign(unit=results.number_rows(rows, seeds))
    each = rows.groupby(["dataset", "condition"])["unit"].nunique()
    names = each.index.get_level_values("dataset")
    every = rows.groupby("dataset")["unit"].nunique()
    return set(names[each < every.reindex(names).to_numpy()])


def _fingerprints(runs) -> dict[str, set[str]]:
    prints = {}
    for run in runs:
        for name, facts in run.data.items():
            if isinstance(facts, dict) and facts.get("fingerprint"):
                prints.setdefault(name, set()).add(str(facts["fingerprint"]))
    return prints


def _notes(empty, runs, frame: pd.DataFrame) -> Iterator[str]:
    tests = set(frame["dataset"].unique()) - {results.VALID, results.TRAIN}
    for name, prints in _fingerprints(runs).items():
        if len(prints) > 1 and name not in tests:
            yield f"The data {name!r} (fingerprint) is not the same in all runs."
    for path in empty:
        yield f"{path} matches the pattern and holds no evaluation; it is not in here."
    for run in runs:
        if not run.finished:
            yield f"{run.workdir} is not finished (it has no file `done`)."
        sums = checksums.read_folder(run.workdir)
        if lost := list(checksums.find_damaged(run.workdir, sums, quick=True)):
            yield (
                f"{run.workdir}: {checksums.summarize(lost)}; the run's command makes anew "
                "what a checkpoint is kept of."
            )
        if shared := " and ".join(run.settings.get("fix") or ()):
            yield (
                f"All seeds of {run.label} have one {shared} (config.fix): ± and "
                "intervals over seeds leave that out, and equal seeds of others do not share it."
            )
        if run.config is None:
            yield (
                f"{run.workdir} has no config.json: its settings are not known, nor what "
                "it trained on."
            )
    stages = frame.groupby("run")["stage"].max()
    if stages.max() > 0:
        yield f"Only the last stage of each run counts ({_listed(stages)})."


def _notes_of_epochs(chosen: pd.DataFrame) -> Iterator[str]:
    ends = chosen.groupby("label")["epoch"].max()
    if ends.nunique() > 1:
        yield (
            "Algorithms were trained for different numbers of epochs "
            f"({_listed(ends)})."
        )


def _listed(values: pd.Series) -> str:
    return ", ".join(f"{name}: {value:g}" for name, value in values.items())


def from_scores(path: str, options: options_lib.Options) -> analysis.BenchmarkScores:
    """Return the study of a file of scores, in any form that `jbias.scores.read` takes.

    A column `trained_on` (yes or no) says that an algorithm trained on a data set's kind.
    Raises ValueError by file and line for what is no score and for a cell that occurs
    twice; by name for missing cells, unless `options.drop` says what to leave out, and for
    runs that certainly have fractions among percentages.
    """
    reading = _read(path, options)
    frame = reading.tidy.drop(columns="place")
    if "trained_on" not in frame:
        frame = frame.assign(trained_on=False)
    known = list(dict.fromkeys(frame["dataset"]))
    named = list(dict.fromkeys(frame["algorithm"]))
    _check_names("--datasets", options.datasets, known)
    _check_names("--algorithms", options.algorithms, named)
    datasets, algorithms = options.datasets or known, options.algorithms or named
    wanted = frame["dataset"].isin(datasets) & frame["algorithm"].isin(algorithms)
    frame = frame[wanted].reset_index(drop=True)
    frame, notes = _complete(frame, path, options.drop, reading.unfinished)
    _check_sizes(frame.rename(columns={"score": "value"}), path)
    units.check(frame, where=path, unit=options.unit)
    if reading.unfinished:
        notes.append(f"Left out: {reading.unfinished}.")
    if reading.unused:
        notes.append(
            f"Columns of {path} that were not used: {', '.join(reading.unused)}."
        )
    if reading.is_summary and frame.groupby("algorithm")["run"].nunique().max() == 1:
        notes.append(
            "Scores are means with their spread over runs that are not in the file: no test "
            "here sees this spread, and none over seeds is possible without each run's score."
        )
    seen = frame.loc[frame["trained_on"], ["algorithm", "dataset"]]
    pairs = frozenset(seen.itertuples(index=False, name=None))
    left_sets, left_algorithms = set(frame["dataset"]), set(frame["algorithm"])
    datasets = [name for name in datasets if name in left_sets]
    algorithms = [name for name in algorithms if name in left_algorithms]
    if options.trained_on:
        more = trained.read(options.trained_on, named, known)
        pairs |= {(a, d) for a, d in more if a in algorithms and d in datasets}
    if options.strict and not pairs:
        raise ValueError(
            f"--strict: {path} must tell which algorithm trained on which data set, and "
            "does not; add a column trained_on or give --trained-on=FILE"
        )
    values = frame.rename(columns={"score": "value", "run": "seed"})
    values = values.drop(columns="trained_on")
    return analysis.BenchmarkScores(
        source=path,
        understood=reading.description,
        options=dataclasses.replace(options, metric="score", selection="given"),
        rule="scores as they stand in the file; how models were selected is not known here",
        algorithms=tuple(algorithms),
        datasets=tuple(datasets),
        values=values.assign(count=pd.NA, n=pd.NA),
        trained=pairs,
        notes=tuple(notes),
    )


def _complete(
    frame: pd.DataFrame, path: str, drop: str, unfinished: str
) -> tuple[pd.DataFrame, list[str]]:
    """Refuse missing cells, or leave out what `drop` says; return the rest with notes.

    unfinished: in words, the rows that are left out as their runs did not finish; or "".
    """
    before = _names(frame)
    if drop:
        frame = score_table.drop_incomplete(frame, drop=drop)
    if frame.empty:
        told = f"{path}: --drop={drop} leaves nothing over"
        raise ValueError(f"{told}; fill the missing cells")
    if lacking := score_table.missing_cells(frame):
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        why = f" ({unfinished})" if unfinished else ""
        raise ValueError(
            f"{path}: every run of an algorithm needs a score on every data set, got none "
            f"for {'; '.join(lacking[:5])}{more}{why}; add them, or leave out what lacks them: "
            "--drop=datasets, --drop=algorithms or --drop=runs"
        )
    after = _names(frame)
    gone = ", ".join(name for name in before if name not in after)
    notes = [f"Left out for missing cells (--drop={drop}): {gone}."] if gone else []
    return frame.reset_index(drop=True), notes


def _names(frame: pd.DataFrame) -> dict[str, None]:
    runs = frame["algorithm"] + " run " + frame["run"]
    return dict.fromkeys([*frame["algorithm"], *frame["dataset"], *runs])


def _read(path: str, options: options_lib.Options) -> score_layout.Reading:
    """Return the scores of a file, with what was understood of it.

    Raises ValueError by file and line for a score whose square is no float.
    """
    reading = scores.read(
        path,
        columns=options.columns,
        rows=options.rows,
        decimal=options.decimal,
        sheet=options.sheet,
        brackets=options.brackets,
        margins=options.margins,
        unit="percent",  # Those that are wanted are checked later.
    )
    tidy = reading.tidy
    too_large = tidy[tidy["score"].abs() > _LARGEST]
    if len(too_large):
        row = too_large.iloc[0]
        raise ValueError(
            f"{row['place']}: score must be at most {_LARGEST:g}, as its squares are summed, "
            f"got {row['score']:g} for {row['algorithm']} on {row['dataset']}; correct it, or "
            "divide all"
        )
    return reading


def _check_sizes(values: pd.DataFrame, where: str) -> None:
    """Raise ValueError where squares of scores are no floats: too large, or all too small."""
    sizes = values["value"].astype(float).abs()
    largest = sizes.max()
    if not len(sizes) or np.isnan(largest) or not largest:
        return
    if not 1 / _LARGEST < largest <= _LARGEST:
        row = values.iloc[int(np.nanargmax(sizes))]
        raise ValueError(
            f"{where}: the largest score must be between {1 / _LARGEST:g} and {_LARGEST:g} in "
            f"size, as squares are summed, got {row['value']:g} for {row['algorithm']} on "
            f"{row['dataset']}; correct it, or scale all scores"
        )
