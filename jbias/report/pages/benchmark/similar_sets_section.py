"""Report section on data sets with similar scores, and tests over blocks of such data sets."""

import math
from collections.abc import Iterator

import pandas as pd

from jbias.report import document, plots, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import benchmark_blocks

Analysis = analysis_lib.Analysis


def blocks(analysis: Analysis) -> document.Blocks:
    """Yield sentences, figures and tables of data sets with similar scores.

    There is a figure per kind of similarity. Nothing is yielded without tested ranks.
    """
    if analysis.tests is None:
        return
    yield from map(document.Text, _sentences(analysis))
    for by in analysis.dataset_blocks:
        yield dataset_figure(analysis, by)
    if analysis.dataset_blocks:
        yield blocked_table(analysis)
        yield dataset_blocks_table(analysis)


def _sentences(analysis: Analysis) -> Iterator[str]:
    """Yield the paragraph on the number of independent data sets; nothing without blocks."""
    if not analysis.dataset_blocks:
        return
    scores, deviations = (blocks for blocks, _ in analysis.dataset_blocks.values())
    n, k = analysis.means.shape
    yield (
        f"The {n} data sets carry the information of about {scores.participation_ratio:.2f} "
        f"independent ones; {n} unrelated data sets would be about {scores.unrelated:.1f}. This "
        "is the participation ratio of Spearman's correlations of their mean scores over "
        f"{k} algorithms. By the deviations of ranks from each algorithm's mean rank the "
        f"numbers are {deviations.participation_ratio:.2f} and {deviations.unrelated:.1f}. "
        "Scores also correlate because algorithms differ: the more they differ, the fewer "
        "blocks by scores there are, and the lower is the power of a test over these blocks. "
        "Blocks by deviations do not have this problem. Both kinds of blocks are made from the "
        "scores that are tested. Blocks chosen before the scores were seen are better: "
        "jbias.stats.friedman_blocked takes such blocks."
    )


_BLOCK_HEADS = {
    "by": "blocks by",
    "f": "F over means",
    "means": "by permutation",
    "whole": "blocks permuted whole",
    "least": "least possible",
}


def blocked_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of p-values of Friedman's test over blocks of similar data sets.

    The first row is the test over single data sets; one row per kind of similarity follows.
    Columns: by, blocks (number of blocks), f and means (p over the blocks' means, by F and by
    permutation; missing for a single block), whole (p over data sets, with blocks permuted whole)
    and least (smallest possible p of whole). p of at most alpha is bold. Ranks must have been
    tested; the table is then never None.
    """
    alpha = analysis.alpha
    permutation_p = analysis.permutation.pvalue
    rows = [
        {
            "by": "each data set",
            "blocks": len(analysis.datasets),
            "f": analysis.friedman.pvalue,
            "means": permutation_p,
            "whole": permutation_p,
            "least": math.nan,
        }
    ]
    for by, (blocks, test) in analysis.dataset_blocks.items():
        test_of_means = test.means
        rows.append(
            {
                "by": by,
                "blocks": blocks.count,
                "f": test_of_means.approximate.pvalue if test_of_means else math.nan,
                "means": test_of_means.pvalue if test_of_means else math.nan,
                "whole": test.pvalue,
                "least": test.least,
            }
        )
    num_blocks = analysis.study.options.blocks
    until = f"until {num_blocks} are left" if num_blocks else "while r is at least 0.5"
    columns = tables.columns("by blocks:d f:p means:p whole:p least:p", **_BLOCK_HEADS)
    return benchmark_blocks.table(
        "blocked",
        "p of Friedman's test over blocks of similar data sets, joined by average linkage of "
        f"1 - r {until}: over the blocks' mean scores, by F and by permutation, and over all "
        "data sets, with the same permutation of algorithms for all data sets of a block. Bold "
        f"where p ≤ {alpha:g}, which is impossible if the least possible p is larger.",
        pd.DataFrame(rows, columns=[*columns]),
        columns,
        bold=lambda row: [key for key in ("f", "means", "whole") if row[key] <= alpha],
        in_results=True,
    )


def dataset_blocks_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of the blocks of similar data sets, with one row per data set.

    A column per kind of similarity has the number, from 1, of the data set's block. Never None for
    tested ranks.
    """
    rows = {"dataset": analysis.datasets}
    rows |= {
        by: 1 + blocks.labels for by, (blocks, _) in analysis.dataset_blocks.items()
    }
    columns = tables.columns("dataset scores:d deviations:d", dataset="data set")
    return benchmark_blocks.table(
        "dataset_blocks",
        "The block of each data set.",
        rows,
        columns,
        in_results=True,
    )


def dataset_figure(analysis: Analysis, by: str) -> document.Figure:
    """Return the figure of correlations between data sets with their blocks.

    by: "scores" or "deviations", the values that are correlated.
    """
    blocks = analysis.dataset_blocks[by].blocks
    names = analysis.datasets
    frame = pd.DataFrame(blocks.correlations, names, names)
    frame = frame.iloc[blocks.order, blocks.order]
    labels = blocks.labels[blocks.order]
    caption = (
        f"Correlations of data sets over algorithms by {by}, in the order of the tree; blocks "
        "are framed."
    )
    return document.Figure(
        f"alike_by_{by}", caption, lambda: plots.blocks(frame, labels)
    )
