"""Members of a tar archive have the same classes as the unpacked files."""

import io
import os
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
    """Write images under these names; the red value of an image is its number."""
    with tarfile.open(root / "test.tar", "w") as archive:
        for value, name in enumerate(names):
            content = picture(value)
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
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
    with pytest.raises(ValueError, match="paths without '..', got .*pack it again"):
        load(tmp_path)


def pack(root, names, links=(), sign=tarfile.SYMTYPE):
    """Write photos/test, then test.tar of this folder; `links` are pairs (path, target)."""
    for value, name in enumerate(names):
        path = root / "photos/test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(value))
    with tarfile.open(root / "test.tar", "w") as archive:
        archive.add(root / "photos/test", ".")
        for name, target in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = sign, target
            archive.addfile(entry)


def red_values(source):
    """Return the red value and the class of each image, by name."""
    labels = source.columns["label"]
    names = source.store.names
    values = [int(source[i]["image"][0, 0, 0]) for i in range(len(source))]
    return {n: (v, int(c)) for n, v, c in zip(names, values, labels, strict=True)}


@cases.each(
    "names",
    [
        ["cat/img.png", "cat/img.1.png", "dog/x.png"],
        ["cat/img.1.png", "cat/img.png", "cat/img.02.png", "dog/x.png"],
        ["cat/a.n01.jpg", "cat/a.n02.JPEG", "dog/x.png"],
        ["cat/a.n01.jpg", "cat/a.n02.png", "dog/x.png"],
        ["cat/a.left.jpg", "cat/a.right.jpeg", "dog/x.png"],
    ],
)
def test_names_with_dots_in_class_folders_are_images_as_in_unpacked_ones(
    names, tmp_path
):
    pack(tmp_path, names)
    packed = red_values(load(tmp_path))
    assert packed == red_values(load(tmp_path / "photos"))
    assert len(packed) == len(names)


@cases.each("link", [os.link, os.symlink])
def test_a_link_to_an_image_is_an_image(link, tmp_path):
    """Links in an archive are followed as in the packed folder."""
    pack(tmp_path, ["a/1.png", "b/2.png"])
    folder = tmp_path / "photos/test"
    target = folder / "a/1.png" if link is os.link else "1.png"
    for name in ("a/0.png", "a/3.png"):  # The first in the archive, and a later one.
        link(target, folder / name)
    pack(tmp_path, [])
    unpacked, packed = load(tmp_path / "photos"), load(tmp_path)
    assert red_values(packed) == red_values(unpacked)
    assert len(packed) == 4 and packed.fingerprint == unpacked.fingerprint


@cases.each(
    ("name", "target"),
    [
        ("a/3.png", "gone.png"),
        ("a/3.png", "/etc/passwd"),
        ("a/3.png", "../../../x.png"),
        ("a/3.png", "3.png"),
        ("c", "a"),
    ],
)
def test_a_link_that_leads_to_no_file_of_the_archive_is_refused(name, target, tmp_path):
    pack(tmp_path, ["a/1.png", "b/2.png"], [(name, target)])
    with pytest.raises(
        ValueError, match=f"must lead to files in it, got '{name}'"
    ) as e:
        load(tmp_path)
    assert "\n" not in str(e.value)


@cases.each("sign", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_one_image_is_not_in_two_class_folders_of_an_archive(sign, tmp_path):
    hard = sign == tarfile.LNKTYPE
    links = [("b/1.png", "./a/1.png" if hard else "../a/1.png")]
    pack(tmp_path, ["a/1.png", "b/2.png"], links, sign)
    with pytest.raises(ValueError, match="'a/1.png' and 'b/1.png', which are one"):
        load(tmp_path)
