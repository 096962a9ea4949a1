"""The command `prepare check` reads every image of a set and lists the damaged ones."""

import json

import numpy as np
import pytest
from PIL import Image

from jbias import data, prepare
from jbias.data import loader


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(12):
        for split in ("train", "val"):
            path = tmp_path / "set" / split / f"class{i % 3}" / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (20, 24, 3), np.uint8)).save(path)
    return tmp_path / "set"


def run(root, *args):
    return prepare.main(["check", f"--src={root}", *args])


def test_the_images_of_an_undamaged_set_are_counted(root, tmp_path, capsys):
    (root / "train/class1/1.jpg").unlink()
    assert run(root, f"--sheet={tmp_path / 'sheet.png'}") == 0
    head, train, val, _ = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["split", "images", "classes"]
    assert train.split()[:6] == ["train", "11", "3", "3", "to", "4"]
    source = data.load("folder", "val", root=str(root), size=8)
    assert val.split() == ["val", "12", "3", "4", "0", source.fingerprint[:12]]
    with Image.open(tmp_path / "sheet.png") as drawn:
        assert drawn.size[0] > 200


def test_damaged_images_are_named(root, tmp_path, capsys):
    bad = [root / "train/class0/3.jpg", root / "val/class2/5.jpg"]
    bad[0].write_bytes(bad[0].read_bytes()[:300])
    bad[1].write_bytes(b"")
    assert run(root, f"--sheet={tmp_path / 'sheet.png'}") == 1
    out = capsys.readouterr().out
    assert [line.split()[4] for line in out.splitlines()[1:3]] == ["1", "1"]
    assert all(f"damaged: {path}: " in out for path in bad)


def test_other_sets_are_checked_by_their_own_rules(digits_root, capsys):
    assert run(digits_root, "--data=mnist", "--splits=train") == 0
    assert "40 images on disk, the published set has" in capsys.readouterr().out


@pytest.fixture
def digits_root(tmp_path):
    for kind, array in (
        ("images-idx3", np.zeros((40, 28, 28), np.uint8)),
        ("labels-idx1", np.arange(40, dtype=np.uint8) % 10),
    ):
        header = bytes([0, 0, 8, array.ndim])
        header += np.array(array.shape, ">u4").tobytes()
        (tmp_path / f"train-{kind}-ubyte").write_bytes(header + array.tobytes())
    return tmp_path


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--data=floder"], "did you mean 'folder'"),
        (["--splits=tset"], "tset"),
        (["--data=pacs"], "photo"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(root, args, message, capsys):
    assert run(root, *args) == 2
    error_text = capsys.readouterr().err
    assert message in error_text and error_text.count("\n") == 1


def test_a_list_of_damaged_images_is_accepted_by_skip(root, tmp_path):
    path = tmp_path / "damaged.json"
    bad = root / "train/class0/3.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    assert run(root, f"--list={path}") == 1
    options = dict(root=str(root), size=8)
    full_source = data.load("folder", "train", **options)
    source = data.load("folder", "train", skip=str(path), **options)
    assert {*full_source.files} - {*source.files} == {"class0/3.jpg"}
    assert len(loader.decode_all(source, workers=1)) == 11
    entry = json.loads(path.read_text())["splits"]["train"]
    assert entry["fingerprint"] == full_source.fingerprint
    assert [*entry["damaged"]] == ["class0/3.jpg"]


def test_existing_splits_are_checked(tmp_path, capsys):
    for i in range(1000):
        path = tmp_path / f"imagenetv2-top-images-format-val/{i}/a.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(path)
    assert run(tmp_path, "--data=imagenet_v2") == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[:3] == ["top-images", "1,000", "1,000"]


def test_options_of_a_set_are_passed_on(tmp_path, capsys):
    path = tmp_path / "val/n01440764/a.png"
    path.parent.mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(path)
    assert run(tmp_path, "--data=imagenet", "--options=subset=True") == 0
    assert run(tmp_path, "--data=imagenet") == 2
    assert run(tmp_path, "--data=imagenet", "--options=subset") == 2
    assert "must read a=b,c=d, got 'subset'" in capsys.readouterr().err


def test_options_may_be_booleans_and_numbers(digits_root, root, capsys):
    args = ("--data=mnist", "--splits=train", "--options=pad=2,crop=False")
    assert run(digits_root, *args) == 2
    assert "'crop'" in capsys.readouterr().err, "a switch that is off is passed on"
    assert run(digits_root, *args[:2], "--options=pad=2") == 0
    assert run(root, "--options=crop=False,resize=70") == 2
    assert "crop=False squeezes to 64x64" in capsys.readouterr().err


def test_a_fully_damaged_set_gives_no_sheet(root, tmp_path, capsys):
    for path in root.rglob("*.jpg"):
        path.write_bytes(b"")
    sheet = tmp_path / "sheet.png"
    assert run(root, f"--sheet={sheet}") == 1
    assert "and 4 more" in capsys.readouterr().out and not sheet.exists()


@pytest.mark.parametrize("size", ["0", "-1"])
def test_a_size_that_no_image_has_is_refused(root, size, tmp_path, capsys):
    sheet = tmp_path / "sheet.png"
    assert run(root, f"--size={size}", f"--sheet={sheet}") == 2
    error = capsys.readouterr().err
    assert f"size must be a whole number >= 1, got {size}" in error
    assert error.count("\n") == 1 and not sheet.exists()


@pytest.mark.parametrize(
    ("flag", "content"),
    [
        ("list", b"precious"),
        ("list", b'{"made_by": "me"}'),
        ("list", b"[1]"),
        ("list", b"[" * 100_000),
        ("list", b""),
        ("list", b"\xff\xfe"),
        ("sheet", b"precious"),
    ],
)
def test_other_programs_files_are_not_overwritten(
    root, flag, content, tmp_path, capsys
):
    path = tmp_path / {"list": "mine.json", "sheet": "mine.png"}[flag]
    path.write_bytes(content)
    assert run(root, f"--{flag}={path}") == 2
    error = capsys.readouterr().err
    assert path.read_bytes() == content
    assert f"--{flag}: {path} exists already" in error and error.count("\n") == 1


def test_a_list_is_not_written_over_a_link(root, tmp_path, capsys):
    (tmp_path / "mine.json").write_text("precious")
    (tmp_path / "list.json").symlink_to(tmp_path / "mine.json")
    assert run(root, f"--list={tmp_path / 'list.json'}") == 2
    assert "is no plain file" in capsys.readouterr().err
    assert (tmp_path / "list.json").is_symlink()


def test_a_list_replaces_an_earlier_one(root, tmp_path):
    path = tmp_path / "new/list.json"
    assert run(root, f"--list={path}", "--splits=train") == 0
    assert run(root, f"--list={path}", "--splits=val") == 0
    assert [*json.loads(path.read_text())["splits"]] == ["val"]


@pytest.mark.parametrize("name", ["$\\frac{x$", "a$b^$", "$x_{y}$", "a\nb", "\x1b31m"])
def test_a_name_is_drawn_unchanged(name, tmp_path):
    """The name of a split or a class is drawn neither as a formula nor on several lines."""
    for i in range(2):
        path = tmp_path / "set" / name / f"{name}{i}" / "0.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(path)
    assert run(tmp_path / "set", f"--sheet={tmp_path / 'sheet.png'}") == 0
    drawn = f"--out={tmp_path / 'samples.png'}"
    arguments = ["--data=folder", f"--root={tmp_path / 'set'}", f"--splits={name}"]
    assert prepare.main(["samples", *arguments, drawn]) == 0
    for figure in ("sheet.png", "samples.png"):
        with Image.open(tmp_path / figure) as image:
            assert image.size[0] > 90
