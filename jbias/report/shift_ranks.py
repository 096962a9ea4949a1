"""Do models rank alike in and out of distribution? By kind of shift, with tests."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jbias import stats
from jbias.data import shifts
from jbias.report import shift_drops, shift_printed, shift_read

FEWEST = 3  # Models that can rank unlike.


class Agreement(NamedTuple):
    """Ranks of models by accuracy in and out of distribution."""

    whose: str  # "here" or "paper".
    algorithm: str
    data: str
    attribute: str
    kind: str
    models: tuple[str, ...]
    tau: float
    tau_p: float
    low: float  # Of tau, over seeds and images; NaN of printed numbers.
    high: float
    rho: float
    rho_p: float
    discordant: int
    pairs: int


def of(
    cells: Sequence[shift_read.Cell], draws: shift_drops.Draws
) -> Iterator[Agreement]:
    """Gives the agreement at the most extreme level of each kind that models share."""
    groups: dict[tuple, dict[str, list[shift_read.Cell]]] = {}
    for cell in cells:
        if cell.kind and cell.share > shift_read.CONTROL:
            recipe = cell.recipe
            key = (recipe.algorithm, recipe.data, cell.attribute, recipe.dealt)
            key += (shifts.KINDS.index(cell.kind),)
            groups.setdefault(key, {}).setdefault(cell.level, []).append(cell)
    for key in sorted(groups):
        levels = groups[key]
        for level in sorted(levels, key=lambda one: -shifts.LEVELS[one].share):
            if len(levels[level]) >= FEWEST:
                yield _measured(levels[level], draws)
                break


def of_printed(printed: Mapping) -> Iterator[Agreement]:
    """Gives the agreement of the paper's Table 1, without its averages."""
    for data in dict.fromkeys(data for data, _, _ in printed):
        for kind in shifts.KINDS:
            those = {
                model: one
                for (name, model, of), one in printed.items()
                if (name, of) == (data, kind) and model != shift_printed.AVERAGE
            }
            inside = [one.inside for one in those.values()]
            outside = [one.outside for one in those.values()]
            words = ("paper", "", data, "", kind, tuple(those))
            yield Agreement(*words, *_ranked(inside, outside, math.nan, math.nan))


def _measured(cells: Sequence[shift_read.Cell], draws) -> Agreement:
    first = cells[0]
    drawn = [draws.of(cell) for cell in cells]
    taus = _taus(
        np.stack([one.insides for one in drawn], axis=1),
        np.stack([one.outsides for one in drawn], axis=1),
    )
    ends = shift_drops.estimate(math.nan, taus)
    ranked = _ranked(
        [one.inside for one in drawn],
        [one.outside for one in drawn],
        ends.low,
        ends.high,
    )
    words = ("here", first.recipe.algorithm, first.recipe.data, first.attribute)
    models = tuple(cell.recipe.network for cell in cells)
    return Agreement(*words, first.kind, models, *ranked)


def _ranked(inside, outside, low: float, high: float) -> tuple:
    tau = stats.kendall(inside, outside)
    rho = stats.spearman(inside, outside)
    discordant, pairs = discordance(inside, outside)
    return (
        *(tau.statistic, tau.pvalue, low, high),
        *(rho.statistic, rho.pvalue, discordant, pairs),
    )


def discordance(x: Sequence[float], y: Sequence[float]) -> tuple[int, int]:
    """Counts pairs that two measures order oppositely, and all pairs."""
    pairs = list(itertools.combinations(zip(x, y, strict=True), 2))
    return sum((a - c) * (b - d) < 0 for (a, b), (c, d) in pairs), len(pairs)


def _taus(
    x: Float[np.ndarray, "b k"], y: Float[np.ndarray, "b k"]
) -> Float[np.ndarray, "b"]:
    """Gives tau-b of each row; 0 where a row is all ties."""
    first, second = np.triu_indices(x.shape[1], 1)
    left, right = (np.sign(one[:, first] - one[:, second]) for one in (x, y))
    scale = np.sqrt(np.abs(left).sum(axis=1) * np.abs(right).sum(axis=1))
    return (left * right).sum(axis=1) / np.where(scale > 0, scale, 1)
