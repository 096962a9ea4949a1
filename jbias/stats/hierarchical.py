"""Seeds and data sets in one model: the hierarchical t-test of Corani et al.

Source: Corani, Benavoli, Demsar, Mangili and Zaffalon 2017,
https://doi.org/10.1007/s10994-017-5641-9. For a pair of algorithms, on data set i:

    differences of runs ~ Normal(d_i, s_i^2)          d_i ~ t(nu, d_0, s_0)

d_0 and s_0 flat; nu - 1 ~ Gamma(a, b), a ~ U(1, 2), b ~ U(0.01, 0.1). Noisy data sets are
drawn towards the others. Deviations: runs need not be paired (a mean difference then has the
variance s_x^2 / r_x + s_y^2 / r_y, and 1 / s is the prior of s; paired it is flat, as in the
paper), and the very wide bounds of d_0, s_0 and s_i are left out.
"""

import dataclasses

import numpy as np
import scipy.special
from jaxtyping import Float

from jbias.stats import bayes, gibbs
from jbias.stats import chains as mcmc
from jbias.stats import draws as resampling
from jbias.stats import scores as score_table

_AGREE = 1.02  # Largest R-hat that is answered.
_FEWEST = 400  # Smallest number of effective draws that is answered.
_LONGER = 3  # Doublings before the refusal.


@dataclasses.dataclass(frozen=True, eq=False)
class HierarchicalResult:
    """Posteriors of every ordered pair; positive where the row is the better."""

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    better: Float[np.ndarray, "k k"]  # On a next data set, by more than the rope.
    rope: Float[np.ndarray, "k k"]  # ... by nothing that matters; diagonal 1.
    positive: Float[np.ndarray, "k k"]  # P(d_0 > 0); diagonal 1/2.
    difference: resampling.Estimate  # (k, k), d_0: mean and equal-tailed interval.
    between: Float[np.ndarray, "k k"]  # Median of s_0.
    by_dataset: Float[np.ndarray, "n k k"]  # Means of d_i.
    rhat: Float[np.ndarray, "k k"]  # The worst of d_0, log s_0, log nu; diagonal 1.
    effective_draws: Float[np.ndarray, "k k"]  # The fewest of these; diagonal inf.


def hierarchical_t(
    scores,
    *,
    rope: float,
    larger_is_better: bool,
    paired: bool = False,
    rho: float = 0.0,
    confidence: float = 0.95,
    draws: int = 600,
    seed: int = 0,
    axis: int = 1,
) -> HierarchicalResult:
    """Compares all pairs over data sets, with the spread of their runs.

    Gibbs sampling, four chains of `draws` for all pairs at once; up to three times doubled
    for pairs whose chains differ. As in baycomp, each draw of (d_0, s_0, nu) gives the chances
    that a next data set's d is below, in and above the rope, and `better` and `rope` count
    which is the largest; with rope = 0, right against left. `paired` and `rho` are those of
    `correlated_t`. No effect of a run is shared by the data sets here (`mixed_model` has it).
    Raises ValueError where R-hat stays above 1.02 or effective draws below 400, and for single
    runs (paired: fewer than 3), fewer than 3 data sets and missing cells.
    """
    bayes.need_rope(rope)
    table = score_table.read(scores, axis=axis)
    resampling.need_runs(table, 3 if paired else 2)
    bayes.need_pairs(table, paired, rho)
    n, k = table.means.shape
    if n < 3:
        raise ValueError(f"scores: must have at least 3 data sets, got {n}")
    if draws < 100:
        raise ValueError(f"draws: must be at least 100 a chain, got {draws}")
    x, y = _sides(table, 1 if larger_is_better else -1, paired, rho)
    left = np.arange(len(x.mean))
    found: dict[str, np.ndarray] = {}
    for longer in range(_LONGER + 1):
        chains = gibbs.sample(
            x.only(left), y and y.only(left), draws=draws * 2**longer, seed=seed
        )
        for name, values in _summary(chains, rope, confidence).items():
            found.setdefault(name, np.empty((len(x.mean), *values.shape[1:])))
            found[name][left] = values
        bad = (found["rhat"] > _AGREE) | (found["effective"] < _FEWEST)
        left = np.flatnonzero(bad)
        if not len(left):
            break
    else:
        rows, columns = np.triu_indices(k, 1)
        raise ValueError(
            "hierarchical_t: chains must agree, got R-hat "
            f"{found['rhat'][left[0]]:.3f} and {found['effective'][left[0]]:.0f} "
            f"effective draws for {table.algorithms[rows[left[0]]]} and "
            f"{table.algorithms[columns[left[0]]]}; give more draws, runs or data sets"
        )

    def matrix(values, turn=lambda v: v, diagonal=0.0):
        return resampling.mirrored(k, values, turn, diagonal=diagonal)

    better = matrix(found["right"], lambda _: found["left"])
    return HierarchicalResult(
        datasets=table.datasets,
        algorithms=table.algorithms,
        better=better,
        rope=np.clip(1 - better - better.T, 0, 1),
        positive=matrix(found["positive"], lambda v: 1 - v, 0.5),
        difference=resampling.Estimate(
            matrix(found["d0"], lambda v: -v),
            matrix(found["low"], lambda _: -found["high"]),
            matrix(found["high"], lambda _: -found["low"]),
            confidence,
        ),
        between=matrix(found["s0"]),
        by_dataset=matrix(found["d"], lambda v: -v),
        rhat=matrix(found["rhat"], diagonal=1.0),
        effective_draws=matrix(found["effective"], diagonal=np.inf),
    )


def _sides(table, sign: int, paired: bool, rho: float):
    """Gives both sides of every pair; paired: their differences and None."""
    rows, columns = np.triu_indices(len(table.algorithms), 1)
    if paired:
        values = sign * (table.values[:, rows] - table.values[:, columns])
        r = values.shape[2]
        per_run = np.full(len(rows), 1 / r + rho / (1 - rho))
        return gibbs.Side.from_runs(values, per_run, (r - 1) / 2), None
    counts = table.counts
    return tuple(
        gibbs.Side.from_runs(
            sign * table.values[:, side], 1 / counts[side], counts[side] / 2
        )
        for side in (rows, columns)
    )


def _summary(chains: gibbs.Chains, rope: float, confidence: float):
    """Sums up what the chains say of each pair."""
    d0, s0, nu = chains.d0, chains.s0, chains.nu
    watched = (d0, np.log(s0), np.log(nu))
    above = scipy.special.stdtr(nu, (d0 - rope) / s0)
    below = scipy.special.stdtr(nu, (-d0 - rope) / s0)
    between = 1 - above - below if rope > 0 else np.full_like(above, -1)
    largest = np.argmax(np.stack([below, between, above]), axis=0)
    middle = resampling.estimate(0, d0.reshape(-1, d0.shape[2]), confidence=confidence)
    return {
        "right": (largest == 2).mean(axis=(0, 1)),
        "left": (largest == 0).mean(axis=(0, 1)),
        "positive": (d0 > 0).mean(axis=(0, 1)),
        "d0": d0.mean(axis=(0, 1)),
        "low": middle.low,
        "high": middle.high,
        "s0": np.median(s0, axis=(0, 1)),
        "d": chains.d,
        "rhat": np.max([mcmc.split_rhat(x) for x in watched], axis=0),
        "effective": np.min([mcmc.effective_draws(x) for x in watched], axis=0),
    }
