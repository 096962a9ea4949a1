"""One line for a person, whatever stands in it: names come from users and files."""

import unicodedata

from jbias.store import disk

LONGEST = 2000  # Letters; a name of a megabyte helps nobody.


def line(text: object) -> str:
    """The text on one line, without what a terminal would obey, cut where it is long.

    Letters that cannot be shown appear as their codes, such as \\x1b.
    """
    told = disk.told(text) if isinstance(text, Exception) else str(text)
    words = shown(" ".join(told.split()))
    if len(words) <= LONGEST:
        return words
    half = LONGEST // 2
    return f"{words[:half]} ... {words[-half:]}"


def shown(text: str) -> str:
    """The text with its letters that cannot be shown as codes; spaces stay as they are."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(letter: str) -> str:
    seen = letter.isprintable() or unicodedata.category(letter) == "Zs"
    return letter if seen else ascii(letter)[1:-1]
