"""Runs networks over a set: the decisions of many seeds, each image once."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

One = Callable[..., Int[Array, "b"]]


def decider(apply: Callable, aggregate: str = "mean_prob") -> One:
    """Builds (variables, _, (image, matrix), _) -> predicted classes, of one network.

    apply: (variables, float image in [0, 1]) -> logits. image is uint8 (b h w c).
    matrix, of (training classes, decision classes), averages probabilities into the
    decision's classes, or logits where `aggregate` is "mean_logit"; None decides among
    the network's own. A class without a member is never decided for.
    """

    def decide(variables: Any, _, shared, __) -> Int[Array, "b"]:
        image, matrix = shared
        logits = apply(variables, image.astype(jnp.float32) / 255)
        logits = logits.astype(jnp.float32)
        if matrix is not None:
            # Classes outside the matrix only scale: without them nothing underflows.
            member = matrix.sum(axis=1) > 0
            if aggregate == "mean_logit":
                shares = logits @ matrix
            else:
                shares = jax.nn.softmax(jnp.where(member, logits, -jnp.inf)) @ matrix
            logits = jnp.where(matrix.sum(axis=0) > 0, shares, -jnp.inf)
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)

    return decide


def predict(
    many: Callable,
    variables: tuple,
    images: UInt8[np.ndarray, "n h w c"],
    matrix: Float[np.ndarray, "k d"] | None,
    *,
    batches: list[Int[np.ndarray, "b"]],
    put: Callable,
    halt: Callable[[], bool] = lambda: False,
) -> list[Int[np.ndarray, "n"]] | None:
    """Decides about every image once; one array a seed, or None where `halt` said so.

    many: `decider` mapped over seeds. batches: indices of one size, the last padded.
    put: places a batch on the devices. halt: asked before each batch.
    """
    pieces = []
    for piece in _ahead(many, variables, images, matrix, batches, put):
        if halt():
            return None
        pieces.append(piece)
    return [np.concatenate(seed)[: len(images)] for seed in zip(*pieces)]


def _ahead(many, variables, images, matrix, batches, put) -> Iterator[list]:
    """Keeps one batch in flight, so that the devices never wait for the host."""
    waiting = None
    for index in batches:
        outs = many(
            variables, (0,) * len(variables), (put(images[index]), matrix), None
        )
        if waiting is not None:
            yield jax.device_get(waiting)
        waiting = outs
    yield jax.device_get(waiting)
