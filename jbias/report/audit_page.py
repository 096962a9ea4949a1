"""The page and the files of an audit."""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Sequence

import pandas as pd

from jbias.report import (
    audit_figures,
    audit_tables,
    audit_words,
    audited,
    document,
    tables,
)

_SECTIONS = {
    "found": "What was found",
    "ranked": "Which attributes hurt",
    "curves": "By level",
    "flips": "Images that flip",
    "likelihood": "How probable the right class is",
    "groups": "Group by group",
    "caveats": "What to keep in mind",
}


def write(
    every: Sequence[audited.Audited], out: pathlib.Path, told: Sequence[str] = ()
) -> Iterator[str]:
    """Writes a page for each model, and one over several; gives lines that sum it up.

    told: what else a reader must know, such as which networks were left out.
    """
    reports = [report(found, told) for found in every]
    if len(every) == 1:
        return iter([*reports[0].answer, document.write(reports[0], out)])
    names = _folders(every)
    for one, name in zip(reports, names, strict=True):
        document.write(one, out / "models" / name)
    written = document.write(_over(every, names, told), out)
    return iter([*(one.answer[0] for one in reports), written])


def report(found: audited.Audited, told: Sequence[str]) -> document.Report:
    """Gives the page of one model."""
    figures = (
        (section, document.Figure(_plain(name), caption, fig))
        for name, section, fig, caption in audit_figures.of(found)
    )
    shown = (
        (section, dataclasses.replace(table, name=_plain(table.name)))
        for section, table in audit_tables.of(found)
    )
    findings = list(audit_words.findings(found))
    caveats = [*told, *audit_words.made_of(found)]
    return document.Report(
        title=f"jbias audit: {found.model}",
        heading=found.model,
        subtitle=f"Audit on {found.dataset}, jbias report",
        answer=audit_words.answer(found),
        facts=_facts(found),
        sections=document.sections(
            _SECTIONS,
            [("found", document.Text(findings))],
            figures,
            shown,
            [("caveats", document.Text(caveats))],
        ),
        results=_results(found, findings, caveats),
        frames={
            "curves": audit_tables.curves(found),
            "cells": audit_tables.cells(found),
            "flips": audit_tables.flips(found),
        },
    )


def _facts(found: audited.Audited) -> dict[str, object]:
    return {
        "Networks": len(found.networks),
        "Images": f"{len(found.label):,}",
        "Attributes": len(found.candidates),
        "Accuracy": f"{audit_words.points(found.correct.mean())} %",
        "Threshold": f"{audit_words.points(found.tau)} points",
    }


def _over(every, names, told) -> document.Report:
    """The page over several models, with the attribute that hurts each the most."""
    trees = [
        {
            "model": found.model,
            "folder": f"models/{name}",
            "bugs": [one.name for one in found.bugs],
        }
        for found, name in zip(every, names, strict=True)
    ]
    pages = {tree["model"]: f"{tree['folder']}/index.html" for tree in trees}
    with_bugs = sum(bool(found.bugs) for found in every)
    return document.Report(
        title="jbias audit",
        heading=f"{len(every)} audited models",
        subtitle=f"Audit on {every[0].dataset}, jbias report",
        answer=(
            f"{with_bugs} of {len(every)} models have a bug.",
            "Each model is tested by itself; p-values are adjusted within a model alone.",
        ),
        facts={"Models": len(every), "Attributes": len(every[0].candidates)},
        sections=[
            document.Section(
                "models", "Models", [_models(every), document.Links(pages)]
            ),
            document.Section("caveats", "What to keep in mind", [document.Text(told)]),
        ],
        results={"models": trees, "missing": list(told)},
        source="Each model has a page of its own.",
    )


def _models(every: Sequence[audited.Audited]) -> tables.Table:
    """Each model with what hurts it, and what comes first in its ranking."""
    rows = []
    for found in every:
        first = next((one for one in found.candidates if one.kind), None)
        cells = ("–", "–", "–")
        if first:
            cells = (first.name, first.kind, audit_words.interval(first))
        bugs = ", ".join(one.name for one in found.bugs) or "none"
        accuracy = audit_words.points(found.correct.mean())
        rows.append((found.model, str(len(found.networks)), accuracy, bugs, *cells))
    head = ("model", "networks", "accuracy, %", "bugs", "first", "kind", "drop, points")
    return tables.Table(
        name="models",
        caption="Each model with its bugs, and the attribute that is first in its ranking,"
        " with its drop at the extreme level, [95 % interval].",
        head=head,
        rows=tuple(rows),
        data=pd.DataFrame(rows, columns=head),
    )


def _results(found: audited.Audited, findings, caveats: Sequence[str]) -> dict:
    """Gives what results.json says beside the answer."""
    return {
        "model": found.model,
        "networks": found.networks,
        "reference": found.reference,
        "dataset": found.dataset,
        "images": len(found.label),
        "accuracy": float(found.correct.mean()),
        "tau": found.tau,
        "alpha": found.alpha,
        "draws": found.draws,
        "seed": found.seed,
        "bugs": [one.name for one in found.bugs],
        "findings": findings,
        "ranked": audit_tables.ranked(found).data,
        "curves": audit_tables.curves(found),
        "flips": audit_tables.flips(found),
        "caveats": caveats,
    }


def _folders(every: Sequence[audited.Audited]) -> list[str]:
    """A folder's name for each model, all different."""
    names = [_plain(found.model) for found in every]
    return [
        name if names.count(name) == 1 else f"{name}-{number}"
        for number, name in enumerate(names, start=1)
    ]


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
