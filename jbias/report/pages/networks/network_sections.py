"""Report sections on measured networks: the list of all sections, and the sections on accuracy.

Other sections are in `shape_sections`, `frequency_sections`, `robustness_sections` and
`provenance_section`, shared helpers in `network_blocks`.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from jbias.data import tables as data_tables
from jbias.evals import registry
from jbias.measures import accuracy, calibration, decisions
from jbias.report import document, network_frame, network_records, tables
from jbias.report.pages.networks import (
    frequency_sections,
    network_blocks,
    network_plots,
    provenance_section,
    robustness_sections,
    shape_sections,
)

MeasuredNetwork = network_records.MeasuredNetwork
Measurement = network_records.Measurement
NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks

_COMMONEST = 10  # Number of confusions of a network in the table.
_MAX_DRAWN_CLASSES = 100  # Confusion matrices of more classes are not drawn.
_NO_DECISIONS = "its decisions were not stored (run.decisions of the suite)"
_OVERVIEW_COLUMNS = tables.columns(
    "network set accuracy:% shape:.3 decisions low_freq:.3 high_freq:.3 cb_bw:.2 cb_cf:.1 "
    "cb_pns:.2 imagenet_c:% pgd:% ece:.3 error_consistency:.3 sets:d",
    **network_frame.TITLES,
) | {"decisions": network_blocks.DECISIONS}
# Sentences of the caption of the overview, by the column that they explain.
_OVERVIEW_NOTES = {
    "decisions": "Of (column): number of decisions for either cue behind the shape bias "
    f"({network_blocks.FEW}).",
    "cb_bw": "Bandwidth, centre frequency and sensitivity are of the critical band.",
    "error_consistency": "Error consistency: with people, as the mean over the sets of the last "
    "column.",
}


def _overview(page: NetworksPage) -> Blocks:
    """Yield a table with the main numbers of each network, one row per network."""
    rows = [_overview_row(network) for network in page.networks]
    keys = {key for row in rows for key, value in row.items() if pd.notna(value)}
    sentences = [text for key, text in _OVERVIEW_NOTES.items() if key in keys]
    caption = " ".join(["Accuracies in %.", *sentences])
    yield tables.from_rows("overview", caption, rows, _OVERVIEW_COLUMNS)


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
    row["error_consistency"] = agreement and agreement.value
    row["sets"] = agreement and agreement.n
    return row


def _accuracy(page: NetworksPage) -> Blocks:
    """Yield figure and table of accuracy by data set, the main set first.

    Data sets of a single corruption are left out.
    """
    counts = {network.name: _accuracy_counts(network) for network in page.networks}
    if page.has_figures and any(counts.values()):
        yield document.Figure(
            "accuracy",
            "Accuracy on each unchanged set, with Wilson intervals of 95 % over images.",
            network_plots.accuracies(counts),
        )
    yield page.shares(
        "accuracy", "Accuracy on each unchanged set.", "set", {"": counts}
    )


def _accuracy_counts(network: MeasuredNetwork) -> dict[str, tuple[int, int]]:
    """Return (correct, all) images by name of the data set.

    The main set is first; sets of a single corruption and sets without images are left out. The
    name is such as "test", or "test (measure)" for a measure other than "accuracy". Without
    accuracy, real_accuracy is used.
    """
    main_set = network.main_accuracy and network.main_accuracy[0]
    files = network.corruption_accuracies.get(network_records.PUBLISHED_FILES, ())
    single_corruptions = {f"{name}-{severity}" for name, severity in files}
    counts = {}
    measurements = network.measurements_of("plain")
    for measurement in sorted(measurements, key=lambda x: x.dataset != main_set):
        measure, dataset = measurement
        number = network.number(measurement, "accuracy") or network.number(
            measurement, "real_accuracy"
        )
        if number and number.n and dataset not in single_corruptions:
            name = dataset if measure == "accuracy" else f"{dataset} ({measure})"
            counts[name] = network_records.count_of(network, measurement, number)
    return counts


def _calibration(page: NetworksPage) -> Blocks:
    """Yield reliability diagrams, and the table of calibration errors.

    There is a figure per measurement, unless the page has no figures. A network without stored
    decisions is not in the figure, and a note in `page.notes` says so. The table has a row per
    network, measurement and rule that turned logits into decisions.
    """
    if page.has_figures:
        for suffix, measurement, networks in page.by_measurement("calibration"):
            reliabilities = {}
            for network in networks:
                network_decisions = network.read_decisions(measurement).get("")
                if network_decisions:
                    options = network.measures[measurement]["measure"]["options"]
                    reliabilities[network.name] = calibration.of_decisions(
                        network_decisions, bins=options.get("bins", calibration.BINS)
                    )
                else:
                    page.notes.append(
                        f"{network.name}: no reliability diagram, because {_NO_DECISIONS}."
                    )
            if reliabilities:
                drawn = network_plots.reliability(reliabilities)
                yield document.Figure(
                    f"reliability{suffix}",
                    f"Reliability on {measurement.dataset}: accuracy over confidence, and the "
                    "share of images in each bin. Below the diagonal, confidence exceeds "
                    "accuracy.",
                    drawn,
                )
    metrics = ("ece", "ece_mass", "nll", "brier_top")
    rows = [
        row
        | {"rule": network.rule(measurement, number.condition), "n": number.n}
        | network.values(measurement, metrics, number.condition)
        for network, measurement, row, number in page.numbers("calibration", "ece")
    ]
    yield network_blocks.table(
        "calibration",
        "Expected calibration error (ECE) over 15 bins of equal width and (mass) of "
        "equally many images, NLL in nats, and Brier score of the decided class.",
        rows,
        network_blocks.columns(
            "network set rule n:d ece:.4 ece_mass:.4 nll:.3 brier_top:.4", n="images"
        ),
    )


def _classes(page: NetworksPage) -> Blocks:
    """Yield figures of accuracy by class and of confusions, and their tables.

    A network with more than 100 classes, or without stored decisions, gets a note instead of a
    figure of confusions.
    """
    counts_by_set = page.class_counts("classes", "class_accuracy")
    if page.has_figures:
        for dataset, counts_by_network in counts_by_set.items():
            counts = {x.name: counts_by_network.get(x.name, {}) for x in page.networks}
            drawn = network_plots.accuracies(counts, best_first=True)
            suffix = f"_{dataset}" if len(counts_by_set) > 1 else ""
            yield document.Figure(
                f"classes{suffix}",
                f"Accuracy by class on {dataset}, with Wilson intervals of 95 % over images.",
                drawn,
            )
    for suffix, measurement, network in page.network_figures("classes"):
        matrix = confusion(network, measurement)
        if matrix is None:
            page.notes.append(
                f"{network.name}: no confusions, because {_NO_DECISIONS}."
            )
        elif len(matrix.classes) > _MAX_DRAWN_CLASSES:
            page.notes.append(
                f"{network.name}: {len(matrix.classes)} classes are too many to draw their "
                "confusion; the table has the largest shares."
            )
        else:
            drawn = network_plots.confusion(matrix.percent, matrix.classes)
            yield document.Figure(
                f"confusion{suffix}",
                f"{network.name}: decisions by class of {measurement.dataset}, in %.",
                drawn,
            )
    yield page.shares(
        "classes", "Accuracy by class.", "class", counts_by_set, "class_accuracy"
    )
    yield confusion_table(page)


class Confusion(NamedTuple):
    """Decisions of a network by class of the image."""

    # Decisions (rows) in % of the images of each class (columns). Rows beyond the classes
    # count images without a decision.
    percent: Float[np.ndarray, "rows k"]
    classes: tuple[str, ...]
    sizes: Int[np.ndarray, " k"]  # Number of images of each class.


def confusion(network: MeasuredNetwork, measurement: Measurement) -> Confusion | None:
    """Return the confusion matrix of a measurement; None without stored decisions.

    Classes without stored names are numbered from 0.
    """
    network_decisions = network.read_decisions(measurement).get("")
    if network_decisions is None:
        return None
    label = network_decisions.columns["label"]
    prediction = network_decisions.prediction
    num_classes = int(max(label.max(), prediction.max())) + 1
    names = network.classes(measurement) or tuple(map(str, range(num_classes)))
    return Confusion(
        accuracy.confusion(prediction, label, len(names)),
        tuple(map(data_tables.readable, names)),
        sizes=np.bincount(label[label >= 0], minlength=len(names)),
    )


def confusion_table(page: NetworksPage) -> tables.Table | None:
    """Return the table of the 10 most frequent confusions of each network.

    None without wrong decisions. Columns: network, set, class, as (name of the decision), count, n
    (images of the class) and share with its interval. Sorted by the lower end of the interval, so
    that confusions of many images come before confusions of a single image.
    """
    rows = []
    for network, measurement, row in page.measurements("classes"):
        matrix = confusion(network, measurement)
        if matrix is not None:
            rows += [row | fields for fields in _commonest_confusions(matrix)]
    columns = network_blocks.columns(
        "network set class as count:d n:d", count="images", n="of"
    )
    columns["as"] = tables.Column("taken for", str)
    columns["share"] = tables.Column(
        "% of the class", tables.with_ends, ("low", "high")
    )
    return network_blocks.table(
        "confusions",
        f"The {_COMMONEST} most frequent confusions, by the lower end of Wilson's interval of "
        "95 % of the share of a class that got one wrong answer.",
        rows,
        columns,
    )


def _commonest_confusions(matrix: Confusion) -> Iterator[dict[str, Any]]:
    """Yield the 10 most frequent wrong decisions of a network as fields of a table row.

    Keys: class, as (name of the decision), count, n (images of the class), share, low and high (its
    95 % Wilson interval). The largest low is first.
    """
    wilson = functools.cache(decisions.wilson_interval)
    wrong = np.rint(np.nan_to_num(matrix.percent) / 100 * matrix.sizes).astype(int)
    np.fill_diagonal(wrong, 0)
    cells = []
    for i, j in np.argwhere(wrong):
        low, high = wilson(wrong[i, j], matrix.sizes[j])
        cells.append((i, j, low, high))
    cells.sort(key=lambda cell: -cell[2])
    for i, j, low, high in cells[:_COMMONEST]:
        yield {
            "class": matrix.classes[j],
            "as": [*matrix.classes, "no response"][i],
            "count": wrong[i, j],
            "n": matrix.sizes[j],
            "share": wrong[i, j] / matrix.sizes[j],
            "low": low,
            "high": high,
        }


def _receptive_fields(page: NetworksPage) -> Blocks:
    """Yield the table of effective receptive fields; None if no field was measured.

    One row per network, measurement and site. Columns: network, site, and one per number and share,
    such as "radius 50 %".
    """
    rows = {}
    heads = {}
    for network, measurement, _ in page.measurements("receptive_field"):
        for number in network.numbers[measurement]:
            site, _, share = number.condition.rpartition(" ")
            new_row = {"network": network.name, "site": site}
            row = rows.setdefault((network.name, measurement, site), new_row)
            key = f"{number.metric} {share}"
            row[key] = number.value
            kind = number.metric.removeprefix("receptive_")
            heads[key] = f"{kind} {share.replace('%', ' %')}"
    columns = network_blocks.columns("network site")
    columns |= {
        key: tables.Column(head, tables.digits(1)) for key, head in heads.items()
    }
    yield network_blocks.table(
        "receptive_fields",
        "Effective receptive field of each site's middle unit: the pixels that "
        "hold a share of it (area), and the radius in pixels of the disc that does.",
        rows.values(),
        columns,
    )


def _caveats(page: NetworksPage) -> Blocks:
    """Yield nothing: `networks_page.report` adds the caveats, which depend on all sections."""
    yield from ()


# Functions that make the blocks of a section, by the name of its `registry.PageEntry`; `_table`
# makes the sections of entries with columns.
_BLOCKS: Mapping[str, Callable[[NetworksPage], Blocks]] = {
    "accuracy": _accuracy,
    "shape_bias": shape_sections.shape_bias,
    "configural": shape_sections.order_of_parts,
    "cue_decomposition": shape_sections.edges_or_texture,
    "odd_one_out": shape_sections.odd_one_out,
    "people": shape_sections.people,
    "spectral": frequency_sections.frequencies,
    "suppression": shape_sections.suppressed_cues,
    "critical_band": frequency_sections.noise_band,
    "corruptions": robustness_sections.corruptions,
    "attacks": robustness_sections.attacks,
    "calibration": _calibration,
    "classes": _classes,
    "decoding": shape_sections.decoded_cues,
    "receptive_field": _receptive_fields,
}


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
    entries = registry.page_entries(probes)
    without_columns = {entry.name for entry in entries if not entry.columns}
    assert without_columns <= _BLOCKS.keys(), (
        f"{', '.join(without_columns - _BLOCKS.keys())}: the entry needs a caption and columns "
        "in jbias.evals.registry, or a function in _BLOCKS"
    )
    makers = [
        document.SectionMaker("overview", "In short", _overview),
        document.SectionMaker("caveats", "What to keep in mind", _caveats),
    ]
    for entry, names in entries.items():
        table = functools.partial(_table, entry=entry, probes=names)
        make = table if entry.columns else _BLOCKS[entry.name]
        makers.append(document.SectionMaker(entry.name, entry.title, make))
    make = provenance_section.how_measured
    return *makers, document.SectionMaker("made", "How it was measured", make)


SECTIONS = sections(registry.PROBES)
