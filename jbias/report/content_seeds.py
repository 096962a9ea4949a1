"""The tables of a report: what the spread over seeds says."""

import math

import numpy as np
import pandas as pd

from jbias.report import evidence as evidence_lib
from jbias.report import study as study_lib
from jbias.report import tables, words

_PAIRS = 60  # That the page shows; the CSV file has all.


def stability_words(evidence: evidence_lib.Evidence, *, is_runs: bool) -> list[str]:
    """Says how far the conclusions hang on the seeds that were drawn."""
    what = "seeds" if is_runs else "runs"
    if evidence.stability is None:
        return [
            (
                f"Nothing is said of other {what}: {evidence.no_seeds}. The tests above take "
                "the scores as if they were exact."
            )
        ]
    found, mixed = evidence.stability, evidence.mixed
    df = mixed.df
    best = int(np.argmax(found.best))
    verdict = "rejects" if found.friedman else "does not reject"
    return [
        (
            f"With other {what} (redrawn from these), {found.algorithms[best]} would rank first "
            f"in {percent(found.best[best])} of draws, and all algorithms would stand in the "
            f"same order in {percent(found.same_order)}."
        ),
        (
            f"Friedman's test {verdict} here, and would decide otherwise in "
            f"{percent(found.friedman_flips)} of draws; some pair of Nemenyi's test would in "
            f"{percent(found.any_flips)}."
        ),
        (
            f"A linear mixed model in which {what} and data sets are samples gives "
            f"F({df[0]:.4g}, {df[1]:.4g}) = {_number(mixed.statistic, 2)}, "
            f"{words.p_equals(mixed.pvalue)}, for equal means on data sets like these."
        ),
    ]


def stability_table(
    study: study_lib.Study, evidence: evidence_lib.Evidence
) -> tables.Table:
    """Shows ranks, means and IQM with intervals over redrawn seeds."""
    stable, sure = evidence.stability, evidence.intervals
    rows, data = [], []
    order = np.argsort(stable.ranks.value, kind="stable")
    for j in map(int, order):
        name = stable.algorithms[j]
        rows.append(
            (
                name,
                between(stable.ranks, j, 2),
                percent(stable.best[j]),
                between(sure.mean, j, study.unit.digits),
                between(sure.iqm, j, 3),
                between(sure.optimality_gap, j, 3),
            )
        )
        found = [
            getattr(one, part)[j]
            for one in (stable.ranks, sure.mean, sure.iqm, sure.optimality_gap)
            for part in ("value", "low", "high")
        ]
        data.append((name, stable.best[j], *found))
    columns = [
        f"{name}{part}"
        for name in ("mean_rank", "mean", "iqm", "optimality_gap")
        for part in ("", "_low", "_high")
    ]
    return tables.Table(
        name="stability",
        caption=f"{evidence.bounds.capitalize()} over "
        f"{'seeds' if study.is_runs else 'runs'} redrawn {evidence.draws:,} times, for all "
        "data sets together: a run is one model. Mean rank, how often an algorithm ranks first, the "
        "mean over data sets, the interquartile mean (IQM) and the optimality gap of scores "
        "normalised by the worst and best run of each data set.",
        head=("Algorithm", "Mean rank", "first", "Mean", "IQM", "Optimality gap"),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=["algorithm", "first", *columns]),
    )


def differences_table(
    study: study_lib.Study,
    analysis: study_lib.Analysis,
    evidence: evidence_lib.Evidence,
) -> tables.Table:
    """Shows how large the difference of every pair is, and how sure."""
    at = {name: i for i, name in enumerate(analysis.algorithms)}
    seeds, both, effects = evidence.seeds, evidence.both, evidence.effects
    rows, data = [], []
    for better, worse, _ in analysis.pairs:
        i, j = at[better], at[worse]
        one = (effects.rank_biserial.value[i, j], effects.hedges_g.value[i, j])
        chances = (
            both.better[i, j],
            evidence.improvement.pairs.value[i, j],
            effects.a12_mean.value[i, j],
        )
        data.append(
            (
                *(better, worse, seeds.pairs.value[i, j]),
                *(seeds.pairs.low[i, j], seeds.pairs.high[i, j]),
                *(both.pairs.low[i, j], both.pairs.high[i, j]),
                *(*chances, *one, evidence.mixed.pvalues[i, j]),
            )
        )
        if len(rows) < _PAIRS:
            rows.append(
                (
                    better,
                    worse,
                    between(seeds.pairs, (i, j), study.unit.digits, signed=True),
                    span(both.pairs, (i, j), study.unit.digits),
                    *(f"{chance:.2f}" for chance in chances[:2]),
                    *(signed(value, 2) for value in one),
                    tables.p_text(evidence.mixed.pvalues[i, j]),
                )
            )
    more = len(data) - len(rows)
    left = f" {more:,} more pairs stand in the CSV file." if more else ""
    points = "percentage points" if study.unit.name else "the scores' unit"
    return tables.Table(
        name="differences",
        caption=f"How much better the first is (positive: better, also where smaller scores "
        f"are), in {points}, averaged over data sets: "
        f"with {evidence.bounds} over redrawn "
        f"{'seeds' if study.is_runs else 'runs'} alone, and 95% over data sets redrawn too "
        "(hierarchical bootstrap: what to expect on other data sets like these). P(sets): "
        "how often the first is better then. P(run): how probably one run of it beats one "
        "of the other, averaged over data sets (Vargha and Delaney's A). r: rank-biserial "
        "correlation over data sets; g: Hedges' g of the differences over data sets; p: of the "
        "linear mixed model, not adjusted."
        f"{left}",
        head=(
            *("better rank", "worse rank", "Advantage", "with other data sets"),
            *("P(sets)", "P(run)", "r", "g", "p"),
        ),
        rows=tuple(rows),
        data=pd.DataFrame(
            data,
            columns=[
                *("better", "worse", "difference", "seeds_low", "seeds_high"),
                *("both_low", "both_high", "better_on_other_sets"),
                *("better_run", "a12", "rank_biserial", "hedges_g", "mixed_p"),
            ],
        ),
        texts=2,
    )


def power_words(evidence: evidence_lib.Evidence) -> list[str]:
    """Says whether a null result of this study means anything."""
    if evidence.power is None:
        return [f"Power is not known: {evidence.no_seeds}."]
    return [
        evidence.power.verdict,
        f"The difference asked about is {evidence.power.difference:g}: --points sets it.",
    ]


def power_table(
    study: study_lib.Study, evidence: evidence_lib.Evidence
) -> tables.Table:
    """Shows power by seeds and data sets for each test."""
    power = evidence.power
    rows, data = [], []
    tests = {"t": "paired t", "wilcoxon": "Wilcoxon", "nemenyi": "Nemenyi"}
    for test, name in tests.items():
        least = power.minimal[test]
        told = f"{least:.{study.unit.digits + 1}f}" if math.isfinite(least) else "never"
        rows.append((name, "as here", f"{power.present[test]:.2f}", told))
        data.append((test, "here", len(evidence.runs.datasets), power.present[test]))
        for i, seeds in enumerate(power.seeds):
            grid = power.power[test][i]
            pairs = zip(power.datasets, grid, strict=True)
            data += [(test, str(seeds), sets, share) for sets, share in pairs]
    what = "seeds" if study.is_runs else "runs"
    return tables.Table(
        name="power",
        caption="How often a study like this one (its data sets, its "
        f"{what}) would find one algorithm better than another by {power.difference:g}, "
        f"and the difference that it would find with a chance of {power.target:g}. t and "
        f"Wilcoxon at α = {power.alpha:g} shared among {power.comparisons} pairs; "
        f"simulated from the spread seen here. The CSV file has other numbers of {what} "
        "and data sets.",
        head=("Test", "study", "power", f"found with {power.target:g}"),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=["test", "seeds", "datasets", "power"]),
        texts=2,
    )


def percent(share: float) -> str:
    """Shows a share of draws."""
    return (
        f"{100 * share:.0f} %"
        if 0.005 <= share <= 0.995 or share in (0, 1)
        else ("< 1 %" if share < 0.5 else "> 99 %")
    )


def between(estimate, at, digits: int, *, signed: bool = False) -> str:
    """Shows `value [low, high]`."""
    shown = _number(estimate.value[at], digits, signed)
    known = math.isfinite(estimate.low[at])
    return f"{shown} {span(estimate, at, digits)}" if known else shown


def span(estimate, at, digits: int) -> str:
    """Shows `[low, high]`."""
    low, high = (_number(part[at], digits) for part in (estimate.low, estimate.high))
    return f"[{low}, {high}]"


def signed(value: float, digits: int) -> str:
    return _number(value, digits, True)


def _number(value: float, digits: int, plus: bool = False) -> str:
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    value = round(float(value), digits) + 0.0
    return f"{value:{'+' if plus and value else ''}.{digits}f}".replace("-", "−")
