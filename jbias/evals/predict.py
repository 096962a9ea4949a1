"""Runs networks over a set: the decisions of many seeds, each image once."""

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

AHEAD = 2  # Batches in flight while the next is made ready.


class Rule(NamedTuple):
    """How networks answer a set of n images; the rest as data.labels.ClassMap has it."""

    n: int
    matrix: Float[Array, "k d"] | None = None
    aggregate: str = "mean_prob"


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

    Logits may have a leading axis of several networks; then decisions have it.

    matrix, aggregate: of data.labels.ClassMap; without a matrix each decides among its
    own classes. A class without a member is never decided for. A program of its own:
    sets differ in their rules, and the network is compiled once for all of them.
    """

    def decide(scores: Float[Array, "b k"]) -> Int[Array, "b"]:
        if matrix is not None:
            scores = answers(scores, matrix, aggregate)
        return jnp.argmax(scores, axis=-1).astype(jnp.int32)

    return tuple(
        jax.vmap(decide)(scores) if scores.ndim == 3 else decide(scores)
        for scores in logits
    )


def answers(
    logits: Float[Array, "b k"], matrix: Float[Array, "k d"], aggregate: str
) -> Float[Array, "b d"]:
    """What the members of each decision class say together; -inf without a member."""
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
    rules: Sequence[Rule],
    *,
    split: Callable[[tuple], tuple] = tuple,
    halt: Callable[[], bool] = lambda: False,
) -> Iterator[list[Int[np.ndarray, "n"]]]:
    """Decides about every image of some sets once; yields an array a seed, set by set.

    many: `scorer` mapped over seeds. batches: the images of all sets in order, in
    batches of one size, on the devices, the last padded. rules: one a set. split: makes
    one array a seed of a batch's decisions, once they are on the host. halt: asked
    before each batch; where it says so, the sets that are left never come.
    """
    which, pieces = 0, []
    for number, piece in _ahead(many, variables, batches, rules, split, halt):
        pieces.append(piece)
        if sum(len(one[0]) for one in pieces) == rules[which].n:
            assert number == which
            yield [np.concatenate(seed) for seed in zip(*pieces)]
            which, pieces = which + 1, []


def _ahead(many, variables, batches, rules, split, halt) -> Iterator[tuple[int, list]]:
    """Keeps batches in flight, so that the devices never wait for the host."""
    waiting, first = collections.deque(), 0
    for images in batches:
        if halt():
            return
        logits = many(variables, ((),) * len(variables), images, None)
        waiting.append(
            [
                (number, rows, decided(logits, rule.matrix, aggregate=rule.aggregate))
                for number, rule, rows in _within(rules, first, len(images))
            ]
        )
        first += len(images)
        if len(waiting) > AHEAD:
            yield from _fetched(waiting.popleft(), split)
    while waiting:
        yield from _fetched(waiting.popleft(), split)


def _within(
    rules: Sequence[Rule], first: int, count: int
) -> Iterator[tuple[int, Rule, slice]]:
    """The sets that have images among so many from `first` on, and in which rows."""
    start = -first
    for number, rule in enumerate(rules):
        stop = start + rule.n
        if start < count and stop > 0:
            yield number, rule, slice(max(start, 0), min(stop, count))
        start = stop


def _fetched(batch: list, split: Callable) -> Iterator[tuple[int, list]]:
    for number, rows, answers in batch:
        yield number, [one[rows] for one in split(jax.device_get(answers))]
