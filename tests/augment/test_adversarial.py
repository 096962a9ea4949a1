"""Attacks equal PyTorch's trajectories and stay inside their ball."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.augment import adversarial
from tests import cases

ORACLE = np.load(pathlib.Path(__file__).parents[1] / "oracles" / "pgd.npz")
CASES = {  # Those of tests/oracles/pgd.py.
    "linf": ("linf", dict(eps=0.05, step_size=0.02)),
    "l2": ("l2", dict(eps=0.5, step_size=0.2)),
    "coarse": ("linf", dict(eps=0.02, step_size=0.08)),
    "outside": ("l2", dict(eps=3.0, step_size=1.5)),
}
IMAGE = jnp.asarray(ORACLE["image"])
KEY = jax.random.key(4)


def loss(image):
    """Return the oracle's net: convolution, ReLU, mean pooling, linear, cross-entropy."""
    kernel = jnp.transpose(ORACLE["kernel"], (2, 3, 1, 0))
    x = jax.lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = jax.nn.relu(x + ORACLE["shift"].reshape(1, 1, 1, -1))
    x = x.reshape(-1, 4, 2, 4, 2, 4).mean((2, 4))
    # PyTorch flattens (c h w).
    logits = jnp.transpose(x, (0, 3, 1, 2)).reshape(len(x), -1) @ ORACLE["linear"].T
    log_p = jax.nn.log_softmax(logits)
    return -log_p[jnp.arange(len(x)), ORACLE["label"]]


@functools.cache
def compile_attack(norm, **options):
    """Return one compiled attack for all sizes and numbers of steps."""

    @jax.jit
    def run(numbers):
        return adversarial.pgd(loss, IMAGE, KEY, norm=norm, **numbers, **options)

    return run


@functools.cache
def attack(case, steps, **options):
    norm, numbers = CASES[case]
    return np.asarray(compile_attack(norm, **options)({**numbers, "steps": steps}))


def size(x, norm):
    x = np.abs(np.asarray(x, np.float64) - np.asarray(IMAGE, np.float64))
    return x.max((1, 2, 3)) if norm == "linf" else np.sqrt((x**2).sum((1, 2, 3)))


@cases.each("case", CASES)
def test_iterates_equal_pytorchs(case):
    """Float32 against float64: no gradient of the oracle is near enough zero to turn."""
    for steps in (1, 2, 3, 5):
        expected = ORACLE[f"{case}/iterates"][steps - 1]
        np.testing.assert_allclose(attack(case, steps), expected, atol=2e-6)


def test_best_iterates_equal_pytorchs():
    for steps in (2, 5):
        expected = ORACLE["coarse/bests"][steps - 1]
        best = attack("coarse", steps, keep_best=True)
        np.testing.assert_allclose(best, expected, atol=2e-6)
    assert (attack("coarse", 5) != best).any()


@cases.each("case", CASES)
@cases.each("random_start", [False, True])
def test_attacked_images_stay_in_the_ball_and_in_0_to_1(case, random_start):
    norm, numbers = CASES[case]
    for steps in (0, 3):
        image = attack(case, steps, random_start=random_start)
        assert (size(image, norm) <= numbers["eps"] + 1e-6).all()
        assert image.min() >= 0 and image.max() <= 1


@pytest.mark.parametrize("case", ["linf", "l2"])
def test_random_starts_are_within_the_ball(case):
    """Starts differ between images; l2 is at the full distance, before clipping."""
    starts = attack(case, 0, random_start=True)
    norm, numbers = CASES[case]
    distance, eps = size(starts, norm), numbers["eps"]
    assert (distance > 0.9 * eps).all()
    change = (starts - IMAGE).reshape(4, -1)
    assert np.abs(np.corrcoef(change)[np.triu_indices(4, 1)]).max() < 0.3
    if case == "linf":
        inside = change[(starts.reshape(4, -1) > 0) & (starts.reshape(4, -1) < 1)]
        assert inside.std() == pytest.approx(eps / 3**0.5, rel=0.1)


def test_random_starts_depend_on_the_place_in_the_batch_only():
    """The starts of the first images do not depend on the rest of the batch."""
    norm, numbers = CASES["linf"]
    first_two = adversarial.pgd(
        lambda x: x.sum((1, 2, 3)),
        IMAGE[:2],
        KEY,
        norm=norm,
        steps=0,
        random_start=True,
        **numbers,
    )
    full_batch = attack("linf", 0, random_start=True)
    np.testing.assert_allclose(first_two, full_batch[:2], atol=1e-7)


@pytest.mark.slow
def test_one_step_of_the_whole_ball_is_the_fast_gradient_sign():
    numbers = {"eps": 0.03, "step_size": 0.03, "steps": 1}
    image = compile_attack("linf")(numbers)
    gradient = jax.grad(lambda x: loss(x).sum())(IMAGE)
    expected = jnp.clip(IMAGE + 0.03 * jnp.sign(gradient), 0, 1)
    np.testing.assert_allclose(image, expected, atol=1e-7)


@cases.each("case", CASES)
def test_the_best_iterate_has_the_largest_loss(case):
    best = loss(attack(case, 3, keep_best=True))
    for steps in (0, 1, 2, 3):
        assert (best >= loss(attack(case, steps)) - 1e-5).all()


def test_attacks_raise_the_loss():
    assert (loss(attack("l2", 5)) > loss(IMAGE) + 0.1).all()


@pytest.mark.slow
def test_images_of_a_batch_are_attacked_independently():
    def loss_of_first_two(image):
        return loss(jnp.concatenate([image, IMAGE[2:]]))[:2]

    norm, numbers = CASES["linf"]
    first_two = adversarial.pgd(
        loss_of_first_two, IMAGE[:2], norm=norm, steps=3, **numbers
    )
    np.testing.assert_allclose(first_two, attack("linf", 3)[:2], atol=1e-6)


def test_a_ball_of_size_zero_holds_the_image_alone():
    """With eps = 0, also traced, the image is unchanged."""
    numbers = {"eps": 0.0, "step_size": 0.1, "steps": 3}
    for norm in ("linf", "l2"):
        np.testing.assert_array_equal(compile_attack(norm)(numbers), IMAGE)


@pytest.mark.slow
def test_attacked_images_have_no_gradient():
    def through(scale):
        attacked_image = adversarial.pgd(
            lambda x: loss(scale * x),
            IMAGE,
            norm="l2",
            eps=0.5,
            step_size=0.2,
            steps=2,
        )
        return attacked_image.sum()

    assert jax.grad(through)(1.0) == 0


def test_bad_norms_and_missing_keys_are_refused():
    with pytest.raises(ValueError, match="one of linf, l2, got 'l1'"):
        adversarial.pgd(loss, IMAGE, norm="l1", eps=1, steps=1, step_size=1)
    with pytest.raises(ValueError, match="random_start needs a key, got None"):
        adversarial.pgd(
            loss, IMAGE, norm="l2", eps=1, steps=1, step_size=1, random_start=True
        )


@pytest.mark.slow
def test_a_loop_equals_unrolled_steps():
    norm, numbers = CASES["l2"]
    image = adversarial.pgd(loss, IMAGE, norm=norm, steps=2, **numbers)
    np.testing.assert_allclose(image, attack("l2", 2), atol=1e-6)
