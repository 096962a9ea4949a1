"""Power of a study to detect a difference, by seeds and data sets, from simulated studies.

A null result is informative only if the study would have detected a difference that matters.
The simulated studies vary as much as the table: between data sets for each algorithm, and between
runs.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats
from jaxtyping import Float, Int
from scipy import special

from jbias import errors as caller_errors
from jbias.stats import bootstrap_intervals, posthoc, score_table, two_sample

_NAMES = {"t": "the paired t-test", "wilcoxon": "Wilcoxon's", "nemenyi": "Nemenyi's"}
TESTS = tuple(_NAMES)


_MAX_EXACT = 300  # Data sets up to which the signed-rank distribution is exact.


@dataclasses.dataclass(frozen=True, eq=False)
class PowerResult:
    """Shares of simulated studies that detect the difference, by seeds and data sets."""

    difference: float  # In the unit of the scores.
    alpha: float
    comparisons: int  # t and Wilcoxon are tested at alpha / comparisons.
    seeds: tuple[int, ...]
    datasets: tuple[int, ...]
    power: dict[str, Float[np.ndarray, "s n"]]  # By test.
    present: dict[
        str, float
    ]  # Power with the table's own seeds and data sets, by test.
    minimal: dict[str, float]  # Difference detected with power `target`; inf: never.
    target: float
    verdict: str  # One sentence about a null result of this design.


def power_of_design(
    scores: score_table.TableOfRuns,
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
    """Return the power to detect that one algorithm is better than another by `difference`.

    Studies are simulated. A study draws data sets with replacement, with the interactions of each
    data set and all algorithms, from which the noise of the runs is removed. A study also draws
    runs: an effect of the run on all data sets, and a residual on each data set. Mean effects of
    algorithms are removed, and variances are unbiased. A difference is detected if the test is
    significant with the correct sign. Tests: "t" (paired) and "wilcoxon" (exact for up to 300 data
    sets) at alpha / comparisons, and "nemenyi", which itself corrects for all pairs. Monte Carlo
    error: 0.5 / sqrt(draws).

    scores: see `score_table.read`; with several runs.
    difference: true advantage of the better algorithm, in the unit of the scores.
    seeds, datasets: numbers of runs and data sets to simulate. alpha: level of the tests.
    comparisons: number of comparisons; None for all pairs of the k algorithms (Bonferroni).
    pair: names of the better algorithm and of its opponent; None: random pairs.
    target: power for `minimal` of the result, the smallest difference detected.
    draws: number of simulated studies.
    Raise ValueError for single runs, missing cells, a difference that is not positive, fewer
    than 1 seed, 2 data sets, 1 comparison or 100 draws, an alpha or target outside (0, 1), and a
    `pair` with an unknown or repeated name.
    """
    table = score_table.read(scores)
    bootstrap_intervals.require_runs(table)
    n, k = table.means.shape
    caller_errors.check_share("alpha", alpha)
    caller_errors.check_share("target", target)
    _check_positive(difference=difference)
    caller_errors.check_at_least("draws", draws, 100)
    if min(seeds, default=0) < 1 or min(datasets, default=0) < 2:
        raise ValueError("seeds, datasets: must be at least 1 run and 2 data sets")
    if comparisons is None:
        comparisons = k * (k - 1) // 2
    caller_errors.check_at_least("comparisons", comparisons)
    simulator = _Simulator(table, pair)
    power = {test: np.empty((len(seeds), len(datasets))) for test in TESTS}
    rng = np.random.default_rng(seed)
    for i, num_seeds in enumerate(seeds):
        for j, num_datasets in enumerate(datasets):
            studies = simulator.simulate(
                rng, draws, num_datasets=num_datasets, runs=np.full(k, num_seeds)
            )
            tests = _Tests(num_datasets, k, alpha=alpha, pair_alpha=alpha / comparisons)
            for test, is_detected in tests.detect(studies, difference).items():
                power[test][i, j] = is_detected.mean()
    studies = simulator.simulate(rng, draws, num_datasets=n, runs=table.counts)
    tests = _Tests(n, k, alpha=alpha, pair_alpha=alpha / comparisons)
    present = {
        test: float(is_detected.mean())
        for test, is_detected in tests.detect(studies, difference).items()
    }
    minimal = _minimal_differences(studies, tests, target)
    return PowerResult(
        difference=difference,
        alpha=alpha,
        comparisons=comparisons,
        seeds=tuple(seeds),
        datasets=tuple(datasets),
        power=power,
        present=present,
        minimal=minimal,
        target=target,
        verdict=_verdict(
            difference=difference,
            num_datasets=n,
            runs=table.counts,
            present=present,
            minimal=minimal,
            target=target,
        ),
    )


def _check_positive(**values: float) -> None:
    """Raise ValueError unless all values are finite and positive; keywords are their names."""
    for name, value in values.items():
        caller_errors.check(0 < value < math.inf, name, "be positive", value)


def power_of_t(
    *, difference: float, deviation: float, datasets: int, alpha: float = 0.05
) -> float:
    """Return the power of a paired t-test over data sets, in closed form.

    P(T > t_crit), T noncentral t with noncentrality difference sqrt(datasets) / deviation.
    difference: true mean difference. datasets: number of data sets. alpha: two-sided level.
    deviation: standard deviation over data sets of the measured difference,
    sqrt(between^2 + (s_x^2 + s_y^2) / runs).
    Raise ValueError for a deviation that is not positive and for fewer than 2 data sets.
    """
    _check_positive(deviation=deviation)
    caller_errors.check(
        math.isfinite(difference), "difference", "be a finite number", difference
    )
    caller_errors.check_share("alpha", alpha)
    caller_errors.check_at_least("datasets", datasets, 2)
    return _power(datasets - 1, difference * math.sqrt(datasets) / deviation, alpha)


def _power(df: float, noncentrality: float, alpha: float) -> float:
    """Return the probability that a two-sided t test rejects with a positive t.

    df: degrees of freedom. noncentrality: true difference / standard error. alpha: level.
    """
    critical = special.stdtrit(df, 1 - alpha / 2)
    return 1 - float(special.nctdtr(df, noncentrality, critical))


def minimal_difference_of_t(
    *, deviation: float, datasets: int, alpha: float = 0.05, target: float = 0.8
) -> float:
    """Return the difference that a paired t-test over data sets detects with power `target`.

    Arguments and errors: see `power_of_t`. Raise ValueError also for a target that is not between
    alpha and 1.
    """
    _check_positive(deviation=deviation)
    caller_errors.check_at_least("datasets", datasets, 2)
    noncentrality = _find_noncentrality(datasets - 1, alpha=alpha, target=target)
    return noncentrality * deviation / math.sqrt(datasets)


def minimal_difference_of_welch(
    *,
    deviations: tuple[float, float],
    seeds: tuple[int, int],
    alpha: float = 0.05,
    target: float = 0.8,
) -> float:
    """Return the difference of two methods' means that Welch's t test detects with power `target`.

    deviations: standard deviations over the seeds of each method, taken as the true ones.
    seeds: number of seeds of each method. The test is two-sided at `alpha`, with the standard
    error sqrt(s_1^2 / n_1 + s_2^2 / n_2) and Welch and Satterthwaite's degrees of freedom.
    Raise ValueError for fewer than 2 seeds, two deviations of 0, and a target that is not
    between alpha and 1.
    """
    for deviation, count in zip(deviations, seeds, strict=True):
        caller_errors.check(
            0 <= deviation < math.inf,
            "deviations",
            "be finite and not negative",
            deviation,
        )
        caller_errors.check_at_least("seeds", count, 2)
    _check_positive(deviations=sum(deviations))
    error, degrees = two_sample.welch_error(deviations, seeds)
    return error * _find_noncentrality(degrees, alpha=alpha, target=target)


def _find_noncentrality(degrees: float, *, alpha: float, target: float) -> float:
    """Return the noncentrality (true difference / standard error) with power `target`.

    degrees: degrees of freedom of the t test. alpha: two-sided level. Raise ValueError for an alpha
    outside (0, 1), and a target that is not between alpha and 1.
    """
    caller_errors.check_share("alpha", alpha)
    caller_errors.check(alpha < target < 1, "target", "lie between alpha and 1", target)

    def missing_power(noncentrality: float) -> float:
        return target - _power(degrees, noncentrality, alpha)

    high = 1.0
    while missing_power(high) > 0:
        high *= 2
    return float(scipy.optimize.brentq(missing_power, 0, high, xtol=1e-9))


def seeds_for_t(
    *, difference: float, deviation: float, alpha: float = 0.05, target: float = 0.8
) -> int:
    """Return the number of seeds per method with which a t-test detects a difference of means.

    Student's test of two samples, two-sided at `alpha`, with power `target`. deviation:
    standard deviation over a method's seeds. The number is the normal approximation with its
    correction, 2 (z_alpha/2 + z_target)^2 deviation^2 / difference^2 + z_alpha/2^2 / 4 (Guenther
    1981, The American Statistician 35), rounded up and at least 2. A number below
    1000 is increased, to 1000 at most, until the noncentral t has this power. Raise ValueError for
    a difference or deviation that is not positive, and an alpha or target outside (0, 1).
    """
    _check_positive(difference=difference, deviation=deviation)
    caller_errors.check_share("target", target)
    z = -special.ndtri(caller_errors.check_share("alpha", alpha) / 2)
    effect = difference / deviation
    normal = 2 * ((z + special.ndtri(target)) / effect) ** 2
    n = max(2, math.ceil(normal + z**2 / 4))
    while n < 1000 and _power(2 * n - 2, effect * math.sqrt(n / 2), alpha) < target:
        n += 1
    return n


def datasets_for_nemenyi(*, gap: float, algorithms: int, alpha: float = 0.05) -> int:
    """Return the number of data sets with which Nemenyi's critical difference is at most `gap`.

    gap: difference of mean ranks. algorithms: number of algorithms, k. The number is the smallest
    n >= q^2 k (k+1) / (6 gap^2). A true gap of this size is then detected in about half of
    all studies. Raise ValueError for a gap outside (0, k - 1] and for fewer than 2 algorithms.
    """
    caller_errors.check_at_least("algorithms", algorithms, 2)
    caller_errors.check(
        0 < gap <= algorithms - 1,
        "gap",
        f"lie in (0, {algorithms - 1}] for {algorithms} algorithms",
        gap,
    )
    q = posthoc.range_isf(caller_errors.check_share("alpha", alpha), algorithms)
    q /= math.sqrt(2)
    return math.ceil(q**2 * algorithms * (algorithms + 1) / (6 * gap**2) - 1e-9)


class _Studies(NamedTuple):
    """Simulated studies in which all algorithms are equal on average."""

    means: Float[np.ndarray, "b n k"]  # Over the runs of a study.
    pairs: Int[np.ndarray, "b 2"]  # The better algorithm, and its opponent.


class _Simulator:
    """A generator of studies with the interactions and run effects of a table.

    pair: names of the better algorithm and of its opponent; None: random pairs.
    """

    def __init__(self, table: score_table.Scores, pair: tuple[str, str] | None):
        names = table.algorithms
        self.pair = pair and [score_table.find_name(a, names, "pair") for a in pair]
        if pair and pair[0] == pair[1]:
            raise ValueError(f"pair: must be two algorithms, got {pair[0]!r} twice")
        n, k = table.means.shape
        interaction = table.means - table.means.mean(axis=0)
        interaction = interaction - interaction.mean(axis=1, keepdims=True)
        mean_variances = np.mean(table.stds**2 / table.counts, axis=0)
        noise = mean_variances * (1 - 2 / k) + mean_variances.sum() / k**2
        factor = _denoising_factor(noise, interaction.var(axis=0, ddof=1))
        # Drawing n data sets with replacement reduces a variance by (n-1) / n.
        self.interaction = interaction * factor * math.sqrt(n / (n - 1))
        self.common, self.residual = [], []  # Run effects of each algorithm.
        for j, name in enumerate(names):
            r = int(table.counts[j])
            effects = table.runs(name) - table.means[:, j : j + 1]
            effects = effects * math.sqrt(r / (r - 1))
            common = effects.mean(axis=0)
            residual = (effects - common) * math.sqrt(n / (n - 1))
            # Variance of the common effect that is due to residuals.
            noise_of_common = np.mean(residual**2) / n
            factor = _denoising_factor(noise_of_common, np.mean(common**2))
            self.common.append(common * factor)
            self.residual.append(residual)

    def simulate(
        self,
        rng: np.random.Generator,
        draws: int,
        *,
        num_datasets: int,
        runs: Int[np.ndarray, "k"],
    ) -> _Studies:
        """Return `draws` random studies of `num_datasets` data sets, without any true difference.

        Each study has the simulator's pair, or a random pair if the simulator has none. runs:
        number of runs of each algorithm.
        """
        n, k = self.interaction.shape
        rows = rng.integers(0, n, size=(draws, num_datasets))
        means = self.interaction[rows]
        for j in range(k):
            r = len(self.common[j])
            drawn_runs = rng.integers(0, r, size=(draws, runs[j]))
            means[:, :, j] += self.common[j][drawn_runs].mean(axis=1)[:, None]
            for _ in range(runs[j]):
                drawn_residuals = rng.integers(0, r, size=rows.shape)
                means[:, :, j] += self.residual[j][rows, drawn_residuals] / runs[j]
        if self.pair:
            return _Studies(means, np.tile(self.pair, (draws, 1)))
        return _Studies(means, np.argsort(rng.random((draws, k)), axis=1)[:, :2])


def _denoising_factor(
    noise: Float[np.ndarray, "..."], variance: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Return the factor, 0 to 1, by which to multiply deviations to remove noise.

    variance: variance of the deviations. noise: part of this variance that is due to noise. The
    factor is 0 if the noise is at least the variance.
    """
    share = np.divide(noise, variance, out=np.ones_like(variance), where=variance > 0)
    return np.sqrt(np.clip(1 - share, 0, 1))


class _Tests:
    """Critical values of the t, Wilcoxon and Nemenyi tests, for n data sets and k algorithms.

    alpha: level of Nemenyi's test; pair_alpha: level of a single t or Wilcoxon test.
    """

    def __init__(self, n: int, k: int, *, alpha: float, pair_alpha: float):
        self.t = scipy.stats.t.ppf(1 - pair_alpha / 2, n - 1)
        self.w = _wilcoxon_critical(n, pair_alpha)
        self.gap = posthoc.critical_difference(n, k, alpha)

    def detect(self, studies: _Studies, difference: float) -> dict[str, np.ndarray]:
        """Return, by test, a bool array (b,): True where a study detects that the first is better.

        The first is the better algorithm of the study's pair. Keys: "t", "wilcoxon" and "nemenyi".
        difference: the true advantage of the first, which is added to its means.
        """
        means, pairs = studies
        num_studies, n, _ = means.shape
        b = np.arange(num_studies)
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
        # Mean ranks of the pair, less (k + 1) / 2: half of the losses less wins.
        mean_ranks = np.zeros((2, num_studies))
        for i, values in enumerate((x, x - d)):
            rivals = means.copy()
            rivals[b, :, better] += difference
            ahead = rivals - values[:, :, None]
            losses = np.sign(ahead) * (np.abs(ahead) > tolerance[:, :, None])
            mean_ranks[i] = losses.sum(axis=2).mean(axis=1) / 2
        return {
            "t": t >= self.t,
            "wilcoxon": plus >= self.w,
            "nemenyi": mean_ranks[1] - mean_ranks[0] >= self.gap - 1e-9,
        }


def _wilcoxon_critical(n: int, alpha: float) -> float:
    """Return the smallest W+ with a two-sided p <= alpha; inf if no W+ has such a p.

    p is exact for up to 300 data sets. For more data sets, p is from the normal distribution, as
    the time of the exact computation grows with the cube of n.
    """
    # The distribution is that of W = 2 W+ - n (n+1) / 2.
    if n > _MAX_EXACT:
        deviation = math.sqrt(n * (n + 1) * (2 * n + 1) / 6)
        least_w = float(scipy.stats.norm.isf(alpha / 2)) * deviation
        return math.ceil((least_w + n * (n + 1) / 2) / 2)
    pvalues = posthoc.signed_rank_pvalues(tuple(range(1, n + 1)))
    significant = np.flatnonzero(pvalues <= alpha * (1 + 1e-9))
    return (len(pvalues) + significant[0]) // 2 if len(significant) else math.inf


def _minimal_differences(
    studies: _Studies, tests: _Tests, target: float
) -> dict[str, float]:
    """Return, by test, the smallest difference detected with power `target`, by bisection.

    The same studies are used for all differences. inf: not even 100 times the largest mean is
    detected with this power.
    """
    largest = 100 * float(np.abs(studies.means).max()) or 1.0
    minimal = {}
    for test in TESTS:
        low, high = 0.0, largest
        if tests.detect(studies, largest)[test].mean() < target:
            minimal[test] = math.inf
            continue
        for _ in range(60):
            if high - low <= 1e-3 * high:
                break
            middle = (low + high) / 2
            if tests.detect(studies, middle)[test].mean() >= target:
                high = middle
            else:
                low = middle
        minimal[test] = high
    return minimal


def _verdict(
    *,
    difference: float,
    num_datasets: int,
    runs: Int[np.ndarray, "k"],
    present: Mapping[str, float],
    minimal: Mapping[str, float],
    target: float,
) -> str:
    """Return a sentence on the power of this design and the meaning of a null result.

    difference: in the unit of the scores. present: power of this design, by test. minimal:
    difference detected with power `target`, by test. runs: number of runs per algorithm.
    """
    fewest, most = int(runs.min()), int(runs.max())
    run_counts = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    power = present["nemenyi"]
    meaning = "makes such a difference unlikely"
    if power < target:
        meaning = "is weak evidence" if power >= 0.5 else "is no evidence"
        meaning += " against such a difference"
    shares = ", ".join(
        f"{_NAMES[test]} in {100 * share:.0f} %" for test, share in present.items()
    )
    smallest = ", ".join(
        f"{f'{size:.3g}' if math.isfinite(size) else 'none'} by {_NAMES[test]}"
        for test, size in minimal.items()
    )
    return (
        f"With {num_datasets} data sets and {run_counts} runs, a difference of "
        f"{difference:g} is detected by {shares} of studies like this one; so a null result "
        f"of Nemenyi's test {meaning}. Smallest difference detected in "
        f"{100 * target:.0f} % of studies: {smallest}."
    )
