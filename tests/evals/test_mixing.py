"""Affinity, diversity and MixDiversity: against training's own mixing, and in limits."""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import evals
from jbias.augment import cutmix, fmix, mixup
from jbias.evals import mixing, occlusion, probe
from tests import cases

N, K, SIDE = 12, 4, 8
IMAGES = np.random.default_rng(0).integers(0, 256, (N, SIDE, SIDE, 3), np.uint8)
WEIGHTS = np.random.default_rng(1).normal(0, 0.7, (SIDE * SIDE * 3, K))
LABEL = (IMAGES.reshape(N, -1) / 255 @ WEIGHTS).argmax(1)  # Right of images alone.


ROWS = 500 * N  # One number everywhere, so that each method is compiled once.
INDEX = np.arange(ROWS, dtype=np.int32)


@functools.cache
def _made() -> probe.Probe:
    return mixing.make(others=others(IMAGES))


def made(images=IMAGES) -> probe.Probe:
    """The one probe, with these partners."""
    return _made()._replace(conditions=mixing.make(others=others(images)).conditions)


def others(images) -> probe.Partners:
    return probe.Partners("test", f"{zlib.crc32(images)}", lambda: images)


def filled(value: int, n: int = ROWS) -> np.ndarray:
    return np.full((n, SIDE, SIDE, 3), value, np.uint8)


@functools.partial(jax.jit, static_argnames=("show", "method"))
def _shown(show, image, index, params, method):
    rows = probe.Rows(image.astype(jnp.float32) / 255, index, index, None)
    return show(rows, params, method)


def shown(of: probe.Probe, condition: str, images, index) -> np.ndarray:
    params = jax.tree.map(jnp.asarray, of.conditions[condition])
    return np.asarray(_shown(of.show, images, index, params, of.static(condition)))


def log_likelihood(images) -> jax.Array:
    """Return the log likelihoods of a network that is one linear layer."""
    return jax.nn.log_softmax(jnp.reshape(images, (len(images), -1)) @ WEIGHTS)


def decided(images, label) -> evals.Decisions:
    answers = np.asarray(log_likelihood(images))
    likelihood = np.exp(answers[np.arange(len(label)), label])
    return evals.Decisions(
        answers.argmax(1), {"label": label, "likelihood": likelihood.astype(np.float32)}
    )


@pytest.fixture(scope="module")
def told() -> dict:
    """Each image shown again and again, under other numbers."""
    images, label = np.tile(IMAGES, (ROWS // N, 1, 1, 1)), np.tile(LABEL, ROWS // N)
    found = {
        name: decided(shown(made(), name, images, INDEX), label)
        for name in made().conditions
    }
    numbers = made().numbers(found)
    return found | {"numbers": {(n.metric, n.condition): n for n in numbers}}


TRAINED = {
    "mixup": mixup.make(mix_group=N),
    "cutmix": cutmix.make(variant="torchbearer", mix_group=N),
    "fmix": fmix.make(mix_group=N),
}


@functools.cache
def trained(method: str) -> dict[str, np.ndarray]:
    """Return the same means by the transform of training, which has both labels, one per batch."""
    target = jax.nn.one_hot(LABEL, K)
    rows = jnp.arange(N)

    @jax.jit
    @jax.vmap
    def one(key):
        batch = {
            "image": jnp.asarray(IMAGES) / 255,
            "target": jnp.concatenate([target, jax.nn.one_hot(rows, N)], 1),
        }
        batch = TRAINED[method](batch, key)
        answers = log_likelihood(batch["image"])
        # Of each image the share, by a column of its own, and so the majority label.
        share = batch["target"][rows, K + rows]
        major = jnp.where(share >= 0.5, rows, batch["target"][:, K:].argmax(1))
        label = jnp.asarray(LABEL)[major]
        return {
            "mix_diversity": -(batch["target"][:, :K] * answers).sum(1).mean(),
            "diversity": -answers[rows, label].mean(),
            "accuracy": (answers.argmax(1) == label).mean(),
        }

    return jax.device_get(one(jax.random.split(jax.random.key(2), 3000)))


@pytest.mark.slow
@cases.each("metric", ["mix_diversity", "diversity", "accuracy"])
@cases.each("method", mixing.METHODS, quick=("mixup",))
def test_means_are_those_of_training(told, method, metric):
    """Within four standard errors of both, which are below 3 % of the value."""
    expected = trained(method)[metric]
    value = told["numbers"][metric, method].value
    shared = method + " by share" * (metric == "mix_diversity")
    one = told[shared]
    loss = -np.log(one.columns["likelihood"])
    each = one.prediction == one.columns["label"] if metric == "accuracy" else loss
    error = np.hypot(
        expected.std() / len(expected) ** 0.5, each.std() / len(each) ** 0.5
    )
    assert error < 0.03 * value
    assert value == pytest.approx(expected.mean(), abs=4 * float(error))


@pytest.mark.slow
def test_what_is_told(told):
    numbers = told["numbers"]
    clean = numbers["accuracy", ""].value
    assert clean == (told[""].prediction == told[""].columns["label"]).mean()
    for method in mixing.METHODS:
        gap = 100 * (numbers["accuracy", method].value - clean)
        assert numbers["affinity", method].value == pytest.approx(gap)
        assert ("accuracy", f"{method} by share") not in numbers
    assert len(numbers) == 1 + 4 * len(mixing.METHODS)


@pytest.mark.slow
def test_an_image_mixed_with_itself_is_itself():
    """Mixing an image with itself changes nothing: all losses are those of the image."""
    same = made(np.repeat(IMAGES[:1], N, 0))
    images, label = np.repeat(IMAGES[:1], ROWS, 0), np.repeat(LABEL[:1], ROWS)
    found = {}
    for name in same.conditions:
        stimuli = shown(same, name, images, INDEX)
        np.testing.assert_allclose(stimuli, images / 255, atol=1e-6)
        found[name] = decided(stimuli, label)
    loss = -np.log(found[""].columns["likelihood"][0])
    for number in same.numbers(found):
        if number.metric != "accuracy":
            expected = 0 if number.metric == "affinity" else loss
            assert number.value == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("method", ["mixup", "fmix"])
def test_shares(method):
    """White among black: the own share is uniform above a half, or Beta(2, 1)."""
    one = made(filled(0, N))
    major = shown(one, method, filled(255), INDEX).mean((1, 2, 3))
    # A mask of whole pixels may lack one of them.
    assert major.min() >= 0.5 - 1 / SIDE**2 and major.max() <= 1 + 1e-6
    shared = shown(one, f"{method} by share", filled(255), INDEX).mean((1, 2, 3))
    for share, mean, std in ((major, 3 / 4, 12**-0.5 / 2), (shared, 2 / 3, 18**-0.5)):
        assert share.mean() == pytest.approx(mean, abs=4 * std / ROWS**0.5)
        assert share.std() == pytest.approx(std, rel=0.05)


def test_cutmix_has_the_larger_share_in_the_box_or_around_it():
    """By the share that was drawn; a box cut at the border may leave less to see."""
    stimuli = shown(made(filled(0, N)), "cutmix", filled(255), INDEX)[..., 0] > 0.5
    ways = np.array([[is_box(image), is_box(~image)] for image in stimuli])
    assert ways.any(1).all()
    inside, around = ways[:, 0] & ~ways[:, 1], ways[:, 1] & ~ways[:, 0]
    assert 0.3 < inside.mean() and 0.3 < around.mean()
    # A centre near a corner leaves a quarter of a box of half the image or more.
    assert stimuli.mean((1, 2))[inside].min() < 0.25
    assert stimuli.mean((1, 2))[around].min() > 0.4


def is_box(image: np.ndarray) -> bool:
    return image.sum() == image.any(0).sum() * image.any(1).sum()


@pytest.mark.slow
def test_draws_are_keyed_by_the_image():
    images = np.tile(IMAGES, (ROWS // N, 1, 1, 1))
    for name in made().conditions:
        stimuli = shown(made(), name, images, INDEX)
        turned = shown(made(), name, images[::-1], INDEX[::-1])
        np.testing.assert_allclose(turned[::-1], stimuli, atol=1e-6)
        if name:
            assert not np.allclose(stimuli[:N], stimuli[N : 2 * N])
    again = shown(mixing.make(others=others(IMAGES), seed=1), "mixup", images, INDEX)
    assert not np.allclose(again, shown(made(), "mixup", images, INDEX))


@pytest.mark.slow
def test_crops_and_mirrors_are_of_mixed_images_alone():
    white = filled(255, N)
    one = mixing.make(others=others(white), crop=2, mirror=True)
    assert (shown(one, "", white, INDEX[:N]) == 1).all()
    stimuli = shown(one, "mixup", white, INDEX[:N])
    assert (stimuli[:, 2:-2, 2:-2] > 1 - 1e-6).all() and (stimuli[:, 0] == 0).any()


def test_partners_are_held_once_for_all_probes():
    one, other = (mixing.make(others=others(IMAGES), seed=seed) for seed in (0, 1))
    held = one.conditions["mixup"]["others"]
    assert held is other.conditions["cutmix"]["others"]
    assert held is occlusion.images_on_device(others(IMAGES))


def test_partners_are_read_when_they_are_needed():
    def read():
        raise AssertionError

    one = mixing.make(others=probe.Partners("test", "sha", read))
    assert [*one.conditions][:4] == ["", *mixing.METHODS]
    with pytest.raises(KeyError, match="known: "):
        one.conditions["rm"]


@cases.each(
    ("wrong", "said"),
    [
        ({"methods": "mixup"}, "methods must be one or more of"),
        ({"methods": ()}, "methods must be one or more of"),
        ({"methods": ("mixup", "rm")}, "methods must be one or more of"),
        ({"alpha": 0}, "alpha must be above 0"),
        ({"alpha": float("inf")}, "alpha must be above 0"),
        ({"spectrum": "pink"}, "spectrum must be one of"),
        ({"crop": 0.5}, "crop must be 0 pixels or more"),
    ],
)
def test_what_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        mixing.make(others=others(IMAGES), **wrong)
