"""The same images in every form: equal to the last pixel, in the same order."""

import io
import json
import pathlib
import pickle
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python import array_record_module

from jbias import data
from jbias.data import example, folder, form_records, pipeline

COUNTS = {"train/dog": 7, "train/cat": 5, "train/ant": 3}
CLASSES = ("ant", "cat", "dog")
SHUFFLED = np.random.default_rng(0).permutation(15)


@pytest.fixture
def images(tree):
    """The folder, and its images in another order: (name, bytes, label)."""
    root = tree(COUNTS)
    paths = sorted((root / "train").rglob("*.png"))
    rows = [
        (
            str(p.relative_to(root / "train")),
            p.read_bytes(),
            CLASSES.index(p.parent.name),
        )
        for p in paths
    ]
    return root, [rows[i] for i in SHUFFLED]


def shards(rows):
    return [rows[:9], rows[9:]]


def as_tar(root, rows):
    """WebDataset: samples of an image and a number."""
    for i, some in enumerate(shards(rows)):
        with tarfile.open(root / f"mine-train-{i:06d}.tar", "w") as archive:
            for name, image, label in some:
                key = name.removesuffix(".png")
                for ending, content in (("png", image), ("cls", b"%d" % label)):
                    entry = tarfile.TarInfo(f"{key}.{ending}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))


def as_tar_of_folders(root, rows):
    with tarfile.open(root / "train.tar", "w") as archive:
        for name, image, _ in rows:
            entry = tarfile.TarInfo(f"some/where/{name}")
            entry.size = len(image)
            archive.addfile(entry, io.BytesIO(image))


def as_parquet(root, rows, named=True):
    """Hugging Face's layout, three rows a group."""
    features = {"label": {"names": list(CLASSES), "_type": "ClassLabel"}}
    schema = pa.schema(
        [
            ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            ("label", pa.int64()),
        ],
        {"huggingface": json.dumps({"info": {"features": features}})}
        if named
        else None,
    )
    (root / "data").mkdir()
    for i, some in enumerate(shards(rows)):
        columns = [
            [{"bytes": image, "path": name} for name, image, _ in some],
            [label for _, _, label in some],
        ]
        table = pa.table(columns, schema=schema)
        path = root / "data" / f"train-{i:05d}-of-00002.parquet"
        pq.write_table(table, path, row_group_size=3)


def as_records(root, rows):
    """As TFDS: examples, and the names of the labels beside."""
    for i, some in enumerate(shards(rows)):
        path = root / f"mine-train.array_record-{i:05d}-of-00002"
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for name, image, label in some:
            held = {"image": image, "label": label, "file_name": name.encode()}
            writer.write(example.serialise(held))
        writer.close()
    (root / "label.labels.txt").write_text("\n".join(CLASSES) + "\n")


FORMS = {
    "tar": as_tar,
    "tar of folders": as_tar_of_folders,
    "parquet": as_parquet,
    "records": as_records,
}


def written(form, images, tmp_path) -> pathlib.Path:
    root = tmp_path / "other"
    root.mkdir()
    FORMS[form](root, images[1])
    return root


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_what_the_folder_gives(form, images, tmp_path):
    whole = folder.make("train", root=str(images[0]), size=8)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(CLASSES))
    root = str(written(form, images, tmp_path))
    found = folder.make("train", root=root, size=8, classes=str(names))
    assert found.classes == whole.classes == CLASSES
    np.testing.assert_array_equal(found.columns["label"], whole.columns["label"])
    for i in range(len(whole)):
        np.testing.assert_array_equal(found[i]["image"], whole[i]["image"])
    np.testing.assert_array_equal(
        pipeline.resident(found, workers=3), pipeline.resident(whole, workers=2)
    )
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again[4]["image"], whole[4]["image"])


@pytest.mark.parametrize("form", ["tar of folders", "parquet", "records"])
def test_parts_are_those_of_the_folder(form, images, tmp_path):
    """Where names are kept, images fall into the same parts."""
    root = str(written(form, images, tmp_path))
    for split in ("train[:60%]", "train[60%:]"):
        whole, found = (
            data.load("folder", split, root=one, size=8)
            for one in (str(images[0]), root)
        )
        assert found.files == whole.files


def test_what_was_unpacked_goes_before_its_archive(images):
    root, rows = images
    as_tar_of_folders(root, rows[:4])
    assert len(folder.make("train", root=str(root), size=8)) == 15


def test_numbers_stand_for_classes_without_names(images, tmp_path):
    root = tmp_path / "other"
    root.mkdir()
    as_parquet(root, images[1], named=False)
    assert folder.make("train", root=str(root), size=8).classes == ("0", "1", "2")


def test_an_index_beside_its_shards_is_believed(images, tmp_path, monkeypatch):
    root = written("records", images, tmp_path)
    shards = sorted(str(path) for path in root.glob("*.array_record*"))
    found = form_records._listed("here", shards)
    np.savez(form_records.index_path(shards), classes=np.array(CLASSES), **found)
    monkeypatch.setattr(form_records, "_listed", None)
    assert len(folder.make("train", root=str(root), size=8)) == 15
    pathlib.Path(shards[0]).write_bytes(pathlib.Path(shards[1]).read_bytes())
    with pytest.raises(ValueError, match="has 15 records of 12"):
        folder.make("train", root=str(root), size=8)


def test_listings_are_kept_until_a_shard_changes(images, tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    root = written("tar", images, tmp_path)
    first = folder.make("train", root=str(root), size=8)
    with monkeypatch.context() as patch:
        patch.setattr("jbias.data.form_tar._listed", None)
        again = folder.make("train", root=str(root), size=8)
        assert again.files == first.files
    as_tar(root, images[1][:9] * 1)
    assert len(folder.make("train", root=str(root), size=8)) == 9
