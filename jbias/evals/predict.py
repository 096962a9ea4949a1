"""Runs networks over a set: the decisions of many seeds, each image once."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

One = Callable[..., Int[Array, "b"]]


def decider(apply: Callable) -> One:
    """Builds (variables, _, (image, rule), _) -> predicted classes, of one network.

    apply: (variables, float image in [0, 1]) -> logits. image is uint8 (b h w c).
    rule: {aggregate: matrix}, of which data.labels.ClassMap says the meaning (the name
    is known while compiling, the matrix is not); {} decides among the network's own
    classes. A class without a member is never decided for.
    """

    def decide(variables: Any, _, shared, __) -> Int[Array, "b"]:
        image, rule = shared
        scores = apply(variables, image.astype(jnp.float32) / 255)
        scores = scores.astype(jnp.float32)
        for aggregate, matrix in rule.items():
            scores = _answers(scores, matrix, aggregate)
        return jnp.argmax(scores, axis=-1).astype(jnp.int32)

    return decide


def _answers(
    logits: Float[Array, "b k"], matrix: Float[Array, "k d"], aggregate: str
) -> Float[Array, "b d"]:
    """What the members of each decision class say together."""
    # Accelerators round the factors of a product unless told not to.
    product = functools.partial(jnp.matmul, precision="highest")
    # Classes outside the matrix only scale: without them nothing underflows.
    members = jnp.where((matrix > 0).any(axis=1), logits, -jnp.inf)
    if aggregate == "mean_logit":
        scores = product(logits, matrix)
    elif aggregate == "max_prob":  # No training class is a member of two.
        scores = matrix[jnp.argmax(members, axis=-1)]
    else:
        scores = product(jax.nn.softmax(members), matrix)
    return jnp.where((matrix > 0).any(axis=0), scores, -jnp.inf)


def predict(
    many: Callable,
    variables: tuple,
    batches: Iterable[UInt8[np.ndarray, "b h w c"]],
    n: int,
    matrix: Float[np.ndarray, "k d"] | None,
    *,
    aggregate: str = "mean_prob",
    put: Callable,
    split: Callable[[tuple], tuple] = tuple,
    halt: Callable[[], bool] = lambda: False,
) -> list[Int[np.ndarray, "n"]] | None:
    """Decides about every image once; one array a seed, or None where `halt` said so.

    many: `decider` mapped over seeds. batches: n images in order, in batches of one
    size, the last padded. matrix, aggregate: of data.labels.ClassMap. put: places a
    batch on the devices. split: makes one array a seed of a batch's decisions, once
    they are on the host. halt: asked before each batch.
    """
    rule = {} if matrix is None else {aggregate: matrix}
    pieces = []
    for piece in _ahead(many, variables, batches, rule, put):
        if halt():
            return None
        pieces.append(split(piece))
    return [np.concatenate(seed)[:n] for seed in zip(*pieces)]


def _ahead(many, variables, batches, rule, put) -> Iterator[list]:
    """Keeps one batch in flight, so that the devices never wait for the host."""
    waiting = None
    for images in batches:
        outs = many(variables, ((),) * len(variables), (put(images), rule), None)
        if waiting is not None:
            yield jax.device_get(waiting)
        waiting = outs
    yield jax.device_get(waiting)
