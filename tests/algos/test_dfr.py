"""Last-layer retraining: frozen and fitted weights, and the benefit for groups."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from jbias.algos import dfr, erm
from jbias.models import taps
from jbias.training import optim, samplers
from jbias.training import step as train_step
from tests import cases

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


class Flat(nn.Module):
    """A linear layer on the pixels, and one feature that is always 1."""

    tap: taps.Tap | None = None

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        h = image.reshape(len(image), -1)
        h = jnp.concatenate([h, jnp.ones((len(h), 1))], 1)
        return nn.Dense(3, name="fc")(h)


PLAIN = RNG.normal(size=(60, 4))
FEATURES = PLAIN * [1, 5, 0.2, 1] + [0, 3, 1, 0]
LABEL = np.argmax(PLAIN[:, :3] + RNG.normal(size=(60, 3)), 1)
BATCH = {
    "image": jnp.asarray(FEATURES[:, None, None], jnp.float32),
    "target": jnp.eye(3)[LABEL],
}


def fit(l1, steps=2000, batch=BATCH):
    algo = dfr.make(Flat())
    txs = (optim.sgd(optim.constant(0.1, 1), momentum=0.9, decay=0.0, l1=l1),)
    state = train_step.init(algo, txs, KEY, batch["image"][:1])
    step = train_step.make_step(algo, txs)

    @jax.jit
    def run(state):
        return jax.lax.scan(lambda s, _: step(s, batch, KEY), state, None, steps)

    state, metrics = run(state)
    return state, jax.tree.map(lambda x: x[-1], metrics)


@pytest.mark.slow
def test_only_the_last_layer_is_trained(train, variables):
    _, state, _ = train("dfr")
    initial, trained = variables["params"], state.params["net"]
    for name in initial:
        is_equal = jax.tree.map(
            lambda a, b: bool((a == b).all()), initial[name], trained[name]
        )
        assert all(jax.tree.leaves(is_equal)) == (name != "fc")
    equal = np.testing.assert_array_equal
    jax.tree.map(equal, state.stats["net"], variables["stats"])


def test_the_net_computes_the_fit_on_standardised_features():
    state, _ = fit(0.0, steps=5)
    logits = Flat().apply({"params": state.params["net"]}, BATCH["image"])
    h = (FEATURES - FEATURES.mean(0)) / FEATURES.std(0)
    head = jax.tree.map(np.asarray, state.params["head"])
    np.testing.assert_array_equal(head["kernel"][4], 0)  # What never varies.
    expected = h @ head["kernel"][:4] + head["bias"]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(head["kernel"]).max() > 0.01


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_add_up_to_the_moments_of_all(weighted):
    weight = RNG.uniform(0, 1, 60) if weighted else np.ones(60)
    h, sums = FEATURES + 100, dict(count=0.0, mean=np.zeros(4), square=np.zeros(4))
    for start, stop in ((0, 7), (7, 8), (8, 60)):
        w = jnp.asarray(weight[start:stop]) if weighted else None
        sums = dfr.add_batch(sums, jnp.asarray(h[start:stop], jnp.float32), w)
    mean, deviation = dfr.moments(sums)
    expected = np.average(h, axis=0, weights=weight)
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    var = np.average((h - expected) ** 2, axis=0, weights=weight)
    np.testing.assert_allclose(deviation, np.sqrt(var), rtol=1e-4)


@pytest.mark.slow
@cases.each("l1", [0.003, 0.03, 0.1])
def test_the_fit_minimises_loss_plus_penalty(l1):
    """Optimality: the gradient is -l1 sign(w), or at most l1 at zero weights."""
    state, metrics = fit(l1)
    h = (FEATURES - FEATURES.mean(0)) / FEATURES.std(0)
    w, b = (np.asarray(state.params["head"][k], np.float64) for k in ("kernel", "bias"))
    z = h @ w[:4] + b
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True) - np.eye(3)[LABEL]
    slope = h.T @ p / 60
    zero = w[:4] == 0
    np.testing.assert_allclose(slope[~zero], -l1 * np.sign(w[:4])[~zero], atol=2e-5)
    assert np.abs(slope[zero]).max(initial=0) <= l1 + 2e-5
    np.testing.assert_allclose(p.mean(0), 0, atol=2e-5)
    assert metrics["zeros"] == pytest.approx((w == 0).mean(), rel=1e-6)
    layer = np.asarray(state.params["net"]["fc"]["kernel"])
    np.testing.assert_array_equal(layer == 0, w == 0)
    assert {0.003: 1, 0.03: 3, 0.1: 5}[l1] <= zero.sum() < 12


@pytest.mark.slow
def test_the_fit_starts_at_zero_and_separates_the_classes():
    clean = {**BATCH, "target": jnp.eye(3)[np.argmax(PLAIN[:, :3], 1)]}
    algo = dfr.make(Flat())
    txs = (optax.sgd(0.1),)
    state = train_step.init(algo, txs, KEY, clean["image"][:1])
    first = train_step.make_step(algo, txs)(state, clean, KEY)[1]
    assert first["loss_class"] == pytest.approx(np.log(3), rel=1e-6)
    state, _ = fit(0.0, batch=clean)
    predictions = (
        Flat().apply({"params": state.params["net"]}, clean["image"]).argmax(1)
    )
    assert (predictions == clean["target"].argmax(1)).mean() > 0.95


@functools.cache
def toy(n, agrees, seed):
    """Return data with labels by a weak feature, and a strong feature for the attribute."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    attribute = np.where(rng.random(n) < agrees, label, 1 - label)
    x = (2 * np.stack([label, attribute], 1) - 1) * [1.0, 3.0]
    x = x + rng.normal(size=(n, 2))
    return x.astype(np.float32), label, attribute


def worst_group_accuracy(params):
    x, label, attribute = toy(4000, 0.5, 1)
    predictions = np.argmax(Flat().apply({"params": params}, x[:, None, None]), 1)
    group = 2 * label + attribute
    return (np.bincount(group, predictions == label) / np.bincount(group)).min()


@pytest.mark.slow
def test_refitting_helps_the_worst_group():
    """The last layer of ERM is refitted on balanced batches of held-out images."""
    x, label, attribute = toy(1000, 0.95, 0)
    train_batch = {"image": x[:, None, None], "target": jnp.eye(3)[label]}
    txs = (optax.sgd(0.5),)
    plain = erm.make(Flat())
    state = train_step.init(plain, txs, KEY, train_batch["image"][:1])
    step = train_step.make_step(plain, txs)
    state, _ = jax.jit(
        lambda s: jax.lax.scan(lambda s, _: step(s, train_batch, KEY), s, None, 300)
    )(state)
    x, label, attribute = toy(400, 0.95, 2)
    order = samplers.BalancedSampler(2 * label + attribute, 40)
    index = np.stack([order.index(0, number) for number in range(300)])
    batches = {"image": x[index][:, :, None, None], "target": jnp.eye(3)[label[index]]}
    algo = dfr.make(Flat())
    txs = (optim.sgd(optim.cosine(0.05, 300), momentum=0.9, decay=0.0, l1=0.003),)
    net = {"params": state.params["net"], "stats": {}}
    refitted = train_step.init(algo, txs, KEY, train_batch["image"][:1], net)
    step = train_step.make_step(algo, txs)
    refitted, _ = jax.jit(
        lambda s: jax.lax.scan(lambda s, b: step(s, b, KEY), s, batches)
    )(refitted)
    assert worst_group_accuracy(state.params["net"]) < 0.6
    assert (
        worst_group_accuracy(refitted.params["net"])
        > worst_group_accuracy(state.params["net"]) + 0.15
    )
