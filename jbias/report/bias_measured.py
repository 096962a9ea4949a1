"""Biases and benchmarks of measured checkpoints: records to one row a model, a run.

A workdir of `python -m jbias.evaluate` holds the records of one checkpoint. Conditions
begin with the name of the measure, such as "spectral" for its bias and
"spectral/low 0.3" for a filter; accuracy on a set as it is has none.
"""

import json
import math
import re
import types
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from jbias.evals import generalisation
from jbias.report import bias_made, bias_models, bias_published, measured_records

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


def read(
    workdirs: Sequence[str],
    kinds: pd.DataFrame | None = None,
    *,
    each_seed: bool = False,
) -> bias_models.Models:
    """Gives the models of workdirs (paths or globs), one row a run: means over its seeds.

    Runs with the same settings but other seeds are one. Seeds of one run are no independent
    models: as rows of their own, which `each_seed` makes them, they make p too small.
    kinds: name, training and epsilon by run; without one they are those of the published
    study, or of the run's own config. Of several steps of a run and seed the last counts.
    Raises ValueError as `measured_records.read` does, and where a benchmark or a bias was
    measured in several ways.
    """
    records, counted = measured_records.read(workdirs)
    unit = ["run", "seed"]
    grouped = records.groupby(unit, observed=True)
    records = records[records["step"] == grouped["step"].transform("max")]
    of_run = _same_settings(records)
    models = [of_run[run] for run, _ in grouped.groups]
    rows: dict[str, list[dict]] = {}
    made: dict[str, dict[str, bias_made.Made]] = {}
    for (run, seed), part in records.groupby(unit, observed=True):
        name, about = of_run[run], _about(str(run), part.iloc[0], kinds)
        several = models.count(name) > 1
        one = f"{run} seed {seed}" if several else name
        if each_seed and several:
            name = one
            about["name"] += f" seed {seed}"
        measures = {}
        for workdir in part["workdir"].unique():
            measures |= measured_records.measures(workdir)
        found, made[one] = row(cells_of(part), cells_of(part, "n"), measures)
        rows.setdefault(name, []).append(about | found)
    told, how = bias_made.compare(made, bias_models.TITLES)
    told = [*_measured_on(made), *told]
    counted += _seeds(models, each_seed)
    if kinds is not None:
        unused = [name for name in kinds.index if name not in of_run]
        if unused:
            told.append(
                f"Named by the table of kinds and not here: {', '.join(unused)}."
            )
    frame = pd.DataFrame.from_dict(
        {name: _mean(seeds) for name, seeds in rows.items()}, orient="index"
    )
    source = " ".join(map(str, workdirs))
    return bias_models.build(frame, source=source, counted=counted, told=told, made=how)


def _measured_on(made: Mapping[str, Mapping[str, bias_made.Made]]) -> list[str]:
    """Says on which sets was measured what is no set of its own."""
    places: dict[str, dict[str, None]] = {}
    for each in made.values():
        for key, one in each.items():
            if one.dataset != key:
                title = bias_models.TITLES.get(key, key)
                places.setdefault(one.words, {})[title] = None
    return [f"Measured on {on}: {', '.join(names)}." for on, names in places.items()]


def _seeds(models: Sequence[str], each_seed: bool) -> list[str]:
    """Says what is made of several seeds of one model."""
    runs = len(set(models))
    if runs == len(models):
        return []
    told = f"{len(models)} seeds of {runs} run" + "s" * (runs > 1)
    if not each_seed:
        return [f"{told}: a model is the mean over the seeds of one run."]
    told += " are models of their own, as asked: those of one run are not independent, "
    return [f"{told}and p is too small."]


def _same_settings(records: pd.DataFrame) -> dict[str, str]:
    """Gives the run that stands for each: the first with its settings but for the seeds."""
    first: dict[str, str] = {}
    found = {}
    for run, workdir in (
        records.groupby("run", observed=True)["workdir"].first().items()
    ):
        settings = measured_records.config(workdir).get("config")
        if settings:
            kept = {k: v for k, v in settings.items() if k not in ("seeds", "run")}
            found[run] = first.setdefault(json.dumps(kept, sort_keys=True), run)
        else:
            found[run] = run
    return found


def _mean(seeds: Sequence[Mapping]) -> dict:
    """Gives a run's row; what one of its seeds lacks the run lacks.

    Decisions for either cue are those of the seed with the fewest. Intervals are of one
    network: means have none.
    """
    if len(seeds) == 1:
        return dict(seeds[0])
    frame = pd.DataFrame(seeds)
    words = frame[["name", "training"]].iloc[0].to_dict()
    means = frame.drop(columns=list(words)).mean(skipna=False)
    means[means.index.intersection(["shape_lower", "shape_upper"])] = math.nan
    if "shape_n" in frame:
        means["shape_n"] = frame["shape_n"].min()
    return words | {"seeds": len(seeds)} | means.to_dict()


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
        means = generalisation.corruption_means(cells)
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
        if set(names) <= set(generalisation.CORRUPTED["imagenet_cbar"])
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


def _filled(mean: generalisation.Mean, told: bias_made.Measures) -> bias_made.Made:
    """Says of what a mean over corruptions is: published files, or not all of them."""
    how = bias_made.unlike(told.get(mean.made, {}))
    if not mean.files:
        return bias_made.of(mean.made, told, how=how)
    if mean.made == generalisation.FILES:
        return bias_made.Made("published files")
    return bias_made.Made(f"{mean.files} published files and {mean.made[1]}", how=how)


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


def _about(run: str, record, kinds: pd.DataFrame | None) -> dict:
    """Gives name, training and epsilon of a run."""
    if kinds is not None and run in kinds.index:
        return kinds.loc[run].to_dict()
    known = {**bias_published.STUDY, **bias_published.VIT}.get(run)
    if known:
        return dict(zip(("name", "training", "epsilon"), known, strict=True))
    config = measured_records.config(record["workdir"])
    algo = config.get("config", {}).get("algo", {})
    eps = algo.get("eps", math.nan) if algo.get("name") == "pgd" else math.nan
    attacked = math.isfinite(eps)
    kind = str(config.get("category", record["algorithm"]))
    if record["variant"]:
        kind += f" ({record['variant']})"  # As a report of runs calls it.
    return {
        "name": run,
        "training": bias_models.AT if attacked else kind,
        "epsilon": eps * (255 if algo.get("norm", "linf") == "linf" else 1),
    }
