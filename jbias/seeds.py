"""The seed axis: named random streams, and one function mapped over many seeds.

Outside of here the states of many seeds are a tuple with one entry a seed; algorithms
know no seed axis at all. `layout` says how they lie while they are trained.
"""

import concurrent.futures
import functools
import os
import types
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec
from jaxtyping import PRNGKeyArray

from jbias.runtime import xla
from jbias.strategies import batched
from jbias.strategies import layout as layouts

# (state, arg, shared, static) -> outputs, of one seed, or of a tree of seeds.
One = Callable[[Any, Any, Any, Hashable], Any]
# (states, args, shared, static) -> outputs, of a wave: tuples with one entry a tree.
Many = Callable[[layouts.Wave, tuple, Any, Hashable], tuple]
# (states, args a step, shared, static) -> (states, outputs a step), all packed.
Advance = Callable[
    [layouts.Packed, Sequence[layouts.Packed], Any, Hashable],
    tuple[layouts.Packed, list[layouts.Packed]],
]


def key(seed: int) -> PRNGKeyArray:
    """The root of everything random in a seed; depends on its value alone."""
    return jax.random.key(seed)


def stream(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """A named stream of its own: another name, added or removed, shifts no other."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


class Strategy(NamedTuple):
    """How the trees of a wave are computed, and how the seeds of one tree are.

    dispatch: "looped", one program a tree, one after the other: one compilation,
      however many. "threaded", likewise, from threads: a CPU runs a program in the
      thread that dispatches it, and one seed alone leaves part of the cores idle.
      "unrolled", one program of all trees side by side. All are equal to lone runs to
      the bit on CPU.
    convolutions: "", or what the seeds of a wave, which are one tree then, make of a
      convolution: "grouped", one in groups, as `jax.vmap` has it, which is slow on most
      backends, or "unrolled", one for each seed (`batched.over_seeds`). A gate becomes a
      select; equal to lone runs within float tolerance.
    """

    dispatch: str
    convolutions: str = ""

    @property
    def stacked(self) -> bool:
        """Whether the seeds of a wave are one tree."""
        return bool(self.convolutions)


STRATEGIES: Mapping[str, Strategy] = types.MappingProxyType(
    {
        "unrolled": Strategy("unrolled"),
        "threaded": Strategy("threaded"),
        "looped": Strategy("looped"),
        "vmapped": Strategy("looped", "grouped"),
        "unrolled_convolutions": Strategy("looped", "unrolled"),
    }
)


# What "auto" chooses from where one device, or all of one share, train several seeds.
CANDIDATES: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "cpu": ("threaded", "looped"),
        "gpu": ("looped", "vmapped", "unrolled_convolutions"),
        "tpu": ("looped", "vmapped"),
    }
)


def strategy_for(backend: str, devices: int = 1) -> str:
    """The strategy that "auto" means as long as nothing speaks for another.

    An accelerator runs one operation at a time whoever dispatches it, and programs of
    several devices must start in the same order on each.
    """
    return "threaded" if backend == "cpu" and devices == 1 else "looped"


def known(name: str) -> None:
    """Refuses the name of no strategy."""
    if name not in ("auto", *STRATEGIES):
        raise ValueError(
            f"config.run.strategy: must be one of auto, {', '.join(STRATEGIES)}, "
            f"got {name!r}"
        )


def strategy(name: str, devices: jax.sharding.Mesh) -> Strategy:
    """Looks a strategy up; ValueError where it is unknown or cannot be taken."""
    known(name)
    if name == "auto":
        name = strategy_for(xla.platform(), devices.size)
    if name == "threaded" and devices.size > 1:
        raise ValueError(
            "config.run.strategy: 'threaded' needs a single device, got "
            f"{devices.size}; take 'looped' or 'unrolled'"
        )
    return STRATEGIES[name]


def over(
    one: One, strategy: Strategy, layout: layouts.Layout, *, donate: bool = False
) -> Many:
    """Maps a function of one seed over a wave.

    `donate` gives the states' memory to the outputs.
    """
    kept = dict(static_argnums=3, donate_argnums=(0,) if donate else ())
    kept["compiler_options"] = xla.compiler_options(layout.kind)
    tree = of_tree(one, layout, strategy)
    if strategy.dispatch == "unrolled":

        @functools.partial(jax.jit, **kept)
        def many(states, args, shared, static):
            each = zip(states, args, strict=True)
            return tuple(tree(state, arg, shared, static) for state, arg in each)

        return many
    alone = jax.jit(tree, **kept)
    each = _threads(max(layout.waves)) if strategy.dispatch == "threaded" else map

    def many(states, args, shared, static):
        def call(state, arg):
            return alone(state, arg, shared, static)

        return tuple(each(call, states, args))

    return many


def stepper(one: One, strategy: Strategy, layout: layouts.Layout) -> Advance:
    """Maps several steps of a seed, (state, arg, shared, static) -> (state, out).

    Trees in threads take their steps without waiting for each other. One without
    arguments, None, stays as it is; out is None then.
    """
    if strategy.dispatch == "threaded":
        several = _threaded(of_tree(one, layout, strategy), layout)
    else:
        many = over(one, strategy, layout, donate=True)

        def several(states, steps, shared, static):
            outs = []
            for args in steps:
                states, out = zip(*many(states, args, shared, static), strict=True)
                outs.append(out)
            return states, outs

    def left(states, steps, shared, static):
        here = [i for i, arg in enumerate(steps[0]) if arg is not None]
        if len(here) == len(states):
            return several(states, steps, shared, static)
        outs = [(None,) * len(states)] * len(steps)
        if not here:
            return states, outs
        steps = [tuple(args[i] for i in here) for args in steps]
        some = several(tuple(states[i] for i in here), steps, shared, static)
        placed = functools.partial(_placed, here)
        return placed(states, some[0]), [*map(placed, outs, some[1])]

    def advance(states, steps, shared, static):
        kept, seen = [], []
        for number, wave in enumerate(states):
            args = [step[number] for step in steps]
            wave, outs = left(layout.to_device(wave, number), args, shared, static)
            kept.append(layout.to_host(wave))
            seen.append(outs)
        return tuple(kept), list(zip(*seen, strict=True))

    return advance


def _placed(here: Sequence[int], whole: Sequence, some: Sequence) -> tuple:
    """A sequence with others in these places."""
    by_place = dict(zip(here, some, strict=True))
    return tuple(by_place.get(i, one) for i, one in enumerate(whole))


def _threaded(tree: One, layout: layouts.Layout) -> Callable:
    alone = jax.jit(tree, static_argnums=3, donate_argnums=0)
    each = _threads(max(layout.waves))

    def several(states, steps, shared, static):
        def taken(state, args):
            outs = []
            for arg in args:
                state, out = alone(state, arg, shared, static)
                outs.append(out)
            return state, outs

        ended = each(taken, states, zip(*steps, strict=True))
        states, by_tree = zip(*ended, strict=True)
        return states, list(zip(*by_tree, strict=True))

    return several


def _threads(count: int) -> Callable:
    return concurrent.futures.ThreadPoolExecutor(at_once(count), "seed").map


def at_once(count: int) -> int:
    """How many of so many seeds have a thread of their own at a time."""
    return min(count, 2 * len(os.sched_getaffinity(0)))


def of_tree(one: One, layout: layouts.Layout, strategy: Strategy) -> One:
    """Makes of a function of one seed one of a tree of seeds, wherever these lie."""
    if not layout.width(0):
        return one
    devices, several = layout.devices, _vectorised(one, strategy.convolutions)

    def tree(state, arg, shared, static):
        def share(state, arg, shared):
            if len(jax.tree.leaves(state)[0]) > 1:
                return several(state, arg, shared, static)
            return _alone(one, state, arg, shared, static)

        if devices.shape["seed"] == 1:
            return share(state, arg, shared)
        by_seed = PartitionSpec("seed")
        return jax.shard_map(
            share,
            mesh=devices,
            in_specs=(by_seed, by_seed, PartitionSpec()),
            out_specs=by_seed,
            axis_names={"seed"},  # Along "data" the compiler shares the work out.
            check_vma=False,
        )(state, arg, shared)

    return tree


def _vectorised(one: One, kind: str) -> One:
    if kind != "grouped":
        return batched.over_seeds(one)

    def several(state, arg, shared, static):
        return jax.vmap(lambda state, arg: one(state, arg, shared, static))(state, arg)

    return several


def _alone(one: One, state: Any, arg: Any, shared: Any, static: Hashable) -> Any:
    """A single seed with a leading axis of one is computed as it would be alone."""
    state, arg = jax.tree.map(lambda x: x[0], (state, arg))
    return jax.tree.map(lambda x: x[None], one(state, arg, shared, static))
