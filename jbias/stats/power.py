"""Would the study have seen a difference? Power by seeds and data sets, by simulation.

A null result says something only if a difference that matters would have been found. Studies
are simulated from the table's own spread: of algorithms between data sets, and of runs.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy.optimize
import scipy.stats
from jaxtyping import Float
from scipy import special

from jbias.stats import posthoc, resampling, score_table, two_sample

_NAMES = {"t": "the paired t-test", "wilcoxon": "Wilcoxon's", "nemenyi": "Nemenyi's"}
TESTS = tuple(_NAMES)


_EXACT = 300  # Data sets up to which the signed-rank distribution is exact.


@dataclasses.dataclass(frozen=True, eq=False)
class PowerResult:
    """Shares of simulated studies that find the difference, by seeds and data sets."""

    difference: float  # In the unit of the scores.
    alpha: float
    comparisons: int  # That alpha is shared by, for t and Wilcoxon.
    seeds: tuple[int, ...]
    datasets: tuple[int, ...]
    power: dict[str, Float[np.ndarray, "s n"]]
    present: dict[str, float]  # Of the table's own design.
    minimal: dict[str, float]  # Difference found with `target`; inf: never.
    target: float
    verdict: str


def power_of_design(
    scores,
    *,
    difference: float,
    seeds: Sequence[int] = (1, 3, 5, 10, 30),
    datasets: Sequence[int] = (5, 10, 20, 40),
    alpha: float = 0.05,
    comparisons: int | None = None,
    pair: tuple[str, str] | None = None,
    target: float = 0.8,
    draws: int = 1000,
    seed: int = 0,
) -> PowerResult:
    """Simulates studies in which one algorithm is better than all others by `difference`.

    A study draws data sets with replacement, each with its interactions with all algorithms,
    less the part that is noise of the runs; and runs: what is common to all data sets run by
    run, the rest data set by data set. Means over data sets are taken out, variances unbiased.
    The better one and whom it is compared with are a pair at random, or `pair`. Tests: paired
    t and exact Wilcoxon at alpha / comparisons (None: all pairs of the k algorithms, as
    Bonferroni's), and Nemenyi's, which counts all pairs itself.
    Found means significant and with the right sign. Monte Carlo error: 0.5 / sqrt(draws).
    Raises ValueError for single runs and missing cells.
    """
    table = score_table.read(scores)
    resampling.require_runs(table)
    n, k = table.means.shape
    score_table.check_share("alpha", alpha)
    score_table.check_share("target", target)
    _check_positive(difference=difference)
    score_table.check_count("draws", draws, 100)
    if min(seeds, default=0) < 1 or min(datasets, default=0) < 2:
        raise ValueError("seeds, datasets: must be at least 1 run and 2 data sets")
    several = k * (k - 1) // 2 if comparisons is None else comparisons
    score_table.check_count("comparisons", several)
    study = _Study(table, pair)
    power = {test: np.empty((len(seeds), len(datasets))) for test in TESTS}
    rng = np.random.default_rng(seed)
    for s, r in enumerate(seeds):
        for d, count in enumerate(datasets):
            simulated = study.simulate(rng, draws, count, np.full(k, r))
            tests = _Tests(count, k, alpha, alpha / several)
            for test, found in tests(*simulated, difference).items():
                power[test][s, d] = found.mean()
    simulated = study.simulate(rng, draws, n, table.counts)
    tests = _Tests(n, k, alpha, alpha / several)
    found = tests(*simulated, difference)
    present = {test: float(shares.mean()) for test, shares in found.items()}
    minimal = _minimal(simulated, tests, target)
    return PowerResult(
        difference=difference,
        alpha=alpha,
        comparisons=several,
        seeds=tuple(seeds),
        datasets=tuple(datasets),
        power=power,
        present=present,
        minimal=minimal,
        target=target,
        verdict=_verdict(difference, n, table.counts, present, minimal, target),
    )


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        score_table.check(0 < value < math.inf, name, "be positive", value)


def power_of_t(
    *, difference: float, deviation: float, datasets: int, alpha: float = 0.05
) -> float:
    """Gives the power of a paired t-test over data sets, in closed form.

    `deviation` is that of the measured difference between data sets: sqrt(between^2 +
    (s_x^2 + s_y^2) / runs). P(T > t_crit), T noncentral t with difference sqrt(n) / deviation.
    """
    _check_positive(deviation=deviation)
    must = "be a finite number"
    score_table.check(math.isfinite(difference), "difference", must, difference)
    score_table.check_share("alpha", alpha)
    score_table.check_count("datasets", datasets, 2)
    return _power(datasets - 1, difference * math.sqrt(datasets) / deviation, alpha)


def _power(df: float, shift: float, alpha: float) -> float:
    return 1 - float(special.nctdtr(df, shift, special.stdtrit(df, 1 - alpha / 2)))


def minimal_difference_of_t(
    *, deviation: float, datasets: int, alpha: float = 0.05, target: float = 0.8
) -> float:
    """Gives the difference that a paired t-test over data sets finds with chance `target`."""

    _check_positive(deviation=deviation)
    score_table.check_count("datasets", datasets, 2)
    shift = _shift_for_power(datasets - 1, alpha=alpha, target=target)
    return shift * deviation / math.sqrt(datasets)


def minimal_difference_of_welch(
    *,
    deviations: tuple[float, float],
    seeds: tuple[int, int],
    alpha: float = 0.05,
    target: float = 0.8,
) -> float:
    """Return the difference of two methods' means that Welch's t test finds with chance `target`.

    deviations: over the seeds of each method, taken as the true ones. As for
    `power_of_t`, with the standard error sqrt(s_1^2 / n_1 + s_2^2 / n_2) and Welch and
    Satterthwaite's degrees of freedom. Two-sided, at `alpha`.
    """
    for deviation, count in zip(deviations, seeds, strict=True):
        must = "be finite and not negative"
        score_table.check(0 <= deviation < math.inf, "deviations", must, deviation)
        score_table.check_count("seeds", count, 2)
    _check_positive(deviations=sum(deviations))
    error, degrees = two_sample.welch_error(deviations, seeds)
    return error * _shift_for_power(degrees, alpha=alpha, target=target)


def _shift_for_power(degrees: float, *, alpha: float, target: float) -> float:
    """Return how many standard errors a t test finds with chance `target`."""
    score_table.check_share("alpha", alpha)
    score_table.check(alpha < target < 1, "target", "lie between alpha and 1", target)

    def missing(shift: float) -> float:
        return target - _power(degrees, shift, alpha)

    high = 1.0
    while missing(high) > 0:
        high *= 2
    return float(scipy.optimize.brentq(missing, 0, high, xtol=1e-9))


def seeds_for_t(
    *, difference: float, deviation: float, alpha: float = 0.05, target: float = 0.8
) -> int:
    """Gives the seeds of each of two methods with which a t-test finds a difference of means.

    Student's test of two samples, two-sided, at `alpha`, with chance `target`; `deviation` is
    that over a method's seeds. The normal approximation with its correction, 2 (z_alpha/2 +
    z_target)^2 deviation^2 / difference^2 + z_alpha/2^2 / 4 (Guenther 1981, The American
    Statistician 35), and up to 1000 as many more as the noncentral t asks for.
    """
    _check_positive(difference=difference, deviation=deviation)
    score_table.check_share("target", target)
    z = -special.ndtri(score_table.check_share("alpha", alpha) / 2)
    effect = difference / deviation
    normal = 2 * ((z + special.ndtri(target)) / effect) ** 2
    n = max(2, math.ceil(normal + z**2 / 4))
    while n < 1000 and _power(2 * n - 2, effect * math.sqrt(n / 2), alpha) < target:
        n += 1
    return n


def datasets_for_nemenyi(*, gap: float, algorithms: int, alpha: float = 0.05) -> int:
    """Gives the data sets with which a gap of mean ranks reaches the critical difference.

    n >= q^2 k (k+1) / (6 gap^2). A true gap of that size is then found about every other time.
    """
    score_table.check_count("algorithms", algorithms, 2)
    must = f"lie in (0, {algorithms - 1}] for {algorithms} algorithms"
    score_table.check(0 < gap <= algorithms - 1, "gap", must, gap)
    q = posthoc.range_isf(score_table.check_share("alpha", alpha), algorithms)
    q /= math.sqrt(2)
    return math.ceil(q**2 * algorithms * (algorithms + 1) / (6 * gap**2) - 1e-9)


class _Study:
    """What the table says of data sets and of runs, main effects left out."""

    def __init__(self, table: score_table.Scores, pair: tuple[str, str] | None):
        names = table.algorithms
        self.pair = pair and [score_table.find_name(a, names, "pair") for a in pair]
        if pair and pair[0] == pair[1]:
            raise ValueError(f"pair: must be two algorithms, got {pair[0]!r} twice")
        n, k = table.means.shape
        inter = table.means - table.means.mean(axis=0)
        inter = inter - inter.mean(axis=1, keepdims=True)
        of_means = np.mean(table.stds**2 / table.counts, axis=0)
        noise = of_means * (1 - 2 / k) + of_means.sum() / k**2
        kept = _noise_factor(noise, inter.var(axis=0, ddof=1))
        # Of n data sets drawn with replacement, a variance is smaller by (n-1) / n.
        self.interaction = inter * kept * math.sqrt(n / (n - 1))
        self.common, self.rest = [], []
        for j, name in enumerate(names):
            r = int(table.counts[j])
            off = table.runs(name) - table.means[:, j : j + 1]
            off = off * math.sqrt(r / (r - 1))
            common = off.mean(axis=0)
            rest = (off - common) * math.sqrt(n / (n - 1))
            own = np.mean(rest**2) / n  # That much of the common part is of the rest.
            self.common.append(common * _noise_factor(own, np.mean(common**2)))
            self.rest.append(rest)

    def simulate(self, rng, draws: int, datasets: int, runs):
        """Gives means (b, n, k) where nothing differs on average, and the pairs (b, 2)."""
        n, k = self.interaction.shape
        rows = rng.integers(0, n, size=(draws, datasets))
        means = self.interaction[rows]
        for j in range(k):
            r = len(self.common[j])
            shared = rng.integers(0, r, size=(draws, runs[j]))
            means[:, :, j] += self.common[j][shared].mean(axis=1)[:, None]
            for _ in range(runs[j]):
                alone = rng.integers(0, r, size=rows.shape)
                means[:, :, j] += self.rest[j][rows, alone] / runs[j]
        if self.pair:
            return means, np.tile(self.pair, (draws, 1))
        return means, np.argsort(rng.random((draws, k)), axis=1)[:, :2]


def _noise_factor(noise, variance):
    """Gives the factor that takes the noise out of a spread."""
    share = np.divide(noise, variance, out=np.ones_like(variance), where=variance > 0)
    return np.sqrt(np.clip(1 - share, 0, 1))


class _Tests:
    """The three tests at their levels, for one number of data sets."""

    def __init__(self, n: int, k: int, alpha: float, each: float):
        self.t = scipy.stats.t.ppf(1 - each / 2, n - 1)
        self.w = _wilcoxon_critical(n, each)
        self.gap = posthoc.critical_difference(n, k, alpha)

    def __call__(self, means, pairs, difference: float) -> dict[str, np.ndarray]:
        """Tells of each study whether its test finds the first of the pair better."""
        studies, n, _ = means.shape
        b = np.arange(studies)
        better, other = pairs[:, 0], pairs[:, 1]
        x = means[b, :, better] + difference
        d = x - means[b, :, other]
        std = d.std(axis=1, ddof=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num(d.mean(axis=1) * math.sqrt(n) / std)
        errors = score_table.score_errors(
            np.abs(means), score_table.robust_span(means.ravel())
        )
        tolerance = np.maximum(errors[b, :, better], errors[b, :, other])
        sizes = np.abs(d)
        sizes[sizes <= tolerance] = 0
        ranks = scipy.stats.rankdata(score_table.near_levels(sizes, tolerance), axis=1)
        plus = np.sum(ranks * (np.sign(d) * (sizes > 0) + 1) / 2, axis=1)
        # Mean ranks differ by how often either beats the others, and each other.
        places = np.zeros((2, studies))
        for place, values in enumerate((x, x - d)):
            rivals = means.copy()
            rivals[b, :, better] += difference
            ahead = rivals - values[:, :, None]
            beaten = np.sign(ahead) * (np.abs(ahead) > tolerance[:, :, None])
            places[place] = beaten.sum(axis=2).mean(axis=1) / 2
        return {
            "t": t >= self.t,
            "wilcoxon": plus >= self.w,
            "nemenyi": places[1] - places[0] >= self.gap - 1e-9,
        }


def _wilcoxon_critical(n: int, alpha: float) -> float:
    """Return the smallest W+ with a two-sided p <= alpha; inf if there is none.

    p is exact for up to 300 data sets, and by the normal distribution for more, whose exact
    one takes a time that grows with their cube.
    """
    if n > _EXACT:
        deviation = math.sqrt(
            n * (n + 1) * (2 * n + 1) / 6
        )  # Of W = 2 W+ - n (n+1) / 2.
        least = float(scipy.stats.norm.isf(alpha / 2)) * deviation
        return math.ceil((least + n * (n + 1) / 2) / 2)
    chances = posthoc.signed_chances(tuple(range(1, n + 1)))  # W = 2 W+ - n (n+1) / 2.
    reached = np.flatnonzero(chances <= alpha * (1 + 1e-9))
    return (len(chances) + reached[0]) // 2 if len(reached) else math.inf


def _minimal(
    simulated: tuple[np.ndarray, np.ndarray], tests: _Tests, target: float
) -> dict[str, float]:
    """Gives, by bisection over the same studies, what each test finds with `target`."""
    top = 100 * float(np.abs(simulated[0]).max()) or 1.0
    found = {}
    for test in TESTS:
        low, high = 0.0, top
        if tests(*simulated, top)[test].mean() < target:
            found[test] = math.inf
            continue
        for _ in range(60):
            if high - low <= 1e-3 * high:
                break
            middle = (low + high) / 2
            enough = tests(*simulated, middle)[test].mean() >= target
            low, high = (low, middle) if enough else (middle, high)
        found[test] = high
    return found


def _verdict(difference, n, counts, present, minimal, target) -> str:
    """Says in one sentence whether a null result of this design means anything."""
    few, many = int(counts.min()), int(counts.max())
    runs = f"{few}" if few == many else f"{few} to {many}"
    found = present["nemenyi"]
    means = "rules such a difference out, by and large"
    if found < target:
        means = "says little" if found >= 0.5 else "says nothing"
    shares = ", ".join(f"{_NAMES[t]} in {100 * p:.0f} %" for t, p in present.items())
    needs = ", ".join(
        f"{_NAMES[t]} {f'of {d:.3g}' if math.isfinite(d) else 'of no size'}"
        for t, d in minimal.items()
    )
    return (
        f"With {n} data sets and {runs} runs, a difference of {difference:g} is found by "
        f"{shares} of studies like this one; so a null result of Nemenyi's test {means}. "
        f"Differences found {100 * target:.0f} % of the time: by {needs}."
    )
