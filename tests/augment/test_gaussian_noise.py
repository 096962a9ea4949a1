"""Gaussian noise: its deviation, the share of images, and clipping."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import photometric

KEY = jax.random.key(6)
IMAGE = jnp.asarray(np.random.default_rng(0).uniform(size=(8, 12, 12, 3)), jnp.float32)
BATCH = {"image": IMAGE, "target": jnp.eye(8), "index": jnp.arange(8)}
GREY = jnp.full((2000, 6, 6, 3), 0.5)


def test_probability_0_returns_the_batch_itself():
    assert photometric.gaussian_noise(p=0)(BATCH, KEY) is BATCH
    with pytest.raises(
        ValueError, match=r"gaussian_noise: p must be in \[0, 1\], got 2"
    ):
        photometric.gaussian_noise(p=2)


def test_a_traced_probability_of_0_changes_no_bit():
    changed = jax.jit(lambda p: photometric.gaussian_noise(p=p)(BATCH, KEY)["image"])
    np.testing.assert_array_equal(changed(0.0), IMAGE)
    assert (changed(1.0) != IMAGE).any((1, 2, 3)).all()


def test_noise_is_normal_on_a_share_of_the_images():
    apply = jax.jit(photometric.gaussian_noise(sigma=0.1, p=0.3))
    noise = np.asarray(apply({"image": GREY}, KEY)["image"] - GREY)
    noisy = noise.any((1, 2, 3))
    assert abs(noisy.mean() - 0.3) < 4 * (0.21 / 2000) ** 0.5
    # 0.5 is five deviations from the ends.
    values = noise[noisy].ravel()
    assert scipy.stats.kstest(values[:20000] / 0.1, "norm").pvalue > 0.001


def test_each_image_draws_one_of_several_sigmas():
    apply = jax.jit(photometric.gaussian_noise(sigma=(0.01, 0.02, 0.04), p=1.0))
    noise = np.asarray(apply({"image": GREY}, KEY)["image"] - GREY)
    # 108 values give the deviation to 7 %: a factor 2 is ten of those away.
    level = np.round(np.log2(noise.std((1, 2, 3)) / 0.01)).astype(int)
    assert set(level) == {0, 1, 2}
    assert scipy.stats.chisquare(np.bincount(level)).pvalue > 0.001


def test_noisy_images_are_clipped():
    image = photometric.gaussian_noise(sigma=0.5, p=1.0)({"image": IMAGE}, KEY)["image"]
    assert image.min() == 0 and image.max() == 1


def test_defaults_are_the_published_ones():
    """The defaults are those of the paper's single-level runs."""
    default = photometric.gaussian_noise()(BATCH, KEY)["image"]
    published = photometric.gaussian_noise(sigma=0.5, p=0.5)(BATCH, KEY)["image"]
    np.testing.assert_array_equal(default, published)
