"""MLDG: losses and gradients against DomainBed and autodiff, and its draws."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.algos import base, mldg
from tests import cases, domainbed
from tests.methods import Columns

NET = domainbed.Perceptron()
(ERM_UPDATE, *_), *_ = domainbed.updates("ERM")
BATCH = ERM_UPDATE.batch
NUMBERS = np.arange(3)
COLUMNS = {
    2: Columns(label=np.arange(20) % 3, domain=np.arange(20) // 10),
    3: domainbed.COLUMNS,
}


@functools.cache
def orders(count):
    """Return the orders in which the environments are drawn for the first keys."""

    def order(seed):
        key = jax.random.split(jax.random.key(seed), 3)[0]
        return mldg.draw_order(key, np.arange(count))

    return np.asarray(jax.jit(jax.vmap(order))(jnp.arange(100))).tolist()


def key_of(order):
    """Return a key for which the environments are drawn in this order."""
    return jax.random.key(orders(len(order)).index(list(order)))


@functools.partial(jax.jit, static_argnums=1)
def risk(weights, environments):
    """Return the mean over environments of their mean cross-entropies."""
    logits = NET.apply({"params": weights}, BATCH["image"])
    losses = base.example_losses(logits, BATCH)
    is_member = [BATCH["domain"] == e for e in environments]
    return sum(jnp.mean(losses, where=rows) for rows in is_member) / len(is_member)


def is_by_adam(sequence):
    return sequence[0].options["inner"] == "adam"


def test_losses_and_gradients_of_the_variant_are_those_of_domainbed():
    """With Adam's inner step, for one and for two environments for meta-test."""
    sequences = [s for s in domainbed.updates("MLDG") if is_by_adam(s)]
    assert [s[0].options["n_meta_test"] for s in sequences] == [1, 2]
    for sequence in sequences:
        algo = mldg.make(
            NET,
            beta=sequence[0].options["mldg_beta"],
            meta_test=sequence[0].options["n_meta_test"],
            inner_rate=0.05,
            variant="domainbed",
            columns=domainbed.COLUMNS,
        )
        compute = domainbed.compiled(algo)
        for update in sequence:
            value, grads, _ = compute(update.batch, key=key_of(update.order))
            domainbed.assert_equal(update, value, grads)


def test_with_plain_inner_steps_domainbed_has_half_of_the_loss_of_two_environments():
    """The reference divides by the number of environments, 2, and has one pair of them."""
    (sequence,) = (s for s in domainbed.updates("MLDG") if not is_by_adam(s))
    algo = mldg.make(
        NET,
        beta=sequence[0].options["mldg_beta"],
        inner_rate=0.05,
        columns=COLUMNS[2],
    )
    compute = domainbed.compiled(algo)
    for update in sequence:
        value, grads, _ = compute(update.batch, key=key_of(update.order))
        half = jax.tree.map(lambda g: g / 2, grads)
        domainbed.assert_equal(update, value / 2, half)


@cases.each("meta_test", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_gradient_is_of_first_order(meta_test):
    """Means over environments; the inner step is a constant, see the formula of `make`."""
    order = (2, 0, 1)
    train, test = order[: 3 - meta_test], order[3 - meta_test :]
    options = dict(beta=0.6, inner_rate=0.3, meta_test=meta_test)
    algo = mldg.make(NET, columns=domainbed.COLUMNS, **options)
    value, grads, aux = domainbed.compiled(algo)(BATCH, key=key_of(order))

    weights = domainbed.weights()
    train_loss, train_grads = jax.value_and_grad(risk)(weights, train)
    adapted = jax.tree.map(lambda w, g: w - 0.3 * g, weights, train_grads)
    test_loss, test_grads = jax.value_and_grad(risk)(adapted, test)
    assert value == pytest.approx(float(train_loss + 0.6 * test_loss), rel=1e-5)
    assert aux.metrics["meta_test"] == pytest.approx(float(test_loss), rel=1e-5)
    expected = jax.tree.map(lambda f, g: f + 0.6 * g, train_grads, test_grads)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), grads, expected
    )
    assert algo.whole_batch


@pytest.mark.slow
def test_the_divergence_of_views_is_added_with_its_gradient():
    order = (1, 2, 0)
    rows = np.arange(14)
    batch = {k: x[rows] for k, x in BATCH.items()}
    algo = mldg.make(NET, columns=domainbed.COLUMNS)

    def compute(batch, **views):
        """Return loss and gradient; `views` are entries of the batch that are not traced."""

        def losses(params, stats, batch, key, static=None):
            return algo.losses(params, stats, {**batch, **views}, key)

        compute = domainbed.compiled(algo._replace(losses=losses))
        return compute(batch, key=key_of(order))[:2]

    plain, plain_grads = compute(batch)
    value, grads = compute(batch, views=2, consistency=3.0)

    def divergence(weights):
        logits = NET.apply({"params": weights}, batch["image"])
        return 3 * base.divergence(logits, 2)

    added, added_grads = jax.value_and_grad(divergence)(domainbed.weights())
    assert value == pytest.approx(plain + float(added), rel=1e-5)
    jax.tree.map(
        lambda a, b, c: np.testing.assert_allclose(a, b + c, atol=1e-5),
        grads,
        plain_grads,
        added_grads,
    )


@cases.each("meta_test", [1, 2, 3])
def test_pairs_of_the_variant_have_each_environment_for_meta_train_once(meta_test):
    """Environments for meta-test follow in turn, as in the reference."""
    order = jnp.asarray([4, 2, 0, 5, 1])  # Environment 3 has no training examples.
    tasks = mldg.make_tasks(order, meta_test, jnp.ones(6), variant="domainbed")
    train, test = order[: 5 - meta_test], order[5 - meta_test :]
    expected = [*zip(train, itertools.cycle(test))]
    assert len(tasks) == 5 - meta_test
    for task, (i, j) in zip(tasks, expected, strict=True):
        np.testing.assert_array_equal(task.train, np.eye(6)[i])
        np.testing.assert_array_equal(task.test, np.eye(6)[j])


def test_environments_that_a_batch_lacks_are_left_out():
    order, present = jnp.asarray([4, 2, 0, 1]), jnp.asarray([1.0, 0, 1, 1, 0])
    (task,) = mldg.make_tasks(order, 1, present, variant="")
    np.testing.assert_allclose(task.train, [0.5, 0, 0.5, 0, 0])
    np.testing.assert_array_equal(task.test, np.zeros(5))
    first, *_ = mldg.make_tasks(order, 1, present, variant="domainbed")
    np.testing.assert_array_equal(first.train, np.zeros(5))


def test_every_environment_is_drawn_for_meta_test_equally_often():
    """Three of four numbers, 3,000 draws: shares within four standard deviations of 1/3."""
    keys = jax.random.split(jax.random.key(0), 3000)
    orders = jax.vmap(lambda key: mldg.draw_order(key, np.array([0, 1, 3])))(keys)
    last = np.bincount(np.asarray(orders[:, -1]), minlength=4) / 3000
    np.testing.assert_allclose(last, [1 / 3, 1 / 3, 0, 1 / 3], atol=4 * 0.0087)


def test_losses_of_a_batch_without_the_environments_for_meta_test_are_those_for_meta_train():
    is_kept = np.asarray(BATCH["domain"]) != 1
    batch = {k: x[is_kept] for k, x in BATCH.items()}
    algo = mldg.make(NET, columns=domainbed.COLUMNS)
    value, grads, _ = domainbed.compiled(algo)(batch, key=key_of((2, 0, 1)))
    expected, expected_grads = jax.value_and_grad(risk)(domainbed.weights(), (0, 2))
    assert value == pytest.approx(float(expected), rel=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), grads, expected_grads
    )


@cases.each(
    ("options", "message"),
    [
        ({"beta": -1.0}, "beta must be at least 0"),
        ({"inner_rate": -1.0}, "inner_rate must be at least 0"),
        ({"variant": "biasbed"}, "variant must be one of '', domainbed"),
        ({"meta_test": -1}, "meta_test must be a whole number >= 0"),
        ({"meta_test": 3}, "meta_test must be below the number of environments, 3"),
    ],
)
def test_impossible_options_are_refused(net, options, message):
    with pytest.raises(ValueError, match=f"mldg: {message}, got"):
        mldg.make(net, columns=domainbed.COLUMNS, **options)
