"""Test the registered claims of the study of photographs, as amended.

Claims 1 to 7 are a family: Dunnett's test of the ten methods against ERM, or two one-sided tests
for equivalence, then Holm's adjustment over all seven. Claims 8 and 9, that methods differ, are
Friedman's permutation test with seeds as blocks, without an adjustment. The whole procedure is
repeated at each learning rate and over blocks of sets; a verdict that changes is withdrawn.
docs/results/photographs has the claims and all amendments.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.stats

from jbias import stats
from studies import photographs
from studies import photographs_scores as scores_lib

LEVEL = 0.05
PERMUTATIONS = 1_000_000  # The standard error of p = 0.05 is 0.0002.
# Difference of accuracies or shape biases for which power is computed.
DIFFERENCE = 0.05
SIMULATIONS = 4000
NULL_SIMULATIONS = 200_000  # Of the critical value of Dunnett's test.
Claim = Mapping[str, Any]
NAN = float("nan")
WELCH = "Welch's test"


class Outcome(NamedTuple):
    """The test of a claim on one choice of scores; NaN where the claim's methods lack scores.

    p: after Holm's adjustment, for a claim of the family. standard_error: of p, from random
    permutations; 0 for other tests. difference: of means to ERM, as a fraction; NaN for "differ".
    welch: p of Welch's test, not adjusted; NaN unless the claim is "above".
    """

    p: float = NAN
    standard_error: float = 0.0
    difference: float = NAN
    welch: float = NAN


class SetTest(NamedTuple):
    """The test that all methods differ on one set or on the mean of a block's sets.

    name: of the set, or of the block and its sets. is_set: False for a block. adjusted: p after
    Holm's adjustment over the sets of the study; NaN for a block. at_rates: as adjusted, at each
    of photographs.RATES, without effect on verdicts; NaN for a block.
    """

    study: str
    name: str
    is_set: bool
    p: float
    adjusted: float
    at_rates: tuple[float, ...] = (NAN,) * len(photographs.RATES)


class Verdict(NamedTuple):
    """A claim, its tests, and the verdict.

    chosen: at the chosen rates. at_rates: at each of photographs.RATES. over_blocks: on the mean
    of block means; None for a claim about one set. interval: of the difference; see `interval`.
    power: see `power`. changes: reasons to withdraw a significant verdict. sets: tests of single
    sets, for "differ". registered: see `registered_text`. is_complete: all runs have results.
    """

    claim: Claim
    chosen: Outcome = Outcome()
    at_rates: tuple[Outcome, ...] = (Outcome(),) * len(photographs.RATES)
    over_blocks: Outcome | None = None
    interval: tuple[float, float] = (NAN, NAN)
    power: float = NAN
    changes: tuple[str, ...] = ()
    sets: tuple[SetTest, ...] = ()
    registered: str = ""
    is_complete: bool = True

    @property
    def text(self) -> str:
        """The verdict in words."""
        if not self.is_complete:
            return "not complete"
        if any(np.isnan(outcome.p) for outcome in (self.chosen, *self.at_rates)):
            return "no scores"
        if self.chosen.p >= LEVEL:
            return "undecided"
        if self.changes:
            return "withdrawn"
        if self.claim["relation"] == "above" and self.chosen.difference < 0:
            return "the opposite holds"
        return f"confirmed{self._which_sets}"

    @property
    def _which_sets(self) -> str:
        """The single sets on which methods differ, unless they differ on all."""
        single = [test for test in self.sets if test.is_set]
        names = [test.name for test in single if test.adjusted < LEVEL]
        if len(names) == len(single):
            return ""
        return f", but of single sets only on {', '.join(names) or 'none'}"


def read_claims() -> list[Claim]:
    """Return the registered claims, in order."""
    return json.loads((scores_lib.FOLDER / "claims.json").read_text())["claims"]


def dunnett(scores: scores_lib.Scores) -> "scipy.stats._multicomp.DunnettResult":
    """Return Dunnett's two-sided test of all methods but ERM against ERM, in the order of scores.

    Results are cached: the test takes half a second.
    """
    samples = tuple(tuple(scores[name]) for name in scores if name != "erm")
    return _dunnett(samples, control=tuple(scores["erm"]))


@functools.lru_cache(maxsize=64)
def _dunnett(samples, control):
    """Return the result of `dunnett`. samples, control: scores of seeds, as tuples."""
    rng = np.random.default_rng(0)
    return scipy.stats.dunnett(
        *map(np.array, samples), control=control, random_state=rng
    )


def dunnett_index(scores: scores_lib.Scores, method: str) -> int:
    """Return the place of a method in the arrays of `dunnett`."""
    return [name for name in scores if name != "erm"].index(method)


def equivalence_pvalues(
    first: np.ndarray, second: np.ndarray, margin: float
) -> np.ndarray:
    """Return p of two one-sided Welch tests that means differ by less than `margin`.

    first, second: scores of seeds along the last axis.
    """
    lower = scipy.stats.ttest_ind(
        first + margin, second, axis=-1, equal_var=False, alternative="greater"
    )
    upper = scipy.stats.ttest_ind(
        first - margin, second, axis=-1, equal_var=False, alternative="less"
    )
    return np.maximum(lower.pvalue, upper.pvalue)


def differ(
    rows: pd.DataFrame, name: str = scores_lib.ALL, *, without: Sequence[str] = ()
) -> tuple[float, float]:
    """Return p and its standard error of the test that all methods are equal; blocks are seeds.

    The scores are those of the set `name`, or the mean over sets for ALL. Friedman's permutation
    test. without: methods to leave out. (NaN, 0) unless all other methods have scores of all seeds.
    """
    scores = scores_lib.scores_of(rows, name)
    scores = {method: x for method, x in scores.items() if method not in without}
    if len(scores) < len(photographs.METHODS) - len(without):
        return NAN, 0.0
    result = stats.friedman_permutation(
        pd.DataFrame(scores), larger_is_better=True, permutations=PERMUTATIONS
    )
    return float(result.pvalue), float(result.standard_error)


def registered_differ_pvalue(rows: pd.DataFrame) -> float:
    """Return p of the registered test: Friedman's after Iman and Davenport, over sets."""
    table = rows.pivot_table(index="dataset", columns="method", values="score")
    return float(stats.friedman(table.dropna(axis=1), larger_is_better=True).pvalue)


def outcome(claim: Claim, rows: pd.DataFrame) -> Outcome:
    """Return the test of a claim on rows of scores, before Holm's adjustment."""
    if claim["relation"] == "differ":
        p, standard_error = differ(rows)
        return Outcome(p=p, standard_error=standard_error)
    scores = scores_lib.scores_of(rows, claim["set"])
    if not {claim["method"], "erm"} <= {*scores}:
        return Outcome()
    method, erm = scores[claim["method"]], scores["erm"]
    difference = float(method.mean() - erm.mean())
    if claim["relation"] == "within":
        p = float(equivalence_pvalues(method, erm, claim["margin"]))
        return Outcome(p=p, difference=difference)
    p = float(dunnett(scores).pvalue[dunnett_index(scores, claim["method"])])
    welch = float(scipy.stats.ttest_ind(method, erm, equal_var=False).pvalue)
    return Outcome(p=p, difference=difference, welch=welch)


def adjust(pvalues: Sequence[float]) -> list[float]:
    """Return p after Holm's adjustment over all of them; NaN counts as 1 and stays NaN."""
    adjusted = stats.adjust([1.0 if np.isnan(p) else p for p in pvalues], "holm")
    return [NAN if np.isnan(p) else float(q) for p, q in zip(pvalues, adjusted)]


def has_blocks(claim: Claim) -> bool:
    """Return True if a claim is about several sets."""
    return claim["set"] in (scores_lib.MEAN, scores_lib.ALL)


def outcomes(
    claims: Sequence[Claim], rate: float | None, *, over_blocks: bool = False
) -> list[Outcome]:
    """Return the tests of all claims: the whole procedure, with Holm's adjustment of the family.

    rate: None for the chosen rates. over_blocks: True to use the mean of block means in place of
    the mean over sets.
    """
    results = []
    for claim in claims:
        rows = scores_lib.rows_at(claim["study"], claim["metric"], rate)
        if over_blocks and has_blocks(claim):
            rows = scores_lib.block_means(rows, claim["study"])
        results.append(outcome(claim, rows))
    family = [i for i, claim in enumerate(claims) if claim["relation"] != "differ"]
    adjusted = adjust([results[i].p for i in family])
    for i, p in zip(family, adjusted, strict=True):
        results[i] = results[i]._replace(p=p)
    return results


def changes(claim: Claim, verdict: Verdict) -> tuple[str, ...]:
    """Return the reasons to withdraw a verdict that is significant at the chosen rates.

    The direction or the significance changes at a rate, over blocks or by Welch's test, or the
    direction changes in a block or without a seed.
    """
    chosen, is_directed = verdict.chosen, claim["relation"] == "above"

    def is_reversed(difference: float) -> bool:
        """Return True if a difference is not in the direction of the verdict."""
        return is_directed and not difference * chosen.difference > 0

    reasons = [WELCH] if chosen.welch >= LEVEL else []
    for rate, at_rate in zip(photographs.RATES, verdict.at_rates, strict=True):
        if is_reversed(at_rate.difference) or not at_rate.p < LEVEL:
            reasons.append(f"rate {rate:g}")
        elif at_rate.welch >= LEVEL:
            reasons.append(f"{WELCH} at rate {rate:g} (p {at_rate.welch:.3f})")
    blocked = verdict.over_blocks
    if blocked and (is_reversed(blocked.difference) or not blocked.p < LEVEL):
        reasons.append("mean of blocks")
    if is_directed:
        differences = _differences_of_subsets(claim)
        reasons += [k for k, x in differences.items() if is_reversed(x)]
    return tuple(reasons)


def registered_text(claim: Claim, verdict: Verdict) -> str:
    """Return the verdict by the rules of claims.json alone, without the amendments.

    Claims 1 to 7 need no Welch's test. Claims 8 and 9 are decided by Friedman's test over sets, at
    the chosen rates and at each rate, as claims.json names no blocks.
    """
    if claim["relation"] == "differ":
        pvalues = []
        for rate in (None, *photographs.RATES):
            rows = scores_lib.rows_at(claim["study"], claim["metric"], rate)
            pvalues.append(registered_differ_pvalue(rows))
        reasons = [p for p in pvalues[1:] if not p < LEVEL]
        registered = verdict._replace(chosen=Outcome(pvalues[0]), sets=())
    else:
        reasons = [x for x in verdict.changes if not x.startswith(WELCH)]
        registered = verdict
    return registered._replace(changes=tuple(map(str, reasons))).text


def _differences_of_subsets(claim: Claim) -> dict[str, float]:
    """Return the differences to ERM at the chosen rates, in each block and without each seed."""
    rows = scores_lib.rows_at(claim["study"], claim["metric"], None)
    by_subset = {}
    if has_blocks(claim):
        blocked = scores_lib.block_means(rows, claim["study"])
        for block in scores_lib.BLOCKS[claim["study"]]:
            scores = scores_lib.scores_of(blocked, block)
            difference = scores[claim["method"]].mean() - scores["erm"].mean()
            by_subset[f"block {block}"] = float(difference)
    scores = scores_lib.scores_of(rows, claim["set"])
    for number, seed in enumerate(photographs.SEEDS):
        left = {name: np.delete(values, number) for name, values in scores.items()}
        difference = left[claim["method"]].mean() - left["erm"].mean()
        by_subset[f"without seed {seed}"] = float(difference)
    return by_subset


def interval(claim: Claim) -> tuple[float, float]:
    """Return a confidence interval of the difference to ERM at the chosen rates.

    For "above" Dunnett's simultaneous one of 95 %; for "within" Welch's one of 90 %, which is
    inside the margin if and only if the claim's test has p < 5 %. NaN for "differ" and without
    scores.
    """
    if claim["relation"] == "differ":
        return NAN, NAN
    rows = scores_lib.rows_at(claim["study"], claim["metric"], None)
    scores = scores_lib.scores_of(rows, claim["set"])
    if not {claim["method"], "erm"} <= {*scores}:
        return NAN, NAN
    if claim["relation"] == "within":
        result = scipy.stats.ttest_ind(
            scores[claim["method"]], scores["erm"], equal_var=False
        )
        ends = result.confidence_interval(0.9)
        return float(ends.low), float(ends.high)
    ends = dunnett(scores).confidence_interval(0.95)
    index = dunnett_index(scores, claim["method"])
    return float(ends.low[index]), float(ends.high[index])


def set_tests(study: str) -> tuple[SetTest, ...]:
    """Return the tests that methods differ, on each set and each block of several sets."""
    rows = scores_lib.rows_at(study, "accuracy", None)
    blocks = scores_lib.BLOCKS[study]
    names = [name for sets in blocks.values() for name in sets]
    pvalues = [differ(rows, name)[0] for name in names]
    adjusted = [adjust(pvalues)]
    for rate in photographs.RATES:
        at_rate = scores_lib.rows_at(study, "accuracy", rate)
        adjusted.append(adjust([differ(at_rate, name)[0] for name in names]))
    tests = [
        SetTest(study, name, True, p, of_set, tuple(at_rates))
        for name, p, of_set, *at_rates in zip(names, pvalues, *adjusted, strict=True)
    ]
    blocked = scores_lib.block_means(rows, study)
    for block, sets in blocks.items():
        if len(sets) > 1:
            p, _ = differ(blocked, block)
            name = f"block {block}: {', '.join(sets)}"
            tests.append(SetTest(study, name, is_set=False, p=p, adjusted=NAN))
    return tuple(tests)


@functools.cache
def critical_value(num_methods: int, level: float) -> float:
    """Return the |t| above which Dunnett's test is significant at `level`, by simulation.

    num_methods: with ERM, the control; each has the study's number of seeds.
    """
    shape = (NULL_SIMULATIONS, num_methods, len(photographs.SEEDS))
    statistics = _dunnett_statistics(np.random.default_rng(0).normal(size=shape))
    return float(np.quantile(np.abs(statistics).max(axis=1), 1 - level))


def _dunnett_statistics(draws: np.ndarray) -> np.ndarray:
    """Return Dunnett's t of all methods but the first against the first, studies by methods.

    draws: scores, studies by methods by seeds.
    """
    means = draws.mean(axis=2)
    pooled_variance = draws.var(axis=2, ddof=1).mean(axis=1, keepdims=True)
    error = np.sqrt(pooled_variance * 2 / draws.shape[2])
    return (means[:, 1:] - means[:, :1]) / error


def power(claim: Claim, level: float) -> float:
    """Return the power of a claim's tests in the first step of Holm's adjustment.

    Scores are simulated as normal, with the standard deviation over seeds of each method at its
    chosen rate. For "above": the share of studies in which Dunnett's test is significant at
    `level` and Welch's test at 5 %, if the true difference is DIFFERENCE. For "within": the share
    with p < `level` of the two one-sided tests, if the means are equal. NaN for "differ" and
    without scores.
    """
    if claim["relation"] == "differ":
        return NAN
    rows = scores_lib.rows_at(claim["study"], claim["metric"], None)
    scores = scores_lib.scores_of(rows, claim["set"])
    if not {claim["method"], "erm"} <= {*scores}:
        return NAN
    names = ["erm", *(name for name in scores if name != "erm")]
    deviations = np.array([scores[name].std(ddof=1) for name in names])
    shape = (SIMULATIONS, len(names), len(photographs.SEEDS))
    draws = np.random.default_rng(0).normal(size=shape) * deviations[:, None]
    index = names.index(claim["method"])
    if claim["relation"] == "within":
        pvalues = equivalence_pvalues(draws[:, index], draws[:, 0], claim["margin"])
        return float(np.mean(pvalues < level))
    draws[:, index] += DIFFERENCE
    statistics = np.abs(_dunnett_statistics(draws)[:, index - 1])
    welch = scipy.stats.ttest_ind(draws[:, index], draws[:, 0], axis=1, equal_var=False)
    is_detected = statistics > critical_value(len(names), level)
    return float(np.mean(is_detected & (welch.pvalue < LEVEL)))


@functools.cache
def detectable(num_methods: int, level: float, share: float = 0.8) -> float:
    """Return the difference to ERM that is significant in `share` of studies, by simulation.

    In standard deviations of seeds, which are equal in all methods. Significant: Dunnett's test at
    `level`, and Welch's test at 5 %. num_methods: with ERM; the others are equal to ERM.
    """
    shape = (SIMULATIONS, num_methods, len(photographs.SEEDS))
    draws = np.random.default_rng(0).normal(size=shape)
    critical = critical_value(num_methods, level)

    def excess_power(difference: float) -> float:
        """Return the power at a difference, less `share`."""
        shifted = draws.copy()
        shifted[:, 1] += difference
        statistics = np.abs(_dunnett_statistics(shifted)[:, 0])
        welch = scipy.stats.ttest_ind(
            shifted[:, 1], shifted[:, 0], axis=1, equal_var=False
        )
        return np.mean((statistics > critical) & (welch.pvalue < LEVEL)) - share

    return float(scipy.optimize.brentq(excess_power, 0.0, 100.0, xtol=1e-3))


def first_holm_level(claims: Sequence[Claim]) -> float:
    """Return the level of the first step of Holm's adjustment: LEVEL / size of the family."""
    return LEVEL / sum(claim["relation"] != "differ" for claim in claims)


def verdicts() -> list[Verdict]:
    """Return the verdict of each registered claim, in order; without tests until complete."""
    claims = read_claims()
    if scores_lib.unfinished_cells():
        return [Verdict(claim, is_complete=False) for claim in claims]
    chosen = outcomes(claims, None)
    at_rates = zip(*(outcomes(claims, rate) for rate in photographs.RATES))
    over_blocks = outcomes(claims, None, over_blocks=True)
    results = []
    for claim, at_chosen, of_rates, blocked in zip(
        claims, chosen, at_rates, over_blocks, strict=True
    ):
        is_general = claim["relation"] == "differ"
        verdict = Verdict(
            claim,
            chosen=at_chosen,
            at_rates=of_rates,
            over_blocks=blocked if has_blocks(claim) else None,
            interval=interval(claim),
            power=power(claim, first_holm_level(claims)),
            sets=set_tests(claim["study"]) if is_general else (),
        )
        if at_chosen.p < LEVEL:
            verdict = verdict._replace(changes=changes(claim, verdict))
        results.append(verdict._replace(registered=registered_text(claim, verdict)))
    return results


def paired_differences(
    method: str, study: str, metric: str, name: str, rate: float
) -> tuple[float, tuple[float, float]] | None:
    """Return the mean over seeds of method - ERM at a rate, and its 95 % t-interval.

    name: see `photographs_scores.scores_of`. None without scores of all seeds.
    """
    scores = scores_lib.scores_of(scores_lib.rows_at(study, metric, rate), name)
    if not {method, "erm"} <= {*scores}:
        return None
    result = scipy.stats.ttest_rel(scores[method], scores["erm"])
    ends = result.confidence_interval(0.95)
    mean = float(np.mean(scores[method] - scores["erm"]))
    return mean, (float(ends.low), float(ends.high))
