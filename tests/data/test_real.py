"""ReaL's label file and its images, made here in the published format."""

import dataclasses
import json

import numpy as np
import pytest

from jbias import data
from jbias.data import tables
from jbias.data.sets import imagenet
from tests import cases

WNIDS = tables.wnids()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Path of a complete real.json: image i has class i % 1000, images 0 to 3 have special
    lists.
    """
    path = tmp_path_factory.mktemp("real") / "real.json"
    entries = [[i % 1000] for i in range(50_000)]
    entries[:4] = [[], [2, 0], [1], [0, 1, 2]]
    path.write_text(json.dumps(entries))
    return str(path)


@pytest.fixture
def val(tmp_path, image):
    """Folder with four images in the first three of 1000 classes, and an image in each
    other class.
    """
    for i, wnid in enumerate(WNIDS):
        image(tmp_path / f"val/{wnid}/ILSVRC2012_val_{1001 + i:08}.JPEG")
    for number, label in ((1, 0), (2, 1), (3, 1), (4, 2)):
        image(tmp_path / f"val/{WNIDS[label]}/ILSVRC2012_val_{number:08}.JPEG")
    return tmp_path


def test_entries_follow_the_numbers_in_the_names(table):
    entries = imagenet.read_real(table)
    assert len(entries) == 50_000
    assert entries["ILSVRC2012_val_00000001"] == ()
    assert entries["ILSVRC2012_val_00000002"] == (WNIDS[2], WNIDS[0])
    assert entries["ILSVRC2012_val_00050000"] == (WNIDS[999],)
    assert "ILSVRC2012_val_00000000" not in entries


def test_columns_are_class_ids_in_any_order_of_classes(table):
    names = [f"x/ILSVRC2012_val_{i:08}.png" for i in (4, 1, 2)]
    for classes in (WNIDS, WNIDS[::-1]):
        columns = imagenet.real_columns("here", table, names, classes)
        assert list(columns) == ["accepted_0", "accepted_1", "accepted_2"]
        rows = np.stack(list(columns.values()), axis=1)
        accepted = [{classes[i] for i in row if i >= 0} for row in rows]
        assert accepted == [set(WNIDS[:3]), set(), {WNIDS[0], WNIDS[2]}]
        assert rows.dtype == np.int32


def test_the_set_knows_both_kinds_of_labels(val, table):
    source = data.load("imagenet_real", "val", root=str(val), real=table, size=8)
    assert source.measures == ("accuracy", "real_accuracy")
    assert source.name == "imagenet_real/val"
    assert source.note.startswith("1 images without a right class")
    rows = {
        name: (source[i]["label"], *(source[i][f"accepted_{j}"] for j in range(3)))
        for i, name in enumerate(source.files)
        if int(name[-12:-5]) <= 4
    }
    assert {name[-13:]: row for name, row in rows.items()} == {
        "00000001.JPEG": (0, -1, -1, -1),
        "00000002.JPEG": (1, 2, 0, -1),
        "00000003.JPEG": (1, 1, -1, -1),
        "00000004.JPEG": (2, 0, 1, 2),
    }


def test_a_set_holds_accepted_classes_or_none(val, table):
    source = data.load("imagenet_real", "val", root=str(val), real=table, size=8)
    for wrong in (-2, 1000):
        columns = dict(source.columns, accepted_1=np.full(len(source), wrong, np.int32))
        with pytest.raises(ValueError, match="'accepted_1' must be class ids below 10"):
            dataclasses.replace(source, columns=columns)


@cases.each(
    ("content", "message"),
    [
        ([[0]] * 49_999, "a list of 50,000 lists, got 49,999"),
        ({"0": [1]}, "a list of 50,000 lists, got no list"),
        ([[0]] * 49_999 + [3], r"entry 49999 must be a list of .*, got 3"),
        ([[1000]] + [[0]] * 49_999, r"entry 0 .* below 1000, got \[1000\]"),
        ([[0]] * 7 + [[-1]] + [[0]] * 49_992, r"entry 7 .*, got \[-1\]"),
        ([["n01440764"]] + [[0]] * 49_999, "entry 0 must be"),
    ],
)
def test_another_file_is_refused(tmp_path, content, message):
    path = tmp_path / "real.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as refused:
        imagenet.read_real(str(path))
    assert "\n" not in str(refused.value)


def test_a_missing_or_broken_file_is_refused(tmp_path):
    path = tmp_path / "real.json"
    with pytest.raises(ValueError, match="real.json: must be the real.json of ReaL"):
        imagenet.read_real(str(path))
    path.write_text("[[1], [2")
    with pytest.raises(ValueError, match="real.json: must be the real.json of ReaL"):
        imagenet.read_real(str(path))


def test_images_of_other_names_are_refused(table):
    names = ["ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00050001.JPEG", "cat.png"]
    with pytest.raises(
        ValueError, match="here: .* 2 are unknown to ReaL, .*50001.JPEG'"
    ):
        imagenet.real_columns("here", table, names, WNIDS)


def test_right_classes_without_a_folder_are_refused(table):
    with pytest.raises(ValueError, match=f"here: .* 1 are not, first '{WNIDS[2]}'"):
        imagenet.real_columns(
            "here", table, ["ILSVRC2012_val_00000004.JPEG"], WNIDS[:2]
        )
