"""Stylised sets: choice of styles, made once, the same result in parts or at once."""

import numpy as np
import pytest
from PIL import Image

from jbias import data, prepare
from jbias.data import sources
from jbias.prepare import stylize
from tests import cases

SET = ["--data=shapes", "--split=valid", "--n=32"]


def run(out, *args):
    return prepare.main(["stylize", f"--out={out}", *SET, *args])


def images(out):
    return {p.relative_to(out): p.read_bytes() for p in (out / "valid").rglob("*.png")}


@pytest.fixture(scope="module")
def stylised_set(tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "self"
    assert run(out) == 0
    return out


@pytest.mark.slow
def test_stylised_images_keep_classes_and_numbers(stylised_set):
    plain = data.load("shapes", "valid", size=32, n=32)
    source = data.load("folder", "valid", root=str(stylised_set), size=32)
    assert len(source) == 32 and source.note.startswith("made by jbias.prepare stylize")
    changed = []
    for i, name in enumerate(source.files):
        kind, number = name.removesuffix(".png").split("/")
        assert plain.classes[plain.columns["label"][int(number)]] == kind
        changed.append((source[i]["image"] != plain.images[int(number)]).any())
    assert all(changed) and (stylised_set / "valid.png").exists()


def test_no_image_gets_its_own_style():
    source = data.load("shapes", "valid", size=32, n=32)
    styles = stylize._Styles("self", source)
    style_numbers = [styles.choose(i, seed) for i in range(32) for seed in range(10)]
    assert all(style != i // 10 for i, style in enumerate(style_numbers))
    assert len(set(style_numbers)) > 15


def test_a_single_image_cannot_be_its_own_style():
    single = sources.take(
        data.load("shapes", "valid", size=32, n=16), np.array([0]), digest="one"
    )
    with pytest.raises(ValueError, match="needs two images or more, got 1"):
        stylize._Styles("self", single)


@pytest.mark.slow
def test_missing_images_are_made_again_and_equal(stylised_set, tmp_path, capsys):
    contents = images(stylised_set)
    deleted = sorted(contents)[7]
    (stylised_set / deleted).unlink()
    assert run(stylised_set) == 0
    assert "1 images made, 32 in all" in capsys.readouterr().out
    assert images(stylised_set) == contents


def test_styles_may_be_a_folder(stylised_set, tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "art" / "deep").mkdir(parents=True)
    for i, place in enumerate(("art", "art/deep")):
        pixels = rng.integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / place / f"{i}.png")
    (tmp_path / "art" / "notes.txt").write_text("no image")
    assert run(tmp_path / "out", f"--style={tmp_path / 'art'}") == 0
    assert images(tmp_path / "out") != images(stylised_set)


@cases.each(
    ("args", "message"),
    [
        (["--seed=1"], "seed is 0 there, 1 here"),
        (["--alpha=2"], "--alpha must be in [0, 1], got 2.0"),
        (["--transfer=smal"], "did you mean 'small'"),
        (["--transfer=vgg"], "needs weights"),
        (["--style=/nowhere/art"], "--style must be an existing folder"),
        (["--data=shape"], "did you mean 'shapes'"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(stylised_set, args, message, capsys):
    assert run(stylised_set, *args) == 2
    error_text = capsys.readouterr().err
    assert message in error_text and error_text.count("\n") == 1
