"""One table, shown as HTML and LaTeX and stored as CSV."""

import dataclasses
import html
import types
from collections.abc import Sequence

import pandas as pd

_LATEX = types.MappingProxyType(
    {
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
        "±": r"$\pm$",
        "−": r"$-$",
        "–": "--",
        "—": "---",
        "α": r"$\alpha$",
        "χ": r"$\chi$",
        "²": r"\textsuperscript{2}",
        "≤": r"$\leq$",
        "∞": r"$\infty$",
        "∅": r"$\emptyset$",
        "…": r"\ldots{}",
        "\n": " ",
    }
)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Cells as they are shown, and the same numbers in full for CSV.

    `strong` names cells (row, column) to emphasise; the first column names the rows.
    """

    name: str  # Of its files.
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data: pd.DataFrame
    strong: frozenset[tuple[int, int]] = frozenset()
    under: frozenset[tuple[int, int]] = frozenset()
    texts: int = 1  # How many leading columns hold words, not numbers.

    def __post_init__(self):
        assert all(len(row) == len(self.head) for row in self.rows), self.name


def to_html(table: Table) -> str:
    """Gives a figure element; everything in it is escaped."""
    words = [
        ' data-words=""' if j < table.texts else "" for j in range(len(table.head))
    ]
    head = "".join(
        f'<th scope="col"{kind}>{escape(text)}</th>'
        for kind, text in zip(words, table.head, strict=True)
    )
    body = []
    for i, (name, *row) in enumerate(table.rows):
        cells = [f'<th scope="row"{words[0]}>{escape(name)}</th>']
        for j, text in enumerate(row, start=1):
            best = ' class="best"' if (i, j) in table.strong else ""
            cells.append(f"<td{words[j]}{best}>{escape(text)}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    wide = ' class="wide"' if len(table.head) > 9 else ""
    return (
        f'<figure><div class="scroll"><table{wide}><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
        f"<figcaption>{escape(table.caption)}</figcaption></figure>"
    )


def to_latex(table: Table) -> str:
    """Gives a booktabs table; needs `\\usepackage{booktabs}`."""
    columns = "l" * table.texts + "r" * (len(table.head) - table.texts)
    lines = []
    for i, row in enumerate(table.rows):
        cells = []
        for j, text in enumerate(row):
            cell = latex_escape(text)
            cells.append(rf"\textbf{{{cell}}}" if (i, j) in table.strong else cell)
        lines.append(" & ".join(cells) + r" \\")
    head = " & ".join(latex_escape(text) for text in table.head)
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs}.",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_escape(table.caption)}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """Gives the numbers in full, one header line."""
    return table.data.to_csv(index=False, lineterminator="\n")


def escape(text: str) -> str:
    return html.escape(str(text), quote=True)


def latex_escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in str(text))


def p_text(p: float) -> str:
    """Shows a p-value with what its size lets one say."""
    if p == 0:
        return "0"
    if p < 1e-9:
        return "< 1e-9"
    return f"{p:.1e}".replace("e-0", "e-") if p < 0.001 else f"{p:.3f}"


def join(words: Sequence[str]) -> str:
    """Joins as `a, b and c`."""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
