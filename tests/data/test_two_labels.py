"""An image has one label: contradicting sources of labels are refused, in every format."""

import io
import json
import os
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python import array_record_module
from PIL import Image

from jbias import data
from jbias.data.forms import shards
from tests import cases

RED, GREEN = (200, 20, 20), (20, 200, 20)


def encoded(colour, kind="PNG") -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(content, kind)
    return content.getvalue()


def write_and_load_tar(root, members):
    """Write an archive of (name, bytes), and return the label of each image by its colour."""
    with tarfile.open(root / "test.tar", "w") as archive:
        for name, content in members:
            if content in (RED, GREEN):
                content = encoded(content)
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return load(root)


def load(root):
    """Return the label of each image, by "is the image red"."""
    source = data.load("folder", "test", root=str(root), size=8)
    rows = [source[i] for i in range(len(source))]
    return [(bool(row["image"][0, 0, 0] > 100), row["label"]) for row in rows]


RIGHT = [(True, 0), (False, 1)]


@cases.each(
    ("first", "second"),
    [
        # The files of a red sample; its label is 0.
        ([("0.cls", b"0")], []),
        ([("0.cls", b"0\n")], []),
        ([("0.cls", b" 0 ")], []),
        ([("0.cls", b"0"), ("0.json", b'{"label": 0}')], []),
        ([("0.cls", b"0"), ("0.json", b'{"width": 32, "url": "u"}')], []),
        ([("0.cls", b"0"), ("0.json", b'{"label": null}')], []),
        ([("0.cls", b"0"), ("0.json", b'{"label": "tench"}')], []),
        ([("0.cls", b"0"), ("0.json", b"[1, 2]")], []),
        ([("0.cls", b"0"), ("0.json", b"")], []),
        ([("0.json", b'{"cls": 0, "label": 0}')], []),
        ([("0.cls", b"0"), ("0.txt", b"5 cats")], []),
        ([("0.cls", b"0"), ("0.cls", b"0")], []),
    ],
)
def test_several_equal_labels_are_accepted(first, second, tmp_path):
    """Captions and metadata without a label may accompany an image."""
    members = [("0.png", RED), *first, *second, ("1.png", GREEN), ("1.cls", b"1")]
    assert write_and_load_tar(tmp_path, members) == RIGHT


@cases.each(
    "files",
    [
        [("0.cls", b"0"), ("0.cls", b"1")],
        [("0.cls", b"0"), ("0.json", b'{"label": 1}')],
        [("0.json", b'{"label": 0}'), ("0.json", b'{"label": 1}')],
        [("0.json", b'{"label": 0, "cls": 1}')],
        [("0.json", b'{"label": 0, "label": 1}')],
        [("0.cls", b"0"), ("./0.cls", b"1")],
        [("0.cls", b"0"), ("0.target.cls", b"1")],
        [("0.cls", b"0"), ("0.CLS", b"1")],
    ],
)
def test_contradicting_labels_in_a_tar_are_refused_by_name(files, tmp_path):
    members = [("0.png", RED), *files, ("1.png", GREEN), ("1.cls", b"1")]
    with pytest.raises(ValueError, match=r"got 0 \(.*\) and 1 \(.*\) for '0.png'") as e:
        write_and_load_tar(tmp_path, members)
    assert "\n" not in str(e.value)


@cases.each("text", [b"", b"cat", b"1_0", b"-1", b"0.5", b"\x01", b"1e0"])
def test_labels_must_be_whole_numbers(text, tmp_path):
    with pytest.raises(ValueError, match=r"labels must be whole numbers .*0\.cls"):
        write_and_load_tar(tmp_path, [("0.png", RED), ("0.cls", text)])


def test_names_with_dots_have_their_own_labels(tmp_path):
    """A label whose image is missing does not apply to another image."""
    members = [("22.05.png", RED), ("22.05.cls", b"0"), ("22.06.cls", b"1")]
    assert (
        write_and_load_tar(tmp_path, [*members, ("9.png", GREEN), ("9.cls", b"1")])
        == RIGHT
    )
    members = [
        ("a.1.png", RED),
        ("a.1.cls", b"0"),
        ("a.2.png", GREEN),
        ("a.2.cls", b"1"),
    ]
    assert write_and_load_tar(tmp_path, members) == RIGHT
    assert (
        write_and_load_tar(tmp_path, [("cat/a.1.png", RED), ("dog/a.1.png", GREEN)])
        == RIGHT
    )
    members = [(f"{c}/a.{i}.png", RED) for c in "cd" for i in "12"]
    assert len(write_and_load_tar(tmp_path, members)) == 4
    with pytest.raises(ValueError, match="every image must have a label"):
        write_and_load_tar(
            tmp_path,
            [
                ("22.05.png", RED),
                ("22.06.cls", b"1"),
                ("9.png", RED),
                ("9.cls", b"0"),
            ],
        )


def test_compound_file_extensions_are_not_part_of_a_name(tmp_path):
    members = [("0.rgb.png", RED), ("0.target.cls", b"0")]
    more_members = [("1.rgb.png", GREEN), ("1.target.cls", b"1")]
    assert write_and_load_tar(tmp_path, members + more_members) == RIGHT


@cases.each("second", ["0.png", "0.jpg", "0.seg.png", "./0.png"])
def test_a_sample_has_one_image(second, tmp_path):
    for folder, label in (("", [("0.cls", b"0")]), ("cat/", [])):
        members = [(f"{folder}0.png", RED), (f"{folder}{second}", GREEN), *label]
        with pytest.raises(ValueError, match="must have one image, got a second"):
            write_and_load_tar(
                tmp_path,
                [
                    *members,
                    ("dog/0.png", RED),
                    *[("dog/0.cls", b"1")] * len(label),
                ],
            )


def write_and_load_parquet(root, **columns):
    columns = {"image": [encoded(RED), encoded(GREEN)], **columns}
    pq.write_table(pa.table(columns), root / "test.parquet")
    return load(root)


def test_label_columns_of_parquet_must_agree(tmp_path):
    assert write_and_load_parquet(tmp_path, label=[0, 1], cls=[0, 1]) == RIGHT
    assert write_and_load_parquet(tmp_path, label=[0, 1], cls=[None, 1]) == RIGHT
    class_column = {"class": ["cat", "dog"]}  # A keyword of Python.
    assert write_and_load_parquet(tmp_path, label=[0, 1], **class_column) == RIGHT
    assert write_and_load_parquet(tmp_path, label=["cat", "dog"], cls=[0, 1]) == RIGHT
    with pytest.raises(ValueError, match=r"got 1 \(label\) and 0 \(cls\) for row 1 of"):
        write_and_load_parquet(tmp_path, label=[0, 1], cls=[0, 0])
    table = pa.table([[encoded(RED)], [0], [1]], names=["image", "label", "label"])
    pq.write_table(table, tmp_path / "test.parquet")
    with pytest.raises(ValueError, match="each column once, got 'label' 2 times"):
        load(tmp_path)


def record(image: list, **labels: list) -> bytes:
    example = shards.example_class()()
    example.features.feature["image"].bytes_list.value.extend(image)
    for name, values in labels.items():
        example.features.feature[name].int64_list.value.extend(values)
    return example.SerializeToString()


def write_records(path, contents):
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for content in contents:
        writer.write(content)
    writer.close()


def write_and_load_records(root, contents):
    write_records(root / "test.array_record", contents)
    return load(root)


@cases.each(
    ("first", "message"),
    [
        (dict(label=[0], cls=[1]), r"got 0 \(label\) and 1 \(cls\) for the record"),
        (dict(label=[0, 1]), r"got 0 \(label\) and 1 \(label\)"),
        (dict(label=[]), "it has no 'label'"),
        (dict(image=[encoded(RED)] * 2, label=[0]), "bytes of one image, got 2 values"),
    ],
)
def test_records_of_two_labels_are_refused(first, message, tmp_path):
    first = {"image": [encoded(RED)], **first}
    second = record([encoded(GREEN)], label=[1])
    with pytest.raises(ValueError, match=message):
        write_and_load_records(tmp_path, [record(**first), second])


def test_a_broken_record_is_named_by_file_and_position(tmp_path):
    right = record([encoded(RED)], label=[0])
    shard = "test.array_record-0000{}-of-00002"
    write_records(tmp_path / shard.format(0), [right, right])
    write_records(tmp_path / shard.format(1), [right, record([], label=[0])])
    with pytest.raises(ValueError, match=r"another at 1 of '.*-00001-of-00002'"):
        load(tmp_path)


def test_records_may_contain_a_label_twice(tmp_path):
    first = record([encoded(RED)], label=[0], cls=[0])
    assert (
        write_and_load_records(tmp_path, [first, record([encoded(GREEN)], label=[1])])
        == RIGHT
    )


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_one_file_is_not_in_two_class_folders(link, tree):
    """A link to a file of another name is allowed, as some sets are made of links."""
    root = tree({"test/cat": 1, "test/dog": 1})
    link(root / "test/cat/000.png", root / "test/dog/other.png")
    assert len(load(root)) == 3
    link(root / "test/dog/000.png", root / "test/cat/again.png")
    os.rename(root / "test/cat/again.png", root / "test/cat/001.png")
    assert len(load(root)) == 4
    link(root / "test/cat/000.png", root / "test/dog/x")
    os.replace(root / "test/dog/x", root / "test/dog/000.png")
    with pytest.raises(
        ValueError, match="'cat/000.png' and 'dog/000.png', which are one"
    ):
        load(root)


def test_a_table_has_one_line_per_image(tree):
    root = tree({"pictures": 2})
    (root / "test.csv").write_text(
        "file,class,sky\npictures/000.png,a,x\n./pictures/000.png,b,y\n"
    )
    with pytest.raises(ValueError, match=r"test.csv:3: files must be there once"):
        data.load("attributed", "test", root=str(root), size=8)


def test_annotations_of_published_sets_must_agree(tree):
    root = tree({"img_align_celeba": 3})
    files = [f"{i:03}.png" for i in range(3)]
    (root / "list_eval_partition.txt").write_text("".join(f"{x} 0\n" for x in files))
    rows = [f"{x} {1 - 2 * (i % 2)} -1\n" for i, x in enumerate(files)]
    head = "3\nBlond_Hair Male\n"
    table = root / "list_attr_celeba.txt"
    options = dict(root=str(root), size=8)
    table.write_text(head + "".join([*rows, rows[0]]))
    assert len(data.load("celeba", "train", **options)) == 3
    table.write_text(head + "".join([*rows, f"{files[0]} -1 -1\n"]))
    with pytest.raises(ValueError, match=r"celeba.txt:6: lines of 000.png must agree"):
        data.load("celeba", "train", **options)
    table.write_text("3\nMale Male\n" + "".join(rows))
    with pytest.raises(ValueError, match="attributes must differ, got 'Male' twice"):
        data.load("celeba", "train", **options)


def test_tiny_imagenets_annotations_must_agree(tree):
    root = tree({"val/images": 2})
    (root / "wnids.txt").write_text("n01443537\nn01629819\n")
    lines = ["000.png\tn01443537\t0", "001.png\tn01629819\t0", "000.png\tn01629819\t0"]
    table = root / "val/val_annotations.txt"
    table.write_text("\n".join([*lines[:2], lines[0]]))
    assert len(data.load("tiny_imagenet", "val", root=str(root))) == 2
    table.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="annotations.txt:3: a sample must have one"):
        data.load("tiny_imagenet", "val", root=str(root))


def test_arrays_that_occur_twice_in_an_archive_are_refused(tmp_path):
    np.savez(tmp_path / "test.npz", images=np.zeros((2, 8, 8), np.uint8), labels=[0, 1])
    again = io.BytesIO()
    np.save(again, np.array([1, 0]))
    with (
        zipfile.ZipFile(tmp_path / "test.npz", "a") as archive,
        pytest.warns(UserWarning),
    ):
        archive.writestr("labels.npy", again.getvalue())
    with pytest.raises(ValueError, match="holds the array 'labels.npy' twice"):
        data.load("npz", "test", root=str(tmp_path))


def test_metadata_files_in_class_folders_are_not_labels(tmp_path):
    metadata = json.dumps({"width": 8}).encode()
    members = [("cat/0.png", RED), ("cat/0.json", metadata), ("dog/0.png", GREEN)]
    assert write_and_load_tar(tmp_path, members) == RIGHT


def test_a_label_equal_to_the_class_folder_is_accepted(tmp_path):
    metadata = [json.dumps({"label": name}).encode() for name in ("cat", "dog")]
    members = [("cat/0.png", RED), ("cat/0.json", metadata[0]), ("dog/0.png", GREEN)]
    assert write_and_load_tar(tmp_path, members) == RIGHT
    assert (
        write_and_load_tar(tmp_path, [*members, ("dog/0.json", metadata[1])]) == RIGHT
    )
    with pytest.raises(ValueError, match="got 'cat' in .*dog/0.json"):
        write_and_load_tar(tmp_path, [*members, ("dog/0.json", metadata[0])])
    with pytest.raises(ValueError, match="got an empty file in .*cat/0.json"):
        write_and_load_tar(
            tmp_path, [*members, ("cat/0.json", b""), ("dog/0.json", b"")]
        )
