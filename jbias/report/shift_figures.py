"""Which figures the report of shifts has, of what, and what their captions say."""

import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib import figure as mpl_figure

from jbias.data import shifts
from jbias.evals import decisions
from jbias.report import (
    plots,
    shift_cells,
    shift_drops,
    shift_plots,
    shift_read,
    shift_sizes,
    shift_verdicts,
)
from jbias.runs import checksums

FIRST = 1_000  # Iterations of learning curves.
_FEWEST = 5  # Evaluations that make a curve.
Drawn = Iterator[tuple[str, str, mpl_figure.Figure, str]]


def of(
    study: shift_read.Study,
    candidates: Sequence[shift_verdicts.Candidate],
    draws: shift_drops.Draws,
) -> Drawn:
    """Gives the figures as (name, section, figure, caption)."""
    for kind in shifts.KINDS:
        yield from _levels(kind, candidates)
    yield from _against(study.cells)
    yield from _learning(study)
    yield from _probabilities(study)
    yield from shift_sizes.of(study.cells, draws)


def _levels(kind: str, candidates) -> Drawn:
    """Drops over the levels of one kind: a panel an attribute, a line a recipe."""
    panels = _level_lines(kind, candidates)
    if not panels:
        return
    names = list(dict.fromkeys(x.name for lines in panels.values() for x in lines))
    kept = names[: shift_plots.LINES]
    shown = {
        title: [line for line in drawn if line.name in kept]
        for title, drawn in itertools.islice(panels.items(), shift_plots.PANELS)
    }
    of_kind = {name: one for name, one in shifts.LEVELS.items() if one.kind == kind}
    places = {level.share: name for name, level in of_kind.items()}
    figure = shift_plots.curves(
        shown,
        kept,
        ticks=dict.fromkeys(shown, places),
        labels=(f"level ({kind})", "drop in points"),
    )
    caption = (
        f"Drop in points over the levels of the {kind} shift, with intervals of 95 % over "
        "redrawn seeds and test images. The first level is the control; levels stand at "
        f"their shares. {shift_plots.left_out(panels, names)}"
    )
    yield f"levels_{kind}", "levels", figure, caption.strip()


def _level_lines(kind: str, candidates) -> dict[str, list[shift_plots.Line]]:
    """Gives the lines of each panel, in the order of the ranks."""
    panels: dict[str, list[shift_plots.Line]] = {}
    curved = [
        (one, one.curves[kind])
        for one in candidates
        if kind in one.curves and len(one.curves[kind].points) > 1
    ]
    names = shift_cells.short(one.recipe for one, _ in curved)
    titles = _titles((one.recipe.data, one.attribute) for one, _ in curved)
    for one, curve in curved:
        drops = [point.drop for point in curve.points]
        columns = (
            [getattr(x, part) for x in drops] for part in ("value", "low", "high")
        )
        shares = [point.cell.share for point in curve.points]
        line = shift_plots.Line(names[one.recipe], shares, *columns)
        title = titles[one.recipe.data, one.attribute]
        panels.setdefault(title, []).append(line)
    return panels


def _titles(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Names attributes, with their data where there are several."""
    pairs = list(dict.fromkeys(pairs))
    several = len({data for data, _ in pairs}) > 1
    return {pair: " by ".join(pair) if several else pair[1] for pair in pairs}


def _extremes(cells: Sequence[shift_read.Cell]) -> list[shift_read.Cell]:
    """Gives the most extreme level of each candidate and kind, but no control."""
    found: dict[tuple, shift_read.Cell] = {}
    for cell in sorted((c for c in cells if c.kind), key=lambda one: one.share):
        if cell.share > shift_read.CONTROL:
            found[(*cell.candidate, cell.kind)] = cell
    return list(found.values())


def _against(cells: Sequence[shift_read.Cell]) -> Drawn:
    """Accuracy out of distribution over that in it, a panel a kind."""
    panels: dict[str, list[shift_plots.Spot]] = {}
    extremes = _extremes(cells)
    short = shift_cells.short(cell.recipe for cell in extremes)
    titles = _titles((cell.recipe.data, cell.attribute) for cell in extremes)
    for cell in sorted(extremes, key=lambda one: shifts.KINDS.index(one.kind)):
        title = titles[cell.recipe.data, cell.attribute]
        title = f"{cell.kind}, {title}" if len(titles) > 1 else cell.kind
        spot = shift_plots.Spot(
            short[cell.recipe], 100 * cell.inside, 100 * cell.outside
        )
        panels.setdefault(title, []).append(spot)
    panels = {title: spots for title, spots in panels.items() if len(spots) > 1}
    names = sorted({spot.name for spots in panels.values() for spot in spots})
    if not panels:
        return
    shown = dict(itertools.islice(panels.items(), shift_plots.PANELS))
    caption = (
        "Accuracy out of distribution over accuracy in distribution at the most extreme "
        f"level: a small mark a seed, a large one their mean. {shift_plots.left_out(panels)}"
    )
    figure = shift_plots.against(shown, names)
    yield "in_against_out", "ranks", figure, caption.strip()


def _learning(study: shift_read.Study) -> Drawn:
    """Accuracies over the first iterations, where runs were evaluated often."""
    panels = []
    frame = study.frame
    frame = frame[(frame["metric"] == "accuracy") & (frame["step"] <= FIRST)]
    frame = frame[(frame["condition"] == "") & frame["value"].notna()]
    frame = frame[frame["dataset"].isin([shift_read.ID, shift_read.OOD])]
    by_workdir = dict(iter(frame.groupby("workdir", observed=True)))
    extremes = _extremes(study.cells)
    short = shift_cells.short(cell.recipe for cell in extremes)
    for cell in extremes:
        parts = [by_workdir.get(run.workdir) for run in cell.runs]
        rows = [part for part in parts if part is not None]
        if not rows:
            continue
        table = pd.concat(rows).groupby(["dataset", "step"], observed=True)["value"]
        table = table.agg(["mean", "std"]).reset_index()
        if table["step"].nunique() < _FEWEST:
            continue
        words = {
            shift_read.ID: shift_plots.SETS[0],
            shift_read.OOD: shift_plots.SETS[1],
        }
        table["algorithm"] = table["dataset"].astype(str).map(words)
        title = f"{short[cell.recipe]}, {cell.attribute} {cell.level}"
        panels.append((title, table.rename(columns={"step": "epoch"})))
    if not panels:
        return
    figure = plots.curves(
        panels[: shift_plots.PANELS], shift_plots.SETS, scale=100, label="iteration"
    )
    caption = (
        f"Accuracy in % over the first {FIRST:,} iterations at the most extreme level of each "
        "kind: mean over seeds, the band is ± one standard deviation over seeds. "
        f"{shift_plots.left_out(panels)}"
    )
    yield "learning_curves", "learning", figure, caption.strip()


def _probabilities(study: shift_read.Study) -> Drawn:
    """Probabilities of the right class, where decisions were kept with them."""
    panels = {}
    extremes = _extremes(study.cells)
    short = shift_cells.short(cell.recipe for cell in extremes)
    for cell in extremes:
        pair = [likelihoods(cell, name) for name in (shift_read.ID, shift_read.OOD)]
        if all(len(values) for values in pair):
            title = f"{short[cell.recipe]}, {cell.attribute} {cell.level}"
            panels[title] = tuple(pair)
    if not panels:
        return
    shown = dict(itertools.islice(panels.items(), shift_plots.PANELS))
    caption = (
        "Probability of the right class in and out of distribution at the most extreme "
        f"level, images of all seeds together. {shift_plots.left_out(panels)}"
    )
    figure = shift_plots.probabilities(shown)
    yield "probabilities", "probabilities", figure, caption.strip()


def likelihoods(cell: shift_read.Cell, dataset: str) -> np.ndarray:
    """Gives the probabilities of the right class of all seeds at what was selected."""
    rows = cell.rows[
        (cell.rows["dataset"] == dataset) & (cell.rows["metric"] == "accuracy")
    ]
    found = []
    for workdir, mine in rows.groupby("workdir"):
        for step, some in mine.groupby("step"):
            path = pathlib.Path(workdir) / f"decisions/{dataset}/{step}.parquet"
            if not path.exists():
                continue
            checksums.check(workdir, path.as_posix().endswith)
            by_seed = decisions.read(path)
            for seed in some["seed"]:
                columns = by_seed[seed].columns if seed in by_seed else {}
                if "likelihood" in columns:
                    found.append(np.asarray(columns["likelihood"], np.float64))
    return np.concatenate(found) if found else np.zeros(0)
