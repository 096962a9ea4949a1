"""A seed whose numbers are no longer finite is frozen, or rolled back."""

import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from jbias import config as jc
from jbias.algos import base
from jbias.training import divergence, monitoring, prng
from jbias.training import step as train_step
from jbias.training.averaging import averages
from tests import cases, smoke_runs

KEY = jax.random.key(0)
EVERY = 4
OWN_ALGORITHM = pathlib.Path(__file__).parents[1] / "own_algorithm.py"
CHANCE = 0.2


class TwoWeights(nn.Module):
    """A network of two equal weights; all images have equal logits."""

    @nn.compact
    def __call__(self, image, key=None, train=False):
        del key, train
        return self.param("w", nn.initializers.ones, (2,)) * image.sum()


def linear() -> base.Algo:
    """Return an algorithm with loss (w + w) * g and the statistic x.

    A step with learning rate r changes w by -r * g.
    """

    def losses(params, stats, batch, key, static=None):
        loss = params["net"]["w"].sum() * batch["g"]
        return {"class": loss}, base.Aux({**stats, "x": batch["x"]}, {})

    return base.Algo(TwoWeights(), losses)


ALGO, IMAGE = linear(), jnp.zeros((1, 1, 1, 3))


def make_step(scale):
    """Return a step of SGD with learning rate 0.5 * scale."""
    return train_step.make_step(ALGO, (optax.sgd(0.5 * scale, momentum=0.0),))


def initial_state() -> train_step.State:
    state = train_step.init(ALGO, (optax.sgd(0.5, momentum=0.0),), KEY, IMAGE)
    return state._replace(stats={**state.stats, "x": jnp.zeros(())})


class Result(NamedTuple):
    """The results of several steps."""

    weights: list[float]  # After each step.
    state: train_step.State  # After the last step.
    events: list[monitoring.Divergence]  # Steps are counted from 1.
    monitor: monitoring.Monitor


def run_steps(step, state, gs, xs=None) -> Result:
    """Take a step for each g and x of the algorithm `linear`; xs: default all 1."""
    step, monitor, events, weights = jax.jit(step), monitoring.Monitor((0,)), [], []
    for number, g in enumerate(gs, start=1):
        x = 1.0 if xs is None else xs[number - 1]
        batch = {"g": jnp.float32(g), "x": jnp.float32(x)}
        state, metrics = step(state, batch, KEY)
        events += monitor.add(number, (metrics,))
        weights.append(float(state.params["net"]["w"][0]))
    return Result(weights, state, events + monitor.flush(), monitor)


@cases.each("backend", ["cpu", "gpu"])
@cases.each(
    ("g", "x", "cause"),
    [(np.nan, 1, "loss"), (2e38, 1, "gradient"), (1.0, np.inf, "weights")],
)
def test_a_failed_step_freezes_the_seed_for_ever(backend, g, x, cause, monkeypatch):
    """With g = 2e38 the loss is finite in float32, but the gradient's norm is not."""
    monkeypatch.setattr(divergence.xla, "platform", lambda: backend)
    gs, xs = [0.25, 0.25, g, 0.25], [1, 1, x, 1]
    weights, state, events, monitor = run_steps(
        divergence.freeze_nonfinite(make_step(1)), initial_state(), gs, xs
    )
    assert weights == [0.875, 0.75, 0.75, 0.75]
    assert (state.step, state.stats["x"]) == (~2, 1)
    assert events == [monitoring.Divergence(0, 3, cause, False)]
    assert monitor.all_diverged
    norm = monitor.means(0)["gradient_norm_class"]
    assert norm == pytest.approx(0.25 * np.sqrt(2))


def test_a_seed_is_rolled_back_to_the_latest_multiple_with_a_smaller_rate():
    """A failure in step 7 returns to the state after step 4, one in step 9 to step 8."""
    rollback = divergence.Rollback(EVERY, times=2, factor=0.5)
    gs = [0.25] * 6 + [np.nan, 0.25, np.nan, 0.25, np.nan, 0.25]
    state = divergence.with_fallback(initial_state)()
    weights, state, events, _ = run_steps(
        divergence.rollback_nonfinite(make_step, rollback), state, gs
    )
    first = [0.875, 0.75, 0.625, 0.5, 0.375, 0.25]
    assert weights == [*first, 0.5, 0.4375, 0.4375, 0.40625, 0.40625, 0.40625]
    assert state.step == ~10
    assert [(e.step, e.rolled_back) for e in events] == [
        (7, True),
        (9, True),
        (11, False),
    ]
    assert [rollback.target(e.step) for e in events] == [4, 8, 8]


def test_a_seed_that_fails_in_its_first_step_returns_to_its_initial_state():
    rollback = divergence.Rollback(EVERY, times=1, factor=0.5)
    state = divergence.with_fallback(initial_state)()
    weights, state, events, _ = run_steps(
        divergence.rollback_nonfinite(make_step, rollback), state, [np.nan, 0.25]
    )
    assert weights == [1.0, 0.9375]
    assert state.step == 2
    assert [(e.step, e.rolled_back) for e in events] == [(1, True)]


@cases.each("option", [dict(name="uniform", first="2 steps"), 0.5])
def test_after_a_rollback_an_average_is_that_of_the_steps_that_stay(option):
    """Step 6 fails and returns to the state after step 4, as if there were no steps 5 and 6."""
    average = averages.from_options(option, averages.Steps(9, 9, 9), rolls_back=True)

    def evaluated(gs):
        """Return the averaged weight after steps with these factors of the loss."""

        def make_averaged_step(scale):
            return train_step.make_step(
                ALGO, (optax.sgd(0.5 * scale, momentum=0.0),), average=average
            )

        def draw():
            """Return the initial state, with the statistic x."""
            txs = (optax.sgd(0.5, momentum=0.0),)
            state = train_step.init(ALGO, txs, KEY, IMAGE, average=average)
            return state._replace(stats={**state.stats, "x": jnp.zeros(())})

        rollback = divergence.Rollback(EVERY, times=1, factor=1.0)
        step = divergence.rollback_nonfinite(make_averaged_step, rollback)
        state = divergence.with_fallback(draw)()
        return train_step.net_of(run_steps(step, state, gs).state)["params"]["w"][0]

    gs = [-64.0, -32.0, 16.0, 8.0]
    assert evaluated([*gs, 4.0, np.nan, 2.0, 1.0]) == evaluated([*gs, 2.0, 1.0])


def test_swad_cannot_be_rolled_back():
    option, steps = dict(name="swad"), averages.Steps(9, 9, 1)
    with pytest.raises(ValueError, match=r"swad must not be rolled back"):
        averages.from_options(option, steps, rolls_back=True)


def test_a_configs_rollback_is_counted_in_steps_of_its_stage():
    def in_steps(options, first):
        return divergence.rollback_in_steps(options, first, steps_per_epoch=4, total=40)

    options = dict(times=2, factor=0.5, every="1 epoch")
    rollback = in_steps(options, 10)
    assert rollback == divergence.Rollback(every=4, times=2, factor=0.5, first=10)
    assert [rollback.target(step) for step in (11, 14, 15, 20)] == [10, 10, 14, 18]
    for off in (None, {}, {**options, "times": 0}):
        assert in_steps(off, 10) is None
    assert in_steps({**options, "times": 1}, 0).times == 1
    with pytest.raises(ValueError, match=r"config\.rollback\.every: must be like"):
        in_steps({**options, "every": "soon"}, 0)


def test_without_a_failure_a_rollback_changes_nothing():
    gs = [0.25, 0.5, -0.25, 0.125, 0.5, 1.0]
    rollback = divergence.Rollback(EVERY, times=1, factor=0.5)
    with_rollback = run_steps(
        divergence.rollback_nonfinite(make_step, rollback),
        divergence.with_fallback(initial_state)(),
        gs,
    )
    without = run_steps(divergence.freeze_nonfinite(make_step(1)), initial_state(), gs)
    assert with_rollback.weights == without.weights
    assert with_rollback.monitor.means(0) == without.monitor.means(0)


def test_a_checkpoint_keeps_the_mean_and_the_largest_norm():
    monitor = run_steps(
        divergence.freeze_nonfinite(make_step(1)), initial_state(), [0.25, -1.0, 0.25]
    ).monitor
    resumed = monitoring.Monitor((0,))
    resumed.load(monitor.state())
    assert resumed.means(0) == monitor.means(0)
    mean = resumed.means(0)["gradient_norm_class"]
    assert mean == pytest.approx(0.5 * np.sqrt(2))
    maximum = resumed.means(0)["gradient_norm_class_max"]
    assert maximum == pytest.approx(np.sqrt(2))


def failing_steps(seed: int) -> list[int]:
    """Return the steps, of four, in which the user's algorithm fails for a seed."""
    stream = prng.stream(prng.key(seed), "algorithm")
    keys = [jax.random.fold_in(stream, number) for number in range(4)]
    return [i for i, key in enumerate(keys) if jax.random.bernoulli(key, CHANCE)]


@pytest.mark.parametrize(
    "strategy", ["threaded", pytest.param("unrolled", marks=pytest.mark.slow)]
)
def test_a_diverged_seed_does_not_affect_other_seeds(strategy):
    """The loss of the first seed is not finite in the third of four steps."""
    algo = {"name": f"{OWN_ALGORITHM}:make", "chance": CHANCE}
    stage = smoke_runs.stage(jc.to_dict(smoke_runs.small(algo=algo)))
    seeds = tuple(
        next(seed for seed in range(99) if failing_steps(seed) == steps)
        for steps in ([2], [])
    )
    together, all_metrics = smoke_runs.trained(stage, seeds, strategy, steps=4)
    separately = [
        smoke_runs.trained(stage, (seed,), strategy, steps=4)[0][0] for seed in seeds
    ]
    for state, expected in zip(together, separately, strict=True):
        jax.tree.map(np.testing.assert_array_equal, state, expected)
    assert [[m[divergence.FROZEN] for m in metrics] for metrics in all_metrics] == [
        [0, 0],
        [0, 0],
        [1, 0],
        [1, 0],
    ]
    assert [int(state.step) for state in together] == [~2, 4]
