"""Makes all parts of a report and writes them."""

import json
import pathlib
from collections.abc import Collection, Iterator

from jbias.report import (
    content,
    content_seeds,
    content_selection,
    content_tests,
    drawn,
    figures,
    methods,
    page,
    sources,
    summary,
    tables,
    words,
)
from jbias.report import evidence as evidence_lib
from jbias.report import options as options_lib
from jbias.report import study as study_lib


def report(
    study: study_lib.Study, options: options_lib.Options, out: pathlib.Path
) -> Iterator[str]:
    """Writes the report; gives lines that sum it up. Nothing is written on an error."""
    reference = options.reference
    if reference and reference not in study.algorithms:
        raise ValueError(
            f"--reference: must be an algorithm, got {reference!r}: "
            f"{', '.join(study.algorithms)}"
        )
    analysis = study_lib.analyse(study, options.alpha, strict=options.strict)
    evidence = evidence_lib.gather(study, analysis, options)
    caveats = words.caveats(study, analysis, evidence)
    answer, basis = words.headline(study, analysis, reference, evidence)
    told, cited = methods.paragraph(study, analysis, evidence)
    varying = None
    if study.is_runs:
        varying = content_selection.variability(study, options.last)
    made = _tables(study, analysis, evidence, varying, options)
    shown = {table.name: table for table in made}
    files: dict[str, str | bytes] = {}
    for name, table in shown.items():
        files[f"tables/{name}.csv"] = tables.to_csv(table)
        files[f"tables/{name}.tex"] = tables.to_latex(table)
        files[f"tables/{name}.md"] = tables.to_markdown(table)
        files[f"tables/{name}.parquet"] = tables.to_parquet(table)
    inline = {}
    for name, section, figure, caption in drawn.of(study, analysis, evidence, varying):
        files[f"figures/{name}.svg"] = svg = figures.to_svg(figure)
        files[f"figures/{name}.pdf"] = figures.to_pdf(figure)
        inline[name] = (section, svg, caption)
    files["index.html"] = files["results.json"] = ""
    files["methods.md"] = methods.markdown(told)
    files["methods.bib"] = bib = methods.bib(cited)
    files["results.json"] = summary.summary(
        study,
        analysis,
        shown,
        answer=(answer, basis),
        caveats=caveats,
        methods=told,
        files=sorted(files),
    )
    files["index.html"] = page.render(
        study,
        analysis,
        shown,
        inline,
        answer=(answer, basis),
        paragraphs=_paragraphs(study, analysis, evidence),
        caveats=caveats,
        methods=(told, bib),
    )
    _clear(out, files)
    page.write(out, files)
    left_out = (f"left out of the tests: {n} ({why})" for n, why in analysis.left_out)
    return iter([answer, basis, *left_out, f"written: {out / 'index.html'}"])


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


def _paragraphs(study, analysis, evidence) -> dict[str, list[str]]:
    """Gives what is said in words at the head of a section."""
    told = {"tests": words.tests(analysis)}
    if evidence is not None:
        told["seeds"] = content_seeds.stability_words(evidence, is_runs=study.is_runs)
        told["power"] = content_seeds.power_words(evidence)
    return told


def _clear(out: pathlib.Path, files: Collection[str]) -> None:
    """Removes what an earlier report wrote to the folder and this one does not."""
    for name in _earlier(out / "results.json"):
        inside = name.startswith(("tables/", "figures/")) and ".." not in name
        if inside and name not in files:
            (out / name).unlink(missing_ok=True)


def _earlier(path: pathlib.Path) -> list[str]:
    try:
        return [str(name) for name in json.loads(path.read_text())["files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
