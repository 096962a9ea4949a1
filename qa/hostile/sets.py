"""Data sets made to do harm: bombs, wrong sizes, device files, names."""

import gzip
import io
import os
import pathlib
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from jbias.data.forms import shards
from qa.fuzz import images
from qa.hostile import attempt

_PNG = images.noise_image(0, "png")
_ESCAPE = "a\n\x1b[2J"
_GIGABYTES = 2_100_000_000


class _Set(NamedTuple):
    """A hostile data set.

    words: description. reader: name of the data set in `DATASETS`. write: writes the files
    to a folder. split: the split to read.
    """

    words: str
    reader: str
    write: Callable[[pathlib.Path], None]
    split: str = "train"


def cases() -> Iterator[attempt.Case]:
    """Yield every data set as input of `jbias prepare check`."""
    for hostile_set in _sets():

        def write(root: pathlib.Path, hostile_set: _Set = hostile_set) -> list[str]:
            hostile_set.write(root)
            return [
                "-m",
                "jbias.prepare",
                "check",
                f"--data={hostile_set.reader}",
                f"--src={root}",
                f"--splits={hostile_set.split}",
            ]

        yield attempt.Case(hostile_set.words, write)


def _sets() -> Iterator[_Set]:
    """Yield every data set, one file format after another."""
    for text in _NUMBERS:
        for ending in ("cls", "json"):
            files = {"0.png": _PNG, f"0.{ending}": text.encode()}
            yield _Set(f"tar: 0.{ending} is {text!r:.40}", "folder", _tar(files))
    for name in _NAMES:
        yield _Set(f"tar: {name!r:.40}", "folder", _tar({name: _PNG, "b/1.png": _PNG}))
    for kind in (b"1", b"2", b"3", b"4", b"6", b"7", b"S", b"x", b"g", b"L", b"Z"):
        write = _tar({"a/0.png": b"", "b/1.png": _PNG}, {"a/0.png": kind})
        yield _Set(f"tar: a member of type {kind}", "folder", write)
    for labels in _labels():
        words = f"npz: labels {labels.dtype} {labels!s:.30}"
        yield _Set(words, "npz", _npz(labels))
    for shape, dtype, version in _HEADERS:
        words = f"npz: header {shape!s:.40} {dtype:.30}"
        arrays = {"images": _npy(shape, dtype, version) + bytes(96)}
        arrays["labels"] = _npy((2,), "'<i8'") + bytes(16)
        yield _Set(words, "npz", _zip(arrays, zipfile.ZIP_STORED))
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        words = f"npz: a bomb by method {compression}"
        yield _Set(words, "npz", _npz_bomb(compression))
    for text in _METADATA:
        yield _Set(f"parquet: metadata {text!r:.40}", "folder", _parquet({}, text))
    for column in _label_columns():
        words = f"parquet: labels {column.type}"
        yield _Set(words, "folder", _parquet({"label": column}))
    for column in _image_columns():
        words = f"parquet: images {column.type}"
        yield _Set(words, "folder", _parquet({"image": column}))
    for codec in ("none", "zstd", "brotli", "gzip"):
        yield _Set(f"parquet: a bomb by {codec}", "folder", _parquet_bomb(codec))
    for name, data in _image_files():
        yield _Set(f"folder: {name!r}", "folder", _folder(name, data))
    for number, data in enumerate(_pickles()):
        yield _Set(
            f"CIFAR: pickle {number} {data!r:.40}", "cifar10", _cifar(data), "test"
        )
    for number, records in enumerate(_records()):
        words = f"record {number}: {records[0]!r:.40}"
        yield _Set(words, "folder", _array_record(records))
    for number, data in enumerate(_idx_files()):
        yield _Set(f"MNIST: idx {number}", "mnist", _mnist(data), "test")


_NUMBERS = (
    "99999999998",
    "2147483647",
    "21844000",
    "-1",
    "-0",
    "1e9",
    "nan",
    "Infinity",
    "0x10",
    "\u0663",
    "\uff11",
    "1_0",
    "\0",
    "1\0",
    "9" * 5000,
    "1" + "0" * 100_000,
    "1e" + "9" * 400,
    "true",
    "null",
    '"1"',
    "1.5",
    "[" * 90_000,
    "",
    "1 2",
    "\ufeff1",
    '{"label":' * 30_000,
    '{"label": [0]}',
    '{"label": 1e309}',
    '{"label": NaN}',
    '{"label": 2e9}',
    '{"label": true}',
    '{"label": 0, "label": 5e8}',
)
_NAMES = (
    f"{_ESCAPE}/0.png",
    "../../../0.png",
    "/etc/0.png",
    "a/\udcff.png",
    "a" * 5000,
    "a" * 5000 + "/0.png",
    "a/" * 3000 + "0.png",
    "\u202ea/0.png",
    "a/0.png\0.txt",
    " /0.png",
    "a/.png",
    "\\a\\0.png",
    "a/0.png/0.png",
    "CON/0.png",
)
_HEADERS = (
    ((2, 2**40, 0, 3), "'|u1'", 1),
    ((2, 2**20, 2**20, 3), "'|u1'", 1),
    ((2, -4, -4, 3), "'|u1'", 1),
    ((2**62, 4, 4, 3), "'|u1'", 2),
    ((2, 4, 4, 3), "'|O'", 1),
    ((2, 4, 4, 3), "'|V2147483647'", 1),
    ((2, 4, 4, 3), "'<U99999999'", 1),
    ((2, 4, 4, 3.5), "'|u1'", 1),
    ("(" * 9000, "'|u1'", 1),
    ("[" * 60_000, "'|u1'", 2),
    (((2,),), "'|u1'", 1),
    ((2, 4, 4, 3), "[('a'," * 500, 1),
    (("1" + "0" * 4000), "'|u1'", 1),
    ((True, 4, 4, 3), "'|u1'", 1),
    ((2, 4, 4, 3), "'|u1'", 9),
)
_METADATA = (
    '{"info": 5}',
    '{"info": {"features": [[1]]}}',
    "[]",
    "null",
    "\0",
    "1e400",
    '{"info": {"features": {"label": {"names": {"0": "a"}}}}}',
    "{" * 70_000,
    "\n",
    '{"info": {"features": {"label": {"names": "ab"}}}}',
    "9" * 5000,
    '{"a":' * 9000,
    '{"info": {"features": {"label": {"names": [null, []]}}}}',
    '{"info": null}',
    '{"info": {"features": {"label": {"names": [1e400, 0]}}}}',
    '{"a":',
    "[" * 10**6,
    '{"info": {"features": {"label": {"names": ["\\u001b[2J", "\\ud800"]}}}}',
    '{"info": {"features": {"label": {"names": ["a", "a"]}}}}',
    '{"info": {"features": {"label": {"names": ["only"]}}}}',
)


def _labels() -> Iterator[np.ndarray]:
    """Yield malformed arrays of labels."""
    yield from (np.array([0, 2**33]), np.array([0, 2**63], np.uint64), np.array(0))
    yield from (np.array([0.0, np.nan]), np.array([0, 1e300]), np.array([True, False]))
    yield from (np.array(["0", "1"]), np.array([0, 2**31 - 1], np.int32))
    yield from (np.array([-1, 0]), np.zeros((2, 2**20), np.int8), np.array([0j, 1]))
    yield from (np.array([0, 10**8]), np.zeros(0, int), np.array([0, 1], "M8[s]"))
    yield np.array([(0, 1), (1, 0)], [("a", "i4"), ("b", "i4")])


def _label_columns() -> Iterator[pa.Array]:
    """Yield malformed columns of labels."""
    yield from (pa.array([0, None]), pa.array([0, 2**40]), pa.array([0, 2**31 - 1]))
    yield from (pa.array([[0], [1]]), pa.array([None, None]), pa.array(["0", "1"]))
    yield from (pa.array([0, 2**63], pa.uint64()), pa.array([0.0, float("inf")]))
    yield from (pa.array([0, 1], pa.timestamp("s")), pa.array([{"a": 1}, {"a": 2}]))
    yield from (pa.array([0, 1], pa.decimal128(38)), pa.array([True, False]))
    yield from (pa.array([-1, 0], pa.int8()), pa.array(["a", "b"]).dictionary_encode())


def _image_columns() -> Iterator[pa.Array]:
    """Yield malformed columns of images."""
    yield from (pa.array([None, None]), pa.array([_PNG, None]), pa.array([1, 2]))
    yield from (pa.array(["x", "y"]), pa.array([[1, 2], [3]]), pa.array([b"", b"x"]))
    yield pa.array([{"bytes": None, "path": "/etc/passwd"}] * 2)
    yield from (pa.array([{"path": "../../x"}] * 2), pa.array([{"bytes": "x"}] * 2))
    yield pa.array([{"bytes": _PNG, "path": 5}] * 2)
    yield pa.array([{"bytes": b"no image", "path": f"{_ESCAPE}.png"}] * 2)
    yield pa.array([_PNG, _PNG], pa.large_binary())


def _image_files() -> Iterator[tuple[str | bytes, bytes | Callable]]:
    """Yield a name and bytes in place of one image; a function makes a special file."""
    zeros = zlib.compress(bytes(50_000_000), 9)
    yield "wide.png", _png(2**31 - 1, 1, b"")
    yield "square.png", _png(40_000, 40_000, zeros)
    yield "lie.png", _png(4, 4, zeros)
    yield "text.png", _png(4, 4, b"", *[_chunk(b"zTXt", b"a\0\0" + zeros)] * 90)
    yield "profile.png", _png(4, 4, b"", _chunk(b"iCCP", b"a\0\0" + zeros))
    yield "chunks.png", _png(4, 4, b"", *[_chunk(b"tEXt", b"a\0b")] * 90_000)
    yield "deep.png", _png(4, 4, b"x", depth=99)
    yield "postscript.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    yield "pdf.png", b"%PDF-1.4\n"
    yield "vector.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    yield "large.webp", _black_image((16_383, 16_383), "webp", lossless=True)
    yield "large.bmp", _bmp(2**30, 2)
    yield "back.bmp", _bmp(-4, -(2**31))
    yield "digits.ppm", b"P6 " + b"9" * 100_000 + b" 2 255\n"
    yield "comment.ppm", b"P6 #" + b"x" * 30_000_000
    yield "plain.ppm", b"P3 30000 30000 255 " + b"0 " * 1000
    yield "loop.tiff", b"II*\0\x08\0\0\0\0\0\x08\0\0\0"
    yield "tags.tiff", b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 600
    yield "long.tiff", b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHII", 273, 4, 2**31, 8)
    yield "animated.png", _black_image((4, 4), "gif")
    yield "start.jpg", b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\3" + bytes(9)
    scan = b"\xff\xda\0\x0c\3\1\0\2\0\3\0\0\0\0"
    yield (
        "scans.jpg",
        _black_image((900, 900), "jpeg", progressive=True)[:-2] + scan * 30_000,
    )
    yield "segments.jpg", b"\xff\xd8" + (b"\xff\xe1\xff\xff" + bytes(65_533)) * 300
    yield "socket.png", lambda path: os.mknod(path, 0o140644)
    yield "pipe.jpg", os.mkfifo
    yield "zero.png", lambda path: os.symlink("/dev/zero", path)
    yield "random.jpg", lambda path: os.symlink("/dev/urandom", path)
    yield "loop.png", lambda path: os.symlink(path, path)
    yield "gone.png", lambda path: os.symlink("/nowhere", path)
    yield "folder.png", os.mkdir
    yield "memory.png", lambda path: os.symlink("/proc/self/mem", path)
    yield "terabyte.png", _terabyte
    yield "terabyte.bmp", _terabyte
    yield b"\xff\xfe.png", _PNG
    yield b"\xff\xff.png", b"no image"
    yield _ESCAPE.encode() + b".png", b"no image"
    yield b"\xc2\x9b2J.png", b"no image"
    yield "\u202egnp.exe.png", b"no image"


def _pickles() -> Iterator[bytes]:
    """Yield malformed batches of CIFAR-10."""
    yield b"\x80\x02]q\x00" + b"(h\x00" * 50_000 + b"e" * 50_000 + b"."
    yield b"\x80\x02" + b"(" * 10**6 + b"."
    yield from (b"\x80\x02]q\x00h\x00a.", b"\x80\x02}q\x00(h\x00h\x00u.")
    yield from (b"\x80\x04\x95" + b"\xff" * 8 + b".", b"\x80\x02\x82\x01.")
    yield b"\x80\x05\x96" + struct.pack("<Q", 2**60) + b"."
    yield b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"."
    yield b"\x80\x02\x8b" + struct.pack("<i", 20_000_000) + b"\x7f" * 20_000_000 + b"."
    yield from (b"I" + b"9" * 3_000_000 + b"\n.", b"\x80\x02" + b"N\x85" * 3_000_000)
    yield b"\x80\x02N" + b"\x85" * 400_000 + b"}K\x01K\x01s0."
    yield b"\x80\x02}N" + b"\x85" * 200_000 + b"K\x01s."
    yield b"\x80\x02(" + b"N" * 9_000_000 + b"l."
    yield b"\x80\x02Nr\xff\xff\xff\x7f."
    yield b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R."
    yield b"cnumpy\nzeros\nJ\xff\xff\xff\x7f\x85R."
    kind = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
    yield kind + b"J\xff\xff\xff\x7f\x85X\x01\0\0\0btR."
    yield from (b"\x80\x02ccopy_reg\n_reconstructor\n.", b"\x80\x02P1\n.")
    yield from (b"S'" + b"\\x41" * 9_000_000 + b"'\n.", b"V" + b"\\u0041" * 5_000_000)
    for data, labels in (
        (np.zeros((2, 3072)), [0, 1]),
        (np.zeros((2, 3072), np.uint8), [0, 10**30]),
        (np.zeros((2, 3072), np.uint8), [0, 10]),
        (np.zeros((2, 3072), np.uint8), [[0], [1]]),
        (np.zeros((2, 3072), np.uint8), [0.5, 1]),
        (np.zeros((0, 3072), np.uint8), []),
        (np.zeros((2, 3072), "O"), [0, 1]),
    ):
        yield pickle.dumps({b"data": data, b"labels": labels}, 2)


def _records() -> Iterator[list[bytes]]:
    """Yield malformed records of an ArrayRecord file."""
    good = {"image": _PNG, "label": 0}
    yield from ([b""], [b"\xff" * 2_000_000], [b"\x0a" + b"\xff" * 9 + b"\1"])
    for label in (2**31 - 1, 2**62, -1, b"x"):
        yield [shards.serialise_example(good | {"label": label})]
    yield from ([shards.serialise_example({"label": 0})], [b"\x08" * 1_000_001])
    yield [shards.serialise_example({"image": 5, "label": 0})]
    yield [shards.serialise_example(good) * 20_000]
    yield [b"\x0a" + b"\x80" * 10 + b"\1"]


def _idx_files() -> Iterator[bytes]:
    """Yield malformed files of MNIST's images."""
    head = struct.pack(">4I", 2051, 1, 28, 28)
    yield gzip.compress(head + bytes(_GIGABYTES), 9)
    yield gzip.compress(struct.pack(">4I", 2051, 2**32 - 1, 28, 28))
    yield gzip.compress(struct.pack(">4I", 2051, 1, 2**31, 2**31))
    yield from (gzip.compress(head + bytes(784))[:-3], b"\x1f\x8b" + b"\xff" * 40, b"")


def _tar(files: Mapping[str, bytes], kinds: Mapping[str, bytes] = {}) -> Callable:
    """Return a function that writes a tar archive; kinds: type of members by name."""

    def write(root: pathlib.Path) -> None:
        with tarfile.open(root / "train.tar", "w") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size, member.type = len(data), kinds.get(name, tarfile.REGTYPE)
                archive.addfile(member, io.BytesIO(data))

    return write


def _npz(labels: np.ndarray) -> Callable:
    """Return a function that writes images and these labels."""
    pixels = np.zeros((2, 4, 4, 3), np.uint8)
    return lambda root: np.savez(root / "train.npz", images=pixels, labels=labels)


def _npy(shape: object, dtype: str = "'|u1'", version: int = 1) -> bytes:
    """Return the header of an .npy file."""
    header = (
        f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    )
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + size + header


def _zip(arrays: Mapping[str, bytes], compression: int) -> Callable:
    """Return a function that writes an .npz archive of raw .npy files."""

    def write(root: pathlib.Path) -> None:
        with zipfile.ZipFile(root / "train.npz", "w", compression) as archive:
            for name, data in arrays.items():
                archive.writestr(f"{name}.npy", data)

    return write


def _npz_bomb(compression: int) -> Callable:
    """Return a function that writes an .npz archive which expands to gigabytes."""

    def write(root: pathlib.Path) -> None:
        with zipfile.ZipFile(root / "train.npz", "w", compression) as archive:
            with archive.open("images.npy", "w", force_zip64=True) as file:
                file.write(_npy((_GIGABYTES // 3_000_000, 1000, 1000, 3)))
                for _ in range(_GIGABYTES // 3_000_000):
                    file.write(bytes(3_000_000))
            labels = np.zeros(_GIGABYTES // 3_000_000, int)
            archive.writestr(
                "labels.npy", _npy(labels.shape, "'<i8'") + labels.tobytes()
            )

    return write


def _parquet(columns: Mapping, features: str | None = None) -> Callable:
    """Return a function that writes a Parquet file.

    columns: replacements of good columns. features: value of Hugging Face's metadata.
    """

    def write(root: pathlib.Path) -> None:
        table = pa.table({"image": [_PNG] * 2, "label": [0, 1], **columns})
        if features is not None:
            table = table.replace_schema_metadata({"huggingface": features})
        pq.write_table(table, root / "train.parquet")

    return write


def _parquet_bomb(codec: str) -> Callable:
    """Return a function that writes a Parquet file which expands to gigabytes."""

    def write(root: pathlib.Path) -> None:
        count = _GIGABYTES // 2**20
        table = pa.table({"image": [bytes(2**20)] * count, "label": [0] * count})
        pq.write_table(
            table,
            root / "train.parquet",
            compression=codec,
            use_dictionary=codec == "none",
            dictionary_pagesize_limit=2**24,
        )

    return write


def _folder(name: str | bytes, data: bytes | Callable) -> Callable:
    """Return a function that writes a folder of images with one more file.

    name: name of the file. data: its bytes, or a function that makes the file at a path.
    """

    def write(root: pathlib.Path) -> None:
        images.write_folders(root)
        path = os.path.join(os.fsencode(root), b"train", b"cat", os.fsencode(name))
        if callable(data):
            data(path)
        else:
            with open(path, "wb") as file:
                file.write(data)

    return write


def _chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file, with its length and checksum."""
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum


def _png(width: int, height: int, data: bytes, *chunks: bytes, depth: int = 8) -> bytes:
    """Return a PNG file; data: compressed pixels. chunks: further chunks."""
    head = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    all_chunks = [
        _chunk(b"IHDR", head),
        *chunks,
        _chunk(b"IDAT", data),
        _chunk(b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(all_chunks)


def _bmp(width: int, height: int) -> bytes:
    """Return a BMP file with few pixels and this size in its header."""
    head = struct.pack("<IHHIIiiHH", 54, 0, 0, 54, 40, width, height, 1, 24)
    return b"BM" + head + bytes(24)


def _black_image(size: tuple[int, int], kind: str, **kwargs) -> bytes:
    """Return an encoded black image; kwargs: options of Pillow's encoder."""
    out = io.BytesIO()
    Image.new("RGB", size).save(out, kind, **kwargs)
    return out.getvalue()


def _terabyte(path: bytes) -> None:
    """Make a sparse file of a terabyte."""
    with open(path, "wb") as file:
        file.truncate(2**40)


def _cifar(batch: bytes) -> Callable:
    """Return a function that writes CIFAR-10 with this test batch."""

    def write(root: pathlib.Path) -> None:
        images.write_cifar(root)
        (root / "cifar-10-batches-py/test_batch").write_bytes(batch)

    return write


def _array_record(records: list[bytes]) -> Callable:
    """Return a function that writes an ArrayRecord file."""

    def write(root: pathlib.Path) -> None:
        from array_record.python import array_record_module

        path = str(root / "train.array_record-00000-of-00001")
        writer = array_record_module.ArrayRecordWriter(path, "group_size:1")
        for record in records:
            writer.write(record)
        writer.close()

    return write


def _mnist(data: bytes) -> Callable:
    """Return a function that writes MNIST with this file of test images."""

    def write(root: pathlib.Path) -> None:
        labels = struct.pack(">II", 2049, 1) + b"\0"
        (root / "t10k-labels-idx1-ubyte").write_bytes(labels)
        (root / "t10k-images-idx3-ubyte.gz").write_bytes(data)

    return write
