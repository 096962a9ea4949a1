"""After stylising, shape is still read and texture follows the style."""

import pytest

from jbias import models
from studies import style_rates


@pytest.mark.slow
def test_stylized_images_keep_shape_and_change_texture():
    transfers = {name: models.TRANSFERS[name]() for name in ("render", "small")}
    rates = style_rates.rates(transfers, 32)
    assert min(rates["plain"].values()) >= 0.95, rates
    for name in transfers:
        assert min(rates[name].values()) >= 0.8, rates
