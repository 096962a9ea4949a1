"""RandAugment: a few random operations, all of one magnitude.

Source: Cubuk, Zoph, Shlens and Le, "RandAugment: Practical automated data augmentation
with a reduced search space", NeurIPS 2020, https://arxiv.org/abs/1909.13719.
Reference code: torchvision.transforms.RandAugment, https://github.com/pytorch/vision at
0352a47, on Pillow images with its defaults: nearest pixels, black.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jbias.augment import options, pillow, sampling
from jbias.augment.pillow import NEAREST

OPERATIONS = ("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate")
OPERATIONS += ("brightness", "colour", "contrast", "sharpness")
OPERATIONS += ("posterize", "solarize", "autocontrast", "equalize")
BINS = 31


def make(*, num_ops: int = 2, magnitude: int = 9) -> Callable:
    """Applies num_ops operations to each image, each drawn from 14, repeats allowed.

    magnitude: 0 to 30. At 30, shears are by 0.3, translations by 150/331 of the side,
    rotations by 30 degrees, factors 0.1 or 1.9, 4 bits are kept and all is inverted;
    what has a direction takes either with even chances. Images become 8 bits.
    """
    options.check_range("rand_augment", 0, 100, num_ops=num_ops)
    if magnitude not in range(BINS):
        must = f"rand_augment: magnitude must be a whole number from 0 to {BINS - 1}"
        raise ValueError(f"{must}, got {magnitude}; change magnitude")

    def one(x: Float[Array, "h w 3"], key) -> Float[Array, "h w 3"]:
        amounts = jnp.asarray(signed(magnitude, *x.shape[:2]))
        which, side = sampling.uniforms(key, (num_ops,), (num_ops,))
        kind = sampling.integers(which, len(OPERATIONS))
        side = sampling.integers(side, 2)

        def step(i, pixels):
            amount = amounts[side[i], kind[i]]
            return pillow.apply(pixels, kind[i], amount, OPERATIONS, NEAREST)

        return pillow.unpack(jax.lax.fori_loop(0, num_ops, step, pillow.pack(x)))

    return options.each_image(one, num_ops=num_ops)


def signed(magnitude: int, h: int, w: int) -> Float[np.ndarray, "2 14"]:
    """The amount of every operation at a magnitude, to either side, as in `ops`."""

    def bin_of(first: float, last: float) -> float:
        # As torch.linspace counts, in float32 and from the nearer end.
        first, last = np.float32(first), np.float32(last)
        step = (last - first) / np.float32(BINS - 1)
        if magnitude < BINS // 2:
            return float(first + step * np.float32(magnitude))
        return float(last - step * np.float32(BINS - 1 - magnitude))

    def sides(name: str) -> tuple[float, float]:
        if name.startswith("shear"):
            return bin_of(0, 0.3), -bin_of(0, 0.3)
        if name.startswith("translate"):
            pixels = int(bin_of(0, 150 / 331 * (w if name == "translate_x" else h)))
            return -pixels, pixels  # They move the image, `ops` the reading point.
        if name == "rotate":
            return bin_of(0, 30), -bin_of(0, 30)
        if name in pillow.BLENDS:
            return 1 + bin_of(0, 0.9), 1 - bin_of(0, 0.9)
        if name == "posterize":
            return (8 - round(magnitude / ((BINS - 1) / 4)),) * 2
        # Whole values are not below a threshold if they are not below the next number.
        return (float(np.ceil(bin_of(255, 0))) if name == "solarize" else 0.0,) * 2

    return np.array([sides(name) for name in OPERATIONS], np.float32).T
