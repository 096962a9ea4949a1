"""Data sets crafted to hang or to fill memory: each is refused in one line, quickly."""

import gzip
import json
import os
import pathlib
import signal
import struct
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from jbias import data, prepare
from qa.hostile import attempt
from tests.data import test_bad_input as bad

BOMB_MIB = 132  # Size of an unpacked bomb, more than a small file may have.


@pytest.fixture(autouse=True)
def fail_if_a_read_hangs():
    """End the test if a read waits for ever."""
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path_factory.mktemp("cache")))


def tar_of(**members):
    return lambda root: bad.tar(root, {f"a.{k}": v for k, v in members.items()})


def hugging(metadata, label=0):
    def write(root):
        table = pa.table({"image": [bad.jpeg()] * 3, "label": [label] * 3})
        table = table.replace_schema_metadata({"huggingface": metadata})
        pq.write_table(table, root / "train.parquet")

    return write


def bomb(rows: int, size: int, **options):
    def write(root):
        table = pa.table({"image": [bytes(size)] * rows, "label": [0] * rows})
        pq.write_table(table, root / "train.parquet", compression="zstd", **options)

    return write


def npz(**arrays):
    return lambda root: np.savez_compressed(root / "train.npz", **arrays)


def headers(root):
    """Write a tar file of headers only, each announcing another header."""
    entry = tarfile.TarInfo("a")
    entry.type = tarfile.XHDTYPE
    (root / "train.tar").write_bytes(entry.tobuf() * 3000 + bytes(1024))


def mnist(root):
    for kind, shape in (
        ("images-idx3", (BOMB_MIB, 1024, 1024)),
        ("labels-idx1", (BOMB_MIB,)),
    ):
        with gzip.open(root / f"train-{kind}-ubyte.gz", "wb", 1) as file:
            file.write(struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape))
            for _ in range(BOMB_MIB):
                file.write(bytes(int(np.prod(shape[1:]))))


def latin(path):
    """Return the path with a name encoded in Latin-1."""
    return os.fsdecode(os.fsencode(path) + b"/caf\xe9")


def latin_file(root):
    bad.folders(root)
    pathlib.Path(latin(root / "train/cat") + ".jpg").write_bytes(bad.jpeg())


def latin_class(root):
    bad.folders(root)
    os.rename(root / "train/cat", latin(root / "train"))


PIXELS = np.zeros((3, 8, 8, 3), np.uint8)
FAR = "labels must be whole numbers"
CASES = {
    "a label of 37 bits": (tar_of(jpg=bad.jpeg(), cls=b"99999999999"), FAR),
    "a label of 31 bits": (tar_of(jpg=bad.jpeg(), cls=b"2000000000"), FAR),
    "a label without end": (tar_of(jpg=bad.jpeg(), json=b'{"label": 1e400}'), FAR),
    "half a label": (tar_of(jpg=bad.jpeg(), json=b'{"label": 1.5}'), FAR),
    "a label in Parquet": (hugging("{}", 2**40), "from 0 to 999,999 .*got 0 to 1099"),
    "a label in npz": (
        npz(images=PIXELS, labels=np.array([0, 1, 2**40])),
        "from 0 to 999,999 .*docs/data.md.* number the classes from 0",
    ),
    "deep metadata": (hugging("[" * 100_000), "must have its class names"),
    "metadata in depth": (hugging('{"info":' * 100_000), "must have its class names"),
    "names that are none": (
        hugging(json.dumps({"info": {"features": {"label": {"names": 5}}}})),
        "must have its class names as Hugging Face has",
    ),
    "pages that grow": (bomb(BOMB_MIB, 2**20, use_dictionary=False), "would become"),
    "rows of nothing": (bomb(10**6, 0), "would become"),
    "arrays that grow": (
        npz(
            images=np.zeros((BOMB_MIB, 1024, 1024), np.uint8),
            labels=np.zeros(BOMB_MIB, int),
        ),
        "would become",
    ),
    "digits that grow": (mnist, "would become"),
    "headers without end": (headers, "must be a whole, uncompressed tar"),
    "a file's name": (latin_file, r"must be UTF-8 .*'cat/caf\\udce9.jpg'; rename"),
    "a folder's name": (latin_class, r"must be UTF-8 .*'caf\\udce9/0.jpg'; rename"),
    "a name in an archive": (
        lambda r: bad.tar(r, {latin("") + "/a.jpg": bad.jpeg(), "b/b.jpg": bad.jpeg()}),
        "must be UTF-8",
    ),
    **{
        f"a pipe for {name}": (lambda r, n=name: os.mkfifo(r / n), "a regular file")
        for name in ("train.tar", "train.parquet", "train.array_record", "train.npz")
    },
    "a device for an archive": (
        lambda r: (r / "train.tar").symlink_to("/dev/zero"),
        "train.tar: must be a regular file",
    ),
}
DATA_BY_CASE = {
    **dict.fromkeys(
        ("a label in npz", "arrays that grow", "a pipe for train.npz"), "npz"
    ),
    "digits that grow": "mnist",
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_hostile_sets_are_refused_in_one_line(case, tmp_path, capsys):
    write, match = CASES[case]
    write(tmp_path)
    name = DATA_BY_CASE.get(case, "folder")
    with pytest.raises(ValueError, match=match):
        data.load(name, "train", root=str(tmp_path))
    argv = [f"--src={tmp_path}", f"--data={name}", "--splits=train"]
    assert prepare.main(["check", *argv]) == 2
    error_text = capsys.readouterr().err
    assert error_text.startswith("jbias: ") and error_text.count("\n") == 1
    assert error_text.strip().isprintable()


def test_rows_that_repeat_a_page_are_damaged(tmp_path, capsys):
    """A file stores a page of a megabyte once, and each row group is read once."""
    bomb(BOMB_MIB, 2**20, use_dictionary=["image"])(tmp_path)
    read = pa.total_allocated_bytes()
    assert prepare.main(["check", f"--src={tmp_path}", "--splits=train"]) == 1
    assert "bytes that would become" in capsys.readouterr().out
    assert pa.total_allocated_bytes() - read < 2**20


def test_a_pipe_among_images_is_damaged(tmp_path, capsys):
    os.mkfifo(bad.folders(tmp_path) / "train/cat/z.jpg")
    assert prepare.main(["check", f"--src={tmp_path}"]) == 1
    assert "z.jpg: must be a regular file" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("label", [b"999999", b'{"label": "7"}', b'{"label": 7.0}'])
def test_labels_of_whole_numbers_are_read(label, tmp_path):
    ending = "json" if label[:1] == b"{" else "cls"
    bad.tar(tmp_path, {"a.jpg": bad.jpeg(), f"a.{ending}": label})
    source = data.load("folder", "train", root=str(tmp_path), size=8)
    assert source.columns["label"].tolist() == [7 if ending == "json" else 999_999]


def test_names_with_escapes_are_shown_as_codes(tmp_path, capsys):
    path = bad.folders(tmp_path) / "train" / "cat" / "a\x1b[31m\nb.png"
    path.write_bytes(b"no")
    assert prepare.main(["check", f"--src={tmp_path}"]) == 1
    out = capsys.readouterr().out
    assert out.count("\n") == 3 and "\x1b" not in out
    assert r"cat/a\x1b[31m\nb.png" in out


def test_unexpected_errors_are_one_line(monkeypatch, tmp_path, capsys):
    def load(*_, **__):
        raise ZeroDivisionError("odd")

    bad.folders(tmp_path)
    monkeypatch.setattr(data, "load", load)
    assert prepare.main(["check", f"--src={tmp_path}"]) == 2
    error_text = capsys.readouterr().err
    assert (
        error_text.startswith("jbias: ZeroDivisionError: odd (")
        and error_text.count("\n") == 1
    )
    assert "JBIAS_TRACEBACK=1" in error_text


def test_labels_of_the_largest_known_set_fit(tmp_path):
    """The class numbers of ImageNet-21k are accepted."""
    bad.tar(tmp_path, {"a.jpg": bad.jpeg(), "a.cls": b"21842"})
    source = data.load("folder", "train", root=str(tmp_path), size=8)
    assert len(source.classes) == 21_843
    assert Image.fromarray(source[0]["image"]).size == (8, 8)


@pytest.mark.slow
def test_memory_is_measured_for_the_command_alone(tmp_path):
    """Memory used to write a set does not count against the process that reads the set."""
    (b"1" * 400_000_000).count(1)
    idle = [sys.executable, "-S", "-c", "import time; time.sleep(0.3)"]
    assert 0 < attempt._run(idle, tmp_path)[2] < 200
    took = [
        sys.executable,
        "-S",
        "-c",
        "x = b'1' * 300_000_000; import time; time.sleep(0.3)",
    ]
    assert 280 < attempt._run(took, tmp_path)[2] < 500
