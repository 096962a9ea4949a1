"""The RandAugment transform: a few random operations of one magnitude.

Source: Cubuk, Zoph, Shlens and Le, "RandAugment: Practical automated data augmentation
with a reduced search space", NeurIPS 2020, https://arxiv.org/abs/1909.13719.
Reference code: torchvision.transforms.RandAugment, https://github.com/pytorch/vision at
0352a47, on Pillow images with torchvision's defaults: nearest-neighbour interpolation, black
outside the image.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jbias import errors
from jbias.augment import options, pillow, random_numbers
from jbias.augment.pillow import NEAREST

OPERATIONS = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "brightness",
    "colour",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
)
BINS = 31


def make(*, num_ops: int = 2, magnitude: int = 9) -> options.Transform:
    """Return the RandAugment transform, which applies `num_ops` operations to each image.

    Operations are drawn with replacement from the 14 in OPERATIONS, and directions with
    equal probabilities. Images are rounded to 8 bits. With num_ops=0 images do not change.

    num_ops: operations per image, applied one after the other.
    magnitude: whole number from 0 to 30. At 30, shears are 0.3, translations 150/331 of the
      side, rotations 30 degrees, factors 0.1 or 1.9; posterize keeps 4 bits and solarize
      inverts all values.
    ValueError for an option out of range.
    """
    errors.check_range("rand_augment", 0, 100, num_ops=num_ops)
    if magnitude not in range(BINS):
        must = f"rand_augment: magnitude must be a whole number from 0 to {BINS - 1}"
        raise ValueError(f"{must}, got {magnitude}; change magnitude")

    def augment(x: Float[Array, "h w 3"], key) -> Float[Array, "h w 3"]:
        """Return an image in [0, 1], rounded to bytes, after `num_ops` random operations.

        x: image in [0, 1]. key: random key. Amounts: see `signed`.
        """
        amounts = jnp.asarray(signed(magnitude, *x.shape[:2]))
        u_kind, u_side = random_numbers.uniforms(key, (num_ops,), (num_ops,))
        kind = random_numbers.integers(u_kind, len(OPERATIONS))
        side = random_numbers.integers(u_side, 2)

        def step(i, pixels):
            amount = amounts[side[i], kind[i]]
            return pillow.apply(pixels, kind[i], amount, OPERATIONS, NEAREST)

        return pillow.unpack(jax.lax.fori_loop(0, num_ops, step, pillow.pack(x)))

    return options.each_image(augment, num_ops=num_ops)


def signed(magnitude: int, h: int, w: int) -> Float[np.ndarray, "2 14"]:
    """Return the amounts of all operations at a magnitude: a row for each direction.

    Columns are in the order of OPERATIONS; units are as in pillow.py. h, w: height and width
    of the image in pixels.
    """

    def bin_of(first: float, last: float) -> float:
        # torch.linspace computes in float32 and from the nearer end.
        first, last = np.float32(first), np.float32(last)
        step = (last - first) / np.float32(BINS - 1)
        if magnitude < BINS // 2:
            return float(first + step * np.float32(magnitude))
        return float(last - step * np.float32(BINS - 1 - magnitude))

    def sides(name: str) -> tuple[float, float]:
        """Return the amounts of the operation `name`, one per direction, in units of pillow.py.

        Amounts of shears, translations and rotations have opposite signs. Amounts of blends are
        1 + x and 1 - x, amounts of "posterize" and "solarize" are equal, and all other amounts
        are 0.
        """
        if name.startswith("shear"):
            return bin_of(0, 0.3), -bin_of(0, 0.3)
        if name.startswith("translate"):
            pixels = int(bin_of(0, 150 / 331 * (w if name == "translate_x" else h)))
            # torchvision moves the image, pillow.py the position that is read.
            return -pixels, pixels
        if name == "rotate":
            return bin_of(0, 30), -bin_of(0, 30)
        if name in pillow.BLENDS:
            return 1 + bin_of(0, 0.9), 1 - bin_of(0, 0.9)
        if name == "posterize":
            bits = 8 - round(magnitude / ((BINS - 1) / 4))
            return bits, bits
        if name == "solarize":
            # Bytes are below a threshold if they are below the next whole number.
            threshold = float(np.ceil(bin_of(255, 0)))
            return threshold, threshold
        return 0.0, 0.0

    return np.array([sides(name) for name in OPERATIONS], np.float32).T
