"""Shifts the colour of each image along the principal axes of natural colours.

Source: Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep
Convolutional Neural Networks", NeurIPS 2012, section 4.1.
Reference code: https://github.com/clovaai/CutMix-PyTorch at 5ee7b8d, train.py, with the
axes of ImageNet that it has from fb.resnet.torch.
Deviation: the result is cut to [0, 1].
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jbias.augment import examples, options

# Deviations of ImageNet's colours along each axis, and the axes, as columns.
_VALUES = (0.2175, 0.0188, 0.0045)
_AXES = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)


def make(*, std: float = 0.1) -> Callable:
    """x' = x + sum_i a_i l_i e_i, a_i ~ N(0, std) for each image.

    e_i are the axes of ImageNet's colours and l_i the values that belong to them.
    """
    options.within("lighting", "std", std, 0, math.inf)
    scaled = np.array(_AXES, np.float32) * np.array(_VALUES, np.float32)

    def one(image, key):
        shift = jnp.sum(scaled * (std * jax.random.normal(key, (1, 3))), 1)
        return jnp.clip(image + shift[None, None], 0, 1)

    def apply(batch, key):
        if options.surely(std, 0):
            return batch
        image = batch["image"]
        keys = examples.keys(key, len(image))
        return {**batch, "image": jax.vmap(one)(image, keys)}

    return apply
