"""A rectangle of each image hidden: by black, by the mean colour, by another image.

The one shape, with several fills, tells how much the fill has to do with what a network
decides: the data interference index of Marcu and Pruegel-Bennett, "On the effects of data
distortion on model analysis and training", https://arxiv.org/abs/2110.13968, Table 3.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, DI.py.
Deviation: as of `occluders`.
"""

import functools
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jbias.evals import interference, occluders, probe

AREAS, PLACEMENTS = ("beta", "uniform"), ("unrestricted", "restricted")


def make(
    *,
    area: str | float = "beta",
    placement: str = "unrestricted",
    fills: Sequence[str] = occluders.FILLS,
    mean: Sequence[float] = occluders.MEAN,
    others: probe.Others | None = None,
    classes: Sequence[str] = (),
    seed: int = 0,
) -> probe.Probe:
    """Conditions "", the image as it is, and the fills' names; rectangles are the same.

    area: the rectangle's share of the image, a number in [0, 1] for all, or drawn for
      each, "beta" from Beta(2, 1), as published, or "uniform".
    placement: "unrestricted", cut at the border, or "restricted" (`rectangle_mask`).
    fills: "black", "mean", the colour `mean`, and "other", the same places of one of the
      images `others`, drawn anew for each.

    Numbers are those of `interference.numbers`: accuracy and di_index. classes: the names
    of the decision classes. ValueError for options that have no meaning.
    """
    if isinstance(fills, str) or not fills or len(set(fills)) < len(fills):
        raise ValueError(
            "cut_occlusion: fills must be one or more of"
            f" {', '.join(occluders.FILLS)}, each once, got {fills!r}"
        )
    if placement not in PLACEMENTS or not (area in AREAS or _is_share(area)):
        raise ValueError(
            f"cut_occlusion: area must be {' or '.join(AREAS)}, or a number in [0, 1],"
            f" and placement {' or '.join(PLACEMENTS)}, got {area!r} and {placement!r}"
        )
    salt = np.uint32(zlib.crc32(f"{area} {placement}".encode()))
    by_fill = {
        fill: occluders.params("cut_occlusion", fill, mean, others) for fill in fills
    }
    images = {key: by_fill["other"][key] for key in ("others",) if "other" in by_fill}
    conditions = {
        name: {"salt": salt, "colour": np.zeros(3, np.float32), **images, **params}
        for name, params in {"": {}, **by_fill}.items()
    }

    def show(rows: probe.Rows, params: Any, fill: str) -> Float[Array, "b h w 3"]:
        if not fill:
            return rows.image
        keys = occluders.keys(seed, params["salt"], rows.index)
        size, place, which = jax.vmap(lambda key: jax.random.split(key, 3))(keys).T
        hide = functools.partial(
            occluders.rectangle,
            height=rows.image.shape[1],
            width=rows.image.shape[2],
            restricted=placement == "restricted",
        )
        hidden = jax.vmap(hide)(place, jax.vmap(_drawn(area))(size))
        instead = occluders.instead(params, which, other=fill == "other")
        return occluders.fill(rows.image, hidden, instead)

    def how(condition: str) -> str:
        return "colour" if condition in ("black", "mean") else condition

    numbers = functools.partial(interference.numbers, classes=len(classes))
    return probe.Probe(conditions, show, numbers, static=how)


def _drawn(area: str | float):
    """The function from a key to the share of an image that is hidden."""
    if area == "beta":  # The distribution function is x^2.
        return lambda key: jnp.sqrt(jax.random.uniform(key))
    if area == "uniform":
        return jax.random.uniform
    return lambda key: jnp.float32(area)


def _is_share(area: str | float) -> bool:
    return type(area) in (int, float) and 0 <= area <= 1
