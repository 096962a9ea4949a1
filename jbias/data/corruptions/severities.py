"""The severities of each corruption: the published numbers of tables/corruption_severities.json.

The settings of a corruption are a row of numbers for each side and each of five severities.
Sides are 224 for ImageNet-C, 64 for Tiny-ImageNet-C, 32 for CIFAR-10-C and CIFAR-100-C, and 0
for ImageNet-C-bar, whose settings fit all sides. The table's "columns" name the numbers of a
row. The numbers of elastic_transform are already multiplied by the side, with 244 for 224 as in
the reference.
Sources: see the package's docstring.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

from jbias import errors
from jbias.data import tables

Rows = tuple[tuple[float, ...], ...]  # Of all severities.

SIDES = (32, 64, 224)  # Those with settings of their own.
SEVERITIES = (1, 2, 3, 4, 5)


class Published(NamedTuple):
    """The published settings of a corruption.

    family: "noise", "blur", "weather", "digital" or "bar".
    columns: the names of the numbers of a row.
    settings: {side: a row for each severity}; side 0: all sides.
    extra: True: not in the published mean over fifteen corruptions.
    """

    family: str
    columns: tuple[str, ...]
    settings: Mapping[int, Rows]
    extra: bool = False


@functools.cache
def table() -> Mapping[str, Published]:
    """Return the published settings of all corruptions by name."""
    published = {}
    for name, entry in tables.read("corruption_severities").items():
        settings = {
            int(side): tuple(map(tuple, rows))
            for side, rows in entry["settings"].items()
        }
        published[name] = Published(
            family=entry["family"],
            columns=tuple(entry["columns"]),
            settings=settings,
            extra=entry.get("extra", False),
        )
    return published


def check_name(name: str) -> None:
    """Raise ValueError unless `name` is a corruption of the table."""
    errors.check_known(
        "data.corrupt", name, table(), "the corruption", must="be a known one"
    )


def severity_settings(name: str, side: int, table_side: int | None = None) -> Rows:
    """Return a corruption's settings for images of `side` pixels, a row for each severity.

    name: name of the corruption. table_side: 32, 64 or 224 replaces `side`. The settings of
    ImageNet-C-bar ignore both.
    ValueError for an unknown name and a side or a table without settings.
    """
    check_name(name)
    sides = table()[name].settings
    if 0 in sides:
        return sides[0]
    where, must = "data.corrupt", f"be one of {SIDES}"
    if table_side is None and side not in SIDES:
        remedy = "resize, or pass table=224 to use those of 224"
        must = f"{must}, which have settings"
        errors.refuse(where, must, side, remedy, name="the side")
    if table_side is not None and table_side not in SIDES:
        remedy = "name the side whose settings to use"
        errors.refuse(where, must, table_side, remedy, name="table")
    return sides[side if table_side is None else table_side]


def severity_index(severity: int) -> int:
    """Return the index of a severity in SEVERITIES; ValueError if it is not 1 to 5."""
    is_known, must = severity in SEVERITIES, f"be one of {SEVERITIES}"
    remedy = "0 would be the image itself"
    errors.check(is_known, "data.corrupt", must, severity, remedy, name="severity")
    return SEVERITIES.index(severity)
