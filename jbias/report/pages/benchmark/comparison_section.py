"""Report section on every pair of algorithms on its own: the Multi-Comparison Matrix."""

from collections.abc import Iterator

from jbias.report import comparison_figure, document, plots, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import benchmark_blocks
from jbias.stats import comparison_matrix

Analysis = analysis_lib.Analysis


def blocks(analysis: Analysis) -> document.Blocks:
    """Yield sentences, the figure and the table of all pairs; nothing for one or two data sets."""
    result = analysis_lib.compare_pairs(analysis)
    if result is None:
        return
    yield from map(document.Text, _sentences(analysis, result))
    yield comparison_matrix_figure(analysis, result)
    yield comparison_matrix_table(analysis, result)


def _sentences(
    analysis: Analysis, result: comparison_matrix.ComparisonMatrix
) -> Iterator[str]:
    """Yield the paragraphs on the meaning of the matrix and on its p-values."""
    k = len(result.methods)
    num_pairs = k * (k - 1) // 2
    alpha = analysis.alpha
    yield (
        "Here each pair of algorithms is compared on its own: adding, removing or changing a third "
        "algorithm changes no number of a pair (Multi-Comparison Matrix). p is not adjusted, on "
        f"purpose: among {tables.count(num_pairs, 'pair')} of equal algorithms, expect up to "
        f"{num_pairs * alpha:.2g} with p < {alpha:g}. The tests that adjust for all pairs are in "
        "the section “What is significant”, and the headline is by these tests."
    )
    least = 2.0 ** (1 - int((result.wins + result.ties + result.losses).max()))
    if least >= alpha:
        yield (
            f"With this number of data sets p cannot be below {tables.p_text(least)}, so no pair "
            "can be significant here."
        )


def comparison_matrix_figure(
    analysis: Analysis, result: comparison_matrix.ComparisonMatrix
) -> document.Figure:
    """Return the figure of the matrix, of at most `comparison_figure.MAX_METHODS` algorithms."""
    order = result.order[: comparison_figure.MAX_METHODS]
    num_hidden = len(result.methods) - len(order)
    shown = result.only([result.methods[i] for i in order])
    hidden = ""
    if num_hidden:
        hidden = f" The {len(order)} algorithms with the best means; the table has all pairs."

    def draw() -> plots.Figure:
        return comparison_figure.draw(
            shown, alpha=analysis.alpha, digits=analysis.study.unit.digits + 1
        )

    return document.Figure(
        "comparison_matrix",
        "Multi-Comparison Matrix, the row against the column: mean difference in "
        f"{analysis.study.unit.of_differences}, data sets on which the row wins / ties / loses, "
        "and p of Wilcoxon's signed-rank test, not adjusted; bold where "
        f"p < {analysis.alpha:g}. Blue: the row is better. Algorithms are in the order of their "
        f"means, which follow the names.{hidden}",
        draw,
    )


def comparison_matrix_table(
    analysis: Analysis, result: comparison_matrix.ComparisonMatrix
) -> tables.Table | None:
    """Return the table of all pairs, the better mean first, in the order of the means.

    Columns: first, second, mean_difference (first minus second), wins (of the first), ties, losses,
    p_value and significant (p < alpha). The page has `benchmark_blocks.MAX_ROWS` rows.
    """
    digits = analysis.study.unit.digits + 1
    columns = tables.columns(
        f"first second mean_difference:+.{digits} wins:d ties:d losses:d p_value:p significant",
        p_value="p value",
    )
    columns["significant"] = tables.Column(
        "significant", lambda is_significant: "yes" if is_significant else "no"
    )
    return benchmark_blocks.table(
        "comparison_matrix",
        "Every pair on its own: mean score of the first minus that of the second in "
        f"{analysis.study.unit.of_differences}, data sets on which the first wins, ties and loses, "
        "and p of Wilcoxon's signed-rank test (equal scores are ranked, then dropped), not "
        f"adjusted; significant: p < {analysis.alpha:g}. A pair is compared on the data sets "
        "that both have; their scores need one unit.",
        result.to_frame(analysis.alpha),
        columns,
        bold=lambda row: ["p_value", "significant"] if row["significant"] else [],
        in_results=True,
    )
