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
from typing import Any

import pandas as pd

from jbias.data import corruptions
from jbias.evals import corruption_error, decisions
from jbias.report import workdirs as workdirs_lib
from jbias.runs import results, selection

Number = decisions.Number
Place = tuple[str, str]  # Name of a measure, and of its data set.
Measures = Mapping[
    Place, Mapping[str, Any]
]  # Content of measures/<measure>@<set>.json.
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
    """Return the evaluations of workdirs (paths or globs), and notes on what is left out.

    Of networks with the same weights, preprocessing and classes, only that with the most
    records is kept (the first one of a tie). Raises ValueError as `results.read` does, and
    if there are no evaluations.
    """
    records = selection.evaluations(results.read(workdirs), trained=True)
    if records.empty:
        raise ValueError(
            f"{' '.join(workdirs)}: must hold evaluations, got none; run jbias evaluate first"
        )
    sizes = records.groupby([*_NETWORK_KEY, "workdir"], observed=True).size()
    alike: dict[str, collections.Counter] = {}
    for (*network, workdir), size in sizes.items():
        run = read_config(workdir).get("run", {})
        if "digest" in run:  # Otherwise "run" identifies a run trained by jbias.
            run = json.dumps(run | {"path": None}, sort_keys=True)
            alike.setdefault(run, collections.Counter())[tuple(network)] += size
    _, empty = results.find_workdirs(workdirs)
    notes = []
    if empty:
        notes.append(f"No measurements in {', '.join(map(str, empty))}.")
    duplicates = [
        [network for network, _ in counts.most_common()]
        for counts in alike.values()
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
    """Return the run, with seed and step unless the step is 0."""
    return f"{run} seed {seed} step {step}" if step else str(run)


def read_config(workdir: str) -> dict:
    """Return the content of a workdir's config.json; {} if there is none."""
    return workdirs_lib.read_json(pathlib.Path(workdir) / "config.json")


def read_measures(workdir: str) -> dict[Place, dict]:
    """Return the settings of each measure by name and data set; {} for a trained run.

    Raises ValueError for a file that is damaged or of another version.
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
        measures[measure, dataset] = settings
    return measures


def ended(*metrics: str) -> list[str]:
    """Return each metric followed by the two ends of its interval."""
    ends = ("", "_lower", "_upper")
    return [f"{metric}{end}" for metric in metrics for end in ends]


def cells_of(records: pd.DataFrame, column: str = "value") -> Cells:
    """Return a checkpoint's values by data set ("-" as "_"), condition and metric."""
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
    measures: Measures  # Settings of each measure.
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @functools.cached_property
    def numbers(self) -> Mapping[Place, list[Number]]:
        """Results of each measure, with conditions without the measure's name."""
        results_by_place: dict[Place, list] = {place: [] for place in self.measures}
        columns = ["metric", "value", "count", "n", "condition", "dataset"]
        rows = self.records[columns].itertuples(index=False, name=None)
        for metric, value, count, n, condition, dataset in rows:
            measure, _, measure_condition = condition.partition("/")
            if (measure, dataset) not in results_by_place:
                # Conditions of plain accuracy do not begin with a measure's name.
                measure, measure_condition = "accuracy", condition
            number = Number(
                metric,
                None if pd.isna(value) else value,
                None if pd.isna(count) else count,
                int(n or 0),
                measure_condition,
            )
            results_by_place.setdefault((measure, dataset), []).append(number)
        return results_by_place

    def cells(self, column: str = "value") -> Cells:
        """Return `cells_of` the records of this network."""
        return cells_of(self.records, column)

    def places_of(self, probe: str) -> list[Place]:
        """Return the measures of a probe that have results, with their data sets."""
        return [
            place
            for place, settings in self.measures.items()
            if settings["measure"]["probe"] == probe and self.numbers[place]
        ]

    def number(self, place: Place, metric: str, condition: str = "") -> Number | None:
        """Return one result of a measure, None if there is none."""
        for number in self.numbers.get(place, ()):
            if number.metric == metric and number.condition == condition:
                return number
        return None

    def values(self, place: Place, metrics: Iterable[str], condition: str = "") -> dict:
        """Return values by metric, None for a metric without result."""
        numbers = {metric: self.number(place, metric, condition) for metric in metrics}
        return {metric: number and number.value for metric, number in numbers.items()}

    def interval(
        self, place: Place, metric: str, condition: str = ""
    ) -> list[float | None]:
        """Return a value and the two ends of its interval; None if missing."""
        return [*self.values(place, ended(metric), condition).values()]

    def rule(self, place: Place, rule: str) -> str | None:
        """Return the name of the aggregation rule (default: the first); None for a single rule."""
        known = self.measures[place]["measure"].get("aggregates", ())
        return (rule or known[0]) if len(known) > 1 else None

    def decided(self, place: Place) -> dict[str, decisions.Decisions]:
        """Return decisions by condition; {} if they were not stored."""
        measure, dataset = place
        path = self.workdir / "decisions" / dataset / f"{measure}.parquet"
        return decisions.read_conditions(path) if path.exists() else {}

    def classes(self, place: Place) -> tuple[str, ...]:
        """Return the names of the classes of a measure; () if they were not stored."""
        return tuple(self.measures[place].get("classes", ()))

    @property
    def accuracy(self) -> tuple[str, Number] | None:
        """The main data set and the accuracy on it; None without plain accuracy."""
        plain = [place for place in self.places_of("plain") if place[0] == "accuracy"]
        plain.sort(key=lambda place: (place[1] not in _MAIN, place[1]))
        for place in plain:
            number = self.number(place, "accuracy")
            if number:
                return place[1], number
        return None

    @functools.cached_property
    def corrupted(self) -> dict[Place, dict[tuple[str, int], float]]:
        """Accuracy by corruption and severity, by measure and data set.

        The place `corruption_error.FILES` has data sets of one corruption each, as published.
        """
        cells = cells_of(self.records[self.records["value"].notna()])
        found = corruption_error.by_corruption(cells)
        known = [corruption_error.FILES, *self.places_of("corruptions")]
        places = {(place[0], place[1].replace("-", "_")): place for place in known}
        return {places[key]: cells for key, cells in found.items() if key in places}

    def error_summaries(self, place: Place) -> Iterator[corruption_error.ErrorSummary]:
        """Yield the errors on ImageNet-C, and on ImageNet-C-bar, of one measure and set."""
        cells = self.corrupted[place]
        for names in (corruption_error.COMMON, (*corruptions.BAR,)):
            if any(name in names for name, _ in cells):
                yield corruption_error.summarise_errors(
                    cells,
                    names=names,
                    is_imagenet_c=self.is_imagenet_c(place),
                    clean_error=self._clean_error(place),
                )

    def is_imagenet_c(self, place: Place) -> bool:
        """Return whether the images are comparable to ImageNet-C.

        Requires ImageNet images of 224 pixels and decisions among 1,000 classes.
        """
        files = self._corrupted_files() if place == corruption_error.FILES else []
        places = [("accuracy", dataset) for dataset in files] or [place]
        if any(
            len(self.classes(x)) not in (0, 1000) for x in places if x in self.measures
        ):
            return False
        if files:
            families = {self.family(dataset) for dataset in files}
            return families <= {"imagenet_c", "imagenet_c_bar", *files}
        options = self.measures.get(place, {}).get("measure", {}).get("options", {})
        size = self.provenance.get("suite", {}).get("size", 224)
        usual = options.get("table") in (None, 224) and options.get("quantise", True)
        return self.family(place[1]) == "imagenet" and usual and size == 224

    def _corrupted_files(self) -> list[str]:
        """Return the names of data sets with a single corruption, such as fog-3."""
        sets = [place[1] for place in self.places_of("plain")]
        return [name for name in sets if corruption_error.is_file_of_one(name)]

    def _clean_error(self, place: Place) -> float | None:
        """Return the error on the same number of clean images; None if unknown."""
        name, severity = next(iter(self.corrupted[place]))
        if place == corruption_error.FILES:
            files = self._corrupted_files()
            number = self.number(("accuracy", files[0]), "accuracy") if files else None
            clean = self.number(("accuracy", "imagenet"), "accuracy")
        else:
            number = self.number(place, "accuracy", f"{name}-{severity}")
            clean = self.number(("accuracy", place[1]), "accuracy")
        is_same = clean is not None and number is not None and clean.n == number.n
        return 1 - clean.value if is_same else None

    def split(self, dataset: str) -> str:
        """Return a data set's name within its family, such as contrast of model-vs-human."""
        return self._full_name(dataset).rpartition("/")[2].partition("[")[0]

    def family(self, dataset: str) -> str:
        """Return the family of a data set, such as imagenet16."""
        return self._full_name(dataset).partition("/")[0]

    def _full_name(self, dataset: str) -> str:
        """Return the name of a data set with its family, from the provenance."""
        return self.provenance.get("data", {}).get(dataset, {}).get("name", dataset)

    @property
    def timed_measures(self) -> list[Mapping[str, Any]]:
        """Settings of the measures that did not reuse the decisions of another measure."""
        return [
            settings
            for settings in self.measures.values()
            if settings["seconds"] is not None
        ]

    @property
    def missing_measures(self) -> Iterator[str]:
        """Notes on data sets and measures of the suite that are missing."""
        missing = self.provenance.get("missing", {})
        for dataset, reason in missing.items():
            yield f"{dataset} was missing ({reason})"
        measures = self.provenance.get("suite", {}).get("measures", {})
        places = [
            (measure, dataset)
            for measure, settings in measures.items()
            for dataset in settings.get("sets", ())
        ]
        unmeasured = [
            f"{measure} on {dataset}"
            for measure, dataset in places
            if (measure, dataset) not in self.measures and dataset not in missing
        ]
        if unmeasured:
            yield f"part of the suite but not measured: {', '.join(unmeasured)}"


def read(
    workdirs: Sequence[str], notes: list[str] | None = None
) -> list[MeasuredNetwork]:
    """Return the networks of workdirs (paths or globs), in the order of their names.

    Notes on what is left out are added to `notes`. Raises ValueError as `read_records` does,
    and for a workdir without the files of `jbias evaluate --suite`.
    """
    records, record_notes = read_records(workdirs)
    if notes is not None:
        notes += record_notes
    grouped = records.groupby("workdir", observed=True, sort=True)
    parts = {str(workdir): part for workdir, part in grouped}
    networks = []
    for workdir, name in _names(parts).items():
        path, measures = pathlib.Path(workdir), read_measures(workdir)
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
                records=parts[workdir].astype(text_columns),
                measures=measures,
                config=config,
                provenance=provenance,
            )
        )
    return networks


def _names(parts: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return a short, unique name for each workdir; parts: records by workdir.

    That of a file is the file's. That of a run's seed is model, method (as the config's
    label or as papers call it) and seed; its training data, hash and step stand behind it only where they tell it from
    others of that name.
    """
    fields, names = {}, {}
    for workdir, part in parts.items():
        record = part.iloc[0].astype(str).to_dict()
        fields[workdir] = record | {"hash": record["run"].rpartition("-")[2]}
        names[workdir] = record["run"]
        config = read_config(workdir).get("config")
        if config is not None:  # A run that jbias trained.
            label = config.get("label") if isinstance(config, Mapping) else ""
            method_name = workdirs_lib.method_name(
                record["algorithm"], record["variant"]
            )
            method = (label.strip() if isinstance(label, str) else "") or method_name
            names[workdir] = f"{record['model']} {method} seed {record['seed']}"
    for suffix in _SUFFIXES:
        namesakes = collections.defaultdict(dict)
        for workdir, name in names.items():
            namesakes[name][workdir] = name + suffix.format_map(fields[workdir])
        for extended in namesakes.values():
            if len({*extended.values()}) > 1:
                names |= extended
    return names
