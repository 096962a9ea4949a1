"""RandConv: the filters, the mixture with the image, and the views."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage
import scipy.stats

from jbias.algos import base
from jbias.augment import compose, rand_conv
from tests import cases

KEY = jax.random.key(6)
IMAGE = jnp.asarray(np.random.default_rng(0).uniform(size=(8, 12, 12, 3)), jnp.float32)
BATCH = {"image": IMAGE, "target": jnp.eye(8), "index": jnp.arange(8)}


def test_probability_0_returns_the_batch_itself():
    assert rand_conv.make(p=0, views=1)(BATCH, KEY) is BATCH
    with pytest.raises(ValueError, match=r"rand_conv: p must be in \[0, 1\], got 2"):
        rand_conv.make(p=2)


def test_a_traced_probability_of_0_changes_no_bit():
    changed = jax.jit(lambda p: rand_conv.make(p=p, views=1)(BATCH, KEY)["image"])
    np.testing.assert_array_equal(changed(0.0), IMAGE)
    assert (changed(1.0) != IMAGE).any((1, 2, 3)).all()


@pytest.fixture(scope="module")
def filters():
    draw = jax.jit(jax.vmap(lambda k: rand_conv.draw_filter(k, (1, 3, 5, 7), 3)))
    return np.asarray(draw(jax.random.split(KEY, 4000)))


def sizes_of(filters):
    centre = filters.shape[1] // 2
    is_used = np.abs(filters).sum((2, 3, 4)) > 0
    return 2 * (centre - is_used.argmax(1)) + 1


def test_filter_sizes_are_equally_likely_with_variance_1_over_the_fan_in(filters):
    size = sizes_of(filters)
    sizes, counts = np.unique(size, return_counts=True)
    assert list(sizes) == [1, 3, 5, 7]
    assert scipy.stats.chisquare(counts).pvalue > 0.001
    for k in sizes:
        border = (7 - k) // 2
        inner = filters[size == k][:, border : 7 - border, border : 7 - border]
        assert (np.abs(filters[size == k]).sum((0, 3, 4)) > 0).sum() == k**2
        scaled = inner.ravel() * (3 * k**2) ** 0.5
        assert scipy.stats.kstest(scaled[:20000], "norm").pvalue > 0.001


def test_filtering_equals_scipys(filters):
    for kernel in filters[:4]:
        filtered = np.asarray(rand_conv.convolve(IMAGE[:2], jnp.asarray(kernel)))
        for n in range(2):
            for c in range(3):
                expected = sum(
                    scipy.ndimage.correlate(
                        np.asarray(IMAGE[n, :, :, i], np.float64),
                        kernel[:, :, i, c],
                        mode="constant",
                    )
                    for i in range(3)
                )
                np.testing.assert_allclose(filtered[n, :, :, c], expected, atol=1e-5)


def run_rand_conv(image=IMAGE, key=KEY, batch=None, **options):
    apply = rand_conv.make(**{"views": 1, **options})
    return apply({**BATCH, "image": image, **(batch or {})}, key)


def test_images_of_the_mean_colour_are_unchanged():
    """An image of the mean colour is not changed by filters."""
    mean = jnp.broadcast_to(jnp.array([0.485, 0.456, 0.406]), IMAGE.shape)
    filtered = jax.jit(
        lambda key: run_rand_conv(mean, key, mix=False, clip=False)["image"]
    )
    for key in jax.random.split(KEY, 4):
        np.testing.assert_allclose(filtered(key), mean, atol=1e-6)


@pytest.mark.slow
def test_filters_keep_the_variance_of_flat_images():
    """The variance of normalised flat images is 1 on average over filters."""
    std = jnp.array([0.229, 0.224, 0.225])
    mean = jnp.array([0.485, 0.456, 0.406])
    image = jnp.broadcast_to(mean + std, (1, 9, 9, 3))

    @jax.jit
    def square(keys):
        def square_of_one_filter(key):
            pixel = run_rand_conv(image, key, mix=False, clip=False)["image"][0, 4, 4]
            return ((pixel - mean) / std) ** 2

        return jax.lax.map(square_of_one_filter, keys)

    square = square(jax.random.split(KEY, 400))
    # 1200 squares of normal variates, not quite independent.
    assert abs(square.mean() - 1) < 5 * (2 / 1200) ** 0.5


@pytest.mark.slow
def test_one_filter_and_one_share_for_the_whole_batch():
    """x' - x = a (F(x) - x): the same a and F for all images, a uniform in (0, 1)."""

    @jax.jit
    def share(key):
        # The same random streams with and without mixing.
        plain = run_rand_conv(key=key, mix=False, clip=False)["image"]
        mixed = run_rand_conv(key=key, mix=True, clip=False)["image"]
        full_change, change = plain - IMAGE, mixed - IMAGE
        share = (change * full_change).sum() / (full_change**2).sum()
        return share, jnp.abs(change - share * full_change).max()

    shares, off = jax.lax.map(share, jax.random.split(KEY, 300))
    assert max(off) < 1e-5
    assert scipy.stats.kstest(np.asarray(shares), "uniform").pvalue > 0.001
    twice = run_rand_conv(jnp.concatenate([IMAGE[:4]] * 2))["image"]
    np.testing.assert_allclose(twice[:4], twice[4:], atol=1e-6)


def test_images_are_unfiltered_with_the_given_probability():
    @jax.jit
    def clean(key):
        return (run_rand_conv(key=key, p=0.7, mix=False)["image"] == IMAGE).all()

    share = np.mean(jax.lax.map(clean, jax.random.split(KEY, 400)))
    assert abs(share - 0.3) < 4 * (0.21 / 400) ** 0.5


@pytest.mark.slow
def test_images_are_clipped_by_default():
    loose = run_rand_conv(mix=False, clip=False)["image"]
    assert loose.min() < 0 or loose.max() > 1
    np.testing.assert_array_equal(
        run_rand_conv(mix=False)["image"], jnp.clip(loose, 0, 1)
    )


@pytest.mark.slow
def test_three_views_have_three_filters():
    """The first view has the label; each view equals the augmentation with one view."""
    batch = {"weight": jnp.arange(1.0, 9.0)}
    filtered = run_rand_conv(views=3, batch=batch)
    assert filtered["views"] == 3 and filtered["consistency"] == 10.0
    image = np.asarray(filtered["image"]).reshape(8, 3, 12, 12, 3)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert (image[:, a] != image[:, b]).any((1, 2, 3)).all()
    weight = np.asarray(filtered["weight"]).reshape(8, 3)
    np.testing.assert_array_equal(weight[:, 0], batch["weight"])
    np.testing.assert_array_equal(weight[:, 1:], 0)
    np.testing.assert_array_equal(filtered["index"], np.repeat(np.arange(8), 3))
    np.testing.assert_array_equal(filtered["target"], np.repeat(np.eye(8), 3, axis=0))
    bare = run_rand_conv(views=3)
    np.testing.assert_array_equal(bare["weight"], np.tile([1.0, 0, 0], 8))


@pytest.mark.slow
def test_the_loss_equals_the_authors():
    """CE of the first view and the weight times the mean KL to the mean prediction."""
    batch = run_rand_conv(views=3, consistency=4.0)
    logits = jax.random.normal(KEY, (24, 8))
    log_p = np.asarray(jax.nn.log_softmax(logits), np.float64).reshape(8, 3, 8)
    p = np.exp(log_p)
    middle = np.log(p.mean(1, keepdims=True))
    expected = -log_p[np.arange(8), 0, np.arange(8)].mean()
    expected += 4.0 * (p * (log_p - middle)).sum(-1).mean()
    assert float(base.objective(logits, batch)) == pytest.approx(expected, rel=1e-5)


def test_clean_views_are_the_images():
    filtered = run_rand_conv(views=2, p=0)
    np.testing.assert_array_equal(filtered["image"], jnp.repeat(IMAGE, 2, axis=0))


def test_views_of_another_transform_have_a_filter_each():
    doubled = compose.views(views=2)(BATCH, KEY)
    filtered = rand_conv.make(views=1)(doubled, KEY)
    assert filtered["views"] == 2 and "consistency" not in filtered
    image = np.asarray(filtered["image"]).reshape(8, 2, -1)
    assert (image[:, 0] != image[:, 1]).any(1).all()
    with pytest.raises(ValueError, match="rand_conv: views=3 must have a batch of one"):
        rand_conv.make(views=3)(doubled, KEY)


@cases.each("sizes", [(), (2,), (3, 0)])
def test_refuses_filters_without_a_centre(sizes):
    with pytest.raises(ValueError, match="rand_conv: sizes must be odd"):
        rand_conv.make(sizes=sizes)
