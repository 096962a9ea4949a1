"""Whatever file of a checkpoint is damaged, wherever: the right bits, or the step before."""

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
    """A folder with two steps."""
    folder = tmp_path_factory.mktemp("whole")
    saved.fill(folder / "c", VALID)
    return folder


def changes(content: bytes, random_: random.Random) -> dict[str, bytes | None]:
    """Ways to damage a file: gone, empty, cut, and a bit of several bytes the other way."""
    size = len(content)
    found: dict[str, bytes | None] = {"gone": None, "empty": b""}
    found["cut"] = content[: random_.randrange(1, size)]
    for at in {0, random_.randrange(size)}:
        one = bytearray(content)
        one[at] ^= 1 << random_.randrange(8)
        found[f"flipped at {at}"] = bytes(one)
    return found


def damaged(whole, folder, path, content):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    if content is None:
        (folder / path).unlink()
    else:
        (folder / path).write_bytes(content)
    return folder / "c"


def assert_goes_on(directory) -> int:
    """Restores bits that were saved, says so of a fall back, and saves the next step."""
    said = []
    store = checkpoints.CheckpointStore(directory, valid_at=VALID.get)
    states, info = store.restore(saved.template, said.append)
    saved.assert_equal(states, saved.states(float(info["step"])))
    assert bool(said) == (info["step"] == 1), said
    store.save(3, saved.states(3.0), {"step": 3, "stage": 0})
    store.close()
    assert saved.latest(directory)[1]["step"] == 3
    return info["step"]


@pytest.mark.slow
def test_every_file_of_a_checkpoint_damaged_in_many_ways(whole, tmp_path):
    found, random_ = set(), random.Random(0)
    paths = sorted(p.relative_to(whole) for p in whole.rglob("2/**/*") if p.is_file())
    assert {p.name for p in paths} >= {"_METADATA", "metadata", "metrics"}
    for path in paths:
        for how, content in changes((whole / path).read_bytes(), random_).items():
            directory = damaged(whole, tmp_path / "run", path, content)
            try:
                found.add(assert_goes_on(directory))
            except Exception as error:
                raise AssertionError(f"{path} {how}") from error
    assert found == {1, 2}


def test_metadata_that_went_is_damage_and_no_other_model(whole, tmp_path):
    path = pathlib.Path("c/2/state/_METADATA")
    assert assert_goes_on(damaged(whole, tmp_path / "run", path, None)) == 1


@cases.each("content", ["", "[1]", '{"0/0": "x"}', '{"0/0": 0.75}'])
def test_damaged_metrics_are_written_anew_from_the_checkpoint(whole, tmp_path, content):
    """Else the best step could go, or no step be saved any more."""
    path = pathlib.Path("c/2/metrics/metrics")
    directory = damaged(whole, tmp_path / "run", path, content.encode())
    # Whatever damaged records say.
    checkpoints.CheckpointStore(directory, valid_at=lambda step: {"0/0": 1.0}).close()
    assert json.loads((tmp_path / "run" / path).read_text()) == VALID[2]


@cases.each("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
@cases.each("said", [OSError, ValueError])
def test_a_disk_that_fails_is_no_damage(whole, tmp_path, monkeypatch, number, said):
    directory = shutil.copytree(whole, tmp_path / "run") / "c"
    store = checkpoints.CheckpointStore(directory)
    text = f"Error reading [os_error_code='{number}']"

    def failing(*_):
        raise OSError(number, "failed") if said is OSError else ValueError(text)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="nothing was"):
        patch.setattr(checkpoints, "_states", failing)
        store.restore(saved.template, print)
    assert checkpoints.steps(directory) == [1, 2]
    assert store.restore(saved.template, print)[1]["step"] == 2
    store.close()


def test_a_damaged_position_is_seen_before_it_is_used(whole, tmp_path):
    """It would name a stage that there is not."""
    path = pathlib.Path("c/2/info/metadata")
    content = (whole / path).read_bytes().replace(b'\\"stage\\": 0', b'\\"stage\\": 7')
    assert content != (whole / path).read_bytes()
    assert assert_goes_on(damaged(whole, tmp_path / "run", path, content)) == 1


def test_what_lies_beside_the_steps_is_left_alone(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    for name in ("lost+found", ".nfs0001", "old"):
        (tmp_path / "run" / "c" / name).mkdir()
    (tmp_path / "run" / "c" / "note.txt").write_text("mine")
    assert assert_goes_on(tmp_path / "run" / "c") == 2
    assert (tmp_path / "run" / "c" / "note.txt").read_text() == "mine"
    assert (tmp_path / "run" / "c" / "old").is_dir()
