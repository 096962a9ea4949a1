"""Report sections on measured networks: shape, texture and comparison with human observers."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jbias.measures import (
    cue_conflict,
    cue_decomposition,
    cue_reliance,
    decisions,
    human,
    human_answers,
)
from jbias.report import document, network_records, tables
from jbias.report.pages.networks import (
    network_blocks,
    network_plots,
    published_shape_biases,
)

MeasuredNetwork = network_records.MeasuredNetwork
Measurement = network_records.Measurement
NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks
ended = network_records.ended

_SHAPE_BIAS_METRICS = (
    "shape_bias",
    "shape_bias_lower",
    "shape_bias_upper",
    "accuracy_shape",
    "accuracy_texture",
    "fraction_shape",
    "fraction_texture",
    "fraction_neither",
    "mrr_shape",
    "mrr_texture",
    "mrr_relative",
)


def shape_bias(page: NetworksPage) -> Blocks:
    """Yield figures and tables of decisions for shape and texture.

    There is a figure per data set, a table with a row per network, data set and rule, a table by
    class and, if `page.published`, a table with published networks. None is yielded for a table
    without rows.
    """
    counts_by_set = page.class_counts("shape_bias", "shape_bias")
    if page.has_figures:
        for dataset, counts in counts_by_set.items():
            suffix = f"_{dataset}" if len(counts_by_set) > 1 else ""
            yield _shape_bias_figure(page, dataset, counts, suffix=suffix)
    rows = [
        row
        | network.factors
        | {"rule": network.rule(measurement, number.condition)}
        | network.values(measurement, _SHAPE_BIAS_METRICS, number.condition)
        | {"shape": number.count, "either": number.n}
        | unanswered(network, measurement, number.condition)
        for network, measurement, row, number in page._replace(
            networks=network_blocks.by_model(page.networks)
        ).numbers("shape_bias", "shape_bias")
        if "class=" not in number.condition
    ]
    has_unanswered = any(decisions.UNANSWERED in row for row in rows)
    columns = network_blocks.columns(
        "network model prompt set rule shape_bias:.3[] shape:d either:d accuracy_shape:% accuracy_texture:% "
        "fraction_neither:% unanswered:% mrr_shape:.3 mrr_texture:.3 mrr_relative:.3",
        fraction_neither="neither",
        mrr_shape="MRR of shape",
        mrr_texture="MRR of texture",
        mrr_relative="relative MRR",
    )
    yield network_blocks.table(
        "shape_bias",
        "Shape bias: decisions for the shape among those for either cue, with Wilson's interval "
        f"of 95 % ({network_blocks.FEW}). Accuracy in % of all images with either cue as the "
        "label. Neither: decisions for neither cue, in % of images where cues conflict. MRR: "
        "mean reciprocal rank of a cue's label there, where ranks were kept. Rule: how the "
        "answers of several classes count." + _UNANSWERED_WORDS * has_unanswered,
        rows,
        columns | {"either": network_blocks.DECISIONS},
        csv_only=("fraction_shape", "fraction_texture"),
    )
    yield _prompt_table(rows)
    yield page.shares(
        "shape_bias_by_class",
        "Shape bias by class of shapes.",
        "class",
        counts_by_set,
        "shape_bias",
    )
    if page.published:
        yield published_shape_biases.comparison_table([*_like_published(page)])


def _prompt_table(rows: Sequence[Mapping[str, Any]]) -> tables.Table | None:
    """Return the table of the range of shape bias over prompts; None without such a model.

    rows: of the table of shape bias. A row per model, set and rule with a shape bias for several
    prompts.
    """
    by_model: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("prompt") and row["shape_bias"] is not None:
            key = row["model"], row["set"], row["rule"]
            by_model.setdefault(key, []).append(row)
    ranges = []
    for (model, dataset, rule), members in by_model.items():
        ordered = sorted(members, key=lambda row: row["shape_bias"])
        lowest, highest = ordered[0], ordered[-1]
        widths = [row["shape_bias_upper"] - row["shape_bias_lower"] for row in members]
        numbers = {
            "model": model,
            "set": dataset,
            "rule": rule,
            "prompts": len({row["prompt"] for row in members}),
            "lowest_score": lowest["shape_bias"],
            "lowest": lowest["prompt"],
            "highest_score": highest["shape_bias"],
            "highest": highest["prompt"],
            "range": highest["shape_bias"] - lowest["shape_bias"],
            "interval": sum(widths) / len(widths),
        }
        if numbers["prompts"] > 1:
            ranges.append(numbers)
    columns = network_blocks.columns(
        "model set rule prompts:d lowest_score:.3 lowest highest_score:.3 highest range:.3 "
        "interval:.3",
        lowest_score="smallest shape bias",
        lowest="with",
        highest_score="largest shape bias",
        highest="with prompt",
    )
    return network_blocks.table(
        "shape_bias_by_prompt",
        "How much the prompt changes shape bias: the smallest and the largest shape bias of each "
        "model over its prompts, and their difference. Interval: mean width of the intervals of "
        "these numbers, which says how much chance alone moves one number; a range over several "
        "prompts is larger than 0 by chance, too.",
        ranges,
        columns,
    )


_UNANSWERED_WORDS = (
    " Unanswered: images without an answer, such as refusals, in % of images where cues conflict; "
    "they are no decisions, and do not count among neither."
)


def unanswered(
    network: MeasuredNetwork, measurement: Measurement, condition: str = ""
) -> dict[str, float]:
    """Return the share of unanswered images by the name of its column; {} without such images."""
    values = network.values(measurement, (decisions.UNANSWERED,), condition)
    return {name: value for name, value in values.items() if value is not None}


def _shape_bias_figure(
    page: NetworksPage, dataset: str, counts: network_blocks.Counts, *, suffix: str
) -> document.Figure:
    """Return the figure of shape biases by class on one data set.

    Human observers are included if their shape biases are known and `counts` has all their classes.
    counts: (shape decisions, shape and texture decisions) by network and class. suffix: end of the
    figure's name.
    """
    classes = [*dict.fromkeys(itertools.chain(*counts.values()))]
    biases: dict[str, dict] = {network: {} for network in counts}
    for network, counts_by_class in counts.items():
        for name, (count, n) in counts_by_class.items():
            biases[network][classes.index(name)] = cue_conflict.ShapeBias(
                count / n if n else math.nan, n_shape=count, n_texture=n - count
            )
    people_biases = _people_biases(page, dataset)
    has_people = people_biases and set(people_biases) <= set(classes)
    if has_people:
        biases[network_plots.PEOPLE] = {
            classes.index(name): bias for name, bias in people_biases.items()
        }
    and_people = " and people" if has_people else ""
    return document.Figure(
        f"shape_bias{suffix}",
        f"Decisions for shape and for texture of networks{and_people} on {dataset}, by class "
        "of shapes; lines: over all classes together. As figure 4 of Geirhos et al., ICLR 2019.",
        network_plots.cue_decisions(biases, classes),
    )


# Rows of the table of the order of parts, by metric.
_CONFIGURAL_ROWS = {
    "configural_substitute": "pairs with both right",
    "accuracy": "pictures of pairs right",
    "foil_rate": "pictures of pairs taken for the other",
}
_TILE_ORDER_ROWS = {"order_dependence": "right only if no tile is swapped"}


def order_of_parts(page: NetworksPage) -> Blocks:
    """Yield the table of the effects of the order of tiles; None if no effect was measured.

    One row per data set and share (the values of `_CONFIGURAL_ROWS` and `_TILE_ORDER_ROWS`), one
    column per network, with intervals.
    """
    cells_by_set: dict[str, dict] = {}
    for probe, rows in (
        ("configural", _CONFIGURAL_ROWS),
        ("tile_order", _TILE_ORDER_ROWS),
    ):
        for metric, row in rows.items():
            for network, measurement, _, number in page.numbers(probe, metric):
                if not number.condition:
                    cells = cells_by_set.setdefault(measurement.dataset, {})
                    cells.setdefault(network.name, {})[row] = (
                        network_blocks.interval_cell(network, measurement, number)
                    )
    words = (
        "intervals of 95 %: bootstrap over pairs for pictures of pairs, else Wilson's"
    )
    yield page.intervals(
        "configural",
        "Effect of the order of tiles on a network. Pairs: two pictures of the same "
        "sixteen tiles; stimuli of our own, so no number is the configural shape score.",
        "share",
        cells_by_set,
        interval_words=words,
    )


_CUES_LEFT = (cue_decomposition.DIFFUSED, cue_decomposition.SHUFFLED)


def edges_or_texture(page: NetworksPage) -> Blocks:
    """Yield a figure per data set, then a table of accuracies on images with one cue left.

    None is yielded for a table without rows. Shape parts are shown only if several networks were
    measured with the same settings; if settings differ, a note in `page.notes` says so.
    """
    rows: list[dict] = []
    for suffix, measurement, networks in page.by_measurement("cue_decomposition"):
        network_rows = [_cue_decomposition_row(x, measurement) for x in networks]
        settings = {str(x.measures[measurement]["measure"]) for x in networks}
        if len(settings) > 1:
            page.notes.append(
                f"{measurement.measure} on {measurement.dataset} was not measured with the "
                "same settings for all networks, so there is no shape part."
            )
        elif len(networks) > 1:
            network_rows = _with_shape_parts(network_rows)
        rows += network_rows
        if page.has_figures:
            counts: dict[str, dict] = {network.name: {} for network in page.networks}
            for network in networks:
                counts[network.name] = _cue_decomposition_counts(network, measurement)
            drawn = network_plots.accuracies(counts)
            dataset = measurement.dataset
            yield document.Figure(
                f"cue_decomposition{suffix}",
                f"Accuracy on unchanged images of {dataset}, after edge-enhancing diffusion "
                "and in shuffled cells, with Wilson intervals of 95 % over images.",
                drawn,
            )
    yield network_blocks.table(
        "cue_decomposition",
        "Accuracy in % on unchanged images, after edge-enhancing diffusion "
        "(diffused) and in shuffled cells. Robustness: the mean of these two, divided by the "
        "accuracy. Shape part: share of the shape in the retained accuracies, each divided by the "
        "mean over the networks here (last two columns); 0.5 is the average network, so that a "
        f"single network has no shape part. {network_blocks.BRACKETS}",
        rows,
        network_blocks.columns(
            "network set n:d clean:% diffused:% cells:% cue_robustness:.3[] shape_part:.3 "
            "mean_diffused:% mean_cells:%",
            n="images",
            clean="clean accuracy",
            cue_robustness="robustness",
            mean_diffused="mean of diffused",
            mean_cells="mean of cells",
        ),
    )


def _cue_decomposition_counts(
    network: MeasuredNetwork, measurement: Measurement
) -> dict[str, tuple[int, int]]:
    """Return (correct, all) images by condition: unchanged, and with only one cue left."""
    counts = {}
    for condition in ("", *_CUES_LEFT):
        number = network.number(measurement, "accuracy", condition)
        counts[condition or "unchanged"] = network_records.count_of(
            network, measurement, number
        )
    return counts


def _cue_decomposition_row(
    network: MeasuredNetwork, measurement: Measurement
) -> dict[str, Any]:
    """Return accuracies on unchanged images and with only one cue left, as a table row.

    Keys: network, set, n (number of images), clean, the conditions `_CUES_LEFT` (accuracies from 0
    to 1), and cue_robustness with its ends.
    """
    clean = network.number(measurement, "accuracy")
    row = {"network": network.name, "set": measurement.dataset, "n": clean.n}
    row["clean"] = clean.value
    for condition in _CUES_LEFT:
        row[condition] = network.number(measurement, "accuracy", condition).value
    return row | network.values(measurement, ended("cue_robustness"))


def _with_shape_parts(rows: list[dict]) -> list[dict]:
    """Return a copy of the rows with the further keys shape_part, mean_diffused and mean_cells.

    shape_part: S_cd of the network, see `cue_decomposition.shape_part`. mean_<condition>: the mean
    of row[condition], the accuracy under a condition of `_CUES_LEFT`, over all rows.

    rows: one dict per network, all of one measure: results of `_cue_decomposition_row`.
    """
    accuracies = [[row[condition] for row in rows] for condition in _CUES_LEFT]
    means = {
        f"mean_{condition}": np.mean(values)
        for condition, values in zip(_CUES_LEFT, accuracies, strict=True)
    }
    diffused, shuffled = accuracies
    shape_parts = cue_decomposition.shape_part(diffused, shuffled)
    return [
        row | {"shape_part": shape_part} | means
        for row, shape_part in zip(rows, shape_parts, strict=True)
    ]


def odd_one_out(page: NetworksPage) -> Blocks:
    """Yield the table of odd-one-out choices, one row per data set and site.

    Without measurements, None is yielded instead of the table.
    """
    cells_by_set: dict[str, dict] = {}
    for network, measurement, _, number in page.numbers("odd_one_out", "odd_one_out"):
        by_network = cells_by_set.setdefault(measurement.dataset, {})
        cells = by_network.setdefault(network.name, {})
        if (
            number.condition
        ):  # A number without a condition repeats the last site's number.
            cells[number.condition] = network_blocks.interval_cell(
                network, measurement, number
            )
    words = "bootstrap intervals of 95 % over images"
    yield page.intervals(
        "odd_one_out",
        "How often features at a site separate an image from two with swapped tiles, "
        "in %; 33.3 by chance, and if features ignore the order. Early sites may detect the tiles' "
        "borders. The stimuli are ours.",
        "site",
        cells_by_set,
        interval_words=words,
    )


def _like_published(page: NetworksPage) -> Iterator[dict[str, Any]]:
    """Yield a table row per network, measurement and rule, for the images with published results.

    The images are all 1,280 cue conflicts of Geirhos et al.; undefined shape biases are left out.
    Keys: network, rule (None if there is a single rule), shape (number of
    decisions for the shape), either (for the shape or the texture), shape_bias, the bounds of its
    interval and, if the network was compared with human observers on this set, error_consistency.
    """
    for network, measurement, _, number in page.numbers("shape_bias", "shape_bias"):
        images = network.measures[measurement]["images"]
        are_same_images = (
            network.split(measurement.dataset) == "cue-conflict"
            and images == published_shape_biases.IMAGES
        )
        is_overall = number.value is not None and "class=" not in number.condition
        if not (are_same_images and is_overall):
            continue
        row = {
            "network": network.name,
            "rule": network.rule(measurement, number.condition),
            "shape": number.count,
            "either": number.n,
        }
        row |= network.values(measurement, ended("shape_bias"), number.condition)
        for human_measurement in network.measurements_of("human"):
            if human_measurement.dataset == measurement.dataset:
                row |= network.values(
                    human_measurement, ["error_consistency"], number.condition
                )
        yield row


def _people_biases(
    page: NetworksPage, dataset: str
) -> Mapping[str, cue_conflict.ShapeBias]:
    """Return the shape bias of human observers by name of the class.

    {} if no network was compared with human observers on this data set, or if the data set has no
    cue conflicts. If the answers of human observers cannot be read, a note is added to
    `page.notes`.
    """
    for network, measurement, _ in page.measurements("human"):
        if measurement.dataset != dataset or network.split(dataset) != "cue-conflict":
            continue
        root = network.measures[measurement]["measure"]["options"]["root"]
        try:
            biases = human.shape_biases(human_answers.people(root, "cue-conflict"))
        except ValueError as error:
            page.notes.append(f"People are not in the figure of shape bias: {error}.")
            return {}
        classes = network.classes(measurement)
        return {classes[k]: bias for k, bias in biases.items()} if classes else {}
    return {}


def agreement_with_people(network: MeasuredNetwork) -> dict[str, decisions.Number]:
    """Return measures of agreement with humans, by metric, averaged over data sets.

    The field n is the number of data sets. {} if the network was not compared with humans.
    """
    numbers_by_set = {
        network.split(measurement.dataset): network.numbers[measurement]
        for measurement in network.measurements_of("human")
    }
    if not numbers_by_set:
        return {}
    return {number.metric: number for number in human.overall(numbers_by_set)}


_PEOPLE_METRICS = (
    "ood_accuracy",
    "human_accuracy",
    "error_consistency",
    "error_consistency_lower",
    "error_consistency_upper",
    "human_error_consistency",
    "observed_consistency",
    "accuracy_difference",
)


def people(page: NetworksPage) -> Blocks:
    """Yield the tables of networks and human observers, overall and by degree of distortion.

    The first table has a row per network and data set compared with human observers; the last row
    of a network is the mean over data sets. None is yielded for a table without rows.
    """
    rows = []
    for network in page.networks:
        for measurement in network.measurements_of("human"):
            row = {"network": network.name, "set": measurement.dataset}
            rows.append(row | network.values(measurement, _PEOPLE_METRICS))
        agreement = agreement_with_people(network)
        if agreement:
            n = next(iter(agreement.values())).n
            mean = f"mean of {n} of {len(human.SETS)} sets"
            values = {metric: number.value for metric, number in agreement.items()}
            rows.append({"network": network.name, "set": mean} | values)
    yield network_blocks.table(
        "people",
        "Networks and people. Error consistency: Cohen's kappa of being right, 0 at chance; "
        "accuracies in %, over the conditions that count; observed: images that both get right "
        "or both wrong; difference: squared, to people's accuracy. The last line of a network is "
        f"the mean over sets. {network_blocks.BRACKETS}",
        rows,
        network_blocks.columns(
            "network set ood_accuracy:% human_accuracy:% error_consistency:.3[] "
            "human_error_consistency:.3 observed_consistency:.3 accuracy_difference:.3",
            ood_accuracy="accuracy",
        ),
    )
    yield degree_table(page)


def degree_table(page: NetworksPage) -> tables.Table | None:
    """Return the table of accuracies by degree of distortion; None without sets with degrees.

    Columns: network, set, degree, human_accuracy and error_consistency; with stored decisions also
    accuracy and n (number of images). Degrees without an accuracy of human observers are left out.
    """
    rows = []
    metrics = ("human_accuracy", "error_consistency")
    for network, measurement, row in page.measurements("human"):
        data = network.provenance.get("data", {}).get(measurement.dataset, {})
        network_decisions = network.read_decisions(measurement).get("")
        degrees = data.get("values", {}).get("condition", ())
        for code, degree in enumerate(degrees):
            values = network.values(measurement, metrics, degree)
            if values["human_accuracy"] is None:
                continue
            degree_row = row | {"degree": degree} | values
            if network_decisions is not None:
                columns = network_decisions.columns
                has_degree = columns["condition"] == code
                is_correct = network_decisions.prediction == columns["label"]
                degree_row["accuracy"] = is_correct[has_degree].mean()
                degree_row["n"] = int(has_degree.sum())
            rows.append(degree_row)
    return network_blocks.table(
        "people_by_degree",
        "Networks and people by degree of distortion; accuracies in %.",
        rows,
        network_blocks.columns(
            "network set degree n:d accuracy:% human_accuracy:% error_consistency:.3",
            n="images",
        ),
    )


# Labels of the x axis, by kind of step; {} is the side of the image in pixels.
_STRENGTHS = {
    "shuffle": "tiles per side",
    "rotation": "tiles per side",
    "bilateral": "diameter in pixels of an image of {} by {}",
    "blur": "length of the kernel in pixels of an image of {} by {}",
    "non_local_means": "h",
    "grey": "share of grey",
}
_CUES = {
    condition: f"{cue} ({condition})".replace("_", " ")
    for cue, condition in cue_reliance.CUES.items()
}


def suppressed_cues(page: NetworksPage) -> Blocks:
    """Yield figures and the table of accuracy without a cue.

    The table has a row per network and measurement. Rows of published human observers and networks
    follow if `_has_people` is True for a measurement. A figure has published human observers if
    `_has_people` is True for its measurement.
    """
    if page.has_figures:
        for suffix, measurement, networks in page.by_measurement("suppression"):
            with_people = any(_has_people(page, x, measurement) for x in networks)
            yield from _suppression_figures(
                page, measurement, networks, suffix=suffix, with_people=with_people
            )
    rows = []
    for network, measurement, row in page.measurements("suppression"):
        clean = network.number(measurement, "accuracy")
        row |= {"clean": clean and clean.value, "n": clean and clean.n}
        for cue, condition in cue_reliance.CUES.items():
            numbers = network.interval(measurement, "relative_accuracy", condition)
            row |= zip(ended(cue), numbers, strict=True)
        rows.append(row)
    caption = (
        "Accuracy without a cue, and with one cue alone, in % of that on images as "
        "they are (clean accuracy, in %). Not corrected for chance, as in the published "
        f"comparison with people; curves are. {network_blocks.BRACKETS}"
    )
    if any(_has_people(page, x, key) for x, key, _ in page.measurements("suppression")):
        keys = ["clean", *cue_reliance.CUES]
        for name, values in cue_reliance.PUBLISHED.items():
            row = {"network": name, "set": "16 classes, published", "n": 800}
            rows.append(row | dict(zip(keys, values)))
        caption += (
            " Published: from other images of 16 classes, most numbers from a summary of the "
            "paper."
        )
    cues = " ".join(f"{cue}:%[]" for cue in cue_reliance.CUES)
    columns = network_blocks.columns(
        f"network set n:d clean:% {cues}", n="images", clean="clean accuracy"
    )
    yield network_blocks.table("suppression", caption, rows, columns)


def _has_people(
    page: NetworksPage, network: MeasuredNetwork, measurement: Measurement
) -> bool:
    """Return True if the page has published results and the images are of the family imagenet16.

    The published numbers of human observers are comparable to these measurements only.
    """
    return page.published and network.family(measurement.dataset) == "imagenet16"


def _suppression_figures(
    page: NetworksPage,
    measurement: Measurement,
    networks: network_blocks.Networks,
    *,
    suffix: str,
    with_people: bool,
) -> Blocks:
    """Yield figures of the relative accuracy after a cue is suppressed.

    One figure shows each cue for all networks of the page; the other figure shows the strength of
    the suppression for `networks`. suffix: end of the names of the figures. with_people: True to
    include published human observers.
    """
    dataset = measurement.dataset
    accuracies = {x.name: relative_accuracies(x, measurement) for x in page.networks}
    people_note = ""
    if with_people:
        _, *values = cue_reliance.PUBLISHED[network_plots.PEOPLE]
        accuracies[network_plots.PEOPLE] = {
            cue: (value, value, value) for cue, value in zip(_CUES.values(), values)
        }
        people_note = " Humans: as published, of other images."
    if any(accuracies.values()):
        drawn = network_plots.relative_accuracies(accuracies)
        yield document.Figure(
            f"suppression{suffix}",
            f"Accuracy on {dataset} without a cue, in % of that on unchanged images, with "
            "bootstrap intervals of 95 % over images: the lower, the more a network relies on the "
            f"cue. Below: with one cue alone. Not corrected for chance.{people_note}",
            drawn,
        )
    points = [
        point for network in networks for point in strength_points(network, measurement)
    ]
    drawn = page.curves(points, min_points=2, y_label="above chance, %")
    if drawn:
        yield document.Figure(
            f"suppression_curves{suffix}",
            f"Accuracy above chance without a cue, by strength of the change of {dataset}: 100 % "
            "is accuracy on unchanged images, 0 is chance. Bands: 95 % bootstrap intervals over "
            "images.",
            drawn,
        )


def relative_accuracies(
    network: MeasuredNetwork, measurement: Measurement
) -> dict[str, tuple[float, float, float]]:
    """Return (share of accuracy left without a cue, low, high), by row of the figure.

    The rows are named "cue (condition)". low and high are the ends of the interval. Cues without
    numbers are left out.
    """
    accuracies = {}
    for condition, row in _CUES.items():
        value, low, high = network.interval(measurement, "relative_accuracy", condition)
        if None not in (value, low, high):
            accuracies[row] = value, low, high
    return accuracies


def strength_points(
    network: MeasuredNetwork, measurement: Measurement
) -> Iterator[tuple[str, str, float, str, float, float, float]]:
    """Yield points of accuracy against the strength of a suppression, for `NetworksPage.curves`.

    A point is (family of suppressions, x label, strength, name of the network, relative accuracy,
    low, high). Relative accuracy is (accuracy - chance) / (accuracy on unchanged images - chance);
    low and high are the ends of its interval. If a family has several steps, strength is the
    strength of the first step that varies between conditions; without such a step, or if that step
    is of several kinds, the family is left out. Conditions without a value, or without an interval,
    are left out, too. measurement: a measurement of the probe `suppression`.
    """
    options = network.measures[measurement]["measure"]["options"]
    side = options.get("reference", cue_reliance.SIDE)
    for family, conditions in cue_reliance.FAMILIES.items():
        steps_by_position = zip(*map(cue_reliance.steps, conditions), strict=True)
        varying = [steps for steps in steps_by_position if len({*steps}) > 1]
        if not varying or len({kind for kind, _ in varying[0]}) != 1:
            continue
        title = family.replace("_", " ")
        for condition, (kind, strength) in zip(conditions, varying[0], strict=True):
            label = _STRENGTHS[kind].format(side, side)
            value, low, high = network.interval(
                measurement, "relative_accuracy_chance", condition
            )
            if None not in (value, low, high):
                yield title, label, strength, network.name, value, low, high


def decoded_cues(page: NetworksPage) -> Blocks:
    """Yield figures and table of linear decoders of shape and texture by site.

    There is a figure per network and measurement. The table has a row per network, measurement and
    site. Without rows, None is yielded instead of the table.
    """
    for suffix, measurement, network in page.network_figures("decoding"):
        drawn = network_plots.decodability(
            network.numbers[measurement], title=network.name
        )
        yield document.Figure(
            f"decoding{suffix}",
            f"{network.name}: accuracy of linear decoders of shape and texture from the features "
            f"at each site, for images of {measurement.dataset}.",
            drawn,
        )
    metrics = network_blocks.columns(
        "shape_decoding:% shape_decoding_shuffled:% texture_decoding:% "
        "texture_decoding_shuffled:% shape_dimensions:.3 texture_dimensions:.3 "
        "residual_dimensions:.3"
    )
    rows = [
        row
        | {"site": number.condition}
        | network.values(measurement, metrics, number.condition)
        for network, measurement, row, number in page.numbers(
            "decoding", "shape_decoding"
        )
    ]
    yield network_blocks.table(
        "decoding",
        "Accuracy of linear decoders from the features at each site, in % of images, with "
        "true and with shuffled labels; dimensions: shares of neurons.",
        rows,
        network_blocks.columns("network set site") | metrics,
    )
