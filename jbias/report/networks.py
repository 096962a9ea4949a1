"""Report page of measured networks: answer, sections and caveats."""

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from jbias.evals import decisions
from jbias.report import document, network_frame, network_sections, tables

MeasuredNetwork, Page = network_sections.MeasuredNetwork, network_sections.Page
Networks = Sequence[MeasuredNetwork]

MOST = 8  # Most networks in one figure.


def report(
    networks: Networks, notes: Sequence[str] = (), *, published: bool = True
) -> document.Report:
    """Return the page.

    notes: further caveats, such as networks that were left out. published: whether to
    include published results of other networks on the same data sets.
    """
    block_notes: list[str] = []
    shown = [*blocks(networks, block_notes, published=published)]
    rows = {network.name: network_frame.row_of(network).numbers for network in networks}
    few = {name: row["shape_n"] for name, row in rows.items() if "shape_n" in row}
    doubts = [*network_frame.few_decisions(few), *guessed(networks)]
    missing = [*notes, *doubts, *_missing(networks)]
    missing += dict.fromkeys(block_notes)
    measures, sets = zip(*(place for network in networks for place in network.measures))
    columns = ["run", "seed", "step", "dataset", "condition", "metric"]
    columns += ["value", "count", "n"]
    frames = {network.name: network.records[columns] for network in networks}
    numbers = pd.concat(frames, names=["network"]).reset_index("network")
    titles = {name: part.title for name, part in network_sections.PARTS.items()}
    count = len(networks)
    facts = {"Networks": count, "Measures": len({*measures}), "Sets": len({*sets})}
    results = {"networks": [*map(_result, networks)], "missing": missing}
    text = [("caveats", document.Text(missing))]
    return document.Report(
        title="jbias measured",
        heading=tables.join(rows) if count < 4 else f"{count} measured networks",
        subtitle="Measured networks, jbias report",
        answer=headline(networks),
        facts=facts | {"Numbers": f"{len(numbers):,}"},
        sections=document.sections(titles, shown, text),
        results=results | {"numbers": numbers},
        source=f"Made from {', '.join(str(network.workdir) for network in networks)}.",
        frames={"numbers": numbers},
    )


def blocks(
    networks: Networks, notes: list[str], *, published: bool = True
) -> document.Placed:
    """Yield sections with their figures and tables; add notes on omitted figures to `notes`."""
    drawn = networks
    if len(networks) > MOST:
        drawn = []
        notes.append(
            f"{len(networks)} networks are too many for figures, so the page has only tables; "
            f"select {MOST} or fewer for figures."
        )
    page = Page(networks, drawn, notes, published)
    for name, part in network_sections.PARTS.items():
        for block in part.blocks(page):
            if block is not None:
                yield name, block


def _result(network: MeasuredNetwork) -> dict:
    """Return the entry of a network in results.json."""
    row = network_frame.row_of(network)
    return {
        "network": network.name,
        "workdir": str(network.workdir),
        "weights": network.config.get("run", {}).get("digest"),
        "row": row.numbers,
        "measured_on": row.places,
        "measures": [
            {"measure": measure, "dataset": dataset}
            | {key: settings.get(key) for key in ("images", "seconds", "precision")}
            | {"options": settings["measure"]["options"]}
            for (measure, dataset), settings in network.measures.items()
        ],
    }


# Sentences.


def headline(networks: Networks) -> tuple[str, str]:
    """Return the main results in one sentence, and the data behind it."""
    asked = [told for one in networks for told in one.timed_measures]
    shown, seconds = (sum(told[key] for told in asked) for key in ("images", "seconds"))
    measures = sum(len(one.measures) for one in networks)
    count = f"{len(networks)} network" + "s" * (len(networks) > 1)
    basis = f"{count}, {shown:,} images shown in {measures} measures, {seconds:,.0f} s."
    told = [*(_one(*networks) if len(networks) == 1 else _range(networks))]
    return f"{'; '.join(told) or f'{count} measured'}.", basis


def _one(network: MeasuredNetwork) -> Iterator[str]:
    """Yield phrases with the main numbers of one network."""
    if network.accuracy:
        dataset, number = network.accuracy
        ends = decisions.wilson_interval(int(number.count), number.n)
        yield f"{tables.with_ends(number.value, *ends)} % right on {dataset}"
    for place in network.places_of("shape_bias")[:1]:
        number = network.number(place, "shape_bias")
        phrase = f"no decision for either cue on {place[1]}"
        if number.value is not None:
            ends = network.interval(place, "shape_bias")
            value, low, high = (f"{end:.3f}" for end in ends)
            count_text = f"of {number.n:,} decisions on {place[1]}"
            phrase = f"shape bias {value} [{low}, {high}] {count_text}"
            neither = network.number(place, "fraction_neither")
            if neither and neither.value is not None:
                phrase += f", {100 * neither.value:.1f} % for neither cue"
        yield phrase
    row = network_frame.row_of(network)
    if attack := row.methods.get("pgd"):
        cell = attack.dataset, f"{attack.measure}/{attack.how}", "pgd_accuracy"
        n = network.cells("n").get(cell)
        count_text = f" of {n:,.0f} images" if n else ""
        yield f"{row.numbers['pgd']:.1f} %{count_text} right under PGD ({attack.text})"


def _range(networks: Networks) -> Iterator[str]:
    """Yield phrases with the smallest and largest main numbers of several networks."""
    accuracies = {
        network.name: network.accuracy for network in networks if network.accuracy
    }
    sets = {dataset for dataset, _ in accuracies.values()}
    if len(accuracies) > 1 and len(sets) == 1:
        values = {name: number.value for name, (_, number) in accuracies.items()}
        values_by_text = {
            f"{100 * value:.1f} ({name})": value for name, value in values.items()
        }
        yield _ends(f"Accuracy on {sets.pop()} in %", values_by_text)
    rows = {network.name: network_frame.row_of(network).numbers for network in networks}
    rows = {name: row for name, row in rows.items() if row.get("shape", math.nan) >= 0}
    if len(rows) > 1:
        values_by_text = {}
        for name, row in rows.items():
            n = network_frame.decisions_text(row["shape_n"]) if "shape_n" in row else ""
            decisions_text = f", of {n} decisions" if n else ""
            values_by_text[f"{row['shape']:.3f} ({name}{decisions_text})"] = row[
                "shape"
            ]
        yield _ends("shape bias", values_by_text)


def _ends(quantity: str, values: Mapping[str, float]) -> str:
    """Return a phrase with the smallest and the largest value; values: by their texts."""
    order = sorted(values, key=values.get)
    return f"{quantity} from {order[0]} to {order[-1]}"


def _missing(networks: Networks) -> Iterator[str]:
    """Yield notes on missing measures, and on differences from the published procedures.

    Each note appears once, followed by the names of its networks unless it is about all.
    """
    for find_notes in (
        _unmeasured,
        lambda network: network.missing_measures,
        _differing,
    ):
        lines: dict[str, list[str]] = {}
        for network in networks:
            for line in find_notes(network):
                lines.setdefault(line[0].upper() + line[1:], []).append(network.name)
        for line, names in lines.items():
            ending = "" if len(names) == len(networks) else f": {', '.join(names)}"
            yield f"{line}{ending}."


def guessed(networks: Networks) -> Iterator[str]:
    """Yield notes on networks at chance whose shape bias or use of cues means nothing."""
    names = []
    for network in networks:
        if network.accuracy and (
            network.places_of("shape_bias") or network.places_of("suppression")
        ):
            dataset, number = network.accuracy
            classes = len(network.classes(("accuracy", dataset)))
            low, _ = decisions.wilson_interval(int(number.count), number.n)
            if classes and low <= 1 / classes:
                names.append(f"{network.name} on {dataset}")
    if names:
        note = "Accuracy is no better than chance, so no claim follows from shape bias or suppressed cues"
        yield f"{note}: {', '.join(names)}."
    cues = [
        f"{network.name} on {name}"
        for network in networks
        for name in _guessed_cues(network)
    ]
    if cues:
        note = "Decisions for either cue are no more frequent than by chance, so no claim follows from shape bias"
        yield f"{note}: {', '.join(cues)}."


def _guessed_cues(network: MeasuredNetwork) -> Iterator[str]:
    """Yield cue-conflict sets on which a network decides for a cue no more often than by chance.

    Two of k classes belong to a cue: guessing decides for either with probability 2 / k. The
    95 % Wilson interval of the share is not above 2 / k under any rule of pooling answers.
    """
    for place in network.places_of("shape_bias"):
        classes = len(network.classes(place))
        numbers = [x for x in network.numbers[place] if x.metric == "fraction_neither"]
        counted = [x for x in numbers if x.count is not None and x.n]
        lows = [decisions.wilson_interval(int(x.n - x.count), x.n)[0] for x in counted]
        if classes > 2 and lows and max(lows) <= 2 / classes:
            yield place[1]


def _unmeasured(network: MeasuredNetwork) -> Iterator[str]:
    """Yield notes on sections of the page without any measure."""
    for name, part in network_sections.PARTS.items():
        published = name == "corruptions" and network.corrupted
        probes = part.probes.split()
        if probes and not published and not any(map(network.places_of, probes)):
            yield f"{part.title}: not measured (probe {' or '.join(probes)})"


def _differing(network: MeasuredNetwork) -> Iterator[str]:
    """Yield notes on benchmarks of the overview that differ from the published ones."""
    places = network_frame.row_of(network).places
    for name in ("imagenet_c", "imagenet_cbar", "pgd"):
        if name in places:
            yield f"{network_frame.TITLES[name]} here was made from {places[name]}"
    for measure, dataset in network.places_of("corruptions"):
        if network.number((measure, dataset), "corruption_accuracy_part"):
            reason = "its mean is not the published one and is left out"
            yield f"Only a part of {measure} was measured; {reason}"
