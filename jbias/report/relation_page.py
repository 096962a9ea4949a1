"""The page, tables and files of a study of relations."""

import pathlib
from collections.abc import Iterator

import pandas as pd

from jbias.report import (
    figures,
    page,
    relation_figures,
    relation_words,
    relations,
    tables,
)


def write(study: relations.Study, out: pathlib.Path) -> Iterator[str]:
    """Writes the report; gives lines that sum it up. Nothing is written on an error."""
    shown = list(tables_of(study))
    drawn = {name: (fig, told) for name, fig, told in relation_figures.draw(study)}
    files: dict[str, str | bytes] = {}
    for table in shown:
        files[f"tables/{table.name}.csv"] = tables.to_csv(table)
        files[f"tables/{table.name}.tex"] = tables.to_latex(table)
    inline = []
    for name, (fig, told) in drawn.items():
        files[f"figures/{name}.svg"] = svg = figures.to_svg(fig)
        files[f"figures/{name}.pdf"] = figures.to_pdf(fig)
        inline.append((name, svg, told))
    files["results.json"] = relation_words.summary(study)
    files["index.html"] = render(study, shown, inline)
    page.write(out, files)
    return iter([*relation_words.headline(study), f"written: {out / 'index.html'}"])


def tables_of(study: relations.Study) -> Iterator[tables.Table]:
    """Gives the correlations, those among measures, and the models that count most."""
    sign = relations.SIGN[study.options.method]
    yield _pair_table(study, sign)
    for i, one in enumerate(study.among, start=1):
        names = tuple(one.statistic)
        passed = study.tested(one)
        yield tables.Table(
            name=f"among_{i}",
            caption=f"{sign} among measures; bold: p ≤ {study.options.alpha:g} "
            f"{relations.WORDS[study.options.adjust]} over {one.family} pairs.",
            head=("", *names),
            rows=tuple(
                (a, *(_two(one.statistic.loc[a, b]) for b in names)) for a in names
            ),
            # A measure may be called measure, too.
            data=one.statistic.rename_axis("measure").reset_index(
                allow_duplicates=True
            ),
            strong=frozenset(
                (i, j)
                for i, a in enumerate(names)
                for j, b in enumerate(names, start=1)
                if passed.loc[a, b]
            ),
        )
    if len(study.influential):
        frame = study.influential
        yield tables.Table(
            name="influential",
            caption=f"Models that {sign} of all models rests on: without one, Spearman's ρ "
            "moves by more than 2 standard errors over the root of n.",
            head=("x", "y", "model", study.options.category, "ρ", "ρ without it"),
            rows=tuple(
                (*map(str, row[:4]), *map(_two, row[4:]))
                for row in frame.itertuples(index=False)
            ),
            data=frame,
            texts=4,
        )


def _pair_table(study: relations.Study, sign: str) -> tables.Table:
    frame, level = study.pairs, study.options.alpha
    shown = {
        "models": ("models", str),
        "x": ("x", str),
        "y": ("y", str),
        "n": ("n", str),
        "statistic": (sign, _two),
        "low": ("from", _two),
        "high": ("to", _two),
        "pvalue": ("p", _p),
        "holm": ("Holm", _p),
        "bh": ("BH", _p),
        "partial": ("partial ρ", _two),
        "partial_pvalue": ("partial p", _p),
    }
    columns = [name for name in shown if name in frame]
    passed = frame[relations.TESTED[study.options.adjust]] <= level
    caption = (
        f"Correlations; bold: p ≤ {level:g} {relations.WORDS[study.options.adjust]}."
    )
    if "low" in frame:
        caption += f" From, to: 95 % bootstrap interval over models ({relations.RESAMPLES:,} resamples)."
    if "partial" in frame:
        caption += f" Partial: controlling for {study.options.category}."
    place = columns.index("statistic")
    return tables.Table(
        name="correlations",
        caption=caption,
        head=tuple(shown[name][0] for name in columns),
        rows=tuple(
            tuple(shown[name][1](row[name]) for name in columns)
            for _, row in frame.iterrows()
        ),
        data=frame,
        strong=frozenset((i, place) for i in passed.to_numpy().nonzero()[0]),
        texts=3,
    )


def _two(value: float) -> str:
    return "–" if pd.isna(value) else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _p(value: float) -> str:
    return "–" if pd.isna(value) else tables.p_text(value)


def render(study: relations.Study, shown: list[tables.Table], drawn) -> str:
    """Gives the page; `drawn` holds names, SVGs and captions."""
    models = len(study.frame)
    x, y = len(study.options.x), len(study.options.y)
    return page.document(
        "jbias correlations",
        heading="What goes together",
        under=f"{x} measures against {y} over {models} models, jbias report",
        answer=relation_words.headline(study),
        facts={"Models": models, "Pairs": x * y},
        sections=[
            ("figures", "Figures", "".join(page.figure(*one) for one in drawn)),
            ("tables", "Tables", "".join(map(tables.to_html, shown))),
            (
                "caveats",
                "What to keep in mind",
                page.points(relation_words.caveats(study)),
            ),
        ],
        footer=f"Made from {tables.escape(study.source)}. The tables lie beside this page "
        "as CSV and LaTeX (<code>tables/</code>), the figures as SVG and PDF "
        "(<code>figures/</code>), and all numbers in <code>results.json</code>.",
    )
