"""Biases and benchmarks of measured checkpoints: records to one row a model.

A workdir of `python -m jbias.evaluate` holds the records of one checkpoint. Accuracy with
no condition is a benchmark; a probe's own numbers have the probe's name as condition, and
its accuracies `<probe>/<condition>`, such as `spectral/low 0.3` or `critical_band/0.16 f3`.
"""

import math
import re
from collections.abc import Mapping, Sequence

import pandas as pd

from jbias import results
from jbias.report import bias_models, bias_published

# Sets of photographs that probes are shown, the first that has the number counts.
_SETS = ("imagenet", "test", "valid", "cue_conflict")
_BIASES = {
    "shape": ("shape_bias", ""),
    "low_freq": ("low_freq_bias", "spectral"),
    "high_freq": ("high_freq_bias", "spectral"),
    "cb_bw": ("bandwidth", "critical_band"),
    "cb_cf": ("center_frequency", "critical_band"),
    "cb_pns": ("peak_noise_sensitivity", "critical_band"),
}
# How a benchmark that a probe makes is called.
_MADE = ("corruption_accuracy", "robust_accuracy", "accuracy")
_RATIO = re.compile(r"spectral/(low|high) ([\d.]+)")
_BAND = re.compile(r"critical_band/([\d.]+)(?: f(\d+))?")
_ATTACKS = ("pgd", "fgsm")  # Algorithms that train on attacks.
_PASS = 50.0  # % of the best accuracy that a band must exceed.

Cells = Mapping[tuple[str, str, str], float]  # By dataset, condition and metric.


def read(workdirs: Sequence[str], kinds: pd.DataFrame | None = None):
    """Gives the models of workdirs (paths or globs), one row a checkpoint and seed.

    kinds: name, training and epsilon by run, before what records and the published study
    say of them. Of several steps of a run and seed the last counts. Raises ValueError as
    `results.read`, and where nothing was measured.
    """
    records = results.evaluations(results.read(workdirs))
    unit = ["run", "seed"]
    last = records.groupby(unit, observed=True)["step"].transform("max")
    records = records[records["step"] == last]
    several = records.groupby("run", observed=True)["seed"].nunique() > 1
    rows, places = {}, {}
    for (run, seed), part in records.groupby(unit, observed=True, sort=True):
        model = f"{run} seed {seed}" if several[run] else str(run)
        names = part[["dataset", "condition", "metric"]].astype(str)
        cells = dict(zip(names.itertuples(index=False, name=None), part["value"]))
        rows[model] = _kind(str(run), part.iloc[0], kinds) | row(cells, places)
    if not rows:
        raise ValueError(f"{' '.join(workdirs)}: must hold evaluations, got none")
    told = [f"{bias_models.TITLES[b]}: measured on {p}." for b, p in places.items()]
    if several.any():
        told.append(
            "Seeds of one run are rows of their own; they are not independent models."
        )
    source = " ".join(map(str, workdirs))
    return bias_models.build(
        pd.DataFrame.from_dict(rows, orient="index"), source=source, told=told
    )


def row(cells: Cells, places: dict[str, str] | None = None) -> dict[str, float]:
    """Gives benchmarks in %, biases, ratios and thresholds of one checkpoint's numbers.

    What was not measured is absent. `places` is filled with the set behind each bias.
    """
    places = {} if places is None else places
    found = {}
    for name in sum(bias_models.MEMBERS.values(), ()):
        tried = [(name, "", "accuracy")]
        tried += [(d, name, metric) for metric in _MADE for d in _sets(cells)]
        value = next((cells[key] for key in tried if key in cells), None)
        if value is not None:
            found[name] = 100 * value
    for name, (metric, condition) in _BIASES.items():
        for dataset in _sets(cells):
            if (dataset, condition, metric) in cells:
                found[name] = cells[dataset, condition, metric]
                places[name] = dataset
                break
    return found | _ratios(cells, places) | _thresholds(cells, places)


def _sets(cells: Cells) -> list[str]:
    others = sorted({dataset for dataset, _, _ in cells} - set(_SETS))
    return [*_SETS, *others]


def _ratios(cells: Cells, places: Mapping[str, str]) -> dict[str, float]:
    """Gives accuracy of filtered over that of clean images by kind and cut-off."""
    found = {}
    for (dataset, condition, metric), value in cells.items():
        match = _RATIO.fullmatch(condition)
        if match and dataset == places.get("low_freq") and metric == "accuracy_ratio":
            found[f"{match[1]}_{float(match[2]):g}"] = value
    return found


def _thresholds(cells: Cells, places: Mapping[str, str]) -> dict[str, float]:
    """Gives by frequency how many noises, from the strongest, fail before one passes.

    An accuracy passes above half of the table's largest; the last count also says that
    none passes. Nothing where the table has holes.
    """
    table: dict[tuple[float, int | None], float] = {}
    for (where, condition, metric), value in cells.items():
        match = _BAND.fullmatch(condition)
        if match and where == places.get("cb_bw") and metric == "accuracy":
            table[float(match[1]), match[2] and int(match[2])] = value
    noises = sorted({noise for noise, _ in table if noise > 0}, reverse=True)
    bands = sorted({band for _, band in table if band is not None})
    if any((noise, band) not in table for noise in noises for band in bands):
        return {}
    best = max(table.values(), default=0)
    found = {}
    for band in bands:
        passed = [table[noise, band] > _PASS / 100 * best for noise in noises]
        found[f"cb_t{band}"] = float(passed.index(True) if any(passed) else len(noises))
    return found


def _kind(run: str, record, kinds: pd.DataFrame | None) -> dict:
    """Gives name, training and epsilon of a run."""
    if kinds is not None and run in kinds.index:
        return kinds.loc[run].to_dict()
    known = {**bias_published.STUDY, **bias_published.VIT}.get(run)
    if known:
        return dict(zip(("name", "training", "epsilon"), known, strict=True))
    algorithm = str(record["algorithm"])
    attacked = algorithm.lower() in _ATTACKS
    return {
        "name": run,
        "training": bias_models.AT if attacked else algorithm,
        "epsilon": math.nan,
    }
