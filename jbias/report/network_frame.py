"""Classes and functions for the table of models: benchmarks, biases, averages, and settings.

The averages cover the same benchmarks as in Gavrikov and Keuper, CVPR 2024,
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

from jbias.measures import corruption_error, critical_band
from jbias.report import csv_rows, network_records, tables

Measurement, Measures = network_records.Measurement, network_records.Measures
Cells = network_records.Cells
_NOTHING: Mapping = MappingProxyType({})

AT = "adversarial_training"
# Benchmarks of each unweighted average for models of ImageNet, as published.
MEMBERS = corruption_error.CATEGORIES
# Averages for models of other data sets, such as the embedded data set.
OTHERS = {
    "ID": ("test", "val"),
    "Robustness": ("corrupted", "imagenet_c", "imagenet_cbar"),
    "Concepts": ("sketch", "edge", "silhouette", "stylized", "recoloured"),
    "Adversarial": ("pgd",),
}
BIASES = ("shape", "low_freq", "high_freq", "cb_bw", "cb_cf", "cb_pns")
FEW = 10  # A shape bias from fewer decisions is unreliable.
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


class NumberSettings(NamedTuple):
    """Settings with which one number of one model was measured; None if unknown."""

    dataset: str
    measure: str = ""  # Name of the measure, if any.
    how: str = (
        ""  # Options that differ from the published options; all options of an attack.
    )
    images: int | None = None
    fingerprint: str | None = None  # Of the data set.
    rule: str | None = None  # Rule that turns logits into decisions.

    @property
    def text(self) -> str:
        """The data set and the options of the measure, as shown on a page."""
        return ", ".join(filter(None, (self.dataset, self.how)))


SettingsByColumn = Mapping[str, NumberSettings]


def _number_settings(
    measure: str, dataset: str, measures: Measures, *, how: str, n: float = math.nan
) -> NumberSettings:
    """Return the settings with which a number was measured on one data set.

    measure: name of the measure; "" for accuracy. measures: settings of all measurements. how:
    options that differ from the published options, as text. n: number of images if the settings
    have none; NaN: unknown. If the settings of the measure and of the data set both have a number
    of images, the smaller one is used.
    """
    settings = measures.get((measure or "accuracy", dataset), {})
    measure_settings = settings.get("measure", {})
    dataset_settings = settings.get("dataset", {})
    sizes = [measure_settings.get("images"), dataset_settings.get("n")]
    images = min(filter(None, sizes), default=None if math.isnan(n) else int(n))
    return NumberSettings(
        dataset,
        measure,
        how=how,
        images=images,
        fingerprint=dataset_settings.get("fingerprint"),
        rule=next(iter(measure_settings.get("aggregates", ())), None),
    )


def _differing_options(settings: Mapping[str, Any]) -> str:
    """Return the options of a measure that may differ from the published options, as text.

    The text is such as "size 16, steps 10"; "" without such options. settings: settings of the
    measurement.
    """
    options = sorted(settings.get("measure", {}).get("options", {}).items())
    return ", ".join(f"{key} {value}" for key, value in options if key not in _FREE)


def compare_settings(
    models: Mapping[str, SettingsByColumn],
) -> tuple[list[str], pd.DataFrame]:
    """Return (notes on columns measured differently, settings with one row per column).

    Columns of the frame: column, sets (text), how (differing options, or "as published"), rules
    (text), images and images_most (smallest and largest number of images) and models (number of
    models).

    models: settings by column, by model. A column has a note if its data sets, numbers of images,
    fingerprints or decision rules differ between models. Unknown numbers of images are None. Raises
    ValueError if the options of a column differ.
    """
    records = [
        (model, column, *settings)
        for model, settings_by_column in models.items()
        for column, settings in settings_by_column.items()
    ]
    fields = ["model", "column", *NumberSettings._fields]
    frame = pd.DataFrame(records, columns=fields, dtype=object)
    notes = []
    rows = []
    for column, part in frame.groupby("column", sort=False):
        title = TITLES.get(column, column)
        hows = part["how"].replace("", USUAL)
        if hows.nunique() > 1:
            raise ValueError(
                f"{title}: must be measured with the same options for all models, got "
                f"{_models_by_text(part, hows)}; measure all with one of these, or leave out the "
                "models of the other"
            )
        differing = [name for name in _DIFFER if part[name].nunique(dropna=False) > 1]
        if differing:
            texts = [
                ", ".join(
                    _DIFFER[name].format(row[name] or "unknown") for name in differing
                )
                for row in part.to_dict("records")
            ]
            notes.append(
                f"{title} has different images or rules: {_models_by_text(part, texts)}."
            )
        images = part["images"].dropna()
        rules = part["rule"].dropna().unique()
        row = {"column": column, "sets": ", ".join(part["dataset"].unique())}
        row |= {"how": hows.iloc[0], "rules": ", ".join(rules)}
        row["images"] = min(images, default=None)
        row["images_most"] = max(images, default=None)
        rows.append(row | {"models": len(part)})
    return notes, pd.DataFrame(rows)


def _models_by_text(settings: pd.DataFrame, texts: Sequence[str]) -> str:
    """Return distinct texts with the models that share them: "rule a (x, y); rule b (z)".

    settings: one row per model, with a column model. texts: one per row. At most 4 models of a text
    are named, followed by the number of the remaining models.
    """
    names_by_text = settings["model"].groupby(texts, sort=False).agg(list)
    return "; ".join(
        f"{text} ({tables.few(names)})" for text, names in names_by_text.items()
    )


# Conversion of records to a row.

# Data sets that probes modify, in order of preference; all other data sets come after these.
_SETS = ("imagenet", "test", "val", "valid", "cue_conflict")
_BANDS = ("cb_bw", "cb_cf", "cb_pns")
# Probe and metric of each bias.
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
_ATTACK = "linf 0.5/255"  # As published; another attack is used if it is the only one.
# Benchmarks that probes make from another data set, by the family of corruptions.
_CORRUPTION_PROBES = {"imagenet_c": "imagenet_c", "imagenet_cbar": "imagenet_c_bar"}
_MEANS = ("corruption_accuracy", "corruption_accuracy_without_frost")
_BENCHMARKS = tuple(dict.fromkeys(sum((*MEMBERS.values(), *OTHERS.values()), ())))
# Probe and metric of accuracy on an unchanged data set.
_PLAIN = tuple(itertools.product(("", "plain"), ("accuracy", "real_accuracy")))
_CURVE = re.compile(r"(low|high|noise at) ([\d.]+)")


class ModelRow(NamedTuple):
    """One checkpoint's numbers by column of the frame, and the settings of their measures."""

    numbers: Mapping[str, float]
    settings: SettingsByColumn

    @property
    def measured_on(self) -> dict[str, str]:
        """Data set and options as text, by column, for columns not named after their data set."""
        return {
            column: settings.text
            for column, settings in self.settings.items()
            if settings.dataset != column
        }


@functools.lru_cache(maxsize=64)
def row_of(network: network_records.MeasuredNetwork) -> ModelRow:
    """Return the row of a measured network in the table of models."""
    return row(network.cells(), network.cells("n"), network.measures)


def row(
    cells: Cells, sizes: Cells = _NOTHING, measures: Measures = _NOTHING
) -> ModelRow:
    """Return the row of one checkpoint in the table of models: numbers and settings.

    cells: values by (data set, condition, metric). sizes: numbers of images or decisions for the
    same keys. measures: settings with the probe of each measure; without settings, the name of a
    measure is its probe. Columns: benchmarks (in %), keys of `_BIASES`, shape_n (only with `sizes`)
    and the columns of `_curves`; only benchmarks and `BIASES` have settings. Columns that were not
    measured are absent; NaN is an undefined number, such as the width of a band that was not found.
    """
    measures = {
        (measure, dataset.replace("-", "_")): settings
        for (measure, dataset), settings in measures.items()
    }
    measurements_by_probe = _measurements_by_probe(cells, measures)
    numbers = {}
    settings = {}
    imagenet = _cell_key(cells, measurements_by_probe, _PLAIN, ["imagenet"])
    means = corruption_error.corruption_means(cells) if imagenet else {}
    for name in _BENCHMARKS:
        key = _cell_key(cells, measurements_by_probe, _PLAIN, [name])
        if not key and name in means:
            numbers[name] = 100 * means[name].value
            settings[name] = _mean_settings(means[name], measures)
            continue
        candidates = itertools.product([_CORRUPTION_PROBES.get(name)], _MEANS)
        key = key or _cell_key(cells, measurements_by_probe, candidates)
        if not key and name == "pgd":
            key = _attack_key(cells, measurements_by_probe)
        if key:
            numbers[name] = 100 * cells[key]
            settings[name] = _column_settings(name, key, sizes, measures)
    for name, (probe, metric) in _BIASES.items():
        key = _cell_key(cells, measurements_by_probe, [(probe, metric), ("", metric)])
        if key:
            # Rounded, so that equal bands tie in spite of the last digits of a fit.
            is_band = name.startswith("cb_")
            numbers[name] = round(cells[key], 6) if is_band else cells[key]
            if name in BIASES:
                settings[name] = _column_settings(name, key, sizes, measures)
            if name == "shape" and key in sizes:
                numbers["shape_n"] = sizes[key]
    numbers = _without_flagged_bands(numbers | _curves(cells, settings))
    return ModelRow(numbers, settings)


def _without_flagged_bands(row: dict[str, float]) -> dict[str, float]:
    """Replace the numbers of flagged critical bands by NaN in place, and return the row.

    `critical_band.flag_of_numbers` returns the flag. Records of earlier versions have numbers for
    such bands. Failed fits, wider than `DEGENERATE`, keep their numbers. A row without columns
    threshold_<frequency> is unchanged. row: numbers by column.
    """
    octaves = [
        float(key.removeprefix("threshold_"))
        for key in row
        if key.startswith("threshold_")
    ]
    for suffix in ("", "_raw"):
        bandwidth = row.get(f"cb_bw{suffix}", math.nan)
        centre = row.get(f"cb_cf{suffix}", math.nan)
        is_unknown = math.isnan(bandwidth) or math.isnan(centre)
        if not octaves or is_unknown or bandwidth > DEGENERATE:
            continue
        if critical_band.flag_of_numbers(bandwidth, centre, octaves):
            row |= {
                f"{key}{suffix}": math.nan for key in _BANDS if f"{key}{suffix}" in row
            }
    return row


def _measurements_by_probe(
    cells: Cells, measures: Measures
) -> dict[str, list[Measurement]]:
    """Return the measurements by name of the probe, preferred ones first.

    Measurements are sorted by data set (`_SETS` first, then by name), then published options first,
    then measures with the name of the probe first. Without settings, the name of a measure is its
    probe. The probe "corruptions" is listed under its family, "imagenet_c" or "imagenet_c_bar".
    """
    ranks_by_probe: dict[str, list] = {}
    for dataset, condition, _ in cells:
        probe = measure = condition.partition("/")[0]
        settings = measures.get((measure, dataset), {})
        if settings:
            probe = settings["measure"]["probe"]
            if probe == "corruptions":
                probe = _corruption_family(settings["measure"].get("options", {}))
        position = _SETS.index(dataset) if dataset in _SETS else len(_SETS)
        # Prefer published options, then measures with the name of the probe.
        is_different = bool(_differing_options(settings))
        rank = position, dataset, is_different, measure != probe, measure
        ranks_by_probe.setdefault(probe, []).append(rank)
    return {
        probe: [
            Measurement(measure, dataset)
            for _, dataset, *_, measure in sorted({*ranks})
        ]
        for probe, ranks in ranks_by_probe.items()
    }


def _corruption_family(options: Mapping[str, Any]) -> str:
    """Return the family of corruptions of a measure: "imagenet_c" or "imagenet_c_bar".

    options: options of the measure. Its option `names` is the name of a family, or a list of
    corruptions: "imagenet_c_bar" if all corruptions are of ImageNet-C-bar, else "imagenet_c".
    Without this option, the family is "imagenet_c".
    """
    names = options.get("names", "imagenet_c")
    if isinstance(names, str):
        return names
    is_bar = {*names} <= {*corruption_error.CORRUPTED["imagenet_cbar"]}
    return "imagenet_c_bar" if is_bar else "imagenet_c"


CellKey = tuple[str, str, str]  # Data set, condition and metric.
MeasurementsByProbe = Mapping[str, Sequence[Measurement]]


def _cell_key(
    cells: Cells,
    measurements_by_probe: MeasurementsByProbe,
    candidates: Iterable[tuple[str | None, str]],
    datasets: Sequence[str] = (),
) -> CellKey | None:
    """Return the key of the first candidate that was measured, or None.

    The key is (data set, measure, metric) of the preferred measurement of the candidate's probe.
    candidates: pairs (probe, metric); a candidate without a probe (None) is skipped. datasets:
    allowed data sets; () allows all.
    """
    for probe, metric in candidates:
        for measure, dataset in measurements_by_probe.get(probe, ()):
            key = dataset, measure, metric
            if key in cells and (not datasets or dataset in datasets):
                return key
    return None


def _attack_key(
    cells: Cells, measurements_by_probe: MeasurementsByProbe
) -> CellKey | None:
    """Return the key of accuracy under PGD, or None if there is no clear choice.

    The key is (data set, "<measure>/<attack>", "pgd_accuracy"). The attack is the published attack
    if it was measured; else the only attack in the norm linf; if no attack is in linf, the only
    attack. None without attacks, and if several attacks are left.
    """
    attacks: list[CellKey] = []
    for measurement in measurements_by_probe.get("pgd", ()):
        for dataset, condition, metric in cells:
            measure = condition.partition("/")[0]
            if metric == "pgd_accuracy" and (measure, dataset) == measurement:
                attacks.append((dataset, condition, metric))
    published = [key for key in attacks if key[1].endswith(f"/{_ATTACK}")]
    linf = [key for key in attacks if "/linf" in key[1]]
    eligible = published[:1] or linf or attacks
    return eligible[0] if len(eligible) == 1 else None


def _column_settings(
    name: str, key: CellKey, sizes: Cells, measures: Measures
) -> NumberSettings:
    """Return the settings with which the number of a key was measured.

    name: name of the column. sizes: numbers of images by key; used for accuracies only. measures:
    settings of measurements. The options of "pgd" are the attack. The options of other columns are
    the options that differ from the published options, and a corruption that is left out.
    """
    dataset, condition, metric = key
    measure, _, options_text = condition.partition("/")
    if name != "pgd":
        excluded = metric.partition("_without_")[2]
        options = [
            f"without {excluded}" if excluded else "",
            _differing_options(measures.get((measure, dataset), {})),
        ]
        options_text = ", ".join(filter(None, options))
    # Other metrics have n over several conditions, or over shape and texture decisions.
    has_images = metric in ("accuracy", "real_accuracy", "pgd_accuracy")
    n = sizes.get(key, math.nan) if has_images else math.nan
    return _number_settings(measure, dataset, measures, how=options_text, n=n)


def _mean_settings(
    mean: corruption_error.BenchmarkMean, measures: Measures
) -> NumberSettings:
    """Return the settings of a mean over corruptions: of published files, a measure, or both.

    The field dataset is "published files" for published files alone. For files and a measure, the
    field is text such as "15 published files and imagenet". With files, other fields than dataset
    and how are unknown.
    """
    options_text = _differing_options(measures.get(mean.source, {}))
    measure, dataset = mean.source
    if not mean.files:
        return _number_settings(measure, dataset, measures, how=options_text)
    if mean.source == corruption_error.FILES:
        return NumberSettings("published files")
    return NumberSettings(
        f"{mean.files} published files and {dataset}", how=options_text
    )


def _curves(cells: Cells, settings: SettingsByColumn) -> dict[str, float]:
    """Return accuracy ratios by cut-off, and thresholds by frequency, as columns of a row.

    settings: settings of the row's columns, with the measurement that has the curves. Keys are
    low_<cut-off>, high_<cut-off> and threshold_<frequency>.
    """
    sources = {
        "accuracy_ratio": settings.get("low_freq") or settings.get("high_freq"),
        "critical_band_threshold": settings.get("cb_bw"),
    }
    columns = {}
    for (dataset, condition, metric), value in cells.items():
        source = sources.get(metric)
        measure, _, filter_name = condition.partition("/")
        match = _CURVE.fullmatch(filter_name)
        if source and match and (measure, dataset) == (source.measure, source.dataset):
            kind = match[1].replace("noise at", "threshold")
            columns[f"{kind}_{float(match[2]):g}"] = value
    return columns


# The table of models.


@dataclasses.dataclass(frozen=True, eq=False)
class ModelTable:
    """Table of models with their benchmarks, averages and biases, one row per model.

    frame: indexed by model. Columns: name, training (its category), epsilon (strength of
      adversarial training, NaN without), benchmarks and averages in %, biases, low_<c> and
      high_<c> (accuracy ratio at a cut-off) and threshold_<f> (of the critical band, at nominal
      cycles per image). If known, also shape_n, the number of shape and texture decisions, and
      shape_lower and shape_upper, the ends of the 95 % interval of the shape bias.
    """

    source: str
    frame: pd.DataFrame
    members: Mapping[str, tuple[str, ...]]  # Measured benchmarks of each average.
    biases: tuple[str, ...]
    notes: tuple[str, ...]  # Caveats of these numbers, including `counting_notes`.
    counting_notes: tuple[str, ...]  # Notes on networks that are seeds of one model.
    settings: pd.DataFrame | None  # Settings of each column, if known.

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The benchmarks of all averages."""
        return sum(self.members.values(), ())

    def curve_columns(self, kind: str) -> dict[str, float]:
        """Return the number in the name of each column of a kind, such as {"low_0.1": 0.1}.

        Sorted by number. kind: low, high or threshold.
        """
        matches = (re.fullmatch(rf"{kind}_([\d.]+)", name) for name in self.frame)
        columns = {match[0]: float(match[1]) for match in matches if match}
        return dict(sorted(columns.items(), key=lambda item: item[1]))


def build_models(
    frame: pd.DataFrame,
    *,
    source: str,
    counting_notes: Sequence[str] = (),
    notes: Sequence[str] = (),
    settings: pd.DataFrame | None = None,
) -> ModelTable:
    """Return the table of models with averages, and notes on missing measures.

    frame: see `ModelTable`, without averages. source, counting_notes, settings: fields of the
    table. notes: first notes of the table.

    The averages are defined by `MEMBERS` if the frame has a column imagenet, else by `OTHERS`.
    Columns without any number are dropped, and are not part of an average. A model that lacks a
    benchmark of an average has NaN for this average, because a mean over fewer data sets is another
    measure. Raises ValueError if there is no bias or no benchmark.
    """
    frame = frame.dropna(axis=1, how="all").copy()
    if "epsilon" not in frame:
        frame["epsilon"] = math.nan
    is_imagenet = "imagenet" in frame
    members = {}
    for average, benchmarks in (MEMBERS if is_imagenet else OTHERS).items():
        measured = tuple(name for name in benchmarks if name in frame)
        if measured:
            members[average] = measured
    biases = tuple(name for name in BIASES if name in frame)
    for kind, names in (("bias", biases), ("benchmark", members)):
        if not names:
            raise ValueError(
                f"{source}: must have at least one {kind}, got none; measure one"
            )
    for average, benchmarks in members.items():
        frame[average] = frame[list(benchmarks)].mean(axis=1, skipna=False)
    expected = sum(MEMBERS.values(), ()) if is_imagenet else tuple(OTHERS)
    absent = [TITLES.get(x, x) for x in (*BIASES, *expected) if x not in frame]
    all_notes = [*counting_notes, *notes]
    if absent:
        all_notes.append(
            f"Not measured, or undefined for every model: {', '.join(absent)}. Measure these "
            "with jbias evaluate --suite=..."
        )
    all_notes += _lacking(frame[[*sum(members.values(), ()), *biases]])
    all_notes += few_decisions(frame.get("shape_n", {}))
    return ModelTable(
        source=source,
        frame=frame,
        members=members,
        biases=biases,
        notes=tuple(all_notes),
        counting_notes=tuple(counting_notes),
        settings=settings,
    )


def few_decisions(counts: Mapping[str, float] | pd.Series) -> list[str]:
    """Return a list with one note on the models that have fewer than 10 decisions, or [].

    The decisions are those of the shape bias. counts: number of decisions by model.
    """
    names = [f"{name} ({n:.0f})" for name, n in counts.items() if n < FEW]
    note = (
        f"A shape bias from fewer than {FEW} decisions for either cue is unreliable: "
        f"{', '.join(names)}."
    )
    return [note] if names else []


def decisions_text(n: float) -> str:
    """Return a number of decisions as text, with "*" at the end if below 10."""
    return f"{n:,.0f}" + ("*" if n < FEW else "")


def _lacking(frame: pd.DataFrame) -> Iterator[str]:
    """Yield notes on measures that some models lack, with the names of up to 4 of these models.

    Measures that the same models lack share a note. frame: one row per model, one column per
    measure.
    """
    names_by_models: dict[tuple[str, ...], list[str]] = {}
    for name in frame:
        missing = tuple(frame.index[frame[name].isna()])
        names_by_models.setdefault(missing, []).append(TITLES.get(name, name))
    names_by_models.pop((), None)
    for models, names in names_by_models.items():
        yield (
            f"{', '.join(names)}: {len(models)} of {len(frame)} models have no value and are "
            f"left out of analyses of it: {tables.few(models)}."
        )


def read_kinds(path: str) -> pd.DataFrame:
    """Return a frame with name, training and epsilon, indexed by model, from a CSV file.

    The file has one line per model and the columns model, name, training and, optionally, epsilon.
    An empty name becomes the model; an empty epsilon becomes NaN. Raises ValueError, with file and
    line, for an empty training, a model that occurs twice, and an epsilon that is not a finite
    number.
    """
    columns = ("model", "name", "training")
    rows = {}
    lines = csv_rows.read_named(path, columns, "training", key="model")
    for model, (place, fields) in lines.items():
        epsilon = csv_rows.parse_number(fields.get("epsilon", ""), "epsilon", place)
        name = fields["name"] or model
        training = fields["training"]
        rows[model] = {"name": name, "training": training, "epsilon": epsilon}
    return pd.DataFrame.from_dict(rows, orient="index")
