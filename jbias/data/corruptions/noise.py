"""The noises of ImageNet-C: gaussian_noise, shot_noise, impulse_noise and speckle_noise.

Arguments and sources: see `operations` and the package's docstring.
"""

from collections.abc import Sequence

import numpy as np

from jbias.data.corruptions import operations
from jbias.data.corruptions.operations import (
    Filter,
    Filters,
    Operations,
    Rng,
    Row,
    Settings,
    Unit,
    Values,
)


@operations.on_unit_scale
def gaussian_noise(x: Unit, rng: Rng, ops: Operations, *, sigma: float) -> Unit:
    """Return x plus N(0, sigma^2) noise for each value."""
    return x + rng.normal(0, sigma, x.shape)


def prepare_shot_noise(
    filters: Filters, side: int, row: Row, rows: Sequence[Row]
) -> Settings:
    """Return the settings of `shot_noise`: photons (a filter).

    row: the published count of one severity, the photons of a white pixel. rows: the rows of all
    severities, which give the largest count. Other arguments: see `Corruption.prepare` of the
    package.
    """
    most = max(other["count"] for other in rows)
    return {"photons": filters.photons(row["count"], most=most)}


@operations.on_filter_scale(np.float64)
def shot_noise(x: Unit, rng: Rng, ops: Operations, *, photons: Filter) -> Unit:
    """Return the image with photon noise: Poisson(count x) / count for each value x in [0, 1].

    photons: has the count, which is the number of photons of a white pixel.
    """
    return ops.photon_noise(x, rng, photons)


def impulse_noise(image: Values, rng: Rng, ops: Operations, *, chance: float) -> Values:
    """Return the image with each value set to 0 or 255, each with probability chance / 2."""
    xp, draw = image.__array_namespace__(), rng.random(image.shape)
    return xp.where(draw < chance, xp.where(draw < chance / 2, 0, 255), image)


@operations.on_unit_scale
def speckle_noise(x: Unit, rng: Rng, ops: Operations, *, sigma: float) -> Unit:
    """Return x plus x N(0, sigma^2) for each value x."""
    return x + x * rng.normal(0, sigma, x.shape)
