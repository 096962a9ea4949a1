"""What the sections of a page of measured networks share: captions, columns, tables, curves."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from jbias.data import tables as data_tables
from jbias.evals import decisions
from jbias.report import document, network_frame, network_records, plots, tables

Network, Place = network_records.Network, network_records.Place
ended = network_records.ended
Networks = Sequence[Network]
Blocks = Iterator[document.Block | None]
Counts = Mapping[str, Mapping[str, tuple[int, int]]]  # By network and row, of how many.
_SHARES = ["value", "low", "high"]
COMMONEST = 10  # Confusions of a network that are told.
_FEW = f"*: fewer than {network_frame.FEW}, which says next to nothing"
FIGURES = {
    "accuracy": "Accuracy on each set as it is, with Wilson intervals of 95 % over images.",
    "shape_bias": "Decisions for shape and for texture of networks{beside} on {set}, by class of "
    "shapes; lines: over all classes together. As figure 4 of Geirhos et al., ICLR 2019.",
    "cue_decomposition": "Accuracy on images of {set} as they are, after edge-enhancing diffusion "
    "and in shuffled cells, with Wilson intervals of 95 % over images.",
    "filters": "Accuracy on filtered images of {set}: low-pass filters keep the inner share of "
    "frequencies, high-pass filters the outer one.",
    "suppression": "Accuracy on {set} without a cue, in % of that on images as they are, with "
    "bootstrap intervals of 95 % over images: the less is left, the more a network relies on "
    "the cue. Below: with one cue alone. Not corrected for chance.{people}",
    "suppression_curves": "The same above chance, by strength of what is done to {set}: 100 % "
    "is accuracy on images as they are, 0 is chance. Bands: 95 % bootstrap intervals over "
    "images.",
    "critical_band": "{measure} on {set}: accuracy in % under noise, by its strength and its "
    "octave. Above: the fitted band with its centre, cut where the cells end.{lost}",
    "corruptions": "Accuracy in % on corrupted {images}, by corruption and severity.",
    "attacks": "Accuracy under attack by budget.",
    "reliability": "Reliability on {set}: accuracy over confidence, and the share of images in "
    "each bin. Below the diagonal a network is surer than it is right.",
    "classes": "Accuracy by class on {set}, with Wilson intervals of 95 % over images.",
    "confusion": "{network}: what images of each class of {set} are taken for, in %.",
    "decoding": "{network}: how often a linear decoder reads shape and texture off the features "
    "at each site, for images of {set}.",
}
# What the overview says of its columns, where it has them.
OVERVIEW = {
    "decisions": f"Shape bias: of so many decisions for either cue ({_FEW}).",
    "cb_bw": "Bandwidth, centre frequency and sensitivity are of the critical band.",
    "error_consistency": "Error consistency: with people, over so many sets.",
}
_BRACKETS = "In brackets: 95 % bootstrap intervals over images."
TABLES = {
    "overview": "Accuracies in %.",
    "accuracy": "Accuracy on each set as it is.",
    "shape_bias": "Shape bias: decisions for the shape among those for either cue, with Wilson's "
    f"interval of 95 % ({_FEW}). Accuracy in % of all images with either cue as the label. "
    "Neither: decisions for neither cue, in % of images where cues conflict. MRR: mean "
    "reciprocal rank of a cue's label there, where ranks were kept. Rule: how the answers of "
    "several classes count.",
    "shape_bias_by_class": "Shape bias by class of shapes.",
    "configural": "What the order of tiles is to a network. Pairs: two pictures of the same "
    "sixteen tiles; stimuli of our own, so no number is the configural shape score.",
    "cue_decomposition": "Accuracy in % on images as they are, after edge-enhancing diffusion "
    "(diffused) and in shuffled cells. Robustness: the mean of these two, divided by the "
    "accuracy. Shape part: of what is kept of both, each divided by the mean of the networks "
    "here, which are the last two columns; 0.5 is as these on average, so of one network "
    f"there is none. {_BRACKETS}",
    "odd_one_out": "How often features at a site tell an image from two with swapped tiles; "
    "33.3 by chance, and if order is nothing to them. Early sites may see the tiles' borders. "
    "Stimuli of our own.",
    "people": "Networks and people. Error consistency: Cohen's kappa of being right, 0 as by "
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
    "AlexNet's; relative mCE: the same of what errors exceed those on clean images by; "
    "AlexNet has 100. Lower is better.{notes}",
    "attacks": "Accuracy under attack, by measure, norm and budget.",
    "calibration": "Expected calibration error (ECE) over 15 bins of equal width and (mass) of "
    "equally many images, NLL in nats, and Brier score of the decided class.",
    "classes": "Accuracy by class.",
    "confusions": f"The {COMMONEST} surest confusions, by the lower end of Wilson's interval of "
    "95 % of the share of a class that got one wrong answer.",
    "decoding": "What a linear decoder reads off the features at each site, in % of images, with "
    "labels as they are and shuffled; dimensions: shares of neurons.",
    "receptive_fields": "Effective receptive field of each site's middle unit: the pixels that "
    "hold a share of it (area), and the radius in pixels of the disc that does.",
    "speed": "How long each measure took, compiling included. Images: shown, under all "
    "conditions together. –: its decisions were another measure's already.",
    "provenance": "What was measured with what. Weights: digest of the file or of the weights.",
}
PUBLISHED_CUES = "Published: of other images of 16 classes, most numbers from a summary of the paper."


class Cell(NamedTuple):
    """A share with its interval, and of how many of n it is, if it is a count."""

    metric: str
    value: float
    low: float | None
    high: float | None
    count: int | None  # pyright: ignore[reportIncompatibleMethodOverride]: a field
    n: int


def cell(one: Network, place: Place, number: decisions.Number) -> Cell:
    """Gives a number with the interval that was stored with it."""
    _, *ends = one.interval(place, number.metric, number.condition)
    count = None if number.count is None else int(number.count)
    return Cell(number.metric, number.value, *ends, count, number.n)


columns = functools.partial(tables.columns, ends=("_lower", "_upper"))
DECISIONS = ("of", network_frame.decisions_text)
_HEADS = {"code": "jbias", "as": "taken for", "count": "images", "n": "images"}
_HEADS |= {"ood_accuracy": "accuracy", "clean": "clean accuracy", "rate": "images/s"}
_HEADS |= {"fraction_neither": "neither", "mrr_relative": "relative MRR"}
_HEADS |= {"mrr_shape": "MRR of shape", "mrr_texture": "MRR of texture"}
_HEADS |= {"undefined": "without a band", "cue_robustness": "robustness"}
_HEADS |= {"mean_diffused": "mean of diffused", "mean_cells": "mean of cells"}
# The columns that tables have, in their order.
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
    """Whose numbers tables show and figures draw, and notes, to which sections add."""

    networks: Networks
    drawn: Networks  # All or, where they are too many for figures, none.
    notes: list[str]
    published: bool = True  # Whether published networks stand beside these.

    @staticmethod
    def table(name: str, rows: Iterable[Mapping], **changed) -> tables.Table | None:
        """Makes a table; changed: columns of another head or form than elsewhere."""
        return tables.from_rows(name, TABLES[name], [*rows], COLUMNS | changed)

    @staticmethod
    def figure(name: str, drawn, ending: str = "", **facts) -> document.Figure:
        return document.Figure(f"{name}{ending}", FIGURES[name].format(**facts), drawn)

    def each(self, *probes: str) -> Iterator[tuple[Network, Place, dict]]:
        """Gives networks with the measures of probes, and what a row of these begins with."""
        for probe in probes:
            for one in self.networks:
                for place in one.of(probe):
                    yield one, place, {"network": one.name, "set": place[1]}

    def numbers(self, probe: str, metric: str) -> Iterator[tuple]:
        """The same with each number of a metric, under whatever condition."""
        for one, place, row in self.each(probe):
            for number in one.numbers[place]:
                if number.metric == metric:
                    yield one, place, row, number

    def places(
        self, probe: str, *, always: bool = False
    ) -> Iterator[tuple[str, Place, Networks]]:
        """Gives measures of a probe, an ending for their figures' names, and whose they are.

        always: also where nothing is drawn.
        """
        found: dict[Place, list] = {}
        for one, place, _ in self.each(probe) if self.drawn or always else ():
            found.setdefault(place, []).append(one)
        for place, those in found.items():
            yield "_".join(("", *place)) if len(found) > 1 else "", place, those

    def singly(self, probe: str) -> Iterator[tuple[str, Place, Network]]:
        """The same for figures of one network."""
        for ending, place, those in self.places(probe):
            for i, one in enumerate(those, 1):
                yield ending + (f"_{i}" if len(those) > 1 else ""), place, one

    def class_counts(self, probe: str, metric: str) -> dict[str, Counts]:
        """Gives `count` of n by set, network and class, by names that can be read."""
        found: dict[str, dict] = {}
        for one, place, _, number in self.numbers(probe, metric):
            rule, told, name = number.condition.partition("class=")
            if told and not rule:
                by = found.setdefault(place[1], {}).setdefault(one.name, {})
                by[data_tables.readable(name)] = int(number.count), number.n
        return found

    def shares(
        self, name: str, first: str, every: Mapping[str, Counts], metric="accuracy"
    ) -> tables.Table | None:
        """Makes a table of shares by set, of images that are independent: see `intervals`."""

        def wilson(count: int, n: int) -> Cell:
            value = count / n if n else math.nan
            return Cell(metric, value, *decisions.wilson_interval(count, n), count, n)

        return self.intervals(name, first, every, "Wilson intervals of 95 %", wilson)

    def intervals(
        self, name: str, first: str, every: Mapping, words: str, form: Callable = Cell
    ) -> tables.Table | None:
        """Makes a table by set: a row a name, a column a network.

        every: what `form` makes cells of, by set, network and row. words: which intervals
        these are. Rows say of which set they are where there are several.
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
        """Draws curves of (title, label, place, network, share); None of fewer places.

        Behind a share may stand the ends of its interval. of: what is drawn.
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
