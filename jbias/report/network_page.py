"""Shared parts of the page of measured networks: captions, columns, tables and curves."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from jbias.data import tables as data_tables
from jbias.evals import decisions
from jbias.report import document, network_frame, network_records, plots, tables

MeasuredNetwork, Place = network_records.MeasuredNetwork, network_records.Place
ended = network_records.ended
Networks = Sequence[MeasuredNetwork]
Blocks = Iterator[document.Block | None]
Counts = Mapping[str, Mapping[str, tuple[int, int]]]  # (count, n) by network and row.
_SHARES = ["value", "low", "high"]
COMMONEST = 10  # Number of confusions of a network in the table.
_FEW = f"*: fewer than {network_frame.FEW}, which is unreliable"
FIGURES = {
    "accuracy": "Accuracy on each unchanged set, with Wilson intervals of 95 % over images.",
    "shape_bias": "Decisions for shape and for texture of networks{beside} on {set}, by class of "
    "shapes; lines: over all classes together. As figure 4 of Geirhos et al., ICLR 2019.",
    "cue_decomposition": "Accuracy on unchanged images of {set}, after edge-enhancing diffusion "
    "and in shuffled cells, with Wilson intervals of 95 % over images.",
    "filters": "Accuracy on filtered images of {set}: low-pass filters keep the inner share of "
    "frequencies, high-pass filters the outer one.",
    "suppression": "Accuracy on {set} without a cue, in % of that on unchanged images, with "
    "bootstrap intervals of 95 % over images: the lower, the more a network relies on the "
    "cue. Below: with one cue alone. Not corrected for chance.{people}",
    "suppression_curves": "Accuracy above chance without a cue, by strength of the change of {set}: "
    "100 % is accuracy on unchanged images, 0 is chance. Bands: 95 % bootstrap intervals over "
    "images.",
    "critical_band": "{measure} on {set}: accuracy in % under noise, by its strength and its "
    "octave. Above: the fitted band with its centre, cut where the cells end.{lost}",
    "corruptions": "Accuracy in % on corrupted {images}, by corruption and severity.",
    "attacks": "Accuracy under attack by budget.",
    "reliability": "Reliability on {set}: accuracy over confidence, and the share of images in "
    "each bin. Below the diagonal, confidence exceeds accuracy.",
    "classes": "Accuracy by class on {set}, with Wilson intervals of 95 % over images.",
    "confusion": "{network}: decisions by class of {set}, in %.",
    "decoding": "{network}: accuracy of linear decoders of shape and texture from the features at "
    "each site, for images of {set}.",
}
# Sentences of the overview's caption, by the column that they explain.
OVERVIEW = {
    "decisions": f"Of: number of decisions for either cue behind the shape bias ({_FEW}).",
    "cb_bw": "Bandwidth, centre frequency and sensitivity are of the critical band.",
    "error_consistency": "Error consistency: with people, with the number of sets.",
}
_BRACKETS = "In brackets: 95 % bootstrap intervals over images."
TABLES = {
    "overview": "Accuracies in %.",
    "accuracy": "Accuracy on each unchanged set.",
    "shape_bias": "Shape bias: decisions for the shape among those for either cue, with Wilson's "
    f"interval of 95 % ({_FEW}). Accuracy in % of all images with either cue as the label. "
    "Neither: decisions for neither cue, in % of images where cues conflict. MRR: mean "
    "reciprocal rank of a cue's label there, where ranks were kept. Rule: how the answers of "
    "several classes count.",
    "shape_bias_by_class": "Shape bias by class of shapes.",
    "configural": "Effect of the order of tiles on a network. Pairs: two pictures of the same "
    "sixteen tiles; stimuli of our own, so no number is the configural shape score.",
    "cue_decomposition": "Accuracy in % on unchanged images, after edge-enhancing diffusion "
    "(diffused) and in shuffled cells. Robustness: the mean of these two, divided by the "
    "accuracy. Shape part: share of the shape in the retained accuracies, each divided by the "
    "mean over the networks here (last two columns); 0.5 is the average network, so that a "
    f"single network has no shape part. {_BRACKETS}",
    "odd_one_out": "How often features at a site separate an image from two with swapped tiles, "
    "in %; 33.3 by chance, and if features ignore the order. Early sites may detect the tiles' "
    "borders. The stimuli are ours.",
    "people": "Networks and people. Error consistency: Cohen's kappa of being right, 0 at "
    "chance; accuracies in %, over the conditions that count; observed: images that both get "
    "right or both wrong; difference: squared, to people's accuracy. The last line of a network "
    f"is the mean over sets. {_BRACKETS}",
    "people_by_degree": "Networks and people by degree of distortion; accuracies in %.",
    "spectral": "Spectral biases: mean ratio, over the cut-offs 0.1 to 0.5, of accuracy on "
    f"filtered images to that on clean ones. Spectral ratio: high / (low + high). {_BRACKETS}",
    "suppression": "Accuracy without a cue, and with one cue alone, in % of that on images as "
    "they are (clean accuracy, in %). Not corrected for chance, as in the published "
    f"comparison with people; curves are. {_BRACKETS}",
    "critical_band": "The critical band, a Gaussian fitted over octaves: bandwidth in octaves, "
    "centre in nominal cycles per image; without a band: bootstrap's draws in %. An end of the "
    f"centre's interval that is not given is outside the octaves. {_BRACKETS}",
    "corruptions": "Accuracy in % on corrupted {images}, mean over severity {severities}; the "
    "CSV file has each.",
    "corruption_errors": "Errors on corrupted images, in %. Mean error: over corruptions and "
    "severities. mCE: mean over the fifteen corruptions of ImageNet-C of the error over "
    "AlexNet's; relative mCE: the same for the increase over the error on clean images; "
    "AlexNet has 100. Lower is better.{notes}",
    "attacks": "Accuracy under attack, by measure, norm and budget.",
    "calibration": "Expected calibration error (ECE) over 15 bins of equal width and (mass) of "
    "equally many images, NLL in nats, and Brier score of the decided class.",
    "classes": "Accuracy by class.",
    "confusions": f"The {COMMONEST} most frequent confusions, by the lower end of Wilson's interval of "
    "95 % of the share of a class that got one wrong answer.",
    "decoding": "Accuracy of linear decoders from the features at each site, in % of images, with "
    "true and with shuffled labels; dimensions: shares of neurons.",
    "receptive_fields": "Effective receptive field of each site's middle unit: the pixels that "
    "hold a share of it (area), and the radius in pixels of the disc that does.",
    "speed": "Duration of each measure, including compilation. Images: number of images shown, over "
    "all conditions. –: the measure reused decisions of another one.",
    "provenance": "Software and hardware of the measurements. Weights: digest of the file or of the weights.",
}
PUBLISHED_CUES = "Published: from other images of 16 classes, most numbers from a summary of the paper."


class IntervalCell(NamedTuple):
    """A value with its interval; count of n if the value is a share."""

    metric: str
    value: float
    low: float | None
    high: float | None
    count: int | None  # pyright: ignore[reportIncompatibleMethodOverride]: a field
    n: int


def cell(
    network: MeasuredNetwork, place: Place, number: decisions.Number
) -> IntervalCell:
    """Return a number with its stored interval."""
    _, low, high = network.interval(place, number.metric, number.condition)
    return IntervalCell(
        metric=number.metric,
        value=number.value,
        low=low,
        high=high,
        count=None if number.count is None else int(number.count),
        n=number.n,
    )


columns = functools.partial(tables.columns, ends=("_lower", "_upper"))
DECISIONS = ("of", network_frame.decisions_text)
_HEADS = {
    "code": "jbias",
    "as": "taken for",
    "count": "images",
    "n": "images",
    "ood_accuracy": "accuracy",
    "clean": "clean accuracy",
    "rate": "images/s",
    "fraction_neither": "neither",
    "mrr_relative": "relative MRR",
    "mrr_shape": "MRR of shape",
    "mrr_texture": "MRR of texture",
    "undefined": "without a band",
    "cue_robustness": "robustness",
    "mean_diffused": "mean of diffused",
    "mean_cells": "mean of cells",
}
# All columns of the tables, in their order.
COLUMNS = columns(
    "network model weights path device code packages python measure set precision site "
    "rule degree class as images:d count:d n:d shape_bias:.3[] shape:d either accuracy_shape:% "
    "accuracy_texture:% fraction_neither:% mrr_shape:.3 mrr_texture:.3 mrr_relative:.3 "
    "accuracy:% ood_accuracy:% human_accuracy:% clean:% error_consistency:.3[] "
    "human_error_consistency:.3 observed_consistency:.3 accuracy_difference:.3 "
    "low_freq_bias:.3[] high_freq_bias:.3[] spectral_ratio:.3 bandwidth:.2[] "
    "center_frequency:.2[] peak_noise_sensitivity:.3[] undefined:% why share diffused:% "
    "cells:% cue_robustness:.3[] shape_part:.3 mean_diffused:% mean_cells:% ece:.4 ece_mass:.4 "
    "nll:.3 brier_top:.4 shape_decoding:% shape_decoding_shuffled:% texture_decoding:% "
    "texture_decoding_shuffled:% shape_dimensions:.3 texture_dimensions:.3 "
    "residual_dimensions:.3 seconds:.1 rate:.1",
    **_HEADS,
)
COLUMNS |= {"either": DECISIONS}
COLUMNS |= {"share": ("% of the class", tables.with_ends, "low", "high")}


class Page(NamedTuple):
    """Networks of a page, with helpers for its tables and figures; sections add to `notes`."""

    networks: Networks
    drawn: Networks  # All networks, or none if they are too many for figures.
    notes: list[str]
    published: bool = True  # Whether to include published networks.

    @staticmethod
    def table(name: str, rows: Iterable[Mapping], **changed) -> tables.Table | None:
        """Return a table; changed: columns with other heads or formats than in `COLUMNS`."""
        return tables.from_rows(name, TABLES[name], [*rows], COLUMNS | changed)

    @staticmethod
    def figure(name: str, drawn, ending: str = "", **fields) -> document.Figure:
        """Return a figure; ending: of its name. fields: values for its caption."""
        return document.Figure(f"{name}{ending}", FIGURES[name].format(**fields), drawn)

    def each(self, *probes: str) -> Iterator[tuple[MeasuredNetwork, Place, dict]]:
        """Yield each network with each measure of the probes, and the first columns of its row."""
        for probe in probes:
            for network in self.networks:
                for place in network.places_of(probe):
                    yield network, place, {"network": network.name, "set": place[1]}

    def numbers(self, probe: str, metric: str) -> Iterator[tuple]:
        """Yield network, measure, first columns of the row, and number, for each condition."""
        for network, place, row in self.each(probe):
            for number in network.numbers[place]:
                if number.metric == metric:
                    yield network, place, row, number

    def places(
        self, probe: str, *, always: bool = False
    ) -> Iterator[tuple[str, Place, Networks]]:
        """Yield an ending of figures' names, the measure, and its networks, for a probe.

        always: also yield if the page has no figures.
        """
        networks_by_place: dict[Place, list] = {}
        for network, place, _ in self.each(probe) if self.drawn or always else ():
            networks_by_place.setdefault(place, []).append(network)
        for place, networks in networks_by_place.items():
            yield (
                "_".join(("", *place)) if len(networks_by_place) > 1 else "",
                place,
                networks,
            )

    def singly(self, probe: str) -> Iterator[tuple[str, Place, MeasuredNetwork]]:
        """Yield an ending of figures' names, the measure, and one network, for a probe."""
        for ending, place, networks in self.places(probe):
            for i, network in enumerate(networks, 1):
                yield ending + (f"_{i}" if len(networks) > 1 else ""), place, network

    def class_counts(self, probe: str, metric: str) -> dict[str, Counts]:
        """Return (count, n) by data set, network and class (readable names)."""
        counts_by_set: dict[str, dict] = {}
        for network, place, _, number in self.numbers(probe, metric):
            rule, has_class, name = number.condition.partition("class=")
            if has_class and not rule:
                counts = counts_by_set.setdefault(place[1], {}).setdefault(
                    network.name, {}
                )
                counts[data_tables.readable(name)] = int(number.count), number.n
        return counts_by_set

    def shares(
        self, name: str, first: str, every: Mapping[str, Counts], metric="accuracy"
    ) -> tables.Table | None:
        """Return a table of shares with Wilson intervals over independent images.

        first, every: as for `intervals`, with (count, n) as entries.
        """

        def wilson(count: int, n: int) -> IntervalCell:
            value = count / n if n else math.nan
            low, high = decisions.wilson_interval(count, n)
            return IntervalCell(metric, value, low=low, high=high, count=count, n=n)

        return self.intervals(name, first, every, "Wilson intervals of 95 %", wilson)

    def intervals(
        self,
        name: str,
        first: str,
        every: Mapping,
        words: str,
        form: Callable = IntervalCell,
    ) -> tables.Table | None:
        """Return a table with a row per name and a column per network; None without rows.

        first: head of the first column. every: arguments of `form`, which makes the entries,
        by data set, network and row. words: kind of interval, for the caption. Rows begin
        with the data set if there are several.
        """
        data, rows = [], []
        for dataset, by_network in every.items():
            before = f"{dataset}: " if len(every) > 1 else ""
            for row in dict.fromkeys(itertools.chain(*by_network.values())):
                cells = [f"{before}{row}"]
                for one in self.networks:
                    told = by_network.get(one.name, {}).get(row)
                    told = told and form(*told)
                    shown = told and told.n and tables.with_ends(*told[1:4])
                    cells.append(shown or "–")
                    if told:
                        of = {first: cells[0], "network": one.name}
                        data.append(of | told._asdict())
                rows.append(tuple(cells))
        if not rows:
            return None
        caption = f"{TABLES[name]} In %, with {words}."
        head = (first.capitalize(), *(one.name for one in self.networks))
        return tables.Table(name, caption, head, tuple(rows), pd.DataFrame(data))

    def curves(
        self, rows: Sequence[tuple], *, least: int = 1, of: str = "accuracy in %"
    ):
        """Draw curves from rows (panel, x label, x, network, share); None without curves.

        The ends of the interval may follow the share. least: least number of x values of a
        panel. of: label of the y axis.
        """
        keys = ["panel", "label", "x", "line", *_SHARES]
        frame = pd.DataFrame(rows, columns=keys[: len(rows[0])] if rows else keys)
        places = frame.groupby("panel")["x"].transform("nunique")
        shares = frame.columns.intersection(_SHARES)
        frame[shares] = 100 * frame[shares]
        frame = frame[places >= least]
        if frame.empty:
            return None
        looks = plots.marks((one.name for one in self.networks), {*frame["line"]})

        def finish(axes, rows: pd.DataFrame) -> None:
            lowest, highest = rows[shares].min().min(), rows[shares].max().max()
            axes.set(ylim=(min(0, lowest), max(102, highest)))
            axes.set_xlabel("; ".join(rows["label"].unique()), **plots.ink())

        return plots.curves(frame, looks, ("", of), finish=finish, cell=(3.4, 2.9))
