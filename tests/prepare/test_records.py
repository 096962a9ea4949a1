"""Images in any format to ArrayRecord: the same set, made once, damaged images reported."""

import numpy as np
import pytest
from PIL import Image

from jbias import data, prepare


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(12):
        path = tmp_path / "src" / "train" / f"class{i % 3}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), np.uint8)).save(path)
    return tmp_path


def run(root, *args):
    dst = f"--dst={root / 'dst'}"
    return prepare.main(["records", f"--src={root / 'src'}", dst, *args])


def test_shards_equal_their_folder(root, capsys):
    assert run(root, "--shards=5") == 0
    assert (
        "12 images of 3 classes in 5 shards, 5 of them new" in capsys.readouterr().out
    )
    folder = data.load("folder", "train", root=str(root / "src"), size=16)
    shards = data.load("folder", "train", root=str(root / "dst"), size=16)
    assert (shards.files, shards.classes) == (folder.files, folder.classes)
    assert shards.fingerprint == folder.fingerprint
    for i in range(12):
        assert shards[i]["label"] == folder[i]["label"]
        np.testing.assert_array_equal(shards[i]["image"], folder[i]["image"])
    assert not list((root / "dst").glob(".*"))


def test_missing_shards_are_made(root, capsys):
    assert run(root, "--shards=4") == 0
    contents = {p: p.read_bytes() for p in (root / "dst").glob("*.array_record")}
    sorted(contents)[2].unlink()
    assert run(root, "--shards=4") == 0
    assert "in 4 shards, 1 of them new" in capsys.readouterr().out
    assert all(path.read_bytes() == content for path, content in contents.items())


def test_damaged_images_are_counted_and_their_shard_is_not_written(root, capsys):
    damaged = sorted((root / "src" / "train").rglob("*.jpg"))[1:3]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:200])
    assert run(root, "--shards=6") == 2
    error_text = capsys.readouterr().err
    assert (
        f"2 of 12 do not, first {damaged[0]}" in error_text
        and error_text.count("\n") == 1
    )
    assert len(list((root / "dst").glob("*.array_record"))) == 4
    assert not list((root / "dst").glob(".*"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--shards=13"], "--shards must be at most 12"),
        (["--shards=-1"], "--shards at least 0"),
        (["--split=train[:50%]"], "--split must be a whole one"),
        (["--split=val"], "val"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(root, args, message, capsys):
    assert run(root, *args) == 2
    error_text = capsys.readouterr().err
    assert message in error_text and error_text.count("\n") == 1


def test_another_number_of_shards_is_refused(root, capsys):
    assert run(root, "--shards=2") == 0
    assert run(root, "--shards=3") == 2
    assert "must hold no other shards of 'train'" in capsys.readouterr().err


def test_shards_of_other_images_are_refused(root, capsys):
    """A set with the same names but other file sizes is another set."""
    assert run(root, "--shards=2") == 0
    contents = {path: path.read_bytes() for path in (root / "dst").iterdir()}
    path = root / "src/train/class0/0.jpg"
    Image.new("RGB", (9, 9)).save(path)
    assert run(root, "--shards=2") == 2
    error_text = capsys.readouterr().err
    assert (
        "got train-00000-of-00002.array_record of other images or classes" in error_text
    )
    assert error_text.count("\n") == 1
    assert {path: path.read_bytes() for path in contents} == contents


def test_after_a_repair_only_the_repaired_shard_is_made(root, capsys):
    path = max((root / "src/train").rglob("*.jpg"))
    content = path.read_bytes()
    path.write_bytes(content[:200])
    assert run(root, "--shards=3") == 2
    path.write_bytes(content)
    assert run(root, "--shards=3") == 0
    assert "in 3 shards, 1 of them new" in capsys.readouterr().out
    shards = data.load("folder", "train", root=str(root / "dst"), size=16)
    folder = data.load("folder", "train", root=str(root / "src"), size=16)
    assert shards.fingerprint == folder.fingerprint
