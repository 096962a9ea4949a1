"""What happens to a batch on the device. AUGMENTS is the table of contents.

Each entry makes a function (batch, key) -> batch from its options.
"""

import types
from collections.abc import Callable, Mapping

from jbias.augment import (
    augmix,
    binary_targets,
    blur,
    colour_jitter,
    cutmix,
    flip,
    fmix,
    gaussian_noise,
    grayscale,
    half,
    lighting,
    mixup,
    one_of,
    pad_crop,
    pixmix,
    rand_augment,
    rand_conv,
    random_erasing,
    random_masks,
    random_resized_crop,
    replace,
    smooth_labels,
    standardise_as,
    stylize,
    views,
)

AUGMENTS: Mapping[str, Callable[..., Callable]] = types.MappingProxyType(
    {
        "augmix": augmix.make,
        "binary_targets": binary_targets.make,
        "blur": blur.make,
        "colour_jitter": colour_jitter.make,
        "cutmix": cutmix.make,
        "flip": flip.make,
        "fmix": fmix.make,
        "gaussian_noise": gaussian_noise.make,
        "grayscale": grayscale.make,
        "half": half.make,
        "lighting": lighting.make,
        "mixup": mixup.make,
        "one_of": one_of.make,
        "pad_crop": pad_crop.make,
        "pixmix": pixmix.make,
        "rand_augment": rand_augment.make,
        "rand_conv": rand_conv.make,
        "random_erasing": random_erasing.make,
        "random_masks": random_masks.make,
        "random_resized_crop": random_resized_crop.make,
        "replace": replace.make,
        "smooth_labels": smooth_labels.make,
        "standardise_as": standardise_as.make,
        "stylize": stylize.make,
        "views": views.make,
    }
)
