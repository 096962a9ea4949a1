"""What a checkpoint is known by: sums of its states and position, and their form.

Sums are made of what is saved, and compared with what is read, whatever lay between.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree


def sealed(
    states: tuple, info: Mapping[str, Any], known: int | None = None
) -> dict[str, Any]:
    """What stands beside the states on the disk: `info`, and the sums.

    `known` is the states' own, where it is known already.
    """
    body = json.dumps(info, sort_keys=True)
    head = zlib.crc32(body.encode())
    return {
        "body": body,
        "head": head,
        "form": form(states),
        "states": digest(states) if known is None else known,
    }


def opened(told: Mapping[str, Any]) -> dict[str, Any]:
    """The `info` again; ValueError where it is damaged."""
    body = told["body"]
    if "head" in told and told["head"] != zlib.crc32(body.encode()):
        raise ValueError("its position does not match its sum")
    return json.loads(body)


def check(told: Mapping[str, Any], states: tuple) -> None:
    """ValueError where states are not those that were sealed."""
    if "states" in told:
        same = digest(states) == told["states"]
    else:  # As checkpoints had it once.
        same = digest(states, told["body"]) == told["sum"]
    if not same:
        raise ValueError("its content does not match its sum")


def form(states: tuple) -> int:
    """What a model's states are told from another's by: names, shapes and types."""
    leaves = jax.tree.leaves_with_path(states)
    told = [(jax.tree_util.keystr(k), x.shape, str(x.dtype)) for k, x in leaves]
    return zlib.crc32(repr(told).encode())


def digest(states: PyTree, body: str = "") -> int:
    """A sum over the bytes of arrays, and of what stands beside them."""
    total = zlib.crc32(body.encode())
    for leaf in jax.tree.leaves(jax.device_get(states)):
        total = zlib.crc32(np.ascontiguousarray(leaf), total)
    return total
