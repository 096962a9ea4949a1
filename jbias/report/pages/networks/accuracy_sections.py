"""Report sections on measured networks: accuracy by set and by class, and calibration."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jbias.data import tables as data_tables
from jbias.measures import accuracy, calibration, decisions
from jbias.report import document, network_records, tables
from jbias.report.pages.networks import network_blocks, network_plots

MeasuredNetwork = network_records.MeasuredNetwork
Measurement = network_records.Measurement
NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks

_COMMONEST = 10  # Number of confusions of a network in the table.
_MAX_DRAWN_CLASSES = 100  # Confusion matrices of more classes are not drawn.
_NO_DECISIONS = "its decisions were not stored (run.decisions of the suite)"


def accuracy_by_set(page: NetworksPage) -> Blocks:
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


def calibration_errors(page: NetworksPage) -> Blocks:
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


def accuracy_by_class(page: NetworksPage) -> Blocks:
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
