"""The probes by name, and a line about what each found; each probe has a file of its own."""

import types
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jbias import evals
from jbias.evals import (
    accuracy,
    adversarial,
    calibration,
    corruptions,
    critical_band,
    critical_band_stimuli,
    cue_conflict,
    decisions,
    decoding,
    grid_shuffle,
    human,
    mixing,
    occlusion,
    probe,
    receptive_field,
    spectral_filter,
)
from jbias.evals.decisions import Number


def make_plain(*, measures: Sequence[str] = ("accuracy",)) -> probe.Probe:
    """Shows the images themselves; `measures` are names in jbias.evals.MEASURES."""

    def numbers(found: Mapping[str, decisions.Decisions]) -> list[decisions.Number]:
        return [
            number._replace(condition=f"{condition} {number.condition}".strip())
            for condition, decided in found.items()
            for name in measures
            for number in evals.MEASURES[name](decided)
        ]

    return probe.Probe({"": np.float32(0)}, probe.identity, numbers)


# Of measures that tell more than is said: what comes first.
_HEADLINES = {
    "spectral": ("low_freq_bias", "high_freq_bias"),
    "shape_bias": ("shape_bias", "accuracy_shape", "accuracy_texture"),
    "human": ("ood_accuracy", "error_consistency", "human_error_consistency"),
    "calibration": ("ece", "nll"),
    "critical_band": tuple(
        f"critical_band_{kind}{metric}"
        for metric in critical_band.METRICS
        for kind in ("", "original_")
    ),
}
_MAX_ITEMS = 5


def summarize(shown: str, numbers: Sequence[Number]) -> str:
    """Says what a probe's numbers, or those of a measure inside a network, amount to."""
    if shown == "decoding":
        return ", ".join(_best(numbers, factor) for factor in ("shape", "texture"))
    if shown == "classes":
        each = [one for one in numbers if one.metric == "class_accuracy"]
        lowest = min(each, key=lambda one: one.value)
        return f"lowest of {len(each)}: {_item(lowest.condition, lowest.value)}"
    if shown == "receptive_field":
        wide = [one for one in numbers if one.metric == "receptive_radius"]
        return f"radius {_item(wide[-1].condition, wide[-1].value)} px"
    if shown in ("pgd", "fgsm", "grid_shuffle", "cut_occlusion"):
        if shown in ("pgd", "fgsm"):
            each = [one for one in numbers if one.metric.endswith("_accuracy")]
        else:
            each = [one for one in numbers if one.metric == "accuracy"][:_MAX_ITEMS]
        return ", ".join(_item(one.condition or one.metric, one.value) for one in each)
    said = _HEADLINES.get(shown)
    own = [
        one
        for one in numbers
        if not one.condition and (not said or one.metric in (*said, "agreement"))
    ]
    return ", ".join(
        _item(_name(one.metric), one.value)
        # At chance level next to nothing is left of the images.
        + (f" of {one.n} decisions" if one.metric == "shape_bias" else "")
        for one in own[:_MAX_ITEMS]
    )


def _best(numbers: Sequence[Number], factor: str) -> str:
    """The site where a factor is decoded best."""
    sites = [one for one in numbers if one.metric == f"{factor}_decoding"]
    best = max(sites, key=lambda one: one.value)
    return f"{_item(factor, best.value)} at {best.condition}"


def _name(metric: str) -> str:
    short = metric.removeprefix("critical_band_").removeprefix("original_")
    return short.replace("_", " ")


def _item(name: str, value: float | None) -> str:
    return f"{name} " + ("none" if value is None else f"{value:.4g}")


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
    }
)

# Measures of what happens inside a network: measure(net, variables, images, columns,
# **options) -> numbers, whose conditions are sites. They decide nothing. Images may lie in
# their files (loader.LazyImages): they have a shape, and are asked for some at a time.
INSIDE: Mapping[str, Callable[..., list[decisions.Number]]] = types.MappingProxyType(
    {"decoding": decoding.measure, "receptive_field": receptive_field.measure}
)
