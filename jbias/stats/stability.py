"""Would the ranking come out otherwise with other seeds?

A Friedman test sees means over runs as if they were exact. Here the runs are drawn again (see
`draws`), and each draw is ranked and tested as the table itself. The draws vary around the
means that were seen, so that this tells what seeds can do, not which ranking is true.
"""

import dataclasses

import numpy as np
import scipy.stats
from jaxtyping import Float

from jbias.stats import draws as resampling
from jbias.stats import pairs as posthoc
from jbias.stats import scores as score_table


@dataclasses.dataclass(frozen=True, eq=False)
class RankStabilityResult:
    """What redrawn seeds do to ranks and decisions; shares of draws throughout."""

    algorithms: tuple[str, ...]
    ranks: resampling.Estimate  # (k,), means over data sets; 1 is the best.
    places: Float[np.ndarray, "k k"]  # Algorithm at place 1, 2, ... by mean rank.
    before: Float[np.ndarray, "k k"]  # Row has the smaller mean rank; ties half.
    same_order: float  # All pairs as observed.
    friedman: bool  # Observed: p <= alpha.
    friedman_flips: float  # The other decision.
    nemenyi: np.ndarray  # (k, k) bool, observed: p <= alpha.
    nemenyi_share: Float[np.ndarray, "k k"]  # Pair differs significantly.
    nemenyi_flips: Float[np.ndarray, "k k"]  # The other decision than observed.
    any_flips: float  # Some decision of Nemenyi's comes out otherwise.
    alpha: float

    @property
    def best(self) -> Float[np.ndarray, "k"]:
        """How often each algorithm comes first; ties share."""
        return self.places[:, 0]


def rank_stability(
    scores,
    *,
    larger_is_better: bool,
    alpha: float = 0.05,
    datasets: bool = False,
    runs: int | None = None,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
    axis: int = 1,
) -> RankStabilityResult:
    """Ranks and tests the table again with redrawn runs, and counts what changes.

    `datasets` draws data sets too. `runs` is how many runs of each algorithm a draw has
    (None: as many as there are); a smaller number shows what a smaller study would have said.
    Friedman's test is Iman and Davenport's with correction for ties; Nemenyi's decides by the
    critical difference. Raises ValueError for single runs and missing cells.
    """
    table = score_table.read(scores, axis=axis)
    drawn = resampling.draw(table, draws=draws, seed=seed, datasets=datasets, runs=runs)
    observed = score_table.rank(table, larger_is_better=larger_is_better)
    # Sums in another order tie as before.
    levels = score_table.near_levels(
        drawn.means(table), score_table.rounding(table.values)
    )
    ranked = scipy.stats.rankdata(-levels if larger_is_better else levels, axis=2)
    ranked = drawn.picked(ranked)
    mean_ranks = np.round(ranked.mean(axis=1), 9)
    original = np.round(observed.mean(axis=0), 9)
    sign = np.sign(mean_ranks[:, :, None] - mean_ranks[:, None, :])
    as_observed = sign == np.sign(original[:, None] - original)

    cd = posthoc.nemenyi(table, larger_is_better=larger_is_better).critical_difference(
        alpha
    )
    apart = np.abs(mean_ranks[:, :, None] - mean_ranks[:, None, :]) >= cd
    nemenyi = np.abs(original[:, None] - original) >= cd
    rejects = friedman_pvalues(ranked) <= alpha
    rejected = bool(friedman_pvalues(observed[None])[0] <= alpha)
    return RankStabilityResult(
        algorithms=table.algorithms,
        ranks=resampling.estimate(original, mean_ranks, confidence=confidence),
        places=_places(mean_ranks),
        before=((1 - sign) / 2).mean(axis=0),
        same_order=float(as_observed.all(axis=(1, 2)).mean()),
        friedman=rejected,
        friedman_flips=float((rejects != rejected).mean()),
        nemenyi=nemenyi,
        nemenyi_share=apart.mean(axis=0),
        nemenyi_flips=(apart != nemenyi).mean(axis=0),
        any_flips=float((apart != nemenyi).any(axis=(1, 2)).mean()),
        alpha=alpha,
    )


def friedman_pvalues(ranked: Float[np.ndarray, "b n k"]) -> Float[np.ndarray, "b"]:
    """Gives the p-values of `omnibus.friedman` for many tables of ranks at once.

    The sum of squares of all ranks stands for the correction for ties (Conover 1999, 5.8).
    """
    _, n, k = ranked.shape
    even = (k + 1) / 2
    between = n * np.sum((ranked.mean(axis=1) - even) ** 2, axis=1)
    total = np.sum((ranked - even) ** 2, axis=(1, 2))
    w = np.divide(between, total, out=np.zeros_like(total), where=total > 0)
    with np.errstate(divide="ignore"):
        f = (n - 1) * w / np.maximum(1 - w, 0)
    return scipy.stats.f.sf(f, k - 1, (k - 1) * (n - 1))


def _places(mean_ranks: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "k k"]:
    """Gives how often each algorithm is at each place; ties share their places."""
    k = mean_ranks.shape[1]
    ahead = (mean_ranks[:, :, None] > mean_ranks[:, None, :]).sum(axis=2)
    level = (mean_ranks[:, :, None] == mean_ranks[:, None, :]).sum(axis=2)
    place = np.arange(k) - ahead[:, :, None]
    held = (place >= 0) & (place < level[:, :, None])
    return (held / level[:, :, None]).mean(axis=0)
