"""Random erasing: the boxes, the share of images, and the fill."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import geometric
from tests import cases

KEY = jax.random.key(6)
IMAGE = jnp.asarray(np.random.default_rng(0).uniform(size=(8, 12, 12, 3)), jnp.float32)
BATCH = {"image": IMAGE, "target": jnp.eye(8), "index": jnp.arange(8)}


def test_probability_0_returns_the_batch_itself():
    assert geometric.random_erasing(p=0)(BATCH, KEY) is BATCH
    with pytest.raises(
        ValueError, match=r"random_erasing: p must be in \[0, 1\], got 2"
    ):
        geometric.random_erasing(p=2)


def test_a_traced_probability_of_0_changes_no_bit():
    changed = jax.jit(lambda p: geometric.random_erasing(p=p)(BATCH, KEY)["image"])
    np.testing.assert_array_equal(changed(0.0), IMAGE)
    assert (changed(1.0) != IMAGE).any((1, 2, 3)).all()


def boxes(height, width, count=3000, **options):
    options = {"area": (0.02, 1 / 3), "aspect": (0.3, 3.3), **options}
    draw = jax.jit(jax.vmap(lambda k: geometric.draw_box(k, height, width, **options)))
    return np.asarray(draw(jax.random.split(KEY, count)))


@pytest.mark.slow
def test_erased_boxes_are_uniform_in_area_log_aspect_and_place():
    """Tested on small boxes, which always fit at the first draw."""
    mask = boxes(200, 200, area=(0.05, 0.2), aspect=(0.5, 2.0), count=1500)
    rows, columns = mask.any(2), mask.any(1)
    np.testing.assert_array_equal(mask, rows[:, :, None] & columns[:, None, :])
    h, w = rows.sum(1), columns.sum(1)
    area = (h * w / 40000 - 0.05) / 0.15
    aspect = (np.log(h / w) / np.log(2) + 1) / 2
    top = rows.argmax(1) / (200 - h)
    left = columns.argmax(1) / (200 - w)
    for share in (area, aspect, top, left):
        assert scipy.stats.kstest(share, "uniform").pvalue > 0.001


@pytest.mark.slow
def test_erased_boxes_are_smaller_than_the_image_or_none():
    mask = boxes(8, 30)
    assert mask.any((1, 2)).all()
    assert (mask.any(2).sum(1) < 8).all()
    assert not boxes(8, 8, count=20, area=(1.0, 1.0), aspect=(1.0, 1.0)).any()


@pytest.mark.slow
@cases.each("fill", [0.0, (0.1, 0.2, 0.3), "random"])
def test_the_given_share_of_images_is_erased_and_filled(fill):
    image = jnp.broadcast_to(1 + IMAGE[:1], (1000, 12, 12, 3))  # Over 1: all is seen.
    apply = jax.jit(geometric.random_erasing(p=0.4, fill=fill))
    erased = np.asarray(apply({"image": image}, KEY)["image"])
    changed = (erased != np.asarray(image)).any(3)
    assert abs(changed.any((1, 2)).mean() - 0.4) < 4 * (0.24 / 1000) ** 0.5
    if fill == "random":
        assert scipy.stats.kstest(erased[changed].ravel(), "uniform").pvalue > 0.001
    else:
        expected = np.broadcast_to(np.float32(fill), erased[changed].shape)
        np.testing.assert_array_equal(erased[changed], expected)


@cases.each("fill", ["mean", 3.0, (0.1, -1.0, 0.0)])
def test_refuses_fills_that_are_no_colour(fill):
    with pytest.raises(ValueError, match="random_erasing: fill must be"):
        geometric.random_erasing(fill=fill)
