"""Labels and rows: smoothing, binary targets, and repeated images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import augment
from jbias.algos import base

KEY = jax.random.key(8)
TARGET = jnp.array([[1.0, 0, 0, 0], [0, 0.3, 0.7, 0], [0, 0, 0, 1]])
BATCH = {
    "image": jnp.arange(3 * 4.0).reshape(3, 2, 2, 1),
    "target": TARGET,
    "index": jnp.arange(3),
    "once": jax.random.key(0),
    "other": {"image": jnp.arange(12.0, 24.0).reshape(3, 2, 2, 1)},
}


def apply(name, batch=None, **options):
    return augment.AUGMENTS[name](**options)({**BATCH, **(batch or {})}, KEY)


def test_smoothing_is_the_formula_and_keeps_sums():
    smoothed = apply("smooth_labels", smoothing=0.2)
    np.testing.assert_allclose(smoothed["target"], 0.8 * TARGET + 0.05, rtol=1e-6)
    np.testing.assert_allclose(smoothed["target"].sum(1), 1, rtol=1e-6)
    assert smoothed["image"] is BATCH["image"]


def test_smoothing_mixes_the_loss_with_that_of_all_classes():
    logits = jax.random.normal(KEY, (3, 4))
    loss = base.objective(logits, apply("smooth_labels", smoothing=0.2))
    uniform = -jax.nn.log_softmax(logits).mean()
    expected = 0.8 * base.objective(logits, BATCH) + 0.2 * uniform
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_no_smoothing_returns_the_batch_itself():
    transform = augment.AUGMENTS["smooth_labels"](smoothing=0)
    assert transform(BATCH, KEY) is BATCH
    with pytest.raises(ValueError, match="smooth_labels: smoothing must be in"):
        augment.AUGMENTS["smooth_labels"](smoothing=1.1)


def test_binary_targets_are_the_soft_ones_without_a_threshold():
    batch = apply("binary_targets")
    assert batch["binary"] is True
    assert batch["target"] is TARGET


@pytest.mark.parametrize(
    ("threshold", "second"), [(0.0, [0, 1, 1, 0]), (0.5, [0, 0, 1, 0])]
)
def test_a_threshold_makes_targets_binary(threshold, second):
    targets = apply("binary_targets", threshold=threshold)["target"]
    np.testing.assert_array_equal(targets[1], second)
    np.testing.assert_array_equal(targets[0], TARGET[0])
    assert targets.dtype == TARGET.dtype


def test_bad_thresholds_are_refused():
    with pytest.raises(ValueError, match="binary_targets: threshold must be in"):
        augment.AUGMENTS["binary_targets"](threshold=-1)


def test_views_repeat_every_row_in_place():
    repeated = apply("views", views=3)
    assert repeated["views"] == 3
    for name in ("image", "target", "index"):
        assert repeated[name].shape[0] == 9
        for row in range(9):
            np.testing.assert_array_equal(repeated[name][row], BATCH[name][row // 3])
    np.testing.assert_array_equal(
        repeated["other"]["image"], jnp.repeat(BATCH["other"]["image"], 3, axis=0)
    )
    assert repeated["once"] is BATCH["once"]


def test_views_of_views_multiply():
    repeated = apply("views", apply("views", views=2), views=3)
    assert repeated["views"] == 6 and repeated["other"]["views"] == 6
    np.testing.assert_array_equal(repeated["index"], jnp.repeat(jnp.arange(3), 6))


def test_a_single_view_is_the_batch_itself():
    assert augment.AUGMENTS["views"](views=1)(BATCH, KEY) is BATCH
    with pytest.raises(ValueError, match="views: views must be 1 or more, got 0"):
        augment.AUGMENTS["views"](views=0)


@pytest.mark.slow
def test_later_noise_differs_between_views():
    noise = augment.AUGMENTS["gaussian_noise"](sigma=0.1, p=1.0)
    image = noise(apply("views", {"image": jnp.full((3, 2, 2, 1), 0.5)}), KEY)["image"]
    assert len({np.asarray(row).tobytes() for row in image}) == 6
