"""Readers that turn the records of runs, or a file of scores, into `BenchmarkScores`.

Records are rows of the frame of `jbias.runs.results.read`. Records of evaluations are the rows of
that frame that `evaluated` returns.
"""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from jbias import scores
from jbias.report import options as options_lib
from jbias.report import workdirs
from jbias.report.pages.benchmark import analysis, benchmark_scores, trained, twin_runs
from jbias.runs import checksums, results, selection, single_networks
from jbias.scores import units
from jbias.stats import score_table
from jbias.stats.reading import score_layout

_LARGEST = 1e75  # Largest allowed score: tests sum products of four scores.
# Columns of records that a study needs after selection; other columns take half of the memory.
_EPOCH_COLUMNS = [
    "label",
    "dataset",
    "run",
    "seed",
    "epoch",
    "condition",
    "metric",
    "value",
]
_SHARE_OF_LAST = 0.3  # BiasBed averages the last 30 of 100 epochs.


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules that select evaluations, with their options.

    `options` must have `last` and `epoch`; `epoch` is NaN if seeds have no common epoch. datasets:
    data sets of the report. labels: name of the algorithm, by workdir.
    """

    options: options_lib.Options
    datasets: Sequence[str]
    labels: Mapping[str, str]  # By workdir.

    def select(self, frame: pd.DataFrame, rule: str) -> pd.DataFrame:
        """Return the records that a rule selects, with a column `label`.

        One row per seed, data set, condition and metric. frame: records of evaluations. rule: a
        name in `options.SELECTIONS`, such as "best_validation". Raises ValueError for at_epoch
        without a common epoch, and as the function of the rule in `jbias.runs.selection` does, for
        example for seeds without a validation accuracy.
        """
        options = self.options
        if rule == "best_validation":
            rows = selection.best_validation(frame)
        elif rule == "last_n":
            rows = selection.last_n(self._often_evaluated(frame), options.last)
        elif rule == "at_epoch" and math.isnan(options.epoch):
            raise ValueError(
                "at_epoch: no epoch was evaluated in all seeds; choose another --selection"
            )
        elif rule == "at_epoch":
            rows = selection.at_epoch(frame, options.epoch)
        elif rule == "best_on":
            rows = selection.best_on(frame, options.best_on)
        elif rule == "worst_class":
            rows = selection.worst_class(frame)
        else:
            rows = selection.oracle(
                frame,
                metric=options.metric,
                larger_is_better=options.larger_is_better,
            )
        return rows.assign(label=rows["workdir"].map(self.labels))

    def name(self, rule: str) -> str:
        """Return the name of a rule as the head of a column, with its option.

        Examples: "last 30", "epoch 12", "best on sketch", "worst class". rule: a name in
        `options.SELECTIONS`.
        """
        options = self.options
        return {
            "best_validation": "best validation",
            "last_n": f"last {options.last}",
            "at_epoch": f"epoch {options.epoch:g}",
            "best_on": f"best on {options.best_on}",
            "worst_class": "worst class",
        }.get(rule, rule)

    def words(self, rule: str) -> str:
        """Return the description of a rule in captions.

        rule: a name in `options.SELECTIONS`.
        """
        options = self.options
        evaluations = f"evaluation{'s' if options.last > 1 else ''}"
        return {
            "best_validation": "the evaluation with the best validation accuracy of each "
            "seed (the first, if several)",
            "last_n": f"the mean of the last {options.last} {evaluations} of each seed",
            "at_epoch": f"the evaluation after epoch {options.epoch:g} of each seed",
            "best_on": "the evaluation with the best accuracy of each seed on "
            f"{options.best_on}, which is then no test set",
            "worst_class": "the evaluation with the best validation accuracy of the worst "
            "class, or group, of each seed (the first, if several)",
            "oracle": "the best evaluation of each seed on each data set, chosen by looking "
            "at that data set: an oracle, not an achievable result",
        }[rule]

    def _often_evaluated(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the records of cells with at least `options.last` values.

        A cell is a seed's values of one metric on one data set under one condition. Records of the
        chosen metric and data sets are always included.
        """
        cells = results.number_rows(frame, selection.CELL)
        is_chosen = frame["metric"] == self.options.metric
        is_chosen &= frame["dataset"].isin(self.datasets)
        has_enough = np.bincount(cells)[cells] >= self.options.last
        is_kept = is_chosen | has_enough
        return frame if is_kept.all() else frame[is_kept]


def common_epoch(rows: pd.DataFrame) -> float:
    """Return the last epoch at which all seeds were evaluated; NaN without such an epoch.

    Epochs are rounded to `selection.EPOCH_ATOL`. rows: records of evaluations.
    """
    digits = round(-math.log10(selection.EPOCH_ATOL))
    rows = rows[[*selection.UNIT, "epoch"]].assign(epoch=rows["epoch"].round(digits))
    rows = rows.take(results.first_rows(rows, list(rows)))
    seeds = rows["epoch"].value_counts()
    common = seeds.index[seeds == len(set(results.number_rows(rows, selection.UNIT)))]
    return float(common.max()) if len(common) else math.nan


def default_last(rows: pd.DataFrame) -> int:
    """Return 30 % of the smallest number of evaluations of a cell, at least 1.

    rows: records of evaluations. A cell is a seed's values of one metric on one data set under one
    condition.
    """
    sizes = np.bincount(results.number_rows(rows, selection.CELL))
    return max(1, round(_SHARE_OF_LAST * sizes.min(initial=len(rows))))


def from_runs(
    patterns: Sequence[str],
    options: options_lib.Options,
    *,
    records: workdirs.RunRecords | None = None,
) -> benchmark_scores.BenchmarkScores:
    """Return the scores of runs: `options.metric` at the evaluations that the rule selects.

    Names of algorithms in the options may be labels or aliases ("algorithm (variant)"). Seeds that
    diverged are left out. patterns: workdirs (paths or globs). records: records of these workdirs,
    if already read; None reads the workdirs. The frame of `records` is removed, to free its memory.

    Raises ValueError as `workdirs.read` does, for an unknown metric, algorithm or data set, and for
    an invalid file of `trained_on`. Also raises ValueError if `best_on` is in `datasets`, if no
    evaluation remains, or if the rule selects nothing. An unknown reference is not an error here.
    """
    records = records or workdirs.read(patterns)
    frame = records.pop_frame()
    runs = records.runs
    labels = {run.workdir: run.label for run in runs}
    paths = frame["workdir"].cat
    label_by_path = pd.Categorical([labels[path] for path in paths.categories])
    frame = frame.assign(label=label_by_path.take(paths.codes))
    known = list(dict.fromkeys(run.label for run in runs))
    aliases = {run.alias: run.label for run in runs}
    label_of = lambda name: name if name in known else aliases.get(name, name)
    options = dataclasses.replace(
        options,
        algorithms=tuple(map(label_of, options.algorithms)),
        reference=label_of(options.reference),
    )
    _check_names("--algorithms", options.algorithms, known)
    algorithms = list(options.algorithms) or known
    if len(algorithms) < len(known):
        frame = frame[frame["label"].isin(algorithms)].reset_index(drop=True)
    runs = tuple(run for run in runs if run.label in algorithms)
    notes = list(_notes(records.empty, runs, frame))
    diverged = selection.diverged(frame)
    measured = list(frame["dataset"].unique())
    models = sorted(frame["model"].unique())
    train_sets = sorted(frame["train_data"].unique())
    with analysis.worker_threads() as pool:
        twins_task = pool.submit(lambda: tuple(twin_runs.twins_of_runs(frame)))
        chosen_task = pool.submit(lambda: evaluated(frame))
        twins, chosen = twins_task.result(), chosen_task.result()
    del frame  # Free the largest frame before selection.
    datasets = _datasets(chosen, options)
    options = _with_defaults(options, chosen, datasets)
    rules = Rules(options, datasets, labels)
    notes += _notes_of_epochs(chosen)
    notes += _notes_of_selection(runs, options)
    selected, values_by_rule, errors = _select_by_all(rules, chosen)
    notes += [f"One selection is not compared: {error}." for error in errors]
    values = dict(values_by_rule)[rules.name(options.selection)]
    pairs = trained.of_runs(runs, datasets)
    if options.trained_on:
        names = list(dict.fromkeys([*known, *aliases]))
        more = trained.read(options.trained_on, names, measured)
        more = [(label_of(algorithm), dataset) for algorithm, dataset in more]
        pairs |= {(a, d) for a, d in more if a in algorithms and d in datasets}
    return benchmark_scores.BenchmarkScores(
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
        models=tuple(models),
        train_sets=tuple(train_sets),
        evaluations=chosen[_EPOCH_COLUMNS],
        selected=selected,
        values_by_rule=tuple(values_by_rule),
        runs=runs,
        diverged=diverged,
    )


def _select_by_all(
    rules: Rules, chosen: pd.DataFrame
) -> tuple[pd.DataFrame, list[tuple[str, pd.DataFrame]], list[ValueError]]:
    """Return (records selected by `options.selection`, scores by each rule, errors of rules).

    Scores are pairs (name of the rule, frame as `values_of` returns), in the order of the rules. If
    a rule selects nothing, its scores are left out, and its error is in the last list. The rule
    best_on is used only if `options.best_on` is set. The rule worst_class is used only if there are
    records of classes or if `options.selection` is worst_class. chosen: records of evaluations.
    Raises ValueError if `options.selection` selects nothing.
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

    with analysis.worker_threads() as pool:
        results_by_rule = dict(zip(names, pool.map(select, names), strict=True))
    asked_for = results_by_rule[options.selection]
    if isinstance(asked_for, ValueError):
        raise asked_for
    values_by_rule = []
    errors = []
    for name, result in results_by_rule.items():
        if isinstance(result, ValueError):
            errors.append(result)
        else:
            values_by_rule.append((rules.name(name), result[1]))
    return asked_for[0], values_by_rule, errors


def _with_defaults(
    options: options_lib.Options, chosen: pd.DataFrame, datasets: Sequence[str]
) -> options_lib.Options:
    """Return the options with defaults for `last` and `epoch`.

    chosen: records of evaluations. datasets: data sets of the report. Raises ValueError if a
    square of a score overflows, or if all squares underflow.
    """
    rows = (chosen["metric"] == options.metric) & chosen["dataset"].isin(datasets)
    scores = chosen.loc[rows, ["label", "dataset", "value"]]
    _check_sizes(scores.rename(columns={"label": "algorithm"}), "--runs")
    evaluations = chosen.loc[rows, [*selection.CELL, "epoch"]]
    return dataclasses.replace(
        options,
        last=options.last or default_last(evaluations),
        epoch=common_epoch(evaluations) if options.epoch is None else options.epoch,
    )


def evaluated(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the records of evaluations that rules select from; ValueError if there are none.

    frame: records of runs, as `results.read` returns them; the result has the same columns. Seeds
    that diverged, earlier stages and training data are left out.
    """
    chosen = selection.evaluations(frame)
    if chosen.empty:
        raise ValueError(
            "--runs: no seed that did not diverge has an evaluation; look into log.txt of the "
            "runs"
        )
    return chosen


def values_of(
    selected: pd.DataFrame, metric: str, datasets: Sequence[str]
) -> pd.DataFrame:
    """Return the scores of a metric per algorithm, data set and seed, averaged over conditions.

    Columns: algorithm, dataset, seed ("run:seed"), value, count and n. A record without a
    condition is the number of the whole data set and replaces the mean; count and n of a mean are
    NaN. selected: records with a column `label`.
    """
    rows = selected[(selected["metric"] == metric) & selected["dataset"].isin(datasets)]
    rows = averaged(rows, ["label", "dataset", "run", "seed"])
    seed = rows["run"] + ":" + rows["seed"].astype(str)
    rows = rows.assign(algorithm=rows["label"], seed=seed)
    columns = ["algorithm", "dataset", "seed", "value", "count", "n"]
    return rows[columns].reset_index(drop=True)


def averaged(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return one row per combination of the columns `by`: the row without condition, or a mean.

    If a combination has no row without condition, its row has the mean value over conditions (NaN
    if a value is NaN), and NaN in all other columns. rows: records with the columns `by`,
    condition and value.
    """
    is_whole = rows["condition"] == ""
    if is_whole.all():
        return rows
    by_condition = rows[_is_used(rows, by) & ~is_whole]
    means = by_condition.groupby(by, as_index=False)["value"].mean(skipna=False)
    return pd.concat([rows[is_whole], means]) if len(means) else rows[is_whole]


def _is_used(rows: pd.DataFrame, by: list[str]) -> pd.Series:
    """Return a mask of the rows that `averaged` uses.

    True for rows without a condition, and for all rows of groups without such a row. A group has
    equal values in the columns `by`.
    """
    is_whole = rows["condition"] == ""
    keys = pd.Series(results.number_rows(rows, by), rows.index)
    return is_whole | ~keys.isin(keys[is_whole])


def _datasets(chosen: pd.DataFrame, options: options_lib.Options) -> list[str]:
    """Return the data sets to report: `options.datasets`, or all test sets with the metric.

    The data set of `options.best_on` is left out. Raises ValueError for an unknown metric or data
    set, and if `options.best_on` is in `options.datasets`. chosen: records of evaluations.
    """
    metrics = list(chosen["metric"].unique())
    if options.metric not in metrics:
        raise ValueError(
            f"--metric: the runs have no metric {options.metric!r}; choose one of "
            f"{', '.join(metrics)}"
        )
    known = list(chosen["dataset"][chosen["metric"] == options.metric].unique())
    _check_names("--datasets", options.datasets, known)
    if options.best_on in options.datasets:
        raise ValueError(
            f"--datasets: {options.best_on} is the data set of --best-on and so no test set; "
            "remove it from one of the two flags"
        )
    no_tests = (results.VALID, options.best_on)
    return list(options.datasets) or [name for name in known if name not in no_tests]


def _check_names(flag: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    """Raise ValueError for names in `wanted` but not in `known`; flag: start of the message."""
    known_names = set(known)
    unknown = [name for name in wanted if name not in known_names]
    if unknown:
        raise ValueError(
            f"{flag}: no scores of {', '.join(unknown)}; choose from {', '.join(known)}"
        )


def _unfit(
    chosen: pd.DataFrame,
    selected: pd.DataFrame,
    runs: Sequence[workdirs.Run],
    datasets: Sequence[str],
    metric: str,
) -> Iterator[tuple[str, str]]:
    """Yield (data set, reason) for data sets that differ between runs.

    The difference is in numbers of images (per condition), fingerprints or conditions. chosen:
    records of all evaluations. selected: records of the selected evaluations. metric: metric whose
    conditions must be the same in all seeds.
    """
    rows = chosen.loc[chosen["metric"] == "accuracy", ["dataset", "condition", "n"]]
    rows = rows.take(results.first_rows(rows, list(rows))).dropna(subset="n")
    fingerprints = _fingerprints(runs)
    uneven = _with_uneven_conditions(selected[selected["metric"] == metric])
    resized = set(rows.loc[rows.duplicated(["dataset", "condition"]), "dataset"])
    for name in datasets:
        if name in resized:
            sizes = sorted({int(n) for n in rows.loc[rows["dataset"] == name, "n"]})
            yield name, f"it has different numbers of images: {sizes}"
        elif len(fingerprints.get(name, ())) > 1:
            yield name, "its fingerprint is not the same in all runs"
        elif name in uneven:
            yield name, "it was evaluated under different conditions"


def _with_uneven_conditions(rows: pd.DataFrame) -> set[str]:
    """Return the names of data sets with conditions that not all seeds have.

    rows: records of one metric.
    """
    seed_keys = ["label", "dataset", "run", "seed"]
    rows = rows[_is_used(rows, seed_keys)]
    rows = rows.assign(unit=results.number_rows(rows, seed_keys))
    num_seeds = rows.groupby(["dataset", "condition"])["unit"].nunique()
    names = num_seeds.index.get_level_values("dataset")
    num_all_seeds = rows.groupby("dataset")["unit"].nunique()
    return set(names[num_seeds < num_all_seeds.reindex(names).to_numpy()])


def _fingerprints(runs: Sequence[workdirs.Run]) -> dict[str, set[str]]:
    """Return the set of fingerprints that the runs recorded, by data set.

    Data sets without a recorded fingerprint are left out.
    """
    fingerprints: dict[str, set[str]] = {}
    for run in runs:
        for name, recorded in run.data.items():
            if isinstance(recorded, dict) and recorded.get("fingerprint"):
                fingerprint = str(recorded["fingerprint"])
                fingerprints.setdefault(name, set()).add(fingerprint)
    return fingerprints


def _notes(
    empty: Sequence[pathlib.Path], runs: Sequence[workdirs.Run], frame: pd.DataFrame
) -> Iterator[str]:
    """Yield notes on the runs, one sentence each.

    The notes are on training or validation data with several fingerprints, workdirs without an
    evaluation, each run (see `_notes_of_run`), and the last stage of each run if a run has several
    stages. empty: workdirs without an evaluation. frame: the records of the runs.
    """
    tests = set(frame["dataset"].unique()) - {results.VALID, results.TRAIN}
    for name, fingerprints in _fingerprints(runs).items():
        if len(fingerprints) > 1 and name not in tests:
            yield f"The data {name!r} (fingerprint) is not the same in all runs."
    for path in empty:
        if single_networks.is_single_network(path):
            yield (
                f"{path} is one network without records of training, such as a soup; it is left "
                "out. `jbias evaluate` with a suite and `jbias report measured` compare it with "
                "runs."
            )
        else:
            yield f"{path} matches the pattern but has no evaluation; it is left out."
    for run in runs:
        yield from _notes_of_run(run)
    stages = frame.groupby("run")["stage"].max()
    if stages.max() > 0:
        yield f"Only the last stage of each run counts ({_listed(stages)})."


def _notes_of_run(run: workdirs.Run) -> Iterator[str]:
    """Yield notes on a run that is unfinished or damaged, lacks a config, or fixes random choices.

    The setting `fix` names the random choices that are equal in all seeds.
    """
    if not run.finished:
        yield f"{run.workdir} is not finished (it has no file `done`)."
    sums = checksums.read_folder(run.workdir)
    damaged = list(checksums.find_damaged(run.workdir, sums, quick=True))
    if damaged:
        yield (
            f"{run.workdir}: {checksums.summarize(damaged)}; run the command of the run again "
            "to restore the files that a checkpoint allows to restore."
        )
    shared = " and ".join(run.settings.get("fix") or ())
    if shared:
        yield (
            f"All seeds of {run.label} have the same {shared} (config.fix): ± and intervals "
            "over seeds do not include this source of noise, and equal seeds of other "
            "algorithms do not share it."
        )
    if run.config is None:
        yield f"{run.workdir} has no config.json: its settings and training data are unknown."


def _notes_of_epochs(chosen: pd.DataFrame) -> Iterator[str]:
    """Yield a note if algorithms were trained for different numbers of epochs.

    chosen: records of evaluations.
    """
    last_epochs = chosen.groupby("label")["epoch"].max()
    if last_epochs.nunique() > 1:
        yield (
            "Algorithms were trained for different numbers of epochs "
            f"({_listed(last_epochs)})."
        )


def _notes_of_selection(
    runs: Sequence[workdirs.Run], options: options_lib.Options
) -> Iterator[str]:
    """Yield a note on runs of SWAD unless their last evaluation is selected.

    SWAD's average at the last evaluation is the method's result, as the validation loss has chosen
    its steps already; earlier evaluations are of averages over a part of the training.
    """
    is_last = options.selection == "last_n" and options.last == 1
    labels = [
        run.label
        for run in runs
        if workdirs.average_name(run.settings.get("optim", {})) == "swad"
    ]
    if labels and not is_last:
        names = " and ".join(dict.fromkeys(labels))
        yield (
            f"{names} (SWAD) has chosen its steps by the validation set, and only its last "
            "evaluation is the method's: compare it by --selection=last_n --last=1, for all methods."
        )


def _listed(values: pd.Series) -> str:
    """Return "index: value" for each value of a series, separated by commas."""
    return ", ".join(f"{name}: {value:g}" for name, value in values.items())


def from_scores(
    path: str, options: options_lib.Options
) -> benchmark_scores.BenchmarkScores:
    """Return the scores of a file in any layout that `jbias.scores.read` reads.

    A column `trained_on` (yes or no) says whether an algorithm was trained on data like the data
    set. The options of the result have the metric "score" and the selection "given".

    Raises ValueError with file and line for an invalid score and for a cell that occurs twice, and
    with names for missing cells unless `options.drop` is set. Also raises ValueError if no scores
    remain, a name of a data set or algorithm is unknown, squares of scores overflow, some scores
    are certainly fractions among percentages, or `options.strict` is set and no training data are
    known.
    """
    reading = _read(path, options)
    frame = reading.tidy.drop(columns="place")
    if "trained_on" not in frame:
        frame = frame.assign(trained_on=False)
    known = list(dict.fromkeys(frame["dataset"]))
    named = list(dict.fromkeys(frame["algorithm"]))
    _check_names("--datasets", options.datasets, known)
    _check_names("--algorithms", options.algorithms, named)
    datasets = options.datasets or known
    algorithms = options.algorithms or named
    wanted = frame["dataset"].isin(datasets) & frame["algorithm"].isin(algorithms)
    frame = frame[wanted].reset_index(drop=True)
    frame, notes = _complete(frame, path, options.drop, reading.unfinished)
    _check_sizes(frame.rename(columns={"score": "value"}), path)
    units.check(frame, source=path, unit=options.unit)
    if reading.unfinished:
        notes.append(f"Left out: {reading.unfinished}.")
    if reading.unused:
        notes.append(
            f"Columns of {path} that were not used: {', '.join(reading.unused)}."
        )
    if reading.is_summary and frame.groupby("algorithm")["run"].nunique().max() == 1:
        notes.append(
            "Scores are means with their spread over runs that are not in the file: the tests "
            "do not use this spread, and tests over seeds need the score of each run."
        )
    trained_on = frame.loc[frame["trained_on"], ["algorithm", "dataset"]]
    pairs = frozenset(trained_on.itertuples(index=False, name=None))
    complete_sets = set(frame["dataset"])
    complete_algorithms = set(frame["algorithm"])
    datasets = [name for name in datasets if name in complete_sets]
    algorithms = [name for name in algorithms if name in complete_algorithms]
    if options.trained_on:
        more = trained.read(options.trained_on, named, known)
        pairs |= {(a, d) for a, d in more if a in algorithms and d in datasets}
    if options.strict and not pairs:
        raise ValueError(
            f"--strict: {path} does not say which algorithm was trained on which data set; add "
            "a column trained_on, or use --trained-on=FILE"
        )
    values = frame.rename(columns={"score": "value", "run": "seed"})
    values = values.drop(columns="trained_on")
    return benchmark_scores.BenchmarkScores(
        source=path,
        layout_notes=reading.description,
        options=dataclasses.replace(options, metric="score", selection="given"),
        rule="scores as in the file; the selection of models is unknown",
        algorithms=tuple(algorithms),
        datasets=tuple(datasets),
        values=values.assign(count=pd.NA, n=pd.NA),
        trained=pairs,
        notes=tuple(notes),
    )


def _complete(
    frame: pd.DataFrame, path: str, drop: str, unfinished: str
) -> tuple[pd.DataFrame, list[str]]:
    """Return (scores without missing cells, notes on algorithms, data sets or runs left out).

    frame: columns algorithm, dataset, run and score. path: path of the file, for errors. drop:
    item of `DROPS` of the options; "" raises ValueError if a cell is missing. unfinished:
    description of rows of unfinished runs, or "". Raises ValueError if no score remains.
    """
    all_names = _names(frame)
    if drop:
        frame = score_table.drop_incomplete(frame, drop=drop)
    if frame.empty:
        raise ValueError(
            f"{path}: no scores remain with --drop={drop}; fill the missing cells"
        )
    missing = score_table.missing_cells(frame)
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        reason = f" ({unfinished})" if unfinished else ""
        raise ValueError(
            f"{path}: every run of an algorithm needs a score on every data set, got none "
            f"for {'; '.join(missing[:5])}{more}{reason}; add these scores, or leave out "
            "incomplete parts with --drop=datasets, --drop=algorithms or --drop=runs"
        )
    remaining = _names(frame)
    dropped = ", ".join(name for name in all_names if name not in remaining)
    notes = []
    if dropped:
        notes.append(f"Left out for missing cells (--drop={drop}): {dropped}.")
    return frame.reset_index(drop=True), notes


def _names(frame: pd.DataFrame) -> dict[str, None]:
    """Return the names of algorithms, data sets and runs ("ERM run 1") as keys of a dict."""
    runs = frame["algorithm"] + " run " + frame["run"]
    return dict.fromkeys([*frame["algorithm"], *frame["dataset"], *runs])


def _read(path: str, options: options_lib.Options) -> score_layout.Reading:
    """Return the scores of a file with a description of its layout.

    The unit of the scores is not checked. Raises ValueError as `jbias.scores.read` does, and with
    file and line for a score larger than `_LARGEST` in size.
    """
    reading = scores.read(
        path,
        columns=options.columns,
        rows=options.rows,
        decimal=options.decimal,
        sheet=options.sheet,
        brackets=options.brackets,
        margins=options.margins,
        unit="percent",  # `from_scores` checks the unit of the wanted scores.
    )
    tidy = reading.tidy
    too_large = tidy[tidy["score"].abs() > _LARGEST]
    if len(too_large):
        row = too_large.iloc[0]
        raise ValueError(
            f"{row['place']}: score must be at most {_LARGEST:g}, because the tests sum squares, "
            f"got {row['score']:g} for {row['algorithm']} on {row['dataset']}; correct it, or "
            "divide all scores"
        )
    return reading


def _check_sizes(values: pd.DataFrame, where: str) -> None:
    """Raise ValueError if the largest |score| is above `_LARGEST`, or at most 1 / `_LARGEST`.

    Without scores, or if all are 0 or NaN, nothing is raised. values: frame with the columns
    algorithm, dataset and value. where: start of the error message.
    """
    sizes = values["value"].astype(float).abs()
    largest = sizes.max()
    if not len(sizes) or np.isnan(largest) or not largest:
        return
    if not 1 / _LARGEST < largest <= _LARGEST:
        row = values.iloc[int(np.nanargmax(sizes))]
        raise ValueError(
            f"{where}: the largest score must be between {1 / _LARGEST:g} and {_LARGEST:g} in "
            f"size, because the tests sum squares, got {row['value']:g} for {row['algorithm']} on "
            f"{row['dataset']}; correct it, or scale all scores"
        )
