"""SimCLR: the loss against brute force, the projection, and the trained weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.algos import simclr
from jbias.training import optim
from jbias.training import step as train_step
from tests import cases

RNG = np.random.default_rng(0)
Z = jnp.asarray(RNG.normal(size=(12, 5)), jnp.float32)
KEY = jax.random.key(3)


def chains(algo):
    rate = optim.constant(0.1, 1)
    return tuple(optim.sgd(rate, decay=1e-3) for _ in algo.updates)


def brute_force(z, temperature):
    """Return NT-Xent of each row, term by term."""
    z = np.asarray(z, np.float64)
    similar = np.array(
        [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in z] for a in z]
    )
    losses = []
    for i in range(len(z)):
        j = i + 1 if i % 2 == 0 else i - 1
        exponentials = [
            np.exp(similar[i, k] / temperature) for k in range(len(z)) if k != i
        ]
        losses.append(-np.log(np.exp(similar[i, j] / temperature) / sum(exponentials)))
    return losses


@cases.each("temperature", [0.1, 0.5, 2.0])
def test_loss_is_the_sum_term_by_term(temperature):
    losses, _ = simclr.contrast(Z, temperature)
    np.testing.assert_allclose(losses, brute_force(Z, temperature), rtol=1e-5)


def test_loss_in_closed_form():
    """n orthogonal pairs of equal views: log(1 + (2n - 2) exp(-1 / t))."""
    z = jnp.repeat(jnp.eye(6), 2, axis=0)
    losses, is_correct = simclr.contrast(z, 0.5)
    np.testing.assert_allclose(losses, np.log1p(10 * np.exp(-2)), rtol=1e-6)
    assert is_correct.all()


def test_equal_embeddings_have_the_loss_of_chance():
    losses, _ = simclr.contrast(jnp.ones((12, 5)), 0.1)
    np.testing.assert_allclose(losses, np.log(11), rtol=1e-6)


def test_the_loss_does_not_depend_on_lengths():
    scaled = Z * jnp.asarray(RNG.uniform(0.1, 10, (12, 1)), jnp.float32)
    for temperature in (0.1, 1.0):
        np.testing.assert_allclose(
            simclr.contrast(scaled, temperature)[0],
            simclr.contrast(Z, temperature)[0],
            rtol=1e-5,
        )


def test_the_order_of_images_and_views_does_not_matter():
    losses, is_correct = simclr.contrast(Z, 0.2)
    order = np.array([4, 5, 1, 0, 11, 10, 2, 3, 8, 9, 7, 6])
    reordered_losses, reordered_is_correct = simclr.contrast(Z[order], 0.2)
    np.testing.assert_allclose(reordered_losses, losses[order], rtol=1e-5)
    np.testing.assert_array_equal(reordered_is_correct, is_correct[order])


def test_accuracy_follows_from_the_nearest_other_row():
    angle = jnp.array([0.0, 0.1, 1.0, 1.5, 1.45, 1.1])
    z = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    _, right = simclr.contrast(z, 0.1)
    np.testing.assert_array_equal(right, [True, True, False, False, False, False])


@pytest.mark.slow
def test_gradients_are_finite_and_attract_the_partner():
    zero = Z.at[0].set(0.0)
    gradient = jax.grad(lambda z: simclr.contrast(z, 0.1)[0].sum())(zero)
    assert jnp.isfinite(gradient).all()
    changes_by_path = Z - 0.01 * jax.grad(lambda z: simclr.contrast(z, 0.5)[0].sum())(Z)
    assert (
        simclr.contrast(changes_by_path, 0.5)[0].sum()
        < simclr.contrast(Z, 0.5)[0].sum()
    )


@pytest.fixture(scope="module")
def trained(net, begin, batch):
    """Return the state before and after four steps, and the first metrics."""
    algo = simclr.make(net, temperature=0.5, features=16)
    txs = chains(algo)
    initial = begin(algo, txs)
    views = jnp.repeat(batch["image"], 2, axis=0)
    noise = 0.1 * jax.random.normal(KEY, views.shape)
    pairs = {
        "image": jnp.clip(views + noise, 0, 1),
        "target": jnp.repeat(batch["target"], 2, axis=0),
    }

    @jax.jit
    def step(state):
        return train_step.make_step(algo, txs)(state, {**pairs, "views": 2}, KEY)

    state, first = step(initial)
    for _ in range(3):
        state, last = step(state)
    return initial, state, first, last


def changes_by_path(first, second):
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), first, second)
    leaves = jax.tree_util.tree_leaves_with_path(changed)
    return {tuple(k.key for k in path): differs for path, differs in leaves}


@pytest.mark.slow
def test_all_but_the_linear_layer_are_trained(trained):
    """The last normalisation's bias is not trained, either."""
    initial, state, _, _ = trained
    unchanged = {
        path
        for path, differs in changes_by_path(initial.params, state.params).items()
        if not differs
    }
    assert unchanged == {
        ("net", "fc", "kernel"),
        ("net", "fc", "bias"),
        ("projection", "bn2", "bias"),
    }
    assert all(changes_by_path(initial.stats, state.stats).values())


@pytest.mark.slow
def test_losses_and_metrics(trained):
    _, _, first, last = trained
    names = {"loss_contrast", "gradient_norm_contrast", "contrast_accuracy"}
    assert set(first) == names
    # At most about log(15), what equal embeddings of 16 rows lose.
    assert 0 < first["loss_contrast"] < np.log(15) + 0.5
    assert last["loss_contrast"] < first["loss_contrast"]
    assert 0 <= first["contrast_accuracy"] <= 1


@pytest.mark.slow
def test_projection_is_the_published_one(trained):
    params = trained[0].params["projection"]
    shapes = jax.tree.map(jnp.shape, params)
    assert shapes == {
        "linear1": {"kernel": (64, 64)},
        "bn1": {"scale": (64,), "bias": (64,)},
        "linear2": {"kernel": (64, 16)},
        "bn2": {"scale": (16,), "bias": (16,)},
    }


@pytest.mark.slow
def test_the_projection_equals_numpys():
    head = simclr.Projection(3)
    h = np.asarray(RNG.normal(size=(6, 4)), np.float32)
    variables = head.init(KEY, h)
    projected, _ = head.apply(variables, h, train=True, mutable=["stats"])
    weights = [np.asarray(variables["params"][f"linear{i}"]["kernel"]) for i in (1, 2)]

    def normed(x):
        return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)

    expected = normed(np.maximum(normed(h @ weights[0]), 0) @ weights[1])
    np.testing.assert_allclose(projected, expected, rtol=1e-3, atol=1e-4)


@cases.each("views", [None, 1, 3])
def test_refuses_batches_without_two_views(views, net, variables, batch):
    algo = simclr.make(net)
    batch = batch if views is None else {**batch, "views": views}
    params, stats = ({"net": variables[kind]} for kind in ("params", "stats"))
    message = f"needs 2 views of each image, got {views or 1}"
    with pytest.raises(ValueError, match=message):
        algo.losses(params, stats, batch, KEY)


def test_batches_of_a_single_pair_are_refused(net):
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        simclr.make(net, temperature=0)
    with pytest.raises(ValueError, match="features must be at least 1, got 0"):
        simclr.make(net, features=0)
