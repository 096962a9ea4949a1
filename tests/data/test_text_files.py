"""Text files of users may begin with a byte order mark, and must be regular files."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from jbias import data
from jbias.data import class_maps, set_options
from jbias.data.sets import split_files
from jbias.evals import networks
from tests import cases
from tests.data import test_bad_input as bad

MARK = "\ufeff"


@pytest.fixture(autouse=True)
def fail_if_a_read_hangs(tmp_path, monkeypatch):
    """End the test if a read waits for ever."""
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    signal.alarm(30)
    yield
    signal.alarm(0)


@pytest.fixture
def root(tree):
    return tree({"photo/cat": 3, "photo/dog": 3})


def load(root, **options):
    return data.load("folder", "photo", root=str(root), size=8, **options)


def write(path, text: str) -> str:
    path.write_text(MARK + text.replace("\n", "\r\n"), encoding="utf-8", newline="")
    return str(path)


@cases.each(
    "read", [lambda path: class_maps.resolve_outputs(path), networks.list_classes]
)
def test_the_first_class_of_a_network_has_no_mark(read, tmp_path):
    path = write(tmp_path / "names.txt", "cat\ndog\n")
    assert list(read(path)) == ["cat", "dog"]


def test_the_first_class_of_shards_has_no_mark(tmp_path):
    members = {"0.png": bad.jpeg(), "0.cls": b"0", "1.png": bad.jpeg(), "1.cls": b"1"}
    bad.tar(tmp_path, members, name="photo.tar")
    path = write(tmp_path / "names.txt", "cat\ndog\n")
    assert load(tmp_path, classes=path).classes == ("cat", "dog")


@cases.each(
    "text", ["0\n2\n4\n", "1 0 1 0 1 0", "True\nFalse\nTrue\nFalse\nTrue\nFalse"]
)
def test_images_to_keep_are_read_with_a_mark(root, text, tmp_path):
    source = load(root, keep=write(tmp_path / "keep.txt", text))
    assert source.files == load(root).files[::2]


@cases.each("text", ["0 two", "0 1_0", "0 1.5", "0 ٣"])
def test_keep_refuses_text_that_is_no_whole_number(root, text, tmp_path):
    """Python's int reads 1_0 as 10, and accepts digits of other scripts; both are refused."""
    with pytest.raises(ValueError, match="must be a whole number, got") as error:
        load(root, keep=write(tmp_path / "keep.txt", text))
    assert "\n" not in str(error.value)


def test_an_archive_of_arrays_is_no_list_of_images_to_keep(root, tmp_path):
    with (tmp_path / "keep.npy").open("wb") as file:
        np.savez(file, keep=np.arange(3))
    with pytest.raises(ValueError, match=r"keep must be \.npy or text"):
        load(root, keep=str(tmp_path / "keep.npy"))


def test_notes_and_lists_in_json_are_read_with_a_mark(root, tmp_path):
    full_source = load(root)
    path = str(tmp_path / "columns.csv")
    set_options.write_columns(path, full_source, {"size": ["big", "small"] * 3})
    list_path = tmp_path / "list.json"
    entry = set_options.damaged_entry(full_source, {0: "cut"})
    set_options.write_damaged(str(list_path), {"photo": entry})
    for file in (tmp_path / "columns.csv.json", list_path):
        write(file, file.read_text(encoding="utf-8"))
    assert load(root, columns=path).values["size"] == ("big", "small")
    assert len(load(root, skip=str(list_path))) == 5


@cases.each(
    "option", ["keep.txt", "keep.npy", "skip.json", "columns.csv", "columns.csv.json"]
)
def test_a_pipe_is_refused_before_it_is_read(root, option, tmp_path):
    name = option.partition(".")[0]
    path = (
        tmp_path / option.removesuffix(".json")
        if name == "columns"
        else tmp_path / option
    )
    if option == "columns.csv.json":
        path.write_text("image,size\n0,big\n", encoding="utf-8")
    os.mkfifo(tmp_path / option)
    with pytest.raises(ValueError, match="must be a regular file") as error:
        load(root, **{name: str(path)})
    assert "\n" not in str(error.value)


@cases.each(
    "read", [lambda path: class_maps.resolve_outputs(path), networks.list_classes]
)
def test_a_pipe_names_no_classes(read, tmp_path):
    os.mkfifo(tmp_path / "names.txt")
    with pytest.raises(ValueError, match="must be a regular file"):
        read(str(tmp_path / "names.txt"))


def test_a_note_in_utf8_is_read_in_every_locale(tmp_path):
    note = dict(made_by="x", source="Müller", preprocessing="z", cite="ü")
    path = tmp_path / "photo.json"
    path.write_text(json.dumps(note, ensure_ascii=False), encoding="utf-8")
    code = (
        "import sys; from jbias.data.sets import split_files;"
        f"print(ascii(split_files.provenance({str(path)!r})))"
    )
    ascii_locale = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**os.environ, **ascii_locale}
    command = [sys.executable, "-c", code]
    output = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == ascii(split_files.provenance(str(path)))
    assert "xfcller" in output.stdout
