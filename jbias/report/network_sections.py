"""What a page of measured networks shows of each probe: figures, and tables of all numbers."""

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from jbias.data import tables as data_tables
from jbias.evals import (
    accuracy,
    calibration,
    corruption_error,
    cue_conflict,
    cue_decomposition,
    decisions,
    human,
    suppression,
    trials,
)
from jbias.report import (
    document,
    network_frame,
    network_plots,
    network_records,
    plots,
    published,
    tables,
)

Network, Place = network_records.Network, network_records.Place
Networks = Sequence[Network]
Blocks = Iterator[document.Block | None]
Counts = Mapping[str, Mapping[str, tuple[int, int]]]  # By network and row, of how many.

_CLASSES = 100  # Of a confusion that is drawn.
_COMMONEST = 10  # Confusions of a network that are told.
_NOT_KEPT = "its decisions were not kept (the suite's run.decisions)"
_FEW = f"*: fewer than {network_frame.FEW}, which says next to nothing"
_FIGURES = {
    "accuracy": "Accuracy on each set as it is, with Wilson intervals of 95 % over images.",
    "shape_bias": "Decisions for shape and for texture of networks{beside} on {set}, by class of "
    "shapes; lines: over all classes together. As figure 4 of Geirhos et al., ICLR 2019.",
    "cue_decomposition": "Accuracy on images of {set} as they are, after edge-enhancing diffusion "
    "and in shuffled cells, with Wilson intervals of 95 % over images.",
    "filters": "Accuracy on filtered images of {set}: low-pass filters keep the inner share of "
    "frequencies, high-pass filters the outer one.",
    "suppression": "Relative accuracy on {set}, with bootstrap intervals of 95 % over images: "
    "the less is left without a cue, the more a network relies on it. Below: with one cue "
    "alone.{people}",
    "suppression_curves": "Relative accuracy above chance on {set}, by strength: 100 % is that "
    "on images as they are, 0 is chance. Bands: 95 % bootstrap intervals over images.",
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
_BRACKETS = "In brackets: 95 % bootstrap intervals over images."
_TABLES = {
    "overview": f"Accuracies in %. Shape bias: of so many decisions for either cue ({_FEW}). "
    "Bandwidth, centre frequency and sensitivity are of the critical band. Error consistency: "
    "with people, over so many sets.",
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
    "they are (clean accuracy, in %). Published: of other images of 16 classes, most of them "
    f"from a summary of the paper. {_BRACKETS}",
    "critical_band": "The critical band, a Gaussian fitted over octaves: bandwidth in octaves, "
    f"centre in nominal cycles per image; without a band: bootstrap's draws in %. {_BRACKETS}",
    "corruptions": "Accuracy in % on corrupted {images}, mean over severity {severities}; the "
    "CSV file has each.",
    "attacks": "Accuracy under attack, by measure, norm and budget.",
    "calibration": "Expected calibration error (ECE) over 15 bins of equal width and (mass) of "
    "equally many images, NLL in nats, and Brier score of the decided class.",
    "classes": "Accuracy by class.",
    "confusions": f"The {_COMMONEST} surest confusions, by the lower end of Wilson's interval of "
    "95 % of the share of a class that got one wrong answer.",
    "decoding": "What a linear decoder reads off the features at each site, in % of images, with "
    "labels as they are and shuffled; dimensions: shares of neurons.",
    "receptive_fields": "Effective receptive field of each site's middle unit: the pixels that "
    "hold a share of it (area), and the radius in pixels of the disc that does.",
    "speed": "How long each measure took, compiling included. Images: shown, under all "
    "conditions together. –: its decisions were another measure's already.",
    "provenance": "What was measured with what. Weights: digest of the file or of the weights.",
}


class Page(NamedTuple):
    """Whose numbers tables show and figures draw, and notes, to which sections add."""

    networks: Networks
    drawn: Networks  # All or, where they are too many for figures, none.
    notes: list[str]
    published: bool = True  # Whether published networks stand beside these.


def ended(*metrics: str) -> list[str]:
    """Gives metrics, each with the ends of its interval."""
    ends = ("", "_lower", "_upper")
    return [f"{metric}{end}" for metric in metrics for end in ends]


_columns = functools.partial(tables.columns, ends=("_lower", "_upper"))
_OF = ("of", network_frame.decisions_text)
# The columns that tables have, in their order.
_COLUMNS = (
    _columns(
        "network model weights path device code packages python measure set precision site "
        "rule degree class as images:d count:d n:d shape_bias:.3[] shape:d",
        **{"code": "jbias", "as": "taken for", "count": "images", "n": "images"},
    )
    | {"either": _OF}
    | _columns(
        "accuracy_shape:% accuracy_texture:% fraction_neither:% mrr_shape:.3 mrr_texture:.3 "
        "mrr_relative:.3 accuracy:% ood_accuracy:% human_accuracy:% "
        "clean:% error_consistency:.3[] human_error_consistency:.3 observed_consistency:.3 "
        "accuracy_difference:.3 low_freq_bias:.3[] high_freq_bias:.3[] spectral_ratio:.3 "
        "bandwidth:.2[] center_frequency:.2[] peak_noise_sensitivity:.3[] undefined:% why",
        fraction_neither="neither",
        mrr_shape="MRR of shape",
        mrr_texture="MRR of texture",
        mrr_relative="relative MRR",
        ood_accuracy="accuracy",
        clean="clean accuracy",
        undefined="without a band",
    )
    | {"share": ("% of the class", tables.with_ends, "low", "high")}
    | _columns(
        "diffused:% cells:% cue_robustness:.3[] shape_part:.3 mean_diffused:% mean_cells:%",
        cue_robustness="robustness",
        mean_diffused="mean of diffused",
        mean_cells="mean of cells",
    )
    | _columns(
        "ece:.4 ece_mass:.4 nll:.3 brier_top:.4 shape_decoding:% shape_decoding_shuffled:% "
        "texture_decoding:% texture_decoding_shuffled:% shape_dimensions:.3 "
        "texture_dimensions:.3 residual_dimensions:.3 seconds:.1 rate:.1",
        rate="images/s",
    )
)
_BRIEF = (
    tables.columns("network set accuracy:% shape:.3", shape="shape bias")
    | {"decisions": _OF}
    | tables.columns(
        "low_freq:.3 high_freq:.3 cb_bw:.2 cb_cf:.1 cb_pns:.2 imagenet_c:% pgd:% ece:.3 "
        "error_consistency:.3 sets:d",
        **network_frame.TITLES,
    )
)


def _table(
    name: str, rows: Iterable[Mapping], columns: Mapping = _COLUMNS, **changed
) -> tables.Table | None:
    """Makes a table; changed: columns of another head or form than elsewhere."""
    return tables.from_rows(name, _TABLES[name], [*rows], {**columns, **changed})


def _figure(name: str, drawn, ending: str = "", **facts) -> document.Figure:
    return document.Figure(f"{name}{ending}", _FIGURES[name].format(**facts), drawn)


# What several sections have.


def _each(networks: Networks, probe: str) -> Iterator[tuple[Network, Place, dict]]:
    """Gives networks with the measures of a probe, and what a row of these begins with."""
    for one in networks:
        for place in one.of(probe):
            yield one, place, {"network": one.name, "set": place[1]}


def _numbers(networks: Networks, probe: str, metric: str) -> Iterator[tuple]:
    """The same with each number of a metric, under whatever condition."""
    for one, place, row in _each(networks, probe):
        for number in one.numbers[place]:
            if number.metric == metric:
                yield one, place, row, number


def _places(networks: Networks, probe: str) -> Iterator[tuple[str, Place, Networks]]:
    """Gives measures of a probe, an ending for their figures' names, and whose they are."""
    found: dict[Place, list] = {}
    for one, place, _ in _each(networks, probe):
        found.setdefault(place, []).append(one)
    for place, those in found.items():
        yield "_".join(("", *place)) if len(found) > 1 else "", place, those


def _singly(networks: Networks, probe: str) -> Iterator[tuple[str, Place, Network]]:
    """The same for figures of one network."""
    for ending, place, those in _places(networks, probe):
        for i, one in enumerate(those, 1):
            yield ending + (f"_{i}" if len(those) > 1 else ""), place, one


def class_counts(networks: Networks, probe: str, metric: str) -> dict[str, Counts]:
    """Gives `count` of n by set, network and class, by names that can be read."""
    found: dict[str, dict] = {}
    for one, place, _, number in _numbers(networks, probe, metric):
        rule, told, name = number.condition.partition("class=")
        if told and not rule:
            by = found.setdefault(place[1], {}).setdefault(one.name, {})
            by[data_tables.readable(name)] = int(number.count), number.n
    return found


def _shares(
    name: str, first: str, page: Page, every: Mapping[str, Counts], metric="accuracy"
) -> tables.Table | None:
    """Makes a table of shares by set: a row a name, a column a network.

    Rows say of which set they are where there are several.
    """
    data, rows = [], []
    for dataset, counts in every.items():
        before = f"{dataset}: " if len(every) > 1 else ""
        for row in dict.fromkeys(itertools.chain(*counts.values())):
            cells = [f"{before}{row}"]
            for one in page.networks:
                count, n = counts.get(one.name, {}).get(row, (0, None))
                low, high = decisions.wilson_interval(count, n or 0)
                cells.append(tables.with_ends(count / n, low, high) if n else "–")
                if n is not None:
                    of = {first: cells[0], "network": one.name, "metric": metric}
                    of |= dict(value=count / n if n else math.nan, low=low, high=high)
                    data.append(of | dict(count=count, n=n))
            rows.append(tuple(cells))
    if not rows:
        return None
    caption = f"{_TABLES[name]} In %, with Wilson intervals of 95 %."
    head = (first.capitalize(), *(one.name for one in page.networks))
    return tables.Table(name, caption, head, tuple(rows), pd.DataFrame(data))


_SHARES = ["value", "low", "high"]


def _curves(
    rows: Sequence[tuple],
    networks: Networks,
    *,
    least: int = 1,
    of: str = "accuracy in %",
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
    names, there = [one.name for one in networks], {*frame["line"]}
    looks = {name: plots.marked(i) for i, name in enumerate(names) if name in there}

    def finish(axes, rows: pd.DataFrame) -> None:
        lowest, highest = rows[shares].min().min(), rows[shares].max().max()
        axes.set(ylim=(min(0, lowest), max(102, highest)))
        axes.set_xlabel(rows["label"].iloc[0], **plots.ink())

    return plots.curves(frame, looks, ("", of), finish=finish, cell=(3.4, 2.9))


# The sections.


def _overview(page: Page) -> Blocks:
    rows = []
    for one in page.networks:
        found = network_frame.row_of(one).numbers
        dataset, number = one.accuracy or (None, None)
        told = like_people(one).get("error_consistency")
        row = {"network": one.name, "set": dataset, "accuracy": number and number.value}
        row |= {key: found.get(key) for key in ("shape", "low_freq", "high_freq")}
        row["decisions"] = found.get("shape_n")
        row |= {key: found.get(key) for key in ("cb_bw", "cb_cf", "cb_pns")}
        row |= {key: found.get(key, math.nan) / 100 for key in ("imagenet_c", "pgd")}
        for place in one.of("calibration")[:1]:
            row |= one.values(place, ["ece"])
        row |= {"error_consistency": told and told.value, "sets": told and told.n}
        rows.append(row)
    yield _table("overview", rows, _BRIEF)


def _accuracy(page: Page) -> Blocks:
    """Shows accuracy by set, the main set first; single corruptions are no sets."""
    counts: dict[str, dict] = {one.name: {} for one in page.networks}
    for one in page.networks:
        main = one.accuracy and one.accuracy[0]
        files = one.corrupted.get(corruption_error.FILES, ())
        single = {f"{name}-{severity}" for name, severity in files}
        for place in sorted(one.of("plain"), key=lambda place: place[1] != main):
            measure, dataset = place
            number = one.number(place, "accuracy") or one.number(place, "real_accuracy")
            if number and number.n and dataset not in single:
                name = dataset if measure == "accuracy" else f"{dataset} ({measure})"
                counts[one.name][name] = int(number.count), number.n
    if page.drawn and any(counts.values()):
        yield _figure("accuracy", network_plots.accuracies(counts))
    yield _shares("accuracy", "set", page, {"": counts})


def _shape_bias(page: Page) -> Blocks:
    every = class_counts(page.networks, "shape_bias", "shape_bias")
    for dataset, counts in every.items() if page.drawn else ():
        names = [*dict.fromkeys(itertools.chain(*counts.values()))]
        by: dict[str, dict] = {network: {} for network in counts}
        for network, each in counts.items():
            for name, (count, n) in each.items():
                bias = count / n if n else math.nan, count, n - count
                by[network][names.index(name)] = cue_conflict.ShapeBias(*bias)
        people, beside = _people(page, dataset), ""
        if people and set(people) <= set(names):
            beside = " and people"
            by[network_plots.PEOPLE] = {names.index(k): v for k, v in people.items()}
        drawn, ending = network_plots.cue_decisions(by, names), ""
        if len(every) > 1:
            ending = f"_{dataset}"
        yield _figure("shape_bias", drawn, ending, beside=beside, set=dataset)
    metrics = [*ended("shape_bias"), "accuracy_shape", "accuracy_texture"]
    metrics += ["fraction_shape", "fraction_texture", "fraction_neither"]
    metrics += ["mrr_shape", "mrr_texture", "mrr_relative"]
    rows = [
        row
        | {"rule": one.rule(place, number.condition)}
        | one.values(place, metrics, number.condition)
        | {"shape": number.count, "either": number.n}
        for one, place, row, number in _numbers(page.networks, "shape_bias", metrics[0])
        if "class=" not in number.condition
    ]
    yield _table("shape_bias", rows)
    yield _shares("shape_bias_by_class", "class", page, every, "shape_bias")
    if page.published:
        yield published.beside([*_like_published(page.networks)])


_PAIRED = {
    "configural_substitute": "pairs with both right",
    "accuracy": "pictures of pairs right",
    "foil_rate": "pictures of pairs taken for the other",
}
_ORDER = {"order_dependence": "right only if no tile is swapped"}


def _configural(page: Page) -> Blocks:
    every: dict[str, dict] = {}
    for probe, rows in (("configural", _PAIRED), ("tile_order", _ORDER)):
        for metric, row in rows.items():
            for one, place, _, number in _numbers(page.networks, probe, metric):
                if not number.condition:
                    by = every.setdefault(place[1], {}).setdefault(one.name, {})
                    by[row] = int(number.count), number.n
    yield _shares("configural", "share", page, every)


def _cue_decomposition(page: Page) -> Blocks:
    """Shows each set; its mean accuracies are of the networks that were measured alike."""
    kinds, rows = (cue_decomposition.DIFFUSED, cue_decomposition.SHUFFLED), []
    for ending, place, those in _places(page.networks, "cue_decomposition"):
        found: list[dict] = []
        counts: dict[str, dict] = {one.name: {} for one in page.networks}
        for one in those:
            by = {k: one.number(place, "accuracy", k) for k in ("", *kinds)}
            counts[one.name] = {
                k or "as they are": (int(x.count), x.n) for k, x in by.items()
            }
            row = {"network": one.name, "set": place[1], "n": by[""].n}
            row |= {k or "clean": number.value for k, number in by.items()}
            found.append(row | one.values(place, ended("cue_robustness")))
        alike = len({str(one.measures[place]["measure"]) for one in those}) == 1
        if not alike:
            told = f"{place[0]} on {place[1]} was not made alike for all networks"
            page.notes.append(f"{told}, so there is no shape part.")
        elif len(found) > 1:
            kept = [[row[kind] for row in found] for kind in kinds]
            means = {f"mean_{k}": np.mean(x) for k, x in zip(kinds, kept, strict=True)}
            parts = cue_decomposition.shape_part(*kept)
            pairs = zip(found, parts, strict=True)
            found = [row | {"shape_part": part, **means} for row, part in pairs]
        rows += found
        if page.drawn:
            drawn = network_plots.accuracies(counts)
            yield _figure("cue_decomposition", drawn, ending, set=place[1])
    yield _table("cue_decomposition", rows)


def _odd_one_out(page: Page) -> Blocks:
    every: dict[str, dict] = {}
    for one, place, _, number in _numbers(page.networks, "odd_one_out", "odd_one_out"):
        by = every.setdefault(place[1], {}).setdefault(one.name, {})
        if number.condition:  # Else it is that of the last site again.
            by[number.condition] = number.value * number.n, number.n
    yield _shares("odd_one_out", "site", page, every, "odd_one_out")


def _like_published(networks: Networks) -> Iterator[dict]:
    """Gives the shape biases that are of the same images as the published ones."""
    for one, place, _, number in _numbers(networks, "shape_bias", "shape_bias"):
        same = one.split(place[1]) == "cue-conflict"
        same &= one.measures[place]["images"] == published.IMAGES
        if same and number.value is not None and "class=" not in number.condition:
            row = {"network": one.name, "rule": one.rule(place, number.condition)}
            row |= {"shape": number.count, "either": number.n}
            row |= one.values(place, ended("shape_bias"), number.condition)
            for other in one.of("human"):
                if other[1] == place[1]:
                    row |= one.values(other, ["error_consistency"], number.condition)
            yield row


def _people(page: Page, dataset: str) -> Mapping[str, cue_conflict.ShapeBias]:
    """Gives people's shape bias by class, if networks were compared with people."""
    for one, place, _ in _each(page.networks, "human"):
        if place[1] == dataset and one.split(dataset) == "cue-conflict":
            root = one.measures[place]["measure"]["options"]["root"]
            try:
                found = human.shape_biases(trials.people(root, "cue-conflict"))
            except ValueError as error:
                why = f"People are not in the figure of shape bias: {error}."
                page.notes.append(why)
                return {}
            names = one.classes(place)
            return {names[k]: v for k, v in found.items()} if names else {}
    return {}


def like_people(one: Network) -> dict[str, decisions.Number]:
    """Gives what a network has in common with people, by metric: means over n sets."""
    found = {one.split(place[1]): one.numbers[place] for place in one.of("human")}
    return {told.metric: told for told in human.overall(found)} if found else {}


def _human(page: Page) -> Blocks:
    metrics = ["ood_accuracy", "human_accuracy", *ended("error_consistency")]
    metrics += ["human_error_consistency", "observed_consistency"]
    metrics += ["accuracy_difference"]
    rows = []
    for one in page.networks:
        for _, place, row in _each([one], "human"):
            rows.append(row | one.values(place, metrics))
        if told := like_people(one):
            n = next(iter(told.values())).n
            mean = f"mean of {n} of {len(human.SETS)} sets"
            values = {metric: number.value for metric, number in told.items()}
            rows.append({"network": one.name, "set": mean} | values)
    yield _table("people", rows)
    yield by_degree(page.networks)


def by_degree(networks: Networks) -> tables.Table | None:
    """Gives accuracies by degree of distortion, of sets that have degrees."""
    rows = []
    for one, place, row in _each(networks, "human"):
        about = one.provenance.get("data", {}).get(place[1], {})
        decided = one.decided(place).get("")
        for code, name in enumerate(about.get("values", {}).get("condition", ())):
            found = one.values(place, ("human_accuracy", "error_consistency"), name)
            if found["human_accuracy"] is not None:
                rows.append(row | {"degree": name} | found)
                if decided is not None:
                    here = decided.columns["condition"] == code
                    right = decided.prediction == decided.columns["label"]
                    rows[-1] |= {"accuracy": right[here].mean(), "n": int(here.sum())}
    return _table("people_by_degree", rows)


_FILTER = re.compile(r"(low|high) ([\d.]+)")


def _spectral(page: Page) -> Blocks:
    for ending, place, those in _places(page.drawn, "spectral"):
        label = "cut-off, share of frequencies"
        rows = [
            (f"{match[1]}-pass", label, float(match[2]), one.name, number.value)
            for one in those
            for number in one.numbers[place]
            if number.metric == "accuracy"
            and (match := _FILTER.fullmatch(number.condition))
        ]
        yield _figure("filters", _curves(rows, page.networks), ending, set=place[1])
    metrics = [*ended("low_freq_bias", "high_freq_bias"), "spectral_ratio"]
    rows = []
    for one, place, row in _each(page.networks, "spectral"):
        clean = one.number(place, "accuracy", "unfiltered")
        row |= {"clean": clean and clean.value, "n": clean and clean.n}
        rows.append(row | one.values(place, metrics))
    yield _table("spectral", rows)


# What the strength of a step is, in pixels of 224 a side.
_STRENGTHS = {
    "shuffle": "tiles a side",
    "rotation": "tiles a side",
    "bilateral": "diameter, pixels",
    "blur": "length of the kernel, pixels",
    "non_local_means": "h",
    "grey": "share of grey",
}
_CUES = {
    condition: f"{cue} ({condition})".replace("_", " ")
    for cue, condition in suppression.CUES.items()
}


def _suppression(page: Page) -> Blocks:
    like_people = {
        (one.name, place)
        for one, place, _ in _each(
            page.networks if page.published else (), "suppression"
        )
        if one.family(place[1]) == "imagenet16"
    }
    for ending, place, those in _places(page.drawn, "suppression"):
        kept = {one.name: without_cues(one, place) for one in page.networks}
        words = ""
        if any((one.name, place) in like_people for one in those):
            _, *values = suppression.PUBLISHED[network_plots.PEOPLE]
            rows = dict(zip(_CUES.values(), values))
            kept[network_plots.PEOPLE] = {row: (x, x, x) for row, x in rows.items()}
            words = " Humans: as published, of other images."
        if any(kept.values()):
            drawn = network_plots.relative_accuracies(kept)
            yield _figure("suppression", drawn, ending, set=place[1], people=words)
        rows = [row for one in those for row in by_strength(one, place)]
        if drawn := _curves(rows, page.networks, least=2, of="above chance, %"):
            yield _figure("suppression_curves", drawn, ending, set=place[1])
    rows = []
    for one, place, row in _each(page.networks, "suppression"):
        clean = one.number(place, "accuracy")
        row |= {"clean": clean and clean.value, "n": clean and clean.n}
        for cue, condition in suppression.CUES.items():
            told = one.values(place, ended("relative_accuracy"), condition)
            row |= zip(ended(cue), told.values(), strict=True)
        rows.append(row)
    keys = ["clean", *suppression.CUES]
    for name, values in suppression.PUBLISHED.items() if like_people else ():
        row = {"network": name, "set": "16 classes, published", "n": 800}
        rows.append(row | dict(zip(keys, values)))
    cues = " ".join(f"{cue}:%[]" for cue in suppression.CUES)
    yield _table("suppression", rows, _COLUMNS | _columns(cues))


def without_cues(one: Network, place: Place) -> dict[str, tuple]:
    """Gives what is left of accuracy without cues, with its interval, where it is known."""
    found = {}
    for condition, row in _CUES.items():
        told = one.values(place, ended("relative_accuracy"), condition).values()
        if None not in told:
            found[row] = (*told,)
    return found


def by_strength(one: Network, place: Place) -> Iterator[tuple]:
    """Gives the points of curves over the strength of the first step that varies."""
    for family, conditions in suppression.FAMILIES.items():
        parts = [*zip(*map(suppression.steps, conditions), strict=True)]
        vary = [part for part in parts if len({*part}) > 1]
        kinds = {kind for kind, _ in vary[0]} if vary else {}
        if len(kinds) != 1:
            continue
        for condition, (kind, strength) in zip(conditions, vary[0], strict=True):
            metrics = ended("relative_accuracy_chance")
            told = one.values(place, metrics, condition).values()
            if None not in told:
                title = family.replace("_", " ")
                yield title, _STRENGTHS[kind], strength, one.name, *told


_NOISE = re.compile(r"(?:noise|original) ([\d.]+)(?: at ([\d.]+))?")
# The flags of jbias.evals.critical_band, as the numbers are called.
_WHY = {
    "all_critical": "all strengths do harm in each octave",
    "no_critical_band": "no strength does harm",
    "flat": "all octaves do the same harm",
    "unknown": "too few images for all octaves",
}


def _critical_band(page: Page) -> Blocks:
    for ending, place, those in _places(page.drawn, "critical_band"):
        panels = {one.name: noise(one, place) for one in those}
        bands = {one.name: band(one, place, panels[one.name]) for one in those}
        lost = {one.name: no_band(one, place) for one in those if not bands[one.name]}
        lost = [f"{name} ({why})" if why else name for name, why in lost.items()]
        lost = f" No band: {', '.join(lost)}." if lost else ""
        look = dict(across="cycles per image", down="strength of noise", bands=bands)
        yield document.Figure(
            ending.removeprefix("_") or "critical_band",
            _FIGURES["critical_band"].format(measure=place[0], set=place[1], lost=lost),
            network_plots.heat(panels, cell=(0.42, 0.22), **look),
        )
    metrics = ended("bandwidth", "center_frequency", "peak_noise_sensitivity")
    rows = []
    for one, place, row in _each(page.networks, "critical_band"):
        prefix = _prefix(one, place)
        told = one.values(place, [prefix + name for name in metrics]).values()
        width = one.number(place, f"{prefix}bandwidth")
        lost = one.number(place, f"{prefix}bandwidth_undefined")
        row = {"network": one.name, "measure": place[0]} | row
        row |= dict(zip(metrics, told, strict=True))
        row |= {"n": width and width.n, "undefined": lost and lost.value}
        rows.append(row | {"why": no_band(one, place)})
    yield _table("critical_band", rows)


def _prefix(one: Network, place: Place) -> str:
    """Gives what the names of a critical band's numbers begin with."""
    variant = one.measures[place]["measure"]["options"].get("variant", "bvg")
    return "critical_band_" if variant == "bvg" else f"critical_band_{variant}_"


def no_band(one: Network, place: Place) -> str | None:
    """Says in words why a network has no critical band; None where it has one."""
    told = one.values(place, [_prefix(one, place) + flag for flag in _WHY]).values()
    return next(itertools.compress(_WHY.values(), told), None)


def noise(one: Network, place: Place) -> pd.DataFrame:
    """Gives accuracy by strength of noise, weakest last, and octave."""
    found = {
        match.groups(): number.value
        for number in one.numbers[place]
        if number.metric == "accuracy" and (match := _NOISE.fullmatch(number.condition))
    }
    noisy = {(float(a), float(b)): value for (a, b), value in found.items() if b}
    frame = pd.Series(noisy, dtype=float).unstack()
    if 0.0 not in frame.index:  # No noise is the same in all octaves.
        frame.loc[0.0] = next((v for (_, b), v in found.items() if not b), math.nan)
    frame = frame.sort_index(ascending=False)
    return frame.rename(columns="{:g}".format, index="{:g}".format)


def band(one: Network, place: Place, cells: pd.DataFrame) -> network_plots.Band | None:
    """Gives the fitted band in octaves above the lowest of the cells, if there is one."""
    names = [_prefix(one, place) + end for end in ("bandwidth", "center_frequency")]
    width, centre = one.values(place, names).values()
    if None in (width, centre):
        return None
    at = math.log2(centre / float(cells.columns[0]))
    return network_plots.Band(at - width / 2, at, at + width / 2)


def _corruptions(page: Page) -> Blocks:
    """Shows each set that was corrupted, and the published files.

    Measures of one set are together, such as ImageNet-C and C-bar, unless they share a
    condition.
    """
    cells = [
        (one.name, measure, dataset, name, severity, value)
        for one in page.networks
        for (measure, dataset), found in one.corrupted.items()
        for (name, severity), value in found.items()
    ]
    keys = ["network", "measure", "set", "corruption", "severity", "accuracy"]
    every = pd.DataFrame(cells, columns=keys)
    shared = every["set"][every.duplicated(["network", *keys[2:5]])]
    every["measure"] = every["measure"].where(every["set"].isin(shared), "")
    groups = every.groupby(["measure", "set"], sort=False)
    for (measure, on), part in groups:
        ending = "".join(f"_{x}" for x in (measure, on) if x) if len(groups) > 1 else ""
        images = f"images of {on}" if on else "images as published"
        images += f" (measure {measure})" if measure else ""
        names = {name: i for i, name in enumerate(part["corruption"].unique())}
        order = part["corruption"].map(names).sort_values(kind="stable").index
        data = part.loc[order, ["network", "corruption", "severity", "accuracy"]]
        data.insert(1, "images", images)
        networks, cell = part["network"].unique(), ["network", "corruption"]
        wide = data.pivot(index=cell, columns="severity", values="accuracy")
        by = [wide.loc[one].reindex([*names]) for one in networks]
        by = [one.rename(lambda name: name.replace("_", " ")) for one in by]
        if page.drawn:
            panels, look = dict(zip(networks, by)), dict(across="severity", down="")
            drawn = network_plots.heat(panels, cell=(0.34, 0.2), **look)
            yield _figure("corruptions", drawn, ending, images=images)
        severities = tables.join(map(str, wide))
        for name, one in zip(networks, by, strict=True):
            if one.isna().any(axis=None):
                told = f"not every corruption of {images} has severity {severities}"
                page.notes.append(f"{name}: {told}; where one lacks, there is no mean.")
        means = pd.concat([one.mean(axis=1, skipna=False) for one in by], axis=1)
        yield tables.from_rows(
            f"corruptions{ending}",
            _TABLES["corruptions"].format(images=images, severities=severities),
            means.reset_index(),
            tables.columns("corruption")
            | {i: (one, tables.percent) for i, one in enumerate(networks)},
            data=data,
        )


_ATTACK = re.compile(r"(linf|l2) ([\d.]+)(/255)?(.*)")
_NORMS = {"linf": "ℓ∞", "l2": "ℓ2"}


def _attacks(page: Page) -> Blocks:
    rows, counts = [], {}
    for one, place, _ in (x for p in ("pgd", "fgsm") for x in _each(page.networks, p)):
        by = counts.setdefault(place[1], {}).setdefault(one.name, {})
        for number in one.numbers[place]:
            strict = ", right before, too" if "_strict" in number.metric else ""
            if "_accuracy" in number.metric and number.count is not None:
                name = f"{place[0]} {number.condition}{strict}"
                by[name] = int(number.count), number.n
            match = _ATTACK.fullmatch(number.condition)
            if match and number.metric in ("pgd_accuracy", "fgsm_accuracy"):
                norm = _NORMS[match[1]]
                title = f"{place[0]} on {place[1]}, {norm}{match[4]}"
                label = f"budget ({norm}{', in 1/255' if match[3] else ''})"
                rows.append((title, label, float(match[2]), one.name, number.value))
    if page.drawn and (drawn := _curves(rows, page.networks, least=2)):
        yield _figure("attacks", drawn)
    yield _shares("attacks", "attack", page, counts)


def _calibration(page: Page) -> Blocks:
    for ending, place, those in _places(page.drawn, "calibration"):
        found = {}
        for one in those:
            options = one.measures[place]["measure"]["options"]
            if decided := one.decided(place).get(""):
                bins = options.get("bins", calibration.BINS)
                found[one.name] = calibration.of_decisions(decided, bins=bins)
            else:
                page.notes.append(f"{one.name}: no reliability is drawn: {_NOT_KEPT}.")
        if found:
            drawn = network_plots.reliability(found)
            yield _figure("reliability", drawn, ending, set=place[1])
    rows = [
        row
        | {"rule": one.rule(place, number.condition), "n": number.n}
        | one.values(place, ("ece", "ece_mass", "nll", "brier_top"), number.condition)
        for one, place, row, number in _numbers(page.networks, "calibration", "ece")
    ]
    yield _table("calibration", rows)


def _classes(page: Page) -> Blocks:
    every = class_counts(page.networks, "classes", "class_accuracy")
    for dataset, counts in every.items() if page.drawn else ():
        whole = {one.name: counts.get(one.name, {}) for one in page.networks}
        drawn = network_plots.accuracies(whole, best_first=True)
        yield _figure("classes", drawn, f"_{dataset}" * (len(every) > 1), set=dataset)
    for ending, place, one in _singly(page.drawn, "classes"):
        if (found := confusion(one, place)) is None:
            page.notes.append(f"{one.name}: no confusion is told: {_NOT_KEPT}.")
        elif len(found[1]) > _CLASSES:
            told = f"{one.name}: {len(found[1])} classes are too many to draw their confusion"
            page.notes.append(f"{told}; the table has the largest shares.")
        else:
            drawn = network_plots.confusion(*found[:2])
            yield _figure("confusion", drawn, ending, network=one.name, set=place[1])
    yield _shares("classes", "class", page, every, "class_accuracy")
    yield confusions(page.networks)


def confusion(one: Network, place: Place):
    """Gives the confusion in per cent, the names of its classes and their images, or None."""
    decided = one.decided(place).get("")
    if decided is None:
        return None
    label = decided.columns["label"]
    k = int(max(label.max(), decided.prediction.max())) + 1
    names = one.classes(place) or tuple(map(str, range(k)))
    matrix = accuracy.confusion(decided.prediction, label, len(names))
    sizes = np.bincount(label[label >= 0], minlength=len(names))
    return matrix, tuple(map(data_tables.readable, names)), sizes


def confusions(networks: Networks) -> tables.Table | None:
    """Gives what is taken for what, the sure ones first.

    Of one image a wrong answer is no confusion yet.
    """
    wilson = functools.cache(decisions.wilson_interval)
    rows = []
    for one, place, row in _each(networks, "classes"):
        if (found := confusion(one, place)) is None:
            continue
        matrix, names, sizes = found
        wrong = np.rint(np.nan_to_num(matrix) / 100 * sizes).astype(int)
        np.fill_diagonal(wrong, 0)
        cells = [(i, j, *wilson(wrong[i, j], sizes[j])) for i, j in np.argwhere(wrong)]
        cells.sort(key=lambda cell: -cell[2])
        for i, j, low, high in cells[:_COMMONEST]:
            told = {"class": names[j], "as": [*names, "no response"][i]}
            told |= {"count": wrong[i, j], "n": sizes[j]}
            told |= {"share": wrong[i, j] / sizes[j], "low": low, "high": high}
            rows.append(row | told)
    return _table("confusions", rows, n=("of", tables.whole))


def _decoding(page: Page) -> Blocks:
    for ending, place, one in _singly(page.drawn, "decoding"):
        drawn = network_plots.decodability(one.numbers[place], title=one.name)
        yield _figure("decoding", drawn, ending, network=one.name, set=place[1])
    metrics = [name for name in _COLUMNS if re.search("_decoding|_dimensions", name)]
    rows = [
        row | {"site": number.condition} | one.values(place, metrics, number.condition)
        for one, place, row, number in _numbers(page.networks, "decoding", metrics[0])
    ]
    yield _table("decoding", rows)


def _fields(page: Page) -> Blocks:
    rows, heads = {}, {}
    for one, place, _ in _each(page.networks, "receptive_field"):
        for number in one.numbers[place]:
            site, _, share = number.condition.rpartition(" ")
            key, begun = f"{number.metric} {share}", {"network": one.name, "site": site}
            rows.setdefault((one.name, *place, site), begun)[key] = number.value
            kind = number.metric.removeprefix("receptive_")
            heads[key] = f"{kind} {share.replace('%', ' %')}"
    yield _table(
        "receptive_fields",
        rows.values(),
        **{key: (head, tables.digits(1)) for key, head in heads.items()},
    )


def _made(page: Page) -> Blocks:
    rows = []
    for one in page.networks:
        for (measure, dataset), told in one.measures.items():
            row = {"network": one.name, "measure": measure, "set": dataset}
            row |= {key: told.get(key) for key in ("images", "seconds", "precision")}
            seconds = told["seconds"]
            rows.append(row | {"rate": told["images"] / seconds if seconds else None})
    yield _table("speed", rows)
    yield provenance(page.networks)


def provenance(networks: Networks) -> tables.Table | None:
    """Shows what each network is, and with what it was measured."""
    rows = []
    for one in networks:
        made, run = one.provenance, one.config.get("run", {})
        device, code = made.get("device", {}), made.get("code", {})
        packages = made.get("packages", {})
        known = [name for name in ("jax", "flax", "numpy") if name in packages]
        row = {"network": one.name, "model": one.config["model"]["name"]}
        row |= {"weights": run.get("digest"), "path": run.get("path")}
        row["device"] = f"{device.get('count', '?')} × {device.get('kind', '?')}"
        row["code"] = f"{code.get('version', '?')} {str(code.get('commit'))[:10]}"
        row["packages"] = ", ".join(f"{name} {packages[name]}" for name in known)
        row |= {"python": made.get("python")}
        rows.append(row | {"seconds": sum(told["seconds"] for told in one.asked)})
    return _table("provenance", rows, seconds=("seconds in all", tables.digits(0)))


class Part(NamedTuple):
    """A section of the page: its title, what makes it, and of which probes it is."""

    title: str
    blocks: Callable[[Page], Blocks]
    probes: tuple[str, ...] = ()


PARTS = {
    "overview": Part("In short", _overview),
    "caveats": Part("What to keep in mind", lambda page: iter(())),
    "accuracy": Part("Accuracy", _accuracy, ("plain",)),
    "shape_bias": Part("Shape or texture", _shape_bias, ("shape_bias",)),
    "configural": Part(
        "Shape by the order of parts", _configural, ("configural", "tile_order")
    ),
    "cue_decomposition": Part(
        "Edges or texture", _cue_decomposition, ("cue_decomposition",)
    ),
    "odd_one_out": Part("Odd one out by layer", _odd_one_out, ("odd_one_out",)),
    "people": Part("Like people", _human, ("human",)),
    "spectral": Part("Low and high frequencies", _spectral, ("spectral",)),
    # Measured where a suite is asked for it: nobody misses it.
    "suppression": Part("Without shape, texture or colour", _suppression),
    "critical_band": Part("Critical band", _critical_band, ("critical_band",)),
    "corruptions": Part("Corruptions", _corruptions, ("corruptions",)),
    "attacks": Part("Attacks", _attacks, ("pgd", "fgsm")),
    "calibration": Part("Calibration", _calibration, ("calibration",)),
    "classes": Part("Classes", _classes, ("classes",)),
    "decoding": Part("Shape and texture by layer", _decoding, ("decoding",)),
    "receptive_field": Part(
        "Effective receptive fields", _fields, ("receptive_field",)
    ),
    "made": Part("How it was measured", _made),
}
