"""How the tables of the data-distortion paper are laid out: rows, columns, and cells."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jbias.report import distortion_printed, distortion_read, distortion_values

Cell = distortion_printed.Cell
_FOUR = ("basic", "MixUp", "FMix", "CutMix")
_CIFAR = ("CIFAR-10", "CIFAR-100")
DATA = ("CIFAR-10", "CIFAR-100", "FashionMNIST", "Tiny ImageNet", "ImageNet")


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


def of(others: Sequence[str] = ()) -> Iterator[Layout]:
    """Gives the seven tables and that of MNIST-CIFAR.

    others: data sets that are not in the paper, for rows after those that are.
    """
    others = [name for name in others if name != distortion_read.STACKED]
    known = list(dict.fromkeys([distortion_printed.UNNAMED, *others]))
    yield from _indices(others)
    yield from _mixing(known)
    yield _inter(known)
    yield _stacked()


def _by_data(*names: str) -> tuple:
    return tuple(((name,), Cell("", name, "")) for name in dict.fromkeys(names))


def _methods(quantity: str, names: Sequence[str], training: str = "") -> tuple:
    return tuple((name, Cell(quantity, "", name, training)) for name in names)


def _indices(others: Sequence[str]) -> Iterator[Layout]:
    yield Layout(
        "table1_grid_shuffle",
        "Table 1",
        "DI index in % when tiles are shuffled: 2 × 2 of FashionMNIST, 8 × 8 of ImageNet, "
        "4 × 4 of the others.",
        ("Data",),
        _by_data(*DATA, *others),
        _methods("di_grid", _FOUR),
    )
    yield Layout(
        "table2_style_transfer",
        "Table 2",
        "Accuracy in % on Geirhos' style transfer images by the label of the shape and of the "
        "texture; all images, those whose labels agree among them.",
        ("Data",),
        _by_data("ImageNet", "Tiny ImageNet", *(x for x in others if x not in DATA)),
        tuple(
            (f"{method}, {cue}", Cell(f"gst_{cue}", "", method))
            for method in _FOUR
            for cue in ("shape", "texture")
        ),
    )
    yield Layout(
        "table3_cut_occlusion",
        "Table 3",
        "DI index in % under a black rectangle of an area drawn from Beta(2, 1), anywhere "
        "and cut off at the edges.",
        ("Data",),
        _by_data(*DATA, *others),
        _methods("di_black", _FOUR),
    )


def _mixing(known: Sequence[str]) -> Iterator[Layout]:
    yield Layout(
        "table4_occlusion",
        "Table 4",
        "What images of another data set do as occluders that hide 30 %: the DI index in % "
        "and accuracy in % where a rectangle hides them (CutOcclusion), and "
        "iOcclusion where the most salient by Grad-CAM are hidden. The printed table is "
        f"set beside {distortion_printed.UNNAMED}.",
        ("Data", "measure"),
        _measures(known, ("di_other", "cut_occlusion", "iocclusion")),
        _methods("", ("basic", "MixUp", "CutMix", "FMix", "RM")),
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
        _methods("", _FOUR[1:]),
    )
    yield Layout(
        "table6_without_class",
        "Table 6",
        "DI index in % where images of another data set hide a part: of networks trained and "
        "tested without the class that errors of the basic ones gather in. The paper does not "
        "say how large the part is; rectangles as in Table 3 are a choice made here.",
        ("Data",),
        _by_data(*_CIFAR, *known),
        _methods("di_anywhere", ("MixUp", "FMix"), distortion_read.WITHOUT),
    )


def _inter(known: Sequence[str]) -> Layout:
    rows = []
    for data in dict.fromkeys((*_CIFAR, *known)):
        for other in ("itself", *_CIFAR, "FashionMNIST"):
            if other == "itself" or (data in _CIFAR and other != data):
                cell = Cell("accuracy", data, "", distortion_read.OTHER + other)
                rows.append(((data, other), cell))
    return Layout(
        "table7_inter_dataset",
        "Table 7",
        "Accuracy in % on the test images where training images are mixed with those of a "
        "set whose labels are not used, and keep their own label.",
        ("Data", "mixed with"),
        tuple(rows),
        _methods("", _FOUR[1:]),
    )


def _stacked() -> Layout:
    def named(method: str) -> Cell:
        return Cell("", distortion_read.STACKED, method)

    return Layout(
        "mnist_cifar",
        "MNIST-CIFAR",
        "Accuracy in % on a digit stacked with a photograph, paired at random, by the label "
        "of either. Basic networks, and those trained with FMix on the half of the digit.",
        ("Training",),
        ((("basic",), named("basic")), (("FMix on the digit",), named("FMix"))),
        tuple((f"by {x} label", Cell(x.lower(), "", "")) for x in ("CIFAR", "MNIST")),
    )


def _measures(data: Sequence[str], names: Sequence[str]) -> tuple:
    return tuple(
        ((one, distortion_values.QUANTITIES[name].title), Cell(name, one, ""))
        for one in data
        for name in names
    )


def cells(layout: Layout) -> Iterator[tuple[tuple[str, ...], list[Cell]]]:
    """Gives what leads each row, and its cells."""
    for words, row in layout.rows:
        yield (
            words,
            [
                Cell(*(own or given for given, own in zip(row, column, strict=True)))
                for _, column in layout.columns
            ],
        )
