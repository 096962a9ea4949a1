"""The critical band: which frequencies of noise keep a network from recognising.

Noise of one octave at a time is added at growing strength. An octave's threshold is the
number of strengths that do harm; a Gaussian fitted to the thresholds over octaves has a
width, a centre and a height, which are the numbers of the band.

Source: Subramanian, Sizikova, Majaj and Pelli, NeurIPS 2023,
https://arxiv.org/abs/2309.13190 ("original"); Gavrikov and Keuper, CVPR 2024,
https://arxiv.org/abs/2404.01509 ("bvg"), whose code is at
https://github.com/paulgavrikov/biases_vs_generalization. Deviations: no band is printed
where no threshold differs from the others, and no numbers where the fitted band is narrower
than octaves can tell or has its centre outside the octaves.

"bvg" shows every image under every noise; accuracies count relative to the largest, and
the numbers are called critical_band_... "original" shows each image once, under noise drawn
for it; accuracies count as they are, and the numbers are called critical_band_original_...
Both also give the other's way, as ..._absolute and ..._normalised.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from jbias.evals import accuracy, decisions, probe, pyramid

NARROWEST, FLAT, WIDEST = 0.05, 100.0, 1e4  # Of s, in steps between points.
STARTS, ROUNDS, TOLERANCE = 8, 200, 1e-12
_VECTORS_AT_ONCE = 256


def fit_gaussians(
    values: Float[np.ndarray, "v f"], *, highest: float
) -> tuple[Float[np.ndarray, "v"], ...]:
    """Fits a exp(-(f - mu)^2 / (2 s^2)) to each row of values, in float64.

    Returns a, mu, s, the squares left and `converged`, each (v). Minimises the squares over
    0 <= a <= highest, mu and s.

    The squares have several minima. Levenberg and Marquardt's method, with a projected,
    starts from the lowest eight minima on a grid of (mu, s) with the best a at each, and
    the lowest end counts; s is 10,000 where a constant leaves as little. `tests/evals/test_critical_band.py` compares with scipy's
    optimisers and, for all thresholds of four and five octaves, with a finer grid.
    converged: no step was left that lowers the squares by a share of 1e-12, and s is
    neither less than the points can tell nor so large that the curve is flat.
    """
    values = np.asarray(values, float)
    firsts = range(0, len(values), _VECTORS_AT_ONCE)
    fits = [_fit(values[i : i + _VECTORS_AT_ONCE], highest) for i in firsts]
    return tuple(map(np.concatenate, zip(*fits, strict=True)))


def _fit(values, highest):
    """Return what `fit_gaussians` does, of as many rows as fit into memory."""
    starts = _starts(values, highest)
    p, cost, done = _descend(
        starts, np.repeat(values, STARTS, axis=0), highest, rounds=ROUNDS
    )
    best = cost.reshape(-1, STARTS).argmin(1) + STARTS * np.arange(len(values))
    p, cost, done = p[best], cost[best], done[best]
    (slow,) = np.nonzero(~done & (p[:, 2] < np.log(FLAT)))
    if len(slow):
        further = _descend(p[slow], values[slow], highest, rounds=50 * ROUNDS)
        p[slow], cost[slow], done[slow] = further
    level = np.clip(values.mean(1), 0, highest)
    constant = ((values - level[:, None]) ** 2).sum(1)
    (flat,) = np.nonzero(cost >= constant)
    middle = np.full(len(flat), (values.shape[1] - 1) / 2)
    widest = np.full(len(flat), np.log(WIDEST))
    p[flat], cost[flat] = np.stack([level[flat], middle, widest], 1), constant[flat]
    a, mu, log_s = p.T
    s = np.exp(log_s)
    converged = done & (s > 5 * NARROWEST) & (s < FLAT)
    return a, mu, s, cost, converged


def _descend(p, t, highest, *, rounds):
    """Return p, the squares and whether they are lowest, after at most so many steps."""
    p, f = p.copy(), np.arange(t.shape[1])
    damping, done = np.full(len(t), 1e-3), np.zeros(len(t), bool)
    cost = (_residuals(p, t, f) ** 2).sum(1)
    for _ in range(rounds):
        (left,) = np.nonzero(~done)
        if not len(left):
            break
        new = _step(p[left], t[left], f, damping[left], highest)
        lower = (_residuals(new, t[left], f) ** 2).sum(1)
        better = lower < cost[left]
        gain = cost[left] - lower
        small = abs(gain) <= TOLERANCE * cost[left] + 1e-16
        done[left] = small & (better | (damping[left] > 1e8)) | (damping[left] > 1e12)
        damping[left] *= np.where(better, 0.2, 5)
        p[left[better]], cost[left[better]] = new[better], lower[better]
        done[left] |= p[left, 2] > np.log(5 * FLAT)  # On the way to a constant.
    return p, cost, done


def _residuals(p, t, f):
    a, mu, log_s = p.T[:, :, None]
    return a * np.exp(-((f - mu) ** 2) / (2 * np.exp(2 * log_s))) - t


def _step(p, t, f, damping, highest):
    a, mu, log_s = p.T[:, :, None]
    away = (f - mu) / np.exp(log_s)
    shape = np.exp(-(away**2) / 2)
    jacobian = np.stack([shape, a * shape * away / np.exp(log_s), a * shape * away**2])
    slope = np.einsum("pvf,vf->vp", jacobian, a * shape - t)
    square = np.einsum("pvf,qvf->vpq", jacobian, jacobian)
    # At its bound and pushed outward, a stays.
    held = (p[:, 0] >= highest) & (slope[:, 0] < 0) | (p[:, 0] <= 0) & (slope[:, 0] > 0)
    slope[held, 0] = 0
    square[held, 0, 1:] = square[held, 1:, 0] = 0
    scale = np.maximum(np.einsum("vpp->vp", square), 1e-12)
    square += (damping[:, None] * scale)[:, :, None] * np.eye(3) + 1e-14 * np.eye(3)
    new = p - np.linalg.solve(square, slope[..., None])[..., 0]
    new[:, 0] = np.clip(new[:, 0], 0, highest)
    new[:, 2] = np.clip(new[:, 2], np.log(NARROWEST), np.log(WIDEST))
    return new


@functools.cache
def _grid(n: int):
    """Return mu (m), s (w) and the curves of height 1 at all of them (m w, n).

    Steps of mu are 0.1 among n points: two minima may be as near as 0.2. Minima far from
    all points are wide, so that steps grow there. Read-only.
    """
    beyond = np.geomspace(0.4, 100, 12)
    among = np.linspace(-1, n, 10 * (n + 1) + 1)
    mu = np.concatenate([-1 - beyond[::-1], among, n + beyond])
    narrow = np.geomspace(4 * NARROWEST, 4, 30, endpoint=False)
    s = np.concatenate([narrow, np.geomspace(4, 1.2 * FLAT, 15)])
    away = (np.arange(n) - mu[:, None, None]) / s[:, None]
    curves = np.exp(-(away**2) / 2).reshape(-1, n)
    for array in (mu, s, curves):
        array.flags.writeable = False
    return mu, s, curves


def _starts(values, highest):
    """Return (a, mu, log s) of the lowest minima on the grid, STARTS for each row.

    The lowest minimum is repeated where a row has fewer.
    """
    mu, s, curves = _grid(values.shape[1])
    own, with_values = (curves**2).sum(1), values @ curves.T
    a = np.clip(with_values / np.maximum(own, 1e-300), 0, highest)
    left = (a * (a * own - 2 * with_values)).reshape(-1, len(mu), len(s))
    lowest = np.where(_are_minima(left), left, np.inf).reshape(len(values), -1)
    places = np.argpartition(lowest, STARTS, axis=1)[:, :STARTS]
    squares = np.take_along_axis(lowest, places, 1)
    first = np.take_along_axis(places, squares.argmin(1)[:, None], 1)
    places = np.where(np.isfinite(squares), places, first)
    i, j = np.divmod(places, len(s))
    heights = np.take_along_axis(a, places, 1)
    return np.stack([heights, mu[i], np.log(s[j])], axis=-1).reshape(-1, 3)


def _are_minima(left: Float[np.ndarray, "v m w"]):
    """Return which cells are below all neighbours; of equal neighbours, only one is."""
    rows, columns = left.shape[1:]
    edged = np.pad(left, ((0, 0), (1, 1), (1, 1)), constant_values=np.inf)
    lowest = np.ones(left.shape, bool)
    for i, j in itertools.product(range(3), repeat=2):
        neighbours = edged[:, i : i + rows, j : j + columns]
        if (i, j) < (1, 1):
            lowest &= left < neighbours
        elif (i, j) > (1, 1):
            lowest &= left <= neighbours
    return lowest


SIGMAS = (0.0, 0.02, 0.04, 0.08, 0.16)
HIGHEST = len(SIGMAS) - 1  # Recognised without noise only, or never.
CRITERION = 50.0  # Per cent.
BEYOND = 1.0  # How far continuous thresholds may lie above the highest.
Tables = Float[np.ndarray, "*b sigmas octaves"]  # Accuracies.
Thresholds = Float[np.ndarray, "*b octaves"]

METRICS = "bandwidth", "center_frequency", "peak_noise_sensitivity"
# Why there may be no band, or none with numbers.
FLAGS = (
    "all_critical",
    "no_critical_band",
    "flat",
    "narrow",
    "center_below",
    "center_above",
    "unknown",
)
FEWEST_OCTAVES = 4  # A fit has three numbers.


@dataclasses.dataclass(frozen=True)
class CriticalBand:
    """A fitted band. The numbers are NaN where `flag` says why there are none.

    bandwidth: full width at half height, in octaves. center_frequency: nominal, in
    cycles per image. peak_noise_sensitivity: 2^(a - 4) of the height a; 1 says that a
    met its bound. residual: the sum of squares left by the fit, where there is one.
    converged: the fit ended at its minimum, and there is no flag.
    flag: "", or "all_critical" (each threshold is the highest), "no_critical_band"
    (each is 0), "flat" (nothing fits better than a constant), "narrow" (the band is narrower
    than octaves can tell, as of one threshold that is not 0), "center_below" and
    "center_above" (the centre is more than half an octave outside the octaves, where no
    threshold shows it), "unknown" (a threshold is missing).
    """

    bandwidth: float = math.nan
    center_frequency: float = math.nan
    peak_noise_sensitivity: float = math.nan
    residual: float = math.nan
    converged: bool = False
    flag: str = "unknown"


def octave_frequencies(side: int) -> tuple[float, ...]:
    """Nominal cycles per image of the octaves, ascending: at 224, 1.75 to 112.

    The highest is half the side. `pyramid.centroid` tells where the noise really is.
    """
    return tuple(side / 2**n for n in range(len(pyramid.sizes(side)), 0, -1))


def critical_band_fit(
    thresholds: Sequence[float], *, side: int = 224, highest: float = HIGHEST
) -> CriticalBand:
    """Fits a exp(-(f - mu)^2 / (2 s^2)) to the thresholds of octaves f = 0, 1, ...

    Least squares with 0 <= a <= highest. bandwidth = 2 sqrt(ln 4) s; center_frequency =
    2^mu times the lowest nominal frequency; peak_noise_sensitivity = 2^(a - 4).
    thresholds: ascending in frequency, as many as `octave_frequencies(side)`, at least four;
    NaN is unknown. ValueError where their number or a value does not fit.
    """
    octaves, where = len(octave_frequencies(side)), "critical_band_fit"
    must = f"a fit needs {FEWEST_OCTAVES} octaves, of images of 17 pixels or more"
    probe.check(octaves >= FEWEST_OCTAVES, where, must, side)
    vector = np.asarray(thresholds, float)
    must = f"images of side {side} have {octaves} octaves, and as many thresholds"
    probe.check(vector.shape == (octaves,), where, must, vector.tolist())
    beyond = (vector < 0).any() or (vector > highest).any()
    must = f"thresholds must be in [0, {highest:g}]"
    probe.check(not beyond, where, must, vector.tolist())
    return fit_bands(vector[None], side=side, highest=highest)[0]


def fit_bands(
    thresholds: Thresholds, *, side: int, highest: float = HIGHEST
) -> list[CriticalBand]:
    """Return `critical_band_fit` of many vectors; equal ones are fitted once."""
    vectors, which = np.unique(thresholds, axis=0, return_inverse=True)
    bands = [CriticalBand(flag=_flag(vector, highest)) for vector in vectors]
    varied = [i for i, band in enumerate(bands) if not band.flag]
    if varied:
        fits = zip(*fit_gaussians(vectors[varied], highest=highest))
        for i, fit in zip(varied, fits, strict=True):
            bands[i] = _band(vectors[i], *map(float, fit), octave_frequencies(side))
    return [bands[i] for i in which.reshape(-1)]


def _band(vector, a, mu, s, residual, converged, frequencies) -> CriticalBand:
    """Return the band of a fitted Gaussian, without numbers where these would mislead."""
    if s > FLAT:
        return CriticalBand(flag="flat")
    is_narrow = s <= 5 * NARROWEST or np.count_nonzero(vector) == 1
    flag = "narrow" if is_narrow else center_flag(mu, len(frequencies))
    if flag:
        return CriticalBand(residual=residual, flag=flag)
    return CriticalBand(
        bandwidth=2 * math.sqrt(math.log(4)) * s,
        center_frequency=frequencies[0] * 2**mu,
        peak_noise_sensitivity=2 ** (a - HIGHEST),
        residual=residual,
        converged=bool(converged),
        flag="",
    )


def center_flag(mu: float, octaves: int) -> str:
    """Return on which side of the octaves a centre is, or "" where it is among them.

    mu: the centre in octaves above the lowest. An octave reaches half of one to either side.
    """
    if mu < -0.5:
        return "center_below"
    return "center_above" if mu > octaves - 0.5 else ""


def flag_of_numbers(
    bandwidth: float, center_frequency: float, frequencies: Sequence[float]
) -> str:
    """Return the flag that recorded numbers of a band should have had.

    Earlier versions recorded numbers of bands that are narrow, or whose centre is outside
    the octaves. frequencies: nominal, of the octaves.
    """
    if bandwidth <= 2 * math.sqrt(math.log(4)) * 5 * NARROWEST:
        return "narrow"
    mu = math.log2(center_frequency / min(frequencies))
    return center_flag(mu, len(frequencies))


def normalised(accuracy: Tables) -> Tables:
    """In per cent of the largest in the table; NaN where all are 0."""
    largest = np.nanmax(accuracy, axis=(-2, -1), keepdims=True)
    # In this order, the half of the largest is 50, and no rounding of it.
    return 100 * decisions.ratio(accuracy, largest)


def threshold_indices(accuracy: Tables) -> Thresholds:
    """How many strengths of noise, from the largest down, come before one that passes.

    accuracy: in per cent, a row for each of SIGMAS. A strength passes above the
    criterion; at most 4, so that 4 is passed without noise only, or never. NaN where an
    accuracy of the octave is.
    """
    passes = np.flip(accuracy, axis=-2) > CRITERION
    failed = np.where(passes.any(-2), passes.argmax(-2), HIGHEST)
    return np.where(np.isnan(accuracy).any(-2), np.nan, failed)


def continuous_thresholds(accuracy: Tables) -> Thresholds:
    """Thresholds between the whole ones: where a fitted curve crosses the criterion.

    The curve is clean / (1 + exp(k (log2 sigma - m))) with clean the octave's accuracy
    without noise, fitted by least squares to the four strengths. The threshold is
    1/2 - log2(sigma / 0.16) at the crossing: rounded it is the index. It ends at 0 and
    at 5, which is also where clean accuracy does not pass. Not part of either protocol.
    """
    strength = np.log2(np.array(SIGMAS[1:]) / SIGMAS[-1])
    return np.array([_crossing(strength, column) for column in np.transpose(accuracy)])


def _crossing(strength, column):
    clean, noisy = column[0], column[1:]
    if np.isnan(column).any():
        return np.nan
    if clean <= CRITERION:
        return HIGHEST + BEYOND
    middle, slope = _logistic(strength, noisy, clean)
    crossing = middle + math.log(clean / CRITERION - 1) / 2**slope
    return float(np.clip(0.5 - crossing, 0, HIGHEST + BEYOND))


def _logistic(strength, noisy, clean) -> tuple[float, float]:
    """Return the middle m and the logarithm to base 2 of the slope k of the best curve.

    Refines the eight lowest minima on a grid, as the squares have several.
    """

    def squares(m, log_k):
        with np.errstate(over="ignore"):
            curves = clean / (1 + np.exp(2**log_k * (strength[:, None, None] - m)))
        return ((curves - noisy[:, None, None]) ** 2).sum(0)

    middles, slopes = np.linspace(-8, 8, 321)[:, None], np.linspace(-2, 4, 61)[None]
    left = squares(middles, slopes)
    rows, columns = np.nonzero(_are_minima(left[None])[0])
    ends = []
    for place in np.argsort(left[rows, columns], kind="stable")[:8]:
        middle, slope = middles[rows[place], 0], slopes[0, columns[place]]
        reach = 0.2
        for _ in range(30):
            m = middle + reach * np.linspace(-1, 1, 17)[:, None]
            log_k = np.clip(slope + reach * np.linspace(-1, 1, 17), -2, 4)[None]
            nearby = squares(m, log_k)
            i, j = np.unravel_index(nearby.argmin(), nearby.shape)
            middle, slope, reach = float(m[i, 0]), float(log_k[0, j]), reach * 0.6
        ends.append((float(nearby.min()), middle, slope))
    _, middle, slope = min(ends)
    return middle, slope


def _flag(vector, highest: float) -> str:
    if np.isnan(vector).any():
        return "unknown"
    if (vector != vector[0]).any():
        return ""
    return {0: "no_critical_band", highest: "all_critical"}.get(vector[0], "flat")


BLOCKS, BLOCK = 5, 210  # Of the original's images.
CLEAN = "noise 0"
MIXED_NOISE = "each its own noise"


def condition_name(sigma: float, frequency: float) -> str:
    """A condition's name, such as "noise 0.02 at 1.75"."""
    return f"noise {sigma:g} at {frequency:g}" if sigma else CLEAN


@functools.cache
def noise_cells(octaves: int, seed: int) -> Int[np.ndarray, "images"]:
    """The cell of the original's table that each image is drawn for, sigma by octave.

    A block of 210 images after the other, each image for any cell with the same chance.
    Image i of a set is in cell i modulo 1050. Read-only.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(SIGMAS) * octaves, size=(BLOCKS, BLOCK)).reshape(-1)
    drawn.flags.writeable = False
    return drawn


@decisions.per_rule
def bvg_numbers(
    found: decisions.ByName, *, side: int, draws: int, seed: int, continuous: bool
) -> decisions.Numbers:
    """The numbers of the variant "bvg"."""
    row = {condition: i for i, condition in enumerate(found)}
    frequencies = octave_frequencies(side)
    where = [[row[condition_name(s, f)] for f in frequencies] for s in SIGMAS]
    counts, drawn, n = accuracy.resample(found, draws=draws, seed=seed)
    told = [decisions.share("accuracy", counts[i], n, name) for name, i in row.items()]
    tables = 100 * counts[np.array(where)] / n, 100 * drawn[:, np.array(where)] / n
    of = dict(side=side, n=n, default="normalised", continuous=continuous)
    return told + _bands("critical_band", *tables, **of)


@decisions.per_rule
def original_numbers(
    found: decisions.ByName, *, side: int, sample, draws: int, seed: int, continuous
) -> decisions.Numbers:
    """The numbers of the variant "original", of so many images drawn from the set.

    Which image had which noise follows from its number in the set, the column "index".
    """
    (decided,) = found.values()
    (right,) = accuracy.correct_by_condition(found)
    index = decided.columns.get("index", np.arange(len(right)))
    chosen = np.random.default_rng(seed).permutation(len(right))[:sample]
    cells = [*itertools.product(SIGMAS, octave_frequencies(side))]
    table = noise_cells(len(cells) // len(SIGMAS), seed)
    # Of each cell, which images are decided rightly in it, and which are in it.
    inside = table[index[chosen] % len(table)] == np.arange(len(cells))[:, None]
    marks = np.concatenate([inside & right[chosen], inside])
    counts = marks.sum(1).reshape(2, -1)
    names = (f"original {sigma:g} at {f:g}" for sigma, f in cells)
    named = zip(names, counts.T, strict=True)
    told = [decisions.share("accuracy", *count, name) for name, count in named]
    drawn = accuracy.bootstrap_counts(marks, draws=draws, seed=seed)
    tables = []
    for each in (counts.ravel(), drawn):
        both = each.reshape(*each.shape[:-1], 2, len(SIGMAS), -1)
        right, shown = np.moveaxis(both, -3, 0)
        tables.append(decisions.ratio(100 * right, shown))
    of = dict(side=side, n=len(chosen), default="absolute", continuous=continuous)
    return told + _bands("critical_band_original", *tables, **of)


def _bands(prefix, table: Tables, drawn: Tables, *, side, n, default, continuous):
    """Thresholds and fits of a table, as it is and normalised, with intervals."""
    told = []

    def note(name: str, value: float) -> None:
        told.append(decisions.quantity(f"{prefix}_{name}", value, n))

    ways = {"absolute": np.asarray, "normalised": normalised}
    for way in sorted(ways, key=lambda way: way != default):
        read = ways[way]
        ending = "" if way == default else f"_{way}"
        found = threshold_indices(read(table))
        all_of = np.concatenate([found[None], threshold_indices(read(drawn))])
        fitted, *others = fit_bands(all_of, side=side)
        told += _thresholds(f"{prefix}_threshold{ending}", found, side, n)
        for metric in METRICS:
            value = getattr(fitted, metric)
            note(f"{metric}{ending}", value)
            name = f"{prefix}_{metric}{ending}"
            told += band_interval(name, metric, others, n, value=value)
        note(f"residual{ending}", fitted.residual)
        for why in FLAGS:  # Why there are no numbers: 1 where that is so.
            note(f"{why}{ending}", float(fitted.flag == why))
        if continuous:  # Between whole numbers, and the band that is fitted to them.
            ending, found = f"_continuous{ending}", continuous_thresholds(read(table))
            band = critical_band_fit(found, side=side, highest=HIGHEST + BEYOND)
            told += _thresholds(f"{prefix}_threshold{ending}", found, side, n)
            for metric in METRICS:
                note(f"{metric}{ending}", getattr(band, metric))
            for why in FLAGS:
                note(f"{why}{ending}", float(band.flag == why))
    if prefix == "critical_band":
        octaves = len(octave_frequencies(side))
        measured = [pyramid.centroid(side, octaves - 1 - f) for f in range(octaves)]
        told += _thresholds(f"{prefix}_centroid", measured, side, n)
    return told


def band_interval(
    name: str, metric: str, bands: list[CriticalBand], n: int, *, value: float
) -> decisions.Numbers:
    """Return the bootstrap interval of a number over the drawn bands.

    Draws whose band has no numbers are left out, and their share is told. But a centre
    outside the octaves is below or above all others: an end of the centre's interval
    that falls on such draws is None. value: of the images themselves; where it is
    undefined (NaN), both ends are None.
    """
    values = np.array([getattr(band, metric) for band in bands])
    lower, upper, undefined = accuracy.bootstrap_interval(name, values, n, value=value)
    if metric != "center_frequency" or np.isnan(value):
        return [lower, upper, undefined]
    outside = {"center_below": -_OUTSIDE, "center_above": _OUTSIDE}
    values = np.array([outside.get(band.flag, band.center_frequency) for band in bands])
    values = values[~np.isnan(values)]
    if np.isin(values, (-_OUTSIDE, _OUTSIDE)).any():
        ends = np.quantile(values, accuracy.INTERVAL_QUANTILES)
        low, high = (x if 0 <= x < math.sqrt(_OUTSIDE) else None for x in ends)
        lower = decisions.quantity(lower.metric, low, n)
        upper = decisions.quantity(upper.metric, high, n)
    return [lower, upper, undefined]


_OUTSIDE = 1e100  # Of any frequency.


def _thresholds(metric, values, side, n) -> decisions.Numbers:
    names = (f"noise at {frequency:g}" for frequency in octave_frequencies(side))
    return [decisions.quantity(metric, x, n, name) for x, name in zip(values, names)]
