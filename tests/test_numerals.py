"""A text is the number that a person reads in it, or it is refused."""

import math

import numpy as np
import pandas as pd
import pytest

from jbias import config as jc
from jbias import numerals, stats
from jbias.papers import printed_numbers
from jbias.report import cli as report_cli
from jbias.report import correlate, csv_rows
from jbias.runtime import cli
from tests import cases

NO_NUMBERS = ("50_63", "1_000", "５０", "infinity", "-inf", "nan", "1e400", "0x10")
NO_NUMBERS += ("1 2", "1\u00a02", "1,5", "", "--1", "1e", ".", "1e5_0", "٣", "1.5.2")


@cases.each("text", NO_NUMBERS)
def test_ambiguous_numbers_are_refused(text):
    """Python's float() reads the first seven, and some of the others."""
    with pytest.raises(ValueError, match="must be"):
        numerals.real(text)
    with pytest.raises(ValueError, match="must be"):
        numerals.whole(text)
    assert not numerals.is_real(text)


@cases.each("text", ("0", "-0.5", "+2", ".5", "5.", "1e-3", "1E+2", " 50.63\t", "007"))
def test_plain_numbers_are_read_as_by_python(text):
    assert numerals.real(text) == float(text)


def test_whole_numbers_have_no_point():
    assert (numerals.whole("12"), numerals.whole(" -3 ")) == (12, -3)
    for text in ("1.0", "1e3"):
        with pytest.raises(ValueError, match="whole"):
            numerals.whole(text)


def test_a_count_has_the_digits_0_to_9_alone():
    """`isdecimal` alone is true of the digits of all scripts."""
    assert numerals.is_count("10")
    assert not any(map(numerals.is_count, ("", "-1", "1_0", "٣", "５")))


@cases.each(
    ("text", "number"),
    [
        ("1_000", "1_000"),
        ("(0.1, 5_0)", "5_0"),
        ("{'a': [0x10]}", "0x10"),
        ("1e400", "1e400"),
        ("５０", "５０"),
        ("inf", "inf"),
        ("[1e400]", "1e400"),
        ("'1_000'", ""),
        ("a_1_000", ""),
        ("(1, 2.5e-3, -4)", ""),
        ("2nd", ""),
        ("resnet50", ""),
        ("(1,", ""),
    ],
)
def test_literals_with_other_numbers_are_known(text, number):
    assert numerals.ambiguous(text) == number


@cases.each("kind", [int, float])
def test_flags_read_plain_numbers_alone(kind, capsys):
    """Every flag with type=int or type=float, of every command, also of subcommands."""
    parser = cli.Parser("x", "about")
    parser.add_subparsers().add_parser("sub").add_argument("--n", type=kind)
    assert parser.parse_args(["sub", "--n=12"]).n == 12
    for text in ("1_0", "５", "inf", "0x1"):
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(["sub", f"--n={text}"])
        assert ended.value.code == 2
    assert "invalid" in capsys.readouterr().err


@cases.each(
    "flag",
    ["--alpha=0.0_5", "--points=1_0", "--last=1_0", "--epoch=inf", "--blocks=２"],
)
def test_flags_of_a_report_read_plain_numbers_alone(flag, capsys):
    with pytest.raises(SystemExit) as ended:
        report_cli.main(["--runs=x", "--out=y", "--selection=at_epoch", flag])
    assert ended.value.code == 2
    assert "must be" in capsys.readouterr().err


def test_arguments_and_changes_of_configs_have_plain_numbers_alone():
    for text in ("n=1_0", "rate=1_0", "rate=inf", "n=２"):
        with pytest.raises(ValueError, match="must be a"):
            jc.parse_arg(text, "x", n=1, rate=0.1)
    assert jc.parse_value("(1, 5_0)") == "(1, 5_0)"  # Text, which no list takes.
    assert jc.parse_value("(1, 0x10)") == "(1, 0x10)"
    assert jc.parse_value("1e400") == "1e400"
    assert jc.parse_value("(1, 5e-1)") == (1, 0.5)
    assert jc.parse_value("'2024_11'") == "2024_11"


@cases.each("text", ["50_63", "５０", "1e400", "inf"])
def test_cells_of_tables_have_plain_numbers_alone(text, tmp_path):
    with pytest.raises(ValueError, match=r"f:2: n must be a finite number"):
        csv_rows.parse_number(text, "n", "f:2")
    path = tmp_path / "models.csv"
    path.write_text(f"model,a,b,kind\nx,{text},1,y\n")
    with pytest.raises(ValueError, match=r"models.csv:2: a must be a finite number"):
        correlate.read(str(path), ["a", "b"], "kind", None)
    scores = pd.DataFrame({"A": [text, "1", "2"], "B": ["1", "2", "3"]})
    with pytest.raises(ValueError, match="scores: .* got"):
        stats.friedman(scores, larger_is_better=True)


def test_an_empty_cell_or_nan_is_a_missing_number():
    assert math.isnan(csv_rows.parse_number("", "n", "f:2"))
    assert math.isnan(csv_rows.parse_number("NaN", "n", "f:2"))
    with pytest.raises(ValueError, match="finite"):
        csv_rows.parse_number("nan", "n", "f:2", needed=True)


def test_printed_numbers_of_papers_are_plain(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1_0\n")
    with pytest.raises(ValueError, match=r"t.csv:2: must be as published"):
        [*printed_numbers.read(str(tmp_path), "t", lambda row: numerals.real(row["a"]))]


def test_numpy_numbers_are_unchanged():
    table = np.array([[1, 2], [3, 5], [4, 7]], object)
    assert stats.friedman(table, larger_is_better=True).df == (1, 2)
