"""Functions that read numbers in text: cells of tables, flags, arguments of configs.

For some text, Python reads a number that the writer did not mean: float("50_63") is 5063, where the
writer probably meant 50.63; float() also accepts "inf", "nan", digits of other scripts, and
"1e400", which becomes infinite. Text from files and flags is read only by functions of this module.
"""

import io
import math
import re
import tokenize

_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_TOKEN = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[jJ]?")


def real(text: str) -> float:
    """Return the finite number in a text such as "50.63", "-1e-3" or "+2".

    Digits are 0 to 9, without separators; spaces around the number are ignored. ValueError
    for other texts.
    """
    if not _REAL.fullmatch(text.strip()):
        raise ValueError(f"must be a number, got {text!r}")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"must be a number that a float can hold, got {text!r}")
    return value


def whole(text: str) -> int:
    """Return the whole number in a text such as "12" or "-3"; ValueError for other texts.

    Digits are 0 to 9, without separators; spaces around the number are ignored.
    """
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"must be a whole number, got {text!r}")
    return int(text)


def is_real(text: str) -> bool:
    """Return True if `real` accepts the text."""
    try:
        real(text)
    except ValueError:
        return False
    return True


def is_count(text: str) -> bool:
    """Return True if the text consists of digits 0 to 9 only, at least one."""
    return text.isascii() and text.isdecimal()


def ambiguous(text: str) -> str:
    """Return the first number in a text that Python reads differently from a person.

    Such numbers are 1_000, 0x10, inf or 1e400. text: a Python literal, such as "(0.1, 1_000)",
    for which "1_000" is returned. Text in quotes is ignored. "" if there is no such number.
    """
    if _is_float(text) and not is_real(text):
        return text.strip()
    try:
        tokens = [*tokenize.generate_tokens(io.StringIO(text).readline)]
    except (tokenize.TokenError, SyntaxError):
        return ""
    numbers = (token.string for token in tokens if token.type == tokenize.NUMBER)
    for number in numbers:
        plain = _TOKEN.fullmatch(number)
        if not plain or math.isinf(float(number.rstrip("jJ"))):
            return number
    return ""


def _is_float(text: str) -> bool:
    """Return True if float() accepts the text."""
    try:
        float(text)
    except ValueError:
        return False
    return True
