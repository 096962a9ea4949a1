"""Sentences on how files of decisions were read: parsed words, bare letters, doubtful labels.

Labels are doubtful where few of a model's words name them: the number then depends on the reader.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from jbias.answers import letter_options, parsing

_MAX_FILES = 4  # Files that a sentence names.
# Least share of answers that contain the published class. It is 1 for published answers by
# multiple choice, and 0.90 at most for published captions.
_FEW = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """Counts of the rows of one file on one set."""

    path: str
    column: str  # Of the model's words; "" for none.
    num_rows: int
    num_parsed: int = 0  # Rows whose words were parsed ...
    num_without: int = 0  # ... that have no answer,
    num_letters: int = 0  # ... decided by a letter alone,
    num_agree: int = 0  # ... with a letter and a class that agree,
    num_differ: int = 0  # ... or differ.
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # By letter.
    has_own_options: bool = False  # Named by the user.
    has_drawn_options: bool = False  # Named by a column, for each row.
    num_labels: int = 0  # Rows with words and a published class ...
    num_named: int = 0  # ... that the words name.
    altered: tuple[
        str, ...
    ] = ()  # Images that are not published, if most of the file's are.


def lines(readings: Sequence[Reading], *, parse: str) -> Iterator[str]:
    """Yield the sentences on all files. parse: see `answers.tables.read`."""
    for reading in readings:
        if reading.num_parsed and parse == "published":
            answers = reading.num_parsed - reading.num_without
            yield (
                f"{reading.path}: {reading.num_parsed:,} of {reading.num_rows:,} decisions are "
                f"read from the words in {reading.column!r} (parser {parsing.VERSION}): "
                f"{answers:,} name a class, {reading.num_without:,} give no answer"
            )
        if reading.altered:
            yield (
                f"{reading.path}: {len(reading.altered):,} of {reading.num_rows:,} images are "
                f"not among the published cue conflicts ({_some(reading.altered)}), unlike the "
                "others; check these names"
            )
    yield from _letters(readings)
    yield from _contradictions(readings)
    yield from _labels(readings)


def _letters(readings: Sequence[Reading]) -> Iterator[str]:
    """Yield a sentence for each order of options in which bare letters were read."""
    by_order: dict[str, list[Reading]] = {}
    for reading in readings:
        if reading.num_letters:
            order = letter_options.describe(reading.options)
            order += "" if reading.has_own_options else " (alphabetical order)"
            if reading.has_drawn_options:
                order = "the options that the table names for each image"
            by_order.setdefault(order, []).append(reading)
    for order, members in by_order.items():
        total = sum(reading.num_letters for reading in members)
        is_own = members[0].has_own_options or members[0].has_drawn_options
        advice = "" if is_own else "; if the question had another order, use --options"
        yield (
            f"{_where(members)}: {total:,} answers are letters without a class, read as "
            f"{order}{advice}"
        )


def _contradictions(readings: Sequence[Reading]) -> Iterator[str]:
    """Yield a sentence on files whose letters and classes differ in most of the rows with both."""
    doubtful = [x for x in readings if x.num_differ > x.num_agree]
    if doubtful:
        differ = sum(x.num_differ for x in doubtful)
        both = differ + sum(x.num_agree for x in doubtful)
        is_drawn = all(reading.has_drawn_options for reading in doubtful)
        remedy = "check the drawn ones" if is_drawn else "name it by --options"
        yield (
            f"{_where(doubtful)}: in {differ:,} of {both:,} answers with a letter and a class the "
            "two contradict each other, and count as no answer: the question had another order of "
            f"options; {remedy}, and do not use these numbers"
        )


def _labels(readings: Sequence[Reading]) -> Iterator[str]:
    """Yield a sentence on files whose words often do not contain the published class."""
    doubtful = [x for x in readings if x.num_named < _FEW * x.num_labels]
    if doubtful:
        named = sum(x.num_named for x in doubtful)
        labels = sum(x.num_labels for x in doubtful)
        yield (
            f"{_where(doubtful)}: only {named:,} of {labels:,} answers contain the published "
            "class, so these numbers depend on the reader that chose the classes; compare "
            "--parse=raw"
        )


def names_label(words: str, name: str, options: Mapping[str, str]) -> bool:
    """Return True if words contain a class's name, or begin with its letter.

    Quicker and more generous than the parser: any place and any case count, and beside several
    classes. options: class by
    letter.
    """
    if _pattern(name).search(words):
        return True
    start = words.lstrip(" \t\n\"'*`([")[:2]
    is_letter = len(start) == 1 or not start[1:].isalnum()
    return bool(start) and is_letter and options.get(start[0].upper()) == name


@functools.lru_cache(2**12)
def _pattern(name: str) -> re.Pattern:
    """Return a pattern that matches a class's name or its regular plural, in any case."""
    forms = {form.replace("_", " ") for form in (name, parsing.plural(name))}
    words = "|".join(re.escape(form).replace(r"\ ", "[ _]") for form in sorted(forms))
    return re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE)


def _where(readings: Sequence[Reading]) -> str:
    """Return the start of a sentence: the only file's path, or the number of files with names."""
    if len(readings) == 1:
        return readings[0].path
    names = [os.path.basename(reading.path) for reading in readings]
    return f"{len(readings)} files ({_some(names)})"


def _some(names: Sequence[str]) -> str:
    """Return names separated by commas; of more than _MAX_FILES only the first."""
    num_more = len(names) - _MAX_FILES
    more = f" and {num_more:,} more" if num_more > 0 else ""
    return f"{', '.join(names[:_MAX_FILES])}{more}"
