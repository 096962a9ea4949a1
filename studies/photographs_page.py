"""Test the claims about photographs, and write the tables of their section in docs/results.md.

    python -m studies.photographs_page

Reads the studies `photographs` and `held-out-styles` in docs/results/all.csv, and in
docs/results/photographs the claims (claims.json) and the validation accuracies that choose each
method's learning rate (rates.json). Writes studies/results/photographs.md.

Each claim is tested as claims.json says, with the changes of amendments.json, and again at each
learning rate, over blocks of test sets, and without any one seed. Claims about methods that lack
scores of a seed are listed as "no scores", and the methods in tables as "not run".

Takes about five seconds on two cores.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats

from jbias import stats
from studies import all_results, command, photographs

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "docs/results/photographs"
LEVEL = 0.05
NOT_RUN = "not run"
MEAN, ALL = "mean", "all"  # Instead of the name of a set, in claims.
BLOCKS = {  # Test sets that count as one.
    photographs.PHOTOGRAPHS: {
        "val": "photographs",
        "cue-conflict": "stimuli",
        "edge": "stimuli",
        "silhouette": "stimuli",
    },
    photographs.HELD_OUT: {
        "photo": "photographs",
        "art_painting": "art",
        "cartoon": "drawings",
        "sketch": "drawings",
    },
}
# Difference of accuracies or shape biases for which power is computed.
DIFFERENCE = 0.05
SIMULATIONS = 2000
Scores = dict[str, np.ndarray]  # By method: scores of seeds, in their order.


class Verdict(NamedTuple):
    """A claim, its test, and what becomes of it.

    p: adjusted where the claim belongs to a family; NaN without scores of all seeds.
    difference: of means, as a fraction; NaN for a claim that all methods differ. rate_pvalues:
    p at each learning rate, not adjusted. power: of the test if the difference is 5 points (if
    it is 0, for a claim of equality); NaN if all methods differ. changes: reasons why a
    significant verdict is withdrawn.
    """

    claim: Mapping[str, Any]
    p: float
    difference: float
    rate_pvalues: tuple[float, ...]
    power: float
    changes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The verdict in words."""
        if np.isnan(self.p):
            return "no scores"
        if self.p >= LEVEL:
            return "undecided"
        if self.changes:
            return "withdrawn"
        is_as_claimed = self.claim["relation"] != "above" or self.difference > 0
        return "confirmed" if is_as_claimed else "the opposite holds"


def chosen_rates(study: str) -> dict[tuple[str, str], float]:
    """Return the rate that validation of the tuning seed chose, by method and held-out style."""
    accuracies = json.loads((FOLDER / "rates.json").read_text()).get(study, {})
    chosen = {}
    for cell in photographs.cells([*photographs.METHODS]):
        name = cell.name.rpartition("/")[2]
        if cell.study == study and name in accuracies:
            by_rate = {
                float(rate): -1.0 if accuracy is None else accuracy  # None: diverged.
                for rate, accuracy in accuracies[name].items()
            }
            chosen[cell.method, cell.style] = max(sorted(by_rate), key=by_rate.get)
    return chosen


def rows_at(study: str, metric: str, rate: float | None) -> pd.DataFrame:
    """Return the rows of a study at one rate; None: at each method's chosen rate.

    For held-out styles, a method has a chosen rate for each style.
    """
    rows = all_results.rows_of(study, metric)
    if rate is not None:
        return rows[rows["rate"] == rate]
    chosen = chosen_rates(study)
    is_held_out = study == photographs.HELD_OUT
    keys = zip(rows["method"], rows["dataset"] if is_held_out else [""] * len(rows))
    expected = [chosen.get(key, np.nan) for key in keys]
    return rows[rows["rate"] == expected]


def scores_of(rows: pd.DataFrame, name: str) -> Scores:
    """Return the scores on a set, or their mean over sets if `name` is MEAN, by method.

    Methods without a score of each seed, on each set for MEAN, are left out.
    """
    sets = sorted({*rows["dataset"]}) if name == MEAN else [name]
    table = rows.pivot_table(index="method", columns=["dataset", "run"], values="score")
    columns = pd.MultiIndex.from_product([sets, photographs.SEEDS])
    complete = table.reindex(columns=columns).dropna()
    return {
        method: row.to_numpy().reshape(len(sets), -1).mean(axis=0)
        for method, row in complete.iterrows()
    }


def dunnett_pvalue(scores: Scores, method: str) -> float:
    """Return p of Dunnett's two-sided test of a method against ERM, among all methods."""
    compared = [name for name in scores if name != "erm"]
    samples = [scores[name] for name in compared]
    result = scipy.stats.dunnett(
        *samples, control=scores["erm"], random_state=np.random.default_rng(0)
    )
    return float(result.pvalue[compared.index(method)])


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


def welch_pvalue(first: np.ndarray, second: np.ndarray) -> float:
    """Return p of Welch's two-sided test that two means are equal."""
    return float(scipy.stats.ttest_ind(first, second, equal_var=False).pvalue)


def mean_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean scores over seeds, data sets by methods, of methods with all sets."""
    table = rows.pivot_table(index="dataset", columns="method", values="score")
    return table.dropna(axis=1)


def seed_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean scores over the sets, seeds by methods, of methods with all scores."""
    return pd.DataFrame(scores_of(rows, MEAN))


def differ_pvalue(rows: pd.DataFrame) -> float:
    """Return p of Friedman's permutation test that all methods are equal; blocks are seeds."""
    table = seed_table(rows)
    return float(stats.friedman_permutation(table, larger_is_better=True).pvalue)


def registered_differ_pvalue(rows: pd.DataFrame) -> float:
    """Return p of the registered test: Friedman's after Iman and Davenport, over sets."""
    return float(stats.friedman(mean_table(rows), larger_is_better=True).pvalue)


def pvalue(claim: Mapping[str, Any], rate: float | None) -> tuple[float, float]:
    """Return p of a claim and the difference of means to ERM at a rate.

    rate: None for each method's chosen rate. Both are NaN if the method or ERM lacks scores
    of a seed; the difference is NaN for a claim that all methods differ.
    """
    rows = rows_at(claim["study"], claim["metric"], rate)
    if not is_testable(claim, rows):
        return float("nan"), float("nan")
    if claim["relation"] == "differ":
        return differ_pvalue(rows), float("nan")
    scores = scores_of(rows, claim["set"])
    method, erm = scores[claim["method"]], scores["erm"]
    difference = float(method.mean() - erm.mean())
    if claim["relation"] == "within":
        p = float(equivalence_pvalues(method, erm, claim["margin"]))
        return p, difference
    return dunnett_pvalue(scores, claim["method"]), difference


def power(claim: Mapping[str, Any]) -> float:
    """Return the power of a claim's test of the method's and ERM's seeds, without adjustment.

    For "above": Welch's test at a difference of DIFFERENCE. For "within": the two one-sided
    tests of normal scores with equal means, by simulation. NaN for "differ", and without scores.
    """
    rows = rows_at(claim["study"], claim["metric"], None)
    if claim["relation"] == "differ" or not is_testable(claim, rows):
        return float("nan")
    scores = scores_of(rows, claim["set"])
    deviations = [scores[name].std(ddof=1) for name in (claim["method"], "erm")]
    count = len(photographs.SEEDS)
    rng = np.random.default_rng(0)
    draws = [
        rng.normal(0.0, deviation, size=(SIMULATIONS, count))
        for deviation in deviations
    ]
    first, second = draws
    if claim["relation"] == "within":
        pvalues = equivalence_pvalues(first, second, claim["margin"])
    else:
        result = scipy.stats.ttest_ind(
            first + DIFFERENCE, second, axis=1, equal_var=False
        )
        pvalues = result.pvalue
    return float(np.mean(pvalues < LEVEL))


def changes(
    claim: Mapping[str, Any], difference: float, rate_pvalues: Sequence[float]
) -> tuple[str, ...]:
    """Return the reasons to withdraw a significant verdict: what changes it.

    difference: of means at the chosen rates. rate_pvalues: p at each of photographs.RATES.
    """
    is_directed = claim["relation"] == "above"
    reasons = []
    for rate, rate_p in zip(photographs.RATES, rate_pvalues, strict=True):
        _, rate_difference = pvalue(claim, rate)
        is_reversed = is_directed and rate_difference * difference <= 0
        if is_reversed or not rate_p < LEVEL:
            reasons.append(f"rate {rate:g}")
    rows = rows_at(claim["study"], claim["metric"], None)
    if claim["relation"] == "differ":
        table = mean_table(rows)
        labels = [BLOCKS[claim["study"]][name] for name in table.index]
        blocked = stats.friedman_blocked(table, blocks=labels, larger_is_better=True)
        if blocked.pvalue >= LEVEL:
            reasons.append(f"{len({*labels})} blocks")
        return tuple(reasons)
    if not is_directed:
        return tuple(reasons)
    scores = scores_of(rows, claim["set"])
    if welch_pvalue(scores[claim["method"]], scores["erm"]) >= LEVEL:
        reasons.append("Welch's test")
    if claim["set"] == MEAN:
        for block in dict.fromkeys(BLOCKS[claim["study"]].values()):
            names = [k for k, v in BLOCKS[claim["study"]].items() if v == block]
            scores = scores_of(rows[rows["dataset"].isin(names)], MEAN)
            block_difference = scores[claim["method"]].mean() - scores["erm"].mean()
            if block_difference * difference <= 0:
                reasons.append(f"block {block}")
    scores = scores_of(rows, claim["set"])
    for number, seed in enumerate(photographs.SEEDS):
        method, erm = (
            np.delete(scores[name], number) for name in (claim["method"], "erm")
        )
        if (method.mean() - erm.mean()) * difference <= 0:
            reasons.append(f"without seed {seed}")
    return tuple(reasons)


def verdicts() -> list[Verdict]:
    """Return the verdict of each registered claim, in order."""
    claims = json.loads((FOLDER / "claims.json").read_text())["claims"]
    tests = [pvalue(claim, None) for claim in claims]
    pvalues = [p for p, _ in tests]
    family = [
        i
        for i, claim in enumerate(claims)
        if claim["relation"] != "differ" and not np.isnan(pvalues[i])
    ]
    adjusted = stats.adjust([pvalues[i] for i in family], "holm") if family else []
    for i, p in zip(family, adjusted, strict=True):
        pvalues[i] = float(p)
    results = []
    for claim, p, (_, difference) in zip(claims, pvalues, tests, strict=True):
        rate_pvalues = tuple(pvalue(claim, rate)[0] for rate in photographs.RATES)
        is_significant = p < LEVEL
        reasons = changes(claim, difference, rate_pvalues) if is_significant else ()
        results.append(
            Verdict(
                claim,
                p=p,
                difference=difference,
                rate_pvalues=rate_pvalues,
                power=power(claim),
                changes=reasons,
            )
        )
    return results


def is_testable(claim: Mapping[str, Any], rows: pd.DataFrame) -> bool:
    """Return True if the method of a claim, and ERM, have scores of all seeds in the rows."""
    if rows.empty:
        return False
    if claim["relation"] == "differ":
        return len(seed_table(rows).columns) > 2
    return {claim["method"], "erm"} <= {*scores_of(rows, claim["set"])}


def claims_table(results: Sequence[Verdict]) -> str:
    """Return the registered claims with their verdicts as Markdown."""

    def number(value: float, text: str) -> str:
        """Return the text of a value, or a dash for NaN."""
        return "–" if np.isnan(value) else text

    lines = []
    for verdict in results:
        rate_pvalues = [number(p, all_results.p_value(p)) for p in verdict.rate_pvalues]
        points, p = 100 * verdict.difference, verdict.p
        lines.append(
            (
                verdict.claim["text"],
                number(points, f"{points:+.1f}"),
                number(p, all_results.p_value(p)),
                *rate_pvalues,
                number(verdict.power, f"{100 * verdict.power:.0f} %"),
                verdict.text,
                ", ".join(verdict.changes) or "–",
            )
        )
    rates = [f"p at rate {rate:g}" for rate in photographs.RATES]
    head = ("Registered claim", "points", "p", *rates, "power", "verdict", "changes")
    return all_results.table(head, lines)


def registered_tests_line() -> str:
    """Return p of the registered tests that all methods are equal, which do not decide."""
    items = []
    for study in (photographs.HELD_OUT, photographs.PHOTOGRAPHS):
        rows = rows_at(study, "accuracy", None)
        if not rows.empty and len(mean_table(rows).columns) > 2:
            p = all_results.p_value(registered_differ_pvalue(rows))
            items.append(f"{study} {p}")
    return f"Friedman's test over sets, as registered (p): {', '.join(items)}\n"


def scores_table(study: str, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return medians [lowest, highest] of the seeds in %, methods by columns, as Markdown.

    columns: (metric, set) by heading.
    """
    by_heading = {
        heading: scores_of(rows_at(study, metric, None), name)
        for heading, (metric, name) in columns.items()
    }
    chosen = chosen_rates(study)
    lines = []
    for method in photographs.METHODS:
        rates = sorted({rate for (name, _), rate in chosen.items() if name == method})
        cells = [_spread(scores, method) for scores in by_heading.values()]
        lines.append((method, ", ".join(f"{x:g}" for x in rates), *cells))
    return all_results.table(("Method", "rate", *columns), lines)


def _spread(scores: Scores, method: str) -> str:
    """Return median [lowest, highest] of a method's seeds in %, or that it was not run."""
    return all_results.spread(100 * scores[method]) if method in scores else NOT_RUN


def rates_table() -> str:
    """Return medians [lowest, highest] of the seeds in % at each learning rate, as Markdown."""
    columns = {
        "shape bias": (photographs.PHOTOGRAPHS, "shape_bias", "cue-conflict"),
        "val": (photographs.PHOTOGRAPHS, "accuracy", "val"),
        "mean of styles": (photographs.HELD_OUT, "accuracy", MEAN),
    }
    by_heading = {
        f"{heading} at {rate:g}": scores_of(rows_at(study, metric, rate), name)
        for heading, (study, metric, name) in columns.items()
        for rate in photographs.RATES
    }
    lines = [
        (method, *(_spread(scores, method) for scores in by_heading.values()))
        for method in photographs.METHODS
    ]
    return all_results.table(("Method", *by_heading), lines)


def blocks_table() -> str:
    """Return differences of mean accuracies to ERM in points, methods by blocks, as Markdown."""
    by_heading = {}
    for study, blocks in BLOCKS.items():
        rows = rows_at(study, "accuracy", None)
        for block in dict.fromkeys(blocks.values()):
            names = [name for name, label in blocks.items() if label == block]
            is_in_block = rows["dataset"].isin(names)
            by_heading[", ".join(names)] = scores_of(rows[is_in_block], MEAN)

    def difference(scores: Scores, method: str) -> str:
        """Return the difference of means as text."""
        if method not in scores or "erm" not in scores:
            return NOT_RUN
        return f"{100 * (scores[method].mean() - scores['erm'].mean()):+.1f}"

    lines = [
        (method, *(difference(scores, method) for scores in by_heading.values()))
        for method in photographs.METHODS
        if method != "erm"
    ]
    return all_results.table(("Method", *by_heading), lines)


def few_seeds_line(study: str, metric: str, name: str) -> str:
    """Return the difference to ERM that three seeds detect with power 80 %, in points."""
    scores = scores_of(rows_at(study, metric, None), name)
    deviations = [float(x.std(ddof=1)) for x in scores.values()]
    deviation = float(np.sqrt(np.mean(np.square(deviations))))
    count = len(photographs.SEEDS)
    smallest = stats.power.minimal_difference_of_welch(
        deviations=(deviation, deviation), seeds=(count, count)
    )
    return (
        f"{metric} on {name}: the standard deviation of seeds is {100 * deviation:.1f} "
        f"points; Welch's test of {count} and {count} seeds detects a difference of "
        f"{100 * smallest:.1f} points with power 80 %\n"
    )


def main() -> None:
    """Write the tables."""
    command.parser("photographs_page", __doc__).parse_args()
    photograph_columns = {
        "shape bias": ("shape_bias", "cue-conflict"),
        "neither cue": ("fraction_neither", "cue-conflict"),
        "val": ("accuracy", "val"),
        "cue-conflict": ("accuracy", "cue-conflict"),
        "edge": ("accuracy", "edge"),
        "silhouette": ("accuracy", "silhouette"),
    }
    style_columns = {name: ("accuracy", name) for name in photographs.STYLES}
    style_columns["mean"] = ("accuracy", MEAN)
    texts = [
        claims_table(verdicts()),
        registered_tests_line(),
        scores_table(photographs.PHOTOGRAPHS, photograph_columns),
        scores_table(photographs.HELD_OUT, style_columns),
        rates_table(),
        blocks_table(),
        few_seeds_line(photographs.PHOTOGRAPHS, "shape_bias", "cue-conflict"),
        few_seeds_line(photographs.HELD_OUT, "accuracy", MEAN),
    ]
    text = "\n".join(texts)
    path = command.RESULTS / "photographs.md"
    path.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
