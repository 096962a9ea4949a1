"""Affinity, diversity and MixDiversity: oracles are the training transforms and limits."""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import evals
from jbias.augment import cutmix, fmix, mixup
from jbias.stimuli import mixed_images, occlusion, shown
from tests import cases

N, K, SIDE = 12, 4, 8
IMAGES = np.random.default_rng(0).integers(0, 256, (N, SIDE, SIDE, 3), np.uint8)
WEIGHTS = np.random.default_rng(1).normal(0, 0.7, (SIDE * SIDE * 3, K))
LABEL = (IMAGES.reshape(N, -1) / 255 @ WEIGHTS).argmax(1)  # The network's own answers.


ROWS = 500 * N  # The same number in all tests, so that each method is compiled once.
INDEX = np.arange(ROWS, dtype=np.int32)


@functools.cache
def _make_probe() -> shown.Stimuli:
    return mixed_images.make(others=make_partners(IMAGES))


def make_probe(images=IMAGES) -> shown.Stimuli:
    """Return the shared probe with the given images as partners."""
    return _make_probe()._replace(
        conditions=mixed_images.make(others=make_partners(images)).conditions
    )


def make_partners(images) -> shown.Partners:
    return shown.Partners("test", f"{zlib.crc32(images)}", lambda: images)


def uniform_images(value: int, n: int = ROWS) -> np.ndarray:
    return np.full((n, SIDE, SIDE, 3), value, np.uint8)


@functools.partial(jax.jit, static_argnames=("show", "method"))
def _show(show, image, index, params, method):
    rows = shown.Rows(image.astype(jnp.float32) / 255, index, index, None)
    return show(rows, params, method)


def show_stimuli(
    mixing_probe: shown.Stimuli, condition: str, images, index
) -> np.ndarray:
    params = jax.tree.map(jnp.asarray, mixing_probe.conditions[condition])
    return np.asarray(
        _show(mixing_probe.show, images, index, params, mixing_probe.static(condition))
    )


def log_likelihood(images) -> jax.Array:
    """Return the log likelihoods of a network that is one linear layer."""
    return jax.nn.log_softmax(jnp.reshape(images, (len(images), -1)) @ WEIGHTS)


def decide(images, label) -> evals.Decisions:
    answers = np.asarray(log_likelihood(images))
    likelihood = np.exp(answers[np.arange(len(label)), label])
    return evals.Decisions(
        answers.argmax(1), {"label": label, "likelihood": likelihood.astype(np.float32)}
    )


@pytest.fixture(scope="module")
def mixed_results() -> dict:
    """Return decisions by condition, and "numbers"; images repeat with other indices."""
    images, label = np.tile(IMAGES, (ROWS // N, 1, 1, 1)), np.tile(LABEL, ROWS // N)
    decisions_by_condition = {
        name: decide(show_stimuli(make_probe(), name, images, INDEX), label)
        for name in make_probe().conditions
    }
    numbers = make_probe().numbers(decisions_by_condition)
    return decisions_by_condition | {
        "numbers": {(n.metric, n.condition): n for n in numbers}
    }


TRAINED = {
    "mixup": mixup.make(mix_group=N),
    "cutmix": cutmix.make(variant="torchbearer", mix_group=N),
    "fmix": fmix.make(mix_group=N),
}


@functools.cache
def measure_in_training(method: str) -> dict[str, np.ndarray]:
    """Return the means computed with the training transform, one value per batch."""
    target = jax.nn.one_hot(LABEL, K)
    rows = jnp.arange(N)

    @jax.jit
    @jax.vmap
    def mix_once(key):
        batch = {
            "image": jnp.asarray(IMAGES) / 255,
            "target": jnp.concatenate([target, jax.nn.one_hot(rows, N)], 1),
        }
        batch = TRAINED[method](batch, key)
        answers = log_likelihood(batch["image"])
        # One target column per image gives its share, and so the label of the majority.
        share = batch["target"][rows, K + rows]
        major = jnp.where(share >= 0.5, rows, batch["target"][:, K:].argmax(1))
        label = jnp.asarray(LABEL)[major]
        return {
            "mix_diversity": -(batch["target"][:, :K] * answers).sum(1).mean(),
            "diversity": -answers[rows, label].mean(),
            "accuracy": (answers.argmax(1) == label).mean(),
        }

    return jax.device_get(mix_once(jax.random.split(jax.random.key(2), 3000)))


@pytest.mark.slow
@cases.each("metric", ["mix_diversity", "diversity", "accuracy"])
@cases.each("method", mixed_images.METHODS, quick=("mixup",))
def test_means_equal_those_of_the_training_transforms(mixed_results, method, metric):
    """The tolerance is four standard errors, which are below 3 % of the value."""
    expected = measure_in_training(method)[metric]
    value = mixed_results["numbers"][metric, method].value
    condition = method + " by share" * (metric == "mix_diversity")
    decided_by_condition = mixed_results[condition]
    loss = -np.log(decided_by_condition.columns["likelihood"])
    values = (
        decided_by_condition.prediction == decided_by_condition.columns["label"]
        if metric == "accuracy"
        else loss
    )
    error = np.hypot(
        expected.std() / len(expected) ** 0.5, values.std() / len(values) ** 0.5
    )
    assert error < 0.03 * value
    assert value == pytest.approx(expected.mean(), abs=4 * float(error))


@pytest.mark.slow
def test_affinity_is_the_change_of_accuracy_in_points(mixed_results):
    numbers = mixed_results["numbers"]
    clean = numbers["accuracy", ""].value
    assert (
        clean
        == (mixed_results[""].prediction == mixed_results[""].columns["label"]).mean()
    )
    for method in mixed_images.METHODS:
        gap = 100 * (numbers["accuracy", method].value - clean)
        assert numbers["affinity", method].value == pytest.approx(gap)
        assert ("accuracy", f"{method} by share") not in numbers
    assert len(numbers) == 1 + 4 * len(mixed_images.METHODS)


@pytest.mark.slow
def test_an_image_mixed_with_itself_does_not_change():
    """Mixing an image with itself changes nothing: all losses are those of the image."""
    one_image_probe = make_probe(np.repeat(IMAGES[:1], N, 0))
    images, label = np.repeat(IMAGES[:1], ROWS, 0), np.repeat(LABEL[:1], ROWS)
    decisions_by_condition = {}
    for name in one_image_probe.conditions:
        stimuli = show_stimuli(one_image_probe, name, images, INDEX)
        np.testing.assert_allclose(stimuli, images / 255, atol=1e-6)
        decisions_by_condition[name] = decide(stimuli, label)
    loss = -np.log(decisions_by_condition[""].columns["likelihood"][0])
    for number in one_image_probe.numbers(decisions_by_condition):
        if number.metric != "accuracy":
            expected = 0 if number.metric == "affinity" else loss
            assert number.value == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("method", ["mixup", "fmix"])
def test_mixing_shares_have_their_distribution(method):
    """The share of a white image among black ones is uniform in [1/2, 1], or Beta(2, 1)."""
    black_partners = make_probe(uniform_images(0, N))
    major = show_stimuli(black_partners, method, uniform_images(255), INDEX).mean(
        (1, 2, 3)
    )
    # A mask of whole pixels may lack one of them.
    assert major.min() >= 0.5 - 1 / SIDE**2 and major.max() <= 1 + 1e-6
    shared = show_stimuli(
        black_partners, f"{method} by share", uniform_images(255), INDEX
    ).mean((1, 2, 3))
    for share, mean, std in ((major, 3 / 4, 12**-0.5 / 2), (shared, 2 / 3, 18**-0.5)):
        assert share.mean() == pytest.approx(mean, abs=4 * std / ROWS**0.5)
        assert share.std() == pytest.approx(std, rel=0.05)


def test_cutmix_has_the_larger_share_in_the_box_or_around_it():
    """This holds for the drawn share; a box cut at the border may show less."""
    stimuli = (
        show_stimuli(
            make_probe(uniform_images(0, N)), "cutmix", uniform_images(255), INDEX
        )[..., 0]
        > 0.5
    )
    is_box_inside_or_around = np.array(
        [[is_box(image), is_box(~image)] for image in stimuli]
    )
    assert is_box_inside_or_around.any(1).all()
    is_inside, is_around = (
        is_box_inside_or_around[:, 0] & ~is_box_inside_or_around[:, 1],
        is_box_inside_or_around[:, 1] & ~is_box_inside_or_around[:, 0],
    )
    assert 0.3 < is_inside.mean() and 0.3 < is_around.mean()
    # A centre near a corner shows a quarter of a box of at least half the image.
    assert stimuli.mean((1, 2))[is_inside].min() < 0.25
    assert stimuli.mean((1, 2))[is_around].min() > 0.4


def is_box(image: np.ndarray) -> bool:
    return image.sum() == image.any(0).sum() * image.any(1).sum()


@pytest.mark.slow
def test_draws_depend_only_on_the_index_of_the_image():
    images = np.tile(IMAGES, (ROWS // N, 1, 1, 1))
    for name in make_probe().conditions:
        stimuli = show_stimuli(make_probe(), name, images, INDEX)
        reversed_stimuli = show_stimuli(make_probe(), name, images[::-1], INDEX[::-1])
        np.testing.assert_allclose(reversed_stimuli[::-1], stimuli, atol=1e-6)
        if name:
            assert not np.allclose(stimuli[:N], stimuli[N : 2 * N])
    other_seed = show_stimuli(
        mixed_images.make(others=make_partners(IMAGES), seed=1), "mixup", images, INDEX
    )
    assert not np.allclose(
        other_seed, show_stimuli(make_probe(), "mixup", images, INDEX)
    )


@pytest.mark.slow
def test_only_mixed_images_are_cropped_and_mirrored():
    white = uniform_images(255, N)
    cropping_probe = mixed_images.make(others=make_partners(white), crop=2, mirror=True)
    assert (show_stimuli(cropping_probe, "", white, INDEX[:N]) == 1).all()
    stimuli = show_stimuli(cropping_probe, "mixup", white, INDEX[:N])
    assert (stimuli[:, 2:-2, 2:-2] > 1 - 1e-6).all() and (stimuli[:, 0] == 0).any()


def test_all_probes_share_one_array_of_partners():
    first, second = (
        mixed_images.make(others=make_partners(IMAGES), seed=seed) for seed in (0, 1)
    )
    partner_images = first.conditions["mixup"]["others"]
    assert partner_images is second.conditions["cutmix"]["others"]
    assert partner_images is occlusion.images_on_device(make_partners(IMAGES))


def test_partners_are_read_only_when_needed():
    def read():
        raise AssertionError

    unread_probe = mixed_images.make(others=shown.Partners("test", "sha", read))
    assert [*unread_probe.conditions][:4] == ["", *mixed_images.METHODS]
    with pytest.raises(KeyError, match="known: "):
        unread_probe.conditions["rm"]


@cases.each(
    ("options", "message"),
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
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mixed_images.make(others=make_partners(IMAGES), **options)
