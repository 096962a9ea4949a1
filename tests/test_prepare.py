"""The command that draws samples of a data set."""

import pytest

from jbias import prepare


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))


def test_samples_are_drawn(tmp_path, capsys):
    out = tmp_path / "figures" / "samples.png"
    command = ["samples", f"--out={out}", "--splits=test+edge", "--correlation=0"]
    assert prepare.main(command) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "2 splits, 16 classes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data=shaps"], "did you mean 'shapes'"),
        (["--splits=edgy"], "did you mean 'edge'"),
        (["--data=folder"], "--splits must name splits"),
        (["--index=-1"], "--index must be 0 or more"),
        (["--splits=edge", "--index=30"], "got 30 images"),
    ],
)
def test_samples_refuse_in_one_line(arguments, message, tmp_path, capsys):
    out = tmp_path / "x.png"
    assert prepare.main(["samples", f"--out={out}", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not out.exists()
