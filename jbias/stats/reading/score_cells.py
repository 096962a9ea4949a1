r"""Parser of cells of score tables, such as "73.8 ± 0.2", "75,2 %" and "\textbf{61.0}".

A cell is a number, a number with its spread over runs, a mark for a missing score, or other text.
The meaning of commas is decided from the whole table (`decide_decimal`): "73,8" has a decimal comma
unless another cell contradicts, and "1,234" alone is ambiguous, which raises an error.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator

_MISSING = frozenset(
    (
        "",
        "-",
        "--",
        "---",
        "–",
        "—",
        "−",
        "n/a",
        "n.a.",
        "n.a",
        "na",
        "#n/a",
        "nan",
        "<na>",
        "none",
        "null",
        "nil",
        "?",
        ".",
        "/",
        "oom",
        "tbd",
        "tba",
        "todo",
        "missing",
        "not run",
        "n.r.",
    )
)
_PICTURES = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f\u2b50]")
_MARKS = "*†‡§¶↑↓^"  # Footnotes, and arrows next to a number.
_NUMBER = r"[+-]?(?:[0-9][0-9.,']*|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?"
_SPREAD = r"(?:±|\+/-|\+-|\\pm)"
_CELL = re.compile(
    rf"(?P<value>{_NUMBER})\s*(?P<percent>%?)\s*"
    rf"(?:{_SPREAD}\s*(?P<spread>{_NUMBER})\s*(?P<spread_percent>%?)"
    rf"|\(\s*{_SPREAD}?\s*(?P<bracketed>{_NUMBER})\s*(?P<bracketed_percent>%?)\s*\)"
    rf"|[\[(]\s*(?P<low>{_NUMBER})\s*%?\s*(?:[;–]|,|\bto\b)\s*(?P<high>{_NUMBER})\s*%?\s*[\])])?"
    rf"\s*%?"
)
# Commands of LaTeX that only change how their argument looks.
_LATEX_STYLE = re.compile(
    r"\\(?:textbf|mathbf|boldsymbol|bm|textit|emph|underline|uline|textsc|textrm|mathrm|text"
    r"|texttt|mathit|best|second|tiny|scriptsize|footnotesize|small|makecell|num|ensuremath)"
    r"\s*\{([^{}]*)\}"
)
_LATEX_SWITCH = re.compile(
    r"\\(?:bfseries|bf|itshape|it|em|tiny|scriptsize|footnotesize|small|centering|boldmath)\b"
    r"|\\(?:cellcolor|rowcolor|color|textcolor)\s*(?:\[[^]]*\])?\s*\{[^{}]*\}"
)
_LATEX_NOTE = re.compile(
    r"\\(cite[a-z]*|footnote|tnote|textsuperscript|footnotemark|ref)"
    r"\s*(?:\[[^]]*\])?\s*\{([^{}]*)\}"
)
_MARK = r"[*†‡§¶]"
_CITED = r"\d+(?:\s*[,;–-]\s*\d+)*"  # 12, or 3, 4-6.
_NAME_NOTES = re.compile(  # Of a name: citations, and marks of footnotes.
    rf"\s*\[(?:{_CITED}|(?:-?@|\^)[^\]]*)\]"
    r"|\s*\[(?:[^\[\]]*\bet al\b[^\[\]]*|[^\[\]]*[^\W\d][^\[\]]*,\s*(?:19|20)\d\d[a-z]?)\]"
    r"|\s*\((?:[^()]*\bet al\b[^()]*|[^()]*[^\W\d][^()]*,\s*(?:19|20)\d\d[a-z]?)\)"
    rf"|\s*\\?[†‡§¶]+|(?:\\?\*)+(?=$|[\s(+,])|^{_MARK}+\s*"
    r"|\s*\^(?:[a-z]|\d{1,2}|[*†‡§¶])(?:,\s*(?:[a-z]|\d{1,2}|[*†‡§¶]))*(?=$|[\s(+,])"
    r"|[⁰¹²³⁴-⁹]+(?=$|[\s(+,])"
)
_IS_LATEX = re.compile(r"\\[a-zA-Z%&_#,;!]|\$")
_LATEX_SIGNS = (
    (r"\pm", "±"),
    (r"\%", "%"),
    (r"\&", "&"),
    (r"\_", "_"),
    (r"\#", "#"),
    (r"\,", " "),
    (r"\;", " "),
    (r"\ ", " "),
    (r"\!", ""),
    (r"~", " "),
    (r"\textendash", "–"),
    (r"\ddagger", "‡"),
    (r"\dagger", "†"),
    (r"\ddag", "‡"),
    (r"\dag", "†"),
    (r"\ast", "*"),
    (r"\star", "*"),
    (r"\downarrow", "↓"),
    (r"\uparrow", "↑"),
    (r"\times", "x"),
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A parsed cell of a table of scores."""

    value: float  # NaN if missing.
    spread: float = math.nan  # After ±, or in brackets; NaN without a spread.
    is_summary: bool = False  # The value is a mean with a spread or an interval.
    is_percent: bool = False  # The cell has a percent sign.
    is_unclear: bool = False  # The number in brackets may be a spread or a rank.


@dataclasses.dataclass(frozen=True)
class Commas:
    """The decimal and thousands separators of the numbers in a table."""

    decimal: str = "."  # "." or ",".
    thousands: str = ""  # ",", ".", "'", or "" for none.


def plain_text(text: str, *, keep_notes: bool = False) -> str:
    """Return the text of a cell without the markup of Markdown, HTML and LaTeX, and without emoji.

    Several spaces in a row become one space.
    keep_notes: keep footnote marks and citations, as plain text such as † and [12].
    """
    text = (
        text.replace("\u00a0", " ")
        .replace("\u2009", " ")
        .replace("\u202f", " ")
        .strip()
    )
    if "[" in text or "<" in text:
        text = _strip_links(text, keep_notes)
    if _IS_LATEX.search(text):
        text = _strip_latex(text, keep_notes)
    text = re.sub(r"(\*\*\*|\*\*|__|~~|`)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    text = _PICTURES.sub("", text).strip()
    for mark in ("*", "_"):
        if text.startswith(mark) and text.endswith(mark) and len(text) > 2 * len(mark):
            text = text[len(mark) : -len(mark)].strip()
    return " ".join(text.split())


def bare_name(text: str) -> str:
    """Return a name without markup, footnote marks and citations.

    "SagNet [12]" is SagNet, and "Ours$^\\dagger$" is Ours. Marks stay if only a single
    letter would remain, as for A*.
    """
    name = " ".join(_NAME_NOTES.sub("", plain_text(text)).split())
    return name if len(name) > 1 else plain_text(text, keep_notes=True)


def _strip_links(text: str, keep_notes: bool) -> str:
    """Return a text without images and HTML tags; a link is replaced by its text.

    keep_notes: keep footnote marks and citations.
    """
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(rf"\[\\?\[?({_CITED})\\?\]?\]\([^)]*\)", r"[\1]", text)
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    if not keep_notes:
        text = re.sub(r"\[[-@][^\]]*\]|\[\^[^\]]*\]", "", text)
    text = re.sub(r"<sup>(\s*(?:±|\+/-)[^<>]*)</sup>", r" \1", text)
    text = re.sub(r"<sup>([^<>]*)</sup>", _kept_superscript if keep_notes else "", text)
    return re.sub(r"</?[a-zA-Z][^<>]*>", "", text).strip()


def _kept_superscript(match: re.Match) -> str:
    """Return a superscript as plain text: marks such as † unchanged, other text after "^".

    match: regular expression match of the superscript; group 1 is the text.
    """
    note = match[1].strip()
    return note if re.fullmatch(rf"{_MARK}+", note) else f"^{note}"


def _kept_note(match: re.Match) -> str:
    """Return a LaTeX citation or footnote command as plain text: ^{x}, [^x] or [@x].

    match: a match of `_LATEX_NOTE`, with the command and its argument x.
    """
    if match[1] in ("tnote", "textsuperscript", "footnotemark"):
        return f"^{{{match[2]}}}"
    return f" [{'^' if match[1] == 'footnote' else '@'}{match[2]}]"


def _strip_latex(text: str, keep_notes: bool) -> str:
    """Return a text without LaTeX commands and braces; symbols become Unicode signs.

    keep_notes: keep footnote marks and citations, as plain text.
    """
    text = _LATEX_NOTE.sub(_kept_note if keep_notes else "", text)
    text = _LATEX_SWITCH.sub(" ", text)
    text = text.replace("$", "")
    for command, sign in _LATEX_SIGNS:
        text = re.sub(
            re.escape(command) + (r"(?![a-zA-Z])" if command[-1:].isalpha() else ""),
            sign,
            text,
        )
    text = re.sub(
        r"(?<!\\)[_^]\s*\{\s*((?:±|\+/-|\()[^{}]*)\}", r" \1", text
    )  # A spread as an index, or above.
    if keep_notes:
        text = re.sub(r"\^\s*\{([^{}]*)\}", _kept_superscript, text)
        text = re.sub(r"\^\s*([*†‡§¶])", r"\1", text)
    else:
        text = re.sub(r"\^\s*(?:\{[^{}]*\}|[*†‡§¶a-z])", "", text)
    text = re.sub(r"_\s*(?=±)", " ", text)
    previous = None
    while previous != text:  # Styles may be nested.
        previous = text
        text = _LATEX_STYLE.sub(r"\1", text)
    return re.sub(r"[{}]", "", text).strip()


def is_score(text: str) -> bool:
    """Return True if a cell's text is a number, with or without a spread, or is missing."""
    plain = plain_text(text).replace("−", "-")
    return plain.lower() in _MISSING or bool(_CELL.fullmatch(plain.strip(_MARKS + " ")))


def is_missing(text: str) -> bool:
    """Return True if a cell's text marks a missing score, such as "-" or "n/a"."""
    return plain_text(text).lower() in _MISSING


def parse(text: str, commas: Commas) -> Cell | None:
    """Return the parsed text of a cell; None if it is neither a finite number nor missing.

    A missing score has the value NaN. The number may have a percent sign, which does not change the
    value.
    A number in brackets is a spread, as in "73.8 (0.2)". With a sign, the number in brackets is a
    difference from another row, and is ignored. An interval, as in "73.8 [73.1, 74.5]", marks
    the value as a summary; its ends are not returned. A whole number in brackets after a number
    with decimals, "73.8 (2)", is unclear: a rank, a spread of 2, or a spread of 0.2.
    """
    plain = plain_text(text).replace("−", "-")
    if plain.lower() in _MISSING:
        return Cell(math.nan)
    match = _CELL.fullmatch(plain.strip(_MARKS + " "))
    if not match:
        return None
    value = _number(match["value"], commas)
    if value is None:
        return None
    written = match["spread"] or match["bracketed"]
    spread = math.nan
    is_summary = bool(match["spread"] or match["low"])
    if match["bracketed"]:
        is_summary = match["bracketed"][0] not in "+-"
    if written and is_summary:
        if _number(written, commas) is None:
            return None
        spread = abs(_number(written, commas))
    is_whole = bool(match["bracketed"]) and match["bracketed"].isdecimal()
    return Cell(
        value,
        spread,
        is_summary,
        is_percent="%" in plain,
        is_unclear=is_whole and commas.decimal in match["value"],
    )


def _number(text: str, commas: Commas) -> float | None:
    """Return the number in a text with these separators; None if it is not a finite number.

    Also None if thousands are not separated into groups of three digits.
    """
    digits = text
    if commas.thousands and commas.thousands in digits:
        sign = re.escape(commas.thousands)
        whole = re.split(rf"[{re.escape(commas.decimal)}eE]", digits)[0]
        if not re.fullmatch(rf"[+-]?[0-9]{{1,3}}(?:{sign}[0-9]{{3}})+", whole):
            return None
        digits = digits.replace(commas.thousands, "")
    if commas.decimal == ",":
        if "." in digits:
            return None
        digits = digits.replace(",", ".")
    if not re.fullmatch(
        r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", digits
    ):
        return None
    value = float(digits)
    return value if math.isfinite(value) else None


def _numbers(texts: Iterable[str]) -> Iterator[str]:
    """Yield the text of each number in the texts of cells, without its sign.

    Numbers are values, spreads and the ends of intervals. Other cells yield nothing.
    """
    for text in texts:
        match = _CELL.fullmatch(plain_text(text).replace("−", "-").strip(_MARKS + " "))
        if match:
            for name in ("value", "spread", "bracketed", "low", "high"):
                if match[name]:
                    yield match[name].lstrip("+-")


def decide_decimal(texts: Iterable[str], decimal: str = "") -> Commas:
    """Return the decimal and thousands separators of the numbers in a table.

    texts: texts of all cells. decimal: the user's choice, "." or ",", or "" to decide from the
    cells. An apostrophe in any number separates thousands. The decimal sign is "." if no cell
    decides; the thousands separator is "" if no number has one.
    Raise ValueError, with the two readings, if the cells are ambiguous: only commas before three
    digits, or separators that contradict each other.
    """
    numbers = [*_numbers(texts)]
    with_comma = [number for number in numbers if "," in number]
    with_point = [number for number in numbers if "." in number]
    if any("'" in number for number in numbers):
        has_decimal_comma = with_comma and not with_point
        return Commas(decimal or ("," if has_decimal_comma else "."), "'")
    if decimal:
        other = "," if decimal == "." else "."
        return Commas(decimal, other if any(other in x for x in numbers) else "")
    if not with_comma:
        several = [number for number in with_point if number.count(".") > 1]
        if several:  # 1.234.567
            return Commas(",", ".")
        return Commas()
    both = [number for number in with_comma if "." in number]
    if both:
        is_comma_last = {x.rfind(",") > x.rfind(".") for x in both}
        if len(is_comma_last) == 1:
            return Commas(",", ".") if True in is_comma_last else Commas(".", ",")
    grouped = [number for number in with_comma if _is_grouped(number, ",")]
    if not both and len(grouped) < len(with_comma):
        points = [number for number in with_point if not _is_grouped(number, ".")]
        if not points:  # 73,8, and perhaps 1.234,5 or 1.234
            return Commas(",", "." if with_point else "")
    if not both and with_point and len(grouped) == len(with_comma):
        return Commas(".", ",")  # 1,234 next to 73.8
    example = with_comma[0]
    if not both and len(grouped) == len(with_comma):
        raise ValueError(
            f"the comma in {example!r} may be a decimal comma ({example.replace(',', '.')}) "
            f"or part the thousands ({example.replace(',', '')}); say which: "
            "decimal=, or decimal=."
        )
    raise ValueError(
        f"numbers must be written alike, got {example!r} beside {(with_point or numbers)[0]!r}; "
        "say which sign is the decimal one: decimal=, or decimal=."
    )


def _is_grouped(number: str, sign: str) -> bool:
    """Return True if `sign` may separate thousands in a number, as in 1,234 or 12,345,678."""
    sign = re.escape(sign)
    return bool(
        re.fullmatch(rf"[1-9][0-9]{{0,2}}(?:{sign}[0-9]{{3}})+(?:[.,][0-9]*)?", number)
    )
