"""The table of the measures that a suite names by `probe`, one row each.

A row has the type and the maker of a measure, its main numbers for the one-line summary, and its
entry on the page of measured networks. Importing this module does not import JAX.
"""

import collections
import pkgutil
import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jbias.evals.activations import inside
from jbias.measures import counting, critical_band
from jbias.measures.decisions import UNANSWERED, Number
from jbias.stimuli import shown

_MAX_ITEMS = 5


class PageEntry(NamedTuple):
    """The place of measures on the page of measured networks (`jbias report measured`).

    Measures with the same entry share a section of the page.

    name, title: the section's name in links, and its heading.
    caption, columns: for a section with one table, which has a row per network, set and rule that
      turned logits into decisions: its caption, and its columns, which are metrics without a
      condition, in the form of `report.tables.columns`, such as "ece:.4 nll:.3".
    blocks: for other sections, instead of columns: "module:function". The function is
      blocks(page) -> the sentences, tables and figures of the section; page:
      report.pages.networks.network_blocks.NetworksPage.
    may_be_missing: whether the page says nothing if the section's measures were not run.
    """

    name: str
    title: str
    caption: str = ""
    columns: str = ""
    blocks: str = ""
    may_be_missing: bool = False


class Row(NamedTuple):
    """A measure that suites can name.

    kind: the type of the measure: counting.Counting, shown.Stimuli or inside.Inside.
    maker: "module:function". The function is make(**options) -> the measure; for
      inside.Inside it is measure(net, variables, images, columns, **options) -> numbers.
      Arguments that depend on the set are filled in by suites.Suite.make_probe if the function
      has them: `side` of the images in pixels; `measures`, names in jbias.evals.MEASURES;
      `dataset`, the name of the split; `files`, the names of its files; `classes`, the decision
      classes.
    needs_probabilities: for counting.Counting, whether decided classes are not enough; the value
      of `graded` of the measure that the maker returns.
    page: the entry on the page of measured networks; None: the page does not show it.
    in_default_suite: whether the suite of biases (configs/suites/biases.py), which `jbias measure`
      runs, has the measure with its default options on the sets of labelled images: on whole sets
      for counting.Counting, otherwise on the number of images that the suite's argument `images`
      gives. Measures with other sets or options are written in the suite.
    headlines: the metrics in the summary; (): all.
    summarize: numbers -> the summary, instead of `headlines`.
    """

    kind: type[counting.Counting | shown.Stimuli | inside.Inside]
    maker: str
    page: PageEntry | None = None
    headlines: tuple[str, ...] = ()
    summarize: Callable[[Sequence[Number]], str] | None = None
    needs_probabilities: bool = False
    in_default_suite: bool = False

    @property
    def needs_classes_only(self) -> bool:
        """True for a measure of decided classes, which a table of decisions has."""
        return self.kind is counting.Counting and not self.needs_probabilities

    def load(self) -> Callable:
        """Return the maker, and import its module."""
        return pkgutil.resolve_name(self.maker)


def summarize(probe_name: str, numbers: Sequence[Number]) -> str:
    """Return the main numbers of a measure as one line of text, such as "accuracy 0.75".

    probe_name: a key of PROBES, or the name of the user's own probe. numbers: all numbers of the
    measure.

    By default these are up to five numbers with the condition "", separated by commas, only
    "agreement" and the metrics in `Row.headlines` if the row has any; "" if there are none. If
    images are unanswered, the text ends with their number, such as "; 126 of 1,200 unanswered".
    """
    row = PROBES.get(probe_name)
    unanswered = [
        f"; {number.count:,} of {number.n:,} unanswered"
        for number in numbers
        if number.metric == UNANSWERED and not number.condition
    ]
    answered = [number for number in numbers if number.metric != UNANSWERED]
    if row and row.summarize:
        text = row.summarize(answered)
    else:
        text = _headlines(row, answered)
    return text + "".join(unanswered)


def _headlines(row: Row | None, numbers: Sequence[Number]) -> str:
    """Return up to five numbers as text; see `summarize`."""
    metrics = {*row.headlines, "agreement"} if row and row.headlines else None
    headlines = [
        number
        for number in numbers
        if not number.condition and (metrics is None or number.metric in metrics)
    ]
    items = []
    for number in headlines[:_MAX_ITEMS]:
        metric = number.metric.removeprefix("critical_band_").removeprefix("original_")
        item = _item(metric.replace("_", " "), number)
        if number.metric == "shape_bias":  # May be of very few decisions.
            item += f" of {number.n} decisions"
        items.append(item)
    return ", ".join(items)


def _by_metric(numbers: Sequence[Number]) -> dict[str, list[Number]]:
    """Return the numbers by metric."""
    by_metric = collections.defaultdict(list)
    for number in numbers:
        by_metric[number.metric].append(number)
    return by_metric


def _best_sites(numbers: Sequence[Number]) -> str:
    """Return the sites where shape and texture are decoded best, as text.

    For example "shape 0.9 at stage3, texture 0.7 at stage1".
    """
    by_metric, items = _by_metric(numbers), []
    for factor in ("shape", "texture"):
        best = max(by_metric[f"{factor}_decoding"], key=lambda number: number.value)
        items.append(f"{_item(factor, best)} at {best.condition}")
    return ", ".join(items)


def _lowest_class(numbers: Sequence[Number]) -> str:
    """Return the class with the lowest accuracy as text, such as "lowest of 16: cat 0.34"."""
    by_class = _by_metric(numbers)["class_accuracy"]
    lowest = min(by_class, key=lambda number: number.value)
    return f"lowest of {len(by_class)}: {_item(lowest.condition, lowest)}"


def _widest_field(numbers: Sequence[Number]) -> str:
    """Return the last radius of the receptive fields as text, such as "radius stage4 90% 35.2 px".

    The last radius is that of the last site and of the last share of the field.
    """
    widest = _by_metric(numbers)["receptive_radius"][-1]
    return f"radius {_item(widest.condition, widest)} px"


def _attacked(numbers: Sequence[Number]) -> str:
    """Return the accuracy under attack by budget as text, such as "linf 0.5/255 0.31, ..."."""
    shown_numbers = [
        number for number in numbers if number.metric.endswith("_accuracy")
    ]
    return _items_by_condition(shown_numbers)


def _by_condition(numbers: Sequence[Number]) -> str:
    """Return the first accuracies by condition as text, such as "accuracy 0.75, 4x4 0.31".

    At most `_MAX_ITEMS` accuracies. "accuracy" is the name of the accuracy without a condition.
    """
    return _items_by_condition(_by_metric(numbers)["accuracy"][:_MAX_ITEMS])


def _items_by_condition(numbers: Sequence[Number]) -> str:
    """Return numbers as the text "condition value, ..."; the metric replaces an empty condition."""
    return ", ".join(
        _item(number.condition or number.metric, number) for number in numbers
    )


def _item(name: str, number: Number) -> str:
    """Return "name value", with four significant digits; "name none" for an undefined value."""
    value = "none" if number.value is None else f"{number.value:.4g}"
    return f"{name} {value}"


_ORDER_OF_PARTS = PageEntry(
    "configural",
    "Shape by the order of parts",
    blocks="jbias.report.pages.networks.shape_sections:order_of_parts",
)
_ATTACKS = PageEntry(
    "attacks",
    "Attacks",
    blocks="jbias.report.pages.networks.robustness_sections:attacks",
)
# In the order of the sections of the page.
PROBES: Mapping[str, Row] = types.MappingProxyType(
    {
        "plain": Row(
            counting.Counting,
            "jbias.evals.plain:make",
            PageEntry(
                "accuracy",
                "Accuracy",
                blocks="jbias.report.pages.networks.accuracy_sections:accuracy_by_set",
            ),
        ),
        "shape_bias": Row(
            counting.Counting,
            "jbias.measures.cue_conflict:make",
            PageEntry(
                "shape_bias",
                "Shape or texture",
                blocks="jbias.report.pages.networks.shape_sections:shape_bias",
            ),
            headlines=("shape_bias", "accuracy_shape", "accuracy_texture"),
        ),
        "configural": Row(
            counting.Counting,
            "jbias.measures.configural:make",
            _ORDER_OF_PARTS,
            headlines=("configural_substitute", "accuracy", "foil_rate"),
        ),
        "tile_order": Row(
            shown.Stimuli,
            "jbias.stimuli.tile_order:make",
            _ORDER_OF_PARTS,
            headlines=("order_dependence", "accuracy"),
        ),
        "cue_decomposition": Row(
            shown.Stimuli,
            "jbias.stimuli.edge_diffusion:make",
            PageEntry(
                "cue_decomposition",
                "Edges or texture",
                blocks="jbias.report.pages.networks.shape_sections:edges_or_texture",
            ),
            headlines=("cue_robustness", "accuracy"),
        ),
        "odd_one_out": Row(
            inside.Inside,
            "jbias.evals.activations.odd_one_out:measure",
            PageEntry(
                "odd_one_out",
                "Odd one out by layer",
                blocks="jbias.report.pages.networks.shape_sections:odd_one_out",
            ),
            headlines=("odd_one_out",),
        ),
        "human": Row(
            counting.Counting,
            "jbias.measures.human:make",
            PageEntry(
                "people",
                "Like people",
                blocks="jbias.report.pages.networks.shape_sections:people",
            ),
            headlines=("ood_accuracy", "error_consistency", "human_error_consistency"),
        ),
        "spectral": Row(
            shown.Stimuli,
            "jbias.stimuli.frequency_filters:make",
            PageEntry(
                "spectral",
                "Low and high frequencies",
                blocks="jbias.report.pages.networks.frequency_sections:frequencies",
            ),
            headlines=("low_freq_bias", "high_freq_bias"),
            in_default_suite=True,
        ),
        "suppression": Row(
            shown.Stimuli,
            "jbias.stimuli.suppression:make",
            # Not part of the default suites.
            PageEntry(
                "suppression",
                "Without shape, texture or colour",
                blocks="jbias.report.pages.networks.shape_sections:suppressed_cues",
                may_be_missing=True,
            ),
            summarize=_by_condition,
        ),
        "critical_band": Row(
            shown.Stimuli,
            "jbias.stimuli.octave_noise:make",
            PageEntry(
                "critical_band",
                "Critical band",
                blocks="jbias.report.pages.networks.frequency_sections:noise_band",
            ),
            headlines=tuple(
                f"critical_band_{variant}{metric}"
                for metric in critical_band.METRICS
                for variant in ("", "original_")
            ),
            in_default_suite=True,
        ),
        "corruptions": Row(
            shown.Stimuli,
            "jbias.stimuli.corrupted_images:make",
            PageEntry(
                "corruptions",
                "Corruptions",
                blocks="jbias.report.pages.networks.robustness_sections:corruptions",
            ),
        ),
        "pgd": Row(
            shown.Stimuli,
            "jbias.stimuli.attacks:make",
            _ATTACKS,
            summarize=_attacked,
        ),
        "fgsm": Row(
            shown.Stimuli,
            "jbias.stimuli.attacks:make_fgsm",
            _ATTACKS,
            summarize=_attacked,
        ),
        "calibration": Row(
            counting.Counting,
            "jbias.measures.calibration:make",
            PageEntry(
                "calibration",
                "Calibration",
                blocks="jbias.report.pages.networks.accuracy_sections:calibration_errors",
            ),
            headlines=("ece", "nll"),
            needs_probabilities=True,
            in_default_suite=True,
        ),
        "classes": Row(
            counting.Counting,
            "jbias.measures.accuracy:make_by_class",
            PageEntry(
                "classes",
                "Classes",
                blocks="jbias.report.pages.networks.accuracy_sections:accuracy_by_class",
            ),
            summarize=_lowest_class,
            in_default_suite=True,
        ),
        "decoding": Row(
            inside.Inside,
            "jbias.evals.activations.linear_decoding:measure",
            PageEntry(
                "decoding",
                "Shape and texture by layer",
                blocks="jbias.report.pages.networks.shape_sections:decoded_cues",
            ),
            summarize=_best_sites,
        ),
        "receptive_field": Row(
            inside.Inside,
            "jbias.evals.activations.receptive_field:measure",
            PageEntry(
                "receptive_field",
                "Effective receptive fields",
                blocks="jbias.report.pages.networks.receptive_field_section:receptive_fields",
            ),
            summarize=_widest_field,
        ),
        "mixing": Row(shown.Stimuli, "jbias.stimuli.mixed_images:make"),
        "grid_shuffle": Row(
            shown.Stimuli,
            "jbias.stimuli.grid_shuffle:make",
            summarize=_by_condition,
        ),
        "cut_occlusion": Row(
            shown.Stimuli,
            "jbias.stimuli.occlusion:make_cut_occlusion",
            summarize=_by_condition,
        ),
        "occlusion": Row(shown.Stimuli, "jbias.stimuli.occlusion:make"),
    }
)


def page_entries(
    probes: Mapping[str, Row] = PROBES,
) -> dict[PageEntry, tuple[str, ...]]:
    """Return the entries of the page in order, each with the names of its measures."""
    names: dict[PageEntry, tuple[str, ...]] = {}
    for name, row in probes.items():
        if row.page:
            names[row.page] = (*names.get(row.page, ()), name)
    return names
