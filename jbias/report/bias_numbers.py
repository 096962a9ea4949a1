"""A measured checkpoint's biases and benchmarks: its records to one row of numbers.

Conditions begin with the name of the measure, such as "spectral" for its bias and
"spectral/low 0.3" for a filter; accuracy on a set as it is has none.
"""

import math
import re
import types
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from jbias.evals import corruption_error
from jbias.report import bias_made, bias_models

Cells = Mapping[tuple[str, str, str], float]  # By data set, condition and metric.
_NO_SIZES: Cells = types.MappingProxyType({})
_NO_MEASURES: bias_made.Measures = types.MappingProxyType({})
# Sets that probes change, before all others.
_SETS = ("imagenet", "test", "val", "valid", "cue_conflict")
# The probes and metrics that hold a number; the first that is there counts.
_BIASES = {
    "shape": (("shape_bias", "shape_bias"), ("", "shape_bias")),
    "low_freq": (("spectral", "low_freq_bias"),),
    "high_freq": (("spectral", "high_freq_bias"),),
    "cb_bw": (("critical_band", "critical_band_bandwidth"),),
    "cb_cf": (("critical_band", "critical_band_center_frequency"),),
    "cb_pns": (("critical_band", "critical_band_peak_noise_sensitivity"),),
    "cb_bw_raw": (("critical_band", "critical_band_bandwidth_absolute"),),
    "cb_cf_raw": (("critical_band", "critical_band_center_frequency_absolute"),),
    "cb_pns_raw": (("critical_band", "critical_band_peak_noise_sensitivity_absolute"),),
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
    dict.fromkeys(
        name
        for members in (bias_models.MEMBERS, bias_models.OTHERS)
        for name in sum(members.values(), ())
    )
)
_OWN = (("", "accuracy"), ("", "real_accuracy"), ("plain", "accuracy"))
_OWN += (("plain", "real_accuracy"),)
_CURVES = {
    "accuracy_ratio": re.compile(r"(low|high) ([\d.]+)"),
    "critical_band_threshold": re.compile(r"(noise) at ([\d.]+)"),
}
_KINDS = {"low": "low", "high": "high", "noise": "threshold"}


def cells_of(records: pd.DataFrame, column: str = "value") -> Cells:
    """Gives one checkpoint's values by set, condition and metric; a set's - is _."""
    names = records[["dataset", "condition", "metric"]].astype(str)
    names["dataset"] = names["dataset"].str.replace("-", "_")
    keys = names.itertuples(index=False, name=None)
    return dict(zip(keys, records[column].astype(float), strict=True))


def row(
    cells: Cells, sizes: Cells = _NO_SIZES, measures: bias_made.Measures = _NO_MEASURES
) -> tuple[dict[str, float], dict[str, bias_made.Made]]:
    """Gives one checkpoint's numbers as columns of the frame, and how they were measured.

    sizes: of what a number is a share. measures: how each was made, by which a measure is
    known by its probe, whatever its name; without, the name is taken for the probe.
    Benchmarks are in %. What was not measured is absent; NaN is a number that does not
    exist, such as the width of no band.
    """
    told = {(m, on.replace("-", "_")): one for (m, on), one in measures.items()}
    probes = _probes(cells, told)
    found: dict[str, float] = {}
    made: dict[str, bias_made.Made] = {}
    means = {}
    if _place(cells, probes, _OWN, ["imagenet"]):
        means = corruption_error.corruption_means(cells)
    for name in _BENCHMARKS:
        place = _place(cells, probes, _OWN, [name])
        if not place and name in means:
            found[name] = 100 * means[name].value
            made[name] = _filled(means[name], told)
            continue
        place = place or _place(cells, probes, _MADE.get(name, ()))
        if not place and name == "pgd":
            place = _attack(cells, probes)
        if place:
            found[name] = 100 * cells[place]
            made[name] = _made(name, place, sizes, told)
    for name, wanted in _BIASES.items():
        place = _place(cells, probes, wanted)
        if place:
            found[name] = cells[place]
            if name.startswith("cb_"):
                # Like bands must tie, which the last digits of a fit would undo.
                found[name] = round(found[name], 6)
            if not name.endswith("_raw"):
                made[name] = _made(name, place, sizes, told)
            if name == "shape":
                found |= _rests(cells, sizes, place)
    return found | _curves(cells, made), made


def _probes(cells: Cells, told: bias_made.Measures) -> dict[str, list[bias_made.Place]]:
    """Gives the measures of each probe and their sets, those that count first."""
    found: dict[str, list[bias_made.Place]] = {"": []}
    sets = _sets(cells)
    for dataset, condition, _ in cells:
        measure = condition.partition("/")[0]
        probe = measure
        if (measure, dataset) in told:
            probe = told[measure, dataset]["measure"]["probe"]
            if probe == "corruptions":
                options = told[measure, dataset]["measure"].get("options", {})
                probe = _family(options.get("names", "imagenet_c"))
        of = found.setdefault(probe, [])
        if (measure, dataset) not in of:
            of.append((measure, dataset))

    def rank(place: bias_made.Place, probe: str) -> tuple:
        unlike = bias_made.unlike(told.get(place, {}))
        return sets.index(place[1]), bool(unlike), place[0] != probe, place[0]

    return {
        probe: sorted(of, key=lambda place, probe=probe: rank(place, probe))
        for probe, of in found.items()
    }


def _family(names: str | Sequence[str]) -> str:
    """Gives the family that corruptions are of."""
    if isinstance(names, str):
        return names
    return (
        "imagenet_c_bar"
        if set(names) <= set(corruption_error.CORRUPTED["imagenet_cbar"])
        else "imagenet_c"
    )


def _rests(cells: Cells, sizes: Cells, place) -> dict[str, float]:
    """Gives the interval of a shape bias and the decisions it is of, if they were kept."""
    *of, metric = place
    found = {f"shape_{end}": (*of, f"{metric}_{end}") for end in ("lower", "upper")}
    known = {name: cells[key] for name, key in found.items() if key in cells}
    n = sizes.get(place, math.nan)
    return known if math.isnan(n) else known | {"shape_n": n}


def _place(
    cells: Cells,
    probes: Mapping[str, Sequence[bias_made.Place]],
    wanted: Iterable[tuple[str, str]],
    sets: Sequence[str] | None = None,
):
    """Gives the first key of cells with a probe and metric, on one of the sets or any."""
    keys = (
        (dataset, measure, metric)
        for probe, metric in wanted
        for measure, dataset in probes.get(probe, ())
        if sets is None or dataset in sets
    )
    return next((key for key in keys if key in cells), None)


def _attack(cells: Cells, probes: Mapping[str, Sequence[bias_made.Place]]):
    """Gives the key of the published attack, or of the only one; of l2 if no other."""
    places = probes.get("pgd", ())
    tried = [
        key
        for place in places
        for key in cells
        if key[2] == "pgd_accuracy" and (key[1].partition("/")[0], key[0]) == place
    ]
    attacks = [key[1].partition("/")[2] for key in tried]
    if _ATTACK in attacks:
        return tried[attacks.index(_ATTACK)]
    usual = [key for key, how in zip(tried, attacks, strict=True) if "linf" in how]
    tried = usual or tried
    return tried[0] if len(tried) == 1 else None


def _made(name: str, place, sizes: Cells, told: bias_made.Measures) -> bias_made.Made:
    """Says how a number was measured."""
    dataset, condition, metric = place
    measure, _, rest = condition.partition("/")
    how = rest
    if name != "pgd":
        less = metric.partition("_without_")[2]
        unlike = bias_made.unlike(told.get((measure, dataset), {}))
        how = ", ".join(filter(None, (f"without {less}" if less else "", unlike)))
    # Of others n is of conditions together, or of the decisions for either cue.
    alone = metric in ("accuracy", "real_accuracy", "pgd_accuracy")
    n = sizes.get(place, math.nan) if alone else math.nan
    known = None if math.isnan(n) else int(n)
    return bias_made.of((measure, dataset), told, how=how, n=known)


def _sets(cells: Cells) -> list[str]:
    return [*_SETS, *sorted({dataset for dataset, _, _ in cells} - set(_SETS))]


def _filled(mean: corruption_error.Mean, told: bias_made.Measures) -> bias_made.Made:
    """Says of what a mean over corruptions is: published files, or not all of them."""
    how = bias_made.unlike(told.get(mean.source, {}))
    if not mean.files:
        return bias_made.of(mean.source, told, how=how)
    if mean.source == corruption_error.FILES:
        return bias_made.Made("published files")
    return bias_made.Made(f"{mean.files} published files and {mean.source[1]}", how=how)


def _curves(cells: Cells, made: Mapping[str, bias_made.Made]) -> dict[str, float]:
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
                found[f"{_KINDS[match[1]]}_{float(match[2]):g}"] = value
    return found
