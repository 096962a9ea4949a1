"""Image operations equal Pillow's to the bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps
from scipy import ndimage

from jbias.augment import memory, pillow
from tests import cases

NAMES = (*pillow.WARPS, *pillow.TABLES, *pillow.BLENDS)
AFFINE = Image.Transform.AFFINE
SIZES = [(32, 32), (21, 33), (2, 5)]  # Height, width.


def images(h, w):
    """Return noise, a smooth picture of low contrast, blocks, and one colour."""
    rng = np.random.default_rng([h, w])
    yield rng.integers(0, 256, (h, w, 3), np.uint8)
    smooth = ndimage.gaussian_filter(rng.normal(size=(h, w, 3)), (3, 3, 0))
    span = np.ptp(smooth) or 1
    yield (37 + 180 * (smooth - smooth.min()) / span).astype(np.uint8)
    blocks = rng.integers(0, 4, (h // 4 + 1, w // 4 + 1, 3)) * 71
    yield blocks.repeat(4, 0).repeat(4, 1)[:h, :w].astype(np.uint8)
    yield np.full((h, w, 3), (0, 130, 255), np.uint8)


def packed(image):
    red, green, blue = np.moveaxis(image.astype(np.int32), -1, 0)
    return jnp.asarray(red + 256 * green + 65536 * blue)


def unpacked(pixels):
    pixels = np.asarray(pixels)
    return np.stack([pixels & 255, pixels >> 8 & 255, pixels >> 16], -1)


def apply_pillow(name, image, amount, resample=Image.Resampling.BILINEAR):
    picture = Image.fromarray(image)
    matrix = {
        "shear_x": (1, amount, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, amount, 1, 0),
        "translate_x": (1, 0, amount, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, amount),
    }
    enhance = {
        "colour": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "brightness": ImageEnhance.Brightness,
        "sharpness": ImageEnhance.Sharpness,
    }
    if name in matrix:
        changed = picture.transform(picture.size, AFFINE, matrix[name], resample)
    elif name in enhance:
        changed = enhance[name](picture).enhance(amount)
    elif name == "rotate":
        changed = picture.rotate(amount, resample)
    elif name in ("posterize", "solarize"):
        changed = getattr(ImageOps, name)(picture, int(amount))
    else:
        changed = getattr(ImageOps, name)(picture)
    return np.asarray(changed)


def amounts(name, h, w):
    """Return float32 amounts at both ends of the range and inside it."""
    shears = np.round(np.array([0, 1e-6, 0.01, -0.03, 0.1234, 0.3, -0.3]) * 2**20)
    factors = np.float32([0, 0.1, 0.118, 0.28, 0.5, 0.73, 0.999, 1, 1.27, 1.9, 3])
    shifts = [0, 1, -2, w // 3, -(h // 3), 2 * w]
    return {
        "shear_x": shears / 2**20,
        "shear_y": shears / 2**20,
        "translate_x": shifts,
        "translate_y": shifts,
        "rotate": [a for a in range(-29, 30) if a % 15 or not a],
        "posterize": range(1, 9),
        "solarize": [0, 1, 100, 231, 255, 256],
        **dict.fromkeys(pillow.BLENDS, factors),
    }.get(name, [0])


@functools.cache
def compile_operation(name, nearest):
    sampler = pillow.NEAREST if nearest else pillow.BILINEAR

    def apply_to_image(image, amount):
        return pillow.apply(image, jnp.int32(0), amount, (name,), sampler)

    return jax.jit(jax.vmap(apply_to_image))


def compare(name, h, w, tested_amounts, resample=Image.Resampling.BILINEAR):
    """Return the differences of all images at all amounts."""
    numbers = [float(amount) for amount in tested_amounts]
    apply = compile_operation(name, resample == Image.Resampling.NEAREST)
    for image in images(h, w):
        pixels = jnp.broadcast_to(packed(image), (len(numbers), h, w))
        changed = unpacked(apply(pixels, jnp.asarray(numbers, jnp.float32)))
        expected = np.stack([apply_pillow(name, image, a, resample) for a in numbers])
        yield changed.astype(int) - expected


@cases.each("size", SIZES)
@cases.each("name", NAMES, quick=("brightness",))
def test_pixels_equal_pillows(name, size):
    h, w = size
    for difference in compare(name, h, w, amounts(name, h, w)):
        np.testing.assert_array_equal(difference, 0)


@pytest.mark.slow
@cases.each("name", pillow.WARPS)
def test_pixels_of_large_warps_equal_pillows(name):
    last_amounts = [a for a in amounts(name, 224, 224) if abs(a) != 29][-4:]
    for difference in compare(name, 224, 224, last_amounts):
        np.testing.assert_array_equal(difference, 0)


@cases.each("size", [(32, 32), (33, 33)])
@cases.each("degrees", [15, 30])
def test_rotations_by_rational_positions_differ_by_one_level_at_most(degrees, size):
    """At such angles Pillow's float64 positions fall just above or below whole numbers."""
    h, w = size
    for difference in compare("rotate", h, w, [degrees, -degrees]):
        assert abs(difference).max() <= 1
        assert (difference != 0).mean() < 0.01


@pytest.mark.slow
@cases.each("size", SIZES)
@cases.each("name", pillow.WARPS)
def test_nearest_pixels_equal_pillows(name, size):
    h, w = size
    tested = range(-30, 31) if name == "rotate" else amounts(name, h, w)
    for difference in compare(name, h, w, tested, Image.Resampling.NEAREST):
        np.testing.assert_array_equal(difference, 0)


def test_products_of_fractions_are_good_to_42_bits():
    """Compared with Python integers; the error is below two units."""
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 1 << 14, (2, 3, 1000))

    def to_integers(words):
        shifts = (28, 14, 0)
        return [sum(int(x) << s for x, s in zip(column, shifts)) for column in words.T]

    product = np.stack(
        jax.jit(pillow._multiply)(tuple(jnp.asarray(u)), tuple(jnp.asarray(v)))
    )
    errors = [
        (a * b >> 42) - c
        for a, b, c in zip(to_integers(u), to_integers(v), to_integers(product))
    ]
    assert 0 <= min(errors) <= max(errors) <= 2


@cases.each("name", ["shear_x", "shear_y"])
def test_nearest_shears_are_rounded_as_pillow_rounds(name):
    """Slopes and the position of the first pixel are floor(65536 x + 1/2)."""
    for amount in np.float32(np.linspace(-0.3, 0.3, 61)):
        coefficients = pillow.NEAREST.maps[name](9, 9, jnp.asarray(amount))
        a = float(amount)
        b, d = (a, 0) if name == "shear_x" else (0, a)
        expected = (1, b, 0.5 + 0.5 * b, d, 1, 0.5 * d + 0.5)
        expected = [int(np.floor(x * 65536 + 0.5)) for x in expected]
        assert coefficients.tolist() == expected


def test_autocontrast_of_every_range_equals_pillows():
    """All lowest and highest values are tested against Pillow's arithmetic in float64."""
    table = jax.jit(jax.vmap(lambda x: pillow.autocontrast(x)[0]))
    value, pairs = np.arange(256), np.argwhere(np.tri(256, k=-1).T)
    for low, high in np.split(pairs[::3].T, 10, axis=1):
        image = np.clip(value, low[:, None], high[:, None]).reshape(-1, 16, 16)
        tables = table(jnp.asarray(image * 0x010101, jnp.int32))
        scale = 255.0 / (high - low)
        expected = (value * scale[:, None] + (-low * scale)[:, None]).astype(int)
        inside = (value >= low[:, None]) & (value <= high[:, None])
        np.testing.assert_array_equal(np.where(inside, tables - expected, 0), 0)


def test_blends_round_product_and_sum_apart():
    """All pairs of values are tested against NumPy's float32, which has no fused multiply-
    add.
    """
    start, end = (x.ravel() for x in np.mgrid[:256, :256].astype(np.int32))
    blend = jax.jit(pillow.blend)
    for factor in np.float32([0.1, 0.27, 0.73, 1 / 3, 1.27, 1.9]):
        step = factor * (end - start).astype(np.float32)
        expected = np.clip(start.astype(np.float32) + step, 0, 255).astype(int)
        blended = blend(jnp.asarray(start), jnp.asarray(end), factor)
        np.testing.assert_array_equal(np.asarray(blended) & 255, expected)


@pytest.mark.slow
@cases.each("nearest", [False, True], quick=("True",))
def test_each_image_gets_the_operation_it_draws(nearest):
    names, (h, w) = ("identity", *NAMES), SIZES[1]
    image = packed(next(images(h, w)))
    last_amounts = [list(amounts(name, h, w))[-1] for name in names]
    pixels = jnp.broadcast_to(image, (len(names), h, w))
    sampler = pillow.NEAREST if nearest else pillow.BILINEAR

    def apply(pixels, kind, amount):
        return pillow.apply(pixels, kind, amount, names=names, interpolation=sampler)

    kind, amount = jnp.arange(len(names)), jnp.asarray(last_amounts, jnp.float32)
    changed = jax.jit(jax.vmap(apply))(pixels, kind, amount)
    for i, name in enumerate(names):
        expected = compile_operation(name, nearest)(image[None], amount[i : i + 1])
        np.testing.assert_array_equal(changed[i], expected[0])
    assert (changed[0] == image).all()


def test_sides_beyond_the_whole_numbers_are_refused():
    for name in ("rotate", "shear_x", "translate_y"):
        with pytest.raises(ValueError, match="at most 1024 pixels, got 8 by 1025"):
            pillow.BILINEAR.maps[name](8, 1025, jnp.float32(1))


@pytest.mark.slow
def test_materialised_values_are_equal(monkeypatch):
    """Results are equal with and without memory.materialize."""
    names = (*pillow.TABLES, "rotate", "contrast")
    image, kind = packed(next(images(12, 12))), jnp.arange(len(names))

    def apply_all():
        def apply(kind):
            return pillow.apply(image, kind, amount=jnp.float32(2), names=names)

        return np.asarray(jax.jit(jax.vmap(apply))(kind))

    with_borders = apply_all()
    monkeypatch.setattr(memory, "materialize", lambda f, *args: f(*args))
    np.testing.assert_array_equal(apply_all(), with_borders)


def test_only_named_operations_are_computed():
    """Programs of warps have no histogram, programs of tables no gather of neighbours."""

    def program(*names):
        def apply(pixels, kind, amount):
            return pillow.apply(pixels, kind, amount, names=names)

        pixels, zero = jnp.zeros((8, 8), jnp.int32), jnp.zeros(())
        return str(jax.make_jaxpr(apply)(pixels, jnp.int32(0), zero))

    assert "scatter" in program("equalize") and "scatter" not in program("rotate")
    assert "gather" not in program("brightness")


def test_packing_and_unpacking_bytes_is_the_identity():
    image = (
        jnp.asarray(np.random.default_rng(0).integers(0, 256, (9, 7, 3)), "f4") / 255
    )
    np.testing.assert_array_equal(pillow.unpack(pillow.pack(image)), image)
    rough = image + 0.3 / 255
    np.testing.assert_array_equal(pillow.unpack(pillow.pack(rough)), image)
