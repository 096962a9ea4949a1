"""Odd one out: the authors' numbers, chance where order is nothing, 1 where it is all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias.evals import decisions, inference, odd_one_out, prepared_sets, probe
from jbias.models import taps
from tests import cases

RANDOM = np.random.default_rng(0)
RAMP = np.linspace(0, 1, 16).reshape(4, 4)


class Planted(nn.Module):
    """Sites hold the pixels, whether tiles are a ramp, and the tiles' means over places."""

    tap: taps.Tap | None = None

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        b, h, w, _ = image.shape
        tiles = image.reshape(b, 4, h // 4, 4, w // 4, 3).mean((2, 4))
        bag = jnp.concatenate([tiles, tiles**2, jnp.sin(9 * tiles)], -1).mean((1, 2))
        whole = (abs(tiles[..., 0] - RAMP[None]) < 0.01).all((1, 2))
        for site, x in (
            ("pixels", image.reshape(b, -1)),
            ("whole", jnp.stack([whole, ~whole, 0 * whole], -1).astype(jnp.float32)),
            ("bag", bag),
        ):
            x = taps.through(self, x, site, key, train)
        return nn.Dense(2)(x)


def measured(images, *, ends_too=False, **options):
    net = Planted()
    variables = net.init(jax.random.key(0), jnp.zeros((1, *images.shape[1:])))
    columns = {"index": np.arange(len(images)), "label": np.zeros(len(images), int)}
    found = odd_one_out.measure(net, variables, images, columns, batch=64, **options)
    assert {one.n for one in found} == {len(images)}
    by = {}
    for one in found:
        by.setdefault(one.metric, {})[one.condition] = one.value
    ends = by.pop("odd_one_out_lower"), by.pop("odd_one_out_upper")
    assert [*by] == ["odd_one_out"]
    told, (lower, upper) = by["odd_one_out"], ends
    assert all(
        lower[site] - 1e-12 <= told[site] <= upper[site] + 1e-12 for site in told
    )
    return (told, *ends) if ends_too else told


def triple(*rows):
    return odd_one_out.scores(np.array(rows, float)[:, None]).item()


def test_a_published_example():
    """Distances 1.5 and 2 from the first, and 0.5 between the others."""
    rows = np.array([(1, 2, 3), (3, 1, 2), (3, 2, 1)])
    np.testing.assert_allclose(1 - np.corrcoef(rows)[0, 1:], [1.5, 2])
    np.testing.assert_allclose(1 - np.corrcoef(rows)[1, 2], 0.5)
    assert triple(*rows) == 1
    assert triple(*rows[[1, 0, 2]]) == triple(*rows[[2, 1, 0]]) == 0
    assert triple(*(5 * rows - 3)) == 1  # Neither scale nor offset counts.


@cases.each(
    ("rows", "score"),
    [
        ([(1, 2, 4)] * 3, 1 / 3),
        ([(1, 2, 4), (4, 2, 1), (1, 2, 4)], 0),
        ([(0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 1, 0)], 1 / 3),
        ([(1, 0, 0, 0), (1, 0, 0, 1e-7), (0, 1, 0, 0)], 0),
        ([(2, 2, 2), (1, 2, 4), (1, 2, 4)], 0),
        ([(1, 2, 4), (1, 2, 4), (3, 3, 3)], 0),
    ],
)
def test_of_equals_none_comes_first_and_a_constant_is_never_right(rows, score):
    assert triple(*rows) == pytest.approx(score, abs=0)


def test_unlike_features_are_right_as_often_as_chance():
    share = odd_one_out.scores(RANDOM.random((3, 3000, 20))).mean()
    assert abs(share - 1 / 3) < 4 * np.sqrt(2 / 9 / 3000)


def test_a_bag_of_tiles_has_a_third_exactly_and_pixels_have_it_by_chance():
    """Even of photographs whose left is dark and whose right is light."""
    images = RANDOM.integers(0, 100, (900, 16, 16, 3))
    images += np.arange(0, 160, 10)[:, None] // 40 * 30
    found = measured(images.astype(np.uint8))
    assert found["bag"] == found[""] == pytest.approx(1 / 3, abs=1e-12)
    assert abs(found["pixels"] - 1 / 3) < 4 * np.sqrt(2 / 9 / 900)


def test_intervals_are_of_the_scores_and_not_of_a_share():
    """A constant has none; by pixels it is that of the scores' own deviation."""
    images = RANDOM.integers(0, 256, (900, 16, 16, 3)).astype(np.uint8)
    found, lower, upper = measured(images, ends_too=True)
    assert lower["bag"] == upper["bag"] == lower[""] == upper[""]
    assert lower["bag"] == pytest.approx(1 / 3)
    p = found["pixels"]  # No two distances are equal: each score is 0 or 1.
    expected = 2 * 1.96 * np.sqrt(p * (1 - p) / 900)
    assert upper["pixels"] - lower["pixels"] == pytest.approx(expected, rel=0.1)


def test_what_knows_the_arrangement_tells_every_image():
    images = np.repeat(np.uint8(255 * RAMP)[None], 40, 0)
    images = images.repeat(4, 1).repeat(4, 2)[..., None].repeat(3, -1)
    assert measured(images)["whole"] == 1
    assert measured(images[:, ::-1])["whole"] == pytest.approx(
        1 / 3
    )  # Never arranged so.


def test_draws_follow_the_image_alone():
    images = RANDOM.integers(0, 256, (70, 16, 16, 3), np.uint8)
    assert measured(images) == measured(images)
    assert (odd_one_out._orders(0, 3) == odd_one_out._orders(0, 3)).all()
    assert (odd_one_out._orders(0, 3) != odd_one_out._orders(0, 4)).any()
    assert [*measured(images, sites=("whole",))] == ["whole", ""]
    with pytest.raises(
        ValueError, match="^odd_one_out: sites must be of pixels, whole"
    ):
        measured(images, sites=("stem",))


def test_a_network_without_sites_is_left_out_by_name():
    made = probe.Probe(
        {"": ()}, probe.identity, decisions.per_condition(iter), inside=True
    )
    blind = inference.BoundJaxNetwork(lambda variables, image: image, {})
    with pytest.raises(ValueError, match="odd_one_out needs a network's sites inside"):
        prepared_sets.check_needs("odd_one_out", made, blind, None)
