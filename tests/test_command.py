"""`jbias COMMAND`, and the commands that work without jax."""

import importlib.util
import os
import subprocess
import sys
import venv

import pytest

from jbias import __main__ as command
from jbias.runtime import cli
from tests import cases, smoke_runs

# Code after which packages of the extra `train` cannot be imported.
WITHOUT = """
import sys
LACKING = {"array_record", "flax", "grain", "jax", "jaxlib", "ml_collections", "optax",
           "orbax", "yaml", "threadpoolctl"}
class Nowhere:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nowhere)
"""
LIGHT = f"""{WITHOUT}
from jbias import __main__ as command
sys.exit(command.main(sys.argv[1:]))
"""


def run_without_jax(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", LIGHT, *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=smoke_runs.ROOT,
    )


def test_every_command_exists_and_is_listed(capsys):
    assert command.main(["--help"]) == 0
    usage = capsys.readouterr().out
    for name, (module, summary) in command.COMMANDS.items():
        assert importlib.util.find_spec(module) and summary in usage, name
        for subcommand in command.GROUPS.get(name, ()):
            assert importlib.util.find_spec(f"{module}.{subcommand}"), subcommand


@cases.each("flag", ["--help", "-h"])
def test_groups_without_options_print_a_usage(flag, capsys):
    assert command.main(["papers", flag]) == 0
    text = capsys.readouterr().out
    for study in command.GROUPS["papers"]:
        assert f"\n  {study} " in text
    assert command.main(["completion", flag]) == 0
    assert "usage: jbias completion bash|zsh" in capsys.readouterr().out


@cases.each(
    ("words", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["xyz"], "unknown command 'xyz'; one of train, measure, evaluate, report"),
        (["papers"], "jbias papers: name one of biases, distortion, shifts"),
        (
            ["report", "mesured"],
            "jbias report: unknown 'mesured'; did you mean measured? Known: biases, ",
        ),
        (["papers", "shitfs"], "unknown 'shitfs'; did you mean shifts?"),
        (["completion", "fish"], "must be bash or zsh"),
    ],
)
def test_unknown_commands_are_one_line(words, message, capsys):
    assert command.main(words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_shell_completes_commands_and_flags():
    script = """
jbias() { %s -m jbias "$@"; }
eval "$(jbias completion bash)"
COMP_WORDS=(jbias pl); COMP_CWORD=1; _jbias; echo "${COMPREPLY[@]}"
COMP_WORDS=(jbias report --sc); COMP_CWORD=2; _jbias; echo "${COMPREPLY[@]}"
COMP_WORDS=(jbias report sh); COMP_CWORD=2; _jbias; echo "${COMPREPLY[@]}"
COMP_WORDS=(jbias prepare ch); COMP_CWORD=2; _jbias; echo "${COMPREPLY[@]}"
COMP_WORDS=(jbias prepare check --shee); COMP_CWORD=3; _jbias; echo "${COMPREPLY[@]}"
"""
    completed = subprocess.run(
        ["bash", "-c", script % sys.executable],
        check=True,
        capture_output=True,
        text=True,
        cwd=smoke_runs.ROOT,
    )
    expected = "plan\n--scores\nshifts\ncheck\n--sheet\n"
    assert completed.stdout == expected, completed.stderr


def test_a_table_of_scores_is_tested_without_jax(tmp_path):
    scores = "--scores=examples/biasbed_table2.csv"
    completed = run_without_jax("report", scores, f"--out={tmp_path}/report")
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "report" / "results.json").stat().st_size > 1000
    weights = tmp_path / "x.pth"
    weights.touch()  # A path that is missing is refused first.
    measured = f"--checkpoint={weights}", "--suite=jbias:suites/biases"
    for words in (["train", "--config=jbias:erm"], ["evaluate", *measured]):
        completed = run_without_jax(*words)
        line = completed.stderr.strip()
        assert completed.returncode == 2 and "\n" not in line, line
        assert "not installed: pip install 'jbias[train]'" in line, line


def test_a_module_and_its_command_name_missing_packages_alike(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    config = "--config=jbias:erm"
    for words in (["-m", "jbias.main"], ["-X", "utf8", "-mjbias.main"]):
        completed = subprocess.run(
            [sys.executable, *words, config],
            check=False,
            capture_output=True,
            text=True,
            cwd=smoke_runs.ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert (completed.returncode, completed.stderr) == (
            2,
            run_without_jax("train", config).stderr,
        )


def test_other_import_errors_keep_their_traceback():
    error = ModuleNotFoundError("No module named 'mine'", name="mine")
    assert command.missing_package("jbias.main", error) == ""
    assert command.missing_package("jbias.main", ValueError("jax")) == ""


@pytest.mark.slow
def test_a_wheel_without_extras_makes_a_report(tmp_path):
    """Make a report in a new environment without jax."""
    venv.create(tmp_path / "v", with_pip=True)
    python = str(tmp_path / "v" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", str(smoke_runs.ROOT)]
    subprocess.run(install, check=True, capture_output=True)
    scores = smoke_runs.ROOT / "examples" / "biasbed_table2.csv"
    script = (
        "import importlib.util, sys; assert not importlib.util.find_spec('jax'); "
        "from jbias import __main__; sys.exit(__main__.main(sys.argv[1:]))"
    )
    words = ["report", f"--scores={scores}", f"--out={tmp_path}/report"]
    completed = subprocess.run(
        [python, "-c", script, *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "report" / "index.html").stat().st_size > 10_000


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@cases.each("words", [["--help"], ["completion", "bash"], ["--version"]])
def test_a_full_disk_behind_stdout_is_one_line(words):
    with open("/dev/full", "w") as full:
        completed = subprocess.run(
            [sys.executable, "-m", "jbias", *words],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=smoke_runs.ROOT,
        )
    assert completed.returncode == 2
    assert (
        completed.stderr.count("\n") == 1
        and "stdout: cannot be written" in completed.stderr
    )


@cases.each(("safe", "message"), [("", ""), ("1", "No module named 'helper'")])
def test_files_import_modules_of_the_working_directory(safe, message, tmp_path):
    """The working directory is on the path, also if the command is a script elsewhere."""
    (tmp_path / "helper.py").write_text("from jbias.algos import erm\n")
    (tmp_path / "mine.py").write_text("import helper\nmake = helper.erm.make\n")
    (tmp_path / "jax.py").write_text(
        "raise ImportError('hides an installed package')\n"
    )
    script = "import sys; sys.path[:] = [x for x in sys.path if x]; "
    script += "from jbias import __main__; sys.exit(__main__.main(sys.argv[1:]))"
    words = ["train", "--config=jbias:erm:smoke", "--config.algo.name=mine.py:make"]
    places = {"PYTHONPATH": str(smoke_runs.ROOT), "PYTHONSAFEPATH": safe}
    completed = subprocess.run(
        [sys.executable, "-c", script, *words, "--check"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **places},
    )
    assert (completed.returncode == 0) == (not safe), completed.stderr
    assert message in completed.stderr


def test_help_shows_commands_as_they_are_typed():
    for name, (module, _) in command.COMMANDS.items():
        groups = command.GROUPS.get(name, ())
        if module.startswith(("jbias.main", "jbias.launch")):
            continue  # Its help begins otherwise.
        for suffix in ("", *(f".{word}" for word in groups)):
            parser = cli.Parser(module.removeprefix("jbias.") + suffix)
            assert parser.prog == f"jbias {name}{suffix.replace('.', ' ')}"
