"""The corruptions of ImageNet-C and ImageNet-C-bar on the device: CORRUPTIONS by name.

    settings = corruptions.settings("fog", 3, side=224)
    keys = sampling.keys(key, len(images))
    corrupt_batch(images, keys, "fog", settings)

data.corruptions documents the corruptions; images here are the same except for the random
draws. An image depends only on its key, the corruption's name and the settings. `draw`
returns random numbers, mostly U(0, 1) or N(0, 1); `apply` computes the image from bytes, the
random numbers and the settings. All severities of a corruption have settings of the same
shapes, so that they share a compiled program.

Sources: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261; Mintun,
Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
Deviation: computed in float32, on the host in float64.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import imagenet_c as c
from jbias.augment import imagenet_c_bar, jpeg, replay
from jbias.augment.imagenet_c import Image, Settings
from jbias.data.corruptions import kernels as host


class DeviceCorruption(NamedTuple):
    """A corruption of one image on the device.

    draw: (key, side) -> tuple of random numbers; their shapes depend only on the
      image's side in pixels.
    apply: (image, drawn, settings) -> image, with values from 0 to 255; drawn: the numbers
      from `draw`. The input has whole numbers; the result is not rounded or clipped.
    """

    draw: Callable[[PRNGKeyArray, int], tuple]
    apply: Callable[[Image, tuple, Settings], Image]


# Pairs of (draw, apply); the name of `apply` is the name of the corruption.
_PAIRS = (
    (c.draw_normals, replay.from_host(host.gaussian_noise)),
    (c.draw_uniforms, c.shot_noise),
    (c.draw_uniforms, replay.from_host(host.impulse_noise)),
    (c.draw_nothing, c.defocus_blur),
    (c.draw_glass, c.glass_blur),
    (c.draw_numbers(1), c.motion_blur),  # For the direction.
    (c.draw_nothing, c.zoom_blur),
    (c.draw_snow, c.snow),
    (c.draw_numbers(3), c.frost),  # The photograph, and the crop's top and left.
    (c.draw_fog, replay.from_host(host.fog)),
    (c.draw_nothing, replay.from_host(host.brightness)),
    (c.draw_nothing, replay.from_host(host.contrast)),
    (c.draw_elastic, c.elastic_transform),
    (c.draw_nothing, c.pixelate),
    (c.draw_nothing, c.jpeg_compression),
    (c.draw_normals, replay.from_host(host.speckle_noise)),
    (c.draw_nothing, c.gaussian_blur),
    (c.draw_each(jax.random.normal), c.spatter),
    (c.draw_nothing, replay.from_host(host.saturate)),
    *imagenet_c_bar.PAIRS,
)
CORRUPTIONS = {apply.__name__: DeviceCorruption(draw, apply) for draw, apply in _PAIRS}


def corrupt_batch(
    images: Float[Array, "b h w 3"],
    keys: PRNGKeyArray,
    name: str,
    settings: Settings,
    *,
    quantise: bool = True,
    stored: Int[Array, "2 8 8"] | None = None,
) -> Float[Array, "b h w 3"]:
    """Return the images after a corruption, in [0, 1].

    images: square, in [0, 1]; rounded to bytes first, because the published sets were made
      from bytes.
    keys: one for each image.
    name: the corruption, a key of CORRUPTIONS.
    settings: data.corruptions.settings(name, severity, side) for the images' side in pixels.
    quantise: True: clip the result and truncate it to multiples of 1/255, as in the
      published sets. False: the result may exceed [0, 1].
    stored: JPEG tables; the result is then encoded and decoded as JPEG, which needs
      quantise=True, else ValueError. ImageNet-C was stored with
      corruptions.quantisation_tables(85). None: no JPEG.
    """
    if stored is not None and not quantise:
        raise ValueError("augment.corrupt: stored images are bytes; set quantise=True")
    draw, apply = CORRUPTIONS[name]
    settings = jax.tree.map(jnp.asarray, settings)

    def corrupt(image: Image, key: PRNGKeyArray) -> Image:
        x = jnp.round(jnp.clip(image, 0, 1) * 255)
        x = apply(x, draw(key, len(x)), settings)
        x = c.to_bytes(x) if quantise else x
        x = x if stored is None else jpeg.round_trip(x, stored)
        return x / 255

    return jax.vmap(corrupt)(images, keys)
