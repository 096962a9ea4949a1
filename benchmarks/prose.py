"""Text of documents that commands write: paragraphs, tables, numbers."""

import re
import textwrap
from collections.abc import Iterable, Sequence

import pandas as pd


def wrapped(part: str) -> str:
    """Breaks the lines of words anew: numbers in them have other lengths than their names."""
    blocks, code = [], False
    for block in part.split("\n\n"):
        code = code or block.startswith("```")
        if code or block.startswith(("#", "|")):
            code = code and not block.endswith("```")
            blocks.append(block)
            continue
        lines = []
        for item in re.split(r"\n(?=- )", block):
            indent = "  " if item.startswith("- ") else ""
            fill = dict(width=110, break_long_words=False, break_on_hyphens=False)
            words = " ".join(item.split())
            lines.append(textwrap.fill(words, subsequent_indent=indent, **fill))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Gives a pipe table."""
    lines = [
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def marked(told: str, bold: bool) -> str:
    """Makes text bold, or not."""
    return f"**{told}**" if bold else told


def one(value: float) -> str:
    """Shows one decimal."""
    return f"{value:.1f}".replace("-", "−")


def two(value: float) -> str:
    """Shows two decimals; – if not known."""
    return "–" if pd.isna(value) else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def e(p: float) -> str:
    """Shows a small number."""
    return f"{p:.3e}"
