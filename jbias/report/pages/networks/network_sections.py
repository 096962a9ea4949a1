"""Functions that make the sections of the page of measured networks, with figures and tables.

The sections on shape and texture are in `shape_sections`, shared helpers in `network_blocks`.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from jbias.data import tables as data_tables
from jbias.measures import (
    accuracy,
    calibration,
    corruption_error,
    critical_band,
    decisions,
)
from jbias.report import document, network_frame, network_records, tables
from jbias.report.pages.networks import network_blocks, network_plots, shape_sections

MeasuredNetwork = network_records.MeasuredNetwork
Measurement = network_records.Measurement
PUBLISHED_FILES = network_records.PUBLISHED_FILES
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
    "error_consistency": "Error consistency: with people, as the mean over the sets of the last column.",
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
    files = network.corruption_accuracies.get(PUBLISHED_FILES, ())
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
            counts[name] = int(number.count), number.n
    return counts


_FILTER = re.compile(r"(low|high) ([\d.]+)")


def _spectral(page: NetworksPage) -> Blocks:
    """Yield figures of accuracy on filtered images, and the table of spectral biases.

    The table has a row per network and measurement: accuracy on unfiltered images, its number of
    images, both biases with intervals, and the spectral ratio. Without measurements, None is
    yielded instead of the table.
    """
    if page.has_figures:
        for suffix, measurement, networks in page.by_measurement("spectral"):
            rows = [
                point
                for network in networks
                for point in _filter_points(network, measurement)
            ]
            drawn = page.curves(rows)
            if drawn is not None:
                yield document.Figure(
                    f"filters{suffix}",
                    f"Accuracy on filtered images of {measurement.dataset}: low-pass filters keep "
                    "the inner share of frequencies, high-pass filters the outer one.",
                    drawn,
                )
    metrics = network_records.ended("low_freq_bias", "high_freq_bias")
    metrics.append("spectral_ratio")
    rows = []
    for network, measurement, row in page.measurements("spectral"):
        clean = network.number(measurement, "accuracy", "unfiltered")
        row |= {"clean": clean and clean.value, "n": clean and clean.n}
        rows.append(row | network.values(measurement, metrics))
    yield page.table(
        "spectral",
        "Spectral biases: mean ratio, over the cut-offs 0.1 to 0.5, of accuracy on filtered "
        "images to that on clean ones. Spectral ratio: high / (low + high). "
        f"{network_blocks.BRACKETS}",
        rows,
    )


def _filter_points(
    network: MeasuredNetwork, measurement: Measurement
) -> Iterator[tuple[str, str, float, str, float | None]]:
    """Yield (panel, x label, cut-off, network, accuracy) of each filter, for `NetworksPage.curves`.

    The panel is "low-pass" or "high-pass"; accuracy is from 0 to 1.
    """
    for number in network.numbers[measurement]:
        match = _FILTER.fullmatch(number.condition)
        if match and number.metric == "accuracy":
            x_label = "cut-off, share of frequencies"
            cut_off = float(match[2])
            yield f"{match[1]}-pass", x_label, cut_off, network.name, number.value


_NOISE = re.compile(r"(?:noise|original) ([\d.]+)(?: at ([\d.]+))?")
# Reasons why there is no band, by the flag of jbias.measures.critical_band.
_FLAG_REASONS = {
    "all_critical": "all strengths do harm in each octave",
    "no_critical_band": "no strength does harm",
    "flat": "all octaves do the same harm",
    "narrow": "narrower than octaves can resolve",
    "center_below": "its centre is below the octaves",
    "center_above": "its centre is above the octaves",
    "unknown": "too few images for all octaves",
}


def _critical_band(page: NetworksPage) -> Blocks:
    """Yield heat maps of accuracy under noise with the fitted bands, and the table of bands.

    There is a figure per measurement. The table has a row per network and measurement. For a
    network without a band, the numbers are missing, and the column "why" has the reason.
    """
    if page.has_figures:
        for suffix, measurement, networks in page.by_measurement("critical_band"):
            figure = _critical_band_figure(page, measurement, networks)
            # One figure per measurement, named after the measurement if there are several.
            yield dataclasses.replace(figure, name=suffix[1:] or figure.name)
    names = network_records.ended(
        "bandwidth", "center_frequency", "peak_noise_sensitivity"
    )
    rows = []
    for network, measurement, row in page.measurements("critical_band"):
        prefix = _band_prefix(network, measurement)
        reason = why_no_band(network, measurement)
        numbers = network.values(measurement, [f"{prefix}{name}" for name in names])
        width = network.number(measurement, f"{prefix}bandwidth")
        undefined = network.number(measurement, f"{prefix}bandwidth_undefined")
        row = {"network": network.name, "measure": measurement.measure} | row
        for name in names:
            row[name] = None if reason else numbers[f"{prefix}{name}"]
        row["n"] = width and width.n
        row["undefined"] = undefined and undefined.value
        row["why"] = reason
        rows.append(row)
    yield page.table(
        "critical_band",
        "The critical band, a Gaussian fitted over octaves: bandwidth in octaves, "
        "centre in nominal cycles per image; without a band: bootstrap's draws in %. An end of the "
        f"centre's interval that is not given is outside the octaves. {network_blocks.BRACKETS}",
        rows,
    )


def _critical_band_figure(
    page: NetworksPage, measurement: Measurement, networks: network_blocks.Networks
) -> document.Figure:
    """Return the figure of accuracy under noise: a heat map per network, with its fitted band.

    The caption lists networks without a band, with the reason if known.
    """
    panels = {}
    bands = {}
    without_band = []
    for network in networks:
        accuracies = noise_accuracies(network, measurement)
        band = fitted_band(network, measurement, accuracies)
        panels[network.name], bands[network.name] = accuracies, band
        if not band:
            reason = why_no_band(network, measurement)
            without_band.append(
                f"{network.name} ({reason})" if reason else network.name
            )
    drawn = network_plots.heat(
        panels,
        cell=(0.42, 0.22),
        x_label="cycles per image",
        y_label="strength of noise",
        bands=bands,
    )
    no_band = f" No band: {', '.join(without_band)}." if without_band else ""
    return document.Figure(
        "critical_band",
        f"{measurement.measure} on {measurement.dataset}: accuracy in % under noise, by its "
        "strength and its octave. Above: the fitted band with its centre, cut where the cells "
        f"end.{no_band}",
        drawn,
    )


def _band_prefix(network: MeasuredNetwork, measurement: Measurement) -> str:
    """Return the prefix of the metrics of a critical band, such as "critical_band_"."""
    options = network.measures[measurement]["measure"]["options"]
    variant = options.get("variant", "bvg")
    return "critical_band_" if variant == "bvg" else f"critical_band_{variant}_"


def why_no_band(network: MeasuredNetwork, measurement: Measurement) -> str | None:
    """Return a phrase on the reason why a network has no critical band.

    The reason is the first stored flag of `_FLAG_REASONS`, or that the stored band is too narrow or
    has its centre outside the octaves. None if the network has a band, or if the reason is unknown.
    """
    prefix = _band_prefix(network, measurement)
    flags = [f"{prefix}{flag}" for flag in _FLAG_REASONS]
    flag_values = network.values(measurement, flags).values()
    reason = next(itertools.compress(_FLAG_REASONS.values(), flag_values), None)
    names = [f"{prefix}bandwidth", f"{prefix}center_frequency"]
    width, centre = network.values(measurement, names).values()
    if reason or width is None or centre is None:
        return reason
    columns = noise_accuracies(network, measurement).columns
    frequencies = [float(column) for column in columns]
    flag = critical_band.flag_of_numbers(width, centre, frequencies)
    return _FLAG_REASONS.get(flag)


def noise_accuracies(
    network: MeasuredNetwork, measurement: Measurement
) -> pd.DataFrame:
    """Return accuracy from 0 to 1 by strength of noise (rows) and octave (columns).

    The weakest noise is last; the row "0" is accuracy without noise, NaN if not measured. The
    labels of rows and columns are text.
    """
    accuracies = {}
    clean = []
    for number in network.numbers[measurement]:
        match = _NOISE.fullmatch(number.condition)
        if match and number.metric == "accuracy":
            strength, frequency = match.groups()
            if frequency:
                accuracies[float(strength), float(frequency)] = number.value
            else:
                clean.append(number.value)
    frame = pd.Series(accuracies, dtype=float).unstack()
    if 0.0 not in frame.index:  # Without noise, accuracy is the same in all octaves.
        frame.loc[0.0] = clean[0] if clean else math.nan
    frame = frame.sort_index(ascending=False)
    return frame.rename(columns="{:g}".format, index="{:g}".format)


def fitted_band(
    network: MeasuredNetwork, measurement: Measurement, accuracies: pd.DataFrame
) -> network_plots.Band | None:
    """Return the fitted band in octaves above the lowest column of `accuracies`, or None.

    accuracies: the result of `noise_accuracies`. None if there is no band.
    """
    prefix = _band_prefix(network, measurement)
    names = [f"{prefix}bandwidth", f"{prefix}center_frequency"]
    width, centre = network.values(measurement, names).values()
    if width is None or centre is None or why_no_band(network, measurement):
        return None
    octave = math.log2(centre / float(accuracies.columns[0]))
    return network_plots.Band(octave - width / 2, octave, octave + width / 2)


def _corruption_errors(page: NetworksPage) -> tables.Table | None:
    """Return the table of mean errors and mCE, with the reasons for missing mCE in the caption.

    A row per network, set of images, and ImageNet-C or ImageNet-C-bar. Columns: network, images,
    corruptions (number), mean_error, mce and relative_mce. None if nothing was measured.
    """
    rows = []
    notes = {}
    for network in page.networks:
        for measurement in network.corruption_accuracies:
            for summary in network.error_summaries(measurement):
                rows.append(
                    {
                        "network": network.name,
                        "images": _corrupted_images(network, measurement, summary),
                        "corruptions": len(summary.names),
                        "mean_error": summary.mean,
                        "mce": summary.mce,
                        "relative_mce": summary.relative_mce,
                    }
                )
                note = why_no_mce(network, measurement, summary)
                if note:
                    notes.setdefault(note, []).append(network.name)
    sentences = [
        note if len(names) == len(page.networks) else f"{', '.join(names)}: {note}"
        for note, names in notes.items()
    ]
    percent = {
        "mean_error": tables.Column("mean error", tables.percent),
        "mce": tables.Column("mCE", tables.percent),
        "relative_mce": tables.Column("relative mCE", tables.percent),
    }
    caption = (
        "Errors on corrupted images, in %. Mean error: over corruptions and "
        "severities. mCE: mean over the fifteen corruptions of ImageNet-C of the error over "
        "AlexNet's; relative mCE: the same for the increase over the error on clean images; "
        "AlexNet has 100. Lower is better."
    )
    return tables.from_rows(
        "corruption_errors",
        " ".join([caption, *sentences]),
        rows,
        tables.columns("network images corruptions:d") | percent,
    )


def _corrupted_images(
    network: MeasuredNetwork,
    measurement: Measurement,
    summary: corruption_error.ErrorSummary,
) -> str:
    """Return the name of the corrupted images: data set and measure.

    The name is such as "imagenet (imagenet_c)", or "as published (files)" for `PUBLISHED_FILES`. If
    the measurement covers ImageNet-C and ImageNet-C-bar, the benchmark of the summary is added.
    """
    measure, dataset = measurement
    if measurement == PUBLISHED_FILES:
        measure = "files"
        dataset = "as published"
    if len([*network.error_summaries(measurement)]) == 1:
        return f"{dataset} ({measure})"
    family = "ImageNet-C's" if _is_of_imagenet_c(summary) else "ImageNet-C-bar's"
    return f"{dataset} ({measure}, {family})"


def _is_of_imagenet_c(summary: corruption_error.ErrorSummary) -> bool:
    """Return True for a summary of ImageNet-C, False for a summary of ImageNet-C-bar."""
    return {*summary.names, *summary.missing} == {*corruption_error.COMMON}


def why_no_mce(
    network: MeasuredNetwork,
    measurement: Measurement,
    summary: corruption_error.ErrorSummary,
) -> str:
    """Return a sentence on the reason why there is no mCE over the 15 corruptions of ImageNet-C.

    Empty if there is an mCE, and for ImageNet-C-bar, for which no mCE is published.
    """
    if summary.mce is not None or not _is_of_imagenet_c(summary):
        return ""
    reasons = []
    if not network.is_imagenet_c(measurement):
        dataset = measurement.dataset
        images = f"images of {dataset}" if dataset else "images here"
        reasons.append(
            f"{images} are not ImageNet's at 224 pixels with its 1,000 classes"
        )
    if summary.missing:
        reasons.append(_why_missing(network, measurement, summary.missing))
    reason = " and ".join(reasons)
    consequence = "nor a mean error, as no corruption has all five severities"
    if summary.mean is not None:
        consequence = (
            f"the mean error over the {len(summary.names)} measured corruptions is "
            f"{tables.percent(summary.mean)} %"
        )
    return (
        f"{reason[0].upper()}{reason[1:]}, so there is no mCE over 15 corruptions; "
        f"{consequence}."
    )


def _why_missing(
    network: MeasuredNetwork, measurement: Measurement, missing: Sequence[str]
) -> str:
    """Return a phrase with the names of missing corruptions, and the reason why they are missing.

    The reason is that not all five severities were measured; if only frost is missing, the phrase
    may have another reason. missing: names of corruptions, at least one.
    """
    if [*missing] != ["frost"]:
        names = tables.join([name.replace("_", " ") for name in missing])
        verb = "is" if len(missing) == 1 else "are"
        return f"{names} {verb} left out, as not all five severities were measured"
    settings = network.measures.get(measurement, {})
    reason = "not all five severities were measured"
    if measurement == PUBLISHED_FILES:
        reason = "its files were not measured"
    elif not settings.get("measure", {}).get("options", {}).get("frost"):
        reason = "its photographs are not shipped (frost=DIR names their folder)"
    return f"frost is left out because {reason}"


def _corruptions(page: NetworksPage) -> Blocks:
    """Yield figures and tables of each corrupted set, and of the published files.

    The table of mean errors and mCE comes first. Measures of one data set, such as ImageNet-C and
    ImageNet-C-bar, share a figure and a table unless a network has one corruption and severity in
    several measures.
    """
    yield _corruption_errors(page)
    groups = _corruption_accuracies(page).groupby(["measure", "set"], sort=False)
    for (measure, dataset), accuracies in groups:
        suffix = ""
        if len(groups) > 1:
            suffix = "".join(f"_{name}" for name in (measure, dataset) if name)
        images = f"images of {dataset}" if dataset else "images as published"
        images += f" (measure {measure})" if measure else ""
        yield from _corruption_blocks(page, accuracies, images=images, suffix=suffix)


def _corruption_accuracies(page: NetworksPage) -> pd.DataFrame:
    """Return accuracies, one row per network, measure, set, corruption and severity.

    Columns: network, measure, set, corruption, severity and accuracy (from 0 to 1). The measure is
    "" unless a network has one corruption and severity of the set in two measures.
    """
    rows = [
        (network.name, *measurement, corruption, severity, value)
        for network in page.networks
        for measurement, accuracies in network.corruption_accuracies.items()
        for (corruption, severity), value in accuracies.items()
    ]
    keys = ["network", "measure", "set", "corruption", "severity", "accuracy"]
    frame = pd.DataFrame(rows, columns=keys)
    is_duplicate = frame.duplicated(["network", "set", "corruption", "severity"])
    shared_sets = frame["set"][is_duplicate]
    frame["measure"] = frame["measure"].where(frame["set"].isin(shared_sets), "")
    return frame


def _corruption_blocks(
    page: NetworksPage, accuracies: pd.DataFrame, *, images: str, suffix: str
) -> Blocks:
    """Yield the figure and the table of one set of corrupted images.

    The table has a row per corruption and a column per network, with the mean over severities; the
    CSV file has every severity. A corruption that a network lacks at a severity has no mean; a note
    in `page.notes` names the network. accuracies: rows of `_corruption_accuracies`. images: words
    for these images. suffix: end of the names of the figure and the table.
    """
    corruptions = [*accuracies["corruption"].unique()]
    positions = accuracies["corruption"].map(corruptions.index)
    order = positions.sort_values(kind="stable").index
    data = accuracies.loc[order, ["network", "corruption", "severity", "accuracy"]]
    data.insert(1, "images", images)
    wide = data.pivot(
        index=["network", "corruption"], columns="severity", values="accuracy"
    )
    networks = accuracies["network"].unique()
    panels = {
        network: wide.loc[network]
        .reindex(corruptions)
        .rename(lambda corruption: corruption.replace("_", " "))
        for network in networks
    }
    if page.has_figures:
        drawn = network_plots.heat(
            panels, cell=(0.34, 0.2), x_label="severity", y_label=""
        )
        yield document.Figure(
            f"corruptions{suffix}",
            f"Accuracy in % on corrupted {images}, by corruption and severity.",
            drawn,
        )
    severities = tables.join(map(str, wide))
    for network, panel in panels.items():
        if panel.isna().any(axis=None):
            page.notes.append(
                f"{network}: not every corruption of {images} has severity {severities}; "
                "a corruption without all of them has no mean."
            )
    means = [panel.mean(axis=1, skipna=False) for panel in panels.values()]
    caption = (
        f"Accuracy in % on corrupted {images}, mean over severity {severities}; the CSV file has "
        "each."
    )
    columns = tables.columns("corruption")
    for i, network in enumerate(networks):
        columns[i] = tables.Column(network, tables.percent)
    yield tables.from_rows(
        f"corruptions{suffix}",
        caption,
        pd.concat(means, axis=1).reset_index(),
        columns,
        data=data,
    )


_ATTACK = re.compile(r"(linf|l2) ([\d.]+)(/255)?(.*)")
_NORMS = {"linf": "ℓ∞", "l2": "ℓ2"}


def _attacks(page: NetworksPage) -> Blocks:
    """Yield the figure and the table of accuracy under attack.

    The figure has attacks with at least two budgets, and is left out if there are none. The table
    has a row per data set, attack and budget, with Wilson intervals. Without attacks, None is
    yielded instead of the table.
    """
    rows = []
    counts_by_set = {}
    for network, measurement, _ in page.measurements("pgd", "fgsm"):
        measure, dataset = measurement
        counts = counts_by_set.setdefault(dataset, {}).setdefault(network.name, {})
        for number in network.numbers[measurement]:
            if "_accuracy" in number.metric and number.count is not None:
                is_strict = "_strict" in number.metric
                ending = ", correct without attack, too" if is_strict else ""
                name = f"{measure} {number.condition}{ending}"
                counts[name] = int(number.count), number.n
            match = _ATTACK.fullmatch(number.condition)
            if match and number.metric in ("pgd_accuracy", "fgsm_accuracy"):
                norm = _NORMS[match[1]]
                title = f"{measure} on {dataset}, {norm}{match[4]}"
                label = f"budget ({norm}{', in 1/255' if match[3] else ''})"
                rows.append((title, label, float(match[2]), network.name, number.value))
    drawn = page.curves(rows, min_points=2) if page.has_figures else None
    if drawn:
        yield document.Figure("attacks", "Accuracy under attack by budget.", drawn)
    yield page.shares(
        "attacks",
        "Accuracy under attack, by measure, norm and budget.",
        "attack",
        counts_by_set,
    )


def _calibration(page: NetworksPage) -> Blocks:
    """Yield reliability diagrams, and the table of calibration errors.

    There is a figure per measurement, unless the page has no figures. A network without stored
    decisions is not in the figure, and a note in `page.notes` says so. The table has a row per
    network, measurement and rule that pools answers.
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
    yield page.table(
        "calibration",
        "Expected calibration error (ECE) over 15 bins of equal width and (mass) of "
        "equally many images, NLL in nats, and Brier score of the decided class.",
        rows,
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
    return page.table(
        "confusions",
        f"The {_COMMONEST} most frequent confusions, by the lower end of Wilson's interval of "
        "95 % of the share of a class that got one wrong answer.",
        rows,
        n=tables.Column("of", tables.whole),
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
    columns = {
        key: tables.Column(head, tables.digits(1)) for key, head in heads.items()
    }
    yield page.table(
        "receptive_fields",
        "Effective receptive field of each site's middle unit: the pixels that "
        "hold a share of it (area), and the radius in pixels of the disc that does.",
        rows.values(),
        **columns,
    )


def _provenance(page: NetworksPage) -> Blocks:
    """Yield the table of durations, and the table of software and hardware.

    The first table has a row per network and measurement: images, seconds, precision and images per
    second. Seconds and images per second are missing for a measure that reused stored decisions.
    """
    rows = []
    for network in page.networks:
        for (measure, dataset), settings in network.measures.items():
            images = settings["images"]
            seconds = settings["seconds"]
            rows.append(
                {
                    "network": network.name,
                    "measure": measure,
                    "set": dataset,
                    "images": images,
                    "seconds": seconds,
                    "precision": settings.get("precision"),
                    "rate": images / seconds if seconds else None,
                }
            )
    yield page.table(
        "speed",
        "Duration of each measure, including compilation. Images: number of images shown, over "
        "all conditions. –: the measure reused decisions of another one.",
        rows,
    )
    yield provenance_table(page.networks)


def provenance_table(networks: Iterable[MeasuredNetwork]) -> tables.Table | None:
    """Return the table of each network's weights, and of the device and software used.

    One row per network; None without networks.
    """
    rows = [_provenance_row(network) for network in networks]
    return NetworksPage.table(
        "provenance",
        "Software and hardware of the measurements. Weights: digest of the file or of the weights.",
        rows,
        seconds=tables.Column("seconds in all", tables.digits(0)),
    )


def _provenance_row(network: MeasuredNetwork) -> dict[str, Any]:
    """Return weights, device, software and duration of a network, by key of the column.

    Keys: network, model, weights (digest or None), path, device, code, packages, python and seconds
    (sum over the timed measures). Unknown parts of device and code are "?".
    """
    provenance = network.provenance
    run = network.config.get("run", {})
    device, code = provenance.get("device", {}), provenance.get("code", {})
    versions = provenance.get("packages", {})
    packages = [name for name in ("jax", "flax", "numpy") if name in versions]
    return {
        "network": network.name,
        "model": network.config["model"]["name"],
        "weights": run.get("digest"),
        "path": run.get("path"),
        "device": f"{device.get('count', '?')} × {device.get('kind', '?')}",
        "code": f"{code.get('version', '?')} {str(code.get('commit'))[:10]}",
        "packages": ", ".join(f"{name} {versions[name]}" for name in packages),
        "python": provenance.get("python"),
        "seconds": sum(settings["seconds"] for settings in network.timed_measures),
    }


@dataclasses.dataclass(frozen=True)
class NetworkSection(document.SectionMaker):
    """A section of the page of measured networks, with the probes that it shows.

    A section with probes is listed as missing if none of the probes was measured.
    """

    probes: tuple[str, ...] = ()


def _caveats(page: NetworksPage) -> Blocks:
    """Yield nothing: `networks_page.report` adds the caveats, which depend on all sections."""
    yield from ()


# The sections, in the order of the page.
SECTIONS = (
    NetworkSection("overview", "In short", _overview),
    NetworkSection("caveats", "What to keep in mind", _caveats),
    NetworkSection("accuracy", "Accuracy", _accuracy, probes=("plain",)),
    NetworkSection(
        "shape_bias",
        "Shape or texture",
        shape_sections.shape_bias,
        probes=("shape_bias",),
    ),
    NetworkSection(
        "configural",
        "Shape by the order of parts",
        shape_sections.order_of_parts,
        probes=("configural", "tile_order"),
    ),
    NetworkSection(
        "cue_decomposition",
        "Edges or texture",
        shape_sections.edges_or_texture,
        probes=("cue_decomposition",),
    ),
    NetworkSection(
        "odd_one_out",
        "Odd one out by layer",
        shape_sections.odd_one_out,
        probes=("odd_one_out",),
    ),
    NetworkSection("people", "Like people", shape_sections.people, probes=("human",)),
    NetworkSection(
        "spectral", "Low and high frequencies", _spectral, probes=("spectral",)
    ),
    # Not part of the default suites, so never listed as missing.
    NetworkSection(
        "suppression",
        "Without shape, texture or colour",
        shape_sections.suppressed_cues,
    ),
    NetworkSection(
        "critical_band", "Critical band", _critical_band, probes=("critical_band",)
    ),
    NetworkSection("corruptions", "Corruptions", _corruptions, probes=("corruptions",)),
    NetworkSection("attacks", "Attacks", _attacks, probes=("pgd", "fgsm")),
    NetworkSection("calibration", "Calibration", _calibration, probes=("calibration",)),
    NetworkSection("classes", "Classes", _classes, probes=("classes",)),
    NetworkSection(
        "decoding",
        "Shape and texture by layer",
        shape_sections.decoded_cues,
        probes=("decoding",),
    ),
    NetworkSection(
        "receptive_field",
        "Effective receptive fields",
        _receptive_fields,
        probes=("receptive_field",),
    ),
    NetworkSection("made", "How it was measured", _provenance),
)
