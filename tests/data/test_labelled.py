"""`build_labelled` makes the source of files whose classes a reader names."""

import os

import numpy as np
import pytest

from jbias import data
from jbias.data import base

CLASSES = {"2.png": "owl", "10.png": "ant", "deep/1.png": "owl", "1.png": "ant"}


@pytest.fixture
def files(tmp_path, image):
    """Function files(split="day") that returns the files of a split with images."""
    for name in CLASSES:
        image(tmp_path / "day" / name)

    def open_split(split="day"):
        return data.DATASETS["folder"].files(split, root=str(tmp_path), size=8)

    return open_split


def test_the_order_of_the_names_does_not_matter(files):
    split = files()
    folder = split.find_folder()
    for names in (CLASSES, sorted(CLASSES)):
        classes = {name: CLASSES[name] for name in names}
        source = split.build_labelled(folder, classes)
        assert source.classes == ("ant", "owl")
        assert source.files == ("1.png", "10.png", "2.png", "deep/1.png")
        assert source.columns["label"].tolist() == [0, 0, 1, 1]
        assert source.columns["label"].dtype == np.int32


@pytest.mark.parametrize("part", ["", "[:50%]", "[50%:]"])
def test_class_folders_have_the_same_source(tree, part):
    root = str(tree({"day/owl": 7, "day/ant": 4, "day/Bat": 5}))
    expected = data.load("folder", f"day{part}", root=root, size=8)
    split = data.DATASETS["folder"].files(f"day{part}", root=root, size=8)
    whole = data.load("folder", "day", root=root, size=8)
    classes = {name: name.partition("/")[0] for name in reversed(whole.files)}
    source = split.build_labelled(split.find_folder(), classes)
    assert source.fingerprint == expected.fingerprint
    assert source.files == expected.files
    assert source.classes == expected.classes
    assert source.name == expected.name
    np.testing.assert_array_equal(source.columns["label"], expected.columns["label"])
    np.testing.assert_array_equal(source.image(3), expected.image(3))


def test_columns_follow_their_images(files):
    split = files("day[:50%]")
    number = np.array([2, 10, 1, 1], np.int32)  # Of the names in CLASSES.
    source = split.build_labelled(
        split.find_folder(),
        CLASSES,
        extra={"number": number},
        measures=("accuracy", "groups"),
    )
    assert len(source) == 2 and source.columns["label"].tolist() == [0, 1]
    for name, value in zip(source.files, source.columns["number"], strict=True):
        assert os.path.basename(name) == f"{value}.png"
    assert source.measures == ("accuracy", "groups")


def test_a_split_without_images_is_refused(files):
    split = files()
    folder = split.find_folder()
    with pytest.raises(base.Missing) as error:
        split.build_labelled(folder, {})
    assert str(error.value) == f"{split.where}: {folder!r} must have images, got none"


@pytest.mark.parametrize("name", ["3.png", "deep", "../day/1.png", "/etc/hostname"])
def test_a_name_of_no_file_below_the_folder_is_refused(files, name):
    split = files()
    message = f"every image must be a file below .*, 1 are not, first '{name}'; add or"
    with pytest.raises(ValueError, match=message) as error:
        split.build_labelled(split.find_folder(), {**CLASSES, name: "owl"})
    assert str(error.value).startswith(split.where)
    assert "\n" not in str(error.value)


def test_a_class_without_images_in_the_part_is_refused(files):
    split = files("day[50%:]")
    with pytest.raises(ValueError, match="class 'owl' has 1 in all and none there"):
        split.build_labelled(split.find_folder(), {**CLASSES, "2.png": "ant"})
