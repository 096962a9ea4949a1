"""What the data-distortion paper printed: its numbers, how its tables lie, and its claims.

Source: Marcu and Pruegel-Bennett, On the Effects of Artificial Data Modification, ICML 2022,
https://arxiv.org/abs/2110.13968; means and deviations over five runs, of ImageNet one.
"""

import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jbias.report import csv_rows, distortion_page, distortion_study

Cell, QUANTITIES = distortion_study.Cell, distortion_study.QUANTITIES
PLAIN, OTHER = distortion_study.PLAIN, distortion_study.OTHER
WITHOUT, STACKED = distortion_study.WITHOUT, distortion_study.STACKED
RUNS = 5
UNNAMED = "CIFAR-10"  # Beside which tables are set that name no data set.
MARGIN = 1.0  # Percentage points that count as no harm.
TEXT, TABLE = "text", "table"  # What a claim was taken from.


class Source(NamedTuple):
    """A table of the paper: what it is of, and how it is laid out."""

    name: str  # Ours; the file's is its first word.
    # Of the data set, if it is named, of the method, and beginnings of those of numbers.
    columns: tuple[str, ...]
    caption: str
    quantity: str = ""  # Or the column that says it; "": what its number's begins with.
    lead: tuple[str, ...] = ("Data",)
    head: tuple[str, ...] = ("method",)
    training: str = PLAIN
    methods: tuple[str, ...] = ()  # That are here alone.


TABLES = {
    "Table 1": Source(
        "table1_grid_shuffle",
        ("dataset", "model", "di_index_"),
        "DI index in % when tiles are shuffled: 2 × 2 of FashionMNIST, 8 × 8 of ImageNet, "
        "4 × 4 of the others.",
        "di_grid",
    ),
    "Table 2": Source(
        "table2_style_transfer",
        ("train_dataset", "model", "shape_", "texture_"),
        "Accuracy in % on Geirhos' style transfer images by the label of the shape and of the "
        "texture; all images, those whose labels agree among them.",
        head=("method", "measure"),
    ),
    "Table 3": Source(
        "table3_cut_occlusion",
        ("dataset", "model", "di_index_"),
        "DI index in % under a black rectangle of an area drawn from Beta(2, 1), anywhere and "
        "cut off at the edges.",
        "di_black",
    ),
    "Table 4": Source(
        "table4_occlusion",
        ("", "model", ""),
        "What images of another data set do as occluders that hide 30 %: the DI index in % and "
        "accuracy in % where a rectangle hides them (CutOcclusion), and iOcclusion where the "
        f"most salient by Grad-CAM are hidden. The printed table is set beside {UNNAMED}.",
        "measure",
        lead=("Data", "measure"),
    ),
    "Table 5": Source(
        "table5_affinity",
        ("", "augmentation", ""),
        "Affinity: accuracy on mixed test images, less that on plain ones, of networks that "
        "were trained without mixing, in points. Diversity: cross-entropy on mixed training "
        "images of networks trained with this mixing, by the larger part's label; "
        "MixDiversity: by both labels.",
        "measure",
        lead=("Data", "measure"),
        methods=("CutMix",),
    ),
    "Table 6": Source(
        "table6_without_class",
        ("dataset", "model", "di_index_"),
        "DI index in % where images of another data set hide a part: of networks trained and "
        "tested without the class that errors of the basic ones gather in. The paper does not "
        "say how large the part is; rectangles as in Table 3 are a choice made here.",
        "di_anywhere",
        training=WITHOUT,
    ),
    "Table 7": Source(
        "table7_inter_dataset",
        ("target_dataset", "augmentation", "accuracy_"),
        "Accuracy in % on the test images where training images are mixed with those of a set "
        "whose labels are not used, and keep their own label.",
        lead=("Data", "mixed with"),
        training=OTHER,
    ),
    STACKED: Source(
        "mnist_cifar",
        ("", "training_msda", "accuracy_"),
        "Accuracy in % on a digit stacked with a photograph, paired at random, by the label of "
        "either. Basic networks, and those trained with FMix on the half of the digit.",
        "evaluated_label",
        lead=("method",),
        head=("measure",),
    ),
}
# What files call quantities and methods.
_NAMES = {one.title: name for name, one in QUANTITIES.items()}
_NAMES |= {"shape_": "gst_shape", "texture_": "gst_texture", "cifar10": "cifar"}
_NAMES |= {"accuracy_": "accuracy", "DI index": "di_other"}
_NAMES |= {"none": "basic", "fmix_on_mnist_half": "FMix"}


class Claim(NamedTuple):
    """That the mean of `more` is above that of `less`, or below by no more than a margin."""

    table: str
    words: str
    more: Cell
    less: Cell
    whose: str = TABLE
    margin: float = 0.0

    @property
    def family(self) -> tuple[str, ...]:
        """What claims that are adjusted together share."""
        return self.table, self.more.quantity, self.more.data, self.whose


class Printed(NamedTuple):
    """Mean, std and n by table and cell, none where a cell is empty; and rows of claims."""

    tables: Mapping[str, Mapping[Cell, Mapping | None]]
    claimed: Sequence[Mapping[str, str]]

    @property
    def numbers(self) -> dict[Cell, Mapping]:
        every = [pair for cells in self.tables.values() for pair in cells.items()]
        return {cell: number for cell, number in every if number}

    def data(self, table: str, others: Sequence[str]) -> list[str]:
        """Gives the data sets of a table, and then those of one's own."""
        own = [name for name in others if name != STACKED] if table != STACKED else []
        return list(dict.fromkeys([*(cell.data for cell in self.tables[table]), *own]))

    def layouts(self, others: Sequence[str] = ()) -> dict[str, distortion_page.Layout]:
        """Gives the tables as they lie in the paper; others: data sets for more rows."""
        found = {}
        for table, source in TABLES.items():
            cells = list(self.tables[table])
            first = cells[0]
            for x in source.methods:
                cells += [
                    c._replace(method=x) for c in cells if c.method == first.method
                ]
            rows: dict[tuple[str, ...], dict[str, Cell]] = {}
            for data in self.data(table, others):
                mine = [cell for cell in cells if cell.data == data]
                like = [c._replace(data=data) for c in cells if c.data == first.data]
                for cell in mine or like:
                    words = {"Data": data, "method": cell.method}
                    words["measure"] = QUANTITIES[cell.quantity].title
                    words["mixed with"] = cell.training.removeprefix(OTHER)
                    row = rows.setdefault(tuple(words[x] for x in source.lead), {})
                    row[": ".join(words[x] for x in source.head)] = cell
            head = (*source.lead, *next(iter(rows.values())))
            shown = [(words, list(row.values())) for words, row in rows.items()]
            caption = f"{table}. {source.caption}"
            found[table] = distortion_page.Layout(source.name, caption, head, shown)
        return found

    def claims(self, others: Sequence[str] = ()) -> Iterator[Claim]:
        """Gives the claims by table; others: data sets that they are made for, too."""
        for table, each in itertools.groupby(
            self.claimed, key=lambda row: row["table"]
        ):
            rows = list(each)
            for data in self.data(table, others if rows[0]["data"] == "all" else ()):
                for row in rows:
                    yield from _claims(
                        table, data, row["quantity"], row["from"], row["claim"]
                    )


def _claims(
    table: str, data: str, quantity: str, whose: str, words: str
) -> Iterator[Claim]:
    """Reads "A > B > C", of methods, or "A: X ≥ Y", of what a method was mixed with."""
    method, _, order = words.rpartition(": ")
    margin = MARGIN if "≥" in order else 0.0
    training = TABLES[table].training
    title = "DI" if quantity.startswith("di_") else QUANTITIES[quantity].title
    for pair in itertools.pairwise(order.replace("≥", ">").split(" > ")):
        more, less = (
            Cell(quantity, data, method or x, training + x if method else training)
            for x in pair
        )
        if method:
            ends = more.training, less.training
            words = (
                " ≥ ".join(ends) + f" less {margin:g} point"
                if margin
                else " > ".join(ends)
            )
            words = f"{method}: {words}"
        else:
            words = f"{title}: {more.method} > {less.method}"
        yield Claim(table, words, more, less, whose, margin)


def read(folder: str) -> Printed:
    """Reads distortion_*.csv of a folder. Raises ValueError where one is missing or amiss."""
    found: dict[str, dict[Cell, Mapping | None]] = {}
    for table, source in TABLES.items():
        found[table] = {}
        name = "simplicity" if table == STACKED else source.name.partition("_")[0]
        for place, row in _rows(folder, name):
            try:
                found[table] |= dict(_numbers(table, source, row))
            except (KeyError, ValueError) as error:
                raise ValueError(
                    f"{place}: must be as published, got {error}"
                ) from None
    return Printed(found, [row for _, row in _rows(folder, "claims")])


def _rows(folder: str, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    path = pathlib.Path(folder) / f"distortion_{name}.csv"
    if not path.exists():
        raise ValueError(
            f"--printed: {path} must be there; name the folder of the published numbers"
        )
    return csv_rows.read(str(path))[1]


def _numbers(
    table: str, source: Source, row: Mapping[str, str]
) -> Iterator[tuple[Cell, Mapping | None]]:
    column, whose, *prefixes = source.columns
    data = row[column] if column else STACKED if table == STACKED else UNNAMED
    method, training = row[whose], source.training
    if training == OTHER:
        training += "itself" if row["row"] == "baseline" else row["mixed_with"]
    for prefix in prefixes:
        of = row.get(source.quantity, source.quantity) or prefix
        mean, std = row[f"{prefix}mean"], row[f"{prefix}std"]
        n, std = (RUNS, float(std)) if std else (None, math.nan)
        number = dict(mean=float(mean), std=std, n=n) if mean else None
        cell = Cell(_NAMES.get(of, of), data, _NAMES.get(method, method), training)
        yield cell, number
