"""Colored MNIST as arrays: complete, deterministic, and never mixed with other settings."""

import json
import struct

import numpy as np
import pytest

from jbias import data, prepare
from tests import cases


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Folder with sixty training and twenty test digits of noise."""
    folder, rng = tmp_path_factory.mktemp("digits"), np.random.default_rng(0)
    for stem, n in (("train", 60), ("t10k", 20)):
        images = rng.integers(0, 256, (n, 28, 28), np.uint8)
        labels = (np.arange(n) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (folder / f"{stem}-{kind}-ubyte").write_bytes(header + array.tobytes())
    return str(folder)


def run(root, out, *args):
    return prepare.main(["colored-mnist", f"--root={root}", f"--out={out}", *args])


def read_files(out):
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize(
    ("form", "size", "columns"),
    [
        ("irm", 14, {"label", "attribute", "digit", "domain"}),
        ("conditional", 32, {"label", "attribute", "digit"}),
    ],
)
def test_written_arrays_are_read_back(root, tmp_path, form, size, columns, capsys):
    assert run(root, tmp_path, f"--form={form}", "--correlation=0.8", "--seed=3") == 0
    output = capsys.readouterr().out
    assert "train+test made, train+test in all" in output and f"size={size}" in output
    for split in ("train", "test"):
        source = data.load(
            "colored_mnist", split, root=root, form=form, correlation=0.8, seed=3
        )
        read = data.load("npz", split, root=str(tmp_path), size=size)
        np.testing.assert_array_equal(read.images, source.images)
        assert read.classes == source.classes and set(read.columns) == columns
        for key, column in source.columns.items():
            np.testing.assert_array_equal(read.columns[key], column)
        assert read.note == (
            f"made by jbias.prepare colored-mnist of colored_mnist/{form}/{split},"
            f" {source.preprocessing}"
        )
        assert read.cite == source.cite
    names = {f"{split}.{end}" for split in ("train", "test") for end in ENDS}
    assert set(read_files(tmp_path)) == names


ENDS = ("json", "npz", "png")


@pytest.mark.slow
def test_a_second_call_writes_nothing_new(root, tmp_path, capsys):
    out, other = tmp_path / "a", tmp_path / "b"
    assert run(root, out) == 0
    first, times = read_files(out), {p: p.stat().st_mtime_ns for p in out.glob("*.npz")}
    capsys.readouterr()
    assert run(root, out) == 0
    assert "nothing made, train+test in all" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in out.glob("*.npz")} == times
    (out / "test.npz").unlink()
    (out / ".test.npz.part").write_bytes(b"half")
    assert run(root, out) == 0
    assert "test made, train+test in all" in capsys.readouterr().out
    assert run(root, other) == 0
    assert read_files(out) == read_files(other) == first


def test_an_interrupted_write_leaves_no_file(root, tmp_path, monkeypatch):
    def killed(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez_compressed", killed)
        with pytest.raises(KeyboardInterrupt):
            run(root, tmp_path)
    assert not list(tmp_path.glob("[!.]*.npz"))
    assert run(root, tmp_path) == 0
    assert len(data.load("npz", "train", root=str(tmp_path), size=14)) == 50


@pytest.mark.slow
@cases.each(
    ("args", "message"),
    [
        (["--seed=1"], "got others: seed is 0 there, 1 here; name another --out"),
        (["--correlation=0.3"], "correlation is None there, 0.3 here"),
        (["--form=domainbed"], "source is 'colored_mnist/irm/train' there"),
        (["--n=10"], "n is None there, 10 here"),
        (["--size=28"], "preprocessing is"),
        (["--grey"], "grey is None there, True here"),
    ],
)
def test_other_settings_are_refused_and_nothing_is_changed(
    root, tmp_path, args, message, capsys
):
    assert run(root, tmp_path) == 0
    contents = read_files(tmp_path)
    assert run(root, tmp_path, *args) == 2
    error_text = capsys.readouterr().err
    assert message in error_text and error_text.count("\n") == 1
    assert read_files(tmp_path) == contents


def test_other_digits_and_files_of_others_are_refused(root, tmp_path, capsys):
    assert run(root, tmp_path) == 0
    note = tmp_path / "test.json"
    changed = json.loads(note.read_text()) | {"fingerprint": "0"}
    note.write_text(json.dumps(changed))
    assert run(root, tmp_path) == 2
    assert "fingerprint is '0' there" in capsys.readouterr().err
    note.unlink()
    assert run(root, tmp_path) == 2
    assert "must be new, got one made by something else" in capsys.readouterr().err


@cases.each(
    ("args", "message"),
    [
        (["--form=imr"], "did you mean 'irm'?"),
        (["--splits=train+valid"], "got 'valid'"),
        (["--splits=train[:50%]"], "--splits must be whole ones"),
        (["--form=red", "--splits=train_0"], "split of form 'red'"),
        (["--correlation=2"], "correlation must be a number in [0, 1], got 2.0"),
        (["--n=1000"], "n must be a whole number from 1 to 50, got 1000"),
        (["--size=0"], "size must be a whole number >= 1, got 0"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(root, tmp_path, args, message, capsys):
    assert run(root, tmp_path / "out", *args) == 2
    error_text = capsys.readouterr().err
    assert message in error_text and error_text.count("\n") == 1
    assert not (tmp_path / "out").exists()
