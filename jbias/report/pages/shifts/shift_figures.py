"""Functions that draw the figures of networks trained under shifts.

Most figures are small multiples of tidy frames: one panel per value of "panel", one line style
per value of "line".
"""

import pathlib
from collections.abc import Callable, Iterable, Mapping
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
TableRows = shift_drops.TableRows
AccuracyDraws = shift_drops.AccuracyDraws
MAX_PANELS, MAX_LINES = 9, 12  # Panels of a figure, and lines of a panel.
SETS = {shift_cells.ID: "in distribution", shift_cells.OOD: "out of distribution"}
MAX_ITERATION = 1_000  # Last iteration of learning curves.
MIN_EVALUATIONS = 5  # Learning curves with fewer evaluations are not drawn.
EPOCHS = "epochs"


def _figure(
    name: str,
    caption: str,
    frame: pd.DataFrame,
    *,
    draw: Callable[[pd.DataFrame], plots.Figure],
) -> document.Figure | None:
    """Return a figure; None for a frame without rows.

    caption: its first sentences; notes on different epochs and on omitted lines follow. draw:
    function that draws the frame.
    """
    if not len(frame):
        return None
    sentences = [caption, _note_on_epochs(frame), omissions(frame)]
    return document.Figure(name, " ".join(filter(None, sentences)), draw(frame))


def _extremes(cells: ShiftCells) -> list[ShiftCell]:
    """Return the cells at the most extreme level of each recipe, attribute and kind of shift."""
    extremes: dict[tuple, ShiftCell] = {}
    for cell in sorted(cells, key=lambda cell: cell.share):
        if cell.kind and cell.share > shift_cells.CONTROL:
            extremes[cell.recipe, cell.attribute, cell.kind] = cell
    return list(extremes.values())


def _extremes_by_title(cells: ShiftCells) -> dict[str, ShiftCell]:
    """Return the cells of `_extremes` by title: the recipe's name, attribute and level."""
    extremes = _extremes(cells)
    names = _short_names(cell.recipe for cell in extremes)
    return {f"{names[x.recipe]}, {x.attribute} {x.level}": x for x in extremes}


def rank_figure(cells: ShiftCells) -> document.Figure | None:
    """Return the figure of accuracies in and out of distribution; None without several recipes."""
    extremes = _extremes(cells)
    names = _short_names(cell.recipe for cell in extremes)
    return _figure(
        "in_against_out",
        "Accuracy in and out of distribution at the most extreme level: small markers are "
        "seeds, large markers their mean.",
        _accuracies_by_seed(extremes, names),
        draw=against,
    )


def learning_figure(study: ShiftStudy) -> document.Figure | None:
    """Return the figure of the first iterations; None without cells with enough evaluations."""
    return _figure(
        "learning_curves",
        f"Accuracy in % over the first {MAX_ITERATION:,} iterations at the most extreme level of "
        "each kind: mean ± std over seeds.",
        _learning_frame(_extremes_by_title(study.cells), study.frame),
        draw=learning,
    )


def probability_figure(cells: ShiftCells) -> document.Figure | None:
    """Return the figure of probabilities of the right class; None without stored decisions."""
    return _figure(
        "probabilities",
        "Probability of the right class at the most extreme level, of the images of all seeds; "
        "dots are means.",
        _probability_frame(_extremes_by_title(cells)),
        draw=probabilities,
    )


def level_figure(kind: str, kinds: TableRows) -> document.Figure | None:
    """Return the figure of drops over the levels of one kind of shift; None without levels.

    kinds: rows of `shift_drops.verdicts`.
    """
    levels = shifts.LEVELS.items()
    ticks = {level.share: name for name, level in levels if level.kind == kind}

    def draw(frame: pd.DataFrame) -> plots.Figure:
        labels = (f"level ({kind})", "drop in points")
        return curves(frame, labels=labels, ticks=ticks)

    frame = _drops_by_level(kind, kinds)
    caption = (
        f"Drop in points by level of the {kind} shift (x: share), with 95 % intervals; the first "
        "level is the control."
    )
    return _figure(f"levels_{kind}", caption, frame, draw=draw)


def size_figure(
    name: str, setting: str, label: str, *, cells: ShiftCells, draws: AccuracyDraws
) -> document.Figure | None:
    """Return the figure of accuracies by size; None without accuracies of several sizes.

    name: name of the figure. setting: see `_accuracies_by_size`. label: label of the x axis.
    """

    def draw(frame: pd.DataFrame) -> plots.Figure:
        return curves(frame, labels=(label, "accuracy in %"))

    caption = f"Accuracy in and out of distribution by {label}; bands: 95 % intervals."
    frame = _accuracies_by_size(cells, draws, setting)
    return _figure(name, caption, frame, draw=draw)


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
    """Return the data of the figure of accuracies, one row per cell and seed.

    Columns: panel and line (text), inside and outside (accuracy in % in and out of distribution).
    line: the name of the recipe. panel: the kind of shift, followed by the attribute, and by the
    data if there are several data, unless all cells have the same attribute and data. Panels with a
    single recipe are left out.

    extremes: cells at the most extreme levels. names: name of each recipe.
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


def _accuracies_by_size(
    cells: ShiftCells, draws: AccuracyDraws, setting: str
) -> pd.DataFrame:
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
