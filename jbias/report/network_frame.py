"""The frame of models: benchmarks and biases of each, and how they were measured.

Which benchmarks are averaged: Gavrikov and Keuper, CVPR 2024,
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
# What each average is the unweighted mean of: for models of ImageNet, as published.
MEMBERS = corruption_error.CATEGORIES
# For others, such as those of the embedded set.
OTHERS = {
    "ID": ("test", "val"),
    "Robustness": ("corrupted", "imagenet_c", "imagenet_cbar"),
    "Concepts": ("sketch", "edge", "silhouette", "stylized", "recoloured"),
    "Adversarial": ("pgd",),
}
BIASES = ("shape", "low_freq", "high_freq", "cb_bw", "cb_cf", "cb_pns")
FEW = 10  # Decisions for either cue; a shape bias of fewer says next to nothing.
# Where no shape of a band can be fitted the reference prints a width of 11295.35.
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

# How a number was measured.

# Options that change neither a benchmark nor a bias, or that its metric tells.
_FREE = ("names", "frost", "errors", "draws", "continuous", "classes", "low", "high")
USUAL = "as published"
_DIFFER = {"dataset": "{}", "images": "{} images", "fingerprint": "files {:.8}"}
_DIFFER["rule"] = "rule {}"


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


Methods = Mapping[str, Method]  # By column.


def _method(place: Place, told: Measures, how: str, n: float = math.nan) -> Method:
    """Gives how a place was measured; n: its images, where no file tells."""
    measure, dataset = place
    made = told.get((measure or "accuracy", dataset), {})
    asked, about = made.get("measure", {}), made.get("dataset", {})
    sizes = [size for size in (asked.get("images"), about.get("n")) if size]
    images = min(sizes, default=None if math.isnan(n) else int(n))
    rule = next(iter(asked.get("aggregates", ())), None)
    return Method(dataset, measure, how, images, about.get("fingerprint"), rule)


def _unlike(told: Mapping[str, Any]) -> str:
    """Says which options of a measure are not the published ones."""
    options = sorted(told.get("measure", {}).get("options", {}).items())
    return ", ".join(f"{key} {value}" for key, value in options if key not in _FREE)


def compare_methods(models: Mapping[str, Methods]) -> tuple[list[str], pd.DataFrame]:
    """Says of each column which models differ, a line each, and how it was measured.

    models: by model and column. The frame has a row for each column. Images may differ,
    and the rule by which decisions are made. ValueError where the measure itself does.
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
            ways = f"got {_grouped(part, hows)}; measure all in one, or leave out"
            told = f"{title}: must be measured in one way, {ways}"
            raise ValueError(f"{told} the models of the other")
        several = [name for name in _DIFFER if part[name].nunique(dropna=False) > 1]
        if several:
            shown = {x: _DIFFER[x].format for x in several}
            each = [[how(x or "unknown") for x in part[k]] for k, how in shown.items()]
            words = [*map(", ".join, zip(*each))]
            told = "is not of the same images and rule for all"
            lines.append(f"{title} {told}: {_grouped(part, words)}.")
        images, rules = part["images"].dropna(), part["rule"].dropna().unique()
        row = {"column": column, "sets": ", ".join(part["dataset"].unique())}
        row |= {"how": hows.iloc[0], "rules": ", ".join(rules)}
        row["images"] = min(images, default=None)
        row["images_most"] = max(images, default=None)
        rows.append(row | {"models": len(part)})
    return lines, pd.DataFrame(rows)


def _grouped(methods: pd.DataFrame, words: Sequence[str]) -> str:
    """Names the models that are alike, by the words that are said of them."""
    alike = methods["model"].groupby(words, sort=False).agg(list).items()
    return "; ".join(f"{word} ({tables.few(names)})" for word, names in alike)


# Records to a row.

# Sets that probes change, before all others.
_SETS = ("imagenet", "test", "val", "valid", "cue_conflict")
# The probe and the metric that hold a number.
_BANDS = {"cb_bw": "bandwidth", "cb_cf": "center_frequency"}
_BANDS |= {"cb_pns": "peak_noise_sensitivity"}
_BIASES = {"shape": ("shape_bias", "shape_bias")}
_BIASES |= {f"shape_{x}": ("shape_bias", f"shape_bias_{x}") for x in ("lower", "upper")}
_BIASES |= {f"{x}_freq": ("spectral", f"{x}_freq_bias") for x in ("low", "high")}
for _end, _kind in (("", ""), ("_raw", "_absolute")):
    for _key, _name in _BANDS.items():
        _BIASES[_key + _end] = "critical_band", f"critical_band_{_name}{_kind}"
_ATTACK = "linf 0.5/255"  # As published; any other counts if it is the only one.
# Benchmarks that probes make of another set; corruptions by their family.
_MADE = {"imagenet_c": "imagenet_c", "imagenet_cbar": "imagenet_c_bar"}
_MEANS = ("corruption_accuracy", "corruption_accuracy_without_frost")
_BENCHMARKS = tuple(dict.fromkeys(sum((*MEMBERS.values(), *OTHERS.values()), ())))
_OWN = tuple(itertools.product(("", "plain"), ("accuracy", "real_accuracy")))
_CURVE = re.compile(r"(low|high|noise at) ([\d.]+)")


class Row(NamedTuple):
    """One checkpoint's numbers as columns of the frame, and how they were measured."""

    numbers: Mapping[str, float]
    methods: Methods

    @property
    def places(self) -> dict[str, str]:
        """On which sets the biases and some benchmarks were measured, and how."""
        return {k: one.text for k, one in self.methods.items() if one.dataset != k}


@functools.lru_cache(maxsize=64)
def row_of(network: network_records.Network) -> Row:
    """Gives the row of a measured network."""
    return row(network.cells(), network.cells("n"), network.measures)


def row(cells: Cells, sizes: Cells = _NOTHING, measures: Measures = _NOTHING) -> Row:
    """Gives one checkpoint's row.

    sizes: of what a number is a share. measures: how each was made, by which a measure is
    known by its probe, whatever its name; without, the name is taken for the probe.
    Benchmarks are in %. What was not measured is absent; NaN is a number that does not
    exist, such as the width of no band.
    """
    told = {(m, on.replace("-", "_")): one for (m, on), one in measures.items()}
    probes = _probes(cells, told)
    found, made = {}, {}
    own = _place(cells, probes, _OWN, ["imagenet"])
    means = corruption_error.corruption_means(cells) if own else {}
    for name in _BENCHMARKS:
        place = _place(cells, probes, _OWN, [name])
        if not place and name in means:
            found[name] = 100 * means[name].value
            made[name] = _filled(means[name], told)
            continue
        made_here = itertools.product([_MADE.get(name)], _MEANS)
        place = place or _place(cells, probes, made_here)
        place = place or (_attack(cells, probes) if name == "pgd" else None)
        if place:
            found[name] = 100 * cells[place]
            made[name] = _method_of(name, place, sizes, told)
    for name, (probe, metric) in _BIASES.items():
        if place := _place(cells, probes, ((probe, metric), ("", metric))):
            # Like bands must tie, which the last digits of a fit would undo.
            is_band = name.startswith("cb_")
            found[name] = round(cells[place], 6) if is_band else cells[place]
            if name in BIASES:
                made[name] = _method_of(name, place, sizes, told)
            if name == "shape" and place in sizes:
                found["shape_n"] = sizes[place]
    return Row(_checked_bands(found | _curves(cells, made)), made)


def _checked_bands(row: dict[str, float]) -> dict[str, float]:
    """Return the row with NaN for numbers of bands that earlier versions did not flag."""
    octaves = [float(key[10:]) for key in row if key.startswith("threshold_")]
    for end in ("", "_raw"):
        numbers = [row.get(f"{key}{end}", math.nan) for key in ("cb_bw", "cb_cf")]
        if not octaves or any(map(math.isnan, numbers)) or numbers[0] > DEGENERATE:
            continue
        if critical_band.flag_of_numbers(*numbers, octaves):
            row |= {f"{key}{end}": math.nan for key in _BANDS if f"{key}{end}" in row}
    return row


def _probes(cells: Cells, told: Measures) -> dict[str, list[Place]]:
    """Gives the measures of each probe and their sets, those that count first."""
    found: dict[str, list] = {}
    for dataset, condition, _ in cells:
        probe = measure = condition.partition("/")[0]
        made = told.get((measure, dataset), {})
        if made:
            probe = made["measure"]["probe"]
            if probe == "corruptions":
                probe = _family(made["measure"].get("options", {}))
        at = _SETS.index(dataset) if dataset in _SETS else len(_SETS)
        # As published before others, and under the probe's name.
        rank = at, dataset, bool(_unlike(made)), measure != probe, measure
        found.setdefault(probe, []).append(rank)
    return {
        probe: [(measure, dataset) for _, dataset, *_, measure in sorted({*ranks})]
        for probe, ranks in found.items()
    }


def _family(options: Mapping[str, Any]) -> str:
    """Gives the family that corruptions are of."""
    names = options.get("names", "imagenet_c")
    if isinstance(names, str):
        return names
    bar = {*names} <= {*corruption_error.CORRUPTED["imagenet_cbar"]}
    return "imagenet_c_bar" if bar else "imagenet_c"


def _place(cells: Cells, probes: Mapping, wanted: Iterable, sets: Sequence = ()):
    """Gives the first key of cells with a probe and metric, on one of the sets or any."""
    for probe, metric in wanted:
        for measure, dataset in probes.get(probe, ()):
            key = dataset, measure, metric
            if key in cells and (not sets or dataset in sets):
                return key
    return None


def _attack(cells: Cells, probes: Mapping[str, Sequence[Place]]):
    """Gives the key of the published attack, or of the only one; of l2 if no other."""
    attacks = [key for key in cells if key[2] == "pgd_accuracy"]
    on = {key: (key[1].partition("/")[0], key[0]) for key in attacks}
    tried = [key for x in probes.get("pgd", ()) for key in attacks if on[key] == x]
    published = [key for key in tried if key[1].endswith(f"/{_ATTACK}")]
    fitting = published[:1] or [key for key in tried if "/linf" in key[1]] or tried
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


def _filled(mean: corruption_error.BenchmarkMean, told: Measures) -> Method:
    """Says of what a mean over corruptions is: published files, or not all of them."""
    how = _unlike(told.get(mean.source, {}))
    if not mean.files:
        return _method(mean.source, told, how)
    if mean.source == corruption_error.FILES:
        return Method("published files")
    return Method(f"{mean.files} published files and {mean.source[1]}", how=how)


def _curves(cells: Cells, made: Mapping[str, Method]) -> dict[str, float]:
    """Gives ratios by cut-off and thresholds by frequency, of the measures of the biases."""
    measured = {"accuracy_ratio": made.get("low_freq") or made.get("high_freq")}
    measured["critical_band_threshold"] = made.get("cb_bw")
    found = {}
    for (dataset, condition, metric), value in cells.items():
        of, (measure, _, rest) = measured.get(metric), condition.partition("/")
        match = _CURVE.fullmatch(rest)
        if of and match and (measure, dataset) == (of.measure, of.dataset):
            kind = match[1].replace("noise at", "threshold")
            found[f"{kind}_{float(match[2]):g}"] = value
    return found


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
        named = (re.fullmatch(rf"{kind}_([\d.]+)", name) for name in self.frame)
        found = {match[0]: float(match[1]) for match in named if match}
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
    known = (MEMBERS if published else OTHERS).items()
    members = {name: tuple(x for x in ones if x in frame) for name, ones in known}
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
    told += few_decisions(frame.get("shape_n", {}))
    return Models(source, frame, members, biases, tuple(told), tuple(counted), made)


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
    """Says which measures some models lack, and which models these are."""
    lacks: dict[tuple[str, ...], list[str]] = {}
    for name in frame:
        missing = tuple(frame.index[frame[name].isna()])
        lacks.setdefault(missing, []).append(TITLES.get(name, name))
    lacks.pop((), None)
    for models, names in lacks.items():
        told = f"{', '.join(names)}: {len(models)} of {len(frame)} models have none and are"
        yield f"{told} left out of what needs it: {tables.few(models)}."


def read_kinds(path: str) -> pd.DataFrame:
    """Reads model, name, training and, if any, epsilon of models: one line each.

    Raises ValueError by file and line.
    """
    needed, rows = ("model", "name", "training"), {}
    lines = csv_rows.read_named(path, needed, "training", key="model")
    for model, (place, fields) in lines.items():
        epsilon = csv_rows.parse_number(fields.get("epsilon", ""), "epsilon", place)
        name, training = fields["name"] or model, fields["training"]
        rows[model] = {"name": name, "training": training, "epsilon": epsilon}
    return pd.DataFrame.from_dict(rows, orient="index")
