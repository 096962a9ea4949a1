"""Which figures a page of measured networks has, and what they say."""

import math
from collections.abc import Iterator, Mapping

from matplotlib import figure as mpl_figure

from jbias.evals import calibration, cue_conflict, human, trials
from jbias.report import (
    decoding_figure,
    measure_figures,
    measured_cells,
    measured_probe_figures,
    measured_tables,
)

MOST = 8  # Networks on one figure; more nobody tells apart.
_CLASSES = 100  # Of a confusion that is drawn.

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
    yield from measured_probe_figures.of(networks)
    yield from _calibration(networks, notes)
    yield from _classes(networks, notes)
    yield from _decoding(networks)


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


def _calibration(networks: measured_cells.Networks, notes: list[str]) -> Drawn:
    for ending, place, those in measured_cells.places(networks, "calibration"):
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
    for ending, place, those in measured_cells.places(networks, "classes"):
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
    for ending, place, those in measured_cells.places(networks, "decoding"):
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
