"""Which Python the Makefile and the checks of a clean checkout take."""

import os
import pathlib
import subprocess

import pytest

import jbias
from tests import cases

ROOT = pathlib.Path(jbias.__file__).parents[1]


def script(path: pathlib.Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def call(*command: str, **environment: str) -> tuple[int, str]:
    # Of this run's own make nothing is handed on.
    clean = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "PYTHON")}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=clean | environment,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@cases.each(
    ("names", "older", "found"),
    [
        ({"3.13": "echo /new/13", "3.12": "echo /new/12"}, True, "/new/13\n"),
        ({"3.13": "exit 127", "3.12": "echo /new/12"}, True, "/new/12\n"),
        ({"3.13": "echo /new/13", "3.12": "echo /new/12"}, False, ""),
        ({"3.13": "exit 127", "3.12": "exit 127"}, True, ""),
    ],
)
def test_the_newest_python(tmp_path, names, older, found):
    for name, text in names.items():
        script(tmp_path / f"bin/python{name}", text)
    asks = script(tmp_path / "asks", f"exit {0 if older else 1}")
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    assert call(".ci/newest", asks, PATH=path) == (0, found)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["3.11", "3.13"])
def test_an_environment_of_another_python_is_refused(tmp_path, asked):
    script(tmp_path / "env/bin/python", "echo 3.11")
    python = script(tmp_path / "python", f"echo {asked}")
    make = ("make", "-s", "same-python", f"VENV={tmp_path / 'env'}")
    code, said = call(*make, f"PYTHON={python}")
    assert (code == 0) == (asked == "3.11")
    told = f"env has Python 3.11, PYTHON={python} is 3.13; name another"
    assert (told in said.splitlines()[0]) if code else said == ""
    assert call(*make) == (
        0,
        "",
    )  # Without PYTHON=... the environment is what is there.


@pytest.mark.parametrize("code", [0, 7])
def test_the_demo_says_which_part_begins_and_how_long_the_rest_takes(tmp_path, code):
    """A method that was done before takes no time, and so says nothing of the others."""
    (tmp_path / "runs/demo/erm").mkdir(parents=True)
    (tmp_path / "runs/demo/erm/done").touch()
    python = script(
        tmp_path / "python", f'sleep 1; case "$*" in *jbias.report*) exit {code};; esac'
    )
    done = subprocess.run(
        [ROOT / ".ci/demo", python, "erm", "padain", "sagnet"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == code
    assert done.stdout.splitlines() == [
        "demo 1/4: training erm",
        "demo 2/4: training padain",
        "demo 3/4: training sagnet (about 1 min left)",
        "demo 4/4: writing the report",
    ]
