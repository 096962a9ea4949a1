"""Writes images, rows of (name, bytes, label), in each form of shards."""

import io
import json
import pathlib
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
from array_record.python import array_record_module

from jbias.data.forms import shards as shard_forms

CLASSES = ("ant", "cat", "dog")


def shards(rows):
    """Split rows into two shards of unequal lengths."""
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
    """Some with absolute paths, which tar makes relative where it unpacks them."""
    with tarfile.open(root / "train.tar", "w") as archive:
        for number, (name, image, _) in enumerate(rows):
            entry = tarfile.TarInfo(f"{'/' * (number % 3)}some/where/{name}")
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
    """Write records as TFDS does: examples, and a file with the names of the labels."""
    for i, shard_rows in enumerate(shards(rows)):
        path = root / f"mine-train.array_record-{i:05d}-of-00002"
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for name, image, label in shard_rows:
            features = {"image": image, "label": label, "file_name": name.encode()}
            writer.write(shard_forms.serialise_example(features))
        writer.close()
    (root / "label.labels.txt").write_text("\n".join(CLASSES) + "\n")


FORMS = {
    "tar": as_tar,
    "tar of folders": as_tar_of_folders,
    "parquet": as_parquet,
    "records": as_records,
}


def written(form, rows, tmp_path) -> pathlib.Path:
    """Write these rows in one of the formats; return the root."""
    root = tmp_path / "other"
    root.mkdir()
    FORMS[form](root, rows)
    return root
