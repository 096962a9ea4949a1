"""Members of a tar archive have the classes that their unpacked files have."""

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from jbias import data
from tests import cases


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))


def picture(value: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), (value, 0, 0)).save(content, "PNG")
    return content.getvalue()


def load(root):
    return data.load("folder", "test", root=str(root), size=8)


def write_tar(root, names):
    """Writes images whose red value is their number, under these names."""
    with tarfile.open(root / "test.tar", "w") as archive:
        for value, name in enumerate(names):
            entry = tarfile.TarInfo(name)
            entry.size = len(content := picture(value))
            archive.addfile(entry, io.BytesIO(content))


@cases.each(
    "names",
    [
        ["a/0.png", "a/1.png", "b/2.png"],
        ["./a/0.png", "./a/1.png", "./b/2.png"],
        ["./a/0.png", "a/1.png", "b/2.png"],
        ["a//0.png", "a/./1.png", "././b/2.png"],
        ["/photos/a/0.png", "photos/a/1.png", "./photos/b/2.png"],
        [".cache/photos/a/0.png", ".cache/photos/a/1.png", ".cache/photos/b/2.png"],
    ],
)
def test_each_spelling_of_a_path_has_the_class_of_its_folder(names, tmp_path):
    write_tar(tmp_path, names)
    source = load(tmp_path)
    assert source.classes == ("a", "b")
    assert source.columns["label"].tolist() == [0, 0, 1]
    assert [source[i]["image"][0, 0, 0] for i in range(3)] == [0, 1, 2]


def test_an_archive_of_a_folder_is_the_folder(tmp_path):
    """`tar -C photos/test -cf test.tar .` has the images and the digest of photos/test."""
    for value, name in enumerate(["a/0.png", "a/1.png", "b/0.png", ".thumbs/a.png"]):
        path = tmp_path / "photos/test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(value))
    with tarfile.open(tmp_path / "test.tar", "w") as archive:
        archive.add(tmp_path / "photos/test", ".")
    folder, packed = load(tmp_path / "photos"), load(tmp_path)
    assert packed.classes == folder.classes == ("a", "b")
    assert packed.fingerprint == folder.fingerprint
    for i in range(len(folder)):
        np.testing.assert_array_equal(packed[i]["image"], folder[i]["image"])


@cases.each("name", ["a/../b/1.png", "../b/1.png", "/../b/1.png", "a/.."])
def test_a_path_with_dots_that_lead_up_is_refused(name, tmp_path):
    write_tar(tmp_path, ["a/0.png", name, "b/2.png"])
    with pytest.raises(ValueError, match="paths without '..', got .*pack it anew"):
        load(tmp_path)
