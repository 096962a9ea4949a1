"""One line for a person, whatever stands in it: names come from users and files."""

LONGEST = 2000  # Letters; a name of a megabyte helps nobody.


def line(text: object) -> str:
    """The text on one line, without what a terminal would obey, cut where it is long.

    Letters that cannot be shown appear as their codes, such as \\x1b.
    """
    words = " ".join(str(text).split())
    if not words.isprintable():
        words = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
    if len(words) <= LONGEST:
        return words
    half = LONGEST // 2
    return f"{words[:half]} ... {words[-half:]}"
