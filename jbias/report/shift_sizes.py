"""What more training images, or a wider network, do under a shift."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from matplotlib import figure as mpl_figure

from jbias.report import shift_drops, shift_plots, shift_read

Drawn = Iterator[tuple[str, str, mpl_figure.Figure, str]]
_WIDTH = "width="


def of(cells: Sequence[shift_read.Cell], draws: shift_drops.Draws) -> Drawn:
    """Gives a figure of each size that runs differ in and in nothing else."""
    shifted = [one for one in cells if one.single or one.share > shift_read.CONTROL]
    for name, label, taken in (
        ("sizes", "training images", _images),
        ("widths", "width of the network", _width),
    ):
        panels = {
            title: list(_lines(by, draws))
            for title, by in _groups(shifted, taken).items()
            if len(by) > 1
        }
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
            f"over redrawn seeds and test images. {shift_plots.left_out(panels)}"
        )
        yield name, "sizes", figure, caption.strip()


Taken = Callable[[shift_read.Cell], tuple[int, tuple] | None]


def _images(cell: shift_read.Cell) -> tuple[int, tuple] | None:
    """How many images were trained on, and what else must be alike."""
    rest = tuple(x for x in sorted(cell.options.items()) if x[0] != "images")
    return (cell.images, (cell.recipe.setting, rest)) if cell.images else None


def _width(cell: shift_read.Cell) -> tuple[int, tuple] | None:
    """The width of a network, where nothing else is told of its settings."""
    setting = cell.recipe.setting
    width = setting.removeprefix(_WIDTH)
    told = setting.startswith(_WIDTH) and width.isdigit()
    return (int(width), (cell.recipe.dealt,)) if told else None


def _groups(
    cells: Sequence[shift_read.Cell], taken: Taken
) -> dict[str, dict[int, shift_read.Cell]]:
    """Gives cells by size, of each title those that differ in it alone."""
    found: dict[tuple, dict[int, shift_read.Cell]] = {}
    for cell in cells:
        if (size := taken(cell)) is not None:
            recipe = cell.recipe
            key = recipe.model, recipe.algorithm, recipe.data, cell.attribute
            found.setdefault((*key, cell.level, size[1]), {})[size[0]] = cell
    titled = {}
    for (model, algorithm, _, attribute, level, _), by in found.items():
        title = f"{model}, {attribute} {level}, {algorithm}"
        more = sum(one.startswith(title) for one in titled)
        titled[f"{title} ({more + 1})" if more else title] = by
    return titled


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
