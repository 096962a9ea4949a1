"""Format paragraphs, tables and numbers of pages that commands write."""

import re
import string
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd


def wrap(section: str) -> str:
    """Return Markdown with paragraphs wrapped at 110 characters.

    Headings, tables, HTML and blocks of code stay as they are. A list has items that begin with
    "- " or a digit and a dot.
    """
    blocks, is_code = [], False
    for block in section.split("\n\n"):
        is_code = is_code or block.startswith("```")
        if is_code or block.startswith(("#", "|", "<")):
            is_code = is_code and not block.endswith("```")
            blocks.append(block)
            continue
        lines = []
        for item in re.split(r"\n(?=- |\d\. )", block):
            indent = " " * len(re.match(r"(?:- |\d\. )?", item)[0])
            line = textwrap.fill(
                " ".join(item.split()),
                width=110,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines.append(line)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


class _Fields(string.Formatter):
    """Formatter of the page's fields: "-" is a minus sign, "%" has a space before it."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value as the page shows it."""
        if format_spec.endswith("%"):
            return f"{100 * value:{format_spec[:-1]}f} %"
        if format_spec.endswith("p"):
            return f"{100 * value:{format_spec[:-1]}f}"
        shown = format(value, format_spec)
        return shown.replace("-", "−") if isinstance(value, int | float) else shown


def fill(template: str, fields: Mapping[str, Any]) -> str:
    """Return a page: the template with its fields filled, wrapped, and with a line end.

    Fields are as for `str.format`; "{x:.1%}" shows 0.123 as "12.3 %", "{x:.1p}" as "12.3" (points).
    """
    return wrap(_Fields().vformat(template, (), fields).strip()) + "\n"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def bold_if(text: str, is_bold: bool) -> str:
    """Return `text`, in bold type if `is_bold`."""
    return f"**{text}**" if is_bold else text


def format_two_decimals(value: float) -> str:
    """Return `value` with two decimals, or – if it is missing."""
    return "–" if pd.isna(value) else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def format_exponent(p: float) -> str:
    """Return a small number in exponential notation with three decimals."""
    return f"{p:.3e}"
