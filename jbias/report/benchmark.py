"""The report that compares algorithms: from scores to its page."""

import json
from collections.abc import Iterator

from jbias.report import (
    content,
    content_seeds,
    content_selection,
    content_tests,
    document,
    drawn,
    methods,
    sources,
    summary,
    tables,
    terms,
    words,
)
from jbias.report import evidence as evidence_lib
from jbias.report import options as options_lib
from jbias.report import study as study_lib

_SECTIONS = {
    "scores": "Scores",
    "tests": "What is significant",
    "seeds": "How stable",
    "power": "How much power",
    "caveats": "What to keep in mind",
    "shape_bias": "Shape bias",
    "selection": "Selection",
    "curves": "Over epochs",
    "runs": "Single runs",
    "provenance": "What was run",
    "methods": "Methods, to paste",
    "terms": "Terms",
}
# Which tables stand in which section.
_PLACES = {
    **dict.fromkeys(("scores", "reference"), "scores"),
    **dict.fromkeys(("omnibus", "strict", "nemenyi", "posthoc"), "tests"),
    **dict.fromkeys(("control", "ranks"), "tests"),
    **dict.fromkeys(("stability", "differences"), "seeds"),
    **dict.fromkeys(("validation", "selection_tests", "selections"), "selection"),
    "variability": "selection",
    "power": "power",
    "shape_bias": "shape_bias",
    "runs": "runs",
    **dict.fromkeys(("settings", "costs", "provenance", "data"), "provenance"),
}


def report(study: study_lib.Study, options: options_lib.Options) -> document.Report:
    """Tests the scores, and gives the page of what was found."""
    reference = options.reference
    if reference and reference not in study.algorithms:
        raise ValueError(
            f"--reference: must be an algorithm, got {reference!r}: "
            f"{', '.join(study.algorithms)}"
        )
    analysis = study_lib.analyse(study, options.alpha, strict=options.strict)
    evidence = evidence_lib.gather(study, analysis, options)
    caveats = words.caveats(study, analysis, evidence)
    told, cited = methods.paragraph(study, analysis, evidence)
    bib = methods.bib(cited)
    varying = None
    if study.is_runs:
        varying = content_selection.variability(study, options.last)
    made = {t.name: t for t in _tables(study, analysis, evidence, varying, options)}
    metric = study.metric.replace("_", " ").capitalize()
    names = tables.join(study.algorithms)
    if len(study.algorithms) > 6:
        names = f"{len(study.algorithms)} algorithms"
    return document.Report(
        title="jbias report",
        heading=names,
        subtitle=f"{metric} on {len(study.datasets)} data sets, jbias report",
        answer=words.headline(study, analysis, reference, evidence),
        facts=_facts(study, analysis),
        sections=document.sections(
            _SECTIONS,
            _paragraphs(study, analysis, evidence),
            document.figures(drawn.of(study, analysis, evidence, varying)),
            ((_PLACES[name], table) for name, table in _ordered(made)),
            [
                ("caveats", document.Text(caveats)),
                ("provenance", document.Text(f"Made from {study.source}.")),
                *(("provenance", config) for config in _configs(study)),
                ("methods", document.Text(told)),
                ("methods", document.Folded("Works cited, as BibTeX", bib)),
            ],
            [("terms", document.Terms(terms.TERMS))] if evidence is not None else [],
        ),
        results=summary.results(study, analysis, made, caveats=caveats, methods=told),
        files={"methods.md": methods.markdown(told), "methods.bib": bib},
    )


def _ordered(made: dict[str, tables.Table]) -> list[tuple[str, tables.Table]]:
    """Gives the tables in the order in which they stand."""
    order = list(_PLACES)
    return sorted(made.items(), key=lambda one: order.index(one[0]))


def _configs(study: study_lib.Study) -> Iterator[document.Folded]:
    for run in study.runs:
        if run.config is not None:
            told = json.dumps(dict(run.config), indent=1, ensure_ascii=False)
            yield document.Folded(f"All settings of {run.workdir}", told)


def _facts(study: study_lib.Study, analysis: study_lib.Analysis) -> dict[str, object]:
    facts: dict[str, object] = {
        "Algorithms": len(study.algorithms),
        "Data sets": len(study.datasets),
        "In the tests": f"{len(analysis.algorithms)} × {len(analysis.datasets)}"
        if analysis.friedman is not None
        else "none",
        "Seeds each" if study.is_runs else "Runs each": words.seed_words(study),
        "Selection": study.selection.replace("_", " "),
    }
    sizes = study.values.dropna(subset="n").groupby("dataset")["n"].max()
    if len(sizes):
        facts["Test images"] = f"{int(sizes.sum()):,}"
    if study.diverged is not None and len(study.diverged):
        facts["Diverged seeds"] = len(study.diverged)
    return facts


def _tables(study, analysis, evidence, varying, options) -> Iterator[tables.Table]:
    yield content.score_table(study, analysis, evidence)
    if options.reference:
        yield content.reference_table(study, analysis, options.reference)
    if evidence is not None:
        yield from _tested(study, analysis, evidence)
    yield content.runs_table(study)
    if not study.is_runs:
        return
    optional = (
        content.validation_table(study),
        content.shape_bias_table(study),
        content_selection.variability_table(study, varying),
        sources.settings_table(study),
        sources.costs_table(study),
    )
    yield from (table for table in optional if table is not None)
    yield content_selection.selection_test_table(study, analysis)
    yield content_selection.selection_table(study)
    yield from sources.provenance_tables(study)


def _tested(study, analysis, evidence) -> Iterator[tables.Table]:
    """Gives the tables that exist where something was tested."""
    yield content_tests.omnibus_table(analysis, evidence)
    yield content_tests.nemenyi_table(analysis)
    yield content_tests.posthoc_table(analysis, evidence)
    yield content_tests.rank_table(study, analysis)
    if evidence.control is not None:
        yield content_tests.control_table(evidence, analysis.alpha)
    strict = content_tests.settings_of_tests(study, analysis)
    if strict is not None:
        yield strict
    if evidence.runs is not None:
        yield content_seeds.stability_table(study, evidence)
        yield content_seeds.differences_table(study, analysis, evidence)
        yield content_seeds.power_table(study, evidence)


def _paragraphs(study, analysis, evidence) -> Iterator[tuple[str, document.Text]]:
    """Gives what is said in words at the head of a section."""
    told = {"tests": words.tests(analysis)}
    if evidence is not None:
        told["seeds"] = content_seeds.stability_words(evidence, is_runs=study.is_runs)
        told["power"] = content_seeds.power_words(evidence)
    for section, paragraphs in told.items():
        for text in paragraphs:
            yield section, document.Text(text)
