"""The probes by name; what each shows and counts stands in a file of its own."""

import types
from collections.abc import Callable, Mapping

from jbias.evals import (
    attacks,
    calibration,
    classes,
    corruptions,
    critical_band_stimuli,
    cue_conflict,
    cut_occlusion,
    decisions,
    decoding,
    grid,
    human,
    mixing,
    occlusion,
    plain,
    probe,
    receptive_field,
    spectral_filter,
)

# make(**options) -> Probe. The frame passes what it knows of a set where `make` takes it:
# `side`, the images' in pixels; `measures`, names in jbias.evals.MEASURES; `dataset`, the
# name of its split; `files`, the names of its files; `classes`, what is decided among.
PROBES: Mapping[str, Callable[..., probe.Probe]] = types.MappingProxyType(
    {
        "plain": plain.make,
        "shape_bias": cue_conflict.make,
        "human": human.make,
        "spectral": spectral_filter.make,
        "critical_band": critical_band_stimuli.make,
        "corruptions": corruptions.make,
        "pgd": attacks.make,
        "fgsm": attacks.make_fgsm,
        "calibration": calibration.make,
        "classes": classes.make,
        "mixing": mixing.make,
        "grid_shuffle": grid.make,
        "cut_occlusion": cut_occlusion.make,
        "occlusion": occlusion.make,
    }
)

# Measures of what happens inside a network: measure(net, variables, images, columns,
# **options) -> numbers, whose conditions are sites. They decide nothing. Images may lie in
# their files (loader.LazyImages): they have a shape, and are asked for some at a time.
INSIDE: Mapping[str, Callable[..., list[decisions.Number]]] = types.MappingProxyType(
    {"decoding": decoding.measure, "receptive_field": receptive_field.measure}
)
