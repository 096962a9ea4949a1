"""Shows a set under the corruptions of ImageNet-C or ImageNet-C-bar, made on the device.

Each image's draws are those of its number in the set, the condition and the seed.
Sources: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261; Mintun,
Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
Deviation: the published sets hold other draws of the same corruptions.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from jbias.augment import corrupt
from jbias.data import base
from jbias.data import corruptions as published
from jbias.evals import corruption_error, occlusion, probe

FAMILIES = {"imagenet_c": published.CORRUPTIONS, "imagenet_c_bar": published.BAR}


def make(
    *,
    names: str | Sequence[str] = "imagenet_c",
    severities: Sequence[int] = published.SEVERITIES,
    side: int = 224,
    table: int | None = None,
    quantise: bool = True,
    stored: bool | None = None,
    frost: str | None = None,
    errors: Mapping[str, float] | Sequence[tuple[str, float]] | None = None,
    seed: int = 0,
) -> probe.Probe:
    """Conditions "fog-3": each corruption at each severity.

    names: "imagenet_c", its nineteen; "imagenet_c_bar", its ten; or names of some.
    side: of the images, in pixels. table: the side whose settings are used, one of 32,
      64 and 224; None is the images' own. Those of ImageNet-C-bar follow any side.
    quantise: stimuli are of bytes, as those published are.
    stored: images are what JPEG of quality 85 leaves of them; None is as published:
      so they are but at 32 pixels.
    frost: the folder of its photographs, frost1.png ..., which are not shipped. Without
      it "imagenet_c" is its other eighteen, and means are called "..._without_frost".
    errors: as of corruption_error.numbers.

    Raises ValueError for anything else.
    """
    shown = _names(names, frost)
    probe.check_choices("corruptions", "severities", severities, published.SEVERITIES)
    if stored is None:
        stored = quantise and (table or side) > 32
    if stored and not quantise:
        raise ValueError("corruptions: stored images are bytes; set quantise=True")
    held = {}  # Photographs are the same for all severities: held once.
    conditions, how = {}, dict(side=side, table=table, frost=frost)
    for name, severity in itertools.product(shown, severities):
        condition = f"{name}-{severity}"
        arrays = published.settings(name, severity, **how)
        for array in arrays.values():
            held.setdefault(id(array), (array, jnp.asarray(array)))
        settings = {key: held[id(array)][1] for key, array in arrays.items()}
        salt = occlusion.salt(condition)
        conditions[condition] = {"salt": salt, "settings": settings}

    tables = published.quantisation_tables(85) if stored else None

    def show(rows: probe.Rows, params: Any, name: str) -> probe.Images:
        keys = occlusion.image_keys(seed, params["salt"], rows.index)
        form = dict(quantise=quantise, stored=tables)
        out = corrupt.corrupt_batch(rows.image, keys, name, params["settings"], **form)
        return jnp.clip(out, 0, 1)

    errors = errors and dict(errors)
    counted = functools.partial(corruption_error.numbers, errors=errors)
    how = lambda condition: condition.rpartition("-")[0]
    return probe.Probe(conditions, show, counted, static=how)


def _names(names: str | Sequence[str], frost: str | None) -> tuple[str, ...]:
    if isinstance(names, str) and names in FAMILIES:
        absent = {"frost"} if frost is None else ()
        return tuple(name for name in FAMILIES[names] if name not in absent)
    listed = (names,) if isinstance(names, str) else tuple(names)
    must = f"names must be {' or '.join(map(repr, FAMILIES))}, or corruptions"
    for name in listed:
        if name not in corrupt.CORRUPTIONS:
            hint = base.did_you_mean(name, [*FAMILIES, *corrupt.CORRUPTIONS])
            raise ValueError(f"corruptions: {must}, got {name!r}; {hint}")
    once = probe.are_distinct(listed)
    probe.check(once, "corruptions", "names must be one or more, each once", names)
    return listed
