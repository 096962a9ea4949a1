"""Functions that build the report page of networks trained under shifts, its tables and figures.

Most figures are small multiples of tidy frames: one panel per value of "panel", one line style
per value of "line".
"""

import argparse
import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from jbias.data import shifts
from jbias.evals import decision_files
from jbias.report import document, plots, tables
from jbias.report.pages.shifts import shift_cells, shift_drops
from jbias.runs import checksums

ShiftCell, ShiftCells = shift_cells.ShiftCell, shift_cells.ShiftCells
ShiftStudy, Recipe = shift_cells.ShiftStudy, shift_cells.Recipe
TableRow, TableRows = shift_drops.TableRow, shift_drops.TableRows
Draws = shift_drops.Draws
SECTIONS = {
    "verdicts": "Attributes by drop in accuracy",
    "remedies": "Drops closed by remedies",
    "levels": "Drops over levels",
    "ranks": "Ranks in and out of distribution",
    "learning": "The first iterations",
    "probabilities": "Probabilities of the right class",
    "sizes": "Sizes of data",
    "caveats": "Caveats",
    "made": "Trained networks",
}
_ALWAYS = (
    "Hu et al. name the kinds of shift, but give no shares: levels and their tables are ours.",
    "Drops are computed from means over seeds (drops of averages: from averages), as published.",
    "All seeds see the same test images, so intervals include the full noise of these images.",
)
_CAVEATS = {
    "remedies": "The drop closed by {} is unknown: no run of {} has the same model, data, images, "
    "attribute and level. Train such a run, or name another algorithm with --reference.",
    "single": "One seed does not show the variation between seeds: {}. Its intervals and tests "
    "cover test images only. Train more, such as with seeds=5 after the colon of --config.",
    "few": "The smallest test set has {:,} images: the standard error of accuracy is about {} "
    "points (at 50 %).",
    "control": "Without a control (M0, C0, J0), a drop may have causes other than the shift: {}. "
    "These drops are compared with 0.",
    "images": "Some runs have no number of training images in their provenance.",
}
_OPTIONS = ("tau", "alpha", "reference", "draws", "seed")
_INTERVAL = "In brackets: 95 % intervals over redrawn seeds and test images."


_RECIPE = "model algorithm data setting attribute"
_CAPTIONS = {
    "verdicts": "Recipes and attributes, worst first, with the kind of shift of the largest "
    "normalised drop (in % of accuracy in distribution, minus that of the control). Bug: the "
    "drop at the most extreme level is more than {tau:g} points above the control's (Welch's t "
    "test over seeds, plus the variance over images; p below {alpha:g} after Holm's adjustment "
    "over all recipes, attributes and kinds). Area: mean drop over the levels. "
    f"{_INTERVAL}",
    "kinds": "Drops and verdicts for every kind of shift. Without a control, the drop itself is "
    f"tested. {_INTERVAL}",
    "remedies": "Share of the plain recipe's drop that a remedy closes, at the most extreme "
    "common level: 1 - drop / plain drop, if the interval of the plain drop is above 0. Gain: "
    "increase of accuracy out of distribution; ID cost: decrease of accuracy in distribution, "
    f"in points. Paired: the same seeds, redrawn together. {_INTERVAL}",
    "levels": "All levels: accuracy in %, mean ± std (n - 1) over n seeds. Share: fraction of a "
    "class's training images with the preferred values; 0.5 is the control. Group metrics: over "
    f"groups of class and value, by test set. {_INTERVAL}",
    "ranks": "Agreement of the models' ranks in and out of distribution at the most extreme level: "
    "Kendall's tau-b and Spearman's rho of mean accuracies, pairs of models in opposite order, "
    "and 95 % intervals of tau over redrawn seeds and images.",
    "runs": "Runs with their recorded seeds and number of training images.",
}
_DROPS = (
    "level percent:.2[] drop:.2[] control:.2[] over:.2[] normalised:.2[] area:.2[] seeds p:p "
    "holm:p"
)
_COLUMNS = {
    "verdicts": f"rank {_RECIPE} verdict kind {_DROPS}",
    "kinds": f"{_RECIPE} kind verdict {_DROPS}",
    "remedies": "data attribute level model algorithm setting pairs closed:.2[] drop:.2[] "
    "gain:.2[] id_cost:.2[] id ood seeds:d",
    "levels": f"{_RECIPE} level id ood drop:.2[] percent:.2[] share:.3 seeds:d images:d "
    "n_id:d n_ood:d",
    "ranks": "whose data attribute algorithm kind models crossed interval n:d tau:.2 tau_p:p "
    "rho:.2 rho_p:p",
    "runs": f"workdir {_RECIPE} level seeds ended device commit images:d",
}
_HEADS = {
    "percent": "drop %",
    "drop": "drop, points",
    "control": "at the control",
    "over": "above the control",
    "normalised": "normalised %",
    "pairs": "paired",
    "area": "area, points",
    "tau_p": "p",
    "rho_p": "p",
    "whose": "numbers",
}


def table(
    name: str, rows: Iterable[TableRow], caption_end: str = "", **caption_values: float
) -> tables.Table | None:
    """Return a table of the page; None without rows.

    name: key of `_COLUMNS` and `_CAPTIONS`. rows: values by key of the column; keys such as
    "_worst_group@id" (a metric and a test set) become further columns. caption_end: appended to the
    caption. caption_values: fields of the caption.
    """
    rows = list(rows)
    columns = tables.columns(_COLUMNS[name], **_HEADS)
    groups = dict.fromkeys(
        key for row in rows for key in row if key[0] == "_" and "@" in key
    )
    result = tables.from_rows(
        name,
        f"{_CAPTIONS[name].format(**caption_values)}{caption_end}",
        rows,
        columns | {key: (key[1:].replace("_", " "), str) for key in groups},
        bold=lambda row: ["verdict"] * (row.get("verdict") == shift_drops.BUG),
    )
    if result is None:
        return None
    return dataclasses.replace(result, shade=dict.fromkeys(result.bold, 0.5))


def report(study: shift_cells.ShiftStudy, args: argparse.Namespace) -> document.Report:
    """Return the report page of a study of shifts.

    args: parsed flags of the command `jbias report shifts`. Raises ValueError as
    `shift_drops.remedies` does for an unknown reference.
    """
    cells = study.cells
    draws = Draws(args.draws, args.seed)
    tau = args.tau
    alpha = args.alpha
    candidates, kinds = shift_drops.verdicts(cells, draws, tau=tau, alpha=alpha)
    remedies = shift_drops.remedies(cells, draws, args.reference)
    realised = list(_image_counts(cells))
    caveats = list(_caveats(study, remedies, args.reference))
    rows = {
        "verdicts": candidates,
        "kinds": kinds,
        "remedies": remedies,
        "levels": [level for row in kinds for level in row["_levels"]],
        "ranks": shift_drops.ranks(cells, draws),
        "runs": _run_rows(cells),
    }
    table_sections = {"kinds": "verdicts", "runs": "made"}
    placed_tables = [
        (
            table_sections.get(name, name),
            table(name, table_rows, tau=tau, alpha=alpha),
        )
        for name, table_rows in rows.items()
    ]
    placed_figures = figures(study, kinds, draws)
    texts = [("caveats", document.Text(caveats))]
    texts += [("made", _folded(counts)) for counts in realised]
    verdicts = []
    for row in candidates:
        verdict = {key: row.get(key) for key in ("kind", "attribute", "verdict")}
        verdicts.append(row["_recipe"]._asdict() | verdict)
    return document.Report(
        title="jbias shifts",
        heading="Networks under chosen shifts",
        subtitle="Marginal, conditional and joint shifts of attributes, jbias report",
        answer=_answer(candidates, kinds, study, tau=tau, alpha=alpha),
        facts={
            "Recipes": len({cell.recipe for cell in cells}),
            "Attributes": len({(cell.recipe.data, cell.attribute) for cell in cells}),
            "Levels": len({cell.level for cell in cells}),
            "Networks": sum(len(cell.seeds) for cell in cells),
            "Seeds each": tables.span((len(cell.seeds) for cell in cells), "–"),
        },
        sections=document.sections(SECTIONS, placed_figures, placed_tables, texts),
        results={
            "selection": study.rule,
            "options": {name: getattr(args, name) for name in _OPTIONS},
            "verdicts": verdicts,
            "caveats": caveats,
            "realised": realised,
            "tables": {shown.name: shown.data for _, shown in placed_tables if shown},
        },
        source="Shifts are those of Hu, Sang, Wang and Jiang, Understanding and Testing "
        "Generalization of Deep Networks on Out-of-Distribution Data, 2021.",
    )


def _answer(
    candidates: TableRows,
    kinds: TableRows,
    study: ShiftStudy,
    *,
    tau: float,
    alpha: float,
) -> tuple[str, str]:
    """Return (main result in one sentence, sentences on the analysed data).

    The main result has the number of bugs among the candidates and the worst bug, or that no shift
    beyond the control was run. candidates, kinds: the results of `shift_drops.verdicts`. tau:
    threshold in percentage points. alpha: significance level.
    """
    tested = [x for x in candidates if x["verdict"] != shift_drops.UNKNOWN]
    count = sum(row["verdict"] != shift_drops.UNKNOWN for row in kinds)
    bugs = [row for row in tested if row["verdict"] == shift_drops.BUG]
    basis = f"Selection: {study.rule}."
    if not tested:
        hint = " For networks trained on one value see jbias papers shifts."
        if any(cell.only_value for cell in study.cells):
            basis += hint
        return "No shift beyond the control was run.", basis
    count = f"{count} tests of kinds, adjusted after Holm at {alpha:g}"
    definition = f"A bug costs more than {tau:g} points beyond the control"
    basis = f"{len(tested)} recipes and attributes; {count}. {definition}. {basis}"
    if not bugs:
        return f"None of {len(tested)} candidates is a bug.", basis
    first = bugs[0]
    has_several = len({row["_recipe"] for row in tested}) > 1
    subject = f"{first['attribute']}" + f" of {first['_recipe'].label}" * has_several
    verb = "is a bug:" if len(bugs) == 1 else "are bugs, the worst of them"
    cost = f"its {first['kind']} shift costs {first['over']:.2f} points of accuracy"
    return f"{len(bugs)} of {len(tested)} candidates {verb} {subject}; {cost}.", basis


def _run_rows(cells: ShiftCells) -> Iterator[TableRow]:
    """Yield the rows of the table of runs, one per run of each cell.

    Keys: workdir, fields of the recipe, attribute, level, seeds (text), ended ("yes" or "no"),
    device, commit and images; None for an unknown value.
    """
    for cell in cells:
        for run in cell.runs:
            device = run.provenance.get("device") or {}
            code = run.provenance.get("code") or {}
            yield {
                "workdir": run.workdir,
                **cell.recipe._asdict(),
                "setting": cell.recipe.details or None,
                "attribute": cell.attribute,
                "level": cell.level,
                "seeds": ", ".join(map(str, run.seeds)),
                "ended": "yes" if run.finished else "no",
                "device": device.get("kind"),
                "commit": code.get("commit"),
                "images": cell.images or None,
            }


def _image_counts(cells: ShiftCells) -> Iterator[dict[str, Any]]:
    """Yield numbers of images by class and value, a dict per data, attribute, level and options.

    Keys: data, attribute, level, options and sets. `sets` maps each data set to the names of its
    classes and values, and to its counts (rows: classes, columns: values), as in the provenance.
    """
    realised: dict[str, dict] = {}
    for cell in cells:
        identity = {
            "data": cell.recipe.data,
            "attribute": cell.attribute,
            "level": cell.level,
            "options": dict(sorted(cell.options.items())),
        }
        sets = {}
        for name, entry in cell.runs[0].data.items():
            dataset = entry if isinstance(entry, Mapping) else {}
            counts = dataset.get("tables") or {}
            column = "attribute" if "attribute" in counts else cell.attribute
            if column in counts:
                sets[name] = {
                    "classes": dataset.get("names") or [],
                    "values": (dataset.get("values") or {}).get(column) or [],
                    "counts": counts[column],
                }
        if sets:
            realised.setdefault(str(identity), {**identity, "sets": sets})
    yield from realised.values()


def _folded(entry: Mapping[str, Any]) -> document.Folded:
    """Return a collapsed block with a table of counts per data set, as text.

    Rows are classes and columns values of the attribute; the last row and column are sums. entry: a
    dict of `_image_counts`.
    """
    options = ", ".join(f"{k}={v}" for k, v in entry["options"].items() if v)
    ending = f" ({options})" if options else ""
    title = (
        f"Images of {entry['data']} by {entry['attribute']}, {entry['level']}{ending}"
    )
    texts = []
    for name, dataset in entry["sets"].items():
        counts = np.asarray(dataset["counts"])
        counts = np.vstack([counts, counts.sum(axis=0)])
        counts = np.column_stack([counts, counts.sum(axis=1)])
        num_rows, num_columns = counts.shape
        rows = [*(dataset["classes"] or range(num_rows - 1)), "all"]
        columns = [*(dataset["values"] or range(num_columns - 1)), "all"]
        texts.append(f"{name}\n{pd.DataFrame(counts, rows, columns).to_string()}")
    return document.Folded(title, "\n\n".join(texts))


def _caveats(study: ShiftStudy, remedies: TableRows, reference: str) -> Iterator[str]:
    """Yield the caveats of the page, one sentence or short paragraph each.

    remedies: rows of `shift_drops.remedies`. reference: algorithm of the reference recipe.
    """
    oracle_note = (
        " Accuracies in and out of distribution are from different evaluations."
    )
    yield f"Selection: {study.rule}.{oracle_note * study.oracle}"
    yield from study.notes
    algorithms = {cell.recipe.algorithm for cell in study.cells} - {reference}
    uncompared = algorithms - {row["algorithm"] for row in remedies}
    if uncompared:
        yield _CAVEATS["remedies"].format(tables.join(sorted(uncompared)), reference)
    single = {cell.recipe.label for cell in study.cells if len(cell.seeds) < 2}
    if single:
        yield _CAVEATS["single"].format(tables.few(sorted(single)))
    fewest = min(n for cell in study.cells for n in cell.tested)
    error = math.ceil(100 / (2 * math.sqrt(fewest)))
    if error >= 3:
        yield _CAVEATS["few"].format(fewest, error)
    shares: dict[str, set[float]] = {}
    for cell in (cell for cell in study.cells if cell.kind):
        name = f"{cell.kind} by {cell.attribute} of {cell.recipe.label}"
        shares.setdefault(name, set()).add(cell.share)
    uncontrolled = [name for name in shares if shift_cells.CONTROL not in shares[name]]
    if uncontrolled:
        yield _CAVEATS["control"].format(tables.few(uncontrolled))
    if any(not cell.images for cell in study.cells):
        yield _CAVEATS["images"]
    yield from _ALWAYS


# Figures.

MAX_PANELS, MAX_LINES = 9, 12  # Panels of a figure, and lines of a panel.
SETS = {shift_cells.ID: "in distribution", shift_cells.OOD: "out of distribution"}
MAX_ITERATION = 1_000  # Last iteration of learning curves.
MIN_EVALUATIONS = 5  # Learning curves with fewer evaluations are not drawn.
EPOCHS = "epochs"
_DRAWN = {
    "levels": "Drop in points by level of the {} shift (x: share), with 95 % intervals; the first "
    "level is the control.",
    "ranks": "Accuracy in and out of distribution at the most extreme level: small markers are "
    "seeds, large markers their mean.",
    "learning": f"Accuracy in % over the first {MAX_ITERATION:,} iterations at the most extreme level of "
    "each kind: mean ± std over seeds.",
    "probabilities": "Probability of the right class at the most extreme level, of the images of "
    "all seeds; dots are means.",
    "sizes": "Accuracy in and out of distribution by {}; bands: 95 % intervals.",
}


def figures(study: ShiftStudy, kinds: TableRows, draws: Draws) -> document.Placed:
    """Yield (section id, figure), for each figure with data.

    The first figures are ranks, learning curves and probabilities at the most extreme levels. Drops
    by level follow, with a figure per kind of shift, then accuracies by number of images and by
    width. kinds: rows of the kinds of shift, the second result of `shift_drops.verdicts`.
    """
    extremes: dict[tuple, ShiftCell] = {}
    for cell in sorted(study.cells, key=lambda cell: cell.share):
        if cell.kind and cell.share > shift_cells.CONTROL:
            extremes[cell.recipe, cell.attribute, cell.kind] = cell
    cells = list(extremes.values())
    names = _short_names(cell.recipe for cell in cells)
    titles = {f"{names[x.recipe]}, {x.attribute} {x.level}": x for x in cells}
    frame = _accuracies_by_seed(cells, names)
    yield from _figure("in_against_out", "ranks", frame, draw=against)
    frame = _learning_frame(titles, study.frame)
    yield from _figure("learning_curves", "learning", frame, draw=learning)
    frame = _probability_frame(titles)
    yield from _figure("probabilities", "probabilities", frame, draw=probabilities)
    for kind in shifts.KINDS:
        yield from _level_figure(kind, kinds)
    for name, setting, label in (
        ("sizes", "images", "training images"),
        ("widths", "model.width", "width of the network"),
    ):
        frame = _accuracies_by_size(study.cells, draws, setting)
        yield from _size_figure(name, frame, label)


def _figure(
    name: str,
    section: str,
    frame: pd.DataFrame,
    *,
    draw: Callable[[pd.DataFrame], plots.Figure],
    label: str = "",
) -> document.Placed:
    """Yield (section id, figure); nothing for a frame without rows.

    name: name of the figure and key of its caption. section: id of the section. draw: function
    that draws the frame. label: value for the caption.
    """
    if len(frame):
        caption = _DRAWN[section].format(label)
        sentences = [caption, _note_on_epochs(frame), omissions(frame)]
        drawn = draw(frame)
        yield section, document.Figure(name, " ".join(filter(None, sentences)), drawn)


def _level_figure(kind: str, kinds: TableRows) -> document.Placed:
    """Yield (section id, figure of drops over the levels of one kind of shift), if any.

    kinds: rows of `shift_drops.verdicts`.
    """
    levels = shifts.LEVELS.items()
    ticks = {level.share: name for name, level in levels if level.kind == kind}

    def draw(frame: pd.DataFrame) -> plots.Figure:
        labels = (f"level ({kind})", "drop in points")
        return curves(frame, labels=labels, ticks=ticks)

    frame = _drops_by_level(kind, kinds)
    yield from _figure(f"levels_{kind}", "levels", frame, draw=draw, label=kind)


def _size_figure(name: str, frame: pd.DataFrame, label: str) -> document.Placed:
    """Yield (section id, figure of accuracies by size); nothing without accuracies.

    name: name of the figure. frame: the result of `_accuracies_by_size`. label: label of the x
    axis.
    """

    def draw(frame: pd.DataFrame) -> plots.Figure:
        return curves(frame, labels=(label, "accuracy in %"))

    yield from _figure(name, "sizes", frame, draw=draw, label=label)


def _drops_by_level(kind: str, kinds: TableRows) -> pd.DataFrame:
    """Return drops by level of one kind of shift: a panel per attribute, a line per recipe.

    Columns: panel, line, x (share of the preferred values), value, low and high (points). Recipes
    with a single level are left out. kinds: rows of `shift_drops.verdicts`.
    """
    curved = [x for x in kinds if x["kind"] == kind and len(x["_levels"]) > 1]
    names = _short_names(curve["_recipe"] for curve in curved)
    titles = _titles((curve["data"], curve["attribute"]) for curve in curved)
    return pd.DataFrame(
        {
            "panel": titles[curve["data"], curve["attribute"]],
            "line": names[curve["_recipe"]],
            "x": level["share"],
            "value": level["drop"],
            "low": level["drop_low"],
            "high": level["drop_high"],
        }
        for curve in curved
        for level in curve["_levels"]
    )


def _short_names(recipes: Iterable[Recipe]) -> dict[Recipe, str]:
    """Return short names by recipe: the model, and algorithm and data if these differ.

    The settings of `Recipe.details`, if any, follow in brackets.
    """
    recipes = list(dict.fromkeys(recipes))
    fields = ["model"]
    for field in ("algorithm", "data"):
        if len({getattr(recipe, field) for recipe in recipes}) > 1:
            fields.append(field)
    names = {}
    for recipe in recipes:
        name = ", ".join(getattr(recipe, field) for field in fields)
        details = f" [{recipe.details}]" if recipe.details else ""
        names[recipe] = f"{name}{details}"
    return names


def _titles(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return titles by pair (data, attribute).

    A title is the attribute, or "data by attribute" for several data sets.
    """
    pairs = dict.fromkeys(pairs)
    has_several_data = len({data for data, _ in pairs}) > 1
    return {pair: " by ".join(pair) if has_several_data else pair[1] for pair in pairs}


def _accuracies_by_seed(
    extremes: ShiftCells, names: Mapping[Recipe, str]
) -> pd.DataFrame:
    """Return accuracies of seeds in %, one row per seed.

    A panel is a kind of shift or, if there are several attributes or data sets, a kind with an
    attribute or data set; panels with a single recipe are left out. Columns: panel, line (name of
    the recipe), inside and outside (accuracies in and out of distribution). extremes: cells at the
    most extreme levels. names: name of each recipe.
    """
    titles = _titles((cell.recipe.data, cell.attribute) for cell in extremes)
    rows = []
    for cell in sorted(extremes, key=lambda cell: shifts.KINDS.index(cell.kind)):
        title = titles[cell.recipe.data, cell.attribute]
        panel = f"{cell.kind}, {title}" if len(titles) > 1 else cell.kind
        pairs = zip(100 * cell.inside, 100 * cell.outside, strict=True)
        rows += [(panel, names[cell.recipe], *pair) for pair in pairs]
    frame = pd.DataFrame(rows, columns=["panel", "line", "inside", "outside"])
    return frame[frame.groupby("panel")["line"].transform("nunique") > 1]


def _learning_frame(
    titles: Mapping[str, ShiftCell], frame: pd.DataFrame
) -> pd.DataFrame:
    """Return mean accuracies in % over the first iterations, for cells with at least 5 evaluations.

    Columns: panel, line (test set), x (iteration), value and std. titles: cells by panel. frame:
    records of the runs.
    """
    panels = {run.workdir: x for x, cell in titles.items() for run in cell.runs}
    frame = frame[(frame["metric"] == "accuracy") & (frame["step"] <= MAX_ITERATION)]
    frame = frame[(frame["condition"] == "") & frame["value"].notna()]
    panel = pd.Categorical(frame["workdir"].astype(str).map(panels), list(titles))
    frame = frame.assign(panel=panel, line=frame["dataset"].astype(str).map(SETS))
    groups = frame.groupby(["panel", "line", "step"], observed=True)["value"]
    frame = groups.agg(value="mean", std="std").mul(100).reset_index()
    frame = frame.rename(columns={"step": "x"})
    often = frame.groupby("panel", observed=True)["x"].transform("nunique")
    return frame[often >= MIN_EVALUATIONS]


def _probability_frame(titles: Mapping[str, ShiftCell]) -> pd.DataFrame:
    """Return probabilities of the correct class, for cells with stored decisions on both test sets.

    The test sets are "id" and "ood". The frame is empty without such cells. Columns: panel, line
    (test set) and value, one row per image and seed. titles: cells by panel.
    """
    frames = []
    for panel, cell in titles.items():
        by_line = {line: likelihoods(cell, name) for name, line in SETS.items()}
        if all(len(values) for values in by_line.values()):
            for line, values in by_line.items():
                frames.append(
                    pd.DataFrame({"panel": panel, "line": line, "value": values})
                )
    return pd.concat(frames) if frames else pd.DataFrame()


def likelihoods(cell: ShiftCell, dataset: str) -> Float[np.ndarray, "n"]:
    """Return the probabilities of the correct class over all seeds at the selected steps.

    dataset: name of the test set. Empty if decisions were not stored. Raises ValueError for a
    damaged file.
    """
    rows = cell.rows
    rows = rows[(rows["dataset"] == dataset) & (rows["metric"] == "accuracy")]
    arrays = [np.zeros(0)]
    for (workdir, step), some in rows.groupby(["workdir", "step"]):
        path = pathlib.Path(workdir) / f"decisions/{dataset}/{step}.parquet"
        if path.exists():
            checksums.check(workdir, path.as_posix().endswith)
            by_seed = decision_files.read(path)
            for seed in some["seed"]:
                columns = by_seed[seed].columns if seed in by_seed else {}
                if "likelihood" in columns:
                    arrays.append(columns["likelihood"])
    return np.concatenate(arrays, dtype=np.float64)


def _accuracies_by_size(cells: ShiftCells, draws: Draws, setting: str) -> pd.DataFrame:
    """Return accuracies in % by size, with one panel for cells that differ only in size.

    Columns: panel, line (in or out of distribution), x (size), epochs, value, low and high.
    setting: "images" or the name of a setting. Cells of a panel may also differ in epochs if no
    size has several numbers of epochs. Control levels, sizes that are not whole numbers, and panels
    with a single cell are left out.
    """
    groups: dict[tuple, dict[tuple[int, Any], ShiftCell]] = {}
    for cell in cells:
        size = cell.images or "" if setting == "images" else cell.settings.get(setting)
        if cell.share > shift_cells.CONTROL and str(size).isdecimal():
            recipe = cell.recipe
            excluded = (setting, EPOCHS)
            title = f"{recipe.model}, {cell.attribute} {cell.level}, {recipe.algorithm}"
            settings = (*sorted(cell.options.items()), *sorted(cell.settings.items()))
            key = title, recipe.data, *(x for x in settings if x[0] not in excluded)
            epochs = cell.settings.get(EPOCHS)
            groups.setdefault(key, {})[int(size), epochs] = cell
    rows = []
    used_titles = []
    for (title, *_), sized in groups.items():
        splits_epochs = len({size for size, _ in sized}) < len(sized)
        for group_epochs in dict.fromkeys(
            splits_epochs and epochs for _, epochs in sized
        ):
            members = [x for x in sized if not splits_epochs or x[1] == group_epochs]
            used_titles.append(title)
            occurrence = used_titles.count(title)
            panel = f"{title} ({occurrence})" if occurrence > 1 else title
            for size, epochs in sorted(members) if len(members) > 1 else ():
                drawn = draws.draw(sized[size, epochs])
                for line, values in zip(SETS.values(), drawn, strict=True):
                    row = {"panel": panel, "line": line, "x": size, "epochs": epochs}
                    rows.append(row | shift_drops.estimate(100 * values)._asdict())
    return pd.DataFrame(rows)


def _note_on_epochs(frame: pd.DataFrame) -> str:
    """Return a note on panels with points of different numbers of epochs, or "".

    frame: data of a figure; without the column epochs, there is no note.
    """
    if "epochs" not in frame:
        return ""
    counts = frame.groupby("panel", sort=False)["epochs"].nunique(dropna=False)
    names = tables.join(counts.index[counts > 1])
    return f"Points differ in epochs in {names}." if names else ""


def curves(
    frame: pd.DataFrame,
    labels: tuple[str, str],
    ticks: Mapping[float, str] | None = None,
) -> plots.Figure:
    """Return a figure of lines with intervals; all panels share the y axis.

    frame: columns panel, line, x, value, low, high. labels: labels of the x and y axes. ticks:
    text of the ticks by position on the x axis; None for a log axis with a tick at each x. At most
    9 panels and 12 lines are drawn.
    """
    names = frame["line"].unique()[:MAX_LINES]
    frame = _first_panels(frame[frame["line"].isin(names)])
    ends = min(0.0, frame["low"].min()) - 2, max(10.0, frame["high"].max()) + 2

    def finish(axes: plots.Axes, rows: pd.DataFrame) -> None:
        if ticks is None:
            axes.set_xscale("log")
        places = ticks or {x: f"{x:,}" for x in rows["x"]}
        axes.set_xticks(list(places), list(places.values()))
        axes.minorticks_off()
        axes.set_ylim(ends)

    return plots.curves(frame, plots.styles(names), labels, finish=finish)


def against(frame: pd.DataFrame) -> plots.Figure:
    """Return a figure of accuracy out of distribution against accuracy in distribution, in %.

    Small dots are seeds, large dots their mean. frame: columns panel, line, inside, outside;
    one row per seed. At most 9 panels are drawn.
    """
    looks = plots.marks(sorted(frame["line"].unique()))

    def draw(axes: plots.Axes, rows: pd.DataFrame) -> None:
        for name, seeds in rows.groupby("line"):
            x, y = seeds["inside"].to_numpy(), seeds["outside"].to_numpy()
            axes.scatter(x, y, s=9, alpha=0.45, lw=0, **looks[name])
            axes.scatter(x.mean(), y.mean(), s=46, lw=0, **looks[name])
        axes.margins(0.12)

    labels = "in distribution, %", "out of distribution, %"
    panels = dict(iter(_first_panels(frame).groupby("panel", sort=False)))
    return plots.multiples(panels, draw, labels, plots.handles(looks))


def learning(frame: pd.DataFrame) -> plots.Figure:
    """Return a figure of mean accuracy by iteration, with bands of one standard deviation.

    frame: columns panel, line (test set), x (iteration), value and std, in %. At most 9 panels are
    drawn.
    """
    looks = plots.styles(SETS.values())
    labels = ("iteration", "accuracy in %")
    return plots.curves(_first_panels(frame), looks, labels)


def probabilities(frame: pd.DataFrame) -> plots.Figure:
    """Return a figure of histograms of the probability of the correct class.

    frame: columns panel, line (test set) and value, one row per image and seed. At most 9 panels
    are drawn.
    """
    panels = {
        title: {name: (part, None) for name, part in rows.groupby("line")["value"]}
        for title, rows in _first_panels(frame).groupby("panel", sort=False)
    }
    looks = plots.styles(SETS.values())
    return plots.histograms(panels, looks, "probability of the right class")


def _first_panels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first `MAX_PANELS` panels."""
    return frame[frame["panel"].isin(frame["panel"].unique()[:MAX_PANELS])]


def omissions(frame: pd.DataFrame) -> str:
    """Return a note on the numbers of panels and lines that a figure does not show, or "".

    frame: columns panel and line. Lines are limited only if there is a column x, too.
    """
    limits = []
    panels = frame["panel"].nunique()
    if panels > MAX_PANELS:
        limits.append(f"the first {MAX_PANELS} of {panels} panels")
    num_lines = frame["line"].nunique()
    if "x" in frame and num_lines > MAX_LINES:
        limits.append(f"{MAX_LINES} of {num_lines} recipes")
    return f"The figure has only {tables.join(limits)}." if limits else ""
