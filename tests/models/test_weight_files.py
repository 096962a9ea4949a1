"""Published weights are recognised by content, converted, or refused with a remedy."""

import hashlib
import os
import pathlib
import runpy
import shutil
import subprocess

import numpy as np
import pytest

from jbias import prepare
from jbias.models import registry, style_transfer, weight_files
from tests import cases

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
TORCH_MADE = runpy.run_path(str(ORACLES / "torch_made.py"))
NAMES = {"vgg_normalised.pth": "adain_vgg.pth", "decoder.pth": "adain_decoder.pth"}


@pytest.fixture
def folder(tmp_path):
    """Return a folder of files with the published names and shapes and our numbers."""
    for name, oracle_file in NAMES.items():
        shutil.copy(ORACLES / oracle_file, tmp_path / name)
    return tmp_path


@pytest.fixture
def published_entry(folder, monkeypatch):
    """Return the description of published weights with the blob ids of our files."""
    files = {name: weight_files.blob_id(folder / name) for name in NAMES}
    entry = style_transfer.PUBLISHED._replace(files=files)
    monkeypatch.setattr(registry, "CONVERTERS", {"vgg_adain": entry})
    return entry


def test_blob_ids_equal_gits(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"test content\n")
    # From Pro Git, 10.2, "Git Objects".
    assert weight_files.blob_id(path) == "d670460b4b4aece5915caf5c68d12f560a9fe3e4"


def test_published_files_are_listed_with_their_ids():
    assert style_transfer.PUBLISHED.files == {
        "vgg_normalised.pth": "18a783877329319e5a640ae20f7b98c64e5f5572",
        "decoder.pth": "ccd7832185528ee899f752d532c3a5f08627196a",
    }


def test_converts_to_our_layout(folder, published_entry):
    """Every used weight is converted under its name, with input channels first."""
    arrays = weight_files.read_folder(published_entry, folder)
    assert {
        name: x.shape for name, x in arrays.items()
    } == style_transfer.PUBLISHED.shapes
    for name, value in arrays.items():
        net, number, kind = name.split("/")
        source = f"{number}.{'weight' if kind == 'kernel' else 'bias'}"
        shape = TORCH_MADE["shapes"]("vgg" if net == "encoder" else net)[source]
        expected = TORCH_MADE["tensor"](source, shape)
        if kind == "kernel":
            expected = expected.transpose(2, 3, 1, 0)
        np.testing.assert_array_equal(value, expected)


def test_the_commands_output_can_be_loaded(folder, published_entry, capsys):
    out = folder / "new" / "vgg_adain.npz"
    command = ["weights", "--net=vgg_adain", f"--src={folder}", f"--out={out}"]
    assert prepare.main(command) == 0
    assert "vgg_normalised.pth" in capsys.readouterr().out
    stored, direct = (
        weight_files.load(published_entry, out),
        weight_files.load(published_entry, folder),
    )
    assert set(stored) == set(direct)
    for name in stored:
        np.testing.assert_array_equal(stored[name], direct[name])
    again = folder / "again.npz"
    weight_files.write_npz(again, stored)
    digests = {hashlib.sha256(p.read_bytes()).hexdigest() for p in (out, again)}
    assert len(digests) == 1
    assert {p.name for p in out.parent.iterdir()} == {out.name}


REMEDY = (
    "take vgg_normalised.pth and decoder.pth from https://github.com/",
    "jbias prepare weights --net=vgg_adain",
    "without them: transfer=small (in a config's argument), or render on data=shapes",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_refused_with_the_remedy(
    name, folder, published_entry, capsys
):
    (folder / name).unlink()
    out = folder / "out.npz"
    command = ["weights", "--net=vgg_adain", f"--src={folder}", f"--out={out}"]
    assert prepare.main(command) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"needs {name} in {folder}, got none" in error
    assert all(words in error for words in REMEDY)
    assert not out.exists()


def test_an_altered_file_is_refused_before_it_is_read(folder, published_entry):
    path = folder / "decoder.pth"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        ValueError, match=rf"{path} with git blob id .*, got "
    ) as raised:
        weight_files.read_folder(published_entry, folder)
    assert all(words in str(raised.value) for words in REMEDY)


def test_missing_weights_are_refused_with_the_remedy(tmp_path):
    for weights in (None, str(tmp_path / "none.npz"), str(tmp_path)):
        with pytest.raises(ValueError, match=r"models.vgg_adain: ") as raised:
            style_transfer.vgg(weights=weights)
        assert all(words in str(raised.value) for words in REMEDY)


def test_weights_of_another_network_are_refused(tmp_path):
    path = tmp_path / "other.npz"
    shapes = style_transfer.PUBLISHED.shapes
    arrays = {name: np.zeros(shape, np.float16) for name, shape in shapes.items()}
    name = "decoder/28/kernel"
    np.savez(path, **{k: v for k, v in arrays.items() if k != name})
    with pytest.raises(ValueError, match=f"lacks {name!r}; make it again"):
        style_transfer.vgg(weights=str(path))
    np.savez(path, **{**arrays, name: arrays[name][..., :1]})
    with pytest.raises(ValueError, match=r"must have shape .*, got \(3, 3, 64, 1\)"):
        style_transfer.vgg(weights=str(path))
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="must be an .npz file of weights"):
        style_transfer.vgg(weights=str(path))


@cases.each("dtype", [[("a", "f4"), ("b", "i4")], "c8", "U3", "M8[s]"])
def test_weights_of_non_real_types_are_refused(dtype, tmp_path):
    np.savez(tmp_path / "odd.npz", good=np.ones(2), kernel=np.zeros(2, dtype))
    with pytest.raises(
        ValueError, match=r"odd.npz: must be .*, got Cannot cast array data"
    ):
        weight_files.read_npz(tmp_path / "odd.npz")


def test_unknown_networks_are_refused(tmp_path, capsys):
    command = ["weights", "--net=vgg", f"--src={tmp_path}", f"--out={tmp_path}/x.npz"]
    assert prepare.main(command) == 2
    assert "--net: unknown" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_blob_ids_equal_the_output_of_git(folder):
    path = folder / "decoder.pth"
    printed = subprocess.run(
        ["git", "hash-object", os.fspath(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == weight_files.blob_id(path)
