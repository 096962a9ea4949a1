"""Runs networks over a set: the decisions of many seeds, each image once."""

import collections
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

AHEAD = 2  # Batches in flight while the next is made ready.

One = Callable[..., Float[Array, "b k"]]


def scorer(apply: Callable) -> One:
    """Builds (variables, _, image, _) -> float32 logits, of one network.

    apply: (variables, float image in [0, 1]) -> logits. image is uint8 (b h w c).
    """

    def score(variables: Any, _, image: UInt8[Array, "b h w c"], __) -> Array:
        logits = apply(variables, image.astype(jnp.float32) / 255)
        return logits.astype(jnp.float32)

    return score


@functools.partial(jax.jit, static_argnames="aggregate")
def decided(
    logits: tuple, matrix: Float[Array, "k d"] | None, *, aggregate: str
) -> tuple:
    """The decisions of each network, int32 (b), by its logits of a batch.

    matrix, aggregate: of data.labels.ClassMap; without a matrix each decides among its
    own classes. A class without a member is never decided for. A program of its own:
    sets differ in their rules, and the network is compiled once for all of them.
    """

    def decide(scores: Float[Array, "b k"]) -> Int[Array, "b"]:
        if matrix is not None:
            scores = _answers(scores, matrix, aggregate)
        return jnp.argmax(scores, axis=-1).astype(jnp.int32)

    return tuple(decide(scores) for scores in logits)


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
    batches: Iterable[UInt8[Array, "b h w c"]],
    n: int,
    matrix: Float[Array, "k d"] | None,
    *,
    aggregate: str = "mean_prob",
    halt: Callable[[], bool] = lambda: False,
) -> list[Int[np.ndarray, "n"]] | None:
    """Decides about every image once; one array a seed, or None where `halt` said so.

    many: `scorer` mapped over seeds. batches: n images in order, in batches of one
    size, on the devices, the last padded. matrix, aggregate: as `decided` takes them.
    halt: asked before each batch.
    """
    pieces = []
    for piece in _ahead(many, variables, batches, matrix, aggregate):
        if halt():
            return None
        pieces.append(piece)
    return [np.concatenate(seed)[:n] for seed in zip(*pieces)]


def _ahead(many, variables, batches, matrix, aggregate) -> Iterator[list]:
    """Keeps batches in flight, so that the devices never wait for the host."""
    waiting = collections.deque()
    for images in batches:
        logits = many(variables, (0,) * len(variables), images, None)
        waiting.append(decided(logits, matrix, aggregate=aggregate))
        if len(waiting) > AHEAD:
            yield jax.device_get(waiting.popleft())
    while waiting:
        yield jax.device_get(waiting.popleft())
