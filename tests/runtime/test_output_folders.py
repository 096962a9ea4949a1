"""A folder that cannot be written is refused before anything is computed."""

import errno
import os
import tempfile

import pytest

from jbias import export_stimuli
from jbias.evals import suites
from jbias.runtime import outputs


@pytest.fixture
def unwritable(monkeypatch):
    """Fixture: no file can be created, as on a read-only disk."""

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)


def test_checking_a_folder_does_not_change_it(tmp_path):
    outputs.check_writable_folder(tmp_path / "new/deep")
    outputs.check_writable_folder(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_errors_name_an_unwritable_folder(tmp_path, unwritable):
    with pytest.raises(ValueError, match="--out: .*cannot be written .Read-only"):
        outputs.check_writable_folder(tmp_path / "new/deep")
    assert not [*tmp_path.iterdir()]


def test_stimuli_are_refused_before_their_sets_are_opened(
    tmp_path, unwritable, monkeypatch, capsys
):
    def fail(*_, **__):
        raise AssertionError("sets were opened")

    monkeypatch.setattr(suites, "open_suite", fail)
    argv = ["--suite=jbias:suites/biases", f"--out={tmp_path}/new"]
    assert export_stimuli.main(argv) == 2
    error_text = capsys.readouterr().err
    assert (
        "cannot be written (Read-only file system); name another folder" in error_text
    )
