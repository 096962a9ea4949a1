"""All that jbias prints goes through one function, which no terminal obeys."""

import ast
import errno
import io
import json
import pathlib
import subprocess
import sys
import types

import pytest

from jbias import prepare
from jbias.prepare import __doc__ as prepare_doc
from jbias.runtime import cli, console, messages
from tests import cases, smoke_runs, source_files

# Where the stream itself is written to: the printer, and the bars and the log.
PRINTERS = ("runtime/messages.py", "runtime/console.py")
DIRECT = {"print", "pprint", "sys.stdout.write", "sys.stderr.write"}
DIRECT |= {"sys.stdout.writelines", "sys.stderr.writelines", "warnings.showwarning"}
DIRECT |= {"sys.__stdout__", "sys.__stderr__", "sys.stdout.buffer", "sys.stderr.buffer"}
DIRECT |= {"tqdm.tqdm", "tqdm.tqdm.write", "tqdm.write", "traceback.print_exc"}
DIRECT |= {"traceback.print_exception", "sys.__excepthook__", "click.echo"}


def _direct_uses(tree: ast.AST) -> list[int]:
    """Return the lines that name a function or a stream that prints directly."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in DIRECT
    ]


@pytest.mark.parametrize(
    "code",
    ["print(1)", "say = print", "sys.stdout.write(name)", "tqdm.tqdm(desc=name)"],
)
def test_the_search_for_bare_prints_finds_them(code):
    assert _direct_uses(ast.parse(code))


def test_nothing_is_printed_but_by_the_printer():
    """No file but the printer's names print, a stream's write, or a bar."""
    wrong = [
        f"{path}:{line}"
        for path in source_files.PYTHON
        if source_files.inside(path).as_posix() not in PRINTERS
        for line in _direct_uses(ast.parse(path.read_text()))
    ]
    assert not wrong


def test_warnings_and_last_words_are_cleaned():
    """Every warning is one clean line, and no exit has a text."""
    wrong = []
    for path in source_files.PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name, argument = ast.unparse(node.func), node.args[0]
            is_text = isinstance(argument, ast.Constant | ast.JoinedStr)
            if name in ("sys.exit", "SystemExit"):
                number = isinstance(getattr(argument, "value", 0), int)
                if is_text and not (isinstance(argument, ast.Constant) and number):
                    wrong.append(f"{path}:{node.lineno}")
            if name == "warnings.warn" and not ast.unparse(argument).startswith(
                "messages.one_line("
            ):
                wrong.append(f"{path}:{node.lineno}")
    assert not wrong


HOSTILE = {
    "\x1b[2J": r"\x1b[2J",
    "\x07": r"\x07",
    "\x08": r"\x08",
    "\r": r"\r",
    "\x7f": r"\x7f",
    "\x9b2J": r"\x9b2J",  # CSI in one letter.
    "\u202e": r"\u202e",  # Right to left from here on.
    "\u2066": r"\u2066",
    "\u200b": r"\u200b",  # No width.
    "\ufeff": r"\ufeff",
    "\u2028": r"\u2028",
    "\u3164": r"\u3164",  # A letter of Hangul that shows nothing.
    "\ufe0f": r"\ufe0f",
    "\U000e0041": r"\U000e0041",  # A tag.
    "\ud800": r"\ud800",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_letters_that_a_terminal_obeys_or_hides_appear_as_codes(name, capsys):
    for to_stderr in (False, True):
        messages.print_text(f"a{name}b\n\tc", to_stderr=to_stderr)
        captured = capsys.readouterr()
        text = captured.err if to_stderr else captured.out
        assert text == f"a{HOSTILE[name]}b\n\tc\n"


def test_other_scripts_and_accents_are_printed_unchanged(capsys):
    text = "é ß 猫 кот قط 🐈 e\u0301 1\u202f024 ± 2\u00a0%"
    messages.print_text(text)
    assert capsys.readouterr().out == f"{text}\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_stream_of_few_letters_gets_the_codes_of_the_others(encoding, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    messages.print_text("é猫")
    expected = {"ascii": b"\\xe9\\u732b", "latin-1": b"\xe9\\u732b"}
    assert written.getvalue() == expected.get(encoding, "é猫".encode()) + b"\n"


def test_json_output_keeps_its_names(capsys):
    names = list(HOSTILE)
    messages.print_text(messages.to_json({"names": names}))
    text = capsys.readouterr().out
    assert text.strip().isprintable() and json.loads(text) == {"names": names}
    line = console.LogEvent("a", "note", name="\x7f\x1b").json()
    assert line.isprintable() and json.loads(line)["name"] == "\x7f\x1b"


def test_cells_of_a_table_stay_on_their_line():
    assert messages.align_columns([["a\nb\x1b", "c"]]) == ["a\\nb\\x1b  c"]


def test_help_and_refusals_show_codes(capsys):
    parser = cli.Parser("x\x1b", prepare_doc)
    parser.add_argument("--name", default="\u202eb", help="(default: %(default)s)")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and "\x1b" not in shown and "\\u202eb" in shown
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--nme=\x1b"])
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and "\x1b" not in shown and shown.count("\n") == 1


PRINTING = "from jbias.runtime import messages; print_text = messages.print_text; "


def _run(code: str, shell: str) -> subprocess.CompletedProcess:
    words = ["bash", "-c", shell, "bash", sys.executable, "-c", PRINTING + code]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("shell", "returned"),
    [
        ('"$@" >&-', "False"),
        ('"$@" | true; exit ${PIPESTATUS[0]}', "False"),
        ('"$@" 2>&- | cat; exit ${PIPESTATUS[0]}', ""),
    ],
)
def test_a_closed_stream_is_no_error(shell, returned):
    code = "import time; time.sleep(0.3); told = print_text('a'); "
    code += "print_text(told, to_stderr=True); print_text('b')"
    done = _run(code, shell)
    assert (done.returncode, done.stderr.strip()) == (0, returned)


def test_a_full_disk_behind_stdout_is_reported():
    done = _run("print_text('a')", '"$@" >/dev/full')
    assert done.returncode == 1
    assert "StdoutError: stdout: cannot be written (No space left" in done.stderr
    assert _run("print_text('a', to_stderr=True)", '"$@" 2>/dev/full').returncode == 0


def test_a_traceback_is_printed_without_its_escapes(capsys):
    error = ValueError("a\x1b[2J")
    messages.print_traceback(ValueError, error, None)
    assert capsys.readouterr().err == "ValueError: a\\x1b[2J\n"


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs /dev/full")
@cases.each(
    "words",
    [
        ["jbias", "--help"],
        ["jbias", "--version"],
        ["jbias", "completion", "bash"],
        ["jbias", "prepare", "check", "--help"],
        ["jbias.plan", "--help"],
        ["jbias.main", "--help"],
        ["jbias.report", "--help"],
    ],
)
def test_a_full_stdout_is_one_line_and_exit_code_2(words):
    """Exit code 1 would be an error that nobody foresaw."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=smoke_runs.ROOT,
        )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("jbias: stdout: cannot be written (No space left")
    assert done.stderr.count("\n") == 1


def test_lines_of_a_report_and_damaged_images_fit_no_full_stdout(monkeypatch, capsys):
    """`report` and `prepare check` fail with one line if stdout is full."""

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    def damaged(args):
        raise prepare.DamagedImages(["a/0.png: cut off"])

    parsed = types.SimpleNamespace(command=damaged, out="")
    parser = types.SimpleNamespace(parse_args=lambda words: parsed)
    monkeypatch.setattr(prepare, "parser", lambda names: parser)
    for call in (
        lambda: cli.print_lines("report", lambda: ["a line"]),
        lambda: prepare.main(["check"]),
    ):
        stream = types.SimpleNamespace(write=fail, encoding="utf-8", fileno=fail)
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setattr(sys, "stdout", stream)
            call()
        assert ended.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
