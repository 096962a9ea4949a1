"""The probes by name, and a line about what each found; each probe has a file of its own."""

import collections
import types
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jbias import evals
from jbias.evals import (
    accuracy,
    adversarial,
    calibration,
    configural,
    corruptions,
    critical_band,
    critical_band_stimuli,
    cue_conflict,
    decisions,
    edge_diffusion,
    grid_shuffle,
    human,
    linear_decoding,
    mixing,
    occlusion,
    odd_one_out,
    probe,
    receptive_field,
    spectral_filter,
    suppression_stimuli,
)
from jbias.evals.decisions import Number


def make_plain(*, measures: Sequence[str] = ("accuracy",)) -> probe.Probe:
    """Shows the images themselves; `measures` are names that evals.find_measure knows."""
    counts = [evals.find_measure(name, "plain.measures") for name in measures]

    @decisions.each
    def numbers(decided: decisions.Decisions) -> decisions.Numbers:
        return [one for count in counts for one in count(decided)]

    ranked = cue_conflict.RANKED if "shape_bias" in measures else {}
    return probe.Probe({"": np.float32(0)}, probe.identity, numbers, ranked=ranked)


# Of measures that tell more than is said: what comes first.
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


def summarize(shown: str, numbers: Sequence[Number]) -> str:
    """Says what a probe's numbers, or those of a measure inside a network, amount to."""
    by_metric = collections.defaultdict(list)
    for one in numbers:
        by_metric[one.metric].append(one)
    if shown == "decoding":  # The site where each factor is decoded best.
        sites = {k: by_metric[f"{k}_decoding"] for k in ("shape", "texture")}
        best = {k: max(each, key=lambda x: x.value) for k, each in sites.items()}
        return ", ".join(f"{_item(k, x)} at {x.condition}" for k, x in best.items())
    if shown == "classes":
        lowest = min(each := by_metric["class_accuracy"], key=lambda x: x.value)
        return f"lowest of {len(each)}: {_item(lowest.condition, lowest)}"
    if shown == "receptive_field":
        *_, widest = by_metric["receptive_radius"]
        return f"radius {_item(widest.condition, widest)} px"
    if shown in ("pgd", "fgsm", "grid_shuffle", "cut_occlusion", "suppression"):
        each = by_metric["accuracy"][:_MAX_ITEMS]
        if shown in ("pgd", "fgsm"):
            each = [one for one in numbers if one.metric.endswith("_accuracy")]
        return ", ".join(_item(one.condition or one.metric, one) for one in each)
    said = (*_HEADLINES.get(shown, by_metric), "agreement")
    own = [one for one in numbers if not one.condition and one.metric in said]
    items = []
    for one in own[:_MAX_ITEMS]:
        short = one.metric.removeprefix("critical_band_").removeprefix("original_")
        items.append(_item(short.replace("_", " "), one))
        if one.metric == "shape_bias":  # At chance level next to nothing is left.
            items[-1] += f" of {one.n} decisions"
    return ", ".join(items)


def _item(name: str, one: Number) -> str:
    return f"{name} " + ("none" if one.value is None else f"{one.value:.4g}")


# make(**options) -> Probe. The frame passes what it knows of a set where `make` takes it:
# `side`, the images' in pixels; `measures`, names in jbias.evals.MEASURES; `dataset`, the
# name of its split; `files`, the names of its files; `classes`, what is decided among.
PROBES: Mapping[str, Callable[..., probe.Probe]] = types.MappingProxyType(
    {
        "plain": make_plain,
        "shape_bias": cue_conflict.make,
        "human": human.make,
        "spectral": spectral_filter.make,
        "critical_band": critical_band_stimuli.make,
        "corruptions": corruptions.make,
        "pgd": adversarial.make,
        "fgsm": adversarial.make_fgsm,
        "calibration": calibration.make,
        "classes": accuracy.make_by_class,
        "mixing": mixing.make,
        "grid_shuffle": grid_shuffle.make,
        "cut_occlusion": occlusion.make_cut_occlusion,
        "occlusion": occlusion.make,
        "suppression": suppression_stimuli.make,
        "configural": configural.make,
        "tile_order": configural.make_tile_order,
        "cue_decomposition": edge_diffusion.make,
    }
)

# Measures of what happens inside a network: measure(net, variables, images, columns,
# **options) -> numbers, whose conditions are sites. They decide nothing. Images may lie in
# their files (loader.LazyImages): they have a shape, and are asked for some at a time.
INSIDE: Mapping[str, Callable[..., decisions.Numbers]] = types.MappingProxyType(
    {
        "decoding": linear_decoding.measure,
        "receptive_field": receptive_field.measure,
        "odd_one_out": odd_one_out.measure,
    }
)
