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
    found = jax.grad(base.objective)(LOGITS, {"target": TARGET})
    np.testing.assert_allclose(found, (jax.nn.softmax(LOGITS) - TARGET) / 6, atol=1e-7)


def test_equal_logits_lose_the_logarithm_of_the_classes():
    loss = base.objective(jnp.full((6, 1000), 3.0), {"target": jnp.eye(1000)[:6]})
    assert loss == pytest.approx(np.log(1000), rel=1e-6)


def test_weights_choose_examples():
    weight = jnp.array([1.0, 2, 0, 0, 0, 0])
    found = base.objective(LOGITS, {"target": TARGET, "weight": weight})
    one, two = (
        float(base.objective(LOGITS[i : i + 1], {"target": TARGET[i : i + 1]}))
        for i in range(2)
    )
    assert found == pytest.approx((one + 2 * two) / 3, rel=1e-6)


def test_soft_targets_mix_losses():
    other = TARGET[::-1]
    found = base.objective(LOGITS, {"target": 0.3 * TARGET + 0.7 * other})
    a, b = (float(base.objective(LOGITS, {"target": t})) for t in (TARGET, other))
    assert found == pytest.approx(0.3 * a + 0.7 * b, rel=1e-6)


def test_binary_classes_are_asked_one_by_one():
    found = base.objective(LOGITS, {"target": 0.9 * TARGET, "binary": True})
    p, t = scipy.special.expit(np.asarray(LOGITS, np.float64)), np.asarray(0.9 * TARGET)
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()
    assert found == pytest.approx(expected, rel=1e-5)


def test_views_add_their_divergence():
    """Three views of an image, of which only the first has a label."""
    weight = jnp.array([1.0, 0, 0, 1, 0, 0])
    batch = {"target": TARGET, "weight": weight, "views": 3, "consistency": 12.0}
    p = scipy.special.softmax(np.asarray(LOGITS, np.float64), -1).reshape(2, 3, 4)
    m = p.mean(1, keepdims=True)
    js = scipy.special.rel_entr(p, m).sum((1, 2)) / 3
    alone = base.objective(LOGITS, {"target": TARGET, "weight": weight})
    assert base.objective(LOGITS, batch) == pytest.approx(
        float(alone) + 12 * js.mean(), rel=1e-5
    )
    assert js.max() < np.log(3)


def test_views_that_agree_diverge_by_nothing():
    same = jnp.repeat(LOGITS[:2], 3, axis=0)
    assert base.divergence(same, 3) == pytest.approx(0, abs=1e-6)
    sure = 1e3 * jnp.eye(3)
    assert base.divergence(sure, 3) == pytest.approx(np.log(3), rel=1e-5)


def test_divergence_knows_no_order_of_views():
    turned = LOGITS.reshape(2, 3, 4)[:, ::-1].reshape(6, 4)
    assert base.divergence(turned, 3) == pytest.approx(
        float(base.divergence(LOGITS, 3)), rel=1e-6
    )


def test_loss_is_float32_for_half_precision_logits():
    loss = base.objective(LOGITS.astype(jnp.bfloat16), {"target": TARGET})
    assert loss.dtype == jnp.float32


@pytest.mark.slow
def test_forward_in_parts_is_forward_as_a_whole(net, variables, image):
    params, stats = variables["params"], variables["stats"]

    @jax.jit
    def both(image):
        whole = base.forward(net, params, stats, image, None)
        f, seen = base.forward(net, params, stats, image, None, method="features")
        return whole, base.forward(net, params, seen, f, None, method="head_of"), seen

    whole, parts, seen = both(image)
    jax.tree.map(np.testing.assert_array_equal, whole, parts)
    # The trunk saw the batch; the head's statistics passed through.
    assert jax.tree.structure(seen) == jax.tree.structure(stats)
    for name in stats:
        same = jax.tree.map(lambda a, b: bool((a == b).all()), seen[name], stats[name])
        assert all(jax.tree.leaves(same)) == (net.stage_of(name) >= 3)


@pytest.mark.slow
def test_evaluation_keeps_the_statistics(net, variables, image):
    stats = variables["stats"]
    _, after = base.forward(net, variables["params"], stats, image, None, train=False)
    jax.tree.map(np.testing.assert_array_equal, after, stats)
