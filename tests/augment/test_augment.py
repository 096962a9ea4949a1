"""Transforms of single images: laws of all, flips and crops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from PIL import Image

from jbias import augment
from jbias.augment import geometric
from jbias.data import decoding
from tests import cases

KEY = jax.random.key(2)
IMAGE = jnp.asarray(np.random.default_rng(0).uniform(size=(8, 12, 12, 3)), jnp.float32)
BATCH = {"image": IMAGE, "target": jnp.eye(8), "index": jnp.arange(8)}
# What changes each image alone, and nothing but images.
ALONE = (
    "blur",
    "colour_jitter",
    "flip",
    "gaussian_noise",
    "lighting",
    "pad_crop",
    "rand_augment",
    "random_erasing",
    "random_resized_crop",
)


@pytest.fixture(scope="module")
def applied():
    """Return {name: the transform of BATCH}."""
    return {name: jax.jit(augment.AUGMENTS[name]())(BATCH, KEY) for name in ALONE}


@pytest.mark.slow
@cases.each(
    "name",
    ALONE,
    quick=(
        "flip",
        "rand_augment",
        "pad_crop",
    ),
)
def test_only_images_change(name, applied):
    transformed = applied[name]
    assert set(transformed) == set(BATCH)
    assert transformed["image"].shape == IMAGE.shape
    assert transformed["image"].dtype == IMAGE.dtype
    assert (transformed["image"] != IMAGE).any()
    for other in set(BATCH) - {"image"}:
        np.testing.assert_array_equal(transformed[other], BATCH[other])


@pytest.mark.slow
@cases.each(
    "name",
    ALONE,
    quick=(
        "flip",
        "lighting",
        "pad_crop",
    ),
)
def test_results_depend_on_the_place_in_the_batch_only(name, applied):
    """Half the batch gives the same images as in the whole batch."""
    half = jax.tree.map(lambda x: x[:4], BATCH)
    transformed = jax.jit(augment.AUGMENTS[name]())(half, KEY)
    np.testing.assert_allclose(
        transformed["image"], applied[name]["image"][:4], rtol=1e-6, atol=1e-6
    )


@pytest.mark.slow
@cases.each(
    "name",
    ALONE,
    quick=(
        "flip",
        "lighting",
        "pad_crop",
    ),
)
def test_examples_draw_independently(name):
    repeated = {**BATCH, "image": jnp.broadcast_to(IMAGE[:1], (64, 12, 12, 3))}
    images = np.asarray(augment.AUGMENTS[name]()(repeated, KEY)["image"])
    assert len({x.tobytes() for x in images}) > 1


def test_flip_mirrors_the_given_share_of_images():
    image = jnp.broadcast_to(IMAGE[:1], (4000, 12, 12, 3))
    flipped = augment.AUGMENTS["flip"](p=0.3)({"image": image}, KEY)["image"]
    is_mirrored = (flipped == image[:, :, ::-1]).all((1, 2, 3))
    is_unchanged = (flipped == image).all((1, 2, 3))
    assert (is_mirrored ^ is_unchanged).all()
    assert abs(is_mirrored.mean() - 0.3) < 4 * (0.3 * 0.7 / 4000) ** 0.5


@cases.each("p", [0.0, 1.0])
def test_flip_with_probability_0_or_1(p):
    flipped = augment.AUGMENTS["flip"](p=p)(BATCH, KEY)["image"]
    np.testing.assert_array_equal(flipped, IMAGE[:, :, ::-1] if p else IMAGE)


@pytest.mark.slow
def test_pad_crop_is_a_uniform_shift_with_black():
    """Pixels encode their place and so show each window; all 9 shifts by 1 are equally
    likely.
    """
    place = 1.0 + jnp.arange(16.0).reshape(1, 4, 4, 1)
    image = jnp.broadcast_to(place, (4500, 4, 4, 1))
    crop = augment.AUGMENTS["pad_crop"](pad=1)
    crops = np.asarray(crop({"image": image}, KEY)["image"])
    padded = np.pad(np.asarray(place[0]), ((1, 1), (1, 1), (0, 0)))
    windows = {
        padded[i : i + 4, j : j + 4].tobytes(): 0 for i in range(3) for j in range(3)
    }
    for x in crops:
        windows[x.tobytes()] += 1
    assert len(windows) == 9
    assert scipy.stats.chisquare(list(windows.values())).pvalue > 0.001


WINDOWS = [(0, 0, 40, 30), (3, 5, 17, 9), (30, 2, 5, 28), (7, 7, 1, 1), (2, 1, 33, 20)]


@pytest.mark.slow
@cases.each("window", WINDOWS)
@cases.each("out", [8, 32])
def test_windows_are_resized_as_by_pillow(window, out):
    """Pillow's bilinear filter of the cut window, to smaller and larger sizes, on floats."""
    top, left, h, w = window
    image = np.random.default_rng(0).uniform(size=(40, 30)).astype(np.float32)
    cut = Image.fromarray(image[top : top + h, left : left + w])
    expected = np.asarray(cut.resize((out, out), Image.Resampling.BILINEAR))
    down = geometric.resize_matrix(out, 40, jnp.int32(top), jnp.int32(h))
    across = geometric.resize_matrix(out, 30, jnp.int32(left), jnp.int32(w))
    np.testing.assert_allclose(down @ image @ across.T, expected, atol=2e-6)


def draw_windows(height, width, count=4000, area=(0.08, 1.0), aspect=(3 / 4, 4 / 3)):
    def draw(key):
        return geometric.draw_window(key, height, width, area=area, aspect=aspect)

    windows = jax.jit(jax.vmap(draw))(jax.random.split(KEY, count))
    return (np.asarray(x) for x in windows)


@pytest.mark.slow
@cases.each("size", [(200, 200), (300, 200), (8, 8)])
def test_windows_are_inside_the_image(size):
    height, width = size
    top, left, h, w = draw_windows(height, width)
    assert (top >= 0).all() and (left >= 0).all()
    assert (h > 0).all() and (w > 0).all()
    assert (top + h <= height).all() and (left + w <= width).all()


def test_windows_are_uniform_in_area_log_aspect_and_place():
    """Tested on small windows, which always fit at the first draw."""
    top, left, h, w = draw_windows(1000, 1000, area=(0.1, 0.5), aspect=(0.5, 2.0))
    area = (h * w / 1e6 - 0.1) / 0.4
    aspect = (np.log(w / h) / np.log(2) + 1) / 2
    for share in (area, aspect, top / (1000 - h), left / (1000 - w)):
        assert scipy.stats.kstest(share, "uniform").pvalue > 0.001


@pytest.mark.slow
@cases.each(
    ("size", "expected"),
    [((30, 300), (0, 130, 30, 40)), ((300, 30), (130, 0, 40, 30))],
)
def test_windows_that_never_fit_become_central(size, expected):
    """An area of 1 gives the largest window of 3:4 or 4:3 in a long image."""
    height, width = size
    windows = draw_windows(height, width, count=50, area=(1.0, 1.0))
    for drawn, value in zip(windows, expected):
        np.testing.assert_array_equal(drawn, value)


@pytest.mark.slow
@cases.each(("width", "height"), [(1600, 800), (600, 1400)])
def test_windows_of_a_canvas_equal_those_of_the_original(width, height):
    """Windows cut on a canvas have the areas, aspects and places of windows of the
    original.
    """
    side, rng = 1000, np.random.default_rng(0)
    pixel = width / height

    def draw(key):
        return geometric.draw_window(
            key, side, side, area=(0.08, 1.0), aspect=(3 / 4, 4 / 3), pixel=pixel
        )

    windows = jax.vmap(draw)(jax.random.split(KEY, 3000))
    top, left, h, w = (np.asarray(x) / side for x in windows)
    drawn = np.array([decoding.random_window(rng, width, height) for _ in range(3000)])
    drawn = drawn / np.array([width, height, width, height])
    for on_canvas, on_original in zip(
        (left, top, w, h, w * h), (*drawn.T, drawn[:, 2] * drawn[:, 3])
    ):
        assert scipy.stats.ks_2samp(on_canvas, on_original).pvalue > 1e-3


@pytest.mark.slow
@cases.each(("width", "height"), [(2000, 500), (300, 1200), (1000, 900)])
def test_windows_that_never_fit_a_canvas_become_central_as_on_the_original(
    width, height
):
    area, aspect = (1.0, 1.0), (3 / 4, 4 / 3)
    top, left, h, w = geometric.draw_window(
        KEY, 1000, 1000, area=area, aspect=aspect, pixel=width / height
    )
    rng = np.random.default_rng(0)
    expected = decoding.random_window(rng, width, height, area=area, aspect=aspect)
    scale = np.array([width, height, width, height]) / 1000
    np.testing.assert_allclose(np.array([left, top, w, h]) * scale, expected, atol=2)


@pytest.mark.slow
def test_the_full_window_of_a_canvas_is_the_image():
    crop = augment.AUGMENTS["random_resized_crop"](
        area=(1.0, 1.0), aspect=(2.0, 2.0), size=12
    )
    wide = {**BATCH, "aspect": jnp.full(8, 2.0)}
    cropped = crop(wide, KEY)
    np.testing.assert_allclose(cropped["image"], IMAGE, atol=1e-6)
    assert "aspect" not in cropped


def test_crops_to_another_size():
    crop = augment.AUGMENTS["random_resized_crop"](size=20)
    assert jax.eval_shape(crop, BATCH, KEY)["image"].shape == (8, 20, 20, 3)


def test_crop_of_everything_is_the_image():
    crop = augment.AUGMENTS["random_resized_crop"](area=(1.0, 1.0), aspect=(1.0, 1.0))
    np.testing.assert_allclose(crop(BATCH, KEY)["image"], IMAGE, atol=1e-6)
