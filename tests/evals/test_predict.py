import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias import feed, seeds
from jbias.evals import predict


class Linear(nn.Module):
    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        assert not train
        return nn.Dense(5)(image.reshape(len(image), -1))


@pytest.fixture(scope="module")
def setting():
    images = np.random.default_rng(0).integers(0, 256, (23, 4, 4, 3), np.uint8)
    net = Linear()
    variables = [
        net.init(jax.random.key(seed), jnp.zeros((1, 4, 4, 3))) for seed in (0, 1)
    ]
    return net, tuple(variables), images


def decide(setting, batch, matrix=None, strategy="unrolled", aggregate="mean_prob"):
    net, variables, images = setting
    return predict.predict(
        seeds.over(predict.decider(net.apply, aggregate), strategy),
        variables,
        images,
        matrix,
        batches=feed.padded(len(images), batch),
        put=jnp.asarray,
    )


@pytest.mark.parametrize("batch", [1, 7, 23, 64])
def test_each_image_is_decided_once_whatever_the_batch(setting, batch):
    net, variables, images = setting
    for one, decided in zip(variables, decide(setting, batch)):
        expected = np.argmax(net.apply(one, images / np.float32(255)), axis=-1)
        np.testing.assert_array_equal(decided, expected)


def test_classes_are_means_of_probabilities_and_empty_ones_never_win(setting):
    net, variables, images = setting
    matrix = np.zeros((5, 4), np.float32)
    matrix[[0, 1], 0] = 1 / 2
    matrix[2, 1] = 1
    matrix[[3, 4], 3] = 1 / 2
    p = jax.nn.softmax(net.apply(variables[0], images / np.float32(255)))
    p = np.asarray(p)
    expected = [
        int(np.argmax([row[:2].mean(), row[2], -1, row[3:].mean()])) for row in p
    ]
    decided, _ = decide(setting, 8, matrix)
    np.testing.assert_array_equal(decided, expected)
    assert 2 not in decided


def test_means_of_logits_are_another_rule(setting):
    """A class of many members has one sure member: its mean logit is drowned."""
    net, variables, images = setting
    matrix = np.zeros((5, 2), np.float32)
    matrix[:4, 0], matrix[4, 1] = 1 / 4, 1
    biased = jax.tree.map(lambda leaf: 0 * leaf, variables[0])
    biased["params"]["Dense_0"]["bias"] = jnp.array([9.0, -9, -9, -9, 0])
    setting = net, (biased,), images
    (by_prob,) = decide(setting, 8, matrix)
    (by_logit,) = decide(setting, 8, matrix, aggregate="mean_logit")
    assert (by_prob == 0).all()
    assert (by_logit == 1).all()


def test_a_confident_outside_class_does_not_drown_the_members(setting):
    """A logit gap of 200 underflows every member's probability to zero."""
    net, variables, images = setting
    biased = jax.tree.map(lambda leaf: leaf, variables[0])
    biased["params"]["Dense_0"]["bias"] = jnp.array([0, 200.0, 0, 0, 0])
    matrix = np.zeros((5, 3), np.float32)
    matrix[[2, 3, 4], [0, 1, 2]] = 1
    (decided,) = decide((net, (biased,), images), 8, matrix)
    logits = np.asarray(net.apply(biased, images / np.float32(255)))
    np.testing.assert_array_equal(decided, np.argmax(logits[:, 2:], axis=-1))


def test_halting_gives_nothing(setting):
    net, variables, images = setting
    asked = []
    decided = predict.predict(
        seeds.over(predict.decider(net.apply), "looped"),
        variables,
        images,
        None,
        batches=feed.padded(len(images), 4),
        put=jnp.asarray,
        halt=lambda: asked.append(1) or len(asked) > 2,
    )
    assert decided is None
    assert len(asked) == 3
