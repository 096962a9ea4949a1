"""All built-in probes by name, and one-line summaries of their numbers."""

import collections
import types
from collections.abc import Callable, Mapping, Sequence

from jbias import evals
from jbias.evals.activations import linear_decoding, odd_one_out, receptive_field
from jbias.measures import (
    accuracy,
    calibration,
    configural,
    counting,
    critical_band,
    cue_conflict,
    decisions,
    human,
)
from jbias.measures.decisions import Number
from jbias.stimuli import (
    attacks,
    corrupted_images,
    edge_diffusion,
    frequency_filters,
    grid_shuffle,
    mixed_images,
    occlusion,
    octave_noise,
    shown,
    suppression,
    tile_order,
)


def make_plain(*, measures: Sequence[str] = ("accuracy",)) -> counting.Counting:
    """Return the numbers of the given measures of decisions on unchanged images.

    measures: names of evals.MEASURES, or the user's own (evals.find_measure). ValueError for
    an unknown name.
    """
    functions = [evals.find_measure(name, "plain.measures") for name in measures]

    @decisions.per_condition
    def numbers(decided: decisions.Decisions) -> decisions.Numbers:
        """Return the numbers of all measures."""
        return [number for measure in functions for number in measure(decided)]

    ranked = cue_conflict.RANKED if "shape_bias" in measures else {}
    return counting.Counting(numbers, ranked=ranked)


# By probe, the metrics in its summary; without an entry: all.
_HEADLINES = {
    "spectral": ("low_freq_bias", "high_freq_bias"),
    "shape_bias": ("shape_bias", "accuracy_shape", "accuracy_texture"),
    "human": ("ood_accuracy", "error_consistency", "human_error_consistency"),
    "calibration": ("ece", "nll"),
    "configural": ("configural_substitute", "accuracy", "foil_rate"),
    "tile_order": ("order_dependence", "accuracy"),
    "odd_one_out": ("odd_one_out",),
    "cue_decomposition": ("cue_robustness", "accuracy"),
    "critical_band": tuple(
        f"critical_band_{kind}{metric}"
        for metric in critical_band.METRICS
        for kind in ("", "original_")
    ),
}
_MAX_ITEMS = 5


def summarize(probe_name: str, numbers: Sequence[Number]) -> str:
    """Return the main numbers of a measure as one line of text, such as "accuracy 0.75".

    probe_name: a key of PROBES or INSIDE, or the name of the user's own probe; selects the
    numbers. numbers: all numbers of the measure.

    By default these are up to five numbers with the condition "", separated by commas, only
    "agreement" and the metrics in _HEADLINES if the probe has an entry; "" if there are none. For
    attacks, grid_shuffle, cut_occlusion and suppression the text has accuracies by condition; for
    decoding, the best site of shape and of texture; for classes, the class with the lowest
    accuracy; for receptive_field, the last radius.
    """
    by_metric = collections.defaultdict(list)
    for number in numbers:
        by_metric[number.metric].append(number)
    if probe_name == "decoding":  # The site where each factor is decoded best.
        items = []
        for factor in ("shape", "texture"):
            best = max(by_metric[f"{factor}_decoding"], key=lambda number: number.value)
            items.append(f"{_item(factor, best)} at {best.condition}")
        return ", ".join(items)
    if probe_name == "classes":
        by_class = by_metric["class_accuracy"]
        lowest = min(by_class, key=lambda number: number.value)
        return f"lowest of {len(by_class)}: {_item(lowest.condition, lowest)}"
    if probe_name == "receptive_field":
        widest = by_metric["receptive_radius"][-1]
        return f"radius {_item(widest.condition, widest)} px"
    if probe_name in ("pgd", "fgsm"):
        shown = [number for number in numbers if number.metric.endswith("_accuracy")]
        return _items_by_condition(shown)
    if probe_name in ("grid_shuffle", "cut_occlusion", "suppression"):
        return _items_by_condition(by_metric["accuracy"][:_MAX_ITEMS])
    metrics = (*_HEADLINES.get(probe_name, by_metric), "agreement")
    headlines = [
        number
        for number in numbers
        if not number.condition and number.metric in metrics
    ]
    items = []
    for number in headlines[:_MAX_ITEMS]:
        metric = number.metric.removeprefix("critical_band_").removeprefix("original_")
        item = _item(metric.replace("_", " "), number)
        if number.metric == "shape_bias":  # May be of very few decisions.
            item += f" of {number.n} decisions"
        items.append(item)
    return ", ".join(items)


def _items_by_condition(numbers: Sequence[Number]) -> str:
    """Return numbers as text, "condition value, ..."; the metric replaces an empty condition."""
    return ", ".join(
        _item(number.condition or number.metric, number) for number in numbers
    )


def _item(name: str, number: Number) -> str:
    """Return "name value", with four significant digits; "name none" for an undefined value."""
    value = "none" if number.value is None else f"{number.value:.4g}"
    return f"{name} {value}"


# make(**options) -> Counting or Stimuli. Arguments that depend on the set are filled in by
# suites.Suite.make_probe if `make` has them: `side` of the images in pixels; `measures`, names
# in jbias.evals.MEASURES; `dataset`, the name of the split; `files`, the names of its files;
# `classes`, the decision classes.
PROBES: Mapping[str, Callable[..., counting.Counting | shown.Stimuli]] = (
    types.MappingProxyType(
        {
            "plain": make_plain,
            "shape_bias": cue_conflict.make,
            "human": human.make,
            "spectral": frequency_filters.make,
            "critical_band": octave_noise.make,
            "corruptions": corrupted_images.make,
            "pgd": attacks.make,
            "fgsm": attacks.make_fgsm,
            "calibration": calibration.make,
            "classes": accuracy.make_by_class,
            "mixing": mixed_images.make,
            "grid_shuffle": grid_shuffle.make,
            "cut_occlusion": occlusion.make_cut_occlusion,
            "occlusion": occlusion.make,
            "suppression": suppression.make,
            "configural": configural.make,
            "tile_order": tile_order.make,
            "cue_decomposition": edge_diffusion.make,
        }
    )
)

# Measures of activations inside a network: measure(net, variables, images, columns,
# **options) -> numbers, whose conditions are sites. They make no decisions. `images` may be a
# loader.LazyImages, which has a shape and reads files when it is indexed.
INSIDE: Mapping[str, Callable[..., decisions.Numbers]] = types.MappingProxyType(
    {
        "decoding": linear_decoding.measure,
        "receptive_field": receptive_field.measure,
        "odd_one_out": odd_one_out.measure,
    }
)
