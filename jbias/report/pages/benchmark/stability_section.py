"""Report section on the stability of the conclusions: how often they change if seeds are resampled.

A cell is an algorithm on a data set.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from jbias import stats
from jbias.report import document, plots, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import benchmark_blocks, prose

Analysis = analysis_lib.Analysis


def blocks(analysis: Analysis) -> document.Blocks:
    """Yield sentences, and figures and tables of the analysed seeds.

    Nothing is yielded without tested ranks.
    """
    if analysis.tests is None:
        return
    yield from map(document.Text, _sentences(analysis))
    if analysis.runs is not None:
        yield iqm_figure(analysis)
        yield profile_figure(analysis)
        yield stability_table(analysis)
        yield differences_table(analysis)
        if analysis.has_reference:
            yield outperforming_table(analysis)


def _sentences(analysis: Analysis) -> Iterator[str]:
    """Yield sentences on the stability of the conclusions when the seeds are redrawn.

    If seeds were not analysed, the only sentence has the reason.
    """
    repeats = analysis.study.repeats
    if analysis.runs is None:
        yield (
            f"The effect of other {repeats} is unknown: {analysis.no_seeds}. The tests above "
            "treat the scores as exact."
        )
        return
    stable = analysis.seeds.stability
    mixed = analysis.seeds.mixed
    best = int(np.argmax(stable.best))
    yield (
        f"With other {repeats} (redrawn from these), {stable.algorithms[best]} would rank "
        f"first in {prose.share(stable.best[best])} of draws, and the order of all algorithms would "
        f"be the same in {prose.share(stable.same_order)}."
    )
    yield (
        f"Friedman's test by F {'rejects' if stable.friedman else 'does not reject'} here, and "
        f"would decide otherwise in {prose.share(stable.friedman_flips)} of draws; Nemenyi's test "
        f"would decide otherwise on at least one pair in {prose.share(stable.any_flips)}."
    )
    yield (
        f"A linear mixed model in which {repeats} and data sets are samples gives "
        f"F({mixed.df[0]:.4g}, {mixed.df[1]:.4g}) = {tables.digits(2)(mixed.statistic)}, "
        f"{prose.p_equals(mixed.pvalue)}, for equal means on data sets like these."
    )


def stability_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of mean ranks, means and IQM with bootstrap intervals over seeds.

    One row per algorithm, the best mean rank first. Columns: algorithm, mean_rank, first (share of
    draws in which the algorithm ranks first), mean, iqm and optimality_gap. Seeds must have been
    analysed; the table is then never None.
    """
    digits = analysis.study.unit.digits
    stable = analysis.seeds.stability
    intervals = analysis.seeds.intervals
    data = {"algorithm": stable.algorithms, "first": stable.best}
    estimates = {
        "mean_rank": stable.ranks,
        "mean": intervals.mean,
        "iqm": intervals.iqm,
        "optimality_gap": intervals.optimality_gap,
    }
    for key, estimate in estimates.items():
        data[key] = estimate.value
        data[f"{key}_low"], data[f"{key}_high"] = estimate.low, estimate.high
    columns = tables.columns(
        f"algorithm mean_rank:.2[] first mean:.{digits}[] iqm:.3[] optimality_gap:.3[]"
    )
    return benchmark_blocks.table(
        "stability",
        f"{analysis.bounds.capitalize()} over {analysis.study.repeats} redrawn "
        f"{analysis.draws:,} times, for all data sets together. First: share of draws in which "
        f"the algorithm ranks first (standard error up to {50 / math.sqrt(analysis.draws):.1f} points). Interquartile mean (IQM) and optimality gap (to the best run; smaller "
        "is better) are of scores normalised by the worst and best run of each data set.",
        pd.DataFrame(data).sort_values("mean_rank", kind="stable"),
        columns | {"first": ("first", prose.share)},
        in_results=True,
    )


def differences_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of differences with intervals and effect sizes, one row per pair.

    The pair with the smallest p of Nemenyi's test is first. The page shows at most 60 rows; the
    files have all rows. Columns: better, worse, difference with its interval over seeds, its
    interval over seeds and data sets, better_on_other_sets and better_run (shares), rank_biserial,
    hedges_g and mixed_p. The files also have a12. Seeds must have been analysed; the result is then
    never None.
    """
    unit = analysis.study.unit
    seeds = analysis.seeds
    number = tables.digits(unit.digits)
    advantage = tables.interval(tables.digits(unit.digits, plus=True))
    over_seeds = seeds.mean_differences.pairs
    over_datasets = seeds.differences_over_datasets
    effects = seeds.effects
    rows = benchmark_blocks.pairs(
        analysis,
        difference=over_seeds.value,
        seeds_low=over_seeds.low,
        seeds_high=over_seeds.high,
        both_low=over_datasets.pairs.low,
        both_high=over_datasets.pairs.high,
        better_on_other_sets=over_datasets.better,
        better_run=seeds.improvement.pairs.value,
        a12=effects.a12_mean.value,
        rank_biserial=effects.rank_biserial.value,
        hedges_g=effects.hedges_g.value,
        mixed_p=seeds.mixed.pvalues,
    )
    show_interval = lambda low, high: f"[{number(low)}, {number(high)}]"
    columns = tables.columns(
        "better worse difference both_low better_on_other_sets:.2 better_run:.2 "
        "rank_biserial:+.2 hedges_g:+.2 mixed_p:p"
    )
    columns["difference"] = tables.Column(
        "advantage", advantage, ("seeds_low", "seeds_high")
    )
    columns["both_low"] = tables.Column(
        "with other data sets", show_interval, ("both_high",)
    )
    return benchmark_blocks.table(
        "differences",
        f"Advantage of the first algorithm, in {unit.of_differences}, averaged over data sets: "
        f"with {analysis.bounds} over redrawn {analysis.study.repeats}, and with 95 % intervals "
        "over redrawn runs and data sets, widened as for Student's t. P(sets): share of the "
        "latter draws in which the first is better. P(run): probability that one run of the "
        "first beats one run of the second (Vargha and Delaney's A). p: of the mixed model.",
        rows,
        columns,
        most=60,
        in_results=True,
    )


def outperforming_table(analysis: Analysis) -> tables.Table | None:
    """Return the table of P(A > B), the share of seeds for which A beats the reference B.

    The page has one row per algorithm except B, the files one per algorithm and data set. Columns:
    algorithm, pairs (shared seeds), p with its interval (mean over data sets), and the numbers of
    data sets significant, better and ordered (almost stochastic order). p, significant and better
    are missing for fewer than 3 shared seeds. Instead of ordered, the files have violation and
    bound of almost stochastic order. The study must have a tested reference and analysed
    seeds; the table is then never None.
    """
    runs = analysis.runs
    reference = analysis.study.options.reference
    larger_is_better = analysis.study.options.larger_is_better
    algorithms = [name for name in runs.algorithms if name != reference]
    datasets = runs.datasets
    rows = []
    cells = []
    comparisons = len(algorithms) * len(datasets)
    for algorithm in algorithms:
        order = stats.almost_stochastic_order(
            runs.runs(algorithm),
            runs.runs(reference),
            comparisons=comparisons,
            confidence=1 - analysis.alpha,
            larger_is_better=larger_is_better,
        )
        scores, reference_scores = analysis_lib.shared_seeds(
            analysis, algorithm, reference
        )
        row = {"algorithm": algorithm, "pairs": scores.shape[1]}
        dataset_cells = {**row, "dataset": datasets}
        if row["pairs"] > 2:
            p = stats.probability_of_outperforming(
                scores, reference_scores, larger_is_better=larger_is_better
            )
            row |= {
                "p": p.mean.value,
                "p_low": p.mean.low,
                "p_high": p.mean.high,
                "significant": p.significant.sum(),
                "better": p.better.sum(),
            }
            dataset_cells |= {
                "p": p.share.value,
                "p_low": p.share.low,
                "p_high": p.share.high,
                "significant": p.significant,
                "better": p.better,
            }
        rows.append({**row, "ordered": order.better.sum()})
        dataset_cells |= {"violation": order.violation, "bound": order.bound}
        cells.append(pd.DataFrame(dataset_cells))
    table = benchmark_blocks.table(
        "outperforming",
        f"P(A > B): share of seeds with which A beats {reference}, averaged over data sets, "
        "with 95% percentile intervals over redrawn pairs (–: too few pairs; the coverage is "
        "about 87 % with six pairs and 90 % with ten). Significant: number of data sets, of "
        f"{len(datasets)}, on which Clopper and Pearson's 95% interval is above 0.5, not adjusted "
        f"for {comparisons} comparisons. Better: number of these on which P(A > B) is also at "
        f"least {stats.outperformance.GAMMA:g}, which is reliable with "
        f"{stats.pairs_for_outperforming()} pairs or more. Ordered: number of data sets on which "
        "the bound of ε of almost stochastic order is below "
        f"{stats.outperformance.TAU:g}; this describes the scores and is no test. The CSV file "
        "has each data set.",
        rows,
        tables.columns(
            "algorithm pairs:d p:.2[] significant:d better:d ordered:d", p="P(A > B)"
        ),
        in_results=True,
    )
    return table and dataclasses.replace(table, data=pd.concat(cells))


def iqm_figure(analysis: Analysis) -> document.Figure:
    """Return the figure of interquartile means with intervals, sorted by mean rank.

    Seeds must have been analysed.
    """
    iqm = analysis.seeds.intervals.iqm
    order = analysis.order
    names = [analysis.algorithms[i] for i in order]
    caption = (
        "Interquartile mean of scores normalised by the worst and best run of each data set, "
        f"with {analysis.bounds} over redrawn {analysis.study.repeats}."
    )

    def draw() -> plots.Figure:
        return plots.intervals(
            names,
            iqm.value[order],
            iqm.low[order],
            iqm.high[order],
            label="IQM, 0 the worst, 1 the best",
        )

    return document.Figure("iqm", caption, draw)


def profile_figure(analysis: Analysis) -> document.Figure:
    """Return the figure of performance profiles of the tested algorithms.

    The algorithms are those of `benchmark_blocks.drawn_algorithms`. Seeds must have been analysed.
    """
    repeats = analysis.study.repeats
    profiles = analysis.seeds.performance_profiles
    names = [
        name
        for name in benchmark_blocks.drawn_algorithms(analysis)
        if name in analysis.algorithms
    ]
    places = [analysis.algorithms.index(name) for name in names]
    thresholds = profiles.thresholds
    frame = pd.DataFrame(
        {
            "panel": "",
            "line": np.repeat(names, len(thresholds)),
            "x": np.tile(thresholds, len(names)),
            "value": profiles.share.value[places].ravel(),
            "low": profiles.share.low[places].ravel(),
            "high": profiles.share.high[places].ravel(),
        }
    )
    all_styles = plots.styles(analysis.study.algorithms)
    styles = {name: all_styles[name] for name in names}
    labels = "normalised score", f"share of {repeats} above"
    caption = (
        f"Performance profiles: the share of {repeats} × data sets whose normalised score "
        f"reaches a threshold, with {analysis.bounds}, pointwise."
    )

    def draw() -> plots.Figure:
        return plots.curves(frame, styles, labels, alone=9.0, cell=(0, 3.4))

    return document.Figure("profiles", caption, draw)
