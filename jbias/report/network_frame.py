"""Table of models: benchmarks, biases, averages, and the settings of their measures.

The benchmarks that each average covers are those of Gavrikov and Keuper, CVPR 2024,
https://arxiv.org/abs/2404.01509.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from jbias.evals import corruption_error, critical_band
from jbias.report import csv_rows, network_records, tables

Place, Cells = network_records.Place, network_records.Cells
Measures = network_records.Measures
_NOTHING: Mapping = MappingProxyType({})

AT = "adversarial_training"
# Benchmarks of each unweighted average: for models of ImageNet, as published,
MEMBERS = corruption_error.CATEGORIES
# and for other models, such as those of the embedded data set.
OTHERS = {
    "ID": ("test", "val"),
    "Robustness": ("corrupted", "imagenet_c", "imagenet_cbar"),
    "Concepts": ("sketch", "edge", "silhouette", "stylized", "recoloured"),
    "Adversarial": ("pgd",),
}
BIASES = ("shape", "low_freq", "high_freq", "cb_bw", "cb_cf", "cb_pns")
FEW = 10  # Least number of decisions for either cue of a reliable shape bias.
# Widths above this are failed fits: the reference prints 11295.35 for these.
DEGENERATE = 1_000.0
TITLES = {
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
    AT: "adversarial training",
    f"not {AT}": "not adversarial training",
    "training_recipes": "training recipes",
    "epsilon": "ε",
}

# Settings of measures.

# Options that change no benchmark and no bias, or that are part of the metric's name.
_FREE = ("names", "frost", "errors", "draws", "continuous", "classes", "low", "high")
USUAL = "as published"
_DIFFER = {"dataset": "{}", "images": "{} images", "fingerprint": "files {:.8}"}
_DIFFER["rule"] = "rule {}"


class Method(NamedTuple):
    """Settings with which one number of one model was measured; None: unknown."""

    dataset: str
    measure: str = ""  # Name of the measure, if any.
    how: str = ""  # Options that differ from the published ones; an attack in any case.
    images: int | None = None
    fingerprint: str | None = None  # Of the data set.
    rule: str | None = None  # Rule that turns answers into decisions.

    @property
    def text(self) -> str:
        """The data set and the options, as shown on a page."""
        return ", ".join(filter(None, (self.dataset, self.how)))


Methods = Mapping[str, Method]  # By column.


def _method(
    place: Place, settings_by_place: Measures, how: str, n: float = math.nan
) -> Method:
    """Return the settings of a measure; n: number of images if no file has it."""
    measure, dataset = place
    settings = settings_by_place.get((measure or "accuracy", dataset), {})
    measure_settings, dataset_settings = (
        settings.get("measure", {}),
        settings.get("dataset", {}),
    )
    sizes = [
        size
        for size in (measure_settings.get("images"), dataset_settings.get("n"))
        if size
    ]
    images = min(sizes, default=None if math.isnan(n) else int(n))
    rule = next(iter(measure_settings.get("aggregates", ())), None)
    return Method(
        dataset, measure, how, images, dataset_settings.get("fingerprint"), rule
    )


def _unlike(settings: Mapping[str, Any]) -> str:
    """Return the options of a measure that may differ from the published ones, as text."""
    options = sorted(settings.get("measure", {}).get("options", {}).items())
    return ", ".join(f"{key} {value}" for key, value in options if key not in _FREE)


def compare_methods(models: Mapping[str, Methods]) -> tuple[list[str], pd.DataFrame]:
    """Return notes on columns measured differently, and a frame of settings by column.

    models: settings by model and column. Images and decision rules may differ between
    models, with a note. Raises ValueError if the options of a measure differ.
    """
    methods = []
    for model, each in models.items():
        methods += [(model, column, *method) for column, method in each.items()]
    fields = ["model", "column", *Method._fields]
    frame = pd.DataFrame(methods, columns=fields, dtype=object)
    lines, rows = [], []
    for column, part in frame.groupby("column", sort=False):
        title, hows = TITLES.get(column, column), part["how"].replace("", USUAL)
        if hows.nunique() > 1:
            raise ValueError(
                f"{title}: must be measured with the same options for all models, got "
                f"{_grouped(part, hows)}; measure all with one of these, or leave out the "
                "models of the other"
            )
        differing = [name for name in _DIFFER if part[name].nunique(dropna=False) > 1]
        if differing:
            shown = {x: _DIFFER[x].format for x in differing}
            each = [[how(x or "unknown") for x in part[k]] for k, how in shown.items()]
            words = [*map(", ".join, zip(*each))]
            lines.append(
                f"{title} has different images or rules: {_grouped(part, words)}."
            )
        images, rules = part["images"].dropna(), part["rule"].dropna().unique()
        row = {"column": column, "sets": ", ".join(part["dataset"].unique())}
        row |= {"how": hows.iloc[0], "rules": ", ".join(rules)}
        row["images"] = min(images, default=None)
        row["images_most"] = max(images, default=None)
        rows.append(row | {"models": len(part)})
    return lines, pd.DataFrame(rows)


def _grouped(methods: pd.DataFrame, words: Sequence[str]) -> str:
    """Return texts with the models that share them, such as "rule a (x, y); rule b (z)"."""
    alike = methods["model"].groupby(words, sort=False).agg(list).items()
    return "; ".join(f"{word} ({tables.few(names)})" for word, names in alike)


# Conversion of records to a row.

# Data sets that probes modify, preferred to all others.
_SETS = ("imagenet", "test", "val", "valid", "cue_conflict")
# Probe and metric of each bias.
_BANDS = {"cb_bw": "bandwidth", "cb_cf": "center_frequency"}
_BANDS |= {"cb_pns": "peak_noise_sensitivity"}
_BIASES = {"shape": ("shape_bias", "shape_bias")}
_BIASES |= {f"shape_{x}": ("shape_bias", f"shape_bias_{x}") for x in ("lower", "upper")}
_BIASES |= {f"{x}_freq": ("spectral", f"{x}_freq_bias") for x in ("low", "high")}
for _end, _kind in (("", ""), ("_raw", "_absolute")):
    for _key, _name in _BANDS.items():
        _BIASES[_key + _end] = "critical_band", f"critical_band_{_name}{_kind}"
_ATTACK = "linf 0.5/255"  # As published; another attack counts if it is the only one.
# Benchmarks that probes make from another data set, by the family of corruptions.
_MADE = {"imagenet_c": "imagenet_c", "imagenet_cbar": "imagenet_c_bar"}
_MEANS = ("corruption_accuracy", "corruption_accuracy_without_frost")
_BENCHMARKS = tuple(dict.fromkeys(sum((*MEMBERS.values(), *OTHERS.values()), ())))
_OWN = tuple(itertools.product(("", "plain"), ("accuracy", "real_accuracy")))
_CURVE = re.compile(r"(low|high|noise at) ([\d.]+)")


class ModelRow(NamedTuple):
    """One checkpoint's numbers by column of the frame, and the settings of their measures."""

    numbers: Mapping[str, float]
    methods: Methods

    @property
    def places(self) -> dict[str, str]:
        """Data set and options by column, for columns that are not data sets themselves."""
        return {
            column: method.text
            for column, method in self.methods.items()
            if method.dataset != column
        }


@functools.lru_cache(maxsize=64)
def row_of(network: network_records.MeasuredNetwork) -> ModelRow:
    """Return the row of a measured network."""
    return row(network.cells(), network.cells("n"), network.measures)


def row(
    cells: Cells, sizes: Cells = _NOTHING, measures: Measures = _NOTHING
) -> ModelRow:
    """Return one checkpoint's row.

    cells: values by data set, condition and metric. sizes: numbers of images or decisions
    behind these. measures: settings with the probe of each measure; without settings, the
    name of a measure is its probe. Benchmarks are in %. Columns that were not measured are
    absent; NaN is an undefined number, such as the width of a band that was not found.
    """
    settings = {(m, on.replace("-", "_")): one for (m, on), one in measures.items()}
    probes = _probes(cells, settings)
    numbers, methods = {}, {}
    own_accuracy = _place(cells, probes, _OWN, ["imagenet"])
    means = corruption_error.corruption_means(cells) if own_accuracy else {}
    for name in _BENCHMARKS:
        place = _place(cells, probes, _OWN, [name])
        if not place and name in means:
            numbers[name] = 100 * means[name].value
            methods[name] = _filled(means[name], settings)
            continue
        candidates = itertools.product([_MADE.get(name)], _MEANS)
        place = place or _place(cells, probes, candidates)
        place = place or (_attack(cells, probes) if name == "pgd" else None)
        if place:
            numbers[name] = 100 * cells[place]
            methods[name] = _method_of(name, place, sizes, settings)
    for name, (probe, metric) in _BIASES.items():
        if place := _place(cells, probes, ((probe, metric), ("", metric))):
            # Rounded, so that equal bands tie in spite of the last digits of a fit.
            is_band = name.startswith("cb_")
            numbers[name] = round(cells[place], 6) if is_band else cells[place]
            if name in BIASES:
                methods[name] = _method_of(name, place, sizes, settings)
            if name == "shape" and place in sizes:
                numbers["shape_n"] = sizes[place]
    return ModelRow(_checked_bands(numbers | _curves(cells, methods)), methods)


def _checked_bands(row: dict[str, float]) -> dict[str, float]:
    """Return the row with NaN for numbers of bands that earlier versions did not flag."""
    octaves = [float(key[10:]) for key in row if key.startswith("threshold_")]
    for suffix in ("", "_raw"):
        numbers = [row.get(f"{key}{suffix}", math.nan) for key in ("cb_bw", "cb_cf")]
        if not octaves or any(map(math.isnan, numbers)) or numbers[0] > DEGENERATE:
            continue
        if critical_band.flag_of_numbers(*numbers, octaves):
            row |= {
                f"{key}{suffix}": math.nan for key in _BANDS if f"{key}{suffix}" in row
            }
    return row


def _probes(cells: Cells, settings_by_place: Measures) -> dict[str, list[Place]]:
    """Return the measures of each probe with their data sets, preferred ones first."""
    ranks_by_probe: dict[str, list] = {}
    for dataset, condition, _ in cells:
        probe = measure = condition.partition("/")[0]
        settings = settings_by_place.get((measure, dataset), {})
        if settings:
            probe = settings["measure"]["probe"]
            if probe == "corruptions":
                probe = _family(settings["measure"].get("options", {}))
        position = _SETS.index(dataset) if dataset in _SETS else len(_SETS)
        # Prefer published options, then measures with the name of the probe.
        rank = position, dataset, bool(_unlike(settings)), measure != probe, measure
        ranks_by_probe.setdefault(probe, []).append(rank)
    return {
        probe: [(measure, dataset) for _, dataset, *_, measure in sorted({*ranks})]
        for probe, ranks in ranks_by_probe.items()
    }


def _family(options: Mapping[str, Any]) -> str:
    """Return the family of corruptions: imagenet_c or imagenet_c_bar."""
    names = options.get("names", "imagenet_c")
    if isinstance(names, str):
        return names
    bar = {*names} <= {*corruption_error.CORRUPTED["imagenet_cbar"]}
    return "imagenet_c_bar" if bar else "imagenet_c"


def _place(cells: Cells, probes: Mapping, wanted: Iterable, sets: Sequence = ()):
    """Return the first key of cells for a wanted (probe, metric), or None.

    sets: allowed data sets; () allows all.
    """
    for probe, metric in wanted:
        for measure, dataset in probes.get(probe, ()):
            key = dataset, measure, metric
            if key in cells and (not sets or dataset in sets):
                return key
    return None


def _attack(cells: Cells, probes: Mapping[str, Sequence[Place]]):
    """Return the key of the published attack, else of the only one (linf before l2), or None."""
    attacks = [key for key in cells if key[2] == "pgd_accuracy"]
    on = {key: (key[1].partition("/")[0], key[0]) for key in attacks}
    tried = [key for x in probes.get("pgd", ()) for key in attacks if on[key] == x]
    published = [key for key in tried if key[1].endswith(f"/{_ATTACK}")]
    fitting = published[:1] or [key for key in tried if "/linf" in key[1]] or tried
    return fitting[0] if len(fitting) == 1 else None


def _method_of(name: str, place, sizes: Cells, settings_by_place: Measures) -> Method:
    """Return the settings of the number at `place` for the column `name`."""
    dataset, condition, metric = place
    measure, _, how = condition.partition("/")
    if name != "pgd":
        excluded = metric.partition("_without_")[2]
        unlike = _unlike(settings_by_place.get((measure, dataset), {}))
        how = ", ".join(
            filter(None, (f"without {excluded}" if excluded else "", unlike))
        )
    # Other metrics have n over several conditions, or over decisions for either cue.
    alone = metric in ("accuracy", "real_accuracy", "pgd_accuracy")
    n = sizes.get(place, math.nan) if alone else math.nan
    return _method((measure, dataset), settings_by_place, how, n)


def _filled(
    mean: corruption_error.BenchmarkMean, settings_by_place: Measures
) -> Method:
    """Return the settings of a mean over corruptions: published files, measures, or both."""
    how = _unlike(settings_by_place.get(mean.source, {}))
    if not mean.files:
        return _method(mean.source, settings_by_place, how)
    if mean.source == corruption_error.FILES:
        return Method("published files")
    return Method(f"{mean.files} published files and {mean.source[1]}", how=how)


def _curves(cells: Cells, methods: Mapping[str, Method]) -> dict[str, float]:
    """Return accuracy ratios by cut-off, and thresholds by frequency, as columns of a row."""
    measured = {"accuracy_ratio": methods.get("low_freq") or methods.get("high_freq")}
    measured["critical_band_threshold"] = methods.get("cb_bw")
    columns = {}
    for (dataset, condition, metric), value in cells.items():
        method, (measure, _, setting) = measured.get(metric), condition.partition("/")
        match = _CURVE.fullmatch(setting)
        if method and match and (measure, dataset) == (method.measure, method.dataset):
            kind = match[1].replace("noise at", "threshold")
            columns[f"{kind}_{float(match[2]):g}"] = value
    return columns


# The table of models.


@dataclasses.dataclass(frozen=True, eq=False)
class Models:
    """Table of models with their benchmarks, averages and biases, one row per model.

    frame: index model; name, training (its category), epsilon (strength of adversarial
      training, NaN without), benchmarks and averages in %, biases, low_<c> and high_<c>
      (accuracy ratio at a cut-off), threshold_<f> (of the critical band, at nominal
      cycles per image); where known, shape_n, the decisions for either cue that a shape
      bias is of, and shape_lower and shape_upper, its interval of 95 %.
    """

    source: str
    frame: pd.DataFrame
    members: Mapping[str, tuple[str, ...]]  # Measured benchmarks of each average.
    biases: tuple[str, ...]
    notes: tuple[str, ...]  # Caveats of these numbers, `counted` included.
    counted: tuple[str, ...]  # Notes on what counts as a model.
    methods: pd.DataFrame | None  # Settings of each column, if known.

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The benchmarks of all averages."""
        return sum(self.members.values(), ())

    def places(self, kind: str) -> dict[str, float]:
        """Return the columns "low_0.1", ... of a kind with the number in their name, sorted."""
        matches = (re.fullmatch(rf"{kind}_([\d.]+)", name) for name in self.frame)
        columns = {match[0]: float(match[1]) for match in matches if match}
        return dict(sorted(columns.items(), key=lambda item: item[1]))


def build_models(
    frame: pd.DataFrame,
    *,
    source: str,
    counted: Sequence[str] = (),
    notes: Sequence[str] = (),
    methods: pd.DataFrame | None = None,
) -> Models:
    """Return the table of models with averages, and notes on missing measures.

    Benchmarks that no model has are not part of the averages. A model without one of the
    other benchmarks has no average, since a mean over fewer data sets is another measure.
    Raises ValueError if there is no bias or no benchmark.
    """
    frame = frame.dropna(axis=1, how="all").copy()
    if "epsilon" not in frame:
        frame["epsilon"] = math.nan
    published = "imagenet" in frame
    known = (MEMBERS if published else OTHERS).items()
    members = {name: tuple(x for x in ones if x in frame) for name, ones in known}
    members = {name: ones for name, ones in members.items() if ones}
    biases = tuple(name for name in BIASES if name in frame)
    for kind, found in (("bias", biases), ("benchmark", members)):
        if not found:
            raise ValueError(
                f"{source}: must have at least one {kind}, got none; measure one"
            )
    for name, ones in members.items():
        frame[name] = frame[list(ones)].mean(axis=1, skipna=False)
    wanted = sum(MEMBERS.values(), ()) if published else tuple(OTHERS)
    absent = [TITLES.get(x, x) for x in (*BIASES, *wanted) if x not in frame]
    all_notes = [*counted, *notes]
    if absent:
        all_notes += [
            f"Not measured, or undefined for every model: {', '.join(absent)}."
        ]
    all_notes += _lacking(frame[[*sum(members.values(), ()), *biases]])
    all_notes += few_decisions(frame.get("shape_n", {}))
    return Models(
        source=source,
        frame=frame,
        members=members,
        biases=biases,
        notes=tuple(all_notes),
        counted=tuple(counted),
        methods=methods,
    )


def few_decisions(counts: Mapping[str, float] | pd.Series) -> list[str]:
    """Return a note on models with a shape bias from fewer than 10 decisions, if any."""
    names = [f"{name} ({n:.0f})" for name, n in counts.items() if n < FEW]
    few = f"fewer than {FEW} decisions for either cue"
    note = f"A shape bias from {few} is unreliable: {', '.join(names)}."
    return [note] if names else []


def decisions_text(n: float) -> str:
    """Return the number of decisions behind a shape bias as text, with * below 10."""
    return f"{n:,.0f}" + ("*" if n < FEW else "")


def _lacking(frame: pd.DataFrame) -> Iterator[str]:
    """Yield notes on measures that some models lack, with the names of these models."""
    names_by_models: dict[tuple[str, ...], list[str]] = {}
    for name in frame:
        missing = tuple(frame.index[frame[name].isna()])
        names_by_models.setdefault(missing, []).append(TITLES.get(name, name))
    names_by_models.pop((), None)
    for models, names in names_by_models.items():
        note = f"{', '.join(names)}: {len(models)} of {len(frame)} models have no value and are"
        yield f"{note} left out of analyses of it: {tables.few(models)}."


def read_kinds(path: str) -> pd.DataFrame:
    """Return name, training and epsilon by model, from a CSV file with one line per model.

    Raises ValueError with file and line.
    """
    columns, rows = ("model", "name", "training"), {}
    lines = csv_rows.read_named(path, columns, "training", key="model")
    for model, (place, fields) in lines.items():
        epsilon = csv_rows.parse_number(fields.get("epsilon", ""), "epsilon", place)
        name, training = fields["name"] or model, fields["training"]
        rows[model] = {"name": name, "training": training, "epsilon": epsilon}
    return pd.DataFrame.from_dict(rows, orient="index")
