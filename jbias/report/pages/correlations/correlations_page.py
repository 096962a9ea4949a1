"""Functions that correlate measures of many models by rank, and build the page of the results."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
WORDS = {
    "none": "unadjusted",
    "holm": "after Holm's adjustment",
    "bh": "after Benjamini and Hochberg's adjustment",
}
UNIT = 26.0  # Area of a marker in square points.
_INTERVALS = f"95 % bootstrap interval, {RESAMPLES:,} resamples of models"
# Least unexplained share of the variance of ranks: a variance inflation factor of 10.
LEAST_UNEXPLAINED = 0.1
NUMBERS = ("statistic", "pvalue", "holm", "bh")
_SECTIONS = {
    "figures": "Figures",
    "tables": "Tables",
    "caveats": "Caveats",
}


@dataclasses.dataclass(frozen=True)
class CorrelationOptions:
    """Options of a report of correlations: the flags of `jbias report correlate`.

    x, y, among and given are names of measures; category and size are names of columns; split is
    a value of the column category. method: "spearman" or "kendall". adjust: a key of `TESTED`.
    Raises ValueError for a negative seed.
    """

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
        """All measures of x, y, among and given, without duplicates."""
        named = [*self.x, *self.y, *sum(self.among, ()), *self.given]
        return tuple(dict.fromkeys(named))


@dataclasses.dataclass(frozen=True, eq=False)
class Correlations:
    """Correlations of x with y in subsets of models, and among measures."""

    source: str
    options: CorrelationOptions
    frame: pd.DataFrame  # One row per model.
    families: dict[str, Matrix]  # By name of the subset of models.
    pairs: pd.DataFrame  # One row for each subset, x and y.
    influential: pd.DataFrame  # Models without which a correlation changes most.
    among: tuple[Matrix, ...]
    given: "Correlations | None" = None  # Partial correlations of the same pairs.

    def tested(self, family: Matrix) -> pd.DataFrame:
        """Return a mask of the cells that are significant at the level alpha.

        family: an item of `families` or `among`.
        """
        return getattr(family, TESTED[self.options.adjust]) <= self.options.alpha

    @property
    def attainable(self) -> dict[str, float]:
        """The smallest possible adjusted p by name of the family of tests.

        The name of a family is a key of `families`, or "a to z" for the measures a, ..., z of an
        item of `among`. Families without a test are left out. Among measures, p may be smaller if
        some models lack a measure.
        """
        tested_pairs = self.pairs[self.pairs["pvalue"].notna()]
        sizes = {}  # Number of models of each test, by family.
        for matrix in self.among:
            measures = matrix.statistic.index
            name = f"{measures[0]} to {measures[-1]}"
            sizes[name] = [matrix.n] * matrix.family
        sizes |= dict([*tested_pairs.groupby("models", sort=False)["n"]])
        smallest = {}
        for name, counts in sizes.items():
            pvalues = [
                correlation.smallest_pvalue(n, self.options.permutations)
                for n in counts
            ]
            # Adjustment keeps the order of p, so the smallest adjusted p is that of the
            # smallest p.
            adjusted = multiple_testing.adjust(pvalues, self.options.adjust)
            if len(adjusted):
                smallest[name] = min(adjusted)
        return smallest


def analyse(
    frame: pd.DataFrame, options: CorrelationOptions, *, source: str
) -> Correlations:
    """Return the correlations of the measures of a frame of models (index: names of the models).

    The subset of all models is named "all". With `split`, the models of that category and all
    other models are also correlated, as the subsets "SPLIT" and "not SPLIT"; each subset is a
    separate family of tests. A model that lacks a measure (NaN) is left out of the pairs of that
    measure; a model that lacks a measure of `given` is left out of all partial correlations.
    source: text on the origin of the frame. Raises ValueError if a subset has fewer than 4 models,
    or if `split` is not a value of the column category.
    """
    kinds = frame[options.category].astype(str)
    split = options.split
    subsets = {"all": frame}
    if split is not None:
        if split not in set(kinds):
            raise ValueError(
                f"--split: must be a value of the column {options.category}, got "
                f"{split!r}; choose from {', '.join(dict.fromkeys(kinds))}"
            )
        subsets |= {split: frame[kinds == split], f"not {split}": frame[kinds != split]}
    for name, subset in subsets.items():
        if len(subset) < correlation.MIN_MODELS:
            raise ValueError(f"{name}: must have at least 4 models, got {len(subset)}")
    pairs = itertools.product(options.x, options.y)
    influential = [row for x, y in pairs for row in _influential(frame, x, y, kinds)]
    columns = ["x", "y", "model", "category", "statistic", "without"]
    families, pairs_table = _correlate(subsets, options)
    study = Correlations(
        source=source,
        options=options,
        frame=frame,
        families=families,
        pairs=pairs_table,
        influential=pd.DataFrame(influential, columns=columns),
        among=tuple(_matrix(frame, names, options) for names in options.among),
    )
    if not options.given:
        return study
    families, pairs_table = _correlate(subsets, options, given=options.given)
    partial_study = dataclasses.replace(
        study,
        families=families,
        pairs=pairs_table,
        influential=study.influential[:0],
        among=(),
    )
    return dataclasses.replace(study, given=partial_study)


def _matrix(
    frame: pd.DataFrame,
    x: Sequence[str],
    options: CorrelationOptions,
    *,
    y: Sequence[str] = (),
    given: Sequence[str] = (),
) -> Matrix:
    """Return the matrix of correlations of x with y.

    x, y, given: names of measures. Without y, correlations among x; with `given`, partial
    correlations.
    """
    return correlation.pairwise_matrix(
        frame,
        x,
        y,
        given=given,
        method=options.method,
        permutations=options.permutations,
        seed=options.seed,
    )


def _correlate(
    subsets: Mapping[str, pd.DataFrame],
    options: CorrelationOptions,
    *,
    given: tuple[str, ...] = (),
) -> tuple[dict[str, Matrix], pd.DataFrame]:
    """Return the fields (families, pairs) of `Correlations`.

    subsets: frames of models by name of the subset. given: measures to control for; if there are
    any, the correlations are partial.
    """
    families = {
        name: _matrix(subset, options.x, options, y=options.y, given=given)
        for name, subset in subsets.items()
    }
    rows = []
    for name, subset in subsets.items():
        for x, y in itertools.product(options.x, options.y):
            row = _pair(subset, families[name], x=x, y=y, options=options, given=given)
            rows.append({"models": name, **row})
    return families, pd.DataFrame(rows)


def _pair(
    subset: pd.DataFrame,
    family: Matrix,
    *,
    x: str,
    y: str,
    options: CorrelationOptions,
    given: Sequence[str],
) -> dict[str, Any]:
    """Return one row of the table of pairs, without the name of the subset.

    Keys: n (number of models with all measures), x, y and `NUMBERS`. For Spearman's
    correlation with n >= 4 + len(given), the row also has the keys low, high (bootstrap interval),
    x_left, y_left, partial and partial_pvalue. x_left and y_left (unexplained shares of the
    variance of ranks) require `given`. low and high are left out if x_left or y_left is below
    `LEAST_UNEXPLAINED`. partial and partial_pvalue (within categories) are left out for a single
    category, and for more categories than n - 2 - number of given measures.

    subset: frame of models. family: its matrix of correlations. x, y, given: names of measures.
    """
    complete = correlation.complete_models(subset, x, y, *given)
    row = {"n": len(complete), "x": x, "y": y}
    row |= {key: getattr(family, key).loc[x, y] for key in NUMBERS}
    least = correlation.MIN_MODELS + len(given)
    if options.method != "spearman" or len(complete) < least:
        return row
    kinds = complete[options.category]
    covariates = [complete[name] for name in given]
    if given:
        row["x_left"] = correlation.unexplained(complete[x], covariates)
        row["y_left"] = correlation.unexplained(complete[y], covariates)
    if not given or min(row["x_left"], row["y_left"]) >= LEAST_UNEXPLAINED:
        interval = correlation.bootstrap_interval(
            complete[x],
            complete[y],
            resamples=RESAMPLES,
            covariates=covariates,
            seed=options.seed,
        )
        row |= {"low": interval.low, "high": interval.high}
    if 1 < kinds.nunique() <= len(complete) - 2 - len(given):
        within = correlation.partial(
            complete[x],
            complete[y],
            covariates=covariates,
            seed=options.seed,
            permutations=options.permutations,
            groups=kinds,
        )
        row |= {"partial": within.statistic, "partial_pvalue": within.pvalue}
    return row


def _influential(
    frame: pd.DataFrame, x: str, y: str, kinds: pd.Series
) -> Iterator[tuple[str, str, str, str, float, float]]:
    """Yield rows of `Correlations.influential` for one pair of measures.

    A row is (x, y, model, category of the model, correlation, correlation without the model).
    Nothing is yielded for fewer than 4 models with both measures. kinds: category of each model.
    """
    complete = correlation.complete_models(frame, x, y)
    if len(complete) >= correlation.MIN_MODELS:
        influence = correlation.influence(complete[x], complete[y])
        for i in influence.flagged.nonzero()[0]:
            model = complete.index[i]
            without = influence.without[i]
            yield x, y, model, kinds[model], influence.statistic, without


def report(study: Correlations) -> document.Report:
    """Return the page of a study of correlations."""
    x = study.options.x
    y = study.options.y
    models = len(study.frame)
    caveat_blocks = [("caveats", document.Text(caveats(study)))]
    return document.Report(
        title="jbias correlations",
        heading="Correlations between measures",
        subtitle=f"{len(x)} measures against {len(y)} over {models} models, jbias report",
        answer=headline(study),
        facts={"Models": models, "Pairs": len(x) * len(y)},
        sections=document.sections(
            _SECTIONS, figures(study), tables_of(study), caveat_blocks
        ),
        results=results(study),
        source=f"Made from {study.source}.",
    )


def results(study: Correlations) -> dict[str, object]:
    """Return the entries of results.json by key, without the answer, which the page adds.

    Keys: source, options, attainable (smallest p by subset), correlations, given (only if measures
    are given), influential, among (for each group, matrices by name of the number) and caveats.
    """
    return {
        "source": study.source,
        "options": dataclasses.asdict(study.options),
        "attainable": {
            name: p for name, p in study.attainable.items() if name in study.families
        },
        "correlations": study.pairs,
        **({"given": study.given.pairs} if study.given else {}),
        "influential": study.influential,
        "among": [
            {key: getattr(matrix, key).to_dict("index") for key in NUMBERS}
            for matrix in study.among
        ],
        "caveats": caveats(study),
    }


def headline(study: Correlations) -> tuple[str, str]:
    """Return (main result in one or two sentences, sentences on the data and the tests)."""
    options = study.options
    family = study.families["all"]
    pairs = study.pairs[study.pairs["models"] == "all"]
    level = f"α = {options.alpha:g} {WORDS[options.adjust]}"
    if family.family:
        passed = study.tested(family).to_numpy().sum()
        answer = f"{passed} of {family.family} correlations are significant at {level}."
        if study.attainable["all"] > options.alpha:
            answer += f" None could have been significant: {_limit(study)}."
    else:
        names = dict.fromkeys([*options.x, *options.y])
        constant = [name for name in names if study.frame[name].nunique() == 1]
        why = (
            f"no pair of x and y has values of at least {correlation.MIN_MODELS} models"
        )
        if constant:
            verb = "is" if len(constant) == 1 else "are"
            why = f"{', '.join(constant)} {verb} constant over all models"
        answer = f"No correlation can be tested: {why}."
    defined = pairs[pairs["statistic"].notna()]
    if len(defined):
        top = defined.loc[defined["statistic"].abs().idxmax()]
        rho = f"{SIGN[options.method]} = {tables.digits(2)(top['statistic'])}"
        answer += f" The strongest: {top['x']} with {top['y']}, {rho}."
    counts = (defined if len(defined) else pairs)["n"]
    orders = "all" if family.exact else f"{family.draws:,} random"
    basis = f"{options.method.capitalize()}'s rank correlations over"
    basis += f" {tables.span(counts)} models; two-sided p from {orders} orders."
    if "partial_pvalue" in pairs:
        partial = pairs["partial_pvalue"].dropna()
        significant = (partial <= options.alpha).sum()
        basis += (
            f" Within categories ({options.category}), {significant} of {len(partial)}"
        )
        basis += f" partial correlations have an unadjusted p ≤ {options.alpha:g}."
    if study.given:
        basis += f" {_headline_given(study)}"
    return answer, basis


def _headline_given(study: Correlations) -> str:
    """Return a sentence on the partial correlations over all models.

    The sentence has the number of significant partial correlations, and the number of these whose
    sign differs from the sign of the plain correlation. If no correlation can be tested, the
    sentence says so.
    """
    names = tables.join(study.options.given)
    family = study.given.families["all"]
    if not family.family:
        return f"Given {names}, no correlation can be tested."
    passed = study.tested(family)
    plain = study.families["all"].statistic
    reversed_count = (passed & (plain * family.statistic < 0)).to_numpy().sum()
    significant = f"{passed.to_numpy().sum()} of {family.family} are significant"
    return (
        f"Given {names}, {significant}, {reversed_count} of them with the other sign."
    )


def _limit(study: Correlations) -> str:
    """Return a phrase with the reason why no p over all models can reach alpha, and a remedy."""
    options = study.options
    least = study.attainable["all"]
    reason = f"p {WORDS[options.adjust]} is at least {least:.2g}"
    tests = study.families["all"].family if options.adjust == "holm" else 1
    orders = math.ceil(round(tests / options.alpha, 6)) - 1
    more_options = dataclasses.replace(
        options, permutations=max(orders, options.permutations)
    )
    if (
        dataclasses.replace(study, options=more_options).attainable["all"]
        > options.alpha
    ):
        return f"{reason} with so few models; measure more"
    return f"{reason} with so few orders; set --permutations={orders} or more"


def caveats(study: Correlations) -> list[str]:
    """Return the caveats of the page, one sentence or short paragraph each."""
    options = study.options
    kinds = study.frame[options.category].value_counts()
    largest = f"{kinds.index[0]} with {kinds.iloc[0]} of {len(study.frame)} models"
    dependence = "Models of one category are variants of one method and not independent"
    if "partial_pvalue" in study.pairs:
        dependence += ": the partial correlations permute only within categories"
    lines = [
        "Correlations do not show what causes what.",
        f"p assumes that models are exchangeable. {dependence}. The largest category is {largest}.",
        "p-values are adjusted separately within each subset of models.",
    ]
    if study.given:
        names = tables.join(options.given)
        lines.append(
            f"Controlling for {names} is not an experiment. If x acts on y through {names}, "
            f"that effect is removed; if x and another variable both act on {names}, the two "
            f"correlate among models with equal {names}."
        )
        lines += _fully_explained(study.given.pairs, names)
        lines += _unexplained(study.given.pairs, names)
    families = {name: matrix.statistic for name, matrix in study.families.items()}
    for name, matrix in study.given.families.items() if study.given else ():
        families[f"{name} given {tables.join(options.given)}"] = matrix.statistic
    incomplete = {
        name: matrix
        for name, matrix in families.items()
        if matrix.isna().any(axis=None)
    }
    undefined = [
        f"{_undefined_pairs(matrix)} in {name}" for name, matrix in incomplete.items()
    ]
    if undefined:
        lines.append(
            "Undefined because a measure is constant or fewer than "
            f"{correlation.MIN_MODELS} models have both: {'; '.join(undefined)}."
        )
    unattainable = [name for name, p in study.attainable.items() if p > options.alpha]
    if unattainable:
        level = f"{options.alpha:g} {WORDS[options.adjust]}"
        lines.append(
            f"With so few models or orders, no p could be as small as {level} in: "
            f"{', '.join(unattainable)}."
        )
    if len(study.influential):
        lines.append(
            "Some correlations depend on single models: see the table of influential models."
        )
    return lines


def _fully_explained(pairs: pd.DataFrame, names: str) -> list[str]:
    """Return [caveat on measures that the given measures explain almost fully], or [].

    pairs: partial correlations, as in `Correlations.pairs`. names: names of the given measures, as
    text.
    """
    unexplained = {}
    for side in "xy":
        known = pairs.reindex(columns=["models", side, f"{side}_left"])
        for models, name, left in known.itertuples(index=False):
            if left < LEAST_UNEXPLAINED:
                unexplained[f"{name} in {models}"] = left
    opening = f"Given {names}, less than {LEAST_UNEXPLAINED:.0%} of the variance of ranks is left"
    shown = ", ".join(f"{name} ({left:.1%})" for name, left in unexplained.items())
    line = f"{opening}, so that few models determine the result and no interval is given: {shown}."
    return [line] if unexplained else []


def _unexplained(pairs: pd.DataFrame, names: str) -> list[str]:
    """Return [caveat on subsets of models where the given measures explain nothing], or [].

    pairs: partial correlations, as in `Correlations.pairs`. names: names of the given measures, as
    text.
    """
    left = pairs.reindex(columns=["x_left", "y_left"]).min(axis=1)
    least = left.groupby(pairs["models"], sort=False).min()
    subsets = least.index[least > 1 - 1e-9].tolist()
    if not subsets:
        return []
    return [
        (
            f"In {tables.join(subsets)}, {names} explains nothing of any measure (as if all "
            f"models had the same {names}): partial correlations equal the plain ones."
        )
    ]


def _undefined_pairs(statistic: pd.DataFrame) -> str:
    """Return the names of measures without any correlation, and of other undefined pairs, as text.

    statistic: matrix of correlations, NaN where undefined.
    """
    undefined = statistic.isna()
    rows = undefined.index[undefined.all(axis=1)]
    columns = undefined.columns[undefined.all() & (len(rows) < len(undefined))]
    remaining = undefined.drop(index=rows, columns=columns).stack()
    return ", ".join(
        [*rows, *columns, *(f"{x} with {y}" for x, y in remaining.index[remaining])]
    )


def tables_of(study: Correlations) -> document.Placed:
    """Yield ("tables", table): correlations of pairs, among measures, and influential models.

    Names of the tables: "correlations"; "given" (partial correlations, only with measures in
    options.given); "among_1", "among_2", ... (correlations among measures); "influential". Without
    influential models, the last item is ("tables", None).
    """
    options = study.options
    sign = SIGN[study.options.method]
    format_number = tables.digits(2)
    level = f"p ≤ {options.alpha:g} {WORDS[options.adjust]}"
    caption = f"Correlations; bold: {level}."
    yield "tables", _pairs_table("correlations", caption, study, options.category)
    if study.given:
        names = tables.join(options.given)
        caption = f"Partial rank correlations given {names}; bold: {level}. "
        caption += "Left: unexplained share of the variance of ranks."
        controls = f"{names} and {options.category}"
        yield "tables", _pairs_table("given", caption, study.given, controls)
    for i, matrix in enumerate(study.among, start=1):
        names = tuple(matrix.statistic)
        bold = np.argwhere(study.tested(matrix).to_numpy())
        data = matrix.statistic.set_axis(
            tables.distinct_keys(names, ("measure",)), axis=1
        )
        among = tables.Table(
            name=f"among_{i}",
            caption=f"{sign} among measures; bold: {level} over {matrix.family} pairs.",
            head=("", *names),
            rows=tuple(
                (x, *map(format_number, row))
                for x, *row in matrix.statistic.itertuples()
            ),
            data=data.reset_index(names="measure"),
            bold=frozenset((i, j + 1) for i, j in bold.tolist()),
        )
        yield "tables", among
    caption = (
        f"Influential models for {sign} over all models: without the model, Spearman's"
    )
    caption += " ρ changes by more than 2 standard errors divided by the root of n."
    columns = tables.columns(
        "x y model category statistic:.2 without:.2",
        category=options.category,
        statistic="ρ",
        without="ρ without the model",
    )
    yield (
        "tables",
        tables.from_rows("influential", caption, study.influential, columns),
    )


def _pairs_table(
    name: str, caption: str, study: Correlations, controls: str
) -> tables.Table:
    """Return a table of all pairs, one row per subset of models, x and y.

    Correlations that are significant after the chosen adjustment are bold. name, caption: name and
    caption of the table. controls: text on the variables that the last columns control for.
    """
    options = study.options
    pairs = study.pairs
    if "low" in pairs:
        caption += f" In brackets: {_INTERVALS}."
    if "partial" in pairs:
        caption += f" Partial: controlling for {controls}."
    columns = tables.columns(
        "models x y n:d statistic pvalue:p holm:p bh:p x_left:% y_left:% partial:.2 "
        "partial_pvalue:p",
        x_left="left of x, %",
        y_left="left of y, %",
        partial="partial ρ",
        partial_pvalue="partial p",
        pvalue="p",
        holm="Holm",
        bh="BH",
    )
    sign = SIGN[options.method]
    show = tables.interval(tables.digits(2))
    columns["statistic"] = tables.Column(sign, show, ("low", "high"))
    shown = pairs.assign(_bold=pairs[TESTED[options.adjust]] <= options.alpha)
    return tables.from_rows(
        name,
        caption,
        shown,
        columns,
        bold=lambda row: ["statistic"] if row["_bold"] else [],
        data=pairs,  # The files keep empty columns, too.
    )


def figures(study: Correlations) -> document.Placed:
    """Yield (section id, figure): heat maps of correlations, and scatter plots of the models.

    Names: correlations; correlations_given and given (only if measures are given); among_1,
    among_2, ...; models.
    """
    options = study.options
    sign = f"{options.method.capitalize()}'s {SIGN[options.method]}"
    hatch_note = f"Hatched: p > {options.alpha:g} {WORDS[options.adjust]}."
    drawn = heat(study, study.families)
    caption = f"{sign} of measures. {hatch_note}"
    yield "figures", document.Figure("correlations", caption, drawn)
    if study.given:
        names = tables.join(options.given)
        caption = f"Partial {sign} of measures given {names}. {hatch_note}"
        drawn = heat(study, study.given.families)
        yield "figures", document.Figure("correlations_given", caption, drawn)
        caption = (
            f"Plain correlations, and partial ones given {names}; lines: {_INTERVALS}."
        )
        yield "figures", document.Figure("given", caption, plain_and_partial(study))
    for i, matrix in enumerate(study.among, start=1):
        caption = f"{sign} among measures {i}. {hatch_note}"
        drawn = heat(study, {"": matrix})
        yield "figures", document.Figure(f"among_{i}", caption, drawn)
    caption = "Models, one marker per model, coloured by category."
    if options.size:
        caption += (
            f" Markers grow with {options.size}; models without it have one size."
        )
    yield "figures", document.Figure("models", caption, all_pairs(study))


def plain_and_partial(study: Correlations) -> plots.Figure:
    """Return a figure of plain and partial correlations with intervals, a row per pair.

    There is a panel per subset of models. study: a study with partial correlations (`given`).
    """
    given = f"given {tables.join(study.options.given)}"
    kinds = {"plain": study, given: study.given}
    pairs = [*itertools.product(study.options.x, study.options.y)]
    names = [f"{x}, {y}" for x, y in pairs]
    wide = 2.2 + plots.LETTER * max(map(len, names)) / len(study.families)
    fig, (all_axes,) = plots.grid(
        len(study.families),
        tuple(kinds),
        across=3,
        cell=(wide, 0.4 * len(names) + 0.7),
        alone=wide + 2,
        sharey=True,
    )
    looks = plots.marks(kinds)
    for axes, choice in zip(all_axes, study.families, strict=True):
        axes.axvline(0, color=plots.INK, lw=0.8)
        estimates = {}
        for kind, correlations in kinds.items():
            rows = correlations.pairs[correlations.pairs["models"] == choice].set_index(
                ["x", "y"]
            )
            cells = rows.reindex(columns=["statistic", "low", "high"]).loc[pairs]
            estimates[kind] = dict(zip(names, cells.to_numpy(), strict=True))
        legend = plots.in_lanes(axes, names, estimates, looks, unit=1)
        axes.set(xlim=(-1.05, 1.05), ylim=(len(names) - 0.5, -0.5))
        axes.set_xlabel(f"ρ, {choice} ({study.families[choice].n})", **plots.ink())
    all_axes[0].set_yticks(range(len(names)), plots.plain(names))
    plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def all_pairs(study: Correlations) -> plots.Figure:
    """Return a figure of scatter plots of every y against every x, one panel per pair."""
    options = study.options
    grid = [[(x, y) for x in options.x] for y in options.y]
    rho = study.families["all"].statistic
    return scatter(
        study.frame, grid, rho=rho, category=options.category, size=options.size
    )


def heat(study: Correlations, families: Mapping[str, Matrix]) -> plots.Figure:
    """Return a figure of heat maps of correlations; cells that are not significant are hatched.

    families: matrices by title of the panel. NaN and the diagonal of measures among themselves are
    grey.
    """
    sizes = {name: f"n = {family.n}" for name, family in families.items()}
    titles = [f"{name} ({n})" if name else n for name, n in sizes.items()]
    first = next(iter(families.values())).statistic
    count = len(families)
    rows, columns = first.shape
    cell = 0.5  # Inches.
    row_length = max(map(len, first.index))
    column_length = max(map(len, first))
    label_width = (
        0.052 * column_length - 0.2
    )  # Of the slanted label of the last column.
    step = max(
        columns * cell + max(label_width, 0.2),
        *(0.071 * len(text) for text in titles),
    )
    wide = step + 0.075 * row_length / count
    tall = 0.75 + 0.05 * column_length + rows * cell
    fig, (all_axes,) = plots.grid(
        count, across=count, cell=(wide, tall), alone=wide + 0.2, sharey=True
    )
    for axes, title, family in zip(all_axes, titles, families.values(), strict=True):
        mesh = _cells(axes, family.statistic, study.tested(family))
        axes.set_xlabel(title, **plots.ink(9))
    bar = fig.colorbar(
        mesh,
        cax=None,
        ax=all_axes,
        shrink=min(1, 1.6 / (count * step)),
        location="bottom",
        anchor=(0, 0),
        aspect=18,
        ticks=[-1, 0, 1],
    )
    bar.ax.set_xlim(-1, 1)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=plots.SMALL, labelcolor=plots.INK)
    return plots.laid_out(fig)


def _cells(axes: plots.Axes, table: pd.DataFrame, passed: pd.DataFrame) -> Any:
    """Draw a table of correlations as coloured cells; return the mesh, for a colour bar.

    table: correlations, NaN where undefined. passed: mask of the significant cells; other cells
    with a number are hatched. A cell whose row and column have one name is left empty.
    """
    values = table.mask(np.equal.outer(table.index, table.columns)).astype(float)
    # Limits beyond ±1 avoid the darkest colours, on which text is illegible.
    drawn = plots.matrix(
        axes,
        values,
        limits=(-1.19, 1.19),
        form="{:.2f}",
        colours=mpl.colormaps["RdBu"].with_extremes(bad="#c9ced4"),
    )
    for i, j in np.argwhere((values.notna() & ~passed).to_numpy()):
        hatched = patches.Rectangle(
            (j - 0.48, i - 0.48),
            0.96,
            0.96,
            fill=False,
            hatch="////",
            lw=0,
            hatch_linewidth=0.5,
            ec="#8b939c",
        )
        axes.add_patch(hatched)
        face = drawn.to_rgba(values.iloc[i, j])
        label = axes.texts[i * table.shape[1] + j]
        label.set_bbox(dict(facecolor=face, edgecolor="none", pad=0.8))
    axes.set_xticks(
        np.arange(table.shape[1]),
        table.columns,
        rotation=40,
        ha="left",
        rotation_mode="anchor",
    )
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
    """Return a figure of scatter plots: one marker per model, one marker style per category.

    frame: one row per model. grid: rows of pairs (x, y) of columns of `frame`. category: column
    with the category. size: column with the size of the marker; None for equal sizes. rho: numbers
    above the panels, x in rows and y in columns. panel: width and height of a panel in inches.
    order: all categories, so that figures of different models use the same marker styles. Axes are
    shared along columns and rows of panels with the same measure.
    """
    kinds = frame[category].astype(str)
    looks = plots.marks(order or kinds, {*kinds})
    areas = areas_of(frame[size] if size else pd.Series(index=frame.index))
    shares_x = all(
        len({x for x, _ in column}) == 1 for column in zip(*grid, strict=True)
    )
    shares_y = all(len({y for _, y in row}) == 1 for row in grid)
    rows = len(grid)
    columns = len(grid[0])
    cell = max(panel[0], 4.8 / columns), panel[1]
    fig, cells = plots.grid(
        rows * columns,
        tuple(looks),
        across=columns,
        cell=cell,
        sharex="col" if shares_x else False,
        sharey="row" if shares_y else False,
    )
    for (i, j), axes in np.ndenumerate(cells):
        x, y = grid[i][j]
        for name, look in looks.items():
            in_category = (kinds == name).to_numpy()
            axes.scatter(
                frame[x][in_category],
                frame[y][in_category],
                areas[in_category],
                **(look | {"alpha": 0.75, "lw": 0}),
            )
        plots.dress(axes, None if rho is None else rho.loc[x, y])
        if i == rows - 1 or not shares_x:
            axes.set_xlabel(x, **plots.ink())
        if j == 0 or not shares_y:
            axes.set_ylabel(y, **plots.ink())
    plots.legend_above(fig, plots.handles(looks))
    return plots.laid_out(fig)


def areas_of(sizes: pd.Series) -> np.ndarray:
    """Return the areas of markers in square points: 0.2 to 1.8 units by size, 1 unit for NaN.

    One unit is `UNIT`, 26 square points. sizes: size of each model, such as the strength of
    adversarial training; if the largest size is 0, all areas are 1 unit. For attack strengths up to
    8, areas are (epsilon + 1) / 5 units, as in Gavrikov and Keuper.
    """
    values = sizes.to_numpy(np.float64)
    largest = np.nanmax(values, initial=0)
    shares = 0.2 + 1.6 * values / (largest or math.nan)
    return UNIT * np.where(np.isfinite(shares), np.clip(shares, 0.2, None), 1)
