"""Folders by class: what is listed, parts of splits, and what is refused."""

import itertools
import pathlib
import pickle
import shutil

import numpy as np
import pytest

from jbias import data
from jbias.data import base
from jbias.data.forms import listing

COUNTS = {"photo/dog": 40, "photo/cat": 23, "photo/ant": 2}
SPLITS = ["photo[:90%]", "photo[90%:]"]


def test_classes_are_sorted_and_images_decoded(tree):
    source = data.load("folder", "photo", root=str(tree(COUNTS)), size=8)
    assert isinstance(source, base.Source)
    assert source.classes == ("ant", "cat", "dog")
    assert np.bincount(source.columns["label"]).tolist() == [2, 23, 40]
    assert source[2]["image"].shape == (8, 8, 3)
    assert source[2]["image"].dtype == np.uint8
    assert source[2]["label"] == 1
    assert source.files[2] == "cat/000.png"
    assert source.name.endswith("/photo")


def test_nested_folders_and_upper_case_endings_count(tree, image):
    root = tree({"photo/dog": 1, "photo/cat": 1})
    image(root / "photo/dog/more/deep/X.JPEG")
    image(root / "photo/dog/Y.PnG")
    source = data.load("folder", "photo", root=str(root), size=8)
    assert source.files == (
        "cat/000.png",
        "dog/000.png",
        "dog/Y.PnG",
        "dog/more/deep/X.JPEG",
    )


@pytest.mark.parametrize("cuts", [[90], [50], [1], [99.5], [20, 70], [30, 40, 60]])
def test_parts_are_disjoint_and_complete(tree, cuts):
    root = str(tree({"photo/dog": 40, "photo/cat": 23, "photo/ant": 11}))
    whole = data.load("folder", "photo", root=root, size=8)
    edges = ["", *(f"{cut}%" for cut in cuts), ""]
    sources = [
        data.load("folder", f"photo[{a}:{b}]", root=root, size=8)
        for a, b in itertools.pairwise(edges)
    ]
    files = [file for source in sources for file in source.files]
    assert sorted(files) == sorted(whole.files)
    for part in sources:
        for name, label in zip(part.files, part.columns["label"], strict=True):
            assert name.startswith(part.classes[label] + "/")


def test_parts_are_stratified(tree):
    root = str(tree(COUNTS))
    counts = [
        np.bincount(data.load("folder", part, root=root).columns["label"]).tolist()
        for part in SPLITS
    ]
    assert counts == [[1, 21, 36], [1, 2, 4]]  # 2, 23 and 40 cut at 90 %.


def test_parts_depend_on_file_names_alone(tree, tmp_path):
    root = tree(COUNTS)
    other = tmp_path / "elsewhere" / "photo"
    for path in sorted((root / "photo").rglob("*.png"), reverse=True):
        copy = other / path.relative_to(root / "photo")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    source = data.load("folder", SPLITS[0], root=str(root))
    copied = data.load("folder", SPLITS[0], root=str(other.parent))
    assert source.files == copied.files
    assert source.fingerprint == copied.fingerprint
    # Frozen: a part that moves between versions makes old runs incomparable.
    assert [
        f for f in data.load("folder", SPLITS[1], root=str(root)).files if "cat" in f
    ] == [
        "cat/007.png",
        "cat/012.png",
    ]


def test_a_new_file_moves_at_most_one_file_between_parts(tree, image):
    root = tree({"photo/dog": 40})
    files_before = set(data.load("folder", SPLITS[1], root=str(root)).files)
    image(root / "photo/dog/new.png")
    files_after = set(data.load("folder", SPLITS[1], root=str(root)).files)
    assert len(files_before - files_after) <= 1


def test_the_fingerprint_depends_on_names_and_lengths(tree, image):
    root = tree(COUNTS)
    prints = {data.load("folder", "photo", root=str(root)).fingerprint}
    path = root / "photo/dog/000.png"
    path.write_bytes(path.read_bytes() + b"\0")
    prints.add(data.load("folder", "photo", root=str(root)).fingerprint)
    path.rename(root / "photo/dog/0.png")
    prints.add(data.load("folder", "photo", root=str(root)).fingerprint)
    prints.add(data.load("folder", SPLITS[0], root=str(root)).fingerprint)
    assert len(prints) == 4


def test_sources_can_be_pickled(tree):
    source = data.load("folder", "photo", root=str(tree(COUNTS)), size=8)
    copy = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(copy[3]["image"], source[3]["image"])


def refused(split="photo", **options) -> str:
    with pytest.raises(ValueError) as error:
        data.load("folder", split, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_missing_root_names_the_nearest(tree):
    root = tree({"pacs64/photo/dog": 1})
    message = refused(root=str(root / "pasc64"))
    assert "root must be an existing folder" in message
    assert "did you mean 'pacs64'?" in message


def test_a_root_that_is_a_dangling_link_is_refused_as_such(tmp_path):
    (tmp_path / "photos").symlink_to("nowhere")
    message = refused(root=str(tmp_path / "photos"))
    assert "a link to 'nowhere', which is not there" in message


def test_missing_split_names_the_nearest_and_all(tree):
    root = tree({"art_painting/dog": 1, "photo/dog": 1})
    message = refused("art-painting", root=str(root))
    assert "split 'art-painting'" in message
    assert "did you mean 'art_painting'? Known: art_painting, photo" in message


def test_root_one_level_too_high_is_pointed_down(tree):
    root = tree({"pacs64/photo/dog": 1})
    message = refused(root=str(root))
    assert f"did you mean {str(root / 'pacs64' / 'photo')!r}?" in message


def test_root_one_level_too_low_is_pointed_up(tree):
    root = tree({"val/dog": 1})
    message = refused("val", root=str(root / "val"))
    assert f"{str(root / 'val')!r} seems to be it: give the folder above" in message
    assert "give the folder above" not in refused("train", root=str(root / "val"))


def test_archive_as_root_is_to_be_unpacked(tmp_path):
    (tmp_path / "set.tar.gz").touch()
    message = refused(root=str(tmp_path / "set.tar.gz"))
    assert "set.tar.gz'; unpack it" in message


def test_bucket_as_root_is_to_be_mounted():
    assert "mount the bucket" in refused(root="gs://bucket/pacs")


def test_split_without_classes(tree):
    message = refused(root=str(tree({"photo": 0})))
    assert "a folder for each class" in message
    assert "<root>/<split>/<class>/" in message


def test_images_beside_the_classes(tree):
    message = refused(root=str(tree({"photo/dog": 2, "photo": 3})))
    assert "3 lie directly in" in message
    assert "'000.png'; move them" in message


def test_empty_class(tree):
    message = refused(root=str(tree({"photo/dog": 2, "photo/cat": 0, "photo/ant": 0})))
    assert "2 of 3 in" in message
    assert "first 'ant'" in message


def test_class_with_junk_only_is_empty(tree):
    root = tree({"photo/dog": 2, "photo/cat": 0})
    (root / "photo/cat/.DS_Store").touch()
    assert "first 'cat'" in refused(root=str(root))


def test_junk_files_are_ignored_other_files_are_refused(tree):
    root = tree({"photo/dog": 2, "photo/.git": 1, "photo/__MACOSX": 1})
    for name in (".DS_Store", "Thumbs.db", "._000.png"):
        (root / "photo/dog" / name).touch()
    (root / "photo/README.txt").touch()  # No example could lie there.
    assert len(data.load("folder", "photo", root=str(root))) == 2
    (root / "photo/dog/list.txt").touch()
    message = refused(root=str(root))
    assert "1 other files lie in" in message
    assert (
        "'dog/list.txt'; move them away, or let a config name them: ignore" in message
    )
    assert len(data.load("folder", "photo", root=str(root), ignore=("*.txt",))) == 2


def test_folder_in_itself(tree):
    root = tree({"photo/dog": 2})
    (root / "photo/dog/loop").symlink_to(root / "photo", target_is_directory=True)
    assert "must not contain themselves" in refused(root=str(root))


def test_linked_folders_are_followed(tree):
    root = tree({"store/dog": 3, "photo": 0})
    (root / "photo/dog").symlink_to(root / "store/dog", target_is_directory=True)
    assert len(data.load("folder", "photo", root=str(root))) == 3


@pytest.mark.parametrize(
    "split",
    ["photo[90%:10%]", "photo[:0%]", "photo[:101%]", "photo[:90]", "photo[", "", "[:]"],
)
def test_bad_splits(tree, split):
    message = refused(split, root=str(tree(COUNTS)))
    assert "split must read 'name' or 'name[10%:90%]'" in message
    assert repr(split) in message


def test_part_without_a_class(tree):
    message = refused(SPLITS[1], root=str(tree({"photo/dog": 20, "photo/cat": 1})))
    assert "class 'cat' has 1 in all and none there" in message


def test_empty_brackets_mean_the_whole_split(tree):
    root = str(tree(COUNTS))
    whole = data.load("folder", "photo", root=root)
    assert data.load("folder", "photo[:]", root=root).files == whole.files
    assert (
        data.load("folder", "photo[0%:100%]", root=root).fingerprint
        == whole.fingerprint
    )


def test_spaces(tree):
    root = tree({"val/n01440764": 1, "val/n01443537": 1, "bad/dog": 1, "edge/dog": 1})
    assert data.load("folder", "val", root=str(root), space="wnid").space == "wnid"
    assert (
        data.load("folder", "edge", root=str(root), space="entry16").space == "entry16"
    )
    assert "of space 'wnid', 1 are not, first 'dog'" in refused(
        "bad", root=str(root), space="wnid"
    )
    message = refused("val", root=str(root), space="entry16")
    assert "of space 'entry16', 2 are not, first 'n01440764'" in message
    assert "space must be one of" in refused("val", root=str(root), space="words")


def test_accents_composed_and_decomposed_are_one_name():
    composed, decomposed = (
        listing.in_folder(
            "", [f"dog/{name}.png"], lengths=[1], labels=[0], classes=["dog"]
        )
        for name in ("caf\u00e9", "cafe\u0301")
    )
    assert listing.digest(composed) == listing.digest(decomposed)


def test_home_is_expanded(tree, monkeypatch):
    monkeypatch.setenv("HOME", str(tree(COUNTS)))
    assert len(data.load("folder", "photo", root="~")) == 65
    assert pathlib.Path(data.load("folder", "photo", root="~").store.root).is_absolute()


def test_other_programs_notes_are_ignored(tree):
    root = tree({"train/cat": 2, "train/dog": 2})
    (root / "train.json").write_text('{"made_by": "something else"}')
    assert data.load("folder", "train", root=str(root), size=8).note == ""
