"""Image operations by name, a different one for each image of a batch.

Under vmap a `lax.switch` computes every operation for every image. So operations are of
three sorts, and what differs between images are numbers: warps have the ramps of where
they read, tables the new value of each old one, blends a degenerate image and a factor.
An image costs one warp, one table and one blend, whatever it draws: with the 13 of
AugMix, on one core of a CPU, 13 us at 32 pixels and 50 at 64; a switch 150 and 730.

Pixels are those of Pillow 13.0 on x86-64, to the bit, and by whole numbers and exact
products alone, so that no backend differs. Rotations by 30 degrees, at odd sizes by 15,
may be off by one level at a pixel in thousands: there interpolated values may be whole
numbers, and Pillow's float64 falls to either side of them.

Images are bytes, packed as in `tone`. Amounts are: of "rotate" whole degrees
anticlockwise, -30 to 30; of shears pixels per pixel; of translations whole pixels by
which the reading point moves right or down; of "posterize" the bits kept; of "solarize"
the threshold; of blends the factor.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from jbias.augment import memory, tone, warp
from jbias.augment.warp import Amount, Pixels

WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
# (image, amount) -> the new value of each old one.
TABLES: Mapping[str, Callable[[Pixels, Amount], tone.Table]] = MappingProxyType(
    {
        "autocontrast": lambda image, amount: tone.autocontrast(image),
        "equalize": lambda image, amount: tone.equalize(image),
        "posterize": lambda image, amount: tone.posterize(amount),
        "solarize": lambda image, amount: tone.solarize(amount),
    }
)
# image -> what the factor leads away from.
BLENDS: Mapping[str, Callable[[Pixels], Pixels]] = MappingProxyType(
    {
        "colour": tone.grey,
        "contrast": tone.middle,
        "brightness": jnp.zeros_like,
        "sharpness": tone.smooth,
    }
)


def one(
    name: str, image: Pixels, amount: Amount, sampler: warp.Sampler = warp.BILINEAR
) -> Pixels:
    """Applies one operation; any other name is the identity."""
    if name in WARPS:
        return sampler.read(image, sampler.maps[name](*image.shape, amount))
    if name in TABLES:
        return tone.look_up(image, TABLES[name](image, amount))
    if name in BLENDS:
        return tone.blend(BLENDS[name](image), image, amount)
    return image


def apply(
    image: Pixels,
    kind: Int[Array, ""],
    amount: Amount,
    names: Sequence[str],
    sampler: warp.Sampler = warp.BILINEAR,
) -> Pixels:
    """Applies names[kind] as a warp, a table and a blend, two of which do nothing."""

    def pick(start: PyTree, known: Sequence[str], make: Callable) -> PyTree:
        for i, name in enumerate(names):
            if name in known:
                choose = functools.partial(jnp.where, kind == i)
                start = jax.tree.map(choose, make(name), start)
        return start

    def place() -> PyTree:
        still = sampler.maps["translate_x"](*image.shape, jnp.zeros_like(amount))
        return pick(still, WARPS, lambda n: sampler.maps[n](*image.shape, amount))

    def table(image: Pixels) -> tone.Table:
        return pick(tone.identity(), TABLES, lambda n: TABLES[n](image, amount))

    def blended(image: Pixels) -> Pixels:
        degenerate = pick(image, BLENDS, lambda n: BLENDS[n](image))
        return tone.blend(degenerate, image, amount)

    if set(names) & set(WARPS):
        image = memory.written(sampler.read, image, memory.written(place))
    if set(names) & set(TABLES):
        image = memory.written(tone.look_up, image, memory.written(table, image))
    if set(names) & set(BLENDS):
        image = memory.written(blended, image)
    return image
