"""After stylising, shape is still read and texture follows the style."""

import pytest

from benchmarks import style_rates
from jbias import models


@pytest.mark.slow
def test_shape_stays_and_texture_follows():
    transfers = {name: models.TRANSFERS[name]() for name in ("render", "small")}
    found = style_rates.rates(transfers, 32)
    assert min(found["plain"].values()) >= 0.95, found
    for name in transfers:
        assert min(found[name].values()) >= 0.8, found
