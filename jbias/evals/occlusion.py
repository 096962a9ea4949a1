"""Accuracy with a part of each image hidden, over how much: CutOcclusion and iOcclusion.

Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968, section 5; `iocclusion` makes the index of
what is measured on training and test images.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, occlusion.py
and gradcam.py.
Deviations: as of `occluders` and `grad_cam`. The release tosses a coin for each image
whether the most or the least salient pixels are hidden, and takes the map in 8 bits: the
order "random" with quantise=True does so, the default is the paper's. There the least are
floor(i h w) pixels, and ties are in no order.
"""

import functools
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jbias.evals import grad_cam, interference, occluders, probe

MASKS = ("rectangle", "fourier", "grad_cam")
ORDERS = ("most", "least", "random")
FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_LEAST = {"most": 0.0, "least": 1.0, "random": 0.5}  # The chance of the least salient.


def make(
    *,
    masks: Sequence[str] = MASKS,
    orders: Sequence[str] = ORDERS,
    fractions: Sequence[float] = FRACTIONS,
    fill: str = "black",
    site: str = "stage3",
    quantise: bool = False,
    mean: Sequence[float] = occluders.MEAN,
    others: probe.Others | None = None,
    classes: Sequence[str] = (),
    seed: int = 0,
) -> probe.Probe:
    """Conditions "", the image as it is, and "rectangle 0.3", "grad_cam most 0.3", ...

    masks: "rectangle", inside the image (its area is that of whole, even sides);
      "fourier", large patches, and "grad_cam", of exactly ceil(i h w) pixels.
    orders: of "grad_cam": whether the "most" or the "least" salient pixels go, or, for
      each image at "random", one of the two. quantise: the map is in steps of 1/255.
    fractions: i, in thousandths between 0 and 1.
    fill, mean, others: as of `make_cut_occlusion`.
    site: where the network is looked into, of models.taps.sites. "stage3" passes 8 by 8
      places of 32 pixels in a ResNet with the small stem, as published; a VGG has as many
      at "stage1" (2 by 2 at "stage3"), a BagNet 6 by 6 at "stage2" (2 by 2 or 3 by 3).

    Numbers are those of `interference.numbers`: accuracy and di_index. classes: the names
    of the decision classes. ValueError for options that have no meaning.
    """
    _check_names("masks", masks, MASKS)
    _check_names("orders", orders, ORDERS)
    parts = _thousandths(fractions)
    common = occluders.params("occlusion", fill, mean, others)
    ways = [way for mask in masks for way in _ways(mask, orders)]
    conditions = {"": _params("", 0, common)}
    for way in ways:
        for fraction, part in parts.items():
            name = f"{way} {fraction:g}"
            conditions[name] = _params(name, part, common)

    def hide(rows: probe.Rows, params: Any, mask) -> Float[Array, "b h w 3"]:
        keys = occluders.keys(seed, params["salt"], rows.index)
        own, which = jax.vmap(lambda key: jax.random.split(key, 2))(keys).T
        instead = occluders.instead(params, which, other=fill == "other")
        return occluders.fill(rows.image, mask(own), instead)

    def show(rows: probe.Rows, params: Any, kind: str) -> Float[Array, "b h w 3"]:
        _, height, width, _ = rows.image.shape
        if kind == "rectangle":
            draw = functools.partial(
                occluders.rectangle,
                area=params["thousandths"] / 1000,
                height=height,
                width=width,
                restricted=True,
            )
        elif kind == "fourier":
            draw = functools.partial(
                occluders.fourier,
                count=occluders.count(params["thousandths"], height * width),
                height=height,
                width=width,
            )
        else:  # The network is asked first.
            return rows.image
        return hide(rows, params, jax.vmap(draw))

    def look(rows: probe.Rows) -> Int[Array, "b h w"]:
        """Ranks pixels by the map of the image as it is, once for all conditions."""
        _, height, width, _ = rows.image.shape
        seen = rows.at(rows.image, site)
        maps = grad_cam.maps(*seen, height, width, site=site)
        return jax.vmap(occluders.ranks)(jnp.floor(255 * maps) if quantise else maps)

    def move(rows: probe.Rows, params: Any, stimuli: Array) -> Array:
        _, height, width, _ = stimuli.shape
        count = occluders.count(params["thousandths"], height * width)

        def mask(keys):
            coin = jax.vmap(lambda key: jax.random.bernoulli(key, params["least"]))
            salient = jax.vmap(occluders.salient, (0, None, 0))
            return salient(rows.seen, count, coin(keys))

        return hide(rows, params, mask)

    return probe.Probe(
        conditions,
        show,
        functools.partial(interference.numbers, classes=len(classes)),
        move if "grad_cam" in masks else None,
        {name: 1 for name in conditions if name.startswith("grad_cam")},
        static=lambda condition: condition.partition(" ")[0],
        look=look if "grad_cam" in masks else None,
    )


def _ways(mask: str, orders: Sequence[str]) -> list[str]:
    return [f"{mask} {order}" for order in orders] if mask == "grad_cam" else [mask]


def _params(name: str, thousandths: int, common: dict) -> dict[str, Any]:
    order = name.split(" ")[1:-1]
    return {
        "salt": np.uint32(zlib.crc32(name.encode())),
        "thousandths": np.int32(thousandths),
        "least": np.float32(_LEAST[order[0]] if order else 0),
        **common,
    }


def _check_names(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    if (
        isinstance(given, str)
        or not given
        or len(set(given)) < len(given)
        or not set(given) <= set(known)
    ):
        raise ValueError(
            f"occlusion: {what} must be one or more of {', '.join(known)}, each once, got"
            f" {given!r}"
        )


def _thousandths(fractions: Sequence[float]) -> dict[float, int]:
    parts = {f: round(1000 * f) for f in fractions}
    exact = all(abs(1000 * f - part) < 1e-6 for f, part in parts.items())
    inside = all(0 < part < 1000 for part in parts.values())
    if not parts or not exact or not inside or len(parts) < len(fractions):
        raise ValueError(
            "occlusion: fractions must be between 0 and 1 with at most three digits, each"
            f" once, such as 0.3; got {fractions!r}"
        )
    return parts
