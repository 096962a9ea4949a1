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

from jbias.augment import imagenet_c, imagenet_c_bar, jpeg
from jbias.augment.imagenet_c import Image, Settings


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
            imagenet_c.draw_normals, imagenet_c.gaussian_noise
        ),
        "shot_noise": Corruption(imagenet_c.draw_uniforms, imagenet_c.shot_noise),
        "impulse_noise": Corruption(imagenet_c.draw_uniforms, imagenet_c.impulse_noise),
        "defocus_blur": Corruption(imagenet_c.draw_nothing, imagenet_c.defocus_blur),
        "glass_blur": Corruption(imagenet_c.draw_glass, imagenet_c.glass_blur),
        "motion_blur": Corruption(imagenet_c.draw_motion, imagenet_c.motion_blur),
        "zoom_blur": Corruption(imagenet_c.draw_nothing, imagenet_c.zoom_blur),
        "snow": Corruption(imagenet_c.draw_snow, imagenet_c.snow),
        "frost": Corruption(imagenet_c.draw_frost, imagenet_c.frost),
        "fog": Corruption(imagenet_c.draw_fog, imagenet_c.fog),
        "brightness": Corruption(imagenet_c.draw_nothing, imagenet_c.brightness),
        "contrast": Corruption(imagenet_c.draw_nothing, imagenet_c.contrast),
        "elastic_transform": Corruption(
            imagenet_c.draw_elastic, imagenet_c.elastic_transform
        ),
        "pixelate": Corruption(imagenet_c.draw_nothing, imagenet_c.pixelate),
        "jpeg_compression": Corruption(
            imagenet_c.draw_nothing, imagenet_c.jpeg_compression
        ),
        "speckle_noise": Corruption(imagenet_c.draw_normals, imagenet_c.speckle_noise),
        "gaussian_blur": Corruption(imagenet_c.draw_nothing, imagenet_c.gaussian_blur),
        "spatter": Corruption(imagenet_c.draw_spatter, imagenet_c.spatter),
        "saturate": Corruption(imagenet_c.draw_nothing, imagenet_c.saturate),
        "blue_noise_sample": Corruption(
            imagenet_c_bar.draw_phases, imagenet_c_bar.blue_noise_sample
        ),
        "brownish_noise": Corruption(
            imagenet_c_bar.draw_three_phases, imagenet_c_bar.brownish_noise
        ),
        "caustic_refraction": Corruption(
            imagenet_c_bar.draw_caustics, imagenet_c_bar.caustic_refraction
        ),
        "checkerboard_cutout": Corruption(
            imagenet_c_bar.draw_checkerboard, imagenet_c_bar.checkerboard_cutout
        ),
        "cocentric_sine_waves": Corruption(
            imagenet_c_bar.draw_rings, imagenet_c_bar.cocentric_sine_waves
        ),
        "inverse_sparkles": Corruption(
            imagenet_c_bar.draw_inverse_sparkles,
            imagenet_c_bar.inverse_sparkles,
        ),
        "perlin_noise": Corruption(
            imagenet_c_bar.draw_perlin, imagenet_c_bar.perlin_noise
        ),
        "plasma_noise": Corruption(
            imagenet_c_bar.draw_waves, imagenet_c_bar.plasma_noise
        ),
        "single_frequency_greyscale": Corruption(
            imagenet_c_bar.draw_single_frequency,
            imagenet_c_bar.single_frequency_greyscale,
        ),
        "sparkles": Corruption(imagenet_c_bar.draw_sparkles, imagenet_c_bar.sparkles),
    }
)


def corrupt_batch(
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
        x = imagenet_c.to_bytes(x) if quantise else x
        x = x if stored is None else jpeg.round_trip(x, stored)
        return x / 255

    return jax.vmap(one)(images, keys)
