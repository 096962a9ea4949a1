"""With any damaged file of a checkpoint, restoring gives saved bits or the previous step."""

import errno
import json
import pathlib
import random
import shutil

import pytest

from jbias.runs import checkpoints
from tests import cases
from tests.runs import test_checkpoints as saved

VALID = {1: {"0/0": 0.5}, 2: {"0/0": 0.25}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a folder with checkpoints of two steps."""
    folder = tmp_path_factory.mktemp("whole")
    saved.fill(folder / "c", VALID)
    return folder


def changes(content: bytes, random_: random.Random) -> dict[str, bytes | None]:
    """Return damaged contents by kind: gone, empty, truncated, or with a flipped bit."""
    size = len(content)
    contents: dict[str, bytes | None] = {"gone": None, "empty": b""}
    contents["cut"] = content[: random_.randrange(1, size)]
    for at in {0, random_.randrange(size)}:
        flipped = bytearray(content)
        flipped[at] ^= 1 << random_.randrange(8)
        contents[f"flipped at {at}"] = bytes(flipped)
    return contents


def damaged(whole, folder, path, content):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    if content is None:
        (folder / path).unlink()
    else:
        (folder / path).write_bytes(content)
    return folder / "c"


def assert_resumes(directory) -> int:
    """Restore saved bits, with a message for an earlier step; save the next step."""
    messages = []
    store = checkpoints.CheckpointStore(directory, valid_at=VALID.get)
    states, info = store.restore(saved.template, messages.append)
    saved.assert_equal(states, saved.states(float(info["step"])))
    assert bool(messages) == (info["step"] == 1), messages
    store.save(3, saved.states(3.0), {"step": 3, "stage": 0})
    store.close()
    assert saved.latest(directory)[1]["step"] == 3
    return info["step"]


@pytest.mark.slow
def test_every_file_of_a_checkpoint_damaged_in_several_ways(whole, tmp_path):
    restored_steps, random_ = set(), random.Random(0)
    paths = sorted(p.relative_to(whole) for p in whole.rglob("2/**/*") if p.is_file())
    assert {p.name for p in paths} >= {"_METADATA", "metadata", "metrics"}
    for path in paths:
        for kind, content in changes((whole / path).read_bytes(), random_).items():
            directory = damaged(whole, tmp_path / "run", path, content)
            try:
                restored_steps.add(assert_resumes(directory))
            except Exception as error:
                raise AssertionError(f"{path} {kind}") from error
    assert restored_steps == {1, 2}


def test_missing_metadata_is_damage(whole, tmp_path):
    path = pathlib.Path("c/2/state/_METADATA")
    assert assert_resumes(damaged(whole, tmp_path / "run", path, None)) == 1


@cases.each("content", ["", "[1]", '{"0/0": "x"}', '{"0/0": 0.75}'])
def test_damaged_metrics_are_rewritten_from_the_checkpoint(whole, tmp_path, content):
    """Wrong metrics could delete the best step, or prevent further saves."""
    path = pathlib.Path("c/2/metrics/metrics")
    directory = damaged(whole, tmp_path / "run", path, content.encode())
    # Wrong values of records do not matter.
    checkpoints.CheckpointStore(directory, valid_at=lambda step: {"0/0": 1.0}).close()
    assert json.loads((tmp_path / "run" / path).read_text()) == VALID[2]


@cases.each("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
@cases.each("error", [OSError, ValueError])
def test_a_disk_that_fails_is_no_damage(whole, tmp_path, monkeypatch, number, error):
    directory = shutil.copytree(whole, tmp_path / "run") / "c"
    store = checkpoints.CheckpointStore(directory)
    text = f"Error reading [os_error_code='{number}']"

    def failing(*_):
        raise OSError(number, "failed") if error is OSError else ValueError(text)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="nothing was"):
        patch.setattr(checkpoints, "_states", failing)
        store.restore(saved.template, print)
    assert checkpoints.steps(directory) == [1, 2]
    assert store.restore(saved.template, print)[1]["step"] == 2
    store.close()


def test_a_damaged_stage_number_is_detected(whole, tmp_path):
    """Otherwise it would name a stage that does not exist."""
    path = pathlib.Path("c/2/info/metadata")
    content = (whole / path).read_bytes().replace(b'\\"stage\\": 0', b'\\"stage\\": 7')
    assert content != (whole / path).read_bytes()
    assert assert_resumes(damaged(whole, tmp_path / "run", path, content)) == 1


def test_other_files_in_the_checkpoint_folder_are_ignored(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    for name in ("lost+found", ".nfs0001", "old"):
        (tmp_path / "run" / "c" / name).mkdir()
    (tmp_path / "run" / "c" / "note.txt").write_text("mine")
    assert assert_resumes(tmp_path / "run" / "c") == 2
    assert (tmp_path / "run" / "c" / "note.txt").read_text() == "mine"
    assert (tmp_path / "run" / "c" / "old").is_dir()
