"""Layouts of seeds: single trees, stacked trees and waves can be packed and unpacked."""

import jax
import jax.numpy as jnp
import numpy as np

from jbias.runtime import mesh
from jbias.training import prng, seed_axis
from tests import cases

TREES = [{"w": jnp.full((3,), i), "n": jnp.asarray(i)} for i in range(5)]


@cases.each("stacked", [False, True])
@cases.each("together", [1, 2, 3, 5, 9])
def test_unpacking_returns_the_packed_trees(stacked, together):
    layout = seed_axis.choose_layout(
        5, mesh.make(1), stacked=stacked, together=together
    )
    assert sum(layout.waves) == 5
    assert max(layout.waves) <= together
    assert max(layout.waves) - min(layout.waves) <= 1
    packed = layout.pack(iter(TREES))
    waits = len(layout.waves) > 1
    assert all(isinstance(x, np.ndarray) == waits for x in jax.tree.leaves(packed))
    for trees in (layout.unpack(packed), layout.split(jax.device_get(packed))):
        assert [int(tree["n"]) for tree in trees] == list(range(5))
        assert [tree["w"].tolist() for tree in trees] == [[i] * 3 for i in range(5)]
    placed = layout.place(layout.group(np.asarray(tree["w"]) for tree in TREES))
    assert [int(batch[0]) for batch in layout.split(placed)] == list(range(5))


def test_random_keys_can_be_packed():
    layout = seed_axis.choose_layout(3, mesh.make(1), stacked=True, together=3)
    ((tree,),) = layout.pack_on_devices(prng.key(seed) for seed in range(3))
    assert tree.shape == (3,)
    assert (tree[2] == prng.key(2)).all()
