"""Settings of corruptions as arrays: shapes equal over severities, and the filters they
describe.
"""

import jax
import numpy as np
import pytest
from PIL import Image

from jbias.data import corruptions
from jbias.data.corruptions import host_operations
from tests import cases

KNOWN = corruptions.KNOWN


@pytest.fixture(scope="module")
def ice(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ice")
    for i, name in enumerate(host_operations.FROSTS):
        grey = np.full((300 + 9 * i, 320, 3), 50 * i, np.uint8)
        Image.fromarray(grey).save(folder / name, "PNG")
    return folder


@cases.each("side", [32, 64, 224])
@cases.each("name", KNOWN)
def test_severities_share_shapes(name, side, ice):
    shapes = set()
    for severity in corruptions.SEVERITIES:
        settings = corruptions.settings(name, severity, side=side, frost=ice)
        arrays, structure = jax.tree.flatten(settings)
        assert all(np.isfinite(np.asarray(a, float)).all() for a in arrays)
        assert not any(a.dtype in (np.float64, np.int64) for a in arrays)
        shapes.add((structure, *((a.shape, a.dtype) for a in arrays)))
    assert len(shapes) == 1


def test_zooms_are_matrices():
    field = np.random.default_rng(0).random((33, 33))
    for factor in (1.0, 1.06, 1.25, 3, 4.5):
        matrix = host_operations.magnified(np.eye(33), factor)
        expected = host_operations.zoomed(field, factor)
        np.testing.assert_allclose(matrix @ field @ matrix.T, expected, atol=1e-12)


def test_photographs_are_padded_and_stored_once(ice):
    mild = corruptions.settings("frost", 1, side=224, frost=ice)
    strong = corruptions.settings("frost", 2, side=224, frost=ice)
    assert mild["photographs"] is strong["photographs"]
    ice, sizes = mild["photographs"]
    assert ice.shape == (5, 336, 320, 3)
    np.testing.assert_array_equal(sizes[:, 0], 300 + 9 * np.arange(5))
    assert (ice[3, :327] == 150).all() and (ice[3, 327:] == 0).all()


@cases.each(
    ("change", "message"),
    [
        ({"name": "fogg"}, "got 'fogg'; did you mean 'fog'"),
        ({"severity": 6}, "severity must be one of .* got 6"),
        ({"side": 28}, "side must be one of .* got 28; .*table=224"),
        ({"table": 28}, "table must be one of .* got 28"),
        ({"name": "frost"}, "must have its photographs"),
    ],
)
def test_bad_settings_are_refused_as_for_images(change, message):
    options = dict(name="fog", severity=1, side=32) | change
    with pytest.raises(ValueError, match=f"data.corrupt: .*{message}"):
        corruptions.settings(options.pop("name"), options.pop("severity"), **options)


def test_other_image_sizes_need_a_table():
    settings = corruptions.settings("zoom_blur", 1, side=28, table=32)
    assert settings["zooms"].shape == (26, 28, 28)
    level = corruptions.settings("sparkles", 2, side=28)["level"]
    assert level == 2
