"""Bayesian Bradley-Terry model of wins: the probability that an algorithm beats another.

Source: Wainer 2023 (JMLR 24), "A Bayesian Bradley-Terry model to compare multiple ML
algorithms on multiple data sets", https://arxiv.org/abs/2208.04935.

    wins_ij ~ Binomial(n_ij, sigma(b_i - b_j)),  b_i ~ Normal(0, s),  s ~ LogNormal(0, 1/2)

The model uses which algorithm won on a data set, not by how much, and treats data sets as
exchangeable. The posterior is sampled by Hamiltonian Monte Carlo in many parallel chains.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from jbias import errors as caller_errors
from jbias.stats import bayes, bootstrap_intervals, mcmc, score_table

_LOG_SCALES = np.linspace(-3, 6, 73)  # Quadrature nodes of log s.
_LOG_SCALE_DEVIATION = 0.5  # Prior standard deviation of log s.
_HMC_CHAINS = 100
_WARM_UP = 150  # First steps of every chain, which are dropped.


def draw_posterior(
    wins: Int[np.ndarray, "k k"], draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "c d k+1"]:
    """Return posterior draws of (log s, b_1, ..., b_k): c chains with d draws each.

    wins: number of wins of the row over the column. draws: total number; c d is this number or a
    little more, and c is 100, or draws / 20 if fewer, and at least 2.
    Hamiltonian Monte Carlo. Chains sample theta = (log s, z), b = z s^growth up to a constant,
    in coordinates of unit covariance: theta = centre + root @ position. Chains start at modes of
    b, as a chain may never leave the tail of a skewed posterior. Step sizes vary, because a fixed
    size may be too long in such a tail. Source: Neal 2011, https://arxiv.org/abs/1206.1901.
    """
    k = len(wins)
    total, won = wins + wins.T, wins.sum(axis=1)
    chains = max(2, min(_HMC_CHAINS, draws // 20))
    approximation = _approximate_posterior(wins, chains, rng)
    centre, root = approximation.centre, approximation.root
    growth, theta = approximation.growth, approximation.starts

    def strengths(theta):
        """Return the strengths b, (..., k), of points theta = (log s, z), (..., k+1)."""
        return theta[..., 1:] * np.exp(growth * (theta[..., :1] - centre[0]))

    def log_density(theta) -> Float[np.ndarray, "c"]:
        """Return the log density of theta, (c, k+1), for each chain, up to a constant.

        theta: (log s, z) of each chain. The wins are a variable of the enclosing call.
        """
        log_scale, b = theta[:, 0], strengths(theta)
        squares = np.sum(b**2, axis=1) * np.exp(-2 * log_scale)
        prior = (
            -0.5 * (log_scale / _LOG_SCALE_DEVIATION) ** 2
            - (1 - growth) * k * log_scale
        )
        return _log_likelihood(wins, b) - squares / 2 + prior

    def gradient(theta) -> Float[np.ndarray, "c k+1"]:
        """Return the gradient of the log density at theta with respect to the position.

        theta: (log s, z) of each chain, (c, k+1); theta = centre + root @ position.
        """
        log_scale, b = theta[:, :1], strengths(theta)
        odds = np.exp(b - b.max(axis=1, keepdims=True))
        games = total / (odds[:, :, None] + odds[:, None, :])
        prior_pull = b * np.exp(-2 * log_scale)
        of_b = won - odds * games.sum(axis=2) - prior_pull
        of_scale = np.sum(b * (prior_pull + growth * of_b), axis=1, keepdims=True)
        of_scale -= (1 - growth) * k + log_scale / _LOG_SCALE_DEVIATION**2
        of_z = of_b * np.exp(growth * (log_scale - centre[0]))
        return np.concatenate([of_scale, of_z], axis=1) @ root

    step, samples, density = 0.5, [], log_density(theta)
    position, slope = np.linalg.solve(root, (theta - centre).T).T, gradient(theta)
    for i in range(_WARM_UP + math.ceil(draws / chains)):
        if i == _WARM_UP // 2:
            # Samples describe the tails better than Laplace's approximation.
            recent = np.concatenate(samples[len(samples) // 3 :])
            root = np.linalg.cholesky(np.cov(recent.T))
            position = np.linalg.solve(root, (theta - centre).T).T
            slope = gradient(theta)
        momentum = rng.normal(size=position.shape)
        # About a quarter of an orbit, after which a normal is independent of its start.
        num_steps = math.ceil(rng.uniform(0.7, 1.3) * math.pi / 2 / step)
        step_sizes = step * rng.uniform(0.4, 1.2, size=(chains, 1))
        new_position, new_slope, new_momentum = position, slope, momentum
        with np.errstate(all="ignore"):  # Diverging trajectories are rejected.
            for _ in range(num_steps):
                new_momentum = new_momentum + step_sizes / 2 * new_slope
                new_position = new_position + step_sizes * new_momentum
                new_slope = gradient(centre + new_position @ root.T)
                new_momentum = new_momentum + step_sizes / 2 * new_slope
            new_density = log_density(centre + new_position @ root.T)
            kinetic = (momentum**2 - new_momentum**2).sum(axis=1) / 2
            log_ratio = new_density - density + kinetic
            acceptance = np.nan_to_num(np.exp(np.minimum(log_ratio, 0)))
        is_accepted = rng.random(chains) < acceptance
        position = np.where(is_accepted[:, None], new_position, position)
        slope = np.where(is_accepted[:, None], new_slope, slope)
        density = np.where(is_accepted, new_density, density)
        if i < _WARM_UP:
            factor = math.exp((acceptance.mean() - 0.9) / 2)
            step = float(np.clip(step * factor, 0.02, 1))
        theta = centre + position @ root.T
        samples.append(theta)
    theta = np.stack(samples[_WARM_UP:], axis=1)
    return np.concatenate([theta[:, :, :1], strengths(theta)], axis=2)


class _Approximation(NamedTuple):
    """Laplace's approximation of the posterior of theta = (log s, z)."""

    centre: Float[np.ndarray, "k+1"]
    root: Float[np.ndarray, "k+1 k+1"]  # root @ root.T is the covariance.
    growth: float  # Exponent of s by which the deviations of b grow.
    starts: Float[np.ndarray, "c k+1"]  # First point of each chain, a mode of b.


def _approximate_posterior(
    wins: Int[np.ndarray, "k k"], count: int, rng: np.random.Generator
) -> _Approximation:
    """Return Laplace's approximation of the posterior, with `count` starting points of chains.

    Quadrature over log s; at each node, b is taken as normal around its mode.
    """
    k = len(wins)
    logs = _LOG_SCALES
    peaks, b = [], np.zeros(k)
    for log_scale in logs:
        peaks.append(_mode(wins, math.exp(log_scale), b))
        b = peaks[-1][0]
    modes = np.stack([mode for mode, _ in peaks])
    roots = np.linalg.cholesky(np.stack([precision for _, precision in peaks]))
    log_mass = _log_likelihood(wins, modes)
    log_mass -= np.sum(modes**2, axis=1) * np.exp(-2 * logs) / 2
    log_mass -= 0.5 * (logs / _LOG_SCALE_DEVIATION) ** 2 + k * logs
    diagonals = np.diagonal(roots, axis1=1, axis2=2)
    log_mass -= np.log(diagonals).sum(axis=1)
    shares = np.exp(log_mass - log_mass.max())
    shares /= shares.sum()
    middle = shares @ logs
    deviation = max(math.sqrt(shares @ (logs - middle) ** 2), (logs[1] - logs[0]) / 4)
    peak, nodes = int(np.argmax(shares)), rng.choice(len(logs), size=count, p=shares)
    # With log s, the modes of b move and the deviations of b grow.
    growth = -np.gradient(np.log(diagonals).mean(axis=1), logs)[peak]
    z = modes * np.exp(-growth * (logs - logs[peak]))[:, None]
    theta = np.column_stack([logs, z])
    root = np.zeros((k + 1, k + 1))
    root[:, 0] = deviation * np.gradient(theta, logs, axis=0)[peak]
    root[1:, 1:] = np.linalg.inv(roots[peak]).T
    return _Approximation(
        centre=theta[peak], root=root, growth=growth, starts=theta[nodes]
    )


def _log_likelihood(
    wins: Int[np.ndarray, "k k"], b: Float[np.ndarray, "b k"]
) -> Float[np.ndarray, "b"]:
    """Return the log likelihood of the wins for each vector of strengths b, up to a constant."""
    rows, columns = np.triu_indices(len(wins), 1)
    difference = b[:, rows] - b[:, columns]
    total = wins[rows, columns] + wins[columns, rows]
    return difference @ wins[rows, columns] - np.logaddexp(0, difference) @ total


def _mode(
    wins: Int[np.ndarray, "k k"], scale: float, start: Float[np.ndarray, "k"]
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k k"]]:
    """Return the mode of b, and minus the Hessian of the log density at the mode.

    By damped Newton steps. scale: s, the standard deviation of the prior of b. start: first
    guess of b.
    """
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
            new = _log_likelihood(wins, (b + step)[None])[0]
            new -= np.sum((b + step) ** 2) / (2 * scale**2)
            if new >= value:
                break
            step = step / 2
        b, value = b + step, new
    return b, precision


_PAIRS_AT_ONCE = 64  # Pairs whose draws are in memory together.
_MIN_DRAWS = 1000  # Fewer effective draws are refused.


@dataclasses.dataclass(frozen=True, eq=False)
class BradleyTerryResult:
    """Posterior of p_win, the probability that the row beats the column on a data set.

    Intervals are the shortest ones with the given mass (HDI).
    """

    algorithms: tuple[str, ...]
    wins: Int[np.ndarray, "k k"]  # Half of the ties, rounded up, included.
    ties: Int[np.ndarray, "k k"]
    strengths: bootstrap_intervals.Estimate  # (k,), b; mean and HDI.
    p_win: bootstrap_intervals.Estimate  # (k, k); mean and HDI; diagonal 1/2.
    better: Float[np.ndarray, "k k"]  # P(p_win > 1/2); diagonal 1/2.
    equivalent: Float[np.ndarray, "k k"]  # P(p_win in `equivalence`); diagonal 1.
    effective_draws: float  # Smallest of b and log s (see `mcmc`); at most the draws.


def bradley_terry(
    scores: score_table.Table,
    *,
    larger_is_better: bool,
    local_rope: float | None = None,
    equivalence: tuple[float, float] = (0.45, 0.55),
    confidence: float = 0.89,
    draws: int | None = None,
    seed: int = 0,
) -> BradleyTerryResult:
    """Return the Bradley-Terry model of a table of scores: one win or tie per pair and data set.

    scores: see `score_table.read`; several runs are averaged first.
    local_rope: means tie if they differ by no more than
    local_rope * sqrt((s_i^2 + s_j^2) / 2), s the standard deviations over runs (Wainer takes
    0.4); None: only equal means tie. Half of the ties, rounded up, counts as wins of each of the
    two algorithms (Wainer's "spread").
    equivalence: range of p_win that counts as equivalent.
    confidence: posterior mass of the intervals, a fraction.
    draws: number of posterior draws; None: 30000, or 600000 / k with more than 20 algorithms.
    Raise ValueError for missing cells, for single runs or a negative number with `local_rope`,
    and as `bradley_terry_of_wins` does.

    On BiasBed's strict data sets DeepAugment (CAE) beats ERM, a pair in which Nemenyi's test
    finds no difference:

        >>> trained_on = ("StylizedImageNet", "DeepAug-CAE", "DeepAug-EDSR")
        >>> strict = runs.only(datasets=[d for d in runs.datasets if d not in trained_on])
        >>> erm, cae = map(runs.algorithms.index, ["ERM", "DeepAugERM-CAE"])
        >>> wins = stats.bradley_terry(strict, larger_is_better=True)
        >>> f"{wins.p_win.value[cae, erm]:.2f} {wins.better[cae, erm]:.2f}"
        '0.86 1.00'
        >>> f"{stats.nemenyi(strict, larger_is_better=True).pvalues[cae, erm]:.1f}"
        '0.2'
    """
    table = score_table.read(scores)
    if local_rope is not None:
        bayes.check_rope(local_rope, "local_rope")
        bootstrap_intervals.require_runs(table)
    stds = np.zeros_like(table.means) if local_rope is None else table.stds
    means = table.means if larger_is_better else -table.means
    errors = score_table.mean_errors(table)
    wins, ties = count_wins_and_ties(means, stds, rope=local_rope or 0.0, errors=errors)
    result = bradley_terry_of_wins(
        wins, equivalence=equivalence, confidence=confidence, draws=draws, seed=seed
    )
    return dataclasses.replace(result, algorithms=table.algorithms, ties=ties)


Cells = Float[np.ndarray, "n k"]


def count_wins_and_ties(
    means: Cells, stds: Cells, *, rope: float, errors: Cells
) -> tuple[Int[np.ndarray, "k k"], Int[np.ndarray, "k k"]]:
    """Return the numbers of data sets on which the row beats the column, and on which they tie.

    Wins include half of the ties, rounded up. means, stds: over runs. rope: `local_rope` of
    `bradley_terry`. errors: rounding error of each mean.
    Larger means win. Differences of at most rope * sqrt((s_i^2 + s_j^2) / 2), plus the larger of
    the two rounding errors (see `score_table.mean_errors`), are ties.
    """
    difference = means[:, :, None] - means[:, None, :]
    variances = stds[:, :, None] ** 2 + stds[:, None, :] ** 2
    rounding = np.maximum(errors[:, :, None], errors[:, None, :])
    is_tie = np.abs(difference) <= rope * np.sqrt(variances / 2) + rounding
    ties = is_tie.sum(axis=0)
    np.fill_diagonal(ties, 0)
    return ((difference > 0) & ~is_tie).sum(axis=0) + (ties + 1) // 2, ties


def bradley_terry_of_wins(
    wins: Int[np.ndarray, "k k"],
    *,
    equivalence: tuple[float, float] = (0.45, 0.55),
    confidence: float = 0.89,
    draws: int | None = None,
    seed: int = 0,
) -> BradleyTerryResult:
    """Return the Bradley-Terry model of a matrix of wins of the row over the column.

    wins: number of wins, with 0 on the diagonal. Other arguments: see `bradley_terry`.
    In the result, algorithms are named "0", "1", ..., and there are no ties.
    Hamiltonian Monte Carlo in 100 chains, or draws / 20 if fewer, started from Laplace's
    approximation.
    Raise ValueError for wins that are not such a matrix, an `equivalence` that is not a range in
    [0, 1], a confidence outside (0, 1), fewer than 1000 draws, and draws that amount to fewer than
    1000 independent draws.
    """
    wins = np.asarray(wins)
    must = "be a square matrix of counts with 0 on the diagonal"
    caller_errors.check(
        wins.dtype.kind in "iufb",
        "wins",
        must,
        caller_errors.Words(f"{wins.dtype} values"),
    )
    k = len(wins) if wins.ndim else 0
    is_square = wins.shape == (k, k) and k > 1
    are_counts = (wins >= 0) & (wins < math.inf)
    is_valid = is_square and are_counts.all() and not np.diag(wins).any()
    caller_errors.check(
        is_valid, "wins", must, caller_errors.Words(f"shape {wins.shape}")
    )
    caller_errors.check(
        0 <= equivalence[0] <= equivalence[1] <= 1,
        "equivalence",
        "be a range in [0, 1]",
        equivalence,
    )
    caller_errors.check_share("confidence", confidence)
    draws = min(30000, 600000 // k) if draws is None else draws
    caller_errors.check_at_least("draws", draws, _MIN_DRAWS)
    chains = draw_posterior(wins, draws, np.random.default_rng(seed))
    effective = float(min(mcmc.effective_draws(chains).min(), draws))
    if effective < _MIN_DRAWS:
        raise ValueError(
            f"draws: {draws} amount to only {effective:.0f} independent ones here, and "
            f"{_MIN_DRAWS} are needed; give more draws"
        )
    b = chains[:, :, 1:].reshape(-1, k)
    rows, columns = np.triu_indices(k, 1)
    blocks = []
    for start in range(0, len(rows), _PAIRS_AT_ONCE):
        block = slice(start, start + _PAIRS_AT_ONCE)
        p = scipy.special.expit(b[:, rows[block]] - b[:, columns[block]])
        is_equivalent = (p >= equivalence[0]) & (p <= equivalence[1])
        shares = [value.mean(axis=0) for value in (p, p > 0.5, is_equivalent)]
        blocks.append([*shares, *_hdi(p, confidence)])
    mean, better, equivalent, low, high = np.concatenate(blocks, axis=1)
    b_low, b_high = _hdi(b, confidence)

    def turn(value):
        """Return 1 - value: the probability that the column beats the row."""
        return 1 - value

    return BradleyTerryResult(
        algorithms=tuple(map(str, range(k))),
        wins=wins,
        ties=np.zeros((k, k), int),
        strengths=bootstrap_intervals.Estimate(
            value=b.mean(axis=0), low=b_low, high=b_high, confidence=confidence
        ),
        p_win=bootstrap_intervals.pair_estimate(
            bootstrap_intervals.Estimate(mean, low, high, confidence),
            turn,
            diagonal=0.5,
        ),
        better=bootstrap_intervals.pair_matrix(better, turn, diagonal=0.5),
        equivalent=bootstrap_intervals.pair_matrix(equivalent, diagonal=1.0),
        effective_draws=effective,
    )


def _hdi(x: Float[np.ndarray, "b p"], mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the low and high ends of the shortest interval that contains `mass` of each column.

    x: posterior draws. mass: a fraction.
    """
    ordered = np.sort(x.T, axis=1)
    span = math.ceil(mass * len(x)) - 1  # Draws in the interval, less one.
    start = np.argmin(ordered[:, span:] - ordered[:, : len(x) - span], axis=1)
    columns = np.arange(len(ordered))
    return ordered[columns, start], ordered[columns, start + span]
