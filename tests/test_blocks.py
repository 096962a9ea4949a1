"""Every block of code in the documentation runs, or has a reason why it is not run."""

import collections
import contextlib
import io
import os
import re
import subprocess
import sys

import pytest

from jbias import prepare
from tests import blocks, cases
from tests.report import conftest as reports

BLOCKS = blocks.read()
RUN = [block for block in BLOCKS if not block.reason]
PYTHON = [block for block in RUN if block.kind == "python"]
SHELL = [block for block in RUN if block.kind not in ("python", "pycon")]
QUICK = re.compile(r"jbias prepare samples ")


def pages(blocks_of_kind: list[blocks.Block]) -> list[str]:
    return list(dict.fromkeys(block.page for block in blocks_of_kind))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Make a folder like a checkout, with photographs; return its path."""
    blocks.place(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_reasons_are_known_and_few(record_property):
    """Reasons are known; `pytest -k reasons -s` lists the blocks that are not run."""
    reasons = collections.Counter(block.reason for block in BLOCKS if block.reason)
    for reason, n in sorted(reasons.items()):
        print(f"not run, {reason}: {n}")
        record_property(reason, n)
    assert set(reasons) <= blocks.REASONS
    marks = {block.mark for block in BLOCKS if block.mark}
    assert all(mark.startswith("not run: ") for mark in marks)
    assert len(RUN) > 30
    assert sum(reasons.values()) < 78


def test_pycon_is_run_by_doctest():
    """The only page of kind pycon is run by tests/stats/test_seeds_doc.py."""
    assert pages([b for b in RUN if b.kind == "pycon"]) == ["docs/statistics-seeds.md"]


@cases.each(
    "block",
    [b for b in BLOCKS if b.kind == "python"],
)
def test_python_compiles(block):
    compile(block.code, block.page, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(PYTHON))
def test_python_runs(page, checkout):
    names = blocks.predefined_names(page)
    folders = {"docs/start.md": "runs/first", "docs/own-table.md": "runs/demo"}
    sets = ("silhouette", "edge", "sketch", "cue_conflict", "corrupted")
    reports.make_runs(checkout / folders.get(page, "runs"), epochs=2, sets=sets)
    for block in PYTHON:
        if block.page == page:
            exec(compile(block.code, f"{page}:{block.line}", "exec"), names)  # noqa: S102


@pytest.mark.quick("command0")
@pytest.mark.parametrize(
    "command",
    [c for block in SHELL for c in blocks.commands(block) if QUICK.match(c)],
)
def test_quick_commands_run(command, checkout):
    arguments = blocks.shlex.split(command, comments=True)
    with contextlib.redirect_stdout(io.StringIO()):
        assert prepare.main(arguments[2:]) in (0, None)
    (out,) = [a.removeprefix("--out=") for a in arguments if a.startswith("--out=")]
    assert (checkout / out).stat().st_size > 1000


def test_commands_are_shrunk():
    command = (
        "jbias train --config=configs/padain.py:seeds=5,epochs=30 --config.algo.p=0.05"
    )
    assert blocks.shrunk(command) == (
        "python -m jbias train --config=configs/padain.py:smoke,seeds=5 --config.algo.p=0.05"
    )
    assert blocks.shrunk("jbias train --config=jbias:erm:demo,seeds=3") == (
        "python -m jbias train --config=jbias:erm:smoke,seeds=3"
    )
    assert blocks.shrunk("jbias train --config=jbias:erm").endswith("=jbias:erm:smoke")


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(SHELL))
def test_commands_run(page, tmp_path):
    """Run all shell commands of a page in sequence."""
    blocks.place(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(blocks.ROOT)}
    commands = [c for b in SHELL if b.page == page for c in blocks.commands(b)]
    for command in commands:
        words = blocks.shlex.split(blocks.shrunk(command))
        assert words[0] == "python", command
        completed = subprocess.run(
            [sys.executable, *words[1:]],
            check=False,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert completed.returncode == 0, f"{command}\n{completed.stderr[-2000:]}"
