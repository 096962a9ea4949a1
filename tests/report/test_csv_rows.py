"""Rows of CSV files with any separator, and their line numbers."""

import pytest

from jbias.report import csv_rows
from tests import cases

ROWS = [{"a": "1", "b": 'x, "y"\nz'}, {"a": "2", "b": "ü|;"}]


@cases.each("separator", [",", ";", "\t"])
@cases.each("byte_order_mark", ["", "\ufeff"])
def test_reads_files_of_spreadsheets(tmp_path, separator, byte_order_mark):
    lines = [
        f"a {separator}b",
        f'1{separator}"x, ""y""',
        'z"',
        "",
        f'2{separator}"ü|;"',
    ]
    text = byte_order_mark + " " + "\n".join(lines) + "\n"
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    head, rows = csv_rows.read(path)
    assert head == ["a", "b"]
    assert list(rows) == [(f"{path}:3", ROWS[0]), (f"{path}:5", ROWS[1])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,a\n1,2,3\n", ":1: must name every column once, got 'a' twice"),
        ("a,b\n1,2\n1,2,3\n", ":3: must have 2 fields as line 1, got 3"),
    ],
)
def test_errors_name_the_line(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"t.csv{message}"):
        list(csv_rows.read(path)[1])


def test_refuses_other_encodings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(ValueError, match=r"t.csv: must be text in UTF-8, got other"):
        csv_rows.read(path)


def test_names_may_contain_line_breaks_of_unicode(tmp_path):
    path = tmp_path / "t.csv"
    names = ["a\u2028b", "a\x85b", "a\x0bb", "a\x1cb"]
    path.write_text("name,n\n" + "".join(f"{x},1\n" for x in names), encoding="utf-8")
    _, rows = csv_rows.read(path)
    assert [fields["name"] for _, fields in rows] == names


@cases.each("end", ["\n", "\r\n", "\r"])
def test_line_ends_of_all_systems_are_read(tmp_path, end):
    path = tmp_path / "t.csv"
    path.write_bytes(end.join(["a;b", "1;2", "3;4", ""]).encode())
    head, rows = csv_rows.read(path)
    assert (head, [fields for _, fields in rows]) == (
        ["a", "b"],
        [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}],
    )


def test_an_unclosed_quote_is_refused_in_one_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"x,1\n' + "y,2\n" * 40_000)
    with pytest.raises(ValueError, match=r"t.csv:\d+: must be a CSV file.*quote"):
        list(csv_rows.read(path)[1])
