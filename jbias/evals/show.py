"""Shows a network a set under the conditions of a probe, and notes what it decides.

Three programs take turns: one makes the stimuli, one is the network, one decides. So the
network is compiled once for all probes, and a probe once for all networks.
"""

import collections
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt8

from jbias.evals import decisions, predict, probe
from jbias.runtime import xla

AHEAD = 8  # Answers in flight while the next stimuli are made.


class Network(NamedTuple):
    """A network to ask; programs are kept by its functions: each must be one object."""

    apply: Callable[[PyTree, Float[Array, "b h w c"]], Float[Array, "b k"]]
    variables: PyTree
    # (variables, images, site) -> what probe.Rows.at gives; None where nobody may look.
    at: Callable[[PyTree, Float[Array, "b h w c"], str], tuple[Array, Array]] | None = (
        None
    )


class Batch(NamedTuple):
    """Some images of a set on the devices; all batches have one shape."""

    image: UInt8[Array, "b h w 3"]
    index: Int[Array, "b"]  # Each image's number in its set.
    label: Int[Array, "b"]  # In decision classes, -1 where there is none.
    target: Int[Array, "b"]  # In the network's own classes, -1 likewise.
    count: int  # Of these so many are images, the rest fills up.


def decide(
    network: Network,
    made: probe.Probe,
    batches: Iterable[Batch],
    rules: Mapping[str, predict.Rule],
    *,
    tell: Callable[[int], None] = lambda images: None,
    compiling: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> dict[str, dict[str, np.ndarray]]:
    """What a network decides about each image, by condition.

    rules: how it answers, by what tells conditions apart, "" for the first. A condition
    "fog" under the rule "mean_logit" is "fog mean_logit". Returns for each condition
    "prediction" int32 (n), and float32 (n) "confidence", the probability of the decided
    class among the decision classes, and "likelihood", that of the right one (NaN where
    it has none). Where several of the network's classes answer for one, its probability
    is what the rule makes of theirs (for "mean_logit" the softmax of the means), divided
    by the sum over the decision classes. `tell` hears how many images have been answered;
    what asks for programs the first time, which may compile them, is inside `compiling`.
    """
    found = collections.defaultdict(list)
    asked = _asked(network, made, batches, rules, compiling)
    for names, count, answers in _ahead(asked):
        for name, answer in zip(names, answers, strict=True):
            found[name].append([column[:count] for column in answer])
        tell(count)
    columns = ("prediction", "confidence", "likelihood")
    return {
        name: dict(zip(columns, map(np.concatenate, zip(*pieces)), strict=True))
        for name, pieces in found.items()
    }


def _asked(
    network, made, batches, rules, compiling
) -> Iterator[tuple[list[str], int, tuple]]:
    """Sends each batch through all conditions; answers are still being computed."""
    known = set()
    for batch in batches:
        with compiling() if made.look and not known else contextlib.nullcontext():
            seen = looked(network, made, batch)
        for condition in made.conditions:
            # One program for each of these, made when it is first asked for.
            program = made.static and made.static(condition), condition in made.steps
            first = program not in known
            known.add(program)
            with compiling() if first else contextlib.nullcontext():
                stimuli = shown(network, made, batch, condition, seen)
                logits = _logits(network.apply, network.variables, stimuli)
                answers = tuple(
                    _decided(logits, batch.label, rule.matrix, aggregate=rule.aggregate)
                    for rule in rules.values()
                )
            names = [" ".join(filter(None, (condition, rule))) for rule in rules]
            yield names, batch.count, answers


def looked(network: Network, made: probe.Probe, batch: Batch) -> PyTree:
    """What the probe asks the network about a batch before all conditions, or None."""
    if made.look is None:
        return None
    own = (network.variables, batch.image, batch.index, batch.target)
    return _looked(network.apply, network.at, made.look, *own)


@functools.partial(jax.jit, static_argnames=("apply", "at", "look"))
def _looked(apply, at, look, variables, image, index, target) -> PyTree:
    return look(_rows(apply, at, variables, image, index, target))


def shown(
    network: Network,
    made: probe.Probe,
    batch: Batch,
    condition: str,
    seen: PyTree = None,
) -> Float[Array, "b h w 3"]:
    """The stimuli of one condition, made of a batch; `seen` saves `look_once` again."""
    params = jax.tree.map(jnp.asarray, made.conditions[condition])
    how = made.static(condition) if made.static else None
    own = (network.variables, batch.image, batch.index, batch.target, params)
    stimuli = _stimuli(made.show, how, *own[1:])
    steps = made.steps.get(condition, 0)
    if steps and seen is None:
        seen = looked(network, made, batch)
    moved = functools.partial(_moved, network.apply, network.at, made.move, *own, seen)
    if xla.platform() == "cpu":
        # Gradients of convolutions are ten times slower inside a loop there.
        for _ in range(steps):
            stimuli = moved(stimuli, 1)
        return stimuli
    if not steps:
        return stimuli
    return moved(stimuli, steps)


@functools.partial(jax.jit, static_argnames=("show", "how"))
def _stimuli(show, how, image, index, target, params) -> Array:
    rows = probe.Rows(_unit(image), index, target, _unasked)
    return show(rows, params) if how is None else show(rows, params, how)


def _unasked(image: Float[Array, "b h w 3"]) -> Float[Array, "b k"]:
    raise ValueError("probe: show must not ask the network, which `move` may")


@functools.partial(jax.jit, static_argnames=("apply", "at", "move"))
def _moved(
    apply, at, move, variables, image, index, target, params, seen, stimuli, steps
) -> Array:
    rows = _rows(apply, at, variables, image, index, target)._replace(seen=seen)
    if xla.platform() == "cpu":
        return move(rows, params, stimuli)
    return jax.lax.fori_loop(0, steps, lambda _, x: move(rows, params, x), stimuli)


def _rows(apply, at, variables, image, index, target) -> probe.Rows:
    def logits(image: Float[Array, "b h w 3"]) -> Float[Array, "b k"]:
        return apply(variables, image).astype(jnp.float32)

    def look(image: Float[Array, "b h w 3"], site: str) -> tuple[Array, Array]:
        if at is None:
            raise ValueError(
                "probe: must look into the network, and an algorithm that answers in its "
                "own way cannot be looked into; leave the measure out"
            )
        return at(variables, image, site)

    return probe.Rows(_unit(image), index, target, logits, look)


def _unit(image: UInt8[Array, "b h w 3"]) -> Float[Array, "b h w 3"]:
    return image.astype(jnp.float32) / 255


@functools.partial(jax.jit, static_argnames="apply")
def _logits(apply, variables, image: Float[Array, "b h w 3"]) -> Float[Array, "b k"]:
    return apply(variables, image).astype(jnp.float32)


@functools.partial(jax.jit, static_argnames="aggregate")
def _decided(logits, label, matrix, *, aggregate: str) -> predict.Sure:
    return predict.sure(logits, label, matrix, aggregate)


def _ahead(asked: Iterator) -> Iterator:
    """Keeps answers in flight, so that the devices never wait for the host."""
    waiting = collections.deque()
    for one in itertools.chain(asked, [None] * AHEAD):
        waiting.append(one)
        if len(waiting) > AHEAD and (oldest := waiting.popleft()):
            names, count, answers = oldest
            yield names, count, jax.device_get(answers)


def agreement(
    network: Network, other: Network, made: probe.Probe, batches: Iterable[Batch]
) -> list[decisions.Number]:
    """The share of images that two networks answer alike, by their own classes.

    Under the probe's first condition and its last, in stimuli that the first makes.
    """
    names = [*made.conditions]
    same, total = dict.fromkeys((names[0], names[-1]), 0), 0
    for batch in batches:
        for condition in same:
            image = shown(network, made, batch, condition)
            one, two = (
                jax.device_get(_logits(net.apply, net.variables, image).argmax(-1))
                for net in (network, other)
            )
            same[condition] += int((one == two)[: batch.count].sum())
        total += batch.count
    return [
        decisions.Number("agreement", count / total, count, total, condition)
        for condition, count in same.items()
    ]


def of(found: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Decisions by condition, of what `run_probe` found and what is known of the images."""
    return {
        name: decisions.Decisions(
            one["prediction"],
            {**columns, **{key: one[key] for key in ("confidence", "likelihood")}},
        )
        for name, one in found.items()
    }
