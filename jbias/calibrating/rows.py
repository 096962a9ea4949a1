"""The two tables of a study of calibration: its networks, and what measures say of them.

`networks.csv` has a row for each planted network (`PlantedNetwork`), `readings.csv` a row for each
value of a measure (`Reading`). An empty cell is None. `jbias.planting` writes both tables.
"""

import csv
import io
import math
import os
import types
import typing
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from etils import epath

from jbias import errors
from jbias.runtime import files

FAMILIES: Mapping[str, str] = types.MappingProxyType(
    {
        "rule": "decides by the known cues of an image, without looking at it",
        "trained": "trained on images whose labels follow the planned dial",
        "mixed_logits": "two trained streams; the dial weights their logits",
        "mixed_images": "two trained streams; the dial is the share of images that each decides",
        "none": "at chance, constant, or failing: without a dial",
    }
)
# Families whose dial is the verified reliance, as training does not determine it.
VERIFIED_FAMILIES = ("trained",)
# Families that see images, so that every measure can be read from them.
IMAGE_FAMILIES = ("trained", "mixed_logits", "mixed_images")
SHORTCUTS = ("", "colour", "size")
_NUM_CUES = 4  # Shape, texture, colour, size.


class PlantedNetwork(NamedTuple):
    """A planted network: its dial, what was planned, and its verified reliance.

    network: unique name. family: key of FAMILIES.
    dial: the network's reliance on shape against texture, 0 to 1: `verified_reliance` for families
      in VERIFIED_FAMILIES, else planned_dial, which holds by construction. None for the family
      "none", and if it could not be verified.
    planned_dial: the dial that the network was made with. Trained networks follow it roughly.
      None for the family "none".
    level: name of the planted level of accuracy, such as "high".
    group: name of the networks that are made alike: the family, for trained networks with the
      level and the design of training. A network is read by the curve of the other groups.
    cluster: name of the networks that share trained streams, or all settings but the seed. They
      are not independent, and are drawn together in bootstrap intervals.
    shortcut, strength: one of SHORTCUTS, and the planted share of decisions that follow it, 0 to
      1; 0 without a shortcut.
    seed: seed of the network. hidden: 1 for networks of the hidden set, else 0.
    classes: number of classes. images: number of images of the set "test".
    accuracy: on "test", whose images have all cues of one class; chance: of that set.
    verified_images: number of images of the set "factorial" on which the classes of all four cues
      differ. The set has every combination of cues, so that a decision about such an image has
      one reading only.
    verified_shape, _texture, _colour, _size, _neither: decisions for the class of each cue, and
      for none of them, as shares of these images. They sum to 1. None if it was not measured.
    """

    network: str
    family: str
    dial: float | None
    planned_dial: float | None
    level: str
    group: str
    cluster: str
    shortcut: str
    strength: float
    seed: int
    hidden: int
    classes: int
    images: int
    accuracy: float | None
    chance: float
    verified_images: int = 0
    verified_shape: float | None = None
    verified_texture: float | None = None
    verified_colour: float | None = None
    verified_size: float | None = None
    verified_neither: float | None = None

    @property
    def verified_reliance(self) -> float | None:
        """Return the verified reliance on shape against texture, without guesses.

        s / (s + t), where s and t are the shares of decisions for the shape and for the texture,
        each less `guesses`, as the four cues of an image are of different classes. Otherwise
        networks that often guess would seem to rely on both. None if s + t is not positive, and
        without verification.
        """
        if self.verified_shape is None or self.verified_texture is None:
            return None
        shape = max(0.0, self.verified_shape - self.guesses)
        texture = max(0.0, self.verified_texture - self.guesses)
        return shape / (shape + texture) if shape + texture > 0 else None

    @property
    def guesses(self) -> float:
        """Return the share of guesses for one class: verified_neither / (classes - 4), or 0."""
        return (self.verified_neither or 0.0) / (self.classes - _NUM_CUES)


class Reading(NamedTuple):
    """The value that a measure gives for a network, from a number of images.

    network: `PlantedNetwork.network`. measure: key of measures.MEASURES.
    images: images of the measure's largest set that the value is computed from. draw: number of
      the subsample, from 0; 0 for all images.
    value: None if undefined or not measured; then `reason` says why, else it is "".
    lower, upper: 95 % interval of the measure; None without one.
    n: the count of decisions that the value is a share of, or of images.
    seconds: time of the network for the measure's answers and numbers, for all images; None for
      subsamples, and for measures that share the answers of another measure.
    """

    network: str
    measure: str
    images: int
    draw: int
    value: float | None
    lower: float | None
    upper: float | None
    n: int | None
    reason: str = ""
    seconds: float | None = None


Row = TypeVar("Row", PlantedNetwork, Reading)


def dumps(rows: Iterable[Row], kind: type[Row]) -> str:
    """Return rows of one kind as CSV with a header; None is an empty cell.

    Floats are written with all their digits, so that `loads` returns equal rows.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(kind._fields)
    for row in rows:
        writer.writerow(["" if cell is None else cell for cell in row])
    return text.getvalue()


def loads(text: str, kind: type[Row], *, where: str) -> list[Row]:
    """Return the rows of a CSV text; ValueError for another header or an invalid cell.

    where: name of the text, the start of messages.
    """
    lines = list(csv.reader(io.StringIO(text)))
    header = tuple(lines[0]) if lines else ()
    if header != kind._fields:
        must = f"have the header {','.join(kind._fields)}"
        errors.refuse(where, must, errors.Words(",".join(header) or "nothing"))
    types_by_name = typing.get_type_hints(kind)
    return [
        _parse(cells, types_by_name, kind, f"{where}:{number}")
        for number, cells in enumerate(lines[1:], start=2)
    ]


def _parse(
    cells: list[str], types_by_name: Mapping[str, object], kind: type[Row], where: str
) -> Row:
    """Return the row of a line's cells; ValueError, beginning with `where`, if one is invalid."""
    if len(cells) != len(kind._fields):
        errors.refuse(where, f"have {len(kind._fields)} cells", len(cells))
    values = {
        name: _parse_cell(cell, types_by_name[name], f"{where}: {name}")
        for name, cell in zip(kind._fields, cells, strict=True)
    }
    return kind(**values)


def _parse_cell(cell: str, expected: object, where: str) -> str | int | float | None:
    """Return a cell as the type of its field; ValueError if it is not of that type."""
    options = typing.get_args(expected) or (expected,)
    if cell == "" and type(None) in options:
        return None
    if str in options:
        return cell
    parse = int if int in options else float
    try:
        value = parse(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        word = "a whole number" if parse is int else "a number"
        errors.refuse(where, f"be {word}", errors.Words(cell or "nothing"))
    return value


def write(path: str | os.PathLike, rows: Iterable[Row], kind: type[Row]) -> None:
    """Write rows of one kind as a CSV file, renamed into place when complete."""
    files.write(epath.Path(path), dumps(rows, kind))


def read(path: str | os.PathLike, kind: type[Row]) -> list[Row]:
    """Return the rows of a CSV file; ValueError for another table, OSError without the file."""
    text = epath.Path(path).read_text("utf-8")
    return loads(text, kind, where=os.fspath(path))
