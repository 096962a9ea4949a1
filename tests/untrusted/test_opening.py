"""Untrusted files: only regular files, known image formats and bounded sizes are opened."""

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
    """Return the bytes of a black and white PNG of this size, without its pixels."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = b""
    for kind, data in (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    ):
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        chunks += struct.pack(">I", len(data)) + kind + data + checksum
    return b"\x89PNG\r\n\x1a\n" + chunks


def read(path) -> np.ndarray:
    return decoding.read(str(path), decoding.preprocess(8))


@cases.each("image_format", opening.FORMATS)
def test_known_formats_are_read_under_any_file_name(image_format, tmp_path):
    path = tmp_path / "a.jpg"
    image = Image.fromarray(np.full((8, 8, 3), 80, np.uint8))
    image.save(path, image_format)
    assert abs(int(read(path).mean()) - 80) <= 1


def test_postscript_is_refused_and_not_run(tmp_path, monkeypatch):
    """Pillow would run Ghostscript for PostScript."""
    calls = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **k: calls.append(a))
    path = tmp_path / "z.png"
    path.write_bytes(EPS)
    with pytest.raises(ValueError, match=r"z.png: .*one of JPEG, PNG, GIF"):
        read(path)
    assert not calls


def test_images_are_opened_in_one_module():
    """Any other call of Pillow's `open` would allow all of its formats."""
    modules = {
        path.name
        for path in source_files.PYTHON
        if "Image.open(" in path.read_text(encoding="utf-8")
    }
    assert modules == {"opening.py"}


@pytest.mark.parametrize("pillow_limit", [Image.MAX_IMAGE_PIXELS, None])
def test_the_limit_of_pixels_does_not_depend_on_pillows(
    pillow_limit, tmp_path, monkeypatch
):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pillow_limit)
    path = tmp_path / "z.png"
    path.write_bytes(png_of(20_000, 20_000))
    with pytest.raises(ValueError, match=r"at most 178,956,970 pixels .*docs/data.md"):
        read(path)


def test_large_images_are_decoded_one_at_a_time(monkeypatch):
    monkeypatch.setattr(opening, "_LARGE_PIXELS", 16)
    encoded, lock, num_open, max_open = io.BytesIO(), threading.Lock(), [0], [0]
    Image.new("L", (8, 8)).save(encoded, "PNG")

    def decode(_):
        with opening.open_image(io.BytesIO(encoded.getvalue())) as image:
            with lock:
                num_open[0] += 1
                max_open[0] = max(max_open[0], num_open[0])
            image.load()
            threading.Event().wait(0.02)
            with lock:
                num_open[0] -= 1

    with futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(decode, range(8)))
    assert max_open == [1]


@cases.each("kind", ["fifo", "device", "folder"])
def test_pipes_devices_and_folders_are_refused_without_waiting(kind, tmp_path):
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
            opening.open_binary(path)
        with pytest.raises(ValueError, match="z.png: must be a regular file"):
            read(path)
    finally:
        signal.alarm(0)


@cases.each(
    ("packed", "unpacked"),
    [
        (26_000_000, 3_020_000_000),  # dSprites, .npz.
        (153_600_128, 153_600_128),  # CIFAR-10-C, .npy.
        (30 * 10**9, 30 * 10**9),  # Uncompressed arrays.
        (450_000_000, 500_000_000),  # A row group of Parquet.
        (1_000, 10**8),
    ],
)
def test_published_files_are_within_the_limits_of_growth(packed, unpacked):
    limits.check_growth(packed, unpacked)


@pytest.mark.parametrize(
    ("packed", "unpacked"), [(2_300_000, 2_400_000_000), (17_000, 2 * 10**9)]
)
def test_decompression_bombs_are_refused(packed, unpacked):
    with pytest.raises(ValueError, match=r"would become .* \(limits of docs/data.md\)"):
        limits.check_growth(packed, unpacked)
    with pytest.raises(ValueError, match="would become"):
        limits.check_growth(10**9, 10**9 + limits.MAX_GROWTH_BYTES + 1)
