"""Convergence of Markov chains: split R-hat and the effective sample size.

Source: Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021,
https://doi.org/10.1214/20-BA1221 (sections 2 and 3, without the normalisation of ranks: pass
quantities that are roughly normal). Draws have the shape (c chains, d draws, ...).
"""

import numpy as np
from jaxtyping import Float


def split_rhat(draws: Float[np.ndarray, "c d ..."]) -> Float[np.ndarray, "..."]:
    """Return R-hat of chains cut in halves, per quantity: about 1 if the halves agree, else larger.

    draws: c chains of d draws. R-hat is exactly 1 for a quantity that does not vary, and inf for
    a quantity that only varies between halves.
    """
    halves = _halves(draws)
    d = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    ratio = np.divide(between, within, out=np.zeros_like(within), where=within > 0)
    rhat = np.sqrt((d - 1) / d + ratio)
    return np.where(within > 0, rhat, np.where(between > 0, np.inf, 1.0))


def effective_draws(draws: Float[np.ndarray, "c d ..."]) -> Float[np.ndarray, "..."]:
    """Return the effective sample size of each quantity's mean over the c d draws.

    By Geyer's initial monotone sequence; inf for a quantity that does not vary.
    """
    halves = _halves(draws)
    c, d = halves.shape[:2]
    centred = halves - halves.mean(axis=1, keepdims=True)
    transformed = np.fft.rfft(centred, n=2 * d, axis=1)
    covariance = np.fft.irfft(np.abs(transformed) ** 2, n=2 * d, axis=1)[:, :d] / d
    within = covariance[:, 0].mean(axis=0) * d / (d - 1)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    total = within * (d - 1) / d + between
    safe = np.where(total > 0, total, 1)
    rho = 1 - (within - covariance.mean(axis=0) * d / (d - 1)) / safe
    rho[0] = 1
    sums = rho[: d - d % 2].reshape(d // 2, 2, *rho.shape[1:]).sum(axis=1)
    positive = np.logical_and.accumulate(sums > 0, axis=0)
    monotone = np.minimum.accumulate(np.where(positive, sums, 0), axis=0)
    time = np.maximum(2 * monotone.sum(axis=0) - 1, 1 / np.log10(c * d))
    return np.where(total > 0, c * d / time, np.inf)


def _halves(draws: Float[np.ndarray, "c d ..."]) -> Float[np.ndarray, "2*c d//2 ..."]:
    """Return the first and second half of each chain as separate chains.

    The middle draw of an odd number is left out.
    """
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])
