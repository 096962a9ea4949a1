"""Bayesian tests: posterior probabilities that an algorithm is better, worse or equivalent.

A difference inside the region of practical equivalence (ROPE), [-rope, rope], counts as no
difference.
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

from jbias import errors as caller_errors
from jbias.stats import bootstrap_intervals, score_table

_QUADRATURE_NODES = 256  # Of the integral over one posterior mean.
_MAX_MATRIX_DATASETS = 400  # With more, the matrix of all pairs would be too large.


@dataclasses.dataclass(frozen=True, eq=False)
class PosteriorResult:
    """Posterior probabilities for every ordered pair of algorithms (row, column).

    `better` + `better.T` + `rope` = 1; the diagonal of `better` is 0. With a leading axis n:
    one matrix per data set.
    """

    algorithms: tuple[str, ...]
    better: Float[
        np.ndarray, "*n k k"
    ]  # P(row better than column by more than the rope).
    rope: Float[np.ndarray, "*n k k"]  # P(difference inside the rope); diagonal 1.


def bayesian_signed_rank(
    scores: score_table.Table,
    *,
    rope: float,
    larger_is_better: bool,
    prior: float = 0.5,
    draws: int = 20000,
    seed: int = 0,
) -> PosteriorResult:
    """Return posterior probabilities for all pairs of algorithms (Bayesian signed-rank test).

    (w_0, ..., w_n) ~ Dirichlet(prior, 1, ..., 1), z_0 = 0 and z_i the difference on data set
    i; theta_right = sum_ij w_i w_j [z_i + z_j > 2 rope]. theta_left and theta_rope are defined
    in the same way; a pair with z_i + z_j = 2 rope counts 1/2 in theta_right and 1/2 in theta_rope.
    The returned probabilities are the shares of draws in which theta_right, theta_left or
    theta_rope is the largest, as in baycomp; a draw with a tie is divided equally. With rope = 0,
    only theta_right and theta_left are compared. Monte Carlo error: at most 0.5 / sqrt(draws).

    scores: see `score_table.read`; several runs are averaged first.
    rope: half the width of the region of practical equivalence, in the unit of the scores.
    prior: weight of the pseudo-observation z_0 = 0.
    draws: number of draws of (w_0, ..., w_n).
    Raise ValueError as `score_table.read` does, for a negative rope, and for a prior or a
    number of draws that is not positive.
    """
    check_rope(rope)
    caller_errors.check(prior > 0, "prior", "be positive", prior)
    caller_errors.check_at_least("draws", draws)
    table = score_table.read(scores)
    n, k = table.means.shape
    weights = np.random.default_rng(seed).dirichlet([prior] + [1.0] * n, size=draws)
    means = table.means if larger_is_better else -table.means
    # "Equal to the rope" allows for rounding, such as that of scores with one decimal.
    cell_errors = score_table.rounding_errors(table)
    probabilities = []
    for i, j in itertools.combinations(range(k), 2):
        z = np.concatenate([[0.0], means[:, i] - means[:, j]])
        errors = np.maximum(cell_errors[:, i], cell_errors[:, j])
        errors = np.concatenate([[0.0], errors])
        errors = np.maximum(errors, 1e-12 * rope)
        if n > _MAX_MATRIX_DATASETS:
            shares = [_share_above(x, weights, rope, errors) for x in (z, -z)]
        else:
            tolerance = np.maximum(errors[:, None], errors)
            walsh = (z[:, None] + z) / 2
            above = [(_sign(w - rope, tolerance) + 1) / 2 for w in (walsh, -walsh)]
            shares = [
                np.sum((weights @ indicator) * weights, axis=1) for indicator in above
            ]
        between = 1 - shares[0] - shares[1] if rope > 0 else np.full(draws, -1.0)
        thetas = np.stack([shares[1], between, shares[0]])
        is_largest = thetas == thetas.max(axis=0)
        probabilities.append((is_largest / is_largest.sum(axis=0)).mean(axis=1))
    left, _, right = np.transpose(probabilities)
    return _result(table, right, left)


def _share_above(
    z: Float[np.ndarray, "n"],
    weights: Float[np.ndarray, "draws n"],
    rope: float,
    errors: Float[np.ndarray, "n"],
) -> Float[np.ndarray, "draws"]:
    """Return sum_ij w_i w_j [z_i + z_j > 2 rope] for each draw of weights; equal sums count 1/2.

    errors: half the distance within which z_i + z_j counts as equal to 2 rope.
    Computed from cumulative weights of the sorted z, without a matrix of all pairs.
    """
    order = np.argsort(z, kind="stable")
    z, errors, ends = z[order], errors[order], []
    for slack, side in ((errors, "right"), (-errors, "left")):
        ends.append(np.searchsorted(z, 2 * (rope + slack) - z, side=side))
    shares = []
    for chunk in np.array_split(weights, max(1, weights.size // 2_000_000)):
        chunk = chunk[:, order]
        below = np.pad(np.cumsum(chunk, axis=1), ((0, 0), (1, 0)))
        beyond = below[:, -1:] - (below[:, ends[0]] + below[:, ends[1]]) / 2
        shares.append(np.sum(chunk * beyond, axis=1))
    return np.concatenate(shares)


def correlated_t(
    scores: score_table.TableOfRuns,
    *,
    rope: float,
    larger_is_better: bool,
    paired: bool = False,
    rho: float = 0.0,
) -> PosteriorResult:
    """Return posterior probabilities for all pairs of algorithms, one matrix per data set.

    The probabilities are computed from the runs on each data set separately.
    scores: see `score_table.read`; with several runs.
    rope: half the width of the region of practical equivalence, in the unit of the scores.
    paired: run r of one algorithm is paired with run r of the other algorithm (same split or fold).
    The posterior of the difference is then t(m-1) around the mean of the m differences, with
    variance s^2 (1/m + rho / (1-rho)).
    rho: correlation between paired runs. In cross-validation, the fraction of the data in a test
    fold; for independent seeds, 0.

    Without `paired`, the runs are independent samples. The posterior is the distribution of the
    difference of two t-distributed means (Behrens and Fisher), computed by quadrature: exact to
    1e-4 for two runs and to 1e-6 for five or more. No random numbers are used.
    Raise ValueError for single runs, missing cells, a negative rope, unequal numbers of paired
    runs, a rho outside [0, 1), and a rho above 0 without `paired`.
    """
    check_rope(rope)
    table = score_table.read(scores)
    bootstrap_intervals.require_runs(table)
    check_pairing(table, paired, rho)
    sign = 1 if larger_is_better else -1
    errors = score_table.mean_errors(table)
    above = functools.partial(_above_paired, rho=rho) if paired else _above_independent
    runs = [sign * table.runs(name) for name in table.algorithms]
    right, left = [], []
    for i, j in itertools.combinations(range(len(runs)), 2):
        rounding = np.maximum(errors[:, i], errors[:, j])
        right.append(above(runs[i], runs[j], rope=rope, rounding=rounding))
        left.append(above(runs[j], runs[i], rope=rope, rounding=rounding))
    return _result(table, np.array(right), np.array(left))


def check_rope(rope: float, name: str = "rope") -> None:
    """Raise ValueError unless rope is finite and not negative.

    name: name of the argument in the message.
    """
    caller_errors.check(0 <= rope < math.inf, name, "be 0 or larger", rope)


def check_pairing(table: score_table.Scores, paired: bool, rho: float) -> None:
    """Raise ValueError for unequal numbers of paired runs, and for a rho that is not valid.

    rho: correlation of paired runs; must be in [0, 1), and 0 if not `paired`.
    """
    caller_errors.check(0 <= rho < 1, "rho", "lie in [0, 1)", rho)
    caller_errors.check(
        paired or not rho,
        "rho",
        "be 0 for runs that are not paired",
        rho,
        "give paired=True",
    )
    counts = table.counts
    if paired and (counts != counts[0]).any():
        runs = ", ".join(map("{} of {}".format, counts, table.algorithms))
        raise ValueError(
            f"paired: every algorithm must have the same runs, got {runs}; give "
            "paired=False or leave runs out"
        )


def _above_paired(
    x: Float[np.ndarray, "n r"],
    y: Float[np.ndarray, "n r"],
    *,
    rope: float,
    rounding: Float[np.ndarray, "n"],
    rho: float,
) -> Float[np.ndarray, "n"]:
    """Return P(mean of x - y > rope) per data set, for paired runs.

    The probability is 1/2 if all differences equal the rope. rounding: error of a difference, per
    data set; a mean less the rope, or a standard error, up to this error counts as 0.
    rho: correlation of paired runs.
    """
    d = x - y
    m = d.shape[1]
    scale = d.std(axis=1, ddof=1) * math.sqrt(1 / m + rho / (1 - rho))
    return _tail(d.mean(axis=1) - rope, scale, df=m - 1, rounding=rounding)


def _above_independent(
    x: Float[np.ndarray, "n r"],
    y: Float[np.ndarray, "n q"],
    *,
    rope: float,
    rounding: Float[np.ndarray, "n"],
) -> Float[np.ndarray, "n"]:
    """Return P(mu_x - mu_y > rope) per data set, for independent runs.

    The posteriors of mu_x and mu_y are t distributions around the sample means.
    rounding: error of a difference, per data set.
    Gauss-Legendre quadrature over the quantiles of the narrower posterior, whose tails are cut
    at 1e-9.
    """
    difference = x.mean(axis=1) - y.mean(axis=1) - rope
    x_scale = x.std(axis=1, ddof=1) / math.sqrt(x.shape[1])
    y_scale = y.std(axis=1, ddof=1) / math.sqrt(y.shape[1])
    x_df, y_df = x.shape[1] - 1, y.shape[1] - 1
    nodes, weights = scipy.special.roots_legendre(_QUADRATURE_NODES)
    # u = sin^2 puts the nodes where the quantiles change fastest.
    angle = math.pi / 4 * (nodes + 1)
    u, du = np.sin(angle) ** 2, np.sin(2 * angle) * math.pi / 4 * weights

    def integrate(scale, df: int, other_scale, other_df: int) -> Float[np.ndarray, "n"]:
        """Return P(mu_x - mu_y > rope) per data set.

        The posterior with `scale` (n,) and `df` is integrated by quadrature, the posterior with
        `other_scale` (n,) and `other_df` in closed form. The means, the rope, the nodes and the
        rounding error are variables of the enclosing call.
        """
        at = difference[:, None] + scale[:, None] * scipy.special.stdtrit(df, u)
        tails = _tail(at, other_scale[:, None], df=other_df, rounding=rounding[:, None])
        return tails @ du

    over_x = integrate(x_scale, x_df, other_scale=y_scale, other_df=y_df)
    over_y = integrate(y_scale, y_df, other_scale=x_scale, other_df=x_df)
    return np.where(x_scale <= y_scale, over_x, over_y)


def _tail(
    mean: Float[np.ndarray, "n"],
    scale: Float[np.ndarray, "n"],
    *,
    df: int,
    rounding: Float[np.ndarray, "n"],
) -> Float[np.ndarray, "n"]:
    """Return P(mean + scale t(df) > 0) per data set; arguments are broadcast.

    If scale is 0, the probability is 1 for a positive mean, 0 for a negative mean, and else 1/2. A
    mean or scale no larger than `rounding` counts as 0.
    """
    without_spread = (_sign(mean, rounding) + 1) / 2
    has_spread = np.broadcast_to(scale > rounding, mean.shape)
    standard = np.divide(mean, scale, out=np.zeros_like(mean), where=has_spread)
    return np.where(has_spread, scipy.special.stdtr(df, standard), without_spread)


def _sign(
    x: Float[np.ndarray, "..."], tolerance: float | Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Return the sign of x, and 0 where |x| <= tolerance."""
    return np.where(np.abs(x) <= tolerance, 0, np.sign(x))


def _result(
    table: score_table.Scores,
    right: Float[np.ndarray, "p ..."],
    left: Float[np.ndarray, "p ..."],
) -> PosteriorResult:
    """Return the result from the probabilities of the p pairs i < j.

    right: P(first better), (p,) or, per data set, (p, n). left: P(second better), in this shape.
    """
    better = bootstrap_intervals.pair_matrix(right, lambda _: np.moveaxis(left, 0, -1))
    rope = np.clip(1 - better - np.swapaxes(better, -1, -2), 0, 1)
    return PosteriorResult(table.algorithms, better, rope)
