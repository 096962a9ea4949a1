"""Try to break the guarantee of comparisons that may be looked at after every seed.

    python -m studies.breaking_the_guarantee

jbias.stats.compare makes a false claim in at most a share alpha = 0.05 of studies, whatever the
reason to stop. Each attack is a researcher who wants a claim, simulated in many studies with up to
200 seeds of each method. Scores are the shape biases of the hundred seeds of ERM
(docs/results/all.csv), drawn with replacement, unless the attack names another shape of
studies.sequential_nulls. The methods do not differ, so that "a" and "b" are false claims, unless
the attack names a true difference.

Attacks inside of the guarantee use the pairs of seeds in their order: at most 5 % of studies have a
false claim. Attacks outside of the guarantee leave out or choose seeds, scores, metrics, levels or
bounds after the scores were seen, or give the method an advantage that is not the method's: many
more studies have a false claim. The attacks are listed in `INSIDE` and `OUTSIDE`.

Writes OUT/breaking_the_guarantee.csv with a row for each attack. Columns: attack, guarantee
("inside" or "outside"), studies, false_claims (studies with a false claim), share (false_claims /
studies), standard_error (of the share).
Takes about a minute on one core.
"""

import argparse
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Bool, Float, Int

from studies import command
from studies import sequential_nulls as nulls

ALPHA, LOOKS = nulls.ALPHA, nulls.LOOKS
SHAPES = nulls.shapes()
ERM = SHAPES["ERM seeds"]
NUM_METHODS = 7  # Beside the control, in attacks with several methods.
POINTS = 20  # True difference, and margin, of attacks with equivalence.
CHUNK = 500  # Studies that are simulated at a time.
Claims = Bool[np.ndarray, "s"]


class Attack(NamedTuple):
    """A researcher. run: maps a generator and a number of studies to "has a false claim"."""

    description: str
    run: Callable[[np.random.Generator, int], Claims]


def draw_pairs(
    rng: np.random.Generator,
    studies: int,
    *,
    shape: nulls.Shape = ERM,
    looks: int = LOOKS,
    difference: float = 0.0,
) -> tuple[Float[np.ndarray, "s n"], Float[np.ndarray, "s n"]]:
    """Return the scores of a method and of the control."""
    method = shape.method(rng, (studies, looks), difference)
    return method, shape.control(rng, (studies, looks))


def draw_methods(rng: np.random.Generator, studies: int) -> Float[np.ndarray, "s k n"]:
    """Return the differences of several methods from the control that they share."""
    methods = ERM.method(rng, (studies, NUM_METHODS, LOOKS), 0.0)
    return methods - ERM.control(rng, (studies, 1, LOOKS))


def first_claims(
    differences: Float[np.ndarray, "*batch n"], alpha: float = ALPHA
) -> Int[np.ndarray, "*batch"]:
    """Return the number of looks until "a" or "b" is decided; one more than all looks: never."""
    return nulls.decide(nulls.evidences(differences), alpha).stopped_at


def has_claim(
    differences: Float[np.ndarray, "*batch n"], alpha: float = ALPHA
) -> Bool[np.ndarray, "*batch"]:
    """Return True where "a" or "b" is decided at any look."""
    return first_claims(differences, alpha) <= differences.shape[-1]


def has_claim_of(
    differences: Float[np.ndarray, "s n"], is_kept: Bool[np.ndarray, "s n"]
) -> Claims:
    """Return True where "a" or "b" is decided if only the kept pairs are used.

    Pairs that are left out become ties at the end of the study, which bring no evidence.
    """
    order = np.argsort(~is_kept, axis=1, kind="stable")
    used = np.where(is_kept, differences, 0.0)
    return has_claim(np.take_along_axis(used, order, axis=1))


# Inside of the guarantee.


def first_decision(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies)
    return has_claim(a - b)


def hardest_scores(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies, shape=SHAPES["zero or one"])
    return has_claim(a - b)


def rare_failures(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies, shape=SHAPES[nulls.UNEQUAL])
    return has_claim(a - b)


def small_ttest(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies)
    stops = nulls.paired_ttest(a - b, ALPHA).stopped_at
    return first_claims(a - b) <= np.minimum(stops, LOOKS)


def prophet(rng: np.random.Generator, studies: int) -> Claims:
    # The mean of the control deviates most in standard errors from the true mean.
    a, b = draw_pairs(rng, studies)
    count = np.arange(1, LOOKS + 1)
    deviation = np.cumsum(b - nulls.erm_seeds().mean(), axis=1) / np.sqrt(count)
    budget = np.argmax(np.abs(deviation), axis=1) + 1
    return first_claims(a - b) <= budget


def prophet_of_methods(rng: np.random.Generator, studies: int) -> Claims:
    differences = draw_methods(rng, studies)
    claims = first_claims(differences, ALPHA / NUM_METHODS)
    best = np.argmin(claims, axis=1)[:, None]
    return np.take_along_axis(claims, best, axis=1)[:, 0] <= LOOKS


def best_of_methods(rng: np.random.Generator, studies: int) -> Claims:
    # All methods stop when the method with the largest evidence is decided.
    claims = first_claims(draw_methods(rng, studies), ALPHA / NUM_METHODS)
    return claims.min(axis=1) <= LOOKS


def most_promising(rng: np.random.Generator, studies: int) -> Claims:
    # After 3 seeds of each method, the next seed goes to the largest mean difference so far.
    differences = draw_methods(rng, studies)
    claims = first_claims(differences, ALPHA / NUM_METHODS)
    means = np.cumsum(differences, axis=2) / np.arange(1, LOOKS + 1)
    study = np.arange(studies)
    seeds = np.full((studies, NUM_METHODS), 3)
    for _ in range(3 * LOOKS):
        latest = np.take_along_axis(means, seeds[..., None] - 1, axis=2)[..., 0]
        is_open = seeds < LOOKS
        best = np.argmax(np.where(is_open, latest, -2.0), axis=1)
        seeds[study, best] += is_open[study, best]
    return (claims <= seeds).any(axis=1)


def more_seeds(rng: np.random.Generator, studies: int) -> Claims:
    # 10 seeds are planned; while undecided, the plan is doubled, up to 200.
    a, b = draw_pairs(rng, studies)
    claims = first_claims(a - b)
    is_claimed = np.zeros(studies, bool)
    for planned in (10, 20, 40, 80, 160, LOOKS):
        is_claimed |= claims <= planned
    return is_claimed


def batches(rng: np.random.Generator, studies: int) -> Claims:
    # Batches have 1 to 30 seeds, larger ones if the evidence is small.
    a, b = draw_pairs(rng, studies)
    known = nulls.evidences(a - b).zero
    largest = np.maximum(known.above, known.below)
    study, seeds = np.arange(studies), np.zeros(studies, int)
    is_claimed = np.zeros(studies, bool)
    for _ in range(LOOKS):
        latest = largest[study, np.maximum(seeds, 1) - 1]
        size = np.where(latest > 1, rng.integers(1, 4, studies), 30)
        seeds = np.where(is_claimed, seeds, np.minimum(seeds + size, LOOKS))
        is_claimed |= largest[study, seeds - 1] > -math.log(ALPHA)
    return is_claimed


def lost_at_random(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies)
    return has_claim_of(a - b, rng.random(a.shape) < 0.8)


def wins(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies)
    return has_claim(np.sign(a - b))


def false_equivalence(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies, difference=POINTS / 100)
    known = nulls.evidences(a - b, POINTS)
    return np.isin(nulls.decide(known).decision, ["equivalent", "b"])


def margin_afterwards(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies, difference=POINTS / 100)
    is_false = np.zeros(studies, bool)
    # Margins are whole points. "Equivalent" is true for margins above the true difference.
    for points in range(1, POINTS + 1):
        known = nulls.evidences(a - b, points)
        threshold = -math.log(ALPHA)
        is_equivalent = (known.low.above > threshold) & (known.high.below > threshold)
        is_false |= is_equivalent.any(axis=1)
    return is_false


def any_interval(rng: np.random.Generator, studies: int) -> Claims:
    # The true difference is outside of the interval at any look.
    a, b = draw_pairs(rng, studies, difference=POINTS / 100)
    known = nulls.evidence((1 + a - b) / 2, (1 + POINTS / 100) / 2)
    return np.maximum(known.above, known.below)[:, -1] > -math.log(ALPHA)


# Outside of the guarantee.


def drops_lost_pairs(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies)
    return has_claim_of(a - b, a - b > -0.5)


def drops_low_seeds(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies)
    return has_claim_of(a - b, a > 0.05)


def drops_failures(rng: np.random.Generator, studies: int) -> Claims:
    shape = SHAPES[nulls.UNEQUAL].control
    a, b = shape(rng, (studies, LOOKS)), shape(rng, (studies, LOOKS))
    return has_claim_of(a - b, a > 0.5)


def skips_late_seeds(rng: np.random.Generator, studies: int) -> Claims:
    # Pairs are used in the order of arrival; a seed with a low score needs 30 looks more.
    a, b = draw_pairs(rng, studies)
    arrival = np.arange(LOOKS) + np.where(a < 0.1, 30.0, 0.0)
    order = np.argsort(arrival, axis=1, kind="stable")
    return has_claim(np.take_along_axis(a - b, order, axis=1))


def orders_seeds(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies)
    return has_claim(-np.sort(b - a, axis=1))


def pairs_by_rank(rng: np.random.Generator, studies: int) -> Claims:
    # The pairs of equal rank are then put into a random order.
    a, b = draw_pairs(rng, studies)
    differences = np.sort(a, axis=1) - np.sort(b, axis=1)
    return has_claim(rng.permuted(differences, axis=1))


def copies_seeds(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies, looks=LOOKS // 5)
    return has_claim(np.repeat(a - b, 5, axis=1))


def best_of_runs(rng: np.random.Generator, studies: int) -> Claims:
    first, b = draw_pairs(rng, studies)
    second, _ = draw_pairs(rng, studies)
    return has_claim(np.maximum(first, second) - b)


def switches_metrics(rng: np.random.Generator, studies: int) -> Claims:
    # Scores of the metrics have the marginal distribution of the shape biases.
    seeds, metrics = nulls.erm_seeds(), 10
    common = rng.normal(size=(studies, 2, 1, LOOKS))
    specific = rng.normal(size=(studies, 2, metrics, LOOKS))
    ranks = scipy.stats.norm.cdf(math.sqrt(0.3) * common + math.sqrt(0.7) * specific)
    scores = seeds[(ranks * len(seeds)).astype(int)]
    return has_claim(scores[:, 0] - scores[:, 1]).any(axis=1)


def restarts(rng: np.random.Generator, studies: int) -> Claims:
    is_claimed = np.zeros(studies, bool)
    for _ in range(20):
        a, b = draw_pairs(rng, studies, looks=50)
        is_claimed |= has_claim(a - b)
    return is_claimed


def full_level_for_all(rng: np.random.Generator, studies: int) -> Claims:
    return has_claim(draw_methods(rng, studies)).any(axis=1)


def raises_alpha(rng: np.random.Generator, studies: int) -> Claims:
    a, b = draw_pairs(rng, studies)
    return has_claim(a - b, alpha=0.2)


def chooses_control(rng: np.random.Generator, studies: int) -> Claims:
    a, _ = draw_pairs(rng, studies)
    controls = ERM.control(rng, (studies, 10, LOOKS))
    return has_claim(a[:, None] - controls).any(axis=1)


def bounds_afterwards(rng: np.random.Generator, studies: int) -> Claims:
    # After 10, 20, 30 and 40 seeds, the bounds are the smallest and the largest score.
    a, b = draw_pairs(rng, studies, shape=SHAPES[nulls.UNEQUAL])
    is_claimed = np.zeros(studies, bool)
    for seeds in (10, 20, 30, 40):
        both = np.concatenate([a[:, :seeds], b[:, :seeds]], axis=1)
        width = both.max(axis=1) - both.min(axis=1)
        is_claimed |= has_claim((a - b)[:, :seeds] / width[:, None])
    return is_claimed


INSIDE = (
    Attack("looks after every seed and stops at the first decision", first_decision),
    Attack("looks after every seed; scores are 0 or 1", hardest_scores),
    Attack("looks after every seed; the control fails rarely", rare_failures),
    Attack("stops when a paired t-test has p < 0.05", small_ttest),
    Attack(
        "knows all scores of the control in advance and trains until its mean deviates most",
        prophet,
    ),
    Attack(
        "knows all scores in advance and trains only the method that is decided first, of 7",
        prophet_of_methods,
    ),
    Attack("stops all 7 methods when the best is decided", best_of_methods),
    Attack("gives the next seed to the most promising of 7 methods", most_promising),
    Attack("doubles the number of seeds while undecided", more_seeds),
    Attack("chooses the sizes of batches by the evidence so far", batches),
    Attack("loses a fifth of the pairs, whatever their scores", lost_at_random),
    Attack("compares wins instead of means, chosen in advance", wins),
    Attack(
        "claims equivalence; the true difference is the margin, 20 points",
        false_equivalence,
    ),
    Attack(
        "chooses the smallest margin that is decided, after every look; the difference is 20 points",
        margin_afterwards,
    ),
    Attack(
        "claims whatever the interval excludes at any look; the difference is 20 points",
        any_interval,
    ),
)
OUTSIDE = (
    Attack("leaves out pairs that the method loses by 50 points", drops_lost_pairs),
    Attack("leaves out seeds of the method below 5 %", drops_low_seeds),
    Attack(
        "leaves out failed seeds of the method, keeps those of the control",
        drops_failures,
    ),
    Attack("does not wait for late seeds; low scores are late", skips_late_seeds),
    Attack("puts the pairs in the order of their differences", orders_seeds),
    Attack("pairs the seeds by the ranks of their scores", pairs_by_rank),
    Attack("counts every seed five times", copies_seeds),
    Attack("takes the better of two runs of each seed of the method", best_of_runs),
    Attack("claims if any of 10 metrics is decided", switches_metrics),
    Attack("restarts with 50 new seeds, up to 20 times", restarts),
    Attack("compares 7 methods, each at the full alpha", full_level_for_all),
    Attack("raises alpha to 0.2 if undecided", raises_alpha),
    Attack(
        "tries 10 sets of seeds of the control, claims if any is decided",
        chooses_control,
    ),
    Attack(
        "sets the bounds to the range of scores seen; the control fails rarely",
        bounds_afterwards,
    ),
)
ATTACKS = {"inside": INSIDE, "outside": OUTSIDE}


def false_claims(attack: Attack, *, studies: int, seed: int) -> int:
    """Return the number of simulated studies with a false claim."""
    return sum(
        int(
            attack.run(
                np.random.default_rng([seed, first]), min(CHUNK, studies - first)
            ).sum()
        )
        for first in range(0, studies, CHUNK)
    )


def rows(studies: int, seed: int = 0) -> list[dict[str, object]]:
    """Return the rows of the file; attack number i has the seed `seed` + i."""
    pairs = [
        (attack, guarantee)
        for guarantee, attacks in ATTACKS.items()
        for attack in attacks
    ]
    written = []
    for i, (attack, guarantee) in enumerate(pairs):
        count = false_claims(attack, studies=studies, seed=seed + i)
        share = count / studies
        written.append(
            {
                "attack": attack.description,
                "guarantee": guarantee,
                "studies": studies,
                "false_claims": count,
                "share": share,
                "standard_error": nulls.standard_error(share, studies),
            }
        )
        print(f"{guarantee}: {attack.description}: {100 * share:.1f} %", flush=True)
    return written


def main() -> None:
    """Simulate all attacks, and write the file."""
    parser: argparse.ArgumentParser = command.parser("breaking_the_guarantee", __doc__)
    parser.add_argument(
        "--studies",
        type=int,
        default=10_000,
        metavar="N",
        help="simulated studies of each attack (default: %(default)s)",
    )
    command.add_out(parser, "the file", command.RESULTS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "breaking_the_guarantee.csv"
    pd.DataFrame(rows(options.studies)).to_csv(path, index=False, float_format="%.6g")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
