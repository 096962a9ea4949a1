"""CIFAR-10-C, CIFAR-100-C and CIFAR-10.1 from arrays made in the published shape."""

import numpy as np
import pytest

from jbias import data
from jbias.data import base, tables

N = 20  # Images of each severity; published are 10,000.


def images(n: int) -> np.ndarray:
    """Return n images; all pixels of image i equal i."""
    return np.tile(np.arange(n, dtype=np.uint8)[:, None, None, None], (1, 32, 32, 3))


@pytest.fixture
def root(tmp_path):
    np.save(tmp_path / "fog.npy", images(5 * N))
    np.save(tmp_path / "labels.npy", np.tile(np.arange(N, dtype=np.uint8) % 10, 5))
    return tmp_path


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_a_severity_is_a_fifth_of_the_rows(root, severity):
    source = data.load("cifar10_c", f"fog/{severity}", root=str(root))
    pixels = source.images[:, 0, 0, 0]
    np.testing.assert_array_equal(pixels, np.arange(N) + (severity - 1) * N)
    np.testing.assert_array_equal(source.columns["label"], np.arange(N) % 10)
    assert source.columns["label"].dtype == np.int32
    assert source.note == "20 images on disk, the published set has 10,000"
    assert source.name == f"cifar10_c/fog/{severity}"


def test_the_folder_of_the_archive_is_recognised(root):
    (root / "CIFAR-100-C").mkdir()
    for name in ("fog.npy", "labels.npy"):
        (root / name).rename(root / "CIFAR-100-C" / name)
    source = data.load("cifar100_c", "fog/2", root=str(root))
    assert source.classes == tables.class_names("cifar100")


def test_a_part_of_a_severity(root):
    assert len(data.load("cifar10_c", "fog/2[:50%]", root=str(root))) == N // 2


def test_class_names_are_sorted_and_complete():
    for name, k in (("cifar10", 10), ("cifar100", 100), ("office_home", 65)):
        assert len(set(tables.class_names(name))) == k
        assert list(tables.class_names(name)) == sorted(tables.class_names(name))
    assert len(data.DATASETS["cifar10_c"].splits) == 95


@pytest.mark.parametrize(("split", "published"), [("v4", "2,021"), ("v6", "2,000")])
def test_new_images(tmp_path, split, published):
    np.save(tmp_path / f"cifar10.1_{split}_data.npy", images(30))
    labels = np.arange(30, dtype=np.int32) % 10
    np.save(tmp_path / f"cifar10.1_{split}_labels.npy", labels)
    source = data.load("cifar10_1", split, root=str(tmp_path))
    np.testing.assert_array_equal(source.columns["label"], labels)
    assert source.note == f"30 images on disk, the published set has {published}"
    assert source.classes == tables.class_names("cifar10")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: (r / "labels.npy").unlink(), "labels.npy', which is not there"),
        (lambda r: (r / "fog.npy").write_bytes(b"no"), "must be a whole .npy file"),
        (lambda r: np.save(r / "fog.npy", images(99)), "every image must have a label"),
        (
            lambda r: np.save(r / "fog.npy", np.array([{}], object)),
            "must be a whole .npy file",
        ),
        (
            lambda r: (
                [np.save(r / f, images(98)[:, 0, 0, 0]) for f in ("labels.npy",)]
                + [np.save(r / "fog.npy", images(98))]
            ),
            "as many images of each of the five",
        ),
        (
            lambda r: np.save(r / "fog.npy", images(100) / 255),
            "images must be uint8",
        ),
    ],
)
def test_other_files_are_refused(root, change, message):
    change(root)
    with pytest.raises(ValueError, match=message) as refused:
        data.load("cifar10_c", "fog/1", root=str(root))
    assert "\n" not in str(refused.value)


def test_a_corruption_that_was_not_fetched_is_missing(root):
    with pytest.raises(base.Missing, match="expected: CIFAR-10's test images .*2.9 GB"):
        data.load("cifar10_c", "snow/1", root=str(root))
