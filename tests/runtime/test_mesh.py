"""Placement of seeds and examples on the devices of several processes."""

import types

import jax
import numpy as np
import pytest

from jbias.runtime import mesh
from tests import cases


def devices(processes: int, per_process: int) -> list:
    """Return fake devices of several processes, with the attributes that a mesh uses."""
    return [
        types.SimpleNamespace(process_index=p, id=p * per_process + i, platform="cpu")
        for p in range(processes)
        for i in range(per_process)
    ]


@pytest.fixture
def make(monkeypatch):
    """Fixture: `mesh.make` on fake devices; returns their grid."""

    def fake_mesh(grid, axes, **_):
        return types.SimpleNamespace(
            devices=grid, shape=dict(zip(axes, grid.shape)), axis_names=axes
        )

    monkeypatch.setattr(jax.sharding, "Mesh", fake_mesh)
    return mesh.make


@cases.each(
    ("processes", "per_process", "seeds", "shape"),
    [
        (2, 1, 4, (2, 1)),  # Two seeds in each process.
        (4, 1, 2, (2, 2)),  # Two processes for a seed.
        (2, 4, 8, (8, 1)),  # Four shares in each process.
        (2, 4, 2, (2, 4)),
        (4, 2, 3, (1, 8)),
        (3, 4, 6, (6, 2)),
        (3, 2, 2, (1, 6)),  # Half of the devices is no number of whole processes.
        (64, 4, 10, (2, 128)),
    ],
)
def test_seeds_are_spread_over_whole_processes(
    make, processes, per_process, seeds, shape
):
    grid = make(0, seeds, devices=devices(processes, per_process)).devices
    assert grid.shape == shape
    assert [device.id for device in grid.flat] == [*range(processes * per_process)]


def test_shares_that_would_split_processes_are_refused(make):
    with pytest.raises(ValueError, match="whole processes per share or whole shares"):
        make(0, 2, 2, devices=devices(3, 2))


@cases.each(
    ("processes", "per_process", "seeds"),
    [(2, 1, 4), (4, 1, 2), (2, 4, 8), (2, 4, 2), (3, 4, 6), (64, 4, 10)],
)
def test_every_process_reads_its_part_of_examples(
    make, monkeypatch, processes, per_process, seeds
):
    """Tested for batches along "data" and for arrays along both axes."""
    device_mesh = make(0, seeds, devices=devices(processes, per_process))
    owners = np.vectorize(lambda device: device.process_index)(device_mesh.devices)
    for process in range(processes):
        monkeypatch.setattr(jax, "process_index", lambda index=process: index)
        for axes, grid in (
            (("data",), owners),
            (("seed", "data"), owners.reshape(1, -1)),
        ):
            part, num_parts, size = mesh.local_part(device_mesh, axes)
            columns = np.unique(np.nonzero(grid == process)[1])
            assert columns.tolist() == [*range(part * size, (part + 1) * size)]
            assert num_parts * size == grid.shape[1]
