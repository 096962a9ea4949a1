"""The page that compares algorithms: its sections, the table at its top, and results.json.

Ranks were tested if `Analysis.friedman` is not None, and seeds were analysed if `Analysis.runs` is
not None.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from jbias import errors
from jbias.report import document, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import (
    benchmark_scores,
    bibliography,
    comparison_section,
    curve_section,
    few_seeds,
    grids,
    power_section,
    prose,
    rank_test_section,
    recorded_section,
    run_provenance_section,
    score_section,
    seed_sections,
    selection_section,
    similar_sets_section,
    stability_section,
    until_decided_section,
)

Analysis = analysis_lib.Analysis
Blocks = document.Blocks


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class BenchmarkResults:
    """Data that the sections of the page show, computed once."""

    analysis: Analysis
    # The result of `selection_section.variability`; None for a file of scores.
    deviations: pd.DataFrame | None
    curves: Sequence[document.Figure | None]
    seed_tests: Sequence[document.Block | None]  # Of one or two data sets, else ().
    few_seeds: Sequence[document.Block | None]
    until_decided: Sequence[document.Block | None]
    grid: Sequence[document.Block | None]
    bias_table: tables.Table | None
    biases: Mapping[str, Mapping[str, str]]  # See `score_section.shape_biases`.
    methods: prose.Methods
    bib: str  # BibTeX entries of the cited works.


def report(study: benchmark_scores.BenchmarkScores) -> document.Report:
    """Return the report of a study: its tests, tables, figures, page and results.json.

    Raises ValueError if --reference is not an algorithm, for --paired-seeds with more than two data
    sets or with different seeds, and for --blocks above the number of tested data sets.
    """
    _check_options(study)
    computed = _compute(study)
    analysis = computed.analysis
    sections = _sections(computed)
    answer = prose.answer(analysis, seed_sections.answer(analysis))
    bias_sentences = prose.shape_biases(computed.biases)
    num_algorithms = len(study.algorithms)
    heading = tables.join(study.algorithms)
    if num_algorithms > 6:
        heading = tables.count(num_algorithms, "algorithm")
    metric = study.options.metric.replace("_", " ").capitalize()
    demonstration = prose.demonstration(study)
    remarks = [*([demonstration] if demonstration else []), *study.layout_notes]
    methods = computed.methods
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
        sections=sections,
        results=_results(analysis, sections, methods),
        files={
            "methods.md": prose.markdown(
                methods.paragraph, methods.other_sections, methods.papers
            ),
            "methods.bib": computed.bib,
        },
    )


def _compute(study: benchmark_scores.BenchmarkScores) -> BenchmarkResults:
    """Return the results that the sections show; long computations run in parallel."""
    tested = analysis_lib.analyse(study)
    # The tasks release the GIL for most of their time, so threads run them in parallel.
    with analysis_lib.worker_threads() as pool:
        evidence = pool.submit(analysis_lib.with_evidence, tested)
        curves = pool.submit(lambda: [*curve_section.blocks(tested)])
        deviations = pool.submit(
            lambda: selection_section.variability(study) if study.is_runs else None
        )
        few_seeds_blocks = pool.submit(lambda: [*few_seeds.blocks(study)])
        until_decided = pool.submit(
            lambda: [
                *recorded_section.blocks(study),
                *until_decided_section.blocks(study),
            ]
        )
        grid_blocks = pool.submit(lambda: [*grids.blocks(study)])
        warnings = pool.submit(lambda: study.warnings)
        warnings.result()  # Now cached by the study.
        analysis = evidence.result()
        bias_table = score_section.shape_bias_table(study) if study.is_runs else None
        methods = prose.methods(analysis, seed_sections.methods(analysis))
        return BenchmarkResults(
            analysis=analysis,
            deviations=deviations.result(),
            curves=curves.result(),
            seed_tests=[*seed_sections.blocks(analysis)],
            few_seeds=few_seeds_blocks.result(),
            until_decided=until_decided.result(),
            grid=grid_blocks.result(),
            bias_table=bias_table,
            biases=score_section.shape_biases(study, bias_table),
            methods=methods,
            bib=bibliography.bibtex(methods.keys),
        )


def _check_options(study: benchmark_scores.BenchmarkScores) -> None:
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
    """Return the entries of the table at the top of the page, by label, such as {"Algorithms": 5}.

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


def _caveats(computed: BenchmarkResults) -> Blocks:
    """Yield the list of what to keep in mind."""
    yield document.Text(prose.notes(computed.analysis))


def _runs(computed: BenchmarkResults) -> Blocks:
    """Yield the table of the scores of single runs; nothing for a file of means."""
    study = computed.analysis.study
    if not study.is_of_means:
        yield score_section.runs_table(study)


def _methods(computed: BenchmarkResults) -> Blocks:
    """Yield the methods for a paper; all but the first paragraph is folded."""
    methods = computed.methods
    yield document.Text(methods.paragraph)
    if methods.other_sections:
        yield document.Folded("Methods of the other sections", methods.other_sections)
    if methods.papers:
        yield document.Folded("Papers of the methods and data sets", methods.papers)
    yield document.Folded("Works cited, as BibTeX", computed.bib)


def _folded(
    name: str, title: str, make: Callable[[BenchmarkResults], Blocks]
) -> document.SectionMaker:
    """Return a section that is closed at first, and left out on paper while it is closed."""
    return document.SectionMaker(name, title, make, is_folded=True, is_printed=False)


SECTIONS = (
    document.SectionMaker(
        "scores", "Scores", lambda x: score_section.blocks(x.analysis, x.biases)
    ),
    document.SectionMaker(
        "tests",
        "What is significant",
        lambda x: rank_test_section.blocks(x.analysis, x.seed_tests),
        is_folded=True,
    ),
    _folded(
        "pairs",
        "Every pair on its own",
        lambda x: comparison_section.blocks(x.analysis),
    ),
    _folded(
        "alike", "Similar test sets", lambda x: similar_sets_section.blocks(x.analysis)
    ),
    _folded("seeds", "Stability", lambda x: stability_section.blocks(x.analysis)),
    _folded("few_seeds", "Results with fewer seeds", lambda x: x.few_seeds),
    _folded(
        "until_decided", "Decided by now, and seeds needed", lambda x: x.until_decided
    ),
    _folded("grid", "Methods at every value of a setting", lambda x: x.grid),
    _folded("power", "Power", lambda x: power_section.blocks(x.analysis)),
    _folded("caveats", "What to keep in mind", _caveats),
    _folded("shape_bias", "Shape bias", lambda x: [x.bias_table]),
    _folded(
        "selection",
        "Selection",
        lambda x: selection_section.blocks(x.analysis, x.deviations),
    ),
    _folded("curves", "Over epochs", lambda x: x.curves),
    _folded("runs", "Single runs", _runs),
    _folded(
        "provenance",
        "What was run",
        lambda x: run_provenance_section.blocks(x.analysis.study),
    ),
    _folded("methods", "Methods, for a paper", _methods),
)


def _sections(computed: BenchmarkResults) -> list[document.Section]:
    """Return the sections with their blocks; "tests" is open if seeds were tested."""
    makers = SECTIONS
    if computed.seed_tests:
        makers = [
            dataclasses.replace(
                maker, is_folded=maker.is_folded and maker.id != "tests"
            )
            for maker in makers
        ]
    return document.make_sections(makers, computed)


# The order of tables in results.json, kept for equal files; tables with `in_results` that are not
# listed follow in the order of the page.
_FIRST_IN_RESULTS = (
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
    analysis: Analysis,
    sections: Sequence[document.Section],
    methods: prose.Methods,
) -> Mapping[str, Any]:
    """Return the entries of results.json by key, without headline, basis, warnings and files.

    `document.render` adds the missing entries. Keys:
      source (text), read_as (list of lines), metric, larger_is_better, selection, selection_rule,
        algorithms and datasets (names), alpha;
      table: a frame, `Analysis.cells`;
      tested: a dict of algorithms, datasets, left_out (dicts of name and reason) and why_not;
      the keys of `_RANK_TESTS`, see `_rank_tests`; None if ranks were not tested;
      seed_tests: see `seed_sections.results`;
      caveats and trained_on: lists; twins: dicts of names and why;
      at_chance: see `BenchmarkScores.at_chance`; derived: dicts of kind, name, relation and
        sources;
      methods, methods_of_other_sections: the paragraphs of `methods`;
      the names of the tables of `sections` with `in_results`: frames with the rows of the CSV
        files.
    Only a page of runs has the keys shape_bias and diverged (frames), other_selections (frames by
    name of the rule), runs (dicts of workdir and label) and papers (a paragraph of `methods`).

    sections: the sections of the page. methods: paragraphs on methods.
    """
    study = analysis.study
    is_tested = analysis.friedman is not None
    shown_tables = {
        block.name: block
        for section in sections
        for block in section.blocks
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
    }
    for name in dict.fromkeys((*_FIRST_IN_RESULTS, *shown_tables)):
        if name in shown_tables and shown_tables[name].in_results:
            assert name not in tree, f"results.json has two entries {name}"
            tree[name] = shown_tables[name].data
    if study.is_runs:
        bias_table = shown_tables.get("shape_bias")
        tree["shape_bias"] = bias_table.data if bias_table else []
        tree["diverged"] = study.diverged
        tree["other_selections"] = {
            name: study.cells_of(values) for name, values in study.values_by_rule
        }
        tree["runs"] = [
            {"workdir": run.workdir, "label": run.label} for run in study.runs
        ]
        tree["papers"] = methods.papers
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
