r"""A table as LaTeX that pdflatex compiles, whatever the names in it are.

Latin, Greek and mathematical letters become commands that need no package. What pdflatex
cannot set, such as emoji, shows as its code, [U+1F600]. A table that is too wide is set
smaller, and one wider than that comes in parts, each with the names of its rows. One with
more rows than a page then holds breaks over pages.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

LONG = 40  # Rows that fit on a page.
WIDE, WIDEST = 72, 150  # Letters that fit on a line, and on a line set smaller.
WRAPPED = 44  # Letters of the widest column.
TURNED = 14  # Letters of the longest head of numbers that is not upright.


def _pairs(text: str) -> dict[str, str]:
    """Reads pairs of a letter and a command, each two spaces from the next."""
    return dict(one.split(" ", 1) for one in text.split("  "))


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
_SPACES |= {"\u2009": r"\,", "\u200c": "{}"}  # The last: between two hyphens, a dash.
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
    """Gives text that LaTeX sets as it is."""
    text = unicodedata.normalize("NFC", str(text))
    return "".join(map(_letter, re.sub("-(?=-)", "-\u200c", text)))


def _letter(letter: str) -> str:
    if letter in _LATEX:
        return _LATEX[letter]
    if " " <= letter <= "~":
        return letter
    first, *accents = unicodedata.normalize("NFD", letter)
    if len(accents) == 1 and accents[0] in _ACCENTS and first.isascii():
        dotless = {"i": r"\i", "j": r"\j"}.get(first, first)
        return rf"\{_ACCENTS[accents[0]]}{{{dotless}}}"
    return f"[U+{ord(letter):04X}]"


def table(table) -> str:
    """Gives a `tables.Table` for \\input."""
    # Set smaller, a table has more rows on a page.
    narrowest = min(_width(table, part) for part in _parts(table, WIDEST))
    long = len(table.rows) > LONG * max(1, narrowest / WIDE)
    parts = list(_parts(table, WIDE if long else WIDEST))
    small = not long and any(_width(table, columns) > WIDE for columns in parts)
    turned = any(_turned(table, j) for j in range(len(table.head)))
    needed = {"{booktabs}": True, "{longtable}": long, "{graphicx}": turned or small}
    needed |= {"[table]{xcolor}": table.shade}
    packages = [rf"\usepackage{name}" for name in needed if needed[name]]
    lines = [f"% Needs {' '.join(packages)}"]
    for i, columns in enumerate(parts):
        part = f" Part {i + 1} of {len(parts)}." if len(parts) > 1 else ""
        label = f"tab:{table.name}{f'-{i + 1}' if i else ''}"
        caption = rf"\caption{{{escape(table.caption)}{part}}}", rf"\label{{{label}}}"
        lines += (_long if long else _short)(table, columns, caption)
    return "\n".join([*lines, ""])


def _parts(table, limit: int) -> Iterator[list[int]]:
    """Gives the columns of each part; all begin with the columns of words."""
    fixed, part = list(range(table.texts)), []
    for j in range(table.texts, len(table.head)):
        if part and _width(table, [*fixed, *part, j]) > limit:
            yield [*fixed, *part]
            part = []
        part.append(j)
    yield [*fixed, *part]


def _width(table, columns: Sequence[int]) -> int:
    return sum(min(_letters(table, j), WRAPPED) + 2 for j in columns)


def _letters(table, j: int) -> int:
    cells = table.letters[j]
    return cells if _turned(table, j) else max(cells, len(table.head[j]))


def _turned(table, j: int) -> bool:
    """Whether a head is so long over numbers that it stands upright."""
    return j >= table.texts and len(table.head[j]) > max(TURNED, table.letters[j])


def _head(table, columns: Sequence[int]) -> list[str]:
    cells = []
    for j in columns:
        cell = escape(table.head[j])
        if len(table.head[j]) > 2 * TURNED:
            cell = rf"\parbox{{4cm}}{{\raggedright {cell}}}"
        cells.append(rf"\rotatebox{{90}}{{{cell}}}" if _turned(table, j) else cell)
    return [r"\toprule", _line(cells), r"\midrule"]


def _short(table, columns: Sequence[int], caption: Sequence[str]) -> list[str]:
    box = _width(table, columns) > WIDE
    return [
        r"\begin{table}",
        r"\centering",
        *caption,
        *([r"\resizebox{\textwidth}{!}{%"] if box else []),
        rf"\begin{{tabular}}{{{_kinds(table, columns)}}}",
        *_head(table, columns),
        *_rows(table, columns),
        r"\bottomrule",
        r"\end{tabular}" + "}" * box,
        r"\end{table}",
    ]


def _long(table, columns: Sequence[int], caption: Sequence[str]) -> list[str]:
    return [
        r"\begingroup\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\begin{{longtable}}{{{_kinds(table, columns)}}}",
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


def _kinds(table, columns: Sequence[int]) -> str:
    return "".join(
        "p{7cm}" if _letters(table, j) > WRAPPED else "l" if j < table.texts else "r"
        for j in columns
    )


def _rows(table, columns: Sequence[int]) -> Iterator[str]:
    for i, row in enumerate(table.rows):
        cells = []
        for j in columns:
            cell = escape(row[j])
            cell = rf"\underline{{{cell}}}" if (i, j) in table.under else cell
            cell = rf"\textbf{{{cell}}}" if (i, j) in table.bold else cell
            if (i, j) in table.shade:
                grey = 1 - 0.4 * table.shade[i, j]  # Black stays legible on it.
                cell = rf"\cellcolor[gray]{{{grey:.2f}}}{cell}"
            cells.append(cell)
        yield _line(cells)


def _line(cells: list[str]) -> str:
    # After the end of a row these two would be read as its options.
    first = "{}" * cells[0].startswith(("[", "*")) + cells[0]
    return " & ".join([first, *cells[1:]]) + r" \\"
