"""The seed axis: named random streams, and one function mapped over many seeds.

The states of many seeds are a tuple with one entry a seed. Nothing else in jbias knows
how they are run together; algorithms know no seed axis at all.
"""

import concurrent.futures
import functools
import types
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

# (state, arg, shared, static) -> outputs, of one seed.
One = Callable[[Any, Any, Any, Hashable], Any]
# (states, args, shared, static) -> outputs, tuples with one entry a seed.
Many = Callable[[tuple, tuple, Any, Hashable], tuple]
# (states, args a step, shared, static) -> (states, outputs a step).
Advance = Callable[[tuple, Sequence[tuple], Any, Hashable], tuple[tuple, list[tuple]]]


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


def threaded(one: One, *, donate: bool) -> Many:
    """As `looped`, but from one thread a seed, so that the seeds fill the cores.

    A CPU runs a program in the thread that dispatches it, and one seed alone leaves
    part of the cores idle. Equal to lone runs to the bit: it is the lone run's program.
    """
    alone = jax.jit(one, static_argnums=3, donate_argnums=(0,) if donate else ())
    pool = concurrent.futures.ThreadPoolExecutor(256, "seed")

    def many(states, args, shared, static):
        def call(state, arg):
            return alone(state, arg, shared, static)

        return tuple(pool.map(call, states, args))

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
    {
        "unrolled": unrolled,
        "threaded": threaded,
        "looped": looped,
        "vmapped": vmapped,
    }
)


def strategy_for(backend: str) -> str:
    """The strategy that "auto" means.

    On CPU the threaded one was the fastest (benchmarks/results) and compiles one
    program. An accelerator runs one operation at a time whoever dispatches it.
    """
    return "threaded" if backend == "cpu" else "looped"


def over(one: One, strategy: str = "auto", *, donate: bool = False) -> Many:
    """Maps a function of one seed over a tuple of seeds.

    ValueError where the strategy is unknown. `donate` gives the states' memory to
    the outputs.
    """
    return STRATEGIES[_known(strategy)](one, donate=donate)


def stepper(one: One, strategy: str = "auto") -> Advance:
    """Maps several steps of a seed, (state, arg, shared, static) -> (state, out).

    Seeds that run in threads take their steps without waiting for each other.
    """
    if _known(strategy) == "threaded":
        return _threaded_stepper(one)
    many = over(one, strategy, donate=True)

    def advance(states, steps, shared, static):
        outs = []
        for args in steps:
            states, out = zip(*many(states, args, shared, static), strict=True)
            outs.append(out)
        return states, outs

    return advance


def _threaded_stepper(one: One) -> Advance:
    alone = jax.jit(one, static_argnums=3, donate_argnums=0)
    pool = concurrent.futures.ThreadPoolExecutor(256, "seed")

    def advance(states, steps, shared, static):
        def several(state, args):
            outs = []
            for arg in args:
                state, out = alone(state, arg, shared, static)
                outs.append(out)
            return state, outs

        ended = pool.map(several, states, zip(*steps, strict=True))
        states, by_seed = zip(*ended, strict=True)
        return states, list(zip(*by_seed, strict=True))

    return advance


def _known(strategy: str) -> str:
    if strategy == "auto":
        strategy = strategy_for(jax.default_backend())
    if strategy not in STRATEGIES:
        raise ValueError(
            f"seeds: strategy must be one of auto, {', '.join(STRATEGIES)}, "
            f"got {strategy!r}"
        )
    return strategy
