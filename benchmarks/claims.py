"""Which claims of docs/results.md stand: with other seeds, other rates, and blocks of test sets.

    python -m benchmarks.claims

Reads docs/results/all.csv and examples/biasbed_runs.csv, and writes
benchmarks/results/claims.md. A claim stands at 0.05. Seeds are redrawn with replacement
from each method's own; rates are those of the study `every-rate`, at each of which its eight
methods are tested alone, and its seeds redrawn; blocks of test sets are those of
jbias.stats.find_blocks by deviations of ranks, of which means are tested.
"""

import functools
import pathlib
from collections.abc import Callable

import numpy as np
import pandas as pd
import scipy.stats

from benchmarks import all_results
from jbias import stats

ROOT = pathlib.Path(__file__).parents[1]
LEVEL, DRAWS = 0.05, 400
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


def redrawn(scores: Cells, rng: np.random.Generator) -> Cells:
    """Other seeds of each method, all sets of a seed together."""
    drawn = {}
    for name, of in scores.items():
        whole = np.flatnonzero(~np.isnan(of).any(0))
        drawn[name] = of[:, rng.choice(whole, whole.size)]
    return drawn


def means(scores: Cells) -> pd.DataFrame:
    """Means over seeds: a row a set, a column a method."""
    return pd.DataFrame({name: np.nanmean(of, axis=1) for name, of in scores.items()})


def differ(table: pd.DataFrame) -> float:
    """p of Friedman's test after Iman and Davenport."""
    return stats.friedman(table, **UP).pvalue


def above(better: str, worse: str, table: pd.DataFrame, control: bool = False) -> float:
    """p of a pair, 1 where the worse one ranks better: Nemenyi's, or against a control."""
    ranks = (-table).rank(axis=1).mean()
    if ranks[better] >= ranks[worse]:
        return 1.0
    i, j = table.columns.get_loc(better), table.columns.get_loc(worse)
    if not control:
        return float(stats.nemenyi(table, **UP).pvalues[i, j])
    found = stats.bonferroni_dunn(table, control=worse, adjust="holm", **UP)
    return float(found.adjusted[found.algorithms.index(better)])


def row(
    name: str,
    test: Callable[[pd.DataFrame], float],
    scores: Cells,
    rates: dict[float, Cells] | None = None,
) -> str:
    """A line: p, the share of redrawn seeds in which it stands, both at each rate, blocks."""
    table = means(scores)

    def stands(of: Cells) -> str:
        rng = np.random.default_rng(0)
        found = [test(means(redrawn(of, rng))) < LEVEL for _ in range(DRAWS)]
        return f"{100 * np.mean(found):.0f} %"

    labels = stats.find_blocks(table, method="deviations").labels
    merged = table.groupby(labels).mean()
    of_blocks = f"{all_results.p_value(test(merged))} ({len(merged)} blocks)"
    at_rates = "not run"
    if rates:
        p = [test(means(of)) for of in rates.values()]
        both = zip(
            map(all_results.p_value, p), map(stands, rates.values()), strict=True
        )
        each = ", ".join(f"{one} ({share})" for one, share in both)
        at_rates = f"{sum(one < LEVEL for one in p)} of {len(p)}: {each}"
    cells_of = (
        name,
        all_results.p_value(test(table)),
        stands(scores),
        at_rates,
        of_blocks,
    )
    return f"| {' | '.join(cells_of)} |"


def paired(better: str, worse: str, table: Cells) -> float:
    """p of Wilcoxon's signed-rank test over seeds; 1 where the better one is worse."""
    a, b = table[better].ravel(), table[worse].ravel()
    if np.median(a - b) <= 0:
        return 1.0
    return float(scipy.stats.wilcoxon(a, b).pvalue)


def pairs_row(name: str, better: str, worse: str, scores: Cells) -> str:
    """A line of two methods on one set; pairs of seeds are redrawn together."""
    rng, count = np.random.default_rng(0), scores[better].shape[1]
    stands = []
    for _ in range(DRAWS):
        which = rng.choice(count, count)
        drawn = {key: of[:, which] for key, of in scores.items()}
        stands.append(paired(better, worse, drawn) < LEVEL)
    p = paired(better, worse, scores)
    cells_of = (name, all_results.p_value(p), f"{100 * np.mean(stands):.0f} %")
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
    against = functools.partial(above, control=True)
    lines = [
        "| Claim | p | stands with other seeds | eight methods at each rate: p (other seeds) | p over blocks of test sets |",
        "| --- | --: | --: | --: | --: |",
        row("The fifteen methods differ", differ, shapes, rates),
        row(
            "DeepAugment (CAE) ranks above ERM",
            lambda table: above("erm (cae)", "erm", table),
            shapes,
            rates,
        ),
        row(
            "… with ERM as a control",
            lambda table: against("erm (cae)", "erm", table),
            shapes,
            rates,
        ),
        row(
            "DeepAugment (EDSR) above ERM as a control",
            lambda table: against("erm (edsr)", "erm", table),
            shapes,
        ),
        row(
            "Stylized ERM above ERM as a control",
            lambda table: against("erm (stylize)", "erm", table),
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
            "SagNet has more shape bias than as released",
            "sagnet",
            "sagnet (biasbed)",
            released,
        ),
        pairs_row(
            "InfoDrop as released has more than its authors'",
            "infodrop (biasbed)",
            "infodrop+erm",
            released,
        ),
        row("BiasBed's eight methods differ (their runs)", differ, biasbed),
        row(
            "DeepAugment (CAE) ranks above InfoDrop (their runs)",
            lambda table: above("DeepAugERM-CAE", "InfoDrop", table),
            biasbed,
        ),
        row(
            "DeepAugment (CAE) ranks above pAdaIN (their runs)",
            lambda table: above("DeepAugERM-CAE", "pAdaIN", table),
            biasbed,
        ),
    ]
    text = "\n".join(lines) + "\n"
    (ROOT / "benchmarks/results/claims.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
