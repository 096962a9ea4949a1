"""Published results of "Can Biases in ImageNet Models Explain Generalization?", and a page on them.

The results are measures of 48 ResNet-50 networks, and of ViT-B/16 networks in the appendix.
Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, tables 1 and 2; their
results at https://github.com/paulgavrikov/biases_vs_generalization, raw-data/benchmark.csv,
and the correlations on their poster, assets/poster.pdf, which prints 0.00 for a correlation
that is not significant.
"""

import dataclasses
import itertools
import operator
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.data import tables as data_tables
from jbias.measures import corruption_error, spectral_bias
from jbias.report import csv_rows, document, network_frame, tables
from jbias.report.pages.biases import bias_models, biases_page
from jbias.report.pages.correlations import (
    correlation_plots,
    model_correlations,
)
from jbias.stats import correlation

Matrix = correlation.MatrixResult
ModelTable, Correlations = network_frame.ModelTable, model_correlations.Correlations
title = bias_models.title
_KNOWN = data_tables.read("published_models")
STUDY = tuple(m["id"] for m in _KNOWN if m["category"] != bias_models.VIT)
VIT = tuple(
    m["id"] for m in _KNOWN if m["category"] == bias_models.VIT
)  # The appendix.
TABLES, POSTER = "biases_printed.csv", "biases_poster.csv"
ACCURACIES = sum(network_frame.MEMBERS.values(), ())
_BIASES, _BANDS = network_frame.BIASES, ("cb_bw", "cb_cf", "cb_pns")
BIASES = (*_BIASES[:3], *(f"{band}_raw" for band in _BANDS), *_BANDS)  # As printed.
HALF = 0.005 + 1e-9  # Half of the last printed digit.
LEVEL = 0.05  # The poster prints 0.00 if the unadjusted p is above.
_FAULTS = (
    "The published numbers have known faults, which are described in the sections that "
    "they affect: Benchmarks and Biases."
)
# Faults of the published numbers, by the section of the page that they affect.
ANOMALIES = {
    "benchmarks": """\
ReaL: every accuracy is a number of whole images of 326. Only the last batch was logged \
(336 images, 10 of them without a label), not the 46,837 of the set. It enters ID; true \
values will differ by several points.
Stylized (16): every accuracy is a number of whole images of 800. This is the 16-class \
set of model-vs-human, not the 1000 classes that the paper's text describes. It enters \
Concepts, and without it shape bias and Concepts go together with the other sign.
PGD: accuracies count 50,048 images instead of 50,000, the last batch was padded: at \
most 0.084 percentage points too high. No rank can change.
""".splitlines(),
    "biases": """\
Low- and high-frequency bias are means over five cut-offs, 10 to 50 %, as in the \
paper's Table 2; its text names four, 10 to 40 %.
Critical band: without normalisation 27 of the 48 models are right on less than half of \
the grey images even without noise and have no band. The data have a bandwidth of \
11295.35 and an arbitrary centre frequency for them (4247.37; 3681.95 in the paper). \
Only normalised bands are correlated.
Critical band: nominal frequencies are 2 to 2.6 times too high, and the noise has 0.943 \
of its nominal strength, alike for all models. Peak noise sensitivity ends at 1 by its \
definition. Few values are taken, so many models are tied.
""".splitlines(),
}
_UNPUBLISHED = (
    "Critical band: of its three forms (figure 17) the third, the original stimuli with 16 "
    "classes, is not among the published results."
)


_CAPTIONS = {
    "vit": "The {models} ViT-B/16 of the paper's appendix (figure 8): averages of benchmarks in "
    "% over biases. The number over each is ρ; {plain} of {pairs} have p ≤ {alpha:g} without "
    "adjustment, {holm} after Holm's.",
    "printed_tables": "Tables 1 and 2 as printed and as computed here: cells, those that agree "
    "to the last printed digit, and the largest difference. The CSV file has every cell.",
    "printed_correlations": "Spearman's ρ of biases and averages (figure 2), here and as printed "
    "on the authors' poster: {} of {} agree. n.s.: printed as 0.00, not significant; it agrees "
    f"where p here, without adjustment, is above {LEVEL:g}. Bold: does not agree.",
    "printed_biases": "Spearman's ρ among biases (figure 12) over all models, here and as "
    "printed.",
}


def _columns() -> dict[str, list[str]]:
    """Return the authors' columns to average for each measure, by our name of the measure.

    ImageNet-C and C-bar have a column per corruption and level, and low- and high-frequency bias
    one per cut-off. Other measures have one column.
    """
    their_names = {"stylized16": "stylized", "pgd": "PGD-40/low"}
    columns = {}
    for accuracy in ACCURACIES:
        name = their_names.get(accuracy, accuracy.replace("_", "-"))
        columns[accuracy] = [f"top1_acc/{name}"]
    for name, corruptions in corruption_error.CORRUPTED.items():
        columns[name] = [
            f"top1_acc/{corruption}_{level}"
            for corruption in corruptions
            for level in range(1, 6)
        ]
    columns["shape"] = ["shape-bias"]
    filters = {"low": "metric/bandpass/LFC", "high": "metric/bandpass/HFC"}
    for kind, path in filters.items():
        cutoffs = spectral_bias.CONVENTIONS[""]
        columns[f"{kind}_freq"] = [f"{path}/{cutoff:g}" for cutoff in cutoffs]
    for suffix, their_suffix in (("", "_norm"), ("_raw", "")):
        for band in _BANDS:
            path = f"metric/criticalband/{band.removeprefix('cb_')}"
            columns[f"{band}{suffix}"] = [f"{path}{their_suffix}"]
    for kind, path in filters.items():
        for cutoff in spectral_bias.CUTOFFS:
            columns[f"{kind}_{cutoff:g}"] = [f"{path}/{cutoff:g}"]
    return columns


def read(path: str, ids: Sequence[str] = STUDY) -> ModelTable:
    """Return the table of models from the authors' file benchmark.csv, in the units of the file.

    path: path of the file. ids: the models, STUDY or VIT. Accuracies on ImageNet-C and C-bar are
    means over their columns, spectral biases over five cut-offs. ValueError, with file and line,
    for a missing column or model.
    """
    if not pathlib.Path(path).is_file():
        raise ValueError(
            f"{path}: must be the authors' raw-data/benchmark.csv, got no such file; name "
            "a copy, as jbias has one in examples/published/biases_benchmark.csv"
        )
    columns, (head, lines) = _columns(), csv_rows.read(path)
    required = ["model", *itertools.chain.from_iterable(columns.values())]
    missing = [name for name in required if name not in head]
    if missing:
        raise ValueError(
            f"{path}:1: must have the columns of the authors' raw-data/benchmark.csv, "
            f"{missing[0]!r} is missing ({len(missing)} in all)"
        )
    rows: dict[str, dict] = {}
    for place, fields in lines:
        model = fields["model"]
        if model in rows:
            raise ValueError(f"{place}: a model must occur once, got {model!r}")
        if model in ids:
            rows[model] = bias_models.PUBLISHED[model] | {
                name: _mean(fields, place, names=names)
                for name, names in columns.items()
            }
    missing = [model for model in ids if model not in rows]
    if missing:
        raise ValueError(
            f"{path}: must hold the study's {len(ids)} models, {missing[0]!r} is missing "
            f"({len(missing)} in all)"
        )
    frame = pd.DataFrame.from_dict({model: rows[model] for model in ids}, "index")
    notes = [_FAULTS] if ids is STUDY else []
    return network_frame.build_models(frame, source=path, notes=notes)


def _mean(fields: Mapping[str, str], place: str, *, names: Sequence[str]) -> float:
    """Return the mean of the fields `names` of a row; ValueError if one is not a number.

    place: "file:line", the start of the error message.
    """
    numbers = [
        csv_rows.parse_number(fields[name], name, place=place, needed=True)
        for name in names
    ]
    return sum(numbers) / len(names)


def cells(models: ModelTable, folder: pathlib.Path) -> pd.DataFrame:
    """Return a comparison with the printed tables 1 and 2, one row per cell.

    Columns: table (1 or 2), model, column, ours (recomputed), printed, and agrees (True if ours is
    within half a unit of the last printed digit). An empty printed cell is NaN and does not agree.
    models: result of `read`. folder: contains the file TABLES. ValueError for a model that the
    study lacks, and for a missing column.
    """
    rows, required = [], ("model", *ACCURACIES, *BIASES)
    for place, fields in csv_rows.read(str(folder / TABLES), required)[1]:
        model = fields["model"]
        if model not in models.frame.index:
            raise ValueError(f"{place}: must be a model of the study, got {model!r}")
        for table, columns in ((1, ACCURACIES), (2, BIASES)):
            for column in columns:
                printed = csv_rows.parse_number(fields[column], column, place)
                ours = models.frame.loc[model, column]
                rows.append((table, model, column, ours, printed))
    head = ["table", "model", "column", "ours", "printed"]
    frame = pd.DataFrame(rows, columns=head)
    return frame.assign(agrees=(frame["ours"] - frame["printed"]).abs() <= HALF)


def correlations(
    families: Mapping[str, Matrix], among: Matrix, folder: pathlib.Path
) -> pd.DataFrame:
    """Return a comparison with the printed correlations of figures 2 and 12, one row per pair.

    families: correlations of biases with averages, by the choice of models.
    among: correlations among biases. folder: contains the file POSTER.
    Columns: models, x, y, ours (recomputed), p, printed and agrees. A printed 0.00 agrees if the
    unadjusted p is above 0.05; another number if p is at most 0.05 and our number is within half a
    unit of the last printed digit. ValueError for a pair that the study lacks, and for a missing
    column.
    """
    rows, required = [], ("models", "x", "y", "rho")
    for place, fields in csv_rows.read(str(folder / POSTER), required)[1]:
        models, x, y = fields["models"], fields["x"], fields["y"]
        matrix = among if y in among.statistic else families.get(models)
        is_known = (
            matrix is not None and x in matrix.statistic.index and y in matrix.statistic
        )
        if not is_known:
            pair = models, x, y
            raise ValueError(f"{place}: must be a pair of the study, got {pair}")
        ours, p = matrix.statistic.loc[x, y], matrix.pvalue.loc[x, y]
        printed = csv_rows.parse_number(fields["rho"], "rho", place)
        if printed == 0:
            agrees = bool(p > LEVEL)
        else:
            agrees = bool(p <= LEVEL and abs(ours - printed) <= HALF)
        rows.append((models, x, y, ours, p, printed, agrees))
    head = ["models", "x", "y", "ours", "p", "printed", "agrees"]
    return pd.DataFrame(rows, columns=head)


def report(
    models: ModelTable,
    study: Correlations,
    appendix: Correlations,
    *,
    printed: str | None = None,
    images: Sequence[Any] = (),
) -> document.Report:
    """Return the study's page, with notes on faults of the published numbers.

    The page also has sections on the printed numbers (empty without `printed`) and on vision
    transformers.
    models: result of `read`. study: correlations of these models. appendix: correlations of the
    vision transformers. printed: path of the folder with the printed numbers, for a section that
    compares printed with recomputed numbers. images: result of bias_plots.read_photographs, for
    figures.
    """
    page = biases_page.report(models, study, images=images)
    answer, basis = page.answer
    page_facts, results = {**page.facts}, {**page.results}
    results["anomalies"] = ANOMALIES
    faults = ANOMALIES | {"biases": [*ANOMALIES["biases"], _UNPUBLISHED]}
    sections = []
    for section in page.sections:
        text = document.Text(faults.get(section.id, ()))
        sections.append(dataclasses.replace(section, blocks=[text, *section.blocks]))
    comparison = []
    if printed:
        folder, among_biases = pathlib.Path(printed), study.among[-1]
        table_cells = cells(models, folder)
        pairs = correlations(study.families, among_biases, folder)
        num_cells = table_cells["agrees"].sum()
        num_pairs = pairs["agrees"].sum()
        basis += (
            f" {num_cells} of {len(table_cells)} cells of tables 1 and 2 and {num_pairs} of"
            f" {len(pairs)} printed correlations agree."
        )
        total = len(table_cells) + len(pairs)
        page_facts["As printed"] = f"{num_cells + num_pairs} of {total}"
        results["printed"] = {"tables": table_cells, "correlations": pairs}
        comparison = [
            _printed_cells(table_cells),
            _printed_pairs(pairs),
            _printed_among(pairs),
        ]
    sections[-1:-1] = [  # Before the caveats.
        document.Section("printed", "Comparison with the printed numbers", comparison),
        document.Section("vit", "Vision transformers", [_vit(appendix)]),
    ]
    return dataclasses.replace(
        page,
        sections=sections,
        answer=(answer, basis),
        facts=page_facts,
        results=results,
    )


def _vit(study: Correlations) -> document.Figure:
    """Return the figure of the vision transformers' correlations; study: these correlations."""
    pairs, alpha = study.pairs[study.pairs["models"] == "all"], study.options.alpha
    caption = _CAPTIONS["vit"].format(
        models=len(study.frame),
        pairs=len(pairs),
        plain=(pairs["pvalue"] <= alpha).sum(),
        holm=(pairs["holm"] <= alpha).sum(),
        alpha=alpha,
    )
    figure = correlation_plots.all_pairs(bias_models.with_titles(study))
    return document.Figure("vit", caption, figure)


def _printed_cells(table_cells: pd.DataFrame) -> tables.Table:
    """Return a table of the agreement with the printed tables, one row per printed column.

    Columns: column, table, cells and agree (numbers of cells), and off (largest difference). The
    files have `table_cells`. table_cells: result of `cells`.
    """
    difference = (table_cells["ours"] - table_cells["printed"]).abs()
    with_difference = table_cells.assign(off=difference)
    rows = (
        with_difference.groupby(["column", "table"], sort=False)
        .agg(cells=("off", "size"), agree=("agrees", "sum"), off=("off", "max"))
        .reset_index()
    )
    columns = {
        "column": ("column", title),
        **tables.columns("table:d cells:d agree:d"),
        "off": ("largest difference", "{:.3g}".format),
    }
    caption = _CAPTIONS["printed_tables"]
    return tables.from_rows(
        "printed_tables", caption, rows, columns=columns, data=table_cells
    )


def _printed_pairs(pairs: pd.DataFrame) -> tables.Table:
    """Return a table of correlations of biases with averages, recomputed and printed.

    One row per bias and average. Columns of the page: bias, average, and two per choice of models,
    our correlation and the printed correlation; the files have the columns of `correlations`, one
    row per choice, bias and average. Recomputed correlations are bold where they do not agree with
    the printed ones. pairs: result of `correlations`.
    """
    with_averages = pairs[~pairs["y"].isin(_BIASES)]
    rows, columns = [], {"x": ("bias", title), "y": ("average", str)}
    for choice in with_averages["models"].unique():
        columns[f"ours {choice}"] = (title(choice), tables.digits(2))
        columns[f"printed {choice}"] = ("printed", _as_printed)
    for (x, y), group in with_averages.groupby(["x", "y"], sort=False):
        row = {"x": x, "y": y, "off": []}
        for pair in group.itertuples():
            row[f"ours {pair.models}"] = pair.ours
            row[f"printed {pair.models}"] = pair.printed
            if not pair.agrees:
                row["off"].append(f"ours {pair.models}")
        rows.append(row)
    caption = _CAPTIONS["printed_correlations"].format(
        with_averages["agrees"].sum(), len(with_averages)
    )
    return tables.from_rows(
        "printed_correlations",
        caption,
        rows,
        columns=columns,
        bold=operator.itemgetter("off"),
        data=with_averages,
    )


def _printed_among(pairs: pd.DataFrame) -> tables.Table | None:
    """Return a table of correlations among biases, one row per pair; None without such pairs.

    The columns of the page, by key: x, y, ours (recomputed), printed ("n.s." for 0) and agrees (yes
    or no). pairs: result of `correlations`; rows whose y is not a bias are left out.
    """
    columns = {
        "x": ("bias", title),
        "y": ("bias", title),
        "ours": ("ρ", tables.digits(2)),
        "printed": ("printed", _as_printed),
        "agrees": ("agrees", {True: "yes", False: "no"}.get),
    }
    rows = pairs[pairs["y"].isin(_BIASES)]
    caption = _CAPTIONS["printed_biases"]
    return tables.from_rows("printed_biases", caption, rows, columns=columns)


def _as_printed(value: float) -> str:
    """Return a printed correlation as text; "n.s." for 0, which the poster prints if p > 0.05."""
    return "n.s." if value == 0 else tables.digits(2)(value)
