"""The seed axis: named random streams, and one function mapped over many seeds.

The states of many seeds are a tuple with one entry a seed. Nothing else in jbias knows
how they are run together; algorithms know no seed axis at all.
"""

import functools
import types
import zlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

# (state, arg, shared, static) -> outputs, of one seed.
One = Callable[[Any, Any, Any, Hashable], Any]
# (states, args, shared, static) -> outputs, tuples with one entry a seed.
Many = Callable[[tuple, tuple, Any, Hashable], tuple]


def key(seed: int) -> PRNGKeyArray:
    """The root of everything random in a seed; depends on its value alone."""
    return jax.random.key(seed)


def stream(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """A named stream of its own: another name, added or removed, shifts no other."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def unrolled(one: One, *, donate: bool) -> Many:
    """Writes the seeds' programs side by side into one, without stacking anything.

    Equal to lone runs to the bit on CPU, where independent operations of several
    seeds also fill the cores better than those of one.
    """

    @functools.partial(jax.jit, static_argnums=3, donate_argnums=(0,) if donate else ())
    def many(states, args, shared, static):
        each = zip(states, args, strict=True)
        return tuple(one(state, arg, shared, static) for state, arg in each)

    return many


def looped(one: One, *, donate: bool) -> Many:
    """Dispatches one program seed after seed: one compilation, however many seeds."""
    alone = jax.jit(one, static_argnums=3, donate_argnums=(0,) if donate else ())

    def many(states, args, shared, static):
        each = zip(states, args, strict=True)
        return tuple(alone(state, arg, shared, static) for state, arg in each)

    return many


def vmapped(one: One, *, donate: bool) -> Many:
    """Stacks the seeds and vectorises over them.

    Convolutions become grouped ones, which is slow on most backends, and a gate
    becomes a select; equal to lone runs within float tolerance.
    """

    @functools.partial(jax.jit, static_argnums=3, donate_argnums=(0,) if donate else ())
    def many(states, args, shared, static):
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        stacked_args = jax.tree.map(lambda *leaves: jnp.stack(leaves), *args)
        outs = jax.vmap(lambda state, arg: one(state, arg, shared, static))(
            stacked, stacked_args
        )
        return tuple(
            jax.tree.map(lambda leaf, i=i: leaf[i], outs) for i in range(len(states))
        )

    return many


STRATEGIES: Mapping[str, Callable[..., Many]] = types.MappingProxyType(
    {"unrolled": unrolled, "looped": looped, "vmapped": vmapped}
)


def strategy_for(backend: str) -> str:
    """The strategy that "auto" means.

    On CPU the unrolled one was the fastest by far (benchmarks/results). A program on
    an accelerator runs one operation at a time, so there unrolling buys only
    compilation time.
    """
    return "unrolled" if backend == "cpu" else "looped"


def over(one: One, strategy: str = "auto", *, donate: bool = False) -> Many:
    """Maps a function of one seed over a tuple of seeds.

    ValueError where the strategy is unknown. `donate` gives the states' memory to
    the outputs.
    """
    if strategy == "auto":
        strategy = strategy_for(jax.default_backend())
    if strategy not in STRATEGIES:
        raise ValueError(
            f"seeds: strategy must be one of auto, {', '.join(STRATEGIES)}, "
            f"got {strategy!r}"
        )
    return STRATEGIES[strategy](one, donate=donate)
