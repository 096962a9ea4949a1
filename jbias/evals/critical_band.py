"""The critical band: which frequencies of noise keep a network from recognising.

Noise of one octave at a time is added at growing strength. An octave's threshold is the
number of strengths that do harm; a Gaussian fitted to the thresholds over octaves has a
width, a centre and a height, which are the numbers of the band.

Source: Subramanian, Sizikova, Majaj and Pelli, NeurIPS 2023,
https://arxiv.org/abs/2309.13190 ("original"); Gavrikov and Keuper, CVPR 2024,
https://arxiv.org/abs/2404.01509 ("bvg"), whose code is at
https://github.com/paulgavrikov/biases_vs_generalization. Deviation: where no threshold
differs from the others there is no band, and none is printed.

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
STARTS, ROUNDS, TOLERANCE = 5, 400, 1e-12


def fit_gaussians(
    values: Float[np.ndarray, "v f"], *, highest: float
) -> tuple[Float[np.ndarray, "v"], ...]:
    """Fits a exp(-(f - mu)^2 / (2 s^2)) to each row of values, in float64.

    Returns a, mu, s, the squares left and `converged`, each (v). Minimises the squares over
    0 <= a <= highest, mu and s.

    Levenberg and Marquardt's method with a projected, from the lowest minima on a grid
    of (mu, s) with the best a at each; the best end of all starts is told. converged:
    no step was left that lowers the squares by a share of 1e-12, and s is neither less
    than the points can tell nor so large that the curve is flat.
    """
    values = np.asarray(values, float)
    t, f = np.repeat(values, STARTS, axis=0), np.arange(values.shape[1])
    p = np.concatenate([_starts(row, f, highest) for row in values])
    damping, done = np.full(len(t), 1e-3), np.zeros(len(t), bool)
    cost = (_residuals(p, t, f) ** 2).sum(1)
    for _ in range(ROUNDS):
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
    best = cost.reshape(-1, STARTS).argmin(1) + STARTS * np.arange(len(values))
    a, mu, log_s = p[best].T
    s = np.exp(log_s)
    converged = done[best] & (s > 5 * NARROWEST) & (s < FLAT)
    return a, mu, s, cost[best], converged


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


def _starts(t, f, highest):
    """The lowest minima on a grid, and (1, 0, 1), where the references start."""
    n = len(f)
    mu = np.linspace(-n, 2 * n, 6 * n + 1)
    s = np.geomspace(0.2, 20, 24)
    shape = np.exp(-((f - mu[:, None, None]) ** 2) / (2 * s[:, None] ** 2))
    own, with_t = (shape**2).sum(-1), (shape * t).sum(-1)
    a = np.clip(with_t / np.maximum(own, 1e-300), 0, highest)
    left = a**2 * own - 2 * a * with_t
    edged = np.pad(left, 1, constant_values=np.inf)
    near = np.lib.stride_tricks.sliding_window_view(edged, (3, 3)).min((2, 3))
    i, j = np.nonzero(left <= near)
    order = np.argsort(left[i, j], kind="stable")[: STARTS - 1]
    found = np.stack([a[i, j], mu[i], np.log(s[j])], 1)[order]
    return np.resize(np.concatenate([[[1.0, 0.0, 0.0]], found]), (STARTS, 3))


SIGMAS = (0.0, 0.02, 0.04, 0.08, 0.16)
HIGHEST = len(SIGMAS) - 1  # Recognised without noise only, or never.
CRITERION = 50.0  # Per cent.
BEYOND = 1.0  # How far continuous thresholds may lie above the highest.
Tables = Float[np.ndarray, "*b sigmas octaves"]  # Accuracies.
Thresholds = Float[np.ndarray, "*b octaves"]

METRICS = "bandwidth", "center_frequency", "peak_noise_sensitivity"
# Why there may be no band.
FLAGS = ("all_critical", "no_critical_band", "flat", "unknown")


@dataclasses.dataclass(frozen=True)
class CriticalBand:
    """A fitted band. The numbers are NaN where `flag` says why there is none.

    bandwidth: full width at half height, in octaves. center_frequency: nominal, in
    cycles per image. peak_noise_sensitivity: 2^(a - 4) of the height a; 1 says that a
    met its bound. residual: the sum of squares left. converged: of the fit; False where
    the band is narrower than the octaves can tell.
    flag: "", or "all_critical" (each threshold is the highest), "no_critical_band"
    (each is 0), "flat" (nothing fits better than a constant), "unknown" (a threshold is
    missing).
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
    thresholds: ascending in frequency, as many as `octave_frequencies(side)`; NaN is unknown.
    ValueError where their number or a value does not fit.
    """
    octaves, where = len(octave_frequencies(side)), "critical_band_fit"
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
    """`critical_band_fit` of many vectors at once; equal ones are fitted once."""
    vectors, which = np.unique(thresholds, axis=0, return_inverse=True)
    fitted = [CriticalBand(flag=_flag(vector, highest)) for vector in vectors]
    left = [i for i, band in enumerate(fitted) if not band.flag]
    found = fit_gaussians(vectors[left], highest=highest) if left else ()
    for i, *fit, converged in zip(left, *found):
        a, mu, s, residual = map(float, fit)
        fitted[i] = CriticalBand(flag="flat")
        if s <= FLAT:
            width = 2 * math.sqrt(math.log(4)) * s
            of = width, octave_frequencies(side)[0] * 2**mu, 2 ** (a - HIGHEST)
            fitted[i] = CriticalBand(*of, residual, bool(converged), "")
    return [fitted[i] for i in which.reshape(-1)]


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
    middle, slope = 0.0, 1.0  # The slope's logarithm to base 2.
    reach_middle, reach_slope = 8.0, 3.0
    for _ in range(12):  # A grid, closer around its best point every time.
        m = middle + reach_middle * np.linspace(-1, 1, 33)[:, None]
        k = np.clip(slope + reach_slope * np.linspace(-1, 1, 33), -2, 4)[None]
        curve = clean / (1 + np.exp(2**k * (strength[:, None, None] - m)))
        left = ((curve - noisy[:, None, None]) ** 2).sum(0)
        i, j = np.unravel_index(left.argmin(), left.shape)
        middle, slope = m[i, 0], k[0, j]
        reach_middle, reach_slope = reach_middle / 3, reach_slope / 3
    crossing = middle + math.log(clean / CRITERION - 1) / 2**slope
    return float(np.clip(0.5 - crossing, 0, HIGHEST + BEYOND))


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


@decisions.by_rule
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


@decisions.by_rule
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
            note(f"{metric}{ending}", getattr(fitted, metric))
            values = np.array([getattr(other, metric) for other in others])
            told += accuracy.bootstrap_interval(told[-1].metric, values, n)
        note(f"residual{ending}", fitted.residual)
        for why in FLAGS:  # Why there is no band, if there is none: 1 where that is so.
            note(f"{why}{ending}", float(fitted.flag == why))
        if continuous:  # Between whole numbers, and the band that is fitted to them.
            ending, found = f"_continuous{ending}", continuous_thresholds(read(table))
            band = critical_band_fit(found, side=side, highest=HIGHEST + BEYOND)
            told += _thresholds(f"{prefix}_threshold{ending}", found, side, n)
            for metric in METRICS:
                note(f"{metric}{ending}", getattr(band, metric))
    if prefix == "critical_band":
        octaves = len(octave_frequencies(side))
        measured = [pyramid.centroid(side, octaves - 1 - f) for f in range(octaves)]
        told += _thresholds(f"{prefix}_centroid", measured, side, n)
    return told


def _thresholds(metric, values, side, n) -> decisions.Numbers:
    names = (f"noise at {frequency:g}" for frequency in octave_frequencies(side))
    return [decisions.quantity(metric, x, n, name) for x, name in zip(values, names)]
