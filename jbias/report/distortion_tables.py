"""Tables 1 to 7 of the data-distortion paper: ours beside theirs, in its layout."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from jbias.report import (
    distortion_printed,
    distortion_read,
    distortion_values,
    tables,
)

Printed = Mapping[distortion_printed.Cell, distortion_printed.Printed]
Cell = distortion_printed.Cell
_FOUR = ("basic", "MixUp", "FMix", "CutMix")
_FIVE = ("basic", "MixUp", "CutMix", "FMix", "RM")
_DATA = ("CIFAR-10", "CIFAR-100", "FashionMNIST", "Tiny ImageNet", "ImageNet")
_OTHER, _WITHOUT = distortion_read.OTHER, distortion_read.WITHOUT
_SPREAD = (
    "Mean ± standard deviation over seeds (n - 1 in its denominator) and, of ours, an "
    "interval of 95 % of the mean; n is the number of seeds."
)
_INDEX = (
    "At the end the class that errors gather in. The weight of the index is a mean over "
    "seeds, so its deviation leaves out that of the weight; the interval, percentiles of a "
    "bootstrap over seeds, has it. Other intervals are Student's."
)


class Layout(NamedTuple):
    """One table of the paper: names of the leading columns, rows, and columns.

    rows: the words that lead a row, and what turns a column's cell into this row's.
    columns: head and cell; "" of a cell is the row's to say.
    """

    name: str
    number: str  # As the paper has it.
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], Cell], ...]
    columns: tuple[tuple[str, Cell], ...]


def layouts(others: Sequence[str] = ()) -> Iterator[Layout]:
    """Gives the seven tables and that of MNIST-CIFAR.

    others: data sets that are not in the paper, for rows after those that are.
    """
    beside = [name for name in others if name not in (*_DATA, distortion_read.STACKED)]
    by_data = tuple(((name,), Cell("", name, "")) for name in (*_DATA, *beside))
    known = list(dict.fromkeys([distortion_printed.UNNAMED, *others]))
    known = [name for name in known if name != distortion_read.STACKED]

    def methods(quantity: str, names: Sequence[str], training: str = ""):
        return tuple((name, Cell(quantity, "", name, training)) for name in names)

    yield Layout(
        "table1_grid_shuffle",
        "Table 1",
        "DI index in % when tiles are shuffled: 2 × 2 of FashionMNIST, 8 × 8 of ImageNet, "
        "4 × 4 of the others.",
        ("Data",),
        by_data,
        methods("di_grid", _FOUR),
    )
    cues = ("shape", "texture")
    yield Layout(
        "table2_style_transfer",
        "Table 2",
        "Accuracy in % on Geirhos' style transfer images by the label of the shape and of the "
        "texture; all images, those whose labels agree among them.",
        ("Data",),
        tuple(
            ((name,), Cell("", name, ""))
            for name in ("ImageNet", "Tiny ImageNet", *beside)
        ),
        tuple(
            (f"{method}, {cue}", Cell(f"gst_{cue}", "", method))
            for method in _FOUR
            for cue in cues
        ),
    )
    yield Layout(
        "table3_cut_occlusion",
        "Table 3",
        "DI index in % under a black rectangle of an area drawn from Beta(2, 1), anywhere "
        "and cut off at the edges.",
        ("Data",),
        by_data,
        methods("di_black", _FOUR),
    )
    yield Layout(
        "table4_occlusion",
        "Table 4",
        "What images of another data set do as occluders that hide 30 %: the DI index in % "
        "and accuracy in % where a rectangle hides them (CutOcclusion), and "
        "iOcclusion where the most salient by Grad-CAM are hidden. The printed table is "
        f"set beside {distortion_printed.UNNAMED}.",
        ("Data", "measure"),
        _measures(known, ("di_other", "cut_occlusion", "iocclusion")),
        methods("", _FIVE),
    )
    yield Layout(
        "table5_affinity",
        "Table 5",
        "Affinity: accuracy on mixed test images, less that on plain ones, of networks that "
        "were trained without mixing, in points. Diversity: cross-entropy on mixed training "
        "images of networks trained with this mixing, by the larger part's label; "
        "MixDiversity: by both labels.",
        ("Data", "measure"),
        _measures(known, ("affinity", "diversity", "mix_diversity")),
        methods("", ("MixUp", "FMix", "CutMix")),
    )
    yield Layout(
        "table6_without_class",
        "Table 6",
        "DI index in % under rectangles as in Table 3, of images of another data set: of "
        "networks trained and tested without the class that errors of the basic ones gather "
        "in.",
        ("Data",),
        tuple(
            ((name,), Cell("", name, ""))
            for name in dict.fromkeys(("CIFAR-10", "CIFAR-100", *known))
        ),
        methods("di_anywhere", ("MixUp", "FMix"), _WITHOUT),
    )
    yield Layout(
        "table7_inter_dataset",
        "Table 7",
        "Accuracy in % on the test images where training images are mixed with those of a "
        "set whose labels are not used, and keep their own label.",
        ("Data", "mixed with"),
        tuple(
            ((data, other), Cell("accuracy", data, "", _OTHER + other))
            for data, other in _pairs(known)
        ),
        methods("", ("MixUp", "FMix", "CutMix")),
    )
    yield Layout(
        "mnist_cifar",
        "MNIST-CIFAR",
        "Accuracy in % on a digit stacked with a photograph, paired at random, by the label "
        "of either. Basic networks, and those trained with FMix on the half of the digit.",
        ("Training",),
        tuple(
            ((name,), Cell("", distortion_read.STACKED, method))
            for name, method in (("basic", "basic"), ("FMix on the digit", "FMix"))
        ),
        (
            ("by CIFAR label", Cell("cifar", "", "")),
            ("by MNIST label", Cell("mnist", "", "")),
        ),
    )


def _pairs(known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Gives what is trained on and what is mixed in, the paper's first."""
    cifar = ("CIFAR-10", "CIFAR-100")
    for data in dict.fromkeys((*cifar, *known)):
        yield data, "itself"
        for other in (*cifar, "FashionMNIST"):
            if data in cifar and other != data:
                yield data, other


def _measures(data: Sequence[str], names: Sequence[str]) -> tuple:
    titles = {name: distortion_values.QUANTITIES[name].title for name in names}
    return tuple(
        ((one, title), Cell(name, one, ""))
        for one in data
        for name, title in titles.items()
    )


def of(study: distortion_values.Study, printed: Printed) -> Iterator[tables.Table]:
    """Gives the tables of which there is something here; see `missing` for the others."""
    for layout in layouts(study.data):
        table = _table(layout, study, printed)
        if table is not None:
            yield table


def _join(row: Cell, column: Cell) -> Cell:
    return Cell(*(b or a for a, b in zip(row, column, strict=True)))


def cells(layout: Layout) -> Iterator[tuple[tuple[str, ...], list[Cell]]]:
    """Gives what leads each row, and its cells."""
    for words, row in layout.rows:
        yield words, [_join(row, column) for _, column in layout.columns]


def _table(
    layout: Layout, study: distortion_values.Study, printed: Printed
) -> tables.Table | None:
    rows, data, seen = [], [], False
    several = len(study.models) > 1
    for words, row in cells(layout):
        sources = [(model, _ours(study, model, row)) for model in study.models]
        sources = [(model, found) for model, found in sources if any(found)]
        theirs = [printed.get(cell) for cell in row]
        seen |= bool(sources)
        for model, found in sources:
            sizes = {len(one.runs) for one in found if one is not None}
            source = f"here, {model}" if several else "here"
            source += f", n={min(sizes)}" if len(sizes) == 1 else ""
            shown = (_shown(*one, len(sizes) > 1) for one in zip(row, found))
            rows.append((*words, source, *shown))
            data += _full(row, found, model)
        if any(theirs):
            rows.append((*words, "paper", *map(_as_printed, row, theirs)))
            data += _full(row, theirs, "paper")
    if not seen:
        return None
    told = f" {_INDEX}" if any("DI" in part for part in (layout.caption,)) else ""
    return tables.Table(
        name=layout.name,
        caption=f"{layout.number}. {layout.caption} {_SPREAD}{told}",
        head=(*layout.heads, "numbers", *(head for head, _ in layout.columns)),
        rows=tuple(rows),
        data=pd.DataFrame(data).astype({"n": "Int64"}),
        texts=len(layout.heads) + 1,
    )


def _ours(study, model: str, row: Sequence[Cell]) -> list:
    return [
        study.value(cell.quantity, distortion_read.Key(model, *cell[1:]))
        for cell in row
    ]


def _shown(cell: Cell, found: distortion_values.Values | None, sized: bool) -> str:
    """Shows a value with its interval, the number of seeds if asked, and the class."""
    if found is None:
        return "–"
    digits = distortion_values.QUANTITIES[cell.quantity].digits
    told = spread(found.mean, found.std, digits)
    if len(found.runs) > 1:
        told += f" [{number(found.low, digits)}, {number(found.high, digits)}]"
    told += f" (n = {len(found.runs)})" if sized else ""
    return f"{told} {found.dominant}".strip()


def _as_printed(cell: Cell, one: distortion_printed.Printed | None) -> str:
    digits = distortion_values.QUANTITIES[cell.quantity].digits
    return "–" if one is None else spread(one.mean, one.std, digits)


def spread(mean: float, std: float, digits: int = 2) -> str:
    """Shows a mean and, where it is known, a deviation."""
    ending = "" if math.isnan(std) else f" ± {number(std, digits)}"
    return f"{number(mean, digits)}{ending}"


def number(value: float, digits: int = 2) -> str:
    if math.isnan(value):
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _full(row: Sequence[Cell], found: Sequence, source: str) -> Iterator[dict]:
    for cell, one in zip(row, found, strict=True):
        if one is None:
            continue
        told = {"source": source, **cell._asdict(), "mean": one.mean, "std": one.std}
        if source == "paper":
            yield told | {"n": None if math.isnan(one.std) else distortion_printed.RUNS}
            continue
        told |= {"n": len(one.runs), "low": one.low, "high": one.high}
        yield told | {
            "dominant": one.dominant,
            "seeds": " ".join(map(str, one.seeds)),
            "values": " ".join(f"{value:.17g}" for value in one.runs),
        }
