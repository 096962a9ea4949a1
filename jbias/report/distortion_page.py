"""The page and the files of the data-distortion study."""

from collections.abc import Iterator, Sequence

import pandas as pd

from jbias.report import (
    distortion_claims,
    distortion_costs,
    distortion_detail,
    distortion_figures,
    distortion_gaps,
    distortion_missing,
    distortion_places,
    distortion_printed,
    distortion_tables,
    distortion_values,
    distortion_verdicts,
    document,
    measured_made,
    tables,
)

_SECTIONS = {
    "claims": "Which orderings hold",
    "tables": "The paper's tables",
    "figures": "The paper's figures",
    "wrong": "Where errors gather",
    "curves": "Curves of what is hidden",
    "detail": "Every distortion",
    "caveats": "What to keep in mind",
    "costs": "What it cost",
    "made": "What was measured",
    "missing": "What is missing",
}
ALWAYS = f"""\
Numbers need not be equal to the printed ones: batches, masks, precision and the filling of \
occluders differ in the released code. Orderings are what can be compared.
Black hides with pixels of value 0, as the paper says; its released code hides with the mean \
colour.
iOcclusion hides the most salient pixels, as the paper says; its released code draws for each \
image whether the most or the least salient are hidden.
FMix masks here are isotropic; those of the released code vary along one axis alone.
The DI index is above 0 by chance, and more so of few errors and few seeds: the class that \
errors gather in is chosen by them. Rows "by chance" say how much.
The DI index counts every wrong prediction; the released code counts a class once a batch.
The paper has no number of CutMix on ImageNet, and one network a method there, so no deviation.
The printed Table 4 does not say here which data set it is of; it is set beside \
{distortion_printed.UNNAMED}.
""".splitlines()


def report(
    study: distortion_values.Study,
    printed: distortion_tables.Printed,
    *,
    alpha: float,
    notes: Sequence[str] = (),
    runs: Sequence[distortion_costs.Run] = (),
) -> document.Report:
    """Gives the page; the last of its caveats always stand there."""
    claims = distortion_claims.frame(study, printed, alpha=alpha)
    made = list(_tables(study, printed, claims, alpha, runs))
    caveats = [*distortion_missing.lines(study), *notes]
    caveats += distortion_gaps.caveats(study.groups)
    caveats += distortion_tables.caveats(study)
    caveats += distortion_places.caveats(study.groups)
    caveats += [*distortion_verdicts.caveats(claims, alpha), *ALWAYS]
    empty = document.Text(list(distortion_missing.empty(study)))
    return document.Report(
        title="jbias data distortion",
        heading="What distortion does to analysis",
        subtitle="Interference, occlusion and mixed-sample training, jbias report",
        answer=distortion_verdicts.headline(claims, alpha),
        facts=_facts(study, claims),
        sections=document.sections(
            _SECTIONS,
            document.figures(distortion_figures.of(study)),
            made,
            [("tables", empty), ("caveats", document.Text(caveats))],
        ),
        results=_results(study, made, caveats),
        source="The study is that of Marcu and Prügel-Bennett, On the Effects of Artificial "
        "Data Modification, ICML 2022; numbers of tables and figures are those of that "
        "paper.",
    )


def _tables(
    study, printed, claims: pd.DataFrame, alpha: float, runs
) -> Iterator[tuple[str, tables.Table]]:
    found = [
        *(("claims", table) for table in distortion_verdicts.of(claims, alpha)),
        *(("tables", table) for table in distortion_tables.of(study, printed)),
        ("detail", distortion_detail.indices(study)),
        ("detail", distortion_gaps.table(study.groups)),
        ("detail", distortion_detail.digits(study)),
        *(("costs", table) for table in distortion_costs.of(study, runs)),
        ("made", distortion_detail.groups(study)),
        ("made", measured_made.provenance(study.networks)),
        ("missing", distortion_missing.table(study)),
    ]
    return ((section, table) for section, table in found if table is not None)


def _facts(study: distortion_values.Study, claims: pd.DataFrame) -> dict[str, object]:
    keys = list(study.groups)
    counts = sorted({len(group.seeds) for group in study.groups.values()})
    tested = int(claims["here_p"].notna().sum()) if len(claims) else 0
    return {
        "Networks": len(study.networks),
        "Methods": len({key.method for key in keys}),
        "Data sets": len({key.data for key in keys}),
        "Seeds each": "–".join(map(str, dict.fromkeys((counts[0], counts[-1])))),
        "Orderings tested": tested,
    }


def _results(study, made, caveats: list[str]) -> dict:
    """Gives what results.json says beside the answer."""
    return {
        "groups": [
            {**key._asdict(), "seeds": list(group.seeds)}
            for key, group in study.groups.items()
        ],
        "caveats": caveats,
        "iocclusion": {"rule": distortion_gaps.RULE, "errors": distortion_gaps.ERRORS},
        "tables": {table.name: table.data for _, table in made},
    }
