"""How much accuracy a shift costs: drops with intervals, against the control, tested.

A drop is accuracy in distribution less that out of it, in points, and in per cent of the
accuracy in distribution (Drop% of Hu, Sang, Wang and Jiang 2021,
https://arxiv.org/abs/2111.09190): of the means over seeds, not a mean of drops.
"""

import dataclasses
import math
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jbias.report import shift_read
from jbias.stats import resampling, two_sample

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """A number with its interval; NaN where it is not known."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, eq=False)
class Drawn:
    """Mean accuracies in and out of distribution, from 0 to 1: seen, and in b draws."""

    inside: float
    outside: float
    insides: Float[np.ndarray, "b"]
    outsides: Float[np.ndarray, "b"]

    @property
    def points(self) -> tuple[float, Float[np.ndarray, "b"]]:
        return (
            100 * (self.inside - self.outside),
            100 * (self.insides - self.outsides),
        )

    @property
    def percent(self) -> tuple[float, Float[np.ndarray, "b"]]:
        """100 (ID - OOD) / ID; nothing to lose is no drop."""
        return (
            float(percent(self.inside, self.outside)),
            percent(self.insides, self.outsides),
        )


def percent(inside, outside):
    """Gives the drop in per cent of the accuracy in distribution."""
    inside, outside = np.asarray(inside, np.float64), np.asarray(outside, np.float64)
    known = inside > 0
    return np.where(known, 100 * (inside - outside) / np.where(known, inside, 1), 0.0)


class Draws:
    """Draws of seeds and of test images; cells with the same seeds have the same of these.

    Seeds: jbias.stats.two_sample, whose percentiles are t intervals. Images: Binomial(n, p) / n of
    the mean accuracy p (with 1 of 2 images more, so that p = 1 varies, too); all seeds see
    the same images, so none of that noise is averaged away over seeds. Those of two
    cells are drawn apart.
    """

    def __init__(self, draws: int, seed: int):
        self.draws, self.seed = draws, seed

    def of(self, cell: shift_read.Cell) -> Drawn:
        """Draws a cell's mean accuracies; a seed's two are drawn together."""
        chosen = self._seeds(cell.seeds)
        pairs = zip((cell.inside, cell.outside), cell.tested, strict=True)
        named = f"{cell.recipe.label}/{cell.attribute}/{cell.level}"
        random = np.random.default_rng([self.seed, 1, zlib.crc32(named.encode())])
        drawn = [self._mean(values, n, chosen, random) for values, n in pairs]
        return Drawn(
            float(cell.inside.mean()), float(cell.outside.mean()), drawn[0], drawn[1]
        )

    def _seeds(self, seeds: Sequence[int]) -> Float[np.ndarray, "b s"]:
        random = np.random.default_rng([self.seed, 0, *sorted(map(abs, seeds))])
        return two_sample.t_weights(len(seeds), self.draws, random)

    def _mean(
        self,
        values: Float[np.ndarray, "s"],
        n: int,
        weights: Float[np.ndarray, "b s"],
        random,
    ) -> Float[np.ndarray, "b"]:
        p = (float(values.mean()) * n + 1) / (n + 2)
        images = random.binomial(n, p, size=self.draws) / n - p
        return np.clip(weights @ values + images, 0, 1)


def estimate(value: float, drawn: Float[np.ndarray, "b"]) -> Estimate:
    """Joins a value with the percentiles of its draws."""
    found = resampling.estimate(value, drawn, confidence=CONFIDENCE)
    return Estimate(float(value), float(found.low), float(found.high))


def area(shares: Sequence[float], drops: Sequence) -> np.ndarray:
    """Gives the mean height of a curve of drops over shares, by trapezoids.

    NaN for a single share. drops: numbers, or draws (levels, b).
    """
    shares, drops = np.asarray(shares, np.float64), np.asarray(drops, np.float64)
    if len(shares) < 2:
        return np.full(drops.shape[1:], math.nan)
    return np.trapezoid(drops, shares, axis=0) / (shares[-1] - shares[0])


def image_variance(cell: shift_read.Cell) -> float:
    """Gives the variance of a drop in points over test images, if seeds see the same."""
    total = 0.0
    for values, n in zip((cell.inside, cell.outside), cell.tested, strict=True):
        p = (float(values.mean()) * n + 1) / (n + 2)
        total += 100**2 * p * (1 - p) / n
    return total


def between(cells: Sequence[shift_read.Cell]) -> tuple[float, float]:
    """Gives the variance of a difference of mean drops, over seeds, and its df.

    Each cell has a variance of its own, as in Welch's test: recipes vary most where a
    shift hurts. Of single seeds it is not known: 0.
    """
    parts = []
    for cell in cells:
        drops, s = 100 * (cell.inside - cell.outside), len(cell.seeds)
        if s > 1:
            parts.append((float(drops.var(ddof=1)) / s, s - 1))
    total = sum(variance for variance, _ in parts)
    if not total:
        return 0.0, 0
    return total, total**2 / sum(variance**2 / free for variance, free in parts)


def larger(
    extreme: shift_read.Cell,
    control: shift_read.Cell | None,
    tau: float = 0.0,
) -> float:
    """p of: the drop at the extreme is at most tau points larger than at the control.

    t = (d - tau) / sqrt(v + w): v is the variance over seeds, after Welch, w that over test
    images (jbias.stats.two_sample). Without a control the drop is compared with 0. Of single seeds
    v is not known, and the test is of images.
    """
    those = [one for one in (extreme, control) if one is not None]
    drops = [100 * float((one.inside - one.outside).mean()) for one in those]
    difference = drops[0] - (drops[1] if control is not None else 0.0)
    images = sum(map(image_variance, those))
    return two_sample.mean_exceeds(difference - tau, between(those), images)
