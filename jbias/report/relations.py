"""What goes together with what among many models: numbers, tables, words, figures."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import patches

from jbias.report import document, plots, tables
from jbias.stats import correlation, multiple_testing

Matrix = correlation.MatrixResult
RESAMPLES = 1_999
SIGN = {"spearman": "ρ", "kendall": "τ"}
TESTED = {"none": "pvalue", "holm": "holm", "bh": "bh"}
WORDS = {"none": "unadjusted", "holm": "after Holm's adjustment"}
WORDS |= {"bh": "after Benjamini and Hochberg's adjustment"}
UNIT = 26.0  # Area of a marker in square points.
_ENDS = f"95 % bootstrap interval, {RESAMPLES:,} resamples of models"
LEFT = 0.1  # Of the variance of ranks: a variance inflation factor of 10.
NUMBERS = ("statistic", "pvalue", "holm", "bh")
_SECTIONS = {"figures": "Figures", "tables": "Tables"}
_SECTIONS["caveats"] = "What to keep in mind"


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asked for."""

    x: tuple[str, ...]
    y: tuple[str, ...]
    category: str
    among: tuple[tuple[str, ...], ...] = ()
    given: tuple[str, ...] = ()
    split: str | None = None
    size: str | None = None
    method: str = "spearman"
    adjust: str = "holm"
    alpha: float = 0.05
    permutations: int = 9_999
    seed: int = 0

    def __post_init__(self):
        if self.seed < 0:
            raise ValueError(f"--seed: must be 0 or larger, got {self.seed}")

    @property
    def measures(self) -> tuple[str, ...]:
        """All of them, each once."""
        named = [*self.x, *self.y, *sum(self.among, ()), *self.given]
        return tuple(dict.fromkeys(named))


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """Correlations of x with y in each choice of models, and among measures."""

    source: str
    options: Options
    frame: pd.DataFrame  # One row a model.
    families: dict[str, Matrix]  # By the choice of models.
    pairs: pd.DataFrame  # One row for each choice, x and y.
    influential: pd.DataFrame  # Models that a correlation of all rests on.
    among: tuple[Matrix, ...]
    given: "Study | None" = None  # Partial correlations of the same pairs.

    def tested(self, family: Matrix) -> pd.DataFrame:
        """Says which cells pass the level."""
        return getattr(family, TESTED[self.options.adjust]) <= self.options.alpha

    @property
    def attainable(self) -> dict[str, float]:
        """The smallest adjusted p that each family with tests could have had.

        Among measures it may be less, where some models lack one.
        """
        known, found = self.pairs[self.pairs["pvalue"].notna()], {}
        for one in self.among:
            measures = one.statistic.index
            found[f"{measures[0]} to {measures[-1]}"] = [one.n] * one.family
        found |= dict([*known.groupby("models", sort=False)["n"]])
        asked = self.options
        for name, sizes in found.items():
            p = [correlation.smallest_pvalue(n, asked.permutations) for n in sizes]
            # Adjusted p rise with p, so that of the least is the least.
            found[name] = min(multiple_testing.adjust(p, asked.adjust), default=None)
        return {name: p for name, p in found.items() if p is not None}


def analyse(frame: pd.DataFrame, options: Options, *, source: str) -> Study:
    """Correlates the measures of a frame of models (index: names).

    With `split`, a category, also within its models and within all others; each choice
    is a family of its own. A model that lacks a measure (NaN) is left out of the pairs of
    that measure, and of all partial ones that lacks a measure given. Raises ValueError where
    a choice has fewer than 4 models.
    """
    kinds, split = frame[options.category].astype(str), options.split
    chosen = {"all": frame}
    if split is not None:
        if split not in set(kinds):
            told = f"--split: must be a kind of {options.category}, got {split!r}"
            raise ValueError(f"{told}; known: {', '.join(dict.fromkeys(kinds))}")
        chosen |= {split: frame[kinds == split], f"not {split}": frame[kinds != split]}
    for name, part in chosen.items():
        if len(part) < correlation.MIN_MODELS:
            raise ValueError(f"{name}: must have at least 4 models, got {len(part)}")
    pairs = itertools.product(options.x, options.y)
    influential = [row for x, y in pairs for row in _influential(frame, x, y, kinds)]
    columns = ["x", "y", "model", "category", "statistic", "without"]
    matrix = _matrix(options)
    study = Study(
        source=source,
        options=options,
        frame=frame,
        **_correlate(chosen, options),
        influential=pd.DataFrame(influential, columns=columns),
        among=tuple(matrix(frame, names) for names in options.among),
    )
    if not options.given:
        return study
    given = _correlate(chosen, options, *options.given)
    given |= dict(influential=study.influential[:0], among=())
    return dataclasses.replace(study, given=dataclasses.replace(study, **given))


def _matrix(options: Options):
    asked = {key: getattr(options, key) for key in ("method", "permutations", "seed")}
    return functools.partial(correlation.pairwise_matrix, **asked)


def _correlate(chosen: Mapping[str, pd.DataFrame], options: Options, *given: str):
    """Gives families and pairs of a study, plain or of what is left given measures."""
    matrix = functools.partial(_matrix(options), x=options.x, y=options.y, given=given)
    families = {name: matrix(part) for name, part in chosen.items()}
    every = itertools.product(chosen.items(), options.x, options.y)
    rows = [
        {"models": name, **_pair(part, families[name], (x, y), options, given)}
        for (name, part), x, y in every
    ]
    return {"families": families, "pairs": pd.DataFrame(rows)}


def _pair(
    part: pd.DataFrame, family: Matrix, pair: tuple[str, str], options: Options, given
) -> dict:
    """Gives one line of the long table; interval and partial rho are of Spearman's."""
    (x, y), seed = pair, options.seed
    part = correlation.complete_models(part, x, y, *given)
    row = {"n": len(part), "x": x, "y": y}
    row |= {key: getattr(family, key).loc[x, y] for key in NUMBERS}
    least = correlation.MIN_MODELS + len(given)
    if options.method != "spearman" or len(part) < least:
        return row
    both, kinds = (part[x], part[y]), part[options.category]
    control = dict(covariates=[part[name] for name in given], seed=seed)
    if given:
        shares = (correlation.unexplained(v, control["covariates"]) for v in both)
        row |= dict(zip(("x_left", "y_left"), shares))
    if not given or min(row["x_left"], row["y_left"]) >= LEFT:
        ends = correlation.bootstrap_interval(*both, resamples=RESAMPLES, **control)
        row |= {"low": ends.low, "high": ends.high}
    if 1 < kinds.nunique() <= len(part) - 2 - len(given):
        control |= dict(permutations=options.permutations, groups=kinds)
        within = correlation.partial(*both, **control)
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
    (x, y), models = (study.options.x, study.options.y), len(study.frame)
    told = [("caveats", document.Text(caveats(study)))]
    return document.Report(
        title="jbias correlations",
        heading="What goes together",
        subtitle=f"{len(x)} measures against {len(y)} over {models} models, jbias report",
        answer=headline(study),
        facts={"Models": models, "Pairs": len(x) * len(y)},
        sections=document.sections(_SECTIONS, figures(study), tables_of(study), told),
        results=results(study),
        source=f"Made from {study.source}.",
    )


def results(study: Study) -> dict[str, object]:
    """Gives what results.json says beside the answer."""
    attainable, families, among = study.attainable.items(), study.families, study.among
    return {
        "source": study.source,
        "options": dataclasses.asdict(study.options),
        "attainable": {name: p for name, p in attainable if name in families},
        "correlations": study.pairs,
        **({"given": study.given.pairs} if study.given else {}),
        "influential": study.influential,
        "among": [{k: getattr(x, k).to_dict("index") for k in NUMBERS} for x in among],
        "caveats": caveats(study),
    }


def headline(study: Study) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    options, family = study.options, study.families["all"]
    pairs = study.pairs[study.pairs["models"] == "all"]
    level = f"α = {options.alpha:g} {WORDS[options.adjust]}"
    if family.family:
        passed = study.tested(family).to_numpy().sum()
        answer = f"{passed} of {family.family} correlations are significant at {level}."
        if study.attainable["all"] > options.alpha:
            answer += f" None could have been: {_hopeless(study)}."
    else:
        names = dict.fromkeys([*options.x, *options.y])
        still = [name for name in names if study.frame[name].nunique() == 1]
        why = f"no x and y are known of at least {correlation.MIN_MODELS} models"
        if still:
            verb = "is" if len(still) == 1 else "are"
            why = f"{', '.join(still)} {verb} constant over all models"
        answer = f"No correlation can be tested: {why}."
    known = pairs[pairs["statistic"].notna()]
    if len(known):
        top = known.loc[known["statistic"].abs().idxmax()]
        rho = f"{SIGN[options.method]} = {tables.digits(2)(top['statistic'])}"
        answer += f" The strongest: {top['x']} with {top['y']}, {rho}."
    counts = (known if len(known) else pairs)["n"]
    orders = "all" if family.exact else f"{family.draws:,} random"
    basis = f"{options.method.capitalize()}'s rank correlations over"
    basis += f" {tables.span(counts)} models; two-sided p from {orders} orders."
    if "partial_pvalue" in pairs:
        partial = pairs["partial_pvalue"].dropna()
        kept = (partial <= options.alpha).sum()
        basis += f" Within categories ({options.category}), {kept} of {len(partial)}"
        basis += " partial correlations have an unadjusted p of at most that."
    if study.given:
        basis += f" {_headline_given(study)}"
    return answer, basis


def _headline_given(study: Study) -> str:
    """Says how many correlations remain given the measures asked for, and turn."""
    names, family = tables.join(study.options.given), study.given.families["all"]
    if not family.family:
        return f"Given {names}, no correlation can be tested."
    passed, before = study.tested(family), study.families["all"].statistic
    turned = (passed & (before * family.statistic < 0)).to_numpy().sum()
    told = f"{passed.to_numpy().sum()} of {family.family} are significant"
    return f"Given {names}, {told}, {turned} of them with the other sign."


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
    kin = "Models of one category are variants of one method and not independent"
    if "partial_pvalue" in study.pairs:
        kin += ": the partial correlations reorder within categories only"
    told = [
        "Correlations do not say what causes what.",
        f"p takes the models as exchangeable. {kin}. The largest category here is {largest}.",
        "Each choice of models is adjusted as a family of its own.",
    ]
    if study.given:
        names = tables.join(options.given)
        told.append(
            f"Given {names} is no experiment. Where x acts on y through {names}, that part is "
            f"taken away; where x and something else both act on {names}, the two go together "
            "among models that are alike in it."
        )
        told += _nothing_left(study.given.pairs, names)
        told += _nothing_taken(study.given.pairs, names)
    families = {name: one.statistic for name, one in study.families.items()}
    for name, one in study.given.families.items() if study.given else ():
        families[f"{name} given {tables.join(options.given)}"] = one.statistic
    lacks = {name: one for name, one in families.items() if one.isna().any(axis=None)}
    if unknown := [f"{_unknown(one)} in {name}" for name, one in lacks.items()]:
        few = f"fewer than {correlation.MIN_MODELS} models have both"
        lost = f"Not known, where a measure is constant or {few}"
        told.append(f"{lost}: {'; '.join(unknown)}.")
    level, attainable = f"{options.alpha:g} {WORDS[options.adjust]}", study.attainable
    if hopeless := [name for name, p in attainable.items() if p > options.alpha]:
        few = "With so few models, or orders, no p could be as small as"
        told.append(f"{few} {level} in: {', '.join(hopeless)}.")
    if len(study.influential):
        single = "Some correlations rest on single models"
        told.append(f"{single}: see the models that count most.")
    return told


def _nothing_left(pairs: pd.DataFrame, names: str) -> list[str]:
    """Names measures of which those given leave next to nothing."""
    found = {}
    for side in "xy":
        known = pairs.reindex(columns=["models", side, f"{side}_left"])
        for models, name, left in known.itertuples(index=False):
            if left < LEFT:
                found[f"{name} in {models}"] = left
    few = f"Given {names}, less than {LEFT:.0%} of the variance of ranks is left"
    shown = ", ".join(f"{name} ({left:.1%})" for name, left in found.items())
    told = f"{few}, so that few models decide and no interval is given: {shown}."
    return [told] if found else []


def _nothing_taken(pairs: pd.DataFrame, names: str) -> list[str]:
    """Names choices of models whose ranks those given do not explain at all."""
    left = pairs.reindex(columns=["x_left", "y_left"]).min(axis=1)
    least = left.groupby(pairs["models"], sort=False).min()
    if not (same := least.index[least > 1 - 1e-9].tolist()):
        return []
    told = f"{names} says nothing of any measure, as where all models have the same"
    return [f"In {tables.join(same)}, {told}: given it, correlations are as they are."]


def _unknown(statistic: pd.DataFrame) -> str:
    """Names measures that go with no other, and the other pairs without a correlation."""
    lacks = statistic.isna()
    rows = lacks.index[lacks.all(axis=1)]
    columns = lacks.columns[lacks.all() & (len(rows) < len(lacks))]
    rest = lacks.drop(index=rows, columns=columns).stack()
    return ", ".join([*rows, *columns, *(f"{x} with {y}" for x, y in rest.index[rest])])


def tables_of(study: Study) -> document.Placed:
    """Gives the correlations, those among measures, and the models that count most."""
    options, two, sign = study.options, tables.digits(2), SIGN[study.options.method]
    level = f"p ≤ {options.alpha:g} {WORDS[options.adjust]}"
    caption = f"Correlations; bold: {level}."
    yield "tables", _pairs_table("correlations", caption, study, options.category)
    if study.given:
        names = tables.join(options.given)
        caption = f"Partial rank correlations given {names}; bold: {level}. "
        caption += "Left: share of the variance of ranks."
        controls = f"{names} and {options.category}"
        yield "tables", _pairs_table("given", caption, study.given, controls)
    for i, one in enumerate(study.among, start=1):
        names, bold = tuple(one.statistic), np.argwhere(study.tested(one).to_numpy())
        data = one.statistic.set_axis(tables.apart(names, ("measure",)), axis=1)
        among = tables.Table(
            name=f"among_{i}",
            caption=f"{sign} among measures; bold: {level} over {one.family} pairs.",
            head=("", *names),
            rows=tuple((x, *map(two, row)) for x, *row in one.statistic.itertuples()),
            data=data.reset_index(names="measure"),
            bold=frozenset((i, j + 1) for i, j in bold.tolist()),
        )
        yield "tables", among
    caption = f"Models that {sign} of all models rests on: without one, Spearman's ρ"
    caption += " moves by more than 2 standard errors over the root of n."
    heads = dict(category=options.category, statistic="ρ", without="ρ without it")
    columns = tables.columns("x y model category statistic:.2 without:.2", **heads)
    found = tables.from_rows("influential", caption, study.influential, columns)
    yield "tables", found


def _pairs_table(name: str, caption: str, study: Study, controls: str) -> tables.Table:
    """Shows every pair; controls: what the last columns control for."""
    options, every = study.options, study.pairs
    if "low" in every:
        caption += f" In brackets: {_ENDS}."
    if "partial" in every:
        caption += f" Partial: controlling for {controls}."
    heads = dict(x_left="left of x, %", y_left="left of y, %", partial="partial ρ")
    heads |= dict(partial_pvalue="partial p", pvalue="p", holm="Holm", bh="BH")
    columns = tables.columns(
        "models x y n:d statistic pvalue:p holm:p bh:p x_left:% y_left:% partial:.2 "
        "partial_pvalue:p",
        **heads,
    )
    rho = tables.interval(tables.digits(2)), "low", "high"
    columns["statistic"] = SIGN[options.method], *rho
    shown = every.assign(_bold=every[TESTED[options.adjust]] <= options.alpha)
    marked = dict(bold=lambda row: ["statistic"] if row["_bold"] else [])
    marked["data"] = every  # Empty columns too.
    return tables.from_rows(name, caption, shown, columns, **marked)


def figures(study: Study) -> document.Placed:
    """Gives heat maps of correlations, and the models."""
    options = study.options
    sign = f"{options.method.capitalize()}'s {SIGN[options.method]}"
    marked = f"Hatched: p > {options.alpha:g} {WORDS[options.adjust]}."
    drawn = heat(study, study.families)
    told = f"{sign} of measures. {marked}"
    yield "figures", document.Figure("correlations", told, drawn)
    if study.given:
        names = tables.join(options.given)
        told = f"Partial {sign} of measures given {names}. {marked}"
        drawn = heat(study, study.given.families)
        yield "figures", document.Figure("correlations_given", told, drawn)
        told = f"Each pair as it is, and given {names}; lines are the {_ENDS}."
        yield "figures", document.Figure("given", told, given_beside(study))
    for i, one in enumerate(study.among, start=1):
        told, drawn = f"{sign} among measures {i}. {marked}", heat(study, {"": one})
        yield "figures", document.Figure(f"among_{i}", told, drawn)
    told = "Models, one a marker, coloured by category."
    if options.size:
        told += f" Markers grow with {options.size}; models without it have one size."
    yield "figures", document.Figure("models", told, all_pairs(study))


def given_beside(study: Study) -> plots.Figure:
    """Draws each pair's plain and partial correlation with intervals, a row a pair."""
    given = f"given {tables.join(study.options.given)}"
    kinds = {"as they are": study, given: study.given}
    pairs = [*itertools.product(study.options.x, study.options.y)]
    names = [f"{x}, {y}" for x, y in pairs]
    wide = 2.2 + plots.LETTER * max(map(len, names)) / len(study.families)
    size = dict(cell=(wide, 0.4 * len(names) + 0.7), alone=wide + 2, sharey=True)
    fig, (every,) = plots.grid(len(study.families), tuple(kinds), across=3, **size)
    looks = plots.marks(kinds)
    for axes, choice in zip(every, study.families, strict=True):
        axes.axvline(0, color=plots.INK, lw=0.8)
        found = {}
        for kind, one in kinds.items():
            rows = one.pairs[one.pairs["models"] == choice].set_index(["x", "y"])
            cells = rows.reindex(columns=["statistic", "low", "high"]).loc[pairs]
            found[kind] = dict(zip(names, cells.to_numpy(), strict=True))
        legend = plots.in_lanes(axes, names, found, looks, unit=1)
        axes.set(xlim=(-1.05, 1.05), ylim=(len(names) - 0.5, -0.5))
        axes.set_xlabel(f"ρ, {choice} ({study.families[choice].n})", **plots.ink())
    every[0].set_yticks(range(len(names)), plots.plain(names))
    plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def all_pairs(study: Study) -> plots.Figure:
    """Draws every y over every x."""
    options = study.options
    grid = [[(x, y) for x in options.x] for y in options.y]
    rho = study.families["all"].statistic
    look = dict(category=options.category, size=options.size)
    return scatter(study.frame, grid, rho=rho, **look)


def heat(study: Study, families: Mapping[str, Matrix]) -> plots.Figure:
    """Draws correlations (rows by columns) side by side; hatches what is not significant.

    families: by what their panels are called. NaN is grey, and so is the diagonal of
    measures among themselves.
    """
    sizes = {name: f"n = {one.n}" for name, one in families.items()}
    titles = [f"{name} ({n})" if name else n for name, n in sizes.items()]
    first, count = next(iter(families.values())).statistic, len(families)
    (rows, columns), cell = first.shape, 0.5
    beside, above = (max(map(len, names)) for names in (first.index, first))
    words = 0.052 * above - 0.2  # Slanted, beside the last column.
    step = max(columns * cell + max(words, 0.2), *(0.071 * len(one) for one in titles))
    wide, tall = step + 0.075 * beside / count, 0.75 + 0.05 * above + rows * cell
    size = dict(cell=(wide, tall), alone=wide + 0.2, sharey=True)
    fig, (every,) = plots.grid(count, across=count, **size)
    for axes, title, family in zip(every, titles, families.values(), strict=True):
        mesh = _cells(axes, family.statistic, study.tested(family))
        axes.set_xlabel(title, **plots.ink(9))
    look = dict(location="bottom", anchor=(0, 0), aspect=18, ticks=[-1, 0, 1])
    bar = fig.colorbar(mesh, None, every, shrink=min(1, 1.6 / (count * step)), **look)
    bar.ax.set_xlim(-1, 1)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=plots.SMALL, labelcolor=plots.INK)
    return plots.laid_out(fig)


def _cells(axes, table: pd.DataFrame, passed: pd.DataFrame):
    """Draws a table's cells; gives what says their colours."""
    values = table.mask(np.equal.outer(table.index, table.columns)).astype(float)
    # A little short of the ends of the colours, where text would not be read.
    look = dict(limits=(-1.19, 1.19), form="{:.2f}")
    look["colours"] = mpl.colormaps["RdBu"].with_extremes(bad="#c9ced4")
    drawn = plots.matrix(axes, values, **look)
    hatch = dict(fill=False, hatch="////", lw=0, hatch_linewidth=0.5, ec="#8b939c")
    for i, j in np.argwhere((values.notna() & ~passed).to_numpy()):
        axes.add_patch(patches.Rectangle((j - 0.48, i - 0.48), 0.96, 0.96, **hatch))
        face = drawn.to_rgba(values.iloc[i, j])
        told = axes.texts[i * table.shape[1] + j]
        told.set_bbox(dict(facecolor=face, edgecolor="none", pad=0.8))
    slant = dict(rotation=40, ha="left", rotation_mode="anchor")
    axes.set_xticks(np.arange(table.shape[1]), table.columns, **slant)
    axes.tick_params(axis="x", labelbottom=False, labeltop=True)
    return drawn


def scatter(
    frame: pd.DataFrame,
    grid: Sequence[Sequence[tuple[str, str]]],
    *,
    category: str,
    size: str | None = None,
    rho: pd.DataFrame | None = None,
    panel: tuple[float, float] = (1.75, 1.45),
    order: Sequence[str] | None = None,
) -> plots.Figure:
    """Draws y over x in each place of a grid: one marker a model, a form a category.

    rho: a table x by y with the number over each place. panel: inches of a place. order:
    categories that a figure of more models has, so that each keeps its form. Axes are
    shared along columns and rows where they are of one measure.
    """
    kinds = frame[category].astype(str)
    looks = plots.marks(order or kinds, {*kinds})
    areas = areas_of(frame[size] if size else pd.Series(index=frame.index))
    above = all(len({x for x, _ in column}) == 1 for column in zip(*grid, strict=True))
    beside = all(len({y for _, y in row}) == 1 for row in grid)
    shared = dict(sharex="col" if above else False, sharey="row" if beside else False)
    rows, columns = len(grid), len(grid[0])
    cell = max(panel[0], 4.8 / columns), panel[1]
    how = dict(across=columns, cell=cell, **shared)
    fig, cells = plots.grid(rows * columns, tuple(looks), **how)
    for (i, j), axes in np.ndenumerate(cells):
        x, y = grid[i][j]
        for name, look in looks.items():
            mine, look = (kinds == name).to_numpy(), look | dict(alpha=0.75, lw=0)
            axes.scatter(frame[x][mine], frame[y][mine], areas[mine], **look)
        plots.dress(axes, None if rho is None else rho.loc[x, y])
        if i == rows - 1 or not above:
            axes.set_xlabel(x, **plots.ink())
        if j == 0 or not beside:
            axes.set_ylabel(y, **plots.ink())
    plots.legend_above(fig, plots.handles(looks))
    return plots.laid_out(fig)


def areas_of(sizes: pd.Series) -> np.ndarray:
    """Gives 0.2 to 1.8 units by size, and 1 without one.

    For attack strengths up to 8 that is (epsilon + 1) / 5 units, as Gavrikov and Keuper draw.
    """
    values = sizes.to_numpy(np.float64)
    most = np.nanmax(values, initial=0)
    shares = 0.2 + 1.6 * values / (most or math.nan)
    return UNIT * np.where(np.isfinite(shares), np.clip(shares, 0.2, None), 1)
