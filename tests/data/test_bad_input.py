"""Mistakes that users have on their disks: each is refused in one line that names the
file.
"""

import gzip
import io
import json
import os
import pathlib
import pickle
import shutil
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python import array_record_module
from PIL import Image

from jbias import data
from jbias.data import class_maps, loader
from jbias.data.forms import shards as shard_forms
from jbias.data.sets import imagenet
from tests import cases

RNG = np.random.default_rng(0)


def jpeg() -> bytes:
    encoded = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (16, 16, 3), np.uint8)).save(encoded, "JPEG")
    return encoded.getvalue()


def folders(root: pathlib.Path, split="train", classes=("cat", "dog")) -> pathlib.Path:
    for name in classes:
        for i in range(3):
            path = root / split / name / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg())
    return root


def tar(root, members, name="train.tar", mode="w") -> None:
    with tarfile.open(root / name, mode) as archive:
        for path, content in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def parquet(root, **columns) -> None:
    pq.write_table(pa.table(columns), root / "train.parquet")


def records(root, *contents) -> None:
    path = str(root / "train.array_record")
    writer = array_record_module.ArrayRecordWriter(path, "group_size:1")
    for content in contents:
        writer.write(content)
    writer.close()


def damage(change, split="train"):
    """Return a function that writes class folders, changes them and returns options of
    `load`.
    """

    def write(root):
        change(folders(root))
        return dict(root=str(root), split=split)

    return write


def shards(write):
    """Return a function that writes shards and returns options of `load`."""

    def make(root):
        write(root)
        return dict(root=str(root))

    return make


def first_image(root) -> pathlib.Path:
    return root / "train" / "cat" / "0.jpg"


def link_loop(root):
    (root / "train" / "cat" / "again").symlink_to(root / "train" / "cat")


def write_16_bit_image(root):
    pixels = np.zeros((8, 8), np.uint16)
    Image.fromarray(pixels).save(root / "train" / "cat" / "deep.png")


def cut_tar(root):
    tar(root, {"cat/0.jpg": jpeg(), "dog/1.jpg": jpeg()})
    path = root / "train.tar"
    path.write_bytes(path.read_bytes()[:700])


def cifar(root):
    folder = root / "cifar-10-batches-py"
    folder.mkdir()

    class Evil:
        def __reduce__(self):
            return os.getcwd, ()

    (folder / "test_batch").write_bytes(pickle.dumps(Evil()))
    return dict(data="cifar10", root=str(root), split="test")


def idx(root):
    path = root / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 3, 0, 0])))
    shutil.copy(path, root / "train-labels-idx1-ubyte.gz")
    return dict(data="mnist", root=str(root))


def npz(**arrays):
    def write(root):
        np.savez(root / "train.npz", **arrays)
        return dict(data="npz", root=str(root))

    return write


def short_names(root):
    parquet(root, image=[{"bytes": jpeg(), "path": "a"}] * 3, label=[0, 1, 2])
    (root / "names.txt").write_text("cat\ndog\n")
    return dict(root=str(root), classes=str(root / "names.txt"))


PIXELS = np.zeros((4, 8, 8, 3), np.uint8)
CASES = {
    "a cut JPEG": (
        damage(lambda r: first_image(r).write_bytes(jpeg()[:200])),
        "cat/0.jpg",
    ),
    "an empty file": (damage(lambda r: first_image(r).write_bytes(b"")), "cat/0.jpg"),
    "text for an image": (
        damage(lambda r: first_image(r).write_text("hi")),
        "cat/0.jpg",
    ),
    "16 bits a channel": (
        damage(write_16_bit_image),
        "8 bits a channel, got mode I;16",
    ),
    "an empty class": (
        damage(lambda r: (r / "train/eel").mkdir()),
        "1 of 3 in .*train' have none",
    ),
    "a stray file": (damage(lambda r: (r / "train/cat/a.txt").write_text("")), "a.txt"),
    "a stray image": (
        damage(lambda r: (r / "train/a.jpg").write_bytes(jpeg())),
        "images must lie in class folders, 1 lie directly",
    ),
    "a link loop": (damage(link_loop), "must not contain themselves"),
    "a dangling link": (
        damage(lambda r: (r / "train/cat/z.jpg").symlink_to(r / "gone.jpg")),
        "z.jpg",
    ),
    "no root": (
        lambda r: dict(root=str(r / "none")),
        "root must be an existing folder",
    ),
    "a file for a root": (
        damage(lambda r: None, "train/cat/0.jpg"),
        "must be a folder",
    ),
    "an unknown split": (damage(lambda r: None, "tran"), "did you mean 'train'"),
    "half a split": (damage(lambda r: None, "train[:5"), "split must read"),
    "an empty part": (damage(lambda r: None, "train[:90%][:9%]"), "split must read"),
    "a bucket": (lambda r: dict(root="gs://bucket/set"), "local or mounted disk"),
    "other class names": (
        lambda r: dict(root=str(folders(r)), space="wnid"),
        "class folders must be of space 'wnid', 2 are not, first 'cat'",
    ),
    "a missing class of PACS": (
        lambda r: dict(
            data="pacs", root=str(folders(r, "photo", ("dog",))), split="photo"
        ),
        "6 are missing",
    ),
    "a cut archive": (shards(cut_tar), "must be a whole, uncompressed tar|0.jpg"),
    "a packed archive": (
        shards(lambda r: tar(r, {"cat/0.jpg": jpeg()}, mode="w:gz")),
        "uncompressed tar archive",
    ),
    "archives in an archive": (
        shards(lambda r: tar(r, {"n01440764.tar": b"x" * 600})),
        "holds the archive 'n01440764.tar'; unpack it once",
    ),
    "an image without a label": (
        shards(lambda r: tar(r, {"a.jpg": jpeg(), "a.cls": b"0", "b.jpg": jpeg()})),
        "got none for 'b'",
    ),
    "a word for a label": (
        shards(lambda r: tar(r, {"a.jpg": jpeg(), "a.cls": b"cat"})),
        "labels must be whole numbers .*got b'cat'",
    ),
    "two images of one key": (
        shards(lambda r: tar(r, {"a.jpg": jpeg(), "a.png": jpeg(), "a.cls": b"0"})),
        "got a second for 'a'",
    ),
    "one image twice": (
        shards(lambda r: tar(r, {"./cat/a.jpg": jpeg(), "cat/a.jpg": jpeg()})),
        "got a second for 'cat/a'",
    ),
    "no images": (shards(lambda r: tar(r, {"a.txt": b"hi"})), "must hold images"),
    "a missing shard": (
        shards(lambda r: tar(r, {"cat/0.jpg": jpeg()}, "train-00000-of-00002.tar")),
        "got 1 of 2 .* missing is number 1",
    ),
    "text for Parquet": (
        shards(lambda r: (r / "train.parquet").write_text("hi")),
        "must be a Parquet file",
    ),
    "Parquet without labels": (
        shards(lambda r: parquet(r, image=[jpeg()])),
        "must have a label column",
    ),
    "words for labels": (
        shards(lambda r: parquet(r, image=[jpeg()], label=["cat"])),
        "labels must be whole numbers, got string",
    ),
    "negative labels": (
        shards(lambda r: parquet(r, image=[jpeg()] * 2, label=[-1, 0])),
        "got -1 to 0",
    ),
    "damaged bytes in a row": (
        shards(lambda r: parquet(r, image=[jpeg(), b"no"], label=[0, 1])),
        "1 of 2 of .* do not, first .*train.parquet:train/1",
    ),
    "text for records": (
        shards(lambda r: (r / "train.array_record").write_text("hi")),
        "must be an ArrayRecord file",
    ),
    "records of something else": (
        shards(lambda r: records(r, b"\x0a\x05hello")),
        "must be tf.train.Example",
    ),
    "records without a label": (
        shards(lambda r: records(r, shard_forms.serialise_example({"image": jpeg()}))),
        "must be tf.train.Example with an image and a label",
    ),
    "images under two keys": (
        shards(
            lambda r: records(
                r,
                *(
                    shard_forms.serialise_example({key: jpeg(), "label": 0})
                    for key in ("image", "image/encoded")
                ),
            )
        ),
        "its image is 'image/encoded', that of the first is 'image'",
    ),
    "too few class names": (short_names, "a line for each class, got 2 for"),
    "floats for pixels": (
        npz(images=PIXELS / 255, labels=np.arange(4)),
        "images must be uint8",
    ),
    "labels for fewer images": (
        npz(images=PIXELS, labels=np.arange(3)),
        "labels must be 4 whole numbers",
    ),
    "an array that is missing": (npz(images=PIXELS), "must have 'labels'"),
    "a cut header": (idx, "must be a whole IDX file"),
    "a pickle that calls": (cifar, "names posix.getcwd"),
}


@cases.each("case", CASES)
def test_bad_input_is_refused_in_one_line(case, tmp_path):
    write, message = CASES[case]
    options = {"data": "folder", "split": "train", **write(tmp_path)}
    name, split = options.pop("data"), options.pop("split")
    with pytest.raises(ValueError, match=message) as refused:
        loader.decode_all(data.load(name, split, size=8, **options), workers=1)
    assert "\n" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to the superuser")
def test_unreadable_files_are_refused(tmp_path):
    first_image(folders(tmp_path)).chmod(0)
    with pytest.raises(ValueError, match="cat/0.jpg: PermissionError"):
        loader.decode_all(
            data.load("folder", "train", root=str(tmp_path), size=8), workers=1
        )


@cases.each(
    ("text", "message"),
    [
        ("train,test\ncat,dog\n", "header must have train_class and test_class"),
        ("train_class,test_class\ncta,dog\n", "did you mean 'cat'"),
        ("train_class,test_class\ncat,dog\ncat,eel\n", "mapped once"),
        ("train_class,test_class\n", "got the header alone"),
    ],
)
def test_wrong_mappings_are_refused(text, message, tmp_path):
    path = tmp_path / "map.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as refused:
        class_maps.match(
            ("cat", "cow"), "names", ("dog", "eel"), "names", mapping=str(path)
        )
    assert "\n" not in str(refused.value)


def test_files_other_than_reals_labels_are_refused(tmp_path):
    path = tmp_path / "real.json"
    for content, message in (
        ([[0]], "list of 50,000 lists, got 1"),
        ({}, "got no list"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            imagenet.read_real(str(path))
