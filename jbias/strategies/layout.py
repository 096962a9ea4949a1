"""How the seeds of a run lie on the devices and in memory.

Outside of a step the seeds are a tuple with one tree each. Here they become waves, which
are on the devices one after the other, of trees, which have one seed or several.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jbias.runtime import mesh

Wave = tuple[PyTree, ...]
Packed = tuple[Wave, ...]


class Layout(NamedTuple):
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

    def pack(self, trees: Iterable[PyTree]) -> Packed:
        """Lays one tree a seed out; they may be drawn one after the other.

        Where seeds wait, are spread, or several processes train, they go by the host, and
        each device gets its own.
        """
        if not self._by_host:
            return tuple(self._stacked(trees))
        trees, found = map(jax.device_get, trees), []
        for number, count in enumerate(self.waves):
            wave, width = tuple(itertools.islice(trees, count)), self.width(number)
            found.append(_stacked(wave, width, np.stack) if width else wave)
        if len(found) == 1:
            return (mesh.put(found[0], self._place(0)),)
        return tuple(found)

    def pack_on_devices(self, trees: Iterable[PyTree]) -> Packed:
        """As `pack`, of small things that stay on the devices, whoever waits."""
        return tuple(self._stacked(trees))

    def unpack(self, packed: Packed) -> tuple[PyTree, ...]:
        """One tree a seed: on the host where `pack` went by it, else on the devices."""
        if self._by_host:
            return self.split(jax.device_get(packed))
        if not self.width(0):
            return packed[0]
        return _unstacked(self.devices)(packed[0])

    def split(self, packed: Packed) -> tuple[PyTree, ...]:
        """As `unpack`, of what was laid out likewise and is on the host."""
        waves = enumerate(packed)
        return tuple(one for number, wave in waves for one in self.each(wave, number))

    def each(self, wave: Wave, number: int = 0) -> tuple[PyTree, ...]:
        """One tree a seed of a single wave, likewise."""
        return tuple(_each(wave)) if self.width(number) else wave

    def first(self, packed: Packed) -> PyTree:
        """The first seed's."""
        tree = packed[0][0]
        return jax.tree.map(lambda x: x[0], tree) if self.width(0) else tree

    def place(self, taken: Iterable[PyTree]) -> Packed:
        """Lays batches, one a seed and on the host, out on the devices."""
        taken, found = iter(taken), []
        for number, count in enumerate(self.waves):
            wave = tuple(itertools.islice(taken, count))
            width, axes = self.width(number), ("data",)
            if width:
                wave, axes = _stacked(wave, width, np.stack), ("seed", "data")
            place = NamedSharding(self.devices, PartitionSpec(*axes))
            found.append(mesh.put(wave, place))
        return tuple(found)

    def to_device(self, wave: Wave, number: int = 0) -> Wave:
        """Brings a wave that waits onto the devices."""
        if len(self.waves) == 1:
            return wave
        return mesh.put(wave, self._place(number))

    def to_host(self, wave: Wave) -> Wave:
        """Takes a wave back to the host, if there are others."""
        return wave if len(self.waves) == 1 else jax.device_get(wave)

    @property
    def _by_host(self) -> bool:
        several = jax.process_count() > 1
        return several or len(self.waves) > 1 or self.devices.shape["seed"] > 1

    def _stacked(self, trees: Iterable[PyTree]) -> Iterator[Wave]:
        trees = iter(trees)
        for number, count in enumerate(self.waves):
            wave = tuple(itertools.islice(trees, count))
            wave = mesh.replicate(wave, self.devices)
            width = self.width(number)
            yield _stacking(self._place(number), width)(wave) if width else wave

    def _place(self, number: int) -> NamedSharding:
        axes = ("seed",) if self.width(number) else ()
        return NamedSharding(self.devices, PartitionSpec(*axes))


def choose(
    count: int, devices: jax.sharding.Mesh, *, stacked: bool, together: int
) -> Layout:
    """Lays `count` seeds out so that at most `together` are on the devices at once.

    Waves are as even as the mesh's axis "seed", which divides each of them, allows.
    """
    spread = devices.shape["seed"]
    rows = count // spread  # Of one seed on each device of that axis.
    number = math.ceil(rows / max(1, together // spread))
    sizes = [rows // number + (i < rows % number) for i in range(number)]
    return Layout(devices, tuple(spread * size for size in sizes), stacked)


def _stacked(trees: Wave, width: int, stack: Callable) -> Wave:
    groups = [trees[i : i + width] for i in range(0, len(trees), width)]
    return tuple(
        jax.tree.map(lambda *leaves: stack(leaves), *group) for group in groups
    )


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
