"""A tiny net and compiled steps, shared by the tests of algorithms."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import algos, build
from jbias.models import resnet
from jbias.training import optim
from jbias.training import step as train_step
from tests.methods import METHODS

CLASSES = 5
GROUP = 4


@pytest.fixture(scope="session")
def net():
    return resnet.ResNet(
        CLASSES, depths=(1, 1, 1, 1), bottleneck=False, width=8, stem="small"
    )


@pytest.fixture(scope="session")
def image():
    noise, colour = jax.random.split(jax.random.key(1))
    image = jax.random.uniform(noise, (8, 16, 16, 3))
    return 0.5 * (image + jax.random.uniform(colour, (8, 1, 1, 3)))


@pytest.fixture(scope="session")
def batch(image):
    target = jax.nn.one_hot(jnp.arange(8) % CLASSES, CLASSES)
    attribute, domain = jnp.arange(8) % 3, jnp.arange(8) // 6
    return {
        "image": image,
        "target": target,
        "attribute": attribute,
        "domain": domain,
    }


def draw(shapes, seed=0):
    """Return weights like initial ones, by NumPy; jax takes long to compile."""
    rng = np.random.default_rng(seed)

    def draw_leaf(path, x):
        if path[-1].key in ("scale", "var"):
            return np.ones(x.shape, np.float32)
        if len(x.shape) < 2:
            return np.zeros(x.shape, np.float32)
        gain = (len(x.shape) / 2 / math.prod(x.shape[:-1])) ** 0.5
        return (gain * rng.standard_normal(x.shape)).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw_leaf, shapes)


@pytest.fixture(scope="session")
def variables(net, image):
    return draw(jax.eval_shape(net.init, jax.random.key(0), image))


@pytest.fixture(scope="session")
def begin(variables, image):
    """Return begin(algo, txs) -> an initial train state, with the same net for all."""

    def draw_part(part):
        return lambda *args: draw(jax.eval_shape(part, *args), seed=1)

    def state(algo, txs):
        drawn_parts = {name: draw_part(part) for name, part in algo.parts.items()}
        algo = algo._replace(parts=drawn_parts)
        return train_step.init(algo, txs, jax.random.key(7), image[:1], variables)

    return state


def chains(algo, rate=0.1):
    rate = optim.constant(rate, 1)
    return tuple(
        optim.sgd(rate, momentum=0.9, decay=1e-3 if update.decay else 0.0)
        for update in algo.updates
    )


@pytest.fixture(scope="session")
def train(net, batch, begin):
    """Return train(name, p=0.1) -> first losses, state after 4 steps, eval logits.

    Options are traced where `traced` names them. The same arguments train once.
    """

    @functools.cache
    def run(name, traced=(), **options):
        fixed = {k: v for k, v in options.items() if k not in traced}

        def make(values):
            algo = algos.ALGOS[name](net, **fixed, **values)
            return build.refuse_idle_taps({"name": name}, algo)

        views = METHODS[name].views
        train_batch = batch if views == 1 else {**batch, "views": views}
        values = {k: options[k] for k in traced}
        algo = make(values)
        txs = chains(algo)
        key = jax.random.key(7)
        state = begin(algo, txs)

        @jax.jit
        def step(state, values):
            return train_step.make_step(make(values), txs)(state, train_batch, key)

        # Outside jit a fixed option stays a Python number, a traced one does not.
        values = {k: jnp.float32(v) for k, v in values.items()}
        state, first = step(state, values)
        for _ in range(3):
            state, _ = step(state, values)
        net_variables = {"params": state.params["net"], "stats": state.stats["net"]}
        logits = jax.jit(algo.net.apply)(net_variables, batch["image"])
        return first, state, logits

    return run
