"""What a workdir says of the code that trained in it."""

import pathlib
import subprocess

import pytest

from jbias.runs import workdirs

ROOT = pathlib.Path(__file__).parents[2]


def test_provenance_names_the_commit_of_the_checkout():
    command = ["git", "-C", ROOT, "rev-parse", "HEAD"]
    try:
        head = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a checkout, and git")
    commit = workdirs.software_versions()["code"]["commit"]
    assert commit.removesuffix("+") == head.strip()
