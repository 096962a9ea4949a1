"""The step over updates: clips, sums of losses, and the moving average of the net."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from jbias.algos import base
from jbias.training import step as train_step
from jbias.training.averaging import averages

KEY = jax.random.key(0)
BATCH = {"image": jnp.ones((1, 1, 1, 3))}


class Two(nn.Module):
    """Two weights, a and b, both 1."""

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        shape = (2,)
        a = self.param("a", nn.initializers.ones, shape)
        b = self.param("b", nn.initializers.ones, shape)
        return a, b


def algo(*updates, more=1.0):
    """Return an algorithm with known gradients: 3 by a, 4 by b; and `more` by both."""

    def losses(params, stats, batch, key, static=None):
        a, b = (params["net"][name].sum() for name in "ab")
        return {"class": 3 * a + 4 * b, "more": more * (a + b)}, base.Aux(stats, {})

    return base.Algo(Two(), losses, updates)


def is_a(path):
    return path[-1] == "a"


def moved(update, times=1, **options):
    """Return the change of each weight after steps with learning rate 1, and the state."""
    built, txs = algo(update), (optax.sgd(1.0),)
    state = train_step.init(built, txs, KEY, BATCH["image"], **options)
    for _ in range(times):
        state, _ = train_step.make_step(built, txs, **options)(state, BATCH, KEY)
    return {name: 1 - state.params["net"][name][0] for name in "ab"}, state


def test_clipping_uses_the_norm_over_trained_weights_only():
    """Two weights with gradient 3 have the norm 3 sqrt 2; b is not trained."""
    changes, _ = moved(base.Update("class", is_a, clip=0.3))
    assert changes["a"] == pytest.approx(0.3 / np.sqrt(2), rel=1e-5)
    assert changes["b"] == 0


def test_clipping_uses_the_norm_over_all_trained_weights():
    changes, _ = moved(base.Update("class", clip=0.5))
    norm = np.sqrt(2 * 9 + 2 * 16)
    assert changes["a"] == pytest.approx(0.5 * 3 / norm, rel=1e-5)
    assert changes["b"] == pytest.approx(0.5 * 4 / norm, rel=1e-5)


def test_the_gradient_of_the_second_loss_is_not_clipped():
    changes, _ = moved(base.Update("class", is_a, clip=0.3, plus="more"))
    assert changes["a"] == pytest.approx(0.3 / np.sqrt(2) + 1, rel=1e-5)


@pytest.mark.parametrize("more", [np.inf, np.nan])
def test_the_norm_is_not_finite_if_the_second_gradient_is_not(more):
    built, txs = algo(base.Update("class", plus="more"), more=more), (optax.sgd(1.0),)
    state = train_step.init(built, txs, KEY, BATCH["image"])
    _, metrics = train_step.make_step(built, txs)(state, BATCH, KEY)
    assert not np.isfinite(metrics["gradient_norm_class"])


def test_two_updates_of_one_weight_add_up():
    once = base.Update("class", is_a)
    built, txs = algo(once, once), (optax.sgd(1.0),) * 2
    state = train_step.init(built, txs, KEY, BATCH["image"])
    state, _ = train_step.make_step(built, txs)(state, BATCH, KEY)
    assert 1 - state.params["net"]["a"][0] == 6


def test_the_average_follows_the_net():
    """avg <- d avg + (1 - d) w, d = min(0.5, (1 + t) / (10 + t))."""
    _, state = moved(
        base.Update("more"), times=3, average=averages.exponential(decay=0.5)
    )
    average, w = 1.0, 1.0
    for t in range(3):
        d = min(0.5, (1 + t) / (10 + t))
        w -= 1
        average = d * average + (1 - d) * w
    averaged = train_step.net_of(state)["params"]["a"]
    np.testing.assert_allclose(averaged, average, rtol=1e-6)
    assert (state.params["net"]["a"] == -2).all()


def test_without_an_average_the_net_has_the_weights_of_the_state():
    _, state = moved(base.Update("more"))
    assert train_step.net_of(state)["params"] is state.params["net"]
    assert "average" not in state.stats
