"""What more training images, or a wider network, do under a shift.

Runs of one curve differ in nothing else, but for epochs if no size has several of these.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from matplotlib import figure as mpl_figure

from jbias.report import shift_drops, shift_plots, shift_read, tables

Drawn = Iterator[tuple[str, str, mpl_figure.Figure, str]]
_WIDTH, _EPOCHS = "model.width", "epochs"


def of(cells: Sequence[shift_read.Cell], draws: shift_drops.Draws) -> Drawn:
    """Gives a figure of each size that runs differ in and in nothing else."""
    shifted = [one for one in cells if one.single or one.share > shift_read.CONTROL]
    for name, label, taken in (
        ("sizes", "training images", _images),
        ("widths", "width of the network", _width),
    ):
        groups = {t: by for t, by in _groups(shifted, taken).items() if len(by) > 1}
        panels = {title: list(_lines(by, draws)) for title, by in groups.items()}
        if not panels:
            continue
        shown = dict(itertools.islice(panels.items(), shift_plots.PANELS))
        ticks = {
            title: {x: f"{x:,}" for line in drawn for x in line.x}
            for title, drawn in shown.items()
        }
        labels = (label, "accuracy in %")
        figure = shift_plots.curves(
            shown, shift_plots.SETS, ticks=ticks, labels=labels, log=True
        )
        caption = (
            f"Accuracy in and out of distribution over the {label}, with intervals of 95 % "
            "over redrawn seeds and test images."
        )
        more = filter(None, (_uneven(groups), shift_plots.left_out(panels)))
        yield name, "sizes", figure, " ".join([caption, *more])


Taken = Callable[[shift_read.Cell], tuple[int, tuple, tuple] | None]
Sized = dict[int, shift_read.Cell]


def _images(cell: shift_read.Cell) -> tuple[int, tuple, tuple] | None:
    """How many images were trained on, and what else must be alike."""
    rest = tuple(x for x in sorted(cell.options.items()) if x[0] != "images")
    return (cell.images, rest, ()) if cell.images else None


def _width(cell: shift_read.Cell) -> tuple[int, tuple, tuple] | None:
    """The width of a network, and what else must be alike."""
    width = cell.settings.get(_WIDTH, "")
    rest = tuple(sorted(cell.options.items()))
    return (int(width), rest, (_WIDTH,)) if width.isdecimal() else None


def _groups(cells: Sequence[shift_read.Cell], taken: Taken) -> dict[str, Sized]:
    """Gives cells by size, of each title those that differ in it alone."""
    found: dict[tuple, list[tuple[int, shift_read.Cell]]] = {}
    for cell in cells:
        if (size := taken(cell)) is not None:
            recipe = cell.recipe
            key = recipe.model, recipe.algorithm, recipe.data, cell.attribute
            key += (cell.level, size[1], _rest(cell, (*size[2], _EPOCHS)))
            found.setdefault(key, []).append((size[0], cell))
    titled: dict[str, Sized] = {}
    for (model, algorithm, _, attribute, level, *_), sized in found.items():
        title = f"{model}, {attribute} {level}, {algorithm}"
        for by in _unlike(sized):
            more = sum(one.startswith(title) for one in titled)
            titled[f"{title} ({more + 1})" if more else title] = by
    return titled


def _rest(cell: shift_read.Cell, but: Sequence[str]) -> tuple:
    return tuple(x for x in sorted(cell.settings.items()) if x[0] not in but)


def _unlike(sized: Sequence[tuple[int, shift_read.Cell]]) -> Iterator[Sized]:
    """Parts cells by epochs where some size has several."""
    if len(dict(sized)) == len(sized):
        yield dict(sized)
        return
    epochs = dict.fromkeys(cell.settings.get(_EPOCHS) for _, cell in sized)
    for one in epochs:
        yield {n: cell for n, cell in sized if cell.settings.get(_EPOCHS) == one}


def _uneven(panels: Mapping[str, Sized]) -> str:
    """Says of which curves epochs are not the same."""
    names = [
        title
        for title, by in panels.items()
        if len({cell.settings.get(_EPOCHS) for cell in by.values()}) > 1
    ]
    return f"Epochs are not the same along {tables.join(names)}." if names else ""


def _lines(
    by: Mapping[int, shift_read.Cell], draws: shift_drops.Draws
) -> Iterator[shift_plots.Line]:
    sizes = sorted(by)
    drawn = [draws.of(by[size]) for size in sizes]
    parts = (("inside", "insides"), ("outside", "outsides"))
    for name, (value, many) in zip(shift_plots.SETS, parts, strict=True):
        ends = [
            shift_drops.estimate(100 * getattr(x, value), 100 * getattr(x, many))
            for x in drawn
        ]
        columns = (
            [getattr(x, part) for x in ends] for part in ("value", "low", "high")
        )
        yield shift_plots.Line(name, sizes, *columns)
