"""Transforms of batches on the device. AUGMENTS lists them by name.

Each entry is a function of the transform's options that returns apply(batch, key) -> batch,
and raises ValueError for an invalid option. A batch is a dict; `jbias.algos.base` lists its
entries. Transforms read and change "image" (b h w c) in [0, 1] and "target" (b k), soft
labels; "views" is the number of consecutive rows of one image, "other" the batch of a second
source. `key` is the random key of the step. `apply` may return the given batch, but does not
modify it.
"""

import types
from collections.abc import Callable, Mapping

from jbias.augment import (
    augmix,
    compose,
    cutmix,
    fmix,
    geometric,
    mixup,
    photometric,
    pixmix,
    rand_augment,
    rand_conv,
    stylize,
)

AUGMENTS: Mapping[str, Callable[..., Callable]] = types.MappingProxyType(
    {
        "augmix": augmix.make,
        "binary_targets": compose.binary_targets,
        "blur": photometric.blur,
        "colour_jitter": photometric.colour_jitter,
        "cutmix": cutmix.make,
        "flip": geometric.flip,
        "fmix": fmix.make,
        "gaussian_noise": photometric.gaussian_noise,
        "grayscale": photometric.grayscale,
        "half": compose.half,
        "lighting": photometric.lighting,
        "mixup": mixup.make,
        "one_of": compose.one_of,
        "pad_crop": geometric.pad_crop,
        "pixmix": pixmix.make,
        "rand_augment": rand_augment.make,
        "rand_conv": rand_conv.make,
        "random_erasing": geometric.random_erasing,
        "random_masks": fmix.random_masks,
        "random_resized_crop": geometric.random_resized_crop,
        "replace": compose.replace,
        "smooth_labels": compose.smooth_labels,
        "standardise_as": photometric.standardise_as,
        "stylize": stylize.make,
        "views": compose.views,
    }
)
