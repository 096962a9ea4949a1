"""From decisions about images under noise to the critical band, in either variant.

"bvg" shows every image under every noise; accuracies count relative to the largest, and
the numbers are called critical_band_... "original" shows each image once, under noise
drawn for it; accuracies count as they are, and the numbers are called
critical_band_original_... Either is also told in the other's way, as ..._absolute and
..._normalised.
"""

import functools
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias.evals import critical_band, decisions, pyramid, resample

BLOCKS, BLOCK = 5, 210  # Of the original's images.
CLEAN = "noise 0"
EACH_ITS_OWN = "each its own noise"


def name(sigma: float, frequency: float) -> str:
    """A condition's name, such as "noise 0.02 at 1.75"."""
    return f"noise {sigma:g} at {frequency:g}" if sigma else CLEAN


@functools.cache
def cells(octaves: int, seed: int) -> Int[np.ndarray, "images"]:
    """The cell of the original's table that each image is drawn for, sigma by octave.

    A block of 210 images after the other, each image for any cell with the same chance.
    Image i of a set is in cell i modulo 1050. Read-only.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(
        len(critical_band.SIGMAS) * octaves, size=(BLOCKS, BLOCK)
    ).reshape(-1)
    drawn.flags.writeable = False
    return drawn


def every_image(
    by_condition: Mapping[str, decisions.Decisions],
    *,
    side: int,
    draws: int,
    seed: int,
    continuous: bool,
) -> list[decisions.Number]:
    """The numbers of the variant "bvg"."""
    frequencies = critical_band.frequencies(side)
    names = [[name(s, f) for f in frequencies] for s in critical_band.SIGMAS]
    row = {condition: i for i, condition in enumerate(by_condition)}
    marks = resample.correct(by_condition)
    counts, n = marks.sum(1), marks.shape[1]
    where = np.array([[row[condition] for condition in line] for line in names])
    told = [
        decisions.Number("accuracy", int(counts[i]) / n, int(counts[i]), n, condition)
        for condition, i in row.items()
    ]
    drawn = resample.counts(marks, draws=draws, seed=seed)
    return told + _bands(
        "critical_band",
        100 * counts[where] / n,
        100 * drawn[:, where] / n,
        side=side,
        n=n,
        default="normalised",
        continuous=continuous,
    )


def one_each(
    by_condition: Mapping[str, decisions.Decisions],
    *,
    side: int,
    sample: int | None,
    draws: int,
    seed: int,
    continuous: bool,
) -> list[decisions.Number]:
    """The numbers of the variant "original", of so many images drawn from the set.

    Which image had which noise follows from its number in the set, the column "index".
    """
    frequencies = critical_band.frequencies(side)
    (right,), (decided,) = resample.correct(by_condition), by_condition.values()
    index = decided.columns.get("index", np.arange(len(right)))
    chosen = np.random.default_rng(seed).permutation(len(right))[:sample]
    table = cells(len(frequencies), seed)
    size = len(critical_band.SIGMAS) * len(frequencies)
    marks = _marks(right[chosen], table[index[chosen] % len(table)], size)
    counts = marks.sum(1).reshape(2, len(critical_band.SIGMAS), -1)
    told = [
        decisions.Number(
            "accuracy",
            counts[0, i, j] / counts[1, i, j] if counts[1, i, j] else None,
            int(counts[0, i, j]),
            int(counts[1, i, j]),
            f"original {sigma:g} at {frequency:g}",
        )
        for i, sigma in enumerate(critical_band.SIGMAS)
        for j, frequency in enumerate(frequencies)
    ]
    drawn = resample.counts(marks, draws=draws, seed=seed)
    return told + _bands(
        "critical_band_original",
        _per_cent(*counts),
        _per_cent(*np.moveaxis(drawn.reshape(-1, *counts.shape), 1, 0)),
        side=side,
        n=len(chosen),
        default="absolute",
        continuous=continuous,
    )


def _marks(right, cell, count) -> Bool[np.ndarray, "2*cells n"]:
    """Of each cell, which images are decided rightly in it, and which are in it."""
    inside = cell == np.arange(count)[:, None]
    return np.concatenate([inside & right, inside])


def _per_cent(right, shown):
    nothing = np.full(np.shape(right), np.nan)
    return np.divide(100 * right, shown, out=nothing, where=shown > 0)


def _bands(
    prefix: str,
    table: Float[np.ndarray, "sigmas octaves"],
    drawn: Float[np.ndarray, "draws sigmas octaves"],
    *,
    side: int,
    n: int,
    default: str,
    continuous: bool,
) -> list[decisions.Number]:
    """Thresholds and fits of a table, as it is and normalised, with intervals."""
    told = []
    ways = {"absolute": np.asarray, "normalised": critical_band.normalised}
    for way in sorted(ways, key=lambda way: way != default):
        read = ways[way]
        ending = "" if way == default else f"_{way}"
        found = critical_band.threshold_indices(read(table))
        fitted, *others = critical_band.fits(
            np.concatenate([found[None], critical_band.threshold_indices(read(drawn))]),
            side=side,
        )
        told += _thresholds(f"{prefix}_threshold{ending}", found, side, n)
        for metric in ("bandwidth", "center_frequency", "peak_noise_sensitivity"):
            named = f"{prefix}_{metric}{ending}"
            told.append(resample.number(named, getattr(fitted, metric), n))
            values = np.array([getattr(other, metric) for other in others])
            told += resample.interval(named, values, n)
        told.append(resample.number(f"{prefix}_residual{ending}", fitted.residual, n))
        # Why there is no band, if there is none: 1 where that is so.
        told += [
            resample.number(f"{prefix}_{why}{ending}", float(fitted.flag == why), n)
            for why in critical_band.FLAGS
        ]
        if continuous:
            told += _between(prefix, ending, read(table), side, n)
    if prefix == "critical_band":
        octaves = len(critical_band.frequencies(side))
        measured = [pyramid.centroid(side, octaves - 1 - f) for f in range(octaves)]
        told += _thresholds(f"{prefix}_centroid", measured, side, n)
    return told


def _between(prefix, ending, accuracy, side, n) -> list[decisions.Number]:
    """The same by thresholds between whole numbers."""
    found = critical_band.continuous_thresholds(accuracy)
    highest = critical_band.HIGHEST + critical_band.BEYOND
    band = critical_band.critical_band_fit(found, side=side, highest=highest)
    return _thresholds(f"{prefix}_threshold_continuous{ending}", found, side, n) + [
        resample.number(f"{prefix}_{metric}_continuous{ending}", value, n)
        for metric, value in (
            ("bandwidth", band.bandwidth),
            ("center_frequency", band.center_frequency),
            ("peak_noise_sensitivity", band.peak_noise_sensitivity),
        )
    ]


def _thresholds(metric, values, side, n) -> list[decisions.Number]:
    return [
        resample.number(metric, value, n, f"noise at {frequency:g}")
        for frequency, value in zip(critical_band.frequencies(side), values)
    ]
