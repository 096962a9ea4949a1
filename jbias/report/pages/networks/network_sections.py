"""The list of the sections of the page of measured networks, and the table of main numbers.

`jbias.evals.registry` has the sections of measures: a caption and columns, or the name of a
function in a file beside this one. Shared helpers are in `network_blocks`.
"""

import functools
import math
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.evals import registry
from jbias.measures import decisions
from jbias.report import document, network_frame, network_records, tables
from jbias.report.pages.networks import (
    network_blocks,
    provenance_section,
    shape_sections,
)

MeasuredNetwork = network_records.MeasuredNetwork
NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks

OVERVIEW = "overview"  # Id of the first section of the page.
_OVERVIEW_COLUMNS = tables.columns(
    "network model prompt set accuracy:% shape:.3 decisions unanswered:% low_freq:.3 high_freq:.3 cb_bw:.2 cb_cf:.1 "
    "cb_pns:.2 imagenet_c:% pgd:% ece:.3 error_consistency:.3 sets:d",
    **network_frame.TITLES,
) | {"decisions": network_blocks.DECISIONS}
# Sentences of the caption of the overview, by the column that they explain.
_OVERVIEW_NOTES = {
    "decisions": "Of (column): number of decisions for either cue behind the shape bias "
    f"({network_blocks.FEW}).",
    decisions.UNANSWERED: "Unanswered: images without an answer, in % of those whose cues "
    "conflict.",
    "cb_bw": "Bandwidth, centre frequency and sensitivity are of the critical band.",
    "error_consistency": "Error consistency: with people, as the mean over the sets of the last "
    "column.",
}


def _overview(page: NetworksPage) -> Blocks:
    """Yield a table with the main numbers of each network, one row per network."""
    rows = [
        _overview_row(network) for network in network_blocks.by_model(page.networks)
    ]
    keys = {key for row in rows for key, value in row.items() if pd.notna(value)}
    sentences = [text for key, text in _OVERVIEW_NOTES.items() if key in keys]
    caption = " ".join(["Accuracies in %.", *sentences])
    yield tables.from_rows(OVERVIEW, caption, rows, _OVERVIEW_COLUMNS)


def _overview_row(network: MeasuredNetwork) -> dict[str, Any]:
    """Return the main numbers of a network, by key of the column; accuracies are fractions.

    Keys: those of `_OVERVIEW_COLUMNS`, such as set (the main data set) and sets (number of sets of
    the error consistency). ece is of the first measurement of calibration. The value of a number
    that was not measured is NaN or None, or the key is absent.
    """
    numbers = network_frame.row_of(network).numbers
    dataset, number = network.main_accuracy or (None, None)
    agreement = shape_sections.agreement_with_people(network).get("error_consistency")
    row = {
        "network": network.name,
        **network.factors,
        "set": dataset,
        "accuracy": number and number.value,
        "shape": numbers.get("shape"),
        "low_freq": numbers.get("low_freq"),
        "high_freq": numbers.get("high_freq"),
        "decisions": numbers.get("shape_n"),
        "cb_bw": numbers.get("cb_bw"),
        "cb_cf": numbers.get("cb_cf"),
        "cb_pns": numbers.get("cb_pns"),
        "imagenet_c": numbers.get("imagenet_c", math.nan) / 100,
        "pgd": numbers.get("pgd", math.nan) / 100,
    }
    calibrations = network.measurements_of("calibration")
    if calibrations:
        row["ece"] = network.values(calibrations[0], ["ece"])["ece"]
    for measurement in network.measurements_of("shape_bias")[:1]:
        row |= shape_sections.unanswered(network, measurement)
    row["error_consistency"] = agreement and agreement.value
    row["sets"] = agreement and agreement.n
    return row


def _caveats(page: NetworksPage) -> Blocks:
    """Yield nothing: `networks_page.report` adds the caveats, which depend on all sections."""
    yield from ()


def _table(
    page: NetworksPage, *, entry: registry.PageEntry, probes: Sequence[str]
) -> Blocks:
    """Yield the table of an entry that has a caption and columns; None without rows.

    One row per network, measurement and rule that turned logits into decisions. Columns: network,
    set, rule (if there are several), n (of the first metric) and the metrics. The CSV file also has
    the ends of intervals.
    """
    metrics = network_blocks.columns(entry.columns)
    first, *_ = metrics
    keys = [key for metric in metrics for key in network_records.ended(metric)]
    rows = []
    for probe in probes:
        for network, measurement, row in page.measurements(probe):
            for rule in network.rules(measurement):
                values = network.values(measurement, keys, rule)
                if rule and {*values.values()} == {None}:
                    continue  # The measure has no number by this rule.
                number = network.number(measurement, first, rule)
                row |= {"rule": network.rule(measurement, rule)}
                row |= {"n": number and number.n}
                rows.append(row | values)
    columns = network_blocks.columns("network set rule n:d", n="images") | metrics
    yield network_blocks.table(entry.name, entry.caption, rows, columns, csv_only=keys)


def sections(probes: Mapping[str, registry.Row]) -> tuple[document.SectionMaker, ...]:
    """Return the sections of the page, in its order; probes: the table of measures."""
    makers = [
        document.SectionMaker(OVERVIEW, "In short", _overview),
        document.SectionMaker("caveats", "What to keep in mind", _caveats),
    ]
    for entry, names in registry.page_entries(probes).items():
        assert bool(entry.columns) != bool(entry.blocks), (
            f"{entry.name}: the entry in jbias.evals.registry needs either a caption and columns, "
            "or blocks"
        )
        if entry.blocks:
            make = pkgutil.resolve_name(entry.blocks)
        else:
            make = functools.partial(_table, entry=entry, probes=names)
        makers.append(document.SectionMaker(entry.name, entry.title, make))
    make = provenance_section.how_measured
    return *makers, document.SectionMaker("made", "How it was measured", make)


SECTIONS = sections(registry.PROBES)
