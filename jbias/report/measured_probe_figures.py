"""Which figures show what probes did to images: filters, noise, corruptions, attacks."""

import math
import re
from collections.abc import Iterator

import pandas as pd
from matplotlib import figure as mpl_figure

from jbias.report import (
    measured_cells,
    measured_figures,
    measured_probes,
    measured_read,
)

_NOISE = re.compile(r"(?:noise|original) ([\d.]+)(?: at ([\d.]+))?")
_FILTER = re.compile(r"(low|high) ([\d.]+)")
_ATTACK = re.compile(r"(linf|l2) ([\d.]+)(/255)?(.*)")
_NORMS = {"linf": "ℓ∞", "l2": "ℓ2"}

Drawn = Iterator[tuple[str, str, mpl_figure.Figure, str]]


def of(networks: measured_cells.Networks) -> Drawn:
    """Gives names, sections, figures and captions."""
    yield from _filters(networks)
    yield from _bands(networks)
    yield from _corruptions(networks)
    yield from _attacks(networks)


def _filters(networks: measured_cells.Networks) -> Drawn:
    for ending, place, those in measured_cells.places(networks, "spectral"):
        values: dict[str, dict] = {"low": {}, "high": {}}
        for one in those:
            for number in one.numbers[place]:
                match = _FILTER.fullmatch(number.condition)
                if match and number.metric == "accuracy":
                    by = values[match[1]].setdefault(float(match[2]), {})
                    by[one.name] = 100 * number.value
        names = [one.name for one in networks]
        panels = {}
        for kind, by in values.items():
            frame = pd.DataFrame(by).reindex(index=names)
            frame = frame[sorted(frame)]
            panels[f"{kind}-pass"] = ([*frame], frame)
        yield (
            f"filters{ending}",
            "spectral",
            measured_figures.curves(
                {name: panel for name, panel in panels.items() if panel[1].size},
                label="cut-off, share of frequencies",
                height="accuracy in %",
                limits=(0, 102),
            ),
            (
                f"Accuracy on filtered images of {place[1]}: low-pass filters keep the inner share "
                "of frequencies, high-pass filters the outer one."
            ),
        )


def _bands(networks: measured_cells.Networks) -> Drawn:
    for ending, place, those in measured_cells.places(networks, "critical_band"):
        panels, bands = {}, {}
        for one in those:
            panels[one.name] = noise(one, place)
            found = band(one, place, [float(name) for name in panels[one.name]])
            if found:
                bands[one.name] = found
        lost = []
        for one in those:
            if one.name not in bands:
                why = measured_probes.why(one, place)
                lost.append(one.name + (f" ({why})" if why else ""))
        yield (
            ending.removeprefix("_") or "critical_band",
            "critical_band",
            measured_figures.heat(
                panels, across="cycles per image", down="strength of noise", bands=bands
            ),
            f"{place[0]} on {place[1]}: accuracy in % under noise, by its strength and its "
            "octave, told by nominal cycles per image. Over the cells the fitted band with its centre; what is "
            "outside of them is cut."
            + (f" No band: {', '.join(lost)}." if lost else ""),
        )


def noise(one: measured_read.Network, place: measured_read.Place) -> pd.DataFrame:
    """Gives accuracy by strength of noise, weakest last, and octave."""
    cells, clean = {}, math.nan
    for number in one.numbers[place]:
        match = _NOISE.fullmatch(number.condition)
        if number.metric != "accuracy" or not match:
            continue
        value = math.nan if number.value is None else number.value
        if match[2] is None:
            clean = value
        else:
            cells.setdefault(float(match[2]), {})[float(match[1])] = value
    frame = pd.DataFrame(cells)
    if 0.0 not in frame.index:
        frame.loc[0.0] = clean  # No noise is the same in all octaves.
    frame = frame[sorted(frame)].sort_index(ascending=False)
    return frame.rename(columns="{:g}".format, index="{:g}".format)


def band(
    one: measured_read.Network, place: measured_read.Place, frequencies: list[float]
) -> measured_figures.Band | None:
    """Gives the fitted band in octaves above the lowest frequency, if there is one."""
    prefix = measured_probes.band_prefix(one, place)
    width, centre = (
        one.number(place, f"{prefix}_{metric}")
        for metric in ("bandwidth", "center_frequency")
    )
    if not (width and centre) or None in (width.value, centre.value):
        return None
    at = math.log2(centre.value / frequencies[0])
    return measured_figures.Band(at - width.value / 2, at, at + width.value / 2)


def _corruptions(networks: measured_cells.Networks) -> Drawn:
    for ending, told, by_network in measured_cells.corrupted(networks):
        panels = {}
        for name, cells in by_network.items():
            frame = pd.Series(cells).unstack(sort=False)
            panels[name] = frame[sorted(frame)]
        rows = dict.fromkeys(row for frame in panels.values() for row in frame.index)
        columns = sorted({c for frame in panels.values() for c in frame})
        panels = {
            name: frame.reindex(index=list(rows), columns=columns).rename(
                index=lambda row: row.replace("_", " ")
            )
            for name, frame in panels.items()
        }
        yield (
            f"corruptions{ending}",
            "corruptions",
            measured_figures.heat(panels, across="severity", down="", cell=(0.34, 0.2)),
            f"Accuracy in % on corrupted {told}, by corruption and severity.",
        )


def _attacks(networks: measured_cells.Networks) -> Drawn:
    budgets: dict[str, dict] = {}
    labels = {}
    for probe in ("fgsm", "pgd"):
        for _, place, those in measured_cells.places(networks, probe):
            for one in those:
                for number in one.numbers[place]:
                    match = _ATTACK.fullmatch(number.condition)
                    if not match or number.metric != f"{probe}_accuracy":
                        continue
                    norm = _NORMS[match[1]]
                    title = f"{place[0]} on {place[1]}, {norm}{match[4]}"
                    labels[title] = f"budget ({norm}{', in 1/255' if match[3] else ''})"
                    by = budgets.setdefault(title, {}).setdefault(float(match[2]), {})
                    by[one.name] = 100 * number.value
    names = [one.name for one in networks]
    panels = {}
    for title, by in budgets.items():
        if len(by) > 1:
            frame = pd.DataFrame(by).reindex(index=names)
            frame = frame[sorted(frame)]
            panels[title] = ([*frame], frame)
    if panels:
        yield (
            "attacks",
            "attacks",
            measured_figures.curves(
                panels, label=labels, height="accuracy in %", limits=(0, 102)
            ),
            "Accuracy under attack by budget. Attacks with one budget are in the table.",
        )
