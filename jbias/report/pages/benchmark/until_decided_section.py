"""Report section on comparisons that stay valid if the scores are looked at after every seed.

A comparison is two algorithms with one metric on one data set. See `jbias.stats.sequential`.
"""

import dataclasses
import itertools
import math
import pathlib
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib import lines, patches

from jbias.deciding import seed_scores
from jbias.report import document, plots, tables, workdirs
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import (
    benchmark_scores,
    few_seeds,
    recorded_commands,
)
from jbias.stats import sequential, sequential_batch

_MAX_PANELS = 12  # Comparisons in the figure.
_MAX_FORECASTS = 12  # Comparisons with a forecast, which takes 10 to 30 ms.
_FORECAST_DRAWS = 100
_DECISION_DRAWS = 40
_MAX_SCORES = 30_000  # Pairs of scores of all comparisons: more take seconds.
_MAX_ROWS = 100  # Comparisons in the table on the page; its files have all.
_MAX_NAMED = 4  # Decisions in the sentences; the table has all.
_DEFAULT_MAX_SEEDS = 30  # Of `jbias train --until-decided`.
# Metrics of runs from 0 to 1, beside those with names that end with "accuracy".
_SHARES = (
    "shape_bias",
    "fraction_neither",
    "accuracy_shape",
    "accuracy_texture",
    "mrr_shape",
    "mrr_texture",
    "mrr_relative",
)
_LABEL_WIDTH = 38  # Characters of a line above a panel.


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Scores of two algorithms with one metric on one data set, one pair per shared seed.

    a, b: scores of `first` and `second`, in ascending order of the seeds. left_out: number of
    shared seeds without a score of both, such as diverged seeds. level: alpha divided by the number
    of comparisons of this metric and data set. points, bounds, quantity: see `sequential.compare`.
    has_gaps: True if a seed that one of the two algorithms lacks has a smaller number than the last
    pair, so that training it later would change the order of the pairs.
    """

    metric: str
    dataset: str
    first: str
    second: str
    a: Float[np.ndarray, "n"]
    b: Float[np.ndarray, "n"]
    left_out: int
    level: float
    points: float | None
    bounds: tuple[float, float]
    unit: benchmark_scores.Unit
    quantity: str = "mean"
    has_gaps: bool = False

    @property
    def subject(self) -> str:
        """The metric and data set as text, such as "shape bias on cue_conflict"."""
        return f"{self.metric.replace('_', ' ')} on {self.dataset}"


class _CannotCompare(Exception):
    """Raised with the reason why the section has no comparisons, a phrase without a full stop."""


def blocks(study: benchmark_scores.BenchmarkScores) -> document.Blocks:
    """Yield sentences, the table, the figure and the commands; only the reason if impossible."""
    try:
        comparisons = list(find_comparisons(study))
    except _CannotCompare as error:
        yield document.Text(f"Not known: {error}.")
        return
    if not comparisons:  # All are recorded, and shown by `recorded_section`.
        return
    results = frame(study, comparisons)
    yield from map(document.Text, _sentences(study, comparisons, results))
    yield _table(study, comparisons, results)
    yield _figure(study, comparisons, results)
    commands = _commands_text(results)
    if commands:
        yield document.Folded("Commands that add seeds until it is decided", commands)


def find_comparisons(
    study: benchmark_scores.BenchmarkScores,
) -> Iterator[Comparison]:
    """Yield the comparisons of a study by metric and data set; shape bias first.

    Each algorithm is compared with the reference, or each pair of algorithms without a reference.
    Comparisons without a shared seed are left out, but count for the level. Data sets that may not
    be compared are left out, and so are comparisons in `study.recorded`. Raises _CannotCompare with the reason if nothing can be compared.
    """
    if study.is_of_means:
        raise _CannotCompare(benchmark_scores.MEANS_ALONE)
    names = study.algorithms
    reference = study.options.reference
    if reference in names:
        pairs = [(name, reference) for name in names if name != reference]
    else:
        pairs = [*itertools.combinations(names, 2)]
    if not pairs:
        raise _CannotCompare("there is a single algorithm")
    metrics = [
        (metric, values, unit, bounds)
        for metric, values, unit in few_seeds.metrics(study)
        if (
            bounds := bounds_of(
                metric,
                values["value"],
                is_runs=study.is_runs,
                unit=study.options.unit,
            )
        )
    ]
    if not metrics:
        raise _CannotCompare(
            f"the scores ({study.options.metric.replace('_', ' ')}) have no known smallest and "
            "largest value; comparisons that are valid after every seed need scores from 0 to 1, "
            "or from 0 to 100 %"
        )
    most_scores = sum(
        len(pairs) * len(values) / len(names) for _, values, *_ in metrics
    )
    if most_scores > _MAX_SCORES:
        raise _CannotCompare(
            f"{len(pairs):,} pairs of algorithms on each data set are too many for this page; "
            "choose fewer with --reference, --algorithms or --datasets"
        )
    comparisons = [
        comparison
        for metric, values, unit, bounds in metrics
        for comparison in _of_metric(study, metric, values, unit, bounds, pairs=pairs)
    ]
    if max((len(comparison.a) for comparison in comparisons), default=0) < 2:
        least = sequential.least_pairs(study.options.alpha / len(pairs))
        raise _CannotCompare(
            f"no two algorithms have scores of two {study.repeats} in common; a decision needs "
            f"at least {least} {study.repeats} of both"
            f"{_unfinished_names(study)}"
        )
    for comparison in comparisons:
        names = {comparison.first, comparison.second}
        if not any(
            item.concerns(comparison.metric, comparison.dataset, names)
            for item in study.recorded
        ):
            yield comparison


def bounds_of(
    metric: str, scores: pd.Series, *, is_runs: bool, unit: str = ""
) -> tuple[float, float] | None:
    """Return the smallest and the largest possible score; None if they are not known.

    Scores of a file are taken as shares if all are from 0 to 1, and as percentages if all are from
    0 to 100; the option --unit decides before. is_runs: True for a metric that runs recorded, whose name decides.
    """
    least, largest = scores.min(), scores.max()
    if is_runs and not (metric.endswith("accuracy") or metric in _SHARES):
        return None
    if least >= 0 and largest <= 1 and (is_runs or unit != "percent"):
        return 0.0, 1.0
    if not is_runs and least >= 0 and largest <= 100:
        return 0.0, 100.0
    return None


@dataclasses.dataclass(frozen=True, eq=False)
class _Cube:
    """Scores by data set, algorithm and seed, NaN if missing; seeds are in ascending order.

    is_known: True for seeds that were trained, also for seeds without a score.
    """

    datasets: Sequence[str]
    algorithms: Sequence[str]
    seeds: Sequence[str]
    scores: Float[np.ndarray, "datasets algorithms seeds"]
    is_known: Bool[np.ndarray, "datasets algorithms seeds"]


def _of_metric(
    study: benchmark_scores.BenchmarkScores,
    metric: str,
    values: pd.DataFrame,
    unit: benchmark_scores.Unit,
    bounds: tuple[float, float],
    *,
    pairs: Sequence[tuple[str, str]],
) -> Iterator[Comparison]:
    """Yield the comparisons with one metric, by data set and then in the order of `pairs`."""
    points = study.options.points if unit.name == study.unit.name else None
    if points is not None:
        # From the page's unit to % of the range.
        points *= 100 / (unit.scale * (bounds[1] - bounds[0]))
        points = points if points < 100 else None
    cube = _cube(study, values)
    places = {name: i for i, name in enumerate(cube.algorithms)}
    for i, dataset in enumerate(cube.datasets):
        has_score = ~np.isnan(cube.scores[i])
        for first, second in pairs:
            j, k = places[first], places[second]
            is_shared = has_score[j] & has_score[k]
            count = int(is_shared.sum())
            if count:
                is_known = cube.is_known[i, j] & cube.is_known[i, k]
                yield Comparison(
                    metric=metric,
                    dataset=dataset,
                    first=first,
                    second=second,
                    a=cube.scores[i, j, is_shared],
                    b=cube.scores[i, k, is_shared],
                    left_out=int(is_known.sum()) - count,
                    level=study.options.alpha / len(pairs),
                    points=points,
                    bounds=bounds,
                    unit=unit,
                    has_gaps=study.is_runs and _has_gaps(cube, i, j, k),
                )


def _has_gaps(cube: _Cube, i: int, j: int, k: int) -> bool:
    """Return True if numbers between the first and the last pair of seeds are missing.

    The first pair should have the smallest seed of either algorithm. i: place of the data set. j,
    k: places of the algorithms.
    """
    is_known = cube.is_known[i, [j, k]]
    if not all(seed.isdecimal() for seed in cube.seeds):
        return False
    numbers = np.array([*map(int, cube.seeds)])
    shared = numbers[is_known.all(axis=0)]
    return bool(
        np.ptp(shared) >= len(shared)
        or shared.min() > numbers[is_known.any(axis=0)].min()
    )


def _cube(study: benchmark_scores.BenchmarkScores, values: pd.DataFrame) -> _Cube:
    """Return the scores of one metric by data set, algorithm and seed.

    Seeds are the numbers after the last colon of the column `seed`. If an algorithm then has two
    scores of a seed, the whole texts are used. Data sets in `study.unfit` are left out, and with
    --strict those that an algorithm trained on. Seeds of runs that are not finished are left out.
    """
    excluded = {name for name, _ in study.unfit}
    if study.options.strict:
        excluded |= {dataset for _, dataset in study.trained}
    values = values.astype({"algorithm": str, "dataset": str, "seed": str})
    values = values[~values["dataset"].isin(excluded)]
    values = values[values["algorithm"].isin(study.algorithms)]
    by_number = values.assign(seed=values["seed"].str.rpartition(":")[2])
    is_late = _is_unfinished(study, by_number)
    values, by_number = values[~is_late], by_number[~is_late]
    is_ambiguous = by_number.duplicated(["algorithm", "dataset", "seed"]).any()
    values = values if is_ambiguous else by_number
    diverged = [] if is_ambiguous else _diverged_seeds(study)
    seeds = {*values["seed"], *(seed for _, seed in diverged)}
    seeds = sorted(seeds, key=_natural_order)
    datasets = list(dict.fromkeys(values["dataset"]))
    axes = (datasets, study.algorithms, seeds)
    columns = (values["dataset"], values["algorithm"], values["seed"])
    index = tuple(
        pd.Index(names).get_indexer(column)
        for names, column in zip(axes, columns, strict=True)
    )
    scores = np.full([*map(len, axes)], np.nan)
    scores[index] = values["value"].to_numpy(float)
    is_known = np.zeros(scores.shape, bool)
    is_known[index] = True
    for algorithm, seed in diverged:
        if algorithm in study.algorithms:
            is_known[:, study.algorithms.index(algorithm), seeds.index(seed)] = True
    return _Cube(datasets, study.algorithms, seeds, scores, is_known)


def _is_unfinished(
    study: benchmark_scores.BenchmarkScores, values: pd.DataFrame
) -> Bool[np.ndarray, "n"]:
    """Return True for scores of runs that are not finished: the selected evaluation may change.

    values: with numbers of seeds as text.
    """
    late = {(run.label, str(seed)) for run in _unfinished(study) for seed in run.seeds}
    keys = zip(values["algorithm"], values["seed"], strict=True)
    return np.array([key in late for key in keys], bool)


def _unfinished(study: benchmark_scores.BenchmarkScores) -> list[workdirs.Run]:
    """Return the runs that are not finished."""
    return [
        run
        for run in study.runs
        if not seed_scores.is_finished(pathlib.Path(run.workdir))
    ]


def _unfinished_names(study: benchmark_scores.BenchmarkScores) -> str:
    """Return a remark with the names of the runs that are not finished; "" for none."""
    names = [run.name for run in _unfinished(study)]
    return f"; runs that are not finished: {tables.few(names)}" if names else ""


def _diverged_seeds(study: benchmark_scores.BenchmarkScores) -> list[tuple[str, str]]:
    """Return (algorithm, seed) of the diverged seeds of runs."""
    if study.diverged is None:
        return []
    labels = {(run.algorithm, run.variant, run.name): run.label for run in study.runs}
    return [
        (labels.get((row.algorithm, row.variant, row.run), ""), str(row.seed))
        for row in study.diverged.itertuples()
    ]


def _natural_order(name: str) -> list[str | int]:
    """Return a key that sorts texts by the numbers in them: "run 2" is before "run 10"."""
    return [
        int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))
    ]


def frame(
    study: benchmark_scores.BenchmarkScores, comparisons: Sequence[Comparison]
) -> pd.DataFrame:
    """Return one row per comparison, in the order of `comparisons`.

    Columns: metric, dataset, first, second, level, pairs, left_out (see `Comparison`), difference
    (first minus second), low and high (latest interval; all three in the page's unit), evalue
    (latest, against equal means), decision (the algorithm with the larger mean, "equivalent" or
    None), decided_after (number of pairs), further_seeds (of a forecast; inf for more than 500, NaN
    if decided or not computed), more_than_500_seeds (True for inf), probable_decision (the most frequent
    decision of simulated continuations, as `decision`), command (or None) and missing (see
    `sequential_batch.BatchResult`).
    """
    rows: list[dict] = [{}] * len(comparisons)
    for group in _groups(comparisons).values():
        chosen = [comparisons[i] for i in group]
        result = sequential_batch.compare_batch(
            np.stack([comparison.a for comparison in chosen]),
            np.stack([comparison.b for comparison in chosen]),
            alpha=chosen[0].level,
            points=chosen[0].points,
            bounds=chosen[0].bounds,
        )
        for i, place in enumerate(group):
            rows[place] = _row(chosen[i], result, i)
    data = pd.DataFrame(rows)
    is_open = data["decision"].isna() & (data["pairs"] > 1)
    closest = data.index[is_open][
        np.argsort(data.loc[is_open, "missing"], kind="stable")[:_MAX_FORECASTS]
    ]
    with analysis_lib.worker_threads() as pool:
        forecasts = [*pool.map(_further_seeds, (comparisons[i] for i in closest))]
    data["further_seeds"] = pd.Series(forecasts, closest, float)
    # JSON has no infinity.
    data["more_than_500_seeds"] = data["further_seeds"].map(np.isinf)
    data["probable_decision"] = None
    for i, number in zip(closest, forecasts, strict=True):
        if math.isfinite(number):
            data.loc[i, "probable_decision"] = _probable_decision(
                comparisons[i], int(number)
            )
    runs_by_label: dict[str, list[workdirs.Run]] = {}
    for run in study.runs:
        runs_by_label.setdefault(run.label, []).append(run)
    data["command"] = None
    for i, number in zip(closest, forecasts, strict=True):
        is_of_page = comparisons[i].metric == study.options.metric
        if math.isfinite(number) and is_of_page:
            data.loc[i, "command"] = command(
                study, comparisons[i], runs_by_label, further_seeds=int(number)
            )
    return data


def _groups(comparisons: Sequence[Comparison]) -> dict[tuple, list[int]]:
    """Return the places of the comparisons that can be computed together, by their settings."""
    groups: dict[tuple, list[int]] = {}
    for i, comparison in enumerate(comparisons):
        key = (
            len(comparison.a),
            comparison.level,
            comparison.points,
            comparison.bounds,
        )
        groups.setdefault(key, []).append(i)
    return groups


def _row(
    comparison: Comparison, result: sequential_batch.BatchResult, i: int
) -> dict[str, object]:
    """Return the columns of `frame` but those of the forecast. i: row of the comparison in `result`."""
    scale = comparison.unit.scale
    winners = {"a": comparison.first, "b": comparison.second}
    decision = result.decision[i]
    return {
        "metric": comparison.metric,
        "dataset": comparison.dataset,
        "first": comparison.first,
        "second": comparison.second,
        "level": comparison.level,
        "pairs": len(comparison.a),
        "left_out": comparison.left_out,
        "difference": scale * result.difference[i],
        "low": scale * result.lower[i],
        "high": scale * result.upper[i],
        "evalue": result.evalue[i],
        "decision": winners.get(decision, decision),
        "decided_after": result.stopped_at[i],
        "missing": result.missing[i],
    }


def _further_seeds(comparison: Comparison) -> float:
    """Return the number of further seeds that decide with a probability of 80 %, or inf."""
    return sequential.forecast(
        comparison.a,
        comparison.b,
        alpha=comparison.level,
        points=comparison.points,
        bounds=comparison.bounds,
        draws=_FORECAST_DRAWS,
    ).pairs


def _probable_decision(comparison: Comparison, further_seeds: int) -> str | None:
    """Return the most frequent decision after further seeds, drawn from the pairs so far."""
    winner = comparison.first
    if comparison.a.mean() < comparison.b.mean():
        winner = comparison.second
    if comparison.points is None:
        return winner
    count = len(comparison.a)
    rng = np.random.default_rng(0)
    drawn = rng.integers(count, size=(_DECISION_DRAWS, further_seeds))
    pairs = np.concatenate([np.tile(np.arange(count), (len(drawn), 1)), drawn], axis=1)
    result = sequential_batch.compare_batch(
        comparison.a[pairs],
        comparison.b[pairs],
        alpha=comparison.level,
        points=comparison.points,
        bounds=comparison.bounds,
    )
    decisions = [*filter(None, result.decision)]
    if not decisions:
        return None
    name = max(sorted({*decisions}), key=decisions.count)
    return {"a": comparison.first, "b": comparison.second}.get(name, name)


def command(
    study: benchmark_scores.BenchmarkScores,
    comparison: Comparison,
    runs_by_label: Mapping[str, Sequence[workdirs.Run]],
    *,
    further_seeds: int,
) -> str | None:
    """Return the command that trains seeds of the first algorithm until the comparison is decided.

    The command has a folder of its own, because a folder has a single comparison. None if the
    command that started its run is not recorded, for a branch of a run, for the
    selection "oracle", and if no path or glob names exactly the runs of the second algorithm.
    runs_by_label: runs of each algorithm. further_seeds: number of seeds of a forecast.
    """
    runs = runs_by_label.get(comparison.first, [])
    reference_runs = runs_by_label.get(comparison.second, [])
    if any(
        pathlib.Path(run.workdir).parent.name == "vary"
        for run in (*runs, *reference_runs)
    ):
        return None
    config = recorded_commands.config_flags(
        runs[0].provenance.get("command") if runs else None
    )
    reference = recorded_commands.path_pattern([run.workdir for run in reference_runs])
    selection = _selection(study)
    if not config or reference is None or selection is None:
        return None
    flags = [
        *config,
        f"--until-decided={reference}",
        f"--metric={comparison.metric}",
        f"--dataset={comparison.dataset}",
    ]
    if selection != "best_validation":
        flags.append(f"--selection={selection}")
    if comparison.points is not None:
        flags.append(f"--points={comparison.points:g}")
    if comparison.level != 0.05:
        flags.append(f"--alpha={comparison.level:.6g}")
    num_seeds = len(comparison.a) + comparison.left_out + further_seeds
    if num_seeds > _DEFAULT_MAX_SEEDS:
        flags.append(f"--max-seeds={math.ceil(num_seeds / 10) * 10}")
    subject = f"{comparison.metric}-{comparison.dataset}"
    folder = f"{comparison.first}-against-{comparison.second}-{subject}".lower()
    flags.append(f"--workdir=runs/{re.sub(r'[^a-z0-9_.=+-]+', '-', folder)}")
    return " ".join(["jbias train", *map(shlex.quote, flags)])


def _selection(study: benchmark_scores.BenchmarkScores) -> str | None:
    """Return the value of --selection of `jbias train`; None if it has no such rule."""
    options = study.options
    values = {
        "best_validation": "best_validation",
        "worst_class": "worst_class",
        "last_n": f"last_n:{options.last}",
        "at_epoch": f"at_epoch:{options.epoch}",
        "best_on": f"best_on:{options.best_on}",
    }
    return values.get(options.selection)


def _commands_text(results: pd.DataFrame) -> str:
    """Return the commands with a comment above each, the fewest further seeds first; "" for none."""
    rows = results[results["command"].notna()]
    rows = rows.sort_values("further_seeds", kind="stable")
    entries = [
        f"# {row.first} and {row.second}, {row.metric} on {row.dataset}: "
        f"about {tables.count(int(row.further_seeds), 'further seed')}"
        f"{_probably(row.probable_decision)}\n{row.command}"
        for row in rows.itertuples()
    ]
    if not entries:
        return ""
    intro = (
        "# Each command trains seeds of the first algorithm anew, in a folder of its own, with the\n"
        "# trained seeds of the second, and stops when the comparison is decided. Choose one metric and\n"
        "# data set before the scores are seen: among 10 metrics, one was decided in 27 % of simulated\n"
        "# studies of equal methods, not in 5 %."
    )
    return "\n\n".join([intro, *entries])


def _probably(decision: str | None) -> str:
    """Return a remark on the probable decision, such as ", probably: SagNet is higher"."""
    if decision is None:
        return ""
    words = decision if decision == "equivalent" else f"{decision} is higher"
    return f", probably: {words}"


def _sentences(
    study: benchmark_scores.BenchmarkScores,
    comparisons: Sequence[Comparison],
    results: pd.DataFrame,
) -> Iterator[str]:
    """Yield the sentences on decisions, on the seeds that are needed, and on the conditions."""
    repeats = study.repeats
    alpha = study.options.alpha
    decided = results[results["decision"].notna()]
    names = [_decision_in_words(row) for row in decided.head(_MAX_NAMED).itertuples()]
    num_hidden = len(decided) - len(names)
    if num_hidden:
        names.append(f"{num_hidden:,} more in the table")
    listed = f": {'; '.join(names)}" if names else ""
    verb = "is" if len(results) == 1 else "are"
    yield (
        f"{len(decided):,} of {tables.count(len(results), 'comparison')} {verb} decided{listed}. "
        f"A decision stays valid if scores are looked at after every {repeats.removesuffix('s')} "
        f"and {repeats} are added until a decision is reached: for each metric and data set, the "
        f"probability of any false decision at any number of {repeats} is at most {alpha:g}."
    )
    if len(decided) < len(results):
        yield _outlook(study, comparisons, results)
    yield from _conditions(study, comparisons, decided)


def _decision_in_words(row: tuple) -> str:
    """Return a decision, such as "SagNet is higher than ERM by shape bias on cue_conflict"."""
    where = f"{row.metric.replace('_', ' ')} on {row.dataset}"
    pairs = f"after {row.decided_after:.0f}"
    if row.decision == "equivalent":
        return f"{row.first} and {row.second} are equivalent in {where} ({pairs})"
    other = row.second if row.decision == row.first else row.first
    return f"{row.decision} is higher than {other} in {where} ({pairs})"


def _outlook(
    study: benchmark_scores.BenchmarkScores,
    comparisons: Sequence[Comparison],
    results: pd.DataFrame,
) -> str:
    """Return the sentence on further seeds that would probably decide an open comparison."""
    repeats = study.repeats
    reachable = results[np.isfinite(results["further_seeds"])]
    baseline = ""
    if study.options.reference is None and len(study.algorithms) > 2:
        baseline = (
            " Fewer comparisons need fewer pairs: --reference=NAME compares only with a baseline "
            "that was chosen beforehand."
        )
    if len(reachable):
        row = reachable.loc[reachable["further_seeds"].idxmin()]
        number = tables.count(int(row["further_seeds"]), repeats.removesuffix("s"))
        where = f"{row['metric'].replace('_', ' ')} on {row['dataset']}"
        return (
            f"Open: {row['first']} and {row['second']} in {where} would be decided by about "
            f"{number.replace(' ', ' further ', 1)} of both with a probability of 80 %"
            f"{_probably(row['probable_decision'])}; the "
            "smallest number in the table. Choose metric and data set before their scores are seen, "
            f"not by this number.{baseline}"
        )
    least = sequential.least_pairs(comparisons[0].level)
    most = int(results["pairs"].max())
    least_needed = ""
    if most < least:
        least_needed = f" At this level no scores can lead to a decision with fewer than {least} pairs."
    advice = ""
    if comparisons[0].points is None:
        advice = (
            " With --points=D, the difference that matters to you, a comparison can also end with "
            "“equivalent”."
        )
    return (
        "Open: even those closest to a decision would probably need more than 500 further "
        f"{repeats}.{least_needed}{advice}{baseline}"
    )


def _conditions(
    study: benchmark_scores.BenchmarkScores,
    comparisons: Sequence[Comparison],
    decided: pd.DataFrame,
) -> Iterator[str]:
    """Yield sentences on the conditions under which decisions are valid."""
    repeats = study.repeats
    bounds = ""
    if not study.is_runs:
        low, high = comparisons[0].bounds
        bounds = f", and no score can be outside of {low:g} to {high:g}"
    order = ""
    if study.is_runs:
        order = (
            ", and if only seeds with larger numbers are added later, because pairs are in the "
            "order of the seeds"
        )
    yield (
        f"This is valid if {repeats}, metric, data set and comparisons were not chosen by the "
        f"scores{bounds}{order}."
    )
    with_gaps = {
        name
        for comparison in comparisons
        if comparison.has_gaps
        for name in (comparison.first, comparison.second)
    }
    if with_gaps:
        yield (
            f"The seeds that two of {tables.few(sorted(with_gaps))} share do not start with the "
            "smallest seed, or have gaps: if missing seeds are trained later, decisions can change."
        )
    if _unfinished(study):
        names = [run.name for run in _unfinished(study)]
        yield f"Runs that are not finished are left out: {tables.few(names)}."
    num_lacking = sum(comparison.left_out > 0 for comparison in comparisons)
    if num_lacking:
        verb = "lacks" if num_lacking == 1 else "lack"
        yield (
            f"{tables.count(num_lacking, 'comparison')} {verb} {repeats} that diverged or have no score: "
            f"the statements are about {repeats} that have one."
        )
    at_chance = {
        (cell["metric"], cell["algorithm"], cell["dataset"]) for cell in study.at_chance
    }
    doubtful = {
        name
        for row in decided.itertuples()
        for name in (row.first, row.second)
        if row.metric == "shape_bias"
        and (benchmark_scores.CUES, name, row.dataset) in at_chance
    }
    if doubtful:
        yield (
            f"Decisions of {tables.few(sorted(doubtful))} are at chance on cue conflicts: a "
            "decided difference of their shape bias says nothing about the methods."
        )


def _table(
    study: benchmark_scores.BenchmarkScores,
    comparisons: Sequence[Comparison],
    results: pd.DataFrame,
) -> tables.Table | None:
    """Return the table of comparisons, one row each: decided ones first, then the closest to it.

    Files have the columns of `frame` but "missing", in the order of `results`.
    """
    repeats = study.repeats
    show = tables.interval(tables.digits(study.unit.digits, plus=True))
    columns = tables.columns(
        "metric dataset first second pairs:d left_out:d difference evalue:.3 decision "
        "decided_after:d further_seeds",
        evalue="e-value",
        left_out="pairs left out",
        decision="higher",
        decided_after="decided after",
        further_seeds=f"further {repeats}",
    )
    columns["difference"] = tables.Column("difference", show, ("low", "high"))
    columns["evalue"] = tables.Column("e-value", "{:.3g}".format)
    columns["further_seeds"] = tables.Column(
        f"further {repeats}",
        lambda number: "> 500" if math.isinf(number) else f"{number:.0f}",
    )
    level = comparisons[0].level
    count = round(study.options.alpha / level)
    shared = ""
    if count > 1:
        shared = (
            f", shared by the {count} comparisons of a metric and data set (level {level:.3g} "
            "each)"
        )
    equivalent = ""
    if any(comparison.points is not None for comparison in comparisons):
        equivalent = f"; equivalent: the difference is smaller than {study.options.points:g} (--points)"
    unit = study.unit.of_differences
    caption = (
        f"Difference: mean of the first minus mean of the second algorithm over pairs with equal "
        f"{repeats}, in {unit}, with the interval that is valid after every pair "
        f"(α = {study.options.alpha:g}{shared}; scores of any shape, Waudby-Smith and Ramdas 2024). "
        "e-value: evidence against equal means; its average is at most 1 if the means are equal. "
        f"Higher: the algorithm with the higher mean, if decided{equivalent}. Decided after: pairs "
        f"in ascending order of the {repeats}; later ones do not change a decision. Further "
        f"{repeats}: decide with a probability of 80 % if new pairs are like these, for the "
        f"{_MAX_FORECASTS} open comparisons closest to a decision; rough with fewer than 10 pairs."
    )
    shown = results.assign(
        metric=results["metric"].str.replace("_", " "),
        left_out=results["left_out"].where(results["left_out"] > 0),
    ).sort_values(["decided_after", "missing"], kind="stable")
    return tables.from_rows(
        "until_decided",
        caption,
        shown,
        columns,
        most=_MAX_ROWS,
        data=results.drop(columns=["missing"] + ["command"] * (not study.is_runs)),
        in_results=True,
    )


def _figure(
    study: benchmark_scores.BenchmarkScores,
    comparisons: Sequence[Comparison],
    results: pd.DataFrame,
) -> document.Figure:
    """Return the figure of confidence sequences, a panel per comparison, in the table's order.

    Of more than `_MAX_PANELS` comparisons, those whose largest e-value is closest to a decision are
    drawn.
    """
    with np.errstate(divide="ignore"):
        beyond = np.abs(np.log(results["evalue"] * results["level"]))
    distance = beyond.where(results["decision"].notna(), results["missing"])
    distance = distance.where(results["decision"] != "equivalent", 0.0)
    places = np.sort(np.argsort(distance, kind="stable")[:_MAX_PANELS])
    hidden = ""
    if len(results) > _MAX_PANELS:
        hidden = (
            f" The {_MAX_PANELS} comparisons closest to a decision, on either side; the table has "
            "all."
        )
    has_margins = any(comparisons[i].points is not None for i in places)
    margins = ", or lies between the margins" if has_margins else ""
    caption = (
        f"Difference of the two algorithms after each pair of {study.repeats}, in "
        f"{study.unit.of_differences}: the estimate, and the interval that is valid at every look. "
        f"A comparison is decided when the interval no longer contains 0{margins}.{hidden}"
    )

    def draw_closest() -> plots.Figure:
        return draw([comparisons[i] for i in places], study)

    return document.Figure("until_decided", caption, draw_closest)


def draw(
    comparisons: Sequence[Comparison], study: benchmark_scores.BenchmarkScores
) -> plots.Figure:
    """Return the figure of the confidence sequences of some comparisons."""
    colour, mark = plots.COLOURS[0], plots.COLOURS[1]
    legend = {
        "estimate": lines.Line2D([], [], color=colour, lw=1.5),
        "interval, valid at every look": patches.Patch(color=colour, alpha=0.18, lw=0),
    }
    margin_look = {"color": plots.INK, "linestyle": (0, (4, 3)), "linewidth": 0.8}
    if any(comparison.points is not None for comparison in comparisons):
        legend["margin (--points)"] = lines.Line2D([], [], **margin_look)
    decision_look = {"color": mark, "linestyle": "", "marker": "D", "markersize": 5}
    results = [
        sequential.compare(
            comparison.a,
            comparison.b,
            alpha=comparison.level,
            points=comparison.points,
            quantity=comparison.quantity,
            bounds=comparison.bounds,
        )
        for comparison in comparisons
    ]
    if any(result.decision for result in results):
        legend["decided"] = lines.Line2D([], [], **decision_look)
    fig, cells = plots.grid(len(comparisons), tuple(legend), sharey=True)
    for axes, comparison, result in zip(cells.flat, comparisons, results, strict=False):
        scale = comparison.unit.scale
        looks = np.arange(1, result.looks + 1)
        sequence = result.difference
        low, high = scale * sequence.lower, scale * sequence.upper
        axes.fill_between(looks, low, high, color=colour, alpha=0.18, lw=0)
        axes.plot(looks, scale * sequence.estimate, color=colour, lw=1.5)
        axes.axhline(0, color=plots.INK, linewidth=0.8)
        if comparison.points is not None:
            is_share = comparison.quantity == "wins" or comparison.bounds[1] <= 1
            size = comparison.points * scale / (100 if is_share else 1)
            for margin in (-size, size):
                axes.axhline(margin, **margin_look)
        if result.decision:
            i = result.stopped_at - 1
            axes.axvline(result.stopped_at, color=mark, linewidth=0.8)
            axes.plot(result.stopped_at, scale * sequence.estimate[i], **decision_look)
        title = [f"{comparison.first} − {comparison.second}", comparison.subject]
        title = [part for line in title for part in textwrap.wrap(line, _LABEL_WIDTH)]
        axes.set_title("\n".join(plots.plain(title)), loc="left", **plots.ink())
        axes.set_xlim(0, max(result.looks, 2) * 1.02)
        axes.xaxis.get_major_locator().set_params(integer=True)
        words = [
            f"{look} pairs: {estimate:.4g} [{start:.4g}, {end:.4g}]"
            for look, estimate, start, end in zip(
                looks, scale * sequence.estimate, low, high, strict=True
            )
        ]
        plots.hover_points(axes, looks, scale * sequence.estimate, words)
    unit = " in % points" if study.unit.name else ""
    labels = {"x": f"pairs of {study.repeats}", "y": f"difference{unit}"}
    plots.label_edges(cells, len(comparisons), **labels)
    plots.legend_above(fig, legend)
    return plots.laid_out(fig)
