"""Changes of a card that rewrite all of its digests, for tests."""

import csv
import hashlib
import io
import pathlib
import shutil

from jbias.cards import card, numbers, tables
from tests.cards import planted

TABLE = "decisions/cue-conflict.csv"


def copy(original: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Return a copy of a card that a test may change."""
    return shutil.copytree(original, folder / "copied")


def read_rows(folder: pathlib.Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a card's table."""
    header, *rows = csv.reader(io.StringIO((folder / TABLE).read_text()))
    return header, rows


def write_rows(folder: pathlib.Path, header: list[str], rows: list[list[str]]) -> str:
    """Write the rows of a card's table with new checks; return the SHA-256 of the file."""
    rows = [[*row[:-1], tables.row_check(row[:-1])] for row in rows]
    content = tables._to_csv(header, rows)
    (folder / TABLE).write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def forge(
    folder: pathlib.Path,
    rows: list[list[str]],
    *,
    header: list[str] | None = None,
    reasons: dict | None = None,
    **changes,
) -> None:
    """Replace the rows of a card and write all checks, numbers, digests and texts anew.

    reasons: of the table's entry. changes: of the entry of the stimuli.
    """
    content = planted.read(folder)
    entry = content["decisions"][0]
    entry["sha256"] = write_rows(folder, header or read_rows(folder)[0], rows)
    entry["rows"] = len(rows)
    if reasons is not None:
        entry["reasons"] = reasons
    table, lines = tables.read(str(folder), entry)
    assert not lines
    content["numbers"] = [x.to_json() for x in numbers.compute([table])]
    content["doubts"] = numbers.doubts([table])
    content["stimuli"]["cue-conflict"] |= changes
    seal(folder, content)


def seal(folder: pathlib.Path, content: dict) -> None:
    """Write a card.json with its digest, and the texts that follow from it."""
    planted.save(folder, content, sealed=True)
    for name, text in card.render(planted.read(folder)).items():
        (folder / name).write_text(text)
