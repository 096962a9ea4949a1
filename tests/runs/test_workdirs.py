"""The provenance in a workdir: the code that trained, and how the run ended."""

import pathlib
import subprocess

import pytest
from etils import epath

from jbias.runs import workdirs
from tests import cases

ROOT = pathlib.Path(__file__).parents[2]


def test_provenance_names_the_commit_of_the_checkout():
    command = ["git", "-C", ROOT, "rev-parse", "HEAD"]
    try:
        head = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a checkout, and git")
    commit = workdirs.software_versions()["code"]["commit"]
    assert commit.removesuffix("+") == head.strip()


@cases.each(
    ("content", "ending"),
    [
        (b"finished\n", "finished"),
        (b"diverged\n", "diverged"),
        (b"", ""),
        (b"\xff\xfe", ""),
        (None, ""),
    ],
)
def test_the_ending_of_a_run_is_read_or_unknown(tmp_path, content, ending):
    """After a power loss the file may be empty: the run then ends a second time."""
    path = epath.Path(tmp_path / "done")
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    assert workdirs.read_done(epath.Path(tmp_path)) == ending


def test_errors_name_a_folder_in_the_place_of_a_file(tmp_path):
    (tmp_path / "done").mkdir()
    with pytest.raises(OSError, match="done: Is a directory; a folder is where a file"):
        workdirs.read_done(epath.Path(tmp_path))
