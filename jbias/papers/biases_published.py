"""The 48 ResNet-50 of "Can Biases in ImageNet Models Explain Generalization?", as published.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, tables 1 and 2; their
results at https://github.com/paulgavrikov/biases_vs_generalization, raw-data/benchmark.csv,
and the correlations on their poster, assets/poster.pdf, where 0.00 stands for what is not
significant.
"""

import dataclasses
import functools
import operator
import pathlib
from collections.abc import Mapping, Sequence

import pandas as pd

from jbias.data import tables as data_tables
from jbias.evals import corruption_error, spectral
from jbias.report import (
    bias_study,
    csv_rows,
    document,
    network_frame,
    relations,
    tables,
)
from jbias.stats import correlation

Matrix = correlation.MatrixResult
Models, Study, title = bias_study.Models, bias_study.Study, bias_study.title
_KNOWN = data_tables.read("published_models")
STUDY = tuple(m["id"] for m in _KNOWN if m["category"] != bias_study.VIT)
VIT = tuple(m["id"] for m in _KNOWN if m["category"] == bias_study.VIT)  # The appendix.
TABLES, POSTER = "biases_printed.csv", "biases_poster.csv"
ACCURACIES = sum(network_frame.MEMBERS.values(), ())
_BIASES, _BANDS = network_frame.BIASES, ("cb_bw", "cb_cf", "cb_pns")
BIASES = (*_BIASES[:3], *(f"{band}_raw" for band in _BANDS), *_BANDS)  # As printed.
HALF = 0.005 + 1e-9  # Of the last printed digit.
LEVEL = 0.05  # At which the poster's zeros are those of p without adjustment.
_FAULTS = (
    "The published numbers have known faults, which are told where they matter: under "
    "Benchmarks and Biases."
)
# What is wrong with the published numbers, by the section of the page where it matters.
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


# The authors' results.


def _columns() -> dict[str, list[str]]:
    """Gives the columns that each measure is the mean of."""
    theirs = {"stylized16": "stylized", "pgd": "PGD-40/low"}
    own = {a: theirs.get(a, a.replace("_", "-")) for a in ACCURACIES}
    found = {a: [f"top1_acc/{name}"] for a, name in own.items()} | {
        name: [f"top1_acc/{one}_{level}" for one in ones for level in range(1, 6)]
        for name, ones in corruption_error.CORRUPTED.items()
    }
    found["shape"] = ["shape-bias"]
    passes = {"low": "metric/bandpass/LFC", "high": "metric/bandpass/HFC"}
    for kind, path in passes.items():
        cuts = spectral.CONVENTIONS[""]
        found[f"{kind}_freq"] = [f"{path}/{cut:g}" for cut in cuts]
    for end, their in (("", "_norm"), ("_raw", "")):
        for band in _BANDS:
            path = f"metric/criticalband/{band.removeprefix('cb_')}"
            found[f"{band}{end}"] = [f"{path}{their}"]
    for kind, path in passes.items():
        found |= {f"{kind}_{cut:g}": [f"{path}/{cut:g}"] for cut in spectral.CUTOFFS}
    return found


def read(path: str, who: Sequence[str] = STUDY) -> Models:
    """Reads the authors' raw results; `who` are the models to take, or those of `VIT`.

    ImageNet-C and C-bar are means over their cells, the spectral biases over five cut-offs.
    Raises ValueError by file and line for what is missing.
    """
    if not pathlib.Path(path).is_file():
        raise ValueError(
            f"{path}: must be the authors' raw-data/benchmark.csv, got no such file; name "
            "a copy, as jbias has one in examples/published/biases_benchmark.csv"
        )
    columns, (head, lines) = _columns(), csv_rows.read(path)
    needed = ["model", *(one for parts in columns.values() for one in parts)]
    lost = [name for name in needed if name not in head]
    if lost:
        raise ValueError(
            f"{path}:1: must have the columns of the authors' raw-data/benchmark.csv, "
            f"{lost[0]!r} is missing ({len(lost)} in all)"
        )
    rows: dict[str, dict] = {}
    for place, fields in lines:
        model = fields["model"]
        if model in rows:
            raise ValueError(f"{place}: a model must occur once, got {model!r}")
        if model in who:
            row = functools.partial(_mean, fields, place)
            means = {name: row(parts) for name, parts in columns.items()}
            rows[model] = bias_study.PUBLISHED[model] | means
    absent = [model for model in who if model not in rows]
    if absent:
        raise ValueError(
            f"{path}: must hold the study's {len(who)} models, {absent[0]!r} is missing "
            f"({len(absent)} in all)"
        )
    frame = pd.DataFrame.from_dict({model: rows[model] for model in who}, "index")
    told = [_FAULTS] if who is STUDY else []
    return network_frame.build_models(frame, source=path, told=told)


def _mean(fields: Mapping[str, str], place: str, names: Sequence[str]) -> float:
    number = functools.partial(csv_rows.parse_number, place=place, needed=True)
    return sum(number(fields[name], name) for name in names) / len(names)


# The printed numbers.


def cells(models: Models, folder: pathlib.Path) -> pd.DataFrame:
    """Compares tables 1 and 2: table, model, column, ours, printed, agrees.

    Cells agree where ours is within half of the last printed digit.
    """
    rows, needed = [], ("model", *ACCURACIES, *BIASES)
    for place, fields in csv_rows.read(str(folder / TABLES), needed)[1]:
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


def correlations(families: Mapping, among: Matrix, folder) -> pd.DataFrame:
    """Compares figures 2 and 12: models, x, y, ours, p, printed, agrees.

    families: biases with averages by the choice of models; among: of biases. A printed 0.00
    agrees where p without adjustment is above 0.05, any other number where ours is within
    half of the last digit and p is not above it.
    """
    rows, needed = [], ("models", "x", "y", "rho")
    for place, fields in csv_rows.read(str(folder / POSTER), needed)[1]:
        models, x, y = fields["models"], fields["x"], fields["y"]
        one = among if y in among.statistic else families.get(models)
        if one is None or x not in one.statistic.index or y not in one.statistic:
            pair = models, x, y
            raise ValueError(f"{place}: must be a pair of the study, got {pair}")
        ours, p = one.statistic.loc[x, y], one.pvalue.loc[x, y]
        printed = csv_rows.parse_number(fields["rho"], "rho", place)
        near = p <= LEVEL and abs(ours - printed) <= HALF
        agrees = bool(near if printed else p > LEVEL)
        rows.append((models, x, y, ours, p, printed, agrees))
    head = ["models", "x", "y", "ours", "p", "printed", "agrees"]
    return pd.DataFrame(rows, columns=head)


# The page.


def report(models: Models, study: Study, appendix: Study, *, printed=None, images=()):
    """Gives the study's page, with what is wrong, and of the appendix's models.

    printed: a folder with the printed numbers, to set ours beside.
    """
    page = bias_study.report(models, study, images=images)
    (answer, basis), facts, results = page.answer, {**page.facts}, {**page.results}
    results["anomalies"] = ANOMALIES
    faults = ANOMALIES | {"biases": [*ANOMALIES["biases"], _UNPUBLISHED]}
    sections = []
    for one in page.sections:
        told = document.Text(faults.get(one.id, ()))
        sections.append(dataclasses.replace(one, blocks=[told, *one.blocks]))
    beside = []
    if printed:
        folder, among = pathlib.Path(printed), study.among[-1]  # Of biases.
        ours = cells(models, folder)
        pairs = correlations(study.families, among, folder)
        right, met = ours["agrees"].sum(), pairs["agrees"].sum()
        basis += f" {right} of {len(ours)} cells of tables 1 and 2 and {met} of"
        basis += f" {len(pairs)} printed correlations agree."
        facts["As printed"] = f"{right + met} of {len(ours) + len(pairs)}"
        results["printed"] = {"tables": ours, "correlations": pairs}
        beside = [_printed_cells(ours), _printed_pairs(pairs), _printed_among(pairs)]
    printed, vit = "Beside the printed numbers", "Vision transformers"
    sections[-1:-1] = [  # Before the caveats.
        document.Section("printed", printed, beside),
        document.Section("vit", vit, [_vit(appendix)]),
    ]
    own = dict(answer=(answer, basis), facts=facts, results=results)
    return dataclasses.replace(page, sections=sections, **own)


def _vit(study: Study) -> document.Figure:
    pairs, alpha = study.pairs[study.pairs["models"] == "all"], study.options.alpha
    plain, holm = ((pairs[key] <= alpha).sum() for key in ("pvalue", "holm"))
    counts = dict(models=len(study.frame), pairs=len(pairs), plain=plain, holm=holm)
    told = _CAPTIONS["vit"].format(alpha=alpha, **counts)
    return document.Figure("vit", told, relations.all_pairs(bias_study.titled(study)))


def _printed_cells(cells: pd.DataFrame) -> tables.Table:
    off = (cells["ours"] - cells["printed"]).abs()
    by_column = cells.assign(off=off).groupby(["column", "table"], sort=False)
    sums = dict(cells=("off", "size"), agree=("agrees", "sum"), off=("off", "max"))
    columns = {"column": ("column", title)} | tables.columns("table:d cells:d agree:d")
    columns |= {"off": ("largest difference", "{:.3g}".format)}
    rows = by_column.agg(**sums).reset_index()
    return _table("printed_tables", rows, columns, data=cells)


def _printed_pairs(pairs: pd.DataFrame) -> tables.Table:
    mine = pairs[~pairs["y"].isin(_BIASES)]
    rows, columns = [], {"x": ("bias", title), "y": ("average", str)}
    for choice in mine["models"].unique():
        columns[f"ours {choice}"] = (title(choice), tables.digits(2))
        columns[f"printed {choice}"] = ("printed", _as_printed)
    for (x, y), part in mine.groupby(["x", "y"], sort=False):
        row = {"x": x, "y": y, "off": []}
        for one in part.itertuples():
            ours = f"ours {one.models}"
            row |= {ours: one.ours, f"printed {one.models}": one.printed}
            row["off"] += [ours] * (not one.agrees)
        rows.append(row)
    met = mine["agrees"].sum(), len(mine)
    more = dict(bold=operator.itemgetter("off"), data=mine)
    return _table("printed_correlations", rows, columns, *met, **more)


def _printed_among(pairs: pd.DataFrame) -> tables.Table:
    columns = {"x": ("bias", title), "y": ("bias", title)}
    columns |= {"ours": ("ρ", tables.digits(2)), "printed": ("printed", _as_printed)}
    columns |= {"agrees": ("agrees", {True: "yes", False: "no"}.get)}
    rows = pairs[pairs["y"].isin(_BIASES)]
    return _table("printed_biases", rows, columns)


def _table(name: str, rows, columns: Mapping, *words: int, **more) -> tables.Table:
    caption = _CAPTIONS[name].format(*words)
    return tables.from_rows(name, caption, rows, columns, **more)


def _as_printed(value: float) -> str:
    return "n.s." if value == 0 else tables.digits(2)(value)
