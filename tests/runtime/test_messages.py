"""Messages are one line without control characters."""

import subprocess
import sys

import pytest

from jbias.runtime import messages, signals
from tests import cases


def test_messages_are_one_line_without_terminal_codes():
    line = messages.one_line("a\nb \x1b[2J\u202e \0 é\U0001f600\ud800")
    assert line == "a b \\x1b[2J\\u202e \\x00 é\U0001f600\\ud800"
    assert line.encode()  # It can be written.


def test_cells_of_tables_keep_their_spaces():
    assert messages.printable("1\u202f024 \u00b1 2\u00a0% \x1b\t") == (
        "1\u202f024 \u00b1 2\u00a0% \\x1b\\t"
    )


def test_long_text_keeps_both_ends():
    line = messages.one_line("begin" + "x" * 10**6 + "end")
    assert len(line) < 2 * messages.MAX_LETTERS
    assert line.startswith("begin") and line.endswith("end")


class Stop(BaseException):
    """An exception by which some packages end a program."""


def raised(error):
    raise error


@cases.each("error", [SystemExit(0), SystemExit(None), Stop("x"), ValueError("x")])
def test_exits_inside_user_code_are_errors_of_that_code(error):
    with (
        pytest.raises(
            messages.UserCodeError, match=r"my\.py.*: (SystemExit|Stop|ValueE)"
        ),
        messages.user_code("my.py", catch_all=True),
    ):
        raised(error)
    with (
        pytest.raises(messages.UserCodeError, match=rf"{__file__}:\d+, in raised: "),
        messages.user_code(__file__),
    ):
        raised(error)


@cases.each("error", [KeyboardInterrupt(), signals.Interrupted("SIGTERM")])
def test_interrupts_are_no_errors_of_user_code(error):
    with pytest.raises(type(error)), messages.user_code(__file__, 1, catch_all=True):
        raised(error)


EXIT = """
import os, threading
import subprocess
import sys

import pytest

from jbias.runtime import messages, signals
from tests import cases
with messages.user_code("my.py", catch_all=True):
    {inside}
os._exit({after})
"""


@cases.each(
    ("inside", "exit_code", "code"),
    [
        ("os._exit(0)", 0, 1),
        ("os._exit(3)", 0, 3),
        ("pass", 0, 0),
        # A child ends as it says, and the program goes on.
        ("os.fork() or os._exit(0); os.wait()", 4, 4),
    ],
)
def test_os_exit_in_user_code_is_not_exit_code_0(inside, exit_code, code):
    program = EXIT.format(inside=inside, after=exit_code)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == code, ran.stderr
    assert ("error in my.py: os._exit(0)" in ran.stderr) == (code == 1)


def test_the_error_names_user_code_that_calls_sys_exit():
    with (
        pytest.raises(messages.UserCodeError, match=r"calls sys\.exit\(0\); remove"),
        messages.user_code("my.py", 1),
    ):
        sys.exit(0)


def test_full_memory_is_known_by_type_and_by_text():
    full = (
        MemoryError(),
        RuntimeError("CUDA out of memory"),
        ValueError("MemoryError: "),
    )
    assert all(map(messages.lacks_memory, full))
    assert not messages.lacks_memory(ValueError("memories"))
