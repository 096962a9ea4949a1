"""Measures planted networks on the suite of calibration and writes readings.csv.

A network's records and decisions stay in its folder, so that finished measures are not repeated.
Values from fewer images are computed from the stored decisions about all images: no network is
shown an image again. Measures of activations have no decisions, and are read from all images only.
"""

import json
import pathlib
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from jbias.calibrating import measures, rows
from jbias.evals import decision_files, networks, runner, suites
from jbias.evals.activations import inside
from jbias.measures import decisions
from jbias.planting import making, plans, rules, streams, training
from jbias.runs import results

SUBSAMPLES = (30, 60, 120)  # Images of a set.
DRAWS = 5  # Subsamples of each size.
OCCLUSION = "occlusion"
# Measures whose decisions are about unchanged images, which decision rules give.
_OF_RULES = ("accuracy", "shape_bias")
_OWN_IMAGES = ("train", "valid")


def measure(
    study: making.Study,
    planned: Sequence[plans.Plan],
    *,
    only: Sequence[str] = (),
    subsamples: Sequence[int] = SUBSAMPLES,
    draws: int = DRAWS,
) -> list[rows.Reading]:
    """Measure networks, write readings.csv, and return the readings of those measured so far.

    only: keys of calibrating.measures.MEASURES; empty: all. subsamples, draws: sizes and number of
    subsamples. Rows of other networks and measures stay. Networks without a row in networks.csv
    are left out. Ends early when study.is_due().
    ValueError for an unknown measure, and for a folder of another study.
    """
    study.claim()
    measures.check_keys("measures", only)
    keys = tuple(only) or tuple(measures.MEASURES)
    made_names = _made_names(study)
    readings: list[rows.Reading] = []
    try:
        for number, plan in enumerate(planned, start=1):
            if study.is_due():
                break
            if plan.name not in made_names:
                study.report_failure(plan, "not made, so not measured")
                continue
            study.say(f"network {number} of {len(planned)}: {plan.name}")
            failure = show(study, plan, keys)
            readings += read(
                study, plan, keys, subsamples=subsamples, draws=draws, failure=failure
            )
    finally:  # Also if a signal stops the command.
        if readings:
            making.write_rows(study.folder / "readings.csv", readings, rows.Reading)
    return readings


def _made_names(study: making.Study) -> set[str]:
    """Return the names of the networks in networks.csv."""
    path = study.folder / "networks.csv"
    if not path.exists():
        return set()
    return {row.network for row in rows.read(path, rows.PlantedNetwork)}


def show(study: making.Study, plan: plans.Plan, keys: Sequence[str]) -> str:
    """Show a network the sets of some measures; return the reasons of failures, or "".

    Finished measures are skipped, and those that are undefined for mixtures. Decision rules are
    shown unchanged images only, and only trained networks have training images of their own, for
    the measure "occlusion".
    """
    defined = [
        key
        for key in keys
        if not streams.undefined_reason(plan.family, measures.MEASURES[key].needs)
    ]
    needed = needed_measures(defined)
    common, is_rule = needed - {OCCLUSION}, rules.is_rule(plan)
    if is_rule:
        common &= {*_OF_RULES}
    try:
        batches = [(study.whole_suite, common)]
        if OCCLUSION in needed and not is_rule and training.run_of(plan):
            batches.append((own_suite(study, plan), {OCCLUSION}))
        waiting = [
            chosen
            for suite, names in batches
            if (chosen := _waiting(study, plan, suite, names)).measures
        ]
        network = making.open_network(study, plan) if waiting else None
        failures = []
        for suite in waiting:
            failures += runner.run_suite(
                network,
                suite,
                epath.Path(study.measured),
                lambda line, **_: None,
                has_all_measures=False,
            )
    except networks.NETWORK_ERRORS as error:
        failures = [networks.describe_error(error)]
    for reason in failures:
        study.report_failure(plan, reason)
    return "; ".join(failures)


def _waiting(
    study: making.Study, plan: plans.Plan, suite: suites.Suite, names: set[str]
) -> suites.Suite:
    """Return a suite with those of some measures that have no records for a set yet."""
    folder = study.measured / plan.name / "evals"
    waiting = {
        task.measure.name
        for task in suite.tasks()
        if task.measure.name in names and not (folder / f"{task.name}.jsonl").exists()
    }
    chosen = tuple(measure for measure in suite.measures if measure.name in waiting)
    return suite._replace(measures=chosen)


def needed_measures(keys: Sequence[str]) -> set[str]:
    """Return the names of the suite's measures that some measures are read from."""
    return {record.measure for key in keys for record in measures.MEASURES[key].records}


def own_suite(study: making.Study, plan: plans.Plan) -> suites.Suite:
    """Return the suite with a trained network's own training and validation images."""
    run = training.run_of(plan)
    arguments = f"dial={run.dial:g},strength={run.strength:g},noise={run.noise:g}"
    if run.shortcut:
        arguments += f",shortcut={run.shortcut}"
    if "design" in run.options:
        arguments += f",design={run.options['design']}"
    changes = [
        f"--suite.sets.{split}.{name}={tuple(run.options[name])}"
        for split in _OWN_IMAGES
        for name in ("agrees", "hidden")
        if name in run.options
    ]
    return study.suite(arguments, only=(OCCLUSION,), changes=changes)


def read(
    study: making.Study,
    plan: plans.Plan,
    keys: Sequence[str],
    *,
    subsamples: Sequence[int],
    draws: int,
    failure: str = "",
) -> list[rows.Reading]:
    """Return the readings of a network, from all images and from subsamples.

    failure: the reason why the network could not be shown, for measures without records.
    """
    folder = study.measured / plan.name
    numbers = read_numbers(folder)
    seconds = read_seconds(folder)
    tasks = {record.key for key in keys for record in measures.MEASURES[key].records}
    decided = {task: _decisions(folder, task) for task in tasks}
    is_rule = rules.is_rule(plan)
    readings = []
    for key in keys:
        measure = measures.MEASURES[key]
        value = measures.read(measure, numbers)
        is_missing = value.reason.startswith("not measured")
        needs_images = not {record.measure for record in measure.records} <= {
            *_OF_RULES
        }
        undefined = streams.undefined_reason(plan.family, measure.needs)
        if undefined:
            value = measures.Value(None, reason=undefined)
        elif is_missing and is_rule and needs_images:
            value = value._replace(reason=rules.NEEDS_IMAGES)
        elif is_missing and failure:
            value = value._replace(reason=failure)
        task_keys = {record.key for record in measure.records}
        times = [seconds.get(task) for task in task_keys]
        total = None if None in times else sum(times)
        images = max(
            (_num_images(folder, task, decided[task]) for task in task_keys), default=0
        )
        readings.append(_reading(plan, key, value, images, 0, total))
    with_value = [x.measure for x in readings if x.value is not None]
    for size in subsamples:
        for draw in range(draws):
            readings += _read_few(study, plan, with_value, decided, size, draw)
    return readings


def _reading(
    plan: plans.Plan,
    key: str,
    value: measures.Value,
    images: int,
    draw: int,
    seconds: float | None = None,
) -> rows.Reading:
    """Return a value of a measure as a row."""
    return rows.Reading(
        network=plan.name,
        measure=key,
        images=images,
        draw=draw,
        value=value.value,
        lower=value.lower,
        upper=value.upper,
        n=value.n,
        reason=value.reason,
        seconds=seconds,
    )


def read_numbers(folder: pathlib.Path) -> dict[measures.Key, list[decisions.Number]]:
    """Return the numbers in a network's folder by measure and set."""
    numbers = {}
    for path in sorted((folder / "evals").glob("*@*.jsonl")):
        name, _, dataset = path.stem.partition("@")
        # Records of all measures but accuracy have the measure's name in their condition.
        prefix = "" if name == "accuracy" else name
        numbers[name, dataset] = [
            decisions.Number(
                record.metric,
                record.value,
                record.count,
                record.n or 0,
                record.condition.removeprefix(prefix).removeprefix("/"),
            )
            for record in results.loads(path.read_text("utf-8"), where=str(path))
        ]
    return numbers


def read_seconds(folder: pathlib.Path) -> dict[measures.Key, float | None]:
    """Return the seconds of each measure and set; None for decisions shared with another."""
    seconds = {}
    for path in sorted((folder / "measures").glob("*@*.json")):
        name, _, dataset = path.stem.partition("@")
        seconds[name, dataset] = json.loads(path.read_text("utf-8"))["seconds"]
    return seconds


def _num_images(
    folder: pathlib.Path,
    task: measures.Key,
    by_condition: Mapping[str, decisions.Decisions],
) -> int:
    """Return the number of images that a measure showed of a set; 0 if it was not measured.

    by_condition: its decisions.
    """
    if by_condition:
        return max(len(decided.prediction) for decided in by_condition.values())
    path = folder / "measures" / f"{'@'.join(task)}.json"
    if not path.exists():
        return 0
    return json.loads(path.read_text("utf-8"))["images"]


def _decisions(
    folder: pathlib.Path, task: measures.Key
) -> dict[str, decisions.Decisions]:
    """Return a measure's stored decisions about a set by condition; {} without any."""
    name, dataset = task
    path = folder / "decisions" / dataset / f"{name}.parquet"
    return decision_files.read_conditions(path) if path.exists() else {}


def _read_few(
    study: making.Study,
    plan: plans.Plan,
    keys: Sequence[str],
    decided: Mapping[measures.Key, Mapping[str, decisions.Decisions]],
    size: int,
    draw: int,
) -> list[rows.Reading]:
    """Return readings from `size` random images of each set, for measures of decisions.

    keys: of measures that have a value from all images. decided: decisions about all images.
    Measures with a set of fewer images, or without decisions, are left out. The subsample of a set
    is the same for all networks and measures.
    """
    few_numbers: dict[measures.Key, Sequence[decisions.Number]] = {}
    for task in {
        record.key for key in keys for record in measures.MEASURES[key].records
    }:
        few = subsample(decided[task], task[1], size, draw)
        if few:
            few_numbers[task] = count(_suite_of(study, plan, task), task, few)
    readings = []
    for key in keys:
        measure = measures.MEASURES[key]
        if all(record.key in few_numbers for record in measure.records):
            value = measures.read(measure, few_numbers)
            readings.append(_reading(plan, key, value, size, draw))
    return readings


def _suite_of(
    study: making.Study, plan: plans.Plan, task: measures.Key
) -> suites.Suite:
    """Return the suite that has a measure's set."""
    if task[1] in _OWN_IMAGES:
        return own_suite(study, plan)
    return study.whole_suite


def subsample(
    by_condition: Mapping[str, decisions.Decisions], dataset: str, size: int, draw: int
) -> dict[str, decisions.Decisions]:
    """Return the decisions about `size` random images; {} if there are not more than these.

    The images depend on the set, the size and the draw only. Pairs of pictures (column "pair")
    are drawn as pairs.
    """
    few: dict[str, decisions.Decisions] = {}
    for condition, decided in by_condition.items():
        index = decided.columns.get("index", np.arange(len(decided.prediction)))
        if len(index) <= size:
            return {}
        unit = decided.columns.get("pair", index)
        units = np.unique(unit)
        rng = np.random.default_rng([zlib.crc32(dataset.encode()), size, draw])
        num_units = size * len(units) // len(index)
        chosen = np.isin(unit, rng.permutation(units)[:num_units])
        columns = {name: column[chosen] for name, column in decided.columns.items()}
        few[condition] = decisions.Decisions(decided.prediction[chosen], columns)
    return few


def count(
    suite: suites.Suite,
    task: measures.Key,
    by_condition: Mapping[str, decisions.Decisions],
) -> list[decisions.Number]:
    """Return the numbers of a suite's measure, given decisions by condition.

    [] for a measure of activations.
    """
    name, dataset = task
    measure = next(x for x in suite.measures if x.name == name)
    built = suite.make_probe(measure, dataset, suite.sources[dataset].classes)
    if isinstance(built, inside.Inside):
        return []
    return suites.as_stimuli(built).numbers(by_condition)
