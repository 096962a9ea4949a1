"""The seed axis: how seeds lie on the devices, and how the step of one serves them all.

Outside of here the states of many seeds are a tuple with one entry a seed; algorithms know
no seed axis at all. On the devices they are waves, one after the other, of trees, which
have one seed or several (`SeedLayout`). A `Strategy` is how the trees of a wave are
computed, and how the seeds of one tree are.
"""

import concurrent.futures
import functools
import itertools
import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jbias import config as jc
from jbias.runtime import mesh, xla
from jbias.training import convolutions

Wave = tuple[PyTree, ...]
PackedStates = tuple[Wave, ...]


class SeedLayout(NamedTuple):
    """Waves of so many seeds each, and whether the seeds of a wave are one tree.

    A tree of several seeds has them along a leading axis of its leaves, which is shared
    out among the mesh's axis "seed". Without that axis and unless `stacked`, a tree is
    of one seed, as it would be alone. Where there are several waves, each waits in the
    host's memory for its turn.
    """

    devices: jax.sharding.Mesh
    waves: tuple[int, ...]
    stacked: bool = False

    @property
    def kind(self) -> str:
        """Of device, as jax calls it."""
        return self.devices.devices.flat[0].device_kind

    def width(self, wave: int) -> int:
        """Seeds along the leading axis of a tree of this wave; 0: no such axis."""
        spread = self.devices.shape["seed"]
        return self.waves[wave] if self.stacked else spread if spread > 1 else 0

    def pack(self, trees: Iterable[PyTree]) -> PackedStates:
        """Lays one tree a seed out; they may be drawn one after the other.

        Where seeds wait, are spread, or several processes train, they go by the host, and
        each device gets its own.
        """
        if not self._by_host:
            return self.pack_on_devices(trees)
        found = [
            _stacked(wave, width, np.stack) if width else wave
            for wave, width in self._by_wave(map(jax.device_get, trees))
        ]
        if len(found) == 1:
            return (mesh.put(found[0], self._place(0)),)
        return tuple(found)

    def pack_on_devices(self, trees: Iterable[PyTree]) -> PackedStates:
        """As `pack`, of small things that stay on the devices, whoever waits."""
        found = []
        for number, (wave, width) in enumerate(self._by_wave(trees)):
            wave = mesh.replicate(wave, self.devices)
            stack = _stacking(self._place(number), width) if width else tuple
            found.append(stack(wave))
        return tuple(found)

    def unpack(self, packed: PackedStates) -> tuple[PyTree, ...]:
        """One tree a seed: on the host where `pack` went by it, else on the devices."""
        if self._by_host:
            return self.split(mesh.fetch(packed, self.devices))
        return _unstacked(self.devices)(packed[0]) if self.width(0) else packed[0]

    def split(self, packed: PackedStates) -> tuple[PyTree, ...]:
        """As `unpack`, of what was laid out likewise and is on the host."""
        waves = enumerate(packed)
        return tuple(one for number, wave in waves for one in self.each(wave, number))

    def each(self, wave: Wave, number: int = 0) -> tuple[PyTree, ...]:
        """One tree a seed of a single wave, likewise."""
        return tuple(_each(wave)) if self.width(number) else wave

    def group(self, batches: Iterable[PyTree]) -> PackedStates:
        """Group batches, one a seed, by the trees of the waves.

        Batches on the host stay there until `place`; those of which each process read its
        share are on devices already.
        """
        packed = []
        for wave, width in self._by_wave(batches):
            if width and isinstance(jax.tree.leaves(wave)[0], jax.Array):
                packed.append(_stacking(self._place_of_batches(), width)(wave))
            else:
                packed.append(_stacked(wave, width, np.stack) if width else wave)
        return tuple(packed)

    def place(self, batches: PyTree, *, scanned: bool = False) -> PyTree:
        """Place batches of `group` on the devices, in one transfer.

        scanned: whether their leaves have a leading axis of steps.
        """
        return mesh.put(batches, self._place_of_batches(scanned=scanned))

    def _place_of_batches(self, *, scanned: bool = False) -> NamedSharding:
        axes = ("seed", "data") if self.width(0) else ("data",)
        if scanned:
            axes = (None, *axes)
        return NamedSharding(self.devices, PartitionSpec(*axes))

    def to_device(self, wave: Wave, number: int = 0) -> Wave:
        """Brings a wave that waits onto the devices."""
        return wave if len(self.waves) == 1 else mesh.put(wave, self._place(number))

    @property
    def _by_host(self) -> bool:
        several = jax.process_count() > 1
        return several or len(self.waves) > 1 or self.devices.shape["seed"] > 1

    def _by_wave(self, trees: Iterable[PyTree]) -> Iterator[tuple[Wave, int]]:
        """The trees of each wave, one a seed, and its width."""
        trees = iter(trees)
        for number, count in enumerate(self.waves):
            yield tuple(itertools.islice(trees, count)), self.width(number)

    def _place(self, number: int) -> NamedSharding:
        axes = ("seed",) if self.width(number) else ()
        return NamedSharding(self.devices, PartitionSpec(*axes))


def choose_layout(
    count: int, devices: jax.sharding.Mesh, *, stacked: bool, together: int
) -> SeedLayout:
    """Lays `count` seeds out so that at most `together` are on the devices at once.

    Waves are as even as the mesh's axis "seed", which divides each of them, allows.
    """
    spread = devices.shape["seed"]
    rows = count // spread  # Of one seed on each device of that axis.
    number = math.ceil(rows / max(1, together // spread))
    sizes = [rows // number + (i < rows % number) for i in range(number)]
    return SeedLayout(devices, tuple(spread * size for size in sizes), stacked)


def _stacked(trees: Sequence[PyTree], width: int, stack: Callable) -> Wave:
    groups = (trees[i : i + width] for i in range(0, len(trees), width))
    join = functools.partial(jax.tree.map, lambda *leaves: stack(leaves))
    return tuple(join(*group) for group in groups)


def _each(wave: Wave) -> list[PyTree]:
    found = []
    for tree in wave:
        width = len(jax.tree.leaves(tree)[0])
        found += [jax.tree.map(lambda x, i=i: x[i, ...], tree) for i in range(width)]
    return found


@functools.cache
def _stacking(place: NamedSharding, width: int) -> Callable[[tuple], Wave]:
    return jax.jit(lambda trees: _stacked(trees, width, jnp.stack), out_shardings=place)


@functools.cache
def _unstacked(devices: jax.sharding.Mesh) -> Callable[[Wave], tuple]:
    place = NamedSharding(devices, PartitionSpec())
    return jax.jit(lambda wave: tuple(_each(wave)), out_shardings=place)


# (state, arg, shared, static) -> outputs, of one seed, or of a tree of seeds.
SeedFunction = Callable[[Any, Any, Any, Hashable], Any]
# (states, args, shared, static) -> outputs, of a wave: tuples with one entry a tree.
WaveFunction = Callable[[Wave, tuple, Any, Hashable], tuple]
# (states, args a step, shared, static) -> (states, outputs a step), all packed.
MultiStep = Callable[
    [PackedStates, Sequence[PackedStates], Any, Hashable],
    tuple[PackedStates, list[PackedStates]],
]


class Strategy(NamedTuple):
    """How the trees of a wave are computed, and how the seeds of one tree are.

    dispatch: "looped", one program a tree, one after the other: one compilation,
      however many. "threaded", likewise, from threads: a CPU runs a program in the
      thread that dispatches it, and one seed alone leaves part of the cores idle.
      "unrolled", one program of all trees side by side. All are equal to lone runs to
      the bit on CPU.
    convolutions: "", or what the seeds of a wave, which are one tree then, make of a
      convolution: "grouped", one in groups, as `jax.vmap` has it, which is slow on most
      backends, or "unrolled", one for each seed (`convolutions.over_seeds`). A gate becomes a
      select; equal to lone runs within float tolerance.
    """

    dispatch: str
    convolutions: str = ""

    @property
    def stacked(self) -> bool:
        """Whether the seeds of a wave are one tree."""
        return bool(self.convolutions)


STRATEGIES: Mapping[str, Strategy] = {
    "unrolled": Strategy("unrolled"),
    "threaded": Strategy("threaded"),
    "looped": Strategy("looped"),
    "vmapped": Strategy("looped", "grouped"),
    "unrolled_convolutions": Strategy("looped", "unrolled"),
}

# What "auto" chooses from where one device, or all of one share, train several seeds. On
# an H100 `vmapped` was slower than `unrolled_convolutions` in all three ResNet-18 timed.
AUTO_CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "cpu": ("threaded", "looped"),
    "gpu": ("looped", "unrolled_convolutions"),
    "tpu": ("looped", "vmapped"),
}


def default_strategy(backend: str, devices: int = 1) -> str:
    """The strategy that "auto" means as long as nothing speaks for another.

    An accelerator runs one operation at a time whoever dispatches it, and programs of
    several devices must start in the same order on each.
    """
    return "threaded" if backend == "cpu" and devices == 1 else "looped"


def check_strategy(name: str) -> None:
    """Refuses the name of no strategy."""
    known = ("auto", *STRATEGIES)
    if name not in known:
        jc.refuse("config.run.strategy", f"be one of {', '.join(known)}", name)


def resolve_strategy(name: str, devices: jax.sharding.Mesh) -> Strategy:
    """Looks a strategy up; ValueError where it is unknown or cannot be taken."""
    check_strategy(name)
    if name == "auto":
        name = default_strategy(xla.platform(), devices.size)
    if name == "threaded" and devices.size > 1:
        raise ValueError(
            "config.run.strategy: 'threaded' needs a single device, got "
            f"{devices.size}; take 'looped' or 'unrolled'"
        )
    return STRATEGIES[name]


def map_seeds(
    one: SeedFunction, strategy: Strategy, layout: SeedLayout, *, donate: bool = False
) -> WaveFunction:
    """Maps a function of one seed over a wave.

    `donate` gives the states' memory to the outputs.
    """
    kept = dict(static_argnums=3, donate_argnums=(0,) if donate else ())
    kept["compiler_options"] = xla.compiler_options(layout.kind)
    tree = map_tree(one, layout, strategy)
    if strategy.dispatch == "unrolled":

        @functools.partial(jax.jit, **kept)
        def many(states, args, shared, static):
            each = zip(states, args, strict=True)
            return tuple(tree(state, arg, shared, static) for state, arg in each)

        return many
    alone = jax.jit(tree, **kept)
    each = _threads(max(layout.waves)) if strategy.dispatch == "threaded" else map
    return lambda states, args, shared, static: tuple(
        each(lambda state, arg: alone(state, arg, shared, static), states, args)
    )


def multi_step(
    one: SeedFunction, strategy: Strategy, layout: SeedLayout, *, scanned: int = 0
) -> MultiStep:
    """Map several steps of a seed, (state, arg, shared, static) -> (state, out).

    An argument is a pair: what a seed has of its own, and its batch, on the host or on the
    devices. Trees in threads take their steps without waiting for each other. One without
    arguments, None, stays as it is; out is None then.

    scanned: the number of steps that are one program if as many are taken at once and their
      batches are on the host (`scan_steps`); other numbers of steps are dispatched step by
      step. 0 and 1: all are. Accelerators gain by a loop; a CPU computes the convolutions in
      it with one thread.
    """
    if strategy.dispatch == "threaded":
        several = _threaded(map_tree(one, layout, strategy), layout)
    else:
        several = _dispatched(one, strategy, layout, scanned=scanned)

    def left(states, steps, shared, static):
        here = [i for i, arg in enumerate(steps[0]) if arg is not None]
        if len(here) == len(states):
            return several(states, steps, shared, static)
        nothing = (None,) * len(states)
        if not here:
            return states, [nothing] * len(steps)
        steps = [tuple(args[i] for i in here) for args in steps]
        some = several(tuple(states[i] for i in here), steps, shared, static)

        def placed(new, old=nothing):  # Each in its place again.
            by_place = dict(zip(here, new, strict=True))
            return tuple(by_place.get(i, one) for i, one in enumerate(old))

        return placed(some[0], states), [*map(placed, some[1])]

    def advance(states, steps, shared, static):
        kept, seen = [], []
        for number, wave in enumerate(states):
            args = [step[number] for step in steps]
            wave, outs = left(layout.to_device(wave, number), args, shared, static)
            alone = len(layout.waves) == 1
            kept.append(wave if alone else mesh.fetch(wave, layout.devices))
            seen.append(mesh.everywhere(outs, layout.devices))
        return tuple(kept), list(zip(*seen, strict=True))

    return advance


def _dispatched(
    one: SeedFunction, strategy: Strategy, layout: SeedLayout, *, scanned: int
) -> Callable[[Wave, Sequence[Wave], Any, Hashable], tuple[Wave, list[Wave]]]:
    """Map several steps of a seed over a wave, as one program where they are `scanned`."""
    step_wave = map_seeds(one, strategy, layout, donate=True)
    scan_wave = scan_steps(one, strategy, layout) if scanned > 1 else None

    def several(states, steps, shared, static):
        batches = [tuple(batch for _, batch in args) for args in steps]
        if scan_wave and len(steps) == scanned and _are_on_host(batches):
            own_args = tuple(own_arg for own_arg, _ in steps[0])
            (stacked,) = _stacked(batches, scanned, np.stack)
            stacked = layout.place(stacked, scanned=True)
            return scan_wave(states, (own_args, stacked), shared, static)
        outputs = []
        for args in steps:
            pairs = step_wave(states, _placed(args, layout), shared, static)
            outputs.append(tuple(out for _, out in pairs))
            states = tuple(state for state, _ in pairs)
        return states, outputs

    return several


def scan_steps(
    one: SeedFunction, strategy: Strategy, layout: SeedLayout
) -> Callable[[Wave, tuple, Any, Hashable], tuple[Wave, list[Wave]]]:
    """Map several steps of a seed over a wave, as one program: a loop over the steps.

    Returns (states, (own_args, batches), shared, static) -> (states, outputs of each step).
    `own_args` has for each tree what it has of its own in all steps; `batches` has one entry
    a tree, whose leaves have a leading axis of steps. Takes the states' memory for the new
    ones. On GPUs the body of the loop is the CUDA graph that a step is alone, and Python
    dispatches the loop once.
    """
    step_tree = map_tree(one, layout, strategy)

    def loop(states, args, shared, static):
        own_args, batches = args

        def step(states, batches):
            trees = zip(states, own_args, batches, strict=True)
            pairs = [
                step_tree(state, (own_arg, batch), shared, static)
                for state, own_arg, batch in trees
            ]
            return tuple(state for state, _ in pairs), tuple(out for _, out in pairs)

        states, stacked = jax.lax.scan(step, states, batches)
        return states, _each((stacked,))

    scan_wave = jax.jit(
        loop,
        static_argnums=3,
        donate_argnums=0,
        compiler_options=xla.compiler_options(layout.kind),
    )
    if strategy.dispatch == "unrolled":
        return scan_wave

    def by_tree(states, args, shared, static):
        own_args, batches = args
        pairs = [
            scan_wave((state,), ((own_arg,), (batch,)), shared, static)
            for state, own_arg, batch in zip(states, own_args, batches, strict=True)
        ]
        states = tuple(state for (state,), _ in pairs)
        by_step = zip(*(outputs for _, outputs in pairs), strict=True)
        return states, [tuple(out for (out,) in outputs) for outputs in by_step]

    return by_tree


def _placed(args: tuple, layout: SeedLayout) -> tuple:
    """Return the arguments of a step of a wave with their batches on the devices."""
    batches = tuple(batch for _, batch in args)
    if _are_on_host(batches) or not layout.width(0):
        batches = layout.place(batches)
    return tuple(
        (own_arg, batch) for (own_arg, _), batch in zip(args, batches, strict=True)
    )


def _are_on_host(batches: PyTree) -> bool:
    """Return whether no part of the batches is on a device yet."""
    return not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batches))


def _threaded(tree: SeedFunction, layout: SeedLayout) -> Callable:
    alone = jax.jit(
        tree,
        static_argnums=3,
        donate_argnums=0,
        compiler_options=xla.compiler_options(layout.kind),
    )
    each = _threads(max(layout.waves))

    def several(states, steps, shared, static):
        def taken(state, args):
            outs = []
            for arg in args:
                state, out = alone(state, arg, shared, static)
                outs.append(out)
            return state, outs

        steps = [_placed(args, layout) for args in steps]
        ended = each(taken, states, zip(*steps, strict=True))
        states, by_tree = zip(*ended, strict=True)
        return states, list(zip(*by_tree, strict=True))

    return several


def _threads(count: int) -> Callable:
    return concurrent.futures.ThreadPoolExecutor(thread_count(count), "seed").map


def thread_count(count: int) -> int:
    """How many of so many seeds have a thread of their own at a time."""
    return min(count, 2 * len(os.sched_getaffinity(0)))


def map_tree(one: SeedFunction, layout: SeedLayout, strategy: Strategy) -> SeedFunction:
    """Makes of a function of one seed one of a tree of seeds, wherever these lie."""
    if not layout.width(0):
        return one
    devices = layout.devices
    apart = None if strategy.convolutions == "grouped" else convolutions.over_seeds(one)

    def tree(state, arg, shared, static):
        def share(state, arg, shared):
            if len(jax.tree.leaves(state)[0]) == 1:  # Computed as it would be alone.
                state, arg = jax.tree.map(lambda x: x[0], (state, arg))
                return jax.tree.map(lambda x: x[None], one(state, arg, shared, static))
            if apart:
                return apart(state, arg, shared, static)
            each = jax.vmap(lambda state, arg: one(state, arg, shared, static))
            return each(state, arg)

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
