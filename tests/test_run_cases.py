"""A folder of cases: each script runs once, with a time limit, and has one line of output."""

import pathlib
import subprocess
import sys
import time

import pytest

from qa import run_cases

ROOT = pathlib.Path(run_cases.__file__).parents[1]


@pytest.fixture
def folder(tmp_path):
    scripts = {
        "a/run.sh": 'test "$PWD" = ROOT && "$PY" -c "import jbias"',
        "a/helper.sh": "exit 9",  # Of the case, no case.
        "b c/run.sh": "echo why; exit 3",
        "group/one.sh": "true",
        "group/two.sh": "printf 'bad \\033[2J'; false",
        "group/notes.txt": "",
    }
    for name, text in scripts.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("ROOT", f"'{ROOT}'"))
    return tmp_path


def test_every_case_has_a_line_and_failures_decide_the_exit_code(folder, capsys):
    assert run_cases.main([str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    words = [line.split(" s  ") for line in lines[:-1]]
    assert [(state.split()[0], text) for state, text in words] == [
        ("ok", "a"),
        ("FAILED", "b c: exit code 3: why"),
        ("ok", "group/one.sh"),
        ("FAILED", "group/two.sh: exit code 1: bad \\x1b[2J"),
    ]
    assert lines[-1] == "2 of 4 cases failed"
    for name in ("b c/run.sh", "group/two.sh"):
        (folder / name).write_text("true")
    assert run_cases.main([str(folder)]) == 0


def test_a_case_that_does_not_end_is_stopped_with_all_it_started(tmp_path, capsys):
    path = tmp_path / "slow" / "run.sh"
    path.parent.mkdir()
    path.write_text("sleep 60 & sleep 60")
    began = time.monotonic()
    assert run_cases.main([str(tmp_path), "--seconds=0.3"]) == 1
    assert time.monotonic() - began < 20
    assert "slow: not done after 0.3 seconds" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_without_cases_is_refused_in_one_line(name, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        run_cases.main([str(tmp_path / name)])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_make_says_in_one_line_that_the_folder_is_missing():
    words = ["make", "cases", f"VENV={pathlib.Path(sys.executable).parents[1]}"]
    words += ["-o", f"{words[2].removeprefix('VENV=')}/.installed"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "CASES is missing; name a folder of cases" in done.stderr.splitlines()[0]
