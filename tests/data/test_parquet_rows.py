"""Rows of Parquet files: each needs a label and an image's bytes; messages name the
missing value.
"""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from jbias import data
from tests import cases


def encoded(grey: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), (grey,) * 3).save(content, "PNG")
    return content.getvalue()


IMAGES = [encoded(0), encoded(200)]
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
VIEWS = pa.struct([("bytes", pa.binary_view())])
EMPTY = {
    "data": pa.schema([("data", pa.binary())]),
    "image": pa.schema([("image", pa.binary()), ("label", pa.int64())]),
}
PATHS = [{"bytes": None, "path": f"far/{i}.png"} for i in range(2)]


def read(root, columns, name="test", **options):
    """Return (brightness, label) of each row; `columns` replaces IMAGES and the labels 0
    and 1.
    """
    columns = {"image": IMAGES, "label": [0, 1], **columns}
    columns = {key: column for key, column in columns.items() if column is not None}
    pq.write_table(pa.table(columns), root / f"{name}.parquet", **options)
    source = data.load("folder", "test", root=str(root), size=8)
    rows = [source[i] for i in range(len(source))]
    return [(int(row["image"][0, 0, 0]), row["label"]) for row in rows]


@cases.each(
    "columns",
    [
        dict(label=pa.array([0.0, 1.0])),
        dict(label=pa.array([0, 1], pa.uint8())),
        dict(label=pa.array([0, 1]).dictionary_encode()),
        dict(label=pa.array([False, True])),
        dict(image=pa.array(IMAGES, pa.large_binary())),
        dict(image=pa.array(IMAGES, pa.binary_view())),
        dict(image=pa.array([{"bytes": x} for x in IMAGES], VIEWS)),
        dict(image=pa.array(IMAGES).dictionary_encode()),
        dict(image=pa.array([{"bytes": x, "path": None} for x in IMAGES], STRUCT)),
        dict(image=pa.array([{"bytes": x} for x in IMAGES])),
        dict(image=["0.png", "1.png"], png=IMAGES),
        dict(image=None, gif=IMAGES),
        # Such columns beside "image" and "label" are something else.
        {"class": [7, 3]},
        {"class": [7, 3], "cls": [0, 1]},
        dict(img=IMAGES[::-1], png=IMAGES[::-1]),
        dict(label=None, cls=[0, 1]),
    ],
)
def test_columns_of_every_usual_type_are_read(columns, tmp_path):
    assert read(tmp_path, columns) == [(0, 0), (200, 1)]


@cases.each(
    ("columns", "message"),
    [
        (dict(label=pa.array([1, None])), "1 of 2 rows lack one, first row 1"),
        (dict(label=pa.array([None, 1.0])), "1 of 2 rows lack one, first row 0"),
        (dict(label=pa.array([0.0, np.nan])), "1 of 2 rows lack one, first row 1"),
        (dict(label=pa.nulls(2)), "2 of 2 rows lack one, first row 0"),
        (dict(label=[0.0, 1.5]), "must be whole numbers, got 1.5 in row 1"),
        (dict(label=["a", "b"]), "must be whole numbers, got string"),
        (dict(label=pa.array(["a", "b"]).dictionary_encode()), "numbers, got string"),
        (dict(label=[[0], [1]]), "must be whole numbers, got list"),
        (dict(label=[-1, 0]), "got -1 to 0"),
        (dict(label=pa.array([2**63, 0], pa.uint64())), "whole numbers from 0 to"),
        (dict(label=[1e300, 0.0]), "must be whole numbers, got 1e.300 in row 0"),
        (dict(label=None), r"must have a label column \(label, .*\), got image"),
        (dict(image=None), r"must have an image column .*, got label"),
        (dict(image=pa.array(PATHS, STRUCT)), "2 of 2 rows have none; a path is not"),
        (dict(image=pa.array([None, PATHS[0]], STRUCT)), "2 of 2 rows have none"),
        (
            dict(image=["0.png", "1.png"]),
            "bytes of its images, got image of type string",
        ),
        (
            dict(image=pa.array([{"path": "0.png"}] * 2)),
            "got image of type struct<path",
        ),
        (dict(image=[[b"x"], [b"y"]]), "got image of type list<"),
        (
            dict(image=None, img=IMAGES, png=IMAGES),
            "must have one image column, got img and png; leave one",
        ),
        (dict(image=[IMAGES[0], b""]), "test/1.*must be a whole image, got 0 bytes"),
    ],
)
def test_messages_name_the_missing_fields_of_a_row(columns, message, tmp_path):
    with pytest.raises(ValueError, match=message) as refused:
        read(tmp_path, columns)
    assert "\n" not in str(refused.value) and "got int64" not in str(refused.value)


def test_a_row_without_bytes_is_named_where_a_file_has_no_statistics(tmp_path):
    """All other rows are read."""
    column = pa.array([{"bytes": IMAGES[0], "path": "0.png"}, PATHS[1]], STRUCT)
    with pytest.raises(ValueError, match="row must hold the bytes of the image") as why:
        read(tmp_path, dict(image=column), write_statistics=False)
    assert "row 1" in str(why.value)
    source = data.load("folder", "test", root=str(tmp_path), size=8)
    assert source[0]["image"].max() == 0


def test_no_rows_are_refused(tmp_path):
    empty = dict(image=pa.array([], pa.binary()), label=pa.array([], pa.int64()))
    with pytest.raises(ValueError, match="must hold rows, got none"):
        read(tmp_path, empty)


@cases.each(
    ("first", "second", "field"),
    [
        ({}, dict(label=None, cls=[0, 1]), "labels"),
        ({}, dict(image=None, img=IMAGES), "image"),
    ],
)
def test_every_shard_has_the_columns_of_the_first(first, second, field, tmp_path):
    read(tmp_path, first, name="test-00000")
    with pytest.raises(
        ValueError, match=f"must have the same {field}, got .*test-00001"
    ):
        read(tmp_path, second, name="test-00001")


def test_every_shard_has_the_classes_of_the_first(tmp_path):
    """Label numbers mean other classes where names are in another order."""
    for number, names in enumerate((["cat", "dog"], ["dog", "cat"])):
        info = {"info": {"features": {"label": {"names": names}}}}
        table = pa.table({"image": IMAGES, "label": [0, 1]})
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
        pq.write_table(table, tmp_path / f"test-{number}.parquet")
    with pytest.raises(ValueError, match="must have the same classes"):
        data.load("folder", "test", root=str(tmp_path), size=8)


def test_labels_beyond_the_names_of_classes_are_refused(tmp_path):
    info = {"info": {"features": {"label": {"names": ["cat"]}}}}
    table = pa.table({"image": IMAGES, "label": [0, 1]})
    table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    pq.write_table(table, tmp_path / "test.parquet")
    with pytest.raises(ValueError, match="labels must be 0 to 0, got 0 to 1"):
        data.load("folder", "test", root=str(tmp_path), size=8)


@pytest.mark.parametrize("column", ["data", "image"])
def test_shards_without_rows_are_refused(tmp_path, column):
    """ "data" is the column of the Parquet files of TensorFlow Datasets."""
    with pq.ParquetWriter(tmp_path / "test.parquet", EMPTY[column]):
        pass
    with pytest.raises(ValueError, match="shards must hold rows, got none in"):
        data.load("folder", "test", root=str(tmp_path), size=8)
