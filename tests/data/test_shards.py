"""Every storage format gives the same images, bit for bit, in the same order."""

import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from jbias import data
from jbias.data import loader
from jbias.data.forms import shards
from tests import forms

COUNTS = {"train/dog": 7, "train/cat": 5, "train/ant": 3}
SHUFFLED = np.random.default_rng(0).permutation(15)


@pytest.fixture
def images(tree):
    """Return a class folder, and its images in another order: (name, bytes, label)."""
    root = tree(COUNTS)
    paths = sorted((root / "train").rglob("*.png"))
    rows = [
        (
            str(p.relative_to(root / "train")),
            p.read_bytes(),
            forms.CLASSES.index(p.parent.name),
        )
        for p in paths
    ]
    return root, [rows[i] for i in SHUFFLED]


@pytest.mark.parametrize("form", forms.FORMS)
def test_every_format_gives_the_images_of_the_folder(form, images, tmp_path):
    expected = data.load("folder", "train", root=str(images[0]), size=8)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(forms.CLASSES))
    root = str(forms.written(form, images[1], tmp_path))
    source = data.load("folder", "train", root=root, size=8, classes=str(names))
    assert source.classes == expected.classes == forms.CLASSES
    np.testing.assert_array_equal(source.columns["label"], expected.columns["label"])
    for i in range(len(expected)):
        np.testing.assert_array_equal(source[i]["image"], expected[i]["image"])
    np.testing.assert_array_equal(
        loader.decode_all(source, workers=3), loader.decode_all(expected, workers=2)
    )
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(again[4]["image"], expected[4]["image"])


@pytest.mark.parametrize("form", ["tar of folders", "parquet", "records"])
def test_splits_equal_those_of_the_folder(form, images, tmp_path):
    """Formats that keep file names split images into the same parts."""
    root = str(forms.written(form, images[1], tmp_path))
    for split in ("train[:60%]", "train[60%:]"):
        expected = data.load("folder", split, root=str(images[0]), size=8)
        source = data.load("folder", split, root=root, size=8)
        assert source.files == expected.files


def test_unpacked_folders_take_precedence_over_their_archive(images):
    root, rows = images
    forms.as_tar_of_folders(root, rows[:4])
    assert len(data.load("folder", "train", root=str(root), size=8)) == 15


def test_classes_without_names_are_called_by_number(images, tmp_path):
    root = tmp_path / "other"
    root.mkdir()
    forms.as_parquet(root, images[1], named=False)
    assert data.load("folder", "train", root=str(root), size=8).classes == (
        "0",
        "1",
        "2",
    )


def test_an_index_next_to_its_shards_is_used(images, tmp_path, monkeypatch):
    root = forms.written("records", images[1], tmp_path)
    paths = sorted(str(path) for path in root.glob("*.array_record*"))
    index = shards._list_records("here", paths)
    np.savez(shards.index_path(paths), classes=np.array(forms.CLASSES), **index)
    monkeypatch.setattr(shards, "_list_records", None)
    assert len(data.load("folder", "train", root=str(root), size=8)) == 15
    pathlib.Path(paths[0]).write_bytes(pathlib.Path(paths[1]).read_bytes())
    with pytest.raises(ValueError, match="has 15 records of 12"):
        data.load("folder", "train", root=str(root), size=8)


def test_listings_are_cached_until_a_shard_changes(images, tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    root = forms.written("tar", images[1], tmp_path)
    first = data.load("folder", "train", root=str(root), size=8)
    with monkeypatch.context() as patch:
        patch.setattr("jbias.data.forms.shards._list_tar", None)
        again = data.load("folder", "train", root=str(root), size=8)
        assert again.files == first.files
    forms.as_tar(root, images[1][:9] * 1)
    assert len(data.load("folder", "train", root=str(root), size=8)) == 9


def test_shards_of_another_split_are_not_read(images, tmp_path):
    """A shard of another series is not read, even with the split's word in its name."""
    _, rows = images
    root, other = tmp_path / "shards", tmp_path / "other"
    for folder, folder_rows in ((root, rows[:9]), (other, rows[9:])):
        folder.mkdir()
        forms.as_tar_of_folders(folder, folder_rows)
    (other / "train.tar").rename(root / "train_val-0001.tar")
    options = dict(root=str(root), size=8)
    assert len(data.load("folder", "train", **options)) == 9
    assert len(data.load("folder", "val", **options)) == 6
    (root / "train.tar").rename(root / "small-train.tar")
    with pytest.raises(ValueError, match="must be of one series, got") as refused:
        data.load("folder", "train", **options)
    assert "\n" not in str(refused.value)


def test_the_record_reader_is_imported_before_threads_read(images, tmp_path):
    """TFDS's import breaks concurrent imports, such as those of Pillow's decoders."""
    root = str(forms.written("records", images[1], tmp_path))
    source = data.load("folder", "train", root=root, size=8)
    (tmp_path / "store").write_bytes(pickle.dumps(source.store))
    program = """
import pickle, sys, threading
store = pickle.load(open(sys.argv[1], "rb"))
assert "tensorflow_datasets.proto" in sys.modules
found = []
thread = threading.Thread(target=lambda: found.append(store.open(0).read()))
thread.start(); thread.join()
assert found[0].startswith(b"\\x89PNG")
"""
    command = [sys.executable, "-c", program, str(tmp_path / "store")]
    subprocess.run(command, check=True)
