"""Is one algorithm better than another over seeds? P(A > B) and almost stochastic order.

`probability_of_outperforming` is of Bouthillier et al., MLSys 2021,
https://arxiv.org/abs/2103.03098: how often A beats B where both have the same seed, with a
margin that makes "better" mean more than "significantly different".

`almost_stochastic_order` is of Del Barrio, Cuesta-Albertos and Matrán 2018,
https://arxiv.org/abs/1705.01788, and Dror, Shlomov and Reichart, ACL 2019,
https://aclanthology.org/P19-1266; reference code: Kaleidophon/deep-significance at 71b9e42
(Ulmer, Hardmeier and Frellsen 2022, https://arxiv.org/abs/2204.06815). Deviations: the
integral is exact, where theirs is a sum over a grid of 0.005 whose first point is missing
from the numerator, so that both directions sum to less than 1; m comparisons divide
1 - confidence by m, where theirs adds it to the confidence; and `better` takes the bound of
0.2 that Ulmer et al. advise: one of 0.5 finds a fifth of equal distributions different.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.stats
from jaxtyping import Bool, Float

from jbias.stats import resampling, score_table

GAMMA = 0.75  # Bouthillier et al.'s recommendation.
# Ulmer et al.'s: 2 to 8 of 100 pairs of equal distributions, by 3 to 200 runs.
TAU = 0.2
_LISTED = 5  # Labels that a refusal lists.
_RTOL = 1e-12  # Scores that differ by less do so by rounding.


@dataclasses.dataclass(frozen=True, eq=False)
class OutperformingResult:
    """P(A > B) by data set, and averaged over these."""

    share: resampling.Estimate  # (n,), with Clopper and Pearson's exact interval.
    # (), over redrawn pairs; without ends where these are few.
    mean: resampling.Estimate
    pairs: int  # Of seeds.
    gamma: float

    @property
    def significant(self) -> Bool[np.ndarray, "n"]:
        """Where the interval lies above a half."""
        return self.share.low > 0.5

    @property
    def better(self) -> Bool[np.ndarray, "n"]:
        """Where that is meaningful, too: gamma lies in the interval, or below it."""
        return self.significant & (self.share.high >= self.gamma)


def probability_of_outperforming(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    larger_is_better: bool,
    gamma: float = GAMMA,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> OutperformingResult:
    """P(A > B): how often a run of the first beats that of the second with the same seed.

    mean_i [a_i > b_i] over the r pairs, from 0 to 1; a tie is no win. Each data set's
    interval is exact, where Bouthillier et al. redraw pairs, which leaves none of pairs that
    are all won; the mean's is the percentile one over redrawn pairs, the same for all data
    sets, and NaN of so few pairs that to win all may be chance (5 at 95 %). The first is
    better where the interval lies above 0.5 and reaches `gamma`; above 0.5 alone is
    significant and not meaningful. `pairs_for_outperforming` says how many pairs that takes.

    first, second: a row a data set, or one data set alone, with the seeds in the same order.
    Two frames, or series, are paired by the labels of their data sets and seeds.
    Raises ValueError for other shapes or labels, fewer than 2 pairs and scores that are not
    finite.
    """
    score_table.check_share("gamma", gamma)
    score_table.check_count("draws", draws, 100)
    a, b = _scores(first, second, larger_is_better, paired=True)
    wins, r = (_gap(a, b) > 0).astype(float), a.shape[1]
    rng = np.random.default_rng(seed)
    many = rng.multinomial(r, np.full(r, 1 / r), size=draws) @ wins.T / r
    mean = resampling.estimate(wins.mean(), many.mean(1), confidence)
    if 0.5**r > (1 - confidence) / 2:
        mean = dataclasses.replace(mean, low=np.array(np.nan), high=np.array(np.nan))
    won, tail = wins.sum(1), (1 - confidence) / 2
    low = np.where(won > 0, scipy.stats.beta.ppf(tail, won, r - won + 1), 0)
    high = np.where(won < r, scipy.stats.beta.isf(tail, won + 1, r - won), 1)
    share = resampling.Estimate(wins.mean(1), low, high, confidence)
    return OutperformingResult(share, mean, r, gamma)


def pairs_for_outperforming(
    *, gamma: float = GAMMA, alpha: float = 0.05, power: float = 0.95
) -> int:
    """How many pairs of seeds tell P(A > B) = gamma from 0.5, in a one-sided test.

    ((z(1 - alpha) + z(power)) / (sqrt(6) (gamma - 0.5)))^2, rounded up: 29 by default.
    Source: Noether 1987, https://doi.org/10.1080/01621459.1987.10478478.
    """
    for name, value in (("gamma", gamma), ("alpha", alpha), ("power", power)):
        score_table.check_share(name, value)
    score_table.check(gamma > 0.5, "gamma", "be above 0.5", gamma)
    z = scipy.stats.norm.isf(alpha) + scipy.stats.norm.ppf(power)
    return math.ceil((z / (math.sqrt(6) * (gamma - 0.5))) ** 2)


@dataclasses.dataclass(frozen=True, eq=False)
class StochasticOrderResult:
    """How far the first is from stochastically larger than the second, by data set."""

    violation: Float[np.ndarray, "n"]  # 0: never behind at any quantile; 1: always.
    bound: Float[np.ndarray, "n"]  # Its upper confidence bound, epsilon_min.

    @property
    def better(self) -> Bool[np.ndarray, "n"]:
        """Where the bound lies below `TAU`."""
        return self.bound < TAU


def almost_stochastic_order(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    larger_is_better: bool,
    confidence: float = 0.95,
    comparisons: int = 1,
    draws: int = 1000,
    seed: int = 0,
) -> StochasticOrderResult:
    """Is the first's score larger at (almost) every quantile?

    violation = int max(G^-1 - F^-1, 0)^2 dt / int (G^-1 - F^-1)^2 dt, F and G the empirical
    distributions of first and second; 0.5 where these are the same. bound = violation +
    sd* z, cut to 0 ... 1, with sd* the deviation of the violation over redrawn runs, the same
    ones for all data sets, and z the normal quantile of 1 - (1 - confidence) / comparisons.
    It describes, and is no test at that level: sd* is 0 of runs that all lie apart, and where
    F and G are the same the violation is not normal.

    first, second: a row a data set, or one data set alone; runs need not share seeds. Rows of
    two frames are paired by their labels. Raises ValueError for other shapes or data sets,
    fewer than 2 runs and scores that are not finite.
    """
    score_table.check_share("confidence", confidence)
    score_table.check_count("comparisons", comparisons)
    score_table.check_count("draws", draws, 100)
    both, rng = _scores(first, second, larger_is_better), np.random.default_rng(seed)
    runs = [rng.integers(x.shape[1], size=(draws, x.shape[1])) for x in both]
    redrawn = [x[:, chosen] for x, chosen in zip(both, runs)]
    violation = _violation(*both)
    z = scipy.stats.norm.isf((1 - confidence) / comparisons)
    bound = violation + z * _violation(*redrawn).std(axis=1)
    return StochasticOrderResult(violation, np.clip(bound, 0, 1))


def _violation(
    first: Float[np.ndarray, "*n r"], second: Float[np.ndarray, "*n s"]
) -> Float[np.ndarray, "*n"]:
    """The violation ratio; quantile functions are steps, whose ends are counted in 1/rs."""
    r, s = first.shape[-1], second.shape[-1]
    ends = np.union1d(s * np.arange(1, r + 1), r * np.arange(1, s + 1))
    f = np.sort(first, axis=-1)[..., (ends - 1) // s]
    g = np.sort(second, axis=-1)[..., (ends - 1) // r]
    behind = _gap(g, f)
    squares = np.diff(ends, prepend=0) * behind**2
    whole, part = squares.sum(-1), np.where(behind > 0, squares, 0).sum(-1)
    return np.divide(part, whole, out=np.full(whole.shape, 0.5), where=whole > 0)


def _gap(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x - y, 0 where they differ by rounding alone."""
    return np.where(np.isclose(x, y, rtol=_RTOL, atol=0), 0.0, x - y)


def _rows_of_sets(scores: npt.ArrayLike) -> npt.ArrayLike:
    """Return scores with a row a data set: a frame by the names of its axes, else as given.

    Raises ValueError for a frame whose rows or columns are algorithms.
    """
    if isinstance(scores, pd.Series):
        return scores.to_frame().T
    if not isinstance(scores, pd.DataFrame):
        return scores
    rows, columns = map(
        score_table.axis_meaning, (scores.index.name, scores.columns.name)
    )
    if "algorithm" in (rows, columns):
        raise ValueError(
            "first and second: must be the scores of one algorithm each, a row a data "
            "set, got a frame of several algorithms; give frame.loc[NAME]"
        )
    return scores.T if rows == "run" or columns == "dataset" else scores


def _aligned(
    first: pd.DataFrame, second: pd.DataFrame, paired: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both frames with data sets, and paired runs, in the order of the first.

    Raises ValueError where only one has a data set or a run, or has it twice. A single row
    has no name: that of a series is the algorithm's as often as the data set's.
    """
    if len(first) > 1 or len(second) > 1:
        order = _same_labels(first.index, second.index, "data sets")
        second = second.iloc[order]
    if paired:
        order = _same_labels(first.columns, second.columns, "runs")
        second = second.iloc[:, order]
    return first, second


def _same_labels(first: pd.Index, second: pd.Index, names: str) -> np.ndarray:
    """Return where the labels of the first are among those of the second."""
    if first.equals(second):
        return np.arange(len(second))
    if first.is_unique and second.is_unique and len(first) == len(second):
        order = second.get_indexer(first)
        if (order >= 0).all():
            return order
    shown = [", ".join(map(str, labels[:_LISTED])) for labels in (first, second)]
    raise ValueError(
        f"first and second: must have the same {names}, each once, got {shown[0]} and "
        f"{shown[1]}; keep what both have, or give arrays in the same order"
    )


def _scores(
    first: npt.ArrayLike, second: npt.ArrayLike, larger_is_better: bool, paired=False
) -> tuple[Float[np.ndarray, "n r"], Float[np.ndarray, "n s"]]:
    """Both with a row a data set, and turned so that larger is better; refuses others."""
    first, second = _rows_of_sets(first), _rows_of_sets(second)
    if isinstance(first, pd.DataFrame) and isinstance(second, pd.DataFrame):
        first, second = _aligned(first, second, paired)
    a, b = (np.atleast_2d(score_table.floats(scores)) for scores in (first, second))
    alike = a.shape == b.shape if paired else a.shape[:-1] == b.shape[:-1]
    finite = np.isfinite(a).all() and np.isfinite(b).all()
    if a.ndim > 2 or not alike or min(a.shape[-1], b.shape[-1]) < 2 or not finite:
        which = "both of the same seeds" if paired else "each an algorithm's"
        raise ValueError(
            "first and second: must be finite scores, a row a data set, with 2 or more "
            f"runs, {which}, got shapes {a.shape} and {b.shape}; keep what both have"
        )
    return (a, b) if larger_is_better else (-a, -b)
