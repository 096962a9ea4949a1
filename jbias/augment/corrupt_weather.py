"""Weather of ImageNet-C on the device: snow, frost and fog; spatter has its own file.

Each has the draws of an image and what they do to it; data.corruption_kernels says what
that is. Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import corrupt_arrays, draws
from jbias.augment.corrupt_arrays import Image, Plane, Settings


def draw_snow(key: PRNGKeyArray, side: int) -> tuple[Plane, Float[Array, ""]]:
    """N(0, 1) for the flakes, U(0, 1) for where they fall to."""
    flakes, direction = jax.random.split(key)
    return jax.random.normal(flakes, (side, side)), jax.random.uniform(direction)


def snow(x: Image, drawn: tuple, s: Settings) -> Image:
    """Whitens the image and adds moved flakes, and the same turned upside down."""
    layer = corrupt_arrays.filtered(s["mean"] + s["sigma"] * drawn[0], s["zoom"])
    layer = corrupt_arrays.cut(255 * jnp.where(layer < s["least"], 0, layer))
    degrees = 90 * drawn[1] - 135
    layer = corrupt_arrays.moved(layer, s["kernel"], s["taps"], degrees)[..., None]
    luma = jnp.array([0.299, 0.587, 0.114])
    # Accelerators round the factors of a product unless told not to.
    grey = jnp.matmul(x, luma, precision="highest")
    white = grey[..., None] * 1.5 + 127.5
    x = s["keep"] * x + (1 - s["keep"]) * jnp.maximum(x, white)
    return x + layer + layer[::-1, ::-1]


def draw_frost(key: PRNGKeyArray, side: int) -> tuple[Float[Array, ""], ...]:
    """U(0, 1) for the photograph, and for the crop's top and left."""
    del side
    return tuple(jax.random.uniform(key, (3,)))


def frost(x: Image, drawn: tuple, s: Settings) -> Image:
    """Mixes keep x + add ice, a crop of one of the photographs `ice` (n, h, w, 3).

    They are padded to one size; `sizes` (n, 2) says how large each is.
    """
    side = len(x)
    which = draws.below(drawn[0], len(s["ice"]))
    height, width = s["sizes"][which]
    top, left = (
        draws.below(u, room - side) for u, room in zip(drawn[1:], (height, width))
    )
    crop = jax.lax.dynamic_slice(s["ice"], (which, top, left, 0), (1, side, side, 3))
    return s["keep"] * x + s["add"] * crop[0].astype(jnp.float32)


def draw_fog(key: PRNGKeyArray, side: int) -> tuple[Float[Array, "3 n n"], ...]:
    """U(0, 1) for centres, rights and lowers of each level of `plasma`."""
    levels = (side - 1).bit_length()
    return tuple(draws.uniforms(key, *((3, 1 << i, 1 << i) for i in range(levels))))


def plasma(
    levels: tuple[Float[Array, "3 n n"], ...], decay: Float[Array, ""]
) -> Float[Array, "side side"]:
    """A fractal height map on a torus, [0, 1], by diamonds and squares."""
    heights, width = jnp.zeros((1, 1)), jnp.float32(100)
    for u in levels:
        n = len(heights)
        noise = jnp.square(width) * (2 * u - 1)
        rows = heights + jnp.roll(heights, -1, 0)
        centres = (rows + jnp.roll(rows, -1, 1)) / 4 + noise[0]
        across = heights + jnp.roll(heights, -1, 1) + centres + jnp.roll(centres, 1, 0)
        down = heights + jnp.roll(heights, -1, 0) + centres + jnp.roll(centres, 1, 1)
        upper = jnp.stack([heights, across / 4 + noise[1]], -1)
        lower = jnp.stack([down / 4 + noise[2], centres], -1)
        heights = jnp.stack([upper, lower], 1).reshape(2 * n, 2 * n)
        width = width / decay
    heights -= heights.min()
    return heights / heights.max()


def fog(x: Image, drawn: tuple, s: Settings) -> Image:
    """Adds `thick` times a plasma and scales by max(x) / (max(x) + thick)."""
    side, thick = len(x), 255 * s["thick"]
    brightest = x.max()
    mist = plasma(drawn, s["decay"])[:side, :side, None]
    return (x + thick * mist) * (brightest / (brightest + thick))
