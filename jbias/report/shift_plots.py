"""Figures of shifts: drops over levels and sizes, in against out of distribution, learning.

Most are small multiples of tidy frames: a panel a value of "panel", a look a value of "line".
"""

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import figure as mpl_figure
from matplotlib import lines as mpl_lines

from jbias.data import shifts
from jbias.evals import decisions
from jbias.report import document, plots, shift_drops, shift_runs, tables
from jbias.runs import checksums

PANELS, LINES = 9, 12  # More on one figure nobody can read.
SETS = {shift_runs.ID: "in distribution", shift_runs.OOD: "out of distribution"}
FIRST, FEWEST = 1_000, 5  # Iterations of learning curves; evaluations that make one.
EPOCHS = "epochs"
BINS = np.linspace(0, 1, 21)
Cells = Sequence[shift_runs.Cell]
_CAPTIONS = {
    "levels": "Drop in points over the levels of the {} shift, with 95 % intervals over redrawn "
    "seeds and test images. The first level is the control; levels are placed by share.",
    "ranks": "Accuracy out of distribution against accuracy in distribution at the most extreme "
    "level: a small mark for each seed, a large one for their mean.",
    "learning": f"Accuracy in % over the first {FIRST:,} iterations at the most extreme level "
    "of each kind: mean ± one standard deviation over seeds.",
    "probabilities": "Probability of the right class in and out of distribution at the most "
    "extreme level, for the images of all seeds.",
    "sizes": "Accuracy in and out of distribution by {}, with 95 % intervals over redrawn seeds "
    "and test images.",
}


def of(
    study: shift_runs.Study, kinds: Sequence[shift_drops.Row], draws: shift_drops.Draws
) -> Iterator[tuple[str, document.Figure]]:
    """Gives the figures with their sections, of what there is."""
    extremes: dict[tuple, shift_runs.Cell] = {}
    for cell in sorted(study.cells, key=lambda one: one.share):
        if cell.kind and cell.share > shift_runs.CONTROL:
            extremes[cell.recipe, cell.attribute, cell.kind] = cell
    names = _short(cell.recipe for cell in extremes.values())
    titles = {
        f"{names[cell.recipe]}, {cell.attribute} {cell.level}": cell
        for cell in extremes.values()
    }
    figures = [
        ("in_against_out", "ranks", "", _seeds([*extremes.values()], names), against),
        ("learning_curves", "learning", "", _learning(titles, study.frame), learning),
        ("probabilities", "probabilities", "", _likely(titles), probabilities),
    ]
    for kind in shifts.KINDS:
        ticks = {one.share: x for x, one in shifts.LEVELS.items() if one.kind == kind}
        labels = f"level ({kind})", "drop in points"
        draw = functools.partial(curves, labels=labels, ticks=ticks)
        figures.append((f"levels_{kind}", "levels", kind, _levels(kind, kinds), draw))
    for name, setting, what in (
        ("sizes", "images", "training images"),
        ("widths", "model.width", "width of the network"),
    ):
        draw = functools.partial(curves, labels=(what, "accuracy in %"))
        sized = _sizes(study.cells, draws, setting)
        figures.append((name, "sizes", what, sized, draw))
    for name, section, what, frame, draw in figures:
        if len(frame):
            words = _CAPTIONS[section].format(what), _uneven(frame), left_out(frame)
            caption = " ".join(filter(None, words))
            yield section, document.Figure(name, caption, draw(frame))


def _levels(kind: str, kinds: Sequence[shift_drops.Row]) -> pd.DataFrame:
    """Drops over the levels of one kind: a panel an attribute, a line a recipe."""
    curved = [x for x in kinds if x["kind"] == kind and len(x["_levels"]) > 1]
    names = _short(curve["_recipe"] for curve in curved)
    titles = _titles((curve["data"], curve["attribute"]) for curve in curved)
    return pd.DataFrame(
        {"panel": titles[curve["data"], curve["attribute"]]}
        | {"line": names[curve["_recipe"]], "x": level["share"]}
        | {"value": level["drop"], "low": level["drop_low"], "high": level["drop_high"]}
        for curve in curved
        for level in curve["_levels"]
    )


def _short(recipes: Iterable[shift_runs.Recipe]) -> dict[shift_runs.Recipe, str]:
    """Names recipes by what is not the same of all, and by the model."""
    recipes = list(dict.fromkeys(recipes))
    parts = [
        name
        for name in ("model", "algorithm", "data")
        if name == "model" or len({getattr(one, name) for one in recipes}) > 1
    ]
    return {
        recipe: ", ".join(getattr(recipe, part) for part in parts)
        + (f" [{recipe.told}]" if recipe.told else "")
        for recipe in recipes
    }


def _titles(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Names attributes, with their data where there are several."""
    pairs = dict.fromkeys(pairs)
    several = len({data for data, _ in pairs}) > 1
    return {pair: " by ".join(pair) if several else pair[1] for pair in pairs}


def _seeds(extremes: Cells, names: Mapping[shift_runs.Recipe, str]) -> pd.DataFrame:
    """Accuracies of seeds in and out of distribution: a panel a kind with several recipes."""
    titles = _titles((cell.recipe.data, cell.attribute) for cell in extremes)
    rows = []
    for cell in sorted(extremes, key=lambda one: shifts.KINDS.index(one.kind)):
        title = titles[cell.recipe.data, cell.attribute]
        panel = f"{cell.kind}, {title}" if len(titles) > 1 else cell.kind
        pairs = zip(100 * cell.inside, 100 * cell.outside, strict=True)
        rows += [(panel, names[cell.recipe], *pair) for pair in pairs]
    frame = pd.DataFrame(rows, columns=["panel", "line", "inside", "outside"])
    return frame[frame.groupby("panel")["line"].transform("nunique") > 1]


def _learning(
    titles: Mapping[str, shift_runs.Cell], frame: pd.DataFrame
) -> pd.DataFrame:
    """Accuracies over the first iterations, of runs that were evaluated often."""
    panels = {run.workdir: x for x, cell in titles.items() for run in cell.runs}
    frame = frame[(frame["metric"] == "accuracy") & (frame["step"] <= FIRST)]
    frame = frame[(frame["condition"] == "") & frame["value"].notna()]
    panel = pd.Categorical(frame["workdir"].astype(str).map(panels), list(titles))
    frame = frame.assign(panel=panel, algorithm=frame["dataset"].astype(str).map(SETS))
    frame = frame.groupby(["panel", "algorithm", "step"], observed=True)["value"]
    frame = frame.agg(["mean", "std"]).reset_index().rename(columns={"step": "epoch"})
    often = frame.groupby("panel", observed=True)["epoch"].transform("nunique")
    return frame[often >= FEWEST]


def _likely(titles: Mapping[str, shift_runs.Cell]) -> pd.DataFrame:
    """Probabilities of the right class, where decisions were kept with them."""
    parts = [
        pd.DataFrame({"panel": panel, "line": line, "value": values})
        for panel, cell in titles.items()
        if all(map(len, pair := [likelihoods(cell, x) for x in SETS]))
        for line, values in zip(SETS.values(), pair, strict=True)
    ]
    return pd.concat(parts) if parts else pd.DataFrame()


def likelihoods(cell: shift_runs.Cell, dataset: str) -> Float[np.ndarray, "n"]:
    """Gives the probabilities of the right class of all seeds at what was selected."""
    rows = cell.rows
    rows = rows[(rows["dataset"] == dataset) & (rows["metric"] == "accuracy")]
    found = [np.zeros(0)]
    for (workdir, step), some in rows.groupby(["workdir", "step"]):
        path = pathlib.Path(workdir) / f"decisions/{dataset}/{step}.parquet"
        if path.exists():
            checksums.check(workdir, path.as_posix().endswith)
            by_seed = decisions.read(path)
            columns = [by_seed[x].columns for x in some["seed"] if x in by_seed]
            found += [one["likelihood"] for one in columns if "likelihood" in one]
    return np.concatenate(found, dtype=np.float64)


def _sizes(cells: Cells, draws: shift_drops.Draws, setting: str) -> pd.DataFrame:
    """Accuracies by size, a panel of each runs that differ in nothing else.

    They may differ in epochs, too, if no size has several of these.
    """
    groups: dict[tuple, dict[tuple[int, Any], shift_runs.Cell]] = {}
    for cell in cells:
        size = cell.images or "" if setting == "images" else cell.settings.get(setting)
        if cell.share > shift_runs.CONTROL and str(size).isdecimal():
            recipe, but = cell.recipe, (setting, EPOCHS)
            title = f"{recipe.model}, {cell.attribute} {cell.level}, {recipe.algorithm}"
            rest = (*sorted(cell.options.items()), *sorted(cell.settings.items()))
            key = title, recipe.data, *(x for x in rest if x[0] not in but)
            epochs = cell.settings.get(EPOCHS)
            groups.setdefault(key, {})[int(size), epochs] = cell
    rows, seen = [], []
    for (title, *_), sized in groups.items():
        several = len({size for size, _ in sized}) < len(sized)
        for apart in dict.fromkeys(several and epochs for _, epochs in sized):
            those = [x for x in sized if not several or x[1] == apart]
            seen.append(title)
            again = seen.count(title)
            panel = f"{title} ({again})" if again > 1 else title
            for size, epochs in sorted(those) if len(those) > 1 else ():
                drawn = draws.of(sized[size, epochs])
                for line, values in zip(SETS.values(), drawn, strict=True):
                    row = {"panel": panel, "line": line, "x": size, "epochs": epochs}
                    rows.append(row | shift_drops.estimate(100 * values)._asdict())
    return pd.DataFrame(rows)


def _uneven(frame: pd.DataFrame) -> str:
    """Says along which lines epochs are not the same."""
    if "epochs" not in frame:
        return ""
    counts = frame.groupby("panel", sort=False)["epochs"].nunique(dropna=False)
    names = tables.join(counts.index[counts > 1])
    return f"Epochs are not the same along {names}." if names else ""


def curves(
    frame: pd.DataFrame,
    labels: tuple[str, str],
    ticks: Mapping[float, str] | None = None,
) -> mpl_figure.Figure:
    """Draws lines with intervals; panels have one scale of y.

    frame: panel, line, x, value, low, high. ticks: names of places on the axis of x; None:
    x grows by factors, and its values are named.
    """
    frame = frame[frame["line"].isin(frame["line"].unique()[:LINES])]
    shown = frame[frame["panel"].isin(_first(frame))]
    low, high = min(0.0, shown["low"].min()), max(10.0, shown["high"].max())
    margin = 0.05 * (high - low)

    def draw(axes, rows: pd.DataFrame, looks: Mapping[str, dict]) -> None:
        for name, line in rows.groupby("line", sort=False):
            look = looks[name]
            axes.plot(line["x"], line["value"], lw=1.4, markersize=4, mew=0, **look)
            axes.vlines(line["x"], line["low"], line["high"], look["color"], lw=0.9)
        if ticks is None:
            axes.set_xscale("log")
        places = ticks or {x: f"{x:,}" for x in rows["x"]}
        axes.set_xticks(list(places), list(places.values()))
        axes.minorticks_off()
        axes.set_ylim(low - margin, high + margin)

    return _multiples(frame, frame["line"].unique(), draw, labels)


def against(frame: pd.DataFrame) -> mpl_figure.Figure:
    """Draws out over in distribution, in %: a small dot a seed, a large one their mean.

    frame: panel, line, inside, outside; a row a seed.
    """

    def draw(axes, rows: pd.DataFrame, looks: Mapping[str, dict]) -> None:
        for name, spots in rows.groupby("line"):
            look = {key: looks[name][key] for key in ("marker", "color")}
            look["linewidths"] = 0
            x, y = spots["inside"], spots["outside"]
            axes.scatter(x, y, s=9, alpha=0.45, **look)
            axes.scatter(x.mean(), y.mean(), s=46, **look)
        axes.margins(0.12)

    labels = "in distribution, %", "out of distribution, %"
    names = sorted(frame["line"].unique())
    return _multiples(frame, names, draw, labels, linestyle="")


def learning(frame: pd.DataFrame) -> mpl_figure.Figure:
    """Draws means and deviations; frame: panel, algorithm, epoch, mean, std."""
    panels = [(title, frame[frame["panel"] == title]) for title in _first(frame)]
    return plots.curves(panels, list(SETS.values()), scale=100, label="iteration")


def probabilities(frame: pd.DataFrame) -> mpl_figure.Figure:
    """Draws how often the right class has which probability; frame: panel, line, value."""

    def draw(axes, rows: pd.DataFrame, looks: Mapping[str, dict]) -> None:
        for name, look in looks.items():
            values = rows["value"][rows["line"] == name]
            share = 100 * np.histogram(values, BINS)[0] / max(len(values), 1)
            axes.stairs(share, BINS, fill=True, color=look["color"], alpha=0.3)
            axes.stairs(share, BINS, color=look["color"], linewidth=1.3)
        axes.set(xlim=(0, 1), ylim=(0, None))

    labels = "probability of the right class", "share of images, %"
    bar = {"linestyle": "-", "marker": "", "linewidth": 5, "alpha": 0.6}
    return _multiples(frame, list(SETS.values()), draw, labels, **bar)


def _multiples(
    frame: pd.DataFrame,
    names: Sequence[str],
    draw: Callable[..., None],
    labels: tuple[str, str],
    **handle,
) -> mpl_figure.Figure:
    """Draws a panel of each title; `handle` is how the legend's marks look otherwise."""
    titles = _first(frame)
    looks = {
        name: plots.style_of(i) | {"marker": plots.marker_of(i)}
        for i, name in enumerate(names)
    }
    fig, cells = plots.grid(len(titles), names)
    for axes, title in zip(cells.flat, titles, strict=False):
        draw(axes, frame[frame["panel"] == title], looks)
        axes.set_title(plots.plain([title])[0], **plots.ink(9), loc="left")
    plots.label_edges(cells, len(titles), *labels)
    handles = [
        mpl_lines.Line2D([], [], **{"mew": 0, "markersize": 5, **look, **handle})
        for look in looks.values()
    ]
    plots.legend_above(fig, handles, names)
    return plots.laid_out(fig)


def _first(frame: pd.DataFrame) -> Sequence[str]:
    return frame["panel"].unique()[:PANELS]


def left_out(frame: pd.DataFrame) -> str:
    """Says what a figure leaves out for want of room."""
    told, panels = [], frame["panel"].nunique()
    if panels > PANELS:
        told.append(f"the first {PANELS} of {panels} panels")
    if "x" in frame and (recipes := frame["line"].nunique()) > LINES:
        told.append(f"{LINES} of {recipes} recipes")
    return f"Drawn are only {tables.join(told)}." if told else ""
