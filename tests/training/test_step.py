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


TURNS = ("first", "second")


def alternating(schedule):
    """Return an algorithm of two updates in turn, its optimisers, and its initial state."""
    built = algo(
        base.Update("class", is_a, when="first"),
        base.Update("more", lambda path: not is_a(path), when="second"),
    )
    tx = optax.chain(optax.trace(0.5), optax.scale_by_learning_rate(schedule))
    txs = (tx, tx)
    return built, txs, train_step.init(built, txs, KEY, BATCH["image"])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_update_is_applied_in_its_steps_only(accumulate):
    """Its weights and moments rest in other steps, which have no norm of its gradient."""
    built, txs, state = alternating(lambda step: 1.0)
    step = train_step.make_step(built, txs, accumulate=accumulate)
    batch = {"image": jnp.ones((2, 1, 1, 3))}
    for static, weight, other in (("first", "a", "b"), ("second", "b", "a")):
        new, metrics = step(state, batch, KEY, static)
        assert (new.params["net"][weight] != state.params["net"][weight]).all()
        assert (new.params["net"][other] == state.params["net"][other]).all()
        loss = "class" if static == "first" else "more"
        assert {k for k in metrics if "norm" in k} == {f"gradient_norm_{loss}"}
        assert {"loss_class", "loss_more"} <= set(metrics)
        index = 1 - TURNS.index(static)
        moments, old_moments = (
            [x for x in jax.tree.leaves(s.opt[index]) if x.dtype == jnp.float32]
            for s in (new, state)
        )
        assert moments
        jax.tree.map(np.testing.assert_array_equal, moments, old_moments)
        state = new
    both, metrics = step(state, batch, KEY)
    for weight in "ab":
        assert (both.params["net"][weight] != state.params["net"][weight]).all()
    assert {"gradient_norm_class", "gradient_norm_more"} <= set(metrics)


def test_rates_follow_the_steps_of_the_run_through_skipped_updates():
    """Rates are 1, 10, 100, 1000 at steps 0 to 3; moments halve at each applied update."""
    built, txs, state = alternating(lambda step: 10.0**step)
    step = train_step.make_step(built, txs)
    for i in range(4):
        state, _ = step(state, BATCH, KEY, TURNS[i % 2])
    # Gradients are 3 by a (steps 0 and 2) and 1 by b (steps 1 and 3).
    np.testing.assert_allclose(1 - state.params["net"]["a"], 3 + 100 * 3 * 1.5)
    np.testing.assert_allclose(1 - state.params["net"]["b"], 10 + 1000 * 1.5)
