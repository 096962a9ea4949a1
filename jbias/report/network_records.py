"""Reader of workdirs of measured networks: records, settings of measures, decisions.

Conditions of records begin with the name of the measure, such as "spectral" for its bias and
"spectral/low 0.3" for a filter; accuracy on an unchanged data set has no condition.
"""

import collections
import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from jbias import errors
from jbias.data import corruptions
from jbias.evals import decision_files
from jbias.measures import corruption_error, decisions
from jbias.report import workdirs as workdirs_lib
from jbias.runs import results, selection

Number = decisions.Number


class Measurement(NamedTuple):
    """A measure on a data set, as named in measures/<measure>@<dataset>.json."""

    measure: str
    dataset: str


# Corruptions measured on published files, each a data set of its own, such as fog-3.
PUBLISHED_FILES = Measurement(*corruption_error.FILES)
# Content of each measurement's file.
Measures = Mapping[Measurement, Mapping[str, Any]]
Cells = Mapping[tuple[str, str, str], float]  # By data set, condition and metric.

_NETWORK_KEY = ["run", "seed", "step"]  # Columns of records that identify a network.
_MAIN = ("imagenet", "test", "val")  # Data sets preferred for a network's accuracy.
# Suffixes of equal names, tried in this order.
_SUFFIXES = (
    " on {train_data}",
    " [{hash}]",
    " seed {seed}",
    " step {step}",
    " in {workdir}",
)


def read_records(workdirs: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Return (evaluations of workdirs, notes on workdirs and networks that are left out).

    The first is a frame with the columns of `results.read`, one row per record of the last stage.
    The notes are sentences.

    workdirs: paths or globs. If several networks have the same config.run apart from the path (the
    same weights, preprocessing and classes), only the network with the most records is included;
    the first network, if several have the most. Networks without a digest of their weights are not
    compared. Raises ValueError as `results.read` does, and if there are no evaluations.
    """
    records = selection.evaluations(results.read(workdirs), trained=True)
    if records.empty:
        raise ValueError(
            f"{' '.join(workdirs)}: must hold evaluations, got none; run jbias evaluate first"
        )
    sizes = records.groupby([*_NETWORK_KEY, "workdir"], observed=True).size()
    sizes_by_run: dict[str, collections.Counter] = {}
    for (*network, workdir), size in sizes.items():
        run = read_config(workdir).get("run", {})
        if "digest" in run:  # Otherwise "run" identifies a run trained by jbias.
            run = json.dumps(run | {"path": None}, sort_keys=True)
            counts = sizes_by_run.setdefault(run, collections.Counter())
            counts[tuple(network)] += size
    _, empty = results.find_workdirs(workdirs)
    notes = []
    if empty:
        notes.append(f"No measurements in {', '.join(map(str, empty))}.")
    duplicates = [
        [network for network, _ in counts.most_common()]
        for counts in sizes_by_run.values()
        if len(counts) > 1
    ]
    if duplicates:
        repeated = [network for group in duplicates for network in group[1:]]
        keys = pd.MultiIndex.from_frame(records[_NETWORK_KEY])
        records = records[~keys.isin(repeated)].reset_index(drop=True)
        names = "; ".join(
            ", ".join(_network_name(run, seed, step) for run, seed, step in group)
            for group in duplicates
        )
        notes.append(
            f"Networks with the same weights, of which the first counts: {names}."
        )
    return records, notes


def _network_name(run: str, seed: int, step: int) -> str:
    """Return the name of the run, with seed and step unless the step is 0."""
    return f"{run} seed {seed} step {step}" if step else str(run)


def read_config(workdir: str) -> dict[str, Any]:
    """Return the content of a workdir's config.json; {} without the file."""
    return workdirs_lib.read_json(pathlib.Path(workdir) / "config.json")


def read_measures(workdir: str) -> dict[Measurement, dict]:
    """Return the settings of each measurement of a workdir; {} for the workdir of a trained run.

    Settings are the entries of measures/<measure>@<set>.json, see `describe` and `_details` of
    runner.NetworkEvaluation; all have "measure", "images" and "seconds". Raises ValueError for a
    file that is damaged or of another version.
    """
    measures = {}
    for file in sorted((pathlib.Path(workdir) / "measures").glob("*.json")):
        measure, _, dataset = file.stem.partition("@")
        settings = workdirs_lib.read_json(file)
        missing = [
            key for key in ("measure", "images", "seconds") if key not in settings
        ]
        if missing:
            raise ValueError(
                f"{file}: must have {', '.join(missing)}; the file is of another version: "
                "measure the network again into another --out"
            )
        measures[Measurement(measure, dataset)] = settings
    return measures


def ended(*metrics: str) -> list[str]:
    """Return the names of each metric and of the two ends of its interval.

    For the metric "m", these are "m", "m_lower" and "m_upper".
    """
    ends = ("", "_lower", "_upper")
    return [f"{metric}{end}" for metric in metrics for end in ends]


def cells_of(records: pd.DataFrame, column: str = "value") -> Cells:
    """Return a column of a checkpoint's records by (data set, condition, metric).

    "-" in names of data sets becomes "_". column: name of the column, "value" or "n".
    """
    names = records[["dataset", "condition", "metric"]].astype(str)
    names["dataset"] = names["dataset"].str.replace("-", "_")
    keys = names.itertuples(index=False, name=None)
    return dict(zip(keys, records[column].astype(float), strict=True))


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredNetwork:
    """A measured network: one workdir of `jbias evaluate --suite`."""

    name: str  # Name on the page.
    workdir: pathlib.Path
    records: pd.DataFrame
    measures: Measures  # Settings of each measurement.
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @functools.cached_property
    def numbers(self) -> Mapping[Measurement, list[Number]]:
        """Results by measurement, with conditions that do not begin with the name of the measure.

        Accuracy on an unchanged data set belongs to the measure "accuracy".
        """
        numbers: dict[Measurement, list] = {key: [] for key in self.measures}
        columns = ["metric", "value", "count", "n", "condition", "dataset"]
        rows = self.records[columns].itertuples(index=False, name=None)
        for metric, value, count, n, condition, dataset in rows:
            measure, _, measure_condition = condition.partition("/")
            if (measure, dataset) not in numbers:
                # Conditions of plain accuracy do not begin with a measure's name.
                measure = "accuracy"
                measure_condition = condition
            number = Number(
                metric,
                None if pd.isna(value) else value,
                count=None if pd.isna(count) else count,
                n=int(n or 0),
                condition=measure_condition,
            )
            numbers.setdefault(Measurement(measure, dataset), []).append(number)
        return numbers

    @property
    def factors(self) -> dict[str, str]:
        """Return {"model": ..., "prompt": ...} of a network with a prompt; {} for other networks.

        The model is the network's name if config.json names none.
        """
        factors = self.config.get("factors", {})
        if not factors.get("prompt"):
            return {}
        return {
            "model": factors.get("model") or self.name,
            "prompt": factors["prompt"],
        }

    def cells(self, column: str = "value") -> Cells:
        """Return a column of the network's records by (data set, condition, metric).

        See the function `cells_of` of this module.
        """
        return cells_of(self.records, column)

    def measurements_of(self, probe: str) -> list[Measurement]:
        """Return the measurements of a probe that have results."""
        return [
            measurement
            for measurement, settings in self.measures.items()
            if settings["measure"]["probe"] == probe and self.numbers[measurement]
        ]

    def number(
        self, measurement: Measurement, metric: str, condition: str = ""
    ) -> Number | None:
        """Return the result of a metric under a condition; None if missing."""
        for number in self.numbers.get(measurement, ()):
            if number.metric == metric and number.condition == condition:
                return number
        return None

    def values(
        self, measurement: Measurement, metrics: Iterable[str], condition: str = ""
    ) -> dict[str, float | None]:
        """Return the values of metrics under a condition, by metric; None for a missing result."""
        numbers = {
            metric: self.number(measurement, metric, condition) for metric in metrics
        }
        return {metric: number and number.value for metric, number in numbers.items()}

    def interval(
        self, measurement: Measurement, metric: str, condition: str = ""
    ) -> list[float | None]:
        """Return [value, low, high] of a metric and its interval; None for each missing number."""
        return [*self.values(measurement, ended(metric), condition).values()]

    def rule(self, measurement: Measurement, rule: str) -> str | None:
        """Return the name of the rule that turned a network's logits into decisions.

        None if the measurement has one rule only. rule: one of class_maps.AGGREGATES; "" for the first
        rule of the measurement.
        """
        rules = self.measures[measurement]["measure"].get("aggregates", ())
        return (rule or rules[0]) if len(rules) > 1 else None

    def rules(self, measurement: Measurement) -> tuple[str, ...]:
        """Return the rules that turned logits into decisions, as in conditions: the first is ""."""
        rules = self.measures[measurement]["measure"].get("aggregates", ())
        return ("", *rules[1:])

    def read_decisions(
        self, measurement: Measurement
    ) -> dict[str, decisions.Decisions]:
        """Return the stored decisions of a measurement, by condition; {} if none were stored."""
        measure, dataset = measurement
        path = self.workdir / "decisions" / dataset / f"{measure}.parquet"
        return decision_files.read_conditions(path) if path.exists() else {}

    def classes(self, measurement: Measurement) -> tuple[str, ...]:
        """Return the class names of a measurement; () if they were not stored."""
        return tuple(self.measures[measurement].get("classes", ()))

    @property
    def main_accuracy(self) -> tuple[str, Number] | None:
        """Return (main data set, accuracy on this set); None without plain accuracy.

        The main data set is the first of "imagenet", "test" and "val" that has a result, else the
        first other data set by name.
        """
        plain = [x for x in self.measurements_of("plain") if x.measure == "accuracy"]
        plain.sort(key=lambda x: (x.dataset not in _MAIN, x.dataset))
        for measurement in plain:
            number = self.number(measurement, "accuracy")
            if number:
                return measurement.dataset, number
        return None

    @functools.cached_property
    def corruption_accuracies(
        self,
    ) -> dict[Measurement, dict[tuple[str, int], float]]:
        """Accuracy from 0 to 1 by (corruption, severity), for each measurement of corruptions.

        The key `PUBLISHED_FILES` covers data sets of one corruption each.
        """
        cells = cells_of(self.records[self.records["value"].notna()])
        measurements = [PUBLISHED_FILES, *self.measurements_of("corruptions")]
        by_key = {(x.measure, x.dataset.replace("-", "_")): x for x in measurements}
        return {
            by_key[key]: accuracies
            for key, accuracies in corruption_error.by_corruption(cells).items()
            if key in by_key
        }

    def error_summaries(
        self, measurement: Measurement
    ) -> Iterator[corruption_error.ErrorSummary]:
        """Yield a summary of errors on ImageNet-C, then on ImageNet-C-bar.

        A summary is left out if none of its corruptions was measured. measurement: a key of
        `corruption_accuracies`.
        """
        cells = self.corruption_accuracies[measurement]
        for names in (corruption_error.COMMON, (*corruptions.BAR,)):
            if any(name in names for name, _ in cells):
                yield corruption_error.summarise_errors(
                    cells,
                    names=names,
                    is_imagenet_c=self.is_imagenet_c(measurement),
                    clean_error=self._clean_error(measurement),
                )

    def is_imagenet_c(self, measurement: Measurement) -> bool:
        """Return True if the images of a measurement are comparable to ImageNet-C.

        The number of classes must be 1,000, or unknown. Published files must be of the families
        imagenet_c and imagenet_c_bar, or without a family. For other measurements, the data set
        must be of the family imagenet, the images must have 224 pixels, and the corruptions must be
        quantised.
        """
        files = self._corrupted_files() if measurement == PUBLISHED_FILES else []
        keys = [Measurement("accuracy", file) for file in files] or [measurement]
        class_counts = [len(self.classes(key)) for key in keys if key in self.measures]
        if any(count not in (0, 1000) for count in class_counts):
            return False
        if files:
            families = {self.family(dataset) for dataset in files}
            return families <= {"imagenet_c", "imagenet_c_bar", *files}
        settings = self.measures.get(measurement, {})
        options = settings.get("measure", {}).get("options", {})
        size = self.provenance.get("suite", {}).get("size", 224)
        is_usual = options.get("table") in (None, 224) and options.get("quantise", True)
        return (
            self.family(measurement.dataset) == "imagenet" and is_usual and size == 224
        )

    def _corrupted_files(self) -> list[str]:
        """Return the names of data sets with a single corruption, such as fog-3."""
        sets = [measurement.dataset for measurement in self.measurements_of("plain")]
        return [name for name in sets if corruption_error.is_single_corruption(name)]

    def _plain_accuracy(self, dataset: str) -> Number | None:
        """Return the accuracy on a data set; None if missing."""
        return self.number(Measurement("accuracy", dataset), "accuracy")

    def _clean_error(self, measurement: Measurement) -> float | None:
        """Return the error on clean images, from 0 to 1.

        None if unknown, or if the numbers of clean and of corrupted images differ. measurement: a
        key of `corruption_accuracies`.
        """
        name, severity = next(iter(self.corruption_accuracies[measurement]))
        if measurement == PUBLISHED_FILES:
            files = self._corrupted_files()
            number = self._plain_accuracy(files[0]) if files else None
            clean = self._plain_accuracy("imagenet")
        else:
            number = self.number(measurement, "accuracy", f"{name}-{severity}")
            clean = self._plain_accuracy(measurement.dataset)
        is_same = clean is not None and number is not None and clean.n == number.n
        return 1 - clean.value if is_same else None

    def split(self, dataset: str) -> str:
        """Return a data set's name without its family, such as "contrast".

        dataset: name as in records. The full name, such as "model_vs_human/contrast[...]", is read
        from the provenance.
        """
        return self._full_name(dataset).rpartition("/")[2].partition("[")[0]

    def family(self, dataset: str) -> str:
        """Return the first part of a data set's full name, such as "model_vs_human".

        A name without parts is returned unchanged. dataset: name as in records.
        """
        return self._full_name(dataset).partition("/")[0]

    def _full_name(self, dataset: str) -> str:
        """Return the name of a data set with its family, from the provenance."""
        return self.provenance.get("data", {}).get(dataset, {}).get("name", dataset)

    @property
    def timed_measures(self) -> list[Mapping[str, Any]]:
        """Settings of the measures that were timed; measures of stored decisions are not timed."""
        return [
            settings
            for settings in self.measures.values()
            if settings["seconds"] is not None
        ]

    @property
    def missing_measures(self) -> Iterator[str]:
        """Notes on data sets and measures of the suite that were not measured.

        One note per data set that was missing, with the reason, then one note on all measures that
        were not measured on other data sets.
        """
        missing = self.provenance.get("missing", {})
        for dataset, reason in missing.items():
            yield f"{dataset} was missing ({reason})"
        measures = self.provenance.get("suite", {}).get("measures", {})
        expected = [
            Measurement(measure, dataset)
            for measure, settings in measures.items()
            for dataset in settings.get("sets", ())
        ]
        unmeasured = [
            f"{key.measure} on {key.dataset}"
            for key in expected
            if key not in self.measures and key.dataset not in missing
        ]
        if unmeasured:
            yield f"part of the suite but not measured: {', '.join(unmeasured)}"


def count_of(
    network: MeasuredNetwork, measurement: Measurement, number: Number
) -> tuple[int, int]:
    """Return (count, n) of a share of images; ValueError for a share without a count.

    number: a result of `measurement` of the network.
    """
    if number.count is None:
        errors.refuse(
            f"{network.workdir}: {measurement.measure}@{measurement.dataset}",
            "have a count of images",
            number.value,
            "measure the network again into another --out",
            name=number.metric,
        )
    return int(number.count), number.n


def read(
    workdirs: Sequence[str], notes: list[str] | None = None
) -> list[MeasuredNetwork]:
    """Return the networks of workdirs (paths or globs), one per workdir, sorted by workdir.

    notes: list to which notes on workdirs and networks that are left out are appended. Raises
    ValueError as `read_records` does, and for a workdir without the files of `jbias evaluate
    --suite`.
    """
    records, record_notes = read_records(workdirs)
    if notes is not None:
        notes += record_notes
    grouped = records.groupby("workdir", observed=True, sort=True)
    records_by_workdir = {str(workdir): group for workdir, group in grouped}
    networks = []
    for workdir, name in _names(records_by_workdir).items():
        path = pathlib.Path(workdir)
        measures = read_measures(workdir)
        config = workdirs_lib.read_json(path / "config.json")
        provenance = workdirs_lib.read_json(path / "provenance.json")
        contents = {
            "measures/": measures,
            "config.json": config,
            "provenance.json": provenance,
        }
        absent = [file for file, content in contents.items() if not content]
        if absent:
            raise ValueError(
                f"{workdir}: must be a workdir of `jbias evaluate --suite=...`, got one "
                f"without {absent[0]}; for workdirs of runs use `jbias report`"
            )
        text_columns = {"dataset": str, "condition": str, "metric": str}
        networks.append(
            MeasuredNetwork(
                name=name,
                workdir=path,
                records=records_by_workdir[workdir].astype(text_columns),
                measures=measures,
                config=config,
                provenance=provenance,
            )
        )
    return networks


def _names(records_by_workdir: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return a short, unique name of the network in each workdir, by workdir.

    records_by_workdir: records of each workdir. A network from a file is named after the file. A
    network trained by jbias is named by model, method (the config's label, else the method's
    published name) and seed. Training data, hash, step and workdir are appended only where they
    distinguish equal names.
    """
    suffix_fields: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {}
    for workdir, records in records_by_workdir.items():
        record = records.iloc[0].astype(str).to_dict()
        suffix_fields[workdir] = record | {"hash": record["run"].rpartition("-")[2]}
        names[workdir] = record["run"]
        config = read_config(workdir).get("config")
        if config is not None:  # A run that jbias trained.
            config = config if isinstance(config, Mapping) else {}
            label = config.get("label", "")
            method_name = workdirs_lib.method_name(
                record["algorithm"], record["variant"], config
            )
            method = (label.strip() if isinstance(label, str) else "") or method_name
            names[workdir] = f"{record['model']} {method} seed {record['seed']}"
    for suffix in _SUFFIXES:
        namesakes = collections.defaultdict(dict)
        for workdir, name in names.items():
            extended_name = name + suffix.format_map(suffix_fields[workdir])
            namesakes[name][workdir] = extended_name
        for extended_names in namesakes.values():
            if len({*extended_names.values()}) > 1:
                names |= extended_names
    return names
