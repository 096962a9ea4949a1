"""The measures that are calibrated: the records that each is read from, direction and scale.

`MEASURES` has a row for every measure of shape or texture reliance that jbias has. A measure is
read from the numbers of the suite `configs/suites/calibration.py`: from one number, or from a
function of several. The sets of that suite:

    test               scenes whose shape, texture, colour and size are all of the label's class
    cue_conflict       shape of one class, texture of another. As in style transfer, the colour
                       is of the texture's class, and the size of the shape's class
    cue_conflict_free  the same pairs, with a colour and a size of neither class, so that a decision
                       follows shape or texture; all measures of conflicts but "shape_bias" use it
    single_cue         silhouettes, and patches of texture without a shape (column "cue")
    silhouette, edge, sketch, texture
                       images of a single cue, in all sizes
    stylized           shapes with textures that no class has
    recoloured         as test, in colours that are unrelated to the class
    train, valid       the network's training images, and others like them, for iOcclusion
    anagrams           pairs of pictures with the same tiles that show two shapes

The tables of a study, networks.csv and readings.csv, are described in `rows.py`.
"""

import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jbias import errors
from jbias.measures import cue_decomposition, decisions, iocclusion

LAST_SITE = "<last site>"  # As a condition: the last site of the network.
NEEDS = ("decisions", "probabilities", "images", "versions", "activations")
# Accuracies on diffused images and on shuffled cells of the network that the part of edges is
# relative to: a network without a loss. Fixed, so that values do not depend on other networks.
REFERENCE = (1.0, 1.0)

Key = tuple[str, str]  # The suite's measure, and the set.


class SuiteNumber(NamedTuple):
    """A number of the suite: its measure, set, metric and condition."""

    measure: str
    dataset: str
    metric: str
    condition: str = ""

    @property
    def key(self) -> Key:
        """Return the measure and the set."""
        return self.measure, self.dataset


class Measure(NamedTuple):
    """A measure of reliance on shape or texture.

    title: a few words. records: the numbers that it is read from.
    direction: 1 if its authors expect higher values for reliance on shape, -1 for lower values,
      and 0 if they expect neither, as for measures of colour.
    needs: what a network must give, one of NEEDS: "decisions" about unchanged images, whose cues
      are known; "probabilities", also of other classes; "images", as it shows changed images;
      "versions", as it compares decisions about changed versions of one image; "activations", as
      it reads the network's layers.
    source: the paper, or "jbias".
    is_share: whether the value estimates the dial itself: a share of decisions for shape among
      those for shape or texture. Then bias and coverage of the interval are defined.
    combine: from the values of `records` to the value; None: the value of the only record.
    """

    title: str
    records: tuple[SuiteNumber, ...]
    direction: int
    needs: str
    source: str
    is_share: bool = False
    combine: Callable[..., float] | None = None


class Value(NamedTuple):
    """The value of a measure; fields as in rows.Reading."""

    value: float | None
    lower: float | None = None
    upper: float | None = None
    n: int | None = None
    reason: str = ""


def read(measure: Measure, numbers: Mapping[Key, Sequence[decisions.Number]]) -> Value:
    """Return the value of a measure, given the numbers of a network by measure and set.

    The interval is that of the record's metrics `_lower` and `_upper`, or Wilson's if the number
    is a share with a count; there is none for a combination of several numbers, whose n is the
    smallest. The value is None, with a reason, if a number is missing or undefined.
    """
    all_numbers = []
    for record in measure.records:
        if record.key not in numbers:
            return Value(None, reason=f"not measured: {'@'.join(record.key)}")
        number = find(numbers[record.key], record.metric, record.condition)
        if number is None:
            name = " ".join(filter(None, (record.metric, record.condition)))
            return Value(None, reason=f"not measured: {name} of {'@'.join(record.key)}")
        if number.value is None or math.isnan(number.value):
            reason = f"undefined: {record.metric} of {'@'.join(record.key)}"
            return Value(None, n=number.n, reason=reason)
        all_numbers.append(number)
    if measure.combine is None:
        (record,), (number,) = measure.records, all_numbers
        lower, upper = _interval(numbers[record.key], number)
        return Value(number.value, lower, upper, number.n)
    n = min(number.n for number in all_numbers)
    value = float(measure.combine(*(number.value for number in all_numbers)))
    if math.isnan(value):
        return Value(None, n=n, reason=f"undefined: {measure.title}")
    return Value(value, n=n)


def find(
    numbers: Sequence[decisions.Number], metric: str, condition: str = ""
) -> decisions.Number | None:
    """Return the number of a metric under a condition, or None.

    For LAST_SITE, the last number of the metric with a condition.
    """
    if condition == LAST_SITE:
        matching = [x for x in numbers if x.metric == metric and x.condition]
        return matching[-1] if matching else None
    for number in numbers:
        if (number.metric, number.condition) == (metric, condition):
            return number
    return None


def _interval(
    numbers: Sequence[decisions.Number], number: decisions.Number
) -> tuple[float | None, float | None]:
    """Return the ends of a number's 95 % interval; (None, None) without one; see `read`."""
    ends = [
        find(numbers, f"{number.metric}{ending}", number.condition)
        for ending in ("_lower", "_upper")
    ]
    if ends[0] is not None and ends[1] is not None:
        return ends[0].value, ends[1].value
    if number.count is not None:
        return decisions.wilson_interval(number.count, number.n)
    return None, None


def _relative(value: float, clean: float) -> float:
    """Return value / clean; NaN if clean is 0."""
    return float(decisions.ratio(value, clean))


def _lost(clean: float, changed: float) -> float:
    """Return the share of the accuracy that is lost; NaN if `clean` is 0."""
    return 1 - _relative(changed, clean)


def _difference(first: float, second: float) -> float:
    """Return first - second."""
    return first - second


def _share(first: float, second: float) -> float:
    """Return first / (first + second); NaN if the sum is 0."""
    return _relative(first, first + second)


def _edge_part(diffused: float, shuffled: float) -> float:
    """Return the part of edges S_cd relative to REFERENCE; see cue_decomposition.shape_part."""
    return _share(diffused / REFERENCE[0], shuffled / REFERENCE[1])


def _iocclusion(
    train: float, test: float, hidden_train: float, hidden_test: float
) -> float:
    """Return the iOcclusion index; arguments: see iocclusion.index."""
    return float(iocclusion.index(train, test, hidden_train, hidden_test))


def _accuracy(dataset: str) -> SuiteNumber:
    """Return the record of the accuracy on an unchanged set."""
    return SuiteNumber("accuracy", dataset, "accuracy")


def _relative_accuracy(
    title: str, dataset: str, direction: int, source: str
) -> Measure:
    """Return the measure: accuracy on a set, relative to the accuracy on "test"."""
    return Measure(
        title,
        (_accuracy(dataset), _accuracy("test")),
        direction,
        needs="decisions",
        source=source,
        combine=_relative,
    )


def _suppression(
    title: str, first: str, second: str, direction: int, source: str
) -> Measure:
    """Return the measure: relative accuracy under one condition minus that under another."""
    records = tuple(
        SuiteNumber("suppression", "test", "relative_accuracy", condition)
        for condition in (first, second)
    )
    return Measure(
        title, records, direction, needs="images", source=source, combine=_difference
    )


_GEIRHOS = "Geirhos et al., ICLR 2019, https://arxiv.org/abs/1811.12231"
_BURGERT = "Burgert et al., NeurIPS 2025, https://arxiv.org/abs/2509.20234"
_KIM = "Kim et al. 2026, https://arxiv.org/abs/2603.10834"
_MARCU = "Marcu and Pruegel-Bennett 2021, https://arxiv.org/abs/2110.13968"
_GAVRIKOV = "Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509"
_SUBRAMANIAN = "Subramanian et al., NeurIPS 2023, https://arxiv.org/abs/2309.13190"
_DOSHI = "Doshi et al., NeurIPS 2025, https://arxiv.org/abs/2507.00493"
_WEN = "Wen et al. 2023, https://arxiv.org/abs/2310.07555"
_HEINERT = "Heinert et al. 2025, https://arxiv.org/abs/2503.12453"
_HERMANN = "Hermann and Lampinen, NeurIPS 2020, https://arxiv.org/abs/2006.12433"
_ISLAM = "Islam et al., ICLR 2021, https://arxiv.org/abs/2101.11604"
_CONTROL = "jbias, as a control of " + _GEIRHOS

MEASURES: Mapping[str, Measure] = types.MappingProxyType(
    {
        "shape_bias": Measure(
            "cue-conflict shape bias",
            (SuiteNumber("shape_bias", "cue_conflict", "shape_bias"),),
            1,
            needs="decisions",
            source=_GEIRHOS,
            is_share=True,
        ),
        "shape_bias_free": Measure(
            "cue-conflict shape bias, colour and size of neither",
            (SuiteNumber("shape_bias", "cue_conflict_free", "shape_bias"),),
            1,
            needs="decisions",
            source=_CONTROL,
            is_share=True,
        ),
        "accuracy_by_shape": Measure(
            "accuracy on cue conflicts, shape as the label",
            (SuiteNumber("shape_bias", "cue_conflict_free", "accuracy_shape"),),
            1,
            needs="decisions",
            source=_MARCU,
        ),
        "accuracy_by_texture": Measure(
            "accuracy on cue conflicts, texture as the label",
            (SuiteNumber("shape_bias", "cue_conflict_free", "accuracy_texture"),),
            -1,
            needs="decisions",
            source=_MARCU,
        ),
        "mrr_relative": Measure(
            "ranks of both cues on conflicts",
            (SuiteNumber("shape_bias", "cue_conflict_free", "mrr_relative"),),
            1,
            needs="probabilities",
            source=_KIM,
        ),
        "cue_rank": Measure(
            "ranks of the only cue, shape against texture",
            (SuiteNumber("accuracy", "single_cue", "mrr_relative"),),
            1,
            needs="probabilities",
            source=_KIM,
        ),
        "suppression": _suppression(
            "accuracy without texture minus without local shape",
            "bilateral 12",
            "shuffle 6",
            1,
            _BURGERT,
        ),
        "suppression_global": _suppression(
            "accuracy without texture minus without global shape",
            "bilateral 12",
            "shuffle 3",
            1,
            _BURGERT,
        ),
        "suppression_colour": Measure(
            "accuracy without colour, relative",
            (SuiteNumber("suppression", "test", "relative_accuracy", "grey 1"),),
            0,
            needs="images",
            source=_BURGERT,
        ),
        "low_frequency_bias": Measure(
            "accuracy on low frequencies, relative",
            (SuiteNumber("spectral", "test", "low_freq_bias"),),
            1,
            needs="images",
            source=_GAVRIKOV,
        ),
        "high_frequency_bias": Measure(
            "accuracy on high frequencies, relative",
            (SuiteNumber("spectral", "test", "high_freq_bias"),),
            -1,
            needs="images",
            source=_GAVRIKOV,
        ),
        "spectral_ratio": Measure(
            "high against low frequencies",
            (SuiteNumber("spectral", "test", "spectral_ratio"),),
            -1,
            needs="images",
            source="jbias, after " + _GAVRIKOV,
        ),
        "critical_bandwidth": Measure(
            "critical band: width in octaves",
            (SuiteNumber("critical_band", "test", "critical_band_bandwidth"),),
            -1,
            needs="images",
            source=_SUBRAMANIAN,
        ),
        "critical_centre": Measure(
            "critical band: centre in cycles per image",
            (SuiteNumber("critical_band", "test", "critical_band_center_frequency"),),
            0,
            needs="images",
            source=_SUBRAMANIAN,
        ),
        "grid_shuffle": Measure(
            "accuracy lost by shuffled 4 by 4 tiles",
            (
                SuiteNumber("grid_shuffle", "test", "accuracy"),
                SuiteNumber("grid_shuffle", "test", "accuracy", "4x4"),
            ),
            1,
            needs="images",
            source=_MARCU,
            combine=_lost,
        ),
        "grid_shuffle_di": Measure(
            "interference index of shuffled tiles, percent",
            (SuiteNumber("grid_shuffle", "test", "di_index", "4x4"),),
            0,
            needs="images",
            source=_MARCU,
        ),
        "cut_occlusion": Measure(
            "accuracy lost by a black rectangle",
            (
                SuiteNumber("cut_occlusion", "test", "accuracy"),
                SuiteNumber("cut_occlusion", "test", "accuracy", "black"),
            ),
            0,
            needs="images",
            source=_MARCU,
            combine=_lost,
        ),
        "iocclusion": Measure(
            "iOcclusion index, half of the pixels hidden",
            tuple(
                SuiteNumber("occlusion", dataset, "accuracy", condition)
                for condition in ("", "rectangle 0.5")
                for dataset in ("train", "valid")
            ),
            0,
            needs="images",
            source=_MARCU,
            combine=_iocclusion,
        ),
        "configural": Measure(
            "pairs of pictures of the same tiles, both right",
            (SuiteNumber("configural", "anagrams", "configural_substitute"),),
            1,
            needs="versions",
            source=_DOSHI,
        ),
        "order_dependence": Measure(
            "images right only with their tiles in order",
            (SuiteNumber("tile_order", "test", "order_dependence"),),
            1,
            needs="versions",
            source="jbias, after " + _DOSHI,
        ),
        "odd_one_out": Measure(
            "odd one out of swapped tiles, last layer",
            (SuiteNumber("odd_one_out", "test", "odd_one_out"),),
            1,
            needs="activations",
            source=_WEN,
        ),
        "edge_part": Measure(
            "edges against shuffled cells of texture",
            (
                SuiteNumber(
                    "cue_decomposition",
                    "test",
                    "accuracy",
                    cue_decomposition.DIFFUSED,
                ),
                SuiteNumber(
                    "cue_decomposition",
                    "test",
                    "accuracy",
                    cue_decomposition.SHUFFLED,
                ),
            ),
            1,
            needs="images",
            source=_HEINERT,
            combine=_edge_part,
        ),
        "decodability": Measure(
            "shape minus texture decoded from the last layer",
            (
                SuiteNumber(
                    "decoding", "cue_conflict_free", "shape_decodability", LAST_SITE
                ),
                SuiteNumber(
                    "decoding", "cue_conflict_free", "texture_decodability", LAST_SITE
                ),
            ),
            1,
            needs="activations",
            source=_HERMANN,
            combine=_difference,
        ),
        "dimensions": Measure(
            "neurons of shape against texture, last layer",
            (
                SuiteNumber(
                    "decoding", "cue_conflict_free", "shape_dimensions", LAST_SITE
                ),
                SuiteNumber(
                    "decoding", "cue_conflict_free", "texture_dimensions", LAST_SITE
                ),
            ),
            1,
            needs="activations",
            source=_ISLAM,
            combine=_share,
        ),
        "silhouette_accuracy": _relative_accuracy(
            "accuracy on silhouettes, relative", "silhouette", 1, _GEIRHOS
        ),
        "edge_accuracy": _relative_accuracy(
            "accuracy on outlines, relative", "edge", 1, _GEIRHOS
        ),
        "sketch_accuracy": _relative_accuracy(
            "accuracy on sketches, relative", "sketch", 1, "Wang et al., NeurIPS 2019"
        ),
        "texture_accuracy": _relative_accuracy(
            "accuracy on patches of texture, relative", "texture", -1, _GEIRHOS
        ),
        "stylized_accuracy": _relative_accuracy(
            "accuracy with foreign textures, relative", "stylized", 1, _GEIRHOS
        ),
        "recoloured_accuracy": _relative_accuracy(
            "accuracy in other colours, relative", "recoloured", 0, "jbias"
        ),
    }
)


def check_keys(where: str, keys: Sequence[str]) -> None:
    """Raise ValueError, beginning with `where`, for an unknown key of MEASURES."""
    for key in keys:
        errors.check_known(where, key, MEASURES, "measure")
