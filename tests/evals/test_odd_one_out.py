"""Odd one out: published numbers, 1/3 if the order is not encoded, 1 if it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias.evals import inference, set_batches
from jbias.evals.activations import inside, odd_one_out
from jbias.measures import decisions
from jbias.models import taps
from tests import cases

RANDOM = np.random.default_rng(0)
RAMP = np.linspace(0, 1, 16).reshape(4, 4)


class Planted(nn.Module):
    """A network with three sites: pixels, an indicator of ordered tiles, and a bag of tiles."""

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


def measure(images, *, ends_too=False, **options):
    net = Planted()
    variables = net.init(jax.random.key(0), jnp.zeros((1, *images.shape[1:])))
    columns = {"index": np.arange(len(images)), "label": np.zeros(len(images), int)}
    numbers = odd_one_out.measure(net, variables, images, columns, batch=64, **options)
    assert {number.n for number in numbers} == {len(images)}
    values_by_metric = {}
    for number in numbers:
        values_by_metric.setdefault(number.metric, {})[number.condition] = number.value
    interval = (
        values_by_metric.pop("odd_one_out_lower"),
        values_by_metric.pop("odd_one_out_upper"),
    )
    assert [*values_by_metric] == ["odd_one_out"]
    values, (lower, upper) = values_by_metric["odd_one_out"], interval
    assert all(
        lower[site] - 1e-12 <= values[site] <= upper[site] + 1e-12 for site in values
    )
    return (values, *interval) if ends_too else values


def score_triple(rows):
    return odd_one_out.scores(np.array(rows, float)[:, None]).item()


def test_a_published_example():
    """The first row has the distances 1.5 and 2 from the other two, whose distance is 0.5."""
    rows = np.array([(1, 2, 3), (3, 1, 2), (3, 2, 1)])
    np.testing.assert_allclose(1 - np.corrcoef(rows)[0, 1:], [1.5, 2])
    np.testing.assert_allclose(1 - np.corrcoef(rows)[1, 2], 0.5)
    assert score_triple(rows) == 1
    assert score_triple(rows[[1, 0, 2]]) == score_triple(rows[[2, 1, 0]]) == 0
    assert score_triple(5 * rows - 3) == 1  # Scale and offset do not matter.


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
def test_ties_and_constant_features_score_zero(rows, score):
    assert score_triple(rows) == pytest.approx(score, abs=0)


def test_random_features_score_at_chance():
    share = odd_one_out.scores(RANDOM.random((3, 3000, 20))).mean()
    assert abs(share - 1 / 3) < 4 * np.sqrt(2 / 9 / 3000)


def test_a_bag_of_tiles_scores_exactly_a_third_and_pixels_score_at_chance():
    """This holds even for images with a dark left and a light right side."""
    images = RANDOM.integers(0, 100, (900, 16, 16, 3))
    images += np.arange(0, 160, 10)[:, None] // 40 * 30
    values = measure(images.astype(np.uint8))
    assert values["bag"] == values[""] == pytest.approx(1 / 3, abs=1e-12)
    assert abs(values["pixels"] - 1 / 3) < 4 * np.sqrt(2 / 9 / 900)


def test_widths_of_intervals_follow_from_the_deviation():
    """A constant score has an interval of width 0; that of pixels follows from the deviation."""
    images = RANDOM.integers(0, 256, (900, 16, 16, 3)).astype(np.uint8)
    values, lower, upper = measure(images, ends_too=True)
    assert lower["bag"] == upper["bag"] == lower[""] == upper[""]
    assert lower["bag"] == pytest.approx(1 / 3)
    p = values["pixels"]  # No two distances are equal: each score is 0 or 1.
    expected = 2 * 1.96 * np.sqrt(p * (1 - p) / 900)
    assert upper["pixels"] - lower["pixels"] == pytest.approx(expected, rel=0.1)


def test_a_site_that_encodes_the_arrangement_scores_one():
    images = np.repeat(np.uint8(255 * RAMP)[None], 40, 0)
    images = images.repeat(4, 1).repeat(4, 2)[..., None].repeat(3, -1)
    assert measure(images)["whole"] == 1
    # The site never sees the arrangement that it encodes.
    assert measure(images[:, ::-1])["whole"] == pytest.approx(1 / 3)


def test_draws_depend_only_on_the_image():
    images = RANDOM.integers(0, 256, (70, 16, 16, 3), np.uint8)
    assert measure(images) == measure(images)
    assert (odd_one_out._orders(0, 3) == odd_one_out._orders(0, 3)).all()
    assert (odd_one_out._orders(0, 3) != odd_one_out._orders(0, 4)).any()
    assert [*measure(images, sites=("whole",))] == ["whole", ""]
    with pytest.raises(
        ValueError, match="^odd_one_out: sites must be of pixels, whole"
    ):
        measure(images, sites=("stem",))


def test_a_network_without_sites_is_refused():
    inside_probe = inside.Inside(decisions.per_condition(iter))
    network_without_sites = inference.BoundJaxNetwork(
        lambda variables, image: image, {}
    )
    with pytest.raises(ValueError, match="odd_one_out needs a network's sites inside"):
        set_batches.check_needs(
            "odd_one_out", inside_probe, network_without_sites, None
        )
