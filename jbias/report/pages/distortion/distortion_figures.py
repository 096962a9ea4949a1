"""Functions that draw the figures of the data-distortion study."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import patches

from jbias.report import document, plots, tables
from jbias.report.pages.distortion import distortion_groups as study_lib

DistortionStudy, GroupKey = study_lib.DistortionStudy, study_lib.GroupKey
QuantityValues = study_lib.QuantityValues
MAX_CLASSES = 12  # Maximal number of classes of a panel.
_TOP = 2.0  # Smallest upper limit of an axis of iOcclusion.
_WAYS = {"grad_cam": "Grad-CAM,", "rectangle": "Rectangle", "fourier": "Fourier"}
_DISTORTED = {
    "di_grid": "tiles are shuffled",
    "di_black": "a black rectangle hides part",
    "di_anywhere": "a rectangle of another data set's images hides part",
    "di_other": "a rectangle of another data set's images hides 30 %",
}


class KeysByData(NamedTuple):
    """The groups of one model on one data set."""

    keys: Sequence[GroupKey]
    data: str  # Data set and model as text, for captions.
    suffix: str  # End of the names of the figures.

    @property
    def plain(self) -> list[GroupKey]:
        """Keys of the groups with an empty `training`."""
        return [key for key in self.keys if not key.training]


def _by_data(study: DistortionStudy) -> Iterator[KeysByData]:
    """Yield the groups of each model and data set."""
    groups = itertools.groupby(study.groups, key=lambda key: (key.model, key.data))
    for (model, data), group_keys in groups:
        suffix = f"{data}_{model}" if len(study.names("model")) > 1 else data
        suffix = suffix.lower().replace(" ", "_").replace("-", "")
        yield KeysByData(list(group_keys), f"{data}, {model}", suffix=suffix)


def curve_pairs(
    study: DistortionStudy, hiding: pd.DataFrame
) -> Iterator[document.Figure]:
    """Yield figures of CutOcclusion and iOcclusion by hidden share, for each model and data set.

    For each filling, a figure has the groups with an empty `training`. If there are groups trained
    on parts of the data, a second figure compares these groups with the groups with an empty
    `training`. Figures without data are left out. hiding: result of `distortion_groups.hiding`.
    """
    for group in _by_data(study):
        for fill, frame in _by_fill(hiding, {key: key.method for key in group.plain}):
            lines = _curve_pair(frame)
            if len(lines):
                caption = f"{_caption_of_pair(fill)}{group.data}."
                name = f"curves_{fill}_{group.suffix}"
                yield _curve_figure(name, caption, lines, frame)
        on_parts = [x for x in group.keys if x.training.startswith(study_lib.PART)]
        names = {}
        for key in [*on_parts, *group.plain]:
            part = key.training.removeprefix(study_lib.PART) or "all"
            names[key] = f"{key.method}, {part}"
        for fill, frame in _by_fill(hiding, names) if on_parts else ():
            lines = _curve_pair(frame)
            if len(lines):
                caption = f"{_caption_of_pair(fill)}parts of {group.data}."
                name = f"parts_{fill}_{group.suffix}"
                yield _curve_figure(name, caption, lines, frame)


def _caption_of_pair(fill: str) -> str:
    """Return the caption of a figure of `curve_pairs`, without the name of the data."""
    return (
        "CutOcclusion: accuracy in [0, 1] on test images under a rectangle. iOcclusion: with the "
        "most salient pixels by Grad-CAM hidden. Hidden pixels are replaced by "
        f"{study_lib.FILLS.get(fill, fill)}; trained on "
    )


def occlusion_curves(
    study: DistortionStudy, hiding: pd.DataFrame
) -> Iterator[document.Figure]:
    """Yield figures of accuracy and of iOcclusion by hidden share, for each model and data set.

    There are two figures for each filling, of the groups with an empty `training`. Figures without
    curves are left out. hiding: result of `distortion_groups.hiding`.
    """
    for group in _by_data(study):
        for fill, frame in _by_fill(hiding, {key: key.method for key in group.plain}):
            words = (
                f"over the share of pixels hidden by {study_lib.FILLS.get(fill, fill)}"
            )
            accuracies = _lines(frame, "test")
            if len(accuracies):
                caption = f"Accuracy in % on test images {words}: {group.data}."
                name = f"accuracy_{fill}_{group.suffix}"
                yield _curve_figure(name, caption, accuracies, frame)
            indices = _lines(frame, "iocclusion")
            if len(indices):
                caption = (
                    "iOcclusion, the remaining share of the gap between training and test "
                    f"accuracy, {words}: {group.data}."
                )
                name = f"iocclusion_{fill}_{group.suffix}"
                yield _curve_figure(name, caption, indices, frame)


def wrong_predictions(study: DistortionStudy) -> Iterator[document.Figure]:
    """Yield figures of wrong predictions by class, for each model, data set and DI index.

    The figures have the groups with an empty `training`. Figures without an index are left out.
    """
    for group in _by_data(study):
        for quantity in _DISTORTED:
            figure = _wrong_figure(study, group, quantity)
            if figure is not None:
                yield figure


def _by_fill(
    hiding: pd.DataFrame, names: Mapping[GroupKey, str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (filling, rows of `hiding` with this filling).

    The rows have a further column "line", the name of the line. hiding: result of
    `distortion_groups.hiding`. names: name of the line, by key of the group; groups without a name
    are left out.
    """
    keys = hiding[list(GroupKey._fields)].itertuples(index=False, name=None)
    frame = hiding.assign(line=[names.get(key) for key in keys])
    yield from frame.dropna(subset=["line"]).groupby("fill", sort=False)


def _curve_pair(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the curves of CutOcclusion and of iOcclusion.

    The curves of iOcclusion have the most salient pixels hidden. For the columns see `_lines`; the
    panel is "CutOcclusion" or "iOcclusion". frame: rows of `_by_fill`.
    """
    accuracy = _lines(frame, "test")
    index = _lines(frame, "iocclusion")
    cut = accuracy[accuracy["panel"] == "Rectangle"].assign(panel="CutOcclusion")
    salient = index[index["panel"] == "Grad-CAM, most"].assign(panel="iOcclusion")
    return pd.concat([cut, salient])


def _curve_figure(
    name: str, caption: str, lines: pd.DataFrame, frame: pd.DataFrame
) -> document.Figure:
    """Return the figure of curves, in % if `name` starts with "accuracy_", else as fractions.

    name, caption: name and start of the caption of the figure. lines: the result of `_lines` or
    `_curve_pair`. frame: rows of `hiding`, from which the curves are computed.
    """
    is_percent = name.startswith("accuracy_")
    drawn, sentences = _draw_curves(lines, frame, 100 if is_percent else 1)
    incomplete = "" if is_percent else study_lib.without_iocclusion(frame)
    if incomplete:
        sentences += f" Not in iOcclusion: {incomplete}."
    return document.Figure(name, f"{caption} {sentences}", drawn)


def _lines(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a frame of curves, one per line and masking, by share of hidden pixels.

    Maskings with at most 2 shares are left out. Columns: line, panel (the masking in words), x
    (hidden share in %), value (the column `column` of `frame`) and std (`column`_std). frame: rows
    of `_by_fill`.
    """
    frame = frame.dropna(subset=[column])
    share_counts = frame.groupby("masking", sort=False)["hidden"].transform("nunique")
    panels = []
    for masking in frame["masking"]:
        name, _, order = masking.partition(" ")
        panels.append(f"{_WAYS.get(name, name)} {order}".strip())
    lines = frame[["line"]].assign(
        panel=panels,
        x=100 * frame["hidden"],
        value=frame[column],
        std=frame[f"{column}_std"],
    )
    return lines[share_counts > 2]


def _draw_curves(
    lines: pd.DataFrame, frame: pd.DataFrame, scale: float
) -> tuple[plots.Figure, str]:
    """Return (figure with a colour per method, caption sentences on lines and bands).

    lines: the result of `_lines` or `_curve_pair`. frame: the rows of `hiding` for these lines.
    scale: factor of the drawn values.

    In a panel with a mean plus deviation above 2 * top, the axis ends at top, and triangles mark
    the means above top. top: the larger of 2 and twice the median of the methods' peaks, before
    scaling. Without this limit, a high curve would flatten other curves.
    """
    tops = {}
    for title, rows in lines.groupby("panel"):
        top = max(_TOP, 2 * float(rows.groupby("line")["value"].max().median()))
        if (rows["value"] + rows["std"].fillna(0)).max() > 2 * top:
            tops[title] = scale * top
    order = dict.fromkeys([*study_lib.METHODS.values(), *frame["line"]])
    names = {*frame["line"]}
    looks = {x: plots.style_of(i) for i, x in enumerate(order) if x in names}

    def finish(axes: plots.Axes, rows: pd.DataFrame) -> None:
        top = tops.get(rows["panel"].iloc[0])
        if not top:
            return
        for name, above in rows[rows["value"] > top].groupby("line"):
            axes.plot(
                above["x"],
                np.full(len(above), top),
                "^",
                color=looks[name]["color"],
                markersize=7,
                clip_on=False,
            )
        axes.set_ylim(0, top)

    lines = lines.assign(value=scale * lines["value"], std=scale * lines["std"])
    drawn = plots.curves(lines, looks, ("pixels hidden in %", ""), finish=finish)
    sentences = (
        f"Lines are means over {tables.span(frame['n'])} seeds, of "
        f"{tables.span(frame['test_images'])} test images, bands ± one standard deviation."
    )
    if tops:
        sentences += " A triangle at the edge is a mean above it; bands are cut."
    return drawn, sentences


def _wrong_figure(
    study: DistortionStudy, group: KeysByData, quantity: str
) -> document.Figure | None:
    """Return the figure of wrong predictions by class, clean and distorted.

    None if no group has a DI index. quantity: name of the DI index.
    """
    values_by_method = {}
    for key in group.plain:
        values = study.value(quantity, key)
        if values and values.n:
            values_by_method[key.method] = values
    if not values_by_method:
        return None
    seeds = tables.span(values.n for values in values_by_method.values())
    images = tables.span(values.images for values in values_by_method.values())
    caption = (
        "Shares in % of the wrong predictions by predicted class, on unchanged test images "
        f"and on images in which {_DISTORTED[quantity]}: {group.data}. Bars are means over {seeds} "
        f"seeds, dots are seeds; {images} images. Above: the DI index and its class. If there are "
        "many classes, only those whose share grows most are shown."
    )
    name = f"wrong_{quantity.removeprefix('di_')}_{group.suffix}"
    return document.Figure(name, caption, wrong_classes(values_by_method))


def wrong_classes(values_by_method: Mapping[str, QuantityValues]) -> plots.Figure:
    """Return a figure of each class's share of the errors in %, a panel per method.

    A class has a bar for unchanged and a bar for distorted images; dots are seeds.
    values_by_method: values of a DI index, with `wrong`, by method. Of more than `MAX_CLASSES`
    classes, only the classes with the largest mean growth in any panel are drawn, in decreasing
    order.
    """
    names = next(iter(values_by_method.values())).classes
    panels = {}
    for name, values in values_by_method.items():
        index = ", ".join(filter(None, (f"{values.mean:.2f} %", values.dominant)))
        errors = np.maximum(values.wrong.sum(axis=2, keepdims=True), 1)
        panels[f"{name}: {index}"] = 100 * values.wrong / errors
    classes = np.arange(len(names))
    if len(classes) > MAX_CLASSES:
        growth = [np.diff(shares, axis=1).mean(axis=0)[0] for shares in panels.values()]
        order = np.argsort(-np.max(growth, axis=0), kind="stable")
        classes = order[:MAX_CLASSES]
    largest = max(1, *(shares.max() for shares in panels.values()))
    colours = {"unchanged": plots.COLOURS[0], "distorted": plots.COLOURS[1]}

    def draw(axes: plots.Axes, shares: Float[np.ndarray, "r 2 k"]) -> None:
        for i, colour in enumerate(colours.values()):
            y = np.arange(len(classes)) + 0.4 * i - 0.2
            by_seed = shares[:, i, classes]
            axes.barh(y, by_seed.mean(axis=0), 0.36, color=colour, lw=0, alpha=0.75)
            if len(by_seed) > 1:
                axes.plot(by_seed.T, y, "o", color=plots.INK, ms=2, mew=0, alpha=0.7)
        axes.set(xlim=(0, 1.05 * largest), ylim=(len(classes) - 0.5, -0.5))
        axes.set_yticks(range(len(classes)), plots.plain([names[c] for c in classes]))
        axes.tick_params(axis="y", length=0)

    return plots.multiples(
        panels,
        draw,
        ("share of wrong predictions in %", ""),
        {name: patches.Patch(color=colour) for name, colour in colours.items()},
        cell=(2.8, 0.34 * len(classes) + 0.7),
        sharey=True,
    )
