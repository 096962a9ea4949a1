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
from jbias.report import bias_models, bias_published, measured_records

Cells = Mapping[tuple[str, str, str], float]  # By data set, condition and metric.
_NO_SIZES: Cells = types.MappingProxyType({})
# Sets that probes change, before all others.
_SETS = ("imagenet", "test", "val", "valid", "cue_conflict")
# The conditions and metrics that hold a number; the first that is there counts.
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
_ATTACK = "pgd/linf 0.5/255"  # As published; any other counts if it is the only one.
# Benchmarks that probes make of another set.
_MADE = {
    "imagenet_c": (
        ("imagenet_c", "corruption_accuracy"),
        ("imagenet_c", "corruption_accuracy_without_frost"),
    ),
    "imagenet_cbar": (("imagenet_c_bar", "corruption_accuracy"),),
    "pgd": ((_ATTACK, "pgd_accuracy"),),
}
_BENCHMARKS = tuple(
    dict.fromkeys(
        name
        for members in (bias_models.MEMBERS, bias_models.OTHERS)
        for name in sum(members.values(), ())
    )
)
_OWN = (("", "accuracy"), ("", "real_accuracy"), ("accuracy", "real_accuracy"))
_CURVES = {
    "accuracy_ratio": re.compile(r"spectral/(low|high) ([\d.]+)"),
    "critical_band_threshold": re.compile(r"critical_band/(noise) at ([\d.]+)"),
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
    Raises ValueError as `measured_records.read` does.
    """
    records, counted = measured_records.read(workdirs)
    unit = ["run", "seed"]
    grouped = records.groupby(unit, observed=True)
    records = records[records["step"] == grouped["step"].transform("max")]
    of_run = _same_settings(records)
    models = [of_run[run] for run, _ in grouped.groups]
    rows: dict[str, list[dict]] = {}
    places: dict[str, dict[str, None]] = {}
    for (run, seed), part in records.groupby(unit, observed=True):
        name, about = of_run[run], _about(str(run), part.iloc[0], kinds)
        if each_seed and models.count(name) > 1:
            name = f"{run} seed {seed}"
            about["name"] += f" seed {seed}"
        found, of = row(cells_of(part), cells_of(part, "n"))
        rows.setdefault(name, []).append(about | found)
        for key, dataset in of.items():
            places.setdefault(dataset, {})[bias_models.TITLES.get(key, key)] = None
    told = [f"Measured on {on}: {', '.join(names)}." for on, names in places.items()]
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
    return bias_models.build(frame, source=source, counted=counted, told=told)


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
    cells: Cells, sizes: Cells = _NO_SIZES
) -> tuple[dict[str, float], dict[str, str]]:
    """Gives one checkpoint's numbers as columns of the frame, and the sets behind some.

    sizes: of what a number is a share. Benchmarks are in %. What was not measured is absent; NaN is a number that does not
    exist, such as the width of no band.
    """
    found: dict[str, float] = {}
    places: dict[str, str] = {}
    means = {}
    if _place(cells, ["imagenet"], _OWN):
        means = generalisation.corruption_means(cells)
    for name in _BENCHMARKS:
        place = _place(cells, [name], _OWN)
        if not place and name in means:
            found[name] = 100 * means[name].value
            if means[name].made != generalisation.FILES:
                places[name] = _filled(means[name])
            continue
        made = place or _place(cells, _sets(cells), _MADE.get(name, ()))
        if not made and name == "pgd":
            made = _attack(cells)
        if made:
            found[name] = 100 * cells[made]
        if made and not place:
            places[name] = _words(*made)
    for name, wanted in _BIASES.items():
        place = _place(cells, _sets(cells), wanted)
        if place:
            found[name] = cells[place]
            if name.startswith("cb_"):
                # Like bands must tie, which the last digits of a fit would undo.
                found[name] = round(found[name], 6)
            if not name.endswith("_raw"):
                places[name] = place[0]
            if name == "shape":
                found |= _rests(cells, sizes, place)
    return found | _curves(cells, places), places


def _rests(cells: Cells, sizes: Cells, place) -> dict[str, float]:
    """Gives the interval of a shape bias and the decisions it is of, if they were kept."""
    *of, metric = place
    found = {f"shape_{end}": (*of, f"{metric}_{end}") for end in ("lower", "upper")}
    known = {name: cells[key] for name, key in found.items() if key in cells}
    n = sizes.get(place, math.nan)
    return known if math.isnan(n) else known | {"shape_n": n}


def _place(cells: Cells, sets: Iterable[str], wanted):
    """Gives the first key of cells with one of the sets, and a condition and metric."""
    keys = ((name, *one) for one in wanted for name in sets)
    return next((key for key in keys if key in cells), None)


def _attack(cells: Cells):
    """Gives the key of the only attack, if there is but one."""
    tried = [k for k in cells if k[2] == "pgd_accuracy" and k[1].startswith("pgd/")]
    return tried[0] if len(tried) == 1 else None


def _words(dataset: str, condition: str, metric: str) -> str:
    """Says on what a benchmark was made, and how it differs from the published one."""
    less = metric.partition("_without_")[2]
    attack = condition.removeprefix("pgd/") if metric == "pgd_accuracy" else ""
    return ", ".join(filter(None, (dataset, f"without {less}" if less else "", attack)))


def _filled(mean: generalisation.Mean) -> str:
    """Says of what a mean over corruptions is that are no published files, or not all."""
    dataset = mean.made[1]
    return f"{dataset}, beside {mean.files} published files" if mean.files else dataset


def _sets(cells: Cells) -> list[str]:
    return [*_SETS, *sorted({dataset for dataset, _, _ in cells} - set(_SETS))]


def _curves(cells: Cells, places: Mapping[str, str]) -> dict[str, float]:
    """Gives ratios by cut-off and thresholds by frequency, of the sets of the biases."""
    measured = {
        "accuracy_ratio": places.get("low_freq"),
        "critical_band_threshold": places.get("cb_bw"),
    }
    found = {}
    for (dataset, condition, metric), value in cells.items():
        if metric in _CURVES and dataset == measured[metric]:
            match = _CURVES[metric].fullmatch(condition)
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
