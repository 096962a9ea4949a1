"""Tables in all file formats: names are escaped, marks and numbers are preserved."""

import csv
import io
import pathlib
import re
import shutil
import subprocess

import pandas as pd
import pytest
from pyarrow import parquet

from jbias.report import document, latex, tables
from tests import cases

NAMES = (
    "<b>bold</b>",
    'a, "b"',
    "new\nline",
    "a|b * _c_ `d`",
    r"$x$ \input{y} %",
    "[1]",
    "*",
    "a--b---c",
    "naïve Übergröße łódź",
    "αβγ Δ ≤ ∞ ± x² − ″",
    "漢字 😀",
)


def test_percentages_use_the_minus_sign_and_dash_of_numbers():
    texts = [tables.percent(x) for x in (-0.0512, -0.0001, 0.5, float("nan"))]
    assert texts == ["−5.1", "0.0", "50.0", "–"]


def make_table(names=NAMES, columns=2, **marks) -> tables.Table:
    heads = [f"{name} {i}" for i in range(columns // len(names) + 1) for name in names]
    data = pd.DataFrame({"name": names, "value": range(len(names)), "n": pd.NA})
    return tables.Table(
        name="nasty_names",
        caption="Of " + ", ".join(names[:3]),
        head=("Name", *heads[:columns]),
        rows=tuple((name, *["−1.2 ± 0.1"] * columns) for name in names),
        data=data,
        **marks,
    )


def page_of(*blocks: document.Block) -> str:
    """Return the HTML of a page with one section."""
    report = document.Report(
        title="title",
        heading="heading",
        subtitle="",
        answer=("", ""),
        facts={},
        sections=[document.Section("all", "All", blocks)],
        results={},
    )
    return document.render(report)["index.html"]


def test_html_has_marks_and_escapes_names():
    marked = make_table(
        bold=frozenset({(0, 1)}), under=frozenset({(0, 1)}), shade={(1, 2): 0.5}
    )
    page = page_of(marked)
    assert '<td class="best under">−1.2' in page
    assert '<td class="shade" style="--depth:0.5">' in page
    assert "<b>" not in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert re.search(
        r'tabindex="0" role="region" aria-label="Table: Nasty names"', page
    )


def test_csv_and_parquet_round_trip_names_and_numbers():
    rows = list(csv.reader(io.StringIO(tables.to_csv(make_table().data), newline="")))
    assert [row[0] for row in rows[1:]] == list(NAMES)
    stored = parquet.read_table(
        io.BytesIO(tables.to_parquet(make_table().data))
    ).to_pandas()
    assert stored["name"].tolist() == list(NAMES)
    assert stored["value"].tolist() == list(range(len(NAMES)))
    assert stored["n"].isna().all()


def test_each_row_of_markdown_is_one_line():
    markdown = tables.to_markdown(make_table(bold=frozenset({(0, 1)})))
    lines = markdown.strip().split("\n")
    assert len(lines) == 2 + 2 + len(NAMES)
    for line in lines[2:]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 4
    assert r"\<b\>bold\</b\>" in lines[4]
    assert "**−1.2 ± 0.1**" in lines[4]


@cases.each(
    ("text", "expected"),
    [
        ("é", r"\'{e}"),
        ("e\u0301", r"\'{e}"),
        ("ï", r"\"{\i}"),
        ("ß", r"\ss{}"),
        ("λ", r"$\lambda$"),
        ("Α", r"$\mathrm{A}$"),
        ("≤", r"$\leq$"),
        ("--", "-{}-"),
        ("\\", r"\textbackslash{}"),
        ("😀", "[U+1F600]"),
        ("字", "[U+5B57]"),
        ("\x07", "[U+0007]"),
    ],
)
def test_latex_escapes_letters_as_commands_or_codes(text, expected):
    assert latex.escape(text) == expected


def test_latex_is_ascii():
    assert latex.table(make_table()).isascii()


def test_latex_names_packages_and_splits_large_tables():
    names = tuple(f"name {i}" for i in range(50))
    assert r"\begin{table}" in latex.table(make_table())
    long = latex.table(make_table(names, 2, shade={(0, 1): 1.0}))
    assert r"\begin{longtable}{lrr}" in long
    assert r"\usepackage{longtable}" in long.splitlines()[0]
    assert r"\usepackage[table]{xcolor}" in long.splitlines()[0]
    wide = latex.table(make_table(names[:5], 10))
    assert r"\resizebox{\textwidth}" in wide
    split = latex.table(make_table(names[:5], 40))
    assert split.count(r"\begin{table}") == split.count("Part ") > 1
    heads = re.findall(r"name \d+ \d+", split.replace("Part", ""))
    assert len(heads) == 40


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(tmp_path: pathlib.Path):
    marks = {
        "bold": frozenset({(0, 1), (2, 2)}),
        "under": frozenset({(0, 1)}),
        "shade": {(1, 1): 0.3, (0, 1): 1.0},
    }
    names = tuple(f"{NAMES[i % len(NAMES)]} {i}" for i in range(50))
    all_tables = (
        make_table(**marks),
        make_table(columns=30, **marks),
        make_table(names, 30, **marks),
    )
    sources = [latex.table(x) for x in all_tables]
    (tmp_path / "all.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs,longtable,graphicx}"
        r"\usepackage[table]{xcolor}\begin{document}"
        + "\\clearpage\n".join(sources)
        + r"\end{document}",
        encoding="ascii",
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    wide = re.findall(rb"Overfull \\hbox \(([\d.]+)pt", done.stdout)
    assert max(map(float, wide), default=0) < 60


@pytest.mark.parametrize(("columns", "long"), [(2, True), (12, False)])
def test_tables_in_smaller_type_hold_more_rows(columns, long):
    """48 rows exceed a page, unless a wide table is set in smaller type."""
    head = ("name", *(f"column {j}" for j in range(columns)))
    rows = tuple((f"row {i}", *["0.123"] * columns) for i in range(48))
    long_table = tables.Table("t", "c", head, rows, pd.DataFrame())
    assert ("longtable" in latex.table(long_table)) is long


def test_an_undefined_number_is_shown_without_an_interval():
    show = tables.interval(tables.digits(1))
    assert show(6.0, 5.0, 7.0) == "6.0 [5.0, 7.0]"
    assert show(float("nan"), 5.0, 7.0) == show(float("nan"), None, None)
