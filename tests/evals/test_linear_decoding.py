import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias import data
from jbias.evals import features, linear_decoding
from jbias.models import cnn, taps

K, N = 4, 96


class Planted(nn.Module):
    """Its sites hold shape as one-hots, texture as one-hots, and neither.

    Shape and texture stand in the first pixel's red and green, as whole tenths.
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
def told(planted):
    numbers = linear_decoding.measure(*planted, batch=40)
    by = {(one.metric, one.condition): one for one in numbers}
    assert len(by) == len(numbers)
    return by


def near_chance(number, chance=1 / K):
    # Chance is a little less where folds are balanced: leaving out tells of the rest.
    return abs(number.value - chance) < 4 * np.sqrt(chance * (1 - chance) / number.n)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("here", "other"), [("shape", "texture"), ("texture", "shape")]
)
def test_each_site_decodes_what_it_holds(told, here, other):
    assert told[f"{here}_decoding", here][1:4] == (1, N, N)
    assert told[f"{here}_decodability", here].value == 1
    assert near_chance(told[f"{other}_decoding", here])
    assert near_chance(told[f"{here}_decoding_shuffled", here])
    assert told[f"{here}_correlation", here].value == pytest.approx(1)
    assert told[f"{other}_correlation", here].value < 0
    dimensions = {f: told[f"{f}_dimensions", here].value for f in (here, other)}
    assert dimensions[here] == pytest.approx(told["residual_dimensions", here].value)
    assert dimensions[other] < 0.2


def test_noise_decodes_nothing(told):
    for factor in ("shape", "texture"):
        assert near_chance(told[f"{factor}_decoding", "noise"])
        assert near_chance(told[f"{factor}_decoding_shuffled", "noise"])
        assert abs(told[f"{factor}_correlation", "noise"].value) < 0.1
        assert told[f"{factor}_decoding_chance", ""].value == 1 / K


def test_sites_come_in_the_networks_order(told):
    conditions = dict.fromkeys(c for _, c in told if c)
    assert list(conditions) == ["shape", "texture", "noise"]


def test_numbers_are_the_same_again_and_do_not_depend_on_the_batch(planted, told):
    again = linear_decoding.measure(*planted, sites=("texture",), batch=17)
    for one in again:
        if one.condition:
            assert one.value == pytest.approx(told[one.metric, one.condition].value)


class Exemplars(nn.Module):
    """A network whose features show an image's exemplar, and nothing of its class."""

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
    leaked, *_ = _of(
        "shape_decoding", linear_decoding.measure(net, variables, images, columns)
    )
    assert leaked.value == 1
    columns["shape_exemplar"] = exemplar
    apart, *_ = _of(
        "shape_decoding", linear_decoding.measure(net, variables, images, columns)
    )
    assert apart.value < 0.5
    told = linear_decoding.measure(net, variables, images, columns)
    shuffled, *_ = _of("shape_decoding_shuffled", told)
    # 24 exemplars: so few are as good as that many images.
    assert abs(shuffled.value - 1 / K) < 4 * np.sqrt(1 / K * (1 - 1 / K) / 24)


def _of(metric, told):
    return [one for one in told if one.metric == metric]


class Plain(nn.Module):
    """Its sites are the image as a map, as tokens and as a row."""

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


def test_features_are_means_of_parts_on_the_host(plain):
    image = np.random.default_rng(0).integers(0, 256, (5, 30, 30, 3), np.uint8)
    x = image / np.float32(255)
    found = features.read(*plain, image, batch=3, columns=4000)
    assert list(found) == ["map", "tokens", "row"]
    assert {one.dtype for one in found.values()} == {np.dtype(np.float32)}
    parts = x.reshape(5, 2, 15, 2, 15, 3).mean((2, 4)).reshape(5, -1)
    np.testing.assert_allclose(found["map"], parts, atol=1e-6)
    np.testing.assert_allclose(found["tokens"], x.mean((1, 2)), atol=1e-6)
    np.testing.assert_allclose(found["row"], x.reshape(5, -1), atol=1e-6)
    found = features.read(*plain, image, batch=3, pool=4, sites=("map",))
    # 30 in four parts: 8, 8, 7 and 7.
    first = x[:, :8, 23:].mean((1, 2))
    np.testing.assert_allclose(found["map"][:, 9:12], first, atol=1e-6)


def test_projections_keep_distances(plain):
    image = np.random.default_rng(0).integers(0, 256, (12, 30, 30, 3), np.uint8)
    whole = image.reshape(12, -1) / 255
    found = features.read(*plain, image, columns=512)["row"]
    assert found.shape == (12, 512)

    def squares(x):
        return ((x[:, None] - x[None]) ** 2).sum(-1)[np.triu_indices(12, 1)]

    # A square is known to sqrt(2 / 512) of itself.
    np.testing.assert_allclose(squares(found) / squares(whole), 1, atol=0.25)
    assert (squares(found) / squares(whole)).mean() == pytest.approx(1, abs=0.05)
    again = features.read(*plain, image, columns=512, seed=1)["row"]
    assert abs(again - found).max() > 0.1


def test_turning_rows_changes_no_distance():
    x = np.random.default_rng(0).standard_normal((20, 50)) + 3
    turned = linear_decoding.normalize_features(x)
    assert turned.shape == (20, 20)
    np.testing.assert_allclose(turned.mean(0), 0, atol=1e-7)
    assert (turned**2).sum(1).mean() == pytest.approx(1, rel=1e-6)
    centred = x - x.mean(0)
    scale = (centred**2).sum(1).mean()
    np.testing.assert_allclose(
        turned @ turned.T, centred @ centred.T / scale, atol=1e-6
    )


@pytest.mark.slow
def test_an_untrained_network_tells_textures_of_the_embedded_set():
    """Decoding is above chance and above shuffled labels, as in Hermann and Lampinen."""
    source = data.load("shapes", "cue_conflict", n=240)
    net = cnn.CNN(16, width=16)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    told = linear_decoding.measure(
        net, variables, source.images, source.columns, sites=("stage1",)
    )
    by = {one.metric: one for one in told}
    assert by["shape_decoding_chance"].value == 1 / 16
    assert by["texture_decoding"].value > 0.15
    assert near_chance(by["texture_decoding_shuffled"], 1 / 16)


def test_so_many_images_are_drawn(planted):
    told = linear_decoding.measure(*planted, sites=("shape",), most=60)
    assert {one.n for one in told} == {60}
    net, variables, images, columns = planted
    unknown = np.where(columns["texture"] == 2, -1, columns["texture"])
    some = dict(columns, texture=unknown)
    told = linear_decoding.measure(net, variables, images, some, sites=("shape",))
    assert {one.n for one in told} == {N * 3 // 4}
    assert _of("texture_decoding_chance", told)[0].value == 1 / 3


def test_what_does_not_fit_is_refused(planted):
    net, variables, images, columns = planted
    with pytest.raises(ValueError, match="columns 'label' and 'texture', got .'label'"):
        linear_decoding.measure(net, variables, images, {"label": columns["label"]})
    with pytest.raises(ValueError, match="sites must be of shape, texture, noise"):
        linear_decoding.measure(*planted, sites=("stage9",))
    told = "a shape needs three pictures of its own; "
    with pytest.raises(ValueError, match=rf"{told}class \d+ \(from 0\) has"):
        linear_decoding.measure(*planted, most=6)
    named = [*map(str, range(7)), "cat", "n02012849", "c9", "c10"]
    with pytest.raises(
        ValueError, match=rf"{told}(cat|crane \(n02012849\)|c9|c10) has"
    ):
        linear_decoding.measure(*planted, most=6, classes=named)
    with pytest.raises(ValueError, match="folds must be at least 3, got 2"):
        linear_decoding.measure(*planted, folds=2)
    with pytest.raises(ValueError, match="strengths must be above 0"):
        linear_decoding.measure(*planted, strengths=(0.1, 0.0))
    nothing = dict(columns, texture=np.full(N, -1))
    with pytest.raises(ValueError, match="no image has a shape and a texture"):
        linear_decoding.measure(net, variables, images, nothing)
