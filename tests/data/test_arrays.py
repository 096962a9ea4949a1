"""Data sets published as arrays (IDX, CIFAR's archives, npz): whole, in parts, and
damaged.
"""

import gzip
import pickle
import struct

import numpy as np
import pytest
from PIL import Image

from jbias import data
from tests import cases

RNG = np.random.default_rng(0)


def idx(path, array, packed=True):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(
        f">{array.ndim}I", *array.shape
    )
    content = header + array.tobytes()
    path.write_bytes(gzip.compress(content) if packed else content)


@pytest.fixture
def digits(tmp_path):
    images = RNG.integers(0, 256, (40, 28, 28), np.uint8)
    labels = np.arange(40, dtype=np.uint8) % 10
    for stem, packed in (("train", True), ("t10k", False)):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            end = ".gz" if packed else ""
            idx(tmp_path / f"{stem}-{kind}-ubyte{end}", array, packed)
    return tmp_path, images, labels


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_idx_files_are_grey_images(digits, name, split):
    root, images, labels = digits
    source = data.load(name, split, root=str(root))
    np.testing.assert_array_equal(source.images, np.repeat(images[..., None], 3, -1))
    np.testing.assert_array_equal(source.columns["label"], labels)
    assert source.note.startswith("40 images on disk, the published set has")
    assert len(source.classes) == 10


def test_parts_are_disjoint_and_complete(digits):
    root, images, _ = digits
    halves = [
        data.load("mnist", f"train[{p}]", root=str(root)) for p in (":50%", "50%:")
    ]
    for half in halves:
        assert np.bincount(half.columns["label"]).tolist() == [2] * 10
    loaded = {image.tobytes() for half in halves for image in half.images[..., 0]}
    assert loaded == {image.tobytes() for image in images}
    assert halves[0].fingerprint != halves[1].fingerprint


def test_other_sizes_are_resized_by_pillow(digits):
    root, images, _ = digits
    source = data.load("mnist", "train", root=str(root), size=32)
    expected = Image.fromarray(images[3]).convert("RGB").resize((32, 32), 2)
    np.testing.assert_array_equal(source.images[3], np.asarray(expected))


def rows(n):
    return RNG.integers(0, 256, (n, 3072), np.uint8), np.arange(n) % 10


def write_python_archive(root):
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    pixels, labels = rows(50)
    for i in range(5):
        part = slice(10 * i, 10 * i + 10)
        batch = {b"data": pixels[part], b"labels": labels[part].tolist()}
        (folder / f"data_batch_{i + 1}").write_bytes(pickle.dumps(batch))
    names = {b"label_names": [f"class{i}".encode() for i in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names))
    return pixels, labels


def write_binary_archive(root):
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    pixels, labels = rows(50)
    joined = np.concatenate([labels[:, None].astype(np.uint8), pixels], 1)
    for i in range(5):
        joined[10 * i : 10 * i + 10].tofile(folder / f"data_batch_{i + 1}.bin")
    text = "\n".join(f"class{i}" for i in range(10)) + "\n\n"
    (folder / "batches.meta.txt").write_text(text)
    return pixels, labels


@cases.each("write", [write_python_archive, write_binary_archive])
@cases.each("below", [False, True])
def test_cifars_archives_store_colour_planes(tmp_path, write, below):
    pixels, labels = write(tmp_path)
    root = next(tmp_path.iterdir()) if below else tmp_path
    source = data.load("cifar10", "train", root=str(root))
    np.testing.assert_array_equal(source.columns["label"], labels)
    assert source.classes[3] == "class3"
    for channel in range(3):
        plane = pixels[7, 1024 * channel : 1024 * (channel + 1)].reshape(32, 32)
        np.testing.assert_array_equal(source.images[7][..., channel], plane)


def test_cifar_100_has_two_labels_a_row(tmp_path):
    pixels, _ = rows(200)
    fine = np.arange(200) % 100
    joined = np.concatenate(
        [np.stack([fine // 5, fine], 1).astype(np.uint8), pixels], 1
    )
    joined.tofile(tmp_path / "train.bin")
    (tmp_path / "fine_label_names.txt").write_text("\n".join(map(str, range(100))))
    source = data.load("cifar100", "train", root=str(tmp_path))
    np.testing.assert_array_equal(source.columns["label"], fine)
    assert len(source.classes) == 100


def test_cifar_may_be_folders(tree):
    root = tree({f"test/class{i}": 2 for i in range(10)}, size=(32, 32))
    assert len(data.load("cifar10", "test", root=str(root))) == 20


def test_a_crafted_pickle_runs_no_code(tmp_path):
    write_python_archive(tmp_path)

    class Evil:
        def __reduce__(self):
            return print, ("ran",)

    (tmp_path / "cifar-10-batches-py/data_batch_3").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="data_batch_3: .* names builtins.print"):
        data.load("cifar10", "train", root=str(tmp_path))


def test_npz_has_columns_and_names(tmp_path):
    images = RNG.integers(0, 256, (6, 20, 20, 3), np.uint8)
    labels, colour = np.array([0, 1, 2, 0, 1, 2]), np.arange(6)
    np.savez(
        tmp_path / "mine.npz",
        classes=np.array(["a", "b", "c"]),
        images=images,
        labels=labels,
        colour=colour,
    )
    source = data.load("npz", "mine", root=str(tmp_path), size=20)
    np.testing.assert_array_equal(source.images, images)
    assert source.classes == ("a", "b", "c") and source[4]["colour"] == 4
    np.savez(tmp_path / "bare.npz", images=images[..., 0], labels=labels)
    assert data.load("npz", "bare", root=str(tmp_path)).classes == ("0", "1", "2")


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: cut(r / "train-images-idx3-ubyte.gz"), "must be a whole IDX file"),
        (
            lambda r: (r / "train-labels-idx1-ubyte.gz").unlink(),
            "needs the file train-",
        ),
        (
            lambda r: idx(r / "train-labels-idx1-ubyte.gz", np.zeros(39, np.uint8)),
            "labels must be 40 whole numbers from 0 to 9, got uint8 \\(39,\\)",
        ),
        (
            lambda r: idx(r / "train-labels-idx1-ubyte.gz", np.full(40, 11, np.uint8)),
            "of 11 to 11",
        ),
        (
            lambda r: (r / "train-images-idx3-ubyte.gz").write_bytes(b"no gzip"),
            "must be a whole IDX file",
        ),
    ],
)
def test_damaged_idx_files_are_refused(digits, damage, message):
    root = digits[0]
    damage(root)
    with pytest.raises(ValueError, match=message) as refused:
        data.load("mnist", "train", root=str(root))
    assert "\n" not in str(refused.value)


def test_files_in_no_published_format_are_refused(tmp_path):
    write_binary_archive(tmp_path)
    file = tmp_path / "cifar-10-batches-bin/data_batch_2.bin"
    cut(file)
    with pytest.raises(
        ValueError, match="data_batch_2.bin: must be rows of 3073 bytes"
    ):
        data.load("cifar10", "train", root=str(tmp_path))
    file.unlink()
    with pytest.raises(ValueError, match="data_batch_2.bin is missing"):
        data.load("cifar10", "train", root=str(tmp_path))
    (tmp_path / "odd.npz").write_bytes(b"text")
    for split, message in (("odd", "must be an .npz"), ("none", "No such file")):
        with pytest.raises(ValueError, match=message):
            data.load("npz", split, root=str(tmp_path))
    assert data.DATASETS["mnist"].images == data.DATASETS["cifar10"].images | {
        "train": 60_000
    }
