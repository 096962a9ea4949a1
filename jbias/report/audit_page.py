"""The page and the files of an audit."""

import json
import math
import pathlib
import re
from collections.abc import Iterator, Sequence

import pandas as pd

from jbias.report import (
    audit_figures,
    audit_tables,
    audit_words,
    audited,
    figures,
    page,
    tables,
)

_SECTIONS = (
    ("found", "What was found"),
    ("ranked", "Which attributes hurt"),
    ("curves", "By level"),
    ("flips", "Images that flip"),
    ("likelihood", "How probable the right class is"),
    ("groups", "Group by group"),
    ("caveats", "What to keep in mind"),
)
_FOOTER = (
    "The tables lie beside this page as CSV and LaTeX (<code>tables/</code>), every level"
    " in <code>tables/curves.csv</code>, every group in <code>tables/cells.csv</code>, the"
    " figures as SVG, PDF and PNG (<code>figures/</code>), and all of it in"
    " <code>results.json</code>."
)


def write(
    every: Sequence[audited.Audited], out: pathlib.Path, told: Sequence[str] = ()
) -> Iterator[str]:
    """Writes a page for each model, and one over several; gives lines that sum it up.

    told: what else a reader must know, such as which networks were left out.
    """
    if len(every) == 1:
        page.write(out, _files(every[0], told))
        return iter([*audit_words.answer(every[0]), f"written: {out / 'index.html'}"])
    names = _folders(every)
    for found, name in zip(every, names, strict=True):
        page.write(out / "models" / name, _files(found, told))
    page.write(out, _over(every, names, told))
    lines = [audit_words.answer(found)[0] for found in every]
    return iter([*lines, f"written: {out / 'index.html'}"])


def _files(found: audited.Audited, told: Sequence[str]) -> dict[str, str | bytes]:
    """All files of one model."""
    bodies = {name: "" for name, _ in _SECTIONS}
    files: dict[str, str | bytes] = {}
    for name, section, fig, caption in audit_figures.of(found):
        place = f"figures/{_plain(name)}"
        files[f"{place}.svg"] = svg = figures.to_svg(fig)
        files[f"{place}.pdf"] = figures.to_pdf(fig)
        files[f"{place}.png"] = figures.to_png(fig)
        bodies[section] += page.figure(_plain(name), svg, caption)
    for section, table in audit_tables.of(found):
        files[f"tables/{_plain(table.name)}.csv"] = tables.to_csv(table)
        files[f"tables/{_plain(table.name)}.tex"] = tables.to_latex(table)
        bodies[section] += tables.to_html(table)
    for name, frame in (
        ("curves", audit_tables.curves(found)),
        ("cells", audit_tables.cells(found)),
        ("flips", audit_tables.flips(found)),
    ):
        files[f"tables/{name}.csv"] = frame.to_csv(index=False, lineterminator="\n")
    answer = audit_words.answer(found)
    bodies["found"] = page.points(list(audit_words.findings(found)))
    caveats = [*told, *audit_words.made_of(found)]
    bodies["caveats"] = page.points(caveats)
    files["results.json"] = _summary(found, answer, caveats)
    files["index.html"] = page.document(
        f"jbias audit: {found.model}",
        heading=found.model,
        under=f"Audit on {found.dataset}, jbias report",
        answer=answer,
        facts=_facts(found),
        sections=[(name, title, bodies[name]) for name, title in _SECTIONS],
        footer=_FOOTER,
    )
    return files


def _facts(found: audited.Audited) -> dict[str, object]:
    return {
        "Networks": len(found.networks),
        "Images": f"{len(found.label):,}",
        "Attributes": len(found.candidates),
        "Accuracy": f"{audit_words.points(found.correct.mean())} %",
        "Threshold": f"{audit_words.points(found.tau)} points",
    }


def _over(every, names, told) -> dict[str, str | bytes]:
    """The page over several models, with the attribute that hurts each the most."""
    trees = [
        {
            "model": found.model,
            "folder": f"models/{name}",
            "bugs": [one.name for one in found.bugs],
        }
        for found, name in zip(every, names, strict=True)
    ]
    table = _models(every)
    links = "".join(
        f'<li><a href="{tables.escape(tree["folder"])}/index.html">'
        f"{tables.escape(tree['model'])}</a></li>"
        for tree in trees
    )
    with_bugs = sum(bool(found.bugs) for found in every)
    answer = (
        f"{with_bugs} of {len(every)} models have a bug.",
        "Each model is tested by itself; p-values are adjusted within a model alone.",
    )
    tree = {"headline": answer[0], "models": trees, "missing": list(told)}
    return {
        "tables/models.csv": tables.to_csv(table),
        "results.json": _json(tree),
        "index.html": page.document(
            "jbias audit",
            heading=f"{len(every)} audited models",
            under=f"Audit on {every[0].dataset}, jbias report",
            answer=answer,
            facts={"Models": len(every), "Attributes": len(every[0].candidates)},
            sections=[
                ("models", "Models", tables.to_html(table) + f"<ul>{links}</ul>"),
                ("caveats", "What to keep in mind", page.points(list(told))),
            ],
            footer="Each model has a page of its own below <code>models/</code>.",
        ),
    }


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


def _summary(found: audited.Audited, answer, caveats: Sequence[str]) -> str:
    """Gives results.json: strict JSON, null for what does not exist."""
    ranked = audit_tables.ranked(found).data
    tree = {
        "headline": answer[0],
        "basis": answer[1],
        "model": found.model,
        "networks": list(found.networks),
        "reference": list(found.reference),
        "dataset": found.dataset,
        "images": len(found.label),
        "accuracy": float(found.correct.mean()),
        "tau": found.tau,
        "alpha": found.alpha,
        "draws": found.draws,
        "seed": found.seed,
        "bugs": [one.name for one in found.bugs],
        "findings": list(audit_words.findings(found)),
        "ranked": ranked.to_dict("records"),
        "curves": audit_tables.curves(found).to_dict("records"),
        "flips": audit_tables.flips(found).to_dict("records"),
        "caveats": list(caveats),
    }
    return _json(tree)


def _json(tree) -> str:
    return json.dumps(_finite(tree), indent=1, ensure_ascii=False) + "\n"


def _finite(tree):
    """The same with null for what is no number."""
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_finite(value) for value in tree]
    if isinstance(tree, float) and not math.isfinite(tree):
        return None
    return tree


def _folders(every: Sequence[audited.Audited]) -> list[str]:
    """A folder's name for each model, all different."""
    names = [_plain(found.model) for found in every]
    return [
        name if names.count(name) == 1 else f"{name}-{number}"
        for number, name in enumerate(names, start=1)
    ]


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
