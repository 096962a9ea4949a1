"""Receptive fields: closed forms for networks of convolutions alone."""

import jax
import numpy as np
import pytest
from flax import linen as nn

from jbias import models
from jbias.evals.activations import receptive_field
from jbias.models import taps


class Plain(nn.Module):
    """A network of convolutions (kernel, stride) with a site after each."""

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
    """Return random weights of the network, drawn in numpy, so that nothing is compiled."""
    random = np.random.default_rng(1)
    shapes = jax.eval_shape(net.init, jax.random.key(0), IMAGES[:1])
    return jax.tree.map(lambda x: random.normal(size=x.shape).astype(x.dtype), shapes)


@pytest.mark.parametrize("layers", [((3, 1), (5, 1), (3, 1)), ((3, 2), (3, 2), (3, 1))])
def test_support_is_the_analytical_field(layers):
    """The field is a full square of side 1 + sum of (kernel - 1) * product of strides before."""
    net = Plain(layers)
    fields = receptive_field.fields(net, variables(net), IMAGES)
    assert list(fields) == [f"conv{i + 1}" for i in range(len(layers))]
    side, step = 1, 1
    for field, (kernel, stride) in zip(fields.values(), layers, strict=True):
        side, step = side + (kernel - 1) * step, step * stride
        rows, columns = np.nonzero(field)
        for places in (rows, columns):
            assert np.ptp(places) + 1 == side
            # The field of the middle unit is in the middle, up to a step.
            assert abs(places.mean() - SIDE / 2) <= step
        assert (field > 0).sum() == side**2
        assert field.sum() == pytest.approx(1)
        assert receptive_field.area(field, 1 - 1e-9) == side**2


def test_images_are_read_batch_by_batch():
    """Images in files may be more than fit in memory."""

    class CountingImages:
        shape = IMAGES.shape
        largest_batch = 0

        def __len__(self):
            return len(IMAGES)

        def __getitem__(self, rows):
            self.largest_batch = max(self.largest_batch, len(IMAGES[rows]))
            return IMAGES[rows]

    net, images = Plain(((3, 1),)), CountingImages()
    net_variables = variables(net)
    (field,) = receptive_field.fields(net, net_variables, images, batch=4).values()
    (expected,) = receptive_field.fields(net, net_variables, IMAGES, batch=4).values()
    np.testing.assert_array_equal(field, expected)
    assert images.largest_batch == 4


def test_field_is_the_sum_of_squared_kernels():
    """The sum is over the unit's channels; the mean over random signs is that of 600 images."""
    net = Plain(((5, 1),), width=8)
    net_variables = variables(net)
    images = np.zeros((600, 8, 8, 3), np.float32)
    (field,) = receptive_field.fields(net, net_variables, images, batch=600).values()
    (kernel,) = jax.tree.leaves(net_variables["params"])
    expected = np.square(kernel).sum((2, 3))
    expected = expected / expected.sum()
    np.testing.assert_allclose(field[2:7, 2:7], expected, rtol=0.3)
    assert np.abs(field[2:7, 2:7] - expected).mean() < 0.06 * expected.mean()


def test_fields_do_not_depend_on_the_batch_size_or_other_sites():
    net = Plain(((3, 1), (3, 1)))
    net_variables = variables(net)
    all_fields = receptive_field.fields(net, net_variables, IMAGES)
    one_field = receptive_field.fields(
        net, net_variables, IMAGES, batch=4, sites=("conv2",)
    )
    np.testing.assert_allclose(one_field["conv2"], all_fields["conv2"], atol=1e-7)


def test_fields_grow_with_depth():
    net = models.MODELS["cnn"](5, width=2)
    net_variables = variables(net)
    # Variances are not negative.
    net_variables["stats"] = jax.tree.map(np.abs, net_variables["stats"])
    numbers = {
        (n.metric, n.condition): n
        for n in receptive_field.measure(net, net_variables, IMAGES, shares=(0.5, 0.95))
    }
    assert {n.n for n in numbers.values()} == {6}
    for metric in ("receptive_area", "receptive_radius"):
        sizes = [numbers[metric, f"stage{i} 95%"].value for i in (1, 2)]
        assert 0 < sizes[0] < sizes[1]
        assert numbers[metric, "stage2 50%"].value < sizes[1]
    # 5 x 5 after 2 x 2 after 5 x 5: a side of at most 16.
    assert numbers["receptive_area", "stage2 95%"].value <= 16**2


def test_images_may_be_bytes():
    net = Plain(((3, 1),))
    net_variables = variables(net)
    pixels = (255 * IMAGES[:2]).astype(np.uint8)
    floats = (pixels / 255).astype(np.float32)
    of_bytes, of_floats = (
        receptive_field.fields(net, net_variables, x)["conv1"] for x in (pixels, floats)
    )
    np.testing.assert_allclose(of_bytes, of_floats, atol=1e-6)


def test_sizes_by_hand():
    field = np.zeros((9, 9))
    field[4, 4], field[4, 3], field[4, 5] = 0.6, 0.2, 0.2
    assert receptive_field.area(field, 0.5) == 1
    assert receptive_field.area(field, 0.7) == 2
    assert receptive_field.radius(field, 0.5) == 0
    assert receptive_field.radius(field, 0.95) == 1


def test_invalid_arguments_are_refused():
    net = Plain(((3, 1),))
    net_variables = variables(net)
    with pytest.raises(ValueError, match="must be some of conv1, got 'pooled'"):
        receptive_field.fields(net, net_variables, IMAGES, sites=("pooled",))
    with pytest.raises(ValueError, match="there must be images, got .1, 0"):
        receptive_field.fields(net, net_variables, IMAGES[:0])
    with pytest.raises(ValueError, match="shares must be between 0 and 1"):
        receptive_field.measure(net, net_variables, IMAGES, shares=(1.0,))
    zero_variables = jax.tree.map(np.zeros_like, net_variables)
    with pytest.raises(ValueError, match="passes conv1 must depend on the image"):
        receptive_field.fields(net, zero_variables, IMAGES)
