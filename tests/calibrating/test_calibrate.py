"""The command `jbias calibrate`: its stages, files, refusals, and hidden networks."""

import csv
import datetime

import pytest

from jbias import calibrate
from jbias.calibrating import curves, rows
from jbias.calibrating import rules as rules_lib
from jbias.runtime import signals
from tests.calibrating import simulated, test_rules

RULES = test_rules.ROOT / "docs/results/calibration/rules.json"


@pytest.fixture
def study(tmp_path):
    """Return the folder of a study of simulated networks, half of them hidden."""
    networks = [*simulated.networks(), *simulated.networks(hidden=1)]
    guessing = simulated.guessing_networks(2)
    readings = [
        *simulated.readings(networks, lambda x: x.dial, name="shape_bias", n=900),
        *simulated.readings(networks, lambda x: -x.dial, name="order_dependence"),
    ]
    folder = tmp_path / "study"
    folder.mkdir()
    rows.write(folder / "networks.csv", [*networks, *guessing], rows.PlantedNetwork)
    rows.write(folder / "readings.csv", readings, rows.Reading)
    return folder


def run(study, arguments=()) -> int:
    return calibrate.main([f"--out={study}", "--stages=analyse", *arguments])


def table(path) -> dict[str, dict]:
    with path.open(newline="") as file:
        return {row["measure"]: row for row in csv.DictReader(file)}


def test_the_analysis_has_a_row_and_a_curve_per_measure(study, capsys):
    assert run(study) == 0
    measures = table(study / "measures.csv")
    assert set(measures) == {"shape_bias", "order_dependence"}
    assert measures["shape_bias"]["verdict"] == "measures reliance on shape"
    assert measures["order_dependence"]["verdict"] == "falls with reliance on shape"
    assert set(curves.read(study / "curves.json").by_measure) == set(measures)
    printed = capsys.readouterr().out
    assert "2 flagged networks" in printed and "none-0: at chance" in printed
    first = (study / "measures.csv").read_bytes()
    assert run(study) == 0 and (study / "measures.csv").read_bytes() == first


def test_only_selects_measures_and_keeps_the_tables_of_all(study):
    assert run(study) == 0
    names = ("measures.csv", "curves.json")
    of_all = [(study / name).read_bytes() for name in names]
    assert run(study, ["--only=shape_bias"]) == 0
    assert set(table(study / "chosen/measures.csv")) == {"shape_bias"}
    assert [(study / name).read_bytes() for name in names] == of_all


@pytest.mark.parametrize("argument", ["--only=shape_bia", "--rules=missing.json"])
def test_wrong_arguments_are_refused_before_a_network_is_made(
    tmp_path, capsys, monkeypatch, argument
):
    monkeypatch.setattr(calibrate, "_make", lambda *args: pytest.fail("made"))
    assert calibrate.main([f"--out={tmp_path / 'new'}", argument]) == 2
    error = capsys.readouterr().err
    assert argument.split("=")[1] in error and len(error.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_a_signal_during_a_training_is_one_line(tmp_path, capsys, monkeypatch):
    def stopped(*args):
        raise signals.Interrupted("SIGTERM at step 3: saved; the same command resumes")

    monkeypatch.setattr(calibrate, "_make", stopped)
    assert calibrate.main([f"--out={tmp_path}", "--stages=make"]) == 143
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "jbias: stopped: SIGTERM at step 3: saved; the same command resumes"


def test_a_smoke_run_says_that_verdicts_are_missing_on_purpose(study, capsys):
    assert run(study, ["--smoke"]) == 0
    assert "as expected" in capsys.readouterr().out


def test_an_analysis_without_readings_names_the_stage_to_run(study, capsys):
    (study / "readings.csv").unlink()
    assert run(study) == 2
    error = capsys.readouterr().err
    assert "readings.csv" in error and "run --stages=measure" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only=shape_bia"], "shape_bias"),
        (["--rules=missing.json"], "missing.json"),
        (["--curves=a.json"], "--hidden"),
        (["--stages=make,mesure"], "--stages"),
        (["--hidden"], "--rules"),
        (["--hidden", f"--rules={RULES}"], "sealed.json"),
    ],
)
def test_wrong_arguments_are_one_line(study, capsys, arguments, words):
    assert run(study, arguments) == 2
    error = capsys.readouterr().err
    assert words in error and len(error.splitlines()) == 1


def test_out_of_time_nothing_is_analysed_and_the_same_command_continues(study, capsys):
    (study / "readings.csv").unlink()
    assert run(study, ["--stages=measure,analyse", "--minutes=1e-9"]) == 1
    assert "no network is measured yet" in capsys.readouterr().out


def test_measures_without_readings_are_refused(study, capsys):
    assert run(study, ["--only=cue_rank"]) == 2
    assert "--stages=measure" in capsys.readouterr().err


def test_a_lost_seal_is_no_reason_for_another_hidden_set(study, capsys):
    """Otherwise hidden sets could be drawn until the results please."""
    arguments = ["--stages=make", "--hidden", f"--rules={RULES}"]
    assert run(study, arguments) == 2
    assert "another --out" in capsys.readouterr().err
    assert not (study / "sealed.json").exists()


def test_a_folder_without_a_study_is_refused(tmp_path, capsys):
    assert run(tmp_path) == 2
    assert "networks.csv" in capsys.readouterr().err


def test_hidden_networks_are_analysed_by_sealed_rules_only(study, capsys):
    """Changed rules are refused; the open networks' tables stay as they were."""
    assert run(study) == 0
    opened = (study / "measures.csv").read_bytes()
    path = study / "rules.json"
    path.write_text(RULES.read_text())
    test_rules.git(study, "init", "-q")
    test_rules.git(study, "add", "rules.json", "curves.json")
    test_rules.git(study, "commit", "-qm", "Rules and curves")
    time = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    fixed = path, study / "curves.json"
    rules_lib.seal(fixed, study / "sealed.json", time=time)
    assert run(study, ["--hidden", f"--rules={path}"]) == 0
    assert "Fixed before the hidden networks" in capsys.readouterr().out
    assert float(table(study / "hidden/measures.csv")["shape_bias"]["error"]) < 1e-6
    assert not (study / "hidden/curves.json").exists()
    assert (study / "measures.csv").read_bytes() == opened
    path.write_text(rules_lib.to_json(rules_lib.Rules(most_error=0.2)))
    assert run(study, ["--hidden", f"--rules={path}"]) == 2
    assert "be as it was" in capsys.readouterr().err


def test_the_clock_says_how_long_the_other_networks_take(monkeypatch):
    """After 2 of 10 networks in 120 s, the other eight take 8 minutes; then time is over."""
    seconds = iter([0.0, 0.0, 60.0, 120.0, 700.0])
    monkeypatch.setattr(calibrate.time, "monotonic", lambda: next(seconds))
    lines = []
    clock = calibrate.Clock(10, deadline=600.0, say=lines.append)
    assert [clock.is_due() for _ in range(4)] == [False, False, False, True]
    assert lines[0] == "1 of 10 networks, about 9 min left"
    assert lines[1] == "2 of 10 networks, about 8 min left"


def test_the_committed_rules_are_the_default():
    assert RULES.read_text() == rules_lib.to_json(rules_lib.Rules())
