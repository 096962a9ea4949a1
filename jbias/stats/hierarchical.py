"""Joint models of runs and data sets: the hierarchical t-test and a linear mixed model.

`hierarchical_t`: Corani, Benavoli, Demsar, Mangili and Zaffalon 2017,
https://doi.org/10.1007/s10994-017-5641-9. For a pair of algorithms, on data set i:

    differences of runs ~ Normal(d_i, s_i^2)          d_i ~ t(nu, d_0, s_0)

d_0 and s_0 have flat priors; nu - 1 ~ Gamma(a, b), a ~ U(1, 2), b ~ U(0.01, 0.1). Differences on
noisy data sets are shrunk towards d_0. Deviations: runs need not be paired (a mean difference then
has the variance s_x^2 / r_x + s_y^2 / r_y, and the prior of s is 1 / s; for paired runs the prior
is flat, as in the paper), and the very wide bounds of d_0, s_0 and s_i are omitted.

The Gibbs sampler treats many pairs in parallel. t(nu) is represented as a normal whose
precision is drawn from Gamma(nu/2, nu/2). A sweep draws: s_0 with d_0 and all d_i integrated
out (Metropolis on log s_0); d_0 with the d_i integrated out; the d_i; s_0 again, and nu on a
grid, with the precisions integrated out; the precisions; the variances of the runs. Blocks
after van Dyk and Park 2008, https://doi.org/10.1198/016214508000000409: a quantity that was
integrated out is redrawn before it is used again.

`mixed_model`, for all algorithms together:

    score = algorithm + (1 | data set) + (1 | data set : algorithm) + (1 | algorithm : run)

A run is one model; the last term is the part of its quality that is common to all data sets.
Variance components by the method of moments, which equals REML in a balanced table without
negative components.
Sources: Searle, Casella and McCulloch 1992, chapter 4; Clark 1973 (the quasi F).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from jbias import errors as caller_errors
from jbias.stats import bayes, bootstrap_intervals, mcmc, score_table

CHAINS = 4
_WARMUP = 200
_PROPOSAL_DEVIATIONS = (2.0, 1.0)  # Of the two Metropolis steps of log s_0 in a sweep.
_GRID = np.geomspace(0.05, 1500, 32)  # Values of nu - 1.


@dataclasses.dataclass(frozen=True, eq=False)
class RunStatistics:
    """Sufficient statistics of the runs of one side of p pairs, on each of n data sets."""

    mean: Float[np.ndarray, "p n"]
    squares: Float[np.ndarray, "p n"]  # Squared deviations from the mean; never 0.
    per_run: Float[np.ndarray, "p 1"]  # Variance of the mean / variance of a run.
    shape: Float[
        np.ndarray, "p 1"
    ]  # Parameter of the inverse gamma of a run's variance.

    @classmethod
    def from_runs(
        cls,
        values: Float[np.ndarray, "n p r"],
        *,
        per_run: Float[np.ndarray, "p"],
        shape: float | Float[np.ndarray, "p"],
    ) -> "RunStatistics":
        """Return the statistics of runs.

        values: scores on n data sets of p pairs, NaN where an algorithm has fewer runs.
        per_run, shape: fields of the result.
        Squares that are almost 0 are raised to a small positive number.
        """
        values = np.moveaxis(values, 1, 0)
        mean = np.nanmean(values, axis=2)
        squares = np.nansum((values - mean[:, :, None]) ** 2, axis=2)
        # Equal runs are given a small spread: a thousandth of the usual one of other data
        # sets, or a billionth of the scores.
        positive = np.where(squares > 0, squares, math.nan)
        has_spread = np.isfinite(positive).any(axis=1)
        usual = np.zeros(len(squares))
        usual[has_spread] = np.nanmedian(positive[has_spread], axis=1)
        sizes = np.nanmax(np.abs(values), axis=2)
        smallest = (1e-9 * np.where(sizes > 0, sizes, 1.0)) ** 2
        floor = 1e-6 * usual[:, None] + smallest
        p = len(mean)
        return cls(
            mean=mean,
            squares=np.maximum(squares, floor),
            per_run=np.broadcast_to(per_run, p)[:, None],
            shape=np.broadcast_to(shape, p)[:, None],
        )

    def select(self, pairs: np.ndarray) -> "RunStatistics":
        """Return the statistics of these pairs only; `pairs` are indices."""
        return RunStatistics(
            mean=self.mean[pairs],
            squares=self.squares[pairs],
            per_run=self.per_run[pairs],
            shape=self.shape[pairs],
        )

    def draw_variances(
        self, rng: np.random.Generator, error: Float[np.ndarray, "c p n"]
    ) -> Float[np.ndarray, "c p n"]:
        """Return random variances of the means, given the error of each mean.

        error: mean minus true value, for c chains.
        """
        rate = (self.squares + error**2 / self.per_run) / 2
        return self.per_run * rate / rng.gamma(self.shape, size=error.shape)


class PosteriorDraws(NamedTuple):
    """Draws of c chains for p pairs of algorithms, d draws each."""

    d0: Float[np.ndarray, "c d p"]  # Mean difference over data sets.
    s0: Float[np.ndarray, "c d p"]  # Scale of the differences between data sets.
    nu: Float[np.ndarray, "c d p"]  # Degrees of freedom.
    d: Float[
        np.ndarray, "p n"
    ]  # Mean over all draws of each data set's difference d_i.


def sample_posterior(
    x: RunStatistics, y: RunStatistics | None, *, draws: int, seed: int
) -> PosteriorDraws:
    """Return draws from the posterior of the differences x - y, from `CHAINS` chains.

    x, y: statistics of the two sides of each pair; y: None if x has differences.
    draws: number of draws of each chain, after the warm-up.
    """
    rng = np.random.default_rng(seed)
    p, n = x.mean.shape
    size = (CHAINS, p, n)
    m = x.mean if y is None else x.mean - y.mean
    vx = x.draw_variances(rng, np.zeros(size))
    vy = np.zeros(size) if y is None else y.draw_variances(rng, np.zeros(size))
    # Chains begin far apart: log s_0 at a tenth to ten times the observed spread.
    start = np.std(m, axis=1) + np.sqrt(vx + vy).mean(axis=2)
    s0 = start * np.geomspace(0.1, 10, CHAINS)[:, None]
    precision, nu = np.ones(size), None
    d0_draws, s0_draws, nu_draws = np.empty((3, CHAINS, draws, p))
    total = np.zeros((p, n))
    for step in range(_WARMUP + draws):
        v = vx + vy
        for deviation in _PROPOSAL_DEVIATIONS:
            s0 = _step_s0_integrated(
                rng, s0, deviation=deviation, m=m, v=v, precision=precision
            )
        w = s0[:, :, None] ** 2 / precision
        d0_mean, d0_variance, _ = _integrate_d0(m, v + w)
        d0 = rng.normal(d0_mean, np.sqrt(d0_variance))
        d = (m * w + d0[:, :, None] * v) / (v + w)
        d = rng.normal(d, np.sqrt(v * w / (v + w)))
        squares = (d - d0[:, :, None]) ** 2
        if nu is not None:
            s0 = _step_s0_given_d(rng, s0, squares=squares, nu=nu)
        z2 = squares / s0[:, :, None] ** 2
        nu = _draw_degrees(rng, z2)
        half = (nu[:, :, None] + 1) / 2
        precision = 2 * rng.gamma(half, size=z2.shape) / (nu[:, :, None] + z2)
        if y is None:
            vx = x.draw_variances(rng, m - d)
        else:  # Given the level of y (flat prior), x and y are independent.
            level = ((x.mean - d) * vy + y.mean * vx) / v
            level = rng.normal(level, np.sqrt(vx * vy / v))
            vx = x.draw_variances(rng, x.mean - d - level)
            vy = y.draw_variances(rng, y.mean - level)
        if step >= _WARMUP:
            d0_draws[:, step - _WARMUP] = d0
            s0_draws[:, step - _WARMUP] = s0
            nu_draws[:, step - _WARMUP] = nu
            total += d.mean(axis=0)
    return PosteriorDraws(d0=d0_draws, s0=s0_draws, nu=nu_draws, d=total / draws)


def _integrate_d0(
    m: Float[np.ndarray, "p n"], variance: Float[np.ndarray, "c p n"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean and variance of d_0 and the log density of m, with all d_i integrated out.

    m: mean differences. variance: variance of m around d_0. The results have the shape (c, p).
    """
    weight = 1 / variance
    total = weight.sum(axis=2)
    mean = (weight * m).sum(axis=2) / total
    squares = (weight * (m - mean[:, :, None]) ** 2).sum(axis=2)
    log = 0.5 * (np.log(weight).sum(axis=2) - squares - np.log(total))
    return mean, 1 / total, log


def _step_s0_integrated(
    rng: np.random.Generator,
    s0: Float[np.ndarray, "c p"],
    *,
    deviation: float,
    m: Float[np.ndarray, "p n"],
    v: Float[np.ndarray, "c p n"],
    precision: Float[np.ndarray, "c p n"],
) -> Float[np.ndarray, "c p"]:
    """Return s_0 after a Metropolis step on log s_0, with d_0 and all d_i integrated out.

    deviation: standard deviation of the proposal. m, v: mean differences and their variances.
    precision: the precision of each data set in the normal representation of t(nu).
    The flat prior of s_0 has the density exp(log s_0) on the scale of log s_0.
    """

    def log_density(s):
        """Return the log density of log s_0, up to a constant, for s_0 = s.

        s and the result: (c, p), for each chain and pair. Other values: see the enclosing call.
        """
        return _integrate_d0(m, v + s[:, :, None] ** 2 / precision)[2] + np.log(s)

    return _metropolis_step(rng, s0, deviation=deviation, log_density=log_density)


def _step_s0_given_d(
    rng: np.random.Generator,
    s0: Float[np.ndarray, "c p"],
    *,
    squares: Float[np.ndarray, "c p n"],
    nu: Float[np.ndarray, "c p"],
) -> Float[np.ndarray, "c p"]:
    """Return s_0 after a Metropolis step on log s_0, with the precisions integrated out.

    squares: (d_i - d_0)^2. nu: degrees of freedom of the t distribution.
    """

    def log_density(s):
        """Return the log density of log s_0, up to a constant, for s_0 = s.

        s and the result: (c, p), for each chain and pair. Other values: see the enclosing call.
        """
        terms = np.log1p(squares / (nu * s**2)[:, :, None])
        return -(nu + 1) / 2 * terms.sum(axis=2) - (squares.shape[2] - 1) * np.log(s)

    return _metropolis_step(
        rng, s0, deviation=_PROPOSAL_DEVIATIONS[-1], log_density=log_density
    )


def _metropolis_step(
    rng: np.random.Generator,
    s0: Float[np.ndarray, "c p"],
    *,
    deviation: float,
    log_density: Callable[[np.ndarray], np.ndarray],
) -> Float[np.ndarray, "c p"]:
    """Return s_0 after a Metropolis step: a normal proposal of log s_0, accepted or rejected.

    deviation: standard deviation of the proposal. log_density: s_0 -> log density of log s_0.
    """
    proposed = s0 * np.exp(deviation * rng.normal(size=s0.shape))
    gain = log_density(proposed) - log_density(s0)
    return np.where(np.log(rng.random(s0.shape)) < gain, proposed, s0)


def _draw_degrees(
    rng: np.random.Generator, z2: Float[np.ndarray, "c p n"]
) -> Float[np.ndarray, "c p"]:
    """Return random degrees of freedom nu from the grid, given data sets' differences.

    z2: squares of the standardised differences, ((d_i - d_0) / s_0)^2.
    """
    nu = 1 + _GRID
    n = z2.shape[2]
    constant = scipy.special.gammaln((nu + 1) / 2) - scipy.special.gammaln(nu / 2)
    log = n * (constant - 0.5 * np.log(nu)) + _LOG_PRIOR
    log = log - (nu + 1) / 2 * np.log1p(z2[..., None] / nu).sum(axis=2)
    cumulative = np.cumsum(np.exp(log - log.max(axis=2, keepdims=True)), axis=2)
    at = rng.random(cumulative.shape[:2]) * cumulative[:, :, -1]
    return nu[np.sum(cumulative < at[:, :, None], axis=2)]


def _log_prior() -> Float[np.ndarray, "g"]:
    """Return the log prior of nu - 1 at each point of the grid: Gamma(a, b), averaged over a, b."""
    a = 1 + (np.arange(40) + 0.5) / 40
    b = 0.01 + 0.09 * (np.arange(40) + 0.5) / 40
    density = scipy.stats.gamma.pdf(_GRID[:, None, None], a[:, None], scale=1 / b)
    return np.log(density.mean(axis=(1, 2)) * _GRID)  # Evenly spaced in the logarithm.


_LOG_PRIOR = _log_prior()

_MAX_RHAT = 1.02  # Chains with a larger R-hat have not converged.
_MIN_EFFECTIVE_DRAWS = 400
_MAX_DOUBLINGS = 3  # Of the draws, for pairs that have not converged.


@dataclasses.dataclass(frozen=True, eq=False)
class HierarchicalResult:
    """Posteriors of every ordered pair (row minus column); positive where the row is better."""

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    better: Float[
        np.ndarray, "k k"
    ]  # P(row better by more than the rope, new data set).
    rope: Float[np.ndarray, "k k"]  # P(difference inside the rope); diagonal 1.
    positive: Float[np.ndarray, "k k"]  # P(d_0 > 0); diagonal 1/2.
    difference: (
        bootstrap_intervals.Estimate
    )  # (k, k), d_0: mean and equal-tailed interval.
    between: Float[np.ndarray, "k k"]  # Median of s_0.
    by_dataset: Float[np.ndarray, "n k k"]  # Means of d_i.
    rhat: Float[np.ndarray, "k k"]  # Largest of d_0, log s_0 and log nu; diagonal 1.
    effective_draws: Float[np.ndarray, "k k"]  # Smallest, as for rhat; diagonal inf.


def hierarchical_t(
    scores: score_table.TableOfRuns,
    *,
    rope: float,
    larger_is_better: bool,
    paired: bool = False,
    rho: float = 0.0,
    confidence: float = 0.95,
    draws: int = 600,
    seed: int = 0,
) -> HierarchicalResult:
    """Return the posteriors of all pairs of algorithms by the hierarchical t-test over data sets.

    Gibbs sampling, four chains of `draws` for each pair; draws are doubled up to three times
    for pairs whose chains have not converged. As in baycomp, each draw of (d_0, s_0, nu) gives
    the probabilities that the difference on a new data set is below, in and above the rope.
    `better` is the share of draws in which the difference is most probably above the rope, and
    `rope` the share in which the difference is most probably in the rope. With rope = 0, only below
    and above are compared.
    scores: see `score_table.read`; with several runs.
    rope: half the width of the region of practical equivalence, in the unit of the scores.
    paired, rho: see `bayes.correlated_t`. confidence: level of the intervals, such as 0.95.
    Unlike `mixed_model`, the model has no effect of a run that is common to all data sets.
    Raise ValueError where R-hat stays above 1.02 or effective draws below 400. Raise ValueError
    also for single runs (paired: fewer than 3), fewer than 3 data sets, missing cells, fewer than
    100 draws, a confidence outside (0, 1), and a rope or rho that `correlated_t` refuses.
    """
    bayes.check_rope(rope)
    caller_errors.check_share("confidence", confidence)
    table = score_table.read(scores)
    bootstrap_intervals.require_runs(table, 3 if paired else 2)
    bayes.check_pairing(table, paired, rho)
    n, k = table.means.shape
    caller_errors.check(n >= 3, "scores", "have at least 3 data sets", n)
    caller_errors.check(draws >= 100, "draws", "be at least 100 a chain", draws)
    x, y = _run_statistics(table, 1 if larger_is_better else -1, paired=paired, rho=rho)
    unconverged = np.arange(len(x.mean))
    summary: dict[str, np.ndarray] = {}
    for doublings in range(_MAX_DOUBLINGS + 1):
        chains = sample_posterior(
            x.select(unconverged),
            y and y.select(unconverged),
            draws=draws * 2**doublings,
            seed=seed,
        )
        new = _summarise(chains, rope=rope, confidence=confidence)
        for name, values in new.items():
            summary.setdefault(name, np.empty((len(x.mean), *values.shape[1:])))
            summary[name][unconverged] = values
        unconverged = np.flatnonzero(
            (summary["rhat"] > _MAX_RHAT)
            | (summary["effective"] < _MIN_EFFECTIVE_DRAWS)
        )
        if not len(unconverged):
            break
    else:
        rows, columns = np.triu_indices(k, 1)
        pair = unconverged[0]
        raise ValueError(
            f"hierarchical_t: chains must agree, got R-hat {summary['rhat'][pair]:.3f} "
            f"and {summary['effective'][pair]:.0f} effective draws for "
            f"{table.algorithms[rows[pair]]} and {table.algorithms[columns[pair]]}; give "
            "more draws, runs or data sets"
        )

    matrix = bootstrap_intervals.pair_matrix
    better = matrix(summary["right"], lambda _: summary["left"])
    difference = bootstrap_intervals.Estimate(
        value=summary["d0"],
        low=summary["low"],
        high=summary["high"],
        confidence=confidence,
    )
    return HierarchicalResult(
        datasets=table.datasets,
        algorithms=table.algorithms,
        better=better,
        rope=np.clip(1 - better - better.T, 0, 1),
        positive=matrix(summary["positive"], lambda v: 1 - v, diagonal=0.5),
        difference=bootstrap_intervals.pair_estimate(difference, np.negative),
        between=matrix(summary["s0"]),
        by_dataset=matrix(summary["d"], np.negative),
        rhat=matrix(summary["rhat"], diagonal=1.0),
        effective_draws=matrix(summary["effective"], diagonal=np.inf),
    )


def _run_statistics(
    table: score_table.Scores, sign: int, *, paired: bool, rho: float
) -> tuple[RunStatistics, RunStatistics | None]:
    """Return the statistics of the first and second algorithm of every pair i < j.

    If paired, return the statistics of the differences of runs, and None. rho: correlation of
    paired runs. sign: -1 where smaller scores are better, else 1.
    """
    rows, columns = np.triu_indices(len(table.algorithms), 1)
    if paired:
        values = sign * (table.values[:, rows] - table.values[:, columns])
        r = values.shape[2]
        per_run = np.full(len(rows), 1 / r + rho / (1 - rho))
        differences = RunStatistics.from_runs(
            values, per_run=per_run, shape=(r - 1) / 2
        )
        return differences, None
    counts = table.counts
    first, second = (
        RunStatistics.from_runs(
            sign * table.values[:, side],
            per_run=1 / counts[side],
            shape=counts[side] / 2,
        )
        for side in (rows, columns)
    )
    return first, second


def _summarise(
    chains: PosteriorDraws, *, rope: float, confidence: float
) -> dict[str, np.ndarray]:
    """Return summaries of the chains by name, each an array with pairs on axis 0.

    right, left: share of draws in which the difference is most probably above, or below, the
    rope. positive: share with d_0 > 0. d0: mean; low, high: its interval. s0: median. d: means
    of d_i, (p, n). rhat, effective: largest R-hat and smallest effective number of draws of
    d_0, log s_0 and log nu.
    rope: half the width of the region of practical equivalence. confidence: level of the intervals,
    such as 0.95.
    """
    d0, s0, nu = chains.d0, chains.s0, chains.nu
    monitored = (d0, np.log(s0), np.log(nu))
    above = scipy.special.stdtr(nu, (d0 - rope) / s0)
    below = scipy.special.stdtr(nu, (-d0 - rope) / s0)
    between = 1 - above - below if rope > 0 else np.full_like(above, -1)
    largest = np.argmax(np.stack([below, between, above]), axis=0)
    interval = bootstrap_intervals.estimate(0, d0.reshape(-1, d0.shape[2]), confidence)
    return {
        "right": (largest == 2).mean(axis=(0, 1)),
        "left": (largest == 0).mean(axis=(0, 1)),
        "positive": (d0 > 0).mean(axis=(0, 1)),
        "d0": d0.mean(axis=(0, 1)),
        "low": interval.low,
        "high": interval.high,
        "s0": np.median(s0, axis=(0, 1)),
        "d": chains.d,
        "rhat": np.max([mcmc.split_rhat(x) for x in monitored], axis=0),
        "effective": np.min([mcmc.effective_draws(x) for x in monitored], axis=0),
    }


@dataclasses.dataclass(frozen=True, eq=False)
class MixedResult:
    """A test of all algorithms, variance components, and differences of ordered pairs."""

    algorithms: tuple[str, ...]
    statistic: float  # Quasi F.
    pvalue: float
    df: tuple[float, float]  # Of F; the second after Satterthwaite.
    variances: dict[str, float]  # dataset, interaction, run, residual; at least 0.
    difference: (
        bootstrap_intervals.Estimate
    )  # (k, k), points; positive where the row is better.
    standard_error: Float[np.ndarray, "k k"]
    pvalues: Float[np.ndarray, "k k"]  # Of each pair, not adjusted for multiple tests.


def mixed_model(
    scores: score_table.TableOfRuns,
    *,
    larger_is_better: bool,
    confidence: float = 0.95,
) -> MixedResult:
    """Return the test of k algorithms over n data sets by a mixed model of the single runs.

    scores: see `score_table.read`; with several runs. confidence: level of the intervals, such as
    0.95.
    The mean squares are E of runs within data sets, R of runs, I of data sets by algorithms and
    A of algorithms (I and A are multiplied by the harmonic mean r of the numbers of runs).
    F = A / (R + I - E), and a difference of algorithms i, j has the variance
    2 (I - E) / (n r) + (1/r_i + 1/r_j) R / n. Where R or I is below E, it is replaced by E.
    Degrees of freedom after Satterthwaite. All pairs share one interaction variance, so one
    algorithm with unusual interactions widens all intervals. To check, repeat the test without this
    algorithm (`Scores.only`). Raise ValueError for single runs, missing cells and a confidence
    outside (0, 1).

        >>> model = stats.mixed_model(runs, larger_is_better=True)
        >>> f"{model.pvalue:.3f} {model.variances['interaction']:.0f}"
        '0.014 60'
        >>> others = runs.only(algorithms=[a for a in runs.algorithms if a != "StylizedERM"])
        >>> model = stats.mixed_model(others, larger_is_better=True)
        >>> f"{model.pvalue:.0e} {model.variances['interaction']:.0f}"
        '5e-09 9'
    """
    caller_errors.check_share("confidence", confidence)
    table = score_table.read(scores)
    bootstrap_intervals.require_runs(table)
    n, k = table.means.shape
    counts, r = table.counts, float(k / np.sum(1 / table.counts))
    squares = _mean_squares(table)
    means = table.means.mean(axis=0) * (1 if larger_is_better else -1)

    between = n * r * means.var(ddof=1)
    noise, df2 = _combine(squares, run=1.0, interaction=1.0, residual=-1.0)
    statistic = between / noise if noise > 0 else (math.inf if between > 0 else 0.0)
    rows, columns = np.triu_indices(k, 1)
    variance, degrees = np.empty(len(rows)), np.empty(len(rows))
    for p, (i, j) in enumerate(zip(rows, columns, strict=True)):
        per_run = 1 / counts[i] + 1 / counts[j]
        variance[p], degrees[p] = _combine(
            squares, run=per_run / n, interaction=2 / (n * r), residual=-2 / (n * r)
        )
    errors = np.sqrt(variance)
    value = means[rows] - means[columns]
    half_width = scipy.stats.t.ppf((1 + confidence) / 2, degrees) * errors
    difference = bootstrap_intervals.Estimate(
        value=value,
        low=value - half_width,
        high=value + half_width,
        confidence=confidence,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(value == 0, 0.0, np.abs(value) / errors)
    return MixedResult(
        algorithms=table.algorithms,
        statistic=float(statistic),
        pvalue=float(scipy.stats.f.sf(statistic, k - 1, df2)),
        df=(k - 1, float(df2)),
        variances={
            "dataset": _excess(squares, "dataset", "interaction") / (k * r),
            "interaction": _excess(squares, "interaction", "residual") / r,
            "run": _excess(squares, "run", "residual") / n,
            "residual": squares["residual"][0],
        },
        difference=bootstrap_intervals.pair_estimate(difference, np.negative),
        standard_error=bootstrap_intervals.pair_matrix(errors),
        pvalues=bootstrap_intervals.pair_matrix(
            2 * scipy.stats.t.sf(t, degrees), diagonal=1.0
        ),
    )


def _mean_squares(table: score_table.Scores) -> dict[str, tuple[float, int]]:
    """Return (mean square, degrees of freedom) of every source of variance, by its name.

    Names: residual, run, interaction (of data sets and algorithms) and dataset. Mean squares of
    data sets and interaction are computed from cell means, and multiplied by the harmonic mean
    of the numbers of runs.
    """
    n, k = table.means.shape
    residual = run = 0.0
    for name in table.algorithms:
        x = table.runs(name)
        run_effects = x.mean(axis=0) - x.mean()
        run += n * np.sum(run_effects**2)
        residual += np.sum((x - x.mean(axis=1, keepdims=True) - run_effects) ** 2)
    runs = int(np.sum(table.counts - 1))
    r = k / np.sum(1 / table.counts)
    centred = table.means - table.means.mean(axis=0)
    dataset_effects = centred.mean(axis=1, keepdims=True)
    interaction = r * np.sum((centred - dataset_effects) ** 2)
    return {
        "residual": (float(residual / (runs * (n - 1))), runs * (n - 1)),
        "run": (float(run / runs), runs),
        "interaction": (float(interaction / ((n - 1) * (k - 1))), (n - 1) * (k - 1)),
        "dataset": (float(k * r * np.sum(dataset_effects**2) / (n - 1)), n - 1),
    }


def _excess(squares: Mapping[str, tuple[float, int]], name: str, over: str) -> float:
    """Return the mean square `name` minus the mean square `over`; 0 if negative.

    squares: result of `_mean_squares`; name, over: its keys.
    """
    return max(0.0, squares[name][0] - squares[over][0])


def _combine(
    squares: Mapping[str, tuple[float, int]], **factors: float
) -> tuple[float, float]:
    """Return the sum of factor * mean square, and its degrees of freedom (Satterthwaite).

    squares: result of `_mean_squares`. factors: by key of `squares`.
    A mean square of run or interaction below the residual mean square is replaced by the residual
    mean square.
    """
    for name in ("run", "interaction"):
        if squares[name][0] < squares["residual"][0]:
            factors["residual"] += factors.pop(name)
    total = spread = 0.0
    for name, factor in factors.items():
        square, df = squares[name]
        total += factor * square
        spread += (factor * square) ** 2 / df
    return total, total**2 / spread if spread > 0 else math.inf
