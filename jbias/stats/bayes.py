"""How probably is one algorithm better, worse, or the same for all that matters?

Differences inside the region of practical equivalence, [-rope, rope], count as none.
Sources: Benavoli, Corani, Demsar and Zaffalon 2017, https://jmlr.org/papers/v18/16-305.html;
Corani and Benavoli 2015, https://doi.org/10.1007/s10994-015-5486-z.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from jbias.stats import resampling, score_table

_NODES = 256  # Of the quadrature over a posterior mean.


_MATRIX = 400  # Data sets up to which all pairs of differences are a matrix.


@dataclasses.dataclass(frozen=True, eq=False)
class PosteriorResult:
    """Posterior probabilities of every ordered pair; `better` + `better.T` + `rope` = 1."""

    algorithms: tuple[str, ...]
    better: Float[np.ndarray, "*n k k"]  # The row is better by more than the rope.
    rope: Float[np.ndarray, "*n k k"]  # No difference that matters; diagonal 1.


def bayesian_signed_rank(
    scores,
    *,
    rope: float,
    larger_is_better: bool,
    prior: float = 0.5,
    draws: int = 20000,
    seed: int = 0,
) -> PosteriorResult:
    """Compares all pairs over data sets by Walsh averages with Dirichlet weights.

    (w_0, ..., w_n) ~ Dirichlet(prior, 1, ..., 1), z_0 = 0 and z_i the differences;
    theta_right = sum_ij w_i w_j [z_i + z_j > 2 rope], so for left and rope (equal: half to
    either side). Given is how often each of the three is the largest, as baycomp does, equal
    ones sharing; if rope = 0, right against left. Monte Carlo error: 0.5 / sqrt(draws) at most.
    `rope` is in the unit of the scores. Several runs are averaged first.
    Raises ValueError for missing cells and a negative rope.
    """
    check_rope(rope)
    score_table.check(prior > 0, "prior", "be positive", prior)
    score_table.check_count("draws", draws)
    table = score_table.read(scores)
    n, k = table.means.shape
    weights = np.random.default_rng(seed).dirichlet([prior] + [1.0] * n, size=draws)
    means = table.means if larger_is_better else -table.means
    # Equal to the rope is equal up to rounding, as of scores with one decimal.
    cell_errors = score_table.rounding_errors(table)
    chances = []
    for i, j in itertools.combinations(range(k), 2):
        z = np.concatenate([[0.0], means[:, i] - means[:, j]])
        errors = np.maximum(cell_errors[:, i], cell_errors[:, j])
        errors = np.concatenate([[0.0], errors])
        errors = np.maximum(errors, 1e-12 * rope)
        if n > _MATRIX:
            shares = [_share_above(x, weights, rope, errors) for x in (z, -z)]
        else:
            tolerance = np.maximum(errors[:, None], errors)
            walsh = (z[:, None] + z) / 2
            above = [(_sign(w - rope, tolerance) + 1) / 2 for w in (walsh, -walsh)]
            shares = [np.sum((weights @ each) * weights, axis=1) for each in above]
        between = 1 - shares[0] - shares[1] if rope > 0 else np.full(draws, -1.0)
        three = np.stack([shares[1], between, shares[0]])
        largest = three == three.max(axis=0)
        chances.append((largest / largest.sum(axis=0)).mean(axis=1))
    left, _, right = np.transpose(chances)
    return _result(table, right, left)


def _share_above(
    z: Float[np.ndarray, "n"],
    weights: Float[np.ndarray, "draws n"],
    rope: float,
    errors: Float[np.ndarray, "n"],
) -> Float[np.ndarray, "draws"]:
    """Return sum_ij w_i w_j [z_i + z_j > 2 rope] of each draw; equal ones count half.

    errors: how far from equal z_i + z_j may be by the rounding of z_i, halved.
    By cumulated weights of sorted z, so without a matrix of all pairs.
    """
    order = np.argsort(z, kind="stable")
    z, errors, ends = z[order], errors[order], []
    for slack, side in ((errors, "right"), (-errors, "left")):
        ends.append(np.searchsorted(z, 2 * (rope + slack) - z, side=side))
    shares = []
    for part in np.array_split(weights, max(1, weights.size // 2_000_000)):
        part = part[:, order]
        below = np.pad(np.cumsum(part, axis=1), ((0, 0), (1, 0)))
        beyond = below[:, -1:] - (below[:, ends[0]] + below[:, ends[1]]) / 2
        shares.append(np.sum(part * beyond, axis=1))
    return np.concatenate(shares)


def correlated_t(
    scores,
    *,
    rope: float,
    larger_is_better: bool,
    paired: bool = False,
    rho: float = 0.0,
) -> PosteriorResult:
    """Compares all pairs on each data set by itself, from their runs.

    `paired`: run r of one algorithm belongs to run r of the other (same split or fold); the
    difference's posterior is t(m-1) around its mean with variance s^2 (1/m + rho / (1-rho)),
    rho the correlation between runs: test share of the data in cross-validation, 0 for
    independent seeds. Else the runs are independent samples, and the difference is one of
    two such posteriors (Behrens and Fisher), by quadrature: to 1e-4 for two runs, to 1e-6
    from five on. Nothing is drawn.
    Raises ValueError for single runs, missing cells, and unequal numbers of paired runs.
    """
    check_rope(rope)
    table = score_table.read(scores)
    resampling.require_runs(table)
    check_pairing(table, paired, rho)
    sign = 1 if larger_is_better else -1
    errors = score_table.mean_errors(table)
    above = functools.partial(_above_paired, rho=rho) if paired else _above_independent
    runs = [sign * table.runs(name) for name in table.algorithms]
    pairs = [*itertools.combinations(runs, 2)]
    columns = [*itertools.combinations(errors.T, 2)]
    roundings = [np.maximum(first, second) for first, second in columns]
    right = [above(x, y, rope, e) for (x, y), e in zip(pairs, roundings, strict=True)]
    left = [above(y, x, rope, e) for (x, y), e in zip(pairs, roundings, strict=True)]
    return _result(table, np.array(right), np.array(left))


def check_rope(rope: float, name: str = "rope") -> None:
    """Refuses what is no half width of a region."""
    score_table.check(0 <= rope < math.inf, name, "be 0 or larger", rope)


def check_pairing(table: score_table.Scores, paired: bool, rho: float) -> None:
    """Refuses paired runs whose numbers differ, and a correlation without pairs."""
    score_table.check(0 <= rho < 1, "rho", "lie in [0, 1)", rho)
    must, told = "be 0 for runs that are not paired", f"{rho}; give paired=True"
    score_table.check(paired or not rho, "rho", must, told)
    counts = table.counts
    if paired and (counts != counts[0]).any():
        runs = ", ".join(map("{} of {}".format, counts, table.algorithms))
        raise ValueError(
            f"paired: every algorithm must have the same runs, got {runs}; give "
            "paired=False or leave runs out"
        )


def _above_paired(x, y, rope: float, rounding, rho: float) -> Float[np.ndarray, "n"]:
    """Gives P(mean of x - y > rope); a half of it where all is equal to the rope."""
    d = x - y
    m = d.shape[1]
    scale = d.std(axis=1, ddof=1) * math.sqrt(1 / m + rho / (1 - rho))
    return _tail(d.mean(axis=1) - rope, scale, m - 1, rounding)


def _above_independent(x, y, rope: float, rounding) -> Float[np.ndarray, "n"]:
    """Gives P(mu_x - mu_y > rope), the posterior means t around the sample means.

    Gauss-Legendre over the quantiles of the narrower one, whose tails are cut at 1e-9.
    """
    (a, a_scale), (b, b_scale) = (
        (v.mean(axis=1), v.std(axis=1, ddof=1) / math.sqrt(v.shape[1])) for v in (x, y)
    )
    a_df, b_df = x.shape[1] - 1, y.shape[1] - 1
    nodes, weights = scipy.special.roots_legendre(_NODES)
    # u = sin^2 puts the nodes where the quantiles run away.
    angle = math.pi / 4 * (nodes + 1)
    u, du = np.sin(angle) ** 2, np.sin(2 * angle) * math.pi / 4 * weights
    shifts, sides = [], ((a_scale, b_scale, a_df, b_df), (b_scale, a_scale, b_df, a_df))
    for scale, other, df, other_df in sides:
        at = (a - b - rope)[:, None] + scale[:, None] * scipy.special.stdtrit(df, u)
        shifts.append(_tail(at, other[:, None], other_df, rounding[:, None]) @ du)
    return np.where(a_scale <= b_scale, *shifts)


def _tail(mean, scale, df: int, rounding):
    """Gives P(mean + scale t(df) > 0); without spread 1, 0, or a half at 0.

    What is no larger than `rounding` is 0.
    """
    certain = (_sign(mean, rounding) + 1) / 2
    wide = np.broadcast_to(scale > rounding, mean.shape)
    standard = np.divide(mean, scale, out=np.zeros_like(mean), where=wide)
    return np.where(wide, scipy.special.stdtr(df, standard), certain)


def _sign(x, tolerance):
    return np.where(np.abs(x) <= tolerance, 0, np.sign(x))


def _result(table, right, left) -> PosteriorResult:
    better = resampling.pair_matrix(right, lambda _: np.moveaxis(left, 0, -1))
    rope = np.clip(1 - better - np.swapaxes(better, -1, -2), 0, 1)
    return PosteriorResult(table.algorithms, better, rope)
