"""Networks that were measured: their records, how they were made, and what was decided."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.evals import corruption_error, decisions
from jbias.report import bias_made, bias_numbers, measured_names, measured_records

Number = decisions.Number
Place = tuple[str, str]  # A measure's name and its set.
_MAIN = ("imagenet", "test", "val")  # Whose accuracy is the network's, before others.


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """One workdir of `python -m jbias.evaluate --suite`."""

    name: str  # On the page.
    workdir: pathlib.Path
    records: pd.DataFrame
    measures: Mapping[Place, Mapping[str, Any]]  # How each was made.
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @functools.cached_property
    def cells(self) -> bias_numbers.Cells:
        return bias_numbers.cells_of(self.records)

    @functools.cached_property
    def _row(self) -> tuple[Mapping[str, float], Mapping[str, bias_made.Made]]:
        sizes = bias_numbers.cells_of(self.records, "n")
        return bias_numbers.row(self.cells, sizes, self.measures)

    @property
    def row(self) -> Mapping[str, float]:
        """Benchmarks in % and biases, as the study of biases has them."""
        return self._row[0]

    @property
    def made(self) -> Mapping[str, bias_made.Made]:
        """How each of these was measured."""
        return self._row[1]

    @property
    def places(self) -> Mapping[str, str]:
        """On which sets the biases and some benchmarks were measured, and how."""
        made = self.made.items()
        return {key: one.words for key, one in made if one.dataset != key}

    @property
    def attacked(self) -> int | None:
        """Of how many images the share that is right under PGD is."""
        made = self.made["pgd"]
        for measure, dataset in self.of("pgd"):
            if (measure, dataset.replace("-", "_")) == (made.measure, made.dataset):
                number = self.number((measure, dataset), "pgd_accuracy", made.how)
                return number and number.n
        return None

    @functools.cached_property
    def numbers(self) -> Mapping[Place, list[Number]]:
        """What each measure found, its name taken off the conditions."""
        found: dict[Place, list[Number]] = {place: [] for place in self.measures}
        columns = ("metric", "value", "count", "n", "condition", "dataset")
        for *fields, dataset in self.records[list(columns)].itertuples(
            index=False, name=None
        ):
            metric, value, count, n, condition = fields
            measure, _, rest = condition.partition("/")
            if (measure, dataset) not in found:
                measure, rest = "accuracy", condition  # These have no measure's name.
            number = Number(metric, _known(value), _known(count), int(n or 0), rest)
            found.setdefault((measure, dataset), []).append(number)
        return found

    def of(self, probe: str) -> list[Place]:
        """Gives the measures that a probe made, and their sets."""
        return [
            place
            for place, told in self.measures.items()
            if told["measure"]["probe"] == probe and self.numbers[place]
        ]

    def number(self, place: Place, metric: str, condition: str = "") -> Number | None:
        found = self.numbers.get(place, ())
        wanted = (metric, condition)
        return next((n for n in found if (n.metric, n.condition) == wanted), None)

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
        for place in plain:
            number = self.number(place, "accuracy")
            if number:
                return place[1], number
        return None

    @functools.cached_property
    def corrupted(self) -> dict[Place, dict[tuple[str, int], float]]:
        """Accuracy by corruption and severity, of each measure and set.

        `corruption_error.FILES` are sets of their own, as ImageNet-C is published.
        """
        own = {key: value for key, value in self.cells.items() if not math.isnan(value)}
        found = corruption_error.by_corruption(own)
        named = {
            (m, dataset.replace("-", "_")): (m, dataset)
            for m, dataset in self.of("corruptions")
        }
        places = {corruption_error.FILES: corruption_error.FILES, **named}
        return {
            places[place]: cells for place, cells in found.items() if place in places
        }

    def is_corruption(self, dataset: str) -> bool:
        """Whether a set is one corruption at one severity, as ImageNet-C is published."""
        name, _, severity = dataset.rpartition("-")
        files = self.corrupted.get(corruption_error.FILES, {})
        return severity.isdecimal() and (name, int(severity)) in files

    def split(self, dataset: str) -> str:
        """Gives a set's name in its family, such as contrast of model-vs-human."""
        told = self.provenance.get("data", {}).get(dataset, {}).get("name", dataset)
        return told.rpartition("/")[2].partition("[")[0]

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
        lost = [
            f"{measure} on {dataset}"
            for measure, options in asked.items()
            for dataset in options.get("sets", ())
            if (measure, dataset) not in self.measures and dataset not in missing
        ]
        if lost:
            yield f"asked for and not measured: {', '.join(lost)}"


def _known(value):
    return None if pd.isna(value) else value


def read(workdirs: Sequence[str], notes: list[str] | None = None) -> list[Network]:
    """Reads workdirs (paths or globs), each a network, in the order of their names.

    What is left out is added to notes. Raises ValueError as `measured_records.read` does,
    and where a workdir is no such one.
    """
    records, told = measured_records.read(workdirs)
    if notes is not None:
        notes += told
    parts = {
        str(workdir): part
        for workdir, part in records.groupby("workdir", observed=True, sort=True)
    }
    names = measured_names.of(parts)
    return [_network(names[workdir], workdir, part) for workdir, part in parts.items()]


def _network(name: str, workdir: str, records: pd.DataFrame) -> Network:
    path = pathlib.Path(workdir)
    measures = measured_records.measures(workdir)
    if not measures:
        raise ValueError(
            f"{workdir}: must be a workdir of `python -m jbias.evaluate --suite=...`, got"
            " one without measures/; of runs `python -m jbias.report` tells"
        )
    words = ["dataset", "condition", "metric"]
    return Network(
        name=name,
        workdir=path,
        records=records.astype(dict.fromkeys(words, str)),
        measures=measures,
        config=measured_records.read_json(path / "config.json"),
        provenance=measured_records.read_json(path / "provenance.json"),
    )
