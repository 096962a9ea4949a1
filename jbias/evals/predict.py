"""Runs networks over a set: the decisions of many seeds, each image once."""

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt8

AHEAD = 2  # Batches in flight while the next is made ready.


class Rule(NamedTuple):
    """How networks answer a set of n images; the rest as data.labels.ClassMap has it."""

    n: int
    matrix: Float[Array, "k d"] | None = None
    aggregate: str = "mean_prob"
    label: Int[np.ndarray, "n"] | None = None  # Asks for probabilities, too.


One = Callable[..., Float[Array, "b k"]]


def scorer(apply: Callable) -> One:
    """Builds (variables, _, image, _) -> float32 logits, of one network.

    apply: (variables, float image in [0, 1]) -> logits. image is uint8 (b h w c).
    """

    def score(variables: Any, _, image: UInt8[Array, "b h w c"], __) -> Array:
        logits = apply(variables, image.astype(jnp.float32) / 255)
        return logits.astype(jnp.float32)

    return score


class Sure(NamedTuple):
    """Decisions with the probabilities of the decided class and of the right one.

    Without a right class, label -1, its probability is NaN.
    """

    prediction: Int[Array, "b"]
    confidence: Float[Array, "b"]
    likelihood: Float[Array, "b"]


@functools.partial(jax.jit, static_argnames="aggregate")
def decided(
    logits: tuple,
    matrix: Float[Array, "k d"] | None,
    label: Int[Array, "b"] | None = None,
    *,
    aggregate: str,
) -> tuple:
    """The decisions of each network, int32 (b), by its logits of a batch.

    With labels each is a `Confidence`. Logits may have a leading axis of several networks; then
    decisions have it.

    matrix, aggregate: of data.labels.ClassMap; without a matrix each decides among its
    own classes. A class without a member is never decided for. A program of its own:
    sets differ in their rules, and the network is compiled once for all of them.
    """

    def decide(logits: Float[Array, "b k"]) -> Int[Array, "b"] | Sure:
        if label is not None:
            return sure(logits, label, matrix, aggregate)
        scores = logits if matrix is None else answers(logits, matrix, aggregate)
        return jnp.argmax(scores, axis=-1).astype(jnp.int32)

    return tuple(
        jax.vmap(decide)(scores) if scores.ndim == 3 else decide(scores)
        for scores in logits
    )


def sure(
    logits: Float[Array, "b k"],
    label: Int[Array, "b"],
    matrix: Float[Array, "k d"] | None,
    aggregate: str,
) -> Sure:
    """What a network decides, and how probable it holds that and the right class.

    Where several of its classes answer for one, its probability is what the rule makes of
    theirs, divided by the sum over the decision classes.
    """
    scores = logits if matrix is None else answers(logits, matrix, aggregate)
    prediction = jnp.argmax(scores, axis=-1).astype(jnp.int32)
    if matrix is None or aggregate == "mean_logit":
        share = jax.nn.softmax(scores)
    else:
        if aggregate == "max_prob":  # Its scores tell the first from the others alone.
            members = jnp.where((matrix > 0).any(axis=1), logits, -jnp.inf)
            each = jax.nn.softmax(members)[:, :, None]
            scores = jnp.where(matrix > 0, each, 0).max(axis=1)
        share = jnp.maximum(scores, 0)
        share = share / jnp.sum(share, axis=-1, keepdims=True)
    likelihood = jnp.take_along_axis(share, jnp.maximum(label, 0)[:, None], 1)[:, 0]
    likelihood = jnp.where(label < 0, jnp.nan, likelihood)
    return Sure(prediction, share.max(-1), likelihood)


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
    fetch: Callable[[PyTree], PyTree] = jax.device_get,
) -> Iterator[list[Int[np.ndarray, "n"] | Sure]]:
    """Decides about every image of some sets once; yields an array a seed, set by set.

    Where a rule has labels, it is a `Confidence` a seed.

    many: `scorer` mapped over seeds. batches: the images of all sets in order, in
    batches of one size, on the devices, the last padded. rules: one a set. split: makes
    one array a seed of a batch's decisions, once they are on the host. halt: asked
    before each batch; where it says so, the sets that are left never come. fetch:
    brings decisions to the host.
    """
    which, pieces = 0, []
    for number, rows, answers in _ahead(many, variables, batches, rules, halt):
        pieces.append([_cut(one, rows) for one in split(fetch(answers))])
        if sum(len(jax.tree.leaves(one)[0]) for one in pieces) == rules[which].n:
            assert number == which
            yield [_joined(seed) for seed in zip(*pieces)]
            which, pieces = which + 1, []


def _joined(pieces: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *some: np.concatenate(some), *pieces)


def _ahead(many, variables, batches, rules, halt) -> Iterator[tuple]:
    """Keeps batches in flight, so that the devices never wait for the host."""
    waiting, first = collections.deque(), 0
    for images in batches:
        if halt():
            return
        logits = many(variables, ((),) * len(variables), images, None)
        waiting.append(
            [
                (
                    number,
                    rows,
                    decided(logits, rule.matrix, label, aggregate=rule.aggregate),
                )
                for number, rule, rows, label in _within(rules, first, len(images))
            ]
        )
        first += len(images)
        if len(waiting) > AHEAD:
            yield from waiting.popleft()
    while waiting:
        yield from waiting.popleft()


def _within(
    rules: Sequence[Rule], first: int, count: int
) -> Iterator[tuple[int, Rule, slice, Int[np.ndarray, "b"] | None]]:
    """The sets that have images among so many from `first` on, in which rows, and labels.

    Of rows that are not of the set the label is -1.
    """
    start = -first
    for number, rule in enumerate(rules):
        stop = start + rule.n
        if start < count and stop > 0:
            rows, label = slice(max(start, 0), min(stop, count)), None
            if rule.label is not None:
                label = np.full(count, -1, np.int32)
                label[rows] = rule.label[rows.start - start : rows.stop - start]
            yield number, rule, rows, label
        start = stop


def _cut(answers: PyTree, rows: slice) -> PyTree:
    return jax.tree.map(lambda column: column[rows], answers)
