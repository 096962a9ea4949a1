"""Masks of occlusion: number and distribution of hidden pixels, and their fill."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.stimuli import occlusion, random_draws, shown
from tests import cases

KEY = jax.random.key(3)


@functools.partial(jax.jit, static_argnames=("draw", "count"))
def draw_many(draw, count):
    keys = jax.vmap(jax.random.fold_in, (None, 0))(KEY, jnp.arange(count))
    return jax.vmap(draw)(keys)


def draw_rectangles(area, height, width, *, restricted, count=200):
    draw = functools.partial(
        occlusion.rectangle_mask,
        area=jnp.float32(area),
        height=height,
        width=width,
        restricted=restricted,
    )
    return np.asarray(draw_many(draw, count))


def even_side(area, side):
    """Return the side in pixels, rounded by Python and then down to an even number."""
    return round(math.sqrt(area) * side) // 2 * 2


@pytest.mark.slow
@cases.each("size", [(32, 32), (28, 21)], quick=("size0",))
@cases.each("area", [0, 0.1, 0.25, 0.3, 0.5, 0.9, 1])
def test_restricted_rectangles_are_not_cut(area, size):
    """Rectangles are uncut and their centres in the allowed range, also for odd sides."""
    height, width = size
    hidden = draw_rectangles(area, height, width, restricted=True)
    sides = [even_side(area, side) for side in size]
    assert set(hidden.sum((1, 2))) == {math.prod(sides)}
    for axis, side, n in zip((2, 1), sides, size):
        assert set(hidden.any(axis).sum(1)) <= {side, 0}
        full_side = round(math.sqrt(area) * n)
        centres = range(round(full_side / 2), n - round(full_side / 2)) or [
            full_side // 2
        ]
        expected = {centre - full_side // 2 for centre in centres}
        if math.prod(sides):
            assert set(hidden.any(axis).argmax(1)) == expected


def test_restricted_centres_are_uniform():
    # A side of 8 of 32 pixels: first rows 0 to 23, equally likely.
    first = (
        draw_rectangles(0.0625, 32, 32, restricted=True, count=4800).any(2).argmax(1)
    )
    counts = np.bincount(first, minlength=24)
    assert len(counts) == 24
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_unrestricted_centres_are_uniform_over_all_pixels():
    """A pixel's frequency of being hidden follows from the number of centres near it."""
    count, side, n = 4000, 8, 16
    hidden = draw_rectangles((side / n) ** 2, n, n, restricted=False, count=count)
    # A rectangle reaches from centre - 4 to centre + 3.
    num_centres = np.array(
        [sum(c - 4 <= x < c + 4 for c in range(n)) for x in range(n)]
    )
    expected = np.outer(num_centres, num_centres) / n**2
    error = np.sqrt(expected * (1 - expected) / count)
    assert np.all(np.abs(hidden.mean(0) - expected) < 5 * error)
    assert hidden.sum((1, 2)).max() == side**2
    assert hidden.sum((1, 2)).min() == 4 * 4


@pytest.mark.parametrize(("area", "mean"), [("beta", 2 / 3), ("uniform", 1 / 2)])
def test_drawn_areas_have_their_distribution(area, mean):
    areas = np.asarray(draw_many(occlusion._area_sampler(area), 4000))
    distribution = scipy.stats.beta(2, 1) if area == "beta" else scipy.stats.uniform()
    assert distribution.mean() == pytest.approx(mean)
    assert abs(areas.mean() - mean) < 4 * distribution.std() / math.sqrt(len(areas))
    assert scipy.stats.kstest(areas, distribution.cdf).pvalue > 1e-3


@pytest.mark.slow
@cases.each("thousandths", [1, 100, 300, 700, 999])
def test_fourier_masks_hide_exactly_their_share(thousandths):
    count = int(occlusion.pixel_count(jnp.int32(thousandths), 28 * 30))
    assert count == math.ceil(thousandths * 28 * 30 / 1000)
    draw = functools.partial(
        occlusion.fourier_mask, count=jnp.int32(count), height=28, width=30
    )
    assert set(np.asarray(draw_many(draw, 20)).sum((1, 2))) == {count}


def test_fourier_masks_have_few_patches():
    """Neighbouring pixels rarely differ, and all positions are equally likely."""
    draw = functools.partial(
        occlusion.fourier_mask, count=jnp.int32(512), height=32, width=32
    )
    hidden = np.asarray(draw_many(draw, 300))
    assert abs(hidden.mean(0) - 0.5).max() < 5 * math.sqrt(0.25 / 300)
    for mask, neighbours in (
        (hidden[:, 1:], hidden[:, :-1]),
        (hidden[:, :, 1:], hidden[:, :, :-1]),
    ):
        edges = (mask != neighbours).sum((1, 2)) / 32
        assert 1 < edges.mean() < 2.5  # White noise would have 15.5.


def test_most_and_least_salient_pixels_follow_a_stable_sort():
    """The first of equal pixels is the more salient; the two orders are complements."""
    saliency = np.random.default_rng(0).integers(0, 4, (6, 5)).astype(np.float32)
    order = np.argsort(-saliency.ravel(), kind="stable")
    rank = occlusion.saliency_ranks(saliency)
    for count in (0, 7, 30):
        most, least = (
            np.asarray(occlusion.salient_mask(rank, jnp.int32(n), jnp.bool_(least)))
            for n, least in ((count, False), (30 - count, True))
        )
        assert set(np.flatnonzero(most)) == set(order[:count])
        np.testing.assert_array_equal(least, ~most)


@cases.each("side", [28, 32, 64, 224, 1024])
def test_counts_are_exact(side):
    pixels = side * side
    for thousandths in (1, 100, 250, 300, 999):
        count = int(
            jax.jit(occlusion.pixel_count, static_argnums=1)(
                jnp.int32(thousandths), pixels
            )
        )
        assert count == -(-thousandths * pixels // 1000)


@pytest.mark.slow
def test_hidden_pixels_come_from_the_same_place_in_another_image():
    images = np.random.default_rng(1).integers(0, 256, (5, 8, 8, 3), np.uint8)
    partners = shown.Partners("o", "test_same_place", lambda: images)
    params = occlusion.fill_params("here", "other", (0, 0, 0), partners)
    keys = random_draws.image_keys(0, jnp.uint32(1), jnp.arange(40))
    instead = occlusion.replacement(params, keys, other=True)
    hidden = np.random.default_rng(2).random((40, 8, 8)) < 0.5
    pasted = occlusion.paste(
        jnp.full((40, 8, 8, 3), -1.0), jnp.asarray(hidden), instead
    )
    drawn = set()
    for stimulus, mask in zip(np.asarray(pasted), hidden):
        sources = [
            i
            for i, image in enumerate(images)
            if np.allclose(stimulus[mask], image[mask] / 255, atol=1e-6)
        ]
        assert len(sources) == 1
        assert np.all(stimulus[~mask] == -1)
        drawn |= set(sources)
    assert drawn == set(range(5))


@cases.each(
    ("fill", "mean", "named"),
    [
        ("grey", (0, 0, 0), "fill"),
        ("mean", (0, 2, 0), "mean"),
        ("other", (0,) * 3, "oth"),
    ],
)
def test_fills_that_are_not_there_are_refused(fill, mean, named):
    with pytest.raises(ValueError, match=named):
        occlusion.fill_params("here", fill, mean, None)
