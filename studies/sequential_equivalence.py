"""Measure how many seeds show that equal methods are equivalent, with a look after every seed.

    python -m studies.sequential_equivalence

Draws studies of two methods with one law of scores, as `studies.sequential_power` does, and compares
them after every pair of seeds as `jbias.stats.compare` does with `points`. Writes
OUT/sequential_equivalence.csv, a row for each spread and margin:

    spread, deviation      name of the law, standard deviation of its scores
    points                 the methods are equivalent if they differ by less than these points
    studies                number of simulated studies
    least                  pairs of seeds if the scores of every pair are equal
    within_30              share of studies that show equivalence within 30 pairs of seeds (also 100
                           and 200)
    median, needed         pairs of seeds with which 50 % and 80 % of studies show it; inf: above
                           2,000
    error                  share of studies that claim a difference within 2,000 pairs of seeds

Takes about two minutes on one core.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from jbias.stats import sequential
from studies import command, sequential_power

TABLE = "sequential_equivalence.csv"
ALPHA, MOST, CAPS = (
    sequential_power.ALPHA,
    sequential_power.MOST,
    sequential_power.CAPS,
)
POINTS = (2, 5, 10, 20, 40)
COLUMNS = (
    *("spread", "deviation", "points", "studies", "least"),
    *(f"within_{cap}" for cap in CAPS),
    *("median", "needed", "error"),
)


def find_equivalence(
    values: Float[np.ndarray, "studies n"], points: float
) -> tuple[Float[np.ndarray, "studies"], Bool[np.ndarray, "studies"]]:
    """Return (pairs until equivalence is decided, inf: never; is a difference claimed).

    values: as in `compare`, (1 + a - b) / 2, of scores from 0 to 1.
    """
    means = np.cumsum(values, axis=1) / np.arange(1, values.shape[1] + 1)
    threshold = -math.log(ALPHA)
    margin = points / 100
    low, high = (1 - margin) / 2, (1 + margin) / 2
    is_above = (sequential.log_evalues(values, low) >= threshold) & (means > low)
    is_below = (sequential.log_evalues(values, high) >= threshold) & (means < high)
    is_equivalent = np.logical_or.accumulate(is_above, axis=1)
    is_equivalent &= np.logical_or.accumulate(is_below, axis=1)
    differs = sequential.log_evalues(values, 0.5) >= threshold
    looks_equivalent, looks_different = (
        np.where(x.any(axis=1), np.argmax(x, axis=1) + 1.0, math.inf)
        for x in (is_equivalent, differs)
    )
    is_claimed = looks_different < looks_equivalent
    return np.where(is_claimed, math.inf, looks_equivalent), is_claimed


def rows(studies: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table."""
    for number, (spread, law_of) in enumerate(sequential_power.cells().items()):
        law = law_of(0.0)(sequential_power.BOUNDS[0])
        for points in POINTS:
            rng = np.random.default_rng([seed, number, points])
            pairs, claims = [], []
            for start in range(0, studies, sequential_power.CHUNK):
                shape = min(sequential_power.CHUNK, studies - start), MOST
                differences = law.worse(rng, shape) - law.worse(rng, shape)
                looks, is_claimed = find_equivalence((1 + differences) / 2, points)
                pairs.append(looks)
                claims.append(is_claimed)
            ordered = np.sort(np.concatenate(pairs))
            yield {
                "spread": spread,
                "deviation": law.deviation,
                "points": points,
                "studies": studies,
                "least": sequential.least_pairs(ALPHA, points),
                **{f"within_{cap}": float(np.mean(ordered <= cap)) for cap in CAPS},
                "median": float(ordered[math.ceil(0.5 * studies) - 1]),
                "needed": float(
                    ordered[math.ceil(sequential_power.POWER * studies) - 1]
                ),
                "error": float(np.mean(np.concatenate(claims))),
            }
            print(f"{spread}, {points} done", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table."""
    parser = command.parser("sequential_equivalence", __doc__)
    command.add_out(parser, "the table", command.RESULTS)
    parser.add_argument(
        "--studies",
        type=int,
        default=4000,
        metavar="N",
        help="simulated studies per row (default: 4000)",
    )
    args = parser.parse_args(argv)
    sequential_power.write([*rows(args.studies)], COLUMNS, args.out / TABLE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
