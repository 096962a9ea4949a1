"""Answers stored as a symbol per image: those of the standing table, in stored/answers.csv.

A row is an observer: a person, or a model with one task and prompt. Its answers to the 1,280 cue
conflicts of Geirhos et al., in the order of `images()`, are a text with a symbol per image: a
hexadecimal digit, 0 to f, for one of the 16 classes in alphabetical order, "-" for no answer, "+"
for several classes, which are no answer, and "." for an image that the file has no row for. See
stored/README.md.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from jbias import errors
from jbias.answers import observers, stimulus_names, table_rows
from jbias.data import tables

ANSWERS = pathlib.Path(__file__).parent / "stored" / "answers.csv"
NAME, READER, TEXT = "observer", "reader", "answers"  # Columns.
SUBMISSIONS = "submissions"  # Group of what `studies.standing_table add` has added.
DIGITS = "0123456789abcdef"
NONE, NO_ROW, SEVERAL = "-", ".", "+"


def images() -> tuple[str, ...]:
    """Return the names of the images that the symbols are about, in their order."""
    return tables.cue_conflicts()


@functools.cache
def cues() -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Return the classes of the shapes and of the textures of `images()`."""
    rows = [stimulus_names.Row(name, name, "", "") for name in images()]
    stimuli = stimulus_names.recognise(
        rows, stem="", dataset=stimulus_names.CUE_CONFLICT
    )
    return stimuli.label, stimuli.texture


def encode(decision: Int[np.ndarray, "n"]) -> str:
    """Return decisions about `images()` as symbols."""
    symbols = {**dict(enumerate(DIGITS)), observers.NO_ANSWER: NONE}
    symbols[observers.NO_ROW] = NO_ROW
    return "".join(symbols[int(number)] for number in decision)


def decode(answers: str) -> Int[np.ndarray, "n"]:
    """Return the decisions that symbols stand for; several classes are no answer."""
    numbers = {digit: number for number, digit in enumerate(DIGITS)}
    numbers |= {
        NONE: observers.NO_ANSWER,
        SEVERAL: observers.NO_ANSWER,
        NO_ROW: observers.NO_ROW,
    }
    return np.array([numbers[symbol] for symbol in answers], np.int32)


def is_stored(path: str) -> bool:
    """Return True if a CSV file has the columns of answers stored as symbols."""
    if not path.lower().endswith(".csv"):
        return False
    _, header = next(table_rows.read(path), ("", []))
    return {NAME, TEXT} <= {*header}


def read(path: str, *, symbols: str = DIGITS + NONE + SEVERAL + NO_ROW) -> list[dict]:
    """Return the rows of a file of stored answers as texts by column.

    symbols: those that answers may have. ValueError for a file without the columns "observer" and
    "answers", a row with other symbols or too few, and an observer with two rows.
    """
    table = table_rows.read(path)
    where, header = next(table, (f"{path}:1", []))
    columns = {NAME, TEXT}
    errors.check(columns <= {*header}, where, f"have the columns {columns}", header)
    rows, names = [], set()
    for _, cells in table:
        row = dict(zip(header, cells, strict=True))
        answers, name = row[TEXT], _name(row)
        errors.check(
            len(answers) == len(images()) and {*answers} <= {*symbols},
            path,
            f"have {len(images())} symbols of {symbols} for {row[NAME]}",
            answers[:40],
        )
        errors.check(name not in names, path, "name each observer once", name)
        names.add(name)
        rows.append(row)
    return rows


def to_observers(
    rows: Sequence[Mapping[str, str]],
) -> tuple[observers.Observer, ...]:
    """Return the observers of the rows of `read`, in their order."""
    label, texture = cues()
    names = np.array(images())
    members = []
    for row in rows:
        decision = decode(row[TEXT])
        has_row = decision != observers.NO_ROW
        member = observers.Observer(
            name=_name(row),
            dataset=stimulus_names.CUE_CONFLICT,
            classes=stimulus_names.CLASSES16,
            images=tuple(names[has_row].tolist()),
            label=label[has_row],
            texture=texture[has_row],
            decision=decision[has_row],
            factors={name: row.get(name, "") for name in ("model", "task", "prompt")},
            path=row.get("file", ""),
            sha256=row.get("sha256", ""),
        )
        members.append(member)
    return tuple(members)


def _name(row: Mapping[str, str]) -> str:
    """Return the name of a row's observer; that of a submission is without its folder."""
    name = row[NAME].removeprefix(f"{SUBMISSIONS}/")
    return f"{name} ({row[READER]})" if row.get(READER) else name


@functools.cache
def standing_table() -> tuple[observers.Observer, ...]:
    """Return the observers of the standing table, as this version of jbias has them."""
    return to_observers(read(str(ANSWERS)))
