"""The option `columns`: attributes of all images of a set, from a separate file."""

import json

import numpy as np
import pytest

from jbias import data
from jbias.data import set_options

COUNTS = {"photo/cat": 8, "photo/dog": 6}
SKY = ["blue", "grey", "blue", "red", "grey", "blue", "red"] * 2


@pytest.fixture
def load(tree):
    root = tree(COUNTS)
    return lambda split="photo", **options: data.load(
        "folder", split, root=str(root), size=8, **options
    )


@pytest.fixture
def path(load, tmp_path):
    set_options.write_columns(
        str(tmp_path / "more/sky.csv"), load(), {"sky": SKY}, by="hand"
    )
    return tmp_path / "more/sky.csv"


def values_of(source, name) -> list[str]:
    return [source.values[name][value] for value in source.columns[name]]


def test_columns_are_read_back(load, path):
    plain, source = load(), load(columns=str(path))
    assert source.files == plain.files and source.classes == plain.classes
    assert values_of(source, "sky") == SKY
    assert source.values["sky"] == ("blue", "grey", "red")
    assert source.columns["sky"].dtype == np.int32
    assert source.note == "sky from sky.csv"
    assert source.fingerprint not in ("", plain.fingerprint)
    lines = path.read_text().splitlines()
    assert lines[:2] == ["image,class,file,sky", "0,cat,cat/000.png,blue"]
    assert json.loads((path.parent / "sky.csv.json").read_text())["by"] == "hand"
    np.testing.assert_array_equal(source[3]["image"], plain[3]["image"])


def test_lines_may_have_any_order(load, path):
    first = load(columns=str(path))
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *lines[::-1]]))
    again = load(columns=str(path))
    assert values_of(again, "sky") == SKY and again.fingerprint == first.fingerprint
    path.write_text(path.read_text().replace("red", "pink"))
    assert load(columns=str(path)).fingerprint != first.fingerprint


@pytest.mark.parametrize("split", ["photo[:50%]", "photo[50%:]"])
def test_parts_of_a_split_keep_the_values_of_the_whole_split(load, path, split):
    sky_by_file = dict(zip(load().files, SKY, strict=True))
    part = load(split, columns=str(path))
    assert 0 < len(part) < len(SKY)
    assert part.values["sky"] == ("blue", "grey", "red")
    assert values_of(part, "sky") == [sky_by_file[name] for name in part.files]


def test_an_image_without_a_name_has_a_separate_value(load, tmp_path):
    path = str(tmp_path / "sky.csv")
    set_options.write_columns(path, load(), {"sky": ["", *SKY[1:]]})
    source = load(columns=path)
    assert source.values["sky"] == ("blue", "grey", "red", "(none)")
    assert values_of(source, "sky") == ["(none)", *SKY[1:]]
    halves = [load(f"photo[{part}]", columns=path) for part in (":50%", "50%:")]
    assert sorted(len(part.values["sky"]) for part in halves) == [3, 4]


def test_columns_combine_with_keep_and_shift(load, path, tmp_path):
    keep_file = tmp_path / "kept.txt"
    keep_file.write_text("\n".join(map(str, range(1, 14))))
    subset = load(columns=str(path), keep=str(keep_file))
    assert values_of(subset, "sky") == SKY[1:]
    shift = dict(level="only-blue", part="ood", attribute="sky")
    outside = load(columns=str(path), shift=shift)
    assert sorted(values_of(outside, "attribute")) == ["grey"] * 4 + ["red"] * 4


def test_images_without_a_name_are_in_no_part_of_a_shift(load, tmp_path):
    path = str(tmp_path / "sky.csv")
    set_options.write_columns(path, load(), {"sky": ["", *SKY[1:-1], ""], "sea": SKY})
    for attribute, grey in (("sky", "grey"), ("sky+sea", "grey grey")):
        shift = dict(level=f"only-{grey}", part="ood", attribute=attribute)
        source = load(columns=path, shift=shift)
        assert grey in source.values["attribute"]
        assert len(source.values["attribute"]) == 3 and len(source) == 14 - 2 - 4
        assert f"2 images without {attribute} left out" in source.note


def test_image_numbers_do_not_depend_on_narrowing_options(tmp_path):
    """Image numbers in a columns file are those of the set without narrowing options."""
    plain = data.load("shapes", "valid", n=32)
    names = [f"n{i % 5}" for i in range(32)]
    path = str(tmp_path / "valid.csv")
    set_options.write_columns(path, plain, {"fifth": names})
    assert "file" not in (tmp_path / "valid.csv").read_text()
    for options in ({}, {"factors": True}, {"renders": True}):
        source = data.load("shapes", "valid", n=32, columns=path, **options)
        assert values_of(source, "fifth") == names
    with pytest.raises(ValueError, match="columns must be of these images"):
        data.load("shapes", "valid", n=32, seed=1, columns=path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("image,", "number,"), "the header must have image"),
        (
            lambda t: t.replace("\n3,", "\n2,"),
            ":5: image must be each number from 0 to",
        ),
        (lambda t: t.replace("\n3,", "\n14,"), ":5: .* to 13 once, got '14'"),
        (lambda t: t.replace("\n3,", "\n-3,"), ":5: .* once, got '-3'"),
        (lambda t: t[: t.rindex("\n13,")], "14 images, image 13 has none"),
        (lambda t: t.replace("sky", "label"), "'label', which the set has; rename"),
        (lambda t: t.replace("sky", "weight"), "'weight', which the set has; rename"),
        (
            lambda t: t.replace("blue", ".5").replace("grey", "1").replace("red", "2"),
            "must have a column of names",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused(load, path, change, message):
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=message) as refused:
        load(columns=str(path))
    assert "\n" not in str(refused.value)


def test_files_of_other_images_are_refused(load, path, tmp_path, image):
    image(tmp_path / "photo/dog/999.png")
    with pytest.raises(
        ValueError, match="columns must be of these images, got .*again"
    ):
        load(columns=str(path))
    (path.parent / "sky.csv.json").unlink()
    with pytest.raises(
        ValueError, match="must come with .*sky.csv.json', which identifies"
    ):
        load(columns=str(path))
    with pytest.raises(ValueError, match="none.csv: must be a CSV file"):
        load(columns=str(tmp_path / "none.csv"))


def test_numbers_that_are_not_whole_are_no_names(load, tmp_path):
    path = str(tmp_path / "x.csv")
    numbers = [str(i / 4) for i in range(14)]
    set_options.write_columns(path, load(), {"sky": SKY, "height": numbers})
    source = load(columns=path)
    assert source.note == (
        "sky from x.csv (no attributes: height (numbers that are not whole))"
    )
    assert "height" not in source.columns
