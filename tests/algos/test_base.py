"""The class loss, and the net's statistics in calls of its methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jbias.algos import base

RNG = np.random.default_rng(0)
LOGITS = jnp.asarray(RNG.normal(size=(6, 4)), jnp.float32)
TARGET = jax.nn.one_hot(jnp.array([0, 1, 2, 3, 0, 1]), 4)


def test_gradient_of_the_class_loss_in_closed_form():
    gradient = jax.grad(base.objective)(LOGITS, {"target": TARGET})
    expected = (jax.nn.softmax(LOGITS) - TARGET) / 6
    np.testing.assert_allclose(gradient, expected, atol=1e-7)


def test_the_loss_of_equal_logits_is_the_logarithm_of_the_classes():
    loss = base.objective(jnp.full((6, 1000), 3.0), {"target": jnp.eye(1000)[:6]})
    assert loss == pytest.approx(np.log(1000), rel=1e-6)


def test_weights_average_example_losses():
    weight = jnp.array([1.0, 2, 0, 0, 0, 0])
    loss = base.objective(LOGITS, {"target": TARGET, "weight": weight})
    first, second = (
        float(base.objective(LOGITS[i : i + 1], {"target": TARGET[i : i + 1]}))
        for i in range(2)
    )
    assert loss == pytest.approx((first + 2 * second) / 3, rel=1e-6)


def test_soft_targets_mix_losses():
    other = TARGET[::-1]
    loss = base.objective(LOGITS, {"target": 0.3 * TARGET + 0.7 * other})
    a, b = (float(base.objective(LOGITS, {"target": t})) for t in (TARGET, other))
    assert loss == pytest.approx(0.3 * a + 0.7 * b, rel=1e-6)


def test_binary_targets_have_the_mean_binary_cross_entropy():
    loss = base.objective(LOGITS, {"target": 0.9 * TARGET, "binary": True})
    p, t = scipy.special.expit(np.asarray(LOGITS, np.float64)), np.asarray(0.9 * TARGET)
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()
    assert loss == pytest.approx(expected, rel=1e-5)


def test_views_add_their_divergence():
    """An image has three views, of which only the first has a label."""
    weight = jnp.array([1.0, 0, 0, 1, 0, 0])
    batch = {"target": TARGET, "weight": weight, "views": 3, "consistency": 12.0}
    p = scipy.special.softmax(np.asarray(LOGITS, np.float64), -1).reshape(2, 3, 4)
    m = p.mean(1, keepdims=True)
    js = scipy.special.rel_entr(p, m).sum((1, 2)) / 3
    class_loss = base.objective(LOGITS, {"target": TARGET, "weight": weight})
    assert base.objective(LOGITS, batch) == pytest.approx(
        float(class_loss) + 12 * js.mean(), rel=1e-5
    )
    assert js.max() < np.log(3)


def test_the_divergence_is_0_for_equal_views_and_at_most_log_n():
    equal_views = jnp.repeat(LOGITS[:2], 3, axis=0)
    assert base.divergence(equal_views, 3) == pytest.approx(0, abs=1e-6)
    certain_views = 1e3 * jnp.eye(3)
    assert base.divergence(certain_views, 3) == pytest.approx(np.log(3), rel=1e-5)


def test_the_divergence_does_not_depend_on_the_order_of_views():
    turned = LOGITS.reshape(2, 3, 4)[:, ::-1].reshape(6, 4)
    assert base.divergence(turned, 3) == pytest.approx(
        float(base.divergence(LOGITS, 3)), rel=1e-6
    )


def test_loss_is_float32_for_half_precision_logits():
    loss = base.objective(LOGITS.astype(jnp.bfloat16), {"target": TARGET})
    assert loss.dtype == jnp.float32


@pytest.mark.slow
def test_features_and_head_compose_to_the_forward_pass(net, variables, image):
    params, stats = variables["params"], variables["stats"]

    @jax.jit
    def forward_twice(image):
        at_once = base.forward(net, params, stats, image, None)
        features, trunk_stats = base.forward(
            net, params, stats, image, None, method="features"
        )
        in_parts = base.forward(
            net, params, trunk_stats, features, None, method="head_of"
        )
        return at_once, in_parts, trunk_stats

    at_once, in_parts, trunk_stats = forward_twice(image)
    jax.tree.map(np.testing.assert_array_equal, at_once, in_parts)
    # Statistics of the trunk are updated, those of the head are unchanged.
    assert jax.tree.structure(trunk_stats) == jax.tree.structure(stats)
    for name in stats:
        is_equal = jax.tree.map(
            lambda a, b: bool((a == b).all()), trunk_stats[name], stats[name]
        )
        assert all(jax.tree.leaves(is_equal)) == (net.stage_of(name) >= 3)


@pytest.mark.slow
def test_evaluation_keeps_the_statistics(net, variables, image):
    stats = variables["stats"]
    _, new_stats = base.forward(
        net, variables["params"], stats, image, None, train=False
    )
    jax.tree.map(np.testing.assert_array_equal, new_stats, stats)
