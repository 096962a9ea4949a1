"""Bayesian Bradley-Terry model: who beats whom over data sets, and how often.

Source: Wainer 2023 (JMLR 24), "A Bayesian Bradley-Terry model to compare multiple ML
algorithms on multiple data sets", https://arxiv.org/abs/2208.04935.

    wins_ij ~ Binomial(n_ij, sigma(b_i - b_j)),  b_i ~ Normal(0, s),  s ~ LogNormal(0, 1/2)

The model knows who won on a data set and not by how much, and takes the data sets as
exchangeable. It is sampled by Hamiltonian Monte Carlo in many chains at once.
"""

import dataclasses
import math

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from jbias.stats import bayes, mcmc, resampling, score_table

_LOG_SCALES = np.linspace(-3, 6, 73)  # Quadrature nodes of log s.
_SPREAD = 0.5  # Deviation of log s.
_HMC_CHAINS = 100
_WARM_UP = 150  # Steps of every chain that are thrown away.


def draw_posterior(wins, draws: int, rng) -> Float[np.ndarray, "c d k+1"]:
    """Gives draws of log s and of b: c chains of Hamiltonian Monte Carlo, d of each.

    Chains run side by side on (log s, z), b = z s^growth up to a constant, in coordinates
    in which covariances are 1: centre + turn @ at. They start at modes of b: in the tail
    of a skewed posterior a chain may never move. Steps vary, for what is too long there.
    Source: Neal 2011, https://arxiv.org/abs/1206.1901.
    """
    k = len(wins)
    total, won = wins + wins.T, wins.sum(axis=1)
    chains = max(2, min(_HMC_CHAINS, draws // 20))
    centre, turn, growth, theta = _laplace(wins, chains, rng)

    def grown(theta):
        """Gives b."""
        return theta[..., 1:] * np.exp(growth * (theta[..., :1] - centre[0]))

    def height(theta) -> Float[np.ndarray, "c"]:
        log_scale, b = theta[:, 0], grown(theta)
        squares = np.sum(b**2, axis=1) * np.exp(-2 * log_scale)
        prior = -0.5 * (log_scale / _SPREAD) ** 2 - (1 - growth) * k * log_scale
        return _likelihood(wins, b) - squares / 2 + prior

    def slope(theta) -> Float[np.ndarray, "c k+1"]:
        log_scale, b = theta[:, :1], grown(theta)
        odds = np.exp(b - b.max(axis=1, keepdims=True))
        games = total / (odds[:, :, None] + odds[:, None, :])
        pull = b * np.exp(-2 * log_scale)
        of_b = won - odds * games.sum(axis=2) - pull
        of_scale = np.sum(b * (pull + growth * of_b), axis=1, keepdims=True)
        of_scale -= (1 - growth) * k + log_scale / _SPREAD**2
        of_z = of_b * np.exp(growth * (log_scale - centre[0]))
        return np.concatenate([of_scale, of_z], axis=1) @ turn

    step, seen, old = 0.5, [], height(theta)
    at, uphill = np.linalg.solve(turn, (theta - centre).T).T, slope(theta)
    for i in range(_WARM_UP + math.ceil(draws / chains)):
        if i == _WARM_UP // 2:
            # What was seen knows more of tails than Laplace's approximation.
            late = np.concatenate(seen[len(seen) // 3 :])
            turn = np.linalg.cholesky(np.cov(late.T))
            at, uphill = np.linalg.solve(turn, (theta - centre).T).T, slope(theta)
        momentum = rng.normal(size=at.shape)
        # About a quarter of a turn, after which a normal has forgotten where it was.
        steps = math.ceil(rng.uniform(0.7, 1.3) * math.pi / 2 / step)
        pace = step * rng.uniform(0.4, 1.2, size=(chains, 1))
        there, force, speed = at, uphill, momentum
        with np.errstate(all="ignore"):  # What runs away is not accepted.
            for _ in range(steps):
                speed = speed + pace / 2 * force
                there = there + pace * speed
                force = slope(centre + there @ turn.T)
                speed = speed + pace / 2 * force
            new = height(centre + there @ turn.T)
            gained = new - old + (momentum**2 - speed**2).sum(axis=1) / 2
            chance = np.nan_to_num(np.exp(np.minimum(gained, 0)))
        taken = rng.random(chains) < chance
        at, uphill = np.where(taken[:, None], (there, force), (at, uphill))
        old = np.where(taken, new, old)
        if i < _WARM_UP:
            step = float(np.clip(step * math.exp((chance.mean() - 0.9) / 2), 0.02, 1))
        theta = centre + at @ turn.T
        seen.append(theta)
    theta = np.stack(seen[_WARM_UP:], axis=1)
    return np.concatenate([theta[:, :, :1], grown(theta)], axis=2)


def _laplace(wins, count: int, rng) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Gives the centre of (log s, z), a root of its covariance, growth, and first points.

    Quadrature over log s; at each node b is taken as normal around its mode.
    """
    k = len(wins)
    logs = _LOG_SCALES
    peaks, b = [], np.zeros(k)
    for log_scale in logs:
        peaks.append(_mode(wins, math.exp(log_scale), b))
        b = peaks[-1][0]
    modes = np.stack([mode for mode, _ in peaks])
    roots = np.linalg.cholesky(np.stack([precision for _, precision in peaks]))
    mass = _likelihood(wins, modes) - np.sum(modes**2, axis=1) * np.exp(-2 * logs) / 2
    mass -= 0.5 * (logs / _SPREAD) ** 2 + k * logs
    diagonals = np.diagonal(roots, axis1=1, axis2=2)
    mass -= np.log(diagonals).sum(axis=1)
    shares = np.exp(mass - mass.max())
    shares /= shares.sum()
    middle = shares @ logs
    deviation = max(math.sqrt(shares @ (logs - middle) ** 2), (logs[1] - logs[0]) / 4)
    at, nodes = int(np.argmax(shares)), rng.choice(len(logs), size=count, p=shares)
    # With log s, the modes of b move and its deviations grow.
    growth = -np.gradient(np.log(diagonals).mean(axis=1), logs)[at]
    shrunk = modes * np.exp(-growth * (logs - logs[at]))[:, None]
    theta = np.column_stack([logs, shrunk])
    turn = np.zeros((k + 1, k + 1))
    turn[:, 0] = deviation * np.gradient(theta, logs, axis=0)[at]
    turn[1:, 1:] = np.linalg.inv(roots[at]).T
    return theta[at], turn, growth, theta[nodes]


def _likelihood(wins, b: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b"]:
    rows, columns = np.triu_indices(len(wins), 1)
    difference = b[:, rows] - b[:, columns]
    total = wins[rows, columns] + wins[columns, rows]
    return difference @ wins[rows, columns] - np.logaddexp(0, difference) @ total


def _mode(wins, scale: float, start) -> tuple[np.ndarray, np.ndarray]:
    """Gives the mode of b and minus the Hessian there, by Newton's method, damped."""
    total, won = wins + wins.T, wins.sum(axis=1)
    b, value, new = start, -math.inf, -math.inf
    precision = np.diag(np.full(len(wins), scale**-2))
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
) -> BradleyTerryResult:
    """Fits the model to the table's wins on its data sets.

    Means that are equal tie, and with `local_rope` those that differ by no more than
    local_rope * sqrt((s_i^2 + s_j^2) / 2), s the deviations over runs (Wainer takes 0.4).
    Half of the ties, rounded up, is a win for either ("spread"). Intervals are the shortest.
    `draws` are 30000 if None, and 600000 / k if there are more than 20 algorithms.
    Raises ValueError for missing cells, and for single runs if there is a `local_rope`.
    """
    table = score_table.read(scores)
    if local_rope is not None:
        bayes.check_rope(local_rope, "local_rope")
        resampling.require_runs(table)
    stds = np.zeros_like(table.means) if local_rope is None else table.stds
    means = table.means if larger_is_better else -table.means
    errors = score_table.mean_errors(table)
    wins, ties = wins_and_ties(means, stds, local_rope or 0.0, errors)
    result = bradley_terry_of_wins(
        wins, equivalence=equivalence, confidence=confidence, draws=draws, seed=seed
    )
    return dataclasses.replace(result, algorithms=table.algorithms, ties=ties)


Cells = Float[np.ndarray, "n k"]


def wins_and_ties(
    means: Cells, stds: Cells, rope: float, errors: Cells
) -> tuple[Int[np.ndarray, "k k"], Int[np.ndarray, "k k"]]:
    """Counts on how many data sets the row wins, ties dealt out, and on how many it ties.

    Larger means win. Ends of the region are in it, up to the larger of the
    `errors` of the two (see `score_table.mean_errors`).
    """
    difference = means[:, :, None] - means[:, None, :]
    variances = stds[:, :, None] ** 2 + stds[:, None, :] ** 2
    rounding = np.maximum(errors[:, :, None], errors[:, None, :])
    tied = np.abs(difference) <= rope * np.sqrt(variances / 2) + rounding
    ties = tied.sum(axis=0)
    np.fill_diagonal(ties, 0)
    return ((difference > 0) & ~tied).sum(axis=0) + (ties + 1) // 2, ties


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
    must = "be a square matrix of counts with 0 on the diagonal"
    score_table.check(wins.dtype.kind in "iufb", "wins", must, f"{wins.dtype} values")
    k = len(wins) if wins.ndim else 0
    square = wins.shape == (k, k) and k > 1
    counts = (wins >= 0) & (wins < math.inf)
    sound = square and counts.all() and not np.diag(wins).any()
    score_table.check(sound, "wins", must, f"shape {wins.shape}")
    within = 0 <= equivalence[0] <= equivalence[1] <= 1
    score_table.check(within, "equivalence", "be a range in [0, 1]", equivalence)
    score_table.check_share("confidence", confidence)
    draws = min(30000, 600000 // k) if draws is None else draws
    score_table.check_count("draws", draws, _FEWEST)
    chains = draw_posterior(wins, draws, np.random.default_rng(seed))
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
        blocks.append([*shares, *_hdi(p, confidence)])
    mean, better, equivalent, low, high = np.concatenate(blocks, axis=1)

    def turn(value):
        return 1 - value

    return BradleyTerryResult(
        algorithms=tuple(map(str, range(k))),
        wins=wins,
        ties=np.zeros((k, k), int),
        strengths=resampling.Estimate(b.mean(axis=0), *_hdi(b, confidence), confidence),
        p_win=resampling.pair_estimate(mean, low, high, confidence, turn, diagonal=0.5),
        better=resampling.pair_matrix(better, turn, diagonal=0.5),
        equivalent=resampling.pair_matrix(equivalent, diagonal=1.0),
        effective_draws=effective,
    )


def _hdi(x: Float[np.ndarray, "b p"], mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Gives the shortest interval of every column that holds this mass."""
    ordered = np.sort(x.T, axis=1)
    held = math.ceil(mass * len(x)) - 1  # Draws that the interval spans, less one.
    start = np.argmin(ordered[:, held:] - ordered[:, : len(x) - held], axis=1)
    columns = np.arange(len(ordered))
    return ordered[columns, start], ordered[columns, start + held]
