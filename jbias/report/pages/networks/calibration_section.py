"""Calibration of measures on the page of measured networks: curves, read dials and warnings.

The curves are of planted networks, whose reliance on shape is known (`jbias.calibrating`). A dial is
read only by the curve of a measure whose verdict is one of `READABLE`. Sections of measures get
these blocks at their end; nothing is shown without a file of curves.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias.calibrating import curves as curves_lib
from jbias.calibrating import flags as flags_lib
from jbias.calibrating import measure_results, recovery
from jbias.calibrating import measures as measures_lib
from jbias.report import document, network_records, plots, tables
from jbias.report.pages.networks import network_blocks

MeasuredNetwork = network_records.MeasuredNetwork
NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks

# Verdicts of measures by whose curve a dial is read.
READABLE = (measure_results.MEASURES_SHAPE, measure_results.RANKS)
# Share of the accuracy lost on grey images from which readers are asked to look at a network. It
# was not tested in a study, and leaves no network out.
COLOUR_LOSS = 0.2

_PROBES = {"accuracy": "plain"}  # Probes whose names differ from those of the suite.
# Embedded sets of drawn images that the curves are of; measures.py lists their splits.
_CALIBRATED, _OF_PAIRS = "cues", "anagrams"
_CURVE = {"color": plots.INK, "lw": 1.2}


class CalibratedReading(NamedTuple):
    """The value of a measure for a network, with the curve of the measure."""

    curve: curves_lib.DialCurve
    network: MeasuredNetwork
    dataset: str
    value: measures_lib.Value

    @property
    def has_dial(self) -> bool:
        """Return True if the verdict on the measure allows to read a dial from its curve."""
        return self.curve.verdict in READABLE

    @property
    def dial(self) -> float | None:
        """Return the reliance on shape, from 0 to 1, that the curve reads from the value.

        None if the verdict on the measure is not one of READABLE. See `doubts`, too.
        """
        return float(self.curve.knots.read(self.value.value)) if self.has_dial else None

    def doubts(self, limits: flags_lib.Limits) -> list[str]:
        """Return the reasons, in a few words each, why the dial is not shown; [] if it is."""
        evidence = evidence_of(self.network)
        reasons = [flag.kind for flag in flags_lib.flags(evidence, limits)]
        if not self.is_of_calibrated_images:
            reasons.append("other images")
        if self.curve.accuracy and not evidence.images:
            reasons.append("accuracy not measured")
        return [*dict.fromkeys([*reasons, *(short for short, _ in _outside(self))])]

    @property
    def sets(self) -> dict[network_records.Measurement, str]:
        """Return the split that the curve is of, by measurement that the value is read from."""
        records = measures_lib.MEASURES[self.curve.measure].records
        is_of_one_set = len({record.dataset for record in records}) == 1
        return {
            network_records.Measurement(
                record.measure, self.dataset if is_of_one_set else record.dataset
            ): record.dataset
            for record in records
        }

    @property
    def is_of_calibrated_images(self) -> bool:
        """Return True if the images are known to be of the embedded sets that the curve is of."""
        return all(
            _is_embedded(self.network, measurement, split)
            for measurement, split in self.sets.items()
        )

    @property
    def images(self) -> int | None:
        """Return the number of images shown, of the smallest set that the value is read from.

        None if no settings of the measurements were stored.
        """
        stored = [self.network.measures.get(measurement) for measurement in self.sets]
        return min((_num_images(x) for x in stored if x is not None), default=None)


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


def with_summary(
    section: document.Section, page: NetworksPage, curves: curves_lib.Curves
) -> document.Section:
    """Return a section with a table of the reliance on shape of each network at its end.

    The section is unchanged if no network has a value, from the images of the curves, of a measure
    that measures reliance on shape.
    """
    readings = [
        reading
        for reading in _readings(page.networks, None, curves)
        if reading.curve.verdict == measure_results.MEASURES_SHAPE
        and reading.is_of_calibrated_images
    ]
    if not readings:
        return section
    rows = []
    for network in page.networks:
        of_network = [reading for reading in readings if reading.network is network]
        doubts = [reading.doubts(curves.limits) for reading in of_network]
        dials = [
            reading.dial
            for reading, reasons in zip(of_network, doubts, strict=True)
            if not reasons
        ]
        row = {
            "network": network.name,
            "lowest": min(dials, default=None),
            "highest": max(dials, default=None),
            "measures": len(dials),
            "of": len(of_network),
            "doubts": "; ".join(dict.fromkeys(itertools.chain.from_iterable(doubts)))
            or None,
        }
        if of_network:
            rows.append(row)
    table = network_blocks.table(
        "reliance_on_shape",
        "Reliance on shape against texture (0: texture, 1: shape), as the lowest and the highest that "
        "is read from the measures that recover the known reliance of planted networks "
        f"({curves.description}). If both are far apart, the measures disagree: look at each. Sections "
        "of measures have the curves, errors and warnings.",
        rows,
        network_blocks.columns(
            "network lowest:.2 highest:.2 measures of doubts",
            measures="measures read",
            of="of",
            doubts="others not read because of",
        ),
    )
    return dataclasses.replace(section, blocks=[*section.blocks, table])


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
    with_dial = [reading for reading in readings if reading.has_dial]
    if page.has_figures and with_dial:
        yield document.Figure(
            f"calibration_{name}",
            "Calibration: reliance on shape against texture of planted networks "
            f"({curves.description}), and the networks of this page on the curve of each measure; "
            "hollow where no reliance is read, for the reasons in the table.",
            lambda: _draw(
                with_dial, [network.name for network in page.networks], curves.limits
            ),
        )
    yield _table(name, readings, curves.limits)
    yield document.Text([*_warnings(readings, curves)])


def evidence_of(network: MeasuredNetwork) -> flags_lib.Evidence:
    """Return the counts from which flags of a network are computed; None for missing counts.

    Shortcuts are left out: the limit of their flag is for decisions by a cue about images of all
    combinations of cues, which measured networks are not shown. See `_loss_without_colour`.
    """
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
    )


def _chance(
    network: MeasuredNetwork, measurement: network_records.Measurement
) -> float | None:
    """Return the accuracy of guessing, 1 / classes; None if the classes were not stored."""
    settings = network.measures.get(measurement, {})
    num_classes = len(settings.get("classes", ()))
    return 1 / num_classes if num_classes else None


def _loss_without_colour(network: MeasuredNetwork) -> tuple[float, str] | None:
    """Return (share of the accuracy that is lost on grey images, data set), or None.

    The largest share of the sets; None if no set was measured in grey.
    """
    losses = []
    for measurement in network.measurements_of("suppression"):
        number = network.number(measurement, "relative_accuracy", "grey 1")
        if number is not None and number.value is not None:
            losses.append((1 - number.value, measurement.dataset))
    return max(losses, default=None)


def _is_embedded(
    network: MeasuredNetwork, measurement: network_records.Measurement, split: str
) -> bool:
    """Return True if a measurement is known to be of a split of the embedded set.

    Then the set's entry in the suite names the embedded set, the opened set was its split, and the
    measured images have the same fingerprint as this set. The set's name in the suite is free.
    split: of the set `cues`, or "anagrams".
    """
    embedded, full_name = _CALIBRATED, f"{_CALIBRATED}/{split}"
    if split == _OF_PAIRS:
        embedded, full_name = _OF_PAIRS, f"{_OF_PAIRS}/test"
    options = network.provenance.get("suite", {}).get("sets", {})
    source = network.provenance.get("data", {}).get(measurement.dataset, {})
    measured = network.measures.get(measurement, {}).get("dataset", {})
    return (
        options.get(measurement.dataset, {}).get("data") == embedded
        and source.get("name") == full_name
        and source.get("fingerprint") is not None
        and source["fingerprint"] == measured.get("fingerprint")
    )


def _num_images(settings: Mapping[str, Any]) -> int:
    """Return the number of images of the set that a measurement showed.

    "images" of the settings counts an image once per condition, so it is bounded by the images of
    the set, and by the number that the suite asks for. settings: see `read_measures`.
    """
    bounds = [settings["dataset"].get("n")] if "dataset" in settings else []
    bounds.append(settings["measure"].get("images"))
    return min([settings["images"], *filter(None, bounds)])


def _readings(
    networks: Sequence[MeasuredNetwork],
    probes: Collection[str] | None,
    curves: curves_lib.Curves,
) -> Iterator[CalibratedReading]:
    """Yield the readings of the measures that belong to a section, by measure; None: of all.

    A measure of one set of images is read from the images of its curve if the network was measured
    on them, else from each set; a measure of several sets from these sets only.
    """
    for measure, curve in curves.by_measure.items():
        entry = measures_lib.MEASURES.get(measure)
        if entry is None:
            continue
        probe = _PROBES.get(entry.records[0].measure, entry.records[0].measure)
        if probes is not None and probe not in probes:
            continue
        for network in networks:
            readings = []
            for dataset in _datasets(network, entry, probe):
                value = measures_lib.read(_on(entry, dataset), network.numbers)
                if value.value is not None:
                    readings.append(CalibratedReading(curve, network, dataset, value))
            calibrated = [x for x in readings if x.is_of_calibrated_images]
            yield from calibrated or readings


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


def _table(
    name: str, readings: Sequence[CalibratedReading], limits: flags_lib.Limits
) -> tables.Table | None:
    """Return the table of values, the dials that curves read from them, and why none is read."""
    rows = []
    for reading in readings:
        doubts = reading.doubts(limits) if reading.has_dial else []
        is_read = reading.has_dial and not doubts
        rows.append(
            {
                "network": reading.network.name,
                "measure": reading.curve.title,
                "set": reading.dataset,
                "value": reading.value.value,
                "dial": reading.dial if is_read else None,
                "error": reading.curve.error if is_read else None,
                "doubts": "; ".join(doubts) or None,
                "known": "yes" if reading.is_of_calibrated_images else "no",
                "verdict": reading.curve.verdict,
            }
        )
    caption = "Calibration: the study's verdict on each measure"
    if any(reading.has_dial for reading in readings):
        caption += (
            ", and reliance on shape against texture (0: texture, 1: shape) of planted networks "
            "with this value. The mean error is the mean absolute error over planted networks of "
            "kinds that the curve has not seen. It is no interval: a single network can be "
            "further away. No reliance is read where the network, its images or its value are "
            "outside of what the study tested"
        )
    return network_blocks.table(
        f"calibration_{name}",
        f"{caption}.",
        rows,
        network_blocks.columns(
            "network measure set value:.3 dial:.2 error:.2 doubts known verdict",
            dial="reliance on shape",
            error="mean error",
            doubts="not read because of",
            known="the curve's images",
            verdict="the measure ...",
        ),
    )


def _draw(
    readings: Sequence[CalibratedReading],
    names: Sequence[str],
    limits: flags_lib.Limits,
) -> plots.Figure:
    """Return a figure with a panel per measure: its curve, and a point per reading.

    Points of readings with doubts are hollow. names: of all networks of the page, which determine
    the markers.
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
            doubts = reading.doubts(limits)
            look = {"ls": "", "ms": 6, "mew": 0, **looks[reading.network.name]}
            words = f"{reading.network.name}: {reading.value.value:.3g}, "
            if doubts:
                look |= {"mfc": "none", "mew": 1.2}
                words += f"not read: {'; '.join(doubts)}"
            else:
                words += f"read as {reading.dial:.2f}"
            point = [reading.value.value], [reading.dial]
            axes.plot(point[0], point[1], **look)
            plots.hover_points(axes, point[0], point[1], [words])

    labels = ("value of the measure", "known reliance on shape")
    return plots.multiples(by_title, draw, labels, plots.handles(looks))


def _warnings(
    readings: Sequence[CalibratedReading], curves: curves_lib.Curves
) -> Iterator[str]:
    """Yield the limits of the curves, and warnings on networks outside of the calibrated range."""
    yield (
        "The curves are of small networks on drawn shapes. For other images they show which "
        "measures can be trusted, and not a scale. docs/which-measure.md has the study, and "
        "docs/calibrate.md the command that measures a network on these shapes."
    )
    yield (
        "Of other cues that a network may decide by, only colour is looked at here, by the "
        "accuracy on grey images where it was measured. Size is not tested."
    )
    by_measure: dict[str, list[CalibratedReading]] = {}
    for reading in readings:
        by_measure.setdefault(reading.curve.measure, []).append(reading)
    for group in by_measure.values():
        yield from _warnings_of_measure(group)
    networks = {reading.network.name: reading.network for reading in readings}
    for network in networks.values():
        yield from _warnings_of_network(network, curves.limits)
    for reading in readings:
        if reading.has_dial:
            for _, reason in _outside(reading):
                yield (
                    f"{reading.network.name}, {reading.curve.title} on {reading.dataset}: "
                    f"{reason}."
                )


def _warnings_of_measure(readings: Sequence[CalibratedReading]) -> Iterator[str]:
    """Yield the limits of a measure's curve, and of the images that it is read from."""
    curve = readings[0].curve
    if curve.verdict not in READABLE:
        yield (
            f"{curve.title}: the verdict of the study is: {curve.verdict}. So no reliance on "
            "shape is read from its values."
        )
        return
    if curve.verdict == measure_results.RANKS:
        yield (
            f"{curve.title}: {curve.verdict}. Networks can be ordered by it; the reliance on "
            "shape that is read is a rough guess."
        )
    if curve.lies:
        yield f"{curve.title}: wrong under a shortcut of {tables.join(curve.lies)}."
    if curve.accuracy is None:
        yield f"{curve.title}: at no accuracy was the error within the study's bound."
    unknown: dict[str, list[str]] = {}
    for reading in readings:
        if not reading.is_of_calibrated_images:
            sets = tables.join([*dict.fromkeys(key.dataset for key in reading.sets)])
            unknown.setdefault(sets, []).append(reading.network.name)
    for sets, names in unknown.items():
        yield (
            f"{curve.title} on {sets} ({tables.join(names)}): calibrated on drawn shapes only, and "
            f"the images of {sets} are not known to be these. So no reliance on shape is read."
        )


def _warnings_of_network(
    network: MeasuredNetwork, limits: flags_lib.Limits
) -> Iterator[str]:
    """Yield the flags of a network, and a suspected dependence on colour, which is no flag."""
    for flag in flags_lib.flags(evidence_of(network), limits):
        yield f"{network.name} is not to be ranked: {flag.kind}: {flag.text}."
    if not evidence_of(network).images:
        yield (
            f"{network.name}: its accuracy was not measured, so that it may be outside of the range "
            "of the curves. Add the probe plain on images whose cues agree."
        )
    lost = _loss_without_colour(network)
    if lost is not None and lost[0] > COLOUR_LOSS:
        yield (
            f"{network.name} may depend on colour: on grey images of {lost[1]} it loses "
            f"{100 * lost[0]:.3g} % of its accuracy. Look at its decisions; this alone is no "
            "reason to leave it out. Only colour was looked at, not size."
        )


def _outside(reading: CalibratedReading) -> Iterator[tuple[str, str]]:
    """Yield the reasons, short and as a clause, why a reading lies outside of its curve's range."""
    curve, value = reading.curve, reading.value.value
    if not curve.knots.contains(value):
        low, high = curve.knots.values[0], curve.knots.values[-1]
        yield (
            "value outside",
            f"the value is outside of those of planted networks, {low:.3g} to {high:.3g}",
        )
    evidence = evidence_of(reading.network)
    if curve.accuracy and evidence.images and evidence.chance:
        accuracy = evidence.correct / evidence.images
        above = float(recovery.above_chance(accuracy, evidence.chance))
        low, high = curve.accuracy
        if not low <= above <= high:
            reason = (
                f"accuracy above chance is {above:.2f} (0: chance, 1: all correct), and the curve "
                f"holds from {low:g} to {high:g}"
            )
            yield "accuracy outside", reason
    images = reading.images
    if curve.images and images is not None and images < curve.images:
        yield (
            "few images",
            f"{images:,} images shown, and the curve holds from {curve.images:,} images on",
        )
