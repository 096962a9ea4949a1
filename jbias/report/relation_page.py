"""The page and the tables of a study of relations."""

from collections.abc import Iterator

import pandas as pd

from jbias.report import (
    document,
    relation_figures,
    relation_words,
    relations,
    tables,
)


def report(study: relations.Study) -> document.Report:
    """Gives the page of a study."""
    x, y = study.options.x, study.options.y
    return document.Report(
        title="jbias correlations",
        heading="What goes together",
        subtitle=f"{len(x)} measures against {len(y)} over {len(study.frame)} models, "
        "jbias report",
        answer=relation_words.headline(study),
        facts={"Models": len(study.frame), "Pairs": len(x) * len(y)},
        sections=[
            document.Section(
                "figures",
                "Figures",
                (document.Figure(*one) for one in relation_figures.draw(study)),
            ),
            document.Section("tables", "Tables", tables_of(study)),
            document.Section(
                "caveats",
                "What to keep in mind",
                [document.Text(relation_words.caveats(study))],
            ),
        ],
        results=relation_words.results(study),
        source=f"Made from {study.source}.",
    )


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
            data=one.statistic.set_axis(
                tables.apart(names, ("measure",)), axis=1
            ).reset_index(names="measure"),
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
