"""Group DRO and reweighting: weights of groups in closed form, and their benefit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from jbias.algos import base, erm, group_dro, reweight
from jbias.training import step as train_step
from tests.methods import Columns

KEY = jax.random.key(0)
COUNTS = np.array([30, 2, 4, 24])  # Of class and attribute: 00, 01, 10, 11.
LABEL, ATTRIBUTE = np.repeat([0, 0, 1, 1], COUNTS), np.repeat([0, 1, 0, 1], COUNTS)
TRAINING_COLUMNS = Columns(label=LABEL, attribute=ATTRIBUTE)


class Free(nn.Module):
    """A net whose logits are parameters, one row per example."""

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        return self.param("z", nn.initializers.zeros, (len(image), 2))


def batch_of(which):
    which = np.asarray(which)
    return {
        "image": jnp.zeros((len(which), 1, 1, 1)),
        "target": jnp.eye(2)[LABEL[which]],
        "attribute": jnp.asarray(ATTRIBUTE[which]),
    }


def run_losses(algo, logits, log_q=None, rows=range(60), **entries):
    """Return losses, statistics, metrics and the gradients of the trained loss."""
    stats = {name: part(KEY, None, None)["stats"] for name, part in algo.parts.items()}
    stats["net"] = {}
    if log_q is not None:
        stats["groups"] = {"log_q": jnp.asarray(log_q, jnp.float32)}
    batch = batch_of(rows) | entries

    def loss(z):
        losses, aux = algo.losses({"net": {"z": z}}, stats, batch, KEY)
        return losses[algo.updates[0].loss], (losses, aux)

    (_, (losses, aux)), gradient = jax.value_and_grad(loss, has_aux=True)(
        jnp.asarray(logits)
    )
    return losses, aux, np.asarray(gradient)


def cross_entropies(logits):
    """Return cross-entropies by NumPy."""
    z = np.asarray(logits, np.float64)
    return np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), LABEL[: len(z)]]


LOGITS = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
STARTS = np.cumsum([0, *COUNTS[:-1]])
RISKS = np.add.reduceat(cross_entropies(LOGITS), STARTS) / COUNTS


@pytest.mark.parametrize("adjustment", [0.0, 2.0])
def test_weights_after_some_losses_are_the_closed_form(adjustment):
    """After t steps with equal losses q is proportional to exp(t eta (L_g + C /
    sqrt(n_g))).
    """
    algo = group_dro.make(
        Free(), eta=0.3, adjustment=adjustment, columns=TRAINING_COLUMNS
    )
    log_q = None
    for _ in range(5):
        named, aux, grad = run_losses(algo, LOGITS, log_q)
        log_q = aux.stats["groups"]["log_q"]
    expected = np.exp(5 * 0.3 * (RISKS + adjustment / np.sqrt(COUNTS)))
    expected /= expected.sum()
    np.testing.assert_allclose(np.exp(log_q), expected, rtol=1e-5)
    assert named["robust"] == pytest.approx((expected * RISKS).sum(), rel=1e-5)
    assert aux.metrics["worst_group_loss"] == pytest.approx(RISKS.max(), rel=1e-5)
    assert aux.metrics["largest_weight"] == pytest.approx(expected.max(), rel=1e-5)
    # Weights are constants: dL/dz_i = q_g / n_g (p_i - y_i).
    p = np.asarray(jax.nn.softmax(LOGITS)) - np.eye(2)[LABEL]
    scale = np.repeat(expected / COUNTS, COUNTS)[:, None]
    np.testing.assert_allclose(grad, scale * p, rtol=1e-4, atol=1e-8)


@pytest.mark.slow
def test_the_worst_groups_weight_grows_to_1():
    algo, log_q, worst_weights = (
        group_dro.make(Free(), eta=1.0, columns=TRAINING_COLUMNS),
        None,
        [],
    )
    for _ in range(200):
        log_q = run_losses(algo, LOGITS, log_q)[1].stats["groups"]["log_q"]
        worst_weights.append(float(np.exp(log_q)[RISKS.argmax()]))
    assert (
        worst_weights == sorted(worst_weights)
        and worst_weights[0] > 1 / 4
        and worst_weights[-1] > 0.99
    )


def test_at_eta_zero_the_loss_is_the_mean_over_groups():
    algo = group_dro.make(Free(), eta=0.0, adjustment=1.0, columns=TRAINING_COLUMNS)
    named, aux, _ = run_losses(algo, LOGITS)
    assert named["robust"] == pytest.approx(RISKS.mean(), rel=1e-6)
    np.testing.assert_allclose(np.exp(aux.stats["groups"]["log_q"]), 1 / 4, rtol=1e-6)
    assert named["class"] == pytest.approx(cross_entropies(LOGITS).mean(), rel=1e-6)


def test_at_eta_zero_groups_of_one_size_give_erm():
    first = np.concatenate([start + np.arange(2) for start in STARTS])
    algo = group_dro.make(Free(), eta=0.0, columns=TRAINING_COLUMNS)
    logits = LOGITS[: len(first)]
    named, _, grad = run_losses(algo, logits, rows=first)
    plain, _, expected = run_losses(erm.make(Free()), logits, rows=first)
    assert named["robust"] == pytest.approx(float(plain["class"]), rel=1e-6)
    np.testing.assert_allclose(grad, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_groups_that_a_batch_lacks_keep_their_weights():
    """Relative weights are kept; groups without training examples have weight 0."""
    training_columns = Columns(label=[*LABEL, 1], attribute=[*ATTRIBUTE, 3])
    training_columns = Columns(
        {name: np.asarray(x) for name, x in training_columns.items()}
    )
    algo = group_dro.make(Free(), eta=0.5, adjustment=1.0, columns=training_columns)
    which = np.flatnonzero(LABEL == 0)
    _, aux, grad = run_losses(algo, LOGITS[which], rows=which)
    q = np.exp(aux.stats["groups"]["log_q"]).reshape(2, 4)
    assert np.isfinite(grad).all() and q.sum() == pytest.approx(1, rel=1e-6)
    assert not q[0, 2:].any() and not q[1, 2]
    assert q[1, 0] == q[1, 1] == q[1, 3] < q[0].max()


@pytest.mark.slow
def test_the_consistency_of_views_is_added():
    algo = group_dro.make(Free(), columns=TRAINING_COLUMNS)
    plain, _, _ = run_losses(algo, LOGITS)
    with_views, _, _ = run_losses(algo, LOGITS, views=2, consistency=12.0)
    expected = 12 * base.divergence(jnp.asarray(LOGITS), 2)
    difference = with_views["robust"] - plain["robust"]
    assert difference == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_weights_have_mean_1_and_follow_the_power(power):
    weights = np.asarray(reweight.weights(np.array([*COUNTS, 0]), power))
    assert weights[-1] == 0
    assert (weights[:4] * COUNTS).sum() == pytest.approx(COUNTS.sum(), rel=1e-6)
    ratios = weights[:4] * COUNTS**power
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)


def test_reweighted_groups_count_equally():
    """Over all data, loss and gradient are those of the mean over groups."""
    named, _, grad = run_losses(reweight.make(Free(), columns=TRAINING_COLUMNS), LOGITS)
    assert named["class"] == pytest.approx(RISKS.mean(), rel=1e-5)
    sums = np.add.reduceat(np.abs(grad[:, 0]), STARTS)
    p = np.asarray(jax.nn.softmax(LOGITS)) - np.eye(2)[LABEL]
    expected = np.add.reduceat(np.abs(p[:, 0]), STARTS) / COUNTS / 4
    np.testing.assert_allclose(sums, expected, rtol=1e-5)


def test_batches_add_up_to_the_reweighted_data():
    """The mean of the losses of all batches is the loss of the data, for any batches."""
    algo, order = (
        reweight.make(Free(), columns=TRAINING_COLUMNS),
        np.random.default_rng(1),
    )
    order = order.permutation(60).reshape(5, 12)
    losses = [run_losses(algo, LOGITS[rows], rows=rows)[0]["class"] for rows in order]
    assert np.mean(losses) == pytest.approx(RISKS.mean(), rel=1e-5)


def test_weights_of_a_transform_are_multiplied():
    weight = np.random.default_rng(2).uniform(0, 1, 60).astype(np.float32)
    algo = reweight.make(Free(), columns=TRAINING_COLUMNS)
    named, _, _ = run_losses(algo, LOGITS, weight=jnp.asarray(weight))
    group_weights = np.repeat(np.asarray(reweight.weights(COUNTS, 1.0)), COUNTS)
    expected = (group_weights * weight * cross_entropies(LOGITS)).sum() / weight.sum()
    assert named["class"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_micro_batches_add_up_to_the_step_of_the_batch():
    algo = reweight.make(Linear(), columns=TRAINING_COLUMNS)
    txs = (optax.sgd(1.0),)
    batch = toy(60, 0.9, 0)
    state = train_step.init(algo, txs, KEY, batch["image"][:1])

    def params_and_loss(accumulate):
        step = jax.jit(train_step.make_step(algo, txs, accumulate=accumulate))
        new_state, metrics = step(state, batch, KEY)
        return new_state.params, metrics["loss_class"]

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    jax.tree.map(assert_close, params_and_loss(1), params_and_loss(4))


class Linear(nn.Module):
    """A linear classifier."""

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        return nn.Dense(2, name="fc")(image.reshape(len(image), -1))


def toy(n, agrees, seed):
    """Return data with labels by a weak feature, and a strong feature for the attribute."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    attribute = np.where(rng.random(n) < agrees, label, 1 - label)
    signs = 2 * np.stack([label, attribute], 1) - 1
    x = signs * [1.0, 3.0] + rng.normal(size=(n, 2))
    return {
        "image": jnp.asarray(x[:, None, None], jnp.float32),
        "target": jnp.eye(2)[label],
        "attribute": jnp.asarray(attribute),
    }


def accuracies(params, batch):
    """Return accuracies by class and attribute."""
    predictions = np.argmax(Linear().apply({"params": params}, batch["image"]), 1)
    label = np.argmax(batch["target"], 1)
    group = 2 * label + np.asarray(batch["attribute"])
    return np.bincount(group, predictions == label) / np.bincount(group)


@functools.cache
def worst_group_accuracy(name):
    """Return the worst group's accuracy on balanced data, after training on 95:5 data."""
    train, test = toy(1000, 0.95, 0), toy(4000, 0.5, 1)
    training_columns = Columns(
        label=np.argmax(train["target"], 1), attribute=np.asarray(train["attribute"])
    )
    algo = {
        "erm": lambda: erm.make(Linear()),
        "group_dro": lambda: group_dro.make(
            Linear(), eta=0.1, columns=training_columns
        ),
        "reweight": lambda: reweight.make(Linear(), columns=training_columns),
    }[name]()
    txs = (optax.sgd(0.5),)
    step = train_step.make_step(algo, txs)
    state = train_step.init(algo, txs, KEY, train["image"][:1])
    state, _ = jax.jit(
        lambda state: jax.lax.scan(lambda s, _: step(s, train, KEY), state, None, 300)
    )(state)
    return accuracies(state.params["net"], test).min()


@pytest.mark.slow
def test_group_dro_and_reweighting_help_the_worst_group():
    """The best linear rule without the attribute has 84 of 100 right in each group."""
    assert worst_group_accuracy("erm") < 0.6
    assert worst_group_accuracy("reweight") > worst_group_accuracy("erm") + 0.15
    assert worst_group_accuracy("group_dro") > worst_group_accuracy("erm") + 0.15
