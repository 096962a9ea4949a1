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


def by_pillow(name, image, amount, resample=Image.Resampling.BILINEAR):
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
        found = picture.transform(picture.size, AFFINE, matrix[name], resample)
    elif name in enhance:
        found = enhance[name](picture).enhance(amount)
    elif name == "rotate":
        found = picture.rotate(amount, resample)
    elif name in ("posterize", "solarize"):
        found = getattr(ImageOps, name)(picture, int(amount))
    else:
        found = getattr(ImageOps, name)(picture)
    return np.asarray(found)


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
def applied(name, nearest):
    sampler = pillow.NEAREST if nearest else pillow.BILINEAR

    def one(image, amount):
        return pillow.apply(image, jnp.int32(0), amount, (name,), sampler)

    return jax.jit(jax.vmap(one))


def compare(name, h, w, some, resample=Image.Resampling.BILINEAR):
    """Return the differences of all images at all amounts."""
    some = [float(a) for a in some]
    each = applied(name, resample == Image.Resampling.NEAREST)
    for image in images(h, w):
        pixels = jnp.broadcast_to(packed(image), (len(some), h, w))
        found = unpacked(each(pixels, jnp.asarray(some, jnp.float32)))
        expected = np.stack([by_pillow(name, image, a, resample) for a in some])
        yield found.astype(int) - expected


@cases.each("size", SIZES)
@cases.each("name", NAMES, quick=("brightness",))
def test_pixels_are_pillows(name, size):
    for difference in compare(name, *size, amounts(name, *size)):
        np.testing.assert_array_equal(difference, 0)


@pytest.mark.slow
@cases.each("name", pillow.WARPS)
def test_pixels_of_large_warps_are_pillows(name):
    some = [a for a in amounts(name, 224, 224) if abs(a) != 29][-4:]
    for difference in compare(name, 224, 224, some):
        np.testing.assert_array_equal(difference, 0)


@cases.each("size", [(32, 32), (33, 33)])
@cases.each("degrees", [15, 30])
def test_where_positions_are_rational_a_level_may_be_missed(degrees, size):
    """Pillow's float64 is above or below whole numbers there."""
    for difference in compare("rotate", *size, [degrees, -degrees]):
        assert abs(difference).max() <= 1
        assert (difference != 0).mean() < 0.01


@pytest.mark.slow
@cases.each("size", SIZES)
@cases.each("name", pillow.WARPS)
def test_nearest_pixels_are_pillows(name, size):
    some = range(-30, 31) if name == "rotate" else amounts(name, *size)
    for difference in compare(name, *size, some, Image.Resampling.NEAREST):
        np.testing.assert_array_equal(difference, 0)


def test_products_of_fractions_are_good_to_42_bits():
    """Compared with Python integers; the error is below two units."""
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 1 << 14, (2, 3, 1000))
    whole = [
        [sum(int(x) << s for x, s in zip(w, (28, 14, 0))) for w in z.T] for z in (u, v)
    ]
    found = np.stack(
        jax.jit(pillow._multiply)(tuple(jnp.asarray(u)), tuple(jnp.asarray(v)))
    )
    units = [sum(int(x) << s for x, s in zip(w, (28, 14, 0))) for w in found.T]
    rest = [(a * b >> 42) - c for a, b, c in zip(*whole, units)]
    assert 0 <= min(rest) <= max(rest) <= 2


@cases.each("name", ["shear_x", "shear_y"])
def test_nearest_shears_are_rounded_as_pillow_rounds(name):
    """Slopes and the position of the first pixel are floor(65536 x + 1/2)."""
    for amount in np.float32(np.linspace(-0.3, 0.3, 61)):
        found = pillow.NEAREST.maps[name](9, 9, jnp.asarray(amount))
        a = float(amount)
        b, d = (a, 0) if name == "shear_x" else (0, a)
        expected = (1, b, 0.5 + 0.5 * b, d, 1, 0.5 * d + 0.5)
        expected = [int(np.floor(x * 65536 + 0.5)) for x in expected]
        assert found.tolist() == expected


def test_autocontrast_of_every_range_is_pillows():
    """For every lowest and highest value, by Pillow's arithmetic in float64."""
    table = jax.jit(jax.vmap(lambda x: pillow.autocontrast(x)[0]))
    value, pairs = np.arange(256), np.argwhere(np.tri(256, k=-1).T)
    for low, high in np.split(pairs[::3].T, 10, axis=1):
        image = np.clip(value, low[:, None], high[:, None]).reshape(-1, 16, 16)
        found = table(jnp.asarray(image * 0x010101, jnp.int32))
        scale = 255.0 / (high - low)
        expected = (value * scale[:, None] + (-low * scale)[:, None]).astype(int)
        inside = (value >= low[:, None]) & (value <= high[:, None])
        np.testing.assert_array_equal(np.where(inside, found - expected, 0), 0)


def test_blends_round_product_and_sum_apart():
    """For every pair of values, by NumPy's float32, which has no fused multiply-add."""
    start, end = (x.ravel() for x in np.mgrid[:256, :256].astype(np.int32))
    blend = jax.jit(pillow.blend)
    for factor in np.float32([0.1, 0.27, 0.73, 1 / 3, 1.27, 1.9]):
        step = factor * (end - start).astype(np.float32)
        expected = np.clip(start.astype(np.float32) + step, 0, 255).astype(int)
        found = blend(jnp.asarray(start), jnp.asarray(end), factor)
        np.testing.assert_array_equal(np.asarray(found) & 255, expected)


@pytest.mark.slow
@cases.each("nearest", [False, True], quick=("True",))
def test_each_image_gets_the_operation_it_draws(nearest):
    names, (h, w) = ("identity", *NAMES), SIZES[1]
    image = packed(next(images(h, w)))
    some = [list(amounts(name, h, w))[-1] for name in names]
    pixels = jnp.broadcast_to(image, (len(names), h, w))
    sampler = pillow.NEAREST if nearest else pillow.BILINEAR
    apply = functools.partial(pillow.apply, names=names, interpolation=sampler)
    kind, amount = jnp.arange(len(names)), jnp.asarray(some, jnp.float32)
    found = jax.jit(jax.vmap(apply))(pixels, kind, amount)
    for i, name in enumerate(names):
        alone = applied(name, nearest)(image[None], amount[i : i + 1])
        np.testing.assert_array_equal(found[i], alone[0])
    assert (found[0] == image).all()


def test_sides_beyond_the_whole_numbers_are_refused():
    for name in ("rotate", "shear_x", "translate_y"):
        with pytest.raises(ValueError, match="at most 1024 pixels, got 8 by 1025"):
            pillow.BILINEAR.maps[name](8, 1025, jnp.float32(1))


@pytest.mark.slow
def test_what_keeps_values_in_memory_changes_none(monkeypatch):
    """Results are equal with and without memory.materialize."""
    names = (*pillow.TABLES, "rotate", "contrast")
    image, kind = packed(next(images(12, 12))), jnp.arange(len(names))

    def every():
        apply = functools.partial(
            pillow.apply, image, amount=jnp.float32(2), names=names
        )
        return np.asarray(jax.jit(jax.vmap(lambda kind: apply(kind)))(kind))

    with_borders = every()
    monkeypatch.setattr(memory, "materialize", lambda f, *args: f(*args))
    np.testing.assert_array_equal(every(), with_borders)


def test_only_named_operations_are_computed():
    """Programs of warps have no histogram, programs of tables no gather of neighbours."""

    def program(*names):
        apply = functools.partial(pillow.apply, names=names)
        pixels, zero = jnp.zeros((8, 8), jnp.int32), jnp.zeros(())
        return str(jax.make_jaxpr(apply)(pixels, jnp.int32(0), zero))

    assert "scatter" in program("equalize") and "scatter" not in program("rotate")
    assert "gather" not in program("brightness")


def test_bytes_come_back():
    image = (
        jnp.asarray(np.random.default_rng(0).integers(0, 256, (9, 7, 3)), "f4") / 255
    )
    np.testing.assert_array_equal(pillow.unpack(pillow.pack(image)), image)
    rough = image + 0.3 / 255
    np.testing.assert_array_equal(pillow.unpack(pillow.pack(rough)), image)
