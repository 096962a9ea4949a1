"""The page of measured networks: its answer, its sections, and what was not measured."""

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from jbias.evals import decisions
from jbias.report import document, network_frame, network_sections, tables

Network, Page = network_sections.Network, network_sections.Page
Networks = Sequence[Network]

MOST = 8  # Networks on one figure; more nobody tells apart.


def report(
    networks: Networks, told: Sequence[str] = (), *, published: bool = True
) -> document.Report:
    """Gives the page.

    told: what else a reader must know, such as which networks were left out. published:
    whether networks that others published stand beside these, where both saw one set.
    """
    notes: list[str] = []
    shown = [*blocks(networks, notes, published=published)]
    rows = {one.name: network_frame.row_of(one).numbers for one in networks}
    few = {name: row["shape_n"] for name, row in rows.items() if "shape_n" in row}
    doubts = *network_frame.few_decisions(few), *guessed(networks)
    missing = [*told, *doubts, *_missing(networks)]
    missing += dict.fromkeys(notes)
    measures, sets = zip(*(place for one in networks for place in one.measures))
    columns = ["run", "seed", "step", "dataset", "condition", "metric"]
    columns += ["value", "count", "n"]
    frames = {one.name: one.records[columns] for one in networks}
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
        source=f"Made from {', '.join(str(one.workdir) for one in networks)}.",
        frames={"numbers": numbers},
    )


def blocks(
    networks: Networks, notes: list[str], *, published: bool = True
) -> document.Placed:
    """Gives sections with their figures and tables; adds to `notes` what is not drawn."""
    drawn = networks
    if len(networks) > MOST:
        drawn = []
        told = f"{len(networks)} networks are more than figures can tell apart, so there are"
        notes.append(f"{told} tables alone; name {MOST} or fewer for figures.")
    page = Page(networks, drawn, notes, published)
    for name, part in network_sections.PARTS.items():
        for block in part.blocks(page):
            if block is not None:
                yield name, block


def _result(one: Network) -> dict:
    """Gives what results.json says of a network beside its numbers."""
    row = network_frame.row_of(one)
    return {
        "network": one.name,
        "workdir": str(one.workdir),
        "weights": one.config.get("run", {}).get("digest"),
        "row": row.numbers,
        "measured_on": row.places,
        "measures": [
            {"measure": measure, "dataset": dataset}
            | {key: told.get(key) for key in ("images", "seconds", "precision")}
            | {"options": told["measure"]["options"]}
            for (measure, dataset), told in one.measures.items()
        ],
    }


# In words.


def headline(networks: Networks) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    asked = [told for one in networks for told in one.asked]
    shown, seconds = (sum(told[key] for told in asked) for key in ("images", "seconds"))
    measures = sum(len(one.measures) for one in networks)
    count = f"{len(networks)} network" + "s" * (len(networks) > 1)
    basis = f"{count}, {shown:,} images shown in {measures} measures, {seconds:,.0f} s."
    told = [*(_one(*networks) if len(networks) == 1 else _range(networks))]
    return f"{'; '.join(told) or f'{count} measured'}.", basis


def _one(network: Network) -> Iterator[str]:
    """Says the main numbers of one network."""
    if network.accuracy:
        dataset, number = network.accuracy
        ends = decisions.wilson_interval(int(number.count), number.n)
        yield f"{tables.with_ends(number.value, *ends)} % right on {dataset}"
    for place in network.of("shape_bias")[:1]:
        number = network.number(place, "shape_bias")
        told = f"no decision for either cue on {place[1]}"
        if number.value is not None:
            ends = network.interval(place, "shape_bias")
            value, low, high = (f"{end:.3f}" for end in ends)
            of = f"of {number.n:,} decisions on {place[1]}"
            told = f"shape bias {value} [{low}, {high}] {of}"
            neither = network.number(place, "fraction_neither")
            if neither and neither.value is not None:
                told += f", {100 * neither.value:.1f} % for neither cue"
        yield told
    row = network_frame.row_of(network)
    if how := row.methods.get("pgd"):
        cell = how.dataset, f"{how.measure}/{how.how}", "pgd_accuracy"
        n = network.cells("n").get(cell)
        of = f" of {n:,.0f} images" if n else ""
        yield f"{row.numbers['pgd']:.1f} %{of} right under PGD ({how.text})"


def _range(networks: Networks) -> Iterator[str]:
    """Says between which networks the main numbers lie."""
    known = {one.name: one.accuracy for one in networks if one.accuracy}
    sets = {dataset for dataset, _ in known.values()}
    if len(known) > 1 and len(sets) == 1:
        values = {name: number.value for name, (_, number) in known.items()}
        told = {f"{100 * value:.1f} ({name})": value for name, value in values.items()}
        yield _ends(f"Accuracy on {sets.pop()} in %", told)
    rows = {one.name: network_frame.row_of(one).numbers for one in networks}
    rows = {name: row for name, row in rows.items() if row.get("shape", math.nan) >= 0}
    if len(rows) > 1:
        told = {}
        for name, row in rows.items():
            n = network_frame.decisions_text(row["shape_n"]) if "shape_n" in row else ""
            of = f", of {n} decisions" if n else ""
            told[f"{row['shape']:.3f} ({name}{of})"] = row["shape"]
        yield _ends("shape bias", told)


def _ends(what: str, told: Mapping[str, float]) -> str:
    """Says which are the smallest and the largest of values by what is told of them."""
    order = sorted(told, key=told.get)
    return f"{what} from {order[0]} to {order[-1]}"


def _missing(networks: Networks) -> Iterator[str]:
    """Says what was not measured, and how what was differs from what is published.

    Each line comes once, with the networks that it is about if these are not all.
    """
    for of in (_unmeasured, lambda one: one.lacking, _differing):
        lines: dict[str, list[str]] = {}
        for one in networks:
            for line in of(one):
                lines.setdefault(line[0].upper() + line[1:], []).append(one.name)
        for line, names in lines.items():
            whose = "" if len(names) == len(networks) else f": {', '.join(names)}"
            yield f"{line}{whose}."


def guessed(networks: Networks) -> Iterator[str]:
    """Names networks whose cues are told although their accuracy is not above guessing's."""
    names = []
    for one in networks:
        if one.accuracy and (one.of("shape_bias") or one.of("suppression")):
            dataset, number = one.accuracy
            classes = len(one.classes(("accuracy", dataset)))
            low, _ = decisions.wilson_interval(int(number.count), number.n)
            if classes and low <= 1 / classes:
                names.append(f"{one.name} on {dataset}")
    if names:
        told = "Accuracy is no better than chance, so no claim follows from shape bias or suppressed cues"
        yield f"{told}: {', '.join(names)}."
    cues = [f"{one.name} on {name}" for one in networks for name in _guessed_cues(one)]
    if cues:
        told = "Decisions for either cue are no more than guessing gives, so no claim follows from shape bias"
        yield f"{told}: {', '.join(cues)}."


def _guessed_cues(one: Network) -> Iterator[str]:
    """Yield sets of cue conflicts on which a network decides for a cue as guessing would.

    Of k classes two are a cue's: guessing decides for either in a share of 2 / k. Wilson's
    interval of 95 % of the share is not above that, by any rule of pooling answers.
    """
    for place in one.of("shape_bias"):
        classes = len(one.classes(place))
        numbers = [x for x in one.numbers[place] if x.metric == "fraction_neither"]
        counted = [x for x in numbers if x.count is not None and x.n]
        lows = [decisions.wilson_interval(int(x.n - x.count), x.n)[0] for x in counted]
        if classes > 2 and lows and max(lows) <= 2 / classes:
            yield place[1]


def _unmeasured(one: Network) -> Iterator[str]:
    for name, part in network_sections.PARTS.items():
        published = name == "corruptions" and one.corrupted
        probes = part.probes.split()
        if probes and not published and not any(map(one.of, probes)):
            yield f"{part.title}: not measured (probe {' or '.join(probes)})"


def _differing(one: Network) -> Iterator[str]:
    """Says of which images, and how, benchmarks of the first table were made."""
    places = network_frame.row_of(one).places
    for name in ("imagenet_c", "imagenet_cbar", "pgd"):
        if name in places:
            yield f"{network_frame.TITLES[name]} here is made of {places[name]}"
    for measure, on in one.of("corruptions"):
        if one.number((measure, on), "corruption_accuracy_part"):
            why = "its mean is not the published one, and is left out"
            yield f"Only a part of {measure} was measured; {why}"
