"""Files of PyTorch are read completely, without PyTorch and without running code."""

import io
import os
import pathlib
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

from jbias.models import torch_files
from tests import cases

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
FORMS = ("torch_zip.pth", "torch_stream.pth")


@cases.each("form", FORMS)
def test_files_written_by_pytorch_are_read(form):
    """Reads views, transposes, empty tensors, scalars and every dtype."""
    arrays = torch_files.read(ORACLES / form)
    expected = np.load(ORACLES / "torch_files.npz")
    assert list(arrays) == expected.files  # In order; "steps", no tensor, is left out.
    for name in expected.files:
        np.testing.assert_array_equal(arrays[name], expected[name])
        assert arrays[name].dtype == expected[name].dtype
        assert arrays[name].flags.writeable and arrays[name].flags.owndata


@cases.each("form", FORMS)
@cases.each("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_refused(form, share, tmp_path):
    data = (ORACLES / form).read_bytes()
    path = tmp_path / "cut.pth"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match="cut.pth: must be a PyTorch state dict"):
        torch_files.read(path)


def test_refuses_damaged_numbers(tmp_path):
    """Damaged numbers violate the archive's checksums."""
    data = bytearray((ORACLES / "torch_zip.pth").read_bytes())
    numbers = np.load(ORACLES / "torch_files.npz")["float"].tobytes()
    data[data.index(numbers) + 7] ^= 1
    path = tmp_path / "damaged.pth"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged.pth: .*CRC"):
        torch_files.read(path)


class Runs:
    """An object whose pickle calls os.mkdir."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def stream(*objects) -> bytes:
    head = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    return b"".join(pickle.dumps(x, protocol=2) for x in (*head, *objects, []))


def archive(content) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("x/data.pkl", pickle.dumps(content, protocol=2))
    return file.getvalue()


@cases.each("form", [stream, archive])
def test_reading_runs_no_code(form, tmp_path):
    path, folder = tmp_path / "evil.pth", tmp_path / "made"
    path.write_bytes(form({"weight": Runs(folder)}))
    with pytest.raises(ValueError, match=r"asks for posix.mkdir: it wants to run"):
        torch_files.read(path)
    assert not folder.exists()


@cases.each(
    ("named", "is_hostile"),
    [
        ("posix system", True),
        ("os.path join", True),
        ("subprocess Popen", True),
        ("builtins eval", True),
        ("__builtin__ execfile", True),
        ("builtins getattr", False),  # Of classes within classes, in older protocols.
        ("argparse Namespace", False),
        ("osprey Net", False),
    ],
)
def test_the_error_of_a_malicious_file_does_not_advise_torch_load(
    named, is_hostile, tmp_path
):
    """The error does not advise torch.load, which would run the command."""
    path = tmp_path / "evil.pth"
    module, name = named.split()
    pickled = f"c{module}\n{name}\n.".encode()
    with zipfile.ZipFile(path, "w") as members:
        members.writestr("x/data.pkl", pickled)
    with pytest.raises(ValueError, match=f"asks for {module}.{name}") as refused:
        torch_files.read(path)
    error_text = str(refused.value)
    assert ("do not load it" in error_text) == is_hostile
    assert ("torch.load" in error_text) != is_hostile


@cases.each("form", [stream, archive])
@cases.each("content", [[1, 2], "weights", 3])
def test_files_without_state_dict_are_refused(form, content, tmp_path):
    path = tmp_path / "other.pth"
    path.write_bytes(form(content))
    with pytest.raises(ValueError, match="must be a PyTorch state dict"):
        torch_files.read(path)


@cases.each("key", [0, b"fc.weight", None])
def test_a_state_dict_with_keys_other_than_text_is_refused(key):
    state = {"fc.bias": torch_files.Tensor("0", 0, (8,), (1,)), key: 1}
    with pytest.raises(
        ValueError, match=r"x.pth: .* keys must be text, got "
    ) as refused:
        torch_files.TorchFile("x.pth", {}, {"0": np.zeros(8)}).arrays(state)
    assert "\n" not in str(refused.value)


def test_refuses_the_oldest_form_by_name(tmp_path):
    path = tmp_path / "old.pth"
    with tarfile.open(path, "w") as members:
        members.addfile(tarfile.TarInfo("pickle"))
    with pytest.raises(ValueError, match=r"tar file of PyTorch before 0.1.11"):
        torch_files.read(path)


@cases.each(
    ("offset", "shape", "strides"),
    [(0, (3, 3), (3, 1)), (-1, (2,), (1,)), (0, (2,), (-1,)), (8, (1,), (1,))],
)
def test_tensors_outside_their_storage_are_refused(offset, shape, strides):
    storages = {"0": np.arange(8, dtype=np.float32)}
    tensor = torch_files.Tensor("0", offset, shape, strides)
    with pytest.raises(ValueError, match="a tensor"):
        torch_files.TorchFile("x.pth", {}, storages).arrays({"x": tensor})


@cases.each(
    ("content", "message"),
    [
        (b"hello, these are weights", "does not begin as what torch.save writes"),
        (b"\x7fELF and more of it", "does not begin as what torch.save writes"),
        (b"PK\3\4" + bytes(100), "end is missing or damaged .* copy the file anew"),
    ],
)
def test_errors_of_other_or_truncated_files_have_a_remedy(tmp_path, content, message):
    path = tmp_path / "x.pth"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        torch_files.read(path)


@cases.each(
    "content",
    [b"\x80\x02L" + b"9" * 5000 + b"L\n.", pickle.dumps({1 << 20_000: 1}, 2)],
)
def test_a_giant_number_has_a_specific_error(content, tmp_path):
    path = tmp_path / "giant.pth"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", content)
        file.writestr("a/version", "3\n")
    with pytest.raises(ValueError, match="giant.pth: .* whole number of more than 128"):
        torch_files.load(path)
