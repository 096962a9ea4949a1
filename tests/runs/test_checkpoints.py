"""Saving, retention by validation accuracy, and recovery from damaged checkpoints."""

import errno
import gc
import itertools
import pathlib
import shutil
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.models import trained
from jbias.runs import checkpoints
from jbias.training import step as train_step
from tests import cases


def states(value: float) -> tuple:
    """Return two seeds' states with all types of leaves."""
    return tuple(
        train_step.State(
            jnp.asarray(int(value), jnp.int32),
            {"net": {"w": jax.random.normal(jax.random.key(seed), (64, 64)) * value}},
            {"net": {"mean": jnp.full(3, value)}},
            ({"m": jnp.ones(2, jnp.bfloat16)}, ()),
        )
        for seed in (0, 1)
    )


def template(stage: int) -> tuple:
    """Return the shapes of the states of a run of one stage."""
    assert stage == 0
    return jax.eval_shape(lambda: states(0.0))


def fill(directory, valid: dict[int, dict | None], keep: int = 2) -> None:
    store = checkpoints.CheckpointStore(directory, keep=keep)
    for at, accuracies in valid.items():
        store.save(at, states(float(at)), {"step": at, "stage": 0}, accuracies)
    store.close()


def kept_steps(directory) -> list[int]:
    return sorted(int(p.name) for p in directory.iterdir() if p.name.isdecimal())


def latest(directory, say=lambda line: None):
    store = checkpoints.CheckpointStore(directory)
    checkpoint = store.restore(template, say)
    store.close()
    return checkpoint


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert jax.tree.structure(a) == jax.tree.structure(b)


def test_another_process_reads_a_step_and_changes_nothing(tmp_path):
    fill(tmp_path / "c", {1: None, 2: {}})
    (tmp_path / "c" / "3.orbax-checkpoint-tmp").mkdir()  # A save in progress.
    files_before = sorted(tmp_path.rglob("*"))
    assert checkpoints.steps(tmp_path / "c") == [1, 2]
    awaits = [checkpoints.awaits_evaluation(tmp_path / "c", step) for step in (1, 2, 3)]
    assert awaits == [0, 1, 0]
    restored, info = checkpoints.read(tmp_path / "c", 1, template)
    assert info["step"] == 1
    assert_equal(restored, states(1.0))
    assert sorted(tmp_path.rglob("*")) == files_before
    assert checkpoints.steps(tmp_path / "nowhere") == []


def test_saved_states_are_restored_to_the_bit(tmp_path):
    fill(tmp_path / "c", {1: None, 2: None})
    restored, info = latest(tmp_path / "c")
    assert info["step"] == 2
    assert_equal(restored, states(2.0))


def test_an_empty_folder_restores_nothing(tmp_path):
    assert latest(tmp_path / "c") is None


def test_latest_and_each_seeds_first_best_are_kept(tmp_path):
    valid = {
        1: {"0": 0.5, "1": 0.9},
        2: {"0": 0.8, "1": 0.9},  # Seed 1 equals its best: the first stays.
        3: None,
        4: {"0": 0.8, "1": 0.1},
        5: {"0": 0.7, "1": 0.2},
        6: None,
    }
    fill(tmp_path / "c", valid)
    assert kept_steps(tmp_path / "c") == [1, 2, 5, 6]


def test_each_stage_keeps_its_own_best(tmp_path):
    valid = {1: {"0/0": 0.9}, 2: {"0/0": 0.5}, 3: {"1/0": 0.8}}
    fill(tmp_path / "c", {**valid, **{step: {"1/0": 0.1} for step in (4, 5, 6)}})
    assert kept_steps(tmp_path / "c") == [1, 3, 5, 6]


def test_steps_are_kept_until_another_process_has_evaluated_them(tmp_path):
    """Afterwards the best steps by these evaluations are kept."""
    accuracies = {1: {"0/0": 0.5}, 2: {"0/0": 0.9}, 3: {"0/0": 0.7}}
    store = checkpoints.CheckpointStore(tmp_path / "c", valid_at=accuracies.get)
    for at in range(1, 8):
        info = {"step": at, "stage": 0}
        store.save(at, states(float(at)), info, None if at == 5 else {})
    store.close()
    # 1 and 3 are evaluated and not the best, 5 was not to be evaluated.
    assert kept_steps(tmp_path / "c") == [2, 4, 6, 7]


@pytest.mark.parametrize("killed", [False, True])
def test_a_step_saved_again_is_never_missing(tmp_path, killed, monkeypatch):
    fill(tmp_path / "c", {1: None, 2: None})
    store = checkpoints.CheckpointStore(tmp_path / "c")
    assert store.restore(template, print)
    if killed:
        monkeypatch.setattr(store, "_write", lambda *args, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.save(2, states(3.0), {"step": 2, "stage": 0})
    else:
        store.save(2, states(3.0), {"step": 2, "stage": 0})
    store.close()
    restored, _ = latest(tmp_path / "c")
    assert_equal(restored, states(2.0 if killed else 3.0))
    assert kept_steps(tmp_path / "c") == [1, 2]


def test_retention_survives_a_restart(tmp_path):
    fill(tmp_path / "c", {1: {"0": 0.9}, 2: {"0": 0.5}})
    fill(tmp_path / "c", {3: {"0": 0.6}, 4: {"0": 0.7}, 5: {"0": 0.8}})
    assert kept_steps(tmp_path / "c") == [1, 4, 5]


@cases.each("damage", ["flip", "cut", "remove", "info"])
def test_damage_falls_back_to_the_previous_step_with_a_message(tmp_path, damage):
    fill(tmp_path / "c", {1: None, 2: None})
    files = (tmp_path / "c" / "2").rglob("*")
    largest = max((p for p in files if p.is_file()), key=lambda p: p.stat().st_size)
    if damage == "remove":
        largest.unlink()
    elif damage == "info":
        (info,) = (tmp_path / "c" / "2" / "info").rglob("metadata")
        info.write_text(info.read_text().replace("step", "pets"))
    else:
        content = bytearray(largest.read_bytes())
        content[len(content) // 2] ^= 1
        largest.write_bytes(content if damage == "flip" else content[:-100])
    lines = []
    restored, info = latest(tmp_path / "c", lines.append)
    assert info["step"] == 1
    assert_equal(restored, states(1.0))
    assert len(lines) == 1
    assert "step 2 is damaged" in lines[0]
    assert (tmp_path / "damaged" / "2").is_dir()
    fill(tmp_path / "c", {2: None})  # Its place is free again.
    assert latest(tmp_path / "c")[1]["step"] == 2


@pytest.mark.slow
def test_when_all_are_damaged_nothing_is_moved_and_the_run_is_refused(tmp_path):
    fill(tmp_path / "c", {1: None, 2: None})
    for info in (tmp_path / "c").rglob("info/metadata"):
        info.write_text("{}")
    store = checkpoints.CheckpointStore(tmp_path / "c")
    with pytest.raises(ValueError, match="none in .* can be read .*delete that"):
        store.restore(template, print)
    store.close()
    assert kept_steps(tmp_path / "c") == [1, 2]


def test_another_models_checkpoint_is_refused_and_left_alone(tmp_path):
    fill(tmp_path / "c", {1: None})
    store = checkpoints.CheckpointStore(tmp_path / "c")

    shape = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    small = template(0)
    other = tuple(s._replace(params={"net": {"v": shape}}) for s in small)
    with pytest.raises(ValueError, match="another model"):
        store.restore(lambda _: other, print)
    store.close()
    assert kept_steps(tmp_path / "c") == [1]


def test_another_width_is_another_model(tmp_path):
    fill(tmp_path / "c", {1: None})
    store = checkpoints.CheckpointStore(tmp_path / "c")
    wide = {"net": {"w": jax.ShapeDtypeStruct((64, 32), jnp.float32)}}
    other = tuple(s._replace(params=wide) for s in template(0))
    with pytest.raises(ValueError, match="another model"):
        store.restore(lambda _: other, print)
    store.close()


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_errors_of_the_template_are_no_damage(tmp_path, kind):
    fill(tmp_path / "c", {1: None, 2: None})
    store = checkpoints.CheckpointStore(tmp_path / "c")

    def refused(stage):
        raise kind("memory: too little")

    with pytest.raises(kind, match="^memory: too little$"):
        store.restore(refused, print)
    store.close()
    assert kept_steps(tmp_path / "c") == [1, 2]
    assert not (tmp_path / "damaged").exists()


def test_restored_arrays_are_on_the_host(tmp_path):
    """Restored arrays are numpy arrays, on no device."""
    fill(tmp_path / "c", {1: None})
    restored, _ = latest(tmp_path / "c")
    assert {type(leaf) for leaf in jax.tree.leaves(restored)} == {np.ndarray}


def test_saving_an_older_step_is_an_assertion_error(tmp_path):
    store = checkpoints.CheckpointStore(tmp_path / "c")
    store.save(2, states(2.0), {})
    with pytest.raises(AssertionError):
        store.save(1, states(1.0), {})
    store.close()


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, monkeypatch):
    fill(tmp_path / "c", {1: None})
    store = checkpoints.CheckpointStore(tmp_path / "c")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.folder, "save", full)
    with pytest.raises(OSError, match="cannot save step 2 .*No space left") as caught:
        store.save(2, states(2.0), {})
    assert "\n" not in str(caught.value)
    store.close()
    assert latest(pathlib.Path(tmp_path / "c"))[1]["step"] == 1


def test_too_little_disk_space_is_refused_before_writing(tmp_path, monkeypatch):
    fill(tmp_path / "c", {1: None})
    store = checkpoints.CheckpointStore(tmp_path / "c")
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        OSError, match="No space left on device: .* KiB needed, 1,000 bytes"
    ):
        store.save(2, states(2.0), {})
    store.close()
    assert kept_steps(tmp_path / "c") == [1]


def test_a_clock_that_jumps_ends_no_save(tmp_path, monkeypatch):
    """A save succeeds although the clock jumps by days at each call."""
    real_time, jumps = time.time, itertools.cycle([0.0, 1e6, -1e6])
    monkeypatch.setattr(time, "time", lambda: real_time() + next(jumps))
    fill(tmp_path / "c", {1: None, 2: {"0/0": 0.5}})
    restored, _ = latest(tmp_path / "c")
    assert_equal(restored, states(2.0))


def test_keeping_a_single_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least 2"):
        checkpoints.CheckpointStore(tmp_path / "c", keep=1)


def test_known_checksums_are_reused_and_old_ones_checked():
    saved, other, info = states(1.0), states(2.0), {"step": 1}
    stored = checkpoints.with_checksums(saved, info)
    checksum = checkpoints.states_checksum(saved)
    assert checkpoints.with_checksums(saved, info, checksum=checksum) == stored
    assert checkpoints.with_checksums(saved, info, checksum=7)["states"] == 7
    old_format = {**stored, "sum": checkpoints.states_checksum(saved, stored["body"])}
    del old_format["states"]
    for stored_object in (stored, old_format):
        checkpoints.verify_states(stored_object, saved)
        assert checkpoints.verified_info(stored_object) == info
        with pytest.raises(ValueError, match="does not match its sum"):
            checkpoints.verify_states(stored_object, other)


def test_the_reason_of_damage_is_cut_at_a_word():
    line = checkpoints.first_line(ValueError("\n" + "damaged, " * 50 + "\nmore"))
    assert line.endswith("damaged, …") and len(line) <= 200
    assert checkpoints.first_line(ValueError("short\nmore")) == "short"


@pytest.mark.slow
def test_saves_leave_no_objects_behind(tmp_path):
    """tensorstore leaks four objects for each array that orbax describes to it."""
    net = {f"w{i}": np.ones(2) for i in range(40)}
    seed_state = train_step.State(np.int32(0), {"net": net}, {"net": {}}, ())
    arrays = (seed_state, seed_state)
    store, counts = checkpoints.CheckpointStore(tmp_path), []
    for at in range(1, 14):
        store.save(at, arrays, {"step": at, "stage": 0})
        store.wait()
        gc.collect()
        counts.append(sys.getallocatedblocks())
    store.close()
    assert counts[-1] - counts[5] < 7 * 80 * 2


@pytest.mark.slow
def test_networks_of_damaged_checkpoints_are_refused_or_unchanged(tmp_path):
    """Whichever byte is changed, the weights are refused or unchanged."""
    fill(tmp_path / "checkpoints", {1: {}})
    folder = tmp_path / "checkpoints"
    original, _ = trained.read_nets(folder, 1)
    stored = [path for path in (folder / "1" / "state").rglob("*") if path.is_file()]
    largest = max(stored, key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    refused = 0
    for place in range(500, len(content), len(content) // 20):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        largest.write_bytes(damaged)
        try:
            nets, _ = trained.read_nets(folder, 1)
        except ValueError as error:
            refused += 1
            assert "cannot be read" in str(error)
        else:
            assert trained.nets_checksums(nets) == trained.nets_checksums(original)
    assert refused
