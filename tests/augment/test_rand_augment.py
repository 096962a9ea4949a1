"""RandAugment: torchvision's operations and magnitudes, Pillow's pixels."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from jbias.augment import rand_augment, random_numbers
from tests import cases

KEY = jax.random.key(7)
B, H, W = 64, 20, 26
RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (B, H, W, 3), np.uint8)
BATCH = {"image": jnp.asarray(BYTES, jnp.float32) / 255, "index": jnp.arange(B)}


def pillow(image, name, magnitude, side):
    """Return torchvision's RandAugment of a Pillow image, written out."""
    picture, m = Image.fromarray(image), magnitude / 30
    width, height = picture.size

    def affine(*matrix):
        nearest = Image.Resampling.NEAREST
        return picture.transform(picture.size, Image.Transform.AFFINE, matrix, nearest)

    return {
        "identity": lambda: picture,
        "shear_x": lambda: affine(1, math.tan(math.atan(side * 0.3 * m)), 0, 0, 1, 0),
        "shear_y": lambda: affine(1, 0, 0, math.tan(math.atan(side * 0.3 * m)), 1, 0),
        "translate_x": lambda: affine(
            1, 0, -side * int(150 / 331 * width * m), 0, 1, 0
        ),
        "translate_y": lambda: affine(
            1, 0, 0, 0, 1, -side * int(150 / 331 * height * m)
        ),
        "rotate": lambda: picture.rotate(side * 30 * m),
        "brightness": lambda: ImageEnhance.Brightness(picture).enhance(
            1 + side * 0.9 * m
        ),
        "colour": lambda: ImageEnhance.Color(picture).enhance(1 + side * 0.9 * m),
        "contrast": lambda: ImageEnhance.Contrast(picture).enhance(1 + side * 0.9 * m),
        "sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(
            1 + side * 0.9 * m
        ),
        "posterize": lambda: ImageOps.posterize(picture, 8 - round(magnitude / 7.5)),
        "solarize": lambda: ImageOps.solarize(picture, 255 - 255 * m),
        "autocontrast": lambda: ImageOps.autocontrast(picture),
        "equalize": lambda: ImageOps.equalize(picture),
    }[name]()


def draw_operations(num_ops):
    """Return the operations and directions of every image."""
    keys = random_numbers.keys(KEY, B)
    draw = jax.vmap(lambda k: jnp.stack(random_numbers.uniforms(k, *[(num_ops,)] * 2)))
    which, side = np.moveaxis(np.asarray(draw(keys)), 1, 0)
    return (which * 14).astype(int), np.where(side < 0.5, 1, -1)


@pytest.mark.slow
@cases.each("magnitude", [9, 0, 30])
def test_pixels_equal_pillows(magnitude):
    """Two operations per image; all 14 occur, in both directions."""
    images = jax.jit(rand_augment.make(magnitude=magnitude))(BATCH, KEY)["image"]
    kinds, sides = draw_operations(2)
    assert set(kinds.ravel()) == set(range(14))
    for i in range(B):
        expected = BYTES[i]
        for kind, side in zip(kinds[i], sides[i]):
            name = rand_augment.OPERATIONS[kind]
            expected = np.asarray(pillow(expected, name, magnitude, side))
        np.testing.assert_array_equal(np.rint(images[i] * 255), expected)


def test_magnitudes_equal_torch_linspace():
    """torch 2.13: torch.linspace(0, 0.3, 31)[[9, 21]].tolist(), and to 0.9; the 21st may
    differ in its last bit.
    """
    shears = [rand_augment.signed(m, 32, 32)[0, 1] for m in (9, 21)]
    assert shears == [0.09000000357627869, 0.21000000834465027]
    increased, decreased = rand_augment.signed(21, 32, 32)[
        :, rand_augment.OPERATIONS.index("colour")
    ]
    assert (increased, decreased) == (
        np.float32(1 + 0.6299999952316284),
        np.float32(1 - 0.6299999952316284),
    )


def test_no_operation_is_no_change():
    assert rand_augment.make(num_ops=0)(BATCH, KEY) is BATCH


def test_only_the_image_changes():
    transformed = jax.eval_shape(rand_augment.make(num_ops=3), BATCH, KEY)
    assert jax.tree.map(jnp.shape, transformed) == jax.tree.map(jnp.shape, BATCH)


@cases.each(
    ("options", "message"),
    [
        ({"magnitude": 31}, "magnitude must be a whole number from 0 to 30, got 31"),
        ({"magnitude": 9.5}, "got 9.5"),
        ({"num_ops": -1}, "num_ops must be in"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        rand_augment.make(**options)
    assert "\n" not in str(caught.value)
