"""The page and the files of measured networks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import MappingProxyType

import pandas as pd

from jbias.report import (
    bias_models,
    document,
    measured_cells,
    measured_drawn,
    measured_read,
    measured_tables,
    tables,
)

_SECTIONS = {
    "overview": "In short",
    "caveats": "What to keep in mind",
    "accuracy": "Accuracy",
    "shape_bias": "Shape or texture",
    "people": "Like people",
    "spectral": "Low and high frequencies",
    "critical_band": "Critical band",
    "corruptions": "Corruptions",
    "attacks": "Attacks",
    "calibration": "Calibration",
    "classes": "Classes",
    "decoding": "Shape and texture by layer",
    "receptive_field": "Effective receptive fields",
    "made": "How it was measured",
}
# What makes each section: one of these probes.
_PROBES = {
    "accuracy": ("plain",),
    "shape_bias": ("shape_bias",),
    "people": ("human",),
    "spectral": ("spectral",),
    "critical_band": ("critical_band",),
    "corruptions": ("corruptions",),
    "attacks": ("pgd", "fgsm"),
    "calibration": ("calibration",),
    "classes": ("classes",),
    "decoding": ("decoding",),
    "receptive_field": ("receptive_field",),
}


def report(
    networks: measured_cells.Networks, told: Sequence[str] = ()
) -> document.Report:
    """Gives the page.

    told: what else a reader must know, such as which networks were left out.
    """
    sizes = {n.name: n.row["shape_n"] for n in networks if "shape_n" in n.row}
    notes: list[str] = []
    shown = [
        *document.figures(measured_drawn.of(networks, notes)),
        *measured_tables.of(networks),
    ]
    numbers = measured_tables.numbers(networks)
    told = [*told, *bias_models.few(sizes)]
    missing = [*told, *_missing(networks), *dict.fromkeys(notes)]
    return document.Report(
        title="jbias measured",
        heading=_heading(networks),
        subtitle="Measured networks, jbias report",
        answer=headline(networks),
        facts=_facts(networks),
        sections=document.sections(
            _SECTIONS, shown, [("caveats", document.Text(missing))]
        ),
        results=_results(networks, numbers, missing),
        source=f"Made from {', '.join(str(n.workdir) for n in networks)}.",
        frames={"numbers": numbers},
    )


def headline(networks: measured_cells.Networks) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    asked = [told for one in networks for told in one.asked]
    shown, seconds = (sum(told[key] for told in asked) for key in ("images", "seconds"))
    made = sum(len(one.measures) for one in networks)
    count = f"{len(networks)} network" + "s" * (len(networks) > 1)
    basis = f"{count}, {shown:,} images shown in {made} measures, {seconds:,.0f} s."
    told = list(_one(*networks) if len(networks) == 1 else _range(networks))
    if not told:
        return f"{count} measured.", basis
    return f"{'; '.join(told)}.", basis


def _one(network) -> Iterator[str]:
    """Says the main numbers of one network."""
    if network.accuracy:
        dataset, number = network.accuracy
        low, high = measured_cells.ends(number)
        told = tables.with_ends(number.value, low, high)
        yield f"{told} % right on {dataset}"
    for place in network.of("shape_bias")[:1]:
        number, *ends = (
            network.number(place, name) for name in measured_cells.ended("shape_bias")
        )
        if number.value is None:
            yield f"no decision for either cue on {place[1]}"
        else:
            low, high = (f"{end.value:.3f}" for end in ends)
            yield (
                f"shape bias {number.value:.3f} [{low}, {high}] of {number.n:,} decisions "
                f"on {place[1]}"
            )
    if "pgd" in network.row:
        made, n = network.methods["pgd"], network.attacked
        of = f" of {n:,} images" if n else ""
        yield f"{network.row['pgd']:.1f} %{of} right under PGD ({made.text})"


def _range(networks: measured_cells.Networks) -> Iterator[str]:
    """Says between which networks the main numbers lie."""
    accuracy = {n.name: n.accuracy for n in networks if n.accuracy}
    sets = {dataset for dataset, _ in accuracy.values()}
    if len(sets) == 1 and len(accuracy) > 1:
        values = {name: 100 * number.value for name, (_, number) in accuracy.items()}
        yield _ends(f"Accuracy on {sets.pop()} in %", values, ".1f")
    values = {n.name: n.row["shape"] for n in networks if "shape" in n.row}
    values = {name: value for name, value in values.items() if not pd.isna(value)}
    if len(values) > 1:
        of = {
            n.name: f", of {bias_models.decisions(n.row['shape_n'])} decisions"
            for n in networks
            if "shape_n" in n.row
        }
        yield _ends("shape bias", values, ".3f", of)


def _ends(what: str, values, form: str, of=MappingProxyType({})) -> str:
    """Says which are the smallest and the largest, and of what."""
    low, high = (
        f"{values[name]:{form}} ({name}{of.get(name, '')})"
        for name in (min(values, key=values.get), max(values, key=values.get))
    )
    return f"{what} from {low} to {high}"


def _heading(networks: measured_cells.Networks) -> str:
    names = [one.name for one in networks]
    if len(names) <= 3:
        return tables.join(names)
    return f"{len(names)} measured networks"


def _facts(networks: measured_cells.Networks) -> dict[str, object]:
    made = {place for one in networks for place in one.measures}
    return {
        "Networks": len(networks),
        "Measures": len({measure for measure, _ in made}),
        "Sets": len({dataset for _, dataset in made}),
        "Numbers": f"{sum(len(one.records) for one in networks):,}",
    }


def _missing(networks: measured_cells.Networks) -> Iterator[str]:
    """Says what was not measured, and how what was differs from what is published."""
    for section, probes in _PROBES.items():
        lack = [one.name for one in networks if not _has(one, section)]
        if lack:
            told = f"{_SECTIONS[section]}: not measured (probe {' or '.join(probes)})"
            yield f"{told}{_whose(lack, networks)}."
    yield from _lines(networks, lambda one: one.lacking)
    yield from _lines(networks, _made_of)


def _has(one: measured_read.Network, section: str) -> bool:
    published = section == "corruptions" and one.corrupted
    return bool(published) or any(one.of(probe) for probe in _PROBES[section])


def _made_of(one: measured_read.Network) -> Iterator[str]:
    """Says of which images, and how, benchmarks of the first table were made."""
    for name in ("imagenet_c", "imagenet_cbar", "pgd"):
        if name in one.places:
            yield f"{bias_models.TITLES[name]} here is made of {one.places[name]}"
    for place in one.of("corruptions"):
        if one.number(place, "corruption_accuracy_part"):
            yield (
                f"Only a part of {place[0]} was measured; its mean is not the published one, "
                "and is left out"
            )


def _lines(
    networks: measured_cells.Networks,
    of: Callable[[measured_read.Network], Iterable[str]],
) -> Iterator[str]:
    """Gives each line once, with the networks that it is about."""
    lines: dict[str, list[str]] = {}
    for one in networks:
        for line in of(one):
            lines.setdefault(line[0].upper() + line[1:], []).append(one.name)
    for line, names in lines.items():
        yield f"{line}{_whose(names, networks)}."


def _whose(names: list[str], networks: measured_cells.Networks) -> str:
    """Says which networks, if not all."""
    return "" if len(names) == len(networks) else f": {', '.join(names)}"


def _results(networks, numbers: pd.DataFrame, missing: list[str]) -> dict:
    """Gives what results.json says beside the answer."""
    return {
        "networks": [
            {
                "network": one.name,
                "workdir": str(one.workdir),
                "weights": one.config.get("run", {}).get("digest"),
                "row": one.row,
                "measured_on": dict(one.places),
                "measures": [
                    {"measure": measure, "dataset": dataset}
                    | {key: told.get(key) for key in ("images", "seconds", "precision")}
                    | {"options": told["measure"]["options"]}
                    for (measure, dataset), told in one.measures.items()
                ],
            }
            for one in networks
        ],
        "missing": missing,
        "numbers": numbers,
    }
