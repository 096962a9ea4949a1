"""Metrics of the critical band: the frequencies at which noise prevents recognition.

Noise of one octave at a time is added at growing strength. An octave's threshold is the
number of strengths that prevent recognition; the width, centre and height of a Gaussian
fitted to the thresholds over octaves are the metrics of the band.

Source: Subramanian, Sizikova, Majaj and Pelli, NeurIPS 2023,
https://arxiv.org/abs/2309.13190 ("original"); Gavrikov and Keuper, CVPR 2024,
https://arxiv.org/abs/2404.01509 ("bvg"), whose code is at
https://github.com/paulgavrikov/biases_vs_generalization. Deviations: no band is reported
if all thresholds are equal, and metrics are undefined if the fitted band is narrower than octaves
can resolve or has its centre outside the octaves.

"bvg" shows every image under every noise, uses accuracies relative to the largest, and its
metrics are called critical_band_... "original" shows each image once, under noise drawn for the
image, uses absolute accuracies, and its metrics are called critical_band_original_... "bvg" also
has metrics from absolute accuracies, called ..._absolute, and "original" from relative
accuracies, called ..._normalised.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias import errors
from jbias.measures import accuracy, decisions, pyramid

NARROWEST, FLAT, WIDEST = 0.05, 100.0, 1e4  # Of s, in steps between points.
STARTS, ROUNDS, TOLERANCE = 8, 200, 1e-12
_VECTORS_AT_ONCE = 256


class GaussianFits(NamedTuple):
    """Gaussians a exp(-(f - mu)^2 / (2 s^2)), one per row of values, in float64."""

    a: Float[np.ndarray, "v"]
    mu: Float[np.ndarray, "v"]
    s: Float[np.ndarray, "v"]
    squares: Float[np.ndarray, "v"]  # Sum of squared residuals.
    # No further step lowers the squares by a share of 1e-12, and s is neither smaller than the
    # points can resolve nor so large that the curve is flat.
    converged: Bool[np.ndarray, "v"]


def fit_gaussians(values: Float[np.ndarray, "v f"], *, highest: float) -> GaussianFits:
    """Fit a Gaussian to each row of values, which are at f = 0, 1, ..., by least squares.

    The sum of squared residuals is minimised over 0 <= a <= highest, mu and s.

    The squares have several minima. Levenberg and Marquardt's method, with a projection of a,
    starts from the lowest eight minima on a grid of (mu, s) with the best a at each, and the
    lowest result is returned; s is 10,000 if a constant fits as well.
    `tests/measures/test_critical_band.py` compares with scipy's optimisers and, for all
    thresholds of four and five octaves, with a finer grid.
    """
    values = np.asarray(values, float)
    firsts = range(0, len(values), _VECTORS_AT_ONCE)
    fits = [_fit(values[i : i + _VECTORS_AT_ONCE], highest) for i in firsts]
    return GaussianFits(*map(np.concatenate, zip(*fits, strict=True)))


def _fit(values: Float[np.ndarray, "v f"], highest: float) -> GaussianFits:
    """Return the result of `fit_gaussians` for up to _VECTORS_AT_ONCE rows of values."""
    starts = _starts(values, highest)
    p, cost, done = _descend(
        starts, np.repeat(values, STARTS, axis=0), highest, rounds=ROUNDS
    )
    best = cost.reshape(-1, STARTS).argmin(1) + STARTS * np.arange(len(values))
    p, cost, done = p[best], cost[best], done[best]
    (slow,) = np.nonzero(~done & (p[:, 2] < np.log(FLAT)))
    if len(slow):
        continued = _descend(p[slow], values[slow], highest, rounds=50 * ROUNDS)
        p[slow], cost[slow], done[slow] = continued
    level = np.clip(values.mean(1), 0, highest)
    constant = ((values - level[:, None]) ** 2).sum(1)
    (flat,) = np.nonzero(cost >= constant)
    middle = np.full(len(flat), (values.shape[1] - 1) / 2)
    widest = np.full(len(flat), np.log(WIDEST))
    p[flat], cost[flat] = np.stack([level[flat], middle, widest], 1), constant[flat]
    a, mu, log_s = p.T
    s = np.exp(log_s)
    converged = done & (s > 5 * NARROWEST) & (s < FLAT)
    return GaussianFits(a, mu, s, squares=cost, converged=converged)


def _descend(
    p: Float[np.ndarray, "v 3"],
    t: Float[np.ndarray, "v f"],
    highest: float,
    *,
    rounds: int,
) -> tuple[Float[np.ndarray, "v 3"], Float[np.ndarray, "v"], Bool[np.ndarray, "v"]]:
    """Return (parameters, sum of squares, whether the search ended) after at most `rounds` steps.

    The search ends at a minimum, if no step lowers the squares, or if the curve becomes flat.
    p: starting values of (a, mu, log s), one row per row of the values t. highest: bound of a.
    """
    p, f = p.copy(), np.arange(t.shape[1])
    damping, done = np.full(len(t), 1e-3), np.zeros(len(t), bool)
    cost = (_residuals(p, t, f) ** 2).sum(1)
    for _ in range(rounds):
        (active,) = np.nonzero(~done)
        if not len(active):
            break
        new = _step(p[active], t[active], f, damping[active], highest)
        new_cost = (_residuals(new, t[active], f) ** 2).sum(1)
        is_lower = new_cost < cost[active]
        gain = cost[active] - new_cost
        is_small = abs(gain) <= TOLERANCE * cost[active] + 1e-16
        is_stuck = damping[active] > 1e12
        done[active] = is_small & (is_lower | (damping[active] > 1e8)) | is_stuck
        damping[active] *= np.where(is_lower, 0.2, 5)
        improved = active[is_lower]
        p[improved], cost[improved] = new[is_lower], new_cost[is_lower]
        done[active] |= p[active, 2] > np.log(5 * FLAT)  # Tends to a constant.
    return p, cost, done


def _residuals(
    p: Float[np.ndarray, "v 3"],
    t: Float[np.ndarray, "v f"],
    f: Int[np.ndarray, "f"],
) -> Float[np.ndarray, "v f"]:
    """Return the Gaussians with parameters p (a, mu, log s) at points f, minus the values t."""
    a, mu, log_s = p.T[:, :, None]
    return a * np.exp(-((f - mu) ** 2) / (2 * np.exp(2 * log_s))) - t


def _step(
    p: Float[np.ndarray, "v 3"],
    t: Float[np.ndarray, "v f"],
    f: Int[np.ndarray, "f"],
    damping: Float[np.ndarray, "v"],
    highest: float,
) -> Float[np.ndarray, "v 3"]:
    """Return the parameters p after one step of Levenberg and Marquardt's method.

    damping: by row, the damping of the step. highest: bound of a. Other arguments: see
    `_residuals`.
    """
    a, mu, log_s = p.T[:, :, None]
    distance = (f - mu) / np.exp(log_s)
    shape = np.exp(-(distance**2) / 2)
    jacobian = np.stack(
        [shape, a * shape * distance / np.exp(log_s), a * shape * distance**2]
    )
    slope = np.einsum("pvf,vf->vp", jacobian, a * shape - t)
    square = np.einsum("pvf,qvf->vpq", jacobian, jacobian)
    # At its bound and pushed outward, a does not change.
    at_highest = (p[:, 0] >= highest) & (slope[:, 0] < 0)
    is_fixed = at_highest | (p[:, 0] <= 0) & (slope[:, 0] > 0)
    slope[is_fixed, 0] = 0
    square[is_fixed, 0, 1:] = square[is_fixed, 1:, 0] = 0
    scale = np.maximum(np.einsum("vpp->vp", square), 1e-12)
    square += (damping[:, None] * scale)[:, :, None] * np.eye(3) + 1e-14 * np.eye(3)
    new = p - np.linalg.solve(square, slope[..., None])[..., 0]
    new[:, 0] = np.clip(new[:, 0], 0, highest)
    new[:, 2] = np.clip(new[:, 2], np.log(NARROWEST), np.log(WIDEST))
    return new


@functools.cache
def _grid(
    n: int,
) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "w"], Float[np.ndarray, "m*w n"]]:
    """Return (values of mu, values of s, Gaussians of height 1 for all pairs at n points).

    Steps of mu are 0.1 among n points: two minima may be as near as 0.2. Minima far from
    all points are wide, so that steps are larger there. The arrays are read-only.
    """
    outside = np.geomspace(0.4, 100, 12)
    among = np.linspace(-1, n, 10 * (n + 1) + 1)
    mu = np.concatenate([-1 - outside[::-1], among, n + outside])
    narrow = np.geomspace(4 * NARROWEST, 4, 30, endpoint=False)
    s = np.concatenate([narrow, np.geomspace(4, 1.2 * FLAT, 15)])
    distance = (np.arange(n) - mu[:, None, None]) / s[:, None]
    curves = np.exp(-(distance**2) / 2).reshape(-1, n)
    for array in (mu, s, curves):
        array.flags.writeable = False
    return mu, s, curves


def _starts(
    values: Float[np.ndarray, "v f"], highest: float
) -> Float[np.ndarray, "v*starts 3"]:
    """Return starting points (a, mu, log s) of the fits, STARTS for each row of values.

    The points of values[i] are the rows from STARTS * i on, in any order: the local minima with the
    smallest sums of squared residuals on the grid of (mu, s), with the best a in [0, highest] at
    each grid point. If a row of values has fewer minima, its lowest minimum is repeated.
    """
    mu, s, curves = _grid(values.shape[1])
    curve_squares, products = (curves**2).sum(1), values @ curves.T
    a = np.clip(products / np.maximum(curve_squares, 1e-300), 0, highest)
    # The sum of squared residuals, minus the sum of squared values.
    cost = (a * (a * curve_squares - 2 * products)).reshape(-1, len(mu), len(s))
    lowest = np.where(_are_minima(cost), cost, np.inf).reshape(len(values), -1)
    places = np.argpartition(lowest, STARTS, axis=1)[:, :STARTS]
    squares = np.take_along_axis(lowest, places, 1)
    first = np.take_along_axis(places, squares.argmin(1)[:, None], 1)
    places = np.where(np.isfinite(squares), places, first)
    i, j = np.divmod(places, len(s))
    heights = np.take_along_axis(a, places, 1)
    return np.stack([heights, mu[i], np.log(s[j])], axis=-1).reshape(-1, 3)


def _are_minima(cost: Float[np.ndarray, "v m w"]) -> Bool[np.ndarray, "v m w"]:
    """Return True for each cell below its eight neighbours; for the first only, if cells tie."""
    rows, columns = cost.shape[1:]
    padded = np.pad(cost, ((0, 0), (1, 1), (1, 1)), constant_values=np.inf)
    are_lowest = np.ones(cost.shape, bool)
    for i, j in itertools.product(range(3), repeat=2):
        neighbours = padded[:, i : i + rows, j : j + columns]
        if (i, j) < (1, 1):
            are_lowest &= cost < neighbours
        elif (i, j) > (1, 1):
            are_lowest &= cost <= neighbours
    return are_lowest


SIGMAS = (0.0, 0.02, 0.04, 0.08, 0.16)
HIGHEST = (
    len(SIGMAS) - 1
)  # Threshold if images are recognised without noise only, or never.
CRITERION = 50.0  # Per cent.
BEYOND = 1.0  # Maximum of continuous thresholds, above HIGHEST.
Tables = Float[np.ndarray, "*b sigmas octaves"]  # Accuracies in per cent.
Thresholds = Float[
    np.ndarray, "*b octaves"
]  # In 0 ... HIGHEST (+ BEYOND); NaN: unknown.

METRICS = "bandwidth", "center_frequency", "peak_noise_sensitivity"
# Reasons for a band without numbers.
FLAGS = (
    "all_critical",
    "no_critical_band",
    "flat",
    "narrow",
    "center_below",
    "center_above",
    "unknown",
)
FEWEST_OCTAVES = 4  # A fit has three parameters.


@dataclasses.dataclass(frozen=True)
class CriticalBand:
    """The fitted critical band; its metrics are NaN if `flag` is not "".

    bandwidth: full width at half height, in octaves. center_frequency: nominal, in
    cycles per image. peak_noise_sensitivity: 2^(a - 4) for height a. At most 1 for whole
    thresholds, whose a is at most 4; continuous thresholds allow a up to 5.
    residual: the sum of squared residuals, if there is a fit. converged: whether the fit
    ended at a minimum, without a flag.
    flag: "", or the reason why there are no numbers:
      "all_critical": all thresholds are the highest;
      "no_critical_band": all thresholds are 0;
      "flat": all thresholds are equal, above 0 and below the highest, or the fitted curve is as
      good as constant;
      "narrow": the band is narrower than octaves can resolve, for instance with a single
        threshold above 0;
      "center_below", "center_above": the centre is more than half an octave outside the
        octaves, where there is no threshold;
      "unknown": a threshold is missing.
    """

    bandwidth: float = math.nan
    center_frequency: float = math.nan
    peak_noise_sensitivity: float = math.nan
    residual: float = math.nan
    converged: bool = False
    flag: str = "unknown"


def octave_frequencies(side: int) -> tuple[float, ...]:
    """Return the nominal frequencies of the octaves in cycles per image, ascending.

    side: image side in pixels; for 224: 1.75 to 112. The highest frequency is half the side.
    `pyramid.centroid` returns the mean frequency of the noise.
    """
    return tuple(side / 2**n for n in range(len(pyramid.sizes(side)), 0, -1))


def critical_band_fit(
    thresholds: Sequence[float], *, side: int = 224, highest: float = HIGHEST
) -> CriticalBand:
    """Return the band fitted to the thresholds of octaves f = 0, 1, ...

    Fits a exp(-(f - mu)^2 / (2 s^2)) by least squares with 0 <= a <= highest. bandwidth =
    2 sqrt(ln 4) s; center_frequency = 2^mu times the lowest nominal frequency;
    peak_noise_sensitivity = 2^(a - 4). thresholds: in 0 ... highest, ascending in frequency,
    one for each of `octave_frequencies(side)`; NaN is unknown. side: image side in pixels.
    ValueError for a side below 17, which has fewer than four octaves, for another number of
    thresholds, and for a threshold out of range.
    """
    octaves, where = len(octave_frequencies(side)), "critical_band_fit"
    if octaves < FEWEST_OCTAVES:
        needs = f"a fit needs {FEWEST_OCTAVES} octaves, of images of 17 pixels or more"
        raise ValueError(f"{where}: {needs}, got {side}")
    vector = np.asarray(thresholds, float)
    if vector.shape != (octaves,):
        needs = f"images of side {side} have {octaves} octaves, and as many thresholds"
        raise ValueError(f"{where}: {needs}, got {vector.tolist()}")
    is_outside = (vector < 0).any() or (vector > highest).any()
    must = f"be in [0, {highest:g}]"
    errors.check(not is_outside, where, must, vector.tolist(), name="thresholds")
    return fit_bands(vector[None], side=side, highest=highest)[0]


def fit_bands(
    thresholds: Thresholds, *, side: int, highest: float = HIGHEST
) -> list[CriticalBand]:
    """Return one band for each row of thresholds, as from `critical_band_fit`, without checks.

    thresholds: one row per band. side: image side in pixels. Equal rows are fitted once.
    """
    vectors, row_of_vector = np.unique(thresholds, axis=0, return_inverse=True)
    bands = [CriticalBand(flag=_flag(vector, highest)) for vector in vectors]
    varied = [i for i, band in enumerate(bands) if not band.flag]
    if varied:
        fits = zip(*fit_gaussians(vectors[varied], highest=highest))
        for i, (a, mu, s, residual, converged) in zip(varied, fits, strict=True):
            bands[i] = _make_band(
                vectors[i],
                float(a),
                float(mu),
                float(s),
                residual=float(residual),
                converged=bool(converged),
                frequencies=octave_frequencies(side),
            )
    return [bands[i] for i in row_of_vector.reshape(-1)]


def _make_band(
    vector: Float[np.ndarray, "octaves"],
    a: float,
    mu: float,
    s: float,
    *,
    residual: float,
    converged: bool,
    frequencies: Sequence[float],
) -> CriticalBand:
    """Return the band of a fitted Gaussian.

    With the flag "narrow", "center_below" or "center_above", only `residual` is a number; with
    the flag "flat", for s above FLAT, no field is a number. vector: thresholds. a, mu, s: height,
    centre and width, of `fit_gaussians`. residual: sum of squares. frequencies: nominal frequencies
    of the octaves, in cycles per image.
    """
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
        converged=converged,
        flag="",
    )


def center_flag(mu: float, octaves: int) -> str:
    """Return "center_below" or "center_above" for a centre outside of the octaves, else "".

    mu: the centre in octaves above the lowest octave. octaves: the number of octaves. Each octave
    extends half an octave to both sides of its frequency.
    """
    if mu < -0.5:
        return "center_below"
    return "center_above" if mu > octaves - 0.5 else ""


def flag_of_numbers(
    bandwidth: float, center_frequency: float, frequencies: Sequence[float]
) -> str:
    """Return "narrow", "center_below", "center_above" or "" for a band's recorded numbers.

    Earlier versions recorded numbers also for narrow bands, and for bands with a centre
    outside the octaves. bandwidth: in octaves. center_frequency: in cycles per image.
    frequencies: the octaves' frequencies, in cycles per image.
    """
    if bandwidth <= 2 * math.sqrt(math.log(4)) * 5 * NARROWEST:
        return "narrow"
    mu = math.log2(center_frequency / min(frequencies))
    return center_flag(mu, len(frequencies))


def normalised(accuracy: Tables) -> Tables:
    """Return accuracies in per cent of the largest in each table; NaN if all are 0."""
    largest = np.nanmax(accuracy, axis=(-2, -1), keepdims=True)
    # In this order, half of the largest is exactly 50.
    return 100 * decisions.ratio(accuracy, largest)


def threshold_indices(accuracy: Tables) -> Thresholds:
    """Return each octave's threshold: the number of noise levels that prevent recognition.

    These are the levels above the strongest level that passes.

    accuracy: in per cent, one row for each of the noise levels SIGMAS. A level passes if its
    accuracy is above CRITERION. Thresholds are whole numbers from 0 to 4; 4 means that no level
    passes except, possibly, the level without noise. NaN if an accuracy of the octave is NaN.
    """
    passes = np.flip(accuracy, axis=-2) > CRITERION
    num_failed = np.where(passes.any(-2), passes.argmax(-2), HIGHEST)
    return np.where(np.isnan(accuracy).any(-2), np.nan, num_failed)


def continuous_thresholds(accuracy: Tables) -> Thresholds:
    """Return continuous thresholds: the noise at which a fitted curve crosses CRITERION.

    accuracy: one table, in per cent, with one row for each of SIGMAS; an octave with NaN has
    the threshold NaN. The curve is clean / (1 + exp(k (log2 sigma - m))), with clean the
    octave's accuracy without noise, fitted by least squares to the four strengths. The
    threshold is 1/2 - log2(sigma / 0.16) at the crossing, clipped to 0 ... 5, and 5 if the
    accuracy without noise does not pass. Rounded to a whole number, the threshold equals that
    from `threshold_indices`. These thresholds are part of neither protocol.
    """
    strength = np.log2(np.array(SIGMAS[1:]) / SIGMAS[-1])
    return np.array([_crossing(strength, column) for column in np.transpose(accuracy)])


def _crossing(
    strength: Float[np.ndarray, "4"], column: Float[np.ndarray, "5"]
) -> float:
    """Return the continuous threshold of an octave, in 0 ... HIGHEST + BEYOND.

    The threshold is 0.5 minus the strength at which the curve of `_logistic` is CRITERION, clipped
    to this range; the highest value if the accuracy without noise is at most CRITERION; NaN if an
    accuracy is NaN. strength: log2(sigma / 0.16) of the four noises. column: accuracies in per
    cent by sigma, the first without noise.
    """
    clean, noisy = column[0], column[1:]
    if np.isnan(column).any():
        return np.nan
    if clean <= CRITERION:
        return HIGHEST + BEYOND
    middle, slope = _logistic(strength, noisy, clean)
    crossing = middle + math.log(clean / CRITERION - 1) / 2**slope
    return float(np.clip(0.5 - crossing, 0, HIGHEST + BEYOND))


def _logistic(
    strength: Float[np.ndarray, "4"], noisy: Float[np.ndarray, "4"], clean: float
) -> tuple[float, float]:
    """Return (m, log2 k) of the least-squares fit clean / (1 + exp(k (strength - m))) to `noisy`.

    noisy, clean: accuracies with each noise and without. Refines the eight lowest minima on a
    grid, as the squares have several minima.
    """

    def squares(
        m: Float[np.ndarray, "i 1"], log_k: Float[np.ndarray, "1 j"]
    ) -> Float[np.ndarray, "i j"]:
        """Return the sum of squared residuals for all pairs of m and log2 k."""
        with np.errstate(over="ignore"):
            curves = clean / (1 + np.exp(2**log_k * (strength[:, None, None] - m)))
        return ((curves - noisy[:, None, None]) ** 2).sum(0)

    middles, slopes = np.linspace(-8, 8, 321)[:, None], np.linspace(-2, 4, 61)[None]
    cost = squares(middles, slopes)
    rows, columns = np.nonzero(_are_minima(cost[None])[0])
    results = []
    for place in np.argsort(cost[rows, columns], kind="stable")[:8]:
        middle, slope = middles[rows[place], 0], slopes[0, columns[place]]
        radius = 0.2
        for _ in range(30):
            m = middle + radius * np.linspace(-1, 1, 17)[:, None]
            log_k = np.clip(slope + radius * np.linspace(-1, 1, 17), -2, 4)[None]
            nearby = squares(m, log_k)
            i, j = np.unravel_index(nearby.argmin(), nearby.shape)
            middle, slope, radius = float(m[i, 0]), float(log_k[0, j]), radius * 0.6
        results.append((float(nearby.min()), middle, slope))
    _, middle, slope = min(results)
    return middle, slope


def _flag(vector: Float[np.ndarray, "octaves"], highest: float) -> str:
    """Return the flag of thresholds to which no Gaussian can be fitted, else "".

    "unknown" with NaN; "no_critical_band", "all_critical" or "flat" if all are equal.
    """
    if np.isnan(vector).any():
        return "unknown"
    if (vector != vector[0]).any():
        return ""
    return {0: "no_critical_band", highest: "all_critical"}.get(vector[0], "flat")


NUM_BLOCKS, BLOCK_SIZE = 5, 210  # Of the original's images.
CLEAN = "noise 0"
MIXED_NOISE = "each its own noise"


def condition_name(sigma: float, frequency: float) -> str:
    """Return a condition's name, such as "noise 0.02 at 1.75"; CLEAN for sigma 0.

    sigma: strength of the noise. frequency: the octave's nominal frequency, in cycles per image.
    """
    return f"noise {sigma:g} at {frequency:g}" if sigma else CLEAN


@functools.cache
def noise_cells(octaves: int, seed: int) -> Int[np.ndarray, "images"]:
    """Return the noise of each of 1050 images in the variant "original", as a cell index.

    Cell i octaves + f is strength SIGMAS[i] in octave f; cells are drawn with equal
    probability. Image i of a set has entry i modulo 1050. octaves: the number of octaves. The
    array is read-only.
    """
    rng = np.random.default_rng(seed)
    size = (NUM_BLOCKS, BLOCK_SIZE)
    drawn = rng.integers(len(SIGMAS) * octaves, size=size).reshape(-1)
    drawn.flags.writeable = False
    return drawn


@decisions.per_rule
def bvg_numbers(
    by_condition: decisions.ByName,
    *,
    side: int,
    draws: int,
    seed: int,
    continuous: bool,
) -> decisions.Numbers:
    """Return the metrics of the variant "bvg": accuracies, thresholds and bands.

    by_condition: decisions by `condition_name`, of all strengths and octaves. Metrics are
    "accuracy" of each condition, then the metrics of `_band_numbers` with the prefix
    critical_band.
    side: image side in pixels. draws, seed: number of samples and random seed of the bootstrap
    over images. continuous: whether to include continuous thresholds. ValueError as
    `accuracy.correct_by_condition` raises.
    """
    row = {condition: i for i, condition in enumerate(by_condition)}
    frequencies = octave_frequencies(side)
    table_rows = np.array(
        [[row[condition_name(s, f)] for f in frequencies] for s in SIGMAS]
    )
    counts, drawn, n = accuracy.resample(by_condition, draws=draws, seed=seed)
    accuracies = [
        decisions.share("accuracy", counts[i], n, name) for name, i in row.items()
    ]
    return accuracies + _band_numbers(
        "critical_band",
        100 * counts[table_rows] / n,
        100 * drawn[:, table_rows] / n,
        side=side,
        n=n,
        default="normalised",
        continuous=continuous,
    )


@decisions.per_rule
def original_numbers(
    by_condition: decisions.ByName,
    *,
    side: int,
    sample: int | None,
    draws: int,
    seed: int,
    continuous: bool,
) -> decisions.Numbers:
    """Return the metrics of the variant "original": accuracies, thresholds and bands.

    by_condition: decisions under the only condition, MIXED_NOISE. Metrics are "accuracy" of
    each noise, with conditions such as "original 0.02 at 1.75", then the metrics of
    `_band_numbers` with the prefix critical_band_original. sample: the number of images to use,
    drawn from the set (all, if it has fewer); None: all. The noise of an image follows from its
    number in the set, the column "index"; without that column, images are numbered in their
    order. side: image side in pixels. draws: bootstrap samples of the images. seed: random seed
    of noise, sample and bootstrap. continuous: whether to include continuous thresholds.
    """
    (decided,) = by_condition.values()
    (is_right,) = accuracy.correct_by_condition(by_condition)
    index = decided.columns.get("index", np.arange(len(is_right)))
    chosen = np.random.default_rng(seed).permutation(len(is_right))[:sample]
    cells = [*itertools.product(SIGMAS, octave_frequencies(side))]
    cell_of_image = noise_cells(len(cells) // len(SIGMAS), seed)
    cell_of_chosen = cell_of_image[index[chosen] % len(cell_of_image)]
    is_in_cell = cell_of_chosen == np.arange(len(cells))[:, None]
    # For each cell its correct images, then for each cell all of its images.
    marks = np.concatenate([is_in_cell & is_right[chosen], is_in_cell])
    counts = marks.sum(1)
    num_correct, num_shown = counts.reshape(2, -1)
    accuracies = [
        decisions.share(
            "accuracy", num_correct[i], num_shown[i], f"original {s:g} at {f:g}"
        )
        for i, (s, f) in enumerate(cells)
    ]
    drawn = accuracy.bootstrap_counts(marks, draws=draws, seed=seed)
    return accuracies + _band_numbers(
        "critical_band_original",
        _to_table(counts),
        _to_table(drawn),
        side=side,
        n=len(chosen),
        default="absolute",
        continuous=continuous,
    )


def _to_table(counts: Int[np.ndarray, "*b c"]) -> Tables:
    """Return accuracies in per cent by sigma and octave; NaN for cells without images.

    counts: along the last axis, the numbers of correct images by cell, then the numbers of all
    images by cell.
    """
    by_cell = counts.reshape(*counts.shape[:-1], 2, len(SIGMAS), -1)
    num_correct, num_shown = np.moveaxis(by_cell, -3, 0)
    return decisions.ratio(100 * num_correct, num_shown)


def _band_numbers(
    prefix: str,
    table: Tables,
    drawn: Tables,
    *,
    side: int,
    n: int,
    default: str,
    continuous: bool,
) -> decisions.Numbers:
    """Return thresholds and bands from absolute and from normalised accuracies.

    prefix: start of the metrics' names. table: accuracies in per cent; drawn: the same for
    bootstrap samples, for intervals. side: image side in pixels. n: the number of images.
    default: "absolute" or "normalised"; the names of metrics from these accuracies have no
    ending. Metrics from the other kind of accuracy end in "_normalised" or "_absolute".
    continuous: whether to include continuous thresholds and their bands, without intervals, as
    ..._continuous.

    Metrics, each after the prefix: threshold, with the condition "noise at <frequency>" of
    each octave; each of METRICS, with _lower, _upper and _undefined; residual; each of FLAGS,
    1 if the band has this flag, else 0. With the prefix "critical_band" the mean frequency of each
    octave's noise is included, as critical_band_centroid.
    """
    numbers = []

    def add(name: str, value: float) -> None:
        """Append a number of the whole set."""
        numbers.append(decisions.quantity(f"{prefix}_{name}", value, n))

    scales = {"absolute": np.asarray, "normalised": normalised}
    for scale_name in sorted(scales, key=lambda name: name != default):
        scale = scales[scale_name]
        ending = "" if scale_name == default else f"_{scale_name}"
        thresholds = threshold_indices(scale(table))
        all_thresholds = np.concatenate(
            [thresholds[None], threshold_indices(scale(drawn))]
        )
        band, *drawn_bands = fit_bands(all_thresholds, side=side)
        numbers += _by_octave(f"{prefix}_threshold{ending}", thresholds, side, n)
        for metric in METRICS:
            value = getattr(band, metric)
            add(f"{metric}{ending}", value)
            name = f"{prefix}_{metric}{ending}"
            numbers += band_interval(name, metric, drawn_bands, n, value=value)
        add(f"residual{ending}", band.residual)
        for flag in FLAGS:
            add(f"{flag}{ending}", float(band.flag == flag))
        if continuous:
            ending = f"_continuous{ending}"
            thresholds = continuous_thresholds(scale(table))
            band = critical_band_fit(thresholds, side=side, highest=HIGHEST + BEYOND)
            numbers += _by_octave(f"{prefix}_threshold{ending}", thresholds, side, n)
            for metric in METRICS:
                add(f"{metric}{ending}", getattr(band, metric))
            for flag in FLAGS:
                add(f"{flag}{ending}", float(band.flag == flag))
    if prefix == "critical_band":
        octaves = len(octave_frequencies(side))
        centroids = [pyramid.centroid(side, octaves - 1 - f) for f in range(octaves)]
        numbers += _by_octave(f"{prefix}_centroid", centroids, side, n)
    return numbers


def band_interval(
    name: str, metric: str, bands: list[CriticalBand], n: int, *, value: float
) -> decisions.Numbers:
    """Return a list of three Numbers: the ends of a 95 % bootstrap interval, and a share.

    Their metrics are `name`_lower, `name`_upper and `name`_undefined. `_undefined` is the share of
    bootstrap samples whose band has a flag instead of numbers; these samples are left out of the
    interval. For metric="center_frequency", samples with the centre outside of the octaves are not
    left out: they are below or above all other samples, and an end of the interval that falls on
    such a sample has the value None. Both ends are None if `value` is NaN or no sample is left.
    metric: one of METRICS. bands: of the bootstrap samples. n: the number of images. value: the
    metric of all images.
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


_OUTSIDE = 1e100  # Above any frequency.


def _by_octave(
    metric: str, values: Iterable[float], side: int, n: int
) -> decisions.Numbers:
    """Return a metric's values with the condition "noise at <frequency>" of each octave.

    values: by octave, ascending in frequency. side: image side in pixels. n: the number
    of images.
    """
    names = (f"noise at {frequency:g}" for frequency in octave_frequencies(side))
    return [
        decisions.quantity(metric, value, n, name) for value, name in zip(values, names)
    ]
