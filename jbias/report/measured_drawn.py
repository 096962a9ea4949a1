"""Which figures a page of measured networks has, and what they say."""

import math
import re
from collections.abc import Iterator, Mapping

import pandas as pd
from matplotlib import figure as mpl_figure

from jbias.evals import calibration, cue_conflict, human, trials
from jbias.report import (
    decoding_figure,
    measure_figures,
    measured_cells,
    measured_figures,
    measured_probes,
    measured_read,
    measured_tables,
)

MOST = 8  # Networks on one figure; more nobody tells apart.
_CLASSES = 100  # Of a confusion that is drawn.
_NOISE = re.compile(r"(?:noise|original) ([\d.]+)(?: at ([\d.]+))?")
_FILTER = re.compile(r"(low|high) ([\d.]+)")
_ATTACK = re.compile(r"(linf|l2) ([\d.]+)(/255)?(.*)")
_NORMS = {"linf": "ℓ∞", "l2": "ℓ2"}

Drawn = Iterator[tuple[str, str, mpl_figure.Figure, str]]


def of(networks: measured_cells.Networks, notes: list[str]) -> Drawn:
    """Gives names, sections, figures and captions; adds to `notes` what is not drawn."""
    if len(networks) > MOST:
        notes.append(
            f"{len(networks)} networks are more than figures can tell apart, so there are "
            f"tables alone; name {MOST} or fewer for figures."
        )
        return
    yield from _accuracy(networks)
    yield from _cues(networks, notes)
    yield from _filters(networks)
    yield from _bands(networks)
    yield from _corruptions(networks)
    yield from _attacks(networks)
    yield from _calibration(networks, notes)
    yield from _classes(networks, notes)
    yield from _decoding(networks)


def places(
    networks: measured_cells.Networks, probe: str
) -> Iterator[tuple[str, measured_read.Place, list[measured_read.Network]]]:
    """Gives each measure of a probe and set, an ending for its figures' names, and whose
    it is.
    """
    found: dict[measured_read.Place, list] = {}
    for one in networks:
        for place in one.of(probe):
            found.setdefault(place, []).append(one)
    for place, those in found.items():
        yield ("_".join(("", *place)) if len(found) > 1 else ""), place, those


def _accuracy(networks: measured_cells.Networks) -> Drawn:
    counts = measured_tables.accuracy_counts(networks)
    if any(counts.values()):
        yield (
            "accuracy",
            "accuracy",
            measure_figures.accuracies(counts),
            "Accuracy on each set as it is, with Wilson intervals of 95 % over images.",
        )


def _cues(networks: measured_cells.Networks, notes: list[str]) -> Drawn:
    every = measured_tables.class_counts(networks, "shape_bias", "shape_bias")
    for dataset, counts in every.items():
        names = list(dict.fromkeys(name for each in counts.values() for name in each))
        by = {
            network: {names.index(name): _bias(*pair) for name, pair in each.items()}
            for network, each in counts.items()
        }
        people = _people(networks, dataset, notes)
        if people and set(people) <= set(names):
            by[measure_figures.PEOPLE] = {names.index(k): v for k, v in people.items()}
        beside = " and people" if measure_figures.PEOPLE in by else ""
        yield (
            "shape_bias" + (f"_{dataset}" if len(every) > 1 else ""),
            "shape_bias",
            measure_figures.cue_decisions(by, names),
            (
                f"Decisions for shape and for texture of networks{beside} on {dataset}, by class "
                "of shapes; vertical lines are the shares over all classes together. As figure 4 "
                "of Geirhos et al., ICLR 2019."
            ),
        )


def _bias(count: int, n: int) -> cue_conflict.ShapeBias:
    return cue_conflict.ShapeBias(count / n if n else math.nan, count, n - count)


def _people(
    networks: measured_cells.Networks, dataset: str, notes: list[str]
) -> Mapping[str, cue_conflict.ShapeBias]:
    """Gives people's shape bias by class, if networks were compared with people."""
    for one in networks:
        for place in one.of("human"):
            if place[1] != dataset or one.split(dataset) != "cue-conflict":
                continue
            root = one.measures[place]["measure"]["options"]["root"]
            try:
                found = human.shape_biases(trials.people(root, "cue-conflict"))
            except ValueError as error:
                notes.append(f"People are not in the figure of shape bias: {error}.")
                return {}
            names = one.classes(place)
            return {names[k]: v for k, v in found.items()} if names else {}
    return {}


def _filters(networks: measured_cells.Networks) -> Drawn:
    for ending, place, those in places(networks, "spectral"):
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
    for ending, place, those in places(networks, "critical_band"):
        panels, bands = {}, {}
        for one in those:
            panels[one.name] = _noise(one, place)
            band = _band(one, place, [float(name) for name in panels[one.name]])
            if band:
                bands[one.name] = band
        lost = [name for name in panels if name not in bands]
        yield (
            ending.removeprefix("_") or "critical_band",
            "critical_band",
            measured_figures.heat(
                panels, across="cycles per image", down="strength of noise", bands=bands
            ),
            "Accuracy in % under noise, by its strength and its octave, told by nominal "
            "cycles per image. Over the cells the fitted band with its centre; what is "
            "outside of them is cut."
            + (f" No band: {', '.join(lost)}." if lost else ""),
        )


def _noise(one: measured_read.Network, place: measured_read.Place) -> pd.DataFrame:
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


def _band(one, place, frequencies: list[float]) -> measured_figures.Band | None:
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
    panels = {}
    for one in networks:
        cells = one.corrupted[1]
        if cells:
            series = pd.Series(cells)
            frame = series.unstack(sort=False)
            panels[one.name] = frame[sorted(frame)]
    if not panels:
        return
    rows = dict.fromkeys(row for frame in panels.values() for row in frame.index)
    columns = sorted({c for frame in panels.values() for c in frame})
    panels = {
        name: frame.reindex(index=list(rows), columns=columns).rename(
            index=lambda row: row.replace("_", " ")
        )
        for name, frame in panels.items()
    }
    yield (
        "corruptions",
        "corruptions",
        measured_figures.heat(panels, across="severity", down="", cell=(0.34, 0.2)),
        "Accuracy in % by corruption and severity.",
    )


def _attacks(networks: measured_cells.Networks) -> Drawn:
    budgets: dict[str, dict] = {}
    labels = {}
    for probe in ("fgsm", "pgd"):
        for _, place, those in places(networks, probe):
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


def _calibration(networks: measured_cells.Networks, notes: list[str]) -> Drawn:
    for ending, place, those in places(networks, "calibration"):
        found = {}
        for one in those:
            decided = one.decided(place).get("")
            if decided is None:
                notes.append(f"{one.name}: no reliability is drawn: {_NOT_KEPT}.")
            else:
                options = one.measures[place]["measure"]["options"]
                found[one.name] = calibration.of_decisions(
                    decided, bins=options.get("bins", calibration.BINS)
                )
        if found:
            yield (
                f"reliability{ending}",
                "calibration",
                measure_figures.reliability(found),
                (
                    f"Reliability on {place[1]}: accuracy over confidence, in bins of equal "
                    "width. Below the diagonal a network is surer than it is right. Underneath, "
                    "the share of images in each bin."
                ),
            )


_NOT_KEPT = "its decisions were not kept (the suite's run.decisions)"


def _classes(networks: measured_cells.Networks, notes: list[str]) -> Drawn:
    every = measured_tables.class_counts(networks, "classes", "class_accuracy")
    for dataset, counts in every.items():
        whole = {one.name: counts.get(one.name, {}) for one in networks}
        yield (
            "classes" + (f"_{dataset}" if len(every) > 1 else ""),
            "classes",
            measure_figures.accuracies(whole, best_first=True),
            f"Accuracy by class on {dataset}, with Wilson intervals of 95 % over images.",
        )
    for ending, place, those in places(networks, "classes"):
        for i, one in enumerate(those, 1):
            found = measured_tables.confusion(one, place)
            if found is None:
                notes.append(f"{one.name}: no confusion is told: {_NOT_KEPT}.")
                continue
            matrix, names = found
            if len(names) > _CLASSES:
                notes.append(
                    f"{one.name}: {len(names)} classes are too many to draw their confusion; "
                    "the table has the largest shares."
                )
                continue
            yield (
                f"confusion{ending}" + (f"_{i}" if len(those) > 1 else ""),
                "classes",
                measure_figures.confusion(matrix, names),
                (
                    f"{one.name}: what images of each class of {place[1]} are taken for, in % "
                    "of the class."
                ),
            )


def _decoding(networks: measured_cells.Networks) -> Drawn:
    for ending, place, those in places(networks, "decoding"):
        for i, one in enumerate(those, 1):
            yield (
                f"decoding{ending}" + (f"_{i}" if len(those) > 1 else ""),
                "decoding",
                decoding_figure.decodability(one.numbers[place], title=one.name),
                (
                    f"{one.name}: how often a linear decoder reads shape and texture off the "
                    f"features at each site, for images of {place[1]}."
                ),
            )
