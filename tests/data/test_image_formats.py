"""Folders, archives, Parquet files and records all read the same list of image formats."""

import io
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python import array_record_module
from PIL import Image

from jbias import data, prepare
from jbias.data import decoding
from jbias.data.forms import shards
from jbias.untrusted import opening
from tests import cases

COLOURS = (200, 20, 20), (20, 200, 20)
KINDS = {
    ".gif": "GIF",
    ".GIF": "GIF",
    ".jfif": "JPEG",
    ".jpe": "JPEG",
    ".JPEG": "JPEG",
    ".png": "PNG",
    ".tif": "TIFF",
    ".webp": "WEBP",
    ".ppm": "PPM",
    ".pnm": "PPM",
    ".bmp": "BMP",
}
FOLDERS = "ab"


def encoded(kind, colour, **options) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(content, kind, **options)
    return content.getvalue()


def decode(content: io.BytesIO) -> np.ndarray:
    return decoding.decode(lambda: content, "x", decoding.preprocess(8))


def write_folder(root, ending, contents):
    for name, content in zip(FOLDERS, contents, strict=True):
        (root / "test" / name).mkdir(parents=True)
        (root / "test" / name / f"0{ending}").write_bytes(content)


def write_tar(root, ending, contents):
    with tarfile.open(root / "test.tar", "w") as archive:
        for label, content in enumerate(contents):
            files = (f"{label}{ending}", content), (f"{label}.cls", b"%d" % label)
            for name, text in files:
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))


def write_parquet(root, ending, contents):
    columns = {ending.lower().removeprefix("."): contents, "label": [0, 1]}
    pq.write_table(pa.table(columns), root / "test.parquet")


def write_records(root, ending, contents):
    path = str(root / "test.array_record")
    writer = array_record_module.ArrayRecordWriter(path, "group_size:1")
    for label, content in enumerate(contents):
        writer.write(shards.serialise_example({"image": content, "label": label}))
    writer.close()


def load(root):
    source = data.load("folder", "test", root=str(root), size=8)
    return [source[i]["image"][0, 0] for i in range(len(source))]


@pytest.mark.parametrize(
    "write", [write_folder, write_tar, write_parquet, write_records]
)
@cases.each(("ending", "kind"), KINDS.items())
def test_every_format_is_read_in_every_form(ending, kind, write, tmp_path):
    write(tmp_path, ending, [encoded(kind, colour) for colour in COLOURS])
    np.testing.assert_allclose(load(tmp_path), COLOURS, atol=4)


def test_every_known_ending_belongs_to_a_readable_format():
    format_by_ending = {ending: Image.EXTENSION[ending] for ending in opening.SUFFIXES}
    assert set(format_by_ending.values()) <= set(opening.FORMATS)
    assert set(format_by_ending.values()) == set(opening.FORMATS)


@cases.each("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_of_several_frames_is_read(kind):
    later = Image.new("RGB", (8, 8), COLOURS[1])
    options = {"lossless": True} if kind == "WEBP" else {}
    frames = encoded(kind, COLOURS[0], save_all=True, append_images=[later], **options)
    for pixels in (
        decoding.decode(lambda: io.BytesIO(frames), "x", decoding.preprocess(8)),
        decoding.cropped(lambda: io.BytesIO(frames), "x", 8, lambda w, h: (0, 0, w, h)),
    ):
        np.testing.assert_array_equal(pixels[0, 0], COLOURS[0])


def test_alpha_is_dropped_and_orientation_ignored():
    """Transparent palette colours keep their colour; the EXIF orientation rotates nothing."""
    palette = Image.new("RGB", (8, 8), COLOURS[0]).convert("P", palette=Image.ADAPTIVE)
    for kind in ("PNG", "GIF"):
        content = io.BytesIO()
        palette.save(content, kind, transparency=0)
        pixels = decode(content)
        np.testing.assert_array_equal(pixels[0, 0], COLOURS[0])
    halves = np.zeros((8, 8, 3), np.uint8)
    halves[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # Turned by a quarter.
    content = io.BytesIO()
    Image.fromarray(halves).save(content, "PNG", exif=exif)
    pixels = decode(content)
    np.testing.assert_array_equal(pixels, halves)


def test_cmyk_is_converted_and_grey_of_16_bits_is_refused():
    cmyk = io.BytesIO()
    Image.new("RGB", (8, 8), (255, 0, 0)).convert("CMYK").save(cmyk, "JPEG")
    pixels = decode(cmyk)
    np.testing.assert_allclose(pixels[0, 0], (255, 0, 0), atol=4)
    deep = Image.fromarray(np.full((8, 8), 40_000, np.uint16))
    for kind in ("PNG", "TIFF"):
        content = io.BytesIO()
        deep.save(content, kind)
        with pytest.raises(ValueError, match="8 bits a channel, got mode I;16"):
            decode(content)


def test_images_are_left_out_by_a_pattern_of_their_ending(tmp_path):
    """A pattern in `ignore` excludes images, as for other files."""
    write_folder(tmp_path, ".png", [encoded("PNG", colour) for colour in COLOURS])
    (tmp_path / "test/a/1.gif").write_bytes(encoded("GIF", COLOURS[0]))
    options = dict(root=str(tmp_path), size=8)
    assert len(data.load("folder", "test", **options)) == 3
    assert len(data.load("folder", "test", ignore=("*.gif",), **options)) == 2
    assert len(data.load("folder", "test", ignore=("*",), **options)) == 3


def test_tables_name_gif_files(tmp_path):
    (tmp_path / "0.gif").write_bytes(encoded("GIF", COLOURS[0]))
    (tmp_path / "1.gif").write_bytes(encoded("GIF", COLOURS[1]))
    (tmp_path / "test.csv").write_text("file,class,sky\n0.gif,a,x\n1.gif,b,y\n")
    source = data.load("attributed", "test", root=str(tmp_path), size=8)
    np.testing.assert_array_equal(source[0]["image"][0, 0], COLOURS[0])


def test_commands_take_gif_files(tmp_path, capsys):
    write_folder(tmp_path, ".gif", [encoded("GIF", colour) for colour in COLOURS])
    assert prepare.main(["check", f"--src={tmp_path}"]) == 0
    assert "test   2" in capsys.readouterr().out
    out = tmp_path / "records"
    argv = ["records", f"--src={tmp_path}", "--split=test", f"--dst={out}"]
    assert prepare.main(argv) == 0
    np.testing.assert_array_equal(load(out), COLOURS)
