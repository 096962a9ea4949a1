"""Changes brightness, contrast, saturation and hue at random, in random order.

Source: the recipe of Szegedy et al. as in fb.resnet.torch and torchvision; colour
distortion of SimCLR, https://arxiv.org/abs/2002.05709.
Reference code: torchvision.transforms.ColorJitter on float tensors,
https://github.com/pytorch/vision at 0ffa6ae.
Deviation: every image draws for itself, also in a batch.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jbias.augment import draws, examples, options

Image = Float[Array, "h w 3"]
Planes = Float[Array, "3 h w"]
LUMA = (0.2989, 0.587, 0.114)


def make(
    *,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.1,
    p: float = 1.0,
) -> Callable:
    """Jitters the colours of each image with chance p.

    The first three draw a factor f from U(max(0, 1 - s), 1 + s), s the option, and take
    f x + (1 - f) d, cut to [0, 1]: d is black, the image's mean grey, or each pixel's
    grey. The hue turns by U(-hue, hue) of a full circle. One of the 24 orders is drawn
    for each image. With all four at 0, or p=0, nothing is changed.
    """
    strengths = {
        "brightness": brightness,
        "contrast": contrast,
        "saturation": saturation,
    }
    for name, strength in strengths.items():
        options.within("colour_jitter", name, strength, 0, math.inf)
    options.within("colour_jitter", "hue", hue, 0, 0.5)
    options.within("colour_jitter", "p", p, 0, 1)
    still = all(options.surely(s, 0) for s in (*strengths.values(), hue))

    def one(image: Image, key) -> Image:
        gate, share, turn, place = draws.uniforms(key, (), (3,), (), (4,))
        s = jnp.stack([jnp.asarray(s, image.dtype) for s in strengths.values()])
        low = jnp.maximum(1 - s, 0)
        factors = jnp.append(low + share * (1 + s - low), 1.0)
        shift, order = hue * (2 * turn - 1), jnp.argsort(place)

        def step(i, x):
            new = blend(x, order[i], factors[order[i]])
            if options.surely(hue, 0):
                return new
            return jnp.where(order[i] == 3, turn_hue(x, shift), new)

        # One channel after the other: that is what vectors on CPU can be made of.
        jittered = jax.lax.fori_loop(0, 4, step, jnp.moveaxis(image, -1, 0))
        return jnp.where(gate < p, jnp.moveaxis(jittered, 0, -1), image)

    def apply(batch, key):
        if still or options.surely(p, 0):
            return batch
        image = batch["image"]
        keys = examples.keys(key, len(image))
        return {**batch, "image": jax.vmap(one)(image, keys)}

    return apply


def grey(planes: Planes) -> Float[Array, "h w"]:
    """0.2989 R + 0.587 G + 0.114 B."""
    return sum(share * plane for share, plane in zip(LUMA, planes))


def blend(planes: Planes, which: Array, factor: Float[Array, ""]) -> Planes:
    """f x + (1 - f) d, cut to [0, 1]; d by `which`: black, mean grey, grey, or x."""
    own = grey(planes)
    away = jnp.where(which == 2, own, jnp.where(which == 1, jnp.mean(own), 0))
    mixed = jnp.clip(factor * planes + (1 - factor) * away[None], 0, 1)
    return jnp.where(which == 3, planes, mixed)


def turn_hue(planes: Planes, shift: Float[Array, ""]) -> Planes:
    """Turns the hue by a share of the circle; value and saturation stay.

    Each channel is v - (v - low) clip(min(k, 4 - k), 0, 1), k = (n + 6 h) mod 6 with
    n = 5, 3, 1 for red, green, blue: the usual way to HSV and back, in one formula.
    """
    red, green, blue = planes
    high, low = jnp.max(planes, 0), jnp.min(planes, 0)
    span = jnp.where(high == low, 1, high - low)
    sixth = jnp.where(
        high == red,
        (green - blue) / span,
        jnp.where(high == green, 2 + (blue - red) / span, 4 + (red - green) / span),
    )

    def channel(n: int) -> Array:
        k = n + sixth + 6 * shift
        k = k - 6 * jnp.floor(k / 6)  # Remainders of floats are slow on CPU.
        return high - (high - low) * jnp.clip(jnp.minimum(k, 4 - k), 0, 1)

    return jnp.stack([channel(n) for n in (5, 3, 1)])
