"""Simulate how often comparisons that are repeated after every seed make false claims.

    python -m studies.sequential_nulls

A simulated study has a control and up to 7 methods with 200 seeds, and looks at the scores after
every seed. The decisions are those of jbias.stats.compare_with_control at alpha = 0.05. In the same
studies, t-tests are repeated after every seed from the third on, with the Bonferroni correction
for the number of methods. Scores are in [0, 1]:

- normal: mean 0.4 and standard deviation 0.1, clipped to [0, 0.8].
- two humps: around 0.06, or with probability 0.24 around 0.75.
- skewed: 0.8 times a beta distribution with the parameters 0.5 and 4.5.
- unequal shapes: the control has a score near 0.7, and a score near 0 with probability 0.05; the
  methods have normal scores with the same mean.
- zero or one: 0 or 1 with equal probabilities, as two humps with the largest spread. For a true
  difference, ones are drawn more often.
- ERM seeds: the shape biases of the hundred seeds of ERM in docs/results/all.csv, drawn with
  replacement. For a true difference, large shape biases are drawn more often.

Studies with 2 and 5 methods have the first methods of the studies with 8; all share the control.
Shares are fractions of studies. `methods` counts the control. `difference` is the true difference
of each method from the control in points. `points` is the margin of equivalence, empty for none.
`standard_error` is the standard error of the share. Writes to OUT:

sequential_nulls.csv: shares of studies with a false claim of any method at any look. Columns:
shape, methods, difference, points, rule, first_look, looks, studies, false_claims, share,
standard_error. The rule "sequential" compares means; "sequential, wins" has quantity="wins", without
"unequal shapes", for which wins differ. With the difference 0, a false claim is "a" or "b". If the
difference is as large as the margin, a false claim is "equivalent" or the wrong direction; the
paired t-test is then also repeated as two one-sided tests of equivalence. A decision is final.
false_claims: number of studies with a false claim.

sequential_nulls_by_look.csv: for the difference 0 without a margin, shares of studies with a false
claim at `look` or before. Columns: shape, methods, rule, look, studies, share, standard_error.

sequential_ebh.csv: false discovery rates of e-BH at several stopping times. Columns: shape,
methods, true_differences, difference, stopping, studies, false_discovery_rate, standard_error,
discoveries. true_differences: number of methods that differ by `difference` points; discoveries:
mean number of discoveries of a study.

Takes about five minutes on one core.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.stats
from jaxtyping import Bool, Float, Int

from jbias.stats import sequential
from studies import command

ALPHA, LOOKS = 0.05, 200
METHODS = (2, 5, 8)
MARGINS = (10, 20)  # In points.
FIRST_TTEST = 3  # Seeds of the first t-test.
SHOWN_LOOKS = (3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200)
NEVER = 10**6  # A number of looks that no study has.
CHUNK = 250  # Studies that are simulated at a time.
EBH_DIFFERENCE = 20  # In points.
SEQUENTIAL, WINS = "sequential", "sequential, wins"
PAIRED, WELCH = "paired t-test", "Welch t-test"
UNEQUAL = "unequal shapes"


class Shape(NamedTuple):
    """Distributions of the scores of a control and of methods.

    control: maps a generator and a size to scores. method: maps a generator, a size and the true
    difference from the control to scores.
    """

    control: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    method: Callable[[np.random.Generator, tuple[int, ...], float], np.ndarray]


def erm_seeds() -> Float[np.ndarray, "n"]:
    """Return the shape biases of the hundred seeds of ERM."""
    rows = pd.read_csv(command.DOCS / "results/all.csv")
    is_wanted = (rows.study == "hundred-seeds") & (rows.metric == "shape_bias")
    return np.sort(rows.score[is_wanted].to_numpy(float))


def tilted_weights(
    values: Float[np.ndarray, "n"], difference: float
) -> Float[np.ndarray, "n"]:
    """Return probabilities of `values` whose mean is `difference` above the plain mean.

    They are proportional to exp(rate * value), for the rate that gives this mean.
    """

    def weights(rate: float) -> np.ndarray:
        unscaled = np.exp(rate * values)
        return unscaled / unscaled.sum()

    if not difference:
        return np.full(len(values), 1 / len(values))
    target = values.mean() + difference
    rate = scipy.optimize.brentq(
        lambda rate: weights(rate) @ values - target, -50, 50, xtol=1e-13
    )
    return weights(rate)


def shapes() -> dict[str, Shape]:
    """Return the distributions by name; see the module."""
    seeds = erm_seeds()

    def normal(rng, size):
        return np.clip(rng.normal(0.4, 0.1, size), 0, 0.8)

    def two_humps(rng, size):
        humps = np.where(rng.random(size) < 0.24, 0.75, 0.06)
        return humps + np.clip(0.02 * rng.normal(size=size), -0.05, 0.05)

    def skewed(rng, size):
        return 0.8 * rng.beta(0.5, 4.5, size)

    def seldom_fails(rng, size):
        levels = np.where(rng.random(size) < 0.05, 0.05, 0.7)
        return levels + np.clip(0.02 * rng.normal(size=size), -0.05, 0.05)

    def never_fails(rng, size, difference):
        mean = 0.05 * 0.05 + 0.95 * 0.7 + difference
        return mean + np.clip(0.02 * rng.normal(size=size), -0.05, 0.05)

    def zero_or_one(rng, size, difference=0.0):
        return (rng.random(size) < 0.5 + difference).astype(float)

    def resampled(rng, size, difference=0.0):
        return rng.choice(seeds, size, p=tilted_weights(seeds, difference))

    return {
        "normal": Shape(normal, _shifted(normal)),
        "two humps": Shape(two_humps, _shifted(two_humps)),
        "skewed": Shape(skewed, _shifted(skewed)),
        UNEQUAL: Shape(seldom_fails, never_fails),
        "zero or one": Shape(zero_or_one, zero_or_one),
        "ERM seeds": Shape(resampled, resampled),
    }


def _shifted(draw: Callable) -> Callable:
    """Return a function that draws scores and adds the true difference."""
    return lambda rng, size, difference: draw(rng, size) + difference


class Evidence(NamedTuple):
    """Largest log e-values so far against a mean; the last axis is the look.

    above: of the looks at which the mean of the values is above the tested mean; below: of the
    looks at which it is below.
    """

    above: Float[np.ndarray, "*batch n"]
    below: Float[np.ndarray, "*batch n"]


def evidence(values: Float[np.ndarray, "*batch n"], mean: float) -> Evidence:
    """Return the evidence against "the mean of the values is `mean`" after each value.

    The mean is below the confidence sequence of jbias.stats at the level alpha if `above` exceeds
    log(1 / alpha), and above the confidence sequence if `below` does.
    """
    logs = sequential.log_evalues(values, mean)
    averages = np.cumsum(values, axis=-1) / np.arange(1, values.shape[-1] + 1)
    above = np.where(averages > mean, logs, -math.inf)
    below = np.where(averages < mean, logs, -math.inf)
    return Evidence(
        above=np.maximum.accumulate(above, axis=-1),
        below=np.maximum.accumulate(below, axis=-1),
    )


class Evidences(NamedTuple):
    """Evidence against the difference 0 and against both ends of the margin."""

    zero: Evidence
    low: Evidence | None
    high: Evidence | None


def evidences(
    differences: Float[np.ndarray, "*batch n"], points: float | None = None
) -> Evidences:
    """Return the evidence about differences in [-1, 1]; points: margin in points or None."""
    values = (1 + differences) / 2
    zero = evidence(values, 0.5)
    if points is None:
        return Evidences(zero, None, None)
    margin = points / 100
    low = evidence(values, (1 - margin) / 2)
    return Evidences(zero, low, evidence(values, (1 + margin) / 2))


class Decisions(NamedTuple):
    """Decisions of comparisons, as of jbias.stats.compare.

    decision: "a", "b", "equivalent", or "" for undecided. stopped_at: number of looks after which
    the comparison is decided; one more than all looks if it is not.
    """

    decision: np.ndarray
    stopped_at: Int[np.ndarray, "*batch"]


def decide(known: Evidences, alpha: float = ALPHA) -> Decisions:
    """Return the decisions at the level alpha."""
    threshold = -math.log(alpha)
    first_a = _first(known.zero.above > threshold)
    first_b = _first(known.zero.below > threshold)
    looks = known.zero.above.shape[-1]
    first_equal = np.full_like(first_a, looks + 1)
    if known.low is not None:
        is_equal = (known.low.above > threshold) & (known.high.below > threshold)
        first_equal = _first(is_equal)
    return _earliest(first_a, first_b, first_equal, looks)


def _earliest(
    first_a: Int[np.ndarray, "*batch"],
    first_b: Int[np.ndarray, "*batch"],
    first_equal: Int[np.ndarray, "*batch"],
    looks: int,
) -> Decisions:
    """Return the decisions of the earliest look; see `jbias.stats.compare` for equal looks."""
    stopped_at = np.minimum(np.minimum(first_a, first_b), first_equal)
    decision = np.select(
        [stopped_at > looks, first_equal == stopped_at, first_a == stopped_at],
        ["", "equivalent", "a"],
        "b",
    )
    return Decisions(decision, stopped_at)


def _first(is_true: Bool[np.ndarray, "*batch n"]) -> Int[np.ndarray, "*batch"]:
    """Return the number of the first look that is True; one more than all looks if none is."""
    first = np.argmax(is_true, axis=-1) + 1
    return np.where(is_true.any(axis=-1), first, is_true.shape[-1] + 1)


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and the unbiased variances after each value of the last axis."""
    count = np.arange(1, values.shape[-1] + 1)
    center = values[..., :1]
    mean = np.cumsum(values - center, axis=-1) / count
    square = np.cumsum((values - center) ** 2, axis=-1) / count
    with np.errstate(invalid="ignore"):
        variance = (square - mean**2).clip(0) * count / (count - 1)
    return mean + center, variance


def paired_ttest(
    differences: Float[np.ndarray, "*batch n"],
    level: float,
    points: float | None = None,
) -> Decisions:
    """Return the decisions of paired t-tests that are repeated after every seed.

    "a" or "b": a two-sided test at the level. "equivalent": two one-sided tests at the level
    against a difference of `points`.
    """
    mean, variance = _moments(differences)
    looks = differences.shape[-1]
    count = np.arange(1, looks + 1)
    error = np.sqrt(variance / count)
    is_tested = count >= FIRST_TTEST
    freedom = np.maximum(count - 1, 1)
    least = scipy.stats.t.isf(level / 2, freedom) * error
    first_a = _first((mean > least) & is_tested)
    first_b = _first((mean < -least) & is_tested)
    first_equal = np.full_like(first_a, looks + 1)
    if points is not None:
        most = points / 100 - scipy.stats.t.isf(level, freedom) * error
        first_equal = _first((np.abs(mean) < most) & is_tested)
    return _earliest(first_a, first_b, first_equal, looks)


def welch_ttest(
    a: Float[np.ndarray, "*batch n"], b: Float[np.ndarray, "*batch n"], level: float
) -> Int[np.ndarray, "*batch"]:
    """Return the first looks at which Welch's t-test claims a difference."""
    count = np.arange(1, a.shape[-1] + 1)
    (mean_a, variance_a), (mean_b, variance_b) = _moments(a), _moments(b)
    total = variance_a + variance_b
    error = np.sqrt(total / count)
    distance = np.abs(mean_a - mean_b)
    # Every critical value is above the one of the normal distribution.
    is_near = (distance > scipy.stats.norm.isf(level / 2) * error) & (
        count >= FIRST_TTEST
    )
    index = np.nonzero(is_near)
    squares = np.broadcast_to(variance_a**2 + variance_b**2, total.shape)[index]
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = total[index] ** 2 / squares * (count[index[-1]] - 1)
        statistic = distance[index] / error[index]
    # Without any spread, a difference is significant.
    freedom = np.where(squares > 0, freedom, 1.0)
    is_different = np.zeros(total.shape, bool)
    is_different[index] = 2 * scipy.stats.t.sf(statistic, freedom) < level
    return _first(is_different)


def e_bh(log_evalues: Float[np.ndarray, "s k *n"]) -> Bool[np.ndarray, "s k *n"]:
    """Return the discoveries of e-BH among the methods of each study (and look) at ALPHA."""
    k = log_evalues.shape[1]
    ordered = -np.sort(-log_evalues, axis=1)
    ranks = np.arange(1, k + 1).reshape(k, *[1] * (log_evalues.ndim - 2))
    is_large = ordered >= np.log(k / (ALPHA * ranks))
    count = np.where(is_large, ranks, 0).max(axis=1, keepdims=True)
    return (count > 0) & (log_evalues >= np.log(k / (ALPHA * np.maximum(count, 1))))


class Scores(NamedTuple):
    """Simulated scores of a chunk of studies; the last axis is the seed."""

    control: Float[np.ndarray, "s 1 n"]
    methods: Float[np.ndarray, "s k n"]

    @property
    def differences(self) -> Float[np.ndarray, "s k n"]:
        """Differences of the methods from the control."""
        return self.methods - self.control


def simulate(
    shape: Shape,
    *,
    studies: int,
    difference: float,
    num_different: int,
    key: tuple[int, ...],
    looks: int = LOOKS,
) -> Iterator[Scores]:
    """Yield the scores of studies in chunks.

    difference: true difference in points of the first `num_different` methods; that of the others
    is 0. key: seeds of the generator.
    """
    k = max(METHODS) - 1
    for first in range(0, studies, CHUNK):
        count = min(CHUNK, studies - first)
        rng = np.random.default_rng([*key, first])
        control = shape.control(rng, (count, 1, looks))
        methods = [
            shape.method(rng, (count, looks), difference / 100 * (i < num_different))
            for i in range(k)
        ]
        yield Scores(control, np.stack(methods, axis=1))


def _false_claims(scores: Scores, *, points: float | None, is_null: bool) -> dict:
    """Return the first false claims by (methods, rule): (studies,) arrays of looks.

    NEVER: no false claim. is_null: the true differences are 0; otherwise they
    are as large as the margin `points`, and the methods have the larger means.
    """
    differences = scores.differences
    rules = [(SEQUENTIAL, evidences(differences, points))]
    if points is None:
        rules.append((WINS, evidences(np.sign(differences))))
    first = {}
    for methods in METHODS:
        k = methods - 1
        level = ALPHA / k
        decisions = {rule: decide(known, level) for rule, known in rules}
        if points is None or not is_null:
            decisions[PAIRED] = paired_ttest(differences, level, points)
        for rule, result in decisions.items():
            first[methods, rule] = _first_false(result, is_null=is_null)[:, :k]
        if points is None:
            first[methods, WELCH] = welch_ttest(
                scores.methods[:, :k], scores.control, level
            )
    return {key: looks.min(axis=1) for key, looks in first.items()}


def _first_false(decisions: Decisions, *, is_null: bool) -> Int[np.ndarray, "*batch"]:
    """Return the look of each decision that is false, otherwise a look that is never reached."""
    is_false = decisions.decision == ("a" if is_null else "equivalent")
    is_false |= decisions.decision == "b"
    return np.where(is_false, decisions.stopped_at, NEVER)


def standard_error(share: float, studies: int) -> float:
    """Return the standard error of a share of simulated studies."""
    return math.sqrt(share * (1 - share) / studies)


def _joined(chunks: list[Mapping]) -> dict:
    """Return the arrays of all chunks one after another, by key."""
    return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}


def nulls(
    name: str, *, studies: int, seed: int = 0
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return rows of sequential_nulls.csv and sequential_nulls_by_look.csv of a shape."""
    shape, number = shapes()[name], list(shapes()).index(name)
    cases = [(0, points) for points in (None, *MARGINS)]
    rows, rows_by_look = [], []
    for difference, points in cases + [(margin, margin) for margin in MARGINS]:
        chunks = simulate(
            shape,
            studies=studies,
            difference=difference,
            num_different=max(METHODS) - 1,
            key=(seed, number, difference),
        )
        looks = _joined(
            [_false_claims(c, points=points, is_null=not difference) for c in chunks]
        )
        for (methods, rule), first in looks.items():
            if name == UNEQUAL and rule == WINS:
                continue
            share = float((first <= LOOKS).mean())
            rows.append(
                {
                    "shape": name,
                    "methods": methods,
                    "difference": difference,
                    "points": "" if points is None else points,
                    "rule": rule,
                    "first_look": FIRST_TTEST if rule in (PAIRED, WELCH) else 1,
                    "looks": LOOKS,
                    "studies": studies,
                    "false_claims": int((first <= LOOKS).sum()),
                    "share": share,
                    "standard_error": standard_error(share, studies),
                }
            )
            for look in SHOWN_LOOKS if points is None else ():
                share = float((first <= look).mean())
                rows_by_look.append(
                    {
                        "shape": name,
                        "methods": methods,
                        "rule": rule,
                        "look": look,
                        "studies": studies,
                        "share": share,
                        "standard_error": standard_error(share, studies),
                    }
                )
    return rows, rows_by_look


class Discoveries(NamedTuple):
    """Discoveries of e-BH in each study.

    false_share: share of discoveries that are false, 0 without discoveries. count: number of
    discoveries.
    """

    false_share: Float[np.ndarray, "s *n"]
    count: Int[np.ndarray, "s *n"]


def discoveries(
    log_evalues: Float[np.ndarray, "s k *n"], is_null: Bool[np.ndarray, "k"]
) -> Discoveries:
    """Return the discoveries of e-BH; is_null: True for methods that do not differ."""
    is_discovery = e_bh(log_evalues)
    count = is_discovery.sum(axis=1)
    false_count = is_discovery[:, is_null].sum(axis=1)
    return Discoveries(false_count / np.maximum(count, 1), count)


def stopped_discoveries(
    scores: Scores, k: int, num_different: int, rng: np.random.Generator
) -> dict[str, Float[np.ndarray, "s 2"]]:
    """Return the false share and the number of discoveries by stopping time.

    k: number of methods; the first `num_different` differ from the control. rng: for random looks.
    """
    is_null = np.arange(k) >= num_different
    logs = sequential.log_evalues((1 + scores.differences[:, :k]) / 2, 0.5)
    by_look = discoveries(logs, is_null)
    studies, looks = by_look.count.shape
    stopping = {
        "a random look": rng.integers(1, looks + 1, studies),
        "first look with a discovery": _first(by_look.count >= 1),
        "first look with two discoveries": _first(by_look.count >= 2),
        "first look with a false discovery": _first(by_look.false_share > 0),
        "last look": np.full(studies, looks),
    }
    results = {}
    for name, look in stopping.items():
        index = np.arange(studies), np.minimum(look, looks) - 1
        results[name] = Discoveries(by_look.false_share[index], by_look.count[index])
    index = np.minimum(_first(logs >= math.log(k / ALPHA)), looks) - 1
    stopped_logs = np.take_along_axis(logs, index[..., None], axis=-1)[..., 0]
    name = "each method at its own first e-value of k / alpha"
    results[name] = discoveries(stopped_logs, is_null)
    return {name: np.stack(result, axis=1) for name, result in results.items()}


def false_discoveries(
    name: str, *, studies: int, seed: int = 0
) -> list[dict[str, object]]:
    """Return rows of sequential_ebh.csv of a shape."""
    shape, number = shapes()[name], list(shapes()).index(name)
    rows = []
    for methods in METHODS[1:]:
        k = methods - 1
        for num_different in (0, k // 2):
            rng = np.random.default_rng([seed, number, k, num_different])
            chunks = simulate(
                shape,
                studies=studies,
                difference=EBH_DIFFERENCE,
                num_different=num_different,
                key=(seed, number, 1000 + 10 * k + num_different),
            )
            results = _joined(
                [stopped_discoveries(c, k, num_different, rng) for c in chunks]
            )
            for stopping, values in results.items():
                error = values[:, 0].std(ddof=1) / math.sqrt(studies)
                rows.append(
                    {
                        "shape": name,
                        "methods": methods,
                        "true_differences": num_different,
                        "difference": EBH_DIFFERENCE if num_different else 0,
                        "stopping": stopping,
                        "studies": studies,
                        "false_discovery_rate": float(values[:, 0].mean()),
                        "standard_error": float(error),
                        "discoveries": float(values[:, 1].mean()),
                    }
                )
    return rows


def main() -> None:
    """Simulate all shapes, and write the three files."""
    parser: argparse.ArgumentParser = command.parser("sequential_nulls", __doc__)
    parser.add_argument(
        "--studies",
        type=int,
        default=10_000,
        metavar="N",
        help="simulated studies of each row (default: %(default)s)",
    )
    command.add_out(parser, "the three files", command.RESULTS)
    options = parser.parse_args()
    tables: dict[str, list] = {
        "sequential_nulls": [],
        "sequential_nulls_by_look": [],
        "sequential_ebh": [],
    }
    for name in shapes():
        rows, rows_by_look = nulls(name, studies=options.studies)
        tables["sequential_nulls"] += rows
        tables["sequential_nulls_by_look"] += rows_by_look
        tables["sequential_ebh"] += false_discoveries(name, studies=options.studies)
        print(f"{name} done", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for table, rows in tables.items():
        path = options.out / f"{table}.csv"
        pd.DataFrame(rows).to_csv(path, index=False, float_format="%.6g")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
