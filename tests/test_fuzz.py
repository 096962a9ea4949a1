"""Malformed input of every kind is refused in one line or read rightly, and loses nothing.

A small part of `python -m qa.fuzz`.
"""

import pathlib

import pytest

pytest.importorskip("hypothesis")

from qa.fuzz import __main__ as fuzz
from qa.fuzz import attempts, commands
from qa.hostile import __main__ as hostile

COUNTS = {
    "config files": 15,
    "--config.key=value": 20,
    "config arguments": 30,
    "suites": 15,
    "records": 20,
    "beside records": 4,
    "score tables": 25,
    "data sets": 40,
    "our checkpoints": 6,
    "others' weights": 8,
    "status": 25,
    "sweeps": 20,
}


@pytest.fixture(autouse=True)
def keep_warnings(monkeypatch):
    """Restore the hook that the commands replace to silence warnings."""
    import sys

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)


@pytest.mark.slow
@pytest.mark.quick("suites", "sweeps", "status")
@pytest.mark.parametrize("name", list(fuzz.KINDS))
def test_malformed_input_is_refused_or_read(name, monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parents[1])
    outcomes = list(fuzz.outcomes(fuzz.KINDS[name], COUNTS[name], seed=7))
    failed = [outcome for outcome in outcomes if outcome.failed]
    assert not failed, failed[0]
    verdict = "read" if name == "status" else "refused"  # A status lists damaged runs.
    assert any(outcome.verdict == verdict for outcome in outcomes)


@pytest.mark.parametrize(
    ("command", "kind", "nearest"),
    [(fuzz, "sweps", "sweeps"), (hostile, "data set", "data sets")],
    ids=["fuzz", "hostile"],
)
def test_an_unknown_kind_is_refused_in_one_line(command, kind, nearest, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main([f"--only={kind}"])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert printed.err.count("\n") == 1
    assert f"--only: no kind {kind!r}; did you mean {nearest!r}?" in printed.err


def test_a_text_without_inputs_is_refused(tmp_path, capsys):
    argv = ["--only=flags and names", "--match=no such text", f"--out={tmp_path}"]
    with pytest.raises(SystemExit) as ended:
        hostile.main(argv)
    message = capsys.readouterr().err
    assert ended.value.code == 2 and message.count("\n") == 1
    assert "--match: no input has 'no such text'" in message


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
@pytest.mark.parametrize("text", ["1+" * 3_000 + "1", "-" * 9_000 + "1", "[" * 9_000])
def test_a_deeply_nested_value_is_refused(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(pathlib.Path(__file__).parents[1])
    argv = ("--config=configs/erm.py:smoke", f"--config.optim={text}")
    with pytest.raises(SystemExit) as ended:
        commands.training((*argv, f"--workdir={tmp_path}/run"))
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert "config" in message and message.count("\n") == 1


def harmful(argv: tuple[str, ...]) -> int:
    """Behave as a command with the fault that argv names."""
    fault, folder = argv
    if fault == "raises":
        raise TypeError("x")
    if fault == "overwrites":
        (pathlib.Path(folder) / "other").write_text("new")
    if fault == "is late":
        while True:
            pass
    return {"says nothing": 2, "reads": 0}.get(fault, 0)


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("raises", "traceback"),
        ("overwrites", "overwritten"),
        ("is late", "hang"),
        ("says nothing", "unclear"),
        ("reads", "wrong"),
    ],
)
def test_the_harness_detects_each_kind_of_failure(
    fault, verdict, tmp_path, monkeypatch
):
    monkeypatch.setattr(attempts, "SECONDS", 1)
    for name in ("file", "other"):
        (tmp_path / name).write_text(name)
    case = attempts.Case(fault, (fault, str(tmp_path)), "file", b"malformed")
    outcome = attempts.attempt(case, harmful, tmp_path, lambda case: "it is not that")
    assert (outcome.verdict, outcome.failed) == (verdict, True)
    assert (tmp_path / "file").read_text() == "file"
