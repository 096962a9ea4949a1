"""What goes together with what among many models: its analysis, tables and page."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator

import pandas as pd

from jbias.report import figures, page, relation_figures, tables
from jbias.stats import correlation, partials, stability

_RESAMPLES = 1_999
_SIGN = {"spearman": "ρ", "kendall": "τ"}
_TESTED = {"none": "pvalue", "holm": "holm", "bh": "bh"}
_WORDS = {
    "none": "unadjusted",
    "holm": "after Holm's adjustment",
    "bh": "after Benjamini and Hochberg's adjustment",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asked for."""

    x: tuple[str, ...]
    y: tuple[str, ...]
    category: str
    among: tuple[tuple[str, ...], ...] = ()
    split: str | None = None
    size: str | None = None
    method: str = "spearman"
    adjust: str = "holm"
    alpha: float = 0.05
    permutations: int = 9_999
    seed: int = 0

    @property
    def measures(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys([*self.x, *self.y, *sum(self.among, ())]))


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """Correlations of x with y in each choice of models, and among measures."""

    source: str
    options: Options
    frame: pd.DataFrame  # One row a model.
    families: dict[str, correlation.MatrixResult]  # By the choice of models.
    pairs: pd.DataFrame  # One row for each choice, x and y.
    influential: pd.DataFrame  # Models that a correlation of all rests on.
    among: tuple[correlation.MatrixResult, ...]

    def significant(self, name: str) -> pd.DataFrame:
        """Which cells (x, y) of a choice of models pass the level."""
        return self.tested(self.families[name])

    def tested(self, family: correlation.MatrixResult) -> pd.DataFrame:
        table = getattr(family, _TESTED[self.options.adjust])
        return table <= self.options.alpha


def analyse(frame: pd.DataFrame, options: Options, *, source: str) -> Study:
    """Correlates the measures of a frame of models (index: names).

    With `split`, a category, also within its models and within all others; each choice
    is a family of its own. Raises ValueError where a choice has fewer than 4 models.
    """
    kinds = frame[options.category].astype(str)
    chosen = {"all": frame}
    if options.split is not None:
        if options.split not in set(kinds):
            raise ValueError(
                f"--split: must be one of {options.category}, got {options.split!r}: "
                f"{', '.join(dict.fromkeys(kinds))}"
            )
        chosen[options.split] = frame[kinds == options.split]
        chosen[f"not {options.split}"] = frame[kinds != options.split]
    for name, part in chosen.items():
        if len(part) < 4:
            raise ValueError(f"{name}: must have at least 4 models, got {len(part)}")
    asked = dict(
        method=options.method, permutations=options.permutations, seed=options.seed
    )
    families = {
        name: correlation.matrix(part, options.x, options.y, **asked)
        for name, part in chosen.items()
    }
    rows = [
        _pair(name, chosen[name], family, x, y, options)
        for name, family in families.items()
        for x in options.x
        for y in options.y
    ]
    return Study(
        source=source,
        options=options,
        frame=frame,
        families=families,
        pairs=pd.DataFrame(rows),
        influential=_influential(frame, kinds, options),
        among=tuple(correlation.matrix(frame, m, **asked) for m in options.among),
    )


def _pair(name: str, part: pd.DataFrame, family, x: str, y: str, options) -> dict:
    """Gives one line of the long table; interval and partial rho are of Spearman's."""
    seed = options.seed
    row = {"models": name, "n": family.n, "x": x, "y": y}
    row["statistic"] = family.statistic.loc[x, y]
    for key in ("pvalue", "holm", "bh"):
        row[key] = getattr(family, key).loc[x, y]
    if options.method == "spearman":
        ends = stability.interval(part[x], part[y], resamples=_RESAMPLES, seed=seed)
        row |= {"low": ends.low, "high": ends.high}
    kinds = part[options.category]
    if options.method == "spearman" and 1 < kinds.nunique() <= len(part) - 2:
        within = partials.partial(
            part[x],
            part[y],
            groups=kinds,
            permutations=options.permutations,
            seed=seed,
        )
        row |= {"partial": within.statistic, "partial_pvalue": within.pvalue}
    return row


def _influential(frame: pd.DataFrame, kinds: pd.Series, options) -> pd.DataFrame:
    columns = ["x", "y", "model", options.category, "statistic", "without"]
    rows = []
    for x in options.x:
        for y in options.y:
            found = stability.influence(frame[x], frame[y])
            rows += [
                (x, y, frame.index[i], kinds.iloc[i], found.statistic, found.without[i])
                for i in found.flagged.nonzero()[0]
            ]
    return pd.DataFrame(rows, columns=columns)


def write(study: Study, out: pathlib.Path) -> Iterator[str]:
    """Writes the report; gives lines that sum it up. Nothing is written on an error."""
    shown = list(_tables(study))
    drawn = {name: (fig, told) for name, fig, told in relation_figures.draw(study)}
    files: dict[str, str | bytes] = {}
    for table in shown:
        files[f"tables/{table.name}.csv"] = tables.to_csv(table)
        files[f"tables/{table.name}.tex"] = tables.to_latex(table)
    inline = []
    for name, (fig, told) in drawn.items():
        files[f"figures/{name}.svg"] = svg = figures.to_svg(fig)
        files[f"figures/{name}.pdf"] = figures.to_pdf(fig)
        inline.append((svg, told))
    files["results.json"] = summary(study)
    files["index.html"] = render(study, shown, inline)
    for name, data in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return iter([*headline(study), f"written: {out / 'index.html'}"])


def headline(study: Study) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    options, family = study.options, study.families["all"]
    passed = study.significant("all")
    count = int(passed.to_numpy().sum())
    answer = (
        f"{count} of {family.family} correlations are significant at "
        f"α = {options.alpha:g} {_WORDS[options.adjust]}."
    )
    sizes = family.statistic.abs().stack().dropna()
    if len(sizes):
        x, y = sizes.idxmax()
        rho = family.statistic.loc[x, y]
        answer += f" The strongest: {x} with {y}, {_SIGN[options.method]} = {rho:.2f}."
    kind = options.method.capitalize()
    orders = "all" if family.exact else f"{family.draws:,} random"
    basis = (
        f"{kind}'s rank correlations over {family.n} models; two-sided p from "
        f"{orders} orders."
    )
    if "partial_pvalue" in study.pairs:
        all_models = study.pairs[study.pairs["models"] == "all"]
        kept = int((all_models["partial_pvalue"] <= options.alpha).sum())
        basis += (
            f" Within categories ({options.category}), {kept} of {len(all_models)} "
            "partial correlations have an unadjusted p of at most that."
        )
    return answer, basis


def caveats(study: Study) -> list[str]:
    """Gives what a reader must know before believing."""
    kinds = study.frame[study.options.category].value_counts()
    kin = (
        "p takes the models as exchangeable. Models of one category are variants of one "
        "method and not independent: the partial correlations reorder within categories "
        f"only. The largest category here is {kinds.index[0]} with {kinds.iloc[0]} of "
        f"{len(study.frame)} models."
    )
    told = [
        "Correlations do not say what causes what.",
        kin,
        "Each choice of models is adjusted as a family of its own.",
    ]
    constant = study.pairs[study.pairs["statistic"].isna()]
    for row in constant.itertuples():
        told.append(f"{row.x} or {row.y} is constant in {row.models}: not known.")
    if len(study.influential):
        told.append(
            "Some correlations rest on single models: see the models that count most."
        )
    return told


def summary(study: Study) -> str:
    """Gives results.json: strict JSON, null for what is not known."""
    options = study.options
    answer, basis = headline(study)
    tree = {
        "headline": answer,
        "basis": basis,
        "source": study.source,
        "options": dataclasses.asdict(options),
        "correlations": _records(study.pairs),
        "influential": _records(study.influential),
        "among": [
            {
                key: json.loads(getattr(one, key).to_json(orient="index"))
                for key in ("statistic", "pvalue", "holm", "bh")
            }
            for one in study.among
        ],
        "caveats": caveats(study),
    }
    return json.dumps(tree, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _records(frame: pd.DataFrame) -> list[dict]:
    return json.loads(frame.to_json(orient="records", double_precision=15))


def _tables(study: Study) -> Iterator[tables.Table]:
    sign = _SIGN[study.options.method]
    yield _pair_table(study, sign)
    for i, one in enumerate(study.among, start=1):
        names = tuple(one.statistic)
        passed = study.tested(one)
        yield tables.Table(
            name=f"among_{i}",
            caption=f"{sign} among measures; bold: p ≤ {study.options.alpha:g} "
            f"{_WORDS[study.options.adjust]} over {one.family} pairs.",
            head=("", *names),
            rows=tuple(
                (a, *(_two(one.statistic.loc[a, b]) for b in names)) for a in names
            ),
            data=one.statistic.rename_axis("measure").reset_index(),
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


def _pair_table(study: Study, sign: str) -> tables.Table:
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
    passed = frame[_TESTED[study.options.adjust]] <= level
    caption = f"Correlations; bold: p ≤ {level:g} {_WORDS[study.options.adjust]}."
    if "low" in frame:
        caption += f" From, to: 95 % bootstrap interval over models ({_RESAMPLES:,} resamples)."
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


def render(study: Study, shown: list[tables.Table], drawn) -> str:
    """Gives the page; `drawn` holds SVGs with their captions."""
    answer, basis = map(tables.escape, headline(study))
    parts = [
        f"<figure>{figures.inline(svg, tables.escape(told.split('.')[0]))}"
        f"<figcaption>{tables.escape(told)}</figcaption></figure>"
        for svg, told in drawn
    ]
    items = "".join(f"<li>{tables.escape(item)}</li>" for item in caveats(study))
    css = page.CSS.read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>jbias correlations</title><style>{css}</style></head><body><main>"
        f"<header><h1>What goes together</h1>"
        f'<p class="soft">{len(study.options.x)} measures against '
        f"{len(study.options.y)} over {len(study.frame)} models, jbias report</p></header>"
        f'<div class="answer"><strong>{answer}</strong><p>{basis}</p></div>'
        f"<h2>Figures</h2>{''.join(parts)}"
        f"<h2>Tables</h2>{''.join(map(tables.to_html, shown))}"
        f'<h2>What to keep in mind</h2><ul class="caveats">{items}</ul>'
        f'<footer class="soft">Made from {tables.escape(study.source)}. The tables lie '
        "beside this page as CSV and LaTeX (<code>tables/</code>), the figures as SVG and "
        "PDF (<code>figures/</code>), and all numbers in <code>results.json</code>."
        "</footer></main></body></html>\n"
    )
