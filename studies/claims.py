"""Test the claims of docs/results.md with other seeds, other rates, and blocks of test sets.

    python -m studies.claims

Reads docs/results/all.csv and examples/biasbed_runs.csv, and writes studies/results/claims.md. The
page gives the p of each claim, and how the p changes:

- Other seeds: seeds are resampled with replacement within each method, in 40,000 draws; the page
  gives the share of draws with p < 0.05. Standard errors of shares are at most 0.25 points.
- Other rates: the eight methods of the study `every-rate` are tested at each learning rate
  separately, with resampled seeds, too.
- Blocks of test sets: test sets are grouped by jbias.stats.find_blocks on deviations of ranks, and
  each test is repeated on the mean score of each block.

Takes about 20 seconds on two cores.
"""

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import scipy.stats

from jbias import stats
from jbias.stats import bootstrap, posthoc, score_table
from studies import all_results, command

ROOT = pathlib.Path(__file__).parents[1]
LEVEL, DRAWS, BATCH = 0.05, 40_000, 5_000
Cells = dict[str, np.ndarray]  # Scores (data sets seeds) by method.


def study_scores(study: str, metric: str) -> Cells:
    """Return the scores of a study as fractions of 1."""
    return cells(all_results.rows_of(study, metric))


def scores_by_rate(study: str, metric: str) -> dict[float, Cells]:
    """Return the scores at each learning rate of a study with several rates."""
    by_rate = all_results.rows_of(study, metric).groupby("rate")
    return {float(rate): cells(rows) for rate, rows in by_rate}


def biasbed_scores() -> Cells:
    """Return the scores of BiasBed's published runs; missing ones are NaN."""
    rows = pd.read_csv(ROOT / "examples/biasbed_runs.csv")
    return cells(rows.rename(columns={"algorithm": "method"}))


def cells(rows: pd.DataFrame) -> Cells:
    """Return scores by method; all methods have the same order of data sets."""
    wide = rows.pivot_table(index=["method", "dataset"], columns="run", values="score")
    return {
        name: table.droplevel(0).sort_index().to_numpy()
        for name, table in wide.groupby(level=0)
    }


def redrawn_ranks(scores: Cells, *, draws: int) -> Iterator[np.ndarray]:
    """Yield ranks (b sets methods) of means over resampled seeds; rank 1 is the best.

    Seeds are drawn with replacement within each method, all data sets of a seed together.
    """
    rng = np.random.default_rng(0)
    for first in range(0, draws, BATCH):
        count, columns = min(BATCH, draws - first), []
        for method_scores in scores.values():
            complete = method_scores[:, ~np.isnan(method_scores).any(0)]
            size = complete.shape[1]
            seed_counts = rng.multinomial(size, np.full(size, 1 / size), size=count)
            columns.append(seed_counts @ complete.T / size)
        drawn_means = np.stack(columns, axis=2)
        # Equal sums may differ by rounding: treat them as ties.
        levels = score_table.near_levels(drawn_means, 1e-9)
        yield scipy.stats.rankdata(-levels, axis=2)


def mean_scores(scores: Cells) -> pd.DataFrame:
    """Return means over seeds: a row per data set, a column per method."""
    return pd.DataFrame(
        {name: np.nanmean(table, axis=1) for name, table in scores.items()}
    )


@dataclasses.dataclass(frozen=True)
class Differ:
    """The claim that the methods differ: Friedman's test after Iman and Davenport."""

    def pvalue(self, table: pd.DataFrame) -> float:
        """Return p of a table of scores."""
        return stats.friedman(table, larger_is_better=True).pvalue

    def pvalues(self, ranks: np.ndarray, methods: Sequence[str]) -> np.ndarray:
        """Return p of each table of ranks (b sets methods)."""
        return bootstrap.friedman_pvalues(ranks)


@dataclasses.dataclass(frozen=True)
class Above:
    """The claim that method `better` ranks above method `worse`.

    Its p is Nemenyi's among all pairs, or, with `control`, Dunn's with the worse method as
    the control, adjusted by Holm's method. p is 1 if `better` does not rank above.
    """

    better: str
    worse: str
    control: bool = False

    def pvalue(self, table: pd.DataFrame) -> float:
        """Return p of a table of scores."""
        ranks = score_table.rank(score_table.read(table), larger_is_better=True)
        return float(self.pvalues(ranks[None], list(table.columns))[0])

    def pvalues(self, ranks: np.ndarray, methods: Sequence[str]) -> np.ndarray:
        """Return p of each table of ranks (b sets methods)."""
        mean, (n, k) = ranks.mean(axis=1), ranks.shape[1:]
        better, worse = methods.index(self.better), methods.index(self.worse)
        ahead = mean[:, worse] - mean[:, better]
        deviation = math.sqrt(k * (k + 1) / (6 * n))
        if self.control:
            not_control = np.delete(np.arange(k), worse)
            z = (mean[:, [worse]] - mean[:, not_control]) / deviation
            adjusted = _holm(2 * scipy.stats.norm.sf(np.abs(z)))
            p = adjusted[:, not_control.tolist().index(better)]
        else:
            # Rounding leaves few distinct values, each of which is computed once.
            differences = np.round(np.abs(ahead), 9)
            p = posthoc.range_sf(differences * math.sqrt(2) / deviation, k)
        return np.where(ahead > 0, p, 1.0)


def _holm(p: np.ndarray) -> np.ndarray:
    """Return p-values (b tests) adjusted by Holm's method within each row."""
    order = np.argsort(p, axis=1)
    factors = np.arange(p.shape[1], 0, -1)
    rising = np.take_along_axis(p, order, 1) * factors
    rising = np.minimum(np.maximum.accumulate(rising, axis=1), 1)
    return np.take_along_axis(rising, np.argsort(order, axis=1), 1)


def share_significant(claim: Differ | Above, scores: Cells, *, draws: int) -> float:
    """Return the share of draws of seeds in which a claim's p is below 0.05."""
    batches = redrawn_ranks(scores, draws=draws)
    pvalues = [claim.pvalues(ranks, list(scores)) for ranks in batches]
    return float(np.mean(np.concatenate(pvalues) < LEVEL))


def format_share(claim: Differ | Above, scores: Cells) -> str:
    """Return the share of resampled seeds that support a claim, in per cent."""
    return f"{100 * share_significant(claim, scores, draws=DRAWS):.0f} %"


def format_claim(
    name: str,
    claim: Differ | Above,
    scores: Cells,
    rates: dict[float, Cells] | None = None,
) -> str:
    """Return the row of a claim as Markdown.

    Columns: name, p, share of resampled seeds that support the claim, both at each rate
    (if `rates` are given), and p over blocks of test sets.
    """
    table = mean_scores(scores)
    labels = stats.find_blocks(table, method="deviations").labels
    blocks = table.groupby(labels).mean()
    block_p = all_results.p_value(claim.pvalue(blocks))
    at_rates = _format_rates(claim, rates) if rates else "not run"
    row = (
        name,
        all_results.p_value(claim.pvalue(table)),
        format_share(claim, scores),
        at_rates,
        f"{block_p} ({len(blocks)} blocks)",
    )
    return f"| {' | '.join(row)} |"


def _format_rates(claim: Differ | Above, rates: dict[float, Cells]) -> str:
    """Return how many rates support a claim, with p and share of seeds at each rate."""
    num_significant, cell_texts = 0, []
    for scores in rates.values():
        p = claim.pvalue(mean_scores(scores))
        num_significant += p < LEVEL
        cell_texts.append(f"{all_results.p_value(p)} ({format_share(claim, scores)})")
    return f"{num_significant} of {len(rates)}: {', '.join(cell_texts)}"


def wilcoxon_pvalues(differences: np.ndarray) -> np.ndarray:
    """Return p of Wilcoxon's signed-rank test of each row (b pairs), exact even with ties.

    p is 1 where the median is not above 0. Pairs without a difference are left out. All
    signs are enumerated, so use at most about twelve pairs.
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


def format_pair(name: str, better: str, worse: str, scores: Cells) -> str:
    """Return the row of a claim about two methods on one data set, as Markdown.

    Seeds are paired, and pairs are resampled together.
    """
    differences = (scores[better] - scores[worse]).ravel()
    count = differences.size
    indices = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    share = np.mean(wilcoxon_pvalues(differences[indices]) < LEVEL)
    p = float(wilcoxon_pvalues(differences[None])[0])
    row = (name, all_results.p_value(p), f"{100 * share:.0f} %")
    return f"| {' | '.join(row)} | not run | one set |"


def main() -> None:
    """Write the table of claims."""
    command.parser("claims", __doc__).parse_args()
    shapes, biasbed = study_scores("shapes", "accuracy"), biasbed_scores()
    rates = scores_by_rate("every-rate", "accuracy")
    bias = {
        study: study_scores(study, "shape_bias")
        for study in ("shapes", "longer", "variants")
    }
    longer = {"CAE": bias["shapes"]["erm (cae)"], "ERM": bias["longer"]["erm"]}
    released = bias["variants"] | bias["shapes"]
    lines = [
        "| Claim | p | p < 0.05 with redrawn seeds | eight methods at each rate: p (redrawn seeds) | p over blocks of test sets |",
        "| --- | --: | --: | --: | --: |",
        format_claim("The fifteen methods differ", Differ(), shapes, rates),
        format_claim(
            "DeepAugment (CAE) ranks above ERM",
            Above("erm (cae)", "erm"),
            shapes,
            rates,
        ),
        format_claim(
            "… with ERM as a control",
            Above("erm (cae)", "erm", control=True),
            shapes,
            rates,
        ),
        format_claim(
            "DeepAugment (EDSR) above ERM as a control",
            Above("erm (edsr)", "erm", control=True),
            shapes,
        ),
        format_claim(
            "Stylized ERM above ERM as a control",
            Above("erm (stylize)", "erm", control=True),
            shapes,
            rates,
        ),
        format_pair(
            "DeepAugment (CAE) has more shape bias than ERM of as many steps",
            "CAE",
            "ERM",
            longer,
        ),
        format_pair(
            "SagNet has more shape bias than in BiasBed's form",
            "sagnet",
            "sagnet (biasbed)",
            released,
        ),
        format_pair(
            "InfoDrop in BiasBed's form has more than in its authors'",
            "infodrop (biasbed)",
            "infodrop+erm",
            released,
        ),
        format_claim("BiasBed's eight methods differ (their runs)", Differ(), biasbed),
        format_claim(
            "DeepAugment (CAE) ranks above InfoDrop (their runs)",
            Above("DeepAugERM-CAE", "InfoDrop"),
            biasbed,
        ),
        format_claim(
            "DeepAugment (CAE) ranks above pAdaIN (their runs)",
            Above("DeepAugERM-CAE", "pAdaIN"),
            biasbed,
        ),
    ]
    text = "\n".join(lines) + "\n"
    (ROOT / "studies/results/claims.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
