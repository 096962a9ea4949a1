"""Who beats whom, and how often? The Bayesian Bradley-Terry model over data sets.

Source: Wainer 2023 (JMLR 24), "A Bayesian Bradley-Terry model to compare multiple ML algorithms on
multiple data sets", https://arxiv.org/abs/2208.04935.

    wins_ij ~ Binomial(n_ij, sigma(b_i - b_j)),  b_i ~ Normal(0, s),  s ~ LogNormal(0, 1/2)

It knows who won on a data set and not by how much, and takes the data sets for exchangeable.
"""

import dataclasses
import math

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from jbias.stats import bradley_terry_draws
from jbias.stats import chains as mcmc
from jbias.stats import draws as resampling
from jbias.stats import scores as score_table

_PAIRS = 64  # Pairs whose draws are held at once.
_FEWEST = 1000  # Effective draws, below which the answer is refused.


@dataclasses.dataclass(frozen=True, eq=False)
class BradleyTerryResult:
    """Posterior of p_win, the chance that the row beats the column on a data set."""

    algorithms: tuple[str, ...]
    wins: Int[np.ndarray, "k k"]  # With ties as they were dealt.
    ties: Int[np.ndarray, "k k"]
    strengths: resampling.Estimate  # (k,), b; mean and HDI.
    p_win: resampling.Estimate  # (k, k); mean and HDI; diagonal 1/2.
    better: Float[np.ndarray, "k k"]  # P(p_win > 1/2); diagonal 1/2.
    equivalent: Float[np.ndarray, "k k"]  # P(p_win in [0.45, 0.55]); diagonal 1.
    effective_draws: float  # Fewest of b and log s (see `mcmc`); at most the draws.


def bradley_terry(
    scores,
    *,
    larger_is_better: bool,
    local_rope: float | None = None,
    equivalence: tuple[float, float] = (0.45, 0.55),
    confidence: float = 0.89,
    draws: int | None = None,
    seed: int = 0,
    axis: int = 1,
) -> BradleyTerryResult:
    """Fits the model to the table's wins on its data sets.

    Means that are equal tie, and with `local_rope` those that differ by no more than
    local_rope * sqrt((s_i^2 + s_j^2) / 2), s the deviations over runs (Wainer takes 0.4).
    Half of the ties, rounded up, is a win for either ("spread"). Intervals are the shortest.
    `draws` are 30000 if None, and 600000 / k if there are more than 20 algorithms.
    Raises ValueError for missing cells, and for single runs if there is a `local_rope`.
    """
    table = score_table.read(scores, axis=axis)
    if local_rope is not None:
        if not local_rope >= 0:
            raise ValueError(f"local_rope: must be 0 or larger, got {local_rope}")
        resampling.need_runs(table)
    stds = np.zeros_like(table.means) if local_rope is None else table.stds
    means = table.means if larger_is_better else -table.means
    wins, ties = wins_and_ties(
        means, stds, local_rope or 0.0, score_table.rounding(table.values)
    )
    result = bradley_terry_of_wins(
        wins,
        equivalence=equivalence,
        confidence=confidence,
        draws=draws,
        seed=seed,
    )
    return dataclasses.replace(result, algorithms=table.algorithms, ties=ties)


def wins_and_ties(
    means: Float[np.ndarray, "n k"],
    stds: Float[np.ndarray, "n k"],
    rope: float,
    rounding: Float[np.ndarray, "n 1"],
) -> tuple[Int[np.ndarray, "k k"], Int[np.ndarray, "k k"]]:
    """Counts on how many data sets the row wins, ties dealt out, and on how many it ties.

    Larger means win. Ends of the region are in it, up to `rounding` (see `score_table`).
    """
    difference = means[:, :, None] - means[:, None, :]
    variances = stds[:, :, None] ** 2 + stds[:, None, :] ** 2
    region = rope * np.sqrt(variances / 2)
    tied = np.abs(difference) <= region + rounding[:, :, None]
    ties = tied.sum(axis=0)
    np.fill_diagonal(ties, 0)
    wins = ((difference > 0) & ~tied).sum(axis=0)
    return wins + (ties + 1) // 2, ties


def bradley_terry_of_wins(
    wins: Int[np.ndarray, "k k"],
    *,
    equivalence: tuple[float, float] = (0.45, 0.55),
    confidence: float = 0.89,
    draws: int | None = None,
    seed: int = 0,
) -> BradleyTerryResult:
    """Fits the model to a matrix of wins: the row over the column, on the diagonal 0.

    Hamiltonian Monte Carlo in 100 chains, from Laplace's approximation.
    Raises ValueError if the draws are worth fewer than 1000 independent ones.
    """
    wins = np.asarray(wins)
    k = len(wins)
    if wins.shape != (k, k) or k < 2 or (wins < 0).any() or np.diag(wins).any():
        raise ValueError(
            "wins: must be a square matrix of counts with 0 on the diagonal, got shape "
            f"{wins.shape}"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: must lie between 0 and 1, got {confidence}")
    draws = min(30000, 600000 // k) if draws is None else draws
    if draws < _FEWEST:
        raise ValueError(f"draws: must be at least {_FEWEST}, got {draws}")
    chains = bradley_terry_draws.posterior(wins, draws, np.random.default_rng(seed))
    effective = float(min(mcmc.effective_draws(chains).min(), draws))
    if effective < _FEWEST:
        raise ValueError(
            f"draws: {draws} are worth only {effective:.0f} here, and {_FEWEST} are "
            "needed; ask for more"
        )
    b = chains[:, :, 1:].reshape(-1, k)
    rows, columns = np.triu_indices(k, 1)
    blocks = []
    for at in range(0, len(rows), _PAIRS):
        some = slice(at, at + _PAIRS)
        p = scipy.special.expit(b[:, rows[some]] - b[:, columns[some]])
        inside = (p >= equivalence[0]) & (p <= equivalence[1])
        shares = [value.mean(axis=0) for value in (p, p > 0.5, inside)]
        blocks.append([*shares, *_shortest(p, confidence)])
    mean, better, equivalent, low, high = np.concatenate(blocks, axis=1)

    def matrix(value, turn=lambda v: 1 - v, diagonal=0.5):
        return resampling.mirrored(k, value, turn, diagonal=diagonal)

    return BradleyTerryResult(
        algorithms=tuple(map(str, range(k))),
        wins=wins,
        ties=np.zeros((k, k), int),
        strengths=resampling.Estimate(
            b.mean(axis=0), *_shortest(b, confidence), confidence
        ),
        p_win=resampling.Estimate(
            matrix(mean),
            matrix(low, lambda _: 1 - high),
            matrix(high, lambda _: 1 - low),
            confidence,
        ),
        better=matrix(better),
        equivalent=matrix(equivalent, lambda v: v, 1.0),
        effective_draws=effective,
    )


def _shortest(
    x: Float[np.ndarray, "b p"], mass: float
) -> tuple[np.ndarray, np.ndarray]:
    """Gives the shortest interval of every column that holds this mass (HDI)."""
    ordered = np.sort(x.T, axis=1)
    held = math.ceil(mass * len(x)) - 1  # Draws that the interval spans, less one.
    start = np.argmin(ordered[:, held:] - ordered[:, : len(x) - held], axis=1)
    columns = np.arange(len(ordered))
    return ordered[columns, start], ordered[columns, start + held]
