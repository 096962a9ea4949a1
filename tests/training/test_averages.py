"""Averages of weights: their definitions, and that training does not depend on them."""

import itertools

import jax
import numpy as np
import pytest

from benchmarks import common
from jbias.runtime import mesh
from jbias.training import placement
from jbias.training import step as train_step
from jbias.training.averaging import averages
from tests import smoke_runs

EPS = np.finfo(np.float32).eps


def config(average, **entries):
    """Return the config, a dict, of a small run of a CNN; see `smoke_runs.small`."""
    c = smoke_runs.small(epochs=3.0, **entries)
    with c.unlocked():
        del c.optim.average, c.model
        c.optim.average = average
        c.model = dict(name="cnn", width=4)
    return c.to_dict()


def nets_by_step(average, which=(0, 1), steps=6):
    """Return, for each step, per seed (current network, network to evaluate), on the host."""
    stage = common.with_seeds(smoke_runs.stage(config(average)), which)
    placed = placement.fit_to_devices(stage, mesh.make(1), strategy="unrolled")
    states, nets = placed.start(), []
    for step in range(steps):
        states, _ = placed.advance(states, placed.take(step, 1))
        of_step = []
        for state in jax.device_get(placed.layout.unpack(states)):
            current = {"params": state.params["net"], "stats": state.stats["net"]}
            of_step.append((current, train_step.net_of(state)))
        nets.append(of_step)
    return nets


@pytest.fixture(scope="module")
def plain():
    """Return the networks of steps without an average."""
    return nets_by_step(0.0)


@pytest.fixture(scope="module")
def uniform():
    """Return the networks of steps with a mean from step 3 on."""
    return nets_by_step(dict(name="uniform", first="3 steps"))


def assert_equal(a, b):
    """Assert that two trees are equal to the bit."""
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_uniform_average_is_the_mean_of_the_networks_from_its_first_step(uniform):
    """The oracle is NumPy's mean in float64 over the networks after each step.

    Each step rounds the mean twice: the difference, and the sum.
    """
    for seed, number in itertools.product((0, 1), (3, 4, 6)):
        count = number - 2
        saved = [jax.tree.leaves(of_step[seed][0]) for of_step in uniform[2:number]]
        for i, average in enumerate(jax.tree.leaves(uniform[number - 1][seed][1])):
            weights = np.asarray([leaves[i] for leaves in saved], np.float64)
            assert len(weights) == count
            bound = count * EPS * np.abs(weights).max()
            np.testing.assert_allclose(average, weights.mean(0), rtol=0, atol=bound)


def test_a_uniform_average_is_the_network_itself_up_to_its_first_step(uniform):
    for of_step in uniform[:3]:
        for current, average in of_step:
            assert_equal(current, average)
    current, average = uniform[5][0]
    different = jax.tree.map(lambda a, b: (a != b).any(), current, average)
    assert any(jax.tree.leaves(different))


@pytest.mark.parametrize(
    "average",
    [
        dict(name="exponential", decay=0.0),
        dict(name="uniform", first="100 %"),
    ],
)
def test_an_average_without_weight_on_earlier_steps_is_plain_training(plain, average):
    """The networks to evaluate are those of training without an average, to the bit."""
    steps = 12 if average["name"] == "uniform" else 6
    nets = nets_by_step(average, steps=steps)
    for of_step, plain_of_step in zip(nets, plain):
        for (current, evaluated), (plain_net, _) in zip(of_step, plain_of_step):
            assert_equal(current, plain_net)
            assert_equal(evaluated, plain_net)
    for current, evaluated in nets[-1]:
        assert_equal(current, evaluated)


def test_training_does_not_depend_on_an_average(plain, uniform):
    for of_step, plain_of_step in zip(uniform, plain, strict=True):
        for (current, _), (plain_net, _) in zip(of_step, plain_of_step, strict=True):
            assert_equal(current, plain_net)


def test_seeds_that_train_together_have_the_averages_of_seeds_alone(uniform):
    alone = nets_by_step(dict(name="uniform", first="3 steps"), which=(1,))
    for (_, of_second), (of_alone,) in zip(uniform, alone, strict=True):
        assert_equal(of_second, of_alone)


def test_a_number_is_the_decay_of_an_exponential_average():
    """Configs of older runs have a number."""
    net = {"params": {"w": np.float32(3)}, "stats": {}}
    options = dict(total=10, steps_per_epoch=5)
    old = averages.from_options(0.5, **options)
    new = averages.from_options(dict(name="exponential", decay=0.5), **options)
    for average in (old, new):
        state = average.update(average.start(net), {**net, "params": {"w": 5.0}}, 20)
        assert state["params"]["w"] == 4
    assert averages.from_options(0.0, **options) is None


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (dict(name="uniform", first="soon"), r"average\.first: must be like"),
        (dict(name="uniform", start=3), "average.*start"),
        (dict(name="exponential", decay=1.0), r"decay: must be in \[0, 1\)"),
        (dict(name="exponential"), "decay"),
        (dict(name="median"), r"average\.name.*exponential"),
        (dict(first=3), "must have a name"),
    ],
)
def test_wrong_options_are_refused(option, message):
    with pytest.raises(ValueError, match=message):
        averages.from_options(option, total=10, steps_per_epoch=5)
