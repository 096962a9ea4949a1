"""Gaussians over equidistant points, many at once: bounded least squares on the host."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

NARROWEST, FLAT, WIDEST = 0.05, 100.0, 1e4  # Of s, in steps between points.
STARTS, ROUNDS, TOLERANCE = 5, 400, 1e-12


class Fits(NamedTuple):
    """a exp(-(f - mu)^2 / (2 s^2)) for each row of values, and the squares left."""

    a: Float[np.ndarray, "v"]
    mu: Float[np.ndarray, "v"]
    s: Float[np.ndarray, "v"]
    residual: Float[np.ndarray, "v"]
    converged: Bool[np.ndarray, "v"]


def fit(values: Float[np.ndarray, "v f"], *, highest: float) -> Fits:
    """Minimises the squares over 0 <= a <= highest, mu and s, in float64.

    Levenberg and Marquardt's method with a projected, from the lowest minima on a grid
    of (mu, s) with the best a at each; the best end of all starts is told. converged:
    no step was left that lowers the squares by a share of 1e-12, and s is neither less
    than the points can tell nor so large that the curve is flat.
    """
    values = np.asarray(values, float)
    rows = np.repeat(np.arange(len(values)), STARTS)
    t = values[rows]
    f = np.arange(values.shape[1])
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
    cost, done = cost.reshape(-1, STARTS), done.reshape(-1, STARTS)
    best = cost.argmin(1)[:, None]
    ends = np.take_along_axis(p.reshape(-1, STARTS, 3), best[..., None], 1)
    a, mu, log_s = ends[:, 0].T
    s = np.exp(log_s)
    settled = np.take_along_axis(done, best, 1)[:, 0]
    residual = np.take_along_axis(cost, best, 1)[:, 0]
    return Fits(
        a,
        mu,
        s,
        residual,
        settled & (s > 5 * NARROWEST) & (s < FLAT),
    )


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
