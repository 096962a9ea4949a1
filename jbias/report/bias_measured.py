"""Models of measured checkpoints: workdirs to one row a model, a run.

A workdir of `python -m jbias.evaluate` holds the records of one checkpoint.
"""

import json
import math
from collections.abc import Mapping, Sequence

import pandas as pd

from jbias.report import (
    bias_made,
    bias_models,
    bias_numbers,
    bias_published,
    measured_records,
)


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
        cells, sizes = bias_numbers.cells_of(part), bias_numbers.cells_of(part, "n")
        found, made[one] = bias_numbers.row(cells, sizes, measures)
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
