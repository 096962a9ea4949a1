"""The page and the files of the report of networks trained under chosen shifts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jbias.report import (
    document,
    shift_compared,
    shift_drops,
    shift_figures,
    shift_lists,
    shift_made,
    shift_printed,
    shift_ranks,
    shift_read,
    shift_remedies,
    shift_tables,
    shift_verdicts,
    tables,
)

_SECTIONS = {
    "verdicts": "Which attributes hurt",
    "remedies": "What remedies close",
    "levels": "Drops over levels",
    "tables": "The paper's tables",
    "ranks": "Ranks in and out of distribution",
    "learning": "The first iterations",
    "probabilities": "Probabilities of the right class",
    "sizes": "Sizes of data",
    "caveats": "What to keep in mind",
    "made": "What was trained",
}


class Options(NamedTuple):
    """What the user asked for."""

    tau: float
    alpha: float
    reference: str
    draws: int
    seed: int


class _Found(NamedTuple):
    """All that a report tells."""

    study: shift_read.Study
    draws: shift_drops.Draws
    candidates: Sequence[shift_verdicts.Candidate]
    remedies: Sequence[shift_remedies.Remedy]
    agreements: Sequence[shift_ranks.Agreement]
    realised: Sequence[dict]
    caveats: Sequence[str]


def report(
    study: shift_read.Study, printed: shift_printed.Printed, options: Options
) -> document.Report:
    """Gives the page."""
    found = _found(study, printed, options)
    drawn = shift_figures.of(study, found.candidates, found.draws)
    made = [pair for pair in _tables(found, printed) if pair[1] is not None]
    return document.Report(
        title="jbias shifts",
        heading="Networks under chosen shifts",
        subtitle="Marginal, conditional and joint shifts of attributes, jbias report",
        answer=shift_compared.headline(found.candidates, study, options.alpha),
        facts=_facts(study),
        sections=document.sections(
            _SECTIONS,
            document.figures(drawn),
            made,
            [("caveats", document.Text(found.caveats))],
            (("made", one) for one in shift_made.folded(found.realised)),
        ),
        results=_results(found, made, options),
        source="Shifts are those of Hu, Sang, Wang and Jiang, Understanding and Testing "
        "Generalization of Deep Networks on Out-of-Distribution Data, 2021; numbers of "
        "tables and figures are those of that paper.",
    )


def _found(study: shift_read.Study, printed, options: Options) -> _Found:
    draws = shift_drops.Draws(options.draws, options.seed)
    how = dict(tau=options.tau, alpha=options.alpha)
    agreements = list(shift_ranks.of(study.cells, draws))
    theirs = {shift_printed.data_of(cell) for cell in study.cells}
    agreements += [
        one
        for one in shift_ranks.of_printed(printed.table1)
        if agreements or one.data in theirs
    ]
    against = options.reference
    remedies = shift_remedies.of(study.cells, draws, reference=against)
    alone = shift_remedies.caveats(study.cells, remedies, against)
    told = [f"Selection: {study.rule}.", *study.notes]
    if study.oracle:
        told[0] += " In and out of distribution are of different evaluations then."
    return _Found(
        study=study,
        draws=draws,
        candidates=shift_verdicts.of(study.cells, draws, **how),
        remedies=remedies,
        agreements=agreements,
        realised=list(shift_made.realised(study.cells)),
        caveats=[
            *told,
            *alone,
            *shift_made.caveats(study.cells),
            *shift_compared.ALWAYS,
        ],
    )


def _tables(found: _Found, printed) -> Iterator[tuple[str, tables.Table | None]]:
    yield "verdicts", shift_lists.verdicts(found.candidates)
    yield "verdicts", shift_lists.kinds(found.candidates)
    yield "remedies", shift_compared.remedies(found.remedies)
    yield "levels", shift_lists.levels(found.candidates)
    for table in shift_tables.of(found.study.cells, printed, found.draws):
        yield "tables", table
    yield "ranks", shift_compared.ranks(found.agreements)
    yield "made", shift_made.runs(found.study.cells)


def _facts(study: shift_read.Study) -> dict[str, object]:
    cells = study.cells
    counts = sorted({len(cell.seeds) for cell in cells})
    return {
        "Recipes": len({cell.recipe for cell in cells}),
        "Attributes": len({(cell.recipe.data, cell.attribute) for cell in cells}),
        "Levels": len({cell.level for cell in cells}),
        "Networks": sum(len(cell.seeds) for cell in cells),
        "Seeds each": "–".join(map(str, dict.fromkeys((counts[0], counts[-1])))),
    }


def _results(found: _Found, made, options: Options) -> dict:
    """Gives what results.json says beside the answer."""
    return {
        "selection": found.study.rule,
        "options": options._asdict(),
        "verdicts": [
            {
                **one.recipe._asdict(),
                "attribute": one.attribute,
                "verdict": one.verdict,
                "kind": one.worst.kind if one.worst else None,
            }
            for one in found.candidates
        ],
        "caveats": found.caveats,
        "realised": found.realised,
        "tables": {table.name: table.data for _, table in made},
    }
