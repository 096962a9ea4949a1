"""Which claims of docs/results.md stand: with other seeds, other rates, and blocks of test sets.

    python -m benchmarks.claims

Reads docs/results/all.csv and examples/biasbed_runs.csv, and writes
benchmarks/results/claims.md. A claim stands at 0.05. Seeds are redrawn with replacement
from each method's own; rates are those of the study `every-rate`, at each of which its eight
methods are tested alone, and its seeds redrawn; shares of 40,000 draws have standard errors
of at most 0.25 points; blocks of test sets are those of
jbias.stats.find_blocks by deviations of ranks, of which means are tested.
"""

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import scipy.stats

from benchmarks import all_results
from jbias import stats
from jbias.stats import bootstrap, posthoc, score_table

ROOT = pathlib.Path(__file__).parents[1]
LEVEL, DRAWS, BATCH = 0.05, 40_000, 5_000
UP = dict(larger_is_better=True)
Cells = dict[str, np.ndarray]  # Of each method, sets x seeds.


def committed(study: str, metric: str) -> Cells:
    """Scores of a study, as shares of 1."""
    return cells(all_results.rows_of(study, metric))


def over_rates(study: str, metric: str) -> dict[float, Cells]:
    """Scores of a study whose methods were trained at several rates, by the rate."""
    by_rate = all_results.rows_of(study, metric).groupby("rate")
    return {float(rate): cells(of) for rate, of in by_rate}


def published() -> Cells:
    """Scores of BiasBed's runs; those that are missing are NaN."""
    return cells(
        pd.read_csv(ROOT / "examples/biasbed_runs.csv").rename(
            columns={"algorithm": "method"}
        )
    )


def cells(rows: pd.DataFrame) -> Cells:
    """Scores by method, sets in one order."""
    wide = rows.pivot_table(index=["method", "dataset"], columns="run", values="score")
    return {
        name: of.droplevel(0).sort_index().to_numpy()
        for name, of in wide.groupby(level=0)
    }


def redrawn_ranks(scores: Cells, *, draws: int) -> Iterator[np.ndarray]:
    """Yield ranks (b sets methods) of means over redrawn seeds, 1 the best.

    Seeds are drawn with replacement from each method's own, all sets of a seed together.
    """
    rng = np.random.default_rng(0)
    for first in range(0, draws, BATCH):
        count, columns = min(BATCH, draws - first), []
        for of in scores.values():
            whole = of[:, ~np.isnan(of).any(0)]
            size = whole.shape[1]
            drawn = rng.multinomial(size, np.full(size, 1 / size), size=count)
            columns.append(drawn @ whole.T / size)
        drawn_means = np.stack(columns, axis=2)
        # Sums in another order tie.
        levels = score_table.near_levels(drawn_means, 1e-9)
        yield scipy.stats.rankdata(-levels, axis=2)


def means(scores: Cells) -> pd.DataFrame:
    """Means over seeds: a row a set, a column a method."""
    return pd.DataFrame({name: np.nanmean(of, axis=1) for name, of in scores.items()})


@dataclasses.dataclass(frozen=True)
class Differ:
    """The claim that the methods differ: Friedman's test after Iman and Davenport."""

    def pvalue(self, table: pd.DataFrame) -> float:
        """Return p of a table."""
        return stats.friedman(table, **UP).pvalue

    def pvalues(self, ranks: np.ndarray, methods: Sequence[str]) -> np.ndarray:
        """Return p of each table of ranks (b sets methods)."""
        return bootstrap.friedman_pvalues(ranks)


@dataclasses.dataclass(frozen=True)
class Above:
    """The claim that a method ranks above another: p is 1 where it does not.

    Nemenyi's test among all pairs, or with the worse method as a control Dunn's after Holm.
    """

    better: str
    worse: str
    control: bool = False

    def pvalue(self, table: pd.DataFrame) -> float:
        """Return p of a table."""
        ranks = score_table.rank(score_table.read(table), **UP)
        return float(self.pvalues(ranks[None], list(table.columns))[0])

    def pvalues(self, ranks: np.ndarray, methods: Sequence[str]) -> np.ndarray:
        """Return p of each table of ranks (b sets methods)."""
        mean, (n, k) = ranks.mean(axis=1), ranks.shape[1:]
        better, worse = methods.index(self.better), methods.index(self.worse)
        ahead = mean[:, worse] - mean[:, better]
        deviation = math.sqrt(k * (k + 1) / (6 * n))
        if self.control:
            others = np.delete(np.arange(k), worse)
            z = (mean[:, [worse]] - mean[:, others]) / deviation
            adjusted = _holm(2 * scipy.stats.norm.sf(np.abs(z)))
            p = adjusted[:, others.tolist().index(better)]
        else:
            # Few values once sums in another order are alike.
            apart = np.round(np.abs(ahead), 9)
            p = posthoc.range_sf(apart * math.sqrt(2) / deviation, k)
        return np.where(ahead > 0, p, 1.0)


def _holm(p: np.ndarray) -> np.ndarray:
    """Return the p-values (b tests) adjusted in each row."""
    order = np.argsort(p, axis=1)
    factors = np.arange(p.shape[1], 0, -1)
    rising = np.take_along_axis(p, order, 1) * factors
    rising = np.minimum(np.maximum.accumulate(rising, axis=1), 1)
    return np.take_along_axis(rising, np.argsort(order, axis=1), 1)


def stands(claim: Differ | Above, scores: Cells, *, draws: int) -> float:
    """Return the share of draws of seeds in which a claim's p is below 0.05."""
    batches = redrawn_ranks(scores, draws=draws)
    pvalues = [claim.pvalues(ranks, list(scores)) for ranks in batches]
    return float(np.mean(np.concatenate(pvalues) < LEVEL))


def row(
    name: str,
    claim: Differ | Above,
    scores: Cells,
    rates: dict[float, Cells] | None = None,
) -> str:
    """A line: p, the share of redrawn seeds in which it stands, both at each rate, blocks."""
    table = means(scores)

    def share(of: Cells) -> str:
        return f"{100 * stands(claim, of, draws=DRAWS):.0f} %"

    labels = stats.find_blocks(table, method="deviations").labels
    merged = table.groupby(labels).mean()
    of_blocks = f"{all_results.p_value(claim.pvalue(merged))} ({len(merged)} blocks)"
    at_rates = "not run"
    if rates:
        p = [claim.pvalue(means(of)) for of in rates.values()]
        both = zip(map(all_results.p_value, p), map(share, rates.values()), strict=True)
        each = ", ".join(f"{one} ({of})" for one, of in both)
        at_rates = f"{sum(one < LEVEL for one in p)} of {len(p)}: {each}"
    observed = all_results.p_value(claim.pvalue(table))
    cells_of = (name, observed, share(scores), at_rates, of_blocks)
    return f"| {' | '.join(cells_of)} |"


def paired(differences: np.ndarray) -> np.ndarray:
    """Return p of Wilcoxon's signed-rank test of each row (b pairs), exact also with ties.

    1 where the median is not above 0. Pairs that are equal are left out. At most some
    twelve pairs: all signs are tried.
    """
    levels = score_table.near_levels(np.abs(differences), 1e-12)
    is_zero = np.abs(differences) <= 1e-12
    ranks = scipy.stats.rankdata(levels, axis=1) - is_zero.sum(1, keepdims=True)
    ranks = np.where(is_zero, 0, ranks)
    pairs = differences.shape[1]
    signs = np.array([*itertools.product((-1, 1), repeat=pairs)]).T
    observed = np.abs((ranks * np.sign(differences)).sum(1, keepdims=True))
    p = (np.abs(ranks @ signs) >= observed - 1e-9).mean(1)
    return np.where(np.median(differences, axis=1) > 0, p, 1.0)


def pairs_row(name: str, better: str, worse: str, scores: Cells) -> str:
    """A line of two methods on one set; pairs of seeds are redrawn together."""
    differences = (scores[better] - scores[worse]).ravel()
    count = differences.size
    which = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    share = np.mean(paired(differences[which]) < LEVEL)
    p = float(paired(differences[None])[0])
    cells_of = (name, all_results.p_value(p), f"{100 * share:.0f} %")
    return f"| {' | '.join(cells_of)} | not run | one set |"


def main() -> None:
    """Writes the table."""
    shapes, biasbed = committed("shapes", "accuracy"), published()
    rates = over_rates("every-rate", "accuracy")
    bias = {
        study: committed(study, "shape_bias")
        for study in ("shapes", "longer", "variants")
    }
    longer = {"CAE": bias["shapes"]["erm (cae)"], "ERM": bias["longer"]["erm"]}
    released = bias["variants"] | bias["shapes"]
    lines = [
        "| Claim | p | p < 0.05 with redrawn seeds | eight methods at each rate: p (redrawn seeds) | p over blocks of test sets |",
        "| --- | --: | --: | --: | --: |",
        row("The fifteen methods differ", Differ(), shapes, rates),
        row(
            "DeepAugment (CAE) ranks above ERM",
            Above("erm (cae)", "erm"),
            shapes,
            rates,
        ),
        row(
            "… with ERM as a control",
            Above("erm (cae)", "erm", control=True),
            shapes,
            rates,
        ),
        row(
            "DeepAugment (EDSR) above ERM as a control",
            Above("erm (edsr)", "erm", control=True),
            shapes,
        ),
        row(
            "Stylized ERM above ERM as a control",
            Above("erm (stylize)", "erm", control=True),
            shapes,
            rates,
        ),
        pairs_row(
            "DeepAugment (CAE) has more shape bias than ERM of as many steps",
            "CAE",
            "ERM",
            longer,
        ),
        pairs_row(
            "SagNet has more shape bias than in BiasBed's form",
            "sagnet",
            "sagnet (biasbed)",
            released,
        ),
        pairs_row(
            "InfoDrop in BiasBed's form has more than in its authors'",
            "infodrop (biasbed)",
            "infodrop+erm",
            released,
        ),
        row("BiasBed's eight methods differ (their runs)", Differ(), biasbed),
        row(
            "DeepAugment (CAE) ranks above InfoDrop (their runs)",
            Above("DeepAugERM-CAE", "InfoDrop"),
            biasbed,
        ),
        row(
            "DeepAugment (CAE) ranks above pAdaIN (their runs)",
            Above("DeepAugERM-CAE", "pAdaIN"),
            biasbed,
        ),
    ]
    text = "\n".join(lines) + "\n"
    (ROOT / "benchmarks/results/claims.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
