"""Which figures the data-distortion study has, and what they say."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import figure as mpl_figure

from jbias.evals import interference
from jbias.report import (
    distortion_gaps,
    distortion_places,
    distortion_plots,
    distortion_read,
    distortion_tables,
    distortion_values,
    plots,
)

Drawn = Iterator[tuple[str, str, mpl_figure.Figure, str]]
Groups = Mapping[str, distortion_read.Group]  # By their names in a legend.
Lines = Mapping[str, pd.DataFrame]  # By way of hiding, or by title.
_WAYS = {"grad_cam": "Grad-CAM,", "rectangle": "Rectangle", "fourier": "Fourier"}
_TOP = 2.0  # No axis of iOcclusion is cut below it.


def of(study: distortion_values.Study) -> Drawn:
    """Gives names, sections, figures and captions."""
    panels: dict[tuple[str, str], list[distortion_read.Key]] = {}
    for key in study.groups:
        panels.setdefault((key.model, key.data), []).append(key)
    for (model, data), keys in panels.items():
        names = [data, model] if len(study.models) > 1 else [data]
        ending = "_".join(names).lower().replace(" ", "_").replace("-", "")
        about = f"{data}, {model}"
        whole = [key for key in keys if not key.training]
        groups = {key.method: study.groups[key] for key in whole}
        for fill in _fills(groups):
            lines = _lines(groups, fill)
            yield from _curves(*lines, groups, fill, ending, about)
            told = f"Two measures of robustness to occlusion side by side: {about}"
            yield from _pair(*lines, groups, fill, f"curves_{fill}_{ending}", told)
        yield from _wrong(study, whole, ending, about)
        parts = [k for k in keys if k.training.startswith(distortion_read.PART)]
        groups = {
            f"{key.method}, {key.training.removeprefix(distortion_read.PART) or 'all'}": (
                study.groups[key]
            )
            for key in [*parts, *whole]
        }
        for fill in _fills(groups) if parts else ():
            told = f"Tail and typical examples (Figure 4), trained on parts of {about}"
            lines = _lines(groups, fill)
            yield from _pair(*lines, groups, fill, f"parts_{fill}_{ending}", told)


def _fills(groups: Groups) -> list[str]:
    found = [fill for group in groups.values() for fill in distortion_gaps.fills(group)]
    return list(dict.fromkeys(found))


def _curves(
    accuracy: Lines, index: Lines, groups: Groups, fill: str, ending: str, about: str
) -> Drawn:
    """Draws accuracy and iOcclusion over the share that is hidden, a panel a way."""
    over = (
        f"over the share of pixels hidden by {distortion_gaps.FILLS.get(fill, fill)}: "
        f"{about}. Rectangle is CutOcclusion; most, least and random are orders of saliency "
        "by Grad-CAM."
    )
    if accuracy:
        fig, told = _drawn(accuracy, groups, fill, scale=100)
        told = f"Accuracy in % on test images {over} {told}"
        yield f"accuracy_{fill}_{ending}", "curves", fig, told
    if index:
        fig, told = _drawn(index, groups, fill, limited=index)
        told = (
            "iOcclusion, what is left of the gap between training and test accuracy by "
            f"the gap where nothing is hidden, {over} {told}"
        )
        yield f"iocclusion_{fill}_{ending}", "curves", fig, told


def _pair(
    accuracy: Lines, index: Lines, groups: Groups, fill: str, name: str, what: str
) -> Drawn:
    """Draws CutOcclusion beside iOcclusion, what there is of them."""
    panels = {
        "CutOcclusion": accuracy.get("rectangle"),
        "iOcclusion": index.get("grad_cam most"),
    }
    panels = {title: lines for title, lines in panels.items() if lines is not None}
    if panels:
        fig, told = _drawn(panels, groups, fill, limited=["iOcclusion"])
        told = (
            f"{what}. CutOcclusion is accuracy in [0, 1] on test images under a rectangle, "
            "iOcclusion of what is most salient by Grad-CAM; pixels are replaced by "
            f"{distortion_gaps.FILLS.get(fill, fill)}. {told}"
        )
        yield name, "figures", fig, told


def _drawn(
    panels: Lines,
    groups: Groups,
    fill: str,
    *,
    scale: float = 1,
    limited: Collection[str] = (),
) -> tuple[mpl_figure.Figure, str]:
    """Draws panels, each method in its colour, and says what lines and bands are.

    limited: panels of iOcclusion. They end at twice the median of the methods' peaks where
      they would be more than twice as high, for then one curve hides all others.
    """
    tops = {}
    for title in set(limited) & set(panels):
        lines = panels[title]
        peaks = lines.groupby("algorithm")["mean"].max()
        top = max(_TOP, 2 * float(peaks.median()))
        if (lines["mean"] + lines["std"].fillna(0)).max() > 2 * top:
            tops[_titled(title)] = top
    names = list(dict.fromkeys([*distortion_read.METHODS.values(), *groups]))
    fig = plots.curves(
        [(_titled(title), lines) for title, lines in panels.items()],
        list(groups),
        scale=scale,
        places=[names.index(name) for name in groups],
        label="pixels hidden in %",
        tops=tops,
    )
    each = [distortion_places.hidden(g, fill=fill, on="test") for g in groups.values()]
    seeds = distortion_tables.span([len(found) for found in each if found])
    images = distortion_tables.span(
        [by[""].n for found in each for by in found.values()]
    )
    told = (
        f"Lines are means over {seeds} seeds, of {images} test images, bands ± one standard "
        "deviation."
    )
    if tops:
        told += " A triangle at the edge is a mean above it; bands are cut."
    left_out = distortion_gaps.left_out(groups, fill) if limited else ""
    return fig, told + (f" Not in iOcclusion: {left_out}." if left_out else "")


def _titled(way: str) -> str:
    """Says in words where pixels are hidden."""
    name, _, order = way.partition(" ")
    return f"{_WAYS.get(name, name)} {order}".strip()


def _lines(groups: Groups, fill: str) -> tuple[Lines, Lines]:
    """Gives lines of accuracy and of iOcclusion, by way of hiding."""
    accuracy: dict[str, list[dict]] = {}
    index: dict[str, list[dict]] = {}
    for name, group in groups.items():
        found = distortion_places.hidden(group, fill=fill, on="test")
        values = distortion_places.joined(found, list(found)) if found else {}
        ways = dict.fromkeys(c.rpartition(" ")[0] for c in values if c)
        for condition, runs in values.items():
            way, _, part = condition.rpartition(" ")
            for one in [way] if way else ways:
                point = _point(name, float(part or 0), runs)
                accuracy.setdefault(one, []).append(point)
        gaps = distortion_gaps.of(group, fill)
        for way, curve in gaps.curves.items() if gaps and gaps.told.any() else ():
            for fraction, runs in zip(curve.fraction, gaps.index(way), strict=True):
                point = _point(name, fraction, runs[gaps.told])
                index.setdefault(way, []).append(point)
    return tuple(
        {
            way: pd.DataFrame(points)
            for way, points in by.items()
            if len({point["epoch"] for point in points}) > 2  # One part is no curve.
        }
        for by in (accuracy, index)
    )


def _point(name: str, fraction: float, runs: np.ndarray) -> dict:
    one = distortion_values.plain((), runs)
    return dict(algorithm=name, epoch=100 * fraction, mean=one.mean, std=one.std)


def _wrong(
    study, keys: Sequence[distortion_read.Key], ending: str, about: str
) -> Drawn:
    """Draws by class which wrong predictions there are, clean and distorted."""
    for quantity, told in (
        ("di_grid", "tiles are shuffled"),
        ("di_black", "a black rectangle hides part"),
        ("di_anywhere", "a rectangle of another data set's images hides part"),
        ("di_other", "a rectangle of another data set's images hides 30 %"),
    ):
        panels, values = {}, []
        for key in keys:
            found = wrong_shares(study, key, quantity)
            if found:
                value = study.value(quantity, key)
                values.append(value)
                words = filter(None, (f"{value.mean:.2f} %", value.dominant))
                panels[f"{key.method}: {', '.join(words)}"] = found
        seeds = distortion_tables.span([len(value.runs) for value in values])
        images = distortion_tables.span([value.images for value in values])
        if panels:
            yield (
                f"wrong_{quantity.removeprefix('di_')}_{ending}",
                "wrong",
                distortion_plots.wrong_classes(panels),
                (
                    "Shares in % of the wrong predictions by predicted class, on test images "
                    f"as they are and where {told}: {about}. Bars are means over {seeds} "
                    f"seeds, dots seeds; of {images} images. Above each panel the DI index and "
                    "the class that errors gather in. Of many classes those that grow most are "
                    "shown."
                ),
            )


def wrong_shares(
    study, key: distortion_read.Key, quantity: str
) -> tuple[list[str], np.ndarray, np.ndarray] | None:
    """Gives classes, and by seed and class the shares in % of errors, clean and distorted."""
    group = study.groups[key]
    place, condition = distortion_values.interfering(group, quantity)
    known = distortion_places.decided(group, place, condition)
    if not known:
        return None
    names = distortion_places.classes(group, place)
    counts = np.array(
        [
            [interference.wrong_by_class(one, len(names)) for one in pair]
            for _, pair in known
        ]
    )
    shares = 100 * counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
    return list(names), shares[:, 0], shares[:, 1]
