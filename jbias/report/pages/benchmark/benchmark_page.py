"""Functions that build the report that compares algorithms: sections, figures, results.json.

Ranks were tested if `Analysis.friedman` is not None, and seeds were analysed if `Analysis.runs` is
not None.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias import errors
from jbias.report import document, plots, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import (
    benchmark_tables,
    few_seeds,
    grids,
    inputs,
    prose,
    seed_sections,
)
from jbias.runs import results, selection

Analysis = analysis_lib.Analysis
# Panels of a figure, and curves of a panel; a figure with more is unreadable.
MAX_PANELS = 9
MAX_CURVES = 12
_MAX_DOTS = 20_000  # Dots of single seeds; more dots hide the curves.
_SECTIONS = {
    "scores": "Scores",
    "tests": "What is significant",
    "alike": "Similar test sets",
    "seeds": "Stability",
    "few_seeds": "Results with fewer seeds",
    "grid": "Methods at every value of a setting",
    "power": "Power",
    "caveats": "What to keep in mind",
    "shape_bias": "Shape bias",
    "selection": "Selection",
    "curves": "Over epochs",
    "runs": "Single runs",
    "provenance": "What was run",
    "methods": "Methods, for a paper",
}


def report(study: analysis_lib.BenchmarkScores) -> document.Report:
    """Return the report of a study: its tests, tables, figures, page and results.json.

    Raises ValueError if --reference is not an algorithm, for --paired-seeds with more than two data
    sets or with different seeds, and for --blocks above the number of tested data sets.
    """
    _check_options(study)
    tested = analysis_lib.analyse(study)
    # The tasks release the GIL for most of their time, so threads run them in parallel.
    analysis, drawn_curves, deviations, few_seeds_blocks, grid_blocks, _ = (
        analysis_lib.run_side_by_side(
            [
                lambda: analysis_lib.with_evidence(tested),
                lambda: [*curves(tested)],
                lambda: variability(study) if study.is_runs else None,
                lambda: [("few_seeds", block) for block in few_seeds.blocks(study)],
                lambda: [("grid", block) for block in grids.blocks(study)],
                lambda: study.warnings,  # Computed here, cached by the study.
            ]
        )
    )
    bias_table = benchmark_tables.shape_bias(study) if study.is_runs else None
    biases = benchmark_tables.shape_biases(study, bias_table)
    seed_test_blocks = [("tests", block) for block in seed_sections.blocks(analysis)]
    placed_tables = [
        *seed_test_blocks,
        *_tables(analysis, deviations, bias_table, biases),
        *few_seeds_blocks,
        *grid_blocks,
    ]
    methods = prose.methods(analysis, seed_sections.methods(analysis))
    bib = prose.bib(methods.keys)
    answer = prose.answer(analysis, seed_sections.answer(analysis))
    bias_sentences = prose.shape_biases(biases)
    num_algorithms = len(study.algorithms)
    heading = tables.join(study.algorithms)
    if num_algorithms > 6:
        heading = tables.count(num_algorithms, "algorithm")
    metric = study.options.metric.replace("_", " ").capitalize()
    demonstration = prose.demonstration(study)
    remarks = [*([demonstration] if demonstration else []), *study.layout_notes]
    # The figure of ranks is below the table of scores; other figures are above tables.
    rank_figure = [("scores", _ranks(analysis))] if analysis.tests else []
    return document.Report(
        title="jbias report",
        heading=heading,
        subtitle=f"{metric} on {tables.count(len(study.datasets), 'data set')}, jbias report"
        + "".join(f"; {line}" for line in remarks),
        answer=answer,
        highlights=bias_sentences,
        points=[*bias_sentences, *(prose.points(analysis) or answer[1:])],
        warnings=prose.warnings(analysis),
        facts=_facts(analysis),
        sections=document.sections(
            _SECTIONS,
            _paragraphs(analysis),
            [*figures(analysis, deviations), *drawn_curves],
            placed_tables,
            rank_figure,
            _texts(analysis, methods, bib),
            unfolded=("scores", "tests") if seed_test_blocks else ("scores",),
            printed=("tests",),
        ),
        results=_results(analysis, placed_tables, methods),
        files={
            "methods.md": prose.markdown(methods.paragraph, methods.other_sections),
            "methods.bib": bib,
        },
    )


def _check_options(study: analysis_lib.BenchmarkScores) -> None:
    """Raise ValueError if --reference is not an algorithm of the study.

    Also raise ValueError for --paired-seeds with more than two data sets.
    """
    reference = study.options.reference
    if reference and reference not in study.algorithms:
        raise ValueError(
            f"--reference: there is no algorithm {reference!r}; "
            f"{errors.suggest(reference, study.algorithms)}"
        )
    if study.options.paired_seeds and len(study.datasets) > analysis_lib.FEW_SETS:
        raise ValueError(
            "--paired-seeds: needs one or two data sets, got "
            f"{len(study.datasets)}; remove it, or choose data sets with --datasets=A,B"
        )


def _facts(analysis: Analysis) -> dict[str, object]:
    """Return the short facts at the top of the page, by label, such as {"Algorithms": 5}.

    Labels: Algorithms, Data sets, In the tests (such as "5 × 8" for 5 algorithms and 8 data sets,
    or "none"), "Seeds each" or "Runs each" (Scores for a file of means), Selection for runs, Test
    images (sum over data sets) if known, and Diverged seeds if there are any.
    """
    study, (n, k) = analysis.study, analysis.means.shape
    facts = {
        "Algorithms": len(study.algorithms),
        "Data sets": len(study.datasets),
        "In the tests": f"{k} × {n}" if _is_tested(analysis) else "none",
    }
    if study.is_of_means:
        facts["Scores"] = "means over runs"
    else:
        facts[f"{study.repeats.capitalize()} each"] = tables.span(study.seeds, "–")
    if study.is_runs:
        facts["Selection"] = study.options.selection.replace("_", " ")
    sizes = study.values.dropna(subset="n").groupby("dataset")["n"].max()
    if len(sizes):
        facts["Test images"] = f"{int(sizes.sum()):,}"
    if study.diverged is not None and len(study.diverged):
        facts["Diverged seeds"] = len(study.diverged)
    return facts


def _is_tested(analysis: Analysis) -> bool:
    """Return True if ranks over data sets or scores over seeds were tested."""
    by_seeds = analysis.by_seeds
    return analysis.friedman is not None or bool(by_seeds and by_seeds.family)


def _paragraphs(analysis: Analysis) -> document.Placed:
    """Yield (section id, paragraph) on tests not run, stability, power and similar data sets.

    If ranks were not tested, only paragraphs of the section "tests" are yielded.
    """
    paragraphs_by_section = {"tests": prose.untested(analysis)}
    if analysis.tests:
        paragraphs_by_section["seeds"] = prose.stability(analysis)
        paragraphs_by_section["power"] = prose.power(analysis)
        paragraphs_by_section["alike"] = prose.similar_datasets(analysis)
    for section, paragraphs in paragraphs_by_section.items():
        for text in paragraphs:
            yield section, document.Text(text)


def _texts(analysis: Analysis, methods: prose.Methods, bib: str) -> document.Placed:
    """Yield (section id, text) for caveats, provenance and methods.

    The settings of each run, the methods of the other sections and the BibTeX entries are folded.
    methods: paragraphs on methods. bib: BibTeX entries of the cited works.
    """
    yield "caveats", document.Text(prose.notes(analysis))
    yield "provenance", document.Text(f"Made from {analysis.study.source}.")
    for run in analysis.study.runs:
        if run.config is not None:
            text = json.dumps(dict(run.config), indent=1, ensure_ascii=False)
            title = f"All settings of {run.workdir}"
            yield "provenance", document.Folded(title, text)
    yield "methods", document.Text(methods.paragraph)
    if methods.other_sections:
        yield (
            "methods",
            document.Folded("Methods of the other sections", methods.other_sections),
        )
    yield "methods", document.Folded("Works cited, as BibTeX", bib)


def _tables(
    analysis: Analysis,
    deviations: pd.DataFrame | None,
    bias_table: tables.Table | None,
    biases: Mapping[str, Mapping[str, str]],
) -> document.Placed:
    """Yield (section id, table) in the order of the page; a table without rows is None.

    deviations: the result of `variability`. bias_table, biases: the results of `shape_bias` and
    `shape_biases` of `benchmark_tables`.
    """
    study = analysis.study
    yield "scores", benchmark_tables.scores(analysis, biases)
    if study.options.reference:
        yield "scores", benchmark_tables.reference(analysis)
    if analysis.tests:
        yield from _test_tables(analysis)
    if not study.is_of_means:
        yield "runs", benchmark_tables.runs(study)
    if study.is_runs:
        yield "selection", benchmark_tables.validation(study)
        yield "selection", benchmark_tables.selection_tests(analysis)
        yield "selection", benchmark_tables.selections(study)
        yield "selection", benchmark_tables.variability(study, deviations)
        yield "shape_bias", bias_table
        yield "provenance", benchmark_tables.settings(study)
        yield "provenance", benchmark_tables.costs(study)
        yield "provenance", benchmark_tables.provenance(study)
        yield "provenance", benchmark_tables.data(study)


def _test_tables(analysis: Analysis) -> document.Placed:
    """Yield (section id, table) for the tables of the rank tests and of seeds.

    The sections are "tests", "alike" if there are blocks of data sets, and "seeds" and "power" if
    seeds were analysed. Tables against the reference are left out if the reference was not tested.
    """
    has_reference = "dunn" in analysis.tests
    yield "tests", benchmark_tables.omnibus(analysis)
    yield "tests", benchmark_tables.strict(analysis)
    yield "tests", benchmark_tables.nemenyi(analysis)
    yield "tests", benchmark_tables.posthoc(analysis)
    if has_reference:
        yield "tests", benchmark_tables.control(analysis)
    yield "tests", benchmark_tables.ranks(analysis)
    if analysis.dataset_blocks:
        yield "alike", benchmark_tables.blocked(analysis)
        yield "alike", benchmark_tables.dataset_blocks(analysis)
    if analysis.runs is not None:
        yield "seeds", benchmark_tables.stability(analysis)
        yield "seeds", benchmark_tables.differences(analysis)
        if has_reference:
            yield "seeds", benchmark_tables.outperforming(analysis)
        yield "power", benchmark_tables.power(analysis)


# Tables whose data are in results.json, under the names of the tables.
_TABLES_IN_RESULTS = (
    "omnibus",
    "posthoc",
    "control",
    "strict",
    "stability",
    "differences",
    "outperforming",
    "few_seeds",
    "grid",
    "grid_pairs",
    "blocked",
    "dataset_blocks",
    "power",
    "variability",
)


def _results(
    analysis: Analysis, placed_tables: document.Placed, methods: prose.Methods
) -> Mapping[str, Any]:
    """Return the content of results.json; tables of tests have the rows of their CSV files.

    The results of rank tests are None if ranks were not tested. Only runs have the keys shape_bias,
    diverged, other_selections and runs. placed_tables: (section id, table) for all tables of the
    page. methods: paragraphs on methods.
    """
    study = analysis.study
    is_tested = analysis.friedman is not None
    frames = {
        block.name: block.data
        for _, block in placed_tables
        if isinstance(block, tables.Table)
    }
    tree = {
        "source": study.source,
        "read_as": study.layout_notes,
        "metric": study.options.metric,
        "larger_is_better": study.options.larger_is_better,
        "selection": study.options.selection,
        "selection_rule": study.rule,
        "algorithms": study.algorithms,
        "datasets": study.datasets,
        "table": analysis.cells,
        "alpha": analysis.alpha,
        "tested": {
            "algorithms": analysis.algorithms if is_tested else [],
            "datasets": analysis.datasets if is_tested else [],
            "left_out": [
                {"name": name, "reason": reason} for name, reason in analysis.left_out
            ],
            "why_not": analysis.why_not,
        },
        **(_rank_tests(analysis) if is_tested else dict.fromkeys(_RANK_TESTS)),
        "seed_tests": seed_sections.results(analysis),
        "caveats": prose.caveats(analysis),
        "twins": [{"names": names, "why": reason} for *names, reason in study.twins],
        "at_chance": study.at_chance,
        "derived": [
            {"kind": note.kind, **note.item._asdict()} for note in study.derived
        ],
        "methods": methods.paragraph,
        "methods_of_other_sections": methods.other_sections,
        "trained_on": sorted(study.trained),
        **{name: frames[name] for name in _TABLES_IN_RESULTS if name in frames},
    }
    if study.is_runs:
        tree["shape_bias"] = frames.get("shape_bias", [])
        tree["diverged"] = study.diverged
        tree["other_selections"] = {
            name: study.cells_of(values) for name, values in study.values_by_rule
        }
        tree["runs"] = [
            {"workdir": run.workdir, "label": run.label} for run in study.runs
        ]
    return tree


_RANK_TESTS = ("friedman", "friedman_uncorrected", "permutation", "nemenyi")


def _rank_tests(analysis: Analysis) -> dict[str, Any]:
    """Return the results of the rank tests by the keys of `_RANK_TESTS`, ready for results.json.

    friedman and friedman_uncorrected have chi2, chi2_p, F, F_is_infinite, p, df, kendall_w and
    mean_ranks (by algorithm); permutation has p, exact and standard_error. nemenyi has p (by
    algorithm, then by algorithm), critical_difference (by level, such as "0.05"), significant (a
    frame with the columns better, worse and p) and cliques (lists of names). Ranks must have been
    tested.
    """
    names = analysis.algorithms
    nemenyi = analysis.nemenyi
    permutation = {
        "p": analysis.permutation.pvalue,
        "exact": analysis.permutation.exact,
        "standard_error": analysis.permutation.standard_error,
    }
    friedman, uncorrected = (
        {
            "chi2": result.chi2,
            "chi2_p": result.chi2_pvalue,
            "F": result.statistic,
            "F_is_infinite": math.isinf(result.statistic),
            "p": result.pvalue,
            "df": result.df,
            "kendall_w": result.kendall_w,
            "mean_ranks": dict(zip(names, result.ranks, strict=True)),
        }
        for result in (analysis.friedman, analysis.uncorrected)
    )
    levels = sorted({0.05, 0.1, analysis.alpha})
    critical_differences = {
        f"{level:g}": nemenyi.critical_difference(level) for level in levels
    }
    significant = pd.DataFrame(analysis.significant, columns=["better", "worse", "p"])
    pairs = {
        "p": pd.DataFrame(nemenyi.pvalues, names, names).to_dict("index"),
        "critical_difference": critical_differences,
        "significant": significant,
        "cliques": [[names[i] for i in clique] for clique in analysis.cliques],
    }
    return dict(
        zip(_RANK_TESTS, (friedman, uncorrected, permutation, pairs), strict=True)
    )


def variability(study: analysis_lib.BenchmarkScores) -> pd.DataFrame:
    """Return the standard deviations within and between runs, one row per algorithm and data set.

    Columns: algorithm, dataset, within, between, seeds (number of seeds) and evaluations (smallest
    number of averaged evaluations of a seed). `within` is the deviation over the last
    `options.last` evaluations of a seed (root of the mean variance over seeds). `between` is the
    deviation of the seeds' means over these evaluations. Both deviations have ddof 1 and the unit
    of the records (fractions for accuracies). A deviation is NaN without evaluations, and for a
    single number. Seeds of different runs are different seeds. Source: BiasBed, figure 2.
    """
    evaluations = _evaluations(study, study.options.metric, study.datasets)
    if not evaluations["epoch"].is_monotonic_increasing:
        evaluations = evaluations.sort_values("epoch", kind="stable")
    keys = results.number_rows(evaluations, ["label", "dataset", "run", "seed"])
    num_later = selection.count_later(keys)
    is_late = num_later < study.options.last
    late = evaluations["value"][is_late].groupby(keys[is_late])
    is_last = num_later == 0
    seeds = evaluations.loc[is_last, ["label", "dataset"]].set_index(keys[is_last])
    seeds = seeds.join(late.agg(["mean", "var", "size"]))
    groups = seeds.astype({"label": str, "dataset": str}).groupby(["label", "dataset"])
    deviations = {
        "within": np.sqrt(groups["var"].mean()),
        "between": groups["mean"].std(),
        "seeds": groups.size(),
        "evaluations": groups["size"].min(),
    }
    order = pd.MultiIndex.from_product([study.algorithms, study.datasets])
    frame = pd.DataFrame(deviations).reindex(order)
    return frame.rename_axis(["algorithm", "dataset"]).reset_index()


def _evaluations(
    study: analysis_lib.BenchmarkScores, metric: str, datasets: Sequence[str]
) -> pd.DataFrame:
    """Return the values of a metric per seed, data set and epoch, averaged over conditions.

    Columns: label, dataset, run, seed, epoch, condition and value. A record without a condition
    replaces the mean; the condition of a mean is NaN.
    """
    records = study.evaluations
    keys = ["label", "dataset", "run", "seed", "epoch"]
    is_wanted = (records["metric"] == metric) & records["dataset"].isin(datasets)
    return inputs.averaged(records.loc[is_wanted, [*keys, "condition", "value"]], keys)


def figures(analysis: Analysis, deviations: pd.DataFrame | None) -> document.Placed:
    """Yield (section id, figure) for the sections "alike", "seeds", "power" and "selection".

    Tested ranks give correlations of data sets, one figure per kind of similarity. Analysed seeds
    give interquartile means, performance profiles and power. Runs give variability, or None if the
    deviations are unknown. deviations: the result of `variability`; None for a file of scores.
    """
    if analysis.tests:
        for by in analysis.dataset_blocks:
            yield "alike", _dataset_blocks(analysis, by)
        if analysis.runs is not None:
            yield "seeds", _iqm(analysis)
            yield "seeds", _profiles(analysis)
            yield "power", _power(analysis)
    if analysis.study.is_runs:
        yield "selection", _variability(analysis.study, deviations)


def curves(analysis: Analysis) -> document.Placed:
    """Yield (section id, figure or None) of the metric and of the shape bias over epochs.

    A figure without records is None. Nothing is yielded for a file of scores.
    """
    if analysis.study.is_runs:
        for metric in dict.fromkeys((analysis.study.options.metric, "shape_bias")):
            yield "curves", _curves(analysis, metric)


def _ranks(analysis: Analysis) -> document.Figure:
    """Return the figure of mean ranks with their critical difference; ranks must be tested."""
    names = analysis.algorithms
    ranks = analysis.nemenyi.ranks
    styles = plots.styles(analysis.study.algorithms)
    cliques = analysis.cliques
    difference = analysis.critical_difference

    def draw() -> plots.Figure:
        return plots.critical_difference(
            names,
            ranks,
            cliques,
            difference,
            alpha=analysis.alpha,
            colours=[styles[name]["color"] for name in names],
        )

    caption = (
        "Mean ranks, the best on the left. A bar joins algorithms that Nemenyi's test does not "
        f"separate at α = {analysis.alpha:g}."
    )
    return document.Figure("critical_difference", caption, draw)


def _dataset_blocks(analysis: Analysis, by: str) -> document.Figure:
    """Return the figure of correlations between data sets with their blocks.

    by: "scores" or "deviations", the values that are correlated.
    """
    blocks = analysis.dataset_blocks[by][0]
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


def _iqm(analysis: Analysis) -> document.Figure:
    """Return the figure of interquartile means with intervals, sorted by mean rank.

    Seeds must have been analysed.
    """
    iqm = analysis.seeds["intervals"].iqm
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


def _profiles(analysis: Analysis) -> document.Figure:
    """Return the figure of performance profiles of the tested algorithms of `_drawn_algorithms`.

    Seeds must have been analysed.
    """
    repeats = analysis.study.repeats
    profiles = analysis.seeds["performance_profiles"]
    names = [
        name for name in _drawn_algorithms(analysis) if name in analysis.algorithms
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


def _power(analysis: Analysis) -> document.Figure:
    """Return the figure of the power of Nemenyi's test by numbers of seeds and data sets.

    Seeds must have been analysed.
    """
    power = analysis.seeds["power"]
    repeats = analysis.study.repeats
    frame = pd.DataFrame(power.power["nemenyi"], power.seeds, power.datasets)
    caption = (
        f"Power: probability that a study with the given numbers of {repeats} and data sets "
        f"finds a difference of {power.difference:g} between two algorithms with Nemenyi's "
        f"test at α = {power.alpha:g}, by simulation from the spread in this study. Framed: at "
        f"least {power.target:g}."
    )

    def draw() -> plots.Figure:
        return plots.power(frame, target=power.target, labels=("data sets", repeats))

    return document.Figure("power", caption, draw)


def _variability(
    study: analysis_lib.BenchmarkScores, deviations: pd.DataFrame
) -> document.Figure | None:
    """Return the figure of box plots of deviations within and between runs, or None.

    The figure shows the first `MAX_CURVES` algorithms. None if all deviations within runs, or all
    deviations between runs, are unknown for these algorithms. deviations: the result of
    `variability`.
    """
    names = study.algorithms[:MAX_CURVES]
    kinds = ["within", "between"]
    is_drawn = deviations["algorithm"].isin(names)
    deviations = deviations[is_drawn].set_index("algorithm")
    if not deviations[kinds].notna().any().all():
        return None
    by_algorithm = [study.unit.scale * deviations.loc[[name], kinds] for name in names]
    values = {
        f"{kind} runs": [rows[kind].to_numpy() for rows in by_algorithm]
        for kind in kinds
    }
    unit = f" in {study.unit.name}" if study.unit.name else ""
    caption = (
        "Standard deviation of scores on the data sets: within runs over their last "
        "evaluations, and between runs. Boxes span the quartiles, whiskers all data sets."
    )
    label = f"standard deviation{unit}"
    return document.Figure(
        "variability", caption, lambda: plots.variability(names, values, label=label)
    )


def _curves(analysis: Analysis, metric: str) -> document.Figure | None:
    """Return the figure of a metric over epochs, one panel per data set; None without records.

    The figure shows at most `MAX_PANELS` data sets and the algorithms of `_drawn_algorithms`. A
    panel shows mean ± standard deviation over seeds. If this range leaves [0, 100] %, the panel
    shows medians with a dot per seed, or with ranges if there are too many dots.
    """
    study = analysis.study
    names = _drawn_algorithms(analysis)
    frame, seeds = _by_epoch(study, metric)
    if frame.empty:
        return None
    unit = analysis_lib.unit_of(metric, frame["value"])
    panels = frame["panel"].unique()
    drawn_panels = panels[:MAX_PANELS]
    leaves_range = unit.beyond(frame["value"], frame["std"])
    median_panels = [
        panel for panel in drawn_panels if leaves_range[frame["panel"] == panel].any()
    ]
    frame = frame[frame["panel"].isin(drawn_panels) & frame["line"].isin(names)]
    keys = ["panel", "line", "x"]
    is_drawn = seeds["panel"].isin(median_panels) & seeds["line"].isin(names)
    seeds = seeds.loc[is_drawn, [*keys, "value"]]
    seeds = seeds[_has_all_seeds(seeds)]
    low = frame["value"] - frame["std"].fillna(0)
    frame = frame.assign(low=low, high=2 * frame["value"] - low).set_index(keys)
    ranges = seeds.groupby(keys, observed=True)["value"].agg(["median", "min", "max"])
    has_dots = len(seeds) <= _MAX_DOTS
    if has_dots:
        ranges[["min", "max"]] = math.nan
    ranges = ranges.reset_index().astype({"panel": str, "line": str}).set_index(keys)
    columns = ["value", "low", "high"]
    frame.loc[ranges.index, columns] = ranges.to_numpy()
    frame = frame[columns].mul(unit.scale).reset_index()
    all_styles = plots.styles(study.algorithms)
    styles = {name: all_styles[name] for name in names}
    are_whole_epochs = (frame["x"] % 1 == 0).all()

    def draw_dots(axes: plots.Axes, rows: pd.DataFrame) -> None:
        if are_whole_epochs:  # No tick at epoch 1.5.
            axes.xaxis.get_major_locator().set_params(integer=True)
        points = seeds[seeds["panel"] == rows["panel"].iloc[0]]
        for name, line in points.groupby("line", observed=True) if has_dots else ():
            x, y = line["x"], unit.scale * line["value"]
            colour = styles[name]["color"]
            axes.plot(x, y, "o", color=colour, ms=2.5, mew=0, alpha=0.5)

    label = metric.replace("_", " ").capitalize()
    label += " in %" if unit.scale == 100 else ""
    caption = (
        f"{label} over epochs: mean ± one standard deviation over seeds, or, if that leaves "
        f"[0, 100] %, medians and {'one dot per seed' if has_dots else 'ranges'}, without "
        "diverged seeds. Each panel has its own axis."
        f"{_limits_of_curves(study, num_panels=len(panels), num_curves=len(names))}"
    )

    def draw() -> plots.Figure:
        return plots.curves(frame, styles, ("epoch", label), finish=draw_dots)

    return document.Figure(f"curves_{metric}", caption, draw)


def _limits_of_curves(
    study: analysis_lib.BenchmarkScores, *, num_panels: int, num_curves: int
) -> str:
    """Return the sentence on data sets and algorithms that are not drawn; "" if all are drawn.

    num_panels: number of data sets with records, of which `MAX_PANELS` are drawn. num_curves:
    number of drawn algorithms.
    """
    limits = []
    if num_panels > MAX_PANELS:
        limits.append(f"the first {MAX_PANELS} of {num_panels} data sets")
    if num_curves < len(study.algorithms):
        limits.append(
            f"{num_curves} of {len(study.algorithms)} algorithms, the best mean ranks if ranks "
            "were tested"
        )
    return f" The figure shows {' and '.join(limits)}." if limits else ""


def _by_epoch(
    study: analysis_lib.BenchmarkScores, metric: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (means over seeds, scores of seeds) of a metric by data set and epoch.

    Both frames have the columns panel (data set), line (algorithm), x (epoch) and value; the first
    frame also has std and size (number of seeds), and the second frame also has run, seed and
    condition. Epochs with fewer seeds than another epoch of the line are left out of the first
    frame. For the study's metric, data sets are validation and the study's data sets. For another
    metric, all data sets with records are used.
    """
    chosen = study.evaluations
    wanted = [*dict.fromkeys([results.VALID, *study.datasets])]
    if metric != study.options.metric:
        wanted = list(chosen["dataset"][chosen["metric"] == metric].unique())
    values = _evaluations(study, metric, wanted).dropna(subset="value")
    values = values.rename(columns={"dataset": "panel", "label": "line", "epoch": "x"})
    groups = values.groupby(["panel", "line", "x"], observed=True)["value"]
    frame = groups.agg(value="mean", std="std", size="size").reset_index()
    frame = frame.astype({"panel": str, "line": str})
    # If seeds are missing at an epoch, the mean would jump without a cause in training.
    num_seeds = frame.groupby(["panel", "line"])["size"].transform("max")
    frame = frame[frame["size"] == num_seeds]
    order = lambda names: names.map(wanted.index)
    return frame.sort_values("panel", key=order, kind="stable"), values


def _has_all_seeds(seeds: pd.DataFrame) -> pd.Series:
    """Return a mask of the rows at epochs where a curve has its largest number of seeds.

    A curve is a line in a panel. seeds: one row per seed with the columns panel, line, x and value.
    """
    line = ["panel", "line"]
    sizes = seeds.groupby([*line, "x"], observed=True)["value"].transform("size")
    most = sizes.groupby([seeds[name] for name in line], observed=True).transform("max")
    return sizes == most


def _drawn_algorithms(analysis: Analysis) -> tuple[str, ...]:
    """Return the names of the algorithms that have a curve, at most `MAX_CURVES`.

    If the study has at most `MAX_CURVES` algorithms, all are returned in the study's order.
    Otherwise the algorithms with the best mean ranks are returned, the best first. If ranks were
    not tested, the first algorithms of the study are returned.
    """
    names = analysis.study.algorithms
    best = []
    if len(names) > MAX_CURVES and analysis.nemenyi is not None:
        best = [analysis.algorithms[i] for i in analysis.order]
    return (*best, *(name for name in names if name not in best))[:MAX_CURVES]
