"""CutMix: boxes by slices, and label weights of the authors and of torchbearer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import cutmix
from tests import cases

KEY = jax.random.key(5)


@cases.each("sides", [(0, 3), (1, 1), (2, 5), (7, 4), (9, 30)])
def test_boxes_are_slices_cut_at_the_border(sides):
    height, width = 9, 13
    box = jax.jit(cutmix.box_mask, static_argnums=(2, 3))
    for centre in [(0, 0), (4, 6), (8, 12), (1, 11)]:
        expected = np.zeros((height, width), bool)
        low = [max(c - s // 2, 0) for c, s in zip(centre, sides)]
        high = [c + s // 2 for c, s in zip(centre, sides)]
        expected[low[0] : high[0], low[1] : high[1]] = True
        mask = box(jnp.array(centre), jnp.array(sides), height, width)
        np.testing.assert_array_equal(mask, expected)


def weights(draw, batch, count=3000):
    """Return label weights, and the share of kept pixels of the first image."""
    keys = jax.random.split(KEY, count)

    @jax.jit
    @jax.vmap
    def draw_many(key):
        mask, lam = draw(key, batch, False)
        return lam, mask[0].mean()

    return tuple(np.asarray(x, np.float64) for x in draw_many(keys))


def test_cutmix_draws_as_the_authors_do():
    """Weights are distributed as in a NumPy simulation; their mean is above 1/2."""
    height, width = 20, 32
    lam, kept_share = weights(
        cutmix.mix_sampler(1.0), {"image": np.zeros((1, height, width, 3))}
    )
    np.testing.assert_allclose(lam, kept_share, atol=1e-6)
    # In whole pixels.
    np.testing.assert_allclose(lam * height * width, (lam * 640).round(), atol=1e-3)
    rng = np.random.default_rng(0)
    expected = []
    for share in rng.beta(1, 1, 20000):
        cut = 1.0
        for length in (height, width):
            half, centre = int(length * (1 - share) ** 0.5) // 2, rng.integers(length)
            cut *= min(centre + half, length) - max(centre - half, 0)
        expected.append(1 - cut / (height * width))
    assert scipy.stats.ks_2samp(lam, expected).pvalue > 0.001
    assert lam.mean() > 0.5 + 10 * lam.std() / 3000**0.5


@pytest.mark.slow
def test_torchbearers_weight_is_the_drawn_share():
    """The weight is uniform; each image has its own box of the same size, cut at borders."""
    batch = {"image": np.zeros((4, 40, 40, 3))}
    draw = cutmix.mix_sampler(1.0, "torchbearer")
    lam, kept_share = weights(draw, batch)
    assert scipy.stats.kstest(lam, "uniform").pvalue > 0.001
    assert (kept_share >= lam - 0.06).all()  # Two rounded sides of 40 and an odd pixel.
    assert kept_share.mean() > lam.mean() + 0.05
    mask, _ = draw(KEY, batch, False)
    assert len({np.asarray(image_mask).tobytes() for image_mask in mask}) > 1


def test_unknown_variants_are_refused():
    with pytest.raises(ValueError, match="variant must be one of area, torchbearer"):
        cutmix.make(variant="fmix")
