"""Report sections on measured networks: corrupted images and attacks."""

import re
from collections.abc import Sequence

import pandas as pd

from jbias.measures import corruption_error
from jbias.report import document, network_records, tables
from jbias.report.pages.networks import network_blocks, network_plots

MeasuredNetwork = network_records.MeasuredNetwork
Measurement = network_records.Measurement
NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks
PUBLISHED_FILES = network_records.PUBLISHED_FILES


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


def corruptions(page: NetworksPage) -> Blocks:
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


def attacks(page: NetworksPage) -> Blocks:
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
