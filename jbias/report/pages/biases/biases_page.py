"""The page on biases and generalisation of many models: its sections, tables and figures.

After Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509; captions have the numbers
of figures and tables in that paper.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from jbias.report import document, network_frame, plots, tables
from jbias.report.pages.biases import bias_models, bias_plots
from jbias.report.pages.correlations import (
    correlation_plots,
    correlations_page,
    model_correlations,
)

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
ModelTable, Correlations = bias_models.ModelTable, bias_models.Correlations
title = bias_models.title
Blocks = document.Blocks
_LINES = "Thin lines are models, thick lines category means."
_GREY = "Grey: undefined."
_SIZED = "Markers grow with ε of adversarial training; without it they have one size."


class BiasesData(NamedTuple):
    """Data that the sections of the page show."""

    models: ModelTable
    study: Correlations  # With titles of measures, as by `bias_models.with_titles`.
    images: Sequence[bias_plots.Image]  # Photographs to show after filtering.
    caveats: Sequence[str]


def report(
    models: ModelTable,
    study: Correlations,
    *,
    images: Sequence[bias_plots.Image] = (),
) -> document.Report:
    """Return the page of a study of biases.

    The page has titles of measures; `results` has the names of columns. study: the result of
    `bias_models.analyse(models)`. images: photographs in [0, 1] to show after filtering; () for
    none.
    """
    shown = bias_models.with_titles(study)
    caveats = [*correlations_page.caveats(shown), *models.notes]
    if shown.options.split is None:
        caveats.append(
            "Correlations are not split by adversarial training: a split needs at least "
            f"{bias_models.MIN_MODELS} adversarially trained models and {bias_models.MIN_MODELS} "
            "others."
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
        sections=document.make_sections(
            SECTIONS, BiasesData(models, shown, images=images, caveats=caveats)
        ),
        results=correlations_page.results(study)
        | {"headline": answer, "basis": basis, "caveats": caveats}
        | {"members": models.members, "biases": models.biases, "models": frame},
        source=f"Made from {models.source}. The study is that of Gavrikov and Keuper, Can "
        "Biases in ImageNet Models Explain Generalization?, CVPR 2024; numbers of figures "
        "and tables are those of that paper.",
        frames={"models": frame},
    )


def _figure(
    study: Correlations,
    name: str,
    caption: str,
    drawn: plots.Figure,
) -> document.Figure:
    """Return the figure `drawn` with a name and its caption.

    caption: may have the fields {marked}, for the hatching of cells that are not significant, and
    {sized}, for the sizes of markers.
    """
    options = study.options
    level = f"p > {options.alpha:g} {model_correlations.WORDS[options.adjust]}"
    text = caption.format(
        marked=f"Hatched: {level} over the pairs of its table. {_GREY}",
        sized=f" {_SIZED}" if options.size else "",
    )
    return document.Figure(name, text, drawn)


def _scatter(
    study: Correlations,
    frame: pd.DataFrame,
    grid: Sequence[Sequence[tuple[str, str]]],
    *,
    panel: tuple[float, float],
    rho: pd.DataFrame | None = None,
) -> plots.Figure:
    """Return `correlation_plots.scatter` with a marker style for each category of the study.

    frame: one row per model. grid: rows of pairs (x, y) of columns. panel: width and height of a
    panel in inches. rho: numbers above the panels, x in rows and y in columns.
    """
    return correlation_plots.scatter(
        frame,
        grid,
        category="training",
        size=study.options.size,
        rho=rho,
        panel=panel,
        order=tuple(dict.fromkeys(study.frame["training"])),
    )


def _among(
    study: Correlations, name: str, caption: str, measures: tuple[str, ...]
) -> Blocks:
    """Yield the heat map of correlations among `measures`; nothing if they were not analysed.

    name, caption: see `_figure`.
    """
    for matrix in study.among:
        if tuple(matrix.statistic) == measures:
            yield _figure(
                study, name, caption, correlation_plots.heat(study, {"": matrix})
            )


def _correlations(page: BiasesData) -> Blocks:
    """Yield the heat map and the tables of correlations of biases with averages."""
    study = page.study
    yield _figure(
        study,
        "correlations",
        "Spearman's ρ of biases and averages of benchmarks (figure 2). {marked}",
        correlation_plots.heat(study, study.families),
    )
    for table in correlations_page.tables_of(study):
        # Other sections have figures of the correlations among measures.
        if table and not table.name.startswith("among"):
            yield table


def _models(page: BiasesData) -> Blocks:
    """Yield a figure of scatter plots of the averages of benchmarks against biases.

    A second figure has the averages of adversarially trained models against the high-frequency
    bias, if this bias was measured and there are at least two such models.
    """
    study = page.study
    yield _figure(
        study,
        "models",
        "Averages of benchmarks in % against biases, one marker per model (figures 4, 5 "
        "and 6), with ρ above each panel.{sized}",
        correlation_plots.all_pairs(study),
    )
    trained_name = title(bias_models.AT)
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
        yield _figure(
            study,
            "high_freq_trained",
            "Averages in % against high-frequency bias, adversarially trained "
            "models only (figure 10).{sized}",
            drawn,
        )


def _benchmarks(page: BiasesData) -> Blocks:
    """Yield figures and tables of the benchmarks.

    Figures: correlations among benchmarks, accuracies, ImageNet-A against shape bias (if both were
    measured), and all pairs of benchmarks (for 3 benchmarks or more). Tables: accuracies, averages,
    and settings if known.
    """
    models, study = page.models, page.study
    frame = study.frame
    size = study.options.size
    names = title(models.benchmarks)
    categories = frame["training"]
    yield from _among(
        study,
        "benchmarks_correlations",
        "Spearman's ρ of benchmarks among themselves (figure 3). {marked}",
        names,
    )
    drawn = bias_plots.spread(frame, [*names], categories, x="accuracy in %")
    yield _figure(
        study,
        "benchmark_spread",
        "Accuracy of every model on each benchmark (figure 11), one lane per "
        "category; boxes span the quartiles.",
        drawn,
    )
    shape = title("shape")
    imagenet_a = title("imagenet_a")
    if shape in frame and imagenet_a in frame:
        drawn = _scatter(study, frame, [[(shape, imagenet_a)]], panel=(4.8, 2.8))
        yield _figure(
            study,
            "imagenet_a",
            "ImageNet-A in % against shape bias (figure 9).{sized}",
            drawn,
        )
    if len(names) > 2:
        drawn = bias_plots.pairs(
            frame,
            [*names],
            categories,
            sizes=frame[size] if size else pd.Series(index=frame.index),
            rho=study.among[0].statistic,  # The second matrix is of biases.
        )
        yield _figure(
            study,
            "benchmark_pairs",
            "Every benchmark against every other (figure 15), each over its range in "
            "%. Above the diagonal: ρ.{sized}",
            drawn,
        )
    yield accuracy_table(models)
    yield average_table(models)
    if models.settings is not None:
        yield settings_table(models.settings)


def _biases(page: BiasesData) -> Blocks:
    """Yield figures and a table of the biases.

    Figures: correlations among biases, curves of filters, critical bands from normalised against
    plain accuracies, curves of critical bands, and filtered photographs; figures without data are
    left out, or None.
    """
    models, study = page.models, page.study
    frame = models.frame
    categories = study.frame["training"]
    yield from _among(
        study,
        "biases_correlations",
        "Spearman's ρ of biases among themselves (figure 12). {marked}",
        study.options.x,
    )
    panels = {}
    for kind in ("low", "high"):
        cut_offs = models.curve_columns(kind)
        if cut_offs:
            percent = [100 * cut_off for cut_off in cut_offs.values()]
            panels[f"{kind}-pass"] = bias_plots.Curves(percent, frame[[*cut_offs]])
    if panels:
        labels = ("cut-off in %", "ratio of clean accuracy")
        drawn = bias_plots.curves(panels, categories, labels)
        yield _figure(
            study,
            "filters",
            "Accuracy on filtered images relative to clean ones, by the share of frequencies "
            f"that the filter keeps (figure 13). {_LINES}",
            drawn,
        )
    if "cb_bw_raw" in frame:
        yield _normalised(frame, study)
    octaves = models.curve_columns("threshold")
    if octaves:
        panels = {"": bias_plots.Curves([*octaves.values()], frame[[*octaves]])}
        labels = ("nominal cycles per image", "threshold")
        drawn = bias_plots.curves(panels, categories, labels, is_log=True)
        yield _figure(
            study,
            "critical_bands",
            "Thresholds of the critical band: number of strengths of an octave's noise, "
            f"from the strongest down, at which recognition fails. {_LINES}",
            drawn,
        )
    if page.images:
        yield _figure(
            study,
            "stimuli",
            "Photographs after the filters of the spectral biases (figures 7 and 14). Negative "
            f"values of high-pass images are cut to 0, and the images are {bias_plots.GAIN} times "
            "brighter.",
            bias_plots.stimuli(page.images),
        )
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
        "The critical band from normalised accuracies (divided by the largest; norm.) "
        f"against the band from plain accuracies (figure 17), without the {(~has_band).sum()} of "
        f"{len(has_band)} models that have no plain band.",
        drawn,
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
        "Accuracy in % of every model on each benchmark, and averages over benchmarks "
        f"(Table 1): {'; '.join(means)}.",
        models.frame,
        [*models.benchmarks, *models.members],
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
    return tables.from_rows(
        "averages",
        "Means in % over the models of a category, without missing values.",
        rows,
        columns,
    )


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
        "Settings of each benchmark and bias: options that differ from the published ones "
        "(always given for an attack), rule that pools answers of several classes, and number of "
        "images.",
        settings.assign(range=ranges),
        columns,
        data=settings,
    )


def bias_table(models: ModelTable) -> tables.Table:
    """Return the table of biases, one row per model.

    Columns: name, training, one per bias of `models.biases`, and, if known, shape_lower,
    shape_upper and shape_n (interval of the shape bias, and number of decisions) and <bias>_raw
    (critical bands from plain accuracies). The files also have model and epsilon.
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
    caption = (
        "Biases of every model (Table 2). Shape bias: share of shape decisions among both"
        f"{interval}. Low- and high-frequency bias: mean ratio of accuracy on filtered to that on "
        "clean images. Bandwidth in octaves, centre frequency in nominal cycles per image."
    )
    return _model_table("biases", caption, frame, [*names, *bands])


def _model_table(
    name: str, caption: str, frame: pd.DataFrame, measures: Sequence[str]
) -> tables.Table:
    """Return a table of measures, one row per model.

    Critical bands of failed fits are only in the files. Columns: name, training and the measures;
    the files also have model (the index) and epsilon. name, caption: name and caption of the table.
    frame: one row per model. measures: columns to show.
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
    return tables.from_rows(name, caption, shown, columns, data=data)


SECTIONS = (
    document.SectionMaker("correlations", "Correlations", _correlations),
    document.SectionMaker("models", "Models", _models),
    document.SectionMaker("benchmarks", "Benchmarks", _benchmarks),
    document.SectionMaker("biases", "Biases", _biases),
    document.SectionMaker(
        "caveats", "Caveats", lambda page: [document.Text(page.caveats)]
    ),
)
