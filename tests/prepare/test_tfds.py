"""TensorFlow Datasets (TFDS) are prepared, or one line says which package or file is
missing.
"""

import pytest
import requests

from jbias import data, prepare
from jbias.configs import erm
from tests import cases, tfds_sets


@pytest.fixture(scope="module")
def builder():
    """Data set of TFDS's catalogue that needs neither a network nor TensorFlow."""
    return tfds_sets.tiny_builder()


def test_a_prepared_set_is_read(builder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(builder, "n", 9)  # Another test may have made it longer.
    command = ["tfds", "--name=tiny", f"--root={tmp_path}"]
    for _ in range(2):  # It stays as it is.
        assert prepare.main(command) == 0
        assert "tiny/1.2.0: train 9; read them with data='tfds'" in (
            capsys.readouterr().out
        )
    source = data.load("tfds", "train", root=str(tmp_path), builder="tiny", size=16)
    assert source.classes == tuple(tfds_sets.CLASSES)


def refused(capsys, *arguments) -> str:
    assert prepare.main(["tfds", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def make_preparation_fail(monkeypatch, builder, error) -> None:
    def download_and_prepare(self):
        print("***\nFailed to import TensorFlow\n***")
        raise error

    monkeypatch.setattr(builder, "download_and_prepare", download_and_prepare)


@cases.each(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow"),
            "tiny needs tensorflow to be prepared, .* pip install 'jbias.prepare.'",
        ),
        (
            requests.ConnectionError("Name or\nservice not known"),
            (
                r"cannot be downloaded here \(Name or service not known\); where there is a"
                " network, run `jbias prepare tfds --name=tiny --root=.*`, and copy"
            ),
        ),
    ],
)
def test_errors_of_preparation_are_one_line(
    builder, tmp_path, capsys, monkeypatch, error, message
):
    make_preparation_fail(monkeypatch, builder, error)
    error_text = refused(capsys, "--name=tiny", f"--root={tmp_path}")
    with pytest.raises(ValueError, match=message):
        raise ValueError(error_text)


def test_unknown_sets_are_refused_with_the_nearest(builder, capsys):
    assert "got 'imagenete'; did you mean 'imagenette'?" in refused(
        capsys, "--name=imagenete/320px"
    )


def test_a_preset_names_a_prepared_set(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    text = "data=tfds,name=imagenette/320px,tests=validation"
    c = erm.get_config(text)
    assert c.train.split == "train[:90%]"
    for part in (c.train, c.valid, c.tests.validation):
        assert (part.data, part.builder) == ("tfds", "imagenette/320px")
        assert part.root == str(tmp_path)
    assert erm.get_config(f"{text},root=sets").train.root == "sets"
    with pytest.raises(ValueError, match="data=tfds needs name=<set>"):
        erm.get_config("data=tfds")
