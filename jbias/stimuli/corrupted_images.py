"""Probe of the corruptions of ImageNet-C and ImageNet-C-bar, made on the device.

Random draws depend on the image's number in the set, the condition and the seed.
Sources: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261; Mintun,
Kirillov and Xie, NeurIPS 2021, https://arxiv.org/abs/2102.11273.
Deviation: the published sets have other random draws of the same corruptions. Sides of 224
and 64 pixels end as JPEG of quality 85, as published. `jbias prepare corrupt` gives the
released code's images (brightness and saturate differ in up to 6 and 10 % of values); this
probe differs from them in at most 4.1 % of values (saturate 20 %), almost always by one level
of 255.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jbias import errors as caller_errors
from jbias.augment import corrupt
from jbias.data import corruptions as published
from jbias.data.corruptions import device_filters
from jbias.measures import corruption_error
from jbias.stimuli import random_draws, shown

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
) -> shown.Stimuli:
    """Return a probe with conditions such as "fog-3": each corruption at each severity.

    names: "imagenet_c", all nineteen corruptions; "imagenet_c_bar", all ten; or the names of
      some corruptions.
    severities: some of 1 to 5.
    side: image side in pixels. table: the image side, 32, 64 or 224 pixels, whose published
      settings of ImageNet-C are used; None: `side`. Settings of ImageNet-C-bar scale with any
      side.
    quantise: round stimuli to bytes, as in the published sets.
    stored: compress images by JPEG with quality 85, which needs `quantise`; None: as in the
      published sets, that is, for sides (`table` or `side`) above 32 pixels if `quantise`.
    frost: the folder of the photographs frost1.png, ..., which are not shipped. Without this
      folder, "imagenet_c" stands for the eighteen corruptions except frost, and means are called
      "..._without_frost".
    errors: by corruption, a reference network's mean error in (0, 1]; adds the metric
      "mean_corruption_error".
    seed: seed of the random draws.

    Metrics: see `corruption_error.numbers`. ValueError for invalid options, and for "frost"
    without all of its photographs.
    """
    corruption_names = _corruption_names(names, frost)
    caller_errors.check_choices(
        "corruptions", severities, published.SEVERITIES, name="severities"
    )
    if stored is None:
        stored = quantise and (table or side) > 32
    if stored and not quantise:
        raise ValueError("corruptions: stored images are bytes; set quantise=True")
    # Photographs are the same arrays for all severities: put on the device only once.
    on_device: dict[int, tuple[Any, Any]] = {}
    conditions = {}
    for name, severity in itertools.product(corruption_names, severities):
        condition = f"{name}-{severity}"
        arrays = published.settings(name, severity, side=side, table=table, frost=frost)
        for array in jax.tree.leaves(arrays):
            on_device.setdefault(id(array), (array, jnp.asarray(array)))
        settings = jax.tree.map(lambda array: on_device[id(array)][1], arrays)
        salt = random_draws.salt(condition)
        conditions[condition] = {"salt": salt, "settings": settings}

    tables = device_filters.jpeg(85) if stored else None

    def show(rows: shown.Rows, params: Any, name: str) -> shown.Images:
        """Return the images in [0, 1] with the corruption `name`, such as "fog".

        params: "salt" of the random draws, and "settings", the arrays of one severity. Other
        arguments: see the enclosing function.
        """
        keys = random_draws.image_keys(seed, params["salt"], rows.index)
        corrupted = corrupt.corrupt_batch(
            rows.image,
            keys,
            name,
            params["settings"],
            quantise=quantise,
            stored=tables,
        )
        return jnp.clip(corrupted, 0, 1)

    errors = errors and dict(errors)
    numbers = functools.partial(corruption_error.numbers, errors=errors)
    corruption_of = lambda condition: condition.rpartition("-")[0]
    return shown.Stimuli(conditions, show, numbers, static=corruption_of)


def _corruption_names(names: str | Sequence[str], frost: str | None) -> tuple[str, ...]:
    """Return the names of corruptions, given a key of FAMILIES, one name or several.

    frost: see `make`. ValueError for unknown or repeated names.
    """
    if isinstance(names, str) and names in FAMILIES:
        absent = {"frost"} if frost is None else ()
        return tuple(name for name in FAMILIES[names] if name not in absent)
    listed = (names,) if isinstance(names, str) else tuple(names)
    must = f"names must be {' or '.join(map(repr, FAMILIES))}, or corruptions"
    for name in listed:
        if name not in published.KNOWN:
            hint = caller_errors.suggest(name, [*FAMILIES, *published.KNOWN])
            raise ValueError(f"corruptions: {must}, got {name!r}; {hint}")
    are_distinct = caller_errors.are_distinct(listed)
    must = "be one or more, each once"
    caller_errors.check(are_distinct, "corruptions", must, names, name="names")
    return listed
