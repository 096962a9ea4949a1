"""The tables of a comparison: scores, tests, seeds, selection, and what runs were made of."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from jbias import stats
from jbias.report import analysis as analysis_lib
from jbias.report import inputs, prose, tables, workdirs
from jbias.runs import results, selection

Analysis = analysis_lib.Analysis
_SPREAD = [*analysis_lib.SPREAD]
MOST_ROWS = 500  # That a page shows of a table; its files have all.
MOST_COLUMNS = 60  # Data sets, or algorithms, side by side.
_DECIDED = tables.columns(
    "F:.3 p:p permutation_p:p critical_difference:.2 pairs:d",
    p="p by F",
    permutation_p="p by permutation, which decides",
)


def _table(
    name: str, caption: str, data, columns: Mapping, **more
) -> tables.Table | None:
    """Makes a table whose files have all of `data`, empty columns too."""
    data = pd.DataFrame(data)
    more.setdefault("most", MOST_ROWS)
    return tables.from_rows(name, caption, data, columns, data=data, **more)


def scores(analysis: Analysis) -> tables.Table:
    """Shows mean ± std, or median and range, of every algorithm on every data set.

    Bold is what may be called best, underlined what an algorithm trained on.
    """
    study, tested = analysis.study, analysis.friedman is not None
    datasets = study.datasets[:MOST_COLUMNS]
    shown = analysis.cells[analysis.cells["dataset"].isin(datasets)]
    keys = zip(shown["algorithm"], shown["dataset"])
    cells = dict(zip(keys, shown.to_dict("records"), strict=True))
    sizes = study.values.dropna(subset="n").groupby("dataset")["n"].unique()
    sizes = {name: f" (n={n[0]:,})" for name, n in sizes.items() if len(n) == 1}
    # An accuracy of cues says nothing of accuracies, and all of what is made of cues.
    of_cues = study.options.metric not in ("accuracy", "real_accuracy")
    guessed = {
        (cell["algorithm"], cell["dataset"])
        for cell in study.at_chance
        if of_cues or cell["metric"] == study.options.metric
    }
    ranks = dict(zip(analysis.algorithms, analysis.nemenyi.ranks)) if tested else {}
    rows, at, rank_at = [], {}, 0
    forms = {d: study.unit.spread(of) for d, of in shown.groupby("dataset")}
    for i, algorithm in enumerate(study.algorithms):
        seeds = study.seeds.get(algorithm, 0)
        row = [algorithm]
        if not study.is_of_means:
            row.append(str(seeds))
        if tested:
            rank_at = len(row)
            row.append(f"{ranks[algorithm]:.2f}" if algorithm in ranks else "–")
        for dataset in datasets:
            key = algorithm, dataset
            cell, at[key] = cells[key], (i, len(row))
            fewer = f" (n={cell['n']:.0f})" if 0 < cell["n"] < seeds else ""
            chance = " (chance)" if key in guessed else ""
            spread = [cell[name] for name in _SPREAD]
            shown_spread = forms[dataset](*spread) + _deviation(study.unit, cell)
            row.append(shown_spread + fewer + chance)
        rows.append(tuple(row))
    bold = {(study.algorithms.index(name), rank_at) for name in analysis.leaders}
    bold |= {at[key] for key in analysis.best_cells if key in at}
    under = {at[key] for key in study.trained if key in at}
    caption = [prose.made_of(analysis), prose.bold(analysis, any_is=bool(bold))]
    if under:
        caption.append("Underlined: the algorithm trained on that kind of data.")
    if guessed:
        caption.append("(chance): as guessing would be, so that no claim follows.")
    if rest := _of_more(study.datasets):
        caption.append(rest.strip())
    if sizes:
        caption.append("n in the head counts images.")
    heads = [f"{name}{sizes.get(name, '')}" for name in datasets]
    biases = shape_biases(study)
    of_runs = () if study.is_of_means else (study.repeats.capitalize(),)
    of_ranks = ("Mean rank",) if tested else ()
    return tables.Table(
        "scores",
        " ".join(caption),
        head=("Algorithm", *of_runs, *of_ranks, *heads),
        rows=tuple(rows),
        data=analysis.cells,
        bold=frozenset(bold),
        under=frozenset(under),
        corner="Data set",
        page_columns={
            f"Shape bias, % ({dataset})": [cells.get(x, "–") for x in study.algorithms]
            for dataset, cells in biases.items()
        },
    )


def _deviation(unit: analysis_lib.Unit, cell: Mapping) -> str:
    """Return the deviation that a file gives beside a mean, as " ± 0.2"; "" for none."""
    deviation = cell.get("deviation", math.nan)
    if math.isnan(deviation):
        return ""
    shown = unit.show(deviation)
    is_lost = deviation and not float(shown.replace(",", ""))
    return f" ± {deviation * unit.scale:.1g}" if is_lost else f" ± {shown}"


def reference(analysis: Analysis) -> tables.Table | None:
    """Shows differences of means to one algorithm."""
    study, unit = analysis.study, analysis.study.unit
    name, better = study.options.reference, study.options.larger_is_better
    matrix = analysis.cells.pivot(index="algorithm", columns="dataset", values="mean")
    matrix = matrix.loc[list(study.algorithms), list(study.datasets)]
    apart = (matrix - matrix.loc[name]).drop(index=name)
    p = {frozenset(pair): pvalue for *pair, pvalue in analysis.pairs}
    p = [p.get(frozenset((other, name)), math.nan) for other in apart.index]
    turned = "" if better else ", below zero where better"
    of_p = "; p by Nemenyi's test" if analysis.pairs else ""
    signed = functools.partial(unit.show, signed=True)
    keys, columns = _by_dataset(study.datasets, "algorithm", "p:p", signed)
    return _table(
        "reference",
        f"Means less that of {name}, in {unit.of_differences}{turned}{of_p}."
        f"{_of_more(study.datasets)}",
        apart.set_axis(keys, axis=1).reset_index(names="algorithm").assign(p=p),
        columns,
    )


def _of_more(datasets: Sequence[str]) -> str:
    """Return the sentence on data sets that a page does not show, "" where it shows all."""
    more = len(datasets) - MOST_COLUMNS
    return f" {more:,} more data sets are in the CSV file." if more > 0 else ""


def _by_dataset(datasets, first: str, last: str, form: Callable, **heads: str):
    """Gives keys for data sets, and columns of these between a first and a last one."""
    before, after = (tables.columns(words, **heads) for words in (first, last))
    keys = tables.apart(datasets, [*before, *after])
    shown = zip(keys[:MOST_COLUMNS], datasets[:MOST_COLUMNS])
    columns = {key: (name, form) for key, name in shown}
    return keys, before | columns | after


def runs(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Shows the scores of every single run."""
    one, unit = study.repeats.removesuffix("s"), ["algorithm", "seed"]
    shown = study.datasets, " ".join(unit), "", study.unit.show
    keys, columns = _by_dataset(*shown, seed=one)
    wide = study.values.pivot(index=unit, columns="dataset", values="value")
    wide = wide.reindex(columns=list(study.datasets)).set_axis(keys, axis=1)
    wide = wide.reset_index().astype({"algorithm": str})
    number = wide["seed"].astype(str).str.extract(r"(\d+)$")[0].astype(float).fillna(0)
    place = wide["algorithm"].map({name: i for i, name in enumerate(study.algorithms)})
    caption = f"Every {one} by itself, at {study.rule}.{_of_more(study.datasets)}"
    rows = number, place
    return _table("runs", caption, wide.iloc[np.lexsort(rows)], columns, most=200)


def validation(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Shows validation accuracy and the epochs that were selected."""
    rows, chosen = [], study.selected
    worst = ["worst", *(f"worst_{key}" for key in _SPREAD[1:])]
    by_class = chosen[selection.of_classes(chosen)]
    chosen = chosen[(chosen["dataset"] == results.VALID) & (chosen["condition"] == "")]
    chosen = chosen[chosen["metric"] == "accuracy"]
    for algorithm in study.algorithms if len(chosen) else ():
        mine = chosen[chosen["label"] == algorithm]
        sizes = sorted(set(mine["n"].dropna()))
        row = {"algorithm": algorithm, "seeds": len(mine)}
        row |= {**mine["value"].agg(**analysis_lib.SPREAD)}
        row["images"] = ", ".join(f"{size:,}" for size in sizes) or "–"
        row["epochs"] = " ".join(f"{epoch:g}" for epoch in mine["epoch"])
        if study.options.selection == "worst_class":
            mine = by_class[by_class["label"] == algorithm]
            mine = mine.loc[mine.groupby(["run", "seed"])["value"].idxmin()]
            found = mine["value"].agg(**analysis_lib.SPREAD)
            row |= dict(zip(worst, found, strict=True))
            row["worst_images"] = tables.span(mine["n"])
        rows.append(row)

    def listed(epochs: str) -> str:
        each = epochs.split()
        return ", ".join(each) if len(each) <= 10 else f"{each[0]} … {each[-1]}"

    when = "Last epoch" if study.options.selection == "last_n" else "Epochs selected"
    columns = "algorithm seeds:d mean images worst worst_images epochs"
    columns = tables.columns(columns, worst_images="its images")
    heads = {"validation accuracy": _SPREAD, "of the worst class": worst}
    for head, keys in heads.items():
        cells = pd.DataFrame(rows, columns=keys).set_axis(_SPREAD, axis=1)
        spread = analysis_lib.unit_of("accuracy", chosen["value"]).spread(cells)
        columns[keys[0]] = head, spread, *keys[1:]
    return _table(
        "validation",
        f"Accuracy in % on the validation set, at {study.rule}: mean ± std over seeds. "
        f"{analysis_lib.RANGED}",
        rows,
        columns | {"epochs": (when, listed)},
    )


# What tells a shape bias of many right decisions from one of few.
_BESIDE_SHAPE_BIAS = {
    "fraction_neither": " Neither: decisions for neither cue, in % of images whose cues conflict, mean over seeds.",
    "mrr_shape": " MRR: mean over images and seeds of 1 / rank of the cue's class among all",
    "mrr_texture": " logits.",
}


@functools.lru_cache(maxsize=1)
def shape_bias(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Shows shape bias with the counts that it is made of, and how often neither decides."""
    mine = study.selected[study.selected["metric"] == "shape_bias"]
    datasets = list(dict.fromkeys(mine["dataset"]))
    values = inputs.values_of(study.selected, "shape_bias", datasets)
    cells = analysis_lib.cells_of(values, study.algorithms, datasets)
    cells = cells.rename(columns={"n": "seeds"})
    counts = mine.groupby(["label", "dataset"])[["count", "n"]].sum(min_count=1)
    both = cells.join(counts, on=["algorithm", "dataset"])
    spread = analysis_lib.unit_of("shape_bias", mine["value"]).spread(cells)
    cells["shape_decisions"] = both["count"]
    cells["texture_decisions"] = both["n"] - both["count"]
    caption = "Shape bias in %: decisions for the shape among those for either cue, mean ± std over "
    caption += f"seeds, at {study.rule}. {analysis_lib.RANGED}"
    caption += " Counts are sums over seeds."
    for metric, told in _BESIDE_SHAPE_BIAS.items():
        values = inputs.values_of(study.selected, metric, datasets)
        if len(values):
            told_of = analysis_lib.cells_of(values, study.algorithms, datasets)
            whole = told_of["n"] == cells["seeds"]  # Runs of before have none.
            cells[metric] = told_of["mean"].where(whole).to_numpy()
            caption += told
    heads = {"fraction_neither": "for neither, %"}
    for cue in ("shape", "texture"):
        heads |= {f"{cue}_decisions": f"for {cue}", f"mrr_{cue}": f"MRR of {cue}"}
    columns = tables.columns(
        "algorithm dataset seeds:d mean shape_decisions:d texture_decisions:d "
        "fraction_neither:% mrr_shape:.3 mrr_texture:.3",
        **heads,
    )
    columns["mean"] = "shape bias", spread, *_SPREAD[1:]
    return _table("shape_bias", caption, cells, columns)


def shape_biases(study: analysis_lib.BenchmarkScores) -> dict[str, dict[str, str]]:
    """Return the shape bias in % as the page shows it, by data set, then by algorithm.

    Of decisions for either cue that guessing would give, it says "(chance)". Empty where the study is of shape bias itself, or of a table of scores.
    """
    is_asked = study.options.metric == "shape_bias"
    table = None if is_asked or not study.is_runs else shape_bias(study)
    if table is None:
        return {}
    place = table.head.index("shape bias")
    guessed = {
        (cell["algorithm"], cell["dataset"])
        for cell in study.at_chance
        if cell["metric"] == analysis_lib.CUES
    }
    biases: dict[str, dict[str, str]] = {}
    for algorithm, dataset, row in zip(
        table.data["algorithm"], table.data["dataset"], table.rows, strict=False
    ):
        chance = " (chance)" if (algorithm, dataset) in guessed else ""
        biases.setdefault(dataset, {})[algorithm] = row[place] + chance
    return biases


def ranks(analysis: Analysis) -> tables.Table | None:
    """Shows the ranks that the tests see."""
    shown = analysis.datasets, "algorithm", "mean_rank:.2", "{:g}".format
    keys, columns = _by_dataset(*shown)
    data = analysis.ranks.T.set_axis(keys, axis=1).reset_index(names="algorithm")
    caption = (
        "Ranks of the means, 1 the best; ties (to 12 digits) share their mean rank."
    )
    caption += _of_more(analysis.datasets)
    data = data.assign(mean_rank=analysis.nemenyi.ranks)
    return _table("ranks", caption, data, columns)


def nemenyi(analysis: Analysis) -> tables.Table:
    """Shows the matrix of p-values, in the order of mean ranks."""
    names, result = analysis.algorithms, analysis.nemenyi
    order = analysis.order[:MOST_COLUMNS]
    more = len(names) - len(order)
    rest = f" {more:,} more algorithms are in the CSV file." if more else ""
    claimed = {frozenset(pair) for *pair, _ in analysis.significant}
    data = pd.DataFrame(result.pvalues, columns=tables.apart(names, ("algorithm",)))
    data.insert(0, "algorithm", names)
    rows, bold = [], set()
    for a, i in enumerate(order):
        p = ["" if i == j else tables.p_text(result.pvalues[i, j]) for j in order]
        rows.append((names[i], f"{result.ranks[i]:.2f}", *p))
        pairs = [{names[i], names[j]} in claimed for j in order]
        bold |= {(a, b) for b, differ in enumerate(pairs, 2) if differ}
    levels = analysis.alpha / np.array([1, 5, 50])
    depths = (result.pvalues[order][:, order, None] <= levels).mean(-1)
    np.fill_diagonal(depths, 0)
    return tables.Table(
        "nemenyi",
        "p of Nemenyi's test, adjusted for all pairs by its nature. Bold where "
        f"p ≤ {analysis.alpha:g} and F by permutation rejects; darker at "
        f"{', '.join(f'{level:g}' for level in levels)}. Critical difference of mean ranks: "
        f"{analysis.critical_difference:.3f}.{rest}",
        head=("Algorithm", "Mean rank", *(names[i] for i in order)),
        rows=tuple(rows),
        data=data,
        bold=frozenset(bold),
        shade={(a, b + 2): depths[a, b] for a, b in np.argwhere(depths).tolist()},
    )


def omnibus(analysis: Analysis) -> tables.Table | None:
    """Shows all tests of the same question side by side."""
    f, plain, exact = analysis.friedman, analysis.uncorrected, analysis.permutation
    drawn = f"{exact.permutations:,} permutations, ± {exact.standard_error:.2g}"
    drawn = "all permutations" if exact.exact else drawn
    decides = f"F by permutation ({drawn}), which decides"
    quade, aligned = (analysis.tests[n] for n in ("quade", "aligned_ranks"))
    rows = [
        ("Iman and Davenport's F", f.statistic, f.df, f.pvalue),
        ("the same, ties not corrected", plain.statistic, plain.df, plain.pvalue),
        ("Friedman's χ²", f.chi2, f.df[:1], f.chi2_pvalue),
        (decides, exact.statistic, (), exact.pvalue),
        ("Quade", quade.statistic, quade.df, quade.pvalue),
        ("aligned ranks", aligned.statistic, aligned.df, aligned.pvalue),
    ]
    data = pd.DataFrame(rows, columns=["test", "statistic", "df", "p"])
    data["df"] = [", ".join(f"{d:g}" for d in df) or "–" for df in data["df"]]
    return _table(
        "omnibus",
        "Do the algorithms rank alike? Quade's test and aligned ranks need one unit. Kendall's "
        f"W is {f.kendall_w:.3f}. Data sets: {tables.few(analysis.datasets, MOST_COLUMNS)}."
        f"{_of_infinite([f.statistic, plain.statistic])}",
        data,
        tables.columns("test statistic:.3 df p:p"),
    )


def _of_infinite(statistics: Iterable[float]) -> str:
    """Return what a caption adds where an F is infinite, or ""."""
    if not any(map(math.isinf, statistics)):
        return ""
    return f" {prose.INFINITE_F} The p of its distribution then means nothing."


_BLOCKED = {"by": "blocks by", "f": "F over means", "means": "by permutation"}
_BLOCKED |= {"whole": "blocks permuted whole", "least": "least possible"}


def blocked(analysis: Analysis) -> tables.Table | None:
    """Shows Friedman's test with data sets that are alike counted together."""
    alpha, plain = analysis.alpha, analysis.permutation
    rows = [("each data set", len(analysis.datasets), analysis.friedman.pvalue)]
    rows[0] += plain.pvalue, plain.pvalue, math.nan
    for by, (found, test) in analysis.alike.items():
        of, none = test.means, (math.nan, math.nan)
        means = (of.approximate.pvalue, of.pvalue) if of else none
        rows.append((by, found.count, *means, test.pvalue, test.least))
    asked = analysis.study.options.blocks
    until = f"until {asked} are left" if asked else "while r is at least 0.5"
    columns = tables.columns("by blocks:d f:p means:p whole:p least:p", **_BLOCKED)
    return _table(
        "blocked",
        "p of Friedman's test over blocks of data sets that are alike, joined by average "
        f"linkage of 1 - r {until}: over the blocks' mean scores, by F and by permutation, and "
        "over all data sets, the algorithms permuted alike within a block. Bold where p ≤ "
        f"{alpha:g}, which no p is if the least possible is above.",
        pd.DataFrame(rows, columns=[*columns]),
        columns,
        bold=lambda row: [x for x in ("f", "means", "whole") if row[x] <= alpha],
    )


def dataset_blocks(analysis: Analysis) -> tables.Table | None:
    """Shows which data sets are alike."""
    alike, caption = analysis.alike, "The block of each data set."
    rows = {"dataset": analysis.datasets}
    rows |= {by: 1 + found.labels for by, (found, _) in alike.items()}
    columns = tables.columns("dataset scores:d deviations:d", dataset="data set")
    return _table("dataset_blocks", caption, rows, columns)


def _decision(analysis: Analysis) -> dict[str, float]:
    """What the tests come to, NaN where there is none."""
    found = [math.nan] * len(_DECIDED)
    if test := analysis.friedman:
        found = [
            test.statistic,
            test.pvalue,
            analysis.permutation.pvalue,
            analysis.critical_difference,
            len(analysis.significant),
        ]
    return dict(zip(_DECIDED, found, strict=True))


def strict(analysis: Analysis) -> tables.Table | None:
    """Shows what the tests say with and without the sets that some trained on."""
    study, rows, seen = analysis.study, [], set()
    for setting in ("all test sets", "strict") if study.trained else ():
        options = dataclasses.replace(study.options, strict=setting == "strict")
        one = analysis_lib.analyse(dataclasses.replace(study, options=options))
        rows.append(dict(setting=setting, datasets=len(one.datasets), **_decision(one)))
        seen |= {dataset for _, dataset in study.trained if dataset in one.datasets}
    return _table(
        "strict",
        "The tests over all test sets, and without those that some algorithm trained on "
        f"({', '.join(sorted(seen))}); pairs: how many differ at α = {analysis.alpha:g}."
        f"{_of_infinite(row['F'] for row in rows)}",
        rows,
        tables.columns("setting datasets:d", datasets="data sets") | _DECIDED,
    )


def _pairs(analysis: Analysis, **matrices: np.ndarray) -> pd.DataFrame:
    """Gives a row a pair, the smallest p of Nemenyi's test first."""
    frame = pd.DataFrame(analysis.pairs, columns=["better", "worse", "p"])
    at = (frame[side].map(analysis.algorithms.index) for side in ("better", "worse"))
    i, j = at
    cells = {key: matrix[i, j] for key, matrix in matrices.items()}
    return frame.drop(columns="p").assign(**cells)


def posthoc(analysis: Analysis) -> tables.Table | None:
    """Shows every pair under every test."""
    tests, ranks = analysis.tests, analysis.nemenyi.ranks
    terry, least = tests["bradley_terry"], tests["wilcoxon"].least_adjusted
    many = len(analysis.algorithms) > analysis_lib.MANY
    why = "which takes long for so many" if many else "whose draws are worth too little"
    model = "the Bayesian Bradley-Terry model"
    model = f"{model}." if terry is not None else f"not by {model}, {why}."
    if least > analysis.alpha:
        model += f" Wilcoxon's test can give no adjusted p below {tables.p_text(least)} with "
        model += f"{len(analysis.datasets)} data sets and so many pairs: it can never reject here."
    if math.isinf(analysis.friedman.statistic):
        model += " Conover's test divides by the same disagreement as F, which is 0 here: its p "
        model += "means nothing."
    p = {"nemenyi": analysis.nemenyi, "max_t": tests["max_t"]}
    p |= {f"{name}_holm": tests[name] for name in ("conover", "wilcoxon")}
    rows = _pairs(
        analysis,
        rank_difference=ranks - ranks[:, None],
        **{name: test.adjusted for name, test in p.items()},
        signed_rank_better=tests["signed_rank"].better,
        signed_rank_rope=tests["signed_rank"].rope,
        **({} if terry is None else {"bradley_terry_better": terry.better}),
    )
    return _table(
        "posthoc",
        "Every pair under every test: p adjusted for all pairs, bold where "
        f"p ≤ {analysis.alpha:g}; probability that the first is better, by the Bayesian "
        "signed-rank test with a region of practical equivalence (rope) of ± "
        f"{analysis.rope:g} and {model}",
        rows,
        tables.columns(
            "better worse rank_difference:.2 nemenyi:p max_t:p conover_holm:p wilcoxon_holm:p "
            "signed_rank_better:.2 signed_rank_rope:.2 bradley_terry_better:.2"
        ),
        most=60,
        bold=lambda row: [key for key in p if row[key] <= analysis.alpha],
    )


def control(analysis: Analysis) -> tables.Table | None:
    """Shows all algorithms against the reference, adjusted for these alone."""
    dunn, alpha = analysis.tests["dunn"], analysis.alpha
    p = {"dunn": dunn.adjusted, "holm": stats.adjust(dunn.pvalues, "holm")}
    p["wilcoxon_holm"] = analysis.tests["control_wilcoxon"].adjusted
    return _table(
        "control",
        f"Every algorithm against {dunn.control}, adjusted for these comparisons alone: valid "
        f"if {dunn.control} was the control before the scores were seen. z > 0: a better mean "
        f"rank than its; bold where p ≤ {alpha:g}.",
        {"algorithm": dunn.algorithms, "z": dunn.statistics, **p},
        tables.columns("algorithm z:+.2 dunn:p holm:p wilcoxon_holm:p"),
        bold=lambda row: [key for key in p if row[key] <= alpha],
    )


def stability(analysis: Analysis) -> tables.Table | None:
    """Shows ranks, means and IQM with intervals over redrawn seeds."""
    digits = analysis.study.unit.digits
    stable, sure = analysis.seeds["stability"], analysis.seeds["intervals"]
    data = {"algorithm": stable.algorithms, "first": stable.best}
    estimates = {"mean_rank": stable.ranks, "mean": sure.mean, "iqm": sure.iqm}
    estimates["optimality_gap"] = sure.optimality_gap
    for key, one in estimates.items():
        data |= {key: one.value, f"{key}_low": one.low, f"{key}_high": one.high}
    keys = f"algorithm mean_rank:.2[] first mean:.{digits}[] iqm:.3[]"
    columns = tables.columns(f"{keys} optimality_gap:.3[]")
    return _table(
        "stability",
        f"{analysis.bounds.capitalize()} over {analysis.study.repeats} redrawn "
        f"{analysis.draws:,} times, for all data sets together. First: share of draws in which "
        f"it ranks first (standard error up to {50 / math.sqrt(analysis.draws):.1f} points). Interquartile mean (IQM) and optimality gap (to the best run; smaller "
        "is better) are of scores normalised by the worst and best run of each data set.",
        pd.DataFrame(data).sort_values("mean_rank", kind="stable"),
        columns | {"first": ("first", prose.share)},
    )


def differences(analysis: Analysis) -> tables.Table | None:
    """Shows how large the difference of every pair is, and how sure."""
    unit, seeds = analysis.study.unit, analysis.seeds
    number = tables.digits(unit.digits)
    advantage = tables.interval(tables.digits(unit.digits, plus=True))
    mine, both, effects = seeds["mean_differences"], seeds["both"], seeds["effects"]
    rows = _pairs(
        analysis,
        difference=mine.pairs.value,
        seeds_low=mine.pairs.low,
        seeds_high=mine.pairs.high,
        both_low=both.pairs.low,
        both_high=both.pairs.high,
        better_on_other_sets=both.better,
        better_run=seeds["improvement"].pairs.value,
        a12=effects.a12_mean.value,
        rank_biserial=effects.rank_biserial.value,
        hedges_g=effects.hedges_g.value,
        mixed_p=seeds["mixed"].pvalues,
    )
    others = lambda low, high: f"[{number(low)}, {number(high)}]"
    columns = tables.columns(
        "better worse difference both_low better_on_other_sets:.2 better_run:.2 "
        "rank_biserial:+.2 hedges_g:+.2 mixed_p:p"
    )
    columns["difference"] = "advantage", advantage, "seeds_low", "seeds_high"
    columns["both_low"] = "with other data sets", others, "both_high"
    return _table(
        "differences",
        f"How much better the first is, in {unit.of_differences}, averaged over data sets: with "
        f"{analysis.bounds} over redrawn {analysis.study.repeats}, and 95 % with data "
        "sets redrawn too, widened as Student's t asks. P(sets): how often it is better then; P(run): how probably one run "
        "of it beats one of the other (Vargha and Delaney's A); p: of the mixed model.",
        rows,
        columns,
        most=60,
    )


def outperforming(analysis: Analysis) -> tables.Table | None:
    """Shows how often each algorithm beats the reference, seed by seed, and how surely."""
    runs, reference = analysis.runs, analysis.study.options.reference
    others, datasets = [a for a in runs.algorithms if a != reference], runs.datasets
    common = {**analysis.study.better, "confidence": 1 - analysis.alpha}
    rows, cells, comparisons = [], [], len(others) * len(datasets)
    for algorithm in others:
        both = runs.runs(algorithm), runs.runs(reference)
        order = stats.almost_stochastic_order(*both, comparisons=comparisons, **common)
        both = analysis_lib.shared_seeds(analysis, algorithm, reference)
        row = {"algorithm": algorithm, "pairs": both[0].shape[1]}
        of = {**row, "dataset": datasets}
        if row["pairs"] > 2:
            p = stats.probability_of_outperforming(*both, **analysis.study.better)
            row |= {"p": p.mean.value, "p_low": p.mean.low, "p_high": p.mean.high}
            row |= {"significant": p.significant.sum(), "better": p.better.sum()}
            of |= {"p": p.share.value, "p_low": p.share.low, "p_high": p.share.high}
            of |= {"significant": p.significant, "better": p.better}
        rows.append({**row, "ordered": order.better.sum()})
        of |= {"violation": order.violation, "bound": order.bound}
        cells.append(pd.DataFrame(of))
    shown = "algorithm pairs:d p:.2[] significant:d better:d ordered:d"
    table = _table(
        "outperforming",
        f"P(A > B): how often A beats {reference} with the same seed, averaged over data sets, "
        "with 95% percentile intervals over redrawn pairs (–: too few; of six pairs they hold about "
        "87 %, of ten 90 %). Significant: on how many "
        f"of {len(datasets)} data sets Clopper and Pearson's interval of 95% lies above 0.5, not "
        f"adjusted for {comparisons} comparisons; better: if it reaches "
        f"{stats.outperformance.GAMMA:g}, too, which takes {stats.pairs_for_outperforming()} pairs "
        "to be reliable. Ordered: on how many the bound of almost stochastic order's ε is below "
        f"{stats.outperformance.TAU:g}, which describes and is no test. The CSV file has each "
        "data set.",
        rows,
        tables.columns(shown, p="P(A > B)"),
    )
    return table and dataclasses.replace(table, data=pd.concat(cells))


def power(analysis: Analysis) -> tables.Table:
    """Shows power as here, and by seeds and data sets in the CSV file, for each test."""
    result, what = analysis.seeds["power"], analysis.study.repeats
    digits, rows, data = analysis.study.unit.digits + 1, [], []
    tests = {"t": "paired t", "wilcoxon": "Wilcoxon", "nemenyi": "Nemenyi"}
    for test, name in tests.items():
        least, present = result.minimal[test], result.present[test]
        shown = f"{least:.{digits}f}" if math.isfinite(least) else "never"
        rows.append((name, "as here", f"{present:.2f}", shown))
        data.append((test, "here", len(analysis.datasets), present))
        for seeds, row in zip(result.seeds, result.power[test], strict=True):
            pairs = zip(result.datasets, row, strict=True)
            data += [(test, str(seeds), sets, chance) for sets, chance in pairs]
    return tables.Table(
        "power",
        "How often a study like this one would find one algorithm better than another by "
        f"{result.difference:g}, and what difference it would find with a chance of "
        f"{result.target:g}, by simulation. t and Wilcoxon at α = {result.alpha:g} shared among "
        f"{tables.count(result.comparisons, 'pair')}. The CSV file has other numbers of {what} and data sets.",
        head=("Test", "study", "power", f"found with {result.target:g}"),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=["test", "seeds", "datasets", "power"]),
        texts=2,
    )


def selections(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Shows what other selection rules would have given."""
    means = {
        name: study.cells_of(values).set_index(["algorithm", "dataset"])["mean"]
        for name, values in study.others
    }
    data, show = pd.DataFrame(means), study.unit.show
    columns = {name: (name, show) for name in data}
    if {"oracle", "best validation"} <= {*data}:
        gap = "oracle − best validation"
        data[gap] = data["oracle"] - data["best validation"]
        columns["oracle"] = "oracle (not a result)", show
        columns[gap] = gap, functools.partial(show, signed=True)
    caption = "Means over seeds by rule of selection; the oracle looks at the test set."
    columns = tables.columns("algorithm dataset") | columns
    return _table("selections", caption, data.reset_index(), columns)


def selection_tests(analysis: Analysis) -> tables.Table | None:
    """Shows what the tests would have said under other selection rules.

    None of one or two data sets, whose ranks are not tested.
    """
    if len(analysis.study.datasets) <= analysis_lib.FEW_SETS:
        return None
    rows = []
    for name, values in analysis.study.others:
        one = analysis_lib.analyse(dataclasses.replace(analysis.study, values=values))
        order = one.order if one.friedman is not None else []
        ranks = [f"{one.algorithms[i]} {one.nemenyi.ranks[i]:.2f}" for i in order]
        found = _decision(one)
        rows.append(dict(selection=name, **found, mean_ranks=", ".join(ranks) or "–"))
    return _table(
        "selection_tests",
        "The tests under each rule of selection; pairs: how many differ at "
        f"α = {analysis.alpha:g}. A conclusion that changes with the rule is a weak one."
        f"{_of_infinite(row['F'] for row in rows)}",
        pd.DataFrame(rows).drop(columns="critical_difference"),
        tables.columns("selection") | _DECIDED | tables.columns("mean_ranks"),
    )


def variability(
    study: analysis_lib.BenchmarkScores, data: pd.DataFrame
) -> tables.Table | None:
    """Shows how scores vary inside runs and between them."""
    data, show = data.dropna(subset=["within", "between"], how="all"), study.unit.show
    return _table(
        "variability",
        _variability_caption(data["evaluations"].max()),
        data,
        tables.columns("algorithm dataset within between seeds:d")
        | {key: (f"{key} runs", show) for key in ("within", "between")},
    )


def _variability_caption(evaluations: float) -> str:
    """Return the caption of the table of variability; evaluations: NaN if not known."""
    if evaluations == 1:
        return (
            "How scores vary between runs, at the last evaluation of each. Nothing is known "
            "of how they vary inside a run, which takes two evaluations or more."
        )
    return (
        f"How scores vary: inside a run over its last {evaluations:.0f} evaluations (root "
        "mean variance), and between the runs' means over these."
    )


def settings(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Shows the settings that are not equal in all runs."""
    known = [run for run in study.runs if run.config is not None]
    keys = workdirs.differing([run.config for run in known])
    each = zip(_names(known), known, strict=True)
    rows = {name: [run.config.get(key, "∅") for key in keys] for name, run in each}
    caption = "Settings that are not equal in all runs; ∅ where a run has none."
    return _of_words("settings", caption, {"setting": keys} | rows)


def costs(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Shows what each run cost, and what the estimates of energy assume."""
    rows, seen = [], set()
    for name, run in zip(_names(study.runs), study.runs, strict=True):
        starts, total = run.costs.get("starts", ()), run.costs.get("total", {})
        if not starts or str(starts) in seen:  # Branches of one run share its file.
            continue
        seen.add(str(starts))
        assumed = "; ".join(dict.fromkeys(map(workdirs.assumed, starts)))
        row = {"run": name, "assumed": assumed, "starts": len(starts)}
        row |= total.get("hours", {})
        known = ("device_hours", "energy_kwh", "kg_co2e")
        rows.append(row | {key: total.get(key) for key in known})
    data = pd.DataFrame(rows)
    columns = tables.columns("run assumed starts:d")
    for key in data.columns[3:]:
        head = tables.HEADS.get(key, key.replace("_", " "))
        columns[key] = head, "{:.3g}".format
    return _table(
        "costs",
        "What each run cost, all its starts together: device hours (of a CPU, core hours), and "
        "an estimate of the energy: hours × power in use × the building's factor (PUE).",
        data,
        columns,
    )


def provenance(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Shows code, versions and devices of each run."""
    flat = []
    for run in study.runs:
        parts = {k: v for k, v in run.provenance.items() if k not in ("config", "data")}
        named = {"workdir": run.workdir, "label": run.label}
        flat.append(named | workdirs.flatten(parts))
    data = pd.DataFrame(flat, _names(study.runs)).T.fillna("")
    data = data.rename_axis("key").reset_index()
    shown = data.replace("", "∅")
    same = shown.iloc[:, 1:].nunique(axis=1) == 1
    shown.loc[same, shown.columns[2:]] = "″"
    told = "Code, packages and devices of each run; ″ repeats what stands on the left."
    table = _of_words("provenance", told, shown)
    return dataclasses.replace(table, data=data)


def data(study: analysis_lib.BenchmarkScores) -> tables.Table | None:
    """Shows the data that the runs saw."""
    seen = {}
    for run in study.runs:
        for name, facts in run.data.items():
            facts = workdirs.flatten(facts if isinstance(facts, dict) else {"": facts})
            seen.setdefault((name, *facts.items()), []).append(run.name)
    rows = [
        {"Data set": name} | dict(facts) | {"runs": ", ".join(names)}
        for (name, *facts), names in seen.items()
    ]
    columns = dict.fromkeys(key for row in rows for key in row if key != "runs")
    frame = pd.DataFrame(rows, columns=[*columns, "runs"]).fillna("∅")
    caption = "Data that the runs saw. A data set with several lines is not the same in all runs."
    return _of_words("data", caption, frame)


def _of_words(name: str, caption: str, data) -> tables.Table | None:
    """Makes a table without numbers."""
    data = pd.DataFrame(data)
    return _table(name, caption, data, {key: (key, str) for key in data})


def _names(runs: Sequence[workdirs.Run]) -> list[str]:
    names = [run.name for run in runs]
    unique = len({*names}) == len(names)
    return names if unique else [run.workdir for run in runs]
