r"""Functions that write tables as LaTeX for pdflatex, with any characters in names.

Latin, Greek and mathematical letters become commands that need no package. Characters that
pdflatex cannot set, such as emoji, become codes, [U+1F600]. A table that is too wide is set in
smaller type; an even wider table is split into parts, each with the names of its rows. A table
with more rows than a page breaks over pages.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

LONG = 40  # Rows that fit on a page.
WIDE, WIDEST = 72, 150  # Letters that fit on a line, and on a line in smaller type.
WRAPPED = 44  # Letters of a column above which its text is wrapped.
TURNED = 14  # Letters of the head of a number column above which the head is rotated.


def _pairs(text: str) -> dict[str, str]:
    """Return LaTeX commands by letter. text: items "letter command", separated by two spaces."""
    return dict(pair.split(" ", 1) for pair in text.split("  "))


_ACCENTS = dict(zip("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308", "`'^~=u.\""))
_ACCENTS |= dict(zip("\u030a\u030b\u030c\u0327", "rHvc"))
_TEXT = _pairs(
    r"& \&  % \%  $ \$  # \#  _ \_  { \{  } \}  \ \textbackslash{}  ~ \textasciitilde{}"
    r"  ^ \textasciicircum{}  < \textless{}  > \textgreater{}  | \textbar{}  ″ "
    r'"  – --  — ---  … \ldots{}  “ ``  ” '
    r"''  ‘ `  ’ '  ‐ -  ‑ -  − $-$  ° $^\circ$  • \textbullet{}  § \S{}"
    r"  © \textcopyright{}  ® \textregistered{}  ™ \texttrademark{}  € \texteuro{}"
    r"  £ \pounds{}  ß \ss{}  æ \ae{}  Æ \AE{}  œ \oe{}  Œ \OE{}  ø \o{}  Ø \O{}"
    r"  ł \l{}  Ł \L{}  ı \i{}"
)
_SPACES = dict.fromkeys("\n\r\t", " ") | dict.fromkeys("\u00a0\u202f", "~")
# `escape` puts U+200C between two hyphens, which LaTeX would join to a dash.
_SPACES |= {"\u2009": r"\,", "\u200c": "{}"}
_MATHS = _pairs(
    "± pm  × times  ÷ div  · cdot  ≤ leq  ≥ geq  ≠ neq  ≈ approx  ≡ equiv  ∼ sim"
    "  ∞ infty  ∅ emptyset  ∈ in  ∂ partial  ∇ nabla  ∑ sum  ∏ prod  ∫ int  ∧ wedge"
    "  ∨ vee  ∩ cap  ∪ cup  ⊂ subset  √ surd  → rightarrow  ← leftarrow"
    "  ↔ leftrightarrow  ↑ uparrow  ↓ downarrow  ⇒ Rightarrow  ′ prime  ∆ Delta  µ mu"
    "  ϵ epsilon  ε varepsilon  ϕ phi  φ varphi  ς varsigma  ℓ ell  α alpha  β beta"
    "  γ gamma  δ delta  ζ zeta  η eta  θ theta  ι iota  κ kappa  λ lambda  μ mu  ν nu"
    "  ξ xi  π pi  ρ rho  σ sigma  τ tau  υ upsilon  χ chi  ψ psi  ω omega  Γ Gamma"
    "  Δ Delta  Θ Theta  Λ Lambda  Ξ Xi  Π Pi  Σ Sigma  Υ Upsilon  Φ Phi  Ψ Psi  Ω Omega"
)
_LATEX = {
    **_TEXT,
    **_SPACES,
    **{letter: rf"$\{name}$" for letter, name in _MATHS.items()},
    **{a: rf"$\mathrm{{{b}}}$" for a, b in zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧ", "ABEZHIKMNOPTX")},
    **{sign: f"$^{i}$" for i, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{sign: f"$_{i}$" for i, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    "ο": "o",
}


def escape(text: str) -> str:
    """Return text escaped for LaTeX."""
    text = unicodedata.normalize("NFC", str(text))
    return "".join(map(_letter, re.sub("-(?=-)", "-\u200c", text)))


def _letter(letter: str) -> str:
    """Return the LaTeX of a single letter; a code such as [U+1F600] if pdflatex cannot set it."""
    if letter in _LATEX:
        return _LATEX[letter]
    if " " <= letter <= "~":
        return letter
    first, *accents = unicodedata.normalize("NFD", letter)
    if len(accents) == 1 and accents[0] in _ACCENTS and first.isascii():
        dotless = {"i": r"\i", "j": r"\j"}.get(first, first)
        return rf"\{_ACCENTS[accents[0]]}{{{dotless}}}"
    return f"[U+{ord(letter):04X}]"


def table(table: "tables.Table") -> str:
    r"""Return a table as LaTeX source for \input, one environment per part of the table.

    The first line is a comment with the packages that the table needs. The environments are
    longtable if the table has more rows than fit on a page, else table. The label is
    "tab:<name of the table>"; further parts have "-2", "-3" and so on at the end of the label.
    """
    # In smaller type, more rows fit on a page.
    narrowest = min(_width(table, part) for part in _parts(table, WIDEST))
    is_long = len(table.rows) > LONG * max(1, narrowest / WIDE)
    column_groups = list(_parts(table, WIDE if is_long else WIDEST))
    is_small = not is_long and any(
        _width(table, columns) > WIDE for columns in column_groups
    )
    has_rotated = any(_is_rotated(table, j) for j in range(len(table.head)))
    is_needed = {
        "{booktabs}": True,
        "{longtable}": is_long,
        "{graphicx}": has_rotated or is_small,
        "[table]{xcolor}": table.shade,
    }
    packages = [rf"\usepackage{name}" for name in is_needed if is_needed[name]]
    lines = [f"% Needs {' '.join(packages)}"]
    count = len(column_groups)
    for i, columns in enumerate(column_groups):
        part = f" Part {i + 1} of {count}." if count > 1 else ""
        label = f"tab:{table.name}{f'-{i + 1}' if i else ''}"
        caption = rf"\caption{{{escape(table.caption)}{part}}}", rf"\label{{{label}}}"
        lines += (_long if is_long else _short)(table, columns, caption)
    return "\n".join([*lines, ""])


def _parts(table: "tables.Table", limit: int) -> Iterator[list[int]]:
    """Yield the indices of the columns of each part of a table.

    Every part starts with the columns of words (the first table.texts columns), followed by as many
    columns of numbers as fit into `limit` letters, but at least one if there are any. See `_width`
    for the width of columns; a part may be wider than `limit` only if it has a single column of
    numbers, or none.
    """
    fixed = list(range(table.texts))
    part = []
    for j in range(table.texts, len(table.head)):
        if part and _width(table, [*fixed, *part, j]) > limit:
            yield [*fixed, *part]
            part = []
        part.append(j)
    yield [*fixed, *part]


def _width(table: "tables.Table", columns: Sequence[int]) -> int:
    """Return the width of columns in letters.

    A column is as wide as its longest text, but at most WRAPPED letters, plus 2 between columns.
    columns: indices of the columns.
    """
    return sum(min(_letters(table, j), WRAPPED) + 2 for j in columns)


def _letters(table: "tables.Table", j: int) -> int:
    """Return the width of the column with index j in letters."""
    cells = table.letters[j]
    return cells if _is_rotated(table, j) else max(cells, len(table.head[j]))


def _is_rotated(table: "tables.Table", j: int) -> bool:
    """Return True if the head of column j is long and therefore rotated.

    Only columns of numbers are rotated.
    """
    return j >= table.texts and len(table.head[j]) > max(TURNED, table.letters[j])


def _head(table: "tables.Table", columns: Sequence[int]) -> list[str]:
    """Return the three lines of the head: rule, escaped names of the columns, rule.

    Names of more than 28 letters are wrapped; names of `_is_rotated` columns are rotated. columns:
    indices of the columns.
    """
    cells = []
    for j in columns:
        cell = escape(table.head[j])
        if len(table.head[j]) > 2 * TURNED:
            cell = rf"\parbox{{4cm}}{{\raggedright {cell}}}"
        cells.append(rf"\rotatebox{{90}}{{{cell}}}" if _is_rotated(table, j) else cell)
    return [r"\toprule", _line(cells), r"\midrule"]


def _short(
    table: "tables.Table", columns: Sequence[int], caption: Sequence[str]
) -> list[str]:
    """Return the lines of a table on one page, scaled down if wide.

    columns: indices of the columns. caption: lines with the caption and the label.
    """
    is_scaled = _width(table, columns) > WIDE
    return [
        r"\begin{table}",
        r"\centering",
        *caption,
        *([r"\resizebox{\textwidth}{!}{%"] if is_scaled else []),
        rf"\begin{{tabular}}{{{_alignments(table, columns)}}}",
        *_head(table, columns),
        *_rows(table, columns),
        r"\bottomrule",
        r"\end{tabular}" + ("}" if is_scaled else ""),
        r"\end{table}",
    ]


def _long(
    table: "tables.Table", columns: Sequence[int], caption: Sequence[str]
) -> list[str]:
    """Return the lines of a table that breaks over pages.

    columns: indices of the columns. caption: lines with the caption and the label.
    """
    return [
        r"\begingroup\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\begin{{longtable}}{{{_alignments(table, columns)}}}",
        "".join(caption) + r" \\",
        *_head(table, columns),
        r"\endfirsthead",
        *_head(table, columns),
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        *_rows(table, columns),
        r"\end{longtable}",
        r"\endgroup",
    ]


def _alignments(table: "tables.Table", columns: Sequence[int]) -> str:
    """Return the column specification of tabular: l for words, r for numbers, p if wrapped.

    columns: indices of the columns.
    """
    return "".join(
        "p{7cm}" if _letters(table, j) > WRAPPED else "l" if j < table.texts else "r"
        for j in columns
    )


def _rows(table: "tables.Table", columns: Sequence[int]) -> Iterator[str]:
    """Yield the line of each row, with cells bold, underlined and shaded as in the table.

    columns: indices of the columns.
    """
    for i, row in enumerate(table.rows):
        cells = []
        for j in columns:
            cell = escape(row[j])
            cell = rf"\underline{{{cell}}}" if (i, j) in table.under else cell
            cell = rf"\textbf{{{cell}}}" if (i, j) in table.bold else cell
            if (i, j) in table.shade:
                grey = 1 - 0.4 * table.shade[i, j]  # Light enough for black text.
                cell = rf"\cellcolor[gray]{{{grey:.2f}}}{cell}"
            cells.append(cell)
        yield _line(cells)


def _line(cells: list[str]) -> str:
    """Return the line of a row. cells: texts in LaTeX."""
    # LaTeX reads "[" and "*" after the end of a row as options of the row end.
    first = "{}" + cells[0] if cells[0].startswith(("[", "*")) else cells[0]
    return " & ".join([first, *cells[1:]]) + r" \\"
