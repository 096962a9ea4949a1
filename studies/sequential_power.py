"""Measure how many seeds a comparison needs if it looks after every seed, and a t-test beside it.

    python -m studies.sequential_power

Draws studies of two methods with a known difference of means, and compares them after every pair of
seeds as `jbias.stats.compare` does. Writes two tables to OUT:

- sequential_spreads.csv: quartiles of the standard deviations over seeds in docs/results/all.csv.
- sequential_power.csv: a row for each spread, difference, number of methods and rule.

Scores of a method are either drawn from the shape biases of a hundred seeds of ERM (spread
"hundred"; the better method has the score 1 - x instead of x with the probability that makes the
difference right), or they have a beta distribution with the standard deviation of the row, around
0.5. Both methods' seeds are independent. Scores in the narrower bounds have the beta distribution
on these bounds with the same means and standard deviation, if there is one.

With 8 methods, seven are compared with a control and each comparison has the level 0.05 / 7.

Columns of sequential_power.csv:

    spread, deviation      name of the distribution, standard deviation of a method's scores
    difference             true difference of the means
    methods, alpha         number of methods, level of each comparison
    rule                   "mean", "wins" (quantity of `compare`), "t" (Welch's test at a fixed n)
    low, high              bounds of the scores (not of "t")
    least                  pairs of seeds until decided if every pair differs by exactly the
                           difference ("wins": if every pair is won)
    right_30, wrong_30     share of studies that decide rightly or wrongly within 30 pairs of seeds
                           (also 100 and 200; for "t" empty)
    mean_200               mean pairs of seeds until decided; undecided studies count as 200
    median                 median pairs of seeds until decided; inf: above 2,000
    needed                 pairs of seeds with which 80 % of studies are decided; inf: above 2,000.
                           "t": seeds of each method for the power 80 % by the formula
    power                  "t": share of studies that find the difference with `needed` seeds
    error                  share of studies of equal methods with any decision, within 200 pairs of
                           seeds; "t": with `needed` seeds. Both methods have the worse method's law

Takes about ten minutes on one core.
"""

import csv
import functools
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float

from jbias import stats
from jbias.stats import sequential
from studies import all_results, command

ALPHA = 0.05
DIFFERENCES = (0.02, 0.05, 0.1, 0.2, 0.4)
METHODS = (2, 8)
CAPS = (30, 100, 200)
BOUNDS = ((0.0, 1.0), (0.25, 0.75), (0.4, 0.6))
MOST = 2000  # Pairs of seeds of a simulated study.
STUDIES = 10_000
CHUNK = 250  # Studies in memory at once.
LEAST_T_STUDIES = 2000  # With many seeds; else STUDIES.
POWER = 0.8
SPREADS, TABLE = "sequential_spreads.csv", "sequential_power.csv"
Draw = Callable[[np.random.Generator, tuple[int, int]], Float[np.ndarray, "studies n"]]


class Law(NamedTuple):
    """The distributions of the scores of two methods.

    better, worse: draw scores of the shape that is passed. deviation: standard deviation of the
    scores, pooled over both methods.
    """

    better: Draw
    worse: Draw
    deviation: float


def spreads() -> pd.DataFrame:
    """Return the quartiles of standard deviations over seeds in docs/results/all.csv.

    A standard deviation is over the seeds of one study, rate, method, data set and metric. Studies
    of three seeds are left out.
    """
    rows = all_results.read_of_more_seeds()
    keys = ["study", "rate", "method", "set", "epochs"]
    records = []
    for metric in ("accuracy", "shape_bias"):
        groups = rows[rows["metric"] == metric].groupby(keys)["score"]
        deviations, sizes = groups.std(), groups.size()
        for name, share in (("lower", 0.25), ("median", 0.5), ("upper", 0.75)):
            record = {
                "metric": metric,
                "quartile": name,
                "deviation": float(deviations.quantile(share)),
                "groups": len(deviations),
                "fewest_seeds": int(sizes.min()),
            }
            records.append(record)
    return pd.DataFrame(records)


def hundred_seeds() -> Float[np.ndarray, "100"]:
    """Return the shape biases of a hundred seeds of ERM, from 0 to 1."""
    return all_results.by_method("hundred-seeds", "shape_bias")["ERM"] / 100


def beta_law(
    deviation: float, difference: float, bounds: tuple[float, float]
) -> Law | None:
    """Return beta distributions on `bounds` around their middle; None if there are none."""
    low, high = bounds
    middle, width = (low + high) / 2, high - low
    draws = []
    for mean in (middle + difference / 2, middle - difference / 2):
        share, scaled = (mean - low) / width, deviation / width
        if not 0 < share < 1 or scaled**2 >= share * (1 - share):
            return None
        concentration = share * (1 - share) / scaled**2 - 1
        draw = functools.partial(
            _draw_beta,
            a=share * concentration,
            b=(1 - share) * concentration,
            bounds=bounds,
        )
        draws.append(draw)
    return Law(better=draws[0], worse=draws[1], deviation=deviation)


def _draw_beta(
    rng: np.random.Generator,
    shape: tuple[int, int],
    *,
    a: float,
    b: float,
    bounds: tuple[float, float],
) -> Float[np.ndarray, "studies n"]:
    """Return draws of a beta distribution with parameters a and b on `bounds`."""
    low, high = bounds
    return low + (high - low) * rng.beta(a, b, shape)


def hundred_law(scores: Float[np.ndarray, "s"], difference: float) -> Law:
    """Return the law of resampled scores, of which the better method mirrors some at 0.5.

    The mean of mirrored scores is 1 - mean, so the share of them that gives the difference is
    difference / (1 - 2 mean).
    """
    mean = scores.mean()
    share = difference / (1 - 2 * mean)
    assert 0 <= share <= 1, share

    def worse(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return rng.choice(scores, shape)

    def better(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        drawn = worse(rng, shape)
        return np.where(rng.random(shape) < share, 1 - drawn, drawn)

    # E[x^2] of the mixture, less its squared mean.
    square = (1 - share) * np.mean(scores**2) + share * np.mean((1 - scores) ** 2)
    variances = scores.var(), square - (mean + difference) ** 2
    return Law(better=better, worse=worse, deviation=math.sqrt(np.mean(variances)))


def least_pairs(difference: float, alpha: float) -> float:
    """Return the pairs of seeds until decided if every pair has exactly this difference.

    difference: as a share of the width of the bounds; 1 for the quantity "wins". inf: above 2,000.
    """
    values = np.full(MOST, (1 + difference) / 2)
    is_decided = sequential.log_evalues(values, 0.5) >= -math.log(alpha)
    return float(np.argmax(is_decided)) + 1 if is_decided.any() else math.inf


class Stops(NamedTuple):
    """Number of pairs until each study decides (inf: never), and if for the better method."""

    pairs: Float[np.ndarray, "studies"]
    is_right: Float[np.ndarray, "studies"]


def find_stops(
    values: Float[np.ndarray, "studies n"], alphas: Sequence[float]
) -> list[Stops]:
    """Return when studies decide at each level; values: as in `compare`, (1 + a - b) / 2."""
    logs = sequential.log_evalues(values, 0.5)
    sums = np.cumsum(values - 0.5, axis=1)
    rows = np.arange(len(values))
    stops = []
    for alpha in alphas:
        is_decided = logs >= -math.log(alpha)
        first = np.argmax(is_decided, axis=1)
        is_ever = is_decided[rows, first]
        pairs = np.where(is_ever, first + 1.0, math.inf)
        stops.append(Stops(pairs=pairs, is_right=is_ever & (sums[rows, first] > 0)))
    return stops


def simulate(
    first: Draw,
    second: Draw,
    *,
    quantity: str,
    bounds: tuple[float, float],
    most: int,
    seed: Sequence[int],
    studies: int = STUDIES,
) -> list[Stops]:
    """Return when studies of two methods decide, at the level of each number of METHODS."""
    rng = np.random.default_rng(seed)
    width = bounds[1] - bounds[0]
    chunks = []
    for start in range(0, studies, CHUNK):
        shape = min(CHUNK, studies - start), most
        differences = first(rng, shape) - second(rng, shape)
        scaled = np.sign(differences) if quantity == "wins" else differences / width
        chunks.append(find_stops((1 + scaled) / 2, [*map(level, METHODS)]))
    return [
        Stops(
            pairs=np.concatenate([chunk[i].pairs for chunk in chunks]),
            is_right=np.concatenate([chunk[i].is_right for chunk in chunks]),
        )
        for i in range(len(METHODS))
    ]


def level(methods: int) -> float:
    """Return the level of each comparison of `methods` methods, one of which is the control."""
    return ALPHA / (methods - 1)


def summarise(stops: Stops) -> dict[str, float]:
    """Return the columns of a sequential rule that depend on when studies decide."""
    row = {}
    for cap in CAPS:
        is_early = stops.pairs <= cap
        row[f"right_{cap}"] = float(np.mean(is_early & stops.is_right))
        row[f"wrong_{cap}"] = float(np.mean(is_early & ~stops.is_right))
    row["mean_200"] = float(np.minimum(stops.pairs, 200).mean())
    ordered = np.sort(stops.pairs)
    row["median"] = float(ordered[math.ceil(0.5 * len(ordered)) - 1])
    row["needed"] = float(ordered[math.ceil(POWER * len(ordered)) - 1])
    return row


def rejected_by_t(
    first: Draw, second: Draw, n: int, *, alpha: float, seed: Sequence[int]
) -> float:
    """Return the share of studies with n seeds per method that Welch's t-test rejects."""
    rng = np.random.default_rng(seed)
    studies = max(LEAST_T_STUDIES, min(STUDIES, 20_000_000 // n))
    num_rejected = 0
    for start in range(0, studies, CHUNK):
        shape = min(CHUNK, studies - start), n
        result = scipy.stats.ttest_ind(
            first(rng, shape), second(rng, shape), axis=1, equal_var=False
        )
        num_rejected += int(np.sum(result.pvalue <= alpha))
    return num_rejected / studies


def rows_of(
    spread: str, difference: float, law_on: Callable, *, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a spread and a difference.

    law_on: maps bounds to a law, or to None if there is none on these bounds.
    """
    designs = [("mean", bounds) for bounds in BOUNDS] + [("wins", BOUNDS[0])]
    for number, (rule, bounds) in enumerate(designs):
        law = law_on(bounds)
        if law is None:
            continue
        options = {"quantity": rule, "bounds": bounds}
        unequal = simulate(
            law.better, law.worse, most=MOST, seed=[seed, number, 0], **options
        )
        equal = simulate(
            law.worse, law.worse, most=200, seed=[seed, number, 1], **options
        )
        unit = difference / (bounds[1] - bounds[0]) if rule == "mean" else 1.0
        for methods, stops, null_stops in zip(METHODS, unequal, equal):
            yield {
                "spread": spread,
                "deviation": law.deviation,
                "difference": difference,
                "methods": methods,
                "alpha": level(methods),
                "rule": rule,
                "low": bounds[0],
                "high": bounds[1],
                "least": least_pairs(unit, level(methods)),
                **summarise(stops),
                "error": float(np.mean(np.isfinite(null_stops.pairs))),
            }
    law = law_on(BOUNDS[0])
    for methods in METHODS:
        alpha = level(methods)
        n = stats.seeds_for_t(
            difference=difference, deviation=law.deviation, alpha=alpha, target=POWER
        )
        yield {
            "spread": spread,
            "deviation": law.deviation,
            "difference": difference,
            "methods": methods,
            "alpha": alpha,
            "rule": "t",
            "needed": n,
            "power": rejected_by_t(
                law.better, law.worse, n, alpha=alpha, seed=[seed, methods, 2]
            ),
            "error": rejected_by_t(
                law.worse, law.worse, n, alpha=alpha, seed=[seed, methods, 3]
            ),
        }


COLUMNS = (
    *("spread", "deviation", "difference", "methods", "alpha", "rule", "low", "high"),
    *("least", *(f"{side}_{cap}" for cap in CAPS for side in ("right", "wrong"))),
    *("mean_200", "median", "needed", "power", "error"),
)


def cells() -> dict[str, Callable[[float], Callable]]:
    """Return for each spread a function of the difference that returns `rows_of`'s law_on."""
    scores = hundred_seeds()

    def on_hundred(difference: float) -> Callable:
        law = hundred_law(scores, difference)
        return lambda bounds: law if bounds == BOUNDS[0] else None

    def on_beta(deviation: float) -> Callable:
        return lambda difference: functools.partial(beta_law, deviation, difference)

    laws = {"hundred": on_hundred}
    for row in spreads().itertuples():
        laws[f"{row.metric} {row.quartile}"] = on_beta(row.deviation)
    return laws


def format_number(value: Any) -> str:
    """Return a value of a table: at most six digits, and nothing for a missing value."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def write(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], path: pathlib.Path
) -> None:
    """Write rows as CSV; missing values are empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([format_number(row.get(name, "")) for name in columns])
    print(f"written: {path}")


def main(argv: Sequence[str] | None = None) -> int:
    """Write both tables."""
    parser = command.parser("sequential_power", __doc__)
    command.add_out(parser, "the tables", command.RESULTS)
    args = parser.parse_args(argv)
    quartiles = spreads()
    write(quartiles.to_dict("records"), [*quartiles], args.out / SPREADS)
    rows = []
    for i, (spread, law_of) in enumerate(cells().items()):
        for j, difference in enumerate(DIFFERENCES):
            rows += rows_of(
                spread, difference, law_of(difference), seed=len(DIFFERENCES) * i + j
            )
            print(f"{spread}, {difference} done", flush=True)
    write(rows, COLUMNS, args.out / TABLE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
