"""Draws from the posterior of the hierarchical t-test, many pairs of algorithms at once.

t(nu) is a normal whose precision has been drawn from Gamma(nu/2, nu/2). A sweep draws s_0 with
d_0 and all d_i integrated out (Metropolis on log s_0), then d_0 without the d_i, then the d_i;
s_0 again and nu without the precisions, nu on a grid; the precisions; the variances of the runs.
Blocks after van Dyk and Park 2008, https://doi.org/10.1198/016214508000000409: after a draw
with something integrated out, that is drawn before it is used again.
"""

import dataclasses

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

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
        # Runs that are all alike have a spread nonetheless: a thousandth of the others'.
        floor = 1e-6 * squares.mean(axis=1, keepdims=True) + 1e-18
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


@dataclasses.dataclass(frozen=True, eq=False)
class Chains:
    """Draws of c chains for p pairs."""

    d0: Float[np.ndarray, "c d p"]
    s0: Float[np.ndarray, "c d p"]
    nu: Float[np.ndarray, "c d p"]
    d: Float[np.ndarray, "p n"]  # Means over all draws.


def sample(x: Side, y: Side | None, *, draws: int, seed: int) -> Chains:
    """Draws (d_0, s_0, nu) for x - y; `y` is None if x holds differences already."""
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
            s0 = _spread(rng, s0, off, nu)
        z2 = off / s0[:, :, None] ** 2
        nu = _degrees(rng, z2)
        half = (nu[:, :, None] + 1) / 2
        precision = 2 * rng.gamma(half) / (nu[:, :, None] + z2)
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
    return Chains(**kept, d=total / draws)


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
    proposed = s0 * np.exp(move * rng.normal(size=s0.shape))
    logs = [
        _integrated(m, v + s[:, :, None] ** 2 / precision)[2] + np.log(s)
        for s in (s0, proposed)
    ]
    accepted = np.log(rng.random(s0.shape)) < logs[1] - logs[0]
    return np.where(accepted, proposed, s0)


def _spread(rng, s0, off: Float[np.ndarray, "c p n"], nu) -> Float[np.ndarray, "c p"]:
    """Moves log s_0 again, given the d_i and with the precisions integrated out."""
    proposed = s0 * np.exp(_MOVES[-1] * rng.normal(size=s0.shape))
    n = off.shape[2]
    logs = [
        -(nu + 1) / 2 * np.log1p(off / (nu * s**2)[:, :, None]).sum(axis=2)
        - (n - 1) * np.log(s)
        for s in (s0, proposed)
    ]
    accepted = np.log(rng.random(s0.shape)) < logs[1] - logs[0]
    return np.where(accepted, proposed, s0)


def _degrees(rng, z2: Float[np.ndarray, "c p n"]) -> Float[np.ndarray, "c p"]:
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
    density = scipy.stats.gamma.pdf(_GRID[:, None, None], a[:, None], scale=1 / b).mean(
        axis=(1, 2)
    )
    return np.log(density * _GRID)  # Evenly spaced in the logarithm.


_LOG_PRIOR = _log_prior()
