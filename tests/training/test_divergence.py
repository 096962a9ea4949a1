"""A seed whose numbers are no longer finite stays as it was, or goes back."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from jbias import config as jc
from jbias.algos import base
from jbias.training import divergence, prng
from jbias.training import step as train_step
from tests import cases, smoke_runs

KEY = jax.random.key(0)
EVERY = 4
MINE = pathlib.Path(__file__).parents[1] / "own_algorithm.py"
CHANCE = 0.2


class One(nn.Module):
    """Two weights, which are the same throughout."""

    @nn.compact
    def __call__(self, image, key=None, train=False):
        del key, train
        return self.param("w", nn.initializers.ones, (2,)) * image.sum()


def linear() -> base.Algo:
    """Loss (w + w) * g, so that a step of rate r moves w by r * g; and a statistic, x."""

    def losses(params, stats, batch, key, static=None):
        loss = params["net"]["w"].sum() * batch["g"]
        return {"class": loss}, base.Aux({**stats, "x": batch["x"]}, {})

    return base.Algo(One(), losses)


ALGO, IMAGE = linear(), jnp.zeros((1, 1, 1, 3))


def take_at(scale):
    return train_step.make_step(ALGO, (optax.sgd(0.5 * scale, momentum=0.0),))


def began() -> train_step.State:
    state = train_step.init(ALGO, (optax.sgd(0.5, momentum=0.0),), KEY, IMAGE)
    return state._replace(stats={**state.stats, "x": jnp.zeros(())})


def through(take, state, gs, xs=None):
    """The weight after each step, the last state, and what failed by number from 1."""
    take, eyes, events, weights = jax.jit(take), divergence.Monitor((0,)), [], []
    for number, g in enumerate(gs, start=1):
        x = 1.0 if xs is None else xs[number - 1]
        batch = {"g": jnp.float32(g), "x": jnp.float32(x)}
        state, metrics = take(state, batch, KEY)
        events += eyes.add(number, (metrics,))
        weights.append(float(state.params["net"]["w"][0]))
    return weights, state, events + eyes.flush(), eyes


@cases.each("backend", ["cpu", "gpu"])
@cases.each(
    ("g", "x", "what"),
    [(np.nan, 1, "loss"), (2e38, 1, "gradient"), (1.0, np.inf, "weights")],
)
def test_a_failed_step_changes_nothing_ever_after(backend, g, x, what, monkeypatch):
    """The square of 2e38 is no float32: its loss is finite, its norm is not."""
    monkeypatch.setattr(divergence.xla, "platform", lambda: backend)
    gs, xs = [0.25, 0.25, g, 0.25], [1, 1, x, 1]
    weights, state, events, eyes = through(
        divergence.freeze_nonfinite(take_at(1)), began(), gs, xs
    )
    assert weights == [0.875, 0.75, 0.75, 0.75]
    assert (state.step, state.stats["x"]) == (~2, 1)
    assert events == [divergence.Divergence(0, 3, what, False)]
    assert eyes.all_diverged
    norm = eyes.means(0)["gradient_norm_class"]
    assert norm == pytest.approx(0.25 * np.sqrt(2))


def test_a_seed_goes_back_to_the_latest_multiple_and_on_with_a_smaller_rate():
    """It fails in its 7th step, 4 are a period; and in the 9th, back to after the 8th."""
    how = divergence.Rollback(EVERY, times=2, factor=0.5)
    gs = [0.25] * 6 + [np.nan, 0.25, np.nan, 0.25, np.nan, 0.25]
    state = divergence.with_fallback(began)()
    weights, state, events, _ = through(
        divergence.rollback_nonfinite(take_at, how), state, gs
    )
    first = [0.875, 0.75, 0.625, 0.5, 0.375, 0.25]
    assert weights == [*first, 0.5, 0.4375, 0.4375, 0.40625, 0.40625, 0.40625]
    assert state.step == ~10
    assert [(e.step, e.rolled_back) for e in events] == [
        (7, True),
        (9, True),
        (11, False),
    ]
    assert [how.target(e.step) for e in events] == [4, 8, 8]


def test_a_seed_that_fails_in_its_first_step_goes_back_to_where_it_began():
    how = divergence.Rollback(EVERY, times=1, factor=0.5)
    state = divergence.with_fallback(began)()
    weights, state, events, _ = through(
        divergence.rollback_nonfinite(take_at, how), state, [np.nan, 0.25]
    )
    assert weights == [1.0, 0.9375]
    assert state.step == 2
    assert [(e.step, e.rolled_back) for e in events] == [(1, True)]


def test_a_configs_rollback_is_counted_in_steps_of_its_stage():
    lasting = dict(steps_per_epoch=4, total=40)
    how = dict(times=2, factor=0.5, every="1 epoch")
    found = divergence.rollback_in_steps(how, 10, **lasting)
    assert found == divergence.Rollback(every=4, times=2, factor=0.5, first=10)
    assert [found.target(step) for step in (11, 14, 15, 20)] == [10, 10, 14, 18]
    for off in (None, {}, {**how, "times": 0}):
        assert divergence.rollback_in_steps(off, 10, **lasting) is None
    assert divergence.rollback_in_steps({**how, "times": 1}, 0, **lasting).times == 1
    with pytest.raises(ValueError, match=r"config\.rollback\.every: must be like"):
        divergence.rollback_in_steps({**how, "every": "soon"}, 0, **lasting)


def test_without_a_failure_a_rollback_changes_nothing():
    gs = [0.25, 0.5, -0.25, 0.125, 0.5, 1.0]
    how = divergence.Rollback(EVERY, times=1, factor=0.5)
    rolling = through(
        divergence.rollback_nonfinite(take_at, how),
        divergence.with_fallback(began)(),
        gs,
    )
    frozen = through(divergence.freeze_nonfinite(take_at(1)), began(), gs)
    assert rolling[0] == frozen[0]
    assert rolling[3].means(0) == frozen[3].means(0)


def test_the_largest_norm_and_the_mean_go_through_a_checkpoint():
    eyes = through(
        divergence.freeze_nonfinite(take_at(1)), began(), [0.25, -1.0, 0.25]
    )[3]
    other = divergence.Monitor((0,))
    other.load(eyes.state())
    mean, most = (f"gradient_norm_class{end}" for end in ("", "_max"))
    assert other.means(0) == eyes.means(0)
    assert other.means(0)[mean] == pytest.approx(0.5 * np.sqrt(2))
    assert other.means(0)[most] == pytest.approx(np.sqrt(2))


def lost(seed: int) -> list[int]:
    """Which of four steps the user's own algorithm loses."""
    stream = prng.stream(prng.key(seed), "algorithm")
    keys = [jax.random.fold_in(stream, number) for number in range(4)]
    return [i for i, key in enumerate(keys) if jax.random.bernoulli(key, CHANCE)]


@pytest.mark.parametrize(
    "strategy", ["threaded", pytest.param("unrolled", marks=pytest.mark.slow)]
)
def test_what_trains_beside_a_seed_that_diverged_does_as_alone(strategy):
    """The loss of the first is not finite at the third of four steps."""
    algo = {"name": f"{MINE}:make", "chance": CHANCE}
    stage = smoke_runs.stage(jc.to_dict(smoke_runs.small(algo=algo)))
    which = tuple(
        next(seed for seed in range(99) if lost(seed) == at) for at in ([2], [])
    )
    together, seen = smoke_runs.trained(stage, which, strategy, steps=4)
    alone = [
        smoke_runs.trained(stage, (seed,), strategy, steps=4)[0][0] for seed in which
    ]
    for one, other in zip(together, alone, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)
    assert [[m[divergence.FROZEN] for m in metrics] for metrics in seen] == [
        [0, 0],
        [0, 0],
        [1, 0],
        [1, 0],
    ]
    assert [int(state.step) for state in together] == [~2, 4]
