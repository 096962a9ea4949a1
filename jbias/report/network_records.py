"""Measured networks as their workdirs hold them: records, how each was made, decisions.

Conditions of records begin with the name of the measure, such as "spectral" for its bias and
"spectral/low 0.3" for a filter; accuracy on a set as it is has none.
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
Place = tuple[str, str]  # A measure's name and its set.
Measures = Mapping[Place, Mapping[str, Any]]  # What measures/<measure>@<set>.json says.
Cells = Mapping[tuple[str, str, str], float]  # By data set, condition and metric.

_ONE = ["run", "seed", "step"]  # What a network is in records.
_MAIN = ("imagenet", "test", "val")  # Whose accuracy is the network's, before others.
# What tells networks apart whose names are alike, the first that does before others.
_ENDS = (" on {train_data}", " [{hash}]", " seed {seed}", " step {step}")
_ENDS += (" in {workdir}",)


def read_records(workdirs: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Reads the evaluations of workdirs (paths or globs); says what is left out.

    Networks with the same weights, preprocessing and classes count once: the one with the
    most records, the first of equals. Raises ValueError as `results.read` does, and where
    nothing was measured.
    """
    records = selection.evaluations(results.read(workdirs), trained=True)
    if records.empty:
        raise ValueError(f"{' '.join(workdirs)}: must hold evaluations, got none")
    sizes = records.groupby([*_ONE, "workdir"], observed=True).size()
    alike: dict[str, collections.Counter] = {}
    for (*one, workdir), size in sizes.items():
        run = read_config(workdir).get("run", {})
        if "digest" in run:  # Else it is a run that was trained: "run" says on what.
            run = json.dumps(run | {"path": None}, sort_keys=True)
            alike.setdefault(run, collections.Counter())[tuple(one)] += size
    _, empty = results.find_workdirs(workdirs)
    told = [f"Nothing was measured of {', '.join(map(str, empty))}."] if empty else []
    several = [of for of in alike.values() if len(of) > 1]
    several = [[one for one, _ in of.most_common()] for of in several]
    if several:
        again = [one for of in several for one in of[1:]]
        known = pd.MultiIndex.from_frame(records[_ONE])
        records = records[~known.isin(again)].reset_index(drop=True)
        names = "; ".join(", ".join(_words(*one) for one in of) for of in several)
        told.append(f"The same weights, counted once, as the first: {names}.")
    return records, told


def _words(run: str, seed: int, step: int) -> str:
    return f"{run} seed {seed} step {step}" if step else str(run)


def read_config(workdir: str) -> dict:
    """Reads a workdir's config.json; nothing where there is none."""
    return workdirs_lib.read_json(pathlib.Path(workdir) / "config.json")


def read_measures(workdir: str) -> dict[Place, dict]:
    """Reads how each measure was made, by its name and its set; of a run there are none.

    ValueError names a file that is damaged or of another version.
    """
    found = {}
    for file in sorted((pathlib.Path(workdir) / "measures").glob("*.json")):
        measure, _, dataset = file.stem.partition("@")
        found[measure, dataset] = told = workdirs_lib.read_json(file)
        lost = [key for key in ("measure", "images", "seconds") if key not in told]
        if lost:
            lost = f"{file}: must have {', '.join(lost)}; it is of another version, so measure"
            raise ValueError(f"{lost} the network again into another --out")
    return found


def ended(*metrics: str) -> list[str]:
    """Gives metrics, each with the ends of its interval."""
    ends = ("", "_lower", "_upper")
    return [f"{metric}{end}" for metric in metrics for end in ends]


def cells_of(records: pd.DataFrame, column: str = "value") -> Cells:
    """Gives one checkpoint's values by set, condition and metric; a set's - is _."""
    names = records[["dataset", "condition", "metric"]].astype(str)
    names["dataset"] = names["dataset"].str.replace("-", "_")
    keys = names.itertuples(index=False, name=None)
    return dict(zip(keys, records[column].astype(float), strict=True))


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """One workdir of `jbias evaluate --suite`."""

    name: str  # On the page.
    workdir: pathlib.Path
    records: pd.DataFrame
    measures: Measures  # How each was made.
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @functools.cached_property
    def numbers(self) -> Mapping[Place, list[Number]]:
        """What each measure found, its name taken off the conditions."""
        found: dict[Place, list] = {place: [] for place in self.measures}
        columns = ["metric", "value", "count", "n", "condition", "dataset"]
        rows = self.records[columns].itertuples(index=False, name=None)
        for metric, value, count, n, condition, dataset in rows:
            measure, _, rest = condition.partition("/")
            if (measure, dataset) not in found:
                measure, rest = "accuracy", condition  # These have no measure's name.
            value, count = (None if pd.isna(one) else one for one in (value, count))
            number = Number(metric, value, count, int(n or 0), rest)
            found.setdefault((measure, dataset), []).append(number)
        return found

    def cells(self, column: str = "value") -> Cells:
        """Gives `cells_of` its records."""
        return cells_of(self.records, column)

    def of(self, probe: str) -> list[Place]:
        """Gives the measures that a probe made, and their sets."""
        made = self.measures.items()
        those = [place for place, told in made if told["measure"]["probe"] == probe]
        return [place for place in those if self.numbers[place]]

    def number(self, place: Place, metric: str, condition: str = "") -> Number | None:
        wanted, found = (metric, condition), self.numbers.get(place, ())
        return next((x for x in found if (x.metric, x.condition) == wanted), None)

    def values(self, place: Place, metrics: Iterable[str], condition: str = "") -> dict:
        """Gives the values of some metrics of one measure, None where there is none."""
        found = {metric: self.number(place, metric, condition) for metric in metrics}
        return {metric: number and number.value for metric, number in found.items()}

    def interval(
        self, place: Place, metric: str, condition: str = ""
    ) -> list[float | None]:
        """Gives a value and the ends of its interval, None where there is none."""
        return [*self.values(place, ended(metric), condition).values()]

    def rule(self, place: Place, rule: str) -> str | None:
        """Names a rule by which answers were made decisions, where there are several."""
        known = self.measures[place]["measure"].get("aggregates", ())
        return (rule or known[0]) if len(known) > 1 else None

    def decided(self, place: Place) -> dict[str, decisions.Decisions]:
        """Gives the decisions by condition; none where they were not kept."""
        measure, dataset = place
        path = self.workdir / "decisions" / dataset / f"{measure}.parquet"
        return decisions.read_conditions(path) if path.exists() else {}

    def classes(self, place: Place) -> tuple[str, ...]:
        """Gives the names of what was decided among; none where they were not kept."""
        return tuple(self.measures[place].get("classes", ()))

    @property
    def accuracy(self) -> tuple[str, Number] | None:
        """The set that stands for the network's accuracy, and this."""
        plain = [place for place in self.of("plain") if place[0] == "accuracy"]
        plain.sort(key=lambda place: (place[1] not in _MAIN, place[1]))
        found = ((place[1], self.number(place, "accuracy")) for place in plain)
        return next((one for one in found if one[1]), None)

    @functools.cached_property
    def corrupted(self) -> dict[Place, dict[tuple[str, int], float]]:
        """Accuracy by corruption and severity, of each measure and set.

        `corruption_error.FILES` are sets of their own, as ImageNet-C is published.
        """
        cells = cells_of(self.records[self.records["value"].notna()])
        found = corruption_error.by_corruption(cells)
        known = [corruption_error.FILES, *self.of("corruptions")]
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
        """Return whether corrupted images are ImageNet's, as ImageNet-C has them.

        They are of 224 pixels, and decided among 1,000 classes.
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
        """Return the sets that are files of one corruption, such as fog-3."""
        sets = [place[1] for place in self.of("plain")]
        return [name for name in sets if corruption_error.is_file_of_one(name)]

    def _clean_error(self, place: Place) -> float | None:
        """Return the error on as many images as they are; None where it is not known."""
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
        """Gives a set's name in its family, such as contrast of model-vs-human."""
        return self._called(dataset).rpartition("/")[2].partition("[")[0]

    def family(self, dataset: str) -> str:
        """Gives the family a set is of, such as imagenet16."""
        return self._called(dataset).partition("/")[0]

    def _called(self, dataset: str) -> str:
        return self.provenance.get("data", {}).get(dataset, {}).get("name", dataset)

    @property
    def asked(self) -> list[Mapping[str, Any]]:
        """How the measures were made that had not been decided for another before."""
        return [one for one in self.measures.values() if one["seconds"] is not None]

    @property
    def lacking(self) -> Iterator[str]:
        """Says what the suite asked for and is not there."""
        missing = self.provenance.get("missing", {})
        for dataset, why in missing.items():
            yield f"{dataset} was not there ({why})"
        asked = self.provenance.get("suite", {}).get("measures", {})
        places = ((x, on) for x, of in asked.items() for on in of.get("sets", ()))
        lost = [x for x in places if x not in self.measures and x[1] not in missing]
        if lost:
            yield f"asked for and not measured: {', '.join(map(' on '.join, lost))}"


def read(workdirs: Sequence[str], notes: list[str] | None = None) -> list[Network]:
    """Reads workdirs (paths or globs), each a network, in the order of their names.

    What is left out is added to notes. Raises ValueError as `read_records` does, and where
    a workdir is no such one.
    """
    records, told = read_records(workdirs)
    if notes is not None:
        notes += told
    grouped = records.groupby("workdir", observed=True, sort=True)
    parts = {str(workdir): part for workdir, part in grouped}
    networks = []
    for workdir, name in _names(parts).items():
        path, measures = pathlib.Path(workdir), read_measures(workdir)
        names = ("config.json", "provenance.json")
        facts = [workdirs_lib.read_json(path / one) for one in names]
        found = dict(zip(("measures/", *names), (measures, *facts)))
        if absent := [one for one in found if not found[one]]:
            lost = f"{workdir}: must be a workdir of `jbias evaluate --suite=...`"
            told = f"got one without {absent[0]}; of runs `jbias report`"
            raise ValueError(f"{lost}, {told} tells")
        words = dict.fromkeys(("dataset", "condition", "metric"), str)
        part = parts[workdir].astype(words)
        networks.append(Network(name, path, part, measures, *facts))
    return networks


def _names(parts: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Gives each workdir a name, by its records: short, and no two alike.

    That of a file is the file's. That of a run's seed is model, method (as the config's
    label or as papers call it) and seed; its training data, hash and step stand behind it only where they tell it from
    others of that name.
    """
    fields, names = {}, {}
    for workdir, part in parts.items():
        one = part.iloc[0].astype(str).to_dict()
        fields[workdir] = one | {"hash": one["run"].rpartition("-")[2]}
        names[workdir] = one["run"]
        config = read_config(workdir).get("config")
        if config is not None:  # It was trained here.
            label = config.get("label") if isinstance(config, Mapping) else ""
            paper = workdirs_lib.method_name(one["algorithm"], one["variant"])
            method = (label.strip() if isinstance(label, str) else "") or paper
            names[workdir] = f"{one['model']} {method} seed {one['seed']}"
    for end in _ENDS:
        alike = collections.defaultdict(dict)
        for workdir, name in names.items():
            alike[name][workdir] = name + end.format_map(fields[workdir])
        for longer in alike.values():
            if len({*longer.values()}) > 1:
                names |= longer
    return names
