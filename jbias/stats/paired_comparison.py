"""Who beats whom, and how often? The Bayesian Bradley-Terry model over data sets.

Source: Wainer 2023 (JMLR 24), "A Bayesian Bradley-Terry model to compare multiple ML algorithms on
multiple data sets", https://arxiv.org/abs/2208.04935.

    wins_ij ~ Binomial(n_ij, sigma(b_i - b_j)),  b_i ~ Normal(0, s),  s ~ LogNormal(0, 1/2)

It knows who won on a data set and not by how much, and takes the data sets for exchangeable.
"""

import dataclasses
import math

import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Float, Int

from jbias.stats import draws as draws_lib
from jbias.stats import scores as scores_lib
from jbias.stats import ties as ties_lib

_SCALES = 25  # Quadrature nodes over log s, to four deviations either side.
_SPREAD = 0.5  # Deviation of log s.
_DF = 8  # Of the proposals' t; more for many algorithms, whose tails add up.
_FEWEST = 1000  # Effective draws, below which the answer is refused.


@dataclasses.dataclass(frozen=True, eq=False)
class BradleyTerryResult:
    """Posterior of p_win, the chance that the row beats the column on a data set."""

    algorithms: tuple[str, ...]
    wins: Int[np.ndarray, "k k"]  # With ties as they were dealt.
    ties: Int[np.ndarray, "k k"]
    strengths: draws_lib.Estimate  # (k,), b; mean and HDI.
    p_win: draws_lib.Estimate  # (k, k); mean and HDI; diagonal 1/2.
    better: Float[np.ndarray, "k k"]  # P(p_win > 1/2); diagonal 1/2.
    equivalent: Float[np.ndarray, "k k"]  # P(p_win in [0.45, 0.55]); diagonal 1.
    effective_draws: float  # Kish's (sum w)^2 / sum w^2.


def bradley_terry(
    scores,
    *,
    larger_is_better: bool,
    local_rope: float | None = None,
    equivalence: tuple[float, float] = (0.45, 0.55),
    confidence: float = 0.89,
    draws: int = 30000,
    seed: int = 0,
    axis: int = 1,
) -> BradleyTerryResult:
    """Fits the model to the table's wins on its data sets.

    Means that are equal tie, and with `local_rope` those that differ by no more than
    local_rope * sqrt((s_i^2 + s_j^2) / 2), s the deviations over runs (Wainer takes 0.4).
    Half of the ties, rounded up, is a win for either ("spread"). Intervals are the shortest.
    Raises ValueError for missing cells, and for single runs if there is a `local_rope`.
    """
    table = scores_lib.read(scores, axis=axis)
    if local_rope is not None:
        if not local_rope >= 0:
            raise ValueError(f"local_rope: must be 0 or larger, got {local_rope}")
        draws_lib.need_runs(table)
    stds = np.zeros_like(table.means) if local_rope is None else table.stds
    means = table.means if larger_is_better else -table.means
    wins, ties = wins_and_ties(
        means, stds, local_rope or 0.0, ties_lib.rounding(table.values)
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

    Larger means win. Ends of the region are in it, up to `rounding` (see `ties`).
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
    draws: int = 30000,
    seed: int = 0,
) -> BradleyTerryResult:
    """Fits the model to a matrix of wins: the row over the column, on the diagonal 0.

    Quadrature over log s; at each node, draws of a t around the mode of b with the curvature
    there, weighted to the posterior (importance sampling). The log posterior of b is concave.
    Raises ValueError if the weights leave fewer than 1000 effective draws.
    """
    wins = np.asarray(wins)
    k = len(wins)
    if wins.shape != (k, k) or k < 2 or (wins < 0).any() or np.diag(wins).any():
        raise ValueError(
            "wins: must be a square matrix of counts with 0 on the diagonal, got shape "
            f"{wins.shape}"
        )
    b, weights = _posterior(wins, draws, np.random.default_rng(seed))
    effective = float(1 / np.sum(weights**2))
    if effective < _FEWEST:
        raise ValueError(
            f"draws: {draws} are worth only {effective:.0f} here, and {_FEWEST} are "
            "needed; ask for more"
        )
    rows, columns = np.triu_indices(k, 1)
    p = scipy.special.expit(b[:, rows] - b[:, columns])
    low, high = _shortest(p, weights, confidence)
    inside = (p >= equivalence[0]) & (p <= equivalence[1])

    def matrix(value, turn=lambda v: 1 - v, diagonal=0.5):
        return draws_lib.mirrored(k, value, turn, diagonal=diagonal)

    return BradleyTerryResult(
        algorithms=tuple(map(str, range(k))),
        wins=wins,
        ties=np.zeros((k, k), int),
        strengths=draws_lib.Estimate(
            weights @ b, *_shortest(b, weights, confidence), confidence
        ),
        p_win=draws_lib.Estimate(
            matrix(weights @ p),
            matrix(low, lambda _: 1 - high),
            matrix(high, lambda _: 1 - low),
            confidence,
        ),
        better=matrix(weights @ (p > 0.5)),
        equivalent=matrix(weights @ inside, lambda v: v, 1.0),
        effective_draws=effective,
    )


def _posterior(wins, draws: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Gives draws of b (draws, k) and their weights, which sum to 1."""
    k = len(wins)
    logs = _SPREAD * np.linspace(-4, 4, _SCALES)
    peaks = [_mode(wins, math.exp(log_scale)) for log_scale in logs]
    roots = [np.linalg.cholesky(precision) for _, precision in peaks]
    constants = -0.5 * (logs / _SPREAD) ** 2 - k * logs  # Prior of log s; scale of b's.

    def height(node: int, b: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b"]:
        squares = np.sum(b**2, axis=1) * math.exp(-2 * logs[node])
        return _likelihood(wins, b) - squares / 2 + constants[node]

    # Every node gets draws by its mass, first seen in Laplace's approximation.
    mass = np.array(
        [
            height(i, peaks[i][0][None])[0] - np.log(np.diag(roots[i])).sum()
            for i in range(_SCALES)
        ]
    )
    shares = np.exp(mass - mass.max())
    halves = np.ceil(draws / 2 * shares / shares.sum()).astype(int)
    found, log_weights = [], []
    df = max(_DF, 0.4 * k)
    for i, half in enumerate(halves):
        if not half:
            continue  # Its mass is nothing beside that of the others.
        normal = rng.normal(size=(half, k))
        stretch = np.sqrt(df / rng.chisquare(df, size=half))[:, None]
        # Draws in opposite pairs: what is symmetric about the mode has no error.
        normal, stretch = np.concatenate([normal, -normal]), np.tile(stretch, (2, 1))
        turned = scipy.linalg.solve_triangular(roots[i].T, normal.T).T
        b = peaks[i][0] + stretch * turned
        squares = np.sum((stretch * normal) ** 2, axis=1)
        proposal = np.log(np.diag(roots[i])).sum()
        proposal = proposal - (df + k) / 2 * np.log1p(squares / df)
        found.append(b)
        log_weights.append(height(i, b) - proposal - math.log(half))
    logw = np.concatenate(log_weights)
    weights = np.exp(logw - logw.max())
    return np.concatenate(found), weights / weights.sum()


def _likelihood(wins, b: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b"]:
    rows, columns = np.triu_indices(len(wins), 1)
    difference = b[:, rows] - b[:, columns]
    total = wins[rows, columns] + wins[columns, rows]
    return difference @ wins[rows, columns] - np.logaddexp(0, difference) @ total


def _mode(wins, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Gives the mode of b and minus the Hessian there, by Newton's method, damped."""
    total, won = wins + wins.T, wins.sum(axis=1)
    b = np.zeros(len(wins))
    value = -math.inf
    for _ in range(100):
        p = scipy.special.expit(b[:, None] - b)
        curvature = total * p * (1 - p)
        precision = np.diag(curvature.sum(axis=1) + scale**-2) - curvature
        gradient = won - (total * p).sum(axis=1) - b / scale**2
        step = np.linalg.solve(precision, gradient)
        if np.abs(step).max() < 1e-8:
            break
        for _ in range(30):
            new = _likelihood(wins, (b + step)[None])[0]
            new -= np.sum((b + step) ** 2) / (2 * scale**2)
            if new >= value:
                break
            step = step / 2
        b, value = b + step, new
    return b, precision


def _shortest(
    x: Float[np.ndarray, "b p"], weights: Float[np.ndarray, "b"], mass: float
) -> tuple[np.ndarray, np.ndarray]:
    """Gives the shortest interval of every column that holds this mass (HDI)."""
    if not 0 < mass < 1:
        raise ValueError(f"confidence: must lie between 0 and 1, got {mass}")
    order = np.argsort(x, axis=0)
    ordered = np.take_along_axis(x, order, axis=0)
    upto = np.cumsum(weights[order], axis=0)
    low, high = np.empty(x.shape[1]), np.empty(x.shape[1])
    for column in range(x.shape[1]):
        before = upto[:, column] - weights[order[:, column]]
        end = np.searchsorted(upto[:, column], before + mass)
        start = np.flatnonzero(end < len(x))
        width = ordered[end[start], column] - ordered[start, column]
        best = int(np.argmin(width))
        low[column] = ordered[start[best], column]
        high[column] = ordered[end[start[best]], column]
    return low, high
