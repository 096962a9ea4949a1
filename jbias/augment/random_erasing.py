"""Random erasing: hides a box of each image.

Source: Zhong et al., AAAI 2020, https://arxiv.org/abs/1708.04896; as in torchvision.
Deviation: torchvision and timm erase after normalisation, where 0 is the mean colour of
the training set and noise is N(0, 1). Here images are in [0, 1]: the default `fill` is
that mean colour, and noise is uniform, as in the paper.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray

from jbias.augment import examples, options

_TRIES = 10


def make(
    *,
    p: float = 0.5,
    area: tuple[float, float] = (0.02, 1 / 3),
    aspect: tuple[float, float] = (0.3, 3.3),
    fill: str | float | Sequence[float] = (0.485, 0.456, 0.406),
) -> Callable:
    """Fills a box of each image, with chance p, with a grey, a colour or "random".

    The box's share of the image is uniform in `area`, its height over width log-uniform
    in `aspect`, its place uniform inside the image. The first of ten draws that is
    smaller than the image both ways counts; if none is, the image stays.
    """
    options.within("random_erasing", "p", p, 0, 1)
    if isinstance(fill, str):
        options.one_of("random_erasing", "fill", fill, ("random",))
    else:
        for value in np.ravel(fill).tolist():
            options.within("random_erasing", "fill", value, 0, 1)

    def erased(x, k):
        k_gate, k_box, k_fill = jax.random.split(k, 3)
        height, width, channels = x.shape
        inside = box(k_box, height, width, area=area, aspect=aspect)
        inside &= jax.random.bernoulli(k_gate, p)
        if fill == "random":
            filled = jax.random.uniform(k_fill, x.shape, x.dtype)
        else:
            filled = jnp.broadcast_to(jnp.asarray(fill, x.dtype), channels)
            filled = filled.reshape(1, 1, channels)
        return jnp.where(inside[:, :, None], filled, x)

    def apply(batch, key):
        if options.surely(p, 0):
            return batch
        image = batch["image"]
        keys = examples.keys(key, image.shape[0])
        return {**batch, "image": jax.vmap(erased)(image, keys)}

    return apply


def box(
    key: PRNGKeyArray,
    height: int,
    width: int,
    *,
    area: tuple[float, float],
    aspect: tuple[float, float],
) -> Bool[Array, "h w"]:
    """Draws a box and marks its pixels; none where no draw fits."""
    k_area, k_aspect, k_place = jax.random.split(key, 3)
    share = jax.random.uniform(k_area, (_TRIES,), minval=area[0], maxval=area[1])
    low, high = jnp.log(aspect[0]), jnp.log(aspect[1])
    ratio = jnp.exp(jax.random.uniform(k_aspect, (_TRIES,), minval=low, maxval=high))
    pixels = share * (height * width)
    h = jnp.round(jnp.sqrt(pixels * ratio)).astype(jnp.int32)
    w = jnp.round(jnp.sqrt(pixels / ratio)).astype(jnp.int32)
    fits = (h < height) & (w < width)
    first = jnp.argmax(fits)
    sides = jnp.stack([h[first], w[first]])
    room = jnp.array([height, width]) - sides
    start = jax.random.randint(k_place, (2,), 0, jnp.maximum(room, 0) + 1)
    end = start + sides
    down, across = jnp.arange(height), jnp.arange(width)
    rows = (down >= start[0]) & (down < end[0])
    columns = (across >= start[1]) & (across < end[1])
    return rows[:, None] & columns[None, :] & fits.any()
