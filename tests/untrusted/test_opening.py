"""Files of others are opened where they are files, images where their format is known."""

import io
import os
import signal
import struct
import threading
import zlib
from concurrent import futures

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from jbias.data import decoding
from jbias.untrusted import limits, opening
from tests import cases, source_files

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


def png_of(width: int, height: int) -> bytes:
    """The head of a black and white PNG of that size, and no pixels."""
    chunks = b""
    told = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    for kind, data in ((b"IHDR", told), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        total = struct.pack(">I", zlib.crc32(kind + data))
        chunks += struct.pack(">I", len(data)) + kind + data + total
    return b"\x89PNG\r\n\x1a\n" + chunks


def read(path) -> np.ndarray:
    return decoding.read(str(path), decoding.preprocess(8))


@cases.each("form", opening.FORMATS)
def test_known_formats_are_read_whatever_their_name(form, tmp_path):
    image = Image.fromarray(np.full((8, 8, 3), 80, np.uint8))
    image.save(path := tmp_path / "a.jpg", form)
    assert abs(int(read(path).mean()) - 80) <= 1


def test_a_file_that_is_no_image_reaches_no_other_reader(tmp_path, monkeypatch):
    """PostScript would be run by Ghostscript."""
    asked = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **k: asked.append(a))
    (path := tmp_path / "z.png").write_bytes(EPS)
    with pytest.raises(ValueError, match=r"z.png: .*one of JPEG, PNG, GIF"):
        read(path)
    assert not asked


def test_images_are_opened_in_one_place():
    """Every other `open` of Pillow's would take all of its formats."""
    found = set()
    for path in source_files.PYTHON:
        if "Image.open(" in path.read_text(encoding="utf-8"):
            found.add(path.name)
    assert found == {"opening.py"}


@pytest.mark.parametrize("most", [Image.MAX_IMAGE_PIXELS, None])
def test_the_limit_of_pixels_holds_whatever_pillows_is(most, tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
    (path := tmp_path / "z.png").write_bytes(png_of(20_000, 20_000))
    with pytest.raises(ValueError, match=r"at most 178,956,970 pixels .*docs/data.md"):
        read(path)


def test_large_images_are_decoded_one_at_a_time(monkeypatch):
    monkeypatch.setattr(opening, "_LARGE", 16)
    encoded, lock, now, most = io.BytesIO(), threading.Lock(), [0], [0]
    Image.new("L", (8, 8)).save(encoded, "PNG")

    def one(_):
        with opening.image(io.BytesIO(encoded.getvalue())) as image:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            image.load()
            threading.Event().wait(0.02)
            with lock:
                now[0] -= 1

    with futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(8)))
    assert most == [1]


@cases.each("kind", ["fifo", "device", "folder"])
def test_what_is_no_file_is_not_waited_for(kind, tmp_path):
    path = tmp_path / "z.png"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    signal.alarm(20)
    try:
        with pytest.raises(ValueError, match="z.png: must be a regular file"):
            opening.binary(path)
        with pytest.raises(ValueError, match="z.png: must be a regular file"):
            read(path)
    finally:
        signal.alarm(0)


@cases.each(
    ("packed", "unpacked"),
    [
        (26_000_000, 3_020_000_000),  # dSprites, .npz.
        (153_600_128, 153_600_128),  # CIFAR-10-C, .npy.
        (30 * 10**9, 30 * 10**9),  # Arrays as they are.
        (450_000_000, 500_000_000),  # A row group of Parquet.
        (1_000, 10**8),
    ],
)
def test_published_files_may_grow_as_they_do(packed, unpacked):
    limits.check_growth(packed, unpacked)


@pytest.mark.parametrize(
    ("packed", "unpacked"), [(2_300_000, 2_400_000_000), (17_000, 2 * 10**9)]
)
def test_bombs_may_not(packed, unpacked):
    with pytest.raises(ValueError, match=r"would become .* \(limits of docs/data.md\)"):
        limits.check_growth(packed, unpacked)
    with pytest.raises(ValueError, match="would become"):
        limits.check_growth(10**9, 10**9 + limits.MAX_GROWTH_BYTES + 1)
