"""Settings as arrays: of one shape over severities, and the filters they stand for."""

import numpy as np
import pytest
from PIL import Image

from jbias.data import corruptions
from jbias.data.corruptions import kernels
from tests import cases

KNOWN = (*corruptions.CORRUPTIONS, *corruptions.BAR)


@pytest.fixture(scope="module")
def ice(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ice")
    for i, name in enumerate(kernels.FROSTS):
        grey = np.full((300 + 9 * i, 320, 3), 50 * i, np.uint8)
        Image.fromarray(grey).save(folder / name, "PNG")
    return folder


@cases.each("side", [32, 64, 224])
@cases.each("name", KNOWN)
def test_severities_share_shapes(name, side, ice):
    shapes = set()
    for severity in corruptions.SEVERITIES:
        made = corruptions.settings(name, severity, side=side, frost=ice)
        assert all(np.isfinite(np.asarray(a, float)).all() for a in made.values())
        assert not any(a.dtype in (np.float64, np.int64) for a in made.values())
        shapes.add(tuple((key, a.shape, a.dtype) for key, a in sorted(made.items())))
    assert len(shapes) == 1


def test_zooms_are_matrices():
    field = np.random.default_rng(0).random((33, 33))
    for factor in (1.0, 1.06, 1.25, 3, 4.5):
        matrix = kernels.magnified(np.eye(33), factor)
        expected = kernels.zoomed(field, factor)
        np.testing.assert_allclose(matrix @ field @ matrix.T, expected, atol=1e-12)


def test_photographs_are_padded_and_held_once(ice):
    one, two = (corruptions.settings("frost", s, side=224, frost=ice) for s in (1, 2))
    assert one["ice"] is two["ice"] and one["ice"].shape == (5, 336, 320, 3)
    np.testing.assert_array_equal(one["sizes"][:, 0], 300 + 9 * np.arange(5))
    assert (one["ice"][3, :327] == 150).all() and (one["ice"][3, 327:] == 0).all()


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
def test_refuses_as_the_host_does(change, message):
    given = dict(name="fog", severity=1, side=32) | change
    with pytest.raises(ValueError, match=f"data.corrupt: .*{message}"):
        corruptions.settings(given.pop("name"), given.pop("severity"), **given)


def test_other_sides_take_a_table():
    made = corruptions.settings("zoom_blur", 1, side=28, table=32)
    assert made["zooms"].shape == (26, 28, 28)
    level = corruptions.settings("sparkles", 2, side=28)["level"]
    assert level == 2
