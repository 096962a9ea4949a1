"""Reader of the models of the study of biases, and their correlations with accuracies.

After Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509.
"""

import collections
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.data import tables as data_tables
from jbias.report import network_frame, network_records
from jbias.report.pages.correlations import model_correlations
from jbias.stats import correlation

MIN_MODELS = correlation.MIN_MODELS
AT = network_frame.AT
VIT = "vision_transformers"
ModelTable, Correlations = network_frame.ModelTable, model_correlations.Correlations


def title(name: str | tuple) -> str | tuple:
    """Return the title of a measure or category on a page; a tuple of titles for a tuple.

    name: column of `ModelTable.frame` or a category. A name without a title is returned unchanged.
    """
    if isinstance(name, tuple):
        return tuple(map(title, name))
    return network_frame.TITLES.get(name, name)


# Models of the study by id; each vision transformer (appendix) has a category of its own.
PUBLISHED = {
    model["id"]: {
        "name": model["name"],
        "training": model["name" if model["category"] == VIT else "category"],
        "epsilon": model.get("eps", math.nan),  # l2, or l-infinity in 1/255.
    }
    for model in data_tables.read("published_models")
}


def read(
    workdirs: Sequence[str],
    kinds: pd.DataFrame | None = None,
    *,
    each_seed: bool = False,
) -> ModelTable:
    """Return the models of workdirs (paths or globs), with a row of means over seeds per run.

    Runs that differ only in their seeds share a row. Each seed is read at its last step.
    kinds: frame with the columns name, training and epsilon, indexed by run. Runs without a row in
    `kinds` are described by the published study, or by their config.
    each_seed: True for one row per seed. Seeds of one run are not independent models, so p is
    too small.
    Raises ValueError as `network_records.read_records` and `network_frame.build_models` do, and if
    models were measured with different options.
    """
    records, counting_notes = network_records.read_records(workdirs)
    last_step = records.groupby(["run", "seed"], observed=True)["step"].transform("max")
    last_records = records[records["step"] == last_step]
    checkpoints = list(last_records.groupby(["run", "seed"], observed=True))
    first_runs = _first_runs(records)
    seed_counts = collections.Counter(first_runs[run] for (run, _), _ in checkpoints)
    named_kinds = {} if kinds is None else kinds.to_dict("index")
    rows = []
    settings = {}
    for (run, seed), checkpoint in checkpoints:
        model = first_runs[run]
        kind = _kind(run, checkpoint.iloc[0], PUBLISHED | named_kinds)
        name = f"{run} seed {seed}" if seed_counts[model] > 1 else model
        if each_seed and name != model:
            model = name
            kind["name"] += f" seed {seed}"
        row = _checkpoint_row(checkpoint)
        settings[name] = row.settings
        rows.append({"model": model} | kind | row.numbers)
    difference_notes, settings_frame = network_frame.compare_settings(settings)
    notes = [*_measured_on(settings_frame), *difference_notes]
    if len(seed_counts) < len(checkpoints):
        runs = f"{len(seed_counts)} run" + "s" * (len(seed_counts) > 1)
        note = f"{len(checkpoints)} seeds of {runs}"
        if each_seed:
            note += (
                " count as models (--each-seed): seeds of one run are not independent, "
            )
            note += "so p is too small."
        else:
            note += ": a model is the mean over the seeds of one run."
        counting_notes.append(note)
    unused = [name for name in named_kinds if name not in first_runs]
    if unused:
        notes.append(f"In the table of kinds but not measured: {', '.join(unused)}.")
    by_model = pd.DataFrame(rows).set_index("model").groupby(level=0, sort=False)
    means = {model: _mean(seeds) for model, seeds in by_model}
    return network_frame.build_models(
        pd.DataFrame.from_dict(means, orient="index"),
        source=" ".join(workdirs),
        counting_notes=counting_notes,
        notes=notes,
        settings=settings_frame,
    )


def _checkpoint_row(records: pd.DataFrame) -> network_frame.ModelRow:
    """Return the measures and settings of one checkpoint.

    records: records of the checkpoint, from one or more workdirs.
    """
    measures = {}
    for workdir in records["workdir"].unique():
        measures |= network_records.read_measures(workdir)
    cells = network_records.cells_of(records, "value")
    sizes = network_records.cells_of(records, "n")
    return network_frame.row(cells, sizes, measures)


def _first_runs(records: pd.DataFrame) -> dict[str, str]:
    """Return {run: the first run whose config is equal apart from the seeds and config.run}.

    Runs are in the order of their names. A run without config.json is its own first run. records:
    columns run and workdir.
    """
    run_by_settings: dict[str, str] = {}
    first_runs = {}
    workdirs = records.groupby("run", observed=True)["workdir"].first()
    for run, workdir in workdirs.items():
        config = network_records.read_config(workdir).get("config", {})
        compared = {k: v for k, v in config.items() if k not in ("seeds", "run")}
        settings = json.dumps(compared, sort_keys=True) if config else run
        first_runs[run] = run_by_settings.setdefault(settings, run)
    return first_runs


def _kind(
    run: str, record: pd.Series, known_kinds: Mapping[str, dict]
) -> dict[str, Any]:
    """Return a dict with name, training and epsilon of a run, for its row of the table.

    training: `AT` for adversarial training (algorithm pgd), else the category in the config or the
    algorithm, followed by the variant. epsilon: strength of adversarial training, in 1/255 for the
    norm linf; NaN without adversarial training. record: a record of the run. known_kinds: such
    dicts by run, which replace the config.
    """
    if run in known_kinds:
        return {**known_kinds[run]}
    config = network_records.read_config(record["workdir"])
    algo = config.get("config", {}).get("algo", {})
    eps = algo.get("eps", math.nan) if algo.get("name") == "pgd" else math.nan
    kind = str(config.get("category", record["algorithm"]))
    if record["variant"]:
        kind += f" ({record['variant']})"  # Same name as in a report of runs.
    return {
        "name": run,
        "training": AT if math.isfinite(eps) else kind,
        "epsilon": eps * (255 if algo.get("norm", "linf") == "linf" else 1),
    }


def _mean(seeds: pd.DataFrame) -> dict[str, Any]:
    """Return a model's row as a dict by column: means over seeds, NaN if one seed has no value.

    seeds: one row per seed. For several seeds, the column seeds has their number, and columns of
    text have the first seed's text. shape_n is the smallest over seeds. Means of several seeds have
    no intervals, since the interval of a seed is for one network.
    """
    first = seeds.iloc[0].to_dict()
    if len(seeds) == 1:
        return first
    means = seeds.mean(numeric_only=True, skipna=False).to_dict()
    shape_details = {
        "shape_lower": math.nan,
        "shape_upper": math.nan,
        "shape_n": seeds["shape_n"].min() if "shape_n" in seeds else math.nan,
    }
    return first | {"seeds": len(seeds)} | means | shape_details


def _measured_on(settings: pd.DataFrame) -> Iterator[str]:
    """Yield notes on columns whose name differs from the data set that was measured.

    settings: the frame of `network_frame.compare_settings`.
    """
    columns = settings[settings["sets"] != settings["column"]]
    for (datasets, options), group in columns.groupby(["sets", "how"], sort=False):
        ending = "" if options == network_frame.USUAL else f", {options}"
        names = ", ".join(map(title, group["column"]))
        yield f"Measured on {datasets}{ending}: {names}."


def analyse(models: ModelTable, **test_options: Any) -> Correlations:
    """Return the correlations of biases with averages, among benchmarks, and among biases.

    Correlations are computed over all models. If at least 4 models are adversarially trained and at
    least 4 models are not, correlations are also computed within these two groups. test_options:
    further fields of `model_correlations.CorrelationOptions`. Raises ValueError for fewer than 4
    models.
    """
    frame = models.frame
    if len(frame) < MIN_MODELS:
        counting_notes = "".join(f" ({note})" for note in models.counting_notes)
        raise ValueError(
            f"{models.source}: must hold at least {MIN_MODELS} models to correlate, got "
            f"{len(frame)}; jbias report measured shows fewer{counting_notes}"
        )
    num_trained = (frame["training"] == AT).sum()
    can_split = MIN_MODELS <= num_trained <= len(frame) - MIN_MODELS
    groups = (models.benchmarks, models.biases)
    options = model_correlations.CorrelationOptions(
        x=models.biases,
        y=tuple(models.members),
        category="training",
        among=tuple(names for names in groups if len(names) > 1),
        split=AT if can_split else None,
        size="epsilon" if frame["epsilon"].notna().any() else None,
        **test_options,
    )
    return model_correlations.analyse(frame, options, source=models.source)


def with_titles(study: Correlations) -> Correlations:
    """Return a copy of the study in which measures and categories have their titles as names."""
    options = dataclasses.replace(
        study.options,
        x=title(study.options.x),
        y=title(study.options.y),
        split=title(study.options.split),
        size=title(study.options.size),
        among=title(study.options.among),
        given=title(study.options.given),
    )
    return dataclasses.replace(
        study,
        options=options,
        frame=_map_titles(study.frame, "training").rename(columns=title),
        families={
            title(name): _matrix_with_titles(matrix)
            for name, matrix in study.families.items()
        },
        pairs=_map_titles(study.pairs, "models", "x", "y"),
        influential=_map_titles(study.influential, "x", "y", "category"),
        among=tuple(_matrix_with_titles(matrix) for matrix in study.among),
        given=study.given and with_titles(study.given),
    )


def _matrix_with_titles(matrix: model_correlations.Matrix) -> model_correlations.Matrix:
    """Return a matrix with titles as the names of its rows and columns."""
    frames = {key: getattr(matrix, key) for key in model_correlations.NUMBERS}
    renamed = {
        key: frame.rename(index=title, columns=title) for key, frame in frames.items()
    }
    return dataclasses.replace(matrix, **renamed)


def _map_titles(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return a copy of a frame with titles instead of names in the columns `columns`."""
    frame = frame.copy()
    for column in columns:
        frame[column] = frame[column].map(title)
    return frame
