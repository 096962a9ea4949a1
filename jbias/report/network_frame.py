"""Measured networks: what their workdirs hold, and their biases and benchmarks as rows.

Conditions of records begin with the name of the measure, such as "spectral" for its bias and
"spectral/low 0.3" for a filter; accuracy on a set as it is has none. Which benchmarks are
averaged: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509.
"""

import collections
import dataclasses
import functools
import itertools
import json
import math
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from jbias.evals import corruption_error, decisions
from jbias.report import csv_rows
from jbias.runs import results, selection

Place = tuple[str, str]  # A measure's name and its set.
Measures = Mapping[Place, Mapping[str, Any]]  # What measures/<measure>@<set>.json says.
Cells = Mapping[tuple[str, str, str], float]  # By data set, condition and metric.
_NOTHING: Mapping = MappingProxyType({})

AT = "adversarial_training"
# What each average is the unweighted mean of: for models of ImageNet, as published.
MEMBERS = corruption_error.CATEGORIES
# For others, such as those of the embedded set.
OTHERS = MappingProxyType(
    {
        "ID": ("test", "val"),
        "Robustness": ("corrupted", "imagenet_c", "imagenet_cbar"),
        "Concepts": ("sketch", "edge", "silhouette", "stylized", "recoloured"),
        "Adversarial": ("pgd",),
    }
)
BIASES = ("shape", "low_freq", "high_freq", "cb_bw", "cb_cf", "cb_pns")
FEW = 10  # Decisions for either cue; a shape bias of fewer says next to nothing.
# Where no shape of a band can be fitted the reference prints a width of 11295.35.
DEGENERATE = 1_000.0
TITLES = MappingProxyType(
    {
        "imagenet": "ImageNet",
        "imagenet_real": "ReaL",
        "imagenet_v2": "ImageNet-v2",
        "imagenet_a": "ImageNet-A",
        "imagenet_c": "ImageNet-C",
        "imagenet_cbar": "ImageNet-C-bar",
        "imagenet_r": "ImageNet-R",
        "imagenet_sketch": "ImageNet-Sketch",
        "stylized16": "Stylized (16)",
        "pgd": "PGD",
        "shape": "shape bias",
        "shape_lower": "from",
        "shape_upper": "to",
        "shape_n": "of",
        "low_freq": "low-frequency bias",
        "high_freq": "high-frequency bias",
        "cb_bw": "bandwidth",
        "cb_cf": "centre frequency",
        "cb_pns": "peak noise sensitivity",
        "cb_bw_raw": "bandwidth, not normalised",
        "cb_cf_raw": "centre frequency, not normalised",
        "cb_pns_raw": "peak noise sensitivity, not normalised",
        "all": "all",
        AT: "adversarial training",
        f"not {AT}": "not adversarial training",
        "training_recipes": "training recipes",
        "epsilon": "ε",
    }
)

# Workdirs.

_ONE = ["run", "seed", "step"]  # What a network is in records.


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
    several = [[one for one, _ in of.most_common()] for of in alike.values()]
    several = [of for of in several if len(of) > 1]
    _, empty = results.find_workdirs(workdirs)
    told = [f"Nothing was measured of {', '.join(map(str, empty))}."] if empty else []
    if several:
        again = [one for of in several for one in of[1:]]
        known = pd.MultiIndex.from_frame(records[_ONE])
        records = records[~known.isin(again)].reset_index(drop=True)
        names = "; ".join(", ".join(_words(*one) for one in of) for of in several)
        told.append(f"The same weights, counted once, as the first: {names}.")
    return records, told


def _words(run: str, seed: int, step: int) -> str:
    return f"{run} seed {seed} step {step}" if step else str(run)


def read_json(path: pathlib.Path) -> dict:
    """Reads a JSON file; ValueError names one that is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: must be JSON, got a damaged file ({error})"
        ) from None


def read_config(workdir: str) -> dict:
    """Reads a workdir's config.json; nothing where there is none."""
    path = pathlib.Path(workdir) / "config.json"
    return read_json(path) if path.exists() else {}


def read_measures(workdir: str) -> dict[Place, dict]:
    """Reads how each measure was made, by its name and its set; of a run there are none.

    ValueError names a file that is damaged or of another version.
    """
    found = {}
    for file in sorted((pathlib.Path(workdir) / "measures").glob("*.json")):
        measure, _, dataset = file.stem.partition("@")
        found[measure, dataset] = told = read_json(file)
        lost = [key for key in ("measure", "images", "seconds") if key not in told]
        if lost:
            raise ValueError(
                f"{file}: must have {', '.join(lost)}; it is of another version, so measure"
                " the network again into another --out"
            )
    return found


# How a number was measured.

# Options that change neither a benchmark nor a bias, or that its metric tells.
_FREE = ("names", "frost", "errors", "draws", "continuous", "classes", "low", "high")
USUAL = "as published"
_NAMED = 4  # Models that a line names of those that are alike.


class Method(NamedTuple):
    """How one number of one model was measured; None is not known."""

    dataset: str
    measure: str = ""  # Its name, "" for what has none.
    how: str = ""  # Whatever is not as published; an attack in any case.
    images: int | None = None
    fingerprint: str | None = None  # Of the set.
    rule: str | None = None  # By which answers became decisions.

    @property
    def text(self) -> str:
        return ", ".join(filter(None, (self.dataset, self.how)))


def _method(place: Place, measures: Measures, how: str, n: float = math.nan) -> Method:
    """Gives how a place was measured; n: its images, where no file tells."""
    measure, dataset = place
    told = measures.get((measure or "accuracy", dataset), {})
    asked, about = told.get("measure", {}), told.get("dataset", {})
    sizes = [size for size in (asked.get("images"), about.get("n")) if size]
    return Method(
        dataset=dataset,
        measure=measure,
        how=how,
        images=min(sizes, default=None if math.isnan(n) else int(n)),
        fingerprint=about.get("fingerprint"),
        rule=next(iter(asked.get("aggregates", ())), None),
    )


def _unlike(told: Mapping[str, Any]) -> str:
    """Says which options of a measure are not the published ones."""
    options = told.get("measure", {}).get("options", {})
    return ", ".join(
        f"{name} {value}"
        for name, value in sorted(options.items())
        if name not in _FREE
    )


def compare_methods(
    models: Mapping[str, Mapping[str, Method]],
) -> tuple[list[str], pd.DataFrame]:
    """Says of each column which models differ, a line each, and how it was measured.

    models: by model and column. The frame has a row for each column. Images may differ,
    and the rule by which decisions are made. ValueError where the measure itself does.
    """
    methods = [
        (model, column, *method)
        for model, each in models.items()
        for column, method in each.items()
    ]
    fields = ["model", "column", *Method._fields]
    frame = pd.DataFrame(methods, columns=fields, dtype=object)
    lines, rows = [], []
    for column, part in frame.groupby("column", sort=False):
        title = TITLES.get(column, column)
        hows = part["how"].replace("", USUAL)
        if hows.nunique() > 1:
            raise ValueError(
                f"{title}: must be measured in one way, got {_grouped(part, hows)}; measure"
                " all in one, or leave out the models of the other"
            )
        several = [name for name in _DIFFER if part[name].nunique(dropna=False) > 1]
        if several:
            words = [
                ", ".join(
                    _DIFFER[name].format(one[name] or "unknown") for name in several
                )
                for one in part.to_dict("records")
            ]
            told = "is not of the same images and rule for all"
            lines.append(f"{title} {told}: {_grouped(part, words)}.")
        images = part["images"].dropna()
        rows.append(
            {
                "column": column,
                "sets": ", ".join(part["dataset"].unique()),
                "how": hows.iloc[0],
                "rules": ", ".join(part["rule"].dropna().unique()),
                "images": min(images, default=None),
                "images_most": max(images, default=None),
                "models": len(part),
            }
        )
    return lines, pd.DataFrame(rows)


_DIFFER = {"dataset": "{}", "images": "{} images", "fingerprint": "files {:.8}"}
_DIFFER["rule"] = "rule {}"


def _grouped(methods: pd.DataFrame, words: Sequence[str]) -> str:
    """Names the models that are alike, by the words that are said of them."""
    return "; ".join(
        f"{word} ({', '.join(names[:_NAMED])}"
        f"{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''})"
        for word, names in methods["model"].groupby(words, sort=False).agg(list).items()
    )


# Records to a row.

# Sets that probes change, before all others.
_SETS = ("imagenet", "test", "val", "valid", "cue_conflict")
# The probe and the metric that hold a number.
_BIASES = {
    "shape": ("shape_bias", "shape_bias"),
    "shape_lower": ("shape_bias", "shape_bias_lower"),
    "shape_upper": ("shape_bias", "shape_bias_upper"),
    "low_freq": ("spectral", "low_freq_bias"),
    "high_freq": ("spectral", "high_freq_bias"),
    "cb_bw": ("critical_band", "critical_band_bandwidth"),
    "cb_cf": ("critical_band", "critical_band_center_frequency"),
    "cb_pns": ("critical_band", "critical_band_peak_noise_sensitivity"),
    "cb_bw_raw": ("critical_band", "critical_band_bandwidth_absolute"),
    "cb_cf_raw": ("critical_band", "critical_band_center_frequency_absolute"),
    "cb_pns_raw": ("critical_band", "critical_band_peak_noise_sensitivity_absolute"),
}
_ATTACK = "linf 0.5/255"  # As published; any other counts if it is the only one.
# Benchmarks that probes make of another set; corruptions by their family.
_MADE = {
    "imagenet_c": (
        ("imagenet_c", "corruption_accuracy"),
        ("imagenet_c", "corruption_accuracy_without_frost"),
    ),
    "imagenet_cbar": (("imagenet_c_bar", "corruption_accuracy"),),
}
_BENCHMARKS = tuple(
    dict.fromkeys(sum((*MEMBERS.values(), *OTHERS.values()), ()))  # Each once.
)
_OWN = tuple(itertools.product(("", "plain"), ("accuracy", "real_accuracy")))
_CURVES = {
    "accuracy_ratio": re.compile(r"(low|high) ([\d.]+)"),
    "critical_band_threshold": re.compile(r"(noise) at ([\d.]+)"),
}


def cells_of(records: pd.DataFrame, column: str = "value") -> Cells:
    """Gives one checkpoint's values by set, condition and metric; a set's - is _."""
    names = records[["dataset", "condition", "metric"]].astype(str)
    names["dataset"] = names["dataset"].str.replace("-", "_")
    keys = names.itertuples(index=False, name=None)
    return dict(zip(keys, records[column].astype(float), strict=True))


def row(
    cells: Cells, sizes: Cells = _NOTHING, measures: Measures = _NOTHING
) -> tuple[dict[str, float], dict[str, Method]]:
    """Gives one checkpoint's numbers as columns of the frame, and how they were measured.

    sizes: of what a number is a share. measures: how each was made, by which a measure is
    known by its probe, whatever its name; without, the name is taken for the probe.
    Benchmarks are in %. What was not measured is absent; NaN is a number that does not
    exist, such as the width of no band.
    """
    told = {(m, on.replace("-", "_")): one for (m, on), one in measures.items()}
    probes = _probes(cells, told)
    found: dict[str, float] = {}
    made: dict[str, Method] = {}
    own = _place(cells, probes, _OWN, ["imagenet"])
    means = corruption_error.corruption_means(cells) if own else {}
    for name in _BENCHMARKS:
        place = _place(cells, probes, _OWN, [name])
        if not place and name in means:
            found[name] = 100 * means[name].value
            made[name] = _filled(means[name], told)
            continue
        place = place or _place(cells, probes, _MADE.get(name, ()))
        place = place or (_attack(cells, probes) if name == "pgd" else None)
        if place:
            found[name] = 100 * cells[place]
            made[name] = _method_of(name, place, sizes, told)
    for name, (probe, metric) in _BIASES.items():
        place = _place(cells, probes, ((probe, metric), ("", metric)))
        if place:
            # Like bands must tie, which the last digits of a fit would undo.
            is_band = name.startswith("cb_")
            found[name] = round(cells[place], 6) if is_band else cells[place]
            if name in BIASES:
                made[name] = _method_of(name, place, sizes, told)
            if name == "shape" and place in sizes:
                found["shape_n"] = sizes[place]
    return found | _curves(cells, made), made


def _probes(cells: Cells, told: Measures) -> dict[str, list[Place]]:
    """Gives the measures of each probe and their sets, those that count first."""
    found: dict[str, Any] = {"": {}}
    for dataset, condition, _ in cells:
        probe = measure = condition.partition("/")[0]
        if (measure, dataset) in told:
            asked = told[measure, dataset]["measure"]
            probe = asked["probe"]
            if probe == "corruptions":
                probe = _family(asked.get("options", {}).get("names", "imagenet_c"))
        found.setdefault(probe, {})[measure, dataset] = None
    sets = [*_SETS, *sorted({dataset for dataset, _, _ in cells} - {*_SETS})]
    for probe, of in found.items():
        # As published before others, and under the probe's name.
        key = {
            place: (sets.index(place[1]), bool(_unlike(told.get(place, {}))))
            + (place[0] != probe, place[0])
            for place in of
        }
        found[probe] = sorted(key, key=key.get)
    return found


def _family(names: str | Sequence[str]) -> str:
    """Gives the family that corruptions are of."""
    if isinstance(names, str):
        return names
    bar = {*names} <= {*corruption_error.CORRUPTED["imagenet_cbar"]}
    return "imagenet_c_bar" if bar else "imagenet_c"


def _place(
    cells: Cells, probes: Mapping, wanted: Iterable, sets: Sequence | None = None
):
    """Gives the first key of cells with a probe and metric, on one of the sets or any."""
    keys = (
        (dataset, measure, metric)
        for probe, metric in wanted
        for measure, dataset in probes.get(probe, ())
        if sets is None or dataset in sets
    )
    return next((key for key in keys if key in cells), None)


def _attack(cells: Cells, probes: Mapping[str, Sequence[Place]]):
    """Gives the key of the published attack, or of the only one; of l2 if no other."""
    tried = {
        key: key[1].partition("/")[2]
        for place in probes.get("pgd", ())
        for key in cells
        if key[2] == "pgd_accuracy" and (key[1].partition("/")[0], key[0]) == place
    }
    published = [key for key, how in tried.items() if how == _ATTACK]
    usual = [key for key, how in tried.items() if "linf" in how]
    fitting = published[:1] or usual or [*tried]
    return fitting[0] if len(fitting) == 1 else None


def _method_of(name: str, place, sizes: Cells, told: Measures) -> Method:
    """Says how a number was measured."""
    dataset, condition, metric = place
    measure, _, how = condition.partition("/")
    if name != "pgd":
        less = metric.partition("_without_")[2]
        unlike = _unlike(told.get((measure, dataset), {}))
        how = ", ".join(filter(None, (f"without {less}" if less else "", unlike)))
    # Of others n is of conditions together, or of the decisions for either cue.
    alone = metric in ("accuracy", "real_accuracy", "pgd_accuracy")
    n = sizes.get(place, math.nan) if alone else math.nan
    return _method((measure, dataset), told, how, n)


def _filled(mean: corruption_error.Mean, told: Measures) -> Method:
    """Says of what a mean over corruptions is: published files, or not all of them."""
    how = _unlike(told.get(mean.source, {}))
    if not mean.files:
        return _method(mean.source, told, how)
    if mean.source == corruption_error.FILES:
        return Method("published files")
    return Method(f"{mean.files} published files and {mean.source[1]}", how=how)


def _curves(cells: Cells, made: Mapping[str, Method]) -> dict[str, float]:
    """Gives ratios by cut-off and thresholds by frequency, of the measures of the biases."""
    measured = {
        "accuracy_ratio": made.get("low_freq") or made.get("high_freq"),
        "critical_band_threshold": made.get("cb_bw"),
    }
    found = {}
    for (dataset, condition, metric), value in cells.items():
        of = measured.get(metric)
        measure, _, rest = condition.partition("/")
        if of and (measure, dataset) == (of.measure, of.dataset):
            match = _CURVES[metric].fullmatch(rest)
            if match:
                kind = match[1].replace("noise", "threshold")
                found[f"{kind}_{float(match[2]):g}"] = value
    return found


# Networks.

_MAIN = ("imagenet", "test", "val")  # Whose accuracy is the network's, before others.


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """One workdir of `python -m jbias.evaluate --suite`."""

    name: str  # On the page.
    workdir: pathlib.Path
    records: pd.DataFrame
    measures: Measures  # How each was made.
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @functools.cached_property
    def _row(self) -> tuple[Mapping[str, float], Mapping[str, Method]]:
        cells = cells_of(self.records), cells_of(self.records, "n")
        return row(*cells, self.measures)

    @property
    def row(self) -> Mapping[str, float]:
        """Benchmarks in % and biases, as the study of biases has them."""
        return self._row[0]

    @property
    def methods(self) -> Mapping[str, Method]:
        """How each of these was measured."""
        return self._row[1]

    @property
    def places(self) -> Mapping[str, str]:
        """On which sets the biases and some benchmarks were measured, and how."""
        methods = self.methods.items()
        return {key: one.text for key, one in methods if one.dataset != key}

    @property
    def attacked(self) -> float | None:
        """Of how many images the share that is right under PGD is."""
        method = self.methods["pgd"]
        place = method.dataset, f"{method.measure}/{method.how}", "pgd_accuracy"
        return cells_of(self.records, "n").get(place)

    @functools.cached_property
    def numbers(self) -> Mapping[Place, list[decisions.Number]]:
        """What each measure found, its name taken off the conditions."""
        found: dict[Place, list] = {place: [] for place in self.measures}
        columns = ["metric", "value", "count", "n", "condition", "dataset"]
        rows = self.records[columns].itertuples(index=False, name=None)
        for metric, value, count, n, condition, dataset in rows:
            measure, _, rest = condition.partition("/")
            if (measure, dataset) not in found:
                measure, rest = "accuracy", condition  # These have no measure's name.
            value, count = (None if pd.isna(one) else one for one in (value, count))
            number = decisions.Number(metric, value, count, int(n or 0), rest)
            found.setdefault((measure, dataset), []).append(number)
        return found

    def of(self, probe: str) -> list[Place]:
        """Gives the measures that a probe made, and their sets."""
        return [
            place
            for place, told in self.measures.items()
            if told["measure"]["probe"] == probe and self.numbers[place]
        ]

    def number(
        self, place: Place, metric: str, condition: str = ""
    ) -> decisions.Number | None:
        found = self.numbers.get(place, ())
        wanted = (metric, condition)
        return next((n for n in found if (n.metric, n.condition) == wanted), None)

    def values(self, place: Place, metrics: Iterable[str], condition: str = "") -> dict:
        """Gives the values of some metrics of one measure, None where there is none."""
        found = {metric: self.number(place, metric, condition) for metric in metrics}
        return {metric: number and number.value for metric, number in found.items()}

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
    def accuracy(self) -> tuple[str, decisions.Number] | None:
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
        places = {corruption_error.FILES: corruption_error.FILES}
        places |= {
            (m, on.replace("-", "_")): (m, on) for m, on in self.of("corruptions")
        }
        return {places[key]: cells for key, cells in found.items() if key in places}

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
    names, networks = _names(parts), []
    for workdir, part in parts.items():
        measures = read_measures(workdir)
        if not measures:
            raise ValueError(
                f"{workdir}: must be a workdir of `python -m jbias.evaluate --suite=...`, got"
                " one without measures/; of runs `python -m jbias.report` tells"
            )
        path = pathlib.Path(workdir)
        networks.append(
            Network(
                names[workdir],
                path,
                part.astype(dict.fromkeys(("dataset", "condition", "metric"), str)),
                measures,
                config=read_json(path / "config.json"),
                provenance=read_json(path / "provenance.json"),
            )
        )
    return networks


# What tells networks apart whose names are alike, the first that does before others.
_APART = (
    " on {train_data}",
    " [{hash}]",
    " seed {seed}",
    " step {step}",
    " in {workdir}",
)


def _names(parts: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Gives each workdir a name, by its records: short, and no two alike.

    That of a file is the file's. That of a run's seed is model, method (with the variant)
    and seed; its training data, hash and step stand behind it only where they tell it from
    others of that name.
    """
    fields, names = {}, {}
    for workdir, part in parts.items():
        one = part.iloc[0].astype(str).to_dict()
        fields[workdir] = one | {"hash": one["run"].rpartition("-")[2]}
        names[workdir] = one["run"]
        if "config" in read_config(workdir):  # It was trained here.
            variant = f" ({one['variant']})" if one["variant"] else ""
            method = one["algorithm"] + variant
            names[workdir] = f"{one['model']} {method} seed {one['seed']}"
    for told in _APART:
        alike = collections.defaultdict(dict)
        for workdir, name in names.items():
            alike[name][workdir] = name + told.format_map(fields[workdir])
        for longer in alike.values():
            if len({*longer.values()}) > 1:
                names |= longer
    return names


# Models of a study.


@dataclasses.dataclass(frozen=True, eq=False)
class Models:
    """One row a model.

    frame: index model; name, training (its category), epsilon (strength of adversarial
      training, NaN without), benchmarks and averages in %, biases, low_<c> and high_<c>
      (accuracy ratio at a cut-off), threshold_<f> (of the critical band, at nominal
      cycles per image); where known, shape_n, the decisions for either cue that a shape
      bias is of, and shape_lower and shape_upper, its interval of 95 %.
    """

    source: str
    frame: pd.DataFrame
    members: Mapping[str, tuple[str, ...]]  # Of each average, those that are there.
    biases: tuple[str, ...]
    told: tuple[str, ...]  # What a reader must know of these numbers.
    counted: tuple[str, ...]  # Of that, what counts as a model.
    made: pd.DataFrame | None  # How each column was measured, where it is known.

    @property
    def benchmarks(self) -> tuple[str, ...]:
        return sum(self.members.values(), ())

    def places(self, kind: str) -> dict[str, float]:
        """Gives the columns "low_0.1", ... of a kind with the numbers in their names."""
        found = {
            name: float(name.removeprefix(f"{kind}_"))
            for name in self.frame
            if re.fullmatch(rf"{kind}_[\d.]+", name)
        }
        return dict(sorted(found.items(), key=lambda one: one[1]))


def build_models(
    frame: pd.DataFrame,
    *,
    source: str,
    counted: Sequence[str] = (),
    told: Sequence[str] = (),
    made: pd.DataFrame | None = None,
) -> Models:
    """Adds the averages to a frame of models; says what is absent.

    A benchmark that no model has is no member. A model that lacks one of its members has no
    average: a mean over other sets is another measure. Raises ValueError where no bias or
    no benchmark is left.
    """
    frame = frame.dropna(axis=1, how="all").copy()
    if "epsilon" not in frame:
        frame["epsilon"] = math.nan
    published = "imagenet" in frame
    members = {
        name: tuple(one for one in ones if one in frame)
        for name, ones in (MEMBERS if published else OTHERS).items()
    }
    members = {name: ones for name, ones in members.items() if ones}
    biases = tuple(name for name in BIASES if name in frame)
    for kind, found in (("bias", biases), ("benchmark", members)):
        if not found:
            raise ValueError(f"{source}: must have at least one {kind}, got none")
    for name, ones in members.items():
        frame[name] = frame[list(ones)].mean(axis=1, skipna=False)
    wanted = sum(MEMBERS.values(), ()) if published else tuple(OTHERS)
    absent = [TITLES.get(x, x) for x in (*BIASES, *wanted) if x not in frame]
    told = [*counted, *told]
    if absent:
        told += [f"Not measured, or undefined for every model: {', '.join(absent)}."]
    told += _lacking(frame[[*sum(members.values(), ()), *biases]])
    told += few_decisions(frame["shape_n"].dropna() if "shape_n" in frame else {})
    return Models(
        source=source,
        frame=frame,
        members=members,
        biases=biases,
        told=tuple(told),
        counted=tuple(counted),
        made=made,
    )


def few_decisions(counts: Mapping[str, float] | pd.Series) -> list[str]:
    """Names models whose shape bias is of few decisions."""
    names = [f"{name} ({n:.0f})" for name, n in counts.items() if n < FEW]
    few = f"fewer than {FEW} decisions for either cue"
    told = f"Shape bias of {few} says next to nothing: {', '.join(names)}."
    return [told] if names else []


def decisions_text(n: float) -> str:
    """Shows how many decisions a shape bias is of, with * if they are few."""
    return f"{n:,.0f}" + ("*" if n < FEW else "")


def _lacking(frame: pd.DataFrame) -> Iterator[str]:
    lacks: dict[tuple[str, ...], list[str]] = {}
    for name in frame:
        missing = tuple(frame.index[frame[name].isna()])
        lacks.setdefault(missing, []).append(TITLES.get(name, name))
    for models, names in lacks.items():
        if models:
            yield (
                f"{', '.join(names)}: {len(models)} of {len(frame)} models have none and are "
                f"left out of what needs it: {', '.join(models[:4])}"
                f"{' and others' if len(models) > 4 else ''}."
            )


def read_kinds(path: str) -> pd.DataFrame:
    """Reads model, name, training and, if any, epsilon of models: one line each.

    Raises ValueError by file and line.
    """
    head, lines = csv_rows.read(path)
    missing = [name for name in ("model", "name", "training") if name not in head]
    if missing:
        raise ValueError(
            f"{path}:1: must name the column {missing[0]!r}, and names {', '.join(head)}"
        )
    rows: dict[str, dict] = {}
    for place, fields in lines:
        model = fields["model"]
        if not model or not fields["training"] or model in rows:
            raise ValueError(
                f"{place}: model and training must not be empty, and a model must occur "
                f"once, got {model!r}"
            )
        rows[model] = {
            "name": fields["name"] or model,
            "training": fields["training"],
            "epsilon": parse_number(fields.get("epsilon", ""), "epsilon", place),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def parse_number(field: str, name: str, place: str) -> float:
    """Reads a number; an empty field is NaN."""
    try:
        value = float(field) if field else math.nan
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise ValueError(f"{place}: {name} must be a finite number, got {field!r}")
    return value
