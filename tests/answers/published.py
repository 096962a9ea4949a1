"""The published decisions beside JBIAS_TEST_DATA, for the tests of this folder."""

import os
import pathlib

import pytest

PAPER = pathlib.Path(os.environ.get("JBIAS_TEST_DATA", "nowhere")).parent / "paper"
VLM, PEOPLE = PAPER / "decisions-vlm", PAPER / "decisions"
needed = pytest.mark.skipif(
    not (VLM.is_dir() and PEOPLE.is_dir()),
    reason="needs the published decisions beside JBIAS_TEST_DATA",
)
