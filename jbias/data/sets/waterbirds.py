"""Reader of Waterbirds: land birds and water birds, cut out and placed on land or on water.

Layout, as published: <root>/metadata.csv and <root>/<img_filename>. The columns of the table that
are used are img_filename, y (1: water bird), place (1: water) and split (0: train, 1: validation,
2: test). The class is the bird and the attribute the place, which agree in 95 % of the training
images, and are independent in the other splits. Networks are measured by the accuracy of the
worst of the four groups: Sagawa, Koh, Hashimoto and Liang, ICLR 2020,
https://arxiv.org/abs/1911.08731. As in the authors' code, images are squeezed to 256 x 256 pixels
and cropped to 224.

The authors say that Eastern Towhees, Western Meadowlarks and Western Wood Pewees are labelled as
water birds by mistake. Source: kohpangwei/group_DRO at cbbc1c5, data/cub_dataset.py and README.md.
"""

import os

import numpy as np

from jbias.data import base, set_options, tables
from jbias.data.forms import listing
from jbias.data.sets.split_files import SplitFiles

PLACES = ("land", "water")
_TABLE = "metadata.csv"
_SPLITS = ("train", "valid", "test")  # In the order of the table's numbers.
_FILE, _CLASS, _PLACE, _SPLIT = "img_filename", "y", "place", "split"
# The known values of the columns.
_NUMBERS = {_CLASS: ("0", "1"), _PLACE: ("0", "1"), _SPLIT: ("0", "1", "2")}
_FOLDERS = ("", "waterbird_complete95_forest2water2", "waterbirds_v1.0")


def read(files: SplitFiles) -> base.Source:
    """Return the source of a split, with the column "attribute": the place.

    The root may also be the folder above the published one. base.Missing without the table;
    ValueError for an invalid table, and for an image that does not exist.
    """
    where = files.where
    folder = _find_table(where, files.root)
    rows = _read_rows(os.path.join(folder, _TABLE))
    rows = [row for row in rows if row[_SPLIT] == str(_SPLITS.index(files.part.base))]
    if not rows:
        must = f"{where}: {_TABLE} must have images of the split, got none"
        raise ValueError(f"{must}; fetch it again")
    class_names = tables.class_names("waterbirds")
    return files.build_labelled(
        folder,
        {row[_FILE]: class_names[int(row[_CLASS])] for row in rows},
        extra={"attribute": np.array([int(row[_PLACE]) for row in rows], np.int32)},
        values={"attribute": PLACES},
        measures=("accuracy", "groups"),
    )


def _find_table(where: str, root: str) -> str:
    """Return the folder of the table; base.Missing if there is none. where: as in messages."""
    for name in _FOLDERS:
        folder = os.path.join(root, name)
        if os.path.isfile(os.path.join(folder, _TABLE)):
            return folder
    raise base.Missing(f"{where}: needs {_TABLE!r} in {root!r}, which is not there")


def _read_rows(path: str) -> list[dict[str, str]]:
    """Return {column: cell} of each line of the table.

    ValueError for a missing column, an unknown value, and an image that has several lines.
    """
    header, lines = set_options.read_csv(path)
    lacking = [name for name in (_FILE, *_NUMBERS) if name not in header]
    if lacking:
        must = f"{path}: the header must have {_FILE}, {', '.join(_NUMBERS)}"
        raise ValueError(f"{must}, {lacking[0]} is missing; fetch the file again")
    first_line: dict[str, int] = {}
    for number, row in lines:
        for name, known in _NUMBERS.items():
            if row[name] not in known:
                must = f"{path}:{number}: {name} must be one of {', '.join(known)}"
                raise ValueError(f"{must}, got {row[name]!r}; fetch the file again")
        if first_line.setdefault(row[_FILE], number) != number:
            must = f"{path}:{number}: an image must have one line, got {row[_FILE]!r}"
            raise ValueError(f"{must} as in line {first_line[row[_FILE]]}")
    listing.check_names(path, [row[_FILE] for _, row in lines])
    return [row for _, row in lines]
