r"""A table as LaTeX that pdflatex compiles, whatever the names in it are.

Latin, Greek and mathematical letters become commands. What pdflatex cannot set, such as
emoji, shows as its code, [U+1F600]. A table that is too wide is set smaller, and one wider
than that comes in parts, each with the names of its rows. One with more rows than a page
then holds breaks over pages.
"""

import re
import types
import unicodedata

LONG = 40  # Rows that fit on a page.
WIDE, WIDEST = 72, 150  # Letters that fit on a line, and on a line set smaller.
WRAPPED = 44  # Letters of the widest column.
TURNED = 14  # Letters of the longest head of numbers that is not upright.

_ACCENTS = dict(
    zip(
        map(chr, (*range(0x300, 0x305), 0x306, 0x307, 0x308, 0x30A, 0x30B, 0x30C)),
        ("`", "'", "^", "~", "=", "u", ".", '"', "r", "H", "v"),
        strict=True,
    )
) | {chr(0x327): "c"}
_SETS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "″": '"',
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "•": r"\textbullet{}",
    "§": r"\S{}",
    "©": r"\textcopyright{}",
    "®": r"\textregistered{}",
    "™": r"\texttrademark{}",
    "€": r"\texteuro{}",
    "£": r"\pounds{}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    "\n": " ",
    "\r": " ",
    "\t": " ",
    "\u00a0": "~",
    "\u202f": "~",
    "\u2009": r"\,",
    "\u200c": "{}",  # Between two hyphens, which would be a dash.
}
_MATHS = {
    "±": "pm",
    "×": "times",
    "÷": "div",
    "·": "cdot",
    "≤": "leq",
    "≥": "geq",
    "≠": "neq",
    "≈": "approx",
    "≡": "equiv",
    "∼": "sim",
    "∞": "infty",
    "∅": "emptyset",
    "∈": "in",
    "∂": "partial",
    "∇": "nabla",
    "∑": "sum",
    "∏": "prod",
    "∫": "int",
    "∧": "wedge",
    "∨": "vee",
    "∩": "cap",
    "∪": "cup",
    "⊂": "subset",
    "√": "surd",
    "→": "rightarrow",
    "←": "leftarrow",
    "↔": "leftrightarrow",
    "↑": "uparrow",
    "↓": "downarrow",
    "⇒": "Rightarrow",
    "′": "prime",
    "∆": "Delta",
    "µ": "mu",
    "ϵ": "epsilon",
    "ε": "varepsilon",
    "ϕ": "phi",
    "φ": "varphi",
    "ς": "varsigma",
    "ℓ": "ell",
}
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "zeta", "eta", "theta", "iota", "kappa"),
    *("mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "chi", "psi", "omega"),
)
_CAPITALS = (
    *("Gamma", "Delta", "Theta", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi"),
    *("Omega", "Lambda"),
)


def _letter(name: str) -> str:
    kind = "CAPITAL" if name[0].isupper() else "SMALL"
    greek = name.upper().replace("LAMBDA", "LAMDA")
    return unicodedata.lookup(f"GREEK {kind} LETTER {greek}")


_LATEX = types.MappingProxyType(
    _SETS
    | {letter: rf"$\{name}$" for letter, name in _MATHS.items()}
    | {_letter(name): rf"$\{name}$" for name in (*_GREEK, "lambda", *_CAPITALS)}
    | {_letter(n): rf"$\mathrm{{{n[0]}}}$" for n in ("Alpha", "Beta", "Kappa", "Iota")}
    | {_letter("omicron"): "o", "−": "$-$", "°": r"$^\circ$", "‐": "-", "‑": "-"}
    | {sign: f"$^{i}$" for i, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
    | {sign: f"$_{i}$" for i, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")}
)


def escape(text: str) -> str:
    """Gives text that LaTeX sets as it is."""
    text = unicodedata.normalize("NFC", str(text))
    return "".join(map(_set, re.sub("-(?=-)", "-\u200c", text)))


def _set(letter: str) -> str:
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
    parts = _parts(table)
    long = _is_long(table)
    wide = any(_width(table, columns) > WIDE for columns in parts)
    needs = [r"\usepackage{booktabs}"]
    needs += [r"\usepackage{longtable}"] if long else []
    turned = any(_turned(table, j) for j in range(len(table.head)))
    needs += [r"\usepackage{graphicx}"] if turned or (wide and not long) else []
    needs += [r"\usepackage[table]{xcolor}"] if table.shade else []
    lines = [f"% Needs {' '.join(needs)}"]
    for i, columns in enumerate(parts):
        told = f" Part {i + 1} of {len(parts)}." if len(parts) > 1 else ""
        label = f"tab:{table.name}{f'-{i + 1}' if i else ''}"
        caption = (
            rf"\caption{{{escape(table.caption)}{told}}}",
            rf"\label{{{label}}}",
        )
        lines += (_long if long else _short)(table, columns, caption)
    return "\n".join([*lines, ""])


def _parts(table):
    """Gives the columns of each part; all begin with the columns of words."""
    return list(_split(table, WIDE if _is_long(table) else WIDEST))


def _split(table, limit: int):
    fixed = list(range(table.texts))
    part = []
    for j in range(table.texts, len(table.head)):
        if part and _width(table, [*fixed, *part, j]) > limit:
            yield [*fixed, *part]
            part = []
        part.append(j)
    yield [*fixed, *part]


def _is_long(table) -> bool:
    """Whether a page is too short; a table that is set smaller has more rows on it."""
    narrowest = min(_width(table, part) for part in _split(table, WIDEST))
    return len(table.rows) > LONG * max(1, narrowest / WIDE)


def _width(table, columns) -> int:
    return sum(min(_letters(table, j), WRAPPED) + 2 for j in columns)


def _letters(table, j: int) -> int:
    cells = table.letters[j]
    return cells if _turned(table, j) else max(cells, len(table.head[j]))


def _turned(table, j: int) -> bool:
    """Whether a head is so long over numbers that it stands upright."""
    return j >= table.texts and len(table.head[j]) > max(TURNED, table.letters[j])


def _head(table, columns) -> str:
    cells = []
    for j in columns:
        cell = escape(table.head[j])
        if len(table.head[j]) > 2 * TURNED:
            cell = rf"\parbox{{4cm}}{{\raggedright {cell}}}"
        cells.append(rf"\rotatebox{{90}}{{{cell}}}" if _turned(table, j) else cell)
    return _line(cells)


def _short(table, columns, caption) -> list[str]:
    box = _width(table, columns) > WIDE
    return [
        r"\begin{table}",
        r"\centering",
        *caption,
        *([r"\resizebox{\textwidth}{!}{%"] if box else []),
        rf"\begin{{tabular}}{{{_kinds(table, columns)}}}",
        r"\toprule",
        _head(table, columns),
        r"\midrule",
        *_rows(table, columns),
        r"\bottomrule",
        r"\end{tabular}" + ("}" if box else ""),
        r"\end{table}",
    ]


def _long(table, columns, caption) -> list[str]:
    head = [r"\toprule", _head(table, columns), r"\midrule"]
    return [
        r"\begingroup\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\begin{{longtable}}{{{_kinds(table, columns)}}}",
        "".join(caption) + r" \\",
        *head,
        r"\endfirsthead",
        *head,
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        *_rows(table, columns),
        r"\end{longtable}",
        r"\endgroup",
    ]


def _kinds(table, columns) -> str:
    kinds = []
    for j in columns:
        wraps = _letters(table, j) > WRAPPED
        kinds.append("p{7cm}" if wraps else "l" if j < table.texts else "r")
    return "".join(kinds)


def _rows(table, columns) -> list[str]:
    lines = []
    for i, row in enumerate(table.rows):
        cells = []
        for j in columns:
            cell = escape(row[j])
            cell = rf"\underline{{{cell}}}" if (i, j) in table.under else cell
            cell = rf"\textbf{{{cell}}}" if (i, j) in table.strong else cell
            if (i, j) in table.shade:
                grey = 1 - 0.4 * table.shade[i, j]  # Black stays legible on it.
                cell = rf"\cellcolor[gray]{{{grey:.2f}}}{cell}"
            cells.append(cell)
        lines.append(_line(cells))
    return lines


def _line(cells: list[str]) -> str:
    # After the end of a row these two would be read as its options.
    first = "{}" * cells[0].startswith(("[", "*")) + cells[0]
    return " & ".join([first, *cells[1:]]) + r" \\"
