"""What is known of a network by its name: its options, its shapes, its published names."""

import dataclasses
import functools
import sys
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jbias.models import mapping, registry

SIDE = 224  # Pixels of published networks, where their files say no other.


def dialects(model: str) -> tuple[mapping.Names, ...]:
    """The systems of names that a network was published under; empty if none."""
    file = file_of(model)
    return file.get("DIALECTS", (file["NAMES"],) if "NAMES" in file else ())


def class_of(model: str) -> type[nn.Module]:
    """The module that a network of this name is."""
    return type(registry.MODELS[model](1))


def preset(model: str) -> Mapping[str, Any]:
    """The options that its name alone says."""
    make = registry.MODELS[model]
    return make.keywords if isinstance(make, functools.partial) else {}


def file_of(model: str) -> dict[str, Any]:
    """What is defined in the file of a network."""
    return vars(sys.modules[class_of(model).__module__])


def fields(model: str) -> tuple[str, ...]:
    """The options that it takes."""
    names = [field.name for field in dataclasses.fields(class_of(model))]
    return tuple(name for name in names if name not in ("parent", "name"))


def frozen(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Options as a key of a cache."""
    return tuple(sorted(options.items()))


@functools.lru_cache(256)
def shapes(model: str, options: tuple[tuple[str, Any], ...], side: int = SIDE) -> Any:
    """The shapes of a network's variables for images of that side."""
    net = registry.MODELS[model](**dict(options))
    image = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
    return jax.eval_shape(net.init, jax.random.key(0), image)
