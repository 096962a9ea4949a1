"""The choice of Python in the Makefile and in checks of a clean checkout."""

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
    # Without variables of a `make` that runs these tests.
    clean = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "PYTHON")}
    completed = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=clean | environment,
    )
    return completed.returncode, completed.stdout + completed.stderr


@pytest.mark.slow
@cases.each(
    ("names", "older", "expected"),
    [
        ({"3.13": "echo /new/13", "3.12": "echo /new/12"}, True, "/new/13\n"),
        ({"3.13": "exit 127", "3.12": "echo /new/12"}, True, "/new/12\n"),
        ({"3.13": "echo /new/13", "3.12": "echo /new/12"}, False, ""),
        ({"3.13": "exit 127", "3.12": "exit 127"}, True, ""),
    ],
)
def test_the_newest_python(tmp_path, names, older, expected):
    for name, text in names.items():
        script(tmp_path / f"bin/python{name}", text)
    check = script(tmp_path / "asks", f"exit {0 if older else 1}")
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    assert call(".ci/newest", check, PATH=path) == (0, expected)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_an_environment_of_another_python_is_refused(tmp_path, version):
    script(tmp_path / "env/bin/python", "echo 3.11")
    python = script(tmp_path / "python", f"echo {version}")
    make = ("make", "-s", "same-python", f"VENV={tmp_path / 'env'}")
    code, output = call(*make, f"PYTHON={python}")
    assert (code == 0) == (version == "3.11")
    message = f"env has Python 3.11, PYTHON={python} is 3.13; name another"
    assert (message in output.splitlines()[0]) if code else output == ""
    # Without PYTHON=... the environment is used as is.
    assert call(*make) == (0, "")


@pytest.mark.parametrize("code", [0, 7])
def test_the_demo_prints_each_step_and_the_time_left(tmp_path, code):
    """A method that is already done does not count in the estimate of the time left."""
    (tmp_path / "runs/demo/erm").mkdir(parents=True)
    (tmp_path / "runs/demo/erm/done").touch()
    python = script(
        tmp_path / "python", f'sleep 1; case "$*" in *jbias.report*) exit {code};; esac'
    )
    completed = subprocess.run(
        [ROOT / ".ci/demo", python, "erm", "padain", "sagnet"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert completed.returncode == code
    assert completed.stdout.splitlines() == [
        "demo 1/4: training erm",
        "demo 2/4: training padain",
        "demo 3/4: training sagnet (about 1 min left)",
        "demo 4/4: writing the report",
    ]
