"""Models of runs and data sets together: the hierarchical t-test and a linear mixed model.

`hierarchical_t`, of Corani, Benavoli, Demsar, Mangili and Zaffalon 2017,
https://doi.org/10.1007/s10994-017-5641-9. For a pair of algorithms, on data set i:

    differences of runs ~ Normal(d_i, s_i^2)          d_i ~ t(nu, d_0, s_0)

d_0 and s_0 flat; nu - 1 ~ Gamma(a, b), a ~ U(1, 2), b ~ U(0.01, 0.1). Noisy data sets are
drawn towards the others. Deviations: runs need not be paired (a mean difference then has
the variance s_x^2 / r_x + s_y^2 / r_y, and 1 / s is the prior of s; paired it is flat, as
in the paper), and the very wide bounds of d_0, s_0 and s_i are left out.

The Gibbs sampler treats many pairs at once. t(nu) is a normal whose precision has been
drawn from Gamma(nu/2, nu/2). A sweep draws s_0 with d_0 and all d_i integrated out
(Metropolis on log s_0), then d_0 without the d_i, then the d_i; s_0 again and nu without
the precisions, nu on a grid; the precisions; the variances of the runs. Blocks after van
Dyk and Park 2008, https://doi.org/10.1198/016214508000000409: after a draw with something
integrated out, that is drawn before it is used again.

`mixed_model`, for all algorithms at once:

    score = algorithm + (1 | data set) + (1 | data set : algorithm) + (1 | algorithm : run)

A run is one model: what makes it good or bad on all data sets is the last term. Components
by the method of moments, which in a balanced table without negative ones is REML.
Sources: Searle, Casella and McCulloch 1992, chapter 4; Clark 1973 (the quasi F).
"""

import dataclasses
import math

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from jbias.stats import bayes, mcmc, resampling, score_table

CHAINS = 4
_WARMUP = 200
_MOVES = (2.0, 1.0)  # Deviations of proposed steps of log s_0, one after the other.
_GRID = np.geomspace(0.05, 1500, 32)  # Of nu - 1.


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """What the runs of one side of p pairs say, on each of n data sets."""

    mean: Float[np.ndarray, "p n"]
    squares: Float[np.ndarray, "p n"]  # Around the mean; never 0.
    per_run: Float[np.ndarray, "p 1"]  # Variance of the mean over that of a run.
    shape: Float[np.ndarray, "p 1"]  # Of the inverse gamma of a run's variance.

    @classmethod
    def from_runs(cls, values: Float[np.ndarray, "n p r"], per_run, shape) -> "Side":
        """Sums up runs, NaN where there is none."""
        values = np.moveaxis(values, 1, 0)
        mean = np.nanmean(values, axis=2)
        squares = np.nansum((values - mean[:, :, None]) ** 2, axis=2)
        # Runs that are all alike have a spread nonetheless: a thousandth of the usual one
        # of other data sets, or a billionth of the scores.
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

    def only(self, pairs: np.ndarray) -> "Side":
        """Keeps these pairs."""
        return Side(*(getattr(self, f.name)[pairs] for f in dataclasses.fields(self)))

    def variances(self, rng, off: Float[np.ndarray, "c p n"]) -> np.ndarray:
        """Draws variances of the means, where these are `off` by that much."""
        rate = (self.squares + off**2 / self.per_run) / 2
        return self.per_run * rate / rng.gamma(self.shape, size=off.shape)


def sample_posterior(x: Side, y: Side | None, *, draws: int, seed: int) -> dict:
    """Draws (d_0, s_0, nu) for x - y; `y` is None if x holds differences already.

    Returns "d0", "s0" and "nu", draws of c chains for p pairs (c, d, p), and "d" (p, n), the
    d_i's means over all of them.
    """
    rng = np.random.default_rng(seed)
    p, n = x.mean.shape
    size = (CHAINS, p, n)
    m = x.mean if y is None else x.mean - y.mean
    vx = x.variances(rng, np.zeros(size))
    vy = np.zeros(size) if y is None else y.variances(rng, np.zeros(size))
    # Chains begin far apart: log s_0 at a tenth to ten times the spread that is seen.
    start = np.std(m, axis=1) + np.sqrt(vx + vy).mean(axis=2)
    s0 = start * np.geomspace(0.1, 10, CHAINS)[:, None]
    precision, nu = np.ones(size), None
    kept = {name: np.empty((CHAINS, draws, p)) for name in ("d0", "s0", "nu")}
    total = np.zeros((p, n))
    for step in range(_WARMUP + draws):
        v = vx + vy
        for move in _MOVES:
            s0 = _metropolis(rng, s0, move, m, v, precision)
        w = s0[:, :, None] ** 2 / precision
        d0_mean, d0_variance, _ = _integrated(m, v + w)
        d0 = rng.normal(d0_mean, np.sqrt(d0_variance))
        d = (m * w + d0[:, :, None] * v) / (v + w)
        d = rng.normal(d, np.sqrt(v * w / (v + w)))
        off = (d - d0[:, :, None]) ** 2
        if nu is not None:
            s0 = _move_s0(rng, s0, off, nu)
        z2 = off / s0[:, :, None] ** 2
        nu = _draw_degrees(rng, z2)
        half = (nu[:, :, None] + 1) / 2
        precision = 2 * rng.gamma(half, size=z2.shape) / (nu[:, :, None] + z2)
        if y is None:
            vx = x.variances(rng, m - d)
        else:  # The level of y, with a flat prior, leaves x and y free of each other.
            level = ((x.mean - d) * vy + y.mean * vx) / v
            level = rng.normal(level, np.sqrt(vx * vy / v))
            vx = x.variances(rng, x.mean - d - level)
            vy = y.variances(rng, y.mean - level)
        if step >= _WARMUP:
            for name, value in (("d0", d0), ("s0", s0), ("nu", nu)):
                kept[name][:, step - _WARMUP] = value
            total += d.mean(axis=0)
    return {**kept, "d": total / draws}


def _integrated(m, variance: Float[np.ndarray, "c p n"]):
    """Gives mean and variance of d_0, and the log density of m, all d integrated out."""
    weight = 1 / variance
    total = weight.sum(axis=2)
    mean = (weight * m).sum(axis=2) / total
    squares = (weight * (m - mean[:, :, None]) ** 2).sum(axis=2)
    log = 0.5 * (np.log(weight).sum(axis=2) - squares - np.log(total))
    return mean, 1 / total, log


def _metropolis(rng, s0, move: float, m, v, precision) -> Float[np.ndarray, "c p"]:
    """Moves log s_0, of which a flat prior of s_0 is exp(log s_0)."""

    def log_density(s):
        return _integrated(m, v + s[:, :, None] ** 2 / precision)[2] + np.log(s)

    return _stepped(rng, s0, move, log_density)


def _stepped(rng, s0, move: float, log_density) -> Float[np.ndarray, "c p"]:
    """Proposes a step of log s_0, and takes it with Metropolis' chance."""
    proposed = s0 * np.exp(move * rng.normal(size=s0.shape))
    gain = log_density(proposed) - log_density(s0)
    return np.where(np.log(rng.random(s0.shape)) < gain, proposed, s0)


def _move_s0(rng, s0, off: Float[np.ndarray, "c p n"], nu) -> Float[np.ndarray, "c p"]:
    """Moves log s_0 again, given the d_i and with the precisions integrated out."""

    def log_density(s):
        each = np.log1p(off / (nu * s**2)[:, :, None])
        return -(nu + 1) / 2 * each.sum(axis=2) - (off.shape[2] - 1) * np.log(s)

    return _stepped(rng, s0, _MOVES[-1], log_density)


def _draw_degrees(rng, z2: Float[np.ndarray, "c p n"]) -> Float[np.ndarray, "c p"]:
    """Draws nu from its grid, given squares of standardised differences."""
    nu = 1 + _GRID
    n = z2.shape[2]
    constant = scipy.special.gammaln((nu + 1) / 2) - scipy.special.gammaln(nu / 2)
    log = n * (constant - 0.5 * np.log(nu)) + _LOG_PRIOR
    log = log - (nu + 1) / 2 * np.log1p(z2[..., None] / nu).sum(axis=2)
    upto = np.cumsum(np.exp(log - log.max(axis=2, keepdims=True)), axis=2)
    at = rng.random(upto.shape[:2]) * upto[:, :, -1]
    return nu[np.sum(upto < at[:, :, None], axis=2)]


def _log_prior() -> Float[np.ndarray, "g"]:
    """Gives log P of each point of the grid: Gamma(a, b), over uniform a and b."""
    a = 1 + (np.arange(40) + 0.5) / 40
    b = 0.01 + 0.09 * (np.arange(40) + 0.5) / 40
    density = scipy.stats.gamma.pdf(_GRID[:, None, None], a[:, None], scale=1 / b)
    return np.log(density.mean(axis=(1, 2)) * _GRID)  # Evenly spaced in the logarithm.


_LOG_PRIOR = _log_prior()

_AGREE = 1.02  # Largest R-hat that is answered.
_FEWEST = 400  # Smallest number of effective draws that is answered.
_LONGER = 3  # Doublings before the refusal.


@dataclasses.dataclass(frozen=True, eq=False)
class HierarchicalResult:
    """Posteriors of every ordered pair; positive where the row is the better."""

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    better: Float[np.ndarray, "k k"]  # On a next data set, by more than the rope.
    rope: Float[np.ndarray, "k k"]  # ... by nothing that matters; diagonal 1.
    positive: Float[np.ndarray, "k k"]  # P(d_0 > 0); diagonal 1/2.
    difference: resampling.Estimate  # (k, k), d_0: mean and equal-tailed interval.
    between: Float[np.ndarray, "k k"]  # Median of s_0.
    by_dataset: Float[np.ndarray, "n k k"]  # Means of d_i.
    rhat: Float[np.ndarray, "k k"]  # The worst of d_0, log s_0, log nu; diagonal 1.
    effective_draws: Float[np.ndarray, "k k"]  # The fewest of these; diagonal inf.


def hierarchical_t(
    scores,
    *,
    rope: float,
    larger_is_better: bool,
    paired: bool = False,
    rho: float = 0.0,
    confidence: float = 0.95,
    draws: int = 600,
    seed: int = 0,
) -> HierarchicalResult:
    """Compares all pairs over data sets, with the spread of their runs.

    Gibbs sampling, four chains of `draws` for all pairs at once; up to three times doubled
    for pairs whose chains differ. As in baycomp, each draw of (d_0, s_0, nu) gives the chances
    that a next data set's d is below, in and above the rope, and `better` and `rope` count
    which is the largest; with rope = 0, right against left. `paired` and `rho` are those of
    `correlated_t`. No effect of a run is shared by the data sets here (`mixed_model` has it).
    Raises ValueError where R-hat stays above 1.02 or effective draws below 400, and for single
    runs (paired: fewer than 3), fewer than 3 data sets and missing cells.
    """
    bayes.check_rope(rope)
    score_table.check_share("confidence", confidence)
    table = score_table.read(scores)
    resampling.require_runs(table, 3 if paired else 2)
    bayes.check_pairing(table, paired, rho)
    n, k = table.means.shape
    score_table.check(n >= 3, "scores", "have at least 3 data sets", n)
    score_table.check(draws >= 100, "draws", "be at least 100 a chain", draws)
    x, y = _sides(table, 1 if larger_is_better else -1, paired, rho)
    left = np.arange(len(x.mean))
    found: dict[str, np.ndarray] = {}
    for longer in range(_LONGER + 1):
        chains = sample_posterior(
            x.only(left), y and y.only(left), draws=draws * 2**longer, seed=seed
        )
        summed = _summary(**chains, rope=rope, confidence=confidence)
        for name, values in summed.items():
            found.setdefault(name, np.empty((len(x.mean), *values.shape[1:])))
            found[name][left] = values
        left = np.flatnonzero((found["rhat"] > _AGREE) | (found["effective"] < _FEWEST))
        if not len(left):
            break
    else:
        rows, columns = np.triu_indices(k, 1)
        raise ValueError(
            "hierarchical_t: chains must agree, got R-hat "
            f"{found['rhat'][left[0]]:.3f} and {found['effective'][left[0]]:.0f} "
            f"effective draws for {table.algorithms[rows[left[0]]]} and "
            f"{table.algorithms[columns[left[0]]]}; give more draws, runs or data sets"
        )

    matrix = resampling.pair_matrix
    better = matrix(found["right"], lambda _: found["left"])
    return HierarchicalResult(
        datasets=table.datasets,
        algorithms=table.algorithms,
        better=better,
        rope=np.clip(1 - better - better.T, 0, 1),
        positive=matrix(found["positive"], lambda v: 1 - v, diagonal=0.5),
        difference=resampling.pair_estimate(
            found["d0"], found["low"], found["high"], confidence, np.negative
        ),
        between=matrix(found["s0"]),
        by_dataset=matrix(found["d"], np.negative),
        rhat=matrix(found["rhat"], diagonal=1.0),
        effective_draws=matrix(found["effective"], diagonal=np.inf),
    )


def _sides(table, sign: int, paired: bool, rho: float):
    """Gives both sides of every pair; paired: their differences and None."""
    rows, columns = np.triu_indices(len(table.algorithms), 1)
    if paired:
        values = sign * (table.values[:, rows] - table.values[:, columns])
        r = values.shape[2]
        per_run = np.full(len(rows), 1 / r + rho / (1 - rho))
        return Side.from_runs(values, per_run, (r - 1) / 2), None
    counts = table.counts
    return tuple(
        Side.from_runs(sign * table.values[:, side], 1 / counts[side], counts[side] / 2)
        for side in (rows, columns)
    )


def _summary(d0, s0, nu, d, *, rope: float, confidence: float) -> dict[str, np.ndarray]:
    """Sums up what the chains say of each pair."""
    watched = (d0, np.log(s0), np.log(nu))
    above = scipy.special.stdtr(nu, (d0 - rope) / s0)
    below = scipy.special.stdtr(nu, (-d0 - rope) / s0)
    between = 1 - above - below if rope > 0 else np.full_like(above, -1)
    largest = np.argmax(np.stack([below, between, above]), axis=0)
    middle = resampling.estimate(0, d0.reshape(-1, d0.shape[2]), confidence)
    return {
        "right": (largest == 2).mean(axis=(0, 1)),
        "left": (largest == 0).mean(axis=(0, 1)),
        "positive": (d0 > 0).mean(axis=(0, 1)),
        "d0": d0.mean(axis=(0, 1)),
        "low": middle.low,
        "high": middle.high,
        "s0": np.median(s0, axis=(0, 1)),
        "d": d,
        "rhat": np.max([mcmc.split_rhat(x) for x in watched], axis=0),
        "effective": np.min([mcmc.effective_draws(x) for x in watched], axis=0),
    }


@dataclasses.dataclass(frozen=True, eq=False)
class MixedResult:
    """A test of all algorithms, variances, and differences of every ordered pair."""

    algorithms: tuple[str, ...]
    statistic: float  # Quasi F.
    pvalue: float
    df: tuple[float, float]  # Of F; the second after Satterthwaite.
    variances: dict[str, float]  # dataset, interaction, run, residual; at least 0.
    difference: resampling.Estimate  # (k, k), points; positive where the row is better.
    standard_error: Float[np.ndarray, "k k"]
    pvalues: Float[np.ndarray, "k k"]  # Of each pair alone: adjust them.


def mixed_model(
    scores, *, larger_is_better: bool, confidence: float = 0.95
) -> MixedResult:
    """Tests k algorithms over n data sets with their runs, none averaged away.

    With E the mean square of runs within data sets, R that of runs and I that of data sets by
    algorithms (times the harmonic mean r of runs): F = A / (R + I - E), and a difference of
    algorithms i, j has the variance 2 (I - E) / (n r) + (1/r_i + 1/r_j) R / n. Where R or I is
    below E, E takes its place. Degrees of freedom after Satterthwaite. All pairs share one
    interaction: an algorithm that is unlike the others on each data set widens all intervals;
    leave it out with `Scores.only` to see. Raises ValueError for single runs and missing cells.
    """
    score_table.check_share("confidence", confidence)
    table = score_table.read(scores)
    resampling.require_runs(table)
    n, k = table.means.shape
    counts, r = table.counts, float(k / np.sum(1 / table.counts))
    squares = _mean_squares(table)
    means = table.means.mean(axis=0) * (1 if larger_is_better else -1)

    between = n * r * means.var(ddof=1)
    noise, df2 = _combined(squares, run=1.0, interaction=1.0, residual=-1.0)
    statistic = between / noise if noise > 0 else (math.inf if between > 0 else 0.0)
    rows, columns = np.triu_indices(k, 1)
    variance, degrees = np.empty(len(rows)), np.empty(len(rows))
    for p, (i, j) in enumerate(zip(rows, columns, strict=True)):
        both = 1 / counts[i] + 1 / counts[j]
        variance[p], degrees[p] = _combined(
            squares, run=both / n, interaction=2 / (n * r), residual=-2 / (n * r)
        )
    errors = np.sqrt(variance)
    value = means[rows] - means[columns]
    half = scipy.stats.t.ppf((1 + confidence) / 2, degrees) * errors
    ends = value - half, value + half
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
        difference=resampling.pair_estimate(value, *ends, confidence, np.negative),
        standard_error=resampling.pair_matrix(errors),
        pvalues=resampling.pair_matrix(2 * scipy.stats.t.sf(t, degrees), diagonal=1.0),
    )


def _mean_squares(table: score_table.Scores) -> dict[str, tuple[float, int]]:
    """Gives (mean square, degrees of freedom) of every source of variance.

    Those of data sets and interaction are of cell means, times the harmonic mean of runs.
    """
    n, k = table.means.shape
    residual = run = 0.0
    for name in table.algorithms:
        x = table.runs(name)
        of_run = x.mean(axis=0) - x.mean()
        run += n * np.sum(of_run**2)
        residual += np.sum((x - x.mean(axis=1, keepdims=True) - of_run) ** 2)
    runs = int(np.sum(table.counts - 1))
    r = k / np.sum(1 / table.counts)
    centred = table.means - table.means.mean(axis=0)
    of_dataset = centred.mean(axis=1, keepdims=True)
    inter = r * np.sum((centred - of_dataset) ** 2)
    return {
        "residual": (float(residual / (runs * (n - 1))), runs * (n - 1)),
        "run": (float(run / runs), runs),
        "interaction": (float(inter / ((n - 1) * (k - 1))), (n - 1) * (k - 1)),
        "dataset": (float(k * r * np.sum(of_dataset**2) / (n - 1)), n - 1),
    }


def _excess(squares, name: str, over: str) -> float:
    """Gives by how much one mean square is above another; 0 if below."""
    return max(0.0, squares[name][0] - squares[over][0])


def _combined(squares, **factors: float) -> tuple[float, float]:
    """Gives the sum of factor * mean square, and its degrees of freedom."""
    for name in ("run", "interaction"):
        if squares[name][0] < squares["residual"][0]:
            factors["residual"] += factors.pop(name)
    total = spread = 0.0
    for name, factor in factors.items():
        square, df = squares[name]
        total += factor * square
        spread += (factor * square) ** 2 / df
    return total, total**2 / spread if spread > 0 else math.inf
