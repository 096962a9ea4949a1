"""Figures of the data-distortion study: curves of what is hidden, and where errors gather."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import figure as mpl_figure
from matplotlib import patches

from jbias.report import distortion_study, document, plots

Figures = Iterator[tuple[str, document.Figure]]  # With their sections.
MOST = 12  # Classes of one panel.
_TOP = 2.0  # No axis of iOcclusion is cut below it.
_WAYS = {"grad_cam": "Grad-CAM,", "rectangle": "Rectangle", "fourier": "Fourier"}
_DISTORTED = {
    "di_grid": "tiles are shuffled",
    "di_black": "a black rectangle hides part",
    "di_anywhere": "a rectangle of another data set's images hides part",
    "di_other": "a rectangle of another data set's images hides 30 %",
}


def figures(study: distortion_study.Study, hiding: pd.DataFrame) -> Figures:
    """Gives figures with their sections, one model and data set after another."""
    for (model, data), each in itertools.groupby(study.groups, key=lambda key: key[:2]):
        keys = list(each)
        ending = "_".join([data, model] if len(study.models) > 1 else [data])
        ending = ending.lower().replace(" ", "_").replace("-", "")
        about = f"{data}, {model}"
        whole = [key for key in keys if not key.training]
        yield from _occluded(hiding, {key: key.method for key in whole}, ending, about)
        for quantity in _DISTORTED:
            yield from _wrong(study, whole, quantity, ending, about)
        part = distortion_study.PART
        parts = [key for key in keys if key.training.startswith(part)]
        if parts:
            names = {
                key: f"{key.method}, {key.training.removeprefix(part) or 'all'}"
                for key in [*parts, *whole]
            }
            yield from _occluded(hiding, names, ending, about, parts=True)


def _occluded(
    hiding: pd.DataFrame,
    names: Mapping[distortion_study.Key, str],
    ending: str,
    about: str,
    *,
    parts: bool = False,
) -> Figures:
    """Draws accuracy and iOcclusion over the share that is hidden, a panel a way.

    parts: networks of parts of a data set among others; only one panel of each is drawn.
    """
    keys = hiding[list(distortion_study.Key._fields)].itertuples(index=False, name=None)
    frame = hiding.assign(algorithm=[names.get(key) for key in keys])
    frame = frame.dropna(subset=["algorithm"])
    for fill, each in frame.groupby("fill", sort=False):
        order = [name for name in names.values() if (each["algorithm"] == name).any()]
        accuracy, index = _lines(each, "test"), _lines(each, "iocclusion")
        pair = {"CutOcclusion": accuracy.get("Rectangle")}
        pair["iOcclusion"] = index.get("Grad-CAM, most")
        pair = {title: lines for title, lines in pair.items() if lines is not None}
        by = distortion_study.FILLS.get(fill, fill)
        over = (
            f"over the share of pixels hidden by {by}: {about}. Rectangle is CutOcclusion; "
            "most, least and random are orders of saliency by Grad-CAM."
        )
        what = "iOcclusion, what is left of the gap between training and test accuracy,"
        beside = (
            "CutOcclusion, accuracy in [0, 1] on test images under a rectangle, beside "
            "iOcclusion of what is most salient by Grad-CAM, where pixels are replaced by "
            f"{by}; trained on {'parts of ' * parts}{about}."
        )
        drawn = [("parts" if parts else "curves", "figures", pair, beside)]
        if not parts:
            caption = f"Accuracy in % on test images {over}"
            drawn.append(("accuracy", "curves", accuracy, caption))
            drawn.append(("iocclusion", "curves", index, f"{what} {over}"))
        for name, section, panels, caption in drawn:
            if panels:
                scale = 100 if name == "accuracy" else 1
                fig, told = _drawn(panels, each, order, scale=scale)
                lost = distortion_study.left_out(each) if name != "accuracy" else ""
                told += f" Not in iOcclusion: {lost}." if lost else ""
                named = f"{name}_{fill}_{ending}"
                yield section, document.Figure(named, f"{caption} {told}", fig)


def _lines(frame: pd.DataFrame, column: str) -> dict[str, pd.DataFrame]:
    """Gives lines by way of hiding, in words; one part is no curve."""
    lines = {}
    for way, each in frame.dropna(subset=[column]).groupby("way", sort=False):
        name, _, order = way.partition(" ")
        if each["hidden"].nunique() > 2:
            lines[f"{_WAYS.get(name, name)} {order}".strip()] = pd.DataFrame(
                {
                    "algorithm": each["algorithm"],
                    "epoch": 100 * each["hidden"],
                    "mean": each[column],
                    "std": each[f"{column}_std"],
                }
            )
    return lines


def _drawn(
    panels: Mapping[str, pd.DataFrame],
    frame: pd.DataFrame,
    names: Sequence[str],
    *,
    scale: float,
) -> tuple[mpl_figure.Figure, str]:
    """Draws panels, each method in its colour, and says what lines and bands are.

    An axis ends at twice the median of the methods' peaks where it would be more than twice
    as high, for then one curve of iOcclusion hides all others.
    """
    tops = {}
    for title, lines in panels.items():
        peaks = lines.groupby("algorithm")["mean"].max()
        top = max(_TOP, 2 * float(peaks.median()))
        if (lines["mean"] + lines["std"].fillna(0)).max() > 2 * top:
            tops[title] = top
    order = list(dict.fromkeys([*distortion_study.METHODS.values(), *names]))
    fig = plots.curves(
        list(panels.items()),
        names,
        scale=scale,
        places=[order.index(name) for name in names],
        label="pixels hidden in %",
        tops=tops,
    )
    return fig, (
        f"Lines are means over {distortion_study.span(frame['n'])} seeds, of "
        f"{distortion_study.span(frame['test_images'])} test images, bands ± one standard "
        "deviation."
    ) + (" A triangle at the edge is a mean above it; bands are cut." if tops else "")


def _wrong(
    study: distortion_study.Study,
    keys: Sequence[distortion_study.Key],
    quantity: str,
    ending: str,
    about: str,
) -> Figures:
    """Draws by class which wrong predictions there are, clean and distorted."""
    found = {key.method: study.value(quantity, key) for key in keys}
    found = {name: one for name, one in found.items() if one and one.n}
    if found:
        caption = (
            "Shares in % of the wrong predictions by predicted class, on test images as they "
            f"are and where {_DISTORTED[quantity]}: {about}. Bars are means over "
            f"{distortion_study.span(one.n for one in found.values())} seeds, dots seeds; of "
            f"{distortion_study.span(one.images for one in found.values())} images. Above each "
            "panel the DI index and the class that errors gather in. Of many classes those "
            "that grow most are shown."
        )
        name = f"wrong_{quantity.removeprefix('di_')}_{ending}"
        yield "wrong", document.Figure(name, caption, wrong_classes(found))


def wrong_classes(
    found: Mapping[str, distortion_study.Values],
) -> mpl_figure.Figure:
    """Draws, a panel a method, each class's share in % of the errors before and after.

    Of more than `MOST` classes those with the largest growth in some panel are drawn, the
    largest first.
    """
    names = next(iter(found.values())).classes
    counts = {
        f"{name}: {', '.join(filter(None, (f'{one.mean:.2f} %', one.dominant)))}": one.wrong
        for name, one in found.items()
    }
    panels = {
        title: 100 * x / np.maximum(x.sum(axis=2, keepdims=True), 1)
        for title, x in counts.items()
    }
    chosen = np.arange(len(names))
    if len(chosen) > MOST:
        growth = [np.diff(shares, axis=1).mean(axis=0)[0] for shares in panels.values()]
        chosen = np.argsort(-np.max(growth, axis=0), kind="stable")[:MOST]
    kinds = {"as they are": plots.COLOURS[0], "distorted": plots.COLOURS[1]}
    cell = (2.8, 0.34 * len(chosen) + 0.7)
    fig, cells = plots.grid(len(panels), list(kinds), cell=cell, sharey=True)
    most = max(1, *(shares.max() for shares in panels.values()))
    for axes, (title, shares) in zip(cells.flat, panels.items(), strict=False):
        for i, colour in enumerate(kinds.values()):
            places = np.arange(len(chosen)) + 0.4 * i - 0.2
            each = shares[:, i, chosen]
            look = dict(color=colour, linewidth=0, alpha=0.75)
            axes.barh(places, each.mean(axis=0), 0.36, **look)
            if len(each) > 1:
                dots = dict(color=plots.INK, markersize=2, markeredgewidth=0, alpha=0.7)
                axes.plot(each.T, places, "o", **dots)
        axes.set(xlim=(0, 1.05 * most), ylim=(len(chosen) - 0.5, -0.5))
        axes.set_yticks(range(len(chosen)), plots.plain([names[c] for c in chosen]))
        axes.tick_params(axis="y", length=0)
        axes.set_title(plots.plain([title])[0], loc="left", **plots.ink(8.5))
    plots.label_edges(cells, len(panels), "share of wrong predictions in %", "")
    handles = [patches.Patch(color=colour) for colour in kinds.values()]
    plots.legend_above(fig, handles, list(kinds))
    return plots.laid_out(fig)
