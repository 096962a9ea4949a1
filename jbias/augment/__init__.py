"""What happens to a batch on the device. AUGMENTS is the table of contents.

Each entry makes a function (batch, key) -> batch from its options.
"""

import types
from collections.abc import Callable, Mapping

from jbias.augment import flip, pad_crop, random_resized_crop

AUGMENTS: Mapping[str, Callable[..., Callable]] = types.MappingProxyType(
    {
        "flip": flip.make,
        "pad_crop": pad_crop.make,
        "random_resized_crop": random_resized_crop.make,
    }
)
