"""One self-contained page: nothing from the network; its script only sorts tables."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence

from jbias.report import figures, tables, terms, words
from jbias.report import study as study_lib

CSS = pathlib.Path(__file__).with_name("page.css")
SORT = pathlib.Path(__file__).with_name("page.js")
_TITLES = (
    ("scores", "Scores"),
    ("tests", "What is significant"),
    ("seeds", "How stable"),
    ("power", "How much power"),
    ("caveats", "What to keep in mind"),
    ("shape_bias", "Shape bias"),
    ("selection", "Selection"),
    ("curves", "Over epochs"),
    ("runs", "Single runs"),
    ("provenance", "What was run"),
    ("methods", "Methods, to paste"),
    ("terms", "Terms"),
)
# Which tables stand in which section, in this order.
_TABLES = {
    "scores": ("scores", "reference"),
    "tests": ("omnibus", "strict", "nemenyi", "posthoc", "control", "ranks"),
    "seeds": ("stability", "differences"),
    "power": ("power",),
    "shape_bias": ("shape_bias",),
    "selection": ("validation", "selection_tests", "selections", "variability"),
    "runs": ("runs",),
    "provenance": ("settings", "costs", "provenance", "data"),
}

_FOOTER = (
    "The tables lie beside this page as CSV, Parquet, LaTeX and Markdown "
    "(<code>tables/</code>), the figures as SVG and PDF (<code>figures/</code>), and all "
    "numbers in <code>results.json</code>."
)


def render(
    study: study_lib.Study,
    analysis: study_lib.Analysis,
    shown: Mapping[str, tables.Table],
    drawn: Mapping[str, tuple[str, str, str]],
    *,
    answer: tuple[str, str],
    paragraphs: Mapping[str, Sequence[str]],
    caveats: Sequence[str],
    methods: tuple[str, str],
) -> str:
    """Gives the page. `drawn` maps a figure to its section, its SVG and its caption."""
    placed = {name for names in _TABLES.values() for name in names}
    assert placed >= set(shown), f"no section has {set(shown) - placed}"
    bodies = {}
    for section, _ in _TITLES:
        parts = [figure(n, *d[1:]) for n, d in drawn.items() if d[0] == section]
        parts += [
            tables.to_html(shown[name])
            for name in _TABLES.get(section, ())
            if name in shown
        ]
        bodies[section] = "".join(parts)
        told = map(tables.escape, paragraphs.get(section, ()))
        bodies[section] = "".join(f"<p>{text}</p>" for text in told) + bodies[section]
    bodies["caveats"] = points(caveats)
    bodies["provenance"] = _sources(study) + bodies["provenance"] + _configs(study)
    bodies["methods"] = _methods(*methods)
    bodies["terms"] = _terms() if analysis.friedman is not None else ""
    metric = study.metric.replace("_", " ").capitalize()
    names = tables.join(study.algorithms)
    if len(study.algorithms) > 6:
        names = f"{len(study.algorithms)} algorithms"
    return document(
        "jbias report",
        heading=names,
        under=f"{metric} on {len(study.datasets)} data sets, jbias report",
        answer=answer,
        facts=_facts(study, analysis),
        sections=[(name, title, bodies[name]) for name, title in _TITLES],
        footer=_FOOTER,
    )


def write(out: pathlib.Path, files: Mapping[str, str | bytes]) -> None:
    """Writes what belongs to a page, by its name below `out`; each whole or not at all."""
    for name, data in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.write_bytes(data.encode() if isinstance(data, str) else data)
        part.replace(path)


def document(
    title: str,
    *,
    heading: str,
    under: str,
    answer: tuple[str, str],
    facts: Mapping[str, object],
    sections: Sequence[tuple[str, str, str]],
    footer: str,
) -> str:
    """Gives a page of sections (id, title, HTML), empty ones left out; `footer` is HTML."""
    used = [section for section in sections if section[2]]
    told = "".join(
        f'<section id="{name}"><h2>{head}</h2>{body}</section>'
        for name, head, body in used
    )
    links = "".join(f'<a href="#{name}">{head}</a>' for name, head, _ in used)
    items = "".join(
        f"<div><dt>{tables.escape(k)}</dt><dd>{tables.escape(v)}</dd></div>"
        for k, v in facts.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{tables.escape(title)}</title><style>{CSS.read_text(encoding='utf-8')}</style>"
        '</head><body><a class="skip" href="#content">Skip to the content</a>'
        f'<main id="content" tabindex="-1"><header><h1>{tables.escape(heading)}</h1>'
        f'<p class="soft">{tables.escape(under)}</p></header>'
        f'<div class="answer"><strong>{tables.escape(answer[0])}</strong>'
        f"<p>{tables.escape(answer[1])}</p></div>"
        f'<dl class="facts">{items}</dl>'
        f'<nav aria-label="Sections">{links}</nav>{told}'
        f'<footer class="soft">{footer}</footer></main>'
        f"<script>{SORT.read_text(encoding='utf-8')}</script></body></html>\n"
    )


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


def _terms() -> str:
    told = "".join(
        f"<dt>{tables.escape(term)}</dt><dd>{tables.escape(means)}</dd>"
        for term, means in terms.TERMS.items()
    )
    return f'<dl class="terms">{told}</dl>'


def _methods(text: str, bib: str) -> str:
    return (
        f"<p>{tables.escape(text)}</p><details><summary>Works cited, as BibTeX</summary>"
        f"<pre>{tables.escape(bib)}</pre></details>"
    )


def figure(name: str, svg: str, caption: str) -> str:
    """Gives a drawn figure in a box that scrolls."""
    title = tables.escape(name.replace("_", " ").capitalize())
    shown = figures.inline(svg, title, name=name, told=tables.escape(caption))
    return (
        f'<figure><div class="scroll" tabindex="0" role="region" '
        f'aria-label="Figure: {title}">{shown}</div>'
        f"<figcaption>{tables.escape(caption)}</figcaption></figure>"
    )


def points(items: Sequence[str]) -> str:
    """Gives what to keep in mind as a list."""
    lines = "".join(f"<li>{tables.escape(item)}</li>" for item in items)
    return f'<ul class="caveats">{lines}</ul>' if items else ""


def _sources(study: study_lib.Study) -> str:
    return f"<p>Made from {tables.escape(study.source)}.</p>"


def _configs(study: study_lib.Study) -> str:
    parts = []
    for run in study.runs:
        if run.config is not None:
            told = json.dumps(dict(run.config), indent=1, ensure_ascii=False)
            parts.append(
                f"<details><summary>All settings of {tables.escape(run.workdir)}</summary>"
                f'<pre tabindex="0">{tables.escape(told)}</pre></details>'
            )
    return "".join(parts)
