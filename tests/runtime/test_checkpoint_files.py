"""Files of checkpoints: the same as orbax's own files, in both directions."""

import asyncio
import contextlib
import gc
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jbias.runtime import checkpoint_files

STATES = (
    {
        "step": np.asarray(3, np.int32),
        "w": {"kernel": np.arange(6.0, dtype=np.float32).reshape(2, 3)},
        "turned": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "half": np.ones(2, ml_dtypes.bfloat16),
        "flag": np.asarray([True, False]),
        "key": np.asarray([1, 2**32 - 1], np.uint32),
    },
    ({"m": np.full((3, 1, 2), -0.0, np.float32)}, ()),
)


def assert_equal(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def fill(path, states=STATES, **options) -> None:
    folder = checkpoint_files.open_for_writing(path, **options)
    with contextlib.closing(folder):
        assert folder.save(7, states, info={"body": "text"}, metrics=None)


@pytest.fixture(params=["numpy", "jax"])
def states(request):
    """Return the states on the host, and on a device."""
    if request.param == "numpy":
        return STATES
    with jax.enable_x64():
        return jax.tree.map(jnp.asarray, STATES)


def test_orbax_reads_what_is_written(tmp_path, states):
    """Earlier versions read with these calls of orbax."""
    fill(tmp_path / "c", states)
    manager = ocp.CheckpointManager(tmp_path / "c", item_names=("state", "info"))
    target = jax.tree.map(lambda x: np.zeros((), x.dtype), STATES)
    items = ocp.args.Composite(
        state=ocp.args.StandardRestore(target), info=ocp.args.JsonRestore()
    )
    with contextlib.closing(manager):
        assert manager.latest_step() == 7
        restored = manager.restore(7, args=items)
    assert_equal(restored["state"], STATES)
    assert restored["info"] == {"body": "text"}


def test_what_orbax_writes_is_read(tmp_path, states):
    """Earlier versions wrote with these calls of orbax."""
    manager = ocp.CheckpointManager(tmp_path / "c", item_names=("state", "info"))
    items = ocp.args.Composite(
        state=ocp.args.StandardSave(states), info=ocp.args.JsonSave({"body": "text"})
    )
    with contextlib.closing(manager):
        manager.save(7, args=items)
    folder = checkpoint_files.open_for_reading(tmp_path / "c")
    with contextlib.closing(folder):
        assert folder.steps() == [7]
        assert folder.read_info(7) == {"body": "text"}
        restored = folder.read_states(7, STATES)
    assert_equal(restored, STATES)
    assert jax.tree.structure(restored) == jax.tree.structure(STATES)
    assert_equal(checkpoint_files.read_stored_states(tmp_path / "c" / "7"), STATES)


def test_large_arrays_are_written_as_small_ones(tmp_path, monkeypatch):
    """Large arrays have a description of their own."""
    monkeypatch.setattr(checkpoint_files, "_LARGE_BYTES", 8)
    fill(tmp_path / "c")
    assert_equal(checkpoint_files.read_stored_states(tmp_path / "c" / "7"), STATES)


def test_arrays_may_change_after_the_call(tmp_path):
    array = np.zeros(2**20)
    folder = checkpoint_files.open_for_writing(tmp_path / "c")
    with contextlib.closing(folder):
        folder.save(1, ({"w": array},), info={})
        array += 1
    (restored,) = checkpoint_files.read_stored_states(tmp_path / "c" / "1")
    assert not restored["w"].any()


def test_the_function_decides_what_is_kept(tmp_path):
    """It sees the steps in order, with their metrics, also after the folder is opened again."""
    calls = []

    def preserve(saved):
        calls.append([(checkpoint.step, checkpoint.metrics) for checkpoint in saved])
        return [checkpoint.step != 2 for checkpoint in saved]

    metrics = {1: {"0/0": 0.5}, 2: {}, 3: None}
    for step in (1, 2, 3):
        folder = checkpoint_files.open_for_writing(tmp_path / "c", preserve)
        with contextlib.closing(folder):
            assert folder.save(step, STATES, info={}, metrics=metrics[step])
            assert not folder.save(step - 1, STATES, info={})
    assert [(1, metrics[1]), (2, metrics[2])] in calls
    assert calls[-1] == [(1, metrics[1]), (3, metrics[3])]
    assert folder.steps() == [1, 3]
    stored = checkpoint_files.metrics_file(tmp_path / "c" / "1").read_text()
    assert stored == '{"0/0": 0.5}'


@pytest.mark.slow
def test_reads_leave_no_objects_behind(tmp_path):
    """tensorstore leaks four objects for each array that orbax describes to it."""
    arrays = tuple({"w": np.ones(2)} for _ in range(100))
    fill(tmp_path / "c", arrays)
    folder, counts = checkpoint_files.open_for_reading(tmp_path / "c"), []
    with contextlib.closing(folder):
        for _ in range(8):
            folder.read_states(7, arrays)
            gc.collect()
            counts.append(sys.getallocatedblocks())
    assert counts[-1] - counts[3] < 4 * 100


def test_the_first_error_is_raised_after_all_arrays_have_ended():
    """Otherwise asyncio logs the errors of arrays that end later."""
    ended = []

    async def read(number, seconds):
        await asyncio.sleep(seconds)
        ended.append(number)
        if number:
            raise ValueError(f"array {number}")
        return number

    arrays = [read(0, 0.0), read(1, 0.02), read(2, 0.01), read(0, 0.03)]
    with pytest.raises(ValueError, match="array 1"):
        asyncio.run(checkpoint_files._wait_for_all(arrays))
    assert ended == [0, 2, 1, 0]
