"""iOcclusion, and the seeds of which it can be told.

It divides by the gap between training and test accuracy. Where few images were shown that gap
may be chance alone, and the index as large as one likes. So it is told only of seeds whose gap
is further from 0 than `ERRORS` of its standard errors; the others are counted and named.
"""

import dataclasses
import types
from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias.evals import iocclusion
from jbias.report import distortion_places, distortion_read, tables

ERRORS = 2.0
PART = "0.3"  # Of the pixels; what Table 4 hides.
FILLS = types.MappingProxyType(
    {
        "black": "black",
        "mean": "the mean colour of the data set",
        "other": "images of another data set",
    }
)
RULE = (
    f"iOcclusion is told of seeds whose gap is more than {ERRORS:g} of its standard errors "
    "from 0, sqrt(p (1 - p) / n) of the training and the test accuracy p of n images, "
    "squared and added; the others are left out. Seeds with a large gap are kept by this, "
    "so the index is rather too small where many are left out."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Gaps:
    """What hiding parts leaves of the gaps of r seeds, by way, at f fractions."""

    seeds: tuple[int, ...]
    images: Int[np.ndarray, "2 r"]  # Training and test images that were shown.
    curves: Mapping[str, iocclusion.Curve]
    clean: Float[np.ndarray, "2 r"]  # Accuracy with nothing hidden.

    @property
    def gap(self) -> Float[np.ndarray, "r"]:
        return self.clean[0] - self.clean[1]

    @property
    def error(self) -> Float[np.ndarray, "r"]:
        """The standard error of each gap, that of a difference of two shares."""
        return np.sqrt(
            np.sum(self.clean * (1 - self.clean) / np.maximum(self.images, 1), axis=0)
        )

    @property
    def told(self) -> Bool[np.ndarray, "r"]:
        return np.abs(self.gap) > ERRORS * self.error

    def index(self, way: str) -> Float[np.ndarray, "f r"]:
        """iOcclusion of each seed, as the paper has it; NaN where it cannot be told."""
        return np.where(self.told, self.curves[way].iocclusion, np.nan)

    def units(self, way: str) -> Float[np.ndarray, "f u 2"]:
        """By seed its gap with parts hidden and without, by the mean gap; `ratio` is of them.

        None where the mean gap cannot be told by the mean of the seeds' errors: they are
        shown the same images, so more seeds make it no surer.
        """
        curve, mean = self.curves[way], self.gap.mean()
        hidden = curve.train - curve.test
        if not abs(mean) > ERRORS * self.error.mean():
            return np.empty((len(hidden), 0, 2))
        return np.stack([hidden, np.broadcast_to(self.gap, hidden.shape)], -1) / mean

    def of_means(self, way: str) -> Float[np.ndarray, "f"]:
        """The same ratio of mean gaps, of all seeds; NaN where it cannot be told."""
        units = self.units(way)
        return np.array([ratio(of) if len(of) else np.nan for of in units])


def ratio(units: Float[np.ndarray, "u 2"]) -> float:
    """iOcclusion of mean gaps."""
    hidden, gap = units.mean(axis=0)
    return float(iocclusion.index(gap, 0, hidden, 0))


def of(group: distortion_read.Group, fill: str) -> Gaps | None:
    """Gives what is known where such a filling hides; None without both sets."""
    train, test = (
        distortion_places.hidden(group, fill=fill, on=on) for on in ("train", "test")
    )
    seeds = tuple(seed for seed in train if seed in test)
    if not seeds:
        return None
    by = [distortion_places.joined(found, seeds) for found in (train, test)]
    return Gaps(
        seeds=seeds,
        images=np.array([[each[s][""].n for s in seeds] for each in (train, test)]),
        curves=iocclusion.curves(*by),
        clean=np.stack([found[""] for found in by]),
    )


def fills(group: distortion_read.Group) -> list[str]:
    """Gives what hides pixels in the measures of curves."""
    found = [
        one.measures[place]["measure"].get("options", {}).get("fill", "black")
        for one in group.networks
        for place in one.of("occlusion")
    ]
    return list(dict.fromkeys(found))


def left_out(groups: Mapping[str, distortion_read.Group], fill: str) -> str:
    """Says of which groups seeds are left out, "" if of none."""
    found, images = [], set()
    for name, group in groups.items():
        gaps = of(group, fill)
        if gaps is not None and not gaps.told.all():
            lost, n = int((~gaps.told).sum()), len(gaps.seeds)
            found.append(f"{lost} of {n} seeds of {name}")
            images |= set(map(tuple, gaps.images.T.tolist()))
    if not found:
        return ""
    sizes = [f"{train:,} training and {test:,} test images" for train, test in images]
    return (
        f"{tables.join(found)} have no gap that {tables.join(sorted(sizes))} can tell"
    )


def caveats(groups: Mapping[distortion_read.Key, distortion_read.Group]):
    """Says where seeds are left out, by model, data set and filling."""
    found: dict[tuple[str, str, str], dict[str, distortion_read.Group]] = {}
    for key, group in groups.items():
        name = ", ".join(filter(None, (key.method, key.training)))
        for fill in fills(group):
            found.setdefault((key.model, key.data, fill), {})[name] = group
    for (model, data, fill), those in found.items():
        told = left_out(those, fill)
        if told:
            hidden = f"hidden by {FILLS.get(fill, fill)}"
            yield f"No iOcclusion ({data}, {model}, {hidden}): {told}."


def table(groups: Mapping[distortion_read.Key, distortion_read.Group]):
    """Shows what each way of hiding leaves of accuracies and of their gap."""
    rows = [
        key.cells | {"fill": fill} | row
        for key, group in groups.items()
        for fill in fills(group)
        for row in _rows(of(group, fill))
    ]
    percent, shown = tables.percent, tables.digits(2)
    part = [row for row in rows if np.isclose(row["hidden"], float(PART))]
    found = tables.from_rows(
        "gaps",
        f"Where {100 * float(PART):.0f} % of the pixels are hidden: accuracy in % on the "
        "training images, without augmentation, and on the test images, and iOcclusion, what "
        "is left of the gap between the two by the gap without hiding (in points, with its "
        "standard error). Means over n seeds; iOcclusion, as in the paper the mean of the "
        "seeds' ratios, and its standard deviation ±, over those that are told. Of means: "
        "the ratio of mean gaps of all n seeds, which is steadier and not the paper's; "
        "orderings are tested by it. "
        f"{RULE} The CSV file has every fraction.",
        part,
        {
            **distortion_read.HEADS,
            "fill": ("hidden by", str),
            "way": ("where", str),
            "n": ("n", tables.whole),
            "train_images": ("training images", tables.whole),
            "test_images": ("test images", tables.whole),
            "train": ("training", percent),
            "test": ("test", percent),
            "gap": ("gap", percent),
            "gap_error": ("± error", percent),
            "told": ("told", tables.whole),
            "iocclusion": ("iOcclusion", shown),
            "iocclusion_std": ("±", shown),
            "of_means": ("of means", shown),
        },
    )
    data = tables.from_rows("gaps", "", rows, {})
    return found and dataclasses.replace(found, data=data.data)


def _rows(gaps: Gaps | None) -> Iterator[dict]:
    for way, curve in gaps.curves.items() if gaps else ():
        values, means = gaps.index(way), gaps.of_means(way)
        for i, fraction in enumerate(curve.fraction):
            row = {"way": way, "hidden": fraction, "n": len(gaps.seeds)}
            sizes = gaps.images.min(axis=1).tolist()
            row |= dict(zip(("train_images", "test_images"), sizes, strict=True))
            for name in ("train", "test"):
                row |= _spread(name, getattr(curve, name)[i])
            row |= {"gap": gaps.gap.mean(), "gap_error": gaps.error.mean()}
            row |= {"told": int(gaps.told.sum())}
            row |= _spread("iocclusion", values[i][gaps.told])
            yield row | {"of_means": means[i] if np.isfinite(means[i]) else None}


def _spread(name: str, values: Float[np.ndarray, "r"]) -> dict:
    return {
        name: float(values.mean()) if len(values) else None,
        f"{name}_std": float(values.std(ddof=1)) if len(values) > 1 else None,
    }
