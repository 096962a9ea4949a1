"""Malformed input of every kind is refused in one line or read rightly, and loses nothing.

A small part of `python -m benchmarks.fuzz`.
"""

import pathlib

import pytest

pytest.importorskip("hypothesis")

from benchmarks.fuzz import __main__ as fuzz
from benchmarks.fuzz import attempts, commands

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
def hushed(monkeypatch):
    """The commands hush what the fuzzer must not."""
    import sys

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)


@pytest.mark.slow
@pytest.mark.quick("suites", "sweeps", "status")
@pytest.mark.parametrize("name", list(fuzz.KINDS))
def test_malformed_input_is_refused_or_read(name, monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parents[1])
    found = list(fuzz.outcomes(fuzz.KINDS[name], COUNTS[name], seed=7))
    failed = [one for one in found if one.failed]
    assert not failed, failed[0]
    verdict = "read" if name == "status" else "refused"  # Of what is damaged it tells.
    assert any(one.verdict == verdict for one in found)


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
@pytest.mark.parametrize("text", ["1+" * 3_000 + "1", "-" * 9_000 + "1", "[" * 9_000])
def test_a_value_that_is_nested_deeply_is_refused(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(pathlib.Path(__file__).parents[1])
    argv = ("--config=configs/erm.py:smoke", f"--config.optim={text}")
    with pytest.raises(SystemExit) as ended:
        commands.training((*argv, f"--workdir={tmp_path}/run"))
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "config" in said and said.count("\n") == 1


def harmful(argv: tuple[str, ...]) -> int:
    """A command with a fault of each kind."""
    what, folder = argv
    if what == "raises":
        raise TypeError("x")
    if what == "overwrites":
        (pathlib.Path(folder) / "other").write_text("new")
    if what == "is late":
        while True:
            pass
    return {"says nothing": 2, "reads": 0}.get(what, 0)


@pytest.mark.parametrize(
    ("what", "verdict"),
    [
        ("raises", "traceback"),
        ("overwrites", "overwritten"),
        ("is late", "hang"),
        ("says nothing", "unclear"),
        ("reads", "wrong"),
    ],
)
def test_the_harness_sees_what_it_is_for(what, verdict, tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "SECONDS", 1)
    for name in ("file", "other"):
        (tmp_path / name).write_text(name)
    case = attempts.Case(what, (what, str(tmp_path)), "file", b"malformed")
    outcome = attempts.attempt(case, harmful, tmp_path, lambda case: "it is not that")
    assert (outcome.verdict, outcome.failed) == (verdict, True)
    assert (tmp_path / "file").read_text() == "file"
