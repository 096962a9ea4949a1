"""Corrupted sets: one per corruption and severity, the same at every call."""

import shutil

import numpy as np

from jbias import data, prepare
from jbias.data import corruptions
from tests import cases

SET = ["--data=shapes", "--split=valid", "--n=32"]


def run(out, *args):
    return prepare.main(["corrupt", f"--out={out}", *SET, *args])


def test_images_equal_those_of_the_function(tmp_path, capsys):
    out = tmp_path / "c"
    assert run(out, "--names=fog+contrast", "--severities=2+4") == 0
    assert "128 images made, 128 in all" in capsys.readouterr().out
    plain = data.load("shapes", "valid", size=32, n=32)
    corrupted = data.load("folder", "4", root=str(out / "contrast"), size=32)
    assert corrupted.classes == tuple(sorted(plain.classes)) and len(corrupted) == 32
    for i, name in enumerate(corrupted.files):
        number = int(name.split("/")[1].removesuffix(".png"))
        assert plain.classes[plain.columns["label"][number]] == name.split("/")[0]
        expected = corruptions.corrupt(
            plain.images[number], "contrast", 4, np.random.default_rng(0)
        )
        np.testing.assert_array_equal(corrupted[i]["image"], expected)  # Draws nothing.
    assert (out / "sheet.png").exists()


def test_missing_images_are_made_again_and_equal(tmp_path, capsys):
    out = tmp_path / "c"
    args = ["--names=gaussian_noise", "--severities=3"]
    assert run(out, *args) == 0
    contents = {path: path.read_bytes() for path in out.rglob("0*.png")}
    deleted = sorted(contents)[5]
    deleted.unlink()
    assert run(out, *args) == 0
    assert "1 images made, 32 in all" in capsys.readouterr().out
    assert deleted.read_bytes() == contents[deleted]
    assert run(tmp_path / "other", *args, "--seed=1") == 0
    other = tmp_path / "other" / deleted.relative_to(out)
    assert other.read_bytes() != contents[deleted]


def test_other_settings_are_refused_in_the_same_folder(tmp_path, capsys):
    out = tmp_path / "c"
    assert run(out, "--names=fog", "--severities=1") == 0
    capsys.readouterr()
    for args in (["--seed=1"], ["--table=64"], ["--correlation=0"]):
        assert run(out, "--names=contrast+fog", "--severities=1", *args) == 2
        error_text = capsys.readouterr().err
        assert (
            "must hold images of these settings" in error_text
            and error_text.count("\n") == 1
        )
    assert not (out / "contrast").exists()
    source = data.load("folder", "1", root=str(out / "fog"), size=32)
    assert source.note.startswith("made by jbias.prepare corrupt of shapes/valid")


@cases.each(
    ("args", "message"),
    [
        (["--names=smog"], "did you mean"),
        (["--severities=a"], "--severities must be like 1+3+5"),
        (["--severities=6", "--names=fog"], "--severities must be 1 to 5, got 6"),
        (["--names=frost"], "frost"),
        (["--size=48", "--names=fog"], "48"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(tmp_path, args, message, capsys):
    assert run(tmp_path / "c", *args) == 2
    error_text = capsys.readouterr().err
    assert message in error_text and error_text.count("\n") == 1
    assert not (tmp_path / "c").exists()


@cases.each("level", ["fog", "fog/1", "fog/1/*"])
def test_nothing_is_written_through_a_link(level, tmp_path, capsys):
    """An image folder that links elsewhere is refused before anything is written."""
    out, target = tmp_path / "c", tmp_path / "others"
    args = ["--names=fog", "--severities=1"]
    assert run(out, *args) == 0
    target.mkdir()
    folder = next(path for path in sorted(out.glob(level)) if path.is_dir())
    shutil.rmtree(folder)
    folder.symlink_to(target)
    capsys.readouterr()
    assert run(out, *args) == 2
    error = capsys.readouterr().err
    assert "must be no link" in error and error.count("\n") == 1
    assert not [*target.iterdir()]


def test_the_output_folder_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "disk")
    assert run(tmp_path / "c", "--names=fog", "--severities=1") == 0
    assert len([*(tmp_path / "disk/fog/1").rglob("*.png")]) == 32


@cases.each("text", ["[1]", "3", "", "words", "[" * 100_000])
def test_damaged_settings_are_refused_in_one_line(text, tmp_path, capsys):
    assert run(tmp_path, "--names=fog", "--severities=1") == 0
    (tmp_path / "fog/1.json").write_text(text)
    capsys.readouterr()
    assert run(tmp_path, "--names=fog", "--severities=1") == 2
    error = capsys.readouterr().err
    assert "1.json: must be the settings of" in error and error.count("\n") == 1
