"""The seed axis: place the seeds on the devices, and map the step of one seed over all seeds.

Outside of this file the states of many seeds are a tuple with one entry per seed;
algorithms have no seed axis at all. On the devices the seeds form waves that are computed
one after the other. A wave is a tuple of trees, and a tree holds one seed or several
(`SeedLayout`). A `strategies.Strategy` says how the trees of a wave, and the seeds of a tree, are
computed.
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

from jbias.runtime import cuda_graphs, mesh, xla
from jbias.training import convolutions, strategies

Wave = tuple[PyTree, ...]  # Trees of the seeds that are computed at the same time.
PackedStates = tuple[Wave, ...]  # The trees of all seeds, or of their arguments.


class SeedLayout(NamedTuple):
    """The number of seeds per wave, and the arrangement of a wave's seeds in trees.

    devices: the mesh, with axes "seed" and "data". waves: seeds per wave. stacked: True if
    the seeds of a wave form one tree.

    The leaves of a tree of several seeds have a leading axis over seeds, which is sharded
    over the mesh axis "seed". If the mesh axis has length 1 and `stacked` is False, a tree
    holds one seed and has no such axis. With several waves, the waves that are not being
    computed are in the host's memory.
    """

    devices: jax.sharding.Mesh
    waves: tuple[int, ...]
    stacked: bool = False

    @property
    def kind(self) -> str:
        """The kind of the devices: JAX's `device_kind`, such as "TPU v5e"."""
        return self.devices.devices.flat[0].device_kind

    def width(self, wave: int) -> int:
        """Return the number of seeds along the leading axis of each tree in a wave.

        Return 0 if the trees have no such axis. wave: the index of the wave.
        """
        if self.stacked:
            return self.waves[wave]
        spread = self.devices.shape["seed"]
        return spread if spread > 1 else 0

    def pack(self, trees: Iterable[PyTree]) -> PackedStates:
        """Return the given trees, arranged in waves; a single wave is moved to the devices.

        Several waves stay in the host's memory. If seeds are spread over devices or several
        processes train, the trees pass through the host, so that each device receives only
        its seeds. trees: one per seed, in order; may be a generator.
        """
        if not self._uses_host:
            return self.pack_on_devices(trees)
        packed = [
            _stack_groups(wave, width, np.stack) if width else wave
            for wave, width in self._split_into_waves(map(jax.device_get, trees))
        ]
        if len(packed) == 1:
            return (mesh.put(packed[0], self._state_sharding(0)),)
        return tuple(packed)

    def pack_on_devices(self, trees: Iterable[PyTree]) -> PackedStates:
        """Return the given small trees, one per seed, arranged in waves on the devices."""
        packed = []
        for number, (wave, width) in enumerate(self._split_into_waves(trees)):
            wave = mesh.replicate(wave, self.devices)
            if width:
                wave = _stack_on_devices(self._state_sharding(number), width)(wave)
            packed.append(wave)
        return tuple(packed)

    def unpack(self, packed: PackedStates) -> tuple[PyTree, ...]:
        """Return one tree per seed from waves, the inverse of `pack`.

        The trees are on the host if `pack` moves trees through the host, else on devices.
        """
        if self._uses_host:
            return self.split(mesh.fetch(packed, self.devices))
        return (
            _unstack_on_devices(self.devices)(packed[0]) if self.width(0) else packed[0]
        )

    def split(self, packed: PackedStates) -> tuple[PyTree, ...]:
        """Return one tree per seed from waves that are on the host."""
        trees = []
        for number, wave in enumerate(packed):
            trees += self.split_wave(wave, number)
        return tuple(trees)

    def split_wave(self, wave: Wave, number: int = 0) -> tuple[PyTree, ...]:
        """Return one tree per seed from a single wave; number: the index of the wave."""
        return tuple(_unstack(wave)) if self.width(number) else wave

    def group(self, batches: Iterable[PyTree]) -> PackedStates:
        """Return the given batches arranged in waves, without moving them; see `place`.

        batches: one per seed, on the host, or on the devices if each process read its share.
        """
        packed = []
        for wave, width in self._split_into_waves(batches):
            if width and isinstance(jax.tree.leaves(wave)[0], jax.Array):
                packed.append(_stack_on_devices(self._batch_sharding(), width)(wave))
            else:
                packed.append(_stack_groups(wave, width, np.stack) if width else wave)
        return tuple(packed)

    def place(self, batches: PyTree, *, scanned: bool = False) -> PyTree:
        """Return batches, as `group` arranges them, on the devices, moved in one transfer.

        scanned: True if the leaves have a leading axis of steps.
        """
        return mesh.put(batches, self._batch_sharding(scanned=scanned))

    def _batch_sharding(self, *, scanned: bool = False) -> NamedSharding:
        """Return the sharding of batches on the devices; scanned: see `place`."""
        axes = ("seed", "data") if self.width(0) else ("data",)
        if scanned:
            axes = (None, *axes)
        return NamedSharding(self.devices, PartitionSpec(*axes))

    def to_device(self, wave: Wave, number: int = 0) -> Wave:
        """Return a wave on the devices; number: the index of the wave.

        If the layout has only one wave, this wave is on the devices already and is returned
        unchanged.
        """
        if len(self.waves) == 1:
            return wave
        return mesh.put(wave, self._state_sharding(number))

    @property
    def _uses_host(self) -> bool:
        """True if `pack` and `unpack` move trees through the host's memory."""
        has_peers = jax.process_count() > 1
        return has_peers or len(self.waves) > 1 or self.devices.shape["seed"] > 1

    def _split_into_waves(self, trees: Iterable[PyTree]) -> Iterator[tuple[Wave, int]]:
        """Yield the pair (trees, width) of each wave; trees: one per seed of the wave."""
        trees = iter(trees)
        for number, count in enumerate(self.waves):
            yield tuple(itertools.islice(trees, count)), self.width(number)

    def _state_sharding(self, number: int) -> NamedSharding:
        """Return the sharding of the states of the wave with this index."""
        axes = ("seed",) if self.width(number) else ()
        return NamedSharding(self.devices, PartitionSpec(*axes))


def choose_layout(
    count: int, devices: jax.sharding.Mesh, *, stacked: bool, together: int
) -> SeedLayout:
    """Return a layout of `count` seeds with at most `together` on the devices at a time.

    count: a multiple of the length of the mesh axis "seed". stacked: whether the seeds of a
    wave form one tree. The size of a wave is a multiple of the axis's length, and at least
    this length, even if `together` is less. Within these limits waves are as even as
    possible.
    """
    spread = devices.shape["seed"]
    rows = count // spread  # A row has one seed per device of the axis.
    num_waves = math.ceil(rows / max(1, together // spread))
    num_larger = rows % num_waves  # Waves with one row more than the others.
    sizes = [rows // num_waves + (i < num_larger) for i in range(num_waves)]
    return SeedLayout(devices, tuple(spread * size for size in sizes), stacked)


def _stack_groups(trees: Sequence[PyTree], width: int, stack: Callable) -> Wave:
    """Return trees with a leading axis, each stacked from `width` consecutive trees.

    stack: a function such as jnp.stack.
    """
    return tuple(
        jax.tree.map(lambda *leaves: stack(leaves), *trees[start : start + width])
        for start in range(0, len(trees), width)
    )


def _unstack(wave: Wave) -> list[PyTree]:
    """Return the trees of a wave, split along their leading axis."""
    trees = []
    for tree in wave:
        width = len(jax.tree.leaves(tree)[0])
        trees += [jax.tree.map(lambda x, i=i: x[i, ...], tree) for i in range(width)]
    return trees


@functools.cache
def _stack_on_devices(sharding: NamedSharding, width: int) -> Callable[[tuple], Wave]:
    """Return `_stack_groups` as a compiled function; its outputs have the given sharding.

    width: number of trees per group.
    """
    return jax.jit(
        lambda trees: _stack_groups(trees, width, jnp.stack), out_shardings=sharding
    )


@functools.cache
def _unstack_on_devices(devices: jax.sharding.Mesh) -> Callable[[Wave], tuple]:
    """Return `_unstack` as a compiled function; its outputs are on all devices in full."""
    sharding = NamedSharding(devices, PartitionSpec())
    return jax.jit(lambda wave: tuple(_unstack(wave)), out_shardings=sharding)


# (state, argument, shared, static) -> outputs, of one seed or of a tree of seeds.
SeedFunction = Callable[[Any, Any, Any, Hashable], Any]
# (states, arguments, shared, static) -> outputs of a wave: tuples with one entry per tree.
WaveFunction = Callable[[Wave, tuple, Any, Hashable], tuple]
# (states, arguments per step, shared, static) -> (states, outputs per step), all packed.
MultiStep = Callable[
    [PackedStates, Sequence[PackedStates], Any, Hashable],
    tuple[PackedStates, list[PackedStates]],
]
# (states, arguments per step, shared, static) -> (states, outputs per step) of one wave.
_WaveSteps = Callable[
    [Wave, Sequence[Wave], Any, Hashable], tuple[Wave, Sequence[Wave]]
]


def map_seeds(
    function: SeedFunction,
    strategy: strategies.Strategy,
    layout: SeedLayout,
    *,
    donate: bool = False,
    graph_options: Mapping[str, str] | None = None,
) -> WaveFunction:
    """Return a function of a wave that computes `function` for each seed of the wave.

    The result is (states, args, shared, static) -> outputs, a tuple with one entry per tree.
    states, args: one entry per tree. shared: arguments that are equal for all seeds. static: a
    hashable argument; each value of it compiles a program.

    function: a function of one seed. strategy, layout: see the classes. donate: reuse the memory of
    the states for the outputs. graph_options: on a GPU, launch the function as one CUDA graph,
    compiled with these options of `cuda_graphs`; None: no graph.
    """
    tree_function = map_tree(function, layout, strategy)
    donate_argnums = (0,) if donate else ()

    def compile_lazily(function: Callable) -> Callable:
        """Return `function` jitted with the options above; the first call compiles it."""
        if graph_options is not None:
            return cuda_graphs.jit(
                function,
                static_argnums=3,
                donate_argnums=donate_argnums,
                kind=layout.kind,
                num_devices=layout.devices.size,
                options=graph_options,
            )
        return xla.jit(
            function,
            static_argnums=3,
            donate_argnums=donate_argnums,
            kind=layout.kind,
        )

    if strategy.dispatch == "unrolled":

        def unrolled(states, args, shared, static):
            """Return the outputs of all trees, from one program; arguments: see `map_seeds`."""
            return tuple(
                tree_function(state, arg, shared, static)
                for state, arg in zip(states, args, strict=True)
            )

        return compile_lazily(unrolled)
    compiled = compile_lazily(tree_function)
    is_threaded = strategy.dispatch == "threaded"
    map_trees = _thread_map(max(layout.waves)) if is_threaded else map

    def looped(states, args, shared, static):
        """Return the outputs of all trees, one dispatch per tree; arguments: see `map_seeds`."""
        return tuple(
            map_trees(
                lambda state, arg: compiled(state, arg, shared, static), states, args
            )
        )

    return looped


def multi_step(
    step: SeedFunction,
    strategy: strategies.Strategy,
    layout: SeedLayout,
    *,
    scanned: int = 0,
) -> MultiStep:
    """Return a function that takes several steps of all seeds.

    The result is (states, steps, shared, static) -> (new states, outputs). states: the packed
    states of all seeds. steps: for each step, the packed arguments of all seeds. shared: arguments
    that are equal for all seeds and steps. static: a hashable argument; each value of it compiles a
    program. outputs: a list of the packed outputs of each step.

    step: the step of one seed, (state, argument, shared, static) -> (state, output). An argument is
    a pair (seed argument, batch); the batch is on the host or the devices. A tree with None as its
    argument keeps its state and has None as its output.
    scanned: the number of steps in one compiled loop (`scan_steps`). The loop is used only for
    exactly `scanned` steps with batches on the host; other steps are dispatched one by one. 0 and
    1: no loop. A loop is faster on accelerators. A loop is slower on a CPU, which computes the
    convolutions in a loop with one thread.

    Under "threaded", trees do not wait for each other between steps.
    """
    if strategy.dispatch == "threaded":
        step_wave = _threaded_steps(map_tree(step, layout, strategy), layout)
    else:
        step_wave = _dispatched_steps(step, strategy, layout, scanned=scanned)

    def advance(states, steps, shared, static):
        """Take steps of all waves in turn; arguments and result: see `multi_step`."""
        new_states, outputs = [], []
        for number, wave in enumerate(states):
            wave, wave_outputs = _step_active_trees(
                step_wave,
                layout.to_device(wave, number),
                [args[number] for args in steps],
                shared=shared,
                static=static,
            )
            if len(layout.waves) > 1:
                wave = mesh.fetch(wave, layout.devices)
            new_states.append(wave)
            outputs.append(mesh.everywhere(wave_outputs, layout.devices))
        return tuple(new_states), list(zip(*outputs, strict=True))

    return advance


def _step_active_trees(
    step_wave: _WaveSteps,
    states: Wave,
    steps: Sequence[Wave],
    *,
    shared: Any,
    static: Hashable,
) -> tuple[Wave, Sequence[Wave]]:
    """Step only the trees of a wave that have arguments; return (states, outputs) of all trees.

    step_wave: function that takes the steps. states: one per tree. steps: for each step, one
    argument per tree; None in all steps for a tree whose state does not change. shared, static: see
    `multi_step`. Outputs are per step and tree, None for trees without arguments.
    """
    active = [i for i, arg in enumerate(steps[0]) if arg is not None]
    if len(active) == len(states):
        return step_wave(states, steps, shared, static)
    no_outputs = (None,) * len(states)
    if not active:
        return states, [no_outputs] * len(steps)
    active_states, active_outputs = step_wave(
        tuple(states[i] for i in active),
        [tuple(args[i] for i in active) for args in steps],
        shared,
        static,
    )

    def replace_active(old: tuple, new: Sequence) -> tuple:
        by_index = dict(zip(active, new, strict=True))
        return tuple(by_index.get(i, entry) for i, entry in enumerate(old))

    outputs = [replace_active(no_outputs, of_step) for of_step in active_outputs]
    return replace_active(states, active_states), outputs


def _dispatched_steps(
    step: SeedFunction,
    strategy: strategies.Strategy,
    layout: SeedLayout,
    *,
    scanned: int,
) -> _WaveSteps:
    """Return a function that takes several steps of a wave, dispatched from this thread.

    The result is (states, steps, shared, static) -> (states, outputs). states: one per tree. steps:
    for each step, one pair (seed argument, batch) per tree. shared, static: see `multi_step`.
    outputs: for each step, one per tree.

    step: the step of one seed. scanned: the number of steps in one compiled loop, see `multi_step`.
    """
    scan_wave = scan_steps(step, strategy, layout) if scanned > 1 else None
    # Where most steps are in a loop, graphs of the few others are not worth compiling.
    step_wave = map_seeds(
        step,
        strategy,
        layout,
        donate=True,
        graph_options=None if scan_wave else cuda_graphs.STEP_OPTIONS,
    )

    def take_steps(states, steps, shared, static):
        """Take steps of a wave, in a loop or one by one; see `_dispatched_steps`."""
        batches = [tuple(batch for _, batch in args) for args in steps]
        if scan_wave and len(steps) == scanned and _are_on_host(batches):
            own_args = tuple(own_arg for own_arg, _ in steps[0])
            (stacked,) = _stack_groups(batches, scanned, np.stack)
            stacked = layout.place(stacked, scanned=True)
            return scan_wave(states, (own_args, stacked), shared, static)
        outputs = []
        for args in steps:
            pairs = step_wave(states, _place_batches(args, layout), shared, static)
            outputs.append(tuple(output for _, output in pairs))
            states = tuple(state for state, _ in pairs)
        return states, outputs

    return take_steps


def scan_steps(
    step: SeedFunction, strategy: strategies.Strategy, layout: SeedLayout
) -> Callable[[Wave, tuple, Any, Hashable], tuple[Wave, list[Wave]]]:
    """Return a function that takes several steps of a wave in one compiled loop.

    The function is (states, (own_args, batches), shared, static) -> (states, outputs of each step).
    own_args: one seed argument per tree, equal in all steps. batches: one entry per tree; the
    leaves have a leading axis of steps. shared, static: see `multi_step`. The memory of the states
    is reused. On GPUs the loop's body is one CUDA graph, and Python dispatches the loop once.

    step: the step of one seed, see `multi_step`. strategy, layout: see the classes.
    """
    step_tree = map_tree(step, layout, strategy)

    def loop(states, args, shared, static):
        """Take all steps of a wave in one loop; arguments and result: see `scan_steps`."""
        own_args, batches = args

        def step(states, batches):
            """Take one step of all trees; return (states, outputs)."""
            trees = zip(states, own_args, batches, strict=True)
            pairs = [
                step_tree(state, (own_arg, batch), shared, static)
                for state, own_arg, batch in trees
            ]
            return tuple(state for state, _ in pairs), tuple(out for _, out in pairs)

        states, stacked = jax.lax.scan(step, states, batches)
        return states, _unstack((stacked,))

    scan_wave = cuda_graphs.jit(
        loop,
        static_argnums=3,
        donate_argnums=(0,),
        kind=layout.kind,
        num_devices=layout.devices.size,
        options=cuda_graphs.LOOP_OPTIONS,
    )
    if strategy.dispatch == "unrolled":
        return scan_wave

    def by_tree(states, args, shared, static):
        """Take all steps of each tree in turn; arguments and result: see `scan_steps`."""
        own_args, batches = args
        pairs = [
            scan_wave((state,), ((own_arg,), (batch,)), shared, static)
            for state, own_arg, batch in zip(states, own_args, batches, strict=True)
        ]
        states = tuple(state for (state,), _ in pairs)
        by_step = zip(*(outputs for _, outputs in pairs), strict=True)
        return states, [tuple(out for (out,) in outputs) for outputs in by_step]

    return by_tree


def _place_batches(
    args: Sequence[tuple[Any, PyTree]], layout: SeedLayout
) -> tuple[tuple[Any, PyTree], ...]:
    """Return the arguments of one step of a wave with their batches on the devices.

    args: pairs (seed argument, batch), one per tree.
    """
    batches = tuple(batch for _, batch in args)
    if _are_on_host(batches) or not layout.width(0):
        batches = layout.place(batches)
    return tuple(
        (own_arg, batch) for (own_arg, _), batch in zip(args, batches, strict=True)
    )


def _are_on_host(batches: PyTree) -> bool:
    """Return True if no array in the batches is on a device yet."""
    return not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batches))


def _threaded_steps(step_tree: SeedFunction, layout: SeedLayout) -> _WaveSteps:
    """Return a function that takes several steps of a wave, with one thread per tree.

    Arguments and result of the function: see `_dispatched_steps`. step_tree: the step of one tree,
    as `map_tree` returns it.
    """
    compiled = xla.jit(
        step_tree, static_argnums=3, donate_argnums=(0,), kind=layout.kind
    )
    map_trees = _thread_map(max(layout.waves))

    def take_steps(states, steps, shared, static):
        """Take steps of a wave, a thread per tree; see `_dispatched_steps`."""

        def take_steps_of_tree(state, args):
            """Take all steps of one tree; return (state, outputs per step)."""
            outputs = []
            for arg in args:
                state, output = compiled(state, arg, shared, static)
                outputs.append(output)
            return state, outputs

        steps = [_place_batches(args, layout) for args in steps]
        pairs = map_trees(take_steps_of_tree, states, zip(*steps, strict=True))
        states, outputs_by_tree = zip(*pairs, strict=True)
        return states, list(zip(*outputs_by_tree, strict=True))

    return take_steps


def _thread_map(count: int) -> Callable:
    """Return a function like `map` that calls its function in threads, for `count` seeds."""
    return concurrent.futures.ThreadPoolExecutor(thread_count(count), "seed").map


def thread_count(count: int) -> int:
    """Return the number of threads for `count` seeds: at most two per core."""
    return min(count, 2 * len(os.sched_getaffinity(0)))


def map_tree(
    function: SeedFunction, layout: SeedLayout, strategy: strategies.Strategy
) -> SeedFunction:
    """Return a function of a tree of seeds that computes `function` for each seed.

    function: a function of one seed, (state, argument, shared, static) -> outputs. The new function
    takes a state and an argument whose leaves have a leading axis of seeds, the same `shared` and
    `static` for all seeds, and returns outputs with this axis. `function` itself is returned if
    each tree of the layout is one seed without such an axis.
    """
    if not layout.width(0):
        return function
    devices = layout.devices
    over_seeds = None
    if strategy.convolutions != "grouped":
        over_seeds = convolutions.over_seeds(function)

    def map_local_seeds(state: Any, arg: Any, shared: Any, static: Hashable) -> Any:
        """Return the outputs of the seeds of one device of the mesh axis "seed", stacked.

        state, arg: of these seeds, with a leading axis. shared, static: see `multi_step`.
        """
        if len(jax.tree.leaves(state)[0]) == 1:  # Computed like a run of one seed.
            state, arg = jax.tree.map(lambda x: x[0], (state, arg))
            return jax.tree.map(lambda x: x[None], function(state, arg, shared, static))
        if over_seeds:
            return over_seeds(state, arg, shared, static)
        return jax.vmap(lambda state, arg: function(state, arg, shared, static))(
            state, arg
        )

    def tree_function(state: Any, arg: Any, shared: Any, static: Hashable) -> Any:
        """Return the outputs of all seeds of a tree, stacked, each computed on its device.

        state, arg: of these seeds, with a leading axis. shared, static: see `multi_step`.
        """
        if devices.shape["seed"] == 1:
            return map_local_seeds(state, arg, shared, static)
        by_seed = PartitionSpec("seed")
        return jax.shard_map(
            lambda state, arg, shared: map_local_seeds(state, arg, shared, static),
            mesh=devices,
            in_specs=(by_seed, by_seed, PartitionSpec()),
            out_specs=by_seed,
            axis_names={"seed"},  # Along "data" the compiler divides the work.
            check_vma=False,
        )(state, arg, shared)

    return tree_function
