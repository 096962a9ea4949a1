"""What the paper on tests under chosen shifts printed, by its own names.

Source: Tables 1 to 3 of Hu, Sang, Wang and Jiang, Understanding and Testing Generalization
of Deep Networks on Out-of-Distribution Data, 2021, https://arxiv.org/abs/2111.09190.
Accuracies and drops in %.
"""

import pathlib
import types
from collections.abc import Mapping
from typing import NamedTuple

from jbias.report import csv_rows, shift_read

AVERAGE = "Average"
FULL, FEW = "Full", "1K"  # Sizes of training sets in Table 2.
MODELS = types.MappingProxyType(
    {
        "resnet18": "ResNet18",
        "resnet34": "ResNet34",
        "squeezenet1_0": "SqueezeNet1.0",
        "squeezenet1_1": "SqueezeNet1.1",
        "mobilenetv3_small": "MobileNet v3",
        "mobilenetv3_large": "MobileNet v3",
        "cnn": "2-layer CNN",
        "alexnet": "AlexNet",
        "vgg11": "Vgg11",
        "densenet121": "DensNet121",
        "resnext50": "ResNeXt50",
    }
)
# By the first word of what data is called here.
HAIR = {f"{colour}_Hair" for colour in ("Black", "Blond", "Brown", "Gray")}
DATA = types.MappingProxyType({"colored_mnist": "ColoredMNIST", "celeba": "CelebA"})


class Pair(NamedTuple):
    """Accuracies in and out of distribution, and the drop if it was printed."""

    inside: float
    outside: float
    drop: float


class Printed(NamedTuple):
    """The paper's tables, {} where they were not read."""

    # By data, model and kind; averages are of the model "Average".
    table1: Mapping[tuple[str, str, str], Pair] = types.MappingProxyType({})
    # Accuracies by model, trained colour, size and tested colour.
    table2: Mapping[tuple[str, str, str, str], float] = types.MappingProxyType({})
    drops2: Mapping[tuple[str, str, str], float] = types.MappingProxyType({})
    # By cluster and model; its table has no drops.
    table3: Mapping[tuple[str, str], Pair] = types.MappingProxyType({})


def read(folder: str) -> Printed:
    """Reads ood_*.csv of a folder. Raises ValueError where one is missing or another."""
    found = []
    for name, take in _TABLES.items():
        path = pathlib.Path(folder) / f"{name}.csv"
        if not path.exists():
            raise ValueError(
                f"--printed: {path} must be there; name the folder of the published numbers"
            )
        cells = {}
        for place, row in csv_rows.read(str(path))[1]:
            try:
                cells |= take(row)
            except (KeyError, ValueError) as error:
                raise ValueError(
                    f"{place}: must be as published, got {error}"
                ) from None
        found.append(cells)
    return Printed(*found)


def named(cell: shift_read.Cell) -> str:
    """Gives what the paper calls a data set of ours, whatever its labels; "" if it has it not."""
    return DATA.get(cell.recipe.data.partition("/")[0], "")


def data_of(cell: shift_read.Cell) -> str:
    """Gives what the paper calls the data of a cell, "" if it has not these.

    Of faces it has gender by four colours of hair alone.
    """
    name = named(cell)
    told = (cell.settings.get(f"train.{key}", "") for key in ("label", "attribute"))
    label, attribute = map(str, told)
    others = label != "Male" or {*attribute.split("+")} != HAIR
    return "" if name == "CelebA" and others else name


def colour_of(value: str) -> str:
    """Gives the letter of a colour in Table 2."""
    return value[:1].upper()


def _table1(row: Mapping[str, str]) -> dict:
    numbers = (float(row[key]) for key in ("id_acc", "ood_acc", "drop_pct"))
    return {(row["dataset"], row["model"], row["shift"]): Pair(*numbers)}


def _table2(row: Mapping[str, str]) -> dict:
    key = (row["model"], row["train_colour"], row["train_size"], row["test_colour"])
    return {key: float(row["accuracy"])}


def _drops2(row: Mapping[str, str]) -> dict:
    key = (row["model"], row["train_colour"], row["train_size"])
    return {key: float(row["drop_pct"])}


def _table3(row: Mapping[str, str]) -> dict:
    inside, outside = float(row["id_acc"]), float(row["ood_acc_avg"])
    drop = 100 * (inside - outside) / inside
    return {(row["train_cluster"], row["model"]): Pair(inside, outside, drop)}


_TABLES = types.MappingProxyType(
    {
        "ood_table1": _table1,
        "ood_table2": _table2,
        "ood_table2_drops": _drops2,
        "ood_table3": _table3,
    }
)
