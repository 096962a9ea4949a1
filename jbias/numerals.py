"""Numbers in text that people write: cells of tables, flags, arguments of configs.

Python reads more as a number than a person means: "50_63" is 5063 to float(), a slip for
50.63 to everyone else; so are "inf", "nan", digits of other scripts, and "1e400", which is
infinite. Text from files and flags is read by the functions of this module alone.
"""

import io
import math
import re
import tokenize

_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_TOKEN = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[jJ]?")


def real(text: str) -> float:
    """Return the finite number that a text such as "50.63", "-1e-3" or "+2" writes.

    Digits are 0 to 9, without separators; spaces around the number do not matter. Raises
    ValueError for all else.
    """
    if not _REAL.fullmatch(text.strip()):
        raise ValueError(f"must be a number, got {text!r}")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"must be a number that a float can hold, got {text!r}")
    return value


def whole(text: str) -> int:
    """Return the whole number that a text such as "12" or "-3" writes.

    Raises ValueError for all else, as `real` does.
    """
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"must be a whole number, got {text!r}")
    return int(text)


def is_real(text: str) -> bool:
    """Return whether `real` reads the text."""
    try:
        real(text)
    except ValueError:
        return False
    return True


def is_count(text: str) -> bool:
    """Return whether the text consists of the digits 0 to 9 alone."""
    return text.isascii() and text.isdecimal()


def ambiguous(text: str) -> str:
    """Return the first number that Python would read otherwise than a person, or "".

    `text` is a literal of Python, such as "(0.1, 1_000)"; what stands in quotes is text.
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
    try:
        float(text)
    except ValueError:
        return False
    return True
