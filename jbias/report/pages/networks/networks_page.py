"""Functions that build the report page of measured networks: headline, sections and caveats."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.calibrating import curves as curves_lib
from jbias.evals import registry
from jbias.measures import decisions
from jbias.report import document, network_frame, network_records, tables
from jbias.report.pages.networks import (
    calibration_section,
    network_blocks,
    network_sections,
)

MeasuredNetwork = network_records.MeasuredNetwork
Networks = network_blocks.Networks

MAX_DRAWN = 8  # Maximal number of networks in figures.
# With fewer images, the 95 % interval of accuracy is up to 20 points wide.
FEW_IMAGES = 100


def report(
    networks: Networks,
    notes: Sequence[str] = (),
    *,
    published: bool = True,
    curves: curves_lib.Curves | None = None,
) -> document.Report:
    """Return the page of measured networks.

    notes: further caveats, such as networks that were left out. published: True to include
    published results of other networks on the same data sets. curves: calibration curves, which
    the sections of their measures show; None for no curves.
    """
    section_notes: list[str] = []
    sections = make_sections(
        networks, section_notes, published=published, curves=curves
    )
    caveats = [
        *notes,
        *soup_notes(networks),
        *reliability_notes(networks),
        *_missing(networks),
    ]
    caveats += dict.fromkeys(section_notes)
    sections = [
        dataclasses.replace(section, blocks=[document.Text(caveats)])
        if section.id == "caveats"
        else section
        for section in sections
    ]
    numbers = _numbers(networks)
    names = [network.name for network in networks]
    measurements = {key for network in networks for key in network.measures}
    return document.Report(
        title="jbias measured",
        heading=(
            tables.join(names)
            if len(networks) < 4
            else f"{len(networks)} measured networks"
        ),
        subtitle="Measured networks, jbias report",
        answer=headline(networks),
        facts={
            "Networks": len(networks),
            "Measures": len({key.measure for key in measurements}),
            "Sets": len({key.dataset for key in measurements}),
            "Numbers": f"{len(numbers):,}",
        },
        sections=sections,
        results={
            "networks": [_result(network) for network in networks],
            "missing": caveats,
            "numbers": numbers,
        },
        source=f"Made from {', '.join(str(network.workdir) for network in networks)}.",
        frames={"numbers": numbers},
    )


def _numbers(networks: Networks) -> pd.DataFrame:
    """Return the results of all networks, one per row.

    Columns: network, and run, seed, step, dataset, condition, metric, value, count and n of the
    records.
    """
    columns = [
        "run",
        "seed",
        "step",
        "dataset",
        "condition",
        "metric",
        "value",
        "count",
        "n",
    ]
    frames = {network.name: network.records[columns] for network in networks}
    return pd.concat(frames, names=["network"]).reset_index("network")


def make_sections(
    networks: Networks,
    notes: list[str],
    *,
    published: bool = True,
    curves: curves_lib.Curves | None = None,
) -> list[document.Section]:
    """Return the sections of the page without caveats; append notes on omitted figures to `notes`.

    published, curves: see `report`.
    """
    has_figures = len(networks) <= MAX_DRAWN
    if not has_figures:
        notes.append(
            f"{len(networks)} networks are too many for figures, so the page has only tables; "
            f"select {MAX_DRAWN} or fewer for figures."
        )
    page = network_blocks.NetworksPage(
        networks, has_figures, notes, published=published
    )
    sections = document.make_sections(network_sections.SECTIONS, page)
    if curves is None:
        return sections
    probes = {entry.name: names for entry, names in registry.page_entries().items()}
    return [
        calibration_section.with_summary(section, page, curves)
        if section.id == network_sections.OVERVIEW
        else calibration_section.extend(
            section, page, probes.get(section.id, ()), curves
        )
        for section in sections
    ]


def _result(network: MeasuredNetwork) -> dict[str, Any]:
    """Return the entry of a network in results.json.

    Keys: network, workdir, weights (digest), row and measured_on (see `network_frame.ModelRow`),
    and measures: a list of dicts with measure, dataset, images, seconds, precision and options.
    """
    row = network_frame.row_of(network)
    return {
        "network": network.name,
        "workdir": str(network.workdir),
        "weights": network.config.get("run", {}).get("digest"),
        "row": row.numbers,
        "measured_on": row.measured_on,
        "measures": [
            {"measure": measure, "dataset": dataset}
            | {key: settings.get(key) for key in ("images", "seconds", "precision")}
            | {"options": settings["measure"]["options"]}
            for (measure, dataset), settings in network.measures.items()
        ],
    }


# Sentences.


def headline(networks: Networks) -> tuple[str, str]:
    """Return (main results with warnings in one or two sentences, sentence on the data).

    The main results are the main numbers of one network, or the ranges of several networks.
    """
    timed = [x for network in networks for x in network.timed_measures]
    images = sum(settings["images"] for settings in timed)
    seconds = sum(settings["seconds"] for settings in timed)
    measures = sum(len(network.measures) for network in networks)
    count = f"{len(networks)} network" + "s" * (len(networks) > 1)
    basis = (
        f"{count}, {images:,} images shown in {measures} measures, {seconds:,.0f} s."
    )
    if len(networks) == 1:
        phrases = [*_main_numbers(networks[0])]
    else:
        phrases = [*_ranges(networks)]
    answer = f"{'; '.join(phrases) or f'{count} measured'}."
    warnings = [*_warnings(networks)]
    if warnings:
        answer += f" Caution: {'; '.join(warnings)}."
    return answer, basis


def _warnings(networks: Networks) -> Iterator[str]:
    """Yield up to three phrases on networks at chance and on networks with few images.

    The phrases are on accuracy at chance, on shape or texture decisions at chance, and on main
    accuracies from fewer than 100 images.
    """
    at_chance = [
        f"{network.name} on {network.main_accuracy[0]}"
        for network in networks
        if _is_at_chance(network)
    ]
    if at_chance:
        yield f"accuracy is no better than chance ({tables.few(at_chance)})"
    cues = [
        f"{network.name} on {dataset}"
        for network in networks
        for dataset in _cues_at_chance(network)
    ]
    if cues:
        yield f"decisions for either cue are no more frequent than by chance ({tables.few(cues)})"
    few_images = []
    for network in networks:
        if network.main_accuracy:
            dataset, number = network.main_accuracy
            if number.n < FEW_IMAGES:
                few_images.append(f"{network.name}: {number.n} of {dataset}")
    if few_images:
        yield f"accuracy is from fewer than {FEW_IMAGES} images ({tables.few(few_images)})"


def _main_numbers(network: MeasuredNetwork) -> Iterator[str]:
    """Yield phrases with the main numbers of one network; numbers not measured are left out.

    The main numbers are accuracy on the main data set and shape bias on the first set of cue
    conflicts, each with its interval, and accuracy under PGD. If no decision matches the shape or
    the texture, the phrase on shape bias says so.
    """
    if network.main_accuracy:
        dataset, number = network.main_accuracy
        measurement = network_records.Measurement("accuracy", dataset)
        count, n = network_records.count_of(network, measurement, number)
        low, high = decisions.wilson_interval(count, n)
        yield f"{tables.with_ends(number.value, low, high)} % right on {dataset}"
    for measurement in network.measurements_of("shape_bias")[:1]:
        number = network.number(measurement, "shape_bias")
        phrase = f"no decision for either cue on {measurement.dataset}"
        if number.value is not None:
            numbers = network.interval(measurement, "shape_bias")
            value, low, high = (f"{number:.3f}" for number in numbers)
            count_text = f"of {number.n:,} decisions on {measurement.dataset}"
            phrase = f"shape bias {value} [{low}, {high}] {count_text}"
            neither = network.number(measurement, "fraction_neither")
            if neither and neither.value is not None:
                phrase += f", {100 * neither.value:.1f} % for neither cue"
            unanswered = network.number(measurement, decisions.UNANSWERED)
            if unanswered:
                phrase += f", {unanswered.count:,} of {unanswered.n:,} unanswered"
        yield phrase
    row = network_frame.row_of(network)
    attack = row.settings.get("pgd")
    if attack:
        key = attack.dataset, f"{attack.measure}/{attack.how}", "pgd_accuracy"
        n = network.cells("n").get(key)
        count_text = f" of {n:,.0f} images" if n else ""
        yield f"{row.numbers['pgd']:.1f} %{count_text} right under PGD ({attack.text})"


def _ranges(networks: Networks) -> Iterator[str]:
    """Yield phrases with the smallest and largest accuracy and shape bias of several networks.

    Accuracy is left out if the main data sets of the networks differ. A number is also left out if
    fewer than two networks have it.
    """
    accuracies = {
        network.name: network.main_accuracy
        for network in networks
        if network.main_accuracy
    }
    datasets = {dataset for dataset, _ in accuracies.values()}
    if len(accuracies) > 1 and len(datasets) == 1:
        values = {name: number.value for name, (_, number) in accuracies.items()}
        values_by_text = {
            f"{100 * value:.1f} ({name})": value for name, value in values.items()
        }
        yield _range_phrase(f"Accuracy on {datasets.pop()} in %", values_by_text)
    rows = {network.name: network_frame.row_of(network).numbers for network in networks}
    rows = {name: row for name, row in rows.items() if row.get("shape", math.nan) >= 0}
    if len(rows) > 1:
        values_by_text = {}
        for name, row in rows.items():
            n = network_frame.decisions_text(row["shape_n"]) if "shape_n" in row else ""
            count_text = f", of {n} decisions" if n else ""
            text = f"{row['shape']:.3f} ({name}{count_text})"
            values_by_text[text] = row["shape"]
        yield _range_phrase("shape bias", values_by_text)


def _range_phrase(quantity: str, values: Mapping[str, float]) -> str:
    """Return a phrase with the smallest and the largest value of a quantity.

    values: values of the networks, by the text of the value.
    """
    order = sorted(values, key=values.get)
    return f"{quantity} from {order[0]} to {order[-1]}"


def _missing(networks: Networks) -> Iterator[str]:
    """Yield notes on missing measures, and on differences from the published procedures.

    Each note appears once, followed by the names of its networks unless the note applies to all
    networks.
    """
    for find_notes in (
        _unmeasured,
        lambda network: network.missing_measures,
        _differing,
    ):
        names_by_note: dict[str, list[str]] = {}
        for network in networks:
            for note in find_notes(network):
                names = names_by_note.setdefault(note[0].upper() + note[1:], [])
                names.append(network.name)
        for note, names in names_by_note.items():
            ending = "" if len(names) == len(networks) else f": {', '.join(names)}"
            yield f"{note}{ending}."


def soup_notes(networks: Networks) -> Iterator[str]:
    """Yield a note on each soup, a mean of the weights of several seeds."""
    for network in networks:
        soup = network.config.get("soup")
        if soup:
            count = len(soup["members"])
            seeds = f"{count} seed{'s' * (count > 1)}"
            yield (
                f"{network.name} is a soup, the mean of the weights of {seeds}. It is one network: "
                "its intervals are over images, and a test over seeds needs several soups, each of "
                "other seeds."
            )


def reliability_notes(networks: Networks) -> list[str]:
    """Return notes on shape biases of few decisions, and on networks at chance."""
    rows = {network.name: network_frame.row_of(network).numbers for network in networks}
    counts = {name: row["shape_n"] for name, row in rows.items() if "shape_n" in row}
    return [*network_frame.few_decisions(counts), *chance_notes(networks)]


def chance_notes(networks: Networks) -> Iterator[str]:
    """Yield up to two notes on networks at chance, with the names of networks and data sets.

    The first note is on main accuracies at chance, of networks with a measured shape bias or
    suppression. The second note is on shape or texture decisions at chance.
    """
    names = []
    for network in networks:
        has_cues = network.measurements_of("shape_bias") or network.measurements_of(
            "suppression"
        )
        if has_cues and _is_at_chance(network):
            names.append(f"{network.name} on {network.main_accuracy[0]}")
    if names:
        yield (
            "Accuracy is no better than chance, so no claim follows from shape bias or "
            f"suppressed cues: {', '.join(names)}."
        )
    cues = [
        f"{network.name} on {name}"
        for network in networks
        for name in _cues_at_chance(network)
    ]
    if cues:
        yield (
            "Decisions for either cue are no more frequent than by chance, so no claim "
            f"follows from shape bias: {', '.join(cues)}."
        )


def _is_at_chance(network: MeasuredNetwork) -> bool:
    """Return True if the main accuracy is not above chance.

    Accuracy is not above chance if the lower end of its 95 % Wilson interval is at most 1 / number
    of classes. False if accuracy or classes are unknown.
    """
    if not network.main_accuracy:
        return False
    dataset, number = network.main_accuracy
    measurement = network_records.Measurement("accuracy", dataset)
    num_classes = len(network.classes(measurement))
    count, n = network_records.count_of(network, measurement, number)
    low, _ = decisions.wilson_interval(count, n)
    return num_classes > 0 and low <= 1 / num_classes


def _cues_at_chance(network: MeasuredNetwork) -> Iterator[str]:
    """Yield the names of cue-conflict sets on which decisions for a cue are at chance.

    Images without an answer do not count.

    One class is the shape of an image, and another class is the texture. So a guess among k classes
    matches one of the two cues with probability 2 / k. A set is at chance if the lower end of the
    95 % Wilson interval of the share of shape and texture decisions is at most 2 / k. If several
    rules turned the network's logits into decisions (class_maps.AGGREGATES), this must be true for each
    rule. Sets with at most two classes, or with unknown classes, are left out.
    """
    for measurement in network.measurements_of("shape_bias"):
        classes = len(network.classes(measurement))
        lows = [
            _lower_end_for_cues(network, measurement, number)
            for number in network.numbers[measurement]
            if number.metric == "fraction_neither"
            and number.count is not None
            and number.n
        ]
        if classes > 2 and lows and max(lows) <= 2 / classes:
            yield measurement.dataset


def _lower_end_for_cues(
    network: MeasuredNetwork,
    measurement: network_records.Measurement,
    number: network_records.Number,
) -> float:
    """Return the lower end of Wilson's interval of the answers that match a cue, 0 without answers.

    number: the share of decisions for neither cue.
    """
    unanswered = network.number(measurement, decisions.UNANSWERED, number.condition)
    num_answers = number.n - int(unanswered.count if unanswered else 0)
    num_cues = num_answers - int(number.count)
    return decisions.wilson_interval(num_cues, num_answers)[0]


def _unmeasured(network: MeasuredNetwork) -> Iterator[str]:
    """Yield a note per section of the page whose probes were all not measured.

    Entries that may be missing have no note. The section on corruptions has no note if published
    files of corruptions were measured.
    """
    for entry, probes in registry.page_entries().items():
        is_measured = any(map(network.measurements_of, probes))
        if entry.name == "corruptions" and network.corruption_accuracies:
            is_measured = True
        if not (is_measured or entry.may_be_missing):
            yield (
                f"{entry.title}: not measured; add the probe {' or '.join(probes)} to the suite "
                "of jbias evaluate to measure this"
            )


def _differing(network: MeasuredNetwork) -> Iterator[str]:
    """Yield notes on numbers of the overview that do not use the published images.

    ImageNet-C, ImageNet-C-bar and PGD each have a note if the number is from a data set of another
    name. Each measure of corruptions of which only a part was measured has a note, too.
    """
    measured_on = network_frame.row_of(network).measured_on
    for name in ("imagenet_c", "imagenet_cbar", "pgd"):
        if name in measured_on:
            title = network_frame.TITLES[name]
            yield f"{title} here was made from {measured_on[name]}"
    for measurement in network.measurements_of("corruptions"):
        if network.number(measurement, "corruption_accuracy_part"):
            yield (
                f"Only a part of {measurement.measure} was measured; its mean is not the "
                "published one and is left out"
            )
