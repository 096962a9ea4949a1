"""The command line of every command: errors are one line, with a suggestion."""

import subprocess
import sys

import pytest

from jbias import audit, evaluate, look, prepare, study
from jbias.launch import sweep
from jbias.papers import biases as papers_biases
from jbias.papers import distortion as papers_distortion
from jbias.papers import shifts as papers_shifts
from jbias.report import biases, correlate, distortion, measured, shifts
from jbias.report import cli as report_cli
from jbias.runtime import cli
from tests import cases


@cases.each(
    ("main", "argv", "suggestion"),
    [
        (evaluate.main, ["--chekpoint=x.pth"], "--checkpoint"),
        (evaluate.main, ["--suit.run.batch=8"], "--suite.run.batch"),
        (look.main, ["--sute=x"], "--suite"),
        (audit.main, ["--chekpoint=x"], "--checkpoint"),
        (study.main, ["--confgi=x"], "--config"),
        (sweep.main, ["run", "--wrokdir=x"], "--workdir"),
        (report_cli.main, ["--rusn=x", "--out=y"], "--runs"),
        (biases.main, ["--mesured=x", "--out=y"], "--measured"),
        (papers_biases.main, ["--benhcmark=x", "--out=y"], "--benchmark"),
        (papers_distortion.main, ["--pritned=x", "--out=y"], "--printed"),
        (papers_shifts.main, ["--pritned=x", "--runs=y"], "--printed"),
        (shifts.main, ["--rusn=x", "--out=y"], "--runs"),
        (correlate.main, ["--tabel=x", "--out=y"], "--table"),
        (measured.main, ["--mesured=x", "--out=y"], "--measured"),
        (distortion.main, ["--mesured", "x", "--out=y"], "--measured"),
        (prepare.main, ["--halp"], "--help"),
        (prepare.main, ["samples", "--dta=shapes", "--out=x.png"], "--data"),
    ],
)
def test_a_mistyped_flag_gets_a_suggestion(main, argv, suggestion, capsys):
    """The unknown flag is reported before a missing flag."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    output = capsys.readouterr()
    assert output.err.count("\n") == 1 and not output.out
    wrong = next(flag for flag in argv if flag.startswith("--"))
    assert f"unknown argument {wrong!r}; did you mean {suggestion}?" in output.err


def test_an_error_begins_with_the_command():
    command = [sys.executable, "-m", "jbias", "measure", "--nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("jbias measure: error: unknown argument '--nothing'")


def test_text_unlike_any_flag_gets_no_suggestion():
    assert cli.unknown_argument("--xyz=1", ["runs"]) == (
        "unknown argument '--xyz=1'; see --help"
    )


def test_values_and_arguments_after_two_dashes_are_no_flags():
    parser = cli.Parser("x", "about")
    parser.add_argument("--name")
    parser.add_argument("rest", nargs="*")
    assert parser.parse_args(["--name=--no", "--", "--naem"]).rest == ["--naem"]


@cases.each(
    ("main", "argv", "message"),
    [
        (evaluate.main, ["--suite=jbias:"], "name one of suites/biases, suites/cal"),
        (study.main, ["--config=jbias:"], "name one of asam, augmix, biasbed"),
        (evaluate.main, ["--suite=jbias:suites/biasses"], "mean 'suites/biases'"),
    ],
)
def test_presets_are_listed_before_missing_flags(main, argv, message, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(argv)
    error_text = capsys.readouterr().err
    assert (
        exit_info.value.code == 2
        and message in error_text
        and error_text.count("\n") == 1
    )


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_a_command_as_ctrl_c_does(name, code):
    """Context managers exit, one line is printed, and the exit code is the shell's."""
    lines = (
        "import os, signal, sys, time",
        "from jbias.runtime import cli",
        # The tests may run under nohup, which ignores SIGHUP.
        f"signal.signal(signal.{name}, signal.SIG_DFL)",
        "def work():",
        "    try:",
        f"        os.kill(os.getpid(), signal.{name})",
        "        time.sleep(60)",
        "    finally:",
        "        print('ended')",
        "sys.exit(cli.run(work, rerun='resumes'))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "ended\n")
    assert done.stderr == f"jbias: stopped by {name}; the same command resumes\n"
