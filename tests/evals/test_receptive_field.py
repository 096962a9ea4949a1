"""Receptive fields: of convolutions alone they are known."""

import jax
import numpy as np
import pytest
from flax import linen as nn

from jbias import models
from jbias.evals import receptive_field
from jbias.models import taps


class Plain(nn.Module):
    """Convolutions (kernel, stride), a site behind each, and nothing else."""

    layers: tuple[tuple[int, int], ...]
    width: int = 3
    tap: taps.Tap | None = None

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        x = image
        for i, (kernel, stride) in enumerate(self.layers):
            x = nn.Conv(self.width, (kernel,) * 2, (stride,) * 2, use_bias=False)(x)
            x = taps.through(self, x, f"conv{i + 1}", key, train)
        x = taps.through(self, x.mean((1, 2)), "pooled", key, train)
        return x


SIDE = 20
IMAGES = np.random.default_rng(0).random((6, SIDE, SIDE, 3)).astype(np.float32)


def variables(net):
    """Weights of the network's shapes; drawn in numpy, which compiles nothing."""
    random = np.random.default_rng(1)
    shapes = jax.eval_shape(net.init, jax.random.key(0), IMAGES[:1])
    return jax.tree.map(lambda x: random.normal(size=x.shape).astype(x.dtype), shapes)


@pytest.mark.parametrize("layers", [((3, 1), (5, 1), (3, 1)), ((3, 2), (3, 2), (3, 1))])
def test_support_is_the_analytical_field(layers):
    """A square of 1 + sum of (kernel - 1) times the strides before, and all of it."""
    net = Plain(layers)
    found = receptive_field.fields(net, variables(net), IMAGES)
    assert list(found) == [f"conv{i + 1}" for i in range(len(layers))]
    side, step = 1, 1
    for field, (kernel, stride) in zip(found.values(), layers, strict=True):
        side, step = side + (kernel - 1) * step, step * stride
        rows, columns = np.nonzero(field)
        for places in (rows, columns):
            assert np.ptp(places) + 1 == side
            # The middle unit looks at the middle, up to a step.
            assert abs(places.mean() - SIDE / 2) <= step
        assert (field > 0).sum() == side**2
        assert field.sum() == pytest.approx(1)
        assert receptive_field.area(field, 1 - 1e-9) == side**2


def test_images_are_asked_for_a_batch_at_a_time():
    """They may lie in files, more of them than fit in memory."""

    class Asked:
        shape = IMAGES.shape
        most = 0

        def __len__(self):
            return len(IMAGES)

        def __getitem__(self, rows):
            self.most = max(self.most, len(IMAGES[rows]))
            return IMAGES[rows]

    net, asked = Plain(((3, 1),)), Asked()
    given = variables(net)
    (one,) = receptive_field.fields(net, given, asked, batch=4).values()
    (other,) = receptive_field.fields(net, given, IMAGES, batch=4).values()
    np.testing.assert_array_equal(one, other)
    assert asked.most == 4


def test_field_is_the_sum_of_squared_kernels():
    """Over the channels of the unit, on average over signs: here over 600 images."""
    net = Plain(((5, 1),), width=8)
    held = variables(net)
    images = np.zeros((600, 8, 8, 3), np.float32)
    (field,) = receptive_field.fields(net, held, images, batch=600).values()
    (kernel,) = jax.tree.leaves(held["params"])
    expected = np.square(kernel).sum((2, 3))
    expected = expected / expected.sum()
    np.testing.assert_allclose(field[2:7, 2:7], expected, rtol=0.3)
    assert np.abs(field[2:7, 2:7] - expected).mean() < 0.06 * expected.mean()


def test_neither_batches_nor_other_sites_matter():
    net = Plain(((3, 1), (3, 1)))
    held = variables(net)
    whole = receptive_field.fields(net, held, IMAGES)
    parts = receptive_field.fields(net, held, IMAGES, batch=4, sites=("conv2",))
    np.testing.assert_allclose(parts["conv2"], whole["conv2"], atol=1e-7)


def test_known_networks_look_wider_with_depth():
    net = models.MODELS["cnn"](5, width=2)
    held = variables(net)
    held["stats"] = jax.tree.map(np.abs, held["stats"])  # Variances are.
    found = {
        (n.metric, n.condition): n
        for n in receptive_field.measure(net, held, IMAGES, shares=(0.5, 0.95))
    }
    assert {n.n for n in found.values()} == {6}
    for metric in ("receptive_area", "receptive_radius"):
        sizes = [found[metric, f"stage{i} 95%"].value for i in (1, 2)]
        assert 0 < sizes[0] < sizes[1]
        assert found[metric, "stage2 50%"].value < sizes[1]
    # 5 x 5 behind 2 x 2 behind 5 x 5: no more than 16 on a side.
    assert found["receptive_area", "stage2 95%"].value <= 16**2


def test_images_may_be_bytes():
    net = Plain(((3, 1),))
    held = variables(net)
    pixels = (255 * IMAGES[:2]).astype(np.uint8)
    floats = (pixels / 255).astype(np.float32)
    one, other = (
        receptive_field.fields(net, held, x)["conv1"] for x in (pixels, floats)
    )
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_sizes_by_hand():
    field = np.zeros((9, 9))
    field[4, 4], field[4, 3], field[4, 5] = 0.6, 0.2, 0.2
    assert receptive_field.area(field, 0.5) == 1
    assert receptive_field.area(field, 0.7) == 2
    assert receptive_field.radius(field, 0.5) == 0
    assert receptive_field.radius(field, 0.95) == 1


def test_refuses():
    net = Plain(((3, 1),))
    held = variables(net)
    with pytest.raises(ValueError, match="must be some of conv1, got 'pooled'"):
        receptive_field.fields(net, held, IMAGES, sites=("pooled",))
    with pytest.raises(ValueError, match="there must be images, got .1, 0"):
        receptive_field.fields(net, held, IMAGES[:0])
    with pytest.raises(ValueError, match="shares must be between 0 and 1"):
        receptive_field.measure(net, held, IMAGES, shares=(1.0,))
    dead = jax.tree.map(np.zeros_like, held)
    with pytest.raises(ValueError, match="passes conv1 must depend on the image"):
        receptive_field.fields(net, dead, IMAGES)
