"""An invalid search is refused in one line, before anything starts."""

import pytest

from jbias.launch import sweep
from tests import cases, smoke_runs

SMOKE = "--config=configs/erm.py:smoke,seeds=1"
# ml_collections still calls what Python 3.12 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(smoke_runs.ROOT)


def refused(capsys, *arguments: str) -> str:
    """Return the one line of a refused search."""
    assert sweep.main(["run", *arguments, "--dry-run"]) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0
    return error


@cases.each(
    "change, word",
    [
        ("--config.optim.rate=[{[]: 1}, 2]", "optim.rate"),
        ("--config.optim.rate=[" + "-" * 50_000 + "1]", "optim.rate"),
        ("--config.optim.rate=" + "-" * 50_000 + "1", "optim.rate"),
        ("--config.optim.rate=uniform(-1.7e308, 1.7e308)", "two finite numbers"),
    ],
)
def test_values_that_are_none(tmp_path, capsys, change, word):
    assert word in refused(capsys, f"--workdir={tmp_path}", SMOKE, change)


def test_values_that_are_one_run_are_not_reduced(tmp_path, capsys):
    error = refused(
        capsys, f"--workdir={tmp_path}", SMOKE, "--config.optim.rate=[1, 1.0]"
    )
    assert "optim.rate=1 and " in error and "are the same run" in error


def test_an_entry_that_is_given_twice(tmp_path, capsys):
    twice = ("--config.optim.rate=[0.1, 0.2]", "--config.optim.rate=0.3")
    error = refused(capsys, f"--workdir={tmp_path}", SMOKE, *twice)
    assert "--config.optim.rate: is given twice" in error


@cases.each(
    "body, word",
    [
        ("return {'config': None}", "--sweep: config: must be text or a list"),
        ("return {'changes': 'text'}", "--sweep: changes: must be"),
        ("return {'axes': {'optim.rate': 2}}", "optim.rate: must be a list of values"),
        ("return {'trials': '3'}", "--sweep: trials: must be a whole number"),
        ("return {'serach': 'grid'}", "did you mean 'search'"),
        ("return {'search': 'tpee'}", "--sampler: unknown 'tpee'; did you mean 'tpe'"),
        ("return {'config': 'jbias:erm', 'stop': 'mean'}", "--pruner: unknown 'mean'"),
        ("return None", "must return a dict"),
        ("", "must define get_sweep(arg)"),
    ],
)
def test_invalid_sweep_files_are_refused(tmp_path, capsys, body, word):
    file = tmp_path / "mine.py"
    file.write_text(f"def get_sweep(arg):\n    {body}\n" if body else "x = 1\n")
    assert word in refused(capsys, f"--workdir={tmp_path / 'w'}", f"--sweep={file}")


def test_a_config_without_its_function(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n")
    error = refused(capsys, f"--workdir={tmp_path / 'w'}", f"--config={file}")
    assert "must define get_config(arg)" in error
