"""The critical band: which frequencies of noise keep a network from recognising.

Noise of one octave at a time is added at growing strength. An octave's threshold is the
number of strengths that do harm; a Gaussian fitted to the thresholds over octaves has
the width, the centre and the height that are told.

Source: Subramanian, Sizikova, Majaj and Pelli, NeurIPS 2023,
https://arxiv.org/abs/2309.13190 ("original"); Gavrikov and Keuper, CVPR 2024,
https://arxiv.org/abs/2404.01509 ("bvg"), whose code is at
https://github.com/paulgavrikov/biases_vs_generalization. Deviation: where no threshold
differs from the others there is no band, and none is printed.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jbias.evals import gauss_fit, pyramid

SIGMAS = (0.0, 0.02, 0.04, 0.08, 0.16)
HIGHEST = len(SIGMAS) - 1  # Recognised without noise only, or never.
CRITERION = 50.0  # Per cent.
BEYOND = 1.0  # How far continuous thresholds may lie above the highest.


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

    bandwidth: float
    center_frequency: float
    peak_noise_sensitivity: float
    residual: float
    converged: bool
    flag: str


def frequencies(side: int) -> tuple[float, ...]:
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
    thresholds: ascending in frequency, as many as `frequencies(side)`; NaN is unknown.
    ValueError where their number or a value does not fit.
    """
    octaves = len(frequencies(side))
    vector = np.asarray(thresholds, float)
    if vector.shape != (octaves,):
        raise ValueError(
            f"critical_band_fit: images of side {side} have {octaves} octaves, got"
            f" thresholds of shape {vector.shape}"
        )
    if (vector < 0).any() or (vector > highest).any():
        raise ValueError(
            f"critical_band_fit: thresholds must be in [0, {highest:g}], got"
            f" {vector.tolist()}"
        )
    return fits(vector[None], side=side, highest=highest)[0]


def fits(
    thresholds: Float[np.ndarray, "v octaves"],
    *,
    side: int,
    highest: float = HIGHEST,
) -> list[CriticalBand]:
    """`critical_band_fit` of many vectors at once; equal ones are fitted once."""
    vectors, which = np.unique(thresholds, axis=0, return_inverse=True)
    flags = [_flag(vector, highest) for vector in vectors]
    fitted = [_none(flag) for flag in flags]
    left = [i for i, flag in enumerate(flags) if not flag]
    found = gauss_fit.fit(vectors[left], highest=highest) if left else ()
    for i, a, mu, s, residual, converged in zip(left, *found):
        fitted[i] = (
            _none("flat")
            if s > gauss_fit.FLAT
            else CriticalBand(
                bandwidth=2 * math.sqrt(math.log(4)) * float(s),
                center_frequency=frequencies(side)[0] * 2 ** float(mu),
                peak_noise_sensitivity=2 ** (float(a) - HIGHEST),
                residual=float(residual),
                converged=bool(converged),
                flag="",
            )
        )
    return [fitted[i] for i in which.reshape(-1)]


def normalised(
    accuracy: Float[np.ndarray, "*b sigmas octaves"],
) -> Float[np.ndarray, "*b sigmas octaves"]:
    """In per cent of the largest in the table; NaN where all are 0."""
    largest = np.nanmax(accuracy, axis=(-2, -1), keepdims=True)
    nothing = np.full(np.shape(accuracy), np.nan)
    # In this order, the half of the largest is 50, and no rounding of it.
    return 100 * np.divide(accuracy, largest, out=nothing, where=largest > 0)


def threshold_indices(
    accuracy: Float[np.ndarray, "*b sigmas octaves"], *, criterion: float = CRITERION
) -> Float[np.ndarray, "*b octaves"]:
    """How many strengths of noise, from the largest down, come before one that passes.

    accuracy: in per cent, a row for each of SIGMAS. A strength passes above the
    criterion; at most 4, so that 4 is passed without noise only, or never. NaN where an
    accuracy of the octave is.
    """
    passes = np.flip(accuracy, axis=-2) > criterion
    failed = np.where(passes.any(-2), passes.argmax(-2), HIGHEST)
    unknown = np.isnan(accuracy).any(-2)
    return np.where(unknown, np.nan, np.minimum(failed, HIGHEST))


def continuous_thresholds(
    accuracy: Float[np.ndarray, "sigmas octaves"], *, criterion: float = CRITERION
) -> Float[np.ndarray, "octaves"]:
    """Thresholds between the whole ones: where a fitted curve crosses the criterion.

    The curve is clean / (1 + exp(k (log2 sigma - m))) with clean the octave's accuracy
    without noise, fitted by least squares to the four strengths. The threshold is
    1/2 - log2(sigma / 0.16) at the crossing: rounded it is the index. It ends at 0 and
    at 5, which is also where clean accuracy does not pass. Not part of either protocol.
    """
    strength = np.log2(np.array(SIGMAS[1:]) / SIGMAS[-1])
    return np.array(
        [_crossing(strength, column, criterion) for column in np.transpose(accuracy)]
    )


def _crossing(strength, column, criterion):
    clean, noisy = column[0], column[1:]
    if np.isnan(column).any():
        return np.nan
    if clean <= criterion:
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
    crossing = middle + math.log(clean / criterion - 1) / 2**slope
    return float(np.clip(0.5 - crossing, 0, HIGHEST + BEYOND))


def _flag(vector, highest: float) -> str:
    if np.isnan(vector).any():
        return "unknown"
    if (vector != vector[0]).any():
        return ""
    return {0: "no_critical_band", highest: "all_critical"}.get(vector[0], "flat")


def _none(flag: str) -> CriticalBand:
    return CriticalBand(math.nan, math.nan, math.nan, math.nan, False, flag)
