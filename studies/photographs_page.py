"""Test the claims about photographs, and write the tables of their section in docs/results.md.

    python -m studies.photographs_page

Reads the studies `photographs` and `held-out-styles` in docs/results/all.csv, and in
docs/results/photographs the claims (claims.json) and the validation accuracies that choose each
method's learning rate (rates.json). Writes studies/results/photographs.md.

Each claim is tested as claims.json says, and again at each learning rate, over blocks of test sets,
and without any one seed. Methods without rows of all seeds are left out, and named.

Takes about five seconds on two cores.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats

from jbias import stats
from studies import all_results, command, photographs

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "docs/results/photographs"
LEVEL = 0.05
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
Scores = dict[str, np.ndarray]  # By method: scores of seeds, in their order.


class Verdict(NamedTuple):
    """A claim, its test, and what becomes of it.

    p: adjusted where the claim belongs to a family. difference: of means, as a fraction; NaN
    for a claim that all methods differ. changes: reasons why the verdict is withdrawn.
    """

    claim: Mapping[str, Any]
    p: float
    difference: float
    changes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The verdict in words."""
        is_right_way = np.isnan(self.difference) or self.difference > 0
        is_right_way |= self.claim["relation"] == "within"
        if self.p >= LEVEL:
            return "undecided"
        if not is_right_way:
            return "the opposite holds" if not self.changes else "withdrawn"
        return "withdrawn" if self.changes else "confirmed"


def chosen_rates(study: str) -> dict[tuple[str, str], float]:
    """Return the rate that validation of the tuning seed chose, by method and held-out style."""
    accuracies = json.loads((FOLDER / "rates.json").read_text())[study]
    chosen = {}
    for cell in photographs.cells([*photographs.METHODS]):
        name = cell.name.rpartition("/")[2]
        if cell.study == study and name in accuracies:
            by_rate = {float(rate): x for rate, x in accuracies[name].items()}
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

    Methods without a score of each seed are left out.
    """
    table = rows.pivot_table(index="method", columns=["dataset", "run"], values="score")
    chosen = table if name == MEAN else table[[name]]
    by_seed = chosen.T.groupby(level="run").agg(lambda x: x.mean(skipna=False)).T
    complete = by_seed.dropna()
    return {method: complete.loc[method].to_numpy() for method in complete.index}


def dunnett_pvalue(scores: Scores, method: str) -> float:
    """Return p of Dunnett's two-sided test of a method against ERM, among all methods."""
    compared = [name for name in scores if name != "erm"]
    samples = [scores[name] for name in compared]
    result = scipy.stats.dunnett(
        *samples, control=scores["erm"], random_state=np.random.default_rng(0)
    )
    return float(result.pvalue[compared.index(method)])


def equivalence_pvalue(first: np.ndarray, second: np.ndarray, margin: float) -> float:
    """Return p of two one-sided Welch tests that means differ by less than `margin`."""
    lower = scipy.stats.ttest_ind(
        first + margin, second, equal_var=False, alternative="greater"
    )
    upper = scipy.stats.ttest_ind(
        first - margin, second, equal_var=False, alternative="less"
    )
    return float(max(lower.pvalue, upper.pvalue))


def mean_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean scores over seeds, data sets by methods, of methods with all sets."""
    table = rows.pivot_table(index="dataset", columns="method", values="score")
    return table.dropna(axis=1)


def differ_pvalue(table: pd.DataFrame) -> float:
    """Return p of Friedman's test after Iman and Davenport that all methods are equal."""
    return float(stats.friedman(table, larger_is_better=True).pvalue)


def pvalue(claim: Mapping[str, Any], rate: float | None) -> tuple[float, float]:
    """Return p of a claim and the difference of means to ERM (NaN if none), at a rate."""
    rows = rows_at(claim["study"], claim["metric"], rate)
    if claim["relation"] == "differ":
        return differ_pvalue(mean_table(rows)), float("nan")
    scores = scores_of(rows, claim["set"])
    method, erm = scores[claim["method"]], scores["erm"]
    difference = float(method.mean() - erm.mean())
    if claim["relation"] == "within":
        return equivalence_pvalue(method, erm, claim["margin"]), difference
    return dunnett_pvalue(scores, claim["method"]), difference


def changes(claim: Mapping[str, Any], p: float, difference: float) -> tuple[str, ...]:
    """Return the reasons to withdraw a significant verdict: what changes it."""
    reasons = []
    for rate in photographs.RATES:
        rate_p, rate_difference = pvalue(claim, rate)
        is_reversed = claim["relation"] == "above" and rate_difference * difference <= 0
        if is_reversed or rate_p >= LEVEL:
            reasons.append(f"rate {rate:g}")
    if claim["relation"] == "differ":
        table = mean_table(rows_at(claim["study"], claim["metric"], None))
        labels = [BLOCKS[claim["study"]][name] for name in table.index]
        blocked = stats.friedman_blocked(table, blocks=labels, larger_is_better=True)
        if blocked.pvalue >= LEVEL:
            reasons.append(f"{len({*labels})} blocks")
        return tuple(reasons)
    rows = rows_at(claim["study"], claim["metric"], None)
    if claim["relation"] == "above" and claim["set"] == MEAN:
        for block in dict.fromkeys(BLOCKS[claim["study"]].values()):
            names = [k for k, v in BLOCKS[claim["study"]].items() if v == block]
            scores = scores_of(rows[rows["dataset"].isin(names)], MEAN)
            block_difference = scores[claim["method"]].mean() - scores["erm"].mean()
            if block_difference * difference <= 0:
                reasons.append(f"block {block}")
    for seed in photographs.SEEDS:
        scores = scores_of(rows[rows["run"] != seed], claim["set"])
        seed_difference = scores[claim["method"]].mean() - scores["erm"].mean()
        if claim["relation"] == "above" and seed_difference * difference <= 0:
            reasons.append(f"without seed {seed}")
    return tuple(reasons)


def verdicts() -> list[Verdict]:
    """Return the verdict of each registered claim whose methods have rows."""
    claims = json.loads((FOLDER / "claims.json").read_text())["claims"]
    tested = [claim for claim in claims if is_testable(claim)]
    results = [pvalue(claim, None) for claim in tested]
    family = [i for i, claim in enumerate(tested) if claim["relation"] != "differ"]
    adjusted = stats.adjust([results[i][0] for i in family], "holm")
    pvalues = [p for p, _ in results]
    for i, p in zip(family, adjusted, strict=True):
        pvalues[i] = float(p)
    return [
        Verdict(
            claim,
            p=p,
            difference=difference,
            changes=changes(claim, p, difference) if p < LEVEL else (),
        )
        for claim, p, (_, difference) in zip(tested, pvalues, results, strict=True)
    ]


def is_testable(claim: Mapping[str, Any]) -> bool:
    """Return True if the method of a claim, and ERM, have scores of all seeds."""
    rows = rows_at(claim["study"], claim["metric"], None)
    if claim["relation"] == "differ":
        return len(mean_table(rows).columns) > 2
    return {claim["method"], "erm"} <= {*scores_of(rows, claim["set"])}


def claims_table(results: list[Verdict]) -> str:
    """Return the registered claims with their verdicts as Markdown."""
    lines = [
        (
            verdict.claim["text"],
            "–" if np.isnan(verdict.difference) else f"{100 * verdict.difference:+.1f}",
            all_results.p_value(verdict.p),
            verdict.text,
            ", ".join(verdict.changes) or "–",
        )
        for verdict in results
    ]
    head = ("Registered claim", "points", "p", "verdict", "changes with")
    return all_results.table(head, lines)


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
        cells = [
            all_results.spread(100 * scores[method]) if method in scores else "not run"
            for scores in by_heading.values()
        ]
        lines.append((method, ", ".join(f"{x:g}" for x in rates), *cells))
    return all_results.table(("Method", "rate", *columns), lines)


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
        scores_table(photographs.PHOTOGRAPHS, photograph_columns),
        scores_table(photographs.HELD_OUT, style_columns),
        few_seeds_line(photographs.PHOTOGRAPHS, "shape_bias", "cue-conflict"),
        few_seeds_line(photographs.HELD_OUT, "accuracy", MEAN),
    ]
    text = "\n".join(texts)
    path = command.RESULTS / "photographs.md"
    path.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
