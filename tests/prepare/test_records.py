"""Images of any form into ArrayRecord: the same set, made once, damaged ones named."""

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


def run(root, *more):
    dst = f"--dst={root / 'dst'}"
    return prepare.main(["records", f"--src={root / 'src'}", dst, *more])


def test_the_shards_are_the_folder(root, capsys):
    assert run(root, "--shards=5") == 0
    assert (
        "12 images of 3 classes in 5 shards, 5 of them new" in capsys.readouterr().out
    )
    whole, found = (
        data.load("folder", "train", root=str(root / one), size=16)
        for one in ("src", "dst")
    )
    assert (found.files, found.classes) == (whole.files, whole.classes)
    assert found.fingerprint == whole.fingerprint
    for i in range(12):
        assert found[i]["label"] == whole[i]["label"]
        np.testing.assert_array_equal(found[i]["image"], whole[i]["image"])
    assert not list((root / "dst").glob(".*"))


def test_what_is_missing_is_made(root, capsys):
    assert run(root, "--shards=4") == 0
    kept = {p: p.read_bytes() for p in (root / "dst").glob("*.array_record")}
    sorted(kept)[2].unlink()
    assert run(root, "--shards=4") == 0
    assert "in 4 shards, 1 of them new" in capsys.readouterr().out
    assert all(path.read_bytes() == held for path, held in kept.items())


def test_damaged_images_are_counted_and_their_shard_is_not_written(root, capsys):
    bad = sorted((root / "src" / "train").rglob("*.jpg"))[1:3]
    for path in bad:
        path.write_bytes(path.read_bytes()[:200])
    assert run(root, "--shards=6") == 2
    said = capsys.readouterr().err
    assert f"2 of 12 do not, first {bad[0]}" in said and said.count("\n") == 1
    assert len(list((root / "dst").glob("*.array_record"))) == 4
    assert not list((root / "dst").glob(".*"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--shards=13"], "--shards must be at most 12"),
        (["--shards=-1"], "--shards at least 0"),
        (["--split=train[:50%]"], "--split must be a whole one"),
        (["--split=val"], "val"),
    ],
)
def test_refuses_in_one_line(root, more, message, capsys):
    assert run(root, *more) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_other_shards_are_not_mixed_with(root, capsys):
    assert run(root, "--shards=2") == 0
    assert run(root, "--shards=3") == 2
    assert "must hold no other shards of 'train'" in capsys.readouterr().err


def test_shards_of_other_images_are_refused(root, capsys):
    """As many images under the same names are another set by their sizes."""
    assert run(root, "--shards=2") == 0
    made = {path: path.read_bytes() for path in (root / "dst").iterdir()}
    path = root / "src/train/class0/0.jpg"
    Image.new("RGB", (9, 9)).save(path)
    assert run(root, "--shards=2") == 2
    said = capsys.readouterr().err
    assert "got train-00000-of-00002.array_record of other images or classes" in said
    assert said.count("\n") == 1
    assert {path: path.read_bytes() for path in made} == made


def test_a_damaged_image_is_replaced_and_its_shard_made(root, capsys):
    path = max((root / "src/train").rglob("*.jpg"))
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    assert run(root, "--shards=3") == 2
    path.write_bytes(whole)
    assert run(root, "--shards=3") == 0
    assert "in 3 shards, 1 of them new" in capsys.readouterr().out
    found = data.load("folder", "train", root=str(root / "dst"), size=16)
    plain = data.load("folder", "train", root=str(root / "src"), size=16)
    assert found.fingerprint == plain.fingerprint
