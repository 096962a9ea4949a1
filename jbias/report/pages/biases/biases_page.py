"""Functions of the study of biases: read models, correlate biases with accuracies, build the page.

After Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509; captions have the numbers
of figures and tables in that paper.
"""

import collections
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.data import tables as data_tables
from jbias.report import document, network_frame, network_records, plots, tables
from jbias.report.pages.biases import bias_plots
from jbias.report.pages.correlations import correlations_page
from jbias.stats import correlation

MIN_MODELS = correlation.MIN_MODELS
AT = network_frame.AT
VIT = "vision_transformers"
# Digits after the point by column; other columns have 2.
_DIGITS = {
    "shape": 3,
    "shape_lower": 3,
    "shape_upper": 3,
    "low_freq": 3,
    "high_freq": 4,
}
# Columns that follow the shape bias.
_SHAPE_DETAILS = ("shape_lower", "shape_upper", "shape_n")
ModelTable, Correlations = network_frame.ModelTable, correlations_page.Correlations
Blocks = Iterator[document.Block | None]
_LINES = "Thin lines are models, thick lines category means."
_GREY = "Grey: undefined."
_SIZED = "Markers grow with ε of adversarial training; without it they have one size."
_CAPTIONS = {
    "correlations": "Spearman's ρ of biases and averages of benchmarks (figure 2). {marked}",
    "benchmarks_correlations": "Spearman's ρ of benchmarks among themselves (figure 3). {marked}",
    "biases_correlations": "Spearman's ρ of biases among themselves (figure 12). {marked}",
    "models": "Averages of benchmarks in % against biases, one marker per model (figures 4, 5 "
    "and 6), with ρ above each panel.{sized}",
    "high_freq_trained": "Averages in % against high-frequency bias, adversarially trained "
    "models only (figure 10).{sized}",
    "benchmark_spread": "Accuracy of every model on each benchmark (figure 11), one lane per "
    "category; boxes span the quartiles.",
    "imagenet_a": "ImageNet-A in % against shape bias (figure 9).{sized}",
    "benchmark_pairs": "Every benchmark against every other (figure 15), each over its range in "
    "%. Above the diagonal: ρ.{sized}",
    "filters": "Accuracy on filtered images relative to clean ones, by the share of frequencies "
    f"that the filter keeps (figure 13). {_LINES}",
    "critical_bands": "Thresholds of the critical band: number of strengths of an octave's noise, "
    f"from the strongest down, at which recognition fails. {_LINES}",
    "critical_band": "The critical band from normalised accuracies (divided by the largest; norm.) "
    "against the band from plain accuracies (figure 17), without the {without_band} of {all} "
    "models that have no plain band.",
    "stimuli": "Photographs after the filters of the spectral biases (figures 7 and 14). Negative "
    f"values of high-pass images are cut to 0, and the images are {bias_plots.GAIN} times brighter.",
    "accuracy": "Accuracy in % of every model on each benchmark, and averages over benchmarks "
    "(Table 1): {members}.",
    "averages": "Means in % over the models of a category, without missing values.",
    "measured": "Settings of each benchmark and bias: options that differ from the published ones "
    "(always given for an attack), rule that pools answers of several classes, and number of images.",
    "biases": "Biases of every model (Table 2). Shape bias: share of shape decisions among both"
    "{interval}. Low- and high-frequency bias: mean ratio of accuracy on filtered to that on "
    "clean images. Bandwidth in octaves, centre frequency in nominal cycles per image.",
}


def title(name: str | tuple) -> str | tuple:
    """Return the title of a measure or category on a page; a tuple of titles for a tuple.

    name: column of `ModelTable.frame` or a category. A name without a title is returned unchanged.
    """
    if isinstance(name, tuple):
        return tuple(map(title, name))
    return network_frame.TITLES.get(name, name)


# Models.

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


# Correlations.


def analyse(models: ModelTable, **test_options: Any) -> Correlations:
    """Return the correlations of biases with averages, among benchmarks, and among biases.

    Correlations are computed over all models. If at least 4 models are adversarially trained and at
    least 4 models are not, correlations are also computed within these two groups. test_options:
    further fields of `correlations_page.CorrelationOptions`. Raises ValueError for fewer than 4
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
    options = correlations_page.CorrelationOptions(
        x=models.biases,
        y=tuple(models.members),
        category="training",
        among=tuple(names for names in groups if len(names) > 1),
        split=AT if can_split else None,
        size="epsilon" if frame["epsilon"].notna().any() else None,
        **test_options,
    )
    return correlations_page.analyse(frame, options, source=models.source)


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


def _matrix_with_titles(matrix: correlations_page.Matrix) -> correlations_page.Matrix:
    """Return a matrix with titles as the names of its rows and columns."""
    frames = {key: getattr(matrix, key) for key in correlations_page.NUMBERS}
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


# The page.


def report(
    models: ModelTable, study: Correlations, *, images: Sequence[bias_plots.Image] = ()
) -> document.Report:
    """Return the page of a study of biases.

    Sections: correlations, models, benchmarks, biases and caveats. The page has titles of measures;
    `results` has the names of columns. study: the result of `analyse(models)`. images: photographs
    in [0, 1] to show after filtering; () for none.
    """
    shown = with_titles(study)
    caveats = [*correlations_page.caveats(shown), *models.notes]
    if shown.options.split is None:
        caveats.append(
            "Correlations are not split by adversarial training: a split needs at least "
            f"{MIN_MODELS} adversarially trained models and {MIN_MODELS} others."
        )
    answer, basis = correlations_page.headline(study)
    frame = models.frame.rename_axis("model").reset_index()
    return document.Report(
        title="jbias study of biases",
        heading="Do biases correlate with generalisation?",
        subtitle=f"{len(models.biases)} biases and {len(models.benchmarks)} benchmarks of "
        f"{len(frame)} models, jbias report",
        answer=correlations_page.headline(shown),
        facts={
            "Models": len(frame),
            "Categories": frame["training"].nunique(),
            "Biases": len(models.biases),
            "Benchmarks": len(models.benchmarks),
        },
        sections=[
            _section("correlations", "Correlations", _correlations(shown)),
            _section("models", "Models", _models(shown)),
            _section("benchmarks", "Benchmarks", _benchmarks(models, shown)),
            _section("biases", "Biases", _biases(models, shown, images)),
            _section("caveats", "Caveats", iter([document.Text(caveats)])),
        ],
        results=correlations_page.results(study)
        | {"headline": answer, "basis": basis, "caveats": caveats}
        | {"members": models.members, "biases": models.biases, "models": frame},
        source=f"Made from {models.source}. The study is that of Gavrikov and Keuper, Can "
        "Biases in ImageNet Models Explain Generalization?, CVPR 2024; numbers of figures "
        "and tables are those of that paper.",
        frames={"models": frame},
    )


def _section(name: str, title: str, blocks: Blocks) -> document.Section:
    """Return a section with the id `name`; blocks that are None are left out."""
    return document.Section(name, title, [*filter(None, blocks)])


def _figure(
    study: Correlations, name: str, drawn: plots.Figure, **caption_fields: int
) -> document.Figure:
    """Return the figure `drawn` with a name and its caption.

    name: key of the captions. caption_fields: further values for the caption.
    """
    options = study.options
    level = f"p > {options.alpha:g} {correlations_page.WORDS[options.adjust]}"
    caption = _CAPTIONS[name].format(
        marked=f"Hatched: {level} over the pairs of its table. {_GREY}",
        sized=f" {_SIZED}" if options.size else "",
        **caption_fields,
    )
    return document.Figure(name, caption, drawn)


def _scatter(
    study: Correlations,
    frame: pd.DataFrame,
    grid: Sequence[Sequence[tuple[str, str]]],
    *,
    panel: tuple[float, float],
    rho: pd.DataFrame | None = None,
) -> plots.Figure:
    """Return `correlations_page.scatter` with a marker style for each category of the study.

    frame: one row per model. grid: rows of pairs (x, y) of columns. panel: width and height of a
    panel in inches. rho: numbers above the panels, x in rows and y in columns.
    """
    return correlations_page.scatter(
        frame,
        grid,
        category="training",
        size=study.options.size,
        rho=rho,
        panel=panel,
        order=tuple(dict.fromkeys(study.frame["training"])),
    )


def _among(study: Correlations, name: str, measures: tuple[str, ...]) -> Blocks:
    """Yield the heat map of correlations among `measures`; nothing if they were not analysed.

    name: name of the figure and key of its caption.
    """
    for matrix in study.among:
        if tuple(matrix.statistic) == measures:
            yield _figure(study, name, correlations_page.heat(study, {"": matrix}))


def _correlations(study: Correlations) -> Blocks:
    """Yield the heat map and the tables of correlations of biases with averages."""
    yield _figure(study, "correlations", correlations_page.heat(study, study.families))
    for _, table in correlations_page.tables_of(study):
        # Other sections have figures of the correlations among measures.
        if table and not table.name.startswith("among"):
            yield table


def _models(study: Correlations) -> Blocks:
    """Yield a figure of scatter plots of the averages of benchmarks against biases.

    A second figure has the averages of adversarially trained models against the high-frequency
    bias, if this bias was measured and there are at least two such models.
    """
    yield _figure(study, "models", correlations_page.all_pairs(study))
    trained_name = title(AT)
    high_freq = title("high_freq")
    trained = study.frame[study.frame["training"] == trained_name]
    if high_freq in trained and len(trained) > 1:
        family = study.families.get(trained_name)
        drawn = _scatter(
            study,
            trained,
            [[(high_freq, y) for y in study.options.y]],
            panel=(2.3, 2.1),
            rho=family.statistic if family else None,
        )
        yield _figure(study, "high_freq_trained", drawn)


def _benchmarks(models: ModelTable, study: Correlations) -> Blocks:
    """Yield figures and tables of the benchmarks.

    Figures: correlations among benchmarks, accuracies, ImageNet-A against shape bias (if both were
    measured), and all pairs of benchmarks (for 3 benchmarks or more). Tables: accuracies, averages,
    and settings if known.
    """
    frame = study.frame
    size = study.options.size
    names = title(models.benchmarks)
    categories = frame["training"]
    yield from _among(study, "benchmarks_correlations", names)
    drawn = bias_plots.spread(frame, [*names], categories, x="accuracy in %")
    yield _figure(study, "benchmark_spread", drawn)
    shape = title("shape")
    imagenet_a = title("imagenet_a")
    if shape in frame and imagenet_a in frame:
        drawn = _scatter(study, frame, [[(shape, imagenet_a)]], panel=(4.8, 2.8))
        yield _figure(study, "imagenet_a", drawn)
    if len(names) > 2:
        drawn = bias_plots.pairs(
            frame,
            [*names],
            categories,
            sizes=frame[size] if size else pd.Series(index=frame.index),
            rho=study.among[0].statistic,  # The second matrix is of biases.
        )
        yield _figure(study, "benchmark_pairs", drawn)
    yield accuracy_table(models)
    yield average_table(models)
    if models.settings is not None:
        yield settings_table(models.settings)


def _biases(
    models: ModelTable, study: Correlations, images: Sequence[bias_plots.Image]
) -> Blocks:
    """Yield figures and a table of the biases.

    Figures: correlations among biases, curves of filters, critical bands from normalised against
    plain accuracies, curves of critical bands, and filtered photographs; figures without data are
    left out, or None. images: photographs to show after filtering.
    """
    frame = models.frame
    categories = study.frame["training"]
    yield from _among(study, "biases_correlations", study.options.x)
    panels = {}
    for kind in ("low", "high"):
        cut_offs = models.curve_columns(kind)
        if cut_offs:
            percent = [100 * cut_off for cut_off in cut_offs.values()]
            panels[f"{kind}-pass"] = bias_plots.Curves(percent, frame[[*cut_offs]])
    if panels:
        labels = ("cut-off in %", "ratio of clean accuracy")
        drawn = bias_plots.curves(panels, categories, labels)
        yield _figure(study, "filters", drawn)
    if "cb_bw_raw" in frame:
        yield _normalised(frame, study)
    octaves = models.curve_columns("threshold")
    if octaves:
        panels = {"": bias_plots.Curves([*octaves.values()], frame[[*octaves]])}
        labels = ("nominal cycles per image", "threshold")
        drawn = bias_plots.curves(panels, categories, labels, is_log=True)
        yield _figure(study, "critical_bands", drawn)
    if images:
        yield _figure(study, "stimuli", bias_plots.stimuli(images))
    yield bias_table(models)


def _normalised(frame: pd.DataFrame, study: Correlations) -> document.Figure | None:
    """Return a figure that compares critical bands from normalised and from plain accuracies.

    Only models with a valid band from plain accuracies are shown; None if there is no such model.
    frame: one row per model, with the column cb_bw_raw.
    """
    has_band = (frame["cb_bw_raw"] <= network_frame.DEGENERATE).to_numpy()
    if not has_band.any():
        return None
    names = [name for name in ("cb_bw", "cb_cf", "cb_pns") if f"{name}_raw" in frame]
    grid = [[(title(name), f"{title(name)}, norm.") for name in names]]
    renamed = {title(name): f"{title(name)}, norm." for name in names}
    renamed |= {title(f"{name}_raw"): title(name) for name in names}
    shown = study.frame[has_band].rename(columns=renamed)
    drawn = _scatter(study, shown, grid, panel=(2.8, 2.4))
    return _figure(
        study,
        "critical_band",
        drawn,
        without_band=(~has_band).sum(),
        all=len(has_band),
    )


def accuracy_table(models: ModelTable) -> tables.Table:
    """Return the table of accuracies and averages in %, one row per model.

    Columns: model, training, benchmarks and averages. The caption says which benchmarks an average
    covers. The files also have the id of the model and epsilon.
    """
    names = {benchmark: title(benchmark) for benchmark in models.benchmarks}
    if models.settings is not None:  # Name options that differ from the published ones.
        options_by_column = models.settings.set_index("column")["how"]
        for column, options in options_by_column.items():
            if options != network_frame.USUAL and column in names:
                names[column] += f" ({options})"
    means = []
    for average, benchmarks in models.members.items():
        joined = tables.join([names[benchmark] for benchmark in benchmarks])
        means.append(f"{average} is the mean of {joined}")
    return _model_table(
        "accuracy",
        models.frame,
        [*models.benchmarks, *models.members],
        members="; ".join(means),
    )


def average_table(models: ModelTable) -> tables.Table:
    """Return a table of average accuracies in %, one row per category of training.

    Columns: training, models (number of models), and the averages, as means over the models of the
    category.
    """
    groups = models.frame.groupby("training", sort=False)
    names = [*models.members]
    rows = groups[names].mean().assign(models=groups.size()).reset_index()
    columns = {"training": ("training", title)} | tables.columns("models:d")
    columns |= {name: tables.Column(name, tables.digits(2)) for name in names}
    return tables.from_rows("averages", _CAPTIONS["averages"], rows, columns)


def settings_table(settings: pd.DataFrame) -> tables.Table:
    """Return the table of settings of benchmarks and biases, one row per column of the models.

    Columns: measure, data set, differing options ("as published" for none), rule, range of the
    number of images, and number of models. settings: the frame of `network_frame.compare_settings`.
    """
    counts = settings[["images", "images_most"]].itertuples(index=False)
    texts = [[f"{n:,.0f}" for n in pair if not pd.isna(n)] for pair in counts]
    ranges = [" to ".join(dict.fromkeys(pair)) or "–" for pair in texts]
    columns = {"column": ("measure", title)}
    columns |= tables.columns(
        "sets how rules range models:d",
        sets="set",
        rules="rule",
        range="images",
    )
    return tables.from_rows(
        "measured",
        _CAPTIONS["measured"],
        settings.assign(range=ranges),
        columns,
        data=settings,
    )


def bias_table(models: ModelTable) -> tables.Table:
    """Return the table of biases, one row per model.

    If known, the interval of the shape bias, the number of decisions, and the critical bands from
    plain accuracies have columns, too.
    """
    frame = models.frame
    names = [*models.biases]
    bands = [f"{name}_raw" for name in names if f"{name}_raw" in frame]
    if "shape" in names:
        position = names.index("shape") + 1
        names[position:position] = [name for name in _SHAPE_DETAILS if name in frame]
    interval = ""
    if "shape_n" in frame:
        seeds = ", of the seed with the fewest" if "seeds" in frame else ""
        interval = (
            f", with Wilson's interval of 95 %, and number of decisions{seeds} "
            f"(*: fewer than {network_frame.FEW}, which is unreliable)"
        )
    return _model_table("biases", frame, [*names, *bands], interval=interval)


def _model_table(
    name: str, frame: pd.DataFrame, measures: Sequence[str], **caption_fields: str
) -> tables.Table:
    """Return a table of measures, one row per model.

    Critical bands of failed fits are only in the files. Columns: name, training and the measures;
    the files also have model (the index) and epsilon. name: name of the table and key of its
    caption. frame: one row per model. measures: columns to show. caption_fields: further values for
    the caption.
    """
    data = frame[["name", "training", "epsilon", *measures]]
    data = data.rename_axis("model").reset_index()
    shown = data.copy()
    if "cb_bw_raw" in data:
        has_failed = data["cb_bw_raw"] > network_frame.DEGENERATE
        raw = [measure for measure in measures if measure.endswith("_raw")]
        shown.loc[has_failed, raw] = math.nan
    columns = {"name": ("model", str), "training": ("training", title)}
    for measure in measures:
        show = tables.digits(_DIGITS.get(measure, 2))
        columns[measure] = tables.Column(title(measure), show)
    columns["shape_n"] = tables.Column(title("shape_n"), network_frame.decisions_text)
    caption = _CAPTIONS[name].format(**caption_fields)
    return tables.from_rows(name, caption, shown, columns, data=data)
