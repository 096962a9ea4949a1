"""Which figures the data-distortion study has, and what they say."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import figure as mpl_figure

from jbias.evals import interference
from jbias.report import (
    distortion_detail,
    distortion_places,
    distortion_plots,
    distortion_read,
    distortion_values,
    figures,
)

Drawn = Iterator[tuple[str, str, mpl_figure.Figure, str]]
_FILLS = {
    "black": "black",
    "mean": "the mean colour of the data set",
    "other": "images of another data set",
}
_WAYS = {"grad_cam": "Grad-CAM,", "rectangle": "Rectangle", "fourier": "Fourier"}
_HIDDEN = "pixels hidden in %"
_SEEDS = "Lines are means over seeds, bands ± one standard deviation."


def of(study: distortion_values.Study) -> Drawn:
    """Gives names, sections, figures and captions."""
    several = len(study.models) > 1
    for (model, data), keys in _panels(study).items():
        whole = [key for key in keys if not key.training]
        ending = _name(data) + (f"_{_name(model)}" if several else "")
        about = f"{data}, {model}"
        yield from _curves(study, whole, ending, about)
        yield from _wrong(study, whole, ending, about)
        parts = [k for k in keys if k.training.startswith(distortion_read.PART)]
        if parts:
            yield from _parts(study, [*parts, *whole], ending, about)


def _panels(study) -> dict[tuple[str, str], list[distortion_read.Key]]:
    found: dict[tuple[str, str], list] = {}
    for key in study.groups:
        found.setdefault((key.model, key.data), []).append(key)
    return found


def _name(words: str) -> str:
    return words.lower().replace(" ", "_").replace("-", "")


def _curves(
    study, keys: Sequence[distortion_read.Key], ending: str, about: str
) -> Drawn:
    """Draws accuracy and iOcclusion over the share that is hidden, a panel a way."""
    styles = _styles(keys)
    groups = {key.method: study.groups[key] for key in keys}
    fills = dict.fromkeys(
        fill for group in groups.values() for fill in distortion_detail.fills(group)
    )
    for fill in fills:
        hidden_by = _FILLS.get(fill, fill)
        accuracy, index = _lines(groups, fill)
        for kind, panels in (("accuracy", accuracy), ("iocclusion", index)):
            if panels:
                what = (
                    "Accuracy in % on test images"
                    if kind == "accuracy"
                    else "iOcclusion, what is left of the gap between training and test "
                    "accuracy by the gap where nothing is hidden,"
                )
                yield (
                    f"{kind}_{fill}_{ending}",
                    "curves",
                    _drawn(panels, styles, 100 if kind == "accuracy" else 1),
                    (
                        f"{what} over the share of pixels hidden by {hidden_by}: {about}. "
                        f"Rectangle is CutOcclusion; most, least and random are orders of "
                        f"saliency by Grad-CAM. {_SEEDS}"
                    ),
                )
        both = _both(accuracy, index)
        if both:
            yield (
                f"curves_{fill}_{ending}",
                "figures",
                _drawn(both, styles, 1),
                (
                    f"Two measures of robustness to occlusion side by side: {about}. "
                    "CutOcclusion is accuracy in [0, 1] under a rectangle, iOcclusion of what "
                    f"is most salient by Grad-CAM; pixels are replaced by {hidden_by}. "
                    f"{_SEEDS}"
                ),
            )


def _both(accuracy: Mapping, index: Mapping) -> dict[str, pd.DataFrame]:
    found = {}
    if "rectangle" in accuracy and "grad_cam most" in index:
        found["CutOcclusion"] = accuracy["rectangle"]
        found["iOcclusion"] = index["grad_cam most"]
    return found


def _styles(keys: Sequence[distortion_read.Key]) -> dict[str, int]:
    """Gives each method its place among all, so that it keeps its colour."""
    known = list(distortion_read.METHODS.values())
    others = [key.method for key in keys if key.method not in known]
    names = [*known, *dict.fromkeys(others)]
    methods = {key.method for key in keys}
    return {name: i for i, name in enumerate(names) if name in methods}


def _drawn(panels: Mapping[str, pd.DataFrame], styles: Mapping[str, int], scale: float):
    return figures.curves(
        [(_titled(title), panel) for title, panel in panels.items()],
        list(styles),
        scale=scale,
        places=list(styles.values()),
        label=_HIDDEN,
    )


def _titled(way: str) -> str:
    """Says in words where pixels are hidden."""
    name, _, order = way.partition(" ")
    name = _WAYS.get(name, name)
    return f"{name} {order}".strip()


def _lines(
    groups: Mapping[str, distortion_read.Group], fill: str
) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
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
        known = distortion_places.curves(group, fill=fill)
        for way, curve in known[1].items() if known else ():
            for fraction, runs in zip(curve.fraction, curve.iocclusion, strict=True):
                point = _point(name, fraction, runs[np.isfinite(runs)])
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
    mean = float(np.mean(runs)) if len(runs) else np.nan
    std = float(np.std(runs, ddof=1)) if len(runs) > 1 else np.nan
    return {"algorithm": name, "epoch": 100 * fraction, "mean": mean, "std": std}


def _parts(
    study, keys: Sequence[distortion_read.Key], ending: str, about: str
) -> Drawn:
    """Draws curves of networks trained on parts of a set, beside those of all of it."""
    groups = {}
    for key in keys:
        part = key.training.removeprefix(distortion_read.PART) or "all"
        groups[f"{key.method}, {part}"] = study.groups[key]
    for fill, words in _FILLS.items():
        accuracy, index = _lines(groups, fill)
        panels = _both(accuracy, index)
        if not panels:
            panels = {f"{way} accuracy": one for way, one in accuracy.items()}
        if panels:
            styles = {name: i for i, name in enumerate(groups)}
            yield (
                f"parts_{fill}_{ending}",
                "figures",
                _drawn(panels, styles, 1),
                (
                    f"Tail and typical examples (Figure 4): networks trained on parts of "
                    f"{about}, accuracy in [0, 1] on test images and iOcclusion, pixels "
                    f"hidden by {words}. {_SEEDS}"
                ),
            )


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
        panels = {}
        for key in keys:
            found = wrong_shares(study, key, quantity)
            if found:
                value = study.value(quantity, key)
                ending_of = f", {value.dominant}" if value.dominant else ""
                panels[f"{key.method}: {value.mean:.2f} %{ending_of}"] = found
        if panels:
            yield (
                f"wrong_{quantity.removeprefix('di_')}_{ending}",
                "wrong",
                distortion_plots.wrong_classes(panels),
                (
                    f"Shares in % of the wrong predictions by predicted class, on test images "
                    f"as they are and where {told}: {about}. Bars are means over seeds, dots "
                    "seeds. Above each panel the DI index and the class that errors gather "
                    "in. Of many classes those that grow most are shown."
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
        [[interference.wrong(one, len(names)) for one in pair] for _, pair in known]
    )
    shares = 100 * counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
    return list(names), shares[:, 0], shares[:, 1]
