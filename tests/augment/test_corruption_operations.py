"""Operations of corruptions on the device: OpenCV's, and all that the host has."""

import inspect

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from jbias.augment import corruption_draws, corruption_operations, opencv
from jbias.data import corruptions
from jbias.data.corruptions import device_filters, host_operations, operations
from tests import cases


@cases.each(
    ("interface", "module"),
    [
        (operations.Operations, host_operations),
        (operations.Operations, corruption_operations),
        (operations.Filters, host_operations),
        (operations.Filters, device_filters),
    ],
)
def test_host_and_device_have_the_functions_of_the_interfaces(interface, module):
    functions = {
        name: [*inspect.signature(function).parameters]
        for name, function in vars(interface).items()
        if inspect.isfunction(function) and not name.startswith("_")
    }
    assert len(functions) >= 10
    for name, parameters in functions.items():
        function = vars(module)[name]
        assert [*inspect.signature(function).parameters] == parameters[1:], name


def test_glass_has_random_numbers_for_the_most_sweeps():
    settings = corruptions.KNOWN["glass_blur"].published.settings
    sweeps = {row[2] for rows in settings.values() for row in rows}
    (numbers,) = corruption_draws.DRAWS["glass_blur"](jax.random.key(0), 8)
    assert numbers.shape == (max(sweeps), 8, 8, 2)


@cases.each("seed", range(4))
def test_edges_and_distances_equal_opencvs(seed):
    """For drops with sharp and with soft borders, and without drops."""
    rng = np.random.default_rng(seed)
    layer = ndimage.gaussian_filter(rng.normal(size=(60, 60)), 1 + seed)
    drops = layer > layer.std()
    soft = np.clip(130 + 60 * layer / layer.std(), 0, 255)
    image = np.where(drops, soft, soft * (seed % 2)).astype(np.uint8)
    edges = cv2.Canny(image, 50, 150)
    got = jax.jit(opencv.canny)(image.astype(np.int32))
    np.testing.assert_array_equal(got, edges > 0)
    assert 20 < (edges > 0).sum()
    far = cv2.distanceTransform(255 - edges, cv2.DIST_L2, 5)
    near = jax.jit(opencv.distance_to_edges)(jnp.asarray(edges > 0)) / 65536
    np.testing.assert_allclose(near, np.minimum(far, 20), atol=1e-4)


@pytest.mark.slow
def test_without_drops_there_is_no_light():
    light = jax.jit(corruption_operations.water_light)(jnp.zeros((40, 40), jnp.int32))
    assert light.shape == (40, 40) and (light == 0).all()
