"""The corruptions of ImageNet-C and ImageNet-C-bar on the device.

    settings = corruptions.settings("fog", 3, side=224)
    keys = random_numbers.keys(key, len(images))
    corrupt_batch(images, keys, "fog", settings)

The functions are those of data.corruptions, with the operations of corruption_operations;
images are the same as the host's except for the random draws (corruption_draws). An image
depends only on its key, the corruption's name and the settings. All severities of a corruption
have settings of the same shapes, so that they share a compiled program.

Deviation: computed in float32, on the host in float64.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import corruption_draws, corruption_operations, jpeg, replay
from jbias.data import corruptions
from jbias.data.corruptions.operations import Settings

Image = Float[Array, "h w 3"]  # 0 to 255.


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
    name: the corruption, a key of corruptions.KNOWN.
    settings: corruptions.settings(name, severity, side=...) for the images' side in pixels.
    quantise: True: clip the result and truncate it to multiples of 1/255, as in the
      published sets. False: the result may exceed [0, 1].
    stored: JPEG tables; the result is then encoded and decoded as JPEG, which needs
      quantise=True, else ValueError. ImageNet-C was stored with
      device_filters.jpeg(85). None: no JPEG.
    """
    if stored is not None and not quantise:
        raise ValueError("augment.corrupt: stored images are bytes; set quantise=True")
    draw, apply = corruption_draws.DRAWS[name], corruptions.KNOWN[name].apply
    settings = jax.tree.map(jnp.asarray, settings)

    def corrupt(image: Image, key: PRNGKeyArray) -> Image:
        x = jnp.round(jnp.clip(image, 0, 1) * 255)
        rng = replay.Replay(draw(key, len(x)))
        x = apply(x, rng, corruption_operations, **settings)
        x = corruption_operations.truncated(x) if quantise else x
        x = x if stored is None else jpeg.round_trip(x, stored)
        return x / 255

    return jax.vmap(corrupt)(images, keys)
