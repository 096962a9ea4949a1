"""A line for a person is one line, and does nothing to a terminal."""

from jbias.runtime import messages


def test_it_is_one_line_that_a_terminal_does_not_obey():
    told = messages.one_line("a\nb \x1b[2J\u202e \0 é\U0001f600\ud800")
    assert told == "a b \\x1b[2J\\u202e \\x00 é\U0001f600\\ud800"
    assert told.encode()  # It can be written.


def test_what_a_table_holds_keeps_its_spaces():
    assert messages.printable("1\u202f024 \u00b1 2\u00a0% \x1b\t") == (
        "1\u202f024 \u00b1 2\u00a0% \\x1b\\t"
    )


def test_long_text_keeps_both_ends():
    told = messages.one_line("begin" + "x" * 10**6 + "end")
    assert len(told) < 2 * messages.MAX_LETTERS
    assert told.startswith("begin") and told.endswith("end")
