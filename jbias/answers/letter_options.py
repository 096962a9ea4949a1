"""The options of a question by multiple choice: a class for each letter, as a user names them.

options = letter_options.parse("A=airplane,B=bear")
"""

import functools
import os
import types
from collections.abc import Mapping, Sequence

from jbias import errors
from jbias.answers import parsing, table_rows

_HEADER = ["letter", "class"]
_NO_OPTIONS = "{}"  # In a cell: the question had no options.


def parse(text: str) -> dict[str, str]:
    """Return the classes by capital letter, from the value of --options; {} for "".

    text: such as "A=airplane,B=bear", or the path of a CSV file with the columns letter and class.
    ValueError for a letter that is not one of A to Z, and for a letter or class given twice.
    """
    if not text:
        return {}
    is_file = os.path.isfile(text) or "=" not in text
    return _by_letter(_read(text) if is_file else _split(text))


def _by_letter(pairs: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """Return the classes by capital letter of (start of error messages, letter, class)."""
    options: dict[str, str] = {}
    for where, letter, name in pairs:
        letter, name = letter.strip().upper(), name.strip()
        is_letter = len(letter) == 1 and "A" <= letter <= "Z"
        errors.check(is_letter, where, "be one of A to Z", letter, name="the letter")
        errors.check(bool(name), where, "have a class", name, name=f"letter {letter}")
        is_new = letter not in options and name not in options.values()
        errors.check(is_new, where, "be named once", f"{letter}={name}", name="each")
        options[letter] = name
    return options


@functools.lru_cache(2**14)
def parse_cell(text: str, where: str) -> Mapping[str, str] | None:
    """Return the classes by capital letter, from a cell such as "A=truck,B=oven".

    {} for "{}", a question without options; None for "", which does not say. where: start of error
    messages, such as the name of the column. ValueError as in `parse`.
    """
    text = text.strip()
    if not text:
        return None
    pairs = [] if text == _NO_OPTIONS else _split(text, where=where)
    return types.MappingProxyType(_by_letter(pairs))


def format_cell(options: Mapping[str, str]) -> str:
    """Return the text for which `parse_cell` returns these options; "{}" for none.

    ValueError for a class with a comma or "=" in its name, or with spaces around it.
    """
    for name in options.values():
        is_plain = name == name.strip() and not {",", "="} & {*name}
        must = 'have no comma, "=" or space at an end'
        errors.check(is_plain, "options", must, name, "rename it", name="a class")
    pairs = [f"{letter}={name}" for letter, name in options.items()]
    return ",".join(pairs) or _NO_OPTIONS


def _split(text: str, where: str = "--options") -> list[tuple[str, str, str]]:
    """Return (`where`, letter, class) for each pair of "A=airplane,B=bear".

    where: start of error messages.
    """
    pairs = []
    for pair in text.split(","):
        letter, equals, name = pair.partition("=")
        must = "be LETTER=CLASS,..."
        must += " or a file" if where == "--options" else ""
        errors.check(bool(equals), where, must, pair)
        pairs.append((where, letter, name))
    return pairs


def _read(path: str) -> list[tuple[str, str, str]]:
    """Return ("file:line", letter, class) for each row of a CSV file."""
    if not os.path.isfile(path):
        errors.refuse(
            "--options",
            "be A=CLASS,B=CLASS,... or a CSV file with the columns letter and class",
            path,
            "check the path",
        )
    rows = list(table_rows.read(path))
    header = [name.strip().lower() for name in rows[0][1]] if rows else []
    must = "be a CSV file with the columns letter and class"
    errors.check(header == _HEADER, path, must, ", ".join(header))
    return [(where, *cells) for where, cells in rows[1:]]


def of_classes(
    options: Mapping[str, str] | None, classes: Sequence[str]
) -> dict[str, str] | None:
    """Return options with the classes as a set spells them; None for None.

    options: by letter. ValueError for a class that the set does not have.
    """
    if options is None:
        return None
    names = {
        letter: parsing.match_class(name, tuple(classes))
        for letter, name in options.items()
    }
    for letter, name in options.items():
        if not names[letter]:
            errors.check_known("--options", name, classes, f"class of {letter}:")
    return names


def describe(options: Mapping[str, str]) -> str:
    """Return options as text, such as "A = airplane, B = bear, ..., P = truck"."""
    pairs = [f"{letter} = {name}" for letter, name in options.items()]
    return ", ".join(pairs if len(pairs) <= 4 else [*pairs[:3], "...", pairs[-1]])
