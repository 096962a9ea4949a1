"""Linear decoding of shape and texture: planted factors are decoded, noise is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias import data
from jbias.evals.activations import features, linear_decoding
from jbias.models import cnn, taps

K, N = 4, 96


class Planted(nn.Module):
    """A network with three sites: one-hot shapes, one-hot textures, and noise.

    The red and green values of the first pixel, divided by 10, are shape and texture.
    """

    tap: taps.Tap | None = None

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        red, green = jnp.round(image[:, 0, 0, :2] * 255 / 10).astype(int).T
        for site, x in (
            ("shape", jax.nn.one_hot(red, K)),
            ("texture", jax.nn.one_hot(green, K)[:, None, None]),
            ("noise", image[:, 1:, 1:]),
        ):
            x = taps.through(self, x, site, key, train)
        return nn.Dense(K)(x.reshape(len(x), -1))


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (N, 6, 6, 3), np.uint8)
    shape, texture = np.arange(N) % K, np.arange(N) // K % K
    images[:, 0, 0, 0], images[:, 0, 0, 1] = 10 * shape, 10 * texture
    net = Planted()
    variables = net.init(jax.random.key(0), jnp.zeros((1, 6, 6, 3)))
    return net, variables, images, {"label": shape + 7, "texture": texture}


@pytest.fixture(scope="module")
def numbers_by_name(planted):
    net, variables, images, columns = planted
    numbers = linear_decoding.measure(net, variables, images, columns, batch=40)
    numbers_by_name = {(number.metric, number.condition): number for number in numbers}
    assert len(numbers_by_name) == len(numbers)
    return numbers_by_name


def near_chance(number, chance=1 / K):
    # With balanced folds chance is slightly lower: a class left out is rarer in the rest.
    return abs(number.value - chance) < 4 * np.sqrt(chance * (1 - chance) / number.n)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("site_factor", "other_factor"), [("shape", "texture"), ("texture", "shape")]
)
def test_each_site_decodes_the_factor_that_it_encodes(
    numbers_by_name, site_factor, other_factor
):
    assert numbers_by_name[f"{site_factor}_decoding", site_factor][1:4] == (1, N, N)
    assert numbers_by_name[f"{site_factor}_decodability", site_factor].value == 1
    assert near_chance(numbers_by_name[f"{other_factor}_decoding", site_factor])
    assert near_chance(numbers_by_name[f"{site_factor}_decoding_shuffled", site_factor])
    assert numbers_by_name[
        f"{site_factor}_correlation", site_factor
    ].value == pytest.approx(1)
    assert numbers_by_name[f"{other_factor}_correlation", site_factor].value < 0
    dimensions = {
        factor: numbers_by_name[f"{factor}_dimensions", site_factor].value
        for factor in (site_factor, other_factor)
    }
    assert dimensions[site_factor] == pytest.approx(
        numbers_by_name["residual_dimensions", site_factor].value
    )
    assert dimensions[other_factor] < 0.2


def test_noise_decodes_nothing(numbers_by_name):
    for factor in ("shape", "texture"):
        assert near_chance(numbers_by_name[f"{factor}_decoding", "noise"])
        assert near_chance(numbers_by_name[f"{factor}_decoding_shuffled", "noise"])
        assert abs(numbers_by_name[f"{factor}_correlation", "noise"].value) < 0.1
        assert numbers_by_name[f"{factor}_decoding_chance", ""].value == 1 / K


def test_sites_come_in_the_networks_order(numbers_by_name):
    conditions = dict.fromkeys(c for _, c in numbers_by_name if c)
    assert list(conditions) == ["shape", "texture", "noise"]


def test_numbers_do_not_depend_on_the_batch_size(planted, numbers_by_name):
    net, variables, images, columns = planted
    numbers = linear_decoding.measure(
        net, variables, images, columns, sites=("texture",), batch=17
    )
    for number in numbers:
        if number.condition:
            assert number.value == pytest.approx(
                numbers_by_name[number.metric, number.condition].value
            )


class Exemplars(nn.Module):
    """A network whose features encode an image's exemplar and not its class."""

    tap: taps.Tap | None = None

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        which = jnp.round(image[:, 0, 0, 0] * 255).astype(int)
        x = taps.through(self, jax.nn.one_hot(which, 24), "exemplar", key, train)
        return nn.Dense(K)(x)


@pytest.mark.slow
def test_a_known_exemplar_is_no_shape():
    """Memorised exemplars allow decoding of shapes, unless folds separate exemplars."""
    rng = np.random.default_rng(0)
    exemplar = rng.permutation(np.repeat(np.arange(24), 6))
    images = np.zeros((144, 6, 6, 3), np.uint8)
    images[:, 0, 0, 0] = exemplar
    net = Exemplars()
    variables = net.init(jax.random.key(0), jnp.zeros((1, 6, 6, 3)))
    columns = {"label": exemplar % K, "texture": rng.integers(0, K, 144)}
    leaked, *_ = _select(
        "shape_decoding", linear_decoding.measure(net, variables, images, columns)
    )
    assert leaked.value == 1
    columns["shape_exemplar"] = exemplar
    separated, *_ = _select(
        "shape_decoding", linear_decoding.measure(net, variables, images, columns)
    )
    assert separated.value < 0.5
    numbers = linear_decoding.measure(net, variables, images, columns)
    shuffled, *_ = _select("shape_decoding_shuffled", numbers)
    # Images of an exemplar are not independent: n is the number of exemplars, 24.
    assert abs(shuffled.value - 1 / K) < 4 * np.sqrt(1 / K * (1 - 1 / K) / 24)


def _select(metric, numbers):
    return [number for number in numbers if number.metric == metric]


class Plain(nn.Module):
    """A network with three sites: the image as a map, as tokens and as a row."""

    tap: taps.Tap | None = None

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        b = len(image)
        x = taps.through(self, image, "map", key, train)
        x = taps.through(self, x.reshape(b, -1, 3), "tokens", key, train)
        x = taps.through(self, x.reshape(b, -1), "row", key, train)
        return nn.Dense(2)(x)


@pytest.fixture(scope="module")
def plain():
    net = Plain()
    return net, net.init(jax.random.key(0), jnp.zeros((1, 30, 30, 3)))


def test_features_are_means_of_image_blocks(plain):
    net, variables = plain
    image = np.random.default_rng(0).integers(0, 256, (5, 30, 30, 3), np.uint8)
    x = image / np.float32(255)
    site_features = features.read(net, variables, image, batch=3, columns=4000)
    assert list(site_features) == ["map", "tokens", "row"]
    assert {array.dtype for array in site_features.values()} == {np.dtype(np.float32)}
    quarters = x.reshape(5, 2, 15, 2, 15, 3).mean((2, 4)).reshape(5, -1)
    np.testing.assert_allclose(site_features["map"], quarters, atol=1e-6)
    np.testing.assert_allclose(site_features["tokens"], x.mean((1, 2)), atol=1e-6)
    np.testing.assert_allclose(site_features["row"], x.reshape(5, -1), atol=1e-6)
    site_features = features.read(
        net, variables, image, batch=3, pool=4, sites=("map",)
    )
    # 30 in four parts: 8, 8, 7 and 7.
    first = x[:, :8, 23:].mean((1, 2))
    np.testing.assert_allclose(site_features["map"][:, 9:12], first, atol=1e-6)


def test_projections_keep_distances(plain):
    net, variables = plain
    image = np.random.default_rng(0).integers(0, 256, (12, 30, 30, 3), np.uint8)
    pixels = image.reshape(12, -1) / 255
    projected = features.read(net, variables, image, columns=512)["row"]
    assert projected.shape == (12, 512)

    def squares(x):
        return ((x[:, None] - x[None]) ** 2).sum(-1)[np.triu_indices(12, 1)]

    # The relative error of a squared distance is sqrt(2 / 512).
    np.testing.assert_allclose(squares(projected) / squares(pixels), 1, atol=0.25)
    assert (squares(projected) / squares(pixels)).mean() == pytest.approx(1, abs=0.05)
    projected_again = features.read(net, variables, image, columns=512, seed=1)["row"]
    assert abs(projected_again - projected).max() > 0.1


def test_normalized_features_keep_relative_distances():
    x = np.random.default_rng(0).standard_normal((20, 50)) + 3
    normalized = linear_decoding.normalize_features(x)
    assert normalized.shape == (20, 20)
    np.testing.assert_allclose(normalized.mean(0), 0, atol=1e-7)
    assert (normalized**2).sum(1).mean() == pytest.approx(1, rel=1e-6)
    centred = x - x.mean(0)
    scale = (centred**2).sum(1).mean()
    np.testing.assert_allclose(
        normalized @ normalized.T, centred @ centred.T / scale, atol=1e-6
    )


@pytest.mark.slow
def test_an_untrained_network_distinguishes_textures_of_the_embedded_set():
    """Decoding is above chance and above shuffled labels, as in Hermann and Lampinen."""
    source = data.load("shapes", "cue_conflict", n=240)
    net = cnn.CNN(16, width=16)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    numbers = linear_decoding.measure(
        net, variables, source.images, source.columns, sites=("stage1",)
    )
    numbers_by_metric = {number.metric: number for number in numbers}
    assert numbers_by_metric["shape_decoding_chance"].value == 1 / 16
    assert numbers_by_metric["texture_decoding"].value > 0.15
    assert near_chance(numbers_by_metric["texture_decoding_shuffled"], 1 / 16)


def test_the_number_of_images_is_limited_and_unknown_textures_are_left_out(planted):
    net, variables, images, columns = planted
    numbers = linear_decoding.measure(
        net, variables, images, columns, sites=("shape",), most=60
    )
    assert {number.n for number in numbers} == {60}
    unknown = np.where(columns["texture"] == 2, -1, columns["texture"])
    columns_with_unknown = dict(columns, texture=unknown)
    numbers = linear_decoding.measure(
        net, variables, images, columns_with_unknown, sites=("shape",)
    )
    assert {number.n for number in numbers} == {N * 3 // 4}
    assert _select("texture_decoding_chance", numbers)[0].value == 1 / 3


def test_invalid_arguments_are_refused(planted):
    net, variables, images, columns = planted
    with pytest.raises(ValueError, match="columns 'label' and 'texture', got .'label'"):
        linear_decoding.measure(net, variables, images, {"label": columns["label"]})
    with pytest.raises(ValueError, match="sites must be of shape, texture, noise"):
        linear_decoding.measure(net, variables, images, columns, sites=("stage9",))
    message = "a shape needs three pictures of its own; "
    with pytest.raises(ValueError, match=rf"{message}class \d+ \(from 0\) has"):
        linear_decoding.measure(net, variables, images, columns, most=6)
    class_names = [*map(str, range(7)), "cat", "n02012849", "c9", "c10"]
    with pytest.raises(
        ValueError, match=rf"{message}(cat|crane \(n02012849\)|c9|c10) has"
    ):
        linear_decoding.measure(
            net, variables, images, columns, most=6, classes=class_names
        )
    with pytest.raises(ValueError, match="folds must be at least 3, got 2"):
        linear_decoding.measure(net, variables, images, columns, folds=2)
    with pytest.raises(ValueError, match="strengths must be above 0"):
        linear_decoding.measure(net, variables, images, columns, strengths=(0.1, 0.0))
    all_unknown = dict(columns, texture=np.full(N, -1))
    with pytest.raises(ValueError, match="no image has a shape and a texture"):
        linear_decoding.measure(net, variables, images, all_unknown)
