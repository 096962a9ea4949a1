"""The corruptions of ImageNet-C and ImageNet-C-bar on the device: CORRUPTIONS, by name.

    settings = corruption_operators.settings("fog", 3, side=224)
    keys = sampling.keys(key, len(images))
    corrupt_batch(images, keys, "fog", settings)

What each does is said in data.corruptions, whose images these are, draws aside: an image
depends on its key, name and settings alone. `draw` takes numbers from a key, mostly of
U(0, 1) or N(0, 1); `apply` is a function of bytes, these and the settings. Severities of
a corruption have settings of the same shapes, so that they share a compiled program.

Sources: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261; Mintun,
Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
Deviation: computed in float32, where the host computes in float64.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import (
    corrupt_arrays,
    corrupt_bar_fields,
    corrupt_bar_shapes,
    corrupt_blur,
    corrupt_digital,
    corrupt_jpeg,
    corrupt_noise,
    corrupt_spatter,
    corrupt_weather,
)
from jbias.augment.corrupt_arrays import Image, Settings


class Corruption(NamedTuple):
    """A corruption of one image.

    draw: (key, side) -> all that is random, of shapes that only the side decides.
    apply: (image, drawn, settings) -> image; values on the scale of bytes, whole before
      and not yet cut to bytes after.
    """

    draw: Callable[[PRNGKeyArray, int], tuple]
    apply: Callable[[Image, tuple, Settings], Image]


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "gaussian_noise": Corruption(
            corrupt_noise.normals, corrupt_noise.gaussian_noise
        ),
        "shot_noise": Corruption(corrupt_noise.uniforms, corrupt_noise.shot_noise),
        "impulse_noise": Corruption(
            corrupt_noise.uniforms, corrupt_noise.impulse_noise
        ),
        "defocus_blur": Corruption(corrupt_blur.nothing, corrupt_blur.defocus_blur),
        "glass_blur": Corruption(corrupt_blur.draw_glass, corrupt_blur.glass_blur),
        "motion_blur": Corruption(corrupt_blur.draw_motion, corrupt_blur.motion_blur),
        "zoom_blur": Corruption(corrupt_blur.nothing, corrupt_blur.zoom_blur),
        "snow": Corruption(corrupt_weather.draw_snow, corrupt_weather.snow),
        "frost": Corruption(corrupt_weather.draw_frost, corrupt_weather.frost),
        "fog": Corruption(corrupt_weather.draw_fog, corrupt_weather.fog),
        "brightness": Corruption(corrupt_blur.nothing, corrupt_digital.brightness),
        "contrast": Corruption(corrupt_blur.nothing, corrupt_digital.contrast),
        "elastic_transform": Corruption(
            corrupt_digital.draw_elastic, corrupt_digital.elastic_transform
        ),
        "pixelate": Corruption(corrupt_blur.nothing, corrupt_digital.pixelate),
        "jpeg_compression": Corruption(
            corrupt_blur.nothing, corrupt_digital.jpeg_compression
        ),
        "speckle_noise": Corruption(corrupt_noise.normals, corrupt_noise.speckle_noise),
        "gaussian_blur": Corruption(corrupt_blur.nothing, corrupt_blur.gaussian_blur),
        "spatter": Corruption(corrupt_spatter.draw, corrupt_spatter.spatter),
        "saturate": Corruption(corrupt_blur.nothing, corrupt_digital.saturate),
        "blue_noise_sample": Corruption(
            corrupt_bar_fields.draw_phases, corrupt_bar_fields.blue_noise_sample
        ),
        "brownish_noise": Corruption(
            corrupt_bar_fields.draw_three_phases, corrupt_bar_fields.brownish_noise
        ),
        "caustic_refraction": Corruption(
            corrupt_bar_shapes.draw_caustics, corrupt_bar_shapes.caustic_refraction
        ),
        "checkerboard_cutout": Corruption(
            corrupt_bar_shapes.draw_checkerboard, corrupt_bar_shapes.checkerboard_cutout
        ),
        "cocentric_sine_waves": Corruption(
            corrupt_bar_fields.draw_rings, corrupt_bar_fields.cocentric_sine_waves
        ),
        "inverse_sparkles": Corruption(
            corrupt_bar_shapes.draw_inverse_sparkles,
            corrupt_bar_shapes.inverse_sparkles,
        ),
        "perlin_noise": Corruption(
            corrupt_bar_fields.draw_perlin, corrupt_bar_fields.perlin_noise
        ),
        "plasma_noise": Corruption(
            corrupt_bar_fields.draw_waves, corrupt_bar_fields.plasma_noise
        ),
        "single_frequency_greyscale": Corruption(
            corrupt_bar_fields.draw_single_frequency,
            corrupt_bar_fields.single_frequency_greyscale,
        ),
        "sparkles": Corruption(
            corrupt_bar_shapes.draw_sparkles, corrupt_bar_shapes.sparkles
        ),
    }
)


def corrupted(
    images: Float[Array, "b h w 3"],
    keys: PRNGKeyArray,
    name: str,
    settings: Settings,
    *,
    quantise: bool = True,
    stored: Int[Array, "2 8 8"] | None = None,
) -> Float[Array, "b h w 3"]:
    """Corrupts images in [0, 1], each by its own key.

    Images are rounded to bytes first, as what is published was made of bytes.

    settings: of data.corruption_operators, for this name, a severity and the images' side.
    quantise: clips and cuts to bytes, as published sets are; else values are neither.
    stored: tables of the JPEG that images go through after that, as those of ImageNet-C
      did: corruption_operators.quantisation_tables(85).
    """
    if stored is not None and not quantise:
        raise ValueError("augment.corrupt: stored images are bytes; set quantise=True")
    draw, apply = CORRUPTIONS[name]
    settings = jax.tree.map(jnp.asarray, settings)

    def one(image: Image, key: PRNGKeyArray) -> Image:
        x = jnp.round(jnp.clip(image, 0, 1) * 255)
        x = apply(x, draw(key, len(x)), settings)
        x = corrupt_arrays.cut(x) if quantise else x
        x = x if stored is None else corrupt_jpeg.coded(x, stored)
        return x / 255

    return jax.vmap(one)(images, keys)
