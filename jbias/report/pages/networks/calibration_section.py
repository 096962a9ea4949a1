"""Calibration of measures on the page of measured networks: curves, read dials and warnings.

The curves are of planted networks, whose reliance on shape is known (`jbias.calibrating`). Sections
of measures get these blocks at their end; nothing is shown without a file of curves.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from jbias.calibrating import curves as curves_lib
from jbias.calibrating import flags as flags_lib
from jbias.calibrating import measures as measures_lib
from jbias.calibrating import recovery
from jbias.report import document, network_records, plots, tables
from jbias.report.pages.networks import network_blocks

MeasuredNetwork = network_records.MeasuredNetwork
NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks

_PROBES = {"accuracy": "plain"}  # Probes whose names differ from those of the suite.
_CURVE = {"color": plots.INK, "lw": 1.2}


class CalibratedReading(NamedTuple):
    """The value of a measure for a network, with the curve of the measure."""

    curve: curves_lib.DialCurve
    network: MeasuredNetwork
    dataset: str
    value: measures_lib.Value

    @property
    def dial(self) -> float:
        """Return the reliance on shape, from 0 to 1, that the curve reads from the value."""
        return float(self.curve.knots.read(self.value.value))


def extend(
    section: document.Section,
    page: NetworksPage,
    probes: Collection[str],
    curves: curves_lib.Curves,
) -> document.Section:
    """Return a section with the calibration of its measures at its end.

    probes: names of the measures of the section, in jbias.evals.registry.
    """
    added = [block for block in blocks(page, probes, curves) if block is not None]
    if not added:
        return section
    return dataclasses.replace(section, blocks=[*section.blocks, *added])


def blocks(
    page: NetworksPage, probes: Collection[str], curves: curves_lib.Curves
) -> Blocks:
    """Yield a figure, a table and warnings on the measures of a section.

    Nothing is yielded if no measure of the section has a curve. probes: see `extend`.
    """
    readings = [*_readings(page.networks, probes, curves)]
    if not readings:
        return
    name = readings[0].curve.measure
    if page.has_figures:
        yield document.Figure(
            f"calibration_{name}",
            "Calibration: reliance on shape against texture of planted networks "
            f"({curves.description}), and the networks of this page on the curve of each measure.",
            lambda: _draw(readings, [network.name for network in page.networks]),
        )
    yield _table(name, readings)
    yield document.Text([*_warnings(readings, curves)])


def evidence_of(network: MeasuredNetwork) -> flags_lib.Evidence:
    """Return the counts from which flags of a network are computed; None for missing counts."""
    correct = images = chance = None
    if network.main_accuracy:
        dataset, number = network.main_accuracy
        measurement = network_records.Measurement("accuracy", dataset)
        correct, images = network_records.count_of(network, measurement, number)
        chance = _chance(network, measurement)
    by_cue = conflicts = cue_chance = None
    for measurement in network.measurements_of("shape_bias")[:1]:
        bias = network.number(measurement, "shape_bias")
        neither = network.number(measurement, "fraction_neither")
        if bias is not None and neither is not None:
            by_cue, conflicts = bias.n, neither.n
            single = _chance(network, measurement)
            cue_chance = None if single is None else min(1.0, 2 * single)
    return flags_lib.Evidence(
        correct=correct,
        images=images,
        chance=chance,
        by_cue=by_cue,
        conflicts=conflicts,
        cue_chance=cue_chance,
        shortcuts=_dependence_on_colour(network),
    )


def _chance(
    network: MeasuredNetwork, measurement: network_records.Measurement
) -> float | None:
    """Return the accuracy of guessing, 1 / classes; None if the classes were not stored."""
    settings = network.measures.get(measurement, {})
    num_classes = len(settings.get("classes", ()))
    return 1 / num_classes if num_classes else None


def _dependence_on_colour(network: MeasuredNetwork) -> dict[str, float]:
    """Return {"colour": share of the accuracy that is lost without colour}; {} if not measured."""
    for measurement in network.measurements_of("suppression"):
        number = network.number(measurement, "relative_accuracy", "grey 1")
        if number is not None and number.value is not None:
            return {"colour": 1 - number.value}
    return {}


def _readings(
    networks: Sequence[MeasuredNetwork],
    probes: Collection[str],
    curves: curves_lib.Curves,
) -> Iterator[CalibratedReading]:
    """Yield the readings of the measures that belong to a section, by measure.

    A measure of one set of images is read from each set that the network was measured on; a
    measure of several sets from these sets only.
    """
    for measure, curve in curves.by_measure.items():
        entry = measures_lib.MEASURES.get(measure)
        if entry is None:
            continue
        probe = _PROBES.get(entry.records[0].measure, entry.records[0].measure)
        if probe not in probes:
            continue
        for network in networks:
            for dataset in _datasets(network, entry, probe):
                value = measures_lib.read(_on(entry, dataset), network.numbers)
                if value.value is not None:
                    yield CalibratedReading(curve, network, dataset, value)


def _datasets(
    network: MeasuredNetwork, entry: measures_lib.Measure, probe: str
) -> list[str]:
    """Return the sets from which a measure can be read for a network."""
    sets = {record.dataset for record in entry.records}
    names = [measurement.dataset for measurement in network.measurements_of(probe)]
    if len(sets) > 1 or probe == _PROBES["accuracy"]:
        return [entry.records[0].dataset] if entry.records[0].dataset in names else []
    return names


def _on(entry: measures_lib.Measure, dataset: str) -> measures_lib.Measure:
    """Return a measure of one set with another set; a measure of several sets unchanged."""
    if len({record.dataset for record in entry.records}) > 1:
        return entry
    records = tuple(record._replace(dataset=dataset) for record in entry.records)
    return entry._replace(records=records)


def _table(name: str, readings: Sequence[CalibratedReading]) -> tables.Table | None:
    """Return the table of values and the dials that curves read from them."""
    rows = [
        {
            "network": reading.network.name,
            "measure": reading.curve.title,
            "set": reading.dataset,
            "value": reading.value.value,
            "dial": reading.dial,
            "error": reading.curve.error,
            "verdict": reading.curve.verdict,
        }
        for reading in readings
    ]
    return network_blocks.table(
        f"calibration_{name}",
        "Calibration: reliance on shape against texture (0: texture, 1: shape) of planted "
        "networks with this value, and the mean error for networks of families that the curve has "
        "not seen.",
        rows,
        network_blocks.columns(
            "network measure set value:.3 dial:.2 error:.2 verdict",
            dial="reliance on shape",
            error="± error",
            verdict="the measure ...",
        ),
    )


def _draw(readings: Sequence[CalibratedReading], names: Sequence[str]) -> plots.Figure:
    """Return a figure with a panel per measure: its curve, and a point per reading.

    names: of all networks of the page, which determine the markers.
    """
    by_title = {
        title: [*group]
        for title, group in itertools.groupby(readings, lambda x: x.curve.title)
    }
    looks = plots.marks(names, {reading.network.name for reading in readings})

    def draw(axes: plots.Axes, panel: Sequence[CalibratedReading]) -> None:
        knots = panel[0].curve.knots
        axes.plot(knots.values, knots.dials, **_CURVE)
        axes.set(ylim=(-0.03, 1.03))
        for reading in panel:
            point = [reading.value.value], [reading.dial]
            axes.plot(
                point[0], point[1], ls="", ms=6, mew=0, **looks[reading.network.name]
            )
            words = f"{reading.network.name}: {reading.value.value:.3g}, read as {reading.dial:.2f}"
            plots.hover_points(axes, point[0], point[1], [words])

    labels = ("value of the measure", "known reliance on shape")
    return plots.multiples(by_title, draw, labels, plots.handles(looks))


def _warnings(
    readings: Sequence[CalibratedReading], curves: curves_lib.Curves
) -> Iterator[str]:
    """Yield the limits of the curves, and warnings on networks outside of the calibrated range."""
    yield (
        "The curves are of small networks on drawn shapes. For other images they show which "
        "measures can be trusted, and not a scale."
    )
    for curve in {
        reading.curve.measure: reading.curve for reading in readings
    }.values():
        if curve.lies:
            yield f"{curve.title}: wrong under a shortcut of {tables.join(curve.lies)}."
        if curve.accuracy is None:
            yield f"{curve.title}: at no accuracy was the error within the study's bound."
    networks = {reading.network.name: reading.network for reading in readings}
    for network in networks.values():
        for flag in flags_lib.flags(evidence_of(network), curves.limits):
            yield f"{network.name} is not to be ranked: {flag.kind}: {flag.text}."
    for reading in readings:
        for reason in _outside(reading):
            yield f"{reading.network.name}, {reading.curve.title} on {reading.dataset}: {reason}."


def _outside(reading: CalibratedReading) -> Iterator[str]:
    """Yield the reasons why a reading lies outside of the range of its curve."""
    curve, value = reading.curve, reading.value.value
    entry = measures_lib.MEASURES[curve.measure]
    calibrated_sets = {record.dataset for record in entry.records}
    if reading.dataset not in calibrated_sets:
        yield f"calibrated on {tables.join(sorted(calibrated_sets))} of drawn shapes only"
    if not curve.knots.contains(value):
        low, high = curve.knots.values[0], curve.knots.values[-1]
        yield f"the value is outside of those of planted networks, {low:.3g} to {high:.3g}"
    evidence = evidence_of(reading.network)
    if curve.accuracy and evidence.images and evidence.chance:
        accuracy = evidence.correct / evidence.images
        above = float(recovery.above_chance(accuracy, evidence.chance))
        low, high = curve.accuracy
        if not low <= above <= high:
            yield (
                f"accuracy above chance is {above:.2f} (0: chance, 1: all correct), and the curve "
                f"holds from {low:g} to {high:g}"
            )
    n = reading.value.n
    if entry.needs == "decisions" and n and curve.images and n < curve.images:
        yield f"from {n:,} images, and {curve.images:,} are needed"
