"""What the data-distortion paper printed, by quantity and by what was trained.

Source: Tables 1 to 7 of Marcu and Pruegel-Bennett, ICML 2022,
https://arxiv.org/abs/2110.13968; means and deviations over five runs, of ImageNet one.
"""

import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jbias.report import csv_rows, distortion_read

RUNS = 5
# Whose the tables are that name no data set.
UNNAMED = "CIFAR-10"


class Printed(NamedTuple):
    """A printed cell; NaN stands for a deviation that is not there."""

    mean: float
    std: float


class Cell(NamedTuple):
    """What a number is of, whichever network it was."""

    quantity: str
    data: str
    method: str
    training: str = distortion_read.PLAIN

    def key(self, model: str) -> distortion_read.Key:
        return distortion_read.Key(model, self.data, self.method, self.training)


Told = Iterator[tuple[Cell, str, str]]  # Mean and deviation as they are written.
_MEASURES = {
    "DI index": "di_other",
    "CutOcclusion": "cut_occlusion",
    "iOcclusion": "iocclusion",
    "Affinity": "affinity",
    "Diversity": "diversity",
    "MixDiversity": "mix_diversity",
}
_STACKED = {"none": "basic", "fmix_on_mnist_half": "FMix"}


def read(folder: str) -> Mapping[Cell, Printed]:
    """Reads distortion_*.csv of a folder; cells that were left empty are not there.

    Raises ValueError where a file is missing or is another.
    """
    found = {}
    for name, cells in _CELLS.items():
        path = pathlib.Path(folder) / f"distortion_{name}.csv"
        if not path.exists():
            raise ValueError(
                f"--printed: {path} must be there; name the folder of the published numbers"
            )
        for place, fields in csv_rows.read(str(path))[1]:
            try:
                found |= {
                    cell: Printed(float(mean), float(std) if std else math.nan)
                    for cell, mean, std in cells(fields)
                    if mean
                }
            except (KeyError, ValueError) as error:
                raise ValueError(
                    f"{place}: must be as published, got {error}"
                ) from None
    return found


def _index(quantity: str, training: str = distortion_read.PLAIN):
    def cells(row: Mapping[str, str]) -> Told:
        cell = Cell(quantity, row["dataset"], row["model"], training)
        yield cell, row["di_index_mean"], row["di_index_std"]

    return cells


def _transfer(row: Mapping[str, str]) -> Told:
    for cue in ("shape", "texture"):
        cell = Cell(f"gst_{cue}", row["train_dataset"], row["model"])
        yield cell, row[f"{cue}_mean"], row[f"{cue}_std"]


def _measured(row: Mapping[str, str]) -> Told:
    method = row.get("model") or row["augmentation"]
    cell = Cell(_MEASURES[row["measure"]], UNNAMED, method)
    yield cell, row["mean"], row["std"]


def _mixed(row: Mapping[str, str]) -> Told:
    other = "itself" if row["row"] == "baseline" else row["mixed_with"]
    training = distortion_read.OTHER + other
    cell = Cell("accuracy", row["target_dataset"], row["augmentation"], training)
    yield cell, row["accuracy_mean"], row["accuracy_std"]


def _stacked(row: Mapping[str, str]) -> Told:
    cue = row["evaluated_label"].removesuffix("10")
    cell = Cell(cue, distortion_read.STACKED, _STACKED[row["training_msda"]])
    yield cell, row["accuracy_mean"], row["accuracy_std"]


_CELLS = {
    "table1": _index("di_grid"),
    "table2": _transfer,
    "table3": _index("di_black"),
    "table4": _measured,
    "table5": _measured,
    "table6": _index("di_anywhere", distortion_read.WITHOUT),
    "table7": _mixed,
    "simplicity": _stacked,
}
