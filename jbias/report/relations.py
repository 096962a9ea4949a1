"""What goes together with what among many models: numbers, tables, words, figures."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import figure as mpl_figure
from matplotlib import lines, patches

from jbias.report import document, plots, tables
from jbias.stats import correlation, multiple_testing

RESAMPLES = 1_999
SIGN = {"spearman": "ρ", "kendall": "τ"}
TESTED = {"none": "pvalue", "holm": "holm", "bh": "bh"}
WORDS = {
    "none": "unadjusted",
    "holm": "after Holm's adjustment",
    "bh": "after Benjamini and Hochberg's adjustment",
}
UNIT = 26.0  # Area of a marker in square points.
_NUMBERS = ("statistic", "pvalue", "holm", "bh")
_SECTIONS = {
    "figures": "Figures",
    "tables": "Tables",
    "caveats": "What to keep in mind",
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

    def tested(self, family: correlation.MatrixResult) -> pd.DataFrame:
        """Says which cells pass the level."""
        return getattr(family, TESTED[self.options.adjust]) <= self.options.alpha

    @property
    def attainable(self) -> dict[str, float]:
        """The smallest adjusted p that each family with tests could have had.

        Among measures it may be less, where some models lack one.
        """
        known = self.pairs[self.pairs["pvalue"].notna()]
        sizes = {
            f"{one.statistic.index[0]} to {one.statistic.index[-1]}": [one.n]
            * one.family
            for one in self.among
        } | {name: [*known.loc[known["models"] == name, "n"]] for name in self.families}
        asked = self.options
        return {  # Adjusted p rise with p, so that of the least is the least.
            name: min(
                multiple_testing.adjust(
                    [correlation.smallest_pvalue(n, asked.permutations) for n in each],
                    asked.adjust,
                )
            )
            for name, each in sizes.items()
            if each
        }


def analyse(frame: pd.DataFrame, options: Options, *, source: str) -> Study:
    """Correlates the measures of a frame of models (index: names).

    With `split`, a category, also within its models and within all others; each choice
    is a family of its own. A model that lacks a measure (NaN) is left out of the pairs of
    that measure. Raises ValueError where a choice has fewer than 4 models.
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
        if len(part) < correlation.MIN_MODELS:
            raise ValueError(f"{name}: must have at least 4 models, got {len(part)}")
    asked = dict(
        method=options.method, permutations=options.permutations, seed=options.seed
    )
    families = {
        name: correlation.pairwise_matrix(part, options.x, options.y, **asked)
        for name, part in chosen.items()
    }
    pairs = [*itertools.product(options.x, options.y)]
    rows = [
        {"models": name, **_pair(chosen[name], family, x, y, options)}
        for name, family in families.items()
        for x, y in pairs
    ]
    influential = [row for x, y in pairs for row in _influential(frame, x, y, kinds)]
    columns = ["x", "y", "model", "category", "statistic", "without"]
    return Study(
        source=source,
        options=options,
        frame=frame,
        families=families,
        pairs=pd.DataFrame(rows),
        influential=pd.DataFrame(influential, columns=columns),
        among=tuple(
            correlation.pairwise_matrix(frame, names, **asked)
            for names in options.among
        ),
    )


def _pair(part: pd.DataFrame, family, x: str, y: str, options: Options) -> dict:
    """Gives one line of the long table; interval and partial rho are of Spearman's."""
    seed, part = options.seed, correlation.complete_models(part, x, y)
    row = {"n": len(part), "x": x, "y": y}
    row |= {key: getattr(family, key).loc[x, y] for key in _NUMBERS}
    if options.method != "spearman" or len(part) < correlation.MIN_MODELS:
        return row
    both, kinds = (part[x], part[y]), part[options.category]
    ends = correlation.bootstrap_interval(*both, resamples=RESAMPLES, seed=seed)
    row |= {"low": ends.low, "high": ends.high}
    if 1 < kinds.nunique() <= len(part) - 2:
        within = correlation.partial(
            *both, groups=kinds, permutations=options.permutations, seed=seed
        )
        row |= {"partial": within.statistic, "partial_pvalue": within.pvalue}
    return row


def _influential(frame: pd.DataFrame, x: str, y: str, kinds: pd.Series) -> Iterator:
    part = correlation.complete_models(frame, x, y)
    if len(part) >= correlation.MIN_MODELS:
        found = correlation.influence(part[x], part[y])
        for i in found.flagged.nonzero()[0]:
            model = part.index[i]
            yield x, y, model, kinds[model], found.statistic, found.without[i]


def report(study: Study) -> document.Report:
    """Gives the page of a study."""
    x, y = study.options.x, study.options.y
    return document.Report(
        title="jbias correlations",
        heading="What goes together",
        subtitle=f"{len(x)} measures against {len(y)} over {len(study.frame)} models, "
        "jbias report",
        answer=headline(study),
        facts={"Models": len(study.frame), "Pairs": len(x) * len(y)},
        sections=document.sections(
            _SECTIONS,
            figures(study),
            tables_of(study),
            [("caveats", document.Text(caveats(study)))],
        ),
        results=results(study),
        source=f"Made from {study.source}.",
    )


def results(study: Study) -> dict[str, object]:
    """Gives what results.json says beside the answer."""
    return {
        "source": study.source,
        "options": dataclasses.asdict(study.options),
        "attainable": {
            name: p for name, p in study.attainable.items() if name in study.families
        },
        "correlations": study.pairs,
        "influential": study.influential,
        "among": [
            {key: getattr(one, key).to_dict("index") for key in _NUMBERS}
            for one in study.among
        ],
        "caveats": caveats(study),
    }


def headline(study: Study) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    options, family = study.options, study.families["all"]
    pairs = study.pairs[study.pairs["models"] == "all"]
    if family.family:
        answer = (
            f"{study.tested(family).to_numpy().sum()} of {family.family} correlations are "
            f"significant at α = {options.alpha:g} {WORDS[options.adjust]}."
        )
        if study.attainable["all"] > options.alpha:
            answer += f" None could have been: {_hopeless(study)}."
    else:
        names = dict.fromkeys([*options.x, *options.y])
        still = [name for name in names if study.frame[name].nunique() == 1]
        verb = "is" if len(still) == 1 else "are"
        why = f"{', '.join(still)} {verb} constant over all models"
        few = f"no x and y are known of at least {correlation.MIN_MODELS} models"
        answer = f"No correlation can be tested: {why if still else few}."
    known = pairs[pairs["statistic"].notna()]
    if len(known):
        top = known.loc[known["statistic"].abs().idxmax()]
        answer += (
            f" The strongest: {top['x']} with {top['y']}, {SIGN[options.method]} = "
            f"{tables.digits(2)(top['statistic'])}."
        )
    counts = (known if len(known) else pairs)["n"]
    over = " to ".join(dict.fromkeys((str(counts.min()), str(counts.max()))))
    orders = "all" if family.exact else f"{family.draws:,} random"
    basis = (
        f"{options.method.capitalize()}'s rank correlations over {over} models; two-sided "
        f"p from {orders} orders."
    )
    if "partial_pvalue" in pairs:
        kept = (pairs["partial_pvalue"] <= options.alpha).sum()
        basis += (
            f" Within categories ({options.category}), {kept} of {len(pairs)} partial "
            "correlations have an unadjusted p of at most that."
        )
    return answer, basis


def _hopeless(study: Study) -> str:
    """Says why no p of all models can be as small as the level, and what would help."""
    asked, least = study.options, study.attainable["all"]
    told = f"p {WORDS[asked.adjust]} is at least {least:.2g}"
    tests = study.families["all"].family if asked.adjust == "holm" else 1
    orders = math.ceil(round(tests / asked.alpha, 6)) - 1
    more = dataclasses.replace(asked, permutations=max(orders, asked.permutations))
    if dataclasses.replace(study, options=more).attainable["all"] > asked.alpha:
        return f"{told} with so few models; measure more"
    return f"{told} of so few orders; ask for --permutations={orders} or more"


def caveats(study: Study) -> list[str]:
    """Gives what a reader must know before believing."""
    options = study.options
    kinds = study.frame[options.category].value_counts()
    largest = f"{kinds.index[0]} with {kinds.iloc[0]} of {len(study.frame)} models"
    kin = (
        "p takes the models as exchangeable. Models of one category are variants of one "
        "method and not independent"
    )
    if "partial_pvalue" in study.pairs:
        kin += ": the partial correlations reorder within categories only"
    told = [
        "Correlations do not say what causes what.",
        f"{kin}. The largest category here is {largest}.",
        "Each choice of models is adjusted as a family of its own.",
    ]
    unknown = [
        f"{_unknown(family.statistic)} in {name}"
        for name, family in study.families.items()
        if family.statistic.isna().any(axis=None)
    ]
    if unknown:
        told.append(
            "Not known, where a measure is constant or fewer than "
            f"{correlation.MIN_MODELS} models have both: {'; '.join(unknown)}."
        )
    attainable = study.attainable.items()
    if hopeless := [name for name, p in attainable if p > options.alpha]:
        told.append(
            "With so few models, or orders, no p could be as small as "
            f"{options.alpha:g} {WORDS[options.adjust]} in: {', '.join(hopeless)}."
        )
    if len(study.influential):
        told.append(
            "Some correlations rest on single models: see the models that count most."
        )
    return told


def _unknown(statistic: pd.DataFrame) -> str:
    """Names measures that go with no other, and the other pairs without a correlation."""
    lacks = statistic.isna()
    rows = lacks.index[lacks.all(axis=1)]
    columns = lacks.columns[lacks.all() & (len(rows) < len(lacks))]
    rest = lacks.drop(index=rows, columns=columns).stack()
    return ", ".join([*rows, *columns, *(f"{x} with {y}" for x, y in rest.index[rest])])


def tables_of(study: Study) -> Iterator[tuple[str, tables.Table | None]]:
    """Gives the correlations, those among measures, and the models that count most."""
    options, two = study.options, tables.digits(2)
    sign, level = SIGN[options.method], f"p ≤ {options.alpha:g} {WORDS[options.adjust]}"
    caption = f"Correlations; bold: {level}."
    if "low" in study.pairs:
        caption += (
            f" From, to: 95 % bootstrap interval, {RESAMPLES:,} resamples of models."
        )
    if "partial" in study.pairs:
        caption += f" Partial: controlling for {options.category}."
    columns = {name: (name, str) for name in ("models", "x", "y")}
    columns |= {"n": ("n", tables.whole), "statistic": (sign, two)}
    columns |= {"low": ("from", two), "high": ("to", two)}
    heads = {"pvalue": "p", "holm": "Holm", "bh": "BH"}
    columns |= {key: (head, tables.p_text) for key, head in heads.items()}
    columns |= {"partial": ("partial ρ", two)}
    columns |= {"partial_pvalue": ("partial p", tables.p_text)}

    def passed(row) -> tuple[str, ...]:
        p = row.get(TESTED[options.adjust])
        return ("statistic",) if p is not None and p <= options.alpha else ()

    every = study.pairs
    pairs = tables.from_rows("correlations", caption, every, columns, strong=passed)
    yield "tables", dataclasses.replace(pairs, data=every)  # Empty columns too.
    for i, one in enumerate(study.among, start=1):
        names, strong = tuple(one.statistic), np.argwhere(study.tested(one).to_numpy())
        apart = tables.apart(names, ("measure",))
        among = tables.Table(
            name=f"among_{i}",
            caption=f"{sign} among measures; bold: {level} over {one.family} pairs.",
            head=("", *names),
            rows=tuple(
                (row[0], *map(two, row[1:])) for row in one.statistic.itertuples()
            ),
            data=one.statistic.set_axis(apart, axis=1).reset_index(names="measure"),
            strong=frozenset((i, j + 1) for i, j in strong.tolist()),
        )
        yield "tables", among
    caption = (
        f"Models that {sign} of all models rests on: without one, Spearman's ρ moves by "
        "more than 2 standard errors over the root of n."
    )
    columns = {name: (name, str) for name in ("x", "y", "model")}
    columns |= {"category": (options.category, str), "statistic": ("ρ", two)}
    columns |= {"without": ("ρ without it", two)}
    found = tables.from_rows("influential", caption, study.influential, columns)
    yield "tables", found


def figures(study: Study) -> Iterator[tuple[str, document.Figure]]:
    """Gives heat maps of correlations, and the models."""
    options = study.options
    sign = f"{options.method.capitalize()}'s {SIGN[options.method]}"
    marked = f"Hatched: p > {options.alpha:g} {WORDS[options.adjust]}."
    told = f"{sign} of measures. {marked}"
    yield "figures", document.Figure("correlations", told, heat_of(study))
    for i, one in enumerate(study.among, start=1):
        told = f"{sign} among measures {i}. {marked}"
        yield "figures", document.Figure(f"among_{i}", told, heat_among(study, one))
    told = "Models, one a marker, coloured by category."
    if options.size:
        told += f" Markers grow with {options.size}; models without it have one size."
    yield "figures", document.Figure("models", told, all_pairs(study))


def heat_of(study: Study) -> mpl_figure.Figure:
    """Draws the correlations of each choice of models."""
    return heat(
        {
            f"{name} (n = {family.n})": (family.statistic, study.tested(family))
            for name, family in study.families.items()
        }
    )


def heat_among(study: Study, one: correlation.MatrixResult) -> mpl_figure.Figure:
    """Draws the correlations of measures among themselves."""
    return heat({f"n = {one.n}": (one.statistic, study.tested(one))})


def all_pairs(study: Study) -> mpl_figure.Figure:
    """Draws every y over every x."""
    options = study.options
    return scatter(
        study.frame,
        [[(x, y) for x in options.x] for y in options.y],
        rho=study.families["all"].statistic,
        category=options.category,
        size=options.size,
    )


def heat(
    panels: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]],
) -> mpl_figure.Figure:
    """Draws correlations (rows by columns) side by side; hatches what is not significant.

    A panel is a table of correlations and one of booleans; NaN is grey, and so is the
    diagonal of a table of measures among themselves.
    """
    first = next(iter(panels.values()))[0]
    (rows, columns), cell = first.shape, 0.5
    beside, above = (max(map(len, names)) for names in (first.index, first))
    words = 0.052 * above - 0.2  # Slanted, beside the last column.
    step = max(columns * cell + max(words, 0.2), *(0.071 * len(one) for one in panels))
    fig = plots.blank(
        0.2 + 0.075 * beside + len(panels) * step, 0.95 + 0.05 * above + rows * cell
    )
    fig.set_layout_engine("constrained")
    with mpl.rc_context(dict(plots.STYLE)):
        every = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, (table, passed)) in zip(every, panels.items(), strict=True):
        mesh = _cells(axes, table, passed)
        axes.set_xlabel(title, **plots.ink(9))
    bar = fig.colorbar(
        *(mesh, None, every),
        location="bottom",
        anchor=(0, 0),
        shrink=min(1, 1.6 / (len(panels) * step)),
        aspect=18,
        ticks=[-1, 0, 1],
    )
    bar.ax.set_xlim(-1, 1)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=plots.SMALL, labelcolor=plots.INK)
    return plots.laid_out(fig)


def _cells(axes, table: pd.DataFrame, passed: pd.DataFrame):
    """Draws a table's cells; gives what says their colours."""
    values = table.mask(np.equal.outer(table.index, table.columns)).to_numpy(float)
    # A little short of the ends of the colours, where text would not be read.
    mesh = axes.pcolormesh(
        values, cmap="RdBu", vmin=-1.19, vmax=1.19, edgecolors="w", linewidth=0.8
    )
    for (i, j), value in np.ndenumerate(values):
        known = np.isfinite(value)
        face = mpl.colors.to_hex(mesh.to_rgba(value)) if known else "#c9ced4"
        dark = np.dot(mpl.colors.to_rgb(face), (0.299, 0.587, 0.114)) < 0.5
        look = dict(
            color="w" if dark else "k", ha="center", va="center", fontsize=plots.SMALL
        )
        if known and not passed.iloc[i, j]:
            axes.add_patch(
                patches.Rectangle(
                    *((j + 0.02, i + 0.02), 0.96, 0.96),
                    fill=False,
                    edgecolor="#8b939c",
                    hatch="////",
                    linewidth=0,
                    hatch_linewidth=0.5,
                )
            )
            look["bbox"] = dict(facecolor=face, edgecolor="none", pad=0.8)
        axes.text(j + 0.5, i + 0.5, tables.digits(2)(value), **look)
    axes.set(ylim=(len(table), 0), facecolor="#c9ced4")
    axes.set_yticks(np.arange(len(table)) + 0.5, table.index)
    places = np.arange(table.shape[1]) + 0.5
    axes.set_xticks(
        places, table.columns, rotation=40, ha="left", rotation_mode="anchor"
    )
    axes.tick_params(length=0, labelcolor=plots.INK, labelsize=plots.SMALL, pad=3)
    axes.tick_params(axis="x", labelbottom=False, labeltop=True)
    axes.spines[:].set_visible(False)
    return mesh


def scatter(
    frame: pd.DataFrame,
    grid: Sequence[Sequence[tuple[str, str]]],
    *,
    category: str,
    size: str | None = None,
    rho: pd.DataFrame | None = None,
    panel: tuple[float, float] = (1.75, 1.45),
    order: Sequence[str] | None = None,
) -> mpl_figure.Figure:
    """Draws y over x in each place of a grid: one marker a model, a form a category.

    rho: a table x by y with the number over each place. panel: inches of a place. order:
    categories that a figure of more models has, so that each keeps its form. Axes are
    shared along columns and rows where they are of one measure.
    """
    kinds = frame[category].astype(str)
    forms = {name: k for k, name in enumerate(order or dict.fromkeys(kinds))}
    forms = {name: k for name, k in forms.items() if name in set(kinds)}
    areas = areas_of(frame[size] if size else pd.Series(index=frame.index))
    above = all(len({x for x, _ in column}) == 1 for column in zip(*grid, strict=True))
    beside = all(len({y for _, y in row}) == 1 for row in grid)
    fig, cells = plots.grid(
        len(grid) * len(grid[0]),
        tuple(forms),
        across=len(grid[0]),
        cell=(max(panel[0], 4.8 / len(grid[0])), panel[1]),
        sharex="col" if above else False,
        sharey="row" if beside else False,
    )
    looks = [
        dict(marker=plots.marker_of(k), color=plots.style_of(k)["color"])
        for k in forms.values()
    ]
    for (i, j), axes in np.ndenumerate(cells):
        x, y = grid[i][j]
        for name, look in zip(forms, looks, strict=True):
            mine = (kinds == name).to_numpy()
            at = frame[x][mine], frame[y][mine], areas[mine]
            axes.scatter(*at, alpha=0.75, linewidths=0, **look)
        plots.dress(axes, None if rho is None else rho.loc[x, y])
        if i == len(grid) - 1 or not above:
            axes.set_xlabel(x, **plots.ink())
        if j == 0 or not beside:
            axes.set_ylabel(y, **plots.ink())
    handles = [
        lines.Line2D([], [], ls="", markersize=5.5, markeredgewidth=0, **look)
        for look in looks
    ]
    plots.legend_above(fig, handles, tuple(forms))
    return plots.laid_out(fig)


def areas_of(sizes: pd.Series) -> np.ndarray:
    """Gives 0.2 to 1.8 units by size, and 1 without one.

    For attack strengths up to 8 that is (epsilon + 1) / 5 units, as Gavrikov and Keuper draw.
    """
    values = sizes.to_numpy(np.float64)
    most = np.nanmax(values, initial=0)
    shares = 0.2 + 1.6 * values / (most or math.nan)
    return UNIT * np.where(np.isfinite(shares), np.clip(shares, 0.2, None), 1)
