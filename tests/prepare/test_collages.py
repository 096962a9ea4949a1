"""Pictures with known textures: the parts, and that a picture is made of them."""

import numpy as np
import pytest

from jbias.prepare import style

PHOTOS = np.random.default_rng(1).integers(0, 256, (3, 40, 36, 3), np.uint8)


@pytest.fixture(scope="module", params=[None, PHOTOS], ids=["drawn", "photos"])
def pictures(request):
    return style.draw(np.random.default_rng(0), 120, request.param)


def test_shapes_and_ranges(pictures):
    assert pictures.image.shape == pictures.carrier.shape == (120, 32, 32, 3)
    assert pictures.image.dtype == pictures.carrier.dtype == np.uint8
    assert 0 <= pictures.pattern.min() and pictures.pattern.max() <= style.NO_PATTERN
    assert len(set(pictures.pattern)) > 24
    assert pictures.strength.min() == 0 and 0.2 < pictures.strength.max() <= 0.6


def test_a_carrier_has_no_texture(pictures):
    """The texture has the given strength in a picture; without texture only noise is
    added.
    """
    plain = pictures.pattern == style.NO_PATTERN
    np.testing.assert_array_equal(plain, pictures.strength == 0)
    added = pictures.image.astype(float) - pictures.carrier
    spread = added.std((1, 2, 3)) / 255
    assert spread[plain].max() < 0.04
    # Not where colours are dark, since a pattern is of tones of a tint.
    assert np.corrcoef(spread, pictures.strength)[0, 1] > 0.6


def test_collages_depend_on_the_seed():
    first, again, other = (
        style.draw(np.random.default_rng(seed), 8) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.image, again.image)
    assert (first.image != other.image).any()


def test_tiles_have_two_tones_and_are_periodic():
    tiles = style.tiles()
    assert tiles.shape == (33, 48, 48) and tiles.min() == 0 and tiles.max() == 1
    np.testing.assert_array_equal(tiles[style.NO_PATTERN], 0.5)
    # Rows of the finer scale have ten periods in a tile: no seam where it begins anew.
    np.testing.assert_allclose(tiles[0][:24], tiles[0][24:], atol=1e-4)
