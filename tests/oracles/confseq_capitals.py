"""Write confseq_capitals.json: e-values and intervals of the package confseq for fixed values.

Run with confseq 0.0.11 (Waudby-Smith's package; its sources need numpy below 2):
`python tests/oracles/confseq_capitals.py > tests/oracles/confseq_capitals.json`.
"""

import json

import numpy as np
import scipy.optimize
from confseq import betting

FRACTIONS = {
    "jbias": (0.25, 0.55, 0.85, 0.98),
    "diversified Kelly": tuple((i + 1) / 11 for i in range(10)),
}


def capital(values, mean, fractions):
    """Return the mean capital of bets above and below `mean` after each value."""
    above = [lambda x, m, c=c: np.full(len(x), c / m) for c in fractions]
    below = [lambda x, m, c=c: np.full(len(x), c / (1 - m)) for c in fractions]
    return betting.diversified_betting_mart(
        values, mean, above, below, alpha=0.05, convex_comb=True, trunc_scale=1
    )


def grid_capital(values, mean):
    """Return the capital; infinite at the means 0 and 1, where bets divide by 0."""
    if not 0 < mean < 1:
        return np.full(len(values), np.inf)
    return capital(values, mean, FRACTIONS["jbias"])


def ends(values):
    """Return the ends of the running intersection where the capital is 20, to 1e-13."""

    def excess(mean):
        return np.log(grid_capital(prefix, mean)[-1]) - np.log(20)

    lower, upper = [0.0], [1.0]
    for n in range(1, len(values) + 1):
        prefix = values[:n]
        middle = np.mean(prefix)  # The capital is at most 1 here.
        tiny = 1e-9
        for side, bound, best in ((lower, tiny, max), (upper, 1 - tiny, min)):
            is_out = abs(middle - bound) > tiny and excess(bound) > 0
            inner = min(max(middle, tiny), 1 - tiny)
            end = (
                scipy.optimize.brentq(excess, bound, inner, xtol=1e-14, rtol=1e-14)
                if is_out
                else side[-1]
            )
            side.append(best(side[-1], float(end)))
    return lower[1:], upper[1:]


rng = np.random.default_rng(0)
is_high = rng.random(60) < 0.3
cases = {
    "skewed": rng.beta(0.6, 1.8, 60).round(6),
    "two humps": np.where(is_high, rng.beta(30, 2, 60), rng.beta(2, 30, 60)).round(6),
    "coins": (rng.random(60) < 0.7).astype(float),
    "constant": np.full(30, 0.9),
}
results = {}
for name, values in cases.items():
    lower, upper = betting.cs_from_martingale(
        values, grid_capital, breaks=1000, alpha=0.05, running_intersection=True
    )
    lower_ends, upper_ends = ends(values)
    results[name] = {
        "values": values.tolist(),
        "evalues": {
            f"{bets}, {mean}": capital(values, mean, fractions).tolist()
            for mean in (0.05, 0.3, 0.5, 0.8)
            for bets, fractions in FRACTIONS.items()
        },
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "lower_ends": lower_ends,
        "upper_ends": upper_ends,
    }
print(json.dumps(results))
